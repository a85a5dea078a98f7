/* A snapshot of what the running tasks have counted, taken on the executor thread between two
 * ticks, so that all numbers belong together. ~0.1 us a task of the executor's time. While commits
 * are being retried the last snapshot is given again: the executor sleeps then. Any thread; take it
 * before plan_lock. */
#ifndef BRAID_STATS_H
#define BRAID_STATS_H
#include "engine/executor.h"

struct coord;
struct stat_entry { /* sums over the partitions of the task; its watermark is the lowest */
    uint64_t instance;
    struct task_stats s;
    int64_t position;  /* sources: offset of the next record (the sum of them); else -1 */
    const char *error; /* of a failed source; else NULL */
};
struct stats {
    int refs; /* atomic */
    uint32_t n, cap, mask;
    struct stat_entry *v;
    uint32_t *slot; /* index + 1 by instance; open addressing */
    struct executor_health health;
    struct arena arena;
};
struct stats *stats_get(struct coord *c);
void stats_unref(struct stats *st); /* NULL is fine */
/* NULL: not running at the time of the snapshot. */
const struct stat_entry *stats_find(const struct stats *st, uint64_t instance);
#endif
