#include "operators/row_bytes.h"

/* A byte for null (0) or not (1), then: a bool's byte; an i64 big-endian with the sign turned; an
 * f64's bits big-endian, turned so that they are in the order of the numbers; a string with 00 ->
 * 00 ff and 00 00 at the end; a vector's bytes as they are. */

static uint64_t f64_bits(double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}
static double f64_of(uint64_t u) {
    double v;
    u = u >> 63 ? u & ~((uint64_t)1 << 63) : ~u;
    memcpy(&v, &u, sizeof v);
    return v;
}
static char *put_u64(char *o, uint64_t u) {
    u = __builtin_bswap64(u);
    memcpy(o, &u, sizeof u);
    return o + sizeof u;
}
static uint64_t get_u64(const char *p) {
    uint64_t u;
    memcpy(&u, p, sizeof u);
    return __builtin_bswap64(u);
}

static size_t value_size(const struct field *f) {
    return f->type == TYPE_BOOL ? 1 : f->type == TYPE_VEC ? f->dim * sizeof(float) : 8;
}
static bool is_text(const struct field *f) {
    return f->type == TYPE_STR || f->type == TYPE_BYTES;
}

static char *put_text(char *o, struct span s) {
    for (uint32_t i = 0; i < s.len; i++) {
        *o++ = s.p[i];
        if (s.p[i] == 0)
            *o++ = '\xff';
    }
    *o++ = 0;
    *o++ = 0;
    return o;
}
static char *put_value(char *o, const struct column *c, const struct field *f, uint32_t r) {
    switch (f->type) {
    case TYPE_BOOL:
        *o = c->b[r] != 0;
        return o + 1;
    case TYPE_I64:
        return put_u64(o, (uint64_t)c->i64[r] ^ (uint64_t)1 << 63);
    case TYPE_F64:
        return put_u64(o, f64_bits(c->f64[r]));
    case TYPE_STR:
    case TYPE_BYTES:
        return put_text(o, c->str[r]);
    default:
        memcpy(o, c->vec + (size_t)r * f->dim, value_size(f));
        return o + value_size(f);
    }
}

struct span row_pack(struct arena *a, const struct batch *b, const int *field, int n,
                     uint32_t row) {
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        int k = field ? field[i] : i;
        const struct field *f = &b->schema->f[k];
        if (is_text(f))
            most += 3 + (column_null(&b->cols[k], row) ? 0 : 2 * (size_t)b->cols[k].str[row].len);
        else
            most += 1 + value_size(f);
    }
    char *p = arena_alloc(a, most ? most : 1), *o = p;
    for (int i = 0; i < n; i++) {
        int k = field ? field[i] : i;
        bool null = column_null(&b->cols[k], row);
        *o++ = !null;
        if (!null)
            o = put_value(o, &b->cols[k], &b->schema->f[k], row);
    }
    arena_trim(a, p, most ? most : 1, (size_t)(o - p));
    return (struct span){ .p = p, .len = (uint32_t)(o - p) };
}

static const char *get_text(struct arena *a, const char *p, const char *end, struct span *s) {
    const char *q = p;
    uint32_t zeros = 0;
    while (end - q >= 2 && !(q[0] == 0 && q[1] == 0)) {
        zeros += q[0] == 0;
        q += q[0] == 0 ? 2 : 1;
    }
    if (end - q < 2)
        return NULL;
    *s = (struct span){ .p = p, .len = (uint32_t)(q - p) - zeros };
    if (zeros) {
        char *o = arena_alloc(a, s->len);
        s->p = o;
        for (; p < q; p += *p == 0 ? 2 : 1)
            *o++ = *p;
    }
    return q + 2;
}
static const char *get_value(struct arena *a, const char *p, const char *end, const struct field *f,
                             struct column *c, uint32_t r) {
    if (is_text(f))
        return get_text(a, p, end, &((struct span *)c->p)[r]);
    size_t size = value_size(f);
    if ((size_t)(end - p) < size)
        return NULL;
    switch (f->type) {
    case TYPE_BOOL:
        ((uint8_t *)c->p)[r] = (uint8_t)*p;
        break;
    case TYPE_I64:
        ((int64_t *)c->p)[r] = (int64_t)(get_u64(p) ^ (uint64_t)1 << 63);
        break;
    case TYPE_F64:
        ((double *)c->p)[r] = f64_of(get_u64(p));
        break;
    default:
        memcpy((float *)c->p + (size_t)r * f->dim, p, size);
    }
    return p + size;
}

bool row_unpack(struct arena *a, struct span bytes, const struct field *f, int n,
                struct column *cols, uint32_t row, uint32_t rows) {
    const char *p = bytes.p, *end = p + bytes.len;
    for (int i = 0; i < n; i++) {
        if (p == end)
            return false;
        if (*p++ == 0) {
            column_set_null(a, &cols[i], row, rows);
            continue;
        }
        p = get_value(a, p, end, &f[i], &cols[i], row);
        if (!p)
            return false;
    }
    return p == end;
}

struct column *row_columns(struct arena *a, const struct field *f, int n, uint32_t rows) {
    struct column *cols = arena_zalloc(a, sizeof *cols * (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++) {
        size_t size = is_text(&f[i]) ? sizeof(struct span) : value_size(&f[i]);
        cols[i].p = arena_zalloc(a, size * (rows ? rows : 1));
    }
    return cols;
}
