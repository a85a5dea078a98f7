/* The coordinator: owns the plan, the log, the uploaded files and the executor of one process, and
 * carries every change of the plan through them.
 *
 * A change is planned, its topics are made, the executor grafts it and writes the plan records into
 * the epoch in which it takes effect (journal.h), and it counts once that epoch is durable; on any
 * failure before that nothing of it remains. One change at a time.
 *
 * Locks, in this order: `change` (held while a change is on its way, which may last as long as the
 * disk is full), `plan` (held for microseconds; readers take only this one). The executor thread
 * takes neither: what it reports is left in a list of its own (`freed`). Any thread may call any
 * function here but coord_open and coord_close. */
#ifndef BRAID_COORD_H
#define BRAID_COORD_H
#include "cluster/filestore.h"
#include "cluster/journal.h"
#include "engine/executor.h"

enum {
    COORD_SPECS_MAX = 1000,   /* dataflows of one submit */
    COORD_LETTERS_MAX = 10000 /* dead letters of one request: the newest */
};

struct coord;
struct coord_conf {
    const char *dir; /* made when absent */
    enum log_durability durability;
    int64_t segment_bytes;         /* 0: the log's default */
    int64_t align_bytes;           /* 0: the executor's default; executor.h */
    int64_t producers;             /* 0: 65536; see ingest.h */
    uint32_t executors;            /* threads for partitions; 0: one a core */
    int64_t state_memory;          /* bytes of state in memory, the rest in a file; 0: all */
    const struct log_files *files; /* NULL: the real ones */
    bool threadless;               /* tests: the caller drives the executor itself */
};
/* Opens the directory, brings back every dataflow with its instances and state, and starts the
 * executor. On success e->text may hold a note for the operator (log.h). */
int coord_open(struct coord **c, const struct coord_conf *conf, struct err *e);
/* From now on calls that wait for a commit of a change return ERR_SYSTEM. */
void coord_stopping(struct coord *c);
/* Drains to a cut, commits it, closes the log. No other call may run. */
void coord_close(struct coord *c);

void coord_conf(struct coord *c, struct coord_conf *conf); /* as it was opened */
struct log *coord_log(struct coord *c);
struct filestore *coord_files(struct coord *c);
struct executor *coord_executor(struct coord *c);
struct events *coord_events(struct coord *c);
struct ingest *coord_ingest(struct coord *c);

/* One dataflow to submit; borrowed. */
struct coord_spec {
    const char *file; /* for messages; "" */
    const char *text;
    size_t len;
    int nfiles, nvars;
    const struct journal_pair *files; /* name as the config writes it -> hash */
    const struct journal_pair *vars;  /* ${NAME} -> value */
};
/* All of them join at one cut, or none. Appends the answer of POST /v1/dataflows to `out`; returns
 * after the commit, or after planning when `dry`. Errors are in `es`. */
int coord_submit(struct coord *c, const struct coord_spec *specs, int n, bool dry, struct sbuf *out,
                 struct errs *es);
/* Puts a new version in the place of dataflow `name`, in one step: what has not changed goes on
 * with its state; what `state_from` says (new task -> former task), and the file, takes that of a
 * former task over (planner/take.h). Appends the answer of PUT /v1/dataflows/NAME. ERR_NOTFOUND. */
int coord_replace(struct coord *c, const char *name, const struct coord_spec *spec,
                  const struct journal_pair *state_from, int nfrom, bool dry, struct sbuf *out,
                  struct errs *es);
/* Appends the answer of DELETE /v1/dataflows/NAME to `out`; returns after the commit. `drain`:
 * tasks that nobody else uses flush their open windows first; the answer names those that stay. */
int coord_remove(struct coord *c, const char *name, bool drain, struct sbuf *out, struct err *e);
/* The open dead letters of a dataflow (`offsets` of them in braid.dlq; n 0: all) count as dealt
 * with: dropped; or queued again: the record is appended to its topic once more, in the commit that
 * marks the letter. The latter only when it passes through this dataflow alone and makes no row
 * twice: ERR_CONFLICT says why not, and then nothing is done. ERR_NOTFOUND: no such letter. Append
 * the answer of POST /v1/dataflows/NAME/dlq. */
int coord_dlq_drop(struct coord *c, const char *name, const int64_t *offsets, int n,
                   struct sbuf *out, struct err *e);
int coord_dlq_requeue(struct coord *c, const char *name, const int64_t *offsets, int n,
                      struct sbuf *out, struct err *e);
/* Deletes a topic that no dataflow uses, and forgets its producers. ERR_CONFLICT, ERR_NOTFOUND. */
int coord_topic_delete(struct coord *c, const char *topic, struct err *e);
/* Which running tasks read or write a topic: for deciding who may delete it or write to it. */
struct coord_topic_use {
    int readers, writers;
    bool append;                   /* every writer is an appending one */
    char reader[128], writer[128]; /* a dataflow that does; "" */
};
void coord_topic_use(struct coord *c, const char *topic, struct coord_topic_use *use);
#endif
