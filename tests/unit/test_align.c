/* Tasks fed by several sources (engine/align.c), in random graphs of them:
 *  - small buffers, paused sources and aborted epochs never come to a stop and never change what
 *    comes out; buffers keep to their limit, but for what a ring of waiting sources demands;
 *  - an epoch that holds idle decisions gives the same rows when it is undone and done again with
 *    the sources in another order. */
#include "engine/json.h"
#include "engine/task.h"
#include "operators/all.h"
#include "planner/merge.h"
#include "tests/unit/harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SOURCES = 4,
    MERGES = 5,
    SINKS = 16,
    HOUR = 3600000,
    ROW_BYTES = 120,
    NODES = SOURCES * 2 + MERGES
};
static const int64_t T0 = 1700000000000;

static uint64_t rng, seed;
static uint32_t rnd(uint32_t n) {
    return (uint32_t)(test_random(&rng) % n);
}

/* ---- a graph and its input ---- */

struct input { /* the records of a topic */
    struct sbuf text;
    int64_t *max; /* latest time up to each */
    uint32_t *end;
    uint32_t n, cap;
};
struct graph {
    int sources, merges;
    bool rings; /* a source in several timelines: some may wait for each other */
    int64_t lateness[SOURCES];
    int nodes, nfrom[NODES], from[NODES][3]; /* what a merging task reads; sources read nothing */
    struct sbuf spec;
    struct input in[SOURCES];
};
struct silence {
    int64_t off;
    bool pushed;
};
struct run {
    struct graph *g;
    struct plan *plan;
    struct arena arena;
    struct exec *ex;
    int nsinks;
    uint64_t sink[SINKS];
    struct sbuf out[SINKS];
    size_t pushed[SINKS], committed[SINKS];
    bool committing;
    int64_t most; /* bytes that a buffer has held */
    /* idle decisions of open epochs, as the driver keeps them */
    struct silence silence[SOURCES][64];
    int nsilence[SOURCES], silence_at[SOURCES];
};

static void input_row(struct input *in, int64_t t, uint32_t v) {
    if (in->n == in->cap) {
        in->cap = in->cap ? 2 * in->cap : 64;
        in->end = realloc(in->end, in->cap * sizeof *in->end);
        in->max = realloc(in->max, in->cap * sizeof *in->max);
        assert_non_null(in->end);
        assert_non_null(in->max);
    }
    in->max[in->n] = in->n && in->max[in->n - 1] > t ? in->max[in->n - 1] : t;
    sbuf_printf(&in->text, "{\"k\":\"k%u\",\"t\":%lld,\"v\":%u}", v % 5, (long long)t, v);
    in->end[in->n++] = (uint32_t)in->text.len;
}

/* Sources up to `apart` ms apart, each with its own pace. */
static void make_input(struct graph *g, uint32_t rows, uint32_t apart) {
    for (int s = 0; s < g->sources; s++) {
        int64_t t = T0 + rnd(apart);
        uint32_t pace = 1 + rnd(rnd(2) ? 100 : 20000);
        for (uint32_t n = rows / 2 + rnd(rows / 2); n-- > 0;) {
            t += rnd(pace);
            input_row(&g->in[s], t - rnd(pace), rnd(1000));
        }
        input_row(&g->in[s], T0 + 1000LL * HOUR, 0); /* lets all others go */
    }
}

static void add_source(struct graph *g, int s, int line, int64_t lateness) {
    sbuf_printf(&g->spec,
                "{\"id\":\"s%d_%d\",\"type\":\"source\",\"config\":{\"topic\":\"%c\",\"format\":"
                "\"json\",\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"v\":\"i64\"},\"time\":"
                "{\"field\":\"t\",\"unit\":\"ms\"},\"lateness\":\"%lldms\",\"idle\":\"1s\","
                "\"max_ahead\":\"100000h\"}},",
                s, line, 'a' + s, (long long)lateness);
}

