/* Dataflow files: every file of tests/corpus/spec/valid is accepted, every one of invalid gives
 * exactly the messages that stand beside it in NAME.err (BRAID_UPDATE=1 writes them anew: read what
 * changed). Beside that limits, damage at every byte, and spellings that mean the same. */
#include "operators/all.h"
#include "planner/spec.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CORPUS "tests/corpus/spec/"
enum { FILES_MAX = 400 };

static const char *var(void *user, const char *name, bool secret) {
    (void)user;
    if (secret)
        return strcmp(name, "password") == 0 ? "hunter2" : NULL;
    return strcmp(name, "TOPIC") == 0 ? "sys" : strcmp(name, "WINDOW") == 0 ? "5" : NULL;
}

static char *read_all(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    assert_int_equal(fread(text, 1, *len, f), *len);
    fclose(f);
    text[*len] = 0;
    return text;
}

static struct arena files;
static int resolve(void *user, const char *name, struct file *f, struct err *e) {
    char path[400];
    (void)user;
    snprintf(path, sizeof path, CORPUS "files/%s", name);
    char *text = read_all(path, &f->len);
    if (!text)
        return err_set(e, ERR_NOTFOUND, "there is no file '%s' beside the dataflow", name);
    f->data = arena_strndup(&files, text, f->len);
    free(text);
    snprintf(f->hash, sizeof f->hash, "%032d", 7);
    return 0;
}
static const struct spec_env env = { .var = var, .file = resolve };

/* Parses a copy of exactly `len` bytes, so that a sanitizer sees a read beyond the end. */
static int parse(struct spec *s, const char *file, const char *text, size_t len, struct arena *a,
                 struct errs *es) {
    char *exact = malloc(len ? len : 1);
    memcpy(exact, text, len);
    int rc = spec_parse(s, file, exact, len, &env, a, es, NULL);
    assert_int_equal(rc, es->total ? ERR_INPUT : 0);
    free(exact);
    return rc;
}

static char *names[FILES_MAX];
static int nnames;
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
static void list(const char *dir) {
    DIR *d = opendir(dir);
    assert_non_null(d);
    nnames = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len > 5 && strcmp(e->d_name + len - 5, ".json") == 0) {
            assert_true(nnames < FILES_MAX);
            names[nnames++] = strndup(e->d_name, len - 5);
        }
    }
    closedir(d);
    qsort(names, (size_t)nnames, sizeof *names, by_text);
    assert_true(nnames > 5);
}
static void unlist(void) {
    while (nnames)
        free(names[--nnames]);
}

static void messages(const struct errs *es, struct sbuf *out) {
    char buf[2000];
    for (int i = 0; i < es->n; i++)
        sbuf_printf(out, "%s\n", err_format(&es->v[i], buf, sizeof buf));
}

static void test_valid(void **state) {
    (void)state;
    list(CORPUS "valid");
    for (int i = 0; i < nnames; i++) {
        char path[400];
        size_t len;
        struct arena a = { 0 };
        struct errs es = { 0 };
        struct spec s;
        struct sbuf b = { 0 };
        snprintf(path, sizeof path, CORPUS "valid/%s.json", names[i]);
        char *text = read_all(path, &len);
        parse(&s, names[i], text, len, &a, &es);
        messages(&es, &b);
        if (es.total)
            fail_msg("%s", sbuf_str(&b));
        sbuf_free(&b);
        free(text);
        errs_free(&es);
        arena_free(&a);
    }
    unlist();
}

