/* Exchanges: rows of P partitions, regrouped by key into G key groups (DESIGN 5).
 *
 * A record carries up to BATCH_ROWS rows of one producer partition for one group, as columns:
 *   struct head, i64 time[n], i64 wm[n] (streams with event time), then for each field a byte
 *   `nulls` (1: the null bits follow, in words of 8 bytes) and its values: 1 byte a bool, 8 a
 * number, 4*dim a vector; strings as u32 len[n] and their bytes. Little endian, not aligned. A
 * record without rows is a mark: the producer's watermark has risen, or its stream is idle or no
 * longer so. A row keeps the watermark of its own partition, by which late is judged; what a group
 * sees as time is the lowest watermark of all producers that are not idle, so that nothing fires
 * before all have passed it. When a producer comes back from idle, its watermark, and that of its
 * rows, is at least what the group had reached by then: the place of its record among the others
 * says where. When all are idle, the group goes on to the highest of them.
 *
 * Cost: ~12 ns a row of three fields to write, ~6 ns to read. */
#include "engine/exchange.h"
#include "engine/key.h"
#include "engine/log_rows.h"
#include "engine/op.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct head {
    uint32_t n, producer, timed, idle;
    int64_t wm; /* of the producer, after these rows */
};

#define CONF(member, text)                                                                         \
    {                                                                                              \
        .name = #member, .type = PT_I64, .offset = offsetof(struct exchange_config, member),       \
        .def = "1", .min = 1, .max = LOG_PARTITIONS_MAX, .doc = text                               \
    }
static const struct param exchange_params[] = {
    CONF(groups, "Key groups: partitions of the internal topic."),
    CONF(producers, "Partitions that feed it."),
    { .name = "producer",
      .type = PT_I64,
      .offset = offsetof(struct exchange_config, producer),
      .def = "-1",
      .min = -1,
      .max = LOG_PARTITIONS_MAX - 1,
      .doc = "The partition whose rows are read; -1: all." },
    { .name = NULL },
};

/* ---- writing ---- */

static void exchange_plan(struct op_plan *p) {
    static const struct field f[] = { { .name = "value", .type = TYPE_BYTES },
                                      { .name = "partition", .type = TYPE_I64 } };
    static const struct schema records = { .n = 2, .f = f };
    for (int k = 0; k < p->nout; k++)
        p->out[k] = strcmp(p->out_name[k], "records") == 0 ? &records : p->in[0];
}

struct exchange_self {
    int64_t sent; /* watermark that all groups have been told */
    int idle;     /* and whether the stream is idle; -1: not told yet */
    /* records of this tick */
    struct span *rec;
    int64_t *group;
    uint32_t n, cap;
    uint8_t *told; /* of this tick: the group has a record that carries the watermark */
};

static size_t field_size(const struct field *f) {
    return f->type == TYPE_BOOL ? 1 : f->type == TYPE_VEC ? 4 * (size_t)f->dim : 8;
}

static bool is_text(const struct field *f) {
    return f->type == TYPE_STR || f->type == TYPE_BYTES;
}

static size_t record_size(const struct batch *b, const uint16_t *row, uint32_t n) {
    size_t size = sizeof(struct head) + (b->time ? 16 * (size_t)n : 0);
    for (int f = 0; f < b->schema->n; f++) {
        size += 1 + (b->cols[f].nulls ? 8 * bits_words(n) : 0);
        if (!is_text(&b->schema->f[f])) {
            size += field_size(&b->schema->f[f]) * n;
            continue;
        }
        size += 4 * (size_t)n;
        for (uint32_t i = 0; i < n; i++)
            if (!column_null(&b->cols[f], row[i]))
                size += b->cols[f].str[row[i]].len;
    }
    return size;
}

static char *put_words(char *o, const int64_t *v, const uint16_t *row, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        memcpy(o + 8 * (size_t)i, &v[row[i]], 8);
    return o + 8 * (size_t)n;
}

static char *put_text(char *o, const struct column *c, const uint16_t *row, uint32_t n) {
    char *text = o + 4 * (size_t)n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len = column_null(c, row[i]) ? 0 : c->str[row[i]].len;
        memcpy(o + 4 * (size_t)i, &len, 4);
        if (len)
            memcpy(text, c->str[row[i]].p, len);
        text += len;
    }
    return text;
}

