/* What all window operators have in common: the fields of their output, results on their way out,
 * late rows. One thread; memory is the tick's. */
#ifndef BRAID_OPERATORS_WINDOW_OUT_H
#define BRAID_OPERATORS_WINDOW_OUT_H
#include "operators/window_acc.h"
#include "operators/window_grid.h"

enum { WINDOW_KEY_MAX = 4096 }; /* bytes of a canonical group key */

/* ---- the fields of the output: the group's, then those asked for, then the aggregates ---- */
enum window_fields {
    WINDOW_BOUNDS = 1, /* window_start, window_end (i64) */
    WINDOW_EARLY = 2,  /* early (bool): true in results before the last one of a window */
};
/* Checks aggregates and group keys; fills the schema of out-port 0, and that of port `late`. */
void window_plan_out(struct op_plan *p, const struct strmap *aggregate, unsigned fields);
/* Checks `size` (PARAM_UNSET: that of `every`) against `every`: at most `most` parts, called
 * `what`, of their greatest common divisor. */
void window_plan_size(struct op_plan *p, int64_t every, int64_t size, int64_t most,
                      const char *what);
/* Compiles the aggregates in open(). 0 or ERR_INPUT. */
int window_open_accs(struct accs *s, struct arena *a, const struct strmap *aggregate,
                     const struct schema *in, bool timed, struct err *e);

/* ---- results ---- */
struct window_out {
    struct op_ctx *x;
    const struct accs *accs;
    unsigned fields;
    const struct batch *cause; /* NULL: fired by a watermark */
    uint32_t n, cap;
    struct window_result {
        int64_t fire; /* fired by a watermark: due then; else the physical row that caused it */
        int64_t time; /* event time; TIME_MIN: that of the causing row */
        int64_t start, end;
        struct span key;
        bool early;
    } * row;
    struct acc_total *total; /* accs->n for each */
};
/* At most `cap` results at a time go out in one batch. */
void window_out_open(struct window_out *o, struct op_ctx *x, const struct accs *accs,
                     unsigned fields, const struct batch *cause, uint32_t cap);
/* Totals of the next result, accs->n of them, zeroed. */
struct acc_total *window_out_totals(struct window_out *o);
/* The next result, over those totals; the key is copied. Goes out when there are `cap` of them. */
void window_out_put(struct window_out *o, const struct window_result *r);
void window_out_flush(struct window_out *o);
/* Puts the fields of a group's canonical key into row `row` (of `rows`) of cols[0..nby), whose
 * arrays may be written. Strings point into the key or into the tick's arena. */
void window_put_key(const struct op_ctx *x, struct span key, struct column *cols, uint32_t row,
                    uint32_t rows);

/* ---- late rows ---- */
enum { LATE_DROP, LATE_DEAD_LETTER, LATE_PORT };
extern const char *const window_late_words[];
extern const char *const window_ports[]; /* out, late */
#define WINDOW_LATE_DOC                                                                            \
    "`drop` it (counted as late), make it a `dead_letter`, or send it to the out-`port` `late`."
struct window_late {
    int policy;
    const struct batch *b;
    uint16_t *sel; /* for the port */
    uint32_t n;
};
void window_late_open(struct window_late *l, struct op_ctx *x, int policy, const struct batch *b);
/* A late row of the batch; rows in ascending order. `why` is the reason of a dead letter. */
void window_late_add(struct window_late *l, struct op_ctx *x, uint32_t row, const char *why);
void window_late_emit(struct window_late *l, struct op_ctx *x);
/* Rows that no window can take become dead letters: without event time, or with one out of range.
 * True: rejected. */
bool window_bad_time(struct op_ctx *x, const struct batch *b, uint32_t row);
void window_long_key(struct op_ctx *x, const struct batch *b, uint32_t row);
#endif
