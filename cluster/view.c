#include "cluster/view.h"
#include "cluster/coord_impl.h"
#include "cluster/stats.h"
#include "cluster/table.h"
#include "cluster/text.h"
#include "planner/explain.h"
#include "planner/show.h"
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 16 /* of other dataflows, in one list */ };

const char *const flow_state_words[] = { "RUNNING", "DEGRADED", "FAILED" };

/* The other dataflows that use the instance, oldest use last in the plan's list: newest first. */
static void add_others(struct sbuf *out, const struct inst *in, const struct flow *f) {
    int n = 0;
    sbuf_adds(out, "[");
    for (const struct use *u = in->uses; u && n < NAMES_MAX; u = u->next) {
        if (u->flow == f)
            continue;
        sbuf_adds(out, n++ ? "," : "");
        text_json(out, u->flow->name);
    }
    sbuf_adds(out, "]");
}

static void add_sig(struct sbuf *out, const struct inst *in) {
    char sig[33];
    sig_text(in->def->sig, sig);
    sbuf_printf(out, "\"signature\":\"%s\"", sig);
}

/* {"topic":…,"offset":…} or null. */
static void add_history(struct sbuf *out, const struct coord *c, const struct inst *in) {
    const struct history_entry *h = coord_history(c, in->def->instance);
    if (!h || h->offset < 0) {
        sbuf_adds(out, "null");
        return;
    }
    sbuf_adds(out, "{\"topic\":");
    text_json(out, h->topic);
    sbuf_printf(out, ",\"offset\":%lld}", (long long)h->offset);
}

/* ---- submit and remove ---- */

/* The array of explain.h's JSON. Names cannot hold quotes, so the first match is the member. */
static void add_explain(struct coord *c, const struct flow *f, struct sbuf *out) {
    static const char member[] = "\"tasks\":";
    struct sbuf all = { 0 };
    explain_json(c->plan, f, &all);
    const char *from = strstr(sbuf_str(&all), member) + sizeof member - 1;
    sbuf_add(out, from, (size_t)(strrchr(from, ']') + 1 - from));
    sbuf_free(&all);
}

void view_planned(struct coord *c, const struct flow *f, struct sbuf *out) {
    struct arena a = { 0 };
    const struct explain *v = explain_flow(c->plan, f, &a);
    int reused = 0;
    for (int i = 0; i < f->ntasks; i++)
        reused += v[i].kind == EXPLAIN_REUSED || v[i].kind == EXPLAIN_DUPLICATE;
    sbuf_adds(out, "\"name\":");
    text_json(out, f->name);
    sbuf_printf(out, ",\"tasks\":%d,\"new\":%d,\"reused\":%d,\"explain\":", f->ntasks,
                f->ntasks - reused, reused);
    add_explain(c, f, out);
    arena_free(&a);
}

void view_histories(struct coord *c, const struct flow *f, struct sbuf *out) {
    int n = 0;
    sbuf_adds(out, "\"history_from\":[");
    for (int i = 0; i < f->ntasks; i++) {
        const struct history_entry *h = coord_history(c, flow_last(f, &f->tasks[i])->def->instance);
        if (!h || h->offset < 0)
            continue;
        sbuf_printf(out, "%s{\"task\":", n++ ? "," : "");
        text_json(out, f->tasks[i].id);
        sbuf_adds(out, ",\"topic\":");
        text_json(out, h->topic);
        sbuf_printf(out, ",\"offset\":%lld}", (long long)h->offset);
    }
    sbuf_adds(out, "]");
}

void view_removed(const struct flow *f, struct sbuf *out) {
    int kept = 0;
    struct sbuf by = { 0 };
    for (int i = 0; i < f->ntasks; i++) {
        const struct inst *in = flow_last(f, &f->tasks[i]);
        if (in->refs < 2)
            continue;
        sbuf_printf(&by, "%s{\"task\":", kept++ ? "," : "");
        text_json(&by, f->tasks[i].id);
        sbuf_adds(&by, ",\"dataflows\":");
        add_others(&by, in, f);
        sbuf_adds(&by, "}");
    }
    sbuf_printf(out, "{\"removed\":%d,\"kept\":%d,\"kept_by\":[%s]}", f->ntasks - kept, kept,
                sbuf_str(&by));
    sbuf_free(&by);
}

/* ---- states ---- */

