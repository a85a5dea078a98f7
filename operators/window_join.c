/* window_join: pairs of rows of two streams that lie in one tumbling window of event time and have
 * equal keys. */
#include "operators/join_rows.h"

static const char *const window_ports[] = { "left", "right", NULL };

struct window_join_config {
    struct join_params join;
    int64_t size, max_pairs;
};
static const struct param window_join_params[] = {
    { .name = "size",
      .type = PT_DURATION,
      .offset = offsetof(struct window_join_config, size),
      .min = 1,
      .max = 1e15,
      .doc = "Length of the windows. One begins at each multiple of it, counted from 1970." },
    JOIN_PARAMS(struct window_join_config, join, join_inner_left_full,
                "`inner`: pairs only. `left`: also rows of `left` without a match. `full`: also "
                "rows of `right` without one. The other side's fields are then null."),
    { .name = "max_pairs",
      .type = PT_I64,
      .offset = offsetof(struct window_join_config, max_pairs),
      .def = "1000000",
      .min = 1,
      .max = 1e9,
      .doc = "At most this many pairs come out of one window for one key; a row that would make "
             "more is a dead letter." },
    { .name = NULL },
};

struct window_join_self {
    struct joins joins;
    int64_t size, max_pairs;
};

static const struct window_join_self *self_of(const struct joins *s) {
    return (const struct window_join_self *)s;
}

/* ---- windows ---- */

static int64_t window_start(const struct joins *s, int64_t time) {
    return floor_to(time, self_of(s)->size);
}

static int64_t window_due(const struct joins *s, int64_t time) {
    return window_start(s, time) + self_of(s)->size;
}

static int64_t window_fired(const struct joins *s, int64_t bound) {
    if (bound < -4 * WINDOW_TIME_MAX)
        return TIME_MIN;
    return bound > 4 * WINDOW_TIME_MAX ? bound : window_start(s, bound);
}

static int64_t window_next_end(const struct joins *s, int64_t bound) {
    int64_t fired = window_fired(s, bound);
    return saturate(fired, fired == TIME_MIN ? 0 : self_of(s)->size);
}

static void window_placed(struct joins *s, struct join_group *g, int side, struct join_row r) {
    (void)side;
    if (!g->events)
        join_push(s, g, window_due(s, r.time), 0, 0, (struct join_row){ 0, 0 });
}

static bool window_room(const struct joins *s, const struct join_group *g, int side) {
    int64_t mine = g->side[side].n, other = g->side[!side].n;
    return g->null || (mine + 1) * other <= self_of(s)->max_pairs;
}

static void window_fire(struct joins *s, struct op_ctx *x, const struct join_event *ev) {
    struct join_group *g = ev->group;
    const struct join_list *l = &g->side[JOIN_LEFT], *r = &g->side[JOIN_RIGHT];
    bool pairs = l->n && r->n && !g->null;
    for (uint32_t i = 0; i < l->n && (pairs || s->conf->type != JOIN_INNER); i++) {
        struct join_row left = join_at(l, i);
        for (uint32_t k = 0; pairs && k < r->n; k++) {
            struct join_row right = join_at(r, k);
            join_emit(s, x, ev->fire, &left, &right);
        }
        if (!pairs)
            join_emit(s, x, ev->fire, &left, NULL);
    }
    for (uint32_t k = 0; !pairs && k < r->n && s->conf->type == JOIN_FULL; k++) {
        struct join_row right = join_at(r, k);
        join_emit(s, x, ev->fire, NULL, &right);
    }
    join_drop(s, g, JOIN_LEFT, 0, l->n);
    join_drop(s, g, JOIN_RIGHT, 0, r->n);
}

static const struct join_kind window_kind = { .due = window_due,
                                              .window = window_start,
                                              .placed = window_placed,
                                              .fire = window_fire,
                                              .room = window_room,
                                              .fired = window_fired,
                                              .next = window_next_end };

static void window_join_plan(struct op_plan *p) {
    const struct window_join_config *c = p->config;
    join_plan(p, &c->join);
}

static int window_join_open(void *self, struct op_ctx *x, struct err *e) {
    struct window_join_self *s = self;
    const struct window_join_config *c = x->config;
    (void)e;
    s->size = c->size;
    s->max_pairs = c->max_pairs;
    join_open(&s->joins, x, &window_kind, &c->join);
    return 0;
}

const struct op_desc op_window_join = {
    .name = "window_join",
    .doc = "Joins two streams by equal keys (the inputs' `by`, field by field) within tumbling "
           "windows of event time: each pair of a `left` and a `right` row of one window is a row "
           "with the fields of both. A window fires when the watermark has passed its end and "
           "`lateness`; its rows come by key, then by the times of both rows, with event time "
           "`end` - 1 ms. A null key matches nothing. See joins.md. Memory: the rows of the open "
           "windows.",
    .example = "{\"size\": \"1m\", \"type\": \"left\"}",
    .semantics = 1,
    .state_version = 1,
    .params = window_join_params,
    .config_size = sizeof(struct window_join_config),
    .in_ports = window_ports,
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_TIMERS,
    .memory = MEMORY_BOUNDED,
    .plan = window_join_plan,
    .self_size = sizeof(struct window_join_self),
    .open = window_join_open,
    .process = join_process,
    .watermark = join_watermark,
    .rebuild = join_rebuild,
    .close = join_close,
};
