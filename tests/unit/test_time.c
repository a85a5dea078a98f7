/* Time where streams meet: silent sources and partitions, rows from the future and at the
 * watermark, clocks that jump. The test moves the clock that silence is measured by (world.h). */
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define T0 WORLD_LOG_TIME
enum { HOUR = 3600000 };
static const int64_t MS = 1000000;

/* ---- dataflows ---- */

#define SOURCE(ID, TOPIC, MORE)                                                                    \
    "{\"id\":\"" ID "\",\"type\":\"source\",\"config\":{\"topic\":\"" TOPIC                        \
    "\",\"format\":\"json\",\"schema\":{\"k\":\"string\",\"t\":\"i64\"},\"time\":{\"field\":"      \
    "\"t\",\"unit\":\"ms\"}" MORE "}},"
#define IDLE ",\"idle\":\"10s\""
#define COUNT(INPUTS)                                                                              \
    "{\"id\":\"w\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\"},"   \
    "\"every\":\"1s\"},\"inputs\":[" INPUTS "]},"
#define OUT(FROM)                                                                                  \
    "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":\"json\"},"            \
    "\"inputs\":[\"" FROM "\"]}]}"
#define FLOW "{\"braid\":1,\"name\":\"f\",\"tasks\":["

static const char two_idle[] =
    FLOW SOURCE("a", "a", IDLE) SOURCE("b", "b", IDLE) COUNT("\"a\",\"b\"") OUT("w");
static const char two_patient[] =
    FLOW SOURCE("a", "a", "") SOURCE("b", "b", "") COUNT("\"a\",\"b\"") OUT("w");
static const char wide_idle[] =
    FLOW SOURCE("a", "wide", IDLE) COUNT("{\"from\":\"a\",\"by\":[\"k\"]}") OUT("w");
static const char wide_patient[] =
    FLOW SOURCE("a", "wide", "") COUNT("{\"from\":\"a\",\"by\":[\"k\"]}") OUT("w");
static const char wide_ordered[] =
    FLOW SOURCE("a", "wide", IDLE) COUNT("{\"from\":\"a\",\"ordered\":true}") OUT("w");

/* Rows of key k at T0 + each of the times, which end with -1. */
static void put(struct world *w, const char *topic, uint32_t part, const char *k,
                const int64_t *times) {
    struct sbuf o = { 0 };
    for (; *times >= 0; times++)
        sbuf_printf(&o, "{\"k\":\"%s\",\"t\":%lld}\n", k, (long long)(T0 + *times));
    world_append_to(w, topic, part, sbuf_str(&o));
    sbuf_free(&o);
    executor_settle(w->x);
}
#define PUT(W, TOPIC, PART, K, ...) put(W, TOPIC, PART, K, (int64_t[]){ __VA_ARGS__, -1 })

static void pass(struct world *w, int64_t ms) {
    w->idle_ns += ms * MS;
    executor_settle(w->x);
}

/* What the windows have put out: "second:rows " of each, in order of the seconds. */
static const char *windows_of(struct world *w, const char *topic) {
    static char text[1024];
    static struct sbuf o;
    struct log_topic_info info;
    int count[64] = { 0 }, fired[64] = { 0 };
    struct err e = ERR_INIT;
    o.len = 0;
    assert_int_equal(log_topic_info(w->log, topic, &info, &e), 0);
    for (uint32_t p = 0; p < info.conf.partitions; p++)
        world_read_part(w, topic, p, &o);
    text[0] = '\0';
    for (const char *s = sbuf_str(&o); (s = strstr(s, "\"window_start\":")); s++) {
        long long start = strtoll(s + strlen("\"window_start\":"), NULL, 10);
        int at = (int)((start - T0) / 1000);
        assert_in_range(at, 0, 63);
        s = strstr(s, "\"n\":");
        assert_non_null(s);
        count[at] += (int)strtol(s + strlen("\"n\":"), NULL, 10);
        fired[at]++;
    }
    size_t n = 0;
    for (int i = 0; i < 64; i++)
        if (fired[i])
            n += (size_t)snprintf(text + n, sizeof text - n, "%d:%d ", i, count[i]);
    return text;
}

static const char *windows(struct world *w) {
    return windows_of(w, "o");
}

