/* The conformance suite of log.h: every driver passes it. */
#ifndef BRAID_LOG_SUITE_H
#define BRAID_LOG_SUITE_H
#include "engine/log.h"

struct log_suite {
    const char *name;
    void *arg;
    /* An empty log. */
    struct log *(*fresh)(void *arg, int64_t segment_bytes);
    /* Closes it and opens what it left. */
    struct log *(*reopen)(void *arg, struct log *log);
    /* Closes and removes it. */
    void (*discard)(void *arg, struct log *log);
};
/* Runs all cases as one cmocka group; the number of failures. */
int log_suite_run(const struct log_suite *suite);

/* ---- for tests of drivers too ---- */
/* A sealed buffer of n records "TEXT-i" from i = from on; `keys` adds keys "k(i%7)", each third
 * null. */
struct log_buf *suite_buf(const char *text, int64_t from, uint32_t n, bool keys);
/* Commits `n` such records to the topic, state key "pos" = from + n; asserts success. */
void suite_put(struct log *log, const char *topic, const char *text, int64_t from, uint32_t n);
/* Asserts that the records of the topic from offset `from` on are "TEXT-i", i = offset, up to
 * `end`. */
void suite_expect(struct log *log, const char *topic, const char *text, int64_t from, int64_t end);
void suite_topic(struct log *log, const char *topic, int64_t retention);
/* ---- for the cases ---- */
struct log *suite_log(void **state);   /* of the running case */
struct log *suite_again(void **state); /* closed and opened again */
/* Rows as of suite_put, appended at `time`. */
void suite_append(struct log_epoch *ep, const char *topic, const char *text, int64_t from,
                  uint32_t n, int64_t time);
void suite_commit(struct log_epoch *ep);
void suite_expect_rows(const struct log_rows *rows, const char *text, int64_t offset);
/* log_suite_keep.c */
void suite_retention_drops_the_oldest(void **state);
void suite_retention_by_age(void **state);
void suite_trims(void **state);
void suite_trims_of_everything(void **state);
void suite_records_have_more_than_a_value(void **state);
void suite_compaction(void **state);
#endif
