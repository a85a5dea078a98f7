/* asof_join, and the kind of join that lookup_join is by time. */
#include "operators/asof.h"

enum { LEFT, RIGHT, EXPIRE }; /* in this order at one fire time */
static const char *const asof_ports[] = { "left", "right", NULL };

struct asof_join_config {
    struct join_params join;
    int64_t tolerance;
};
static const struct param asof_join_params[] = {
    { .name = "tolerance",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct asof_join_config, tolerance),
      .min = 0,
      .max = 1e15,
      .doc = "A `right` row further back than this does not match. Default: however old." },
    JOIN_PARAMS(struct asof_join_config, join, join_inner_left,
                "`inner`: only rows of `left` with a match. `left`: all of them, the fields of "
                "`right` null where none is."),
    { .name = NULL },
};

static int64_t asof_due(const struct joins *s, int64_t time) {
    (void)s;
    return time + 1;
}

static void fire_left(struct joins *s, struct op_ctx *x, const struct join_event *ev) {
    const struct asof *self = (const struct asof *)s;
    const struct join_list *right = &ev->group->side[JOIN_RIGHT];
    struct join_row mine = { ev->time, ev->seq }, row = { 0, 0 };
    uint32_t i = ev->group->null ? 0 : join_upper(right, ev->time);
    bool match = i > 0;
    if (match) {
        row = join_at(right, i - 1);
        match = (self->tolerance == PARAM_UNSET || row.time >= ev->time - self->tolerance) &&
                !(join_flags(s, JOIN_RIGHT, row.seq) & JOIN_DELETED);
    }
    if (match || s->conf->type == JOIN_OUTER)
        join_emit(s, x, ev->fire, &mine, match ? &row : NULL);
    i = join_find(&ev->group->side[JOIN_LEFT], mine);
    join_drop(s, ev->group, JOIN_LEFT, i, i + 1);
}

/* From now on this row is in effect, not those before it. A row that deletes its key has done so.
 */
static void take_effect(struct joins *s, struct join_group *g, struct join_row r) {
    const struct asof *self = (const struct asof *)s;
    uint32_t i = join_find(&g->side[JOIN_RIGHT], r);
    bool gone = join_flags(s, JOIN_RIGHT, r.seq) & JOIN_DELETED;
    if (i + gone > 0)
        join_drop(s, g, JOIN_RIGHT, 0, i + gone);
    if (!gone && self->tolerance != PARAM_UNSET)
        join_push(s, g, r.time + self->tolerance + 1, EXPIRE, JOIN_RIGHT, r);
}

/* A row of the past is in effect at once: it came late, or has been restored (and is then the first
 * of its list). */
static void asof_placed(struct joins *s, struct join_group *g, int side, struct join_row r) {
    if (side == JOIN_RIGHT && r.time + 1 <= s->now.fired)
        take_effect(s, g, r);
    else
        join_push(s, g, r.time + 1, side == JOIN_LEFT ? LEFT : RIGHT, side, r);
}

static void fire_right(struct joins *s, const struct join_event *ev) {
    struct join_row mine = { ev->time, ev->seq };
    uint32_t i = join_find(&ev->group->side[JOIN_RIGHT], mine);
    if (i == UINT32_MAX) /* a later one has replaced it */
        return;
    if (ev->kind == EXPIRE)
        join_drop(s, ev->group, JOIN_RIGHT, 0, i + 1);
    else
        take_effect(s, ev->group, mine);
}

static void asof_fire(struct joins *s, struct op_ctx *x, const struct join_event *ev) {
    if (ev->kind == LEFT)
        fire_left(s, x, ev);
    else
        fire_right(s, ev);
}

static bool asof_wanted(const struct joins *s, const struct join_group *g, int64_t time) {
    if (!g)
        return true;
    const struct join_list *right = &g->side[JOIN_RIGHT];
    uint32_t i = join_upper(right, time);
    return i == right->n || join_at(right, i).time >= s->now.fired;
}

const struct join_kind asof_kind = { .due = asof_due, .placed = asof_placed, .fire = asof_fire };
const struct join_kind asof_table_kind = {
    .due = asof_due, .placed = asof_placed, .fire = asof_fire, .wanted = asof_wanted
};

static void asof_join_plan(struct op_plan *p) {
    const struct asof_join_config *c = p->config;
    join_plan(p, &c->join);
}

static int asof_join_open(void *self, struct op_ctx *x, struct err *e) {
    struct asof *s = self;
    const struct asof_join_config *c = x->config;
    (void)e;
    s->tolerance = c->tolerance;
    join_open(&s->joins, x, &asof_kind, &c->join);
    return 0;
}

const struct op_desc op_asof_join = {
    .name = "asof_join",
    .doc = "Gives each `left` row the latest `right` row with an equal key (the inputs' `by`, "
           "field by field; none: any) whose event time is not after its own: the price at the "
           "time of the trade. Of several with one time the last to come counts. A `left` row "
           "comes out when the watermark of both inputs and `lateness` have passed its time; rows "
           "come by event time, then by key. A null key matches nothing. See joins.md. Memory: the "
           "rows that wait, and the newest `right` row of each key (those younger than "
           "`tolerance`, when given).",
    .example = "{\"type\": \"left\", \"tolerance\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = asof_join_params,
    .config_size = sizeof(struct asof_join_config),
    .in_ports = asof_ports,
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_TIMERS | OP_KEEPS | OP_TABLE,
    .memory = MEMORY_UNBOUNDED,
    .plan = asof_join_plan,
    .self_size = sizeof(struct asof),
    .open = asof_join_open,
    .process = join_process,
    .watermark = join_watermark,
    .rebuild = join_rebuild,
    .close = join_close,
};
