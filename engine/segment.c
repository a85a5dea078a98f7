#include "engine/segment.h"
#include "engine/crc32c.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- formats ---- */

int64_t frame_bytes(const struct frame *f) {
    int64_t ends = pad8((int64_t)f->n * 4);
    int64_t len = (int64_t)sizeof *f + ends + pad8(f->values_len);
    len += f->flags & FRAME_GAPS ? (int64_t)sizeof(struct frame_gaps) + ends : 0;
    len += f->flags & FRAME_KEYS ? ends + pad8(f->keys_len) : 0;
    len += f->flags & FRAME_TIMES ? (int64_t)f->n * 8 : 0;
    return len + (f->flags & FRAME_HEADERS ? ends + pad8(f->headers_len) : 0);
}

static uint32_t frame_crc(const struct frame *f) {
    return crc32c(0, (const char *)f + 8, sizeof *f - 8);
}

static uint32_t gaps_crc(const struct frame *f, const struct frame_gaps *g) {
    return crc32c(f->crc, g, sizeof *g - sizeof g->crc);
}

bool frame_gaps_ok(const struct frame *f) {
    const struct frame_gaps *g = (const struct frame_gaps *)(f + 1);
    return g->crc == gaps_crc(f, g) && g->end > f->first && g->end - f->first >= f->n &&
           g->end - f->first <= UINT32_MAX;
}

int64_t frame_end(const struct frame *f) {
    return f->flags & FRAME_GAPS ? ((const struct frame_gaps *)(f + 1))->end : f->first + f->n;
}

const uint32_t *frame_offsets(const struct frame *f) {
    if (!(f->flags & FRAME_GAPS))
        return NULL;
    return (const uint32_t *)((const struct frame_gaps *)(f + 1) + 1);
}

void frame_gaps_make(struct frame *f, struct frame_gaps *g, int64_t end, const uint32_t *offset) {
    f->flags |= FRAME_GAPS;
    f->crc = frame_crc(f);
    *g = (struct frame_gaps){ .end = end, .offsets = crc32c(0, offset, (size_t)f->n * 4) };
    g->crc = gaps_crc(f, g);
}

/* They rise, and stay within the frame. */
static bool offsets_ok(const struct frame *f) {
    const struct frame_gaps *g = (const struct frame_gaps *)(f + 1);
    const uint32_t *off = frame_offsets(f);
    if (!off)
        return true;
    for (uint32_t i = 1; i < f->n; i++)
        if (off[i] <= off[i - 1])
            return false;
    return g->offsets == crc32c(0, off, (size_t)f->n * 4) &&
           (f->n == 0 || off[f->n - 1] < g->end - f->first);
}

bool frame_head_ok(const struct frame *f) {
    return f->magic == FRAME_MAGIC && f->crc == frame_crc(f) &&
           !(f->flags & ~(uint32_t)FRAME_FLAGS) && (f->n > 0 || f->flags & FRAME_GAPS) &&
           f->n < LOG_NULL / 4 && f->values_len < LOG_NULL && f->keys_len < LOG_NULL &&
           f->headers_len < LOG_NULL && f->first >= 0 && f->first <= INT64_MAX - f->n;
}

/* Ends never fall, a null takes no bytes, the last one is `len`. */
static bool ends_ok(const uint32_t *end, uint32_t n, uint32_t len) {
    uint32_t last = 0, bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = end[i] & ~LOG_NULL;
        bad |= at < last || (end[i] & LOG_NULL && at != last);
        last = at;
    }
    return !bad && last == len;
}

/* The ends at *p and what they are of, moved behind them. */
static const uint32_t *take_ends(const char **p, const char **bytes, uint32_t n, uint32_t len,
                                 uint32_t *crc) {
    const uint32_t *end = (const uint32_t *)*p;
    *bytes = *p + pad8((int64_t)n * 4);
    *p = *bytes + pad8(len);
    *crc = crc32c(*crc, end, (size_t)n * 4);
    *crc = crc32c(*crc, *bytes, len);
    return end;
}

