#include "engine/state_table.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SEG_FIRST = 8, SEG_KEYS = 448, DIR_SPARE = 16 };

static inline uint16_t *seg_tags(struct seg *g, uint32_t cap) {
    return (uint16_t *)(void *)(g->h + cap + SEG_ALL);
}
static inline uint32_t *seg_top(struct seg *g, uint32_t cap) { /* aligned: cap is 8 * n */
    return (uint32_t *)(void *)(seg_tags(g, cap) + cap + SEG_ALL);
}
static inline size_t seg_size(const struct state *s, uint32_t cap) {
    size_t slot = sizeof(uint32_t) + sizeof(uint16_t) + (s->pool.window ? sizeof(uint32_t) : 0);
    return sizeof(struct seg) + (size_t)(cap + SEG_ALL) * slot;
}
static inline uint16_t hash_tag(uint64_t hash) {
    return (uint16_t)hash;
}
static inline uint32_t tag_home(uint16_t tag, uint32_t cap) {
    return (uint32_t)((uint64_t)tag * cap >> 16);
}
static inline uint64_t dir_index(const struct state *s, uint64_t hash) {
    return s->depth ? hash >> (64 - s->depth) : 0;
}

static struct seg *seg_new(struct state *s, uint32_t cap) {
    struct seg *g = calloc(1, seg_size(s, cap));
    if (!g)
        abort();
    g->wide = s->pool.window;
    s->seg_bytes += seg_size(s, cap);
    return g;
}
static void seg_free(struct state *s, struct seg *g, uint32_t cap) {
    s->seg_bytes -= seg_size(s, cap);
    free(g);
}

/* Puts a handle in its place; false when the slots behind its home are all taken. */
static bool seg_put(struct seg *g, uint32_t cap, uint16_t tag, uint32_t top, uint32_t h) {
    uint16_t *tags = seg_tags(g, cap);
    uint32_t all = cap + SEG_ALL, i = tag_home(tag, cap);
    while (i < all && g->h[i] && tags[i] <= tag)
        i++;
    uint32_t end = i;
    while (end < all && g->h[end])
        end++;
    if (end == all)
        return false;
    memmove(g->h + i + 1, g->h + i, (end - i) * sizeof *g->h);
    memmove(tags + i + 1, tags + i, (end - i) * sizeof *tags);
    if (g->wide) {
        uint32_t *tops = seg_top(g, cap);
        memmove(tops + i + 1, tops + i, (end - i) * sizeof *tops);
        tops[i] = top;
    }
    g->h[i] = h;
    tags[i] = tag;
    g->n++;
    return true;
}

/* Moves all into a new one of `cap` homes. False: they do not fit. */
static bool seg_fill(struct seg *to, uint32_t cap, struct seg *g, uint32_t old) {
    const uint16_t *tags = seg_tags(g, old);
    for (uint32_t i = 0; i < old + SEG_ALL; i++)
        if (g->h[i] && !seg_put(to, cap, tags[i], g->wide ? seg_top(g, old)[i] : 0, g->h[i]))
            return false;
    return true;
}

static uint32_t cap_next(uint32_t cap) {
    return cap + (cap / 8 + 7) / 8 * 8;
}

/* All entries of the directory that lead to the segment of `hash`. */
static void dir_set(struct state *s, uint64_t hash, struct seg_ref r) {
    uint64_t n = (uint64_t)1 << (s->depth - r.depth), first = dir_index(s, hash) & ~(n - 1);
    for (uint64_t i = 0; i < n; i++)
        s->dir[first + i] = r;
}

static void seg_grow(struct state *s, uint64_t hash) {
    struct seg_ref r = s->dir[dir_index(s, hash)];
    for (uint32_t cap = cap_next(r.cap);; cap = cap_next(cap)) {
        struct seg *g = seg_new(s, cap);
        if (seg_fill(g, cap, r.seg, r.cap)) {
            seg_free(s, r.seg, r.cap);
            dir_set(s, hash, (struct seg_ref){ g, cap, r.depth });
            return;
        }
        seg_free(s, g, cap);
    }
}

static void dir_double(struct state *s) {
    uint64_t n = (uint64_t)1 << s->depth;
    struct seg_ref *dir = malloc(2 * n * sizeof *dir);
    if (!dir)
        abort();
    for (uint64_t i = 0; i < n; i++)
        dir[2 * i] = dir[2 * i + 1] = s->dir[i];
    free(s->dir);
    s->dir = dir;
    s->depth++;
}