static char *put_column(char *o, const struct column *c, const struct field *f, const uint16_t *row,
                        uint32_t n) {
    *o++ = c->nulls != NULL;
    if (c->nulls) {
        memset(o, 0, 8 * bits_words(n));
        for (uint32_t i = 0; i < n; i++)
            if (column_null(c, row[i]))
                o[i >> 3] = (char)(o[i >> 3] | 1 << (i & 7));
        o += 8 * bits_words(n);
    }
    if (is_text(f))
        return put_text(o, c, row, n);
    size_t size = field_size(f);
    if (size == 8)
        return put_words(o, c->i64, row, n);
    for (uint32_t i = 0; i < n; i++)
        memcpy(o + size * i, (const char *)c->p + size * row[i], size);
    return o + size * n;
}

static void record_add(struct exchange_self *s, struct op_ctx *c, struct span rec, uint32_t group) {
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 64;
        struct span *r = ARENA_ARRAY(c->arena, struct span, cap);
        int64_t *g = ARENA_ARRAY(c->arena, int64_t, cap);
        if (s->n) {
            memcpy(r, s->rec, s->n * sizeof *r);
            memcpy(g, s->group, s->n * sizeof *g);
        }
        s->rec = r;
        s->group = g;
        s->cap = cap;
    }
    s->rec[s->n] = rec;
    s->group[s->n++] = group;
}

/* `b` NULL: a mark. The watermark in the head is filled in at the end of the tick. */
static void record_make(struct exchange_self *s, struct op_ctx *c, const struct batch *b,
                        const uint16_t *row, uint32_t n, uint32_t group) {
    size_t size = b ? record_size(b, row, n) : sizeof(struct head);
    char *p = op_alloc(c, size), *o = p + sizeof(struct head);
    struct head h = { .n = n, .timed = b && b->time, .wm = TIME_MIN };
    memcpy(p, &h, sizeof h);
    if (h.timed) {
        o = put_words(o, b->time, row, n);
        o = put_words(o, b->wm, row, n);
    }
    for (int f = 0; b && f < b->schema->n; f++)
        o = put_column(o, &b->cols[f], &b->schema->f[f], row, n);
    assert(o == p + size);
    record_add(s, c, (struct span){ .p = p, .len = (uint32_t)size }, group);
}

static void exchange_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct exchange_self *s = self;
    const struct exchange_config *conf = c->config;
    uint32_t groups = (uint32_t)conf->groups, start[LOG_PARTITIONS_MAX + 1], group[BATCH_ROWS];
    uint16_t row[BATCH_ROWS];
    (void)port;
    c->count->absorbed += b->n;
    if (groups == 1) {
        for (uint32_t i = 0; i < b->n; i++)
            row[i] = (uint16_t)batch_row(b, i);
        record_make(s, c, b, row, b->n, 0);
        return;
    }
    struct span *key = ARENA_ARRAY(c->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(c->arena, uint64_t, b->n);
    key_batch(c->arena, b, c->by, c->nby, key, hash);
    memset(start, 0, (groups + 1) * sizeof *start);
    for (uint32_t i = 0; i < b->n; i++) {
        group[i] = key_partition(key[i], groups);
        start[group[i] + 1]++;
    }
    for (uint32_t g = 0; g < groups; g++)
        start[g + 1] += start[g];
    for (uint32_t i = 0; i < b->n; i++) /* a counting sort: rows of a group stay in order */
        row[start[group[i]]++] = (uint16_t)batch_row(b, i);
    for (uint32_t g = 0, lo = 0; g < groups; lo = start[g++])
        if (start[g] > lo)
            record_make(s, c, b, row + lo, start[g] - lo, g);
}

static int64_t origin_wm(const struct origin *o) {
    if (!o || !o->wm)
        return TIME_MIN;
    return o->n ? o->wm[o->n - 1] : o->wm_before;
}

/* Whether groups that got no rows in this tick need a mark. */
static bool must_tell(struct exchange_self *s, int64_t wm, bool idle) {
    bool tell = wm > s->sent || s->idle != idle;
    s->sent = wm > s->sent ? wm : s->sent;
    s->idle = idle;
    return tell;
}