static enum flow_state state_of(struct stats *st, const struct flow *f, const char **reason) {
    const struct stat_entry *held = NULL;
    char size[UNIT_MAX];
    *reason = "";
    if (st->health.failed) {
        *reason = arena_printf(&st->arena, "stopped: %s; restart the server", st->health.err.text);
        return FLOW_FAILED;
    }
    for (int i = 0; i < f->nuses; i++) {
        const struct stat_entry *en = stats_find(st, f->uses[i].inst->def->instance);
        if (en && en->error) {
            *reason = en->error;
            return FLOW_FAILED;
        }
        if (en && en->s.held_for)
            held = en;
    }
    if (st->health.degraded)
        *reason = st->health.err.text;
    else if (held)
        *reason = arena_printf(&st->arena,
                               "%s of rows wait for topic '%s', which is behind; the source that "
                               "is ahead pauses",
                               unit_bytes(size, (double)held->s.held_bytes), held->s.held_for);
    return st->health.degraded || held ? FLOW_DEGRADED : FLOW_RUNNING;
}

void view_states(struct coord *c, void (*each)(void *, const char *, enum flow_state, const char *),
                 void *arg) {
    struct stats *st = stats_get(c);
    coord_lock(c);
    for (const struct dataflow *d = c->first; d; d = d->next) {
        const char *reason;
        const struct flow *f = plan_find(c->plan, d->name);
        if (!f)
            continue;
        enum flow_state state = state_of(st, f, &reason);
        each(arg, d->name, state, reason);
    }
    coord_unlock(c);
    stats_unref(st);
}

/* ---- list and show ---- */

/* Rows that came in through its sources and went out to its sinks, and its dead letters. */
static void add_flow(struct stats *st, const struct dataflow *d, const struct flow *f,
                     struct sbuf *out) {
    const char *reason;
    enum flow_state s = state_of(st, f, &reason);
    uint64_t rows_in = 0, rows_out = 0, rejected = 0;
    int shared = 0;
    for (int i = 0; i < f->nuses; i++) {
        const struct inst *in = f->uses[i].inst;
        const struct stat_entry *en = stats_find(st, in->def->instance);
        bool exchange = in->def->op->flags & OP_EXCHANGE;
        if (en && !exchange && (in->def->op->flags & OP_SOURCE))
            rows_in += en->s.counts.out;
        if (en && !exchange && (in->def->op->flags & OP_SINK))
            rows_out += en->s.counts.in;
        rejected += en ? en->s.counts.rejected : 0;
    }
    for (int i = 0; i < f->ntasks; i++)
        shared += flow_last(f, &f->tasks[i])->refs > 1;
    sbuf_adds(out, "\"name\":");
    text_json(out, d->name);
    sbuf_adds(out, ",\"tenant\":");
    text_json(out, f->tenant);
    sbuf_adds(out, ",\"description\":");
    text_json(out, d->description);
    sbuf_printf(out, ",\"state\":\"%s\",\"reason\":", flow_state_words[s]);
    text_json(out, reason);
    sbuf_printf(out,
                ",\"history\":\"%s\",\"tasks\":%d,\"shared\":%d,\"rows_in\":%llu,\"rows_out\":%llu,"
                "\"rejected\":%llu,\"submitted_ms\":%lld",
                history_words[f->history], f->ntasks, shared, (unsigned long long)rows_in,
                (unsigned long long)rows_out, (unsigned long long)rejected,
                (long long)d->submitted_ms);
}

void view_list(struct coord *c, struct sbuf *out) {
    struct stats *st = stats_get(c);
    int n = 0;
    coord_lock(c);
    sbuf_adds(out, "{\"dataflows\":[");
    for (const struct dataflow *d = c->first; d; d = d->next) {
        const struct flow *f = plan_find(c->plan, d->name);
        if (!f) /* its removal is on its way */
            continue;
        sbuf_adds(out, n++ ? ",{" : "{");
        add_flow(st, d, f, out);
        sbuf_adds(out, "}");
    }
    sbuf_adds(out, "]}");
    coord_unlock(c);
    stats_unref(st);
}

struct sums {
    uint64_t rows_in, rows_out, filtered, rejected, late, ns, keys, bytes;
    int64_t wm;
};

/* A task over its stages: rows into the first behind its exchanges, out of the last (a sink:
 * written). */
static struct sums task_sums(const struct stats *st, const struct flow *f,
                             const struct flow_task *t) {
    struct sums s = { .wm = TIME_MIN };
    int head = 0;
    while (f->stage[t->first + head]->def->op->flags & OP_EXCHANGE)
        head++;
    for (int k = 0; k < t->nstages; k++) {
        const struct inst *in = f->stage[t->first + k];
        const struct stat_entry *en = stats_find(st, in->def->instance);
        if (!en)
            continue;
        const struct op_counts *n = &en->s.counts;
        bool first = k == head, last = k == t->nstages - 1;
        s.rows_in += first ? in->def->op->flags & OP_SOURCE ? n->out : n->in : 0;
        s.rows_out += last ? in->def->op->flags & OP_SINK ? n->in : n->out : 0;
        s.filtered += n->filtered;
        s.rejected += n->rejected;
        s.late += n->late;
        s.ns += en->s.ns;
        s.keys += en->s.state_keys;
        s.bytes += en->s.state_bytes;
        s.wm = en->s.wm > s.wm ? en->s.wm : s.wm;
    }
    return s;
}

