#include "cluster/client.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECT_SECONDS = 5, QUIET_SECONDS = 120 };

struct client {
    CURL *curl;
    char *url; /* without a slash at its end */
    char error[CURL_ERROR_SIZE];
};
struct receiving {
    struct sbuf *whole;
    int (*each)(void *, const char *, size_t);
    void *arg;
    CURL *curl;
    struct sbuf error; /* body of an answer that is no success, when streaming */
    bool stopped, too_large;
};

int client_open(struct client **out, const char *url, struct errs *es) {
    struct err e;
    *out = NULL;
    size_t len = strlen(url);
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
        err_set(&e, ERR_INPUT, "the server's URL '%s' does not begin with http://", url);
        return errs_add(es, &e);
    }
    while (len > 8 && url[len - 1] == '/')
        len--;
    struct client *c = calloc(1, sizeof *c);
    if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(c->curl = curl_easy_init()) ||
        !(c->url = strndup(url, len)))
        abort();
    *out = c;
    return 0;
}

void client_close(struct client *c) {
    if (!c)
        return;
    curl_easy_cleanup(c->curl);
    free(c->url);
    free(c);
}

const char *client_escape(struct client *c, const char *text, struct arena *a) {
    char *s = curl_easy_escape(c->curl, text, 0);
    if (!s)
        abort();
    const char *copy = arena_strdup(a, s);
    curl_free(s);
    return copy;
}

/* ---- transfers ---- */

static size_t on_data(char *p, size_t size, size_t n, void *arg) {
    struct receiving *r = arg;
    long status = 0;
    size_t len = size * n;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    struct sbuf *to = r->whole;
    if (r->each && status < 300) {
        r->stopped = r->each(r->arg, p, len) != 0;
        return r->stopped ? 0 : len;
    }
    if (!to)
        to = &r->error;
    r->too_large = to->len + len > CLIENT_REPLY_MAX;
    if (r->too_large)
        return 0;
    sbuf_add(to, p, len);
    return len;
}

static int code_of(long status) {
    switch (status) {
    case 404:
        return ERR_NOTFOUND;
    case 409:
        return ERR_CONFLICT;
    default:
        return status >= 400 && status < 500 ? ERR_INPUT : ERR_SYSTEM;
    }
}

static void copy_text(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from);
}

/* {"error":{"text":…,"errors":[…]}} as errors; anything else is quoted. */
static int server_errors(const struct client *c, long status, const struct sbuf *body,
                         struct errs *es) {
    struct arena a = { 0 };
    struct json_doc doc;
    struct errs ignored = { 0 };
    struct err e;
    int code = code_of(status), before = es->total;
    const struct jnode *error = NULL;
    if (json_parse(&doc, NULL, body->p ? body->p : "", body->len, &a, &ignored) == 0)
        error = jnode_get(doc.root, "error");
    for (const struct jnode *n = json_list(error, "errors"); n; n = n->next) {
        err_set(&e, code, "%s", json_text(n, "text"));
        copy_text(e.file, sizeof e.file, json_text(n, "file"));
        copy_text(e.pointer, sizeof e.pointer, json_text(n, "pointer"));
        e.line = (int)json_int(n, "line");
        e.col = (int)json_int(n, "col");
        e.retriable = status == 503;
        errs_add(es, &e);
    }
    if (es->total == before) {
        const char *text = json_text(error, "text");
        if (*text)
            err_set(&e, code, "%s", text);
        else
            err_set(&e, code, "%s answered with status %ld: %.*s", c->url, status,
                    (int)(body->len < 200 ? body->len : 200), body->p ? body->p : "");
        e.retriable = status == 503;
        errs_add(es, &e);
    }
    errs_free(&ignored);
    arena_free(&a);
    return code;
}

static int transport_error(const struct client *c, CURLcode rc, const struct receiving *r,
                           struct errs *es) {
    struct err e;
    const char *why = *c->error ? c->error : curl_easy_strerror(rc);
    if (r->too_large)
        err_set(&e, ERR_SYSTEM, "the answer is larger than %d MiB", CLIENT_REPLY_MAX >> 20);
    else if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL)
        err_set(&e, ERR_INPUT, "the server's URL '%s' is wrong: %s", c->url, why);
    else if (rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST)
        err_set(&e, ERR_UNREACHABLE,
                "no server at %s; start one with `braid up`, or name another "
                "with --url",
                c->url);
    else if (rc == CURLE_PARTIAL_FILE)
        err_set(&e, ERR_UNREACHABLE,
                "%s cut its answer off: it stopped, or what was asked for was removed meanwhile",
                c->url);
    else
        err_set(&e, ERR_UNREACHABLE, "the connection to %s broke: %s", c->url, why);
    e.retriable = e.code == ERR_UNREACHABLE;
    return errs_add(es, &e);
}

