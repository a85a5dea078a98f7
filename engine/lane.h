/* The partitions of the merged graph and the threads that run them (executor.c only).
 *
 * A *shard* holds the tasks that run on one partition number: a graph (exec.h) with its sources and
 * sinks. A task of P partitions is in shards 0..P-1. Shard s belongs to lane s % lanes. A *lane* is
 * a thread with its part of the running epoch; lane 0 is the executor's own thread. Lanes run in
 * rounds: between two rounds only the executor touches shards, so that a change of the graph, a
 * commit and an undo need no lock, and one epoch holds the work of all lanes.
 *
 * Cost of a round with several lanes: two wake-ups a lane (~20 us), and waiting for the lane that
 * the committer has taken the core from; so rounds are long, and end early when somebody waits. */
#ifndef BRAID_LANE_H
#define BRAID_LANE_H
#include "engine/port.h"
#include <stdatomic.h>
#include <uv.h>

enum { LANE_ROUND_MS = 10 };

struct lanes;
struct lane;
struct shard {
    struct lane *lane;
    uint32_t no;
    struct exec *ex;
    struct ports ports;
};
struct lane {
    struct lanes *all;
    uint32_t no;
    struct log_epoch *epoch; /* NULL: nothing yet */
    struct log_buf *dead;
    bool overflow;       /* something did not fit into the epoch */
    bool dirty;          /* a tick ran in this epoch */
    uint32_t skip;       /* sources that the next pass leaves out: the last one ended behind them */
    int64_t next_due_ns; /* of the generators, when none had a row now */
    /* of the last round */
    bool read;
    uint64_t seen; /* `appended` when it began */
    int rc;        /* of closing the epoch */
    struct err err;
    /* thread */
    uv_thread_t thread;
    uv_cond_t go;
    bool started, run;
};
struct lanes {
    struct executor_conf conf;
    uint32_t n;         /* lanes */
    uint32_t tick_rows; /* of a source; below conf.batch_rows after an epoch that did not fit */
    struct lane lane[EXECUTOR_LANES_MAX];
    struct shard **shard;
    uint32_t nshards;
    _Atomic uint64_t appended; /* commits that brought rows to some topic */
    atomic_bool hurry;         /* somebody waits: the round ends with the tick */
    /* of the round: set by the executor before it begins */
    void (*work)(struct lane *l);
    bool exchanges; /* nothing else is read */
    bool redo;      /* an epoch runs again: on to the cut of every change in it, whatever waits */
    state_sink *put;
    int64_t until_ns;
    uv_mutex_t mutex;
    uv_cond_t done;
    uint32_t running;
    bool threaded, stop;
};

/* One lane without a thread of its own, one shard. conf->lanes lanes once started. */
void lanes_init(struct lanes *ls, const struct executor_conf *conf);
int lanes_start(struct lanes *ls, struct err *e);
void lanes_stop(struct lanes *ls); /* joins the threads; shards stay */
void lanes_free(struct lanes *ls);

/* Shards 0..n-1 are there. Only when no epoch commits and the running one is empty. */
void lanes_grow(struct lanes *ls, uint32_t n);

/* One round: every source of every shard is read; true when a row was. */
bool lanes_run(struct lanes *ls, bool redo);
/* The same for the readers of exchanges alone. */
bool lanes_run_exchanges(struct lanes *ls);
/* Lanes that have shards. */
size_t lanes_used(const struct lanes *ls);
/* All lanes look for rows in the next round. */
void lanes_rouse(struct lanes *ls);
bool lanes_behind(const struct lanes *ls); /* ports_behind of any shard */
bool lanes_dirty(const struct lanes *ls);
int64_t lanes_due_ns(const struct lanes *ls); /* when a generator has a row; INT64_MAX: none */

/* ---- epochs ---- */
struct log_epoch *lane_epoch(struct lane *l); /* begins it when there is none */
/* What the running epoch holds: rows, changed state, bytes for sink files. */
size_t lanes_bytes(const struct lanes *ls);
/* Sources wait beyond this while another epoch commits. */
size_t lanes_hold(const struct lanes *ls);
/* Dead letters, sink files and changed state (by `put`, called with the shard) go into the lanes'
 * epochs, then all of them into lane 0's; its `overflow` says that they do not fit. */
int lanes_close_epoch(struct lanes *ls, state_sink *put, struct err *e);
void lanes_drop_epoch(struct lanes *ls);
#endif
