#include "engine/crc32c.h"
#include "engine/log.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    POOL_BUFS = 64,                /* idle buffers kept */
    POOL_BYTES = 2 * LOG_BUF_BYTES /* larger ones are freed: one big record must not stay */
};

/* Executors take buffers, the committer gives them back: one lock a buffer of up to 1 MiB. */
static struct {
    pthread_mutex_t mu;
    int n;
    struct log_buf *buf[POOL_BUFS];
} pool = { .mu = PTHREAD_MUTEX_INITIALIZER };

static void *grow(void *p, size_t size) {
    void *q = realloc(p, size);
    if (!q)
        abort(); /* as in arena.h: sizes are bounded, memory is not recoverable here */
    return q;
}

struct log_buf *log_buf_new(void) {
    struct log_buf *b = NULL;
    pthread_mutex_lock(&pool.mu);
    if (pool.n)
        b = pool.buf[--pool.n];
    pthread_mutex_unlock(&pool.mu);
    if (!b) {
        b = grow(NULL, sizeof *b);
        memset(b, 0, sizeof *b);
    }
    b->n = b->values_len = b->keys_len = b->crc = 0;
    b->sealed = false;
    b->refs = 1;
    return b;
}

void log_buf_ref(struct log_buf *b) {
    __atomic_fetch_add(&b->refs, 1, __ATOMIC_RELAXED);
}

static void buf_free(struct log_buf *b) {
    free(b->value_end);
    free(b->values);
    free(b->key_end);
    free(b->keys);
    free(b);
}

void log_buf_unref(struct log_buf *b) {
    if (!b || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    bool keep = b->values_cap <= POOL_BYTES && b->keys_cap <= POOL_BYTES &&
                b->cap_n <= POOL_BYTES / sizeof(uint32_t);
    /* Without keys again; the next user may not give any. */
    free(b->key_end);
    b->key_end = NULL;
    if (keep) {
        pthread_mutex_lock(&pool.mu);
        keep = pool.n < POOL_BUFS;
        if (keep)
            pool.buf[pool.n++] = b;
        pthread_mutex_unlock(&pool.mu);
    }
    if (!keep)
        buf_free(b);
}

char *log_buf_room(struct log_buf *b, size_t max) {
    size_t need = (size_t)b->values_len + max;
    assert(!b->sealed && need < LOG_NULL);
    if (need > b->values_cap || !b->values) {
        size_t cap = b->values_cap ? b->values_cap : 4096;
        while (cap < need)
            cap *= 2;
        b->values = grow(b->values, cap);
        b->values_cap = (uint32_t)cap;
    }
    return b->values + b->values_len;
}

void log_buf_end(struct log_buf *b, size_t len) {
    assert(!b->sealed && len <= b->values_cap - b->values_len);
    if (b->n == b->cap_n) {
        b->cap_n = b->cap_n ? 2 * b->cap_n : 256;
        b->value_end = grow(b->value_end, b->cap_n * sizeof *b->value_end);
        if (b->key_end)
            b->key_end = grow(b->key_end, b->cap_n * sizeof *b->key_end);
    }
    b->values_len += (uint32_t)len;
    b->value_end[b->n] = b->values_len;
    if (b->key_end)
        b->key_end[b->n] = b->keys_len | LOG_NULL;
    b->n++;
}

void log_buf_key(struct log_buf *b, const char *key, size_t len, bool null) {
    assert(!b->sealed && b->n > 0 && (size_t)b->keys_len + len < LOG_NULL);
    if (!b->key_end) {
        if (null)
            return; /* as if none had been given */
        b->key_end = grow(NULL, b->cap_n * sizeof *b->key_end);
        for (uint32_t i = 0; i < b->n; i++)
            b->key_end[i] = LOG_NULL;
    }
    if (null)
        return; /* log_buf_end has marked it */
    size_t need = (size_t)b->keys_len + len;
    if (need > b->keys_cap) {
        size_t cap = b->keys_cap ? b->keys_cap : 1024;
        while (cap < need)
            cap *= 2;
        b->keys = grow(b->keys, cap);
        b->keys_cap = (uint32_t)cap;
    }
    if (len)
        memcpy(b->keys + b->keys_len, key, len);
    b->keys_len += (uint32_t)len;
    b->key_end[b->n - 1] = b->keys_len;
}

void log_buf_seal(struct log_buf *b) {
    if (b->sealed)
        return;
    b->crc = crc32c(0, b->value_end, b->n * sizeof *b->value_end);
    b->crc = crc32c(b->crc, b->values, b->values_len);
    if (b->key_end) {
        b->crc = crc32c(b->crc, b->key_end, b->n * sizeof *b->key_end);
        b->crc = crc32c(b->crc, b->keys, b->keys_len);
    }
    b->sealed = true;
}

void log_buf_rows(const struct log_buf *b, struct log_rows *rows) {
    *rows = (struct log_rows){
        .n = b->n,
        .value_end = b->value_end,
        .values = b->values,
        .key_end = b->key_end,
        .keys = b->keys,
    };
}
