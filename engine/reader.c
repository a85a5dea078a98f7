#include "engine/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mapped beyond the end of a growing file, so that an active segment is rarely mapped anew. */
enum { MAP_SLACK = 64 << 20 };

struct reader {
    struct log_reader base;
    struct part *part;
    struct segment *seg; /* NULL: to be found from `offset` */
    struct map *map;
    int64_t at;     /* byte of the current frame */
    int64_t offset; /* next record */
    bool have;      /* `rows` is the verified frame at `at` */
    struct log_rows rows;
    int64_t first, end, frame_len; /* offsets that it stands for; its bytes */
    const uint32_t *offsets;       /* of its rows, counted from `first`; NULL: without gaps */
    uint32_t *scratch;             /* ends of a part of a frame, counted from its first byte */
    uint32_t scratch_cap;
};

void map_unref(struct map *m) {
    if (!m || --m->refs > 0)
        return;
    m->files->unmap(m->files->ctx, m->p, m->len);
    free(m);
}

void segment_unref(struct segment *s) {
    if (--s->refs > 0)
        return;
    map_unref(s->map);
    free(s->mark);
    free(s);
}

/* Under part->mu. The reader on `s` goes; the last one takes the mapping along, because the page
 * tables of everything ever read would add up. */
static void segment_leave(struct segment *s) {
    if (s->refs == 2) {
        map_unref(s->map);
        s->map = NULL;
    }
    segment_unref(s);
}

/* Under part->mu. A mapping of at least `bytes` bytes, which the file has. */
static struct map *segment_map(struct part *p, struct segment *s, int64_t bytes, int *rc) {
    if (s->map && (int64_t)s->map->len >= bytes) {
        s->map->refs++;
        return s->map;
    }
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    *rc = segment_path(p, s->base, path);
    if (*rc)
        return NULL;
    int fd = f->open(f->ctx, path, O_RDONLY);
    if (fd < 0) {
        *rc = fd;
        return NULL;
    }
    bool sealed = p->segs && p->seg[p->segs - 1] != s;
    struct map *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    m->files = f;
    m->len = (size_t)bytes + (sealed ? 0 : MAP_SLACK);
    m->refs = 2;
    void *addr = NULL;
    *rc = f->map(f->ctx, fd, m->len, &addr);
    f->close(f->ctx, fd);
    if (*rc) {
        free(m);
        return NULL;
    }
    m->p = addr;
    map_unref(s->map);
    s->map = m;
    return m;
}

/* ---- frames of a segment ---- */

/* The whole, plausible frame header at `at`, or NULL. */
static const struct frame *frame_at(const struct part *p, const struct segment *s,
                                    const struct map *m, int64_t at, int64_t bytes, int64_t min) {
    if (at + (int64_t)sizeof(struct frame) > bytes)
        return NULL;
    const struct frame *f = (const struct frame *)(m->p + at);
    if (f->magic != FRAME_MAGIC || !frame_head_ok(f))
        return NULL;
    if (f->flags & FRAME_GAPS &&
        (at + (int64_t)(sizeof *f + sizeof(struct frame_gaps)) > bytes || !frame_gaps_ok(f)))
        return NULL;
    if (f->topic != p->topic->id || f->partition != p->number || f->first < min ||
        frame_end(f) > atomic_load_explicit(&s->end, memory_order_acquire))
        return NULL;
    return at + frame_bytes(f) <= bytes ? f : NULL;
}

/* Behind a damaged header: the next good one; its byte or `bytes`. */
static int64_t resync(const struct part *p, const struct segment *s, const struct map *m,
                      int64_t at, int64_t bytes, int64_t min) {
    for (at += 8; at + (int64_t)sizeof(struct frame) <= bytes; at += 8)
        if (frame_at(p, s, m, at, bytes, min))
            return at;
    return bytes;
}

