/* Random graphs over one or two sources, run twice: one row a tick, and random ticks with random
 * interleaving of the sources, epochs that abort and are run again. Every sink must give the same
 * bytes (rows with their positions and event times), and every task must conserve rows. */
#include "engine/exec.h"
#include "engine/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 120, TASKS_MAX = 12 };

static uint64_t rng;
static uint32_t rnd(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

/* ---- operators: all streams have the fields k, v (i64) ---- */

static const struct field kv_fields[2] = { { "k", TYPE_I64, 0 }, { "v", TYPE_I64, 0 } };
static const struct schema kv = { 2, kv_fields };
static const struct field raw_fields[1] = { { "value", TYPE_BYTES, 0 } };
static const struct schema raw = { 1, raw_fields };

/* Records are three int64: time, k, v. v < 0 is rejected. Event time with lateness 5. */
struct parse {
    struct state *max;
    struct origin *o;
};
struct running {
    int64_t max;
};

static int parse_open(void *self, struct op_ctx *c, struct err *e) {
    struct parse *p = self;
    (void)e;
    p->max = op_state(c, 0, sizeof(struct running));
    return 0;
}

static struct running *parse_max(struct parse *p) {
    bool created;
    struct running *r = state_edit(p->max, "", 0, state_hash("", 0), &created);
    if (created)
        r->max = TIME_MIN;
    return r;
}

static int64_t lag(int64_t max) {
    return max == TIME_MIN ? TIME_MIN : max - 5;
}

static void parse_origin(struct parse *p, struct op_ctx *c) {
    if (p->o)
        return;
    p->o = op_alloc(c, sizeof *p->o);
    *p->o = *c->origin;
    int64_t *wm = op_alloc(c, sizeof *wm * c->origin->n);
    struct running *r = parse_max(p);
    p->o->wm_before = lag(r->max);
    for (uint32_t i = 0; i < c->origin->n; i++) {
        if (c->origin->raw) {
            int64_t rec[3];
            memcpy(rec, c->origin->raw[i].p, sizeof rec);
            if (rec[2] >= 0 && rec[0] > r->max)
                r->max = rec[0];
        }
        wm[i] = lag(r->max);
    }
    p->o->wm = wm;
}

static void parse_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct parse *p = self;
    (void)port;
    parse_origin(p, c);
    int64_t *k = op_alloc(c, 8 * b->rows), *v = op_alloc(c, 8 * b->rows);
    int64_t *t = op_alloc(c, 8 * b->rows), *wm = op_alloc(c, 8 * b->rows);
    uint16_t *sel = op_alloc(c, 2 * b->rows);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t rec[3];
        memcpy(rec, b->cols[0].str[r].p, sizeof rec);
        t[r] = rec[0];
        k[r] = rec[1];
        v[r] = rec[2];
        wm[r] = r ? p->o->wm[r - 1] : p->o->wm_before;
        if (v[r] < 0)
            op_reject(c, b, r, "negative", "v is %lld", (long long)v[r]);
        else
            sel[n++] = (uint16_t)r;
    }
    struct column *cols = op_alloc(c, 2 * sizeof *cols);
    cols[0] = (struct column){ .i64 = k };
    cols[1] = (struct column){ .i64 = v };
    struct batch *o = batch_select(c->arena, b, sel, n);
    o->schema = &kv;
    o->cols = cols;
    o->time = t;
    o->wm = wm;
    o->origin = p->o;
    c->count->passed += n;
    op_emit(c, 0, o);
}

static void parse_end(void *self, struct op_ctx *c) {
    struct parse *p = self;
    parse_origin(p, c);
    c->out_origin = p->o;
    p->o = NULL;
}

static void filter_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    const int64_t *mod = c->config;
    (void)self;
    (void)port;
    uint16_t *sel = op_alloc(c, 2 * b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->cols[1].i64[batch_row(b, i)] % *mod)
            sel[n++] = (uint16_t)batch_row(b, i);
    c->count->passed += n;
    c->count->filtered += b->n - n;
    op_emit(c, 0, batch_select(c->arena, b, sel, n));
}

