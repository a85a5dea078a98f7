/* Typed construction of expression trees: checks, folds constants, brings to canonical form,
 * prints.
 *
 * Without a schema fields have the type XT_ANY, and nothing may be simplified whose type would then
 * depend on a field's: the canonical text of an expression must mean the same for every schema. */
#include "engine/expr_node.h"
#include "engine/num.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

const struct expr_func expr_funcs[] = {
    { "abs", X_ABS, 1, 1, "n:n", "x", "Magnitude." },
    { "min", X_LEAST, 2, 64, "*", "a, b, …", "Smallest argument; null if any is null." },
    { "max", X_GREATEST, 2, 64, "*", "a, b, …", "Largest argument; null if any is null." },
    { "least", X_LEAST, 2, 64, "*", "a, b, …", "The same as `min`." },
    { "greatest", X_GREATEST, 2, 64, "*", "a, b, …", "The same as `max`." },
    { "round", X_ROUND, 1, 2, "ni:n", "x, digits",
      "Nearest integer, halves away from zero; with `digits` (0 to 15) the nearest multiple of "
      "10^-digits. An i64 stays as it is." },
    { "floor", X_FLOOR, 1, 1, "n:n", "x", "Largest integer not above `x`; the type stays." },
    { "ceil", X_CEIL, 1, 1, "n:n", "x", "Smallest integer not below `x`; the type stays." },
    { "sqrt", X_SQRT, 1, 1, "f:f", "x", "Square root." },
    { "pow", X_POW, 2, 2, "ff:f", "x, y", "`x` to the power of `y`." },
    { "exp", X_EXP, 1, 1, "f:f", "x", "e to the power of `x`." },
    { "ln", X_LN, 1, 1, "f:f", "x", "Natural logarithm." },
    { "log10", X_LOG10, 1, 1, "f:f", "x", "Decimal logarithm." },
    { "sin", X_SIN, 1, 1, "f:f", "x", "Sine of radians." },
    { "cos", X_COS, 1, 1, "f:f", "x", "Cosine of radians." },
    { "length", X_LENGTH, 1, 1, "t:i", "s", "Number of characters (of bytes, for `bytes`)." },
    { "lower", X_LOWER, 1, 1, "s:s", "s", "ASCII letters in lower case, the rest as it is." },
    { "upper", X_UPPER, 1, 1, "s:s", "s", "ASCII letters in upper case, the rest as it is." },
    { "substr", X_SUBSTR, 2, 3, "sii:s", "s, start, n",
      "`n` characters (default: all) from character `start`, counted from 1; a negative start "
      "counts from the end." },
    { "concat", X_CONCAT, 2, 64, "*", "a, b, …", "The same as `a || b`; null if any is null." },
    { "starts_with", X_STARTS_WITH, 2, 2, "ss:b", "s, t", "Whether `s` begins with `t`." },
    { "ends_with", X_ENDS_WITH, 2, 2, "ss:b", "s, t", "Whether `s` ends with `t`." },
    { "contains", X_CONTAINS, 2, 2, "ss:b", "s, t", "Whether `t` occurs in `s`." },
    { "trim", X_TRIM, 1, 1, "s:s", "s", "Without spaces at both ends." },
    { "ltrim", X_LTRIM, 1, 1, "s:s", "s", "Without spaces at the start." },
    { "rtrim", X_RTRIM, 1, 1, "s:s", "s", "Without spaces at the end." },
    { "coalesce", X_COALESCE, 2, 64, "*", "a, b, …", "First argument that is not null." },
    { "nullif", X_NULLIF, 2, 2, "*", "a, b", "Null where `a = b`, else `a`." },
    { "if", X_IF, 3, 3, "*", "c, a, b", "The same as `case when c then a else b end`." },
    { "event_time", X_EVENT_TIME, 0, 0, ":i", "", "Event time of the row, ms since 1970 (UTC)." },
    { "year", X_YEAR, 1, 1, "i:i", "t", "Year of a time in ms, UTC." },
    { "month", X_MONTH, 1, 1, "i:i", "t", "Month, 1 to 12." },
    { "day", X_DAY, 1, 1, "i:i", "t", "Day of the month, 1 to 31." },
    { "hour", X_HOUR, 1, 1, "i:i", "t", "Hour, 0 to 23." },
    { "minute", X_MINUTE, 1, 1, "i:i", "t", "Minute, 0 to 59." },
    { "second", X_SECOND, 1, 1, "i:i", "t", "Second, 0 to 59." },
    { "millisecond", X_MILLISECOND, 1, 1, "i:i", "t", "Millisecond, 0 to 999." },
    { "weekday", X_WEEKDAY, 1, 1, "i:i", "t", "Day of the week, Monday 1 to Sunday 7." },
    { "format_time", X_FORMAT_TIME, 1, 1, "i:s", "t", "RFC 3339 text of a time in ms, UTC." },
    { "parse_time", X_PARSE_TIME, 1, 1, "s:i", "s", "Time in ms of an RFC 3339 text." },
    { "time_floor", X_TIME_FLOOR, 2, 2, "*", "t, width",
      "Start of the interval of that width (`'15m'` or a number of ms, constant) that holds `t`; "
      "intervals are aligned to 1970." },
    { NULL, 0, 0, 0, NULL, NULL, NULL },
};

