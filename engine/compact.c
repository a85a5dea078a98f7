/* Compaction of a topic (janitor thread): in its closed segments the last record of each key stays,
 * as in Kafka's log cleaner (Kafka documentation, 4.8). One pass reads the segments behind the
 * point that it got to before, keeps the last offset of each of their keys in a table, and rewrites
 * every segment up to there that holds a record with a later one. Records without a key stay.
 *
 * A rewritten segment has the old one's name and offsets; where records went, its frames have gaps.
 * It is written and synced beside the old one, then renamed over it: at any moment the file is one
 * or the other. Readers of the old one go on with its mapping.
 *
 * Keys are compared by 128 bits of hash: two of a billion different keys have the same one with
 * probability 1e-21. */
#include "engine/clock.h"
#include "engine/local.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { KEYS_MAX = 2 << 20 }; /* in the table: 24 bytes each, in at most twice as many slots */

struct last { /* of a key */
    uint64_t hi, lo;
    int64_t offset; /* -1: free */
};
struct table {
    struct last *slot;
    uint32_t n, slots;
};
struct pass {
    struct local *l;
    struct part *p;
    struct segment **seg; /* closed ones, a reference each */
    uint32_t n;
    struct table keys;
    int64_t end;       /* records before it are in the table, or have been in an earlier one */
    int64_t expired;   /* tombstones appended before this go */
    int64_t tombstone; /* append time of the oldest that stays, INT64_MAX: none */
};

/* ---- keys ---- */

static struct last *find(const struct table *t, const char *key, uint32_t len) {
    XXH128_hash_t h = XXH3_128bits(key, len);
    for (uint64_t i = h.low64 & (t->slots - 1);; i = (i + 1) & (t->slots - 1)) {
        struct last *s = &t->slot[i];
        if (s->offset >= 0 && (s->hi != h.high64 || s->lo != h.low64))
            continue;
        s->hi = h.high64;
        s->lo = h.low64;
        return s;
    }
}

static void table_grow(struct table *t) {
    struct table old = *t;
    t->slots = old.slots ? 2 * old.slots : 1024;
    t->slot = malloc(t->slots * sizeof *t->slot);
    if (!t->slot)
        abort();
    memset(t->slot, 0xff, t->slots * sizeof *t->slot);
    for (uint32_t i = 0; i < old.slots; i++) {
        uint64_t k = old.slot[i].lo & (t->slots - 1);
        if (old.slot[i].offset < 0)
            continue;
        while (t->slot[k].offset >= 0)
            k = (k + 1) & (t->slots - 1);
        t->slot[k] = old.slot[i];
    }
    free(old.slot);
}

/* False when there is no room for another key. */
static bool table_put(struct table *t, const char *key, uint32_t len, int64_t offset) {
    if (2 * t->n >= t->slots)
        table_grow(t);
    struct last *s = find(t, key, len);
    if (s->offset < 0 && t->n == KEYS_MAX)
        return false;
    t->n += s->offset < 0;
    s->offset = offset;
    return true;
}

/* ---- frames of a closed segment ---- */

struct cursor {
    const struct segment *s;
    char *p; /* its file */
    size_t len;
    int64_t at, next; /* byte, offset */
    const struct frame *f;
    struct log_rows rows;
    const uint32_t *offsets;
};

static int cursor_open(const struct part *p, const struct segment *s, struct cursor *c) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    void *map = NULL;
    *c = (struct cursor){ .s = s, .len = (size_t)s->bytes, .at = SEGMENT_HEAD, .next = s->base };
    int rc = segment_path(p, s->base, path);
    int fd = rc ? rc : f->open(f->ctx, path, O_RDONLY);
    if (fd < 0)
        return fd;
    int64_t size = f->size(f->ctx, fd);
    rc = size < (int64_t)c->len || c->len <= SEGMENT_HEAD ? -EIO : f->map(f->ctx, fd, c->len, &map);
    f->close(f->ctx, fd);
    c->p = map;
    return rc;
}

