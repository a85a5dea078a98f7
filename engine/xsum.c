#include "engine/xsum.h"
#include <assert.h>
#include <math.h>
#include <string.h>

typedef unsigned __int128 u128;

/* ---- a double as an integer ---- */

/* |v| = m * 2^(e - 1074), m < 2^53. */
static inline uint64_t split(double v, uint32_t *e) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    uint32_t x = (uint32_t)(u >> 52) & 0x7FF;
    uint64_t m = u & (((uint64_t)1 << 52) - 1);
    *e = x ? x - 1 : 0;
    return x ? m | (uint64_t)1 << 52 : m;
}
enum {
    SUM_BIT = -1074 - XSUM_UNIT_EXP,       /* bit of the unit of e = 0 */
    SQUARE_BIT = -2 * 1074 - XSUM_UNIT_EXP /* the same for squares */
};

/* w[0..n) += (d, sign, sign, ...) where d are nd words of a magnitude, negated when `neg`. The loop
 * has no data-dependent branch: random signs would cost a misprediction each. */
static inline void add_words(uint64_t *w, int n, const uint64_t *d, int nd, bool neg) {
    const uint64_t flip = neg ? ~(uint64_t)0 : 0;
    unsigned char carry = neg;
    for (int i = 0; i < n; i++) {
        uint64_t x = (i < nd ? d[i] : 0) ^ flip, t;
        bool c1 = __builtin_add_overflow(w[i], x, &t);
        bool c2 = __builtin_add_overflow(t, (uint64_t)carry, &w[i]);
        carry = c1 | c2;
    }
}
/* m * 2^pos as words from word pos / 64. */
static inline void shifted(u128 m, uint32_t pos, uint64_t d[3]) {
    uint32_t s = pos & 63;
    u128 lo = m << s;
    d[0] = (uint64_t)lo;
    d[1] = (uint64_t)(lo >> 64);
    d[2] = s ? (uint64_t)(m >> (128 - s)) : 0;
}

/* ---- the window ---- */

static inline uint64_t sign_word(uint64_t top) {
    return top >> 63 ? ~(uint64_t)0 : 0;
}

/* Makes words idx .. idx+nd-1 part of the window, below its last word, which takes carries and the
 * sign alone. Returns the place of idx in the window, or -1. */
static int slide(struct xsum *s, int idx, int nd) {
    if (!s->used) {
        s->used = 1;
        s->base = idx - (XSUM_WORDS - 2 - nd);
        return idx - s->base;
    }
    struct xsum t = *s;
    while (idx < t.base) {
        uint64_t sign = sign_word(t.w[XSUM_WORDS - 1]);
        if (t.w[XSUM_WORDS - 1] != sign || t.w[XSUM_WORDS - 2] != sign)
            return -1;
        memmove(t.w + 1, t.w, (XSUM_WORDS - 1) * sizeof *t.w);
        t.w[0] = 0;
        t.base--;
    }
    while (idx + nd > t.base + XSUM_WORDS - 1) {
        if (t.w[0])
            return -1;
        memmove(t.w, t.w + 1, (XSUM_WORDS - 1) * sizeof *t.w);
        t.w[XSUM_WORDS - 1] = sign_word(t.w[XSUM_WORDS - 2]);
        t.base++;
    }
    *s = t;
    return idx - s->base;
}
static inline int place(struct xsum *s, int idx, int nd) {
    int at = idx - s->base;
    if (s->used && at >= 0 && at + nd < XSUM_WORDS)
        return at;
    return slide(s, idx, nd);
}

bool xsum_add(struct xsum *s, double v) {
    uint32_t e;
    uint64_t m = split(v, &e), d[3];
    if (!m)
        return true;
    shifted(m, e + SUM_BIT, d);
    int at = place(s, (int)((e + SUM_BIT) >> 6), 2);
    if (at < 0)
        return false;
    add_words(s->w + at, XSUM_WORDS - at, d, 2, signbit(v));
    return true;
}
bool xsum_add_square(struct xsum *s, double v) {
    uint32_t e;
    uint64_t m = split(v, &e), d[3];
    if (!m)
        return true;
    shifted((u128)m * m, 2 * e + SQUARE_BIT, d);
    int at = place(s, (int)((2 * e + SQUARE_BIT) >> 6), 3);
    if (at < 0)
        return false;
    add_words(s->w + at, XSUM_WORDS - at, d, 3, false);
    return true;
}

