/* Up to BATCH_ROWS rows, columnar and immutable.
 *
 * Memory: a batch and its columns live in the arena of the tick that made them and die together at
 * the tick's end. Readers share them freely; what must live longer (state, alignment buffers,
 * output of an epoch) is copied. This replaces reference counts and one arena a batch: the memory
 * of the last tick is still in the cache for the next, and a twentieth reader costs nothing.
 *
 * Physical rows are 0..rows-1 in every column; the batch's rows are those listed in `sel`, in
 * ascending order (NULL: all). A filter makes a new `sel`, a map a new `cols` array.
 *
 * Position of a row = (origin, partition, offset, sub). Within a batch origin and partition are
 * constant and (offset, sub) never fall. At positions where a watermark fired rows, `sub` is the
 * fire time, so that the order of fired rows does not depend on where batches were cut. */
#ifndef BRAID_BATCH_H
#define BRAID_BATCH_H
#include "engine/arena.h"
#include "engine/schema.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { BATCH_ROWS = 1024 };
#define TIME_MIN INT64_MIN /* watermark before the first row */
#define TIME_MAX INT64_MAX /* watermark of infinity: the stream has ended */

struct span { /* string or bytes value; 16 bytes. Strings are valid UTF-8, not NUL-terminated */
    const char *p;
    uint32_t len;
    uint32_t unused;
};

struct column {
    union {
        const void *p;
        const uint8_t *b;       /* TYPE_BOOL: 0 or 1 */
        const int64_t *i64;     /* TYPE_I64 */
        const double *f64;      /* TYPE_F64: never NaN or infinite (those become null) */
        const struct span *str; /* TYPE_STR, TYPE_BYTES */
        const float *vec;       /* TYPE_VEC: dim floats a row */
    };
    const uint64_t *nulls; /* bit r set: row r is null (its value is then undefined); NULL: none */
    uint64_t *hash;        /* cache of key hashes of a string column, filled by key.c; or NULL */
};

/* What a source handed in this tick; shared by every batch that descends from it. */
struct origin {
    uint64_t id;      /* instance number of the source or merging task */
    const char *name; /* topic, for dead letters */
    uint32_t partition;
    uint32_t n;              /* rows the source handed in */
    int64_t off0;            /* their offsets are off0 .. off0+n-1 */
    const struct span *raw;  /* their original bytes, n of them (p NULL: a null value); NULL below a
                              * merging task */
    const int64_t *log_time; /* append time of each, ms; NULL: unknown. May jump back */
    int64_t log_max;         /* the largest of them */
    const int64_t *own_time; /* that its writer gave it, LOG_NO_TIME: none; NULL: none has one */
    /* Timeline: after the last row of offset off0+i the watermark is wm[i]; never falls.
     * NULL until a time stage has set it. A merging task numbers its points itself: `at` then
     * gives the offset of each (else NULL: off0 + i). */
    const int64_t *wm;
    const int64_t *at;
    int64_t wm_before; /* watermark before the first point */
    /* A tick without rows that says for how long the source has had none; 0 in all others. */
    int64_t silent_ms;
    /* From the end of this tick on the stream is idle: where several streams meet, it does not hold
     * the others back until its next rows. Said by time stages, handed on by what is below. */
    bool idle;
};

struct batch {
    const struct schema *schema;
    const struct column *cols; /* schema->n of them */
    uint32_t rows;             /* physical rows, <= BATCH_ROWS */
    uint32_t n;                /* rows of the batch */
    const uint16_t *sel;       /* n ascending physical rows; NULL: all (n == rows) */
    int64_t off0;              /* offset of physical row 0, when off is NULL: row r has off0 + r */
    const int64_t *off;        /* offsets per physical row */
    const int64_t *sub;        /* NULL: all 0 */
    const int64_t *time;       /* event time, ms since 1970; NULL: stream without event time */
    const int64_t *wm;         /* watermark before the row's position; NULL with time NULL */
    const struct origin *origin;
    struct log_buf *encoded; /* the physical rows as a log payload, when an encoder made this batch;
                              * else NULL. Borrowed: whoever keeps it takes a reference */
};

static inline uint32_t batch_row(const struct batch *b, uint32_t i) {
    return b->sel ? b->sel[i] : i;
}
static inline int64_t batch_off(const struct batch *b, uint32_t row) {
    return b->off ? b->off[row] : b->off0 + row;
}
static inline int64_t batch_sub(const struct batch *b, uint32_t row) {
    return b->sub ? b->sub[row] : 0;
}
static inline bool bit_get(const uint64_t *bits, uint32_t i) {
    return bits && (bits[i >> 6] >> (i & 63) & 1);
}
static inline void bit_set(uint64_t *bits, uint32_t i) {
    bits[i >> 6] |= (uint64_t)1 << (i & 63);
}
static inline void bit_clear(uint64_t *bits, uint32_t i) {
    bits[i >> 6] &= ~((uint64_t)1 << (i & 63));
}
static inline size_t bits_words(uint32_t n) {
    return ((size_t)n + 63) / 64;
}
static inline bool column_null(const struct column *c, uint32_t row) {
    return bit_get(c->nulls, row);
}

/* All of these allocate in `a` (the tick's arena). */
/* Zeroed null bits for `rows` rows. */
uint64_t *batch_nulls(struct arena *a, uint32_t rows);
/* A column of `rows` rows whose null bits, if there are any, may be written: `row` becomes null. */
static inline void column_set_null(struct arena *a, struct column *c, uint32_t row, uint32_t rows) {
    if (!c->nulls)
        c->nulls = batch_nulls(a, rows);
    bit_set((uint64_t *)c->nulls, row);
}
/* A shallow copy whose fields may be changed before it is emitted. */
struct batch *batch_copy(struct arena *a, const struct batch *b);
/* A copy of the column array with `extra` more (zeroed) columns, to replace or append to. */
struct column *batch_cols(struct arena *a, const struct batch *b, int extra);
/* The same rows under another selection. `sel` must live in `a`; n may be 0. */
struct batch *batch_select(struct arena *a, const struct batch *b, const uint16_t *sel, uint32_t n);
/* A batch of n new physical rows (no sel) over `schema`, whose row i was caused by physical row
 * src[i] of `b` (ascending): offset, time and watermark are taken over; sub is numbered 0,1,2,...
 * within one offset when `number`, else taken over. Columns: zeroed array, returned in *cols. */
struct batch *batch_make(struct arena *a, const struct batch *b, const struct schema *schema,
                         const uint16_t *src, uint32_t n, bool number, struct column **cols);
/* Column `c` of type t gathered at rows src[0..n). */
struct column column_gather(struct arena *a, const struct column *c, const struct field *f,
                            const uint16_t *src, uint32_t n);
/* Rows lo..hi-1 of the batch (indexes into its rows, not physical). */
const struct batch *batch_slice(struct arena *a, const struct batch *b, uint32_t lo, uint32_t hi);
#endif
