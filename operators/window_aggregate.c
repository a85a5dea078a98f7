/* window_aggregate: tumbling and sliding windows by event time.
 *
 * Time is cut into slices (window_grid.h), so that a row is added once, however many windows hold
 * it. Sums are exact (xsum.h), so the sum of slices is the sum of rows, byte for byte.
 *
 * Where windows overlap, the totals of each group slide along: a slice is added when a window first
 * holds it and taken away when no window will any more (window_run.h). A row late for some windows
 * only has its group added up anew. So the cost does not depend on how many windows hold a row.
 * Totals are derived, not state.
 *
 * Tables: 0, key (slice start, group key), the accumulators of window_acc.h. 1, key (the same,
 * number of the accumulator), a large sum that outgrew its small form. 2, key "fired", the end of
 * the last window that may have fired, and with `early_every` key "early", the time of the next
 * early results. 3, key (slice start, group key), of those that have changed since the last early
 * results. What is due is derived from tables 0 and 3 (window_index.h).
 *
 * Of several partitions a row's own may be ahead of the lowest watermark, by which windows fire. A
 * row that is late for some of its windows by its own watermark must not be in them, though they
 * are still open: it is held, in table 0 under key (0xff, end of the last such window, slice start,
 * group key), until that window has fired. So results do not depend on how far other partitions
 * are.
 *
 * ~40 ns a row with 100 groups, ~85 ns with 10,000; for each group a window costs ~60 ns a slice
 * and ~0.3 us for its results when it fires. */
#include "operators/keyed.h"
#include "operators/window_index.h"
#include "operators/window_out.h"
#include "operators/window_run.h"
#include <stdlib.h>

enum {
    SLICES_MAX = 10000,     /* slices of one window */
    ENTRIES_MAX = 16 << 20, /* open pairs of slice and group */
    EARLY_WINDOWS_MAX = 100 /* windows that hold a row, when there are early results */
};

struct window_config {
    struct strmap aggregate;
    int64_t every, size, lateness, early_every, early_rows;
    int late;
};
static const struct param window_params[] = {
    { .name = "aggregate",
      .type = PT_AGGMAP,
      .offset = offsetof(struct window_config, aggregate),
      .doc = "Output fields and what they hold, in the order of the output: `count()`, and of any "
             "expression (expressions.md) `count` (values that are not null), `sum`, `mean`, "
             "`min`, `max`, `stddev` and `variance` (of the sample), `first` and `last` (by event "
             "time), `min_by(x, y)` and `max_by(x, y)`." },
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
      .doc = "Length of a window, default `every` (tumbling). Longer: windows overlap (sliding, "
             "also called hopping)." },
    { .name = "lateness",
      .type = PT_DURATION,
      .flags = PARAM_LIVE,
      .offset = offsetof(struct window_config, lateness),
      .def = "\"0s\"",
      .min = 0,
      .max = 1e15,
      .doc =
          "How long after its end (by the watermark) a window still takes rows; it fires then." },
    { .name = "late",
      .type = PT_ENUM,
      .flags = PARAM_LIVE,
      .offset = offsetof(struct window_config, late),
      .def = "\"drop\"",
      .words = window_late_words,
      .doc = "What happens to a row whose windows have all fired: " WINDOW_LATE_DOC },
    { .name = "early_every",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct window_config, early_every),
      .min = 1,
      .max = 1e15,
      .doc = "Early results: when the watermark passes a multiple of this, every group of every "
             "open window with new rows makes a row of what it holds so far. The output then has "
             "a field `early`." },
    { .name = "early_rows",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct window_config, early_rows),
      .min = 1,
      .max = 1e15,
      .doc = "Early results: after each so many rows of a group in a window, which must not "
             "overlap. The output then has a field `early`." },
    { .name = NULL },
};

struct window_self {
    struct window_grid grid;
    int64_t lateness, early_every, early_rows;
    int late, rows; /* rows: accumulator of the rows, for early_rows */
    unsigned fields;
    struct accs accs;
    struct state *slices, *large, *mark, *changed;
    struct window_index index, fresh; /* fresh: of table 3 */
    struct window_index held;         /* by end of window, keys of (slice start, group key) */
    int64_t fired;    /* end of the last window that may have fired; TIME_MIN: none */
    int64_t early_at; /* when the next early results are due; TIME_MIN: no watermark is known */
    bool slides;      /* totals slide along */
    int64_t run_end;  /* `runs` are over the open slices that start before this */
    struct window_runs runs;
    struct column *arg;
    char *key; /* scratch of firing: a table key */
    struct arena arena;
};

