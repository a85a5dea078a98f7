/* Operators that keep a sketch for each of some fields: distinct_count, second_moment, quantile.
 * Each has two forms of the same parameters: running (every row passes with results of its key so
 * far) and, with `every`, windows of event time (a row a group when a window fires). The windowed
 * form is a stage of its own, because only it needs event time. One thread. */
#ifndef BRAID_OPERATORS_SKETCH_H
#define BRAID_OPERATORS_SKETCH_H
#include "operators/panes.h"

enum { SKETCH_VALUE_MAX = 1 << 20 }; /* bytes of state a key (and slice) */

/* One value that is not null. */
struct sketch_value {
    const struct column *c;
    enum type type;
    uint32_t row;
    int field;     /* of the operator's fields */
    uint64_t hash; /* of the canonical key of the value; kinds with `hashes` */
};
struct sketch_result {
    bool null;
    union {
        int64_t i64;
        double f64;
    };
};
/* A kind of sketch: flat memory of a fixed size, a multiple of 8; zeroed, it has seen nothing. */
struct sketch_kind {
    bool hashes;
    void (*begin)(void *how); /* before the values of a batch; NULL: nothing to do */
    void (*add)(void *how, void *at, const struct sketch_value *v);
    /* NULL: cannot be merged, so windows cannot overlap. */
    void (*merge)(void *how, void *into, const void *from, struct arena *a);
    /* All results of a sketch, those of one field, into out[0..outs). */
    void (*results)(void *how, const void *at, enum type t, int field, struct arena *a,
                    struct sketch_result *out);
};
/* A column of results: named as the field and the suffix. */
struct sketch_out {
    const char *suffix;
    enum type type; /* TYPE_I64, TYPE_F64; TYPE_COUNT: that of the field, which is then numeric */
};
struct sketch_op {
    const struct sketch_kind *kind;
    void *how;   /* the kind's: parameters, scratch */
    size_t size; /* bytes of a sketch */
    int n, outs;
    int *fields;
    enum type *type;
    struct sketch_result *result; /* scratch: of one sketch */
    bool windows;
    struct state *table;
    struct panes panes;
};

/* Submit time: checks the fields and the windows, fills the output schema. `taken` is the parameter
 * that is to blame when two output fields have one name. */
void sketch_plan(struct op_plan *p, const struct strs *fields, unsigned types,
                 const struct sketch_out *out, int outs, const char *taken,
                 const struct pane_params *w);
/* The form is that of the descriptor: windows are what has timers. Opens tables 0 and, with
 * windows, 1. kind, how, size, outs are set. */
void sketch_open(struct sketch_op *s, struct op_ctx *x, const struct strs *fields,
                 const struct pane_params *w);
/* The operator's functions, for an instance that begins with a struct sketch_op. */
void sketch_close(void *self);
void sketch_rebuild(void *self, struct op_ctx *x);
void sketch_process(void *self, struct op_ctx *x, int port, const struct batch *b);
void sketch_watermark(void *self, struct op_ctx *x, int64_t wm);
#endif
