/* union, split and route: rows against the ports they must leave by, in random streams; what does
 * not depend on who reads; errors at their place. */
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

/* ---- split ---- */

static void split_rows(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = { .op = "split",
                        .in = "x:i64 k:string",
                        .out = "hot cold mild",
                        .config = "{\"ports\":{\"hot\":\"x > 30\",\"cold\":\"x < 10 or x > 90\"},"
                                  "\"default\":\"mild\"}" };
    const char *rows = "5,a\n20,b\n95,c\nnull,d\n31,e\n";
    char *got = optest_same(&t, rows, &c);
    assert_string_equal(got, "hot>95,c\nhot>31,e\ncold>5,a\nmild>20,b\nmild>null,d\n");
    free(got);
    assert_true(c.passed == 5 && c.made == 0 && c.filtered == 0);
    t.config = "{\"ports\":{\"hot\":\"x > 30\",\"cold\":\"x < 10 or x > 90\"},\"to\":\"all\"}";
    t.out = "hot cold";
    got = optest_same(&t, rows, &c);
    assert_string_equal(got, "hot>95,c\nhot>31,e\ncold>5,a\ncold>95,c\n");
    free(got);
    assert_true(c.passed == 3 && c.made == 1 && c.filtered == 2);
    /* A condition is evaluated for the rows that are left: the second division by zero is not. */
    t.config = "{\"ports\":{\"hot\":\"x = 0\",\"cold\":\"10 / x > 1\"}}";
    got = optest_same(&t, "0,a\n5,b\n0,c\n20,d\n", &c);
    assert_string_equal(got, "hot>0,a\nhot>0,c\ncold>5,b\n");
    free(got);
    assert_int_equal(c.nulled, 0);
    t.config = "{\"ports\":{\"hot\":\"x = 0\",\"cold\":\"10 / x > 1\"},\"to\":\"all\"}";
    free(optest_same(&t, "0,a\n5,b\n0,c\n20,d\n", &c));
    assert_int_equal(c.nulled, 2);
}

/* Nobody reads some of the ports: the others get the same rows, and the counts are the same. */
static void counts_do_not_depend_on_readers(void **state) {
    (void)state;
    static const struct {
        const char *op, *config;
    } ops[] = { { "split", "{\"ports\":{\"a\":\"x > 3\",\"b\":\"x > 1\"},\"default\":\"c\"}" },
                { "split", "{\"ports\":{\"a\":\"x > 3\",\"b\":\"x > 1\"},\"to\":\"all\"}" },
                { "route", "{\"field\":\"p\",\"ports\":[\"a\",\"b\"],\"default\":\"c\"}" } };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct optest t = {
            .op = ops[i].op, .config = ops[i].config, .in = "x:i64 p:string", .out = "a b"
        };
        const char *rows = "1,a\n2,b\n3,c\n4,a\n5,zz\n0,b\n";
        struct op_counts all, some, none;
        char *both = optest_same(&t, rows, &all);
        t.out = "b";
        char *one = optest_same(&t, rows, &some);
        for (const char *p = one; *p; p += strcspn(p, "\n") + 1) {
            char line[64];
            snprintf(line, sizeof line, "b>%.*s\n", (int)strcspn(p, "\n"), p);
            assert_non_null(strstr(both, line));
        }
        t.out = " "; /* none */
        char *nothing = optest_same(&t, rows, &none);
        assert_string_equal(nothing, "");
        assert_memory_equal(&all, &some, sizeof all);
        assert_memory_equal(&all, &none, sizeof all);
        free(both);
        free(one);
        free(nothing);
    }
}

enum { ROWS = 3000 };
struct row {
    int64_t x, y; /* INT64_MIN: null */
};
static void put_i64(struct sbuf *b, int64_t v) {
    if (v == INT64_MIN)
        sbuf_adds(b, "null");
    else
        sbuf_printf(b, "%lld", (long long)v);
}
static bool holds(const struct row *r, int cond) {
    bool x = r->x != INT64_MIN, y = r->y != INT64_MIN;
    return cond == 0 ? x && r->x > 50 : cond == 1 ? y && r->y < 20 : x && y && r->x < r->y;
}

