#include "engine/mutate.h"
#ifdef BRAID_MUTATE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mutation mutation(void) {
    static const char *const words[] = { "none", "tick_order", "cut", "signature", "undo" };
    static int which = -1;
    if (which >= 0)
        return (enum mutation)which;
    const char *word = getenv("BRAID_MUTATION");
    for (int i = 0; i < 5; i++)
        if (strcmp(word ? word : "none", words[i]) == 0)
            which = i;
    if (which < 0) {
        fprintf(stderr, "unknown BRAID_MUTATION %s\n", word);
        exit(2);
    }
    return (enum mutation)which;
}
#else
typedef int mutate_unused; /* ISO C wants a declaration in every file */
#endif
