/* The server as its users see it: start, idle, memory, latency at 10,000 records a second, grafts
 * at full load. Runs build/braid up as a process of its own; clients are threads of this one, so
 * both share the machine. BENCH_SECONDS (default 10): length of a latency run. */
#include "cluster/client.h"
#include "operators/all.h"
#include "tests/bench/bench.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64], url[64];
static pid_t server;

static void die(const char *what, const struct errs *es) {
    fprintf(stderr, "bench_server: %s: %s\n", what, es && es->n ? es->v[0].text : "");
    if (server > 0)
        kill(server, SIGKILL);
    exit(1);
}

static double seconds(void) {
    const char *env = getenv("BENCH_SECONDS");
    return env ? (double)strtol(env, NULL, 10) : 10;
}

static void nap_until(double t) {
    for (double now; (now = bench_now()) < t;) {
        struct timespec s = { .tv_nsec = (long)(fmin(t - now, 0.9) * 1e9) };
        nanosleep(&s, NULL);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double *v, size_t n, double p) {
    qsort(v, n, sizeof *v, by_value);
    return n ? v[(size_t)fmin((double)n - 1, p * (double)n)] : NAN;
}

/* ---- the server ---- */

/* Starts it and waits for its line; the time that took, in ms. */
static double server_start(const char *durability) {
    int fd[2];
    if (pipe(fd) < 0)
        die("pipe", NULL);
    double t0 = bench_now();
    server = fork();
    if (server == 0) {
        dup2(fd[1], 1);
        dup2(fd[1], 2);
        close(fd[0]);
        execl("build/braid", "braid", "up", "--dir", dir, "--listen", "127.0.0.1:0", "--durability",
              durability, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    char line[512] = "";
    size_t len = 0;
    while (!strchr(line, '\n')) {
        ssize_t n = read(fd[0], line + len, sizeof line - 1 - len);
        if (n <= 0)
            die(line, NULL);
        len += (size_t)n;
        line[len] = '\0';
    }
    double ms = (bench_now() - t0) * 1e3;
    const char *at = strstr(line, "http");
    snprintf(url, sizeof url, "%.*s", (int)strcspn(at, "\n"), at);
    fcntl(fd[0], F_SETFL, O_NONBLOCK); /* later lines are nobody's; the pipe stays open */
    return ms;
}

static void server_stop(void) {
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    server = 0;
}

static void dir_new(void) {
    snprintf(dir, sizeof dir, "build/bench/server-XXXXXX");
    if (!mkdtemp(dir))
        die("mkdtemp", NULL);
}

static void dir_remove(void) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    if (system(cmd) != 0)
        die(cmd, NULL);
}

/* CPU seconds and resident MiB of the server. */
static double server_cpu(void) {
    char path[64], buf[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", server);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(buf, sizeof buf, f))
        die(path, NULL);
    fclose(f);
    /* Behind the name in brackets come a letter and 10 numbers, then user and system time. */
    char *p = strrchr(buf, ')');
    if (!p)
        die(path, NULL);
    p += 3;
    for (int i = 0; i < 10; i++)
        strtol(p, &p, 10);
    unsigned long utime = strtoul(p, &p, 10), stime = strtoul(p, &p, 10);
    return (double)(utime + stime) / (double)sysconf(_SC_CLK_TCK);
}

static double server_rss(void) {
    char path[64], line[256];
    double mib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", server);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            mib = (double)strtol(line + 6, NULL, 10) / 1024;
    if (f)
        fclose(f);
    return mib;
}

/* ---- requests ---- */

static struct client *connect_new(void) {
    struct client *c;
    struct errs es = { 0 };
    if (client_open(&c, url, &es) < 0)
        die(url, &es);
    return c;
}

static void call(struct client *c, const char *method, const char *path, const char *type,
                 const void *p, size_t len, struct sbuf *reply) {
    struct errs es = { 0 };
    struct client_body body = { .p = p, .len = len, .type = type };
    reply->len = 0;
    if (client_call(c, method, path, p ? &body : NULL, reply, NULL, &es) < 0)
        die(path, &es);
    errs_free(&es);
}

static void submit(struct client *c, const char *const *texts, int n) {
    struct sbuf o = { 0 }, reply = { 0 };
    sbuf_adds(&o, "{\"specs\":[");
    for (int i = 0; i < n; i++) {
        sbuf_adds(&o,
                  i ? ",{\"file\":\"bench.json\",\"text\":" : "{\"file\":\"bench.json\",\"text\":");
        sbuf_json_str(&o, texts[i], strlen(texts[i]));
        sbuf_adds(&o, "}");
    }
    sbuf_adds(&o, "]}");
    call(c, "POST", "/v1/dataflows", NULL, o.p, o.len, &reply);
    sbuf_free(&o);
    sbuf_free(&reply);
}

static int64_t topic_end(struct client *c, const char *topic, struct sbuf *reply) {
    char want[64];
    call(c, "GET", "/v1/topics", NULL, NULL, 0, reply);
    snprintf(want, sizeof want, "\"name\":\"%s\"", topic);
    const char *p = strstr(sbuf_str(reply), want);
    p = p ? strstr(p, "\"end\":") : NULL;
    return p ? strtoll(p + 6, NULL, 10) : -1;
}

/* ---- start, idle, memory ---- */

static const char *const small_flow =
    "{\"braid\":1,\"name\":\"small\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\",\"config\":{"
    "\"topic\":\"lat\",\"format\":\"csv\",\"schema\":{\"n\":\"i64\",\"x\":\"f64\"}}},{\"id\":\"f\","
    "\"type\":\"filter\",\"config\":{\"where\":\"x >= 0\"},\"inputs\":[\"in\"]},{\"id\":\"out\","
    "\"type\":\"sink\",\"config\":{\"topic\":\"lat-out-0\",\"format\":\"csv\"},\"inputs\":[\"f\"]}]"
    "}";

static void bench_start(void) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        dir_new();
        double ms = server_start("process");
        best = ms < best ? ms : best;
        server_stop();
        if (i < 4)
            dir_remove();
    }
    double again = server_start("process");
    best = again < best ? again : best;
    bench_figure("up_ready_ms", best, "ms", AT_MOST, 100);
    struct client *c = connect_new();
    submit(c, &small_flow, 1);
    nap_until(bench_now() + 1);
    double cpu = server_cpu(), t0 = bench_now();
    nap_until(t0 + seconds());
    bench_figure("idle_cpu_pct", (server_cpu() - cpu) / (bench_now() - t0) * 100, "%", AT_MOST,
                 0.5);
    client_close(c);
    server_stop();
    dir_remove();
}

/* Ten tasks each: the reading is shared, everything below has parameters of its own. */
static void bench_memory(void) {
    enum { FLOWS = 1000, CHUNK = 100 };
    dir_new();
    server_start("process");
    struct client *c = connect_new();
    double before = server_rss();
    for (int i = 0; i < FLOWS; i += CHUNK) {
        const char *texts[CHUNK];
        for (int k = 0; k < CHUNK; k++) {
            struct sbuf o = { 0 };
            int n = i + k;
            sbuf_printf(
                &o,
                "{\"braid\":1,\"name\":\"m%d\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\","
                "\"config\":{\"topic\":\"mem\",\"format\":\"csv\",\"schema\":{\"k\":\"string\","
                "\"x\":\"f64\"}}}",
                n);
            for (int t = 0; t < 8; t++) {
                sbuf_printf(&o, ",{\"id\":\"t%d\",\"type\":\"%s\",\"config\":", t,
                            t % 2 ? "kalman" : "filter");
                if (t % 2)
                    sbuf_printf(&o, "{\"fields\":[\"x\"],\"estimated_error\":%d}", n * 10 + t + 1);
                else
                    sbuf_printf(&o, "{\"where\":\"x > %d\"}", n * 10 + t + 1);
                sbuf_adds(&o, ",\"inputs\":[{\"from\":");
                if (t)
                    sbuf_printf(&o, "\"t%d\"", t - 1);
                else
                    sbuf_adds(&o, "\"in\"");
                sbuf_printf(&o, "%s}]}", t % 2 ? ",\"by\":[\"k\"]" : "");
            }
            sbuf_printf(&o,
                        ",{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"mem-%d\","
                        "\"format\":\"csv\"},\"inputs\":[\"t7\"]}]}",
                        n);
            texts[k] = o.p;
        }
        submit(c, texts, CHUNK);
        for (int k = 0; k < CHUNK; k++)
            free((void *)texts[k]);
    }
    printf("# before: %.1f MiB\n", before);
    bench_figure("rss_1000_mib", server_rss(), "MiB", AT_MOST, 128);
    client_close(c);
    server_stop();
    dir_remove();
}

/* ---- latency ---- */

enum { RATE = 10000, PER_POST = 10 };
struct latency {
    double start;        /* when record 0 was due */
    int64_t total, seen; /* records */
    double *ms;
    atomic_bool stop;
    char line[64];
    size_t len;
};

static int latency_rows(void *arg, const char *p, size_t n) {
    struct latency *l = arg;
    double now = bench_now();
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\n') {
            if (l->len < sizeof l->line - 1)
                l->line[l->len++] = p[i];
            continue;
        }
        l->line[l->len] = '\0';
        l->len = 0;
        int64_t k = strtoll(l->line, NULL, 10);
        if (l->seen < l->total)
            l->ms[l->seen++] = (now - (l->start + (double)k / RATE)) * 1e3;
    }
    return l->seen == l->total;
}

