#include "planner/merge.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merging {
    struct plan *p;
    const struct spec *s;
    struct flow *f;
    struct plan_cut cut;
    const struct plan_bound *bound; /* restart: one a stage; else NULL */
    const struct flow *former;      /* replaced by this one; NULL: none */
    uint64_t former_stamp;          /* of the instances that it used */
    struct errs *es;
    struct inst **parents; /* of the stage at hand, by link */
    struct inst **table;   /* by stage: the running table that it joins; NULL: none */
    bool trying;           /* find_running only looks */
    bool timeless;         /* no timers and one source: watermarks cannot change its output */
};

/* ---- errors ---- */

/* At the parameter `param` of stage i's task, or the task. */
static int conflict(struct merging *m, int stage, const char *param, int code, const char *text) {
    const struct spec_task *t = &m->s->tasks[m->s->stages[stage].task];
    const struct jnode *n = jnode_get(t->config_at, param);
    int before = m->es->n;
    json_error(m->es, &m->s->doc, n ? n : t->at, false, "%s", text);
    if (m->es->n > before)
        m->es->v[before].code = code;
    return code;
}

/* ---- joining ---- */

static bool shareable(const struct op_desc *op) {
    return (op->flags & OP_DETERMINISTIC) && !(op->flags & OP_EFFECT_EXTERNAL);
}

