#include "engine/log.h"
#include "engine/log_driver.h"
#include "engine/log_local.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int log_open(struct log **log, const struct log_conf *conf, struct err *e) {
    return log_local_open(log, conf, e);
}

void log_close(struct log *log) {
    if (log)
        log->driver->close(log);
}

const char *log_topic_name_check(const char *name) {
    size_t len = strlen(name);
    if (len == 0)
        return "is empty";
    if (len > LOG_NAME_MAX)
        return "is longer than 249 bytes";
    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return "names a directory";
    for (const char *p = name; *p; p++) {
        bool ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                  (*p >= '0' && *p <= '9') || *p == '.' || *p == '_' || *p == '-';
        if (!ok)
            return "has a character outside A-Z a-z 0-9 . _ -";
    }
    return NULL;
}

int log_topic_create(struct log *log, const char *name, const struct log_topic_conf *conf,
                     struct err *e) {
    const char *wrong = log_topic_name_check(name);
    if (wrong)
        return err_set(e, ERR_INPUT, "topic name \"%.300s\" %s", name, wrong);
    if (conf->partitions == 0)
        return err_set(e, ERR_INPUT, "topic %s needs a partition", name);
    return log->driver->topic_create(log, name, conf, e);
}

int log_topic_delete(struct log *log, const char *name, struct err *e) {
    return log->driver->topic_delete(log, name, e);
}

int log_topic_info(struct log *log, const char *name, struct log_topic_info *info, struct err *e) {
    return log->driver->topic_info(log, name, info, e);
}

int log_topic_list(struct log *log, int (*each)(void *, const struct log_topic_info *), void *arg) {
    return log->driver->topic_list(log, each, arg);
}

int log_topic_ends(struct log *log, const char *name, uint32_t partition, int64_t *begin,
                   int64_t *end, struct err *e) {
    return log->driver->topic_ends(log, name, partition, begin, end, e);
}

int64_t log_offset_at(struct log *log, const char *topic, uint32_t partition, int64_t ms) {
    return log->driver->offset_at(log, topic, partition, ms);
}

int log_reader_open(struct log *log, const char *topic, uint32_t partition, int64_t offset,
                    struct log_reader **r, struct err *e) {
    return log->driver->reader_open(log, topic, partition, offset, r, e);
}

int log_read(struct log_reader *r, uint32_t max, struct log_rows *rows, int64_t *offset,
             struct err *e) {
    return r->driver->read(r, max, rows, offset, e);
}

int log_seek(struct log_reader *r, int64_t offset, struct err *e) {
    return r->driver->seek(r, offset, e);
}

void log_reader_close(struct log_reader *r) {
    if (r)
        r->driver->reader_close(r);
}

struct log_watch *log_watch(struct log *log, const char *topic, void (*wake)(void *), void *arg) {
    return log->driver->watch(log, topic, wake, arg);
}

void log_unwatch(struct log *log, struct log_watch *w) {
    if (w)
        log->driver->unwatch(log, w);
}

int log_state_each(struct log *log, const void *prefix, uint32_t plen,
                   int (*each)(void *, const void *key, uint32_t klen, const void *value,
                               uint32_t vlen),
                   void *arg, struct err *e) {
    return log->driver->state_each(log, prefix, plen, each, arg, e);
}

/* ---- epochs ---- */

/* Room for `need` elements of `size` bytes in a doubling array. */
static void *room(void *p, size_t *cap, size_t need, size_t size) {
    if (need <= *cap)
        return p;
    size_t c = *cap ? *cap : 16;
    while (c < need)
        c *= 2;
    p = realloc(p, c * size);
    if (!p)
        abort(); /* bounded by LOG_EPOCH_BYTES */
    *cap = c;
    return p;
}

static uint32_t room32(void *pp, uint32_t cap, size_t need, size_t size) {
    size_t c = cap;
    void **p = pp;
    *p = room(*p, &c, need, size);
    return (uint32_t)c;
}

struct log_epoch *log_epoch_begin(struct log *log) {
    struct log_epoch *ep = calloc(1, sizeof *ep);
    if (!ep)
        abort();
    ep->log = log;
    return ep;
}

static uint32_t epoch_name(struct log_epoch *ep, const char *topic) {
    size_t len = strlen(topic) + 1;
    ep->names_cap = room32(&ep->names, ep->names_cap, ep->names_len + len, 1);
    uint32_t at = ep->names_len;
    memcpy(ep->names + at, topic, len);
    ep->names_len += (uint32_t)len;
    return at;
}

/* Runs of appends to one topic share a name. */
static uint32_t append_name(struct log_epoch *ep, const char *topic) {
    if (ep->n && !strcmp(ep->names + ep->append[ep->n - 1].topic, topic))
        return ep->append[ep->n - 1].topic;
    return epoch_name(ep, topic);
}

int log_epoch_append(struct log_epoch *ep, const char *topic, uint32_t partition,
                     struct log_buf *buf, int64_t time, int64_t *first) {
    assert(buf->sealed);
    size_t size = log_buf_bytes(buf);
    if (strlen(topic) > LOG_NAME_MAX)
        return ERR_INPUT;
    if (size > LOG_EPOCH_BYTES - ep->bytes)
        return ERR_INPUT;
    if (buf->n == 0)
        return 0;
    struct epoch_append a = {
        .topic = append_name(ep, topic), .partition = partition, .time = time, .first = first
    };
    ep->cap = room32(&ep->append, ep->cap, (size_t)ep->n + 1, sizeof *ep->append);
    log_buf_ref(buf);
    a.buf = buf;
    ep->append[ep->n++] = a;
    ep->bytes += size;
    return 0;
}

