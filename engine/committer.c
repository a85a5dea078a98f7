/* The committer thread: takes what is queued, writes the rows of all epochs into their segments,
 * then one frame into the commit log. */
#include "engine/crc32c.h"
#include "engine/local.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct written { /* a frame in a segment and, under power, its copy in the commit log */
    struct commit_chunk chunk;
    struct frame frame;
};

struct group {
    struct local *l;
    struct job *jobs;
    struct topic *touched;
    char *own; /* entries of the driver */
    size_t own_len, own_cap;
    struct written *written;
    uint32_t appends, n_written;
    struct iovec *iov;
    int iovs, iovs_cap;
    struct commit_frame frame;
    uint64_t first_no, last_no;
};

/* Queue: log_commit, topic calls and the janitor -> committer. Under mu. */
static void queue_job(struct local *l, struct job *j) {
    *l->tail = j;
    l->tail = &j->next;
    pthread_cond_signal(&l->work);
}

void committer_submit(struct local *l, struct job *j) {
    pthread_mutex_lock(&l->mu);
    queue_job(l, j);
    pthread_mutex_unlock(&l->mu);
}

struct job *committer_job(struct log_epoch *ep, log_done *done, void *arg) {
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        abort();
    *j = (struct job){ .kind = JOB_EPOCH, .ep = ep, .done = done, .arg = arg, .err = ERR_INIT };
    return j;
}

static void ignore_done(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    (void)arg;
    (void)outcome;
    (void)no;
    (void)e;
}

void committer_chore(struct local *l, struct log_epoch *ep) {
    queue_job(l, committer_job(ep, ignore_done, NULL));
}

void committer_swap(struct local *l, struct swap *s) {
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        abort();
    *j = (struct job){ .kind = JOB_SWAP, .swap = s };
    queue_job(l, j);
}

void swap_drop(struct swap *s) {
    segment_unref(s->old);
    segment_unref(s->new);
    topic_unref(s->part->topic);
    free(s);
}

/* Epochs that are queued, or one other job. NULL: the log is closing. */
static struct job *take(struct local *l) {
    pthread_mutex_lock(&l->mu);
    while (!l->head && !l->stop_commits)
        pthread_cond_wait(&l->work, &l->mu);
    struct job *first = l->head, **end = &first;
    size_t bytes = 0;
    int n = 0;
    while (*end && (n == 0 || ((*end)->kind == JOB_EPOCH && first->kind == JOB_EPOCH))) {
        if (n == GROUP_EPOCHS || bytes > GROUP_BYTES)
            break;
        if ((*end)->kind == JOB_EPOCH)
            bytes += (*end)->ep->bytes;
        n++;
        end = &(*end)->next;
    }
    if (first) {
        l->head = *end;
        if (!l->head)
            l->tail = &l->head;
        *end = NULL;
    }
    pthread_mutex_unlock(&l->mu);
    return first;
}

/* ---- entries of the driver ---- */

static void own_put(struct group *g, const void *key, uint32_t klen, const void *value,
                    uint32_t vlen) {
    size_t need = g->own_len + 8 + klen + vlen;
    if (need > g->own_cap) {
        g->own_cap = need > 512 ? 2 * need : 1024;
        g->own = realloc(g->own, g->own_cap);
        if (!g->own)
            abort();
    }
    uint32_t head[2] = { klen, value ? vlen : LOG_NULL };
    char *p = g->own + g->own_len;
    memcpy(p, head, 8);
    memcpy(p + 8, key, klen);
    if (value)
        memcpy(p + 8 + klen, value, vlen);
    g->own_len = need;
}

static void own_parts(struct group *g) {
    for (struct topic *t = g->touched; t; t = t->next_touched)
        for (uint32_t i = 0; i < t->conf.partitions; i++) {
            const struct part *p = &t->part[i];
            if (!p->touched)
                continue;
            char key[KEY_PART_LEN];
            struct part_value v = { p->next.begin, p->next.end,      p->next.base,
                                    p->next.bytes, p->next.time_max, p->from_base };
            part_key(key, t->id, i);
            own_put(g, key, sizeof key, &v, sizeof v);
        }
}

/* ---- the commit frame ---- */

static void iov_add(struct group *g, const void *p, size_t len) {
    if (len == 0)
        return;
    if (g->iovs == g->iovs_cap) {
        g->iovs_cap = g->iovs_cap ? 2 * g->iovs_cap : 64;
        g->iov = realloc(g->iov, (size_t)g->iovs_cap * sizeof *g->iov);
        if (!g->iov)
            abort();
    }
    g->iov[g->iovs++] = (struct iovec){ .iov_base = (void *)(uintptr_t)p, .iov_len = len };
}

