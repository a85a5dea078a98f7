/* Expressions, exact sums and window_aggregate by themselves, one core. Rows come in batches of
 * 1,024 with keys in random order; epochs of 64 batches are committed, so pre-images are paid for.
 */
#include "engine/expr.h"
#include "engine/op.h"
#include "engine/xsum.h"
#include "operators/all.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1 << 21, REPEAT = 5, EPOCH_TICKS = 64 };

struct bench {
    struct arena arena, tick;
    struct undo *undo;
    struct state *table[STATE_TABLES];
    struct op_host host;
    struct op_ctx ctx;
    struct op_counts counts;
    const struct op_desc *desc;
    void *self;
};

static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_window: %s: %s\n", what, why);
    exit(1);
}
static void on_emit(struct op_ctx *c, int port, const struct batch *b) {
    (void)c;
    (void)port;
    bench_use(b->n);
}
static void on_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                      const char *text) {
    (void)c;
    (void)b;
    (void)row;
    die(code, text);
}
static struct state *on_state(struct op_ctx *c, int table, uint32_t vsize) {
    struct bench *b = (struct bench *)c->task;
    return b->table[table] = state_new(b->undo, 1, table, vsize);
}
static void on_error(struct op_plan *p, const char *param, const char *key, const char *text) {
    (void)p;
    (void)key;
    die(param ? param : "plan", text);
}

static const struct field fields[] = {
    { "key", TYPE_STR, 0 }, { "x", TYPE_F64, 0 }, { "y", TYPE_F64, 0 }, { "i", TYPE_I64, 0 }
};
static const struct schema schema = { 4, fields };

static void op_open(struct bench *b, const char *op, const char *config, bool by_key) {
    static const char *const in_name[] = { "in", NULL }, *const out_name[] = { "out", NULL };
    static const char *const by[] = { "key" };
    static const int by_index[] = { 0 };
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct json_doc doc;
    const struct schema **io = ARENA_ARRAY(&b->arena, const struct schema *, 2);
    b->desc = ops_find(op);
    void *conf = arena_zalloc(&b->arena, b->desc->config_size);
    if (json_parse(&doc, NULL, config, strlen(config), &b->arena, &es) < 0 ||
        params_parse(b->desc, &doc, doc.root, conf, &b->arena, NULL, NULL, &es) < 0)
        die(op, es.v[0].text);
    io[0] = &schema;
    struct op_plan p = { .config = conf,
                         .nin = 1,
                         .in_name = in_name,
                         .in = io,
                         .nout = 1,
                         .out_name = out_name,
                         .out = io + 1,
                         .nby = by_key,
                         .by = by,
                         .in_time = true,
                         .arena = &b->arena,
                         .report = on_error };
    b->desc->plan(&p);
    b->undo = undo_new();
    b->host = (struct op_host){ .emit = on_emit, .reject = on_reject, .state = on_state };
    b->ctx = (struct op_ctx){ .desc = b->desc,
                              .config = conf,
                              .nin = 1,
                              .nout = 1,
                              .in = io,
                              .out = io + 1,
                              .in_name = in_name,
                              .out_name = out_name,
                              .nby = by_key,
                              .by = by_index,
                              .instance = 1,
                              .arena = &b->tick,
                              .count = &b->counts,
                              .next_timer = TIME_MIN,
                              .wm = TIME_MIN,
                              .host = &b->host,
                              .task = (struct task *)b };
    b->self = calloc(1, b->desc->self_size);
    if (!b->self || b->desc->open(b->self, &b->ctx, &e) < 0)
        die(op, e.text);
}
static void op_shut(struct bench *b) {
    b->desc->close(b->self);
    free(b->self);
    for (int i = 0; i < STATE_TABLES; i++)
        if (b->table[i]) {
            undo_forget(b->undo, b->table[i]);
            state_free(b->table[i]);
        }
    undo_free(b->undo);
    arena_free(&b->arena);
    arena_free(&b->tick);
    *b = (struct bench){ 0 };
}

/* ---- rows ---- */

