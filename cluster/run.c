#include "cluster/run.h"
#include "engine/clock.h"
#include "planner/merge.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A source task and the recorded stream it reads. */
struct feed {
    struct task *task;
    const char *topic, *id; /* of the task as the user wrote it */
    struct dataset *data;
    int64_t offset, time; /* of the next record; time of the last, for fairness */
    bool ended;
    struct dataset_record ahead; /* read, but did not fit into the tick; its bytes hold */
    bool has_ahead;
};
struct run {
    struct run_conf conf;
    struct arena arena;
    struct plan *plan;
    struct flow *flow;
    struct exec *ex;
    struct feed *feeds;
    int nfeeds, nsinks;
    struct run_sink *sinks;
    struct run_totals totals;
    int rc; /* of a callback or an input: ends the run */
    atomic_bool stop;
    uint64_t ticks;
    /* the records of a tick */
    uint32_t *ends;
    char *bytes;
    size_t cap;
};

/* ---- sinks ---- */

static void on_sink(void *arg, struct task *t, const struct batch *b) {
    struct run *r = arg;
    struct run_sink *s = task_user(t);
    s->rows += b->n;
    const struct span *v = b->cols[0].str;
    if (b->encoded && !b->sel && b->encoded->n == b->n)
        s->bytes += b->encoded->values_len;
    else
        for (uint32_t i = 0; i < b->n; i++)
            s->bytes += v[batch_row(b, i)].len;
    if (r->conf.rows && r->rc == 0)
        r->rc = r->conf.rows(r->conf.arg, s, b);
}

/* The code stands in every dead letter the executor makes. */
static void count_dead(struct run_totals *t, const char *json, size_t len) {
    static const char mark[] = "\"code\":\"";
    const char *p = memmem(json, len, mark, sizeof mark - 1);
    const char *q = p ? memchr(p + sizeof mark - 1, '"', len - (size_t)(p - json) - 8) : NULL;
    char code[32] = "other";
    if (q && (size_t)(q - p) - 8 < sizeof code) {
        memcpy(code, p + 8, (size_t)(q - p) - 8);
        code[q - p - 8] = '\0';
    }
    int i = 0;
    while (i < t->ncodes && strcmp(t->codes[i].code, code) != 0)
        i++;
    if (i == t->ncodes && i == RUN_CODES_MAX)
        i--;
    else if (i == t->ncodes)
        memcpy(t->codes[t->ncodes++].code, code, sizeof code);
    t->codes[i].n++;
    t->dead++;
}

static void on_dead(void *arg, struct task *t, const char *key, const char *json, size_t len) {
    struct run *r = arg;
    (void)t;
    (void)key;
    count_dead(&r->totals, json, len);
    if (r->conf.dead && r->rc == 0)
        r->rc = r->conf.dead(r->conf.arg, json, len);
}

/* ---- opening ---- */

static struct task *last_stage(const struct run *r, int i) {
    const struct flow_task *t = &r->flow->tasks[i];
    return exec_find(r->ex, flow_last(r->flow, t)->def->instance);
}

static void bind_sinks(struct run *r) {
    r->sinks = ARENA_ARRAY(&r->arena, struct run_sink, r->flow->ntasks);
    for (int i = 0; i < r->flow->ntasks; i++) {
        struct task *t = last_stage(r, i);
        const struct task_def *d = task_def(t);
        if (!(d->op->flags & OP_SINK) || task_user(t)) /* two equal sinks are one */
            continue;
        const char *name = op_config_text(d->op, d->config, "topic");
        if (!name)
            name = op_config_text(d->op, d->config, "file");
        struct run_sink *s = &r->sinks[r->nsinks];
        *s = (struct run_sink){ .name = name ? name : r->flow->tasks[i].id,
                                .task = r->flow->tasks[i].id,
                                .index = r->nsinks++ };
        task_set_user(t, s);
    }
}

