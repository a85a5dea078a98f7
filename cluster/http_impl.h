/* Inside of the HTTP API: for http*.c only. */
#ifndef BRAID_HTTP_IMPL_H
#define BRAID_HTTP_IMPL_H
#include "cluster/http.h"
#include "engine/json.h"
#include <microhttpd.h>
#include <pthread.h>

enum { HTTP_PARAMS_MAX = 2, HTTP_QUERY_MAX = 6 };

struct http {
    struct coord *coord;
    struct MHD_Daemon *daemon;
    int stop_fd;        /* eventfd: readable from http_stop on */
    int64_t body_bytes; /* atomic: held by all requests */
    int readers;        /* atomic */
    pthread_mutex_t mutex;
    pthread_cond_t cond;    /* active or nsockets has become 0 */
    int active;             /* requests begun and not completed */
    struct socket *sockets; /* open connections */
    int nsockets;
    bool stopping; /* new connections are closed at once */
};

struct request;
struct route {
    const char *method, *path;         /* "/v1/topics/{topic}/records" */
    size_t body_max;                   /* 0: takes none */
    const char *query[HTTP_QUERY_MAX]; /* the arguments it knows */
    /* Fills out, or stream; returns the HTTP status. */
    int (*handle)(struct request *r);
};
extern const struct route http_routes[]; /* ends with method NULL */

struct request {
    struct http *http;
    struct coord *coord;
    struct MHD_Connection *conn;
    const struct route *route;
    const char *method;
    char *param[HTTP_PARAMS_MAX]; /* what stood at {…} */
    struct sbuf body;
    int64_t body_held;
    struct sbuf out;
    const char *type;            /* of out; NULL: application/json */
    struct MHD_Response *stream; /* instead of out */
    const char *allow;           /* 405 */
    bool retry;                  /* 503 */
    int refused;                 /* status decided before the body was read */
    size_t taken;                /* bytes of the body that have come */
    struct arena arena;
};

/* A query argument; NULL when absent, "" without a value. */
const char *http_arg(struct request *r, const char *name);
/* The argument as an integer of [min,max]; `def` when absent. ERR_INPUT after filling `e`. */
int http_arg_int(struct request *r, const char *name, int64_t def, int64_t min, int64_t max,
                 int64_t *v, struct err *e);
/* 0 or 1. */
int http_arg_bool(struct request *r, const char *name, bool *v, struct err *e);
int http_error(struct request *r, const struct err *e); /* answers with it; returns the status */
int http_errors(struct request *r, const struct errs *es);
/* Room for one more stream; give it back with http_reader_end. */
bool http_reader_begin(struct http *h);
void http_reader_end(struct http *h);

/* http_flows.c */
int http_submit(struct request *r);
int http_replace(struct request *r);
int http_letters(struct request *r);
int http_list(struct request *r);
int http_show(struct request *r);
int http_explain(struct request *r);
int http_remove(struct request *r);
int http_graph(struct request *r);
/* http_topics.c */
int http_topics(struct request *r);
int http_topic_put(struct request *r);
int http_topic_delete(struct request *r);
int http_post_records(struct request *r);
/* http_records.c */
/* Sleeps until a stream is woken; false when its client has gone or the server stops. */
bool http_wait(const struct http *h, int wake_fd, int socket);
int http_get_records(struct request *r);
int http_get_rows(struct request *r);
/* http_events.c */
int http_events(struct request *r);
/* http_info.c */
int http_health(struct request *r);
int http_ready(struct request *r);
int http_version(struct request *r);
int http_openapi(struct request *r);
int http_operators(struct request *r);
int http_operator(struct request *r);
int http_dlq(struct request *r);
int http_workers(struct request *r);
int http_metrics(struct request *r);
int http_file_put(struct request *r);
int http_file_head(struct request *r);

/* The body of POST /v1/dataflows; pure, for the fuzzer too. Memory from `a`. */
struct submit_body {
    struct coord_spec *spec;
    int n;
    bool dry;
};
int http_submit_parse(struct submit_body *b, const char *text, size_t len, struct arena *a,
                      struct errs *es);
#endif
