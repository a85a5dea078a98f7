/* Numbers, times and UTF-8 as text, against the C library and big integers. */
#include "engine/num.h"
#include "engine/num_table.h"
#include "tests/unit/harness.h"
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed, rnd;
static locale_t c_locale;

/* The libraries' answers in the C locale, whatever locale the suite runs under. */
static double lib_read(const char *text) {
    return strtod_l(text, NULL, c_locale);
}
static int lib_write(char *out, size_t size, int digits, double v) {
    locale_t old = uselocale(c_locale);
    int n = snprintf(out, size, "%.*e", digits - 1, v);
    uselocale(old);
    return n;
}
static int setup(void **state) {
    (void)state;
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    seed = rnd = test_seed(1);
    return c_locale ? 0 : -1;
}
static uint64_t bits_of(double d) {
    uint64_t b;
    memcpy(&b, &d, 8);
    return b;
}
static double of_bits(uint64_t b) {
    double d;
    memcpy(&d, &b, 8);
    return d;
}

/* ---- the table, made anew with big integers of 32-bit limbs ---- */

enum { LIMBS = 80 };
struct big {
    uint32_t v[LIMBS];
};
static void big_mul(struct big *b, uint32_t f, uint32_t carry) {
    for (int i = 0; i < LIMBS; i++) {
        uint64_t x = (uint64_t)b->v[i] * f + carry;
        b->v[i] = (uint32_t)x;
        carry = (uint32_t)(x >> 32);
    }
    assert_int_equal(carry, 0);
}
static int big_bits(const struct big *b) {
    for (int i = LIMBS - 1; i >= 0; i--)
        if (b->v[i])
            return 32 * i + 32 - __builtin_clz(b->v[i]);
    return 0;
}
static int big_bit(const struct big *b, int i) {
    return i >= 0 && (b->v[i / 32] >> (i % 32) & 1);
}
static void big_shl1(struct big *b, int bit) {
    for (int i = LIMBS - 1; i > 0; i--)
        b->v[i] = b->v[i] << 1 | b->v[i - 1] >> 31;
    b->v[0] = b->v[0] << 1 | (uint32_t)bit;
}
static int big_compare(const struct big *a, const struct big *b) {
    for (int i = LIMBS - 1; i >= 0; i--)
        if (a->v[i] != b->v[i])
            return a->v[i] < b->v[i] ? -1 : 1;
    return 0;
}
static void big_sub(struct big *a, const struct big *b) {
    int64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        int64_t x = (int64_t)a->v[i] - b->v[i] - borrow;
        a->v[i] = (uint32_t)x;
        borrow = x < 0;
    }
}
/* The 128 leading bits of 5^n (or of 2^big / 5^n by long division), and whether more follow. */
static void leading(int q, uint64_t out[2], bool *exact) {
    struct big p = { { 1 } }, rest = { { 1 } };
    for (int i = 0; i < abs(q); i++)
        big_mul(&p, 5, 0);
    out[0] = out[1] = 0;
    *exact = true;
    int top = big_bits(&p);
    for (int got = 0, i = 0; got < 128; i++) {
        int bit;
        if (q >= 0) {
            bit = big_bit(&p, top - 1 - i);
        } else {
            bit = big_compare(&rest, &p) >= 0;
            if (bit)
                big_sub(&rest, &p);
            big_shl1(&rest, 0);
        }
        if (!got && !bit)
            continue;
        out[0] = out[0] << 1 | out[1] >> 63;
        out[1] = out[1] << 1 | (uint64_t)bit;
        got++;
    }
    if (q >= 0)
        *exact = top <= 128;
    else
        *exact = big_bits(&rest) == 0;
}
static void table_is_right(void **state) {
    (void)state;
    for (int q = NUM_POW10_MIN; q <= NUM_POW10_MAX; q++) {
        uint64_t want[2];
        bool exact;
        leading(q, want, &exact);
        assert_int_equal(exact, q >= 0 && q <= 55);
        if (q >= -27 && q < 0 && ++want[1] == 0)
            want[0]++;
        const uint64_t *have = num_pow10[q - NUM_POW10_MIN];
        if (have[0] != want[0] || have[1] != want[1])
            fail_msg("10^%d: %016" PRIx64 "%016" PRIx64, q, want[0], want[1]);
    }
}

/* ---- reading ---- */

