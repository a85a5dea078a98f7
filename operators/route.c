/* route: each row to the out-port that a field of it names. Selection vectors; rows keep their
 * positions. */
#include "engine/num.h"
#include "operators/named_ports.h"
#include "operators/names.h"

enum { UNKNOWN_DEAD_LETTER, UNKNOWN_DROP };
struct route_config {
    const char *field;
    struct strs ports;
    const char *rest;
    int unknown;
};
static const char *const unknown_words[] = { "dead_letter", "drop", NULL };
static const struct param route_params[] = {
    { .name = "field",
      .type = PT_FIELD,
      .offset = offsetof(struct route_config, field),
      .doc = "The field that names the port: a string, or an i64 or bool by its text (`7`, "
             "`true`)." },
    { .name = "ports",
      .type = PT_STRS,
      .offset = offsetof(struct route_config, ports),
      .doc = "The out-ports. Readers name them as `TASK.PORT`." },
    { .name = "default",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct route_config, rest),
      .doc = "One more out-port, for rows whose field names none or is null. A row that names it "
             "goes there, too." },
    { .name = "unknown",
      .type = PT_ENUM,
      .offset = offsetof(struct route_config, unknown),
      .def = "\"dead_letter\"",
      .words = unknown_words,
      .doc = "Without `default`: what happens to rows whose field names no port or is null." },
    { .name = NULL },
};

struct route_self {
    int field, n;
    enum type type;
    bool rest;
    int unknown;
    struct named_ports ports;
    struct names names;
    uint32_t *count;
    struct arena arena;
};

static const char *const *port_names(const struct route_config *c, struct arena *a, int *n) {
    const char **name = ARENA_ARRAY(a, const char *, c->ports.n + 1);
    *n = c->ports.n;
    for (int i = 0; i < *n; i++)
        name[i] = c->ports.v[i];
    if (c->rest)
        name[(*n)++] = c->rest;
    return name;
}

static void route_plan(struct op_plan *p) {
    const struct route_config *c = p->config;
    int n;
    const char *const *name = port_names(c, p->arena, &n);
    plan_field(p, 0, "field", NULL, c->field,
               TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_I64) | TYPE_BIT(TYPE_BOOL));
    if (!c->ports.n)
        plan_error(p, "ports", NULL, "no ports given");
    if (c->rest && c->unknown != UNKNOWN_DEAD_LETTER)
        plan_error(p, "unknown", NULL,
                   "with a 'default' port no row is left over: 'unknown' does nothing");
    named_ports_plan(p, "ports", c->rest ? "default" : NULL, name, n);
}

static int route_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct route_self *s = self;
    const struct route_config *c = x->config;
    const char *const *name = port_names(c, &s->arena, &s->n);
    s->field = schema_find(x->in[0], c->field);
    s->type = x->in[0]->f[s->field].type;
    s->rest = c->rest;
    s->unknown = c->unknown;
    s->count = ARENA_ARRAY(&s->arena, uint32_t, s->n);
    named_ports_open(&s->ports, name, s->n);
    names_open(&s->names, s->n, name);
    return 0;
}
static void route_close(void *self) {
    struct route_self *s = self;
    names_close(&s->names);
    arena_free(&s->arena);
}

/* The name in a row. `buf` is not where another name of this batch was: names are told apart by
 * their places, too. */
static struct span name_of(const struct route_self *s, const struct column *c, uint32_t row,
                           char *buf) {
    if (s->type == TYPE_STR)
        return c->str[row];
    if (s->type == TYPE_BOOL)
        return c->b[row] ? (struct span){ .p = "true", .len = 4 }
                         : (struct span){ .p = "false", .len = 5 };
    return (struct span){ .p = buf, .len = (uint32_t)num_write_i64(buf, c->i64[row]) };
}

static void no_port(struct route_self *s, struct op_ctx *x, const struct batch *b, uint32_t row) {
    const struct column *c = &b->cols[s->field];
    char buf[NUM_I64_MAX_LEN];
    if (s->unknown == UNKNOWN_DROP) {
        x->count->filtered++;
        return;
    }
    if (column_null(c, row)) {
        op_reject(x, b, row, "unknown_port", "the field '%s' is null: it names no port",
                  b->schema->f[s->field].name);
        return;
    }
    struct span v = name_of(s, c, row, buf);
    op_reject(x, b, row, "unknown_port", "there is no port '%.*s'", v.len > 60 ? 60 : (int)v.len,
              v.p);
}

/* ~15 ns a row of four ports in no order. */
static void route_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct route_self *s = self;
    const struct column *c = &b->cols[s->field];
    char *buf = s->type == TYPE_I64 ? op_alloc(x, (size_t)b->n * NUM_I64_MAX_LEN) : NULL;
    uint16_t **sel = ARENA_ARRAY(x->arena, uint16_t *, s->n);
    memset(s->count, 0, sizeof *s->count * (size_t)s->n);
    memset(sel, 0, sizeof *sel * (size_t)s->n);
    names_begin(&s->names);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int k = -1;
        if (!column_null(c, r))
            k = names_find(&s->names,
                           name_of(s, c, r, buf ? buf + (size_t)i * NUM_I64_MAX_LEN : NULL));
        if (k < 0 && s->rest)
            k = s->n - 1;
        if (k < 0) {
            no_port(s, x, b, r);
            continue;
        }
        if (!sel[k])
            sel[k] = ARENA_ARRAY(x->arena, uint16_t, b->n);
        sel[k][s->count[k]++] = (uint16_t)r;
    }
    for (int k = 0; k < s->n; k++) {
        if (!s->count[k])
            continue;
        x->count->passed += s->count[k];
        named_ports_emit(&s->ports, x, k,
                         s->count[k] == b->n ? b : batch_select(x->arena, b, sel[k], s->count[k]));
    }
}

const struct op_desc op_route = {
    .name = "route",
    .doc = "Sends each row to the out-port that a field of it names. Rows that name no port go to "
           "the `default` port; when there is none, they become dead letters (`unknown_port`) or "
           "are dropped. What is sent to a port that nobody reads is gone.",
    .example = "{\"field\": \"region\", \"ports\": [\"north\", \"south\"], \"default\": \"other\"}",
    .semantics = 1,
    .params = route_params,
    .config_size = sizeof(struct route_config),
    .flags = OP_DETERMINISTIC | OP_ANY_PORTS | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = route_plan,
    .self_size = sizeof(struct route_self),
    .open = route_open,
    .process = route_process,
    .close = route_close,
};
