/* Tree to program, and the machine that runs it.
 *
 * A program is a list of instructions over registers. A register is a column of the batch, a
 * constant, or a buffer of the tick's arena; buffers whose value is no longer needed are used
 * again, so that the working set stays in the cache. Every instruction runs under a mask, a
 * selection of rows: mask 0 is the batch's, others come from splitting a mask by a condition. This
 * is how `case`, `coalesce`, `and` and `or` evaluate an operand for those rows only that need it.
 *
 * A register computed under a mask serves all masks split from it: equal subexpressions are
 * computed once. Recursion is bounded by EXPR_DEPTH_MAX. */
#include "engine/expr_node.h"
#include <assert.h>
#include <math.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

enum { NO_REG = 0xFFFF };

struct known {
    uint16_t mask, reg;
    struct known *next;
};
struct instr {
    uint8_t op, type;
    uint16_t dst;
    uint16_t mask;
    uint16_t to, to2; /* I_SPLIT_*: masks made; I_*_UNDER: `to` is the mask of the second operand */
    uint16_t n;
    const uint16_t *arg;
    const struct node *node; /* X_IN: the set */
};
struct load {
    uint16_t reg;
    int field;
};
struct expr {
    enum type type;
    int field; /* of the batch, when nothing else; else -1 */
    uint16_t result, nreg, nmask;
    uint16_t nslot[3]; /* buffers of 1, 8 and 16 bytes a row */
    uint32_t ninstr, nload;
    const struct instr *code;
    const struct load *load;
    const struct val *init; /* registers before the first instruction */
    const uint16_t *slot;   /* buffer of each register */
};

/* ---- compiler ---- */

struct gen {
    struct arena *a;
    struct instr *code;
    uint32_t ninstr, cap_instr;
    struct load *load;
    uint32_t nload, cap_load;
    struct val *reg;
    uint32_t nreg, cap_reg;
    uint16_t *parent; /* of each mask */
    uint32_t nmask, cap_mask;
};
static void *grown(struct arena *a, void *old, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap)
        return old;
    uint32_t c = *cap ? *cap * 2 : 8;
    void *p = arena_alloc(a, c * size);
    if (n)
        memcpy(p, old, n * size);
    *cap = c;
    return p;
}
static uint16_t new_reg(struct gen *g, int type) {
    g->reg = grown(g->a, g->reg, g->nreg, &g->cap_reg, sizeof *g->reg);
    g->reg[g->nreg] = (struct val){ .type = (uint8_t)type };
    return (uint16_t)g->nreg++;
}
static uint16_t new_mask(struct gen *g, uint16_t parent) {
    g->parent = grown(g->a, g->parent, g->nmask, &g->cap_mask, sizeof *g->parent);
    g->parent[g->nmask] = parent;
    return (uint16_t)g->nmask++;
}
static struct instr *emit(struct gen *g, int op, uint16_t dst, uint16_t mask, const uint16_t *arg,
                          uint32_t n) {
    g->code = grown(g->a, g->code, g->ninstr, &g->cap_instr, sizeof *g->code);
    struct instr *in = &g->code[g->ninstr++];
    uint16_t *copy = arena_alloc(g->a, n * sizeof *copy);
    if (n)
        memcpy(copy, arg, n * sizeof *copy);
    *in = (struct instr){
        .op = (uint8_t)op, .dst = dst, .mask = mask, .n = (uint16_t)n, .arg = copy
    };
    in->type = dst == NO_REG ? TYPE_BOOL : g->reg[dst].type;
    return in;
}

/* A register that holds x for at least the rows of the mask, or NO_REG. */
static uint16_t lookup(const struct gen *g, const struct node *x, uint16_t mask) {
    if (x->owner != g)
        return NO_REG;
    for (const struct known *k = x->known; k; k = k->next)
        for (uint16_t m = mask;; m = g->parent[m]) {
            if (m == k->mask)
                return k->reg;
            if (!m)
                break;
        }
    return NO_REG;
}
static void remember(struct gen *g, struct node *x, uint16_t mask, uint16_t reg) {
    if (x->owner != g) {
        x->owner = g;
        x->known = NULL;
    }
    struct known *k = arena_alloc(g->a, sizeof *k);
    *k = (struct known){ mask, reg, x->known };
    x->known = k;
}

