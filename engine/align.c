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
 * Cost ~0.5 us a row: encode, table, heap.
 *
 * A link whose stream is idle (origin.idle) is left out of the minimum and its watermark rises with
 * it: when its rows come back they are ordered, and late, by that watermark. How far it had risen
 * by then depends on what the other streams brought meanwhile; so the first run of an epoch notes
 * it, and a redo after an abort raises the link by as much at the same offset, and takes no link
 * for idle whose rows it knows to come. When all are idle nothing is waited for, and the highest
 * watermark holds. */
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
    bool idle;
    int64_t end, seen;  /* offset behind its last row; the furthest ever: beyond `end` in a redo */
    struct task **root; /* the sources that its rows come from */
    uint32_t nroot;
};
/* A link came back from idle: its rows from `off` on are ordered at `wm` at least. */
struct align_raise {
    uint32_t link;
    int64_t off, wm;
    bool pushed; /* in the committing epoch */
};
struct align {
    struct align_link *link, *first; /* `first`: as it was at the graft */
    struct item *heap;
    uint32_t n, cap;
    struct align_raise *raise; /* of open epochs, oldest first */
    uint32_t nraise, raise_cap;
    int64_t next; /* number of the next row to go on */
    int64_t bytes;
};
struct meta { /* TABLE_ALIGN_META: key link index; key 0xffff: `value` is align.next */
    int64_t value;
    uint64_t seq;
};
/* Key META_IDLE + link: it is idle. */
enum { META_NEXT = 0xffff, META_IDLE = 0x8000, KEY_LEN = 10 };

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

static void idle_put(struct task *t, uint16_t link, bool idle) {
    uint16_t key = META_IDLE + link;
    struct state *s = t->table[TABLE_ALIGN_META];
    uint64_t hash = state_hash(&key, 2);
    bool was = state_find(s, &key, 2, hash) != NULL;
    if (idle && !was)
        state_edit(s, &key, 2, hash, NULL);
    else if (!idle && was)
        state_drop(s, &key, 2, hash);
}

static void link_put(struct task *t, int i) {
    const struct align_link *l = &t->align->link[i];
    meta_put(t, (uint16_t)i, l->wm, l->seq);
    idle_put(t, (uint16_t)i, l->idle);
}

static void root_add(struct align_link *l, struct task *source) {
    for (uint32_t i = 0; i < l->nroot; i++)
        if (l->root[i] == source)
            return;
    l->root = realloc(l->root, (l->nroot + 1) * sizeof *l->root);
    if (!l->root)
        abort();
    l->root[l->nroot++] = source;
}

static void roots_find(struct align_link *l, struct task *origin) {
    if (!origin->align) {
        root_add(l, origin);
        return;
    }
    for (int i = 0; i < origin->nlinks; i++)
        for (uint32_t k = 0; k < origin->align->first[i].nroot; k++)
            root_add(l, origin->align->first[i].root[k]);
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
        const struct task *from = t->in[i].from;
        al->first[i].wm = restore ? TIME_MIN : from->out_wm;
        al->first[i].idle = !restore && from->idle;
        al->first[i].end = al->first[i].seen = INT64_MIN;
        roots_find(&al->first[i], from->origin);
        al->link[i] = al->first[i];
        if (!restore)
            link_put(t, (int)i);
    }
    return al;
}

void align_free(struct task *t) {
    struct align *al = t->align;
    if (!al)
        return;
    for (int i = 0; i < t->nlinks; i++)
        free(al->first[i].root);
    free(al->first);
    free(al->raise);
    free(al->heap);
    free(al->link);
    free(al);
}

