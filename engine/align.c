/* Alignment of a task fed by several origins (DESIGN 5). Each row has an order time: the larger of
 * its event time and its own stream's watermark before it, so no later row of that stream can have
 * a smaller one than the stream's watermark. Rows below the smallest watermark of all links are
 * final: they go on in (order time, link, arrival) order. The sequence is a function of the streams
 * alone, not of when their batches happened to come.
 *
 * New offsets: row number k gets 2k+1, and the watermark rises to its order time at 2k, before it;
 * after the last row the smallest watermark stands at 2(k+1). Rows fired there by a later, higher
 * minimum carry their fire time as `sub`, so the order is the same however the minimum rose.
 *
 * Waiting rows are state (key: link, arrival number), so undo and restart need nothing more.
 * Cost ~0.5 us a row: encode, table, heap. */
#include "engine/num.h"
#include "engine/task.h"
#include <assert.h>
#include <stdlib.h>

struct item { /* a waiting row in the heap */
    int64_t time;
    uint32_t link;
    uint64_t seq;
};
struct align_link {
    int64_t wm;
    uint64_t seq; /* arrival number of its next row */
};
struct align {
    int64_t *first; /* watermark of each link's parent at the graft */
    struct item *heap;
    uint32_t n, cap;
    struct align_link *link;
    int64_t next; /* number of the next row to go on */
    int64_t bytes;
};
struct meta { /* TABLE_ALIGN_META: key link index; key 0xffff: `value` is align.next */
    int64_t value;
    uint64_t seq;
};
enum { META_NEXT = 0xffff, KEY_LEN = 10 };

/* ---- heap ---- */

static bool item_before(const struct item *a, const struct item *b) {
    if (a->time != b->time)
        return a->time < b->time;
    if (a->link != b->link)
        return a->link < b->link;
    return a->seq < b->seq;
}

static void heap_push(struct align *al, struct item it) {
    if (al->n == al->cap) {
        al->cap = al->cap ? al->cap * 2 : 64;
        al->heap = realloc(al->heap, al->cap * sizeof *al->heap);
        if (!al->heap)
            abort();
    }
    uint32_t i = al->n++;
    for (; i > 0 && item_before(&it, &al->heap[(i - 1) / 2]); i = (i - 1) / 2)
        al->heap[i] = al->heap[(i - 1) / 2];
    al->heap[i] = it;
}

static struct item heap_pop(struct align *al) {
    struct item top = al->heap[0], last = al->heap[--al->n];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= al->n)
            break;
        if (c + 1 < al->n && item_before(&al->heap[c + 1], &al->heap[c]))
            c++;
        if (!item_before(&al->heap[c], &last))
            break;
        al->heap[i] = al->heap[c];
        i = c;
    }
    if (al->n)
        al->heap[i] = last;
    return top;
}

/* ---- rows as bytes: order time, event time, then per field a null byte and the value ---- */

static void row_write(struct sbuf *o, const struct batch *b, uint32_t r, int64_t order,
                      int64_t time) {
    sbuf_add(o, &order, 8);
    sbuf_add(o, &time, 8);
    for (int f = 0; f < b->schema->n; f++) {
        const struct column *c = &b->cols[f];
        char null = column_null(c, r);
        sbuf_add(o, &null, 1);
        if (null)
            continue;
        switch (b->schema->f[f].type) {
        case TYPE_BOOL:
            sbuf_add(o, &c->b[r], 1);
            break;
        case TYPE_I64:
        case TYPE_F64:
            sbuf_add(o, &c->i64[r], 8);
            break;
        case TYPE_STR:
        case TYPE_BYTES:
            sbuf_add(o, &c->str[r].len, 4);
            sbuf_add(o, c->str[r].p, c->str[r].len);
            break;
        case TYPE_VEC: {
            size_t dim = b->schema->f[f].dim;
            sbuf_add(o, c->vec + (size_t)r * dim, dim * sizeof(float));
            break;
        }
        case TYPE_COUNT:
            break;
        }
    }
}

static size_t type_size(const struct field *f) {
    static const uint8_t size[] = { [TYPE_BOOL] = 1,
                                    [TYPE_I64] = 8,
                                    [TYPE_F64] = 8,
                                    [TYPE_STR] = sizeof(struct span),
                                    [TYPE_BYTES] = sizeof(struct span) };
    return f->type == TYPE_VEC ? f->dim * sizeof(float) : size[f->type];
}

/* Row `i` of a batch being built. Strings are copied: the state entry goes away. */
static void row_read(struct arena *a, const struct schema *s, struct column *cols, uint32_t i,
                     const char *p) {
    p += 16;
    for (int f = 0; f < s->n; f++) {
        if (*p++) {
            bit_set((uint64_t *)cols[f].nulls, i);
            continue;
        }
        size_t size = type_size(&s->f[f]);
        if (s->f[f].type == TYPE_STR || s->f[f].type == TYPE_BYTES) {
            struct span v = { 0 };
            memcpy(&v.len, p, 4);
            v.p = arena_strndup(a, p + 4, v.len);
            ((struct span *)cols[f].p)[i] = v;
            p += 4 + v.len;
            continue;
        }
        memcpy((char *)cols[f].p + i * size, p, size);
        p += size;
    }
}

