#include "operators/hll.h"
#include <math.h>
#include <string.h>

/* The sum of 2^-rank over all registers is kept as an exact integer, so that an estimate costs no
 * pass over them: as what is missing to 2^k, in units of 2^-UNIT. Ranks are at most 65 - k. */
enum { UNIT = 61 };
struct head {
    uint64_t lo, hi; /* of 128 bits */
    uint64_t used;   /* registers that are not 0 */
};

size_t hll_size(int k) {
    return sizeof(struct head) + ((size_t)1 << k);
}

static void raise_rank(struct head *h, uint8_t *reg, uint8_t rank) {
    unsigned __int128 sum = (unsigned __int128)h->hi << 64 | h->lo;
    sum += ((uint64_t)1 << (UNIT - *reg)) - ((uint64_t)1 << (UNIT - rank));
    h->lo = (uint64_t)sum;
    h->hi = (uint64_t)(sum >> 64);
    h->used += *reg == 0;
    *reg = rank;
}

void hll_add(void *sketch, int k, uint64_t hash) {
    struct head *h = sketch;
    uint8_t *reg = (uint8_t *)(h + 1) + (hash >> (64 - k));
    uint64_t rest = hash << k | (uint64_t)1 << (k - 1); /* ends the run of zeros */
    uint8_t rank = (uint8_t)(__builtin_clzll(rest) + 1);
    if (rank > *reg)
        raise_rank(h, reg, rank);
}

void hll_merge(void *sketch, int k, const void *other) {
    struct head *h = sketch;
    uint8_t *reg = (uint8_t *)(h + 1);
    const uint8_t *o = (const uint8_t *)((const struct head *)other + 1);
    for (size_t i = 0; i < (size_t)1 << k; i++)
        if (o[i] > reg[i])
            raise_rank(h, &reg[i], o[i]);
}

static double alpha(int k, double m) {
    return k == 4 ? 0.673 : k == 5 ? 0.697 : k == 6 ? 0.709 : 0.7213 / (1 + 1.079 / m);
}

int64_t hll_count(const void *sketch, int k) {
    const struct head *h = sketch;
    double m = (double)((uint64_t)1 << k);
    unsigned __int128 missing = (unsigned __int128)h->hi << 64 | h->lo;
    unsigned __int128 sum = ((unsigned __int128)1 << (k + UNIT)) - missing;
    double e = alpha(k, m) * m * m / ldexp((double)sum, -UNIT);
    double zeros = m - (double)h->used;
    /* The paper changes at 2.5 m, where the raw estimate is still 2 % too high: twice the standard
     * error at k = 14. At 3.25 m linear counting scatters 1.4 times as much as it, and the bias is
     * below 1 %. */
    if (e <= 3.25 * m && zeros > 0)
        e = m * log(m / zeros);
    return (int64_t)floor(e + 0.5);
}
