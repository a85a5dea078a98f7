/* Stream logs: topics of partitions of records with offsets, and epochs that commit appended
 * records, state changes and positions at once. One interface, one conformance suite
 * (tests/unit/log_suite.c) that every driver passes. Drivers: log_local (files, one process).
 *
 * Threads: topic calls, readers and epochs may be used from any thread, each reader and each epoch
 * by one thread at a time. Commits are ordered by log_commit calls; callbacks run on the driver's
 * committer thread. */
#ifndef BRAID_LOG_H
#define BRAID_LOG_H
#include "engine/err.h"
#include "engine/log_rows.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOG_RECORD_MAX = 16 << 20,   /* bytes of one value */
    LOG_NAME_MAX = 249,          /* topic: [A-Za-z0-9._-]+ as in Kafka */
    LOG_BUF_BYTES = 1 << 20,     /* a payload is closed beyond this */
    LOG_EPOCH_BYTES = 256 << 20, /* an epoch holds at most this much: ERR_INPUT beyond */
    LOG_KEY_MAX = 65536,         /* bytes of a state key */
    LOG_KEY_RESERVED = 0xff      /* state keys that start with it belong to the driver */
};

/* A payload under construction, then immutable and counted, so that twenty sinks of the same rows
 * write one buffer. Pooled. */
struct log_buf {
    uint32_t n, cap_n;
    uint32_t *value_end;
    char *values;
    uint32_t values_len, values_cap;
    uint32_t *key_end; /* NULL until the first key */
    char *keys;
    uint32_t keys_len, keys_cap;
    int64_t *times;       /* NULL until the first time */
    uint32_t *header_end; /* NULL until the first header */
    char *headers;
    uint32_t headers_len, headers_cap;
    uint32_t crc; /* of the payload, once sealed */
    bool sealed;
    int refs; /* atomic */
};
struct log_buf *log_buf_new(void);
void log_buf_ref(struct log_buf *b);
void log_buf_unref(struct log_buf *b);
/* Room for a value of up to `max` bytes; write there, then log_buf_end(b, len). */
char *log_buf_room(struct log_buf *b, size_t max);
void log_buf_end(struct log_buf *b, size_t len);
void log_buf_null(struct log_buf *b); /* a null value: with a key it is a tombstone */
/* Of the last value: */
void log_buf_key(struct log_buf *b, const char *key, size_t len, bool null);
void log_buf_time(struct log_buf *b, int64_t ms); /* LOG_NO_TIME: as if none had been given */
void log_buf_header(struct log_buf *b, const char *name, size_t nlen, const char *value,
                    size_t vlen); /* value NULL: null */
/* Record i of `from`, with all it has. */
void log_buf_copy(struct log_buf *b, const struct log_rows *from, uint32_t i);
size_t log_buf_bytes(const struct log_buf *b); /* in memory and on disk, but for padding */
void log_buf_seal(struct log_buf *b);
void log_buf_rows(const struct log_buf *b, struct log_rows *rows);

/* ---- log and topics ---- */
enum log_durability { LOG_PROCESS, LOG_POWER };
struct log_files; /* file layer, replaced by tests to inject faults; see files.h */
struct log_conf {
    const char *dir;
    enum log_durability durability;
    int64_t segment_bytes; /* 0: 256 MiB */
    int64_t commit_bytes;  /* length at which a commit log is merged into the state snapshot;
                            * 0: that of the snapshot, within 64..256 MiB */
    int64_t tombstone_ms;  /* 0: 24 h */
    int64_t tend_ms;       /* how often what is too old is looked for; 0: 10 s */
    const struct log_files *files; /* NULL: the real ones */
};
struct log;
struct log_topic_conf {
    uint32_t partitions;
    int64_t retention_bytes; /* -1: keep all. Whole segments are dropped from the oldest */
    int64_t retention_ms;    /* 0: keep all. Records appended longer ago go, within tend_ms */
    bool
        compact; /* of the records of a key only the last is kept, but for the newest segment; a
                  * tombstone goes tombstone_ms after its append. Offsets stay: readers pass gaps */
};
struct log_topic_info {
    char name[LOG_NAME_MAX + 1];
    struct log_topic_conf conf;
    uint64_t id;        /* never used again: tells it from an earlier topic of its name */
    int64_t begin, end; /* committed; with several partitions the sums, whose difference is the
                         * number of records. Offsets: log_topic_ends */
    int64_t bytes;      /* of its files */
};
/* On success e->text is not empty when recovery cut something that nobody was told is committed;
 * it says what (a note for the operator; e->code is 0). */
int log_open(struct log **log, const struct log_conf *conf, struct err *e);
/* Waits for running commits. Open readers must be closed before. */
void log_close(struct log *log);
int log_topic_create(struct log *log, const char *name, const struct log_topic_conf *conf,
                     struct err *e); /* ERR_CONFLICT when it exists */
