#include "engine/change.h"
#include "engine/clock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

enum { RETRY_MS_FIRST = 100, RETRY_MS_LAST = 5000, STATE_KEY_HEAD = 12, TICK_SHRINK = 8 };

struct executor {
    struct executor_conf conf;
    struct lanes lanes;
    /* the running epoch, beside its parts in the lanes */
    bool dirty;
    int64_t opened_ns;
    struct executor_change *waiting; /* not applied yet, oldest first */
    struct executor_change *changes; /* of the running epoch, oldest first */
    /* the committing epoch */
    bool committing;
    struct executor_change *committing_changes;
    void (*freed)(void *arg, uint64_t instance);
    void *freed_arg;
    int64_t retry_at_ns, retry_ms;
    struct sbuf graves;           /* keys to remove: u32 length, bytes */
    size_t grave_at, graves_done; /* up to where they are in an epoch, in a committed one */
    bool inject_abort;
    /* shared with the committer and callers */
    uv_mutex_t mutex;
    uv_cond_t cond;
    bool outcome_ready;
    enum log_outcome outcome;
    struct err outcome_err;
    uint64_t outcome_no;
    struct executor_change *inbox, **inbox_end;
    struct visit *visits;
    struct executor_health health;
    bool stopping;
    /* thread */
    bool threaded;
    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_idle_t idle;
    uv_timer_t timer;
    struct log_watch *watch;
};
struct visit {
    void (*fn)(void *, struct exec *);
    void *arg;
    bool done;
    struct visit *next;
};

/* ---- epochs ---- */

static int64_t now_ns(void) {
    return clock_mono_ns();
}

/* Where plan records and removed keys of the running epoch go. */
static struct log_epoch *own_epoch(struct executor *x) {
    return lane_epoch(&x->lanes.lane[0]);
}

static void wake_loop(struct executor *x) {
    if (x->threaded)
        uv_async_send(&x->wake);
}

static void on_commit(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    struct executor *x = arg;
    uv_mutex_lock(&x->mutex);
    x->outcome = outcome;
    x->outcome_no = no;
    if (e)
        x->outcome_err = *e;
    x->outcome_ready = true;
    uv_cond_broadcast(&x->cond);
    wake_loop(x); /* inside the lock: once the outcome is taken, the loop may be closed */
    uv_mutex_unlock(&x->mutex);
}

static void state_key(char *out, uint64_t instance, uint32_t partition, int table) {
    out[0] = 'S';
    for (int i = 0; i < 8; i++)
        out[1 + i] = (char)(instance >> (56 - 8 * i));
    out[9] = (char)(partition >> 8);
    out[10] = (char)partition;
    out[11] = (char)table;
}

static void put_state(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                      const void *value, uint32_t vlen) {
    struct shard *sh = arg;
    char buf[256], *k = buf;
    if (STATE_KEY_HEAD + klen > sizeof buf && !(k = malloc(STATE_KEY_HEAD + klen)))
        abort();
    state_key(k, instance, sh->no, table);
    if (klen)
        memcpy(k + STATE_KEY_HEAD, key, klen);
    sh->lane->overflow |=
        log_epoch_state(lane_epoch(sh->lane), k, STATE_KEY_HEAD + klen, value, vlen) < 0;
    if (k != buf)
        free(k);
}

static void put_graves(struct executor *x) {
    size_t end = x->grave_at + EXECUTOR_EPOCH_BYTES;
    for (int n = 0; n < EXECUTOR_TOMBSTONES && x->grave_at < x->graves.len && x->grave_at < end;
         n++) {
        uint32_t len;
        memcpy(&len, x->graves.p + x->grave_at, 4);
        x->lanes.lane[0].overflow |=
            log_epoch_state(own_epoch(x), x->graves.p + x->grave_at + 4, len, NULL, 0) < 0;
        x->grave_at += 4 + (size_t)len;
    }
}

static void changes_append(struct executor_change **list, struct executor_change *c) {
    while (*list)
        list = &(*list)->next;
    *list = c;
}

static bool stopping(struct executor *x) {
    uv_mutex_lock(&x->mutex);
    bool stop = x->stopping;
    uv_mutex_unlock(&x->mutex);
    return stop;
}

