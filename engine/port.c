#include "engine/port.h"
#include "engine/clock.h"
#include "engine/exchange.h"
#include "engine/files.h"
#include "engine/key.h"
#include "engine/num.h"
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- taps: readers of sinks that store nothing ---- */

static void tap_add(struct executor_tap *tap, struct log_buf *buf) {
    struct tap_buf *b = &tap->buf[0];
    if (b->bytes + buf->values_len > EXECUTOR_TAP_BYTES) {
        b->skipped += buf->n;
        return;
    }
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 8;
        b->v = realloc(b->v, b->cap * sizeof *b->v);
        if (!b->v)
            abort();
    }
    log_buf_ref(buf);
    b->v[b->n++] = buf;
    b->bytes += buf->values_len;
}

static void tap_clear(struct tap_buf *b) {
    for (uint32_t i = 0; i < b->n; i++)
        log_buf_unref(b->v[i]);
    b->n = 0;
    b->bytes = 0;
    b->skipped = 0;
}

static void tap_deliver(struct executor_tap *tap) {
    struct tap_buf *b = &tap->buf[1];
    for (uint32_t i = 0; i < b->n; i++) {
        struct log_rows rows;
        log_buf_rows(b->v[i], &rows);
        tap->rows(tap->arg, &rows, i + 1 == b->n ? b->skipped : 0);
    }
    if (b->n == 0 && b->skipped)
        tap->rows(tap->arg, &(struct log_rows){ 0 }, b->skipped);
    tap_clear(b);
}

static void tap_free(struct executor_tap *tap) {
    for (int k = 0; k < 2; k++) {
        tap_clear(&tap->buf[k]);
        free(tap->buf[k].v);
        tap->buf[k] = (struct tap_buf){ 0 };
    }
}

/* ---- sources and sinks ---- */

static struct port *port_new(struct ports *ps, struct task *t, enum port_kind kind,
                             const char *topic) {
    struct port *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    *p = (struct port){ .kind = kind, .task = t, .topic = topic, .start = -1, .fd = -1 };
    p->next = ps->first;
    ps->first = p;
    task_set_user(t, p);
    return p;
}

static void pending_clear(struct port *p) {
    *p->all_pending -= p->pending.len;
    p->pending.len = 0;
}

/* What counts as pending. */
static size_t buf_held(const struct log_buf *buf) {
    return (size_t)buf->values_len + buf->keys_len + buf->headers_len;
}

static void buf_drop(struct port *p, uint32_t partition) {
    struct log_buf *buf = p->buf[partition];
    if (!buf)
        return;
    *p->all_pending -= buf_held(buf);
    log_buf_unref(buf);
    p->buf[partition] = NULL;
}

static void bufs_drop(struct port *p) {
    for (uint32_t i = 0; i < p->partitions; i++)
        buf_drop(p, i);
}

static void port_free(struct port *p) {
    if (p->kind == PORT_FILE)
        pending_clear(p);
    for (struct executor_tap *tap = p->taps, *next; tap; tap = next) {
        next = tap->next;
        tap_free(tap);
        if (tap->copy_of)
            free(tap);
        else
            tap->gone(tap->arg);
    }
    bufs_drop(p);
    free(p->buf);
    if (p->reader)
        log_reader_close(p->reader);
    if (p->fd >= 0)
        p->files->close(p->files->ctx, p->fd);
    sbuf_free(&p->pending);
    free(p->silent);
    free(p);
}

static void exchange_topic(const struct task_def *d, char *out) {
    snprintf(out, sizeof((struct port *)0)->internal, PORT_EXCHANGE "%llu",
             (unsigned long long)d->links[0].from);
}

/* Where a new source begins. A new exchange is empty; one that runs is joined at the cut, where all
 * that comes before it has been appended (change_joins). */
static int source_start(struct ports *ps, const struct task_def *d, const char *topic,
                        int64_t begin, int64_t end, int64_t *at, struct err *e) {
    const struct start *s = op_config_start(d->op, d->config);
    *at = !s || s->at == START_LATEST ? end : begin;
    if (s && s->at == START_TIME)
        *at = log_offset_at(ps->log, topic, ps->partition, s->n);
    if (!s || s->at != START_OFFSET)
        return 0;
    *at = s->n;
    if (task_parts(d) > 1)
        return err_set(e, ERR_INPUT,
                       "topic '%s' has %u partitions, each with offsets of its own: let the source "
                       "start at a time",
                       topic, task_parts(d));
    if (*at >= begin && *at <= end)
        return 0;
    return err_set(e, ERR_INPUT,
                   "the source cannot start at offset %lld: topic '%s' has %lld to %lld",
                   (long long)*at, topic, (long long)begin, (long long)end);
}