int log_topic_delete(struct log *log, const char *name, struct err *e);
int log_topic_info(struct log *log, const char *name, struct log_topic_info *info, struct err *e);
/* Committed begin and end of one partition; ERR_NOTFOUND when there is none. */
int log_topic_ends(struct log *log, const char *name, uint32_t partition, int64_t *begin,
                   int64_t *end, struct err *e);
/* Calls `each` for all topics in name order; stops when it returns non-zero. */
int log_topic_list(struct log *log, int (*each)(void *, const struct log_topic_info *), void *arg);
/* First offset appended at or after `ms`; the end if none. */
int64_t log_offset_at(struct log *log, const char *topic, uint32_t partition, int64_t ms);

/* ---- readers ---- */
struct log_reader;
int log_reader_open(struct log *log, const char *topic, uint32_t partition, int64_t offset,
                    struct log_reader **r, struct err *e);
/* Up to `max` committed records from the reader's position on. Returns the number (0: none yet) or
 * negative: ERR_NOTFOUND position below the begin or topic gone, ERR_SYSTEM corrupt segment (e says
 * file, byte, offsets lost; *offset is the first one behind the damage, to seek to: until then the
 * error repeats). `rows` points into a mapped segment and holds until the next read or close.
 * *offset is that of the first, the others follow without a gap; before it compaction may have left
 * one. */
int log_read(struct log_reader *r, uint32_t max, struct log_rows *rows, int64_t *offset,
             struct err *e);
int log_seek(struct log_reader *r, int64_t offset, struct err *e);
void log_reader_close(struct log_reader *r);
/* `wake` is called (committer thread) after a commit that appended to the topic and when the topic
 * is created or deleted; it need not exist yet. unwatch waits for a running call to end (so not
 * from a callback). topic NULL: any. */
struct log_watch;
struct log_watch *log_watch(struct log *log, const char *topic, void (*wake)(void *), void *arg);
void log_unwatch(struct log *log, struct log_watch *w);

/* ---- epochs ---- */
enum log_outcome {
    LOG_COMMITTED,
    LOG_ABORTED, /* confirmed: nothing of it is visible or will be */
    LOG_UNKNOWN, /* may or may not be durable: reopen the log to find out */
};
struct log_epoch;
struct log_epoch *log_epoch_begin(struct log *log);
/* Takes a reference to the sealed buffer. Order of calls = order of records. The topic must exist
 * at commit. `first` (may be NULL) receives the offset of its first record when the epoch commits.
 */
int log_epoch_append(struct log_epoch *ep, const char *topic, uint32_t partition,
                     struct log_buf *buf, int64_t time, int64_t *first);
/* Sets (value NULL: removes) a state key. Keys are 1..LOG_KEY_MAX bytes, not starting with
 * LOG_KEY_RESERVED (else ERR_INPUT), compacted: the last value of
 * each key is what log_state_each finds after a restart. Positions, plan and counters are state. */
int log_epoch_state(struct log_epoch *ep, const void *key, uint32_t klen, const void *value,
                    uint32_t vlen);
/* As log_epoch_state for a value of 8 bytes or more, the first 8 of which become the offset (i64)
 * of the first record of the append before this call. ERR_INPUT also when there was none. A driver
 * that learns offsets from its broker sends the rows first and the state when they are known. */
int log_epoch_state_offset(struct log_epoch *ep, const void *key, uint32_t klen, const void *value,
                           uint32_t vlen);
/* Records below `offset` (clamped to the end) are given up when the epoch commits: the partition
 * begins there at once, and files that hold nothing else go. A begin never falls; a topic or
 * partition that is not there at commit is passed over. ERR_INPUT: too much for one epoch. */
int log_epoch_trim(struct log_epoch *ep, const char *topic, uint32_t partition, int64_t offset);
size_t log_epoch_bytes(const struct log_epoch *ep);
/* Moves all of `from` behind what `into` holds and frees it. ERR_INPUT: too much for one epoch. */
int log_epoch_join(struct log_epoch *into, struct log_epoch *from);
void log_epoch_drop(struct log_epoch *ep); /* instead of commit */
/* Hands the epoch over (it is freed later); `done` is called exactly once with the outcome. */
typedef void log_done(void *arg, enum log_outcome outcome, uint64_t commit_no, const struct err *e);
void log_commit(struct log_epoch *ep, log_done *done, void *arg);
/* Waits for the outcome. */
enum log_outcome log_commit_wait(struct log_epoch *ep, uint64_t *commit_no, struct err *e);
/* Every live state key whose bytes start with `prefix`, in bytewise order, as of the last commit
 * before the call. Meant for recovery: the first call after a commit reads the commit log. */
int log_state_each(struct log *log, const void *prefix, uint32_t plen,
                   int (*each)(void *, const void *key, uint32_t klen, const void *value,
                               uint32_t vlen),
                   void *arg, struct err *e);
#endif
