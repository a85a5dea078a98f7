/* second_moment: how unevenly the values of a field are spread: the sum over its different values
 * of how often each has come, squared. n values that all differ have n, n equal ones n squared.
 *
 * Method `sketch` is ams.h. Method `slots` is RIoTBench task SOM (micro-benchmark 11), which counts
 * the values that happen to hold one of its slots; it chooses its victims by a seeded hash of the
 * number of values so far instead of at random, so that runs can be repeated. */
#include "operators/ams.h"
#include "operators/mix.h"
#include "operators/sketch.h"
#include <assert.h>

enum { METHOD_SKETCH, METHOD_SLOTS };
struct moment_config {
    struct strs fields;
    int method;
    int64_t depth, width, slots, seed;
    const char *suffix;
    struct pane_params window;
};
static const char *const method_words[] = { "sketch", "slots", NULL };
static const struct param moment_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct moment_config, fields),
      .doc = "The fields whose values are counted, each by itself. Nulls do not count." },
    { .name = "method",
      .type = PT_ENUM,
      .offset = offsetof(struct moment_config, method),
      .def = "\"sketch\"",
      .words = method_words,
      .doc = "`sketch`: `depth` rows of `width` counters; the order of rows does not matter. "
             "`slots`: RIoTBench SOM, a count of the values in `slots` slots; a rough figure." },
    { .name = "depth",
      .type = PT_I64,
      .offset = offsetof(struct moment_config, depth),
      .def = "5",
      .min = 1,
      .max = AMS_DEPTH_MAX,
      .doc = "Rows of counters, each an estimate of its own: the result is their median." },
    { .name = "width",
      .type = PT_I64,
      .offset = offsetof(struct moment_config, width),
      .def = "256",
      .min = 16,
      .max = 1 << 16,
      .doc = "Counters of a row, a power of two: the standard error of its estimate is at most "
             "sqrt(2 / `width`) of the result." },
    { .name = "slots",
      .type = PT_I64,
      .offset = offsetof(struct moment_config, slots),
      .def = "10",
      .min = 1,
      .max = 1024,
      .doc = "Slots of method `slots`." },
    { .name = "seed",
      .type = PT_I64,
      .offset = offsetof(struct moment_config, seed),
      .def = "1",
      .doc = "Chooses the hash functions, and the victims of method `slots`." },
    { .name = "suffix",
      .type = PT_STR,
      .offset = offsetof(struct moment_config, suffix),
      .def = "\"_moment2\"",
      .doc = "The added columns (f64) are called as the field and this." },
    PANE_PARAMS(struct moment_config, window),
    { .name = NULL },
};

struct moment_self {
    struct sketch_op op; /* first: sketch.h */
    struct ams ams;
    uint32_t slots;
    uint64_t seed;
};

/* Method `slots`. */
struct slots {
    uint64_t n; /* values so far */
    uint64_t used;
    struct slot {
        uint64_t hash, count;
    } slot[];
};

static size_t slots_size(int64_t slots) {
    return sizeof(struct slots) + (size_t)slots * sizeof(struct slot);
}

static void moment_plan(struct op_plan *p) {
    const struct moment_config *c = p->config;
    unsigned any = TYPES_NUM | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES) | TYPE_BIT(TYPE_BOOL);
    struct sketch_out out = { .suffix = c->suffix, .type = TYPE_F64 };
    int64_t each =
        c->method == METHOD_SLOTS ? (int64_t)slots_size(c->slots) : c->depth * (16 + 8 * c->width);
    if (c->width & (c->width - 1))
        plan_error(p, "width", NULL, "'width' must be a power of two");
    if (each * c->fields.n > SKETCH_VALUE_MAX)
        plan_error(p, c->method == METHOD_SLOTS ? "slots" : "width", NULL,
                   "sketches of %d fields are more than %d KiB for each key", c->fields.n,
                   SKETCH_VALUE_MAX >> 10);
    if (c->method == METHOD_SLOTS && c->window.every != PARAM_UNSET)
        plan_error(p, "every", NULL, "method 'slots' counts from the start: it has no windows");
    sketch_plan(p, &c->fields, any, &out, 1, "suffix", &c->window);
}

/* ---- method `sketch` ---- */