bool xsum_merge(struct xsum *s, const struct xsum *o) {
    if (!o->used)
        return true;
    if (!s->used) {
        *s = *o;
        return true;
    }
    /* The words of `o` that matter: without zeros below and without repeated signs above. */
    uint64_t sign = sign_word(o->w[XSUM_WORDS - 1]);
    int lo = 0, hi = XSUM_WORDS;
    while (hi > 0 && o->w[hi - 1] == sign)
        hi--;
    while (lo < hi && !o->w[lo])
        lo++;
    if (lo == hi && !sign)
        return true;
    if (lo == hi) /* a negative power of 2^64: nothing but signs from `hi` on */
        hi = lo < XSUM_WORDS ? lo + 1 : lo;
    int at = slide(s, o->base + lo, hi - lo < XSUM_WORDS ? hi - lo : XSUM_WORDS - 1);
    if (at < 0 || at + hi - lo > XSUM_WORDS)
        return false;
    unsigned char carry = 0;
    for (int i = at; i < XSUM_WORDS; i++) {
        uint64_t x = lo + i - at < XSUM_WORDS ? o->w[lo + i - at] : sign, t;
        bool c1 = __builtin_add_overflow(s->w[i], x, &t);
        bool c2 = __builtin_add_overflow(t, (uint64_t)carry, &s->w[i]);
        carry = c1 | c2;
    }
    return true;
}

bool xsum_unmerge(struct xsum *s, const struct xsum *o) {
    struct xsum minus = { .base = o->base, .used = o->used };
    add_words(minus.w, XSUM_WORDS, o->w, XSUM_WORDS, true);
    return xsum_merge(s, &minus);
}

/* ---- all words ---- */

void xbig_add(struct xbig *s, double v) {
    uint32_t e;
    uint64_t m = split(v, &e), d[3];
    int at = (int)((e + SUM_BIT) >> 6);
    shifted(m, e + SUM_BIT, d);
    if (m)
        add_words(s->w + at, XBIG_WORDS - at, d, 2, signbit(v));
}
void xbig_add_square(struct xbig *s, double v) {
    uint32_t e;
    uint64_t m = split(v, &e), d[3];
    int at = (int)((2 * e + SQUARE_BIT) >> 6);
    shifted((u128)m * m, 2 * e + SQUARE_BIT, d);
    add_words(s->w + at, XBIG_WORDS - at, d, 3, false);
}
void xbig_merge(struct xbig *s, const struct xbig *o) {
    add_words(s->w, XBIG_WORDS, o->w, XBIG_WORDS, false);
}
void xbig_merge_xsum(struct xbig *s, const struct xsum *o) {
    uint64_t sign = sign_word(o->w[XSUM_WORDS - 1]);
    unsigned char carry = 0;
    /* A base below 0 has zeros there: no double has such bits. */
    for (int i = o->base < 0 ? 0 : o->base; o->used && i < XBIG_WORDS; i++) {
        uint64_t x = i - o->base < XSUM_WORDS ? o->w[i - o->base] : sign, t;
        bool c1 = __builtin_add_overflow(s->w[i], x, &t);
        bool c2 = __builtin_add_overflow(t, (uint64_t)carry, &s->w[i]);
        carry = c1 | c2;
    }
}

/* ---- long natural numbers, for what happens once a result ---- */

