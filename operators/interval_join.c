/* interval_join: pairs of rows with equal keys whose event times are at most so far apart.
 *
 * A pair comes out at the later of its two times. So each row causes two things: PAIR at its own
 * time, with what of the other side is not later; and END when nothing can match it any more. */
#include "operators/join_rows.h"

enum { PAIR, END_LEFT, END_RIGHT }; /* in this order at one fire time */
static const char *const interval_ports[] = { "left", "right", NULL };

struct interval_join_config {
    struct join_params join;
    int64_t lower, upper;
};
static const struct param interval_join_params[] = {
    { .name = "lower",
      .type = PT_DURATION,
      .offset = offsetof(struct interval_join_config, lower),
      .min = -864e12,
      .max = 864e12,
      .doc = "A `right` row matches from this long after the `left` row's time on: `\"0s\"`, or "
             "`\"-5s\"` for before it." },
    { .name = "upper",
      .type = PT_DURATION,
      .offset = offsetof(struct interval_join_config, upper),
      .min = -864e12,
      .max = 864e12,
      .doc = "And up to this long after it, both ends included." },
    JOIN_PARAMS(struct interval_join_config, join, join_inner_left,
                "`inner`: pairs only. `left`: also rows of `left` without a match, the fields of "
                "`right` null."),
    { .name = NULL },
};

struct interval_join_self {
    struct joins joins;
    int64_t lower, upper;
};

static const struct interval_join_self *self_of(const struct joins *s) {
    return (const struct interval_join_self *)s;
}

static int64_t row_due(const struct joins *s, int64_t time) {
    (void)s;
    return time + 1;
}

/* How long after its time the last match of a left row can come. */
static int64_t left_wait(const struct joins *s) {
    return self_of(s)->upper > 0 ? self_of(s)->upper : 0;
}

/* A right row must outlast every left row that it matches; those of a left join look for their
 * matches once more at their own end. */
static int64_t row_end(const struct joins *s, int side, int64_t time) {
    if (side == JOIN_LEFT)
        return time + left_wait(s) + 1;
    int64_t last = time - self_of(s)->lower;
    if (s->conf->type == JOIN_OUTER)
        last += left_wait(s);
    return (last > time ? last : time) + 1;
}

static void push_end(struct joins *s, struct join_group *g, int side, struct join_row r) {
    join_push(s, g, row_end(s, side, r.time), side == JOIN_LEFT ? END_LEFT : END_RIGHT, side, r);
}

static void interval_placed(struct joins *s, struct join_group *g, int side, struct join_row r) {
    if (r.time + 1 > s->now.fired)
        join_push(s, g, r.time + 1, PAIR, side, r);
    else
        push_end(s, g, side, r);
}

static void fire_pairs(struct joins *s, struct op_ctx *x, const struct join_event *ev) {
    const struct interval_join_self *self = self_of(s);
    const struct join_list *other = &ev->group->side[!ev->side];
    struct join_row mine = { ev->time, ev->seq };
    if (ev->group->null)
        return;
    bool left = ev->side == JOIN_LEFT;
    int64_t from = left ? ev->time + self->lower : ev->time - self->upper;
    int64_t to = left ? ev->time + self->upper : ev->time - self->lower;
    int64_t now = left ? ev->time : ev->time - 1; /* equal times: once, as the left row's */
    to = to < now ? to : now;
    for (uint32_t i = join_lower(other, from); i < other->n; i++) {
        struct join_row row = join_at(other, i);
        if (row.time > to)
            break;
        join_emit(s, x, ev->fire, left ? &mine : &row, left ? &row : &mine);
    }
}

static bool has_match(const struct joins *s, const struct join_event *ev) {
    const struct interval_join_self *self = self_of(s);
    const struct join_list *right = &ev->group->side[JOIN_RIGHT];
    uint32_t i = join_lower(right, ev->time + self->lower);
    return !ev->group->null && i < right->n && join_at(right, i).time <= ev->time + self->upper;
}

static void interval_fire(struct joins *s, struct op_ctx *x, const struct join_event *ev) {
    struct join_row mine = { ev->time, ev->seq };
    if (ev->kind == PAIR) {
        fire_pairs(s, x, ev);
        push_end(s, ev->group, ev->side, mine);
        return;
    }
    if (ev->kind == END_LEFT && s->conf->type == JOIN_OUTER && !has_match(s, ev))
        join_emit(s, x, ev->fire, &mine, NULL);
    uint32_t i = join_find(&ev->group->side[ev->side], mine);
    join_drop(s, ev->group, ev->side, i, i + 1);
}

static const struct join_kind interval_kind = { .due = row_due,
                                                .placed = interval_placed,
                                                .fire = interval_fire };

static void interval_join_plan(struct op_plan *p) {
    const struct interval_join_config *c = p->config;
    if (c->lower > c->upper)
        plan_error(p, "lower", NULL, "'lower' is after 'upper': nothing would match");
    join_plan(p, &c->join);
}

static int interval_join_open(void *self, struct op_ctx *x, struct err *e) {
    struct interval_join_self *s = self;
    const struct interval_join_config *c = x->config;
    (void)e;
    s->lower = c->lower;
    s->upper = c->upper;
    join_open(&s->joins, x, &interval_kind, &c->join);
    return 0;
}

const struct op_desc op_interval_join = {
    .name = "interval_join",
    .doc =
        "Joins two streams by equal keys (the inputs' `by`, field by field) where the `right` "
        "row's event time lies within [`lower`, `upper`] of the `left` row's. A pair comes out, "
        "with the fields of both rows, when the watermark and `lateness` have passed the later of "
        "its two times, which is its event time; a `left` row without a match (`type` `left`) "
        "when they have passed its time and `upper`. Rows come by event time, then by key. A null "
        "key matches nothing. See joins.md. Memory: the rows of the last interval.",
    .example = "{\"lower\": \"-5s\", \"upper\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = interval_join_params,
    .config_size = sizeof(struct interval_join_config),
    .in_ports = interval_ports,
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = interval_join_plan,
    .self_size = sizeof(struct interval_join_self),
    .open = interval_join_open,
    .process = join_process,
    .watermark = join_watermark,
    .rebuild = join_rebuild,
    .close = join_close,
};