static void links_reload(struct task *t) {
    struct align *al = t->align;
    uint64_t it = 0;
    const void *key, *value;
    uint32_t klen, vlen;
    for (int i = 0; i < t->nlinks; i++) {
        int64_t seen = al->link[i].seen;
        al->link[i] = al->first[i];
        al->link[i].seen = seen;
    }
    while (state_next(t->table[TABLE_ALIGN_META], &it, &key, &klen, &value, &vlen)) {
        struct meta m;
        uint16_t k;
        memcpy(&m, value, sizeof m);
        memcpy(&k, key, 2);
        if (k == META_NEXT) {
            al->next = m.value;
        } else if (!(k & META_IDLE)) {
            al->link[k].wm = m.value;
            al->link[k].seq = m.seq;
            k |= META_IDLE;
            al->link[k - META_IDLE].idle =
                state_find(t->table[TABLE_ALIGN_META], &k, 2, state_hash(&k, 2)) != NULL;
        }
    }
    /* Undone with the epoch of its graft: what the parents had reached goes into the next one. */
    for (int i = 0; i < t->nlinks; i++)
        if (al->first[i].wm != TIME_MIN || al->first[i].idle)
            link_put(t, i);
}

/* It has been idle before the redo, and come back. */
static bool comes_back(const struct align *al, int link) {
    for (uint32_t i = 0; i < al->nraise; i++)
        if (al->raise[i].link == (uint32_t)link)
            return true;
    return false;
}

