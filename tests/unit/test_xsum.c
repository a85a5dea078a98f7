/* Exact sums against an oracle that shares nothing with them: fractions of arbitrary integers, bit
 * by bit, and against any order, slicing and merging of the same values. */
#include "engine/xsum.h"
#include "tests/unit/harness.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- oracle: a signed integer of 5,000 bits as an array of digits of base 2^16 ---- */

enum { DIGITS = 320, UNIT = 2240 }; /* value = digits * 2^-UNIT */
struct whole {
    int64_t d[DIGITS]; /* any sign and size; normalised by carry() */
};
static void carry(struct whole *x) {
    int64_t c = 0;
    for (int i = 0; i < DIGITS; i++) {
        c += x->d[i];
        int64_t low = c & 0xFFFF;
        x->d[i] = i == DIGITS - 1 ? c : low;
        c = (c - low) / 65536;
    }
}
/* adds sign * m * 2^exp */
static void put(struct whole *x, uint64_t m, int exp, int sign) {
    for (int b = 0; b < 64; b++)
        if (m >> b & 1)
            x->d[(exp + b + UNIT) / 16] += sign * ((int64_t)1 << (exp + b + UNIT) % 16);
}
static void put_double(struct whole *x, double v) {
    int e;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(v), &e), 53);
    int low = e - 53 < -1074 ? -1074 - (e - 53) : 0; /* zeros of a subnormal */
    put(x, m >> low, e - 53 + low, v < 0 ? -1 : 1);
}
static void put_square(struct whole *x, double v) {
    int e;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(v), &e), 53);
    uint64_t lo = m & 0x3FFFFFF, hi = m >> 26; /* 26 and 27 bits */
    e -= 53;
    while (m && !(m & 1) && 2 * e < -2200) {
        m >>= 1;
        e++;
        lo = m & 0x3FFFFFF;
        hi = m >> 26;
    }
    put(x, lo * lo, 2 * e, 1);
    put(x, lo * hi, 2 * e + 27, 1);
    put(x, hi * hi, 2 * e + 52, 1);
}
static int sign_of(const struct whole *x) {
    for (int i = DIGITS - 1; i >= 0; i--)
        if (x->d[i])
            return x->d[i] < 0 ? -1 : 1;
    return 0;
}
static void negate(struct whole *x) {
    for (int i = 0; i < DIGITS; i++)
        x->d[i] = -x->d[i];
    carry(x);
}
/* Whether v is num / den rounded to nearest, ties to even: num/den lies between the midpoints to
 * v's neighbours. Twice the midpoint is the sum of two doubles, so compare 2*num with den*(v+w). */
static bool nearest(struct whole num, uint64_t den, double v) {
    if (sign_of(&num) < 0) {
        negate(&num);
        v = -v;
    }
    if (v < 0 || (v == 0 && signbit(v) && sign_of(&num)))
        return false;
    struct whole twice = num;
    for (int i = 0; i < DIGITS; i++)
        twice.d[i] *= 2;
    carry(&twice);
    bool even;
    uint64_t u;
    memcpy(&u, &v, 8);
    even = !(u & 1);
    if (isinf(v)) { /* at least halfway to 2^1024 */
        struct whole t = twice;
        for (int i = 0; i < 2; i++) {
            struct whole s = { 0 };
            put_double(&s, i ? ldexp(1, 1023) : DBL_MAX);
            for (int k = 0; k < DIGITS; k++)
                t.d[k] -= s.d[k] * (int64_t)den * (i ? 2 : 1);
            carry(&t);
        }
        return sign_of(&t) >= 0;
    }
    for (int up = 0; up < 2; up++) {
        double w = up ? nextafter(v, INFINITY) : nextafter(v, -INFINITY);
        if (!up && v == 0)
            continue;
        struct whole t = twice, s = { 0 };
        put_double(&s, v);
        put_double(&s, isinf(w) ? v : w);
        if (isinf(w))
            put_double(&s, v - nextafter(v, 0));
        for (int k = 0; k < DIGITS; k++)
            t.d[k] -= s.d[k] * (int64_t)den;
        carry(&t);
        int c = sign_of(&t);
        if (up ? c > 0 : c < 0)
            return false;
        if (c == 0 && !even)
            return false;
    }
    return true;
}

