#include "planner/explain.h"
#include "engine/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_MAX = 60 };

const char *const explain_words[] = { "reused", "duplicate", "first", "parameter", "inputs",
                                      "parent", "history",   "start", "unshared",  NULL };

struct explaining {
    struct plan *p;
    const struct flow *f;
    struct explain *v; /* of f's tasks */
    struct arena *a;
    struct sbuf x, y;
};

/* ---- who uses an instance ---- */

static bool older(const struct use *a, const struct use *b) {
    return a->flow->serial < b->flow->serial;
}

/* The uses by others, oldest first; returns their number. */
static int other_uses(const struct inst *in, const struct flow *f, const struct use **v, int max) {
    int n = 0;
    for (const struct use *u = in->uses; u; u = u->next) {
        if (u->flow == f)
            continue;
        int at = n < max ? n : max;
        n++;
        for (; at > 0 && older(u, v[at - 1]); at--)
            if (at < max)
                v[at] = v[at - 1];
        if (at < max)
            v[at] = u;
    }
    return n;
}

/* The task in which the dataflow of a use has the instance: its last stage, or one within. */
static int use_index(const struct use *u) {
    const struct flow *f = u->flow;
    for (int i = 0; i < f->ntasks && u->task < 0; i++)
        for (int k = 0; k < f->tasks[i].nstages; k++)
            if (f->stage[f->tasks[i].first + k] == u->inst)
                return i;
    return u->task;
}

static const char *use_task(const struct use *u) {
    return u->flow->tasks[use_index(u)].id;
}

const char *inst_owner(const struct inst *in, struct arena *a) {
    const struct use *u = NULL;
    if (!other_uses(in, NULL, &u, 1))
        return "";
    return arena_printf(a, "%s/%s", u->flow->name, use_task(u));
}

/* ---- comparing configs ---- */

static const struct jnode *config_of(struct explaining *e, const struct inst *in) {
    struct json_doc doc;
    struct errs es = { 0 };
    json_parse(&doc, NULL, in->blob + in->config_off, in->config_len, e->a, &es);
    errs_free(&es);
    return doc.root;
}

static bool same_value(struct explaining *e, const struct jnode *a, const struct jnode *b) {
    if (!a || !b)
        return a == b;
    e->x.len = e->y.len = 0;
    sbuf_json_canonical(&e->x, a);
    sbuf_json_canonical(&e->y, b);
    return e->x.len == e->y.len && memcmp(e->x.p, e->y.p, e->x.len) == 0;
}

/* First pair of children that differ; keys of canonical objects are sorted where order does not
 * matter, so both lists are walked by key. Returns their number at this level. */
static int differing(struct explaining *e, const struct jnode *a, const struct jnode *b,
                     const struct jnode **da, const struct jnode **db) {
    int n = 0;
    bool obj = a->type == J_OBJ;
    const struct jnode *y = b->child;
    for (const struct jnode *x = a->child; x; x = x->next) {
        const struct jnode *other = obj ? jnode_get(b, x->key) : y;
        if (!obj && y)
            y = y->next;
        if (!same_value(e, x, other) && n++ == 0) {
            *da = x;
            *db = other;
        }
    }
    for (; !obj && y; y = y->next)
        if (n++ == 0) {
            *da = NULL;
            *db = y;
        }
    for (y = obj ? b->child : NULL; y; y = y->next)
        if (!jnode_get(a, y->key) && n++ == 0) {
            *da = NULL;
            *db = y;
        }
    return n;
}

static const char *value_text(struct explaining *e, const struct jnode *n) {
    if (!n)
        return "nothing";
    e->x.len = 0;
    sbuf_json_canonical(&e->x, n);
    if (e->x.len <= VALUE_MAX)
        return arena_strndup(e->a, e->x.p, e->x.len);
    size_t cut = VALUE_MAX;
    while (cut > 0 && ((unsigned char)e->x.p[cut] & 0xc0) == 0x80)
        cut--;
    return arena_printf(e->a, "%.*s…", (int)cut, e->x.p);
}