static void cursor_close(const struct part *p, struct cursor *c) {
    if (c->p)
        p->topic->segments->files->unmap(p->topic->segments->files->ctx, c->p, c->len);
}

/* The next frame, verified: 1; 0 at the end of the segment; -EIO: it is damaged. */
static int cursor_next(const struct part *p, struct cursor *c) {
    if (c->next == c->s->end)
        return 0;
    int64_t left = (int64_t)c->len - c->at;
    const struct frame *f = c->f = (const struct frame *)(c->p + c->at);
    if (left < (int64_t)sizeof *f || !frame_head_ok(f) || f->topic != p->topic->id ||
        f->partition != p->number || f->first != c->next)
        return -EIO;
    if (f->flags & FRAME_GAPS &&
        (left < (int64_t)(sizeof *f + sizeof(struct frame_gaps)) || !frame_gaps_ok(f)))
        return -EIO;
    if (left < frame_bytes(f) || frame_end(f) > c->s->end || !frame_rows(f, &c->rows))
        return -EIO;
    c->offsets = frame_offsets(f);
    c->next = frame_end(f);
    c->at += frame_bytes(f);
    return 1;
}

static int64_t row_offset(const struct cursor *c, uint32_t i) {
    return c->f->first + (c->offsets ? c->offsets[i] : i);
}

/* Its key, or NULL. */
static const char *row_key(const struct cursor *c, uint32_t i, uint32_t *len) {
    const uint32_t *end = c->rows.key_end;
    if (!end || end[i] & LOG_NULL)
        return NULL;
    uint32_t at = log_end(end, (int64_t)i - 1);
    *len = end[i] - at;
    return c->rows.keys + at;
}

/* ---- reading ---- */

static int read_keys(struct pass *x, const struct segment *s, bool *full) {
    struct cursor c;
    int rc = cursor_open(x->p, s, &c);
    for (int more; !rc && !*full && (more = cursor_next(x->p, &c)) != 0;) {
        if (more < 0) {
            rc = more;
            break;
        }
        for (uint32_t i = 0; i < c.rows.n && !*full; i++) {
            uint32_t len;
            const char *key = row_offset(&c, i) < x->p->clean ? NULL : row_key(&c, i, &len);
            *full = key && !table_put(&x->keys, key, len, row_offset(&c, i));
            x->end = *full ? row_offset(&c, i) : x->end;
        }
        if (!*full)
            x->end = c.next;
    }
    cursor_close(x->p, &c);
    return rc;
}

/* ---- writing ---- */

static bool stays(struct pass *x, const struct cursor *c, uint32_t i) {
    uint32_t len;
    int64_t offset = row_offset(c, i);
    const char *key = row_key(c, i, &len);
    if (!key || offset >= x->end)
        return true;
    if (x->keys.slots && find(&x->keys, key, len)->offset > offset)
        return false;
    if (!(c->rows.value_end[i] & LOG_NULL))
        return true;
    if (c->rows.time < x->expired)
        return false;
    if (c->rows.time < x->tombstone)
        x->tombstone = c->rows.time;
    return true;
}

struct output {
    const struct log_files *files;
    int fd;
    int64_t at;
};

static int put_frame(struct output *o, const struct frame *f, const struct frame_gaps *g,
                     const uint32_t *offset, const struct log_buf *buf) {
    static const char zeros[8];
    struct iovec v[FRAME_VECTORS + 4], rest[FRAME_VECTORS];
    size_t len = (size_t)f->n * 4, pad = (size_t)pad8((int64_t)len) - len;
    int n = 0, m = frame_vectors(f, buf, rest);
    v[n++] = rest[0]; /* the header */
    v[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)g, .iov_len = sizeof *g };
    if (len)
        v[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)offset, .iov_len = len };
    if (pad)
        v[n++] = (struct iovec){ .iov_base = (void *)(uintptr_t)zeros, .iov_len = pad };
    for (int i = 1; i < m; i++)
        v[n++] = rest[i];
    int rc = files_write(o->files, o->fd, v, n, o->at);
    o->at += frame_bytes(f);
    return rc;
}

