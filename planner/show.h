/* Pictures of the merged graph, or of one dataflow's part of it: text tree, DOT, JSON. A node is a
 * running task (the last stage of somebody's task); stages inside a task are not drawn. Pure
 * reading; one thread; cost O(running stages and links). */
#ifndef BRAID_SHOW_H
#define BRAID_SHOW_H
#include "planner/model.h"

struct show {
    const struct flow *only; /* this dataflow's part; NULL: all */
    int width;               /* columns of the tree; 0: 100 */
    /* Counters of a running instance; NULL: all 0. False: not known (0). */
    bool (*rows)(void *user, uint64_t instance, uint64_t *in, uint64_t *out);
    void *user;
};
/* A tree from the sources down. A task with several inputs is drawn below the first and referred to
 * below the others; on the right who uses it, "×20" for many. */
void show_tree(const struct plan *p, const struct show *o, struct sbuf *out);
/* Graphviz: what one dataflow uses alone stands in its cluster, shared tasks outside, darker the
 * more dataflows share them. */
void show_dot(const struct plan *p, const struct show *o, struct sbuf *out);
/* {"tasks":[{"id","type","signature","dataflows":[…],"rows_in","rows_out"}],
 * "streams":[{"from","to"}]}; ids are "t" and the instance number. */
void show_json(const struct plan *p, const struct show *o, struct sbuf *out);

/* ---- for other renderings: the graph of tasks ---- */
struct show_node {
    const struct inst *inst;      /* its last stage */
    const struct inst *first;     /* the first stage that is its own */
    const struct flow_task *task; /* of its oldest user */
    int nusers;
    const struct flow **users; /* oldest first */
    int nparents, nchildren;
    int *parents, *children; /* node indexes, ascending */
};
struct show_graph {
    int n;
    struct show_node *v; /* parents first */
};
struct show_graph show_nodes(const struct plan *p, const struct flow *only, struct arena *a);
#endif