static void mark_add(struct segment *s, int64_t offset, int64_t at, int64_t time_max) {
    if (s->marks && at - s->mark[s->marks - 1].at < INDEX_STEP)
        return;
    if (s->marks == s->marks_cap) {
        s->marks_cap = s->marks_cap ? 2 * s->marks_cap : 16;
        s->mark = realloc(s->mark, s->marks_cap * sizeof *s->mark);
        if (!s->mark)
            abort();
    }
    s->mark[s->marks++] = (struct mark){ offset, at, time_max };
}

/* Under part->mu: brings the index up to date. Every frame header is read once, so this costs a
 * page fault each for frames of a page or more; it happens on the first seek into a segment only,
 * reading on needs no index. Damaged headers are passed over. */
static void segment_scan(struct part *p, struct segment *s, const struct map *m, int64_t bytes) {
    while (s->scanned < bytes) {
        const struct frame *f = frame_at(p, s, m, s->scanned, bytes, s->scanned_offset);
        if (!f) {
            s->scanned = resync(p, s, m, s->scanned, bytes, s->scanned_offset);
            continue;
        }
        mark_add(s, f->first, s->scanned, f->time_max);
        s->scanned += frame_bytes(f);
        s->scanned_offset = frame_end(f);
    }
}

/* The last mark at or before `offset`; or NULL. */
static const struct mark *mark_offset(const struct segment *s, int64_t offset) {
    uint32_t lo = 0, hi = s->marks;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->mark[mid].offset <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? &s->mark[lo - 1] : NULL;
}

/* The last mark whose time_max is before `ms`; or NULL. */
static const struct mark *mark_time(const struct segment *s, int64_t ms) {
    uint32_t lo = 0, hi = s->marks;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->mark[mid].time_max < ms)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? &s->mark[lo - 1] : NULL;
}

/* The byte of the frame that holds `offset`, or of the damage where it was. */
static int64_t segment_find(struct part *p, struct segment *s, const struct map *m, int64_t bytes,
                            int64_t offset) {
    if (offset == s->base)
        return SEGMENT_HEAD;
    segment_scan(p, s, m, bytes);
    const struct mark *k = mark_offset(s, offset);
    int64_t at = k ? k->at : SEGMENT_HEAD, min = s->base;
    while (at < bytes) {
        const struct frame *f = frame_at(p, s, m, at, bytes, min);
        if (!f) {
            int64_t next = resync(p, s, m, at, bytes, min);
            f = next < bytes ? frame_at(p, s, m, next, bytes, min) : NULL;
            if (!f || f->first > offset)
                return at;
            at = next;
        }
        if (offset < frame_end(f))
            return at;
        min = frame_end(f);
        at += frame_bytes(f);
    }
    return bytes;
}

/* ---- segments of a partition ---- */

/* Under part->mu: index of the last segment whose base is <= offset, or -1. */
static int64_t part_find(const struct part *p, int64_t offset) {
    uint32_t lo = 0, hi = p->segs;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p->seg[mid]->base <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (int64_t)lo - 1;
}

int64_t part_bytes(struct part *p) {
    int64_t sum = 0;
    pthread_mutex_lock(&p->mu);
    for (uint32_t i = 0; i < p->segs; i++)
        sum += p->seg[i]->bytes;
    pthread_mutex_unlock(&p->mu);
    return sum;
}

/* Under part->mu: the first offset of segment `s` at or after `ms`, or -1. */
static int64_t segment_time(struct part *p, struct segment *s, int64_t ms) {
    int64_t bytes = s->bytes, found = -1, min = s->base;
    int rc = 0;
    struct map *m = segment_map(p, s, bytes, &rc);
    if (!m)
        return -1;
    segment_scan(p, s, m, bytes);
    const struct mark *k = mark_time(s, ms);
    for (int64_t at = k ? k->at : SEGMENT_HEAD; at < bytes && found < 0;) {
        const struct frame *f = frame_at(p, s, m, at, bytes, min);
        if (!f) {
            at = resync(p, s, m, at, bytes, min);
            continue;
        }
        if (f->time_max >= ms)
            found = f->first;
        min = frame_end(f);
        at += frame_bytes(f);
    }
    map_unref(m);
    if (s->refs == 1) {
        map_unref(s->map);
        s->map = NULL;
    }
    return found;
}

