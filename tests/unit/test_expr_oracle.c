/* Expressions against two oracles: SQLite, for the semantics that coincide, and a naive evaluator
 * of one row at a time that works on the generator's own tree. */
#include "engine/expr.h"
#include "engine/num.h"
#include "tests/unit/harness.h"
#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct field fields[] = {
    { "b", TYPE_BOOL, 0 },    { "c", TYPE_BOOL, 0 }, { "i", TYPE_I64, 0 },
    { "j", TYPE_I64, 0 },     { "x", TYPE_F64, 0 },  { "y", TYPE_F64, 0 },
    { "s", TYPE_STR, 0 },     { "t", TYPE_STR, 0 },  { "select it", TYPE_I64, 0 },
    { "raw", TYPE_BYTES, 0 }, { "v", TYPE_VEC, 4 },
};
static const struct schema schema = { sizeof fields / sizeof *fields, fields };

/* ---- random trees ---- */

enum kind {
    K_CONST,
    K_FIELD,
    K_ARITH,
    K_NEG,
    K_CMP,
    K_LOGIC,
    K_NOT,
    K_IS_NULL,
    K_IN,
    K_BETWEEN,
    K_LIKE,
    K_TEST, /* starts_with, ends_with, contains */
    K_CASE,
    K_COALESCE,
    K_NULLIF,
    K_EXTREME,
    K_MATH,
    K_CAST,
    K_CONCAT,
    K_STR, /* lower, upper, trim, ltrim, rtrim */
    K_SUBSTR,
    K_LENGTH,
};
struct nv { /* value of a row */
    bool null;
    int64_t i; /* also a bool */
    double f;
    struct span s;
};
struct tree {
    enum kind kind;
    enum type type;
    int op, n;
    struct tree *k[5];
    struct nv c;
};
struct gen {
    uint64_t seed, first; /* first: of this round, what a failure names */
    struct arena a;
    bool sqlite; /* only what SQLite means alike */
};
static uint32_t rnd(struct gen *g, uint32_t n) {
    return (uint32_t)(test_random(&g->seed) >> 33) % n;
}
static const char *const words[] = { "",     "a",   "ab", "Abc",  "aé_b",
                                     "  x ", "%a_", "zz", "it's", "日本b" };
static const double reals[] = { 0, -0.0, 0.5, 1, -1.5, 2.25, 1e9, -3e-7, 7, 1e300 };
static const int64_t ints[] = { 0, 1, -1, 2, 3, -7, 10, 1000, 7, 5 };
static const int64_t big_ints[] = { INT64_MAX, INT64_MIN, (int64_t)1 << 53,
                                    ((int64_t)1 << 53) + 1 };

static struct nv value(struct gen *g, enum type t) {
    struct nv v = { .null = rnd(g, 8) == 0 };
    v.i = t == TYPE_BOOL                 ? rnd(g, 2)
          : !g->sqlite && rnd(g, 5) == 0 ? big_ints[rnd(g, 4)]
                                         : ints[rnd(g, 10)];
    v.f = rnd(g, 2) ? reals[rnd(g, 10)] : (double)(int)(rnd(g, 4000) - 2000) / 16;
    const char *w = words[rnd(g, 10)];
    v.s = (struct span){ w, (uint32_t)strlen(w), 0 };
    return v;
}

