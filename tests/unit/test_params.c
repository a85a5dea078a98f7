/* Configs by descriptor: what each type takes and refuses, one canonical text for all spellings of
 * a value, copies that stand alone, and the tables of every operator of the build. */
#include "engine/op.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct conf {
    bool flag;
    int64_t count, wait, size, maybe;
    double ratio, maybe_ratio;
    const char *text, *field, *secret, *note, *maybe_text;
    int mode, maybe_mode;
    struct strs list;
    struct strmap map;
    struct ranges ranges;
    const struct schema *schema;
    struct file *file;
    const struct jnode *any;
    struct time_field time;
};
static const char *const modes[] = { "drop", "keep", NULL };
#define P(n, t, ...)                                                                               \
    { .name = #n, .type = t, .offset = offsetof(struct conf, n), __VA_ARGS__ }
static const struct param params[] = {
    P(ratio, PT_F64, .def = "0.5", .min = 0, .max = 1),
    P(flag, PT_BOOL, .def = "true"),
    P(count, PT_I64, .min = 1, .max = 9),
    P(wait, PT_DURATION, .def = "\"10s\"", .min = 1, .max = 3.6e6),
    P(size, PT_SIZE, .def = "\"64KiB\""),
    P(maybe, PT_I64, .flags = PARAM_OPTIONAL),
    P(maybe_ratio, PT_F64, .flags = PARAM_OPTIONAL),
    P(text, PT_STR, .def = "\"a\\\"b\""),
    P(field, PT_FIELD, .flags = PARAM_OPTIONAL),
    P(secret, PT_STR, .flags = PARAM_OPTIONAL | PARAM_SECRET),
    P(note, PT_STR, .class = PARAM_LABEL, .flags = PARAM_OPTIONAL),
    P(maybe_text, PT_STR, .flags = PARAM_OPTIONAL),
    P(mode, PT_ENUM, .def = "\"drop\"", .words = modes),
    P(maybe_mode, PT_ENUM, .flags = PARAM_OPTIONAL, .words = modes),
    P(list, PT_STRS, .def = "[\"x\",\"y\"]"),
    P(map, PT_STRMAP, .flags = PARAM_OPTIONAL),
    P(ranges, PT_RANGES, .flags = PARAM_OPTIONAL),
    P(schema, PT_SCHEMA, .flags = PARAM_OPTIONAL),
    P(file, PT_FILE, .flags = PARAM_OPTIONAL),
    P(any, PT_JSON, .flags = PARAM_OPTIONAL),
    P(time, PT_TIME, .flags = PARAM_OPTIONAL),
    { .name = NULL },
};
static const struct op_desc op = { .name = "test",
                                   .params = params,
                                   .config_size = sizeof(struct conf) };

static const char schema_file[] = "a,b\nm,m\nv,sv\n";
static int resolve(void *user, const char *name, struct file *f, struct err *e) {
    (void)user;
    if (strcmp(name, "missing") == 0)
        return err_set(e, ERR_NOTFOUND, "there is no file '%s'", name);
    f->data = schema_file;
    f->len = sizeof schema_file - 1;
    snprintf(f->hash, sizeof f->hash, "%032d", (int)strlen(name));
    return 0;
}

static int parse(const struct op_desc *d, const char *json, void *c, struct arena *a,
                 struct errs *es) {
    struct json_doc doc;
    struct arena own = { 0 }; /* gone before the config is used */
    char *text = strdup(json);
    assert_int_equal(json_parse(&doc, NULL, text, strlen(text), &own, es), 0);
    int rc = params_parse(d, &doc, doc.root, c, a, resolve, NULL, es);
    free(text);
    arena_free(&own);
    return rc;
}

static char *canonical(const struct op_desc *d, const void *c, bool all) {
    struct sbuf b = { 0 };
    params_canonical(d, c, all, &b);
    char *s = strdup(sbuf_str(&b));
    sbuf_free(&b);
    return s;
}

/* ---- single values ---- */

static void refuses(const char *json, int errors, const char *part) {
    struct conf c;
    struct arena a = { 0 };
    struct errs es = { 0 };
    bool found = false;
    assert_int_equal(parse(&op, json, &c, &a, &es), ERR_INPUT);
    for (int i = 0; i < es.n; i++)
        found |= strstr(es.v[i].text, part) != NULL;
    if (!found || es.total != errors)
        fail_msg("%s: %d errors, the first \"%s\", wanted \"%s\"", json, es.total,
                 es.n ? es.v[0].text : "", part);
    errs_free(&es);
    arena_free(&a);
}

/* `key` with value `json` gives `text` in the canonical config (of all parameters). */
static void gives(const char *json, const char *text) {
    struct conf c;
    struct arena a = { 0 };
    struct errs es = { 0 };
    char buf[1000];
    snprintf(buf, sizeof buf, "{\"count\":1,%s}", json);
    if (parse(&op, buf, &c, &a, &es) < 0)
        fail_msg("%s: %s", buf, es.v[0].text);
    char *s = canonical(&op, &c, true);
    if (!strstr(s, text))
        fail_msg("%s: no %s in %s", buf, text, s);
    free(s);
    arena_free(&a);
}

static void test_values(void **state) {
    (void)state;
    gives("\"flag\":false", "\"flag\":false");
    gives("\"maybe\":9223372036854775807", "\"maybe\":9223372036854775807");
    gives("\"maybe\":1e3", "\"maybe\":1000");
    gives("\"ratio\":1", "\"ratio\":1,");
    gives("\"ratio\":2.5e-1", "\"ratio\":0.25");
    gives("\"wait\":\"1.5s\"", "\"wait\":\"1500ms\"");
    gives("\"wait\":\"60000ms\"", "\"wait\":\"1m\"");
    gives("\"size\":\"1MiB\"", "\"size\":1048576");
    gives("\"size\":17", "\"size\":17");
    gives("\"text\":\"\\u00e9\\n\"", "\"text\":\"é\\n\"");
    gives("\"secret\":\"hunter2\"", "\"secret\":\"***\"");
    gives("\"mode\":\"keep\"", "\"mode\":\"keep\"");
    gives("\"list\":\"one\"", "\"list\":[\"one\"]");
    gives("\"list\":[]", "\"list\":[]");
    gives("\"map\":{\"b\":\"2\",\"a\":\"1\"}", "\"map\":{\"b\":\"2\",\"a\":\"1\"}");
    gives("\"ranges\":{\"b\":[1,2],\"a\":[null,0.5]}", "\"ranges\":{\"a\":[null,0.5],\"b\":[1,2]}");
    gives("\"schema\":{\"v\":\"vec<8>\",\"a\":\"i64\"}",
          "\"schema\":{\"v\":\"vec<8>\",\"a\":\"i64\"}");
    gives("\"schema\":\"f.csv\"", "\"schema\":{\"a\":\"f64\",\"b\":\"string\"}");
    gives("\"file\":\"f.csv\"", "\"file\":\"f.csv\"");
    gives("\"any\":{\"b\":[1.0,null],\"a\":{}}", "\"any\":{\"a\":{},\"b\":[1,null]}");
    gives("\"time\":{\"field\":\"t\"}", "\"time\":{\"field\":\"t\",\"unit\":\"ms\"}");
    gives("\"maybe\":null,\"field\":null,\"time\":null", "\"count\":1");
}

static void test_refused(void **state) {
    (void)state;
    refuses("{}", 1, "test needs 'count': an integer");
    refuses("{\"counts\":1}", 1, "did you mean 'count'?");
    refuses("{\"count\":0}", 1, "'count' must be between 1 and 9, not 0");
    refuses("{\"count\":\"1\"}", 1, "'count' must be an integer, not the string \"1\"");
    refuses("{\"count\":null}", 1, "'count' must be an integer, not null");
    refuses("{\"count\":1,\"maybe\":1e30}", 1, "'maybe' must be an integer of 64 bits");
    refuses("{\"count\":1,\"maybe\":-9223372036854775808}", 1, "out of range");
    refuses("{\"count\":1,\"ratio\":1.5}", 1, "between 0 and 1, not 1.5");
    refuses("{\"count\":1,\"wait\":\"2h\"}", 1, "between 1ms and 1h, not 2h");
    refuses("{\"count\":1,\"wait\":\"\"}", 1, "units are ms, s, m, h, d");
    refuses("{\"count\":1,\"size\":-1}", 1, "must not be negative");
    refuses("{\"count\":1,\"size\":\"1XB\"}", 1, "units are KiB");
    refuses("{\"count\":1,\"field\":\"\"}", 1, "not empty");
    refuses("{\"count\":1,\"secret\":5}", 1, "'secret' must be a string, not an integer");
    refuses("{\"count\":1,\"maybe_mode\":\"kep\"}", 1, "did you mean \"keep\"?");
    refuses("{\"count\":1,\"list\":[1,\"a\",null]}", 2, "must be a list of strings, not null");
    refuses("{\"count\":1,\"map\":{\"\":\"x\"}}", 1, "empty name");
    refuses("{\"count\":1,\"map\":{\"a\":1,\"b\":2}}", 2, "'b' of 'map' must be a string");
    refuses("{\"count\":1,\"ranges\":{\"a\":[2,1]}}", 1, "2 is above 1");
    refuses("{\"count\":1,\"ranges\":{\"a\":[\"2\",1]}}", 1, "two numbers");
    refuses("{\"count\":1,\"schema\":{\"a\":\"int\"}}", 1, "bool, i64, f64");
    refuses("{\"count\":1,\"schema\":\"missing\"}", 1, "there is no file 'missing'");
    refuses("{\"count\":1,\"file\":\"missing\"}", 1, "there is no file 'missing'");
    refuses("{\"count\":1,\"time\":{}}", 1, "needs the name of its field");
    refuses("{\"count\":1,\"time\":{\"field\":\"a\",\"unit\":\"h\"}}", 1, "\"rfc3339\"");
    refuses("{\"x\":1,\"mode\":\"x\",\"ratio\":\"x\"}", 4, "test needs 'count'");
}

/* ---- one text for all spellings ---- */

static uint64_t rng;
static uint32_t rnd(uint32_t n) {
    return (uint32_t)(test_random(&rng) >> 33) % n;
}

/* Some parameters in random order and spelling; `pick` says which and with what values. */
static void spell(struct sbuf *b, uint32_t pick, bool extras) {
    static const char *const text[][2] = {
        { "\"ratio\":0.25", "\"ratio\" : 25e-2" },
        { "\"ratio\":0.5", "" }, /* the default */
        { "\"flag\":true", "" },
        { "\"wait\":\"90s\"", "\"wait\":\"1.5m\"" },
        { "\"size\":2048", "\"size\":\"2KiB\"" },
        { "\"maybe\":5", "\"maybe\":5.0" },
        { "\"maybe_ratio\":7", "\"maybe_ratio\":7.0" },
        { "\"text\":\"a/b\"", "\"text\":\"a\\/\\u0062\"" },
        { "\"list\":[\"q\"]", "\"list\":\"q\"" },
        { "\"mode\":\"keep\"", "\"mod\\u0065\":\"keep\"" },
        { "\"ranges\":{\"a\":[0,1],\"b\":[2,3]}", "\"ranges\":{\"b\":[2.0,3],\"a\":[0,1e0]}" },
        { "\"any\":{\"p\":1,\"q\":[2,{}]}", "\"any\":{ \"q\":[2.0, { }],\"p\":1 }" },
        { "\"schema\":\"x.csv\"", "\"schema\":{\"a\":\"f64\",\"b\":\"string\"}" },
        { "\"time\":{\"field\":\"t\",\"unit\":\"ms\"}", "\"time\":{\"field\":\"t\"}" },
    };
    enum { N = sizeof text / sizeof *text };
    int order[N + 1];
    b->len = 0;
    sbuf_adds(b, "{");
    for (int i = 0; i <= N; i++) {
        int at = (int)rnd((uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i <= N; i++) {
        int k = order[i];
        const char *s = k == N ? "\"count\":3" : text[k][rnd(2)];
        /* ratio stands in two rows: one at most */
        if (k < N && (!(pick >> k & 1) || (k == 1 && (pick & 1))))
            continue;
        if (*s)
            sbuf_printf(b, "%s%s", b->len > 1 ? "," : "", s);
    }
    if (extras) /* not semantic */
        sbuf_printf(b, ",\"note\":\"%u\"", rnd(1000));
    sbuf_adds(b, "}");
}

static void test_spellings(void **state) {
    (void)state;
    uint64_t first = test_seed(1);
    struct sbuf b = { 0 };
    char *seen[64];
    uint32_t picks[64];
    int nseen = 0;
    for (int round = 0; round < test_scale(3000); round++) {
        struct arena a = { 0 }, copy = { 0 };
        struct errs es = { 0 };
        struct conf c, d, e;
        rng = first + (uint64_t)round;
        uint32_t pick = rnd(1 << 14);
        spell(&b, pick, rnd(2));
        if (parse(&op, sbuf_str(&b), &c, &a, &es) < 0)
            fail_msg("seed %d: %s: %s", round, sbuf_str(&b), es.v[0].text);
        char *one = canonical(&op, &c, false), *all = canonical(&op, &c, true);
        spell(&b, pick, rnd(2));
        assert_int_equal(parse(&op, sbuf_str(&b), &d, &a, &es), 0);
        char *two = canonical(&op, &d, false);
        if (strcmp(one, two) != 0)
            fail_msg("seed %d: %s and %s", round, one, two);
        params_copy(&op, &e, &c, &copy);
        arena_free(&a); /* the copy stands alone */
        char *three = canonical(&op, &e, true);
        assert_string_equal(all, three);
        /* What `show` prints is a config again (files by name, secrets apart). */
        assert_int_equal(parse(&op, all, &d, &a, &es), 0);
        char *four = canonical(&op, &d, false);
        assert_string_equal(one, four);
        free(two);
        free(three);
        free(four);
        free(all);
        /* Different values, different texts. */
        uint32_t values = pick & ~(1u << 1) & ~(1u << 2);
        for (int i = 0; i < nseen; i++)
            if ((picks[i] == values) != (strcmp(seen[i], one) == 0))
                fail_msg("seed %d: %x %s, %x %s", round, picks[i], seen[i], values, one);
        if (nseen < 64) {
            picks[nseen] = values;
            seen[nseen++] = one;
        } else {
            free(one);
        }
        arena_free(&a);
        arena_free(&copy);
    }
    while (nseen)
        free(seen[--nseen]);
    sbuf_free(&b);
}

/* The exact text: sorted by name, defaults filled, absent optionals left out. It is hashed into
 * signatures, so a change here changes every signature. */
static void test_exact(void **state) {
    (void)state;
    struct conf c;
    struct arena a = { 0 };
    struct errs es = { 0 };
    assert_int_equal(
        parse(&op, "{\"count\":3,\"note\":\"n\",\"file\":\"abc\",\"secret\":\"s\"}", &c, &a, &es),
        0);
    char *s = canonical(&op, &c, false);
    assert_string_equal(s,
                        "{\"count\":3,\"file\":\"00000000000000000000000000000003\",\"flag\":true,"
                        "\"list\":[\"x\",\"y\"],\"mode\":\"drop\",\"ratio\":0.5,\"secret\":\"s\","
                        "\"size\":65536,\"text\":\"a\\\"b\",\"wait\":10000}");
    assert_true(c.maybe == PARAM_UNSET && isnan(c.maybe_ratio) && c.maybe_mode == -1);
    assert_true(!c.field && !c.maybe_text && !c.any && !c.schema && !c.time.field);
    free(s);
    arena_free(&a);
}

/* ---- the operators of the build ---- */

static void test_operators(void **state) {
    (void)state;
    assert_true(ops_count > 5);
    for (int i = 0; i < ops_count; i++) {
        const struct op_desc *d = ops_all[i];
        struct arena a = { 0 };
        struct errs es = { 0 };
        void *c = arena_zalloc(&a, d->config_size + 1),
             *copy = arena_zalloc(&a, d->config_size + 1);
        assert_ptr_equal(ops_find(d->name), d);
        assert_true(i == 0 || strcmp(ops_all[i - 1]->name, d->name) < 0);
        assert_true(d->doc && *d->doc && d->semantics >= 1);
        params_defaults(d, c, &a); /* every default parses, or this aborts */
        for (const struct param *p = d->params; p && p->name; p++) {
            assert_true(p->doc && *p->doc);
            assert_true(p->offset < d->config_size);
            for (const struct param *q = d->params; q < p; q++)
                assert_string_not_equal(q->name, p->name);
        }
        if (d->example) {
            if (parse(d, d->example, c, &a, &es) < 0)
                fail_msg("example of %s: %s", d->name, es.v[0].text);
            params_copy(d, copy, c, &a);
            char *one = canonical(d, c, true), *two = canonical(d, copy, true);
            assert_string_equal(one, two);
            free(one);
            free(two);
        } else if (!(d->flags & OP_INNER) && parse(d, "{}", c, &a, &es) < 0) {
            fail_msg("%s needs parameters and has no example", d->name);
        }
        arena_free(&a);
    }
    assert_null(ops_find("no_such"));
    assert_string_equal(ops_nearest("sorce"), "source");
    assert_null(ops_nearest("senml_decod")); /* an inner stage is never offered */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_operators),
    };
    operators_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
