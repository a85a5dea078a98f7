/* kalman, block_average, sliding_linear_regression, distinct_count and pi_viete, with the golden
 * series of RIoTBench. */
#include "engine/num.h"
#include "operators/sha1.h"
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

static void add_f64(struct sbuf *b, double v) {
    char text[NUM_F64_MAX_LEN];
    sbuf_add(b, text, (size_t)num_write_f64(text, v));
}

/* Cell `n` (0..) of a CSV line; returns false when it is empty. */
static bool cell_text(const char *line, int n, char *out, size_t size) {
    for (; n > 0; n--)
        line = strchr(line, ',') + 1;
    size_t len = strcspn(line, ",\r\n");
    assert_true(len < size);
    memcpy(out, line, len);
    out[len] = 0;
    return len > 0;
}
static bool cell_f64(const char *line, int n, double *v) {
    char text[64];
    if (!cell_text(line, n, text, sizeof text))
        return false;
    assert_int_equal(num_f64_whole(text, text + strlen(text), v), 0);
    return true;
}
static void close_to(double got, double want, double rel) {
    if (!(fabs(got - want) <= rel * fmax(fabs(want), 1e-12)))
        fail_msg("%.17g is not within %g of %.17g", got, rel, want);
}

/* All lines of a golden file but the header. */
enum { LINES_MAX = 2000 };
struct golden {
    char *text, *line[LINES_MAX];
    int n;
};
static void golden_read(struct golden *g, const char *file) {
    FILE *f = fopen(file, "rb");
    if (!f)
        fail_msg("cannot open %s (tests run in the repository's root)", file);
    g->text = calloc(1, 1 << 20);
    size_t len = fread(g->text, 1, (1 << 20) - 1, f);
    fclose(f);
    assert_true(len > 0);
    g->n = 0;
    for (char *p = strchr(g->text, '\n') + 1; *p; p = strchr(p, '\n') + 1)
        g->line[g->n++] = p;
}

static char *next_line(char **at) {
    char *line = *at, *nl = strchr(line, '\n');
    if (!nl)
        return NULL;
    *nl = 0;
    *at = nl + 1;
    return line;
}

#define TAXI_GOLDEN "dataflows/riotbench/golden/taxi_149298_kal_avg_slr.csv"

/* The trips' values of three fields, interleaved by nothing: field after field, keyed by field. */
static char *taxi_rows(const struct golden *g) {
    struct sbuf in = { 0 };
    for (int i = 0; i < g->n; i++) {
        char obs[64], value[64];
        cell_text(g->line[i], 0, obs, sizeof obs);
        cell_text(g->line[i], 2, value, sizeof value);
        sbuf_printf(&in, "taxi,%s,%s\n", obs, value);
    }
    char *text = strdup(sbuf_str(&in));
    sbuf_free(&in);
    return text;
}

static void kalman_golden(void **state) {
    (void)state;
    struct golden g;
    golden_read(&g, TAXI_GOLDEN);
    struct optest t = { .op = "kalman",
                        .in = "id:string obs:string value:f64",
                        .by = "id obs",
                        .config = "{\"fields\":[\"value\"]}" };
    char *in = taxi_rows(&g), *out = optest_same(&t, in, NULL), *at = out;
    for (int i = 0; i < g.n; i++) {
        double want, got;
        cell_f64(g.line[i], 3, &want);
        cell_f64(next_line(&at), 2, &got);
        close_to(got, want, 1e-6);
    }
    assert_int_equal(*at, 0);
    assert_int_equal(g.n, 183);
    free(in);
    free(out);
    free(g.text);
}

static void block_average_golden(void **state) {
    (void)state;
    struct golden g;
    golden_read(&g, TAXI_GOLDEN);
    struct optest t = { .op = "block_average",
                        .in = "id:string obs:string value:f64",
                        .by = "id obs",
                        .config = "{\"fields\":[\"value\"]}" };
    struct op_counts c;
    char *in = taxi_rows(&g), *out = optest_same(&t, in, &c), *at = out;
    for (int i = 0; i < g.n; i++) {
        double want, got;
        if (!cell_f64(g.line[i], 6, &want))
            continue;
        cell_f64(next_line(&at), 2, &got);
        close_to(got, want, 1e-6);
    }
    assert_int_equal(*at, 0);
    assert_int_equal(c.made, 18);
    free(in);
    free(out);
    free(g.text);
}