static void exchange_end(void *self, struct op_ctx *c) {
    struct exchange_self *s = self;
    const struct exchange_config *conf = c->config;
    int64_t wm = origin_wm(c->origin);
    bool idle = c->origin && c->origin->idle, tell = must_tell(s, wm, idle);
    struct column *cols;
    memset(s->told, 0, (size_t)conf->groups);
    for (uint32_t i = 0; i < s->n; i++)
        s->told[s->group[i]] = 1;
    for (uint32_t g = 0; tell && g < (uint32_t)conf->groups; g++)
        if (!s->told[g])
            record_make(s, c, NULL, NULL, 0, g);
    memset(s->told, 0, (size_t)conf->groups);
    for (uint32_t i = s->n; i-- > 0;) { /* a group's last record: rows before it are of this tick */
        struct head h;
        char *p = (char *)s->rec[i].p;
        memcpy(&h, p, sizeof h);
        h.wm = s->told[s->group[i]] ? TIME_MIN : wm;
        h.idle = idle;
        h.producer = c->origin ? c->origin->partition : 0;
        memcpy(p, &h, sizeof h);
        s->told[s->group[i]] = 1;
    }
    for (uint32_t i = 0; i < s->n; i += BATCH_ROWS) {
        uint32_t n = s->n - i < BATCH_ROWS ? s->n - i : BATCH_ROWS;
        struct batch *b = ARENA_NEW(c->arena, struct batch);
        cols = arena_zalloc(c->arena, 2 * sizeof *cols);
        cols[0].str = s->rec + i;
        cols[1].i64 = s->group + i;
        int64_t *off = ARENA_ARRAY(c->arena, int64_t, n);
        for (uint32_t k = 0; k < n; k++)
            off[k] = c->origin ? c->origin->off0 : 0;
        *b = (struct batch){ .schema = c->out[0], .cols = cols, .rows = n, .n = n, .off = off };
        c->count->made += n;
        op_emit(c, 0, b);
    }
    s->n = s->cap = 0;
}

static int exchange_open(void *self, struct op_ctx *c, struct err *e) {
    struct exchange_self *s = self;
    const struct exchange_config *conf = c->config;
    s->told = calloc((size_t)conf->groups, 1);
    s->sent = TIME_MIN;
    s->idle = -1;
    return s->told ? 0 : err_errno(e, ENOMEM, "exchange");
}

/* After an undo or a restart the groups are told again; what they know changes nothing. */
static void exchange_rebuild(void *self, struct op_ctx *c) {
    struct exchange_self *s = self;
    (void)c;
    s->sent = TIME_MIN;
    s->idle = -1;
    s->n = s->cap = 0;
}

static void exchange_close(void *self) {
    struct exchange_self *s = self;
    free(s->told);
}