static void check_read(const char *text) {
    size_t len = strlen(text);
    bool is_int;
    int64_t i = 0;
    double d = 0, want = lib_read(text);
    const char *end = num_parse(text, text + len, &is_int, &i, &d);
    if (isinf(want)) {
        if (end)
            fail_msg("%s: accepted, but overflows", text);
        return;
    }
    if (end != text + len || bits_of(d) != bits_of(want))
        fail_msg("seed %" PRIu64 ": %s reads as %a, should be %a", seed, text, d, want);
    double whole;
    if (num_f64_whole(text, text + len, &whole) != 0 || bits_of(whole) != bits_of(want))
        fail_msg("seed %" PRIu64 ": %s: whole reads as %a, should be %a", seed, text, whole, want);
}
static void random_digits(char *out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = (char)('0' + test_random(&rnd) % 10);
    if (n > 1 && out[0] == '0')
        out[0] = '1';
    out[n] = 0;
}
static void reads_as_strtod(void **state) {
    (void)state;
    char text[900], digits[820];
    for (int n = test_scale(1000000); n > 0; n--) {
        uint64_t r = test_random(&rnd);
        int len = 1 + (int)(r % 20), point = (int)(r >> 8 & 31) % len;
        if ((r >> 16 & 255) == 0)
            len = 20 + (int)(test_random(&rnd) % 780);
        random_digits(digits, len);
        int o = snprintf(text, sizeof text, "%s", r >> 24 & 1 ? "-" : "");
        if (point)
            o += snprintf(text + o, sizeof text - (size_t)o, "%.*s.%s", point, digits,
                          digits + point);
        else
            o += snprintf(text + o, sizeof text - (size_t)o, "%s", digits);
        if (r >> 25 & 1)
            snprintf(text + o, sizeof text - (size_t)o, "%c%s%d", r >> 26 & 1 ? 'e' : 'E',
                     r >> 27 & 1 ? "+" : "-", (int)(r >> 32) % (r >> 28 & 1 ? 350 : 25));
        if (strstr(text, "e+-") || strstr(text, "E+-") || strstr(text, "e--") ||
            strstr(text, "E--"))
            continue;
        check_read(text);
    }
}
/* Every bit pattern as %.17e, and the exact middle between two doubles, which must tie to even. */
static void reads_bit_patterns_and_halves(void **state) {
    (void)state;
    char text[1200];
    for (int n = test_scale(300000); n > 0; n--) {
        double d = of_bits(test_random(&rnd) & ~((uint64_t)1 << 63));
        if (n % 4 == 0)
            d = of_bits(test_random(&rnd) >> 12 >> test_random(&rnd) % 52); /* subnormal */
        if (!isfinite(d))
            continue;
        lib_write(text, sizeof text, 17, d);
        check_read(text);
    }
    for (int n = test_scale(20000); n > 0; n--) {
        uint64_t m = (test_random(&rnd) >> 11 | (uint64_t)1 << 52);
        int e = (int)(test_random(&rnd) % 120) - 60;
        long double half = ldexpl((long double)m + 0.5L, e);
        locale_t old = uselocale(c_locale);
        snprintf(text, sizeof text, "%.200Lg", half);
        uselocale(old);
        check_read(text);
    }
    static const char *const edges[] = {
        "0",
        "-0",
        "0.0",
        "-0.0",
        "0e5",
        "5e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "1e309",
        "1e-400",
        "9007199254740993",
        "9007199254740992.5",
        "9007199254740991",
        "1e22",
        "1e23",
        "8.5e22",
        "123456789012345678901234567890",
        "0.000000000000000000000000000000000001",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "6.9294956446009195e15",
        "179769313486231580793728971405301e277",
        "-122.40326249999998",
    };
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        check_read(edges[i]);
}
static void integers_are_exact(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_int;
        int64_t i;
    } cases[] = {
        { "9223372036854775807", true, INT64_MAX },
        { "9223372036854775808", false, 0 },
        { "-9223372036854775808", true, INT64_MIN },
        { "-9223372036854775809", false, 0 },
        { "18446744073709551616", false, 0 },
        { "9007199254740993", true, 9007199254740993 },
        { "1.0", false, 0 },
        { "1e3", false, 0 },
        { "-0", true, 0 },
        { "0", true, 0 },
        { "99999999999999999999", false, 0 },
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const char *t = cases[n].text, *end = t + strlen(t);
        bool is_int;
        int64_t i = 0;
        double d;
        assert_ptr_equal(num_parse(t, end, &is_int, &i, &d), end);
        assert_int_equal(is_int, cases[n].is_int);
        assert_int_equal(i, cases[n].i);
        assert_int_equal(num_i64_whole(t, end, &i) == 0, cases[n].is_int);
    }
}
static void grammar(void **state) {
    (void)state;
    static const char *const none[] = { "",    "-",   "+1",  ".5",       "e5",  "1.", "1.e5", "1e",
                                        "1e+", "-.5", "NaN", "Infinity", "--1", "x",  "1e999" };
    static const struct {
        const char *text;
        int len;
    } part[] = { { "01", 1 },   { "1,", 1 },   { "12\"", 2 },  { "1.5.5", 3 },
                 { "0x10", 1 }, { "1e5e", 3 }, { "-0.25 ", 5 } };
    static const char *const loose[] = { "+1", ".5", "5.", "-.5", "+.5e1", "5.e1" };
    static const char *const never[] = { "",    "+",   ".",   "-",   "e1", " 1",  "1 ",  "01",
                                         "1,5", "nan", "inf", "0x1", "1e", "+-1", "1_0", "1e999" };
    bool is_int;
    int64_t i;
    double d;
    for (size_t n = 0; n < sizeof none / sizeof *none; n++)
        assert_null(num_parse(none[n], none[n] + strlen(none[n]), &is_int, &i, &d));
    for (size_t n = 0; n < sizeof part / sizeof *part; n++)
        assert_ptr_equal(
            num_parse(part[n].text, part[n].text + strlen(part[n].text), &is_int, &i, &d),
            part[n].text + part[n].len);
    for (size_t n = 0; n < sizeof loose / sizeof *loose; n++) {
        assert_int_equal(num_f64_whole(loose[n], loose[n] + strlen(loose[n]), &d), 0);
        assert_true(d == lib_read(loose[n]));
    }
    for (size_t n = 0; n < sizeof never / sizeof *never; n++)
        assert_int_equal(num_f64_whole(never[n], never[n] + strlen(never[n]), &d), -1);
    const char *plus = "+5";
    assert_int_equal(num_i64_whole(plus, plus + 2, &i), 0);
    assert_int_equal(i, 5);
}