static uint16_t gen(struct gen *g, struct node *x, uint16_t mask);

static uint16_t gen_leaf(struct gen *g, const struct node *x) {
    int type = x->type == XT_NULL ? TYPE_BOOL : x->type;
    uint16_t r = new_reg(g, type);
    if (x->op == X_FIELD) {
        g->load = grown(g->a, g->load, g->nload, &g->cap_load, sizeof *g->load);
        g->load[g->nload++] = (struct load){ r, x->index };
        return r;
    }
    struct val *v = &g->reg[r];
    v->konst = true;
    v->null = x->c.null;
    struct lit *c = arena_zalloc(g->a, sizeof *c);
    *c = x->c;
    v->p = &c->b;
    return r;
}

/* x1 and x2 ...: an operand that is costly or may make counted nulls runs only for the rows that
 * those before it leave open. */
static uint16_t gen_logic(struct gen *g, const struct node *x, uint16_t mask) {
    bool and = x->op == X_AND;
    uint16_t acc = gen(g, x->kid[0], mask);
    for (uint32_t i = 1; i < x->nkid; i++) {
        struct node *k = x->kid[i];
        uint16_t to = mask;
        if (!k->eager) {
            to = new_mask(g, mask);
            struct instr *s =
                emit(g, and? I_SPLIT_NOT_FALSE : I_SPLIT_NOT_TRUE, NO_REG, mask, &acc, 1);
            s->to = to;
            s->to2 = to;
        }
        uint16_t arg[2] = { acc, gen(g, k, to) };
        uint16_t dst = new_reg(g, TYPE_BOOL);
        int op = k->eager ? x->op : and? I_AND_UNDER : I_OR_UNDER;
        emit(g, op, dst, mask, arg, 2)->to = to;
        acc = dst;
    }
    return acc;
}

static void gen_move(struct gen *g, uint16_t dst, struct node *value, uint16_t mask) {
    uint16_t arg = gen(g, value, mask);
    emit(g, I_MOVE, dst, mask, &arg, 1);
}
static uint16_t gen_case(struct gen *g, const struct node *x, uint16_t mask) {
    uint16_t dst = new_reg(g, x->type);
    emit(g, I_NULLS, dst, mask, NULL, 0);
    for (uint32_t i = 0; i + 1 < x->nkid; i += 2) {
        uint16_t cond = gen(g, x->kid[i], mask);
        uint16_t yes = new_mask(g, mask), no = new_mask(g, mask);
        struct instr *s = emit(g, I_SPLIT_TRUE, NO_REG, mask, &cond, 1);
        s->to = yes;
        s->to2 = no;
        gen_move(g, dst, x->kid[i + 1], yes);
        mask = no;
    }
    gen_move(g, dst, x->kid[x->nkid - 1], mask);
    return dst;
}
static uint16_t gen_coalesce(struct gen *g, const struct node *x, uint16_t mask) {
    uint16_t dst = new_reg(g, x->type);
    emit(g, I_NULLS, dst, mask, NULL, 0);
    for (uint32_t i = 0; i < x->nkid; i++) {
        uint16_t arg = gen(g, x->kid[i], mask);
        emit(g, I_MOVE, dst, mask, &arg, 1);
        if (i + 1 == x->nkid)
            break;
        uint16_t left = new_mask(g, mask), rest = new_mask(g, mask);
        struct instr *s = emit(g, I_SPLIT_NULL, NO_REG, mask, &arg, 1);
        s->to = left;
        s->to2 = rest;
        mask = left;
    }
    return dst;
}

static uint16_t gen_strict(struct gen *g, struct node *x, uint16_t mask) {
    uint32_t n = x->op == X_IN ? 1 : x->nkid;
    uint16_t *arg = arena_alloc(g->a, n * sizeof *arg);
    bool null = false;
    for (uint32_t i = 0; i < n; i++)
        null |= x->kid[i]->op == X_CONST && x->kid[i]->c.null;
    null &= x->op != X_IS_NULL && x->op != X_NULLIF;
    for (uint32_t i = 0; i < n && !null; i++)
        arg[i] = gen(g, x->kid[i], mask);
    uint16_t dst = new_reg(g, x->type);
    emit(g, null ? I_NULLS : x->op, dst, mask, arg, null ? 0 : n)->node = x;
    return dst;
}