struct totals {
    const char *type;
    struct op_counts c;
    int64_t held;
    char held_for[64];
};
static void add_counts(void *arg, struct task *t) {
    struct totals *s = arg;
    struct task_stats st;
    if (strcmp(task_def(t)->op->name, s->type) != 0)
        return;
    task_stats(t, &st);
    s->c.in += st.counts.in;
    s->c.late += st.counts.late;
    s->c.rejected += st.counts.rejected;
    s->held += st.held_bytes;
    if (st.held_for)
        snprintf(s->held_for, sizeof s->held_for, "%s", st.held_for);
    assert_true(op_counts_conserved(&st.counts));
}
static void visit(void *arg, struct exec *ex) {
    exec_each(ex, add_counts, arg);
}
static struct totals totals(struct world *w, const char *type) {
    struct totals s = { .type = type };
    executor_visit(w->x, visit, &s);
    return s;
}

static void open_two(struct world *w, const char *flow) {
    world_open(w, 0, false);
    world_topic(w, "a");
    world_topic(w, "b");
    world_submit(w, flow);
}

static void open_wide(struct world *w, const char *flow) {
    world_open_conf(w, &(struct world_conf){ .lanes = 2 });
    world_topic_parts(w, "wide", 3);
    world_submit(w, flow);
}

/* ---- a silent source ---- */

static void test_silent_source(void **state) {
    struct world w;
    (void)state;
    open_two(&w, two_idle);
    PUT(&w, "a", 0, "k", 100, 900, 1500, 3500);
    pass(&w, 9999);
    assert_string_equal(windows(&w), ""); /* b holds a back */
    pass(&w, 1);
    assert_string_equal(windows(&w), "0:2 1:1 "); /* both are silent: as far as a has come */
    PUT(&w, "a", 0, "k", 5200);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 ");
    /* b comes back: what is below the watermark reached without it is late, the rest is not. */
    PUT(&w, "b", 0, "k", 4999, 5199, 5300);
    PUT(&w, "a", 0, "k", 5301);
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    pass(&w, 9999);
    PUT(&w, "a", 0, "k", 7000);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 "); /* b, at 5300, holds it back again */
    pass(&w, 1);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 5:4 "); /* until it is silent again */
    world_close(&w);
}

/* Without `idle` an hour is as nothing. */
static void test_silent_hour(void **state) {
    struct world w;
    (void)state;
    open_two(&w, two_patient);
    PUT(&w, "a", 0, "k", 100, 900, 1500, 3500);
    for (int i = 0; i < 60; i++)
        pass(&w, 60000);
    assert_string_equal(windows(&w), "");
    assert_true(totals(&w, "window_aggregate").held > 0);
    PUT(&w, "b", 0, "k", 50, 2000); /* nothing of it is late */
    assert_string_equal(windows(&w), "0:3 1:1 ");
    assert_int_equal(totals(&w, "window_aggregate").c.late, 0);
    world_close(&w);
}

/* A decision is part of its epoch: after an abort, and after a kill, it is there as before. */
static void test_silence_survives(void **state) {
    struct world w;
    (void)state;
    for (int kill = 0; kill < 2; kill++) {
        open_two(&w, two_idle);
        PUT(&w, "a", 0, "k", 100, 3500);
        executor_inject_abort(w.x);
        pass(&w, 10000);
        assert_string_equal(windows(&w), "0:1 ");
        if (kill)
            world_restart(&w);
        PUT(&w, "a", 0, "k", 5200); /* b is still idle: no clock has to pass */
        assert_string_equal(windows(&w), "0:1 3:1 ");
        executor_inject_abort(w.x);
        PUT(&w, "b", 0, "k", 4999, 5199);
        assert_int_equal(totals(&w, "window_aggregate").c.late, 0);
        PUT(&w, "b", 0, "k", 9000);
        PUT(&w, "a", 0, "k", 9000);
        assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
        assert_string_equal(windows(&w), "0:1 3:1 5:2 ");
        world_close(&w);
    }
}

/* The clock that silence is measured by goes back: silence begins anew. It never begins before the
 * start of the server. */
static void test_clock_back(void **state) {
    struct world w;
    (void)state;
    open_two(&w, two_idle);
    PUT(&w, "a", 0, "k", 100, 3500);
    pass(&w, 9000);
    pass(&w, -HOUR);
    pass(&w, 9999);
    assert_string_equal(windows(&w), "");
    world_restart(&w);
    pass(&w, HOUR);
    pass(&w, 9999);
    assert_string_equal(windows(&w), "");
    pass(&w, 1);
    assert_string_equal(windows(&w), "0:1 ");
    world_close(&w);
}

