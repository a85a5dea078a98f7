/* Replacing a running dataflow: its output is that of one that was never replaced, whatever aborts,
 * restarts and other dataflows come between; what cannot be taken over is refused and changes
 * nothing. */
#include "cluster/coord.h"
#include "cluster/coord_impl.h"
#include "cluster/ingest.h"
#include "cluster/view.h"
#include "engine/log.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct coord *open_coord(void) {
    struct coord *c;
    struct err e = ERR_INIT;
    struct coord_conf conf = { .dir = scratch_dir, .durability = LOG_PROCESS, .executors = 2 };
    if (coord_open(&c, &conf, &e) < 0)
        fail_msg("%s", e.text);
    return c;
}

/* ---- a dataflow in several versions ---- */

struct version {
    const char *name, *history, *where, *topic, *file, *id, *aggregate, *extra, *by;
    int lateness;
};

static const struct version plain = { .name = "f",
                                      .history = "shared",
                                      .where = "v >= 0",
                                      .topic = "out",
                                      .id = "w",
                                      .by = "k",
                                      .aggregate = "\"n\":\"count()\",\"s\":\"sum(v)\"",
                                      .extra = "" };

static char *text_of(const struct version *v) {
    static char text[2048];
    char sink[128];
    if (v->file)
        snprintf(sink, sizeof sink, "\"file\":\"%s\"", v->file);
    else
        snprintf(sink, sizeof sink, "\"topic\":\"%s\"", v->topic);
    snprintf(
        text, sizeof text,
        "{\"braid\":1,\"name\":\"%s\",\"history\":\"%s\"%s,\"tasks\":["
        "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"i\",\"format\":\"csv\","
        "\"schema\":{\"t\":\"i64\",\"k\":\"string\",\"v\":\"i64\"},\"time\":{\"field\":\"t\","
        "\"unit\":\"ms\"},\"lateness\":\"%dms\"}},"
        "{\"id\":\"where\",\"type\":\"filter\",\"config\":{\"where\":\"%s\"},\"inputs\":[\"in\"]},"
        "{\"id\":\"%s\",\"type\":\"window_aggregate\",\"config\":{\"every\":\"100ms\","
        "\"aggregate\":{%s}},\"inputs\":[{\"from\":\"where\",\"by\":[\"%s\"]}]},"
        "{\"id\":\"out\",\"type\":\"sink\",\"config\":{%s},\"inputs\":[\"%s\"]}]}",
        v->name, v->history, v->extra, v->lateness, v->where, v->id, v->aggregate, v->by, sink,
        v->id);
    return text;
}

static int submit(struct coord *c, const struct version *v) {
    struct errs es = { 0 };
    struct sbuf out = { 0 };
    char *text = text_of(v);
    struct coord_spec spec = { .file = "test.json", .text = text, .len = strlen(text) };
    int rc = coord_submit(c, &spec, 1, false, &out, &es);
    if (rc < 0)
        fail_msg("%s", es.v[0].text);
    errs_free(&es);
    sbuf_free(&out);
    return rc;
}

/* The answer in *out; an error's text instead, when it is refused. */
static int replace(struct coord *c, const struct version *v, const char *new, const char *old,
                   struct sbuf *out) {
    struct errs es = { 0 };
    char *text = text_of(v);
    struct coord_spec spec = { .file = "test.json", .text = text, .len = strlen(text) };
    struct journal_pair from = { new, old };
    out->len = 0;
    int rc = coord_replace(c, "f", &spec, &from, new ? 1 : 0, false, out, &es);
    if (rc < 0) {
        out->len = 0;
        sbuf_adds(out, es.v[0].text);
    }
    errs_free(&es);
    return rc;
}

static void replaced(struct coord *c, const struct version *v, const char *new, const char *old,
                     const char *wanted) {
    struct sbuf out = { 0 };
    if (replace(c, v, new, old, &out) < 0 || !strstr(sbuf_str(&out), wanted))
        fail_msg("%s\nwanted: %s", sbuf_str(&out), wanted);
    sbuf_free(&out);
}

static void refused(struct coord *c, const struct version *v, const char *new, const char *old,
                    const char *wanted) {
    struct sbuf out = { 0 };
    if (replace(c, v, new, old, &out) >= 0 || !strstr(sbuf_str(&out), wanted))
        fail_msg("%s\nwanted: %s", sbuf_str(&out), wanted);
    sbuf_free(&out);
}

