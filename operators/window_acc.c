#include "operators/window_acc.h"
#include <math.h>

/* ---- which accumulators an aggregate needs ---- */

static uint32_t acc_bytes(enum acc_kind k) {
    return k == ACC_ISUM                       ? sizeof(struct i128)
           : k == ACC_FSUM || k == ACC_SQUARES ? sizeof(struct xsum)
           : k >= ACC_FIRST                    ? sizeof(struct acc_pick)
                                               : 8;
}
static int acc_of(struct accs *s, enum acc_kind kind, int arg, int by) {
    for (int i = 0; i < s->n; i++)
        if (s->acc[i].kind == kind && s->acc[i].arg == arg && s->acc[i].by == by)
            return i;
    if (s->n == ACCS_MAX)
        return -1;
    if (!s->record)
        s->record = sizeof(uint64_t);
    s->acc[s->n] = (struct acc){ .kind = kind,
                                 .arg = arg,
                                 .by = by,
                                 .offset = s->record,
                                 .type = arg < 0 ? TYPE_I64 : s->arg[arg].type };
    s->record += acc_bytes(kind);
    return s->n++;
}
static int arg_of(struct accs *s, const char *text, const struct expr *x) {
    for (int i = 0; i < s->nargs; i++)
        if (s->arg[i].type == expr_type(x) && !strcmp(s->arg[i].text, text))
            return i;
    s->arg[s->nargs] = (struct acc_arg){ text, x, expr_type(x) };
    return s->nargs++;
}

int accs_rows(struct accs *s) {
    return acc_of(s, ACC_ROWS, -1, -1);
}
/* first, last, min_by, max_by */
static void add_pick(struct accs *s, struct arena *a, struct acc_out *o, const struct agg *g,
                     const char *args) {
    static const enum acc_kind kinds[] = { ACC_FIRST, ACC_LAST, ACC_MIN_BY, ACC_MAX_BY };
    int arg = arg_of(s, args, g->arg);
    int by = g->by ? arg_of(s, arena_printf(a, "by %s", args), g->by) : -1;
    o->sum = acc_of(s, kinds[g->kind - AGG_FIRST], arg, by);
}
static void add_sums(struct accs *s, struct acc_out *o, enum agg_kind kind, int arg) {
    o->rows = acc_of(s, arg < 0 ? ACC_ROWS : ACC_COUNT, arg, -1);
    uint32_t count = o->rows < 0 ? 0 : s->acc[o->rows].offset;
    enum acc_kind sum = arg >= 0 && s->arg[arg].type == TYPE_I64 ? ACC_ISUM : ACC_FSUM;
    if (kind == AGG_MIN || kind == AGG_MAX)
        o->sum = acc_of(s, kind == AGG_MIN ? ACC_MIN : ACC_MAX, arg, -1);
    else if (kind != AGG_COUNT)
        o->sum = acc_of(s, sum, arg, -1);
    if (o->sum >= 0)
        s->acc[o->sum].count = count;
    if (kind == AGG_STDDEV || kind == AGG_VARIANCE)
        o->squares = acc_of(s, ACC_SQUARES, arg, -1);
}
int accs_add(struct accs *s, struct arena *a, const char *text, const struct schema *in,
             unsigned flags, struct err *e) {
    struct agg g;
    if (s->nouts == ACCS_MAX || s->nargs + 2 > ACCS_MAX)
        return err_set(e, ERR_INPUT, "more than %d aggregates", ACCS_MAX);
    if (agg_compile(a, text, strlen(text), in, flags, &g, e) < 0)
        return ERR_INPUT;
    struct acc_out *o = &s->out[s->nouts++];
    *o = (struct acc_out){ .kind = g.kind, .type = g.type, .rows = -1, .sum = -1, .squares = -1 };
    /* the canonical text without the name in front tells equal arguments */
    const char *args = g.arg ? strchr(agg_canonical(a, text, strlen(text), NULL), '(') : NULL;
    if (g.kind >= AGG_FIRST)
        add_pick(s, a, o, &g, args);
    else
        add_sums(s, o, g.kind, args ? arg_of(s, args, g.arg) : -1);
    if ((g.kind < AGG_FIRST && o->rows < 0) || (g.kind != AGG_COUNT && o->sum < 0) ||
        ((g.kind == AGG_STDDEV || g.kind == AGG_VARIANCE) && o->squares < 0))
        return err_set(e, ERR_INPUT, "the aggregates keep more than %d values a group", ACCS_MAX);
    return 0;
}

/* ---- rows ---- */

void accs_eval(const struct accs *s, struct arena *a, const struct batch *b, struct column *arg,
               uint64_t *nulled) {
    for (int i = 0; i < s->nargs; i++)
        arg[i] = expr_eval(s->arg[i].x, a, b, nulled);
}