static void add_entries(struct group *g, const char *p, size_t len) {
    iov_add(g, p, len);
    g->frame.entries = crc32c(g->frame.entries, p, len);
    g->frame.entries_len += len;
}

static void add_chunks(struct group *g) {
    uint32_t k = 0;
    for (struct job *j = g->jobs; j; j = j->next) {
        if (j->kind != JOB_EPOCH || j->refused)
            continue;
        for (uint32_t i = 0; i < j->ep->n; i++) {
            struct written *w = &g->written[k++];
            struct iovec v[FRAME_VECTORS];
            int n = frame_vectors(&w->frame, j->ep->append[i].buf, v);
            commit_chunk_seal(&w->chunk);
            iov_add(g, &w->chunk, sizeof w->chunk);
            for (int x = 0; x < n; x++)
                iov_add(g, v[x].iov_base, v[x].iov_len);
            g->frame.chunks_len += sizeof w->chunk + (uint64_t)w->chunk.len;
        }
    }
}

/* Offsets that are part of the state: known since the rows are in the segments. */
static void put_offsets(struct log_epoch *ep, const struct written *w) {
    for (uint32_t i = 0; i < ep->offsets; i++) {
        int64_t first = w[ep->offset[i].append].frame.first;
        memcpy(ep->state + ep->offset[i].at, &first, sizeof first);
    }
}

/* Writes the frame; everything before it is in the segments. */
static int write_frame(struct group *g, bool *unknown) {
    static const char zeros[8];
    struct local *l = g->l;
    g->frame = (struct commit_frame){ .first_no = g->first_no, .last_no = g->last_no };
    g->iovs = 0;
    iov_add(g, &g->frame, sizeof g->frame);
    uint32_t k = 0;
    for (struct job *j = g->jobs; j; j = j->next) {
        if (j->kind != JOB_EPOCH || j->refused)
            continue;
        put_offsets(j->ep, g->written + k);
        add_entries(g, j->ep->state, j->ep->state_len);
        k += j->ep->n;
    }
    own_parts(g);
    add_entries(g, g->own, g->own_len);
    size_t pad = (size_t)pad8((int64_t)g->frame.entries_len) - g->frame.entries_len;
    iov_add(g, zeros, pad);
    g->frame.entries = crc32c(g->frame.entries, zeros, pad);
    if (l->commit.durability == LOG_POWER)
        add_chunks(g);
    commit_frame_seal(&g->frame);
    int64_t len = 0;
    for (int i = 0; i < g->iovs; i++)
        len += (int64_t)g->iov[i].iov_len;
    return commit_write(&l->commit, g->iov, g->iovs, len, unknown);
}

/* ---- a group of epochs ---- */

/* Finds the topics of an epoch; one that names a missing topic is refused alone. */
static void resolve(struct local *l, struct job *j) {
    const struct log_epoch *ep = j->ep;
    j->topic = malloc((ep->n + 1) * sizeof *j->topic);
    if (!j->topic)
        abort();
    for (uint32_t i = 0; i < ep->n; i++) {
        const struct epoch_append *a = &ep->append[i];
        bool same = i > 0 && a->topic == ep->append[i - 1].topic;
        struct topic *t = same ? j->topic[i - 1] : local_topic(l, ep->names + a->topic);
        j->topic[i] = t;
        if (t && a->partition < t->conf.partitions)
            continue;
        j->refused = true;
        if (t)
            err_set(&j->err, ERR_NOTFOUND, "topic %s has no partition %" PRIu32, t->name,
                    a->partition);
        else
            err_set(&j->err, ERR_NOTFOUND, "no topic %s", ep->names + a->topic);
        return;
    }
}

static void touch(struct group *g, struct topic *t) {
    if (t->touched)
        return;
    t->touched = true;
    t->grown = false;
    t->next_touched = g->touched;
    g->touched = t;
}

static int append_one(struct group *g, struct topic *t, const struct epoch_append *a,
                      struct err *e) {
    struct part *p = &t->part[a->partition];
    struct written *w = &g->written[g->n_written++];
    touch(g, t);
    t->grown = true;
    w->chunk = (struct commit_chunk){ .topic = t->id, .partition = a->partition };
    int rc = part_append(p, a->buf, a->time, &w->frame, &w->chunk.at);
    if (!rc) {
        w->chunk.base = p->active->base;
        w->chunk.prev = p->active->prev;
    }
    w->chunk.len = frame_bytes(&w->frame);
    return rc ? err_errno(e, -rc, "cannot write to topic %s", t->name) : 0;
}

