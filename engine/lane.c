#include "engine/lane.h"
#include "engine/clock.h"
#include "engine/files.h"
#include <stdlib.h>

/* ---- what shards hand out ---- */

struct log_epoch *lane_epoch(struct lane *l) {
    if (!l->epoch)
        l->epoch = log_epoch_begin(l->all->conf.log);
    return l->epoch;
}

static void put_dead(struct lane *l) {
    if (!l->dead)
        return;
    log_buf_seal(l->dead);
    l->overflow |=
        log_epoch_append(lane_epoch(l), EXECUTOR_DLQ, 0, l->dead, clock_wall_ms(), NULL) < 0;
    log_buf_unref(l->dead);
    l->dead = NULL;
}

static void on_sink(void *arg, struct task *t, const struct batch *b) {
    struct shard *sh = arg;
    sh->lane->overflow |= ports_sink(t, b, lane_epoch(sh->lane)) < 0;
}

static void on_dead(void *arg, struct task *t, const char *key, const char *json, size_t len) {
    struct lane *l = ((struct shard *)arg)->lane;
    (void)t;
    if (!l->dead)
        l->dead = log_buf_new();
    memcpy(log_buf_room(l->dead, len), json, len);
    log_buf_end(l->dead, len);
    log_buf_key(l->dead, key, strlen(key), false);
    if (l->dead->values_len >= LOG_BUF_BYTES)
        put_dead(l);
}

/* ---- ticks ---- */

/* Rows of a generator that are due. After a restart it goes on from its position at its rate: what
 * would have been due meanwhile is not made up for. */
static bool maker_tick(struct shard *sh, struct port *p) {
    const struct task_def *d = task_def(p->task);
    struct lane *l = sh->lane;
    double rate = d->op->rate ? d->op->rate(d->config) : 0;
    uint32_t n = l->all->tick_rows;
    if (rate > 0) {
        int64_t at = task_position(p->task), now = clock_mono_ns();
        if (p->base_ns == 0)
            p->base_ns = now - (int64_t)((double)at / rate * 1e9);
        double due = (double)(now - p->base_ns) * rate / 1e9 + 1 - (double)at;
        n = due < 1 ? 0 : due < n ? (uint32_t)due : n;
        int64_t next = p->base_ns + (int64_t)((double)(at + n) / rate * 1e9);
        if (next < l->next_due_ns)
            l->next_due_ns = next;
    }
    if (n == 0)
        return false;
    p->ended = exec_tick_pull(sh->ex, p->task, n) == 0;
    if (p->ended) /* silent for good */
        exec_tick_idle(sh->ex, p->task, INT64_MAX);
    l->dirty = true;
    return true;
}

/* So many records that they hold about the rows of a tick: one of an exchange has up to BATCH_ROWS.
 */
static uint32_t tick_records(const struct lane *l, const struct port *p) {
    uint32_t n = l->all->tick_rows;
    if (p->width > 1)
        n = n / p->width ? n / p->width : 1;
    return n;
}

/* The source takes a tick without rows: it has been silent for `ms`. */
static void silence_tick(struct shard *sh, struct port *p, int64_t ms) {
    port_silent(p, ms);
    exec_tick_idle(sh->ex, p->task, ms);
    sh->lane->dirty = true;
}

static int64_t idle_clock(const struct lanes *ls) {
    return ls->conf.idle_clock ? *ls->conf.idle_clock : clock_mono_ns();
}

/* There is nothing to read. True when that has been so for long enough for a stage below. */
static bool source_silent(struct shard *sh, struct port *p) {
    int64_t ms = exec_idle_ms(p->task);
    if (ms == INT64_MAX)
        return false;
    struct lane *l = sh->lane;
    int64_t now = idle_clock(l->all);
    if (!p->quiet || now < p->quiet_ns) {
        p->quiet = true;
        p->quiet_ns = now;
    }
    int64_t silent = (now - p->quiet_ns) / 1000000;
    if (silent >= ms) {
        silence_tick(sh, p, silent);
        return true;
    }
    int64_t wait = ms < INT64_MAX / 2000000 ? ms * 1000000 : INT64_MAX / 2;
    if (p->quiet_ns + wait < l->next_due_ns)
        l->next_due_ns = p->quiet_ns + wait;
    return false;
}

/* `redo`: the source was here before the abort, so a full buffer of a merging task that paused it
 * then did not need these rows; waiting for it now could wait for ever. */
