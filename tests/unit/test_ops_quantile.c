/* quantile: the sketch's error against exact ranks, after merges too; exact while there are few
 * values; windows against sorting their rows. */
#include "operators/kll.h"
#include "operators/order64.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include "tests/unit/panes_gen.h"
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

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ---- the sketch ---- */

enum { N = 20000 };
/* Ascending, descending, random, few values, sawtooth, half of them equal. */
static uint64_t value_of(int shape, int i, uint64_t *seed) {
    switch (shape) {
    case 0:
        return (uint64_t)i;
    case 1:
        return (uint64_t)(N - i);
    case 2:
        return test_random(seed);
    case 3:
        return test_random(seed) % 10;
    case 4:
        return (uint64_t)(i % 137);
    default:
        return test_random(seed) % 2 ? 5 : test_random(seed) % 1000;
    }
}

/* How far the rank of `v` is from q, as a share of the values: 0 when one of its ranks is right. */
static double rank_error(const uint64_t *sorted, int n, double q, uint64_t v) {
    int lo = 0, hi = n, below, upto;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (sorted[mid] < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    below = lo;
    hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (sorted[mid] <= v)
            lo = mid + 1;
        else
            hi = mid;
    }
    upto = lo;
    double r = fmax(1, ceil(q * n));
    return r <= below ? (below - r + 1) / n : r > upto ? (r - upto) / n : 0;
}

struct tally {
    int results, beyond;
    double worst;
};
static const double shares[] = { 0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1 };
enum { SHARES = sizeof shares / sizeof *shares };

static void tally_errors(struct tally *t, const void *sketch, const uint64_t *v, int n, int k) {
    static uint64_t sorted[N];
    uint64_t out[SHARES];
    struct arena a = { 0 };
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    assert_int_equal(kll_count(sketch), n);
    kll_quantiles(sketch, &a, shares, SHARES, out);
    assert_true(out[0] == sorted[0] && out[SHARES - 1] == sorted[n - 1]);
    for (int i = 0; i < SHARES; i++) {
        double e = rank_error(sorted, n, shares[i], out[i]);
        assert_non_null(bsearch(&out[i], sorted, (size_t)n, sizeof *sorted, by_value));
        t->results++;
        t->beyond += e > KLL_ERROR(k);
        t->worst = e > t->worst ? e : t->worst;
    }
    arena_free(&a);
}

/* Added one by one, or in up to 40 parts that are then merged, one after the other or in pairs. */
static void *sketch_of(const uint64_t *v, int n, int k, uint64_t salt, int form, uint64_t *seed) {
    void *part[40];
    int parts = form == 0 ? 1 : 2 + (int)(test_random(seed) % 39);
    struct arena a = { 0 };
    for (int i = 0; i < parts; i++)
        part[i] = calloc(1, kll_size(k));
    for (int i = 0; i < n; i++)
        kll_add(part[i * (int64_t)parts / n], k, salt, v[i]);
    for (int step = 1; form == 2 && step < parts; step *= 2)
        for (int i = 0; i + step < parts; i += 2 * step)
            kll_merge(part[i], k, salt, part[i + step], &a);
    for (int i = 1; form == 1 && i < parts; i++)
        kll_merge(part[0], k, salt, part[i], &a);
    for (int i = 1; i < parts; i++)
        free(part[i]);
    arena_free(&a);
    return part[0];
}

static void error_bound_holds(void **state) {
    (void)state;
    static uint64_t v[N];
    static const int ks[] = { 16, 50, 200, 800 };
    uint64_t seed = test_seed(1);
    for (size_t c = 0; c < sizeof ks / sizeof *ks; c++) {
        int k = ks[c];
        struct tally t = { 0 };
        for (int round = 0; round < test_scale(60); round++) {
            int n = round % 5 == 4 ? 1 + (int)(test_random(&seed) % 1000) : N;
            for (int i = 0; i < n; i++)
                v[i] = value_of(round % 6, i, &seed);
            void *s = sketch_of(v, n, k, test_random(&seed), round % 3, &seed);
            tally_errors(&t, s, v, n, k);
            free(s);
        }
        print_message("k %d: %d of %d results beyond %.4f, worst %.4f\n", k, t.beyond, t.results,
                      KLL_ERROR(k), t.worst);
        if (t.beyond > 3 + t.results / 50 || t.worst > 3 * KLL_ERROR(k))
            fail_msg("BRAID_SEED=%llu: k %d: %d of %d beyond %.4f, worst %.4f",
                     (unsigned long long)test_seed(1), k, t.beyond, t.results, KLL_ERROR(k),
                     t.worst);
    }
}

