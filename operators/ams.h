/* The second frequency moment of a stream, the sum over its different values of how often each has
 * come, squared: the sketch of N. Alon, Y. Matias and M. Szegedy ("The space complexity of
 * approximating the frequency moments", STOC 1996) in the fast form of M. Thorup and Y. Zhang
 * ("Tabulation based 4-universal hashing with applications to second moment estimation", SODA
 * 2004): `depth` rows of `width` counters; a value adds +1 or -1 to one counter of each row; a
 * row's estimate is the sum of its squared counters, the result their median.
 *
 * A row's relative standard error is at most sqrt(2 / width). Counters are sums: equal multisets of
 * values give equal bytes in any order and however they were merged. A sketch is flat memory;
 * zeroed, it has seen nothing. */
#ifndef BRAID_OPERATORS_AMS_H
#define BRAID_OPERATORS_AMS_H
#include <stddef.h>
#include <stdint.h>

enum { AMS_DEPTH_MAX = 15 };
struct ams {
    int depth;
    uint32_t width; /* a power of two */
    uint64_t poly[AMS_DEPTH_MAX][4];
};
/* The hash functions of a seed. */
void ams_init(struct ams *m, int depth, uint32_t width, uint64_t seed);
/* Bytes of a sketch, a multiple of 8. */
size_t ams_size(const struct ams *m);
/* `hash` stands for the value. ~12 ns a row of counters. */
void ams_add(const struct ams *m, void *sketch, uint64_t hash);
void ams_merge(const struct ams *m, void *sketch, const void *other);
/* ~2 ns a row of counters: the sums of squares are kept. */
double ams_moment(const struct ams *m, const void *sketch);
#endif
