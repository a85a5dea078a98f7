/* The plan on disk: which dataflows run, and which instances their tasks are bound to.
 *
 * There is no second store. The records are state keys of the log, written in the same commit frame
 * as the data of the epoch in which a change takes effect (executor_change.record). So a submit,
 * the cut at which it joins, and the rows before and after that cut become durable together or not
 * at all; no protocol between two stores, nothing to reconcile at restart. This is why the local
 * log needs no SQLite beside it.
 *
 *   "PM"                 JSON: plan version, next instance, cut and serial
 *   "PD" + u64 serial    JSON: one dataflow: text, files, variables, cut, bindings (plan_save)
 *   "PH" + u64 instance  i64 offset and topic: from which row on the instance has seen its input
 * Numbers in keys are big-endian, so that keys sort by submission. No threads of its own. */
#ifndef BRAID_JOURNAL_H
#define BRAID_JOURNAL_H
#include "engine/json.h"
#include "engine/log.h"

struct journal_pair { /* a file (name, hash) or a variable (name, value) */
    const char *name, *text;
};
struct journal_flow {
    uint64_t serial; /* order of submission over all time */
    const char *name, *file, *description, *text;
    size_t len; /* of text */
    int nfiles, nvars;
    const struct journal_pair *files, *vars;
    int64_t submitted_ms;
    uint64_t cut;
    const char *plan; /* as plan_save wrote it */
    size_t plan_len;
};
struct journal_history {
    uint64_t instance;
    int64_t offset;    /* -1: unknown */
    const char *topic; /* "" when it is fed by several */
};
struct journal_meta {
    uint64_t version, next_instance, cut, serial;
};

void journal_put_meta(struct log_epoch *ep, const struct journal_meta *m);
/* The record's text, to be made before the epoch; put it with journal_put_flow. */
void journal_flow_text(struct sbuf *out, const struct journal_flow *f);
void journal_put_flow(struct log_epoch *ep, uint64_t serial, const char *text, size_t len);
void journal_drop_flow(struct log_epoch *ep, uint64_t serial);
void journal_put_history(struct log_epoch *ep, const struct journal_history *h);
void journal_drop_history(struct log_epoch *ep, uint64_t instance);

struct journal {
    struct journal_meta meta;
    int nflows, nhistory;
    struct journal_flow *flows; /* by serial */
    struct journal_history *history;
};
/* Reads everything into `a`. ERR_SYSTEM when a record cannot be understood. */
int journal_read(struct journal *j, struct log *log, struct arena *a, struct err *e);
#endif
