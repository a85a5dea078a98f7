/* The executor: drives graphs (exec.h), one for each partition number, over a log. A thread with a
 * libuv loop commits epochs (appended rows, changed state and positions in one frame, DESIGN 7);
 * it and its helpers read the sources and run ticks (lane.h).
 *
 * An epoch closes as soon as the previous one has committed and no input waits (so latency at low
 * load is one commit), or at EXECUTOR_EPOCH_BYTES a lane or EXECUTOR_EPOCH_MS under load. While one
 * commits the next one runs, holding at most a quarter of epoch_bytes in rows, state and bytes of
 * sink files, beside what one tick adds; then sources wait. Should an epoch not fit all the same,
 * it runs again in smaller ticks; only what a single row causes must fit, else the executor stops.
 * A confirmed abort undoes both and tries again after 0.1 s, doubling to 5 s. An unknown outcome
 * stops the executor: only reopening the log can tell. */
#ifndef BRAID_EXECUTOR_H
#define BRAID_EXECUTOR_H
#include "engine/exec.h"

enum {
    EXECUTOR_EPOCH_BYTES = 8 << 20,
    EXECUTOR_EPOCH_MS = 20,
    EXECUTOR_LANES_MAX = 64,
    EXECUTOR_TAP_BYTES = 4 << 20,
    EXECUTOR_TOMBSTONES = 10000 /* keys of pruned tasks removed per epoch */
};
#define EXECUTOR_DLQ "braid.dlq"

struct executor;
struct executor_conf {
    struct log *log;
    const char *out_dir;           /* `file` sinks write below it; NULL: refused */
    const struct log_files *files; /* their file layer; NULL: the real one */
    bool sync_files;     /* their bytes are on the disk before the commit (durability `power`) */
    uint32_t lanes;      /* threads that run partitions; 0: 1. lane.h */
    uint32_t batch_rows; /* 0: BATCH_ROWS */
    size_t epoch_bytes;  /* rows and state of one epoch; 0: LOG_EPOCH_BYTES */
    int64_t align_bytes; /* rows that a merging task holds, before its source ahead pauses; 0: as
                          * in exec.h */
    const int64_t *idle_clock; /* ns that silent sources are measured by (tests); NULL: real time */
    int64_t retry_ms;          /* after the first abort; 0: 100. Doubles up to 5 s */
    struct spill *spill;       /* state beyond its budget (spill.h); NULL: all of it in memory */
};

/* A change of the graph on its way: filled by the caller, kept by it until `done`. */
struct executor_change {
    struct change change;
    /* Executor thread, right after the change took effect, and again if its epoch was aborted: adds
     * plan records to the epoch. task_position etc. of new tasks are set. */
    void (*record)(void *arg, struct exec *ex, struct log_epoch *ep);
    /* Executor thread: the change is durable (rc 0), or prepare failed and nothing happened. */
    void (*done)(void *arg, int rc, const struct err *e);
    /* Executor thread, later: this instance is gone, its task_def may be freed. */
    void (*freed)(void *arg, uint64_t instance);
    void *arg;
    struct executor_change *next; /* the executor's */
};

int executor_new(struct executor **x, const struct executor_conf *conf, struct err *e);
/* Before the first step: the tasks of the last committed plan with their state from the log.
 * State of instances that no longer exist is removed. */
int executor_restore(struct executor *x, const struct change *all, struct err *e);
/* Runs on a thread of its own until executor_stop. */
int executor_start(struct executor *x, struct err *e);
/* Reads no more, closes the running epoch, waits for its commit, ends the thread. */
void executor_stop(struct executor *x);
void executor_free(struct executor *x);

/* Any thread. */
void executor_submit(struct executor *x, struct executor_change *c);
/* Calls `visit` on the executor thread between two ticks, for the graph of every partition, and
 * waits for it; on the caller's thread once the executor has failed. */
void executor_visit(struct executor *x, void (*visit)(void *arg, struct exec *ex), void *arg);
struct executor_health {
    bool failed;   /* stopped for good: `err` says why */
    bool degraded; /* commits are being retried */
    struct err err;
    uint64_t commits, aborts;
    uint64_t last_commit; /* number */
};
void executor_health(struct executor *x, struct executor_health *h);

/* Follows the rows of a sink that stores nothing (`tail NAME`), as they commit. */
struct executor_tap {
    uint64_t instance; /* of the sink's last stage */
    /* Executor thread, after each commit that brought rows; `skipped` rows did not fit into
     * EXECUTOR_TAP_BYTES an epoch (all of them: `rows` is empty). Must not block. */
    void (*rows)(void *arg, const struct log_rows *rows, uint64_t skipped);
    void (*gone)(void *arg); /* executor thread: the sink was pruned; the tap is out already */
    void *arg;
    struct tap_buf { /* the executor's: payloads of the running [0] and committing [1] epoch */
        struct log_buf **v;
        uint32_t n, cap;
        size_t bytes;
        uint64_t skipped;
    } buf[2];
    struct executor_tap *next, *copy_of; /* the executor's */
};
/* ERR_NOTFOUND: no running sink has this instance, or it is one that stores its rows. The tap
 * belongs to the caller until executor_untap returns (or `gone` was called). */
int executor_tap(struct executor *x, struct executor_tap *tap);
void executor_untap(struct executor *x, struct executor_tap *tap);

/* Without a thread (tests): one round; false when there was nothing to do and nothing is open. */
bool executor_step(struct executor *x);
/* Without a thread: rounds until no input waits and nothing is open. */
void executor_settle(struct executor *x);
/* Test hook: the next epoch that closes is aborted as if the log had refused it. */
void executor_inject_abort(struct executor *x);
/* From which offset on an instance has seen the rows of its origin, for a source its position; the
 * sum of both over the partitions it runs on. -1: from its start. Executor thread. */
int64_t executor_history(struct executor *x, uint64_t instance);
/* A source's error, NULL when it runs. Executor thread. */
const struct err *executor_source_error(struct executor *x, const struct task *source);
#endif