/* ---- writing ---- */

/* Fewest digits that read back, of those the nearest, as the C library finds them by trying. */
static void check_write(double v) {
    char text[NUM_F64_MAX_LEN], want[64], digits[64];
    memset(text, 'x', sizeof text);
    int len = num_write_f64(text, v);
    assert_in_range(len, 1, 26);
    double back;
    if (num_f64_whole(text, text + len, &back) != 0 || bits_of(back) != bits_of(v))
        fail_msg("seed %" PRIu64 ": %a wrote %.*s", seed, v, len, text);
    if (v == 0)
        return;
    int n = 1;
    while (lib_write(want, sizeof want, n, v), lib_read(want) != v)
        n++;
    int o = 0;
    for (int i = 0; i < len && text[i] != 'e'; i++)
        if (text[i] >= '0' && text[i] <= '9' && (o || text[i] != '0'))
            digits[o++] = text[i];
    while (o > 0 && digits[o - 1] == '0')
        o--;
    digits[o] = 0;
    char expect[64];
    int e = 0;
    for (int i = 0; want[i] && want[i] != 'e'; i++)
        if (want[i] >= '0' && want[i] <= '9')
            expect[e++] = want[i];
    while (e > 1 && expect[e - 1] == '0')
        e--;
    expect[e] = 0;
    /* Rounding to n digits finds the nearest decimal with n digits; when that one does not read
     * back, another with n digits may (2^-44 and other powers of two): then fewer digits win. */
    if (o < e)
        return;
    if (strcmp(digits, expect) != 0)
        fail_msg("seed %" PRIu64 ": %a wrote %.*s, shortest is %s", seed, v, len, text, want);
}
static void writes_shortest(void **state) {
    (void)state;
    for (int n = test_scale(300000); n > 0; n--) {
        double v = of_bits(test_random(&rnd));
        if (isfinite(v))
            check_write(v);
        check_write(of_bits(test_random(&rnd) >> 12 >> test_random(&rnd) % 52));
        uint64_t r = test_random(&rnd); /* short decimals */
        double p = pow(10, (double)(r & 15));
        check_write((double)(int64_t)(test_random(&rnd) >> (r >> 4 & 63)) / p);
        check_write((double)(int64_t)(test_random(&rnd) % 10000000) / p);
    }
    for (int e = -1074; e < 1024; e++) { /* the rounding interval is lopsided at powers of two */
        check_write(ldexp(1, e));
        check_write(nextafter(ldexp(1, e), 0));
        check_write(nextafter(ldexp(1, e), INFINITY));
    }
    for (int e = -323; e < 309; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        check_write(lib_read(text));
        check_write(nextafter(lib_read(text), 0));
        check_write(nextafter(lib_read(text), INFINITY));
    }
}
static void written_forms(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        { 0, "0" },
        { -0.0, "-0" },
        { 1, "1" },
        { -1.5, "-1.5" },
        { 36, "36" },
        { 0.1, "0.1" },
        { 1e-5, "0.00001" },
        { 1.25e-5, "0.0000125" },
        { 9e-6, "9e-6" },
        { 1e16, "10000000000000000" },
        { 99999999999999984, "99999999999999980" },
        { 1e17, "1e17" },
        { 1.5e300, "1.5e300" },
        { 5e-324, "5e-324" },
        { -122.40326249999998, "-122.40326249999998" },
        { 1e23, "1e23" },
        { 9007199254740993, "9007199254740992" },
        { 1.7976931348623157e308, "1.7976931348623157e308" },
        { 6.1668213, "6.1668213" },
        { 0.30000000000000004, "0.30000000000000004" },
        { 1234567.875, "1234567.875" },
        { 2e-44, "2e-44" },
        { 9.5367431640625e-7, "9.5367431640625e-7" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NUM_F64_MAX_LEN + 1];
        text[num_write_f64(text, cases[i].v)] = 0;
        assert_string_equal(text, cases[i].text);
    }
}
static void writes_integers(void **state) {
    (void)state;
    char text[NUM_I64_MAX_LEN + 1], want[32];
    for (int n = test_scale(1000000); n > 0; n--) {
        int64_t v = (int64_t)test_random(&rnd) >> (test_random(&rnd) % 64);
        if (n <= 4)
            v = (int64_t[]){ INT64_MIN, INT64_MAX, 0, 9999999999999999 }[n - 1];
        text[num_write_i64(text, v)] = 0;
        snprintf(want, sizeof want, "%" PRId64, v);
        assert_string_equal(text, want);
        int64_t back;
        assert_int_equal(num_i64_whole(want, want + strlen(want), &back), 0);
        assert_true(back == v);
    }
}

