#include "operators/window_index.h"
#include "engine/key.h"
#include <stdlib.h>

/* Out of memory ends the process, as in arenas: sizes are bounded by the operator. */
static void *more(void *p, size_t n, size_t size) {
    p = realloc(p, (n ? n : 1) * size);
    if (!p)
        abort();
    return p;
}

void window_index_free(struct window_index *x) {
    for (uint32_t i = 0; i < x->nkeys; i++)
        free(x->key[i].p);
    for (uint32_t i = 0; i < x->nslices; i++)
        free(x->slice[i].bits);
    free(x->key);
    free(x->free_id);
    free(x->table);
    free(x->order);
    free(x->slice);
    *x = (struct window_index){ 0 };
}

/* ---- keys ---- */

static void rehash(struct window_index *x) {
    uint32_t size = 64;
    while (size < 4 * (x->nkeys - x->nfree + 1))
        size *= 2;
    free(x->table);
    x->table = calloc(size, sizeof *x->table);
    if (!x->table)
        abort();
    x->mask = size - 1;
    x->used = 0;
    for (uint32_t id = 0; id < x->nkeys; id++) {
        if (!x->key[id].p)
            continue;
        uint32_t at = (uint32_t)x->key[id].hash & x->mask;
        while (x->table[at])
            at = (at + 1) & x->mask;
        x->table[at] = id + 1;
        x->used++;
    }
}
static uint32_t new_key(struct window_index *x, struct span key, uint64_t hash) {
    if (!x->nfree && x->nkeys == x->cap_keys) {
        x->cap_keys = x->cap_keys ? 2 * x->cap_keys : 64;
        x->key = more(x->key, x->cap_keys, sizeof *x->key);
        x->free_id = more(x->free_id, x->cap_keys, sizeof *x->free_id);
        x->order = more(x->order, x->cap_keys, sizeof *x->order);
    }
    uint32_t id = x->nfree ? x->free_id[--x->nfree] : x->nkeys++;
    x->key[id] =
        (struct window_key){ .p = more(NULL, key.len + 1, 1), .len = key.len, .hash = hash };
    if (key.len)
        memcpy(x->key[id].p, key.p, key.len);
    x->unsorted = true;
    x->nidle++;
    return id;
}
uint32_t window_index_find(const struct window_index *x, struct span key, uint64_t hash) {
    uint32_t at = (uint32_t)hash & x->mask;
    for (; x->table && x->table[at]; at = (at + 1) & x->mask) {
        const struct window_key *k = &x->key[x->table[at] - 1];
        if (k->p && k->hash == hash && k->len == key.len && !memcmp(k->p, key.p, key.len))
            return x->table[at] - 1;
    }
    return UINT32_MAX;
}
/* The id of a key, made if need be. A dead table entry (its key was dropped) stays until the next
 * rehash; its id may serve another key by then, which the comparison of bytes finds out. */
static uint32_t key_id(struct window_index *x, struct span key, uint64_t hash) {
    uint32_t id = window_index_find(x, key, hash);
    if (id != UINT32_MAX)
        return id;
    if (!x->table || 2 * (x->used + 1) > x->mask + 1)
        rehash(x);
    uint32_t at = (uint32_t)hash & x->mask;
    while (x->table[at])
        at = (at + 1) & x->mask;
    id = new_key(x, key, hash);
    x->table[at] = id + 1;
    x->used++;
    return id;
}

static int by_bytes(const void *a, const void *b, void *arg) {
    const struct window_key *key = arg;
    const struct window_key *x = &key[*(const uint32_t *)a], *y = &key[*(const uint32_t *)b];
    return key_compare((struct span){ x->p, x->len, 0 }, (struct span){ y->p, y->len, 0 });
}
static void forget_idle(struct window_index *x) {
    for (uint32_t id = 0; id < x->nkeys; id++) {
        struct window_key *k = &x->key[id];
        if (!k->p || k->refs)
            continue;
        free(k->p);
        k->p = NULL;
        x->free_id[x->nfree++] = id;
    }
    x->nidle = 0;
    x->unsorted = true;
}
void window_index_trim(struct window_index *x) {
    if (x->nidle > 64 && 2 * x->nidle > x->nkeys - x->nfree)
        forget_idle(x);
}
void window_index_sort(struct window_index *x) {
    window_index_trim(x);
    if (!x->unsorted)
        return;
    x->norder = 0;
    for (uint32_t id = 0; id < x->nkeys; id++)
        if (x->key[id].p)
            x->order[x->norder++] = id;
    if (x->norder)
        qsort_r(x->order, x->norder, sizeof *x->order, by_bytes, x->key);
    x->unsorted = false;
}

/* ---- slices ---- */

uint32_t window_index_lower(const struct window_index *x, int64_t start) {
    uint32_t lo = 0, hi = x->nslices;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (x->slice[mid].start < start)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}
static struct window_slice *slice_at(struct window_index *x, int64_t start) {
    uint32_t at = x->nslices && x->slice[x->nslices - 1].start < start
                      ? x->nslices
                      : window_index_lower(x, start);
    if (at < x->nslices && x->slice[at].start == start)
        return &x->slice[at];
    if (x->nslices == x->cap_slices) {
        x->cap_slices = x->cap_slices ? 2 * x->cap_slices : 16;
        x->slice = more(x->slice, x->cap_slices, sizeof *x->slice);
    }
    memmove(x->slice + at + 1, x->slice + at, (x->nslices - at) * sizeof *x->slice);
    x->nslices++;
    x->slice[at] = (struct window_slice){ .start = start };
    return &x->slice[at];
}

uint32_t window_index_add(struct window_index *x, int64_t start, struct span key, uint64_t hash) {
    uint32_t id = key_id(x, key, hash);
    struct window_slice *s = slice_at(x, start);
    if (id / 64 >= s->words) {
        uint32_t words = id / 64 + 1 > 2 * s->words ? id / 64 + 1 : 2 * s->words;
        s->bits = more(s->bits, words, sizeof *s->bits);
        memset(s->bits + s->words, 0, (words - s->words) * sizeof *s->bits);
        s->words = words;
    }
    bit_set(s->bits, id);
    x->nidle -= x->key[id].refs++ == 0;
    x->entries++;
    return id;
}

void window_index_remove(struct window_index *x, uint32_t slice, uint32_t id) {
    bit_clear(x->slice[slice].bits, id);
    x->entries--;
    x->nidle += --x->key[id].refs == 0;
}

void window_index_drop_first(struct window_index *x) {
    struct window_slice *s = &x->slice[0];
    for (uint32_t w = 0; w < s->words; w++)
        for (uint64_t b = s->bits[w]; b; b &= b - 1) {
            uint32_t id = 64 * w + (uint32_t)__builtin_ctzll(b);
            x->entries--;
            x->nidle += --x->key[id].refs == 0;
        }
    free(s->bits);
    x->nslices--;
    memmove(x->slice, x->slice + 1, x->nslices * sizeof *x->slice);
}