/* The top bits of the hash of slot i. */
static uint32_t slot_top(const struct state *s, const struct seg_ref *r, uint32_t i) {
    if (r->seg->wide)
        return seg_top(r->seg, r->cap)[i];
    struct entry *e = entry_at(s, r->seg->h[i]);
    return (uint32_t)(state_hash(entry_key(s, e), entry_klen(e)) >> 32);
}

/* Two of half the keys each, by the next bit of their hashes. */
static void seg_split(struct state *s, uint64_t hash) {
    struct seg_ref old = s->dir[dir_index(s, hash)];
    if (old.depth == s->depth)
        dir_double(s);
    uint32_t depth = old.depth + 1, all = old.cap + SEG_ALL, cap = (old.cap / 2 + 32) / 8 * 8;
    uint64_t bit = (uint64_t)1 << (64 - depth);
    struct seg_ref half[2];
    const uint16_t *tags = seg_tags(old.seg, old.cap);
    for (int k = 0; k < 2; k++) {
        half[k] = (struct seg_ref){ seg_new(s, cap), cap, depth };
        dir_set(s, k ? hash | bit : hash & ~bit, half[k]);
    }
    for (uint32_t i = 0; i < all && !old.seg->wide; i++)
        if (old.seg->h[i])
            pool_prefetch(&s->pool, old.seg->h[i], sizeof(struct entry) + s->at_key + 16);
    for (uint32_t i = 0; i < all; i++) {
        if (!old.seg->h[i])
            continue;
        uint32_t top = slot_top(s, &old, i);
        uint64_t of = (uint64_t)top << 32;
        struct seg_ref *r = &s->dir[dir_index(s, of)];
        while (r->seg->n >= r->cap / 8 * 7 ||
               !seg_put(r->seg, r->cap, tags[i], top, old.seg->h[i])) {
            seg_grow(s, of); /* an uneven split */
            r = &s->dir[dir_index(s, of)];
        }
    }
    seg_free(s, old.seg, old.cap);
    s->nsegs++;
}

/* Keys chosen to share the top bits of their hashes must not blow up the directory: then the
 * segment grows beyond its size. */
static bool may_split(const struct state *s, const struct seg_ref *r) {
    return r->depth < 32 &&
           (r->depth < s->depth || (uint64_t)1 << s->depth <= (uint64_t)DIR_SPARE * s->nsegs);
}

static void table_put(struct state *s, uint64_t hash, uint32_t h) {
    for (;;) {
        struct seg_ref *r = &s->dir[dir_index(s, hash)];
        bool room = r->seg->n < r->cap / 8 * 7;
        if (room && seg_put(r->seg, r->cap, hash_tag(hash), (uint32_t)(hash >> 32), h))
            return;
        if (r->seg->n >= SEG_KEYS && may_split(s, r))
            seg_split(s, hash);
        else
            seg_grow(s, hash);
    }
}

uint32_t keys_find(const struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    if (!s->dir)
        return 0;
    const struct seg_ref *r = &s->dir[dir_index(s, hash)];
    uint16_t tag = hash_tag(hash);
    const uint16_t *tags = seg_tags(r->seg, r->cap);
    uint32_t i = tag_home(tag, r->cap), all = r->cap + SEG_ALL;
    while (i < all && r->seg->h[i] && tags[i] < tag)
        i++;
    for (; i < all && r->seg->h[i] && tags[i] == tag; i++) {
        if (r->seg->wide && seg_top(r->seg, r->cap)[i] != (uint32_t)(hash >> 32))
            continue;
        struct entry *e = entry_at(s, r->seg->h[i]);
        if (entry_klen(e) == klen && (klen == 0 || memcmp(entry_key(s, e), key, klen) == 0))
            return r->seg->h[i];
    }
    return 0;
}

uint32_t keys_add(struct state *s, const void *key, uint32_t klen, uint64_t hash) {
    assert(klen <= STATE_KEY_MAX);
    if (!s->dir) {
        s->dir = malloc(sizeof *s->dir);
        if (!s->dir)
            abort();
        s->dir[0] = (struct seg_ref){ .seg = seg_new(s, SEG_FIRST), .cap = SEG_FIRST };
        s->nsegs = 1;
    }
    uint32_t h = pool_alloc(&s->pool, entry_size(s, klen));
    struct entry *e = entry_at(s, h);
    e->head = klen | DEAD;
    memset(e->data, 0, s->at_key);
    if (klen)
        memcpy(entry_key(s, e), key, klen);
    table_put(s, hash, h);
    s->used++;
    return h;
}