/* Under part->mu: time_max of the first frame, INT64_MIN when it cannot be read. */
static int64_t segment_first_time(struct part *p, struct segment *s) {
    if (s->marks)
        return s->mark[0].time_max;
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    struct frame h;
    if (segment_path(p, s->base, path))
        return INT64_MIN;
    int fd = f->open(f->ctx, path, O_RDONLY);
    if (fd < 0)
        return INT64_MIN;
    int rc = files_read(f, fd, &h, sizeof h, SEGMENT_HEAD);
    f->close(f->ctx, fd);
    return !rc && frame_head_ok(&h) ? h.time_max : INT64_MIN;
}

int64_t part_offset_at(struct part *p, int64_t ms) {
    int64_t found = -1;
    pthread_mutex_lock(&p->mu);
    uint32_t lo = 0, hi = p->segs; /* the first segment that begins at or after ms */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (segment_first_time(p, p->seg[mid]) < ms)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo > 0)
        found = segment_time(p, p->seg[lo - 1], ms);
    if (found < 0 && lo < p->segs)
        found = p->seg[lo]->base;
    pthread_mutex_unlock(&p->mu);
    int64_t begin = p->begin; /* may lie inside of a segment */
    return found < 0 ? p->end : found < begin ? begin : found;
}

/* ---- readers ---- */

struct log_reader *reader_new(const struct log_driver *d, struct part *p, int64_t offset) {
    struct reader *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    r->base.driver = d;
    r->part = p;
    r->offset = offset;
    topic_ref(p->topic);
    return &r->base;
}

static void reader_leave(struct reader *r) {
    if (!r->seg)
        return;
    map_unref(r->map);
    pthread_mutex_lock(&r->part->mu);
    segment_leave(r->seg);
    pthread_mutex_unlock(&r->part->mu);
    r->seg = NULL;
    r->map = NULL;
    r->have = false;
}

void reader_close(struct log_reader *lr) {
    struct reader *r = (struct reader *)lr;
    reader_leave(r);
    topic_unref(r->part->topic);
    free(r->scratch);
    free(r);
}

static int position_check(const struct reader *r, int64_t offset, struct err *e) {
    const struct part *p = r->part;
    if (p->topic->deleted)
        return err_set(e, ERR_NOTFOUND, "topic %s has been deleted", p->topic->name);
    int64_t begin = atomic_load_explicit(&p->begin, memory_order_acquire);
    if (offset < begin)
        return err_set(e, ERR_NOTFOUND,
                       "offset %" PRId64 " of topic %s is no longer kept: it begins at %" PRId64,
                       offset, p->topic->name, begin);
    return 0;
}

int reader_seek(struct log_reader *lr, int64_t offset, struct err *e) {
    struct reader *r = (struct reader *)lr;
    int rc = position_check(r, offset, e);
    if (rc)
        return rc;
    if (offset > r->part->end)
        return err_set(e, ERR_INPUT, "offset %" PRId64 " is beyond the end %" PRId64 " of topic %s",
                       offset, (int64_t)r->part->end, r->part->topic->name);
    if (r->have && offset >= r->first && offset < r->end) {
        r->offset = offset;
        return 0;
    }
    reader_leave(r);
    r->offset = offset;
    return 0;
}

