/* Records from outside into topics, once each.
 *
 * A producer numbers its posts to a topic: rising, gaps allowed. The last number and where its
 * records went is a state key written in the same commit as the records, so that a repeated post,
 * also after a crash, is acknowledged and not appended. Posts of one producer to one topic run one
 * after the other; a repeated one that arrives while the first is being committed waits for it. At
 * most `producers` are remembered; beyond it the one silent for longest is forgotten, in the commit
 * that admits the new one. Any thread. */
#ifndef BRAID_INGEST_H
#define BRAID_INGEST_H
#include "engine/log.h"

enum { INGEST_NAME_MAX = 100, INGEST_BODY_MAX = 16 << 20, INGEST_BUFS_MAX = 32 };

/* Records of one post, not yet appended. */
struct ingest_rows {
    int nbufs;
    struct log_buf *buf[INGEST_BUFS_MAX]; /* one reference each */
    int64_t n;
};
/* One record a line: LF or CRLF ends it, the last may lack it, an empty line is an empty record. */
int ingest_lines(struct ingest_rows *rows, const char *text, size_t len, struct err *e);
/* u32 little-endian length and as many bytes, each. ERR_INPUT says at which byte it goes wrong. */
int ingest_lengths(struct ingest_rows *rows, const char *data, size_t len, struct err *e);
/* One JSON object a line, with all that a record may have: "value" (a string; null or absent: a
 * tombstone; anything else: its JSON text), "key" (a string or null), "time" (ms or RFC 3339),
 * "headers" (an object of strings and nulls). ERR_INPUT names the record and what is wrong. */
int ingest_objects(struct ingest_rows *rows, const char *text, size_t len, struct err *e);
void ingest_rows_free(struct ingest_rows *rows);

struct ingest;
/* Reads the producers from the log's state: before any commit. `producers` 0: 65536. */
int ingest_open(struct ingest **in, struct log *log, int64_t producers, struct err *e);
void ingest_close(struct ingest *in); /* NULL is fine */

enum { INGEST_ANY = -1 }; /* partition: that of the producer's name; without one they take turns */
struct ingest_answer {
    uint32_t partition;
    int64_t offset; /* of the first record; -1: a duplicate from before the last post */
    int64_t count;
    bool duplicate;
};
bool ingest_producer_valid(const char *name);
/* Appends and returns when the commit is durable. `producer` NULL: without numbering. ERR_NOTFOUND
 * topic or partition; ERR_SYSTEM, retriable when nothing was appended for sure. */
int ingest_post(struct ingest *in, const char *topic, int64_t partition, const char *producer,
                int64_t seq, const struct ingest_rows *rows, struct ingest_answer *a,
                struct err *e);
/* Deletes the topic; a new one of its name knows none of its producers. No post is under way
 * meanwhile: what a post was told is committed has been committed to the old topic. With `if_empty`
 * a topic that has had records stays, which is no error. Commits. ERR_NOTFOUND. */
int ingest_topic_delete(struct ingest *in, const char *topic, bool if_empty, struct err *e);
int64_t ingest_producers(struct ingest *in);
#endif
