/* lookup_join: rows of a stream with the row of a table that has their key: the version valid at
 * their event time, or the newest one read. */
#include "operators/asof.h"
#include "operators/row_bytes.h"
#include "operators/rows.h"

enum { VERSION_TIME, VERSION_NEWEST };
static const char *const version_words[] = { "time", "newest", NULL };
static const char *const lookup_ports[] = { "in", "table", NULL };

struct lookup_join_config {
    struct join_params join;
    int version;
    const char *deleted;
};
static const struct param lookup_join_params[] = {
    { .name = "version",
      .type = PT_ENUM,
      .offset = offsetof(struct lookup_join_config, version),
      .def = "\"time\"",
      .words = version_words,
      .doc = "Which row of the table: the one valid at the row's event `time`, for which rows wait "
             "until the watermark of both inputs has passed them; or the `newest` one read before "
             "the row, without waiting beyond the order in which the inputs are merged." },
    { .name = "deleted",
      .type = PT_FIELD,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct lookup_join_config, deleted),
      .doc = "A bool field of `table`: where it is true the key has no row from then on." },
    JOIN_PARAMS(struct lookup_join_config, join, join_inner_left,
                "`inner`: only rows whose key is in the table. `left`: all of them, the table's "
                "fields null where it is not."),
    { .name = NULL },
};

struct lookup_self {
    struct asof asof; /* version time */
    bool newest, inner;
    int deleted;
    int64_t max_rows;
    struct state *table; /* version newest: key -> row_pack */
};

static void lookup_join_plan(struct op_plan *p) {
    const struct lookup_join_config *c = p->config;
    if (c->deleted)
        plan_field(p, 1, "deleted", NULL, c->deleted, TYPE_BIT(TYPE_BOOL));
    join_plan(p, &c->join);
}

static int lookup_join_open(void *self, struct op_ctx *x, struct err *e) {
    struct lookup_self *s = self;
    const struct lookup_join_config *c = x->config;
    (void)e;
    s->asof.tolerance = PARAM_UNSET;
    s->newest = c->version == VERSION_NEWEST;
    s->inner = c->join.type == JOIN_INNER;
    s->max_rows = c->join.max_rows;
    s->deleted = c->deleted ? schema_find(x->in[1], c->deleted) : -1;
    if (s->newest) {
        s->table = op_state(x, 0, 0);
    } else {
        join_open(&s->asof.joins, x, &asof_table_kind, &c->join);
        s->asof.joins.deleted = s->deleted;
    }
    return 0;
}

/* ---- version newest ---- */

static bool null_key(const struct batch *b, const struct op_by *by, uint32_t row) {
    for (int k = 0; k < by->n; k++)
        if (column_null(&b->cols[by->field[k]], row))
            return true;
    return false;
}

static void table_rows(struct lookup_self *s, struct op_ctx *x, const struct batch *b,
                       const struct span *key, const uint64_t *hash) {
    const struct column *gone = s->deleted < 0 ? NULL : &b->cols[s->deleted];
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i), vlen;
        if (null_key(b, &x->keys[1], row)) {
            x->count->filtered++;
            continue;
        }
        if (gone && !column_null(gone, row) && gone->b[row]) {
            state_drop(s->table, key[i].p, key[i].len, hash[i]);
            x->count->absorbed++;
            continue;
        }
        if (state_count(s->table) >= (uint64_t)s->max_rows &&
            !state_get(s->table, key[i].p, key[i].len, hash[i], &vlen)) {
            op_reject(x, b, row, "too_many_rows", "the table would have more than %lld rows",
                      (long long)s->max_rows);
            continue;
        }
        struct span v = row_pack(x->arena, b, NULL, b->schema->n, row);
        state_put(s->table, key[i].p, key[i].len, hash[i], v.p, v.len);
        x->count->absorbed++;
    }
}

/* Rows of both inputs alternate: a run is often a few rows of a large batch, whose columns are not
 * worth as much memory again. */
static const struct batch *dense(struct op_ctx *x, const struct batch *b) {
    if (2 * b->n >= b->rows)
        return b;
    const struct schema *s = b->schema;
    uint16_t *row = ARENA_ARRAY(x->arena, uint16_t, b->n);
    struct column *cols;
    for (uint32_t i = 0; i < b->n; i++)
        row[i] = (uint16_t)batch_row(b, i);
    struct batch *out = batch_make(x->arena, b, s, row, b->n, false, &cols);
    for (int i = 0; i < s->n; i++)
        cols[i] = column_gather(x->arena, &b->cols[i], &s->f[i], row, b->n);
    return out;
}

static void stream_rows(struct lookup_self *s, struct op_ctx *x, const struct batch *b,
                        const struct span *key, const uint64_t *hash) {
    const struct schema *left = x->in[0], *right = x->in[1];
    struct column *cols = batch_cols(x->arena, b, right->n);
    struct column *more = row_columns(x->arena, right->f, right->n, b->rows);
    uint64_t *miss = batch_nulls(x->arena, b->rows);
    uint32_t misses = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        struct span v = { 0 };
        if (!null_key(b, &x->keys[0], row))
            v.p = state_get(s->table, key[i].p, key[i].len, hash[i], &v.len);
        if (!v.p && s->inner) {
            bit_set(miss, row);
            misses++;
        } else {
            join_unpack(x, right, v, more, row, b->rows);
        }
    }
    for (int i = 0; i < right->n; i++)
        cols[left->n + i] = more[i];
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->filtered += misses;
    x->count->passed += b->n - misses;
    op_emit(x, 0, misses ? rows_without(x->arena, out, miss) : out);
}

static void lookup_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    struct lookup_self *s = self;
    if (!s->newest) {
        join_process(&s->asof.joins, x, port, b);
        return;
    }
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    key_batch(x->arena, b, x->keys[port].field, x->keys[port].n, key, hash);
    if (port == 1)
        table_rows(s, x, b, key, hash);
    else
        stream_rows(s, x, dense(x, b), key, hash);
}

static void lookup_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct lookup_self *s = self;
    if (s->newest)
        x->next_timer = TIME_MAX;
    else
        join_watermark(&s->asof.joins, x, wm);
}

static void lookup_rebuild(void *self, struct op_ctx *x) {
    struct lookup_self *s = self;
    if (!s->newest)
        join_rebuild(&s->asof.joins, x);
}

static void lookup_close(void *self) {
    struct lookup_self *s = self;
    join_close(&s->asof.joins);
}

const struct op_desc op_lookup_join = {
    .name = "lookup_join",
    .doc = "Gives each row of a stream (`in`) the row of a table that has its key (the inputs' "
           "`by`, field by field). The second input, `table`, is any stream in which a row "
           "replaces the row of its key from its event time on, such as a `table` source. A table "
           "row that comes late counts from then on, unless its key has a newer one by then "
           "(which makes it late). A null key matches nothing. See joins.md. Memory: the "
           "table, and the rows that wait.",
    .example = "{\"type\": \"left\", \"version\": \"newest\"}",
    .semantics = 1,
    .state_version = 1,
    .params = lookup_join_params,
    .config_size = sizeof(struct lookup_join_config),
    .in_ports = lookup_ports,
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_TIMERS | OP_KEEPS | OP_TABLE,
    .memory = MEMORY_UNBOUNDED,
    .plan = lookup_join_plan,
    .self_size = sizeof(struct lookup_self),
    .open = lookup_join_open,
    .process = lookup_process,
    .watermark = lookup_watermark,
    .rebuild = lookup_rebuild,
    .close = lookup_close,
};
