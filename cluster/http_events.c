/* GET /v1/events: server-sent events. Submits and removals wake the stream; that a dataflow fails,
 * is degraded or has recovered is looked for once a second, by one of the streams for all, and
 * only while somebody follows: an idle server has no timer. */
#include "cluster/events.h"
#include "cluster/http_impl.h"
#include "cluster/text.h"
#include "cluster/view.h"
#include "engine/num.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BLOCK_BYTES = 16 << 10, LOOK_MS = 1000, KEEP_ALIVE_LOOKS = 15 };

struct stream {
    struct http *http;
    struct events *events;
    int wake_fd, socket;
    bool watching;
    uint64_t last;
    int quiet; /* looks since something was sent */
    struct sbuf text;
    size_t text_at;
};

static void stream_free(void *arg) {
    struct stream *s = arg;
    if (s->watching)
        events_unwatch(s->events, s->wake_fd);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    http_reader_end(s->http);
    sbuf_free(&s->text);
    free(s);
}

static bool fill(struct stream *s) {
    struct event e;
    s->text.len = s->text_at = 0;
    while (s->text.len < BLOCK_BYTES && events_get(s->events, s->last, &e)) {
        s->last = e.number;
        sbuf_printf(&s->text, "id: %llu\nevent: %s\ndata: {\"time\":%lld,\"dataflow\":",
                    (unsigned long long)e.number, e.kind, (long long)e.time);
        text_json(&s->text, e.dataflow);
        sbuf_adds(&s->text, ",\"text\":");
        text_json(&s->text, e.text);
        sbuf_adds(&s->text, "}\n\n");
    }
    return s->text.len > 0;
}

/* False when the client has gone or the server stops. */
static bool wait_event(struct stream *s) {
    struct pollfd p[3] = { { .fd = s->wake_fd, .events = POLLIN },
                           { .fd = s->http->stop_fd, .events = POLLIN },
                           { .fd = s->socket, .events = POLLRDHUP } };
    eventfd_t n;
    int rc = poll(p, 3, LOOK_MS);
    if ((rc < 0 && errno != EINTR) || p[1].revents || p[2].revents)
        return false;
    eventfd_read(s->wake_fd, &n);
    if (rc == 0) {
        events_look(s->events, s->http->coord);
        if (++s->quiet == KEEP_ALIVE_LOOKS)
            sbuf_adds(&s->text, ":\n\n"); /* a comment: proxies keep the connection */
    }
    return true;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max) {
    struct stream *s = arg;
    (void)pos;
    while (s->text_at == s->text.len)
        if (!fill(s) && !wait_event(s))
            return MHD_CONTENT_READER_END_OF_STREAM;
    s->quiet = 0;
    size_t n = s->text.len - s->text_at;
    n = n < max ? n : max;
    memcpy(buf, s->text.p + s->text_at, n);
    s->text_at += n;
    return (ssize_t)n;
}

static int stream_open(struct request *r, struct stream *s, struct err *e) {
    const char *id = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Last-Event-ID");
    int64_t last = (int64_t)events_last(s->events), after = last, n;
    if (id && num_i64_whole(id, id + strlen(id), &n) == 0 && n >= 0)
        after = n;
    int rc = http_arg_int(r, "after", after, 0, INT64_MAX, &after, e);
    if (rc < 0)
        return rc;
    s->last = after > last ? 0 : (uint64_t)after; /* of a life before: all of this one */
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0)
        return err_errno(e, errno, "following the events");
    s->watching = events_watch(s->events, s->wake_fd);
    if (!s->watching) {
        err_set(e, ERR_SYSTEM, "%d clients follow the events already", EVENTS_WATCHERS);
        e->retriable = true;
        return ERR_SYSTEM;
    }
    s->socket = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    sbuf_adds(&s->text, "retry: 1000\n\n"); /* sends the header at once, too */
    return 0;
}

int http_events(struct request *r) {
    struct err e = ERR_INIT;
    if (!http_reader_begin(r->http)) {
        err_set(&e, ERR_SYSTEM, "%d readers are at work already", HTTP_READERS);
        e.retriable = true;
        return http_error(r, &e);
    }
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    *s = (struct stream){ .http = r->http, .events = coord_events(r->coord), .wake_fd = -1 };
    if (stream_open(r, s, &e) < 0) {
        stream_free(s);
        return http_error(r, &e);
    }
    r->stream =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read, s, stream_free);
    MHD_add_response_header(r->stream, "Content-Type", "text/event-stream");
    return 200;
}