struct rows {
    struct column cols[4];
    int64_t *time;
    char (*text)[16];
};
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
/* `per_s` rows a second of event time. */
static void make_rows(struct rows *r, uint32_t keys, int64_t per_s) {
    struct span *s = malloc(ROWS * sizeof *s);
    double *x = malloc(ROWS * sizeof *x), *y = malloc(ROWS * sizeof *y);
    int64_t *i = malloc(ROWS * sizeof *i);
    r->time = malloc(ROWS * sizeof *r->time);
    r->text = calloc(keys, sizeof *r->text);
    if (!s || !x || !y || !i || !r->time || !r->text)
        die("rows", "out of memory");
    for (uint32_t k = 0; k < keys; k++)
        snprintf(r->text[k], sizeof *r->text, "sensor-%06u", k);
    for (uint32_t k = 0; k < ROWS; k++) {
        uint64_t h = mix(k + 1);
        s[k] = (struct span){ r->text[h % keys], 13, 0 };
        x[k] = (double)(h >> 44) / 100;
        y[k] = (double)(h >> 40 & 0xFFFF) / 1000;
        i[k] = (int64_t)(h >> 20 & 0xFFFFF);
        r->time[k] = 1422748800000 + (int64_t)k * 1000 / per_s;
    }
    r->cols[0] = (struct column){ .str = s };
    r->cols[1] = (struct column){ .f64 = x };
    r->cols[2] = (struct column){ .f64 = y };
    r->cols[3] = (struct column){ .i64 = i };
}
static void free_rows(struct rows *r) {
    for (int f = 0; f < 4; f++)
        free((void *)r->cols[f].p);
    free(r->time);
    free(r->text);
}
/* The batch of rows at..at+1023; without the cached hashes of an earlier pass. */
static struct batch *batch_at(struct arena *a, const struct rows *r, uint32_t at) {
    static const size_t size[4] = { sizeof(struct span), 8, 8, 8 };
    static const struct origin origin = { .id = 1, .name = "bench" };
    struct batch *b = ARENA_NEW(a, struct batch);
    struct column *c = arena_zalloc(a, 4 * sizeof *c);
    for (int f = 0; f < 4; f++)
        c[f].p = (const char *)r->cols[f].p + at * size[f];
    *b = (struct batch){ .schema = &schema,
                         .cols = c,
                         .rows = BATCH_ROWS,
                         .n = BATCH_ROWS,
                         .off0 = at,
                         .time = r->time + at,
                         .origin = &origin };
    return b;
}

/* Rows a second of the best of several passes, in millions. */
static double run_op(const char *op, const char *config, bool by_key, const struct rows *r) {
    double best = 1e9;
    for (int k = 0; k < REPEAT; k++) {
        struct bench b = { 0 };
        op_open(&b, op, config, by_key);
        double t0 = bench_thread_cpu();
        for (uint32_t at = 0, tick = 0; at < ROWS; at += BATCH_ROWS) {
            b.desc->process(b.self, &b.ctx, 0, batch_at(&b.tick, r, at));
            int64_t wm = r->time[at + BATCH_ROWS - 1];
            if (b.desc->watermark && wm >= b.ctx.next_timer) {
                b.ctx.wm = wm;
                b.ctx.fire_off = at + BATCH_ROWS - 1;
                b.desc->watermark(b.self, &b.ctx, wm);
            }
            arena_reset(&b.tick);
            if (++tick % EPOCH_TICKS == 0) {
                undo_push(b.undo);
                undo_commit(b.undo);
            }
        }
        double s = bench_thread_cpu() - t0;
        best = s < best ? s : best;
        op_shut(&b);
    }
    return ROWS / best / 1e6;
}

/* ns a row of an expression over all columns in the cache. */
static double run_expr(const char *text, const struct rows *r, bool select) {
    struct arena a = { 0 }, tick = { 0 };
    struct err e = ERR_INIT;
    const struct expr *x = expr_compile(&a, text, strlen(text), &schema, EXPR_HAS_TIME, &e);
    uint16_t sel[BATCH_ROWS];
    uint64_t nulled = 0;
    double best = 1e9;
    if (!x)
        die(text, e.text);
    for (int k = 0; k < 5 * REPEAT; k++) {
        double t0 = bench_thread_cpu();
        for (uint32_t n = 0; n < 1000; n++) {
            const struct batch *b = batch_at(&tick, r, n % 16 * BATCH_ROWS);
            if (select)
                bench_use(expr_select(x, &tick, b, sel, &nulled));
            else
                bench_use((uint64_t)(uintptr_t)expr_eval(x, &tick, b, &nulled).p);
            arena_reset(&tick);
        }
        double s = bench_thread_cpu() - t0;
        best = s < best ? s : best;
    }
    arena_free(&a);
    arena_free(&tick);
    return best / 1000 / BATCH_ROWS * 1e9;
}

static double run_xsum(const struct rows *r, bool squares) {
    double best = 1e9;
    for (int k = 0; k < REPEAT; k++) {
        struct xsum s = { 0 };
        double t0 = bench_thread_cpu();
        for (uint32_t i = 0; i < ROWS; i++)
            if (!(squares ? xsum_add_square(&s, r->cols[1].f64[i])
                          : xsum_add(&s, r->cols[1].f64[i])))
                die("xsum", "a measurement did not fit");
        double t = bench_thread_cpu() - t0;
        best = t < best ? t : best;
        bench_use(s.w[3]);
    }
    return best / ROWS * 1e9;
}

/* Windows of up to 10,000 slices of 1 s, 100 groups, 200 rows a second: half as many results as
 * rows. The slowest of several lengths, 1 h among them: the ratio must not matter. */
