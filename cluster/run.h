/* One dataflow alone, in this process, over recorded streams: parse, plan, run to the end of the
 * input. No log, no server, no epochs: the same planner, executor core and operators as `braid up`
 * uses. Behind `braid run`, its tests and the in-process benchmarks.
 *
 * Cost beside the tasks: ~60 ns a record (rendering the dataset's line, copying it once); no
 * allocation a record. State changes are made final every RUN_UNDO_TICKS ticks, as an epoch would,
 * so that the undo layer stays small (0.0 % of the instructions of ETL, 0.5 % of those of STATS).
 * One thread. */
#ifndef BRAID_RUN_H
#define BRAID_RUN_H
#include "cluster/dataset.h"
#include "engine/exec.h"
#include "planner/spec.h"

enum {
    RUN_UNDO_TICKS = 64,
    RUN_TICK_BYTES = 4 << 20 /* a tick's records, at most (one record may be larger) */
};

struct run_input {
    const char *topic;
    struct dataset_conf data; /* CSV also when a task reads the topic as CSV */
};
/* Where rows come out: a sink task of the dataflow. */
struct run_sink {
    const char *name; /* its topic, or file, or else the task's id */
    const char *task;
    int index;
    uint64_t rows, bytes;
};
struct run_conf {
    const struct spec *spec;
    int ninputs;
    const struct run_input *inputs; /* at least one for each topic that is read */
    int64_t now_ms;                 /* the log time of every record */
    uint32_t batch_rows;            /* 0: BATCH_ROWS */
    int64_t limit;                  /* records of each source at most; 0: all */
    bool stepped;                   /* no inputs: the caller hands records in, see run_push */
    /* Rows of a sink, one call a batch; column 0 is the record. NULL: counted only. Returns 0, or
     * a negative code that ends the run. */
    int (*rows)(void *arg, const struct run_sink *s, const struct batch *b);
    /* A dead letter as JSON with its code. NULL: counted only. */
    int (*dead)(void *arg, const char *json, size_t len);
    void *arg;
};
enum { RUN_CODES_MAX = 32 };
struct run_totals {
    uint64_t records, bytes; /* that came in */
    uint64_t dead;
    int ncodes; /* dead letters by code, in order of appearance; further codes count as "other" */
    struct run_code {
        char code[32];
        uint64_t n;
    } codes[RUN_CODES_MAX];
    int64_t ns;      /* of the run, without opening */
    int64_t open_ns; /* planning, opening files */
};
struct run_task { /* a task as the user wrote it: its stages together */
    const char *id, *type;
    char signature[33]; /* of its last stage */
    struct op_counts counts;
    uint64_t ns, state_keys, state_bytes;
};

struct run;
/* Plans and opens everything. On failure *r is NULL and `es` tells why. */
int run_open(struct run **r, const struct run_conf *conf, struct errs *es);
/* To the end of all inputs, then a watermark of infinity. */
int run_all(struct run *r, struct err *e);
/* The delimiter when a task reads the topic's records as CSV, else 0. */
char run_delimiter(const struct spec *s, const char *topic);
/* Ends all inputs after the running tick. Any thread; signal handlers. */
void run_stop(struct run *r);

/* ---- with conf.stepped, instead of run_all: the caller is clock and input ---- */
struct run_record {
    const char *data; /* NULL: a null value (a tombstone) */
    uint32_t len, klen;
    const char *key; /* NULL: none */
    int64_t time;    /* given by its writer; LOG_NO_TIME: none */
};
/* First: tables in files are read, whole. */
int run_begin(struct run *r);
/* Records handed in from now on count as received then. */
void run_clock(struct run *r, int64_t now_ms);
/* Records of a topic, to each source that reads it; their rows are out when it returns.
 * ERR_NOTFOUND: none reads it. ERR_INPUT: it has ended. */
int run_push(struct run *r, const char *topic, const struct run_record *v, uint32_t n,
             struct err *e);
/* The next rows of a source task that makes its own; how many came (fewer than n at its end). */
int64_t run_pull(struct run *r, const char *task, int64_t n, struct err *e);
/* A topic (or a source task that makes its own rows) ends; NULL: whatever has not ended yet. */
int run_end(struct run *r, const char *name, struct err *e);

void run_totals(const struct run *r, struct run_totals *t);
int run_tasks(const struct run *r); /* how many; in the file's order */
void run_task(const struct run *r, int i, struct run_task *t);
int run_sinks(const struct run *r);
const struct run_sink *run_sink(const struct run *r, int i);
/* True, and the task of the first that is not, when in = passed + filtered + late + rejected +
 * absorbed and out = passed + made hold for every stage. */
bool run_conserved(const struct run *r, const char **task);
void run_close(struct run *r);
#endif