/* ---- submit time ---- */

static unsigned fields_of(const struct window_config *c) {
    bool early = c->early_every != PARAM_UNSET || c->early_rows != PARAM_UNSET;
    return WINDOW_BOUNDS | (early ? WINDOW_EARLY : 0);
}
static void window_plan(struct op_plan *p) {
    const struct window_config *c = p->config;
    int64_t size = c->size == PARAM_UNSET ? c->every : c->size;
    window_plan_out(p, &c->aggregate, fields_of(c));
    if (!p->in_time)
        plan_error(p, NULL, NULL, "the input has no event time; give its source a 'time'");
    window_plan_size(p, c->every, c->size, SLICES_MAX, "slices");
    if (c->every > 0 && c->early_every != PARAM_UNSET && size / c->every > EARLY_WINDOWS_MAX)
        plan_error(p, "early_every", NULL,
                   "a row is in more than %d windows: too many for early results",
                   EARLY_WINDOWS_MAX);
    if (c->early_rows != PARAM_UNSET && size != c->every)
        plan_error(p, "early_rows", NULL,
                   "early results by rows need windows that do not overlap ('size' = 'every')");
}

/* ---- state ---- */

enum { HELD_KEY = 2 * SLICE_KEY + 1 };
#define HELD_MARK '\xff' /* no slice start begins with this byte: times are within 2^60 */
static const char mark_key[] = "fired", early_key[] = "early";
enum { MARK_KEY = 5 };

static int64_t get_mark(struct window_self *s, const char *key) {
    const int64_t *t = state_find(s->mark, key, MARK_KEY, state_hash(key, MARK_KEY));
    return t ? *t : TIME_MIN;
}
static void set_mark(struct window_self *s, const char *key, int64_t t) {
    bool created;
    *(int64_t *)state_edit(s->mark, key, MARK_KEY, state_hash(key, MARK_KEY), &created) = t;
}

static void index_changed(struct window_self *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    window_index_free(&s->fresh);
    for (uint64_t it = 0; state_next(s->changed, &it, &key, &klen, &value, &vlen);) {
        struct span k = { (const char *)key + SLICE_KEY, klen - SLICE_KEY, 0 };
        window_index_add(&s->fresh, slice_key_get(key), k, state_hash(k.p, k.len));
    }
}
static void index_slices(struct window_self *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    window_index_free(&s->index);
    window_index_free(&s->held);
    for (uint64_t it = 0; state_next(s->slices, &it, &key, &klen, &value, &vlen);) {
        const char *p = key;
        bool held = *p == HELD_MARK;
        struct span k = { p + (held ? HELD_KEY - SLICE_KEY : SLICE_KEY), 0, 0 };
        k.len = klen - (uint32_t)(k.p - p);
        window_index_add(held ? &s->held : &s->index, slice_key_get(p + held), k,
                         state_hash(k.p, k.len));
    }
}
static void window_rebuild(void *self, struct op_ctx *x) {
    struct window_self *s = self;
    (void)x;
    index_slices(s);
    if (s->early_every)
        index_changed(s);
    s->fired = get_mark(s, mark_key);
    s->early_at = get_mark(s, early_key);
    s->run_end = TIME_MIN;
    window_runs_free(&s->runs);
}

static int window_open(void *self, struct op_ctx *x, struct err *e) {
    struct window_self *s = self;
    const struct window_config *c = x->config;
    s->grid = window_grid(c->every, c->size);
    s->slides = s->grid.size > 2 * s->grid.width;
    s->lateness = c->lateness;
    s->early_every = c->early_every == PARAM_UNSET ? 0 : c->early_every;
    s->early_rows = c->early_rows == PARAM_UNSET ? 0 : c->early_rows;
    s->late = c->late;
    s->fields = fields_of(c);
    s->run_end = s->fired = s->early_at = TIME_MIN;
    if (window_open_accs(&s->accs, &s->arena, &c->aggregate, x->in[0], true, e) < 0)
        return ERR_INPUT;
    if (s->early_rows && (s->rows = accs_rows(&s->accs)) < 0)
        return err_set(e, ERR_INPUT, "too many aggregates for early results by rows");
    s->runs.accs = &s->accs;
    s->arg = ARENA_ARRAY(&s->arena, struct column, s->accs.nargs + 1);
    s->key = arena_alloc(&s->arena, HELD_KEY + WINDOW_KEY_MAX + 1);
    s->slices = op_state(x, 0, s->accs.record);
    s->large = op_state(x, 1, sizeof(struct xbig));
    s->mark = op_state(x, 2, sizeof(int64_t));
    s->changed = s->early_every ? op_state(x, 3, 1) : NULL;
    return 0;
}
static void window_close(void *self) {
    struct window_self *s = self;
    window_index_free(&s->index);
    window_index_free(&s->fresh);
    window_index_free(&s->held);
    if (s->runs.accs)
        window_runs_free(&s->runs);
    arena_free(&s->arena);
}

