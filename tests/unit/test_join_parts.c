/* Joins over topics of several partitions, rows anywhere, against the same dataflows over topics of
 * one partition: the same rows come out (class E3), whatever the lanes, batches, aborts and
 * restarts. Two inputs grouped by the same fields must meet in one key group, also when one of them
 * lies by these fields in another order. */
#include "operators/all.h"
#include "planner/spec.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 12, SINKS = 5 };

static const char source_text[] =
    "{\"id\":\"%s\",\"type\":\"%s\",\"config\":{\"topic\":\"%s-%s\",\"format\":\"json\",\"schema\":"
    "{\"k\":\"string\",\"n\":\"i64\",\"t\":\"i64\",\"v\":\"f64\"},\"time\":{\"field\":\"t\","
    "\"unit\":"
    "\"ms\"}}},";
static const char *const joins[] = {
    "{\"id\":\"j0\",\"type\":\"window_join\",\"config\":{\"size\":\"200ms\",\"type\":\"full\"},"
    "\"inputs\":[{\"from\":\"l\",\"by\":[\"k\"]},{\"from\":\"r\",\"by\":[\"k\"]}]},",
    "{\"id\":\"j1\",\"type\":\"interval_join\",\"config\":{\"lower\":\"-100ms\",\"upper\":"
    "\"150ms\","
    "\"type\":\"left\"},\"inputs\":[{\"from\":\"l\",\"by\":[\"k\",\"n\"]},{\"from\":\"r\",\"by\":"
    "[\"k\",\"n\"]}]},",
    "{\"id\":\"j2\",\"type\":\"asof_join\",\"config\":{\"type\":\"left\",\"tolerance\":\"1s\"},"
    "\"inputs\":[{\"from\":\"l\",\"by\":[\"k\"]},{\"from\":\"r\",\"by\":[\"k\"]}]},",
    "{\"id\":\"j3\",\"type\":\"lookup_join\",\"config\":{},"
    "\"inputs\":[{\"from\":\"l\",\"by\":[\"k\"]},{\"from\":\"r\",\"by\":[\"k\"]}]},",
    /* the left input lies by (n, k) already */
    "{\"id\":\"w\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"s\":\"sum(v)\"},"
    "\"every\":\"100ms\"},\"inputs\":[{\"from\":\"l\",\"by\":[\"n\",\"k\"]}]},"
    "{\"id\":\"j4\",\"type\":\"window_join\",\"config\":{\"size\":\"200ms\",\"type\":\"left\"},"
    "\"inputs\":[{\"from\":\"w\",\"by\":[\"k\",\"n\"]},{\"from\":\"r\",\"by\":[\"k\",\"n\"]}]},",
};

static uint64_t seed, rng;
static uint32_t below(uint32_t n) {
    return (uint32_t)(test_random(&rng) % n);
}

/* Over topics NAME-l and NAME-r, sinks NAME-0 to NAME-4. */
static void submit(struct world *w, const char *name) {
    struct sbuf o = { 0 };
    sbuf_printf(&o, "{\"braid\":1,\"name\":\"%s\",\"tasks\":[", name);
    sbuf_printf(&o, source_text, "l", "source", name, "l");
    sbuf_printf(&o, source_text, "r", "source", name, "r");
    for (int i = 0; i < SINKS; i++)
        sbuf_printf(&o,
                    "%s{\"id\":\"o%d\",\"type\":\"sink\",\"config\":{\"topic\":\"%s-%d\","
                    "\"format\":\"json\"},\"inputs\":[\"j%d\"]}%s",
                    joins[i], i, name, i, i, i < SINKS - 1 ? "," : "]}");
    world_submit(w, sbuf_str(&o));
    sbuf_free(&o);
}