static bool secret(const struct op_desc *op, const char *name) {
    for (const struct param *p = op->params; p && p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p->flags & PARAM_SECRET;
    return false;
}

/* The deepest first difference: path and both values. */
static void first_difference(struct explaining *e, struct explain *x, const struct inst *ours) {
    const struct jnode *b = config_of(e, x->other), *a = config_of(e, ours), *da, *db;
    char path[200] = "";
    size_t len = 0;
    x->differing = differing(e, a, b, &da, &db);
    bool hide = x->differing && secret(ours->def->op, da ? da->key : db->key);
    for (int n = x->differing; n > 0;) {
        const struct jnode *at = da ? da : db;
        if (len < sizeof path && at->key)
            len += (size_t)snprintf(path + len, sizeof path - len, "%s%s", len ? "/" : "", at->key);
        else if (len < sizeof path)
            len += (size_t)snprintf(path + len, sizeof path - len, "%s%u", len ? "/" : "",
                                    (unsigned)at->index);
        a = da;
        b = db;
        bool inside = a && b && a->type == b->type && (a->type == J_OBJ || a->type == J_ARR);
        const struct jnode *ia = NULL, *ib = NULL;
        n = inside ? differing(e, a, b, &ia, &ib) : 0;
        if (n > 0) {
            da = ia;
            db = ib;
        }
    }
    x->path = arena_strdup(e->a, path);
    x->ours = hide ? "***" : value_text(e, a);
    x->theirs = hide ? "***" : value_text(e, b);
}

/* ---- candidates ---- */

static bool same_parents(const struct inst *a, const struct inst *b) {
    if (a->def->nlinks != b->def->nlinks)
        return false;
    for (int k = 0; k < a->def->nlinks; k++)
        if (a->parent[k] != b->parent[k])
            return false;
    return true;
}

struct nearest {
    const struct inst *inst;
    int score; /* smaller is nearer */
    int compared;
    bool more; /* candidates than EXPLAIN_COMPARED_MAX */
};

static void consider(struct explaining *e, struct nearest *best, const struct inst *in,
                     const struct inst *c) {
    if (c == in || c->def->op != in->def->op || c->refs == 0)
        return;
    if (best->compared == EXPLAIN_COMPARED_MAX) {
        best->more = true;
        return;
    }
    best->compared++;
    bool mine = c->uses && !c->uses->next && c->uses->flow == e->f;
    const struct jnode *da, *db;
    const struct jnode *a = config_of(e, in), *b = config_of(e, c);
    int score = differing(e, a, b, &da, &db) + (same_parents(in, c) ? 0 : 1000) + (mine ? 500 : 0);
    if (!best->inst || score < best->score ||
        (score == best->score && c->def->instance < best->inst->def->instance)) {
        best->inst = c;
        best->score = score;
    }
}

/* The nearest running task of the same type below the same parent, or reading the same topic. Those
 * of other types cost a look, so that `inst` NULL means that there is none. */
static struct nearest find_nearest(struct explaining *e, const struct inst *in) {
    struct nearest best = { 0 };
    if (in->def->nlinks)
        for (const struct child *c = in->parent[0]->children; c && !best.more; c = c->next)
            consider(e, &best, in, c->inst);
    else if (in->topic)
        for (const struct inst *c = in->topic->readers; c && !best.more; c = c->topic_next)
            consider(e, &best, in, c);
    else
        for (uint64_t i = 0; i <= e->p->number_mask && !best.more; i++)
            for (const struct inst *c = e->p->by_number[i]; c; c = c->next_number)
                if (c->state != INST_GONE && c->def->nlinks == 0)
                    consider(e, &best, in, c);
    return best;
}

/* An instance of equal signature, other than this one. */
static const struct inst *find_equal(const struct explaining *e, const struct inst *in) {
    const struct inst *best = NULL;
    for (const struct inst *c = model_lookup(e->p, in->def->sig); c; c = c->next_sig)
        if (c != in && c->refs && sig_equal(c->def->sig, in->def->sig) &&
            (!best || c->def->instance < best->def->instance))
            best = c;
    return best;
}

static bool used_by_others(const struct inst *in, const struct flow *f) {
    const struct use *u;
    return other_uses(in, f, &u, 1) > 0;
}

/* The task of this dataflow that a parent instance belongs to. */
static int task_of(const struct flow *f, const struct inst *in) {
    const struct use *u = in->uses;
    while (u->flow != f)
        u = u->next;
    return use_index(u);
}

/* A parent that is not shared is the reason, but where nothing like it runs there is nothing to say
 * about its children either. False: all parents are shared. */
static bool why_parents(struct explaining *e, struct explain *x, const struct inst *in) {
    bool first = false;
    for (int k = 0; k < in->def->nlinks; k++) {
        if (used_by_others(in->parent[k], e->f))
            continue;
        const struct explain *parent = &e->v[task_of(e->f, in->parent[k])];
        if (parent->kind != EXPLAIN_FIRST) {
            x->kind = EXPLAIN_PARENT;
            x->parent = parent->task->id;
            return true;
        }
        first = true;
    }
    x->kind = EXPLAIN_FIRST;
    return first;
}

static void why_new(struct explaining *e, struct explain *x, const struct inst *in) {
    const struct op_desc *op = in->def->op;
    if (!(op->flags & OP_DETERMINISTIC) || (op->flags & OP_EFFECT_EXTERNAL)) {
        x->kind = EXPLAIN_UNSHARED;
        return;
    }
    x->other = find_equal(e, in);
    if (x->other && same_parents(in, x->other)) {
        bool start = in->attach || x->other->attach;
        x->kind = start ? EXPLAIN_START : EXPLAIN_HISTORY;
        return;
    }
    x->other = NULL;
    if (why_parents(e, x, in))
        return;
    struct nearest n = find_nearest(e, in);
    if (!n.inst)
        return; /* EXPLAIN_FIRST */
    x->other = n.inst;
    x->more = n.more;
    first_difference(e, x, in);
    x->kind = x->differing ? EXPLAIN_PARAMETER : EXPLAIN_INPUTS;
}

static void explain_task(struct explaining *e, int i) {
    const struct flow *f = e->f;
    struct explain *x = &e->v[i];
    const struct flow_task *t = &f->tasks[i];
    x->inst = flow_last(f, t);
    for (int j = 0; j < i; j++)
        if (flow_last(f, &f->tasks[j]) == x->inst) {
            x->kind = EXPLAIN_DUPLICATE;
            x->parent = f->tasks[j].id;
            return;
        }
    x->from_total = other_uses(x->inst, f, x->from, EXPLAIN_FROM_MAX);
    x->nfrom = x->from_total < EXPLAIN_FROM_MAX ? x->from_total : EXPLAIN_FROM_MAX;
    if (x->from_total) {
        x->kind = EXPLAIN_REUSED;
        return;
    }
    int k = 0; /* the first stage that is not shared decides */
    while (k + 1 < t->nstages && used_by_others(f->stage[t->first + k], f))
        k++;
    x->stage = f->stage[t->first + k];
    why_new(e, x, x->stage);
}

struct explain *explain_flow(struct plan *p, const struct flow *f, struct arena *a) {
    struct explaining e = { .p = p, .f = f, .a = a };
    int *task = ARENA_ARRAY(a, int, f->nstages); /* that begins with stage i, or -1 */
    e.v = arena_zalloc(a, sizeof *e.v * (size_t)f->ntasks);
    for (int i = 0; i < f->nstages; i++)
        task[i] = -1;
    for (int i = 0; i < f->ntasks; i++) {
        e.v[i].task = &f->tasks[i];
        task[f->tasks[i].first] = i;
    }
    for (int i = 0; i < f->nstages; i++) /* parents first */
        if (task[i] >= 0)
            explain_task(&e, task[i]);
    sbuf_free(&e.x);
    sbuf_free(&e.y);
    return e.v;
}

/* ---- text ---- */

static const char *time_text(int64_t ms, struct arena *a) {
    char buf[NUM_TIME_MAX_LEN];
    int n = ms ? time_write(buf, ms) : 0;
    return arena_strndup(a, buf, (size_t)n);
}

static const char *since(const struct inst *in, struct arena *a) {
    return in->cut.time ? time_text(in->cut.time, a)
                        : arena_printf(a, "cut %llu", (unsigned long long)in->cut.id);
}

/* `start` of an instance that was not started with the defaults: {"start":"earliest"}. */
static const char *attach_of(const struct inst *in) {
    return in->attach ? in->attach : "the default start";
}

static const char *reason(const struct plan *p, const struct explain *x, struct arena *a) {
    const char *other = x->other ? inst_owner(x->other, a) : "", *near;
    switch (x->kind) {
    case EXPLAIN_REUSED: {
        char list[600] = "";
        size_t len = 0;
        for (int i = 0; i < x->nfrom && len < sizeof list; i++)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s/%s", i ? ", " : "",
                                    x->from[i]->flow->name, use_task(x->from[i]));
        if (x->from_total > x->nfrom)
            return arena_printf(a, "reused from %s and %d more", list, x->from_total - x->nfrom);
        return arena_printf(a, "reused from %s", list);
    }
    case EXPLAIN_DUPLICATE:
        return arena_printf(a, "the same as task '%s' above: runs once", x->parent);
    case EXPLAIN_FIRST:
        return p->counts.dataflows > 1 ? "new: nothing like it runs on this input"
                                       : "new: nothing like it runs";
    case EXPLAIN_PARAMETER:
        near = x->more ? arena_printf(a, "nearest of %d that were compared", EXPLAIN_COMPARED_MAX)
                       : "nearest";
        if (x->differing > 1)
            return arena_printf(a, "new: %s is %s, where %s is %s, here %s (%d more differ)", near,
                                other, x->path, x->theirs, x->ours, x->differing - 1);
        return arena_printf(a, "new: %s is %s, where %s is %s, here %s", near, other, x->path,
                            x->theirs, x->ours);
    case EXPLAIN_INPUTS:
        return arena_printf(a, "new: %s has the same parameters but other inputs or grouping",
                            other);
    case EXPLAIN_PARENT:
        return arena_printf(a, "new: its input '%s' is not shared", x->parent);
    case EXPLAIN_HISTORY:
        return arena_printf(a, "private: equals %s, which remembers rows since %s; history is own",
                            other, since(x->other, a));
    case EXPLAIN_START:
        return arena_printf(a, "private: equals %s, which started with %s; this one with %s", other,
                            attach_of(x->other), attach_of(x->stage));
    case EXPLAIN_UNSHARED:
        return x->stage->def->op->flags & OP_EFFECT_EXTERNAL
                   ? "new: never shared, it has effects outside"
                   : "new: never shared, its output is not determined by its input";
    }
    return "";
}

