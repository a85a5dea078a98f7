#include "cluster/text.h"
#include "engine/num.h"
#include <string.h>

/* Length of the UTF-8 character at s, 0 when there is none. */
static size_t character(const char *s, size_t len) {
    for (size_t n = 1; n <= 4 && n <= len; n++)
        if (utf8_valid(s, s + n))
            return n;
    return 0;
}

/* Messages quote what a client sent, in part: each byte that is not UTF-8 becomes U+FFFD. */
static void replaced(struct sbuf *out, const char *s, size_t len) {
    struct sbuf clean = { 0 };
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        n = character(s + i, len - i);
        sbuf_add(&clean, n ? s + i : "\xef\xbf\xbd", n ? n : 3);
    }
    sbuf_json_str(out, clean.p, clean.len);
    sbuf_free(&clean);
}

void text_json(struct sbuf *out, const char *s) {
    size_t len = s ? strlen(s) : 0;
    if (!s)
        sbuf_adds(out, "null");
    else if (utf8_valid(s, s + len))
        sbuf_json_str(out, s, len);
    else
        replaced(out, s, len);
}

/* RFC 4648, section 4. */
static void base64(struct sbuf *out, const unsigned char *p, size_t len) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char quad[4];
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned v =
            (unsigned)p[i] << 16 | (n > 1 ? (unsigned)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0u);
        quad[0] = digit[v >> 18];
        quad[1] = digit[v >> 12 & 63];
        quad[2] = n > 1 ? digit[v >> 6 & 63] : '=';
        quad[3] = n > 2 ? digit[v & 63] : '=';
        sbuf_add(out, quad, 4);
    }
}

void text_bytes(struct sbuf *out, const char *key, const char *p, size_t len) {
    bool utf8 = !p || utf8_valid(p, p + len);
    sbuf_printf(out, "\"%s%s\":", key, utf8 ? "" : "_b64");
    if (!p) {
        sbuf_adds(out, "null");
    } else if (utf8) {
        sbuf_json_str(out, p, len);
    } else {
        sbuf_adds(out, "\"");
        base64(out, (const unsigned char *)p, len);
        sbuf_adds(out, "\"");
    }
}

static const char *code_word(int code) {
    return code == ERR_INPUT      ? "input"
           : code == ERR_NOTFOUND ? "notfound"
           : code == ERR_CONFLICT ? "conflict"
                                  : "system";
}

static void add_error(struct sbuf *out, const struct err *e) {
    sbuf_printf(out, "{\"code\":\"%s\",\"file\":", code_word(e->code));
    text_json(out, e->file);
    sbuf_printf(out, ",\"line\":%d,\"col\":%d,\"pointer\":", e->line, e->col);
    text_json(out, e->pointer);
    sbuf_adds(out, ",\"text\":");
    text_json(out, e->text);
    sbuf_adds(out, "}");
}

/* The error that decides: a system error, else wrong input, else what comes first. */
static const struct err *worst(const struct err *v, int n) {
    const struct err *w = &v[0];
    for (int i = 0; i < n; i++)
        if (v[i].code == ERR_SYSTEM || (v[i].code == ERR_INPUT && w->code != ERR_SYSTEM))
            w = v[i].code == w->code ? w : &v[i];
    return w;
}

void text_errors(struct sbuf *out, const struct err *v, int n, int total) {
    const struct err *w = worst(v, n);
    sbuf_printf(out, "{\"error\":{\"code\":\"%s\",\"retriable\":%s,\"total\":%d,\"text\":",
                code_word(w->code), w->retriable ? "true" : "false", total);
    text_json(out, w->text);
    sbuf_adds(out, ",\"errors\":[");
    for (int i = 0; i < n; i++) {
        sbuf_adds(out, i ? "," : "");
        add_error(out, &v[i]);
    }
    sbuf_adds(out, "]}}");
}

int text_status(const struct err *v, int n) {
    const struct err *w = worst(v, n);
    return w->code == ERR_INPUT      ? 400
           : w->code == ERR_NOTFOUND ? 404
           : w->code == ERR_CONFLICT ? 409
           : w->retriable            ? 503
                                     : 500;
}