/* Merging tasks below sources and each other; what each puts out, and a window over it. */
static void make_graph(struct graph *g, bool rings) {
    char node[NODES][16];
    int n = 0;
    memset(g, 0, sizeof *g);
    g->rings = rings;
    g->sources = 2 + (int)rnd(SOURCES - 1);
    sbuf_adds(&g->spec, "{\"braid\":1,\"name\":\"f\",\"tasks\":[");
    for (int s = 0; s < g->sources; s++) {
        g->lateness[s] = rnd(50);
        add_source(g, s, 0, g->lateness[s]);
        snprintf(node[n++], sizeof node[0], "s%d_0", s);
        if (!rings)
            continue;
        add_source(g, s, 1, rnd(5 * HOUR));
        snprintf(node[n++], sizeof node[0], "s%d_1", s);
    }
    g->merges = 1 + (int)rnd(MERGES);
    for (int m = 0; m < g->merges; m++) {
        int a = (int)rnd((uint32_t)n), b = (a + 1 + (int)rnd((uint32_t)n - 1)) % n,
            c = (int)rnd((uint32_t)n);
        sbuf_printf(&g->spec,
                    "{\"id\":\"m%d\",\"type\":\"filter\",\"config\":{\"where\":\"v <> %u\"},"
                    "\"inputs\":[\"%s\",\"%s\"",
                    m, rnd(10), node[a], node[b]);
        bool three = rnd(3) == 0 && c != a && c != b;
        if (three)
            sbuf_printf(&g->spec, ",\"%s\"", node[c]);
        g->nfrom[n] = 2 + three;
        memcpy(g->from[n], (int[]){ a, b, c }, sizeof g->from[n]);
        sbuf_printf(&g->spec,
                    "]},{\"id\":\"o%d\",\"type\":\"sink\",\"config\":{\"topic\":\"o%d\",\"format\":"
                    "\"json\"},\"inputs\":[\"m%d\"]},",
                    m, m, m);
        sbuf_printf(&g->spec,
                    "{\"id\":\"w%d\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{"
                    "\"n\":\"count()\",\"x\":\"sum(v)\"},\"every\":\"%us\"},\"inputs\":[{\"from\":"
                    "\"m%d\",\"by\":[\"k\"]}]},",
                    m, 1 + rnd(100), m);
        sbuf_printf(&g->spec,
                    "{\"id\":\"x%d\",\"type\":\"sink\",\"config\":{\"topic\":\"x%d\",\"format\":"
                    "\"json\"},\"inputs\":[\"w%d\"]},",
                    m, m, m);
        snprintf(node[n++], sizeof node[0], "m%d", m);
    }
    g->nodes = n;
    g->spec.len--;
    sbuf_adds(&g->spec, "]}");
    sbuf_str(&g->spec);
}

/* As many rows of a source can wait for its own watermark, without another's doing. */
static int64_t rows_within(const struct input *in, int64_t lateness) {
    int64_t most = 0;
    for (uint32_t i = 0, k = 0; k < in->n; k++) {
        while (in->max[i] < in->max[k] - lateness)
            i++;
        most = k - i + 1 > most ? k - i + 1 : most;
    }
    return most;
}

/* The most that a buffer can hold: its limit, and what comes in the tick that reaches it, which is
 * all that the tasks above can let go of. */
static int64_t bound_of(const struct graph *g, int64_t limit, int64_t tick_rows) {
    int64_t out[NODES], most = 0;
    for (int i = 0; i < g->nodes; i++) {
        out[i] = limit;
        if (!g->nfrom[i])
            out[i] = (tick_rows + rows_within(&g->in[i], g->lateness[i])) * ROW_BYTES;
        for (int k = 0; k < g->nfrom[i]; k++)
            out[i] += out[g->from[i][k]];
        most = g->nfrom[i] && out[i] > most ? out[i] : most;
    }
    return most;
}

static void graph_free(struct graph *g) {
    sbuf_free(&g->spec);
    for (int s = 0; s < SOURCES; s++) {
        sbuf_free(&g->in[s].text);
        free(g->in[s].end);
        free(g->in[s].max);
    }
}

/* ---- running ---- */

static void on_sink(void *arg, struct task *t, const struct batch *b) {
    struct run *r = arg;
    int i = 0;
    while (i < r->nsinks && r->sink[i] != task_def(t)->instance)
        i++;
    assert_in_range(i, 0, SINKS - 1);
    if (i == r->nsinks)
        r->sink[r->nsinks++] = task_def(t)->instance;
    for (uint32_t k = 0; k < b->n; k++) {
        struct span v = b->cols[0].str[batch_row(b, k)];
        sbuf_add(&r->out[i], v.p, v.len);
        sbuf_add(&r->out[i], "\n", 1);
    }
}

