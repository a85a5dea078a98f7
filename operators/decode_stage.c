#include "operators/decode_stage.h"
#include "operators/rows.h"
#include <stdio.h>

const char *const emit_words[] = { "row", "explode", NULL };

void decode_plan(struct op_plan *p) {
    const struct decode_config *c = p->config;
    struct field *out;
    plan_field(p, 0, "field", NULL, c->field, TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES));
    p->out[0] = c->schema;
    if (c->keep.n == 0)
        return;
    if (c->schema->n + c->keep.n > SCHEMA_FIELDS_MAX)
        plan_error(p, "keep", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    struct schema *s = schema_new(p->arena, c->schema->n + c->keep.n, &out);
    memcpy(out, c->schema->f, (size_t)c->schema->n * sizeof *out);
    for (int i = 0; i < c->keep.n; i++) {
        const char *name = c->keep.v[i];
        int f = plan_field(p, 0, "keep", name, name, 0);
        if (schema_find(c->schema, name) >= 0)
            plan_error(p, "keep", name, "the schema has a field '%.60s', too", name);
        for (int k = 0; k < i; k++)
            if (strcmp(c->keep.v[k], name) == 0)
                plan_error(p, "keep", name, "'%.60s' is given twice", name);
        if (f >= 0)
            out[c->schema->n + i] = p->in[0]->f[f];
    }
    if (!p->errors)
        p->out[0] = s;
}
bool decode_lower_check(struct op_lower *l, const struct schema *s, const char *format) {
    char text[200];
    if (!s) {
        snprintf(text, sizeof text, "format %s needs a schema", format);
        l->report(l, "schema", NULL, text);
        return false;
    }
    for (int i = 0; i < s->n; i++)
        if (s->f[i].type == TYPE_VEC) {
            snprintf(text, sizeof text, "format %s has no vectors", format);
            l->report(l, "schema", s->f[i].name, text);
            return false;
        }
    return true;
}

int decode_open(struct decode_self *s, struct op_ctx *c, struct decoder *d) {
    const struct decode_config *conf = c->config;
    s->field = schema_find(c->in[0], conf->field);
    s->decoder = d;
    return 0;
}
void decode_close(void *self) {
    decoder_free(((struct decode_self *)self)->decoder);
}

/* The decoded columns and, behind them, those that are kept. */
static const struct column *all_columns(const struct decode_config *conf, struct op_ctx *c,
                                        const struct batch *b, struct decode_rows *rows) {
    const struct column *decoded = decode_rows_end(rows);
    if (conf->keep.n == 0)
        return decoded;
    int n = conf->schema->n;
    struct column *all = ARENA_ARRAY(c->arena, struct column, n + conf->keep.n);
    memcpy(all, decoded, (size_t)n * sizeof *all);
    for (int i = 0; i < conf->keep.n; i++)
        all[n + i] = b->cols[schema_find(b->schema, conf->keep.v[i])];
    return all;
}

void decode_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct decode_self *s = self;
    const struct column *in = &b->cols[s->field];
    const struct decode_config *conf = c->config;
    bool timed = c->desc->flags & OP_SETS_TIME;
    uint64_t drop[BATCH_ROWS / 64];
    uint32_t dropped = 0;
    struct decode_rows rows;
    struct decode_error e;
    (void)port;
    memset(drop, 0, sizeof drop);
    decode_rows_begin(&rows, c->arena, conf->schema, b->rows, timed);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        struct span text = in->str[row];
        int rc = 0;
        if (column_null(in, row) && conf->keep.n) {
            decode_rows_null(&rows, row);
        } else if (column_null(in, row)) {
            op_reject(c, b, row, "null_record", "the record is null");
            rc = -1;
        } else {
            rc = decode_record(s->decoder, text.p, text.len, &rows, row, &e);
            if (rc < 0)
                op_reject(c, b, row, e.code, "%s", e.text);
            else if (rc == DECODE_SKIP)
                c->count->filtered++;
        }
        if (rc != 0) {
            bit_set(drop, row);
            dropped++;
        }
    }
    struct batch *out = batch_copy(c->arena, b);
    out->schema = c->out[0];
    out->cols = all_columns(conf, c, b, &rows);
    if (timed)
        out->time = rows.time;
    c->count->passed += b->n - dropped;
    op_emit(c, 0, dropped ? rows_without(c->arena, out, drop) : out);
}