/* Behind its own rows and before those of the next epoch: "to the end" is the end of this one. */
static void trim_all(struct group *g, const struct log_epoch *ep) {
    for (uint32_t i = 0; i < ep->trims; i++) {
        const struct epoch_trim *m = &ep->trim[i];
        struct topic *t = local_topic(g->l, ep->names + m->topic);
        if (!t || m->partition >= t->conf.partitions || (m->id && m->id != t->id))
            continue;
        touch(g, t);
        part_trim(&t->part[m->partition], m->offset);
    }
}

static int append_all(struct group *g, struct err *e) {
    for (struct job *j = g->jobs; j; j = j->next)
        if (!j->refused)
            g->appends += j->ep->n;
    g->written = malloc((g->appends + 1) * sizeof *g->written);
    if (!g->written)
        abort();
    for (struct job *j = g->jobs; j; j = j->next) {
        if (j->refused)
            continue;
        for (uint32_t i = 0; i < j->ep->n; i++) {
            int rc = append_one(g, j->topic[i], &j->ep->append[i], e);
            if (rc)
                return rc;
        }
        trim_all(g, j->ep);
    }
    return 0;
}

/* Into the trash at once, deleted by the janitor. */
static void drop_segment(void *local, const struct part *p, int64_t base) {
    struct local *l = local;
    const struct log_files *f = l->files;
    char path[FILES_PATH_MAX], to[FILES_PATH_MAX];
    if (segment_path(p, base, path))
        return;
    int n = snprintf(to, sizeof to, "%s/%" PRIu32 ".%" PRIu32 ".%" PRId64, l->trash_dir,
                     p->topic->id, p->number, base);
    if (n > 0 && n < (int)sizeof to && !f->rename(f->ctx, path, to))
        local_doom(l, to);
    else
        f->unlink(f->ctx, path);
}

static void touched_done(struct group *g, enum log_outcome outcome) {
    for (struct topic *t = g->touched; t; t = t->next_touched) {
        t->touched = false;
        for (uint32_t i = 0; i < t->conf.partitions; i++) {
            struct part *p = &t->part[i];
            if (!p->touched)
                continue;
            if (outcome == LOG_COMMITTED)
                part_publish(p, drop_segment, g->l);
            else
                part_abort(p, outcome == LOG_ABORTED);
        }
    }
}

/* What log_state_each may read from now on. */
static void publish_commit(struct group *g) {
    struct local *l = g->l;
    l->last_no = g->last_no;
    pthread_mutex_lock(&l->mu);
    l->published_no = g->last_no;
    l->published_log = l->commit.number;
    l->published_bytes = l->commit.bytes;
    pthread_mutex_unlock(&l->mu);
    view_forget(l);
}

static void firsts(struct group *g) {
    uint32_t k = 0;
    for (struct job *j = g->jobs; j; j = j->next) {
        if (j->refused)
            continue;
        for (uint32_t i = 0; i < j->ep->n; i++, k++)
            if (j->ep->append[i].first)
                *j->ep->append[i].first = g->written[k].frame.first;
    }
}

static void wake_list(struct log_watch *w) {
    for (; w; w = w->next)
        w->wake(w->arg);
}

static void wake(struct group *g) {
    struct local *l = g->l;
    bool grown = false;
    pthread_mutex_lock(&l->watch_mu);
    for (struct topic *t = g->touched; t; t = t->next_touched)
        if (t->grown) {
            wake_list(t->watches);
            grown = true;
        }
    if (grown)
        wake_list(l->watch_any);
    pthread_mutex_unlock(&l->watch_mu);
}

static int64_t commit_limit(struct local *l) {
    if (l->commit_bytes > 0)
        return l->commit_bytes;
    pthread_mutex_lock(&l->mu);
    int64_t limit = l->snap_size;
    pthread_mutex_unlock(&l->mu);
    if (limit < COMMIT_BYTES_MIN)
        limit = COMMIT_BYTES_MIN;
    return limit < COMMIT_BYTES_MAX ? limit : COMMIT_BYTES_MAX;
}

/* Seals the commit log when it is long enough; the janitor merges it into the snapshot. */
static void maybe_seal(struct local *l) {
    if (l->commit.bytes < commit_limit(l))
        return;
    commit_seal(&l->commit);
    pthread_mutex_lock(&l->mu);
    l->published_log = l->commit.number;
    l->published_bytes = 0;
    l->want_snapshot = true;
    pthread_cond_signal(&l->chores);
    pthread_mutex_unlock(&l->mu);
}

