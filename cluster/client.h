/* HTTP client of the API: whole answers and streams, over libcurl. Errors of the server come back
 * as struct errs with the code of the status (400 ERR_INPUT, 404 ERR_NOTFOUND, 409 ERR_CONFLICT,
 * 503 retriable ERR_SYSTEM), a server that cannot be reached as ERR_UNREACHABLE. One connection,
 * kept open; one thread. */
#ifndef BRAID_CLIENT_H
#define BRAID_CLIENT_H
#include "engine/err.h"
#include "engine/json.h"

enum { CLIENT_BODY_MAX = 16 << 20, CLIENT_REPLY_MAX = 256 << 20 };

struct client;
/* Checks the URL (http:// or https://); does not connect. ERR_INPUT. */
int client_open(struct client **c, const char *url, struct errs *es);
void client_close(struct client *c); /* NULL is fine */

struct client_body { /* of a request */
    const void *p;
    size_t len;
    const char *type; /* NULL: application/json */
};
/* Sends and waits for the whole answer. `path` begins with "/"; body NULL: none. 0 and the answer's
 * body, or negative and `es`. `status` (may be NULL) is 0 when nothing was received. */
int client_call(struct client *c, const char *method, const char *path,
                const struct client_body *body, struct sbuf *reply, int *status, struct errs *es);
/* The same, with the answer as a JSON tree in `a`, which keeps its text, too. */
int client_json(struct client *c, const char *method, const char *path,
                const struct client_body *body, struct arena *a, struct json_doc *doc,
                struct errs *es);
/* A long answer piece by piece; `each` returns non-zero to stop, which is a success. 0 at the end
 * of the stream. A stream that breaks is ERR_UNREACHABLE. */
int client_stream(struct client *c, const char *path, int (*each)(void *, const char *, size_t),
                  void *arg, struct errs *es);
/* A part of a path or query, percent-encoded, in `a`. */
const char *client_escape(struct client *c, const char *text, struct arena *a);

/* Members of the answer's objects, with a default when absent or of another type. */
const char *json_text(const struct jnode *obj, const char *key);         /* "" */
int64_t json_int(const struct jnode *obj, const char *key);              /* 0 */
const struct jnode *json_list(const struct jnode *obj, const char *key); /* first element or NULL */
uint32_t json_count(const struct jnode *obj, const char *key);           /* elements; 0 */
#endif
