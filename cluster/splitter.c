#include "cluster/splitter.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WINDOW = SPLITTER_RECORD_MAX + 2, /* a record and its CRLF */
    FIRST_CAP = 256 << 10
};

/* ---- reading ---- */

static void resize(struct splitter *s, size_t cap) {
    s->cap = cap;
    s->buf = realloc(s->buf, cap);
    if (!s->buf)
        abort();
}
/* More bytes behind those at hand, for which there is room. */
static int fill(struct splitter *s, struct err *e) {
    for (;;) {
        ssize_t n = read(s->fd, s->buf + s->end, s->cap - s->end);
        if (n >= 0) {
            s->end += (size_t)n;
            s->eof = n == 0;
            return 0;
        }
        if (errno != EINTR)
            return err_errno(e, errno, "cannot read %s", s->path);
    }
}
/* More of the record at the front, of which less than a window is here. */
static int more(struct splitter *s, struct err *e) {
    if (s->at > 0) {
        memmove(s->buf, s->buf + s->at, s->end - s->at);
        s->end -= s->at;
        s->at = 0;
    }
    if (s->end == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : FIRST_CAP;
        resize(s, cap < WINDOW ? cap : WINDOW);
    }
    return fill(s, e);
}

int splitter_load(struct splitter *s, size_t size, struct err *e) {
    resize(s, size + 1);
    while (!s->eof && s->end < s->cap) {
        int rc = fill(s, e);
        if (rc)
            return rc;
    }
    return s->eof;
}
uint64_t splitter_lines(const struct splitter *s) {
    uint64_t n = 0;
    const char *p = s->buf, *end = p + s->end;
    for (; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        n++;
    return n;
}
int splitter_rewind(struct splitter *s, struct err *e) {
    if (lseek(s->fd, 0, SEEK_SET) < 0)
        return err_errno(e, errno, "cannot read %s again", s->path);
    splitter_free(s);
    s->eof = false;
    s->records = 0;
    return 0;
}
void splitter_free(struct splitter *s) {
    free(s->buf);
    s->buf = NULL;
    s->cap = s->at = s->end = 0;
}

/* ---- where a record ends ---- */

/* The closing quote of a cell that opens at p, or NULL when it is not here. */
static const char *closing_quote(const char *p, const char *end) {
    const char *q = p + 1;
    while ((q = memchr(q, '"', (size_t)(end - q))) && q + 1 < end && q[1] == '"')
        q += 2;
    return q;
}
/* Whether a cell may end before p. */
static bool ends_cell(const char *p, const char *end, char delimiter) {
    return p == end || *p == delimiter || *p == '\n' ||
           (*p == '\r' && (p + 1 == end || p[1] == '\n'));
}
/* Behind the time that stands before the record in a timed file. */
static const char *skip_time(const char *p, const char *end) {
    const char *q = p + (p < end && *p == '-');
    while (q < end && q - p < 20 && *q >= '0' && *q <= '9')
        q++;
    return q > p && q < end && *q == ',' ? q + 1 : p;
}
/* The line end that ends the CSV record at p, or `end` when none does. *sure is false when bytes
 * behind `end` may change that. */
static const char *csv_end(const char *p, const char *end, char delimiter, bool *sure) {
    const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
    *sure = nl != NULL;
    if (!memchr(p, '"', (size_t)(stop - p)))
        return stop;
    for (const char *cell = skip_time(p, end);; cell++) { /* behind a delimiter */
        const char *from = cell;
        if (cell < end && *cell == '"') {
            const char *q = closing_quote(cell, end);
            if (!q || q + 1 == end || (q[1] == '\r' && q + 2 == end))
                *sure = false;
            if (!q || !ends_cell(q + 1, end, delimiter))
                return stop; /* the line in which it opens */
            from = q + 1;
            if (from > stop) {
                nl = memchr(from, '\n', (size_t)(end - from));
                *sure &= nl != NULL;
                stop = nl ? nl : end;
            }
        }
        cell = memchr(from, delimiter, (size_t)(stop - from));
        if (!cell)
            return stop;
    }
}

int splitter_next(struct splitter *s, const char **p, uint32_t *len, struct err *e) {
    for (size_t seen = 0;;) { /* bytes of the line that hold no line end */
        size_t n = s->end - s->at;
        n = n < WINDOW ? n : WINDOW;
        const char *from = n ? s->buf + s->at : NULL, *stop = NULL;
        bool last = s->eof || n == WINDOW, sure = false;
        if (n > 0 && s->delimiter)
            stop = csv_end(from, from + n, s->delimiter, &sure);
        else if (n > seen && (stop = memchr(from + seen, '\n', n - seen)))
            sure = true;
        if (n > 0 && (sure || last)) {
            size_t size = stop ? (size_t)(stop - from) : n;
            bool line_end = size < n;
            s->records++;
            s->at += size + line_end;
            size -= line_end && size > 0 && from[size - 1] == '\r';
            if (size > SPLITTER_RECORD_MAX)
                return err_set(e, ERR_INPUT, "%s: record %lld is longer than 16 MiB", s->path,
                               (long long)s->records);
            *p = from;
            *len = (uint32_t)size;
            return 1;
        }
        if (last)
            return 0;
        seen = n;
        int rc = more(s, e);
        if (rc)
            return rc;
    }
}