/* The disk space of commit logs is bounded: beyond it, commits wait for the janitor, and are
 * refused when it cannot write a snapshot. */
static int wait_for_janitor(struct local *l, struct err *e) {
    int rc = 0;
    pthread_mutex_lock(&l->mu);
    if (l->commit.number - l->snap_number > SEALED_MAX) {
        l->want_snapshot = true;
        pthread_cond_signal(&l->chores);
        while (l->want_snapshot || l->making_snapshot)
            pthread_cond_wait(&l->tidied, &l->mu);
        if (l->commit.number - l->snap_number > SEALED_MAX) {
            if (e)
                *e = l->snapshot_err;
            rc = l->snapshot_err.code ? l->snapshot_err.code : ERR_SYSTEM;
        }
    }
    pthread_mutex_unlock(&l->mu);
    return rc;
}

static int admit(struct local *l, struct err *e) {
    if (!l->broken)
        return wait_for_janitor(l, e);
    *e = l->broken_err;
    return ERR_SYSTEM;
}

/* A commit can be neither finished nor taken back: from here on only an open tells what is on disk,
 * so nothing may come behind it. `e`, why, becomes what everybody is told. */
static void break_off(struct local *l, struct err *e) {
    l->broken = true;
    err_set(&l->broken_err, ERR_SYSTEM,
            "the log takes no more commits until it is opened again: the outcome of one is not "
            "known (%.500s)",
            e->text);
    *e = l->broken_err;
}

static enum log_outcome commit_group(struct group *g, struct err *e) {
    struct local *l = g->l;
    bool unknown = false;
    int rc = admit(l, e);
    if (rc)
        return LOG_ABORTED;
    rc = append_all(g, e);
    if (!rc) {
        int sys = write_frame(g, &unknown);
        if (sys)
            rc = err_errno(e, -sys, "cannot write the commit log");
    }
    if (!rc) {
        touched_done(g, LOG_COMMITTED);
        publish_commit(g);
        return LOG_COMMITTED;
    }
    if (unknown)
        break_off(l, e);
    enum log_outcome outcome = unknown ? LOG_UNKNOWN : LOG_ABORTED;
    touched_done(g, outcome);
    return outcome;
}

static void group_free(struct group *g) {
    free(g->own);
    free(g->written);
    free(g->iov);
}

static void number_epochs(struct group *g) {
    g->last_no = g->l->last_no;
    g->first_no = g->last_no + 1;
    for (struct job *j = g->jobs; j; j = j->next) {
        resolve(g->l, j);
        if (!j->refused)
            j->no = ++g->last_no;
    }
}

static void run_epochs(struct local *l, struct job *jobs) {
    struct group g = { .l = l, .jobs = jobs };
    struct err e = ERR_INIT;
    enum log_outcome outcome = LOG_ABORTED;
    number_epochs(&g);
    if (g.last_no >= g.first_no)
        outcome = commit_group(&g, &e);
    if (outcome == LOG_COMMITTED)
        firsts(&g);
    for (struct job *j = jobs, *next; j; j = next) {
        next = j->next;
        bool ok = outcome == LOG_COMMITTED && !j->refused;
        j->done(j->arg, j->refused ? LOG_ABORTED : outcome, ok ? j->no : 0,
                ok           ? NULL
                : j->refused ? &j->err
                             : &e);
        log_epoch_drop(j->ep);
        free(j->topic);
        free(j);
    }
    if (outcome == LOG_COMMITTED) {
        wake(&g);
        maybe_seal(l);
    }
    group_free(&g);
}

/* ---- topics ---- */

/* Writes a commit frame of the driver's own entries. */
static int commit_own(struct group *g, struct err *e) {
    struct local *l = g->l;
    bool unknown = false;
    int rc = admit(l, e);
    if (rc)
        return rc;
    g->first_no = g->last_no = l->last_no + 1;
    int sys = write_frame(g, &unknown);
    if (!sys) {
        publish_commit(g);
        return 0;
    }
    rc = err_errno(e, -sys, "cannot write the commit log");
    if (unknown)
        break_off(l, e);
    return rc;
}

static uint32_t topic_key(char key[2 + LOG_NAME_MAX], const char *name) {
    size_t len = strlen(name);
    key[0] = (char)LOG_KEY_RESERVED;
    key[1] = KEY_TOPIC;
    memcpy(key + 2, name, len);
    return (uint32_t)len + 2;
}

