#include "engine/snapshot.h"
#include "engine/crc32c.h"
#include "engine/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int snapshot_path(const char *dir, uint64_t number, char path[FILES_PATH_MAX]) {
    int n = snprintf(path, FILES_PATH_MAX, "%s/%020" PRIu64 ".snap", dir, number);
    return n < 0 || n >= FILES_PATH_MAX ? -ENAMETOOLONG : 0;
}

static uint32_t head_crc(const struct snapshot_head *h) {
    struct snapshot_head c = *h;
    c.crc = 0;
    return crc32c(0, &c, sizeof c);
}

/* ---- open ---- */

static int damaged(const struct snapshot *s, int64_t at, const char *what, struct err *e) {
    int rc = err_set(e, ERR_SYSTEM, "the state snapshot is damaged: %s", what);
    if (e) {
        snprintf(e->file, sizeof e->file, "%.255s", s->path);
        e->offset = (long)at;
    }
    return rc;
}

static int check_snapshot(struct snapshot *s, uint64_t number, struct err *e) {
    const struct snapshot_head *h = s->head = (const struct snapshot_head *)s->p;
    if (s->size < (int64_t)sizeof *h || memcmp(h->magic, SNAPSHOT_MAGIC, sizeof h->magic) ||
        h->crc != head_crc(h))
        return damaged(s, 0, "its header does not match its checksum", e);
    if (h->version != SNAPSHOT_VERSION)
        return err_set(e, ERR_SYSTEM, "%s has format %" PRIu32 ", this program reads %d", s->path,
                       h->version, SNAPSHOT_VERSION);
    uint64_t size = (uint64_t)s->size;
    if (h->number != number || h->size != size || h->table < sizeof *h || h->table > size ||
        h->table % 8 || h->blocks > (size - h->table) / 8 || h->table + 8 * h->blocks != size)
        return damaged(s, 0, "it does not have the length it was written with", e);
    s->block = (const uint64_t *)(s->p + h->table);
    if (crc32c(0, s->block, 8 * h->blocks) != h->table_crc)
        return damaged(s, (int64_t)h->table, "its table of blocks does not match its checksum", e);
    for (uint64_t i = 0; i < h->blocks; i++)
        if (s->block[i] % 8 || s->block[i] < sizeof *h || s->block[i] > h->table ||
            h->table - s->block[i] < sizeof(struct snapshot_block))
            return damaged(s, (int64_t)h->table, "its table of blocks is not possible", e);
    s->checked = calloc(h->blocks + 1, 1);
    if (!s->checked)
        abort();
    return 0;
}

int snapshot_open(struct snapshot **out, const struct log_files *files, const char *dir,
                  uint64_t number, struct err *e) {
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->files = files;
    s->refs = 1;
    int rc = snapshot_path(dir, number, s->path);
    int fd = rc ? rc : files->open(files->ctx, s->path, O_RDONLY);
    if (fd < 0) {
        rc = err_errno(e, -fd, "cannot open %s", s->path);
        free(s);
        return rc;
    }
    s->size = files->size(files->ctx, fd);
    void *p = NULL;
    rc = s->size < 0 ? (int)s->size : 0;
    if (s->size > 0)
        rc = files->map(files->ctx, fd, (size_t)s->size, &p);
    files->close(files->ctx, fd);
    s->p = p;
    if (rc)
        rc = err_errno(e, -rc, "cannot read %s", s->path);
    else
        rc = check_snapshot(s, number, e);
    if (rc)
        snapshot_unref(s);
    else
        *out = s;
    return rc;
}

void snapshot_ref(struct snapshot *s) {
    if (s)
        __atomic_fetch_add(&s->refs, 1, __ATOMIC_RELAXED);
}

void snapshot_unref(struct snapshot *s) {
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (s->p)
        s->files->unmap(s->files->ctx, s->p, (size_t)s->size);
    free(s->checked);
    free(s);
}

/* Whether [p,end) is `n` live entries, at least one. */
static bool block_ok(const char *p, const char *end, uint32_t n) {
    struct entry en;
    uint32_t seen = 0;
    for (; p < end && entry_next(&p, end, &en) && en.value; seen++) {
    }
    return p == end && seen == n && n > 0;
}

/* The entries of block `i`, verified once. */
static int block_enter(struct snapshot *s, uint64_t i, const char **at, const char **end,
                       struct err *e) {
    const struct snapshot_block *b = (const struct snapshot_block *)(s->p + s->block[i]);
    *at = (const char *)(b + 1);
    if (!__atomic_load_n(&s->checked[i], __ATOMIC_RELAXED)) {
        uint64_t room = s->head->table - s->block[i] - sizeof *b;
        if (b->len > room ||
            b->crc != crc32c(0, (const char *)b + 4, sizeof *b - 4 + (size_t)pad8((int64_t)b->len)))
            return damaged(s, (int64_t)s->block[i], "a block does not match its checksum", e);
        if (!block_ok(*at, *at + b->len, b->n))
            return damaged(s, (int64_t)s->block[i], "a block is not made of entries", e);
        __atomic_store_n(&s->checked[i], 1, __ATOMIC_RELAXED);
    }
    *end = *at + b->len;
    return 0;
}

