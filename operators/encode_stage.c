/* The stages encode_json, encode_csv, encode_senml, encode_raw, and the task csv_to_senml, which is
 * encode_senml by another name. RIoTBench task C2S. */
#include "operators/encode_stage.h"
#include <stdlib.h>

struct encode_self {
    struct encoder *encoder;
    struct arena arena; /* of what the encoder borrows */
    bool task;          /* csv_to_senml: the payload is sealed below, if at all */
};

static const struct param plain_params[] = {
    RECORD_PARAMS(struct encode_config, record),
    { .name = NULL },
};
static const struct param senml_params[] = {
    RECORD_PARAMS(struct encode_config, record),
    { .name = "schema",
      .type = PT_FILE,
      .offset = offsetof(struct encode_config, schema),
      .doc = "File in RIoTBench's three-line form: names, units, and `v` or `sv`." },
    { .name = NULL },
};
static const struct param task_params[] = {
    { .name = "schema",
      .type = PT_FILE,
      .offset = offsetof(struct encode_config, schema),
      .doc = "File in RIoTBench's three-line form: names, units, and `v` (numbers) or `sv` "
             "(strings). It decides which fields are written, and in which order; `timestamp` "
             "becomes `bt`." },
    { .name = NULL },
};

static const struct field value_bytes = { .name = "value", .type = TYPE_BYTES };
static const struct schema bytes_schema = { .n = 1, .f = &value_bytes };
static const struct field value_text = { .name = "value", .type = TYPE_STR };
static const struct schema text_schema = { .n = 1, .f = &value_text };

static bool is_task(const struct op_desc *d) {
    return !(d->flags & OP_INNER);
}
static enum encode_format format_of(const struct op_desc *d) {
    return strcmp(d->name, "encode_json") == 0  ? ENCODE_JSON
           : strcmp(d->name, "encode_csv") == 0 ? ENCODE_CSV
           : strcmp(d->name, "encode_raw") == 0 ? ENCODE_RAW
                                                : ENCODE_SENML;
}
enum {
    SCALARS = TYPES_NUM | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES) | TYPE_BIT(TYPE_BOOL),
};
static bool is_written(const struct encode_record *r, const char *name) {
    for (int i = 0; i < r->without.n; i++)
        if (strcmp(r->without.v[i], name) == 0)
            return false;
    return true;
}
static void record_plan(struct op_plan *p) {
    const struct encode_record *r = &((const struct encode_config *)p->config)->record;
    p->out[0] = &bytes_schema;
    if (r->key)
        plan_field(p, 0, "key", NULL, r->key, SCALARS);
    if (r->time.field)
        plan_field(p, 0, "time", "field", r->time.field,
                   r->time.unit == TIME_RFC3339 ? TYPE_BIT(TYPE_STR) : TYPES_NUM);
    for (int i = 0; i < r->headers.n; i++)
        plan_field(p, 0, "headers", r->headers.v[i].name, r->headers.v[i].text, SCALARS);
    if (r->tombstone)
        plan_field(p, 0, "tombstone", NULL, r->tombstone, TYPE_BIT(TYPE_BOOL));
    if (r->tombstone && !r->key)
        plan_error(p, "tombstone", NULL, "a tombstone deletes a key: give 'key', too");
    for (int i = 0; i < r->without.n; i++)
        plan_field(p, 0, "without", r->without.v[i], r->without.v[i], 0);
}
static void no_vectors(struct op_plan *p, const char *format) {
    const struct encode_record *r = &((const struct encode_config *)p->config)->record;
    for (int i = 0; i < p->in[0]->n; i++)
        if (p->in[0]->f[i].type == TYPE_VEC && is_written(r, p->in[0]->f[i].name))
            plan_error(p, "format", NULL, "field '%s' is a vector, which %s cannot hold",
                       p->in[0]->f[i].name, format);
}
static void csv_plan(struct op_plan *p) {
    record_plan(p);
    no_vectors(p, "CSV");
}
static void raw_plan(struct op_plan *p) {
    const struct encode_config *c = p->config;
    record_plan(p);
    if (encode_raw_field(p->in[0], &c->record.without) < 0)
        plan_error(p, "format", NULL,
                   "format raw writes the field 'value' or the only string or bytes field; the "
                   "input is %s",
                   schema_text(p->arena, p->in[0]));
}
static void senml_plan(struct op_plan *p) {
    const struct encode_config *c = p->config;
    struct encode_senml *col;
    struct err e = ERR_INIT;
    int n = 0;
    record_plan(p);
    no_vectors(p, "SenML");
    if (!c->schema || !c->schema->data) /* planning without the file at hand */
        return;
    if (encode_senml_columns(c->schema, p->arena, &col, &n, &e) != 0) {
        plan_error(p, "schema", NULL, "%s", e.text);
        return;
    }
    for (int i = 0; i < n; i++)
        plan_field(p, 0, "schema", col[i].name, col[i].name, 0);
}
static void task_plan(struct op_plan *p) {
    senml_plan(p);
    p->out[0] = &text_schema;
}

