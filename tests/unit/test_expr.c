/* Expressions: errors with their place, canonical texts, counted nulls, limits, the operators
 * filter and project, and every example of docs/expressions.md. */
#include "engine/expr.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct field fields[] = {
    { "b", TYPE_BOOL, 0 },    { "c", TYPE_BOOL, 0 }, { "i", TYPE_I64, 0 },
    { "j", TYPE_I64, 0 },     { "x", TYPE_F64, 0 },  { "y", TYPE_F64, 0 },
    { "s", TYPE_STR, 0 },     { "t", TYPE_STR, 0 },  { "select it", TYPE_I64, 0 },
    { "raw", TYPE_BYTES, 0 }, { "v", TYPE_VEC, 4 },
};
static const struct schema schema = { sizeof fields / sizeof *fields, fields };

static const struct expr *compile(struct arena *a, const char *text) {
    struct err e = ERR_INIT;
    const struct expr *x = expr_compile(a, text, strlen(text), &schema, EXPR_HAS_TIME, &e);
    if (!x)
        fail_msg("%s: %s", text, e.text);
    return x;
}
/* ---- errors: place, cause, advice ---- */

static void errors_are_precise(void **state) {
    (void)state;
    static const struct {
        const char *text;
        long at;
        const char *says;
    } bad[] = {
        { "", 0, "a value is missing" },
        { "i +", 3, "a value is missing" },
        { "i i", 2, "an operator or the end is expected, not 'i'" },
        { "(i", 2, "')' is missing" },
        { "i = 'a'", 2, "'=' cannot compare i64 with string" },
        { "x + s", 2, "'+' needs numbers, not string" },
        { "b and i", 2, "'and' needs bool, not i64" },
        { "not s", 0, "'not' needs bool, not string" },
        { "-s", 0, "'-' needs a number, not string" },
        { "selct", 0, "there is no field 'selct'" },
        { "1 + raww", 4, "did you mean 'raw'" },
        { "Floor(1.5) + flor(x)", 13, "did you mean 'floor'" },
        { "abs()", 0, "abs(x) takes 1 argument, not 0" },
        { "substr(s)", 0, "takes 2 to 3 arguments, not 1" },
        { "sqrt(s)", 5, "argument 1 of sqrt must be a number, not string" },
        { "lower(i)", 6, "argument 1 of lower must be string, not i64" },
        { "year(x)", 5, "argument 1 of year must be i64, not f64" },
        { "i < j < i", 6, "comparisons do not chain" },
        { "i == j", 2, "one '='" },
        { "'abc", 0, "is not closed" },
        { "\"abc", 0, "is not closed" },
        { "9223372036854775808", 0, "does not fit in 64 bits" },
        { "1e999", 0, "does not fit in f64" },
        { "12abc", 0, "a number is followed by 'a'" },
        { "i & j", 2, "unexpected '&'" },
        { "case when b then 1 else 'x' end", 24, "different types: i64 and string" },
        { "case when i then 1 end", 10, "a condition must be bool" },
        { "coalesce(i, s)", 12, "different types" },
        { "i in ()", 2, "at least one" },
        { "i in (1, 'a')", 2, "cannot compare i64 with string" },
        { "cast(i as flot)", 10, "there is no type 'flot'" },
        { "i::strin", 3, "did you mean 'string'" },
        { "cast(raw as i64)", 0, "bytes cannot be cast to i64" },
        { "v", 0, "is a vector" },
        { "s || i", 2, "joins strings, not i64" },
        { "s like i", 2, "'like' needs strings" },
        { "time_floor(i, x)", 14, "a constant such as" },
        { "time_floor(i, '0s')", 14, "above 0" },
        { "x'0'", 0, "two hexadecimal digits" },
        { "i is 3", 5, "'null' is expected" },
        { "i not 3", 6, "'in', 'like' or 'between' is expected" },
        { "caf\xc3\xa9", 3, "quote a field name" },
    };
    struct arena a = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = ERR_INIT;
        const char *t = bad[i].text;
        assert_null(expr_compile(&a, t, strlen(t), &schema, 0, &e));
        if (e.offset != bad[i].at || !strstr(e.text, bad[i].says) || e.code != ERR_INPUT)
            fail_msg("%s: offset %ld: %s", t, e.offset, e.text);
    }
    struct err e = ERR_INIT;
    assert_null(expr_compile(&a, "event_time()", 12, &schema, 0, &e));
    assert_non_null(strstr(e.text, "no event time"));
    arena_free(&a);
}

