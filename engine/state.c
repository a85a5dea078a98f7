#include "engine/state.h"
#include "engine/arena.h"
#include "engine/err.h"
#include "engine/mutate.h"
#include "engine/state_table.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of an expiry search: slots looked at for each new key, so that a table never holds much more than
 * it would if expired keys went at once: a round takes as many new keys as an eighth of its slots.
 */
enum { RECORD_BYTES = 20, SWEEP_SLOTS = 8, TRAILER_MAX = 16 };
/* Times of entries have 45 bits: the years 1691 to 2806; beyond, they count as the end. */
#define TIME_BIAS ((int64_t)1 << 43)
#define TIME_LAST (((int64_t)1 << 45) - 1)

struct change_rec {
    struct state *s;    /* NULL: forgotten */
    void *pre;          /* fixed tables: the value before, in the layer's arena */
    uint64_t head;      /* before */
    struct block block; /* other tables: the value before; the record owns it */
    uint32_t e;
    uint32_t next; /* its neighbour by last write; 0: none that an earlier layer knew */
};
struct layer {
    struct change_rec *v;
    size_t n, cap;
    size_t bytes; /* undo_bytes */
    struct arena pre;
};
struct undo {
    struct layer layer[2];
    int cur;         /* index of the running layer */
    bool committing; /* the other one is open */
    struct spill_window *window;
};

uint64_t state_hash(const void *key, uint32_t klen) {
    return XXH3_64bits(key, klen);
}

bool state_limited(const struct state *s) {
    return state_ordered(s) || s->limits.ttl_ms;
}

struct state *state_new(struct undo *u, uint64_t instance, int table, uint32_t vsize) {
    struct state *s = state_new_limited(u, instance, table, vsize, NULL);
    s->pool.window = NULL;
    return s;
}

struct state *state_new_limited(struct undo *u, uint64_t instance, int table, uint32_t vsize,
                                const struct state_limits *limits) {
    struct state *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->undo = u;
    s->instance = instance;
    s->table = table;
    s->vsize = vsize;
    s->time = s->wm = INT64_MIN;
    if (limits)
        s->limits = *limits;
    s->at_value = state_ordered(s) ? (uint32_t)sizeof(struct order) : 0;
    s->at_key =
        s->at_value + (vsize ? (uint32_t)(((size_t)vsize + 7) & ~(size_t)7) : sizeof(struct block));
    s->pool.window = u->window;
    return s;
}

void state_free(struct state *s) {
    if (!s)
        return;
    undo_forget(s->undo, s);
    keys_free(s);
    free(s->loaded);
    free(s);
}

/* ---- values ---- */

static bool is_dead(const struct entry *e) {
    return e->head & DEAD;
}
static uint32_t value_len(const struct state *s, struct entry *e) {
    return s->vsize ? s->vsize : entry_block(s, e)->len;
}
static void *value_at(const struct state *s, struct entry *e) {
    if (s->vsize)
        return e->data + s->at_value;
    const struct block *b = entry_block(s, e);
    return b->h ? pool_at(&s->pool, b->h) : entry_key(s, e); /* empty: any address */
}

static void block_free(struct state *s, struct block *b) {
    if (b->h)
        pool_free(&s->pool, b->h, b->len);
    *b = (struct block){ 0, 0 };
}
static void value_set(struct state *s, struct entry *e, const void *value, uint32_t vlen) {
    struct block b = { .len = vlen };
    block_free(s, entry_block(s, e));
    if (vlen) {
        b.h = pool_alloc(&s->pool, vlen);
        memcpy(pool_at(&s->pool, b.h), value, vlen);
    }
    *entry_block(s, e) = b;
}

static void entry_count(struct state *s, struct entry *e, bool add) {
    uint64_t bytes = entry_klen(e) + (uint64_t)value_len(s, e);
    s->live += add ? 1 : (uint64_t)-1;
    s->bytes += add ? bytes : -bytes;
}

/* ---- times and order ---- */

