/* Windows of event time for operators that keep one record of fixed size a group and slice:
 * tumbling and sliding, cut into slices (window_grid.h). When a window fires, the records of each
 * group's slices are handed over oldest first, to be merged; so what comes out depends on the rows
 * and on the config alone.
 *
 * State: table 0, key (slice start, group key), the record; table 1, one key "fired", the end of
 * the last window that may have fired. Tables 2 and 3 are the operator's. One thread. */
#ifndef BRAID_OPERATORS_PANES_H
#define BRAID_OPERATORS_PANES_H
#include "engine/op.h"
#include "operators/window_grid.h"
#include "operators/window_index.h"

/* The parameters: `every` absent means no windows (a stage of the operator without timers). */
struct pane_params {
    int64_t every, size, lateness;
    int late;
};
extern const char *const pane_late_words[];
#define PANE_PARAMS(T, m)                                                                          \
    { .name = "every",                                                                             \
      .type = PT_DURATION,                                                                         \
      .flags = PARAM_OPTIONAL,                                                                     \
      .offset = offsetof(T, m.every),                                                              \
      .min = 1,                                                                                    \
      .max = 1e15,                                                                                 \
      .doc = "Windows of event time: one begins at each multiple of this, counted from 1970. "     \
             "Without it there are none." },                                                       \
        { .name = "size",                                                                          \
          .type = PT_DURATION,                                                                     \
          .flags = PARAM_OPTIONAL,                                                                 \
          .offset = offsetof(T, m.size),                                                           \
          .min = 1,                                                                                \
          .max = 1e15,                                                                             \
          .doc = "Length of a window, default `every`. Longer: windows overlap." },                \
        { .name = "lateness",                                                                      \
          .type = PT_DURATION,                                                                     \
          .offset = offsetof(T, m.lateness),                                                       \
          .def = "\"0s\"",                                                                         \
          .min = 0,                                                                                \
          .max = 1e15,                                                                             \
          .doc = "How long after its end (by the watermark) a window still takes rows; it fires "  \
                 "then." },                                                                        \
    {                                                                                              \
        .name = "late", .type = PT_ENUM, .offset = offsetof(T, m.late), .def = "\"drop\"",         \
        .words = pane_late_words,                                                                  \
        .doc =                                                                                     \
            "What happens to a row whose windows have all fired: `drop` it (counted as late), or " \
            "make it a `dead_letter`."                                                             \
    }

struct panes {
    struct window_grid grid;
    int64_t lateness;
    int late;
    struct state *records, *mark;
    struct window_index index;
    int64_t fired; /* end of the last window that may have fired; TIME_MIN: none */
    char *key;     /* scratch: a table key */
};

/* Submit time: checks the parameters against each other and, for windows, the group key. */
void panes_plan(struct op_plan *p, const struct pane_params *c);
/* The fields that begin a window's output into f[0..): those of `by`, then `window_start` and
 * `window_end` when `bounds`. Returns their number (at most nby + 2). */
int panes_fields(struct op_plan *p, bool bounds, struct field *f);
/* `lower` of an operator whose windows are the stage `window`, of the same parameters; `own` is its
 * name. */
void panes_lower(struct op_lower *l, const struct pane_params *c, const char *own,
                 const char *window, size_t config_size);

void panes_open(struct panes *s, struct op_ctx *x, const struct pane_params *c, uint32_t record);
void panes_close(struct panes *s);
void panes_rebuild(struct panes *s);

/* A batch on its way into slices. */
struct pane_rows {
    struct span *key; /* of the group */
    uint64_t *hash;
    struct pane_row *row;
};
/* Keys and slices of all rows of `b`. With panes_edit ~35 ns a row of 100 groups. */
struct pane_rows panes_rows(struct panes *s, struct op_ctx *x, const struct batch *b);
/* The record of row i of the batch, for writing, zeroed when new; NULL when the row has no open
 * window: it has then been counted as late or rejected. Holds until the next call. `start`, if not
 * NULL, gets the start of its slice. */
void *panes_edit(struct panes *s, struct op_ctx *x, const struct batch *b, struct pane_rows *v,
                 uint32_t i, int64_t *start);

/* A group of a window that fires. */
struct pane_group {
    int64_t start, end; /* of the window */
    struct span key;    /* canonical; in the tick's arena */
    uint32_t n;         /* slices with rows of the group, oldest first */
    const void *const *record;
    const int64_t *slice; /* their starts */
};
/* Rows of output on their way out, a batch at a time. */
struct pane_out {
    struct op_ctx *x;
    uint32_t n, cap;
    int64_t *fire, *time;
    struct column *cols; /* as row_columns makes them, for `cap` rows */
};
/* The next row of a window's output, to be filled: its number. */
uint32_t pane_out_row(struct pane_out *o, const struct pane_group *g);

struct pane_firing {
    void (*group)(void *user, struct pane_out *o, const struct pane_group *g);
    /* A slice's record is forgotten: before that. NULL: nothing to do. */
    void (*drop)(void *user, int64_t slice, struct span key, const void *record);
    void *user;
    uint32_t rows; /* of output, at most, of a group */
};
/* watermark() of the operator: all windows due at `wm`, in order of (end, group key). Sets
 * next_timer. */
void panes_watermark(struct panes *s, struct op_ctx *x, int64_t wm, const struct pane_firing *f);
#endif