static uint16_t gen(struct gen *g, struct node *x, uint16_t mask) {
    uint16_t r = lookup(g, x, mask);
    if (r != NO_REG)
        return r;
    if (x->op <= X_FIELD) {
        r = gen_leaf(g, x);
        mask = 0; /* good everywhere */
    } else if (x->op == X_AND || x->op == X_OR)
        r = gen_logic(g, x, mask);
    else if (x->op == X_CASE)
        r = gen_case(g, x, mask);
    else if (x->op == X_COALESCE)
        r = gen_coalesce(g, x, mask);
    else
        r = gen_strict(g, x, mask);
    remember(g, x, mask, r);
    return r;
}

static int slot_class(int type) {
    return type == TYPE_BOOL ? 0 : type == TYPE_I64 || type == TYPE_F64 ? 1 : 2;
}
static const uint8_t slot_bytes[3] = { 1, 8, sizeof(struct span) };

/* Buffers by a linear scan over lifetimes; a buffer is never reused by the instruction that reads
 * it last. */
static void assign_slots(struct gen *g, struct expr *x, uint16_t *slot) {
    uint32_t *last = arena_zalloc(g->a, (g->nreg + 1) * sizeof *last);
    uint16_t *free_slot[3], nfree[3] = { 0 };
    for (int c = 0; c < 3; c++)
        free_slot[c] = arena_alloc(g->a, (g->nreg + 1) * sizeof(uint16_t));
    for (uint32_t i = 0; i < g->nreg; i++)
        slot[i] = NO_REG;
    for (uint32_t i = 0; i < g->ninstr; i++) {
        const struct instr *in = &g->code[i];
        if (in->dst != NO_REG)
            last[in->dst] = i;
        for (uint32_t k = 0; k < in->n; k++)
            last[in->arg[k]] = i;
    }
    last[x->result] = UINT32_MAX;
    for (uint32_t i = 0; i < g->ninstr; i++) {
        const struct instr *in = &g->code[i];
        if (in->dst != NO_REG && slot[in->dst] == NO_REG) {
            int c = slot_class(in->type);
            slot[in->dst] = nfree[c] ? free_slot[c][--nfree[c]] : x->nslot[c]++;
        }
        for (uint32_t k = 0; k < in->n; k++) {
            uint16_t r = in->arg[k];
            if (last[r] != i || slot[r] == NO_REG)
                continue;
            int c = slot_class(g->reg[r].type);
            free_slot[c][nfree[c]++] = slot[r];
            last[r] = UINT32_MAX; /* an operand may occur twice */
        }
    }
}

const struct expr *expr_program(struct arena *a, struct node *root) {
    struct gen *g = ARENA_NEW(a, struct gen);
    struct expr *x = ARENA_NEW(a, struct expr);
    g->a = a;
    new_mask(g, 0);
    x->type = root->type == XT_NULL ? TYPE_COUNT : (enum type)root->type;
    x->field = root->op == X_FIELD ? root->index : -1;
    x->result = gen(g, root, 0);
    uint16_t *slot = arena_alloc(a, (g->nreg + 1) * sizeof *slot);
    assign_slots(g, x, slot);
    x->nreg = (uint16_t)g->nreg;
    x->nmask = (uint16_t)g->nmask;
    x->ninstr = g->ninstr;
    x->nload = g->nload;
    x->code = g->code;
    x->load = g->load;
    x->init = g->reg;
    x->slot = slot;
    return x;
}
enum type expr_type(const struct expr *x) {
    return x->type;
}

/* ---- machine: nulls ---- */

uint64_t *run_nulls(struct run *r, const struct val *const *v, int n) {
    uint64_t *bits = batch_nulls(r->a, r->rows);
    size_t words = bits_words(r->rows);
    for (int k = 0; k < n; k++)
        if (v[k]->nulls && !v[k]->konst)
            for (size_t w = 0; w < words; w++)
                bits[w] |= v[k]->nulls[w];
    return bits;
}
const uint64_t *run_shared_nulls(struct run *r, const struct val *const *v, int n) {
    const uint64_t *one = NULL;
    for (int k = 0; k < n; k++) {
        if (!v[k]->nulls || v[k]->konst)
            continue;
        if (one && one != v[k]->nulls)
            return run_nulls(r, v, n);
        one = v[k]->nulls;
    }
    return one;
}