/* ---- rows ---- */

/* A row on its way into its slice. The table key has room for one byte more. */
struct entry {
    enum { ENTRY_ADD, ENTRY_HOLD, ENTRY_LATE, ENTRY_NO_TIME, ENTRY_LONG_KEY } kind;
    uint32_t klen;
    int64_t start, until; /* until: the window that it waits for */
    char *key;
    uint64_t hash;
};
struct large_key {
    struct window_self *s;
    const struct entry *e;
};
/* The large sum of accumulator i. */
static struct xbig *large_edit(void *user, int i) {
    struct large_key *k = user;
    bool created;
    k->e->key[k->e->klen] = (char)i;
    return state_edit(k->s->large, k->e->key, k->e->klen + 1, state_hash(k->e->key, k->e->klen + 1),
                      &created);
}

/* Rows of one slice often follow each other: what is known of it. */
struct current {
    int64_t start, end;
    int64_t some, late; /* rows are late for some windows, and for all, from this watermark on */
};
static void set_current(const struct window_self *s, struct current *cur, int64_t t) {
    cur->start = floor_to(t, s->grid.width);
    cur->end = cur->start + s->grid.width;
    cur->some = saturate(window_first_end(&s->grid, cur->start), s->lateness);
    cur->late = saturate(window_last_end(&s->grid, cur->start), s->lateness);
}

/* A row that is late for some windows: are they over? */
static void hold(const struct window_self *s, struct entry *e, int64_t wm) {
    e->until = window_end_before(&s->grid, saturate(wm, -s->lateness));
    if (e->until > s->fired)
        e->kind = ENTRY_HOLD;
}
/* Its table key; returns the room it takes. */
static uint32_t put_entry(struct entry *e, struct span key) {
    char *to = e->key;
    if (e->kind == ENTRY_HOLD) {
        *to = HELD_MARK;
        slice_key_put(to + 1, e->until);
        to += HELD_KEY - SLICE_KEY;
    }
    slice_key_put(to, e->start);
    memcpy(to + SLICE_KEY, key.p, key.len);
    e->klen = (uint32_t)(to - e->key) + SLICE_KEY + key.len;
    e->hash = state_hash(e->key, e->klen);
    return e->klen + 1;
}

/* Slices and table keys of all rows; asks the cache for their entries when the table is larger than
 * it: ~85 ns a row instead of ~110 with 10,000 groups. */
static struct entry *find_entries(struct window_self *s, struct op_ctx *x, const struct batch *b,
                                  const struct span *key) {
    struct entry *v = ARENA_ARRAY(x->arena, struct entry, b->n);
    struct current cur = { 0 };
    size_t bytes = 0;
    for (uint32_t i = 0; i < b->n; i++)
        bytes += HELD_KEY + key[i].len + 1;
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
        else if (key[i].len > WINDOW_KEY_MAX)
            v[i].kind = ENTRY_LONG_KEY;
        else {
            if (b->wm && b->wm[row] >= cur.some)
                hold(s, &v[i], b->wm[row]);
            to += put_entry(&v[i], key[i]);
        }
    }
    for (int pass = 0; pass < 2 && state_bytes(s->slices) > KEYED_PREFETCH_BYTES; pass++)
        for (uint32_t i = 0; i < b->n; i++)
            if (v[i].kind <= ENTRY_HOLD && pass)
                state_prefetch_entry(s->slices, v[i].hash);
            else if (v[i].kind <= ENTRY_HOLD)
                state_prefetch_slot(s->slices, v[i].hash);
    return v;
}