bool frame_rows(const struct frame *f, struct log_rows *rows) {
    const char *p = (const char *)(f + 1);
    uint32_t crc = 0;
    *rows = (struct log_rows){ .n = f->n, .time = f->time };
    if (f->flags & FRAME_GAPS)
        p += sizeof(struct frame_gaps) + (size_t)pad8((int64_t)f->n * 4);
    rows->value_end = take_ends(&p, &rows->values, f->n, f->values_len, &crc);
    if (f->flags & FRAME_KEYS)
        rows->key_end = take_ends(&p, &rows->keys, f->n, f->keys_len, &crc);
    if (f->flags & FRAME_TIMES) {
        rows->times = (const int64_t *)p;
        crc = crc32c(crc, p, (size_t)f->n * 8);
        p += (size_t)f->n * 8;
    }
    if (f->flags & FRAME_HEADERS)
        rows->header_end = take_ends(&p, &rows->headers, f->n, f->headers_len, &crc);
    return crc == f->payload && offsets_ok(f) && ends_ok(rows->value_end, f->n, f->values_len) &&
           (!rows->key_end || ends_ok(rows->key_end, f->n, f->keys_len)) &&
           (!rows->header_end || ends_ok(rows->header_end, f->n, f->headers_len));
}

static uint32_t head_crc(const struct segment_head *h) {
    struct segment_head c = *h;
    c.crc = 0;
    return crc32c(0, &c, sizeof c);
}

void segment_head_make(struct segment_head *h, const struct part *p, int64_t base, int64_t prev) {
    *h = (struct segment_head){ .version = SEGMENT_VERSION,
                                .topic = p->topic->id,
                                .partition = p->number,
                                .base = base,
                                .prev = prev };
    memcpy(h->magic, SEGMENT_MAGIC, sizeof h->magic);
    h->crc = head_crc(h);
}

void segment_head_compacted(struct segment_head *h, int64_t clean) {
    h->compacted = 1;
    h->clean = clean;
    h->crc = head_crc(h);
}

bool segment_head_read(const struct part *p, int fd, int64_t base, struct segment_head *h) {
    const struct log_files *f = p->topic->segments->files;
    return !files_read(f, fd, h, sizeof *h, 0) && h->crc == head_crc(h) && h->base == base &&
           h->topic == p->topic->id && h->partition == p->number;
}

static const char zeros[8];

static int vector(struct iovec *v, const void *p, size_t len) {
    int n = 0;
    if (len)
        v[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)p, .iov_len = len };
    size_t pad = (size_t)pad8((int64_t)len) - len;
    if (pad)
        v[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)zeros, .iov_len = pad };
    return n;
}

int frame_vectors(const struct frame *f, const struct log_buf *buf, struct iovec v[FRAME_VECTORS]) {
    int n = vector(v, f, sizeof *f);
    n += vector(v + n, buf->value_end, (size_t)buf->n * 4);
    n += vector(v + n, buf->values, buf->values_len);
    if (buf->key_end) {
        n += vector(v + n, buf->key_end, (size_t)buf->n * 4);
        n += vector(v + n, buf->keys, buf->keys_len);
    }
    if (buf->times)
        n += vector(v + n, buf->times, (size_t)buf->n * 8);
    if (buf->header_end) {
        n += vector(v + n, buf->header_end, (size_t)buf->n * 4);
        n += vector(v + n, buf->headers, buf->headers_len);
    }
    return n;
}

/* ---- topics ---- */

struct topic *topic_new(struct segments *ss, const char *name, uint32_t id,
                        const struct log_topic_conf *conf) {
    struct topic *t = calloc(1, sizeof *t + conf->partitions * sizeof t->part[0]);
    if (!t || !(t->name = strdup(name)))
        abort();
    t->segments = ss;
    t->id = id;
    t->conf = *conf;
    t->refs = 1;
    for (uint32_t i = 0; i < conf->partitions; i++) {
        struct part *p = &t->part[i];
        p->topic = t;
        p->number = i;
        p->fd = -1;
        p->clean = -1;
        p->tombstone = INT64_MAX;
        p->tail.base = -1;
        p->tail.time_max = INT64_MIN;
        pthread_mutex_init(&p->mu, NULL);
    }
    return t;
}