static void test_invalid(void **state) {
    (void)state;
    int wrong = 0;
    list(CORPUS "invalid");
    for (int i = 0; i < nnames; i++) {
        char path[400], file[300];
        size_t len, want_len = 0;
        struct arena a = { 0 };
        struct errs es = { 0 };
        struct spec s;
        struct sbuf b = { 0 };
        snprintf(path, sizeof path, CORPUS "invalid/%s.json", names[i]);
        snprintf(file, sizeof file, "%s.json", names[i]);
        char *text = read_all(path, &len);
        assert_int_equal(parse(&s, file, text, len, &a, &es), ERR_INPUT);
        messages(&es, &b);
        snprintf(path, sizeof path, CORPUS "invalid/%s.err", names[i]);
        char *want = read_all(path, &want_len);
        if (getenv("BRAID_UPDATE")) {
            FILE *f = fopen(path, "wb");
            fwrite(b.p, 1, b.len, f);
            fclose(f);
        } else if (!want || strcmp(want, sbuf_str(&b)) != 0) {
            print_error("%s: expected\n%sgot\n%s", file, want ? want : "(no .err)\n", sbuf_str(&b));
            wrong++;
        }
        sbuf_free(&b);
        free(want);
        free(text);
        errs_free(&es);
        arena_free(&a);
    }
    print_message("%d files\n", nnames);
    unlist();
    assert_int_equal(wrong, 0);
}

/* Every prefix of a valid file is an error at a place inside it; every byte changed to others is an
 * error or not, but never worse. */
static void test_damage(void **state) {
    (void)state;
    static const char other[] = "\"{}[]:,\\0x \x80";
    list(CORPUS "valid");
    for (int i = 0; i < nnames; i++) {
        char path[400];
        size_t len;
        snprintf(path, sizeof path, CORPUS "valid/%s.json", names[i]);
        char *text = read_all(path, &len);
        while (len > 0 && text[len - 1] <= ' ')
            len--;
        for (size_t n = 0; n < len; n++) {
            struct arena a = { 0 };
            struct errs es = { 0 };
            struct spec s;
            assert_int_equal(parse(&s, NULL, text, n, &a, &es), ERR_INPUT);
            assert_true(es.v[0].line >= 1 && es.v[0].col >= 1);
            assert_true(es.v[0].offset >= 0 && es.v[0].offset <= (long)n);
            errs_free(&es);
            char was = text[n];
            text[n] = other[n % (sizeof other - 1)];
            arena_reset(&a);
            parse(&s, NULL, text, len, &a, &es);
            text[n] = was;
            errs_free(&es);
            arena_free(&a);
        }
        free(text);
    }
    unlist();
}

/* ---- limits ---- */

static int parse_text(struct sbuf *b, struct errs *es) {
    struct arena a = { 0 };
    struct spec s;
    int rc = parse(&s, NULL, sbuf_str(b), b->len, &a, es);
    arena_free(&a);
    return rc;
}

/* n tasks in a chain behind a source; `first` reads `from`. */
static void chain(struct sbuf *b, int n, const char *from) {
    b->len = 0;
    sbuf_adds(b, "{\"braid\":1,\"name\":\"n\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\","
                 "\"config\":{\"topic\":\"t\"}}");
    for (int i = 1; i < n; i++) {
        char up[20];
        snprintf(up, sizeof up, "t%d", i - 1);
        sbuf_printf(b, ",{\"id\":\"t%d\",\"type\":\"pi_viete\",\"inputs\":[\"%s\"]}", i,
                    i == 1 ? from : up);
    }
    sbuf_adds(b, "]}");
}

static void expect(struct sbuf *b, const char *part) {
    struct errs es = { 0 };
    assert_int_equal(parse_text(b, &es), ERR_INPUT);
    if (!strstr(es.v[0].text, part))
        fail_msg("no \"%s\" in \"%s\"", part, es.v[0].text);
    errs_free(&es);
}

