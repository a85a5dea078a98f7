/* annotate: adds columns from a static table by key (a hash join). RIoTBench task ANN
 * (micro-benchmark 1); a miss never repeats an older row's annotation, as the original does. */
#include "engine/key.h"
#include "engine/num.h"
#include "engine/op.h"
#include "operators/rows.h"
#include "operators/shared.h"
#include <stdlib.h>

enum { MISS_NULL, MISS_DROP, MISS_REJECT };
struct annotate_config {
    struct file *table;
    const char *key, *key_separator, *separator;
    const struct schema *columns;
    int on_miss;
};

static const char *const miss_words[] = { "null", "drop", "reject", NULL };
static const struct param annotate_params[] = {
    { .name = "table",
      .type = PT_FILE,
      .offset = offsetof(struct annotate_config, table),
      .doc = "File with one entry a line: `key:a,b`. Empty lines are skipped; of two lines with "
             "one key the first counts." },
    { .name = "key",
      .type = PT_FIELD,
      .offset = offsetof(struct annotate_config, key),
      .doc = "The string field to look up." },
    { .name = "columns",
      .type = PT_SCHEMA,
      .offset = offsetof(struct annotate_config, columns),
      .doc = "Names and types of the columns that are added, in the order of the table: "
             "`{\"location\": \"string\", \"age\": \"i64\"}`. An empty cell is null." },
    { .name = "key_separator",
      .type = PT_STR,
      .offset = offsetof(struct annotate_config, key_separator),
      .def = "\":\"",
      .doc = "Text between the key and the columns." },
    { .name = "separator",
      .type = PT_STR,
      .offset = offsetof(struct annotate_config, separator),
      .def = "\",\"",
      .doc = "Text between two columns." },
    { .name = "on_miss",
      .type = PT_ENUM,
      .offset = offsetof(struct annotate_config, on_miss),
      .def = "\"null\"",
      .words = miss_words,
      .doc = "What happens to a row whose key is not in the table (or null): the columns are "
             "`null`, the row is dropped (`drop`), or it becomes a dead letter (`reject`)." },
    { .name = NULL },
};

/* ---- the table: built once, read-only, shared ---- */

struct slot {
    uint64_t hash;
    uint32_t row; /* UINT32_MAX: free */
    uint32_t pad;
};
union cell {
    int64_t i64;
    double f64;
    struct span str;
};
struct table {
    char *text; /* own copy of the file: strings of rows point into it */
    struct slot *slots;
    uint64_t mask;
    uint32_t rows;
    struct span *key;
    union cell *cell; /* row after row */
    bool *null;
    int ncols;
};

static void table_drop(void *p) {
    struct table *t = p;
    free(t->text);
    free(t->slots);
    free(t->key);
    free(t->cell);
    free(t->null);
    free(t);
}

/* The row of a key, or UINT32_MAX. ~5 ns in cache; a large table costs two misses, which
 * prefetching overlaps. */
static inline uint32_t table_find(const struct table *t, struct span key, uint64_t hash) {
    for (uint64_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        const struct slot *s = &t->slots[i];
        if (s->row == UINT32_MAX)
            return UINT32_MAX;
        if (s->hash == hash && t->key[s->row].len == key.len &&
            memcmp(t->key[s->row].p, key.p, key.len) == 0)
            return s->row;
    }
}

static const char *find_text(const char *p, const char *end, const char *what) {
    return memmem(p, (size_t)(end - p), what, strlen(what));
}

static int read_cell(const struct annotate_config *c, int col, const char *p, const char *end,
                     union cell *out, bool *null, uint64_t line, struct err *e) {
    *null = p == end;
    if (*null)
        return 0;
    int rc = 0;
    switch (c->columns->f[col].type) {
    case TYPE_I64:
        rc = num_i64_whole(p, end, &out->i64);
        break;
    case TYPE_F64:
        rc = num_f64_whole(p, end, &out->f64);
        break;
    default:
        out->str = (struct span){ .p = p, .len = (uint32_t)(end - p) };
        rc = utf8_valid(p, end) ? 0 : -1;
    }
    if (rc < 0)
        return err_set(e, ERR_INPUT, "table '%s' line %llu: '%.*s' in column '%s' is no %s",
                       c->table->name, (unsigned long long)line, end - p > 60 ? 60 : (int)(end - p),
                       p, c->columns->f[col].name, type_names[c->columns->f[col].type]);
    return 0;
}

