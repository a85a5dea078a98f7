/* Bugs planted on purpose, in builds with MUTATE=1 only: tests/faults/test_mutations runs the
 * equivalence test with each of them and fails if the test passes. A test that cannot fail proves
 * nothing. */
#ifndef BRAID_MUTATE_H
#define BRAID_MUTATE_H
enum mutation {
    MUTATE_NONE,
    MUTATE_TICK_ORDER, /* rows of several inputs are merged in batch order, not row by row */
    MUTATE_CUT,        /* a grafted task misses the first row of its cut */
    MUTATE_SIGNATURE,  /* configs are left out of signatures */
    MUTATE_UNDO        /* an aborted epoch leaves changed values behind */
};
#ifdef BRAID_MUTATE
/* From the environment variable BRAID_MUTATION: tick_order, cut, signature, undo. */
enum mutation mutation(void);
#define MUTATED(m) (mutation() == (m))
#else
#define MUTATED(m) 0
#endif
#endif
