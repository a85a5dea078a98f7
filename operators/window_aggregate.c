/* window_aggregate: tumbling and sliding windows by event time.
 *
 * Time is cut into slices as long as the greatest common divisor of `size` and `every` (J. Li et
 * al., "No pane, no gain", SIGMOD Record 2005), so that a row is added once, however many windows
 * hold it. Sums are exact (xsum.h), so the sum of slices is the sum of rows, byte for byte.
 *
 * Where windows overlap, the totals of each group slide along: a slice is added when a window first
 * holds it and taken away when no window will any more, which exact sums allow; what cannot be
 * taken away (the smallest value, a row late for some windows only) has its group added up anew. So
 * the cost does not depend on how many windows hold a row. Totals are derived, not state.
 *
 * Tables: 0, key (slice start, group key), the accumulators of window_acc.h. 1, key (the same,
 * number of the accumulator), a large sum that outgrew its small form. 2, one key "fired", the end
 * of the last window that may have fired. What is due is derived from table 0 (window_index.h).
 *
 * ~40 ns a row with 100 groups, ~85 ns with 10,000; for each group a window costs ~60 ns a slice
 * and ~0.3 us for its results when it fires. */
#include "operators/keyed.h"
#include "operators/window_acc.h"
#include "operators/window_index.h"
#include <stdlib.h>

enum { LATE_DROP, LATE_DEAD_LETTER };
enum {
    SLICES_MAX = 10000,     /* slices of one window */
    ENTRIES_MAX = 16 << 20, /* open pairs of slice and group */
    GROUP_KEY_MAX = 4096    /* bytes of a canonical group key */
};
#define WINDOW_TIME_MAX                                                                            \
    ((int64_t)1 << 60) /* event times and durations, ms: sums do not overflow                      \
                        */

struct window_config {
    struct strmap aggregate;
    int64_t every, size, lateness;
    int late;
};
static const char *const late_words[] = { "drop", "dead_letter", NULL };
static const struct param window_params[] = {
    { .name = "aggregate",
      .type = PT_AGGMAP,
      .offset = offsetof(struct window_config, aggregate),
      .doc = "Output fields and what they hold, in the order of the output: `count()`, and of any "
             "expression (expressions.md) `count` (values that are not null), `sum`, `mean`, "
             "`min`, `max`, `stddev` and `variance` (of the sample)." },
    { .name = "every",
      .type = PT_DURATION,
      .offset = offsetof(struct window_config, every),
      .min = 1,
      .max = 1e15,
      .doc = "A window begins at each multiple of this, counted from 1970." },
    { .name = "size",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct window_config, size),
      .min = 1,
      .max = 1e15,
      .doc = "Length of a window, default `every`. Longer: windows overlap." },
    { .name = "lateness",
      .type = PT_DURATION,
      .offset = offsetof(struct window_config, lateness),
      .def = "\"0s\"",
      .min = 0,
      .max = 1e15,
      .doc =
          "How long after its end (by the watermark) a window still takes rows; it fires then." },
    { .name = "late",
      .type = PT_ENUM,
      .offset = offsetof(struct window_config, late),
      .def = "\"drop\"",
      .words = late_words,
      .doc = "What happens to a row whose windows have all fired: `drop` it (counted as late), or "
             "make it a `dead_letter`." },
    { .name = NULL },
};

/* Of one group, over the open slices that start before run_end. */
struct window_run {
    uint32_t slices; /* that hold the group; 0: its totals are zero */
    bool stale;      /* to be added up anew */
};
struct window_self {
    int64_t every, size, width, lateness;
    int late;
    struct accs accs;
    struct state *slices, *large, *mark;
    struct window_index index;
    int64_t fired; /* end of the last window that may have fired; TIME_MIN: none */
    bool slides;   /* totals slide along */
    int64_t run_end;
    struct window_run *run;   /* by id of the group */
    struct acc_total *totals; /* accs.n for each */
    uint32_t cap_run;
    struct column *arg;
    char *key; /* scratch of firing: a table key */
    struct arena arena;
};