static uint32_t parts_of(struct world *w, const char *topic) {
    struct log_topic_info info;
    struct err e = ERR_INIT;
    assert_int_equal(log_topic_info(w->log, topic, &info, &e), 0);
    return info.conf.partitions;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All rows of a topic, sorted. Returns how many. */
static size_t read_sorted(struct world *w, const char *topic, struct sbuf *out) {
    struct sbuf all = { 0 };
    size_t n = 0;
    for (uint32_t p = 0; p < parts_of(w, topic); p++)
        world_read_part(w, topic, p, &all);
    for (size_t i = 0; i < all.len; i++)
        n += all.p[i] == '\n';
    char **v = malloc((n + 1) * sizeof *v), *save = NULL;
    char *p = n ? strtok_r((char *)sbuf_str(&all), "\n", &save) : NULL;
    for (size_t i = 0; i < n; i++, p = strtok_r(NULL, "\n", &save))
        v[i] = p;
    qsort(v, n, sizeof *v, by_text);
    for (size_t i = 0; i < n; i++)
        sbuf_printf(out, "%s\n", v[i]);
    free(v);
    sbuf_free(&all);
    return n;
}

static void compare(struct world *w, int sink) {
    struct sbuf a = { 0 }, b = { 0 };
    char wide[32], one[32];
    snprintf(wide, sizeof wide, "wide-%d", sink);
    snprintf(one, sizeof one, "one-%d", sink);
    size_t n = read_sorted(w, wide, &a), m = read_sorted(w, one, &b);
    assert_true(m > 20);
    if (n != m || strcmp(sbuf_str(&a), sbuf_str(&b)) != 0) {
        size_t i = 0;
        while (a.p[i] && a.p[i] == b.p[i])
            i++;
        fail_msg("BRAID_SEED=%llu: join %d of %zu rows, one partition has %zu; they differ at\n"
                 "%.300s\n--\n%.300s",
                 (unsigned long long)seed, sink, n, m, a.p + (i < 200 ? 0 : i - 200),
                 b.p + (i < 200 ? 0 : i - 200));
    }
    sbuf_free(&a);
    sbuf_free(&b);
}

static void add_row(struct world *w, const char *side, uint32_t parts, int64_t t, bool null) {
    char row[128], topic[16];
    char k[8] = "null";
    if (!null)
        snprintf(k, sizeof k, "\"k%u\"", below(5));
    snprintf(row, sizeof row, "{\"k\":%s,\"n\":%u,\"t\":%lld,\"v\":%u.5}\n", k, below(2),
             (long long)t, below(50));
    snprintf(topic, sizeof topic, "one-%s", side);
    world_append(w, topic, row);
    snprintf(topic, sizeof topic, "wide-%s", side);
    world_append_to(w, topic, below(parts), row);
}

/* One more row everywhere, far on, so that all results are out; what it makes itself stays inside.
 */
static void flush(struct world *w, const char *side, uint32_t parts, int64_t t) {
    char row[128], topic[16];
    snprintf(row, sizeof row, "{\"k\":null,\"n\":9,\"t\":%lld,\"v\":0}\n", (long long)t);
    snprintf(topic, sizeof topic, "one-%s", side);
    world_append(w, topic, row);
    snprintf(topic, sizeof topic, "wide-%s", side);
    for (uint32_t p = 0; p < parts; p++)
        world_append_to(w, topic, p, row);
}

static void sequence(uint32_t left, uint32_t right, uint32_t lanes, uint32_t batch) {
    struct world w;
    world_open_conf(&w, &(struct world_conf){ .batch_rows = batch, .lanes = lanes });
    world_topic_parts(&w, "wide-l", left);
    world_topic_parts(&w, "wide-r", right);
    world_topic(&w, "one-l");
    world_topic(&w, "one-r");
    submit(&w, "wide");
    submit(&w, "one");
    int64_t t = 1700000000000;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t n = below(40); n-- > 0;) {
            bool is_left = below(2);
            t += 1 + below(25);
            add_row(&w, is_left ? "l" : "r", is_left ? left : right, t, below(12) == 0);
        }
        if (below(3) == 0)
            executor_inject_abort(w.x);
        for (uint32_t i = below(5); i-- > 0;)
            executor_step(w.x);
        if (below(6) == 0)
            world_restart(&w);
    }
    flush(&w, "l", left, t + 100000);
    flush(&w, "r", right, t + 100000);
    executor_settle(w.x);
    executor_settle(w.x);
    for (int i = 0; i < SINKS; i++)
        compare(&w, i);
    world_close(&w);
}

