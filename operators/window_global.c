/* window_global: one window over all rows of each group, which never ends by itself; triggers say
 * when it makes a result: after a number of rows, at multiples of event time, when the stream ends.
 *
 * Tables: 0, key (group key), a struct group with the accumulators of window_acc.h. 1, key (group
 * key, number of the accumulator), a large sum. 2, key "last ", the greatest event time so far, and
 * key "every", when the trigger by time is next. Which groups have changed since their last result
 * is derived from table 0.
 *
 * ~30 ns a row with 100 groups, ~0.4 us a result. Memory: for each group some 70 bytes and 50 an
 * aggregate. */
#include "operators/keyed.h"
#include "operators/window_index.h"
#include "operators/window_out.h"

enum { GROUPS_MAX = 16 << 20 };

struct global_config {
    struct strmap aggregate;
    int64_t rows, every;
    bool at_end, purge;
};
static const struct param global_params[] = {
    { .name = "aggregate",
      .type = PT_AGGMAP,
      .offset = offsetof(struct global_config, aggregate),
      .doc = "Output fields and what they hold, as in `window_aggregate`." },
    { .name = "rows",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct global_config, rows),
      .min = 1,
      .max = 1e15,
      .doc = "Trigger: a result after each so many rows of a group." },
    { .name = "every",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct global_config, every),
      .min = 1,
      .max = 1e15,
      .doc = "Trigger: when the watermark passes a multiple of this, a result of each group that "
             "has new rows." },
    { .name = "at_end",
      .type = PT_BOOL,
      .offset = offsetof(struct global_config, at_end),
      .def = "true",
      .doc = "Trigger: when the stream ends, a result of each group that has new rows." },
    { .name = "purge",
      .type = PT_BOOL,
      .offset = offsetof(struct global_config, purge),
      .def = "false",
      .doc = "Whether a result empties its group, so that the next one begins anew." },
    { .name = NULL },
};

struct group {
    uint64_t changed; /* since its last result */
    char record[];
};
struct global_self {
    int64_t rows, every;
    bool at_end, purge, watched; /* watched: fresh is kept */
    int row_acc;
    struct accs accs;
    struct state *groups, *large, *mark;
    struct window_index fresh; /* one slice: groups that have changed */
    int64_t last, due;         /* as in table 2; TIME_MIN: not known */
    struct column *arg;
    char *key; /* scratch: group key, accumulator */
    struct arena arena;
};

static void global_plan(struct op_plan *p) {
    const struct global_config *c = p->config;
    window_plan_out(p, &c->aggregate, 0);
    if (!p->in_time)
        plan_error(p, NULL, NULL, "the input has no event time; give its source a 'time'");
    if (c->rows == PARAM_UNSET && c->every == PARAM_UNSET && !c->at_end)
        plan_error(p, "at_end", NULL, "there is no trigger: give 'rows', 'every' or 'at_end'");
}

/* ---- state ---- */

