/* bloom_filter: keeps rows whose key is (probably) one of a list of members. RIoTBench task BLF
 * (micro-benchmark 5), with the members given as text and the filter built from them. */
#include "engine/key.h"
#include "engine/num.h"
#include "engine/op.h"
#include "operators/bloom.h"
#include "operators/rows.h"
#include "operators/shared.h"
#include <stdio.h>
#include <stdlib.h>

enum { MODE_DROP, MODE_NULL };
enum { FILTER_MAX = 256 << 20 }; /* bytes; the filter of RIoTBench has 23 MiB */
struct bloom_config {
    const char *field;
    struct file *members;
    const char *separator;
    int64_t expected_insertions;
    double false_positive;
    int mode;
    struct strs fields;
};

static const char *const mode_words[] = { "drop", "null", NULL };
static const struct param bloom_params[] = {
    { .name = "field",
      .type = PT_FIELD,
      .offset = offsetof(struct bloom_config, field),
      .doc = "The field to test. A null is no member." },
    { .name = "members",
      .type = PT_FILE,
      .offset = offsetof(struct bloom_config, members),
      .doc = "File with one member a line; empty lines are skipped." },
    { .name = "separator",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct bloom_config, separator),
      .doc = "Only the part of a line before this text is the member, so that the first column of "
             "a table can be used." },
    { .name = "expected_insertions",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct bloom_config, expected_insertions),
      .min = 1,
      .max = 1e9,
      .doc = "Size the filter for this many members (of at most 256 MiB: 200 million at 1 %); "
             "default: as many as the file has." },
    { .name = "false_positive",
      .type = PT_F64,
      .offset = offsetof(struct bloom_config, false_positive),
      .def = "0.01",
      .min = 1e-6,
      .max = 0.5,
      .doc = "Share of the non-members that pass." },
    { .name = "mode",
      .type = PT_ENUM,
      .offset = offsetof(struct bloom_config, mode),
      .def = "\"drop\"",
      .words = mode_words,
      .doc = "What happens to rows of non-members: `drop` them, or set `fields` to `null`." },
    { .name = "fields",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct bloom_config, fields),
      .doc = "The fields that mode `null` sets to null." },
    { .name = NULL },
};

struct bloom_self {
    struct bloom *filter;
    int field, mode, n;
    int *fields; /* to be set to null */
};

static void bloom_plan(struct op_plan *p) {
    const struct bloom_config *c = p->config;
    p->out[0] = p->in[0];
    plan_field(p, 0, "field", NULL, c->field,
               TYPES_NUM | TYPE_BIT(TYPE_STR) | TYPE_BIT(TYPE_BYTES));
    if (c->separator && !*c->separator)
        plan_error(p, "separator", NULL,
                   "the separator is empty; leave it out to take whole lines");
    int probes;
    if (c->expected_insertions != PARAM_UNSET &&
        bloom_blocks((uint64_t)c->expected_insertions, c->false_positive, &probes) >
            FILTER_MAX / (BLOOM_BLOCK_BITS / 8))
        plan_error(p, "expected_insertions", NULL,
                   "a filter for %lld members with so few false positives is larger than %d MiB",
                   (long long)c->expected_insertions, FILTER_MAX >> 20);
    for (int i = 0; i < c->fields.n; i++)
        plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], 0);
    plan_once(p, "fields", &c->fields);
    if (c->mode == MODE_NULL && !c->fields.n)
        plan_error(p, "fields", NULL, "mode 'null' needs 'fields': the ones to set to null");
    if (c->mode == MODE_DROP && c->fields.n)
        plan_error(p, "fields", NULL, "'fields' is for mode 'null'; mode 'drop' drops whole rows");
}

/* Next non-empty member of *p..end, or false. *line counts lines. */
static bool next_member(const struct bloom_config *c, const char **p, const char *end,
                        struct span *out, uint64_t *line) {
    while (*p < end) {
        const char *nl = memchr(*p, '\n', (size_t)(end - *p)), *stop = nl ? nl : end, *from = *p;
        *p = nl ? nl + 1 : end;
        ++*line;
        if (stop > from && stop[-1] == '\r')
            stop--;
        if (c->separator) {
            const char *sep =
                memmem(from, (size_t)(stop - from), c->separator, strlen(c->separator));
            stop = sep ? sep : stop;
        }
        if (stop == from)
            continue;
        *out = (struct span){ .p = from, .len = (uint32_t)(stop - from) };
        return true;
    }
    return false;
}

struct build {
    const struct bloom_config *config;
    const struct field *field;
};

/* Adds n members, spelled in text[0..n), under the hash that key_batch gives rows of such values.
 */
static int add_members(const struct build *u, struct bloom *f, const struct span *text, uint32_t n,
                       struct arena *a, uint64_t line, struct err *e) {
    union {
        int64_t *i64;
        double *f64;
    } v = { .i64 = ARENA_ARRAY(a, int64_t, n) };
    struct column col = { .str = text };
    if (u->field->type == TYPE_I64 || u->field->type == TYPE_F64)
        col.p = v.i64;
    for (uint32_t i = 0; i < n && col.p == v.i64; i++) {
        const char *p = text[i].p, *end = p + text[i].len;
        int rc = u->field->type == TYPE_I64 ? num_i64_whole(p, end, &v.i64[i])
                                            : num_f64_whole(p, end, &v.f64[i]);
        if (rc < 0)
            return err_set(e, ERR_INPUT, "members file '%s': '%.*s' (up to line %llu) is no %s",
                           u->config->members->name, text[i].len > 60 ? 60 : (int)text[i].len, p,
                           (unsigned long long)line, type_names[u->field->type]);
    }
    struct schema schema = { .n = 1, .f = u->field };
    struct batch b = { .schema = &schema, .cols = &col, .rows = n, .n = n };
    struct span *key = ARENA_ARRAY(a, struct span, n);
    uint64_t *hash = ARENA_ARRAY(a, uint64_t, n);
    key_batch(a, &b, (int[]){ 0 }, 1, key, hash);
    for (uint32_t i = 0; i < n; i++)
        bloom_add(f, hash[i]);
    return 0;
}