static int source_bind(struct ports *ps, struct task *t, bool restore, struct err *e) {
    const struct task_def *d = task_def(t);
    if (d->op->pull) {
        struct port *p = port_new(ps, t, PORT_MAKER, NULL);
        p->start = restore ? -1 : 0;
        if (!restore)
            task_seek(t, 0);
        return 0;
    }
    bool exchange = d->op->flags & OP_EXCHANGE;
    char internal[sizeof((struct port *)0)->internal];
    const char *topic = exchange ? internal : op_config_text(d->op, d->config, "topic");
    if (exchange)
        exchange_topic(d, internal);
    if (!topic)
        return err_set(e, ERR_INPUT, "source %s of type %s needs a driver that is not there",
                       d->label, d->op->name);
    int64_t begin, end;
    struct log_topic_info info;
    int rc = log_topic_ends(ps->log, topic, ps->partition, &begin, &end, e);
    if (rc == 0)
        rc = log_topic_info(ps->log, topic, &info, e);
    if (rc < 0)
        return rc;
    if (info.conf.partitions != task_parts(d))
        return err_set(e, ERR_CONFLICT,
                       "topic '%s' has %u partitions, but had %u when the dataflow was planned: "
                       "submit it again",
                       topic, info.conf.partitions, task_parts(d));
    struct port *p = port_new(ps, t, PORT_SOURCE, topic);
    if (exchange) {
        memcpy(p->internal, internal, sizeof internal);
        p->topic = p->internal;
        p->width = RECORD_ROWS;
    }
    if (!restore && (rc = source_start(ps, d, topic, begin, end, &p->start, e)) < 0)
        return rc;
    int64_t at = restore ? task_position(t) : p->start;
    rc = log_reader_open(ps->log, topic, ps->partition, at, &p->reader, e);
    if (rc == 0 && !restore)
        task_seek(t, p->start);
    return rc;
}

/* Makes the directories of the file; whether that worked, open tells. */
static void make_dirs(struct ports *ps, char *path) {
    ps->files->mkdir(ps->files->ctx, ps->out_dir);
    for (char *p = path + strlen(ps->out_dir) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            ps->files->mkdir(ps->files->ctx, path);
            *p = '/';
        }
}

/* The file's name is on the disk, too: all directories from its own up to the one out_dir is in. */
static int sync_dirs(struct ports *ps, char *path, struct err *e) {
    size_t out = strlen(ps->out_dir), len;
    do {
        len = (size_t)(strrchr(path, '/') - path);
        path[len] = '\0';
        int rc = ps->files->sync_dir(ps->files->ctx, path);
        if (rc < 0)
            return err_errno(e, -rc, "syncing the directory %s", path);
    } while (len >= out && strchr(path + 1, '/'));
    return 0;
}

static int file_bind(struct ports *ps, struct task *t, const char *name, struct err *e) {
    const struct log_files *f = ps->files;
    char path[FILES_PATH_MAX];
    if (!ps->out_dir)
        return err_set(e, ERR_INPUT, "sink %s: file sinks are not allowed here",
                       task_def(t)->label);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", ps->out_dir, name) >= sizeof path)
        return err_set(e, ERR_INPUT, "sink %s: the path of its file is too long",
                       task_def(t)->label);
    make_dirs(ps, path);
    struct port *p = port_new(ps, t, PORT_FILE, name);
    p->files = f;
    p->all_pending = &ps->pending;
    p->length = task_position(t);
    p->fd = f->open(f->ctx, path, O_RDWR | O_CREAT);
    int rc = p->fd < 0 ? p->fd : f->truncate(f->ctx, p->fd, p->length);
    if (rc < 0)
        return err_errno(e, -rc, "opening the sink file %s", path);
    return ps->sync ? sync_dirs(ps, path, e) : 0;
}

static int topic_bind(struct ports *ps, struct task *t, const char *topic, struct err *e) {
    struct log_topic_info info;
    struct port *p = port_new(ps, t, PORT_TOPIC, topic);
    int rc = log_topic_info(ps->log, topic, &info, e);
    if (rc < 0)
        return rc;
    p->buf = calloc(info.conf.partitions, sizeof(struct log_buf *));
    if (!p->buf)
        abort();
    p->partitions = info.conf.partitions;
    p->all_pending = &ps->pending;
    return 0;
}

