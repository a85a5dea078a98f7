/* Topics of several partitions: what a dataflow makes of them equals what it makes of one partition
 * that holds the same rows, key by key (class E2), whatever the lanes, batches, aborts and kills.
 */
#include "engine/port.h"
#include "operators/all.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t seed, rng;
static uint32_t below(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 16) % n;
}

enum { KEYS = 40, ROUNDS = 30 };

/* Clean, aggregate by key in windows of 1 s, and the clean rows themselves. */
static const char flow[] =
    "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"%s\",\"format\":\"json\","
    "\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"v\":\"f64\"},"
    "\"time\":{\"field\":\"t\",\"unit\":\"ms\"},\"lateness\":\"300ms\"}},"
    "{\"id\":\"clean\",\"type\":\"filter\",\"config\":{\"where\":\"v < 90\"},\"inputs\":[\"in\"]},"
    "{\"id\":\"sum\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\","
    "\"s\":\"sum(v)\"},\"every\":\"1s\"},\"inputs\":[{\"from\":\"clean\",\"by\":[\"k\"]}]},"
    "{\"id\":\"o1\",\"type\":\"sink\",\"config\":{\"topic\":\"%s-sum\",\"format\":\"json\","
    "\"key\":\"k\"},\"inputs\":[\"sum\"]},"
    "{\"id\":\"o2\",\"type\":\"sink\",\"config\":{\"topic\":\"%s-clean\",\"format\":\"json\"},"
    "\"inputs\":[\"clean\"]}]}";

/* Rows of all partitions, those of a key in order: stable sort by the text of k. */
struct line {
    char *s;
    size_t at;
};
static int by_key(const void *a, const void *b) {
    const struct line *x = a, *y = b;
    const char *p = strstr(x->s, "\"k\":"), *q = strstr(y->s, "\"k\":");
    int c = strncmp(p, q, 9);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

static void read_sorted(struct world *w, const char *topic, uint32_t parts, struct sbuf *out) {
    struct sbuf all = { 0 };
    for (uint32_t i = 0; i < parts; i++)
        world_read_part(w, topic, i, &all);
    sbuf_str(&all);
    struct line *v = calloc(all.len + 1, sizeof *v);
    size_t n = 0;
    for (char *s = all.p; s && *s; n++) {
        char *nl = strchr(s, '\n');
        *nl = 0;
        v[n] = (struct line){ s, n };
        s = nl + 1;
    }
    qsort(v, n, sizeof *v, by_key);
    for (size_t i = 0; i < n; i++)
        sbuf_printf(out, "%s\n", v[i].s);
    sbuf_str(out);
    free(v);
    sbuf_free(&all);
}

static void compare(struct world *w, const char *a, uint32_t pa, const char *b, uint32_t pb) {
    struct sbuf x = { 0 }, y = { 0 };
    read_sorted(w, a, pa, &x);
    read_sorted(w, b, pb, &y);
    assert_true(x.len > 100);
    if (x.len != y.len || memcmp(x.p, y.p, x.len) != 0) {
        size_t i = 0;
        while (x.p[i] && x.p[i] == y.p[i])
            i++;
        fail_msg("seed %llu: %s and %s differ at byte %zu of %zu and %zu:\n%.300s\n--\n%.300s",
                 (unsigned long long)seed, a, b, i, x.len, y.len, x.p + (i > 100 ? i - 100 : 0),
                 y.p + (i > 100 ? i - 100 : 0));
    }
    sbuf_free(&x);
    sbuf_free(&y);
}

static uint32_t parts_of(struct world *w, const char *topic) {
    struct log_topic_info info;
    struct err e = ERR_INIT;
    assert_int_equal(log_topic_info(w->log, topic, &info, &e), 0);
    return info.conf.partitions;
}

static void sequence(uint32_t parts, uint32_t lanes, uint32_t batch, bool faults) {
    struct world w;
    char text[4096];
    world_open_conf(&w, &(struct world_conf){ .batch_rows = batch, .lanes = lanes });
    world_topic_parts(&w, "wide", parts);
    world_topic_parts(&w, "one", 1);
    snprintf(text, sizeof text, flow, "wide", "wide", "wide", "wide");
    world_submit(&w, text);
    snprintf(text, sizeof text, flow, "one", "one", "one", "one");
    world_submit(&w, text);
    assert_int_equal(parts_of(&w, "wide-clean"), parts);
    assert_int_equal(parts_of(&w, "wide-sum"), parts > 1 ? EXCHANGE_GROUPS : 1);
    int64_t clock = 1700000000000;
    for (int round = 0; round < ROUNDS; round++) {
        struct sbuf one = { 0 }, *wide = calloc(parts, sizeof *wide);
        uint32_t n = 1 + below(60);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = below(KEYS);
            char row[128];
            clock += below(40);
            snprintf(row, sizeof row, "{\"k\":\"k%02u\",\"t\":%lld,\"v\":%u.%u}\n", k,
                     (long long)clock, below(100), below(10));
            sbuf_adds(&one, row);
            sbuf_adds(&wide[k % parts], row);
        }
        world_append(&w, "one", sbuf_str(&one));
        for (uint32_t p = 0; p < parts; p++)
            world_append_to(&w, "wide", p, sbuf_str(&wide[p]));
        if (faults && below(3) == 0)
            executor_inject_abort(w.x);
        for (uint32_t i = below(4); i-- > 0;)
            executor_step(w.x);
        if (faults && below(6) == 0)
            world_restart(&w);
        for (uint32_t p = 0; p < parts; p++)
            sbuf_free(&wide[p]);
        free(wide);
        sbuf_free(&one);
    }
    /* One more row of each partition, far on, so that every window fires on both sides. */
    for (uint32_t p = 0; p < parts; p++) {
        char row[128];
        snprintf(row, sizeof row, "{\"k\":\"k%02u\",\"t\":%lld,\"v\":99}\n", p,
                 (long long)clock + 100000);
        world_append_to(&w, "wide", p, row);
        world_append(&w, "one", row);
    }
    executor_settle(w.x);
    executor_settle(w.x);
    compare(&w, "wide-clean", parts, "one-clean", 1);
    compare(&w, "wide-sum", parts_of(&w, "wide-sum"), "one-sum", 1);
    world_close(&w);
}

