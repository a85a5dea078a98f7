#include "engine/encode.h"
#include "engine/json.h"
#include "engine/log.h"
#include "engine/num.h"
#include "engine/record.h"
#include "engine/scan.h"
#include <assert.h>
#include <stdlib.h>

enum { COPY = 32 }; /* fragments are copied in whole vectors: that much slack behind both ends */

struct piece {  /* one column of the output */
    char *frag; /* what stands before the value, padded to a multiple of COPY */
    uint32_t len;
    int field;
    enum type type;
    uint32_t dim;
};
struct payloads { /* given out in one tick */
    struct log_buf **v;
    int n, cap;
};
struct encoder {
    enum encode_format format;
    const struct schema *schema;
    struct encode_meta meta;
    int n;
    struct piece *piece;
    int time;     /* SenML: field that becomes bt, -1: none */
    int raw;      /* ENCODE_RAW: field */
    size_t fixed; /* bytes a row needs beside its strings */
    struct payloads now, last;
};

/* ---- SenML columns ---- */

/* The next line of [*p,end), without its end. */
static struct span next_line(const char **p, const char *end) {
    const char *nl = memchr(*p, '\n', (size_t)(end - *p)), *stop = nl ? nl : end;
    struct span s = { .p = *p, .len = (uint32_t)(stop - *p) };
    if (s.len && s.p[s.len - 1] == '\r')
        s.len--;
    *p = nl ? nl + 1 : end;
    return s;
}
/* The next cell of a line; false at its end. */
static bool next_word(struct span *line, bool *more, struct span *word) {
    if (!*more)
        return false;
    const char *comma = memchr(line->p, ',', line->len);
    word->p = line->p;
    word->len = comma ? (uint32_t)(comma - line->p) : line->len;
    *more = comma != NULL;
    line->p += word->len + *more;
    line->len -= word->len + *more;
    return true;
}
int encode_senml_columns(const struct file *f, struct arena *a, struct encode_senml **out, int *n,
                         struct err *e) {
    const char *p = f->data, *end = f->data + f->len;
    struct span line[3], word[3];
    bool more[3] = { true, true, true };
    for (int i = 0; i < 3; i++) {
        line[i] = next_line(&p, end);
        if (line[i].len == 0)
            return err_set(e, ERR_INPUT,
                           "schema file '%s' needs three lines: names, units, and v or sv",
                           f->name);
    }
    struct encode_senml *v = ARENA_ARRAY(a, struct encode_senml, SCHEMA_FIELDS_MAX);
    for (*n = 0; next_word(&line[0], &more[0], &word[0]); ++*n) {
        bool unit = next_word(&line[1], &more[1], &word[1]);
        if (!unit || !next_word(&line[2], &more[2], &word[2]))
            return err_set(e, ERR_INPUT, "schema file '%s': line %d has fewer cells than line 1",
                           f->name, unit ? 3 : 2);
        bool sv = word[2].len == 2 && memcmp(word[2].p, "sv", 2) == 0;
        if (!sv && !(word[2].len == 1 && word[2].p[0] == 'v'))
            return err_set(e, ERR_INPUT, "schema file '%s': cell %d of line 3 is not v or sv",
                           f->name, *n + 1);
        if (*n == SCHEMA_FIELDS_MAX)
            return err_set(e, ERR_INPUT, "schema file '%s' has more than %d columns", f->name,
                           SCHEMA_FIELDS_MAX);
        v[*n] = (struct encode_senml){ arena_strndup(a, word[0].p, word[0].len),
                                       arena_strndup(a, word[1].p, word[1].len), sv };
    }
    if (more[1] || more[2])
        return err_set(e, ERR_INPUT, "schema file '%s': line %d has more cells than line 1",
                       f->name, more[1] ? 2 : 3);
    *out = v;
    return 0;
}

/* ---- preparing ---- */