/* Reports the loss of `offset` up to before `resume`. */
static int lost(const struct reader *r, int64_t base, int64_t at, int64_t resume, const char *what,
                int64_t *offset, struct err *e) {
    const struct part *p = r->part;
    char path[FILES_PATH_MAX] = "";
    *offset = resume;
    segment_path(p, base, path);
    int rc = err_set(e, ERR_SYSTEM,
                     "topic %s: %s at byte %" PRId64 " of %.400s; offsets %" PRId64 " to %" PRId64
                     " are lost, %" PRId64 " is the next that can be read",
                     p->topic->name, what, at, path, r->offset, resume - 1, resume);
    if (e) {
        snprintf(e->file, sizeof e->file, "%.255s", path);
        e->offset = (long)at;
    }
    return rc;
}

/* Under part->mu: moves to the segment that holds r->offset. 0, or -1 with the gap's end. */
static int reader_enter(struct reader *r, int64_t *resume, int *sys) {
    struct part *p = r->part;
    int64_t i = part_find(p, r->offset);
    struct segment *s = i < 0 ? NULL : p->seg[i];
    if (!s) {
        *resume = p->segs ? p->seg[0]->base : (int64_t)p->end;
        return -1;
    }
    int64_t bytes = atomic_load_explicit(&s->bytes, memory_order_acquire);
    struct map *m = bytes > SEGMENT_HEAD ? segment_map(p, s, bytes, sys) : NULL;
    int64_t at = m ? segment_find(p, s, m, bytes, r->offset) : bytes;
    if (at >= bytes) { /* its frames end before */
        map_unref(m);
        *resume = i + 1 < p->segs ? p->seg[i + 1]->base : (int64_t)p->end;
        if (s->refs == 1 && s->map) {
            map_unref(s->map);
            s->map = NULL;
        }
        return -1;
    }
    s->refs++;
    r->seg = s;
    r->map = m;
    r->at = at;
    return 0;
}

/* Finds the segment of r->offset (below the committed end). 0 or an error. */
static int reader_locate(struct reader *r, int64_t *offset, struct err *e) {
    int64_t resume = 0;
    int sys = 0;
    pthread_mutex_lock(&r->part->mu);
    int rc = reader_enter(r, &resume, &sys);
    int64_t i = part_find(r->part, r->offset);
    int64_t base = i < 0 ? r->offset : r->part->seg[i]->base;
    pthread_mutex_unlock(&r->part->mu);
    if (!rc)
        return 0;
    if (sys && sys != -ENOENT) {
        *offset = resume;
        return err_errno(e, -sys, "cannot read topic %s", r->part->topic->name);
    }
    /* Retention may have passed in between. */
    rc = position_check(r, r->offset, e);
    return rc ? rc : lost(r, base, 0, resume, "a segment is missing or short", offset, e);
}

/* The frame at r->at, verified; r->offset lies in it. */
static int reader_frame(struct reader *r, int64_t *offset, struct err *e) {
    struct part *p = r->part;
    int64_t bytes = atomic_load_explicit(&r->seg->bytes, memory_order_acquire);
    int rc = 0;
    if ((int64_t)r->map->len < bytes) {
        pthread_mutex_lock(&p->mu);
        struct map *m = segment_map(p, r->seg, bytes, &rc);
        pthread_mutex_unlock(&p->mu);
        if (!m)
            return err_errno(e, -rc, "cannot map a segment of topic %s", p->topic->name);
        map_unref(r->map);
        r->map = m;
    }
    const struct frame *f = frame_at(p, r->seg, r->map, r->at, bytes, r->seg->base);
    if (f && r->offset >= f->first && r->offset < frame_end(f)) {
        if (!frame_rows(f, &r->rows))
            return lost(r, r->seg->base, r->at, frame_end(f), "a checksum does not match", offset,
                        e);
        r->first = f->first;
        r->end = frame_end(f);
        r->offsets = frame_offsets(f);
        r->frame_len = frame_bytes(f);
        r->have = true;
        return 0;
    }
    int64_t next = f ? r->at : resync(p, r->seg, r->map, r->at, bytes, r->offset);
    f = next < bytes ? frame_at(p, r->seg, r->map, next, bytes, r->offset) : NULL;
    int64_t resume = f ? f->first : p->end;
    if (!f) {
        pthread_mutex_lock(&p->mu);
        int64_t i = part_find(p, r->seg->base);
        if (i >= 0 && i + 1 < p->segs)
            resume = p->seg[i + 1]->base;
        pthread_mutex_unlock(&p->mu);
    }
    return lost(r, r->seg->base, r->at, resume, "a frame header is damaged", offset, e);
}

