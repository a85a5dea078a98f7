/* join: observations of one record, a row each, back to one row a record. RIoTBench task Join
 * (OPERATORS 2.1): a record is complete when all its names have come; here ids that never complete
 * are given up after a time or when too many are open, oldest first, as dead letters.
 *
 * The state holds only what has come of ids that are open at the end of a batch. Nothing in it or
 * in the output depends on where batches end: whether an id is open, and which one is the oldest,
 * is a matter of the row sequence alone. */
#include "engine/key.h"
#include "engine/op.h"
#include "operators/names.h"
#include <stdio.h>
#include <stdlib.h>

enum { NEED_MAX = 64, KEY_INLINE = 24 };
struct join_config {
    const char *id, *name_field, *value_field;
    struct strs need;
    const struct schema *schema;
    int64_t timeout, max_open;
};

static const struct param join_params[] = {
    { .name = "id",
      .type = PT_FIELD,
      .offset = offsetof(struct join_config, id),
      .def = "\"msgid\"",
      .doc = "The field that all observations of one record share. With `by`, records are told "
             "apart by those fields and this one." },
    { .name = "name_field",
      .type = PT_FIELD,
      .offset = offsetof(struct join_config, name_field),
      .def = "\"obs\"",
      .doc = "The field that names the observation." },
    { .name = "value_field",
      .type = PT_FIELD,
      .offset = offsetof(struct join_config, value_field),
      .def = "\"value\"",
      .doc = "The field with its value (f64); a null counts as come." },
    { .name = "need",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct join_config, need),
      .doc = "The names that make a record complete; each becomes a column. Default: the fields of "
             "`schema` that the input does not have. Rows of other names are filtered out." },
    { .name = "schema",
      .type = PT_SCHEMA,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct join_config, schema),
      .doc = "The fields of the output in their order: needed names, and fields of the input, "
             "which come from the row that completes the record. Default: all fields of the input "
             "but `id`, `name_field` and `value_field`, then the needed names." },
    { .name = "timeout",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct join_config, timeout),
      .min = 1,
      .max = 366.0 * 86400000,
      .doc = "An id is given up when the watermark has passed the time of its first row (or the "
             "watermark then, if later) by this much; checked when rows come, oldest id first." },
    { .name = "max_open",
      .type = PT_I64,
      .offset = offsetof(struct join_config, max_open),
      .def = "10000",
      .min = 1,
      .max = 1e7,
      .doc = "At most this many ids wait for more; beyond, the oldest is given up." },
    { .name = NULL },
};

/* What has come of one id: its value in the table. */
struct record {
    int64_t off, sub;    /* position of its first row: its age */
    int64_t deadline;    /* TIME_MAX: none */
    uint64_t have, null; /* bit i: name i has come; its value is null */
    double value[];      /* one a name */
};
struct waiting { /* an open id, in order of age; it may have completed since */
    int64_t off, sub;
    uint32_t klen;
    union {
        char in[KEY_INLINE];
        char *out;
    } key;
};
struct join_self {
    struct state *table;
    struct waiting *queue; /* derived from the table: ring of cap entries */
    uint64_t head, tail, cap;
    int n; /* names */
    uint64_t all;
    int id_col, name_col, value_col;
    int64_t timeout, max_open;
    struct names names;
    int nkey, key[OP_BY_MAX + 1];
    int *source; /* output field: >= 0 input column, else ~name index */
    uint32_t size;
};

/* ---- submit time ---- */

static bool listed(const struct strs *v, const char *name) {
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->v[i], name) == 0)
            return true;
    return false;
}

/* The needed names: given, or the fields of `schema` that the input lacks. */
static struct strs needed(const struct join_config *c, const struct schema *in, struct arena *a) {
    if (c->need.n || !c->schema)
        return c->need;
    const char **v = ARENA_ARRAY(a, const char *, c->schema->n + 1);
    int n = 0;
    for (int i = 0; i < c->schema->n; i++)
        if (schema_find(in, c->schema->f[i].name) < 0)
            v[n++] = c->schema->f[i].name;
    return (struct strs){ n, v };
}

