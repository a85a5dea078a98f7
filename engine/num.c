#include "engine/num.h"
#include "engine/num_table.h"
#include <immintrin.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 u128;

static const double exact_pow10[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };

static inline double from_bits(uint64_t bits) {
    double d;
    memcpy(&d, &bits, 8);
    return d;
}
static inline uint64_t to_bits(double d) {
    uint64_t bits;
    memcpy(&bits, &d, 8);
    return bits;
}
/* floor(log2(10^q)) for |q| <= 342 and floor(log10(2^q)) for doubles. */
static inline int log2_pow10(int q) {
    return (q * 217706) >> 16;
}

/* ---- reading ---- */

/* The double nearest to w * 10^q, ties to even; infinity when too large. Eisel-Lemire, without
 * fallback for any 64-bit w: N. Mushtak, D. Lemire, "Fast number parsing without fallback",
 * 2022. ~5 ns. */
static double eisel_lemire(uint64_t w, int64_t q) {
    if (w == 0 || q < NUM_POW10_MIN)
        return 0;
    if (q > 308)
        return INFINITY;
    int lz = __builtin_clzll(w);
    w <<= lz;
    const uint64_t *t = num_pow10[q - NUM_POW10_MIN];
    u128 product = (u128)w * t[0];
    uint64_t hi = (uint64_t)(product >> 64), lo = (uint64_t)product;
    if ((hi & 0x1ff) == 0x1ff) { /* the 55 bits needed may change with the lower half */
        uint64_t more = (uint64_t)(((u128)w * t[1]) >> 64);
        lo += more;
        hi += lo < more;
    }
    int upper = (int)(hi >> 63), shift = upper + 64 - 55;
    uint64_t m = hi >> shift;
    int e = log2_pow10((int)q) + 63 + upper - lz + 1023;
    if (e <= 0) { /* subnormal, or the smallest normal after rounding */
        if (1 - e >= 64)
            return 0;
        m >>= 1 - e;
        m = (m + (m & 1)) >> 1;
        return from_bits(m); /* a carry into bit 52 is the smallest normal number */
    }
    /* An exact half: only where 5^q fits in 64 bits. */
    if (lo <= 1 && q >= -4 && q <= 23 && (m & 3) == 1 && m << shift == hi)
        m &= ~(uint64_t)1;
    m = (m + (m & 1)) >> 1;
    if (m >= (uint64_t)2 << 52) {
        m = (uint64_t)1 << 52;
        e++;
    }
    if (e >= 0x7ff)
        return INFINITY;
    return from_bits((m & ~((uint64_t)1 << 52)) | (uint64_t)e << 52);
}

static locale_t c_locale;
static void c_locale_make(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        abort(); /* the C locale is built in: only out of memory */
}
/* More than 19 significant digits: rare and slow (~1 us). [p,end) is a valid token. */
static double read_long(const char *p, const char *end) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, c_locale_make);
    size_t len = (size_t)(end - p);
    char small[512], *buf = len < sizeof small ? small : malloc(len + 1);
    if (!buf)
        abort();
    memcpy(buf, p, len);
    buf[len] = 0;
    double d = strtod_l(buf, NULL, c_locale);
    if (buf != small)
        free(buf);
    return d;
}

static inline bool digit(const char *p, const char *end) {
    return p < end && (unsigned char)(*p - '0') < 10;
}
/* Appends the digits at p to *w; leading zeros of the number do not count into *nd. Digits beyond
 * the 19th are counted but not kept. */
static inline const char *digits(const char *p, const char *end, uint64_t *w, int *nd) {
    for (; digit(p, end); p++) {
        if (*nd < 19)
            *w = *w * 10 + (uint64_t)(*p - '0');
        *nd += *w != 0;
    }
    return p;
}
/* At 'e' or 'E': adds the exponent (clamped far beyond the range of doubles) to *q. */
static const char *exponent(const char *p, const char *end, int64_t *q) {
    p++;
    bool neg = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (!digit(p, end))
        return NULL;
    int64_t e = 0;
    for (; digit(p, end); p++)
        if (e < 100000000)
            e = e * 10 + (*p - '0');
    *q += neg ? -e : e;
    return p;
}
/* Value of a token: w holds its first 19 digits of nd, the point is q places right of the last. */
static inline double value(const char *start, const char *p, bool neg, uint64_t w, int nd,
                           int64_t q) {
    double d;
    if (nd <= 19) {
        if (w < (uint64_t)1 << 53 && q <= 0 && q >= -22) /* W. Clinger, 1990: both exact */
            d = (double)w / exact_pow10[-q];
        else
            d = eisel_lemire(w, q);
        return neg ? -d : d;
    }
    return read_long(start, p);
}