static void take_fragment(struct piece *p, struct sbuf *b) {
    size_t cap = (b->len + COPY) / COPY * COPY;
    p->len = (uint32_t)b->len;
    p->frag = calloc(1, cap);
    if (!p->frag)
        abort();
    if (b->len)
        memcpy(p->frag, b->p, b->len);
    b->len = 0;
}
static void senml_pieces(struct encoder *e, const struct encode_senml *c, int n, struct sbuf *b) {
    for (int i = 0; i < n; i++) {
        int field = schema_find(e->schema, c[i].name);
        if (field < 0)
            continue;
        if (strcmp(c[i].name, "timestamp") == 0) {
            e->time = field;
            continue;
        }
        struct piece *p = &e->piece[e->n++];
        p->field = field;
        sbuf_adds(b, ",{\"u\":");
        sbuf_json_str(b, c[i].unit, strlen(c[i].unit));
        sbuf_adds(b, ",\"n\":");
        sbuf_json_str(b, c[i].name, strlen(c[i].name));
        sbuf_adds(b, c[i].sv ? ",\"sv\":\"" : ",\"v\":\"");
        take_fragment(p, b);
    }
}
static bool listed(const struct strs *l, const char *name) {
    for (int i = 0; l && i < l->n; i++)
        if (strcmp(l->v[i], name) == 0)
            return true;
    return false;
}
static void plain_pieces(struct encoder *e, struct sbuf *b) {
    for (int i = 0; i < e->schema->n; i++) {
        if (listed(e->meta.without, e->schema->f[i].name))
            continue;
        bool first = e->n == 0;
        struct piece *p = &e->piece[e->n++];
        p->field = i;
        if (e->format == ENCODE_JSON) {
            sbuf_adds(b, first ? "{" : ",");
            sbuf_json_str(b, e->schema->f[i].name, strlen(e->schema->f[i].name));
            sbuf_adds(b, ":");
        } else if (e->format == ENCODE_CSV && !first) {
            sbuf_adds(b, ",");
        }
        take_fragment(p, b);
    }
}
int encode_raw_field(const struct schema *s, const struct strs *without) {
    int found = -1, n = 0;
    for (int i = 0; i < s->n; i++) {
        if ((s->f[i].type != TYPE_STR && s->f[i].type != TYPE_BYTES) ||
            listed(without, s->f[i].name))
            continue;
        if (strcmp(s->f[i].name, "value") == 0)
            return i;
        found = i;
        n++;
    }
    return n == 1 ? found : -1;
}
struct encoder *encoder_new_meta(enum encode_format f, const struct schema *s,
                                 const struct encode_meta *m, const struct encode_senml *senml,
                                 int nsenml) {
    struct encoder *e = calloc(1, sizeof *e);
    int n = f == ENCODE_SENML ? nsenml : s->n;
    struct sbuf b = { 0 };
    if (!e || !(e->piece = calloc((size_t)n + 1, sizeof *e->piece)))
        abort();
    e->format = f;
    e->schema = s;
    e->meta = *m;
    e->time = -1;
    e->raw = encode_raw_field(s, m->without);
    if (f == ENCODE_SENML)
        senml_pieces(e, senml, nsenml, &b);
    else
        plain_pieces(e, &b);
    sbuf_free(&b);
    e->fixed = 64 + 2 * NUM_F64_MAX_LEN;
    for (int i = 0; i < e->n; i++) {
        struct piece *p = &e->piece[i];
        p->type = s->f[p->field].type;
        p->dim = s->f[p->field].dim;
        e->fixed += p->len + COPY + 8 + NUM_F64_MAX_LEN * (size_t)(1 + p->dim);
    }
    return e;
}
struct encoder *encoder_new(enum encode_format f, const struct schema *s, int key,
                            const struct encode_senml *senml, int nsenml) {
    struct encode_meta m = { .key = key, .time = -1, .tombstone = -1 };
    return encoder_new_meta(f, s, &m, senml, nsenml);
}
void encoder_free(struct encoder *e) {
    if (!e)
        return;
    for (int i = 0; i < e->n; i++)
        free(e->piece[i].frag);
    free(e->piece);
    encoder_tick(e);
    encoder_tick(e);
    free(e->now.v);
    free(e->last.v);
    free(e);
}

/* ---- writing ---- */