/* -0 and 0 are one value: which of them comes first must not matter. */
static double plain_zero(double v) {
    return v == 0 ? 0 : v;
}
static void update_extreme(const struct acc *c, char *at, const struct column *v, uint32_t row,
                           bool first) {
    if (c->type == TYPE_I64) {
        int64_t *m = (int64_t *)at, x = v->i64[row];
        if (first || (c->kind == ACC_MIN ? x < *m : x > *m))
            *m = x;
    } else {
        double *m = (double *)at, x = plain_zero(v->f64[row]);
        if (first || (c->kind == ACC_MIN ? x < *m : x > *m))
            *m = x;
    }
}
static void add_i128(struct i128 *to, __int128 v) {
    unsigned __int128 t =
        ((unsigned __int128)(uint64_t)to->hi << 64 | to->lo) + (unsigned __int128)v;
    *to = (struct i128){ (uint64_t)t, (int64_t)(t >> 64) };
}

static uint64_t value_bits(const struct column *c, enum type t, uint32_t row) {
    uint64_t bits;
    if (t == TYPE_BOOL)
        return c->b[row] != 0;
    if (t == TYPE_I64)
        return (uint64_t)c->i64[row];
    memcpy(&bits, &c->f64[row], sizeof bits);
    return bits;
}
static int compare_bits(enum type t, uint64_t a, uint64_t b) {
    if (t == TYPE_I64)
        return ((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b);
    double x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return (x > y) - (x < y);
}
/* Whether `p`, which came later, is to be taken instead of `q`. `by`: type of what is compared. */
static bool picks(enum acc_kind kind, enum type by, const struct acc_pick *p,
                  const struct acc_pick *q) {
    if (!p->has || !q->has)
        return p->has;
    if (kind == ACC_LAST)
        return p->time >= q->time;
    int c = kind == ACC_FIRST ? 0 : compare_bits(by, p->by, q->by);
    if (c)
        return kind == ACC_MIN_BY ? c < 0 : c > 0;
    return p->time < q->time;
}
static enum type by_type(const struct accs *s, const struct acc *c) {
    return c->by < 0 ? TYPE_I64 : s->arg[c->by].type;
}
static void update_pick(const struct accs *s, const struct acc *c, struct acc_pick *at,
                        const struct column *arg, uint32_t row, int64_t time) {
    struct acc_pick p = { .has = 1, .time = time };
    if (c->by >= 0 && column_null(&arg[c->by], row))
        return;
    if (c->by >= 0)
        p.by = value_bits(&arg[c->by], by_type(s, c), row);
    p.value = value_bits(&arg[c->arg], c->type, row);
    if (picks(c->kind, by_type(s, c), &p, at))
        *at = p;
}

uint64_t accs_update(const struct accs *s, void *record, const struct column *arg, uint32_t row,
                     int64_t time) {
    uint64_t full = 0;
    for (int i = 0; i < s->n; i++) {
        const struct acc *c = &s->acc[i];
        char *at = (char *)record + c->offset;
        if (c->kind == ACC_ROWS) {
            ++*(uint64_t *)at;
            continue;
        }
        const struct column *v = &arg[c->arg];
        if (column_null(v, row))
            continue;
        switch (c->kind) {
        case ACC_COUNT:
            ++*(uint64_t *)at;
            break;
        case ACC_ISUM:
            add_i128((struct i128 *)at, v->i64[row]);
            break;
        case ACC_FSUM:
            full |= (uint64_t)!xsum_add((struct xsum *)at, v->f64[row]) << i;
            break;
        case ACC_SQUARES:
            full |= (uint64_t)!xsum_add_square((struct xsum *)at, v->f64[row]) << i;
            break;
        case ACC_FIRST:
        case ACC_LAST:
        case ACC_MIN_BY:
        case ACC_MAX_BY:
            update_pick(s, c, (struct acc_pick *)at, arg, row, time);
            break;
        default:
            update_extreme(c, at, v, row, *(const uint64_t *)((char *)record + c->count) == 1);
        }
    }
    *(uint64_t *)record |= full;
    return full;
}
void accs_add_large(const struct accs *s, uint64_t full, const struct column *arg, uint32_t row,
                    struct xbig *(*big)(void *user, int i), void *user) {
    for (; full; full &= full - 1) {
        int i = __builtin_ctzll(full);
        double v = arg[s->acc[i].arg].f64[row];
        if (s->acc[i].kind == ACC_FSUM)
            xbig_add(big(user, i), v);
        else
            xbig_add_square(big(user, i), v);
    }
}

/* ---- slices ---- */

static void join_extreme(const struct acc *c, char *to, const char *from, uint64_t n, uint64_t m) {
    if (!m)
        return;
    if (c->type == TYPE_I64) {
        int64_t *x = (int64_t *)to, y = *(const int64_t *)from;
        if (!n || (c->kind == ACC_MIN ? y < *x : y > *x))
            *x = y;
    } else {
        double *x = (double *)to, y = *(const double *)from;
        if (!n || (c->kind == ACC_MIN ? y < *x : y > *x))
            *x = y;
    }
}
static void join_pick(const struct accs *s, const struct acc *c, struct acc_pick *to,
                      const struct acc_pick *from) {
    if (picks(c->kind, by_type(s, c), from, to))
        *to = *from;
}
uint64_t accs_join(const struct accs *s, void *to, const void *from) {
    uint64_t full = 0, was_full = *(const uint64_t *)from;
    uint64_t count[ACCS_MAX] = { 0 }; /* of `to` before, by argument */
    for (int i = 0; i < s->n; i++) {
        const struct acc *c = &s->acc[i];
        char *at = (char *)to + c->offset;
        const char *more = (const char *)from + c->offset;
        switch (c->kind) {
        case ACC_ROWS:
        case ACC_COUNT:
            if (c->arg >= 0)
                count[c->arg] = *(uint64_t *)at;
            *(uint64_t *)at += *(const uint64_t *)more;
            break;
        case ACC_ISUM: {
            const struct i128 *v = (const struct i128 *)more;
            add_i128((struct i128 *)at,
                     (__int128)((unsigned __int128)(uint64_t)v->hi << 64 | v->lo));
            break;
        }
        case ACC_FSUM:
        case ACC_SQUARES:
            if (was_full >> i & 1 || !xsum_merge((struct xsum *)at, (const struct xsum *)more))
                full |= (uint64_t)1 << i;
            break;
        case ACC_MIN:
        case ACC_MAX:
            join_extreme(c, at, more, count[c->arg],
                         *(const uint64_t *)((const char *)from + c->count));
            break;
        default:
            join_pick(s, c, (struct acc_pick *)at, (const struct acc_pick *)more);
        }
    }
    *(uint64_t *)to |= full;
    return full;
}

static void merge_sum(struct acc_total *t, const struct xsum *s, const struct xbig *big,
                      struct arena *a) {
    if (!t->big && !big && xsum_merge(&t->small, s))
        return;
    if (!t->big) {
        t->big = ARENA_NEW(a, struct xbig);
        xbig_merge_xsum(t->big, &t->small);
    }
    xbig_merge_xsum(t->big, s);
    if (big)
        xbig_merge(t->big, big);
}
static void merge_extreme(const struct acc *c, struct acc_total *t, const char *at, bool none) {
    if (c->type == TYPE_I64) {
        int64_t x = *(const int64_t *)at;
        if (!none && (!t->count++ || (c->kind == ACC_MIN ? x < t->i64 : x > t->i64)))
            t->i64 = x;
    } else {
        double x = *(const double *)at;
        if (!none && (!t->count++ || (c->kind == ACC_MIN ? x < t->f64 : x > t->f64)))
            t->f64 = x;
    }
}
void accs_merge(const struct accs *s, struct acc_total *t, const void *record, struct arena *a,
                const struct xbig *(*big)(void *user, int i), void *user) {
    uint64_t full = *(const uint64_t *)record;
    uint64_t count[ACCS_MAX] = { 0 }; /* of this record, by argument */
    for (int i = 0; i < s->n; i++) {
        const struct acc *c = &s->acc[i];
        const char *at = (const char *)record + c->offset;
        switch (c->kind) {
        case ACC_ROWS:
        case ACC_COUNT:
            t[i].count += *(const uint64_t *)at;
            if (c->arg >= 0)
                count[c->arg] = *(const uint64_t *)at;
            break;
        case ACC_ISUM: {
            const struct i128 *v = (const struct i128 *)at;
            t[i].isum += (__int128)((unsigned __int128)(uint64_t)v->hi << 64 | v->lo);
            break;
        }
        case ACC_FSUM:
        case ACC_SQUARES:
            merge_sum(&t[i], (const struct xsum *)at, full >> i & 1 ? big(user, i) : NULL, a);
            break;
        case ACC_FIRST:
        case ACC_LAST:
        case ACC_MIN_BY:
        case ACC_MAX_BY:
            join_pick(s, c, &t[i].pick, (const struct acc_pick *)at);
            break;
        default:
            merge_extreme(c, &t[i], at, !count[c->arg]);
        }
    }
}

bool accs_picked(const struct accs *s, int i, const void *record, struct acc_pick *p) {
    const struct acc *c = &s->acc[i];
    const char *at = (const char *)record + c->offset;
    if (c->kind >= ACC_FIRST) {
        *p = *(const struct acc_pick *)at;
        return p->has;
    }
    if ((c->kind != ACC_MIN && c->kind != ACC_MAX) ||
        !*(const uint64_t *)((const char *)record + c->count))
        return false;
    *p = (struct acc_pick){ .has = 1, .by = *(const uint64_t *)at };
    return true;
}
bool accs_beats(const struct accs *s, int i, const struct acc_pick *later,
                const struct acc_pick *earlier) {
    const struct acc *c = &s->acc[i];
    if (c->kind >= ACC_FIRST)
        return picks(c->kind, by_type(s, c), later, earlier);
    int d = compare_bits(c->type, later->by, earlier->by);
    return c->kind == ACC_MIN ? d <= 0 : d >= 0;
}
void accs_pick(const struct accs *s, int i, struct acc_total *t, const struct acc_pick *p) {
    if (s->acc[i].kind >= ACC_FIRST)
        t->pick = *p;
    else if (s->acc[i].type == TYPE_I64)
        t->i64 = (int64_t)p->by;
    else
        memcpy(&t->f64, &p->by, sizeof t->f64);
}

bool accs_slide(const struct accs *s, struct acc_total *t, const void *record, bool take) {
    if (*(const uint64_t *)record)
        return false;
    for (int i = 0; i < s->n; i++) {
        const struct acc *c = &s->acc[i];
        const char *at = (const char *)record + c->offset;
        bool fits = true;
        switch (c->kind) {
        case ACC_ROWS:
        case ACC_COUNT:
            t[i].count += take ? 0 - *(const uint64_t *)at : *(const uint64_t *)at;
            break;
        case ACC_ISUM: {
            const struct i128 *v = (const struct i128 *)at;
            __int128 x = (__int128)((unsigned __int128)(uint64_t)v->hi << 64 | v->lo);
            t[i].isum += take ? -x : x;
            break;
        }
        case ACC_FSUM:
        case ACC_SQUARES:
            fits = take ? xsum_unmerge(&t[i].small, (const struct xsum *)at)
                        : xsum_merge(&t[i].small, (const struct xsum *)at);
            break;
        default: /* see accs_picked */
            break;
        }
        if (!fits)
            return false;
    }
    return true;
}

/* ---- results ---- */

static double real_result(const struct acc_out *o, const struct acc_total *t, uint64_t n) {
    const struct acc_total *s = &t[o->sum];
    if (o->kind == AGG_SUM)
        return s->big ? xbig_round(s->big) : xsum_round(&s->small);
    if (o->kind == AGG_MEAN)
        return s->big ? xbig_mean(s->big, n) : xsum_mean(&s->small, n);
    struct xbig sum = { 0 }, squares = { 0 };
    const struct acc_total *q = &t[o->squares];
    if (s->big)
        sum = *s->big;
    else
        xbig_merge_xsum(&sum, &s->small);
    if (q->big)
        squares = *q->big;
    else
        xbig_merge_xsum(&squares, &q->small);
    return o->kind == AGG_STDDEV ? xbig_stddev(&sum, &squares, n)
                                 : xbig_variance(&sum, &squares, n);
}
static bool pick_result(enum type t, const struct acc_pick *p, void *column, uint32_t row) {
    if (!p->has)
        return false;
    if (t == TYPE_BOOL)
        ((uint8_t *)column)[row] = p->value != 0;
    else
        memcpy((uint64_t *)column + row, &p->value, sizeof p->value);
    return true;
}
bool accs_result(const struct accs *s, int i, const struct acc_total *t, void *column, uint32_t row,
                 bool *arose) {
    const struct acc_out *o = &s->out[i];
    *arose = false;
    if (o->kind >= AGG_FIRST)
        return pick_result(o->type, &t[o->sum].pick, column, row);
    uint64_t n = t[o->rows].count;
    if (o->kind == AGG_COUNT) {
        ((int64_t *)column)[row] = (int64_t)n;
        return true;
    }
    if (n < (o->kind == AGG_STDDEV || o->kind == AGG_VARIANCE ? 2 : 1))
        return false;
    const struct acc_total *v = &t[o->sum];
    if (o->type == TYPE_I64) {
        __int128 x = o->kind == AGG_SUM ? v->isum : v->i64;
        ((int64_t *)column)[row] = (int64_t)x;
        *arose = x != (int64_t)x;
        return !*arose;
    }
    double x = o->kind == AGG_MIN || o->kind == AGG_MAX ? v->f64 : real_result(o, t, n);
    ((double *)column)[row] = x;
    *arose = !isfinite(x);
    return !*arose;
}