static int add_trim(struct log_epoch *ep, const char *topic, struct epoch_trim t) {
    if (sizeof t > LOG_EPOCH_BYTES - ep->bytes)
        return ERR_INPUT;
    bool same = ep->trims && !strcmp(ep->names + ep->trim[ep->trims - 1].topic, topic);
    t.topic = same ? ep->trim[ep->trims - 1].topic : epoch_name(ep, topic);
    ep->trims_cap = room32(&ep->trim, ep->trims_cap, (size_t)ep->trims + 1, sizeof *ep->trim);
    ep->trim[ep->trims++] = t;
    ep->bytes += sizeof t;
    return 0;
}

int log_epoch_trim(struct log_epoch *ep, const char *topic, uint32_t partition, int64_t offset) {
    if (strlen(topic) > LOG_NAME_MAX || offset < 0)
        return ERR_INPUT;
    return add_trim(ep, topic, (struct epoch_trim){ .partition = partition, .offset = offset });
}

int log_epoch_state(struct log_epoch *ep, const void *key, uint32_t klen, const void *value,
                    uint32_t vlen) {
    if (klen == 0 || klen > LOG_KEY_MAX || *(const unsigned char *)key == LOG_KEY_RESERVED)
        return ERR_INPUT;
    if (!value)
        vlen = 0;
    size_t size = 8 + (size_t)klen + vlen;
    if (size > LOG_EPOCH_BYTES - ep->bytes)
        return ERR_INPUT;
    ep->state = room(ep->state, &ep->state_cap, ep->state_len + size, 1);
    uint32_t head[2] = { klen, value ? vlen : LOG_NULL };
    char *p = ep->state + ep->state_len;
    memcpy(p, head, 8);
    memcpy(p + 8, key, klen);
    if (vlen)
        memcpy(p + 8 + klen, value, vlen);
    ep->state_len += size;
    ep->bytes += size;
    return 0;
}

static void add_offset(struct log_epoch *ep, size_t at, uint32_t append) {
    ep->offsets_cap =
        room32(&ep->offset, ep->offsets_cap, (size_t)ep->offsets + 1, sizeof *ep->offset);
    ep->offset[ep->offsets++] = (struct epoch_offset){ at, append };
}

int log_epoch_join(struct log_epoch *into, struct log_epoch *from) {
    int rc = from->bytes > LOG_EPOCH_BYTES - into->bytes ? ERR_INPUT : 0;
    uint32_t behind = into->n;
    for (uint32_t i = 0; i < from->n && rc == 0; i++) {
        const struct epoch_append *a = &from->append[i];
        rc =
            log_epoch_append(into, from->names + a->topic, a->partition, a->buf, a->time, a->first);
    }
    for (uint32_t i = 0; i < from->offsets && rc == 0; i++)
        add_offset(into, into->state_len + from->offset[i].at, behind + from->offset[i].append);
    for (uint32_t i = 0; i < from->trims && rc == 0; i++)
        rc = add_trim(into, from->names + from->trim[i].topic, from->trim[i]);
    if (rc == 0 && from->state_len) {
        into->state = room(into->state, &into->state_cap, into->state_len + from->state_len, 1);
        memcpy(into->state + into->state_len, from->state, from->state_len);
        into->state_len += from->state_len;
        into->bytes += from->state_len;
    }
    log_epoch_drop(from);
    return rc;
}

int log_epoch_state_offset(struct log_epoch *ep, const void *key, uint32_t klen, const void *value,
                           uint32_t vlen) {
    if (ep->n == 0 || !value || vlen < sizeof(int64_t))
        return ERR_INPUT;
    int rc = log_epoch_state(ep, key, klen, value, vlen);
    if (rc)
        return rc;
    add_offset(ep, ep->state_len - vlen, ep->n - 1);
    return 0;
}

size_t log_epoch_bytes(const struct log_epoch *ep) {
    return ep->bytes;
}

void log_epoch_drop(struct log_epoch *ep) {
    for (uint32_t i = 0; i < ep->n; i++)
        log_buf_unref(ep->append[i].buf);
    free(ep->append);
    free(ep->names);
    free(ep->state);
    free(ep->offset);
    free(ep->trim);
    free(ep);
}

void log_commit(struct log_epoch *ep, log_done *done, void *arg) {
    ep->log->driver->commit(ep->log, ep, done, arg);
}

struct waiter {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool ready;
    enum log_outcome outcome;
    uint64_t commit_no;
    struct err err;
};

static void waiter_done(void *arg, enum log_outcome outcome, uint64_t commit_no,
                        const struct err *e) {
    struct waiter *w = arg;
    pthread_mutex_lock(&w->mu);
    w->ready = true;
    w->outcome = outcome;
    w->commit_no = commit_no;
    if (e)
        w->err = *e;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mu);
}

enum log_outcome log_commit_wait(struct log_epoch *ep, uint64_t *commit_no, struct err *e) {
    struct waiter w = { .mu = PTHREAD_MUTEX_INITIALIZER,
                        .cond = PTHREAD_COND_INITIALIZER,
                        .err = ERR_INIT };
    log_commit(ep, waiter_done, &w);
    pthread_mutex_lock(&w.mu);
    while (!w.ready)
        pthread_cond_wait(&w.cond, &w.mu);
    pthread_mutex_unlock(&w.mu);
    if (commit_no)
        *commit_no = w.commit_no;
    if (e)
        *e = w.err;
    pthread_mutex_destroy(&w.mu);
    pthread_cond_destroy(&w.cond);
    return w.outcome;
}