static void run_open(struct run *r, struct graph *g, int64_t align_bytes) {
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct spec s;
    struct plan_cut cut = { .id = 1 };
    const struct change *ch;
    memset(r, 0, sizeof *r);
    r->g = g;
    r->plan = plan_new();
    if (spec_parse(&s, NULL, g->spec.p, strlen(g->spec.p), &(struct spec_env){ 0 }, &r->arena, &es,
                   NULL) < 0 ||
        plan_submit(r->plan, &s, &cut, &ch, &es) < 0)
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, es.v[0].text, g->spec.p);
    r->ex = exec_new(&(struct exec_conf){ .align_bytes = align_bytes, .sink = on_sink, .arg = r });
    assert_int_equal(exec_apply(r->ex, ch, false, &e), 0);
    for (int i = 0; i < ch->nadd; i++) /* in the order of the plan, not of their first rows */
        if (ch->add[i]->op->flags & OP_SINK) {
            bool known = false;
            for (int k = 0; k < r->nsinks; k++)
                known |= r->sink[k] == ch->add[i]->instance;
            if (!known)
                r->sink[r->nsinks++] = ch->add[i]->instance;
        }
}

static void run_close(struct run *r) {
    exec_free(r->ex);
    plan_free(r->plan);
    arena_free(&r->arena);
    for (int i = 0; i < SINKS; i++)
        sbuf_free(&r->out[i]);
}

static struct input *input_of(struct run *r, int i) {
    const struct task_def *d = task_def(exec_source(r->ex, i));
    return &r->g->in[op_config_text(d->op, d->config, "topic")[0] - 'a'];
}

static uint32_t rows_left(struct run *r, int i) {
    return input_of(r, i)->n - (uint32_t)task_position(exec_source(r->ex, i));
}

static void note_held(void *arg, struct task *t) {
    struct run *r = arg;
    struct task_stats st;
    task_stats(t, &st);
    r->most = st.held_bytes > r->most ? st.held_bytes : r->most;
}

static void tick(struct run *r, int i, uint32_t n) {
    struct input *in = input_of(r, i);
    struct task *source = exec_source(r->ex, i);
    uint32_t at = (uint32_t)task_position(source), start = at ? in->end[at - 1] : 0;
    uint32_t *end = malloc((n + 1) * sizeof *end);
    assert_non_null(end);
    for (uint32_t k = 0; k < n; k++)
        end[k] = in->end[at + k] - start;
    struct log_rows rows = {
        .n = n, .value_end = end, .values = in->text.p + start, .time = T0 + 100LL * HOUR
    };
    exec_tick(r->ex, source, &rows, at);
    free(end);
    exec_each(r->ex, note_held, r);
}

static void push(struct run *r) {
    if (r->committing)
        return;
    undo_push(exec_undo(r->ex));
    exec_epoch_push(r->ex);
    for (int i = 0; i < r->nsinks; i++)
        r->pushed[i] = r->out[i].len;
    for (int s = 0; s < SOURCES; s++)
        for (int k = 0; k < r->silence_at[s]; k++)
            r->silence[s][k].pushed = true;
    r->committing = true;
}

static void commit(struct run *r) {
    if (!r->committing)
        return;
    undo_commit(exec_undo(r->ex));
    exec_epoch_commit(r->ex);
    memcpy(r->committed, r->pushed, sizeof r->pushed);
    for (int s = 0; s < SOURCES; s++) {
        int n = 0;
        while (n < r->nsilence[s] && r->silence[s][n].pushed)
            n++;
        r->nsilence[s] -= n;
        r->silence_at[s] -= n;
        memmove(r->silence[s], r->silence[s] + n, (size_t)r->nsilence[s] * sizeof r->silence[s][0]);
    }
    r->committing = false;
}

static void undo(struct run *r) {
    exec_epoch_abort(r->ex);
    undo_abort(exec_undo(r->ex));
    exec_rebuild(r->ex);
    for (int i = 0; i < r->nsinks; i++)
        r->out[i].len = r->committed[i];
    for (int s = 0; s < SOURCES; s++) {
        r->silence_at[s] = 0;
        for (int k = 0; k < r->nsilence[s]; k++)
            r->silence[s][k].pushed = false;
    }
    r->committing = false;
}

