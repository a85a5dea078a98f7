#include "cluster/ingest.h"
#include "engine/batch.h"
#include "engine/clock.h"
#include "engine/json.h"
#include "engine/key.h"
#include "engine/num.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    INGEST_HEADERS_MAX = 64,
    SLOTS_FIRST = 256,
    KEY_MAX = 1 + LOG_NAME_MAX + 1 + INGEST_NAME_MAX
};

/* The value of a producer's state key. The topic's id tells what is left of an earlier topic of the
 * name, deleted by a process that was killed before it could forget its producers. */
struct last_post {
    int64_t offset; /* filled in by the log as it commits */
    int64_t seq, count;
    uint64_t topic;
};
struct producer {
    int64_t seq, offset, count; /* of the last post; seq -1: none yet */
    bool busy;                  /* a post is being committed */
    int waiting;                /* posts waiting for it */
    struct producer *next;      /* hash chain */
    struct producer *older, *newer;
    uint32_t klen;
    char key[]; /* 'I' topic NUL producer: the state key */
};
struct ingest {
    struct log *log;
    int64_t max;
    uint32_t turn;           /* atomic: of posts that name neither producer nor partition */
    pthread_rwlock_t topics; /* posts read; who deletes a topic writes */
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* some producer is no longer busy */
    struct producer **slot;
    uint32_t mask;
    int64_t n;
    struct producer *oldest, *newest;
};

/* ---- bodies ---- */

static struct log_buf *open_buf(struct ingest_rows *rows) {
    if (rows->nbufs && rows->buf[rows->nbufs - 1]->values_len < LOG_BUF_BYTES)
        return rows->buf[rows->nbufs - 1];
    if (rows->nbufs == INGEST_BUFS_MAX)
        return NULL;
    return rows->buf[rows->nbufs++] = log_buf_new();
}

static int add_row(struct ingest_rows *rows, const char *p, size_t len, struct err *e) {
    struct log_buf *b = len <= LOG_RECORD_MAX ? open_buf(rows) : NULL;
    if (!b)
        return err_set(e, ERR_INPUT, "record %lld is too large", (long long)rows->n + 1);
    if (p) {
        char *room = log_buf_room(b, len);
        if (len)
            memcpy(room, p, len);
        log_buf_end(b, len);
    } else {
        log_buf_null(b);
    }
    rows->n++;
    return 0;
}

static int seal(struct ingest_rows *rows, int rc) {
    for (int i = 0; i < rows->nbufs && rc == 0; i++)
        log_buf_seal(rows->buf[i]);
    if (rc < 0)
        ingest_rows_free(rows);
    return rc;
}

int ingest_lines(struct ingest_rows *rows, const char *text, size_t len, struct err *e) {
    const char *p = text, *end = text + len;
    int rc = 0;
    *rows = (struct ingest_rows){ 0 };
    if (len > INGEST_BODY_MAX)
        return err_set(e, ERR_INPUT, "at most %d bytes are taken at once", INGEST_BODY_MAX);
    while (p < end && rc == 0) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        rc = add_row(rows, p, (size_t)(stop - p) - (nl && stop > p && stop[-1] == '\r'), e);
        p = nl ? nl + 1 : end;
    }
    return seal(rows, rc);
}

/* ---- records as JSON objects ---- */

struct object {
    struct json_reader r;
    struct span value, key; /* p NULL: null */
    int64_t time;
    struct span header[2 * INGEST_HEADERS_MAX]; /* name, value */
    int nheaders;
};

/* The value at hand: text of a string, null, or with `any` the JSON text of all else. */
static bool take_value(struct object *o, bool any, struct span *v) {
    struct json_reader *r = &o->r;
    const char *at = r->at;
    *v = (struct span){ .p = NULL };
    if (r->event == JE_NULL)
        return true;
    if (r->event == JE_STR) {
        *v = (struct span){ .p = r->len ? r->s : "", .len = r->len };
        return true;
    }
    if (!any || ((r->event == JE_OBJ || r->event == JE_ARR) && json_skip(r) < 0))
        return false;
    *v = (struct span){ .p = at, .len = (uint32_t)(r->p - at) };
    return true;
}

static bool take_time(struct object *o) {
    const struct json_reader *r = &o->r;
    o->time = r->event == JE_INT ? r->i : LOG_NO_TIME;
    if (r->event == JE_STR)
        return time_parse(r->s, r->s + r->len, &o->time) == 0;
    return r->event == JE_INT || r->event == JE_NULL;
}