static bool source_tick(struct shard *sh, struct port *p, bool redo) {
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t off;
    if (p->failed)
        return false;
    if (!redo && exec_paused(sh->ex, p->task)) {
        p->quiet = false;
        return false;
    }
    if (p->kind == PORT_MAKER)
        return !p->ended && maker_tick(sh, p);
    const struct port_silence *known = port_silence(p);
    int64_t left = known ? known->off - task_position(p->task) : INT64_MAX;
    if (left <= 0) {
        silence_tick(sh, p, known->ms);
        return true;
    }
    uint32_t max = tick_records(sh->lane, p);
    int n = log_read(p->reader, left < max ? (uint32_t)left : max, &rows, &off, &e);
    if (n == 0)
        return source_silent(sh, p);
    p->quiet = false;
    if (n < 0) {
        p->failed = true;
        p->err = e;
        return false;
    }
    if (port_exchange(p))
        p->read_bytes += rows.value_end[n - 1] & ~LOG_NULL;
    uint64_t before = task_rows_in(p->task);
    exec_tick(sh->ex, p->task, &rows, off);
    p->width = (uint32_t)((task_rows_in(p->task) - before) / rows.n);
    sh->lane->dirty = true;
    return true;
}

static size_t lane_bytes(const struct lane *l) {
    const struct lanes *ls = l->all;
    size_t n = l->epoch ? log_epoch_bytes(l->epoch) : 0;
    n += l->dead ? l->dead->values_len : 0;
    for (uint32_t i = l->no; i < ls->nshards; i += ls->n)
        n += undo_bytes(exec_undo(ls->shard[i]->ex)) + ls->shard[i]->ports.pending;
    return n;
}

/* A tick of every source, but no more of them than until the lane holds enough; the next pass goes
 * on behind. True when there may be more rows. */
static bool lane_pass(struct lane *l, size_t hold) {
    struct lanes *ls = l->all;
    uint32_t at = 0, skip = ls->redo ? 0 : l->skip;
    bool read = skip > 0;
    l->skip = 0;
    for (uint32_t i = l->no; i < ls->nshards; i += ls->n)
        for (struct port *p = ls->shard[i]->ports.first; p; p = p->next) {
            if (!port_reads(p) || (ls->exchanges && !port_exchange(p)) || at++ < skip)
                continue;
            if (!source_tick(ls->shard[i], p, ls->redo))
                continue;
            read = true;
            if (ls->redo || lane_bytes(l) < hold)
                continue;
            l->skip = at;
            return true;
        }
    return read;
}

/* One pass; again and again until the round is over when there are several lanes. */
static void lane_read(struct lane *l) {
    struct lanes *ls = l->all;
    size_t hold = lanes_hold(ls) / lanes_used(ls);
    bool read;
    l->read = false;
    l->next_due_ns = INT64_MAX;
    l->seen = atomic_load_explicit(&ls->appended, memory_order_acquire);
    do {
        read = lane_pass(l, hold);
        l->read |= read;
    } while (read && ls->until_ns && clock_mono_ns() < ls->until_ns && lane_bytes(l) < hold &&
             !atomic_load_explicit(&ls->hurry, memory_order_relaxed));
}

/* ---- rounds ---- */

static void lane_main(void *arg) {
    struct lane *l = arg;
    struct lanes *ls = l->all;
    uv_mutex_lock(&ls->mutex);
    for (;;) {
        while (!l->run && !ls->stop)
            uv_cond_wait(&l->go, &ls->mutex);
        if (ls->stop)
            break;
        uv_mutex_unlock(&ls->mutex);
        ls->work(l);
        uv_mutex_lock(&ls->mutex);
        l->run = false;
        if (--ls->running == 0)
            uv_cond_signal(&ls->done);
    }
    uv_mutex_unlock(&ls->mutex);
}

/* Whether a lane may find rows: the others look for themselves in no time. */
static bool lane_wanted(const struct lanes *ls, const struct lane *l) {
    return l->no < ls->nshards && (ls->redo || l->read || l->seen != ls->appended ||
                                   (l->next_due_ns != INT64_MAX && l->next_due_ns <= ls->until_ns));
}

/* Calls `work` for every lane, on the threads of those that are `wanted`; the rest, and all when
 * there are no threads, on this one. */
