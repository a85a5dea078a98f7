#include "tests/bench/bench.h"
#include "engine/num.h"
#include <math.h>
#include <stdio.h>
#include <time.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
double bench_now(void) {
    return seconds(CLOCK_MONOTONIC);
}
double bench_cpu(void) {
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}
double bench_thread_cpu(void) {
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}
/* Four significant digits, whatever the locale. */
static int write_short(char *out, double v) {
    if (v != 0 && isfinite(v)) {
        double unit = pow(10, 3 - floor(log10(fabs(v))));
        v = round(v * unit) / unit;
    }
    return num_write_f64(out, isfinite(v) ? v : 0);
}
void bench_figure(const char *name, double value, const char *unit, enum bench_bar dir,
                  double bar) {
    char v[NUM_F64_MAX_LEN], b[NUM_F64_MAX_LEN];
    int nv = write_short(v, value), nb = write_short(b, bar);
    int good = isfinite(value) && (bar == 0 || (dir == AT_LEAST ? value >= bar : value <= bar));
    printf("%s\t%.*s\t%s\t", name, nv, v, unit);
    if (bar != 0)
        printf("%s %.*s", dir == AT_LEAST ? ">=" : "<=", nb, b);
    printf("\t%s\n", good ? "ok" : "short");
    fflush(stdout);
}
double bench_calibrate(void) {
    enum { STEPS = 2000000 };
    double best = INFINITY;
    for (int round = 0; round < 5; round++) {
        uint64_t x = 1;
        double start = bench_now();
        for (int i = 0; i < STEPS; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            bench_use(x);
        }
        double ns = (bench_now() - start) / STEPS * 1e9;
        best = ns < best ? ns : best;
    }
    char text[NUM_F64_MAX_LEN];
    printf("calibration: %.*s ns a dependent multiplication\n", write_short(text, best), text);
    fflush(stdout);
    return best;
}