static void *latency_reader(void *arg) {
    struct latency *l = arg;
    struct errs es = { 0 };
    struct client *c = connect_new();
    client_stream(c, "/v1/topics/lat-out-0/records?from=earliest&follow=1&format=raw", latency_rows,
                  l, &es);
    client_close(c);
    errs_free(&es);
    return NULL;
}

static void *fsync_prober(void *arg) {
    struct latency *l = arg;
    char path[96], buf[16384];
    memset(buf, 'x', sizeof buf);
    snprintf(path, sizeof path, "%s/fsync-probe", dir);
    int fd = open(path, O_CREAT | O_RDWR, 0666);
    while (!l->stop && l->seen < l->total) {
        double t0 = bench_now();
        if (pwrite(fd, buf, sizeof buf, 0) != sizeof buf || fdatasync(fd) < 0)
            break;
        l->ms[l->seen++] = (bench_now() - t0) * 1e3;
        nap_until(bench_now() + 0.03);
    }
    close(fd);
    return NULL;
}

/* Open loop: a post of PER_POST records each ms, however long the last one took. Two senders take
 * turns, so that a slow answer does not delay the schedule. */
struct sender {
    struct latency *l;
    int which, of;
};
static void *latency_sender(void *arg) {
    struct sender *s = arg;
    struct client *c = connect_new();
    struct sbuf reply = { 0 };
    char path[128], body[PER_POST * 32];
    for (int64_t k = (int64_t)s->which * PER_POST; k < s->l->total; k += s->of * PER_POST) {
        size_t len = 0;
        for (int i = 0; i < PER_POST; i++)
            len += (size_t)snprintf(body + len, sizeof body - len, "%lld,1.5\n", (long long)k + i);
        nap_until(s->l->start + (double)(k + PER_POST - 1) / RATE);
        snprintf(path, sizeof path, "/v1/topics/lat/records?producer=p%d&seq=%lld", s->which,
                 (long long)k);
        call(c, "POST", path, "text/plain", body, len, &reply);
    }
    sbuf_free(&reply);
    client_close(c);
    return NULL;
}

