/* Vector scans of text that readers and writers share. Never read outside [text,end). */
#ifndef BRAID_SCAN_H
#define BRAID_SCAN_H
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* First byte in [p,end) that is a quote, a backslash or a control byte (< 0x20), or end. *high is
 * set when a byte >= 0x80 came before it. ~1 ns for 32 bytes. */
static inline const char *scan_string(const char *p, const char *end, bool *high) {
#ifdef __AVX2__
    for (; end - p >= 32; p += 32) {
        __m256i v = _mm256_loadu_si256((const __m256i *)p);
        __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(0x1f)), v);
        __m256i hit = _mm256_or_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('"')),
                                      _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\\')));
        unsigned stop = (unsigned)_mm256_movemask_epi8(_mm256_or_si256(hit, control));
        unsigned top = (unsigned)_mm256_movemask_epi8(v);
        if (stop) {
            *high |= (top & ((stop & -stop) - 1)) != 0;
            return p + __builtin_ctz(stop);
        }
        *high |= top != 0;
    }
#endif
    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                                   _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
        unsigned stop = (unsigned)_mm_movemask_epi8(_mm_or_si128(hit, control));
        unsigned top = (unsigned)_mm_movemask_epi8(v);
        if (stop) {
            *high |= (top & ((stop & -stop) - 1)) != 0;
            return p + __builtin_ctz(stop);
        }
        *high |= top != 0;
    }
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\' || c < 0x20)
            break;
        *high |= c >= 0x80;
    }
    return p;
}

/* Whether n bytes are equal; overlapping loads instead of a call. ~1 ns up to 64 bytes. */
static inline bool scan_equal(const char *p, const char *q, uint32_t n) {
#ifdef __AVX2__
    if (n >= 32) {
        uint32_t i = 0;
        for (;; i = i + 64 <= n ? i + 32 : n - 32) {
            __m256i a = _mm256_loadu_si256((const __m256i *)(p + i));
            __m256i b = _mm256_loadu_si256((const __m256i *)(q + i));
            if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) != -1)
                return false;
            if (i == n - 32)
                return true;
        }
    }
#else
    if (n > 32)
        return memcmp(p, q, n) == 0;
#endif
    if (n >= 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)p);
        __m128i b = _mm_loadu_si128((const __m128i *)q);
        __m128i c = _mm_loadu_si128((const __m128i *)(p + n - 16));
        __m128i d = _mm_loadu_si128((const __m128i *)(q + n - 16));
        __m128i e = _mm_and_si128(_mm_cmpeq_epi8(a, b), _mm_cmpeq_epi8(c, d));
        return _mm_movemask_epi8(e) == 0xffff;
    }
    if (n >= 8) {
        uint64_t a, b, c, d;
        memcpy(&a, p, 8);
        memcpy(&b, q, 8);
        memcpy(&c, p + n - 8, 8);
        memcpy(&d, q + n - 8, 8);
        return ((a ^ b) | (c ^ d)) == 0;
    }
    if (n >= 4) {
        uint32_t a, b, c, d;
        memcpy(&a, p, 4);
        memcpy(&b, q, 4);
        memcpy(&c, p + n - 4, 4);
        memcpy(&d, q + n - 4, 4);
        return ((a ^ b) | (c ^ d)) == 0;
    }
    for (uint32_t i = 0; i < n; i++)
        if (p[i] != q[i])
            return false;
    return true;
}

/* A plain decimal -?D+(.D+)? of at most 15 bytes after the sign, without leading zeros: its digits
 * as an integer, how many of them are behind the point, and the byte after it. NULL when the text
 * at p is not of this kind (it may still be a number). The caller checks what follows; with digits
 * beyond the 15th the answer is NULL. ~6 ns, half of it the way to the next byte. */
static inline const char *scan_decimal(const char *text, const char *p, const char *end,
                                       uint64_t *w, int *places, bool *neg) {
    static const int8_t shift[48] = { /* 16 of these at 16 - n: n bytes moved to the front */
                                      -16, -15, -14, -13, -12, -11, -10, -9,  -8,  -7,  -6,  -5,
                                      -4,  -3,  -2,  -1,  0,   1,   2,   3,   4,   5,   6,   7,
                                      8,   9,   10,  11,  12,  13,  14,  15,  -16, -16, -16, -16,
                                      -16, -16, -16, -16, -16, -16, -16, -16, -16, -16, -16, -16
    };
    bool minus = p < end && *p == '-';
    p += minus;
    __m128i v;
    if (end - p >= 16) {
        v = _mm_loadu_si128((const __m128i *)p);
    } else { /* near the end of the text: load its last bytes and move them down */
        if (end - text < 16)
            return NULL;
        v = _mm_loadu_si128((const __m128i *)(end - 16));
        const int8_t *down = shift + 16 + (16 - (end - p));
        v = _mm_shuffle_epi8(v, _mm_loadu_si128((const __m128i *)down));
    }
    __m128i d = _mm_sub_epi8(v, _mm_set1_epi8('0'));
    __m128i isdigit = _mm_cmpeq_epi8(_mm_min_epu8(d, _mm_set1_epi8(9)), d);
    unsigned other = ~(unsigned)_mm_movemask_epi8(isdigit); /* bits 16.. are set */
    unsigned dots = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8('.')));
    int whole = __builtin_ctz(other);
    int point = dots >> whole & 1;
    int stop = point ? __builtin_ctz(other & (other - 1)) : whole;
    int n = stop - point, k = n - whole;
    if (whole == 0 || stop > 15 || (point && k == 0) || (whole > 1 && *p == '0'))
        return NULL;
    __m128i from = _mm_loadu_si128((const __m128i *)(shift + n)); /* right-aligned digits */
    from = _mm_sub_epi8(from, _mm_cmpgt_epi8(from, _mm_set1_epi8((char)(whole - 1))));
    d = _mm_shuffle_epi8(d, from);
    /* D. Lemire's and W. Mula's SIMD conversion: pairs, fours, eights. */
    d = _mm_maddubs_epi16(d, _mm_set1_epi16(1 << 8 | 10));
    d = _mm_madd_epi16(d, _mm_set1_epi32(1 << 16 | 100));
    d = _mm_packus_epi32(d, d);
    d = _mm_madd_epi16(d, _mm_set1_epi32(1 << 16 | 10000));
    uint64_t halves = (uint64_t)_mm_cvtsi128_si64(d);
    *w = (halves & 0xffffffff) * 100000000 + (halves >> 32);
    *places = k;
    *neg = minus;
    return p + stop;
}
/* The double that scan_decimal found: both operands are exact, so the quotient is correctly
 * rounded.
 */
static inline double scan_f64(uint64_t w, int places, bool neg) {
    static const double ten[] = { 1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
    double d = (double)w / ten[places];
    return neg ? -d : d;
}
#endif