/* ---- machine: arithmetic ---- */

#define ARITH(T, EXPR)                                                                             \
    do {                                                                                           \
        const T *A = v[0]->p, *B = v[1]->p;                                                        \
        if (v[0]->konst) {                                                                         \
            const T x = A[0];                                                                      \
            MASK_EACH(m, const T y = B[i]; o[i] = EXPR;);                                          \
        } else if (v[1]->konst) {                                                                  \
            const T y = B[0];                                                                      \
            MASK_EACH(m, const T x = A[i]; o[i] = EXPR;);                                          \
        } else                                                                                     \
            MASK_EACH(m, const T x = A[i]; const T y = B[i]; o[i] = EXPR;);                        \
    } while (0)

/* One vectorised look finds the batches without any. */
const uint64_t *run_finite(struct run *r, const struct mask *m, const struct val *const *v, int n,
                           const double *o) {
    uint64_t bad = 0;
    MASK_EACH(m, bad |= (uint64_t) !(fabs(o[i]) <= 1.7976931348623157e308););
    if (!bad)
        return run_shared_nulls(r, v, n);
    uint64_t *bits = run_nulls(r, v, n);
    MASK_EACH(m, if (!isfinite(o[i])) run_arose(r, bits, i););
    return bits;
}
static const uint64_t *eval_f64(struct run *r, int op, const struct mask *m,
                                const struct val *const *v, double *restrict o) {
    switch (op) {
    case X_ADD:
        ARITH(double, x + y);
        break;
    case X_SUB:
        ARITH(double, x - y);
        break;
    case X_MUL:
        ARITH(double, x *y);
        break;
    case X_DIV:
        ARITH(double, x / y);
        break;
    default:
        ARITH(double, fmod(x, y));
    }
    return run_finite(r, m, v, 2, o);
}

static bool i64_op(int op, int64_t x, int64_t y, int64_t *z) {
    switch (op) {
    case X_ADD:
        return __builtin_add_overflow(x, y, z);
    case X_SUB:
        return __builtin_sub_overflow(x, y, z);
    case X_MUL:
        return __builtin_mul_overflow(x, y, z);
    case X_DIV:
        if (!y || (x == INT64_MIN && y == -1))
            return true;
        *z = x / y;
        return false;
    default:
        if (!y)
            return true;
        *z = y == -1 ? 0 : x % y;
        return false;
    }
}
static const uint64_t *eval_i64_checked(struct run *r, int op, const struct mask *m,
                                        const struct val *const *v, int64_t *restrict o) {
    uint64_t *bits = run_nulls(r, v, 2);
    MASK_EACH(m, if (bit_get(bits, i)) continue; int64_t z = 0;
              if (i64_op(op, val_i64(v[0], i), val_i64(v[1], i), &z)) run_arose(r, bits, i);
              o[i] = z;);
    return bits;
}
static const uint64_t *eval_i64(struct run *r, int op, const struct mask *m,
                                const struct val *const *v, int64_t *restrict o) {
    uint64_t bad = 0; /* sign bit: some row overflows (perhaps one that is null anyway) */
#define U(x) ((uint64_t)(x))
    if (op == X_ADD) {
        ARITH(int64_t, (int64_t)(U(x) + U(y));
              bad |= (U(x) ^ (U(x) + U(y))) & (U(y) ^ (U(x) + U(y))));
    } else if (op == X_SUB) {
        ARITH(int64_t, (int64_t)(U(x) - U(y)); bad |= (U(x) ^ U(y)) & (U(x) ^ (U(x) - U(y))));
    } else
        bad = U(INT64_MIN);
#undef U
    if (bad >> 63)
        return eval_i64_checked(r, op, m, v, o);
    return run_shared_nulls(r, v, 2);
}

static const uint64_t *eval_neg(struct run *r, const struct instr *in, const struct mask *m,
                                const struct val *const *v, void *out) {
    if (in->type == TYPE_F64) {
        double *restrict o = out;
        MASK_EACH(m, o[i] = -val_f64(v[0], i););
        return run_shared_nulls(r, v, 1);
    }
    int64_t *restrict o = out;
    uint64_t *bits = run_nulls(r, v, 1);
    MASK_EACH(m, int64_t x = val_i64(v[0], i); if (x == INT64_MIN) run_arose(r, bits, i);
              o[i] = (int64_t)(0 - (uint64_t)x););
    return bits;
}

