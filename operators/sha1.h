/* SHA-1 (FIPS 180-4), for what RIoTBench defines by it; not for security. Pure.
 * ~170 ns for a short text. */
#ifndef BRAID_OPERATORS_SHA1_H
#define BRAID_OPERATORS_SHA1_H
#include <stddef.h>
#include <stdint.h>

void sha1(const void *data, size_t len, uint8_t digest[20]);
#endif