static bool shows(struct coord *c, const char *name, const char *what) {
    struct sbuf out = { 0 };
    bool found = view_show(c, name, &out, NULL) == 0 && strstr(sbuf_str(&out), what);
    sbuf_free(&out);
    return found;
}

/* Counters run ahead of the commit, and an abort that a test has asked for takes them back: they
 * must have stood for a while. */
static void await_rows(struct coord *c, const char *name, int rows) {
    char what[64];
    int stood = 0;
    snprintf(what, sizeof what, "\"rows_in\":%d,", rows);
    for (int i = 0; i < 3000 && stood < 8; i++) {
        usleep(5000);
        stood = shows(c, name, what) && shows(c, name, "RUNNING") ? stood + 1 : 0;
    }
    if (stood < 8)
        fail_msg("'%s' never showed %s", name, what);
}

static void post(struct coord *c, const char *line, uint32_t partition) {
    struct ingest_rows rows;
    struct ingest_answer a;
    struct err e = ERR_INIT;
    assert_int_equal(ingest_lines(&rows, line, strlen(line), &e), 0);
    if (ingest_post(coord_ingest(c), "i", partition, NULL, 0, &rows, &a, &e) < 0)
        fail_msg("%s", e.text);
    ingest_rows_free(&rows);
}

static void make_topic(struct coord *c, uint32_t partitions) {
    struct log_topic_conf tc = { .partitions = partitions, .retention_bytes = -1 };
    struct err e = ERR_INIT;
    if (log_topic_create(coord_log(c), "i", &tc, &e) < 0)
        fail_msg("%s", e.text);
}

static void inject(void *arg, struct exec *ex) {
    (void)ex;
    executor_inject_abort(arg);
}

static void remove_flow(struct coord *c, const char *name, bool drain) {
    struct sbuf out = { 0 };
    struct err e = ERR_INIT;
    if (coord_remove(c, name, drain, &out, &e) < 0)
        fail_msg("%s", e.text);
    sbuf_free(&out);
}

/* ---- against a count by hand ---- */

enum { KEYS = 4, WINDOWS = 64, WIDTH = 100 };
/* libuv closes its descriptors behind the back of ThreadSanitizer, which then takes the next use of
 * the number, by the thread that removes the topics of exchanges, for a race: no exchanges there.
 */
#ifdef __SANITIZE_THREAD__
enum { PARTITIONS = 1 };
#else
enum { PARTITIONS = 3 };
#endif
struct cell {
    int64_t n, s;
};

/* Every window of every key once, with all its rows. */
static void check_output(struct coord *c, struct cell (*want)[WINDOWS], uint64_t seed) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    struct log_topic_info info;
    int64_t off;
    assert_int_equal(log_topic_info(coord_log(c), "out", &info, &e), 0);
    for (uint32_t p = 0; p < info.conf.partitions; p++) {
        assert_int_equal(log_reader_open(coord_log(c), "out", p, 0, &r, &e), 0);
        while (log_read(r, 1024, &rows, &off, &e) > 0)
            for (uint32_t i = 0, from = 0; i < rows.n; from = rows.value_end[i++]) {
                struct arena a = { 0 };
                struct json_doc d;
                struct errs es = { 0 };
                assert_int_equal(
                    json_parse(&d, NULL, rows.values + from, rows.value_end[i] - from, &a, &es), 0);
                int k = jnode_get(d.root, "k")->s[1] - '0';
                int64_t w = jnode_get(d.root, "window_start")->i / WIDTH;
                struct cell *cell = &want[k][w];
                if (jnode_get(d.root, "n")->i != cell->n || jnode_get(d.root, "s")->i != cell->s)
                    fail_msg("BRAID_SEED=%llu: %.*s, wanted n %lld, s %lld",
                             (unsigned long long)seed, (int)(rows.value_end[i] - from),
                             rows.values + from, (long long)cell->n, (long long)cell->s);
                *cell = (struct cell){ 0 };
                arena_free(&a);
            }
        log_reader_close(r);
    }
    for (int k = 0; k < KEYS; k++)
        for (int w = 0; w < WINDOWS; w++)
            if (want[k][w].n)
                fail_msg("BRAID_SEED=%llu: window %d of key %d is missing",
                         (unsigned long long)seed, w, k);
}

