/* Read-only tables that several instances of operators share: built once per (file, parameters),
 * counted, freed with the last user. Thread safe; get and put take a lock, so only open() and
 * close() call them. What is inside is immutable and read without a lock. */
#ifndef BRAID_OPERATORS_SHARED_H
#define BRAID_OPERATORS_SHARED_H
#include "engine/err.h"

/* Builds the table into *out; 0, or negative with `e` filled. */
typedef int shared_make(void *arg, void **out, struct err *e);
/* The table `key`, built by `make` when nobody holds it yet. 0 or what `make` returned. */
int shared_get(const char *key, shared_make *make, void *arg, void (*drop)(void *), void **out,
               struct err *e);
/* Gives back one use; NULL is allowed. */
void shared_put(void *table);
#endif