static void test_limits(void **state) {
    (void)state;
    struct sbuf b = { 0 };
    struct errs es = { 0 };
    chain(&b, SPEC_TASKS_MAX, "s");
    assert_int_equal(parse_text(&b, &es), 0);
    chain(&b, SPEC_TASKS_MAX + 1, "s");
    expect(&b, "1001 tasks; 1 to 1000 are allowed");
    chain(&b, SPEC_TASKS_MAX, "t999"); /* the message of a long cycle is cut, not the report */
    expect(&b, "999 tasks form a cycle: t1 -> t2 -> ");
    /* one task with too many inputs */
    chain(&b, 1, "s");
    b.len -= 2;
    sbuf_adds(&b, ",{\"id\":\"p\",\"type\":\"pi_viete\",\"inputs\":[");
    for (int i = 0; i <= SPEC_LINKS_MAX; i++)
        sbuf_printf(&b, "%s{\"from\":\"s\",\"to\":\"p%d\"}", i ? "," : "", i);
    sbuf_adds(&b, "]}]}");
    expect(&b, "more than 10000 inputs");
    /* 65 in-ports */
    chain(&b, 1, "s");
    b.len -= 2;
    sbuf_adds(&b, ",{\"id\":\"p\",\"type\":\"pi_viete\",\"inputs\":[");
    for (int i = 0; i <= OP_PORTS_MAX; i++)
        sbuf_printf(&b, "%s{\"from\":\"s\",\"to\":\"p%d\"}", i ? "," : "", i);
    sbuf_adds(&b, "]}]}");
    expect(&b, "more than 64 in-ports");
    /* a string of 1 MiB */
    b.len = 0;
    sbuf_adds(&b, "{\"braid\":1,\"name\":\"n\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\","
                  "\"config\":{\"topic\":\"");
    for (int i = 0; i < 1 << 20; i++)
        sbuf_add(&b, "x", 1);
    sbuf_adds(&b, "\"}}]}");
    expect(&b, "1048576 bytes; at most 65536");
    /* a file beyond all limits */
    while (b.len <= SPEC_TEXT_MAX) {
        sbuf_reserve(&b, b.len);
        sbuf_add(&b, b.p, b.len);
    }
    expect(&b, "at most 16777216 are allowed");
    sbuf_free(&b);
}

/* More errors than are kept: all counted. */
static void test_many(void **state) {
    (void)state;
    struct sbuf b = { 0 };
    struct errs es = { 0 };
    sbuf_adds(&b, "{\"braid\":1,\"name\":\"n\",\"tasks\":[");
    for (int i = 0; i < 500; i++)
        sbuf_printf(&b, "%s{\"id\":\"t%d\",\"type\":\"nothing\"}", i ? ",\n" : "", i);
    sbuf_adds(&b, "]}");
    assert_int_equal(parse_text(&b, &es), ERR_INPUT);
    assert_int_equal(es.n, ERRS_MAX);
    assert_int_equal(es.total, 500);
    for (int i = 1; i < es.n; i++) /* in the order of the file */
        assert_true(es.v[i].offset > es.v[i - 1].offset);
    errs_free(&es);
    sbuf_free(&b);
}

/* ---- spellings ---- */

static struct sig last_sig(const char *tasks, const char *id) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct sbuf b = { 0 };
    struct spec s;
    struct sig sig = { 0, 0 };
    sbuf_printf(&b, "{\"braid\":1,\"name\":\"n\",\"tasks\":[%s]}", tasks);
    if (parse(&s, NULL, sbuf_str(&b), b.len, &a, &es) < 0)
        fail_msg("%s", es.v[0].text);
    for (int i = 0; i < s.ntasks; i++)
        if (strcmp(s.tasks[i].id, id) == 0)
            sig = s.stages[s.tasks[i].first + s.tasks[i].nstages - 1].sig;
    sbuf_free(&b);
    arena_free(&a);
    return sig;
}

#define SCHEMA "\"schema\":{\"source\":\"string\",\"temperature\":\"f64\"}"
#define SOURCE(more)                                                                               \
    "{\"id\":\"a\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"senml\"," SCHEMA   \
        more "}}"
#define FILTER(config, inputs)                                                                     \
    ",{\"id\":\"b\",\"type\":\"range_filter\",\"config\":{" config "},\"inputs\":[" inputs "]}"

static void same(const char *x, const char *y, const char *id) {
    if (!sig_equal(last_sig(x, id), last_sig(y, id)))
        fail_msg("not the same:\n%s\n%s", x, y);
}
static void differ(const char *x, const char *y, const char *id) {
    if (sig_equal(last_sig(x, id), last_sig(y, id)))
        fail_msg("the same:\n%s\n%s", x, y);
}