/* "b between c and b) between c and b) ..." n times. */
static int write_betweens(char *to, int n) {
    static const char more[] = " between c and b)";
    *to = 'b';
    for (int i = 0; i < n; i++)
        memcpy(to + 1 + (size_t)i * (sizeof more - 1), more, sizeof more - 1);
    return 1 + n * (int)(sizeof more - 1);
}
static void limits_hold(void **state) {
    (void)state;
    struct arena a = { 0 };
    struct err e = ERR_INIT;
    char *t = malloc(EXPR_TEXT_MAX + 2);
    memset(t, ' ', EXPR_TEXT_MAX + 1);
    t[EXPR_TEXT_MAX - 1] = 'i';
    assert_non_null(expr_compile(&a, t, EXPR_TEXT_MAX, &schema, 0, &e));
    assert_null(expr_compile(&a, t, EXPR_TEXT_MAX + 1, &schema, 0, &e));
    memset(t, '(', EXPR_TEXT_MAX); /* nesting without end */
    assert_null(expr_compile(&a, t, EXPR_TEXT_MAX, &schema, 0, &e));
    assert_non_null(strstr(e.text, "nests deeper"));
    memset(t, '-', EXPR_TEXT_MAX);
    assert_null(expr_compile(&a, t, EXPR_TEXT_MAX, &schema, 0, &e));
    for (int i = 0; i < EXPR_TEXT_MAX; i += 2)
        memcpy(t + i, "i+", 2);
    assert_null(expr_compile(&a, t, EXPR_TEXT_MAX - 1, &schema, 0, &e));
    assert_non_null(strstr(e.text, "nests deeper"));
    for (int i = 0; i + 5 <= EXPR_TEXT_MAX; i += 5) /* long, but flat */
        memcpy(t + i, i % 2 ? "b or " : "c or ", 5);
    assert_non_null(expr_compile(&a, t, EXPR_TEXT_MAX / 5 * 5 - 4, &schema, 0, &e));
    /* Each `between` uses its operand twice: 2^n parts. */
    int n = 0;
    for (n = 0; n < 40; n++)
        t[n] = '(';
    n += write_betweens(t + n, 40);
    assert_null(expr_compile(&a, t, (size_t)n, &schema, 0, &e));
    assert_non_null(strstr(e.text, "parts"));
    free(t);
    arena_free(&a);
}

/* ---- canonical text ---- */

