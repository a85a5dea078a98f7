/* Encoding: columns in, one column `value` of records out, with the same bytes as a log payload
 * (batch->encoded) that a sink takes over without a copy. */
#ifndef BRAID_OPERATORS_ENCODE_STAGE_H
#define BRAID_OPERATORS_ENCODE_STAGE_H
#include "engine/encode.h"
#include "engine/op.h"

struct encode_record {      /* fields that become something else of a record than its value */
    const char *key;        /* or NULL */
    struct time_field time; /* field NULL: none */
    struct strmap headers;  /* header name -> field */
    const char *tombstone;  /* bool; or NULL */
    struct strs without;    /* not written into the value */
};
struct encode_config { /* of the stages encode_* and of csv_to_senml */
    struct encode_record record;
    struct file *schema; /* SenML only: three lines */
};
#define RECORD_PARAMS(T, member)                                                                   \
    { .name = "key",                                                                               \
      .type = PT_FIELD,                                                                            \
      .flags = PARAM_OPTIONAL,                                                                     \
      .offset = offsetof(T, member.key),                                                           \
      .doc = "Field that becomes the records' key. In a topic of several partitions the records "  \
             "of a key lie in one, chosen as Kafka's producers do." },                             \
        { .name = "time",                                                                          \
          .type = PT_TIME,                                                                         \
          .flags = PARAM_OPTIONAL,                                                                 \
          .offset = offsetof(T, member.time),                                                      \
          .doc =                                                                                   \
              "Field that becomes the records' own time, and its unit: `{\"field\": \"at\", "      \
              "\"unit\": \"ms\"}`. Without it, or when it is null, a record has the time of its "  \
              "append." },                                                                         \
        { .name = "headers",                                                                       \
          .type = PT_STRMAP,                                                                       \
          .flags = PARAM_OPTIONAL,                                                                 \
          .offset = offsetof(T, member.headers),                                                   \
          .doc = "Headers of the records and the fields they come from: `{\"trace-id\": "          \
                 "\"trace\"}`. A null field is no header." },                                      \
        { .name = "tombstone",                                                                     \
          .type = PT_FIELD,                                                                        \
          .flags = PARAM_OPTIONAL,                                                                 \
          .offset = offsetof(T, member.tombstone),                                                 \
          .doc = "Boolean field: where it is true the record is a tombstone, a key with a null "   \
                 "value, which deletes the key from a compacted topic and from tables that read "  \
                 "it. Needs `key`." },                                                             \
    {                                                                                              \
        .name = "without", .type = PT_STRS, .flags = PARAM_OPTIONAL,                               \
        .offset = offsetof(T, member.without),                                                     \
        .doc = "Fields that are not written into the value, such as those that became key, time, " \
               "headers or tombstone. Not for SenML, whose schema says what is written."           \
    }
#endif