static void rebase(uint32_t *out, const uint32_t *end, uint32_t n, uint32_t from) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = end[i] - from; /* LOG_NULL stays */
}

/* Ends k.. of the frame, counted anew from the first byte of row k; *bytes moves there. */
static const uint32_t *ends_from(uint32_t *scratch, const uint32_t *end, const char **bytes,
                                 uint32_t k, uint32_t n) {
    uint32_t from = end[k - 1] & ~LOG_NULL;
    rebase(scratch, end + k, n, from);
    *bytes += from;
    return scratch;
}

/* Rows k..k+n-1 of the frame. */
static void part_of_frame(struct reader *r, struct log_rows *rows, uint32_t k, uint32_t n) {
    rows->n = n;
    if (k == 0)
        return;
    if (r->scratch_cap < 3 * (size_t)n) {
        r->scratch_cap = 3 * n;
        r->scratch = realloc(r->scratch, r->scratch_cap * sizeof *r->scratch);
        if (!r->scratch)
            abort();
    }
    rows->value_end = ends_from(r->scratch, rows->value_end, &rows->values, k, n);
    if (rows->key_end)
        rows->key_end = ends_from(r->scratch + n, rows->key_end, &rows->keys, k, n);
    if (rows->header_end)
        rows->header_end =
            ends_from(r->scratch + 2 * (size_t)n, rows->header_end, &rows->headers, k, n);
    if (rows->times)
        rows->times += k;
}

/* The first row of the frame at or behind r->offset, and how many follow it without a gap. */
static uint32_t next_run(const struct reader *r, uint32_t *n) {
    const uint32_t *off = r->offsets;
    uint32_t at = (uint32_t)(r->offset - r->first), lo = 0, hi = r->rows.n;
    if (!off) {
        *n = r->rows.n - at;
        return at;
    }
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (off[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (*n = 0; lo + *n < r->rows.n && off[lo + *n] == off[lo] + *n;)
        ++*n;
    return lo;
}

/* The frame of r->offset, which is below the committed end. */
static int reader_have(struct reader *r, int64_t *offset, struct err *e) {
    if (r->seg && !r->have && r->offset >= atomic_load_explicit(&r->seg->end, memory_order_acquire))
        reader_leave(r);
    int rc = r->seg ? 0 : reader_locate(r, offset, e);
    return rc || r->have ? rc : reader_frame(r, offset, e);
}

int reader_read(struct log_reader *lr, uint32_t max, struct log_rows *rows, int64_t *offset,
                struct err *e) {
    struct reader *r = (struct reader *)lr;
    struct part *p = r->part;
    *offset = r->offset;
    int rc = position_check(r, r->offset, e);
    while (!rc && max && r->offset < atomic_load_explicit(&p->end, memory_order_acquire)) {
        if ((rc = reader_have(r, offset, e)))
            break;
        uint32_t n, k = next_run(r, &n), run = n;
        if (n > max)
            n = max;
        if (n > (uint32_t)INT32_MAX / 4)
            n = INT32_MAX / 4;
        if (n) {
            *rows = r->rows;
            part_of_frame(r, rows, k, n);
            *offset = r->first + (r->offsets ? r->offsets[k] : k);
            r->offset = *offset + n;
        }
        if (n == run && k + n == r->rows.n) { /* also the gap behind the last row */
            r->offset = r->end;
            r->have = false;
            r->at += r->frame_len;
        }
        if (n)
            return (int)n;
        *offset = r->offset;
    }
    return rc;
}
