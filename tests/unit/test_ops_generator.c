/* generator. */
#include "operators/generator.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

#define FIELDS                                                                                     \
    "\"w\":{\"walk\":[-10,40],\"period\":64,\"digits\":2},\"u\":{\"uniform\":[0,1]},"              \
    "\"i\":{\"integer\":[-3,3]},\"c\":{\"choice\":[\"red\",\"green\",\"blue\"],\"nulls\":0.25},"   \
    "\"k\":{\"keys\":50,\"prefix\":\"s\"},\"n\":{\"sequence\":100},\"t\":{\"time\":\"ms\"}"

static void open_config(struct optest_op *o, const char *config) {
    struct optest t = { .op = "generator", .config = config };
    if (optest_open(o, &t, NULL) < 0)
        fail_msg("%s", o->errs.v[0].text);
}

/* A digest of rows k..k+n-1, pulled in slices of at most `slice` (0: random). */
static uint64_t digest(const char *config, int64_t k, int64_t n, uint32_t slice, uint64_t seed) {
    struct optest_op o;
    open_config(&o, config);
    uint64_t sum = 0;
    for (int64_t at = k; at < k + n;) {
        struct batch b;
        struct origin origin = { 0 };
        uint32_t want = slice ? slice : 1 + (uint32_t)(test_random(&seed) % BATCH_ROWS);
        if (want > k + n - at)
            want = (uint32_t)(k + n - at);
        uint32_t got = o.desc->pull(o.self, &o.ctx, at, want, &b, &origin);
        assert_int_equal(got, want);
        assert_int_equal(origin.off0, at);
        for (uint32_t r = 0; r < got; r++) {
            char line[512];
            const struct column *c = b.cols;
            int len = snprintf(line, sizeof line, "%a %a %lld %.*s %.*s %lld %lld %lld %lld %lld",
                               c[0].f64[r], c[1].f64[r], (long long)c[2].i64[r],
                               column_null(&c[3], r) ? 0 : (int)c[3].str[r].len, c[3].str[r].p,
                               (int)c[4].str[r].len, c[4].str[r].p, (long long)c[5].i64[r],
                               (long long)c[6].i64[r], (long long)b.time[r], (long long)b.wm[r],
                               (long long)origin.wm[r]);
            sum = sum * 31 + state_hash(line, (uint32_t)len);
        }
        at += got;
        arena_reset(&o.tick);
    }
    optest_close(&o);
    return sum;
}

static void slices_are_equal(void **state) {
    (void)state;
    static const char config[] = "{\"fields\":{" FIELDS "},\"rate\":7}";
    uint64_t whole = digest(config, 0, 3000, BATCH_ROWS, 0);
    assert_true(digest(config, 0, 3000, 1, 0) == whole);
    uint64_t seed = test_seed(4);
    for (int i = 0; i < test_scale(20); i++)
        assert_true(digest(config, 0, 3000, 0, seed + (uint64_t)i) == whole);
    assert_true(digest(config, 2000, 500, 1, 0) == digest(config, 2000, 500, 333, 0));
    assert_true(digest("{\"fields\":{" FIELDS "},\"rate\":7,\"seed\":2}", 0, 3000, 1, 0) != whole);
}

static void values_are_as_asked(void **state) {
    (void)state;
    struct optest_op o;
    open_config(&o, "{\"fields\":{" FIELDS "},\"rate\":4,\"first_time\":\"1970-01-01T00:00:10Z\"}");
    double lo = 1e9, hi = -1e9, step = 0, last = 0;
    int seen[7] = { 0 }, word[256] = { 0 }, nulls = 0, rows = 0;
    bool key[50] = { false };
    for (int64_t at = 0; at < 20000; at += BATCH_ROWS) {
        struct batch b;
        struct origin origin = { 0 };
        uint32_t n = o.desc->pull(o.self, &o.ctx, at, BATCH_ROWS, &b, &origin);
        for (uint32_t r = 0; r < n; r++, rows++) {
            double w = b.cols[0].f64[r], u = b.cols[1].f64[r];
            assert_true(w >= -10 && w <= 40 && w == rint(w * 100) / 100);
            step = rows ? fmax(step, fabs(w - last)) : 0;
            last = w;
            lo = fmin(lo, w);
            hi = fmax(hi, w);
            assert_true(u >= 0 && u < 1);
            assert_in_range(b.cols[2].i64[r] + 3, 0, 6);
            seen[b.cols[2].i64[r] + 3]++;
            nulls += column_null(&b.cols[3], r);
            if (!column_null(&b.cols[3], r)) /* nulls do not prefer a value */
                word[(unsigned char)b.cols[3].str[r].p[0]]++;
            struct span k = b.cols[4].str[r];
            assert_true(k.len >= 2 && k.len <= 3 && k.p[0] == 's');
            int number = k.p[1] - '0';
            number = k.len == 3 ? number * 10 + k.p[2] - '0' : number;
            assert_in_range(number, 0, 49);
            key[number] = true;
            assert_int_equal(b.cols[5].i64[r], 100 + rows);
            assert_int_equal(b.time[r], 10000 + rows * 250);
            assert_int_equal(b.cols[6].i64[r], b.time[r]);
            assert_true(origin.wm[r] == b.time[r]);
            assert_true(b.wm[r] == (rows ? b.time[r] - 250 : TIME_MIN));
        }
        arena_reset(&o.tick);
    }
    assert_true(lo < 2 && hi > 28); /* it wanders over most of its range... */
    assert_true(step < 5);          /* ...in small steps: at most 50 x 4 x 8/15 / 64 and rounding */
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], rows / 7 * 9 / 10, rows / 7 * 11 / 10);
    assert_in_range(nulls, rows * 23 / 100, rows * 27 / 100);
    for (const char *c = "rgb"; *c; c++)
        assert_in_range(word[(unsigned char)*c], rows * 23 / 100, rows * 27 / 100);
    for (int i = 0; i < 50; i++)
        assert_true(key[i]);
    optest_close(&o);
}

