/* range_filter: values must lie within inclusive bounds, else their row is dropped or marked, or
 * they become null. RIoTBench task RGF (micro-benchmark 6); nulls count as inside, as there. */
#include "engine/op.h"
#include "operators/names.h"
#include "operators/rows.h"
#include <math.h>
#include <stdlib.h>

enum { MODE_DROP, MODE_NULL, MODE_FLAG };
struct range_config {
    struct ranges ranges;
    int mode;
    const char *name_field, *value_field, *flag;
};

static const char *const mode_words[] = { "drop", "null", "flag", NULL };
static const struct param range_params[] = {
    { .name = "ranges",
      .type = PT_RANGES,
      .offset = offsetof(struct range_config, ranges),
      .doc = "Bounds by field, both inclusive: `{\"temperature\": [-12.5, 43.1]}`. With "
             "`name_field`, bounds by observation name." },
    { .name = "mode",
      .type = PT_ENUM,
      .offset = offsetof(struct range_config, mode),
      .def = "\"drop\"",
      .words = mode_words,
      .doc = "What happens outside: `drop` the row, set the value to `null`, or pass the row and "
             "say so in a bool field (`flag`)." },
    { .name = "name_field",
      .type = PT_FIELD,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct range_config, name_field),
      .doc = "For rows of one observation each: the field that names it. Needs `value_field`." },
    { .name = "value_field",
      .type = PT_FIELD,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct range_config, value_field),
      .doc = "For rows of one observation each: the field with its value." },
    { .name = "flag",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct range_config, flag),
      .doc = "Mode `flag`: the added field, true when all values are inside. Default: "
             "`in_range`." },
    { .name = NULL },
};

struct bound {
    int field; /* wide rows only */
    enum type type;
    double lo, hi;
    int64_t ilo, ihi; /* the integers within lo..hi; none when ilo > ihi */
};
struct range_self {
    struct bound *bound;
    int n, mode;
    bool exploded;
    int name_col, value_col;
    struct names names;
};

/* The output of mode `flag`: the input and the flag. */
static const struct schema *flag_schema(struct op_plan *p, const struct range_config *c) {
    const char *name = c->flag ? c->flag : "in_range";
    struct field *f;
    struct schema *out = schema_new(p->arena, p->in[0]->n + 1, &f);
    memcpy(f, p->in[0]->f, (size_t)p->in[0]->n * sizeof *f);
    f[p->in[0]->n] = (struct field){ .name = name, .type = TYPE_BOOL };
    if (schema_find(p->in[0], name) >= 0)
        plan_error(p, c->flag ? "flag" : "mode", NULL, "the input has a field '%s' already", name);
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "mode", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    return out;
}

static void range_plan(struct op_plan *p) {
    const struct range_config *c = p->config;
    p->out[0] = c->mode == MODE_FLAG ? flag_schema(p, c) : p->in[0];
    if (c->flag && c->mode != MODE_FLAG)
        plan_error(p, "flag", NULL, "'flag' is for mode 'flag'");
    if (!c->ranges.n)
        plan_error(p, "ranges", NULL, "no ranges given");
    for (int i = 0; i < c->ranges.n; i++)
        if (c->ranges.v[i].lo > c->ranges.v[i].hi)
            plan_error(p, "ranges", c->ranges.v[i].name, "the lower bound is above the upper");
    if (!c->name_field && !c->value_field) {
        for (int i = 0; i < c->ranges.n; i++)
            plan_field(p, 0, "ranges", c->ranges.v[i].name, c->ranges.v[i].name, TYPES_NUM);
    } else if (!c->name_field || !c->value_field) {
        plan_error(p, c->name_field ? "name_field" : "value_field", NULL,
                   "name_field and value_field go together");
    } else {
        plan_field(p, 0, "name_field", NULL, c->name_field, TYPE_BIT(TYPE_STR));
        plan_field(p, 0, "value_field", NULL, c->value_field, TYPES_NUM);
    }
}

/* The integers within lo..hi: compared as integers, because doubles beyond 2^53 have gaps. */
static void integer_bounds(struct bound *b) {
    double lo = ceil(b->lo), hi = floor(b->hi);
    b->ilo = lo >= 0x1p63 ? INT64_MAX : lo <= -0x1p63 ? INT64_MIN : (int64_t)lo;
    b->ihi = hi >= 0x1p63 ? INT64_MAX : hi < -0x1p63 ? INT64_MIN : (int64_t)hi;
    if (lo >= 0x1p63 || hi < -0x1p63) { /* the whole range is beyond int64 */
        b->ilo = 1;
        b->ihi = 0;
    }
}

static int range_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct range_self *s = self;
    const struct range_config *c = x->config;
    *s = (struct range_self){ .n = c->ranges.n, .mode = c->mode };
    s->bound = calloc((size_t)s->n + 1, sizeof *s->bound);
    const char **name = calloc((size_t)s->n + 1, sizeof *name);
    if (!s->bound || !name)
        abort();
    s->exploded = c->name_field;
    if (s->exploded) {
        s->name_col = schema_find(x->in[0], c->name_field);
        s->value_col = schema_find(x->in[0], c->value_field);
    }
    for (int i = 0; i < s->n; i++) {
        const struct range *r = &c->ranges.v[i];
        int field = s->exploded ? s->value_col : schema_find(x->in[0], r->name);
        s->bound[i] = (struct bound){
            .field = field, .type = x->in[0]->f[field].type, .lo = r->lo, .hi = r->hi
        };
        integer_bounds(&s->bound[i]);
        name[i] = r->name;
    }
    names_open(&s->names, s->n, name);
    free(name);
    return 0;
}