/* On the golden Kalman series, as in the original. */
static void regression_golden(void **state) {
    (void)state;
    struct golden g;
    golden_read(&g, TAXI_GOLDEN);
    struct sbuf in = { 0 };
    for (int i = 0; i < g.n; i++) {
        char obs[64], value[64];
        cell_text(g.line[i], 0, obs, sizeof obs);
        cell_text(g.line[i], 3, value, sizeof value);
        sbuf_printf(&in, "%s,%s\n", obs, value);
    }
    struct optest t = { .op = "sliding_linear_regression",
                        .in = "obs:string value:f64",
                        .by = "obs",
                        .config = "{\"field\":\"value\"}" };
    struct op_counts c;
    char *out = optest_same(&t, sbuf_str(&in), &c), *at = out;
    int rows = 0;
    for (int i = 0; i < g.n; i++) {
        double want, got;
        if (!cell_f64(g.line[i], 7, &want))
            continue;
        char *line = next_line(&at);
        cell_f64(line, 2, &got);
        close_to(got, want, 1e-5);
        cell_f64(g.line[i], 8, &want);
        cell_f64(line, 11, &got);
        close_to(got, want, 1e-5);
        rows++;
    }
    assert_int_equal(*at, 0);
    assert_int_equal(rows, 153);
    assert_int_equal(c.absorbed, 30);
    sbuf_free(&in);
    free(out);
    free(g.text);
}

static void distinct_golden(void **state) {
    (void)state;
    static const char *const files[] = { "dataflows/riotbench/golden/sys_dac.csv",
                                         "dataflows/riotbench/golden/taxi_dac.csv" };
    for (int f = 0; f < 2; f++) {
        for (int k = 10; k >= 5; k -= 5) {
            struct golden g;
            golden_read(&g, files[f]);
            struct sbuf in = { 0 }, want = { 0 };
            for (int i = 0; i < g.n; i++) {
                char id[64], n[16];
                cell_text(g.line[i], 1, id, sizeof id);
                cell_text(g.line[i], k == 10 ? 3 : 4, n, sizeof n);
                sbuf_printf(&in, "%s\n", id);
                sbuf_printf(&want, "%s,%s\n", id, n);
            }
            struct optest t = { .op = "distinct_count",
                                .in = "id:string",
                                .config = k == 10 ? "{\"fields\":[\"id\"]}"
                                                  : "{\"fields\":[\"id\"],\"k\":5}" };
            optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
            assert_int_equal(g.n, 1000);
            sbuf_free(&in);
            sbuf_free(&want);
            free(g.text);
        }
    }
}

static void kalman_rows(void **state) {
    (void)state;
    struct optest t = { .op = "kalman",
                        .in = "k:string n:i64 v:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"n\"],\"process_noise\":1,\"sensor_noise\":1,"
                                  "\"estimated_error\":0,\"initial\":2}" };
    /* p=1 g=.5 x=2+.5*2=3 p=.5; p=1.5 g=.6 x=3+.6*2=4.2 */
    optest_expect(&t, "a,4,1\na,null,2\nb,2,null\na,5,3\n", "a,3,1\na,null,2\nb,2,null\na,4.2,3\n");
    t.config = "{\"fields\":[\"v\"],\"process_noise\":1,\"sensor_noise\":1,\"estimated_error\":0}";
    optest_expect(&t, "a,1,-1.7e308\na,1,1.7e308\na,1,-8.5e307\n", /* the second step overflows */
                  "a,1,-8.5e307\na,1,null\na,1,-8.5e307\n");
    struct op_counts c;
    free(optest_same(&t, "a,1,-1.7e308\na,1,1.7e308\na,1,null\n", &c));
    assert_int_equal(c.nulled, 1);
    t.in = "k:string v:f64 w:f64";
    t.config = "{\"fields\":[\"w\",\"v\"],\"process_noise\":1,\"sensor_noise\":1,"
               "\"estimated_error\":0}"; /* fields have filters of their own */
    optest_expect(&t, "a,2,null\na,null,4\na,4,8\n", "a,1,null\na,null,2\na,2.8,5.6\n");
    t.by = NULL;
    optest_expect(&t, "a,2,0\nb,4,0\n", "a,1,0\nb,2.8,0\n");
    t.by = "v";
    expect_error(&t, "fields/v: 'v' is a grouping key");
    t.by = "k";
    t.config = "{\"fields\":[\"k\"]}";
    expect_error(&t, "must be i64 or f64");
    t.config = "{\"fields\":[]}";
    expect_error(&t, "no fields");
}