void topic_ref(struct topic *t) {
    t->refs++;
}

void topic_unref(struct topic *t) {
    if (--t->refs > 0)
        return;
    for (uint32_t i = 0; i < t->conf.partitions; i++) {
        struct part *p = &t->part[i];
        assert(p->fd < 0);
        for (uint32_t k = 0; k < p->segs; k++)
            segment_unref(p->seg[k]);
        free(p->seg);
        free(p->fresh);
        pthread_mutex_destroy(&p->mu);
    }
    free(t->name);
    free(t);
}

static int path_ok(int n) {
    return n < 0 || n >= FILES_PATH_MAX ? -ENAMETOOLONG : 0;
}

int topic_path(const struct topic *t, char path[FILES_PATH_MAX]) {
    return path_ok(snprintf(path, FILES_PATH_MAX, "%s/%s", t->segments->dir, t->name));
}

int part_path(const struct part *p, char path[FILES_PATH_MAX]) {
    return path_ok(snprintf(path, FILES_PATH_MAX, "%s/%s/%" PRIu32, p->topic->segments->dir,
                            p->topic->name, p->number));
}

int segment_path(const struct part *p, int64_t base, char path[FILES_PATH_MAX]) {
    return path_ok(snprintf(path, FILES_PATH_MAX, "%s/%s/%" PRIu32 "/%020" PRId64 ".seg",
                            p->topic->segments->dir, p->topic->name, p->number, base));
}

int segment_tmp_path(const struct part *p, int64_t base, char path[FILES_PATH_MAX]) {
    return path_ok(snprintf(path, FILES_PATH_MAX, "%s/%s/%" PRIu32 "/%020" PRId64 ".seg.tmp",
                            p->topic->segments->dir, p->topic->name, p->number, base));
}

int topic_make(struct topic *t, bool sync) {
    const struct log_files *f = t->segments->files;
    char path[FILES_PATH_MAX];
    int rc = topic_path(t, path);
    if (!rc)
        rc = f->mkdir(f->ctx, path);
    for (uint32_t i = 0; !rc && i < t->conf.partitions; i++) {
        rc = part_path(&t->part[i], path);
        if (!rc)
            rc = f->mkdir(f->ctx, path);
    }
    if (!rc && sync) {
        rc = topic_path(t, path);
        if (!rc)
            rc = f->sync_dir(f->ctx, path);
        if (!rc)
            rc = f->sync_dir(f->ctx, t->segments->dir);
    }
    return rc;
}

struct segment *segment_new(int64_t base, int64_t bytes) {
    struct segment *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->base = base;
    s->prev = s->clean = -1;
    s->bytes = s->bytes_next = bytes;
    s->end = INT64_MAX;
    s->refs = 1;
    s->scanned = SEGMENT_HEAD;
    s->scanned_offset = base;
    return s;
}

static void push(struct segment ***v, uint32_t *n, uint32_t *cap, struct segment *s) {
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 4;
        *v = realloc(*v, *cap * sizeof **v);
        if (!*v)
            abort();
    }
    (*v)[(*n)++] = s;
}

/* ---- open ---- */

struct listing {
    struct part *p;
    const struct tail *tail;
    int rc;
};

/* The offset in a segment's name, or -1. */
static int64_t name_base(const char *name) {
    int64_t base = 0;
    int i = 0;
    for (; i < 20 && name[i] >= '0' && name[i] <= '9'; i++) {
        if (base > (INT64_MAX - 9) / 10)
            return -1;
        base = base * 10 + (name[i] - '0');
    }
    return i == 20 && !strcmp(name + 20, ".seg") ? base : -1;
}

/* Keeps the segments up to the active one; others are remains of an aborted or cut group. Foreign
 * names stay. */