const char *xtype_name(int type) {
    return type == XT_NULL ? "null" : type == XT_ANY ? "any" : type_names[type];
}

struct node *build_error(struct build *b, size_t at, const char *fmt, ...) {
    if (b->failed)
        return NULL;
    b->failed = true;
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(b->e, ERR_INPUT, "at byte %zu: %s", at, text);
    if (b->e)
        b->e->offset = (long)at;
    return NULL;
}

/* ---- hash-consing ---- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}
static bool lit_same(const struct node *x, const struct node *y) {
    if (x->c.null != y->c.null)
        return false;
    if (x->c.null)
        return true;
    if (x->op == X_FIELD || x->type == TYPE_STR || x->type == TYPE_BYTES)
        return x->c.s.len == y->c.s.len && !memcmp(x->c.s.p, y->c.s.p, x->c.s.len);
    if (x->type == TYPE_BOOL)
        return x->c.b == y->c.b;
    return x->c.i == y->c.i; /* bits of an f64, so that 0.0 and -0.0 differ */
}
static uint64_t lit_hash(const struct node *x) {
    uint64_t h = x->c.null;
    if (x->c.null)
        return h;
    if (x->op != X_FIELD && x->type == TYPE_BOOL)
        return mix(h, x->c.b);
    if (x->op != X_FIELD && x->type != TYPE_STR && x->type != TYPE_BYTES)
        return mix(h, (uint64_t)x->c.i);
    for (uint32_t i = 0; i < x->c.s.len; i++)
        h = mix(h, (unsigned char)x->c.s.p[i]);
    return h;
}
static bool node_same(const struct node *x, const struct node *y) {
    if (x->hash != y->hash || x->op != y->op || x->type != y->type || x->nkid != y->nkid ||
        x->implicit != y->implicit)
        return false;
    if (x->op == X_CONST || x->op == X_FIELD)
        return lit_same(x, y);
    return !x->nkid || !memcmp(x->kid, y->kid, x->nkid * sizeof *x->kid);
}

static bool eager_op(int op) {
    return op <= X_EVENT_TIME || (op >= X_EQ && op <= X_IN);
}

/* The node equal to `proto`, made if need be. */
static struct node *intern(struct build *b, const struct node *proto) {
    struct node t = *proto;
    t.hash = mix(mix(mix(17, t.op), t.type), t.implicit);
    t.depth = 1;
    t.size = 1;
    t.eager = eager_op(t.op);
    if (t.op == X_CONST || t.op == X_FIELD)
        t.hash = mix(t.hash, lit_hash(&t));
    for (uint32_t i = 0; i < t.nkid; i++) {
        const struct node *k = t.kid[i];
        t.hash = mix(t.hash, k->hash);
        t.size += k->size;
        t.eager &= k->eager;
        if (k->depth >= t.depth)
            t.depth = k->depth + 1;
    }
    if (t.depth > EXPR_DEPTH_MAX)
        return build_error(b, t.at, "the expression nests deeper than %d", EXPR_DEPTH_MAX);
    if (t.size > EXPR_SIZE_MAX)
        return build_error(b, t.at, "the expression has more than %d parts", EXPR_SIZE_MAX);
    struct node **slot = &b->bucket[t.hash % NODE_BUCKETS];
    for (struct node *n = *slot; n; n = n->next)
        if (node_same(n, &t))
            return n;
    struct node *n = arena_alloc(b->a, sizeof *n);
    t.id = b->nodes++;
    t.next = *slot;
    *n = t;
    return *slot = n;
}

static bool is_const(const struct node *x) {
    return x->op == X_CONST;
}
struct node *node_const(struct build *b, size_t at, int type, struct lit c) {
    struct node t = { .op = X_CONST, .type = (uint8_t)type, .at = (uint32_t)at, .c = c };
    return intern(b, &t);
}
static struct node *bool_const(struct build *b, size_t at, bool v) {
    return node_const(b, at, TYPE_BOOL, (struct lit){ .b = v });
}

/* A node over kids (copied); evaluated at once when they are all constants. */
static struct node *make(struct build *b, size_t at, int op, int type, struct node *const *kid,
                         uint32_t n, bool implicit) {
    bool fold = n > 0;
    struct node t = { .op = (uint8_t)op,
                      .type = (uint8_t)type,
                      .at = (uint32_t)at,
                      .implicit = implicit,
                      .nkid = n };
    t.kid = arena_alloc(b->a, n * sizeof *kid);
    for (uint32_t i = 0; i < n; i++) {
        t.kid[i] = kid[i];
        fold &= is_const(kid[i]);
    }
    struct node *x = intern(b, &t);
    if (!x || !fold || type == XT_ANY)
        return x;
    struct lit c = { .null = true };
    if (type != XT_NULL)
        c = expr_fold(b->a, x);
    return node_const(b, at, type, c);
}

