/* interpolate: a missing value becomes the mean of the last W values seen of that key and field.
 * RIoTBench task INP (micro-benchmark 14). What it wrote itself never enters the history. */
#include "engine/op.h"
#include "operators/keyed.h"
#include "operators/mean.h"
#include "operators/names.h"
#include "operators/rows.h"
#include <stdlib.h>

enum { HISTORY_NULL, HISTORY_ZERO };
enum { WINDOW_MAX = 1024, VALUE_MAX = 1 << 20 /* bytes of state a key */ };
struct interpolate_config {
    struct strs fields;
    int64_t window;
    int no_history;
    const char *name_field, *value_field;
};

static const char *const history_words[] = { "null", "0", NULL };
static const struct param interpolate_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct interpolate_config, fields),
      .doc = "The f64 fields to repair; with `name_field`, the observation names." },
    { .name = "window",
      .type = PT_I64,
      .offset = offsetof(struct interpolate_config, window),
      .def = "5",
      .min = 0,
      .max = WINDOW_MAX,
      .doc = "How many values of the past the mean is taken of; 0 passes everything unchanged." },
    { .name = "no_history",
      .type = PT_ENUM,
      .offset = offsetof(struct interpolate_config, no_history),
      .def = "\"null\"",
      .words = history_words,
      .doc =
          "What a missing value becomes when its key and field had none before: `null` or `0`." },
    { .name = "name_field",
      .type = PT_FIELD,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct interpolate_config, name_field),
      .doc = "For rows of one observation each: the field that names it. Needs `value_field`." },
    { .name = "value_field",
      .type = PT_FIELD,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct interpolate_config, value_field),
      .doc = "For rows of one observation each: the field with its value." },
    { .name = NULL },
};

/* A key's value in the table: n lists of `window` doubles, oldest first, then n lengths. */
struct interpolate_self {
    struct state *table;
    int n, window, no_history;
    bool exploded;
    int name_col, value_col;
    int *fields;
    struct names names;
};

static void interpolate_plan(struct op_plan *p) {
    const struct interpolate_config *c = p->config;
    p->out[0] = p->in[0];
    if (!c->fields.n)
        plan_error(p, "fields", NULL, "no fields given");
    plan_once(p, "fields", &c->fields);
    if (c->fields.n > SCHEMA_FIELDS_MAX)
        plan_error(p, "fields", NULL, "at most %d fields are allowed", SCHEMA_FIELDS_MAX);
    if (c->window * c->fields.n * (int64_t)sizeof(double) > VALUE_MAX)
        plan_error(p, "window", NULL,
                   "%d fields of %lld values are more than %d KiB of state for each key",
                   c->fields.n, (long long)c->window, VALUE_MAX >> 10);
    if (!c->name_field && !c->value_field) {
        for (int i = 0; i < c->fields.n; i++)
            plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], TYPE_BIT(TYPE_F64));
    } else if (!c->name_field || !c->value_field) {
        plan_error(p, c->name_field ? "name_field" : "value_field", NULL,
                   "name_field and value_field go together");
    } else {
        plan_field(p, 0, "name_field", NULL, c->name_field, TYPE_BIT(TYPE_STR));
        plan_field(p, 0, "value_field", NULL, c->value_field, TYPE_BIT(TYPE_F64));
    }
}

static int interpolate_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct interpolate_self *s = self;
    const struct interpolate_config *c = x->config;
    *s = (struct interpolate_self){ .n = c->fields.n,
                                    .window = (int)c->window,
                                    .no_history = c->no_history,
                                    .exploded = c->name_field != NULL };
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n && !s->exploded; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    if (s->exploded) {
        s->name_col = schema_find(x->in[0], c->name_field);
        s->value_col = schema_find(x->in[0], c->value_field);
    }
    names_open(&s->names, s->n, c->fields.v);
    size_t size = (size_t)s->n * ((size_t)s->window * sizeof(double) + sizeof(uint32_t));
    s->table = op_state(x, 0, (uint32_t)size);
    return 0;
}

static void interpolate_close(void *self) {
    struct interpolate_self *s = self;
    names_close(&s->names);
    free(s->fields);
}

static inline size_t list_at(const struct interpolate_self *s, int i) {
    return (size_t)i * (size_t)s->window;
}

static inline void remember(const struct interpolate_self *s, void *value, int i, double v) {
    uint32_t *n = (void *)((double *)value + list_at(s, s->n));
    n[i] = keyed_push((double *)value + list_at(s, i), n[i], (uint32_t)s->window, v);
}

