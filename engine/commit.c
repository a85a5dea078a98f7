#include "engine/commit.h"
#include "engine/crc32c.h"
#include "engine/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int commit_path(const char *dir, uint64_t number, char path[FILES_PATH_MAX]) {
    int n = snprintf(path, FILES_PATH_MAX, "%s/%020" PRIu64 ".log", dir, number);
    return n < 0 || n >= FILES_PATH_MAX ? -ENAMETOOLONG : 0;
}

static uint32_t head_crc(const struct commit_head *h) {
    struct commit_head c = *h;
    c.crc = 0;
    return crc32c(0, &c, sizeof c);
}

void commit_frame_seal(struct commit_frame *f) {
    f->magic = COMMIT_FRAME_MAGIC;
    f->crc = crc32c(0, (char *)f + 8, sizeof *f - 8);
}

void commit_chunk_seal(struct commit_chunk *c) {
    c->magic = COMMIT_CHUNK_MAGIC;
    c->crc = crc32c(0, (char *)c + 8, sizeof *c - 8);
}

/* ---- writing ---- */

static int commit_create(struct commit_log *c) {
    const struct log_files *f = c->files;
    char path[FILES_PATH_MAX];
    int rc = commit_path(c->dir, c->number, path);
    if (rc)
        return rc;
    int fd = f->open(f->ctx, path, O_RDWR | O_CREAT | O_TRUNC);
    if (fd < 0)
        return fd;
    struct commit_head h = { .version = COMMIT_VERSION,
                             .number = c->number,
                             .durability = c->durability };
    memcpy(h.magic, COMMIT_MAGIC, sizeof h.magic);
    memcpy(h.boot, c->boot, sizeof h.boot);
    h.crc = head_crc(&h);
    struct iovec v = { .iov_base = &h, .iov_len = sizeof h };
    rc = files_write(f, fd, &v, 1, 0);
    if (!rc && c->durability == LOG_POWER) {
        rc = f->datasync(f->ctx, fd);
        if (!rc)
            rc = f->sync_dir(f->ctx, c->dir);
    }
    if (rc) {
        f->close(f->ctx, fd);
        f->unlink(f->ctx, path);
        return rc;
    }
    c->fd = fd;
    c->bytes = COMMIT_HEAD;
    return 0;
}

int commit_write(struct commit_log *c, struct iovec *iov, int n, int64_t len, bool *unknown) {
    const struct log_files *f = c->files;
    int rc = c->fd < 0 ? commit_create(c) : 0;
    if (rc)
        return rc;
    rc = files_write(f, c->fd, iov, n, c->bytes);
    if (!rc && c->durability == LOG_POWER)
        rc = f->datasync(f->ctx, c->fd);
    if (!rc) {
        c->bytes += len;
        return 0;
    }
    /* Only when the frame is gone for good is the group known to be refused. */
    int cut = f->truncate(f->ctx, c->fd, c->bytes);
    if (!cut && c->durability == LOG_POWER)
        cut = f->datasync(f->ctx, c->fd);
    *unknown = cut < 0;
    return rc;
}

void commit_seal(struct commit_log *c) {
    if (c->fd < 0)
        return;
    c->files->close(c->files->ctx, c->fd);
    c->fd = -1;
    c->number++;
    c->bytes = 0;
}

/* ---- reading ---- */

bool entry_next(const char **p, const char *end, struct entry *en) {
    uint32_t head[2];
    if (end - *p < 8)
        return false;
    memcpy(head, *p, 8);
    uint32_t vlen = head[1] == LOG_NULL ? 0 : head[1];
    if (head[0] == 0 || (uint64_t)head[0] + vlen > (uint64_t)(end - *p - 8))
        return false;
    en->klen = head[0];
    en->vlen = vlen;
    en->key = *p + 8;
    en->value = head[1] == LOG_NULL ? NULL : en->key + en->klen;
    *p += 8 + (size_t)en->klen + vlen;
    return true;
}

static int64_t commit_frame_bytes(const struct commit_frame *f) {
    return (int64_t)sizeof *f + pad8((int64_t)f->entries_len) + (int64_t)f->chunks_len;
}