/* A dataflow that joins while its sources are silent finds them so. */
static void test_graft_on_silence(void **state) {
    struct world w;
    (void)state;
    open_two(&w, two_idle);
    pass(&w, 10000);
    world_submit(
        &w, "{\"braid\":1,\"name\":\"g\",\"tasks\":[" SOURCE("a", "a", IDLE) SOURCE(
                "b", "b", IDLE) "{\"id\":\"m\",\"type\":\"filter\",\"config\":{\"where\":\"true\"},"
                                "\"inputs\":[\"a\",\"b\"]},"
                                "{\"id\":\"p\",\"type\":\"sink\",\"config\":{\"topic\":\"p\","
                                "\"format\":\"json\"},\"inputs\":[\"m\"]}]}");
    PUT(&w, "a", 0, "k", 100, 1500, 3000);
    assert_int_equal(world_end(&w, "p"), 2);
    assert_string_equal(windows(&w), "0:1 1:1 ");
    world_close(&w);
}

/* A generator that has come to its end holds nobody back. */
static void test_ended_generator(void **state) {
    struct world w;
    (void)state;
    world_open(&w, 0, false);
    world_topic(&w, "a");
    world_submit(
        &w, FLOW SOURCE(
                "a", "a",
                "") "{\"id\":\"g\",\"type\":\"generator\",\"config\":{\"fields\":{\"k\":{"
                    "\"choice\":[\"x\"]},\"t\":{\"integer\":[1,1]}},\"pace\":false,"
                    "\"rate\":1000,\"first_time\":\"2023-11-14T22:13:20Z\",\"count\":100}}," COUNT(
                        "\"a\",\"g\"") OUT("w"));
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            world_restart(&w);
        if (round == 2)
            executor_inject_abort(w.x);
        PUT(&w, "a", 0, "k", 50 + 2000 * round, 1000 + 2000 * round);
    }
    assert_string_equal(windows(&w), "0:101 1:1 2:1 3:1 4:1 ");
    world_close(&w);
}

/* ---- silent and empty partitions ---- */

static void test_empty_partition(void **state) {
    struct world w;
    (void)state;
    open_wide(&w, wide_patient);
    PUT(&w, "wide", 0, "k0", 100, 3500);
    PUT(&w, "wide", 1, "k1", 200, 3500);
    pass(&w, HOUR);
    assert_string_equal(windows(&w), ""); /* partition 2 has never had a row */
    PUT(&w, "wide", 2, "k2", 300, 1500);
    assert_string_equal(windows(&w), "0:3 ");
    world_close(&w);

    open_wide(&w, wide_idle);
    PUT(&w, "wide", 0, "k0", 100, 3500);
    PUT(&w, "wide", 1, "k1", 200, 1500);
    pass(&w, 10000);
    assert_string_equal(windows(&w), "0:2 1:1 "); /* all are silent: the furthest counts */
    PUT(&w, "wide", 0, "k0", 5500);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 ");
    PUT(&w, "wide", 2, "k2", 300, 5100, 5600); /* one late, two not */
    PUT(&w, "wide", 1, "k1", 6000);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 ");
    PUT(&w, "wide", 0, "k0", 7000);
    PUT(&w, "wide", 2, "k2", 6500);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 5:3 ");
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    world_close(&w);
}

/* The same through an ordered exchange, where the task itself aligns the partitions. */
static void test_empty_partition_ordered(void **state) {
    struct world w;
    (void)state;
    open_wide(&w, wide_ordered);
    PUT(&w, "wide", 0, "k0", 100, 3500);
    PUT(&w, "wide", 1, "k1", 200, 1500);
    assert_string_equal(windows(&w), "");
    executor_inject_abort(w.x);
    pass(&w, 10000);
    assert_string_equal(windows(&w), "0:2 1:1 ");
    world_restart(&w);
    PUT(&w, "wide", 0, "k0", 5500);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 ");
    executor_inject_abort(w.x);
    PUT(&w, "wide", 2, "k2", 300, 5100, 5600);
    PUT(&w, "wide", 1, "k1", 7000);
    PUT(&w, "wide", 0, "k0", 7000);
    PUT(&w, "wide", 2, "k2", 7000);
    assert_string_equal(windows(&w), "0:2 1:1 3:1 5:3 ");
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    world_close(&w);
}