/* False: there is nothing to put in (the value stays null). `value` NULL: the key is new. */
static bool repair(const struct interpolate_self *s, const void *value, int i, double *v) {
    const uint32_t *n = value ? (const void *)((const double *)value + list_at(s, s->n)) : NULL;
    if (!n || n[i] == 0) {
        *v = 0;
        return s->no_history == HISTORY_ZERO;
    }
    *v = mean_exact((const double *)value + list_at(s, i), (int)n[i]);
    return true;
}

/* Copies of a column's values and null bits, made when the first value of the batch is repaired. */
struct patch {
    double *v;
    uint64_t *nulls;
};

static void patch_set(struct patch *w, struct op_ctx *x, const struct batch *b, int col,
                      uint32_t row, double v) {
    if (!w->v) {
        w->v = ARENA_ARRAY(x->arena, double, b->rows);
        memcpy(w->v, b->cols[col].f64, b->rows * sizeof(double));
        w->nulls = rows_nulls_copy(x->arena, b->cols[col].nulls, b->rows);
    }
    w->v[row] = v;
    bit_clear(w->nulls, row);
}

/* ~25 ns a row for the key and ~2 ns a value. A row without values leaves no trace in the state. */
static void process_wide(struct interpolate_self *s, struct op_ctx *x, const struct batch *b,
                         struct keyed *keyed, struct patch *patch) {
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool any = false, created;
        for (int k = 0; k < s->n && !any; k++)
            any = !column_null(&b->cols[s->fields[k]], r);
        void *own = any ? keyed_edit(keyed, i, &created) : NULL;
        const void *value = any ? own : keyed_find(keyed, i);
        for (int k = 0; k < s->n; k++) {
            const struct column *c = &b->cols[s->fields[k]];
            double v;
            if (!column_null(c, r))
                remember(s, own, k, c->f64[r]);
            else if (repair(s, value, k, &v))
                patch_set(&patch[k], x, b, s->fields[k], r, v);
        }
    }
}

/* ~10 ns a row when records are of several rows. */
static void process_exploded(struct interpolate_self *s, struct op_ctx *x, const struct batch *b,
                             struct keyed *keyed, struct patch *patch) {
    const struct column *name = &b->cols[s->name_col], *c = &b->cols[s->value_col];
    names_begin(&s->names);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        if (column_null(name, r))
            continue;
        int k = names_find(&s->names, name->str[r]);
        if (k < 0)
            continue;
        bool created;
        double v;
        if (!column_null(c, r))
            remember(s, keyed_edit(keyed, i, &created), k, c->f64[r]);
        else if (repair(s, keyed_find(keyed, i), k, &v))
            patch_set(patch, x, b, s->value_col, r, v);
    }
}

static void interpolate_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct interpolate_self *s = self;
    x->count->passed += b->n;
    if (s->window == 0) {
        op_emit(x, 0, b);
        return;
    }
    struct patch *patch = arena_zalloc(x->arena, sizeof *patch * (size_t)s->n);
    struct keyed keyed = keyed_batch(x, s->table, b);
    int patches = s->exploded ? 1 : s->n;
    if (s->exploded)
        process_exploded(s, x, b, &keyed, patch);
    else
        process_wide(s, x, b, &keyed, patch);
    struct column *cols = NULL;
    for (int k = 0; k < patches; k++) {
        if (!patch[k].v)
            continue;
        if (!cols)
            cols = batch_cols(x->arena, b, 0);
        cols[s->exploded ? s->value_col : s->fields[k]] =
            (struct column){ .f64 = patch[k].v, .nulls = patch[k].nulls };
    }
    if (cols) {
        struct batch *out = batch_copy(x->arena, b);
        out->cols = cols;
        b = out;
    }
    op_emit(x, 0, b);
}

const struct op_desc op_interpolate = {
    .name = "interpolate",
    .doc = "Repairs missing values: a null becomes the mean of the last `window` values of the "
           "same key (`by`) and field, not counting means that it wrote before. Works on rows of "
           "many fields, and with `name_field` and `value_field` on rows of one observation each; "
           "names that are not listed pass unchanged. Memory: 8 bytes x window x fields a key. "
           "(RIoTBench INP.)",
    .example = "{\"fields\": [\"temperature\", \"humidity\"], \"window\": 5}",
    .semantics = 1,
    .state_version = 1,
    .params = interpolate_params,
    .config_size = sizeof(struct interpolate_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = interpolate_plan,
    .self_size = sizeof(struct interpolate_self),
    .open = interpolate_open,
    .process = interpolate_process,
    .close = interpolate_close,
};