/* The first of its partitions makes the topic: names are never reused, so what is there is of this
 * instance, from before a restart. */
static int exchange_bind(struct ports *ps, struct task *t, struct err *e) {
    const struct task_def *d = task_def(t);
    const struct exchange_config *c = d->config;
    struct log_topic_conf conf = { .partitions = (uint32_t)c->groups, .retention_bytes = -1 };
    char internal[sizeof((struct port *)0)->internal];
    exchange_topic(d, internal);
    int rc = ps->partition == 0 ? log_topic_create(ps->log, internal, &conf, e) : 0;
    if (rc < 0 && rc != ERR_CONFLICT)
        return rc;
    rc = topic_bind(ps, t, internal, e);
    struct port *p = task_user(t);
    memcpy(p->internal, internal, sizeof internal);
    p->topic = p->internal;
    return rc;
}

int ports_bind(struct ports *ps, struct task *t, bool restore, struct err *e) {
    const struct task_def *d = task_def(t);
    if (d->op->flags & OP_SOURCE)
        return source_bind(ps, t, restore, e);
    if (!(d->op->flags & OP_SINK))
        return 0;
    const char *topic = op_config_text(d->op, d->config, "topic");
    const char *file = op_config_text(d->op, d->config, "file");
    if (topic)
        return topic_bind(ps, t, topic, e);
    if (d->op->flags & OP_EXCHANGE)
        return exchange_bind(ps, t, e);
    if (file)
        return file_bind(ps, t, file, e);
    port_new(ps, t, PORT_NONE, NULL);
    return 0;
}

void ports_unbind(struct ports *ps, struct task *t) {
    for (struct port **pp = &ps->first; *pp; pp = &(*pp)->next)
        if ((*pp)->task == t) {
            struct port *p = *pp;
            *pp = p->next;
            /* Partition 0 goes last (executor.c): nobody reads or writes it any more. */
            if (p->kind == PORT_TOPIC && port_exchange(p) && ps->partition == 0)
                log_topic_delete(ps->log, p->topic, NULL);
            port_free(p);
            return;
        }
}

void ports_free(struct ports *ps) {
    for (struct port *p = ps->first, *next; p; p = next) {
        next = p->next;
        port_free(p);
    }
    ps->first = NULL;
}

struct sweep {
    struct exec *ex;
    struct sbuf names; /* NUL behind each */
};

static int sweep_topic(void *arg, const struct log_topic_info *info) {
    struct sweep *s = arg;
    const char *number = info->name + strlen(PORT_EXCHANGE);
    int64_t instance;
    if (strncmp(info->name, PORT_EXCHANGE, strlen(PORT_EXCHANGE)) == 0 &&
        num_i64_whole(number, number + strlen(number), &instance) == 0 &&
        !exec_find(s->ex, (uint64_t)instance))
        sbuf_add(&s->names, info->name, strlen(info->name) + 1);
    return 0;
}

void ports_sweep(struct ports *ps, struct exec *ex) {
    struct sweep s = { .ex = ex };
    log_topic_list(ps->log, sweep_topic, &s);
    for (size_t at = 0; at < s.names.len; at += strlen(s.names.p + at) + 1)
        log_topic_delete(ps->log, s.names.p + at, NULL);
    sbuf_free(&s.names);
}

/* The rows as a payload: that of the encoder when the batch is whole, else a new one. */
static struct log_buf *batch_payload(const struct batch *b) {
    struct log_rows rows;
    if (!b->sel && b->n == b->encoded->n) {
        log_buf_ref(b->encoded);
        return b->encoded;
    }
    struct log_buf *buf = log_buf_new();
    log_buf_rows(b->encoded, &rows);
    for (uint32_t i = 0; i < b->n; i++)
        log_buf_copy(buf, &rows, batch_row(b, i));
    log_buf_seal(buf);
    return buf;
}

static int buf_flush(struct port *p, uint32_t partition, struct log_epoch *ep) {
    struct log_buf *buf = p->buf[partition];
    if (!buf)
        return 0;
    log_buf_seal(buf);
    int rc = log_epoch_append(ep, p->topic, partition, buf, clock_wall_ms(), NULL);
    buf_drop(p, partition);
    return rc;
}

