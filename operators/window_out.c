#include "operators/window_out.h"
#include "engine/key.h"

/* ---- submit time ---- */

static bool fixed_name(unsigned fields, const char *name) {
    return (fields & WINDOW_BOUNDS &&
            (!strcmp(name, "window_start") || !strcmp(name, "window_end"))) ||
           (fields & WINDOW_EARLY && !strcmp(name, "early"));
}
static bool name_taken(const struct op_plan *p, const struct strmap *m, int upto, unsigned fields,
                       const char *name) {
    for (int i = 0; i < p->nby; i++)
        if (!strcmp(p->by[i], name))
            return true;
    for (int i = 0; i < upto; i++)
        if (!strcmp(m->v[i].name, name))
            return true;
    return fixed_name(fields, name);
}
static int plan_group(struct op_plan *p, unsigned fields, struct field *f) {
    const struct schema *in = p->in[0];
    int n = 0;
    for (int i = 0; i < p->nby; i++) {
        int at = schema_find(in, p->by[i]);
        if (at >= 0 && in->f[at].type == TYPE_VEC)
            plan_error(p, NULL, NULL, "a group key cannot be a vector: '%s'", p->by[i]);
        if (fixed_name(fields, p->by[i]))
            plan_error(p, NULL, NULL, "the output has a field '%s' already", p->by[i]);
        f[n++] = at >= 0 ? in->f[at] : (struct field){ p->by[i], TYPE_STR, 0 };
    }
    return n;
}
void window_plan_out(struct op_plan *p, const struct strmap *aggregate, unsigned fields) {
    struct accs *accs = ARENA_NEW(p->arena, struct accs);
    struct field *f;
    struct schema *out = schema_new(p->arena, p->nby + 3 + aggregate->n, &f);
    p->out[0] = out;
    if (p->nout > 1)
        p->out[1] = p->in[0];
    if (!aggregate->n)
        plan_error(p, "aggregate", NULL, "no aggregates given");
    int n = plan_group(p, fields, f);
    if (fields & WINDOW_BOUNDS) {
        f[n++] = (struct field){ "window_start", TYPE_I64, 0 };
        f[n++] = (struct field){ "window_end", TYPE_I64, 0 };
    }
    if (fields & WINDOW_EARLY)
        f[n++] = (struct field){ "early", TYPE_BOOL, 0 };
    for (int i = 0; i < aggregate->n; i++) {
        const struct strpair *v = &aggregate->v[i];
        struct err e = ERR_INIT;
        f[n] = (struct field){ v->name, TYPE_F64, 0 };
        if (name_taken(p, aggregate, i, fields, v->name))
            plan_error(p, "aggregate", v->name, "the output has a field '%s' already", v->name);
        else if (accs_add(accs, p->arena, v->text, p->in[0], p->in_time ? EXPR_HAS_TIME : 0, &e) <
                 0)
            plan_error(p, "aggregate", v->name, "%s", e.text);
        else
            f[n].type = accs->out[accs->nouts - 1].type;
        n++;
    }
    out->n = n;
}
void window_plan_size(struct op_plan *p, int64_t every, int64_t size, int64_t most,
                      const char *what) {
    struct window_grid g;
    if (every <= 0) /* reported already */
        return;
    g = window_grid(every, size);
    if (g.size < every)
        plan_error(p, "size", NULL,
                   "'size' is at least 'every': rows between windows would be lost");
    else if (g.size / g.width > most)
        plan_error(p, "size", NULL,
                   "a window would have more than %lld %s of the greatest common divisor of "
                   "'size' and 'every'",
                   (long long)most, what);
}
int window_open_accs(struct accs *s, struct arena *a, const struct strmap *aggregate,
                     const struct schema *in, bool timed, struct err *e) {
    for (int i = 0; i < aggregate->n; i++)
        if (accs_add(s, a, aggregate->v[i].text, in, timed ? EXPR_HAS_TIME : 0, e) < 0)
            return ERR_INPUT;
    return 0;
}

/* ---- results ---- */

void window_out_open(struct window_out *o, struct op_ctx *x, const struct accs *accs,
                     unsigned fields, const struct batch *cause, uint32_t cap) {
    *o = (struct window_out){ .x = x, .accs = accs, .fields = fields, .cause = cause };
    o->cap = cap > BATCH_ROWS ? BATCH_ROWS : cap ? cap : 1;
    o->row = ARENA_ARRAY(x->arena, struct window_result, o->cap);
    o->total = ARENA_ARRAY(x->arena, struct acc_total, (size_t)o->cap * (size_t)accs->n);
}
struct acc_total *window_out_totals(struct window_out *o) {
    struct acc_total *t = o->total + (size_t)o->n * (size_t)o->accs->n;
    memset(t, 0, sizeof *t * (size_t)o->accs->n);
    return t;
}
void window_out_put(struct window_out *o, const struct window_result *r) {
    struct window_result *to = &o->row[o->n];
    *to = *r;
    to->key.p = arena_strndup(o->x->arena, r->key.p ? r->key.p : "", r->key.len);
    if (++o->n == o->cap)
        window_out_flush(o);
}

