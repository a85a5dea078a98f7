#include "tests/unit/flowrun.h"
#include "cluster/flowfile.h"
#include "operators/all.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

/* A fixed "now" after all recorded times: 2020-01-01. */
#define NOW_MS INT64_C(1577836800000)

static int on_rows(void *arg, const struct run_sink *s, const struct batch *b) {
    struct flowrun *r = arg;
    struct flowrun_sink *to = &r->sink[s->index];
    snprintf(to->name, sizeof to->name, "%s", s->name);
    for (uint32_t i = 0; i < b->n; i++) {
        struct span v = b->cols[0].str[batch_row(b, i)];
        sbuf_add(&to->out, v.p, v.len);
        sbuf_add(&to->out, "\n", 1);
    }
    to->rows += b->n;
    return 0;
}

static void fail_errors(const char *what, const struct errs *es) {
    char text[2048];
    fail_msg("%s: %s", what, es->n ? err_format(&es->v[0], text, sizeof text) : "?");
}

static void run_spec(struct flowrun *r, const struct spec *s, const struct dataset_conf *data,
                     uint32_t batch) {
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct run *run;
    struct run_input in = { .data = *data };
    const char *broken = NULL;
    for (int i = 0; i < s->nstages; i++)
        if (s->stages[i].reads)
            in.topic = s->stages[i].reads;
    struct run_conf conf = { .spec = s,
                             .ninputs = 1,
                             .inputs = &in,
                             .now_ms = NOW_MS,
                             .batch_rows = batch,
                             .rows = on_rows,
                             .arg = r };
    if (run_open(&run, &conf, &es) < 0)
        fail_errors(s->name, &es);
    r->nsinks = run_sinks(run);
    r->ntasks = run_tasks(run);
    assert_true(r->nsinks <= FLOWRUN_SINKS && r->ntasks <= FLOWRUN_TASKS);
    if (run_all(run, &e) < 0)
        fail_msg("%s: %s", s->name, e.text);
    for (int i = 0; i < r->ntasks; i++) {
        struct run_task t;
        run_task(run, i, &t);
        snprintf(r->task[i].id, sizeof r->task[i].id, "%s", t.id);
        snprintf(r->task[i].type, sizeof r->task[i].type, "%s", t.type);
        memcpy(r->task[i].signature, t.signature, sizeof r->task[i].signature);
        r->task[i].counts = t.counts;
    }
    struct run_totals totals;
    run_totals(run, &totals);
    r->records = totals.records;
    r->dead = totals.dead;
    if (!run_conserved(run, &broken))
        fail_msg("%s: rows of task '%s' are not conserved", s->name, broken);
    run_close(run);
    errs_free(&es);
}

void flowrun_file(struct flowrun *r, const char *file, const struct dataset_conf *data,
                  uint32_t batch) {
    struct arena a = { 0 };
    struct flowfile f;
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    *r = (struct flowrun){ 0 };
    if (!ops_count)
        operators_init();
    if (flowfile_load(&f, file, &a, &e) < 0)
        fail_msg("%s (tests run in the repository's root)", e.text);
    if (flowfile_parse(&f, &es, NULL) < 0)
        fail_errors(file, &es);
    run_spec(r, &f.spec, data, batch);
    errs_free(&es);
    arena_free(&a);
}

/* Files are named from the repository's root; their bytes live as long as the spec. */
static int read_file(void *user, const char *name, struct file *f, struct err *e) {
    FILE *in = fopen(name, "rb");
    if (!in)
        return err_set(e, ERR_NOTFOUND, "no file %s", name);
    size_t cap = 1 << 20;
    char *data = arena_alloc(user, cap);
    f->data = data;
    f->len = fread(data, 1, cap, in);
    fclose(in);
    assert_true(f->len < cap);
    snprintf(f->hash, sizeof f->hash, "%016llx",
             (unsigned long long)state_hash(data, (uint32_t)f->len));
    return 0;
}

void flowrun_text(struct flowrun *r, const char *text, const struct dataset_conf *data,
                  uint32_t batch) {
    struct arena a = { 0 };
    struct spec s;
    struct errs es = { 0 };
    struct spec_env env = { .user = &a, .file = read_file };
    *r = (struct flowrun){ 0 };
    if (!ops_count)
        operators_init();
    if (spec_parse(&s, "test.json", text, strlen(text), &env, &a, &es, NULL) < 0)
        fail_errors("test.json", &es);
    run_spec(r, &s, data, batch);
    errs_free(&es);
    arena_free(&a);
}

void flowrun_free(struct flowrun *r) {
    for (int i = 0; i < FLOWRUN_SINKS; i++)
        sbuf_free(&r->sink[i].out);
}
