/* What benchmarks share: a clock, a calibration loop, and the line of a figure. */
#ifndef BRAID_TESTS_BENCH_H
#define BRAID_TESTS_BENCH_H
#include <stdint.h>

enum bench_bar { AT_LEAST, AT_MOST };
/* Seconds of the monotonic clock, and CPU seconds of this process and of this thread. */
double bench_now(void);
double bench_cpu(void);
double bench_thread_cpu(void);
/* Prints "name<TAB>value<TAB>unit<TAB>bar<TAB>ok|short"; 0 for no bar. Names: [a-z0-9_]. */
void bench_figure(const char *name, double value, const char *unit, enum bench_bar dir, double bar);
/* ns per step of a chain of dependent multiplications (1-2 ns on machines of today): prints it as a
 * remark, so that absolute figures of two machines or two moments can be compared. ~20 ms. */
double bench_calibrate(void);
/* Keeps a value from being optimised away. */
static inline void bench_use(uint64_t v) {
    __asm__ volatile("" : : "r"(v) : "memory");
}
#endif
