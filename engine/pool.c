#include "engine/pool.h"
#include <stdlib.h>
#include <string.h>

/* Classes: every 8 bytes up to 1 KiB, then 16 an octave up to 32 KiB. */
enum {
    FINE_MAX = 1024,
    FINE = FINE_MAX / POOL_GRAIN,
    OCTAVE = 16,
    BLOCK_MAX = 32 << 10,
    CLASSES = FINE + 5 * OCTAVE,
    CHUNK = POOL_GRAIN << POOL_SHIFT,
    CHUNK_FIRST = 512,
    PAGE = SPILL_PAGE / POOL_GRAIN,
    CHUNKS_MAX = 1 << (32 - POOL_SHIFT)
};
#define MAPPED  ((uintptr_t)1)
#define COUNTED ((uintptr_t)2) /* ordinary memory within the budget */
#define PAGED   ((uintptr_t)4)
#define ADDRESS (~(uintptr_t)7)
_Static_assert((size_t)CHUNK == (size_t)SPILL_CHUNK, "a chunk of the pool is one of the file");

static uint32_t size_class(size_t size) {
    if (size <= FINE_MAX)
        return size ? (uint32_t)((size - 1) / POOL_GRAIN) : 0;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(size - 1); /* 10..14 */
    return FINE + (octave - 10) * OCTAVE + (uint32_t)((size - 1) >> (octave - 4) & (OCTAVE - 1));
}
static size_t class_size(uint32_t c) {
    if (c < FINE)
        return (size_t)(c + 1) * POOL_GRAIN;
    uint32_t octave = 10 + (c - FINE) / OCTAVE, k = (c - FINE) % OCTAVE;
    return ((size_t)1 << octave) + ((size_t)(k + 1) << (octave - 4));
}

/* The number of a new entry in the list of chunks. */
static uint32_t chunk_number(struct pool *p) {
    if (p->spare) {
        uint32_t no = p->spare;
        p->spare = (uint32_t)(p->chunk[no] >> 3);
        return no;
    }
    if (p->chunks == CHUNKS_MAX)
        abort();
    if (p->chunks == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 4;
        p->chunk = realloc(p->chunk, p->cap * sizeof *p->chunk);
        p->size = realloc(p->size, p->cap * sizeof *p->size);
        if (!p->chunk || !p->size)
            abort();
    }
    return p->chunks++;
}

static uint32_t chunk_new(struct pool *p, size_t size, bool paged) {
    uint32_t no = chunk_number(p);
    uintptr_t flag = 0;
    char *c = NULL;
    if (p->window && spill_reserve(p->window, size)) {
        flag = COUNTED;
    } else if (p->window && size >= CHUNK && (c = spill_alloc(p->window, size))) {
        flag = paged ? PAGED : MAPPED;
        p->spilled += size;
    }
    if (!c && !(c = malloc(size)))
        abort();
    p->chunk[no] = (uintptr_t)c | flag;
    p->size[no] = size;
    p->bytes += size;
    return no; /* cppcheck-suppress memleak; it is in chunk[], with flags in its low bits */
}

static void chunk_drop(struct pool *p, uint32_t no) {
    char *c = (char *)(p->chunk[no] & ADDRESS);
    size_t size = p->size[no];
    p->bytes -= size;
    if (p->chunk[no] & (MAPPED | PAGED)) {
        p->spilled -= size;
        spill_free(p->window, c, size);
        return;
    }
    if (p->chunk[no] & COUNTED)
        spill_unreserve(p->window, size);
    free(c);
}

static void free_list_put(struct pool *p, uint32_t h, uint32_t class) {
    if (!p->free && !(p->free = calloc(CLASSES, sizeof *p->free)))
        abort();
    memcpy(pool_at(p, h), &p->free[class], sizeof h);
    p->free[class] = h;
}

/* `n` grains at handle h serve smaller blocks. */
static void leave(struct pool *p, uint32_t h, uint32_t n) {
    if (n == 0)
        return;
    uint32_t c = size_class((size_t)n * POOL_GRAIN);
    while (class_size(c) > (size_t)n * POOL_GRAIN)
        c--;
    free_list_put(p, h, c);
}

static void chunk_next(struct pool *p, bool large, size_t size) {
    leave(p, p->cur[large].next, p->cur[large].end - p->cur[large].next);
    size_t bytes = p->chunks < 8 ? (size_t)CHUNK_FIRST << p->chunks : CHUNK;
    if (bytes < size + POOL_GRAIN || bytes > CHUNK)
        bytes = CHUNK;
    bool first = p->chunks == 0; /* handle 0 means none */
    uint32_t no = chunk_new(p, bytes, !large);
    p->cur[large].next = (no << POOL_SHIFT) + first;
    p->cur[large].end = (no << POOL_SHIFT) + (uint32_t)(bytes / POOL_GRAIN);
}

/* How many grains are left for blocks up to a page; one of n must lie within a page. */
static uint32_t small_left(struct pool *p, uint32_t n) {
    uint32_t h = p->cur[0].next, page = PAGE - h % PAGE;
    if (page < n && p->cur[0].end - h > page) {
        p->cur[0].next += page;
        leave(p, h, page);
    }
    return p->cur[0].end - p->cur[0].next;
}

uint32_t pool_alloc(struct pool *p, size_t size) {
    if (size > BLOCK_MAX) {
        if (p->chunks == 0) /* handle 0 means none */
            chunk_next(p, true, 0);
        return chunk_new(p, size, false) << POOL_SHIFT;
    }
    uint32_t c = size_class(size), h;
    if (p->free && (h = p->free[c])) {
        memcpy(&p->free[c], pool_at(p, h), sizeof h);
        return h;
    }
    uint32_t n = (uint32_t)(class_size(c) / POOL_GRAIN);
    bool large = n > PAGE;
    if ((large ? p->cur[1].end - p->cur[1].next : small_left(p, n)) < n)
        chunk_next(p, large, class_size(c));
    h = p->cur[large].next;
    p->cur[large].next += n;
    return h;
}

void pool_free(struct pool *p, uint32_t h, size_t size) {
    if (size <= BLOCK_MAX) {
        free_list_put(p, h, size_class(size));
        return;
    }
    uint32_t no = h >> POOL_SHIFT;
    chunk_drop(p, no);
    p->size[no] = 0;
    p->chunk[no] = (uintptr_t)p->spare << 3;
    p->spare = no;
}

void pool_release(struct pool *p) {
    for (uint32_t no = 0; no < p->chunks; no++)
        if (p->size[no])
            chunk_drop(p, no);
    free(p->chunk);
    free(p->size);
    free(p->free);
    *p = (struct pool){ .window = p->window };
}