static void compare(struct run *a, struct run *b, const char *what) {
    size_t bytes = 0;
    for (int i = 0; i < a->nsinks; i++) {
        const char *p = sbuf_str(&a->out[i]), *q = sbuf_str(&b->out[i]);
        size_t at = 0;
        bytes += a->out[i].len;
        while (p[at] && p[at] == q[at])
            at++;
        if (p[at] || q[at])
            fail_msg("BRAID_SEED=%llu: %s: output %d differs at byte %zu:\n%.200s\n--\n%.200s\n%s",
                     (unsigned long long)seed, what, i, at, p + (at > 60 ? at - 60 : 0),
                     q + (at > 60 ? at - 60 : 0), a->g->spec.p);
    }
    assert_true(bytes > 0);
}

/* ---- no standstill ---- */

/* A source that does not pause; -1: there is none though rows are left. */
static int pick(struct run *r) {
    int n = exec_sources(r->ex), first = (int)rnd((uint32_t)n);
    for (int k = 0; k < n; k++) {
        int i = (first + k) % n;
        if (rows_left(r, i) && !exec_paused(r->ex, exec_source(r->ex, i)))
            return i;
    }
    return -1;
}

static bool all_read(struct run *r) {
    for (int i = 0; i < exec_sources(r->ex); i++)
        if (rows_left(r, i))
            return false;
    return true;
}

/* Aborts end some day: a source that pauses is read again up to where it was, as the executor does.
 */
static void redo(struct run *r, const uint32_t *to) {
    for (int i = 0; i < exec_sources(r->ex); i++)
        while (task_position(exec_source(r->ex, i)) < to[i]) {
            uint32_t left = to[i] - (uint32_t)task_position(exec_source(r->ex, i));
            tick(r, i, left < 50 ? left : 1 + rnd(50));
        }
}

static void run_paused(struct run *r, uint32_t tick_rows, int aborts) {
    while (!all_read(r)) {
        int i = pick(r);
        if (i < 0)
            fail_msg("BRAID_SEED=%llu: every source waits for another\n%s",
                     (unsigned long long)seed, r->g->spec.p);
        uint32_t n = 1 + rnd(tick_rows), left = rows_left(r, i);
        tick(r, i, n < left ? n : left);
        if (rnd(8) == 0)
            push(r);
        if (rnd(8) == 0)
            commit(r);
        if (aborts > 0 && rnd(20) == 0) {
            uint32_t to[SOURCES] = { 0 };
            for (int k = 0; k < exec_sources(r->ex); k++)
                to[k] = (uint32_t)task_position(exec_source(r->ex, k));
            undo(r);
            aborts--;
            if (rnd(2))
                redo(r, to);
        }
    }
}

static void test_no_standstill(void **unused) {
    (void)unused;
    static struct graph g;
    static struct run small, large;
    int rounds = getenv("BRAID_SEED") ? 1 : test_scale(300);
    int64_t most_over = 0;
    for (int i = 0; i < rounds; i++) {
        rng = seed = test_seed(1 + (uint64_t)i);
        make_graph(&g, seed % 2);
        make_input(&g, 20 + rnd(400), rnd(2) ? 10000 : 6 * HOUR);
        int64_t limit = 200 + rnd(4000);
        uint32_t tick_rows = rnd(2) ? 1 : 64;
        run_open(&small, &g, limit);
        int aborts = rnd(2) ? 20 : 0;
        run_paused(&small, tick_rows, aborts);
        run_open(&large, &g, 0);
        for (int k = 0; k < exec_sources(large.ex); k++)
            while (rows_left(&large, k))
                tick(&large, k, 1);
        compare(&large, &small, "small buffers");
        int64_t bound = g.rings ? 0 : bound_of(&g, limit, tick_rows);
        most_over = small.most - limit > most_over ? small.most - limit : most_over;
        if (!g.rings && !aborts && small.most > bound) /* a redo asks for no room */
            fail_msg("BRAID_SEED=%llu: a buffer of %lld bytes held %lld\n%s",
                     (unsigned long long)seed, (long long)limit, (long long)small.most, g.spec.p);
        run_close(&small);
        run_close(&large);
        graph_free(&g);
    }
    print_message("%d graphs; at most %lld bytes above the limit\n", rounds, (long long)most_over);
}

