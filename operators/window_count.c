/* window_count: windows of `size` rows of each group, one after each `every` rows.
 *
 * Rows are cut into panes of the greatest common divisor of `size` and `every` rows, as time is in
 * window_aggregate; a window adds up its panes.
 *
 * Tables: 0, key (group key), the number of its rows and the accumulators (window_acc.h) of the
 * pane that is being filled. 1, key (group key, pane modulo the panes of a window), those of a full
 * pane. 2, key (the same, number of the accumulator), a large sum.
 *
 * ~30 ns a row with 100 groups; a window costs ~0.3 us and ~20 ns a pane more. Memory: for each
 * group and pane some 70 bytes and 50 an aggregate. */
#include "operators/keyed.h"
#include "operators/window_out.h"
#include <assert.h>

enum { PANES_MAX = 1000 };

struct count_config {
    struct strmap aggregate;
    int64_t every, size;
};
static const struct param count_params[] = {
    { .name = "aggregate",
      .type = PT_AGGMAP,
      .offset = offsetof(struct count_config, aggregate),
      .doc = "Output fields and what they hold, as in `window_aggregate`." },
    { .name = "every",
      .type = PT_I64,
      .offset = offsetof(struct count_config, every),
      .min = 1,
      .max = 1e9,
      .doc = "A window ends after each so many rows of a group." },
    { .name = "size",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct count_config, size),
      .min = 1,
      .max = 1e9,
      .doc = "Rows of a window, default `every` (tumbling). More: windows overlap (sliding); the "
             "first ones of a group hold what there is." },
    { .name = NULL },
};

struct group {
    int64_t rows;  /* so far */
    char record[]; /* of the pane that is being filled */
};
struct count_self {
    int64_t every, width, panes; /* width: rows of a pane; panes: of a window */
    struct accs accs;
    struct state *groups, *full, *large;
    struct column *arg;
    char *key; /* scratch: group key, pane, accumulator */
    struct arena arena;
};

static void count_plan(struct op_plan *p) {
    const struct count_config *c = p->config;
    window_plan_out(p, &c->aggregate, 0);
    window_plan_size(p, c->every, c->size, PANES_MAX, "panes");
}
static int count_open(void *self, struct op_ctx *x, struct err *e) {
    struct count_self *s = self;
    const struct count_config *c = x->config;
    struct window_grid g = window_grid(c->every, c->size); /* of row numbers instead of times */
    assert(g.width > 0);                                   /* both are: their least value is 1 */
    s->every = g.every;
    s->width = g.width;
    s->panes = g.size / g.width;
    if (window_open_accs(&s->accs, &s->arena, &c->aggregate, x->in[0], true, e) < 0)
        return ERR_INPUT;
    s->arg = ARENA_ARRAY(&s->arena, struct column, s->accs.nargs + 1);
    s->key = arena_alloc(&s->arena, WINDOW_KEY_MAX + sizeof(uint32_t) + 1);
    s->groups = op_state(x, 0, (uint32_t)sizeof(struct group) + s->accs.record);
    s->full = op_state(x, 1, s->accs.record);
    s->large = op_state(x, 2, sizeof(struct xbig));
    return 0;
}
static void count_close(void *self) {
    struct count_self *s = self;
    arena_free(&s->arena);
}

/* ---- panes ---- */