static void test_equal_by_key(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        rng = seed + (uint64_t)i * 7919 + 1;
        uint32_t parts = (uint32_t[]){ 1, 2, 3, 8 }[below(4)], lanes = 1 + below(3);
        sequence(parts, lanes, (uint32_t[]){ 1, 37, 1024 }[below(3)], i % 4 != 0);
    }
}

/* ---- drain ---- */

static void test_drain(void **state) {
    struct world w;
    struct world_flow *a, *b;
    char text[4096];
    (void)state;
    world_open_conf(&w, &(struct world_conf){ .lanes = 2 });
    world_topic_parts(&w, "wide", 3);
    snprintf(text, sizeof text, flow, "wide", "wide", "wide", "wide");
    a = world_submit(&w, text);
    snprintf(text, sizeof text, flow, "one", "one", "one", "one");
    b = world_submit(&w, text);
    for (int i = 0; i < 600; i++) {
        char row[128];
        snprintf(row, sizeof row, "{\"k\":\"k%02d\",\"t\":%lld,\"v\":%d}\n", i % 30,
                 1700000000000LL + i * 7, i % 80);
        world_append_to(&w, "wide", (uint32_t)(i % 30) % 3, row);
        world_append(&w, "one", row);
    }
    /* The rows have been read, but are still on their way through the exchange. */
    while (world_end(&w, "one-clean") < 600)
        executor_step(w.x);
    executor_inject_abort(w.x);
    world_remove(&w, a, true);
    world_remove(&w, b, true);
    compare(&w, "wide-clean", 3, "one-clean", 1);
    compare(&w, "wide-sum", EXCHANGE_GROUPS, "one-sum", 1);
    world_close(&w);
}

/* ---- exchanges stay small ---- */

struct exchange_size {
    int n;
    int64_t bytes;
};

static int add_size(void *arg, const struct log_topic_info *info) {
    struct exchange_size *s = arg;
    if (strncmp(info->name, PORT_EXCHANGE, strlen(PORT_EXCHANGE)) != 0)
        return 0;
    s->n++;
    s->bytes += info->bytes;
    return 0;
}

/* The same exchange is read in order by one dataflow (a reader a partition that feeds it) and as it
 * comes by another; twelve times as much goes through as it may hold. */