static void canonical_texts(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        { "  A  +\tb ", "A + b" },
        { "NOT (a = 1)", "a != 1" },
        { "not not a", "not not a" },
        { "not not (a < b)", "a < b" },
        { "not (x is null)", "x is not null" },
        { "not x in (2, 1, 2)", "x not in (1, 2)" },
        { "x in (3)", "x = 3" },
        { "x IN ('b', 'a')", "x in ('a', 'b')" },
        { "x in (1, null)", "x = null or x = 1" },
        { "((a)) <> (2)", "a != 2" },
        { "5 < a", "a > 5" },
        { "a between 1 and 1 + 1", "a >= 1 and a <= 2" },
        { "a not between 1 and 2", "not (a >= 1 and a <= 2)" },
        { "a and (b and c)", "a and b and c" },
        { "a or (b and c) or a", "a or b and c" },
        { "(a or b) and c", "(a or b) and c" },
        { "a and true", "a" },
        { "a or 1 = 1", "true" },
        { "a + (b + c)", "a + (b + c)" },
        { "(a + b) + c", "a + b + c" },
        { "a - (b - c) * -2", "a - (b - c) * -2" },
        { "-(-a)", "--a" },
        { "- 9223372036854775808", "-9223372036854775808" },
        { "2 * 3 + a", "6 + a" },
        { "1.50e1 + a", "15.0 + a" },
        { "0.1 + 0.2", "0.30000000000000004" },
        { "1 / 0", "cast(null as i64)" },
        { "7 / 2", "3" },
        { "-7 / 2", "-3" },
        { "-7 % 2", "-1" },
        { "7 / 2.0", "3.5" },
        { "9223372036854775807 + 1", "cast(null as i64)" },
        { "1e308 * 10.0", "cast(null as f64)" },
        { "sqrt(-1.0)", "cast(null as f64)" },
        { "IF(a, 1, 2)", "case when a then 1 else 2 end" },
        { "case a when 1 then 'x' when 2 then 'y' end",
          "case when a = 1 then 'x' when a = 2 then 'y' end" },
        { "case when true then 1 else 2.5 end", "1.0" },
        { "case when false then 1 when a then 2 end", "case when a then 2 end" },
        { "if(true, length(s), 2.5)", "cast(length(s) as f64)" },
        { "if(true, x, 2.5)", "case when true then x else 2.5 end" },
        { "\"a\" + \"b c\" + \"or\"", "a + \"b c\" + \"or\"" },
        { "'it''s' || a || 'x' || 'y'", "'it''s' || a || 'xy'" },
        { "Concat(a, b)", "a || b" },
        { "LEAST(a, b) + Greatest(a, b)", "min(a, b) + max(a, b)" },
        { "a::F64", "cast(a as f64)" },
        { "'12'::i64 + '0.5'::f64", "12.5" },
        { "cast(1.0 as string) || cast(true as string)", "'1true'" },
        { "cast('x' as f64)", "cast(null as f64)" },
        { "cast(2.9 as i64) + cast(-2.9 as i64)", "0" },
        { "cast(9.3e18 as i64)", "cast(null as i64)" },
        { "X'00fF'", "x'00ff'" },
        { "length('日本') + length(x'00ff01')", "5" },
        { "round(2.5) + round(-2.5) + round(3)", "3.0" },
        { "round(2.345, 2)", "2.35" },
        { "year(0)", "1970" },
        { "weekday(0)", "4" },
        { "month(-1) * 100 + day(-1)", "1231" },
        { "year(253402300799999)", "9999" },
        { "hour(parse_time('2013-01-13T23:36:00.5Z')) * 100 + "
          "minute(parse_time('2013-01-13T23:36:00.5Z'))",
          "2336" },
        { "format_time(parse_time('2013-01-13T23:36:00+01:00'))", "'2013-01-13T22:36:00Z'" },
        { "format_time(9223372036854775807)", "cast(null as string)" },
        { "time_floor(t, '1m')", "time_floor(t, 60000)" },
        { "time_floor(-1, '1m')", "-60000" },
        { "nullif(1, 1)", "cast(null as i64)" },
        { "null", "null" },
        { "null + 1", "cast(null as i64)" },
        { "null is null", "true" },
        { "null and false", "false" },
        { "'abc' like 'a%c' and not 'abc' like '_'", "true" },
        { "1 = 1.0", "true" },
        { "9007199254740993 = 9007199254740992.0", "false" },
        { "substr('hello', 2, 3)", "'ell'" },
        { "substr('hello', -3)", "'llo'" },
    };
    struct arena a = { 0 };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct err e = ERR_INIT;
        const char *c = expr_canonical(&a, pairs[i][0], strlen(pairs[i][0]), &e);
        if (!c)
            fail_msg("%s: %s", pairs[i][0], e.text);
        assert_string_equal(c, pairs[i][1]);
        c = expr_canonical(&a, c, strlen(c), &e);
        assert_string_equal(c, pairs[i][1]);
    }
    assert_string_equal(agg_canonical(&a, "AVG( (a)*2 )", 12, NULL), "mean(a * 2)");
    assert_string_equal(agg_canonical(&a, "count(*)", 8, NULL), "count()");
    assert_string_equal(agg_canonical(&a, "MAX_BY(((a)), b*2)", 18, NULL), "max_by(a, b * 2)");
    assert_string_equal(agg_canonical(&a, "first(a)", 8, NULL), "first(a)");
    struct err e = ERR_INIT;
    assert_null(agg_canonical(&a, "min_by(a)", 9, &e));
    assert_non_null(strstr(e.text, "',' is expected"));
    assert_null(agg_canonical(&a, "last(a, b)", 10, &e));
    assert_null(agg_canonical(&a, "meen(a)", 7, &e));
    assert_non_null(strstr(e.text, "did you mean 'mean'"));
    assert_null(agg_canonical(&a, "sum()", 5, &e));
    assert_null(agg_canonical(&a, "sum(a) + 1", 10, &e));
    struct agg g;
    assert_int_equal(agg_compile(&a, "sum(s)", 6, &schema, 0, &g, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "sum needs a number, not string"));
    assert_int_equal(agg_compile(&a, "sum(i)", 6, &schema, 0, &g, &e), 0);
    assert_int_equal(g.type, TYPE_I64);
    assert_int_equal(agg_compile(&a, "last(s)", 7, &schema, 0, &g, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "last needs a number or bool, not string"));
    assert_int_equal(agg_compile(&a, "max_by(i = 3, i)", 16, &schema, 0, &g, &e), 0);
    assert_int_equal(g.type, TYPE_BOOL);
    assert_non_null(g.by);
    assert_int_equal(agg_compile(&a, "max_by(i, s)", 12, &schema, 0, &g, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "max_by compares numbers, not string"));
    arena_free(&a);
}

