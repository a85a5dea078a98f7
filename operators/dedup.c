/* dedup: the first of equal rows within a time or a number of rows.
 *
 * A row is known by its id: the fields of `by` and of `fields`. An id that passed is kept with the
 * time at which it is forgotten, the order time of its row (the larger of its event time and of the
 * watermark before it) plus `within`; a later row of that id is equal if its own order time is
 * below. So what passes does not depend on when the state is swept: that happens whenever the
 * watermark reaches a multiple of an eighth of `within`.
 *
 * Tables: 0, id -> struct kept. With `rows` also 1, (group, number of the row, big-endian) -> id;
 * 2, group -> struct group; an id is then the length of the group's key (4 bytes), that key, and
 * the key of `fields`. The queue of ids by time is derived from table 0. */
#include "engine/key.h"
#include "engine/op.h"
#include "operators/keyed.h"
#include <stdlib.h>

enum { ID_INLINE = 24, SWEEPS = 8 };
struct dedup_config {
    struct strs fields;
    int64_t within, rows, max_keys;
};
static const struct param dedup_params[] = {
    { .name = "fields",
      .type = PT_STRS,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct dedup_config, fields),
      .doc =
          "Rows are equal if they agree in these fields and in those of `by`. Null equals null." },
    { .name = "within",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct dedup_config, within),
      .min = 1,
      .max = 1e15,
      .doc = "A row that passed is forgotten after this much event time: when the time of a row "
             "equal to it, or the watermark, is later by that. Rows dropped meanwhile do not count "
             "anew." },
    { .name = "rows",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct dedup_config, rows),
      .min = 1,
      .max = 1e9,
      .doc = "A row that passed is forgotten after this many more rows of its group (`by`; of the "
             "whole stream without). With `within`, whichever comes first." },
    { .name = "max_keys",
      .type = PT_I64,
      .offset = offsetof(struct dedup_config, max_keys),
      .def = "1000000",
      .min = 1,
      .max = 1e9,
      .doc = "At most this many different rows are kept at a time; one more is a dead letter." },
    { .name = NULL },
};

struct kept {
    int64_t until; /* TIME_MAX: no `within` */
    uint64_t seq;  /* number of the row in its group */
};
struct group {
    uint64_t rows, kept;
};
struct due { /* an id in the queue; it may have been forgotten since */
    int64_t until;
    uint32_t len;
    union {
        char in[ID_INLINE];
        char *out;
    } id;
};
struct dedup_self {
    struct state *ids, *order, *groups;
    int64_t within, step;
    uint64_t rows, max_keys; /* rows 0: no such limit */
    int nby, nall, all[2 * OP_BY_MAX];
    struct due *heap; /* smallest `until` first */
    size_t n, cap;
};

/* ---- submit time ---- */

static void dedup_plan(struct op_plan *p) {
    const struct dedup_config *c = p->config;
    p->out[0] = p->in[0];
    if (c->within == PARAM_UNSET && c->rows == PARAM_UNSET)
        plan_error(p, NULL, NULL,
                   "give 'within' or 'rows': after which time or how many rows a row is forgotten");
    if (!c->fields.n && !p->nby)
        plan_error(p, NULL, NULL,
                   "give 'fields', or group the input: without either all rows are equal");
    if (c->fields.n > OP_BY_MAX)
        plan_error(p, "fields", NULL, "%d fields; at most %d are allowed", c->fields.n, OP_BY_MAX);
    for (int i = 0; i < c->fields.n; i++)
        plan_field(p, 0, "fields", c->fields.v[i], c->fields.v[i], 0);
    plan_once(p, "fields", &c->fields);
}