/* Each row v times mod 4, v changed; port 1 gets the rest. */
static void explode_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    (void)self;
    uint16_t *src = op_alloc(c, 2 * 3 * b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        for (int64_t k = b->cols[1].i64[batch_row(b, i)] % 4; k > 0; k--)
            src[n++] = (uint16_t)batch_row(b, i);
    struct column *cols;
    struct batch *o = batch_make(c->arena, b, &kv, src, n, true, &cols);
    cols[0] = column_gather(c->arena, &b->cols[0], &kv.f[0], src, n);
    int64_t *v = op_alloc(c, 8 * n);
    for (uint32_t i = 0; i < n; i++)
        v[i] = b->cols[1].i64[src[i]] * 3 + port + o->sub[i];
    cols[1].i64 = v;
    c->count->absorbed += b->n;
    c->count->made += n;
    op_emit(c, 0, o);
}

/* Order sensitive: v becomes a hash of all v seen so far and of the port. */
static int fold_open(void *self, struct op_ctx *c, struct err *e) {
    (void)e;
    *(struct state **)self = op_state(c, 0, 8);
    return 0;
}

static void fold_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    uint64_t *h = state_edit(*(struct state **)self, "x", 1, state_hash("x", 1), NULL);
    int64_t *v = op_alloc(c, 8 * b->rows);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        *h = (*h + (uint64_t)b->cols[1].i64[r] + (uint64_t)port * 7919) * 0x9e3779b97f4a7c15u;
        v[r] = (int64_t)(*h >> 40);
    }
    struct batch *o = batch_copy(c->arena, b);
    struct column *cols = batch_cols(c->arena, b, 0);
    cols[1] = (struct column){ .i64 = v };
    o->cols = cols;
    c->count->passed += b->n;
    op_emit(c, 0, o);
}

/* Tumbling windows of `size`: (k of the window, sum of v); late rows are counted. */
struct sum {
    int64_t end, sum, n;
};
static int window_open(void *self, struct op_ctx *c, struct err *e) {
    (void)e;
    *(struct state **)self = op_state(c, 0, sizeof(struct sum));
    return 0;
}

static int64_t window_end(int64_t t, int64_t size) {
    int64_t m = t % size;
    return t - (m < 0 ? m + size : m) + size;
}

static void window_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    const int64_t *size = c->config;
    (void)port;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t end = window_end(b->time[r], *size);
        if (b->wm[r] >= end) {
            c->count->late++;
            continue;
        }
        struct sum *s = state_edit(*(struct state **)self, &end, 8, state_hash(&end, 8), NULL);
        s->end = end;
        s->sum += b->cols[1].i64[r];
        s->n++;
        c->count->absorbed++;
    }
}

static int by_end(const void *a, const void *b) {
    const struct sum *x = a, *y = b;
    return (x->end > y->end) - (x->end < y->end);
}

static void window_watermark(void *self, struct op_ctx *c, int64_t wm) {
    const int64_t *size = c->config;
    struct state *s = *(struct state **)self;
    struct sum due[ROWS * 4];
    uint32_t n = 0, kl, vl;
    uint64_t it = 0;
    const void *k, *v;
    while (state_next(s, &it, &k, &kl, &v, &vl))
        if (((const struct sum *)v)->end <= wm)
            memcpy(&due[n++], v, sizeof due[0]);
    qsort(due, n, sizeof due[0], by_end);
    int64_t *fire = op_alloc(c, 8 * (n + 1)), *time = op_alloc(c, 8 * (n + 1));
    int64_t *ks = op_alloc(c, 8 * (n + 1)), *vs = op_alloc(c, 8 * (n + 1));
    for (uint32_t i = 0; i < n; i++) {
        fire[i] = due[i].end;
        time[i] = due[i].end - 1;
        ks[i] = due[i].n;
        vs[i] = due[i].sum;
        state_drop(s, &due[i].end, 8, state_hash(&due[i].end, 8));
    }
    struct column *cols;
    struct batch *o = op_fire(c, 0, n, fire, time, &cols);
    cols[0].i64 = ks;
    cols[1].i64 = vs;
    c->count->made += n;
    op_emit(c, 0, o);
    c->next_timer = wm == TIME_MAX   ? TIME_MAX
                    : wm == TIME_MIN ? TIME_MIN + 1
                                     : window_end(wm, *size);
}

