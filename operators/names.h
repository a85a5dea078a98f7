/* Observation names in exploded rows (one row an observation: name and value). Finds the index of a
 * name in a fixed list. Names come in a repeating order, so the finder guesses the successor of the
 * last one and usually compares two pointers: ~2 ns a row; ~4 ns when the name is spelled elsewhere
 * in memory; a linear search for what is new. Guesses never change the result. One thread. */
#ifndef BRAID_OPERATORS_NAMES_H
#define BRAID_OPERATORS_NAMES_H
#include "engine/batch.h"

struct name_entry {
    const char *name;
    uint32_t len;
    uint16_t next;    /* guess: the name that followed last time */
    const char *seen; /* where it was spelled last in this batch: same place, same bytes */
};
struct names {
    int n;
    struct name_entry *e;
    uint16_t last;
};

/* The strings are borrowed and must outlive `m`. */
void names_open(struct names *m, int n, const char *const *name);
void names_close(struct names *m);
/* To be called before the first names_find of every batch: forgets addresses of the last tick. */
void names_begin(struct names *m);
int names_search(struct names *m, struct span s);

/* Index of `s`, or -1. */
static inline int names_find(struct names *m, struct span s) {
    if (m->n) {
        uint16_t guess = m->e[m->last].next;
        const struct name_entry *e = &m->e[guess];
        if (e->len == s.len && (e->seen == s.p || memcmp(e->name, s.p, s.len) == 0)) {
            m->e[guess].seen = s.p;
            m->last = guess;
            return guess;
        }
    }
    return names_search(m, s);
}
#endif
