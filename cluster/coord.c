#include "cluster/coord.h"
#include "cluster/coord_impl.h"
#include "cluster/dlq.h"
#include "cluster/events.h"
#include "cluster/ingest.h"
#include "cluster/stats.h"
#include "engine/clock.h"
#include "engine/spill.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HISTORY_SLOTS = 64, SECRET_MAX = 64 << 10 };

void coord_conf(struct coord *c, struct coord_conf *conf) {
    *conf = c->conf;
    conf->dir = c->dir;
}
struct log *coord_log(struct coord *c) {
    return c->log;
}
struct filestore *coord_files(struct coord *c) {
    return c->files;
}
struct executor *coord_executor(struct coord *c) {
    return c->executor;
}
struct events *coord_events(struct coord *c) {
    return c->events;
}
struct ingest *coord_ingest(struct coord *c) {
    return c->ingest;
}

/* ---- the lock, and what the executor has freed ---- */

void change_freed(void *arg, uint64_t instance) {
    struct coord *c = arg;
    pthread_mutex_lock(&c->freed_lock);
    if (c->nfreed == c->freed_cap) {
        c->freed_cap = c->freed_cap ? 2 * c->freed_cap : 64;
        c->freed = realloc(c->freed, c->freed_cap * sizeof *c->freed);
        if (!c->freed)
            abort();
    }
    c->freed[c->nfreed++] = instance;
    pthread_mutex_unlock(&c->freed_lock);
}

void coord_lock(struct coord *c) {
    pthread_mutex_lock(&c->plan_lock);
    pthread_mutex_lock(&c->freed_lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->nfreed; i++) {
        const struct inst *in = plan_instance(c->plan, c->freed[i]);
        if (in && in->state != INST_GONE) /* its change is not committed in the plan yet */
            c->freed[kept++] = c->freed[i];
        else
            plan_freed(c->plan, c->freed[i]);
    }
    c->nfreed = kept;
    pthread_mutex_unlock(&c->freed_lock);
}

void coord_unlock(struct coord *c) {
    pthread_mutex_unlock(&c->plan_lock);
}

/* ---- dataflows ---- */

struct dataflow *coord_dataflow(const struct coord *c, const char *name) {
    struct dataflow *d = c->first;
    while (d && strcmp(d->name, name) != 0)
        d = d->next;
    return d;
}

struct dataflow *coord_add(struct coord *c, const struct journal_flow *f) {
    struct arena a = { .chunk = sizeof(struct dataflow) + 512 };
    struct dataflow *d = ARENA_NEW(&a, struct dataflow);
    d->serial = f->serial;
    d->name = arena_strdup(&a, f->name);
    d->file = arena_strdup(&a, f->file);
    d->description = arena_strdup(&a, f->description);
    d->submitted_ms = f->submitted_ms;
    d->prev = c->last;
    *(c->last ? &c->last->next : &c->first) = d;
    c->last = d;
    c->ndataflows++;
    d->arena = a;
    return d;
}

void coord_drop(struct coord *c, struct dataflow *d) {
    *(d->prev ? &d->prev->next : &c->first) = d->next;
    *(d->next ? &d->next->prev : &c->last) = d->prev;
    c->ndataflows--;
    struct arena a = d->arena;
    arena_free(&a);
}

/* ---- histories ---- */

static struct history_entry **history_slot(const struct coord *c, uint64_t instance) {
    struct history_entry **p =
        &c->history[(instance * 0x9e3779b97f4a7c15u >> 32) & c->history_mask];
    while (*p && (*p)->instance != instance)
        p = &(*p)->next;
    return p;
}

static void history_grow(struct coord *c) {
    struct history_entry **old = c->history;
    uint32_t n = c->history_mask + 1;
    c->history_mask = 2 * n - 1;
    c->history = calloc(2 * (size_t)n, sizeof *c->history);
    if (!c->history)
        abort();
    for (uint32_t i = 0; i < n; i++)
        for (struct history_entry *h = old[i], *next; h; h = next) {
            next = h->next;
            h->next = NULL;
            *history_slot(c, h->instance) = h;
        }
    free(old);
}

void coord_history_drop(struct coord *c, uint64_t instance) {
    struct history_entry **p = history_slot(c, instance), *h = *p;
    if (!h)
        return;
    *p = h->next;
    free(h->topic);
    free(h);
    c->nhistory--;
}

void coord_history_set(struct coord *c, const struct journal_history *j) {
    coord_history_drop(c, j->instance);
    if (c->nhistory > c->history_mask)
        history_grow(c);
    struct history_entry *h = calloc(1, sizeof *h);
    if (!h || !(h->topic = strdup(j->topic)))
        abort();
    h->instance = j->instance;
    h->offset = j->offset;
    *history_slot(c, j->instance) = h;
    c->nhistory++;
}