/* ---- state ---- */

static void key_write(char *key, uint32_t link, uint64_t seq) {
    uint16_t l = (uint16_t)link;
    memcpy(key, &l, 2);
    memcpy(key + 2, &seq, 8);
}

static void meta_put(struct task *t, uint16_t key, int64_t value, uint64_t seq) {
    struct state *s = t->table[TABLE_ALIGN_META];
    uint64_t hash = state_hash(&key, 2);
    const struct meta *old = state_find(s, &key, 2, hash);
    if (old && old->value == value && old->seq == seq)
        return;
    struct meta *m = state_edit(s, &key, 2, hash, NULL);
    m->value = value;
    m->seq = seq;
}

struct align *align_new(struct task *t, bool restore) {
    struct align *al = calloc(1, sizeof *al);
    size_t n = (size_t)t->nlinks;
    if (!al || !(al->link = calloc(n, sizeof *al->link)) ||
        !(al->first = calloc(n, sizeof *al->first)))
        abort();
    t->align = al;
    t->table[TABLE_ALIGN] = state_new(t->ex->undo, t->def->instance, TABLE_ALIGN, 0);
    t->table[TABLE_ALIGN_META] =
        state_new(t->ex->undo, t->def->instance, TABLE_ALIGN_META, sizeof(struct meta));
    for (size_t i = 0; i < n; i++) {
        al->link[i].wm = al->first[i] = restore ? TIME_MIN : t->in[i].from->out_wm;
        if (!restore)
            meta_put(t, (uint16_t)i, al->link[i].wm, 0);
    }
    return al;
}

void align_free(struct align *al) {
    if (!al)
        return;
    free(al->first);
    free(al->heap);
    free(al->link);
    free(al);
}

void align_rebuild(struct task *t) {
    struct align *al = t->align;
    uint64_t it = 0;
    const void *key, *value;
    uint32_t klen, vlen;
    al->n = 0;
    al->next = 0;
    al->bytes = 0;
    for (int i = 0; i < t->nlinks; i++)
        al->link[i] = (struct align_link){ .wm = al->first[i] };
    while (state_next(t->table[TABLE_ALIGN_META], &it, &key, &klen, &value, &vlen)) {
        struct meta m;
        uint16_t k;
        memcpy(&m, value, sizeof m);
        memcpy(&k, key, 2);
        if (k == META_NEXT)
            al->next = m.value;
        else
            al->link[k] = (struct align_link){ m.value, m.seq };
    }
    /* Undone with the epoch of its graft: what the parents had reached goes into the next one. */
    for (int i = 0; i < t->nlinks; i++)
        if (al->link[i].wm == al->first[i] && al->first[i] != TIME_MIN)
            meta_put(t, (uint16_t)i, al->link[i].wm, al->link[i].seq);
    it = 0;
    while (state_next(t->table[TABLE_ALIGN], &it, &key, &klen, &value, &vlen)) {
        struct item item;
        uint16_t l;
        memcpy(&item.time, value, 8);
        memcpy(&l, key, 2);
        memcpy(&item.seq, (const char *)key + 2, 8);
        item.link = l;
        heap_push(al, item);
        al->bytes += vlen;
    }
}

bool align_full(const struct task *t, const struct task *source) {
    const struct align *al = t->align;
    if (al->bytes < t->ex->conf.align_bytes)
        return false;
    int64_t min = TIME_MAX, own = TIME_MIN;
    for (int i = 0; i < t->nlinks; i++) {
        const struct task *from = t->in[i].from->origin;
        int64_t wm = al->link[i].wm;
        min = wm < min ? wm : min;
        if (from == source)
            own = wm > own ? wm : own;
    }
    return own > min;
}

void align_stats(const struct task *t, struct task_stats *s) {
    const struct align *al = t->align;
    s->held_bytes = al->bytes;
    if (al->bytes < t->ex->conf.align_bytes)
        return;
    int behind = 0;
    for (int i = 1; i < t->nlinks; i++)
        if (al->link[i].wm < al->link[behind].wm)
            behind = i;
    const struct task_def *d = t->in[behind].from->origin->def;
    const char *topic = op_config_text(d->op, d->config, "topic");
    s->held_for = topic ? topic : d->label;
}

/* ---- taking rows in ---- */

/* Event time and watermark of a row; a stream without event time is ordered by its log time. */
static void row_times(const struct batch *b, uint32_t r, int64_t *time, int64_t *wm) {
    if (b->time) {
        *time = b->time[r];
        *wm = b->wm[r];
        return;
    }
    const struct origin *o = b->origin;
    int64_t off = batch_off(b, r);
    bool known = o && o->log_time && off >= o->off0 && off < o->off0 + o->n;
    *time = *wm = known ? o->log_time[off - o->off0] : 0;
}

