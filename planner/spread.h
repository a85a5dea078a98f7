/* How the rows of every stream lie on partitions, and where they must be regrouped (DESIGN 5).
 *
 * A source has as many partitions as its topic. A task without memory runs on the partitions of its
 * input. A task with memory must see all rows of a key in one place: with `by` its rows go through
 * an exchange to EXCHANGE_GROUPS key groups, without `by` to a single one, unless they lie so
 * already or the task says "per_partition". So does a file sink, which is one file. Streams of one
 * partition never need an exchange. */
#ifndef BRAID_SPREAD_H
#define BRAID_SPREAD_H
#include "planner/spec.h"

/* Fills task->parts and task->spread, and input->groups; parents first. */
void spread_task(const struct spec *s, struct spec_task *t, const struct spec_env *env);
#endif