/* ---- nulls are counted where they arise, and only for rows that ask ---- */

static void nulls_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t nulled;
    } all[] = {
        { "10 / i", 2 },
        { "x * 1e308 * 1e10", 4 }, /* 0, null and two zeros stay */
        { "i != 0 and 10 / i > 1", 0 },
        { "i = 0 or 10 / i > 1", 0 },
        { "case when i = 0 then 0 else 10 / i end", 0 },
        { "coalesce(i, 10 / i)", 0 },
        { "if(i = 0, 10 / i, i)", 2 },
        { "10 / i + 10 / i", 2 }, /* one subexpression */
        { "cast(s as i64)", 4 },
        { "i + 9223372036854775807", 3 },
    };
    static const int64_t i64[] = { 0, 1, 2, 0, 3, -4, 5, 6 }; /* row 7 is null, 6 not selected */
    static const double f64[] = { 0, 1, -2, 0, 3, 4, 5, 6 };
    static struct span str[8] = {
        { "1", 1, 0 }, { "", 0, 0 },    { "x", 1, 0 },
        { "2", 1, 0 }, { "1.5", 3, 0 }, { "99999999999999999999", 20, 0 }
    };
    static const uint64_t nulls[1] = { 1 << 7 };
    static const uint16_t sel[] = { 0, 1, 2, 3, 4, 5, 7 };
    struct column cols[11] = { [2] = { .i64 = i64, .nulls = nulls },
                               [4] = { .f64 = f64, .nulls = nulls },
                               [6] = { .str = str, .nulls = nulls } };
    struct batch b = { .schema = &schema, .cols = cols, .rows = 8, .n = 7, .sel = sel };
    struct arena a = { 0 };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        uint64_t nulled = 0;
        expr_eval(compile(&a, all[k].text), &a, &b, &nulled);
        if (nulled != all[k].nulled)
            fail_msg("%s: %llu nulls", all[k].text, (unsigned long long)nulled);
    }
    arena_free(&a);
}

/* ---- filter and project ---- */