/* ---- window arithmetic ---- */

static int64_t floor_to(int64_t t, int64_t step) {
    int64_t r = t % step;
    return t - (r < 0 ? r + step : r);
}
static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}
static int64_t saturate(int64_t a, int64_t b) {
    int64_t t;
    return __builtin_add_overflow(a, b, &t) ? (b < 0 ? TIME_MIN : TIME_MAX) : t;
}
/* End of the first and of the last window that holds the slice. */
static int64_t first_end(const struct window_self *s, int64_t slice) {
    return floor_to(slice + s->width - s->size + s->every - 1, s->every) + s->size;
}
static int64_t last_end(const struct window_self *s, int64_t slice) {
    return floor_to(slice, s->every) + s->size;
}
/* End of the last window that ends at `t` or before. */
static int64_t end_before(const struct window_self *s, int64_t t) {
    if (t < -4 * WINDOW_TIME_MAX)
        return TIME_MIN;
    return t > 4 * WINDOW_TIME_MAX ? TIME_MAX : floor_to(t - s->size, s->every) + s->size;
}

/* ---- submit time ---- */

static bool name_taken(const struct op_plan *p, const struct strmap *m, int upto,
                       const char *name) {
    for (int i = 0; i < p->nby; i++)
        if (!strcmp(p->by[i], name))
            return true;
    for (int i = 0; i < upto; i++)
        if (!strcmp(m->v[i].name, name))
            return true;
    return !strcmp(name, "window_start") || !strcmp(name, "window_end");
}
static void window_plan(struct op_plan *p) {
    const struct window_config *c = p->config;
    const struct schema *in = p->in[0];
    int64_t size = c->size == PARAM_UNSET ? c->every : c->size;
    struct accs *accs = ARENA_NEW(p->arena, struct accs);
    struct field *f;
    struct schema *out = schema_new(p->arena, p->nby + 2 + c->aggregate.n, &f);
    p->out[0] = out;
    if (!p->in_time)
        plan_error(p, NULL, NULL, "the input has no event time; give its source a 'time'");
    if (c->every > 0 && size < c->every)
        plan_error(p, "size", NULL,
                   "'size' is at least 'every': rows between windows would be lost");
    else if (c->every > 0 && size / gcd(size, c->every) > SLICES_MAX)
        plan_error(p, "size", NULL,
                   "a window would have more than %d slices of the greatest common divisor of "
                   "'size' and 'every'",
                   SLICES_MAX);
    if (!c->aggregate.n)
        plan_error(p, "aggregate", NULL, "no aggregates given");
    int n = 0;
    for (int i = 0; i < p->nby; i++) {
        int at = schema_find(in, p->by[i]);
        if (at >= 0 && in->f[at].type == TYPE_VEC)
            plan_error(p, NULL, NULL, "a group key cannot be a vector: '%s'", p->by[i]);
        f[n++] = at >= 0 ? in->f[at] : (struct field){ p->by[i], TYPE_STR, 0 };
    }
    f[n++] = (struct field){ "window_start", TYPE_I64, 0 };
    f[n++] = (struct field){ "window_end", TYPE_I64, 0 };
    for (int i = 0; i < c->aggregate.n; i++) {
        const struct strpair *v = &c->aggregate.v[i];
        struct err e = ERR_INIT;
        f[n] = (struct field){ v->name, TYPE_F64, 0 };
        if (name_taken(p, &c->aggregate, i, v->name))
            plan_error(p, "aggregate", v->name, "the output has a field '%s' already", v->name);
        else if (accs_add(accs, p->arena, v->text, in, EXPR_HAS_TIME, &e) < 0)
            plan_error(p, "aggregate", v->name, "%s", e.text);
        else
            f[n].type = accs->out[accs->nouts - 1].type;
        n++;
    }
}

/* ---- state ---- */

enum { SLICE_KEY = 8 };
static const char mark_key[] = "fired";