/* The rows of the frame that stay, in one with gaps that stands for the same offsets. */
static int rewrite_frame(struct output *o, const struct cursor *c, const uint32_t *row, uint32_t n,
                         uint32_t *offset) {
    struct log_buf *buf = log_buf_new();
    struct frame f = *c->f;
    struct frame_gaps g;
    for (uint32_t i = 0; i < n; i++) {
        log_buf_copy(buf, &c->rows, row[i]);
        offset[i] = (uint32_t)(row_offset(c, row[i]) - f.first);
    }
    log_buf_seal(buf);
    f.n = n;
    f.flags = frame_flags(buf);
    f.payload = buf->crc;
    f.values_len = buf->values_len;
    f.keys_len = buf->key_end ? buf->keys_len : 0;
    f.headers_len = buf->headers_len;
    frame_gaps_make(&f, &g, frame_end(c->f), offset);
    int rc = put_frame(o, &f, &g, offset, buf);
    log_buf_unref(buf);
    return rc;
}

/* All frames of the segment; *dropped rows went. */
static int write_frames(struct pass *x, struct cursor *c, struct output *o, uint64_t *dropped) {
    uint32_t *row = NULL, cap = 0;
    int rc;
    while ((rc = cursor_next(x->p, c)) > 0) {
        uint32_t n = 0;
        if (2 * (uint64_t)c->rows.n > cap) {
            cap = 2 * c->rows.n;
            row = realloc(row, cap * sizeof *row);
            if (!row)
                abort();
        }
        for (uint32_t i = 0; i < c->rows.n; i++)
            if (stays(x, c, i))
                row[n++] = i;
        *dropped += c->rows.n - n;
        struct iovec whole = { .iov_base = c->p + c->at - frame_bytes(c->f),
                               .iov_len = (size_t)frame_bytes(c->f) };
        if (n == c->rows.n) {
            rc = files_write(o->files, o->fd, &whole, 1, o->at);
            o->at += (int64_t)whole.iov_len;
        } else {
            rc = rewrite_frame(o, c, row, n, row + c->rows.n);
        }
        if (rc)
            break;
    }
    free(row);
    return rc;
}

static int write_file(struct pass *x, const struct segment *s, struct cursor *c, const char *path,
                      int64_t *bytes, uint64_t *dropped) {
    const struct log_files *f = x->p->topic->segments->files;
    struct output o = { .files = f, .at = SEGMENT_HEAD };
    struct segment_head h;
    o.fd = f->open(f->ctx, path, O_RDWR | O_CREAT | O_TRUNC);
    if (o.fd < 0)
        return o.fd;
    segment_head_make(&h, x->p, s->base, s->prev);
    segment_head_compacted(&h, x->end);
    struct iovec v = { .iov_base = &h, .iov_len = sizeof h };
    int rc = files_write(f, o.fd, &v, 1, 0);
    if (!rc)
        rc = write_frames(x, c, &o, dropped);
    if (!rc && *dropped)
        rc = f->datasync(f->ctx, o.fd);
    f->close(f->ctx, o.fd);
    *bytes = o.at;
    return rc;
}

/* Hands the new file to the committer. */
static void hand_over(struct pass *x, struct segment *s, int64_t bytes, const char *path) {
    struct swap *w = malloc(sizeof *w);
    if (!w)
        abort();
    *w = (struct swap){ x->p, s, segment_new(s->base, bytes) };
    w->new->prev = s->prev;
    w->new->clean = x->end;
    s->refs++;
    topic_ref(x->p->topic);
    pthread_mutex_lock(&x->l->mu);
    bool stop = x->l->stop_commits;
    if (!stop)
        committer_swap(x->l, w);
    pthread_mutex_unlock(&x->l->mu);
    if (stop) {
        x->l->files->unlink(x->l->files->ctx, path);
        swap_drop(w);
    }
}

