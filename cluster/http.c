#include "cluster/http.h"
#include "cluster/http_impl.h"
#include "cluster/ingest.h"
#include "cluster/text.h"
#include "engine/num.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    THREAD_STACK = 1 << 20,
    CONNECTION_MEMORY = 64 << 10,
    BACKLOG = 512,
    PATH_MAX_BYTES = 2048,
    DROP_MAX = 128 << 20, /* of the body of a refused request, read so that the client hears why */
    STOP_WAIT_S = 5       /* for running requests, and then for connections */
};

const struct route http_routes[] = {
    { .method = "GET", .path = "/healthz", .handle = http_health },
    { .method = "GET", .path = "/readyz", .handle = http_ready },
    { .method = "GET", .path = "/metrics", .handle = http_metrics },
    { .method = "GET", .path = "/v1/version", .handle = http_version },
    { .method = "GET", .path = "/v1/openapi.json", .handle = http_openapi },
    { .method = "POST",
      .path = "/v1/dataflows",
      .body_max = HTTP_SPECS_MAX,
      .handle = http_submit },
    { .method = "GET", .path = "/v1/dataflows", .handle = http_list },
    { .method = "GET", .path = "/v1/dataflows/{name}", .handle = http_show },
    { .method = "PUT",
      .path = "/v1/dataflows/{name}",
      .body_max = HTTP_SPECS_MAX,
      .handle = http_replace },
    { .method = "DELETE",
      .path = "/v1/dataflows/{name}",
      .query = { "drain" },
      .handle = http_remove },
    { .method = "POST",
      .path = "/v1/dataflows/{name}/dlq",
      .body_max = 1 << 20,
      .handle = http_letters },
    { .method = "GET", .path = "/v1/dataflows/{name}/explain", .handle = http_explain },
    { .method = "GET",
      .path = "/v1/dataflows/{name}/rows",
      .query = { "task", "format" },
      .handle = http_get_rows },
    { .method = "GET", .path = "/v1/graph", .query = { "format", "width" }, .handle = http_graph },
    { .method = "GET", .path = "/v1/topics", .handle = http_topics },
    { .method = "PUT",
      .path = "/v1/topics/{topic}",
      .body_max = 64 << 10,
      .handle = http_topic_put },
    { .method = "DELETE", .path = "/v1/topics/{topic}", .handle = http_topic_delete },
    { .method = "POST",
      .path = "/v1/topics/{topic}/records",
      .body_max = INGEST_BODY_MAX,
      .query = { "producer", "seq", "create", "partition" },
      .handle = http_post_records },
    { .method = "GET",
      .path = "/v1/topics/{topic}/records",
      .query = { "from", "last", "max", "follow", "format", "partition" },
      .handle = http_get_records },
    { .method = "PUT",
      .path = "/v1/files/{hash}",
      .body_max = FILESTORE_FILE_MAX,
      .handle = http_file_put },
    { .method = "HEAD", .path = "/v1/files/{hash}", .handle = http_file_head },
    { .method = "GET", .path = "/v1/operators", .handle = http_operators },
    { .method = "GET", .path = "/v1/operators/{name}", .handle = http_operator },
    { .method = "GET",
      .path = "/v1/dlq",
      .query = { "dataflow", "max", "all" },
      .handle = http_dlq },
    { .method = "GET", .path = "/v1/workers", .handle = http_workers },
    { .method = "GET", .path = "/v1/events", .query = { "after" }, .handle = http_events },
    { .method = NULL },
};

/* ---- arguments and errors ---- */

const char *http_arg(struct request *r, const char *name) {
    const char *v = NULL;
    if (MHD_lookup_connection_value_n(r->conn, MHD_GET_ARGUMENT_KIND, name, strlen(name), &v,
                                      NULL) != MHD_YES)
        return NULL;
    return v ? v : "";
}

int http_arg_int(struct request *r, const char *name, int64_t def, int64_t min, int64_t max,
                 int64_t *v, struct err *e) {
    const char *s = http_arg(r, name);
    *v = def;
    if (!s)
        return 0;
    if (num_i64_whole(s, s + strlen(s), v) < 0 || *v < min || *v > max)
        return err_set(e, ERR_INPUT, "'%s' must be a whole number from %lld to %lld, not '%.60s'",
                       name, (long long)min, (long long)max, s);
    return 0;
}

