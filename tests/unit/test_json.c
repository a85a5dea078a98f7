/* The strict JSON reader and tree, against Jansson and a corpus of files. */
#include "engine/json.h"
#include "tests/unit/harness.h"
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed, rnd;

/* ---- our tree and Jansson's, compared ---- */

static void same(const struct jnode *n, const json_t *j, const char *text) {
    switch (n->type) {
    case J_NULL:
        assert_true(json_is_null(j));
        break;
    case J_BOOL:
        assert_true(json_is_boolean(j) && json_is_true(j) == n->b);
        break;
    case J_INT:
        assert_true(json_is_integer(j) && json_integer_value(j) == n->i);
        break;
    case J_REAL:
        if (!json_is_number(j) || json_number_value(j) != n->d)
            fail_msg("%s: number %.17g", text, n->d);
        break;
    case J_STR:
        assert_true(json_is_string(j) && json_string_length(j) == n->len &&
                    memcmp(json_string_value(j), n->s, n->len) == 0);
        break;
    case J_ARR:
        assert_true(json_is_array(j) && json_array_size(j) == n->n);
        for (struct jnode *c = n->child; c; c = c->next)
            same(c, json_array_get(j, c->index), text);
        break;
    default:
        assert_true(json_is_object(j) && json_object_size(j) == n->n);
        for (struct jnode *c = n->child; c; c = c->next) {
            assert_true(jnode_get(n, c->key) == c);
            json_t *v = json_object_getn(j, c->key, c->klen);
            assert_non_null(v);
            same(c, v, text);
        }
    }
}
/* Accepted by both with equal values, or rejected by both. What differs by intention: integers
 * beyond int64 (we read a double, Jansson refuses), nesting deeper than 64 (Jansson: 2048), NUL
 * bytes outside strings (we refuse, Jansson takes them for the end of the text). */
static void agree(const char *text, size_t len) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d;
    char buf[1500];
    json_error_t je;
    int ours = json_parse(&d, "t.json", text, len, &a, &es);
    json_t *j =
        json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &je);
    if (memchr(text, 0, len) || (es.n && strstr(es.v[0].text, "nested deeper"))) {
        assert_true(ours != 0);
        json_decref(j);
        j = NULL;
    }
    bool big = !j && json_error_code(&je) == json_error_numeric_overflow;
    if (big && ours == 0) {
        assert_non_null(strstr(je.text, "too big"));
    } else if (ours == 0 && !j) {
        fail_msg("seed %" PRIu64 ": %.*s: accepted, Jansson: %s", seed, (int)len, text, je.text);
    } else if (ours != 0 && j) {
        fail_msg("seed %" PRIu64 ": %.*s: Jansson accepts, ours: %s", seed, (int)len, text,
                 err_format(es.v, buf, sizeof buf));
    } else if (j && ours == 0) {
        same(d.root, j, text);
    }
    if (ours != 0) {
        assert_in_range(es.n, 1, ERRS_MAX);
        assert_true(es.v[0].line >= 1 && es.v[0].col >= 1 && es.v[0].text[0]);
        assert_in_range(es.v[0].offset, 0, len);
    }
    json_decref(j);
    errs_free(&es);
    arena_free(&a);
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *buf = malloc(1 << 20);
    assert_non_null(buf);
    *len = fread(buf, 1, 1 << 20, f);
    fclose(f);
    return buf;
}
/* Calls `each` for every file of a corpus directory; returns how many. */
static int corpus(const char *dir, void (*each)(const char *name, const char *text, size_t len)) {
    DIR *d = opendir(dir);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        size_t len;
        char *text = read_file(path, &len);
        /* A copy of the exact size, so that reading beyond the end is seen by a sanitizer. */
        char *exact = malloc(len + !len);
        assert_non_null(exact);
        memcpy(exact, text, len);
        each(e->d_name, exact, len);
        free(exact);
        free(text);
        n++;
    }
    closedir(d);
    return n;
}
static void valid_file(const char *name, const char *text, size_t len) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d;
    char buf[1500];
    if (json_parse(&d, name, text, len, &a, &es) != 0)
        fail_msg("%s", err_format(es.v, buf, sizeof buf));
    /* The canonical form is valid, and its own canonical form. */
    struct sbuf one = { 0 }, two = { 0 };
    struct json_doc again;
    sbuf_json_canonical(&one, d.root);
    assert_int_equal(json_parse(&again, name, one.p, one.len, &a, &es), 0);
    sbuf_json_canonical(&two, again.root);
    assert_true(one.len == two.len && memcmp(one.p, two.p, one.len) == 0);
    sbuf_free(&one);
    sbuf_free(&two);
    errs_free(&es);
    arena_free(&a);
    agree(text, len);
}
static void invalid_file(const char *name, const char *text, size_t len) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d;
    if (json_parse(&d, name, text, len, &a, &es) == 0)
        fail_msg("%s: accepted", name);
    errs_free(&es);
    arena_free(&a);
    agree(text, len);
}
static void corpus_files(void **state) {
    (void)state;
    assert_true(corpus("tests/corpus/json/valid", valid_file) >= 20);
    assert_true(corpus("tests/corpus/json/invalid", invalid_file) >= 40);
}