/* ---- machine: comparisons ---- */

int cmp_i64_f64(int64_t i, double f) {
    if (!(f >= -0x1p63)) /* also NaN, the value of a null row */
        return 1;
    if (f >= 0x1p63)
        return -1;
    int64_t t = (int64_t)f; /* towards zero */
    if (i != t)
        return i < t ? -1 : 1;
    double rest = f - (double)t; /* exact: a double with a fraction is below 2^53 */
    return rest > 0 ? -1 : rest < 0;
}
int span_cmp(struct span a, struct span b) {
    uint32_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : a.len < b.len ? -1 : a.len > b.len;
}
static inline bool span_equal(struct span a, struct span b) {
    return a.len == b.len && (!a.len || !memcmp(a.p, b.p, a.len));
}

#define COMPARE(T)                                                                                 \
    switch (op) {                                                                                  \
    case X_EQ:                                                                                     \
        ARITH(T, x == y);                                                                          \
        break;                                                                                     \
    case X_NE:                                                                                     \
        ARITH(T, x != y);                                                                          \
        break;                                                                                     \
    case X_LT:                                                                                     \
        ARITH(T, x < y);                                                                           \
        break;                                                                                     \
    case X_LE:                                                                                     \
        ARITH(T, x <= y);                                                                          \
        break;                                                                                     \
    case X_GT:                                                                                     \
        ARITH(T, x > y);                                                                           \
        break;                                                                                     \
    default:                                                                                       \
        ARITH(T, x >= y);                                                                          \
    }
static void compare_f64(int op, const struct mask *m, const struct val *const *v,
                        uint8_t *restrict o) {
    COMPARE(double)
}
static void compare_i64(int op, const struct mask *m, const struct val *const *v,
                        uint8_t *restrict o) {
    COMPARE(int64_t)
}
static void compare_bool(int op, const struct mask *m, const struct val *const *v,
                         uint8_t *restrict o) {
    COMPARE(uint8_t)
}
static inline uint8_t test(int op, int c) {
    switch (op) {
    case X_EQ:
        return c == 0;
    case X_NE:
        return c != 0;
    case X_LT:
        return c < 0;
    case X_LE:
        return c <= 0;
    case X_GT:
        return c > 0;
    default:
        return c >= 0;
    }
}
static void compare_str(int op, const struct mask *m, const struct val *const *v,
                        const uint64_t *nulls, uint8_t *restrict o) {
    if (op == X_EQ || op == X_NE)
        MASK_EACH(m, o[i] = 0; if (bit_get(nulls, i)) continue;
                  o[i] = span_equal(val_str(v[0], i), val_str(v[1], i)) == (op == X_EQ););
    else
        MASK_EACH(m, o[i] = 0; if (bit_get(nulls, i)) continue;
                  o[i] = test(op, span_cmp(val_str(v[0], i), val_str(v[1], i))););
}
static void compare_mixed(int op, const struct mask *m, const struct val *const *v,
                          uint8_t *restrict o) {
    if (v[0]->type == TYPE_I64)
        MASK_EACH(m, o[i] = test(op, cmp_i64_f64(val_i64(v[0], i), val_f64(v[1], i))););
    else
        MASK_EACH(m, o[i] = test(op, -cmp_i64_f64(val_i64(v[1], i), val_f64(v[0], i))););
}
static const uint64_t *eval_compare(struct run *r, int op, const struct mask *m,
                                    const struct val *const *v, uint8_t *o) {
    const uint64_t *nulls = run_shared_nulls(r, v, 2);
    if (v[0]->type != v[1]->type)
        compare_mixed(op, m, v, o);
    else if (v[0]->type == TYPE_F64)
        compare_f64(op, m, v, o);
    else if (v[0]->type == TYPE_I64)
        compare_i64(op, m, v, o);
    else if (v[0]->type == TYPE_BOOL)
        compare_bool(op, m, v, o);
    else
        compare_str(op, m, v, nulls, o);
    return nulls;
}

