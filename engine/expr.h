/* Expressions of `filter`, `project` and `window_aggregate`: a small SQL-like language over the
 * fields of one stream, checked at submit, run columnar over batches. docs/expressions.md is its
 * manual.
 *
 * Logic is three-valued as in SQL. An i64 overflow, a NaN, an infinity, a failed cast or a time out
 * of range becomes null where it arises and is counted. `and`, `or`, `case`, `if` and `coalesce`
 * evaluate an operand only for the rows that need it, so that `y != 0 and x / y > 2` counts
 * nothing.
 *
 * Life: text -> tree of shared nodes (typed, folded, canonical) -> flat program over registers.
 * Compiled expressions are immutable, live in the arena given and may be used by any thread.
 * Cost: comparison of a column with a constant ~0.5 ns a row, f64 arithmetic ~1 ns a row and
 * operator. */
#ifndef BRAID_EXPR_H
#define BRAID_EXPR_H
#include "engine/batch.h"
#include "engine/err.h"
#include "engine/json.h"

enum {
    EXPR_TEXT_MAX = 16384,  /* bytes of one expression */
    EXPR_DEPTH_MAX = 200,   /* nesting */
    EXPR_SIZE_MAX = 20000,  /* nodes of the tree when written out */
    EXPR_STR_MAX = 1 << 20, /* bytes of a string that an expression makes; longer: null, counted */
};

enum expr_flags {
    EXPR_HAS_TIME = 1, /* the stream carries event time: event_time() is allowed */
};

struct expr;
/* Compiles text[0..len) for rows of `in` (kept, not copied). NULL after filling `e`, whose offset
 * is the byte in the text; the message begins "at byte N: ". */
const struct expr *expr_compile(struct arena *a, const char *text, size_t len,
                                const struct schema *in, unsigned flags, struct err *e);
/* Type of the value. TYPE_COUNT: the expression is a bare null, of any type. */
enum type expr_type(const struct expr *x);
/* Value for every row of `b` as a column of expr_type (bool for a bare null), in `a`; physical rows
 * that `b` does not select are undefined. *nulled grows by the nulls that arose. */
struct column expr_eval(const struct expr *x, struct arena *a, const struct batch *b,
                        uint64_t *nulled);
/* For bool expressions: the rows for which it is true (not false, not null), ascending, into `sel`
 * (room for b->n). Returns their number. */
uint32_t expr_select(const struct expr *x, struct arena *a, const struct batch *b, uint16_t *sel,
                     uint64_t *nulled);

/* The canonical text: equal for expressions that differ only in white space, case of keywords and
 * function names, redundant parentheses, quoting, spelling (<> and !=, `between` and two
 * comparisons, `if` and `case`, side of a constant in a comparison, order of an `in` list) and
 * constant parts. Float arithmetic is never reordered. Needs no schema: types of fields are not
 * checked. Parsing it again gives the same text. NULL after filling `e`. */
const char *expr_canonical(struct arena *a, const char *text, size_t len, struct err *e);

/* ---- aggregates: NAME(expr) at the top, as in window_aggregate ---- */
enum agg_kind {
    AGG_COUNT, /* count() all rows, count(x) those where x is not null; i64 */
    AGG_SUM,   /* of i64: i64, null on overflow; of f64: f64, exactly rounded */
    AGG_MEAN,  /* f64 */
    AGG_MIN,
    AGG_MAX,
    AGG_STDDEV,   /* of the sample (n - 1), f64; null below two values */
    AGG_VARIANCE, /* alike */
    AGG_FIRST,    /* first(x): the value of the earliest row whose x is not null; as x */
    AGG_LAST,     /* last(x): of the latest */
    AGG_MIN_BY,   /* min_by(x, y): x of the row with the least y, both not null; as x */
    AGG_MAX_BY,
    AGG_KINDS,
};
struct agg {
    enum agg_kind kind;
    const struct expr *arg; /* NULL: count() */
    const struct expr *by;  /* y of AGG_MIN_BY and AGG_MAX_BY, else NULL */
    enum type type;         /* of the result */
};
int agg_compile(struct arena *a, const char *text, size_t len, const struct schema *in,
                unsigned flags, struct agg *out, struct err *e);
const char *agg_canonical(struct arena *a, const char *text, size_t len, struct err *e);

/* The functions, for documentation and completion; ends with name NULL. */
struct expr_func {
    const char *name;
    uint8_t op;       /* private */
    uint8_t min, max; /* number of arguments */
    const char *sig;  /* private: argument types, ':' and the result type */
    const char *args; /* "x, digits" */
    const char *doc;  /* one sentence, Markdown */
};
extern const struct expr_func expr_funcs[];
#endif
