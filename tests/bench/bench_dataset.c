/* How fast replays make records: benchmarks and `braid replay` feed from them, so they must cost
 * little beside what is measured. */
#include "cluster/dataset.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>

static double mrec_s(const char *source, int64_t keys, int64_t n) {
    double best = 0;
    for (int round = 0; round < 5; round++) {
        struct dataset_conf c = { .source = source, .loop = DATASET_ENDLESS, .keys = keys };
        struct dataset *ds;
        struct err e = ERR_INIT;
        struct dataset_record r;
        if (dataset_open(&ds, &c, &e) != 0) {
            fprintf(stderr, "%s\n", e.text);
            exit(1);
        }
        double start = bench_now();
        for (int64_t i = 0; i < n; i++) {
            if (dataset_next(ds, &r, &e) != 1)
                exit(1);
            bench_use((uint64_t)r.data[r.len - 1]);
        }
        double rate = (double)n / (bench_now() - start) / 1e6;
        best = rate > best ? rate : best;
        dataset_close(ds);
    }
    return best;
}
int main(void) {
    bench_calibrate();
    bench_figure("replay_sys_mrec_s", mrec_s("sys", 0, 3000000), "M records/s", AT_LEAST, 2);
    bench_figure("replay_sys_100k_mrec_s", mrec_s("sys", 100000, 3000000), "M records/s", AT_LEAST,
                 2);
    bench_figure("replay_taxi_mrec_s", mrec_s("taxi", 0, 2000000), "M records/s", AT_LEAST, 2);
}