/* One line p..end into row t->rows. */
static int read_line(struct table *t, const struct annotate_config *c, const char *p,
                     const char *end, uint64_t line, struct err *e) {
    const char *sep = find_text(p, end, c->key_separator);
    const char *key_end = sep ? sep : end;
    t->key[t->rows] = (struct span){ .p = p, .len = (uint32_t)(key_end - p) };
    p = sep ? sep + strlen(c->key_separator) : NULL;
    for (int i = 0; i < t->ncols; i++) {
        size_t at = (size_t)t->rows * (size_t)t->ncols + (size_t)i;
        if (!p)
            return err_set(e, ERR_INPUT, "table '%s' line %llu has %d columns, not %d",
                           c->table->name, (unsigned long long)line, i, t->ncols);
        const char *stop = find_text(p, end, c->separator), *to = stop ? stop : end;
        int rc = read_cell(c, i, p, to, &t->cell[at], &t->null[at], line, e);
        if (rc < 0)
            return rc;
        p = stop ? stop + strlen(c->separator) : NULL;
    }
    if (p)
        return err_set(e, ERR_INPUT, "table '%s' line %llu has more than %d columns",
                       c->table->name, (unsigned long long)line, t->ncols);
    return 0;
}

static void table_add(struct table *t) {
    struct span key = t->key[t->rows];
    uint64_t hash = state_hash(key.p, key.len);
    if (table_find(t, key, hash) != UINT32_MAX)
        return; /* the first line of a key counts */
    uint64_t i = hash & t->mask;
    while (t->slots[i].row != UINT32_MAX)
        i = (i + 1) & t->mask;
    t->slots[i] = (struct slot){ .hash = hash, .row = t->rows };
    t->rows++;
}

static struct table *table_new(const struct annotate_config *c) {
    struct table *t = calloc(1, sizeof *t);
    size_t lines = 1, n = 16;
    for (size_t i = 0; i < c->table->len; i++)
        lines += c->table->data[i] == '\n';
    while (n < lines * 2)
        n *= 2;
    if (!t)
        abort();
    t->ncols = c->columns->n;
    t->mask = n - 1;
    t->text = malloc(c->table->len + 1);
    t->slots = malloc(n * sizeof *t->slots);
    t->key = calloc(lines, sizeof *t->key);
    t->cell = calloc(lines * (size_t)t->ncols + 1, sizeof *t->cell);
    t->null = calloc(lines * (size_t)t->ncols + 1, sizeof *t->null);
    if (!t->text || !t->slots || !t->key || !t->cell || !t->null)
        abort();
    memcpy(t->text, c->table->data, c->table->len);
    for (size_t i = 0; i < n; i++)
        t->slots[i].row = UINT32_MAX;
    return t;
}

static int build_table(void *arg, void **out, struct err *e) {
    const struct annotate_config *c = arg;
    struct table *t = table_new(c);
    const char *p = t->text, *end = t->text + c->table->len;
    for (uint64_t line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *from = p;
        p = nl ? nl + 1 : end;
        if (stop > from && stop[-1] == '\r')
            stop--;
        if (stop == from)
            continue;
        int rc = read_line(t, c, from, stop, line, e);
        if (rc < 0) {
            table_drop(t);
            return rc;
        }
        table_add(t);
    }
    *out = t;
    return 0;
}

/* ---- the operator ---- */

struct annotate_self {
    struct table *table;
    int key, on_miss;
};

static void annotate_plan(struct op_plan *p) {
    const struct annotate_config *c = p->config;
    const struct schema *in = p->in[0], *add = c->columns;
    plan_field(p, 0, "key", NULL, c->key, TYPE_BIT(TYPE_STR));
    if (!*c->key_separator || !*c->separator)
        plan_error(p, *c->separator ? "key_separator" : "separator", NULL, "must not be empty");
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + add->n, &f);
    memcpy(f, in->f, (size_t)in->n * sizeof *f);
    for (int i = 0; i < add->n; i++) {
        f[in->n + i] = add->f[i];
        if (schema_find(in, add->f[i].name) >= 0)
            plan_error(p, "columns", add->f[i].name, "the input has a field '%s' already",
                       add->f[i].name);
        if (!(TYPE_BIT(add->f[i].type) & (TYPES_NUM | TYPE_BIT(TYPE_STR))))
            plan_error(p, "columns", add->f[i].name, "must be string, i64 or f64, not %s",
                       type_names[add->f[i].type]);
    }
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, "columns", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    if (!add->n)
        plan_error(p, "columns", NULL, "no columns given");
    p->out[0] = out;
}

static int annotate_open(void *self, struct op_ctx *x, struct err *e) {
    struct annotate_self *s = self;
    const struct annotate_config *c = x->config;
    s->key = schema_find(x->in[0], c->key);
    s->on_miss = c->on_miss;
    struct arena a = { 0 };
    const char *key =
        arena_printf(&a, "annotate %s %zu %s %zu %s", c->table->hash, strlen(c->key_separator),
                     c->key_separator, strlen(c->separator), c->separator);
    for (int i = 0; i < c->columns->n; i++)
        key = arena_printf(&a, "%s %d", key, (int)c->columns->f[i].type);
    void *table = NULL;
    int rc = shared_get(key, build_table, (void *)c, table_drop, &table, e);
    s->table = table;
    arena_free(&a);
    return rc;
}