char run_delimiter(const struct spec *s, const char *topic) {
    for (int i = 0; i < s->nstages; i++) {
        const struct spec_stage *t = &s->stages[i];
        const char *reads = t->nlinks ? s->stages[t->links[0].from].reads : NULL;
        if (reads && strcmp(reads, topic) == 0 && strcmp(t->op->name, "csv_decode") == 0)
            return op_config_text(t->op, t->config, "delimiter")[0];
    }
    return 0;
}

static const char *task_id(const struct run *r, const struct task *t) {
    for (int i = 0; i < r->flow->ntasks; i++)
        for (int k = 0; k < r->flow->tasks[i].nstages; k++)
            if (r->flow->stage[r->flow->tasks[i].first + k]->def == task_def(t))
                return r->flow->tasks[i].id;
    return "";
}

static int bind_feed(struct run *r, struct feed *f, struct task *t, struct err *e) {
    const struct task_def *d = task_def(t);
    *f = (struct feed){ .task = t, .id = task_id(r, t), .time = DATASET_NO_TIME };
    if (d->op->pull)
        return 0;
    f->topic = op_config_text(d->op, d->config, "topic");
    if (r->conf.stepped)
        return 0;
    const struct run_input *in = NULL;
    for (int i = 0; i < r->conf.ninputs && !in; i++)
        if (strcmp(r->conf.inputs[i].topic, f->topic) == 0)
            in = &r->conf.inputs[i];
    if (!in)
        return err_set(e, ERR_INPUT, "topic '%s' has no input; give it one with --in %s=FILE",
                       f->topic, f->topic);
    struct dataset_conf conf = in->data;
    if (!conf.csv)
        conf.csv = run_delimiter(r->conf.spec, f->topic);
    return dataset_open(&f->data, &conf, e);
}

static int bind(struct run *r, struct err *e) {
    int n = exec_sources(r->ex);
    r->feeds = ARENA_ARRAY(&r->arena, struct feed, n);
    for (int i = 0; i < n; i++) {
        int rc = bind_feed(r, &r->feeds[i], exec_source(r->ex, i), e);
        if (rc < 0)
            return rc;
        r->nfeeds++;
    }
    for (int k = 0; k < r->conf.ninputs; k++) {
        bool read = false;
        for (int i = 0; i < r->nfeeds; i++)
            read |= r->feeds[i].topic && strcmp(r->feeds[i].topic, r->conf.inputs[k].topic) == 0;
        if (!read)
            return err_set(e, ERR_INPUT, "no source reads topic '%s', for which there is an input",
                           r->conf.inputs[k].topic);
    }
    bind_sinks(r);
    return 0;
}

static int run_plan(struct run *r, struct errs *es) {
    struct plan_cut cut = { .id = 1, .time = r->conf.now_ms };
    const struct change *ch;
    struct err e = ERR_INIT;
    r->plan = plan_new();
    int rc = plan_submit(r->plan, r->conf.spec, &cut, &ch, es);
    if (rc < 0)
        return rc;
    r->flow = plan_find(r->plan, r->conf.spec->name);
    struct exec_conf ec = {
        .batch_rows = r->conf.batch_rows, .sink = on_sink, .dead = on_dead, .arg = r
    };
    r->ex = exec_new(&ec);
    rc = exec_apply(r->ex, ch, false, &e);
    if (rc == 0) {
        plan_commit(r->plan);
        rc = bind(r, &e);
    }
    return rc < 0 ? errs_add(es, &e) : 0;
}

int run_open(struct run **out, const struct run_conf *conf, struct errs *es) {
    int64_t start = clock_mono_ns();
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        abort();
    r->conf = *conf;
    if (r->conf.batch_rows == 0 || r->conf.batch_rows > BATCH_ROWS)
        r->conf.batch_rows = BATCH_ROWS;
    r->ends = malloc(BATCH_ROWS * sizeof *r->ends);
    r->cap = RUN_TICK_BYTES + (64 << 10);
    r->bytes = malloc(r->cap);
    if (!r->ends || !r->bytes)
        abort();
    int rc = run_plan(r, es);
    r->totals.open_ns = clock_mono_ns() - start;
    *out = r;
    if (rc < 0) {
        run_close(r);
        *out = NULL;
    }
    return rc;
}