static void test_partitions(void **unused) {
    (void)unused;
    for (int i = 0; i < test_scale(16); i++) {
        static const uint32_t parts[] = { 1, 2, 3, 8 };
        rng = seed + (uint64_t)i * 7919;
        uint32_t left = parts[below(4)], right = parts[below(4)];
        sequence(left, left == 1 && right == 1 ? 3 : right, 1 + below(3),
                 (uint32_t[]){ 1, 37, 1024 }[below(3)]);
    }
}

/* Each input's keys are its own fields: the second one's too long key is a dead letter. */
static void test_long_key(void **unused) {
    (void)unused;
    struct world w;
    struct sbuf row = { 0 }, dead = { 0 }, out = { 0 };
    world_open(&w, 0, false);
    world_topic(&w, "l");
    world_topic(&w, "r");
    world_submit(
        &w, "{\"braid\":1,\"name\":\"long\",\"tasks\":["
            "{\"id\":\"l\",\"type\":\"source\",\"config\":{\"topic\":\"l\",\"format\":\"json\","
            "\"schema\":{\"a\":\"i64\",\"k\":\"string\",\"t\":\"i64\"},\"time\":{\"field\":\"t\","
            "\"unit\":\"ms\"}}},"
            "{\"id\":\"r\",\"type\":\"table\",\"config\":{\"topic\":\"r\",\"schema\":{"
            "\"key\":\"string\",\"b\":\"i64\",\"at\":\"i64\"},\"time\":{\"field\":\"at\",\"unit\":"
            "\"ms\"}}},"
            "{\"id\":\"j\",\"type\":\"lookup_join\",\"config\":{\"version\":\"newest\"},"
            "\"inputs\":[{\"from\":\"l\",\"by\":[\"k\"]},{\"from\":\"r\",\"by\":[\"key\"]}]},"
            "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":\"csv\"},"
            "\"inputs\":[\"j\"]}]}");
    sbuf_adds(&row, "{\"b\":1,\"at\":1,\"key\":\"");
    for (int i = 0; i < 70000; i++)
        sbuf_adds(&row, "x");
    sbuf_adds(&row, "\"}\n{\"b\":2,\"at\":2,\"key\":\"y\"}\n{\"b\":3,\"at\":9,\"key\":\"z\"}\n");
    world_append(&w, "r", sbuf_str(&row));
    world_append(&w, "l", "{\"a\":1,\"k\":\"y\",\"t\":3}\n{\"a\":2,\"k\":\"z\",\"t\":9}\n");
    executor_settle(w.x);
    world_read(&w, "o", &out);
    assert_string_equal(sbuf_str(&out), "1,y,3,y,2,2\n");
    world_read(&w, "braid.dlq", &dead);
    assert_non_null(strstr(sbuf_str(&dead), "\"code\":\"key_too_long\""));
    sbuf_free(&row);
    sbuf_free(&dead);
    sbuf_free(&out);
    world_close(&w);
}

/* ---- tables ---- */