/* ---- times, durations, sizes ---- */

static void times(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "2013-01-13 23:36:00", 1358120160000 },
        { "2013-01-13T23:36:00.5Z", 1358120160500 },
        { "1969-12-31T23:59:59.999Z", -1 },
        { "2000-02-29T12:00:00+05:45", 951804900000 },
        { "0000-01-01T00:00:00Z", -62167219200000 },
        { "9999-12-31T23:59:59.999Z", 253402300799999 },
        { "2016-12-31T23:59:60Z", 1483228800000 },
        { "2013-01-13T23:36:00.123456789-00:30", 1358121960123 },
        { "2013-01-13t23:36:00z", 1358120160000 },
    };
    static const char *const bad[] = {
        "",
        "2013",
        "2013-1-13T00:00:00Z",
        "2013-02-29T00:00:00Z",
        "2013-13-01T00:00:00Z",
        "2013-00-01T00:00:00Z",
        "2013-01-00T00:00:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T00:60:00Z",
        "2013-01-01T00:00:61Z",
        "2013-01-01T00:00:00.Z",
        "2013-01-01T00:00:00ZZ",
        "2013-01-01T00:00:00+5:00",
        "2013-01-01T00:00:00+05:60",
        "2013-01-01",
        "2013-01-01T00:00:00 ",
        "13-01-01T00:00:00Z",
        "1900-02-29T00:00:00Z",
    };
    int64_t ms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(time_parse(good[i].text, good[i].text + strlen(good[i].text), &ms), 0);
        assert_true(ms == good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (time_parse(bad[i], bad[i] + strlen(bad[i]), &ms) == 0)
            fail_msg("accepted: %s", bad[i]);
    for (int n = test_scale(300000); n > 0; n--) {
        int64_t t = (int64_t)(test_random(&rnd) % 315569520000000) - 62167219200000;
        if (n % 3 == 0)
            t -= t % 1000;
        char text[NUM_TIME_MAX_LEN + 1], want[64];
        text[time_write(text, t)] = 0;
        time_t s = (time_t)((t - (t % 1000 + 1000) % 1000) / 1000);
        struct tm tm;
        gmtime_r(&s, &tm);
        int milli = (int)((t % 1000 + 1000) % 1000), o;
        o = snprintf(want, sizeof want, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
        if (milli)
            o += snprintf(want + o, sizeof want - (size_t)o, ".%03d", milli);
        snprintf(want + o, sizeof want - (size_t)o, "Z");
        assert_string_equal(text, want);
        assert_int_equal(time_parse(text, text + strlen(text), &ms), 0);
        assert_true(ms == t);
    }
    char far[NUM_TIME_MAX_LEN];
    assert_in_range(time_write(far, INT64_MAX), 1, NUM_TIME_MAX_LEN);
    assert_in_range(time_write(far, INT64_MIN), 1, NUM_TIME_MAX_LEN);
}
static void durations_and_sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
        const char *back;
    } d[] = { { "250ms", 250, "250ms" }, { "10s", 10000, "10s" },  { "5m", 300000, "5m" },
              { "2h", 7200000, "2h" },   { "1d", 86400000, "1d" }, { "1.5s", 1500, "1500ms" },
              { "0s", 0, "0s" },         { "90s", 90000, "90s" },  { "24h", 86400000, "1d" } };
    static const struct {
        const char *text;
        int64_t bytes;
    } s[] = { { "64KiB", 65536 }, { "10MB", 10000000 }, { "1GiB", 1073741824 },
              { "17", 17 },       { "1.5KiB", 1536 },   { "5B", 5 } };
    static const char *const bad[] = { "",
                                       "s",
                                       "10",
                                       "10 s",
                                       "-1s",
                                       "1.s",
                                       ".5s",
                                       "1.5ms",
                                       "1w",
                                       "99999999999999999999s",
                                       "9223372036854775807d",
                                       "1e3s" };
    int64_t v;
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) {
        char text[64];
        assert_int_equal(duration_parse(d[i].text, d[i].text + strlen(d[i].text), &v), 0);
        assert_int_equal(v, d[i].ms);
        text[duration_write(text, v)] = 0;
        assert_string_equal(text, d[i].back);
    }
    for (size_t i = 0; i < sizeof s / sizeof *s; i++) {
        assert_int_equal(size_parse(s[i].text, s[i].text + strlen(s[i].text), &v), 0);
        assert_int_equal(v, s[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(duration_parse(bad[i], bad[i] + strlen(bad[i]), &v), -1);
    const char *unknown = "10XB";
    assert_int_equal(size_parse(unknown, unknown + 4, &v), -1);
}

/* ---- UTF-8 ---- */

/* Decodes and encodes again: valid iff every sequence is the shortest form of a scalar value. */
static bool slow_utf8(const unsigned char *p, size_t len) {
    for (size_t i = 0; i < len;) {
        unsigned c = p[i];
        int n = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
        if (n == 0 || i + (size_t)n > len)
            return false;
        if (n > 1)
            c &= 0xffu >> (n + 1);
        for (int k = 1; k < n; k++) {
            if (p[i + (size_t)k] >> 6 != 2)
                return false;
            c = c << 6 | (p[i + (size_t)k] & 0x3f);
        }
        static const unsigned least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return false;
        i += (size_t)n;
    }
    return true;
}
static void utf8(void **state) {
    (void)state;
    unsigned char text[300];
    int valid = 0;
    for (int n = test_scale(300000); n > 0; n--) {
        size_t len = test_random(&rnd) % sizeof text, i = 0;
        memset(text, 'a', sizeof text);
        for (int k = (int)(test_random(&rnd) % 4); k >= 0 && len > 8; k--) {
            static const char *const bits[] = { "\xc3\xa4",     "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                                "\xed\xa0\x80", "\xc0\x80",     "\xf4\x90\x80\x80",
                                                "\xef\xbf\xbf", "\x80",         "\xe0\x9f\xbf",
                                                "\xff" };
            const char *b = bits[test_random(&rnd) % (n % 2 ? 3 : 10)];
            i = test_random(&rnd) % (len - 4);
            memcpy(text + i, b, strlen(b));
        }
        if (n % 16 == 0)
            for (i = 0; i < len && i < 8; i++)
                text[i] = (unsigned char)test_random(&rnd);
        bool want = slow_utf8(text, len);
        valid += want;
        if (utf8_valid((char *)text, (char *)text + len) != want)
            fail_msg("seed %" PRIu64 ": UTF-8 verdict should be %d", seed, want);
    }
    assert_true(valid > 100); /* both verdicts occur */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_right),
        cmocka_unit_test(reads_as_strtod),
        cmocka_unit_test(reads_bit_patterns_and_halves),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(grammar),
        cmocka_unit_test(writes_shortest),
        cmocka_unit_test(written_forms),
        cmocka_unit_test(writes_integers),
        cmocka_unit_test(times),
        cmocka_unit_test(durations_and_sizes),
        cmocka_unit_test(utf8),
    };
    return cmocka_run_group_tests_name("num", tests, setup, NULL);
}
