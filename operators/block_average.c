/* block_average: means over tumbling windows of N rows per key. RIoTBench task AVG
 * (micro-benchmark 8), in double precision and with exactly rounded means. */
#include "operators/keyed.h"
#include "operators/mean.h"
#include "operators/rows.h"
#include <stdlib.h>

enum { VALUE_MAX = 1 << 20 }; /* bytes of state a key */
struct block_config {
    struct strs fields, keep;
    int64_t window;
};

static const struct param block_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct block_config, fields),
      .doc = "The numeric fields to average; nulls are left out of their mean." },
    { .name = "window",
      .type = PT_I64,
      .offset = offsetof(struct block_config, window),
      .def = "10",
      .min = 1,
      .max = 100000,
      .doc = "Rows of one key in a window." },
    { .name = "keep",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct block_config, keep),
      .doc = "More fields for the output, taken from the row that completes the window." },
    { .name = NULL },
};

/* A key's value: fields lists of `window` doubles, fields list lengths, the rows so far. Only keys
 * with an open window are in the table. */
struct block_self {
    struct state *table;
    int nfields, nkeep; /* kept: the grouping keys, then `keep` */
    uint32_t window;
    int *fields, *keep;
};

static void add_field(struct op_plan *p, struct schema *s, struct field *f, const char *param,
                      struct field add) {
    s->n = s->n + 1;
    f[s->n - 1] = add;
    for (int i = 0; i + 1 < s->n; i++)
        if (strcmp(f[i].name, add.name) == 0)
            plan_error(p, param, param ? add.name : NULL, "the output would have two fields '%s'",
                       add.name);
}

static void block_plan(struct op_plan *p) {
    const struct block_config *c = p->config;
    const struct schema *in = p->in[0];
    struct field *f;
    struct schema *out = schema_new(p->arena, p->nby + c->keep.n + c->fields.n, &f);
    out->n = 0;
    for (int i = 0; i < p->nby; i++) {
        int k = schema_find(in, p->by[i]); /* the planner has resolved it */
        if (k >= 0)
            add_field(p, out, f, NULL, in->f[k]);
    }
    for (int i = 0; i < c->keep.n; i++) {
        int k = plan_field(p, 0, "keep", c->keep.v[i], c->keep.v[i], 0);
        if (k >= 0)
            add_field(p, out, f, "keep", in->f[k]);
    }
    if (!c->fields.n)
        plan_error(p, "fields", NULL, "no fields given");
    for (int i = 0; i < c->fields.n; i++)
        if (plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], TYPES_NUM) >= 0)
            add_field(p, out, f, "fields",
                      (struct field){ .name = c->fields.v[i], .type = TYPE_F64 });
    if (c->window * c->fields.n * (int64_t)sizeof(double) > VALUE_MAX)
        plan_error(p, "window", NULL,
                   "%d fields of %lld values are more than %d KiB of state for each key",
                   c->fields.n, (long long)c->window, VALUE_MAX >> 10);
    p->out[0] = out;
}

static int block_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct block_self *s = self;
    const struct block_config *c = x->config;
    *s = (struct block_self){ .nfields = c->fields.n,
                              .nkeep = x->nby + c->keep.n,
                              .window = (uint32_t)c->window };
    s->fields = calloc((size_t)s->nfields + 1, sizeof *s->fields);
    s->keep = calloc((size_t)s->nkeep + 1, sizeof *s->keep);
    if (!s->fields || !s->keep)
        abort();
    for (int i = 0; i < s->nfields; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    for (int i = 0; i < s->nkeep; i++)
        s->keep[i] = i < x->nby ? x->by[i] : schema_find(x->in[0], c->keep.v[i - x->nby]);
    size_t size = (size_t)s->nfields * (s->window * sizeof(double) + sizeof(uint32_t));
    s->table = op_state(x, 0, (uint32_t)(size + sizeof(uint32_t)));
    return 0;
}

static void block_close(void *self) {
    struct block_self *s = self;
    free(s->fields);
    free(s->keep);
}

/* Output under construction: the completing rows and the means. */
struct made {
    uint32_t n;
    uint16_t *src;
    double **mean;
    uint64_t **null;
};

static void window_close(const struct block_self *s, struct made *m, const double *list,
                         const uint32_t *len, uint32_t row) {
    for (int k = 0; k < s->nfields; k++) {
        if (len[k])
            m->mean[k][m->n] = mean_exact(list + (size_t)k * s->window, (int)len[k]);
        else
            bit_set(m->null[k], m->n);
    }
    m->src[m->n++] = (uint16_t)row;
}

static void emit_made(struct block_self *s, struct op_ctx *x, const struct batch *b,
                      const struct made *m) {
    if (m->n == 0)
        return;
    struct column *cols;
    struct batch *out = batch_make(x->arena, b, x->out[0], m->src, m->n, false, &cols);
    for (int i = 0; i < s->nkeep; i++)
        cols[i] = column_gather(x->arena, &b->cols[s->keep[i]], &x->out[0]->f[i], m->src, m->n);
    for (int k = 0; k < s->nfields; k++)
        cols[s->nkeep + k] = (struct column){ .f64 = m->mean[k], .nulls = m->null[k] };
    x->count->made += m->n;
    op_emit(x, 0, out);
}

/* ~25 ns a row for the key and ~1 ns a value; ~2 ns a value when a window closes. */
static void block_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct block_self *s = self;
    struct keyed keyed = keyed_batch(x, s->table, b);
    struct made m = { .src = ARENA_ARRAY(x->arena, uint16_t, b->n),
                      .mean = ARENA_ARRAY(x->arena, double *, s->nfields),
                      .null = ARENA_ARRAY(x->arena, uint64_t *, s->nfields) };
    for (int k = 0; k < s->nfields; k++) {
        m.mean[k] = ARENA_ARRAY(x->arena, double, b->n);
        m.null[k] = batch_nulls(x->arena, b->n);
    }
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool created;
        double *list = keyed_edit(&keyed, i, &created);
        uint32_t *len = (void *)(list + (size_t)s->nfields * s->window);
        uint32_t *rows = len + s->nfields;
        for (int k = 0; k < s->nfields; k++) {
            const struct column *c = &b->cols[s->fields[k]];
            if (!column_null(c, r))
                list[(size_t)k * s->window + len[k]++] =
                    rows_f64(c, b->schema->f[s->fields[k]].type, r);
        }
        if (++*rows < s->window)
            continue;
        window_close(s, &m, list, len, r);
        keyed_drop(&keyed, i);
    }
    x->count->absorbed += b->n;
    emit_made(s, x, b, &m);
}

const struct op_desc op_block_average = {
    .name = "block_average",
    .doc =
        "Means over tumbling windows of `window` rows of one key (`by`). Every full window "
        "makes one row: the grouping keys, the fields of `keep`, the means. For rows of one "
        "observation each, group by its name as well and average the value. A mean of nulls alone "
        "is null. Memory: 8 bytes x window x fields for each key with an open window. (RIoTBench "
        "AVG.)",
    .example = "{\"fields\": [\"temperature\"], \"window\": 10}",
    .semantics = 1,
    .state_version = 1,
    .params = block_params,
    .config_size = sizeof(struct block_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = block_plan,
    .self_size = sizeof(struct block_self),
    .open = block_open,
    .process = block_process,
    .close = block_close,
};