/* ---- values ---- */

static uint64_t seed;
static double random_value(int style) {
    uint64_t r = test_random(&seed);
    double m = (double)(r >> 11) * 0x1p-53 + 1; /* 1..2 */
    int sign = r & 1 ? -1 : 1;
    switch (style) {
    case 0:
        return sign * floor(m * 1000) / 10; /* a sensor */
    case 1:
        return ldexp(sign * m, (int)(r >> 1 & 63) - 32); /* some magnitudes */
    case 2:
        return ldexp(sign * m, (int)(r >> 1 & 1023) - 600);
    case 3:
        return ldexp(sign * floor(m * 4), -1074 + (int)(r >> 1 & 7)); /* subnormal */
    case 4:
        return ldexp(sign * m, 1000 + (int)(r >> 1 & 15) % 23);
    case 5:
        return r >> 1 & 1 ? 0.1 : -0.1;
    case 6:
        return ldexp(sign, (int)(r >> 1 & 2047) % 2046 - 1022);
    default:
        return r & 2 ? sign * 1e16 : sign * (double)(r >> 60);
    }
}

/* A sum that goes on as an xbig when the window is too small, as users do. */
struct either {
    struct xsum s;
    struct xbig b;
    bool big;
};
static void either_add(struct either *x, double v, bool sq) {
    if (!x->big && (sq ? xsum_add_square(&x->s, v) : xsum_add(&x->s, v)))
        return;
    x->big = true;
    if (sq)
        xbig_add_square(&x->b, v);
    else
        xbig_add(&x->b, v);
}
static struct xbig either_total(const struct either *x) {
    struct xbig b = x->b;
    xbig_merge_xsum(&b, &x->s);
    return b;
}
static void fail_here(const char *what, uint64_t first, int style, int n, double v) {
    fail_msg("%s: seed %llu style %d n %d: %a", what, (unsigned long long)first, style, n, v);
}

static void rounds_exactly(void **state) {
    (void)state;
    seed = test_seed(1);
    double v[300];
    for (int round = test_scale(6000); round > 0; round--) {
        uint64_t first = seed;
        int style = (int)(test_random(&seed) % 8), n = 1 + (int)(test_random(&seed) % 12);
        if (n == 12)
            n = 1 + (int)(test_random(&seed) % 300);
        struct whole sum = { 0 }, sq = { 0 };
        struct either es = { 0 }, eq = { 0 };
        for (int i = 0; i < n; i++) {
            v[i] = i && test_random(&seed) % 5 == 0 ? -v[i - 1] : random_value(style);
            put_double(&sum, v[i]);
            put_square(&sq, v[i]);
            either_add(&es, v[i], false);
            either_add(&eq, v[i], true);
        }
        carry(&sum);
        carry(&sq);
        struct xbig bs = either_total(&es), bq = either_total(&eq);
        if (!nearest(sum, 1, xbig_round(&bs)))
            fail_here("sum", first, style, n, xbig_round(&bs));
        if (!nearest(sq, 1, xbig_round(&bq)))
            fail_here("squares", first, style, n, xbig_round(&bq));
        if (!es.big && xsum_round(&es.s) != xbig_round(&bs))
            fail_here("small sum", first, style, n, xsum_round(&es.s));
        if (!es.big && xsum_mean(&es.s, (uint64_t)n) != xbig_mean(&bs, (uint64_t)n))
            fail_here("small mean", first, style, n, xsum_mean(&es.s, (uint64_t)n));
        uint64_t k = n == 7 ? UINT32_MAX : (uint64_t)n;
        if (!nearest(sum, k, xbig_mean(&bs, k)))
            fail_here("mean", first, style, n, xbig_mean(&bs, k));
    }
}