static int load_each(void *arg, const char *name) {
    struct listing *l = arg;
    struct part *p = l->p;
    const struct log_files *f = p->topic->segments->files;
    int64_t base = name_base(name);
    char path[FILES_PATH_MAX];
    size_t len = strlen(name);
    if (len == 28 && !strcmp(name + 20, ".seg.tmp")) { /* of a compaction that was interrupted */
        int n = part_path(p, path) ? -1 : (int)strlen(path);
        if (n > 0 && !path_ok(n + 1 + (int)len)) {
            snprintf(path + n, sizeof path - (size_t)n, "/%s", name);
            f->unlink(f->ctx, path);
        }
    }
    if (base < 0)
        return 0;
    int rc = segment_path(p, base, path);
    if (rc)
        return l->rc = rc;
    if (base > l->tail->base) {
        rc = f->unlink(f->ctx, path);
        return rc == -ENOENT ? 0 : (l->rc = rc);
    }
    push(&p->seg, &p->segs, &p->segs_cap, segment_new(base, 0));
    return 0;
}

static int by_base(const void *a, const void *b) {
    const struct segment *s = *(struct segment *const *)a, *t = *(struct segment *const *)b;
    return s->base < t->base ? -1 : s->base > t->base;
}

/* Its size; sealed segments hold committed frames only, the active one is cut to `bytes`. */
static int load_size(struct part *p, struct segment *s, struct err *e) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    int rc = segment_path(p, s->base, path);
    if (rc)
        return rc;
    bool active = s->base == p->tail.base;
    int fd = f->open(f->ctx, path, active ? O_RDWR : O_RDONLY);
    if (fd < 0)
        return fd;
    int64_t size = f->size(f->ctx, fd);
    if (size < 0)
        rc = (int)size;
    if (!rc && active && size > p->tail.bytes) {
        rc = f->truncate(f->ctx, fd, p->tail.bytes);
        size = p->tail.bytes;
    }
    if (!rc && active && size < p->tail.bytes) {
        p->roll = true;
        err_set(e, 0,
                "%s ends at byte %" PRId64 ", but %" PRId64 " were committed: readers will "
                "be told which offsets are lost",
                path, size, p->tail.bytes);
    }
    s->bytes = s->bytes_next = size;
    struct segment_head h;
    if (!rc && segment_head_read(p, fd, s->base, &h)) {
        s->prev = h.prev;
        s->clean = h.compacted ? h.clean : -1;
    }
    struct frame first;
    bool known = active && !rc && !files_read(f, fd, &first, sizeof first, SEGMENT_HEAD) &&
                 frame_head_ok(&first);
    s->first_time = known ? first.time_max : p->tail.time_max;
    f->close(f->ctx, fd);
    return rc;
}

/* From the active segment back: each names the one before it, and files in between go. Behind a
 * damaged header the next file is taken on trust. */
static int load_chain(struct part *p, struct err *e) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    int64_t prev = p->tail.base;
    uint32_t kept = p->segs;
    int rc = 0;
    for (uint32_t i = p->segs; i-- > 0;) {
        struct segment *s = p->seg[i];
        if (!rc && s->base > prev) {
            rc = segment_path(p, s->base, path);
            if (!rc)
                rc = f->unlink(f->ctx, path);
            segment_unref(s);
            continue;
        }
        if (!rc)
            rc = load_size(p, s, e);
        prev = s->prev >= 0 ? s->prev : s->base;
        p->seg[--kept] = s;
    }
    memmove(p->seg, p->seg + kept, (p->segs - kept) * sizeof *p->seg);
    p->segs -= kept;
    return rc;
}

/* What a trim or retention that was interrupted has left. */
static int load_begin(struct part *p) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    uint32_t gone = 0;
    int rc = 0;
    while (!rc && gone + 1 < p->segs && p->seg[gone + 1]->base <= p->tail.begin) {
        rc = segment_path(p, p->seg[gone]->base, path);
        if (!rc && (rc = f->unlink(f->ctx, path)) == -ENOENT)
            rc = 0;
        segment_unref(p->seg[gone++]);
    }
    memmove(p->seg, p->seg + gone, (p->segs - gone) * sizeof *p->seg);
    p->segs -= gone;
    return rc;
}

