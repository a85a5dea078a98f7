/* The running graph of one partition and its ticks. A source hands in a batch, every task below it
 * runs once in topological order, outputs go to sinks, the tick's arena is reset. No log, no
 * threads, no clock: executor.h drives it. One thread.
 *
 * Topological order is the order of adding: a graft only adds children of what runs already.
 * Cost of a tick beside the operators: ~40 ns a task (two clock reads, queues). */
#ifndef BRAID_EXEC_H
#define BRAID_EXEC_H
#include "engine/graph.h"
#include "engine/log.h"

struct exec;
struct task;

enum {                     /* engine tables beside the operator's own (STATE_TABLES of them) */
       TABLE_POSITION = 4, /* sources: "" -> int64 next offset */
       TABLE_ALIGN = 5,    /* merging tasks: buffered rows */
       TABLE_ALIGN_META = 6,
       TABLE_COUNTS = 7, /* "" -> the task's counters (exec_counts); not a struct state */
       TABLE_ALL = 8
};

enum { EXEC_DEAD_BYTES = 32 << 10 }; /* of a bad record that its dead letter holds */

struct exec_conf {
    uint32_t partition;  /* of the source topics; part of the positions of rows */
    uint32_t batch_rows; /* rows a tick at most, 1..BATCH_ROWS; 0: BATCH_ROWS */
    int64_t align_bytes; /* a merging task buffers at most this much; 0: 256 MiB */
    struct spill *spill; /* state beyond its budget lies in its file (spill.h); NULL: none */
    /* Rows that reached a sink task; borrowed for the call. */
    void (*sink)(void *arg, struct task *t, const struct batch *b);
    /* A dead letter: `key` is the signature in hex, `json` the row: task, type, signature, topic,
     * partition, offset, sub, code, reason, and "record" (or "record_hex", when it is not UTF-8)
     * with "record_bytes", its length, when it was cut. */
    void (*dead)(void *arg, struct task *t, const char *key, const char *json, size_t len);
    void *arg;
};

struct exec *exec_new(const struct exec_conf *conf);
void exec_free(struct exec *ex);
uint32_t exec_partition(const struct exec *ex);
struct undo *exec_undo(struct exec *ex);

/* Opens and links the tasks of a change (parents first); on failure nothing is added. New tasks see
 * rows from each parent's cut on. With `restore` they see everything; load their state with
 * exec_load, then call exec_rebuild. Tasks in change->remove stop seeing rows at the cut but stay
 * (a redone epoch needs them) until exec_free_removed. */
int exec_apply(struct exec *ex, const struct change *ch, bool restore, struct err *e);
/* Gives the tasks that the applied change removes a watermark of infinity, at its cut: no rows may
 * have passed since. Tasks that stay notice nothing. */
void exec_drain(struct exec *ex, const struct change *ch);
/* Fills the new tasks of change->take (take.c), between exec_apply and the first tick, and again
 * after an undo. ERR_INPUT: the state has another form, or the rows of several sources wait in it.
 */
int exec_take(struct exec *ex, const struct change *ch, struct err *e);
/* Bytes of memory that exec_take would read. */
uint64_t exec_take_bytes(struct exec *ex, const struct change *ch);
/* Takes an applied change back whole, when the driver could not bind one of its tasks. */
void exec_take_back(struct exec *ex, const struct change *ch);
/* The epoch that removed them has committed: frees tasks removed up to plan version `version`,
 * calling `freed` for each instance. */
void exec_free_removed(struct exec *ex, uint64_t version,
                       void (*freed)(void *arg, uint64_t instance), void *arg);
struct task *exec_find(struct exec *ex, uint64_t instance);
int exec_load(struct exec *ex, uint64_t instance, int table, const void *key, uint32_t klen,
              const void *value, uint32_t vlen); /* ERR_NOTFOUND: no such instance or table;
 ERR_SYSTEM: not a value of this table */
/* Asks the cache for what exec_load of this key will look at. */
void exec_load_ahead(struct exec *ex, uint64_t instance, int table, const void *key, uint32_t klen);
/* After loading or undo: derived indexes, timers and alignment anew. */
void exec_rebuild(struct exec *ex);

/* One tick from a source: rows at offsets off, off+1, … become its output; its position moves on.
 */
void exec_tick(struct exec *ex, struct task *source, const struct log_rows *rows, int64_t off);
/* One tick of a source that makes its rows (op->pull), at most `max` of them; how many. */
uint32_t exec_tick_pull(struct exec *ex, struct task *source, uint32_t max);
/* The least time without rows after which a stage below the source takes its stream for idle and
 * has not done so yet; ms. INT64_MAX: none does. */
int64_t exec_idle_ms(const struct task *source);
/* A tick without rows: the source has had none for so long. What follows from it is part of the
 * epoch like all else. */
void exec_tick_idle(struct exec *ex, struct task *source, int64_t silent_ms);
/* Somebody new listens to an exchange: it tells again what it has told already, and so do the
 * stages above it that their streams are idle. */
void exec_retell(struct exec *ex, uint64_t exchange);
/* The source has ended: a watermark of infinity below it. */
void exec_finish(struct exec *ex, struct task *source);
/* True when a merging task's buffer is full and this source is the one ahead. */
bool exec_paused(const struct exec *ex, const struct task *source);

/* Counters as part of an epoch: kept at push, put back at abort (with undo_push / undo_abort). */
/* Before exec_epoch_push: `put` for each task whose counters changed in the running epoch. ~0.1 us
 * and some 40 bytes each. */
void exec_counts(struct exec *ex, state_sink *put, void *arg);
bool task_counted(const struct task *t); /* exec_counts has written or will write it */
void exec_epoch_push(struct exec *ex);
void exec_epoch_commit(struct exec *ex);
void exec_epoch_abort(struct exec *ex);

/* Tables of the tasks that exec_free_removed would free now, to remove their keys from the log. */
void exec_tables(struct exec *ex, uint64_t version,
                 void (*each)(void *arg, uint64_t instance, int table, struct state *s), void *arg);

/* Visits. */
void task_set_user(struct task *t, void *user); /* the driver's: a reader, a topic */
void *task_user(const struct task *t);
const struct task_def *task_def(const struct task *t);
uint32_t task_partition(const struct task *t); /* that of its graph */
uint64_t task_rows_in(const struct task *t);   /* as in task_stats, at once */
int64_t task_position(const struct task *t);   /* sources: next offset; file sinks: length */
bool task_has_position(const struct task *t);  /* false after undo of its first epoch */
void task_seek(struct task *t, int64_t off); /* sources: before the first tick; part of the epoch */
struct task_stats { /* the first three since its instance was started, over restarts */
    struct op_counts counts;
    uint64_t batches, ns, state_keys, state_bytes;
    int64_t wm;           /* watermark below it; TIME_MIN: none yet */
    int64_t held_bytes;   /* merging tasks: rows that wait for another source */
    const char *held_for; /* the topic they wait for, when the buffer is full and the source that is
                           * ahead pauses; else NULL. The task's memory */
    int64_t history_from; /* offset of its origin from which it has seen rows; -1: from its start,
                           * or restored */
};
void task_stats(struct task *t, struct task_stats *s);
/* Calls `each` for all tasks in topological order. */
void exec_each(struct exec *ex, void (*each)(void *arg, struct task *t), void *arg);
/* Number of sources; source i. */
int exec_sources(const struct exec *ex);
struct task *exec_source(const struct exec *ex, int i);
/* in = passed + filtered + late + rejected + absorbed and out = passed + made. */
bool op_counts_conserved(const struct op_counts *c);
#endif