/* The totals of a group lack a row: it is late for the windows that have fired. */
static void run_stale(struct window_self *s, struct span key, uint64_t hash) {
    window_runs_room(&s->runs, s->index.cap_keys);
    s->runs.run[window_index_find(&s->index, key, hash)].stale = true;
}

static void refuse(struct op_ctx *x, struct window_late *late, uint32_t row, int kind) {
    if (kind == ENTRY_NO_TIME)
        window_bad_time(x, late->b, row);
    else if (kind == ENTRY_LONG_KEY)
        window_long_key(x, late->b, row);
    else if (kind <= ENTRY_HOLD)
        op_reject(x, late->b, row, "too_many_groups", "more than %d groups and slices are open",
                  ENTRIES_MAX);
    else
        window_late_add(late, x, row, "the row is late: its last window has fired");
}

/* Output under construction. */
struct firing {
    struct window_self *s;
    struct op_ctx *x;
    struct window_out out;
    uint32_t klen; /* of the record being merged: what large_find needs */
};

static const struct xbig *large_find(void *user, int i) {
    struct firing *f = user;
    f->s->key[f->klen] = (char)i;
    return state_find(f->s->large, f->s->key, f->klen + 1, state_hash(f->s->key, f->klen + 1));
}

/* The window of a row (it is in one only) after each early_rows of its rows. */
static void early_by_rows(struct window_self *s, struct window_out *o, const struct entry *e,
                          struct span key, uint32_t row, const void *record) {
    uint64_t rows = *(const uint64_t *)((const char *)record + s->accs.acc[s->rows].offset);
    if (rows % (uint64_t)s->early_rows)
        return;
    struct firing f = { .s = s, .x = o->x, .klen = e->klen };
    memcpy(s->key, e->key, e->klen);
    accs_merge(&s->accs, window_out_totals(o), record, o->x->arena, large_find, &f);
    window_out_put(o, &(struct window_result){ .fire = row,
                                               .time = e->start + s->grid.size - 1,
                                               .start = e->start,
                                               .end = e->start + s->grid.size,
                                               .key = key,
                                               .early = true });
}
static void note_change(struct window_self *s, const struct entry *e, struct span key,
                        uint64_t hash) {
    bool created;
    state_edit(s->changed, e->key, e->klen, e->hash, &created);
    if (created)
        window_index_add(&s->fresh, e->start, key, hash);
}

static void entry_changed(struct window_self *s, const struct entry *e, struct span key,
                          uint64_t hash) {
    if (s->slides && e->start < s->run_end)
        run_stale(s, key, hash);
    if (s->early_every)
        note_change(s, e, key, hash);
}
static void index_entry(struct window_self *s, const struct entry *e, struct span key,
                        uint64_t hash) {
    if (e->kind == ENTRY_ADD) {
        window_index_add(&s->index, e->start, key, hash);
        return;
    }
    struct span k = { e->key + HELD_KEY - SLICE_KEY, SLICE_KEY + key.len, 0 };
    window_index_add(&s->held, e->until, k, state_hash(k.p, k.len));
}

static void window_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct window_self *s = self;
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    struct window_late late;
    struct window_out early;
    key_batch(x->arena, b, x->by, x->nby, key, hash);
    accs_eval(&s->accs, x->arena, b, s->arg, &x->count->nulled);
    window_late_open(&late, x, s->late, b);
    if (s->early_rows)
        window_out_open(&early, x, &s->accs, s->fields, b, b->n);
    const struct entry *v = find_entries(s, x, b, key);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct entry *e = &v[i];
        uint32_t row = batch_row(b, i);
        bool created;
        if (e->kind > ENTRY_HOLD || s->index.entries + s->held.entries >= ENTRIES_MAX) {
            refuse(x, &late, row, e->kind);
            continue;
        }
        void *record = state_edit(s->slices, e->key, e->klen, e->hash, &created);
        if (created)
            index_entry(s, e, key[i], hash[i]);
        uint64_t full = accs_update(&s->accs, record, s->arg, row, b->time[row]);
        if (full)
            accs_add_large(&s->accs, full, s->arg, row, large_edit, &(struct large_key){ s, e });
        if (e->kind == ENTRY_ADD)
            entry_changed(s, e, key[i], hash[i]);
        if (s->early_rows)
            early_by_rows(s, &early, e, key[i], row, record);
        x->count->absorbed++;
    }
    if (s->early_rows)
        window_out_flush(&early);
    window_late_emit(&late, x);
}

