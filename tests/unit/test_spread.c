/* Where the planner puts exchanges: as many as needed, none more (planner/spread.h). */
#include "operators/all.h"
#include "planner/merge.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static int partitions(void *user, const char *topic) {
    (void)user;
    return strcmp(topic, "four") == 0 ? 4 : strcmp(topic, "eight") == 0 ? 8 : 1;
}
static const struct spec_env env = { .partitions = partitions };

#define IN(id, topic)                                                                              \
    "{\"id\":\"" id "\",\"type\":\"source\",\"config\":{\"topic\":\"" topic                        \
    "\",\"format\":\"json\","                                                                      \
    "\"schema\":{\"a\":\"string\",\"b\":\"string\",\"v\":\"f64\"}}}"
#define FROM(from)   ",\"inputs\":[\"" from "\"]}"
#define BY(from, by) ",\"inputs\":[{\"from\":\"" from "\",\"by\":[" by "]}]}"
#define FILTER(id)   ",{\"id\":\"" id "\",\"type\":\"filter\",\"config\":{\"where\":\"v > 1\"}"
#define PROJECT(id)                                                                                \
    ",{\"id\":\"" id "\",\"type\":\"project\",\"config\":{\"fields\":{\"a\":\"b\",\"v\":\"v\"}}"
#define KALMAN(id) ",{\"id\":\"" id "\",\"type\":\"kalman\",\"config\":{\"fields\":[\"v\"]}"
#define SINK(id, config)                                                                           \
    ",{\"id\":\"" id "\",\"type\":\"sink\",\"config\":{" config ",\"format\":\"json\"}"

/* Groups of each exchange in the file's order, "16 1"; then the partitions of the last task. */
static void expect(const char *tasks, const char *want) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct sbuf text = { 0 }, got = { 0 };
    struct spec s;
    sbuf_printf(&text, "{\"braid\":1,\"name\":\"f\",\"tasks\":[%s]}", tasks);
    if (spec_parse(&s, NULL, sbuf_str(&text), text.len, &env, &a, &es, NULL) < 0)
        fail_msg("%s\n%s", es.v[0].text, text.p);
    for (int i = 0; i < s.nstages; i++)
        if (strcmp(s.stages[i].op->name, "exchange_append") == 0) {
            char *json = NULL;
            struct sbuf c = { 0 };
            params_canonical(s.stages[i].op, s.stages[i].config, false, &c);
            json = strstr(sbuf_str(&c), "\"groups\":");
            assert_non_null(json);
            sbuf_printf(&got, "%d ", json[9] == '1' && json[10] == '6' ? 16 : 1);
            sbuf_free(&c);
        }
    sbuf_printf(&got, "-> %d", s.stages[s.nstages - 1].parts);
    assert_string_equal(sbuf_str(&got), want);
    sbuf_free(&text);
    sbuf_free(&got);
    errs_free(&es);
    arena_free(&a);
}

static void test_one_partition(void **state) {
    (void)state;
    expect(IN("in", "one") KALMAN("k") BY("in", "\"a\"") SINK("o", "\"topic\":\"x\"") FROM("k"),
           "-> 1");
    expect(IN("in", "one") SINK("o", "\"file\":\"x\"") FROM("in"), "-> 1");
}

static void test_needed(void **state) {
    (void)state;
    expect(IN("in", "four") FILTER("f") FROM("in") SINK("o", "\"topic\":\"x\"") FROM("f"), "-> 4");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") SINK("o", "\"topic\":\"x\"") FROM("k"),
           "16 -> 16");
    expect(IN("in", "four") KALMAN("k") FROM("in") SINK("o", "\"topic\":\"x\"") FROM("k"),
           "1 -> 1");
    expect(IN("in", "four") SINK("o", "\"file\":\"x\"") FROM("in"), "1 -> 1");
    expect(IN("in", "four") SINK("o", "\"discard\":true") FROM("in"), "-> 4");
}

