/* window_session: sessions of each group, rows closer than `gap` to each other by event time.
 *
 * A row is late by its own time and watermark alone (time + lateness < watermark), and a session
 * fires when the watermark reaches its end + lateness: whoever comes later is at least `gap` away.
 * So the sessions are those of all rows that were not late, sorted by time, whatever order they
 * came in. (Flink takes a row that is behind the watermark as long as its session is open; then it
 * depends on the order of arrival which rows count.) Sessions are bounded by cutting them at
 * multiples of `max_length`, which no order of rows changes either.
 *
 * Tables: 0, key (group key), the open sessions of the group in order of time, each a struct
 * session and the accumulators of window_acc.h. 1, key (start of the session, group key, number of
 * the accumulator), a large sum. 2, key "early", when the next early results are due. What is due
 * is derived: a heap of groups by a lower bound of the end of their first session.
 *
 * ~55 ns a row with 100 groups. Memory: ~100 bytes a session and 50 an aggregate. */
#include "operators/keyed.h"
#include "operators/window_index.h"
#include "operators/window_out.h"
#include <stdlib.h>

enum {
    SESSIONS_MAX = 1000,   /* open ones of one group */
    GROUPS_MAX = 16 << 20, /* with open sessions */
};

struct session_config {
    struct strmap aggregate;
    int64_t gap, max_length, lateness, early_every, early_rows;
    int late;
};
static const struct param session_params[] = {
    { .name = "aggregate",
      .type = PT_AGGMAP,
      .offset = offsetof(struct session_config, aggregate),
      .doc = "Output fields and what they hold, as in `window_aggregate`." },
    { .name = "gap",
      .type = PT_DURATION,
      .offset = offsetof(struct session_config, gap),
      .min = 1,
      .max = 1e15,
      .doc = "A row this much after the one before, or more, begins a new session." },
    { .name = "max_length",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct session_config, max_length),
      .min = 1,
      .max = 1e15,
      .doc = "Sessions are cut at each multiple of this, counted from 1970, so that none is "
             "longer. Default: no bound; a session that never pauses never fires." },
    { .name = "lateness",
      .type = PT_DURATION,
      .offset = offsetof(struct session_config, lateness),
      .def = "\"0s\"",
      .min = 0,
      .max = 1e15,
      .doc = "A row whose time is behind the watermark by more than this is late. A session fires "
             "when the watermark passes its end by this." },
    { .name = "late",
      .type = PT_ENUM,
      .offset = offsetof(struct session_config, late),
      .def = "\"drop\"",
      .words = window_late_words,
      .doc = "What happens to a late row: " WINDOW_LATE_DOC },
    { .name = "early_every",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct session_config, early_every),
      .min = 1,
      .max = 1e15,
      .doc = "Early results: when the watermark passes a multiple of this, every open session "
             "with new rows makes a row of what it holds so far. The output then has a field "
             "`early`." },
    { .name = "early_rows",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct session_config, early_rows),
      .min = 1,
      .max = 1e15,
      .doc = "Early results: after each so many rows of a session. The output then has a field "
             "`early`." },
    { .name = NULL },
};

struct session {
    int64_t start, last; /* times of its first and last row */
    uint64_t changed;    /* since the last early results */
    char record[];
};
/* When a group is to be looked at; of several entries of one group all but `at` are out of date. */
struct alarm {
    int64_t due;
    uint32_t id;
};
struct session_self {
    int64_t gap, max_length, lateness, early_every, early_rows;
    int late, rows;
    unsigned fields;
    uint32_t stride; /* bytes of a session */
    struct accs accs;
    struct state *groups, *large, *mark;
    struct window_index open, fresh; /* one slice each: groups with sessions, with changed ones */
    struct alarm *heap;
    uint32_t nheap, cap_heap;
    int64_t *at; /* by id of `open` */
    uint32_t cap_at;
    int64_t early_at; /* as in window_aggregate */
    struct column *arg;
    char *scratch, *key; /* sessions of a group; a key of table 1 */
    struct arena arena;
};

/* ---- submit time ---- */

static unsigned fields_of(const struct session_config *c) {
    bool early = c->early_every != PARAM_UNSET || c->early_rows != PARAM_UNSET;
    return WINDOW_BOUNDS | (early ? WINDOW_EARLY : 0);
}
static void session_plan(struct op_plan *p) {
    const struct session_config *c = p->config;
    window_plan_out(p, &c->aggregate, fields_of(c));
    if (!p->in_time)
        plan_error(p, NULL, NULL, "the input has no event time; give its source a 'time'");
    if (c->max_length != PARAM_UNSET && c->max_length < c->gap)
        plan_error(p, "max_length", NULL, "'max_length' is at least 'gap'");
}

