/* Keyed state of one task instance: hash tables from key bytes to value bytes, with undo.
 *
 * The first change of a key in an epoch keeps its pre-image in that epoch's layer; closing an epoch
 * collects the changed keys for the commit; an aborted epoch is undone newest first. At most two
 * layers are open (one committing, one running). Owned by one executor thread.
 * Cost: find ~20 ns in cache, one miss for a cold key; first edit of a key in an epoch + a copy of
 * its value. */
#ifndef BRAID_STATE_H
#define BRAID_STATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key of the log is one of these and twelve bytes more (LOG_KEY_MAX). */
enum { STATE_TABLES = 4, STATE_KEY_MAX = 65000 };

struct state;
struct undo; /* the layers of one executor; see epoch.h */

struct state *state_new(struct undo *u, uint64_t instance, int table, uint32_t vsize);
void state_free(struct state *s);
/* The same hash everywhere: XXH3 of the key bytes. */
uint64_t state_hash(const void *key, uint32_t klen);

/* Fixed-size tables: the value in place, or NULL. The pointer holds until the next edit or drop of
 * this table. Never write through state_find. */
const void *state_find(struct state *s, const void *key, uint32_t klen, uint64_t hash);
/* For writing; created zeroed when absent. */
void *state_edit(struct state *s, const void *key, uint32_t klen, uint64_t hash, bool *created);
/* Tables of any size: values are replaced whole. */
const void *state_get(struct state *s, const void *key, uint32_t klen, uint64_t hash,
                      uint32_t *vlen);
void state_put(struct state *s, const void *key, uint32_t klen, uint64_t hash, const void *value,
               uint32_t vlen);
/* Either kind. True when the key was there. */
bool state_drop(struct state *s, const void *key, uint32_t klen, uint64_t hash);

/* For batches of cold keys: first ask for all slots, then for all entries, then find or edit. */
void state_prefetch_slot(const struct state *s, uint64_t hash);
void state_prefetch_entry(const struct state *s, uint64_t hash);

uint32_t state_vsize(const struct state *s); /* as in state_new */
uint64_t state_count(const struct state *s);
uint64_t state_bytes(const struct state *s); /* memory held */
/* Visits every live key in no order; `it` starts at 0. False at the end. No edits meanwhile. */
bool state_next(struct state *s, uint64_t *it, const void **key, uint32_t *klen, const void **value,
                uint32_t *vlen);

/* ---- for the executor (epoch.c) ---- */
struct undo *undo_new(void);
void undo_free(struct undo *u);
/* Calls `put` for every key changed since the current layer began (value NULL: dropped). */
typedef void state_sink(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                        const void *value, uint32_t vlen);
void undo_collect(struct undo *u, state_sink *put, void *arg);
/* Bytes of keys and values that undo_collect would call `put` with, about 20 each for the rest. */
size_t undo_bytes(const struct undo *u);
/* The running layer becomes the committing one and a new one begins. At most one may commit. */
void undo_push(struct undo *u);
/* The committing layer is durable: forget it. */
void undo_commit(struct undo *u);
/* Takes back the running layer, then the committing one if there is any. */
void undo_abort(struct undo *u);
/* The table is about to be freed (pruned task): drops its entries from all layers. */
void undo_forget(struct undo *u, struct state *s);
/* Restore: sets a key without undo. ERR_SYSTEM: not a value of this table. */
int state_load(struct state *s, const void *key, uint32_t klen, const void *value, uint32_t vlen);
#endif
