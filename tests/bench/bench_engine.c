/* The data path: ETL of SYS in process and through the local log, and what twenty dataflows that
 * differ only in their sink cost. One core: the process is pinned. BENCH_SECONDS sets how long each
 * figure runs (default 10). */
#include "operators/all.h"
#include "tests/bench/bench.h"
#include "tests/bench/load.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- in process ---- */

static uint64_t sunk_rows, sunk_bytes;
static void count_sink(void *arg, struct task *t, const struct batch *b) {
    (void)arg;
    (void)t;
    sunk_rows += b->n;
    sunk_bytes += b->encoded ? b->encoded->values_len : 0;
}

static double in_process(const char *flow, const struct load_input *in) {
    struct plan *p = plan_new();
    struct err e = ERR_INIT;
    load_submit(p, NULL, flow, -1);
    struct exec *ex = exec_new(&(struct exec_conf){ .sink = count_sink });
    if (exec_apply(ex, plan_change(p), false, &e) < 0)
        load_die(flow, &e);
    struct task *src = exec_source(ex, 0);
    double best = 0, start = bench_now(), total = load_seconds();
    int64_t off = 0;
    sunk_rows = sunk_bytes = 0;
    while (bench_now() - start < total) {
        double t0 = bench_thread_cpu();
        for (int b = 0; b < in->n; b++) {
            exec_tick(ex, src, &in->block[b], off);
            off += LOAD_BLOCK;
            if (b % 64 == 63) { /* epochs as the server would cut them */
                undo_push(exec_undo(ex));
                undo_commit(exec_undo(ex));
            }
        }
        double rate = LOAD_RECORDS / (bench_thread_cpu() - t0) / 1e6;
        best = rate > best ? rate : best;
    }
    printf("# %s: %llu of %llu records came out\n", flow, (unsigned long long)sunk_rows,
           (unsigned long long)off);
    if (sunk_rows != (uint64_t)off)
        load_die("rows are missing", NULL);
    exec_free(ex);
    plan_free(p);
    return best;
}

/* ---- through the log ---- */

static void on_done(void *arg, int rc, const struct err *e) {
    (void)arg;
    if (rc < 0)
        load_die("graft", e);
}

/* Grafts what is planned with all sources at the beginning of their topics. */
static void graft(struct load *g, struct executor_change *c) {
    const struct change *ch = plan_change(g->plan);
    for (int i = 0; i < ch->nadd; i++) {
        const char *t = op_config_text(ch->add[i]->op, ch->add[i]->config, "topic");
        if (t)
            load_topic(g->log, t, 1);
    }
    *c = (struct executor_change){ .change = *ch, .done = on_done };
    executor_submit(g->x, c);
    executor_settle(g->x);
}

/* This ETL puts out a row a record: each sink topic must hold all of them. */
static int check_topic(void *arg, const struct log_topic_info *info) {
    const int64_t *records = arg;
    struct err e = ERR_INIT;
    if (info->end != *records && strcmp(info->name, "braid.dlq") != 0) {
        err_set(&e, ERR_SYSTEM, "%lld rows, not %lld", (long long)info->end, (long long)*records);
        load_die(info->name, &e);
    }
    return 0;
}
static void check_sinks(struct load *g, int64_t records) {
    log_topic_list(g->log, check_topic, &records);
}

/* Records per second of the one core that all of the process is pinned to: reading, ticks, commits.
 * The dataflow is grafted first, the input arrives afterwards, whole, and is worked off. */
static double through_log(const char *flow, const struct load_input *in, int copies, double *cpu,
                          int64_t records) {
    struct load g;
    struct executor_change c;
    load_open(&g, 1);
    load_topic(g.log, "sys", 1);
    for (int i = 0; i < copies; i++)
        load_submit(g.plan, g.log, flow, copies > 1 ? i : -1);
    graft(&g, &c);
    load_fill(&g, "sys", 1, in, records);
    sync(); /* else the input's write-back is counted as the engine's */
    double t0 = bench_cpu(), w0 = bench_now();
    executor_settle(g.x);
    *cpu = bench_cpu() - t0;
    double wall = bench_now() - w0;
    struct executor_health h;
    executor_health(g.x, &h);
    printf("# %s x %d: %lld records in %.2f s, %.2f s CPU, %llu commits\n", flow, copies,
           (long long)records, wall, *cpu, (unsigned long long)h.commits);
    check_sinks(&g, records);
    load_close(&g);
    return (double)records / wall / 1e6;
}