static void fail(struct executor *x, const struct err *e) {
    uv_mutex_lock(&x->mutex);
    x->health.failed = true;
    x->health.err = *e;
    uv_cond_broadcast(&x->cond);
    uv_mutex_unlock(&x->mutex);
}

static void epochs_push(struct executor *x) {
    for (uint32_t i = 0; i < x->lanes.nshards; i++) {
        struct exec *ex = x->lanes.shard[i]->ex;
        undo_push(exec_undo(ex));
        exec_epoch_push(ex);
    }
}

static void epoch_abort(struct executor *x);

static void epoch_close(struct executor *x) {
    struct err e = ERR_INIT;
    struct lanes *ls = &x->lanes;
    own_epoch(x);
    put_graves(x);
    if (lanes_close_epoch(ls, put_state, &e) < 0) {
        epochs_push(x);
        x->committing = true;
        on_commit(x, LOG_ABORTED, 0, &e);
        return;
    }
    if (ls->lane[0].overflow && ls->tick_rows > 1) { /* again, and less at once */
        ls->tick_rows = ls->tick_rows / TICK_SHRINK ? ls->tick_rows / TICK_SHRINK : 1;
        epochs_push(x);
        epoch_abort(x);
        return;
    }
    if (ls->lane[0].overflow) { /* better to stop than to lose rows */
        err_set(
            &e, ERR_SYSTEM,
            "what one row causes in all tasks is more than %zu MiB of rows and state, such as a "
            "window with very many groups or a very large record in very many sinks",
            ls->conf.epoch_bytes >> 20);
        fail(x, &e);
        return;
    }
    epochs_push(x);
    for (uint32_t i = 0; i < ls->nshards; i++)
        ports_push(&ls->shard[i]->ports);
    x->committing = true;
    x->committing_changes = x->changes;
    x->changes = NULL;
    x->dirty = false;
    struct log_epoch *ep = own_epoch(x);
    ls->lane[0].epoch = NULL;
    for (uint32_t i = 0; i < ls->n; i++)
        ls->lane[i].dirty = false;
    if (x->inject_abort) {
        x->inject_abort = false;
        log_epoch_drop(ep);
        err_set(&e, ERR_SYSTEM, "abort injected by a test");
        on_commit(x, LOG_ABORTED, 0, &e);
        return;
    }
    log_commit(ep, on_commit, x);
}

/* ---- outcomes ---- */

struct burial {
    struct executor *x;
    uint32_t partition;
};

static void bury(const struct burial *b, uint64_t instance, int table, const void *key,
                 uint32_t klen) {
    struct sbuf *graves = &b->x->graves;
    char head[STATE_KEY_HEAD];
    uint32_t len = STATE_KEY_HEAD + klen;
    state_key(head, instance, b->partition, table);
    sbuf_add(graves, &len, 4);
    sbuf_add(graves, head, sizeof head);
    sbuf_add(graves, key, klen);
}

static void bury_table(void *arg, uint64_t instance, int table, struct state *s) {
    uint64_t it = 0;
    const void *key, *value;
    uint32_t klen, vlen;
    while (state_next(s, &it, &key, &klen, &value, &vlen))
        bury(arg, instance, table, key, klen);
}

static void on_freed(void *arg, uint64_t instance) {
    struct executor *x = arg;
    if (x->freed)
        x->freed(x->freed_arg, instance);
}

/* Partition 0 last: with it an instance is gone everywhere. */
static void free_removed(struct executor *x, const struct executor_change *c) {
    x->freed = c->freed;
    x->freed_arg = c->arg;
    for (uint32_t s = x->lanes.nshards; s-- > 0;) {
        struct shard *sh = x->lanes.shard[s];
        struct burial b = { x, s };
        for (int i = 0; i < c->change.nremove; i++) {
            struct task *t = exec_find(sh->ex, c->change.remove[i]);
            if (!t)
                continue;
            ports_unbind(&sh->ports, t);
            if (task_counted(t))
                bury(&b, c->change.remove[i], TABLE_COUNTS, "", 0);
        }
        exec_tables(sh->ex, c->change.version, bury_table, &b);
        exec_free_removed(sh->ex, c->change.version, s == 0 ? on_freed : NULL, x);
    }
}

