/* A row as bytes, for operators that keep rows in their state: exact (-0 stays -0), the same bytes
 * for the same values, and ordered bytewise as the row's values are, field by field, null first
 * (vectors are ordered somehow). Pure functions. */
#ifndef BRAID_OPERATORS_ROW_BYTES_H
#define BRAID_OPERATORS_ROW_BYTES_H
#include "engine/batch.h"

/* Fields field[0..n) of physical row `row`; field NULL: the first n. Memory from `a`. */
struct span row_pack(struct arena *a, const struct batch *b, const int *field, int n, uint32_t row);
/* Puts packed fields back: field i of type f[i] into row `row` of cols[i], whose arrays have room
 * for `rows` rows and may be written; null bits are made in `a` when needed. Strings point into the
 * packed bytes (or into `a`). Returns false when the bytes are no such row. */
bool row_unpack(struct arena *a, struct span bytes, const struct field *f, int n,
                struct column *cols, uint32_t row, uint32_t rows);
/* Columns of zeroed arrays for `rows` rows of these fields. */
struct column *row_columns(struct arena *a, const struct field *f, int n, uint32_t rows);
#endif
