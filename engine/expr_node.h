/* Inside of expr_*.c: the tree between parser and program. Nodes are hash-consed: equal subtrees
 * are one node, so that the compiler evaluates them once and desugaring may use an operand twice.
 * Everything lives in the arena of the build. */
#ifndef BRAID_EXPR_NODE_H
#define BRAID_EXPR_NODE_H
#include "engine/expr.h"

enum xop {
    X_CONST,
    X_FIELD,
    X_EVENT_TIME,
    X_NEG,
    X_ADD,
    X_SUB,
    X_MUL,
    X_DIV,
    X_MOD,
    X_EQ, /* the six comparisons in this order */
    X_NE,
    X_LT,
    X_LE,
    X_GT,
    X_GE,
    X_AND, /* n-ary, as X_OR */
    X_OR,
    X_NOT,
    X_IS_NULL,
    X_IN, /* kid 0 in the constants kid 1.. (sorted, of one type, no nulls) */
    X_LIKE,
    X_CASE, /* when, then, when, then, ..., else */
    X_COALESCE,
    X_CAST,
    X_CONCAT,
    X_NULLIF,
    X_ABS, /* from here on: plain functions of the table, null if any argument is */
    X_LEAST,
    X_GREATEST,
    X_ROUND,
    X_FLOOR,
    X_CEIL,
    X_SQRT,
    X_POW,
    X_EXP,
    X_LN,
    X_LOG10,
    X_SIN,
    X_COS,
    X_LENGTH,
    X_LOWER,
    X_UPPER,
    X_SUBSTR,
    X_STARTS_WITH,
    X_ENDS_WITH,
    X_CONTAINS,
    X_TRIM,
    X_LTRIM,
    X_RTRIM,
    X_YEAR,
    X_MONTH,
    X_DAY,
    X_HOUR,
    X_MINUTE,
    X_SECOND,
    X_MILLISECOND,
    X_WEEKDAY,
    X_FORMAT_TIME,
    X_PARSE_TIME,
    X_TIME_FLOOR,
    X_IF, /* only in the function table: becomes X_CASE */
    X_OPS,
    /* instructions that no node has */
    I_SPLIT_TRUE,      /* mask of rows where a is true; mask2: the others */
    I_SPLIT_NOT_FALSE, /* mask of rows where a is true or null */
    I_SPLIT_NOT_TRUE,  /* mask of rows where a is false or null */
    I_SPLIT_NULL,      /* mask of rows where a is null; mask2: the others */
    I_NULLS,           /* all null */
    I_MOVE,            /* dst = a under the mask, in place */
    I_AND_UNDER,       /* dst = a; under mask2 dst = dst and b */
    I_OR_UNDER,
};

/* Types during the build: enum type, and two more. */
enum { XT_NULL = TYPE_COUNT, XT_ANY = TYPE_COUNT + 1 };

struct lit {
    bool null;
    union {
        bool b;
        int64_t i;
        double f;
        struct span s;
    };
};
struct node {
    uint8_t op;
    uint8_t type;
    bool implicit; /* X_CAST that the user did not write */
    bool eager;    /* cheap and makes no counted nulls: no use in masking it */
    uint16_t depth;
    uint32_t size; /* nodes as a tree */
    uint32_t id;
    uint32_t at; /* byte in the text */
    uint32_t nkid;
    struct node **kid;
    struct lit c; /* X_CONST; X_FIELD: its name in c.s */
    int index;    /* X_FIELD, -1 without a schema */
    uint64_t hash;
    struct node *next; /* in its bucket */
    /* Scratch of the compiler: registers that hold this node's value. */
    const void *owner;
    struct known *known;
};
enum { NODE_BUCKETS = 512 };
struct build {
    struct arena *a;
    const struct schema *in; /* NULL: fields have type XT_ANY */
    unsigned flags;
    const char *text;
    size_t len;
    struct err *e;
    bool failed;
    uint32_t nodes;
    struct node *bucket[NODE_BUCKETS];
};

