#include "engine/batch.h"

uint64_t *batch_nulls(struct arena *a, uint32_t rows) {
    return arena_zalloc(a, bits_words(rows) * sizeof(uint64_t));
}

struct batch *batch_copy(struct arena *a, const struct batch *b) {
    struct batch *c = ARENA_NEW(a, struct batch);
    *c = *b;
    c->encoded = NULL;
    return c;
}

struct column *batch_cols(struct arena *a, const struct batch *b, int extra) {
    size_t n = (size_t)b->schema->n;
    struct column *cols = ARENA_ARRAY(a, struct column, n + (size_t)extra);
    if (n)
        memcpy(cols, b->cols, n * sizeof *cols);
    memset(cols + n, 0, (size_t)extra * sizeof *cols);
    return cols;
}

struct batch *batch_select(struct arena *a, const struct batch *b, const uint16_t *sel,
                           uint32_t n) {
    struct batch *c = batch_copy(a, b);
    c->encoded = b->encoded; /* its records are the physical rows */
    c->sel = sel;
    c->n = n;
    return c;
}

static const int64_t *gather_i64(struct arena *a, const int64_t *v, const uint16_t *src,
                                 uint32_t n) {
    if (!v)
        return NULL;
    int64_t *out = ARENA_ARRAY(a, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = v[src[i]];
    return out;
}

struct batch *batch_make(struct arena *a, const struct batch *b, const struct schema *schema,
                         const uint16_t *src, uint32_t n, bool number, struct column **cols) {
    struct batch *c = ARENA_NEW(a, struct batch);
    *c = (struct batch){ .schema = schema, .rows = n, .n = n, .origin = b->origin };
    int64_t *off = ARENA_ARRAY(a, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        off[i] = batch_off(b, src[i]);
    c->off = off;
    c->off0 = n ? off[0] : 0;
    if (number) {
        int64_t *sub = ARENA_ARRAY(a, int64_t, n);
        for (uint32_t i = 0; i < n; i++)
            sub[i] = i && off[i] == off[i - 1] ? sub[i - 1] + 1 : 0;
        c->sub = sub;
    } else {
        c->sub = gather_i64(a, b->sub, src, n);
    }
    c->time = gather_i64(a, b->time, src, n);
    c->wm = gather_i64(a, b->wm, src, n);
    *cols = arena_zalloc(a, sizeof(struct column) * (size_t)(schema->n ? schema->n : 1));
    c->cols = *cols;
    return c;
}

static const uint64_t *gather_nulls(struct arena *a, const uint64_t *nulls, const uint16_t *src,
                                    uint32_t n) {
    if (!nulls)
        return NULL;
    uint64_t *out = batch_nulls(a, n);
    for (uint32_t i = 0; i < n; i++)
        out[i >> 6] |= (uint64_t)bit_get(nulls, src[i]) << (i & 63);
    return out;
}

struct column column_gather(struct arena *a, const struct column *c, const struct field *f,
                            const uint16_t *src, uint32_t n) {
    struct column out = { .nulls = gather_nulls(a, c->nulls, src, n) };
    switch (f->type) {
    case TYPE_BOOL: {
        uint8_t *v = ARENA_ARRAY(a, uint8_t, n);
        for (uint32_t i = 0; i < n; i++)
            v[i] = c->b[src[i]];
        out.b = v;
        break;
    }
    case TYPE_I64:
    case TYPE_F64:
        out.i64 = gather_i64(a, c->i64, src, n); /* both are 8 bytes to move */
        break;
    case TYPE_STR:
    case TYPE_BYTES: {
        struct span *v = ARENA_ARRAY(a, struct span, n);
        for (uint32_t i = 0; i < n; i++)
            v[i] = c->str[src[i]];
        out.str = v;
        break;
    }
    case TYPE_VEC: {
        float *v = ARENA_ARRAY(a, float, (size_t)n * f->dim);
        for (uint32_t i = 0; i < n; i++)
            memcpy(v + (size_t)i * f->dim, c->vec + (size_t)src[i] * f->dim,
                   f->dim * sizeof(float));
        out.vec = v;
        break;
    }
    case TYPE_COUNT:
        break;
    }
    return out;
}

const struct batch *batch_slice(struct arena *a, const struct batch *b, uint32_t lo, uint32_t hi) {
    if (lo == 0 && hi == b->n)
        return b;
    if (b->sel)
        return batch_select(a, b, b->sel + lo, hi - lo);
    uint16_t *sel = ARENA_ARRAY(a, uint16_t, hi - lo);
    for (uint32_t i = lo; i < hi; i++)
        sel[i - lo] = (uint16_t)i;
    return batch_select(a, b, sel, hi - lo);
}
