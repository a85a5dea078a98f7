/* What joins of two streams have in common: rows that wait in keyed state until the watermark tells
 * what becomes of them, in groups of equal keys, and the queue of what happens when.
 *
 * Nothing comes out when a row comes in. A row is taken unless it is late; what it causes happens
 * at fire times, once the watermark less `lateness` has reached them, in order of (fire time, key
 * bytes, kind of event, time of the row, arrival). So the output is a function of the rows taken
 * and their times, not of the order in which the two streams met: it is complete, ascending in
 * event time, and the same on any number of partitions (up to the order of rows of one key and
 * time).
 *
 * Tables: 0, key (side, arrival number), a waiting row: time, flags, group key, row_pack. 1, key
 * "", struct join_meta. Groups, lists and events are derived from table 0. One thread.
 * Memory: ~220 bytes and its values for each waiting row. Cost with 1,000 keys: 0.4 (as-of) to 0.55
 * us (interval) for a row that comes in, with the one it makes. */
#ifndef BRAID_OPERATORS_JOIN_ROWS_H
#define BRAID_OPERATORS_JOIN_ROWS_H
#include "engine/json.h"
#include "engine/key.h"
#include "engine/op.h"
#include "operators/window_grid.h"

enum { JOIN_LEFT, JOIN_RIGHT };             /* sides: in-ports 0 and 1 */
enum { JOIN_INNER, JOIN_OUTER, JOIN_FULL }; /* types; OUTER: left */
enum { JOIN_LATE_DROP, JOIN_LATE_DEAD_LETTER };
enum { JOIN_DELETED = 1 }; /* flags of a row: it says that its key is gone */

struct join_params { /* part of every join's config */
    int type;
    const char *prefix;
    int64_t lateness;
    int late;
    int64_t max_rows;
};
extern const char *const join_inner_left[], *const join_inner_left_full[], *const join_late_words[];
#define JOIN_PARAMS(T, member, types, kinds)                                                       \
    { .name = "type",                                                                              \
      .type = PT_ENUM,                                                                             \
      .offset = offsetof(T, member.type),                                                          \
      .def = "\"inner\"",                                                                          \
      .words = types,                                                                              \
      .doc = kinds },                                                                              \
        { .name = "prefix",                                                                        \
          .type = PT_STR,                                                                          \
          .offset = offsetof(T, member.prefix),                                                    \
          .def = "\"right_\"",                                                                     \
          .doc = "Stands before the name of a field of the second input whose name the first "     \
                 "input has, too." },                                                              \
        { .name = "lateness",                                                                      \
          .type = PT_DURATION,                                                                     \
          .offset = offsetof(T, member.lateness),                                                  \
          .def = "\"0s\"",                                                                         \
          .max = 1e15,                                                                             \
          .doc = "How long results wait beyond the watermark for rows that are late." },           \
        { .name = "late",                                                                          \
          .type = PT_ENUM,                                                                         \
          .offset = offsetof(T, member.late),                                                      \
          .def = "\"drop\"",                                                                       \
          .words = join_late_words,                                                                \
          .doc = "What happens to a row that comes when its results are out: `drop` it (counted "  \
                 "as late), or make it a `dead_letter`." },                                        \
    {                                                                                              \
        .name = "max_rows", .type = PT_I64, .offset = offsetof(T, member.max_rows),                \
        .def = "1000000", .min = 1, .max = 1e9,                                                    \
        .doc = "At most this many rows wait (of both inputs together, in each shard); a row "      \
               "beyond is a dead letter."                                                          \
    }

struct join_row { /* a waiting row, as its group knows it */
    int64_t time;
    uint64_t seq; /* arrival number */
};
struct join_list { /* v[first .. first+n-1], by (time, seq) */
    struct join_row *v;
    uint32_t first, n, cap;
};
struct join_group {
    struct join_group *next; /* of the same bucket */
    char *key;               /* canonical; window joins have the window's start before it */
    uint32_t klen;
    bool null; /* a key field is null: its rows match none */
    uint64_t hash;
    uint32_t events; /* in the queue */
    struct join_list side[2];
};
struct join_event {
    int64_t fire;
    struct join_group *group;
    int64_t time; /* of its row */
    uint64_t seq;
    uint8_t kind, side;
};
struct join_meta {
    int64_t fired; /* everything due up to here has happened */
    uint64_t seq;  /* arrival number of the next row */
};