/* ---- types ---- */

static bool is_num(int t) {
    return t == TYPE_I64 || t == TYPE_F64;
}
static bool open_type(int t) { /* not known, or of every type */
    return t == XT_ANY || t == XT_NULL;
}
/* x as type `to` without the user's asking: null of any type, i64 -> f64. */
static struct node *coerce(struct build *b, struct node *x, int to) {
    if (!x || x->type == to || x->type == XT_ANY || open_type(to))
        return x;
    if (x->type == XT_NULL && is_const(x))
        return node_const(b, x->at, to, (struct lit){ .null = true });
    return make(b, x->at, X_CAST, to, &x, 1, true);
}
/* The common type of v[0], v[step], ...: -1 when there is none. */
static int unify(int have, int t) {
    if (have == t || t == XT_NULL)
        return have;
    if (have == XT_NULL)
        return t;
    if (have == XT_ANY || t == XT_ANY)
        return have == TYPE_F64 || t == TYPE_F64 ? TYPE_F64 : XT_ANY;
    return is_num(have) && is_num(t) ? TYPE_F64 : -1;
}
/* Whether v is exactly representable as the other number type. */
static bool exact_f64(int64_t v) {
    return v >= -((int64_t)1 << 53) && v <= (int64_t)1 << 53;
}
static bool exact_i64(double v) {
    return v >= -0x1p63 && v < 0x1p63 && v == trunc(v);
}

struct node *node_field(struct build *b, size_t at, const char *name, size_t len) {
    struct node t = { .op = X_FIELD, .type = XT_ANY, .at = (uint32_t)at, .index = -1 };
    t.c.s = (struct span){ arena_strndup(b->a, name, len), (uint32_t)len, 0 };
    if (b->in) {
        t.index = schema_find(b->in, t.c.s.p);
        if (t.index < 0) {
            const char *near = schema_nearest(b->in, t.c.s.p);
            return build_error(b, at, "there is no field '%s'%s%s%s", t.c.s.p,
                               near ? "; did you mean '" : "; fields are ",
                               near ? near : schema_text(b->a, b->in), near ? "'?" : "");
        }
        t.type = (uint8_t)b->in->f[t.index].type;
        if (t.type == TYPE_VEC)
            return build_error(b, at, "field '%s' is a vector; expressions have no vectors",
                               t.c.s.p);
    }
    return intern(b, &t);
}

static const char *const op_words[X_OPS] = {
    [X_NEG] = "-",     [X_ADD] = "+",     [X_SUB] = "-",   [X_MUL] = "*", [X_DIV] = "/",
    [X_MOD] = "%",     [X_EQ] = "=",      [X_NE] = "!=",   [X_LT] = "<",  [X_LE] = "<=",
    [X_GT] = ">",      [X_GE] = ">=",     [X_AND] = "and", [X_OR] = "or", [X_NOT] = "not",
    [X_LIKE] = "like", [X_CONCAT] = "||",
};

static struct node *bool_operand(struct build *b, size_t at, int op, struct node *x) {
    if (x->type != TYPE_BOOL && !open_type(x->type))
        return build_error(b, at, "'%s' needs bool, not %s", op_words[op], xtype_name(x->type));
    return coerce(b, x, TYPE_BOOL);
}

static int inverse(int op) {
    static const uint8_t to[] = { X_NE, X_EQ, X_GE, X_GT, X_LE, X_LT };
    return to[op - X_EQ];
}
static int mirrored(int op) {
    static const uint8_t to[] = { X_EQ, X_NE, X_GT, X_GE, X_LT, X_LE };
    return to[op - X_EQ];
}
static bool is_compare(int op) {
    return op >= X_EQ && op <= X_GE;
}

struct node *node_unary(struct build *b, size_t at, int op, struct node *x) {
    if (op == X_IS_NULL)
        return make(b, at, op, TYPE_BOOL, &x, 1, false);
    if (op == X_NOT) {
        if (!(x = bool_operand(b, at, op, x)))
            return NULL;
        if (x->op == X_NOT && x->kid[0]->type == TYPE_BOOL)
            return x->kid[0];
        if (is_compare(x->op)) /* there is no NaN: not (a < b) is a >= b */
            return make(b, at, inverse(x->op), TYPE_BOOL, x->kid, 2, false);
        return make(b, at, op, TYPE_BOOL, &x, 1, false);
    }
    if (!is_num(x->type) && !open_type(x->type))
        return build_error(b, at, "'-' needs a number, not %s", xtype_name(x->type));
    return make(b, at, op, x->type, &x, 1, false);
}

static struct node *arithmetic(struct build *b, size_t at, int op, struct node *x, struct node *y) {
    const struct node *bad = !is_num(x->type) && !open_type(x->type)   ? x
                             : !is_num(y->type) && !open_type(y->type) ? y
                                                                       : NULL;
    if (bad)
        return build_error(
            b, at, "'%s' needs numbers, not %s%s", op_words[op], xtype_name(bad->type),
            bad->type == TYPE_STR ? "; cast(… as f64) reads a number, || joins text" : "");
    int t = unify(x->type, y->type);
    struct node *v[2] = { coerce(b, x, t), coerce(b, y, t) };
    return v[0] && v[1] ? make(b, at, op, t, v, 2, false) : NULL;
}