void align_rebuild(struct task *t) {
    struct align *al = t->align;
    uint64_t it = 0;
    const void *key, *value;
    uint32_t klen, vlen;
    al->n = 0;
    al->next = 0;
    al->bytes = 0;
    links_reload(t);
    for (uint32_t i = 0; i < al->nraise; i++)
        al->raise[i].pushed = false;
    for (int i = 0; i < t->nlinks; i++)
        al->link[i].idle = al->link[i].idle && !comes_back(al, i);
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

void align_push(struct task *t) {
    for (uint32_t i = 0; i < t->align->nraise; i++) {
        struct align_raise *r = &t->align->raise[i];
        r->pushed = r->off < t->align->link[r->link].end;
    }
}

void align_commit(struct task *t) {
    struct align *al = t->align;
    uint32_t n = 0;
    for (uint32_t i = 0; i < al->nraise; i++)
        if (!al->raise[i].pushed)
            al->raise[n++] = al->raise[i];
    al->nraise = n;
}

/* ---- who waits for whom ---- */

/* Below it no row can come any more. */
static int64_t align_min(const struct task *t) {
    int64_t min = TIME_MAX, max = TIME_MIN;
    bool idle = true;
    for (int i = 0; i < t->nlinks; i++) {
        const struct align_link *l = &t->align->link[i];
        max = l->wm > max ? l->wm : max;
        if (l->idle)
            continue;
        idle = false;
        min = l->wm < min ? l->wm : min;
    }
    return idle ? max : min;
}

bool align_full(const struct task *t) {
    return t->align->bytes >= t->ex->conf.align_bytes;
}

bool align_ahead(const struct task *t, const struct task *source) {
    int64_t min = align_min(t);
    for (int i = 0; i < t->nlinks; i++) {
        const struct align_link *l = &t->align->link[i];
        for (uint32_t k = 0; k < l->nroot && l->wm > min; k++)
            if (l->root[k] == source)
                return true;
    }
    return false;
}

struct task *align_holder(const struct task *t) {
    for (;;) {
        const struct align_link *l = t->align->link;
        int low = 0;
        for (int i = 1; i < t->nlinks; i++)
            if (l[i].idle == l[low].idle ? l[i].wm < l[low].wm : l[low].idle)
                low = i;
        struct task *origin = t->in[low].from->origin;
        if (!origin->align)
            return origin;
        t = origin;
    }
}

void align_stats(const struct task *t, struct task_stats *s) {
    s->held_bytes = t->align->bytes;
    if (!align_full(t))
        return;
    const struct task_def *d = align_holder(t)->def;
    const char *topic = op_config_text(d->op, d->config, "topic");
    s->held_for = topic ? topic : d->label;
}

/* ---- taking rows in ---- */

/* The watermark of a link before its row at `off`, beside what the rows themselves say. */
static int64_t raised(const struct align *al, uint32_t link, int64_t off) {
    int64_t wm = al->link[link].wm;
    for (uint32_t i = 0; i < al->nraise; i++)
        if (al->raise[i].link == link && al->raise[i].off <= off && al->raise[i].wm > wm)
            wm = al->raise[i].wm;
    return wm;
}

/* A row's event time, and the larger of that and of its stream's watermark before it. A stream
 * without event time goes by log time, which may jump back: its watermark is the latest of all
 * records up to the row's. *k and *log walk along with the rows. */
static int64_t row_order(const struct batch *b, uint32_t r, int64_t *time, uint32_t *k,
                         int64_t *log) {
    if (b->time) {
        *time = b->time[r];
        return *time > b->wm[r] ? *time : b->wm[r];
    }
    const struct origin *o = b->origin;
    int64_t off = batch_off(b, r);
    *time = 0;
    if (!o || !o->log_time)
        return 0;
    for (; *k < o->n && o->off0 + *k <= off; ++*k) {
        *time = o->log_time[*k];
        *log = *time > *log ? *time : *log;
    }
    *time = off >= o->off0 && off < o->off0 + o->n ? o->log_time[off - o->off0] : *time;
    return *log;
}

static void align_take(struct task *t, uint32_t li, const struct batch *b, struct sbuf *o) {
    struct align *al = t->align;
    int64_t log = TIME_MIN;
    uint32_t k = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t time, order = row_order(b, r, &time, &k, &log);
        int64_t wm = raised(al, li, batch_off(b, r));
        order = order > wm ? order : wm;
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

static void raise_add(struct align *al, struct align_raise r) {
    if (al->nraise == al->raise_cap) {
        al->raise_cap = al->raise_cap ? al->raise_cap * 2 : 4;
        al->raise = realloc(al->raise, al->raise_cap * sizeof *al->raise);
        if (!al->raise)
            abort();
    }
    al->raise[al->nraise++] = r;
}

/* A link's part of the tick. */
static void link_take(struct task *t, uint32_t li, struct sbuf *buf) {
    struct align *al = t->align;
    struct link *l = &t->in[li];
    const struct origin *o = l->from->ctx.out_origin;
    if (l->from->tick != t->ex->tick || !o)
        return;
    int64_t begin = o->at ? o->at[0] : o->off0, end = o->at ? o->at[o->n - 1] : o->off0 + o->n;
    struct align_link *a = &al->link[li];
    if (a->idle && !o->idle)
        raise_add(al, (struct align_raise){ .link = li, .off = begin, .wm = a->wm });
    a->idle = a->idle && o->idle;
    for (uint32_t k = 0; k < l->q.n; k++)
        align_take(t, li, l->q.v[k], buf);
    int64_t wm = raised(al, li, end), last = origin_last_wm(o);
    a->wm = last > wm ? last : wm;
    a->end = end;
    a->seen = end > a->seen ? end : a->seen;
    a->idle = o->idle && end == a->seen; /* in a redo its next rows are known to come */
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

static bool all_idle(const struct task *t) {
    for (int i = 0; i < t->nlinks; i++)
        if (!t->align->link[i].idle)
            return false;
    return true;
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
                          .wm_before = t->ctx.wm,
                          .idle = all_idle(t) };
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
    for (int i = 0; i < t->nlinks; i++)
        link_take(t, (uint32_t)i, &o);
    sbuf_free(&o);
    int64_t min = align_min(t);
    for (int i = 0; i < t->nlinks; i++) {
        if (al->link[i].idle && al->link[i].wm < min)
            al->link[i].wm = min;
        link_put(t, i);
    }
    struct item *due = ARENA_ARRAY(&t->ex->arena, struct item, al->n + 1);
    uint32_t n = 0;
    while (al->n && al->heap[0].time < min)
        due[n++] = heap_pop(al);
    align_release(t, due, n, min);
    meta_put(t, META_NEXT, al->next, 0);
}
