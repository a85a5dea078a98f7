/* The planner beside 100,000 running tasks: merging 20 tasks without parsing, submits and removals
 * a second with parsing, memory of a planned task. Figures are the best of 5; p99 within a round.
 */
#include "operators/all.h"
#include "planner/merge.h"
#include "tests/bench/bench.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNING = 5600, LENGTH = 20, MERGES = 2000, SUBMITS = 5000, ROUNDS = 5 };

/* A chain of `length` tasks: a source, filters and interpolations that differ from `split` on, and
 * a sink. The dataflows `like` and this one share what comes before. */
static void text_of(struct sbuf *b, int number, int like, int split, int length) {
    b->len = 0;
    sbuf_printf(b, "{\"braid\": 1, \"name\": \"flow-%d\", \"tasks\": [\n", number);
    for (int i = 0; i < length; i++) {
        int id = i < split ? like : number;
        if (i == 0)
            sbuf_printf(b,
                        "{\"id\": \"t0\", \"type\": \"source\", \"config\": {\"topic\": \"in-%d\", "
                        "\"format\": \"senml\", \"schema\": {\"source\": \"string\", \"longitude\":"
                        " \"f64\", \"latitude\": \"f64\", \"temperature\": \"f64\", \"humidity\": "
                        "\"f64\", \"light\": \"f64\", \"dust\": \"f64\", \"airquality_raw\": "
                        "\"f64\"}, \"lateness\": \"5s\"}}",
                        id % 50);
        else if (i == length - 1)
            sbuf_printf(b,
                        ",\n{\"id\": \"t%d\", \"type\": \"sink\", \"config\": {\"topic\": \"out-%d"
                        "\"}, \"inputs\": [\"t%d\"]}",
                        i, number, i - 1);
        else if (i % 2)
            sbuf_printf(b,
                        ",\n{\"id\": \"t%d\", \"type\": \"range_filter\", \"config\": {\"ranges\": "
                        "{\"temperature\": [-12.5, %d.25], \"humidity\": [10.7, 95.2]}, \"mode\": "
                        "\"null\"}, \"inputs\": [\"t%d\"]}",
                        i, 100 + id, i - 1);
        else
            sbuf_printf(b,
                        ",\n{\"id\": \"t%d\", \"type\": \"interpolate\", \"config\": {\"fields\": "
                        "[\"temperature\", \"humidity\"], \"window\": %d}, \"inputs\": [{\"from\": "
                        "\"t%d\", \"by\": [\"source\"]}]}",
                        i, 2 + id % 50, i - 1);
    }
    sbuf_adds(b, "\n]}\n");
}

static void parse(struct spec *s, const char *text, size_t len, struct arena *a) {
    struct errs es = { 0 };
    char buf[2000];
    if (spec_parse(s, NULL, text, len, NULL, a, &es, NULL) == 0)
        return;
    fprintf(stderr, "%s\n", err_format(&es.v[0], buf, sizeof buf));
    exit(1);
}

static void submit(struct plan *p, const struct spec *s, uint64_t cut) {
    struct errs es = { 0 };
    struct plan_cut c = { cut, 0 };
    const struct change *change;
    char buf[2000];
    if (plan_submit(p, s, &c, &change, &es) < 0) {
        fprintf(stderr, "%s\n", err_format(&es.v[0], buf, sizeof buf));
        exit(1);
    }
    bench_use((uint64_t)change->nadd);
    plan_commit(p);
}

static void remove_flow(struct plan *p, int number) {
    char name[40];
    const struct change *change;
    snprintf(name, sizeof name, "flow-%d", number);
    if (plan_remove(p, name, &change, NULL) < 0)
        exit(1);
    uint64_t gone[64];
    int n = change->nremove;
    if (n > 64)
        exit(1);
    memcpy(gone, change->remove, sizeof *gone * (size_t)n);
    plan_commit(p);
    for (int i = 0; i < n; i++)
        plan_freed(p, gone[i]);
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* p99 of plan_submit with its change and commit, in us; half of the tasks are reused. */
static double merge_p99(struct plan *p, struct sbuf *b) {
    double best = 1e9, *us = malloc(sizeof *us * MERGES);
    struct arena a = { 0 };
    struct spec *specs = malloc(sizeof *specs * MERGES);
    for (int i = 0; i < MERGES; i++) {
        text_of(b, RUNNING + i, i % RUNNING, LENGTH / 2, LENGTH);
        parse(&specs[i], arena_strndup(&a, b->p, b->len), b->len, &a);
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < MERGES; i++) {
            double from = bench_now();
            submit(p, &specs[i], 1);
            us[i] = (bench_now() - from) * 1e6;
        }
        for (int i = 0; i < MERGES; i++)
            remove_flow(p, RUNNING + i);
        qsort(us, MERGES, sizeof *us, by_value);
        best = us[MERGES * 99 / 100] < best ? us[MERGES * 99 / 100] : best;
    }
    arena_free(&a);
    free(specs);
    free(us);
    return best;
}