static struct node *compare(struct build *b, size_t at, int op, struct node *x, struct node *y) {
    if (is_const(x) && !is_const(y)) {
        struct node *t = x;
        x = y;
        y = t;
        op = mirrored(op);
    }
    if (unify(x->type, y->type) < 0)
        return build_error(b, at, "'%s' cannot compare %s with %s", op_words[op],
                           xtype_name(x->type), xtype_name(y->type));
    if (open_type(x->type) && y->type != XT_ANY)
        x = coerce(b, x, y->type);
    if (y->type == XT_NULL && x->type != XT_ANY)
        y = coerce(b, y, x->type);
    /* Numbers of two types are compared exactly, as one type where a constant allows it. */
    if (is_const(y) && !y->c.null && x->type == TYPE_F64 && y->type == TYPE_I64 &&
        exact_f64(y->c.i))
        y = node_const(b, y->at, TYPE_F64, (struct lit){ .f = (double)y->c.i });
    if (is_const(y) && !y->c.null && x->type == TYPE_I64 && y->type == TYPE_F64 &&
        exact_i64(y->c.f))
        y = node_const(b, y->at, TYPE_I64, (struct lit){ .i = (int64_t)y->c.f });
    struct node *v[2] = { x, y };
    return x && y ? make(b, at, op, TYPE_BOOL, v, 2, false) : NULL;
}

/* Constants side by side in v become one. Returns how many values are left, 0 after an error. */
static uint32_t join_constants(struct build *b, size_t at, struct node **v, uint32_t n) {
    uint32_t m = 1;
    for (uint32_t i = 1; i < n; i++) {
        if (!is_const(v[m - 1]) || !is_const(v[i])) {
            v[m++] = v[i];
            continue;
        }
        struct node *two[2] = { v[m - 1], v[i] };
        if (!(v[m - 1] = make(b, at, X_CONCAT, TYPE_STR, two, 2, false)))
            return 0;
    }
    return m;
}
/* a || b || c as one node. */
struct node *node_concat(struct build *b, size_t at, struct node **v, uint32_t n) {
    struct node **kid = NULL;
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i]->type != TYPE_STR && !open_type(v[i]->type))
            return build_error(b, at, "'||' joins strings, not %s; write cast(… as string)",
                               xtype_name(v[i]->type));
        total += v[i]->op == X_CONCAT ? v[i]->nkid : 1;
    }
    kid = arena_alloc(b->a, total * sizeof *kid);
    total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (v[i]->op == X_CONCAT) {
            memcpy(kid + total, v[i]->kid, v[i]->nkid * sizeof *kid);
            total += v[i]->nkid;
        } else if (!(kid[total++] = coerce(b, v[i], TYPE_STR)))
            return NULL;
    }
    total = join_constants(b, at, kid, total);
    return total > 1 ? make(b, at, X_CONCAT, TYPE_STR, kid, total, false) : total ? kid[0] : NULL;
}

struct node *node_binary(struct build *b, size_t at, int op, struct node *x, struct node *y) {
    struct node *v[2] = { x, y };
    if (is_compare(op))
        return compare(b, at, op, x, y);
    if (op != X_LIKE)
        return arithmetic(b, at, op, x, y);
    for (int i = 0; i < 2; i++) {
        if (v[i]->type != TYPE_STR && !open_type(v[i]->type))
            return build_error(b, at, "'like' needs strings, not %s", xtype_name(v[i]->type));
        if (!(v[i] = coerce(b, v[i], TYPE_STR)))
            return NULL;
    }
    return make(b, at, op, TYPE_BOOL, v, 2, false);
}

static bool list_has(struct node *const *v, uint32_t n, const struct node *x) {
    for (uint32_t i = 0; i < n; i++)
        if (v[i] == x)
            return true;
    return false;
}

struct node *node_logic(struct build *b, size_t at, int op, struct node **v, uint32_t n) {
    uint32_t total = 0, m = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(v[i] = bool_operand(b, at, op, v[i])))
            return NULL;
        total += v[i]->op == op ? v[i]->nkid : 1;
    }
    struct node **kid = arena_alloc(b->a, total * sizeof *kid);
    for (uint32_t i = 0; i < n; i++) {
        bool same = v[i]->op == op;
        struct node *const *from = same ? v[i]->kid : &v[i];
        for (uint32_t k = 0; k < (same ? v[i]->nkid : 1); k++) {
            if (is_const(from[k]) && !from[k]->c.null) {
                if (from[k]->c.b == (op == X_AND))
                    continue;
                return bool_const(b, at, op == X_OR);
            }
            if (!list_has(kid, m, from[k]))
                kid[m++] = from[k];
        }
    }
    if (!m)
        return bool_const(b, at, op == X_AND);
    return m == 1 ? kid[0] : make(b, at, op, TYPE_BOOL, kid, m, false);
}

