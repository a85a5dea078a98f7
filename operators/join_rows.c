#include "operators/join_rows.h"
#include "operators/row_bytes.h"
#include "operators/window_out.h"
#include <assert.h>
#include <stdlib.h>

const char *const join_inner_left[] = { "inner", "left", NULL };
const char *const join_inner_left_full[] = { "inner", "left", "full", NULL };
const char *const join_late_words[] = { "drop", "dead_letter", NULL };

/* Out of memory ends the process, as in arenas: `max_rows` bounds the sizes. */
static void *more(void *p, size_t n, size_t size) {
    p = realloc(p, n * size);
    if (!p)
        abort();
    return p;
}

/* ---- submit time ---- */

bool join_plan_keys(struct op_plan *p) {
    const struct op_by *l = &p->keys[JOIN_LEFT], *r = &p->keys[JOIN_RIGHT];
    int errors = p->errors;
    if (l->n != r->n)
        plan_error(p, NULL, NULL,
                   "input '%s' is grouped by %d fields and input '%s' by %d: keys are compared "
                   "field by field",
                   p->in_name[0], l->n, p->in_name[1], r->n);
    for (int k = 0; k < l->n && k < r->n; k++) {
        const struct field *a = &p->in[0]->f[l->field[k]], *b = &p->in[1]->f[r->field[k]];
        if (a->type != b->type)
            plan_error(p, NULL, NULL, "key '%s' of input '%s' is %s, '%s' of input '%s' is %s",
                       a->name, p->in_name[0], type_names[a->type], b->name, p->in_name[1],
                       type_names[b->type]);
    }
    return p->errors == errors;
}

