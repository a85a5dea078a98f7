/* Changes of the merged graph, on all shards at once (executor.c only). Between two rounds of the
 * lanes. */
#ifndef BRAID_CHANGE_H
#define BRAID_CHANGE_H
#include "engine/lane.h"

/* It adds a reader to an exchange that runs: must be the first thing of an epoch with no other in
 * flight, so that the exchange's topic ends at its cut. */
bool change_joins(const struct change *ch);
/* How many shards it needs. */
uint32_t change_parts(const struct change *ch);
/* The part of a change that concerns a shard; arrays from `a`. */
struct change shard_change(const struct shard *sh, const struct change *ch, struct arena *a);
/* Sources and sinks of a shard's part. */
int change_bind(struct shard *sh, const struct change *ch, bool restore, struct err *e);
/* Opens, links and binds; makes the shards that it needs. On failure nothing has happened. */
int change_apply(struct lanes *ls, const struct change *ch, struct err *e);
/* The removed tasks see a watermark of infinity (again, after an undo). */
void change_drain(struct lanes *ls, const struct change *ch);
/* State changes hands again, after an undo and before ports_abort. */
void change_retake(struct lanes *ls, const struct change *ch);
/* ERR_INPUT: a removed exchange lies below removed windows, so what they put out at their end would
 * need further epochs to arrive. */
int change_drainable(const struct lanes *ls, const struct change *ch, struct err *e);
#endif
