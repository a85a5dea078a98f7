/* Keyed state by itself, one core: memory of 10 million keys with time to live, the longest pause
 * while the table grows to that, and updates of a table eight times larger than its memory. Epochs
 * are committed, so pre-images are paid for. `bench_state many|spill|restart`: one part. */
#include "cluster/coord.h"
#include "cluster/view.h"
#include "engine/clock.h"
#include "engine/log.h"
#include "engine/spill.h"
#include "engine/state.h"
#include "operators/all.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 10000000, EPOCH = 65536, TICK = 1024, TTL_MS = 3600000 };

static double resident_mib(void) {
    long pages = 0, size = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2)
        exit(1);
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static uint64_t mix(uint64_t x) { /* splitmix64, S. Vigna */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static void key_make(uint64_t key[2], uint64_t i) {
    key[0] = mix(i);
    key[1] = i;
}

static void on_collect(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                       const void *value, uint32_t vlen) {
    (void)instance;
    (void)table;
    (void)key;
    (void)value;
    *(uint64_t *)arg += klen + vlen;
}
static void epoch(struct undo *u) {
    uint64_t bytes = 0;
    undo_collect(u, on_collect, &bytes);
    bench_use(bytes);
    undo_push(u);
    undo_commit(u);
}

/* 16-byte keys and values, each written once; event time goes on so that nothing expires. */
static void bench_many(void) {
    struct state_limits lim = { .ttl_ms = TTL_MS };
    struct undo *u = undo_new();
    struct state *s = state_new_limited(u, 1, 0, 16, &lim);
    int64_t longest = 0, total = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t key[2];
        key_make(key, i);
        int64_t wm = (int64_t)(i * 1000 / MANY) * 1000;
        state_at(s, wm, wm);
        int64_t t = clock_mono_ns();
        uint64_t *v = state_edit(s, key, sizeof key, state_hash(key, sizeof key), NULL);
        t = clock_mono_ns() - t;
        v[0] = i;
        total += t;
        longest = t > longest ? t : longest;
        if (i % TICK == 0)
            state_expire(s, wm, 64);
        if (i % EPOCH == 0)
            epoch(u);
    }
    bench_figure("state_keys_10m_mib", resident_mib(), "MiB", AT_MOST, 512);
    bench_figure("state_insert_ns", (double)total / MANY, "ns", AT_MOST, 0);
    bench_figure("state_insert_longest_us", (double)longest / 1e3, "us", AT_MOST, 0);
    double t = bench_now();
    for (uint64_t i = 0; i < MANY; i += 10) {
        uint64_t key[2];
        key_make(key, mix(i) % MANY);
        bench_use((uint64_t)(uintptr_t)state_find(s, key, sizeof key, state_hash(key, sizeof key)));
    }
    bench_figure("state_find_cold_ns", (bench_now() - t) * 1e9 / (MANY / 10.0), "ns", AT_MOST, 0);
    int64_t later = (int64_t)2 * TTL_MS;
    state_at(s, later, later);
    t = bench_now();
    uint64_t calls = 0;
    while (state_count(s)) {
        state_expire(s, later, 64);
        if (++calls % 1024 == 0)
            epoch(u);
    }
    bench_figure("state_expire_ns", (bench_now() - t) * 1e9 / MANY, "ns", AT_MOST, 0);
    state_free(s);
    undo_free(u);
}

/* 5 million keys of 16 bytes and values of 80, in a budget of 64 MiB; the keys of a tick are asked
 * for as operators do. */
enum {
    SPILL_KEYS = 5000000,
    SPILL_VALUE = 80,
    SPILL_BUDGET = 64 << 20,
    SPILL_UPDATES = 2000000,
    SPILL_EPOCH = 2048 /* 10 ms of them: an epoch ends when the one before has committed */
};

static void update(struct state *s, struct undo *u, uint64_t first, uint64_t n, bool fill) {
    uint64_t key[TICK][2], hash[TICK];
    for (uint64_t i = 0; i < n; i += TICK) {
        for (uint64_t k = 0; k < TICK; k++) {
            key_make(key[k], fill ? (first + i + k) : mix(first + i + k) % SPILL_KEYS);
            hash[k] = state_hash(key[k], sizeof key[k]);
            state_prefetch_slot(s, hash[k]);
        }
        for (uint64_t k = 0; k < TICK; k++) {
            uint64_t *v = state_edit(s, key[k], sizeof key[k], hash[k], NULL);
            v[0]++;
        }
        if (i % SPILL_EPOCH == 0)
            epoch(u);
    }
}

static void bench_spill(void) {
    struct spill *sp;
    struct err e = ERR_INIT;
    const char *dir = getenv("TMPDIR");
    if (spill_open(&sp, dir ? dir : "/tmp", SPILL_BUDGET, &e) < 0) {
        fprintf(stderr, "bench_state: %s\n", e.text);
        exit(1);
    }
    struct undo *u = undo_new();
    undo_spill(u, spill_window_new(sp));
    struct state *s = state_new_limited(u, 1, 0, SPILL_VALUE, NULL);
    double before = resident_mib();
    update(s, u, 0, SPILL_KEYS, true);
    double t = bench_now(), cpu = bench_thread_cpu();
    update(s, u, 12345, SPILL_UPDATES, false);
    t = bench_now() - t;
    cpu = bench_thread_cpu() - cpu;
    bench_figure("spill_mupd_s", SPILL_UPDATES / t / 1e6, "M/s", AT_LEAST, 0.2);
    bench_figure("spill_mupd_s_cpu", SPILL_UPDATES / cpu / 1e6, "M/s", AT_LEAST, 0);
    bench_figure("spill_state_mib", (double)state_bytes(s) / (1 << 20), "MiB", AT_LEAST, 0);
    bench_figure("spill_resident_mib", resident_mib() - before, "MiB", AT_MOST, 0);
    state_free(s);
    undo_free(u);
    spill_close(sp);
}

