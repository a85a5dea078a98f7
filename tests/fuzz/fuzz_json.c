/* JSON texts: events lie inside and never go back, the tree's canonical form is a fixed point, and
 * numbers that are read are written and read again as themselves. */
#include "engine/json.h"
#include "engine/num.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void numbers(const struct json_reader *r) {
    char text[NUM_F64_MAX_LEN];
    double d;
    int64_t i;
    int n = num_write_f64(text, r->d);
    if (n > 26 || num_f64_whole(text, text + n, &d) != 0 || d != r->d)
        abort();
    if (r->event != JE_INT)
        return;
    n = num_write_i64(text, r->i);
    if (n > 20 || num_i64_whole(text, text + n, &i) != 0 || i != r->i)
        abort();
}
/* Whether the text is one JSON value. */
static bool events(const char *text, size_t len) {
    struct json_reader r;
    const char *last = text;
    json_open(&r, text, len, NULL);
    for (enum jevent ev; (ev = json_next(&r)) != JE_END && ev != JE_ERROR;) {
        if (r.at < last || r.at >= text + len || r.depth > JSON_DEPTH_MAX)
            abort();
        last = r.at;
        if ((ev == JE_STR || ev == JE_KEY) && !utf8_valid(r.s, r.s + r.len))
            abort();
        if (ev == JE_INT || ev == JE_REAL)
            numbers(&r);
    }
    bool good = r.event == JE_END;
    if (!good && (r.err.offset < 0 || (size_t)r.err.offset > len || r.err.line < 1))
        abort();
    json_close(&r);
    return good;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 1 << 16)
        return 0;
    const char *text = (const char *)data;
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc d, again;
    struct sbuf one = { 0 }, two = { 0 };
    bool good = events(text, size);
    int rc = json_parse(&d, NULL, text, size, &a, &es);
    if (good != (d.root != NULL) || (rc == 0 && !good) || (rc != 0 && es.total == 0))
        abort();
    if (d.root) {
        sbuf_json_canonical(&one, d.root);
        if (json_parse(&again, NULL, one.p, one.len, &a, &es) != 0)
            abort();
        sbuf_json_canonical(&two, again.root);
        if (one.len != two.len || memcmp(one.p, two.p, one.len) != 0)
            abort();
    }
    sbuf_free(&one);
    sbuf_free(&two);
    errs_free(&es);
    arena_free(&a);
    return 0;
}
