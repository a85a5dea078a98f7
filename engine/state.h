/* Keyed state of one task instance: hash tables from key bytes to value bytes, with undo.
 *
 * The first change of a key in an epoch keeps its pre-image in that epoch's layer; closing an epoch
 * collects the changed keys for the commit; an aborted epoch is undone newest first. At most two
 * layers are open (one committing, one running). Owned by one executor thread.
 *
 * Memory: key, value, 8 bytes and some 8 more for the table; with limits another 8. It grows by a
 * few hundred keys at a time (state_table.h). Cost: find ~20 ns in cache, three misses for a cold
 * key unless it was asked for ahead; first edit of a key in an epoch + a copy of its value. */
#ifndef BRAID_STATE_H
#define BRAID_STATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key of the log is one of these and twelve bytes more (LOG_KEY_MAX). */
enum { STATE_TABLES = 4, STATE_KEY_MAX = 65000 };

struct state;
struct spill_window;
struct undo; /* the layers of one executor; see epoch.h */

/* What a table forgets by itself. 0: no limit.
 *
 * With a time to live, a key is absent for a row whose time (the larger of its event time and the
 * watermark before it) has reached the time of the key's last write + ttl_ms. It is removed later,
 * a bounded number of keys at a time, once the watermark of the task says that no row can see it:
 * when that happens changes no answer.
 *
 * Over max_keys keys or max_bytes bytes of keys and values, the key written least recently is
 * forgotten for a new one (`evict`), or new keys are refused (state_admits). Expired keys go
 * first. Which keys are there is a function of the calls alone. */
struct state_limits {
    int64_t ttl_ms;
    uint64_t max_keys, max_bytes;
    bool evict;
};

struct state *state_new(struct undo *u, uint64_t instance, int table, uint32_t vsize);
struct state *state_new_limited(struct undo *u, uint64_t instance, int table, uint32_t vsize,
                                const struct state_limits *limits);
void state_free(struct state *s);
/* The same hash everywhere: XXH3 of the key bytes. */
uint64_t state_hash(const void *key, uint32_t klen);

bool state_limited(const struct state *s); /* state_at must be called before each row */
/* The row whose calls follow has event time `time` and watermark `wm` before it. */
void state_at(struct state *s, int64_t time, int64_t wm);
/* False: the key is not there and the table, which does not evict, is full. */
bool state_admits(struct state *s, const void *key, uint32_t klen, uint64_t hash);
/* The key is there for this row or an earlier one in time. */
bool state_holds(const struct state *s, const void *key, uint32_t klen, uint64_t hash);
/* False: n keys that are not there would be admitted. */
bool state_near_limit(const struct state *s, uint32_t n);
/* Looks for keys that no row can see any more, the watermark of the task being `wm`, at n places
 * and 8 more for each key that is new since the last call. ~5 ns each. */
void state_expire(struct state *s, int64_t wm, uint32_t n);

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
uint64_t state_used(const struct state *s);    /* bytes of keys and values */
uint64_t state_bytes(const struct state *s);   /* memory held, or held in the file */
uint64_t state_spilled(const struct state *s); /* of them, in the file */
uint64_t state_evicted(const struct state *s); /* keys forgotten by limits, in this process */
/* Visits every live key, also expired ones that are not removed yet, in no order; `it` starts at 0.
 * False at the end. No edits meanwhile. */
bool state_next(struct state *s, uint64_t *it, const void **key, uint32_t *klen, const void **value,
                uint32_t *vlen);

/* Writes the keys of `from` into `to`, of the same vsize, under the limits of `to`: least recently
 * written first where `from` knows, with their times; without, as of `now`. */
void state_copy(struct state *from, struct state *to, int64_t now);

/* ---- for the executor (epoch.c) ---- */
struct undo *undo_new(void);
void undo_free(struct undo *u);
/* Tables of state_new_limited made from now on spill: what is found in them then holds only as long
 * as spill.h says. Takes the window. */
void undo_spill(struct undo *u, struct spill_window *window);
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
/* Restore: sets a key without undo, from what undo_collect gave (with limits, the value has the
 * time and number of its last write behind it). ERR_SYSTEM: not a value of this table. */
int state_load(struct state *s, const void *key, uint32_t klen, const void *value, uint32_t vlen);
#endif