static void epoch_committed(struct executor *x) {
    for (uint32_t i = 0; i < x->lanes.nshards; i++) {
        struct shard *sh = x->lanes.shard[i];
        undo_commit(exec_undo(sh->ex));
        exec_epoch_commit(sh->ex);
        ports_commit(&sh->ports);
    }
    x->committing = false;
    x->retry_ms = 0;
    if (x->lanes.tick_rows < x->conf.batch_rows)
        x->lanes.tick_rows = 2 * x->lanes.tick_rows < x->conf.batch_rows ? 2 * x->lanes.tick_rows
                                                                         : x->conf.batch_rows;
    if (x->grave_at == x->graves.len)
        x->graves.len = x->grave_at = 0;
    x->graves_done = x->grave_at;
    struct executor_change *c = x->committing_changes, *next;
    x->committing_changes = NULL;
    for (; c; c = next) {
        next = c->next;
        free_removed(x, c);
        c->done(c->arg, 0, NULL);
    }
}

/* Both open epochs are taken back; sources return to where the last commit left them. Changes stay
 * in the graph: their cuts make the second run give the same rows to the same readers. */
static void epoch_abort(struct executor *x) {
    for (uint32_t i = 0; i < x->lanes.nshards; i++) {
        struct exec *ex = x->lanes.shard[i]->ex;
        exec_epoch_abort(ex);
        undo_abort(exec_undo(ex));
        exec_rebuild(ex);
    }
    lanes_drop_epoch(&x->lanes);
    lanes_rouse(&x->lanes); /* what was read comes again, though nothing was appended */
    x->committing = x->dirty = false;
    x->grave_at = x->graves_done;
    struct executor_change *c = x->committing_changes, *next;
    if (c) {
        struct executor_change **end = &x->committing_changes;
        while (*end)
            end = &(*end)->next;
        *end = x->changes;
        x->changes = x->committing_changes;
        x->committing_changes = NULL;
    }
    for (c = x->changes; c; c = c->next)
        change_retake(&x->lanes, &c->change);
    for (uint32_t i = 0; i < x->lanes.nshards; i++)
        ports_abort(&x->lanes.shard[i]->ports);
    for (c = x->changes; c; c = next) { /* their records go into the next epoch again */
        next = c->next;
        if (c->change.drain)
            change_drain(&x->lanes, &c->change);
        if (c->record)
            c->record(c->arg, x->lanes.shard[0]->ex, own_epoch(x));
        x->dirty = true;
    }
}

static void epoch_aborted(struct executor *x) {
    epoch_abort(x);
    x->retry_ms = x->retry_ms ? x->retry_ms * 2 : x->conf.retry_ms;
    if (x->retry_ms > RETRY_MS_LAST)
        x->retry_ms = RETRY_MS_LAST;
    x->retry_at_ns = now_ns() + x->retry_ms * 1000000;
}

static bool take_outcome(struct executor *x) {
    if (!x->committing)
        return false;
    uv_mutex_lock(&x->mutex);
    bool ready = x->outcome_ready;
    enum log_outcome outcome = x->outcome;
    struct err e = x->outcome_err;
    x->outcome_ready = false;
    if (ready) {
        x->health.degraded = outcome != LOG_COMMITTED;
        if (outcome == LOG_COMMITTED) {
            x->health.commits++;
            x->health.last_commit = x->outcome_no;
        } else {
            x->health.aborts++;
            x->health.err = e;
        }
    }
    uv_mutex_unlock(&x->mutex);
    if (!ready)
        return false;
    if (outcome == LOG_COMMITTED)
        epoch_committed(x);
    else if (outcome == LOG_ABORTED)
        epoch_aborted(x);
    else {
        x->committing = false; /* the committer will not call back: executor_free need not wait */
        fail(x, &e);
    }
    return true;
}

/* ---- commands ---- */

static void apply(struct executor *x, struct executor_change *c) {
    struct err e = ERR_INIT;
    int rc = c->change.drain ? change_drainable(&x->lanes, &c->change, &e) : 0;
    if (rc == 0)
        rc = change_apply(&x->lanes, &c->change, &e);
    if (rc < 0) {
        c->done(c->arg, rc, &e);
        return;
    }
    c->next = NULL;
    changes_append(&x->changes, c);
    lanes_rouse(&x->lanes);
    if (c->record)
        c->record(c->arg, x->lanes.shard[0]->ex, own_epoch(x));
    x->dirty = true;
}

