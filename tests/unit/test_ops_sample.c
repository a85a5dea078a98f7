/* sample: the share that passes, and what the choice may depend on. */
#include "engine/key.h"
#include "operators/mix.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <math.h>
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

enum { KEYS = 4000 };
/* Whether key k is among the rows of a run. */
static void chosen(const char *out, bool *v, int n) {
    memset(v, 0, sizeof *v * (size_t)n);
    for (const char *p = out; *p; p += strcspn(p, "\n") + 1) {
        int k = (int)strtol(p + 1, NULL, 10);
        assert_in_range(k, 0, n - 1);
        v[k] = true;
    }
}
static int sum(const bool *v, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s += v[i];
    return s;
}

static void by_key(void **state) {
    (void)state;
    static bool low[KEYS], high[KEYS], other[KEYS], again[KEYS];
    uint64_t seed = test_seed(2);
    struct sbuf in = { 0 };
    int rows[KEYS] = { 0 };
    for (int i = 0; i < 3 * KEYS; i++) {
        int k = i < KEYS ? i : (int)(test_random(&seed) % KEYS);
        rows[k]++;
        sbuf_printf(&in, "k%d,%d\n", k, i);
    }
    struct optest t = { .op = "sample", .in = "k:string x:i64" };
    struct op_counts c;
    t.config = "{\"rate\":0.3,\"fields\":[\"k\"]}";
    char *out = optest_same(&t, sbuf_str(&in), &c);
    chosen(out, low, KEYS);
    uint64_t whole = 0; /* all rows of a chosen key pass */
    for (int k = 0; k < KEYS; k++)
        whole += low[k] ? (uint64_t)rows[k] : 0;
    assert_int_equal(c.passed, whole);
    free(out);
    double sd = sqrt(KEYS * 0.3 * 0.7);
    if (fabs(sum(low, KEYS) - 0.3 * KEYS) > 5 * sd)
        fail_msg("BRAID_SEED=%llu: %d of %d keys", (unsigned long long)test_seed(2), sum(low, KEYS),
                 KEYS);
    t.config = "{\"rate\":0.6,\"fields\":[\"k\"]}"; /* a higher rate adds keys and loses none */
    out = optest_same(&t, sbuf_str(&in), &c);
    chosen(out, high, KEYS);
    free(out);
    for (int k = 0; k < KEYS; k++)
        assert_true(!low[k] || high[k]);
    assert_true(sum(high, KEYS) > sum(low, KEYS));
    t.config = "{\"rate\":0.3,\"fields\":[\"k\"],\"seed\":2}"; /* another seed is independent */
    out = optest_same(&t, sbuf_str(&in), &c);
    chosen(out, other, KEYS);
    free(out);
    int both = 0;
    for (int k = 0; k < KEYS; k++)
        both += low[k] && other[k];
    assert_true(fabs(both - 0.09 * KEYS) < 5 * sqrt(KEYS * 0.09 * 0.91));
    /* The choice is one of keys alone: in another order, among other rows, it is the same. */
    in.len = 0;
    for (int k = KEYS; k-- > 0;)
        sbuf_printf(&in, "k%d,%d\n", k, -k);
    t.config = "{\"rate\":0.3,\"fields\":[\"k\"]}";
    out = optest_same(&t, sbuf_str(&in), &c);
    chosen(out, again, KEYS);
    free(out);
    assert_memory_equal(low, again, sizeof low);
    sbuf_free(&in);
}

static void by_position(void **state) {
    (void)state;
    struct sbuf in = { 0 };
    for (int i = 0; i < 2 * KEYS; i++)
        sbuf_printf(&in, "k0,%d\n", i);
    struct optest t = { .op = "sample", .in = "k:string x:i64", .share_offsets = true };
    static const double rate[] = { 0, 0.01, 0.5, 0.999, 1 };
    for (size_t i = 0; i < sizeof rate / sizeof *rate; i++) {
        char config[64];
        struct op_counts c;
        snprintf(config, sizeof config, "{\"rate\":%d.%03d}", (int)rate[i],
                 (int)(rate[i] * 1000 + 0.5) % 1000);
        t.config = config;
        free(optest_same(&t, sbuf_str(&in), &c));
        double n = 2 * KEYS, sd = sqrt(n * rate[i] * (1 - rate[i]));
        assert_true(fabs((double)c.passed - n * rate[i]) <= 5 * sd);
        assert_int_equal(c.passed + c.filtered, 2 * KEYS);
    }
    sbuf_free(&in);
}

/* The mixing function is SplitMix64's, whose first outputs for seed 0 are known. */
static void mix_is_splitmix(void **state) {
    (void)state;
    assert_true(mix64(0) == 0xe220a8397b1dcdafu);
    assert_true(mix64(0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
}

static void sample_errors(void **state) {
    (void)state;
    struct optest t = { .op = "sample", .in = "k:string x:i64" };
    t.config = "{\"rate\":1.5}";
    expect_error(&t, "'rate' must be between 0 and 1, not 1.5");
    t.config = "{}";
    expect_error(&t, "rate");
    t.config = "{\"rate\":0.5,\"fields\":[\"y\"]}";
    expect_error(&t, "fields/y: input 'in' has no field 'y'");
    t.config = "{\"rate\":0.5,\"fields\":[\"k\",\"k\"]}";
    expect_error(&t, "fields/k: 'k' is listed twice");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_key),
        cmocka_unit_test(by_position),
        cmocka_unit_test(mix_is_splitmix),
        cmocka_unit_test(sample_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
