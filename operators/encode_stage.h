/* Encoding: columns in, one column `value` of records out, with the same bytes as a log payload
 * (batch->encoded) that a sink takes over without a copy. */
#ifndef BRAID_OPERATORS_ENCODE_STAGE_H
#define BRAID_OPERATORS_ENCODE_STAGE_H
#include "engine/encode.h"
#include "engine/op.h"

struct encode_config {   /* of the stages encode_* and of csv_to_senml */
    const char *key;     /* field that becomes the records' key, or NULL */
    struct file *schema; /* SenML only: three lines */
};
#endif
