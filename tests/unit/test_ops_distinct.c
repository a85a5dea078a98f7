/* distinct_count by HyperLogLog: its error bound, that it is a function of the set of values, and
 * windows against sketches of their rows. LogLog as RIoTBench has it is tested in test_ops_stats.c.
 */
#include "engine/key.h"
#include "operators/hll.h"
#include "operators/mix.h"
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

/* The relative error over many sets is 1.04 / sqrt(2^k), as the paper proves, for numbers from a
 * few to hundreds a register; around the change from linear counting up to 1.45 times that. */
static void error_bound_holds(void **state) {
    (void)state;
    static const double load[] = { 0.05, 0.5, 1, 2, 2.6, 3, 3.2, 3.4, 4, 5, 20, 300 };
    uint64_t seed = test_seed(1);
    for (int k = 4; k <= 14; k += k == 4 ? 2 : 4) {
        double bound = 1.04 / sqrt(ldexp(1, k));
        for (size_t l = 0; l < sizeof load / sizeof *load; l++) {
            uint64_t n = (uint64_t)ceil(load[l] * ldexp(1, k));
            int sets = test_scale(k > 10 ? 10 : 60), far = 0;
            double squares = 0;
            if (k == 14 && load[l] > 5)
                sets = test_scale(3);
            void *sketch = malloc(hll_size(k));
            for (int i = 0; i < sets; i++) {
                memset(sketch, 0, hll_size(k));
                uint64_t base = test_random(&seed);
                for (uint64_t v = 0; v < n; v++)
                    hll_add(sketch, k, mix64(base + v * 0x9e3779b97f4a7c15u));
                double e = ((double)hll_count(sketch, k) - (double)n) / (double)n;
                squares += e * e;
                far += fabs(e) > 3.5 * bound + 0.5 / (double)n;
            }
            double rms = sqrt(squares / sets);
            print_message("k %d, %llu values: rms error %.4f, bound %.4f\n", k,
                          (unsigned long long)n, rms, bound);
            bool change = load[l] > 1 && load[l] < 5;
            /* the bound, the rounding, and 4 standard deviations of an rms of so few */
            double most =
                (bound * (change ? 1.45 : 1) + 0.5 / (double)n) * (1 + 4 / sqrt(2.0 * sets));
            if (rms > most || far > 1 + sets / 20)
                fail_msg("BRAID_SEED=%llu: k %d, %llu values: rms error %.4f, bound %.4f, %d of %d "
                         "beyond 3.5 of it",
                         (unsigned long long)test_seed(1), k, (unsigned long long)n, rms, bound,
                         far, sets);
            free(sketch);
        }
    }
}

/* Any order, repetitions and merges of parts: the same bytes. The kept sum is that of the
 * registers. */
static void is_of_a_set(void **state) {
    (void)state;
    uint64_t seed = test_seed(7);
    for (int round = 0; round < test_scale(40); round++) {
        int k = HLL_K_MIN + (int)(test_random(&seed) % (HLL_K_MAX - HLL_K_MIN + 1));
        size_t size = hll_size(k);
        char *whole = calloc(1, size), *parts[3], *back = calloc(1, size);
        uint64_t v[3000], n = test_random(&seed) % 3000;
        for (int i = 0; i < 3; i++)
            parts[i] = calloc(1, size);
        for (uint64_t i = 0; i < n; i++) {
            v[i] = test_random(&seed);
            if (test_random(&seed) % 8 == 0) /* long runs of zeros */
                v[i] &= ((uint64_t)1 << test_random(&seed) % 64) - 1;
            hll_add(whole, k, v[i]);
            hll_add(parts[test_random(&seed) % 3], k, v[i]);
            hll_add(parts[test_random(&seed) % 3], k, v[i]);
        }
        for (uint64_t i = n; i-- > 0;)
            hll_add(back, k, v[i]);
        hll_merge(parts[1], k, parts[0]);
        hll_merge(parts[2], k, parts[1]);
        hll_merge(parts[2], k, parts[2]);
        assert_memory_equal(whole, back, size);
        assert_memory_equal(whole, parts[2], size);
        for (int i = 0; i < 3; i++)
            free(parts[i]);
        free(whole);
        free(back);
    }
}

static void small_numbers_are_exact(void **state) {
    (void)state;
    struct sbuf in = { 0 }, want = { 0 };
    for (int i = 0; i < 60; i++)
        for (int again = 0; again < 2; again++) {
            sbuf_printf(&in, "%d\n", i);
            sbuf_printf(&want, "%d,%d\n", i, i + 1);
        }
    struct optest t = { .op = "distinct_count",
                        .in = "x:i64",
                        .config = "{\"fields\":[\"x\"],\"method\":\"hll\",\"k\":16}" };
    optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
    sbuf_free(&in);
    sbuf_free(&want);
    t.in = "k:string x:f64 b:bool s:string";
    t.by = "k";
    t.config = "{\"fields\":[\"x\",\"b\",\"s\"],\"method\":\"hll\",\"k\":12,\"suffix\":\"_n\"}";
    optest_expect(&t, "a,0,true,p\na,-0,false,p\nb,1,null,q\na,null,true,null\na,2.5,true,\n",
                  "a,0,true,p,1,1,1\na,-0,false,p,1,2,1\nb,1,null,q,1,0,1\n"
                  "a,null,true,null,1,2,1\na,2.5,true,,2,2,2\n");
}

/* ---- windows ---- */

