/* senml_parse: SenML records to rows, one a record or one an observation. RIoTBench task SML. Its
 * stages: senml_decode -> time [-> explode]. And the stage `explode`. */
#include "engine/decode.h"
#include "engine/num.h"
#include "operators/decode_stage.h"
#include "operators/source.h"
#include <stdlib.h>

struct senml_config {
    struct decode_config decode;
    struct time_params time;
    struct emit_params emit;
};
struct explode_config {
    struct strs meta;
};

static const struct param senml_params[] = {
    DECODE_PARAMS(offsetof(struct senml_config, decode)),
    TIME_PARAMS(struct senml_config, time),
    EMIT_PARAMS(struct senml_config, emit),
    { .name = NULL },
};
static const struct param decode_params[] = {
    DECODE_PARAMS(0),
    { .name = NULL },
};
static const struct param explode_params[] = {
    { .name = "meta",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct explode_config, meta),
      .doc = META_DOC },
    { .name = NULL },
};

static void senml_lower(struct op_lower *l) {
    const struct senml_config *c = l->config;
    if (!decode_lower_check(l, c->decode.schema, "senml") || !emit_lower_check(l, &c->emit))
        return;
    struct decode_config *d = l->stage(l, "senml_decode");
    *d = c->decode;
    time_lower(l, &c->time, TIME_RECORD);
    emit_lower(l, &c->emit);
}
const struct op_desc op_senml_parse = {
    .name = "senml_parse",
    .doc =
        "Reads SenML records into typed rows. Names, units and values may come in any order; "
        "values may be numbers or strings. A record that is malformed or has a value that does "
        "not fit its field's type becomes a dead letter, and so does one with a time `t` or base "
        "values (RFC 8428), which one row cannot hold; fields that the schema does not name are "
        "ignored, missing ones are null. `bt` (ms) is the event time, and the value of the field "
        "`timestamp` when the schema has one.",
    .example = "{\"schema\": {\"timestamp\": \"i64\", \"source\": \"string\", \"temperature\": "
               "\"f64\"}, \"lateness\": \"10s\"}",
    .semantics = 2,
    .params = senml_params,
    .config_size = sizeof(struct senml_config),
    .flags = OP_DETERMINISTIC | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .lower = senml_lower,
};