static void block_rows(void **state) {
    (void)state;
    struct optest t = { .op = "block_average",
                        .in = "k:string v:f64 w:i64 note:string",
                        .by = "k",
                        .config = "{\"fields\":[\"v\",\"w\"],\"window\":3,\"keep\":[\"note\"]}" };
    optest_expect(&t,
                  "a,1,1,p\nb,1e308,null,q\na,null,2,r\na,5,4,s\nb,1e308,null,t\nb,null,null,u\n"
                  "a,7,7,v\na,7,7,w\na,7,8,x\na,0,0,y\n",
                  "a,s,3,2.3333333333333335\nb,u,1e308,null\na,x,7,7.333333333333333\n");
    t.config = "{\"fields\":[\"v\"],\"window\":1}";
    optest_expect(&t, "a,1,1,p\na,2,1,p\n", "a,1\na,2\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, v: f64}");
    free(schema);
    t.config = "{\"fields\":[\"v\"],\"keep\":[\"k\"]}";
    expect_error(&t, "two fields 'k'");
    t.config = "{\"fields\":[\"v\",\"w\"],\"window\":100000}";
    expect_error(&t, "KiB of state");
    t.config = "{\"fields\":[\"v\",\"v\"]}";
    expect_error(&t, "fields/v: the output would have two fields 'v'");
    t.config = "{\"fields\":[\"v\"],\"window\":2}"; /* several grouping fields, null among them */
    t.by = "k w";
    optest_expect(&t, "a,1,1,p\na,2,null,p\na,3,2,p\na,4,null,p\na,5,1,p\n", "a,null,3\na,1,3\n");
    assert_true(optest_state(&t, "a,1,1,p\na,2,1,p\n") == 0); /* a full window leaves nothing */
}

/* Means of random keys and windows against sums taken in long double (exact for these values). */
static void block_equals_oracle(void **state) {
    (void)state;
    enum { KEYS = 40, N = 7 };
    static long double sum[KEYS];
    static int count[KEYS];
    memset(sum, 0, sizeof sum);
    memset(count, 0, sizeof count);
    uint64_t seed = test_seed(21);
    struct sbuf in = { 0 }, want = { 0 };
    for (int i = 0; i < 3000; i++) {
        int k = (int)(test_random(&seed) % KEYS);
        double v = (double)(int)(test_random(&seed) % 2000001 - 1000000) / 16;
        sbuf_printf(&in, "%d,", k);
        add_f64(&in, v);
        sbuf_adds(&in, "\n");
        sum[k] += v;
        if (++count[k] < N)
            continue;
        sbuf_printf(&want, "%d,", k);
        add_f64(&want, (double)sum[k] / N);
        sbuf_adds(&want, "\n");
        sum[k] = count[k] = 0;
    }
    struct optest t = { .op = "block_average",
                        .in = "k:i64 v:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"v\"],\"window\":7}" };
    optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
    sbuf_free(&in);
    sbuf_free(&want);
}