/* ---- firing ---- */

static const void *record_of(struct window_self *s, const struct window_slice *sl,
                             const struct window_key *k) {
    uint32_t klen = SLICE_KEY + k->len;
    slice_key_put(s->key, sl->start);
    memcpy(s->key + SLICE_KEY, k->p, k->len);
    return state_find(s->slices, s->key, klen, state_hash(s->key, klen));
}
/* Adds up a group over the slices lo..hi-1; returns how many hold it. */
static uint32_t add_up(struct firing *f, uint32_t lo, uint32_t hi, uint32_t id,
                       struct acc_total *t) {
    struct window_self *s = f->s;
    const struct window_key *k = &s->index.key[id];
    uint32_t n = 0;
    memset(t, 0, sizeof *t * (size_t)s->accs.n);
    f->klen = SLICE_KEY + k->len;
    for (uint32_t i = lo; i < hi; i++) {
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
    window_runs_room(&s->runs, s->index.cap_keys);
    for (uint32_t i = window_index_lower(&s->index, s->run_end); i < hi; i++) {
        const struct window_slice *sl = &s->index.slice[i];
        for (uint32_t w = 0; w < sl->words; w++)
            for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
                uint32_t id = 64 * w + (uint32_t)__builtin_ctzll(b);
                window_runs_add(&s->runs, id, sl->start, record_of(s, sl, &s->index.key[id]));
            }
    }
    s->run_end = end;
}
/* The totals of a group over the slices 0..hi-1 into `t`; false: it has no rows. Sums that need the
 * large form stay stale. */
static bool run_totals(struct firing *f, uint32_t hi, uint32_t id, struct acc_total *t) {
    struct window_self *s = f->s;
    if (!s->runs.run[id].stale)
        return window_runs_total(&s->runs, id, t);
    window_runs_reset(&s->runs, id);
    for (uint32_t i = 0; i < hi; i++)
        if (window_slice_has(&s->index.slice[i], id))
            window_runs_add(&s->runs, id, s->index.slice[i].start,
                            record_of(s, &s->index.slice[i], &s->index.key[id]));
    return s->runs.run[id].stale ? add_up(f, 0, hi, id, t) : window_runs_total(&s->runs, id, t);
}

/* One group of the window [end - size, end) over the slices 0..hi-1; nothing if it has no rows. */
static void fire_group(struct firing *f, int64_t end, uint32_t hi, uint32_t id) {
    struct window_self *s = f->s;
    const struct window_key *k = &s->index.key[id];
    struct acc_total *t = window_out_totals(&f->out);
    if (s->slides ? !run_totals(f, hi, id, t) : !add_up(f, 0, hi, id, t))
        return;
    window_out_put(&f->out, &(struct window_result){ .fire = saturate(end, s->lateness),
                                                     .time = end - 1,
                                                     .start = end - s->grid.size,
                                                     .end = end,
                                                     .key = { k->p, k->len, 0 } });
}

/* Forgets what has changed in the first slice that has. */
static void drop_fresh(struct window_self *s) {
    const struct window_slice *sl = &s->fresh.slice[0];
    slice_key_put(s->key, sl->start);
    for (uint32_t w = 0; w < sl->words; w++)
        for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
            const struct window_key *k = &s->fresh.key[64 * w + (uint32_t)__builtin_ctzll(b)];
            memcpy(s->key + SLICE_KEY, k->p, k->len);
            state_drop(s->changed, s->key, SLICE_KEY + k->len,
                       state_hash(s->key, SLICE_KEY + k->len));
        }
    window_index_drop_first(&s->fresh);
}
static void drop_slice(struct window_self *s) {
    const struct window_slice *sl = &s->index.slice[0];
    if (s->fresh.nslices && s->fresh.slice[0].start == sl->start)
        drop_fresh(s);
    for (uint32_t w = 0; w < sl->words; w++)
        for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
            uint32_t id = 64 * w + (uint32_t)__builtin_ctzll(b);
            uint32_t klen = SLICE_KEY + s->index.key[id].len;
            const void *record = record_of(s, sl, &s->index.key[id]);
            uint64_t full = *(const uint64_t *)record;
            if (s->slides && sl->start < s->run_end && id < s->runs.cap)
                window_runs_take(&s->runs, id, sl->start, record);
            state_drop(s->slices, s->key, klen, state_hash(s->key, klen));
            for (; full; full &= full - 1) {
                s->key[klen] = (char)__builtin_ctzll(full);
                state_drop(s->large, s->key, klen + 1, state_hash(s->key, klen + 1));
            }
        }
    window_index_drop_first(&s->index);
}