/* The same computation over the same instances: canonical text and parents agree. */
static bool equal_inst(const struct merging *m, const struct inst *in,
                       const struct spec_stage *st) {
    if (in->blob_len != st->blob_len || memcmp(in->blob, st->blob, st->blob_len) != 0 ||
        in->def->nlinks != st->nlinks)
        return false;
    for (int k = 0; k < st->nlinks; k++)
        if (in->parent[k] != m->parents[k])
            return false;
    return true;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* A time stage remembers only the watermark. To a dataflow that never looks at it (for windows, or
 * for what is forgotten after a time), it is a stage without memory. */
static bool forgetful(const struct merging *m, const struct op_desc *op) {
    return op->memory == MEMORY_NONE ||
           (m->timeless && (op->flags & OP_INNER) && (op->flags & OP_SETS_TIME));
}

static bool spec_timeless(const struct spec *s) {
    int sources = 0;
    for (int i = 0; i < s->nstages; i++) {
        const struct spec_stage *st = &s->stages[i];
        sources += (st->op->flags & OP_SOURCE) != 0;
        if (st->op->flags & OP_TIMERS || (st->state && st->state->ttl != PARAM_UNSET) ||
            (st->op->looks_at_time && st->op->looks_at_time(st->config)))
            return false;
    }
    return sources == 1;
}

static bool former_inst(const struct merging *m, const struct inst *in) {
    return m->former && in->stamp == m->former_stamp;
}

/* Whether the history of a running instance is one that this dataflow accepts (merge.h). */
static bool joinable(const struct merging *m, const struct inst *in, const struct spec_stage *st) {
    if (in->cut.id == m->cut.id) /* of one request: what differs there was meant to differ */
        return same_text(in->attach, st->attach);
    if (former_inst(m, in)) /* its own past, whatever the rule for others' */
        return same_text(in->attach, st->attach);
    if (st->attach)
        return false;
    if (m->s->history == HISTORY_SHARED)
        return true;
    return forgetful(m, st->op) && !in->attach;
}

/* Default attach parameters first, then the oldest. */
static bool better(const struct inst *a, const struct inst *b) {
    if (!b || !a->attach != !b->attach)
        return !b || !a->attach;
    return a->def->instance < b->def->instance;
}

/* What the replaced dataflow used comes first; what nobody may share goes on only there, once. */
static struct inst *find_running(const struct merging *m, const struct spec_stage *st) {
    struct inst *best = NULL, *own = NULL;
    bool shared = shareable(st->op);
    for (struct inst *in = model_lookup(m->p, st->sig); in; in = in->next_sig) {
        if (!sig_equal(in->def->sig, st->sig) || !equal_inst(m, in, st) || !joinable(m, in, st))
            continue;
        if (former_inst(m, in) && (shared || in->refs == 0) && better(in, own))
            own = in;
        if (shared && better(in, best))
            best = in;
    }
    if (own && !shared && !m->trying)
        own->stamp = 0;
    return own ? own : best;
}

/* On restart: the instance with the saved number, if its signature still holds. */
static bool find_bound(const struct merging *m, int i, struct inst **in, uint64_t *number,
                       struct plan_cut *cut) {
    const struct spec_stage *st = &m->s->stages[i];
    const struct plan_bound *b = &m->bound[i];
    if (!b->instance || !sig_equal(b->sig, st->sig))
        return false;
    *in = plan_instance(m->p, b->instance);
    if (*in)
        return (*in)->state != INST_GONE && equal_inst(m, *in, st);
    *number = b->instance;
    *cut = b->cut;
    return true;
}

/* The instances that feed stage i. Links that are alike but for the instance (two private copies of
 * one task) stand in order of number, so that order in the file does not matter. */
static void find_parents(struct merging *m, int i) {
    const struct spec_stage *st = &m->s->stages[i];
    m->parents = ARENA_ARRAY(&m->p->scratch, struct inst *, st->nlinks + 1);
    for (int k = 0; k < st->nlinks; k++) {
        int at = k;
        struct inst *in = m->f->stage[st->links[k].from];
        for (; at > 0 && in->def->instance < m->parents[at - 1]->def->instance &&
               canon_tie(m->s, st, at);
             at--)
            m->parents[at] = m->parents[at - 1];
        m->parents[at] = in;
    }
}

/* ---- tables ---- */

/* A table is read from its beginning, so who comes later needs a reader of its own; unless all
 * that its rows reach in this dataflow runs already, up to joins that have kept them. */
static bool is_table(const struct merging *m, int i) {
    const struct spec_stage *st = &m->s->stages[i];
    return st->attach && (st->op->flags & OP_SOURCE) &&
           (m->s->tasks[st->task].op->flags & OP_TABLE);
}

/* What runs already of the dataflow with the tables chosen so far. */
static void try_stages(struct merging *m) {
    m->trying = true;
    for (int i = 0; i < m->s->nstages; i++) {
        const struct spec_stage *st = &m->s->stages[i];
        bool fed = true;
        for (int k = 0; k < st->nlinks; k++)
            fed &= m->f->stage[st->links[k].from] != NULL;
        m->f->stage[i] = m->table[i];
        if (!fed || m->table[i])
            continue;
        find_parents(m, i);
        m->f->stage[i] = find_running(m, st);
    }
    m->trying = false;
}

static bool all_kept(struct merging *m, int table) {
    bool *carries = arena_zalloc(&m->p->scratch, (size_t)m->s->nstages);
    carries[table] = true;
    for (int i = table + 1; i < m->s->nstages; i++) {
        const struct spec_stage *st = &m->s->stages[i];
        for (int k = 0; k < st->nlinks; k++) {
            if (!carries[st->links[k].from])
                continue;
            if (!m->f->stage[i])
                return false;
            carries[i] |= !(st->op->flags & OP_TABLE) || st->links[k].in_port == 0;
        }
    }
    return true;
}

enum { TABLE_TRIES = 16 }; /* running tables of one signature that are looked at */
static bool choose_table(struct merging *m, int i) {
    const struct spec_stage *st = &m->s->stages[i];
    int tries = 0;
    for (struct inst *in = model_lookup(m->p, st->sig); in && tries < TABLE_TRIES;
         in = in->next_sig) {
        if (!sig_equal(in->def->sig, st->sig) || in->blob_len != st->blob_len ||
            memcmp(in->blob, st->blob, st->blob_len) != 0 || !same_text(in->attach, st->attach))
            continue;
        tries++;
        m->table[i] = in;
        try_stages(m);
        if (all_kept(m, i))
            return true;
    }
    m->table[i] = NULL;
    return false;
}

/* A join of two tables is found once the first of them is chosen. */
static void choose_tables(struct merging *m) {
    bool joins = !m->bound && !m->former && m->s->history == HISTORY_SHARED;
    m->table = arena_zalloc(&m->p->scratch, sizeof *m->table * (size_t)(m->s->nstages + 1));
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < m->s->nstages; i++)
            if (is_table(m, i) && !m->table[i] && joins)
                more |= choose_table(m, i);
    }
    memset(m->f->stage, 0, sizeof *m->f->stage * (size_t)m->s->nstages);
}

