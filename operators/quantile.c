/* quantile: quantiles of numeric fields, estimated by the sketch of kll.h. */
#include "operators/kll.h"
#include "operators/order64.h"
#include "operators/sketch.h"
#include <stdlib.h>

enum { OUTS_MAX = 64 };
struct quantile_config {
    struct strs fields;
    const struct jnode *quantiles;
    int64_t k, seed;
    struct pane_params window;
};
static const struct param quantile_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct quantile_config, fields),
      .doc = "The numeric fields, each by itself. Nulls do not count." },
    { .name = "quantiles",
      .type = PT_JSON,
      .offset = offsetof(struct quantile_config, quantiles),
      .def = "{\"p50\": 0.5, \"p95\": 0.95, \"p99\": 0.99}",
      .doc = "Names and shares: `{\"median\": 0.5}` adds the column `temperature_median`, the "
             "smallest value that at least half of the values do not exceed. 0 is the smallest, 1 "
             "the greatest value, both exact. The columns come by share, then by name." },
    { .name = "k",
      .type = PT_I64,
      .offset = offsetof(struct quantile_config, k),
      .def = "200",
      .min = KLL_K_MIN,
      .max = KLL_K_MAX,
      .doc = "Size of a sketch: exact up to `k` values; beyond, the rank of a result is off by at "
             "most 2.3 / `k`^0.97 of their number in 99 of 100 cases (1.3 % for 200)." },
    { .name = "seed",
      .type = PT_I64,
      .offset = offsetof(struct quantile_config, seed),
      .def = "1",
      .doc = "Chooses which samples stay." },
    PANE_PARAMS(struct quantile_config, window),
    { .name = NULL },
};

struct share {
    const char *name;
    double q;
};
struct quantile_self {
    struct sketch_op op; /* first: sketch.h */
    int k;
    uint64_t seed;
    double q[OUTS_MAX];
    uint64_t found[OUTS_MAX];
};

static int by_share(const void *a, const void *b) {
    const struct share *x = a, *y = b;
    return x->q != y->q ? (x->q < y->q ? -1 : 1) : strcmp(x->name, y->name);
}
/* The members of `quantiles` that are numbers within 0..1, in the order of the columns: that of the
 * object does not count in the signature. */
static int shares(const struct quantile_config *c, struct share *v) {
    int n = 0;
    if (c->quantiles->type != J_OBJ)
        return 0;
    for (const struct jnode *m = c->quantiles->child; m && n < OUTS_MAX; m = m->next)
        if ((m->type == J_INT || m->type == J_REAL) && jnode_f64(m) >= 0 && jnode_f64(m) <= 1)
            v[n++] = (struct share){ m->key, jnode_f64(m) };
    qsort(v, (size_t)n, sizeof *v, by_share);
    return n;
}

static void check_shares(struct op_plan *p, const struct jnode *o) {
    if (o->type != J_OBJ) {
        plan_error(p, "quantiles", NULL,
                   "'quantiles' must be an object of shares such as {\"p99\": 0.99}, not %s",
                   jtype_names[o->type]);
        return;
    }
    if (o->n < 1 || o->n > OUTS_MAX)
        plan_error(p, "quantiles", NULL, "%u quantiles; 1 to %d are allowed", o->n, OUTS_MAX);
    for (const struct jnode *m = o->child; m; m = m->next) {
        if (m->type != J_INT && m->type != J_REAL)
            plan_error(p, "quantiles", m->key, "a quantile is a number, not %s",
                       jtype_names[m->type]);
        else if (!(jnode_f64(m) >= 0 && jnode_f64(m) <= 1))
            plan_error(p, "quantiles", m->key, "a quantile is a share between 0 and 1");
    }
}