static void filter_rows(void **state) {
    (void)state;
    struct optest t = { .op = "filter",
                        .in = "i:i64 x:f64 s:string",
                        .config = "{\"where\": \"i > 1 and x < 10 / i or s like 'k%'\"}" };
    struct op_counts c;
    char *got = optest_same(
        &t, "1,2.5,a\n2,4.5,b\n2,5.5,c\n0,1,kept\n0,null,d\nnull,null,k\nnull,1,x\n", &c);
    assert_string_equal(got, "2,4.5,b\n0,1,kept\nnull,null,k\n");
    assert_int_equal(c.filtered, 4);
    assert_int_equal(c.passed, 3);
    assert_int_equal(c.nulled, 0);
    free(got);
    t.config = "{\"where\": \"event_time() % 2 = 0\"}";
    optest_expect(&t, "@1 1,1,a\n@2 2,1,b\n@4 3,1,c\n", "@2 2,1,b\n@4 3,1,c\n");
    t.config = "{\"where\": \"i + 1\"}";
    char *e = optest_errors(&t);
    assert_non_null(strstr(e, "the condition must be bool, not i64"));
    free(e);
    t.config = "{\"where\": \"i > \"}";
    e = optest_errors(&t);
    assert_non_null(strstr(e, "at byte 4: the expression ends here"));
    free(e);
}
static void project_rows(void **state) {
    (void)state;
    struct optest t = { .op = "project",
                        .in = "i:i64 x:f64 s:string",
                        .config = "{\"fields\": {\"s\": \"upper(s)\", \"d\": \"i / 2\", "
                                  "\"r\": \"x / i\", \"one\": \"1\"}}" };
    struct op_counts c;
    char *got = optest_same(&t, "@5 1,2.5,a\n0,4.5,b\nnull,5.5,null\n", &c);
    assert_string_equal(got, "@5 A,0,2.5,1\nB,0,null,1\nnull,null,null,1\n");
    assert_int_equal(c.nulled, 1);
    free(got);
    got = optest_schema(&t);
    assert_string_equal(got, "{s: string, d: i64, r: f64, one: i64}");
    free(got);
    t.config = "{\"fields\": {\"x\": \"i\", \"y\": \"x\"}, \"keep\": \"all\", \"drop\": [\"s\"]}";
    optest_expect(&t, "1,2.5,a\n", "1,1,2.5\n");
    t.in = "v:vec<3> i:i64"; /* a vector passes by its name alone */
    t.config = "{\"fields\": {\"w\": \"v\"}}";
    got = optest_schema(&t);
    assert_string_equal(got, "{w: vec<3>}");
    free(got);
    t.in = "i:i64 x:f64 s:string";
    static const char *const bad[][2] = {
        { "{\"fields\": {\"a\": \"null\"}}", "null alone has no type" },
        { "{\"fields\": {\"a\": \"ii\"}}", "did you mean 'i'" },
        { "{\"fields\": {}}", "no output fields" },
        { "{\"fields\": {\"a\": \"i\"}, \"drop\": [\"s\"]}", "'drop' needs" },
        { "{\"keep\": \"all\", \"drop\": [\"z\"]}", "drop/z: input 'in' has no field 'z'" },
        { "{\"fields\": {\"a\": \"i +\", \"b\": \"(\"}}", "at byte 1: " },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t.config = bad[i][0];
        got = optest_errors(&t);
        if (!strstr(got, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], got);
        free(got);
    }
}

static char *canonical_config(const char *op, const char *config, bool people) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc doc;
    struct sbuf o = { 0 };
    if (!ops_count)
        operators_init();
    const struct op_desc *d = ops_find(op);
    assert_int_equal(json_parse(&doc, NULL, config, strlen(config), &a, &es), 0);
    void *c = arena_zalloc(&a, d->config_size);
    assert_int_equal(params_parse(d, &doc, doc.root, c, &a, NULL, NULL, &es), 0);
    void *copy = arena_zalloc(&a, d->config_size);
    params_copy(d, copy, c, &a);
    params_canonical(d, copy, people, &o);
    char *s = strdup(sbuf_str(&o));
    sbuf_free(&o);
    arena_free(&a);
    return s;
}
/* Configs that mean the same sign the same; people are shown what they wrote. */
static void configs_are_canonical(void **state) {
    (void)state;
    char *a = canonical_config("filter", "{\"where\": \"((i)>1) AND 2<>j\"}", false);
    char *b = canonical_config("filter", "{\"where\": \"i > 1 and j != 2\"}", false);
    assert_string_equal(a, b);
    assert_string_equal(a, "{\"where\":\"i > 1 and j != 2\"}");
    free(a);
    a = canonical_config("filter", "{\"where\": \"((i)>1) AND 2<>j\"}", true);
    assert_string_equal(a, "{\"where\":\"((i)>1) AND 2<>j\"}");
    free(a);
    free(b);
    a = canonical_config("project", "{\"fields\": {\"b\": \"(i)\", \"a\": \"If(b,1,2)\"}}", false);
    assert_non_null(strstr(a, "{\"b\":\"i\",\"a\":\"case when b then 1 else 2 end\"}"));
    free(a);
}

/* ---- docs/expressions.md ---- */

