/* CSV records (RFC 4180); see decode.h. ~5 ns a plain number, ~3 ns + length for text. */
#include "engine/decode_cell.h"
#include "engine/num.h"
#include "engine/scan.h"
#include <stdlib.h>

int decode_csv_open(struct decoder *d, const struct decode_csv *csv) {
    bool named = csv && csv->columns && csv->columns->n;
    d->delimiter = csv && csv->delimiter ? csv->delimiter : ',';
    d->header = csv && csv->header;
    d->ncolumns = named ? csv->columns->n : d->nfields;
    d->column = calloc((size_t)d->ncolumns + 1, sizeof *d->column);
    if (!d->column)
        abort();
    d->column_name = named ? csv->columns->v : NULL;
    for (int i = 0; i < d->ncolumns; i++)
        d->column[i] = named ? schema_find(d->schema, csv->columns->v[i]) : i;
    return 0;
}

/* A quoted cell, p behind the opening quote; *next is behind the closing one. A copy is made only
 * of a cell with doubled quotes, and only of its own size. 0 or -1. */
static int quoted_cell(struct arena *a, const char *text, const char *p, const char *end,
                       struct span *cell, const char **next, struct decode_error *e) {
    const char *begin = p, *q;
    size_t doubled = 0;
    while ((q = memchr(p, '"', (size_t)(end - p))) && q + 1 < end && q[1] == '"') {
        doubled++;
        p = q + 2;
    }
    if (!q)
        return decode_fail(e, "bad_csv", NULL, (uint32_t)(begin - 1 - text), "quote is not closed");
    *cell = (struct span){ .p = begin, .len = (uint32_t)((size_t)(q - begin) - doubled) };
    *next = q + 1;
    if (!doubled)
        return 0;
    char *out = arena_alloc(a, cell->len), *o = out;
    cell->p = out;
    for (p = begin; p < q; p++) {
        *o++ = *p;
        p += *p == '"'; /* the first of two */
    }
    return 0;
}
static const char *plain_end(const char *p, const char *end, char delimiter) {
    while (p < end && *p != delimiter && *p != '"' && *p != '\n' && *p != '\r')
        p++;
    return p;
}
/* The next cell at p; *next is at the delimiter or the end. */
static int next_cell(const struct decoder *d, struct arena *a, const char *text, const char *p,
                     const char *end, struct token *t, const char **next, struct decode_error *e) {
    t->type = J_STR;
    t->off = (uint32_t)(p - text);
    if (p < end && *p == '"') {
        if (quoted_cell(a, text, p + 1, end, &t->s, next, e) != 0)
            return -1;
        if (*next < end && **next != d->delimiter)
            return decode_fail(e, "bad_csv", NULL, (uint32_t)(*next - text),
                               "text after a closing quote");
        return 0;
    }
    *next = plain_end(p, end, d->delimiter);
    if (*next < end && **next != d->delimiter)
        return decode_fail(e, "bad_csv", NULL, (uint32_t)(*next - text),
                           **next == '"' ? "quote inside a cell that does not begin with one"
                                         : "line break outside quotes");
    t->s = (struct span){ .p = p, .len = (uint32_t)(*next - p) };
    if (t->s.len == 0)
        t->type = J_NULL;
    return 0;
}
/* A plain decimal straight into an f64 cell; NULL when it is none. */
static const char *quick_f64(const struct decoder *d, const char *text, const char *p,
                             const char *end, double *cell) {
    uint64_t w;
    int places;
    bool neg;
    const char *q = scan_decimal(text, p, end, &w, &places, &neg);
    if (!q || (q < end && *q != d->delimiter))
        return NULL;
    *cell = scan_f64(w, places, neg);
    return q;
}

static bool is_header(const struct decoder *d, struct arena *a, const char *text, const char *end) {
    struct decode_error e;
    const char *p = text;
    for (int i = 0; i < d->ncolumns; i++) {
        const char *name = d->column_name ? d->column_name[i] : d->schema->f[i].name, *next;
        struct token t;
        if (next_cell(d, a, text, p, end, &t, &next, &e) != 0 || t.s.len != strlen(name) ||
            memcmp(t.s.p, name, t.s.len) != 0 || (next == end) != (i + 1 == d->ncolumns))
            return false;
        p = next + 1;
    }
    return true;
}
static int count_cells(const struct decoder *d, struct arena *a, const char *text, const char *p,
                       const char *end, int n) {
    struct token t;
    struct decode_error e;
    for (const char *next; next_cell(d, a, text, p, end, &t, &next, &e) == 0; p = next + 1) {
        n++;
        if (next == end)
            break;
    }
    return n;
}

int decode_csv_record(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                      uint32_t row, struct decode_error *e) {
    const char *end = text + len, *p = text, *next;
    d->now++;
    if (end > p && end[-1] == '\n')
        end--;
    if (end > p && end[-1] == '\r')
        end--;
    if (!utf8_valid(text, end))
        return decode_fail(e, "bad_csv", NULL, 0, "invalid UTF-8");
    if (end - text >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return decode_fail(e, "bad_csv", NULL, 0, "begins with a byte order mark");
    if (d->header && is_header(d, o->arena, text, end))
        return DECODE_SKIP;
    for (int i = 0; i < d->ncolumns; i++, p = next + 1) {
        int field = d->column[i];
        bool last = i + 1 == d->ncolumns;
        struct token t;
        if (field >= 0 && d->schema->f[field].type == TYPE_F64 &&
            (next = quick_f64(d, text, p, end, (double *)o->value[field] + row)) != NULL) {
            d->seen[field] = d->now;
        } else {
            if (next_cell(d, o->arena, text, p, end, &t, &next, e) != 0)
                return -1;
            if (field >= 0) {
                d->seen[field] = d->now;
                if (decode_cell(d, o, row, field, &t, e) != 0)
                    return -1;
            }
        }
        if ((next == end) != last)
            return decode_fail(
                e, "bad_csv", NULL, (uint32_t)(next - text), "%d cells, %d columns are expected",
                last ? count_cells(d, o->arena, text, next + 1, end, i + 1) : i + 1, d->ncolumns);
    }
    decode_missing(d, o, row);
    return 0;
}
