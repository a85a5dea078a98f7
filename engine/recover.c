/* Opening the local log: the newest snapshot, then the commit logs behind it; then every topic's
 * files are cut to what is committed. */
#include "engine/local.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct numbers {
    uint64_t *v;
    uint32_t n, cap;
    const char *ext;
};

static int number_each(void *arg, const char *name) {
    struct numbers *ns = arg;
    uint64_t no = 0;
    int i = 0;
    for (; i < 20 && name[i] >= '0' && name[i] <= '9'; i++)
        no = no * 10 + (uint64_t)(name[i] - '0');
    if (i != 20 || strcmp(name + 20, ns->ext) || no == 0 || no > INT64_MAX)
        return 0;
    if (ns->n == ns->cap) {
        ns->cap = ns->cap ? 2 * ns->cap : 16;
        ns->v = realloc(ns->v, ns->cap * sizeof *ns->v);
        if (!ns->v)
            abort();
    }
    ns->v[ns->n++] = no;
    return 0;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int numbers_list(struct local *l, struct numbers *ns, const char *dir, const char *ext,
                        struct err *e) {
    *ns = (struct numbers){ .ext = ext };
    int rc = l->files->list(l->files->ctx, dir, number_each, ns);
    if (rc)
        return err_errno(e, -rc, "cannot list %s", dir);
    if (ns->n)
        qsort(ns->v, ns->n, sizeof *ns->v, by_number);
    return 0;
}

/* ---- snapshot ---- */

static int load_snapshot(struct local *l, struct err *e) {
    struct numbers ns, tmp;
    char path[FILES_PATH_MAX];
    int rc = numbers_list(l, &tmp, l->snapshot_dir, ".snap.tmp", e);
    for (uint32_t i = 0; !rc && i < tmp.n; i++) { /* interrupted */
        snprintf(path, sizeof path, "%.900s/%020" PRIu64 ".snap.tmp", l->snapshot_dir, tmp.v[i]);
        l->files->unlink(l->files->ctx, path);
    }
    free(tmp.v);
    if (!rc)
        rc = numbers_list(l, &ns, l->snapshot_dir, ".snap", e);
    if (rc)
        return rc;
    l->snap_number = 1;
    /* It may have been renamed into place by a process that was killed before it could sync that;
     * what it replaces is deleted below. */
    if (ns.n && (rc = l->files->sync_dir(l->files->ctx, l->snapshot_dir)))
        rc = err_errno(e, -rc, "cannot sync %s", l->snapshot_dir);
    if (!rc && ns.n)
        rc = snapshot_open(&l->snap, l->files, l->snapshot_dir, ns.v[ns.n - 1], e);
    if (l->snap) {
        l->snap_number = l->snap->head->number;
        l->snap_size = l->snap->size;
        l->last_no = l->snap->head->last_no;
    }
    for (uint32_t i = 0; !rc && i + 1 < ns.n; i++) /* superseded */
        if (!snapshot_path(l->snapshot_dir, ns.v[i], path))
            l->files->unlink(l->files->ctx, path);
    free(ns.v);
    return rc;
}

/* ---- commit logs ---- */

/* Removes logs that the snapshot contains; the others must follow it without a gap. */
static int check_numbers(struct local *l, struct numbers *ns, struct err *e) {
    char path[FILES_PATH_MAX];
    uint32_t old = 0;
    while (old < ns->n && ns->v[old] < l->snap_number) {
        if (!commit_path(l->commit_dir, ns->v[old++], path))
            l->files->unlink(l->files->ctx, path);
    }
    ns->n -= old;
    if (ns->n)
        memmove(ns->v, ns->v + old, ns->n * sizeof *ns->v);
    for (uint32_t i = 0; i < ns->n; i++)
        if (ns->v[i] != l->snap_number + i) {
            commit_path(l->commit_dir, l->snap_number + i, path);
            return err_set(e, ERR_SYSTEM, "%s is missing, but a later one is there", path);
        }
    return 0;
}

/* Cuts the file to its last whole frame; removes it when nothing is left. */
static int cut(struct local *l, const struct commit_file *cf, struct err *e) {
    const struct log_files *f = l->files;
    char path[FILES_PATH_MAX];
    int rc = commit_path(l->commit_dir, cf->number, path);
    if (!rc && cf->bytes == 0) {
        rc = f->unlink(f->ctx, path);
        if (!rc)
            rc = f->sync_dir(f->ctx, l->commit_dir);
        return rc ? err_errno(e, -rc, "cannot remove %s", path) : 0;
    }
    int fd = rc ? rc : f->open(f->ctx, path, O_RDWR);
    if (fd < 0)
        return err_errno(e, -fd, "cannot open %s", path);
    rc = f->truncate(f->ctx, fd, cf->bytes);
    if (!rc)
        rc = f->datasync(f->ctx, fd);
    f->close(f->ctx, fd);
    return rc ? err_errno(e, -rc, "cannot cut %s", path) : 0;
}

/* A log behind one that was cut: nothing in it is committed. */
static int drop(struct local *l, uint64_t number, struct err *e) {
    struct commit_file none = { .number = number };
    return cut(l, &none, e);
}

static int load_logs(struct local *l, struct view *v, const struct numbers *ns, struct err *e) {
    bool ended = false;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < ns->n; i++) {
        if (ended) {
            rc = drop(l, ns->v[i], e);
            continue;
        }
        struct commit_file *cf = &v->file[v->files];
        rc = commit_map(cf, l->files, l->commit_dir, ns->v[i], l->boot, -1, i + 1 == ns->n, e);
        if (rc)
            break;
        v->files++;
        if (cf->first_no && cf->first_no != l->last_no + 1) {
            rc = err_set(e, ERR_SYSTEM,
                         "commit log %" PRIu64 " begins with commit %" PRIu64 ", but %" PRIu64
                         " is expected",
                         cf->number, cf->first_no, l->last_no + 1);
            break;
        }
        if (cf->last_no)
            l->last_no = cf->last_no;
        ended = cf->bytes < cf->size;
        if (ended || cf->bytes == 0)
            rc = cut(l, cf, e);
        if (cf->bytes)
            l->commit.number = cf->number + 1;
    }
    return rc;
}

