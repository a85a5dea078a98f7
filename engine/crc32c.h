/* CRC32C (Castagnoli polynomial, as in iSCSI and Kafka). Pure; any thread. */
#ifndef BRAID_CRC32C_H
#define BRAID_CRC32C_H
#include <stddef.h>
#include <stdint.h>

/* The checksum of `len` more bytes after those that gave `crc` (0 to begin with). With SSE4.2 three
 * interleaved streams hide the latency of the instruction (M. Adler, crc32c.c, 2013): ~20 GB/s in
 * cache; else slicing by one byte, ~0.4 GB/s. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* The portable form, the oracle of the other one in tests. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len);
#endif