static bool take_headers(struct object *o) {
    struct json_reader *r = &o->r;
    if (r->event != JE_OBJ)
        return r->event == JE_NULL;
    while (json_next(r) == JE_KEY) {
        struct span *h = &o->header[2 * o->nheaders];
        if (o->nheaders++ == INGEST_HEADERS_MAX)
            return false;
        h[0] = (struct span){ .p = r->s, .len = r->len };
        if (json_next(r) < 0 || !take_value(o, false, &h[1]))
            return false;
    }
    return r->event == JE_OBJ_END;
}

static int read_object(struct object *o, int64_t record, struct err *e) {
    struct json_reader *r = &o->r;
    if (json_next(r) == JE_OBJ)
        while (json_next(r) == JE_KEY) {
            struct span name = { .p = r->s, .len = r->len };
            bool is[4], ok = false;
            static const char *const keys[] = { "value", "key", "time", "headers" };
            for (int k = 0; k < 4; k++)
                is[k] = name.len == strlen(keys[k]) && memcmp(name.p, keys[k], name.len) == 0;
            if (json_next(r) < 0)
                break;
            if (is[0] || is[1])
                ok = take_value(o, is[0], is[0] ? &o->value : &o->key);
            else if (is[2] || is[3])
                ok = is[2] ? take_time(o) : take_headers(o);
            else
                return err_set(e, ERR_INPUT,
                               "record %lld: '%.*s' is none of value, key, time and headers",
                               (long long)record, name.len > 60 ? 60 : (int)name.len, name.p);
            if (!ok && r->event >= 0)
                return err_set(e, ERR_INPUT, "record %lld: '%.*s' must be %s", (long long)record,
                               (int)name.len, name.p,
                               is[1]   ? "a string or null"
                               : is[2] ? "ms since 1970 or an RFC 3339 time"
                                       : "an object of at most 64 strings and nulls");
            if (!ok)
                break;
        }
    if (r->event == JE_OBJ_END && json_next(r) == JE_END)
        return 0;
    return err_set(e, ERR_INPUT, "record %lld is no JSON object: %s", (long long)record,
                   r->event < 0 ? r->err.text : "it must be one object a line");
}

static int add_object(struct ingest_rows *rows, const char *line, size_t len, struct arena *a,
                      struct err *e) {
    struct object o = { .time = LOG_NO_TIME };
    json_open(&o.r, line, len, a);
    int rc = read_object(&o, rows->n + 1, e);
    json_close(&o.r);
    if (rc == 0)
        rc = add_row(rows, o.value.p, o.value.len, e);
    if (rc < 0)
        return rc;
    struct log_buf *b = rows->buf[rows->nbufs - 1];
    log_buf_key(b, o.key.p, o.key.len, !o.key.p);
    log_buf_time(b, o.time);
    for (int i = 0; i < o.nheaders; i++) {
        const struct span *h = &o.header[2 * i];
        log_buf_header(b, h[0].p, h[0].len, h[1].p, h[1].len);
    }
    return 0;
}

int ingest_objects(struct ingest_rows *rows, const char *text, size_t len, struct err *e) {
    const char *p = text, *end = text + len;
    struct arena a = { 0 };
    int rc = 0;
    *rows = (struct ingest_rows){ 0 };
    if (len > INGEST_BODY_MAX)
        return err_set(e, ERR_INPUT, "at most %d bytes are taken at once", INGEST_BODY_MAX);
    while (p < end && rc == 0) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *stop = nl ? nl : end;
        arena_reset(&a);
        rc = add_object(rows, p, (size_t)(stop - p), &a, e);
        p = nl ? nl + 1 : end;
    }
    arena_free(&a);
    return seal(rows, rc);
}

int ingest_lengths(struct ingest_rows *rows, const char *data, size_t len, struct err *e) {
    size_t at = 0;
    int rc = 0;
    *rows = (struct ingest_rows){ 0 };
    if (len > INGEST_BODY_MAX)
        return err_set(e, ERR_INPUT, "at most %d bytes are taken at once", INGEST_BODY_MAX);
    while (at < len && rc == 0) {
        const unsigned char *u = (const unsigned char *)data + at;
        uint32_t n = 0;
        if (len - at >= 4)
            n = u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
        if (len - at < 4 || n > len - at - 4) {
            rc = err_set(e, ERR_INPUT,
                         "byte %zu: record %lld is cut off: a record is 4 bytes of length, "
                         "little-endian, and as many bytes",
                         at, (long long)rows->n + 1);
            e->offset = (long)at;
            break;
        }
        rc = add_row(rows, data + at + 4, n, e);
        at += 4 + (size_t)n;
    }
    return seal(rows, rc);
}

