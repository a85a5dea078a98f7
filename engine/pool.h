/* Memory of one state table: blocks named by 32-bit handles, of 8 bytes each, so that a slot of the
 * table costs six bytes. Blocks come from chunks of 64 KiB (the first ones smaller: most tasks hold
 * few keys) and are recycled by size class; above 32 KiB a block is a chunk of its own. Beyond the
 * budget of `spill`, chunks lie in its file (spill.h). A pool holds at most 32 GiB; like running
 * out of memory, more ends the process.
 *
 * Without a window a block never moves, and its address (pool_at) holds as long as the block; with
 * one, as long as spill.h says. One thread. */
#ifndef BRAID_POOL_H
#define BRAID_POOL_H
#include "engine/spill.h"
#include <stddef.h>
#include <stdint.h>

enum { POOL_SHIFT = 13, POOL_GRAIN = 8 }; /* a chunk is (1 << POOL_SHIFT) * POOL_GRAIN bytes */

struct pool {
    uintptr_t *chunk; /* address; bit 0: mapped from the file of `window`; bit 1: counted in its
                       * budget; bit 2: in the file, by pages */
    size_t *size;     /* of each chunk; 0: its number is free */
    uint32_t chunks, cap;
    struct {
        uint32_t next, end;      /* handles of the current chunk not given out yet */
    } cur[2];                    /* for blocks up to a page, and for larger ones */
    uint32_t *free;              /* by size class; NULL: nothing was freed yet */
    uint32_t spare;              /* numbers of freed chunks, linked; 0: none */
    size_t bytes;                /* held, in memory or in the file */
    size_t spilled;              /* of them, in the file */
    struct spill_window *window; /* NULL: no budget */
};

/* Never 0; not zeroed, 8-byte aligned. ~4 ns. */
uint32_t pool_alloc(struct pool *p, size_t size);
/* `size` as at allocation. */
void pool_free(struct pool *p, uint32_t h, size_t size);
void pool_release(struct pool *p); /* everything */
static inline char *pool_at(const struct pool *p, uint32_t h) {
    uintptr_t c = p->chunk[h >> POOL_SHIFT];
    char *at = (char *)(c & ~(uintptr_t)7) + (size_t)(h & ((1u << POOL_SHIFT) - 1)) * POOL_GRAIN;
    if (c & 4)
        return spill_page(p->window, at);
    if (c & 1)
        spill_touch(p->window, (char *)(c & ~(uintptr_t)7));
    return at;
}
/* Asks the cache for the lines of a block; nothing when it lies in the file. */
static inline void pool_prefetch(const struct pool *p, uint32_t h, size_t size) {
    uintptr_t c = p->chunk[h >> POOL_SHIFT];
    if (c & 5)
        return;
    const char *at =
        (const char *)(c & ~(uintptr_t)7) + (size_t)(h & ((1u << POOL_SHIFT) - 1)) * POOL_GRAIN;
    for (const char *end = at + size; at < end; at += 64)
        __builtin_prefetch(at);
}
#endif
