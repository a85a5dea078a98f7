/* dedup: against a list of all rows that passed, searched from the end for each row. */
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

static void expect_error(const struct optest *t, const char *part) {
    char *text = optest_errors(t);
    if (!strstr(text, part))
        fail_msg("'%s' does not contain '%s'", text, part);
    free(text);
}

static void within_a_time(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = {
        .op = "dedup", .in = "k:string x:i64", .by = "k", .config = "{\"within\":\"100ms\"}"
    };
    /* What was dropped does not count anew; 100 ms later the row passes. */
    char *got = optest_same(&t,
                            "@1000 a,1\n@1050 a,2\n@1099 a,3\n@1100 a,4\n@1000 b,5\n@900 b,6\n"
                            "@1101 null,7\n@1102 null,8\n",
                            &c);
    assert_string_equal(got, "@1000 a,1\n@1100 a,4\n@1000 b,5\n@1101 null,7\n");
    free(got);
    assert_true(c.passed == 4 && c.filtered == 4);
    /* Time also goes on by the watermark: at 1100 the row is forgotten, however late the next. */
    optest_expect(&t, "@1000 a,1\n!wm 1099\n@1000 a,2\n!wm 1100\n@1000 a,3\n!wm 1199\n@1000 a,4\n",
                  "@1000 a,1\n@1000 a,3\n");
    /* A sweep and the end of the stream leave nothing. */
    assert_true(optest_state(&t, "@1000 a,1\n@1001 b,2\n!wm 1300\n") == 0);
    assert_true(optest_state(&t, "@1000 a,1\n@1001 b,2\n!end\n") == 0);
    assert_true(optest_state(&t, "@1000 a,1\n@1001 b,2\n") != 0);
    t.config = "{\"within\":\"100ms\",\"fields\":[\"x\"]}";
    optest_expect(&t, "@1 a,1\n@2 a,2\n@3 b,1\n@4 a,1\n@5 a,null\n@6 a,null\n",
                  "@1 a,1\n@2 a,2\n@3 b,1\n@5 a,null\n");
    t.config = "{\"within\":\"1000000000000000ms\"}"; /* beyond the end of time */
    optest_expect(&t, "@9223372036854775000 a,1\n@9223372036854775001 a,1\n",
                  "@9223372036854775000 a,1\n");
}

static void within_rows(void **state) {
    (void)state;
    struct optest t = { .op = "dedup",
                        .in = "k:string x:i64",
                        .config = "{\"rows\":2,\"fields\":[\"x\"]}" };
    /* Of the whole stream: the 1 is forgotten after the two rows behind it. */
    optest_expect(&t, "a,1\na,1\na,1\na,1\nb,2\nb,3\nb,2\nb,2\n", "a,1\na,1\nb,2\nb,3\nb,2\n");
    t.by = "k"; /* each group by itself */
    optest_expect(&t, "a,1\nb,1\nb,2\nb,3\na,1\nb,1\na,2\na,1\n",
                  "a,1\nb,1\nb,2\nb,3\nb,1\na,2\na,1\n");
    t.config = "{\"rows\":3}";
    optest_expect(&t, "a,1\na,2\na,3\na,4\na,5\nb,6\n", "a,1\na,5\nb,6\n");
    /* Rows long ago leave no trace in the state once all that was kept of the group is gone. */
    t.config = "{\"rows\":3,\"within\":\"10ms\"}";
    assert_true(optest_state(&t, "@1 a,1\n@2 b,2\n!wm 100\n") == 0);
    assert_true(optest_state(&t, "@1 a,1\n!wm 100\n@101 a,1\n") == optest_state(&t, "@101 a,1\n"));
}

enum { ROWS = 2500 };
struct row {
    int k, x;
    int64_t now;
    bool passed;
};