/* ---- index ---- */

static int compare(const char *a, uint32_t alen, const char *b, uint32_t blen) {
    int c = memcmp(a, b, alen < blen ? alen : blen);
    return c ? c : alen < blen ? -1 : alen > blen;
}

static uint32_t *index_slot(const struct index *ix, const char *key, uint32_t klen) {
    uint32_t i = (uint32_t)XXH3_64bits(key, klen) & (ix->slots - 1);
    while (ix->slot[i]) {
        const struct entry *en = &ix->v[ix->slot[i] - 1].last;
        if (en->klen == klen && !memcmp(en->key, key, klen))
            break;
        i = (i + 1) & (ix->slots - 1);
    }
    return &ix->slot[i];
}

static void index_grow(struct index *ix) {
    ix->cap = ix->cap ? 2 * ix->cap : 1024;
    ix->v = realloc(ix->v, ix->cap * sizeof *ix->v);
    free(ix->slot);
    ix->slots = 2 * ix->cap;
    ix->slot = calloc(ix->slots, sizeof *ix->slot);
    if (!ix->v || !ix->slot)
        abort();
    for (uint32_t i = 0; i < ix->n; i++)
        *index_slot(ix, ix->v[i].last.key, ix->v[i].last.klen) = i + 1;
}

void index_put(struct index *ix, const struct entry *en) {
    if (ix->n == ix->cap)
        index_grow(ix);
    uint32_t *slot = index_slot(ix, en->key, en->klen);
    if (*slot) {
        ix->v[*slot - 1].last = *en;
        return;
    }
    ix->v[ix->n++] = (struct index_entry){ .last = *en, .first_value = en->value };
    *slot = ix->n;
}

static int by_key(const void *a, const void *b) {
    const struct entry *x = a, *y = b; /* the first member */
    return compare(x->key, x->klen, y->key, y->klen);
}

void index_sort(struct index *ix) {
    if (ix->n)
        qsort(ix->v, ix->n, sizeof *ix->v, by_key);
    free(ix->slot);
    ix->slot = NULL;
}

void index_free(struct index *ix) {
    free(ix->v);
    free(ix->slot);
    *ix = (struct index){ 0 };
}

/* ---- merge ---- */

static bool has_prefix(const struct merge *m, const struct entry *en) {
    return en->klen >= m->plen && (!m->plen || !memcmp(en->key, m->prefix, m->plen));
}

static int old_next(struct merge *m, struct err *e) {
    m->have_old = false;
    if (!m->snap)
        return 0;
    if (m->at == m->end) {
        if (m->block == m->snap->head->blocks)
            return 0;
        int rc = block_enter(m->snap, m->block++, &m->at, &m->end, e);
        if (rc)
            return rc;
    }
    m->have_old = entry_next(&m->at, m->end, &m->old);
    return 0;
}