static inline char *put_fragment(char *o, const char *frag, uint32_t len) {
    for (uint32_t i = 0; i < len; i += COPY)
        memcpy(o + i, frag + i, COPY);
    return o + len;
}
/* Copies n bytes; up to 32 without a call. */
static inline char *put_bytes(char *o, const char *p, uint32_t n) {
    if (n > 32) {
        memcpy(o, p, n);
    } else if (n >= 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)p);
        __m128i b = _mm_loadu_si128((const __m128i *)(p + n - 16));
        _mm_storeu_si128((__m128i *)o, a);
        _mm_storeu_si128((__m128i *)(o + n - 16), b);
    } else if (n >= 8) {
        uint64_t a, b;
        memcpy(&a, p, 8);
        memcpy(&b, p + n - 8, 8);
        memcpy(o, &a, 8);
        memcpy(o + n - 8, &b, 8);
    } else {
        for (uint32_t i = 0; i < n; i++)
            o[i] = p[i];
    }
    return o + n;
}
static char *put_escaped(char *o, const char *p, const char *end) {
    static const char hex[] = "0123456789abcdef";
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c != '"' && c != '\\') {
            *o++ = (char)c;
            continue;
        }
        *o++ = '\\';
        if (c == '"' || c == '\\') {
            *o++ = (char)c;
        } else if (c == '\n' || c == '\r' || c == '\t') {
            *o++ = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        } else {
            memcpy(o, "u00", 3);
            o[3] = hex[c >> 4];
            o[4] = hex[c & 15];
            o += 5;
        }
    }
    return o;
}
/* The inside of a JSON string. ~4 ns for 25 bytes. */
static inline char *put_json(char *o, struct span s) {
    bool high = false;
    const char *end = s.p + s.len, *stop = scan_string(s.p, end, &high);
    o = put_bytes(o, s.p, (uint32_t)(stop - s.p));
    return stop == end ? o : put_escaped(o, stop, end);
}
/* Quotes also what would read as a byte order mark at the begin of a record. */
static char *put_csv(char *o, struct span s) {
    bool quote = s.len == 0 || (s.len >= 3 && memcmp(s.p, "\xef\xbb\xbf", 3) == 0);
    for (uint32_t i = 0; i < s.len && !quote; i++)
        quote = s.p[i] == ',' || s.p[i] == '"' || s.p[i] == '\n' || s.p[i] == '\r';
    if (!quote)
        return put_bytes(o, s.p, s.len);
    *o++ = '"';
    for (uint32_t i = 0; i < s.len; i++) {
        if (s.p[i] == '"')
            *o++ = '"';
        *o++ = s.p[i];
    }
    *o++ = '"';
    return o;
}
static inline char *put_bool(char *o, bool b) {
    memcpy(o, b ? "true" : "false", 5);
    return o + (b ? 4 : 5);
}
static char *put_vec(char *o, const float *v, uint32_t dim) {
    *o++ = '[';
    for (uint32_t i = 0; i < dim; i++) {
        if (i)
            *o++ = ',';
        o += num_write_f64(o, (double)v[i]);
    }
    *o++ = ']';
    return o;
}
/* A number or boolean. */
static inline char *put_scalar(char *o, const struct column *c, enum type t, uint32_t row) {
    if (t == TYPE_F64)
        return o + num_write_f64(o, c->f64[row]);
    if (t == TYPE_I64)
        return o + num_write_i64(o, c->i64[row]);
    return put_bool(o, c->b[row]);
}
static inline bool is_text(enum type t) {
    return t == TYPE_STR || t == TYPE_BYTES;
}

static char *row_json(const struct encoder *e, const struct batch *b, uint32_t row, char *o) {
    if (e->n == 0)
        *o++ = '{';
    for (const struct piece *p = e->piece, *last = p + e->n; p < last; p++) {
        const struct column *c = &b->cols[p->field];
        o = put_fragment(o, p->frag, p->len);
        if (column_null(c, row)) {
            memcpy(o, "null", 4);
            o += 4;
        } else if (is_text(p->type)) {
            *o++ = '"';
            o = put_json(o, c->str[row]);
            *o++ = '"';
        } else if (p->type == TYPE_VEC) {
            o = put_vec(o, c->vec + (size_t)row * p->dim, p->dim);
        } else {
            o = put_scalar(o, c, p->type, row);
        }
    }
    *o++ = '}';
    return o;
}
static char *row_csv(const struct encoder *e, const struct batch *b, uint32_t row, char *o) {
    for (const struct piece *p = e->piece, *last = p + e->n; p < last; p++) {
        const struct column *c = &b->cols[p->field];
        if (p->len)
            *o++ = ',';
        if (column_null(c, row))
            continue;
        o = is_text(p->type) ? put_csv(o, c->str[row]) : put_scalar(o, c, p->type, row);
    }
    return o;
}
static char *row_senml(const struct encoder *e, const struct batch *b, uint32_t row, char *o) {
    uint32_t first = 1; /* the first entry goes without its comma */
    memcpy(o, "{\"e\":[", 6);
    o += 6;
    for (const struct piece *p = e->piece, *last = p + e->n; p < last; p++) {
        const struct column *c = &b->cols[p->field];
        if (column_null(c, row))
            continue;
        o = put_fragment(o - first, p->frag, p->len);
        if (first)
            o[-(int)p->len] = '[';
        first = 0;
        o = is_text(p->type) ? put_json(o, c->str[row]) : put_scalar(o, c, p->type, row);
        memcpy(o, "\"}", 2);
        o += 2;
    }
    *o++ = ']';
    if (e->time >= 0 && !column_null(&b->cols[e->time], row)) {
        enum type t = e->schema->f[e->time].type;
        const struct column *c = &b->cols[e->time];
        memcpy(o, ",\"bt\":\"", 7);
        o = is_text(t) ? put_json(o + 7, c->str[row]) : put_scalar(o + 7, c, t, row);
        *o++ = '"';
    }
    *o++ = '}';
    return o;
}