static struct tree *grow(struct gen *g, enum type t, int depth);
static struct tree *leaf(struct gen *g, enum type t) {
    struct tree *x = arena_zalloc(&g->a, sizeof *x);
    x->type = t;
    x->kind = rnd(g, 3) ? K_FIELD : K_CONST;
    x->op = t == TYPE_BOOL ? 0 : t == TYPE_I64 ? 2 : t == TYPE_F64 ? 4 : 6;
    x->op += (int)rnd(g, 2);
    x->c = value(g, t);
    return x;
}
static const enum type scalar[] = { TYPE_BOOL, TYPE_I64, TYPE_F64, TYPE_STR };
static void kids(struct gen *g, struct tree *x, int n, enum type t, int depth) {
    for (int i = 0; i < n; i++)
        x->k[x->n++] = grow(g, t, depth);
}
static enum type number(struct gen *g) {
    return rnd(g, 2) ? TYPE_I64 : TYPE_F64;
}
static void grow_bool(struct gen *g, struct tree *x, int d) {
    static const enum kind ks[] = { K_CMP,     K_CMP, K_LOGIC,   K_LOGIC, K_NOT,
                                    K_IS_NULL, K_IN,  K_BETWEEN, K_LIKE,  K_TEST };
    x->kind = ks[rnd(g, 10)];
    x->op = (int)rnd(g, 6);
    enum type t = scalar[rnd(g, 4)];
    switch (x->kind) {
    case K_CMP:
    case K_BETWEEN:
        for (int i = 0; i < (x->kind == K_CMP ? 2 : 3); i++)
            x->k[x->n++] = grow(g, t == TYPE_I64 || t == TYPE_F64 ? number(g) : t, d);
        break;
    case K_LOGIC:
        kids(g, x, 2 + (int)rnd(g, 3), TYPE_BOOL, d);
        break;
    case K_NOT:
        kids(g, x, 1, TYPE_BOOL, d);
        break;
    case K_IS_NULL:
        kids(g, x, 1, t, d);
        break;
    case K_IN:
        kids(g, x, 1, t, d);
        for (int i = 1 + (int)rnd(g, 4); i > 0; i--)
            x->k[x->n++] = rnd(g, 8) ? leaf(g, t) : grow(g, t, d);
        break;
    default:
        kids(g, x, 2, TYPE_STR, d);
    }
}
static void grow_num(struct gen *g, struct tree *x, int d) {
    bool real = x->type == TYPE_F64;
    switch (rnd(g, 6)) {
    case 0:
        x->kind = K_NEG;
        kids(g, x, 1, x->type, d);
        break;
    case 1:
        x->kind = K_MATH;
        x->op = (int)rnd(g, real ? 11 : 1);
        kids(g, x, x->op == 10 ? 2 : 1, x->type, d);
        break;
    case 2:
        x->kind = real ? K_CAST : rnd(g, 2) ? K_LENGTH : K_CAST;
        kids(g, x, 1,
             x->kind == K_LENGTH ? TYPE_STR
             : real              ? TYPE_I64
             : rnd(g, 3)         ? TYPE_F64
                                 : TYPE_BOOL,
             d);
        break;
    default:
        x->kind = K_ARITH;
        x->op = (int)rnd(g, real && g->sqlite ? 4 : 5);
        kids(g, x, 2, x->type, d);
        if (real && rnd(g, 4) == 0)
            x->k[rnd(g, 2)] = grow(g, TYPE_I64, d);
    }
}
static void grow_str(struct gen *g, struct tree *x, int d) {
    switch (rnd(g, 5)) {
    case 0:
        x->kind = K_STR;
        x->op = (int)rnd(g, 5);
        kids(g, x, 1, TYPE_STR, d);
        break;
    case 1:
        x->kind = K_SUBSTR;
        kids(g, x, 1, TYPE_STR, d);
        kids(g, x, 1, TYPE_I64, d);
        if (rnd(g, 2))
            kids(g, x, 1, TYPE_I64, d);
        break;
    case 2:
        x->kind = K_CAST;
        kids(g, x, 1, TYPE_I64, d);
        break;
    default:
        x->kind = K_CONCAT;
        kids(g, x, 2 + (int)rnd(g, 2), TYPE_STR, d);
    }
}
static struct tree *grow(struct gen *g, enum type t, int depth) {
    if (depth <= 0 || rnd(g, 6) == 0)
        return leaf(g, t);
    struct tree *x = arena_zalloc(&g->a, sizeof *x);
    int d = depth - 1;
    x->type = t;
    if (rnd(g, 5) == 0) { /* of any type */
        x->kind = K_CASE + (enum kind)rnd(g, 4);
        x->op = (int)rnd(g, 2);
        if (x->kind == K_CASE) {
            for (int i = 0; i < 1 + x->op; i++) {
                kids(g, x, 1, TYPE_BOOL, d);
                kids(g, x, 1, t, d);
            }
            kids(g, x, 1, t, d);
        } else
            kids(g, x, x->kind == K_NULLIF ? 2 : 2 + (int)rnd(g, 2), t, d);
    } else if (t == TYPE_BOOL)
        grow_bool(g, x, d);
    else if (t == TYPE_STR)
        grow_str(g, x, d);
    else
        grow_num(g, x, d);
    return x;
}

/* ---- trees as text, in our language and in SQLite's ---- */

static const char *const arith[] = { "+", "-", "*", "/", "%" };
static const char *const cmps[] = { "=", "!=", "<", "<=", ">", ">=" };
static const char *const maths[] = { "abs", "floor", "ceil", "round", "sqrt", "exp",
                                     "ln",  "log10", "sin",  "cos",   "pow" };
static const char *const strs[] = { "lower", "upper", "trim", "ltrim", "rtrim" };
static const char *const tests[] = { "starts_with", "ends_with", "contains" };