/* Up to k values nothing is lost, merged or not. */
static void few_values_are_exact(void **state) {
    (void)state;
    uint64_t seed = test_seed(2), v[800];
    for (int round = 0; round < test_scale(200); round++) {
        int k = KLL_K_MIN + (int)(test_random(&seed) % 500);
        int n = 1 + (int)(test_random(&seed) % (uint64_t)k);
        struct tally t = { 0 };
        for (int i = 0; i < n; i++)
            v[i] = value_of(round % 6, i, &seed);
        void *s = sketch_of(v, n, k, 1, round % 3, &seed);
        tally_errors(&t, s, v, n, k);
        assert_true(t.worst == 0);
        free(s);
    }
}

/* A function of the sequence of values and the seed; another seed keeps other samples. */
static void is_deterministic(void **state) {
    (void)state;
    uint64_t seed = test_seed(4);
    size_t size = kll_size(100);
    char *a = calloc(1, size), *b = calloc(1, size), *c = calloc(1, size);
    for (int i = 0; i < N; i++) {
        uint64_t v = test_random(&seed);
        kll_add(a, 100, 1, v);
        kll_add(b, 100, 1, v);
        kll_add(c, 100, 2, v);
    }
    assert_memory_equal(a, b, size);
    assert_memory_not_equal(a, c, size);
    free(a);
    free(b);
    free(c);
}

/* Numbers keep their order and come back. */
static void words_of_numbers(void **state) {
    (void)state;
    static const double f[] = { -INFINITY, -1e308, -1.5, -1, -1e-320, 0, 1e-320, 1, 1.5, 1e308 };
    static const int64_t i[] = { INT64_MIN, -5, -1, 0, 1, 7, INT64_MAX };
    for (size_t k = 0; k < sizeof f / sizeof *f; k++) {
        assert_true(order64_to_f64(order64_f64(f[k])) == f[k]);
        assert_true(!k || order64_f64(f[k - 1]) < order64_f64(f[k]));
    }
    for (size_t k = 0; k < sizeof i / sizeof *i; k++) {
        assert_true(order64_to_i64(order64_i64(i[k])) == i[k]);
        assert_true(!k || order64_i64(i[k - 1]) < order64_i64(i[k]));
    }
    assert_true(order64_f64(-0.0) == order64_f64(0.0));
}

/* ---- the operator ---- */

static void running_rows(void **state) {
    (void)state;
    struct optest t = { .op = "quantile",
                        .in = "k:string x:f64 i:i64",
                        .by = "k",
                        .config = "{\"fields\":[\"x\",\"i\"],\"quantiles\":{\"max\":1,\"mid\":0.5,"
                                  "\"a\":0.5}}" };
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, x: f64, i: i64, x_a: f64, x_mid: f64, x_max: f64, "
                                "i_a: i64, i_mid: i64, i_max: i64}");
    free(schema);
    optest_expect(&t, "a,1.5,null\na,-1,9007199254740993\nb,7,1\na,0.25,-3\na,null,null\n",
                  "a,1.5,null,1.5,1.5,1.5,null,null,null\n"
                  "a,-1,9007199254740993,-1,-1,1.5,9007199254740993,9007199254740993,"
                  "9007199254740993\n"
                  "b,7,1,7,7,7,1,1,1\n"
                  "a,0.25,-3,0.25,0.25,1.5,-3,-3,9007199254740993\n"
                  "a,null,null,0.25,0.25,1.5,-3,-3,9007199254740993\n");
}

/* Beyond k values too, batches, aborts and reloads change nothing. */
static void long_runs_are_the_same(void **state) {
    (void)state;
    uint64_t seed = test_seed(6);
    struct sbuf in = { 0 };
    for (int i = 0; i < 4000; i++)
        sbuf_printf(&in, "%c,%lld\n", "ab"[test_random(&seed) % 2],
                    (long long)(test_random(&seed) % 100000));
    struct optest t = { .op = "quantile",
                        .in = "k:string x:i64",
                        .by = "k",
                        .config = "{\"fields\":[\"x\"],\"k\":32}" };
    free(optest_same(&t, sbuf_str(&in), NULL));
    sbuf_free(&in);
}