static void plan_schema(struct op_plan *p, const struct join_config *c, const struct strs *need) {
    const struct schema *in = p->in[0];
    for (int i = 0; i < c->schema->n; i++) {
        const struct field *f = &c->schema->f[i];
        if (listed(need, f->name)) {
            if (f->type != TYPE_F64)
                plan_error(p, "schema", f->name, "an observation is f64, not %s",
                           type_names[f->type]);
            continue;
        }
        int k = plan_field(p, 0, "schema", f->name, f->name, 0);
        if (k >= 0 && in->f[k].type != f->type)
            plan_error(p, "schema", f->name, "field '%s' is %s in the input, not %s", f->name,
                       type_names[in->f[k].type], type_names[f->type]);
    }
    for (int i = 0; i < need->n; i++)
        if (schema_find(c->schema, need->v[i]) < 0)
            plan_error(p, "need", need->v[i], "'%s' is not in 'schema'", need->v[i]);
    p->out[0] = c->schema;
}

static void plan_default_schema(struct op_plan *p, const struct join_config *c,
                                const struct strs *need) {
    const struct schema *in = p->in[0];
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + need->n, &f);
    int n = 0;
    for (int i = 0; i < in->n; i++) {
        const char *name = in->f[i].name;
        if (strcmp(name, c->id) == 0 || strcmp(name, c->name_field) == 0 ||
            strcmp(name, c->value_field) == 0)
            continue;
        if (listed(need, name))
            plan_error(p, "need", name, "the input has a field '%s' already", name);
        f[n++] = in->f[i];
    }
    for (int i = 0; i < need->n; i++)
        f[n++] = (struct field){ .name = need->v[i], .type = TYPE_F64 };
    out->n = n;
    if (n > SCHEMA_FIELDS_MAX)
        plan_error(p, "need", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    p->out[0] = out;
}

static void join_plan(struct op_plan *p) {
    const struct join_config *c = p->config;
    plan_field(p, 0, "id", NULL, c->id, 0);
    plan_field(p, 0, "name_field", NULL, c->name_field, TYPE_BIT(TYPE_STR));
    plan_field(p, 0, "value_field", NULL, c->value_field, TYPE_BIT(TYPE_F64));
    struct strs need = needed(c, p->in[0], p->arena);
    if (!need.n)
        plan_error(p, c->schema ? "schema" : "need", NULL,
                   "give the names that make a record complete");
    if (need.n > NEED_MAX)
        plan_error(p, "need", NULL, "%d names; at most %d are allowed", need.n, NEED_MAX);
    plan_once(p, "need", &need);
    if (c->timeout != PARAM_UNSET && !p->in_time)
        plan_error(p, "timeout", NULL, "the input carries no event time");
    if (c->schema)
        plan_schema(p, c, &need);
    else
        plan_default_schema(p, c, &need);
}

/* ---- open ---- */

static void open_key(struct join_self *s, const struct op_ctx *x) {
    bool has_id = false;
    for (int i = 0; i < x->nby; i++) {
        s->key[s->nkey++] = x->by[i];
        has_id |= x->by[i] == s->id_col;
    }
    if (!has_id)
        s->key[s->nkey++] = s->id_col;
}

static int join_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct join_self *s = self;
    const struct join_config *c = x->config;
    struct arena a = { 0 };
    struct strs need = needed(c, x->in[0], &a);
    *s = (struct join_self){ .n = need.n, .timeout = c->timeout, .max_open = c->max_open };
    s->all = need.n == 64 ? UINT64_MAX : ((uint64_t)1 << need.n) - 1;
    s->id_col = schema_find(x->in[0], c->id);
    s->name_col = schema_find(x->in[0], c->name_field);
    s->value_col = schema_find(x->in[0], c->value_field);
    open_key(s, x);
    names_open(&s->names, need.n, need.v);
    const struct schema *out = x->out[0];
    s->source = calloc((size_t)out->n + 1, sizeof *s->source);
    if (!s->source)
        abort();
    for (int i = 0; i < out->n; i++) {
        s->source[i] = schema_find(x->in[0], out->f[i].name);
        for (int k = 0; k < need.n; k++)
            if (strcmp(need.v[k], out->f[i].name) == 0)
                s->source[i] = ~k;
    }
    s->size = (uint32_t)(sizeof(struct record) + (size_t)need.n * sizeof(double));
    s->table = op_state(x, 0, s->size);
    arena_free(&a);
    return 0;
}

