#include "operators/window_acc.h"
#include <math.h>

/* ---- which accumulators an aggregate needs ---- */

static uint32_t acc_bytes(enum acc_kind k) {
    return k == ACC_ISUM                       ? sizeof(struct i128)
           : k == ACC_FSUM || k == ACC_SQUARES ? sizeof(struct xsum)
                                               : 8;
}
static int acc_of(struct accs *s, enum acc_kind kind, int arg) {
    for (int i = 0; i < s->n; i++)
        if (s->acc[i].kind == kind && s->acc[i].arg == arg)
            return i;
    if (s->n == ACCS_MAX)
        return -1;
    if (!s->record)
        s->record = sizeof(uint64_t);
    s->acc[s->n] = (struct acc){
        .kind = kind, .arg = arg, .offset = s->record, .type = arg < 0 ? TYPE_I64 : s->arg[arg].type
    };
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

int accs_add(struct accs *s, struct arena *a, const char *text, const struct schema *in,
             unsigned flags, struct err *e) {
    struct agg g;
    if (s->nouts == ACCS_MAX || s->nargs == ACCS_MAX)
        return err_set(e, ERR_INPUT, "more than %d aggregates", ACCS_MAX);
    if (agg_compile(a, text, strlen(text), in, flags, &g, e) < 0)
        return ERR_INPUT;
    struct acc_out *o = &s->out[s->nouts++];
    *o = (struct acc_out){ .kind = g.kind, .type = g.type, .sum = -1, .squares = -1 };
    int arg = -1;
    if (g.arg) /* the canonical text without the name in front tells equal arguments */
        arg = arg_of(s, strchr(agg_canonical(a, text, strlen(text), NULL), '('), g.arg);
    o->rows = acc_of(s, arg < 0 ? ACC_ROWS : ACC_COUNT, arg);
    uint32_t count = o->rows < 0 ? 0 : s->acc[o->rows].offset;
    enum acc_kind sum = arg >= 0 && s->arg[arg].type == TYPE_I64 ? ACC_ISUM : ACC_FSUM;
    if (g.kind == AGG_MIN || g.kind == AGG_MAX)
        o->sum = acc_of(s, g.kind == AGG_MIN ? ACC_MIN : ACC_MAX, arg);
    else if (g.kind != AGG_COUNT)
        o->sum = acc_of(s, sum, arg);
    if (o->sum >= 0)
        s->acc[o->sum].count = count;
    if (g.kind == AGG_STDDEV || g.kind == AGG_VARIANCE)
        o->squares = acc_of(s, ACC_SQUARES, arg);
    if (o->rows < 0 || (g.kind != AGG_COUNT && o->sum < 0) ||
        (g.kind >= AGG_STDDEV && o->squares < 0))
        return err_set(e, ERR_INPUT, "the aggregates keep more than %d values a group", ACCS_MAX);
    return 0;
}

/* ---- rows ---- */

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

uint64_t accs_update(const struct accs *s, void *record, const struct column *arg, uint32_t row) {
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
        default:
            update_extreme(c, at, v, row, *(const uint64_t *)((char *)record + c->count) == 1);
        }
    }
    *(uint64_t *)record |= full;
    return full;
}

/* ---- slices ---- */

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
        default:
            merge_extreme(c, &t[i], at, !count[c->arg]);
        }
    }
}

static bool slide_extreme(const struct acc *c, struct acc_total *t, const char *at, uint64_t n,
                          bool take) {
    if (!n)
        return true;
    if (!take) {
        merge_extreme(c, t, at, false);
        return true;
    }
    return c->type == TYPE_I64 ? *(const int64_t *)at != t->i64 : *(const double *)at != t->f64;
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
        default:
            fits = slide_extreme(c, &t[i], at, *(const uint64_t *)((const char *)record + c->count),
                                 take);
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
bool accs_result(const struct accs *s, int i, const struct acc_total *t, void *column, uint32_t row,
                 bool *arose) {
    const struct acc_out *o = &s->out[i];
    uint64_t n = t[o->rows].count;
    *arose = false;
    if (o->kind == AGG_COUNT) {
        ((int64_t *)column)[row] = (int64_t)n;
        return true;
    }
    if (n < (o->kind >= AGG_STDDEV ? 2 : 1))
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