struct oracle {
    struct sbuf out;
};
static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
static void quantiles_of_group(void *user, const struct panes_stream *s, int64_t start,
                               const char *key, const int *row, int n) {
    struct oracle *o = user;
    int64_t v[PANES_ROWS];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!s->row[row[i]].null)
            v[m++] = s->row[row[i]].x;
    qsort(v, (size_t)m, sizeof *v, by_number);
    sbuf_printf(&o->out, "@%lld %s,%lld,%lld", (long long)(start + s->size - 1), key,
                (long long)start, (long long)(start + s->size));
    for (int q = 1; q <= 10; q += 3) { /* 0.1, 0.4, 0.7, 1 */
        int rank = (m * q + 9) / 10;
        if (m)
            sbuf_printf(&o->out, ",%lld", (long long)v[rank - 1]);
        else
            sbuf_adds(&o->out, ",null");
    }
    sbuf_adds(&o->out, "\n");
}
static void windows_equal_oracle(void **state) {
    (void)state;
    static struct panes_stream s;
    uint64_t first = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(60);
    uint64_t made = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        uint64_t r = seed;
        struct oracle o = { 0 };
        struct sbuf in = { 0 }, config = { 0 };
        struct op_counts c;
        panes_stream_make(&s, &r);
        sbuf_adds(&config, "{\"fields\":[\"x\"],\"k\":600,\"quantiles\":"
                           "{\"a\":0.1,\"b\":0.4,\"c\":0.7,\"d\":1},");
        panes_stream_config(&s, &config);
        sbuf_adds(&config, "}");
        panes_stream_text(&s, &in);
        panes_stream_groups(&s, false, quantiles_of_group, &o);
        struct optest t = {
            .op = "quantile_window", .in = "k:string x:i64", .by = "k", .config = sbuf_str(&config)
        };
        char *got = optest_same(&t, sbuf_str(&in), &c);
        if (strcmp(got, sbuf_str(&o.out)) != 0)
            fail_msg("BRAID_SEED=%llu: %s\n--- got\n%s--- want\n%s", (unsigned long long)seed,
                     config.p, got, o.out.p);
        made += c.made;
        free(got);
        sbuf_free(&in);
        sbuf_free(&config);
        sbuf_free(&o.out);
    }
    assert_true(n == 1 || made > 50 * n);
}

static void quantile_errors(void **state) {
    (void)state;
    struct optest t = { .op = "quantile", .in = "k:string x:i64 x_p50:i64" };
    t.config = "{\"fields\":[\"x\"],\"quantiles\":[0.5]}";
    expect_error(&t, "quantiles: 'quantiles' must be an object of shares such as");
    t.config = "{\"fields\":[\"x\"],\"quantiles\":{}}";
    expect_error(&t, "quantiles: 0 quantiles; 1 to 64 are allowed");
    t.config = "{\"fields\":[\"x\"],\"quantiles\":{\"p\":-0.1,\"q\":\"0.5\",\"r\":1.01}}";
    expect_error(&t, "quantiles/p: a quantile is a share between 0 and 1");
    expect_error(&t, "quantiles/q: a quantile is a number, not a string");
    expect_error(&t, "quantiles/r: a quantile is a share between 0 and 1");
    t.config = "{\"fields\":[\"x\"]}";
    expect_error(&t, "quantiles: the output would have two fields 'x_p50'");
    t.config = "{\"fields\":[\"k\"]}";
    expect_error(&t, "field 'k' is string; it must be i64 or f64 here");
    t.in = "a:i64 b:i64 c:i64 d:i64 e:i64 f:i64 g:i64 h:i64 i:i64 j:i64 k:i64 l:i64";
    t.config = "{\"fields\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\","
               "\"l\"],\"k\":4096}";
    expect_error(&t, "k: sketches of 12 fields are more than 1024 KiB for each key");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_bound_holds),    cmocka_unit_test(few_values_are_exact),
        cmocka_unit_test(is_deterministic),     cmocka_unit_test(words_of_numbers),
        cmocka_unit_test(running_rows),         cmocka_unit_test(long_runs_are_the_same),
        cmocka_unit_test(windows_equal_oracle), cmocka_unit_test(quantile_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
