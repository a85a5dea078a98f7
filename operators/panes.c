#include "operators/panes.h"
#include "engine/key.h"
#include "operators/keyed.h"
#include <stdlib.h>

enum { LATE_DROP, LATE_DEAD_LETTER };
enum {
    SLICES_MAX = 1000,      /* slices of one window: each is merged when it fires */
    ENTRIES_MAX = 16 << 20, /* open pairs of slice and group */
    GROUP_KEY_MAX = 4096    /* bytes of a canonical group key */
};
#define PANE_TIME_MAX ((int64_t)1 << 60) /* event times and durations, ms: sums do not overflow */

const char *const pane_late_words[] = { "drop", "dead_letter", NULL };
static const char mark_key[] = "fired";

/* ---- arithmetic ---- */

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
static int64_t size_of(const struct pane_params *c) {
    return c->size == PARAM_UNSET ? c->every : c->size;
}
/* End of the first and of the last window that holds the slice. */
static int64_t first_end(const struct panes *s, int64_t slice) {
    return floor_to(slice + s->width - s->size + s->every - 1, s->every) + s->size;
}
static int64_t last_end(const struct panes *s, int64_t slice) {
    return floor_to(slice, s->every) + s->size;
}
/* End of the last window that ends at `t` or before. */
static int64_t end_before(const struct panes *s, int64_t t) {
    if (t < -4 * PANE_TIME_MAX)
        return TIME_MIN;
    return t > 4 * PANE_TIME_MAX ? TIME_MAX : floor_to(t - s->size, s->every) + s->size;
}

/* ---- submit time ---- */

void panes_plan(struct op_plan *p, const struct pane_params *c) {
    if (c->every == PARAM_UNSET) {
        const char *what = c->size != PARAM_UNSET ? "size"
                           : c->lateness != 0     ? "lateness"
                           : c->late != LATE_DROP ? "late"
                                                  : NULL;
        if (what)
            plan_error(p, what, NULL, "'%s' is for windows: give 'every', too", what);
        return;
    }
    if (!p->in_time)
        plan_error(p, "every", NULL, "the input has no event time; give its source a 'time'");
    if (size_of(c) < c->every)
        plan_error(p, "size", NULL,
                   "'size' is at least 'every': rows between windows would be lost");
    else if (c->every > 0 && size_of(c) / gcd(size_of(c), c->every) > SLICES_MAX)
        plan_error(p, "size", NULL,
                   "a window would have more than %d slices of the greatest common divisor of "
                   "'size' and 'every'",
                   SLICES_MAX);
    for (int i = 0; i < p->nby; i++) {
        int at = schema_find(p->in[0], p->by[i]);
        if (at >= 0 && p->in[0]->f[at].type == TYPE_VEC)
            plan_error(p, NULL, NULL, "a group key cannot be a vector: '%s'", p->by[i]);
    }
}

int panes_fields(struct op_plan *p, bool bounds, struct field *f) {
    int n = 0;
    for (int i = 0; i < p->nby; i++) {
        if (bounds && (!strcmp(p->by[i], "window_start") || !strcmp(p->by[i], "window_end")))
            plan_error(p, NULL, NULL, "the output would have two fields '%s': rename the group key",
                       p->by[i]);
        int at = schema_find(p->in[0], p->by[i]);
        f[n++] = at >= 0 ? p->in[0]->f[at] : (struct field){ p->by[i], TYPE_STR, 0 };
    }
    if (bounds) {
        f[n++] = (struct field){ "window_start", TYPE_I64, 0 };
        f[n++] = (struct field){ "window_end", TYPE_I64, 0 };
    }
    return n;
}

void panes_lower(struct op_lower *l, const struct pane_params *c, const char *own,
                 const char *window, size_t config_size) {
    void *config = l->stage(l, c->every == PARAM_UNSET ? own : window);
    memcpy(config, l->config, config_size);
}

/* ---- state ---- */

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

void panes_rebuild(struct panes *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    window_index_free(&s->index);
    for (uint64_t it = 0; state_next(s->records, &it, &key, &klen, &value, &vlen);) {
        struct span k = { (const char *)key + PANE_KEY, klen - PANE_KEY, 0 };
        window_index_add(&s->index, get_start(key), k, state_hash(k.p, k.len));
    }
    const int64_t *fired = state_find(s->mark, mark_key, sizeof mark_key - 1, mark_hash());
    s->fired = fired ? *fired : TIME_MIN;
}

