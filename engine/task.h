/* Inside of the executor: running tasks and their links (exec.c, tick.c, align.c only). */
#ifndef BRAID_TASK_H
#define BRAID_TASK_H
#include "engine/exec.h"

struct queue { /* batches waiting on a link this tick; memory of the tick's arena */
    const struct batch **v;
    uint32_t n, cap;
};
struct link {
    struct task *from, *to;
    uint16_t out_port, in_port;
    /* Rows at offsets (of the parent's origin) in [since, until) pass. Kept after the cut, so that
     * a redone epoch gives the same rows to the same readers; two compares a batch. */
    int64_t since, until;
    struct link *next; /* of the same parent */
    struct queue q;
    /* merging: next row of the queue */
    uint32_t head_batch, head_row;
};
struct task {
    struct exec *ex;
    const struct task_def *def, *prev_def; /* before the last update */
    struct op_ctx ctx;
    void *self;
    struct state *table[TABLE_ALL];
    struct link *in; /* in the user's order */
    int nlinks;      /* def->nlinks; 0 for a source: the link from an exchange to its reader, which
                      * may run on other partitions, is the topic between them */
    struct link *out;
    struct task *origin; /* the source, or merging task, whose offsets its output carries */
    struct align *align; /* not NULL: merges several origins */
    uint64_t seq;        /* topological order */
    uint64_t tick;       /* the last one it ran in */
    uint64_t touched;    /* the last epoch it ran in */
    uint32_t point;      /* timers: next point of this tick's timeline */
    struct op_counts counts, kept, pending; /* running; before the committing / the running epoch */
    uint64_t batches, ns;
    int64_t history_from;
    int64_t out_wm; /* watermark of its output after the last tick; TIME_MIN: none, or undone */
    bool idle;      /* its output was idle after the last tick; false: no, or undone */
    uint64_t removed_by; /* plan version; 0: alive */
    /* sources */
    struct task **reach; /* tasks below it, in order, itself excluded */
    uint32_t nreach, reach_cap;
    struct task **silent; /* of them, the stages that take it for idle after a while */
    uint32_t nsilent, silent_cap;
    int64_t position;
    void *user;
    char sig_hex[33];
};
struct task_list {
    struct task **v;
    uint32_t n, cap;
};
struct exec {
    struct exec_conf conf;
    struct undo *undo;
    struct arena arena;
    struct task **task; /* all, in topological order */
    uint32_t ntasks, cap;
    uint32_t naligns; /* of them, merging tasks */
    struct task **source;
    uint32_t nsources, sources_cap;
    struct task **by_instance; /* open addressing; removed tasks are taken out by a rebuild */
    uint64_t by_mask;
    uint64_t seq, tick, epoch;
    struct task_list touched[2]; /* tasks that ran in the running and the committing epoch */
    bool ending;                 /* in exec_finish */
    int64_t end_off;
};

/* exec.c */
void task_touch(struct task *t); /* it takes part in the running epoch */

/* tick.c */
extern const struct op_host exec_host;
void task_run(struct task *t);
/* The watermark after this tick's part of a stream; without event time, the latest log time in it.
 * TIME_MIN: this tick brought none. */
int64_t origin_last_wm(const struct origin *o);
void task_out_wm(struct task *t); /* after its part of the tick: its watermark, and idle or not */
/* Hands rows of in-port `port` to the operator, stopping at due points of the timeline. */
void task_deliver(struct task *t, int port, const struct batch *b);
void task_timers(struct task *t); /* the rest of this tick's timeline */
/* In the last tick: the task's children see one more point, at infinity, offset ex->end_off. */
void origin_end(struct task *t);
void queue_add(struct arena *a, struct queue *q, const struct batch *b);

/* limits.c: tasks with limits on their state (def->limits). */
struct state *limits_state(struct task *t, int table, uint32_t vsize); /* any task: a new table */
/* Hands rows to the operator; those whose key finds no room are rejected. */
void limits_deliver(struct task *t, int port, const struct batch *b);
void limits_expire(struct task *t); /* at the end of its part of a tick */

/* align.c: a task fed by several origins. Rows wait in state until no origin can deliver an earlier
 * one; then they go on in (order time, link, position) order under new offsets. */
struct align *align_new(struct task *t, bool restore);
void align_free(struct task *t);
/* Takes this tick's rows of all links in and hands on what is due. */
void align_run(struct task *t);
void align_rebuild(struct task *t);
void align_push(struct task *t); /* with exec_epoch_push, exec_epoch_commit */
void align_commit(struct task *t);
bool align_full(const struct task *t);
/* The source is ahead of what a full buffer waits for. */
bool align_ahead(const struct task *t, const struct task *source);
/* The source that the lowest watermark comes from. */
struct task *align_holder(const struct task *t);
void align_stats(const struct task *t, struct task_stats *s); /* held_bytes, held_for */
#endif