static int64_t head_time(uint64_t head) {
    return (int64_t)(head >> HEAD_TIME) - TIME_BIAS;
}
static uint64_t with_time(uint64_t head, int64_t time) {
    int64_t t = time < -TIME_BIAS ? 0 : time > TIME_LAST - TIME_BIAS ? TIME_LAST : time + TIME_BIAS;
    return (head & (((uint64_t)1 << HEAD_TIME) - 1)) | (uint64_t)t << HEAD_TIME;
}

/* Nothing was written for the time to live before `now`. */
static bool is_over(const struct state *s, const struct entry *e, int64_t now) {
    return s->limits.ttl_ms && now > INT64_MIN + s->limits.ttl_ms &&
           head_time(e->head) <= now - s->limits.ttl_ms;
}

static struct order *order_of(const struct state *s, uint32_t h) {
    return (struct order *)(void *)entry_at(s, h)->data;
}

static void order_unlink(struct state *s, uint32_t h) {
    struct order o = *order_of(s, h);
    *(o.prev ? &order_of(s, o.prev)->next : &s->ends.prev) = o.next;
    *(o.next ? &order_of(s, o.next)->prev : &s->ends.next) = o.prev;
}

/* Before `next`; 0: as the most recent. */
static void order_insert(struct state *s, uint32_t h, uint32_t next) {
    uint32_t prev = next ? order_of(s, next)->prev : s->ends.next;
    *order_of(s, h) = (struct order){ prev, next };
    *(prev ? &order_of(s, prev)->next : &s->ends.prev) = h;
    *(next ? &order_of(s, next)->prev : &s->ends.next) = h;
}

struct loaded {
    uint64_t seq;
    uint32_t h;
};

static int by_seq(const void *a, const void *b) {
    const struct loaded *x = a, *y = b;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* After a restore keys come in order of hash; their writes were numbered. */
static void order_restore(struct state *s) {
    if (s->nloaded)
        qsort(s->loaded, s->nloaded, sizeof *s->loaded, by_seq);
    for (size_t i = 0; i < s->nloaded; i++)
        order_insert(s, s->loaded[i].h, 0);
    free(s->loaded);
    s->loaded = NULL;
    s->nloaded = s->loaded_cap = 0;
}

void state_at(struct state *s, int64_t time, int64_t wm) {
    s->time = time > wm ? time : wm;
    s->wm = wm;
}

/* ---- layers ---- */

struct undo *undo_new(void) {
    struct undo *u = calloc(1, sizeof *u);
    if (!u)
        abort();
    return u;
}

void undo_spill(struct undo *u, struct spill_window *window) {
    u->window = window;
}

void undo_free(struct undo *u) {
    if (!u)
        return;
    for (int i = 0; i < 2; i++) {
        free(u->layer[i].v);
        arena_free(&u->layer[i].pre);
    }
    spill_window_free(u->window);
    free(u);
}

static size_t trailer_len(const struct state *s) {
    return (s->limits.ttl_ms ? sizeof(int64_t) : 0) + (state_ordered(s) ? sizeof(uint64_t) : 0);
}

/* Keeps the pre-image of an entry that the running layer has not changed yet. The value of a table
 * of any size moves into the record; the caller gives the entry a new one. */
static void touch(struct state *s, uint32_t h, struct entry *e) {
    struct undo *u = s->undo;
    struct layer *l = &u->layer[u->cur];
    if (e->head & TOUCHED(u->cur))
        return;
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->v = realloc(l->v, l->cap * sizeof *l->v);
        if (!l->v)
            abort();
    }
    struct change_rec *r = &l->v[l->n++];
    *r = (struct change_rec){ .s = s, .e = h, .head = e->head };
    if (!is_dead(e)) {
        if (s->vsize) {
            r->pre = arena_alloc(&l->pre, s->vsize);
            memcpy(r->pre, value_at(s, e), s->vsize);
        } else {
            r->block = *entry_block(s, e);
            s->bytes -= r->block.len;
            *entry_block(s, e) = (struct block){ 0, 0 };
        }
        if (state_ordered(s)) {
            uint32_t next = order_of(s, h)->next;
            r->next = next && !(entry_at(s, next)->head & TOUCHED(u->cur)) ? next : 0;
        }
    }
    e->head |= TOUCHED(u->cur);
    l->bytes += RECORD_BYTES + entry_klen(e) + s->vsize + trailer_len(s);
}