/* ---- the queue of open ids ---- */

static const char *waiting_key(const struct waiting *w) {
    return w->klen <= KEY_INLINE ? w->key.in : w->key.out;
}
static void waiting_free(struct waiting *w) {
    if (w->klen > KEY_INLINE)
        free(w->key.out);
}

static void queue_clear(struct join_self *s) {
    for (; s->head < s->tail; s->head++)
        waiting_free(&s->queue[s->head & (s->cap - 1)]);
    s->head = s->tail = 0;
}

static void queue_push(struct join_self *s, const struct record *r, struct span key) {
    if (s->tail - s->head == s->cap) {
        uint64_t cap = s->cap ? 2 * s->cap : 64;
        struct waiting *q = calloc(cap, sizeof *q);
        if (!q)
            abort();
        for (uint64_t i = s->head; i < s->tail; i++)
            q[i & (cap - 1)] = s->queue[i & (s->cap - 1)];
        free(s->queue);
        s->queue = q;
        s->cap = cap;
    }
    struct waiting *w = &s->queue[s->tail++ & (s->cap - 1)];
    *w = (struct waiting){ .off = r->off, .sub = r->sub, .klen = key.len };
    char *to = w->key.in;
    if (key.len > KEY_INLINE && !(to = w->key.out = malloc(key.len)))
        abort();
    memcpy(to, key.p, key.len);
}

static int by_age(const void *a, const void *b) {
    const struct waiting *x = a, *y = b;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    if (x->sub != y->sub)
        return x->sub < y->sub ? -1 : 1;
    return key_compare((struct span){ .p = waiting_key(x), .len = x->klen },
                       (struct span){ .p = waiting_key(y), .len = y->klen });
}

static void queue_rebuild(struct join_self *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    queue_clear(s);
    for (uint64_t it = 0; state_next(s->table, &it, &key, &klen, &value, &vlen);)
        queue_push(s, value, (struct span){ .p = key, .len = klen });
    if (s->tail)
        qsort(s->queue, s->tail, sizeof *s->queue, by_age);
}

static void join_rebuild(void *self, struct op_ctx *x) {
    (void)x;
    queue_rebuild(self);
}

static void join_close(void *self) {
    struct join_self *s = self;
    queue_clear(s);
    free(s->queue);
    free(s->source);
    names_close(&s->names);
}

/* Ids opened at one position (rows that a window fired together) are given up by their keys: that
 * is all that a restored queue can know. Brings the first of them to the head. */
static void tie_first(struct join_self *s) {
    uint64_t mask = s->cap - 1, min = s->head;
    const struct waiting *head = &s->queue[s->head & mask];
    for (uint64_t i = s->head + 1; i < s->tail; i++) {
        const struct waiting *w = &s->queue[i & mask];
        if (w->off != head->off || w->sub != head->sub)
            break;
        if (by_age(w, &s->queue[min & mask]) < 0)
            min = i;
    }
    if (min != s->head) {
        struct waiting w = *head;
        s->queue[s->head & mask] = s->queue[min & mask];
        s->queue[min & mask] = w;
    }
}

/* The record of the oldest open id, or NULL. Entries of ids that have completed since are passed
 * over: the age tells an id from a later one of the same key. */
static const struct record *oldest(struct join_self *s, struct span *key, uint64_t *hash) {
    for (; s->head < s->tail; s->head++) {
        tie_first(s);
        struct waiting *w = &s->queue[s->head & (s->cap - 1)];
        *key = (struct span){ .p = waiting_key(w), .len = w->klen };
        *hash = state_hash(key->p, key->len);
        const struct record *r = state_find(s->table, key->p, key->len, *hash);
        if (r && r->off == w->off && r->sub == w->sub)
            return r;
        waiting_free(w);
    }
    return NULL;
}

/* ---- giving up ---- */

/* A dead letter at the position of the record's first row. That row was counted as absorbed when it
 * came; now it is a rejected one. Counters begin anew with the process: a row that none of them
 * knows of is not counted twice. */
