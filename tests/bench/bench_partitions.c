/* Topics of several partitions: what a second core gives, and what an exchange costs.
 * BENCH_SECONDS sets how many records a run takes (default 10). */
#include "engine/exchange.h"
#include "engine/num.h"
#include "operators/all.h"
#include "tests/bench/bench.h"
#include "tests/bench/load.h"
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 8, PAIRS = 5 };

static void on_done(void *arg, int rc, const struct err *e) {
    (void)arg;
    if (rc < 0)
        load_die("graft", e);
}

static void graft(struct load *g, struct executor_change *c, const struct change *ch) {
    *c = (struct executor_change){ .change = *ch, .done = on_done };
    executor_submit(g->x, c);
    executor_settle(g->x);
}

static int add_end(void *arg, const struct log_topic_info *info) {
    const struct load *g = ((void **)arg)[0];
    int64_t *sum = ((void **)arg)[1], begin, end;
    if (strncmp(info->name, "etl-", 4) != 0)
        return 0;
    for (uint32_t i = 0; i < info->conf.partitions; i++)
        if (log_topic_ends(g->log, info->name, i, &begin, &end, NULL) == 0)
            *sum += end;
    return 0;
}

static int64_t sunk(const struct load *g) {
    int64_t sum = 0;
    void *arg[] = { (void *)g, &sum };
    log_topic_list(g->log, add_end, arg);
    return sum;
}

/* All threads of this process on the first `n` of its cores. */
static void pin(const cpu_set_t *all, int n) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && n > 0; i++)
        if (CPU_ISSET(i, all)) {
            CPU_SET(i, &set);
            n--;
        }
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *t; d && (t = readdir(d));) {
        int64_t tid;
        if (num_i64_whole(t->d_name, t->d_name + strlen(t->d_name), &tid) == 0)
            sched_setaffinity((pid_t)tid, sizeof set, &set);
    }
    if (d)
        closedir(d);
}

/* Records a second: the topic is filled beforehand, then the executor starts. */
static double etl(const struct load_input *in, const cpu_set_t *all, int cores, int64_t records) {
    struct load g;
    struct executor_change c;
    struct err e = ERR_INIT;
    pin(all, 2);
    load_open(&g, (uint32_t)cores);
    load_topic(g.log, "sys", PARTS);
    load_submit(g.plan, g.log, "dataflows/riotbench/etl-sys-wide.json", -1);
    const struct change *ch = plan_change(g.plan);
    for (int i = 0; i < ch->nadd; i++) {
        const char *t = op_config_text(ch->add[i]->op, ch->add[i]->config, "topic");
        if (t)
            load_topic(g.log, t, task_parts(ch->add[i]));
    }
    graft(&g, &c, ch);
    load_fill(&g, "sys", PARTS, in, records);
    sync();
    pin(all, cores);
    double cpu = bench_cpu(), start = bench_now();
    if (executor_start(g.x, &e) < 0)
        load_die("executor", &e);
    while (sunk(&g) < records && bench_now() - start < 300)
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    double t = bench_now() - start;
    cpu = bench_cpu() - cpu;
    executor_stop(g.x);
    if (sunk(&g) != records)
        load_die("rows are missing or doubled", NULL);
    printf("# %d core%s: %lld records in %.2f s, %.2f s CPU\n", cores, cores > 1 ? "s" : "",
           (long long)records, t, cpu);
    load_close(&g);
    return (double)records / t;
}

static void etl_ratio(const cpu_set_t *all) {
    struct load_input in;
    double one = 0, two = 0;
    int64_t step = 32 * LOAD_BLOCK,
            records = (int64_t)(load_seconds() * 0.4e6) / step * step + step;
    load_input(&in, "sys", 0);
    for (int i = 0; i < PAIRS; i++) {
        double r = etl(&in, all, 1, records);
        one = r > one ? r : one;
        r = etl(&in, all, 2, records);
        two = r > two ? r : two;
    }
    load_input_free(&in);
    bench_figure("etl_2core_ratio", two / one, "x", AT_LEAST, 1.7);
}

/* ---- exchange ---- */

/* Rows (k string, t i64, v f64) out of memory, of a partition: next to nothing to make. */
struct maker {
    struct span *k;
    int64_t *t;
    double *v;
    int64_t limit;
};
static struct maker maker;
static const struct field fields[] = { { .name = "k", .type = TYPE_STR },
                                       { .name = "t", .type = TYPE_I64 },
                                       { .name = "v", .type = TYPE_F64 } };
static const struct schema rows = { .n = 3, .f = fields };

