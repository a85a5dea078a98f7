/* The HTTP API on libmicrohttpd: routes, requests, answers. Described by cluster/openapi.json.
 *
 * A connection has a thread, so a handler is plain synchronous code and may wait for a commit.
 * Limits: HTTP_CONNECTIONS open connections (more wait in the backlog), a body as its route says
 * and HTTP_BODIES_MAX bytes of all bodies together (503 beyond), HTTP_READERS streams of records
 * or events at once. Only a loopback address is listened on; requests whose Host is another name,
 * or whose Origin is another site, are refused, so that a page in somebody's browser cannot reach
 * the server (DNS rebinding, cross-site posts). */
#ifndef BRAID_HTTP_H
#define BRAID_HTTP_H
#include "cluster/coord.h"

enum {
    HTTP_CONNECTIONS = 256,
    HTTP_READERS = 128,
    HTTP_IDLE_S = 120, /* a connection without a byte is closed */
    HTTP_SPECS_MAX = 32 << 20
};
#define HTTP_BODIES_MAX ((int64_t)512 << 20)

struct http;
/* A listening socket on "HOST:PORT": HOST a loopback address or "localhost", [::1] in brackets.
 * ERR_INPUT: not an address, or not loopback; ERR_CONFLICT: the port is in use. `url` receives
 * "http://HOST:PORT" with the real port. */
int http_listen(const char *address, int *fd, char *url, size_t size, struct err *e);
/* Takes the socket, also on error. */
int http_start(struct http **h, struct coord *c, int fd, struct err *e);
/* Accepts no more, ends streams, waits for running requests. */
void http_stop(struct http *h);
#endif
