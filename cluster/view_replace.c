/* What a replacement changes, task by task. */
#include "cluster/text.h"
#include "cluster/view.h"
#include "planner/take.h"
#include <string.h>

enum { NAMES_MAX = 16 /* of other dataflows, in one list */ };

static bool uses(const struct flow *f, const struct inst *in) {
    for (int i = 0; i < f->nuses; i++)
        if (f->uses[i].inst == in)
            return true;
    return false;
}

/* The former task whose instance begins another's state; NULL: none. */
static const struct flow_task *taken_from(const struct flow *former, const struct inst *in,
                                          const struct change_take *takes, int ntakes) {
    for (int i = 0; i < ntakes; i++) {
        if (takes[i].to != in->def->instance)
            continue;
        for (int k = 0; k < former->ntasks; k++)
            for (int j = 0; j < former->tasks[k].nstages; j++)
                if (former->stage[former->tasks[k].first + j]->def->instance == takes[i].from)
                    return &former->tasks[k];
    }
    return NULL;
}

static bool same_config(const struct inst *a, const struct inst *b) {
    return a->config_len == b->config_len &&
           memcmp(a->blob + a->config_off, b->blob + b->config_off, a->config_len) == 0;
}

/* Why a task is not the one that ran. */
static const char *why_new(const struct flow *f, const struct flow_task *t,
                           const struct flow_task *old, const struct flow *former) {
    if (!old)
        return "there was no task of this name";
    if (old->op != t->op)
        return "it was of another type";
    if (old->nstages != t->nstages)
        return "it is made of other stages";
    for (int k = 0; k < t->nstages; k++)
        if (!same_config(f->stage[t->first + k], former->stage[old->first + k]))
            return "its parameters have changed";
    return "what it reads has changed";
}

struct counts {
    int kept, joined, started, taken;
};

static void add_task(const struct flow *f, const struct flow *former, const struct flow_task *t,
                     const struct change_take *takes, int ntakes, struct counts *n,
                     struct sbuf *out) {
    const struct flow_task *old = flow_find_task(former, t->id), *from = NULL;
    bool kept = true, running = true;
    for (int k = 0; k < t->nstages; k++) {
        const struct inst *in = f->stage[t->first + k];
        kept &= uses(former, in);
        running &= in->state == INST_RUNNING;
        if (!from)
            from = taken_from(former, in, takes, ntakes);
    }
    const char *what = kept ? "kept" : running ? "joined" : from ? "taken" : "started";
    *(kept ? &n->kept : running ? &n->joined : from ? &n->taken : &n->started) += 1;
    sbuf_adds(out, "{\"task\":");
    text_json(out, t->id);
    sbuf_printf(out, ",\"type\":\"%s\",\"what\":\"%s\",\"from\":", t->op->name, what);
    text_json(out, from ? from->id : NULL);
    sbuf_adds(out, ",\"why\":");
    text_json(out, kept || running ? "" : why_new(f, t, old, former));
    sbuf_printf(out, ",\"takeable\":%s}",
                !kept && !running && !from && old && plan_takeable(f, t, former, old) ? "true"
                                                                                      : "false");
}

/* Former tasks that this dataflow no longer uses; others may. */
static int add_removed(const struct flow *f, const struct flow *former, struct sbuf *out) {
    int n = 0;
    for (int i = 0; i < former->ntasks; i++) {
        const struct inst *in = flow_last(former, &former->tasks[i]);
        int names = 0;
        if (uses(f, in))
            continue;
        sbuf_adds(out, n++ ? ",{\"task\":" : "{\"task\":");
        text_json(out, former->tasks[i].id);
        sbuf_adds(out, ",\"goes_on_for\":[");
        for (const struct use *u = in->uses; u && names < NAMES_MAX; u = u->next) {
            sbuf_adds(out, names++ ? "," : "");
            text_json(out, u->flow->name);
        }
        sbuf_adds(out, "]}");
    }
    return n;
}

void view_replaced(const struct flow *f, const struct flow *former, const struct change_take *takes,
                   int ntakes, struct sbuf *out) {
    struct counts n = { 0 };
    struct sbuf removed = { 0 };
    int gone = add_removed(f, former, &removed);
    sbuf_adds(out, "\"name\":");
    text_json(out, f->name);
    sbuf_adds(out, ",\"changes\":[");
    for (int i = 0; i < f->ntasks; i++) {
        sbuf_adds(out, i ? "," : "");
        add_task(f, former, &f->tasks[i], takes, ntakes, &n, out);
    }
    sbuf_printf(out,
                "],\"removed\":[%s],\"tasks\":%d,\"kept\":%d,\"joined\":%d,\"taken\":%d,"
                "\"started\":%d,\"stopped\":%d",
                sbuf_str(&removed), f->ntasks, n.kept, n.joined, n.taken, n.started, gone);
    sbuf_free(&removed);
}