/* Random groups, ids, times out of order and watermarks; `within`, `rows` or both. */
static void equals_oracle(void **state) {
    (void)state;
    static struct row row[ROWS];
    uint64_t seed = test_seed(11);
    for (int mode = 0; mode < 12; mode++) {
        bool by = mode & 1, time = mode % 3 != 0, count = mode % 3 != 1;
        int64_t within = 1 + (int64_t)(test_random(&seed) % 500), t = 1000, wm = INT64_MIN;
        int n = 1 + (int)(test_random(&seed) % 60), ids = mode < 6 ? 8 : 200;
        struct sbuf in = { 0 }, want = { 0 };
        int64_t groups[4] = { 0 }, number[ROWS];
        for (int i = 0; i < ROWS; i++) {
            struct row *r = &row[i];
            t += (int64_t)(test_random(&seed) % 20);
            int64_t at = t - (int64_t)(test_random(&seed) % 300);
            *r = (struct row){ .k = (int)(test_random(&seed) % 4),
                               .x = (int)(test_random(&seed) % (uint64_t)ids),
                               .now = at > wm ? at : wm };
            int g = by ? r->k : 0;
            number[i] = groups[g]++;
            bool seen = false;
            for (int j = i; j-- > 0 && !seen;) {
                const struct row *o = &row[j];
                seen = o->passed && o->x == r->x && (!by || o->k == r->k);
                if (!seen)
                    continue;
                if ((time && r->now >= o->now + within) || (count && number[i] - number[j] > n))
                    break; /* the last one that passed decides */
                goto equal;
            }
            r->passed = true;
            sbuf_printf(&want, "@%lld %d,%d\n", (long long)at, r->k, r->x);
        equal:
            sbuf_printf(&in, "@%lld %d,%d\n", (long long)at, r->k, r->x);
            if (test_random(&seed) % 4 == 0 && t - 250 > wm) {
                wm = t - 250;
                sbuf_printf(&in, "!wm %lld\n", (long long)wm);
            }
        }
        char config[160];
        int len = snprintf(config, sizeof config, "{\"fields\":[\"x\"]");
        if (time)
            len += snprintf(config + len, sizeof config - (size_t)len, ",\"within\":\"%dms\"",
                            (int)within);
        if (count)
            len += snprintf(config + len, sizeof config - (size_t)len, ",\"rows\":%d", n);
        snprintf(config + len, sizeof config - (size_t)len, "}");
        struct optest o = { .op = "dedup",
                            .in = "k:i64 x:i64",
                            .by = by ? "k" : NULL,
                            .share_offsets = mode == 7,
                            .config = config };
        optest_expect(&o, sbuf_str(&in), sbuf_str(&want));
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

static void limits(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = {
        .op = "dedup", .in = "k:string", .by = "k", .config = "{\"within\":\"80ms\",\"max_keys\":2}"
    };
    char *got = optest_same(&t, "@1 a\n@2 b\n@3 c\n@4 a\n!wm 90\n@91 c\n@92 a\n@93 b\n", &c);
    assert_string_equal(got, "@1 a\n@2 b\n@91 c\n@92 a\n"
                             "!reject too_many_keys: more than 2 different rows are kept\n"
                             "!reject too_many_keys: more than 2 different rows are kept\n");
    free(got);
    assert_true(c.rejected == 2 && c.passed == 4 && c.filtered == 1);
    /* Long keys: what fits passes, the rest is refused, in both forms of the state. */
    for (int form = 0; form < 2; form++) {
        struct sbuf in = { 0 };
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 10 + (i == 1) * 60000; k++)
                sbuf_adds(&in, "y");
            sbuf_adds(&in, ",z\n");
        }
        struct optest l = { .op = "dedup",
                            .in = "k:string x:string",
                            .config = form ? "{\"rows\":5,\"fields\":[\"k\",\"x\"]}"
                                           : "{\"within\":\"5s\",\"fields\":[\"k\",\"x\"]}" };
        struct optest_mode m = { .batch = 3 };
        got = optest_run(&l, sbuf_str(&in), &m, &c);
        assert_true(c.rejected == 1 && c.passed == 1 && c.filtered == 1);
        assert_non_null(strstr(got, "!reject key_too_long"));
        free(got);
        sbuf_free(&in);
    }
}

static void dedup_errors(void **state) {
    (void)state;
    struct optest t = { .op = "dedup", .in = "k:string x:i64", .config = "{}" };
    expect_error(&t, "give 'within' or 'rows'");
    expect_error(&t, "give 'fields', or group the input");
    t.config = "{\"within\":\"1s\",\"fields\":[\"y\",\"x\",\"x\"]}";
    expect_error(&t, "fields/y: input 'in' has no field 'y'");
    expect_error(&t, "fields/x: 'x' is listed twice");
    t.config = "{\"within\":\"0s\",\"fields\":[\"x\"]}";
    expect_error(&t, "'within' must be between 1ms and");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_a_time), cmocka_unit_test(within_rows),
        cmocka_unit_test(equals_oracle), cmocka_unit_test(limits),
        cmocka_unit_test(dedup_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