static int dedup_open(void *self, struct op_ctx *x, struct err *e) {
    (void)e;
    struct dedup_self *s = self;
    const struct dedup_config *c = x->config;
    s->within = c->within;
    s->step = c->within / SWEEPS > 0 ? c->within / SWEEPS : 1;
    s->rows = c->rows == PARAM_UNSET ? 0 : (uint64_t)c->rows;
    s->max_keys = (uint64_t)c->max_keys;
    s->nby = x->nby;
    for (int i = 0; i < x->nby; i++)
        s->all[s->nall++] = x->by[i];
    for (int i = 0; i < c->fields.n; i++)
        s->all[s->nall++] = schema_find(x->in[0], c->fields.v[i]);
    s->ids = op_state(x, 0, sizeof(struct kept));
    if (s->rows) {
        s->order = op_state(x, 1, 0);
        s->groups = op_state(x, 2, sizeof(struct group));
    }
    return 0;
}

/* ---- the queue of ids by time ---- */

static const char *due_id(const struct due *d) {
    return d->len <= ID_INLINE ? d->id.in : d->id.out;
}
static void due_free(struct due *d) {
    if (d->len > ID_INLINE)
        free(d->id.out);
}
static void queue_clear(struct dedup_self *s) {
    for (size_t i = 0; i < s->n; i++)
        due_free(&s->heap[i]);
    s->n = 0;
}
static void queue_push(struct dedup_self *s, int64_t until, struct span id) {
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->heap = realloc(s->heap, s->cap * sizeof *s->heap);
        if (!s->heap)
            abort();
    }
    struct due d = { .until = until, .len = id.len };
    char *to = d.id.in;
    if (id.len > ID_INLINE && !(to = d.id.out = malloc(id.len)))
        abort();
    memcpy(to, id.p, id.len);
    size_t i = s->n++;
    for (; i > 0 && until < s->heap[(i - 1) / 2].until; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = d;
}
static struct due queue_pop(struct dedup_self *s) {
    struct due top = s->heap[0], last = s->heap[--s->n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < s->n; i = c) {
        c += c + 1 < s->n && s->heap[c + 1].until < s->heap[c].until;
        if (last.until <= s->heap[c].until)
            break;
        s->heap[i] = s->heap[c];
    }
    if (s->n)
        s->heap[i] = last;
    return top;
}
static void queue_rebuild(struct dedup_self *s) {
    const void *key, *value;
    uint32_t klen, vlen;
    queue_clear(s);
    for (uint64_t it = 0;
         s->within != PARAM_UNSET && state_next(s->ids, &it, &key, &klen, &value, &vlen);)
        queue_push(s, ((const struct kept *)value)->until, (struct span){ .p = key, .len = klen });
}
static void dedup_rebuild(void *self, struct op_ctx *x) {
    (void)x;
    queue_rebuild(self);
}
static void dedup_close(void *self) {
    struct dedup_self *s = self;
    queue_clear(s);
    free(s->heap);
}

/* ---- forgetting ---- */

/* The key in table 1, in `a`. */
static struct span order_key(struct arena *a, struct span group, uint64_t seq) {
    char *p = arena_alloc(a, (size_t)group.len + sizeof seq);
    uint64_t big = __builtin_bswap64(seq);
    if (group.len)
        memcpy(p, group.p, group.len);
    memcpy(p + group.len, &big, sizeof big);
    return (struct span){ .p = p, .len = group.len + (uint32_t)sizeof big };
}
static void order_drop(struct dedup_self *s, struct arena *a, struct span group, uint64_t seq) {
    struct span k = order_key(a, group, seq);
    state_drop(s->order, k.p, k.len, state_hash(k.p, k.len));
}
static struct span group_of(struct span id) {
    uint32_t len;
    memcpy(&len, id.p, sizeof len);
    return (struct span){ .p = id.p + sizeof len, .len = len };
}

/* An id whose time is over. */
static void forget(struct dedup_self *s, struct arena *a, struct span id, uint64_t hash,
                   uint64_t seq) {
    state_drop(s->ids, id.p, id.len, hash);
    if (!s->rows)
        return;
    struct span group = group_of(id);
    uint64_t h = state_hash(group.p, group.len);
    bool created;
    order_drop(s, a, group, seq);
    struct group *g = state_edit(s->groups, group.p, group.len, h, &created);
    if (--g->kept == 0) /* what its rows are counted from does not matter any more */
        state_drop(s->groups, group.p, group.len, h);
}