static void put_start(char *to, int64_t start) {
    uint64_t u = __builtin_bswap64((uint64_t)start ^ (uint64_t)1 << 63);
    memcpy(to, &u, sizeof u);
}
static int64_t get_start(const char *from) {
    uint64_t u;
    memcpy(&u, from, sizeof u);
    return (int64_t)(__builtin_bswap64(u) ^ (uint64_t)1 << 63);
}
static uint64_t mark_hash(void) {
    return state_hash(mark_key, sizeof mark_key - 1);
}

static void window_rebuild(void *self, struct op_ctx *x) {
    struct window_self *s = self;
    const void *key, *value;
    uint32_t klen, vlen;
    (void)x;
    window_index_free(&s->index);
    for (uint64_t it = 0; state_next(s->slices, &it, &key, &klen, &value, &vlen);) {
        struct span k = { (const char *)key + SLICE_KEY, klen - SLICE_KEY, 0 };
        window_index_add(&s->index, get_start(key), k, state_hash(k.p, k.len));
    }
    const int64_t *fired = state_find(s->mark, mark_key, sizeof mark_key - 1, mark_hash());
    s->fired = fired ? *fired : TIME_MIN;
    s->run_end = TIME_MIN;
    free(s->run);
    free(s->totals);
    s->run = NULL;
    s->totals = NULL;
    s->cap_run = 0;
}

static int window_open(void *self, struct op_ctx *x, struct err *e) {
    struct window_self *s = self;
    const struct window_config *c = x->config;
    s->every = c->every;
    s->size = c->size == PARAM_UNSET ? c->every : c->size;
    s->width = gcd(s->size, s->every);
    s->slides = s->size > 2 * s->width;
    s->run_end = TIME_MIN;
    s->lateness = c->lateness;
    s->late = c->late;
    s->fired = TIME_MIN;
    for (int i = 0; i < c->aggregate.n; i++)
        if (accs_add(&s->accs, &s->arena, c->aggregate.v[i].text, x->in[0], EXPR_HAS_TIME, e) < 0)
            return ERR_INPUT;
    s->arg = ARENA_ARRAY(&s->arena, struct column, s->accs.nargs + 1);
    s->key = arena_alloc(&s->arena, SLICE_KEY + GROUP_KEY_MAX + 1);
    s->slices = op_state(x, 0, s->accs.record);
    s->large = op_state(x, 1, sizeof(struct xbig));
    s->mark = op_state(x, 2, sizeof(int64_t));
    return 0;
}
static void window_close(void *self) {
    struct window_self *s = self;
    window_index_free(&s->index);
    free(s->run);
    free(s->totals);
    arena_free(&s->arena);
}

/* ---- rows ---- */

/* A row on its way into its slice. The table key has room for one byte more. */
struct entry {
    enum { ENTRY_ADD, ENTRY_LATE, ENTRY_NO_TIME, ENTRY_LONG_KEY } kind;
    uint32_t klen;
    int64_t start;
    char *key;
    uint64_t hash;
};

/* The large sum of accumulator i. */
static struct xbig *large_edit(struct window_self *s, const struct entry *e, int i) {
    bool created;
    e->key[e->klen] = (char)i;
    return state_edit(s->large, e->key, e->klen + 1, state_hash(e->key, e->klen + 1), &created);
}
static void add_large(struct window_self *s, const struct entry *e, uint64_t full, uint32_t row) {
    for (; full; full &= full - 1) {
        int i = __builtin_ctzll(full);
        const struct acc *c = &s->accs.acc[i];
        double v = s->arg[c->arg].f64[row];
        if (c->kind == ACC_FSUM)
            xbig_add(large_edit(s, e, i), v);
        else
            xbig_add_square(large_edit(s, e, i), v);
    }
}

/* Rows of one slice often follow each other: what is known of it. */
struct current {
    int64_t start, end, late; /* rows are late from this watermark on */
};
static void set_current(const struct window_self *s, struct current *cur, int64_t t) {
    cur->start = floor_to(t, s->width);
    cur->end = cur->start + s->width;
    cur->late = saturate(last_end(s, cur->start), s->lateness);
}