static int lit_order(const void *xv, const void *yv) {
    const struct node *x = *(struct node *const *)xv, *y = *(struct node *const *)yv;
    switch (x->type) {
    case TYPE_BOOL:
        return x->c.b - y->c.b;
    case TYPE_I64:
        return x->c.i < y->c.i ? -1 : x->c.i > y->c.i;
    case TYPE_F64:
        return x->c.f < y->c.f ? -1 : x->c.f > y->c.f;
    default:
        return span_cmp(x->c.s, y->c.s);
    }
}
static struct node *in_set(struct build *b, size_t at, struct node *x, struct node **set,
                           uint32_t n) {
    uint32_t m = 0;
    qsort(set, n, sizeof *set, lit_order);
    struct node **kid = arena_alloc(b->a, (n + 1) * sizeof *kid);
    kid[m++] = x;
    for (uint32_t i = 0; i < n; i++)
        if (!i || lit_order(&set[i - 1], &set[i]))
            kid[m++] = set[i];
    if (m == 2)
        return node_binary(b, at, X_EQ, x, kid[1]);
    return make(b, at, X_IN, TYPE_BOOL, kid, m, false);
}
/* As SQL: x in (a, b) is x = a or x = b. The constants of one type become a sorted set. */
struct node *node_in(struct build *b, size_t at, struct node *x, struct node **v, uint32_t n) {
    if (!n)
        return build_error(b, at, "'in' needs at least one value");
    struct node **rest = arena_alloc(b->a, (n + 1) * sizeof *rest);
    struct node **set = arena_alloc(b->a, n * sizeof *set);
    uint32_t nset = 0, nrest = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct node *eq = node_binary(b, at, X_EQ, x, v[i]);
        if (!eq)
            return NULL;
        const struct node *c = eq->op == X_EQ ? eq->kid[1] : NULL;
        bool member = c && eq->kid[0] == x && is_const(c) && !c->c.null &&
                      (x->type == XT_ANY || x->type == c->type) &&
                      (!nset || set[0]->type == c->type);
        if (member)
            set[nset++] = eq->kid[1];
        else
            rest[nrest++] = eq;
    }
    if (nset && !(rest[nrest++] = in_set(b, at, x, set, nset)))
        return NULL;
    return nrest == 1 ? rest[0] : node_logic(b, at, X_OR, rest, nrest);
}

/* Types v[first], v[first+step], ... to their common type; *type. False after an error. */
static bool unify_all(struct build *b, size_t at, const char *what, struct node **v, uint32_t n,
                      uint32_t first, uint32_t step, int *type) {
    int t = XT_NULL;
    *type = XT_NULL;
    for (uint32_t i = first; i < n; i += step) {
        if ((t = unify(*type, v[i]->type)) < 0) {
            build_error(b, v[i]->at, "the values of %s have different types: %s and %s", what,
                        xtype_name(*type), xtype_name(v[i]->type));
            return false;
        }
        *type = t;
    }
    (void)at;
    for (uint32_t i = first; i < n; i += step)
        if (!(v[i] = coerce(b, v[i], *type)))
            return false;
    return true;
}

struct node *node_case(struct build *b, size_t at, struct node **v, uint32_t n) {
    int type = XT_NULL, t;
    for (uint32_t i = 0; i + 1 < n; i += 2)
        if (v[i]->type != TYPE_BOOL && !open_type(v[i]->type))
            return build_error(b, v[i]->at, "a condition must be bool, not %s",
                               xtype_name(v[i]->type));
        else if (!(v[i] = coerce(b, v[i], TYPE_BOOL)))
            return NULL;
    struct node **val = arena_alloc(b->a, (n / 2 + 1) * sizeof *val);
    for (uint32_t i = 0; i < n / 2; i++)
        val[i] = v[2 * i + 1];
    val[n / 2] = v[n - 1];
    if (!unify_all(b, at, "'case'", val, n / 2 + 1, 0, 1, &type))
        return NULL;
    struct node **kid = arena_alloc(b->a, n * sizeof *kid);
    uint32_t m = 0;
    t = type;
    bool known = !open_type(t);
    struct node *last = val[n / 2];
    for (uint32_t i = 0; i < n / 2; i++) {
        bool fixed = known && is_const(v[2 * i]);
        if (fixed && !v[2 * i]->c.null && v[2 * i]->c.b && val[i]->type == t) {
            last = val[i];
            break;
        }
        if (fixed && (v[2 * i]->c.null || !v[2 * i]->c.b) && val[i]->type == t)
            continue;
        kid[m++] = v[2 * i];
        kid[m++] = val[i];
    }
    if (!m && (last->type != t || last->implicit)) {
        /* What implied the cast is gone, so it must be written. */
        struct node *const *from = last->implicit ? last->kid : &last;
        return make(b, at, X_CAST, t, from, 1, false);
    }
    if (!m)
        return last;
    kid[m++] = last;
    return make(b, at, X_CASE, t, kid, m, false);
}

