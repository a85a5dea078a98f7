#include "cluster/dlq.h"
#include "engine/executor.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mark {
    int64_t offset;
    char state;
};
struct dlq {
    pthread_mutex_t mutex;
    struct mark *v; /* by offset */
    size_t n, cap;
};
enum { KEY_LEN = 9 };

static void key_write(char *key, int64_t offset) {
    key[0] = 'Q';
    for (int i = 0; i < 8; i++)
        key[1 + i] = (char)((uint64_t)offset >> (56 - 8 * i));
}

/* The first mark at or beyond the offset. */
static size_t find(const struct dlq *q, int64_t offset) {
    size_t lo = 0, hi = q->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (q->v[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void set(struct dlq *q, int64_t offset, char state) {
    size_t at = find(q, offset);
    if (at < q->n && q->v[at].offset == offset) {
        q->v[at].state = state;
        return;
    }
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : 64;
        q->v = realloc(q->v, q->cap * sizeof *q->v);
        if (!q->v)
            abort();
    }
    memmove(q->v + at + 1, q->v + at, (q->n - at) * sizeof *q->v);
    q->v[at] = (struct mark){ offset, state };
    q->n++;
}

void dlq_set(struct dlq *q, int64_t offset, enum dlq_state s) {
    pthread_mutex_lock(&q->mutex);
    set(q, offset, (char)s);
    pthread_mutex_unlock(&q->mutex);
}

enum dlq_state dlq_state(struct dlq *q, int64_t offset) {
    pthread_mutex_lock(&q->mutex);
    size_t at = find(q, offset);
    char s = at < q->n && q->v[at].offset == offset ? q->v[at].state : DLQ_OPEN;
    pthread_mutex_unlock(&q->mutex);
    return (enum dlq_state)s;
}

void dlq_put(struct log_epoch *ep, int64_t offset, enum dlq_state s) {
    char key[KEY_LEN], value = (char)s;
    key_write(key, offset);
    log_epoch_state(ep, key, KEY_LEN, &value, 1);
}

/* ---- start ---- */

struct loading {
    struct dlq *q;
    int64_t begin;
    struct log_epoch *stale;
    int nstale;
};

static int load(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    struct loading *l = arg;
    const unsigned char *k = key;
    uint64_t offset = 0;
    if (klen != KEY_LEN || vlen != 1)
        return ERR_SYSTEM;
    for (int i = 1; i < KEY_LEN; i++)
        offset = offset << 8 | k[i];
    if ((int64_t)offset < l->begin) {
        log_epoch_state(l->stale, key, klen, NULL, 0);
        l->nstale++;
    } else {
        set(l->q, (int64_t)offset, *(const char *)value);
    }
    return 0;
}

int dlq_open(struct dlq **out, struct log *log, struct err *e) {
    struct log_topic_info info;
    struct dlq *q = calloc(1, sizeof *q);
    if (!q)
        return err_errno(e, ENOMEM, "dead letters");
    pthread_mutex_init(&q->mutex, NULL);
    *out = q;
    int rc = log_topic_info(log, EXECUTOR_DLQ, &info, e);
    if (rc < 0)
        return rc;
    struct loading l = { .q = q, .begin = info.begin, .stale = log_epoch_begin(log) };
    rc = log_state_each(log, "Q", 1, load, &l, e);
    if (rc == 0 && l.nstale)
        return log_commit_wait(l.stale, NULL, e) == LOG_COMMITTED ? 0 : ERR_SYSTEM;
    log_epoch_drop(l.stale);
    return rc;
}

void dlq_close(struct dlq *q) {
    if (!q)
        return;
    pthread_mutex_destroy(&q->mutex);
    free(q->v);
    free(q);
}
