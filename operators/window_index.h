/* What is open in a window_aggregate: slices of event time, the group keys in each, and all keys in
 * canonical order. Derived from the state table and made anew after a restore or an undo; it
 * decides when and in which order windows fire, never what they hold. One thread. */
#ifndef BRAID_OPERATORS_WINDOW_INDEX_H
#define BRAID_OPERATORS_WINDOW_INDEX_H
#include "engine/batch.h"

struct window_key {
    char *p; /* canonical bytes, malloc'd; NULL: free entry */
    uint32_t len;
    uint32_t refs; /* slices that hold it */
    uint64_t hash;
};
struct window_slice {
    int64_t start;
    uint64_t *bits; /* bit i: key i has rows here */
    uint32_t words;
};
struct window_index {
    struct window_key *key; /* by id */
    uint32_t nkeys, cap_keys;
    uint32_t *free_id;
    uint32_t nfree, nidle; /* idle keys are in no slice, and kept: they usually come back */
    uint32_t *table, mask; /* ids + 1 by hash, linear probing */
    uint32_t used;         /* table entries, dead ones too */
    uint32_t *order;       /* ids in canonical order, once sorted */
    uint32_t norder;
    bool unsorted;
    struct window_slice *slice; /* ascending */
    uint32_t nslices, cap_slices;
    uint64_t entries; /* pairs of slice and key */
};

void window_index_free(struct window_index *x);
/* Notes that `key` has rows in the slice that starts at `start`. To be called once per pair.
 * Returns the id of the key. */
uint32_t window_index_add(struct window_index *x, int64_t start, struct span key, uint64_t hash);
/* The id of a key that is known, or UINT32_MAX. */
uint32_t window_index_find(const struct window_index *x, struct span key, uint64_t hash);
/* Takes back one pair, key `id` and the slice at index `slice`. */
void window_index_remove(struct window_index *x, uint32_t slice, uint32_t id);
/* Forgets the earliest slice. */
void window_index_drop_first(struct window_index *x);
/* Forgets idle keys when they are the most. */
void window_index_trim(struct window_index *x);
/* The same; then brings `order` up to date. */
void window_index_sort(struct window_index *x);
/* First slice that starts at `start` or later (nslices: none). */
uint32_t window_index_lower(const struct window_index *x, int64_t start);
static inline bool window_slice_has(const struct window_slice *s, uint32_t id) {
    return id / 64 < s->words && (s->bits[id / 64] >> (id & 63) & 1);
}
#endif