static double latency_run(const char *durability, int sinks, double *fsync_p99) {
    enum { SENDERS = 4 };
    struct latency l = { .total = (int64_t)(seconds() * RATE) / 100 * 100 };
    struct latency probe = { .total = 100000 };
    struct sender s[SENDERS];
    pthread_t reader, prober, sender[SENDERS];
    char text[20][1024];
    const char *texts[20];
    l.ms = calloc((size_t)l.total, sizeof *l.ms);
    probe.ms = calloc((size_t)probe.total, sizeof *probe.ms);
    dir_new();
    server_start(durability);
    struct client *c = connect_new();
    for (int i = 0; i < sinks; i++) {
        char name[32], topic[32];
        snprintf(text[i], sizeof text[i], "%s", small_flow);
        snprintf(name, sizeof name, "smal%c", 'a' + i);
        snprintf(topic, sizeof topic, "lat-out-%c", i ? 'a' + i : '0');
        memcpy(strstr(text[i], "small"), name, 5);
        memcpy(strstr(text[i], "lat-out-0"), topic, 9);
        texts[i] = text[i];
    }
    submit(c, texts, sinks);
    l.start = bench_now() + 0.5;
    pthread_create(&reader, NULL, latency_reader, &l);
    if (fsync_p99)
        pthread_create(&prober, NULL, fsync_prober, &probe);
    for (int i = 0; i < SENDERS; i++) {
        s[i] = (struct sender){ &l, i, SENDERS };
        pthread_create(&sender[i], NULL, latency_sender, &s[i]);
    }
    for (int i = 0; i < SENDERS; i++)
        pthread_join(sender[i], NULL);
    pthread_join(reader, NULL);
    probe.stop = true;
    if (fsync_p99) {
        pthread_join(prober, NULL);
        *fsync_p99 = percentile(probe.ms, (size_t)probe.seen, 0.99);
    }
    size_t n = (size_t)l.seen;
    double p99 = percentile(l.ms, n, 0.99);
    printf("# %s, %d sinks: p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms of %lld records\n", durability,
           sinks, percentile(l.ms, n, 0.5), p99, percentile(l.ms, n, 0.999), (long long)l.seen);
    client_close(c);
    server_stop();
    dir_remove();
    free(l.ms);
    free(probe.ms);
    return p99;
}