static void say_const(struct sbuf *o, const struct tree *x, bool sql) {
    static const char *const type_words[] = { "bool", "i64", "f64", "string" };
    char num[40];
    if (x->c.null) {
        sbuf_printf(o, sql ? "null" : "cast(null as %s)", type_words[x->type]);
    } else if (x->type == TYPE_BOOL)
        sbuf_adds(o, x->c.i ? "true" : "FALSE");
    else if (x->type == TYPE_I64)
        sbuf_printf(o, "(%lld)", (long long)x->c.i);
    else if (x->type == TYPE_F64) {
        int n = num_write_f64(num, x->c.f);
        sbuf_printf(o, "(%.*s%s)", n, num,
                    memchr(num, '.', (size_t)n) || memchr(num, 'e', (size_t)n) ? "" : ".0");
    } else {
        sbuf_adds(o, "'");
        for (uint32_t i = 0; i < x->c.s.len; i++)
            sbuf_printf(o, x->c.s.p[i] == '\'' ? "''" : "%c", x->c.s.p[i]);
        sbuf_adds(o, "'");
    }
}

static void say(struct sbuf *o, const struct tree *x, bool sql);
static void say_list(struct sbuf *o, const struct tree *x, bool sql, int from, const char *sep) {
    for (int i = from; i < x->n; i++) {
        if (i > from)
            sbuf_adds(o, sep);
        say(o, x->k[i], sql);
    }
}
static void say_call(struct sbuf *o, const char *name, const struct tree *x, bool sql) {
    sbuf_printf(o, "%s(", name);
    say_list(o, x, sql, 0, ", ");
    sbuf_adds(o, ")");
}
static void say_test(struct sbuf *o, const struct tree *x, bool sql) {
    static const char *const sqls[] = { "(substr(%1,1,length(%2)) = %2)",
                                        "(length(%2) <= length(%1) and "
                                        "substr(%1,length(%1)-length(%2)+1,length(%2)) = %2)",
                                        "(instr(%1,%2) > 0)" };
    if (!sql) {
        say_call(o, tests[x->op % 3], x, false);
        return;
    }
    for (const char *p = sqls[x->op % 3]; *p; p++)
        if (*p == '%')
            say(o, x->k[*++p - '1'], true);
        else
            sbuf_add(o, p, 1);
}
static void say_case(struct sbuf *o, const struct tree *x, bool sql) {
    if (!sql && x->n == 3) {
        say_call(o, "IF", x, false);
        return;
    }
    sbuf_adds(o, "(case ");
    for (int i = 0; i + 1 < x->n; i += 2) {
        sbuf_adds(o, " when ");
        say(o, x->k[i], sql);
        sbuf_adds(o, " THEN ");
        say(o, x->k[i + 1], sql);
    }
    sbuf_adds(o, " else ");
    say(o, x->k[x->n - 1], sql);
    sbuf_adds(o, " end)");
}
static void say_infix(struct sbuf *o, const struct tree *x, bool sql, const char *op) {
    sbuf_adds(o, "(");
    say_list(o, x, sql, 0, op);
    sbuf_adds(o, ")");
}
static void say(struct sbuf *o, const struct tree *x, bool sql) {
    static const char *const ours[] = { "bool", "i64", "f64", "string" }, *const sqls[] = {
        "integer", "integer", "real", "text"
    };
    char op[16];
    switch (x->kind) {
    case K_CONST:
        say_const(o, x, sql);
        break;
    case K_FIELD:
        sbuf_adds(o, fields[x->op].name);
        break;
    case K_ARITH:
    case K_CMP:
        snprintf(op, sizeof op, " %s ", x->kind == K_CMP ? cmps[x->op] : arith[x->op]);
        say_infix(o, x, sql, op);
        break;
    case K_LOGIC:
        say_infix(o, x, sql, x->op & 1 ? " and " : " OR ");
        break;
    case K_CONCAT:
        say_infix(o, x, sql, " || ");
        break;
    case K_NEG:
        sbuf_adds(o, "(- ");
        say(o, x->k[0], sql);
        sbuf_adds(o, ")");
        break;
    default:
        break;
    }
    if (x->kind == K_NOT || x->kind == K_IS_NULL || x->kind == K_IN || x->kind == K_BETWEEN ||
        x->kind == K_LIKE) {
        sbuf_adds(o, x->kind == K_NOT ? "(not " : "(");
        say(o, x->k[0], sql);
        const char *no = x->op & 1 ? "not " : "";
        if (x->kind == K_IS_NULL)
            sbuf_printf(o, " is %snull", no);
        else if (x->kind == K_BETWEEN) {
            sbuf_printf(o, " %sbetween ", no);
            say_list(o, x, sql, 1, " and ");
        } else if (x->kind != K_NOT) {
            sbuf_printf(o, x->kind == K_IN ? " %sin (" : " %slike (", no);
            say_list(o, x, sql, 1, ", ");
            sbuf_adds(o, ")");
        }
        sbuf_adds(o, ")");
    }
    if (x->kind == K_TEST)
        say_test(o, x, sql);
    if (x->kind == K_CASE)
        say_case(o, x, sql);
    if (x->kind == K_CAST) {
        sbuf_adds(o, "cast(");
        say(o, x->k[0], sql);
        sbuf_printf(o, " as %s)", sql ? sqls[x->type] : ours[x->type]);
    }
    const char *name = x->kind == K_COALESCE  ? "coalesce"
                       : x->kind == K_NULLIF  ? "nullif"
                       : x->kind == K_EXTREME ? x->op ? "max" : "min"
                       : x->kind == K_MATH    ? maths[x->op]
                       : x->kind == K_STR     ? strs[x->op]
                       : x->kind == K_SUBSTR  ? "substr"
                       : x->kind == K_LENGTH  ? "length"
                                              : NULL;
    if (name)
        say_call(o, name, x, sql);
}