/* What windows hold, and state that changes hands, must be that of the cut. */
static bool change_is_exact(const struct change *ch) {
    return ch->drain || ch->ntake;
}

/* Such a change is the first thing of its epoch, with no other in flight: an abort then takes the
 * graph back to exactly its cut, where it happens again. A change that needs more shards waits in
 * the same way: they begin without an open epoch; and so does one that joins an exchange. */
static bool change_must_wait(const struct executor *x) {
    return x->waiting && (x->committing || x->dirty) &&
           (change_is_exact(&x->waiting->change) || change_joins(&x->waiting->change) ||
            change_parts(&x->waiting->change) > x->lanes.nshards);
}

static void visit_all(struct executor *x, void (*fn)(void *, struct exec *), void *arg) {
    for (uint32_t i = 0; i < x->lanes.nshards; i++)
        fn(arg, x->lanes.shard[i]->ex);
}

static bool take_changes(struct executor *x) {
    uv_mutex_lock(&x->mutex);
    changes_append(&x->waiting, x->inbox);
    x->inbox = NULL;
    x->inbox_end = &x->inbox;
    uv_mutex_unlock(&x->mutex);
    bool any = false;
    while (x->waiting && !change_must_wait(x)) {
        struct executor_change *c = x->waiting;
        /* Rows on their way through exchanges are this side of the cut: they arrive first. */
        if (change_is_exact(&c->change) && lanes_run_exchanges(&x->lanes)) {
            x->dirty = true;
            return true;
        }
        x->waiting = c->next;
        apply(x, c);
        any = true;
    }
    return any;
}

static bool take_visits(struct executor *x) {
    uv_mutex_lock(&x->mutex);
    struct visit *v = x->visits;
    x->visits = NULL;
    uv_mutex_unlock(&x->mutex);
    bool any = v != NULL;
    for (struct visit *next; v; v = next) {
        next = v->next;
        visit_all(x, v->fn, v->arg);
        uv_mutex_lock(&x->mutex);
        v->done = true;
        uv_cond_broadcast(&x->cond);
        uv_mutex_unlock(&x->mutex);
    }
    return any;
}

/* ---- the loop ---- */

bool executor_step(struct executor *x) {
    if (x->health.failed)
        return false;
    atomic_store(&x->lanes.hurry, false); /* who comes from here on ends the round below */
    bool worked = take_outcome(x);
    if (x->health.failed) /* from now on visitors look after themselves */
        return worked;
    worked |= take_visits(x); /* who only looks does not wait for a retry */
    if (x->retry_at_ns > now_ns())
        return worked;
    worked |= take_changes(x);
    struct lanes *ls = &x->lanes;
    bool read = false, wait = change_must_wait(x);
    /* Run again after an abort: on to the cut of every change in it, whatever else waits. Who stops
     * takes in nothing else: a source that never runs dry must not hold it up. */
    bool behind = x->changes && lanes_behind(ls);
    if (behind || (lanes_bytes(ls) < lanes_hold(ls) && !wait && !stopping(x))) {
        if (!x->dirty)
            x->opened_ns = now_ns();
        read = lanes_run(ls, behind);
        x->dirty |= lanes_dirty(ls);
    }
    if (x->committing)
        return worked || read;
    bool graves = x->graves.len > x->grave_at;
    if (behind || (!x->dirty && !graves))
        return worked || read;
    /* Somebody waits for a change: its epoch ends with its first rows. */
    size_t bytes = lanes_bytes(ls);
    if (!read || wait || x->changes || bytes >= EXECUTOR_EPOCH_BYTES * lanes_used(ls) ||
        bytes >= lanes_hold(ls) || ls->tick_rows < x->conf.batch_rows ||
        now_ns() - x->opened_ns >= (int64_t)EXECUTOR_EPOCH_MS * 1000000)
        epoch_close(x);
    return true;
}

void executor_settle(struct executor *x) {
    while (!x->health.failed) {
        if (executor_step(x))
            continue;
        if (!x->committing && !x->dirty)
            return;
        uv_mutex_lock(&x->mutex);
        while (x->committing && !x->outcome_ready)
            uv_cond_wait(&x->cond, &x->mutex);
        uv_mutex_unlock(&x->mutex);
    }
}

