/* GET /v1/dataflows/{name}/rows: the rows of a sink that stores nothing, as they commit, from now
 * on. The executor hands them to a tap; they wait in a bounded buffer for the client, and what a
 * slow client misses is counted and told in a line of its own (format json: {"skipped":N}). */
#include "cluster/coord_impl.h"
#include "cluster/http_impl.h"
#include "cluster/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ROWS_BUFFER_MAX = 8 << 20, BLOCK = 64 << 10 };

struct rows {
    struct http *http;
    struct executor_tap tap;
    bool tapped, json;
    int wake_fd, socket;
    pthread_mutex_t mutex; /* executor thread and the connection's */
    struct sbuf waiting;
    uint64_t skipped;
    bool gone;
    /* the connection's own */
    struct sbuf text;
    size_t at;
};

static void add_row(struct rows *r, const char *p, size_t len) {
    if (r->waiting.len + len > ROWS_BUFFER_MAX) {
        r->skipped++;
        return;
    }
    if (r->json) {
        sbuf_adds(&r->waiting, "{");
        text_bytes(&r->waiting, "value", p, len);
        sbuf_adds(&r->waiting, "}");
    } else {
        sbuf_add(&r->waiting, p, len);
    }
    sbuf_adds(&r->waiting, "\n");
}

static void on_rows(void *arg, const struct log_rows *w, uint64_t skipped) {
    struct rows *r = arg;
    pthread_mutex_lock(&r->mutex);
    for (uint32_t i = 0, from = 0; i < w->n; i++) {
        uint32_t to = w->value_end[i] & ~LOG_NULL;
        add_row(r, w->values + from, to - from);
        from = to;
    }
    r->skipped += skipped;
    pthread_mutex_unlock(&r->mutex);
    eventfd_write(r->wake_fd, 1);
}

static void on_gone(void *arg) {
    struct rows *r = arg;
    pthread_mutex_lock(&r->mutex);
    r->gone = true;
    pthread_mutex_unlock(&r->mutex);
    eventfd_write(r->wake_fd, 1);
}

static void rows_free(void *arg) {
    struct rows *r = arg;
    if (r->tapped)
        executor_untap(coord_executor(r->http->coord), &r->tap);
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    http_reader_end(r->http);
    pthread_mutex_destroy(&r->mutex);
    sbuf_free(&r->waiting);
    sbuf_free(&r->text);
    free(r);
}

/* What waits becomes the text to send. False: the sink is gone and nothing waits. */
static bool take(struct rows *r) {
    pthread_mutex_lock(&r->mutex);
    struct sbuf text = r->text;
    r->text = r->waiting;
    r->waiting = text;
    r->waiting.len = 0;
    r->at = 0;
    if (r->skipped && r->json)
        sbuf_printf(&r->text, "{\"skipped\":%llu}\n", (unsigned long long)r->skipped);
    r->skipped = 0;
    bool more = !r->gone || r->text.len;
    pthread_mutex_unlock(&r->mutex);
    return more;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max) {
    struct rows *r = arg;
    (void)pos;
    while (r->at == r->text.len) {
        if (!take(r))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (r->text.len == 0 && !http_wait(r->http, r->wake_fd, r->socket))
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = r->text.len - r->at;
    n = n < max ? n : max;
    memcpy(buf, r->text.p + r->at, n);
    r->at += n;
    return (ssize_t)n;
}

/* The last stage of a sink that stores nothing: the one named, or the only one. */
static int find_sink(struct coord *c, const char *name, const char *task, uint64_t *instance,
                     struct err *e) {
    int n = 0;
    coord_lock(c);
    const struct flow *f = plan_find(c->plan, name);
    for (int i = 0; f && i < f->ntasks; i++) {
        const struct flow_task *t = &f->tasks[i];
        const struct task_def *d = flow_last(f, t)->def;
        if (strcmp(d->op->name, "discard") != 0 || (task && strcmp(task, t->id) != 0))
            continue;
        *instance = d->instance;
        n++;
    }
    coord_unlock(c);
    if (!f)
        return err_set(e, ERR_NOTFOUND, "no dataflow '%s' is running", name);
    if (n == 0 && task)
        return err_set(e, ERR_NOTFOUND, "dataflow '%s' has no sink '%s' without a topic", name,
                       task);
    if (n == 0)
        return err_set(e, ERR_INPUT, "every sink of dataflow '%s' has a topic or file: read that",
                       name);
    if (n > 1)
        return err_set(e, ERR_INPUT,
                       "dataflow '%s' has %d sinks without a topic; name one with ?task=ID", name,
                       n);
    return 0;
}

static int rows_open(struct request *r, struct rows *w, struct err *e) {
    const char *format = http_arg(r, "format"), *task = http_arg(r, "task");
    w->json = !format || strcmp(format, "json") == 0;
    if (!w->json && strcmp(format, "raw") != 0)
        return err_set(e, ERR_INPUT, "'format' must be json or raw, not '%.60s'", format);
    int rc = find_sink(r->coord, r->param[0], task, &w->tap.instance, e);
    if (rc < 0)
        return rc;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0)
        return err_errno(e, errno, "following a dataflow");
    w->socket = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    w->tap.rows = on_rows;
    w->tap.gone = on_gone;
    w->tap.arg = w;
    if (executor_tap(coord_executor(r->coord), &w->tap) < 0)
        return err_set(e, ERR_NOTFOUND, "dataflow '%s' has just gone", r->param[0]);
    w->tapped = true;
    return 0;
}

int http_get_rows(struct request *r) {
    struct err e = ERR_INIT;
    if (!http_reader_begin(r->http)) {
        err_set(&e, ERR_SYSTEM, "%d readers are at work already", HTTP_READERS);
        e.retriable = true;
        return http_error(r, &e);
    }
    struct rows *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    *w = (struct rows){ .http = r->http, .wake_fd = -1 };
    pthread_mutex_init(&w->mutex, NULL);
    if (rows_open(r, w, &e) < 0) {
        rows_free(w);
        return http_error(r, &e);
    }
    r->stream = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, w, rows_free);
    MHD_add_response_header(r->stream, "Content-Type",
                            w->json ? "application/x-ndjson" : "text/plain; charset=utf-8");
    return 200;
}