static const char last_key[] = "last ", due_key[] = "every";
enum { MARK_KEY = 5 };
static int64_t get_mark(struct global_self *s, const char *key) {
    const int64_t *t = state_find(s->mark, key, MARK_KEY, state_hash(key, MARK_KEY));
    return t ? *t : TIME_MIN;
}
static void set_mark(struct global_self *s, const char *key, int64_t t) {
    bool created;
    *(int64_t *)state_edit(s->mark, key, MARK_KEY, state_hash(key, MARK_KEY), &created) = t;
}
static void global_rebuild(void *self, struct op_ctx *x) {
    struct global_self *s = self;
    const void *key, *value;
    uint32_t klen, vlen;
    (void)x;
    window_index_free(&s->fresh);
    for (uint64_t it = 0; s->watched && state_next(s->groups, &it, &key, &klen, &value, &vlen);)
        if (((const struct group *)value)->changed)
            window_index_add(&s->fresh, 0, (struct span){ key, klen, 0 }, state_hash(key, klen));
    s->last = get_mark(s, last_key);
    s->due = get_mark(s, due_key);
}
static int global_open(void *self, struct op_ctx *x, struct err *e) {
    struct global_self *s = self;
    const struct global_config *c = x->config;
    s->rows = c->rows == PARAM_UNSET ? 0 : c->rows;
    s->every = c->every == PARAM_UNSET ? 0 : c->every;
    s->at_end = c->at_end;
    s->purge = c->purge;
    s->watched = s->every || s->at_end;
    s->last = s->due = TIME_MIN;
    if (window_open_accs(&s->accs, &s->arena, &c->aggregate, x->in[0], true, e) < 0)
        return ERR_INPUT;
    if (s->rows && (s->row_acc = accs_rows(&s->accs)) < 0)
        return err_set(e, ERR_INPUT, "too many aggregates for a trigger by rows");
    s->arg = ARENA_ARRAY(&s->arena, struct column, s->accs.nargs + 1);
    s->key = arena_alloc(&s->arena, WINDOW_KEY_MAX + 1);
    s->groups = op_state(x, 0, (uint32_t)sizeof(struct group) + s->accs.record);
    s->large = op_state(x, 1, sizeof(struct xbig));
    s->mark = op_state(x, 2, sizeof(int64_t));
    return 0;
}
static void global_close(void *self) {
    struct global_self *s = self;
    window_index_free(&s->fresh);
    arena_free(&s->arena);
}

/* ---- large sums ---- */

struct large_key {
    struct global_self *s;
    struct span key;
};
static uint32_t put_key(const struct large_key *k, int acc) {
    memcpy(k->s->key, k->key.p, k->key.len);
    k->s->key[k->key.len] = (char)acc;
    return k->key.len + 1;
}
static struct xbig *large_edit(void *user, int i) {
    struct large_key *k = user;
    bool created;
    uint32_t klen = put_key(k, i);
    return state_edit(k->s->large, k->s->key, klen, state_hash(k->s->key, klen), &created);
}
static const struct xbig *large_find(void *user, int i) {
    struct large_key *k = user;
    uint32_t klen = put_key(k, i);
    return state_find(k->s->large, k->s->key, klen, state_hash(k->s->key, klen));
}

/* ---- results ---- */

static void put_result(struct global_self *s, struct window_out *o, struct span key,
                       const struct group *g, int64_t fire, int64_t time) {
    struct large_key k = { s, key };
    accs_merge(&s->accs, window_out_totals(o), g->record, o->x->arena, large_find, &k);
    window_out_put(o, &(struct window_result){ .fire = fire, .time = time, .key = key });
}
/* After a result. */
static void settle(struct global_self *s, struct span key, uint64_t hash, struct group *g) {
    struct large_key k = { s, key };
    g->changed = 0;
    if (!s->purge)
        return;
    for (uint64_t full = *(uint64_t *)g->record; full; full &= full - 1) {
        uint32_t klen = put_key(&k, __builtin_ctzll(full));
        state_drop(s->large, s->key, klen, state_hash(s->key, klen));
    }
    state_drop(s->groups, key.p, key.len, hash);
}
/* All groups that have changed, in order of their keys. */
static void fire_changed(struct global_self *s, struct op_ctx *x, int64_t fire, int64_t time) {
    struct window_index *f = &s->fresh;
    struct window_out out;
    if (!f->entries)
        return;
    window_index_sort(f);
    window_out_open(&out, x, &s->accs, 0, NULL, f->norder);
    for (uint32_t i = 0; i < f->norder; i++) {
        const struct window_key *k = &f->key[f->order[i]];
        struct span key = { k->p, k->len, 0 };
        bool created;
        if (!window_slice_has(&f->slice[0], f->order[i]))
            continue;
        struct group *g = state_edit(s->groups, key.p, key.len, k->hash, &created);
        put_result(s, &out, key, g, fire, time);
        settle(s, key, k->hash, g);
    }
    window_out_flush(&out);
    window_index_drop_first(f);
}

/* ---- rows ---- */