/* Variance: n * sum(v^2) - sum(v)^2 over n * (n - 1), with integers small enough for 128 bits, at
 * several scales. The root is checked by squaring its neighbourhood. */
static void deviations_are_exact(void **state) {
    (void)state;
    seed = test_seed(2);
    for (int round = test_scale(20000); round > 0; round--) {
        uint64_t first = seed;
        int n = 2 + (int)(test_random(&seed) % 20), scale = (int)(test_random(&seed) % 900) - 460;
        uint64_t mask = test_random(&seed) % 3 ? 0xFFFF : 0xFFFFFFFF;
        struct either es = { 0 }, eq = { 0 };
        __int128 s = 0, q = 0;
        for (int i = 0; i < n; i++) {
            int64_t x = (int64_t)(test_random(&seed) & mask) - (int64_t)(mask / 3);
            if (test_random(&seed) % 50 == 0)
                x = 12345;
            s += x;
            q += (__int128)x * x;
            either_add(&es, ldexp((double)x, scale), false);
            either_add(&eq, ldexp((double)x, scale), true);
        }
        struct xbig bs = either_total(&es), bq = either_total(&eq);
        unsigned __int128 num = (unsigned __int128)(n * q - s * s);
        struct whole w = { 0 };
        put(&w, (uint64_t)(num & 0xFFFFFFFF), 2 * scale, 1);
        put(&w, (uint64_t)(num >> 32 & 0xFFFFFFFF), 2 * scale + 32, 1);
        put(&w, (uint64_t)(num >> 64), 2 * scale + 64, 1);
        carry(&w);
        uint64_t den = (uint64_t)n * (uint64_t)(n - 1);
        double var = xbig_variance(&bs, &bq, (uint64_t)n), dev = xbig_stddev(&bs, &bq, (uint64_t)n);
        if (!nearest(w, den, var))
            fail_here("variance", first, scale, n, var);
        /* dev is nearest iff (dev - ulp/2)^2 <= var <= (dev + ulp/2)^2; 2*dev +- ulp is exact in
         * long double, so is its square in 128 bits: compare 4 * num / den. */
        for (int up = 0; dev > 0 && up < 2; up++) {
            int e;
            double f = frexp(dev, &e);
            uint64_t m = (uint64_t)ldexp(f, 54) + (up ? 1 : UINT64_MAX);
            struct whole t = w; /* num * 2^(2 scale) - den * (m * 2^(e-54))^2 */
            uint64_t lo = m & 0x7FFFFFF, hi = m >> 27;
            uint64_t part[3] = { lo * lo, lo * hi, hi * hi };
            for (int k = 0; k < 3; k++)
                for (uint64_t b = 0; b < 64; b++) /* den * part bit by bit: no overflow */
                    if (part[k] >> b & 1)
                        put(&t, den, 2 * (e - 54) + (k == 1 ? 28 : k * 27) + (int)b, -1);
            carry(&t);
            int c = sign_of(&t);
            if (up ? c > 0 : c < 0)
                fail_here("stddev", first, scale, n, dev);
        }
        if (!num)
            assert_true(var == 0 && dev == 0);
    }
}

