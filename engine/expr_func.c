/* Functions of expressions over columns: mathematics, casts, text, time. */
#include "engine/expr_node.h"
#include "engine/num.h"
#include <math.h>
#include <strings.h>

/* ---- numbers ---- */

/* Halves away from zero. Beyond 2^53 in units of the last digit a double has no digits to round. */
static double round_digits(double x, int64_t digits) {
    static const double tens[] = { 1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
    double ten = tens[digits < 0 ? 0 : digits > 15 ? 15 : digits];
    double scaled = x * ten;
    return fabs(scaled) < 0x1p53 ? round(scaled) / ten : x;
}
static const uint64_t *eval_math(struct run *r, int op, const struct mask *m,
                                 const struct val *const *v, int n, double *restrict o) {
#define EACH(E)                                                                                    \
    MASK_EACH(m, const double x = val_f64(v[0], i); o[i] = E;);                                    \
    break
    switch (op) {
    case X_ABS:
        EACH(fabs(x));
    case X_FLOOR:
        EACH(floor(x));
    case X_CEIL:
        EACH(ceil(x));
    case X_SQRT:
        EACH(sqrt(x));
    case X_EXP:
        EACH(exp(x));
    case X_LN:
        EACH(log(x));
    case X_LOG10:
        EACH(log10(x));
    case X_SIN:
        EACH(sin(x));
    case X_COS:
        EACH(cos(x));
    case X_POW:
        EACH(pow(x, val_f64(v[1], i)));
    default:
        EACH(n == 1 ? round(x) : round_digits(x, val_i64(v[1], i)));
    }
#undef EACH
    return run_finite(r, m, v, n, o);
}
/* abs, and round, floor, ceil, which leave an i64 alone. */
static const uint64_t *eval_int(struct run *r, int op, const struct mask *m,
                                const struct val *const *v, int n, int64_t *restrict o) {
    uint64_t *bits = run_nulls(r, v, n);
    if (op == X_ABS)
        MASK_EACH(m, const int64_t x = val_i64(v[0], i); if (x == INT64_MIN) run_arose(r, bits, i);
                  o[i] = x < 0 ? (int64_t)(0 - (uint64_t)x) : x;);
    else
        MASK_EACH(m, o[i] = val_i64(v[0], i););
    return bits;
}

static bool precedes(const struct val *a, const struct val *b, uint32_t i) {
    switch (a->type) {
    case TYPE_BOOL:
        return val_bool(a, i) < val_bool(b, i);
    case TYPE_I64:
        return val_i64(a, i) < val_i64(b, i);
    case TYPE_F64:
        return val_f64(a, i) < val_f64(b, i);
    default:
        return span_cmp(val_str(a, i), val_str(b, i)) < 0;
    }
}
/* min and max: of equal values the first. */
static const uint64_t *eval_extreme(struct run *r, int op, int type, const struct mask *m,
                                    const struct val *const *v, int n, void *out) {
    const uint64_t *nulls = run_shared_nulls(r, v, n);
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(nulls, i))
            continue;
        const struct val *best = v[0];
        for (int a = 1; a < n; a++)
            if (op == X_LEAST ? precedes(v[a], best, i) : precedes(best, v[a], i))
                best = v[a];
        if (type == TYPE_BOOL)
            ((uint8_t *)out)[i] = val_bool(best, i);
        else if (type == TYPE_I64 || type == TYPE_F64)
            ((int64_t *)out)[i] = val_i64(best, i);
        else
            ((struct span *)out)[i] = val_str(best, i);
    }
    return nulls;
}

/* ---- casts ---- */