static void on_wake(uv_async_t *h);
static void on_idle(uv_idle_t *h) {
    on_wake((uv_async_t *)h);
}
static void on_timer(uv_timer_t *h) {
    on_wake((uv_async_t *)h);
}

/* Runs until there is nothing to do, then sleeps in the loop until a commit, new rows or a command.
 * A retry sleeps on the timer. */
static void on_wake(uv_async_t *h) {
    struct executor *x = h->data;
    bool worked = executor_step(x);
    int64_t now = now_ns();
    int64_t until = x->retry_at_ns > now ? x->retry_at_ns : lanes_due_ns(&x->lanes);
    /* A log that refuses commits does not keep the process from stopping: the work is redone. */
    if ((x->health.failed || x->retry_at_ns > now || (!x->committing && !x->dirty)) &&
        stopping(x)) {
        uv_idle_stop(&x->idle);
        uv_stop(&x->loop);
        return;
    }
    if (worked)
        uv_idle_start(&x->idle, on_idle);
    else
        uv_idle_stop(&x->idle);
    if (!worked && until != INT64_MAX)
        uv_timer_start(&x->timer, on_timer, until > now ? (uint64_t)(until - now) / 1000000 + 1 : 0,
                       0);
}

static void thread_main(void *arg) {
    struct executor *x = arg;
    uv_async_send(&x->wake);
    uv_run(&x->loop, UV_RUN_DEFAULT);
}

static void on_appended(void *arg) {
    struct executor *x = arg;
    atomic_fetch_add_explicit(&x->lanes.appended, 1, memory_order_release);
    wake_loop(x);
}

static void close_handle(uv_handle_t *h, void *arg) {
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* There is no thread any more, or never was. */
static void loop_close(struct executor *x) {
    log_unwatch(x->conf.log, x->watch);
    x->threaded = false;
    uv_walk(&x->loop, close_handle, NULL);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    uv_loop_close(&x->loop);
}

int executor_start(struct executor *x, struct err *e) {
    int rc = uv_loop_init(&x->loop);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "starting the executor: %s", uv_strerror(rc));
    if ((rc = uv_async_init(&x->loop, &x->wake, on_wake)) < 0) {
        uv_loop_close(&x->loop);
        return err_set(e, ERR_SYSTEM, "starting the executor: %s", uv_strerror(rc));
    }
    uv_idle_init(&x->loop, &x->idle);
    uv_timer_init(&x->loop, &x->timer);
    x->wake.data = x->idle.data = x->timer.data = x;
    x->threaded = true;
    x->watch = log_watch(x->conf.log, NULL, on_appended, x);
    if ((rc = lanes_start(&x->lanes, e)) < 0) {
        loop_close(x);
        return rc;
    }
    rc = uv_thread_create(&x->thread, thread_main, x);
    if (rc < 0) {
        lanes_stop(&x->lanes);
        loop_close(x);
        return err_set(e, ERR_SYSTEM, "starting the executor's thread: %s", uv_strerror(rc));
    }
    return 0;
}

void executor_stop(struct executor *x) {
    if (!x->threaded)
        return;
    uv_mutex_lock(&x->mutex);
    x->stopping = true;
    uv_mutex_unlock(&x->mutex);
    uv_async_send(&x->wake);
    uv_thread_join(&x->thread);
    lanes_stop(&x->lanes);
    take_visits(x); /* who came after the last round */
    loop_close(x);
}

int executor_new(struct executor **out, const struct executor_conf *conf, struct err *e) {
    struct executor *x = calloc(1, sizeof *x);
    if (!x)
        return err_errno(e, ENOMEM, "executor");
    x->conf = *conf;
    if (x->conf.batch_rows == 0 || x->conf.batch_rows > BATCH_ROWS)
        x->conf.batch_rows = BATCH_ROWS;
    if (x->conf.retry_ms == 0)
        x->conf.retry_ms = RETRY_MS_FIRST;
    lanes_init(&x->lanes, &x->conf);
    x->inbox_end = &x->inbox;
    uv_mutex_init(&x->mutex);
    uv_cond_init(&x->cond);
    struct log_topic_info info;
    if (log_topic_info(conf->log, EXECUTOR_DLQ, &info, NULL) < 0) {
        struct log_topic_conf tc = { .partitions = 1, .retention_bytes = 256 << 20 };
        int rc = log_topic_create(conf->log, EXECUTOR_DLQ, &tc, e);
        if (rc < 0) {
            executor_free(x);
            return rc;
        }
    }
    *out = x;
    return 0;
}

