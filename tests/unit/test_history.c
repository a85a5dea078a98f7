/* Which running tasks a dataflow with a history of its own may join, with the real operators. */
#include "operators/all.h"
#include "planner/merge.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define IN                                                                                         \
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"json\","          \
    "\"schema\":{\"id\":\"string\",\"name\":\"string\",\"v\":\"f64\",\"at\":\"i64\"},"             \
    "\"time\":{\"field\":\"at\",\"unit\":\"ms\"}}}"

#define CONFIG "\"id\":\"id\",\"name_field\":\"name\",\"value_field\":\"v\",\"need\":[\"x\",\"y\"]"

/* How many stages the dataflow starts, the same one running with a shared history already. */
static int fresh(const char *config) {
    struct plan *p = plan_new();
    struct arena a[2] = { { 0 }, { 0 } };
    char text[2][1024];
    int n = -1;
    for (int i = 0; i < 2; i++) {
        struct errs es = { 0 };
        struct spec s;
        struct spec_env env = { 0 };
        struct plan_cut cut = { .id = (uint64_t)i + 1 };
        snprintf(text[i], sizeof text[i],
                 "{\"braid\":1,\"name\":\"f%d\",\"history\":\"%s\",\"tasks\":[" IN
                 ",{\"id\":\"j\",\"type\":\"join\",\"config\":{%s},\"inputs\":[\"in\"]}]}",
                 i, i ? "own" : "shared", config);
        if (spec_parse(&s, NULL, text[i], strlen(text[i]), &env, &a[i], &es, NULL) < 0 ||
            plan_submit(p, &s, &cut, NULL, &es) < 0)
            fail_msg("%s", es.v[0].text);
        plan_commit(p);
        errs_free(&es);
    }
    n = plan_find(p, "f1")->fresh;
    plan_free(p);
    arena_free(&a[0]);
    arena_free(&a[1]);
    return n;
}

/* The join itself remembers, so it is new. The time stage above it remembers the watermark: that of
 * before this dataflow's start must not reach a join that gives rows up by it. */
static void test_join_by_time(void **state) {
    (void)state;
    assert_int_equal(fresh(CONFIG), 1);
    assert_int_equal(fresh(CONFIG ",\"timeout\":\"1s\""), 2);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_join_by_time) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