static void resolve_stage(struct merging *m, int i) {
    const struct spec_stage *st = &m->s->stages[i];
    struct inst *in = NULL;
    uint64_t number = 0;
    struct plan_cut cut = m->cut;
    char label[2 * SPEC_NAME_MAX + 2];
    find_parents(m, i);
    if (!m->bound || !find_bound(m, i, &in, &number, &cut)) {
        number = 0;
        cut = m->cut;
        in = m->table[i] ? m->table[i] : find_running(m, st);
    }
    if (!in) {
        snprintf(label, sizeof label, "%s/%s", m->s->name, m->s->tasks[st->task].id);
        in = model_start(m->p, m->s, i, m->parents, label, cut, number);
        m->f->fresh++;
    }
    m->f->stage[i] = in;
    /* A later reader may ask for out-ports that nobody read so far. */
    for (int k = 0; k < st->nout; k++)
        model_out_port(m->p, in, st->out_name[k], st->out[k]);
}

/* ---- uses ---- */

static void use_inst(struct plan *p, struct use *u) {
    struct inst *in = u->inst;
    model_ref(p, in);
    u->prev = NULL;
    u->next = in->uses;
    if (in->uses)
        in->uses->prev = u;
    in->uses = u;
}

/* A task counts where its last stage runs; a sink apart. */
static void count_tail(struct plan *p, const struct use *u, int by) {
    struct inst *in = u->inst;
    if (u->task < 0)
        return;
    bool sink = u->flow->tasks[u->task].op->flags & OP_SINK;
    uint32_t *tails = sink ? &in->sink_tails : &in->tails;
    bool before = *tails > 0;
    *tails += (uint32_t)by;
    if (before != (*tails > 0))
        *(sink ? &p->counts.sinks : &p->counts.tasks) += (uint64_t)by;
}

static void count_submitted(struct plan *p, const struct flow *f, int by) {
    for (int i = 0; i < f->ntasks; i++)
        *(f->tasks[i].op->flags & OP_SINK ? &p->counts.submitted_sinks : &p->counts.submitted) +=
            (uint64_t)by;
}

static void flow_attach(struct plan *p, struct flow *f) {
    for (int i = 0; i < f->nuses; i++) {
        use_inst(p, &f->uses[i]);
        count_tail(p, &f->uses[i], 1);
    }
    for (int i = 0; i < f->nedges; i++) {
        struct edge *e = &f->edges[i];
        e->prev = NULL;
        e->next = e->from->below;
        if (e->next)
            e->next->prev = e;
        e->from->below = e;
    }
    count_submitted(p, f, 1);
    model_name(p, f);
}

static void flow_detach(struct plan *p, struct flow *f) {
    model_unname(p, f);
    count_submitted(p, f, -1);
    for (int i = 0; i < f->nedges; i++) {
        struct edge *e = &f->edges[i];
        if (e->next)
            e->next->prev = e->prev;
        *(e->prev ? &e->prev->next : &e->from->below) = e->next;
    }
    for (int i = 0; i < f->nuses; i++) {
        struct use *u = &f->uses[i];
        count_tail(p, u, -1);
        if (u->next)
            u->next->prev = u->prev;
        *(u->prev ? &u->prev->next : &u->inst->uses) = u->next;
        model_unref(p, u->inst);
    }
}

/* One use for each distinct instance; task = the first task that ends in it. */
static void make_uses(struct merging *m) {
    struct flow *f = m->f;
    uint64_t stamp = ++m->p->stamp;
    for (int i = 0; i < f->nstages; i++) {
        struct inst *in = f->stage[i];
        const struct spec_stage *st = &m->s->stages[i];
        const struct spec_task *t = &m->s->tasks[st->task];
        bool last = i == t->first + t->nstages - 1;
        if (in->stamp != stamp) {
            in->stamp = stamp;
            in->mine = &f->uses[f->nuses++];
            *in->mine = (struct use){ .flow = f, .inst = in, .task = -1 };
        }
        if (last && in->mine->task < 0)
            in->mine->task = st->task;
    }
}