/* 1: some row of the segment goes. */
static int any_goes(struct pass *x, const struct segment *s) {
    struct cursor c;
    int rc = cursor_open(x->p, s, &c);
    bool goes = false;
    for (int more; !rc && !goes && (more = cursor_next(x->p, &c)) != 0;) {
        rc = more < 0 ? more : 0;
        for (uint32_t i = 0; !rc && i < c.rows.n && !goes; i++)
            goes = !stays(x, &c, i);
    }
    cursor_close(x->p, &c);
    return rc < 0 ? rc : goes;
}

static int rewrite(struct pass *x, struct segment *s) {
    const struct log_files *f = x->p->topic->segments->files;
    char path[FILES_PATH_MAX];
    struct cursor c;
    int64_t bytes;
    uint64_t dropped = 0;
    int rc = any_goes(x, s);
    if (rc <= 0)
        return rc;
    rc = cursor_open(x->p, s, &c);
    if (!rc)
        rc = segment_tmp_path(x->p, s->base, path);
    if (!rc) {
        rc = write_file(x, s, &c, path, &bytes, &dropped);
        if (!rc && dropped)
            hand_over(x, s, bytes, path);
        else
            f->unlink(f->ctx, path);
    }
    cursor_close(x->p, &c);
    return rc;
}

/* ---- a pass ---- */

/* Whether somebody waits for the janitor, or the log closes. */
static bool interrupted(struct local *l) {
    pthread_mutex_lock(&l->mu);
    bool stop = l->want_snapshot || l->stop_commits;
    pthread_mutex_unlock(&l->mu);
    return stop;
}

static void take_segments(struct pass *x) {
    struct part *p = x->p;
    pthread_mutex_lock(&p->mu);
    uint32_t n = p->segs ? p->segs - 1 : 0;
    x->seg = malloc((n + 1) * sizeof(struct segment *));
    if (!x->seg)
        abort();
    for (; x->n < n; x->n++) {
        x->seg[x->n] = p->seg[x->n];
        x->seg[x->n]->refs++;
    }
    pthread_mutex_unlock(&p->mu);
    if (p->clean >= 0)
        return;
    /* After a restart, from the headers: all before this has been compared. */
    p->clean = x->n ? x->seg[x->n - 1]->end : 0;
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t to = x->seg[i]->clean < 0 ? x->seg[i]->base : x->seg[i]->clean;
        p->clean = to < p->clean ? to : p->clean;
    }
}

/* Enough is new to be worth rewriting what is old, or a tombstone's time has come. */
static bool worth_it(const struct pass *x) {
    int64_t old = 0, new = 0;
    for (uint32_t i = 0; i < x->n; i++)
        *(x->seg[i]->end <= x->p->clean ? &old : &new) += x->seg[i]->bytes;
    return (new > 0 && new >= old) || (x->n && x->p->tombstone < x->expired);
}

static void run_pass(struct pass *x) {
    bool full = false;
    int rc = 0;
    x->end = x->p->clean;
    for (uint32_t i = 0; i < x->n && !rc && !full; i++)
        if (x->seg[i]->end > x->p->clean) {
            rc = interrupted(x->l) ? -EINTR : read_keys(x, x->seg[i], &full);
        }
    for (uint32_t i = 0; i < x->n && !rc && x->seg[i]->base < x->end; i++)
        rc = interrupted(x->l) ? -EINTR : rewrite(x, x->seg[i]);
    /* A segment that could not be rewritten keeps its old records: the tombstones behind it stay,
     * and the next pass begins where this one did. */
    if (rc)
        return;
    x->p->clean = x->end;
    x->p->tombstone = x->tombstone;
}

void compact_part(struct local *l, struct part *p) {
    struct pass x = {
        .l = l, .p = p, .expired = clock_wall_ms() - l->tombstone_ms, .tombstone = INT64_MAX
    };
    take_segments(&x);
    if (worth_it(&x))
        run_pass(&x);
    pthread_mutex_lock(&p->mu);
    while (x.n)
        segment_unref(x.seg[--x.n]);
    pthread_mutex_unlock(&p->mu);
    free(x.seg);
    free(x.keys.slot);
}