/* What is found is reported as committed, so under `power` it must not be lost any more: the last
 * record may have been written by a process that was killed before it could sync it, or whose sync
 * failed; only what is written again after a failed sync is written by the next one. */
static int sync_logs(struct local *l, const struct view *v, struct err *e) {
    const struct log_files *f = l->files;
    char path[FILES_PATH_MAX];
    if (l->commit.durability != LOG_POWER || v->files == 0)
        return 0;
    const struct commit_file *last = &v->file[v->files - 1];
    if (last->bytes == 0)
        return 0;
    int rc = commit_path(l->commit_dir, last->number, path);
    int fd = rc ? rc : f->open(f->ctx, path, O_RDWR);
    if (fd < 0)
        return err_errno(e, -fd, "cannot open %s", path);
    struct iovec end = { .iov_base = last->p + last->last_at,
                         .iov_len = (size_t)(last->bytes - last->last_at) };
    rc = files_write(f, fd, &end, 1, last->last_at);
    if (!rc)
        rc = f->datasync(f->ctx, fd);
    f->close(f->ctx, fd);
    return rc ? err_errno(e, -rc, "cannot sync %s", path) : 0;
}

static int load_view(struct local *l, struct err *e) {
    struct numbers ns;
    int rc = numbers_list(l, &ns, l->commit_dir, ".log", e);
    if (!rc)
        rc = check_numbers(l, &ns, e);
    struct view *v = l->view = calloc(1, sizeof *v);
    if (!v || !(v->file = calloc(ns.n + 1, sizeof *v->file)))
        abort();
    v->refs = 1;
    v->snap = l->snap;
    snapshot_ref(v->snap);
    l->commit.number = l->snap_number;
    if (!rc)
        rc = load_logs(l, v, &ns, e);
    if (!rc)
        rc = sync_logs(l, v, e);
    free(ns.v);
    if (rc)
        return rc;
    view_index(&v->index, v->file, v->files);
    v->no = l->published_no = l->last_no;
    l->published_log = l->commit.number;
    int64_t bytes = 0;
    for (int i = 0; i < v->files; i++) {
        bytes += v->file[i].bytes;
        if (v->file[i].bytes && v->file[i].durability != l->commit.durability)
            l->changed_durability = true;
    }
    l->want_snapshot = bytes > local_tidy_bytes(l) || v->files >= SEALED_MAX;
    return 0;
}

/* ---- topics ---- */

static int bad_entry(struct err *e) {
    return err_set(e, ERR_SYSTEM, "the state has an entry of topics that is not possible");
}

