/* The parts of the HTTP API that are functions: addresses, bodies of submits, error bodies, and
 * that openapi.json and the table of routes say the same. */
#include "cluster/http_impl.h"
#include "cluster/text.h"
#include "tests/unit/harness.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- openapi.json ---- */

static json_t *api(void) {
    json_error_t je;
    json_t *j = json_load_file("cluster/openapi.json", JSON_REJECT_DUPLICATES, &je);
    if (!j)
        fail_msg("cluster/openapi.json:%d: %s", je.line, je.text);
    return j;
}

static bool documented(json_t *op, const char *query) {
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(op, "parameters"), i, p) {
        if (strcmp(json_string_value(json_object_get(p, "name")), query) == 0 &&
            strcmp(json_string_value(json_object_get(p, "in")), "query") == 0)
            return true;
    }
    return false;
}

static size_t count_query(json_t *op) {
    size_t i, n = 0;
    json_t *p;
    json_array_foreach(json_object_get(op, "parameters"), i, p) {
        n += strcmp(json_string_value(json_object_get(p, "in")), "query") == 0;
    }
    return n;
}

static void test_openapi(void **state) {
    (void)state;
    json_t *j = api(), *paths = json_object_get(j, "paths"), *item, *op;
    size_t routes = 0, ops = 0;
    const char *path, *method;
    for (const struct route *r = http_routes; r->method; r++, routes++) {
        char name[8];
        snprintf(name, sizeof name, "%s", r->method);
        for (char *p = name; *p; p++)
            *p = (char)(*p + 32);
        op = json_object_get(json_object_get(paths, r->path), name);
        if (!op)
            fail_msg("openapi.json lacks %s %s", r->method, r->path);
        size_t n = 0;
        for (; n < HTTP_QUERY_MAX && r->query[n]; n++)
            if (!documented(op, r->query[n]))
                fail_msg("openapi.json lacks ?%s of %s %s", r->query[n], r->method, r->path);
        assert_int_equal(count_query(op), n);
        assert_int_equal(json_object_get(op, "requestBody") != NULL, r->body_max > 0);
    }
    json_object_foreach(paths, path, item) {
        json_object_foreach(item, method, op) {
            assert_non_null(json_object_get(op, "summary"));
            ops++;
        }
    }
    assert_int_equal(ops, routes);
    json_decref(j);
}

/* Every $ref leads somewhere, and every schema is referred to. */
static void check_refs(json_t *root, json_t *schemas, json_t *used) {
    json_t *stack[10000];
    size_t n = 0, i;
    stack[n++] = root;
    while (n) {
        json_t *v = stack[--n], *child;
        const char *key, *ref = json_string_value(json_object_get(v, "$ref"));
        if (ref) {
            const char *name = strrchr(ref, '/') + 1;
            if (!json_object_get(schemas, name))
                fail_msg("nothing at %s", ref);
            json_object_set_new(used, name, json_true());
        }
        if (json_is_object(v))
            json_object_foreach(v, key, child) stack[n++] = child;
        json_array_foreach(v, i, child) stack[n++] = child;
        assert_true(n < 9000);
    }
}

static void test_openapi_refs(void **state) {
    (void)state;
    json_t *j = api(), *used = json_object(), *v;
    json_t *schemas = json_object_get(json_object_get(j, "components"), "schemas");
    const char *key;
    check_refs(j, schemas, used);
    json_object_foreach(schemas, key, v) {
        if (!json_object_get(used, key))
            fail_msg("nobody refers to the schema %s", key);
    }
    json_decref(used);
    json_decref(j);
}

/* ---- addresses ---- */

static void test_addresses(void **state) {
    (void)state;
    static const char *const good[] = { "127.0.0.1:0", "localhost:0", ":0", "127.1.2.3:0" };
    static const char *const bad[] = { "",
                                       "127.0.0.1",
                                       "127.0.0.1:x",
                                       "127.0.0.1:65536",
                                       "1.2.3:80",
                                       "0.0.0.0:0",
                                       "192.0.2.1:80",
                                       "[::]:0",
                                       "::1:0",
                                       "127.0.0.1:-1",
                                       "host:80",
                                       "[]:1",
                                       "[::1:7070",
                                       ":" };
    char url[128];
    struct err e = ERR_INIT;
    int fd, fd2;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (http_listen(good[i], &fd, url, sizeof url, &e) < 0)
            fail_msg("%s: %s", good[i], e.text);
        assert_int_equal(strncmp(url, "http://127.", 11), 0);
        close(fd);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (http_listen(bad[i], &fd, url, sizeof url, &e) != ERR_INPUT)
            fail_msg("'%s' was taken", bad[i]);
        assert_true(e.text[0]);
    }
    assert_int_equal(http_listen("127.0.0.1:0", &fd, url, sizeof url, &e), 0);
    assert_int_equal(http_listen(url + 7, &fd2, url, sizeof url, &e), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "in use"));
    close(fd);
}

/* ---- bodies of submits ---- */

static int parse(const char *text, struct submit_body *b, struct errs *es, struct arena *a) {
    return http_submit_parse(b, text, strlen(text), a, es);
}