enum { GUARD_WORDS = 4, LONG_WORDS = XBIG_WORDS + GUARD_WORDS + 4 };
struct natural {
    uint64_t w[LONG_WORDS];
    int n;       /* words in use: w[n-1] != 0 */
    bool sticky; /* a fraction below the unit was cut off */
};
static void trim(struct natural *x) {
    while (x->n && !x->w[x->n - 1])
        x->n--;
}
/* |s| >> bits; returns whether s is negative. The bits cut off are zero. */
static bool magnitude(struct natural *x, const struct xbig *s, int bits) {
    uint64_t all[XBIG_WORDS + 1] = { 0 };
    bool neg = s->w[XBIG_WORDS - 1] >> 63;
    if (neg)
        add_words(all, XBIG_WORDS, s->w, XBIG_WORDS, true);
    else
        memcpy(all, s->w, sizeof s->w);
    int words = bits >> 6, b = bits & 63;
    x->sticky = false;
    x->n = XBIG_WORDS - words;
    memset(x->w, 0, sizeof x->w);
    for (int i = 0; i < x->n; i++)
        x->w[i] = (uint64_t)(((u128)all[i + words + 1] << 64 | all[i + words]) >> b);
    trim(x);
    return neg;
}
static void times(struct natural *x, uint64_t k) {
    u128 t = 0;
    assert(x->n < LONG_WORDS);
    for (int i = 0; i < x->n; i++) {
        t += (u128)x->w[i] * k;
        x->w[i] = (uint64_t)t;
        t >>= 64;
    }
    x->w[x->n++] = (uint64_t)t;
    trim(x);
}
static void square(struct natural *to, const struct natural *x) {
    memset(to, 0, sizeof *to);
    assert(2 * x->n <= LONG_WORDS);
    for (int i = 0; i < x->n; i++) {
        u128 t = 0;
        for (int k = 0; x->w[i] && k < x->n; k++) {
            t += (u128)x->w[i] * x->w[k] + to->w[i + k];
            to->w[i + k] = (uint64_t)t;
            t >>= 64;
        }
        if (x->w[i])
            to->w[i + x->n] += (uint64_t)t;
    }
    to->n = 2 * x->n;
    trim(to);
}
static void minus(struct natural *x, const struct natural *y) {
    add_words(x->w, LONG_WORDS, y->w, LONG_WORDS, true);
    trim(x);
}
static void divide(struct natural *x, uint64_t k) {
    u128 rest = 0;
    for (int i = x->n - 1; i >= 0; i--) {
        rest = rest << 64 | x->w[i];
        x->w[i] = (uint64_t)(rest / k);
        rest %= k;
    }
    x->sticky |= rest != 0;
    trim(x);
}
static int top_bit(const struct natural *x) {
    return 64 * x->n - 1 - __builtin_clzll(x->w[x->n - 1]);
}
/* `count` <= 64 bits from bit `at` on; zeros beyond the ends. */
static uint64_t bits_at(const struct natural *x, int at, int count) {
    uint64_t v = 0;
    for (int i = 0; i < count; i++) {
        int b = at + i;
        if (b >= 0 && b < 64 * x->n)
            v |= (x->w[b >> 6] >> (b & 63) & 1) << i;
    }
    return v;
}
/* Whether any bit below bit `at` is set, or was cut off. */
static bool rest_below(const struct natural *x, int at) {
    if (x->sticky)
        return true;
    for (int i = 0; i < x->n && 64 * i < at; i++) {
        uint64_t v = x->w[i];
        if (at - 64 * i < 64)
            v &= ((uint64_t)1 << (at - 64 * i)) - 1;
        if (v)
            return true;
    }
    return false;
}
/* x * 2^exp, rounded to nearest, ties to even; gradual underflow. */
static double to_double(const struct natural *x, int exp) {
    if (!x->n)
        return 0;
    int top = top_bit(x);
    int low = top - 52; /* last bit kept */
    if (low + exp < -1074)
        low = -1074 - exp;
    if (low > top + 1)
        return 0;
    uint64_t m = bits_at(x, low, 53);
    bool half = bits_at(x, low - 1, 1), rest = rest_below(x, low - 1);
    m += half && (rest || m & 1);
    return ldexp((double)m, low + exp);
}

double xbig_round(const struct xbig *s) {
    struct natural x;
    bool neg = magnitude(&x, s, 0);
    double v = to_double(&x, XSUM_UNIT_EXP);
    return neg ? -v : v;
}
double xbig_mean(const struct xbig *s, uint64_t n) {
    struct natural x;
    bool neg = magnitude(&x, s, 0);
    divide(&x, n);
    double v = to_double(&x, XSUM_UNIT_EXP);
    return neg ? -v : v;
}
/* |s| in units of 2^(64 * base + XSUM_UNIT_EXP); two words of fraction in front make room for a
 * division. */
