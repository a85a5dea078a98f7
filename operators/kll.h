/* Quantiles of a stream by the sketch of Z. Karnin, K. Lang and E. Liberty ("Optimal quantile
 * approximation in streams", FOCS 2016): levels of samples, a sample of level h standing for 2^h
 * values; a full level is sorted and every other sample of it goes up.
 *
 * Chosen over the t-digest (T. Dunning): its results are values that came, found by comparisons
 * alone, so no rounding depends on how a merge was cut; which samples stay is decided by a seeded
 * hash of how many values there are, so the sketch is a function of the sequence of values (and of
 * merges) and of nothing else; and its error has a proven bound: the rank of a result is off by
 * more than KLL_ERROR(k) of the number of values in 1 of 100 cases, also after merges.
 *
 * Values are 64-bit keys in the order of the numbers. A sketch is flat memory without pointers;
 * zeroed, it is empty. Up to k values, and the smallest and largest always, are exact. */
#ifndef BRAID_OPERATORS_KLL_H
#define BRAID_OPERATORS_KLL_H
#include "engine/arena.h"
#include <stddef.h>
#include <stdint.h>

enum { KLL_K_MIN = 16, KLL_K_MAX = 4096 };
/* Measured for level capacities that fall by 2/3 (Apache DataSketches, "KLL sketch vs t-digest";
 * here tests/unit/test_ops_quantile.c): for one quantile, at 99 % confidence. */
#define KLL_ERROR(k) (2.296 / pow((k), 0.9723))

/* Bytes of a sketch, a multiple of 8: about 24 k + 2.5 KiB. */
size_t kll_size(int k);
/* ~35 ns in the mean; now and then a level is sorted. */
void kll_add(void *sketch, int k, uint64_t seed, uint64_t value);
/* The samples of `other`, as if its values had come now. Scratch from `a`. ~3 us at k = 200. */
void kll_merge(void *sketch, int k, uint64_t seed, const void *other, struct arena *a);
uint64_t kll_count(const void *sketch);
/* For each q[i] (ascending, 0..1) the smallest sample whose rank is at least q[i] x count, into
 * out[i]. There must be values. ~3 us at k = 200. */
void kll_quantiles(const void *sketch, struct arena *a, const double *q, int n, uint64_t *out);
#endif