int part_load(struct part *p, const struct tail *tail, struct err *e) {
    const struct log_files *f = p->topic->segments->files;
    p->tail = *tail;
    p->begin = tail->begin;
    p->end = tail->end;
    char path[FILES_PATH_MAX];
    int rc = part_path(p, path);
    struct listing l = { .p = p, .tail = tail };
    if (!rc)
        rc = f->list(f->ctx, path, load_each, &l);
    if (rc == -ENOENT)
        rc = topic_make(p->topic, true);
    if (rc)
        return rc;
    if (p->segs) {
        qsort(p->seg, p->segs, sizeof *p->seg, by_base);
        rc = load_chain(p, e);
        if (!rc)
            rc = load_begin(p);
        if (rc)
            return rc;
    }
    for (uint32_t i = 0; i + 1 < p->segs; i++)
        p->seg[i]->end = p->seg[i + 1]->base;
    struct segment *last = p->segs ? p->seg[p->segs - 1] : NULL;
    if (last && last->base == tail->base) {
        p->active = last;
    } else if (tail->base >= 0) {
        p->roll = true;
        segment_path(p, tail->base, path);
        err_set(e, 0, "%s is missing: readers will be told which offsets are lost", path);
    }
    return 0;
}

/* ---- append ---- */

void part_close(struct part *p) {
    struct segments *ss = p->topic->segments;
    if (p->fd < 0)
        return;
    ss->files->close(ss->files->ctx, p->fd);
    p->fd = -1;
    for (int i = 0; i < ss->opens; i++)
        if (ss->open[i] == p) {
            ss->open[i] = ss->open[--ss->opens];
            return;
        }
}

int part_open(struct part *p, int64_t base, int flags) {
    struct segments *ss = p->topic->segments;
    if (ss->opens == SEGMENT_FDS_MAX) {
        struct part *oldest = ss->open[0];
        for (int i = 1; i < ss->opens; i++)
            if (ss->open[i]->used < oldest->used)
                oldest = ss->open[i];
        part_close(oldest);
    }
    char path[FILES_PATH_MAX];
    int rc = segment_path(p, base, path);
    if (rc)
        return rc;
    rc = ss->files->open(ss->files->ctx, path, flags);
    if (rc < 0)
        return rc;
    p->fd = rc;
    ss->open[ss->opens++] = p;
    return 0;
}

static int64_t part_segment_bytes(const struct part *p) {
    int64_t limit = p->topic->segments->segment_bytes, keep = p->topic->conf.retention_bytes;
    if (p->topic->conf.compact && limit > COMPACT_BYTES)
        limit = COMPACT_BYTES;
    if (keep < 0)
        return limit;
    int64_t share = keep / RETENTION_SEGMENTS;
    if (share < SEGMENT_BYTES_MIN)
        share = SEGMENT_BYTES_MIN;
    return share < limit ? share : limit;
}

/* Gives up the oldest segments as long as retention_bytes remain in the sealed ones. */
static void retain(struct part *p) {
    int64_t keep = p->topic->conf.retention_bytes, total = 0;
    if (keep < 0)
        return;
    uint32_t old = p->segs, n = p->segs + p->fresh_n;
    for (uint32_t i = 0; i < n; i++)
        total += (i < old ? p->seg[i] : p->fresh[i - old])->bytes_next;
    for (uint32_t i = 0; i + 1 < n; i++) {
        struct segment *s = i < old ? p->seg[i] : p->fresh[i - old];
        int64_t next = (i + 1 < old ? p->seg[i + 1] : p->fresh[i + 1 - old])->base;
        if (next > p->next.begin && total - s->bytes_next < keep)
            break;
        total -= s->bytes_next;
        if (next > p->next.begin)
            p->next.begin = next;
    }
}

/* Begins a segment. When somebody has removed the directory it is made again: what was in it is
 * lost and readers are told, but commits of all other topics must go on. */