void window_put_key(const struct op_ctx *x, struct span key, struct column *cols, uint32_t row,
                    uint32_t rows) {
    struct key_value v[OP_BY_MAX];
    const struct schema *in = x->in[0];
    int bad = key_decode(x->arena, in, x->by, x->nby, key.p, key.len, v);
    for (int k = 0; k < x->nby; k++) {
        struct column *c = &cols[k];
        if (bad || v[k].null) {
            column_set_null(x->arena, c, row, rows);
            continue;
        }
        switch (in->f[x->by[k]].type) {
        case TYPE_BOOL:
            ((uint8_t *)c->p)[row] = v[k].b;
            break;
        case TYPE_I64:
            ((int64_t *)c->p)[row] = v[k].i64;
            break;
        case TYPE_F64:
            ((double *)c->p)[row] = v[k].f64;
            break;
        default:
            ((struct span *)c->p)[row] = v[k].str;
        }
    }
}
static void put_values(struct window_out *o, struct column *cols, uint32_t r) {
    struct op_ctx *x = o->x;
    const struct window_result *w = &o->row[r];
    const struct acc_total *t = o->total + (size_t)r * (size_t)o->accs->n;
    int c = x->nby;
    window_put_key(x, w->key, cols, r, o->n);
    if (o->fields & WINDOW_BOUNDS) {
        ((int64_t *)cols[c++].p)[r] = w->start;
        ((int64_t *)cols[c++].p)[r] = w->end;
    }
    if (o->fields & WINDOW_EARLY)
        ((uint8_t *)cols[c++].p)[r] = w->early;
    for (int i = 0; i < o->accs->nouts; i++, c++) {
        bool arose;
        if (accs_result(o->accs, i, t, (void *)cols[c].p, r, &arose))
            continue;
        column_set_null(x->arena, &cols[c], r, o->n);
        x->count->nulled += arose;
    }
}

/* Results that rows cause stand before those that the watermark after the row fires, whose `sub` is
 * a time; what a row's `sub` is (a small number, or a time) keeps its order. */
static int64_t before_fired(int64_t sub) {
    int64_t most = (int64_t)1 << 61;
    return TIME_MIN + most + (sub < -most ? -most : sub > most ? most : sub);
}
static struct batch *caused(struct window_out *o, struct column **cols) {
    struct op_ctx *x = o->x;
    uint16_t *src = ARENA_ARRAY(x->arena, uint16_t, o->n);
    for (uint32_t r = 0; r < o->n; r++)
        src[r] = (uint16_t)o->row[r].fire;
    struct batch *b = batch_make(x->arena, o->cause, x->out[0], src, o->n, false, cols);
    if (o->cause->time) {
        int64_t *time = ARENA_ARRAY(x->arena, int64_t, o->n);
        for (uint32_t r = 0; r < o->n; r++)
            time[r] = o->row[r].time == TIME_MIN ? o->cause->time[src[r]] : o->row[r].time;
        b->time = time;
    }
    if (x->desc->flags & OP_TIMERS) {
        int64_t *sub = ARENA_ARRAY(x->arena, int64_t, o->n);
        for (uint32_t r = 0; r < o->n; r++)
            sub[r] = before_fired(batch_sub(o->cause, src[r]));
        b->sub = sub;
    }
    return b;
}
static struct batch *fired(struct window_out *o, struct column **cols) {
    int64_t *fire = ARENA_ARRAY(o->x->arena, int64_t, o->n);
    int64_t *time = ARENA_ARRAY(o->x->arena, int64_t, o->n);
    for (uint32_t r = 0; r < o->n; r++) {
        fire[r] = o->row[r].fire;
        time[r] = o->row[r].time;
    }
    return op_fire(o->x, 0, o->n, fire, time, cols);
}
void window_out_flush(struct window_out *o) {
    struct op_ctx *x = o->x;
    struct column *cols;
    if (!o->n)
        return;
    struct batch *b = o->cause ? caused(o, &cols) : fired(o, &cols);
    for (int i = 0; i < x->out[0]->n; i++)
        cols[i].p = arena_zalloc(x->arena, o->n * sizeof(struct span));
    for (uint32_t r = 0; r < o->n; r++)
        put_values(o, cols, r);
    x->count->made += o->n;
    op_emit(x, 0, b);
    o->n = 0;
}

/* ---- rows that are not taken ---- */

const char *const window_late_words[] = { "drop", "dead_letter", "port", NULL };
const char *const window_ports[] = { "out", "late", NULL };

void window_late_open(struct window_late *l, struct op_ctx *x, int policy, const struct batch *b) {
    *l = (struct window_late){ .policy = policy, .b = b };
    if (policy == LATE_PORT)
        l->sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
}
void window_late_add(struct window_late *l, struct op_ctx *x, uint32_t row, const char *why) {
    if (l->policy == LATE_DEAD_LETTER) {
        op_reject(x, l->b, row, "late", "%s", why);
        return;
    }
    x->count->late++;
    if (l->policy == LATE_PORT)
        l->sel[l->n++] = (uint16_t)row;
}
/* In the port they are rows made: each is counted as late, too, and once on either side. */
void window_late_emit(struct window_late *l, struct op_ctx *x) {
    if (!l->n)
        return;
    x->count->made += l->n;
    op_emit(x, 1, batch_select(x->arena, l->b, l->sel, l->n));
}

bool window_bad_time(struct op_ctx *x, const struct batch *b, uint32_t row) {
    int64_t t = b->time ? b->time[row] : TIME_MIN;
    if (t >= -WINDOW_TIME_MAX && t <= WINDOW_TIME_MAX)
        return false;
    if (t != TIME_MIN)
        op_reject(x, b, row, "bad_time", "the event time is out of range");
    else
        op_reject(x, b, row, "no_time", "the row has no event time");
    return true;
}
void window_long_key(struct op_ctx *x, const struct batch *b, uint32_t row) {
    op_reject(x, b, row, "key_too_long", "the group key is longer than %d bytes", WINDOW_KEY_MAX);
}
