#include "operators/bloom.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double power(double x, int n) {
    double r = 1;
    for (int i = 0; i < n; i++)
        r *= x;
    return r;
}

/* The four operations and sqrt alone, which IEEE 754 rounds alike everywhere: the size of a filter
 * decides which strangers pass, so it must not depend on the C library. */
double bloom_rate(double bits, int probes) {
    double load = BLOOM_BLOCK_BITS / bits, weight = 1, weights = 0, sum = 0, empty = 1;
    double step = power(1.0 - 1.0 / BLOOM_BLOCK_BITS, probes);
    int last = (int)(load + 12 * sqrt(load) + 20); /* the Poisson tail beyond is below 1e-12 */
    for (int i = 0; i <= last; i++) {
        sum += weight * power(1.0 - empty, probes);
        weights += weight;
        weight *= load / (i + 1);
        empty *= step;
    }
    return sum / weights;
}

uint64_t bloom_blocks(uint64_t n, double p, int *probes) {
    double bits = 1;
    *probes = 0;
    while (!*probes) { /* 1 % steps from 1 bit a key on: ends below 64 bits for p >= 1e-6 */
        for (int k = 1; k <= BLOOM_PROBES_MAX && !*probes; k++)
            if (bloom_rate(bits, k) <= p)
                *probes = k;
        if (!*probes)
            bits *= 1.01;
    }
    return (uint64_t)ceil((double)(n ? n : 1) * bits / BLOOM_BLOCK_BITS);
}

struct bloom *bloom_new(uint64_t n, double p) {
    struct bloom *f = malloc(sizeof *f);
    if (!f)
        abort();
    f->blocks = bloom_blocks(n, p, &f->probes);
    f->block = aligned_alloc(64, f->blocks * sizeof *f->block);
    if (!f->block)
        abort();
    memset(f->block, 0, f->blocks * sizeof *f->block);
    return f;
}

void bloom_free(struct bloom *f) {
    if (f)
        free(f->block);
    free(f);
}

void bloom_add(struct bloom *f, uint64_t hash) {
    uint64_t *w = f->block[bloom_block(f, hash)];
    uint64_t g = bloom_mix(hash);
    for (int i = 0; i < f->probes; i++) {
        if (i == 7)
            g = bloom_mix(g ^ hash);
        w[g >> 6 & 7] |= (uint64_t)1 << (g & 63);
        g = g >> 9 | g << 55;
    }
}