struct node *node_cast(struct build *b, size_t at, struct node *x, enum type to) {
    int from = x->type;
    if (from == (int)to)
        return x;
    if (from == XT_NULL && is_const(x))
        return node_const(b, at, to, (struct lit){ .null = true });
    bool ok = open_type(from) || to == TYPE_STR || from == TYPE_STR ||
              (from != TYPE_BYTES && to != TYPE_BYTES);
    if (!ok)
        return build_error(b, at, "%s cannot be cast to %s", xtype_name(from), xtype_name(to));
    return make(b, at, X_CAST, to, &x, 1, false);
}

/* ---- functions ---- */

static struct node *call_time_floor(struct build *b, size_t at, struct node **v) {
    int64_t width = 0;
    if (v[0]->type != TYPE_I64 && !open_type(v[0]->type))
        return build_error(b, v[0]->at, "time_floor needs a time in ms (i64), not %s",
                           xtype_name(v[0]->type));
    if (is_const(v[1]) && !v[1]->c.null && v[1]->type == TYPE_I64)
        width = v[1]->c.i;
    else if (is_const(v[1]) && !v[1]->c.null && v[1]->type == TYPE_STR &&
             duration_parse(v[1]->c.s.p, v[1]->c.s.p + v[1]->c.s.len, &width))
        width = 0;
    if (width <= 0)
        return build_error(b, v[1]->at, "the width is a constant such as '15m' or 900000, above 0");
    struct node *k[2] = { coerce(b, v[0], TYPE_I64),
                          node_const(b, v[1]->at, TYPE_I64, (struct lit){ .i = width }) };
    return k[0] && k[1] ? make(b, at, X_TIME_FLOOR, TYPE_I64, k, 2, false) : NULL;
}

static struct node *call_special(struct build *b, size_t at, const struct expr_func *f,
                                 struct node **v, uint32_t n) {
    int type;
    switch (f->op) {
    case X_IF:
        return node_case(b, at, v, n);
    case X_CONCAT:
        return node_concat(b, at, v, n);
    case X_TIME_FLOOR:
        return call_time_floor(b, at, v);
    default:
        if (!unify_all(b, at, f->name, v, n, 0, 1, &type))
            return NULL;
        return make(b, at, f->op, type, v, n, false);
    }
}

/* One argument against its letter: n number, i i64, f f64, s string, t string or bytes. */
static struct node *argument(struct build *b, const struct expr_func *f, uint32_t i, char want,
                             struct node *x) {
    int t = x->type;
    bool ok = open_type(t) || (want == 'n' && is_num(t)) || (want == 'f' && is_num(t)) ||
              (want == 'i' && t == TYPE_I64) || (want == 's' && t == TYPE_STR) ||
              (want == 't' && (t == TYPE_STR || t == TYPE_BYTES));
    if (!ok)
        return build_error(b, x->at, "argument %u of %s must be %s, not %s", i + 1, f->name,
                           want == 'i'                  ? "i64"
                           : want == 's' || want == 't' ? "string"
                                                        : "a number",
                           xtype_name(t));
    if (want == 't' && t == TYPE_BYTES)
        return x;
    return coerce(b, x, want == 'i' ? TYPE_I64 : want == 's' || want == 't' ? TYPE_STR : TYPE_F64);
}
static int result_type(char r, struct node *const *v) {
    switch (r) {
    case 'i':
        return TYPE_I64;
    case 'f':
        return TYPE_F64;
    case 'b':
        return TYPE_BOOL;
    case 's':
        return TYPE_STR;
    default:
        return v[0]->type;
    }
}

