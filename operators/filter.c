/* filter: rows for which an expression is true; false and null are filtered. A selection vector, no
 * column is touched. */
#include "engine/expr.h"
#include "engine/op.h"

struct filter_config {
    const char *where;
};
static const struct param filter_params[] = {
    { .name = "where",
      .type = PT_EXPR,
      .offset = offsetof(struct filter_config, where),
      .doc = "A bool expression (see expressions.md): `temperature > 20 and source like 'ci4%'`." },
    { .name = NULL },
};

struct filter_self {
    const struct expr *where;
    struct arena arena;
};

static void filter_plan(struct op_plan *p) {
    const struct filter_config *c = p->config;
    struct err e = ERR_INIT;
    p->out[0] = p->in[0];
    const struct expr *x = expr_compile(p->arena, c->where, strlen(c->where), p->in[0],
                                        p->in_time ? EXPR_HAS_TIME : 0, &e);
    if (!x)
        plan_error(p, "where", NULL, "%s", e.text);
    else if (expr_type(x) != TYPE_BOOL && expr_type(x) != TYPE_COUNT)
        plan_error(p, "where", NULL, "the condition must be bool, not %s",
                   type_names[expr_type(x)]);
}

static int filter_open(void *self, struct op_ctx *x, struct err *e) {
    struct filter_self *s = self;
    const struct filter_config *c = x->config;
    s->where = expr_compile(&s->arena, c->where, strlen(c->where), x->in[0], EXPR_HAS_TIME, e);
    return s->where ? 0 : ERR_INPUT;
}
static void filter_close(void *self) {
    arena_free(&((struct filter_self *)self)->arena);
}

static void filter_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct filter_self *s = self;
    uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
    uint32_t n = expr_select(s->where, x->arena, b, sel, &x->count->nulled);
    x->count->passed += n;
    x->count->filtered += b->n - n;
    op_emit(x, 0, n == b->n ? b : batch_select(x->arena, b, sel, n));
}

const struct op_desc op_filter = {
    .name = "filter",
    .doc =
        "Passes the rows for which an expression is true. Rows for which it is false or null are "
        "dropped.",
    .example = "{\"where\": \"temperature > 20 and humidity is not null\"}",
    .semantics = 1,
    .params = filter_params,
    .config_size = sizeof(struct filter_config),
    .flags = OP_DETERMINISTIC | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = filter_plan,
    .self_size = sizeof(struct filter_self),
    .open = filter_open,
    .process = filter_process,
    .close = filter_close,
};
