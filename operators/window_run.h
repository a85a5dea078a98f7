/* Totals of groups over slices that are added at one end and taken away at the other, for windows
 * that slide: so a window costs the same however many slices it has. Exact sums are taken away
 * again; for what cannot be (the least, the earliest) each group keeps a queue of the slices that
 * may still decide it, each better than all after it (D. Lemire, "Streaming maximum-minimum filter
 * using no more than three comparisons per element", Nordic Journal of Computing 13, 2006).
 *
 * Derived from state, not part of it. One thread. ~15 ns an accumulator and slice; a queue holds at
 * most the slices of a window, 40 bytes each, few as a rule. */
#ifndef BRAID_OPERATORS_WINDOW_RUN_H
#define BRAID_OPERATORS_WINDOW_RUN_H
#include "operators/window_acc.h"

struct window_queue { /* a ring */
    struct window_candidate {
        int64_t start; /* of the slice */
        struct acc_pick p;
    } * v;
    uint32_t head, n, cap;
};
struct window_run {
    uint32_t slices; /* that hold the group; 0: its totals are zero */
    bool stale;      /* to be added up anew */
};
struct window_runs {
    const struct accs *accs;
    struct window_run *run;     /* by id of the group */
    struct acc_total *total;    /* accs->n for each */
    struct window_queue *queue; /* likewise */
    uint32_t cap;
};

void window_runs_free(struct window_runs *r);
/* Room for groups 0..n-1. */
void window_runs_room(struct window_runs *r, uint32_t n);
/* The slice that starts at `start`, later than all that were added, holds `record` of the group. */
void window_runs_add(struct window_runs *r, uint32_t id, int64_t start, const void *record);
/* The earliest slice of the group goes. */
void window_runs_take(struct window_runs *r, uint32_t id, int64_t start, const void *record);
/* To be added anew: reset, then add each slice. */
void window_runs_reset(struct window_runs *r, uint32_t id);
/* The totals of a group that is not stale into `t`. False: it has no slices. */
bool window_runs_total(const struct window_runs *r, uint32_t id, struct acc_total *t);
#endif
