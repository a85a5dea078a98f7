/* Any bytes as a dataflow file, then through the planner beside a running dataflow: errors have a
 * place inside the text; what is accepted can be submitted, explained, drawn, saved, replaced by
 * itself and removed, and leaves nothing behind. */
#include "operators/all.h"
#include "planner/explain.h"
#include "planner/merge.h"
#include "planner/show.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *var(void *user, const char *name, bool secret) {
    (void)user;
    return secret ? NULL : strcmp(name, "TOPIC") == 0 ? "sys" : strlen(name) > 3 ? NULL : "5";
}
static int resolve(void *user, const char *name, struct file *f, struct err *e) {
    static const char text[] = "a,b\nm,m\nv,sv\n";
    (void)user;
    if (strlen(name) > 8)
        return err_set(e, ERR_NOTFOUND, "there is no file '%.20s'", name);
    f->data = text;
    f->len = sizeof text - 1;
    memset(f->hash, '0' + (int)strlen(name), sizeof f->hash - 1);
    return 0;
}
static const struct spec_env env = { .var = var, .file = resolve };

static const char running[] =
    "{\"braid\":1,\"name\":\"running\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\",\"config\":{"
    "\"topic\":\"sys\",\"format\":\"senml\",\"schema\":{\"source\":\"string\",\"temperature\":"
    "\"f64\"}}},{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"clean\"},\"inputs\":["
    "\"in\"]}]}";

static void require(bool x) {
    if (!x)
        abort();
}

static int submit(struct plan *p, const char *text, size_t len, struct arena *a, struct errs *es) {
    struct spec s;
    struct plan_cut cut = { 1, 0 };
    int before = es->total, rc = spec_parse(&s, "f", text, len, &env, a, es, NULL);
    require((rc < 0) == (es->total > before));
    return rc < 0 ? rc : plan_submit(p, &s, &cut, NULL, es);
}

static void use(struct plan *p) {
    struct sbuf b = { 0 };
    struct show all = { 0 };
    plan_commit(p);
    show_tree(p, &all, &b);
    show_dot(p, &all, &b);
    show_json(p, &all, &b);
    explain_text(p, p->last, &b);
    explain_json(p, p->last, &b);
    b.len = 0;
    plan_save(p, p->last, &b);
    sbuf_free(&b);
}

/* A running dataflow replaced by itself: everything goes on. */
static void replace(struct plan *p, const char *text, size_t len, struct arena *a,
                    struct errs *es) {
    struct spec s;
    struct plan_cut cut = { 2, 0 };
    require(spec_parse(&s, "f", text, len, &env, a, es, NULL) == 0);
    require(plan_replace(p, s.name, &s, &cut, es) == 0);
    const struct change *c = plan_change(p);
    require(c->nadd == 0 && c->nremove == 0);
    plan_rollback(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool ready;
    if (!ready)
        operators_init();
    ready = true;
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct plan *p = plan_new();
    require(submit(p, running, sizeof running - 1, &a, &es) == 0);
    plan_commit(p);
    uint64_t stages = p->counts.stages;
    if (submit(p, (const char *)data, size, &a, &es) == 0) {
        char *name = strdup(p->last->name);
        use(p);
        replace(p, (const char *)data, size, &a, &es);
        require(plan_remove(p, name, NULL, NULL) == 0);
        free(name);
    }
    for (int i = 0; i < es.n; i++)
        require(es.v[i].offset <= (long)size && es.v[i].text[0]);
    const struct change *c = plan_change(p);
    uint64_t *gone = malloc(sizeof *gone * ((size_t)c->nremove + 1));
    int n = c->nremove;
    memcpy(gone, c->remove, sizeof *gone * (size_t)n);
    plan_commit(p);
    for (int i = 0; i < n; i++)
        plan_freed(p, gone[i]);
    free(gone);
    require(p->counts.stages == stages && p->ninsts == stages);
    plan_free(p);
    errs_free(&es);
    arena_free(&a);
    return 0;
}