static const struct op_desc op_src = { .name = "src", .flags = OP_SOURCE };
static const struct op_desc op_parse = { .name = "parse",
                                         .self_size = sizeof(struct parse),
                                         .open = parse_open,
                                         .process = parse_process,
                                         .end = parse_end };
static const struct op_desc op_filter = { .name = "filter", .process = filter_process };
static const struct op_desc op_explode = { .name = "explode", .process = explode_process };
static const struct op_desc op_fold = {
    .name = "fold", .self_size = 8, .open = fold_open, .process = fold_process
};
static const struct op_desc op_window = { .name = "window",
                                          .flags = OP_TIMERS,
                                          .self_size = 8,
                                          .open = window_open,
                                          .process = window_process,
                                          .watermark = window_watermark };
static const struct op_desc op_out = { .name = "out", .flags = OP_SINK };

/* ---- a random graph ---- */

struct node {
    struct task_def def;
    struct link_def link[3];
    int64_t config;
    char label[16];
    struct sbuf text; /* sinks: rows so far; committed, and at the running epoch's start */
    size_t committed, closed;
    struct op_counts counts; /* of the first run */
};
struct graph {
    struct node node[3 * TASKS_MAX];
    int n;
    struct sbuf rec[2]; /* records of each source */
    int sources;
};

static const struct schema *const one_kv[3] = { &kv, &kv, &kv };
static const struct schema *const one_raw[1] = { &raw };
static const char *const ports[3] = { "a", "b", "c" };

static struct node *node_add(struct graph *g, const struct op_desc *op) {
    struct node *n = &g->node[g->n];
    memset(n, 0, sizeof *n);
    n->counts.in = UINT64_MAX;
    snprintf(n->label, sizeof n->label, "t%d", g->n);
    n->def = (struct task_def){ .instance = (uint64_t)g->n + 100,
                                .op = op,
                                .config = &n->config,
                                .label = n->label,
                                .nin = 1,
                                .nout = 1,
                                .in_name = ports,
                                .out_name = ports,
                                .in = one_kv,
                                .out = one_kv,
                                .links = n->link };
    g->n++;
    return n;
}

static void node_link(struct node *n, const struct node *from, int port) {
    n->link[n->def.nlinks++] =
        (struct link_def){ .from = from->def.instance, .in_port = (uint16_t)port };
}

static void graph_make(struct graph *g) {
    static const struct op_desc *const ops[] = { &op_filter, &op_explode, &op_fold, &op_window };
    memset(g, 0, sizeof *g);
    g->sources = 1 + (int)rnd(2);
    for (int s = 0; s < g->sources; s++) {
        struct node *src = node_add(g, &op_src);
        src->def.nin = 0;
        src->def.out = one_raw;
        struct node *p = node_add(g, &op_parse);
        p->def.in = one_raw;
        node_link(p, src, 0);
        int64_t t = 1000 + rnd(50);
        for (int i = 0; i < ROWS; i++) {
            t += rnd(6);
            int64_t rec[3] = { t - (int64_t)rnd(9), rnd(5), rnd(20) ? (int64_t)rnd(1000) : -1 };
            sbuf_add(&g->rec[s], rec, sizeof rec);
        }
    }
    int tasks = 2 + (int)rnd(TASKS_MAX - 2), first = g->n;
    for (int i = 0; i < tasks; i++) {
        struct node *n = node_add(g, ops[rnd(4)]);
        n->config = 2 + rnd(30);
        int links = rnd(3) ? 1 : 1 + (int)rnd(3);
        n->def.nin = links;
        for (int k = 0; k < links; k++) {
            int last = (int)(n - g->node), from;
            do
                from = (int)rnd((uint32_t)last);
            while (g->node[from].def.op == &op_src);
            node_link(n, &g->node[from], k);
        }
    }
    for (int i = first; i < first + tasks; i++) {
        struct node *o = node_add(g, &op_out);
        o->def.nout = 0;
        node_link(o, &g->node[i], 0);
    }
}

static void sink_text(void *arg, struct task *t, const struct batch *b) {
    struct node *n = &((struct graph *)arg)->node[task_def(t)->instance - 100];
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        sbuf_printf(&n->text, "%lld.%lld t=%lld wm=%lld k=%lld v=%lld\n",
                    (long long)batch_off(b, r), (long long)batch_sub(b, r), (long long)b->time[r],
                    (long long)b->wm[r], (long long)b->cols[0].i64[r],
                    (long long)b->cols[1].i64[r]);
    }
}