static void range_close(void *self) {
    struct range_self *s = self;
    names_close(&s->names);
    free(s->bound);
}

/* Bit r of out: value r is outside and not null. All physical rows are looked at, selected or not:
 * without branches this costs ~0.7 ns a value. Returns whether any bit is set. */
static bool outside_bits(const struct bound *b, const struct column *c, uint32_t rows,
                         uint64_t *out) {
    uint64_t any = 0;
    for (uint32_t w = 0, r = 0; r < rows; w++) {
        uint64_t bits = 0;
        uint32_t n = rows - r < 64 ? rows - r : 64;
        if (b->type == TYPE_F64) {
            const double *v = c->f64 + r;
            for (uint32_t i = 0; i < n; i++)
                bits |= (uint64_t)((v[i] < b->lo) | (v[i] > b->hi)) << i;
        } else {
            const int64_t *v = c->i64 + r;
            for (uint32_t i = 0; i < n; i++)
                bits |= (uint64_t)((v[i] < b->ilo) | (v[i] > b->ihi)) << i;
        }
        if (c->nulls)
            bits &= ~c->nulls[w];
        out[w] = bits;
        any |= bits;
        r += n;
    }
    return any;
}

static void emit_dropped(struct op_ctx *x, const struct batch *b, const uint64_t *drop) {
    const struct batch *out = rows_without(x->arena, b, drop);
    x->count->passed += out->n;
    x->count->filtered += b->n - out->n;
    op_emit(x, 0, out);
}

static void emit_flagged(struct op_ctx *x, const struct batch *b, const uint64_t *outside) {
    struct batch *out = batch_copy(x->arena, b);
    struct column *cols = batch_cols(x->arena, b, 1);
    uint8_t *flag = ARENA_ARRAY(x->arena, uint8_t, b->rows);
    for (uint32_t r = 0; r < b->rows; r++)
        flag[r] = !bit_get(outside, r);
    cols[b->schema->n] = (struct column){ .b = flag };
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

static void process_wide(struct range_self *s, struct op_ctx *x, const struct batch *b) {
    size_t words = bits_words(b->rows);
    uint64_t *bits = ARENA_ARRAY(x->arena, uint64_t, words);
    uint64_t *drop = batch_nulls(x->arena, b->rows);
    struct column *cols = s->mode == MODE_NULL ? batch_cols(x->arena, b, 0) : NULL;
    for (int i = 0; i < s->n; i++) {
        int f = s->bound[i].field;
        if (!outside_bits(&s->bound[i], &b->cols[f], b->rows, bits))
            continue;
        if (cols) {
            cols[f].nulls = rows_nulls_or(x->arena, b->cols[f].nulls, bits, b->rows);
            x->count->nulled += rows_count(b, bits);
        }
        for (size_t w = 0; w < words; w++)
            drop[w] |= bits[w];
    }
    if (s->mode == MODE_FLAG)
        emit_flagged(x, b, drop);
    else if (s->mode == MODE_DROP)
        emit_dropped(x, b, drop);
    if (!cols)
        return;
    struct batch *out = batch_copy(x->arena, b);
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

/* ~4 ns a row. */
static void process_exploded(struct range_self *s, struct op_ctx *x, const struct batch *b) {
    const struct column *name = &b->cols[s->name_col], *value = &b->cols[s->value_col];
    bool f64 = x->in[0]->f[s->value_col].type == TYPE_F64;
    uint64_t *bits = batch_nulls(x->arena, b->rows);
    names_begin(&s->names);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        if (column_null(name, r) || column_null(value, r))
            continue;
        int k = names_find(&s->names, name->str[r]);
        if (k < 0)
            continue;
        const struct bound *d = &s->bound[k];
        bool out = f64 ? (value->f64[r] < d->lo) | (value->f64[r] > d->hi)
                       : (value->i64[r] < d->ilo) | (value->i64[r] > d->ihi);
        bits[r >> 6] |= (uint64_t)out << (r & 63);
    }
    if (s->mode == MODE_FLAG)
        emit_flagged(x, b, bits);
    else if (s->mode == MODE_DROP)
        emit_dropped(x, b, bits);
    if (s->mode != MODE_NULL)
        return;
    struct batch *out = batch_copy(x->arena, b);
    struct column *cols = batch_cols(x->arena, b, 0);
    cols[s->value_col].nulls = rows_nulls_or(x->arena, value->nulls, bits, b->rows);
    out->cols = cols;
    x->count->nulled += rows_count(b, bits);
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

static void range_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct range_self *s = self;
    if (s->exploded)
        process_exploded(s, x, b);
    else
        process_wide(s, x, b);
}

const struct op_desc op_range_filter = {
    .name = "range_filter",
    .doc =
        "Checks that values lie within bounds. A row with a value outside is dropped or marked, "
        "or the value becomes null. Null values count as inside. Works on rows of many fields, and "
        "with `name_field` and `value_field` on rows of one observation each; names without a "
        "range pass. (RIoTBench RGF.)",
    .example = "{\"ranges\": {\"temperature\": [-12.5, 43.1]}, \"mode\": \"null\"}",
    .semantics = 1,
    .params = range_params,
    .config_size = sizeof(struct range_config),
    .flags = OP_DETERMINISTIC,
    .memory = MEMORY_NONE,
    .plan = range_plan,
    .self_size = sizeof(struct range_self),
    .open = range_open,
    .process = range_process,
    .close = range_close,
};