const struct history_entry *coord_history(const struct coord *c, uint64_t instance) {
    return *history_slot(c, instance);
}

/* ---- what a spec may ask for ---- */

static const char *secret_text(struct coord_env *ce, const char *name) {
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/secrets/%s", ce->c->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= SECRET_MAX) {
        text = arena_alloc(ce->arena, (size_t)st.st_size + 1);
        ssize_t n = read(fd, text, (size_t)st.st_size);
        n = n < 0 ? 0 : n;
        n -= n > 0 && text[n - 1] == '\n';
        text[n] = '\0';
    }
    close(fd);
    return text;
}

static const char *env_var(void *user, const char *name, bool secret) {
    struct coord_env *ce = user;
    if (secret)
        return secret_text(ce, name);
    for (int i = 0; i < ce->nvars; i++)
        if (strcmp(ce->vars[i].name, name) == 0)
            return ce->vars[i].text;
    return NULL;
}

static int env_file(void *user, const char *name, struct file *f, struct err *e) {
    struct coord_env *ce = user;
    for (int i = 0; i < ce->nfiles; i++)
        if (strcmp(ce->files[i].name, name) == 0) {
            f->name = arena_strdup(ce->arena, name);
            return filestore_get(ce->c->files, ce->files[i].text, f, e);
        }
    return err_set(e, ERR_INPUT, "the file '%.200s' did not come with the dataflow", name);
}

static int env_partitions(void *user, const char *topic) {
    struct log_topic_info info;
    struct coord_env *ce = user;
    return log_topic_info(ce->c->log, topic, &info, NULL) < 0 ? 0 : (int)info.conf.partitions;
}

void coord_spec_env(struct coord_env *ce, struct spec_env *env) {
    *env = (struct spec_env){
        .user = ce, .var = env_var, .file = env_file, .partitions = env_partitions
    };
}

void coord_topic_use(struct coord *c, const char *name, struct coord_topic_use *use) {
    *use = (struct coord_topic_use){ .append = true };
    coord_lock(c);
    struct topic *t = model_topic(c->plan, name);
    for (const struct inst *in = t->readers; in; in = in->topic_next, use->readers++)
        snprintf(use->reader, sizeof use->reader, "%s", in->uses ? in->uses->flow->name : "?");
    for (const struct inst *in = t->writers; in; in = in->topic_next, use->writers++) {
        use->append &= in->append;
        snprintf(use->writer, sizeof use->writer, "%s", in->uses ? in->uses->flow->name : "?");
    }
    model_topic_done(c->plan, t);
    coord_unlock(c);
}

/* ---- restart ---- */

/* Every stage was bound to the instance that it had. */
static bool same_plan(const struct coord *c, const struct journal_flow *f) {
    struct sbuf now = { 0 };
    plan_save(c->plan, plan_find(c->plan, f->name), &now);
    bool same = now.len == f->plan_len && memcmp(now.p, f->plan, now.len) == 0;
    sbuf_free(&now);
    return same;
}

static int restore_flow(struct coord *c, const struct journal_flow *f, struct err *e) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct spec spec;
    struct spec_env env;
    struct coord_env ce = { c, f->nfiles, f->nvars, f->files, f->vars, &a };
    struct plan_cut cut = { f->cut, f->submitted_ms };
    coord_spec_env(&ce, &env);
    int rc = spec_parse(&spec, *f->file ? f->file : f->name, f->text, f->len, &env, &a, &es, NULL);
    if (rc == 0)
        rc = plan_restore(c->plan, &spec, f->plan, f->plan_len, &cut, &es);
    if (rc == 0 && !same_plan(c, f)) {
        rc = err_set(e, ERR_SYSTEM,
                     "dataflow '%s' cannot be brought back: a task of it means something else in "
                     "this version of Braid, so its state does not fit; remove it with the version "
                     "that ran it, and submit it again here",
                     f->name);
    } else if (rc == 0) {
        coord_add(c, f);
    } else {
        char text[sizeof e->text];
        err_format(&es.v[0], text, sizeof text);
        rc = err_set(e, ERR_SYSTEM, "dataflow '%s' cannot be brought back: %.600s", f->name, text);
    }
    errs_free(&es);
    arena_free(&a);
    return rc;
}

static int restore(struct coord *c, struct err *e) {
    struct arena a = { 0 };
    struct journal j;
    int rc = journal_read(&j, c->log, &a, e);
    if (rc == 0) {
        c->cut = j.meta.cut;
        c->serial = j.meta.serial;
        plan_set_next(c->plan, j.meta.version, j.meta.next_instance);
    }
    for (int i = 0; i < j.nflows && rc == 0; i++)
        rc = restore_flow(c, &j.flows[i], e);
    for (int i = 0; i < j.nhistory && rc == 0; i++)
        coord_history_set(c, &j.history[i]);
    if (rc == 0)
        rc = executor_restore(c->executor, plan_change(c->plan), e);
    if (rc == 0)
        plan_commit(c->plan);
    arena_free(&a);
    return rc;
}

