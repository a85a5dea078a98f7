/* pi_viete: burns a settable amount of CPU for each row and passes it on. RIoTBench task PiByViete;
 * stands for the tasks of workflow graphs, whose streams and configs matter and whose work does
 * not. */
#include "engine/op.h"
#include <math.h>
#include <stdlib.h>

struct pi_config {
    int64_t iterations;
    const char *label;
    const struct jnode *params;
};

static const struct param pi_params[] = {
    { .name = "iterations",
      .type = PT_I64,
      .offset = offsetof(struct pi_config, iterations),
      .def = "1600",
      .min = 0,
      .max = 1e6,
      .doc = "Factors of Viete's product. The i-th is computed anew with i square roots, so a row "
             "costs about iterations^2 / 2 of them (1600: some 6 ms)." },
    { .name = "label",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct pi_config, label),
      .doc = "What the task stands for. Tasks that differ in it are different tasks." },
    { .name = "params",
      .type = PT_JSON,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct pi_config, params),
      .doc = "The parameters of what it stands for, any JSON. Part of the task's identity." },
    { .name = NULL },
};

static const char pi_name[] = "pi";

/* Whether every in-port has this field with this type. */
static bool common(const struct op_plan *p, const struct field *f) {
    for (int i = 1; i < p->nin; i++) {
        int k = schema_find(p->in[i], f->name);
        if (k < 0 || p->in[i]->f[k].type != f->type || p->in[i]->f[k].dim != f->dim)
            return false;
    }
    return true;
}

/* The fields that all in-ports share, in the order of the first, then pi (in its place if the input
 * has an f64 of that name: a chain of these tasks does not grow). */
static void pi_plan(struct op_plan *p) {
    const struct schema *in = p->in[0];
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + 1, &f);
    int n = 0, pi = -1;
    for (int i = 0; i < in->n; i++) {
        bool is_pi = strcmp(in->f[i].name, pi_name) == 0;
        if (is_pi && in->f[i].type != TYPE_F64)
            continue; /* replaced by ours */
        if (!common(p, &in->f[i]))
            continue;
        if (is_pi)
            pi = n;
        f[n++] = in->f[i];
    }
    if (pi < 0)
        f[n++] = (struct field){ .name = pi_name, .type = TYPE_F64 };
    out->n = n;
    if (n > SCHEMA_FIELDS_MAX)
        plan_error(p, NULL, NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    for (int i = 0; i < p->nout; i++)
        p->out[i] = out;
}

struct pi_self {
    const struct schema *schema;
    int **source; /* by in-port: the column of each output field; -1: pi */
    int nin;
};

/* The out-ports may be none (nobody reads) and may grow, so the schema is worked out again. */
static int pi_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct pi_self *s = self;
    s->nin = x->nin;
    if (x->nout == 0)
        return 0;
    s->schema = x->out[0];
    s->source = calloc((size_t)x->nin + 1, sizeof *s->source);
    if (!s->source)
        abort();
    for (int i = 0; i < x->nin; i++) {
        s->source[i] = calloc((size_t)s->schema->n + 1, sizeof **s->source);
        if (!s->source[i])
            abort();
        for (int k = 0; k < s->schema->n; k++)
            s->source[i][k] = strcmp(s->schema->f[k].name, pi_name) == 0
                                  ? -1
                                  : schema_find(x->in[i], s->schema->f[k].name);
    }
    return 0;
}

static void pi_close(void *self) {
    struct pi_self *s = self;
    for (int i = 0; s->source && i < s->nin; i++)
        free(s->source[i]);
    free(s->source);
}

/* F. Viete, 1593: 2/pi = sqrt(2)/2 * sqrt(2+sqrt(2))/2 * ... Every factor starts from the innermost
 * root again, as the original does: the work is the point. The start is volatile so that the
 * compiler cannot lift the computation out of the loop over rows. */
static double viete(int64_t iterations) {
    volatile double start = 0;
    double product = 1;
    for (int64_t i = 1; i <= iterations; i++) {
        double root = start;
        for (int64_t k = 0; k < i; k++)
            root = sqrt(2 + root);
        product *= root / 2;
    }
    return 2 / product;
}

static void pi_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    struct pi_self *s = self;
    const struct pi_config *c = x->config;
    double *v = ARENA_ARRAY(x->arena, double, b->rows);
    for (uint32_t i = 0; i < b->n; i++)
        v[batch_row(b, i)] = viete(c->iterations);
    if (x->nout == 0) {
        x->count->absorbed += b->n;
        return;
    }
    if (!s->schema)
        pi_open(self, x, NULL);
    struct column *cols = ARENA_ARRAY(x->arena, struct column, s->schema->n);
    for (int k = 0; k < s->schema->n; k++) {
        int from = s->source[port][k];
        if (from < 0)
            cols[k] = (struct column){ .f64 = v };
        else
            cols[k] = b->cols[from];
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = s->schema;
    out->cols = cols;
    /* Each row leaves once by every port: the first passes it, the others are counted as made. */
    x->count->passed += b->n;
    x->count->made += (uint64_t)(x->nout - 1) * b->n;
    for (int i = 0; i < x->nout; i++)
        op_emit(x, i, out);
}

const struct op_desc op_pi_viete = {
    .name = "pi_viete",
    .doc = "Computes pi by Viete's product for every row, as slowly as `iterations` says, and "
           "passes the row to all out-ports with the result in the field `pi`. Takes any in- and "
           "out-ports. When in-ports have different schemas, the output has the fields that all "
           "of them share. (RIoTBench PiByViete.)",
    .example = "{\"iterations\": 100, \"label\": \"align\", \"params\": {\"depth\": 3}}",
    .semantics = 1,
    .params = pi_params,
    .config_size = sizeof(struct pi_config),
    .flags = OP_DETERMINISTIC | OP_ANY_PORTS,
    .memory = MEMORY_NONE,
    .plan = pi_plan,
    .self_size = sizeof(struct pi_self),
    .open = pi_open,
    .process = pi_process,
    .close = pi_close,
};