static void split_equals_oracle(void **state) {
    (void)state;
    static struct row row[ROWS];
    static const char *const names[] = { "p", "q", "r", "rest" };
    uint64_t seed = test_seed(3);
    for (int mode = 0; mode < 4; mode++) {
        bool all = mode & 1, rest = mode & 2;
        struct sbuf in = { 0 }, out[4] = { { 0 } }, want = { 0 };
        for (int i = 0; i < ROWS; i++) {
            row[i].x = test_random(&seed) % 9 ? (int64_t)(test_random(&seed) % 100) : INT64_MIN;
            row[i].y = test_random(&seed) % 9 ? (int64_t)(test_random(&seed) % 100) : INT64_MIN;
            int hits = 0;
            for (int k = 0; k < 4; k++) {
                bool to = k < 3 ? holds(&row[i], k) && (all || !hits) : rest && !hits;
                hits += to;
                if (!to)
                    continue;
                sbuf_printf(&out[k], "%s>", names[k]);
                put_i64(&out[k], row[i].x);
                sbuf_adds(&out[k], ",");
                put_i64(&out[k], row[i].y);
                sbuf_adds(&out[k], "\n");
            }
            put_i64(&in, row[i].x);
            sbuf_adds(&in, ",");
            put_i64(&in, row[i].y);
            sbuf_adds(&in, "\n");
        }
        for (int k = 0; k < 4; k++)
            sbuf_add(&want, sbuf_str(&out[k]), out[k].len);
        char config[256];
        snprintf(config, sizeof config,
                 "{\"ports\":{\"p\":\"x > 50\",\"q\":\"y < 20\",\"r\":\"x < y\"}%s%s}",
                 rest ? ",\"default\":\"rest\"" : "", all ? ",\"to\":\"all\"" : "");
        struct optest t = { .op = "split",
                            .in = "x:i64 y:i64",
                            .out = rest ? "p q r rest" : "p q r",
                            .share_offsets = mode == 3,
                            .config = config };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        for (int k = 0; k < 4; k++)
            sbuf_free(&out[k]);
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

static void split_errors(void **state) {
    (void)state;
    struct optest t = { .op = "split", .in = "x:i64 s:string", .out = "a" };
    t.config = "{\"ports\":{\"a\":\"x + 1\"}}";
    expect_error(&t, "ports/a: the condition must be bool, not i64");
    t.config = "{\"ports\":{\"a\":\"z > 1\"}}";
    expect_error(&t, "ports/a: at byte 0: there is no field 'z'");
    t.config = "{\"ports\":{}}";
    expect_error(&t, "no ports given");
    t.config = "{\"ports\":{\"a\":\"x > 1\",\"b.c\":\"x > 2\"}}";
    expect_error(&t, "ports/b.c: the port name 'b.c' must be 1 to 100 letters");
    t.config = "{\"ports\":{\"a\":\"x > 1\"},\"default\":\"a\"}";
    expect_error(&t, "default: the port 'a' is named twice");
    t.config = "{\"ports\":{\"hot\":\"x > 1\",\"cold\":\"x < 0\"}}";
    t.out = "hod";
    expect_error(&t, "there is no out-port 'hod'; did you mean 'hot'?");
    t.out = "out";
    expect_error(&t, "read \"TASK.PORT\" with one of 'hot', 'cold'");
    t.out = "something";
    expect_error(&t, "there is no out-port 'something'; there are 'hot', 'cold'");
    t.out = "hot";
    t.in = "in=x:i64|other=x:i64";
    expect_error(&t, "there is one in-port, 'in', not 'other'");
    t.in = "left=x:i64";
    expect_error(&t, "there is one in-port, 'in', not 'left'");
    struct sbuf many = { 0 };
    sbuf_adds(&many, "{\"ports\":{");
    for (int i = 0; i <= OP_PORTS_MAX; i++)
        sbuf_printf(&many, "%s\"p%d\":\"x > %d\"", i ? "," : "", i, i);
    sbuf_adds(&many, "}}");
    t.in = "x:i64";
    t.out = "p0";
    t.config = sbuf_str(&many);
    expect_error(&t, "65 out-ports; at most 64 are allowed");
    sbuf_free(&many);
}

/* ---- route ---- */

static void route_rows(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = { .op = "route",
                        .in = "p:string x:i64",
                        .out = "north south",
                        .config = "{\"field\":\"p\",\"ports\":[\"north\",\"south\"]}" };
    char *got = optest_same(&t, "south,1\nnorth,2\neast,3\nnull,4\nnorth,5\n", &c);
    assert_string_equal(got, "north>north,2\nnorth>north,5\nsouth>south,1\n"
                             "!reject unknown_port: there is no port 'east'\n"
                             "!reject unknown_port: the field 'p' is null: it names no port\n");
    free(got);
    assert_true(c.passed == 3 && c.rejected == 2);
    t.config = "{\"field\":\"p\",\"ports\":[\"north\",\"south\"],\"unknown\":\"drop\"}";
    got = optest_same(&t, "south,1\nnorth,2\neast,3\nnull,4\nnorth,5\n", &c);
    assert_string_equal(got, "north>north,2\nnorth>north,5\nsouth>south,1\n");
    free(got);
    assert_true(c.passed == 3 && c.filtered == 2);
    t.config = "{\"field\":\"p\",\"ports\":[\"north\"],\"default\":\"south\"}";
    optest_expect(&t, "south,1\nnorth,2\neast,3\nnull,4\nnorth,5\n",
                  "north>north,2\nnorth>north,5\nsouth>south,1\nsouth>east,3\nsouth>null,4\n");
    t.in = "p:bool x:i64";
    t.out = "true rest";
    t.config = "{\"field\":\"p\",\"ports\":[\"true\"],\"default\":\"rest\"}";
    optest_expect(&t, "true,1\nfalse,2\ntrue,3\nnull,4\n",
                  "true>true,1\ntrue>true,3\nrest>false,2\nrest>null,4\n");
}

static void route_equals_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed(4);
    for (int mode = 0; mode < 4; mode++) {
        bool text = mode & 1, rest = mode & 2;
        struct sbuf in = { 0 }, out[5] = { { 0 } }, want = { 0 };
        static const char *const names[] = { "7", "0", "-12", "rest", "dead" };
        static const char *const values[] = { "7", "0", "-12", "12", "null", "70" };
        for (int i = 0; i < ROWS; i++) {
            const char *v = values[test_random(&seed) % 6];
            int to = rest ? 3 : 4;
            for (int k = 0; k < 3; k++)
                to = strcmp(v, names[k]) == 0 ? k : to;
            sbuf_printf(&in, "%s,%d\n", v, i);
            if (to < 4)
                sbuf_printf(&out[to], "%s>%s,%d\n", names[to], v, i);
            else if (strcmp(v, "null") == 0)
                sbuf_adds(&out[4],
                          "!reject unknown_port: the field 'p' is null: it names no port\n");
            else
                sbuf_printf(&out[4], "!reject unknown_port: there is no port '%s'\n", v);
        }
        for (int k = 0; k < 5; k++)
            sbuf_add(&want, sbuf_str(&out[k]), out[k].len);
        struct optest t = { .op = "route",
                            .in = text ? "p:string x:i64" : "p:i64 x:i64",
                            .out = rest ? "7 0 -12 rest" : "7 0 -12",
                            .config = rest ? "{\"field\":\"p\",\"ports\":[\"7\",\"0\",\"-12\"],"
                                             "\"default\":\"rest\"}"
                                           : "{\"field\":\"p\",\"ports\":[\"7\",\"0\",\"-12\"]}" };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        for (int k = 0; k < 5; k++)
            sbuf_free(&out[k]);
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

static void route_errors(void **state) {
    (void)state;
    struct optest t = { .op = "route", .in = "p:string x:f64", .out = "a" };
    t.config = "{\"field\":\"q\",\"ports\":[\"a\"]}";
    expect_error(&t, "field: input 'in' has no field 'q'");
    t.config = "{\"field\":\"x\",\"ports\":[\"a\"]}";
    expect_error(&t, "field 'x' is f64; it must be bool, i64 or string here");
    t.config = "{\"field\":\"p\",\"ports\":[]}";
    expect_error(&t, "no ports given");
    t.config = "{\"field\":\"p\",\"ports\":[\"a\",\"a\"]}";
    expect_error(&t, "ports/a: the port 'a' is named twice");
    t.config = "{\"field\":\"p\",\"ports\":[\"a\"],\"default\":\"a b\"}";
    expect_error(&t, "default: the port name 'a b' must be");
    t.config = "{\"field\":\"p\",\"ports\":[\"a\"],\"default\":\"b\",\"unknown\":\"drop\"}";
    expect_error(&t, "unknown: with a 'default' port no row is left over");
}

/* ---- union ---- */

static void union_rows(void **state) {
    (void)state;
    struct op_counts c;
    struct optest t = { .op = "union",
                        .in = "left=x:i64 k:string|right=k:string x:i64",
                        .config = "{}" };
    const char *rows = "left>1,a\nright>b,2\nright>c,null\nleft>null,d\n";
    char *got = optest_same(&t, rows, &c);
    assert_string_equal(got, "1,a\n2,b\nnull,c\nnull,d\n");
    free(got);
    assert_int_equal(c.passed, 4);
    t.config = "{\"port_field\":\"by\"}";
    optest_expect(&t, rows, "1,a,left\n2,b,right\nnull,c,right\nnull,d,left\n");
    t.in = "left=x:i64 k:string s:string|right=k:string y:f64 x:i64 b:bool";
    rows = "left>1,a,p\nright>b,0.5,2,true\nleft>3,c,null\n";
    t.config = "{\"fields\":\"common\"}";
    optest_expect(&t, rows, "1,a\n2,b\n3,c\n");
    t.config = "{\"fields\":\"all\",\"port_field\":\"by\"}";
    optest_expect(&t, rows,
                  "1,a,p,null,null,left\n2,b,null,0.5,true,right\n3,c,null,null,null,left\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{x: i64, k: string, s: string, y: f64, b: bool, by: string}");
    free(schema);
    t.out = " ";
    got = optest_same(&t, rows, &c); /* nobody reads */
    assert_string_equal(got, "");
    assert_true(c.passed == 3 && c.out == 3);
    free(got);
}

/* Random inputs of three schemas against a union by hand. */
static void union_equals_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed(6);
    struct sbuf in = { 0 }, want = { 0 };
    for (int i = 0; i < ROWS; i++) {
        unsigned x = (unsigned)(test_random(&seed) % 100),
                 port = (unsigned)(test_random(&seed) % 3);
        int64_t at = 1000 + i;
        if (port == 0) {
            sbuf_printf(&in, "a>@%lld %u,s%u\n", (long long)at, x, x);
            sbuf_printf(&want, "@%lld %u,s%u,null,a\n", (long long)at, x, x);
        } else if (port == 1) {
            sbuf_printf(&in, "b>@%lld true,%u\n", (long long)at, x);
            sbuf_printf(&want, "@%lld %u,null,true,b\n", (long long)at, x);
        } else {
            sbuf_printf(&in, "c>@%lld s%u,null,false\n", (long long)at, x);
            sbuf_printf(&want, "@%lld null,s%u,false,c\n", (long long)at, x);
        }
    }
    struct optest t = { .op = "union",
                        .in = "a=x:i64 s:string|b=f:bool x:i64|c=s:string x:i64 f:bool",
                        .share_offsets = true,
                        .config = "{\"fields\":\"all\",\"port_field\":\"port\"}" };
    optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
    sbuf_free(&in);
    sbuf_free(&want);
}

static void union_errors(void **state) {
    (void)state;
    struct optest t = { .op = "union", .in = "a=x:i64 k:string|b=x:i64", .config = "{}" };
    expect_error(&t, "fields: in-port 'a' has a field 'k' that others lack");
    t.in = "a=x:i64|b=y:i64";
    t.config = "{\"fields\":\"common\"}";
    expect_error(&t, "the inputs have no field in common");
    t.in = "a=x:i64|b=x:f64";
    char *text = optest_errors(&t);
    assert_string_equal(text, "fields: field 'x' is i64 in in-port 'a' and f64 in in-port 'b'\n");
    free(text);
    t.in = "a=x:i64|b=x:i64";
    t.config = "{\"port_field\":\"x\"}";
    expect_error(&t, "port_field: the output has a field 'x' already");
    t.config = "{}";
    t.out = "oot";
    expect_error(&t, "there is one out-port, 'out', not 'oot'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_rows),          cmocka_unit_test(split_equals_oracle),
        cmocka_unit_test(split_errors),        cmocka_unit_test(counts_do_not_depend_on_readers),
        cmocka_unit_test(route_rows),          cmocka_unit_test(route_equals_oracle),
        cmocka_unit_test(route_errors),        cmocka_unit_test(union_rows),
        cmocka_unit_test(union_equals_oracle), cmocka_unit_test(union_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