static void test_submit_body(void **state) {
    (void)state;
    struct submit_body b;
    struct errs es = { 0 };
    struct arena a = { 0 };
    assert_int_equal(parse("{\"specs\":[{\"file\":\"a.json\",\"text\":\"{}\\n\",\"files\":{\"c\":"
                           "\"0123456789abcdef0123456789abcdef\"},\"vars\":{\"X\":\"1\"}},"
                           "{\"text\":\"\"}],\"dry_run\":true}",
                           &b, &es, &a),
                     0);
    assert_int_equal(b.n, 2);
    assert_true(b.dry);
    assert_string_equal(b.spec[0].file, "a.json");
    assert_int_equal(b.spec[0].len, 3);
    assert_string_equal(b.spec[0].files[0].name, "c");
    assert_string_equal(b.spec[0].vars[0].text, "1");
    assert_string_equal(b.spec[1].file, "");
    arena_free(&a);
}

static void test_submit_body_errors(void **state) {
    (void)state;
    static const struct {
        const char *text, *pointer, *error;
    } bad[] = {
        { "", "", "" },
        { "{\"specs\":[}", "/specs", "" },
        { "[]", "", "must be an object" },
        { "{}", "", "'specs' is missing" },
        { "{\"specs\":{}}", "/specs", "must be an array" },
        { "{\"specs\":[]}", "/specs", "1 to 1000" },
        { "{\"spec\":[]}", "/spec", "did you mean 'specs'" },
        { "{\"specs\":[1]}", "/specs/0", "must be an object" },
        { "{\"specs\":[{}]}", "/specs/0", "'text' is missing" },
        { "{\"specs\":[{\"text\":1}]}", "/specs/0/text", "must be a string" },
        { "{\"specs\":[{\"text\":\"\",\"fles\":{}}]}", "/specs/0/fles", "did you mean 'files'" },
        { "{\"specs\":[{\"text\":\"\",\"files\":{\"a\":\"xyz\"}}]}", "/specs/0/files/a",
          "no hash" },
        { "{\"specs\":[{\"text\":\"\",\"vars\":{\"a\":1}}]}", "/specs/0/vars/a", "a string" },
        { "{\"specs\":[{\"text\":\"\",\"vars\":{\"a\":\"x\\u0000\"}}]}", "/specs/0/vars/a", "NUL" },
        { "{\"specs\":[{\"text\":\"\"}],\"dry_run\":1}", "/dry_run", "a boolean" },
        { "{\"specs\":[{\"text\":\"\"}],\"specs\":[]}", "/specs", "" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct submit_body b;
        struct errs es = { 0 };
        struct arena a = { 0 };
        if (parse(bad[i].text, &b, &es, &a) != ERR_INPUT)
            fail_msg("taken: %s", bad[i].text);
        assert_true(es.n > 0);
        assert_true(es.v[0].line > 0);
        assert_string_equal(es.v[0].pointer, bad[i].pointer);
        assert_non_null(strstr(es.v[0].text, bad[i].error));
        errs_free(&es);
        arena_free(&a);
    }
}

/* ---- texts ---- */

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *p;
        size_t len;
        const char *want;
    } v[] = { { NULL, 0, "\"k\":null" },
              { "", 0, "\"k\":\"\"" },
              { "a\"\xc3\xa4\n", 5, "\"k\":\"a\\\"\xc3\xa4\\n\"" },
              { "\xff", 1, "\"k_b64\":\"/w==\"" },
              { "\xff\xfe", 2, "\"k_b64\":\"//4=\"" },
              { "\xff\xfe\x01", 3, "\"k_b64\":\"//4B\"" },
              { "\xff\xfe\x01\x02", 4, "\"k_b64\":\"//4BAg==\"" } };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct sbuf out = { 0 };
        text_bytes(&out, "k", v[i].p, v[i].len);
        assert_string_equal(sbuf_str(&out), v[i].want);
        sbuf_free(&out);
    }
}

static void test_errors(void **state) {
    (void)state;
    struct err v[3];
    struct sbuf out = { 0 };
    err_set(&v[0], ERR_CONFLICT, "taken \"x\"");
    err_set(&v[1], ERR_INPUT, "wrong");
    err_set(&v[2], ERR_SYSTEM, "full");
    v[2].retriable = true;
    assert_int_equal(text_status(v, 1), 409);
    assert_int_equal(text_status(v, 2), 400);
    assert_int_equal(text_status(v, 3), 503);
    v[2].retriable = false;
    assert_int_equal(text_status(v, 3), 500);
    v[1].code = ERR_NOTFOUND;
    assert_int_equal(text_status(v + 1, 1), 404);
    text_errors(&out, v, 2, 7);
    json_t *j = json_loads(sbuf_str(&out), JSON_REJECT_DUPLICATES, NULL), *e;
    assert_non_null(j);
    e = json_object_get(j, "error");
    assert_string_equal(json_string_value(json_object_get(e, "code")), "conflict");
    assert_int_equal(json_integer_value(json_object_get(e, "total")), 7);
    assert_int_equal(json_array_size(json_object_get(e, "errors")), 2);
    json_decref(j);
    sbuf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openapi),   cmocka_unit_test(test_openapi_refs),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_submit_body),
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_submit_body_errors),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