static int load_topic(struct local *l, const struct entry *en, struct err *e) {
    struct topic_value v = { 0 };
    char name[LOG_NAME_MAX + 1];
    uint32_t len = en->klen - 2;
    if (en->vlen < TOPIC_VALUE_SHORT || en->vlen > sizeof v || len > LOG_NAME_MAX)
        return bad_entry(e);
    memcpy(&v, en->value, en->vlen);
    memcpy(name, en->key + 2, len);
    name[len] = 0;
    if (strlen(name) != len || log_topic_name_check(name) || v.partitions == 0 ||
        v.partitions > LOG_PARTITIONS_MAX)
        return bad_entry(e);
    struct log_topic_conf conf = { .partitions = v.partitions,
                                   .retention_bytes = v.retention_bytes,
                                   .retention_ms = v.retention_ms,
                                   .compact = v.flags & TOPIC_COMPACT };
    local_topic_insert(l, topic_new(&l->segments, name, v.id, &conf));
    if (v.id >= l->next_topic)
        l->next_topic = v.id + 1;
    return 0;
}

static int each_own(struct local *l, char kind,
                    int (*each)(struct local *, const struct entry *, struct err *),
                    struct err *e) {
    struct merge m;
    struct entry en;
    char prefix[2] = { (char)LOG_KEY_RESERVED, kind };
    int rc = merge_begin(&m, l->snap, &l->view->index, prefix, sizeof prefix, e);
    while (!rc && (rc = merge_next(&m, &en, e)) > 0)
        rc = each(l, &en, e);
    return rc;
}

static int load_next(struct local *l, const struct entry *en, struct err *e) {
    uint32_t next;
    if (en->vlen != sizeof next)
        return bad_entry(e);
    memcpy(&next, en->value, sizeof next);
    if (next > l->next_topic)
        l->next_topic = next;
    return 0;
}

static int load_tails(struct local *l, struct err *e) {
    for (uint32_t i = 0; i < l->topics; i++)
        for (uint32_t k = 0; k < l->topic[i]->conf.partitions; k++) {
            struct merge m;
            struct entry en;
            char key[KEY_PART_LEN];
            struct part_value v = { .base = -1, .time_max = INT64_MIN };
            part_key(key, l->topic[i]->id, k);
            int rc = merge_begin(&m, l->snap, &l->view->index, key, sizeof key, e);
            if (!rc)
                rc = merge_next(&m, &en, e);
            if (rc < 0)
                return rc;
            if (rc && (en.klen != sizeof key || en.vlen != sizeof v))
                return bad_entry(e);
            if (rc)
                memcpy(&v, en.value, sizeof v);
            if (v.begin < 0 || v.end < v.begin || v.base > v.end || v.bytes < 0 ||
                (v.base < 0 && v.end > v.begin))
                return bad_entry(e);
            l->topic[i]->part[k].tail =
                (struct tail){ v.begin, v.end, v.base, v.bytes, v.time_max };
        }
    return 0;
}

/* ---- rows that the commit log has and the segments may have lost ---- */

struct replay {
    struct local *l;
    struct topic **by_id;
};

