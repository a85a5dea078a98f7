/* Exactly rounded sums of doubles and of their squares: the result is that of infinitely precise
 * arithmetic rounded once, so it does not depend on order, slicing or merging.
 *
 * The sum is kept as one long two's-complement integer in units of 2^-2176, as in U. Kulisch's
 * accumulator and R. M. Neal's "Fast exact summation using small and large superaccumulators"
 * (arXiv:1505.05571), but with dense 64-bit words and carries propagated at once, because what is
 * kept a million times (one for every key, slice and aggregate) must be small: 544 bytes cover all
 * doubles and all their squares (struct xbig). Sums of measurements live in few neighbouring words,
 * so struct xsum holds a window of six of them in 56 bytes, slides it, and says when that is not
 * enough; the caller then goes on with an xbig.
 *
 * Values must be finite. Zeroed memory is the sum of nothing. Plain data without pointers; no
 * threads. At most 2^62 values. ~6 ns a value, ~8 ns a square. */
#ifndef BRAID_XSUM_H
#define BRAID_XSUM_H
#include <stdbool.h>
#include <stdint.h>

enum { XSUM_WORDS = 6, XBIG_WORDS = 68, XSUM_UNIT_EXP = -2176 };

struct xsum {
    uint64_t w[XSUM_WORDS]; /* words base.. of the long integer, the last one with its sign */
    int32_t base;
    int32_t used; /* 0: nothing but zeros was added */
};
struct xbig {
    uint64_t w[XBIG_WORDS]; /* little-endian */
};

/* Adds v, v*v, or another sum. False: it does not fit into the window, and `s` is as before. */
bool xsum_add(struct xsum *s, double v);
bool xsum_add_square(struct xsum *s, double v);
bool xsum_merge(struct xsum *s, const struct xsum *other);
/* Takes another sum away: exact, so that adding and taking away again leaves no trace. */
bool xsum_unmerge(struct xsum *s, const struct xsum *other);

void xbig_add(struct xbig *s, double v);
void xbig_add_square(struct xbig *s, double v);
void xbig_merge(struct xbig *s, const struct xbig *other);
void xbig_merge_xsum(struct xbig *s, const struct xsum *other);

/* All of these round the exact value once, to nearest, ties to even; an infinity means that it
 * exceeds the doubles. The sum of nothing is 0. */
double xbig_round(const struct xbig *s);
double xsum_round(const struct xsum *s);
/* s / n; n > 0. */
double xbig_mean(const struct xbig *s, uint64_t n);
double xsum_mean(const struct xsum *s, uint64_t n);
/* Of n >= 2 values with the given sum and sum of squares: the variance of the sample,
 * (n * squares - sum^2) / (n * (n - 1)), computed in integers, and its square root. */
double xbig_variance(const struct xbig *sum, const struct xbig *squares, uint64_t n);
double xbig_stddev(const struct xbig *sum, const struct xbig *squares, uint64_t n);
/* s / n for an integer sum; n > 0. */
double xsum_mean_i128(__int128 s, uint64_t n);
#endif