static const struct field doc_fields[] = {
    { "temperature", TYPE_F64, 0 }, { "humidity", TYPE_F64, 0 }, { "source", TYPE_STR, 0 },
    { "count", TYPE_I64, 0 },       { "ok", TYPE_BOOL, 0 },      { "payload", TYPE_BYTES, 0 },
    { "room number", TYPE_STR, 0 },
};
static const struct schema doc_schema = { sizeof doc_fields / sizeof *doc_fields, doc_fields };

static char *page(void) {
    FILE *f = fopen("docs/expressions.md", "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}
/* Splits `line` at ` sep `; the right side, or NULL. */
static char *right_of(char *line, const char *sep) {
    char *at = strstr(line, sep);
    if (!at)
        return NULL;
    *at = 0;
    return at + strlen(sep);
}
static const char *canonical(struct arena *a, const char *text) {
    struct err e = ERR_INIT;
    const char *c = expr_canonical(a, text, strlen(text), &e);
    if (!c)
        fail_msg("%s: %s", text, e.text);
    return c;
}
static void check_example(struct arena *a, const char *kind, char *line) {
    struct err e = ERR_INIT;
    struct agg g;
    char *right = right_of(line, strcmp(kind, "same") ? " → " : " | ");
    const struct expr *x = expr_compile(a, line, strlen(line), &doc_schema, EXPR_HAS_TIME, &e);
    if (!strcmp(kind, "error")) {
        assert_null(x);
        assert_string_equal(e.text, right);
    } else if (!strcmp(kind, "aggregate")) {
        if (agg_compile(a, line, strlen(line), &doc_schema, 0, &g, &e))
            fail_msg("%s: %s", line, e.text);
    } else if (!x)
        fail_msg("%s: %s", line, e.text);
    else if (right)
        assert_string_equal(canonical(a, line), canonical(a, right));
}
static void examples_of_the_page_hold(void **state) {
    (void)state;
    struct arena a = { 0 };
    char *text = page(), *save = NULL, kind[16] = "";
    int seen = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!strncmp(line, "```", 3)) {
            snprintf(kind, sizeof kind, "%s",
                     strncmp(line, "```expr", 7) ? ""
                     : line[7]                   ? line + 8
                                                 : "value");
        } else if (*kind) {
            check_example(&a, kind, line);
            seen++;
        }
    }
    assert_true(seen > 60);
    free(text);
    arena_free(&a);
}

static void add_types(struct sbuf *o, const char *sig) {
    for (const char *p = sig; *p && *sig != '*'; p++)
        sbuf_printf(o, "%s%s",
                    *p == ':'                 ? " → "
                    : p > sig && p[-1] != ':' ? ", "
                                              : "",
                    *p == 'n'   ? p > sig && p[-1] == ':' ? "the same" : "number"
                    : *p == 'f' ? p > sig && p[-1] == ':' ? "f64" : "number"
                    : *p == 'i' ? "i64"
                    : *p == 's' ? "string"
                    : *p == 't' ? "string or bytes"
                    : *p == 'b' ? "bool"
                                : "");
}
/* The page lists exactly the functions that there are, with their texts. */
static void page_lists_the_functions(void **state) {
    (void)state;
    struct sbuf o = { 0 };
    char *text = page();
    sbuf_adds(&o, "| Function | Types | |\n|---|---|---|\n");
    for (const struct expr_func *f = expr_funcs; f->name; f++) {
        sbuf_printf(&o, "| `%s(%s)` | ", f->name, f->args);
        add_types(&o, f->sig);
        sbuf_adds(&o, *f->sig == '*' ? "| " : " | ");
        for (const char *p = f->doc; *p; p++)
            sbuf_printf(&o, *p == '|' ? "\\%c" : "%c", *p);
        sbuf_adds(&o, " |\n");
    }
    if (!strstr(text, sbuf_str(&o))) {
        fputs(o.p, stderr); /* too long for fail_msg */
        fail_msg("docs/expressions.md should have this table");
    }
    sbuf_free(&o);
    free(text);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(examples_of_the_page_hold),
        cmocka_unit_test(page_lists_the_functions),
        cmocka_unit_test(errors_are_precise),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(canonical_texts),
        cmocka_unit_test(nulls_are_counted),
        cmocka_unit_test(filter_rows),
        cmocka_unit_test(project_rows),
        cmocka_unit_test(configs_are_canonical),
    };
    return cmocka_run_group_tests_name("expr", all, NULL, NULL);
}