/* One pane of one group. */
struct pane {
    struct count_self *s;
    struct span key;
    int64_t number;
};
static uint32_t pane_key(const struct pane *p) {
    uint32_t slot = (uint32_t)(p->number % p->s->panes);
    memcpy(p->s->key, p->key.p, p->key.len);
    memcpy(p->s->key + p->key.len, &slot, sizeof slot);
    return p->key.len + (uint32_t)sizeof slot;
}
static uint32_t large_key(const struct pane *p, int acc) {
    uint32_t klen = pane_key(p);
    p->s->key[klen] = (char)acc;
    return klen + 1;
}
static struct xbig *large_edit(void *user, int i) {
    struct pane *p = user;
    bool created;
    uint32_t klen = large_key(p, i);
    return state_edit(p->s->large, p->s->key, klen, state_hash(p->s->key, klen), &created);
}
static const struct xbig *large_find(void *user, int i) {
    struct pane *p = user;
    uint32_t klen = large_key(p, i);
    return state_find(p->s->large, p->s->key, klen, state_hash(p->s->key, klen));
}
static void large_drop(const struct pane *p, const void *record) {
    for (uint64_t full = *(const uint64_t *)record; full; full &= full - 1) {
        uint32_t klen = large_key(p, __builtin_ctzll(full));
        state_drop(p->s->large, p->s->key, klen, state_hash(p->s->key, klen));
    }
}
static const void *pane_find(const struct pane *p) {
    uint32_t klen = pane_key(p);
    return state_find(p->s->full, p->s->key, klen, state_hash(p->s->key, klen));
}
/* A pane begins: what has its place is in no window any more. */
static void pane_begin(const struct pane *p) {
    const void *old = p->s->panes > 1 && p->number >= p->s->panes ? pane_find(p) : NULL;
    if (!old)
        return;
    large_drop(p, old);
    uint32_t klen = pane_key(p);
    state_drop(p->s->full, p->s->key, klen, state_hash(p->s->key, klen));
}
/* A pane is full: it moves to its own record. */
static void pane_end(const struct pane *p, struct group *g) {
    if (p->s->panes > 1) {
        bool created;
        uint32_t klen = pane_key(p);
        memcpy(state_edit(p->s->full, p->s->key, klen, state_hash(p->s->key, klen), &created),
               g->record, p->s->accs.record);
    } else {
        large_drop(p, g->record);
    }
    memset(g->record, 0, p->s->accs.record);
}

/* ---- rows ---- */

/* The window that ends with the pane that has just been filled. */
static void fire(struct count_self *s, struct window_out *o, struct span key, const struct group *g,
                 uint32_t row) {
    struct acc_total *t = window_out_totals(o);
    struct pane p = { s, key, g->rows / s->width - s->panes };
    for (p.number = p.number < 0 ? 0 : p.number; p.number < g->rows / s->width - 1; p.number++)
        accs_merge(&s->accs, t, pane_find(&p), o->x->arena, large_find, &p);
    accs_merge(&s->accs, t, g->record, o->x->arena, large_find, &p);
    window_out_put(o, &(struct window_result){ .fire = row, .time = TIME_MIN, .key = key });
}

static void count_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct count_self *s = self;
    struct keyed keyed = keyed_batch(x, s->groups, b);
    struct window_out out;
    accs_eval(&s->accs, x->arena, b, s->arg, &x->count->nulled);
    window_out_open(&out, x, &s->accs, 0, b, b->n);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        bool created;
        if (keyed.key[i].len > WINDOW_KEY_MAX) {
            window_long_key(x, b, row);
            continue;
        }
        struct group *g = keyed_edit(&keyed, i, &created);
        struct pane p = { s, keyed.key[i], g->rows / s->width };
        if (g->rows % s->width == 0)
            pane_begin(&p);
        uint64_t full =
            accs_update(&s->accs, g->record, s->arg, row, b->time ? b->time[row] : TIME_MIN);
        if (full)
            accs_add_large(&s->accs, full, s->arg, row, large_edit, &p);
        g->rows++;
        if (g->rows % s->every == 0)
            fire(s, &out, keyed.key[i], g, row);
        if (g->rows % s->width == 0)
            pane_end(&p, g);
        x->count->absorbed++;
    }
    window_out_flush(&out);
}

const struct op_desc op_window_count = {
    .name = "window_count",
    .doc =
        "Aggregates windows of a number of rows for each group of the input's `by`: tumbling "
        "(`size` = `every`) or sliding ones (windows.md). The row that completes a window makes "
        "one row: the group's fields and the aggregates, with the event time of that row. No row "
        "is late; what is in a window depends on the order in which rows come. Rows of a window "
        "that is not complete when the stream ends give no result. Memory grows with the number "
        "of groups: some 70 bytes and 50 an aggregate for each pane (the greatest common divisor "
        "of `size` and `every` rows) of a window.",
    .example = "{\"aggregate\": {\"mean_t\": \"mean(temperature)\"}, \"every\": 10, \"size\": 50}",
    .semantics = 1,
    .state_version = 1,
    .params = count_params,
    .config_size = sizeof(struct count_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = count_plan,
    .self_size = sizeof(struct count_self),
    .open = count_open,
    .process = count_process,
    .close = count_close,
};