/* Slices and table keys of all rows; asks the cache for their entries when the table is larger than
 * it: ~85 ns a row instead of ~110 with 10,000 groups. */
static struct entry *find_entries(struct window_self *s, struct op_ctx *x, const struct batch *b,
                                  const struct span *key) {
    struct entry *v = ARENA_ARRAY(x->arena, struct entry, b->n);
    struct current cur = { 0 };
    size_t bytes = 0;
    for (uint32_t i = 0; i < b->n; i++)
        bytes += SLICE_KEY + key[i].len + 1;
    char *to = arena_alloc(x->arena, bytes);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        int64_t t = b->time ? b->time[row] : TIME_MIN;
        if (t < -WINDOW_TIME_MAX || t > WINDOW_TIME_MAX) {
            v[i].kind = ENTRY_NO_TIME;
            continue;
        }
        if (t < cur.start || t >= cur.end)
            set_current(s, &cur, t);
        v[i] = (struct entry){ .klen = SLICE_KEY + key[i].len, .start = cur.start, .key = to };
        if (b->wm && b->wm[row] >= cur.late)
            v[i].kind = ENTRY_LATE;
        else if (key[i].len > GROUP_KEY_MAX)
            v[i].kind = ENTRY_LONG_KEY;
        else {
            put_start(to, cur.start);
            memcpy(to + SLICE_KEY, key[i].p, key[i].len);
            v[i].hash = state_hash(to, v[i].klen);
            to += v[i].klen + 1;
        }
    }
    for (int pass = 0; pass < 2 && state_bytes(s->slices) > KEYED_PREFETCH_BYTES; pass++)
        for (uint32_t i = 0; i < b->n; i++)
            if (v[i].kind == ENTRY_ADD && pass)
                state_prefetch_entry(s->slices, v[i].hash);
            else if (v[i].kind == ENTRY_ADD)
                state_prefetch_slot(s->slices, v[i].hash);
    return v;
}

static struct acc_total *totals_of(const struct window_self *s, uint32_t id) {
    return s->totals + (size_t)id * (size_t)s->accs.n;
}
static void run_room(struct window_self *s) {
    size_t n = s->index.cap_keys, old = s->cap_run, each = sizeof *s->totals * (size_t)s->accs.n;
    if (n <= old)
        return;
    s->run = realloc(s->run, n * sizeof *s->run);
    s->totals = realloc(s->totals, n * each);
    if (!s->run || !s->totals)
        abort();
    memset(s->run + old, 0, (n - old) * sizeof *s->run);
    memset((char *)s->totals + old * each, 0, (n - old) * each);
    s->cap_run = (uint32_t)n;
}
/* The totals of a group lack a row: it is late for the windows that have fired. */
static void run_stale(struct window_self *s, struct span key, uint64_t hash) {
    run_room(s);
    s->run[window_index_find(&s->index, key, hash)].stale = true;
}

static void refuse(struct window_self *s, struct op_ctx *x, const struct batch *b, uint32_t row,
                   int kind) {
    bool timed = b->time && b->time[row] != TIME_MIN;
    if (kind == ENTRY_NO_TIME && timed)
        op_reject(x, b, row, "bad_time", "the event time is out of range");
    else if (kind == ENTRY_NO_TIME)
        op_reject(x, b, row, "no_time", "the row has no event time");
    else if (kind == ENTRY_LONG_KEY)
        op_reject(x, b, row, "key_too_long", "the group key is longer than %d bytes",
                  GROUP_KEY_MAX);
    else if (kind == ENTRY_ADD)
        op_reject(x, b, row, "too_many_groups", "more than %d groups and slices are open",
                  ENTRIES_MAX);
    else if (s->late == LATE_DEAD_LETTER)
        op_reject(x, b, row, "late", "the row is late: its last window has fired");
    else
        x->count->late++;
}