static bool head_ok(const struct commit_frame *f) {
    return f->magic == COMMIT_FRAME_MAGIC && f->crc == crc32c(0, (char *)f + 8, sizeof *f - 8) &&
           f->first_no <= f->last_no && f->entries_len < (uint64_t)1 << 40 &&
           f->chunks_len < (uint64_t)1 << 40 && f->chunks_len % 8 == 0;
}

static bool chunks_ok(const char *p, const char *end) {
    while (p < end) {
        const struct commit_chunk *c = (const struct commit_chunk *)p;
        struct log_rows rows;
        if (end - p < (ptrdiff_t)(sizeof *c + sizeof(struct frame)))
            return false;
        if (c->magic != COMMIT_CHUNK_MAGIC || c->crc != crc32c(0, p + 8, sizeof *c - 8))
            return false;
        const struct frame *f = (const struct frame *)(c + 1);
        if (c->len > end - p - (ptrdiff_t)sizeof *c || !frame_head_ok(f) || f->flags & FRAME_GAPS ||
            frame_bytes(f) != c->len || f->topic != c->topic || f->partition != c->partition ||
            c->at < SEGMENT_HEAD || c->base < 0 || !frame_rows(f, &rows))
            return false;
        p += sizeof *c + (size_t)c->len;
    }
    return p == end;
}

static bool entries_ok(const char *p, uint64_t len) {
    const char *end = p + len;
    struct entry en;
    while (p < end)
        if (!entry_next(&p, end, &en))
            return false;
    return true;
}

/* The checked frame at `at`, or NULL. */
static const struct commit_frame *frame_at(const struct commit_file *cf, int64_t at) {
    if (at + (int64_t)sizeof(struct commit_frame) > cf->size)
        return NULL;
    const struct commit_frame *f = (const struct commit_frame *)(cf->p + at);
    if (!head_ok(f) || at + commit_frame_bytes(f) > cf->size)
        return NULL;
    const char *entries = (const char *)(f + 1);
    const char *chunks = entries + pad8((int64_t)f->entries_len);
    bool ok = f->entries == crc32c(0, entries, (size_t)(chunks - entries)) &&
              entries_ok(entries, f->entries_len) && chunks_ok(chunks, chunks + f->chunks_len);
    return ok ? f : NULL;
}

/* Whether what is at `at` can be the beginning of a frame whose write was cut short: a process that
 * is killed leaves a prefix, nothing else. */
static bool is_prefix(const struct commit_file *cf, int64_t at) {
    const struct commit_frame *f = (const struct commit_frame *)(cf->p + at);
    if (at + (int64_t)sizeof *f > cf->size)
        return true;
    return head_ok(f) && at + commit_frame_bytes(f) > cf->size;
}

/* Number of whole later frames behind the damage at `at`. */
static uint64_t frames_behind(const struct commit_file *cf, int64_t at) {
    uint64_t n = 0;
    for (at += 8; at + (int64_t)sizeof(struct commit_frame) <= cf->size; at += 8) {
        const struct commit_frame *f = frame_at(cf, at);
        if (!f || f->first_no <= cf->last_no)
            continue;
        n++;
        at += commit_frame_bytes(f) - 8;
    }
    return n;
}

static int damaged(const struct commit_file *cf, const char *path, uint64_t behind, struct err *e) {
    int rc = err_set(e, ERR_SYSTEM,
                     "the commit log is damaged: the record behind commit %" PRIu64
                     " does not match its checksum, %" PRIu64 " whole records follow; restore the "
                     "file, or give up all commits from there on with: truncate -s %" PRId64 " %s",
                     cf->last_no, behind, cf->bytes, path);
    if (e) {
        snprintf(e->file, sizeof e->file, "%.255s", path);
        e->offset = (long)cf->bytes;
    }
    return rc;
}

