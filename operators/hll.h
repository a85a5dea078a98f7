/* HyperLogLog: how many different 64-bit hashes have been seen (P. Flajolet, E. Fusy, O. Gandouet,
 * F. Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA
 * 2007), with linear counting (K.-Y. Whang et al., TODS 1990) below 2.5 values a register, as
 * there. Hashes of 64 bits need no correction for large numbers (S. Heule et al., EDBT 2013).
 *
 * Standard error 1.04 / sqrt(2^k). A sketch is flat memory without pointers; zeroed, it has seen
 * nothing. Equal sets of hashes give equal bytes in any order and however they were merged. */
#ifndef BRAID_OPERATORS_HLL_H
#define BRAID_OPERATORS_HLL_H
#include <stddef.h>
#include <stdint.h>

enum { HLL_K_MIN = 4, HLL_K_MAX = 16 };
/* Bytes of a sketch of 2^k registers, a multiple of 8. */
size_t hll_size(int k);
/* ~2 ns, once the sketch is in the cache. */
void hll_add(void *sketch, int k, uint64_t hash);
/* ~0.3 ns a register. */
void hll_merge(void *sketch, int k, const void *other);
/* ~10 ns: what the registers add up to is kept. */
int64_t hll_count(const void *sketch, int k);
#endif