/* The last block whose first key is before the prefix: the prefix begins in it or behind. */
static int find_block(struct merge *m, struct err *e) {
    uint64_t lo = 0, hi = m->snap->head->blocks;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        const char *at, *end;
        struct entry en;
        int rc = block_enter(m->snap, mid, &at, &end, e);
        if (rc)
            return rc;
        entry_next(&at, end, &en);
        if (compare(en.key, en.klen, m->prefix, m->plen) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    m->block = lo ? lo - 1 : 0;
    return 0;
}

int merge_begin(struct merge *m, struct snapshot *snap, const struct index *index,
                const void *prefix, uint32_t plen, struct err *e) {
    *m = (struct merge){ .snap = snap, .index = index, .prefix = prefix, .plen = plen };
    uint32_t hi = index->n;
    while (m->i < hi) {
        uint32_t mid = m->i + (hi - m->i) / 2;
        const struct entry *en = &index->v[mid].last;
        if (compare(en->key, en->klen, prefix, plen) < 0)
            m->i = mid + 1;
        else
            hi = mid;
    }
    if (!snap)
        return 0;
    int rc = find_block(m, e);
    do {
        if (!rc)
            rc = old_next(m, e);
    } while (!rc && m->have_old && compare(m->old.key, m->old.klen, prefix, plen) < 0);
    return rc;
}

int merge_next(struct merge *m, struct entry *en, struct err *e) {
    for (;;) {
        const struct entry *new = m->i < m->index->n ? &m->index->v[m->i].last : NULL;
        if (new && !has_prefix(m, new))
            new = NULL;
        bool old = m->have_old && has_prefix(m, &m->old);
        if (!new && !old)
            return 0;
        int c = !new ? -1 : !old ? 1 : compare(m->old.key, m->old.klen, new->key, new->klen);
        *en = c < 0 ? m->old : *new;
        int rc = c <= 0 ? old_next(m, e) : 0;
        if (c >= 0)
            m->i++;
        if (rc)
            return rc;
        if (en->value)
            return 1;
    }
}

/* ---- write ---- */

struct writer {
    const struct log_files *files;
    int fd;
    int64_t at;
    char *buf; /* the open block, its header first */
    size_t len, cap;
    uint32_t n;
    uint64_t *table;
    uint64_t blocks, table_cap;
};

static int write_at(struct writer *w, const void *p, size_t len, int64_t at) {
    struct iovec v = { .iov_base = (void *)(uintptr_t)p, .iov_len = len };
    return files_write(w->files, w->fd, &v, 1, at);
}

static int block_close(struct writer *w) {
    if (w->n == 0)
        return 0;
    struct snapshot_block *b = (struct snapshot_block *)w->buf;
    b->n = w->n;
    b->len = w->len - sizeof *b;
    size_t padded = (size_t)pad8((int64_t)w->len);
    memset(w->buf + w->len, 0, padded - w->len);
    b->crc = crc32c(0, w->buf + 4, padded - 4);
    if (w->blocks == w->table_cap) {
        w->table_cap = w->table_cap ? 2 * w->table_cap : 64;
        w->table = realloc(w->table, w->table_cap * sizeof *w->table);
        if (!w->table)
            abort();
    }
    w->table[w->blocks++] = (uint64_t)w->at;
    int rc = write_at(w, w->buf, padded, w->at);
    w->at += (int64_t)padded;
    w->len = sizeof *b;
    w->n = 0;
    return rc;
}

static int entry_write(struct writer *w, const struct entry *en) {
    size_t need = w->len + 8 + en->klen + en->vlen + 8;
    if (need > w->cap) {
        w->cap = need > 2 * SNAPSHOT_BLOCK ? need : 2 * SNAPSHOT_BLOCK;
        w->buf = realloc(w->buf, w->cap);
        if (!w->buf)
            abort();
    }
    uint32_t head[2] = { en->klen, en->vlen };
    memcpy(w->buf + w->len, head, 8);
    memcpy(w->buf + w->len + 8, en->key, en->klen);
    memcpy(w->buf + w->len + 8 + en->klen, en->value, en->vlen);
    w->len += 8 + (size_t)en->klen + en->vlen;
    w->n++;
    return w->len >= SNAPSHOT_BLOCK ? block_close(w) : 0;
}

static int finish(struct writer *w, uint64_t number, uint64_t last_no) {
    int rc = block_close(w);
    size_t table = w->blocks * sizeof *w->table;
    struct snapshot_head h = {
        .version = SNAPSHOT_VERSION,
        .number = number,
        .last_no = last_no,
        .blocks = w->blocks,
        .table = (uint64_t)w->at,
        .size = (uint64_t)w->at + table,
        .table_crc = crc32c(0, w->table, table),
    };
    memcpy(h.magic, SNAPSHOT_MAGIC, sizeof h.magic);
    h.crc = head_crc(&h);
    if (!rc && table)
        rc = write_at(w, w->table, table, w->at);
    if (!rc)
        rc = write_at(w, &h, sizeof h, 0);
    if (!rc)
        rc = w->files->datasync(w->files->ctx, w->fd);
    return rc;
}

/* 0, a negated errno in *sys, or an error of reading the old one in the result. */
static int write_all(struct writer *w, struct merge *m, int *sys, struct err *e) {
    struct entry en;
    int rc;
    while ((rc = merge_next(m, &en, e)) > 0)
        if ((*sys = entry_write(w, &en)))
            return 0;
    return rc;
}

int snapshot_write(const struct log_files *files, const char *dir, uint64_t number,
                   uint64_t last_no, struct snapshot *snap, const struct index *index,
                   struct err *e) {
    char path[FILES_PATH_MAX], tmp[FILES_PATH_MAX + 8];
    struct merge m;
    int sys = snapshot_path(dir, number, path);
    int rc = merge_begin(&m, snap, index, "", 0, e);
    if (rc)
        return rc;
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    if (!sys)
        sys = files->open(files->ctx, tmp, O_RDWR | O_CREAT | O_TRUNC);
    if (sys < 0)
        return err_errno(e, -sys, "cannot make %s", tmp);
    struct writer w = { .files = files,
                        .fd = sys,
                        .at = sizeof(struct snapshot_head),
                        .len = sizeof(struct snapshot_block) };
    sys = 0;
    rc = write_all(&w, &m, &sys, e);
    if (!rc && !sys)
        sys = finish(&w, number, last_no);
    files->close(files->ctx, w.fd);
    free(w.buf);
    free(w.table);
    if (!rc && !sys)
        sys = files->rename(files->ctx, tmp, path);
    if (!rc && !sys)
        sys = files->sync_dir(files->ctx, dir);
    if (rc || sys)
        files->unlink(files->ctx, tmp);
    return rc ? rc : sys ? err_errno(e, -sys, "cannot write %s", path) : 0;
}
