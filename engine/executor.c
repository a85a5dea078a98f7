#include "engine/clock.h"
#include "engine/port.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

enum { RETRY_MS_FIRST = 100, RETRY_MS_LAST = 5000, STATE_KEY_HEAD = 10 };

struct executor {
    struct executor_conf conf;
    struct exec *ex;
    struct ports ports;
    /* the running epoch */
    struct log_epoch *epoch;
    bool dirty;
    bool overflow; /* something did not fit into it */
    int64_t opened_ns;
    struct log_buf *dead;
    struct executor_change *waiting; /* not applied yet, oldest first */
    struct executor_change *changes; /* of the running epoch, oldest first */
    /* the committing epoch */
    bool committing;
    struct executor_change *committing_changes;
    void (*freed)(void *arg, uint64_t instance);
    void *freed_arg;
    int64_t retry_at_ns, retry_ms;
    int64_t next_due_ns;          /* of the generators, when none had a row now */
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

static void epoch_open(struct executor *x) {
    if (x->epoch)
        return;
    x->epoch = log_epoch_begin(x->conf.log);
    x->opened_ns = now_ns();
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

static void state_key(char *out, uint64_t instance, int table) {
    out[0] = 'S';
    for (int i = 0; i < 8; i++)
        out[1 + i] = (char)(instance >> (56 - 8 * i));
    out[9] = (char)table;
}

static void put_state(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                      const void *value, uint32_t vlen) {
    struct executor *x = arg;
    char buf[256], *k = buf;
    if (STATE_KEY_HEAD + klen > sizeof buf && !(k = malloc(STATE_KEY_HEAD + klen)))
        abort();
    state_key(k, instance, table);
    if (klen)
        memcpy(k + STATE_KEY_HEAD, key, klen);
    x->overflow |= log_epoch_state(x->epoch, k, STATE_KEY_HEAD + klen, value, vlen) < 0;
    if (k != buf)
        free(k);
}

static void put_graves(struct executor *x) {
    for (int n = 0; n < EXECUTOR_TOMBSTONES && x->grave_at < x->graves.len; n++) {
        uint32_t len;
        memcpy(&len, x->graves.p + x->grave_at, 4);
        x->overflow |= log_epoch_state(x->epoch, x->graves.p + x->grave_at + 4, len, NULL, 0) < 0;
        x->grave_at += 4 + (size_t)len;
    }
}

static void put_dead(struct executor *x) {
    if (!x->dead)
        return;
    log_buf_seal(x->dead);
    x->overflow |= log_epoch_append(x->epoch, EXECUTOR_DLQ, 0, x->dead, clock_wall_ms(), NULL) < 0;
    log_buf_unref(x->dead);
    x->dead = NULL;
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

static void epoch_close(struct executor *x) {
    struct err e = ERR_INIT;
    epoch_open(x);
    put_dead(x);
    if (ports_close_epoch(&x->ports, &e) < 0) {
        undo_push(exec_undo(x->ex));
        exec_epoch_push(x->ex);
        x->committing = true;
        on_commit(x, LOG_ABORTED, 0, &e);
        return;
    }
    undo_collect(exec_undo(x->ex), put_state, x);
    exec_counts(x->ex, put_state, x);
    put_graves(x);
    if (x->overflow) { /* a second run would make the same epoch: better to stop than to lose rows
                        */
        err_set(&e, ERR_SYSTEM,
                "rows and state of one epoch are more than %d MiB: a task puts out or changes too "
                "much at once, such as a window with very many groups",
                LOG_EPOCH_BYTES >> 20);
        fail(x, &e);
        return;
    }
    undo_push(exec_undo(x->ex));
    exec_epoch_push(x->ex);
    ports_push(&x->ports);
    x->committing = true;
    x->committing_changes = x->changes;
    x->changes = NULL;
    x->dirty = false;
    struct log_epoch *ep = x->epoch;
    x->epoch = NULL;
    if (x->inject_abort) {
        x->inject_abort = false;
        log_epoch_drop(ep);
        err_set(&e, ERR_SYSTEM, "abort injected by a test");
        on_commit(x, LOG_ABORTED, 0, &e);
        return;
    }
    log_commit(ep, on_commit, x);
}

static void on_sink(void *arg, struct task *t, const struct batch *b) {
    struct executor *x = arg;
    x->overflow |= ports_sink(t, b, x->epoch) < 0;
}

static void on_dead(void *arg, struct task *t, const char *key, const char *json, size_t len) {
    struct executor *x = arg;
    (void)t;
    if (!x->dead)
        x->dead = log_buf_new();
    memcpy(log_buf_room(x->dead, len), json, len);
    log_buf_end(x->dead, len);
    log_buf_key(x->dead, key, strlen(key), false);
    if (x->dead->values_len >= LOG_BUF_BYTES)
        put_dead(x);
}

/* ---- outcomes ---- */

static void bury(struct executor *x, uint64_t instance, int table, const void *key, uint32_t klen) {
    char head[STATE_KEY_HEAD];
    uint32_t len = STATE_KEY_HEAD + klen;
    state_key(head, instance, table);
    sbuf_add(&x->graves, &len, 4);
    sbuf_add(&x->graves, head, sizeof head);
    sbuf_add(&x->graves, key, klen);
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

static void free_removed(struct executor *x, const struct executor_change *c) {
    for (int i = 0; i < c->change.nremove; i++) {
        struct task *t = exec_find(x->ex, c->change.remove[i]);
        if (!t)
            continue;
        ports_unbind(&x->ports, t);
        if (task_counted(t))
            bury(x, c->change.remove[i], TABLE_COUNTS, "", 0);
    }
    exec_tables(x->ex, c->change.version, bury_table, x);
    x->freed = c->freed;
    x->freed_arg = c->arg;
    exec_free_removed(x->ex, c->change.version, on_freed, x);
}

static void epoch_committed(struct executor *x) {
    undo_commit(exec_undo(x->ex));
    exec_epoch_commit(x->ex);
    ports_commit(&x->ports);
    x->committing = false;
    x->retry_ms = 0;
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
    exec_epoch_abort(x->ex);
    undo_abort(exec_undo(x->ex));
    exec_rebuild(x->ex);
    if (x->epoch)
        log_epoch_drop(x->epoch);
    x->epoch = NULL;
    if (x->dead)
        log_buf_unref(x->dead);
    x->dead = NULL;
    x->committing = false;
    x->dirty = x->overflow = false;
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
    ports_abort(&x->ports);
    for (c = x->changes; c; c = next) { /* their records go into the next epoch again */
        next = c->next;
        epoch_open(x);
        if (c->change.drain)
            exec_drain(x->ex, &c->change);
        if (c->record)
            c->record(c->arg, x->ex, x->epoch);
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

static void change_undo_bind(struct executor *x, const struct change *ch) {
    for (int i = 0; i < ch->nadd; i++) {
        struct task *t = exec_find(x->ex, ch->add[i]->instance);
        if (t)
            ports_unbind(&x->ports, t);
    }
}

static int change_bind(struct executor *x, const struct change *ch, bool restore, struct err *e) {
    for (int i = 0; i < ch->nadd; i++) {
        struct task *t = exec_find(x->ex, ch->add[i]->instance);
        int rc = ports_bind(&x->ports, t, restore, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void change_apply(struct executor *x, struct executor_change *c) {
    struct err e = ERR_INIT;
    epoch_open(x); /* draining tasks write already */
    int rc = exec_apply(x->ex, &c->change, false, &e);
    if (rc == 0 && (rc = change_bind(x, &c->change, false, &e)) < 0) {
        change_undo_bind(x, &c->change);
        exec_take_back(x->ex, &c->change);
    }
    if (rc < 0) {
        c->done(c->arg, rc, &e);
        return;
    }
    c->next = NULL;
    changes_append(&x->changes, c);
    ports_cut(&x->ports);
    epoch_open(x);
    if (c->record)
        c->record(c->arg, x->ex, x->epoch);
    x->dirty = true;
}

/* A draining change is the first thing of its epoch, with no other in flight: an abort then takes
 * the graph back to exactly its cut, where it is drained again. */
static bool change_must_wait(const struct executor *x) {
    return x->waiting && x->waiting->change.drain && (x->committing || x->dirty);
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
        x->waiting = c->next;
        change_apply(x, c);
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
        v->fn(v->arg, x->ex);
        uv_mutex_lock(&x->mutex);
        v->done = true;
        uv_cond_broadcast(&x->cond);
        uv_mutex_unlock(&x->mutex);
    }
    return any;
}

/* ---- the loop ---- */

/* Rows of a generator that are due. After a restart it goes on from its position at its rate: what
 * would have been due meanwhile is not made up for. */
static bool maker_tick(struct executor *x, struct port *p) {
    const struct task_def *d = task_def(p->task);
    double rate = d->op->rate ? d->op->rate(d->config) : 0;
    uint32_t n = x->conf.batch_rows;
    if (rate > 0) {
        int64_t at = task_position(p->task), now = now_ns();
        if (p->base_ns == 0)
            p->base_ns = now - (int64_t)((double)at / rate * 1e9);
        double due = (double)(now - p->base_ns) * rate / 1e9 + 1 - (double)at;
        n = due < 1 ? 0 : due < n ? (uint32_t)due : n;
        int64_t next = p->base_ns + (int64_t)((double)(at + n) / rate * 1e9);
        if (next < x->next_due_ns)
            x->next_due_ns = next;
    }
    if (n == 0)
        return false;
    epoch_open(x);
    n = exec_tick_pull(x->ex, p->task, n);
    x->dirty |= n > 0;
    return n > 0;
}

/* `redo`: the source was here before the abort, so a full buffer of a merging task that paused it
 * then did not need these rows; waiting for it now could wait for ever. */
static bool source_tick(struct executor *x, struct port *p, bool redo) {
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t off;
    if (p->failed || (!redo && exec_paused(x->ex, p->task)))
        return false;
    if (p->kind == PORT_MAKER)
        return maker_tick(x, p);
    int n = log_read(p->reader, x->conf.batch_rows, &rows, &off, &e);
    if (n == 0)
        return false;
    if (n < 0) {
        p->failed = true;
        p->err = e;
        return false;
    }
    epoch_open(x);
    exec_tick(x->ex, p->task, &rows, off);
    x->dirty = true;
    return true;
}

bool executor_step(struct executor *x) {
    if (x->health.failed)
        return false;
    bool worked = take_outcome(x);
    if (x->health.failed) /* from now on visitors look after themselves */
        return worked;
    worked |= take_visits(x); /* who only looks does not wait for a retry */
    if (x->retry_at_ns > now_ns())
        return worked;
    worked |= take_changes(x);
    bool read = false;
    size_t held = x->epoch ? log_epoch_bytes(x->epoch) : 0;
    bool wait = change_must_wait(x);
    x->next_due_ns = INT64_MAX;
    /* Run again after an abort: on to the cut of every change in it, whatever else waits. Who stops
     * takes in nothing else: a source that never runs dry must not hold it up. */
    bool behind = x->changes && ports_behind(&x->ports);
    if (behind || (held < EXECUTOR_HOLD_BYTES && !wait && !stopping(x)))
        for (struct port *p = x->ports.first; p; p = p->next)
            if (p->kind == PORT_SOURCE || p->kind == PORT_MAKER)
                read |= source_tick(x, p, behind);
    if (x->committing)
        return worked || read;
    bool graves = x->graves.len > x->grave_at;
    if (behind || (!x->dirty && !graves))
        return worked || read;
    held = x->epoch ? log_epoch_bytes(x->epoch) : 0;
    /* Somebody waits for a change: its epoch ends with its first rows. */
    if (!read || wait || x->changes || held >= EXECUTOR_EPOCH_BYTES ||
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
    int64_t until = x->retry_at_ns > now ? x->retry_at_ns : x->next_due_ns;
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
    wake_loop(arg);
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
    rc = uv_thread_create(&x->thread, thread_main, x);
    if (rc < 0) {
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
    x->ex = exec_new(&(struct exec_conf){ .batch_rows = x->conf.batch_rows,
                                          .align_bytes = conf->align_bytes,
                                          .sink = on_sink,
                                          .dead = on_dead,
                                          .arg = x });
    x->ports =
        (struct ports){ .log = conf->log, .out_dir = conf->out_dir, .sync = conf->sync_files };
    x->inbox_end = &x->inbox;
    x->next_due_ns = INT64_MAX;
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
    if (x->epoch)
        log_epoch_drop(x->epoch);
    if (x->dead)
        log_buf_unref(x->dead);
    ports_free(&x->ports);
    exec_free(x->ex);
    sbuf_free(&x->graves);
    uv_mutex_destroy(&x->mutex);
    uv_cond_destroy(&x->cond);
    free(x);
}

/* ---- restore ---- */

static int restore_key(void *arg, const void *key, uint32_t klen, const void *value,
                       uint32_t vlen) {
    struct executor *x = arg;
    const unsigned char *k = key;
    uint64_t instance = 0;
    if (klen < STATE_KEY_HEAD)
        return 0;
    for (int i = 0; i < 8; i++)
        instance = instance << 8 | k[1 + i];
    if (exec_load(x->ex, instance, k[9], k + STATE_KEY_HEAD, klen - STATE_KEY_HEAD, value, vlen) <
        0) {
        sbuf_add(&x->graves, &klen, 4);
        sbuf_add(&x->graves, key, klen);
    }
    return 0;
}

int executor_restore(struct executor *x, const struct change *all, struct err *e) {
    int rc = exec_apply(x->ex, all, true, e);
    if (rc < 0)
        return rc;
    rc = log_state_each(x->conf.log, "S", 1, restore_key, x, e);
    if (rc < 0)
        return rc;
    exec_rebuild(x->ex);
    return change_bind(x, all, true, e);
}

/* ---- callers ---- */

void executor_submit(struct executor *x, struct executor_change *c) {
    c->next = NULL;
    uv_mutex_lock(&x->mutex);
    *x->inbox_end = c;
    x->inbox_end = &c->next;
    uv_mutex_unlock(&x->mutex);
    wake_loop(x);
}

void executor_visit(struct executor *x, void (*fn)(void *, struct exec *), void *arg) {
    if (!x->threaded) {
        fn(arg, x->ex);
        return;
    }
    struct visit v = { .fn = fn, .arg = arg };
    uv_mutex_lock(&x->mutex);
    v.next = x->visits;
    x->visits = &v; /* cppcheck-suppress autoVariables; out of the list before we return */
    uv_async_send(&x->wake);
    while (!v.done && !x->health.failed)
        uv_cond_wait(&x->cond, &x->mutex);
    if (!v.done) { /* the executor does not touch the graph any more: we do it for it */
        struct visit **p = &x->visits;
        while (*p != &v)
            p = &(*p)->next;
        *p = v.next;
        fn(arg, x->ex);
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

static void tap_on(void *arg, struct exec *ex) {
    struct tap_visit *v = arg;
    struct executor_tap **taps = ports_taps(exec_find(ex, v->tap->instance));
    v->rc = taps ? 0 : ERR_NOTFOUND;
    if (!taps)
        return;
    v->tap->next = *taps;
    *taps = v->tap;
}

static void tap_off(void *arg, struct exec *ex) {
    struct tap_visit *v = arg;
    (void)ex;
    ports_untap(&v->x->ports, v->tap);
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

const struct err *executor_source_error(struct executor *x, const struct task *source) {
    (void)x;
    const struct port *p = task_user(source);
    return p && p->failed ? &p->err : NULL;
}
