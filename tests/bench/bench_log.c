/* The local log: what a commit costs, how fast rows go in and out, how long an open takes. All in
 * the page cache (durability `process`): the disk itself does ~0.2 GB/s. */
#include "engine/crc32c.h"
#include "engine/log.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

static struct log *open_log(enum log_durability durability) {
    struct log *log;
    struct err e = ERR_INIT;
    struct log_conf conf = { .dir = dir, .durability = durability };
    if (log_open(&log, &conf, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return log;
}

static struct log *fresh(enum log_durability durability) {
    snprintf(dir, sizeof dir, "/var/tmp/braid-bench-XXXXXX");
    if (!mkdtemp(dir))
        exit(1);
    return open_log(durability);
}

static void discard(struct log *log) {
    char command[128];
    if (log)
        log_close(log);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command))
        exit(1);
}

static void topic(struct log *log, const char *name, int64_t retention) {
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = retention };
    if (log_topic_create(log, name, &tc, NULL))
        exit(1);
}

static struct log_buf *buf(uint32_t n, uint32_t len) {
    struct log_buf *b = log_buf_new();
    for (uint32_t i = 0; i < n; i++) {
        memset(log_buf_room(b, len), 'a' + i % 26, len);
        log_buf_end(b, len);
    }
    log_buf_seal(b);
    return b;
}

static void commit(struct log_epoch *ep) {
    struct err e = ERR_INIT;
    if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
}

static double max(double a, double b) {
    return a > b ? a : b;
}

/* 1 GiB of 400-byte records in epochs of 4 MiB, MB/s of values; buffers are filled anew each time,
 * and the filling alone is measured beside it. */
static double write_mb_s(double *fill_mb_s, double *cpu_mb_s) {
    double best = 0;
    for (int round = 0; round < 5; round++) {
        struct log *log = fresh(LOG_PROCESS);
        topic(log, "t", -1);
        const uint32_t n = 2600, len = 400;
        double start = bench_now(), cpu = bench_cpu(), fill = 0, bytes = 0;
        while (bytes < 1e9) {
            struct log_epoch *ep = log_epoch_begin(log);
            for (int i = 0; i < 4; i++) {
                double t = bench_now();
                struct log_buf *b = buf(n, len);
                fill += bench_now() - t;
                log_epoch_append(ep, "t", 0, b, 0, NULL);
                log_buf_unref(b);
                bytes += (double)n * len;
            }
            commit(ep);
        }
        double wall = bench_now() - start;
        if (bytes / 1e6 / wall > best) {
            best = bytes / 1e6 / wall;
            *cpu_mb_s = bytes / 1e6 / (bench_cpu() - cpu);
        }
        *fill_mb_s = max(*fill_mb_s, bytes / 1e6 / fill);
        discard(log);
    }
    return best;
}

static double read_mb_s(void) {
    double best = 0;
    struct log *log = fresh(LOG_PROCESS);
    topic(log, "t", -1);
    struct log_buf *b = buf(2600, 400);
    for (int i = 0; i < 500; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        log_epoch_append(ep, "t", 0, b, 0, NULL);
        commit(ep);
    }
    log_buf_unref(b);
    for (int round = 0; round < 5; round++) {
        struct log_reader *r;
        struct log_rows rows;
        int64_t offset;
        double start = bench_now(), bytes = 0;
        if (log_reader_open(log, "t", 0, 0, &r, NULL))
            exit(1);
        while (log_read(r, 1024, &rows, &offset, NULL) > 0) {
            bytes += rows.value_end[rows.n - 1];
            bench_use((uint64_t)rows.values[0]);
        }
        best = max(best, bytes / 1e6 / (bench_now() - start));
        log_reader_close(r);
    }
    discard(log);
    return best;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Epochs of 10 records of 400 bytes and 3 state keys to `topics` topics: us a commit, from the call
 * to the outcome (median), and CPU us a commit of all threads. */
static void small_commits(int topics, const char *wall, const char *cpu, double bar) {
    enum { N = 5000 };
    static double us[N];
    struct log *log = fresh(LOG_PROCESS);
    char name[16];
    for (int i = 0; i < topics; i++) {
        snprintf(name, sizeof name, "t%d", i);
        topic(log, name, -1);
    }
    double cpu0 = bench_cpu();
    for (int i = 0; i < N; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        struct log_buf *b = buf(10, 400);
        for (int k = 0; k < topics; k++) {
            snprintf(name, sizeof name, "t%d", k);
            log_epoch_append(ep, name, 0, b, i, NULL);
        }
        log_buf_unref(b);
        for (int k = 0; k < 3; k++)
            log_epoch_state(ep, &k, sizeof k, &i, sizeof i);
        double start = bench_now();
        commit(ep);
        us[i] = (bench_now() - start) * 1e6;
    }
    double spent = (bench_cpu() - cpu0) * 1e6 / N;
    qsort(us, N, sizeof *us, by_value);
    bench_figure(wall, us[N / 2], "us", AT_MOST, bar);
    bench_figure(cpu, spent, "us", AT_MOST, 0);
    discard(log);
}

/* A log of 200 topics and `gb` GB: ms to open it. */
static double open_ms(void) {
    struct log *log = fresh(LOG_PROCESS);
    char name[16];
    struct log_buf *b = buf(2600, 400);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "t%d", i);
        topic(log, name, -1);
    }
    for (int i = 0; i < 2000; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        snprintf(name, sizeof name, "t%d", i % 200);
        log_epoch_append(ep, name, 0, b, i, NULL);
        commit(ep);
    }
    log_buf_unref(b);
    log_close(log);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double start = bench_now();
        log = open_log(LOG_PROCESS);
        double ms = (bench_now() - start) * 1e3;
        best = ms < best ? ms : best;
        log_close(log);
    }
    discard(NULL);
    return best;
}