void run_close(struct run *r) {
    if (!r)
        return;
    for (int i = 0; i < r->nfeeds; i++)
        dataset_close(r->feeds[i].data);
    exec_free(r->ex);
    if (r->plan)
        plan_free(r->plan);
    arena_free(&r->arena);
    free(r->ends);
    free(r->bytes);
    free(r);
}

/* ---- running ---- */

/* One record more of the tick. */
static void buffer_add(struct run *r, uint32_t n, size_t *len, const char *data, uint32_t size) {
    if (*len + size > r->cap) {
        r->cap = *len + size;
        r->bytes = realloc(r->bytes, r->cap);
        if (!r->bytes)
            abort();
    }
    memcpy(r->bytes + *len, data, size);
    *len += size;
    r->ends[n] = (uint32_t)*len;
}

static struct log_rows buffer_rows(struct run *r, uint32_t n, size_t len) {
    r->totals.records += n;
    r->totals.bytes += len;
    return (struct log_rows){
        .n = n, .value_end = r->ends, .values = r->bytes, .time = r->conf.now_ms
    };
}

/* Fills the tick's buffer; rows->n is 0 at the end of the input. */
static int feed_read(struct run *r, struct feed *f, uint32_t max, struct log_rows *rows,
                     struct err *e) {
    uint32_t n = 0;
    size_t len = 0;
    rows->n = 0;
    while (n < max) {
        struct dataset_record *rec = &f->ahead;
        if (!f->has_ahead) {
            int rc = dataset_next(f->data, rec, e);
            if (rc < 0)
                return rc;
            if (rc == 0)
                break;
        }
        f->has_ahead = n > 0 && len + rec->len > RUN_TICK_BYTES;
        if (f->has_ahead)
            break;
        buffer_add(r, n++, &len, rec->data, rec->len);
        f->time = rec->time;
    }
    *rows = buffer_rows(r, n, len);
    return 0;
}

static bool behind(const struct feed *a, const struct feed *b) {
    if (a->time != DATASET_NO_TIME && b->time != DATASET_NO_TIME && a->time != b->time)
        return a->time < b->time;
    return a->offset < b->offset;
}

/* The source that is furthest behind, so that tasks which merge several have little to buffer;
 * their result does not depend on it. */
static struct feed *next_feed(struct run *r) {
    struct feed *best = NULL, *paused = NULL;
    for (int i = 0; i < r->nfeeds; i++) {
        struct feed *f = &r->feeds[i];
        if (f->ended)
            continue;
        if (exec_paused(r->ex, f->task))
            paused = f;
        else if (!best || behind(f, best))
            best = f;
    }
    return best ? best : paused;
}

/* A tick of up to batch_rows records; false at the end of the source. */
static bool feed_tick(struct run *r, struct feed *f, struct err *e) {
    struct log_rows rows;
    uint32_t max = r->conf.batch_rows;
    int64_t left = r->conf.limit ? r->conf.limit - f->offset : INT64_MAX;
    if (left < max)
        max = (uint32_t)left;
    if (max == 0 || atomic_load_explicit(&r->stop, memory_order_relaxed))
        return false;
    if (!f->data) {
        uint32_t n = exec_tick_pull(r->ex, f->task, max);
        f->offset += n;
        r->totals.records += n;
        return n > 0;
    }
    r->rc = feed_read(r, f, max, &rows, e);
    if (r->rc == 0 && rows.n > 0)
        exec_tick(r->ex, f->task, &rows, f->offset);
    f->offset += rows.n;
    return rows.n > 0;
}

