/* kalman: a scalar Kalman filter per key and field. RIoTBench task KAL (micro-benchmark 10), in
 * double precision. */
#include "operators/keyed.h"
#include "operators/rows.h"
#include <math.h>
#include <stdlib.h>

struct kalman_config {
    struct strs fields;
    double process_noise, sensor_noise, estimated_error, initial;
};

static const struct param kalman_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct kalman_config, fields),
      .doc = "The numeric fields to filter; each becomes its estimate (f64)." },
    { .name = "process_noise",
      .type = PT_F64,
      .offset = offsetof(struct kalman_config, process_noise),
      .def = "0.125",
      .min = 0,
      .max = 1e300,
      .doc = "Variance q that the true value gains from one row to the next." },
    { .name = "sensor_noise",
      .type = PT_F64,
      .offset = offsetof(struct kalman_config, sensor_noise),
      .def = "0.32",
      .min = 1e-300,
      .max = 1e300,
      .doc = "Variance r of one measurement." },
    { .name = "estimated_error",
      .type = PT_F64,
      .offset = offsetof(struct kalman_config, estimated_error),
      .def = "30",
      .min = 0,
      .max = 1e300,
      .doc = "Variance p of the first estimate." },
    { .name = "initial",
      .type = PT_F64,
      .offset = offsetof(struct kalman_config, initial),
      .def = "0",
      .doc = "The first estimate." },
    { .name = NULL },
};

struct estimate {
    double x, p;
};
struct kalman_self {
    struct state *table; /* n estimates a key */
    int n;
    int *fields;
};

static void kalman_plan(struct op_plan *p) {
    const struct kalman_config *c = p->config;
    struct field *f;
    struct schema *out = schema_new(p->arena, p->in[0]->n, &f);
    memcpy(f, p->in[0]->f, (size_t)out->n * sizeof *f);
    if (!c->fields.n)
        plan_error(p, "fields", NULL, "no fields given");
    for (int i = 0; i < c->fields.n; i++) {
        int k = plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], TYPES_NUM);
        if (k >= 0)
            f[k].type = TYPE_F64;
        for (int j = 0; j < p->nby; j++)
            if (strcmp(p->by[j], c->fields.v[i]) == 0)
                plan_error(p, "fields", p->by[j], "'%s' is a grouping key", p->by[j]);
    }
    plan_once(p, "fields", &c->fields);
    p->out[0] = out;
}

static int kalman_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct kalman_self *s = self;
    const struct kalman_config *c = x->config;
    s->n = c->fields.n;
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    s->table = op_state(x, 0, (uint32_t)((size_t)s->n * sizeof(struct estimate)));
    return 0;
}

static void kalman_close(void *self) {
    struct kalman_self *s = self;
    free(s->fields);
}

/* Predict, then correct by measurement z (R. E. Kalman, 1960, for one constant state). False when
 * the estimate would overflow: it is then left as it was. */
static inline bool step(struct estimate *e, const struct kalman_config *c, double z) {
    double p = e->p + c->process_noise;
    double gain = p / (p + c->sensor_noise);
    double x = e->x + gain * (z - e->x);
    if (!isfinite(x))
        return false;
    *e = (struct estimate){ x, (1 - gain) * p };
    return true;
}

/* ~25 ns a row for the key and ~6 ns a value (a division). Nulls pass and change nothing. */
static void kalman_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct kalman_self *s = self;
    const struct kalman_config *c = x->config;
    struct keyed keyed = keyed_batch(x, s->table, b);
    struct column *cols = batch_cols(x->arena, b, 0);
    double **v = ARENA_ARRAY(x->arena, double *, s->n);
    uint64_t **nulls = ARENA_ARRAY(x->arena, uint64_t *, s->n);
    for (int k = 0; k < s->n; k++) {
        v[k] = ARENA_ARRAY(x->arena, double, b->rows);
        nulls[k] = rows_nulls_copy(x->arena, b->cols[s->fields[k]].nulls, b->rows);
        cols[s->fields[k]] = (struct column){ .f64 = v[k], .nulls = nulls[k] };
    }
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool created;
        struct estimate *e = keyed_edit(&keyed, i, &created);
        for (int k = 0; created && k < s->n; k++)
            e[k] = (struct estimate){ c->initial, c->estimated_error };
        for (int k = 0; k < s->n; k++) {
            const struct column *in = &b->cols[s->fields[k]];
            if (column_null(in, r))
                continue;
            if (step(&e[k], c, rows_f64(in, b->schema->f[s->fields[k]].type, r)))
                v[k][r] = e[k].x;
            else {
                bit_set(nulls[k], r);
                x->count->nulled++;
            }
        }
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

const struct op_desc op_kalman = {
    .name = "kalman",
    .doc = "Smooths numeric fields by a scalar Kalman filter for each key (`by`) and field. Nulls "
           "pass unchanged. For rows of one observation each, group by its name as well and "
           "filter the value. An estimate that would overflow is null and changes nothing. Memory: "
           "16 bytes a field and key. (RIoTBench KAL.)",
    .example = "{\"fields\": [\"temperature\"], \"process_noise\": 0.125}",
    .semantics = 1,
    .state_version = 1,
    .params = kalman_params,
    .config_size = sizeof(struct kalman_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = kalman_plan,
    .self_size = sizeof(struct kalman_self),
    .open = kalman_open,
    .process = kalman_process,
    .close = kalman_close,
};