static void annotate_close(void *self) {
    struct annotate_self *s = self;
    shared_put(s->table);
}

/* hit[i]: row of the table for row i of the batch. Returns the number of misses. ~15 ns a row. */
static uint32_t look_up(struct annotate_self *s, struct op_ctx *x, const struct batch *b,
                        uint32_t *hit) {
    const struct table *t = s->table;
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    const uint64_t *nulls = b->cols[s->key].nulls;
    uint32_t misses = 0;
    key_batch(x->arena, b, &s->key, 1, key, hash);
    for (uint32_t i = 0; i < b->n; i++)
        __builtin_prefetch(&t->slots[hash[i] & t->mask]);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = t->slots[hash[i] & t->mask].row;
        if (row == UINT32_MAX)
            continue;
        __builtin_prefetch(&t->key[row]);
        __builtin_prefetch(&t->cell[(size_t)row * (size_t)t->ncols]);
    }
    for (uint32_t i = 0; i < b->n; i++) {
        bool null = bit_get(nulls, batch_row(b, i));
        hit[i] = null ? UINT32_MAX : table_find(t, key[i], hash[i]);
        misses += hit[i] == UINT32_MAX;
    }
    return misses;
}

/* The added columns. Rows that no selection lists stay undefined. */
static struct column *add_columns(struct annotate_self *s, struct op_ctx *x, const struct batch *b,
                                  const uint32_t *hit) {
    const struct table *t = s->table;
    struct column *cols = batch_cols(x->arena, b, t->ncols);
    for (int c = 0; c < t->ncols; c++) {
        bool str = x->out[0]->f[b->schema->n + c].type == TYPE_STR;
        void *v = op_alloc(x, b->rows * (str ? sizeof(struct span) : sizeof(int64_t)));
        uint64_t *nulls = batch_nulls(x->arena, b->rows), any = 0;
        for (uint32_t i = 0; i < b->n; i++) {
            uint32_t r = batch_row(b, i);
            size_t at = (size_t)hit[i] * (size_t)t->ncols + (size_t)c;
            bool null = hit[i] == UINT32_MAX || t->null[at];
            nulls[r >> 6] |= (uint64_t)null << (r & 63);
            any |= null;
            if (null)
                continue;
            if (str)
                ((struct span *)v)[r] = t->cell[at].str;
            else
                ((int64_t *)v)[r] = t->cell[at].i64; /* 8 bytes of either number */
        }
        cols[b->schema->n + c] = (struct column){ .p = v, .nulls = any ? nulls : NULL };
    }
    return cols;
}

static void annotate_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct annotate_self *s = self;
    uint32_t *hit = ARENA_ARRAY(x->arena, uint32_t, b->n);
    uint32_t misses = look_up(s, x, b, hit);
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = add_columns(s, x, b, hit);
    if (misses && s->on_miss != MISS_NULL) {
        uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
        out->n = 0;
        for (uint32_t i = 0; i < b->n; i++) {
            uint32_t r = batch_row(b, i);
            if (hit[i] != UINT32_MAX)
                sel[out->n++] = (uint16_t)r;
            else if (s->on_miss == MISS_REJECT)
                op_reject(x, b, r, "no_entry", "'%.*s' is not in the table",
                          column_null(&b->cols[s->key], r) ? 4 : (int)b->cols[s->key].str[r].len,
                          column_null(&b->cols[s->key], r) ? "null" : b->cols[s->key].str[r].p);
        }
        out->sel = sel;
        if (s->on_miss == MISS_DROP)
            x->count->filtered += misses;
    }
    x->count->passed += out->n;
    op_emit(x, 0, out);
}

const struct op_desc op_annotate = {
    .name = "annotate",
    .doc = "Adds columns from a static table, looked up by a string field. The table is a file of "
           "the dataflow, signed by its content; equal tables are held in memory once. "
           "(RIoTBench ANN.)",
    .example = "{\"table\": \"city-metadata.txt\", \"key\": \"source\", "
               "\"columns\": {\"location\": \"string\", \"type\": \"string\"}}",
    .semantics = 1,
    .params = annotate_params,
    .config_size = sizeof(struct annotate_config),
    .flags = OP_DETERMINISTIC | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = annotate_plan,
    .self_size = sizeof(struct annotate_self),
    .open = annotate_open,
    .process = annotate_process,
    .close = annotate_close,
};