static void test_spellings(void **state) {
    (void)state;
    same(SOURCE(), SOURCE(",\"lateness\":\"0ms\""), "a");
    same(SOURCE(), SOURCE(",\"start\":\"earliest\""), "a"); /* attach */
    same(SOURCE(",\"lateness\":\"60s\""), SOURCE(",\"lateness\":\"1m\""), "a");
    differ(SOURCE(), SOURCE(",\"lateness\":\"1s\""), "a");
    same(SOURCE(),
         "{\"id\":\"r\",\"type\":\"source\",\"config\":{\"topic\":\"t\"}},"
         "{\"id\":\"a\",\"type\":\"senml_parse\",\"config\":{" SCHEMA "},\"inputs\":[\"r\"]}",
         "a");
    same(SOURCE() FILTER("\"ranges\":{\"temperature\":[1,2.5]}", "\"a\""),
         SOURCE() FILTER("\"ranges\":{\"temperature\":[1.0,25e-1]}", "{\"from\":\"a.out\"}"), "b");
    same(SOURCE() FILTER("\"ranges\":{\"temperature\":[1,2]}", "\"a\""),
         SOURCE()
             FILTER("\"ranges\":{\"temperature\":[1,2]}", "{\"from\":\"a\",\"by\":[\"source\"]}"),
         "b"); /* grouping of a stateless task */
    differ(SOURCE() FILTER("\"ranges\":{\"temperature\":[1,2]}", "\"a\""),
           SOURCE() FILTER("\"ranges\":{\"temperature\":[1,3]}", "\"a\""), "b");
    differ(SOURCE() FILTER("\"ranges\":{\"temperature\":[1,2]}", "\"a\""),
           SOURCE(",\"lateness\":\"1s\"") FILTER("\"ranges\":{\"temperature\":[1,2]}", "\"a\""),
           "b");
}

/* The tables of keys, from which docs/spec.md is made, are what the parser goes by: each refuses a
 * value of another type, one that is required is missed, and a name not in the table is unknown. */
static void check_key(const char *before, const char *after, const char *pointer,
                      const struct spec_key *k) {
    struct sbuf b = { 0 };
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct spec s;
    char want[64];
    bool found = false;
    snprintf(want, sizeof want, "%s/%s", pointer, k->name);
    sbuf_printf(&b, "%s\"%s\":%s%s", before, k->name, k->type == J_BOOL ? "7" : "true", after);
    parse(&s, NULL, sbuf_str(&b), b.len, &a, &es);
    for (int i = 0; i < es.n; i++) {
        if (strstr(es.v[i].text, "unknown key"))
            fail_msg("%s: %s", want, es.v[i].text);
        found |= strcmp(es.v[i].pointer, want) == 0;
    }
    if (!found)
        fail_msg("%s takes a value of another type", want);
    errs_free(&es);
    b.len = 0;
    sbuf_printf(&b, "%s\"%sqqqqqqqq\":1%s", before, k->name, after);
    parse(&s, NULL, sbuf_str(&b), b.len, &a, &es);
    found = false;
    snprintf(want, sizeof want, strcmp(k->name, "braid") == 0 ? "\"%s\": " : "%s", k->name);
    for (int i = 0; i < es.n; i++)
        found |= !strstr(es.v[i].text, "unknown key") && strstr(es.v[i].text, want) &&
                 strcmp(es.v[i].pointer, pointer) == 0;
    if (found != k->required)
        fail_msg("%s/%s is %srequired by the parser", pointer, k->name, found ? "" : "not ");
    errs_free(&es);
    sbuf_free(&b);
    arena_free(&a);
}
static void test_tables(void **state) {
    (void)state;
    for (const struct spec_key *k = spec_top_keys; k->name; k++)
        check_key("{", "}", "", k);
    for (const struct spec_key *k = spec_task_keys; k->name; k++)
        check_key(strcmp(k->name, "type") == 0
                      ? "{\"tasks\":[{"
                      : "{\"tasks\":[{\"type\":\"generator\",\"config\":{\"fields\":{}},",
                  "}]}", "/tasks/0", k);
    for (const struct spec_key *k = spec_input_keys; k->name; k++)
        check_key("{\"tasks\":[{\"id\":\"a\",\"type\":\"filter\",\"inputs\":[{", "}]}]}",
                  "/tasks/0/inputs/0", k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),  cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many),   cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_tables),
    };
    operators_init();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&files);
    return rc;
}
