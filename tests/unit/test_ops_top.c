/* top: running and of windows, against sorting all rows of a key or window. */
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include "tests/unit/panes_gen.h"
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

static void running_rows(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = {
        .op = "top", .in = "k:string x:f64", .by = "k", .config = "{\"value\":\"x\",\"k\":2}"
    };
    char *got = optest_same(&t, "a,1\na,0.5\nb,-7\na,0.5\na,2\na,null\na,1\na,1.5\na,-0\n", &c);
    assert_string_equal(got, "a,1,1\na,0.5,2\nb,-7,1\na,2,1\na,1.5,2\n");
    free(got);
    assert_true(c.passed == 5 && c.filtered == 4);
    t.config = "{\"value\":\"x\",\"k\":1,\"order\":\"least\",\"rank\":\"place\"}";
    optest_expect(&t, "a,0\na,-0\na,-1e-300\na,5\n", "a,0,1\na,-1e-300,1\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, x: f64, place: i64}");
    free(schema);
    /* Only the values of the best matter. */
    t.config = "{\"value\":\"x\",\"k\":2}";
    assert_true(optest_state(&t, "a,1\na,2\na,3\n") == optest_state(&t, "a,3\na,-5\na,2\n"));
}

enum { ROWS = 3000, KEYS = 6 };
static void running_equals_oracle(void **state) {
    (void)state;
    static int64_t value[KEYS][ROWS];
    uint64_t seed = test_seed(12);
    for (int mode = 0; mode < 6; mode++) {
        bool least = mode & 1;
        int top = mode < 2 ? 1 : mode < 4 ? 5 : 100, n[KEYS] = { 0 };
        struct sbuf in = { 0 }, want = { 0 };
        for (int i = 0; i < ROWS; i++) {
            int k = (int)(test_random(&seed) % KEYS), rank = 1;
            int64_t x = (int64_t)(test_random(&seed) % 1000) - 500;
            for (int j = 0; j < n[k]; j++)
                rank += least ? value[k][j] <= x : value[k][j] >= x;
            value[k][n[k]++] = x;
            sbuf_printf(&in, "%d,%lld\n", k, (long long)x);
            if (rank <= top)
                sbuf_printf(&want, "%d,%lld,%d\n", k, (long long)x, rank);
        }
        char config[96];
        snprintf(config, sizeof config, "{\"value\":\"%s\",\"k\":%d%s}",
                 mode & 2 ? "x * 0.5" : "x + 1", top, least ? ",\"order\":\"least\"" : "");
        struct optest t = { .op = "top", .in = "k:i64 x:i64", .by = "k", .config = config };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

/* ---- windows ---- */

struct oracle {
    struct sbuf out;
    int k;
    bool least;
};
static const struct panes_row *sorted; /* by_worth's rows */
static bool sorted_least;
static int by_worth(const void *a, const void *b) {
    const struct panes_row *x = &sorted[*(const int *)a], *y = &sorted[*(const int *)b];
    int64_t u = x->x * x->x, v = y->x * y->x;
    if (u != v)
        return sorted_least ? (u < v ? -1 : 1) : (u > v ? -1 : 1);
    return x->x < y->x ? -1 : x->x > y->x; /* the fields: the key is the same */
}
static void best_of_group(void *user, const struct panes_stream *s, int64_t start, const char *key,
                          const int *row, int n) {
    struct oracle *o = user;
    int order[PANES_ROWS];
    memcpy(order, row, (size_t)n * sizeof *order);
    sorted = s->row;
    sorted_least = o->least;
    qsort(order, (size_t)n, sizeof *order, by_worth);
    for (int i = 0; i < n && i < o->k; i++)
        sbuf_printf(&o->out, "@%lld %s,%lld,%d,%lld,%lld\n", (long long)(start + s->size - 1), key,
                    (long long)s->row[order[i]].x, i + 1, (long long)start,
                    (long long)(start + s->size));
}

/* Values tie often: the squares of -20..19. */
static void windows_equal_oracle(void **state) {
    (void)state;
    static struct panes_stream s;
    uint64_t first = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(60);
    uint64_t made = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        uint64_t r = seed;
        struct sbuf in = { 0 }, config = { 0 };
        struct op_counts c;
        panes_stream_make(&s, &r);
        struct oracle o = { .k = 1 + (int)(test_random(&r) % 12), .least = test_random(&r) % 2 };
        sbuf_printf(&config, "{\"value\":\"x * x\",\"k\":%d,\"order\":\"%s\",", o.k,
                    o.least ? "least" : "greatest");
        panes_stream_config(&s, &config);
        sbuf_adds(&config, "}");
        panes_stream_text(&s, &in);
        panes_stream_groups(&s, true, best_of_group, &o);
        struct optest t = {
            .op = "top_window", .in = "k:string x:i64", .by = "k", .config = sbuf_str(&config)
        };
        char *got = optest_same(&t, sbuf_str(&in), &c);
        if (strcmp(got, sbuf_str(&o.out)) != 0)
            fail_msg("BRAID_SEED=%llu: %s\n--- got\n%s--- want\n%s", (unsigned long long)seed,
                     config.p, got, o.out.p);
        uint64_t nulls = 0;
        for (int i = 0; i < s.n; i++)
            nulls += s.row[i].null;
        assert_int_equal(c.filtered, nulls);
        assert_int_equal(c.late, panes_stream_late(&s, true));
        made += c.made;
        free(got);
        sbuf_free(&in);
        sbuf_free(&config);
        sbuf_free(&o.out);
    }
    assert_true(n == 1 || made > 100 * n);
}

/* The same rows in any order give the same bytes. */
static void order_does_not_matter(void **state) {
    (void)state;
    enum { N = 200 };
    char line[N][64];
    uint64_t seed = test_seed(5);
    for (int i = 0; i < N; i++)
        snprintf(line[i], sizeof line[i], "@%d %s,%d,%s\n", (int)(test_random(&seed) % 1000),
                 test_random(&seed) % 2 ? "a" : "b", (int)(test_random(&seed) % 5),
                 test_random(&seed) % 4 ? "text" : "null");
    struct optest t = { .op = "top_window",
                        .in = "k:string x:i64 s:string",
                        .by = "k",
                        .config = "{\"value\":\"x\",\"k\":9,\"every\":\"500ms\"}" };
    char *first = NULL;
    for (int round = 0; round < 10; round++) {
        struct sbuf in = { 0 };
        for (int i = N - 1; i > 0; i--) {
            int j = (int)(test_random(&seed) % (uint64_t)(i + 1));
            char tmp[64];
            memcpy(tmp, line[i], sizeof tmp);
            memcpy(line[i], line[j], sizeof tmp);
            memcpy(line[j], tmp, sizeof tmp);
        }
        for (int i = 0; i < N; i++)
            sbuf_adds(&in, line[i]);
        sbuf_adds(&in, "!end\n");
        char *got = optest_same(&t, sbuf_str(&in), NULL);
        if (first)
            assert_string_equal(got, first);
        else
            first = strdup(got);
        free(got);
        sbuf_free(&in);
    }
    assert_true(strlen(first) > 100);
    free(first);
}

static void windows_by_hand(void **state) {
    (void)state;
    struct optest t = { .op = "top_window",
                        .in = "s:string x:f64 b:bool",
                        .config = "{\"value\":\"x\",\"k\":2,\"every\":\"10ms\",\"bounds\":false}" };
    /* What a row holds comes back exactly. */
    optest_expect(&t, "@1 ,-0,true\n@2 null,0,null\n@3 zz,-1,false\n@13 q,5,true\n!wm 10\n",
                  "@9 null,0,null,1\n@9 ,-0,true,2\n");
    assert_true(optest_state(&t, "@1 a,1,true\n@2 b,2,true\n@3 c,3,true\n!wm 10\n") ==
                optest_state(&t, "@2 zz,7,null\n!wm 10\n")); /* only the mark stays */
    struct op_counts c;
    free(optest_same(&t, "@1 a,1,true\n!wm 10\n@2 a,1,true\n", &c));
    assert_int_equal(c.late, 1);
    t.config = "{\"value\":\"x\",\"every\":\"10ms\",\"late\":\"dead_letter\"}";
    optest_expect(&t, "@1 a,1,true\n!wm 10\n@2 a,1,true\n",
                  "@9 a,1,true,1,0,10\n!reject late: the row is late: its last window has fired\n");
}

/* A watermark may fire more rows than a batch holds. */
static void many_rows_fire(void **state) {
    (void)state;
    struct sbuf in = { 0 }, want = { 0 };
    for (int i = 0; i < 2500; i++) {
        sbuf_printf(&in, "@5 %d\n", (i * 7) % 2500);
        sbuf_printf(&want, "@9 %d,%d,0,10\n", 2499 - i, i + 1);
    }
    sbuf_adds(&in, "!end\n");
    struct optest t = { .op = "top_window",
                        .in = "x:i64",
                        .config = "{\"value\":\"x\",\"k\":10000,\"every\":\"10ms\"}" };
    struct optest_mode m = { .batch = 1024 };
    char *got = optest_run(&t, sbuf_str(&in), &m, NULL);
    assert_string_equal(got, sbuf_str(&want));
    free(got);
    sbuf_free(&in);
    sbuf_free(&want);
}

static void top_errors(void **state) {
    (void)state;
    struct optest t = { .op = "top", .in = "k:string x:i64 window_end:i64", .config = "{}" };
    expect_error(&t, "value");
    t.config = "{\"value\":\"k\"}";
    expect_error(&t, "value: rows are compared by a number, not string");
    t.config = "{\"value\":\"null\"}";
    expect_error(&t, "value: rows are compared by a number, not null");
    t.config = "{\"value\":\"y\"}";
    expect_error(&t, "value: at byte 0: there is no field 'y'");
    t.config = "{\"value\":\"x\",\"rank\":\"x\"}";
    expect_error(&t, "rank: the input has a field 'x' already");
    t.config = "{\"value\":\"x\",\"size\":\"1s\"}";
    expect_error(&t, "size: 'size' is for windows: give 'every', too");
    t.config = "{\"value\":\"x\",\"late\":\"dead_letter\"}";
    expect_error(&t, "late: 'late' is for windows");
    t.op = "top_window";
    t.config = "{\"value\":\"x\",\"every\":\"1s\"}";
    expect_error(&t, "bounds: the input has a field 'window_end' already; set 'bounds' to false");
    t.config = "{\"value\":\"x\",\"every\":\"1s\",\"size\":\"10ms\",\"bounds\":false}";
    expect_error(&t, "size: 'size' is at least 'every'");
    t.config = "{\"value\":\"x\",\"every\":\"1s\",\"size\":\"1001ms\",\"bounds\":false}";
    expect_error(&t, "size: a window would have more than 1000 slices");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_rows),
        cmocka_unit_test(running_equals_oracle),
        cmocka_unit_test(windows_by_hand),
        cmocka_unit_test(windows_equal_oracle),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(many_rows_fire),
        cmocka_unit_test(top_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