static void tick(struct exec *ex, struct graph *g, int s, uint32_t n) {
    struct task *t = exec_source(ex, s);
    int64_t at = task_position(t);
    uint32_t ends[ROWS];
    if (at + n > ROWS)
        n = (uint32_t)(ROWS - at);
    for (uint32_t i = 0; i < n; i++)
        ends[i] = 24 * (i + 1);
    struct log_rows rows = { .n = n, .value_end = ends, .values = g->rec[s].p + at * 24 };
    exec_tick(ex, t, &rows, at);
}

static void conserved(void *arg, struct task *t) {
    struct task_stats s;
    (void)arg;
    task_stats(t, &s);
    if (!op_counts_conserved(&s.counts) && !(task_def(t)->op->flags & OP_SINK))
        fail_msg("%s of %s does not conserve rows", task_def(t)->label, task_def(t)->op->name);
}

/* Counters are part of an epoch: the same whatever was aborted and run again. */
static void same_counts(void *arg, struct task *t) {
    struct node *n = &((struct graph *)arg)->node[task_def(t)->instance - 100];
    struct task_stats s;
    task_stats(t, &s);
    if (n->counts.in == UINT64_MAX)
        n->counts = s.counts;
    assert_memory_equal(&n->counts, &s.counts, sizeof s.counts);
}

static void graph_undo_texts(struct graph *g) {
    for (int i = 0; i < g->n; i++)
        g->node[i].text.len = g->node[i].closed = g->node[i].committed;
}

/* A few ticks of random sources, then perhaps an epoch boundary, a commit or an abort. */
static void run_random(struct exec *ex, struct graph *g) {
    bool committing = false;
    for (;;) {
        int s = (int)rnd((uint32_t)g->sources), left = 0;
        for (int i = 0; i < g->sources; i++)
            left += task_position(exec_source(ex, i)) < ROWS;
        if (!left && !rnd(4))
            return;
        if (task_position(exec_source(ex, s)) < ROWS)
            tick(ex, g, s, 1 + rnd(rnd(2) ? 4 : 60));
        switch (rnd(12)) {
        case 0:
            if (committing)
                break;
            undo_push(exec_undo(ex));
            exec_epoch_push(ex);
            for (int i = 0; i < g->n; i++)
                g->node[i].closed = g->node[i].text.len;
            committing = true;
            break;
        case 1:
            if (!committing)
                break;
            undo_commit(exec_undo(ex));
            exec_epoch_commit(ex);
            for (int i = 0; i < g->n; i++)
                g->node[i].committed = g->node[i].closed;
            committing = false;
            break;
        case 2:
            undo_abort(exec_undo(ex));
            exec_epoch_abort(ex);
            exec_rebuild(ex);
            graph_undo_texts(g);
            committing = false;
            break;
        default:
            break;
        }
    }
}

static void run(struct graph *g, bool random) {
    struct exec *ex = exec_new(&(struct exec_conf){ .sink = sink_text, .arg = g });
    const struct task_def *add[3 * TASKS_MAX];
    for (int i = 0; i < g->n; i++) {
        add[i] = &g->node[i].def;
        g->node[i].text.len = g->node[i].committed = g->node[i].closed = 0;
    }
    struct err e;
    assert_int_equal(
        exec_apply(ex, &(struct change){ .version = 1, .nadd = g->n, .add = add }, false, &e), 0);
    if (random)
        run_random(ex, g);
    else
        for (int i = 0; i < ROWS; i++)
            for (int s = 0; s < g->sources; s++)
                tick(ex, g, s, 1);
    for (int s = g->sources; s-- > 0;)
        exec_finish(ex, exec_source(ex, random ? s : g->sources - 1 - s));
    exec_each(ex, conserved, NULL);
    exec_each(ex, same_counts, g);
    exec_free(ex);
}

