/* What a restart needs: which instance each stage of a dataflow was bound to. */
#include "engine/json.h"
#include "planner/merge.h"
#include <string.h>

/* 1 goes without saying: journals of before have none. */
static int64_t state_version(const struct op_desc *op) {
    return op->state_version > 1 ? op->state_version : 1;
}

void plan_save(const struct plan *p, const struct flow *f, struct sbuf *out) {
    (void)p;
    sbuf_adds(out, "{\"name\":");
    sbuf_json_str(out, f->name, strlen(f->name));
    sbuf_adds(out, ",\"stages\":[");
    for (int i = 0; i < f->ntasks; i++) {
        const struct flow_task *t = &f->tasks[i];
        for (int k = 0; k < t->nstages; k++) {
            const struct inst *in = f->stage[t->first + k];
            char sig[33];
            sig_text(in->def->sig, sig);
            sbuf_printf(out,
                        "%s{\"task\":\"%s\",\"type\":\"%s\",\"sig\":\"%s\",\"instance\":%llu,"
                        "\"cut\":%lld,\"time\":%lld",
                        i + k ? "," : "", t->id, in->def->op->name, sig,
                        (unsigned long long)in->def->instance, (long long)in->cut.id,
                        (long long)in->cut.time);
            if (state_version(in->def->op) > 1)
                sbuf_printf(out, ",\"state\":%lld", (long long)state_version(in->def->op));
            sbuf_adds(out, "}");
        }
    }
    sbuf_adds(out, "]}");
}

static int64_t int_member(const struct jnode *n, const char *key) {
    const struct jnode *v = jnode_get(n, key);
    return v && v->type == J_INT ? v->i : 0;
}

static const char *str_member(const struct jnode *n, const char *key) {
    const struct jnode *v = jnode_get(n, key);
    return v && v->type == J_STR ? v->s : "";
}

/* The saved stages come task by task in the file's order; the text is the same, so they meet the
 * spec's stages one by one, unless a face is lowered otherwise today. */
static const struct jnode *bind_task(const struct spec *s, const struct spec_task *t,
                                     const struct jnode *saved, struct plan_bound *bound) {
    int k = 0;
    for (; saved && strcmp(str_member(saved, "task"), t->id) == 0; saved = saved->next, k++) {
        int i = t->first + k;
        if (k >= t->nstages || strcmp(str_member(saved, "type"), s->stages[i].op->name) != 0 ||
            sig_parse(str_member(saved, "sig"), &bound[i].sig) < 0)
            continue;
        if ((jnode_get(saved, "state") ? int_member(saved, "state") : 1) !=
            state_version(s->stages[i].op))
            continue;
        bound[i].instance = (uint64_t)int_member(saved, "instance");
        bound[i].cut =
            (struct plan_cut){ (uint64_t)int_member(saved, "cut"), int_member(saved, "time") };
    }
    return saved;
}

int plan_restore(struct plan *p, const struct spec *s, const char *saved, size_t len,
                 const struct plan_cut *cut, struct errs *es) {
    struct json_doc doc = { 0 };
    struct arena a = { 0 };
    struct plan_bound *bound = arena_zalloc(&a, sizeof *bound * (size_t)(s->nstages + 1));
    int rc = json_parse(&doc, "saved plan", saved, len, &a, es);
    const struct jnode *list = rc == 0 ? jnode_get(doc.root, "stages") : NULL;
    const struct jnode *at = list && list->type == J_ARR ? list->child : NULL;
    for (int i = 0; i < s->ntasks && rc == 0; i++)
        at = bind_task(s, &s->tasks[i], at, bound);
    if (rc == 0)
        rc = merge_bound(p, s, cut, bound, es);
    arena_free(&a);
    return rc;
}

uint64_t plan_next(const struct plan *p) {
    return p->next_instance;
}

void plan_set_next(struct plan *p, uint64_t version, uint64_t next) {
    p->version = version;
    if (next > p->next_instance)
        p->next_instance = next;
}