/* What changed so far is final. */
static void tick_done(struct run *r) {
    if (++r->ticks % RUN_UNDO_TICKS)
        return;
    undo_push(exec_undo(r->ex));
    undo_commit(exec_undo(r->ex));
}

static void feed_end(struct run *r, struct feed *f) {
    f->ended = true;
    exec_finish(r->ex, f->task);
}

int run_all(struct run *r, struct err *e) {
    int64_t start = clock_mono_ns();
    struct feed *f;
    while (r->rc == 0 && (f = next_feed(r))) {
        if (!feed_tick(r, f, e) && r->rc == 0)
            feed_end(r, f);
        tick_done(r);
    }
    r->totals.ns = clock_mono_ns() - start;
    return r->rc;
}

/* ---- stepped ---- */

void run_clock(struct run *r, int64_t now_ms) {
    r->conf.now_ms = now_ms;
}

static bool feed_is(const struct feed *f, const char *name) {
    return strcmp(f->topic ? f->topic : f->id, name) == 0;
}

static int no_feed(const struct run *r, const char *name, struct err *e) {
    const char *names[ERRS_MAX];
    int n = 0;
    for (int i = 0; i < r->nfeeds && n < ERRS_MAX; i++)
        names[n++] = r->feeds[i].topic ? r->feeds[i].topic : r->feeds[i].id;
    const char *near = err_nearest(name, names, n);
    return err_set(e, ERR_NOTFOUND, "no source reads '%.100s'%s%s%s", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int not_now(const struct feed *f, const char *name, bool pull, struct err *e) {
    if (f->ended)
        return err_set(e, ERR_INPUT, "'%.100s' has ended before", name);
    if (!f->topic != pull)
        return err_set(e, ERR_INPUT,
                       pull ? "'%.100s' is a topic: give it records, not a number of rows"
                            : "'%.100s' makes its own rows: give it a number of rows, not records",
                       name);
    return 0;
}

/* Keys and times of n records; memory of `a`. */
static void record_extras(const struct run_record *v, uint32_t n, struct log_rows *rows,
                          struct arena *a) {
    uint32_t *end = ARENA_ARRAY(a, uint32_t, n), at = 0;
    int64_t *times = ARENA_ARRAY(a, int64_t, n);
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++)
        len += v[i].key ? v[i].klen : 0;
    char *keys = arena_alloc(a, len + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (v[i].key)
            memcpy(keys + at, v[i].key, v[i].klen);
        at += v[i].key ? v[i].klen : 0;
        end[i] = at | (v[i].key ? 0 : LOG_NULL);
        times[i] = v[i].time;
    }
    rows->keys = keys;
    rows->key_end = end;
    rows->times = times;
}

static void feed_push(struct run *r, struct feed *f, const struct run_record *v, uint32_t n) {
    struct arena a = { 0 };
    for (uint32_t i = 0; i < n && r->rc == 0;) {
        uint32_t k = 0, from = i;
        size_t len = 0;
        for (; i < n && k < r->conf.batch_rows && (k == 0 || len + v[i].len <= RUN_TICK_BYTES);
             i++) {
            buffer_add(r, k, &len, v[i].data ? v[i].data : "", v[i].data ? v[i].len : 0);
            r->ends[k++] |= v[i].data ? 0 : LOG_NULL;
        }
        struct log_rows rows = buffer_rows(r, k, len);
        record_extras(v + from, k, &rows, &a);
        exec_tick(r->ex, f->task, &rows, f->offset);
        arena_reset(&a);
        f->offset += k;
        tick_done(r);
    }
    arena_free(&a);
}

int run_begin(struct run *r) {
    for (int i = 0; i < r->nfeeds && r->rc == 0; i++) {
        struct feed *f = &r->feeds[i];
        const struct op_desc *op = task_def(f->task)->op;
        if (!op->pull || op->rate)
            continue;
        while (r->rc == 0 && exec_tick_pull(r->ex, f->task, r->conf.batch_rows) > 0)
            tick_done(r);
        feed_end(r, f);
    }
    return r->rc;
}

int run_push(struct run *r, const char *topic, const struct run_record *v, uint32_t n,
             struct err *e) {
    int readers = 0;
    for (int i = 0; i < r->nfeeds; i++) {
        struct feed *f = &r->feeds[i];
        if (!feed_is(f, topic))
            continue;
        int rc = not_now(f, topic, false, e);
        if (rc < 0)
            return rc;
        feed_push(r, f, v, n);
        readers++;
    }
    return readers ? r->rc : no_feed(r, topic, e);
}

int64_t run_pull(struct run *r, const char *task, int64_t n, struct err *e) {
    for (int i = 0; i < r->nfeeds; i++) {
        struct feed *f = &r->feeds[i];
        if (!feed_is(f, task))
            continue;
        int rc = not_now(f, task, true, e);
        if (rc < 0)
            return rc;
        int64_t done = 0;
        for (uint32_t k = 1; done < n && k > 0 && r->rc == 0; done += k) {
            uint32_t max = r->conf.batch_rows;
            k = exec_tick_pull(r->ex, f->task, n - done < max ? (uint32_t)(n - done) : max);
            r->totals.records += k;
            tick_done(r);
        }
        f->offset += done;
        return r->rc < 0 ? r->rc : done;
    }
    return no_feed(r, task, e);
}

int run_end(struct run *r, const char *name, struct err *e) {
    int ended = 0;
    for (int i = 0; i < r->nfeeds && r->rc == 0; i++) {
        struct feed *f = &r->feeds[i];
        if ((name && !feed_is(f, name)) || (!name && f->ended))
            continue;
        if (f->ended)
            return not_now(f, name, false, e);
        feed_end(r, f);
        tick_done(r);
        ended++;
    }
    return ended || !name ? r->rc : no_feed(r, name, e);
}

void run_stop(struct run *r) {
    atomic_store_explicit(&r->stop, true, memory_order_relaxed);
}

/* ---- figures ---- */

void run_totals(const struct run *r, struct run_totals *t) {
    *t = r->totals;
}
int run_tasks(const struct run *r) {
    return r->flow->ntasks;
}
int run_sinks(const struct run *r) {
    return r->nsinks;
}
const struct run_sink *run_sink(const struct run *r, int i) {
    return &r->sinks[i];
}

void run_task(const struct run *r, int i, struct run_task *out) {
    const struct flow_task *t = &r->flow->tasks[i];
    *out = (struct run_task){ .id = t->id, .type = t->op->name };
    for (int k = 0; k < t->nstages; k++) {
        const struct inst *in = r->flow->stage[t->first + k];
        struct task_stats s;
        task_stats(exec_find(r->ex, in->def->instance), &s);
        if (k == 0)
            out->counts.in = s.counts.in;
        out->counts.out = s.counts.out;
        out->counts.passed = s.counts.passed;
        out->counts.made = s.counts.made;
        out->counts.filtered += s.counts.filtered;
        out->counts.late += s.counts.late;
        out->counts.rejected += s.counts.rejected;
        out->counts.absorbed += s.counts.absorbed;
        out->counts.nulled += s.counts.nulled;
        out->ns += s.ns;
        out->state_keys += s.state_keys;
        out->state_bytes += s.state_bytes;
        sig_text(in->def->sig, out->signature);
    }
}

bool run_conserved(const struct run *r, const char **task) {
    for (int i = 0; i < r->flow->ntasks; i++) {
        const struct flow_task *t = &r->flow->tasks[i];
        for (int k = 0; k < t->nstages; k++) {
            struct task_stats s;
            task_stats(exec_find(r->ex, r->flow->stage[t->first + k]->def->instance), &s);
            *task = t->id;
            if (!op_counts_conserved(&s.counts))
                return false;
        }
    }
    return true;
}
