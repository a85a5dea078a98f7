/* lag: adds to every row what fields of it were n rows ago, for each key.
 *
 * A key's value, fields of fixed size: the number of rows kept (8 bytes), then the rows, oldest
 * first, each a word of null bits and 8 bytes a field. With strings among the fields: the number of
 * rows (4 bytes), then for each its length (4 bytes) and the bytes of row_bytes.h. Lists instead of
 * rings, so that equal pasts are equal bytes. */
#include "operators/keyed.h"
#include "operators/row_bytes.h"
#include <stdlib.h>

enum { LAG_FIELDS_MAX = 64, VALUE_MAX = 1 << 20 /* bytes of state a key */ };
struct lag_config {
    struct strs fields;
    int64_t rows;
    const char *suffix;
};
static const struct param lag_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .offset = offsetof(struct lag_config, fields),
      .doc = "The fields whose former values are added." },
    { .name = "rows",
      .type = PT_I64,
      .offset = offsetof(struct lag_config, rows),
      .def = "1",
      .min = 1,
      .max = 10000,
      .doc = "How many rows of the key to look back; 1 is the row before. Rows with a null count, "
             "too." },
    { .name = "suffix",
      .type = PT_STR,
      .offset = offsetof(struct lag_config, suffix),
      .def = "\"_lag\"",
      .doc = "The added fields are called as the field and this. They are null in the first `rows` "
             "rows of a key." },
    { .name = NULL },
};

struct lag_self {
    struct state *table;
    int n, *fields;
    uint32_t rows, stride; /* stride: words of a kept row, fixed form */
    bool texts;
    struct field f[LAG_FIELDS_MAX];
};

static bool is_text(enum type t) {
    return t == TYPE_STR || t == TYPE_BYTES;
}

static void lag_plan(struct op_plan *p) {
    const struct lag_config *c = p->config;
    const struct schema *in = p->in[0];
    unsigned any = TYPES_NUM | TYPE_BIT(TYPE_BOOL) | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES);
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + c->fields.n, &f);
    memcpy(f, in->f, (size_t)in->n * sizeof *f);
    if (!c->fields.n)
        plan_error(p, "fields", NULL, "no fields given");
    if (c->fields.n > LAG_FIELDS_MAX)
        plan_error(p, "fields", NULL, "%d fields; at most %d are allowed", c->fields.n,
                   LAG_FIELDS_MAX);
    if (c->rows * (c->fields.n + 1) * (int64_t)sizeof(uint64_t) > VALUE_MAX)
        plan_error(p, "rows", NULL,
                   "%d fields of %lld rows are more than %d KiB of state for each key", c->fields.n,
                   (long long)c->rows, VALUE_MAX >> 10);
    for (int i = 0; i < c->fields.n; i++) {
        const char *from = c->fields.v[i];
        const char *name = arena_printf(p->arena, "%s%s", from, c->suffix);
        int k = plan_field(p, 0, "fields", from, from, any);
        for (int j = 0; j < in->n + i; j++)
            if (strcmp(f[j].name, name) == 0)
                plan_error(p, j < in->n ? "suffix" : "fields", j < in->n ? NULL : from,
                           "the output would have two fields '%s'", name);
        f[in->n + i] = (struct field){ .name = name, .type = k < 0 ? TYPE_I64 : in->f[k].type };
    }
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "fields", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    p->out[0] = out;
}

static int lag_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct lag_self *s = self;
    const struct lag_config *c = x->config;
    s->n = c->fields.n;
    s->rows = (uint32_t)c->rows;
    s->stride = 1 + (uint32_t)s->n;
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n; i++) {
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
        s->f[i] = x->in[0]->f[s->fields[i]];
        s->texts |= is_text(s->f[i].type);
    }
    size_t size = sizeof(uint64_t) * (1 + (size_t)s->rows * s->stride);
    s->table = op_state(x, 0, s->texts ? 0 : (uint32_t)size);
    return 0;
}
static void lag_close(void *self) {
    free(((struct lag_self *)self)->fields);
}

/* ---- fields of fixed size ---- */

