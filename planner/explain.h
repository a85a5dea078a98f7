/* Why each task of a dataflow is reused or new. Works on a committed dataflow and on one that was
 * submitted and not yet committed (a dry run is submit, explain, rollback).
 * Pure reading; one thread. Cost: for each new task a look at the children of its parent and a
 * comparison of configs (~5 us) with EXPLAIN_COMPARED_MAX of the same type. */
#ifndef BRAID_EXPLAIN_H
#define BRAID_EXPLAIN_H
#include "planner/model.h"

enum explain_kind {
    EXPLAIN_REUSED,    /* others use the same instance */
    EXPLAIN_DUPLICATE, /* equals an earlier task of the same dataflow */
    EXPLAIN_FIRST,     /* nothing like it, or like what feeds it, runs */
    EXPLAIN_PARAMETER, /* like `other` but for a parameter */
    EXPLAIN_INPUTS,    /* like `other` but fed otherwise: ports, groupings, more inputs */
    EXPLAIN_PARENT,    /* a task feeding it is not shared, for the reason given there */
    EXPLAIN_HISTORY,   /* `other` is equal, but its memory began earlier (history: own) */
    EXPLAIN_START,     /* `other` is equal, but was started elsewhere in the topic */
    EXPLAIN_UNSHARED,  /* never shared: not deterministic, or with effects outside */
};
extern const char *const explain_words[]; /* "reused" "duplicate" "first" … */

enum { EXPLAIN_FROM_MAX = 5, EXPLAIN_COMPARED_MAX = 1000 };
struct explain {
    enum explain_kind kind;
    const struct flow_task *task;
    const struct inst *inst;  /* of its last stage */
    const struct inst *stage; /* its first stage that is not shared, which decides */
    int nfrom, from_total;    /* EXPLAIN_REUSED: others, oldest first; kept and in all */
    const struct use *from[EXPLAIN_FROM_MAX];
    const struct inst *other; /* the nearest running candidate */
    bool more; /* EXPLAIN_PARAMETER: nearest of EXPLAIN_COMPARED_MAX candidates, there are more */
    const char *parent;        /* EXPLAIN_PARENT, EXPLAIN_DUPLICATE: a task of this dataflow */
    const char *path;          /* EXPLAIN_PARAMETER: "ranges/temperature/0" */
    const char *theirs, *ours; /* canonical JSON, shortened; "nothing" when absent */
    int differing;             /* number of differing parameters */
};

/* One entry a task, in the file's order, in `a`. */
struct explain *explain_flow(struct plan *p, const struct flow *f, struct arena *a);
/* "DATAFLOW/TASK" of the oldest user of an instance; "" when there is none. */
const char *inst_owner(const struct inst *in, struct arena *a);

void explain_text(struct plan *p, const struct flow *f, struct sbuf *out);
/* {"name","history","reused","new","tasks":[{"id","type","signature","instance","status": "reused"
 * or "new","why": a word of explain_words,"history_from","reason": the text}]}, and in a task as it
 * applies: "attach" (what it was started with), "reused_by" and
 * "reused_from":[{"dataflow","task"}], "dataflow" and "task" (the nearest), "input", "parameter"
 * with "theirs" and "ours". */
void explain_json(struct plan *p, const struct flow *f, struct sbuf *out);
#endif