static void stream_ends(void **state) {
    (void)state;
    struct optest_op o;
    struct batch b;
    struct origin origin = { 0 };
    open_config(&o, "{\"fields\":{\"n\":{\"sequence\":0}},\"count\":5,\"pace\":false}");
    assert_int_equal(o.desc->pull(o.self, &o.ctx, 0, 3, &b, &origin), 3);
    assert_int_equal(o.desc->pull(o.self, &o.ctx, 3, 3, &b, &origin), 2);
    assert_int_equal(o.desc->pull(o.self, &o.ctx, 5, 3, &b, &origin), 0);
    assert_true(o.desc->rate(o.ctx.config) == 0);
    optest_close(&o);
}

static void whole_range_of_integers(void **state) {
    (void)state;
    struct optest_op o;
    struct batch b;
    struct origin origin = { 0 };
    open_config(&o,
                "{\"fields\":{\"n\":{\"integer\":[-9223372036854775808,9223372036854775807]}}}");
    o.desc->pull(o.self, &o.ctx, 0, 1000, &b, &origin);
    int negative = 0;
    for (int i = 0; i < 1000; i++)
        negative += b.cols[0].i64[i] < 0;
    assert_in_range(negative, 400, 600);
    optest_close(&o);
}

/* What cannot be rounded stays as it is. */
static void large_numbers_stay_finite(void **state) {
    (void)state;
    struct optest_op o;
    struct batch b;
    struct origin origin = { 0 };
    open_config(&o, "{\"fields\":{\"u\":{\"uniform\":[1e300,1.1e300],\"digits\":15}}}");
    o.desc->pull(o.self, &o.ctx, 0, 100, &b, &origin);
    for (int i = 0; i < 100; i++)
        assert_true(b.cols[0].f64[i] >= 1e300 && b.cols[0].f64[i] <= 1.1e300);
    optest_close(&o);
}

static void errors(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{\"fields\":{}}", "1 to 1024 fields" },
        { "{\"fields\":[1]}", "1 to 1024 fields" },
        { "{\"fields\":{\"a\":{}}}", "field 'a': needs one of" },
        { "{\"fields\":{\"a\":7}}", "field 'a': needs one of" },
        { "{\"fields\":{\"a\":{\"walk\":[1,0]}}}", "above the highest" },
        { "{\"fields\":{\"a\":{\"walk\":[0,1],\"uniform\":[0,1]}}}", "two kinds" },
        { "{\"fields\":{\"a\":{\"integer\":[0.5,1]}}}", "two integers" },
        { "{\"fields\":{\"a\":{\"keys\":0}}}", "number of keys" },
        { "{\"fields\":{\"a\":{\"choice\":[]}}}", "list of strings" },
        { "{\"fields\":{\"a\":{\"choice\":[\"x\"],\"digits\":2}}}", "does not go with" },
        { "{\"fields\":{\"a\":{\"walk\":[0,1],\"period\":1}}}", "at least 8" },
        { "{\"fields\":{\"a\":{\"walk\":[0,1],\"nulls\":2}}}", "a share" },
        { "{\"fields\":{\"b\":{\"time\":\"ms\"},\"a\":{\"time\":\"s\"}}}",
          "fields/a: field 'a': the unit of 'time'" },
        { "{\"fields\":{\"a\":{}},\"first_time\":\"now\"}",
          "first_time: 'now' is no RFC 3339 time\nfields/a: " },
        { "{\"fields\":{\"a\":{\"sequence\":0}},\"first_time\":\"yesterday\"}", "RFC 3339" },
        { "{\"fields\":{\"a\":{\"sequence\":0}},\"rate\":0}", "'rate' must be" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct optest t = { .op = "generator", .config = cases[i][0] };
        char *text = optest_errors(&t);
        if (!strstr(text, cases[i][1]))
            fail_msg("%s: '%s' does not contain '%s'", cases[i][0], text, cases[i][1]);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_equal),
        cmocka_unit_test(values_are_as_asked),
        cmocka_unit_test(stream_ends),
        cmocka_unit_test(errors),
        cmocka_unit_test(whole_range_of_integers),
        cmocka_unit_test(large_numbers_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