/* ---- the same again ---- */

static void tick_silent(struct run *r, int s) {
    struct task *source = exec_source(r->ex, s);
    if (r->silence_at[s] == r->nsilence[s]) {
        if (r->nsilence[s] == 64)
            return;
        r->silence[s][r->nsilence[s]++] = (struct silence){ .off = task_position(source) };
    }
    r->silence_at[s]++;
    exec_tick_idle(r->ex, source, 1000);
}

/* One step of a source, at most to where it has been known to be silent. */
static bool step(struct run *r, int s, const uint32_t *to, bool may_idle) {
    struct task *source = exec_source(r->ex, s);
    uint32_t at = (uint32_t)task_position(source), left = to[s] - at, n = 1 + rnd(20);
    if (r->silence_at[s] < r->nsilence[s]) {
        int64_t off = r->silence[s][r->silence_at[s]].off;
        if (off == at) {
            tick_silent(r, s);
            return true;
        }
        left = (uint32_t)off - at < left ? (uint32_t)off - at : left;
    } else if (may_idle && rnd(4) == 0 && exec_idle_ms(source) < INT64_MAX) {
        tick_silent(r, s);
        return true;
    }
    if (left == 0)
        return false;
    tick(r, s, n < left ? n : left);
    return true;
}

/* All sources to `to`, in any order. */
static void steps(struct run *r, const uint32_t *to, bool may_idle) {
    int n = exec_sources(r->ex);
    for (bool more = true; more;) {
        int first = (int)rnd((uint32_t)n);
        more = step(r, first, to, may_idle);
        for (int k = 1; k < n && !more; k++)
            more = step(r, (first + k) % n, to, false);
    }
}

static void test_idle_again(void **unused) {
    (void)unused;
    static struct graph g;
    static struct run r, first;
    int rounds = getenv("BRAID_SEED") ? 1 : test_scale(300);
    uint32_t decisions = 0;
    for (int i = 0; i < rounds; i++) {
        rng = seed = test_seed(1 + (uint64_t)i);
        make_graph(&g, seed % 2);
        make_input(&g, 20 + rnd(200), rnd(2) ? 10000 : HOUR);
        run_open(&r, &g, 0);
        memset(&first, 0, sizeof first);
        uint32_t to[SOURCES] = { 0 };
        int n = exec_sources(r.ex), parts = 1 + (int)rnd(4);
        for (int part = 1; part <= parts; part++) {
            for (int s = 0; s < n; s++) /* the last part ends with rows of all sources */
                to[s] =
                    part == parts ? input_of(&r, s)->n : to[s] + rnd(input_of(&r, s)->n - to[s]);
            if (rnd(2)) { /* some of it is in the epoch before */
                uint32_t half[SOURCES];
                for (int s = 0; s < n; s++) {
                    uint32_t at = (uint32_t)task_position(exec_source(r.ex, s));
                    half[s] = at + (to[s] - at) / 2;
                }
                steps(&r, half, true);
                push(&r);
            }
            steps(&r, to, true);
            for (int s = 0; s < n; s++)
                decisions += (uint32_t)r.nsilence[s];
            for (int k = 0; k < r.nsinks; k++) {
                first.out[k].len = 0;
                sbuf_add(&first.out[k], r.out[k].p ? r.out[k].p : "", r.out[k].len);
            }
            first.g = &g;
            first.nsinks = r.nsinks;
            for (uint32_t times = 1 + rnd(2); times-- > 0;) {
                undo(&r);
                steps(&r, to, false);
            }
            if (part == parts)
                compare(&first, &r, "undone and done again");
            push(&r);
            commit(&r);
        }
        run_close(&r);
        for (int k = 0; k < SINKS; k++)
            sbuf_free(&first.out[k]);
        graph_free(&g);
    }
    assert_true(decisions > (uint32_t)rounds);
    print_message("%d graphs, %u idle decisions\n", rounds, decisions);
}

/* ---- streams without event time ---- */

/* Raw topics whose log time jumps back and forth, tombstones filtered out: rows come in order of
 * the latest log time so far of their topic, also of records that did not come through. */