/* A server's directory with a Kalman filter of five fields for each of so many keys: 16 bytes and
 * 80 each, 1 GiB. The state is written as epochs of the executor would; the server is opened twice,
 * the second time with the snapshot that the first one made in passing. */
enum { RESTART_KEYS = 11184811, RESTART_VALUE = 80, RESTART_EPOCH = 200000 };

static void die(const char *what, const struct err *e) {
    fprintf(stderr, "bench_state: %s: %s\n", what, e->text);
    exit(1);
}

static uint64_t filter_submit(struct coord *c) {
    static const char text[] =
        "{\"braid\":1,\"name\":\"f\",\"tasks\":["
        "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"csv\","
        "\"schema\":"
        "{\"k\":\"string\",\"a\":\"f64\",\"b\":\"f64\",\"c\":\"f64\",\"d\":\"f64\",\"e\":\"f64\"}}}"
        ","
        "{\"id\":\"smooth\",\"type\":\"kalman\",\"config\":{\"fields\":[\"a\",\"b\",\"c\",\"d\","
        "\"e\"]},"
        "\"inputs\":[{\"from\":\"in\",\"by\":\"k\"}]},"
        "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"u\"},\"inputs\":[\"smooth\"]}]}";
    static const char before[] = "{\"id\":\"smooth\",\"type\":\"kalman\",\"instance\":";
    struct coord_spec spec = { .file = "f.json", .text = text, .len = sizeof text - 1 };
    struct sbuf out = { 0 };
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    if (coord_submit(c, &spec, 1, false, &out, &es) < 0)
        die("submit", &es.v[0]);
    out.len = 0;
    const char *at = view_show(c, "f", &out, &e) < 0 ? NULL : strstr(sbuf_str(&out), before);
    if (!at)
        die("show", &e);
    uint64_t instance = strtoull(at + sizeof before - 1, NULL, 10);
    sbuf_free(&out);
    errs_free(&es);
    return instance;
}

static void fill_log(const char *dir, uint64_t instance) {
    struct log *log;
    struct err e = ERR_INIT;
    if (log_open(&log, &(struct log_conf){ .dir = dir }, &e) < 0)
        die("log", &e);
    unsigned char key[12 + 16] = { 'S' }; /* executor.c: S, instance, partition 0, table 0 */
    for (int i = 0; i < 8; i++)
        key[1 + i] = (unsigned char)(instance >> (56 - 8 * i));
    for (uint64_t i = 0; i < RESTART_KEYS;) {
        struct log_epoch *ep = log_epoch_begin(log);
        for (uint64_t k = 0; k < RESTART_EPOCH && i < RESTART_KEYS; k++, i++) {
            double value[RESTART_VALUE / sizeof(double)] = { (double)i };
            char text[17];
            snprintf(text, sizeof text, "%016llx", (unsigned long long)mix(i));
            memcpy(key + 12, text, 16);
            log_epoch_state(ep, key, sizeof key, value, sizeof value);
        }
        if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
            die("commit", &e);
    }
    log_close(log);
}

static double reopen_s(const struct coord_conf *conf) {
    struct coord *c;
    struct err e = ERR_INIT;
    double t = bench_now();
    if (coord_open(&c, conf, &e) < 0)
        die("restart", &e);
    t = bench_now() - t;
    struct sbuf out = { 0 };
    char keys[64];
    snprintf(keys, sizeof keys, "\"state_keys\":%d,", RESTART_KEYS);
    if (view_show(c, "f", &out, &e) < 0 || !strstr(sbuf_str(&out), keys))
        die("restart lost keys", &e);
    sbuf_free(&out);
    coord_close(c);
    return t;
}

static void bench_restart(void) {
    char dir[256], rm[300];
    const char *tmp = getenv("TMPDIR");
    struct err e = ERR_INIT;
    struct coord *c;
    snprintf(dir, sizeof dir, "%.200s/braid-state-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        exit(1);
    struct coord_conf conf = { .dir = dir };
    operators_init();
    if (coord_open(&c, &conf, &e) < 0)
        die("open", &e);
    uint64_t instance = filter_submit(c);
    coord_close(c);
    fill_log(dir, instance);
    bench_figure("restart_1g_s", reopen_s(&conf), "s", AT_MOST, 10);
    bench_figure("restart_1g_again_s", reopen_s(&conf), "s", AT_MOST, 0);
    snprintf(rm, sizeof rm, "rm -rf '%s'", dir);
    if (system(rm) != 0)
        exit(1);
}

int main(int argc, char **argv) {
    bench_calibrate();
    if (argc < 2 || strcmp(argv[1], "many") == 0)
        bench_many();
    if (argc < 2 || strcmp(argv[1], "spill") == 0)
        bench_spill();
    if (argc < 2 || strcmp(argv[1], "restart") == 0)
        bench_restart();
    return 0;
}
