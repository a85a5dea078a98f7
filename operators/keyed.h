/* The rows of a batch with the state of each row's key. Shared by operators that keep a fixed-size
 * value a key. One thread. */
#ifndef BRAID_OPERATORS_KEYED_H
#define BRAID_OPERATORS_KEYED_H
#include "engine/key.h"
#include "engine/op.h"

/* Rows of one key often follow each other (an exploded record), so the last value is kept: the
 * table is not asked again. */
struct keyed {
    struct state *table;
    const struct batch *rows; /* when the table has limits: they depend on each row's time */
    const struct span *key;
    const uint64_t *hash;
    void *value; /* of row `at`, for writing; NULL: none */
    uint32_t at;
    const void *seen; /* of row `seen_at`, for reading; NULL: not in the table */
    uint32_t seen_at; /* UINT32_MAX: none */
};

/* Above this size a table is not in the cache and its keys are asked for ahead; below, that would
 * only cost (~3 ns a row). */
enum { KEYED_PREFETCH_BYTES = 512 << 10 };

/* Keys of all rows of `b` by the task's grouping; asks the cache for their entries. ~8 ns a row,
 * less when another task of this tick has hashed the column. */
static inline struct keyed keyed_batch(struct op_ctx *c, struct state *t, const struct batch *b) {
    struct span *key = ARENA_ARRAY(c->arena, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(c->arena, uint64_t, b->n);
    key_batch(c->arena, b, c->by, c->nby, key, hash);
    if (state_bytes(t) > KEYED_PREFETCH_BYTES) {
        for (uint32_t i = 0; i < b->n; i++)
            state_prefetch_slot(t, hash[i]);
        for (uint32_t i = 0; i < b->n; i++)
            state_prefetch_entry(t, hash[i]);
    }
    return (struct keyed){ .table = t,
                           .rows = state_limited(t) ? b : NULL,
                           .key = key,
                           .hash = hash,
                           .seen_at = UINT32_MAX };
}

/* With limits every row asks the table: each write counts, and a value may expire between rows. */
static inline void keyed_at(struct keyed *k, uint32_t i) {
    const struct batch *b = k->rows;
    uint32_t r = batch_row(b, i);
    state_at(k->table, b->time ? b->time[r] : TIME_MIN, b->time ? b->wm[r] : TIME_MIN);
    k->value = NULL;
    k->seen_at = UINT32_MAX;
}

static inline bool keyed_same(const struct keyed *k, uint32_t i, uint32_t j) {
    const struct span *s = &k->key[i], *o = &k->key[j];
    return k->hash[i] == k->hash[j] && s->len == o->len &&
           (s->p == o->p || memcmp(s->p, o->p, s->len) == 0);
}

/* The value of row i of the batch, for writing; *created when it is new (zeroed). Holds until the
 * next call. */
static inline void *keyed_edit(struct keyed *k, uint32_t i, bool *created) {
    *created = false;
    if (k->rows)
        keyed_at(k, i);
    if (!k->value || !keyed_same(k, i, k->at)) {
        k->value = state_edit(k->table, k->key[i].p, k->key[i].len, k->hash[i], created);
        k->seen_at = UINT32_MAX;
    }
    k->at = i;
    return k->value;
}

/* The same for reading, NULL when the key has none: keeps no copy for an undo. */
static inline const void *keyed_find(struct keyed *k, uint32_t i) {
    if (k->rows)
        keyed_at(k, i);
    if (k->value && keyed_same(k, i, k->at))
        return k->value;
    if (k->seen_at == UINT32_MAX || !keyed_same(k, i, k->seen_at))
        k->seen = state_find(k->table, k->key[i].p, k->key[i].len, k->hash[i]);
    k->seen_at = i;
    return k->seen;
}

/* Forgets row i's key. */
static inline void keyed_drop(struct keyed *k, uint32_t i) {
    state_drop(k->table, k->key[i].p, k->key[i].len, k->hash[i]);
    k->value = NULL;
    k->seen_at = UINT32_MAX;
}

/* Puts v at the end of a list of at most `cap` values, oldest first, forgetting the oldest when it
 * is full; returns the new length. A list instead of a ring, so that equal pasts are equal bytes.
 */
static inline uint32_t keyed_push(double *list, uint32_t n, uint32_t cap, double v) {
    if (n < cap) {
        list[n] = v;
        return n + 1;
    }
    if (cap == 5) { /* the usual window: one load and one store instead of a call */
        double rest[4];
        memcpy(rest, list + 1, sizeof rest);
        memcpy(list, rest, sizeof rest);
    } else {
        memmove(list, list + 1, (cap - 1) * sizeof *list);
    }
    list[cap - 1] = v;
    return cap;
}
#endif