static void align_take(struct task *t, uint32_t li, const struct batch *b, struct sbuf *o) {
    struct align *al = t->align;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t time, wm;
        row_times(b, r, &time, &wm);
        int64_t order = time > wm ? time : wm;
        struct item it = { .time = order, .link = li, .seq = al->link[li].seq++ };
        char key[KEY_LEN];
        key_write(key, li, it.seq);
        o->len = 0;
        row_write(o, b, r, order, time);
        state_put(t->table[TABLE_ALIGN], key, KEY_LEN, state_hash(key, KEY_LEN), o->p,
                  (uint32_t)o->len);
        al->bytes += (int64_t)o->len;
        heap_push(al, it);
    }
}

/* ---- handing rows on ---- */

static const struct batch *align_batch(struct task *t, const struct item *it, uint32_t n,
                                       int64_t first) {
    struct arena *a = &t->ex->arena;
    struct align *al = t->align;
    int port = t->in[it[0].link].in_port;
    const struct schema *s = t->def->in[port];
    struct batch *b = ARENA_NEW(a, struct batch);
    struct column *cols = arena_zalloc(a, sizeof *cols * (size_t)(s->n ? s->n : 1));
    int64_t *off = ARENA_ARRAY(a, int64_t, n), *time = ARENA_ARRAY(a, int64_t, n);
    int64_t *wm = ARENA_ARRAY(a, int64_t, n);
    for (int f = 0; f < s->n; f++) {
        cols[f].p = arena_zalloc(a, n * type_size(&s->f[f]));
        cols[f].nulls = batch_nulls(a, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        char key[KEY_LEN];
        uint32_t vlen;
        key_write(key, it[i].link, it[i].seq);
        uint64_t hash = state_hash(key, KEY_LEN);
        const char *row = state_get(t->table[TABLE_ALIGN], key, KEY_LEN, hash, &vlen);
        assert(row);
        row_read(a, s, cols, i, row);
        memcpy(&time[i], row + 8, 8);
        off[i] = 2 * (first + i) + 1;
        wm[i] = it[i].time;
        al->bytes -= vlen;
        state_drop(t->table[TABLE_ALIGN], key, KEY_LEN, hash);
    }
    *b = (struct batch){ .schema = s,
                         .cols = cols,
                         .rows = n,
                         .n = n,
                         .off0 = off[0],
                         .off = off,
                         .time = time,
                         .wm = wm,
                         .origin = t->ctx.origin };
    return b;
}

static void align_release(struct task *t, const struct item *due, uint32_t n, int64_t min) {
    struct arena *a = &t->ex->arena;
    struct align *al = t->align;
    struct origin *o = ARENA_NEW(a, struct origin);
    int64_t *at = ARENA_ARRAY(a, int64_t, n + 1), *wm = ARENA_ARRAY(a, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        at[i] = 2 * (al->next + i);
        wm[i] = due[i].time;
    }
    at[n] = 2 * (al->next + n);
    wm[n] = min;
    *o = (struct origin){ .id = t->def->instance,
                          .partition = t->ex->conf.partition,
                          .n = n + 1,
                          .off0 = at[0],
                          .wm = wm,
                          .at = at,
                          .wm_before = t->ctx.wm };
    t->ctx.origin = t->ctx.out_origin = o;
    t->point = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t k = i + 1;
        while (k < n && k - i < t->ex->conf.batch_rows &&
               t->in[due[k].link].in_port == t->in[due[i].link].in_port)
            k++;
        const struct batch *b = align_batch(t, due + i, k - i, al->next);
        al->next += k - i;
        task_deliver(t, t->in[due[i].link].in_port, b);
        i = k;
    }
    task_timers(t);
}

void align_run(struct task *t) {
    struct align *al = t->align;
    struct sbuf o = { 0 };
    int64_t min = TIME_MAX;
    for (int i = 0; i < t->nlinks; i++) {
        struct link *l = &t->in[i];
        for (uint32_t k = 0; k < l->q.n; k++)
            align_take(t, (uint32_t)i, l->q.v[k], &o);
        int64_t wm =
            l->from->tick == t->ex->tick ? origin_last_wm(l->from->ctx.out_origin) : TIME_MIN;
        if (wm > al->link[i].wm)
            al->link[i].wm = wm;
        meta_put(t, (uint16_t)i, al->link[i].wm, al->link[i].seq);
        min = al->link[i].wm < min ? al->link[i].wm : min;
    }
    sbuf_free(&o);
    struct item *due = ARENA_ARRAY(&t->ex->arena, struct item, al->n + 1);
    uint32_t n = 0;
    while (al->n && al->heap[0].time < min)
        due[n++] = heap_pop(al);
    align_release(t, due, n, min);
    meta_put(t, META_NEXT, al->next, 0);
}