/* ---- the dataflow's record ---- */

static struct flow *make_flow(struct merging *m) {
    const struct spec *s = m->s;
    size_t text = s->len + 1, n = (size_t)s->ntasks, k = (size_t)s->nstages;
    struct arena a = { .chunk = sizeof(struct flow) + text + n * (sizeof(struct flow_task) + 48) +
                                k * (sizeof(void *) + sizeof(struct use)) + 512 };
    struct flow *f = ARENA_NEW(&a, struct flow);
    f->name = arena_strdup(&a, s->name);
    f->tenant = arena_strdup(&a, s->tenant);
    f->text = arena_strndup(&a, s->text, s->len);
    f->len = s->len;
    f->history = s->history;
    f->cut = m->cut;
    f->ntasks = s->ntasks;
    f->nstages = s->nstages;
    f->tasks = ARENA_ARRAY(&a, struct flow_task, n);
    for (int i = 0; i < s->ntasks; i++) {
        const struct spec_task *t = &s->tasks[i];
        f->tasks[i] = (struct flow_task){ arena_strdup(&a, t->id),
                                          t->label ? arena_strdup(&a, t->label) : NULL, t->op,
                                          t->first, t->nstages };
    }
    f->stage = arena_zalloc(&a, k * sizeof *f->stage);
    f->uses = ARENA_ARRAY(&a, struct use, k);
    f->edges = ARENA_ARRAY(&a, struct edge, s->nedges ? s->nedges : 1);
    f->serial = ++m->p->serial;
    f->arena = a;
    return f;
}

/* ---- topics ---- */

/* The dataflow that has written it for longest. */
static const struct use *owner(const struct inst *in) {
    const struct use *oldest = in->uses;
    for (const struct use *u = in->uses; u; u = u->next)
        if (u->flow->serial < oldest->flow->serial)
            oldest = u;
    return oldest;
}

static int check_writers(struct merging *m, int i) {
    const struct spec_stage *st = &m->s->stages[i];
    struct inst *mine = m->f->stage[i];
    char text[600];
    if (!st->writes)
        return 0;
    for (struct inst *in = mine->topic->writers; in; in = in->topic_next) {
        if (in == mine || in->refs == 0) /* of this file: checked by the parser; or going away */
            continue;
        bool same = sig_equal(in->def->sig, st->sig);
        const char *kind = spec_kind(st->writes), *name = spec_written(st->writes);
        const struct use *u = owner(in);
        const char *flow = u->flow->name, *task = u->task < 0 ? "" : u->flow->tasks[u->task].id;
        if (same)
            snprintf(text, sizeof text,
                     "%s '%.100s' is written by task '%s' of dataflow '%s', which does the same "
                     "with another history; two copies cannot write one %s: use \"history\": "
                     "\"shared\" or another %s",
                     kind, name, task, flow, kind, kind);
        else if (in->append && st->append)
            continue;
        else
            snprintf(text, sizeof text,
                     "%s '%.100s' is owned by dataflow '%s' (task '%s'); write another %s%s", kind,
                     name, flow, task, kind,
                     name == st->writes ? ", or give \"append\": true in both" : "");
        return conflict(m, i, kind, ERR_CONFLICT, text);
    }
    return 0;
}

/* Whether `to` is written, directly or not, below `from`. Walks only topics below it. */
static bool topic_reaches(struct plan *p, struct topic *from, const struct topic *to) {
    struct topic **stack = NULL;
    size_t n = 0, cap = 0;
    uint64_t stamp = ++p->stamp;
    bool found = from == to;
    from->stamp = stamp;
    struct topic *t = found ? NULL : from;
    while (t) {
        for (struct edge *e = t->below; e && !found; e = e->next) {
            found = e->to == to;
            if (e->to->stamp == stamp)
                continue;
            e->to->stamp = stamp;
            if (n == cap) {
                cap = cap ? 2 * cap : 64;
                stack = realloc(stack, cap * sizeof *stack);
                if (!stack)
                    abort();
            }
            stack[n++] = e->to;
        }
        t = n && !found ? stack[--n] : NULL;
    }
    free(stack);
    return found;
}