void keys_remove(struct state *s, uint32_t h) {
    struct entry *e = entry_at(s, h);
    uint32_t klen = entry_klen(e);
    uint64_t hash = state_hash(entry_key(s, e), klen);
    struct seg_ref *r = &s->dir[dir_index(s, hash)];
    struct seg *g = r->seg;
    uint16_t *tags = seg_tags(g, r->cap);
    uint32_t i = tag_home(hash_tag(hash), r->cap), all = r->cap + SEG_ALL, end;
    while (g->h[i] != h)
        i++;
    for (end = i + 1; end < all && g->h[end] && tag_home(tags[end], r->cap) < end;)
        end++; /* those move nearer to their homes */
    memmove(g->h + i, g->h + i + 1, (end - i - 1) * sizeof *g->h);
    memmove(tags + i, tags + i + 1, (end - i - 1) * sizeof *tags);
    if (g->wide) {
        uint32_t *tops = seg_top(g, r->cap);
        memmove(tops + i, tops + i + 1, (end - i - 1) * sizeof *tops);
    }
    g->h[end - 1] = 0;
    g->n--;
    s->used--;
    pool_free(&s->pool, h, entry_size(s, klen));
}

void keys_free(struct state *s) {
    for (uint64_t i = 0; s->dir && i < (uint64_t)1 << s->depth;) {
        struct seg_ref r = s->dir[i];
        i += (uint64_t)1 << (s->depth - r.depth);
        seg_free(s, r.seg, r.cap);
    }
    free(s->dir);
    pool_release(&s->pool);
}

/* The place is a hash, so that it holds when the directory grows. */
uint32_t keys_sweep(struct state *s, uint32_t *h, uint32_t n) {
    uint32_t got = 0;
    if (!s->dir)
        return 0;
    const struct seg_ref *r = &s->dir[dir_index(s, s->sweep)];
    for (; n; n--) {
        if (s->sweep_at >= r->cap + SEG_ALL) {
            s->sweep_at = 0;
            s->sweep = r->depth ? ((s->sweep >> (64 - r->depth)) + 1) << (64 - r->depth) : 0;
            r = &s->dir[dir_index(s, s->sweep)];
        }
        uint32_t e = r->seg->h[s->sweep_at++];
        if (e) {
            pool_prefetch(&s->pool, e, sizeof(struct entry));
            h[got++] = e;
        }
    }
    return got;
}

uint32_t keys_next(const struct state *s, uint64_t *it) {
    uint64_t i = *it >> 24, at = *it & 0xffffff;
    while (s->dir && i < (uint64_t)1 << s->depth) {
        const struct seg_ref *r = &s->dir[i];
        for (; at < r->cap + SEG_ALL; at++)
            if (r->seg->h[at]) {
                *it = i << 24 | (at + 1);
                return r->seg->h[at];
            }
        i += (uint64_t)1 << (s->depth - r->depth);
        at = 0;
    }
    *it = i << 24;
    return 0;
}

/* ---- asking the cache ---- */

void state_prefetch_slot(const struct state *s, uint64_t hash) {
    if (!s->dir)
        return;
    const struct seg_ref *r = &s->dir[dir_index(s, hash)];
    uint32_t home = tag_home(hash_tag(hash), r->cap);
    __builtin_prefetch(&r->seg->h[home]);
    __builtin_prefetch(&seg_tags(r->seg, r->cap)[home]);
}

void state_prefetch_entry(const struct state *s, uint64_t hash) {
    if (!s->dir)
        return;
    const struct seg_ref *r = &s->dir[dir_index(s, hash)];
    uint16_t tag = hash_tag(hash);
    const uint16_t *tags = seg_tags(r->seg, r->cap);
    uint32_t i = tag_home(tag, r->cap), all = r->cap + SEG_ALL;
    while (i < all && r->seg->h[i] && tags[i] < tag)
        i++;
    if (i < all && r->seg->h[i] && tags[i] == tag)
        pool_prefetch(&s->pool, r->seg->h[i], sizeof(struct entry) + s->at_key + 16);
}