/* --- expr_node.c: typed construction; each returns NULL after build_error --- */
struct node *build_error(struct build *b, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct node *node_const(struct build *b, size_t at, int type, struct lit c);
struct node *node_field(struct build *b, size_t at, const char *name, size_t len);
struct node *node_unary(struct build *b, size_t at, int op, struct node *x);
struct node *node_binary(struct build *b, size_t at, int op, struct node *x, struct node *y);
struct node *node_logic(struct build *b, size_t at, int op, struct node **v, uint32_t n);
struct node *node_concat(struct build *b, size_t at, struct node **v, uint32_t n);
struct node *node_in(struct build *b, size_t at, struct node *x, struct node **v, uint32_t n);
struct node *node_case(struct build *b, size_t at, struct node **v, uint32_t n);
struct node *node_cast(struct build *b, size_t at, struct node *x, enum type to);
struct node *node_call(struct build *b, size_t at, const char *name, size_t len, struct node **v,
                       uint32_t n);
const char *node_text(struct arena *a, const struct node *root);
const char *xtype_name(int type);
bool expr_is_keyword(const char *s, size_t len);

/* --- expr_parse.c --- */
struct node *expr_parse(struct build *b);
/* AGG(expr) or AGG(expr, by): *kind, and the arguments (NULL without error: not given). 0 or
 * ERR_INPUT. */
int agg_parse(struct build *b, enum agg_kind *kind, struct node **arg, struct node **by);

/* --- expr_eval.c --- */
const struct expr *expr_program(struct arena *a, struct node *root);
/* Value of a tree without fields. */
struct lit expr_fold(struct arena *a, struct node *root);

/* --- run time, between expr_eval.c and expr_func.c --- */
struct val {               /* a register */
    const void *p;         /* type's array; one value when konst */
    const uint64_t *nulls; /* as in struct column */
    bool konst, null;      /* null: konst and null */
    uint8_t type;
};
struct mask {
    const uint16_t *sel; /* NULL: all rows 0..n-1 */
    uint32_t n;
};
struct run {
    struct arena *a;
    const struct batch *b;
    uint32_t rows;
    uint64_t nulled;
};
/* Writable null bits for a strict result: those of the operands or'ed, else zeroed. */
uint64_t *run_nulls(struct run *r, const struct val *const *v, int n);
/* As run_nulls, without a copy where none is needed; read-only, may be NULL. */
const uint64_t *run_shared_nulls(struct run *r, const struct val *const *v, int n);
/* Null bits of a f64 result: NaN and infinities become null, counted. */
const uint64_t *run_finite(struct run *r, const struct mask *m, const struct val *const *v, int n,
                           const double *out);
/* A null arises in a row, unless an operand was null. */
static inline void run_arose(struct run *r, uint64_t *bits, uint32_t row) {
    if (!bit_get(bits, row)) {
        bit_set(bits, row);
        r->nulled++;
    }
}
/* A plain function: fills `out` (type's array of r->rows) and returns its null bits or NULL. No
 * operand is a null constant. */
const uint64_t *func_eval(struct run *r, int op, int type, const struct mask *m,
                          const struct val *const *v, int n, void *out);

static inline bool val_null(const struct val *v, uint32_t row) {
    return !v->konst && bit_get(v->nulls, row);
}
static inline double val_f64(const struct val *v, uint32_t row) {
    return ((const double *)v->p)[v->konst ? 0 : row];
}
static inline int64_t val_i64(const struct val *v, uint32_t row) {
    return ((const int64_t *)v->p)[v->konst ? 0 : row];
}
static inline uint8_t val_bool(const struct val *v, uint32_t row) {
    return ((const uint8_t *)v->p)[v->konst ? 0 : row];
}
static inline struct span val_str(const struct val *v, uint32_t row) {
    return ((const struct span *)v->p)[v->konst ? 0 : row];
}
/* Runs BODY for each row `i` of the mask; two loops, so that the dense one vectorises. */
#define MASK_EACH(m, BODY)                                                                         \
    do {                                                                                           \
        const uint32_t n_ = (m)->n;                                                                \
        const uint16_t *sel_ = (m)->sel;                                                           \
        if (!sel_)                                                                                 \
            for (uint32_t i = 0; i < n_; i++) {                                                    \
                BODY                                                                               \
            }                                                                                      \
        else                                                                                       \
            for (uint32_t k_ = 0; k_ < n_; k_++) {                                                 \
                const uint32_t i = sel_[k_];                                                       \
                BODY                                                                               \
            }                                                                                      \
    } while (0)
/* Exact comparison of an i64 with a double: <0, 0, >0. */
int cmp_i64_f64(int64_t i, double f);
int span_cmp(struct span a, struct span b);
#endif