void executor_free(struct executor *x) {
    if (!x)
        return;
    assert(!x->threaded);
    uv_mutex_lock(&x->mutex);
    while (x->committing && !x->outcome_ready) /* the committer still calls back */
        uv_cond_wait(&x->cond, &x->mutex);
    uv_mutex_unlock(&x->mutex);
    lanes_free(&x->lanes);
    sbuf_free(&x->graves);
    uv_mutex_destroy(&x->mutex);
    uv_cond_destroy(&x->cond);
    free(x);
}

/* ---- restore ---- */

/* Keys of a restore on their way: each is asked of the cache when it comes and loaded when
 * RESTORING others have come since, because every one is a cache miss in a large table. */
enum { RESTORING = 16 };
struct restoring {
    struct executor *x;
    struct {
        struct sbuf bytes; /* key, value */
        uint32_t klen;
    } key[RESTORING];
    uint64_t n;
};

static struct exec *restore_exec(struct executor *x, const unsigned char *k, uint64_t *instance) {
    *instance = 0;
    for (int i = 0; i < 8; i++)
        *instance = *instance << 8 | k[1 + i];
    uint32_t partition = (uint32_t)k[9] << 8 | k[10];
    return partition < x->lanes.nshards ? x->lanes.shard[partition]->ex : NULL;
}

static int restore_load(struct restoring *r, uint64_t no) {
    const struct sbuf *b = &r->key[no % RESTORING].bytes;
    uint32_t klen = r->key[no % RESTORING].klen;
    const unsigned char *k = (const unsigned char *)b->p;
    uint64_t instance;
    struct exec *ex = restore_exec(r->x, k, &instance);
    int rc = ex ? exec_load(ex, instance, k[11], k + STATE_KEY_HEAD, klen - STATE_KEY_HEAD,
                            k + klen, (uint32_t)(b->len - klen))
                : ERR_NOTFOUND;
    if (rc != ERR_NOTFOUND)
        return rc;
    sbuf_add(&r->x->graves, &klen, 4);
    sbuf_add(&r->x->graves, k, klen);
    return 0;
}

static int restore_key(void *arg, const void *key, uint32_t klen, const void *value,
                       uint32_t vlen) {
    struct restoring *r = arg;
    uint64_t instance;
    if (klen < STATE_KEY_HEAD)
        return 0;
    int rc = r->n < RESTORING ? 0 : restore_load(r, r->n - RESTORING);
    struct sbuf *b = &r->key[r->n % RESTORING].bytes;
    r->key[r->n++ % RESTORING].klen = klen;
    b->len = 0;
    sbuf_add(b, key, klen);
    sbuf_add(b, value, vlen);
    struct exec *ex = restore_exec(r->x, key, &instance);
    if (ex)
        exec_load_ahead(ex, instance, ((const unsigned char *)key)[11],
                        (const char *)key + STATE_KEY_HEAD, klen - STATE_KEY_HEAD);
    return rc;
}

static int restore_keys(struct executor *x, struct err *e) {
    struct restoring r = { .x = x };
    int rc = log_state_each(x->conf.log, "S", 1, restore_key, &r, e);
    uint64_t i = r.n < RESTORING ? 0 : r.n - RESTORING;
    for (; i < r.n && rc == 0; i++)
        rc = restore_load(&r, i);
    for (i = 0; i < RESTORING; i++)
        sbuf_free(&r.key[i].bytes);
    return rc;
}

int executor_restore(struct executor *x, const struct change *all, struct err *e) {
    struct arena a = { 0 };
    struct lanes *ls = &x->lanes;
    int rc = 0;
    lanes_grow(ls, change_parts(all));
    struct change *part = ARENA_ARRAY(&a, struct change, ls->nshards);
    for (uint32_t i = 0; i < ls->nshards && rc == 0; i++) {
        part[i] = shard_change(ls->shard[i], all, &a);
        rc = exec_apply(ls->shard[i]->ex, &part[i], true, e);
    }
    if (rc == 0 && (rc = restore_keys(x, e)) == ERR_SYSTEM && !e->text[0])
        err_set(e, rc, "the state in the log is not of the form that its tasks keep");
    for (uint32_t i = 0; i < ls->nshards && rc == 0; i++) {
        exec_rebuild(ls->shard[i]->ex);
        rc = change_bind(ls->shard[i], &part[i], true, e);
    }
    if (rc == 0)
        ports_sweep(&ls->shard[0]->ports, ls->shard[0]->ex);
    arena_free(&a);
    return rc;
}