static struct log_buf *part_buf(struct port *p, uint32_t partition) {
    if (!p->buf[partition])
        p->buf[partition] = log_buf_new();
    return p->buf[partition];
}

/* Records of one batch for several partitions, those of a key to one, as Kafka's producers lay
 * them: kept by partition until the epoch closes. ~20 ns a row beside the copy. */
static int put_records(struct port *p, const struct batch *b, struct log_epoch *ep) {
    struct log_rows rows;
    int rc = 0;
    log_buf_rows(b->encoded, &rows);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i), to = task_partition(p->task) % p->partitions;
        uint32_t at = log_end(rows.key_end, (int64_t)r - 1);
        if (!(rows.key_end[r] & LOG_NULL))
            to = key_partition((struct span){ .p = rows.keys + at, .len = rows.key_end[r] - at },
                               p->partitions);
        struct log_buf *buf = part_buf(p, to);
        size_t before = buf_held(buf);
        log_buf_copy(buf, &rows, r);
        *p->all_pending += buf_held(buf) - before;
        if (buf->values_len >= LOG_BUF_BYTES)
            rc = rc ? rc : buf_flush(p, to, ep);
    }
    return rc;
}

/* Rows (value, partition) of an exchange, in the same way. */
static int put_rows(struct port *p, const struct batch *b, struct log_epoch *ep) {
    int rc = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i), to = (uint32_t)b->cols[1].i64[r];
        struct span v = b->cols[0].str[r];
        struct log_buf *buf = part_buf(p, to);
        memcpy(log_buf_room(buf, v.len), v.p, v.len);
        log_buf_end(buf, v.len);
        *p->all_pending += v.len;
        if (buf->values_len >= LOG_BUF_BYTES)
            rc = rc ? rc : buf_flush(p, to, ep);
    }
    return rc;
}

int ports_sink(struct task *t, const struct batch *b, struct log_epoch *ep) {
    struct port *p = task_user(t);
    int rc = 0;
    if (p->kind == PORT_NONE && !p->taps)
        return 0;
    if (p->kind == PORT_FILE) {
        for (uint32_t i = 0; i < b->n; i++) {
            struct span v = b->cols[0].str[batch_row(b, i)];
            sbuf_add(&p->pending, v.p, v.len);
            sbuf_add(&p->pending, "\n", 1);
            *p->all_pending += v.len + 1;
        }
        return 0;
    }
    if (port_exchange(p))
        return put_rows(p, b, ep);
    assert(b->encoded); /* below an encoder */
    if (p->partitions > 1 && b->encoded->key_end)
        return put_records(p, b, ep);
    struct log_buf *buf = batch_payload(b);
    if (p->kind == PORT_TOPIC)
        rc = log_epoch_append(ep, p->topic, task_partition(t) % p->partitions, buf, clock_wall_ms(),
                              NULL);
    for (struct executor_tap *tap = p->taps; tap; tap = tap->next)
        tap_add(tap, buf);
    log_buf_unref(buf);
    return rc;
}

/* ---- epochs ---- */

/* The bytes are in the file before the commit that makes its new length official; what lies beyond
 * the committed length is cut back at the next write or restart. */
static int put_file(struct port *p, bool sync, struct err *e) {
    if (p->pending.len == 0)
        return 0;
    struct iovec v = { .iov_base = p->pending.p, .iov_len = p->pending.len };
    int rc = files_write(p->files, p->fd, &v, 1, p->length);
    if (rc < 0)
        return err_errno(e, -rc, "writing the sink file %s", p->topic);
    if (sync && (rc = p->files->datasync(p->files->ctx, p->fd)) < 0)
        return err_errno(e, -rc, "syncing the sink file %s", p->topic);
    p->length += (int64_t)p->pending.len;
    pending_clear(p);
    task_seek(p->task, p->length);
    return 0;
}

/* What all readers of an exchange's partition have behind them goes with the epoch that says so:
 * from its commit on none of them returns there. Several read it when it is read in order. */
static int trim_exchange(struct ports *ps, struct port *p, struct log_epoch *ep) {
    int64_t least = INT64_MAX;
    for (struct port *q = ps->first; q; q = q->next) {
        if (q->kind != PORT_SOURCE || !port_exchange(q) || strcmp(q->topic, p->topic) != 0)
            continue;
        int64_t at = task_position(q->task);
        least = at < least ? at : least;
        q->read_bytes = 0;
    }
    return log_epoch_trim(ep, p->topic, ps->partition, least);
}

