/* What unit tests share: how much work to do, seeds, skipping with a reason. Single-threaded. */
#ifndef BRAID_TESTS_HARNESS_H
#define BRAID_TESTS_HARNESS_H
#include <stdint.h>

/* n scaled by BRAID_TEST_SCALE percent (default 100), at least 1: for counts of random rounds, so
 * that sanitized runs take as long as plain ones. */
int test_scale(int n);
/* BRAID_SEED if set, else `def`. */
uint64_t test_seed(uint64_t def);
/* SplitMix64 (S. Vigna): a sequence that any seed starts well. */
uint64_t test_random(uint64_t *state);
/* Ends the running cmocka test as skipped. Reasons that start with "machine:" (what no package can
 * give) may skip in CI too. */
#define TEST_SKIP(reason)                                                                          \
    do {                                                                                           \
        print_message("skip: %s\n", reason);                                                       \
        skip();                                                                                    \
    } while (0)
#endif