/* ---- the naive evaluator ---- */

struct naive {
    const struct nv *row;
    struct arena *a;
    bool apart; /* SQLite answers otherwise: overflow, infinity, … */
};
static const struct nv none = { .null = true };
static struct nv ev(struct naive *e, const struct tree *x);
static struct nv of_f(struct naive *e, double f) {
    if (!isfinite(f)) {
        e->apart = true;
        return none;
    }
    return (struct nv){ .f = f };
}
static struct nv of_i(int64_t i) {
    return (struct nv){ .i = i };
}
static int nv_cmp(enum type ta, const struct nv *a, enum type tb, const struct nv *b) {
    if (ta == TYPE_STR) {
        uint32_t n = a->s.len < b->s.len ? a->s.len : b->s.len;
        int c = memcmp(a->s.p, b->s.p, n);
        return c ? c : (int)a->s.len - (int)b->s.len;
    }
    long double x = ta == TYPE_F64 ? (long double)a->f : (long double)a->i; /* 64 bits: exact */
    long double y = tb == TYPE_F64 ? (long double)b->f : (long double)b->i;
    return x < y ? -1 : x > y;
}
static struct nv ev_arith(struct naive *e, const struct tree *x) {
    struct nv a = ev(e, x->k[0]), b = ev(e, x->k[1]);
    if (a.null || b.null)
        return none;
    if (x->type == TYPE_F64) {
        double p = x->k[0]->type == TYPE_F64 ? a.f : (double)a.i;
        double q = x->k[1]->type == TYPE_F64 ? b.f : (double)b.i;
        if (x->op >= 3 && q == 0)
            return none;
        return of_f(e, x->op == 0   ? p + q
                       : x->op == 1 ? p - q
                       : x->op == 2 ? p * q
                       : x->op == 3 ? p / q
                                    : fmod(p, q));
    }
    if (x->op >= 3 && b.i == 0)
        return none;
    __int128 z = x->op == 0   ? (__int128)a.i + b.i
                 : x->op == 1 ? (__int128)a.i - b.i
                 : x->op == 2 ? (__int128)a.i * b.i
                 : x->op == 3 ? (__int128)a.i / b.i
                              : (__int128)a.i % b.i;
    if (z != (int64_t)z) {
        e->apart = true;
        return none;
    }
    return of_i((int64_t)z);
}
static bool slow_like(const char *s, const char *se, const char *p, const char *pe) {
    if (p == pe)
        return s == se;
    if (*p == '%')
        return slow_like(s, se, p + 1, pe) || (s < se && slow_like(s + 1, se, p, pe));
    if (s == se)
        return false;
    if (*p == '_') {
        for (s++; s < se && ((unsigned char)*s & 0xC0) == 0x80;)
            s++;
        return slow_like(s, se, p + 1, pe);
    }
    return *s == *p && slow_like(s + 1, se, p + 1, pe);
}
static struct nv ev_logic(struct naive *e, const struct tree *x) {
    bool and = x->op & 1, unknown = false, decided = false;
    for (int i = 0; i < x->n; i++) {
        struct nv v = ev(e, x->k[i]);
        unknown |= v.null;
        decided |= !v.null && (v.i != 0) != and;
    }
    return decided ? of_i(!and) : unknown ? none : of_i(and);
}
static struct nv ev_in(struct naive *e, const struct tree *x) {
    struct nv v = ev(e, x->k[0]);
    bool unknown = v.null, found = false;
    for (int i = 1; i < x->n; i++) {
        struct nv w = ev(e, x->k[i]);
        unknown |= w.null;
        found |= !v.null && !w.null && !nv_cmp(x->k[0]->type, &v, x->k[i]->type, &w);
    }
    return found ? of_i(!(x->op & 1)) : unknown ? none : of_i(x->op & 1);
}
static struct nv ev_between(struct naive *e, const struct tree *x) {
    struct nv v[3];
    int t[2] = { 1, 1 };
    for (int i = 0; i < 3; i++)
        v[i] = ev(e, x->k[i]);
    for (int i = 0; i < 2; i++) {
        int c = v[0].null || v[i + 1].null
                    ? 0
                    : nv_cmp(x->k[0]->type, &v[0], x->k[i + 1]->type, &v[i + 1]);
        t[i] = v[0].null || v[i + 1].null ? 2 : i ? c <= 0 : c >= 0;
    }
    int r = t[0] == 0 || t[1] == 0 ? 0 : t[0] == 2 || t[1] == 2 ? 2 : 1;
    return r == 2 ? none : of_i(r ^ (x->op & 1));
}
static struct nv ev_pick(struct naive *e, const struct tree *x) {
    struct nv v = none, w;
    if (x->kind == K_CASE) {
        int i = 0;
        for (; i + 1 < x->n; i += 2)
            if (v = ev(e, x->k[i]), !v.null && v.i)
                return ev(e, x->k[i + 1]);
        return ev(e, x->k[i]);
    }
    if (x->kind == K_COALESCE) {
        for (int i = 0; i < x->n && v.null; i++)
            v = ev(e, x->k[i]);
        return v;
    }
    v = ev(e, x->k[0]);
    for (int i = 1; i < x->n; i++) {
        w = ev(e, x->k[i]);
        int c = v.null || w.null ? 0 : nv_cmp(x->type, &v, x->type, &w);
        if (x->kind == K_NULLIF)
            return !v.null && !w.null && !c ? none : v;
        if (v.null || w.null)
            v = none;
        else if (x->op ? c < 0 : c > 0)
            v = w;
    }
    return v;
}
static struct nv ev_math(struct naive *e, const struct tree *x) {
    struct nv v = ev(e, x->k[0]), w = x->n > 1 ? ev(e, x->k[1]) : v;
    if (v.null || w.null)
        return none;
    if (x->type == TYPE_I64) {
        if (v.i == INT64_MIN)
            e->apart = true;
        return v.i == INT64_MIN ? none : of_i(v.i < 0 ? -v.i : v.i);
    }
    double a = v.f;
    double r[] = { fabs(a), floor(a), ceil(a), round(a), sqrt(a), exp(a),
                   log(a),  log10(a), sin(a),  cos(a),   0 };
    e->apart |= x->op == 7; /* SQLite divides two logarithms */
    return of_f(e, x->op == 10 ? pow(a, w.f) : r[x->op]);
}
static struct nv ev_cast(struct naive *e, const struct tree *x) {
    struct nv v = ev(e, x->k[0]);
    if (v.null)
        return none;
    if (x->type == TYPE_F64)
        return of_f(e, (double)v.i);
    if (x->type == TYPE_STR) {
        char *p = arena_printf(e->a, "%lld", (long long)v.i);
        return (struct nv){ .s = { p, (uint32_t)strlen(p), 0 } };
    }
    if (x->k[0]->type == TYPE_BOOL)
        return v;
    if (!(v.f >= -0x1p63 && v.f < 0x1p63)) {
        e->apart = true;
        return none;
    }
    return of_i((int64_t)v.f);
}
static uint32_t step_char(struct span s, uint32_t i) {
    for (i++; i < s.len && ((unsigned char)s.p[i] & 0xC0) == 0x80;)
        i++;
    return i;
}
/* Characters whose place p (from 1, or from the end) lies in start..start+n-1. */
static struct nv ev_substr(struct naive *e, const struct tree *x) {
    struct nv v = ev(e, x->k[0]), w = ev(e, x->k[1]), z = x->n > 2 ? ev(e, x->k[2]) : of_i(1 << 20);
    if (v.null || w.null || z.null)
        return none;
    if (z.i < 0 || w.i > 100000000 || w.i < -100000000 || z.i > 100000000)
        e->apart = true;
    int64_t len = 0, place = 1;
    for (uint32_t i = 0; i < v.s.len; i = step_char(v.s, i))
        len++;
    __int128 lo = w.i < 0 ? (__int128)w.i + len + 1 : w.i, hi = lo + (z.i < 0 ? 0 : z.i);
    if (x->n == 2 && w.i <= 0)
        hi = (__int128)1 << 100;
    char *p = arena_alloc(e->a, v.s.len + 1);
    uint32_t n = 0;
    for (uint32_t i = 0, k; i < v.s.len; i = k, place++) {
        k = step_char(v.s, i);
        if (place >= lo && place < hi)
            memcpy(p + n, v.s.p + i, k - i), n += k - i;
    }
    return (struct nv){ .s = { p, n, 0 } };
}
static struct nv ev_text(struct naive *e, const struct tree *x) {
    struct nv v[5];
    uint32_t n = 0;
    for (int i = 0; i < x->n; i++)
        if ((v[i] = ev(e, x->k[i])).null)
            n = 1;
    if (n)
        return none;
    struct span s = v[0].s, t = v[1].s;
    if (x->kind == K_LIKE)
        return of_i(slow_like(s.p, s.p + s.len, t.p, t.p + t.len) ^ (x->op & 1));
    if (x->kind == K_TEST) {
        for (uint32_t at = 0; at + t.len <= s.len; at++)
            if (!memcmp(s.p + at, t.p, t.len) &&
                (x->op % 3 == 2 || at == (x->op % 3 ? s.len - t.len : 0)))
                return of_i(1);
        return of_i(0);
    }
    if (x->kind == K_LENGTH) {
        int64_t chars = 0;
        for (uint32_t i = 0; i < s.len; i = step_char(s, i))
            chars++;
        return of_i(chars);
    }
    for (int i = 0; i < x->n; i++)
        n += v[i].s.len;
    char *p = arena_alloc(e->a, n + 1);
    n = 0;
    for (int i = 0; i < x->n; i++)
        for (uint32_t k = 0; k < v[i].s.len; k++) {
            char c = v[i].s.p[k];
            if (x->kind == K_STR && x->op == 0 && c >= 'A' && c <= 'Z')
                c = (char)(c + 32);
            if (x->kind == K_STR && x->op == 1 && c >= 'a' && c <= 'z')
                c = (char)(c - 32);
            p[n++] = c;
        }
    struct span r = { p, n, 0 };
    if (x->kind == K_STR && x->op >= 2) {
        while (x->op != 4 && r.len && *r.p == ' ')
            r.p++, r.len--;
        while (x->op != 3 && r.len && r.p[r.len - 1] == ' ')
            r.len--;
    }
    return (struct nv){ .s = r };
}
static struct nv ev(struct naive *e, const struct tree *x) {
    struct nv v, w;
    int c;
    switch (x->kind) {
    case K_CONST:
        return x->c;
    case K_FIELD:
        return e->row[x->op];
    case K_ARITH:
        return ev_arith(e, x);
    case K_LOGIC:
        return ev_logic(e, x);
    case K_IN:
        return ev_in(e, x);
    case K_BETWEEN:
        return ev_between(e, x);
    case K_CASE:
    case K_COALESCE:
    case K_NULLIF:
    case K_EXTREME:
        return ev_pick(e, x);
    case K_MATH:
        return ev_math(e, x);
    case K_CAST:
        return ev_cast(e, x);
    case K_SUBSTR:
        return ev_substr(e, x);
    case K_LIKE:
    case K_TEST:
    case K_CONCAT:
    case K_STR:
    case K_LENGTH:
        return ev_text(e, x);
    default:
        break;
    }
    v = ev(e, x->k[0]);
    if (x->kind == K_IS_NULL)
        return of_i(v.null ^ (x->op & 1));
    if (v.null)
        return none;
    if (x->kind == K_NOT)
        return of_i(!v.i);
    if (x->kind == K_NEG && x->type == TYPE_F64)
        return of_f(e, -v.f);
    if (x->kind == K_NEG) {
        e->apart |= v.i == INT64_MIN;
        return v.i == INT64_MIN ? none : of_i(-v.i);
    }
    if ((w = ev(e, x->k[1])).null)
        return none;
    c = nv_cmp(x->k[0]->type, &v, x->k[1]->type, &w);
    return of_i(x->op == 0   ? c == 0
                : x->op == 1 ? c != 0
                : x->op == 2 ? c < 0
                : x->op == 3 ? c <= 0
                : x->op == 4 ? c > 0
                             : c >= 0);
}