static const char lookup_flow[] =
    "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
    "{\"id\":\"l\",\"type\":\"source\",\"config\":{\"topic\":\"l\",\"format\":\"json\","
    "\"schema\":{\"k\":\"string\",\"t\":\"i64\"},\"time\":{\"field\":\"t\",\"unit\":\"ms\"}}},"
    "{\"id\":\"f\",\"type\":\"table\",\"config\":{\"file\":\"tests/corpus/tables/"
    "keys.csv\",\"format\":"
    "\"csv\",\"header\":true,\"schema\":{\"k\":\"string\",\"limit\":\"f64\"},\"columns\":["
    "\"k\","
    "\"limit\",\"name\"]}},"
    "{\"id\":\"r\",\"type\":\"table\",\"config\":{\"topic\":\"r\",\"schema\":{\"id\":\"string\","
    "\"b\":\"i64\",\"at\":\"i64\"},\"time\":{\"field\":\"at\",\"unit\":\"ms\"}}},"
    "{\"id\":\"some\",\"type\":\"filter\",\"config\":{\"where\":\"b > 0\"},\"inputs\":[\"r\"]},"
    "{\"id\":\"j\",\"type\":\"lookup_join\",\"config\":{\"type\":\"%s\"},\"inputs\":[{\"from\":"
    "\"l\","
    "\"by\":[\"k\"]},{\"from\":\"f\",\"by\":[\"k\"]}]},"
    "{\"id\":\"jj\",\"type\":\"lookup_join\",\"config\":{\"type\":\"left\"},\"inputs\":[{\"from\":"
    "\"j\","
    "\"by\":[\"k\"]},{\"from\":\"some\",\"by\":[\"id\"]}]},"
    "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"%s\",\"format\":\"csv\"},\"inputs\":"
    "[\"jj\"]}%s]}";
static const char table_out[] =
    ",{\"id\":\"p\",\"type\":\"sink\",\"config\":{\"topic\":\"p\",\"format\":\"csv\"},\"inputs\":"
    "[\"some\"]}";

static struct world_flow *lookup(struct world *w, const char *name, const char *type,
                                 const char *more) {
    char text[4096];
    snprintf(text, sizeof text, lookup_flow, name, type, name, more);
    return world_submit(w, text);
}

static void holds(struct world *w, const char *topic, const char *want) {
    struct sbuf got = { 0 };
    world_read(w, topic, &got);
    assert_string_equal(sbuf_str(&got), want);
    sbuf_free(&got);
}

/* Who comes later shares a table with its joins, or reads it whole. */
static void test_shared_tables(void **unused) {
    (void)unused;
    struct world w;
    world_open(&w, 0, false);
    world_topic(&w, "l");
    world_topic(&w, "r");
    struct world_flow *a = lookup(&w, "a", "inner", "");
    world_append(&w, "r", "{\"id\":\"k0\",\"b\":7,\"at\":5}\n{\"id\":\"k1\",\"b\":0,\"at\":6}\n");
    world_append(&w, "l", "{\"k\":\"k0\",\"t\":10}\n");
    executor_settle(w.x);
    struct world_flow *b =
        lookup(&w, "b", "inner", ""); /* the same: all but the appending is there */
    struct world_flow *c = lookup(&w, "c", "left", ""); /* another first join, so another second */
    struct world_flow *d = lookup(&w, "d", "inner", table_out); /* a sink for the table itself */
    assert_int_equal(a->flow->fresh, a->flow->nstages);
    assert_int_equal(b->flow->fresh, 1);
    for (int i = 0; i < a->flow->nstages; i++) {
        bool table = a->flow->stage[i]->attach;
        assert_true(!table || c->flow->stage[i] != a->flow->stage[i]);
    }
    assert_true(d->flow->fresh > 2);
    world_append(&w, "l",
                 "{\"k\":\"k0\",\"t\":20}\n{\"k\":\"k2\",\"t\":21}\n{\"k\":\"k9\",\"t\":30}\n");
    world_append(&w, "r", "{\"id\":\"k0\",\"b\":8,\"at\":100}\n");
    executor_settle(w.x);
    holds(&w, "a", "k0,10,k0,21,k0,7,5\nk0,20,k0,21,k0,7,5\n");
    /* The first row waited in what they share. */
    holds(&w, "b", "k0,10,k0,21,k0,7,5\nk0,20,k0,21,k0,7,5\n");
    holds(&w, "c", "k0,20,k0,21,k0,7,5\nk2,21,,,,,\n");
    holds(&w, "d", "k0,10,k0,21,k0,7,5\nk0,20,k0,21,k0,7,5\n");
    holds(&w, "p", "k0,7,5\nk0,8,100\n");
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_partitions),
                                        cmocka_unit_test(test_long_key),
                                        cmocka_unit_test(test_shared_tables) };
    operators_init();
    seed = test_seed(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