/* Versions that let the same rows through; the window's state is handed on. */
static void random_replace(struct coord *c, struct version *v, uint64_t r) {
    static const char *const wheres[] = { "v >= 0", "v > -1", "v >= -2", "v < 1000" };
    static const char *const ids[] = { "w", "win" };
    struct version next = *v;
    next.where = wheres[r % 4];
    next.id = ids[r >> 8 & 1];
    bool in_file = r >> 9 & 1;
    char extra[64];
    snprintf(extra, sizeof extra, ",\"state_from\":{\"%s\":\"%s\"}", next.id, v->id);
    next.extra = in_file ? extra : "";
    replaced(c, &next, in_file ? NULL : next.id, in_file ? NULL : v->id, "\"changes\":[");
    next.extra = "";
    *v = next;
}

static void run_sequence(uint64_t seed) {
    uint64_t state = seed;
    struct coord *c = open_coord();
    struct cell want[KEYS][WINDOWS] = { 0 };
    struct version v = plain, other = plain;
    uint32_t partitions = test_random(&state) % 2 ? PARTITIONS : 1;
    int rows = 0;
    bool others = false;
    make_topic(c, partitions);
    v.history = test_random(&state) % 2 ? "own" : "shared";
    other.name = "other";
    other.topic = "other"; /* it shares the source, and now and then the filter */
    other.aggregate = "\"n\":\"count()\"";
    submit(c, &v);
    for (int t = 1; t < WIDTH * 12; t += 1 + (int)(test_random(&state) % 12)) {
        uint64_t r = test_random(&state);
        int k = (int)(r % KEYS), value = (int)(r >> 8 & 255);
        char line[64];
        snprintf(line, sizeof line, "%d,k%d,%d", t, k, value);
        post(c, line, (uint32_t)k % partitions);
        want[k][t / WIDTH].n++;
        want[k][t / WIDTH].s += value;
        rows++;
        if ((r >> 16 & 7) == 0)
            executor_visit(coord_executor(c), inject, coord_executor(c));
        if ((r >> 20 & 15) == 0) {
            random_replace(c, &v, r >> 32);
        } else if ((r >> 20 & 15) == 1) {
            coord_close(c);
            c = open_coord();
        } else if ((r >> 20 & 15) == 2) {
            if (others)
                remove_flow(c, "other", false);
            else
                submit(c, &other);
            others = !others;
        }
    }
    await_rows(c, "f", rows);
    remove_flow(c, "f", true);
    check_output(c, want, seed);
    coord_close(c);
}

static void sequences(void **state) {
    uint64_t seed = test_seed(4711);
    (void)state;
    for (int i = 0, n = test_scale(12); i < n; i++) {
        uint64_t first = seed;
        run_sequence(first);
        test_random(&seed);
        scratch_remove(NULL);
        scratch_make(NULL);
    }
}

/* ---- what is kept, and what is refused ---- */

static void kept(void **state) {
    (void)state;
    struct coord *c = open_coord();
    make_topic(c, 1);
    submit(c, &plain);
    post(c, "1,k0,5\n2,k1,6", 0);
    await_rows(c, "f", 2);
    replaced(c, &plain, NULL, NULL,
             "\"kept\":4,\"joined\":0,\"taken\":0,\"started\":0,\"stopped\":0");
    assert_true(shows(c, "f", "\"state_keys\":2"));

    struct version v = plain;
    v.topic = "elsewhere"; /* only the sink is new */
    replaced(c, &v, NULL, NULL, "\"kept\":3,\"joined\":0,\"taken\":0,\"started\":1,\"stopped\":1");
    v.where = "v > 0";
    replaced(
        c, &v, NULL, NULL,
        "{\"task\":\"w\",\"type\":\"window_aggregate\",\"what\":\"started\",\"from\":null,\"why\":"
        "\"what it reads has changed\",\"takeable\":true}");
    post(c, "3,k0,7", 0);
    await_rows(c, "f", 3);
    v.where = "v > 1";
    replaced(c, &v, "w", "w", "\"kept\":1,\"joined\":0,\"taken\":1,\"started\":2,\"stopped\":3");
    coord_close(c);
    c = open_coord();
    remove_flow(c, "f", true); /* k0 alone: what came before the second replacement was given up */
    assert_int_equal(scratch_end(coord_log(c), "elsewhere"), 1);
    coord_close(c);
}

static void own_history(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct version v = plain;
    make_topic(c, 1);
    v.history = "own";
    submit(c, &v);
    post(c, "1,k0,5", 0);
    await_rows(c, "f", 1);
    replaced(c, &v, NULL, NULL, "\"kept\":4,");
    v.topic = "elsewhere";
    replaced(c, &v, NULL, NULL, "\"kept\":3,");
    assert_true(shows(c, "f", "\"rows_in\":1,"));
    coord_close(c);
}