static int check_cycles(struct merging *m) {
    char text[400];
    for (int i = 0; i < m->s->nedges; i++) {
        const struct topic_edge *se = &m->s->edges[i];
        struct topic *from = model_topic(m->p, se->reads), *to = model_topic(m->p, se->writes);
        if (topic_reaches(m->p, to, from)) {
            snprintf(text, sizeof text,
                     "writing topic '%.100s' would close a cycle: other dataflows carry it on into "
                     "topic '%.100s', which this task's dataflow reads above it",
                     se->writes, se->reads);
            return conflict(m, se->stage, "topic", ERR_CONFLICT, text);
        }
        m->f->edges[m->f->nedges++] = (struct edge){ .from = from, .to = to };
    }
    return 0;
}

static int check_topics(struct merging *m) {
    int rc = check_cycles(m);
    for (int i = 0; rc == 0 && i < m->s->nstages; i++)
        rc = check_writers(m, i);
    return rc;
}

/* ---- submit, commit, rollback ---- */

/* Back to `nsteps` steps, newest first; then what was started after `mark` goes, children first. */
static void undo_steps(struct plan *p, int nsteps, const struct inst *mark) {
    while (p->nsteps > nsteps) {
        struct step *s = &p->steps[--p->nsteps];
        if (s->kind == STEP_SUBMIT) {
            flow_detach(p, s->flow);
            flow_free(s->flow);
        } else if (s->kind == STEP_REMOVE) {
            flow_attach(p, s->flow);
        } else {
            model_shrink(p, s->inst, s->former);
        }
    }
    for (struct inst *in = p->fresh_last, *prev; in != mark; in = prev) {
        prev = in->fresh_prev;
        model_retire(p, in);
        model_destroy(p, in);
    }
}

static int merge(struct merging *m) {
    struct plan *p = m->p;
    const struct spec *s = m->s;
    struct errs *es = m->es;
    m->timeless = spec_timeless(s);
    const struct flow *other = plan_find(p, s->name);
    if (other) {
        const struct jnode *n = jnode_get(s->doc.root, "name");
        int before = es->n;
        json_error(es, &s->doc, n, false,
                   "a dataflow '%s' is running; remove it first, or choose another name", s->name);
        if (es->n > before)
            es->v[before].code = ERR_CONFLICT;
        return ERR_CONFLICT;
    }
    int nsteps = p->nsteps;
    const struct inst *mark = p->fresh_last;
    arena_reset(&p->scratch);
    m->f = make_flow(m);
    choose_tables(m);
    for (int i = 0; i < s->nstages; i++)
        resolve_stage(m, i);
    make_uses(m);
    int rc = check_topics(m);
    /* Attached even after a conflict: then undone like any other. */
    flow_attach(p, m->f);
    *model_step(p) = (struct step){ .kind = STEP_SUBMIT, .flow = m->f };
    if (rc < 0)
        undo_steps(p, nsteps, mark);
    return rc;
}

int merge_bound(struct plan *p, const struct spec *s, const struct plan_cut *cut,
                const struct plan_bound *bound, struct errs *es) {
    struct merging m = { .p = p, .s = s, .cut = *cut, .bound = bound, .es = es };
    return merge(&m);
}

int plan_submit(struct plan *p, const struct spec *s, const struct plan_cut *cut,
                const struct change **change, struct errs *es) {
    int rc = merge_bound(p, s, cut, NULL, es);
    if (rc == 0 && change)
        *change = plan_change(p);
    return rc;
}

int plan_remove(struct plan *p, const char *name, const struct change **change, struct err *e) {
    struct flow *f = plan_find(p, name);
    if (!f)
        return plan_unknown(p, name, e);
    flow_detach(p, f);
    *model_step(p) = (struct step){ .kind = STEP_REMOVE, .flow = f };
    if (change)
        *change = plan_change(p);
    return 0;
}