static const struct expr_func *find_func(const char *name) {
    for (const struct expr_func *f = expr_funcs; f->name; f++)
        if (!strcasecmp(f->name, name))
            return f;
    return NULL;
}
static struct node *no_func(struct build *b, size_t at, const char *name) {
    const char *names[sizeof expr_funcs / sizeof *expr_funcs];
    int n = 0;
    for (const struct expr_func *f = expr_funcs; f->name; f++)
        names[n++] = f->name;
    const char *near = err_nearest(name, names, n);
    return build_error(b, at, "there is no function '%s'%s%s%s", name,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

struct node *node_call(struct build *b, size_t at, const char *word, size_t len, struct node **v,
                       uint32_t n) {
    const char *name = arena_strndup(b->a, word, len);
    const struct expr_func *f = find_func(name);
    if (!f)
        return no_func(b, at, name);
    if (n < f->min || n > f->max)
        return build_error(b, at, "%s(%s) takes %u%s%.*u argument%s, not %u", f->name, f->args,
                           f->min, f->max > f->min ? " to " : "", f->max > f->min ? 1 : 0,
                           f->max > f->min ? f->max : 0, f->max == 1 ? "" : "s", n);
    if (f->op == X_EVENT_TIME && b->in && !(b->flags & EXPR_HAS_TIME))
        return build_error(b, at, "this stream has no event time");
    if (*f->sig == '*')
        return call_special(b, at, f, v, n);
    for (uint32_t i = 0; i < n; i++)
        if (f->sig[i] == 'n' && is_num(v[i]->type))
            continue;
        else if (!(v[i] = argument(b, f, i, f->sig[i], v[i])))
            return NULL;
    return make(b, at, f->op, result_type(strchr(f->sig, ':')[1], v), v, n, false);
}

/* ---- canonical text ---- */

enum { P_NONE, P_OR, P_AND, P_NOT, P_COMPARE, P_CONCAT, P_ADD, P_MUL, P_NEG, P_ATOM };

static int text_power(const struct node *x) {
    switch (x->op) {
    case X_OR:
        return P_OR;
    case X_AND:
        return P_AND;
    case X_NOT: {
        int k = x->kid[0]->op;
        return k == X_IS_NULL || k == X_IN || k == X_LIKE ? P_COMPARE : P_NOT;
    }
    case X_EQ:
    case X_NE:
    case X_LT:
    case X_LE:
    case X_GT:
    case X_GE:
    case X_IS_NULL:
    case X_IN:
    case X_LIKE:
        return P_COMPARE;
    case X_CONCAT:
        return P_CONCAT;
    case X_ADD:
    case X_SUB:
        return P_ADD;
    case X_MUL:
    case X_DIV:
    case X_MOD:
        return P_MUL;
    case X_NEG:
        return P_NEG;
    default:
        return P_ATOM;
    }
}
static void quoted(struct sbuf *out, struct span s, char quote) {
    sbuf_add(out, &quote, 1);
    for (uint32_t i = 0; i < s.len; i++) {
        if (s.p[i] == quote)
            sbuf_add(out, &quote, 1);
        sbuf_add(out, s.p + i, 1);
    }
    sbuf_add(out, &quote, 1);
}
static void text_const(struct sbuf *out, const struct node *x) {
    char num[NUM_F64_MAX_LEN + 4];
    if (x->c.null && x->type == XT_NULL)
        sbuf_adds(out, "null");
    else if (x->c.null)
        sbuf_printf(out, "cast(null as %s)", type_names[x->type]);
    else if (x->type == TYPE_BOOL)
        sbuf_adds(out, x->c.b ? "true" : "false");
    else if (x->type == TYPE_I64)
        sbuf_add(out, num, (size_t)num_write_i64(num, x->c.i));
    else if (x->type == TYPE_F64) {
        int n = num_write_f64(num, x->c.f);
        sbuf_add(out, num, (size_t)n);
        if (!memchr(num, '.', (size_t)n) && !memchr(num, 'e', (size_t)n))
            sbuf_adds(out, ".0");
    } else if (x->type == TYPE_STR)
        quoted(out, x->c.s, '\'');
    else {
        sbuf_adds(out, "x'");
        for (uint32_t i = 0; i < x->c.s.len; i++)
            sbuf_printf(out, "%02x", (unsigned char)x->c.s.p[i]);
        sbuf_adds(out, "'");
    }
}
static void text_field(struct sbuf *out, struct span s) {
    bool bare = !expr_is_keyword(s.p, s.len);
    for (uint32_t i = 0; i < s.len; i++)
        bare &= (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z') ||
                s.p[i] == '_' || (i && s.p[i] >= '0' && s.p[i] <= '9');
    if (bare)
        sbuf_add(out, s.p, s.len);
    else
        quoted(out, s, '"');
}

static void text(struct sbuf *out, const struct node *x, int min);

static void text_list(struct sbuf *out, const struct node *x, uint32_t from) {
    sbuf_adds(out, "(");
    for (uint32_t i = from; i < x->nkid; i++) {
        if (i > from)
            sbuf_adds(out, ", ");
        text(out, x->kid[i], P_NONE);
    }
    sbuf_adds(out, ")");
}
static void text_case(struct sbuf *out, const struct node *x) {
    sbuf_adds(out, "case");
    for (uint32_t i = 0; i + 1 < x->nkid; i += 2) {
        sbuf_adds(out, " when ");
        text(out, x->kid[i], P_NONE);
        sbuf_adds(out, " then ");
        text(out, x->kid[i + 1], P_NONE);
    }
    const struct node *last = x->kid[x->nkid - 1];
    if (!is_const(last) || !last->c.null) {
        sbuf_adds(out, " else ");
        text(out, last, P_NONE);
    }
    sbuf_adds(out, " end");
}
/* is null, in and like, or their negations. */
static void text_test(struct sbuf *out, const struct node *x, bool not ) {
    text(out, x->kid[0], P_CONCAT);
    if (x->op == X_IS_NULL)
        sbuf_adds(out, not ? " is not null" : " is null");
    else if (x->op == X_IN) {
        sbuf_adds(out, not ? " not in " : " in ");
        text_list(out, x, 1);
    } else {
        sbuf_adds(out, not ? " not like " : " like ");
        text(out, x->kid[1], P_CONCAT);
    }
}
static void text_infix(struct sbuf *out, const struct node *x, int power) {
    bool compare_op = power == P_COMPARE, chain = power <= P_AND || power == P_CONCAT;
    for (uint32_t i = 0; i < x->nkid; i++) {
        if (i)
            sbuf_printf(out, " %s ", op_words[x->op]);
        text(out, x->kid[i], power + (compare_op || chain || i));
    }
}
static void text_call(struct sbuf *out, const struct node *x) {
    const struct expr_func *f = expr_funcs;
    while (f->op != x->op)
        f++;
    sbuf_adds(out, f->name);
    text_list(out, x, 0);
}

/* Depth is bounded by EXPR_DEPTH_MAX, so recursion is. */
static void text(struct sbuf *out, const struct node *x, int min) {
    while (x->op == X_CAST && x->implicit)
        x = x->kid[0];
    int power = text_power(x);
    if (power < min)
        sbuf_adds(out, "(");
    if (x->op == X_CONST)
        text_const(out, x);
    else if (x->op == X_FIELD)
        text_field(out, x->c.s);
    else if (x->op == X_CASE)
        text_case(out, x);
    else if (x->op == X_CAST) {
        sbuf_adds(out, "cast(");
        text(out, x->kid[0], P_NONE);
        sbuf_printf(out, " as %s)", type_names[x->type]);
    } else if (x->op == X_IS_NULL || x->op == X_IN || x->op == X_LIKE)
        text_test(out, x, false);
    else if (x->op == X_NOT && power == P_COMPARE)
        text_test(out, x->kid[0], true);
    else if (x->op == X_NOT || x->op == X_NEG) {
        sbuf_adds(out, x->op == X_NOT ? "not " : "-");
        text(out, x->kid[0], power);
    } else if (power != P_ATOM)
        text_infix(out, x, power);
    else
        text_call(out, x);
    if (power < min)
        sbuf_adds(out, ")");
}

const char *node_text(struct arena *a, const struct node *root) {
    struct sbuf out = { 0 };
    text(&out, root, P_NONE);
    const char *s = arena_strndup(a, out.p, out.len);
    sbuf_free(&out);
    return s;
}

/* ---- entries ---- */

static struct build *build_open(struct arena *a, const char *text_in, size_t len,
                                const struct schema *in, unsigned flags, struct err *e) {
    struct build *b = ARENA_NEW(a, struct build);
    b->a = a;
    b->in = in;
    b->flags = flags;
    b->text = text_in;
    b->len = len;
    b->e = e;
    return b;
}

const struct expr *expr_compile(struct arena *a, const char *s, size_t len, const struct schema *in,
                                unsigned flags, struct err *e) {
    struct build *b = build_open(a, s, len, in, flags, e);
    struct node *x = expr_parse(b);
    return x ? expr_program(a, x) : NULL;
}

const char *expr_canonical(struct arena *a, const char *s, size_t len, struct err *e) {
    struct node *x = expr_parse(build_open(a, s, len, NULL, 0, e));
    return x ? node_text(a, x) : NULL;
}

static const char *const agg_names[AGG_KINDS] = { "count", "sum",    "mean",     "min",
                                                  "max",   "stddev", "variance", "first",
                                                  "last",  "min_by", "max_by" };
const char *agg_canonical(struct arena *a, const char *s, size_t len, struct err *e) {
    enum agg_kind kind;
    struct node *x, *by;
    if (agg_parse(build_open(a, s, len, NULL, 0, e), &kind, &x, &by))
        return NULL;
    return arena_printf(a, "%s(%s%s%s)", agg_names[kind], x ? node_text(a, x) : "", by ? ", " : "",
                        by ? node_text(a, by) : "");
}

/* The argument in the form in which it is kept; NULL after build_error. */
static struct node *agg_arg(struct build *b, enum agg_kind kind, struct node *x) {
    bool picks = kind >= AGG_FIRST;
    if (kind == AGG_COUNT || is_num(x->type) || (picks && x->type == TYPE_BOOL)) {
        bool real = kind == AGG_MEAN || kind == AGG_STDDEV || kind == AGG_VARIANCE;
        return real ? coerce(b, x, TYPE_F64) : x;
    }
    return build_error(b, x->at, "%s needs a number%s, not %s", agg_names[kind],
                       picks ? " or bool" : "", xtype_name(x->type));
}
int agg_compile(struct arena *a, const char *s, size_t len, const struct schema *in, unsigned flags,
                struct agg *out, struct err *e) {
    struct build *b = build_open(a, s, len, in, flags, e);
    struct node *x, *by;
    *out = (struct agg){ .type = TYPE_I64 };
    if (agg_parse(b, &out->kind, &x, &by))
        return ERR_INPUT;
    if (!x)
        return 0;
    if (!(x = agg_arg(b, out->kind, x)))
        return ERR_INPUT;
    if (out->kind != AGG_COUNT)
        out->type = (enum type)x->type;
    if (by && !is_num(by->type)) {
        build_error(b, by->at, "%s compares numbers, not %s", agg_names[out->kind],
                    xtype_name(by->type));
        return ERR_INPUT;
    }
    out->arg = expr_program(a, x);
    out->by = by ? expr_program(a, by) : NULL;
    return 0;
}
