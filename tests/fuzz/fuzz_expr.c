/* Expressions: any text compiles or is refused; what compiles gives well-formed columns, the same
 * whether rows are selected or not and whether the text is the user's or the canonical one, and the
 * canonical text is its own canonical text. */
#include "engine/expr.h"
#include "engine/num.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS = 70 };
static const struct field fields[] = {
    { "b", TYPE_BOOL, 0 },        { "i", TYPE_I64, 0 },     { "j", TYPE_I64, 0 },
    { "x", TYPE_F64, 0 },         { "y", TYPE_F64, 0 },     { "s", TYPE_STR, 0 },
    { "t", TYPE_STR, 0 },         { "raw", TYPE_BYTES, 0 }, { "v", TYPE_VEC, 4 },
    { "two words", TYPE_I64, 0 },
};
enum { FIELDS = sizeof fields / sizeof *fields };
static const struct schema schema = { FIELDS, fields };

static void check(bool ok) {
    if (!ok)
        abort();
}

static struct batch *rows(void) {
    static struct column cols[FIELDS];
    static uint8_t b[ROWS];
    static int64_t i[ROWS], j[ROWS], time[ROWS];
    static double x[ROWS], y[ROWS];
    static struct span s[ROWS], t[ROWS];
    static float v[ROWS * 4];
    static uint64_t nulls[2] = { 0x8000000000000a11, 0x21 };
    static const char *const words[] = { "", "a", "%b_", "12", "-1.5e3", "true", "h\xc3\xa9llo  " };
    static const int64_t ints[] = { 0, 1, -1, INT64_MAX, INT64_MIN, 86400000, 7 };
    static const double reals[] = { 0, -0.0, 1.5, -1e300, 1e300, 5e-324, 9.3e18 };
    static struct batch out = {
        .schema = &schema, .cols = cols, .rows = ROWS, .n = ROWS, .time = time
    };
    for (int r = 0; r < ROWS; r++) {
        b[r] = r & 1;
        i[r] = ints[r % 7];
        j[r] = ints[r / 7 % 7];
        time[r] = ints[r % 5];
        x[r] = reals[r % 7];
        y[r] = reals[r / 7 % 7];
        s[r] = (struct span){ words[r % 7], (uint32_t)strlen(words[r % 7]), 0 };
        t[r] = (struct span){ words[r / 7 % 7], (uint32_t)strlen(words[r / 7 % 7]), 0 };
    }
    const void *p[FIELDS] = { b, i, j, x, y, s, t, s, v, j };
    for (int f = 0; f < FIELDS; f++)
        cols[f] = (struct column){ .p = p[f], .nulls = f % 3 == 1 ? NULL : nulls };
    return &out;
}

static bool same(enum type t, const struct column *a, const struct column *b, uint32_t r) {
    if (column_null(a, r) || column_null(b, r))
        return column_null(a, r) == column_null(b, r);
    switch (t) {
    case TYPE_BOOL:
    case TYPE_COUNT:
        return a->b[r] == b->b[r];
    case TYPE_I64:
    case TYPE_F64:
        return a->i64[r] == b->i64[r];
    default:
        return a->str[r].len == b->str[r].len &&
               (!a->str[r].len || !memcmp(a->str[r].p, b->str[r].p, a->str[r].len));
    }
}
static void well_formed(enum type t, const struct column *c, uint32_t r) {
    if (column_null(c, r))
        return;
    if (t == TYPE_BOOL)
        check(c->b[r] <= 1);
    else if (t == TYPE_F64)
        check(isfinite(c->f64[r]));
    else if (t == TYPE_STR)
        check(utf8_valid(c->str[r].p, c->str[r].p + c->str[r].len));
}

static void evaluate(struct arena *a, const struct expr *x, const struct expr *canonical) {
    static const uint16_t sel[] = { 0, 3, 4, 17, 63, 64, 69 };
    struct batch *b = rows();
    uint64_t n1 = 0, n2 = 0;
    uint16_t hits[ROWS];
    enum type t = expr_type(x);
    struct column all = expr_eval(x, a, b, &n1), again = expr_eval(canonical, a, b, &n2);
    check(expr_type(canonical) == t);
    for (uint32_t r = 0; r < ROWS; r++) {
        well_formed(t, &all, r);
        check(same(t, &all, &again, r));
    }
    if (t == TYPE_BOOL || t == TYPE_COUNT) {
        uint32_t n = expr_select(x, a, b, hits, &n1), k = 0;
        for (uint32_t r = 0; r < ROWS; r++)
            k += !column_null(&all, r) && all.b[r];
        check(n == k);
    }
    struct batch some = *b;
    some.sel = sel;
    some.n = sizeof sel / sizeof *sel;
    struct column part = expr_eval(x, a, &some, &n2);
    for (uint32_t k = 0; k < some.n; k++)
        check(same(t, &all, &part, sel[k]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    const char *text = (const char *)data;
    struct arena a = { 0 };
    struct err e = ERR_INIT;
    struct agg g;
    const char *canon = expr_canonical(&a, text, len, &e);
    const struct expr *x = expr_compile(&a, text, len, &schema, EXPR_HAS_TIME, &e);
    check(canon || !x); /* what compiles has a canonical text */
    check(x || (e.code == ERR_INPUT && e.offset >= 0 && (size_t)e.offset <= len));
    if (canon && strlen(canon) <= EXPR_TEXT_MAX) {
        const char *twice = expr_canonical(&a, canon, strlen(canon), &e);
        check(twice && !strcmp(canon, twice));
        const struct expr *y = expr_compile(&a, canon, strlen(canon), &schema, EXPR_HAS_TIME, &e);
        check(y || !x);
        if (x)
            evaluate(&a, x, y);
    }
    agg_canonical(&a, text, len, &e);
    agg_compile(&a, text, len, &schema, 0, &g, &e);
    arena_free(&a);
    return 0;
}