/* CPU of appending to `n` topics the bytes that one sink of the dataflow makes. */
static struct log_buf *kept[4096];
static int nkept;
static void keep_sink(void *arg, struct task *t, const struct batch *b) {
    (void)arg;
    (void)t;
    if (b->encoded && nkept < 4096) {
        log_buf_ref(b->encoded);
        kept[nkept++] = b->encoded;
    }
}

static double bare_appends(const char *flow, const struct load_input *in, int n, int64_t records) {
    struct load g;
    struct err e = ERR_INIT;
    struct plan *p = plan_new();
    load_open(&g, 1);
    load_submit(p, NULL, flow, -1);
    struct exec *ex = exec_new(&(struct exec_conf){ .sink = keep_sink });
    if (exec_apply(ex, plan_change(p), false, &e) < 0)
        load_die(flow, &e);
    char name[20][16];
    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "bare-%d", i);
        load_topic(g.log, name[i], 1);
    }
    double cpu = 0;
    sync();
    for (int64_t done = 0; done < records;) {
        nkept = 0;
        for (int k = 0; k < 24; k++, done += LOAD_BLOCK)
            exec_tick(ex, exec_source(ex, 0), &in->block[(done / LOAD_BLOCK) % in->n], done);
        undo_push(exec_undo(ex));
        undo_commit(exec_undo(ex));
        double t0 = bench_cpu();
        struct log_epoch *ep = log_epoch_begin(g.log);
        for (int k = 0; k < nkept; k++)
            for (int i = 0; i < n; i++)
                log_epoch_append(ep, name[i], 0, kept[k], 1800000000000, NULL);
        if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
            load_die("append", &e);
        cpu += bench_cpu() - t0;
        for (int k = 0; k < nkept; k++)
            log_buf_unref(kept[k]);
    }
    exec_free(ex);
    plan_free(p);
    load_close(&g);
    return cpu;
}

static void figures(const char *suffix, int64_t keys) {
    struct load_input in;
    char name[64];
    double cpu;
    load_input(&in, "sys", keys);
    snprintf(name, sizeof name, "etl_wide_mrec_s_core%s", suffix);
    bench_figure(name, in_process("dataflows/riotbench/etl-sys-wide.json", &in), "M records/s",
                 AT_LEAST, 2);
    snprintf(name, sizeof name, "etl_mrec_s_core%s", suffix);
    bench_figure(name, in_process("dataflows/riotbench/etl-sys.json", &in), "M records/s", AT_LEAST,
                 1);
    double best = 0;
    int64_t records =
        (int64_t)(load_seconds() * 0.8e6) / (32 * LOAD_BLOCK) * (32 * LOAD_BLOCK) + 32 * LOAD_BLOCK;
    for (int i = 0; i < 5; i++) {
        double rate = through_log("dataflows/riotbench/etl-sys-wide.json", &in, 1, &cpu, records);
        best = rate > best ? rate : best;
    }
    snprintf(name, sizeof name, "etl_log_mrec_s_core%s", suffix);
    bench_figure(name, best, "M records/s", AT_LEAST, 0.8);
    if (keys == 0) {
        /* Less than the kernel keeps dirty before it makes writers work: what is compared is our
         * work, not its write-back. Interleaved; the least of each, since noise only adds. */
        double twenty = 1e9, one = 1e9, bare = 1e9;
        records = (int64_t)16 * 32 * LOAD_BLOCK;
        for (int i = 0; i < 5; i++) {
            through_log("dataflows/riotbench/etl-sys-wide.json", &in, 1, &cpu, records);
            one = cpu < one ? cpu : one;
            through_log("dataflows/riotbench/etl-sys-wide.json", &in, 20, &cpu, records);
            twenty = cpu < twenty ? cpu : twenty;
            cpu = bare_appends("dataflows/riotbench/etl-sys-wide.json", &in, 20, records);
            bare = cpu < bare ? cpu : bare;
        }
        double ratio = twenty / (one + bare);
        printf("# twenty %.2f s, one %.2f s, 20 bare appends %.2f s\n", twenty, one, bare);
        bench_figure("reuse20_cpu_ratio", ratio, "x", AT_MOST, 1.1);
    }
    load_input_free(&in);
}

int main(void) {
    operators_init();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_calibrate();
    figures("", 0);
    figures("_100k", 100000);
    return 0;
}