/* Who joins an exchange later hears of the partitions that are idle already. */
static void test_join_on_silence(void **state) {
    struct world w;
    (void)state;
    for (int abort = 0; abort < 2; abort++) {
        open_wide(&w, wide_ordered);
        PUT(&w, "wide", 0, "k0", 100, 1500);
        pass(&w, 10000);
        if (abort)
            executor_inject_abort(w.x);
        world_submit(&w, "{\"braid\":1,\"name\":\"g\",\"tasks\":[" SOURCE("a", "wide", IDLE)
                             COUNT("\"a\"") "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":"
                                            "\"p\",\"format\":\"json\"},\"inputs\":[\"w\"]}]}");
        PUT(&w, "wide", 0, "k0", 2500, 3500);
        assert_string_equal(windows_of(&w, "p"), "2:1 ");
        PUT(&w, "wide", 1, "k0", 2900, 3900);
        assert_int_equal(totals(&w, "window_aggregate").c.late, 1); /* the other still waits */
        world_close(&w);
    }
}

/* A partition that lags hours behind holds the others back and loses nothing. */
static void test_lagging_partition(void **state) {
    struct world w;
    (void)state;
    open_wide(&w, wide_idle);
    PUT(&w, "wide", 0, "k0", 100, 5 * HOUR);
    PUT(&w, "wide", 1, "k1", 200, 5 * HOUR);
    for (int64_t t = 0; t < 20000; t += 500) {
        pass(&w, 9000); /* slow, but never silent */
        PUT(&w, "wide", 2, "k2", t);
    }
    assert_string_equal(windows(&w), "0:4 1:2 2:2 3:2 4:2 5:2 6:2 7:2 8:2 9:2 10:2 11:2 12:2 13:2 "
                                     "14:2 15:2 16:2 17:2 18:2 ");
    assert_int_equal(totals(&w, "window_aggregate").c.late, 0);
    world_close(&w);
}

/* ---- silence and aborts ---- */

/* A row in the epoch of the decision finds its partition idle in the redo, too, though it is there
 * from the start now. */
static void test_silence_again(void **state) {
    struct world w;
    (void)state;
    for (int abort = 0; abort < 2; abort++) {
        open_wide(&w, wide_idle);
        for (uint32_t p = 0; p < 3; p++)
            PUT(&w, "wide", p, "k0", 100);
        pass(&w, 5000);
        PUT(&w, "wide", 0, "k0", 3600);
        assert_string_equal(windows(&w), "");
        if (abort)
            executor_inject_abort(w.x);
        w.idle_ns += 6000 * MS;
        executor_step(w.x); /* partitions 1 and 2 are idle */
        PUT(&w, "wide", 1, "k0", 900, 3700);
        assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
        assert_string_equal(windows(&w), "0:3 ");
        struct executor_health h;
        executor_health(w.x, &h);
        assert_int_equal(h.aborts, abort);
        world_close(&w);
    }
}

/* The same rows and silences, once with an abort in each epoch and once without any: what comes out
 * is the same, late rows too. The clock stands while an epoch is done again. */
static void silences(const char *flow, const char *topic, uint32_t parts, uint64_t seed,
                     bool aborts, struct sbuf *out, uint64_t *late) {
    struct world w;
    uint64_t rng = seed;
    int64_t t = 1000;
    world_open_conf(&w, &(struct world_conf){ .lanes = 1 + (uint32_t)(seed % 2) });
    if (topic)
        world_topic_parts(&w, topic, parts);
    else {
        world_topic(&w, "a");
        world_topic(&w, "b");
    }
    world_submit(&w, flow);
    for (int step = 0; step < 25; step++) {
        for (uint32_t p = 0; p < parts; p++) {
            char row[64];
            t += (int64_t)(test_random(&rng) % 300);
            int64_t back = (int64_t)(test_random(&rng) % 1500);
            snprintf(row, sizeof row, "{\"k\":\"k%u\",\"t\":%lld}\n",
                     (uint32_t)test_random(&rng) % 3, (long long)(T0 + (t > back ? t - back : t)));
            if (test_random(&rng) % 3 == 0)
                world_append_to(&w, topic ? topic : p ? "b" : "a", topic ? p : 0, row);
        }
        if (aborts)
            executor_inject_abort(w.x);
        w.idle_ns += (int64_t)(test_random(&rng) % 8000) * MS;
        if (test_random(&rng) % 2) { /* more rows in the epoch of the decisions */
            char row[64];
            uint32_t p = (uint32_t)(test_random(&rng) % parts);
            executor_step(w.x);
            snprintf(row, sizeof row, "{\"k\":\"k0\",\"t\":%lld}\n",
                     (long long)(T0 + t - (int64_t)(test_random(&rng) % 900)));
            world_append_to(&w, topic ? topic : p ? "b" : "a", topic ? p : 0, row);
        }
        executor_settle(w.x);
    }
    t += 20000;
    for (uint32_t p = 0; p < parts; p++) {
        char row[64];
        snprintf(row, sizeof row, "{\"k\":\"end\",\"t\":%lld}\n", (long long)(T0 + t));
        world_append_to(&w, topic ? topic : p ? "b" : "a", topic ? p : 0, row);
    }
    executor_settle(w.x);
    sbuf_adds(out, windows(&w));
    *late = totals(&w, "window_aggregate").c.late;
    world_close(&w);
}