/* The entry is dead from here on: touched, taken out of the order, its value forgotten. */
static void kill(struct state *s, uint32_t h, struct entry *e) {
    touch(s, h, e);
    entry_count(s, e, false);
    if (state_ordered(s))
        order_unlink(s, h);
    e->head |= DEAD;
    if (!s->vsize) {
        s->undo->layer[s->undo->cur].bytes -= entry_block(s, e)->len;
        block_free(s, entry_block(s, e));
    }
}

/* ---- limits ---- */

static bool has_room(const struct state *s, uint64_t bytes) {
    return (!s->limits.max_keys || s->live < s->limits.max_keys) &&
           (!s->limits.max_bytes || s->bytes + bytes <= s->limits.max_bytes);
}

/* Drops keys, least recently written first, until another one of `bytes` fits: those that have
 * expired and, when the policy is to evict, all others. */
static bool make_room(struct state *s, uint64_t bytes) {
    while (!has_room(s, bytes)) {
        uint32_t h = s->ends.prev;
        struct entry *e = h ? entry_at(s, h) : NULL;
        if (!e || (!s->limits.evict && !is_over(s, e, s->wm)))
            return false;
        s->evicted += !is_over(s, e, s->wm);
        kill(s, h, e);
    }
    return true;
}

/* What no row can see any more takes no room, whether a search has found it or not. */
static void forget_over(struct state *s, uint32_t h) {
    struct entry *e = h ? entry_at(s, h) : NULL;
    if (e && !is_dead(e) && is_over(s, e, s->wm))
        kill(s, h, e);
}

bool state_holds(const struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    uint32_t h = keys_find(s, key, klen, hash);
    struct entry *e = h ? entry_at(s, h) : NULL;
    return e && !is_dead(e) && !is_over(s, e, s->wm);
}

bool state_admits(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    if (!state_ordered(s) || s->limits.evict)
        return true;
    if (s->loaded)
        order_restore(s);
    uint32_t h = keys_find(s, key, klen, hash);
    forget_over(s, h);
    return (h && !is_dead(entry_at(s, h))) || make_room(s, klen + (uint64_t)s->vsize);
}

bool state_near_limit(const struct state *s, uint32_t n) {
    if (!state_ordered(s) || s->limits.evict)
        return false;
    return (s->limits.max_keys && s->live + n > s->limits.max_keys) ||
           (s->limits.max_bytes &&
            s->bytes + (uint64_t)n * (STATE_KEY_MAX + (uint64_t)s->vsize) > s->limits.max_bytes);
}

/* Oldest writes first; one that has not expired hides younger ones that have, as far as rows come
 * out of order. */
static void expire_ordered(struct state *s, int64_t wm, uint32_t n) {
    if (s->loaded)
        order_restore(s);
    while (n-- && s->ends.prev) {
        struct entry *e = entry_at(s, s->ends.prev);
        if (!is_over(s, e, wm))
            return;
        kill(s, s->ends.prev, e);
    }
}

void state_expire(struct state *s, int64_t wm, uint32_t n) {
    if (!s->limits.ttl_ms || wm == INT64_MIN || s->live == 0)
        return;
    if (state_ordered(s)) {
        expire_ordered(s, wm, n);
        return;
    }
    uint32_t h[64];
    uint64_t slots = n + SWEEP_SLOTS * s->created;
    s->created = 0;
    while (slots) {
        uint32_t want = slots < 64 ? (uint32_t)slots : 64, got = keys_sweep(s, h, want);
        for (uint32_t i = 0; i < got; i++) {
            struct entry *e = entry_at(s, h[i]);
            if (!is_dead(e) && is_over(s, e, wm))
                kill(s, h[i], e);
        }
        slots -= want;
    }
}

/* ---- reading and writing ---- */

/* The entry of a key that the current row sees. */
static struct entry *visible(const struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    uint32_t h = keys_find(s, key, klen, hash);
    struct entry *e = h ? entry_at(s, h) : NULL;
    return e && !is_dead(e) && !is_over(s, e, s->time) ? e : NULL;
}

