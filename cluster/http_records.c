/* GET /v1/topics/{topic}/records: committed records as a stream. A follower sleeps in poll on an
 * eventfd that the log's committer thread writes (it never waits for a reader) when records are
 * committed or the topic is deleted, on the server's stop, and on its client's socket, so that a
 * client that leaves is noticed at once. */
#include "cluster/http_impl.h"
#include "cluster/text.h"
#include "engine/num.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BLOCK_BYTES = 64 << 10, READ_ROWS = 1024 };

struct tail {
    struct http *http;
    struct log_reader **reader; /* of partitions first..first+n-1 */
    int64_t *end;               /* where each stops; 0: it has. INT64_MAX when following */
    uint32_t first, n, turn;
    struct log_watch *watch;
    int wake_fd, socket;
    bool follow, json;
    int64_t left; /* records still wanted */
    int64_t last; /* so many before the end of each partition; -1: where `from` says */
    /* the run being written */
    struct log_rows rows;
    uint32_t at, value_from, key_from;
    int64_t offset; /* of its first record */
    struct sbuf text;
    size_t text_at;
};

static void on_commit(void *arg) {
    struct tail *t = arg;
    eventfd_write(t->wake_fd, 1);
}

static void tail_free(void *arg) {
    struct tail *t = arg;
    if (t->watch)
        log_unwatch(coord_log(t->http->coord), t->watch);
    for (uint32_t i = 0; i < t->n; i++)
        log_reader_close(t->reader[i]);
    free(t->reader);
    free(t->end);
    if (t->wake_fd >= 0)
        close(t->wake_fd);
    http_reader_end(t->http);
    sbuf_free(&t->text);
    free(t);
}

/* ,"headers":[{"name":…,"value":…},…] when the record has some. */
static void add_headers(struct sbuf *o, const struct log_rows *w, uint32_t i) {
    if (!w->header_end)
        return;
    const char *p = w->headers + log_end(w->header_end, (int64_t)i - 1);
    const char *end = w->headers + log_end(w->header_end, i);
    struct log_header h;
    for (int n = 0; log_header_next(&p, end, &h); n++) {
        sbuf_adds(o, n ? ",{" : ",\"headers\":[{");
        text_bytes(o, "name", h.name, h.nlen);
        sbuf_adds(o, ",");
        text_bytes(o, "value", h.value, h.vlen);
        sbuf_adds(o, p < end ? "}" : "}]");
    }
}

static void add_record(struct tail *t) {
    const struct log_rows *w = &t->rows;
    uint32_t i = t->at++, end = w->value_end[i], to = end & ~LOG_NULL;
    const char *value = end & LOG_NULL ? NULL : w->values + t->value_from;
    size_t len = to - t->value_from;
    const char *key = NULL;
    size_t klen = 0;
    if (w->key_end) {
        uint32_t kend = w->key_end[i], kto = kend & ~LOG_NULL;
        key = kend & LOG_NULL ? NULL : w->keys + t->key_from;
        klen = kto - t->key_from;
        t->key_from = kto;
    }
    t->value_from = to;
    if (!t->json) {
        sbuf_add(&t->text, value ? value : "", value ? len : 0);
    } else {
        sbuf_printf(&t->text, "{\"partition\":%u,\"offset\":%lld,\"time\":%lld,",
                    t->first + t->turn, (long long)t->offset + i, (long long)log_row_time(w, i));
        text_bytes(&t->text, "key", key, klen);
        sbuf_adds(&t->text, ",");
        text_bytes(&t->text, "value", value, len);
        add_headers(&t->text, w, i);
        sbuf_adds(&t->text, "}");
    }
    sbuf_adds(&t->text, "\n");
}

/* The next records of a partition, up to its end. */
static int read_some(struct tail *t, uint32_t partition, uint32_t max, struct err *e) {
    int64_t *end = &t->end[partition];
    int n = *end ? log_read(t->reader[partition], max, &t->rows, &t->offset, e) : 0;
    if (n > 0 && t->offset + n >= *end) {
        n = *end > t->offset ? (int)(*end - t->offset) : 0;
        *end = 0;
        t->rows.n = (uint32_t)n;
    }
    return n;
}

/* The next records into text. 1: some, 0: none now, -1: error. */
static int fill(struct tail *t) {
    struct err e = ERR_INIT;
    t->text.len = t->text_at = 0;
    if (t->at == t->rows.n) {
        uint32_t max = t->left < READ_ROWS ? (uint32_t)t->left : READ_ROWS;
        int n = 0;
        for (uint32_t i = 0; i < t->n && n == 0; i++) { /* the partitions take turns */
            t->turn = (t->turn + 1) % t->n;
            n = read_some(t, t->turn, max, &e);
        }
        if (n <= 0) {
            t->rows.n = t->at = 0;
            return n;
        }
        t->at = t->value_from = t->key_from = 0;
    }
    while (t->at < t->rows.n && t->text.len < BLOCK_BYTES) {
        add_record(t);
        t->left--;
    }
    return 1;
}

