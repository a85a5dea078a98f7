/* Accumulators of window_aggregate: what a slice keeps of its rows, so that sums of slices are the
 * same bytes as sums of rows. A record is a flat value of a state table: 8 bytes that say which
 * sums went on in the table of large sums, then the accumulators. Aggregates of one expression
 * share them: mean(x), sum(x) and stddev(x) keep one sum. */
#ifndef BRAID_OPERATORS_WINDOW_ACC_H
#define BRAID_OPERATORS_WINDOW_ACC_H
#include "engine/expr.h"
#include "engine/op.h"
#include "engine/xsum.h"

enum { ACCS_MAX = 64 };
enum acc_kind {
    ACC_ROWS,    /* uint64_t */
    ACC_COUNT,   /* uint64_t: values that are not null */
    ACC_ISUM,    /* struct i128 */
    ACC_FSUM,    /* struct xsum */
    ACC_SQUARES, /* struct xsum */
    ACC_MIN,     /* int64_t or double; where ACC_COUNT is 0, nothing */
    ACC_MAX,
    ACC_FIRST, /* struct acc_pick */
    ACC_LAST,
    ACC_MIN_BY,
    ACC_MAX_BY,
};
struct i128 {
    uint64_t lo;
    int64_t hi;
};
/* The value of one row: the earliest, the latest, or the one that is least or greatest by `by`. Of
 * equals the earlier row counts, of rows of one time the first to arrive; for ACC_LAST the latest
 * row, and of one time the last. */
struct acc_pick {
    uint64_t has;       /* 0: nothing yet */
    int64_t time;       /* event time of the row; TIME_MIN: the stream has none */
    uint64_t by, value; /* bits of an int64_t, a double or a bool */
};
struct acc {
    enum acc_kind kind;
    int arg, by; /* -1: none */
    enum type type;
    uint32_t offset; /* in the record */
    uint32_t count;  /* offset of the argument's ACC_COUNT, which comes before */
};
struct acc_arg {
    const char *text; /* canonical */
    const struct expr *x;
    enum type type;
};
struct acc_out {
    enum agg_kind kind;
    enum type type;
    int rows, sum, squares; /* accumulators; sum is also min, max and picks. -1: none */
};
struct accs {
    int nargs, n, nouts;
    struct acc_arg arg[ACCS_MAX];
    struct acc acc[ACCS_MAX];
    struct acc_out out[ACCS_MAX];
    uint32_t record; /* bytes */
};
/* Accumulated over slices. */
struct acc_total {
    uint64_t count;
    __int128 isum;
    struct xsum small;
    struct xbig *big; /* NULL: none */
    int64_t i64;
    double f64;
    struct acc_pick pick;
};

/* Adds the aggregate of that text; its result type is the last of s->out. 0 or ERR_INPUT. */
int accs_add(struct accs *s, struct arena *a, const char *text, const struct schema *in,
             unsigned flags, struct err *e);
/* Keeps the number of rows, too; returns its accumulator. -1: no room. */
int accs_rows(struct accs *s);
/* Values of the arguments for all rows of a batch, accs.nargs of them. */
void accs_eval(const struct accs *s, struct arena *a, const struct batch *b, struct column *arg,
               uint64_t *nulled);
/* One row of event time `time` into a record. Returns a mask of the accumulators whose small sum
 * has no room for the value (their values are then the caller's to add to a large one). ~5 ns an
 * accumulator. */
uint64_t accs_update(const struct accs *s, void *record, const struct column *arg, uint32_t row,
                     int64_t time);
/* Adds a record to the totals (s->n of them; zeroed at first). `big(user, i)` finds the large sum
 * of accumulator i that belongs to the record. */
void accs_merge(const struct accs *s, struct acc_total *t, const void *record, struct arena *a,
                const struct xbig *(*big)(void *user, int i), void *user);
/* Adds what accs_update had no room for; `big(user, i)` makes the large sum. */
void accs_add_large(const struct accs *s, uint64_t full, const struct column *arg, uint32_t row,
                    struct xbig *(*big)(void *user, int i), void *user);
/* Adds record `from` to record `to`. Returns the mask of the accumulators whose small sums do not
 * hold both; those of `to` are then as before, and marked as gone on in a large one: the caller
 * adds the small and the large sum of `from` to it. */
uint64_t accs_join(const struct accs *s, void *to, const void *from);
/* As accs_merge, or with `take` the reverse, but for accumulators that pick a value (accs_picked).
 * False when that cannot be done in small sums: the totals are then void. */
bool accs_slide(const struct accs *s, struct acc_total *t, const void *record, bool take);
/* Accumulators that pick one of the values (least, greatest, first, ...): what i has picked in this
 * record. False: nothing, or it is none of these. */
bool accs_picked(const struct accs *s, int i, const void *record, struct acc_pick *p);
/* Whether `later`, of a later slice, makes `earlier` needless. */
bool accs_beats(const struct accs *s, int i, const struct acc_pick *later,
                const struct acc_pick *earlier);
/* Makes `p` the total. */
void accs_pick(const struct accs *s, int i, struct acc_total *t, const struct acc_pick *p);
/* Result i into row `row` of a column of its type. False: null; *arose: it arose here. */
bool accs_result(const struct accs *s, int i, const struct acc_total *t, void *column, uint32_t row,
                 bool *arose);
#endif
