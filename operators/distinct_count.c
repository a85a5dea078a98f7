/* distinct_count: how many different values a field has shown, estimated by LogLog counting (M.
 * Durand, P. Flajolet, "Loglog counting of large cardinalities", ESA 2003), bit for bit as
 * RIoTBench task DAC (micro-benchmark 9) does it, or by HyperLogLog (hll.h). */
#include "engine/num.h"
#include "operators/hll.h"
#include "operators/sha1.h"
#include "operators/sketch.h"
#include <math.h>
#include <stdlib.h>

enum { METHOD_LOGLOG, METHOD_HLL };
struct distinct_config {
    struct strs fields;
    int method;
    int64_t k;
    const char *suffix;
    struct pane_params window;
};

static const char *const method_words[] = { "loglog", "hll", NULL };
static const struct param distinct_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct distinct_config, fields),
      .doc = "The fields to count, each by itself. Nulls do not count." },
    { .name = "method",
      .type = PT_ENUM,
      .offset = offsetof(struct distinct_config, method),
      .def = "\"loglog\"",
      .words = method_words,
      .doc = "`hll`: HyperLogLog with 64-bit hashes, exact to a few values while there are few. "
             "`loglog`: as RIoTBench DAC counts; below some 2^k values its estimate is too high." },
    { .name = "k",
      .type = PT_I64,
      .offset = offsetof(struct distinct_config, k),
      .def = "10",
      .min = HLL_K_MIN,
      .max = HLL_K_MAX,
      .doc = "Uses 2^k registers of a byte each: more registers, smaller error (standard error "
             "1.04 / 2^(k/2) for `hll`, 1.3 / 2^(k/2) for `loglog`)." },
    { .name = "suffix",
      .type = PT_STR,
      .offset = offsetof(struct distinct_config, suffix),
      .def = "\"_distinct\"",
      .doc = "The added columns are called as the field and this." },
    PANE_PARAMS(struct distinct_config, window),
    { .name = NULL },
};

/* What the last row of a field was, so that equal neighbours (an exploded record) cost little. */
struct last {
    struct span text;
    int32_t hash;
    bool any;
    uint64_t sum; /* of the sketch that was last evaluated */
    int64_t estimate;
};
struct distinct_self {
    struct sketch_op op; /* first: sketch.h */
    int k;
    struct last *last; /* by field; loglog only */
};

static size_t sketch_size(const struct distinct_config *c) {
    return c->method == METHOD_HLL ? hll_size((int)c->k) : sizeof(uint64_t) + ((size_t)1 << c->k);
}

static void distinct_plan(struct op_plan *p) {
    const struct distinct_config *c = p->config;
    unsigned any = TYPES_NUM | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES) | TYPE_BIT(TYPE_BOOL);
    struct sketch_out out = { .suffix = c->suffix, .type = TYPE_I64 };
    if ((int64_t)c->fields.n << c->k > SKETCH_VALUE_MAX)
        plan_error(p, "k", NULL, "%d fields of 2^%lld buckets are more than %d KiB for each key",
                   c->fields.n, (long long)c->k, SKETCH_VALUE_MAX >> 10);
    sketch_plan(p, &c->fields, any, &out, 1, "suffix", &c->window);
}

/* ---- LogLog: the sum of all ranks (8 bytes) and 2^k ranks ---- */

/* The bytes of a value that are hashed: a string's own, a number's shortest text. */
static struct span value_text(const struct column *c, enum type t, uint32_t row, char *buf) {
    switch (t) {
    case TYPE_I64:
        return (struct span){ .p = buf, .len = (uint32_t)num_write_i64(buf, c->i64[row]) };
    case TYPE_F64:
        return (struct span){ .p = buf, .len = (uint32_t)num_write_f64(buf, c->f64[row]) };
    case TYPE_BOOL:
        return c->b[row] ? (struct span){ .p = "true", .len = 4 }
                         : (struct span){ .p = "false", .len = 5 };
    default:
        return c->str[row];
    }
}

/* The original's hash: the first four bytes of SHA-1, little-endian, as a signed integer. */
static int32_t value_hash(struct span s) {
    uint8_t digest[20];
    sha1(s.p, s.len, digest);
    return (int32_t)((uint32_t)digest[0] | (uint32_t)digest[1] << 8 | (uint32_t)digest[2] << 16 |
                     (uint32_t)digest[3] << 24);
}

static void count_hash(void *sketch, int k, int32_t hash) {
    uint64_t *sum = sketch;
    uint8_t *rank = (uint8_t *)(sum + 1) + ((uint32_t)hash & ((1u << k) - 1));
    int32_t rest = hash >> k; /* arithmetic shift */
    uint8_t zeros = rest ? (uint8_t)__builtin_ctz((uint32_t)rest) : 31;
    if (zeros <= *rank)
        return;
    *sum += (uint64_t)(zeros - *rank);
    *rank = zeros;
}

/* 0.79402 is the asymptotic constant of Durand and Flajolet, section 3. */
static int64_t estimate(uint64_t sum, int k) {
    double m = (double)(1u << k);
    return (int64_t)floor(0.79402 * m * pow(2, (double)sum / m));
}