static void refusals(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct version v = plain, other = plain;
    struct sbuf before = { 0 }, after = { 0 };
    make_topic(c, 1);
    submit(c, &plain);
    post(c, "1,k0,5", 0);
    await_rows(c, "f", 1);
    view_explain(c, "f", &before, NULL);
    v.where = "v > 0";
    refused(c, &v, "w", "ww", "the former dataflow has no task 'ww'; did you mean 'w'?");
    refused(c, &v, "x", "w", "the new dataflow has no task 'x'");
    refused(c, &v, "where", "where", "task 'where' has no state to take");
    refused(c, &v, "w", "where", "it is of another type");
    v.aggregate = "\"n\":\"count()\"";
    refused(c, &v, "w", "w", "their parameters differ in what shapes the state");
    v.aggregate = plain.aggregate;
    v.by = "v";
    refused(c, &v, "w", "w", "their keys ('by') have other types");
    v.by = plain.by;
    v.name = "g";
    refused(c, &v, NULL, NULL, "the dataflow to replace is 'f'");
    v.name = "f";
    v.extra = ",\"state_from\":{\"w\":\"nothing\"}";
    refused(c, &v, NULL, NULL, "the former dataflow has no task 'nothing'");
    v.extra = ",\"state_from\":{\"www\":\"w\"}";
    refused(c, &v, NULL, NULL, "there is no task 'www'");
    other.name = "other";
    other.topic = "taken";
    submit(c, &other);
    v = plain;
    v.where = "v > 5";
    v.topic = "taken";
    refused(c, &v, NULL, NULL, "topic 'taken' is owned by dataflow 'other'");
    remove_flow(c, "other", false);
    view_explain(c, "f", &after, NULL);
    assert_string_equal(sbuf_str(&before), sbuf_str(&after));
    sbuf_free(&before);
    sbuf_free(&after);
    coord_close(c);
}

/* What may change live does not keep state from changing hands: the source's time goes on with
 * another lateness, so a row that is late for it stays late; a window waits longer. */
static void live(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct version v = plain;
    make_topic(c, 1);
    submit(c, &v);
    post(c, "50,k0,1\n450,k0,2", 0);
    await_rows(c, "f", 2);
    v.lateness = 10;
    v.extra = ",\"state_from\":{\"in\":\"in\",\"w\":\"w\"}";
    replaced(c, &v, NULL, NULL, "\"kept\":0,\"joined\":0,\"taken\":2,\"started\":2,");
    post(c, "60,k0,4\n441,k0,8", 0); /* the first is late, by the watermark of before: 440 */
    for (int i = 0; i < 3000 && !shows(c, "f", "\"late\":1,"); i++)
        usleep(5000);
    assert_true(shows(c, "f", "\"late\":1,"));
    remove_flow(c, "f", true);
    struct cell want[KEYS][WINDOWS] = { 0 };
    want[0][0] = (struct cell){ 1, 1 };
    want[0][4] = (struct cell){ 2, 10 };
    check_output(c, want, 0);
    coord_close(c);
}

/* A sink's file goes on, also over an abort right after: it is never emptied. */
static void file_goes_on(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct version v = plain;
    char path[256], text[1024];
    make_topic(c, 1);
    v.file = "f.txt";
    submit(c, &v);
    post(c, "1,k0,5\n101,k0,6", 0);
    await_rows(c, "f", 2);
    for (int i = 0; i < 3; i++) {
        char line[64];
        static const char *const wheres[] = { "v > 0", "v > 1", "v > 2" };
        executor_visit(coord_executor(c), inject, coord_executor(c));
        v.where = wheres[i];
        replaced(c, &v, "w", "w", "\"taken\":2");
        executor_visit(coord_executor(c), inject, coord_executor(c));
        snprintf(line, sizeof line, "%d,k0,%d", 201 + 100 * i, 7 + i);
        post(c, line, 0);
        await_rows(c, "f", 3 + i);
    }
    remove_flow(c, "f", true);
    coord_close(c);
    snprintf(path, sizeof path, "%s/out/f.txt", scratch_dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (int i = 0; i < 5; i++) {
        char sum[32];
        snprintf(sum, sizeof sum, "\"n\":1,\"s\":%d}", 5 + i);
        if (!strstr(text, sum))
            fail_msg("no %s in:\n%s", sum, text);
    }
}

static int setup(void **state) {
    (void)state;
    operators_init();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)
int main(void) {
    const struct CMUnitTest tests[] = { TEST(kept), TEST(own_history),  TEST(refusals),
                                        TEST(live), TEST(file_goes_on), TEST(sequences) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