void join_plan_schema(struct op_plan *p, const char *prefix) {
    const struct schema *l = p->in[JOIN_LEFT], *r = p->in[JOIN_RIGHT];
    struct field *f;
    struct schema *out = schema_new(p->arena, l->n + r->n, &f);
    p->out[0] = out;
    if (out->n > SCHEMA_FIELDS_MAX) {
        plan_error(p, NULL, NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
        p->out[0] = l;
        return;
    }
    for (int i = 0; i < l->n; i++)
        f[i] = l->f[i];
    for (int i = 0; i < r->n; i++) {
        struct field *to = &f[l->n + i];
        *to = r->f[i];
        if (schema_find(l, to->name) >= 0)
            to->name = arena_printf(p->arena, "%s%s", prefix, to->name);
        for (int k = 0; k < l->n + i; k++)
            if (strcmp(f[k].name, to->name) == 0) {
                plan_error(p, "prefix", NULL, "the output would have two fields '%s'", to->name);
                break;
            }
    }
}

void join_plan(struct op_plan *p, const struct join_params *c) {
    join_plan_keys(p);
    for (int i = 0; i < 2; i++)
        if (!p->timed[i])
            plan_error(p, NULL, NULL,
                       "input '%s' carries no event time: parse it and give \"time\"",
                       p->in_name[i]);
    join_plan_schema(p, c->prefix);
}

/* ---- groups ---- */

static struct join_group **group_slot(const struct joins *s, struct span key, uint64_t hash) {
    struct join_group **at = &s->bucket[hash & (s->buckets - 1)];
    while (*at && ((*at)->hash != hash || (*at)->klen != key.len ||
                   (key.len && memcmp((*at)->key, key.p, key.len) != 0)))
        at = &(*at)->next;
    return at;
}

static void groups_grow(struct joins *s) {
    uint32_t n = s->buckets ? 2 * s->buckets : 64;
    struct join_group **v = calloc(n, sizeof *v);
    if (!v)
        abort();
    for (uint32_t i = 0; i < s->buckets; i++)
        for (struct join_group *g = s->bucket[i], *next; g; g = next) {
            next = g->next;
            g->next = v[g->hash & (n - 1)];
            v[g->hash & (n - 1)] = g;
        }
    free(s->bucket);
    s->bucket = v;
    s->buckets = n;
}

static const struct join_group *group_find(const struct joins *s, struct span key, uint64_t hash) {
    return s->buckets ? *group_slot(s, key, hash) : NULL;
}

static struct join_group *group_of(struct joins *s, struct span key, uint64_t hash, bool null) {
    struct join_group *g = s->buckets ? *group_slot(s, key, hash) : NULL;
    if (g)
        return g;
    if (s->ngroups >= s->buckets)
        groups_grow(s);
    g = calloc(1, sizeof *g);
    if (!g)
        abort();
    g->key = more(NULL, key.len + 1, 1);
    if (key.len)
        memcpy(g->key, key.p, key.len);
    g->klen = key.len;
    g->hash = hash;
    g->null = null;
    g->next = s->bucket[hash & (s->buckets - 1)];
    s->bucket[hash & (s->buckets - 1)] = g;
    s->ngroups++;
    return g;
}

static void group_free(struct join_group *g) {
    free(g->side[0].v);
    free(g->side[1].v);
    free(g->key);
    free(g);
}

/* Groups without rows go, once nothing in the queue speaks of them. */
static void group_leave(struct joins *s, struct join_group *g) {
    if (g->side[0].n || g->side[1].n || g->events)
        return;
    *group_slot(s, (struct span){ g->key, g->klen, 0 }, g->hash) = g->next;
    s->ngroups--;
    group_free(g);
}

/* ---- lists ---- */

static bool row_before(struct join_row a, struct join_row b) {
    return a.time != b.time ? a.time < b.time : a.seq < b.seq;
}

static uint32_t list_lower(const struct join_list *l, struct join_row r) {
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (row_before(join_at(l, mid), r))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t join_lower(const struct join_list *l, int64_t time) {
    return list_lower(l, (struct join_row){ time, 0 });
}

uint32_t join_upper(const struct join_list *l, int64_t time) {
    return time == TIME_MAX ? l->n : list_lower(l, (struct join_row){ time + 1, 0 });
}

uint32_t join_find(const struct join_list *l, struct join_row r) {
    uint32_t i = list_lower(l, r);
    return i < l->n && join_at(l, i).seq == r.seq ? i : UINT32_MAX;
}

/* Rows mostly come in order: at the end. */
static void list_insert(struct join_list *l, struct join_row r) {
    if (l->first + l->n == l->cap) {
        if (l->first < l->n + 4) {
            l->cap = l->cap ? 2 * l->cap : 4;
            l->v = more(l->v, l->cap, sizeof *l->v);
        } else {
            memmove(l->v, l->v + l->first, l->n * sizeof *l->v);
            l->first = 0;
        }
    }
    uint32_t i = l->n && row_before(r, join_at(l, l->n - 1)) ? list_lower(l, r) : l->n;
    struct join_row *at = l->v + l->first + i;
    memmove(at + 1, at, (l->n - i) * sizeof *at);
    *at = r;
    l->n++;
}

static void list_remove(struct join_list *l, uint32_t lo, uint32_t hi) {
    if (lo == 0)
        l->first += hi;
    else
        memmove(l->v + l->first + lo, l->v + l->first + hi, (l->n - hi) * sizeof *l->v);
    l->n -= hi - lo;
    if (l->n == 0)
        l->first = 0;
}

/* ---- the queue ---- */

static bool event_before(const struct join_event *a, const struct join_event *b) {
    if (a->fire != b->fire)
        return a->fire < b->fire;
    if (a->group != b->group)
        return key_compare((struct span){ a->group->key, a->group->klen, 0 },
                           (struct span){ b->group->key, b->group->klen, 0 }) < 0;
    if (a->kind != b->kind)
        return a->kind < b->kind;
    if (a->time != b->time)
        return a->time < b->time;
    return a->side != b->side ? a->side < b->side : a->seq < b->seq;
}

void join_push(struct joins *s, struct join_group *g, int64_t fire, int kind, int side,
               struct join_row r) {
    struct join_event ev = { fire, g, r.time, r.seq, (uint8_t)kind, (uint8_t)side };
    if (s->nheap == s->cap_heap) {
        s->cap_heap = s->cap_heap ? 2 * s->cap_heap : 64;
        s->heap = more(s->heap, s->cap_heap, sizeof *s->heap);
    }
    uint32_t i = s->nheap++;
    for (; i > 0 && event_before(&ev, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = ev;
    g->events++;
}

static struct join_event event_pop(struct joins *s) {
    struct join_event top = s->heap[0], last = s->heap[--s->nheap];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= s->nheap)
            break;
        if (c + 1 < s->nheap && event_before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (!event_before(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (s->nheap)
        s->heap[i] = last;
    top.group->events--;
    return top;
}

/* ---- waiting rows in state ---- */

enum { ROW_KEY = 9 };
struct row_head { /* of a value of table 0; then the group's key, then row_pack */
    int64_t time;
    uint32_t klen;
    uint8_t null, flags, zero[2];
};

static uint64_t row_key(char *key, int side, uint64_t seq) {
    key[0] = (char)side;
    memcpy(key + 1, &seq, sizeof seq);
    return state_hash(key, ROW_KEY);
}

/* Its packed fields; they hold until the table changes. */
static struct span row_value(struct joins *s, int side, uint64_t seq, struct row_head *h) {
    char key[ROW_KEY];
    uint32_t vlen;
    uint64_t hash = row_key(key, side, seq);
    const char *v = state_get(s->rows, key, ROW_KEY, hash, &vlen);
    assert(v); /* lists and table hold the same rows */
    memcpy(h, v, sizeof *h);
    size_t at = sizeof *h + h->klen;
    return (struct span){ v + at, vlen - (uint32_t)at, 0 };
}

uint8_t join_flags(struct joins *s, int side, uint64_t seq) {
    struct row_head h;
    row_value(s, side, seq, &h);
    return h.flags;
}

void join_drop(struct joins *s, struct join_group *g, int side, uint32_t lo, uint32_t hi) {
    for (uint32_t i = lo; i < hi; i++) {
        char key[ROW_KEY];
        uint64_t hash = row_key(key, side, join_at(&g->side[side], i).seq);
        state_drop(s->rows, key, ROW_KEY, hash);
    }
    list_remove(&g->side[side], lo, hi);
}

static void meta_write(struct joins *s) {
    if (!s->changed)
        return;
    *(struct join_meta *)state_edit(s->meta, "", 0, state_hash("", 0), NULL) = s->now;
    s->changed = false;
}

static void clear(struct joins *s) {
    for (uint32_t i = 0; i < s->buckets; i++)
        for (struct join_group *g = s->bucket[i], *next; g; g = next) {
            next = g->next;
            group_free(g);
        }
    free(s->bucket);
    s->bucket = NULL;
    s->buckets = s->ngroups = s->nheap = 0;
    s->changed = false;
    s->out = (struct join_out){ 0 };
}

void join_open(struct joins *s, struct op_ctx *x, const struct join_kind *kind,
               const struct join_params *conf) {
    s->kind = kind;
    s->conf = conf;
    s->deleted = -1;
    s->now = (struct join_meta){ .fired = TIME_MIN };
    s->rows = op_state(x, 0, 0);
    s->meta = op_state(x, 1, sizeof(struct join_meta));
}

void join_close(void *self) {
    struct joins *s = self;
    clear(s);
    free(s->heap);
    sbuf_free(&s->scratch);
}

void join_rebuild(void *self, struct op_ctx *x) {
    struct joins *s = self;
    const struct join_meta *m = state_find(s->meta, "", 0, state_hash("", 0));
    const void *key, *value;
    uint32_t klen, vlen;
    (void)x;
    clear(s);
    s->now = m ? *m : (struct join_meta){ .fired = TIME_MIN };
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t it = 0; state_next(s->rows, &it, &key, &klen, &value, &vlen);) {
            struct row_head h;
            struct join_row r;
            int side = *(const unsigned char *)key;
            memcpy(&h, value, sizeof h);
            memcpy(&r.seq, (const char *)key + 1, sizeof r.seq);
            r.time = h.time;
            struct span k = { (const char *)value + sizeof h, h.klen, 0 };
            struct join_group *g = group_of(s, k, state_hash(k.p, k.len), h.null);
            if (pass == 0)
                list_insert(&g->side[side], r);
            else
                s->kind->placed(s, g, side, r);
        }
}

/* ---- rows come in ---- */

static void row_store(struct joins *s, struct op_ctx *x, const struct batch *b, uint32_t row,
                      int side, const struct join_group *g, struct join_row r, uint8_t flags) {
    struct row_head h = { .time = r.time, .klen = g->klen, .null = g->null, .flags = flags };
    char key[ROW_KEY];
    uint64_t hash = row_key(key, side, r.seq);
    s->scratch.len = 0;
    sbuf_add(&s->scratch, &h, sizeof h);
    sbuf_add(&s->scratch, g->key, g->klen);
    struct span v = row_pack(x->arena, b, NULL, b->schema->n, row);
    sbuf_add(&s->scratch, v.p, v.len);
    state_put(s->rows, key, ROW_KEY, hash, s->scratch.p, (uint32_t)s->scratch.len);
}

static bool null_key(const struct batch *b, const struct op_by *by, uint32_t row) {
    for (int k = 0; k < by->n; k++)
        if (column_null(&b->cols[by->field[k]], row))
            return true;
    return false;
}

/* Rows without a match come out of this side. */
static bool outer(const struct joins *s, int side) {
    return s->conf->type == JOIN_FULL || (s->conf->type == JOIN_OUTER && side == JOIN_LEFT);
}

static void refuse_late(const struct joins *s, struct op_ctx *x, const struct batch *b,
                        uint32_t row) {
    if (s->conf->late == JOIN_LATE_DEAD_LETTER)
        op_reject(x, b, row, "late", "the row is late: its results are out");
    else
        x->count->late++;
}

static bool is_late(const struct joins *s, const struct batch *b, uint32_t row) {
    int64_t wm = b->wm ? b->wm[row] : TIME_MIN;
    int64_t bound = wm == TIME_MIN ? TIME_MIN : saturate(wm, -s->conf->lateness);
    int64_t due = s->kind->due(s, b->time[row]);
    return due <= bound || due <= s->now.fired;
}

/* The key of a row's group; with windows, the window's start before it. */
static struct span group_key(const struct joins *s, struct op_ctx *x, int64_t time, struct span key,
                             uint64_t *hash) {
    if (!s->kind->window)
        return key;
    char *p = op_alloc(x, SLICE_KEY + key.len);
    slice_key_put(p, s->kind->window(s, time));
    if (key.len)
        memcpy(p + SLICE_KEY, key.p, key.len);
    *hash = state_hash(p, SLICE_KEY + key.len);
    return (struct span){ p, SLICE_KEY + key.len, 0 };
}

static void take_row(struct joins *s, struct op_ctx *x, int side, const struct batch *b,
                     uint32_t row, struct span key, uint64_t hash) {
    int64_t time = b->time ? b->time[row] : TIME_MIN;
    if (window_bad_time(x, b, row))
        return;
    bool null = null_key(b, &x->keys[side], row);
    key = group_key(s, x, time, key, &hash);
    if (is_late(s, b, row) && !(side == JOIN_RIGHT && s->kind->wanted &&
                                s->kind->wanted(s, group_find(s, key, hash), time))) {
        refuse_late(s, x, b, row);
        return;
    }
    if (null && !outer(s, side)) {
        x->count->filtered++;
        return;
    }
    const struct join_group *known = group_find(s, key, hash);
    if (state_count(s->rows) >= (uint64_t)s->conf->max_rows) {
        op_reject(x, b, row, "too_many_rows", "more than %lld rows would wait",
                  (long long)s->conf->max_rows);
        return;
    }
    if (known && s->kind->room && !s->kind->room(s, known, side)) {
        op_reject(x, b, row, "too_many_pairs", "the window of this key has too many pairs");
        return;
    }
    struct join_group *g = group_of(s, key, hash, null);
    struct join_row r = { time, s->now.seq++ };
    uint8_t flags = 0;
    if (side == JOIN_RIGHT && s->deleted >= 0 && !column_null(&b->cols[s->deleted], row) &&
        b->cols[s->deleted].b[row])
        flags = JOIN_DELETED;
    row_store(s, x, b, row, side, g, r, flags);
    list_insert(&g->side[side], r);
    s->kind->placed(s, g, side, r);
    group_leave(s, g);
    s->changed = true;
    x->count->absorbed++;
}

void join_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    struct joins *s = self;
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(x->arena, uint64_t, b->n);
    key_batch(x->arena, b, x->keys[port].field, x->keys[port].n, key, hash);
    for (uint32_t i = 0; i < b->n; i++)
        take_row(s, x, port, b, batch_row(b, i), key[i], hash[i]);
    meta_write(s);
}

/* ---- rows go out ---- */

static void out_flush(struct joins *s, struct op_ctx *x) {
    struct join_out *o = &s->out;
    struct column *cols;
    if (!o->n)
        return;
    int nleft = x->in[JOIN_LEFT]->n;
    struct batch *b = op_fire(x, 0, o->n, o->fire, o->time, &cols);
    for (int i = 0; i < x->out[0]->n; i++)
        cols[i] = i < nleft ? o->left[i] : o->right[i - nleft];
    x->count->made += o->n;
    op_emit(x, 0, b);
    o->n = 0;
}

/* Batches grow: most watermarks fire a few rows, some very many. */
static void out_room(struct joins *s, struct op_ctx *x) {
    struct join_out *o = &s->out;
    if (o->n < o->cap)
        return;
    out_flush(s, x);
    o->cap = o->cap == 0 ? 8 : o->cap < BATCH_ROWS / 4 ? 4 * o->cap : BATCH_ROWS;
    o->fire = ARENA_ARRAY(x->arena, int64_t, o->cap);
    o->time = ARENA_ARRAY(x->arena, int64_t, o->cap);
    o->left = row_columns(x->arena, x->in[JOIN_LEFT]->f, x->in[JOIN_LEFT]->n, o->cap);
    o->right = row_columns(x->arena, x->in[JOIN_RIGHT]->f, x->in[JOIN_RIGHT]->n, o->cap);
}

void join_unpack(struct op_ctx *x, const struct schema *s, struct span v, struct column *cols,
                 uint32_t row, uint32_t rows) {
    if (v.p) {
        v.p = arena_strndup(x->arena, v.p, v.len);
        row_unpack(x->arena, v, s->f, s->n, cols, row, rows);
        return;
    }
    for (int i = 0; i < s->n; i++)
        column_set_null(x->arena, &cols[i], row, rows);
}

void join_emit(struct joins *s, struct op_ctx *x, int64_t fire, const struct join_row *left,
               const struct join_row *right) {
    static const struct span none;
    struct row_head h;
    out_room(s, x);
    struct join_out *o = &s->out;
    struct span l = left ? row_value(s, JOIN_LEFT, left->seq, &h) : none;
    join_unpack(x, x->in[JOIN_LEFT], l, o->left, o->n, o->cap);
    struct span r = right ? row_value(s, JOIN_RIGHT, right->seq, &h) : none;
    join_unpack(x, x->in[JOIN_RIGHT], r, o->right, o->n, o->cap);
    o->fire[o->n] = fire;
    o->time[o->n++] = fire - 1;
}

void join_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct joins *s = self;
    int64_t bound = wm == TIME_MAX ? TIME_MAX : saturate(wm, -s->conf->lateness);
    s->out = (struct join_out){ 0 };
    while (s->nheap && s->heap[0].fire <= bound) {
        struct join_event ev = event_pop(s);
        s->kind->fire(s, x, &ev);
        group_leave(s, ev.group);
    }
    out_flush(s, x);
    x->next_timer = TIME_MAX;
    if (wm == TIME_MAX)
        return;
    int64_t fired = s->kind->fired ? s->kind->fired(s, bound) : bound;
    if (fired > s->now.fired) {
        s->now.fired = fired;
        s->changed = true;
    }
    meta_write(s);
    int64_t next = s->kind->next ? s->kind->next(s, bound) : saturate(bound, 1);
    x->next_timer = saturate(next, s->conf->lateness);
    if (x->next_timer <= wm)
        x->next_timer = wm + 1;
}