static void quantile_plan(struct op_plan *p) {
    const struct quantile_config *c = p->config;
    struct sketch_out out[OUTS_MAX];
    struct share v[OUTS_MAX];
    int n = shares(c, v);
    check_shares(p, c->quantiles);
    for (int i = 0; i < n; i++)
        out[i] = (struct sketch_out){ .suffix = arena_printf(p->arena, "_%s", v[i].name),
                                      .type = TYPE_COUNT };
    if (kll_size((int)c->k) * (size_t)c->fields.n > SKETCH_VALUE_MAX)
        plan_error(p, "k", NULL, "sketches of %d fields are more than %d KiB for each key",
                   c->fields.n, SKETCH_VALUE_MAX >> 10);
    sketch_plan(p, &c->fields, TYPES_NUM, out, n, "quantiles", &c->window);
}

static void quantile_add(void *how, void *at, const struct sketch_value *v) {
    const struct quantile_self *s = how;
    uint64_t u =
        v->type == TYPE_I64 ? order64_i64(v->c->i64[v->row]) : order64_f64(v->c->f64[v->row]);
    kll_add(at, s->k, s->seed, u);
}
static void quantile_merge(void *how, void *into, const void *from, struct arena *a) {
    const struct quantile_self *s = how;
    kll_merge(into, s->k, s->seed, from, a);
}
static void quantile_results(void *how, const void *at, enum type t, int field, struct arena *a,
                             struct sketch_result *out) {
    struct quantile_self *s = how;
    bool null = kll_count(at) == 0;
    (void)field;
    if (!null)
        kll_quantiles(at, a, s->q, s->op.outs, s->found);
    for (int i = 0; i < s->op.outs; i++) {
        out[i] = (struct sketch_result){ .null = null };
        if (null)
            continue;
        if (t == TYPE_I64)
            out[i].i64 = order64_to_i64(s->found[i]);
        else
            out[i].f64 = order64_to_f64(s->found[i]);
    }
}
static const struct sketch_kind quantile_kind = { .add = quantile_add,
                                                  .merge = quantile_merge,
                                                  .results = quantile_results };

static int quantile_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct quantile_self *s = self;
    const struct quantile_config *c = x->config;
    struct share v[OUTS_MAX];
    s->k = (int)c->k;
    s->seed = (uint64_t)c->seed;
    s->op = (struct sketch_op){
        .kind = &quantile_kind, .how = s, .size = kll_size(s->k), .outs = shares(c, v)
    };
    for (int i = 0; i < s->op.outs; i++)
        s->q[i] = v[i].q;
    sketch_open(&s->op, x, &c->fields, &c->window);
    return 0;
}
static void quantile_lower(struct op_lower *l) {
    const struct quantile_config *c = l->config;
    panes_lower(l, &c->window, "quantile", "quantile_window", sizeof *c);
}

const struct op_desc op_quantile = {
    .name = "quantile",
    .doc =
        "Adds to every row quantiles of numeric fields over the rows so far, for each key (`by`) "
        "or over all. With `every` instead one row a group of the windows of event time: the "
        "fields of `by`, `window_start`, `window_end` (as of `window_aggregate`) and the "
        "quantiles. A quantile is a value that came, of the field's type; null when none did. "
        "Estimated by a KLL sketch: exact up to `k` values. Memory: some 7 KiB at `k` = 200 a "
        "field and key (and slice). Without windows each row costs some microseconds a field.",
    .example = "{\"fields\": [\"latency\"], \"quantiles\": {\"p50\": 0.5, \"p99\": 0.99}, "
               "\"every\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = quantile_params,
    .config_size = sizeof(struct quantile_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = quantile_plan,
    .lower = quantile_lower,
    .self_size = sizeof(struct quantile_self),
    .open = quantile_open,
    .process = sketch_process,
    .close = sketch_close,
};

const struct op_desc op_quantile_window = {
    .name = "quantile_window",
    .doc = "The windows of `quantile`.",
    .semantics = 1,
    .state_version = 1,
    .params = quantile_params,
    .config_size = sizeof(struct quantile_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_KEYED | OP_ORDERED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = quantile_plan,
    .self_size = sizeof(struct quantile_self),
    .open = quantile_open,
    .process = sketch_process,
    .watermark = sketch_watermark,
    .rebuild = sketch_rebuild,
    .close = sketch_close,
};
