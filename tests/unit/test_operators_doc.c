/* Every operator is documented, and its example and defaults are what its parser accepts: from
 * these texts come `braid operators`, docs/operators.md and the forms of the web page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/op.h"
#include "operators/all.h"
#include <cmocka.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int start(void **state) {
    (void)state;
    operators_init();
    return 0;
}
static void is_sentence(const char *op, const char *param, const char *text) {
    size_t n = text ? strlen(text) : 0;
    if (n < 10 || (text[n - 1] != '.' && strcmp(text + n - 2, ".)") != 0) ||
        (!isupper((unsigned char)text[0]) && text[0] != '`'))
        fail_msg("%s%s%s: no sentence: \"%s\"", op, param ? "." : "", param ? param : "", text);
    /* Markdown code must close. */
    int ticks = 0;
    for (const char *p = text; *p; p++)
        ticks += *p == '`';
    if (ticks % 2)
        fail_msg("%s: an open ` in \"%s\"", op, text);
}
static void is_name(const char *op, const char *name) {
    for (const char *p = name; *p; p++)
        if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
            fail_msg("%s: \"%s\" is not made of [a-z0-9_]", op, name);
    assert_true(islower((unsigned char)name[0]));
}
static void operators_are_described(void **state) {
    (void)state;
    assert_true(ops_count > 0);
    for (int i = 0; i < ops_count; i++) {
        const struct op_desc *d = ops_all[i];
        /* A stage's name may hold a dot: users never write it. */
        if (!(d->flags & OP_INNER))
            is_name(d->name, d->name);
        if (i)
            assert_true(strcmp(ops_all[i - 1]->name, d->name) < 0);
        assert_ptr_equal(ops_find(d->name), d);
        is_sentence(d->name, NULL, d->doc);
        if (d->semantics < 1)
            fail_msg("%s: semantics counts from 1", d->name);
    }
}
static void parameters_are_described(void **state) {
    (void)state;
    for (int i = 0; i < ops_count; i++)
        for (const struct param *p = ops_all[i]->params; p && p->name; p++) {
            const char *op = ops_all[i]->name;
            is_name(op, p->name);
            is_sentence(op, p->name, p->doc);
            if (p->offset >= ops_all[i]->config_size)
                fail_msg("%s.%s lies outside its config", op, p->name);
            if (p->type == PT_ENUM)
                assert_non_null(p->words);
            if (p->def && p->flags & PARAM_OPTIONAL)
                fail_msg("%s.%s is optional and has a default: one of them is never used", op,
                         p->name);
            for (const struct param *q = ops_all[i]->params; q != p; q++)
                assert_string_not_equal(q->name, p->name);
        }
}
static int any_file(void *user, const char *name, struct file *f, struct err *e) {
    (void)user;
    (void)e;
    *f = (struct file){ .name = name, .data = "a\n", .len = 2 };
    memset(f->hash, '0', 32);
    return 0;
}
static void parse(const struct op_desc *d, const char *json, int want) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc doc;
    void *config = calloc(1, d->config_size + 1);
    int rc = json_parse(&doc, NULL, json, strlen(json), &a, &es);
    if (rc == 0)
        rc = params_parse(d, &doc, doc.root, config, &a, any_file, NULL, &es);
    if (rc != want)
        fail_msg("%s: %s gives %d: %s", d->name, json, rc, es.n ? es.v[0].text : "");
    free(config);
    errs_free(&es);
    arena_free(&a);
}
static void examples_parse(void **state) {
    (void)state;
    for (int i = 0; i < ops_count; i++) {
        const struct op_desc *d = ops_all[i];
        if (d->flags & OP_INNER)
            continue;
        if (!d->example)
            fail_msg("%s has no example", d->name);
        parse(d, d->example, 0);
        parse(d, "{\"no_such_parameter\": 1}", ERR_INPUT);
    }
}
static void defaults_parse(void **state) {
    (void)state;
    for (int i = 0; i < ops_count; i++) {
        const struct op_desc *d = ops_all[i];
        for (const struct param *p = d->params; p && p->name; p++) {
            if (!p->def)
                continue;
            struct sbuf b = { 0 };
            sbuf_printf(&b, "{\"%s\": %s", p->name, p->def);
            /* Required ones beside it come from nowhere, so only this one's type is checked. */
            sbuf_adds(&b, "}");
            struct arena a = { 0 };
            struct errs es = { 0 };
            struct json_doc doc;
            void *config = calloc(1, d->config_size + 1);
            const char *text = sbuf_str(&b);
            assert_int_equal(json_parse(&doc, NULL, text, strlen(text), &a, &es), 0);
            params_parse(d, &doc, doc.root, config, &a, any_file, NULL, &es);
            for (int k = 0; k < es.n; k++)
                if (strstr(es.v[k].pointer, p->name))
                    fail_msg("%s.%s: default %s: %s", d->name, p->name, p->def, es.v[k].text);
            free(config);
            errs_free(&es);
            arena_free(&a);
            sbuf_free(&b);
        }
    }
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_are_described),
        cmocka_unit_test(parameters_are_described),
        cmocka_unit_test(examples_parse),
        cmocka_unit_test(defaults_parse),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
