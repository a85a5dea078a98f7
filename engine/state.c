#include "engine/state.h"
#include "engine/arena.h"
#include "engine/err.h"
#include "engine/mutate.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* An entry stays in the table, marked dead, until no open layer names it: so every key has at most
 * one entry, and undo never has to look a key up. */
struct entry {
    uint64_t hash;
    uint64_t stamp; /* number of the layer that last changed it */
    void *value;    /* fixed tables: inside the entry */
    uint32_t klen, vlen;
    bool dead;
    _Alignas(16) char data[]; /* [fixed value,] key */
};
struct slot {
    uint64_t hash;
    struct entry *e;
};

enum { RECORD_BYTES = 20, POOL_STEP = 16, POOL_CLASSES = 64, POOL_MAX = POOL_STEP * POOL_CLASSES };

struct state {
    struct undo *undo;
    uint64_t instance;
    int table;
    uint32_t vsize;
    struct slot *slots; /* power of two, load <= 3/4, linear probing */
    uint64_t mask, used, live;
    struct arena chunks; /* small blocks, recycled through `free` by size class */
    void *free[POOL_CLASSES];
    uint64_t big; /* bytes in blocks above POOL_MAX */
};

struct change_rec {
    struct state *s; /* NULL: forgotten */
    struct entry *e;
    uint64_t prev_stamp;
    void *pre; /* value before; fixed tables: in the layer's arena, else the old block itself */
    uint32_t pre_len;
    bool had; /* the key was there before */
};
struct layer {
    uint64_t number;
    struct change_rec *v;
    size_t n, cap;
    size_t bytes; /* undo_bytes */
    struct arena pre;
};
struct undo {
    struct layer layer[2];
    int cur;         /* index of the running layer */
    bool committing; /* the other one is open */
    uint64_t next_number;
};

/* ---- memory ---- */

static void *pool_alloc(struct state *s, size_t size) {
    if (size == 0)
        size = 1;
    if (size > POOL_MAX) {
        s->big += size;
        void *p = malloc(size);
        if (!p)
            abort();
        return p;
    }
    size_t c = (size - 1) / POOL_STEP;
    void *p = s->free[c];
    if (p) {
        memcpy(&s->free[c], p, sizeof p);
        return p;
    }
    if (s->chunks.chunk == 0)
        s->chunks.chunk = 512; /* most tasks hold few keys */
    return arena_alloc(&s->chunks, (c + 1) * POOL_STEP);
}

static void pool_free(struct state *s, void *p, size_t size) {
    if (!p)
        return;
    if (size == 0)
        size = 1;
    if (size > POOL_MAX) {
        s->big -= size;
        free(p);
        return;
    }
    size_t c = (size - 1) / POOL_STEP;
    memcpy(p, &s->free[c], sizeof p);
    s->free[c] = p;
}

static size_t fixed_room(const struct state *s) {
    return ((size_t)s->vsize + 7) & ~(size_t)7;
}
static char *entry_key(const struct state *s, struct entry *e) {
    return e->data + fixed_room(s);
}
static size_t entry_size(const struct state *s, uint32_t klen) {
    return sizeof(struct entry) + fixed_room(s) + klen;
}

/* ---- table ---- */

uint64_t state_hash(const void *key, uint32_t klen) {
    return XXH3_64bits(key, klen);
}

struct state *state_new(struct undo *u, uint64_t instance, int table, uint32_t vsize) {
    struct state *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->undo = u;
    s->instance = instance;
    s->table = table;
    s->vsize = vsize;
    return s;
}

static void entry_release(struct state *s, struct entry *e) {
    if (!s->vsize)
        pool_free(s, e->value, e->vlen);
    pool_free(s, e, entry_size(s, e->klen));
}

void state_free(struct state *s) {
    if (!s)
        return;
    undo_forget(s->undo, s);
    if (s->big) /* only blocks from malloc need a visit */
        for (uint64_t i = 0; i <= s->mask; i++)
            if (s->slots[i].e)
                entry_release(s, s->slots[i].e);
    free(s->slots);
    arena_free(&s->chunks);
    free(s);
}

static void table_grow(struct state *s) {
    uint64_t n = s->slots ? (s->mask + 1) * 2 : 8;
    struct slot *slots = calloc(n, sizeof *slots);
    if (!slots)
        abort();
    for (uint64_t i = 0; s->slots && i <= s->mask; i++) {
        if (!s->slots[i].e)
            continue;
        uint64_t j = s->slots[i].hash & (n - 1);
        while (slots[j].e)
            j = (j + 1) & (n - 1);
        slots[j] = s->slots[i];
    }
    free(s->slots);
    s->slots = slots;
    s->mask = n - 1;
}

static struct entry *table_find(const struct state *s, const void *key, uint32_t klen,
                                uint64_t hash) {
    if (!s->slots)
        return NULL;
    for (uint64_t i = hash & s->mask;; i = (i + 1) & s->mask) {
        struct entry *e = s->slots[i].e;
        if (!e)
            return NULL;
        if (s->slots[i].hash == hash && e->klen == klen &&
            (klen == 0 || memcmp(e->data + fixed_room(s), key, klen) == 0))
            return e;
    }
}

