#include "engine/clock.h"
#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t frozen = INT64_MIN;

int64_t clock_wall_ms(void) {
    int64_t f = atomic_load_explicit(&frozen, memory_order_relaxed);
    if (f != INT64_MIN)
        return f;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_mono_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void clock_freeze(int64_t ms) {
    atomic_store(&frozen, ms);
}