void panes_open(struct panes *s, struct op_ctx *x, const struct pane_params *c, uint32_t record) {
    int64_t size = size_of(c);
    *s = (struct panes){ .every = c->every,
                         .size = size,
                         .width = gcd(size, c->every),
                         .lateness = c->lateness,
                         .late = c->late,
                         .fired = TIME_MIN };
    s->key = malloc(PANE_KEY + GROUP_KEY_MAX);
    if (!s->key)
        abort();
    s->records = op_state(x, 0, record);
    s->mark = op_state(x, 1, sizeof(int64_t));
}
void panes_close(struct panes *s) {
    window_index_free(&s->index);
    free(s->key);
}

/* ---- rows ---- */

struct pane_row {
    enum { ROW_ADD, ROW_LATE, ROW_NO_TIME, ROW_LONG_KEY } kind;
    uint32_t klen;
    int64_t start;
    const char *key;
    uint64_t hash;
};

/* Rows of one slice often follow each other: what is known of it. */
struct current {
    int64_t start, end, late; /* rows are late from this watermark on */
};

static void place_row(const struct panes *s, const struct batch *b, uint32_t row,
                      const struct span *key, struct current *cur, struct pane_row *v) {
    int64_t t = b->time ? b->time[row] : TIME_MIN;
    *v = (struct pane_row){ .kind = ROW_NO_TIME };
    if (t < -PANE_TIME_MAX || t > PANE_TIME_MAX)
        return;
    if (t < cur->start || t >= cur->end) {
        cur->start = floor_to(t, s->width);
        cur->end = cur->start + s->width;
        cur->late = saturate(last_end(s, cur->start), s->lateness);
    }
    v->start = cur->start;
    v->klen = PANE_KEY + key->len;
    v->kind = b->wm && b->wm[row] >= cur->late ? ROW_LATE
              : key->len > GROUP_KEY_MAX       ? ROW_LONG_KEY
                                               : ROW_ADD;
}

struct pane_rows panes_rows(struct panes *s, struct op_ctx *x, const struct batch *b) {
    struct pane_rows v = { .key = ARENA_ARRAY(x->arena, struct span, b->n),
                           .hash = ARENA_ARRAY(x->arena, uint64_t, b->n),
                           .row = ARENA_ARRAY(x->arena, struct pane_row, b->n) };
    struct current cur = { 0 };
    size_t bytes = 1;
    key_batch(x->arena, b, x->by, x->nby, v.key, v.hash);
    for (uint32_t i = 0; i < b->n; i++) {
        place_row(s, b, batch_row(b, i), &v.key[i], &cur, &v.row[i]);
        bytes += v.row[i].kind == ROW_ADD ? v.row[i].klen : 0;
    }
    char *to = op_alloc(x, bytes);
    for (uint32_t i = 0; i < b->n; i++) {
        struct pane_row *r = &v.row[i];
        if (r->kind != ROW_ADD)
            continue;
        put_start(to, r->start);
        if (v.key[i].len)
            memcpy(to + PANE_KEY, v.key[i].p, v.key[i].len);
        r->key = to;
        r->hash = state_hash(to, r->klen);
        to += r->klen;
    }
    for (int pass = 0; pass < 2 && state_bytes(s->records) > KEYED_PREFETCH_BYTES; pass++)
        for (uint32_t i = 0; i < b->n; i++)
            if (v.row[i].kind == ROW_ADD && pass)
                state_prefetch_entry(s->records, v.row[i].hash);
            else if (v.row[i].kind == ROW_ADD)
                state_prefetch_slot(s->records, v.row[i].hash);
    return v;
}

static void refuse(struct panes *s, struct op_ctx *x, const struct batch *b, uint32_t row,
                   int kind) {
    if (kind == ROW_NO_TIME && b->time && b->time[row] != TIME_MIN)
        op_reject(x, b, row, "bad_time", "the event time is out of range");
    else if (kind == ROW_NO_TIME)
        op_reject(x, b, row, "no_time", "the row has no event time");
    else if (kind == ROW_LONG_KEY)
        op_reject(x, b, row, "key_too_long", "the group key is longer than %d bytes",
                  GROUP_KEY_MAX);
    else if (kind == ROW_ADD)
        op_reject(x, b, row, "too_many_groups", "more than %d groups and slices are open",
                  ENTRIES_MAX);
    else if (s->late == LATE_DEAD_LETTER)
        op_reject(x, b, row, "late", "the row is late: its last window has fired");
    else
        x->count->late++;
}

void *panes_edit(struct panes *s, struct op_ctx *x, const struct batch *b, struct pane_rows *v,
                 uint32_t i, int64_t *start) {
    const struct pane_row *r = &v->row[i];
    bool created;
    if (r->kind != ROW_ADD || s->index.entries >= ENTRIES_MAX) {
        refuse(s, x, b, batch_row(b, i), r->kind);
        return NULL;
    }
    void *record = state_edit(s->records, r->key, r->klen, r->hash, &created);
    if (created)
        window_index_add(&s->index, r->start, v->key[i], v->hash[i]);
    if (start)
        *start = r->start;
    return record;
}