static struct entry *table_add(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    assert(klen <= STATE_KEY_MAX);
    if (!s->slots || s->used + 1 > (s->mask + 1) / 4 * 3)
        table_grow(s);
    struct entry *e = pool_alloc(s, entry_size(s, klen));
    *e = (struct entry){ .hash = hash, .klen = klen, .vlen = s->vsize, .dead = true };
    e->value = s->vsize ? e->data : NULL;
    if (klen)
        memcpy(entry_key(s, e), key, klen);
    uint64_t i = hash & s->mask;
    while (s->slots[i].e)
        i = (i + 1) & s->mask;
    s->slots[i] = (struct slot){ hash, e };
    s->used++;
    return e;
}

/* Deletion by shifting back, so that probes never grow with churn. */
static void table_remove(struct state *s, struct entry *e) {
    uint64_t i = e->hash & s->mask;
    while (s->slots[i].e != e)
        i = (i + 1) & s->mask;
    for (uint64_t j = i;;) {
        j = (j + 1) & s->mask;
        if (!s->slots[j].e)
            break;
        uint64_t home = s->slots[j].hash & s->mask;
        if (((j - home) & s->mask) >= ((j - i) & s->mask)) {
            s->slots[i] = s->slots[j];
            i = j;
        }
    }
    s->slots[i] = (struct slot){ 0, NULL };
    s->used--;
    entry_release(s, e);
}

/* ---- layers ---- */

struct undo *undo_new(void) {
    struct undo *u = calloc(1, sizeof *u);
    if (!u)
        abort();
    u->layer[0].number = 1;
    u->next_number = 2;
    return u;
}

void undo_free(struct undo *u) {
    if (!u)
        return;
    for (int i = 0; i < 2; i++) {
        free(u->layer[i].v);
        arena_free(&u->layer[i].pre);
    }
    free(u);
}

/* Keeps the pre-image of an entry that the running layer has not changed yet. The value of a table
 * of any size moves into the record; the caller gives the entry a new one. */
static void touch(struct state *s, struct entry *e) {
    struct layer *l = &s->undo->layer[s->undo->cur];
    if (e->stamp == l->number)
        return;
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->v = realloc(l->v, l->cap * sizeof *l->v);
        if (!l->v)
            abort();
    }
    struct change_rec *r = &l->v[l->n++];
    *r = (struct change_rec){ .s = s, .e = e, .prev_stamp = e->stamp, .had = !e->dead };
    if (r->had) {
        r->pre_len = e->vlen;
        if (s->vsize) {
            r->pre = arena_alloc(&l->pre, s->vsize);
            memcpy(r->pre, e->value, s->vsize);
        } else {
            r->pre = e->value;
            e->value = NULL;
            e->vlen = 0;
        }
    }
    e->stamp = l->number;
    l->bytes += RECORD_BYTES + e->klen + s->vsize;
}

static void value_set(struct state *s, struct entry *e, const void *value, uint32_t vlen) {
    pool_free(s, e->value, e->vlen);
    e->value = pool_alloc(s, vlen);
    e->vlen = vlen;
    if (vlen)
        memcpy(e->value, value, vlen);
}

const void *state_find(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    struct entry *e = table_find(s, key, klen, hash);
    return e && !e->dead ? e->value : NULL;
}

void *state_edit(struct state *s, const void *key, uint32_t klen, uint64_t hash, bool *created) {
    struct entry *e = table_find(s, key, klen, hash);
    if (!e)
        e = table_add(s, key, klen, hash);
    touch(s, e);
    if (created)
        *created = e->dead;
    if (e->dead) {
        e->dead = false;
        s->live++;
        assert(e->value); /* of fixed size: it lies in the entry */
        memset(e->value, 0, s->vsize);
    }
    return e->value;
}

const void *state_get(struct state *s, const void *key, uint32_t klen, uint64_t hash,
                      uint32_t *vlen) {
    struct entry *e = table_find(s, key, klen, hash);
    if (!e || e->dead)
        return NULL;
    *vlen = e->vlen;
    return e->value;
}

void state_put(struct state *s, const void *key, uint32_t klen, uint64_t hash, const void *value,
               uint32_t vlen) {
    struct entry *e = table_find(s, key, klen, hash);
    if (!e)
        e = table_add(s, key, klen, hash);
    touch(s, e);
    if (e->dead) {
        e->dead = false;
        s->live++;
    }
    size_t *bytes = &s->undo->layer[s->undo->cur].bytes;
    *bytes = *bytes - e->vlen + vlen; /* what was there is of this layer */
    value_set(s, e, value, vlen);
}

bool state_drop(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    struct entry *e = table_find(s, key, klen, hash);
    if (!e || e->dead)
        return false;
    touch(s, e);
    e->dead = true;
    s->live--;
    if (!s->vsize) {
        s->undo->layer[s->undo->cur].bytes -= e->vlen;
        pool_free(s, e->value, e->vlen);
        e->value = NULL;
        e->vlen = 0;
    }
    return true;
}

