/* The OPMW workloads through the converter, the parser and the planner: exact counts of submitted
 * and running tasks, sources counted, sinks not. The same counts come from a second way of counting
 * over the parsed files, which can also ignore out-ports: then it must find one task fewer. */
#include "operators/all.h"
#include "planner/merge.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILES_MAX = 100, SIGS_MAX = 4000, LINKS_MAX = 64 };

struct file_text {
    char name[256];
    char *text;
    size_t len;
};
struct workload {
    char dir[64];
    int n;
    struct file_text v[FILES_MAX];
};

static int by_name(const void *a, const void *b) {
    const struct file_text *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static char *read_all(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    assert_int_equal(fread(text, 1, *len, f), *len);
    fclose(f);
    text[*len] = 0;
    return text;
}

static void load(struct workload *w, const char *set) {
    char cmd[200], path[400];
    snprintf(w->dir, sizeof w->dir, "%s/braid-opmw-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    snprintf(cmd, sizeof cmd, "dataflows/opmw/convert %s %s", set, w->dir);
    assert_int_equal(system(cmd), 0);
    DIR *d = opendir(w->dir);
    assert_non_null(d);
    w->n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        struct file_text *f = &w->v[w->n++];
        assert_true(w->n < FILES_MAX);
        snprintf(f->name, sizeof f->name, "%s", e->d_name);
        snprintf(path, sizeof path, "%s/%s", w->dir, e->d_name);
        f->text = read_all(path, &f->len);
        unlink(path);
    }
    closedir(d);
    rmdir(w->dir);
    qsort(w->v, (size_t)w->n, sizeof *w->v, by_name);
}

static void unload(struct workload *w) {
    for (int i = 0; i < w->n; i++)
        free(w->v[i].text);
}

/* ---- the second way: text signatures over the parsed tasks ---- */

static char *sigs[SIGS_MAX];
static int nsigs;

static int intern(const char *text) {
    int i = 0;
    while (i < nsigs && strcmp(sigs[i], text) != 0)
        i++;
    if (i == nsigs) {
        assert_true(nsigs < SIGS_MAX);
        sigs[nsigs++] = strdup(text);
    }
    return i;
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

static void count_flow(const struct spec *s, bool out_ports) {
    int *sig = calloc((size_t)s->ntasks, sizeof *sig);
    struct sbuf b = { 0 };
    for (int i = 0; i < s->ntasks; i++) {
        const struct spec_task *t = &s->tasks[s->order[i]];
        char in[LINKS_MAX][300];
        if (t->op->flags & OP_SINK)
            continue;
        assert_true(t->ninputs <= LINKS_MAX);
        for (int k = 0; k < t->ninputs; k++) {
            const struct spec_input *l = &t->inputs[k];
            bool source = s->tasks[l->from].op->flags & OP_SOURCE;
            snprintf(in[k], sizeof in[k], "%s<%s<%d", l->in_port,
                     out_ports && !source ? l->out_port : "", sig[l->from]);
        }
        qsort(in, (size_t)t->ninputs, sizeof in[0], by_text);
        b.len = 0;
        sbuf_adds(&b, t->op->name);
        params_canonical(t->op, t->config, false, &b);
        for (int k = 0; k < t->ninputs; k++)
            sbuf_printf(&b, " %s", in[k]);
        sig[s->order[i]] = intern(sbuf_str(&b));
    }
    sbuf_free(&b);
    free(sig);
}

static int count_all(const struct workload *w, bool out_ports) {
    nsigs = 0;
    for (int i = 0; i < w->n; i++) {
        struct arena a = { 0 };
        struct errs es = { 0 };
        struct spec s;
        assert_int_equal(spec_parse(&s, NULL, w->v[i].text, w->v[i].len, NULL, &a, &es, NULL), 0);
        count_flow(&s, out_ports);
        arena_free(&a);
    }
    int n = nsigs;
    while (nsigs)
        free(sigs[--nsigs]);
    return n;
}

/* ---- the planner ---- */

static void submit(struct plan *p, const struct file_text *f, uint64_t cut) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct spec s;
    struct plan_cut c = { cut, 0 };
    char buf[2000];
    if (spec_parse(&s, f->name, f->text, f->len, NULL, &a, &es, NULL) < 0 ||
        plan_submit(p, &s, &c, NULL, &es) < 0)
        fail_msg("%s", err_format(&es.v[0], buf, sizeof buf));
    plan_commit(p);
    arena_free(&a);
}

static void check_workload(const char *set, int files, int submitted, int running, int blind) {
    struct workload w, again;
    load(&w, set);
    load(&again, set); /* the converter gives the same bytes each time */
    assert_int_equal(w.n, files);
    assert_int_equal(again.n, files);
    for (int i = 0; i < w.n; i++)
        assert_string_equal(w.v[i].text, again.v[i].text);
    struct plan *p = plan_new();
    for (int i = 0; i < w.n; i++)
        submit(p, &w.v[i], (uint64_t)i + 1);
    print_message("%s: %d dataflows, %d tasks, %d running\n", set, w.n, (int)p->counts.submitted,
                  (int)p->counts.tasks);
    assert_int_equal(p->counts.submitted, submitted);
    assert_int_equal(p->counts.tasks, running);
    assert_int_equal(count_all(&w, true), running);
    assert_int_equal(count_all(&w, false), blind);
    for (int i = 0; i < w.n; i++) {
        const struct change *c;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strlen(w.v[i].name) - 5, w.v[i].name);
        assert_int_equal(plan_remove(p, name, &c, NULL), 0);
        uint64_t gone[200];
        int n = c->nremove;
        assert_true(n <= 200);
        memcpy(gone, c->remove, sizeof *gone * (size_t)n);
        plan_commit(p);
        for (int k = 0; k < n; k++)
            plan_freed(p, gone[k]);
    }
    assert_int_equal(p->counts.tasks + p->counts.sinks + p->counts.stages + p->ninsts, 0);
    plan_free(p);
    unload(&w);
    unload(&again);
}

static void test_top35(void **state) {
    (void)state;
    check_workload("top35", 35, 375, 204, 203);
}
static void test_distinct62(void **state) {
    (void)state;
    check_workload("distinct62", 62, 456, 252, 251);
}
static void test_all71(void **state) {
    (void)state;
    check_workload("all71", 71, 533, 252, 251);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_top35),
                                        cmocka_unit_test(test_distinct62),
                                        cmocka_unit_test(test_all71) };
    operators_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
