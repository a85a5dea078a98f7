/* distinct_count: how many different values a field has shown so far, estimated by LogLog counting
 * (M. Durand, P. Flajolet, "Loglog counting of large cardinalities", ESA 2003), bit for bit as
 * RIoTBench task DAC (micro-benchmark 9) does it. */
#include "engine/num.h"
#include "operators/keyed.h"
#include "operators/sha1.h"
#include <math.h>
#include <stdlib.h>

enum { VALUE_MAX = 1 << 20 }; /* bytes of state a key */
struct distinct_config {
    struct strs fields;
    int64_t k;
    const char *suffix;
};

static const struct param distinct_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct distinct_config, fields),
      .doc = "The fields to count, each by itself. Nulls do not count." },
    { .name = "k",
      .type = PT_I64,
      .offset = offsetof(struct distinct_config, k),
      .def = "10",
      .min = 4,
      .max = 16,
      .doc = "Uses 2^k buckets of a byte each: more buckets, smaller error (1.3 / 2^(k/2)). Below "
             "some 2^k values the estimate is too high." },
    { .name = "suffix",
      .type = PT_STR,
      .offset = offsetof(struct distinct_config, suffix),
      .def = "\"_distinct\"",
      .doc = "The added columns are called as the field and this." },
    { .name = NULL },
};

/* A key's value: for each field the sum of all ranks (8 bytes) and 2^k ranks. */
struct distinct_self {
    struct state *table;
    int n, k;
    int *fields;
    size_t stride;
};

static void distinct_plan(struct op_plan *p) {
    const struct distinct_config *c = p->config;
    const struct schema *in = p->in[0];
    unsigned any = TYPES_NUM | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES) | TYPE_BIT(TYPE_BOOL);
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + c->fields.n, &f);
    memcpy(f, in->f, (size_t)in->n * sizeof *f);
    if (!c->fields.n)
        plan_error(p, "fields", NULL, "no fields given");
    if ((int64_t)c->fields.n << c->k > VALUE_MAX)
        plan_error(p, "k", NULL, "%d fields of 2^%lld buckets are more than %d KiB for each key",
                   c->fields.n, (long long)c->k, VALUE_MAX >> 10);
    for (int i = 0; i < c->fields.n; i++) {
        const char *name = arena_printf(p->arena, "%s%s", c->fields.v[i], c->suffix);
        plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], any);
        for (int j = 0; j < in->n + i; j++)
            if (strcmp(f[j].name, name) == 0)
                plan_error(p, "suffix", NULL, "the output would have two fields '%s'", name);
        f[in->n + i] = (struct field){ .name = name, .type = TYPE_I64 };
    }
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "fields", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    p->out[0] = out;
}

static int distinct_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct distinct_self *s = self;
    const struct distinct_config *c = x->config;
    s->n = c->fields.n;
    s->k = (int)c->k;
    s->stride = sizeof(uint64_t) + ((size_t)1 << s->k);
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    s->table = op_state(x, 0, (uint32_t)((size_t)s->n * s->stride));
    return 0;
}

static void distinct_close(void *self) {
    struct distinct_self *s = self;
    free(s->fields);
}

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

/* What the last row of a field was, so that equal neighbours (an exploded record) cost little. */
struct last {
    struct span text;
    int32_t hash;
    bool any;
    uint64_t sum; /* of the sketch that was last evaluated */
    int64_t estimate;
};

static int64_t count_value(const struct distinct_self *s, struct last *l, void *sketch,
                           const struct column *c, enum type t, uint32_t row) {
    char buf[NUM_F64_MAX_LEN];
    if (!column_null(c, row)) {
        struct span text = value_text(c, t, row, buf);
        bool same = l->any && text.p != buf && text.len == l->text.len &&
                    (text.p == l->text.p || memcmp(text.p, l->text.p, text.len) == 0);
        if (!same)
            l->hash = value_hash(text);
        l->text = text;
        l->any = text.p != buf;
        count_hash(sketch, s->k, l->hash);
    }
    uint64_t sum;
    memcpy(&sum, sketch, sizeof sum);
    if (sum != l->sum || l->estimate < 0) {
        l->sum = sum;
        l->estimate = estimate(sum, s->k);
    }
    return l->estimate;
}

/* ~200 ns a value (SHA-1), ~15 ns when it equals its neighbour. */
static void distinct_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct distinct_self *s = self;
    struct keyed keyed = keyed_batch(x, s->table, b);
    struct column *cols = batch_cols(x->arena, b, s->n);
    int64_t **v = ARENA_ARRAY(x->arena, int64_t *, s->n);
    struct last *last = arena_zalloc(x->arena, sizeof *last * (size_t)s->n);
    for (int k = 0; k < s->n; k++) {
        last[k].estimate = -1;
        v[k] = ARENA_ARRAY(x->arena, int64_t, b->rows);
        cols[b->schema->n + k] = (struct column){ .i64 = v[k] };
    }
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool created;
        char *sketch = keyed_edit(&keyed, i, &created);
        for (int k = 0; k < s->n; k++, sketch += s->stride)
            v[k][r] = count_value(s, &last[k], sketch, &b->cols[s->fields[k]],
                                  b->schema->f[s->fields[k]].type, r);
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

const struct op_desc op_distinct_count = {
    .name = "distinct_count",
    .doc = "Adds to every row how many different values a field has shown so far, for each key "
           "(`by`) or over all, estimated by LogLog counting with 2^k buckets, bit for bit as "
           "RIoTBench DAC does. Good to some per cent once there are more values than buckets. "
           "Memory: 2^k bytes a field and key.",
    .example = "{\"fields\": [\"source\"], \"k\": 10}",
    .semantics = 1,
    .state_version = 1,
    .params = distinct_params,
    .config_size = sizeof(struct distinct_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = distinct_plan,
    .self_size = sizeof(struct distinct_self),
    .open = distinct_open,
    .process = distinct_process,
    .close = distinct_close,
};