/* ---- firing ---- */

static const void *record_of(struct panes *s, const struct window_slice *sl,
                             const struct window_key *k) {
    put_start(s->key, sl->start);
    if (k->len)
        memcpy(s->key + PANE_KEY, k->p, k->len);
    return state_find(s->records, s->key, PANE_KEY + k->len, state_hash(s->key, PANE_KEY + k->len));
}

struct firing {
    struct panes *s;
    struct op_ctx *x;
    const struct pane_firing *f;
    const void **record; /* room for the slices of a window */
    int64_t *slice;
};

/* One group of the window that ends at `end`, over the slices 0..hi-1. */
static void fire_group(struct firing *f, int64_t end, uint32_t hi, uint32_t id) {
    struct panes *s = f->s;
    const struct window_key *k = &s->index.key[id];
    uint32_t n = 0;
    for (uint32_t i = 0; i < hi; i++) {
        const struct window_slice *sl = &s->index.slice[i];
        if (!window_slice_has(sl, id))
            continue;
        f->slice[n] = sl->start;
        f->record[n++] = record_of(s, sl, k);
    }
    if (!n)
        return;
    struct pane_group g = { .start = end - s->size,
                            .end = end,
                            .key = { arena_strndup(f->x->arena, k->p, k->len), k->len, 0 },
                            .n = n,
                            .record = f->record,
                            .slice = f->slice };
    f->f->group(f->f->user, &g);
}

static void drop_slice(struct firing *f) {
    struct panes *s = f->s;
    const struct window_slice *sl = &s->index.slice[0];
    for (uint32_t w = 0; w < sl->words; w++)
        for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
            const struct window_key *k = &s->index.key[64 * w + (uint32_t)__builtin_ctzll(b)];
            const void *record = record_of(s, sl, k);
            if (f->f->drop)
                f->f->drop(f->f->user, sl->start, (struct span){ k->p, k->len, 0 }, record);
            uint32_t klen = PANE_KEY + k->len;
            state_drop(s->records, s->key, klen, state_hash(s->key, klen));
        }
    window_index_drop_first(&s->index);
}

/* Fires all windows that end in (s->fired, bound], by (end, canonical key). */
static void fire_until(struct firing *f, int64_t bound) {
    struct panes *s = f->s;
    while (s->index.nslices) {
        int64_t start = s->index.slice[0].start, end = first_end(s, start);
        if (end <= s->fired) /* the next window after the last one that fired */
            end = saturate(s->fired, s->every);
        if (end > last_end(s, start)) {
            drop_slice(f);
            continue;
        }
        if (end > bound)
            break;
        uint32_t hi = window_index_lower(&s->index, end);
        window_index_sort(&s->index);
        f->record = ARENA_ARRAY(f->x->arena, const void *, hi);
        f->slice = ARENA_ARRAY(f->x->arena, int64_t, hi);
        for (uint32_t i = 0; i < s->index.norder; i++)
            fire_group(f, end, hi, s->index.order[i]);
        s->fired = end;
    }
    f->f->end(f->f->user);
}

static void set_mark(struct panes *s, int64_t fired) {
    bool created;
    *(int64_t *)state_edit(s->mark, mark_key, sizeof mark_key - 1, mark_hash(), &created) = fired;
    s->fired = fired;
}

void panes_watermark(struct panes *s, struct op_ctx *x, int64_t wm, const struct pane_firing *f) {
    int64_t bound = wm == TIME_MAX ? TIME_MAX : saturate(wm, -s->lateness);
    int64_t before = s->fired, last = wm == TIME_MAX ? before : end_before(s, bound);
    if (s->index.nslices && first_end(s, s->index.slice[0].start) <= bound) {
        struct firing g = { .s = s, .x = x, .f = f };
        fire_until(&g, bound);
    }
    if (last != before)
        set_mark(s, last);
    /* Until the first watermark is known anything may be next. */
    int64_t next = last == TIME_MIN ? end_before(s, wm) : saturate(last, s->every);
    x->next_timer = wm == TIME_MAX ? TIME_MAX : saturate(next, s->lateness);
    if (x->next_timer <= wm && wm != TIME_MAX)
        x->next_timer = wm + 1;
}

void panes_put_key(const struct op_ctx *x, struct span key, struct column *cols, uint32_t row,
                   uint32_t rows) {
    struct key_value v[OP_BY_MAX];
    const struct schema *in = x->in[0];
    int bad = key_decode(x->arena, in, x->by, x->nby, key.p, key.len, v);
    for (int k = 0; k < x->nby; k++) {
        struct column *c = &cols[k];
        if (bad || v[k].null) {
            if (!c->nulls)
                c->nulls = batch_nulls(x->arena, rows);
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
