#include "operators/panes.h"
#include "operators/keyed.h"
#include "operators/row_bytes.h"
#include "operators/window_out.h"
#include <stdlib.h>

enum {
    SLICES_MAX = 1000,     /* slices of one window: each is merged when it fires */
    ENTRIES_MAX = 16 << 20 /* open pairs of slice and group */
};

/* Those of window_late_words without the port. */
const char *const pane_late_words[] = { "drop", "dead_letter", NULL };
static const char mark_key[] = "fired";

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
    window_plan_size(p, c->every, c->size, SLICES_MAX, "slices");
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

static uint64_t mark_hash(void) {
    return state_hash(mark_key, sizeof mark_key - 1);
}

void panes_rebuild(struct panes *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    window_index_free(&s->index);
    for (uint64_t it = 0; state_next(s->records, &it, &key, &klen, &value, &vlen);) {
        struct span k = { (const char *)key + SLICE_KEY, klen - SLICE_KEY, 0 };
        window_index_add(&s->index, slice_key_get(key), k, state_hash(k.p, k.len));
    }
    const int64_t *fired = state_find(s->mark, mark_key, sizeof mark_key - 1, mark_hash());
    s->fired = fired ? *fired : TIME_MIN;
}

void panes_open(struct panes *s, struct op_ctx *x, const struct pane_params *c, uint32_t record) {
    *s = (struct panes){ .grid = window_grid(c->every, c->size),
                         .lateness = c->lateness,
                         .late = c->late,
                         .fired = TIME_MIN };
    s->key = malloc(SLICE_KEY + WINDOW_KEY_MAX);
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
    if (t < -WINDOW_TIME_MAX || t > WINDOW_TIME_MAX)
        return;
    if (t < cur->start || t >= cur->end) {
        cur->start = floor_to(t, s->grid.width);
        cur->end = cur->start + s->grid.width;
        cur->late = saturate(window_last_end(&s->grid, cur->start), s->lateness);
    }
    v->start = cur->start;
    v->klen = SLICE_KEY + key->len;
    v->kind = b->wm && b->wm[row] >= cur->late ? ROW_LATE
              : key->len > WINDOW_KEY_MAX      ? ROW_LONG_KEY
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
        slice_key_put(to, r->start);
        if (v.key[i].len)
            memcpy(to + SLICE_KEY, v.key[i].p, v.key[i].len);
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
    if (kind == ROW_NO_TIME)
        window_bad_time(x, b, row);
    else if (kind == ROW_LONG_KEY)
        window_long_key(x, b, row);
    else if (kind == ROW_ADD)
        op_reject(x, b, row, "too_many_groups", "more than %d groups and slices are open",
                  ENTRIES_MAX);
    else
        window_late_add(&(struct window_late){ .policy = s->late, .b = b }, x, row,
                        "the row is late: its last window has fired");
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

static void flush(struct pane_out *o) {
    struct column *cols;
    if (!o->n)
        return;
    struct batch *b = op_fire(o->x, 0, o->n, o->fire, o->time, &cols);
    memcpy(cols, o->cols, sizeof *cols * (size_t)o->x->out[0]->n);
    o->x->count->made += o->n;
    op_emit(o->x, 0, b);
    o->n = 0;
}
uint32_t pane_out_row(struct pane_out *o, const struct pane_group *g) {
    const struct schema *out = o->x->out[0];
    if (o->n == o->cap)
        flush(o);
    if (!o->n) {
        o->fire = ARENA_ARRAY(o->x->arena, int64_t, o->cap);
        o->time = ARENA_ARRAY(o->x->arena, int64_t, o->cap);
        o->cols = row_columns(o->x->arena, out->f, out->n, o->cap);
    }
    o->fire[o->n] = g->end;
    o->time[o->n] = g->end - 1;
    return o->n++;
}

static const void *record_of(struct panes *s, const struct window_slice *sl,
                             const struct window_key *k) {
    slice_key_put(s->key, sl->start);
    if (k->len)
        memcpy(s->key + SLICE_KEY, k->p, k->len);
    return state_find(s->records, s->key, SLICE_KEY + k->len,
                      state_hash(s->key, SLICE_KEY + k->len));
}

struct firing {
    struct panes *s;
    struct op_ctx *x;
    const struct pane_firing *f;
    struct pane_out out;
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
    struct pane_group g = { .start = end - s->grid.size,
                            .end = end,
                            .key = { arena_strndup(f->x->arena, k->p, k->len), k->len, 0 },
                            .n = n,
                            .record = f->record,
                            .slice = f->slice };
    f->f->group(f->f->user, &f->out, &g);
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
            uint32_t klen = SLICE_KEY + k->len;
            state_drop(s->records, s->key, klen, state_hash(s->key, klen));
        }
    window_index_drop_first(&s->index);
}

/* Fires all windows that end in (s->fired, bound], by (end, canonical key). */
static void fire_until(struct firing *f, int64_t bound) {
    struct panes *s = f->s;
    while (s->index.nslices) {
        int64_t start = s->index.slice[0].start, end = window_first_end(&s->grid, start);
        if (end <= s->fired) /* the next window after the last one that fired */
            end = saturate(s->fired, s->grid.every);
        if (end > window_last_end(&s->grid, start)) {
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
    flush(&f->out);
}

static void set_mark(struct panes *s, int64_t fired) {
    bool created;
    *(int64_t *)state_edit(s->mark, mark_key, sizeof mark_key - 1, mark_hash(), &created) = fired;
    s->fired = fired;
}

void panes_watermark(struct panes *s, struct op_ctx *x, int64_t wm, const struct pane_firing *f) {
    int64_t bound = wm == TIME_MAX ? TIME_MAX : saturate(wm, -s->lateness);
    int64_t before = s->fired, last = wm == TIME_MAX ? before : window_end_before(&s->grid, bound);
    if (s->index.nslices && window_first_end(&s->grid, s->index.slice[0].start) <= bound) {
        uint64_t rows = (uint64_t)s->index.nkeys * f->rows;
        struct firing g = { .s = s, .x = x, .f = f, .out = { .x = x } };
        g.out.cap = rows < BATCH_ROWS ? (uint32_t)rows : BATCH_ROWS;
        fire_until(&g, bound);
    }
    if (last != before)
        set_mark(s, last);
    /* Until the first watermark is known anything may be next. */
    int64_t next =
        last == TIME_MIN ? window_end_before(&s->grid, wm) : saturate(last, s->grid.every);
    x->next_timer = wm == TIME_MAX ? TIME_MAX : saturate(next, s->lateness);
    if (x->next_timer <= wm && wm != TIME_MAX)
        x->next_timer = wm + 1;
}
