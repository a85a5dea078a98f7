/* Times, durations and sizes as text; see num.h. */
#include "engine/num.h"
#include <string.h>

/* ---- times ---- */

/* Days since 1970-01-01 of a civil date in the proleptic Gregorian calendar and back, by eras of
 * 400 years beginning on 1 March: H. Hinnant, "chrono-compatible low-level date algorithms". */
static int64_t days_of(int64_t y, int m, int d) {
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}
static void civil_of(int64_t days, int64_t *y, int *m, int *d) {
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097, doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *d = (int)(doy - (153 * mp + 2) / 5 + 1);
    *m = (int)(mp < 10 ? mp + 3 : mp - 9);
    *y = yoe + era * 400 + (*m <= 2);
}
static int days_in(int64_t y, int m) {
    static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    return days[m - 1] + (m == 2 && leap);
}

/* Exactly n digits at *p, then *p is behind them. -1 if there are none. */
static int fixed(const char **p, const char *end, int n) {
    int v = 0;
    if (end - *p < n)
        return -1;
    for (int i = 0; i < n; i++) {
        unsigned d = (unsigned char)(*p)[i] - '0';
        if (d > 9)
            return -1;
        v = v * 10 + (int)d;
    }
    *p += n;
    return v;
}
static bool mark(const char **p, const char *end, char c) {
    if (*p == end || **p != c)
        return false;
    ++*p;
    return true;
}
/* ".fff…" -> ms; 0 when there is none, -1 when malformed. */
static int fraction(const char **p, const char *end) {
    if (!mark(p, end, '.'))
        return 0;
    int ms = 0, n = 0;
    for (; *p < end && (unsigned char)(**p - '0') < 10; ++*p, n++)
        if (n < 3)
            ms = ms * 10 + (**p - '0');
    if (n == 0)
        return -1;
    for (; n < 3; n++)
        ms *= 10;
    return ms;
}
/* "Z", "+hh:mm", "" -> minutes east of UTC; -10000 when malformed. */
static int zone(const char **p, const char *end) {
    if (*p == end || mark(p, end, 'Z') || mark(p, end, 'z'))
        return 0;
    int sign = **p == '-' ? -1 : 1;
    if (!mark(p, end, '+') && !mark(p, end, '-'))
        return -10000;
    int h = fixed(p, end, 2);
    if (h < 0 || h > 23 || !mark(p, end, ':'))
        return -10000;
    int m = fixed(p, end, 2);
    return m < 0 || m > 59 ? -10000 : sign * (h * 60 + m);
}

int time_parse(const char *p, const char *end, int64_t *ms) {
    int y = fixed(&p, end, 4);
    if (y < 0 || !mark(&p, end, '-'))
        return -1;
    int mo = fixed(&p, end, 2);
    if (mo < 1 || mo > 12 || !mark(&p, end, '-'))
        return -1;
    int d = fixed(&p, end, 2);
    if (d < 1 || d > days_in(y, mo))
        return -1;
    if (!mark(&p, end, 'T') && !mark(&p, end, ' ') && !mark(&p, end, 't'))
        return -1;
    int h = fixed(&p, end, 2);
    if (h < 0 || h > 23 || !mark(&p, end, ':'))
        return -1;
    int mi = fixed(&p, end, 2);
    if (mi < 0 || mi > 59 || !mark(&p, end, ':'))
        return -1;
    int s = fixed(&p, end, 2); /* 60: a leap second counts as the first of the next minute */
    if (s < 0 || s > 60)
        return -1;
    int f = fraction(&p, end), z = zone(&p, end);
    if (f < 0 || z == -10000 || p != end)
        return -1;
    *ms = ((days_of(y, mo, d) * 24 + h) * 60 + mi - z) * 60000 + s * 1000 + f;
    return 0;
}

static char *put2(char *o, int v) {
    o[0] = (char)('0' + v / 10);
    o[1] = (char)('0' + v % 10);
    return o + 2;
}
int time_write(char *out, int64_t ms) {
    int64_t days = ms / 86400000, rest = ms % 86400000, y;
    if (rest < 0) {
        rest += 86400000;
        days--;
    }
    int mo, d, t = (int)rest;
    civil_of(days, &y, &mo, &d);
    char *o = out;
    if (y < 0) { /* outside RFC 3339, but readable */
        *o++ = '-';
        y = -y;
    }
    if (y > 9999) {
        char digits[NUM_I64_MAX_LEN];
        int n = num_write_i64(digits, y);
        memcpy(o, digits, (size_t)n);
        o += n;
    } else {
        o = put2(put2(o, (int)y / 100), (int)y % 100);
    }
    *o++ = '-';
    o = put2(o, mo);
    *o++ = '-';
    o = put2(o, d);
    *o++ = 'T';
    o = put2(o, t / 3600000);
    *o++ = ':';
    o = put2(o, t / 60000 % 60);
    *o++ = ':';
    o = put2(o, t / 1000 % 60);
    if (t % 1000) {
        *o++ = '.';
        *o++ = (char)('0' + t % 1000 / 100);
        o = put2(o, t % 100);
    }
    *o++ = 'Z';
    return (int)(o - out);
}

/* ---- durations and sizes ---- */

const struct unit duration_units[] = { { "ms", 1 },      { "s", 1000 },     { "m", 60000 },
                                       { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 } };
const struct unit size_units[] = {
    { "", 1 },
    { "B", 1 },
    { "KiB", (int64_t)1 << 10 },
    { "MiB", (int64_t)1 << 20 },
    { "GiB", (int64_t)1 << 30 },
    { "TiB", (int64_t)1 << 40 },
    { "KB", 1000 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", 1000000000000 },
    { NULL, 0 },
};

/* "DIGITS[.DIGITS]UNIT" as a whole number of the smallest unit; what is finer is an error. */
static int parse_unit(const char *p, const char *end, const struct unit *units, int64_t *out) {
    const char *from = p;
    int64_t whole = 0, part = 0, scale = 1;
    for (; p < end && (unsigned char)(*p - '0') < 10; p++) {
        if (whole > (INT64_MAX - 9) / 10)
            return -1;
        whole = whole * 10 + (*p - '0');
    }
    if (p == from)
        return -1;
    if (p < end && *p == '.') {
        from = ++p;
        for (; p < end && (unsigned char)(*p - '0') < 10; p++) {
            if (scale >= 1000000000)
                return -1;
            part = part * 10 + (*p - '0');
            scale *= 10;
        }
        if (p == from)
            return -1;
    }
    for (const struct unit *u = units; u->word; u++) {
        if (strlen(u->word) != (size_t)(end - p) || memcmp(u->word, p, (size_t)(end - p)) != 0)
            continue;
        __int128 v = (__int128)whole * u->factor + (__int128)part * u->factor / scale;
        if (v > INT64_MAX || (__int128)part * u->factor % scale)
            return -1;
        *out = (int64_t)v;
        return 0;
    }
    return -1;
}

int duration_parse(const char *p, const char *end, int64_t *ms) {
    return parse_unit(p, end, duration_units, ms);
}
int duration_write(char *out, int64_t ms) {
    const struct unit *u = duration_units + 4;
    while (ms == 0 ? u->factor != 1000 : ms % u->factor != 0)
        u--;
    int n = num_write_i64(out, ms / u->factor);
    size_t len = strlen(u->word);
    memcpy(out + n, u->word, len);
    return n + (int)len;
}
int size_parse(const char *p, const char *end, int64_t *bytes) {
    return parse_unit(p, end, size_units, bytes);
}