static void regression_rows(void **state) {
    (void)state;
    struct optest t = { .op = "sliding_linear_regression",
                        .in = "k:string v:i64",
                        .by = "k",
                        .config = "{\"field\":\"v\",\"train\":3,\"predict\":2,\"prefix\":\"p\"}" };
    optest_expect(&t, "a,1\na,3\nb,9\na,5\na,7\na,null\na,0\n",
                  "a,7,9,11\na,null,9,11\na,0,-1,-3.5\n");
    /* what lies before the window does not matter any more */
    assert_true(optest_state(&t, "a,1\na,3\na,5\na,7\na,9\n") ==
                optest_state(&t, "a,0\na,5\na,null\na,7\na,9\n"));
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, v: i64, p1: f64, p2: f64}");
    free(schema);
    t.in = "k:string v:f64";
    struct op_counts c;
    char *got = optest_same(&t, "a,0\na,-1e308\na,0\na,1.6e308\n", &c);
    assert_string_equal(got, "a,1.6e308,null,null\n"); /* 2.2e308 and more */
    assert_int_equal(c.nulled, 2);
    assert_int_equal(c.absorbed, 3);
    free(got);
    t.config = "{\"field\":\"v\",\"prefix\":\"\",\"train\":1}";
    expect_error(&t, "between 2 and");
    t.in = "k:string v1:i64";
    t.config = "{\"field\":\"v1\",\"prefix\":\"v\"}";
    expect_error(&t, "has a field 'v1' already");
}

/* A straight line is continued, whatever the window; a long series agrees with the normal
 * equations solved in long double. */
static void regression_equals_oracle(void **state) {
    (void)state;
    enum { TRAIN = 25 };
    uint64_t seed = test_seed(8);
    double y[400];
    struct sbuf in = { 0 };
    for (int i = 0; i < 400; i++) {
        y[i] = 100 + 0.5 * i + (double)(test_random(&seed) % 1000) / 100;
        sbuf_adds(&in, "k,");
        add_f64(&in, y[i]);
        sbuf_adds(&in, "\n");
    }
    struct optest t = { .op = "sliding_linear_regression",
                        .in = "k:string v:f64",
                        .by = "k",
                        .config = "{\"field\":\"v\",\"train\":25,\"predict\":3}" };
    char *out = optest_same(&t, sbuf_str(&in), NULL), *at = out;
    for (int i = TRAIN; i < 400; i++) {
        long double sx = 0, sy = 0, sxx = 0, sxy = 0, n = TRAIN;
        for (int k = i - TRAIN + 1; k <= i; k++) {
            sx += k;
            sy += y[k];
            sxx += (long double)k * k;
            sxy += k * (long double)y[k];
        }
        long double slope = (n * sxy - sx * sy) / (n * sxx - sx * sx), a = (sy - slope * sx) / n;
        char *line = next_line(&at);
        for (int k = 1; k <= 3; k++) {
            double got;
            cell_f64(line, 1 + k, &got);
            close_to(got, (double)(a + slope * (i + k)), 1e-11);
        }
    }
    assert_int_equal(*at, 0);
    sbuf_free(&in);
    free(out);
}

static void hex(const char *text, char *out) {
    uint8_t d[20];
    sha1(text, strlen(text), d);
    for (int i = 0; i < 20; i++)
        snprintf(out + 2 * i, 3, "%02x", d[i]);
}

