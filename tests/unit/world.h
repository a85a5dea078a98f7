/* A whole engine in one test: a local log in a temporary directory, the planner, an executor that
 * runs when told. What the server does with threads and HTTP, the test does step by step. */
#ifndef BRAID_TESTS_WORLD_H
#define BRAID_TESTS_WORLD_H
#include "engine/executor.h"
#include "planner/merge.h"

#define WORLD_LOG_TIME INT64_C(1700000000000)
struct world_flow {
    char name[32];
    char *text;
    struct flow *flow; /* of the plan, while it runs */
    struct sbuf saved; /* plan_save at submit */
    uint64_t order;
    bool running;
    void *user; /* the test's */
};
struct world {
    char dir[64], out_dir[72]; /* `file` sinks write below out_dir */
    struct log *log;
    struct plan *plan;
    struct executor *x;
    uint32_t batch_rows;
    size_t epoch_bytes;
    uint32_t lanes;
    int64_t align_bytes;
    int64_t idle_ns;  /* the clock that silent sources are measured by: the test moves it */
    struct fault *ft; /* `power`: files that lose what was not synced; NULL: real files */
    int boots;
    struct world_flow *flow;
    int nflows, cap;
    uint64_t cut;
    /* Called on the executor's side of a submit or removal, at its cut; not again after an abort.
     */
    void (*at_cut)(struct world *w, const struct change *ch, struct exec *ex);
};

struct world_conf { /* all may be 0 */
    uint32_t batch_rows;
    bool power;
    size_t epoch_bytes;
    uint32_t lanes;      /* they take turns on the test's thread */
    int64_t align_bytes; /* of merging tasks */
};
void world_open_conf(struct world *w, const struct world_conf *conf);
/* `power`: the log syncs each commit, and world_restart is a loss of power. */
void world_open(struct world *w, uint32_t batch_rows, bool power);
/* With less room in an epoch; 0: as usual. */
void world_open_small(struct world *w, uint32_t batch_rows, bool power, size_t epoch_bytes);
void world_close(struct world *w);                    /* removes the directory */
void world_topic(struct world *w, const char *topic); /* unless it exists */
void world_topic_parts(struct world *w, const char *topic, uint32_t partitions);
/* Appends records (one a line) and commits. */
void world_append(struct world *w, const char *topic, const char *lines);
void world_append_to(struct world *w, const char *topic, uint32_t partition, const char *lines);
/* The others have WORLD_LOG_TIME. */
void world_append_at(struct world *w, const char *topic, uint32_t partition, const char *lines,
                     int64_t log_ms);
/* Parses, plans, grafts; returns when it is durable. Fails the test on any error. */
struct world_flow *world_submit(struct world *w, const char *text);
/* As world_submit, but hands the error back: 0 or negative. */
int world_try(struct world *w, const char *text, struct world_flow **f, struct errs *es);
void world_remove(struct world *w, struct world_flow *f, bool drain);
/* Stops without a last epoch, as kill -9 would, or loses power; starts from the log. */
void world_restart(struct world *w);
/* Everything in a topic, one record a line. */
void world_read(struct world *w, const char *topic, struct sbuf *out);
void world_read_part(struct world *w, const char *topic, uint32_t partition, struct sbuf *out);
int64_t world_end(struct world *w, const char *topic);
/* Spec environment: files below the repository root. */
extern const struct spec_env world_env;
#endif
