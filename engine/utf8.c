/* UTF-8 check; see num.h. */
#include "engine/num.h"
#include <immintrin.h>
#include <string.h>

/* Length of the well-formed sequence at p (Unicode 15, table 3-7), 0 if there is none. */
static int sequence(const unsigned char *p, size_t left) {
    unsigned char lo = 0x80, hi = 0xbf;
    int n;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2)
        return 0;
    if (p[0] < 0xe0) {
        n = 2;
    } else if (p[0] < 0xf0) {
        n = 3;
        if (p[0] == 0xe0)
            lo = 0xa0; /* overlong */
        if (p[0] == 0xed)
            hi = 0x9f; /* surrogate */
    } else if (p[0] < 0xf5) {
        n = 4;
        if (p[0] == 0xf0)
            lo = 0x90;
        if (p[0] == 0xf4)
            hi = 0x8f; /* beyond U+10FFFF */
    } else {
        return 0;
    }
    if (left < (size_t)n || p[1] < lo || p[1] > hi)
        return 0;
    for (int i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool utf8_valid(const char *text, const char *stop) {
    const unsigned char *p = (const unsigned char *)text, *end = (const unsigned char *)stop;
    while (p < end) {
#ifdef __AVX2__
        for (; end - p >= 64; p += 64) {
            __m256i a = _mm256_loadu_si256((const __m256i *)p);
            __m256i b = _mm256_loadu_si256((const __m256i *)(p + 32));
            if (_mm256_movemask_epi8(_mm256_or_si256(a, b)))
                break;
        }
#endif
        for (uint64_t w; end - p >= 8; p += 8) {
            memcpy(&w, p, 8);
            if (w & 0x8080808080808080)
                break;
        }
        /* One vector's worth byte by byte, then try the fast way again. */
        for (int i = 0; i < 16 && p < end; i++) {
            int n = sequence(p, (size_t)(end - p));
            if (n == 0)
                return false;
            p += n;
        }
    }
    return true;
}