static void sha1_vectors(void **state) { /* FIPS 180 examples, and lengths around the padding */
    (void)state;
    char h[41], text[121];
    hex("", h);
    assert_string_equal(h, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    hex("abc", h);
    assert_string_equal(h, "a9993e364706816aba3e25717850c26c9cd0d89d");
    hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", h);
    assert_string_equal(h, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    memset(text, 'a', 120);
    text[55] = 0;
    hex(text, h);
    assert_string_equal(h, "c1c8bbdc22796e28c0e15163d20899b65621d65a");
    text[55] = 'a';
    text[64] = 0;
    hex(text, h);
    assert_string_equal(h, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
}

static void distinct_rows(void **state) {
    (void)state;
    struct optest t = { .op = "distinct_count",
                        .in = "k:string n:i64 v:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"n\",\"v\"],\"k\":4,\"suffix\":\"#\"}" };
    /* Values by an independent program. Numbers count by their text, nulls not at all; keys and
     * fields are apart. */
    optest_expect(&t,
                  "a,0,0.5\na,1,-7\na,1,null\na,2,1e300\na,3,0.5\na,4,0.5\na,null,0.5\na,5,0.5\n"
                  "b,5,1e300\n",
                  "a,0,0.5,12,12\na,1,-7,12,12\na,1,null,12,12\na,2,1e300,12,13\na,3,0.5,12,13\n"
                  "a,4,0.5,12,13\na,null,0.5,12,13\na,5,0.5,13,13\nb,5,1e300,13,13\n");
    t.in = "k:string s:string b:bool"; /* an empty text counts, a null does not */
    t.config = "{\"fields\":[\"s\",\"b\"],\"k\":5}";
    assert_true(optest_state(&t, "a,x,true\na,null,null\n") == optest_state(&t, "a,x,true\n"));
    assert_true(optest_state(&t, "a,x,true\na,,true\n") != optest_state(&t, "a,x,true\n"));
    assert_true(optest_state(&t, "a,x,null\na,x,true\n") != optest_state(&t, "a,x,null\n"));
    t.in = "k:string n:i64 v:f64";
    t.config = "{\"fields\":[\"n\"],\"k\":17}";
    expect_error(&t, "between 4 and 16");
    t.config = "{\"fields\":[\"n\",\"n\"]}";
    expect_error(&t, "two fields 'n_distinct'");
}

/* The last estimate depends on the set of values alone, also when neighbours are each other's
 * beginnings. */
static void distinct_is_of_a_set(void **state) {
    (void)state;
    char text[61], *got[2], last[2][80];
    for (int way = 0; way < 2; way++) {
        struct sbuf in = { 0 };
        for (int i = 60; i > 0; i--) {
            int len = way ? 61 - i : i;
            memset(text, 'a', (size_t)len);
            text[len] = 0;
            sbuf_printf(&in, "%s\n%s", text, way ? "zz\n" : "");
        }
        sbuf_adds(&in, "zz\n");
        struct optest t = { .op = "distinct_count",
                            .in = "v:string",
                            .config = "{\"fields\":[\"v\"],\"k\":4}" };
        got[way] = optest_same(&t, sbuf_str(&in), NULL);
        const char *at = strrchr(got[way], 'z');
        snprintf(last[way], sizeof last[way], "%s", at);
        sbuf_free(&in);
    }
    assert_string_equal(last[0], last[1]);
    free(got[0]);
    free(got[1]);
}

static void pi_of_many_ports(void **state) {
    (void)state;
    struct optest t = { .op = "pi_viete", .in = "a:i64 b:string", .config = "{\"iterations\":40}" };
    optest_expect(&t, "1,x\n2,null\n", "1,x,3.141592653589794\n2,null,3.141592653589794\n");
    t.config = "{\"iterations\":1}";
    optest_expect(&t, "1,x\n", "1,x,2.82842712474619\n");
    t.config = "{\"iterations\":3}";
    optest_expect(&t, "1,x\n", "1,x,3.121445152258052\n");
    t.in = "left=a:i64 b:string c:f64|right=c:f64 a:i64 b:i64";
    t.out = "one two";
    t.config = "{\"iterations\":0,\"label\":\"align\",\"params\":{\"x\":[1,2]}}";
    optest_expect(&t, "left>1,x,0.5\nright>0.25,7,3\n",
                  "one>1,0.5,2\none>7,0.25,2\ntwo>1,0.5,2\ntwo>7,0.25,2\n");
    t.in = "a=a:i64 pi:f64|b=pi:f64 a:i64"; /* a chain does not grow */
    t.out = NULL;
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{a: i64, pi: f64}");
    free(schema);
    t.out = ""; /* nobody reads */
    struct op_counts c;
    free(optest_same(&t, "a>1,2\nb>1,2\n", &c));
    assert_int_equal(c.absorbed, 2);
    t.out = NULL;
    t.in = "x=pi:string|y=z:i64";
    schema = optest_schema(&t);
    assert_string_equal(schema, "{pi: f64}");
    free(schema);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kalman_golden),
        cmocka_unit_test(block_average_golden),
        cmocka_unit_test(regression_golden),
        cmocka_unit_test(distinct_golden),
        cmocka_unit_test(kalman_rows),
        cmocka_unit_test(block_rows),
        cmocka_unit_test(block_equals_oracle),
        cmocka_unit_test(regression_rows),
        cmocka_unit_test(regression_equals_oracle),
        cmocka_unit_test(sha1_vectors),
        cmocka_unit_test(distinct_rows),
        cmocka_unit_test(pi_of_many_ports),
        cmocka_unit_test(distinct_is_of_a_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