static void slide_any_ratio(void) {
    static const int size[] = { 60, 600, 3600, 10000 };
    static const struct {
        const char *name, *aggregate;
        double bar;
    } figure[] = {
        { "slide_mrow_s_core", "\"n\": \"count()\", \"m\": \"mean(x)\"", 1 },
        { "slide_picks_mrow_s_core",
          "\"lo\": \"min(event_time())\", \"hi\": \"max(x)\", \"f\": \"first(x)\"", 1 },
    };
    struct rows slow;
    make_rows(&slow, 100, 200);
    for (int f = 0; f < 2; f++) {
        double least = 1e9;
        for (int i = 0; i < 4; i++) {
            char config[256];
            snprintf(config, sizeof config,
                     "{\"aggregate\": {%s}, \"every\": \"1s\", \"size\": \"%ds\"}",
                     figure[f].aggregate, size[i]);
            double v = run_op("window_aggregate", config, true, &slow);
            least = v < least ? v : least;
        }
        bench_figure(figure[f].name, least, "M/s", AT_LEAST, figure[f].bar);
    }
    free_rows(&slow);
}

int main(void) {
    struct rows few, many;
    operators_init();
    bench_calibrate();
    make_rows(&few, 100, 20000);
    make_rows(&many, 10000, 200000);
    bench_figure("expr_compare_ns_row", run_expr("x > 5000.0", &few, false), "ns", AT_MOST, 0);
    bench_figure("expr_select_ns_row", run_expr("x > 5000.0", &few, true), "ns", AT_MOST, 0);
    bench_figure("expr_and_ns_row", run_expr("x > 5000.0 and i < 900000", &few, true), "ns",
                 AT_MOST, 0);
    bench_figure("expr_arith_ns_row", run_expr("x * 1.8 + y / 2.0", &few, false), "ns", AT_MOST, 0);
    bench_figure("expr_case_ns_row",
                 run_expr("case when y != 0 then x / y else 0.0 end", &few, false), "ns", AT_MOST,
                 0);
    bench_figure("expr_like_ns_row", run_expr("key like 'sensor-%1'", &few, true), "ns", AT_MOST,
                 0);
    bench_figure("xsum_add_ns", run_xsum(&few, false), "ns", AT_MOST, 0);
    bench_figure("xsum_square_ns", run_xsum(&few, true), "ns", AT_MOST, 0);
    const char *mean =
        "{\"aggregate\": {\"n\": \"count()\", \"m\": \"mean(x)\"}, \"every\": \"1s\"}";
    const char *all =
        "{\"aggregate\": {\"n\": \"count()\", \"m\": \"mean(x)\", \"d\": \"stddev(x)\", "
        "\"lo\": \"min(x)\", \"hi\": \"max(x)\", \"s\": \"sum(i)\"}, \"every\": \"1s\"}";
    const char *slide = "{\"aggregate\": {\"n\": \"count()\", \"m\": \"mean(x)\"}, \"every\": "
                        "\"1s\", \"size\": \"60s\"}";
    bench_figure("window_mrow_s_core", run_op("window_aggregate", mean, true, &few), "M/s",
                 AT_LEAST, 0);
    bench_figure("window_10k_mrow_s_core", run_op("window_aggregate", mean, true, &many), "M/s",
                 AT_LEAST, 0);
    bench_figure("window_all_10k_mrow_s_core", run_op("window_aggregate", all, true, &many), "M/s",
                 AT_LEAST, 0);
    bench_figure("window_sliding60_mrow_s_core", run_op("window_aggregate", slide, true, &few),
                 "M/s", AT_LEAST, 0);
    bench_figure("window_sliding60_10k_mrow_s_core", run_op("window_aggregate", slide, true, &many),
                 "M/s", AT_LEAST, 0);
    slide_any_ratio();
    const char *session =
        "{\"aggregate\": {\"n\": \"count()\", \"m\": \"mean(x)\"}, \"gap\": \"20ms\"}";
    const char *count = "{\"aggregate\": {\"m\": \"mean(x)\"}, \"every\": 10, \"size\": 50}";
    const char *global = "{\"aggregate\": {\"m\": \"mean(x)\"}, \"every\": \"1s\"}";
    bench_figure("window_session_mrow_s_core", run_op("window_session", session, true, &few), "M/s",
                 AT_LEAST, 0);
    bench_figure("window_count_mrow_s_core", run_op("window_count", count, true, &few), "M/s",
                 AT_LEAST, 0);
    bench_figure("window_global_mrow_s_core", run_op("window_global", global, true, &few), "M/s",
                 AT_LEAST, 0);
    bench_figure("filter_mrow_s_core", run_op("filter", "{\"where\": \"x > 5000.0\"}", false, &few),
                 "M/s", AT_LEAST, 0);
    free_rows(&few);
    free_rows(&many);
    return 0;
}