struct joins;
/* What a kind of join is. Callbacks get the operator's self, which begins with struct joins. */
struct join_kind {
    /* Fire time of the first thing a row of this time causes: later, it is late. */
    int64_t (*due)(const struct joins *s, int64_t time);
    /* Start of the window a time lies in; NULL: no windows. */
    int64_t (*window)(const struct joins *s, int64_t time);
    /* A row stands in its list, just now or after a restore: queues the next thing it causes. */
    void (*placed)(struct joins *s, struct join_group *g, int side, struct join_row r);
    void (*fire)(struct joins *s, struct op_ctx *x, const struct join_event *ev);
    /* The group may have one more row on this side; NULL: always. */
    bool (*room)(const struct joins *s, const struct join_group *g, int side);
    /* A late row of the second input is wanted nevertheless; g NULL: no group yet. NULL: never. */
    bool (*wanted)(const struct joins *s, const struct join_group *g, int64_t time);
    /* What has been fired when `bound` (watermark less lateness) is reached, and the next bound at
     * which something may be due. NULL: bound, and bound + 1. */
    int64_t (*fired)(const struct joins *s, int64_t bound);
    int64_t (*next)(const struct joins *s, int64_t bound);
};
struct join_out { /* rows under construction */
    uint32_t n, cap;
    int64_t *fire, *time;
    struct column *left, *right;
};
struct joins {
    const struct join_kind *kind;
    const struct join_params *conf;
    int deleted; /* field of the second input that says its key is gone; -1: none */
    struct state *rows, *meta;
    struct join_meta now;
    bool changed; /* `now` differs from the table */
    struct join_group **bucket;
    uint32_t buckets, ngroups;
    struct join_event *heap;
    uint32_t nheap, cap_heap;
    struct join_out out;
    struct sbuf scratch;
};

/* ---- submit time ---- */
/* Checks keys and event times of both inputs and makes the output schema: fields of the first
 * input, then of the second one, prefixed where names clash. */
void join_plan(struct op_plan *p, const struct join_params *c);
/* The keys of both inputs agree in number and types; reports when not. */
bool join_plan_keys(struct op_plan *p);
void join_plan_schema(struct op_plan *p, const char *prefix);

/* ---- the operator's functions ---- */
/* open(): `s` is the beginning of self. */
void join_open(struct joins *s, struct op_ctx *x, const struct join_kind *kind,
               const struct join_params *conf);
void join_process(void *self, struct op_ctx *x, int port, const struct batch *b);
void join_watermark(void *self, struct op_ctx *x, int64_t wm);
void join_rebuild(void *self, struct op_ctx *x);
void join_close(void *self);

/* ---- for kinds ---- */
void join_push(struct joins *s, struct join_group *g, int64_t fire, int kind, int side,
               struct join_row r);
/* Index (0..n) of the first row of a list at or after `time`; with `after`, after it. */
uint32_t join_lower(const struct join_list *l, int64_t time);
uint32_t join_upper(const struct join_list *l, int64_t time);
/* Index of a row, or UINT32_MAX. */
uint32_t join_find(const struct join_list *l, struct join_row r);
static inline struct join_row join_at(const struct join_list *l, uint32_t i) {
    return l->v[l->first + i];
}
uint8_t join_flags(struct joins *s, int side, uint64_t seq);
/* Forgets rows lo..hi-1 of a list. */
void join_drop(struct joins *s, struct join_group *g, int side, uint32_t lo, uint32_t hi);
/* Fields of a packed row, copied, into row `row` of columns for `rows` rows; v.p NULL: nulls. */
void join_unpack(struct op_ctx *x, const struct schema *s, struct span v, struct column *cols,
                 uint32_t row, uint32_t rows);
/* A row goes out, at `fire`, its event time one ms before; NULL: nulls on that side. */
void join_emit(struct joins *s, struct op_ctx *x, int64_t fire, const struct join_row *left,
               const struct join_row *right);
#endif
