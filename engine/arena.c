#include "engine/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t size; /* with this header */
};

enum { CHUNK_FIRST = 4 << 10, CHUNK_LAST = 1 << 20 };

void *arena_slow(struct arena *a, size_t size, size_t align) {
    if (a->chunk == 0)
        a->chunk = CHUNK_FIRST;
    size_t need = sizeof(struct arena_chunk) + size + align;
    size_t bytes = need > a->chunk ? need : a->chunk;
    struct arena_chunk *c = need < size ? NULL : malloc(bytes);
    if (!c) {
        fprintf(stderr, "braid: out of memory (%zu bytes)\n", size);
        abort();
    }
    if (a->chunk < CHUNK_LAST)
        a->chunk *= 2;
    c->next = a->head;
    c->size = bytes;
    a->head = c;
    a->reserved += bytes;
    uintptr_t p = ((uintptr_t)(c + 1) + align - 1) & ~((uintptr_t)align - 1);
    a->cur = (char *)(p + size);
    a->end = (char *)c + bytes;
    return (void *)p;
}

void *arena_zalloc(struct arena *a, size_t size) {
    return memset(arena_alloc(a, size), 0, size);
}

char *arena_strndup(struct arena *a, const char *s, size_t len) {
    char *p = arena_alloc(a, len + 1);
    if (len)
        memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *arena_strdup(struct arena *a, const char *s) {
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

/* After a tick that needed several chunks the next one gets a single chunk of their total size: a
 * steady load settles on one chunk that stays in the cache. */
void arena_reset(struct arena *a) {
    if (!a->head)
        return;
    if (a->head->next) {
        size_t total = a->reserved;
        arena_free(a);
        arena_slow(a, total, 16);
    }
    a->cur = (char *)(a->head + 1);
    a->end = (char *)a->head + a->head->size;
}

void arena_free(struct arena *a) {
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){ 0 };
}