static int roll(struct part *p) {
    struct segments *ss = p->topic->segments;
    part_close(p);
    int rc = part_open(p, p->next.end, O_RDWR | O_CREAT | O_TRUNC);
    if (rc == -ENOENT && (rc = topic_make(p->topic, true)) == 0)
        rc = part_open(p, p->next.end, O_RDWR | O_CREAT | O_TRUNC);
    if (rc)
        return rc;
    p->active = segment_new(p->next.end, 0);
    p->active->prev = p->next.base;
    push(&p->fresh, &p->fresh_n, &p->fresh_cap, p->active);
    struct segment_head h;
    segment_head_make(&h, p, p->next.end, p->next.base);
    struct iovec v = { .iov_base = &h, .iov_len = sizeof h };
    rc = files_write(ss->files, p->fd, &v, 1, 0);
    if (rc)
        return rc;
    p->active->bytes_next = p->next.bytes = SEGMENT_HEAD;
    p->next.base = p->next.end;
    p->roll = false;
    retain(p);
    return 0;
}

static void touch(struct part *p) {
    if (p->touched)
        return;
    p->next = p->tail;
    p->from_base = p->tail.base;
    p->touched = true;
}

/* Whether a frame of `len` bytes begins a segment: the active one is full, damaged or not there;
 * its rows are old enough; or it has been trimmed and its file should go soon. */
static bool must_roll(const struct part *p, int64_t len) {
    int64_t limit = part_segment_bytes(p), keep_ms = p->topic->conf.retention_ms;
    if (!p->active || p->roll || p->next.base < 0)
        return true;
    if (keep_ms > 0 && p->next.bytes > SEGMENT_HEAD &&
        p->next.time_max - p->active->first_time >= keep_ms / RETENTION_SEGMENTS)
        return true;
    if (p->next.begin > p->next.base && limit > TRIM_BYTES)
        limit = TRIM_BYTES;
    return p->next.bytes > SEGMENT_HEAD && p->next.bytes + len > limit;
}

void part_trim(struct part *p, int64_t offset) {
    touch(p);
    if (offset > p->next.end)
        offset = p->next.end;
    if (offset > p->next.begin)
        p->next.begin = offset;
    /* Nothing is left and nothing was written by this group: the active file goes, too. */
    if (p->next.begin == p->next.end && p->next.end == p->tail.end && p->next.base >= 0) {
        p->next.base = -1;
        p->next.bytes = 0;
    }
}

uint32_t frame_flags(const struct log_buf *buf) {
    return (buf->key_end ? FRAME_KEYS : 0) | (buf->times ? FRAME_TIMES : 0) |
           (buf->header_end ? FRAME_HEADERS : 0);
}

int part_append(struct part *p, const struct log_buf *buf, int64_t time, struct frame *f,
                int64_t *at) {
    struct segments *ss = p->topic->segments;
    touch(p);
    p->used = ++ss->clock;
    if (time > p->next.time_max)
        p->next.time_max = time;
    *f = (struct frame){ .magic = FRAME_MAGIC,
                         .payload = buf->crc,
                         .flags = frame_flags(buf),
                         .n = buf->n,
                         .values_len = buf->values_len,
                         .keys_len = buf->key_end ? buf->keys_len : 0,
                         .topic = p->topic->id,
                         .first = p->next.end,
                         .time = time,
                         .time_max = p->next.time_max,
                         .partition = p->number,
                         .headers_len = buf->headers_len };
    f->crc = frame_crc(f);
    int64_t len = frame_bytes(f);
    int rc = 0;
    if (must_roll(p, len))
        rc = roll(p);
    else if (p->fd < 0 && (rc = part_open(p, p->next.base, O_RDWR)) == -ENOENT)
        rc = roll(p); /* its file is gone */
    if (rc)
        return rc;
    struct iovec v[FRAME_VECTORS];
    *at = p->next.bytes;
    rc = files_write(ss->files, p->fd, v, frame_vectors(f, buf, v), p->next.bytes);
    if (rc)
        return rc;
    if (*at == SEGMENT_HEAD)
        p->active->first_time = f->time_max;
    p->next.bytes += len;
    p->next.end += buf->n;
    p->active->bytes_next = p->next.bytes;
    return 0;
}

