/* What the new version of a dataflow takes over from the former (`replace`): state of tasks that
 * have changed, or whose parents have, so that their signature is another.
 *
 * Whoever asks for it says that the state still means what it meant. What can be checked is: both
 * are of the same operator; their keys have the same types; their rows the same fields; parameters
 * that shape the state (all semantic ones but those that may change live) are equal; they run on
 * the same partitions. Everything else is refused with the reason. Pure; one thread. */
#ifndef BRAID_TAKE_H
#define BRAID_TAKE_H
#include "planner/merge.h"

/* After plan_replace, before its commit: `f` is the new version, `former` what it replaces (still
 * valid then). `pairs` come before those of the file. A sink whose file the former wrote goes on
 * in it without being asked. *takes is in `a`. 0 or ERR_INPUT with all errors in `es`. */
int plan_takes(const struct flow *f, const struct flow *former, const struct spec *s,
               const struct state_from *pairs, int npairs, struct change_take **takes, int *ntakes,
               struct arena *a, struct errs *es);
/* Whether state_from of `task` of `f` from `old` of `former` would do; for hints. */
bool plan_takeable(const struct flow *f, const struct flow_task *task, const struct flow *former,
                   const struct flow_task *old);
#endif