static bool window_magnitude(struct natural *x, const struct xsum *s) {
    bool neg = s->w[XSUM_WORDS - 1] >> 63;
    memset(x->w, 0, (XSUM_WORDS + 2) * sizeof *x->w);
    add_words(x->w + 2, XSUM_WORDS, s->w, XSUM_WORDS, neg);
    x->n = XSUM_WORDS + 2;
    x->sticky = false;
    trim(x);
    return neg;
}
double xsum_round(const struct xsum *s) {
    struct natural x;
    bool neg = window_magnitude(&x, s);
    double v = to_double(&x, XSUM_UNIT_EXP + 64 * (s->base - 2));
    return neg ? -v : v;
}
double xsum_mean(const struct xsum *s, uint64_t n) {
    struct natural x;
    bool neg = window_magnitude(&x, s);
    divide(&x, n);
    double v = to_double(&x, XSUM_UNIT_EXP + 64 * (s->base - 2));
    return neg ? -v : v;
}
double xsum_mean_i128(__int128 s, uint64_t n) {
    struct natural x = { .n = 4 };
    u128 m = s < 0 ? -(u128)s : (u128)s;
    x.w[2] = (uint64_t)m; /* two words of fraction */
    x.w[3] = (uint64_t)(m >> 64);
    trim(&x);
    divide(&x, n);
    double v = to_double(&x, -128);
    return s < 0 ? -v : v;
}

/* The variance times 2^-*exp; *exp is even. */
static void variance(struct natural *v, const struct xbig *sum, const struct xbig *squares,
                     uint64_t n, int *exp) {
    struct natural s, s2;
    magnitude(&s, sum, SUM_BIT); /* in units of 2^-1074 */
    square(&s2, &s);
    magnitude(v, squares, SQUARE_BIT); /* in units of 2^-2148, as s2 */
    times(v, n);
    v->n = LONG_WORDS;
    minus(v, &s2);
    memmove(v->w + GUARD_WORDS, v->w, (LONG_WORDS - GUARD_WORDS) * sizeof *v->w);
    memset(v->w, 0, GUARD_WORDS * sizeof *v->w);
    v->n = LONG_WORDS;
    trim(v);
    divide(v, n);
    divide(v, n - 1);
    *exp = -2 * 1074 - 64 * GUARD_WORDS;
}
double xbig_variance(const struct xbig *sum, const struct xbig *squares, uint64_t n) {
    struct natural v;
    int exp;
    variance(&v, sum, squares, n, &exp);
    return to_double(&v, exp);
}

/* Largest r with r*r <= x, by Newton's iteration from a double. */
static uint64_t root(u128 x) {
    double d = sqrt((double)(uint64_t)(x >> 64) * 0x1p64 + (double)(uint64_t)x);
    u128 r = d >= 0x1p64 ? ((u128)1 << 64) - 1 : (u128)d;
    if (r)
        r = (r + x / r) / 2;
    if (r >> 64)
        r = ((u128)1 << 64) - 1;
    while (r * r > x)
        r--;
    while (r < UINT64_MAX && (r + 1) * (r + 1) <= x)
        r++;
    return (uint64_t)r;
}
double xbig_stddev(const struct xbig *sum, const struct xbig *squares, uint64_t n) {
    struct natural v, r = { .n = 1 };
    int exp;
    variance(&v, sum, squares, n, &exp);
    if (!v.n)
        return 0;
    int low = top_bit(&v) - 127; /* 127 or 128 bits are enough: their root has 64 */
    low += low & 1;
    u128 head = (u128)bits_at(&v, low + 64, 64) << 64 | bits_at(&v, low, 64);
    r.w[0] = root(head);
    r.sticky = (u128)r.w[0] * r.w[0] != head || rest_below(&v, low);
    return to_double(&r, (low + exp) / 2);
}