int http_arg_bool(struct request *r, const char *name, bool *v, struct err *e) {
    const char *s = http_arg(r, name);
    *v = s && strcmp(s, "1") == 0;
    if (s && !*v && strcmp(s, "0") != 0)
        return err_set(e, ERR_INPUT, "'%s' must be 0 or 1, not '%.60s'", name, s);
    return 0;
}

int http_error(struct request *r, const struct err *e) {
    r->out.len = 0;
    r->type = NULL;
    text_errors(&r->out, e, 1, 1);
    int status = text_status(e, 1);
    r->retry = status == 503;
    return status;
}

int http_errors(struct request *r, const struct errs *es) {
    r->out.len = 0;
    r->type = NULL;
    text_errors(&r->out, es->v, es->n, es->total);
    int status = text_status(es->v, es->n);
    r->retry = status == 503;
    return status;
}

/* An error of the protocol, with a status of its own. */
static int refuse(struct request *r, int status, const char *text) {
    struct err e;
    err_set(&e, ERR_INPUT, "%s", text);
    http_error(r, &e);
    return status;
}

bool http_reader_begin(struct http *h) {
    if (__atomic_add_fetch(&h->readers, 1, __ATOMIC_RELAXED) <= HTTP_READERS)
        return true;
    http_reader_end(h);
    return false;
}

void http_reader_end(struct http *h) {
    __atomic_sub_fetch(&h->readers, 1, __ATOMIC_RELAXED);
}

/* ---- routes ---- */

/* Matches `path` against a route's pattern; fills param with copies of what stands at {…}. */
static bool match(const struct route *rt, const char *path, struct request *r) {
    const char *p = rt->path;
    int n = 0;
    while (*p && *path) {
        if (*p == '{') {
            size_t len = strcspn(path, "/");
            if (len == 0)
                return false;
            r->param[n++] = arena_strndup(&r->arena, path, len);
            path += len;
            p = strchr(p, '}') + 1;
        } else if (*p++ != *path++) {
            return false;
        }
    }
    return *p == *path;
}

static int find_route(struct request *r, const char *path) {
    char allow[64] = "";
    size_t len = 0;
    for (const struct route *rt = http_routes; rt->method; rt++) {
        if (!match(rt, path, r))
            continue;
        bool head = strcmp(r->method, "HEAD") == 0 && strcmp(rt->method, "GET") == 0;
        if (head || strcmp(rt->method, r->method) == 0) {
            r->route = rt;
            return 0;
        }
        len +=
            (size_t)snprintf(allow + len, sizeof allow - len, "%s%s", len ? ", " : "", rt->method);
    }
    if (len == 0) {
        struct err e;
        err_set(&e, ERR_NOTFOUND, "there is no %.200s here; see /v1/openapi.json", path);
        return http_error(r, &e);
    }
    char text[160];
    snprintf(text, sizeof text, "%.20s is not possible here; %s is", r->method, allow);
    r->allow = arena_strdup(&r->arena, allow);
    return refuse(r, 405, text);
}

/* ---- Host and Origin ---- */