static int senml_open(void *self, struct op_ctx *c, struct err *e) {
    const struct decode_config *conf = c->config;
    (void)e;
    return decode_open(self, c, decoder_new(DECODE_SENML, conf->schema, NULL));
}
const struct op_desc op_senml_decode = {
    .name = "senml_decode",
    .doc = "Stage of `senml_parse` and of sources with format senml: records to typed columns.",
    .semantics = 2,
    .params = decode_params,
    .config_size = sizeof(struct decode_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .plan = decode_plan,
    .self_size = sizeof(struct decode_self),
    .open = senml_open,
    .process = decode_process,
    .close = decode_close,
};

/* ---- explode ---- */

struct explode_self {
    int nmeta, nobs;
    int *meta, *obs;    /* field indexes */
    struct span *names; /* of the observed fields: one address each, compared by pointer below */
    bool text;          /* `value` is a string: some observed field is one */
};

bool emit_lower_check(struct op_lower *l, const struct emit_params *p) {
    if (p->emit == EMIT_ROW && p->meta.n)
        l->report(l, "meta", NULL, "meta belongs to \"emit\": \"explode\"");
    return p->emit == EMIT_EXPLODE || !p->meta.n;
}
void emit_lower(struct op_lower *l, const struct emit_params *p) {
    if (p->emit == EMIT_EXPLODE)
        ((struct explode_config *)l->stage(l, "explode"))->meta = p->meta;
}

static bool is_meta(const struct explode_config *c, const char *name) {
    for (int i = 0; i < c->meta.n; i++)
        if (strcmp(c->meta.v[i], name) == 0)
            return true;
    return false;
}
static void explode_plan(struct op_plan *p) {
    const struct explode_config *c = p->config;
    const struct schema *in = p->in[0];
    struct field *f;
    static const char *const made[] = { "msgid", "obs", "value" };
    bool text = false;
    int nobs = 0;
    for (int i = 0; i < c->meta.n; i++) {
        plan_field(p, 0, "meta", c->meta.v[i], c->meta.v[i], 0);
        for (int k = 0; k < i; k++)
            if (strcmp(c->meta.v[k], c->meta.v[i]) == 0)
                plan_error(p, "meta", c->meta.v[i], "'%s' is given twice", c->meta.v[i]);
        for (int k = 0; k < 3; k++)
            if (strcmp(c->meta.v[i], made[k]) == 0)
                plan_error(p, "meta", c->meta.v[i],
                           "'%s' is the name of a field that explode makes", made[k]);
    }
    for (int i = 0; i < in->n; i++)
        if (!is_meta(c, in->f[i].name)) {
            nobs++;
            text |= in->f[i].type != TYPE_F64 && in->f[i].type != TYPE_I64;
        }
    if (nobs == 0)
        plan_error(p, "meta", NULL, "every field is a meta field: nothing is observed");
    if (nobs > BATCH_ROWS)
        plan_error(p, "meta", NULL, "more than %d observed fields", BATCH_ROWS);
    if (c->meta.n + 3 > SCHEMA_FIELDS_MAX)
        plan_error(p, "meta", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    if (p->errors)
        return;
    struct schema *out = schema_new(p->arena, c->meta.n + 3, &f);
    for (int i = 0; i < c->meta.n; i++)
        *f++ = in->f[schema_find(in, c->meta.v[i])];
    *f++ = (struct field){ .name = made[0], .type = TYPE_I64 };
    *f++ = (struct field){ .name = made[1], .type = TYPE_STR };
    *f++ = (struct field){ .name = made[2], .type = text ? TYPE_STR : TYPE_F64 };
    p->out[0] = out;
}
static int explode_open(void *self, struct op_ctx *c, struct err *e) {
    struct explode_self *s = self;
    const struct explode_config *conf = c->config;
    const struct schema *in = c->in[0];
    (void)e;
    s->meta = calloc((size_t)in->n + 1, sizeof *s->meta);
    s->obs = calloc((size_t)in->n + 1, sizeof *s->obs);
    s->names = calloc((size_t)in->n + 1, sizeof *s->names);
    if (!s->meta || !s->obs || !s->names)
        abort();
    for (int i = 0; i < conf->meta.n; i++)
        s->meta[s->nmeta++] = schema_find(in, conf->meta.v[i]);
    for (int i = 0; i < in->n; i++) {
        const char *name = in->f[i].name;
        if (is_meta(conf, name))
            continue;
        s->names[s->nobs] = (struct span){ .p = name, .len = (uint32_t)strlen(name) };
        s->obs[s->nobs++] = i;
    }
    s->text = c->out[0]->f[s->nmeta + 2].type == TYPE_STR;
    return 0;
}
static void explode_close(void *self) {
    struct explode_self *s = self;
    free(s->meta);
    free(s->obs);
    free(s->names);
}
/* A value of any type as text. */
static struct span value_text(struct arena *a, const struct column *c, enum type t, uint32_t row) {
    if (t == TYPE_STR || t == TYPE_BYTES)
        return c->str[row];
    if (t == TYPE_BOOL)
        return c->b[row] ? (struct span){ .p = "true", .len = 4 }
                         : (struct span){ .p = "false", .len = 5 };
    char *p = arena_alloc(a, NUM_F64_MAX_LEN);
    int n = t == TYPE_F64 ? num_write_f64(p, c->f64[row]) : num_write_i64(p, c->i64[row]);
    return (struct span){ .p = p, .len = (uint32_t)n };
}
/* Column `value`: field obs[k] of row src[i * nobs + k], for all i and k. */
static struct column explode_values(const struct explode_self *s, struct op_ctx *c,
                                    const struct batch *b, const uint16_t *src, uint32_t n) {
    struct column out = { .p = NULL };
    double *num = s->text ? NULL : ARENA_ARRAY(c->arena, double, n);
    struct span *text = s->text ? ARENA_ARRAY(c->arena, struct span, n) : NULL;
    uint64_t *nulls = NULL;
    for (int k = 0; k < s->nobs; k++) {
        const struct column *in = &b->cols[s->obs[k]];
        enum type t = b->schema->f[s->obs[k]].type;
        for (uint32_t i = (uint32_t)k; i < n; i += (uint32_t)s->nobs) {
            if (column_null(in, src[i])) {
                if (!nulls)
                    nulls = batch_nulls(c->arena, n);
                bit_set(nulls, i);
            } else if (text) {
                text[i] = value_text(c->arena, in, t, src[i]);
            } else {
                num[i] = t == TYPE_F64 ? in->f64[src[i]] : (double)in->i64[src[i]];
            }
        }
    }
    out.p = s->text ? (const void *)text : (const void *)num;
    out.nulls = nulls;
    return out;
}
/* ~3 ns a made row and column. */
static void explode_rows(const struct explode_self *s, struct op_ctx *c, const struct batch *b,
                         uint32_t from, uint32_t to) {
    uint32_t k = (uint32_t)s->nobs, n = (to - from) * k;
    uint16_t *src = ARENA_ARRAY(c->arena, uint16_t, n);
    struct column *cols;
    for (uint32_t i = from, o = 0; i < to; i++)
        for (uint32_t j = 0; j < k; j++)
            src[o++] = (uint16_t)batch_row(b, i);
    struct batch *out = batch_make(c->arena, b, c->out[0], src, n, true, &cols);
    for (int i = 0; i < s->nmeta; i++)
        cols[i] = column_gather(c->arena, &b->cols[s->meta[i]], &b->schema->f[s->meta[i]], src, n);
    struct span *obs = ARENA_ARRAY(c->arena, struct span, n);
    for (uint32_t i = 0; i < n; i += k)
        memcpy(obs + i, s->names, k * sizeof *obs);
    cols[s->nmeta].i64 = out->off;
    cols[s->nmeta + 1].str = obs;
    cols[s->nmeta + 2] = explode_values(s, c, b, src, n);
    c->count->made += n;
    op_emit(c, 0, out);
}
static void explode_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    const struct explode_self *s = self;
    uint32_t step = BATCH_ROWS / (uint32_t)s->nobs;
    (void)port;
    for (uint32_t i = 0; i < b->n; i += step)
        explode_rows(s, c, b, i, i + step < b->n ? i + step : b->n);
    c->count->absorbed += b->n;
}
const struct op_desc op_explode = {
    .name = "explode",
    .doc = "Stage of `senml_parse` and `csv_parse`: one row an observed field.",
    .semantics = 1,
    .params = explode_params,
    .config_size = sizeof(struct explode_config),
    .flags = OP_DETERMINISTIC | OP_INNER,
    .memory = MEMORY_NONE,
    .plan = explode_plan,
    .self_size = sizeof(struct explode_self),
    .open = explode_open,
    .process = explode_process,
    .close = explode_close,
};