/* ---- alarms: a binary heap ---- */

static void *more(void *p, size_t n, size_t size) {
    p = realloc(p, n * size);
    if (!p)
        abort(); /* as in arenas: sizes are bounded by GROUPS_MAX */
    return p;
}
static void alarm_set(struct session_self *s, uint32_t id, int64_t due) {
    if (s->nheap == s->cap_heap) {
        s->cap_heap = s->cap_heap ? 2 * s->cap_heap : 64;
        s->heap = more(s->heap, s->cap_heap, sizeof *s->heap);
    }
    if (s->cap_at < s->open.cap_keys) {
        s->cap_at = s->open.cap_keys;
        s->at = more(s->at, s->cap_at, sizeof *s->at);
    }
    s->at[id] = due;
    uint32_t i = s->nheap++;
    for (; i && s->heap[(i - 1) / 2].due > due; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = (struct alarm){ due, id };
}
static struct alarm alarm_pop(struct session_self *s) {
    struct alarm top = s->heap[0], x = s->heap[--s->nheap];
    uint32_t i = 0;
    for (uint32_t k; (k = 2 * i + 1) < s->nheap; i = k) {
        k += k + 1 < s->nheap && s->heap[k + 1].due < s->heap[k].due;
        if (s->heap[k].due >= x.due)
            break;
        s->heap[i] = s->heap[k];
    }
    s->heap[i] = x;
    return top;
}

/* ---- sessions ---- */

static const char mark_key[] = "early";
enum { MARK_KEY = 5, START = 8 };

static struct session *nth(const struct session_self *s, char *list, uint32_t i) {
    return (struct session *)(list + (size_t)i * s->stride);
}
/* The part of time that a session may not leave. */
static int64_t cell(const struct session_self *s, int64_t t) {
    return s->max_length ? floor_to(t, s->max_length) : 0;
}
static int64_t end_of(const struct session_self *s, int64_t last) {
    int64_t end = last + s->gap;
    if (s->max_length && end > cell(s, last) + s->max_length)
        end = cell(s, last) + s->max_length;
    return end;
}
static int64_t due_of(const struct session_self *s, const struct session *x) {
    return saturate(end_of(s, x->last), s->lateness);
}
static uint32_t put_start(struct session_self *s, int64_t start, struct span key, int acc) {
    memcpy(s->key, &start, START);
    memcpy(s->key + START, key.p, key.len);
    s->key[START + key.len] = (char)acc;
    return START + key.len + 1;
}
struct large_key {
    struct session_self *s;
    int64_t start;
    struct span key;
};
static struct xbig *large_edit(void *user, int i) {
    struct large_key *k = user;
    bool created;
    uint32_t klen = put_start(k->s, k->start, k->key, i);
    return state_edit(k->s->large, k->s->key, klen, state_hash(k->s->key, klen), &created);
}
static const struct xbig *large_find(void *user, int i) {
    struct large_key *k = user;
    uint32_t klen = put_start(k->s, k->start, k->key, i);
    return state_find(k->s->large, k->s->key, klen, state_hash(k->s->key, klen));
}
static void large_drop(struct session_self *s, const struct session *x, struct span key) {
    for (uint64_t full = *(const uint64_t *)x->record; full; full &= full - 1) {
        uint32_t klen = put_start(s, x->start, key, __builtin_ctzll(full));
        state_drop(s->large, s->key, klen, state_hash(s->key, klen));
    }
}
/* Large sums are keyed by the start of their session. */
static void move_start(struct session_self *s, struct session *x, struct span key, int64_t start) {
    struct large_key from = { s, x->start, key }, to = { s, start, key };
    for (uint64_t full = *(const uint64_t *)x->record; full; full &= full - 1) {
        int i = __builtin_ctzll(full);
        struct xbig v = *large_find(&from, i);
        *large_edit(&to, i) = v;
    }
    large_drop(s, x, key);
    x->start = start;
}
/* Two sessions become one, that of the earlier one. */
static void merge(struct session_self *s, struct session *to, const struct session *from,
                  struct span key) {
    struct large_key kto = { s, to->start, key }, kfrom = { s, from->start, key };
    uint64_t full = accs_join(&s->accs, to->record, from->record);
    for (; full; full &= full - 1) {
        int i = __builtin_ctzll(full);
        const struct xbig *have =
            *(const uint64_t *)from->record >> i & 1 ? large_find(&kfrom, i) : NULL;
        struct xbig big = { 0 };
        if (have)
            big = *have;
        struct xbig *sum = large_edit(&kto, i);
        xbig_merge(sum, &big);
        xbig_merge_xsum(sum, (const struct xsum *)(from->record + s->accs.acc[i].offset));
    }
    large_drop(s, from, key);
    to->last = from->last;
}
static uint64_t rows_of(const struct session_self *s, const struct session *x) {
    return *(const uint64_t *)(x->record + s->accs.acc[s->rows].offset);
}

/* The session of a row at time t among the *n of `list`, made, moved and merged as need be.
 * *before: rows of the largest session that went into it. NULL: there are too many. */
static struct session *session_at(struct session_self *s, char *list, uint32_t *n, struct span key,
                                  int64_t t, uint64_t *before) {
    uint32_t i = *n;
    while (i && nth(s, list, i - 1)->start > t)
        i--;
    struct session *prev = i ? nth(s, list, i - 1) : NULL, *next = nth(s, list, i);
    bool has_prev = prev && t < prev->last + s->gap && cell(s, t) == cell(s, prev->start);
    bool has_next = i < *n && next->start < t + s->gap && cell(s, t) == cell(s, next->start);
    *before = has_prev && s->early_rows ? rows_of(s, prev) : 0;
    if (has_next && s->early_rows && rows_of(s, next) > *before)
        *before = rows_of(s, next);
    if (has_prev && has_next) {
        merge(s, prev, next, key);
        memmove(next, nth(s, list, i + 1), (size_t)(*n - i - 1) * s->stride);
        --*n;
    } else if (!has_prev && has_next) {
        move_start(s, next, key, t);
        return next;
    } else if (!has_prev) {
        if (*n == SESSIONS_MAX)
            return NULL;
        memmove(nth(s, list, i + 1), next, (size_t)(*n - i) * s->stride);
        memset(next, 0, s->stride);
        next->start = next->last = t;
        ++*n;
        return next;
    }
    prev->last = t > prev->last ? t : prev->last;
    return prev;
}

/* ---- open, rebuild, close ---- */

static uint32_t load_group(struct session_self *s, struct span key, uint64_t hash) {
    uint32_t len = 0;
    const void *v = state_get(s->groups, key.p, key.len, hash, &len);
    if (len)
        memcpy(s->scratch, v, len);
    return len / s->stride;
}
static int64_t first_due(const struct session_self *s, char *list, uint32_t n) {
    int64_t due = TIME_MAX; /* sessions do not overlap: the first one ends first */
    return n ? due_of(s, nth(s, list, 0)) : due;
}
static void session_rebuild(void *self, struct op_ctx *x) {
    struct session_self *s = self;
    const void *key, *value;
    uint32_t klen, vlen;
    (void)x;
    window_index_free(&s->open);
    window_index_free(&s->fresh);
    s->nheap = 0;
    for (uint64_t it = 0; state_next(s->groups, &it, &key, &klen, &value, &vlen);) {
        struct span k = { key, klen, 0 };
        uint64_t hash = state_hash(key, klen);
        bool changed = false;
        memcpy(s->scratch, value, vlen);
        for (uint32_t i = 0; i < vlen / s->stride; i++)
            changed |= nth(s, s->scratch, i)->changed != 0;
        uint32_t id = window_index_add(&s->open, 0, k, hash);
        alarm_set(s, id, first_due(s, s->scratch, vlen / s->stride));
        if (changed)
            window_index_add(&s->fresh, 0, k, hash);
    }
    const int64_t *early = state_find(s->mark, mark_key, MARK_KEY, state_hash(mark_key, MARK_KEY));
    s->early_at = early ? *early : TIME_MIN;
}
static int session_open(void *self, struct op_ctx *x, struct err *e) {
    struct session_self *s = self;
    const struct session_config *c = x->config;
    s->gap = c->gap;
    s->max_length = c->max_length == PARAM_UNSET ? 0 : c->max_length;
    s->lateness = c->lateness;
    s->early_every = c->early_every == PARAM_UNSET ? 0 : c->early_every;
    s->early_rows = c->early_rows == PARAM_UNSET ? 0 : c->early_rows;
    s->late = c->late;
    s->fields = fields_of(c);
    s->early_at = TIME_MIN;
    if (window_open_accs(&s->accs, &s->arena, &c->aggregate, x->in[0], true, e) < 0)
        return ERR_INPUT;
    if (s->early_rows && (s->rows = accs_rows(&s->accs)) < 0)
        return err_set(e, ERR_INPUT, "too many aggregates for early results by rows");
    s->stride = (uint32_t)sizeof(struct session) + s->accs.record;
    s->arg = ARENA_ARRAY(&s->arena, struct column, s->accs.nargs + 1);
    s->scratch = arena_alloc(&s->arena, (size_t)(SESSIONS_MAX + 1) * s->stride);
    s->key = arena_alloc(&s->arena, START + WINDOW_KEY_MAX + 1);
    s->groups = op_state(x, 0, 0);
    s->large = op_state(x, 1, sizeof(struct xbig));
    s->mark = op_state(x, 2, sizeof(int64_t));
    return 0;
}
static void session_close(void *self) {
    struct session_self *s = self;
    window_index_free(&s->open);
    window_index_free(&s->fresh);
    free(s->heap);
    free(s->at);
    arena_free(&s->arena);
}

/* ---- results ---- */

struct due { /* a session on its way out */
    struct window_result r;
    struct acc_total *total;
};
struct dues {
    struct due *v;
    uint32_t n, cap;
};
static struct acc_total *totals_of(struct session_self *s, struct op_ctx *x,
                                   const struct session *v, struct span key) {
    size_t bytes = sizeof(struct acc_total) * (size_t)s->accs.n;
    struct acc_total *t = arena_zalloc(x->arena, bytes);
    accs_merge(&s->accs, t, v->record, x->arena, large_find,
               &(struct large_key){ s, v->start, key });
    return t;
}
static struct window_result result_of(const struct session_self *s, const struct session *v,
                                      struct span key) {
    int64_t end = end_of(s, v->last);
    return (struct window_result){ .fire = saturate(end, s->lateness),
                                   .time = end - 1,
                                   .start = v->start,
                                   .end = end,
                                   .key = key };
}
static void dues_add(struct dues *d, struct op_ctx *x, struct window_result r,
                     struct acc_total *total) {
    if (d->n == d->cap) {
        struct due *v = ARENA_ARRAY(x->arena, struct due, d->cap ? 2 * d->cap : 64);
        if (d->n)
            memcpy(v, d->v, d->n * sizeof *v);
        d->v = v;
        d->cap = d->cap ? 2 * d->cap : 64;
    }
    r.key.p = arena_strndup(x->arena, r.key.p ? r.key.p : "", r.key.len);
    d->v[d->n++] = (struct due){ r, total };
}
static int by_end(const void *a, const void *b) {
    const struct window_result *x = &((const struct due *)a)->r, *y = &((const struct due *)b)->r;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return key_compare(x->key, y->key);
}
static void dues_emit(struct session_self *s, struct op_ctx *x, struct dues *d) {
    struct window_out out;
    if (!d->n)
        return;
    qsort(d->v, d->n, sizeof *d->v, by_end);
    window_out_open(&out, x, &s->accs, s->fields, NULL, d->n);
    for (uint32_t i = 0; i < d->n; i++) {
        memcpy(window_out_totals(&out), d->v[i].total,
               sizeof(struct acc_total) * (size_t)s->accs.n);
        window_out_put(&out, &d->v[i].r);
    }
    window_out_flush(&out);
    d->n = 0;
}

/* ---- rows ---- */

static void store(struct session_self *s, struct span key, uint64_t hash, uint32_t n) {
    state_put(s->groups, key.p, key.len, hash, s->scratch, n * s->stride);
}
static void early_by_rows(struct session_self *s, struct op_ctx *x, struct window_out *o,
                          const struct session *v, struct span key, uint32_t row, uint64_t before) {
    uint64_t step = (uint64_t)s->early_rows;
    if (rows_of(s, v) / step == before / step)
        return;
    struct window_result r = result_of(s, v, key);
    struct large_key k = { s, v->start, key };
    accs_merge(&s->accs, window_out_totals(o), v->record, x->arena, large_find, &k);
    r.fire = row;
    r.early = true;
    window_out_put(o, &r);
}
/* The group has sessions from now on, or an earlier one than before. */
static void watch(struct session_self *s, struct span key, uint64_t hash, uint32_t had,
                  uint32_t n) {
    int64_t due = first_due(s, s->scratch, n);
    uint32_t id =
        had ? window_index_find(&s->open, key, hash) : window_index_add(&s->open, 0, key, hash);
    if (!had || due < s->at[id])
        alarm_set(s, id, due);
}
static bool is_late(const struct session_self *s, const struct batch *b, uint32_t row) {
    return b->wm && saturate(b->time[row], s->lateness) < b->wm[row];
}

static void session_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct session_self *s = self;
    struct keyed keyed = keyed_batch(x, s->groups, b);
    struct window_late late;
    struct window_out early;
    accs_eval(&s->accs, x->arena, b, s->arg, &x->count->nulled);
    window_late_open(&late, x, s->late, b);
    if (s->early_rows)
        window_out_open(&early, x, &s->accs, s->fields, b, b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i), n, had;
        struct span key = keyed.key[i];
        uint64_t hash = keyed.hash[i], before = 0;
        if (window_bad_time(x, b, row))
            continue;
        if (is_late(s, b, row)) {
            window_late_add(&late, x, row, "the row is late: the watermark has passed its time");
            continue;
        }
        if (key.len > WINDOW_KEY_MAX) {
            window_long_key(x, b, row);
            continue;
        }
        n = had = load_group(s, key, hash);
        struct session *v = !had && s->open.entries >= GROUPS_MAX
                                ? NULL
                                : session_at(s, s->scratch, &n, key, b->time[row], &before);
        if (!v) {
            op_reject(x, b, row, "too_many_sessions",
                      "more than %d groups or %d sessions of one group are open", GROUPS_MAX,
                      SESSIONS_MAX);
            continue;
        }
        uint64_t full = accs_update(&s->accs, v->record, s->arg, row, b->time[row]);
        if (full)
            accs_add_large(&s->accs, full, s->arg, row, large_edit,
                           &(struct large_key){ s, v->start, key });
        if (s->early_rows)
            early_by_rows(s, x, &early, v, key, row, before);
        if (s->early_every) {
            uint32_t id = window_index_find(&s->fresh, key, hash);
            if (id == UINT32_MAX || !s->fresh.nslices || !window_slice_has(&s->fresh.slice[0], id))
                window_index_add(&s->fresh, 0, key, hash);
            v->changed = 1;
        }
        store(s, key, hash, n);
        watch(s, key, hash, had, n);
        x->count->absorbed++;
    }
    if (s->early_rows)
        window_out_flush(&early);
    window_late_emit(&late, x);
}