static void log_order(uint32_t cut) {
    static const char spec[] =
        "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"a\",\"type\":\"source\",\"config\":{"
        "\"topic\":\"a\"}},{\"id\":\"b\",\"type\":\"source\",\"config\":{\"topic\":\"b\"}},"
        "{\"id\":\"x\",\"type\":\"filter\",\"config\":{\"where\":\"value is not null\"},\"inputs\":"
        "[\"a\"]},{\"id\":\"m\",\"type\":\"filter\",\"config\":{\"where\":\"true\"},\"inputs\":"
        "[\"x\",\"b\"]},{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":"
        "\"raw\"},\"inputs\":[\"m\"]}]}";
    enum { N = 200 };
    struct expect {
        int64_t order;
        char text[16];
    } want[2 * N];
    static struct graph g;
    static struct run r;
    struct sbuf text = { 0 };
    int64_t time[2][N], max[2];
    uint32_t end[2][N], n = 0;
    char bytes[2][N * 8];
    memset(&g, 0, sizeof g);
    sbuf_adds(&g.spec, spec);
    sbuf_str(&g.spec);
    for (int s = 0; s < 2; s++) {
        size_t len = 0;
        max[s] = 0;
        for (int i = 0; i < N; i++) {
            /* appended in runs of one time; no ties between topics */
            if (i > 0 && rnd(3))
                time[s][i] = time[s][i - 1];
            else
                time[s][i] = 2 * (10 * i + (rnd(5) ? 0 : (int)rnd(400))) + s;
            max[s] = time[s][i] > max[s] ? time[s][i] : max[s];
            bool gone = s == 0 && rnd(4) == 0;
            int w = snprintf(bytes[s] + len, 8, "%c%d", 'a' + s, i);
            len += gone ? 0 : (size_t)w;
            end[s][i] = (uint32_t)len | (gone ? LOG_NULL : 0);
            if (gone)
                continue;
            want[n].order = max[s];
            snprintf(want[n++].text, sizeof want[0].text, "%c%d", 'a' + s, i);
        }
    }
    run_open(&r, &g, 0);
    for (int done[2] = { 0 }; done[0] < N || done[1] < N;) {
        int s = done[0] == N ? 1 : done[1] == N ? 0 : (int)rnd(2);
        int k = 1 + (int)rnd(cut), at = done[s];
        uint32_t moved[N], start = at ? end[s][at - 1] & ~LOG_NULL : 0;
        struct task *source = exec_source(r.ex, 0);
        const struct task_def *d = task_def(source);
        int same = 1;
        while (at + same < N && time[s][at + same] == time[s][at])
            same++;
        k = k < same ? k : same;
        if (op_config_text(d->op, d->config, "topic")[0] != 'a' + s)
            source = exec_source(r.ex, 1);
        for (int i = 0; i < k; i++)
            moved[i] = ((end[s][at + i] & ~LOG_NULL) - start) | (end[s][at + i] & LOG_NULL);
        struct log_rows rows = {
            .n = (uint32_t)k, .value_end = moved, .values = bytes[s] + start, .time = time[s][at]
        };
        exec_tick(r.ex, source, &rows, at);
        done[s] += k;
    }
    for (uint32_t i = 1; i < n; i++) /* by order, each topic's rows as they came */
        for (uint32_t k = i; k > 0 && want[k].order < want[k - 1].order; k--) {
            struct expect e = want[k];
            want[k] = want[k - 1];
            want[k - 1] = e;
        }
    int64_t low = max[0] < max[1] ? max[0] : max[1];
    for (uint32_t i = 0; i < n && want[i].order < low; i++)
        sbuf_printf(&text, "%s\n", want[i].text);
    assert_string_equal(sbuf_str(&r.out[0]), sbuf_str(&text));
    assert_true(text.len > 100);
    sbuf_free(&text);
    run_close(&r);
    graph_free(&g);
}

static void test_log_order(void **unused) {
    (void)unused;
    for (int i = test_scale(200); i > 0; i--) {
        rng = seed = test_seed((uint64_t)i);
        log_order(i % 3 == 0 ? 1 : 50);
    }
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_standstill),
                                        cmocka_unit_test(test_idle_again),
                                        cmocka_unit_test(test_log_order) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