int state_load(struct state *s, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    if (klen > STATE_KEY_MAX || (s->vsize && vlen != s->vsize))
        return ERR_SYSTEM;
    uint64_t hash = state_hash(key, klen);
    struct entry *e = table_find(s, key, klen, hash);
    if (!e)
        e = table_add(s, key, klen, hash);
    if (e->dead) {
        e->dead = false;
        s->live++;
    }
    if (s->vsize) {
        memcpy(e->value, value, s->vsize);
    } else {
        value_set(s, e, value, vlen);
    }
    return 0;
}

void state_prefetch_slot(const struct state *s, uint64_t hash) {
    if (s->slots)
        __builtin_prefetch(&s->slots[hash & s->mask]);
}

void state_prefetch_entry(const struct state *s, uint64_t hash) {
    if (!s->slots)
        return;
    const struct entry *e = s->slots[hash & s->mask].e;
    if (!e)
        return;
    const char *p = (const char *)e, *end = e->data + fixed_room(s) + 32;
    for (; p < end; p += 64)
        __builtin_prefetch(p);
}

uint32_t state_vsize(const struct state *s) {
    return s->vsize;
}

uint64_t state_count(const struct state *s) {
    return s->live;
}

uint64_t state_bytes(const struct state *s) {
    return sizeof *s + (s->slots ? (s->mask + 1) * sizeof *s->slots : 0) + s->chunks.reserved +
           s->big;
}

bool state_next(struct state *s, uint64_t *it, const void **key, uint32_t *klen, const void **value,
                uint32_t *vlen) {
    for (; s->slots && *it <= s->mask; (*it)++) {
        struct entry *e = s->slots[*it].e;
        if (!e || e->dead)
            continue;
        *key = entry_key(s, e);
        *klen = e->klen;
        *value = e->value;
        *vlen = e->vlen;
        (*it)++;
        return true;
    }
    return false;
}

/* ---- epochs ---- */

void undo_collect(struct undo *u, state_sink *put, void *arg) {
    struct layer *l = &u->layer[u->cur];
    for (size_t i = 0; i < l->n; i++) {
        struct change_rec *r = &l->v[i];
        if (!r->s || (r->e->dead && !r->had))
            continue;
        put(arg, r->s->instance, r->s->table, entry_key(r->s, r->e), r->e->klen,
            r->e->dead ? NULL : r->e->value, r->e->dead ? 0 : r->e->vlen);
    }
}

size_t undo_bytes(const struct undo *u) {
    return u->layer[u->cur].bytes;
}

void undo_push(struct undo *u) {
    assert(!u->committing);
    u->committing = true;
    u->cur ^= 1;
    u->layer[u->cur].number = u->next_number++;
    assert(u->layer[u->cur].n == 0);
}

static void layer_clear(struct layer *l) {
    l->n = 0;
    l->bytes = 0;
    arena_reset(&l->pre);
}

/* Values of any size that the layer replaced are freed. */
static void rec_free_pre(struct change_rec *r) {
    if (!r->s->vsize && r->had)
        pool_free(r->s, r->pre, r->pre_len);
}

void undo_commit(struct undo *u) {
    assert(u->committing);
    struct layer *l = &u->layer[u->cur ^ 1];
    for (size_t i = 0; i < l->n; i++) {
        struct change_rec *r = &l->v[i];
        if (!r->s)
            continue;
        rec_free_pre(r);
        if (r->e->dead && r->e->stamp == l->number)
            table_remove(r->s, r->e);
    }
    layer_clear(l);
    u->committing = false;
}

static void rec_undo(struct undo *u, struct layer *l, struct change_rec *r) {
    struct state *s = r->s;
    struct entry *e = r->e;
    s->live += (uint64_t)r->had - (uint64_t)!e->dead;
    if (!s->vsize) {
        pool_free(s, e->value, e->vlen);
        e->value = r->had ? r->pre : NULL;
        e->vlen = r->had ? r->pre_len : 0;
    } else if (r->had && !MUTATED(MUTATE_UNDO)) {
        memcpy(e->value, r->pre, s->vsize);
    }
    e->dead = !r->had;
    e->stamp = r->prev_stamp;
    /* A dead entry may still be named by the committing layer; else it goes now. */
    bool older =
        u->committing && l == &u->layer[u->cur] && r->prev_stamp == u->layer[u->cur ^ 1].number;
    if (e->dead && !older)
        table_remove(s, e);
}

static void layer_undo(struct undo *u, struct layer *l) {
    for (size_t i = l->n; i-- > 0;)
        if (l->v[i].s)
            rec_undo(u, l, &l->v[i]);
    layer_clear(l);
}

void undo_abort(struct undo *u) {
    layer_undo(u, &u->layer[u->cur]);
    if (!u->committing)
        return;
    u->committing = false;
    layer_undo(u, &u->layer[u->cur ^ 1]);
    u->layer[u->cur].number = u->next_number++;
}

void undo_forget(struct undo *u, struct state *s) {
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < u->layer[k].n; i++) {
            struct change_rec *r = &u->layer[k].v[i];
            if (r->s != s)
                continue;
            rec_free_pre(r);
            r->s = NULL;
        }
}
