/* What benchmarks of the engine share: records of a dataset in memory, dataflows of dataflows/ in a
 * plan, a log in a temporary directory with an executor that the benchmark drives. Everything here
 * ends the program on an error. */
#ifndef BRAID_TESTS_LOAD_H
#define BRAID_TESTS_LOAD_H
#include "engine/executor.h"
#include "planner/merge.h"

enum { LOAD_BLOCK = 1024, LOAD_RECORDS = 1 << 20 };
struct load_input { /* LOAD_RECORDS records in blocks of LOAD_BLOCK */
    struct log_rows *block;
    int n;
    char *text;
    uint32_t *ends;
};
void load_input(struct load_input *in, const char *source, int64_t keys);
void load_input_free(struct load_input *in);

struct load {
    char dir[64];
    struct log *log;
    struct executor *x;
    struct plan *plan;
};
void load_open(struct load *g, uint32_t lanes);
void load_close(struct load *g);
void load_topic(struct log *log, const char *name, uint32_t partitions); /* unless it is there */
/* Records of the input, block by block, to one partition after the other. */
void load_fill(struct load *g, const char *name, uint32_t partitions, const struct load_input *in,
               int64_t records);

/* Submits a dataflow, under another name and sink topic when `n` >= 0. `log` (may be NULL) tells
 * how many partitions topics have. */
void load_submit(struct plan *p, struct log *log, const char *path, int n);
void load_die(const char *what, const struct err *e);
double load_seconds(void); /* BENCH_SECONDS, default 10 */
#endif
