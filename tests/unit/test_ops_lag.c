/* lag: against a list of all rows of each key, for fields of fixed size and for strings. */
#include "engine/num.h"
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

static void lag_rows(void **state) {
    (void)state;
    struct optest t = { .op = "lag",
                        .in = "k:string x:f64 b:bool",
                        .by = "k",
                        .config = "{\"fields\":[\"x\",\"b\"]}" };
    optest_expect(&t, "a,1.5,true\nb,-0,false\na,null,false\na,3,null\nb,4,true\na,5,true\n",
                  "a,1.5,true,null,null\nb,-0,false,null,null\na,null,false,1.5,true\n"
                  "a,3,null,null,false\nb,4,true,-0,false\na,5,true,3,null\n");
    /* Equal ends are equal states. */
    assert_true(optest_state(&t, "a,1,true\na,7,null\n") ==
                optest_state(&t, "a,5,false\na,null,true\na,7,null\n"));
    t.in = "k:string s:string x:i64";
    t.config = "{\"fields\":[\"s\",\"x\"],\"rows\":2,\"suffix\":\"_2\"}";
    optest_expect(&t, "a,p,1\na,null,2\na,,3\nb,zz,4\na,q,null\na,r,6\n",
                  "a,p,1,null,null\na,null,2,null,null\na,,3,p,1\nb,zz,4,null,null\n"
                  "a,q,null,null,2\na,r,6,,3\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, s: string, x: i64, s_2: string, x_2: i64}");
    free(schema);
}

enum { ROWS = 3000, KEYS = 5 };
static void lag_equals_oracle(void **state) {
    (void)state;
    static const char *const words[] = { "", "a", "bc", "null", "a longer text that is not short" };
    static char *cells[KEYS][ROWS];
    uint64_t seed = test_seed(9);
    for (int mode = 0; mode < 8; mode++) {
        int n = mode < 2 ? 1 : mode < 4 ? 3 : mode < 6 ? 17 : 400, count[KEYS] = { 0 };
        bool texts = mode & 1;
        struct sbuf in = { 0 }, want = { 0 };
        for (int i = 0; i < ROWS; i++) {
            int k = (int)(test_random(&seed) % KEYS);
            char row[128], x[24] = "null";
            if (test_random(&seed) % 7)
                snprintf(x, sizeof x, "%d", (int)(test_random(&seed) % 2000) - 1000);
            if (texts)
                snprintf(row, sizeof row, "%s,%s", words[test_random(&seed) % 5], x);
            else
                snprintf(row, sizeof row, "%s,%s", test_random(&seed) % 2 ? "true" : "false", x);
            cells[k][count[k]++] = strdup(row);
            sbuf_printf(&in, "%d,%s\n", k, row);
            sbuf_printf(&want, "%d,%s,%s\n", k, row,
                        count[k] > n ? cells[k][count[k] - 1 - n] : "null,null");
        }
        char config[128];
        snprintf(config, sizeof config, "{\"fields\":[\"v\",\"x\"],\"rows\":%d}", n);
        struct optest t = { .op = "lag",
                            .in = texts ? "k:i64 v:string x:i64" : "k:i64 v:bool x:i64",
                            .by = "k",
                            .share_offsets = mode == 5,
                            .config = config };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        for (int k = 0; k < KEYS; k++)
            while (count[k])
                free(cells[k][--count[k]]);
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

/* What the strings of a key may take is bounded. */
static void long_texts_are_refused(void **state) {
    (void)state;
    struct sbuf in = { 0 };
    struct op_counts c;
    char *big = malloc(300001);
    memset(big, 'x', 300000);
    big[300000] = 0;
    for (int i = 0; i < 5; i++)
        sbuf_printf(&in, "%s\n", i < 4 ? big : "short");
    struct optest t = { .op = "lag",
                        .in = "s:string",
                        .config = "{\"fields\":[\"s\"],\"rows\":10}" };
    struct optest_mode m = { .batch = 2, .seed = 1 };
    char *got = optest_run(&t, sbuf_str(&in), &m, &c);
    assert_non_null(strstr(got, "!reject too_long: the last 10 rows of the key are longer than "
                                "1024 KiB"));
    assert_non_null(strstr(got, "short,null\n"));
    assert_true(c.rejected == 1 && c.passed == 4);
    free(got);
    free(big);
    sbuf_free(&in);
}

static void lag_errors(void **state) {
    (void)state;
    struct optest t = { .op = "lag", .in = "x:i64 x_lag:f64 v:vec<4>" };
    t.config = "{\"fields\":[\"x\"]}";
    expect_error(&t, "suffix: the output would have two fields 'x_lag'");
    t.config = "{\"fields\":[\"x\",\"x\"],\"suffix\":\"_\"}";
    expect_error(&t, "fields/x: the output would have two fields 'x_'");
    t.config = "{\"fields\":[\"v\"],\"suffix\":\"_\"}";
    expect_error(&t, "field 'v' is vec");
    t.config = "{\"fields\":[],\"suffix\":\"_\"}";
    expect_error(&t, "no fields given");
    t.config = "{\"fields\":[\"y\"],\"suffix\":\"_\"}";
    expect_error(&t, "fields/y: input 'in' has no field 'y'");
    t.config = "{\"fields\":[\"x\"],\"rows\":0}";
    expect_error(&t, "between 1 and 10000");
    struct sbuf many = { 0 }, schema = { 0 };
    sbuf_adds(&many, "{\"rows\":10000,\"fields\":[");
    for (int i = 0; i < 20; i++) {
        sbuf_printf(&many, "%s\"f%d\"", i ? "," : "", i);
        sbuf_printf(&schema, "f%d:i64 ", i);
    }
    sbuf_adds(&many, "]}");
    t.in = sbuf_str(&schema);
    t.config = sbuf_str(&many);
    expect_error(&t, "20 fields of 10000 rows are more than 1024 KiB of state for each key");
    sbuf_free(&many);
    sbuf_free(&schema);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lag_rows),
        cmocka_unit_test(lag_equals_oracle),
        cmocka_unit_test(long_texts_are_refused),
        cmocka_unit_test(lag_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