/* ---- rows as a batch ---- */

enum { ROWS = 130, FIELDS = 8 };
struct table {
    struct nv row[ROWS][FIELDS];
    struct batch b;
    struct column cols[11];
};
static void make_rows(struct gen *g, struct table *t) {
    size_t size[] = { 1, 1, 8, 8, 8, 8, 16, 16, 8, 16, 16 };
    for (int f = 0; f < 11; f++) {
        char *p = arena_zalloc(&g->a, size[f] * ROWS);
        uint64_t *nulls = rnd(g, 4) ? batch_nulls(&g->a, ROWS) : NULL;
        t->cols[f] = (struct column){ .p = p, .nulls = nulls };
        for (uint32_t r = 0; f < FIELDS && r < ROWS; r++) {
            struct nv v = value(g, fields[f].type);
            v.null &= nulls != NULL;
            t->row[r][f] = v;
            if (v.null) { /* the value of a null is anything */
                bit_set(nulls, r);
                memset(p + size[f] * r, (int)rnd(g, 256), size[f]);
            } else if (f < 2)
                p[r] = (char)v.i;
            else if (f < 4)
                memcpy(p + 8 * r, &v.i, 8);
            else if (f < 6)
                memcpy(p + 8 * r, &v.f, 8);
            else
                memcpy(p + 16 * r, &v.s, 16);
        }
    }
    t->b = (struct batch){ .schema = &schema, .cols = t->cols, .rows = ROWS, .n = ROWS };
    if (rnd(g, 2)) {
        uint16_t *sel = arena_alloc(&g->a, ROWS * sizeof *sel);
        t->b.n = 0;
        for (uint32_t r = 0; r < ROWS; r++)
            if (rnd(g, 3))
                sel[t->b.n++] = (uint16_t)r;
        t->b.sel = sel;
    }
}
static const char *shown(struct arena *a, enum type t, const struct nv *v) {
    if (v->null)
        return "null";
    return t == TYPE_STR   ? arena_printf(a, "'%.*s'", (int)v->s.len, v->s.p)
           : t == TYPE_F64 ? arena_printf(a, "%.17g", v->f)
                           : arena_printf(a, "%lld", (long long)v->i);
}
static struct nv got(enum type t, const struct column *c, uint32_t r) {
    struct nv v = { .null = column_null(c, r) };
    if (!v.null && t == TYPE_STR)
        v.s = c->str[r];
    else if (!v.null && t == TYPE_F64)
        v.f = c->f64[r];
    else if (!v.null)
        v.i = t == TYPE_BOOL ? c->b[r] : c->i64[r];
    return v;
}
static bool same(enum type t, const struct nv *want, const struct column *c, uint32_t r) {
    if (want->null || column_null(c, r))
        return want->null == column_null(c, r);
    switch (t) {
    case TYPE_BOOL:
        return c->b[r] == want->i;
    case TYPE_I64:
        return c->i64[r] == want->i;
    case TYPE_F64:
        return c->f64[r] == want->f;
    default:
        return c->str[r].len == want->s.len && !memcmp(c->str[r].p, want->s.p, want->s.len);
    }
}