static void test_exchanges_are_trimmed(void **state) {
    enum { ROWS = 400, WIDTH = 700, STEPS = 12 * PORT_TRIM_BYTES / (ROWS * WIDTH) };
    static const char one[] =
        "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
        "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"wide\",\"format\":\"json\","
        "\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"v\":\"f64\"},"
        "\"time\":{\"field\":\"t\",\"unit\":\"ms\"}}},"
        "{\"id\":\"f\",\"type\":\"kalman\",\"config\":{\"fields\":[\"v\"]},"
        "\"inputs\":[{\"from\":\"in\"%s}]},"
        "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"%s-out\",\"format\":\"json\"},"
        "\"inputs\":[\"f\"]}]}";
    struct world w = { .lanes = 2 };
    char text[4096], fill[WIDTH + 1];
    struct exchange_size size;
    int64_t rows = 0, most = 0;
    (void)state;
    world_open(&w, 0, false);
    world_topic_parts(&w, "wide", 3);
    snprintf(text, sizeof text, one, "any", "", "any");
    world_submit(&w, text);
    snprintf(text, sizeof text, one, "order", ",\"ordered\":true", "order");
    world_submit(&w, text);
    memset(fill, 'x', WIDTH);
    fill[WIDTH] = 0;
    for (int step = 0; step < STEPS; step++) {
        struct sbuf b = { 0 };
        for (int i = 0; i < ROWS; i++)
            sbuf_printf(&b, "{\"k\":\"%s\",\"t\":%lld,\"v\":%d}\n", fill,
                        1700000000000LL + rows + i, i % 80);
        rows += ROWS;
        world_append_to(&w, "wide", (uint32_t)step % 3, sbuf_str(&b));
        sbuf_free(&b);
        if (step % 5 == 1)
            executor_inject_abort(w.x);
        executor_settle(w.x);
        if (step % 11 == 7)
            world_restart(&w);
        size = (struct exchange_size){ 0 };
        log_topic_list(w.log, add_size, &size);
        most = size.bytes > most ? size.bytes : most;
    }
    assert_int_equal(size.n, 1);
    assert_true(most > PORT_TRIM_BYTES / 2); /* the rows did go through it */
    assert_true(most < 6 * PORT_TRIM_BYTES);
    for (int p = 0; p < 3; p++) /* all rows of the others are before it */
        world_append_to(&w, "wide", (uint32_t)p, "{\"k\":\"\",\"t\":1700080000000,\"v\":1}\n");
    executor_settle(w.x);
    assert_int_equal(world_end(&w, "any-out"), rows + 3);
    assert_true(world_end(&w, "order-out") >= rows);
    world_close(&w);
}

/* ---- topics that a crash has left ---- */

static bool has_topic(struct world *w, const char *topic) {
    struct log_topic_info info;
    return log_topic_info(w->log, topic, &info, NULL) == 0;
}

static int count_exchanges(void *arg, const struct log_topic_info *info) {
    *(int *)arg += strncmp(info->name, "braid.exchange.", 15) == 0;
    return 0;
}

/* A graft makes the topic of its exchange before it commits, a removal drops it afterwards: a kill
 * in between leaves one that no plan knows, and whose number may be given again. */
static void test_sweep(void **state) {
    struct world w = { 0 };
    char text[4096];
    int n = 0;
    (void)state;
    world_open(&w, 0, false);
    world_topic_parts(&w, "wide", 3);
    snprintf(text, sizeof text, flow, "wide", "wide", "wide", "wide");
    world_submit(&w, text);
    world_topic_parts(&w, "braid.exchange.4711", 16);
    world_topic_parts(&w, "braid.exchange.no", 1); /* no number: not ours */
    world_restart(&w);
    assert_false(has_topic(&w, "braid.exchange.4711"));
    assert_true(has_topic(&w, "braid.exchange.no"));
    log_topic_list(w.log, count_exchanges, &n);
    assert_int_equal(n, 2); /* that one, and the running one */
    world_close(&w);
}

/* ---- ordered ---- */

/* What comes out depends on the order of all rows. */
static const char smooth[] =
    "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"%s\",\"format\":\"json\","
    "\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"v\":\"f64\"},"
    "\"time\":{\"field\":\"t\",\"unit\":\"ms\"}}},"
    "{\"id\":\"clean\",\"type\":\"filter\",\"config\":{\"where\":\"v < 90\"},\"inputs\":[\"in\"]},"
    "{\"id\":\"f\",\"type\":\"kalman\",\"config\":{\"fields\":[\"v\"]},"
    "\"inputs\":[{\"from\":\"clean\",\"ordered\":true}]},"
    "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"%s-out\",\"format\":\"json\"},"
    "\"inputs\":[\"f\"]}]}";