static void watch(struct global_self *s, struct span key, uint64_t hash, bool changed) {
    if (!s->watched)
        return;
    if (changed) {
        window_index_add(&s->fresh, 0, key, hash);
        return;
    }
    window_index_remove(&s->fresh, 0, window_index_find(&s->fresh, key, hash));
    window_index_trim(&s->fresh);
}
static void add_row(struct global_self *s, struct window_out *o, const struct batch *b,
                    struct keyed *keyed, uint32_t i) {
    uint32_t row = batch_row(b, i);
    struct span key = keyed->key[i];
    bool created;
    if (keyed->key[i].len > WINDOW_KEY_MAX) {
        window_long_key(o->x, b, row);
        return;
    }
    if (state_count(s->groups) >= GROUPS_MAX && !keyed_find(keyed, i)) {
        op_reject(o->x, b, row, "too_many_groups", "there are more than %d groups", GROUPS_MAX);
        return;
    }
    struct group *g = keyed_edit(keyed, i, &created);
    uint64_t full = accs_update(&s->accs, g->record, s->arg, row, b->time[row]);
    if (full)
        accs_add_large(&s->accs, full, s->arg, row, large_edit, &(struct large_key){ s, key });
    if (!g->changed)
        watch(s, key, keyed->hash[i], true);
    g->changed = 1;
    o->x->count->absorbed++;
    if (!s->rows || *(uint64_t *)(g->record + s->accs.acc[s->row_acc].offset) % (uint64_t)s->rows)
        return;
    put_result(s, o, key, g, row, TIME_MIN);
    settle(s, key, keyed->hash[i], g);
    watch(s, key, keyed->hash[i], false);
    keyed->value = NULL; /* may be gone */
    keyed->seen_at = UINT32_MAX;
}
static void global_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct global_self *s = self;
    struct keyed keyed = keyed_batch(x, s->groups, b);
    struct window_out out;
    int64_t last = s->last;
    accs_eval(&s->accs, x->arena, b, s->arg, &x->count->nulled);
    window_out_open(&out, x, &s->accs, 0, b, b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        if (window_bad_time(x, b, row))
            continue;
        last = b->time[row] > last ? b->time[row] : last;
        add_row(s, &out, b, &keyed, i);
    }
    window_out_flush(&out);
    if (last != s->last && s->at_end)
        set_mark(s, last_key, last);
    s->last = last;
}

static void global_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct global_self *s = self;
    if (wm == TIME_MAX) {
        /* not before what the trigger by time may have made at this point */
        int64_t fire = s->due > s->last ? s->due : s->last + 1;
        if (s->at_end)
            fire_changed(s, x, fire, s->last);
        x->next_timer = TIME_MAX;
        return;
    }
    x->next_timer = TIME_MAX;
    if (!s->every)
        return;
    if (s->due <= wm) { /* the first watermark only says when that is */
        if (s->due != TIME_MIN)
            fire_changed(s, x, s->due, saturate(s->due, -1));
        s->due = window_next(wm, s->every);
        set_mark(s, due_key, s->due);
    }
    x->next_timer = s->due <= wm ? wm + 1 : s->due;
}

const struct op_desc op_window_global = {
    .name = "window_global",
    .doc =
        "Aggregates all rows so far of each group of the input's `by` (windows.md); its triggers "
        "say when there is a result: after `rows` of them, at each multiple of `every` that the "
        "watermark passes, when the stream ends. A result is one row: the group's fields and the "
        "aggregates; its event time is that of the row that triggered it, or the multiple of "
        "`every` - 1 ms, or at the end the greatest one that came. Results that fire together come "
        "by group. No row is late. Memory grows with the number of groups (unless `purge`): some "
        "70 bytes and 50 an aggregate for each.",
    .example = "{\"aggregate\": {\"total\": \"sum(price)\"}, \"every\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = global_params,
    .config_size = sizeof(struct global_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = global_plan,
    .self_size = sizeof(struct global_self),
    .open = global_open,
    .process = global_process,
    .watermark = global_watermark,
    .rebuild = global_rebuild,
    .close = global_close,
};