struct oracle {
    struct sbuf out;
    int k;
};
static uint64_t hash_of(int64_t x) {
    struct arena a = { 0 };
    struct field f = { .name = "x", .type = TYPE_I64 };
    struct schema s = { .n = 1, .f = &f };
    struct column c = { .i64 = &x };
    struct batch b = { .schema = &s, .cols = &c, .rows = 1, .n = 1 };
    struct span key;
    uint64_t hash;
    key_batch(&a, &b, (int[]){ 0 }, 1, &key, &hash);
    arena_free(&a);
    return hash;
}
static void count_group(void *user, const struct panes_stream *s, int64_t start, const char *key,
                        const int *row, int n) {
    struct oracle *o = user;
    char *sketch = calloc(1, hll_size(o->k));
    for (int i = 0; i < n; i++)
        if (!s->row[row[i]].null)
            hll_add(sketch, o->k, hash_of(s->row[row[i]].x));
    sbuf_printf(&o->out, "@%lld %s,%lld,%lld,%lld\n", (long long)(start + s->size - 1), key,
                (long long)start, (long long)(start + s->size), (long long)hll_count(sketch, o->k));
    free(sketch);
}

static void windows_equal_oracle(void **state) {
    (void)state;
    static struct panes_stream s;
    uint64_t first = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(40);
    uint64_t made = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        uint64_t r = seed;
        struct oracle o = { .k = 4 + (int)(seed % 7) };
        struct sbuf in = { 0 }, config = { 0 };
        struct op_counts c;
        panes_stream_make(&s, &r);
        sbuf_printf(&config, "{\"fields\":[\"x\"],\"method\":\"hll\",\"k\":%d,", o.k);
        panes_stream_config(&s, &config);
        sbuf_adds(&config, "}");
        panes_stream_text(&s, &in);
        panes_stream_groups(&s, false, count_group, &o);
        struct optest t = {
            .op = "distinct_window", .in = "k:string x:i64", .by = "k", .config = sbuf_str(&config)
        };
        char *got = optest_same(&t, sbuf_str(&in), &c);
        if (strcmp(got, sbuf_str(&o.out)) != 0)
            fail_msg("BRAID_SEED=%llu: %s\n--- got\n%s--- want\n%s", (unsigned long long)seed,
                     config.p, got, o.out.p);
        assert_int_equal(c.late, panes_stream_late(&s, false));
        assert_int_equal(c.absorbed, (uint64_t)s.n - c.late);
        made += c.made;
        free(got);
        sbuf_free(&in);
        sbuf_free(&config);
        sbuf_free(&o.out);
    }
    assert_true(n == 1 || made > 50 * n);
}

/* A LogLog of a window is the estimate that the running form has after the same rows. */
static void loglog_windows(void **state) {
    (void)state;
    struct sbuf run = { 0 }, win = { 0 };
    for (int i = 0; i < 300; i++) {
        sbuf_printf(&run, "v%d\n", i * i % 211);
        sbuf_printf(&win, "@%d v%d\n", i, i * i % 211);
    }
    sbuf_adds(&win, "!end\n");
    struct optest t = { .op = "distinct_count",
                        .in = "s:string",
                        .config = "{\"fields\":[\"s\"],\"k\":6}" };
    char *last = optest_same(&t, sbuf_str(&run), NULL);
    const char *p = last + strlen(last) - 1;
    while (p[-1] != ',')
        p--;
    char want[64];
    snprintf(want, sizeof want, "@299 0,300,%s", p);
    t.op = "distinct_window";
    t.config = "{\"fields\":[\"s\"],\"k\":6,\"every\":\"300ms\"}";
    optest_expect(&t, sbuf_str(&win), want);
    /* cut into slices and merged: windows that hold all rows */
    t.config = "{\"fields\":[\"s\"],\"k\":6,\"every\":\"300ms\",\"size\":\"900ms\"}";
    char *got = optest_same(&t, sbuf_str(&win), NULL), line[3][64];
    snprintf(line[0], 64, "@299 -600,300,%s", p);
    snprintf(line[1], 64, "@599 -300,600,%s", p);
    snprintf(line[2], 64, "@899 0,900,%s", p);
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(got, line[i]));
    free(got);
    free(last);
    sbuf_free(&run);
    sbuf_free(&win);
}

static void distinct_errors(void **state) {
    (void)state;
    struct optest t = { .op = "distinct_count", .in = "k:string x:i64 window_end:i64" };
    t.config = "{\"fields\":[\"x\"],\"method\":\"hyper\"}";
    expect_error(&t, "'method' must be \"loglog\" or \"hll\"");
    t.config = "{\"fields\":[\"x\"],\"k\":17}";
    expect_error(&t, "'k' must be between 4 and 16, not 17");
    t.config = "{\"fields\":[\"x\"],\"size\":\"10ms\"}";
    expect_error(&t, "size: 'size' is for windows: give 'every', too");
    t.op = "distinct_window";
    t.by = "window_end";
    t.config = "{\"fields\":[\"x\"],\"every\":\"10ms\"}";
    expect_error(&t, "the output would have two fields 'window_end': rename the group key");
    t.by = "k";
    t.config = "{\"fields\":[\"x\",\"x\"],\"every\":\"10ms\"}";
    expect_error(&t, "suffix: the output would have two fields 'x_distinct'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_bound_holds),       cmocka_unit_test(is_of_a_set),
        cmocka_unit_test(small_numbers_are_exact), cmocka_unit_test(windows_equal_oracle),
        cmocka_unit_test(loglog_windows),          cmocka_unit_test(distinct_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
