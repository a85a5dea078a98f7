/* The latest row of the second input not after a row's event time: what asof_join and lookup_join
 * share. Rows of the first input wait until the watermark has passed their time; of the second
 * one, each key keeps the row in effect and those after it. */
#ifndef BRAID_OPERATORS_ASOF_H
#define BRAID_OPERATORS_ASOF_H
#include "operators/join_rows.h"

struct asof {
    struct joins joins;
    int64_t tolerance; /* a row is in effect so long, ms; PARAM_UNSET: until the next */
};
/* asof_join refuses late rows of both inputs; a table takes a late row that is still its key's
 * newest: it counts from then on. */
extern const struct join_kind asof_kind, asof_table_kind;
#endif