int ports_close_epoch(struct ports *ps, struct log_epoch *ep, struct err *e) {
    int rc = 0;
    for (struct port *p = ps->first; p && rc == 0; p = p->next) {
        for (uint32_t i = 0; i < p->partitions && rc == 0; i++)
            rc = buf_flush(p, i, ep);
        if (p->kind == PORT_FILE)
            rc = put_file(p, ps->sync, e);
        else if (rc == 0 && p->read_bytes >= PORT_TRIM_BYTES)
            rc = trim_exchange(ps, p, ep);
    }
    return rc;
}

void port_silent(struct port *p, int64_t ms) {
    if (p->silent_at < p->nsilent) { /* repeated */
        p->silent_at++;
        return;
    }
    if (p->nsilent == p->silent_cap) {
        p->silent_cap = p->silent_cap ? p->silent_cap * 2 : 4;
        p->silent = realloc(p->silent, p->silent_cap * sizeof *p->silent);
        if (!p->silent)
            abort();
    }
    p->silent[p->nsilent++] = (struct port_silence){ task_position(p->task), ms };
    p->silent_at = p->nsilent;
}

const struct port_silence *port_silence(const struct port *p) {
    return p->silent_at < p->nsilent ? &p->silent[p->silent_at] : NULL;
}

static void silence_commit(struct port *p) {
    p->nsilent -= p->silent_pushed;
    p->silent_at -= p->silent_pushed;
    memmove(p->silent, p->silent + p->silent_pushed, p->nsilent * sizeof *p->silent);
    p->silent_pushed = 0;
}

void ports_push(struct ports *ps) {
    for (struct port *p = ps->first; p; p = p->next) {
        p->silent_pushed = p->silent_at;
        for (struct executor_tap *tap = p->taps; tap; tap = tap->next) {
            struct tap_buf closed = tap->buf[0];
            tap->buf[0] = tap->buf[1];
            tap->buf[1] = closed;
        }
    }
}

void ports_commit(struct ports *ps) {
    for (struct port *p = ps->first; p; p = p->next) {
        if (p->silent_pushed)
            silence_commit(p);
        for (struct executor_tap *tap = p->taps; tap; tap = tap->next)
            tap_deliver(tap);
    }
}

void ports_cut(struct ports *ps) {
    for (struct port *p = ps->first; p; p = p->next)
        if (port_reads(p))
            p->cut = task_position(p->task);
}

bool ports_behind(const struct ports *ps) {
    for (const struct port *p = ps->first; p; p = p->next)
        if (port_reads(p) && !p->failed && task_position(p->task) < p->cut)
            return true;
    return false;
}

static void port_rewind(struct port *p) {
    if (p->kind == PORT_FILE) {
        pending_clear(p);
        p->length = task_position(p->task);
        int rc = p->fd < 0 ? 0 : p->files->truncate(p->files->ctx, p->fd, p->length);
        if (rc < 0)
            err_errno(&p->err, -rc, "cutting the sink file %s back", p->topic);
        return;
    }
    if (!port_reads(p))
        return;
    p->ended = false;
    p->silent_at = p->silent_pushed = 0;
    if (!task_has_position(p->task) && p->start >= 0)
        task_seek(p->task, p->start);
    if (p->reader && log_seek(p->reader, task_position(p->task), &p->err) < 0)
        p->failed = true;
}

void ports_abort(struct ports *ps) {
    for (struct port *p = ps->first; p; p = p->next) {
        for (struct executor_tap *tap = p->taps; tap; tap = tap->next) {
            tap_clear(&tap->buf[0]);
            tap_clear(&tap->buf[1]);
        }
        bufs_drop(p);
        port_rewind(p);
    }
}

struct executor_tap **ports_taps(struct task *t) {
    struct port *p = t && task_def(t)->op->flags & OP_SINK ? task_user(t) : NULL;
    return p && p->kind == PORT_NONE ? &p->taps : NULL;
}

void ports_untap(struct ports *ps, const struct executor_tap *tap) {
    for (struct port *p = ps->first; p; p = p->next)
        for (struct executor_tap **tp = &p->taps, *at; (at = *tp);) {
            if (at != tap && at->copy_of != tap) {
                tp = &at->next;
                continue;
            }
            *tp = at->next;
            tap_free(at);
            if (at->copy_of)
                free(at);
        }
}
