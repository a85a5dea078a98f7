/* Configs of the stages that bring records in. The executor does the I/O of `read`; the rest is
 * ordinary operators. Filled by lowering (source.c), constant afterwards. */
#ifndef BRAID_OPERATORS_SOURCE_H
#define BRAID_OPERATORS_SOURCE_H
#include "engine/op.h"

/* `read` (OP_SOURCE): one column `value` (bytes), one row a record. */
struct read_config {
    const char *topic;
    struct strs meta;   /* columns beside `value` (record.h) */
    struct start start; /* attach: where an instance without a position begins */
};

/* Where event time comes from. */
enum time_base {
    TIME_FIELD,  /* field `time.field` in unit `time.unit` */
    TIME_RECORD, /* what the decoder found in the record (SenML `bt`), else the log's time */
    TIME_LOG,    /* append time */
};
/* `time` (OP_SETS_TIME): event times, watermarks before every row, the origin's timeline. */
struct time_config {
    struct time_field time;
    int base;          /* enum time_base */
    int64_t lateness;  /* ms a row may be behind the latest one before it is late */
    int64_t idle;      /* ms without records after which a partition no longer holds back others;
                        * PARAM_UNSET: never */
    int64_t max_ahead; /* ms a row's time may be ahead of its record's log time */
};

/* What `source` and the parse tasks have in common; the first member of their configs. */
struct time_params {
    struct time_field time;
    int64_t lateness, idle, max_ahead;
};
#define TIME_PARAMS(T, member)                                                                     \
    { .name = "time",                                                                              \
      .type = PT_TIME,                                                                             \
      .flags = PARAM_OPTIONAL,                                                                     \
      .offset = offsetof(T, member.time),                                                          \
      .doc = "Field with the event time and its unit: `{\"field\": \"pickup\", \"unit\": "         \
             "\"s\"}`, unit `s`, `ms`, `us` or `rfc3339`. Default: the record's `bt` (SenML), "    \
             "else the time that its writer gave the record, else when the log took it." },        \
        { .name = "lateness",                                                                      \
          .type = PT_DURATION,                                                                     \
          .offset = offsetof(T, member.lateness),                                                  \
          .def = "\"0s\"",                                                                         \
          .max = 1e15,                                                                             \
          .doc = "How far a row may be behind the latest event time before it is late." },         \
        { .name = "idle",                                                                          \
          .type = PT_DURATION,                                                                     \
          .flags = PARAM_OPTIONAL,                                                                 \
          .offset = offsetof(T, member.idle),                                                      \
          .min = 1,                                                                                \
          .max = 1e15,                                                                             \
          .doc = "After this time without records a partition of the source no longer holds back " \
                 "the others, nor other sources, where they meet (docs/time.md). Default: it "     \
                 "holds them back until it has rows. `run` knows where its files end, and does "   \
                 "not need it." },                                                                 \
    {                                                                                              \
        .name = "max_ahead", .type = PT_DURATION, .offset = offsetof(T, member.max_ahead),         \
        .def = "\"1d\"", .max = 1e15,                                                              \
        .doc = "A row whose event time is further ahead of its record's log time than this "       \
               "is a dead letter and moves no watermark."                                          \
    }

/* The name of the first parameter that differs from its default, or NULL. */
const char *time_params_given(const struct time_params *p);
/* Appends the `time` stage of a face; `base` when no field is given. */
void time_lower(struct op_lower *l, const struct time_params *p, int base);
#endif
