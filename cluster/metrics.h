/* What the server measures, read from /metrics (Prometheus text) once per look: per running stage
 * and for the process. One thread. */
#ifndef BRAID_METRICS_H
#define BRAID_METRICS_H
#include "engine/arena.h"
#include <stddef.h>
#include <stdint.h>

struct stage_metrics {
    uint64_t instance;
    const char *type, *label; /* label: DATAFLOW/TASK of whoever brought it */
    int64_t rows_in, rows_out, filtered, rejected, late, busy_ns, keys, bytes;
    int64_t lag; /* sources: records of the topic not read yet; -1: unknown */
};
struct metrics {
    struct arena arena;
    int n;
    struct stage_metrics *stage; /* by instance, ascending */
    int64_t dataflows, submitted, running, cpu_ms, resident, start_ms;
    int64_t taken_ns; /* monotonic */
};
/* Reads `text`; unknown lines are passed over, broken ones too. */
void metrics_parse(struct metrics *m, const char *text, size_t len);
const struct stage_metrics *metrics_find(const struct metrics *m, uint64_t instance);
void metrics_free(struct metrics *m);
#endif