/* Any order, any slices, merged in any way: the same words. */
static void order_never_matters(void **state) {
    (void)state;
    seed = test_seed(3);
    double v[200];
    for (int round = test_scale(3000); round > 0; round--) {
        uint64_t first = seed;
        int style = (int)(test_random(&seed) % 8), n = 1 + (int)(test_random(&seed) % 200);
        struct xbig want = { 0 }, want_sq = { 0 };
        for (int i = 0; i < n; i++) {
            v[i] = random_value(style);
            xbig_add(&want, v[i]);
            xbig_add_square(&want_sq, v[i]);
        }
        for (int i = n - 1; i > 0; i--) {
            int k = (int)(test_random(&seed) % (uint64_t)(i + 1));
            double t = v[i];
            v[i] = v[k];
            v[k] = t;
        }
        struct either part[4] = { 0 }, part_sq[4] = { 0 };
        for (int i = 0; i < n; i++) {
            int k = (int)(test_random(&seed) & 3);
            either_add(&part[k], v[i], false);
            either_add(&part_sq[k], v[i], true);
        }
        struct xsum there = part[0].s;
        if (xsum_merge(&there, &part[1].s) && xsum_unmerge(&there, &part[1].s)) {
            struct xbig back = { 0 }, was = { 0 };
            xbig_merge_xsum(&back, &there);
            xbig_merge_xsum(&was, &part[0].s);
            assert_memory_equal(&back, &was, sizeof was);
        }
        struct xbig got = { 0 }, got_sq = { 0 };
        for (int k = 3; k > 0; k--) { /* small ones into each other where they fit */
            if (!xsum_merge(&part[k - 1].s, &part[k].s))
                xbig_merge_xsum(&got, &part[k].s);
            if (!xsum_merge(&part_sq[k - 1].s, &part_sq[k].s))
                xbig_merge_xsum(&got_sq, &part_sq[k].s);
            xbig_merge(&got, &part[k].b);
            xbig_merge(&got_sq, &part_sq[k].b);
        }
        struct xbig last = either_total(&part[0]), last_sq = either_total(&part_sq[0]);
        xbig_merge(&got, &last);
        xbig_merge(&got_sq, &last_sq);
        if (memcmp(&got, &want, sizeof got) || memcmp(&got_sq, &want_sq, sizeof got_sq))
            fail_here("order", first, style, n, v[0]);
    }
}

/* Measurements stay in the small form: the large one must not be the usual case. */
static void measurements_stay_small(void **state) {
    (void)state;
    seed = test_seed(4);
    struct xsum s = { 0 }, q = { 0 };
    for (int i = 0; i < 100000; i++) {
        double v = random_value(0) * (i % 3 ? 1 : 1e-3);
        assert_true(xsum_add(&s, v));
        assert_true(xsum_add_square(&q, v));
    }
    assert_true(xsum_add(&s, 1e9) && xsum_add(&s, -1e9));
    assert_int_equal(sizeof s, 56);
}

static void known_values(void **state) {
    (void)state;
    struct xbig b = { 0 }, q = { 0 };
    assert_true(xbig_round(&b) == 0 && !signbit(xbig_round(&b)));
    for (int i = 0; i < 10; i++)
        xbig_add(&b, 0.1);
    assert_true(xbig_round(&b) == 1.0);
    assert_true(xbig_mean(&b, 10) == 0.1);
    struct xbig big = { 0 };
    xbig_add(&big, DBL_MAX);
    xbig_add(&big, DBL_MAX);
    assert_true(isinf(xbig_round(&big)));
    assert_true(xbig_mean(&big, 2) == DBL_MAX);
    xbig_add(&big, -DBL_MAX);
    assert_true(xbig_round(&big) == DBL_MAX);
    struct xbig tiny = { 0 };
    for (int i = 0; i < 2; i++) {
        xbig_add(&tiny, i ? 5e-324 : -5e-324);
        xbig_add_square(&q, 5e-324);
    }
    assert_true(xbig_stddev(&tiny, &q, 2) == 5e-324); /* sqrt(2) units, rounded */
    assert_true(xbig_variance(&tiny, &q, 2) == 0);
    assert_true(xsum_mean_i128(7, 2) == 3.5);
    assert_true(xsum_mean_i128(-1, 3) == -1.0 / 3);
    assert_true(xsum_mean_i128((__int128)INT64_MAX * 1000, 1000) == 0x1p63);
    assert_true(xsum_mean_i128(0, 3) == 0);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(rounds_exactly),
        cmocka_unit_test(deviations_are_exact),
        cmocka_unit_test(order_never_matters),
        cmocka_unit_test(measurements_stay_small),
    };
    return cmocka_run_group_tests_name("xsum", all, NULL, NULL);
}
