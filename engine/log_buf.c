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
    b->n = b->values_len = b->keys_len = b->headers_len = b->crc = 0;
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
    free(b->times);
    free(b->header_end);
    free(b->headers);
    free(b);
}

void log_buf_unref(struct log_buf *b) {
    if (!b || __atomic_sub_fetch(&b->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    bool keep = b->values_cap <= POOL_BYTES && b->keys_cap <= POOL_BYTES &&
                b->headers_cap <= POOL_BYTES && b->cap_n <= POOL_BYTES / sizeof(uint32_t);
    /* Without keys, times and headers again; the next user may not give any. */
    free(b->key_end);
    free(b->times);
    free(b->header_end);
    b->key_end = b->header_end = NULL;
    b->times = NULL;
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

/* Room for one more row in every array that is there. */
static void grow_rows(struct log_buf *b) {
    if (b->n < b->cap_n)
        return;
    b->cap_n = b->cap_n ? 2 * b->cap_n : 256;
    b->value_end = grow(b->value_end, b->cap_n * sizeof *b->value_end);
    if (b->key_end)
        b->key_end = grow(b->key_end, b->cap_n * sizeof *b->key_end);
    if (b->times)
        b->times = grow(b->times, b->cap_n * sizeof *b->times);
    if (b->header_end)
        b->header_end = grow(b->header_end, b->cap_n * sizeof *b->header_end);
}

static void add_row(struct log_buf *b, uint32_t end) {
    grow_rows(b);
    b->value_end[b->n] = end;
    if (b->key_end)
        b->key_end[b->n] = b->keys_len | LOG_NULL;
    if (b->times)
        b->times[b->n] = LOG_NO_TIME;
    if (b->header_end)
        b->header_end[b->n] = b->headers_len;
    b->n++;
}

void log_buf_end(struct log_buf *b, size_t len) {
    assert(!b->sealed && len <= b->values_cap - b->values_len);
    b->values_len += (uint32_t)len;
    add_row(b, b->values_len);
}

void log_buf_null(struct log_buf *b) {
    assert(!b->sealed);
    add_row(b, b->values_len | LOG_NULL);
}

/* Room for `more` bytes behind `len` in a doubling area. */
static char *room(char *p, uint32_t len, uint32_t *cap, size_t more) {
    size_t need = (size_t)len + more, c = *cap ? *cap : 1024;
    assert(need < LOG_NULL);
    if (need <= *cap)
        return p;
    while (c < need)
        c *= 2;
    *cap = (uint32_t)c;
    return grow(p, c);
}

void log_buf_key(struct log_buf *b, const char *key, size_t len, bool null) {
    assert(!b->sealed && b->n > 0);
    if (null)
        return; /* as add_row has marked it, or as if none had been given */
    if (!b->key_end) {
        b->key_end = grow(NULL, b->cap_n * sizeof *b->key_end);
        for (uint32_t i = 0; i < b->n; i++)
            b->key_end[i] = LOG_NULL;
    }
    b->keys = room(b->keys, b->keys_len, &b->keys_cap, len);
    if (len)
        memcpy(b->keys + b->keys_len, key, len);
    b->keys_len += (uint32_t)len;
    b->key_end[b->n - 1] = b->keys_len;
}

void log_buf_time(struct log_buf *b, int64_t ms) {
    assert(!b->sealed && b->n > 0);
    if (!b->times) {
        if (ms == LOG_NO_TIME)
            return;
        b->times = grow(NULL, b->cap_n * sizeof *b->times);
        for (uint32_t i = 0; i < b->n; i++)
            b->times[i] = LOG_NO_TIME;
    }
    b->times[b->n - 1] = ms;
}

/* Bytes that are headers already. */
static void add_headers(struct log_buf *b, const char *p, size_t len) {
    if (!b->header_end) {
        b->header_end = grow(NULL, b->cap_n * sizeof *b->header_end);
        memset(b->header_end, 0, b->n * sizeof *b->header_end);
    }
    b->headers = room(b->headers, b->headers_len, &b->headers_cap, len);
    if (len)
        memcpy(b->headers + b->headers_len, p, len);
    b->headers_len += (uint32_t)len;
    b->header_end[b->n - 1] = b->headers_len;
}

void log_buf_header(struct log_buf *b, const char *name, size_t nlen, const char *value,
                    size_t vlen) {
    uint32_t n = (uint32_t)nlen, v = value ? (uint32_t)vlen : LOG_NULL;
    assert(!b->sealed && b->n > 0 && nlen < LOG_NULL && vlen < LOG_NULL);
    add_headers(b, (const char *)&n, sizeof n);
    add_headers(b, name, nlen);
    add_headers(b, (const char *)&v, sizeof v);
    add_headers(b, value, value ? vlen : 0);
}

bool log_header_next(const char **p, const char *end, struct log_header *h) {
    uint32_t len;
    if (end - *p < 4)
        return false;
    memcpy(&len, *p, 4);
    if (len > end - *p - 4 || end - *p - 4 - len < 4)
        return false;
    h->name = *p + 4;
    h->nlen = len;
    const char *q = h->name + len;
    memcpy(&len, q, 4);
    q += 4;
    h->vlen = len == LOG_NULL ? 0 : len;
    h->value = len == LOG_NULL ? NULL : q;
    if (h->vlen > end - q)
        return false;
    *p = q + h->vlen;
    return true;
}

void log_buf_copy(struct log_buf *b, const struct log_rows *from, uint32_t i) {
    uint32_t at = log_end(from->value_end, (int64_t)i - 1), len = log_end(from->value_end, i) - at;
    if (from->value_end[i] & LOG_NULL) {
        log_buf_null(b);
    } else {
        char *to = log_buf_room(b, len);
        if (len)
            memcpy(to, from->values + at, len);
        log_buf_end(b, len);
    }
    if (from->key_end && !(from->key_end[i] & LOG_NULL)) {
        at = log_end(from->key_end, (int64_t)i - 1);
        log_buf_key(b, from->keys + at, from->key_end[i] - at, false);
    }
    if (from->times)
        log_buf_time(b, from->times[i]);
    if (from->header_end &&
        log_end(from->header_end, i) > log_end(from->header_end, (int64_t)i - 1)) {
        at = log_end(from->header_end, (int64_t)i - 1);
        add_headers(b, from->headers + at, log_end(from->header_end, i) - at);
    }
}

size_t log_buf_bytes(const struct log_buf *b) {
    size_t row = sizeof *b->value_end + (b->key_end ? sizeof *b->key_end : 0) +
                 (b->times ? sizeof *b->times : 0) + (b->header_end ? sizeof *b->header_end : 0);
    return b->n * row + b->values_len + b->keys_len + b->headers_len;
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
    if (b->times)
        b->crc = crc32c(b->crc, b->times, b->n * sizeof *b->times);
    if (b->header_end) {
        b->crc = crc32c(b->crc, b->header_end, b->n * sizeof *b->header_end);
        b->crc = crc32c(b->crc, b->headers, b->headers_len);
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
        .header_end = b->header_end,
        .headers = b->headers,
        .times = b->times,
    };
}