static void give_up(struct join_self *s, struct op_ctx *x, const struct batch *b,
                    const struct record *r, const char *code) {
    char missing[160];
    size_t len = 0;
    missing[0] = 0;
    for (int i = 0; i < s->n; i++) {
        if (r->have >> i & 1)
            continue;
        int w = snprintf(missing + len, sizeof missing - len, "%s%s", len ? ", " : "",
                         s->names.e[i].name);
        len += w > 0 && len + (size_t)w < sizeof missing ? (size_t)w : 0;
    }
    struct batch at = *b;
    int64_t off = r->off, sub = r->sub;
    at.sel = NULL;
    at.rows = at.n = 1;
    at.off = &off;
    at.sub = &sub;
    op_reject(x, &at, 0, code, "record has %d of %d observations; missing: %s",
              __builtin_popcountll(r->have), s->n, missing);
    if (x->count->absorbed)
        x->count->absorbed--;
    else
        x->count->rejected--;
}

static void give_up_oldest(struct join_self *s, struct op_ctx *x, const struct batch *b,
                           const char *code) {
    struct span key;
    uint64_t hash;
    const struct record *r = oldest(s, &key, &hash);
    if (!r)
        return;
    give_up(s, x, b, r, code);
    state_drop(s->table, key.p, key.len, hash);
    waiting_free(&s->queue[s->head++ & (s->cap - 1)]);
}

/* Ids whose time is up before a row with watermark `wm`. */
static void give_up_due(struct join_self *s, struct op_ctx *x, const struct batch *b, int64_t wm) {
    struct span key;
    uint64_t hash;
    for (const struct record *r; (r = oldest(s, &key, &hash)) && r->deadline <= wm;)
        give_up_oldest(s, x, b, "timeout");
}

/* ---- rows ---- */

/* Output columns under construction, one row a completed record. */
struct made {
    uint32_t n;
    uint16_t *src;  /* the completing row */
    double **value; /* by name */
    uint64_t **null;
};
struct run {            /* the id at hand */
    struct record *rec; /* have 0: nothing open */
    bool stored;        /* also in the table */
    uint32_t head;      /* its first row in the batch */
};

static void complete(struct join_self *s, struct made *m, const struct record *rec, uint32_t row) {
    for (int k = 0; k < s->n; k++) {
        m->value[k][m->n] = rec->value[k];
        m->null[k][m->n >> 6] |= (rec->null >> k & 1) << (m->n & 63);
    }
    m->src[m->n++] = (uint16_t)row;
}

static int64_t deadline_of(const struct join_self *s, const struct batch *b, uint32_t row) {
    if (s->timeout == PARAM_UNSET || !b->time)
        return TIME_MAX;
    int64_t t = b->time[row], wm = b->wm ? b->wm[row] : TIME_MIN, at = t > wm ? t : wm;
    return at > TIME_MAX - s->timeout ? TIME_MAX : at + s->timeout;
}

/* Keys of the first rows of runs only, made when the first one is needed. */
struct heads {
    uint32_t n;
    uint16_t *row; /* physical */
    struct span *key;
    uint64_t *hash;
};
static void heads_keys(struct join_self *s, struct op_ctx *x, const struct batch *b,
                       struct heads *h) {
    if (h->key)
        return;
    h->key = ARENA_ARRAY(x->arena, struct span, h->n);
    h->hash = ARENA_ARRAY(x->arena, uint64_t, h->n);
    const struct batch *first = batch_select(x->arena, b, h->row, h->n);
    key_batch(x->arena, first, s->key, s->nkey, h->key, h->hash);
}

static bool same_id(const struct join_self *s, const struct batch *b, uint32_t r, uint32_t q) {
    for (int i = 0; i < s->nkey; i++) {
        const struct column *c = &b->cols[s->key[i]];
        bool null = column_null(c, r);
        if (null != column_null(c, q))
            return false;
        if (null)
            continue;
        switch (b->schema->f[s->key[i]].type) {
        case TYPE_BOOL:
            if (c->b[r] != c->b[q])
                return false;
            break;
        case TYPE_I64:
            if (c->i64[r] != c->i64[q])
                return false;
            break;
        case TYPE_F64:
            if (c->f64[r] != c->f64[q])
                return false;
            break;
        case TYPE_STR:
        case TYPE_BYTES:
            if (c->str[r].len != c->str[q].len ||
                (c->str[r].p != c->str[q].p && memcmp(c->str[r].p, c->str[q].p, c->str[r].len)))
                return false;
            break;
        case TYPE_VEC: /* rare: the keys decide, run by run */
        case TYPE_COUNT:
            return false;
        }
    }
    return true;
}