static bool loopback_name(const char *host, size_t len) {
    char name[64];
    struct in_addr a;
    if (len == 5 && memcmp(host, "[::1]", 5) == 0)
        return true;
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    return strcasecmp(name, "localhost") == 0 ||
           (inet_pton(AF_INET, name, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

static size_t host_length(const char *s) {
    return *s == '[' ? strcspn(s, "]") + (strchr(s, ']') != NULL) : strcspn(s, ":/");
}

static int check_site(struct request *r) {
    const char *host = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Origin");
    if (host && !loopback_name(host, host_length(host)))
        return refuse(r, 403, "the Host header must be a loopback address or localhost");
    if (origin && (strncmp(origin, "http://", 7) != 0 || !host || strcmp(origin + 7, host) != 0))
        return refuse(r, 403, "requests from pages of other sites are refused");
    return 0;
}

struct query_check {
    struct request *r;
    int status;
};

static enum MHD_Result check_arg(void *arg, enum MHD_ValueKind kind, const char *key,
                                 const char *value) {
    struct query_check *q = arg;
    const char *const *known = q->r->route->query;
    int n = 0;
    (void)kind;
    (void)value;
    for (; n < HTTP_QUERY_MAX && known[n]; n++)
        if (strcmp(known[n], key) == 0)
            return MHD_YES;
    const char *near = n && strlen(key) < 60 ? err_nearest(key, known, n) : NULL;
    char text[200];
    snprintf(text, sizeof text, "there is no argument '%.60s' here%s%s%s", key,
             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    q->status = refuse(q->r, 400, text);
    return MHD_NO;
}

static int check_query(struct request *r) {
    struct query_check q = { r, 0 };
    MHD_get_connection_values(r->conn, MHD_GET_ARGUMENT_KIND, check_arg, &q);
    return q.status;
}

/* ---- bodies ---- */

static enum MHD_Result count_lengths(void *arg, enum MHD_ValueKind kind, const char *key,
                                     const char *value) {
    (void)kind;
    (void)value;
    *(int *)arg += strcasecmp(key, "Content-Length") == 0;
    return MHD_YES;
}

/* Why nobody can tell where the body ends; NULL when it can be told (RFC 9112, section 6.3). */
static const char *unclear_length(struct request *r) {
    const char *coding = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Transfer-Encoding");
    int lengths = 0;
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, count_lengths, &lengths);
    return coding && strcasecmp(coding, "chunked") != 0
               ? "the Transfer-Encoding must be chunked; leave it out for a body of known length"
           : lengths > (coding ? 0 : 1)
               ? "there must be one Content-Length, or Transfer-Encoding: chunked, not both"
               : NULL;
}

static int check_length(struct request *r) {
    const char *unclear = unclear_length(r);
    if (unclear)
        return refuse(r, 400, unclear);
    const char *s = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Content-Length");
    int64_t n = 0;
    if (!s || num_i64_whole(s, s + strlen(s), &n) < 0 || n <= 0)
        return 0;
    if (r->route->body_max == 0)
        return refuse(r, 400, "this request takes no body");
    return n > (int64_t)r->route->body_max ? refuse(r, 413, "the body is too large") : 0;
}

/* Part of the body; that of a refused request is dropped. False: too much even of that. */
static bool take_body(struct request *r, const char *data, size_t len) {
    r->taken += len;
    if (r->refused)
        return r->taken <= DROP_MAX;
    if (r->taken > r->route->body_max) {
        r->refused = refuse(
            r, 413, r->route->body_max ? "the body is too large" : "this request takes no body");
        return true;
    }
    r->body_held += (int64_t)len;
    if (__atomic_add_fetch(&r->http->body_bytes, (int64_t)len, __ATOMIC_RELAXED) >
        HTTP_BODIES_MAX) {
        struct err e;
        err_set(&e, ERR_SYSTEM, "too many large requests at once");
        e.retriable = true;
        r->refused = http_error(r, &e);
        return true;
    }
    sbuf_add(&r->body, data, len);
    return true;
}

/* Whether the body of a refused request is worth reading: a client that waits for "100 Continue"
 * has not sent it, one that has would not hear the answer when the connection is closed on it. */
static bool drop_body(struct request *r) {
    const char *s = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Content-Length");
    int64_t n = 0;
    if (MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Expect") || unclear_length(r))
        return false;
    return !s || (num_i64_whole(s, s + strlen(s), &n) == 0 && n <= DROP_MAX);
}

/* ---- answers ---- */

static enum MHD_Result answer(struct request *r, int status) {
    struct MHD_Response *res = r->stream;
    if (!res) {
        res = MHD_create_response_from_buffer(r->out.len, r->out.p, MHD_RESPMEM_MUST_FREE);
        if (!res)
            return MHD_NO;
        r->out = (struct sbuf){ 0 };
        MHD_add_response_header(res, "Content-Type", r->type ? r->type : "application/json");
    }
    r->stream = NULL;
    MHD_add_response_header(res, "Cache-Control", "no-store");
    MHD_add_response_header(res, "X-Content-Type-Options", "nosniff");
    if (r->allow)
        MHD_add_response_header(res, "Allow", r->allow);
    if (r->retry)
        MHD_add_response_header(res, "Retry-After", "1");
    enum MHD_Result rc = MHD_queue_response(r->conn, (unsigned)status, res);
    MHD_destroy_response(res);
    return rc;
}

static struct request *request_new(struct http *h, struct MHD_Connection *conn,
                                   const char *method) {
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    pthread_mutex_lock(&h->mutex);
    h->active++;
    pthread_mutex_unlock(&h->mutex);
    r->http = h;
    r->coord = h->coord;
    r->conn = conn;
    r->method = method;
    return r;
}

static int begin(struct request *r, const char *url) {
    int status = 0;
    if (strlen(url) > PATH_MAX_BYTES)
        status = refuse(r, 414, "the path is too long");
    if (!status)
        status = check_site(r);
    if (!status)
        status = find_route(r, url);
    if (!status)
        status = check_query(r);
    return status ? status : check_length(r);
}

/* Called once with the header, then with parts of the body, then to answer. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **state) {
    struct http *h = arg;
    struct request *r = *state;
    (void)version;
    if (!r) {
        *state = r = request_new(h, conn, method);
        r->refused = begin(r, url);
        return !r->refused || drop_body(r) ? MHD_YES : answer(r, r->refused);
    }
    if (*len) {
        bool more = take_body(r, data, *len);
        *len = 0;
        return more ? MHD_YES : MHD_NO;
    }
    return answer(r, r->refused ? r->refused : r->route->handle(r));
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **state,
                         enum MHD_RequestTerminationCode why) {
    struct request *r = *state;
    struct http *h = arg;
    (void)conn;
    (void)why;
    if (!r)
        return;
    __atomic_sub_fetch(&h->body_bytes, r->body_held, __ATOMIC_RELAXED);
    sbuf_free(&r->body);
    sbuf_free(&r->out);
    arena_free(&r->arena);
    free(r);
    *state = NULL;
    pthread_mutex_lock(&h->mutex);
    if (--h->active == 0)
        pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->mutex);
}

/* ---- connections ---- */

struct socket {
    int fd;
    struct socket *prev, *next;
};

/* From accept until just before the socket is closed. */
static void on_connection(void *arg, struct MHD_Connection *conn, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http *h = arg;
    struct socket *s = *context;
    pthread_mutex_lock(&h->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = s = calloc(1, sizeof *s);
        if (!s)
            abort();
        s->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        s->next = h->sockets;
        if (s->next)
            s->next->prev = s;
        h->sockets = s;
        h->nsockets++;
        if (h->stopping)
            shutdown(s->fd, SHUT_RDWR);
    } else {
        *(s->prev ? &s->prev->next : &h->sockets) = s->next;
        if (s->next)
            s->next->prev = s->prev;
        free(s);
        if (--h->nsockets == 0)
            pthread_cond_broadcast(&h->cond);
    }
    pthread_mutex_unlock(&h->mutex);
}

/* A NUL in a path or argument would hide what follows it: DELETE of "a%00b" must not delete "a". It
 * becomes a control byte, which no name may have. */
static size_t unescape(void *arg, struct MHD_Connection *conn, char *s) {
    (void)arg;
    (void)conn;
    for (char *p = strstr(s, "%00"); p; p = strstr(p, "%00"))
        p[2] = '1';
    return MHD_http_unescape(s);
}

/* ---- the socket ---- */

static int parse_port(const char *s, uint16_t *port) {
    int64_t n;
    if (num_i64_whole(s, s + strlen(s), &n) < 0 || n < 0 || n > 65535)
        return -1;
    *port = htons((uint16_t)n);
    return 0;
}

union address {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* "127.0.0.1:7070", "localhost:7070", "[::1]:7070", ":7070". */
static int parse_address(const char *text, union address *a, socklen_t *len, struct err *e) {
    const char *colon = strrchr(text, ':');
    char host[64];
    memset(a, 0, sizeof *a);
    if (!colon || (size_t)(colon - text) >= sizeof host ||
        (*text != '[' && strchr(text, ':') < colon))
        return err_set(e, ERR_INPUT, "'%.100s' is no HOST:PORT; give 127.0.0.1:7070", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    if (!*host || strcasecmp(host, "localhost") == 0)
        memcpy(host, "127.0.0.1", sizeof "127.0.0.1");
    size_t n = strlen(host);
    bool v6 = host[0] == '[' && host[n - 1] == ']';
    if (v6) {
        memmove(host, host + 1, n - 2);
        host[n - 2] = '\0';
    }
    a->sa.sa_family = v6 ? AF_INET6 : AF_INET;
    *len = v6 ? sizeof a->v6 : sizeof a->v4;
    if (inet_pton(a->sa.sa_family, host, v6 ? (void *)&a->v6.sin6_addr : &a->v4.sin_addr) != 1 ||
        parse_port(colon + 1, v6 ? &a->v6.sin6_port : &a->v4.sin_port) < 0)
        return err_set(e, ERR_INPUT, "'%.100s' is no HOST:PORT; give 127.0.0.1:7070", text);
    bool local =
        v6 ? IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) : ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    if (!local)
        return err_set(e, ERR_INPUT,
                       "'%.100s' is not a loopback address: elsewhere the API needs TLS and a "
                       "token, which are not there yet",
                       text);
    return 0;
}

static void print_url(int fd, char *url, size_t size) {
    union address a;
    socklen_t len = sizeof a;
    char host[64];
    getsockname(fd, &a.sa, &len);
    bool v6 = a.sa.sa_family == AF_INET6;
    inet_ntop(a.sa.sa_family, v6 ? (void *)&a.v6.sin6_addr : &a.v4.sin_addr, host, sizeof host);
    snprintf(url, size, "http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             ntohs(v6 ? a.v6.sin6_port : a.v4.sin_port));
}

int http_listen(const char *address, int *out, char *url, size_t size, struct err *e) {
    union address a;
    socklen_t len = 0;
    int rc = parse_address(address, &a, &len, e), one = 1;
    if (rc < 0)
        return rc;
    int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, errno, "making a socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, &a.sa, len) < 0 || listen(fd, BACKLOG) < 0) {
        int en = errno;
        close(fd);
        if (en == EADDRINUSE)
            return err_set(e, ERR_CONFLICT,
                           "%s is in use: another server runs there; choose another with --listen",
                           address);
        return err_errno(e, en, "listening on %s", address);
    }
    print_url(fd, url, size);
    *out = fd;
    return 0;
}

static void http_free(struct http *h) {
    if (h->stop_fd >= 0)
        close(h->stop_fd);
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->cond);
    free(h);
}

static struct http *http_new(struct coord *c) {
    struct http *h = calloc(1, sizeof *h);
    pthread_condattr_t attr;
    if (!h)
        abort();
    h->coord = c;
    h->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->cond, &attr);
    pthread_condattr_destroy(&attr);
    return h;
}

int http_start(struct http **out, struct coord *c, int fd, struct err *e) {
    struct http *h = http_new(c);
    h->daemon =
        h->stop_fd < 0
            ? NULL
            : MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                   MHD_USE_POLL | MHD_USE_ITC,
                               0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
                               MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS,
                               MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S,
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                               MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK,
                               MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
                               MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                               MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
    if (!h->daemon) {
        close(fd);
        http_free(h);
        return err_set(e, ERR_SYSTEM, "starting the HTTP server failed");
    }
    *out = h;
    return 0;
}

/* Waits until *count, under the mutex, is 0, at most STOP_WAIT_S. */
static void wait_none(struct http *h, const int *count) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += STOP_WAIT_S;
    pthread_mutex_lock(&h->mutex);
    while (*count > 0 && pthread_cond_timedwait(&h->cond, &h->mutex, &until) == 0)
        ;
    pthread_mutex_unlock(&h->mutex);
}

static void hang_up(struct http *h) {
    pthread_mutex_lock(&h->mutex);
    h->stopping = true;
    for (struct socket *s = h->sockets; s; s = s->next)
        shutdown(s->fd, SHUT_RDWR);
    pthread_mutex_unlock(&h->mutex);
}

/* Streams end at the stop_fd, others get their answer; a client that sends half a request is not
 * waited for longer than STOP_WAIT_S. All connections are closed before the daemon is stopped:
 * libmicrohttpd 0.9.75 drops the answer to a broken request that comes while it stops, and then
 * reads it (connection.c, transmit_error_response_len). */
void http_stop(struct http *h) {
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    eventfd_write(h->stop_fd, 1);
    wait_none(h, &h->active);
    hang_up(h);
    wait_none(h, &h->nsockets);
    MHD_stop_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
    http_free(h);
}