static uint32_t pull(void *self, struct op_ctx *c, int64_t off, uint32_t max, struct batch *b,
                     struct origin *o) {
    (void)self;
    if (off + max > maker.limit)
        return 0;
    struct column *cols = arena_zalloc(c->arena, 3 * sizeof *cols);
    int64_t *wm = ARENA_ARRAY(c->arena, int64_t, max);
    cols[0].str = maker.k;
    cols[1].i64 = maker.t;
    cols[2].f64 = maker.v;
    for (uint32_t i = 0; i < max; i++)
        wm[i] = off + i;
    *b = (struct batch){
        .schema = &rows, .cols = cols, .rows = max, .n = max, .off0 = off, .time = wm, .wm = wm
    };
    *o = (struct origin){ .n = max, .off0 = off, .wm = wm, .wm_before = off - 1 };
    return max;
}
static const struct op_desc op_maker = { .name = "maker",
                                         .flags = OP_DETERMINISTIC | OP_SOURCE | OP_SETS_TIME,
                                         .pull = pull };

static int64_t counted;
static void count(void *self, struct op_ctx *c, int port, const struct batch *b) {
    (void)self;
    (void)port;
    counted += b->n;
    c->count->absorbed += b->n;
}
static const struct op_desc op_count = { .name = "count", .process = count };

static const char *const in_names[] = { "in" }, *const out_names[] = { "records", "rows" };

static double exchange(int64_t each) {
    static const struct field record[] = { { .name = "value", .type = TYPE_BYTES },
                                           { .name = "partition", .type = TYPE_I64 } };
    static const struct schema records = { .n = 2, .f = record };
    static const struct exchange_config conf = { .groups = EXCHANGE_GROUPS, .producers = PARTS };
    static const struct schema *const in_rows[] = { &rows }, *const in_records[] = { &records },
                                      *const outs[] = { &records, &rows };
    static const int by[] = { 0 };
    static const struct link_def links[] = { { 1, 0, 0 }, { 2, 0, 0 }, { 2, 1, 0 }, { 4, 0, 0 } };
    const struct task_def defs[] = {
        { .instance = 1,
          .op = &op_maker,
          .label = "maker",
          .parts = PARTS,
          .nout = 1,
          .out_name = in_names,
          .out = in_rows },
        { .instance = 2,
          .op = ops_find("exchange"),
          .config = &conf,
          .label = "exchange",
          .parts = PARTS,
          .nin = 1,
          .nout = 2,
          .in_name = in_names,
          .out_name = out_names,
          .in = in_rows,
          .out = outs,
          .nby = 1,
          .by = by,
          .nlinks = 1,
          .links = &links[0] },
        { .instance = 3,
          .op = ops_find("exchange_append"),
          .config = &conf,
          .label = "append",
          .parts = PARTS,
          .nin = 1,
          .in_name = in_names,
          .in = in_records,
          .nlinks = 1,
          .links = &links[1] },
        { .instance = 4,
          .op = ops_find("exchange_read"),
          .config = &conf,
          .label = "read",
          .parts = EXCHANGE_GROUPS,
          .nin = 1,
          .nout = 1,
          .in_name = in_names,
          .out_name = in_names,
          .in = in_rows,
          .out = in_rows,
          .nlinks = 1,
          .links = &links[2] },
        { .instance = 5,
          .op = &op_count,
          .label = "count",
          .parts = EXCHANGE_GROUPS,
          .nin = 1,
          .in_name = in_names,
          .in = in_rows,
          .nlinks = 1,
          .links = &links[3] },
    };
    const struct task_def *const add[] = { &defs[0], &defs[1], &defs[2], &defs[3], &defs[4] };
    struct load g;
    struct executor_change c;
    struct change ch = { .version = 1, .nadd = 5, .add = add };
    load_open(&g, 1);
    counted = 0;
    maker.limit = each;
    double start = bench_cpu();
    graft(&g, &c, &ch);
    double cpu = bench_cpu() - start;
    if (counted != each * PARTS)
        load_die("rows are missing or doubled", NULL);
    load_close(&g);
    return (double)counted / cpu / 1e6;
}

static void exchange_rate(const cpu_set_t *all) {
    static char text[LOAD_BLOCK][16];
    double best = 0;
    maker.k = calloc(LOAD_BLOCK, sizeof *maker.k);
    maker.t = calloc(LOAD_BLOCK, sizeof *maker.t);
    maker.v = calloc(LOAD_BLOCK, sizeof *maker.v);
    for (int i = 0; i < LOAD_BLOCK; i++) {
        int len = snprintf(text[i], sizeof text[i], "sensor-%04d", i * 37 % 1000);
        maker.k[i] = (struct span){ .p = text[i], .len = (uint32_t)len };
        maker.t[i] = i;
        maker.v[i] = i * 0.5;
    }
    pin(all, 1);
    int64_t each = (int64_t)(load_seconds() * 2e6 / PARTS) / LOAD_BLOCK * LOAD_BLOCK;
    for (int i = 0; i < PAIRS; i++) {
        double r = exchange(each);
        best = r > best ? r : best;
    }
    bench_figure("exchange_local_mrow_s", best, "M rows/s", AT_LEAST, 3);
    free(maker.k);
    free(maker.t);
    free(maker.v);
}

int main(void) {
    operators_init();
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_calibrate();
    exchange_rate(&all);
    if (CPU_COUNT(&all) < 2)
        printf("# etl_2core_ratio needs two cores\n");
    else
        etl_ratio(&all);
    return 0;
}