/* Whether the value of row i is in the sorted constants kid[1..n). */
static inline int set_order(const struct val *v, uint32_t i, const struct node *c) {
    int64_t x, y;
    double f, g;
    switch (v->type) {
    case TYPE_F64:
        f = val_f64(v, i);
        g = c->c.f;
        return f < g ? -1 : f > g;
    case TYPE_BOOL:
        return val_bool(v, i) - c->c.b;
    case TYPE_I64:
        x = val_i64(v, i);
        y = c->c.i;
        return x < y ? -1 : x > y;
    default:
        return span_cmp(val_str(v, i), c->c.s);
    }
}
static uint8_t set_has(const struct node *set, const struct val *v, uint32_t i) {
    uint32_t lo = 1, hi = set->nkid;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        int c = set_order(v, i, set->kid[mid]);
        if (!c)
            return 1;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return 0;
}
static const uint64_t *eval_in(struct run *r, const struct node *set, const struct mask *m,
                               const struct val *const *v, uint8_t *o) {
    const uint64_t *nulls = run_shared_nulls(r, v, 1);
    MASK_EACH(m, o[i] = !bit_get(nulls, i) && set_has(set, v[0], i););
    return nulls;
}

/* ---- machine: logic ---- */

enum { FALSE_, TRUE_, NULL_ };
static inline int truth(const struct val *v, uint32_t i) {
    if (v->konst)
        return v->null ? NULL_ : *(const uint8_t *)v->p ? TRUE_ : FALSE_;
    return bit_get(v->nulls, i) ? NULL_ : ((const uint8_t *)v->p)[i] & 1;
}
/* Three-valued; `decides` is the value that decides alone: false for and, true for or. */
static inline int combine(int x, int y, int decides) {
    return x == decides || y == decides ? decides : x == NULL_ || y == NULL_ ? NULL_ : !decides;
}
static const uint64_t *eval_logic(struct run *r, bool and, const struct mask *m,
                                  const struct val *const *v, uint8_t *restrict o) {
    if (!v[0]->nulls && !v[1]->nulls && !v[0]->konst && !v[1]->konst) {
        const uint8_t *A = v[0]->p, *B = v[1]->p;
        if (and)
            MASK_EACH(m, o[i] = A[i] & B[i];);
        else
            MASK_EACH(m, o[i] = A[i] | B[i];);
        return NULL;
    }
    uint64_t *bits = batch_nulls(r->a, r->rows);
    MASK_EACH(m, int t = combine(truth(v[0], i), truth(v[1], i), and? FALSE_ : TRUE_);
              o[i] = t == TRUE_; bits[i >> 6] |= (uint64_t)(t == NULL_) << (i & 63););
    return bits;
}
/* As eval_logic where the second operand is known only under `sub`; elsewhere the first decides. */
static const uint64_t *eval_under(struct run *r, bool and, const struct mask *m,
                                  const struct mask *sub, const struct val *const *v,
                                  uint8_t *restrict o) {
    uint64_t *bits = batch_nulls(r->a, r->rows);
    MASK_EACH(m, o[i] = !and;);
    MASK_EACH(sub, int t = combine(truth(v[0], i), truth(v[1], i), and? FALSE_ : TRUE_);
              o[i] = t == TRUE_; bits[i >> 6] |= (uint64_t)(t == NULL_) << (i & 63););
    return bits;
}

static void eval_split(struct run *r, const struct instr *in, struct mask *masks,
                       const struct val *v) {
    const struct mask m = masks[in->mask];
    uint16_t *yes = arena_alloc(r->a, (m.n + 1) * sizeof *yes);
    uint16_t *no = arena_alloc(r->a, (m.n + 1) * sizeof *no);
    uint32_t ny = 0, nn = 0;
    MASK_EACH(
        &m, int t; if (in->op == I_SPLIT_NULL) t = v->konst ? v->null : bit_get(v->nulls, i); else {
            t = truth(v, i);
            t = in->op == I_SPLIT_TRUE        ? t == TRUE_
                : in->op == I_SPLIT_NOT_FALSE ? t != FALSE_
                                              : t != TRUE_;
        } yes[ny] = (uint16_t)i;
        no[nn] = (uint16_t)i; ny += (uint32_t)t; nn += (uint32_t)!t;);
    masks[in->to2] = (struct mask){ no, nn };
    masks[in->to] = (struct mask){ yes, ny }; /* after to2: where they are one, this counts */
}