/* Takes up the id of head `k`: what the table has of it, or nothing. */
static void run_begin(struct join_self *s, struct op_ctx *x, const struct batch *b, struct heads *h,
                      uint32_t k, struct run *run) {
    run->stored = false;
    run->rec->have = run->rec->null = 0;
    run->head = k;
    if (state_count(s->table) == 0)
        return;
    heads_keys(s, x, b, h);
    const void *v = state_find(s->table, h->key[k].p, h->key[k].len, h->hash[k]);
    if (v) {
        memcpy(run->rec, v, s->size);
        run->stored = true;
    }
}

/* Leaves the id: what is incomplete goes to the table. */
static void run_end(struct join_self *s, struct op_ctx *x, const struct batch *b, struct heads *h,
                    struct run *run) {
    uint32_t k = run->head;
    if (!run->rec->have && !run->stored)
        return;
    heads_keys(s, x, b, h);
    if (!run->rec->have) {
        state_drop(s->table, h->key[k].p, h->key[k].len, h->hash[k]);
        return;
    }
    bool created;
    void *v = state_edit(s->table, h->key[k].p, h->key[k].len, h->hash[k], &created);
    bool again = !created && ((struct record *)v)->off == run->rec->off &&
                 ((struct record *)v)->sub == run->rec->sub;
    memcpy(v, run->rec, s->size);
    if (again)
        return;
    if (s->tail - s->head > 2 * state_count(s->table) + 1024)
        queue_rebuild(s); /* entries of completed ids; includes the new one */
    else
        queue_push(s, run->rec, h->key[k]);
}

/* A row that opens a record: the oldest one must make room first. */
static void record_open(struct join_self *s, struct op_ctx *x, const struct batch *b,
                        struct heads *h, struct run *run, uint32_t row) {
    if (run->stored) { /* completed in this run; its entry is still in the table */
        heads_keys(s, x, b, h);
        state_drop(s->table, h->key[run->head].p, h->key[run->head].len, h->hash[run->head]);
        run->stored = false;
    }
    if (state_count(s->table) >= (uint64_t)s->max_open)
        give_up_oldest(s, x, b, "too_many_open");
    *run->rec = (struct record){ .off = batch_off(b, row),
                                 .sub = batch_sub(b, row),
                                 .deadline = deadline_of(s, b, row) };
    memset(run->rec->value, 0, (size_t)s->n * sizeof(double)); /* equal bytes for equal states */
}

static void take_row(struct join_self *s, struct op_ctx *x, const struct batch *b, struct heads *h,
                     struct run *run, struct made *m, uint32_t row) {
    const struct column *name = &b->cols[s->name_col], *value = &b->cols[s->value_col];
    int k = column_null(name, row) ? -1 : names_find(&s->names, name->str[row]);
    if (k < 0) {
        x->count->filtered++;
        return;
    }
    x->count->absorbed++; /* before a row of an older record turns from absorbed to rejected */
    if (!run->rec->have)
        record_open(s, x, b, h, run, row);
    uint64_t bit = (uint64_t)1 << k;
    bool null = column_null(value, row);
    run->rec->have |= bit;
    run->rec->null = null ? run->rec->null | bit : run->rec->null & ~bit;
    run->rec->value[k] = null ? 0 : value->f64[row];
    if (run->rec->have != s->all)
        return;
    complete(s, m, run->rec, row);
    run->rec->have = 0;
}

static void made_new(struct join_self *s, struct op_ctx *x, const struct batch *b, struct made *m) {
    *m = (struct made){ .src = ARENA_ARRAY(x->arena, uint16_t, b->n) };
    m->value = ARENA_ARRAY(x->arena, double *, s->n);
    m->null = ARENA_ARRAY(x->arena, uint64_t *, s->n);
    for (int k = 0; k < s->n; k++) {
        m->value[k] = ARENA_ARRAY(x->arena, double, b->n);
        m->null[k] = batch_nulls(x->arena, b->n);
    }
}

