/* What fuzz targets of record formats share: a schema, and cells compared. */
#ifndef BRAID_TESTS_CELLS_H
#define BRAID_TESTS_CELLS_H
#include "engine/decode.h"
#include <stdlib.h>

static const struct field cells_fields[] = {
    { .name = "timestamp", .type = TYPE_I64 }, { .name = "a", .type = TYPE_F64 },
    { .name = "b", .type = TYPE_I64 },         { .name = "c", .type = TYPE_STR },
    { .name = "d", .type = TYPE_BOOL },        { .name = "o.k", .type = TYPE_STR },
};
static const struct schema cells_schema = { sizeof cells_fields / sizeof *cells_fields,
                                            cells_fields };

/* Aborts unless row i of x and row j of y hold the same. */
static inline void cells_equal(const struct column *x, uint32_t i, const struct column *y,
                               uint32_t j) {
    for (int f = 0; f < cells_schema.n; f++) {
        if (column_null(&x[f], i) != column_null(&y[f], j))
            abort();
        if (column_null(&x[f], i))
            continue;
        switch (cells_fields[f].type) {
        case TYPE_STR:
            if (x[f].str[i].len != y[f].str[j].len ||
                memcmp(x[f].str[i].p, y[f].str[j].p, x[f].str[i].len) != 0)
                abort();
            break;
        case TYPE_BOOL:
            if (x[f].b[i] != y[f].b[j])
                abort();
            break;
        default: /* doubles by their bits */
            if (x[f].i64[i] != y[f].i64[j])
                abort();
        }
    }
}
#endif
