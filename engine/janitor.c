/* The janitor thread: makes snapshots and deletes files, so that neither ever delays a commit.
 * It reads committed files only, never the memory of executors or of the committer. */
#include "engine/clock.h"
#include "engine/local.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- syncing what the snapshot will vouch for ---- */

struct roll_call { /* topics by id */
    struct topic **v;
    uint32_t n;
};

static int by_id(const void *a, const void *b) {
    const struct topic *x = *(struct topic *const *)a, *y = *(struct topic *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct roll_call roll_call(struct local *l) {
    pthread_mutex_lock(&l->mu);
    struct roll_call rc = { malloc((l->topics + 1) * sizeof *rc.v), l->topics };
    if (!rc.v)
        abort();
    for (uint32_t i = 0; i < l->topics; i++)
        topic_ref(rc.v[i] = l->topic[i]);
    pthread_mutex_unlock(&l->mu);
    if (rc.n)
        qsort(rc.v, rc.n, sizeof *rc.v, by_id);
    return rc;
}

static void roll_call_end(struct roll_call *rc) {
    for (uint32_t i = 0; i < rc->n; i++)
        topic_unref(rc->v[i]);
    free(rc->v);
}

static struct topic *find_id(const struct roll_call *rc, uint32_t id) {
    uint32_t lo = 0, hi = rc->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (rc->v[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < rc->n && rc->v[lo]->id == id ? rc->v[lo] : NULL;
}

static int sync_segment(struct part *p, int64_t base, char path[FILES_PATH_MAX]) {
    const struct log_files *f = p->topic->segments->files;
    int rc = segment_path(p, base, path);
    if (rc)
        return rc;
    int fd = f->open(f->ctx, path, O_RDWR);
    if (fd < 0)
        return fd;
    rc = f->datasync(f->ctx, fd);
    f->close(f->ctx, fd);
    return rc;
}

/* All segments from `from` on, and the directories that name them: under `process` those were made
 * without a sync, and the log may go on under `power`. */
static int sync_part(struct part *p, int64_t from, struct err *e) {
    const struct log_files *f = p->topic->segments->files;
    char path[FILES_PATH_MAX];
    int rc = 0;
    for (int64_t next = from; !rc;) {
        int64_t base = -1;
        pthread_mutex_lock(&p->mu);
        for (uint32_t i = p->segs; i-- > 0 && p->seg[i]->base >= next;)
            base = p->seg[i]->base;
        pthread_mutex_unlock(&p->mu);
        if (base < 0)
            break;
        next = base + 1;
        rc = sync_segment(p, base, path);
        if (rc == -ENOENT)
            rc = 0; /* deleted meanwhile, or removed by somebody: readers report that */
    }
    if (!rc)
        rc = part_path(p, path);
    if (!rc)
        rc = f->sync_dir(f->ctx, path);
    if (!rc && !(rc = topic_path(p->topic, path)))
        rc = f->sync_dir(f->ctx, path);
    if (rc == -ENOENT) /* so is its directory: other topics must go on */
        return 0;
    return rc ? err_errno(e, -rc, "cannot sync %s", path) : 0;
}

static int sync_parts(struct local *l, const struct index *ix, struct err *e) {
    struct roll_call topics = roll_call(l);
    int rc = l->files->sync_dir(l->files->ctx, l->segments.dir);
    if (rc)
        rc = err_errno(e, -rc, "cannot sync %s", l->segments.dir);
    for (uint32_t i = 0; !rc && i < ix->n; i++) {
        const struct index_entry *en = &ix->v[i];
        const unsigned char *key = (const unsigned char *)en->last.key;
        if (key[0] != LOG_KEY_RESERVED || en->last.klen != KEY_PART_LEN || key[1] != KEY_PART ||
            en->last.vlen != sizeof(struct part_value)) /* or removed */
            continue;
        struct part_value v;
        uint32_t id, partition;
        memcpy(&v, en->first_value, sizeof v);
        memcpy(&id, key + 2, 4);
        memcpy(&partition, key + 6, 4);
        struct topic *t = find_id(&topics, id);
        if (t && partition < t->conf.partitions && !t->deleted)
            rc = sync_part(&t->part[partition], v.from_base < 0 ? 0 : v.from_base, e);
    }
    roll_call_end(&topics);
    return rc;
}

/* ---- after a failed sync ---- */

/* The kernel takes the pages for clean then, and the next sync succeeds without writing them. So
 * under `power` the rows are written anew from the commit logs; what `process` lost stays lost. */
struct rewrite {
    struct local *l;
    struct roll_call topics;
};

/* Opens the segment of a chunk; -ENOENT when it is gone, or when its place belongs to a new topic
 * of that name: what lies in the trash needs no sync. */
static int rewrite_open(struct rewrite *w, const struct commit_chunk *c, struct segment_head *h) {
    const struct log_files *f = w->l->files;
    struct topic *t = find_id(&w->topics, c->topic);
    char path[FILES_PATH_MAX];
    if (!t || c->partition >= t->conf.partitions)
        return -ENOENT;
    segment_head_make(h, &t->part[c->partition], c->base, c->prev);
    int rc = segment_path(&t->part[c->partition], c->base, path);
    int fd = rc ? rc : f->open(f->ctx, path, O_RDWR);
    struct segment_head there;
    if (fd < 0)
        return fd;
    rc = files_read(f, fd, &there, sizeof there, 0);
    if (!rc && there.topic == h->topic && !there.compacted) /* that was synced when it was made */
        return fd;
    f->close(f->ctx, fd);
    return -ENOENT;
}

static int rewrite_frame(void *arg, const struct commit_frame *f, const char *entries,
                         const char *chunks) {
    struct rewrite *w = arg;
    const struct log_files *files = w->l->files;
    const char *end = chunks + f->chunks_len;
    (void)entries;
    while (chunks < end) {
        struct commit_chunk c;
        struct segment_head h;
        memcpy(&c, chunks, sizeof c);
        struct iovec rows = { .iov_base = (void *)(uintptr_t)(chunks + sizeof c),
                              .iov_len = (size_t)c.len };
        struct iovec head = { .iov_base = &h, .iov_len = sizeof h };
        chunks += sizeof c + (size_t)c.len;
        int fd = rewrite_open(w, &c, &h);
        if (fd == -ENOENT)
            continue;
        int rc = fd < 0 ? fd : files_write(files, fd, &rows, 1, c.at);
        if (!rc && c.at == SEGMENT_HEAD)
            rc = files_write(files, fd, &head, 1, 0);
        if (fd >= 0)
            files->close(files->ctx, fd);
        if (rc)
            return rc;
    }
    return 0;
}

static int rewrite_rows(struct local *l, const struct commit_file *cf, int files, struct err *e) {
    struct rewrite w = { l, roll_call(l) };
    int rc = 0;
    for (int i = 0; !rc && i < files; i++)
        rc = commit_each(&cf[i], rewrite_frame, &w);
    roll_call_end(&w.topics);
    return rc ? err_errno(e, -rc, "cannot write rows again after a failed sync") : 0;
}

/* ---- snapshots ---- */

static int write_snapshot(struct local *l, struct commit_file *cf, int files, uint64_t number,
                          struct err *e) {
    struct index ix = { 0 };
    view_index(&ix, cf, files);
    int rc = l->sync_failed ? rewrite_rows(l, cf, files, e) : 0;
    if (!rc)
        rc = sync_parts(l, &ix, e);
    l->sync_failed = rc != 0;
    uint64_t last_no = l->snap ? l->snap->head->last_no : 0;
    for (int i = 0; i < files; i++)
        if (cf[i].last_no)
            last_no = cf[i].last_no;
    if (!rc)
        rc = snapshot_write(l->files, l->snapshot_dir, number, last_no, l->snap, &ix, e);
    index_free(&ix);
    return rc;
}

/* From here on a restart begins with the new snapshot; what it replaces is deleted. */
static int install(struct local *l, uint64_t first, uint64_t number, struct err *e) {
    struct snapshot *new, *old;
    char path[FILES_PATH_MAX];
    int rc = snapshot_open(&new, l->files, l->snapshot_dir, number, e);
    if (rc)
        return rc;
    pthread_mutex_lock(&l->view_mu);
    old = l->snap;
    l->snap = new;
    pthread_mutex_lock(&l->mu);
    l->snap_number = number;
    l->snap_size = new->size;
    pthread_mutex_unlock(&l->mu);
    for (uint64_t no = first; no < number; no++)
        if (!commit_path(l->commit_dir, no, path))
            l->files->unlink(l->files->ctx, path);
    pthread_mutex_unlock(&l->view_mu);
    if (old)
        l->files->unlink(l->files->ctx, old->path);
    snapshot_unref(old);
    return 0;
}

int janitor_snapshot(struct local *l, struct err *e) {
    pthread_mutex_lock(&l->mu);
    uint64_t first = l->snap_number, number = l->published_log;
    pthread_mutex_unlock(&l->mu);
    if (first >= number)
        return 0;
    struct commit_file *cf = calloc((size_t)(number - first), sizeof *cf);
    if (!cf)
        abort();
    int files;
    int rc = view_map(l, cf, first, number - 1, -1, &files, e);
    if (!rc)
        rc = write_snapshot(l, cf, files, number, e);
    while (files > 0)
        commit_unmap(&cf[--files]);
    free(cf);
    return rc ? rc : install(l, first, number, e);
}

/* ---- records that are too old ---- */

static void age_part(struct log_epoch *ep, struct part *p) {
    struct topic *t = p->topic;
    int64_t offset = part_offset_at(p, clock_wall_ms() - t->conf.retention_ms);
    if (offset <= p->begin || log_epoch_trim(ep, t->name, p->number, offset))
        return;
    ep->trim[ep->trims - 1].id = t->id; /* not a new topic of that name */
}

/* Under mu, which it lets go. */
static void chore_tend(struct local *l) {
    pthread_mutex_unlock(&l->mu);
    struct log_epoch *ep = log_epoch_begin(&l->base);
    struct roll_call all = roll_call(l);
    for (uint32_t i = 0; i < all.n; i++) {
        struct topic *t = all.v[i];
        for (uint32_t k = 0; t->conf.retention_ms > 0 && k < t->conf.partitions; k++)
            age_part(ep, &t->part[k]);
    }
    for (uint32_t i = 0; i < all.n; i++)
        for (uint32_t k = 0; all.v[i]->conf.compact && k < all.v[i]->conf.partitions; k++)
            compact_part(l, &all.v[i]->part[k]);
    roll_call_end(&all);
    pthread_mutex_lock(&l->mu);
    if (ep->trims == 0 || l->stop_commits)
        log_epoch_drop(ep);
    else
        committer_chore(l, ep); /* what is refused is found again the next time */
}

/* ---- the thread ---- */

/* Under mu, which it lets go. */
static void chore_snapshot(struct local *l) {
    struct err e = ERR_INIT;
    l->want_snapshot = false;
    l->making_snapshot = true;
    pthread_mutex_unlock(&l->mu);
    int rc = janitor_snapshot(l, &e);
    pthread_mutex_lock(&l->mu);
    l->making_snapshot = false;
    l->snapshot_err = e;
    l->snapshot_err.code = rc;
    pthread_cond_broadcast(&l->tidied);
}

static void chore_delete(struct local *l) {
    struct doomed *d = l->doomed;
    l->doomed = d->next;
    pthread_mutex_unlock(&l->mu);
    files_remove(l->files, d->path); /* what remains is found at the next open */
    free(d);
    pthread_mutex_lock(&l->mu);
}

/* Under mu: until there is something to do or topics are to be tended again. */
static void rest(struct local *l, int64_t until_ns) {
    if (l->tended == 0 || l->stop_commits) {
        pthread_cond_wait(&l->chores, &l->mu);
        return;
    }
    struct timespec t = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    pthread_cond_timedwait(&l->chores, &l->mu, &t);
}

void *janitor_run(void *local) {
    struct local *l = local;
    int64_t next_ns = clock_mono_ns();
    pthread_mutex_lock(&l->mu);
    for (;;) {
        if (l->want_snapshot)
            chore_snapshot(l);
        else if (l->doomed)
            chore_delete(l);
        else if (l->stop_chores)
            break;
        else if (l->tended && !l->stop_commits && clock_mono_ns() >= next_ns) {
            chore_tend(l);
            next_ns = clock_mono_ns() + l->tend_ms * 1000000;
        } else
            rest(l, next_ns);
    }
    pthread_mutex_unlock(&l->mu);
    return NULL;
}
