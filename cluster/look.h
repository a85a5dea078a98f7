/* A look at a running server: its counters, dataflows and merged graph, taken one after the other.
 * Two looks give rates. Behind `top` and the summary of `graph`. One thread. */
#ifndef BRAID_LOOK_H
#define BRAID_LOOK_H
#include "cluster/client.h"
#include "cluster/metrics.h"

struct look {
    struct metrics metrics;
    struct json_doc flows, graph; /* answers of /v1/dataflows and /v1/graph */
    struct arena arena;
};
/* 0, or negative and `es`; then look_free is still to be called. */
int look_take(struct client *cl, struct look *l, struct errs *es);
void look_free(struct look *l);

/* A task of the merged graph: all stages that carry its label. */
struct look_line {
    const char *label, *type;  /* label: DATAFLOW/TASK of its oldest user */
    const struct jnode *users; /* names of the dataflows that use it */
    int nusers;
    double in, out, busy;        /* rows a second, rows a second, share of a core */
    double ns_row;               /* between the looks; over all its life when nothing came */
    int64_t rows, busy_ns;       /* rows in and time spent, over all its life */
    int64_t rejected, late, lag; /* lag -1: no source, or unknown */
};
/* In the graph's order, in `a`. With `before` NULL the rates are 0. */
struct look_line *look_lines(const struct look *before, const struct look *now, struct arena *a,
                             int *n);
#endif