/* Adds a record that was held to its slice. */
static void release(struct window_self *s, struct arena *a, const struct entry *held,
                    struct span key) {
    bool created;
    struct entry e = { .key = arena_alloc(a, SLICE_KEY + key.len + 1), .start = held->start };
    put_entry(&e, key);
    void *from = arena_alloc(a, s->accs.record);
    memcpy(from, state_find(s->slices, held->key, held->klen, held->hash), s->accs.record);
    state_drop(s->slices, held->key, held->klen, held->hash);
    void *to = state_edit(s->slices, e.key, e.klen, e.hash, &created);
    uint64_t was_full = *(uint64_t *)from, full = accs_join(&s->accs, to, from);
    for (; full; full &= full - 1) {
        int i = __builtin_ctzll(full);
        struct xbig more = { 0 };
        if (was_full >> i & 1) {
            more = *large_edit(&(struct large_key){ s, held }, i);
            state_drop(s->large, held->key, held->klen + 1, state_hash(held->key, held->klen + 1));
        }
        struct xbig *sum = large_edit(&(struct large_key){ s, &e }, i);
        xbig_merge(sum, &more);
        xbig_merge_xsum(sum, (const struct xsum *)((char *)from + s->accs.acc[i].offset));
    }
    uint64_t hash = state_hash(key.p, key.len);
    if (created)
        window_index_add(&s->index, e.start, key, hash);
    entry_changed(s, &e, key, hash);
}
/* The first windows that rows were held for have fired. */
static void release_first(struct window_self *s, struct arena *a) {
    const struct window_slice *sl = &s->held.slice[0];
    int64_t until = sl->start;
    for (uint32_t w = 0; w < sl->words; w++)
        for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
            const struct window_key *k = &s->held.key[64 * w + (uint32_t)__builtin_ctzll(b)];
            struct span key = { k->p + SLICE_KEY, k->len - SLICE_KEY, 0 };
            struct entry e = { .kind = ENTRY_HOLD, .until = until, .start = slice_key_get(k->p) };
            e.key = arena_alloc(a, HELD_KEY + key.len + 1);
            put_entry(&e, key);
            release(s, a, &e, key);
        }
    window_index_drop_first(&s->held);
    window_index_trim(&s->held);
    s->fired = until > s->fired ? until : s->fired;
}

