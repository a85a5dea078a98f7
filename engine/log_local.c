#include "engine/log_local.h"
#include "engine/local.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void part_key(char key[KEY_PART_LEN], uint32_t topic, uint32_t partition) {
    key[0] = (char)LOG_KEY_RESERVED;
    key[1] = KEY_PART;
    memcpy(key + 2, &topic, 4);
    memcpy(key + 6, &partition, 4);
}

int64_t local_tidy_bytes(const struct local *l) {
    return l->commit_bytes > 0 && l->commit_bytes < TIDY_BYTES ? l->commit_bytes : TIDY_BYTES;
}

/* ---- topics ---- */

/* Where the name is or belongs. */
static uint32_t topic_slot(const struct local *l, const char *name) {
    uint32_t lo = 0, hi = l->topics;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (strcmp(l->topic[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct topic *local_topic(struct local *l, const char *name) {
    uint32_t i = topic_slot(l, name);
    return i < l->topics && !strcmp(l->topic[i]->name, name) ? l->topic[i] : NULL;
}

void local_topic_insert(struct local *l, struct topic *t) {
    if (l->topics == l->topics_cap) {
        l->topics_cap = l->topics_cap ? 2 * l->topics_cap : 64;
        l->topic = realloc(l->topic, l->topics_cap * sizeof(struct topic *));
        if (!l->topic)
            abort();
    }
    uint32_t i = topic_slot(l, t->name);
    memmove(l->topic + i + 1, l->topic + i, (l->topics++ - i) * sizeof(struct topic *));
    l->topic[i] = t;
    if (topic_tended(t) && l->tended++ == 0)
        pthread_cond_signal(&l->chores);
}

void local_topic_remove(struct local *l, struct topic *t) {
    uint32_t i = topic_slot(l, t->name);
    memmove(l->topic + i, l->topic + i + 1, (--l->topics - i) * sizeof(struct topic *));
    l->tended -= topic_tended(t);
    t->deleted = true;
}

/* A reference, or NULL. */
static struct topic *topic_take(struct local *l, const char *name) {
    pthread_mutex_lock(&l->mu);
    struct topic *t = local_topic(l, name);
    if (t)
        topic_ref(t);
    pthread_mutex_unlock(&l->mu);
    return t;
}

static int topic_job(struct log *log, int kind, const char *name, const struct log_topic_conf *conf,
                     struct err *e) {
    struct local *l = (struct local *)log;
    struct job j = { .kind = kind, .name = name, .conf = conf, .err = ERR_INIT };
    committer_submit(l, &j);
    pthread_mutex_lock(&l->mu);
    while (!j.ready)
        pthread_cond_wait(&l->ready, &l->mu);
    pthread_mutex_unlock(&l->mu);
    if (j.rc && e)
        *e = j.err;
    return j.rc;
}

static int local_create(struct log *log, const char *name, const struct log_topic_conf *conf,
                        struct err *e) {
    if (conf->partitions > LOG_PARTITIONS_MAX)
        return err_set(e, ERR_INPUT, "topic %s: at most %d partitions", name, LOG_PARTITIONS_MAX);
    return topic_job(log, JOB_CREATE, name, conf, e);
}

static int local_delete(struct log *log, const char *name, struct err *e) {
    return topic_job(log, JOB_DELETE, name, NULL, e);
}

static void info_fill(struct topic *t, struct log_topic_info *info) {
    *info = (struct log_topic_info){ .conf = t->conf, .id = t->id };
    snprintf(info->name, sizeof info->name, "%s", t->name);
    for (uint32_t i = 0; i < t->conf.partitions; i++) {
        info->begin += t->part[i].begin;
        info->end += t->part[i].end;
        info->bytes += part_bytes(&t->part[i]);
    }
}

static int no_topic(const char *name, struct err *e) {
    return err_set(e, ERR_NOTFOUND, "no topic %s", name);
}

static int local_info(struct log *log, const char *name, struct log_topic_info *info,
                      struct err *e) {
    struct topic *t = topic_take((struct local *)log, name);
    if (!t)
        return no_topic(name, e);
    info_fill(t, info);
    topic_unref(t);
    return 0;
}

static int local_list(struct log *log, int (*each)(void *, const struct log_topic_info *),
                      void *arg) {
    struct local *l = (struct local *)log;
    pthread_mutex_lock(&l->mu);
    uint32_t n = l->topics;
    struct topic **v = malloc((n + 1) * sizeof(struct topic *));
    if (!v)
        abort();
    for (uint32_t i = 0; i < n; i++)
        topic_ref(v[i] = l->topic[i]);
    pthread_mutex_unlock(&l->mu);
    int rc = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct log_topic_info info;
        info_fill(v[i], &info);
        if (!rc)
            rc = each(arg, &info);
        topic_unref(v[i]);
    }
    free(v);
    return rc;
}

/* The partition, its topic referenced, or NULL. */
static struct part *part_take(struct local *l, const char *topic, uint32_t partition,
                              struct err *e) {
    struct topic *t = topic_take(l, topic);
    if (!t) {
        no_topic(topic, e);
        return NULL;
    }
    if (partition < t->conf.partitions)
        return &t->part[partition];
    err_set(e, ERR_NOTFOUND, "topic %s has no partition %" PRIu32, topic, partition);
    topic_unref(t);
    return NULL;
}

static int local_ends(struct log *log, const char *name, uint32_t partition, int64_t *begin,
                      int64_t *end, struct err *e) {
    struct part *p = part_take((struct local *)log, name, partition, e);
    if (!p)
        return ERR_NOTFOUND;
    *begin = p->begin;
    *end = p->end;
    topic_unref(p->topic);
    return 0;
}

static int64_t local_offset_at(struct log *log, const char *topic, uint32_t partition, int64_t ms) {
    struct part *p = part_take((struct local *)log, topic, partition, NULL);
    if (!p)
        return ERR_NOTFOUND;
    int64_t offset = part_offset_at(p, ms);
    topic_unref(p->topic);
    return offset;
}

/* ---- readers ---- */

static const struct log_driver driver;

static int local_reader_open(struct log *log, const char *topic, uint32_t partition, int64_t offset,
                             struct log_reader **r, struct err *e) {
    struct part *p = part_take((struct local *)log, topic, partition, e);
    if (!p)
        return ERR_NOTFOUND;
    *r = reader_new(&driver, p, offset);
    topic_unref(p->topic);
    int rc = reader_seek(*r, offset, e);
    if (rc) {
        reader_close(*r);
        *r = NULL;
    }
    return rc;
}

/* ---- watches ---- */

/* The list a watch of this name belongs to. */
static struct log_watch **watch_list(struct local *l, const char *topic) {
    if (!topic)
        return &l->watch_any;
    struct topic *t = local_topic(l, topic);
    return t ? &t->watches : &l->watch_orphans;
}

static struct log_watch *local_watch(struct log *log, const char *topic, void (*wake)(void *),
                                     void *arg) {
    struct local *l = (struct local *)log;
    struct log_watch *w = calloc(1, sizeof *w);
    if (!w || (topic && !(w->topic = strdup(topic))))
        abort();
    w->wake = wake;
    w->arg = arg;
    pthread_mutex_lock(&l->watch_mu);
    pthread_mutex_lock(&l->mu);
    struct log_watch **list = watch_list(l, topic);
    pthread_mutex_unlock(&l->mu);
    w->next = *list;
    *list = w;
    pthread_mutex_unlock(&l->watch_mu);
    return w;
}

static void unlink_watch(struct log_watch **list, struct log_watch *w) {
    while (*list != w)
        list = &(*list)->next;
    *list = w->next;
}

static void local_unwatch(struct log *log, struct log_watch *w) {
    struct local *l = (struct local *)log;
    pthread_mutex_lock(&l->watch_mu);
    pthread_mutex_lock(&l->mu);
    struct log_watch **list = watch_list(l, w->topic);
    pthread_mutex_unlock(&l->mu);
    unlink_watch(list, w);
    pthread_mutex_unlock(&l->watch_mu);
    free(w->topic);
    free(w);
}

/* ---- epochs and state ---- */

static void local_commit(struct log *log, struct log_epoch *ep, log_done *done, void *arg) {
    committer_submit((struct local *)log, committer_job(ep, done, arg));
}

static int local_state_each(struct log *log, const void *prefix, uint32_t plen,
                            int (*each)(void *, const void *key, uint32_t klen, const void *value,
                                        uint32_t vlen),
                            void *arg, struct err *e) {
    struct local *l = (struct local *)log;
    struct view *v;
    struct merge m;
    struct entry en;
    int rc = view_take(l, &v, e);
    if (rc)
        return rc;
    rc = merge_begin(&m, v->snap, &v->index, prefix, plen, e);
    while (!rc && (rc = merge_next(&m, &en, e)) > 0)
        rc = (unsigned char)en.key[0] == LOG_KEY_RESERVED
                 ? 0
                 : each(arg, en.key, en.klen, en.value, en.vlen);
    view_release(l, v);
    return rc;
}

void local_doom(void *local, const char *path) {
    struct local *l = local;
    size_t len = strlen(path) + 1;
    struct doomed *d = malloc(sizeof *d + len);
    if (!d)
        abort();
    memcpy(d->path, path, len);
    pthread_mutex_lock(&l->mu);
    d->next = l->doomed;
    l->doomed = d;
    pthread_cond_signal(&l->chores);
    pthread_mutex_unlock(&l->mu);
}

/* ---- open and close ---- */

static int make_dir(struct local *l, char path[FILES_DIR_MAX], const char *name, struct err *e) {
    int n = snprintf(path, FILES_DIR_MAX, "%s/%s", l->dir, name);
    int rc = n < 0 || n >= FILES_DIR_MAX ? -ENAMETOOLONG : l->files->mkdir(l->files->ctx, path);
    return rc ? err_errno(e, -rc, "cannot make %s", path) : 0;
}

/* One process holds the directory; the lock goes with it, however it ends. */
static int lock(struct local *l, struct err *e) {
    const struct log_files *f = l->files;
    char path[FILES_PATH_MAX], pid[32] = "";
    int n = snprintf(path, sizeof path, "%s/lock", l->dir);
    int rc =
        n < 0 || n >= (int)sizeof path ? -ENAMETOOLONG : f->open(f->ctx, path, O_RDWR | O_CREAT);
    if (rc < 0)
        return err_errno(e, -rc, "cannot open %s", path);
    l->lock_fd = rc;
    rc = f->lock(f->ctx, l->lock_fd);
    if (rc == -EWOULDBLOCK) {
        ssize_t got = f->pread(f->ctx, l->lock_fd, pid, sizeof pid - 1, 0);
        if (got < 0)
            pid[0] = 0;
        return err_set(e, ERR_CONFLICT, "%s is already used by process %s", l->dir, pid);
    }
    if (rc)
        return err_errno(e, -rc, "cannot lock %s", path);
    struct iovec v = { .iov_base = pid,
                       .iov_len = (size_t)snprintf(pid, sizeof pid, "%d", getpid()) };
    /* A full disk must not keep a log from being opened; the number is for messages only. */
    if (f->truncate(f->ctx, l->lock_fd, 0) == 0)
        (void)files_write(f, l->lock_fd, &v, 1, 0);
    return 0;
}

static int open_dirs(struct local *l, struct err *e) {
    int rc = l->files->mkdir(l->files->ctx, l->dir);
    if (rc)
        return err_errno(e, -rc, "cannot make %s", l->dir);
    rc = lock(l, e);
    if (!rc)
        rc = make_dir(l, l->commit_dir, "commit", e);
    if (!rc)
        rc = make_dir(l, l->snapshot_dir, "snapshot", e);
    if (!rc)
        rc = make_dir(l, l->segments.dir, "topics", e);
    if (!rc)
        rc = make_dir(l, l->trash_dir, "trash", e);
    if (rc)
        return rc;
    rc = l->files->sync_dir(l->files->ctx, l->dir);
    if (!rc)
        rc = l->files->boot(l->files->ctx, l->boot);
    return rc ? err_errno(e, -rc, "cannot prepare %s", l->dir) : 0;
}

static void local_free(struct local *l) {
    for (uint32_t i = 0; i < l->topics; i++) {
        for (uint32_t k = 0; k < l->topic[i]->conf.partitions; k++)
            part_close(&l->topic[i]->part[k]);
        topic_unref(l->topic[i]);
    }
    free(l->topic);
    if (l->view)
        view_forget(l);
    snapshot_unref(l->snap);
    for (struct doomed *d = l->doomed, *next; d; d = next) {
        next = d->next;
        free(d);
    }
    if (l->commit.fd >= 0)
        l->files->close(l->files->ctx, l->commit.fd);
    if (l->lock_fd >= 0)
        l->files->close(l->files->ctx, l->lock_fd);
    pthread_mutex_destroy(&l->mu);
    pthread_mutex_destroy(&l->view_mu);
    pthread_mutex_destroy(&l->watch_mu);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->chores);
    pthread_cond_destroy(&l->tidied);
    free(l);
}

static void stop_committer(struct local *l) {
    if (!l->has_committer)
        return;
    pthread_mutex_lock(&l->mu);
    l->stop_commits = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->mu);
    pthread_join(l->committer, NULL);
}

static void stop_janitor(struct local *l) {
    if (!l->has_janitor)
        return;
    pthread_mutex_lock(&l->mu);
    l->stop_chores = true;
    pthread_cond_signal(&l->chores);
    pthread_mutex_unlock(&l->mu);
    pthread_join(l->janitor, NULL);
}

static void local_close(struct log *log) {
    struct local *l = (struct local *)log;
    stop_committer(l);
    if (l->commit.bytes > local_tidy_bytes(l) && !l->broken) {
        commit_seal(&l->commit);
        pthread_mutex_lock(&l->mu);
        l->published_log = l->commit.number;
        l->published_bytes = 0;
        l->want_snapshot = true;
        pthread_mutex_unlock(&l->mu);
    }
    stop_janitor(l);
    local_free(l);
}

static const struct log_driver driver = {
    .close = local_close,
    .topic_create = local_create,
    .topic_delete = local_delete,
    .topic_info = local_info,
    .topic_ends = local_ends,
    .topic_list = local_list,
    .offset_at = local_offset_at,
    .reader_open = local_reader_open,
    .read = reader_read,
    .seek = reader_seek,
    .reader_close = reader_close,
    .watch = local_watch,
    .unwatch = local_unwatch,
    .commit = local_commit,
    .state_each = local_state_each,
};

static struct local *local_new(const struct log_conf *conf) {
    struct local *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    l->base.driver = &driver;
    l->files = conf->files ? conf->files : &files_real;
    l->lock_fd = -1;
    l->segments.files = l->commit.files = l->files;
    l->segments.segment_bytes = conf->segment_bytes > 0 ? conf->segment_bytes : SEGMENT_BYTES;
    l->commit_bytes = conf->commit_bytes;
    l->tend_ms = conf->tend_ms > 0 ? conf->tend_ms : TEND_MS;
    l->tombstone_ms = conf->tombstone_ms > 0 ? conf->tombstone_ms : TOMBSTONE_MS;
    l->commit.durability = conf->durability;
    l->commit.fd = -1;
    l->tail = &l->head;
    pthread_mutex_init(&l->mu, NULL);
    pthread_mutex_init(&l->view_mu, NULL);
    pthread_mutex_init(&l->watch_mu, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_condattr_t mono; /* as clock_mono_ns: the janitor waits by it */
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_cond_init(&l->chores, &mono);
    pthread_condattr_destroy(&mono);
    pthread_cond_init(&l->tidied, NULL);
    return l;
}

static int start_threads(struct local *l, struct err *e) {
    int rc = pthread_create(&l->committer, NULL, committer_run, l);
    if (!rc)
        l->has_committer = true;
    if (!rc)
        rc = pthread_create(&l->janitor, NULL, janitor_run, l);
    if (!rc)
        l->has_janitor = true;
    return rc ? err_errno(e, rc, "cannot start a thread") : 0;
}

int log_local_open(struct log **log, const struct log_conf *conf, struct err *e) {
    *log = NULL;
    if (strlen(conf->dir) >= FILES_DIR_MAX - 16) /* the names below it fit */
        return err_set(e, ERR_INPUT, "the path %.200s... is too long", conf->dir);
    struct local *l = local_new(conf);
    snprintf(l->dir, sizeof l->dir, "%s", conf->dir);
    int rc = open_dirs(l, e);
    memcpy(l->commit.dir, l->commit_dir, sizeof l->commit.dir);
    memcpy(l->commit.boot, l->boot, sizeof l->boot);
    if (!rc)
        rc = recover(l, e);
    /* Under `process` rows are in unsynced segments only: a snapshot syncs them first. */
    if (!rc && l->changed_durability && l->commit.durability == LOG_POWER)
        rc = janitor_snapshot(l, e);
    if (!rc)
        rc = start_threads(l, e);
    if (rc) {
        stop_committer(l);
        local_free(l);
        return rc;
    }
    *log = &l->base;
    return 0;
}
