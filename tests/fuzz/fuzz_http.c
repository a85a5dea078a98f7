/* Bodies of requests with any bytes. The first byte chooses the kind: 0 a submit, 1 records by
 * lines, 2 records by lengths, 3 bytes to be written as JSON. */
#include "cluster/http_impl.h"
#include "cluster/ingest.h"
#include "cluster/text.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_submit(const char *text, size_t len) {
    struct submit_body b;
    struct errs es = { 0 };
    struct arena a = { 0 };
    int rc = http_submit_parse(&b, text, len, &a, &es);
    if ((rc == 0) != (es.n == 0) || (rc == 0 && (b.n < 1 || b.n > COORD_SPECS_MAX)))
        abort();
    struct sbuf out = { 0 };
    if (es.n)
        text_errors(&out, es.v, es.n, es.total);
    sbuf_free(&out);
    errs_free(&es);
    arena_free(&a);
}

static size_t bytes_of(const struct ingest_rows *rows, int64_t *n) {
    size_t bytes = 0;
    *n = 0;
    for (int i = 0; i < rows->nbufs; i++) {
        bytes += rows->buf[i]->values_len;
        *n += rows->buf[i]->n;
    }
    return bytes;
}

/* No byte is made up or lost: lines have one LF each (but perhaps the last) and maybe a CR. */
static void fuzz_lines(const char *text, size_t len) {
    struct ingest_rows rows;
    struct err e = ERR_INIT;
    int64_t n, lf = 0, cr = 0;
    if (ingest_lines(&rows, text, len, &e) < 0)
        abort();
    for (size_t i = 0; i < len; i++) {
        lf += text[i] == '\n';
        cr += text[i] == '\n' && i > 0 && text[i - 1] == '\r';
    }
    if (bytes_of(&rows, &n) != len - (size_t)(lf + cr) ||
        n != lf + (len > 0 && text[len - 1] != '\n') || n != rows.n)
        abort();
    ingest_rows_free(&rows);
}

static void fuzz_lengths(const char *data, size_t len) {
    struct ingest_rows rows;
    struct err e = ERR_INIT;
    int64_t n;
    if (ingest_lengths(&rows, data, len, &e) == 0) {
        if (bytes_of(&rows, &n) != len - 4 * (size_t)rows.n || n != rows.n)
            abort();
        ingest_rows_free(&rows);
    } else if (e.offset < 0 || (size_t)e.offset >= len) {
        abort();
    }
}

/* What is written is JSON, whatever the bytes. */
static void fuzz_text(const char *data, size_t len) {
    struct sbuf out = { 0 };
    struct errs es = { 0 };
    struct arena a = { 0 };
    struct json_doc doc;
    char *quoted = strndup(len ? data : "", len); /* as a message would hold it */
    if (!quoted)
        abort();
    sbuf_adds(&out, "{\"message\":");
    text_json(&out, quoted);
    sbuf_adds(&out, ",");
    text_bytes(&out, "k", data, len);
    sbuf_adds(&out, "}");
    free(quoted);
    if (json_parse(&doc, NULL, out.p, out.len, &a, &es) < 0)
        abort();
    arena_free(&a);
    sbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *p = (const char *)data + 1;
    if (size == 0 || size > 1 << 20)
        return 0;
    switch (data[0] & 3) {
    case 0:
        fuzz_submit(p, size - 1);
        break;
    case 1:
        fuzz_lines(p, size - 1);
        break;
    case 2:
        fuzz_lengths(p, size - 1);
        break;
    default:
        fuzz_text(p, size - 1);
    }
    return 0;
}