/* The texts of the last batch are gone. */
static void loglog_begin(void *how) {
    struct distinct_self *s = how;
    for (int i = 0; i < s->op.n; i++)
        s->last[i] = (struct last){ .estimate = -1 };
}

/* ~200 ns a value (SHA-1), ~15 ns when it equals its neighbour. */
static void loglog_add(void *how, void *at, const struct sketch_value *v) {
    struct distinct_self *s = how;
    struct last *l = &s->last[v->field];
    char buf[NUM_F64_MAX_LEN];
    struct span text = value_text(v->c, v->type, v->row, buf);
    bool same = l->any && text.p != buf && text.len == l->text.len &&
                (text.p == l->text.p || memcmp(text.p, l->text.p, text.len) == 0);
    if (!same)
        l->hash = value_hash(text);
    l->text = text;
    l->any = text.p != buf;
    count_hash(at, s->k, l->hash);
}

static void loglog_merge(void *how, void *into, const void *from, struct arena *a) {
    const struct distinct_self *s = how;
    uint64_t *sum = into;
    uint8_t *rank = (uint8_t *)(sum + 1);
    const uint8_t *other = (const uint8_t *)((const uint64_t *)from + 1);
    (void)a;
    for (size_t i = 0; i < (size_t)1 << s->k; i++)
        if (other[i] > rank[i]) {
            *sum += (uint64_t)(other[i] - rank[i]);
            rank[i] = other[i];
        }
}

static void loglog_results(void *how, const void *at, enum type t, int field, struct arena *a,
                           struct sketch_result *out) {
    struct distinct_self *s = how;
    struct last *l = &s->last[field];
    uint64_t sum;
    (void)t;
    (void)a;
    memcpy(&sum, at, sizeof sum);
    if (sum != l->sum || l->estimate < 0) {
        l->sum = sum;
        l->estimate = estimate(sum, s->k);
    }
    *out = (struct sketch_result){ .i64 = l->estimate };
}

static const struct sketch_kind loglog_kind = {
    .begin = loglog_begin, .add = loglog_add, .merge = loglog_merge, .results = loglog_results
};

/* ---- HyperLogLog ---- */

static void distinct_hll_add(void *how, void *at, const struct sketch_value *v) {
    hll_add(at, ((const struct distinct_self *)how)->k, v->hash);
}
static void distinct_hll_merge(void *how, void *into, const void *from, struct arena *a) {
    (void)a;
    hll_merge(into, ((const struct distinct_self *)how)->k, from);
}
static void distinct_hll_results(void *how, const void *at, enum type t, int field, struct arena *a,
                                 struct sketch_result *out) {
    (void)t;
    (void)field;
    (void)a;
    *out = (struct sketch_result){ .i64 = hll_count(at, ((const struct distinct_self *)how)->k) };
}
static const struct sketch_kind hll_kind = { .hashes = true,
                                             .add = distinct_hll_add,
                                             .merge = distinct_hll_merge,
                                             .results = distinct_hll_results };

/* ---- the operator ---- */

static int distinct_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct distinct_self *s = self;
    const struct distinct_config *c = x->config;
    s->k = (int)c->k;
    s->last = calloc((size_t)c->fields.n + 1, sizeof *s->last);
    if (!s->last)
        abort();
    s->op = (struct sketch_op){ .kind = c->method == METHOD_HLL ? &hll_kind : &loglog_kind,
                                .how = s,
                                .size = sketch_size(c),
                                .outs = 1 };
    sketch_open(&s->op, x, &c->fields, &c->window);
    return 0;
}
static void distinct_close(void *self) {
    free(((struct distinct_self *)self)->last);
    sketch_close(self);
}
static void distinct_lower(struct op_lower *l) {
    const struct distinct_config *c = l->config;
    panes_lower(l, &c->window, "distinct_count", "distinct_window", sizeof *c);
}

const struct op_desc op_distinct_count = {
    .name = "distinct_count",
    .doc = "Adds to every row how many different values a field has shown so far, for each key "
           "(`by`) or over all, estimated by LogLog counting with 2^k buckets, bit for bit as "
           "RIoTBench DAC does, or by HyperLogLog (`method`). With `every` instead one row a group "
           "of the windows of event time: the fields of `by`, `window_start`, `window_end` (as of "
           "`window_aggregate`) and the estimates. Memory: 2^k bytes a field and key (and slice).",
    .example = "{\"fields\": [\"source\"], \"method\": \"hll\", \"k\": 12}",
    .semantics = 1,
    .state_version = 1,
    .params = distinct_params,
    .config_size = sizeof(struct distinct_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = distinct_plan,
    .lower = distinct_lower,
    .self_size = sizeof(struct distinct_self),
    .open = distinct_open,
    .process = sketch_process,
    .close = distinct_close,
};

const struct op_desc op_distinct_window = {
    .name = "distinct_window",
    .doc = "The windows of `distinct_count`.",
    .semantics = 1,
    .state_version = 1,
    .params = distinct_params,
    .config_size = sizeof(struct distinct_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = distinct_plan,
    .self_size = sizeof(struct distinct_self),
    .open = distinct_open,
    .process = sketch_process,
    .watermark = sketch_watermark,
    .rebuild = sketch_rebuild,
    .close = distinct_close,
};