static void lanes_do(struct lanes *ls, void (*work)(struct lane *),
                     bool (*wanted)(const struct lanes *, const struct lane *)) {
    uint64_t sent = 0;
    ls->work = work;
    if (ls->threaded && ls->nshards > 1) {
        uv_mutex_lock(&ls->mutex);
        for (uint32_t i = 1; i < ls->n; i++)
            if (wanted(ls, &ls->lane[i])) {
                sent |= (uint64_t)1 << i;
                ls->lane[i].run = true;
                ls->running++;
                uv_cond_signal(&ls->lane[i].go);
            }
        uv_mutex_unlock(&ls->mutex);
    }
    for (uint32_t i = 0; i < ls->n; i++)
        if (!(sent >> i & 1))
            work(&ls->lane[i]);
    if (sent) {
        uv_mutex_lock(&ls->mutex);
        while (ls->running)
            uv_cond_wait(&ls->done, &ls->mutex);
        uv_mutex_unlock(&ls->mutex);
    }
}

bool lanes_run(struct lanes *ls, bool redo) {
    bool read = false;
    ls->redo = redo;
    ls->until_ns =
        ls->threaded && lanes_used(ls) > 1 ? clock_mono_ns() + LANE_ROUND_MS * 1000000LL : 0;
    lanes_do(ls, lane_read, lane_wanted);
    for (uint32_t i = 0; i < ls->n; i++)
        read |= ls->lane[i].read;
    return read;
}

bool lanes_run_exchanges(struct lanes *ls) {
    lanes_rouse(ls);
    ls->exchanges = true;
    bool read = lanes_run(ls, false);
    ls->exchanges = false;
    return read;
}

void lanes_rouse(struct lanes *ls) {
    for (uint32_t i = 0; i < ls->n; i++)
        ls->lane[i].read = true;
}

size_t lanes_used(const struct lanes *ls) {
    return ls->n < ls->nshards ? ls->n : ls->nshards;
}

bool lanes_behind(const struct lanes *ls) {
    for (uint32_t i = 0; i < ls->nshards; i++)
        if (ports_behind(&ls->shard[i]->ports))
            return true;
    return false;
}

bool lanes_dirty(const struct lanes *ls) {
    for (uint32_t i = 0; i < ls->n; i++)
        if (ls->lane[i].dirty)
            return true;
    return false;
}

int64_t lanes_due_ns(const struct lanes *ls) {
    int64_t due = INT64_MAX;
    for (uint32_t i = 0; i < ls->n; i++)
        if (ls->lane[i].next_due_ns < due)
            due = ls->lane[i].next_due_ns;
    return due;
}

/* ---- epochs ---- */

size_t lanes_bytes(const struct lanes *ls) {
    size_t n = 0;
    for (uint32_t i = 0; i < ls->n; i++)
        n += lane_bytes(&ls->lane[i]);
    return n;
}

size_t lanes_hold(const struct lanes *ls) {
    return ls->conf.epoch_bytes / 4;
}

static void lane_close(struct lane *l) {
    struct lanes *ls = l->all;
    l->rc = 0;
    l->err = (struct err)ERR_INIT;
    put_dead(l);
    for (uint32_t i = l->no; i < ls->nshards; i += ls->n) {
        struct shard *sh = ls->shard[i];
        int rc = ports_close_epoch(&sh->ports, lane_epoch(l), &l->err);
        if (rc == ERR_INPUT)
            l->overflow = true;
        else if (rc < 0)
            l->rc = rc;
        undo_collect(exec_undo(sh->ex), ls->put, sh);
        exec_counts(sh->ex, ls->put, sh);
    }
}

/* Few shards have changed when their lane did not run: a wake-up would cost more. */
static bool lane_closes(const struct lanes *ls, const struct lane *l) {
    (void)ls;
    return l->dirty;
}

int lanes_close_epoch(struct lanes *ls, state_sink *put, struct err *e) {
    struct lane *first = &ls->lane[0];
    ls->put = put;
    lanes_do(ls, lane_close, lane_closes);
    for (uint32_t i = 0; i < ls->n; i++) {
        struct lane *l = &ls->lane[i];
        if (l->rc < 0) {
            *e = l->err;
            return l->rc;
        }
        if (i > 0 && l->epoch)
            first->overflow |= log_epoch_join(lane_epoch(first), l->epoch) < 0;
        first->overflow |= l->overflow;
        if (i > 0)
            l->epoch = NULL;
    }
    first->overflow |= first->epoch && log_epoch_bytes(first->epoch) > ls->conf.epoch_bytes;
    return 0;
}

