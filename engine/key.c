#include "engine/key.h"
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* A null in a single-string key: no UTF-8 text has these bytes. */
static const char null_key[2] = { '\xff', 0 };

static uint64_t be64(uint64_t v) {
    return __builtin_bswap64(v);
}

/* One string field: its own bytes. The hash of each physical row is kept in the column (0: not yet
 * computed). */
static void key_string(struct arena *a, const struct batch *b, int field, struct span *key,
                       uint64_t *hash) {
    struct column *c = (struct column *)&b->cols[field]; /* the cache is ours to write */
    if (!c->hash)
        c->hash = arena_zalloc(a, b->rows * sizeof(uint64_t));
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        if (column_null(c, r)) {
            key[i] = (struct span){ .p = null_key, .len = sizeof null_key };
            hash[i] = XXH3_64bits(null_key, sizeof null_key);
            continue;
        }
        key[i] = c->str[r];
        uint64_t h = c->hash[r];
        if (h == 0)
            c->hash[r] = h = XXH3_64bits(key[i].p, key[i].len);
        hash[i] = h;
    }
}

/* Order-preserving bytes: tag 0 for null, 1 before a value; numbers big-endian with the sign moved,
 * strings with 00 -> 00 ff and 00 00 at the end. */
static size_t key_field_max(const struct column *c, const struct field *f, uint32_t r) {
    if (column_null(c, r))
        return sizeof null_key; /* a single string; else 1 */
    switch (f->type) {
    case TYPE_BOOL:
        return 2;
    case TYPE_STR:
    case TYPE_BYTES:
        return 3 + 2 * (size_t)c->str[r].len;
    case TYPE_VEC:
        return 1 + 4 * (size_t)f->dim;
    default:
        return 9;
    }
}

static char *key_field_write(char *o, const struct column *c, const struct field *f, uint32_t r) {
    if (column_null(c, r)) {
        *o++ = 0;
        return o;
    }
    *o++ = 1;
    uint64_t u;
    switch (f->type) {
    case TYPE_BOOL:
        *o++ = (char)c->b[r];
        break;
    case TYPE_I64:
        u = be64((uint64_t)c->i64[r] ^ (uint64_t)1 << 63);
        memcpy(o, &u, 8);
        o += 8;
        break;
    case TYPE_F64: {
        double d = c->f64[r] == 0 ? 0 : c->f64[r]; /* -0 and 0 are one key */
        memcpy(&u, &d, 8);
        u = be64(u >> 63 ? ~u : u | (uint64_t)1 << 63);
        memcpy(o, &u, 8);
        o += 8;
        break;
    }
    case TYPE_STR:
    case TYPE_BYTES:
        for (uint32_t i = 0; i < c->str[r].len; i++) {
            *o++ = c->str[r].p[i];
            if (c->str[r].p[i] == 0)
                *o++ = '\xff';
        }
        *o++ = 0;
        *o++ = 0;
        break;
    case TYPE_VEC:
        memcpy(o, c->vec + (size_t)r * f->dim, 4 * (size_t)f->dim);
        o += 4 * (size_t)f->dim;
        break;
    case TYPE_COUNT:
        break;
    }
    return o;
}

size_t key_bound(const struct batch *b, const int *by, int nby, uint32_t row) {
    const struct field *f = b->schema->f;
    size_t max = 0;
    for (int k = 0; k < nby; k++)
        max += key_field_max(&b->cols[by[k]], &f[by[k]], row);
    return max;
}

void key_batch(struct arena *a, const struct batch *b, const int *by, int nby, struct span *key,
               uint64_t *hash) {
    const struct field *f = b->schema->f;
    if (nby == 1 && f[by[0]].type == TYPE_STR) {
        key_string(a, b, by[0], key, hash);
        return;
    }
    uint64_t empty = XXH3_64bits("", 0);
    for (uint32_t i = 0; i < b->n; i++) {
        if (nby == 0) {
            key[i] = (struct span){ .p = "" };
            hash[i] = empty;
            continue;
        }
        uint32_t r = batch_row(b, i);
        char *p = arena_alloc(a, key_bound(b, by, nby, r)), *o = p;
        for (int k = 0; k < nby; k++)
            o = key_field_write(o, &b->cols[by[k]], &f[by[k]], r);
        key[i] = (struct span){ .p = p, .len = (uint32_t)(o - p) };
        hash[i] = XXH3_64bits(p, key[i].len);
    }
}

static const char *decode_str(struct arena *a, const char *p, const char *end, struct span *s) {
    const char *q = p;
    uint32_t zeros = 0;
    while (q + 1 < end && !(q[0] == 0 && q[1] == 0)) {
        zeros += q[0] == 0;
        q += q[0] == 0 ? 2 : 1;
    }
    if (q + 1 >= end)
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

int key_decode(struct arena *a, const struct schema *s, const int *by, int nby, const void *key,
               uint32_t klen, struct key_value *v) {
    const char *p = key, *end = p + klen;
    if (nby == 1 && s->f[by[0]].type == TYPE_STR) {
        bool null = klen == sizeof null_key && memcmp(p, null_key, sizeof null_key) == 0;
        v[0] = (struct key_value){ .null = null, .str = { .p = p, .len = null ? 0 : klen } };
        return 0;
    }
    for (int k = 0; k < nby; k++) {
        v[k] = (struct key_value){ 0 };
        if (p == end)
            return -1;
        v[k].null = *p++ == 0;
        if (v[k].null)
            continue;
        uint64_t u;
        switch (s->f[by[k]].type) {
        case TYPE_BOOL:
            if (end - p < 1)
                return -1;
            v[k].b = *p++ != 0;
            break;
        case TYPE_I64:
            if (end - p < 8)
                return -1;
            memcpy(&u, p, 8);
            v[k].i64 = (int64_t)(be64(u) ^ (uint64_t)1 << 63);
            p += 8;
            break;
        case TYPE_F64:
            if (end - p < 8)
                return -1;
            memcpy(&u, p, 8);
            u = be64(u);
            u = u >> 63 ? u & ~((uint64_t)1 << 63) : ~u;
            memcpy(&v[k].f64, &u, 8);
            p += 8;
            break;
        case TYPE_STR:
        case TYPE_BYTES:
            p = decode_str(a, p, end, &v[k].str);
            if (!p)
                return -1;
            break;
        default:
            return -1;
        }
    }
    return p == end ? 0 : -1;
}

int key_compare(struct span a, struct span b) {
    uint32_t n = a.len < b.len ? a.len : b.len;
    int d = n ? memcmp(a.p, b.p, n) : 0;
    return d ? d : (a.len > b.len) - (a.len < b.len);
}

static uint32_t murmur2(const char *p, uint32_t len) {
    const uint32_t m = 0x5bd1e995;
    uint32_t h = 0x9747b28cu ^ len;
    for (; len >= 4; p += 4, len -= 4) {
        uint32_t k;
        memcpy(&k, p, 4);
        k *= m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (len >= 3)
        h ^= (uint32_t)(unsigned char)p[2] << 16;
    if (len >= 2)
        h ^= (uint32_t)(unsigned char)p[1] << 8;
    if (len >= 1)
        h = (h ^ (unsigned char)p[0]) * m;
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

uint32_t key_partition(struct span key, uint32_t partitions) {
    return (murmur2(key.p, key.len) & 0x7fffffff) % partitions;
}