/* Bytes that a row's strings may become, or SIZE_MAX when bytes are not text. */
static size_t text_room(const struct encoder *e, const struct batch *b, uint32_t row) {
    size_t sum = 0;
    for (int i = 0; i < e->schema->n; i++) {
        enum type t = e->schema->f[i].type;
        if (!is_text(t) || column_null(&b->cols[i], row))
            continue;
        struct span s = b->cols[i].str[row];
        if (t == TYPE_BYTES && e->format != ENCODE_RAW && !utf8_valid(s.p, s.p + s.len))
            return SIZE_MAX;
        sum += s.len;
    }
    return sum;
}
/* A cell as bytes: its own, or the text of a number or boolean in `text`. */
static struct span cell_bytes(const struct encoder *e, const struct batch *b, int field,
                              uint32_t row, char text[NUM_F64_MAX_LEN]) {
    const struct column *c = &b->cols[field];
    enum type t = e->schema->f[field].type;
    if (is_text(t))
        return c->str[row];
    return (struct span){ .p = text, .len = (uint32_t)(put_scalar(text, c, t, row) - text) };
}
/* Key, time and headers of the record just written. */
static void put_meta(const struct encoder *e, const struct batch *b, uint32_t row, int64_t time,
                     struct log_buf *buf) {
    const struct encode_meta *m = &e->meta;
    char text[NUM_F64_MAX_LEN];
    if (m->key >= 0 && !column_null(&b->cols[m->key], row)) {
        struct span v = cell_bytes(e, b, m->key, row, text);
        log_buf_key(buf, v.p, v.len, false);
    }
    log_buf_time(buf, time);
    for (int i = 0; i < m->nheaders; i++) {
        const struct encode_header *h = &m->header[i];
        if (column_null(&b->cols[h->field], row))
            continue;
        struct span v = cell_bytes(e, b, h->field, row, text);
        log_buf_header(buf, h->name, strlen(h->name), v.p ? v.p : "", v.len);
    }
}
static bool is_tombstone(const struct encoder *e, const struct batch *b, uint32_t row) {
    const struct column *c = e->meta.tombstone >= 0 ? &b->cols[e->meta.tombstone] : NULL;
    return c && !column_null(c, row) && c->b[row];
}
/* False with *code set when it is no time. */
static bool own_time(const struct encoder *e, const struct batch *b, uint32_t row, int64_t *ms,
                     const char **code) {
    int f = e->meta.time;
    *ms = LOG_NO_TIME;
    if (f < 0 || column_null(&b->cols[f], row) ||
        time_cell(e->meta.time_unit, e->schema->f[f].type, &b->cols[f], row, ms))
        return true;
    *code = "bad_time";
    return false;
}
/* The value of a row; false with *code set when it cannot be written. */
static bool encode_value(const struct encoder *e, const struct batch *b, uint32_t row,
                         struct log_buf *buf, const char **code) {
    size_t text = text_room(e, b, row);
    if (text == SIZE_MAX || text > LOG_RECORD_MAX) {
        *code = text == SIZE_MAX ? "bad_utf8" : "too_large";
        return false;
    }
    char *begin = log_buf_room(buf, e->fixed + 6 * text), *o = NULL;
    switch (e->format) {
    case ENCODE_JSON:
        o = row_json(e, b, row, begin);
        break;
    case ENCODE_CSV:
        o = row_csv(e, b, row, begin);
        break;
    case ENCODE_SENML:
        o = row_senml(e, b, row, begin);
        break;
    case ENCODE_RAW:
        if (column_null(&b->cols[e->raw], row)) {
            *code = "null_value";
            return false;
        }
        o = put_bytes(begin, b->cols[e->raw].str[row].p, b->cols[e->raw].str[row].len);
        break;
    }
    assert(o);
    if (o - begin > LOG_RECORD_MAX) {
        *code = "too_large";
        return false;
    }
    log_buf_end(buf, (size_t)(o - begin));
    return true;
}
/* One row; false with *code set when it cannot be written. */
static bool encode_row(const struct encoder *e, const struct batch *b, uint32_t row,
                       struct log_buf *buf, const char **code) {
    int64_t time;
    if (!own_time(e, b, row, &time, code))
        return false;
    if (is_tombstone(e, b, row))
        log_buf_null(buf);
    else if (!encode_value(e, b, row, buf, code))
        return false;
    put_meta(e, b, row, time, buf);
    return true;
}