static void test_silence_and_aborts(void **state) {
    uint64_t all = 0;
    int n = test_scale(30);
    (void)state;
    for (int i = 0; i < 3 * n; i++) {
        static const char *const flows[] = { two_idle, wide_idle, wide_ordered };
        struct sbuf out[2] = { 0 };
        uint64_t late[2], seed = test_seed((uint64_t)i);
        const char *topic = seed % 3 ? "wide" : NULL;
        for (int k = 0; k < 2; k++)
            silences(flows[seed % 3], topic, topic ? 3 : 2, seed, k, &out[k], &late[k]);
        if (strcmp(sbuf_str(&out[0]), sbuf_str(&out[1])) != 0 || late[0] != late[1])
            fail_msg("BRAID_SEED=%llu: without aborts %s, %llu late; with them %s, %llu late",
                     (unsigned long long)seed, out[0].p, (unsigned long long)late[0], out[1].p,
                     (unsigned long long)late[1]);
        all += late[0];
        sbuf_free(&out[0]);
        sbuf_free(&out[1]);
    }
    assert_true(all > (uint64_t)n);
}

/* ---- at the watermark, and from the future ---- */

static void test_edges(void **state) {
    struct world w;
    (void)state;
    world_open(&w, 1, false);
    world_topic(&w, "a");
    world_submit(&w, FLOW SOURCE("a", "a", ",\"lateness\":\"1s\"") COUNT("\"a\"") OUT("w"));
    PUT(&w, "a", 0, "k", 1999); /* watermark 999: the window up to 1000 is open */
    PUT(&w, "a", 0, "k", 998, 999);
    assert_string_equal(windows(&w), "");
    PUT(&w, "a", 0, "k", 2000); /* 1000: it fires, and only it */
    assert_string_equal(windows(&w), "0:2 ");
    PUT(&w, "a", 0, "k", 999, 1000, 1001); /* one of them late */
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    PUT(&w, "a", 0, "k", 2999);
    assert_string_equal(windows(&w), "0:2 ");
    PUT(&w, "a", 0, "k", 3000);
    assert_string_equal(windows(&w), "0:2 1:3 ");
    world_close(&w);
}

/* One row dated two days ahead becomes a dead letter and moves no partition's time; what is just
 * not too far ahead does. */
static void test_future(void **state) {
    enum { DAY = 86400000 };
    struct world w;
    struct sbuf dead = { 0 };
    (void)state;
    open_wide(&w, wide_patient);
    PUT(&w, "wide", 0, "k0", 100, 2LL * DAY, 200);
    PUT(&w, "wide", 1, "k1", 100, DAY + 1, 1500);
    PUT(&w, "wide", 2, "k2", 100, 1500);
    assert_string_equal(windows(&w), "");
    PUT(&w, "wide", 0, "k0", 1000);
    assert_string_equal(windows(&w), "0:4 ");
    assert_int_equal(totals(&w, "time").c.rejected, 2);
    assert_int_equal(totals(&w, "window_aggregate").c.late, 0);
    world_read(&w, EXECUTOR_DLQ, &dead);
    assert_non_null(strstr(sbuf_str(&dead), "too_far_ahead"));
    PUT(&w, "wide", 0, "k0", DAY); /* a day ahead is believed */
    PUT(&w, "wide", 0, "k0", 1600);
    PUT(&w, "wide", 1, "k1", 2000);
    PUT(&w, "wide", 2, "k2", 2000);
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    sbuf_free(&dead);
    world_close(&w);
}

/* ---- clocks that jump ---- */