/* Submits and removals for each second of one core, texts at hand: what a server's planner does
 * with each request. CPU time of the thread: it never waits, and others share the machine. */
static void rates(struct plan *p, struct sbuf *b, double *submits, double *removes) {
    struct arena texts = { 0 }, a = { 0 };
    char **text = malloc(sizeof *text * SUBMITS);
    size_t *len = malloc(sizeof *len * SUBMITS);
    *submits = *removes = 0;
    for (int i = 0; i < SUBMITS; i++) {
        text_of(b, RUNNING + i, i % RUNNING, LENGTH / 2, LENGTH);
        len[i] = b->len;
        text[i] = arena_strndup(&texts, b->p, b->len);
    }
    for (int r = 0; r < ROUNDS; r++) {
        double from = bench_thread_cpu();
        for (int i = 0; i < SUBMITS; i++) {
            struct spec s;
            arena_reset(&a);
            parse(&s, text[i], len[i], &a);
            submit(p, &s, 1);
        }
        double rate = SUBMITS / (bench_thread_cpu() - from);
        *submits = rate > *submits ? rate : *submits;
        from = bench_thread_cpu();
        for (int i = 0; i < SUBMITS; i++)
            remove_flow(p, RUNNING + i);
        rate = SUBMITS / (bench_thread_cpu() - from);
        *removes = rate > *removes ? rate : *removes;
    }
    arena_free(&texts);
    arena_free(&a);
    free(text);
    free(len);
}

/* Bytes of the heap for each task of 1,000 dataflows of 10 tasks of which nothing is shared but the
 * source, texts included. */
static double bytes_a_task(struct sbuf *b) {
    enum { FLOWS = 1000, TASKS = 10 };
    size_t before = mallinfo2().uordblks;
    struct plan *p = plan_new();
    struct arena a = { 0 };
    for (int i = 0; i < FLOWS; i++) {
        struct spec s;
        text_of(b, i, i, 0, TASKS);
        arena_reset(&a);
        parse(&s, b->p, b->len, &a);
        submit(p, &s, 1);
    }
    arena_free(&a);
    double bytes = (double)(mallinfo2().uordblks - before) / (FLOWS * TASKS);
    plan_free(p);
    return bytes;
}

int main(void) {
    struct sbuf b = { 0 };
    struct arena a = { 0 };
    double submits, removes;
    operators_init();
    bench_calibrate();
    double bytes = bytes_a_task(&b);
    struct plan *p = plan_new();
    for (int i = 0; i < RUNNING; i++) {
        struct spec s;
        text_of(&b, i, i, 1, LENGTH);
        arena_reset(&a);
        parse(&s, b.p, b.len, &a);
        submit(p, &s, 1);
    }
    arena_free(&a);
    fprintf(stderr, "# %llu tasks and %llu sinks run as %llu stages\n",
            (unsigned long long)p->counts.tasks, (unsigned long long)p->counts.sinks,
            (unsigned long long)p->counts.stages);
    bench_figure("merge20_us", merge_p99(p, &b), "us", AT_MOST, 100);
    rates(p, &b, &submits, &removes);
    bench_figure("submits_per_s", submits, "1/s", AT_LEAST, 10000);
    bench_figure("removes_per_s", removes, "1/s", AT_LEAST, 10000);
    bench_figure("plan_bytes_a_task", bytes, "bytes", AT_MOST, 4096);
    plan_free(p);
    sbuf_free(&b);
    return 0;
}