/* Rows from..to-1 of `b` with the values of `buf`, without a selection: one row a value. */
static struct batch *encoded_batch(struct arena *a, const struct batch *b, uint32_t from,
                                   uint32_t to, const struct schema *out, struct log_buf *buf) {
    struct column *c = arena_zalloc(a, sizeof *c);
    struct span *v = ARENA_ARRAY(a, struct span, buf->n);
    const struct batch *rows = batch_slice(a, b, from, to);
    struct batch *r =
        rows->sel ? batch_make(a, rows, out, rows->sel, rows->n, false, &c) : batch_copy(a, rows);
    for (uint32_t i = 0, at = 0; i < buf->n; i++) {
        uint32_t end = log_end(buf->value_end, i);
        v[i] = (struct span){ .p = buf->values + at, .len = end - at };
        at = end;
        if (!(buf->value_end[i] & LOG_NULL))
            continue;
        if (!c->nulls)
            c->nulls = batch_nulls(a, buf->n);
        bit_set((uint64_t *)(uintptr_t)c->nulls, i);
    }
    c->str = v;
    r->schema = out;
    r->cols = c;
    r->encoded = buf;
    return r;
}
static void payload_keep(struct payloads *p, struct log_buf *buf) {
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 8;
        p->v = realloc(p->v, (size_t)p->cap * sizeof *p->v);
        if (!p->v)
            abort();
    }
    p->v[p->n++] = buf;
}
void encoder_tick(struct encoder *e) {
    struct payloads old = e->last;
    for (int i = 0; i < old.n; i++)
        log_buf_unref(old.v[i]);
    old.n = 0;
    e->last = e->now;
    e->now = old;
}
struct batch *encode_next(struct encoder *e, struct arena *a, const struct batch *b, uint32_t *from,
                          const struct schema *out, bool seal, const char **code) {
    uint32_t begin = *from, i = begin;
    *code = NULL;
    const struct encode_meta *m = &e->meta;
    bool plain = m->key < 0 && m->time < 0 && m->tombstone < 0 && m->nheaders == 0;
    if (e->format == ENCODE_RAW && b->encoded && !b->sel && plain && begin == 0) {
        struct batch *same = batch_copy(a, b);
        log_buf_seal(b->encoded);
        same->encoded = b->encoded;
        same->schema = out;
        *from = b->n;
        return same;
    }
    struct log_buf *buf = log_buf_new();
    payload_keep(&e->now, buf);
    while (i < b->n && buf->values_len < LOG_BUF_BYTES &&
           encode_row(e, b, batch_row(b, i), buf, code))
        i++;
    *from = i;
    if (i == begin)
        return NULL;
    if (seal)
        log_buf_seal(buf);
    return encoded_batch(a, b, begin, i, out, buf);
}
const char *encode_reason(const char *code) {
    if (strcmp(code, "bad_utf8") == 0)
        return "bytes that are not UTF-8 cannot be written as text";
    if (strcmp(code, "null_value") == 0)
        return "the value is null";
    if (strcmp(code, "bad_time") == 0)
        return "the time field holds no time";
    return "the record would be larger than 16 MiB";
}