/* ---- callers ---- */

void executor_submit(struct executor *x, struct executor_change *c) {
    c->next = NULL;
    uv_mutex_lock(&x->mutex);
    *x->inbox_end = c;
    x->inbox_end = &c->next;
    uv_mutex_unlock(&x->mutex);
    atomic_store(&x->lanes.hurry, true);
    wake_loop(x);
}

void executor_visit(struct executor *x, void (*fn)(void *, struct exec *), void *arg) {
    if (!x->threaded) {
        visit_all(x, fn, arg);
        return;
    }
    struct visit v = { .fn = fn, .arg = arg };
    uv_mutex_lock(&x->mutex);
    v.next = x->visits;
    x->visits = &v; /* cppcheck-suppress autoVariables; out of the list before we return */
    atomic_store(&x->lanes.hurry, true);
    uv_async_send(&x->wake);
    while (!v.done && !x->health.failed)
        uv_cond_wait(&x->cond, &x->mutex);
    if (!v.done) { /* the executor does not touch the graph any more: we do it for it */
        struct visit **p = &x->visits;
        while (*p != &v)
            p = &(*p)->next;
        *p = v.next;
        visit_all(x, fn, arg);
    }
    uv_mutex_unlock(&x->mutex);
}

void executor_health(struct executor *x, struct executor_health *h) {
    uv_mutex_lock(&x->mutex);
    *h = x->health;
    uv_mutex_unlock(&x->mutex);
}

struct tap_visit {
    struct executor *x;
    struct executor_tap *tap;
    int rc;
};

/* The caller's tap on partition 0, copies of it on the others. */
static void tap_on(void *arg, struct exec *ex) {
    struct tap_visit *v = arg;
    struct executor_tap **taps = ports_taps(exec_find(ex, v->tap->instance)), *tap = v->tap;
    if (exec_partition(ex) == 0)
        v->rc = taps ? 0 : ERR_NOTFOUND;
    if (!taps)
        return;
    if (exec_partition(ex) > 0) {
        tap = malloc(sizeof *tap);
        if (!tap)
            abort();
        *tap = (struct executor_tap){ .instance = v->tap->instance,
                                      .rows = v->tap->rows,
                                      .arg = v->tap->arg,
                                      .copy_of = v->tap };
    }
    tap->next = *taps;
    *taps = tap;
}

static void tap_off(void *arg, struct exec *ex) {
    struct tap_visit *v = arg;
    ports_untap(&v->x->lanes.shard[exec_partition(ex)]->ports, v->tap);
}

int executor_tap(struct executor *x, struct executor_tap *tap) {
    struct tap_visit v = { .x = x, .tap = tap, .rc = ERR_SYSTEM };
    executor_visit(x, tap_on, &v);
    return v.rc;
}

void executor_untap(struct executor *x, struct executor_tap *tap) {
    struct tap_visit v = { .x = x, .tap = tap };
    executor_visit(x, tap_off, &v);
}

void executor_inject_abort(struct executor *x) {
    x->inject_abort = true;
}

int64_t executor_history(struct executor *x, uint64_t instance) {
    int64_t sum = 0;
    bool any = false;
    for (uint32_t i = 0; i < x->lanes.nshards; i++) {
        struct task *t = exec_find(x->lanes.shard[i]->ex, instance);
        struct task_stats s = { .history_from = -1 };
        if (t && !(task_def(t)->op->flags & OP_SOURCE))
            task_stats(t, &s);
        else if (t)
            s.history_from = task_position(t);
        if (s.history_from < 0)
            continue;
        sum += s.history_from;
        any = true;
    }
    return any ? sum : -1;
}

const struct err *executor_source_error(struct executor *x, const struct task *source) {
    (void)x;
    const struct port *p = task_user(source);
    return p && p->failed ? &p->err : NULL;
}