/* The id that was kept `rows` + 1 rows before row `seq` of a group, if any. */
static void forget_row(struct dedup_self *s, struct arena *a, struct span group, struct group *g,
                       uint64_t seq) {
    uint32_t len;
    if (seq <= s->rows)
        return;
    struct span k = order_key(a, group, seq - s->rows - 1);
    uint64_t h = state_hash(k.p, k.len);
    const void *id = state_get(s->order, k.p, k.len, h, &len);
    if (!id)
        return;
    state_drop(s->ids, id, len, state_hash(id, len));
    state_drop(s->order, k.p, k.len, h);
    g->kept--;
}

static void dedup_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct dedup_self *s = self;
    if (s->within == PARAM_UNSET) {
        x->next_timer = TIME_MAX;
        return;
    }
    int64_t rest = wm % s->step, at = wm;
    if (wm != TIME_MAX && __builtin_sub_overflow(wm, rest < 0 ? rest + s->step : rest, &at))
        at = TIME_MIN;
    while (s->n && s->heap[0].until <= at) {
        struct due d = queue_pop(s);
        struct span id = { .p = due_id(&d), .len = d.len };
        uint64_t hash = state_hash(id.p, id.len);
        const struct kept *k = state_find(s->ids, id.p, id.len, hash);
        if (k && k->until == d.until)
            forget(s, x->arena, id, hash, k->seq);
        due_free(&d);
    }
    if (wm == TIME_MAX || __builtin_add_overflow(at, s->step, &x->next_timer))
        x->next_timer = TIME_MAX;
    if (x->next_timer <= wm && wm != TIME_MAX)
        x->next_timer = wm + 1;
}

/* ---- rows ---- */

/* Ids (and groups) of the rows of a batch. */
struct ids {
    struct span *id, *group;
    uint64_t *hash, *group_hash;
};

static void batch_ids(struct dedup_self *s, struct op_ctx *x, const struct batch *b,
                      struct ids *v) {
    struct arena *a = x->arena;
    v->id = ARENA_ARRAY(a, struct span, b->n);
    v->hash = ARENA_ARRAY(a, uint64_t, b->n);
    key_batch(a, b, s->rows ? s->all + s->nby : s->all, s->rows ? s->nall - s->nby : s->nall, v->id,
              v->hash);
    if (s->rows) {
        v->group = ARENA_ARRAY(a, struct span, b->n);
        v->group_hash = ARENA_ARRAY(a, uint64_t, b->n);
        key_batch(a, b, s->all, s->nby, v->group, v->group_hash);
        for (uint32_t i = 0; i < b->n; i++) {
            struct span g = v->group[i], f = v->id[i];
            char *p = arena_alloc(a, sizeof g.len + g.len + f.len), *o = p;
            memcpy(o, &g.len, sizeof g.len);
            o += sizeof g.len;
            if (g.len)
                memcpy(o, g.p, g.len);
            if (f.len)
                memcpy(o + g.len, f.p, f.len);
            v->id[i] = (struct span){ .p = p, .len = (uint32_t)sizeof g.len + g.len + f.len };
            v->hash[i] = state_hash(p, v->id[i].len);
        }
    }
    for (int pass = 0; pass < 2 && state_bytes(s->ids) > KEYED_PREFETCH_BYTES; pass++)
        for (uint32_t i = 0; i < b->n; i++)
            if (pass)
                state_prefetch_entry(s->ids, v->hash[i]);
            else
                state_prefetch_slot(s->ids, v->hash[i]);
}

static int64_t until_of(const struct dedup_self *s, int64_t now) {
    int64_t t;
    if (s->within == PARAM_UNSET || __builtin_add_overflow(now, s->within, &t))
        return TIME_MAX;
    return t;
}