const void *state_find(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    struct entry *e = visible(s, key, klen, hash);
    return e ? value_at(s, e) : NULL;
}

const void *state_get(struct state *s, const void *key, uint32_t klen, uint64_t hash,
                      uint32_t *vlen) {
    struct entry *e = visible(s, key, klen, hash);
    if (!e)
        return NULL;
    *vlen = value_len(s, e);
    return value_at(s, e);
}

/* For a write: touched, alive, the most recent one, of the current time. *fresh: the current row
 * saw none. */
static struct entry *open_entry(struct state *s, const void *key, uint32_t klen, uint64_t hash,
                                bool *fresh) {
    uint32_t h = keys_find(s, key, klen, hash);
    struct entry *e = h ? entry_at(s, h) : NULL;
    bool limited = state_limited(s);
    if (s->loaded)
        order_restore(s);
    if (limited)
        forget_over(s, h);
    *fresh = !e || is_dead(e);
    if (*fresh && state_ordered(s)) {
        make_room(s, klen + (uint64_t)s->vsize);
        e = h ? entry_at(s, h) : NULL; /* of a table in a file it may have moved */
    }
    if (!h) {
        h = keys_add(s, key, klen, hash);
        e = entry_at(s, h);
    }
    touch(s, h, e);
    if (is_dead(e)) {
        e->head &= ~DEAD;
        entry_count(s, e, true);
        s->created++;
        if (state_ordered(s))
            order_insert(s, h, 0);
    } else if (limited) {
        *fresh = is_over(s, e, s->time);
        if (state_ordered(s) && s->ends.next != h) {
            order_unlink(s, h);
            order_insert(s, h, 0);
        }
    }
    if (s->limits.ttl_ms && (*fresh || head_time(e->head) < s->time))
        e->head = with_time(e->head, s->time);
    return e;
}

void *state_edit(struct state *s, const void *key, uint32_t klen, uint64_t hash, bool *created) {
    bool fresh;
    assert(s->vsize);
    struct entry *e = open_entry(s, key, klen, hash, &fresh);
    void *value = e->data + s->at_value;
    if (fresh)
        memset(value, 0, s->vsize);
    if (created)
        *created = fresh;
    return value;
}

void state_put(struct state *s, const void *key, uint32_t klen, uint64_t hash, const void *value,
               uint32_t vlen) {
    bool fresh;
    struct entry *e = open_entry(s, key, klen, hash, &fresh);
    struct block *b = entry_block(s, e);
    size_t *bytes = &s->undo->layer[s->undo->cur].bytes;
    *bytes = *bytes - b->len + vlen; /* what was there is of this layer */
    s->bytes = s->bytes - b->len + vlen;
    value_set(s, e, value, vlen);
    while (s->limits.evict && s->limits.max_bytes && s->bytes > s->limits.max_bytes) {
        uint32_t h = s->ends.prev;
        if (h == s->ends.next) /* this one */
            break;
        s->evicted++;
        kill(s, h, entry_at(s, h));
    }
}

bool state_drop(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    uint32_t h = keys_find(s, key, klen, hash);
    struct entry *e = h ? entry_at(s, h) : NULL;
    if (!e || is_dead(e))
        return false;
    if (s->loaded)
        order_restore(s);
    bool seen = !is_over(s, e, s->time);
    kill(s, h, e);
    return seen;
}

/* `key`: room for one. */
static void copy_entry(struct state *from, uint32_t h, struct state *to, int64_t now, char *key) {
    struct entry *e = entry_at(from, h);
    uint32_t klen = entry_klen(e);
    memcpy(key, entry_key(from, e), klen);
    uint64_t hash = state_hash(key, klen);
    if (is_dead(e))
        return;
    state_at(to, from->limits.ttl_ms ? head_time(e->head) : now, INT64_MIN);
    if (!state_admits(to, key, klen, hash))
        return;
    if (to->vsize) {
        void *value = state_edit(to, key, klen, hash, NULL);
        memcpy(value, value_at(from, entry_at(from, h)), to->vsize);
    } else {
        e = entry_at(from, h);
        state_put(to, key, klen, hash, value_at(from, e), value_len(from, e));
    }
}