/* ---- firing ---- */

/* Fires what is due of the group; sets its next alarm, or forgets it. */
static void fire_group(struct session_self *s, struct op_ctx *x, struct dues *d, uint32_t id,
                       int64_t wm, int64_t *next) {
    const struct window_key *k = &s->open.key[id];
    struct span key = { k->p, k->len, 0 };
    uint32_t n = load_group(s, key, k->hash), gone = 0;
    for (; gone < n && due_of(s, nth(s, s->scratch, gone)) <= wm; gone++) {
        const struct session *v = nth(s, s->scratch, gone);
        dues_add(d, x, result_of(s, v, key), totals_of(s, x, v, key));
        large_drop(s, v, key);
    }
    *next = first_due(s, (char *)nth(s, s->scratch, gone), n - gone);
    if (gone && gone < n) {
        memmove(s->scratch, nth(s, s->scratch, gone), (size_t)(n - gone) * s->stride);
        store(s, key, k->hash, n - gone);
    } else if (gone) {
        state_drop(s->groups, key.p, key.len, k->hash);
        uint32_t f = window_index_find(&s->fresh, key, k->hash);
        if (f != UINT32_MAX && s->fresh.nslices && window_slice_has(&s->fresh.slice[0], f))
            window_index_remove(&s->fresh, 0, f);
        window_index_remove(&s->open, 0, id);
    }
}
/* Fires all sessions due at `wm` or before, by (end, canonical key). Looks at alarms somewhat
 * ahead, too: sessions go on as a rule, and a call here costs more than a group. */