bool http_wait(const struct http *h, int wake_fd, int socket) {
    struct pollfd p[3] = { { .fd = wake_fd, .events = POLLIN },
                           { .fd = h->stop_fd, .events = POLLIN },
                           { .fd = socket, .events = POLLRDHUP } };
    eventfd_t n;
    while (poll(p, 3, -1) < 0)
        if (errno != EINTR)
            return false;
    if (p[1].revents || p[2].revents)
        return false;
    eventfd_read(wake_fd, &n);
    return true;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max) {
    struct tail *t = arg;
    (void)pos;
    while (t->text_at == t->text.len) {
        if (t->left == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        int n = fill(t);
        if (n < 0 || (n == 0 && !t->follow))
            return n < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
        if (n == 0 && !http_wait(t->http, t->wake_fd, t->socket))
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = t->text.len - t->text_at;
    n = n < max ? n : max;
    memcpy(buf, t->text.p + t->text_at, n);
    t->text_at += n;
    return (ssize_t)n;
}

/* ---- the request ---- */

/* A place in one partition. */
static int read_from(const char *s, int64_t begin, int64_t end, int64_t *from, struct err *e) {
    if (strcmp(s, "earliest") == 0 || strcmp(s, "latest") == 0) {
        *from = *s == 'e' ? begin : end;
        return 0;
    }
    if (num_i64_whole(s, s + strlen(s), from) < 0)
        return err_set(e, ERR_INPUT, "'from' must be an offset, earliest or latest, not '%.60s'",
                       s);
    if (*from < begin)
        return err_set(e, ERR_NOTFOUND, "offset %lld is gone: the topic begins at %lld",
                       (long long)*from, (long long)begin);
    if (*from > end)
        return err_set(e, ERR_INPUT, "offset %lld is beyond the end, %lld", (long long)*from,
                       (long long)end);
    return 0;
}

static int read_request(struct request *r, struct tail *t, struct err *e) {
    struct log_topic_info info;
    const char *format = http_arg(r, "format");
    int64_t partition;
    int rc = log_topic_info(coord_log(r->coord), r->param[0], &info, e);
    if (rc == 0)
        rc = http_arg_int(r, "partition", -1, 0, info.conf.partitions - 1, &partition, e);
    if (rc == 0)
        rc = http_arg_bool(r, "follow", &t->follow, e);
    if (rc == 0)
        rc = http_arg_int(r, "max", INT64_MAX, 0, INT64_MAX, &t->left, e);
    if (rc == 0)
        rc = http_arg_int(r, "last", -1, 0, INT64_MAX, &t->last, e);
    if (rc < 0)
        return rc;
    t->json = !format || strcmp(format, "json") == 0;
    if (!t->json && strcmp(format, "raw") != 0)
        return err_set(e, ERR_INPUT, "'format' must be json or raw, not '%.60s'", format);
    t->first = partition < 0 ? 0 : (uint32_t)partition;
    t->n = partition < 0 ? info.conf.partitions : 1;
    const char *from = http_arg(r, "from");
    if (from && t->last >= 0)
        return err_set(e, ERR_INPUT, "either 'from' or 'last'");
    if (t->n > 1 && from && *from >= '0' && *from <= '9')
        return err_set(e, ERR_INPUT,
                       "an offset is a place in one partition: give 'partition' (0 to %u), too",
                       t->n - 1);
    return 0;
}

static int readers_open(struct request *r, struct tail *t, struct err *e) {
    const char *s = http_arg(r, "from");
    int64_t begin, end, from;
    uint32_t n = t->n;
    int rc = 0;
    t->reader = calloc(n, sizeof(struct log_reader *));
    t->end = calloc(n, sizeof *t->end);
    if (!t->reader || !t->end)
        abort();
    if (!s)
        s = t->follow ? "latest" : "earliest";
    for (t->n = 0; t->n < n && rc == 0;) {
        uint32_t p = t->first + t->n;
        rc = log_topic_ends(coord_log(r->coord), r->param[0], p, &begin, &end, e);
        if (rc == 0 && t->last >= 0)
            from = t->last < end - begin ? end - t->last : begin;
        else if (rc == 0)
            rc = read_from(s, begin, end, &from, e);
        if (rc == 0)
            rc = log_reader_open(coord_log(r->coord), r->param[0], p, from, &t->reader[t->n], e);
        if (rc == 0)
            t->end[t->n++] = t->follow ? INT64_MAX : end;
    }
    return rc;
}

static int tail_open(struct request *r, struct tail *t, struct err *e) {
    int rc = read_request(r, t, e);
    if (rc < 0) {
        t->n = 0;
        return rc;
    }
    rc = readers_open(r, t, e);
    if (rc < 0 || !t->follow)
        return rc;
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd < 0)
        return err_errno(e, errno, "following a topic");
    t->socket = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    t->watch = log_watch(coord_log(r->coord), r->param[0], on_commit, t);
    MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return 0;
}

int http_get_records(struct request *r) {
    struct err e = ERR_INIT;
    if (!http_reader_begin(r->http)) {
        err_set(&e, ERR_SYSTEM, "%d readers are at work already", HTTP_READERS);
        e.retriable = true;
        return http_error(r, &e);
    }
    struct tail *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    *t = (struct tail){ .http = r->http, .wake_fd = -1 };
    if (tail_open(r, t, &e) < 0) {
        tail_free(t);
        return http_error(r, &e);
    }
    r->stream =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read, t, tail_free);
    MHD_add_response_header(r->stream, "Content-Type",
                            t->json ? "application/x-ndjson" : "text/plain; charset=utf-8");
    return 200;
}