static const char *const exchange_ports[] = { "records", "rows", NULL };
const struct op_desc op_exchange = {
    .name = "exchange",
    .doc =
        "Stage before a task that needs rows regrouped by key: rows as columnar records, one for "
        "each key group.",
    .semantics = 1,
    .params = exchange_params,
    .config_size = sizeof(struct exchange_config),
    .out_ports = exchange_ports,
    .flags = OP_DETERMINISTIC | OP_INNER | OP_KEYED | OP_ORDERED | OP_EXCHANGE,
    .memory = MEMORY_UNBOUNDED,
    .plan = exchange_plan,
    .self_size = sizeof(struct exchange_self),
    .open = exchange_open,
    .process = exchange_process,
    .end = exchange_end,
    .rebuild = exchange_rebuild,
    .close = exchange_close,
};
const struct op_desc op_exchange_append = {
    .name = "exchange_append",
    .doc = "Stage of an exchange: appends its records to the internal topic.",
    .semantics = 1,
    .params = exchange_params,
    .config_size = sizeof(struct exchange_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_SINK | OP_EXCHANGE,
    .memory = MEMORY_UNBOUNDED,
};

/* ---- reading ---- */

/* A producer that has been idle: kept for good. */
struct silence {
    int64_t raised; /* what the group had reached when its rows came back */
    int64_t idle;   /* 1: they have not */
};
struct producer {
    int64_t wm;
    struct silence s;
};
struct reader_self {
    struct state *state;       /* u32 producer -> int64: its watermark */
    struct state *silences;    /* u32 producer -> struct silence */
    struct producer *from;     /* the same */
    uint32_t first, producers; /* whose rows it reads: first..producers-1 */
    int64_t min;               /* what the group has reached; never falls */
    bool all_idle;
};

static void reader_min(struct reader_self *s) {
    int64_t min = TIME_MAX, max = TIME_MIN;
    s->all_idle = true;
    for (uint32_t i = s->first; i < s->producers; i++) {
        const struct producer *p = &s->from[i];
        max = p->wm > max ? p->wm : max;
        if (p->s.idle)
            continue;
        s->all_idle = false;
        min = p->wm < min ? p->wm : min;
    }
    min = s->all_idle ? max : min;
    s->min = min > s->min ? min : s->min;
}

static void silence_put(struct reader_self *s, uint32_t i, bool idle) {
    struct silence *v = state_edit(s->silences, &i, sizeof i, state_hash(&i, sizeof i), NULL);
    v->idle = idle;
    if (!idle)
        v->raised = s->min;
    else
        v->raised = s->from[i].s.raised;
    s->from[i].s = *v;
}

/* What the head of a record says of its producer. The watermark is that after its rows. */
static void producer_says(struct reader_self *s, const struct head *h) {
    struct producer *p = &s->from[h->producer];
    bool turns = (p->s.idle != 0) != (h->idle != 0);
    if (turns)
        silence_put(s, h->producer, h->idle);
    int64_t wm = h->wm > p->s.raised ? h->wm : p->s.raised;
    if (wm > p->wm) {
        uint64_t hash = state_hash(&h->producer, sizeof h->producer);
        int64_t *v = state_edit(s->state, &h->producer, sizeof h->producer, hash, NULL);
        *v = wm;
        p->wm = wm;
        turns = true;
    }
    if (turns)
        reader_min(s);
}

static void reader_rebuild(void *self, struct op_ctx *c) {
    struct reader_self *s = self;
    (void)c;
    for (uint32_t i = s->first; i < s->producers; i++) {
        uint64_t hash = state_hash(&i, sizeof i);
        const int64_t *v = state_find(s->state, &i, sizeof i, hash);
        const struct silence *q = state_find(s->silences, &i, sizeof i, hash);
        s->from[i].wm = v ? *v : TIME_MIN;
        s->from[i].s = q ? *q : (struct silence){ .raised = TIME_MIN };
    }
    s->min = TIME_MIN;
    reader_min(s);
}

static int reader_open(void *self, struct op_ctx *c, struct err *e) {
    struct reader_self *s = self;
    const struct exchange_config *conf = c->config;
    s->first = conf->producer < 0 ? 0 : (uint32_t)conf->producer;
    s->producers = conf->producer < 0 ? (uint32_t)conf->producers : s->first + 1;
    s->from = calloc(s->producers, sizeof *s->from);
    s->state = op_state(c, 0, sizeof(int64_t));
    s->silences = op_state(c, 1, sizeof(struct silence));
    if (!s->from)
        return err_errno(e, ENOMEM, "exchange");
    reader_rebuild(self, c);
    return 0;
}

static void reader_close(void *self) {
    struct reader_self *s = self;
    free(s->from);
}

/* Cursor over one record. */
struct cut {
    const char *p;
    struct head h;
    int64_t raised; /* its rows are late by this watermark at least */
};

static const char *take_words(int64_t *to, const char *p, uint32_t n) {
    memcpy(to, p, 8 * (size_t)n);
    return p + 8 * (size_t)n;
}

/* Rows at..at+n-1 of the column are those of this record. */
static const char *take_column(struct op_ctx *c, struct column *col, const struct field *f,
                               const char *p, uint32_t at, uint32_t n, uint32_t rows) {
    if (*p++) {
        if (!col->nulls)
            col->nulls = batch_nulls(c->arena, rows);
        for (uint32_t i = 0; i < n; i++)
            if (p[i >> 3] >> (i & 7) & 1)
                bit_set((uint64_t *)col->nulls, at + i);
        p += 8 * bits_words(n);
    }
    if (!is_text(f)) {
        size_t size = field_size(f);
        memcpy((char *)col->p + size * at, p, size * n);
        return p + size * n;
    }
    struct span *v = (struct span *)col->p + at;
    const char *text = p + 4 * (size_t)n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t len;
        memcpy(&len, p + 4 * (size_t)i, 4);
        v[i] = (struct span){ .p = text, .len = len };
        text += len;
    }
    return text;
}

