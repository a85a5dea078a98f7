/* A bump allocator. One arena serves one tick, one dataflow, one file: everything in it dies at
 * once. Not thread safe. Allocation cannot fail: out of memory ends the process (abort), because
 * every caller's sizes are bounded by written limits. ~3 ns an allocation. */
#ifndef BRAID_ARENA_H
#define BRAID_ARENA_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;
struct arena {
    char *cur, *end;
    struct arena_chunk *head;
    size_t chunk;    /* size of the next chunk, bytes; 0: 4 KiB, doubling up to 1 MiB */
    size_t reserved; /* bytes held from malloc */
};

void *arena_slow(struct arena *a, size_t size, size_t align);
/* 16-byte aligned, not zeroed. */
static inline void *arena_alloc(struct arena *a, size_t size) {
    uintptr_t p = ((uintptr_t)a->cur + 15) & ~(uintptr_t)15;
    if (a->cur && size <= (uintptr_t)a->end - p && p <= (uintptr_t)a->end) {
        a->cur = (char *)(p + size);
        return (void *)p;
    }
    return arena_slow(a, size, 16);
}
/* Gives back all but the first `used` bytes of the allocation p of `size` bytes, if it is the
 * newest one of its chunk. */
static inline void arena_trim(struct arena *a, char *p, size_t size, size_t used) {
    if (a->cur == p + size)
        a->cur = p + used;
}
void *arena_zalloc(struct arena *a, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t len); /* NUL-terminated copy */
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Forgets everything but keeps the largest chunk, so that a steady tick never calls malloc. */
void arena_reset(struct arena *a);
void arena_free(struct arena *a);
#define ARENA_NEW(a, T)      ((T *)arena_zalloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))
#endif