static void sketch_add(void *how, void *at, const struct sketch_value *v) {
    ams_add(&((const struct moment_self *)how)->ams, at, v->hash);
}
static void sketch_merge(void *how, void *into, const void *from, struct arena *a) {
    (void)a;
    ams_merge(&((const struct moment_self *)how)->ams, into, from);
}
static void sketch_results(void *how, const void *at, enum type t, int field, struct arena *a,
                           struct sketch_result *out) {
    (void)t;
    (void)field;
    (void)a;
    *out = (struct sketch_result){ .f64 = ams_moment(&((const struct moment_self *)how)->ams, at) };
}
static const struct sketch_kind sketch_kind = {
    .hashes = true, .add = sketch_add, .merge = sketch_merge, .results = sketch_results
};

/* ---- method `slots` ---- */

static void slots_add(void *how, void *at, const struct sketch_value *v) {
    const struct moment_self *s = how;
    struct slots *m = at;
    uint64_t i = 0;
    assert(s->slots > 0); /* this kind is for no other */
    m->n++;
    while (i < m->used && m->slot[i].hash != v->hash)
        i++;
    if (i == m->used && m->used < s->slots)
        m->slot[m->used++] = (struct slot){ .hash = v->hash };
    else if (i == m->used) {
        i = mix64(s->seed ^ m->n) % s->slots;
        m->slot[i] = (struct slot){ .hash = v->hash };
    }
    m->slot[i].count++;
}
/* The original's estimate: the sum of n (2 count - 1) over all slots, empty ones too, divided by
 * the slots in use. */
static void slots_results(void *how, const void *at, enum type t, int field, struct arena *a,
                          struct sketch_result *out) {
    const struct moment_self *s = how;
    const struct slots *m = at;
    double sum = 0;
    (void)t;
    (void)field;
    (void)a;
    for (uint32_t i = 0; i < s->slots; i++)
        sum += 2 * (double)m->slot[i].count - 1;
    *out = (struct sketch_result){ .null = !m->used };
    if (m->used)
        out->f64 = (double)m->n * sum / (double)m->used;
}
static const struct sketch_kind slots_kind = { .hashes = true,
                                               .add = slots_add,
                                               .results = slots_results };

/* ---- the operator ---- */

static int moment_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct moment_self *s = self;
    const struct moment_config *c = x->config;
    bool slots = c->method == METHOD_SLOTS;
    ams_init(&s->ams, (int)c->depth, (uint32_t)c->width, (uint64_t)c->seed);
    s->slots = (uint32_t)c->slots;
    s->seed = mix64((uint64_t)c->seed);
    s->op = (struct sketch_op){ .kind = slots ? &slots_kind : &sketch_kind,
                                .how = s,
                                .size = slots ? slots_size(c->slots) : ams_size(&s->ams),
                                .outs = 1 };
    sketch_open(&s->op, x, &c->fields, &c->window);
    return 0;
}
static void moment_lower(struct op_lower *l) {
    const struct moment_config *c = l->config;
    panes_lower(l, &c->window, "second_moment", "moment_window", sizeof *c);
}

const struct op_desc op_second_moment = {
    .name = "second_moment",
    .doc = "Adds to every row the second frequency moment of a field, the sum over its different "
           "values of how often each has come, squared, estimated for each key (`by`) or over all: "
           "n when all n values differ, n squared when they are equal. With `every` instead one "
           "row a group of the windows of event time: the fields of `by`, `window_start`, "
           "`window_end` (as of `window_aggregate`) and the estimates. Memory: 8 bytes x `depth` x "
           "`width` a field and key (and slice). (RIoTBench SOM, with a seed.)",
    .example = "{\"fields\": [\"source\"], \"width\": 256}",
    .semantics = 1,
    .state_version = 1,
    .params = moment_params,
    .config_size = sizeof(struct moment_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = moment_plan,
    .lower = moment_lower,
    .self_size = sizeof(struct moment_self),
    .open = moment_open,
    .process = sketch_process,
    .close = sketch_close,
};

const struct op_desc op_moment_window = {
    .name = "moment_window",
    .doc = "The windows of `second_moment`.",
    .semantics = 1,
    .state_version = 1,
    .params = moment_params,
    .config_size = sizeof(struct moment_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = moment_plan,
    .self_size = sizeof(struct moment_self),
    .open = moment_open,
    .process = sketch_process,
    .watermark = sketch_watermark,
    .rebuild = sketch_rebuild,
    .close = sketch_close,
};