/* Watches of the name, from one list to another; woken. Under watch_mu. */
static void watches_move(struct log_watch **from, struct log_watch **to, const char *name) {
    while (*from) {
        struct log_watch *w = *from;
        if (strcmp(w->topic, name)) {
            from = &w->next;
            continue;
        }
        *from = w->next;
        w->next = *to;
        *to = w;
        w->wake(w->arg);
    }
}

/* The topic comes or goes, and with it its watches: whoever holds watch_mu finds a watch on the
 * list that its name says. */
static void topic_set(struct local *l, struct topic *t, bool there) {
    pthread_mutex_lock(&l->watch_mu);
    pthread_mutex_lock(&l->mu);
    if (there)
        local_topic_insert(l, t);
    else
        local_topic_remove(l, t);
    pthread_mutex_unlock(&l->mu);
    watches_move(there ? &l->watch_orphans : &t->watches, there ? &t->watches : &l->watch_orphans,
                 t->name);
    wake_list(l->watch_any);
    pthread_mutex_unlock(&l->watch_mu);
}

static int create(struct local *l, struct job *j) {
    if (local_topic(l, j->name))
        return err_set(&j->err, ERR_CONFLICT, "topic %s exists already", j->name);
    struct topic *t = topic_new(&l->segments, j->name, l->next_topic, j->conf);
    char key[2 + LOG_NAME_MAX], next[2] = { (char)LOG_KEY_RESERVED, KEY_NEXT };
    char path[FILES_PATH_MAX];
    struct topic_value v = { t->id,
                             t->conf.partitions,
                             t->conf.retention_bytes,
                             t->conf.retention_ms,
                             t->conf.compact ? TOPIC_COMPACT : 0,
                             0 };
    struct group g = { .l = l };
    uint32_t next_id = l->next_topic + 1;
    own_put(&g, next, sizeof next, &next_id, sizeof next_id);
    own_put(&g, key, topic_key(key, j->name), &v,
            v.retention_ms || v.flags ? sizeof v : (uint32_t)TOPIC_VALUE_SHORT);
    int sys = topic_path(t, path);
    if (!sys)
        sys = files_remove(l->files, path); /* nothing is left of a namesake */
    if (!sys)
        sys = topic_make(t, l->commit.durability == LOG_POWER);
    int rc =
        sys ? err_errno(&j->err, -sys, "cannot make topic %s", j->name) : commit_own(&g, &j->err);
    group_free(&g);
    if (rc) {
        if (!l->broken)
            files_remove(l->files, path);
        topic_unref(t);
        return rc;
    }
    l->next_topic++;
    topic_set(l, t, true);
    return 0;
}

/* Out of the way of a namesake at once, deleted by the janitor. */
static void trash(struct local *l, struct topic *t) {
    char path[FILES_PATH_MAX], to[FILES_PATH_MAX];
    for (uint32_t i = 0; i < t->conf.partitions; i++)
        part_close(&t->part[i]);
    if (topic_path(t, path))
        return;
    int n = snprintf(to, sizeof to, "%s/%" PRIu32, l->trash_dir, t->id);
    if (n > 0 && n < (int)sizeof to && !l->files->rename(l->files->ctx, path, to))
        local_doom(l, to);
}

static int delete (struct local *l, struct job *j) {
    struct topic *t = local_topic(l, j->name);
    if (!t)
        return err_set(&j->err, ERR_NOTFOUND, "no topic %s", j->name);
    struct group g = { .l = l };
    char key[2 + LOG_NAME_MAX];
    own_put(&g, key, topic_key(key, j->name), NULL, 0);
    for (uint32_t i = 0; i < t->conf.partitions; i++) {
        part_key(key, t->id, i);
        own_put(&g, key, KEY_PART_LEN, NULL, 0);
    }
    int rc = commit_own(&g, &j->err);
    group_free(&g);
    if (rc)
        return rc;
    topic_set(l, t, false);
    trash(l, t);
    topic_unref(t);
    return 0;
}

static void run_topic(struct local *l, struct job *j) {
    int rc = j->kind == JOB_CREATE ? create(l, j) : delete (l, j);
    pthread_mutex_lock(&l->mu);
    j->rc = rc;
    j->ready = true;
    pthread_cond_broadcast(&l->ready);
    pthread_mutex_unlock(&l->mu);
}

void *committer_run(void *local) {
    struct local *l = local;
    for (struct job *j; (j = take(l));) {
        if (j->kind == JOB_EPOCH) {
            run_epochs(l, j);
        } else if (j->kind == JOB_SWAP) {
            part_swap(j->swap->part, j->swap->old, j->swap->new);
            swap_drop(j->swap);
            free(j);
        } else {
            run_topic(l, j);
        }
    }
    return NULL;
}