static bool is_reused(const struct explain *x) {
    return x->kind == EXPLAIN_REUSED || x->kind == EXPLAIN_DUPLICATE;
}

void explain_text(struct plan *p, const struct flow *f, struct sbuf *out) {
    struct arena a = { 0 };
    struct explain *v = explain_flow(p, f, &a);
    int reused = 0, wid = 2, wtype = 4;
    for (int i = 0; i < f->ntasks; i++) {
        int id = (int)strlen(f->tasks[i].id), type = (int)strlen(f->tasks[i].op->name);
        reused += is_reused(&v[i]);
        wid = id > wid && id <= 24 ? id : wid;
        wtype = type > wtype && type <= 32 ? type : wtype;
    }
    sbuf_printf(out, "%s: %d task%s, %d reused, %d new; history %s\n", f->name, f->ntasks,
                f->ntasks == 1 ? "" : "s", reused, f->ntasks - reused, history_words[f->history]);
    for (int i = 0; i < f->ntasks; i++) {
        sbuf_printf(out, "  %-*s  %-*s  ", wid, f->tasks[i].id, wtype, f->tasks[i].op->name);
        sbuf_adds(out, reason(p, &v[i], &a));
        if (v[i].kind == EXPLAIN_REUSED)
            sbuf_printf(out, "; history from %s", since(v[i].inst, &a));
        sbuf_adds(out, "\n");
    }
    arena_free(&a);
}