void state_copy(struct state *from, struct state *to, int64_t now) {
    char *key = malloc(STATE_KEY_MAX);
    uint64_t it = 0;
    if (!key)
        abort();
    if (from->loaded)
        order_restore(from);
    if (state_ordered(from))
        for (uint32_t h = from->ends.prev; h; h = order_of(from, h)->next)
            copy_entry(from, h, to, now, key);
    else
        for (uint32_t h; (h = keys_next(from, &it));)
            copy_entry(from, h, to, now, key);
    free(key);
}

int state_load(struct state *s, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    size_t trailer = trailer_len(s);
    if (klen > STATE_KEY_MAX || vlen < trailer || (s->vsize && vlen - trailer != s->vsize))
        return ERR_SYSTEM;
    vlen -= (uint32_t)trailer;
    const char *more = (const char *)value + vlen;
    uint64_t hash = state_hash(key, klen);
    uint32_t h = keys_find(s, key, klen, hash);
    bool known = h != 0;
    if (!known)
        h = keys_add(s, key, klen, hash);
    struct entry *e = entry_at(s, h);
    if (known && !is_dead(e))
        entry_count(s, e, false);
    e->head &= ~DEAD;
    if (s->vsize)
        memcpy(value_at(s, e), value, s->vsize);
    else
        value_set(s, e, value, vlen);
    entry_count(s, e, true);
    if (s->limits.ttl_ms) {
        int64_t time;
        memcpy(&time, more, sizeof time);
        e->head = with_time(e->head, time);
        more += sizeof time;
    }
    if (state_ordered(s) && !known) {
        if (s->nloaded == s->loaded_cap) {
            s->loaded_cap = s->loaded_cap ? 2 * s->loaded_cap : 64;
            s->loaded = realloc(s->loaded, s->loaded_cap * sizeof *s->loaded);
            if (!s->loaded)
                abort();
        }
        struct loaded *l = &s->loaded[s->nloaded++];
        l->h = h;
        memcpy(&l->seq, more, sizeof l->seq);
        if (l->seq >= s->seq)
            s->seq = l->seq + 1;
    }
    return 0;
}

uint32_t state_vsize(const struct state *s) {
    return s->vsize;
}

uint64_t state_count(const struct state *s) {
    return s->live;
}
uint64_t state_used(const struct state *s) {
    return s->bytes;
}
uint64_t state_bytes(const struct state *s) {
    return sizeof *s + (s->dir ? sizeof *s->dir << s->depth : 0) + s->seg_bytes + s->pool.bytes;
}
uint64_t state_spilled(const struct state *s) {
    return s->pool.spilled;
}
uint64_t state_evicted(const struct state *s) {
    return s->evicted;
}

bool state_next(struct state *s, uint64_t *it, const void **key, uint32_t *klen, const void **value,
                uint32_t *vlen) {
    for (uint32_t h; (h = keys_next(s, it));) {
        struct entry *e = entry_at(s, h);
        if (is_dead(e))
            continue;
        *key = entry_key(s, e);
        *klen = entry_klen(e);
        *value = value_at(s, e);
        *vlen = value_len(s, e);
        return true;
    }
    return false;
}

/* ---- epochs ---- */

struct collect {
    state_sink *put;
    void *arg;
    char *value; /* with its trailer */
    size_t cap;
};

static void collect_put(struct collect *c, struct state *s, uint32_t h, uint64_t seq) {
    struct entry *e = entry_at(s, h);
    uint32_t vlen = value_len(s, e);
    const char *value = value_at(s, e);
    if (state_limited(s)) {
        int64_t time = head_time(e->head);
        if (vlen + TRAILER_MAX > c->cap) {
            c->cap = 2 * (vlen + (size_t)TRAILER_MAX);
            free(c->value);
            if (!(c->value = malloc(c->cap)))
                abort();
        }
        if (vlen)
            memcpy(c->value, value, vlen);
        value = c->value;
        if (s->limits.ttl_ms) {
            memcpy(c->value + vlen, &time, sizeof time);
            vlen += (uint32_t)sizeof time;
        }
        if (state_ordered(s)) {
            memcpy(c->value + vlen, &seq, sizeof seq);
            vlen += (uint32_t)sizeof seq;
        }
    }
    c->put(c->arg, s->instance, s->table, entry_key(s, e), entry_klen(e), value, vlen);
}

