/* Inside of keyed state: the table from keys to entries (state.c, state_table.c only).
 *
 * An extendible hash table (R. Fagin et al., "Extendible hashing", ACM TODS 4(3), 1979): the top
 * bits of the hash choose a segment of at most SEG_KEYS keys, and only a segment grows or splits,
 * so that an edit moves a few hundred slots at most, however large the table is. A segment is an
 * array with gaps, sorted by tag (16 bits of the hash); a key's home is proportional to its tag,
 * and it lies there or shortly behind. A slot is six bytes, seven eighths of them are used. */
#ifndef BRAID_STATE_TABLE_H
#define BRAID_STATE_TABLE_H
#include "engine/pool.h"
#include "engine/state.h"

enum { SEG_ALL = 24 /* slots behind the last home */ };
struct seg {
    uint32_t n;
    bool wide; /* has the top 32 bits of hashes, too: a table that spills reads no key to split */
    uint32_t h[]; /* handles, 0: empty; then the tags; then the top bits */
};
struct seg_ref { /* equal for all entries of the directory that lead to the segment */
    struct seg *seg;
    uint32_t cap;   /* homes; cap + SEG_ALL slots */
    uint32_t depth; /* top bits of the hash that all its keys share */
};

/* Bits of an entry's head. */
enum { HEAD_TOUCHED = 16 /* one bit a layer */, HEAD_DEAD = 18, HEAD_TIME = 19 };
#define TOUCHED(layer) ((uint64_t)1 << (HEAD_TOUCHED + (layer)))
#define TOUCHED_ANY    ((uint64_t)3 << HEAD_TOUCHED)
#define DEAD           ((uint64_t)1 << HEAD_DEAD)

/* An entry stays in the table, marked dead, until no open layer names it: so every key has at most
 * one entry, and undo never has to look a key up. */
struct entry {
    uint64_t head; /* klen, touched by which layers, dead, time of the last write */
    char data[];   /* [struct order,] value or struct block, key */
};
struct order { /* handles of the neighbours by last write; 0: none */
    uint32_t prev, next;
};
struct block {       /* value of a table of any size */
    uint32_t len, h; /* h 0: empty */
};

struct state {
    struct undo *undo;
    uint64_t instance;
    int table;
    uint32_t vsize;
    uint32_t at_value, at_key; /* in data */
    struct seg_ref *dir;       /* 1 << depth */
    uint32_t depth, nsegs;
    uint64_t used, live;
    uint64_t bytes; /* state_used */
    size_t seg_bytes;
    struct pool pool;
    struct state_limits limits;
    int64_t time, wm;      /* of the current row; state_at */
    uint64_t sweep;        /* the hash up to which the table was searched for expired keys */
    uint32_t sweep_at;     /* slot within that segment */
    struct order ends;     /* prev: least recently written; next: most recently */
    uint64_t seq;          /* number of the next write that is saved */
    struct loaded *loaded; /* keys of a restore that wait for their order */
    size_t nloaded, loaded_cap;
    uint64_t evicted, created; /* created: keys since the last search for expired ones */
    bool collected;            /* within undo_collect */
};

/* Keys are kept in the order of their last writes. */
static inline bool state_ordered(const struct state *s) {
    return s->limits.max_keys || s->limits.max_bytes;
}

static inline struct entry *entry_at(const struct state *s, uint32_t h) {
    return (struct entry *)(void *)pool_at(&s->pool, h);
}
static inline uint32_t entry_klen(const struct entry *e) {
    return (uint32_t)(e->head & 0xffff);
}
static inline char *entry_key(const struct state *s, struct entry *e) {
    return e->data + s->at_key;
}
static inline struct block *entry_block(const struct state *s, struct entry *e) {
    return (struct block *)(void *)(e->data + s->at_value);
}
static inline size_t entry_size(const struct state *s, uint32_t klen) {
    return sizeof(struct entry) + s->at_key + klen;
}

/* 0: absent. */
uint32_t keys_find(const struct state *s, const void *key, uint32_t klen, uint64_t hash);
/* A new entry for a key that is absent: dead, of no time, without order. */
uint32_t keys_add(struct state *s, const void *key, uint32_t klen, uint64_t hash);
/* Takes the entry out and frees it. */
void keys_remove(struct state *s, uint32_t h);
void keys_free(struct state *s);
/* The entries of the next n slots of an endless round over the table; how many. */
uint32_t keys_sweep(struct state *s, uint32_t *h, uint32_t n);
/* The next entry in order of hash; *it starts at 0. 0: the end. */
uint32_t keys_next(const struct state *s, uint64_t *it);
#endif