/* ---- mutated texts ---- */

static void mutate_file(const char *name, const char *text, size_t len) {
    static const char bytes[] = "{}[]\",:\\u0123456789eE+-.tfn \t\n\x01\x7f\x80\xc3\xa4\xed\xff/";
    (void)name;
    if (len > 4000)
        return;
    for (int n = test_scale(400); n > 0; n--) {
        char *m = malloc(len + 8);
        assert_non_null(m);
        memcpy(m, text, len);
        size_t l = len;
        for (int k = (int)(test_random(&rnd) % 3); k >= 0; k--) {
            size_t at = l ? test_random(&rnd) % l : 0;
            char c = bytes[test_random(&rnd) % (sizeof bytes - 1)];
            switch (test_random(&rnd) % 4) {
            case 0: /* replace */
                if (l)
                    m[at] = c;
                break;
            case 1: /* delete */
                if (l)
                    memmove(m + at, m + at + 1, --l - at);
                break;
            case 2: /* insert */
                memmove(m + at + 1, m + at, l++ - at);
                m[at] = c;
                break;
            default: /* cut */
                if (test_random(&rnd) % 4 == 0)
                    l = at;
            }
        }
        agree(m, l);
        free(m);
    }
}
static void mutations(void **state) {
    (void)state;
    corpus("tests/corpus/json/valid", mutate_file);
    corpus("tests/corpus/json/invalid", mutate_file);
}

/* ---- what the header promises ---- */