/* Rows that lie by a key lie by more fields, too, as long as nothing may have changed it. */
static void test_needless(void **state) {
    (void)state;
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") KALMAN("l") BY("k", "\"a\""), "16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") KALMAN("l") BY("k", "\"b\",\"a\""),
           "16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") FILTER("f") FROM("k") KALMAN("l")
               BY("f", "\"a\""),
           "16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\",\"b\"") KALMAN("l") BY("k", "\"a\""),
           "16 16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") KALMAN("l") BY("k", "\"b\""),
           "16 16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") PROJECT("p") FROM("k") KALMAN("l")
               BY("p", "\"a\""),
           "16 16 -> 16");
    expect(IN("in", "four") KALMAN("k") BY("in", "\"a\"") KALMAN("l") FROM("k"), "16 1 -> 1");
    /* A task whose config names the field may have written it. */
    expect(IN("in", "four") ",{\"id\":\"d\",\"type\":\"distinct_count\",\"config\":{\"fields\":["
                            "\"a\"]}" BY("in", "\"a\"") KALMAN("l") BY("d", "\"a\""),
           "16 16 -> 16");
}

static void test_per_partition(void **state) {
    (void)state;
    expect(IN("in", "four") ",{\"id\":\"k\",\"type\":\"kalman\",\"per_partition\":true,"
                            "\"config\":{\"fields\":[\"v\"]}" FROM("in"),
           "-> 4");
    expect(IN("in", "four") ",{\"id\":\"k\",\"type\":\"kalman\",\"per_partition\":true,"
                            "\"config\":{\"fields\":[\"v\"]}" BY("in", "\"a\""),
           "-> 4");
}

static void test_several_inputs(void **state) {
    (void)state;
    expect(IN("x", "four") "," IN("y", "eight")
               SINK("o", "\"topic\":\"t\"") ",\"inputs\":[\"x\",\"y\"]}",
           "1 1 -> 1");
    expect(IN("x", "four") "," IN("y", "four")
               SINK("o", "\"topic\":\"t\"") ",\"inputs\":[\"x\",\"y\"]}",
           "-> 4");
    expect(IN("x", "four") "," IN("y", "eight")
               KALMAN("k") ",\"inputs\":[{\"from\":\"x\",\"by\":[\"a\"]},"
                           "{\"from\":\"y\",\"by\":[\"a\"]}]}",
           "16 16 -> 16");
    expect(IN("x", "one") "," IN("y", "eight")
               KALMAN("k") ",\"inputs\":[{\"from\":\"x\",\"by\":[\"a\"]},"
                           "{\"from\":\"y\",\"by\":[\"a\"]}]}",
           "16 16 -> 16");
}

/* Two dataflows that regroup the same rows alike share the exchange. */
static void test_shared(void **state) {
    (void)state;
    static const char *const text[] = {
        "{\"braid\":1,\"name\":\"p\",\"tasks\":[" IN("in", "four") KALMAN("k")
            BY("in", "\"a\"") "]}",
        "{\"braid\":1,\"name\":\"q\",\"tasks\":[" IN(
            "i", "four") ",{\"id\":\"d\",\"type\":\"distinct_count\",\"config\":{\"fields\":[\"v\"]"
                         "}" BY("i", "\"a\"") "]}",
    };
    struct plan *p = plan_new();
    struct arena a[2] = { { 0 }, { 0 } };
    for (int i = 0; i < 2; i++) {
        struct errs es = { 0 };
        struct spec s;
        struct plan_cut cut = { .id = (uint64_t)i + 1 };
        assert_int_equal(spec_parse(&s, NULL, text[i], strlen(text[i]), &env, &a[i], &es, NULL), 0);
        assert_int_equal(plan_submit(p, &s, &cut, NULL, &es), 0);
        plan_commit(p);
        errs_free(&es);
    }
    const struct flow *q = plan_find(p, "q");
    assert_int_equal(q->fresh, 1); /* the count itself */
    plan_free(p);
    arena_free(&a[0]);
    arena_free(&a[1]);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_partition),  cmocka_unit_test(test_needed),
        cmocka_unit_test(test_needless),       cmocka_unit_test(test_per_partition),
        cmocka_unit_test(test_several_inputs), cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