void lanes_drop_epoch(struct lanes *ls) {
    for (uint32_t i = 0; i < ls->n; i++) {
        struct lane *l = &ls->lane[i];
        if (l->epoch)
            log_epoch_drop(l->epoch);
        if (l->dead)
            log_buf_unref(l->dead);
        l->epoch = NULL;
        l->dead = NULL;
        l->dirty = l->overflow = false;
        l->skip = 0;
        l->read = true;
    }
}

/* ---- shards ---- */

void lanes_grow(struct lanes *ls, uint32_t n) {
    if (n <= ls->nshards)
        return;
    ls->shard = realloc(ls->shard, n * sizeof *ls->shard);
    if (!ls->shard)
        abort();
    for (uint32_t i = ls->nshards; i < n; i++) {
        struct shard *sh = calloc(1, sizeof *sh);
        if (!sh)
            abort();
        *sh = (struct shard){ .lane = &ls->lane[i % ls->n], .no = i };
        sh->ex = exec_new(&(struct exec_conf){ .partition = i,
                                               .batch_rows = ls->conf.batch_rows,
                                               .align_bytes = ls->conf.align_bytes,
                                               .spill = ls->conf.spill,
                                               .sink = on_sink,
                                               .dead = on_dead,
                                               .arg = sh });
        sh->ports = (struct ports){ .log = ls->conf.log,
                                    .out_dir = ls->conf.out_dir,
                                    .files = ls->conf.files ? ls->conf.files : &files_real,
                                    .sync = ls->conf.sync_files,
                                    .partition = i };
        ls->shard[i] = sh;
    }
    ls->nshards = n;
}

/* ---- life ---- */

void lanes_init(struct lanes *ls, const struct executor_conf *conf) {
    *ls = (struct lanes){ .conf = *conf, .n = conf->lanes, .tick_rows = conf->batch_rows };
    if (ls->conf.epoch_bytes == 0 || ls->conf.epoch_bytes > LOG_EPOCH_BYTES)
        ls->conf.epoch_bytes = LOG_EPOCH_BYTES;
    if (ls->n == 0 || ls->n > EXECUTOR_LANES_MAX)
        ls->n = ls->n ? EXECUTOR_LANES_MAX : 1;
    for (uint32_t i = 0; i < ls->n; i++) {
        ls->lane[i].all = ls;
        ls->lane[i].no = i;
        ls->lane[i].read = true;
        ls->lane[i].next_due_ns = INT64_MAX;
        uv_cond_init(&ls->lane[i].go);
    }
    uv_mutex_init(&ls->mutex);
    uv_cond_init(&ls->done);
    lanes_grow(ls, 1);
}

int lanes_start(struct lanes *ls, struct err *e) {
    ls->threaded = true;
    for (uint32_t i = 1; i < ls->n; i++) {
        int rc = uv_thread_create(&ls->lane[i].thread, lane_main, &ls->lane[i]);
        if (rc < 0) {
            lanes_stop(ls);
            return err_set(e, ERR_SYSTEM, "starting thread %u of the executor: %s", i,
                           uv_strerror(rc));
        }
        ls->lane[i].started = true;
    }
    return 0;
}

void lanes_stop(struct lanes *ls) {
    uv_mutex_lock(&ls->mutex);
    ls->stop = true;
    for (uint32_t i = 1; i < ls->n; i++)
        uv_cond_signal(&ls->lane[i].go);
    uv_mutex_unlock(&ls->mutex);
    for (uint32_t i = 1; i < ls->n; i++)
        if (ls->lane[i].started)
            uv_thread_join(&ls->lane[i].thread);
    for (uint32_t i = 1; i < ls->n; i++)
        ls->lane[i].started = false;
    ls->stop = ls->threaded = false;
}

void lanes_free(struct lanes *ls) {
    lanes_drop_epoch(ls);
    for (uint32_t i = 0; i < ls->nshards; i++) {
        ports_free(&ls->shard[i]->ports);
        exec_free(ls->shard[i]->ex);
        free(ls->shard[i]);
    }
    free(ls->shard);
    for (uint32_t i = 0; i < ls->n; i++)
        uv_cond_destroy(&ls->lane[i].go);
    uv_mutex_destroy(&ls->mutex);
    uv_cond_destroy(&ls->done);
}