static void window_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct window_self *s = self;
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    key_batch(x->arena, b, x->by, x->nby, key, hash);
    for (int i = 0; i < s->accs.nargs; i++)
        s->arg[i] = expr_eval(s->accs.arg[i].x, x->arena, b, &x->count->nulled);
    const struct entry *v = find_entries(s, x, b, key);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct entry *e = &v[i];
        uint32_t row = batch_row(b, i);
        bool created;
        if (e->kind != ENTRY_ADD || s->index.entries >= ENTRIES_MAX) {
            refuse(s, x, b, row, e->kind);
            continue;
        }
        void *record = state_edit(s->slices, e->key, e->klen, e->hash, &created);
        if (created)
            window_index_add(&s->index, e->start, key[i], hash[i]);
        uint64_t full = accs_update(&s->accs, record, s->arg, row);
        if (full)
            add_large(s, e, full, row);
        if (s->slides && e->start < s->run_end)
            run_stale(s, key[i], hash[i]);
        x->count->absorbed++;
    }
}

/* ---- firing ---- */

/* Output under construction. */
struct firing {
    struct window_self *s;
    struct op_ctx *x;
    uint32_t n, cap;
    int64_t *fire, *time;
    struct window_out {
        int64_t start, end;
        struct span key;
        struct acc_total *total;
    } * row;
    struct acc_total *total;
    /* of the record being merged: what large_find needs */
    uint32_t klen;
};

static const struct xbig *large_find(void *user, int i) {
    struct firing *f = user;
    f->s->key[f->klen] = (char)i;
    return state_find(f->s->large, f->s->key, f->klen + 1, state_hash(f->s->key, f->klen + 1));
}

