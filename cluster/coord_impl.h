/* Inside of the coordinator: for coord.c, submit.c, stats.c, view*.c, http_rows.c only. */
#ifndef BRAID_COORD_IMPL_H
#define BRAID_COORD_IMPL_H
#include "cluster/coord.h"
#include "planner/merge.h"
#include <pthread.h>

struct stats;
struct dlq;

/* A running dataflow, beside what the planner knows of it (plan_find by name). */
struct dataflow {
    uint64_t serial;
    const char *name, *file, *description;
    int64_t submitted_ms;
    struct dataflow *prev, *next; /* by serial */
    struct arena arena;
};
/* Since when an instance has seen its input. */
struct history_entry {
    uint64_t instance;
    int64_t offset;
    char *topic;
    struct history_entry *next; /* hash chain */
};
struct pending;

struct coord {
    struct coord_conf conf;
    char *dir, *out_dir;
    struct log *log;
    struct filestore *files;
    struct executor *executor;
    struct spill *spill; /* NULL: all state in memory */
    struct events *events;
    struct ingest *ingest;
    struct dlq *dlq;
    pthread_mutex_t dlq_lock; /* between change and plan: one drop or requeue at a time */
    int64_t started_ms;
    pthread_mutex_t change_lock, plan_lock;
    /* under plan_lock */
    struct plan *plan;
    struct dataflow *first, *last;
    int ndataflows;
    struct history_entry **history;
    uint32_t history_mask, nhistory;
    uint64_t cut, serial; /* last given; under change_lock too */
    /* the change on its way */
    pthread_mutex_t wait_lock;
    pthread_cond_t wait_cond;
    struct pending *pending;
    bool stopping;
    bool stuck; /* a change was given up while its outcome was open: no further ones */
    /* instances the executor has freed, for the planner to free */
    pthread_mutex_t freed_lock;
    uint64_t *freed;
    uint32_t nfreed, freed_cap;
    pthread_mutex_t stats_lock;
    struct stats *stats; /* the last snapshot; one reference */
};

/* Takes plan_lock and frees what the executor has let go of. */
void coord_lock(struct coord *c);
void coord_unlock(struct coord *c);
/* Under plan_lock. */
struct dataflow *coord_dataflow(const struct coord *c, const char *name); /* NULL: not running */
struct dataflow *coord_add(struct coord *c, const struct journal_flow *f);
void coord_drop(struct coord *c, struct dataflow *d);
void coord_history_set(struct coord *c, const struct journal_history *h);
void coord_history_drop(struct coord *c, uint64_t instance);
const struct history_entry *coord_history(const struct coord *c, uint64_t instance);

/* What a spec may ask for: its variables, secrets and files. */
struct coord_env {
    struct coord *c;
    int nfiles, nvars;
    const struct journal_pair *files, *vars;
    struct arena *arena;
};
void coord_spec_env(struct coord_env *ce, struct spec_env *env);

/* executor_change callbacks (submit.c). */
void change_record(void *arg, struct exec *ex, struct log_epoch *ep);
void change_done(void *arg, int rc, const struct err *e);
void change_freed(void *arg, uint64_t instance);
void pending_free(struct pending *p);
#endif
