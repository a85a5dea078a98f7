#include "engine/crc32c.h"
#include <pthread.h>
#include <string.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t byte_table[256];
static pthread_once_t byte_once = PTHREAD_ONCE_INIT;

static void make_byte_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
        byte_table[i] = c;
    }
}

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len) {
    const unsigned char *p = data;
    pthread_once(&byte_once, make_byte_table);
    crc = ~crc;
    while (len--)
        crc = crc >> 8 ^ byte_table[(crc ^ *p++) & 0xff];
    return ~crc;
}

#ifdef __SSE4_2__
/* Long inputs go in rounds of 3 * LANE bytes, what is left in rounds of 3 * LANE_SMALL. */
enum { LANE = 4096, LANE_SMALL = 256 };

/* shift[k][b]: what LEN zero bytes make of a register whose byte k is b. Linear over GF(2), so four
 * look-ups and three xors move a lane's checksum past the next lane. */
static uint32_t shift_long[4][256], shift_small[4][256];
static pthread_once_t shift_once = PTHREAD_ONCE_INIT;

static inline uint64_t word(const unsigned char *p) {
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

static void make_shift(uint32_t t[4][256], int len) {
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint64_t c = (uint32_t)1 << bit;
        for (int i = 0; i < len; i += 8)
            c = _mm_crc32_u64(c, 0);
        basis[bit] = (uint32_t)c;
    }
    for (int k = 0; k < 4; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t c = 0;
            for (int bit = 0; bit < 8; bit++)
                if (b >> bit & 1)
                    c ^= basis[8 * k + bit];
            t[k][b] = c;
        }
}

static void make_shifts(void) {
    make_shift(shift_long, LANE);
    make_shift(shift_small, LANE_SMALL);
}

static inline uint64_t shift(uint32_t t[4][256], uint64_t c) {
    return t[0][c & 0xff] ^ t[1][c >> 8 & 0xff] ^ t[2][c >> 16 & 0xff] ^ t[3][c >> 24 & 0xff];
}

static inline uint64_t three_lanes(uint64_t c, const unsigned char *p, int lane,
                                   uint32_t t[4][256]) {
    uint64_t c1 = 0, c2 = 0;
    for (int i = 0; i < lane; i += 8) {
        c = _mm_crc32_u64(c, word(p + i));
        c1 = _mm_crc32_u64(c1, word(p + lane + i));
        c2 = _mm_crc32_u64(c2, word(p + 2 * lane + i));
    }
    return shift(t, shift(t, c) ^ c1) ^ c2;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
    const unsigned char *p = data;
    uint64_t c = ~crc;
    if (len >= 3 * LANE_SMALL) {
        pthread_once(&shift_once, make_shifts);
        for (; len >= 3 * LANE; len -= 3 * LANE, p += 3 * LANE)
            c = three_lanes(c, p, LANE, shift_long);
        for (; len >= 3 * LANE_SMALL; len -= 3 * LANE_SMALL, p += 3 * LANE_SMALL)
            c = three_lanes(c, p, LANE_SMALL, shift_small);
    }
    for (; len >= 8; len -= 8, p += 8)
        c = _mm_crc32_u64(c, word(p));
    for (; len; len--)
        c = _mm_crc32_u8((uint32_t)c, *p++);
    return ~(uint32_t)c;
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
    return crc32c_portable(crc, data, len);
}
#endif