static void one(uint64_t seed) {
    rng = seed * 2654435761u + 88172645463325252u;
    static struct graph g;
    struct sbuf expect[3 * TASKS_MAX] = { 0 };
    graph_make(&g);
    run(&g, false);
    for (int i = 0; i < g.n; i++)
        sbuf_add(&expect[i], g.node[i].text.p ? g.node[i].text.p : "", g.node[i].text.len);
    for (int k = 0; k < 3; k++) {
        run(&g, true);
        for (int i = 0; i < g.n; i++)
            if (expect[i].len != g.node[i].text.len ||
                (expect[i].len && memcmp(expect[i].p, g.node[i].text.p, expect[i].len) != 0)) {
                sbuf_str(&expect[i]);
                print_message("--- one row a tick\n%s--- random ticks\n%s", sbuf_str(&expect[i]),
                              sbuf_str(&g.node[i].text));
                fail_msg("BRAID_SEED=%llu: sink %d below task of %s differs",
                         (unsigned long long)seed, i,
                         g.node[g.node[i].link[0].from - 100].def.op->name);
            }
    }
    for (int i = 0; i < g.n; i++) {
        sbuf_free(&expect[i]);
        sbuf_free(&g.node[i].text);
    }
    sbuf_free(&g.rec[0]);
    sbuf_free(&g.rec[1]);
}

static void test_cuts(void **unused) {
    (void)unused;
    const char *env = getenv("BRAID_SEED"), *scale = getenv("BRAID_TEST_SCALE");
    uint64_t first = env ? strtoull(env, NULL, 10) : 1;
    uint64_t n = env ? 1 : scale ? strtoull(scale, NULL, 10) * 10 : 1000;
    for (uint64_t seed = first; seed < first + n; seed++)
        one(seed);
}

/* A full buffer of a merging task pauses the source that is ahead, and only that one, until the
 * other has caught up. */
static void test_pause(void **unused) {
    (void)unused;
    static struct graph g;
    memset(&g, 0, sizeof g);
    rng = 42;
    g.sources = 2;
    struct node *parse[2];
    for (int s = 0; s < 2; s++) {
        struct node *src = node_add(&g, &op_src);
        src->def.nin = 0;
        src->def.out = one_raw;
        parse[s] = node_add(&g, &op_parse);
        parse[s]->def.in = one_raw;
        node_link(parse[s], src, 0);
        for (int64_t i = 0; i < ROWS; i++) {
            int64_t rec[3] = { 1000 + 10 * i, i % 5, i };
            sbuf_add(&g.rec[s], rec, sizeof rec);
        }
    }
    struct node *fold = node_add(&g, &op_fold), *out = node_add(&g, &op_out);
    fold->def.nin = 2;
    node_link(fold, parse[0], 0);
    node_link(fold, parse[1], 1);
    node_link(out, fold, 0);
    const struct task_def *add[6];
    for (int i = 0; i < g.n; i++)
        add[i] = &g.node[i].def;
    struct exec *ex =
        exec_new(&(struct exec_conf){ .align_bytes = 500, .sink = sink_text, .arg = &g });
    struct err e;
    assert_int_equal(
        exec_apply(ex, &(struct change){ .version = 1, .nadd = g.n, .add = add }, false, &e), 0);
    struct task *a = exec_source(ex, 0), *b = exec_source(ex, 1);
    struct task_stats st;
    while (!exec_paused(ex, a)) {
        assert_true(task_position(a) < ROWS);
        tick(ex, &g, 0, 1);
    }
    task_stats(exec_find(ex, fold->def.instance), &st);
    assert_true(st.held_bytes >= 500 && st.held_bytes < 1000);
    assert_string_equal(st.held_for, task_def(b)->label);
    assert_false(exec_paused(ex, b));
    assert_int_equal(out->text.len, 0);
    tick(ex, &g, 1, 1);
    assert_true(exec_paused(ex, a)); /* not far enough yet */
    tick(ex, &g, 1, ROWS);           /* now it is ahead itself */
    assert_false(exec_paused(ex, a));
    assert_true(exec_paused(ex, b));
    assert_true(out->text.len > 0);
    tick(ex, &g, 0, ROWS);
    assert_false(exec_paused(ex, b));
    task_stats(exec_find(ex, fold->def.instance), &st);
    assert_null(st.held_for);
    exec_free(ex);
    for (int i = 0; i < g.n; i++)
        sbuf_free(&g.node[i].text);
    sbuf_free(&g.rec[0]);
    sbuf_free(&g.rec[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cuts), cmocka_unit_test(test_pause) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
