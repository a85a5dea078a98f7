/* The data path: ETL of SYS in process and through the local log, and what twenty dataflows that
 * differ only in their sink cost. One core: the process is pinned. BENCH_SECONDS sets how long each
 * figure runs (default 10). */
#include "cluster/dataset.h"
#include "engine/executor.h"
#include "engine/num.h"
#include "operators/all.h"
#include "planner/merge.h"
#include "tests/bench/bench.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BLOCK = 1024, RECORDS = 1 << 20 };

/* ---- input in memory ---- */

struct input {
    struct log_rows *block;
    int n;
    char *text;
    uint32_t *ends;
};

static void die(const char *what, const struct err *e) {
    fprintf(stderr, "%s: %s\n", what, e ? e->text : "");
    exit(1);
}

static void input_make(struct input *in, const char *source, int64_t keys) {
    struct dataset_conf conf = { .source = source, .loop = DATASET_ENDLESS, .keys = keys };
    struct dataset *ds;
    struct dataset_record r;
    struct err e = ERR_INIT;
    if (dataset_open(&ds, &conf, &e) < 0)
        die(source, &e);
    size_t len = 0, cap = (size_t)512 << 20;
    in->text = malloc(cap);
    in->ends = malloc(sizeof *in->ends * RECORDS);
    in->block = calloc(RECORDS / BLOCK, sizeof *in->block);
    in->n = RECORDS / BLOCK;
    for (int b = 0; b < in->n; b++) {
        size_t start = len;
        for (int i = 0; i < BLOCK; i++) {
            if (dataset_next(ds, &r, &e) != 1 || len + r.len > cap)
                die("dataset", &e);
            memcpy(in->text + len, r.data, r.len);
            len += r.len;
            in->ends[b * BLOCK + i] = (uint32_t)(len - start);
        }
        in->block[b] = (struct log_rows){ .n = BLOCK,
                                          .value_end = in->ends + b * BLOCK,
                                          .values = in->text + start,
                                          .time = 1800000000000 };
    }
    dataset_close(ds);
}

static void input_free(struct input *in) {
    free(in->text);
    free(in->ends);
    free(in->block);
}

/* ---- planning ---- */

static int read_file(void *user, const char *name, struct file *f, struct err *e) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    FILE *in = fopen(path, "rb");
    if (!in)
        return err_set(e, ERR_NOTFOUND, "no file %s", path);
    fseek(in, 0, SEEK_END);
    size_t len = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(len + 1);
    if (!data || fread(data, 1, len, in) != len)
        abort();
    fclose(in);
    XXH128_hash_t h = XXH3_128bits(data, len);
    *f = (struct file){ .name = strdup(name), .data = data, .len = len };
    snprintf(f->hash, sizeof f->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    return 0;
}

static char *slurp(const char *path) {
    struct file f;
    struct err e = ERR_INIT;
    if (read_file(".", path, &f, &e) < 0)
        die(path, &e);
    char *text = malloc(f.len + 1);
    memcpy(text, f.data, f.len);
    text[f.len] = '\0';
    return text;
}

/* Submits a dataflow, under another name and sink topic when `n` >= 0. */
static void submit(struct plan *p, const char *path, int n) {
    struct arena *a = calloc(1, sizeof *a);
    struct errs es = { 0 };
    struct spec s;
    char *text = slurp(path);
    if (n >= 0) { /* the file's name and sink are marked by its own name */
        struct sbuf o = { 0 };
        const char *name = "etl-sys-wide";
        for (const char *q = text, *hit; *q;) {
            hit = strstr(q, name);
            sbuf_add(&o, q, hit ? (size_t)(hit - q) : strlen(q));
            if (!hit)
                break;
            sbuf_printf(&o, "%s-%d", name, n);
            q = hit + strlen(name);
        }
        text = strdup(sbuf_str(&o));
        sbuf_free(&o);
    }
    struct spec_env env = { .user = "dataflows/riotbench", .file = read_file };
    struct plan_cut cut = { .id = 1 };
    if (spec_parse(&s, path, text, strlen(text), &env, a, &es, NULL) < 0 ||
        plan_submit(p, &s, &cut, NULL, &es) < 0)
        die(path, &es.v[0]);
}