static void put_logged(struct world *w, const char *topic, int n, int64_t log_ms) {
    char row[32];
    snprintf(row, sizeof row, "%d\n", n);
    world_append_at(w, topic, 0, row, log_ms);
    executor_settle(w->x);
}

/* Event time from the log: when its clock goes back, rows are late until it is where it was, the
 * watermark never falls; when it goes ahead, windows fire, and time stands still afterwards. */
static void test_log_clock(void **state) {
    struct world w;
    static const char source[] =
        FLOW "{\"id\":\"a\",\"type\":\"source\",\"config\":{\"topic\":\"a\",\"format\":\"csv\","
             "\"schema\":{\"n\":\"i64\"},\"lateness\":\"500ms\"}}," COUNT("\"a\"") OUT("w");
    (void)state;
    world_open(&w, 0, false);
    world_topic(&w, "a");
    world_submit(&w, source);
    put_logged(&w, "a", 1, T0 + 100);
    put_logged(&w, "a", 2, T0 + 1600); /* watermark 1100 */
    assert_string_equal(windows(&w), "0:1 ");
    put_logged(&w, "a", 3, T0 + 1200); /* back, within the lateness */
    put_logged(&w, "a", 4, T0 + 700);  /* further back: late */
    assert_int_equal(totals(&w, "window_aggregate").c.late, 1);
    put_logged(&w, "a", 5, T0 + 20000); /* an hour's jump would be no different */
    assert_string_equal(windows(&w), "0:1 1:2 ");
    put_logged(&w, "a", 6, T0 + 2000);
    put_logged(&w, "a", 7, T0 + 19999);
    assert_int_equal(totals(&w, "window_aggregate").c.late, 2);
    put_logged(&w, "a", 8, T0 + 22000);
    assert_string_equal(windows(&w), "0:1 1:2 19:1 20:1 ");
    world_close(&w);
}

/* Two raw topics meet by log time. Whatever their clocks do, the order is that of the latest log
 * time so far, and it does not depend on batches, aborts or kills. */
static void test_log_clock_merged(void **state) {
    static const int jump[] = { 100, 900, 300, 5000, 200, 4000, 6000, 100, 7000 };
    static const uint32_t batches[] = { 1, 3, 1024 };
    struct sbuf out[3] = { 0 };
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct world w;
        world_open(&w, batches[k], false);
        world_topic(&w, "a");
        world_topic(&w, "b");
        world_submit(&w,
                     FLOW "{\"id\":\"a\",\"type\":\"source\",\"config\":{\"topic\":\"a\"}},"
                          "{\"id\":\"b\",\"type\":\"source\",\"config\":{\"topic\":\"b\"}},"
                          "{\"id\":\"m\",\"type\":\"filter\",\"config\":{\"where\":\"value is not "
                          "null\"},\"inputs\":[\"a\",\"b\"]},"
                          "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":"
                          "\"raw\"},\"inputs\":[\"m\"]}]}");
        for (int i = 0; i < 9; i++) {
            char row[32];
            snprintf(row, sizeof row, "a%d\n", i);
            world_append_at(&w, "a", 0, row, T0 + jump[i]);
            snprintf(row, sizeof row, "b%d\n", i);
            world_append_at(&w, "b", 0, row, T0 + 800 * i);
            if (i % 3 == k)
                executor_inject_abort(w.x);
            if (i % 2 == k % 2)
                executor_settle(w.x);
            if (i == 5 && k == 1)
                world_restart(&w);
        }
        executor_settle(w.x);
        world_read(&w, "o", &out[k]);
        world_close(&w);
        assert_string_equal(sbuf_str(&out[k]), sbuf_str(&out[0]));
    }
    assert_string_equal(out[0].p,
                        "b0\na0\nb1\na1\na2\nb2\nb3\nb4\nb5\nb6\na3\na4\na5\nb7\na6\na7\n");
    for (int k = 0; k < 3; k++)
        sbuf_free(&out[k]);
}

/* ---- hours apart, little memory ---- */