const char *num_parse(const char *p, const char *end, bool *is_int, int64_t *i, double *d) {
    const char *start = p;
    bool neg = p < end && *p == '-';
    p += neg;
    if (!digit(p, end))
        return NULL;
    uint64_t w = 0;
    int nd = 0;
    const char *from = p;
    if (*p == '0')
        p++;
    else
        p = digits(p, end, &w, &nd);
    int64_t q = 0;
    bool whole = true;
    if (p < end && *p == '.') {
        from = ++p;
        p = digits(p, end, &w, &nd);
        if (p == from)
            return NULL;
        q = from - p;
        whole = false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p = exponent(p, end, &q);
        if (!p)
            return NULL;
        whole = false;
    }
    *d = value(start, p, neg, w, nd, q);
    if (!isfinite(*d))
        return NULL;
    *is_int = whole && nd <= 19 && w <= (uint64_t)INT64_MAX + neg;
    if (*is_int)
        *i = neg ? (int64_t)(0 - w) : (int64_t)w;
    return p;
}

const char *num_parse_i64(const char *p, const char *end, int64_t *i) {
    bool neg = p < end && *p == '-';
    p += neg;
    if (!digit(p, end))
        return NULL;
    uint64_t w = 0;
    int nd = 0;
    if (*p == '0')
        p++;
    else
        p = digits(p, end, &w, &nd);
    if (nd > 19 || w > (uint64_t)INT64_MAX + neg)
        return NULL;
    *i = neg ? (int64_t)(0 - w) : (int64_t)w;
    return p;
}

int num_f64_whole(const char *p, const char *end, double *d) {
    const char *start = p;
    bool neg = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    uint64_t w = 0;
    int nd = 0;
    const char *first = p;
    if (p < end && *p == '0')
        p++;
    else
        p = digits(p, end, &w, &nd);
    bool any = p > first;
    int64_t q = 0;
    if (p < end && *p == '.') {
        const char *from = ++p;
        p = digits(p, end, &w, &nd);
        any |= p > from;
        q = from - p;
    }
    if (!any)
        return -1;
    if (p < end && (*p == 'e' || *p == 'E') && !(p = exponent(p, end, &q)))
        return -1;
    if (p != end)
        return -1;
    *d = value(start, p, neg, w, nd, q);
    return isfinite(*d) ? 0 : -1;
}

int num_i64_whole(const char *p, const char *end, int64_t *i) {
    if (p < end && *p == '+' && digit(p + 1, end))
        p++;
    return num_parse_i64(p, end, i) == end ? 0 : -1;
}

/* ---- writing ---- */

/* v < 10^16 as sixteen digit values: halves, fours, pairs, digits, by multiplication with
 * reciprocals that are exact in their range (W. Mula, "SSE: conversion integers to decimal
 * representation", 2011). ~4 ns. */
