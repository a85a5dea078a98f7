#include "engine/record.h"
#include "engine/decode.h"
#include "engine/json.h"
#include "engine/num.h"

const char record_column_names[] =
    "_key, _key_bytes, _time, _headers, _header.NAME, _offset, _partition or _tombstone";

enum what { KEY, KEY_BYTES, TIME, HEADERS, OFFSET, PARTITION, TOMBSTONE, HEADER, NONE };

static enum what column_of(const char *name) {
    static const char *const names[] = {
        [KEY] = "_key",
        [KEY_BYTES] = "_key_bytes",
        [TIME] = "_time",
        [HEADERS] = "_headers",
        [OFFSET] = "_offset",
        [PARTITION] = "_partition",
        [TOMBSTONE] = "_tombstone",
    };
    for (int i = 0; i < HEADER; i++)
        if (strcmp(names[i], name) == 0)
            return (enum what)i;
    size_t len = strlen(RECORD_HEADER);
    return strncmp(name, RECORD_HEADER, len) == 0 && name[len] ? HEADER : NONE;
}

enum type record_column_type(const char *name) {
    static const enum type types[] = {
        [KEY] = TYPE_STR,        [KEY_BYTES] = TYPE_BYTES, [TIME] = TYPE_I64,
        [HEADERS] = TYPE_STR,    [OFFSET] = TYPE_I64,      [PARTITION] = TYPE_I64,
        [TOMBSTONE] = TYPE_BOOL, [HEADER] = TYPE_STR,      [NONE] = TYPE_COUNT,
    };
    return types[column_of(name)];
}

/* A text, or null. */
static void put_text(struct arena *a, struct column *c, uint32_t i, uint32_t n, const char *p,
                     uint32_t len, bool text) {
    if (p && (!text || utf8_valid(p, p + len))) {
        ((struct span *)c->p)[i] = (struct span){ .p = p, .len = len };
        return;
    }
    if (!c->nulls)
        c->nulls = batch_nulls(a, n);
    bit_set((uint64_t *)c->nulls, i);
}

static void put_keys(struct arena *a, struct column *c, const struct log_rows *r, bool text) {
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t at = r->key_end ? log_end(r->key_end, (int64_t)i - 1) : 0;
        bool null = !r->key_end || r->key_end[i] & LOG_NULL;
        put_text(a, c, i, r->n, null ? NULL : r->keys + at, null ? 0 : r->key_end[i] - at, text);
    }
}

/* The record's headers. */
static const char *headers_of(const struct log_rows *r, uint32_t i, const char **end) {
    if (!r->header_end)
        return *end = NULL;
    *end = r->headers + log_end(r->header_end, i);
    return r->headers + log_end(r->header_end, (int64_t)i - 1);
}

static bool same_name(const struct log_header *h, const char *name, size_t len) {
    return h->nlen == len && (len == 0 || memcmp(h->name, name, len) == 0);
}

static void put_header(struct arena *a, struct column *c, const struct log_rows *r,
                       const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < r->n; i++) {
        struct log_header h, last = { 0 };
        const char *end, *p = headers_of(r, i, &end);
        while (p && log_header_next(&p, end, &h))
            if (same_name(&h, name, len))
                last = h;
        put_text(a, c, i, r->n, last.value, last.vlen, true);
    }
}

/* Whether a header of the name of `h`, which ends at p, comes again. */
static bool again(const struct log_header *h, const char *p, const char *end) {
    struct log_header next;
    while (log_header_next(&p, end, &next))
        if (same_name(&next, h->name, h->nlen))
            return true;
    return false;
}

static void put_headers(struct arena *a, struct column *c, const struct log_rows *r) {
    struct sbuf o = { 0 };
    for (uint32_t i = 0; i < r->n; i++) {
        struct log_header h;
        const char *end, *p = headers_of(r, i, &end);
        o.len = 0;
        while (p && log_header_next(&p, end, &h)) {
            if (again(&h, p, end) || !utf8_valid(h.name, h.name + h.nlen))
                continue;
            sbuf_adds(&o, o.len ? "," : "{");
            sbuf_json_str(&o, h.name, h.nlen);
            sbuf_adds(&o, ":");
            if (h.value && utf8_valid(h.value, h.value + h.vlen))
                sbuf_json_str(&o, h.value, h.vlen);
            else
                sbuf_adds(&o, "null");
        }
        if (o.len)
            sbuf_adds(&o, "}");
        put_text(a, c, i, r->n, o.len ? arena_strndup(a, o.p, o.len) : NULL, (uint32_t)o.len,
                 false);
    }
    sbuf_free(&o);
}

static void put_numbers(struct column *c, enum what w, const struct log_rows *r, int64_t off,
                        uint32_t partition) {
    int64_t *v = (int64_t *)c->p;
    for (uint32_t i = 0; i < r->n; i++)
        v[i] = w == TIME ? log_row_time(r, i) : w == OFFSET ? off + i : partition;
}

void record_columns(struct arena *a, const struct schema *s, const struct log_rows *rows,
                    int64_t off, uint32_t partition, struct column *cols) {
    for (int f = 1; f < s->n; f++) {
        struct column *c = &cols[f];
        enum what w = column_of(s->f[f].name);
        c->p = arena_alloc(a, rows->n * sizeof(struct span) + 1);
        switch (w) {
        case KEY:
        case KEY_BYTES:
            put_keys(a, c, rows, w == KEY);
            break;
        case HEADERS:
            put_headers(a, c, rows);
            break;
        case HEADER:
            put_header(a, c, rows, s->f[f].name + strlen(RECORD_HEADER));
            break;
        case TOMBSTONE:
            for (uint32_t i = 0; i < rows->n; i++)
                ((uint8_t *)c->p)[i] = (rows->value_end[i] & LOG_NULL) != 0;
            break;
        default:
            put_numbers(c, w, rows, off, partition);
        }
    }
}

bool time_cell(int unit, enum type type, const struct column *col, uint32_t row, int64_t *ms) {
    static const int64_t mul[] = { [TIME_S] = 1000, [TIME_MS] = 1, [TIME_US] = 1 };
    int64_t div = unit == TIME_US ? 1000 : 1;
    if (unit == TIME_RFC3339)
        return time_parse(col->str[row].p, col->str[row].p + col->str[row].len, ms) == 0;
    if (type == TYPE_F64) {
        double v = col->f64[row] * (double)mul[unit] / (double)div;
        if (!(v > -0x1p62 && v < 0x1p62))
            return false;
        *ms = (int64_t)v - (v < (double)(int64_t)v); /* floor */
        return true;
    }
    int64_t v = col->i64[row];
    if (v > DECODE_TIME_MAX / mul[unit] || v < DECODE_TIME_MIN / mul[unit])
        return false;
    v *= mul[unit];
    *ms = v / div - (v % div < 0);
    return true;
}