/* Living keys that the running layer wrote are the most recent ones, in the order of their last
 * writes: these are numbered here. */
static void collect_ordered(struct collect *c, struct state *s) {
    uint32_t h = s->ends.next, first = 0;
    uint64_t touched = TOUCHED(s->undo->cur);
    for (; h && entry_at(s, h)->head & touched; h = order_of(s, h)->prev)
        first = h;
    for (h = first; h; h = order_of(s, h)->next)
        collect_put(c, s, h, s->seq++);
    s->collected = true;
}

void undo_collect(struct undo *u, state_sink *put, void *arg) {
    struct layer *l = &u->layer[u->cur];
    struct collect c = { .put = put, .arg = arg };
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].s)
            l->v[i].s->collected = false;
    for (size_t i = 0; i < l->n; i++) {
        struct change_rec *r = &l->v[i];
        if (!r->s)
            continue;
        struct entry *e = entry_at(r->s, r->e);
        if (!is_dead(e)) {
            if (!state_ordered(r->s))
                collect_put(&c, r->s, r->e, 0);
            else if (!r->s->collected)
                collect_ordered(&c, r->s);
        } else if (!(r->head & DEAD)) {
            put(arg, r->s->instance, r->s->table, entry_key(r->s, e), entry_klen(e), NULL, 0);
        }
    }
    free(c.value);
}

size_t undo_bytes(const struct undo *u) {
    return u->layer[u->cur].bytes;
}

void undo_push(struct undo *u) {
    assert(!u->committing);
    u->committing = true;
    u->cur ^= 1;
    assert(u->layer[u->cur].n == 0);
}

static void layer_clear(struct layer *l) {
    l->n = 0;
    l->bytes = 0;
    arena_reset(&l->pre);
}

void undo_commit(struct undo *u) {
    assert(u->committing);
    int k = u->cur ^ 1;
    struct layer *l = &u->layer[k];
    for (size_t i = 0; i < l->n; i++) {
        struct change_rec *r = &l->v[i];
        if (!r->s)
            continue;
        struct entry *e = entry_at(r->s, r->e);
        block_free(r->s, &r->block);
        e->head &= ~TOUCHED(k);
        if (is_dead(e) && !(e->head & TOUCHED_ANY))
            keys_remove(r->s, r->e);
    }
    layer_clear(l);
    u->committing = false;
}

static void rec_undo(struct change_rec *r, int layer, bool committing) {
    struct state *s = r->s;
    struct entry *e = entry_at(s, r->e);
    bool had = !(r->head & DEAD);
    if (!is_dead(e)) {
        entry_count(s, e, false);
        if (state_ordered(s))
            order_unlink(s, r->e);
    }
    if (!s->vsize) {
        block_free(s, entry_block(s, e));
        *entry_block(s, e) = r->block;
    } else if (had && !MUTATED(MUTATE_UNDO)) {
        memcpy(value_at(s, e), r->pre, s->vsize);
    }
    /* The committing layer may still name the entry, or may have ended since. */
    uint64_t other = committing ? e->head & TOUCHED(layer ^ 1) : 0;
    e->head = (r->head & ~TOUCHED_ANY) | other;
    if (had) {
        entry_count(s, e, true);
        if (state_ordered(s))
            order_insert(s, r->e, r->next);
    } else if (!other) {
        keys_remove(s, r->e);
    }
}

static void layer_undo(struct undo *u, int k) {
    struct layer *l = &u->layer[k];
    for (size_t i = l->n; i-- > 0;)
        if (l->v[i].s)
            rec_undo(&l->v[i], k, u->committing);
    layer_clear(l);
}

void undo_abort(struct undo *u) {
    layer_undo(u, u->cur);
    if (!u->committing)
        return;
    u->committing = false;
    layer_undo(u, u->cur ^ 1);
}

void undo_forget(struct undo *u, struct state *s) {
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < u->layer[k].n; i++)
            if (u->layer[k].v[i].s == s)
                u->layer[k].v[i].s = NULL;
}