static int build_filter(void *arg, void **out, struct err *e) {
    const struct build *u = arg;
    const struct file *file = u->config->members;
    const char *p = file->data, *end = file->data + file->len;
    struct span one, text[BATCH_ROWS];
    uint64_t members = 0, line = 0;
    while (next_member(u->config, &p, end, &one, &line))
        members++;
    uint64_t want = u->config->expected_insertions == PARAM_UNSET
                        ? members
                        : (uint64_t)u->config->expected_insertions;
    struct bloom *f = bloom_new(want > members ? want : members, u->config->false_positive);
    struct arena a = { 0 };
    int rc = 0;
    p = file->data;
    line = 0;
    for (bool more = true; more && rc == 0; arena_reset(&a)) {
        uint32_t n = 0;
        while (n < BATCH_ROWS && (more = next_member(u->config, &p, end, &text[n], &line)))
            n++;
        rc = add_members(u, f, text, n, &a, line, e);
    }
    arena_free(&a);
    if (rc < 0)
        bloom_free(f);
    else
        *out = f;
    return rc;
}

static void drop_filter(void *f) {
    bloom_free(f);
}

static int bloom_open(void *self, struct op_ctx *x, struct err *e) {
    struct bloom_self *s = self;
    const struct bloom_config *c = x->config;
    s->field = schema_find(x->in[0], c->field);
    s->mode = c->mode;
    s->n = c->fields.n;
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    if (!s->fields)
        abort();
    for (int i = 0; i < s->n; i++)
        s->fields[i] = schema_find(x->in[0], c->fields.v[i]);
    uint64_t rate;
    memcpy(&rate, &c->false_positive, sizeof rate);
    struct build u = { .config = c, .field = &x->in[0]->f[s->field] };
    struct arena a = { 0 };
    const char *key = arena_printf(&a, "bloom %s %lld %llx %d %s", c->members->hash,
                                   (long long)c->expected_insertions, (unsigned long long)rate,
                                   (int)u.field->type, c->separator ? c->separator : "");
    void *filter = NULL;
    int rc = shared_get(key, build_filter, &u, drop_filter, &filter, e);
    s->filter = filter;
    arena_free(&a);
    return rc;
}

static void bloom_close(void *self) {
    struct bloom_self *s = self;
    shared_put(s->filter);
    free(s->fields);
}

/* Bits of the rows that are no members. ~8 ns a row beside the hash; one cache miss each for a
 * filter larger than the cache, overlapped by the first pass. */
static uint64_t *strangers(struct bloom_self *s, struct op_ctx *x, const struct batch *b,
                           uint32_t *count) {
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    uint64_t *out = batch_nulls(x->arena, b->rows);
    key_batch(x->arena, b, &s->field, 1, key, hash);
    const uint64_t *nulls = b->cols[s->field].nulls;
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        bloom_prefetch(s->filter, hash[i]);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        unsigned no = (unsigned)bit_get(nulls, r) | !bloom_test(s->filter, hash[i]); /* no branch */
        out[r >> 6] |= (uint64_t)no << (r & 63);
        n += no;
    }
    *count = n;
    return out;
}

/* The batch with the fields of these rows set to null. */
static const struct batch *with_nulls(struct bloom_self *s, struct op_ctx *x, const struct batch *b,
                                      const uint64_t *rows) {
    struct column *cols = batch_cols(x->arena, b, 0);
    uint64_t *fresh = batch_nulls(x->arena, b->rows);
    for (int i = 0; i < s->n; i++) {
        const uint64_t *old = b->cols[s->fields[i]].nulls;
        for (size_t w = 0; w < bits_words(b->rows); w++)
            fresh[w] = rows[w] & ~(old ? old[w] : 0);
        x->count->nulled += rows_count(b, fresh);
        cols[s->fields[i]].nulls = rows_nulls_or(x->arena, old, rows, b->rows);
    }
    struct batch *out = batch_copy(x->arena, b);
    out->cols = cols;
    return out;
}

static void bloom_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct bloom_self *s = self;
    uint32_t n;
    const uint64_t *no = strangers(s, x, b, &n);
    if (s->mode == MODE_DROP) {
        const struct batch *out = rows_without(x->arena, b, no);
        x->count->passed += out->n;
        x->count->filtered += n;
        op_emit(x, 0, out);
        return;
    }
    x->count->passed += b->n;
    op_emit(x, 0, n ? with_nulls(s, x, b, no) : b);
}

const struct op_desc op_bloom_filter = {
    .name = "bloom_filter",
    .doc = "Passes rows whose key is one of a list of members, by a Bloom filter: no member is "
           "ever lost, and of the others a share of `false_positive` passes. The list is a file "
           "of the dataflow, signed by its content; equal filters are held in memory once. "
           "(RIoTBench BLF.)",
    .example = "{\"field\": \"source\", \"members\": \"members.txt\"}",
    .semantics = 1,
    .params = bloom_params,
    .config_size = sizeof(struct bloom_config),
    .flags = OP_DETERMINISTIC | OP_KEEPS,
    .memory = MEMORY_NONE,
    .plan = bloom_plan,
    .self_size = sizeof(struct bloom_self),
    .open = bloom_open,
    .process = bloom_process,
    .close = bloom_close,
};