static void test_hours_apart(void **state) {
    enum { ROWS = 20000, LIMIT = 64 << 10 };
    struct sbuf out[2] = { 0 };
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct world w;
        struct sbuf a = { 0 }, b = { 0 };
        int64_t most = 0;
        world_open_conf(&w, &(struct world_conf){ .align_bytes = k ? LIMIT : 0 });
        world_topic(&w, "a");
        world_topic(&w, "b");
        world_submit(&w, two_patient);
        world_submit(
            &w,
            "{\"braid\":1,\"name\":\"m\",\"tasks\":[" SOURCE("a", "a", "")
                SOURCE("b", "b", "") "{\"id\":\"m\",\"type\":\"filter\",\"config\":{\"where\":"
                                     "\"k <> 'x'\"},\"inputs\":[\"a\",\"b\"]},"
                                     "{\"id\":\"p\",\"type\":\"sink\",\"config\":{\"topic\":\"p\","
                                     "\"format\":\"json\"},\"inputs\":[\"m\"]}]}");
        /* a is five hours ahead of b, and has its rows long before. */
        for (int i = 0; i < ROWS; i++)
            sbuf_printf(&a, "{\"k\":\"a\",\"t\":%lld}\n", (long long)T0 + 5LL * HOUR + i);
        world_append(&w, "a", sbuf_str(&a));
        for (int part = 0; part < 20; part++) {
            b.len = 0;
            for (int i = 0; i < ROWS / 20; i++) /* 6 hours in all */
                sbuf_printf(&b, "{\"k\":\"b\",\"t\":%lld}\n",
                            (long long)T0 + (part * (ROWS / 20) + i) * (6LL * HOUR / ROWS));
            world_append(&w, "b", sbuf_str(&b));
            if (part % 5 == 2)
                executor_inject_abort(w.x);
            executor_settle(w.x);
            if (part == 11)
                world_restart(&w);
            struct totals s = totals(&w, "filter");
            most = s.held > most ? s.held : most;
            if (k && part == 3) {
                assert_true(s.held >= LIMIT);
                assert_string_equal(s.held_for, "b");
            }
        }
        world_append(&w, "b", "{\"k\":\"b\",\"t\":1700036000000}\n");
        world_append(&w, "a", "{\"k\":\"a\",\"t\":1700036000000}\n");
        executor_settle(w.x);
        assert_int_equal(world_end(&w, "p"), 2 * ROWS);
        world_read(&w, "p", &out[k]);
        if (k) /* one tick beyond the limit */
            assert_true(most < LIMIT + BATCH_ROWS * 64);
        else
            assert_true(most > 8 * LIMIT);
        sbuf_free(&a);
        sbuf_free(&b);
        world_close(&w);
    }
    assert_int_equal(out[0].len, out[1].len);
    assert_memory_equal(out[0].p, out[1].p, out[0].len);
    sbuf_free(&out[0]);
    sbuf_free(&out[1]);
}

/* What a user has made of a topic, through an exchange, meets the topic itself, which another user
 * reads, too: one branch of the diamond is far slower. Every row comes out twice, in order of time,
 * and little waits. */
static void test_diamond(void **state) {
    enum { ROWS = 3000, LIMIT = 4000 };
    struct world w;
    struct sbuf out = { 0 };
    int64_t most = 0, last = 0, n = 0;
    uint64_t rng = test_seed(1);
    (void)state;
    world_open_conf(&w, &(struct world_conf){ .lanes = 2, .batch_rows = 64, .align_bytes = LIMIT });
    world_topic_parts(&w, "wide", 3);
    world_submit(&w, wide_patient);
    world_submit(
        &w, "{\"braid\":1,\"name\":\"d\",\"tasks\":[" SOURCE(
                "a", "wide",
                "") "{\"id\":\"slow\",\"type\":\"interpolate\",\"config\":{\"fields\":[\"v\"]},"
                    "\"inputs\":[{\"from\":\"v\",\"by\":[\"k\"]}]},"
                    "{\"id\":\"v\",\"type\":\"project\",\"config\":{\"fields\":{\"k\":\"k\","
                    "\"t\":\"t\",\"v\":\"1.5\"}},\"inputs\":[\"a\"]},"
                    "{\"id\":\"m\",\"type\":\"kalman\",\"config\":{\"fields\":[\"v\"]},"
                    "\"inputs\":[{\"from\":\"v\"},{\"from\":\"slow\"}]},"
                    "{\"id\":\"p\",\"type\":\"sink\",\"config\":{\"topic\":\"p\",\"format\":"
                    "\"json\"},\"inputs\":[\"m\"]}]}");
    for (int i = 0; i < ROWS;) {
        struct sbuf rows[3] = { 0 };
        for (int k = 0; k < 300; k++, i++)
            sbuf_printf(&rows[test_random(&rng) % 3], "{\"k\":\"k%d\",\"t\":%lld}\n", i % 50,
                        (long long)T0 + i);
        for (uint32_t p = 0; p < 3; p++) {
            world_append_to(&w, "wide", p, sbuf_str(&rows[p]));
            sbuf_free(&rows[p]);
        }
        if (i % 900 == 0)
            executor_inject_abort(w.x);
        for (uint32_t k = (uint32_t)test_random(&rng) % 12; k > 0; k--) {
            executor_step(w.x);
            int64_t held = totals(&w, "kalman").held;
            most = held > most ? held : most;
        }
        if (i == 1500)
            world_restart(&w);
    }
    for (uint32_t p = 0; p < 3; p++)
        world_append_to(&w, "wide", p, "{\"k\":\"k\",\"t\":1700000100000}\n");
    executor_settle(w.x);
    world_read(&w, "p", &out);
    for (const char *s = sbuf_str(&out); (s = strstr(s, "\"t\":")); s++, n++) {
        int64_t t = strtoll(s + 4, NULL, 10);
        assert_true(t >= last);
        last = t;
    }
    assert_int_equal(n, 2 * ROWS);
    /* Of 200 KB in all: beyond the limit two ticks of an exchange, whose records come at once when
     * a commit was slow. */
    assert_in_range(most, 1, LIMIT + 2 * BATCH_ROWS * 40);
    sbuf_free(&out);
    world_close(&w);
}