/* Takes the first `n` segments out of the list and lets go of them. */
static void forget(struct part *p, uint32_t n, part_drop *drop, void *arg) {
    for (; n > 0; n--) {
        pthread_mutex_lock(&p->mu);
        struct segment *s = p->seg[0];
        memmove(p->seg, p->seg + 1, --p->segs * sizeof *p->seg);
        pthread_mutex_unlock(&p->mu);
        drop(arg, p, s->base);
        segment_unref(s);
    }
}

void part_publish(struct part *p, part_drop *drop, void *arg) {
    p->touched = false;
    p->tail = p->next;
    pthread_mutex_lock(&p->mu);
    uint32_t first = p->segs > 0 ? p->segs - 1 : 0; /* the one that was active */
    for (uint32_t i = 0; i < p->fresh_n; i++)
        push(&p->seg, &p->segs, &p->segs_cap, p->fresh[i]);
    p->fresh_n = 0;
    for (uint32_t i = first; i + 1 < p->segs; i++)
        atomic_store_explicit(&p->seg[i]->end, p->seg[i + 1]->base, memory_order_release);
    for (uint32_t i = first; i < p->segs; i++)
        atomic_store_explicit(&p->seg[i]->bytes, p->seg[i]->bytes_next, memory_order_release);
    uint32_t gone = 0;
    while (gone + 1 < p->segs && p->seg[gone + 1]->base <= p->tail.begin)
        gone++;
    if (p->tail.base < 0 && p->segs) { /* all of it */
        atomic_store_explicit(&p->seg[gone++]->end, p->tail.end, memory_order_release);
        p->active = NULL;
        p->roll = false;
        part_close(p);
    }
    pthread_mutex_unlock(&p->mu);
    /* In this order: nobody sees a begin beyond the end. */
    atomic_store_explicit(&p->end, p->tail.end, memory_order_release);
    atomic_store_explicit(&p->begin, p->tail.begin, memory_order_release);
    forget(p, gone, drop, arg);
}

void part_swap(struct part *p, struct segment *old, struct segment *new) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX], tmp[FILES_PATH_MAX];
    uint32_t i = 0;
    if (segment_path(p, old->base, path) || segment_tmp_path(p, old->base, tmp))
        return;
    while (i < p->segs && p->seg[i] != old)
        i++;
    if (p->topic->deleted || i + 1 >= p->segs) { /* given up meanwhile */
        f->unlink(f->ctx, tmp);
        return;
    }
    pthread_mutex_lock(&p->mu);
    if (!f->rename(f->ctx, tmp, path)) {
        new->end = old->end;
        new->refs++;
        p->seg[i] = new;
        segment_unref(old);
    }
    pthread_mutex_unlock(&p->mu);
}

/* Errors are without effect here: what remains behind the committed end is overwritten by the next
 * group or cut at the next open. */
void part_abort(struct part *p, bool cut) {
    struct segments *ss = p->topic->segments;
    const struct log_files *f = ss->files;
    char path[FILES_PATH_MAX];
    if (p->fresh_n) {
        part_close(p);
        for (uint32_t i = 0; i < p->fresh_n; i++) {
            if (cut && segment_path(p, p->fresh[i]->base, path) == 0)
                f->unlink(f->ctx, path);
            segment_unref(p->fresh[i]);
        }
        p->fresh_n = 0;
        struct segment *last = p->segs ? p->seg[p->segs - 1] : NULL;
        p->active = last && last->base == p->tail.base ? last : NULL;
        p->roll = p->active && p->active->bytes < p->tail.bytes;
    }
    if (p->active && !p->roll) {
        p->active->bytes_next = p->active->bytes;
        if (cut && p->fd < 0)
            part_open(p, p->active->base, O_RDWR);
        if (cut && p->fd >= 0)
            f->truncate(f->ctx, p->fd, p->tail.bytes);
    }
    p->touched = false;
}