/* Records first..last-1, `rows` rows in all, as one batch; their bytes stay where they are. */
static void emit_rows(struct op_ctx *c, const struct cut *cut, uint32_t first, uint32_t last,
                      uint32_t rows, const struct origin *o) {
    const struct schema *schema = c->out[0];
    struct column *cols = arena_zalloc(c->arena, sizeof *cols * (size_t)(schema->n + 1));
    for (int f = 0; f < schema->n; f++) {
        const struct field *fd = &schema->f[f];
        size_t size = is_text(fd) ? sizeof(struct span) : field_size(fd);
        cols[f].p = op_alloc(c, rows * size + 1);
    }
    struct batch *b = ARENA_NEW(c->arena, struct batch);
    int64_t *off = ARENA_ARRAY(c->arena, int64_t, rows),
            *sub = ARENA_ARRAY(c->arena, int64_t, rows);
    int64_t *time = ARENA_ARRAY(c->arena, int64_t, rows),
            *wm = ARENA_ARRAY(c->arena, int64_t, rows);
    bool timed = false;
    for (uint32_t k = first, at = 0; k < last; k++) {
        uint32_t n = cut[k].h.n;
        const char *p = cut[k].p + sizeof(struct head);
        if (n == 0) /* a mark ends with its head */
            continue;
        if (cut[k].h.timed) {
            p = take_words(time + at, p, n);
            p = take_words(wm + at, p, n);
            for (uint32_t i = at; i < at + n && cut[k].raised > TIME_MIN; i++)
                wm[i] = wm[i] > cut[k].raised ? wm[i] : cut[k].raised;
            timed = true;
        }
        for (int f = 0; f < schema->n; f++)
            p = take_column(c, &cols[f], &schema->f[f], p, at, n, rows);
        for (uint32_t i = 0; i < n; i++) {
            off[at + i] = o->off0 + k;
            sub[at + i] = i;
        }
        at += n;
    }
    *b = (struct batch){ .schema = schema,
                         .cols = cols,
                         .rows = rows,
                         .n = rows,
                         .off = off,
                         .sub = sub,
                         .time = timed ? time : NULL,
                         .wm = timed ? wm : NULL,
                         .origin = o };
    op_emit(c, 0, b);
}

static void reader_records(void *self, struct op_ctx *c, const struct log_rows *rows, int64_t off,
                           struct origin *o) {
    struct reader_self *s = self;
    struct cut *cut = ARENA_ARRAY(c->arena, struct cut, rows->n);
    int64_t *wm = ARENA_ARRAY(c->arena, int64_t, rows->n);
    uint32_t start = 0, first = 0, held = 0;
    (void)off;
    o->wm_before = s->min;
    for (uint32_t k = 0; k < rows->n; k++) {
        cut[k].p = rows->values + start;
        memcpy(&cut[k].h, cut[k].p, sizeof cut[k].h);
        start = rows->value_end[k] & ~LOG_NULL;
        uint32_t from = cut[k].h.producer;
        if (from >= s->first && from < s->producers) {
            producer_says(s, &cut[k].h);
            cut[k].raised = s->from[from].s.raised;
        } else {
            cut[k].h.n = 0;
        }
        wm[k] = s->min;
    }
    o->wm = wm;
    o->idle = s->all_idle;
    for (uint32_t k = 0; k < rows->n; k++) {
        if (held + cut[k].h.n > BATCH_ROWS) {
            emit_rows(c, cut, first, k, held, o);
            first = k;
            held = 0;
        }
        held += cut[k].h.n;
    }
    if (held)
        emit_rows(c, cut, first, rows->n, held, o);
}

static const char *const reader_ports[] = { "in", NULL };
const struct op_desc op_exchange_read = {
    .name = "exchange_read",
    .doc = "Stage of an exchange: rows of one key group, from all partitions.",
    .semantics = 1,
    .state_version = 1,
    .params = exchange_params,
    .config_size = sizeof(struct exchange_config),
    .in_ports = reader_ports, /* the link says whose topic it reads */
    .flags = OP_DETERMINISTIC | OP_INNER | OP_SOURCE | OP_EXCHANGE,
    .memory = MEMORY_UNBOUNDED,
    .self_size = sizeof(struct reader_self),
    .open = reader_open,
    .records = reader_records,
    .rebuild = reader_rebuild,
    .close = reader_close,
};