void ingest_rows_free(struct ingest_rows *rows) {
    for (int i = 0; i < rows->nbufs; i++)
        log_buf_unref(rows->buf[i]);
    rows->nbufs = 0;
}

/* ---- producers ---- */

bool ingest_producer_valid(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-");
    return n > 0 && n <= INGEST_NAME_MAX && !s[n];
}

static struct producer **slot_of(struct ingest *in, const char *key, uint32_t klen) {
    struct producer **p = &in->slot[XXH3_64bits(key, klen) & in->mask];
    while (*p && ((*p)->klen != klen || memcmp((*p)->key, key, klen) != 0))
        p = &(*p)->next;
    return p;
}

static void unlist(struct ingest *in, struct producer *p) {
    *(p->older ? &p->older->newer : &in->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &in->newest) = p->older;
}

static void list_newest(struct ingest *in, struct producer *p) {
    p->newer = NULL;
    p->older = in->newest;
    *(in->newest ? &in->newest->newer : &in->oldest) = p;
    in->newest = p;
}

static void grow(struct ingest *in) {
    struct producer **old = in->slot;
    uint32_t n = in->mask + 1;
    in->mask = 2 * n - 1;
    in->slot = calloc(2 * (size_t)n, sizeof *in->slot);
    if (!in->slot)
        abort();
    for (uint32_t i = 0; i < n; i++)
        for (struct producer *p = old[i], *next; p; p = next) {
            next = p->next;
            p->next = NULL;
            *slot_of(in, p->key, p->klen) = p;
        }
    free(old);
}

static struct producer *add(struct ingest *in, const char *key, uint32_t klen) {
    if (in->n > in->mask)
        grow(in);
    struct producer *p = calloc(1, sizeof *p + klen);
    if (!p)
        abort();
    p->seq = -1;
    p->klen = klen;
    memcpy(p->key, key, klen);
    *slot_of(in, key, klen) = p;
    list_newest(in, p);
    in->n++;
    return p;
}

static void drop(struct ingest *in, struct producer *p) {
    *slot_of(in, p->key, p->klen) = p->next;
    unlist(in, p);
    in->n--;
    free(p);
}

static uint32_t make_key(char key[KEY_MAX], const char *topic, const char *producer) {
    size_t t = strnlen(topic, LOG_NAME_MAX), n = strnlen(producer, INGEST_NAME_MAX);
    key[0] = 'I';
    memcpy(key + 1, topic, t);
    key[1 + t] = '\0';
    memcpy(key + 2 + t, producer, n);
    return (uint32_t)(2 + t + n);
}

struct loading {
    struct ingest *in;
    struct log_epoch *stale; /* removes keys of topics that are gone */
    int nstale;
    char topic[LOG_NAME_MAX + 1]; /* of the last key: they come by topic */
    uint64_t id;                  /* its, 0: none */
};

static int load(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    struct loading *l = arg;
    struct last_post v;
    const char *topic = (const char *)key + 1, *nul = memchr(topic, 0, klen - 1);
    if (!nul || nul - topic > LOG_NAME_MAX || vlen != sizeof v)
        return 0;
    memcpy(&v, value, sizeof v);
    if (strcmp(l->topic, topic) != 0) {
        struct log_topic_info info = { .id = 0 };
        memcpy(l->topic, topic, (size_t)(nul - topic) + 1);
        l->id = log_topic_info(l->in->log, topic, &info, NULL) < 0 ? 0 : info.id;
    }
    if (v.topic != l->id) {
        l->nstale++;
        return log_epoch_state(l->stale, key, klen, NULL, 0);
    }
    struct producer *p = add(l->in, key, klen);
    p->seq = v.seq;
    p->offset = v.offset;
    p->count = v.count;
    return 0;
}

static int load_all(struct ingest *in, struct err *e) {
    struct loading l = { .in = in, .stale = log_epoch_begin(in->log) };
    int rc = log_state_each(in->log, "I", 1, load, &l, e);
    if (rc == 0 && l.nstale)
        return log_commit_wait(l.stale, NULL, e) == LOG_COMMITTED ? 0 : ERR_SYSTEM;
    log_epoch_drop(l.stale);
    return rc;
}

static void locks_init(struct ingest *in) {
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    /* Posts without a pause must not keep a topic from being deleted. */
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&in->topics, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&in->mutex, NULL);
    pthread_cond_init(&in->cond, NULL);
}

