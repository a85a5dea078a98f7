/* split: rows to out-ports by conditions. Selection vectors; no column is touched, and rows keep
 * their positions. */
#include "engine/expr.h"
#include "operators/named_ports.h"
#include "operators/rows.h"
#include <stdlib.h>

enum { TO_FIRST, TO_ALL };
struct split_config {
    struct strmap ports;
    const char *rest;
    int to;
};
static const char *const to_words[] = { "first", "all", NULL };
static const struct param split_params[] = {
    { .name = "ports",
      .type = PT_EXPRMAP,
      .offset = offsetof(struct split_config, ports),
      .doc =
          "Out-ports and their conditions (bool, see expressions.md), in the order in which they "
          "are tried: `{\"hot\": \"t > 30\", \"cold\": \"t < 0\"}`. Readers name them as "
          "`TASK.hot`." },
    { .name = "default",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct split_config, rest),
      .doc = "One more out-port, for the rows for which no condition is true. Without it they are "
             "dropped." },
    { .name = "to",
      .type = PT_ENUM,
      .offset = offsetof(struct split_config, to),
      .def = "\"first\"",
      .words = to_words,
      .doc = "Where a row goes for which several conditions are true: to the `first` of them only, "
             "or to `all`." },
    { .name = NULL },
};

struct split_self {
    int n, to;
    bool rest;
    const struct expr *where[OP_PORTS_MAX];
    struct named_ports ports;
    struct arena arena;
};

static const char *const *port_names(const struct split_config *c, struct arena *a, int *n) {
    const char **name = ARENA_ARRAY(a, const char *, c->ports.n + 1);
    *n = c->ports.n;
    for (int i = 0; i < *n; i++)
        name[i] = c->ports.v[i].name;
    if (c->rest)
        name[(*n)++] = c->rest;
    return name;
}

static void split_plan(struct op_plan *p) {
    const struct split_config *c = p->config;
    int n;
    const char *const *name = port_names(c, p->arena, &n);
    if (!c->ports.n)
        plan_error(p, "ports", NULL, "no ports given");
    for (int i = 0; i < c->ports.n; i++) {
        const struct strpair *v = &c->ports.v[i];
        struct err e = ERR_INIT;
        const struct expr *x = expr_compile(p->arena, v->text, strlen(v->text), p->in[0],
                                            p->in_time ? EXPR_HAS_TIME : 0, &e);
        if (!x)
            plan_error(p, "ports", v->name, "%s", e.text);
        else if (expr_type(x) != TYPE_BOOL && expr_type(x) != TYPE_COUNT)
            plan_error(p, "ports", v->name, "the condition must be bool, not %s",
                       type_names[expr_type(x)]);
    }
    named_ports_plan(p, "ports", c->rest ? "default" : NULL, name, n);
}

static int split_open(void *self, struct op_ctx *x, struct err *e) {
    struct split_self *s = self;
    const struct split_config *c = x->config;
    int n;
    s->n = c->ports.n;
    s->to = c->to;
    s->rest = c->rest;
    const char *const *name = port_names(c, &s->arena, &n);
    named_ports_open(&s->ports, name, n);
    for (int i = 0; i < s->n; i++) {
        const char *text = c->ports.v[i].text;
        s->where[i] = expr_compile(&s->arena, text, strlen(text), x->in[0], EXPR_HAS_TIME, e);
        if (!s->where[i])
            return ERR_INPUT;
    }
    return 0;
}
static void split_close(void *self) {
    arena_free(&((struct split_self *)self)->arena);
}

/* A filter for each port. With `first`, a condition is evaluated only for the rows that are left,
 * so that what becomes null in it counts for those alone. */
static void split_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct split_self *s = self;
    const struct batch *left = b;
    uint64_t *gone = batch_nulls(x->arena, b->rows), went = 0;
    uint32_t taken = 0;
    for (int i = 0; i < s->n && left->n; i++) {
        uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, left->n);
        uint32_t n = expr_select(s->where[i], x->arena, left, sel, &x->count->nulled);
        for (uint32_t k = 0; k < n; k++) {
            taken += !bit_get(gone, sel[k]);
            bit_set(gone, sel[k]);
        }
        went += n;
        if (!n)
            continue;
        named_ports_emit(&s->ports, x, i, n == b->n ? b : batch_select(x->arena, b, sel, n));
        if (s->to == TO_FIRST)
            left = rows_without(x->arena, b, gone);
    }
    if (s->rest && taken < b->n) {
        named_ports_emit(&s->ports, x, s->n, rows_without(x->arena, b, gone));
        went += b->n - taken;
        taken = b->n;
    }
    /* A row passes once; its copies are counted as made. */
    x->count->passed += taken;
    x->count->made += went - taken;
    x->count->filtered += b->n - taken;
}

const struct op_desc op_split = {
    .name = "split",
    .doc =
        "Sends rows to out-ports by conditions: each row to the port of the first condition that "
        "is true for it, or to those of all. A row for which none is true (null counts as false) "
        "goes to the `default` port, or is dropped when there is none. What is sent to a port "
        "that nobody reads is gone.",
    .example = "{\"ports\": {\"hot\": \"temperature > 30\", \"cold\": \"temperature < 0\"}, "
               "\"default\": \"mild\"}",
    .semantics = 1,
    .params = split_params,
    .config_size = sizeof(struct split_config),
    .flags = OP_DETERMINISTIC | OP_ANY_PORTS | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = split_plan,
    .self_size = sizeof(struct split_self),
    .open = split_open,
    .process = split_process,
    .close = split_close,
};