static int field_of(const struct op_ctx *c, const char *name) {
    return name ? schema_find(c->in[0], name) : -1;
}
static struct encode_meta meta_of(struct encode_self *s, const struct op_ctx *c) {
    const struct encode_record *r = &((const struct encode_config *)c->config)->record;
    struct encode_header *h = ARENA_ARRAY(&s->arena, struct encode_header, r->headers.n + 1);
    for (int i = 0; i < r->headers.n; i++)
        h[i] = (struct encode_header){ r->headers.v[i].name, field_of(c, r->headers.v[i].text) };
    return (struct encode_meta){ .key = field_of(c, r->key),
                                 .time = field_of(c, r->time.field),
                                 .time_unit = r->time.unit,
                                 .tombstone = field_of(c, r->tombstone),
                                 .nheaders = r->headers.n,
                                 .header = h,
                                 .without = &r->without };
}

static int encode_open(void *self, struct op_ctx *c, struct err *e) {
    struct encode_self *s = self;
    const struct encode_config *conf = c->config;
    enum encode_format f = format_of(c->desc);
    struct encode_senml *col = NULL;
    int n = 0;
    if (f == ENCODE_SENML && encode_senml_columns(conf->schema, &s->arena, &col, &n, e) != 0)
        return ERR_INPUT;
    s->task = is_task(c->desc);
    struct encode_meta meta = meta_of(s, c);
    s->encoder = encoder_new_meta(f, c->in[0], &meta, col, n);
    return 0;
}
static void encode_close(void *self) {
    struct encode_self *s = self;
    encoder_free(s->encoder);
    arena_free(&s->arena);
}
static void encode_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct encode_self *s = self;
    const struct schema *out = s->task ? &text_schema : &bytes_schema;
    (void)port;
    for (uint32_t i = 0; i < b->n;) {
        const char *code;
        struct batch *r = encode_next(s->encoder, c->arena, b, &i, out, !s->task, &code);
        if (r) {
            c->count->passed += r->n;
            op_emit(c, 0, r);
        }
        if (code)
            op_reject(c, b, batch_row(b, i++), code, "%s", encode_reason(code));
    }
}
static void encode_end(void *self, struct op_ctx *c) {
    (void)c;
    encoder_tick(((struct encode_self *)self)->encoder);
}

#define ENCODE(id, text, version, how, table)                                                      \
    const struct op_desc op_##id = {                                                               \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .semantics = version,                                                                      \
        .params = table,                                                                           \
        .config_size = sizeof(struct encode_config),                                               \
        .flags = OP_DETERMINISTIC | OP_INNER,                                                      \
        .memory = MEMORY_NONE,                                                                     \
        .plan = how,                                                                               \
        .self_size = sizeof(struct encode_self),                                                   \
        .open = encode_open,                                                                       \
        .process = encode_process,                                                                 \
        .end = encode_end,                                                                         \
        .close = encode_close,                                                                     \
    }
ENCODE(encode_json, "Stage of `sink`: rows to JSON objects.", 1, record_plan, plain_params);
ENCODE(encode_csv, "Stage of `sink`: rows to CSV records.", 2, csv_plan, plain_params);
ENCODE(encode_raw, "Stage of `sink`: a field's bytes as they are.", 1, raw_plan, plain_params);
ENCODE(encode_senml, "Stage of `sink`: rows to SenML records.", 1, senml_plan, senml_params);

const struct op_desc op_csv_to_senml = {
    .name = "csv_to_senml",
    .doc = "Turns rows into SenML records in a field `value`, for a sink with format raw. Names, "
           "units and order come from a schema file; nulls are left out.",
    .example = "{\"schema\": \"sys-schema.txt\"}",
    .semantics = 1,
    .params = task_params,
    .config_size = sizeof(struct encode_config),
    .flags = OP_DETERMINISTIC,
    .memory = MEMORY_NONE,
    .plan = task_plan,
    .self_size = sizeof(struct encode_self),
    .open = encode_open,
    .process = encode_process,
    .end = encode_end,
    .close = encode_close,
};
