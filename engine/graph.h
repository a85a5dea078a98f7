/* What the planner says and the executor does: definitions of running tasks and changes of the
 * merged graph. Plain data; made by the planner, read by the executor. */
#ifndef BRAID_GRAPH_H
#define BRAID_GRAPH_H
#include "engine/op.h"
#include <stdint.h>

/* Identity of a task: 128-bit hash of everything that decides its output (planner/canon.h). */
struct sig {
    uint64_t hi, lo;
};
static inline bool sig_equal(struct sig a, struct sig b) {
    return a.hi == b.hi && a.lo == b.lo;
}

enum grouping { GROUP_NONE, GROUP_BY, GROUP_ALL, GROUP_GLOBAL, GROUP_SHUFFLE };

struct link_def {
    uint64_t from;     /* instance of the parent */
    uint16_t out_port; /* index into the parent's out_name */
    uint16_t in_port;  /* index into this task's in_name */
};
/* One stage instance to run. Memory belongs to the planner and holds until the executor reports the
 * instance as freed. */
struct task_def {
    uint64_t instance; /* numbered by the plan, never reused */
    struct sig sig;
    const struct op_desc *op;
    const void *config;
    const char *label; /* "DATAFLOW/TASK" of whoever brought it, for messages */
    uint32_t parts;    /* it runs on partitions 0..parts-1; 0 means 1 */
    int nin, nout;     /* linked in-ports, read out-ports */
    const char *const *in_name, *const *out_name;
    const struct schema *const *in, *const *out;
    int nby;
    const int *by;            /* field indexes in in[0] */
    const struct op_by *keys; /* of every in-port; NULL: only the first one has any, nby and by */
    int nlinks;
    const struct state_limits *limits; /* of its state; NULL: none. OP_LIMITS */
    const struct link_def
        *links; /* ordered by in_port, then by signature: the same for all sharers */
};
static inline uint32_t task_parts(const struct task_def *d) {
    return d->parts ? d->parts : 1;
}
/* Instance `to`, new in a change, begins with the state that `from` has at its cut. */
struct change_take {
    uint64_t from, to;
};
/* One step of the plan: parents come before children in `add`, children before parents in
 * `remove`. Applied between two ticks, at a cut, and committed with the epoch that begins there. */
struct change {
    uint64_t version;
    int nadd, nremove;
    const struct task_def *const *add;
    const uint64_t *remove;
    /* The removed tasks see a watermark of infinity first: open windows come out (`rm --drain`).
     * Set by the caller of the executor, never by the planner. */
    bool drain;
    /* State that changes hands; set by the caller, too (planner/take.h). */
    int ntake;
    const struct change_take *take;
    /* Running OP_ANY_PORTS tasks whose out-ports have grown: the same instance, more out_name and
     * out at the end. Before `add`: a new child may link to the new port. The former task_def stays
     * valid until the instance is freed. */
    int nupdate;
    const struct task_def *const *update;
};
#endif