/* ---- in process ---- */

static uint64_t sunk_rows, sunk_bytes;
static void count_sink(void *arg, struct task *t, const struct batch *b) {
    (void)arg;
    (void)t;
    sunk_rows += b->n;
    sunk_bytes += b->encoded ? b->encoded->values_len : 0;
}

static double seconds(void) {
    const char *env = getenv("BENCH_SECONDS");
    double s;
    return env && num_f64_whole(env, env + strlen(env), &s) == 0 ? s : 10;
}

static double in_process(const char *flow, const struct input *in) {
    struct plan *p = plan_new();
    struct err e = ERR_INIT;
    submit(p, flow, -1);
    struct exec *ex = exec_new(&(struct exec_conf){ .sink = count_sink });
    if (exec_apply(ex, plan_change(p), false, &e) < 0)
        die(flow, &e);
    struct task *src = exec_source(ex, 0);
    double best = 0, start = bench_now(), total = seconds();
    int64_t off = 0;
    sunk_rows = sunk_bytes = 0;
    while (bench_now() - start < total) {
        double t0 = bench_thread_cpu();
        for (int b = 0; b < in->n; b++) {
            exec_tick(ex, src, &in->block[b], off);
            off += BLOCK;
            if (b % 64 == 63) { /* epochs as the server would cut them */
                undo_push(exec_undo(ex));
                undo_commit(exec_undo(ex));
            }
        }
        double rate = RECORDS / (bench_thread_cpu() - t0) / 1e6;
        best = rate > best ? rate : best;
    }
    printf("# %s: %llu of %llu records came out\n", flow, (unsigned long long)sunk_rows,
           (unsigned long long)off);
    if (sunk_rows != (uint64_t)off)
        die("rows are missing", NULL);
    exec_free(ex);
    plan_free(p);
    return best;
}

/* ---- through the log ---- */

struct engine {
    char dir[64];
    struct log *log;
    struct executor *x;
    struct plan *plan;
};

static void topic(struct log *log, const char *name) {
    struct log_topic_conf conf = { .partitions = 1, .retention_bytes = -1 };
    struct err e = ERR_INIT;
    struct log_topic_info info;
    if (log_topic_info(log, name, &info, NULL) < 0 && log_topic_create(log, name, &conf, &e) < 0)
        die(name, &e);
}

static void engine_open(struct engine *g) {
    struct err e = ERR_INIT;
    snprintf(g->dir, sizeof g->dir, "build/bench/log-XXXXXX");
    if (!mkdtemp(g->dir))
        die("mkdtemp", NULL);
    struct log_conf lc = { .dir = g->dir };
    if (log_open(&g->log, &lc, &e) < 0)
        die("log", &e);
    struct executor_conf xc = { .log = g->log };
    if (executor_new(&g->x, &xc, &e) < 0)
        die("executor", &e);
    g->plan = plan_new();
}

static void engine_close(struct engine *g) {
    executor_free(g->x);
    log_close(g->log);
    plan_free(g->plan);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", g->dir);
    if (system(cmd) != 0)
        exit(1);
}

static void fill(struct engine *g, const char *name, const struct input *in, int64_t records) {
    struct err e = ERR_INIT;
    topic(g->log, name);
    for (int64_t done = 0; done < records;) {
        struct log_epoch *ep = log_epoch_begin(g->log);
        for (int k = 0; k < 32; k++, done += BLOCK) {
            const struct log_rows *r = &in->block[(done / BLOCK) % in->n];
            struct log_buf *b = log_buf_new();
            uint32_t start = 0;
            for (uint32_t i = 0; i < r->n; i++) {
                memcpy(log_buf_room(b, r->value_end[i] - start), r->values + start,
                       r->value_end[i] - start);
                log_buf_end(b, r->value_end[i] - start);
                start = r->value_end[i];
            }
            log_buf_seal(b);
            log_epoch_append(ep, name, 0, b, 1800000000000, NULL);
            log_buf_unref(b);
        }
        if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
            die("fill", &e);
    }
}