static void add_detail(struct coord *c, const struct stats *st, const struct flow *f,
                       const struct flow_task *t, struct sbuf *out) {
    const struct inst *in = flow_last(f, t);
    struct sums s = task_sums(st, f, t);
    sbuf_adds(out, "{\"id\":");
    text_json(out, t->id);
    sbuf_printf(out, ",\"type\":\"%s\",\"instance\":%llu,", t->op->name,
                (unsigned long long)in->def->instance);
    add_sig(out, in);
    sbuf_adds(out, ",\"shared_with\":");
    add_others(out, in, f);
    sbuf_printf(out,
                ",\"rows_in\":%llu,\"rows_out\":%llu,\"filtered\":%llu,\"rejected\":%llu,"
                "\"late\":%llu,\"ns_per_row\":%llu,\"state_keys\":%llu,\"state_bytes\":%llu,",
                (unsigned long long)s.rows_in, (unsigned long long)s.rows_out,
                (unsigned long long)s.filtered, (unsigned long long)s.rejected,
                (unsigned long long)s.late, (unsigned long long)(s.rows_in ? s.ns / s.rows_in : 0),
                (unsigned long long)s.keys, (unsigned long long)s.bytes);
    if (s.wm == TIME_MIN)
        sbuf_adds(out, "\"watermark_ms\":null,\"history_from\":");
    else
        sbuf_printf(out, "\"watermark_ms\":%lld,\"history_from\":", (long long)s.wm);
    add_history(out, c, in);
    sbuf_adds(out, "}");
}

/* The running dataflow under plan_lock, or NULL. */
static const struct flow *find(struct coord *c, const char *name, const struct dataflow **d,
                               struct err *e) {
    const struct flow *f = plan_find(c->plan, name);
    *d = f ? coord_dataflow(c, name) : NULL;
    if (*d)
        return f;
    plan_unknown(c->plan, name, e);
    return NULL;
}

int view_show(struct coord *c, const char *name, struct sbuf *out, struct err *e) {
    struct stats *st = stats_get(c);
    const struct dataflow *d;
    coord_lock(c);
    const struct flow *f = find(c, name, &d, e);
    if (f) {
        sbuf_adds(out, "{");
        add_flow(st, d, f, out);
        sbuf_adds(out, ",\"file\":");
        text_json(out, d->file);
        sbuf_adds(out, ",\"spec\":");
        sbuf_json_str(out, f->text, f->len);
        sbuf_adds(out, ",\"detail\":[");
        for (int i = 0; i < f->ntasks; i++) {
            sbuf_adds(out, i ? "," : "");
            add_detail(c, st, f, &f->tasks[i], out);
        }
        sbuf_adds(out, "]}");
    }
    coord_unlock(c);
    stats_unref(st);
    return f ? 0 : ERR_NOTFOUND;
}

/* ---- explain ---- */

int view_explain(struct coord *c, const char *name, struct sbuf *out, struct err *e) {
    const struct dataflow *d;
    struct sbuf text = { 0 };
    coord_lock(c);
    const struct flow *f = find(c, name, &d, e);
    if (f) {
        explain_text(c->plan, f, &text);
        sbuf_adds(out, "{\"name\":");
        text_json(out, name);
        sbuf_adds(out, ",\"text\":");
        sbuf_json_str(out, text.p, text.len);
        sbuf_adds(out, ",\"tasks\":");
        add_explain(c, f, out);
        sbuf_adds(out, "}");
    }
    coord_unlock(c);
    sbuf_free(&text);
    return f ? 0 : ERR_NOTFOUND;
}

/* ---- graph ---- */

static bool rows_of(void *user, uint64_t instance, uint64_t *in, uint64_t *out) {
    const struct stat_entry *en = stats_find(user, instance);
    if (en) {
        *in = en->s.counts.in;
        *out = en->s.counts.out;
    }
    return en;
}

void view_graph(struct coord *c, enum view_form form, int width, struct sbuf *out) {
    struct stats *st = stats_get(c);
    struct show o = { .width = width, .rows = rows_of, .user = st };
    coord_lock(c);
    (form == VIEW_DOT ? show_dot : form == VIEW_TEXT ? show_tree : show_json)(c->plan, &o, out);
    coord_unlock(c);
    stats_unref(st);
}