static const uint64_t *nulls_or_none(const uint64_t *nulls, uint32_t n) {
    uint64_t any = 0;
    for (size_t w = 0; w < bits_words(n); w++)
        any |= nulls[w];
    return any ? nulls : NULL;
}

static void emit_made(struct join_self *s, struct op_ctx *x, const struct batch *b,
                      const struct made *m) {
    if (m->n == 0)
        return;
    struct column *cols;
    const struct schema *schema = x->out[0];
    struct batch *out = batch_make(x->arena, b, schema, m->src, m->n, false, &cols);
    for (int i = 0; i < schema->n; i++) {
        int from = s->source[i];
        if (from >= 0)
            cols[i] = column_gather(x->arena, &b->cols[from], &schema->f[i], m->src, m->n);
        else
            cols[i] = (struct column){ .f64 = m->value[~from],
                                       .nulls = nulls_or_none(m->null[~from], m->n) };
    }
    x->count->made += m->n;
    op_emit(x, 0, out);
}

/* Where runs of one id begin. A risen watermark begins one too, so that ids whose time is up are
 * given up exactly there. first[k]: index into the batch's rows; first[n] = b->n. */
static uint32_t *find_heads(struct join_self *s, struct op_ctx *x, const struct batch *b,
                            struct heads *h) {
    const int64_t *wm = s->timeout == PARAM_UNSET ? NULL : b->wm;
    uint32_t *first = ARENA_ARRAY(x->arena, uint32_t, b->n + 1);
    *h = (struct heads){ .row = ARENA_ARRAY(x->arena, uint16_t, b->n) };
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i), q = i ? batch_row(b, i - 1) : r;
        if (i && same_id(s, b, r, q) && (!wm || wm[r] == wm[q]))
            continue;
        first[h->n] = i;
        h->row[h->n++] = (uint16_t)r;
    }
    first[h->n] = b->n;
    return first;
}

/* ~10 ns a row: ids that complete within the batch never touch the table (it is only asked whether
 * it knows the id, once a run, while any id is open). */
static void join_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct join_self *s = self;
    struct made m;
    struct heads h;
    b = op_short_keys(x, b, s->key, s->nkey);
    if (b->n == 0)
        return;
    made_new(s, x, b, &m);
    uint32_t *first = find_heads(s, x, b, &h);
    struct run run = { .rec = op_alloc(x, s->size) };
    const struct column *id = &b->cols[s->id_col];
    names_begin(&s->names);
    for (uint32_t k = 0; k < h.n; k++) {
        if (s->timeout != PARAM_UNSET && b->wm)
            give_up_due(s, x, b, b->wm[h.row[k]]);
        run_begin(s, x, b, &h, k, &run);
        for (uint32_t i = first[k]; i < first[k + 1]; i++) {
            uint32_t r = batch_row(b, i);
            if (column_null(id, r))
                op_reject(x, b, r, "null_id", "the id is null");
            else
                take_row(s, x, b, &h, &run, &m, r);
        }
        run_end(s, x, b, &h, &run);
    }
    emit_made(s, x, b, &m);
}

static bool join_looks_at_time(const void *config) {
    return ((const struct join_config *)config)->timeout != PARAM_UNSET;
}

const struct op_desc op_join = {
    .name = "join",
    .doc = "Puts the observations of one record, a row each, back together: one row a record, "
           "once all needed names have come. Of a name that comes twice the later value counts. "
           "Records that stay incomplete are given up, oldest first, as dead letters (`timeout`, "
           "`max_open`) at the position of their first row. Memory: 40 bytes and 8 a name for each "
           "open id, at most `max_open` of them. (RIoTBench Join.)",
    .example = "{\"id\": \"msgid\", \"need\": [\"temperature\", \"humidity\"]}",
    .semantics = 1,
    .state_version = 1,
    .params = join_params,
    .config_size = sizeof(struct join_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = join_plan,
    .self_size = sizeof(struct join_self),
    .open = join_open,
    .looks_at_time = join_looks_at_time,
    .process = join_process,
    .rebuild = join_rebuild,
    .close = join_close,
};