static void prepare(struct client *c, const char *url, struct receiving *r, bool stream) {
    CURL *h = c->curl;
    curl_easy_reset(h);
    c->error[0] = '\0';
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, c->error);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, r);
    if (!stream) { /* a server that takes longer than this without a byte is gone */
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)QUIET_SECONDS);
    }
}

static CURLcode perform(struct client *c, const char *method, const struct client_body *body) {
    CURL *h = c->curl;
    struct curl_slist *heads = curl_slist_append(NULL, "Expect:");
    char type[128];
    if (body) {
        snprintf(type, sizeof type, "Content-Type: %s",
                 body->type ? body->type : "application/json");
        heads = curl_slist_append(heads, type);
        curl_easy_setopt(h, CURLOPT_POST, 1L);
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, body->p);
    } else if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    }
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, heads);
    CURLcode rc = curl_easy_perform(h);
    curl_slist_free_all(heads);
    return rc;
}

static char *full_url(const struct client *c, const char *path) {
    struct sbuf b = { 0 };
    sbuf_adds(&b, c->url);
    sbuf_adds(&b, path);
    sbuf_str(&b);
    return b.p;
}

int client_call(struct client *c, const char *method, const char *path,
                const struct client_body *body, struct sbuf *reply, int *status, struct errs *es) {
    struct receiving r = { .whole = reply, .curl = c->curl };
    char *url = full_url(c, path);
    long code = 0;
    reply->len = 0;
    if (status)
        *status = 0;
    prepare(c, url, &r, false);
    CURLcode rc = perform(c, method, body);
    free(url);
    if (rc != CURLE_OK)
        return transport_error(c, rc, &r, es);
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &code);
    if (status)
        *status = (int)code;
    return code >= 200 && code < 300 ? 0 : server_errors(c, code, reply, es);
}

int client_json(struct client *c, const char *method, const char *path,
                const struct client_body *body, struct arena *a, struct json_doc *doc,
                struct errs *es) {
    struct sbuf reply = { 0 };
    int rc = client_call(c, method, path, body, &reply, NULL, es);
    if (rc == 0) {
        const char *text = arena_strndup(a, reply.p ? reply.p : "", reply.len);
        struct errs bad = { 0 };
        if (json_parse(doc, NULL, text, reply.len, a, &bad) < 0) {
            struct err e;
            err_set(&e, ERR_SYSTEM, "%s answered with broken JSON: %s", c->url,
                    bad.n ? bad.v[0].text : "empty");
            rc = errs_add(es, &e);
        }
        errs_free(&bad);
    }
    sbuf_free(&reply);
    return rc;
}

int client_stream(struct client *c, const char *path, int (*each)(void *, const char *, size_t),
                  void *arg, struct errs *es) {
    struct receiving r = { .each = each, .arg = arg, .curl = c->curl };
    char *url = full_url(c, path);
    long code = 0;
    prepare(c, url, &r, true);
    CURLcode rc = perform(c, "GET", NULL);
    free(url);
    int out = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &code);
    if (r.stopped)
        out = 0;
    else if (rc != CURLE_OK)
        out = transport_error(c, rc, &r, es);
    else if (code >= 300)
        out = server_errors(c, code, &r.error, es);
    sbuf_free(&r.error);
    return out;
}

/* ---- members ---- */

const char *json_text(const struct jnode *obj, const char *key) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == J_STR ? n->s : "";
}
int64_t json_int(const struct jnode *obj, const char *key) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == J_INT ? n->i : n && n->type == J_REAL ? (int64_t)n->d : 0;
}
const struct jnode *json_list(const struct jnode *obj, const char *key) {
    const struct jnode *n = jnode_get(obj, key);
    return n && (n->type == J_ARR || n->type == J_OBJ) ? n->child : NULL;
}
uint32_t json_count(const struct jnode *obj, const char *key) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == J_ARR ? n->n : 0;
}
