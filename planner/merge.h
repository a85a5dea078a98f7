/* Merge and unmerge: dataflows join and leave the running set.
 *
 * Merge is hash-consing over signatures: each stage of the dataflow, parents first, either joins a
 * running instance that makes the same output from the same parents, or starts a new one. Cost is
 * O(stages and links of the dataflow), whatever runs. Unmerge counts references. After Chaturvedi,
 * Tyagi and Simmhan (eScience 2017; TCC 2021), without their search over running DAGs.
 *
 * What may be joined:
 *  - never: operators that are not deterministic, or with external effects;
 *  - `history: shared`: any instance of equal signature and the same parents, the one started first
 *    (one started with default attach parameters before one that was not);
 *  - `history: own`: the same, but an operator with memory only when it was started at the same
 *    cut, and a source only when it was started with the same attach parameters. A time stage
 *    counts as without memory for a dataflow of one source and no timers: it remembers nothing
 *    but the watermark, at which that dataflow never looks;
 *  - a stage whose attach parameters are not the defaults (`start: earliest`): only an instance
 *    started with the same ones at the same cut; a table (OP_TABLE) also when everything that its
 *    rows reach in this dataflow, up to joins that keep them, is joined with it;
 *  - of instances started at this very cut: only one with the same attach parameters, so that the
 *    order of tasks in a file, and of files in a request, does not matter.
 *
 * Calls between two commits add up to one change: a submit and a remove together are a replace that
 * keeps what both have in common. One thread. */
#ifndef BRAID_MERGE_H
#define BRAID_MERGE_H
#include "planner/model.h"

/* Adds a dataflow. *change (may be NULL) is everything since the last commit; it holds until the
 * next call. On error nothing of this call remains, and `es` tells why: ERR_CONFLICT (name taken,
 * topic owned by another dataflow, cycle over topics) or ERR_INPUT. The spec may be freed after. */
int plan_submit(struct plan *p, const struct spec *s, const struct plan_cut *cut,
                const struct change **change, struct errs *es);
/* Takes a dataflow out. ERR_NOTFOUND with the nearest name. */
int plan_remove(struct plan *p, const char *name, const struct change **change, struct err *e);
/* Takes dataflow `name` out and its new version `s` in. What the former used goes on wherever
 * signature, parents and attach parameters agree, whatever its `history` says: it is its own past.
 * On error nothing of this call remains: ERR_NOTFOUND, ERR_INPUT (`s` has another name), or as
 * plan_submit. The former's record holds until plan_commit. */
int plan_replace(struct plan *p, const char *name, const struct spec *s, const struct plan_cut *cut,
                 struct errs *es);
const struct change *plan_change(struct plan *p);
/* The executor has taken the change over: removed instances wait for plan_freed. */
void plan_commit(struct plan *p);
/* As if nothing since the last commit had been asked. Instance numbers are not given again. */
void plan_rollback(struct plan *p);
/* The executor no longer reads the memory of this removed instance. */
void plan_freed(struct plan *p, uint64_t instance);

/* ---- restart (save.c) ---- */
/* {"name":…,"stages":[{"task","type","sig","instance","cut","time"},…]}: which instances a dataflow
 * uses; "state": the operator's state_version, when it is not 1. Keep it with the dataflow's text,
 * and plan_next with the plan. */
void plan_save(const struct plan *p, const struct flow *f, struct sbuf *out);
/* As plan_submit, but every stage takes the instance number and cut that were saved, where the
 * signature and the state version still are the same; else (they were raised) it starts anew. */
int plan_restore(struct plan *p, const struct spec *s, const char *saved, size_t len,
                 const struct plan_cut *cut, struct errs *es);
uint64_t plan_next(const struct plan *p);
/* No instance gets a number below `next`. */
void plan_set_next(struct plan *p, uint64_t version, uint64_t next);

/* For save.c: what a stage was. */
struct plan_bound {
    uint64_t instance; /* 0: not bound */
    struct sig sig;
    struct plan_cut cut;
};
int merge_bound(struct plan *p, const struct spec *s, const struct plan_cut *cut,
                const struct plan_bound *bound, struct errs *es);
#endif