static void on_done(void *arg, int rc, const struct err *e) {
    (void)arg;
    if (rc < 0)
        die("graft", e);
}

/* Grafts what is planned with all sources at the beginning of their topics. */
static void graft(struct engine *g, struct executor_change *c) {
    const struct change *ch = plan_change(g->plan);
    for (int i = 0; i < ch->nadd; i++) {
        const char *t = op_config_text(ch->add[i]->op, ch->add[i]->config, "topic");
        if (t)
            topic(g->log, t);
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
        die(info->name, &e);
    }
    return 0;
}
static void check_sinks(struct engine *g, int64_t records) {
    log_topic_list(g->log, check_topic, &records);
}

/* Records per second of the one core that all of the process is pinned to: reading, ticks, commits.
 * The dataflow is grafted first, the input arrives afterwards, whole, and is worked off. */
static double through_log(const char *flow, const struct input *in, int copies, double *cpu,
                          int64_t records) {
    struct engine g;
    struct executor_change c;
    engine_open(&g);
    topic(g.log, "sys");
    for (int i = 0; i < copies; i++)
        submit(g.plan, flow, copies > 1 ? i : -1);
    graft(&g, &c);
    fill(&g, "sys", in, records);
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
    engine_close(&g);
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

static double bare_appends(const char *flow, const struct input *in, int n, int64_t records) {
    struct engine g;
    struct err e = ERR_INIT;
    struct plan *p = plan_new();
    engine_open(&g);
    submit(p, flow, -1);
    struct exec *ex = exec_new(&(struct exec_conf){ .sink = keep_sink });
    if (exec_apply(ex, plan_change(p), false, &e) < 0)
        die(flow, &e);
    char name[20][16];
    for (int i = 0; i < n; i++) {
        snprintf(name[i], sizeof name[i], "bare-%d", i);
        topic(g.log, name[i]);
    }
    double cpu = 0;
    sync();
    for (int64_t done = 0; done < records;) {
        nkept = 0;
        for (int k = 0; k < 24; k++, done += BLOCK)
            exec_tick(ex, exec_source(ex, 0), &in->block[(done / BLOCK) % in->n], done);
        undo_push(exec_undo(ex));
        undo_commit(exec_undo(ex));
        double t0 = bench_cpu();
        struct log_epoch *ep = log_epoch_begin(g.log);
        for (int k = 0; k < nkept; k++)
            for (int i = 0; i < n; i++)
                log_epoch_append(ep, name[i], 0, kept[k], 1800000000000, NULL);
        if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
            die("append", &e);
        cpu += bench_cpu() - t0;
        for (int k = 0; k < nkept; k++)
            log_buf_unref(kept[k]);
    }
    exec_free(ex);
    plan_free(p);
    engine_close(&g);
    return cpu;
}

static void figures(const char *suffix, int64_t keys) {
    struct input in;
    char name[64];
    double cpu;
    input_make(&in, "sys", keys);
    snprintf(name, sizeof name, "etl_wide_mrec_s_core%s", suffix);
    bench_figure(name, in_process("dataflows/riotbench/etl-sys-wide.json", &in), "M records/s",
                 AT_LEAST, 2);
    snprintf(name, sizeof name, "etl_mrec_s_core%s", suffix);
    bench_figure(name, in_process("dataflows/riotbench/etl-sys.json", &in), "M records/s", AT_LEAST,
                 1);
    double best = 0;
    int64_t records = (int64_t)(seconds() * 0.8e6) / (32 * BLOCK) * (32 * BLOCK) + 32 * BLOCK;
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
        records = (int64_t)16 * 32 * BLOCK;
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
    input_free(&in);
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
