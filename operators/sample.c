/* sample: a share of the rows, chosen by a seeded hash: the same rows whatever the batches, the
 * partitions and the time of day. */
#include "engine/key.h"
#include "engine/op.h"
#include "operators/mix.h"
#include <stdlib.h>

struct sample_config {
    double rate;
    struct strs fields;
    int64_t seed;
};
static const struct param sample_params[] = {
    { .name = "rate",
      .type = PT_F64,
      .offset = offsetof(struct sample_config, rate),
      .min = 0,
      .max = 1,
      .doc = "Share of the rows (or of the keys, with `fields`) that pass, 0 to 1." },
    { .name = "fields",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct sample_config, fields),
      .doc =
          "Choose by the values of these fields: rows that agree in them pass all or not at all, "
          "in every task with this `seed` and a `rate` at least as high. Default: by the row's "
          "position, so that each row is chosen by itself." },
    { .name = "seed",
      .type = PT_I64,
      .offset = offsetof(struct sample_config, seed),
      .def = "1",
      .doc = "Another seed, another choice." },
    { .name = NULL },
};

struct sample_self {
    int n, *fields;
    uint64_t seed;
    bool all;
    uint64_t below; /* hashes below it pass */
};

static void sample_plan(struct op_plan *p) {
    const struct sample_config *c = p->config;
    p->out[0] = p->in[0];
    if (c->fields.n > OP_BY_MAX)
        plan_error(p, "fields", NULL, "%d fields; at most %d are allowed", c->fields.n, OP_BY_MAX);
    for (int i = 0; i < c->fields.n; i++)
        plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], 0);
    plan_once(p, "fields", &c->fields);
}

static int sample_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct sample_self *s = self;
    const struct sample_config *c = x->config;
    *s = (struct sample_self){ .n = c->fields.n, .seed = mix64((uint64_t)c->seed) };
    s->all = c->rate >= 1;
    s->below = s->all ? UINT64_MAX : (uint64_t)(c->rate * 0x1p64);
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    return 0;
}
static void sample_close(void *self) {
    free(((struct sample_self *)self)->fields);
}

/* Of the rows of `b` in order. */
static const uint64_t *hashes(const struct sample_self *s, struct op_ctx *x,
                              const struct batch *b) {
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    if (s->n) {
        struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
        key_batch(x->arena, b, s->fields, s->n, key, hash);
        return hash;
    }
    uint64_t partition = b->origin ? b->origin->partition : 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        hash[i] = mix64((uint64_t)batch_off(b, r)) ^ mix64((uint64_t)batch_sub(b, r) + partition);
    }
    return hash;
}

/* ~3 ns a row, ~5 ns by a string field. */
static void sample_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct sample_self *s = self;
    const uint64_t *hash = hashes(s, x, b);
    uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        sel[n] = (uint16_t)batch_row(b, i);
        n += s->all | (mix64(hash[i] ^ s->seed) < s->below);
    }
    x->count->passed += n;
    x->count->filtered += b->n - n;
    op_emit(x, 0, n == b->n ? b : batch_select(x->arena, b, sel, n));
}

const struct op_desc op_sample = {
    .name = "sample",
    .doc =
        "Passes a share of the rows, chosen by a seeded hash of `fields` or of the row's position "
        "in its stream: the same rows at every run. Rows that share one position (groups of a "
        "window that fired together) pass all or not at all.",
    .example = "{\"rate\": 0.1, \"fields\": [\"source\"]}",
    .semantics = 1,
    .params = sample_params,
    .config_size = sizeof(struct sample_config),
    .flags = OP_DETERMINISTIC | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = sample_plan,
    .self_size = sizeof(struct sample_self),
    .open = sample_open,
    .process = sample_process,
    .close = sample_close,
};