static const uint64_t *eval_move(struct run *r, const struct mask *m, const struct val *v,
                                 const struct val *old, void *out) {
    uint64_t *bits = (uint64_t *)old->nulls; /* made by I_NULLS, ours */
    (void)r;
    switch (slot_class(v->type)) {
    case 0: {
        uint8_t *o = out;
        MASK_EACH(m, o[i] = val_bool(v, i););
        break;
    }
    case 1: {
        int64_t *o = out; /* an f64 moves as its bits */
        MASK_EACH(m, o[i] = val_i64(v, i););
        break;
    }
    default: {
        struct span *o = out;
        MASK_EACH(m, o[i] = val_str(v, i););
    }
    }
    if (v->konst ? v->null : v->nulls != NULL)
        MASK_EACH(m, if (v->null || val_null(v, i)) bit_set(bits, i); else bit_clear(bits, i););
    else
        MASK_EACH(m, bit_clear(bits, i););
    return bits;
}
static const uint64_t *all_null(struct run *r) {
    size_t words = bits_words(r->rows);
    uint64_t *bits = arena_alloc(r->a, words * sizeof *bits);
    memset(bits, 0xFF, words * sizeof *bits);
    return bits;
}
static const uint64_t *eval_is_null(const struct mask *m, const struct val *v,
                                    uint8_t *restrict o) {
    MASK_EACH(m, o[i] = v->null || val_null(v, i););
    return NULL;
}
static const uint64_t *eval_not(struct run *r, const struct mask *m, const struct val *const *v,
                                uint8_t *restrict o) {
    const uint8_t *A = v[0]->p;
    MASK_EACH(m, o[i] = !A[i];);
    return run_shared_nulls(r, v, 1);
}
static const uint64_t *eval_nullif(struct run *r, const struct mask *m, const struct val *const *v,
                                   void *out) {
    bool no_a = v[0]->null, no_b = v[1]->null;
    if (no_a)
        return all_null(r);
    struct val old = { .nulls = all_null(r) };
    eval_move(r, m, v[0], &old, out);
    if (no_b)
        return old.nulls;
    uint8_t *same = arena_alloc(r->a, r->rows);
    const uint64_t *nulls = eval_compare(r, X_EQ, m, v, same);
    uint64_t *bits = (uint64_t *)old.nulls;
    MASK_EACH(m, if (same[i] && !bit_get(nulls, i)) bit_set(bits, i););
    return bits;
}
static const uint64_t *eval_event_time(struct run *r, int64_t *o) {
    if (!r->b->time)
        return all_null(r);
    memcpy(o, r->b->time, r->rows * sizeof *o);
    return NULL;
}

/* ---- machine ---- */

static const uint64_t *step(struct run *r, const struct instr *in, const struct mask *masks,
                            const struct val *const *v, const struct val *old, void *out) {
    const struct mask *m = &masks[in->mask];
    switch (in->op) {
    case X_EVENT_TIME:
        return eval_event_time(r, out);
    case X_NEG:
        return eval_neg(r, in, m, v, out);
    case X_ADD:
    case X_SUB:
    case X_MUL:
    case X_DIV:
    case X_MOD:
        return in->type == TYPE_F64 ? eval_f64(r, in->op, m, v, out)
                                    : eval_i64(r, in->op, m, v, out);
    case X_EQ:
    case X_NE:
    case X_LT:
    case X_LE:
    case X_GT:
    case X_GE:
        return eval_compare(r, in->op, m, v, out);
    case X_AND:
    case X_OR:
        return eval_logic(r, in->op == X_AND, m, v, out);
    case I_AND_UNDER:
    case I_OR_UNDER:
        return eval_under(r, in->op == I_AND_UNDER, m, &masks[in->to], v, out);
    case X_NOT:
        return eval_not(r, m, v, out);
    case X_IS_NULL:
        return eval_is_null(m, v[0], out);
    case X_IN:
        return eval_in(r, in->node, m, v, out);
    case X_NULLIF:
        return eval_nullif(r, m, v, out);
    case I_NULLS:
        return all_null(r);
    case I_MOVE:
        return eval_move(r, m, v[0], old, out);
    default:
        return func_eval(r, in->op, in->type, m, v, in->n, out);
    }
}

