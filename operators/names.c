#include "operators/names.h"
#include <stdlib.h>

void names_open(struct names *m, int n, const char *const *name) {
    *m = (struct names){ .n = n };
    m->e = calloc((size_t)n + 1, sizeof *m->e);
    if (!m->e)
        abort();
    for (int i = 0; i < n; i++)
        m->e[i] = (struct name_entry){ .name = name[i],
                                       .len = (uint32_t)strlen(name[i]),
                                       .next = (uint16_t)((i + 1) % n) };
}

void names_close(struct names *m) {
    free(m->e);
    *m = (struct names){ 0 };
}

void names_begin(struct names *m) {
    for (int i = 0; i < m->n; i++)
        m->e[i].seen = NULL;
}

int names_search(struct names *m, struct span s) {
    for (int i = 0; i < m->n; i++) {
        if (m->e[i].len != s.len || memcmp(m->e[i].name, s.p, s.len) != 0)
            continue;
        m->e[m->last].next = (uint16_t)i;
        m->e[i].seen = s.p;
        m->last = (uint16_t)i;
        return i;
    }
    return -1;
}