/* Absolute figures: the best of 5 runs. */
static void bench_latency(void) {
    enum { RUNS = 5 };
    double best = 1e9, excess = -1e9, fsync_p99 = 0;
    for (int i = 0; i < RUNS; i++)
        best = fmin(best, latency_run("process", 1, NULL));
    bench_figure("p99_ms_10k", best, "ms", AT_MOST, 30);
    for (int sinks = 1; sinks <= 20; sinks += 19) {
        double least = 1e9;
        for (int i = 0; i < RUNS; i++) {
            double p99 = latency_run("power", sinks, &fsync_p99);
            printf("# fdatasync p99 %.2f ms\n", fsync_p99);
            least = fmin(least, p99 - 3 * fsync_p99);
        }
        excess = fmax(excess, least);
    }
    bench_figure("p99_power_excess_ms", excess, "ms", AT_MOST, 10);
}

/* ---- grafts at full load ---- */

#define LOAD_SOURCE                                                                                \
    "{\"id\":\"in\",\"type\":\"generator\",\"config\":{\"fields\":{\"k\":{\"keys\":100,"           \
    "\"prefix\":\"s\"},\"x\":{\"walk\":[-10,40],\"digits\":2}},\"rate\":1000000,\"pace\":false}}"
static const char *const load_flow =
    "{\"braid\":1,\"name\":\"load\",\"tasks\":[" LOAD_SOURCE
    ",{\"id\":\"f\",\"type\":\"filter\",\"config\":{\"where\":\"x > -100\"},\"inputs\":[\"in\"]},"
    "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"load-out\",\"format\":\"csv\"},"
    "\"inputs\":[\"f\"]}]}";