static void keep(struct dedup_self *s, struct op_ctx *x, const struct ids *v, uint32_t i,
                 int64_t until, uint64_t seq) {
    struct span id = v->id[i];
    bool created;
    struct kept *k = state_edit(s->ids, id.p, id.len, v->hash[i], &created);
    *k = (struct kept){ .until = until, .seq = seq };
    if (s->rows) {
        struct span o = order_key(x->arena, v->group[i], seq);
        state_put(s->order, o.p, o.len, state_hash(o.p, o.len), id.p, id.len);
    }
    if (s->within == PARAM_UNSET)
        return;
    if (s->n > 2 * state_count(s->ids) + 1024)
        queue_rebuild(s); /* entries of ids forgotten by rows; includes the new one */
    else
        queue_push(s, until, id);
}

/* True: row i passes. */
static bool take_row(struct dedup_self *s, struct op_ctx *x, const struct batch *b, uint32_t i,
                     const struct ids *v, int64_t now) {
    struct span id = v->id[i];
    struct group *g = NULL;
    uint64_t seq = 0;
    bool created, pass = false;
    if (s->rows) {
        g = state_edit(s->groups, v->group[i].p, v->group[i].len, v->group_hash[i], &created);
        seq = g->rows++;
        forget_row(s, x->arena, v->group[i], g, seq);
    }
    const struct kept *k = state_find(s->ids, id.p, id.len, v->hash[i]);
    if (k && (s->within == PARAM_UNSET || now < k->until)) {
        x->count->filtered++;
    } else if (!k && state_count(s->ids) >= s->max_keys) {
        op_reject(x, b, batch_row(b, i), "too_many_keys", "more than %llu different rows are kept",
                  (unsigned long long)s->max_keys);
    } else {
        pass = true;
        if (g && k)
            order_drop(s, x->arena, v->group[i], k->seq);
        if (g)
            g->kept += !k;
        keep(s, x, v, i, until_of(s, now), seq);
    }
    if (g && !g->kept)
        state_drop(s->groups, v->group[i].p, v->group[i].len, v->group_hash[i]);
    return pass;
}

/* ~30 ns a row that is dropped and ~170 ns one that passes, with 100,000 kept, and ~80 ns until it
 * is swept; with `rows` ~70 ns and ~950 ns, mostly misses of the cache in three tables. */
static void dedup_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct dedup_self *s = self;
    struct ids v = { 0 };
    uint32_t n = 0;
    b = op_short_keys(x, b, s->all, s->nall);
    if (b->n == 0)
        return;
    uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
    batch_ids(s, x, b, &v);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t t = b->time ? b->time[r] : TIME_MIN, wm = b->wm ? b->wm[r] : TIME_MIN;
        if (s->rows &&
            (v.id[i].len > STATE_KEY_MAX || v.group[i].len + sizeof(uint64_t) > STATE_KEY_MAX)) {
            op_reject(x, b, r, "key_too_long", "the row's fields are longer than %d bytes",
                      STATE_KEY_MAX);
            continue;
        }
        if (take_row(s, x, b, i, &v, t > wm ? t : wm))
            sel[n++] = (uint16_t)r;
    }
    x->count->passed += n;
    op_emit(x, 0, n == b->n ? b : batch_select(x->arena, b, sel, n));
}

const struct op_desc op_dedup = {
    .name = "dedup",
    .doc =
        "Passes the first of equal rows and drops the others, within a time or a number of rows. "
        "Rows are equal if they agree in the fields of `by` and of `fields`. Each row that "
        "passed is kept until then; one that comes later passes again. Memory: some 120 bytes "
        "and the fields for each row that is kept, twice that and 80 bytes a group with "
        "`rows`; at most `max_keys` of them (of each of the 16 key groups that a stream of several "
        "partitions is dealt to). With `rows` alone the groups stay. The input carries event "
        "time.",
    .example = "{\"fields\": [\"msgid\"], \"within\": \"10m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = dedup_params,
    .config_size = sizeof(struct dedup_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_ORDERED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = dedup_plan,
    .self_size = sizeof(struct dedup_self),
    .open = dedup_open,
    .process = dedup_process,
    .watermark = dedup_watermark,
    .rebuild = dedup_rebuild,
    .close = dedup_close,
};
