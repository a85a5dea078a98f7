/* A 64-bit hash of a number: every bit of the input changes half of the output. Pure. */
#ifndef BRAID_OPERATORS_MIX_H
#define BRAID_OPERATORS_MIX_H
#include <stdint.h>

/* The finalizer of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014) after its step, so that 0 is no fixed point. ~1 ns. */
static inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
#endif