static inline __m128i digits16(uint64_t v) {
    uint64_t hi = v / 100000000;
    __m128i x = _mm_set_epi64x((long long)(v - hi * 100000000), (long long)hi);
    __m128i q = _mm_srli_epi64(_mm_mul_epu32(x, _mm_set1_epi64x(0xd1b71759)), 45);
    __m128i r = _mm_sub_epi32(x, _mm_mul_epu32(q, _mm_set1_epi64x(10000)));
    x = _mm_or_si128(q, _mm_slli_epi64(r, 32));
    q = _mm_srli_epi16(_mm_mulhi_epu16(x, _mm_set1_epi16(5243)), 3);
    r = _mm_sub_epi16(x, _mm_mullo_epi16(q, _mm_set1_epi16(100)));
    x = _mm_or_si128(q, _mm_slli_epi32(r, 16));
    q = _mm_mulhi_epu16(x, _mm_set1_epi16(6554));
    /* tens + 256 * (pair - 10 * tens) */
    return _mm_add_epi16(_mm_slli_epi16(x, 8), _mm_mullo_epi16(q, _mm_set1_epi16(1 - 2560)));
}
/* Number of leading zero digits. */
static inline int leading_zeros(__m128i digs) {
    int zero = _mm_movemask_epi8(_mm_cmpeq_epi8(digs, _mm_setzero_si128()));
    return __builtin_ctz(~(unsigned)zero | 0x10000);
}
/* Digits from..15 of `digs` as text at out; writes 16 bytes. */
static inline void put_digits(char *out, __m128i digs, int from) {
    static const int8_t slide[32] = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                      11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1,
                                      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };
    __m128i text = _mm_or_si128(digs, _mm_set1_epi8('0'));
    __m128i mask = _mm_loadu_si128((const __m128i *)(slide + from));
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(text, mask));
}

static int write_u64(char *out, uint64_t v) {
    int n = 0;
    if (v >= 10000000000000000) { /* 1e16: up to four digits in front */
        n = write_u64(out, v / 10000000000000000);
        put_digits(out + n, digits16(v % 10000000000000000), 0);
        return n + 16;
    }
    __m128i digs = digits16(v);
    int zeros = leading_zeros(digs);
    zeros = zeros < 15 ? zeros : 15;
    put_digits(out, digs, zeros);
    return 16 - zeros;
}

int num_write_i64(char *out, int64_t v) {
    if (v >= 0)
        return write_u64(out, (uint64_t)v);
    *out = '-';
    return 1 + write_u64(out + 1, 0 - (uint64_t)v);
}

/* The smallest k in 0..15 such that n / 10^k rounds to a for an integer n < 2^51, or -1. Below
 * 2^51 the rounded product is the only n that can pass, and two decimals with k places are further
 * apart than two doubles, so n with k places is the shortest text and the nearest. */
static inline int short_decimal(double a, uint64_t *n) {
    const double magic = 0x1.8p52; /* adding and subtracting rounds to an integer below 2^51 */
#ifdef __AVX2__
    __m256d v = _mm256_set1_pd(a), m = _mm256_set1_pd(magic);
    for (int k = 0; k < 16; k += 8) {
        __m256d p0 = _mm256_loadu_pd(exact_pow10 + k), p1 = _mm256_loadu_pd(exact_pow10 + k + 4);
        __m256d t0 = _mm256_mul_pd(v, p0), t1 = _mm256_mul_pd(v, p1);
        t0 = _mm256_sub_pd(_mm256_add_pd(t0, m), m);
        t1 = _mm256_sub_pd(_mm256_add_pd(t1, m), m);
        int e0 = _mm256_movemask_pd(_mm256_cmp_pd(_mm256_div_pd(t0, p0), v, _CMP_EQ_OQ));
        int e1 = _mm256_movemask_pd(_mm256_cmp_pd(_mm256_div_pd(t1, p1), v, _CMP_EQ_OQ));
        unsigned hit = (unsigned)(e0 | e1 << 4);
        if (hit) {
            k += __builtin_ctz(hit);
            *n = to_bits(a * exact_pow10[k] + magic) - to_bits(magic);
            return *n < (uint64_t)1 << 51 ? k : -1;
        }
    }
#else
    for (int k = 0; k < 16; k++) {
        double r = (a * exact_pow10[k] + magic) - magic;
        if (r >= 0x1p51)
            return -1;
        if (r / exact_pow10[k] == a) {
            *n = (uint64_t)(int64_t)r;
            return k;
        }
    }
#endif
    return -1;
}