/* What is behind the last whole frame of the file: a torn write or damage? */
static int judge_tail(const struct commit_file *cf, const char *path, bool last, struct err *e) {
    if (cf->bytes == cf->size)
        return 0;
    uint64_t behind = frames_behind(cf, cf->bytes);
    bool torn = last && behind == 0 && is_prefix(cf, cf->bytes);
    /* The machine has restarted: blocks of an unsynced write may have reached the disk in any
     * order. `power` had at most one write under way, `process` any number. */
    if (!cf->same_boot)
        torn = cf->durability == LOG_PROCESS || (last && behind == 0);
    if (!torn)
        return damaged(cf, path, behind, e);
    err_set(e, 0,
            "%s: an unfinished write of %" PRId64 " bytes behind commit %" PRIu64
            " has been cut off",
            path, cf->size - cf->bytes, cf->last_no);
    return 0;
}

static int check_head(struct commit_file *cf, const char *path, const char *boot, bool last,
                      struct err *e) {
    const struct commit_head *h = (const struct commit_head *)cf->p;
    bool whole = cf->size >= COMMIT_HEAD && !memcmp(h->magic, COMMIT_MAGIC, sizeof h->magic) &&
                 h->crc == head_crc(h);
    if (whole && h->version != COMMIT_VERSION)
        return err_set(e, ERR_SYSTEM, "%s has format %" PRIu32 ", this program reads %d", path,
                       h->version, COMMIT_VERSION);
    if (whole && h->number == cf->number) {
        cf->durability = h->durability ? LOG_POWER : LOG_PROCESS;
        cf->same_boot = !memcmp(h->boot, boot, sizeof h->boot);
        cf->bytes = COMMIT_HEAD;
        return 0; /* last_at 0: the header itself */
    }
    /* A file that was being made when the process ended. */
    if (last && cf->size < COMMIT_HEAD + (int64_t)sizeof(struct commit_frame))
        return 0;
    return damaged(cf, path, frames_behind(cf, 0), e);
}

int commit_map(struct commit_file *cf, const struct log_files *files, const char *dir,
               uint64_t number, const char *boot, int64_t limit, bool last, struct err *e) {
    *cf = (struct commit_file){ .files = files, .number = number };
    char path[FILES_PATH_MAX];
    int rc = commit_path(dir, number, path);
    int fd = rc ? rc : files->open(files->ctx, path, O_RDONLY);
    if (fd < 0)
        return err_errno(e, -fd, "cannot open %s", path);
    cf->size = limit >= 0 ? limit : files->size(files->ctx, fd);
    void *p = NULL;
    if (cf->size < 0)
        rc = (int)cf->size;
    else if (cf->size > 0)
        rc = files->map(files->ctx, fd, (size_t)cf->size, &p);
    files->close(files->ctx, fd);
    if (rc)
        return err_errno(e, -rc, "cannot read %s", path);
    cf->p = p;
    if (cf->size == 0 && last)
        return 0;
    rc = check_head(cf, path, boot, last, e);
    if (!rc && cf->bytes) {
        for (const struct commit_frame *f; (f = frame_at(cf, cf->bytes));) {
            if (cf->last_no && f->first_no != cf->last_no + 1)
                break;
            if (!cf->first_no)
                cf->first_no = f->first_no;
            cf->last_no = f->last_no;
            cf->last_at = cf->bytes;
            cf->bytes += commit_frame_bytes(f);
        }
        rc = judge_tail(cf, path, last, e);
    }
    if (rc)
        commit_unmap(cf);
    return rc;
}

void commit_unmap(struct commit_file *cf) {
    if (cf->p)
        cf->files->unmap(cf->files->ctx, cf->p, (size_t)cf->size);
    cf->p = NULL;
}

int commit_each(const struct commit_file *cf,
                int (*each)(void *arg, const struct commit_frame *f, const char *entries,
                            const char *chunks),
                void *arg) {
    int rc = 0;
    for (int64_t at = COMMIT_HEAD; !rc && at < cf->bytes;) {
        const struct commit_frame *f = (const struct commit_frame *)(cf->p + at);
        const char *entries = (const char *)(f + 1);
        rc = each(arg, f, entries, entries + pad8((int64_t)f->entries_len));
        at += commit_frame_bytes(f);
    }
    return rc;
}