static void put_key(const struct op_ctx *x, struct column *cols, uint32_t n, uint32_t row,
                    struct span key) {
    struct key_value v[OP_BY_MAX];
    const struct schema *in = x->in[0];
    int bad = key_decode(x->arena, in, x->by, x->nby, key.p, key.len, v);
    for (int k = 0; k < x->nby; k++) {
        struct column *c = &cols[k];
        if (bad || v[k].null) {
            if (!c->nulls)
                c->nulls = batch_nulls(x->arena, n);
            bit_set((uint64_t *)c->nulls, row);
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

static void flush(struct firing *f) {
    struct op_ctx *x = f->x;
    struct column *cols;
    if (!f->n)
        return;
    struct batch *b = op_fire(x, 0, f->n, f->fire, f->time, &cols);
    for (int i = 0; i < x->out[0]->n; i++)
        cols[i].p = arena_zalloc(x->arena, f->n * sizeof(struct span));
    for (uint32_t r = 0; r < f->n; r++) {
        const struct window_out *o = &f->row[r];
        int c = x->nby;
        put_key(x, cols, f->n, r, o->key);
        ((int64_t *)cols[c++].p)[r] = o->start;
        ((int64_t *)cols[c++].p)[r] = o->end;
        for (int i = 0; i < f->s->accs.nouts; i++, c++) {
            bool arose;
            if (accs_result(&f->s->accs, i, o->total, (void *)cols[c].p, r, &arose))
                continue;
            if (!cols[c].nulls)
                cols[c].nulls = batch_nulls(x->arena, f->n);
            bit_set((uint64_t *)cols[c].nulls, r);
            x->count->nulled += arose;
        }
    }
    x->count->made += f->n;
    op_emit(x, 0, b);
    f->n = 0;
}

static const void *record_of(struct window_self *s, const struct window_slice *sl,
                             const struct window_key *k) {
    uint32_t klen = SLICE_KEY + k->len;
    put_start(s->key, sl->start);
    memcpy(s->key + SLICE_KEY, k->p, k->len);
    return state_find(s->slices, s->key, klen, state_hash(s->key, klen));
}
/* Adds up a group over the slices 0..hi-1; returns how many hold it. */
static uint32_t add_up(struct firing *f, uint32_t hi, uint32_t id, struct acc_total *t) {
    struct window_self *s = f->s;
    const struct window_key *k = &s->index.key[id];
    uint32_t n = 0;
    memset(t, 0, sizeof *t * (size_t)s->accs.n);
    f->klen = SLICE_KEY + k->len;
    for (uint32_t i = 0; i < hi; i++) {
        if (!window_slice_has(&s->index.slice[i], id))
            continue;
        accs_merge(&s->accs, t, record_of(s, &s->index.slice[i], k), f->x->arena, large_find, f);
        n++;
    }
    return n;
}

/* ---- totals that slide along ---- */

/* Adds the slices from run_end on that start before `end`. */
static void run_advance(struct window_self *s, int64_t end) {
    uint32_t hi = window_index_lower(&s->index, end);
    run_room(s);
    for (uint32_t i = window_index_lower(&s->index, s->run_end); i < hi; i++) {
        const struct window_slice *sl = &s->index.slice[i];
        for (uint32_t w = 0; w < sl->words; w++)
            for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
                uint32_t id = 64 * w + (uint32_t)__builtin_ctzll(b);
                struct window_run *r = &s->run[id];
                r->slices++;
                r->stale = r->stale || !accs_slide(&s->accs, totals_of(s, id),
                                                   record_of(s, sl, &s->index.key[id]), false);
            }
    }
    s->run_end = end;
}
static void run_reset(struct window_self *s, uint32_t id) {
    s->run[id] = (struct window_run){ 0 };
    memset(totals_of(s, id), 0, sizeof *s->totals * (size_t)s->accs.n);
}
/* A slice that holds the group goes. */
static void run_take(struct window_self *s, uint32_t id, int64_t start, const void *record) {
    if (start >= s->run_end || id >= s->cap_run)
        return;
    struct window_run *r = &s->run[id];
    if (r->stale)
        return;
    if (!--r->slices)
        run_reset(s, id);
    else
        r->stale = !accs_slide(&s->accs, totals_of(s, id), record, true);
}
/* The totals of a group into `t`; false: it has no rows. Sums that need the large form stay stale.
 */
static bool run_totals(struct firing *f, uint32_t hi, uint32_t id, struct acc_total *t) {
    struct window_self *s = f->s;
    struct window_run *r = &s->run[id];
    size_t bytes = sizeof *t * (size_t)s->accs.n;
    if (!r->stale) {
        memcpy(t, totals_of(s, id), r->slices ? bytes : 0);
        return r->slices;
    }
    uint32_t n = add_up(f, hi, id, t);
    run_reset(s, id);
    r->slices = n;
    for (int i = 0; i < s->accs.n; i++)
        r->stale |= t[i].big != NULL;
    if (n && !r->stale)
        memcpy(totals_of(s, id), t, bytes);
    return n;
}

/* One group of the window [end - size, end) over the slices 0..hi-1; nothing if it has no rows. */
static void fire_group(struct firing *f, int64_t end, uint32_t hi, uint32_t id) {
    struct window_self *s = f->s;
    const struct window_key *k = &s->index.key[id];
    struct acc_total *t = f->total + (size_t)f->n * (size_t)s->accs.n;
    if (s->slides ? !run_totals(f, hi, id, t) : !add_up(f, hi, id, t))
        return;
    char *copy = arena_strndup(f->x->arena, k->p, k->len);
    f->row[f->n] = (struct window_out){ end - s->size, end, { copy, k->len, 0 }, t };
    f->fire[f->n] = end;
    f->time[f->n] = end - 1;
    if (++f->n == f->cap)
        flush(f);
}

static void drop_slice(struct window_self *s) {
    const struct window_slice *sl = &s->index.slice[0];
    for (uint32_t w = 0; w < sl->words; w++)
        for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
            uint32_t id = 64 * w + (uint32_t)__builtin_ctzll(b);
            uint32_t klen = SLICE_KEY + s->index.key[id].len;
            const void *record = record_of(s, sl, &s->index.key[id]);
            uint64_t full = *(const uint64_t *)record;
            if (s->slides)
                run_take(s, id, sl->start, record);
            state_drop(s->slices, s->key, klen, state_hash(s->key, klen));
            for (; full; full &= full - 1) {
                s->key[klen] = (char)__builtin_ctzll(full);
                state_drop(s->large, s->key, klen + 1, state_hash(s->key, klen + 1));
            }
        }
    window_index_drop_first(&s->index);
}

/* Fires all windows that end in (s->fired, bound], by (end, canonical key). */
static void fire_until(struct firing *f, int64_t bound) {
    struct window_self *s = f->s;
    while (s->index.nslices) {
        int64_t start = s->index.slice[0].start, end = first_end(s, start);
        if (end <= s->fired) /* the next window after the last one that fired */
            end = saturate(s->fired, s->every);
        if (end > last_end(s, start)) {
            drop_slice(s);
            continue;
        }
        if (end > bound)
            break;
        uint32_t hi = window_index_lower(&s->index, end);
        window_index_sort(&s->index);
        if (s->slides)
            run_advance(s, end);
        for (uint32_t i = 0; i < s->index.norder; i++)
            fire_group(f, end, hi, s->index.order[i]);
        s->fired = end;
    }
    flush(f);
}

static void set_mark(struct window_self *s, int64_t fired) {
    bool created;
    *(int64_t *)state_edit(s->mark, mark_key, sizeof mark_key - 1, mark_hash(), &created) = fired;
    s->fired = fired;
}

static void window_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct window_self *s = self;
    int64_t bound = wm == TIME_MAX ? TIME_MAX : saturate(wm, -s->lateness);
    int64_t before = s->fired, last = wm == TIME_MAX ? before : end_before(s, bound);
    if (s->index.nslices && first_end(s, s->index.slice[0].start) <= bound) {
        struct firing f = { .s = s, .x = x };
        f.cap = s->index.nkeys < BATCH_ROWS ? s->index.nkeys : BATCH_ROWS;
        f.fire = ARENA_ARRAY(x->arena, int64_t, f.cap);
        f.time = ARENA_ARRAY(x->arena, int64_t, f.cap);
        f.row = ARENA_ARRAY(x->arena, struct window_out, f.cap);
        f.total = ARENA_ARRAY(x->arena, struct acc_total, (int)f.cap * s->accs.n);
        fire_until(&f, bound);
    }
    if (last != before)
        set_mark(s, last);
    /* Until the first watermark is known anything may be next. */
    int64_t next = last == TIME_MIN ? end_before(s, wm) : saturate(last, s->every);
    x->next_timer = wm == TIME_MAX ? TIME_MAX : saturate(next, s->lateness);
    if (x->next_timer <= wm && wm != TIME_MAX)
        x->next_timer = wm + 1;
}