enum { ARGS_MAX = 64 };
static void run_program(const struct expr *x, struct run *r, struct val *reg) {
    struct mask *masks = arena_alloc(r->a, x->nmask * sizeof *masks);
    char *buf[3];
    masks[0] = (struct mask){ r->b->sel, r->b->n };
    for (int c = 0; c < 3; c++)
        buf[c] = arena_alloc(r->a, (size_t)x->nslot[c] * slot_bytes[c] * r->rows);
    for (uint32_t i = 0; i < x->nload; i++) { /* none in a constant, which has no batch */
        assert(r->b->cols);
        const struct column *c = &r->b->cols[x->load[i].field];
        reg[x->load[i].reg].p = c->p;
        reg[x->load[i].reg].nulls = c->nulls;
    }
    for (uint32_t i = 0; i < x->ninstr; i++) {
        const struct instr *in = &x->code[i];
        const struct val *v[ARGS_MAX + 1];
        const struct val **args = v;
        if (in->n > ARGS_MAX)
            args = arena_alloc(r->a, in->n * sizeof *args);
        for (uint32_t k = 0; k < in->n; k++)
            args[k] = &reg[in->arg[k]];
        if (in->dst == NO_REG) {
            eval_split(r, in, masks, args[0]);
            continue;
        }
        int c = slot_class(in->type);
        void *out = buf[c] + (size_t)x->slot[in->dst] * slot_bytes[c] * r->rows;
        reg[in->dst].nulls = step(r, in, masks, args, &reg[in->dst], out);
        reg[in->dst].p = out;
    }
}

/* The result as a column even when it is a constant. */
static struct column materialise(struct run *r, const struct val *v) {
    if (!v->konst)
        return (struct column){ .p = v->p, .nulls = v->nulls };
    void *out = arena_zalloc(r->a, (size_t)slot_bytes[slot_class(v->type)] * r->rows);
    struct val old = { .nulls = all_null(r) };
    struct mask all = { NULL, r->rows };
    if (v->null)
        return (struct column){ .p = out, .nulls = old.nulls };
    eval_move(r, &all, v, &old, out);
    return (struct column){ .p = out };
}

static struct val *registers(const struct expr *x, struct arena *a) {
    struct val *reg = arena_alloc(a, x->nreg * sizeof *reg);
    memcpy(reg, x->init, x->nreg * sizeof *reg);
    return reg;
}
struct column expr_eval(const struct expr *x, struct arena *a, const struct batch *b,
                        uint64_t *nulled) {
    if (x->field >= 0)
        return b->cols[x->field];
    struct run r = { .a = a, .b = b, .rows = b->rows };
    struct val *reg = registers(x, a);
    run_program(x, &r, reg);
    *nulled += r.nulled;
    return materialise(&r, &reg[x->result]);
}

uint32_t expr_select(const struct expr *x, struct arena *a, const struct batch *b, uint16_t *sel,
                     uint64_t *nulled) {
    struct run r = { .a = a, .b = b, .rows = b->rows };
    struct val *reg = registers(x, a);
    run_program(x, &r, reg);
    *nulled += r.nulled;
    const struct val *v = &reg[x->result];
    const struct mask m = { b->sel, b->n };
    uint32_t n = 0;
    if (!v->nulls && !v->konst) {
        const uint8_t *t = v->p;
        MASK_EACH(&m, sel[n] = (uint16_t)i; n += t[i];);
    } else
        MASK_EACH(&m, sel[n] = (uint16_t)i; n += truth(v, i) == TRUE_;);
    return n;
}

struct lit expr_fold(struct arena *a, struct node *root) {
    const struct expr *x = expr_program(a, root);
    struct batch b = { .rows = 1, .n = 1 };
    struct run r = { .a = a, .b = &b, .rows = 1 };
    struct val *reg = registers(x, a);
    run_program(x, &r, reg);
    const struct val *v = &reg[x->result];
    struct lit c = { .null = v->null || val_null(v, 0) };
    if (c.null)
        return c;
    if (v->type == TYPE_BOOL)
        c.b = val_bool(v, 0);
    else if (v->type == TYPE_I64 || v->type == TYPE_F64)
        c.i = val_i64(v, 0);
    else
        c.s = val_str(v, 0);
    return c;
}