static const uint64_t *cast_f64(struct run *r, const struct mask *m, const struct val *const *v,
                                double *restrict o) {
    if (v[0]->type == TYPE_I64)
        MASK_EACH(m, o[i] = (double)val_i64(v[0], i););
    if (v[0]->type == TYPE_BOOL)
        MASK_EACH(m, o[i] = val_bool(v[0], i) & 1;);
    if (v[0]->type != TYPE_STR)
        return run_shared_nulls(r, v, 1);
    uint64_t *bits = run_nulls(r, v, 1);
    MASK_EACH(m, if (bit_get(bits, i)) continue; struct span s = val_str(v[0], i);
              if (num_f64_whole(s.p, s.p + s.len, &o[i]) || !isfinite(o[i]))
                  run_arose(r, bits, i););
    return bits;
}
static const uint64_t *cast_i64(struct run *r, const struct mask *m, const struct val *const *v,
                                int64_t *restrict o) {
    if (v[0]->type == TYPE_BOOL) {
        MASK_EACH(m, o[i] = val_bool(v[0], i) & 1;);
        return run_shared_nulls(r, v, 1);
    }
    uint64_t *bits = run_nulls(r, v, 1);
    if (v[0]->type == TYPE_F64)
        MASK_EACH(m, if (bit_get(bits, i)) continue; const double x = val_f64(v[0], i);
                  if (x >= -0x1p63 && x < 0x1p63) o[i] = (int64_t)x; else run_arose(r, bits, i););
    else
        MASK_EACH(m, if (bit_get(bits, i)) continue; struct span s = val_str(v[0], i);
                  if (num_i64_whole(s.p, s.p + s.len, &o[i])) run_arose(r, bits, i););
    return bits;
}
static const uint64_t *cast_bool(struct run *r, const struct mask *m, const struct val *const *v,
                                 uint8_t *restrict o) {
    if (v[0]->type == TYPE_I64)
        MASK_EACH(m, o[i] = val_i64(v[0], i) != 0;);
    if (v[0]->type == TYPE_F64)
        MASK_EACH(m, o[i] = val_f64(v[0], i) != 0;);
    if (v[0]->type != TYPE_STR)
        return run_shared_nulls(r, v, 1);
    uint64_t *bits = run_nulls(r, v, 1);
    MASK_EACH(m, if (bit_get(bits, i)) continue; struct span s = val_str(v[0], i);
              o[i] = s.len == 4 && !strncasecmp(s.p, "true", 4);
              if (!o[i] && !(s.len == 5 && !strncasecmp(s.p, "false", 5))) run_arose(r, bits, i););
    return bits;
}
/* Numbers in the shortest form that reads back the same. */
static const uint64_t *cast_str(struct run *r, const struct mask *m, const struct val *const *v,
                                struct span *o) {
    const uint64_t *nulls = run_shared_nulls(r, v, 1);
    const struct val *x = v[0];
    if (x->type == TYPE_BYTES) {
        uint64_t *bits = run_nulls(r, v, 1);
        MASK_EACH(m, if (bit_get(bits, i)) continue; o[i] = val_str(x, i);
                  if (!utf8_valid(o[i].p, o[i].p + o[i].len)) run_arose(r, bits, i););
        return bits;
    }
    char *to = arena_alloc(r->a, (size_t)m->n * NUM_F64_MAX_LEN);
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(nulls, i))
            continue;
        int n;
        if (x->type == TYPE_BOOL)
            memcpy(to, val_bool(x, i) & 1 ? "true" : "false",
                   (size_t)(n = 5 - (val_bool(x, i) & 1)));
        else
            n = x->type == TYPE_I64 ? num_write_i64(to, val_i64(x, i))
                                    : num_write_f64(to, val_f64(x, i));
        o[i] = (struct span){ to, (uint32_t)n, 0 };
        to += n;
    }
    return nulls;
}
static const uint64_t *eval_cast(struct run *r, int type, const struct mask *m,
                                 const struct val *const *v, void *out) {
    switch (type) {
    case TYPE_F64:
        return cast_f64(r, m, v, out);
    case TYPE_I64:
        return cast_i64(r, m, v, out);
    case TYPE_BOOL:
        return cast_bool(r, m, v, out);
    case TYPE_STR:
        return cast_str(r, m, v, out);
    default: {
        struct span *o = out;
        MASK_EACH(m, o[i] = val_str(v[0], i););
        return run_shared_nulls(r, v, 1);
    }
    }
}

/* ---- text ---- */

static inline bool continuation(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}
static int64_t characters(struct span s) {
    int64_t n = 0;
    for (uint32_t i = 0; i < s.len; i++)
        n += !continuation(s.p[i]);
    return n;
}
/* Byte of character `at` (counted from 0), or the length. */
static uint32_t char_byte(struct span s, int64_t at) {
    uint32_t i = 0;
    while (i < s.len && at > 0) {
        for (i++; i < s.len && continuation(s.p[i]);)
            i++;
        at--;
    }
    return i;
}
/* n characters (or all) from `start` in the manner of SQLite: places before the first character, or
 * the place 0, count towards n. */