static void fire_until(struct session_self *s, struct op_ctx *x, struct dues *d, int64_t wm) {
    int64_t ahead = saturate(wm, s->gap / 8);
    uint32_t n = 0, cap = s->nheap;
    if (!s->nheap || s->heap[0].due > wm)
        return;
    struct alarm *again = ARENA_ARRAY(x->arena, struct alarm, cap);
    while (s->nheap && s->heap[0].due <= ahead) {
        struct alarm a = alarm_pop(s);
        if (s->at[a.id] != a.due)
            continue;
        s->at[a.id] = TIME_MIN;
        int64_t next;
        fire_group(s, x, d, a.id, wm, &next);
        if (next != TIME_MAX)
            again[n++] = (struct alarm){ next, a.id };
    }
    while (n--)
        alarm_set(s, again[n].id, again[n].due);
}
static void early_until(struct session_self *s, struct op_ctx *x, struct dues *d, int64_t at) {
    while (s->fresh.nslices) {
        const struct window_slice *sl = &s->fresh.slice[0];
        for (uint32_t w = 0; w < sl->words; w++)
            for (uint64_t b = sl->bits[w]; b; b &= b - 1) {
                const struct window_key *k = &s->fresh.key[64 * w + (uint32_t)__builtin_ctzll(b)];
                struct span key = { k->p, k->len, 0 };
                uint32_t n = load_group(s, key, k->hash);
                for (uint32_t i = 0; i < n; i++) {
                    struct session *v = nth(s, s->scratch, i);
                    struct window_result r = result_of(s, v, key);
                    if (!v->changed)
                        continue;
                    r.fire = at;
                    r.early = true;
                    dues_add(d, x, r, totals_of(s, x, v, key));
                    v->changed = 0;
                }
                store(s, key, k->hash, n);
            }
        window_index_drop_first(&s->fresh);
    }
    window_index_trim(&s->fresh);
}
/* As in window_aggregate. */
static void session_early(struct session_self *s, struct op_ctx *x, struct dues *d, int64_t wm) {
    bool created;
    if (s->early_at > wm)
        return;
    if (s->fresh.entries && s->early_at != TIME_MIN) {
        fire_until(s, x, d, s->early_at);
        dues_emit(s, x, d);
        early_until(s, x, d, s->early_at);
        dues_emit(s, x, d);
    }
    s->early_at = window_next(wm, s->early_every);
    *(int64_t *)state_edit(s->mark, mark_key, MARK_KEY, state_hash(mark_key, MARK_KEY), &created) =
        s->early_at;
}
static void session_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct session_self *s = self;
    struct dues d = { 0 };
    if (s->early_every && wm != TIME_MAX)
        session_early(s, x, &d, wm);
    fire_until(s, x, &d, wm);
    dues_emit(s, x, &d);
    window_index_trim(&s->open);
    /* A row to come is not before wm - lateness. */
    int64_t next = saturate(wm, -s->lateness);
    if (next < -2 * WINDOW_TIME_MAX || next > 2 * WINDOW_TIME_MAX)
        next = wm == TIME_MAX ? TIME_MAX : wm + 1;
    else
        next = saturate(end_of(s, next), s->lateness);
    if (s->nheap && s->heap[0].due < next)
        next = s->heap[0].due;
    if (s->early_every && wm != TIME_MAX && s->early_at < next)
        next = s->early_at;
    x->next_timer = next <= wm && wm != TIME_MAX ? wm + 1 : next;
}

const struct op_desc op_window_session = {
    .name = "window_session",
    .doc =
        "Aggregates the sessions of each group of the input's `by`: rows that are closer than "
        "`gap` to each other by event time (windows.md). When the watermark passes the end of a "
        "session and `lateness`, it makes one row: the group's fields, `window_start` (time of the "
        "first row) and `window_end` (time of the last row and `gap`, or where it was cut; "
        "exclusive), and the aggregates. The row's event time is `window_end` - 1 ms; rows that "
        "fire together come by `window_end`, then by group. Rows may come in any order within "
        "`lateness`; a row between two sessions makes them one. Memory: some 100 bytes and 50 an "
        "aggregate for each open session.",
    .example = "{\"aggregate\": {\"clicks\": \"count()\", \"spent\": \"sum(price)\"}, "
               "\"gap\": \"30m\", \"max_length\": \"1d\"}",
    .semantics = 1,
    .state_version = 1,
    .params = session_params,
    .config_size = sizeof(struct session_config),
    .out_ports = window_ports,
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = session_plan,
    .self_size = sizeof(struct session_self),
    .open = session_open,
    .process = session_process,
    .watermark = session_watermark,
    .rebuild = session_rebuild,
    .close = session_close,
};