static void ordered(uint32_t parts) {
    struct world w;
    char text[4096], row[128];
    struct sbuf x = { 0 }, y = { 0 };
    uint32_t lanes = 1 + below(3), batch = (uint32_t[]){ 1, 37, 1024 }[below(3)];
    world_open_conf(&w, &(struct world_conf){ .batch_rows = batch, .lanes = lanes });
    world_topic_parts(&w, "wide", parts);
    snprintf(text, sizeof text, smooth, "wide", "wide", "wide");
    world_submit(&w, text);
    snprintf(text, sizeof text, smooth, "one", "one", "one");
    world_submit(&w, text);
    long long t = 1700000000000;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t n = below(40); n-- > 0;) {
            t += 1 + below(20);
            snprintf(row, sizeof row, "{\"k\":\"k\",\"t\":%lld,\"v\":%u.%u}\n", t, below(99),
                     below(10));
            world_append_to(&w, "wide", below(parts), row);
            world_append(&w, "one", row);
        }
        if (below(3) == 0)
            executor_inject_abort(w.x);
        for (uint32_t i = below(5); i-- > 0;)
            executor_step(w.x);
        if (below(6) == 0)
            world_restart(&w);
    }
    for (uint32_t p = 0; p < parts; p++) { /* filtered, but time goes on in every partition */
        snprintf(row, sizeof row, "{\"k\":\"k\",\"t\":%lld,\"v\":99}\n", t + 100000);
        world_append_to(&w, "wide", p, row);
    }
    executor_settle(w.x);
    world_read(&w, "wide-out", &x);
    world_read(&w, "one-out", &y);
    assert_true(y.len > 100);
    if (x.len != y.len || memcmp(x.p, y.p, x.len) != 0)
        fail_msg(
            "seed %llu: %u partitions in order are not one: %zu and %zu bytes\n%.300s\n--\n%.300s",
            (unsigned long long)seed, parts, x.len, y.len, sbuf_str(&x), sbuf_str(&y));
    sbuf_free(&x);
    sbuf_free(&y);
    world_close(&w);
}

/* Class E3 read in order: identical bytes. */
static void test_ordered(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        rng = seed + (uint64_t)i * 104729 + 1;
        ordered(2 + below(7));
    }
}

/* ---- threads ---- */

/* Lanes as threads of their own: nothing lost or doubled, rows of a key in order. */
static void test_threads(void **state) {
    struct world w;
    struct err e = ERR_INIT;
    char text[4096], row[128];
    int64_t rows = 0;
    (void)state;
    rng = seed;
    world_open_conf(&w, &(struct world_conf){ .batch_rows = 64, .lanes = 3 });
    world_topic_parts(&w, "wide", 8);
    snprintf(text, sizeof text, flow, "wide", "wide", "wide", "wide");
    world_submit(&w, text);
    snprintf(text, sizeof text, flow, "one", "one", "one", "one");
    world_submit(&w, text);
    assert_int_equal(executor_start(w.x, &e), 0);
    for (int round = 0; round < 60; round++) {
        struct sbuf one = { 0 }, wide[8] = { 0 };
        for (uint32_t n = 50 + below(200); n-- > 0; rows++) {
            uint32_t k = below(KEYS);
            snprintf(row, sizeof row, "{\"k\":\"k%02u\",\"t\":%lld,\"v\":%u}\n", k,
                     1700000000000LL + (long long)rows * 3, below(80));
            sbuf_adds(&one, row);
            sbuf_adds(&wide[k % 8], row);
        }
        world_append(&w, "one", sbuf_str(&one));
        for (uint32_t p = 0; p < 8; p++)
            world_append_to(&w, "wide", p, sbuf_str(&wide[p]));
        for (uint32_t p = 0; p < 8; p++)
            sbuf_free(&wide[p]);
        sbuf_free(&one);
    }
    for (uint32_t p = 0; p < 8; p++) { /* filtered, but every window is over */
        snprintf(row, sizeof row, "{\"k\":\"k\",\"t\":%lld,\"v\":99}\n",
                 1700000000000LL + (long long)rows * 3 + 100000);
        world_append_to(&w, "wide", p, row);
        world_append(&w, "one", row);
    }
    while (world_end(&w, "wide-clean") < rows || world_end(&w, "one-clean") < rows ||
           world_end(&w, "one-sum") == 0 || world_end(&w, "wide-sum") < world_end(&w, "one-sum"))
        usleep(1000);
    executor_stop(w.x);
    compare(&w, "wide-clean", 8, "one-clean", 1);
    compare(&w, "wide-sum", EXCHANGE_GROUPS, "one-sum", 1);
    world_close(&w);
}

int main(void) {
    operators_init();
    seed = getenv("BRAID_SEED") ? strtoull(getenv("BRAID_SEED"), NULL, 0) : 20261201;
    printf("BRAID_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_by_key), cmocka_unit_test(test_drain),
        cmocka_unit_test(test_sweep),        cmocka_unit_test(test_ordered),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_exchanges_are_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
