#include "operators/sha1.h"
#include <string.h>

static uint32_t rotl(uint32_t x, int n) {
    return x << n | x >> (32 - n);
}
static uint32_t read_be32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __builtin_bswap32(v);
}

static void block(uint32_t h[5], const uint8_t *p) {
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = read_be32(p + 4 * i);
    for (int i = 16; i < 80; i++)
        w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999u
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu
                              : (b ^ c ^ d) + 0xca62c1d6u;
        uint32_t t = rotl(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = rotl(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void sha1(const void *data, size_t len, uint8_t digest[20]) {
    uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 64; left -= 64, p += 64)
        block(h, p);
    uint8_t tail[128] = { 0 };
    if (left)
        memcpy(tail, p, left);
    tail[left] = 0x80;
    size_t size = left < 56 ? 64 : 128;
    uint64_t bits = __builtin_bswap64((uint64_t)len * 8);
    memcpy(tail + size - 8, &bits, 8);
    for (size_t i = 0; i < size; i += 64)
        block(h, tail + i);
    for (int i = 0; i < 5; i++) {
        uint32_t v = __builtin_bswap32(h[i]);
        memcpy(digest + 4 * i, &v, 4);
    }
}
