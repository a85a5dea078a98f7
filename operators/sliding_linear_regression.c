/* sliding_linear_regression: a line through the last values of a key, drawn on into the future.
 * RIoTBench task SLR (micro-benchmark 17), on the values themselves and in double precision. */
#include "operators/keyed.h"
#include "operators/rows.h"
#include <math.h>
#include <stdlib.h>

enum { TRAIN_MAX = 4096, PREDICT_MAX = 256 };
struct slr_config {
    const char *field, *prefix;
    int64_t train, predict;
};

static const struct param slr_params[] = {
    { .name = "field",
      .type = PT_FIELD,
      .offset = offsetof(struct slr_config, field),
      .doc = "The numeric field. A null does not enter the window." },
    { .name = "train",
      .type = PT_I64,
      .offset = offsetof(struct slr_config, train),
      .def = "10",
      .min = 2,
      .max = TRAIN_MAX,
      .doc = "Values that the line is fitted to." },
    { .name = "predict",
      .type = PT_I64,
      .offset = offsetof(struct slr_config, predict),
      .def = "10",
      .min = 1,
      .max = PREDICT_MAX,
      .doc = "How many of the next values to predict, a column each." },
    { .name = "prefix",
      .type = PT_STR,
      .offset = offsetof(struct slr_config, prefix),
      .def = "\"pred_\"",
      .doc = "The added columns are called this and 1, 2, ..." },
    { .name = NULL },
};

/* A key's value: `train` doubles, oldest first; then how many have come, at most train + 1. */
struct slr_self {
    struct state *table;
    int field;
    uint32_t train;
    int predict;
};

static void slr_plan(struct op_plan *p) {
    const struct slr_config *c = p->config;
    const struct schema *in = p->in[0];
    int n = (int)c->predict;
    plan_field(p, 0, "field", NULL, c->field, TYPES_NUM);
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + n, &f);
    memcpy(f, in->f, (size_t)in->n * sizeof *f);
    for (int i = 0; i < n; i++) {
        f[in->n + i] = (struct field){ .name = arena_printf(p->arena, "%s%d", c->prefix, i + 1),
                                       .type = TYPE_F64 };
        if (schema_find(in, f[in->n + i].name) >= 0)
            plan_error(p, "prefix", NULL, "the input has a field '%s' already", f[in->n + i].name);
    }
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "predict", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    p->out[0] = out;
}

static int slr_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct slr_self *s = self;
    const struct slr_config *c = x->config;
    s->field = schema_find(x->in[0], c->field);
    s->train = (uint32_t)c->train;
    s->predict = (int)c->predict;
    s->table = op_state(x, 0, (uint32_t)(s->train * sizeof(double) + sizeof(uint32_t)));
    return 0;
}

/* Least squares over x = 0 .. n-1; the value at x is *mean + *slope * (x - (n-1)/2). Sums run from
 * the oldest value to the newest. The sum of (x - mean x)^2 is n(n^2-1)/12. */
static void fit(const double *y, uint32_t n, double *mean, double *slope) {
    double mid = (n - 1) / 2.0, sum = 0, cov = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += y[i];
    *mean = sum / n;
    for (uint32_t i = 0; i < n; i++)
        cov += (i - mid) * (y[i] - *mean);
    double d = n;
    *slope = cov / (d * (d * d - 1) / 12);
}

struct made {
    double **v; /* by horizon, physical rows */
    uint64_t **null;
    uint16_t *sel;
    uint32_t n;
};

static void predict(const struct slr_self *s, struct made *m, struct op_counts *count,
                    const double *list, uint32_t row) {
    double mean, slope, mid = (s->train - 1) / 2.0;
    fit(list, s->train, &mean, &slope);
    for (int k = 0; k < s->predict; k++) {
        double y = mean + slope * (s->train + (uint32_t)k - mid);
        m->v[k][row] = y;
        if (!isfinite(y)) {
            bit_set(m->null[k], row);
            count->nulled++;
        }
    }
    m->sel[m->n++] = (uint16_t)row;
}

/* ~25 ns a row for the key and ~2 ns for each value of the window and each prediction. */
static void slr_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct slr_self *s = self;
    struct keyed keyed = keyed_batch(x, s->table, b);
    struct column *cols = batch_cols(x->arena, b, s->predict);
    struct made m = { .v = ARENA_ARRAY(x->arena, double *, s->predict),
                      .null = ARENA_ARRAY(x->arena, uint64_t *, s->predict),
                      .sel = ARENA_ARRAY(x->arena, uint16_t, b->n) };
    for (int k = 0; k < s->predict; k++) {
        m.v[k] = ARENA_ARRAY(x->arena, double, b->rows);
        m.null[k] = batch_nulls(x->arena, b->rows);
        cols[b->schema->n + k] = (struct column){ .f64 = m.v[k], .nulls = m.null[k] };
    }
    const struct column *in = &b->cols[s->field];
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool created;
        double *list = keyed_edit(&keyed, i, &created);
        uint32_t *count = (void *)(list + s->train);
        if (!column_null(in, r)) {
            double v = rows_f64(in, b->schema->f[s->field].type, r);
            uint32_t have = *count < s->train ? *count : s->train;
            keyed_push(list, have, s->train, v);
            *count += *count <= s->train;
        }
        if (*count > s->train)
            predict(s, &m, x->count, list, r);
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    out->sel = m.sel;
    out->n = m.n;
    x->count->passed += m.n;
    x->count->absorbed += b->n - m.n;
    op_emit(x, 0, out);
}

const struct op_desc op_sliding_linear_regression = {
    .name = "sliding_linear_regression",
    .doc = "Fits a line to the last `train` values of each key (`by`) and adds the next `predict` "
           "values on it as columns. The first `train` values of a key make no row. For rows of "
           "one observation each, group by its name as well. A prediction that overflows is null. "
           "Memory: 8 bytes x train a key. (RIoTBench SLR.)",
    .example = "{\"field\": \"temperature\", \"train\": 10, \"predict\": 10}",
    .semantics = 1,
    .state_version = 1,
    .params = slr_params,
    .config_size = sizeof(struct slr_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = slr_plan,
    .self_size = sizeof(struct slr_self),
    .open = slr_open,
    .process = slr_process,
};