static void keep_words(const struct lag_self *s, const struct batch *b, uint32_t r, uint64_t *to) {
    to[0] = 0;
    for (int k = 0; k < s->n; k++) {
        const struct column *c = &b->cols[s->fields[k]];
        uint64_t null = column_null(c, r);
        to[0] |= null << k;
        to[1 + k] = null ? 0 : s->f[k].type == TYPE_BOOL ? c->b[r] != 0 : (uint64_t)c->i64[r];
    }
}
/* Row `from` (NULL: none) becomes row r of the added columns. */
static void add_words(const struct lag_self *s, const uint64_t *from, struct column *cols,
                      uint32_t r) {
    for (int k = 0; k < s->n; k++) {
        if (!from || from[0] >> k & 1)
            bit_set((uint64_t *)cols[k].nulls, r);
        else if (s->f[k].type == TYPE_BOOL)
            ((uint8_t *)cols[k].p)[r] = (uint8_t)from[1 + k];
        else
            ((uint64_t *)cols[k].p)[r] = from[1 + k];
    }
}
/* ~25 ns a row for the key and ~0.2 ns for each word that moves up. */
static void lag_words(struct lag_self *s, const struct batch *b, struct keyed *keyed,
                      struct column *cols) {
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        bool created;
        uint64_t *v = keyed_edit(keyed, i, &created), *list = v + 1;
        bool full = v[0] == s->rows;
        add_words(s, full ? list : NULL, cols, r);
        if (full)
            memmove(list, list + s->stride, (s->rows - 1) * (size_t)s->stride * sizeof *list);
        else
            v[0]++;
        keep_words(s, b, r, list + (v[0] - 1) * s->stride);
    }
}

/* ---- with strings ---- */

static void add_nulls(const struct lag_self *s, struct column *cols, uint32_t r) {
    for (int k = 0; k < s->n; k++)
        bit_set((uint64_t *)cols[k].nulls, r);
}
/* One row of a key into its list; false: the list would be too long. */
static bool lag_text(struct lag_self *s, struct op_ctx *x, const struct batch *b, uint32_t r,
                     const struct span *key, uint64_t hash, struct column *cols) {
    uint32_t len = 0, count = 0, first = 0;
    const char *old = state_get(s->table, key->p, key->len, hash, &len);
    struct span row = row_pack(x->arena, b, s->fields, s->n, r);
    if (old)
        memcpy(&count, old, sizeof count);
    bool full = count == s->rows;
    if (full)
        memcpy(&first, old + 4, sizeof first);
    size_t gone = full ? 4 + (size_t)first : 0, kept = old ? len - 4 - gone : 0;
    size_t size = 4 + kept + 4 + row.len;
    if (size > VALUE_MAX)
        return false;
    if (full) {
        struct span was = { .p = arena_strndup(x->arena, old + 8, first), .len = first };
        row_unpack(x->arena, was, s->f, s->n, cols, r, b->rows);
    } else {
        add_nulls(s, cols, r);
        count++;
    }
    char *value = op_alloc(x, size), *o = value;
    memcpy(o, &count, 4);
    o += 4;
    if (kept)
        memcpy(o, old + 4 + gone, kept);
    o += kept;
    memcpy(o, &row.len, 4);
    if (row.len)
        memcpy(o + 4, row.p, row.len);
    state_put(s->table, key->p, key->len, hash, value, (uint32_t)size);
    return true;
}
/* The rows that could be taken. ~70 ns a row and the copy of the key's list. */
static const struct batch *lag_texts(struct lag_self *s, struct op_ctx *x, const struct batch *b,
                                     struct keyed *keyed, struct column *cols) {
    uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        if (keyed->rows)
            keyed_at(keyed, i);
        if (lag_text(s, x, b, r, &keyed->key[i], keyed->hash[i], cols))
            sel[n++] = (uint16_t)r;
        else
            op_reject(x, b, r, "too_long", "the last %u rows of the key are longer than %d KiB",
                      s->rows, VALUE_MAX >> 10);
    }
    return n == b->n ? b : batch_select(x->arena, b, sel, n);
}

static void lag_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct lag_self *s = self;
    struct keyed keyed = keyed_batch(x, s->table, b);
    struct column *more = row_columns(x->arena, s->f, s->n, b->rows);
    struct column *cols = batch_cols(x->arena, b, s->n);
    for (int k = 0; k < s->n; k++)
        more[k].nulls = batch_nulls(x->arena, b->rows);
    if (s->texts)
        b = lag_texts(s, x, b, &keyed, more);
    else
        lag_words(s, b, &keyed, more);
    memcpy(cols + b->schema->n, more, (size_t)s->n * sizeof *more);
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

const struct op_desc op_lag = {
    .name = "lag",
    .doc =
        "Adds to every row the values that fields of it had `rows` rows ago, for each key (`by`) "
        "or over all rows; null in the first rows. A change from row to row is then an "
        "expression: `x - x_lag`. Memory: 8 bytes x `rows` for each field and 8 more, for each "
        "key; of strings their bytes, at most 1 MiB a key, beyond which a row becomes a dead "
        "letter (`too_long`).",
    .example = "{\"fields\": [\"temperature\"], \"rows\": 1}",
    .semantics = 1,
    .state_version = 1,
    .params = lag_params,
    .config_size = sizeof(struct lag_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = lag_plan,
    .self_size = sizeof(struct lag_self),
    .open = lag_open,
    .process = lag_process,
    .close = lag_close,
};