int ingest_open(struct ingest **out, struct log *log, int64_t producers, struct err *e) {
    struct ingest *in = calloc(1, sizeof *in);
    if (!in || !(in->slot = calloc(SLOTS_FIRST, sizeof *in->slot)))
        abort();
    in->log = log;
    in->max = producers ? producers : 65536;
    in->mask = SLOTS_FIRST - 1;
    locks_init(in);
    int rc = load_all(in, e);
    if (rc < 0) {
        ingest_close(in);
        return rc;
    }
    *out = in;
    return 0;
}

void ingest_close(struct ingest *in) {
    if (!in)
        return;
    while (in->oldest)
        drop(in, in->oldest);
    pthread_rwlock_destroy(&in->topics);
    pthread_mutex_destroy(&in->mutex);
    pthread_cond_destroy(&in->cond);
    free(in->slot);
    free(in);
}

/* ---- posts ---- */

/* The producer's new state, behind the append of its first records. */
static void put_last_post(struct log_epoch *ep, const struct producer *p, int64_t seq,
                          const struct log_topic_info *info, const struct ingest_rows *rows) {
    struct last_post v = { info->end, seq, rows->n, info->id };
    if (rows->nbufs)
        log_epoch_state_offset(ep, p->key, p->klen, &v, sizeof v);
    else
        log_epoch_state(ep, p->key, p->klen, &v, sizeof v);
}

/* Appends and commits; with a producer its new state goes along. */
static int commit(struct ingest *in, const char *topic, uint32_t partition,
                  const struct producer *p, int64_t seq, const struct producer *gone,
                  const struct ingest_rows *rows, int64_t *first, struct err *e) {
    struct log_epoch *ep = log_epoch_begin(in->log);
    struct log_topic_info info;
    int64_t now = clock_wall_ms(), offset[INGEST_BUFS_MAX];
    int rc = log_topic_info(in->log, topic, &info, e);
    if (rc == 0)
        rc = log_topic_ends(in->log, topic, partition, &info.begin, &info.end, e);
    for (int i = 0; i < rows->nbufs && rc == 0; i++) {
        if ((rc = log_epoch_append(ep, topic, partition, rows->buf[i], now, &offset[i])) < 0)
            err_set(e, rc, "the records do not fit into one commit");
        if (rc == 0 && p && i == 0)
            put_last_post(ep, p, seq, &info, rows);
    }
    if (rc == 0 && p && rows->nbufs == 0)
        put_last_post(ep, p, seq, &info, rows);
    if (rc == 0 && gone)
        log_epoch_state(ep, gone->key, gone->klen, NULL, 0);
    if (rc < 0) {
        log_epoch_drop(ep);
        return rc;
    }
    enum log_outcome o = log_commit_wait(ep, NULL, e);
    if (o == LOG_COMMITTED) {
        *first = rows->nbufs ? offset[0] : info.end;
        return 0;
    }
    if (o == LOG_ABORTED && e->code == 0)
        err_set(e, ERR_SYSTEM, "the commit was refused");
    return e->code ? e->code : err_set(e, ERR_SYSTEM, "it is unknown whether the commit happened");
}

/* The producer, no longer busy, as the newest. Under the mutex, which is given up while waiting. */
static struct producer *acquire(struct ingest *in, const char *key, uint32_t klen) {
    for (;;) {
        struct producer *p = *slot_of(in, key, klen);
        if (!p)
            p = add(in, key, klen);
        if (!p->busy) {
            unlist(in, p);
            list_newest(in, p);
            return p;
        }
        p->waiting++;
        pthread_cond_wait(&in->cond, &in->mutex);
        p->waiting--;
    }
}

/* Beyond the limit the oldest that nobody is using goes: busy until the commit that says so, or a
 * post of it could commit before and lose its number. */
static struct producer *evict(struct ingest *in, const struct producer *keep) {
    struct producer *p = in->n > in->max ? in->oldest : NULL;
    while (p && (p->busy || p->waiting || p == keep))
        p = p->newer;
    if (p)
        p->busy = true;
    return p;
}

static void evicted(struct ingest *in, struct producer *p, bool committed) {
    p->busy = false;
    if (!committed)
        return;
    p->seq = -1;
    if (p->waiting == 0)
        drop(in, p);
}

/* A number that the producer has used before. */
static bool repeated(const struct producer *p, int64_t seq, struct ingest_answer *a) {
    if (seq > p->seq)
        return false;
    bool last = seq == p->seq;
    *a = (struct ingest_answer){ .offset = last ? p->offset : -1,
                                 .count = last ? p->count : 0,
                                 .duplicate = true };
    return true;
}