/* ---- properties ---- */

static const struct expr *compile(struct arena *a, const char *text) {
    struct err e = ERR_INIT;
    const struct expr *x = expr_compile(a, text, strlen(text), &schema, EXPR_HAS_TIME, &e);
    if (!x)
        fail_msg("%s: %s", text, e.text);
    return x;
}
static void check_rows(struct gen *g, const struct tree *x, const struct table *t,
                       const char *text) {
    const struct expr *p = compile(&g->a, text);
    if (expr_type(p) != x->type)
        fail_msg("%s has type %d, not %d", text, expr_type(p), x->type);
    uint64_t nulled = 0;
    struct column c = expr_eval(p, &g->a, &t->b, &nulled);
    uint16_t sel[ROWS];
    uint32_t n = x->type == TYPE_BOOL ? expr_select(p, &g->a, &t->b, sel, &nulled) : 0, at = 0;
    for (uint32_t k = 0; k < t->b.n; k++) {
        uint32_t r = batch_row(&t->b, k);
        struct naive e = { .row = t->row[r], .a = &g->a };
        struct nv want = ev(&e, x);
        if (!same(x->type, &want, &c, r)) {
            struct nv is = got(x->type, &c, r);
            fail_msg("seed %llu row %u: %s, not %s: %s", (unsigned long long)g->first, r,
                     shown(&g->a, x->type, &is), shown(&g->a, x->type, &want), text);
        }
        if (x->type == TYPE_BOOL && !want.null && want.i)
            assert_true(at < n && sel[at++] == r);
    }
    assert_int_equal(at, n);
}