/* The longest time without new output within `window` s. */
static double longest_gap(struct client *c, double window, struct sbuf *reply) {
    double t0 = bench_now(), last = t0, gap = 0;
    int64_t end = topic_end(c, "load-out", reply);
    for (double now; (now = bench_now()) < t0 + window;) {
        int64_t e = topic_end(c, "load-out", reply);
        if (e != end) {
            gap = fmax(gap, now - last);
            last = now;
            end = e;
        }
    }
    return fmax(gap, bench_now() - last) * 1e3;
}

struct graft {
    int n;
    double first_ms;
};

/* Submits a dataflow of nine tasks below the loaded source and waits for its first row. */
static void *graft_one(void *arg) {
    struct graft *g = arg;
    struct client *c = connect_new();
    struct sbuf o = { 0 }, reply = { 0 };
    char topic[32];
    snprintf(topic, sizeof topic, "graft-%d", g->n);
    sbuf_printf(&o, "{\"braid\":1,\"name\":\"g%d\",\"tasks\":[" LOAD_SOURCE, g->n);
    for (int t = 0; t < 7; t++) {
        sbuf_printf(&o,
                    ",{\"id\":\"t%d\",\"type\":\"filter\",\"config\":{\"where\":\"x > %d\"},"
                    "\"inputs\":[",
                    t, -100 - g->n * 10 - t);
        if (t)
            sbuf_printf(&o, "\"t%d\"]}", t - 1);
        else
            sbuf_adds(&o, "\"in\"]}");
    }
    sbuf_printf(&o,
                ",{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"%s\",\"format\":"
                "\"csv\"},\"inputs\":[\"t6\"]}]}",
                topic);
    const char *text = sbuf_str(&o);
    double t0 = bench_now();
    submit(c, &text, 1);
    while (topic_end(c, topic, &reply) <= 0 && bench_now() < t0 + 10)
        continue;
    g->first_ms = (bench_now() - t0) * 1e3;
    char path[64];
    snprintf(path, sizeof path, "/v1/dataflows/g%d", g->n);
    call(c, "DELETE", path, NULL, NULL, 0, &reply);
    snprintf(path, sizeof path, "/v1/topics/%s", topic);
    call(c, "DELETE", path, NULL, NULL, 0, &reply);
    sbuf_free(&o);
    sbuf_free(&reply);
    client_close(c);
    return NULL;
}

static void bench_graft(void) {
    enum { GRAFTS = 50 };
    double with[GRAFTS], without[GRAFTS], first[GRAFTS];
    dir_new();
    server_start("process");
    struct client *c = connect_new();
    struct sbuf reply = { 0 };
    call(c, "PUT", "/v1/topics/load-out", NULL, "{\"retention_bytes\":1073741824}", 30, &reply);
    submit(c, &load_flow, 1);
    nap_until(bench_now() + 1);
    for (int i = 0; i < GRAFTS; i++) {
        struct graft g = { .n = i };
        pthread_t t;
        without[i] = longest_gap(c, 0.2, &reply);
        pthread_create(&t, NULL, graft_one, &g);
        with[i] = longest_gap(c, 0.2, &reply);
        pthread_join(t, NULL);
        first[i] = g.first_ms;
    }
    double p95 = percentile(with, GRAFTS, 0.95), control = percentile(without, GRAFTS, 0.95);
    printf("# longest gap in 200 ms, p95: %.1f ms with a graft, %.1f ms without; first output p50 "
           "%.1f ms\n",
           p95, control, percentile(first, GRAFTS, 0.5));
    bench_figure("graft_stall_ms", p95 - control, "ms", AT_MOST, 20);
    bench_figure("graft_first_output_ms", percentile(first, GRAFTS, 0.95), "ms", AT_MOST, 50);
    sbuf_free(&reply);
    client_close(c);
    server_stop();
    dir_remove();
}

/* BENCH_PART names the only part to run. */
static bool part(const char *name) {
    const char *only = getenv("BENCH_PART");
    return !only || strcmp(only, name) == 0;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_calibrate();
    if (part("start"))
        bench_start();
    if (part("memory"))
        bench_memory();
    if (part("latency"))
        bench_latency();
    if (part("graft"))
        bench_graft();
    return 0;
}