/* Two dataflows over the same two topics that differ in lateness: in one a is behind, in the other
 * b, by ten hours each. With full buffers each would wait for the other for ever. */
static void test_ring(void **state) {
    struct world w;
    struct sbuf rows = { 0 };
    (void)state;
    world_open_conf(&w, &(struct world_conf){ .align_bytes = 2000 });
    world_topic(&w, "a");
    world_topic(&w, "b");
#define MERGED(NAME, LATE_A, LATE_B)                                                               \
    "{\"braid\":1,\"name\":\"" NAME                                                                \
    "\",\"tasks\":[" SOURCE("a", "a", ",\"lateness\":\"" LATE_A "\"")                              \
        SOURCE("b", "b",                                                                           \
               ",\"lateness\":\"" LATE_B                                                           \
               "\"") "{\"id\":\"m\",\"type\":\"filter\",\"config\":{\"where\":\"k <> 'x'\"},"      \
                     "\"inputs\":[\"a\",\"b\"]},"                                                  \
                     "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"" NAME               \
                     "\",\"format\":\"json\"},\"inputs\":[\"m\"]}]}"
    world_submit(&w, MERGED("x", "0s", "10h"));
    world_submit(&w, MERGED("y", "10h", "0s"));
    for (int i = 0; i < 2000; i++)
        sbuf_printf(&rows, "{\"k\":\"a\",\"t\":%lld}\n", (long long)T0 + i * 60000LL);
    /* far on, and within a day of the log's time */
    world_append_at(&w, "a", 0, sbuf_str(&rows), T0 + 48LL * HOUR);
    world_append_at(&w, "b", 0, sbuf_str(&rows), T0 + 48LL * HOUR);
    executor_settle(w.x);
    for (int i = 0; i < 2; i++)
        world_append_at(&w, i ? "b" : "a", 0, "{\"k\":\"z\",\"t\":1700200000000}\n",
                        T0 + 48LL * HOUR);
    executor_settle(w.x);
    assert_int_equal(world_end(&w, "x"), 4000);
    assert_int_equal(world_end(&w, "y"), 4000);
    sbuf_free(&rows);
    world_close(&w);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_source),
        cmocka_unit_test(test_silent_hour),
        cmocka_unit_test(test_silence_survives),
        cmocka_unit_test(test_clock_back),
        cmocka_unit_test(test_graft_on_silence),
        cmocka_unit_test(test_ended_generator),
        cmocka_unit_test(test_empty_partition),
        cmocka_unit_test(test_empty_partition_ordered),
        cmocka_unit_test(test_join_on_silence),
        cmocka_unit_test(test_lagging_partition),
        cmocka_unit_test(test_silence_again),
        cmocka_unit_test(test_silence_and_aborts),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_future),
        cmocka_unit_test(test_log_clock),
        cmocka_unit_test(test_log_clock_merged),
        cmocka_unit_test(test_hours_apart),
        cmocka_unit_test(test_diamond),
        cmocka_unit_test(test_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
