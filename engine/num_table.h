/* Powers of ten as 128-bit significands, for reading (Eisel-Lemire) and writing (Schubfach)
 * doubles. Constant data; any thread. */
#ifndef BRAID_NUM_TABLE_H
#define BRAID_NUM_TABLE_H
#include <stdint.h>

enum { NUM_POW10_MIN = -342, NUM_POW10_MAX = 324 };
/* num_pow10[q - NUM_POW10_MIN] = {high, low} half of 10^q scaled by a power of two into
 * [2^127, 2^128): rounded up for q in -27..-1 (so that the reader can tell exact halves), exact
 * for 0..55, truncated elsewhere. */
extern const uint64_t num_pow10[NUM_POW10_MAX - NUM_POW10_MIN + 1][2];
#endif