/* floor(g * cp / 2^128) with the lowest bit set when anything was cut off ("round to odd"). */
static inline uint64_t round_to_odd(uint64_t g1, uint64_t g0, uint64_t cp) {
    uint64_t x = (uint64_t)(((u128)g0 * cp) >> 64);
    u128 y = (u128)g1 * cp + x;
    return (uint64_t)(y >> 64) | ((uint64_t)y > 1);
}
/* Shortest decimal f * 10^*k in the rounding interval of a > 0, nearest to a: R. Giulietti, "The
 * Schubfach way to render doubles", 2020, figure 4 and section 9. ~15 ns. */
static uint64_t schubfach(double a, int *k_out) {
    uint64_t bits = to_bits(a), frac = bits & 0xfffffffffffff, be = bits >> 52;
    uint64_t c = be ? frac | (uint64_t)1 << 52 : frac;
    int q = (be ? (int)be : 1) - 1075;
    bool odd = c & 1, closer = frac == 0 && be > 1; /* the double below is half as far away */
    int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    int h = q + ((-k * 1741647) >> 19) + 1;
    const uint64_t *t = num_pow10[-k - NUM_POW10_MIN];
    uint64_t g1 = t[0], g0 = t[1];
    if (-k < -27 || -k > 55) { /* the paper wants the power rounded up */
        g0++;
        g1 += g0 == 0;
    }
    uint64_t low = round_to_odd(g1, g0, (4 * c - 2 + closer) << h) + odd;
    uint64_t mid = round_to_odd(g1, g0, (4 * c) << h);
    uint64_t high = round_to_odd(g1, g0, (4 * c + 2) << h) - odd;
    uint64_t s = mid / 4;
    if (s >= 10) {
        uint64_t ten = s / 10;
        bool under = low <= 40 * ten, over = 40 * ten + 40 <= high;
        if (under != over) {
            *k_out = k + 1;
            return ten + over;
        }
    }
    *k_out = k;
    bool under = low <= 4 * s, over = 4 * s + 4 <= high;
    if (under != over)
        return s + over;
    uint64_t half = 4 * s + 2;
    return s + (mid > half || (mid == half && (s & 1)));
}

/* digits f, value f * 10^k. */
static int write_decimal(char *out, uint64_t f, int k) {
    while (f % 10 == 0) {
        f /= 10;
        k++;
    }
    char digs[40];
    int n = write_u64(digs, f), point = n + k; /* 0.DIGITS * 10^point */
    char *o = out;
    if (point > 17 || point < -4) {
        *o++ = digs[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, digs + 1, (size_t)n - 1);
            o += n - 1;
        }
        *o++ = 'e';
        return (int)(o - out) + num_write_i64(o, point - 1);
    }
    if (point <= 0) {
        memcpy(o, "0.00000", 7);
        o += 2 - point;
        memcpy(o, digs, (size_t)n);
        return (int)(o - out) + n;
    }
    if (k >= 0) {
        memcpy(o, digs, (size_t)n);
        memset(o + n, '0', (size_t)k);
        return point;
    }
    memcpy(o, digs, (size_t)point);
    o[point] = '.';
    memcpy(o + point + 1, digs + point, (size_t)(n - point));
    return n + 1;
}

static __attribute__((noinline)) int write_long(char *out, double v) {
    int k;
    uint64_t f = schubfach(v, &k);
    return write_decimal(out, f, k);
}

/* Short decimals ~10 ns (few branches, as lengths and signs of measurements are hard to predict),
 * others ~35 ns. */
int num_write_f64(char *out, double v) {
    bool neg = signbit(v);
    char *o = out + neg;
    *out = '-';
    v = fabs(v);
    if ((v >= 1e-5) | (v == 0)) {
        uint64_t n;
        int k = v < 0x1p51 ? short_decimal(v, &n) : -1;
        if (k >= 0) {
            __m128i digs = digits16(n);
            int zeros = leading_zeros(digs);
            zeros = zeros < 15 - k ? zeros : 15 - k; /* at least one digit before the point */
            int whole = 16 - k - zeros;
            put_digits(o, digs, zeros);
            o[whole] = '.';
            put_digits(o + whole + 1, digs, 16 - k);
            return neg + whole + (k ? k + 1 : 0);
        }
    }
    return neg + write_long(o, v);
}