static int post_numbered(struct ingest *in, const char *topic, uint32_t partition,
                         const char *producer, int64_t seq, const struct ingest_rows *rows,
                         struct ingest_answer *a, struct err *e) {
    char key[KEY_MAX];
    uint32_t klen = make_key(key, topic, producer);
    pthread_mutex_lock(&in->mutex);
    struct producer *p = acquire(in, key, klen);
    if (repeated(p, seq, a)) {
        pthread_mutex_unlock(&in->mutex);
        return 0;
    }
    p->busy = true;
    struct producer *gone = evict(in, p);
    pthread_mutex_unlock(&in->mutex);
    *a = (struct ingest_answer){ .count = rows->n };
    int rc = commit(in, topic, partition, p, seq, gone, rows, &a->offset, e);
    pthread_mutex_lock(&in->mutex);
    if (gone)
        evicted(in, gone, rc == 0);
    p->busy = false;
    if (rc == 0) {
        p->seq = seq;
        p->offset = a->offset;
        p->count = rows->n;
    } else if (p->seq < 0 && p->waiting == 0) {
        drop(in, p);
    }
    pthread_cond_broadcast(&in->cond);
    pthread_mutex_unlock(&in->mutex);
    return rc;
}

static int post_plain(struct ingest *in, const char *topic, uint32_t partition,
                      const struct ingest_rows *rows, struct ingest_answer *a, struct err *e) {
    *a = (struct ingest_answer){ .count = rows->n };
    if (rows->n == 0) { /* nothing to commit, but the topic must be there */
        int64_t begin;
        int rc = log_topic_ends(in->log, topic, partition, &begin, &a->offset, e);
        a->offset = rc == 0 ? a->offset : -1;
        return rc;
    }
    return commit(in, topic, partition, NULL, 0, NULL, rows, &a->offset, e);
}

static int choose(struct ingest *in, const char *topic, int64_t partition, const char *producer,
                  uint32_t *out, struct err *e) {
    struct log_topic_info info;
    int rc = log_topic_info(in->log, topic, &info, e);
    if (rc < 0)
        return rc;
    uint32_t n = info.conf.partitions;
    if (partition >= n)
        return err_set(e, ERR_NOTFOUND, "topic %s has %u partitions: there is no partition %lld",
                       topic, n, (long long)partition);
    struct span name = { .p = producer, .len = producer ? (uint32_t)strlen(producer) : 0 };
    if (partition >= 0)
        *out = (uint32_t)partition;
    else if (n == 1)
        *out = 0;
    else
        *out = producer ? key_partition(name, n)
                        : __atomic_fetch_add(&in->turn, 1, __ATOMIC_RELAXED) % n;
    return 0;
}

int ingest_post(struct ingest *in, const char *topic, int64_t partition, const char *producer,
                int64_t seq, const struct ingest_rows *rows, struct ingest_answer *a,
                struct err *e) {
    uint32_t to = 0;
    pthread_rwlock_rdlock(&in->topics);
    int rc = choose(in, topic, partition, producer, &to, e);
    if (rc == 0)
        rc = producer ? post_numbered(in, topic, to, producer, seq, rows, a, e)
                      : post_plain(in, topic, to, rows, a, e);
    a->partition = to;
    pthread_rwlock_unlock(&in->topics);
    return rc;
}

/* Under the write lock, so no producer is busy or waited for. Should the commit fail, the keys that
 * stay are known by the topic's id. */
static void forget(struct ingest *in, const char *topic) {
    struct log_epoch *ep = log_epoch_begin(in->log);
    size_t len = strlen(topic);
    int n = 0;
    pthread_mutex_lock(&in->mutex);
    for (struct producer *p = in->oldest, *next; p; p = next) {
        next = p->newer;
        if (p->klen < 2 + len || memcmp(p->key + 1, topic, len + 1) != 0)
            continue;
        log_epoch_state(ep, p->key, p->klen, NULL, 0);
        n++;
        drop(in, p);
    }
    pthread_mutex_unlock(&in->mutex);
    if (n)
        log_commit_wait(ep, NULL, NULL);
    else
        log_epoch_drop(ep);
}

int ingest_topic_delete(struct ingest *in, const char *topic, bool if_empty, struct err *e) {
    struct log_topic_info info;
    pthread_rwlock_wrlock(&in->topics);
    int rc = log_topic_info(in->log, topic, &info, e);
    if (rc == 0 && !(if_empty && info.end > 0)) {
        rc = log_topic_delete(in->log, topic, e);
        if (rc == 0)
            forget(in, topic);
    }
    pthread_rwlock_unlock(&in->topics);
    return rc;
}

int64_t ingest_producers(struct ingest *in) {
    pthread_mutex_lock(&in->mutex);
    int64_t n = in->n;
    pthread_mutex_unlock(&in->mutex);
    return n;
}