/* Rows of one expression against the naive evaluator, as written and in canonical form. */
static void naive_agrees(void **state) {
    (void)state;
    struct gen g = { .seed = test_seed(1) };
    for (int i = test_scale(20000); i > 0; i--) {
        g.first = g.seed;
        struct table *t = arena_alloc(&g.a, sizeof *t);
        struct sbuf o = { 0 };
        make_rows(&g, t);
        struct tree *x = grow(&g, scalar[rnd(&g, 4)], 1 + (int)rnd(&g, 5));
        say(&o, x, false);
        const char *text = sbuf_str(&o);
        if (o.len <= EXPR_TEXT_MAX) {
            struct err e = ERR_INIT;
            check_rows(&g, x, t, text);
            const char *canon = expr_canonical(&g.a, text, o.len, &e);
            if (!canon)
                fail_msg("%s: %s", text, e.text);
            check_rows(&g, x, t, canon);
            const char *again = expr_canonical(&g.a, canon, strlen(canon), &e);
            assert_non_null(again);
            assert_string_equal(canon, again);
        }
        sbuf_free(&o);
        arena_reset(&g.a);
    }
    arena_free(&g.a);
}

static sqlite3 *database(const struct table *t) {
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "pragma case_sensitive_like=on; create table r(b,c,i,j,x,y,s,t)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_prepare_v2(db, "insert into r values(?,?,?,?,?,?,?,?)", -1, &st, NULL);
    for (int r = 0; r < ROWS; r++) {
        for (int f = 0; f < FIELDS; f++) {
            const struct nv *v = &t->row[r][f];
            if (v->null)
                sqlite3_bind_null(st, f + 1);
            else if (f < 4)
                sqlite3_bind_int64(st, f + 1, v->i);
            else if (f < 6)
                sqlite3_bind_double(st, f + 1, v->f);
            else
                sqlite3_bind_text(st, f + 1, v->s.p, (int)v->s.len, SQLITE_TRANSIENT);
        }
        assert_int_equal(sqlite3_step(st), SQLITE_DONE);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return db;
}
static struct nv sqlite_value(sqlite3_stmt *st, enum type t) {
    struct nv v = { .null = sqlite3_column_type(st, 0) == SQLITE_NULL };
    if (t == TYPE_STR && !v.null) {
        v.s.p = (const char *)sqlite3_column_text(st, 0);
        v.s.len = (uint32_t)sqlite3_column_bytes(st, 0);
    } else if (t == TYPE_F64)
        v.f = sqlite3_column_double(st, 0);
    else
        v.i = sqlite3_column_int64(st, 0);
    return v;
}
static int against_sqlite(struct gen *g, const struct tree *x, struct table *t, sqlite3 *db) {
    struct sbuf o = { 0 }, q = { 0 };
    sqlite3_stmt *st = NULL;
    int compared = 0;
    say(&o, x, false);
    sbuf_adds(&q, "select ");
    say(&q, x, true);
    sbuf_adds(&q, " from r order by rowid");
    if (o.len <= EXPR_TEXT_MAX &&
        sqlite3_prepare_v2(db, sbuf_str(&q), -1, &st, NULL) == SQLITE_OK) {
        uint64_t nulled = 0;
        t->b.sel = NULL;
        t->b.n = ROWS;
        struct column c = expr_eval(compile(&g->a, sbuf_str(&o)), &g->a, &t->b, &nulled);
        for (uint32_t r = 0; r < ROWS; r++) {
            struct naive e = { .row = t->row[r], .a = &g->a };
            ev(&e, x);
            if (sqlite3_step(st) != SQLITE_ROW)
                break; /* abs() of the smallest integer ends a query */
            struct nv want = sqlite_value(st, x->type);
            if (!e.apart && !same(x->type, &want, &c, r)) {
                struct nv is = got(x->type, &c, r);
                fail_msg("seed %llu row %u: %s, not %s: %s", (unsigned long long)g->first, r,
                         shown(&g->a, x->type, &is), shown(&g->a, x->type, &want), q.p);
            }
            compared += !e.apart;
        }
    }
    sqlite3_finalize(st);
    sbuf_free(&o);
    sbuf_free(&q);
    return compared;
}
static void sqlite_agrees(void **state) {
    (void)state;
    struct gen g = { .seed = test_seed(2), .sqlite = true };
    int compared = 0, rounds = test_scale(200);
    for (int i = 0; i < rounds; i++) {
        g.first = g.seed;
        struct table *t = arena_alloc(&g.a, sizeof *t);
        make_rows(&g, t);
        sqlite3 *db = database(t);
        for (int k = 0; k < 40; k++)
            compared +=
                against_sqlite(&g, grow(&g, scalar[rnd(&g, 4)], 1 + (int)rnd(&g, 4)), t, db);
        sqlite3_close(db);
        arena_reset(&g.a);
    }
    arena_free(&g.a);
    assert_true(compared > rounds * 40 * ROWS / 2);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(naive_agrees),
        cmocka_unit_test(sqlite_agrees),
    };
    return cmocka_run_group_tests_name("expr_oracle", all, NULL, NULL);
}