const struct op_desc op_window_aggregate = {
    .name = "window_aggregate",
    .doc =
        "Aggregates rows by event time in tumbling windows (`size` = `every`) or sliding ones, "
        "for each group of the input's `by`. When the watermark passes the end of a window and "
        "`lateness`, every group with rows in it makes one row: the group's fields, "
        "`window_start` and `window_end` (i64, ms since 1970 in UTC; the end is exclusive) and the "
        "aggregates. The row's event time is `window_end` - 1 ms; rows that fire together come by "
        "`window_end`, then by group. Sums, means and deviations are exactly rounded and do not "
        "depend on the order of rows. Nulls are ignored: `count(x)` is then 0, the others are null "
        "(`stddev` and `variance` below two values); a sum beyond its type is null, too. Memory: "
        "some 100 bytes for each group and slice (the greatest common divisor of `size` and "
        "`every`) of the open windows.",
    .example = "{\"aggregate\": {\"mean_t\": \"mean(temperature)\", \"n\": \"count()\"}, "
               "\"every\": \"10s\", \"size\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = window_params,
    .config_size = sizeof(struct window_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = window_plan,
    .self_size = sizeof(struct window_self),
    .open = window_open,
    .process = window_process,
    .watermark = window_watermark,
    .rebuild = window_rebuild,
    .close = window_close,
};