static struct span substring(struct span s, int64_t start, int64_t n, bool all) {
    if (n > 0 && start < 0) {
        start += characters(s);
        if (start < 0) {
            n += all ? 0 : start;
            start = 0;
        }
    } else if (n > 0) {
        n -= !start && !all;
        start -= start > 0;
    }
    if (n <= 0)
        return (struct span){ s.p, 0, 0 };
    uint32_t lo = char_byte(s, start);
    struct span rest = { s.p + lo, s.len - lo, 0 };
    return (struct span){ rest.p, n >= rest.len ? rest.len : char_byte(rest, n), 0 };
}
static struct span trimmed(struct span s, int op) {
    if (op != X_RTRIM)
        while (s.len && *s.p == ' ')
            s.p++, s.len--;
    if (op != X_LTRIM)
        while (s.len && s.p[s.len - 1] == ' ')
            s.len--;
    return s;
}
static bool tested(struct span s, struct span t, int op) {
    if (!t.len)
        return true;
    if (t.len > s.len)
        return false;
    if (op == X_STARTS_WITH)
        return !memcmp(s.p, t.p, t.len);
    if (op == X_ENDS_WITH)
        return !memcmp(s.p + s.len - t.len, t.p, t.len);
    return memmem(s.p, s.len, t.p, t.len) != NULL;
}
/* % any run, _ one character; case counts. On a mismatch only the last % is tried again: what an
 * earlier one matched need not change. */
static bool like(struct span s, struct span p) {
    uint32_t i = 0, k = 0, star = UINT32_MAX, mark = 0;
    while (i < s.len) {
        if (k < p.len && p.p[k] == '%') {
            star = ++k;
            mark = i;
        } else if (k < p.len && (p.p[k] == '_' || p.p[k] == s.p[i])) {
            bool any = p.p[k++] == '_';
            for (i++; any && i < s.len && continuation(s.p[i]);)
                i++;
        } else if (star != UINT32_MAX) {
            k = star;
            for (mark++; mark < s.len && continuation(s.p[mark]);)
                mark++;
            i = mark;
        } else
            return false;
    }
    while (k < p.len && p.p[k] == '%')
        k++;
    return k == p.len;
}

static const uint64_t *eval_case_of(struct run *r, int op, const struct mask *m,
                                    const struct val *const *v, struct span *o) {
    const uint64_t *nulls = run_shared_nulls(r, v, 1);
    size_t total = 0;
    MASK_EACH(m, if (!bit_get(nulls, i)) total += val_str(v[0], i).len;);
    char *to = arena_alloc(r->a, total);
    const char lo = op == X_LOWER ? 'A' : 'a';
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(nulls, i))
            continue;
        struct span s = val_str(v[0], i);
        for (uint32_t c = 0; c < s.len; c++)
            to[c] = (unsigned char)(s.p[c] - lo) < 26 ? s.p[c] ^ 32 : s.p[c];
        o[i] = (struct span){ to, s.len, 0 };
        to += s.len;
    }
    return nulls;
}
static const uint64_t *eval_concat(struct run *r, const struct mask *m, const struct val *const *v,
                                   int n, struct span *o) {
    uint64_t *bits = run_nulls(r, v, n);
    size_t total = 0;
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        size_t len = 0;
        if (bit_get(bits, i))
            continue;
        for (int a = 0; a < n; a++)
            len += val_str(v[a], i).len;
        if (len > EXPR_STR_MAX)
            run_arose(r, bits, i);
        else
            total += len;
    }
    char *to = arena_alloc(r->a, total);
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(bits, i))
            continue;
        o[i] = (struct span){ to, 0, 0 };
        for (int a = 0; a < n; a++) {
            struct span s = val_str(v[a], i);
            if (s.len)
                memcpy(to, s.p, s.len);
            to += s.len;
            o[i].len += s.len;
        }
    }
    return bits;
}
static const uint64_t *eval_text(struct run *r, int op, const struct mask *m,
                                 const struct val *const *v, int n, void *out) {
    const uint64_t *nulls = run_shared_nulls(r, v, n);
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(nulls, i))
            continue;
        struct span s = val_str(v[0], i);
        if (op == X_LENGTH)
            ((int64_t *)out)[i] = v[0]->type == TYPE_BYTES ? (int64_t)s.len : characters(s);
        else if (op == X_SUBSTR)
            ((struct span *)out)[i] =
                substring(s, val_i64(v[1], i), n == 3 ? val_i64(v[2], i) : INT64_MAX, n == 2);
        else if (op == X_LIKE)
            ((uint8_t *)out)[i] = like(s, val_str(v[1], i));
        else if (op == X_TRIM || op == X_LTRIM || op == X_RTRIM)
            ((struct span *)out)[i] = trimmed(s, op);
        else
            ((uint8_t *)out)[i] = tested(s, val_str(v[1], i), op);
    }
    return nulls;
}

/* ---- time ---- */

