#include "operators/decode_stage.h"
#include "operators/rows.h"
#include <stdio.h>

const char *const emit_words[] = { "row", "explode", NULL };

void decode_plan(struct op_plan *p) {
    const struct decode_config *c = p->config;
    plan_field(p, 0, "field", NULL, c->field, TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES));
    p->out[0] = c->schema;
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

void decode_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct decode_self *s = self;
    const struct column *in = &b->cols[s->field];
    const struct schema *schema = ((const struct decode_config *)c->config)->schema;
    bool timed = c->desc->flags & OP_SETS_TIME;
    uint64_t drop[BATCH_ROWS / 64];
    uint32_t dropped = 0;
    struct decode_rows rows;
    struct decode_error e;
    (void)port;
    memset(drop, 0, sizeof drop);
    decode_rows_begin(&rows, c->arena, schema, b->rows, timed);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        struct span text = in->str[row];
        int rc;
        if (column_null(in, row)) {
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
    out->schema = schema;
    out->cols = decode_rows_end(&rows);
    if (timed)
        out->time = rows.time;
    c->count->passed += b->n - dropped;
    op_emit(c, 0, dropped ? rows_without(c->arena, out, drop) : out);
}