static int by_id(const void *a, const void *b) {
    const struct topic *x = *(struct topic *const *)a, *y = *(struct topic *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct part *replay_part(const struct replay *r, uint32_t id, uint32_t partition) {
    uint32_t lo = 0, hi = r->l->topics;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (r->by_id[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    struct topic *t = lo < r->l->topics ? r->by_id[lo] : NULL;
    return t && t->id == id && partition < t->conf.partitions ? &t->part[partition] : NULL;
}

/* The segment is p->fd from here on; p->next.base tells which one that is. A group has chunks of
 * many parts in turn, so each keeps its file open (as many as appending may). *anew: it was not. */
static int replay_open(struct part *p, int64_t base, bool *anew) {
    *anew = p->fd < 0 || p->next.base != base;
    if (!*anew)
        return 0;
    part_close(p);
    p->next.base = base;
    p->used = ++p->topic->segments->clock;
    int rc = part_open(p, base, O_RDWR | O_CREAT);
    if (rc == -ENOENT && (rc = topic_make(p->topic, true)) == 0)
        rc = part_open(p, base, O_RDWR | O_CREAT);
    struct segment_head h;
    p->compacted = !rc && segment_head_read(p, p->fd, base, &h) && h.compacted;
    return rc;
}

/* Also when the file has these bytes: they may be in the page cache only, taken for clean after a
 * sync that failed, and now they are certain to be written by the next one. */
static int put(const struct replay *r, int fd, const void *p, int64_t len, int64_t at) {
    struct iovec v = { .iov_base = (void *)(uintptr_t)p, .iov_len = (size_t)len };
    return files_write(r->l->files, fd, &v, 1, at);
}

static int replay_frame(void *arg, const struct commit_frame *f, const char *entries,
                        const char *chunks) {
    struct replay *r = arg;
    const char *end = chunks + f->chunks_len;
    (void)entries;
    while (chunks < end) {
        struct commit_chunk c;
        memcpy(&c, chunks, sizeof c);
        const char *rows = chunks + sizeof c;
        chunks = rows + c.len;
        struct part *p = replay_part(r, c.topic, c.partition);
        struct frame head;
        memcpy(&head, rows, sizeof head);
        /* Deleted or given up since; but the active segment has no hole. */
        if (!p || (head.first + head.n <= p->tail.begin && c.base != p->tail.base))
            continue;
        bool anew;
        int rc = replay_open(p, c.base, &anew);
        if (!rc && p->compacted) /* what is left of these rows was synced before */
            continue;
        struct segment_head h;
        segment_head_make(&h, p, c.base, c.prev);
        if (!rc && anew) /* the first frame of it may be passed over */
            rc = put(r, p->fd, &h, sizeof h, 0);
        if (!rc)
            rc = put(r, p->fd, rows, c.len, c.at);
        if (rc)
            return rc;
    }
    return 0;
}

static bool has_rows(const struct commit_file *cf) {
    return cf->bytes && cf->durability == LOG_POWER;
}

static int replay_rows(struct local *l, struct err *e) {
    bool any = false;
    for (int i = 0; i < l->view->files; i++)
        any |= has_rows(&l->view->file[i]);
    if (!any)
        return 0;
    struct replay r = { .l = l, .by_id = malloc((l->topics + 1) * sizeof *r.by_id) };
    if (!r.by_id)
        abort();
    int rc = 0;
    for (uint32_t i = 0; i < l->topics; i++)
        r.by_id[i] = l->topic[i];
    if (l->topics)
        qsort(r.by_id, l->topics, sizeof *r.by_id, by_id);
    for (int i = 0; !rc && i < l->view->files; i++) {
        if (has_rows(&l->view->file[i]))
            rc = commit_each(&l->view->file[i], replay_frame, &r);
    }
    for (uint32_t i = 0; i < l->topics; i++)
        for (uint32_t k = 0; k < l->topic[i]->conf.partitions; k++)
            part_close(&l->topic[i]->part[k]);
    free(r.by_id);
    return rc ? err_errno(e, -rc, "cannot restore rows from the commit log") : 0;
}

/* ---- files without a topic ---- */

static int stray_each(void *arg, const char *name) {
    struct local *l = arg;
    char path[FILES_PATH_MAX];
    if (local_topic(l, name))
        return 0;
    int n = snprintf(path, sizeof path, "%s/%s", l->segments.dir, name);
    if (n > 0 && n < (int)sizeof path)
        files_remove(l->files, path);
    return 0;
}

static int trash_each(void *arg, const char *name) {
    struct local *l = arg;
    char path[FILES_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", l->trash_dir, name);
    if (n > 0 && n < (int)sizeof path)
        local_doom(l, path);
    return 0;
}

int recover(struct local *l, struct err *e) {
    l->next_topic = 1;
    int rc = load_snapshot(l, e);
    if (!rc)
        rc = load_view(l, e);
    if (!rc)
        rc = each_own(l, KEY_TOPIC, load_topic, e);
    if (!rc)
        rc = each_own(l, KEY_NEXT, load_next, e);
    if (!rc)
        rc = load_tails(l, e);
    if (!rc)
        rc = replay_rows(l, e);
    if (rc)
        return rc;
    l->files->list(l->files->ctx, l->segments.dir, stray_each, l);
    l->files->list(l->files->ctx, l->trash_dir, trash_each, l);
    for (uint32_t i = 0; i < l->topics; i++)
        for (uint32_t k = 0; k < l->topic[i]->conf.partitions; k++) {
            struct part *p = &l->topic[i]->part[k];
            struct tail tail = p->tail;
            rc = part_load(p, &tail, e);
            if (rc)
                return err_errno(e, -rc, "cannot open topic %s", l->topic[i]->name);
        }
    return 0;
}
