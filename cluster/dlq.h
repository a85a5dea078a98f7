/* Dead letters: records of the topic braid.dlq, and what has become of them.
 *
 * A letter stays in the topic until its retention takes it. That it was dropped, or that its record
 * was queued again, is a mark: a state key "Q" + u64 offset (big-endian) -> 'd' or 'r', read at the
 * start and kept in memory. A record that is queued again and the mark that says so are one commit,
 * so that this happens once, over crashes too. Marks of letters that the topic no longer has go at
 * the next start. Any thread. */
#ifndef BRAID_DLQ_H
#define BRAID_DLQ_H
#include "engine/log.h"

enum dlq_state { DLQ_OPEN, DLQ_DROPPED = 'd', DLQ_REQUEUED = 'r' };

struct dlq;
/* The topic must be there. Commits when there are old marks. */
int dlq_open(struct dlq **q, struct log *log, struct err *e);
void dlq_close(struct dlq *q); /* NULL is fine */
enum dlq_state dlq_state(struct dlq *q, int64_t offset);
/* The mark goes into an epoch; once that has committed, into memory. */
void dlq_put(struct log_epoch *ep, int64_t offset, enum dlq_state s);
void dlq_set(struct dlq *q, int64_t offset, enum dlq_state s);
#endif
