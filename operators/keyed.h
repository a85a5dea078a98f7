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
    const struct span *key;
    const uint64_t *hash;
    void *value; /* of row `at`; NULL: none */
    uint32_t at;
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
    return (struct keyed){ .table = t, .key = key, .hash = hash };
}

/* The value of row i of the batch, for writing; *created when it is new (zeroed). Holds until the
 * next call. */
static inline void *keyed_edit(struct keyed *k, uint32_t i, bool *created) {
    const struct span *s = &k->key[i], *o = &k->key[k->at];
    *created = false;
    if (!k->value || k->hash[i] != k->hash[k->at] || s->len != o->len ||
        (s->p != o->p && memcmp(s->p, o->p, s->len) != 0))
        k->value = state_edit(k->table, s->p, s->len, k->hash[i], created);
    k->at = i;
    return k->value;
}

/* Forgets row i's key. */
static inline void keyed_drop(struct keyed *k, uint32_t i) {
    state_drop(k->table, k->key[i].p, k->key[i].len, k->hash[i]);
    k->value = NULL;
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