/* End of the next window to fire; TIME_MAX: there are no slices. */
static int64_t next_end(const struct window_self *s) {
    if (!s->index.nslices)
        return TIME_MAX;
    int64_t end = window_first_end(&s->grid, s->index.slice[0].start);
    /* the next window after the last one that fired */
    return end <= s->fired ? saturate(s->fired, s->grid.every) : end;
}
/* Fires all windows that end in (s->fired, bound], by (end, canonical key). */
static void fire_until(struct firing *f, int64_t bound) {
    struct window_self *s = f->s;
    for (;;) {
        int64_t end = next_end(s);
        if (s->held.nslices && s->held.slice[0].start < end && s->held.slice[0].start <= bound) {
            release_first(s, f->x->arena);
            continue;
        }
        if (!s->index.nslices)
            break;
        if (end > window_last_end(&s->grid, s->index.slice[0].start)) {
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
}

/* ---- early results ---- */

/* The groups of the window that ends at `end` in which something has changed. */
static void early_window(struct firing *f, int64_t at, int64_t end) {
    struct window_self *s = f->s;
    const struct window_index *x = &s->index, *fresh = &s->fresh;
    uint32_t lo = window_index_lower(x, end - s->grid.size), hi = window_index_lower(x, end);
    uint32_t from = window_index_lower(fresh, end - s->grid.size),
             to = window_index_lower(fresh, end);
    for (uint32_t k = 0; k < fresh->norder; k++) {
        uint32_t id = fresh->order[k], i = from;
        while (i < to && !window_slice_has(&fresh->slice[i], id))
            i++;
        if (i == to)
            continue;
        struct span key = { fresh->key[id].p, fresh->key[id].len, 0 };
        struct acc_total *t = window_out_totals(&f->out);
        add_up(f, lo, hi, window_index_find(x, key, fresh->key[id].hash), t);
        window_out_put(&f->out, &(struct window_result){ .fire = at,
                                                         .time = end - 1,
                                                         .start = end - s->grid.size,
                                                         .end = end,
                                                         .key = key,
                                                         .early = true });
    }
}
/* All open windows in which something has changed, by (end, canonical key); due at `at`. */
static void early_until(struct firing *f, int64_t at) {
    struct window_self *s = f->s;
    int64_t done = s->fired;
    window_index_sort(&s->fresh);
    for (uint32_t i = 0; i < s->fresh.nslices; i++) {
        int64_t end = window_first_end(&s->grid, s->fresh.slice[i].start);
        int64_t last = window_last_end(&s->grid, s->fresh.slice[i].start);
        for (; end <= last; end += s->grid.every)
            if (end > done) {
                early_window(f, at, end);
                done = end;
            }
    }
    while (s->fresh.nslices)
        drop_fresh(s);
}

static void firing_open(struct firing *f, struct window_self *s, struct op_ctx *x) {
    *f = (struct firing){ .s = s, .x = x };
    window_out_open(&f->out, x, &s->accs, s->fields, NULL, s->index.nkeys);
}
/* Early results are due at `early_at` when something has changed; whether it has or not, the next
 * ones are due at the multiple after the watermark. The first watermark only says when that is. */
static void window_early(struct window_self *s, struct op_ctx *x, int64_t wm) {
    if (s->early_at > wm)
        return;
    if (s->fresh.nslices && s->early_at != TIME_MIN) {
        struct firing f;
        firing_open(&f, s, x);
        fire_until(&f, saturate(s->early_at, -s->lateness));
        early_until(&f, s->early_at);
        window_out_flush(&f.out);
    }
    s->early_at = window_next(wm, s->early_every);
    set_mark(s, early_key, s->early_at);
}

static void window_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct window_self *s = self;
    int64_t bound = wm == TIME_MAX ? TIME_MAX : saturate(wm, -s->lateness);
    int64_t before = s->fired, last = wm == TIME_MAX ? before : window_end_before(&s->grid, bound);
    if (s->early_every && wm != TIME_MAX)
        window_early(s, x, wm);
    if ((s->index.nslices && window_first_end(&s->grid, s->index.slice[0].start) <= bound) ||
        (s->held.nslices && s->held.slice[0].start <= bound)) {
        struct firing f;
        firing_open(&f, s, x);
        fire_until(&f, bound);
        window_out_flush(&f.out);
    }
    if (last != before) {
        set_mark(s, mark_key, last);
        s->fired = last;
    }
    /* Until the first watermark is known anything may be next. */
    int64_t next =
        last == TIME_MIN ? window_end_before(&s->grid, wm) : saturate(last, s->grid.every);
    next = wm == TIME_MAX ? TIME_MAX : saturate(next, s->lateness);
    if (s->early_every && wm != TIME_MAX && s->early_at < next)
        next = s->early_at;
    x->next_timer = next <= wm && wm != TIME_MAX ? wm + 1 : next;
}

const struct op_desc op_window_aggregate = {
    .name = "window_aggregate",
    .doc =
        "Aggregates rows by event time in tumbling windows (`size` = `every`) or sliding ones "
        "(windows.md), for each group of the input's `by`. When the watermark passes the end of a "
        "window and "
        "`lateness`, every group with rows in it makes one row: the group's fields, "
        "`window_start` and `window_end` (i64, ms since 1970 in UTC; the end is exclusive) and the "
        "aggregates. The row's event time is `window_end` - 1 ms; rows that fire together come by "
        "`window_end`, then by group. Sums, means and deviations are exactly rounded and do not "
        "depend on the order of rows. Nulls are ignored: `count(x)` is then 0, the others are null "
        "(`stddev` and `variance` below two values); a sum beyond its type is null, too. Late rows "
        "leave by the port `late` when asked to. Memory: "
        "some 100 bytes for each group and slice (the greatest common divisor of `size` and "
        "`every`) of the open windows.",
    .example = "{\"aggregate\": {\"mean_t\": \"mean(temperature)\", \"n\": \"count()\"}, "
               "\"every\": \"10s\", \"size\": \"1m\"}",
    .semantics = 2,
    .state_version = 1,
    .params = window_params,
    .config_size = sizeof(struct window_config),
    .out_ports = window_ports,
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
