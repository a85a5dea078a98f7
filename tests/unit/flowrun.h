/* Runs one dataflow alone over a recorded stream, as `braid run` does, and keeps what came out. */
#ifndef BRAID_TESTS_FLOWRUN_H
#define BRAID_TESTS_FLOWRUN_H
#include "cluster/run.h"
#include "engine/json.h"

enum { FLOWRUN_SINKS = 8, FLOWRUN_TASKS = 32 };
struct flowrun {
    int nsinks, ntasks;
    struct flowrun_sink {
        char name[64];
        struct sbuf out; /* its records, a line each */
        uint64_t rows;
    } sink[FLOWRUN_SINKS];
    struct flowrun_task {
        char id[64], type[64], signature[33];
        struct op_counts counts;
    } task[FLOWRUN_TASKS];
    uint64_t records, dead;
};
/* `file`: a dataflow file; it reads one topic, which gets the records of `data`. Fails the test on
 * any error, and when rows are not conserved. `batch`: rows a tick, 0: the default. */
void flowrun_file(struct flowrun *r, const char *file, const struct dataset_conf *data,
                  uint32_t batch);
/* The same for a dataflow in a text whose files are named from the repository's root. */
void flowrun_text(struct flowrun *r, const char *text, const struct dataset_conf *data,
                  uint32_t batch);
void flowrun_free(struct flowrun *r);
#endif