/* ---- open and close ---- */

static void locks_init(struct coord *c) {
    pthread_condattr_t attr;
    pthread_mutex_init(&c->change_lock, NULL);
    pthread_mutex_init(&c->plan_lock, NULL);
    pthread_mutex_init(&c->dlq_lock, NULL);
    pthread_mutex_init(&c->wait_lock, NULL);
    pthread_mutex_init(&c->freed_lock, NULL);
    pthread_mutex_init(&c->stats_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wait_cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* Those that this process may use. */
static uint32_t cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : n > EXECUTOR_LANES_MAX ? EXECUTOR_LANES_MAX : (uint32_t)n;
}

static int open_parts(struct coord *c, struct err *e) {
    struct log_conf lc = { .dir = c->dir,
                           .durability = c->conf.durability,
                           .segment_bytes = c->conf.segment_bytes,
                           .files = c->conf.files };
    char out_dir[4096];
    struct err note = ERR_INIT;
    int rc = log_open(&c->log, &lc, e);
    if (rc < 0)
        return rc;
    if (e)
        note = *e;
    if (c->conf.state_memory && c->conf.state_memory < (int64_t)SPILL_BUDGET_MIN)
        return err_set(e, ERR_INPUT, "state-memory is at least %zu MiB, or 0 for all in memory",
                       SPILL_BUDGET_MIN >> 20);
    if (c->conf.state_memory &&
        (rc = spill_open(&c->spill, c->dir, (size_t)c->conf.state_memory, e)) < 0)
        return rc;
    snprintf(out_dir, sizeof out_dir, "%s/out", c->dir);
    struct executor_conf xc = { .log = c->log,
                                .lanes = c->conf.executors ? c->conf.executors : cores(),
                                .out_dir = strdup(out_dir),
                                .files = c->conf.files,
                                .align_bytes = c->conf.align_bytes,
                                .spill = c->spill,
                                .sync_files = c->conf.durability == LOG_POWER };
    c->out_dir = (char *)xc.out_dir;
    if ((rc = filestore_open(&c->files, c->dir, c->conf.durability == LOG_POWER, e)) < 0 ||
        (rc = ingest_open(&c->ingest, c->log, c->conf.producers, e)) < 0 ||
        (rc = executor_new(&c->executor, &xc, e)) < 0 || (rc = dlq_open(&c->dlq, c->log, e)) < 0 ||
        (rc = restore(c, e)) < 0)
        return rc;
    if (!c->conf.threadless && (rc = executor_start(c->executor, e)) < 0)
        return rc;
    if (e)
        *e = note;
    return 0;
}

int coord_open(struct coord **out, const struct coord_conf *conf, struct err *e) {
    struct coord *c = calloc(1, sizeof *c);
    if (!c)
        return err_errno(e, ENOMEM, "coordinator");
    c->conf = *conf;
    c->dir = strdup(conf->dir);
    c->started_ms = clock_wall_ms();
    c->plan = plan_new();
    c->events = events_new();
    c->history_mask = HISTORY_SLOTS - 1;
    c->history = calloc(HISTORY_SLOTS, sizeof *c->history);
    locks_init(c);
    if (!c->dir || !c->history)
        abort();
    int rc = open_parts(c, e);
    if (rc < 0) {
        coord_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void coord_stopping(struct coord *c) {
    pthread_mutex_lock(&c->wait_lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->wait_cond);
    pthread_mutex_unlock(&c->wait_lock);
    events_stop(c->events);
}

void coord_close(struct coord *c) {
    if (c->executor) {
        executor_stop(c->executor);
        executor_free(c->executor);
    }
    spill_close(c->spill);
    ingest_close(c->ingest);
    dlq_close(c->dlq);
    if (c->log)
        log_close(c->log);
    pending_free(c->pending);
    while (c->first)
        coord_drop(c, c->first);
    for (uint32_t i = 0; i <= c->history_mask; i++)
        while (c->history[i])
            coord_history_drop(c, c->history[i]->instance);
    plan_free(c->plan);
    filestore_close(c->files);
    events_free(c->events);
    stats_unref(c->stats);
    free(c->history);
    free(c->freed);
    free(c->out_dir);
    free(c->dir);
    pthread_mutex_destroy(&c->change_lock);
    pthread_mutex_destroy(&c->plan_lock);
    pthread_mutex_destroy(&c->dlq_lock);
    pthread_mutex_destroy(&c->wait_lock);
    pthread_mutex_destroy(&c->freed_lock);
    pthread_mutex_destroy(&c->stats_lock);
    pthread_cond_destroy(&c->wait_cond);
    free(c);
}