/* `power`: the excess of a commit's p99 over 3x the p99 of a bare fdatasync of as many bytes, taken
 * in turns. */
static void power(int topics, const char *name) {
    enum { N = 150 };
    static double sync_ms[N], commit_ms[N];
    struct log *log = fresh(LOG_POWER);
    char path[128], t[16];
    static char block[64 << 10];
    snprintf(path, sizeof path, "%s/bare", dir);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(1);
    for (int i = 0; i < topics; i++) {
        snprintf(t, sizeof t, "t%d", i);
        topic(log, t, -1);
    }
    for (int i = 0; i < N; i++) {
        size_t bytes = (size_t)topics * 4200 < sizeof block ? (size_t)topics * 4200 : sizeof block;
        double start = bench_now();
        if (write(fileno(f), block, bytes) != (ssize_t)bytes || fdatasync(fileno(f)))
            exit(1);
        sync_ms[i] = (bench_now() - start) * 1e3;
        struct log_epoch *ep = log_epoch_begin(log);
        struct log_buf *b = buf(10, 400);
        for (int k = 0; k < topics; k++) {
            snprintf(t, sizeof t, "t%d", k);
            log_epoch_append(ep, t, 0, b, i, NULL);
        }
        log_buf_unref(b);
        start = bench_now();
        commit(ep);
        commit_ms[i] = (bench_now() - start) * 1e3;
    }
    fclose(f);
    qsort(sync_ms, N, sizeof *sync_ms, by_value);
    qsort(commit_ms, N, sizeof *commit_ms, by_value);
    printf("# %d topics: fdatasync p50 %.1f p99 %.1f ms, commit p50 %.1f p99 %.1f ms\n", topics,
           sync_ms[N / 2], sync_ms[N * 99 / 100], commit_ms[N / 2], commit_ms[N * 99 / 100]);
    bench_figure(name, commit_ms[N * 99 / 100] - 3 * sync_ms[N * 99 / 100], "ms", AT_MOST, 10);
    discard(log);
}

static double crc_gb_s(void) {
    static char data[1 << 20];
    double best = 0;
    uint32_t crc = 0;
    for (int round = 0; round < 20; round++) {
        double start = bench_now();
        for (int i = 0; i < 50; i++)
            crc = crc32c(crc, data, sizeof data);
        best = max(best, 50.0 * sizeof data / 1e9 / (bench_now() - start));
    }
    bench_use(crc);
    return best;
}

int main(void) {
    double fill = 0, cpu = 0;
    bench_calibrate();
    bench_figure("log_crc32c_gb_s", crc_gb_s(), "GB/s", AT_LEAST, 0);
    double write = write_mb_s(&fill, &cpu);
    bench_figure("log_fill_mb_s", fill, "MB/s", AT_LEAST, 0);
    bench_figure("log_write_mb_s", write, "MB/s", AT_LEAST, 700);
    bench_figure("log_write_mb_s_core", cpu, "MB/s", AT_LEAST, 0);
    bench_figure("log_read_mb_s", read_mb_s(), "MB/s", AT_LEAST, 0);
    small_commits(1, "log_commit_us", "log_commit_cpu_us", 100);
    small_commits(20, "log_commit20_us", "log_commit20_cpu_us", 0);
    bench_figure("log_open_ms", open_ms(), "ms", AT_MOST, 50);
    power(1, "log_power_excess_ms");
    power(20, "log_power20_excess_ms");
    return 0;
}
