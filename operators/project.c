/* project: computed fields. Columns that pass unchanged are shared with the input. */
#include "engine/expr.h"
#include "engine/op.h"

enum { KEEP_NONE, KEEP_ALL };
struct project_config {
    struct strmap fields;
    int keep;
    struct strs drop;
};
static const char *const keep_words[] = { "none", "all", NULL };
static const struct param project_params[] = {
    { .name = "fields",
      .type = PT_EXPRMAP,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct project_config, fields),
      .doc = "Output fields and their expressions (see expressions.md), in the order of the "
             "output: `{\"fahrenheit\": \"temperature * 1.8 + 32\"}`." },
    { .name = "keep",
      .type = PT_ENUM,
      .offset = offsetof(struct project_config, keep),
      .def = "\"none\"",
      .words = keep_words,
      .doc = "Which input fields stay as well: `none`, or `all`, in front of the others; a field "
             "named as one of `fields` is replaced in its place." },
    { .name = "drop",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct project_config, drop),
      .doc = "With `keep` `all`: input fields that do not stay." },
    { .name = NULL },
};

/* One output column: an expression, or an input field where it is NULL. */
struct output {
    const struct expr *x;
    int field;
};
struct project_self {
    struct output *out;
    int n;
    struct arena arena;
};

static bool listed(const struct strs *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->v[i], name))
            return true;
    return false;
}
static int entry(const struct strmap *m, const char *name) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->v[i].name, name))
            return i;
    return -1;
}

/* Where each output field comes from, in order: index of an input field, or of an entry of `fields`
 * as -1 - index. `from` has room for all of both. */
static int arrange(const struct project_config *c, const struct schema *in, int *from) {
    int n = 0;
    for (int i = 0; c->keep == KEEP_ALL && i < in->n; i++) {
        int e = entry(&c->fields, in->f[i].name);
        if (e >= 0)
            from[n++] = -1 - e;
        else if (!listed(&c->drop, in->f[i].name))
            from[n++] = i;
    }
    for (int i = 0; i < c->fields.n; i++)
        if (c->keep == KEEP_NONE || schema_find(in, c->fields.v[i].name) < 0)
            from[n++] = -1 - i;
    return n;
}

/* Vectors have no expressions, but a field's plain name passes one on: its index, else -1. */
static int vector_field(const struct schema *in, const char *text) {
    int i = schema_find(in, text);
    return i >= 0 && in->f[i].type == TYPE_VEC ? i : -1;
}

/* The type of a field; false after an error. */
static bool plan_expr(struct op_plan *p, const struct strpair *v, struct field *f) {
    struct err e = ERR_INIT;
    int same = vector_field(p->in[0], v->text);
    if (same >= 0) {
        *f = p->in[0]->f[same];
        f->name = v->name;
        return true;
    }
    const struct expr *x = expr_compile(p->arena, v->text, strlen(v->text), p->in[0],
                                        p->in_time ? EXPR_HAS_TIME : 0, &e);
    if (!x)
        plan_error(p, "fields", v->name, "%s", e.text);
    else if (expr_type(x) == TYPE_COUNT)
        plan_error(p, "fields", v->name, "null alone has no type; write cast(null as f64)");
    else
        *f = (struct field){ v->name, expr_type(x), 0 };
    return x && expr_type(x) != TYPE_COUNT;
}

static void project_plan(struct op_plan *p) {
    const struct project_config *c = p->config;
    const struct schema *in = p->in[0];
    int *from = ARENA_ARRAY(p->arena, int, in->n + c->fields.n + 1);
    int n = arrange(c, in, from);
    struct field *f;
    for (int i = 0; i < c->drop.n; i++)
        plan_field(p, 0, "drop", c->drop.v[i], c->drop.v[i], 0);
    if (c->drop.n && c->keep == KEEP_NONE)
        plan_error(p, "drop", NULL, "'drop' needs \"keep\": \"all\"");
    if (!n || n > SCHEMA_FIELDS_MAX) {
        plan_error(p, "fields", NULL, n ? "more than %d output fields" : "no output fields",
                   SCHEMA_FIELDS_MAX);
        p->out[0] = in;
        return;
    }
    struct schema *out = schema_new(p->arena, n, &f);
    for (int i = 0; i < n; i++) {
        if (from[i] >= 0)
            f[i] = in->f[from[i]];
        else if (!plan_expr(p, &c->fields.v[-1 - from[i]], &f[i]))
            f[i] = (struct field){ c->fields.v[-1 - from[i]].name, TYPE_F64, 0 };
    }
    p->out[0] = out;
}

static int project_open(void *self, struct op_ctx *x, struct err *e) {
    struct project_self *s = self;
    const struct project_config *c = x->config;
    const struct schema *in = x->in[0];
    int *from = ARENA_ARRAY(&s->arena, int, in->n + c->fields.n + 1);
    s->n = arrange(c, in, from);
    s->out = ARENA_ARRAY(&s->arena, struct output, s->n);
    for (int i = 0; i < s->n; i++) {
        s->out[i] = (struct output){ NULL, from[i] };
        if (from[i] >= 0)
            continue;
        const char *text = c->fields.v[-1 - from[i]].text;
        s->out[i].field = vector_field(in, text);
        if (s->out[i].field >= 0)
            continue;
        s->out[i].x = expr_compile(&s->arena, text, strlen(text), in, EXPR_HAS_TIME, e);
        if (!s->out[i].x)
            return ERR_INPUT;
    }
    return 0;
}
static void project_close(void *self) {
    arena_free(&((struct project_self *)self)->arena);
}

static void project_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct project_self *s = self;
    struct column *cols = ARENA_ARRAY(x->arena, struct column, s->n);
    for (int i = 0; i < s->n; i++)
        cols[i] = s->out[i].x ? expr_eval(s->out[i].x, x->arena, b, &x->count->nulled)
                              : b->cols[s->out[i].field];
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

const struct op_desc op_project = {
    .name = "project",
    .doc = "Computes fields from expressions, and chooses, renames and orders fields. Fields that "
           "pass unchanged cost nothing.",
    .example = "{\"fields\": {\"fahrenheit\": \"temperature * 1.8 + 32\"}, \"keep\": \"all\"}",
    .semantics = 1,
    .params = project_params,
    .config_size = sizeof(struct project_config),
    .flags = OP_DETERMINISTIC,
    .memory = MEMORY_NONE,
    .plan = project_plan,
    .self_size = sizeof(struct project_self),
    .open = project_open,
    .process = project_process,
    .close = project_close,
};