static void events(void **state) {
    (void)state;
    const char *text = " {\"a\" : [1, -2.5, \"x\\u00e4\", true, null], \"b\":{}} ";
    static const struct {
        enum jevent ev;
        int at, depth;
    } want[] = {
        { JE_OBJ, 1, 1 },      { JE_KEY, 2, 1 },  { JE_ARR, 8, 2 },   { JE_INT, 9, 2 },
        { JE_REAL, 12, 2 },    { JE_STR, 18, 2 }, { JE_BOOL, 29, 2 }, { JE_NULL, 35, 2 },
        { JE_ARR_END, 39, 1 }, { JE_KEY, 42, 1 }, { JE_OBJ, 46, 2 },  { JE_OBJ_END, 47, 1 },
        { JE_OBJ_END, 48, 0 }, { JE_END, 50, 0 }, { JE_END, 50, 0 },
    };
    struct json_reader r;
    json_open(&r, text, strlen(text), NULL);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(json_next(&r), want[i].ev);
        assert_int_equal(r.at - text, want[i].at);
        assert_int_equal(r.depth, want[i].depth);
        if (r.event == JE_INT)
            assert_true(r.i == 1 && r.d == 1);
        if (r.event == JE_STR)
            assert_true(r.len == 3 && memcmp(r.s, "x\xc3\xa4", 3) == 0);
    }
    json_close(&r);
}
static void skipping(void **state) {
    (void)state;
    const char *text = "{\"a\":[[1],{\"x\":[2]}],\"b\":7,\"c\":[1,2],\"d\":[]}";
    struct json_reader r;
    json_open(&r, text, strlen(text), NULL);
    assert_int_equal(json_next(&r), JE_OBJ);
    assert_int_equal(json_next(&r), JE_KEY);
    assert_int_equal(json_skip(&r), 0); /* a whole value after a key */
    assert_int_equal(json_next(&r), JE_KEY);
    assert_true(r.len == 1 && *r.s == 'b');
    assert_int_equal(json_skip(&r), 0); /* a scalar */
    assert_int_equal(json_next(&r), JE_KEY);
    assert_int_equal(json_next(&r), JE_ARR);
    assert_int_equal(json_next(&r), JE_INT);
    assert_int_equal(json_next(&r), JE_INT);
    assert_int_equal(json_next(&r), JE_ARR_END);
    assert_int_equal(json_next(&r), JE_KEY);
    assert_int_equal(json_next(&r), JE_ARR);
    assert_int_equal(json_skip(&r), 0); /* the rest of a container */
    assert_int_equal(json_next(&r), JE_OBJ_END);
    assert_int_equal(json_next(&r), JE_END);
    json_close(&r);
    json_open(&r, "{\"a\":[1", 7, NULL);
    json_next(&r);
    json_next(&r);
    assert_int_equal(json_skip(&r), ERR_INPUT);
    assert_int_equal(json_next(&r), JE_ERROR);
    json_close(&r);
}
static void error_places(void **state) {
    (void)state;
    static const struct {
        const char *text, *pointer, *word;
        int line, col;
    } cases[] = {
        { "{\n  \"a\": tru\n}", "", "a value", 2, 8 },
        { "{\"a\": {\"b~/\": [1, {\"c\" 5}]}}", "/a/b~0~1/1", "':'", 1, 24 },
        { "{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "/a", "twice", 3, 2 },
        { "[1, 2,]", "", "a value", 1, 7 },
        { "[01]", "", "begin with 0", 1, 2 },
        { "\xef\xbb\xbf{}", "", "byte order mark", 1, 1 },
        { "[\"\\ud800\"]", "", "surrogate", 1, 3 },
        { "[1] 2", "", "end of the text", 1, 5 },
        { "", "", "ends", 1, 1 },
        { "[1e999]", "", "too large", 1, 2 },
        { "[NaN]", "", "a value", 1, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = { 0 };
        struct errs es = { 0 };
        struct json_doc d;
        assert_int_equal(json_parse(&d, "f.json", cases[i].text, strlen(cases[i].text), &a, &es),
                         ERR_INPUT);
        assert_int_equal(es.n, 1);
        assert_int_equal(es.v->line, cases[i].line);
        assert_int_equal(es.v->col, cases[i].col);
        assert_string_equal(es.v->pointer, cases[i].pointer);
        assert_string_equal(es.v->file, "f.json");
        if (!strstr(es.v->text, cases[i].word))
            fail_msg("'%s' does not say '%s'", es.v->text, cases[i].word);
        errs_free(&es);
        arena_free(&a);
    }
}
static void duplicates_go_on(void **state) {
    (void)state;
    const char *text = "{\"a\":1,\"b\":{\"x\":1,\"x\":2,\"x\":3},\"a\":2,\"c\":3,\"b\":4}";
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d;
    assert_int_equal(json_parse(&d, NULL, text, strlen(text), &a, &es), ERR_INPUT);
    assert_int_equal(es.n, 4);
    assert_int_equal(d.root->n, 3);
    assert_true(jnode_get(d.root, "a")->i == 1);
    assert_int_equal(jnode_get(d.root, "c")->index, 2);
    assert_int_equal(jnode_get(d.root, "b")->n, 1);
    errs_free(&es);
    arena_free(&a);
}
static void canonical(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        { "{ \"b\" : 1.0, \"a\" : [ 1e0, 1, 1.50, -0.0 ] }", "{\"a\":[1,1,1.5,0],\"b\":1}" },
        { "\"\\u00e4\\/\\n\\u0001\"", "\"\xc3\xa4/\\n\\u0001\"" },
        { "{\"\":{},\"aa\":[],\"a\":null,\"A\":true}",
          "{\"\":{},\"A\":true,\"a\":null,\"aa\":[]}" },
        { "[9007199254740993, 1e17, 0.1, 1e-7]", "[9007199254740993,100000000000000000,0.1,1e-7]" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct arena a = { 0 };
        struct errs es = { 0 };
        struct json_doc d;
        struct sbuf b = { 0 };
        assert_int_equal(json_parse(&d, NULL, pairs[i][0], strlen(pairs[i][0]), &a, &es), 0);
        sbuf_json_canonical(&b, d.root);
        assert_string_equal(sbuf_str(&b), pairs[i][1]);
        sbuf_free(&b);
        errs_free(&es);
        arena_free(&a);
    }
}
/* Deep nesting, a megabyte of string, and many members end without recursion or square time. */
static void large(void **state) {
    (void)state;
    size_t n = 1 << 20;
    char *text = malloc(n + 2);
    assert_non_null(text);
    memset(text, '[', n);
    agree(text, n);
    memset(text, 'a', n);
    text[0] = text[n - 1] = '"';
    agree(text, n);
    free(text);
    struct sbuf b = { 0 };
    sbuf_adds(&b, "{");
    for (int i = 0; i < 50000; i++)
        sbuf_printf(&b, "%s\"k%d\":%d", i ? "," : "", (i * 7919) % 50000, i);
    sbuf_adds(&b, "}");
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d;
    assert_int_equal(json_parse(&d, NULL, b.p, b.len, &a, &es), 0);
    assert_int_equal(d.root->n, 50000);
    errs_free(&es);
    arena_free(&a);
    sbuf_free(&b);
}
static int setup(void **state) {
    (void)state;
    seed = rnd = test_seed(2);
    return 0;
}

/* A text with very many errors is answered as soon as any other: beyond ERRS_MAX they are only
 * counted (their places took a second for every 50,000). */
static void many_errors(void **state) {
    (void)state;
    enum { N = 1000000 };
    struct arena a = { 0 };
    struct json_doc d;
    struct errs es = { 0 };
    struct sbuf b = { 0 };
    sbuf_adds(&b, "{\"a\":1");
    for (int i = 0; i < N; i++)
        sbuf_adds(&b, ",\"a\":1");
    sbuf_adds(&b, "}");
    assert_int_equal(json_parse(&d, "f", b.p, b.len, &a, &es), ERR_INPUT);
    assert_int_equal(es.total, N);
    assert_int_equal(es.n, ERRS_MAX);
    assert_int_equal(es.v[99].col, 8 + 6 * 99);
    errs_free(&es);
    sbuf_free(&b);
    arena_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_files), cmocka_unit_test(mutations),
        cmocka_unit_test(events),       cmocka_unit_test(skipping),
        cmocka_unit_test(error_places), cmocka_unit_test(duplicates_go_on),
        cmocka_unit_test(canonical),    cmocka_unit_test(large),
        cmocka_unit_test(many_errors),
    };
    return cmocka_run_group_tests_name("json", tests, setup, NULL);
}
