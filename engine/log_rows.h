/* Records as a log hands them out: what operators that read topics see of it. The memory belongs to
 * the log's reader and holds until its next read. */
#ifndef BRAID_LOG_ROWS_H
#define BRAID_LOG_ROWS_H
#include <stdbool.h>
#include <stdint.h>

enum { LOG_PARTITIONS_MAX = 4096 }; /* of a topic */
#define LOG_NULL 0x80000000u        /* set in an end: this value or key is null (a tombstone) */

#define LOG_NO_TIME INT64_MIN /* a record without a time of its own */

/* A columnar run of records. Value i is values[end(i-1) .. end(i)), ends without LOG_NULL. */
struct log_rows {
    uint32_t n;
    const uint32_t *value_end;
    const char *values;
    const uint32_t *key_end; /* NULL: no keys */
    const char *keys;
    const uint32_t *header_end; /* NULL: no headers */
    const char *headers;
    const int64_t *times; /* ms, given by who wrote the record; LOG_NO_TIME: none. NULL: none has */
    int64_t time;         /* ms, at which they were appended */
};
static inline uint32_t log_end(const uint32_t *end, int64_t i) {
    return i < 0 ? 0 : end[i] & ~LOG_NULL;
}
/* Its own time, else that of its append. */
static inline int64_t log_row_time(const struct log_rows *r, uint32_t i) {
    return r->times && r->times[i] != LOG_NO_TIME ? r->times[i] : r->time;
}

/* Headers of a record: u32 length and bytes of the name, u32 length (LOG_NULL: null) and bytes of
 * the value, one after the other. Names may repeat; the order is kept. */
struct log_header {
    const char *name, *value; /* value NULL: null */
    uint32_t nlen, vlen;
};
/* The header at *p (< end), moved behind it; false at the end, or when there is none. */
bool log_header_next(const char **p, const char *end, struct log_header *h);
#endif