static const int64_t day_ms = 86400000;
static const int64_t time_lo = -62167219200000; /* 0000-01-01T00:00:00Z */
static const int64_t time_hi = 253402300799999; /* 9999-12-31T23:59:59.999Z */

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}
/* Proleptic Gregorian date of a day since 1970, from H. Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms" (civil_from_days). */
static void civil(int64_t days, int64_t *year, int64_t *month, int64_t *day) {
    days += 719468;
    int64_t era = floor_div(days, 146097), doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *day = doy - (153 * mp + 2) / 5 + 1;
    *month = mp < 10 ? mp + 3 : mp - 9;
    *year = yoe + era * 400 + (*month <= 2);
}
static int64_t time_part(int op, int64_t t) {
    int64_t days = floor_div(t, day_ms), ms = t % day_ms, y, mo, d;
    ms += ms < 0 ? day_ms : 0;
    switch (op) {
    case X_HOUR:
        return ms / 3600000;
    case X_MINUTE:
        return ms / 60000 % 60;
    case X_SECOND:
        return ms / 1000 % 60;
    case X_MILLISECOND:
        return ms % 1000;
    case X_WEEKDAY:
        return (days % 7 + 7 + 3) % 7 + 1; /* 1970-01-01 was a Thursday */
    default:
        civil(days, &y, &mo, &d);
        return op == X_YEAR ? y : op == X_MONTH ? mo : d;
    }
}
static const uint64_t *eval_time_part(struct run *r, int op, const struct mask *m,
                                      const struct val *const *v, int64_t *o) {
    const uint64_t *nulls = run_shared_nulls(r, v, 1);
    MASK_EACH(m, if (!bit_get(nulls, i)) o[i] = time_part(op, val_i64(v[0], i)););
    return nulls;
}
static const uint64_t *eval_time_floor(struct run *r, const struct mask *m,
                                       const struct val *const *v, int64_t *o) {
    uint64_t *bits = run_nulls(r, v, 2);
    MASK_EACH(m, if (bit_get(bits, i)) continue; int64_t w = val_i64(v[1], i);
              if (__builtin_mul_overflow(floor_div(val_i64(v[0], i), w), w, &o[i]))
                  run_arose(r, bits, i););
    return bits;
}
static const uint64_t *eval_format_time(struct run *r, const struct mask *m,
                                        const struct val *const *v, struct span *o) {
    uint64_t *bits = run_nulls(r, v, 1);
    char *to = arena_alloc(r->a, (size_t)m->n * NUM_TIME_MAX_LEN);
    for (uint32_t k = 0; k < m->n; k++) {
        uint32_t i = m->sel ? m->sel[k] : k;
        if (bit_get(bits, i))
            continue;
        int64_t t = val_i64(v[0], i);
        if (t < time_lo || t > time_hi) {
            run_arose(r, bits, i);
            continue;
        }
        int n = time_write(to, t);
        o[i] = (struct span){ to, (uint32_t)n, 0 };
        to += n;
    }
    return bits;
}
static const uint64_t *eval_parse_time(struct run *r, const struct mask *m,
                                       const struct val *const *v, int64_t *o) {
    uint64_t *bits = run_nulls(r, v, 1);
    MASK_EACH(m, if (bit_get(bits, i)) continue; struct span s = val_str(v[0], i);
              if (time_parse(s.p, s.p + s.len, &o[i])) run_arose(r, bits, i););
    return bits;
}

const uint64_t *func_eval(struct run *r, int op, int type, const struct mask *m,
                          const struct val *const *v, int n, void *out) {
    switch (op) {
    case X_CAST:
        return eval_cast(r, type, m, v, out);
    case X_CONCAT:
        return eval_concat(r, m, v, n, out);
    case X_LOWER:
    case X_UPPER:
        return eval_case_of(r, op, m, v, out);
    case X_LEAST:
    case X_GREATEST:
        return eval_extreme(r, op, type, m, v, n, out);
    case X_FORMAT_TIME:
        return eval_format_time(r, m, v, out);
    case X_PARSE_TIME:
        return eval_parse_time(r, m, v, out);
    case X_TIME_FLOOR:
        return eval_time_floor(r, m, v, out);
    case X_LIKE:
    case X_LENGTH:
    case X_SUBSTR:
    case X_STARTS_WITH:
    case X_ENDS_WITH:
    case X_CONTAINS:
    case X_TRIM:
    case X_LTRIM:
    case X_RTRIM:
        return eval_text(r, op, m, v, n, out);
    default:
        if (op >= X_YEAR && op <= X_WEEKDAY)
            return eval_time_part(r, op, m, v, out);
        return type == TYPE_F64 ? eval_math(r, op, m, v, n, out) : eval_int(r, op, m, v, n, out);
    }
}
