/* union: rows of several streams as one, in order of position, whose fields need not be the same.
 * (Streams of equal fields may be fed into any task as they are.) Columns are shared with the
 * inputs; a field that an input lacks is one column of nulls. */
#include "engine/op.h"
#include <stdlib.h>

enum { FIELDS_SAME, FIELDS_COMMON, FIELDS_ALL };
struct union_config {
    int fields;
    const char *port_field;
};
static const char *const fields_words[] = { "same", "common", "all", NULL };
static const struct param union_params[] = {
    { .name = "fields",
      .type = PT_ENUM,
      .offset = offsetof(struct union_config, fields),
      .def = "\"same\"",
      .words = fields_words,
      .doc =
          "The fields of the output: those of the inputs, which must be the `same` in any order; "
          "those that are `common` to all of them; or `all`, null where an input has none." },
    { .name = "port_field",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct union_config, port_field),
      .doc = "An added string field: the name of the in-port by which a row came." },
    { .name = NULL },
};

/* Whether in-port k has the field of in-port `from`; reports one of another type, once a pair. */
static bool has(struct op_plan *p, int k, int from, const struct field *f) {
    int i = schema_find(p->in[k], f->name);
    if (i < 0)
        return false;
    const struct field *g = &p->in[k]->f[i];
    if (from < k && (g->type != f->type || g->dim != f->dim))
        plan_error(p, "fields", NULL, "field '%s' is %s in in-port '%s' and %s in in-port '%s'",
                   f->name, type_names[f->type], p->in_name[from], type_names[g->type],
                   p->in_name[k]);
    return true;
}

static void add(struct schema *s, struct field *f, struct field add) {
    f[s->n++] = add;
}

static void union_plan(struct op_plan *p) {
    const struct union_config *c = p->config;
    int most = 1;
    for (int k = 0; k < p->nin; k++)
        most += p->in[k]->n;
    struct field *f;
    struct schema *out = schema_new(p->arena, most, &f);
    out->n = 0;
    for (int k = 0; k < p->nin; k++)
        for (int i = 0; i < p->in[k]->n; i++) {
            const struct field *field = &p->in[k]->f[i];
            int others = 0;
            bool before = false;
            for (int j = 0; j < p->nin; j++) {
                bool there = j != k && has(p, j, k, field);
                others += there;
                before |= there && j < k;
            }
            if (before)
                continue;
            if (c->fields == FIELDS_ALL || others == p->nin - 1)
                add(out, f, *field);
            else if (c->fields == FIELDS_SAME)
                plan_error(p, "fields", NULL,
                           "in-port '%s' has a field '%s' that others lack; \"common\" leaves it "
                           "out, \"all\" fills it with nulls",
                           p->in_name[k], field->name);
        }
    if (!out->n && !p->errors)
        plan_error(p, "fields", NULL, "the inputs have no field in common");
    if (c->port_field && schema_find(out, c->port_field) >= 0)
        plan_error(p, "port_field", NULL, "the output has a field '%s' already", c->port_field);
    else if (c->port_field)
        add(out, f, (struct field){ .name = c->port_field, .type = TYPE_STR });
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "fields", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    for (int k = 0; k < p->nout; k++) {
        p->out[k] = out;
        if (strcmp(p->out_name[k], "out") != 0)
            plan_error(p, NULL, NULL, "there is one out-port, 'out', not '%s'", p->out_name[k]);
    }
}

/* What a process call fills in for in-port k, by output field. */
enum { FROM_NOTHING = -1, FROM_PORT = -2 };
struct union_self {
    const struct schema *schema;
    int nin, **from;
};

/* The out-port may be there only later, when somebody reads it. */
static void union_links(struct union_self *s, struct op_ctx *x) {
    const struct union_config *c = x->config;
    s->schema = x->out[0];
    s->nin = x->nin;
    s->from = calloc((size_t)x->nin + 1, sizeof *s->from);
    if (!s->from)
        abort();
    for (int k = 0; k < x->nin; k++) {
        s->from[k] = calloc((size_t)s->schema->n + 1, sizeof **s->from);
        if (!s->from[k])
            abort();
        for (int i = 0; i < s->schema->n; i++) {
            const char *name = s->schema->f[i].name;
            bool mine = c->port_field && strcmp(name, c->port_field) == 0;
            s->from[k][i] = mine ? FROM_PORT : schema_find(x->in[k], name);
        }
    }
}
static void union_close(void *self) {
    struct union_self *s = self;
    for (int k = 0; s->from && k < s->nin; k++)
        free(s->from[k]);
    free(s->from);
}

static struct column port_column(struct op_ctx *x, const struct batch *b, int port) {
    struct span *v = ARENA_ARRAY(x->arena, struct span, b->rows);
    struct span name = { .p = x->in_name[port], .len = (uint32_t)strlen(x->in_name[port]) };
    for (uint32_t r = 0; r < b->rows; r++)
        v[r] = name;
    return (struct column){ .str = v };
}

static struct column null_column(struct op_ctx *x, const struct batch *b, const struct field *f) {
    uint64_t *nulls = batch_nulls(x->arena, b->rows);
    memset(nulls, 0xff, bits_words(b->rows) * sizeof *nulls);
    size_t size = f->type == TYPE_VEC ? f->dim * sizeof(float) : sizeof(struct span);
    return (struct column){ .p = arena_zalloc(x->arena, size * b->rows), .nulls = nulls };
}

/* ~0.1 us a batch and field. */
static void union_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    struct union_self *s = self;
    x->count->passed += b->n;
    if (!s->schema && x->nout)
        union_links(s, x);
    if (!s->schema) { /* gone by a port that nobody reads: counts do not depend on readers */
        x->count->out += b->n;
        return;
    }
    struct column *cols = ARENA_ARRAY(x->arena, struct column, s->schema->n);
    for (int i = 0; i < s->schema->n; i++) {
        int from = s->from[port][i];
        cols[i] = from == FROM_PORT      ? port_column(x, b, port)
                  : from == FROM_NOTHING ? null_column(x, b, &s->schema->f[i])
                                         : b->cols[from];
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = s->schema;
    out->cols = cols;
    op_emit(x, 0, out);
}

const struct op_desc op_union = {
    .name = "union",
    .doc = "Puts several streams together: their rows in order of position, of several sources in "
           "order of time. Streams of different fields come in by different in-ports, of any names "
           "(`{\"from\": \"a\", \"to\": \"left\"}`); the output's fields are in the order of the "
           "in-ports by name.",
    .example = "{\"fields\": \"all\", \"port_field\": \"came_by\"}",
    .semantics = 1,
    .params = union_params,
    .config_size = sizeof(struct union_config),
    .flags = OP_DETERMINISTIC | OP_ANY_PORTS | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = union_plan,
    .self_size = sizeof(struct union_self),
    .process = union_process,
    .close = union_close,
};
