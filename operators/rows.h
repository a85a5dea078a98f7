/* Small helpers on the rows of a batch, shared by operators. */
#ifndef BRAID_OPERATORS_ROWS_H
#define BRAID_OPERATORS_ROWS_H
#include "engine/batch.h"

/* The rows of `b` whose bit in `drop` (one a physical row) is not set; `b` itself when that is all
 * of them. ~1 ns a row, branch-free. */
const struct batch *rows_without(struct arena *a, const struct batch *b, const uint64_t *drop);
/* The null bits of `c` and `more` together, in new memory. */
uint64_t *rows_nulls_or(struct arena *a, const uint64_t *nulls, const uint64_t *more,
                        uint32_t rows);
/* How many rows of the batch have their bit set. */
uint64_t rows_count(const struct batch *b, const uint64_t *bits);
/* A writable copy of the null bits (zero when there are none). */
uint64_t *rows_nulls_copy(struct arena *a, const uint64_t *nulls, uint32_t rows);
/* The value of a numeric column as double: exact for f64, rounded for i64. */
static inline double rows_f64(const struct column *c, enum type t, uint32_t row) {
    return t == TYPE_F64 ? c->f64[row] : (double)c->i64[row];
}
#endif