int plan_replace(struct plan *p, const char *name, const struct spec *s, const struct plan_cut *cut,
                 struct errs *es) {
    struct merging m = { .p = p, .s = s, .cut = *cut, .es = es };
    struct flow *former = plan_find(p, name);
    struct err e = ERR_INIT;
    if (!former) {
        plan_unknown(p, name, &e);
        return errs_add(es, &e);
    }
    if (strcmp(s->name, name) != 0)
        return json_error(es, &s->doc, jnode_get(s->doc.root, "name"), false,
                          "the dataflow to replace is '%s': the file must have the same name",
                          name);
    int nsteps = p->nsteps;
    const struct inst *mark = p->fresh_last;
    plan_remove(p, name, NULL, NULL);
    m.former = former;
    m.former_stamp = ++p->stamp;
    for (int i = 0; i < former->nuses; i++)
        former->uses[i].inst->stamp = m.former_stamp;
    int rc = merge(&m);
    if (rc < 0)
        undo_steps(p, nsteps, mark);
    return rc;
}

static int newest_first(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x > *y ? -1 : *x < *y;
}

/* Numbers rise from parents to children, so they give both orders. */
const struct change *plan_change(struct plan *p) {
    struct change *c = &p->change;
    int nadd = 0, nremove = 0;
    arena_reset(&p->change_arena);
    *c = (struct change){ .version = p->version + 1 };
    for (struct inst *in = p->fresh; in; in = in->fresh_next)
        nadd += in->refs > 0;
    for (struct inst *in = p->zero; in; in = in->zero_next)
        nremove += in->state == INST_RUNNING;
    const struct task_def **add = ARENA_ARRAY(&p->change_arena, const struct task_def *, nadd + 1);
    uint64_t *gone = ARENA_ARRAY(&p->change_arena, uint64_t, nremove + 1);
    const struct task_def **grown =
        ARENA_ARRAY(&p->change_arena, const struct task_def *, p->nsteps + 1);
    for (struct inst *in = p->fresh; in; in = in->fresh_next)
        if (in->refs)
            add[c->nadd++] = in->def;
    for (struct inst *in = p->zero; in; in = in->zero_next)
        if (in->state == INST_RUNNING)
            gone[c->nremove++] = in->def->instance;
    qsort(gone, (size_t)c->nremove, sizeof *gone, newest_first);
    for (int i = 0; i < p->nsteps; i++) {
        struct inst *in = p->steps[i].inst;
        if (p->steps[i].kind != STEP_GROW || in->state != INST_RUNNING || !in->refs)
            continue;
        int k = 0;
        while (k < c->nupdate && grown[k] != in->def)
            k++;
        if (k == c->nupdate)
            grown[c->nupdate++] = in->def;
    }
    c->add = add;
    c->remove = gone;
    c->update = grown;
    return c;
}

void plan_commit(struct plan *p) {
    for (int i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == STEP_REMOVE)
            flow_free(p->steps[i].flow);
    p->nsteps = 0;
    /* Never started and not needed any more: a submit and its removal in one change. */
    for (struct inst *in = p->fresh_last, *prev; in; in = prev) {
        prev = in->fresh_prev;
        if (in->refs == 0) {
            model_retire(p, in);
            model_destroy(p, in);
        }
    }
    for (struct inst *in = p->zero, *next; in; in = next) {
        next = in->zero_next;
        model_retire(p, in);
    }
    for (struct inst *in = p->fresh, *next; in; in = next) {
        next = in->fresh_next;
        in->fresh_prev = in->fresh_next = NULL;
        in->state = INST_RUNNING;
    }
    p->fresh = p->fresh_last = NULL;
    p->version++;
}

void plan_rollback(struct plan *p) {
    undo_steps(p, 0, NULL);
    assert(!p->fresh && !p->zero);
}

void plan_freed(struct plan *p, uint64_t instance) {
    struct inst *in = plan_instance(p, instance);
    if (in && in->state == INST_GONE)
        model_destroy(p, in);
}
