/* One tick: a batch goes from its source through all tasks below, in topological order. */
#include "engine/clock.h"
#include "engine/mutate.h"
#include "engine/num.h"
#include "engine/task.h"
#include <assert.h>
#include <stdio.h>

void queue_add(struct arena *a, struct queue *q, const struct batch *b) {
    if (q->n == q->cap) {
        uint32_t cap = q->cap ? q->cap * 2 : 4;
        const struct batch **v = ARENA_ARRAY(a, const struct batch *, cap);
        if (q->n)
            memcpy(v, q->v, q->n * sizeof *v);
        q->v = v;
        q->cap = cap;
    }
    q->v[q->n++] = b;
}

/* First row (index among the batch's rows) at or beyond offset `off`. */
static uint32_t batch_lower(const struct batch *b, int64_t off) {
    uint32_t lo = 0, hi = b->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (batch_off(b, batch_row(b, mid)) < off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void link_push(struct exec *ex, struct link *l, const struct batch *b) {
    int64_t first = batch_off(b, batch_row(b, 0)), last = batch_off(b, batch_row(b, b->n - 1));
    if (first < l->since || last >= l->until) {
        uint32_t lo = batch_lower(b, l->since), hi = batch_lower(b, l->until);
        if (lo >= hi)
            return;
        b = batch_slice(&ex->arena, b, lo, hi);
    }
    queue_add(&ex->arena, &l->q, b);
}

static void host_emit(struct op_ctx *c, int port, const struct batch *b) {
    struct task *t = c->task;
    for (struct link *l = t->out; l; l = l->next)
        if (l->out_port == port)
            link_push(t->ex, l, b);
}

static struct state *host_state(struct op_ctx *c, int table, uint32_t vsize) {
    struct task *t = c->task;
    assert(table >= 0 && table < STATE_TABLES && !t->table[table]);
    t->table[table] = limits_state(t, table, vsize);
    return t->table[table];
}

/* The bytes it came from, the beginning of them when there are many: a tick of nothing but control
 * characters (six bytes each in JSON) then still fits into an epoch. The rest is in the topic. */
static void dead_record(struct sbuf *o, const struct batch *b, int64_t off) {
    const struct origin *og = b->origin;
    if (!og || !og->raw || off < og->off0 || off >= og->off0 + og->n)
        return;
    struct span raw = og->raw[off - og->off0];
    if (!raw.p) {
        sbuf_adds(o, ",\"record\":null");
        return;
    }
    static const char hex[] = "0123456789abcdef";
    if (raw.len > EXEC_DEAD_BYTES) {
        sbuf_printf(o, ",\"record_bytes\":%u", raw.len);
        raw.len = EXEC_DEAD_BYTES;
        while (raw.len > EXEC_DEAD_BYTES - 3 && (raw.p[raw.len] & 0xc0) == 0x80)
            raw.len--; /* no character is cut */
    }
    if (utf8_valid(raw.p, raw.p + raw.len)) {
        sbuf_adds(o, ",\"record\":");
        sbuf_json_str(o, raw.p, raw.len);
        return;
    }
    sbuf_adds(o, ",\"record_hex\":\"");
    for (uint32_t i = 0; i < raw.len; i++) {
        sbuf_add(o, &hex[(unsigned char)raw.p[i] >> 4], 1);
        sbuf_add(o, &hex[raw.p[i] & 15], 1);
    }
    sbuf_adds(o, "\"");
}

static void host_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                        const char *text) {
    struct task *t = c->task;
    if (!t->ex->conf.dead)
        return;
    struct sbuf o = { 0 };
    int64_t off = batch_off(b, row);
    sbuf_adds(&o, "{\"task\":");
    sbuf_json_str(&o, t->def->label, strlen(t->def->label));
    sbuf_printf(&o, ",\"type\":\"%s\",\"signature\":\"%s\"", t->def->op->name, t->sig_hex);
    if (b->origin && b->origin->name) {
        sbuf_adds(&o, ",\"topic\":");
        sbuf_json_str(&o, b->origin->name, strlen(b->origin->name));
        sbuf_printf(&o, ",\"partition\":%u", b->origin->partition);
    }
    sbuf_printf(&o, ",\"offset\":%lld,\"sub\":%lld,\"code\":", (long long)off,
                (long long)batch_sub(b, row));
    sbuf_json_str(&o, code, strlen(code));
    sbuf_adds(&o, ",\"reason\":");
    sbuf_json_str(&o, text, strlen(text));
    dead_record(&o, b, off);
    sbuf_adds(&o, "}");
    t->ex->conf.dead(t->ex->conf.arg, t, t->sig_hex, o.p, o.len);
    sbuf_free(&o);
}

const struct op_host exec_host = { .emit = host_emit, .reject = host_reject, .state = host_state };

/* ---- timeline ---- */

static int64_t point_at(const struct origin *o, uint32_t p) {
    assert(o);
    return o->at ? o->at[p] : o->off0 + p;
}

/* The first point from t->point on whose watermark reaches the operator's next timer. */
static uint32_t point_due(const struct task *t) {
    const struct origin *o = t->ctx.origin;
    if (!o || !o->wm)
        return UINT32_MAX;
    uint32_t lo = t->point, hi = o->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (o->wm[mid] < t->ctx.next_timer)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < o->n ? lo : UINT32_MAX;
}

static void point_fire(struct task *t, uint32_t p) {
    const struct origin *o = t->ctx.origin;
    assert(o);
    t->point = p;
    t->ctx.wm = o->wm[p];
    t->ctx.fire_off = point_at(o, p);
    t->def->op->watermark(t->self, &t->ctx, t->ctx.wm);
    /* At infinity there is nothing left to wait for. */
    assert(t->ctx.next_timer > t->ctx.wm || t->ctx.wm == TIME_MAX);
    if (t->ctx.wm == TIME_MAX)
        t->point = o->n;
}

/* A fresh operator (just grafted, restored or undone) is told how far time was before this tick:
 * what was over by then must not come out of it. Nothing can be due yet. */
static void timers_begin(struct task *t) {
    const struct origin *o = t->ctx.origin;
    if (!o || !o->wm || o->wm_before == TIME_MIN)
        return;
    t->ctx.wm = o->wm_before;
    t->ctx.fire_off = o->off0;
    t->def->op->watermark(t->self, &t->ctx, t->ctx.wm);
}

void task_deliver(struct task *t, int port, const struct batch *b) {
    const struct op_desc *op = t->def->op;
    t->counts.in += b->n;
    t->batches++;
    if (op->flags & OP_KEYED) {
        const struct op_by first = { t->ctx.nby, t->ctx.by };
        const struct op_by *k = t->ctx.keys ? &t->ctx.keys[port] : &first;
        b = op_short_keys(&t->ctx, b, k->field, k->n);
    }
    if (!(op->flags & OP_TIMERS)) {
        if (b->n && t->def->limits)
            limits_deliver(t, port, b);
        else if (b->n)
            op->process(t->self, &t->ctx, port, b);
        return;
    }
    if (t->ctx.wm == TIME_MIN)
        timers_begin(t);
    for (uint32_t lo = 0;;) {
        uint32_t p = point_due(t), hi = b->n;
        if (p != UINT32_MAX)
            hi = batch_lower(b, point_at(t->ctx.origin, p) + 1);
        if (hi > lo)
            op->process(t->self, &t->ctx, port, batch_slice(&t->ex->arena, b, lo, hi));
        lo = hi > lo ? hi : lo;
        if (lo == b->n) /* more rows of the point's offset may follow: not yet its turn */
            return;
        point_fire(t, p);
    }
}

void task_timers(struct task *t) {
    if (!(t->def->op->flags & OP_TIMERS))
        return;
    for (uint32_t p; (p = point_due(t)) != UINT32_MAX;)
        point_fire(t, p);
}

/* ---- inputs ---- */

/* Two time stages over one source: the watermark of what they share is the smaller one. */
static const struct origin *origin_min(struct arena *a, const struct origin *x,
                                       const struct origin *y) {
    if (x == y || !y)
        return x;
    if (!x)
        return y;
    struct origin *o = ARENA_NEW(a, struct origin);
    *o = *x;
    if (!x->wm || !y->wm || x->n != y->n) {
        o->wm = NULL;
        return o;
    }
    int64_t *wm = ARENA_ARRAY(a, int64_t, x->n);
    for (uint32_t i = 0; i < x->n; i++)
        wm[i] = x->wm[i] < y->wm[i] ? x->wm[i] : y->wm[i];
    o->wm = wm;
    o->wm_before = x->wm_before < y->wm_before ? x->wm_before : y->wm_before;
    o->idle = x->idle && y->idle;
    return o;
}

static void task_origin(struct task *t) {
    const struct origin *o = NULL;
    for (int i = 0; i < t->nlinks; i++)
        if (t->in[i].from->tick == t->ex->tick)
            o = origin_min(&t->ex->arena, o, t->in[i].from->ctx.out_origin);
    t->ctx.origin = o;
    t->ctx.out_origin = (struct origin *)o; /* handed on unchanged unless end() replaces it */
    t->point = 0;
}

static const struct batch *link_head(const struct link *l) {
    return l->head_batch < l->q.n ? l->q.v[l->head_batch] : NULL;
}

/* (offset, sub) of the next row of a link. */
static bool head_before(const struct link *a, const struct link *b) {
    const struct batch *x = link_head(a), *y = link_head(b);
    uint32_t i = batch_row(x, a->head_row), j = batch_row(y, b->head_row);
    int64_t ox = batch_off(x, i), oy = batch_off(y, j);
    if (ox != oy)
        return ox < oy;
    return batch_sub(x, i) < batch_sub(y, j);
}

/* Rows of the link's head batch that come before the head of `other`; on a tie the link with the
 * smaller index goes first. */
static uint32_t run_length(struct link *l, const struct link *other) {
    const struct batch *b = link_head(l), *o = link_head(other);
    uint32_t j = batch_row(o, other->head_row);
    int64_t off = batch_off(o, j), sub = batch_sub(o, j);
    bool ties = l < other; /* one array, in the user's order */
    uint32_t i = l->head_row + 1;
    for (; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t x = batch_off(b, r);
        if (x > off || (x == off && (batch_sub(b, r) > sub || (batch_sub(b, r) == sub && !ties))))
            break;
    }
    return i - l->head_row;
}

static void deliver_run(struct task *t, struct link *l, uint32_t n) {
    const struct batch *b = link_head(l);
    const struct batch *run = batch_slice(&t->ex->arena, b, l->head_row, l->head_row + n);
    l->head_row += n;
    if (l->head_row == b->n) {
        l->head_batch++;
        l->head_row = 0;
    }
    task_deliver(t, l->in_port, run);
}

/* Several links of one origin: row by row in order of (position, link), in runs. */
static void deliver_merged(struct task *t) {
    for (;;) {
        struct link *best = NULL, *second = NULL;
        for (int i = 0; i < t->nlinks; i++) {
            struct link *l = &t->in[i];
            if (!link_head(l))
                continue;
            if (!best || head_before(l, best)) {
                second = best;
                best = l;
            } else if (!second || head_before(l, second)) {
                second = l;
            }
        }
        if (!best)
            return;
        uint32_t n = link_head(best)->n - best->head_row;
        if (second && !MUTATED(MUTATE_TICK_ORDER)) {
            uint32_t r = run_length(best, second);
            n = r < n ? r : n;
        }
        deliver_run(t, best, n);
    }
}

static void deliver_inputs(struct task *t) {
    if (t->align) {
        align_run(t);
        return;
    }
    if (t->nlinks == 1) {
        for (uint32_t i = 0; i < t->in[0].q.n; i++)
            task_deliver(t, t->in[0].in_port, t->in[0].q.v[i]);
    } else {
        deliver_merged(t);
    }
}

static void deliver_sink(struct task *t) {
    struct exec *ex = t->ex;
    for (int k = 0; k < t->nlinks; k++)
        for (uint32_t i = 0; i < t->in[k].q.n; i++) {
            const struct batch *b = t->in[k].q.v[i];
            t->counts.in += b->n;
            t->counts.absorbed += b->n;
            t->batches++;
            if (ex->conf.sink)
                ex->conf.sink(ex->conf.arg, t, b);
        }
}

/* The last tick: children see one more point, at infinity. */
void origin_end(struct task *t) {
    struct exec *ex = t->ex;
    const struct origin *from = t->ctx.out_origin;
    struct origin *o = ARENA_NEW(&ex->arena, struct origin);
    int64_t *wm = ARENA_ARRAY(&ex->arena, int64_t, 2);
    if (from)
        *o = *from;
    wm[0] = TIME_MAX;
    wm[1] = ex->end_off;
    o->wm = wm;
    o->at = wm + 1;
    o->n = 1;
    o->raw = NULL;
    o->log_time = NULL;
    o->silent_ms = 0;
    o->idle = false;
    t->ctx.out_origin = o;
}

int64_t origin_last_wm(const struct origin *o) {
    if (!o || (!o->wm && !(o->log_time && o->n)))
        return TIME_MIN;
    if (!o->wm)
        return o->log_max;
    return o->n ? o->wm[o->n - 1] : o->wm_before;
}

void task_out_wm(struct task *t) {
    const struct origin *o = t->ctx.out_origin;
    int64_t wm = origin_last_wm(o);
    if (wm > t->out_wm)
        t->out_wm = wm;
    t->idle = o && o->idle;
}

void task_run(struct task *t) {
    int64_t start = clock_mono_ns();
    const struct op_desc *op = t->def->op;
    t->tick = t->ex->tick;
    task_touch(t);
    task_origin(t);
    if (op->flags & OP_SINK) {
        deliver_sink(t);
    } else {
        deliver_inputs(t);
        if (!t->align)
            task_timers(t);
        if (op->end)
            op->end(t->self, &t->ctx);
        if (t->def->limits)
            limits_expire(t);
    }
    if (t->ex->ending && !t->origin->align)
        origin_end(t);
    task_out_wm(t);
    for (int i = 0; i < t->nlinks; i++) {
        t->in[i].q = (struct queue){ 0 };
        t->in[i].head_batch = t->in[i].head_row = 0;
    }
    const struct origin *o = t->ctx.origin;
    if (o && o->wm && o->n)
        t->ctx.wm = o->wm[o->n - 1];
    t->ns += (uint64_t)(clock_mono_ns() - start);
}
