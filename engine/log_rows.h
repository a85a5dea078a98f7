/* Records as a log hands them out: what operators that read topics see of it. The memory belongs to
 * the log's reader and holds until its next read. */
#ifndef BRAID_LOG_ROWS_H
#define BRAID_LOG_ROWS_H
#include <stdint.h>

enum { LOG_PARTITIONS_MAX = 4096 }; /* of a topic */
#define LOG_NULL 0x80000000u        /* set in an end: this value or key is null (a tombstone) */

/* A columnar run of records. Value i is values[end(i-1) .. end(i)), ends without LOG_NULL. */
struct log_rows {
    uint32_t n;
    const uint32_t *value_end;
    const char *values;
    const uint32_t *key_end; /* NULL: no keys */
    const char *keys;
    const int64_t *times; /* ms; NULL: all have `time` */
    int64_t time;
};
#endif
