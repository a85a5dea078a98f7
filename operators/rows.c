#include "operators/rows.h"

const struct batch *rows_without(struct arena *a, const struct batch *b, const uint64_t *drop) {
    uint16_t *sel = ARENA_ARRAY(a, uint16_t, b->n);
    uint32_t m = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        sel[m] = (uint16_t)r;
        m += !bit_get(drop, r);
    }
    return m == b->n ? b : batch_select(a, b, sel, m);
}

uint64_t *rows_nulls_copy(struct arena *a, const uint64_t *nulls, uint32_t rows) {
    uint64_t *out = batch_nulls(a, rows);
    if (nulls)
        memcpy(out, nulls, bits_words(rows) * sizeof *out);
    return out;
}

uint64_t *rows_nulls_or(struct arena *a, const uint64_t *nulls, const uint64_t *more,
                        uint32_t rows) {
    uint64_t *out = rows_nulls_copy(a, nulls, rows);
    for (size_t w = 0; w < bits_words(rows); w++)
        out[w] |= more[w];
    return out;
}

uint64_t rows_count(const struct batch *b, const uint64_t *bits) {
    uint64_t n = 0;
    if (b->sel)
        for (uint32_t i = 0; i < b->n; i++)
            n += bit_get(bits, b->sel[i]);
    else
        for (size_t w = 0; w < bits_words(b->rows); w++)
            n += (uint64_t)__builtin_popcountll(bits[w]);
    return n;
}