/* ---- JSON ---- */

static void add_str(struct sbuf *out, const char *key, const char *s) {
    sbuf_printf(out, ",\"%s\":", key);
    sbuf_json_str(out, s, strlen(s));
}

static void add_from(struct sbuf *out, const struct explain *x) {
    sbuf_printf(out, ",\"reused_by\":%d,\"reused_from\":[", x->from_total);
    for (int i = 0; i < x->nfrom; i++)
        sbuf_printf(out, "%s{\"dataflow\":\"%s\",\"task\":\"%s\"}", i ? "," : "",
                    x->from[i]->flow->name, use_task(x->from[i]));
    sbuf_adds(out, "]");
}

static void task_json(const struct plan *p, const struct explain *x, struct arena *a,
                      struct sbuf *out) {
    char sig[33];
    sig_text(x->inst->def->sig, sig);
    sbuf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"signature\":\"%s\",\"instance\":%llu",
                x->task->id, x->task->op->name, sig, (unsigned long long)x->inst->def->instance);
    add_str(out, "status", is_reused(x) ? "reused" : "new");
    add_str(out, "why", explain_words[x->kind]);
    add_str(out, "history_from", since(x->inst, a));
    if (x->inst->attach)
        sbuf_printf(out, ",\"attach\":%s", x->inst->attach);
    add_str(out, "reason", reason(p, x, a));
    if (x->kind == EXPLAIN_REUSED)
        add_from(out, x);
    const struct use *u = NULL;
    if (x->other && other_uses(x->other, NULL, &u, 1)) {
        add_str(out, "dataflow", u->flow->name);
        add_str(out, "task", use_task(u));
    }
    if (x->parent)
        add_str(out, x->kind == EXPLAIN_PARENT ? "input" : "task", x->parent);
    if (x->path) {
        add_str(out, "parameter", x->path);
        add_str(out, "theirs", x->theirs);
        add_str(out, "ours", x->ours);
    }
    sbuf_adds(out, "}");
}

void explain_json(struct plan *p, const struct flow *f, struct sbuf *out) {
    struct arena a = { 0 };
    struct explain *v = explain_flow(p, f, &a);
    int reused = 0;
    for (int i = 0; i < f->ntasks; i++)
        reused += is_reused(&v[i]);
    sbuf_printf(out, "{\"name\":\"%s\",\"history\":\"%s\",\"reused\":%d,\"new\":%d,\"tasks\":[",
                f->name, history_words[f->history], reused, f->ntasks - reused);
    for (int i = 0; i < f->ntasks; i++) {
        sbuf_adds(out, i ? "," : "");
        task_json(p, &v[i], &a, out);
    }
    sbuf_adds(out, "]}\n");
    arena_free(&a);
}
