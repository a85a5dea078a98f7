#include "planner/take.h"
#include <stdio.h>
#include <string.h>

struct taking {
    const struct flow *f, *former;
    const struct spec *s;
    struct change_take *v;
    int n;
    struct errs *es;
    int rc;
};

/* ---- whether a stage can take over from another ---- */

static bool same_fields(const struct schema *a, const struct schema *b) {
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->f[i].name, b->f[i].name) != 0 || a->f[i].type != b->f[i].type ||
            a->f[i].dim != b->f[i].dim)
            return false;
    return true;
}

static bool same_form(const struct task_def *a, const struct task_def *b) {
    struct sbuf x = { 0 }, y = { 0 };
    params_form(a->op, a->config, &x);
    params_form(b->op, b->config, &y);
    bool same = x.len == y.len && memcmp(x.p, y.p, x.len) == 0;
    sbuf_free(&x);
    sbuf_free(&y);
    return same;
}

static bool same_keys(const struct task_def *a, const struct task_def *b) {
    if (a->nby != b->nby)
        return false;
    for (int i = 0; i < a->nby; i++)
        if (a->in[0]->f[a->by[i]].type != b->in[0]->f[b->by[i]].type)
            return false;
    return true;
}

/* Why not; NULL: it can. */
static const char *obstacle(const struct task_def *to, const struct task_def *from) {
    if (!same_keys(to, from))
        return "their keys ('by') have other types";
    if (to->nin != from->nin)
        return "they have other inputs";
    for (int i = 0; i < to->nin; i++)
        if (strcmp(to->in_name[i], from->in_name[i]) != 0 || !same_fields(to->in[i], from->in[i]))
            return "the rows they read have other fields";
    if (!same_form(to, from))
        return "their parameters differ in what shapes the state";
    if (task_parts(to) != task_parts(from))
        return "they run on other partitions";
    return NULL;
}

static bool remembers(const struct inst *in) {
    return in->def->op->memory != MEMORY_NONE &&
           !(in->def->op->flags & (OP_SOURCE | OP_SINK | OP_EXCHANGE));
}

/* The stage of `old` that does what stage k of `task` does: of the same operator, the same one in
 * order of those. */
static const struct inst *partner(const struct flow *f, const struct flow_task *task, int k,
                                  const struct flow *former, const struct flow_task *old) {
    const struct op_desc *op = f->stage[task->first + k]->def->op;
    int nth = 0;
    for (int i = 0; i < k; i++)
        nth += f->stage[task->first + i]->def->op == op;
    for (int i = 0; i < old->nstages; i++)
        if (former->stage[old->first + i]->def->op == op && nth-- == 0)
            return former->stage[old->first + i];
    return NULL;
}

/* ---- pairs ---- */

static void refuse(struct taking *t, const struct state_from *p, const char *text) {
    struct err e = ERR_INIT;
    if (p->at) {
        t->rc = json_error(t->es, &t->s->doc, p->at, false, "%s", text);
        return;
    }
    err_set(&e, ERR_INPUT, "state_from %s: %s", p->task, text);
    t->rc = errs_add(t->es, &e);
}

static bool taken(const struct taking *t, const struct inst *to) {
    for (int i = 0; i < t->n; i++)
        if (t->v[i].to == to->def->instance)
            return true;
    return false;
}

static void add(struct taking *t, const struct inst *from, const struct inst *to) {
    if (!taken(t, to))
        t->v[t->n++] = (struct change_take){ from->def->instance, to->def->instance };
}

static void unknown(struct taking *t, const struct state_from *p, const struct flow *f,
                    const char *id, const char *which) {
    const char *names[SPEC_TASKS_MAX];
    char text[400];
    for (int i = 0; i < f->ntasks; i++)
        names[i] = f->tasks[i].id;
    const char *near = err_nearest(id, names, f->ntasks);
    snprintf(text, sizeof text, "the %s dataflow has no task '%.100s'%s%s%s", which, id,
             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    refuse(t, p, text);
}

static void take_task(struct taking *t, const struct state_from *p) {
    const struct flow_task *task = flow_find_task(t->f, p->task),
                           *old = flow_find_task(t->former, p->from);
    char text[600];
    int stages = 0;
    if (!task || !old) {
        unknown(t, p, task ? t->former : t->f, task ? p->from : p->task, task ? "former" : "new");
        return;
    }
    for (int k = 0; k < task->nstages; k++) {
        const struct inst *to = t->f->stage[task->first + k];
        if (!remembers(to))
            continue;
        stages++;
        if (to->state != INST_NEW && to->def->op->flags & OP_INNER)
            continue; /* such as the time of a source that others read too */
        const struct inst *from = partner(t->f, task, k, t->former, old);
        const char *why = !from        ? "it is of another type"
                          : from == to ? NULL
                          : to->state != INST_NEW
                              ? "it joins a task that runs already, with a state "
                                "of its own"
                              : obstacle(to->def, from->def);
        if (why) {
            snprintf(text, sizeof text, "task '%.100s' cannot take the state of '%.100s': %s",
                     p->task, p->from, why);
            refuse(t, p, text);
            return;
        }
        if (from != to)
            add(t, from, to);
    }
    if (stages == 0) {
        snprintf(text, sizeof text, "task '%.100s' has no state to take", p->task);
        refuse(t, p, text);
    }
}

/* Two sinks of one file: else the new one would begin by emptying it. */
static void take_files(struct taking *t) {
    for (int i = 0; i < t->f->nstages; i++) {
        const struct inst *to = t->f->stage[i];
        if (to->state != INST_NEW || !(to->def->op->flags & OP_SINK) ||
            !op_config_text(to->def->op, to->def->config, "file"))
            continue;
        for (int k = 0; k < t->former->nstages; k++) {
            const struct inst *from = t->former->stage[k];
            if (from != to && from->def->op->flags & OP_SINK && from->topic == to->topic)
                add(t, from, to);
        }
    }
}

int plan_takes(const struct flow *f, const struct flow *former, const struct spec *s,
               const struct state_from *pairs, int npairs, struct change_take **takes, int *ntakes,
               struct arena *a, struct errs *es) {
    struct taking t = { .f = f, .former = former, .s = s, .es = es };
    t.v = ARENA_ARRAY(a, struct change_take, f->nstages + 1);
    for (int i = 0; i < npairs; i++)
        take_task(&t, &pairs[i]);
    for (int i = 0; i < s->nstate_from; i++) {
        int k = 0;
        while (k < npairs && strcmp(pairs[k].task, s->state_from[i].task) != 0)
            k++;
        if (k == npairs)
            take_task(&t, &s->state_from[i]);
    }
    take_files(&t);
    *takes = t.v;
    *ntakes = t.n;
    return t.rc;
}

bool plan_takeable(const struct flow *f, const struct flow_task *task, const struct flow *former,
                   const struct flow_task *old) {
    int stages = 0;
    for (int k = 0; k < task->nstages; k++) {
        const struct inst *to = f->stage[task->first + k];
        if (!remembers(to) || to->def->op->flags & OP_INNER)
            continue;
        const struct inst *from = partner(f, task, k, former, old);
        if (to->state != INST_NEW || !from || obstacle(to->def, from->def))
            return false;
        stages++;
    }
    return stages > 0;
}
