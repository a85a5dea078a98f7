/* Windows of event time that begin at each multiple of `every`, and the slices that time is cut
 * into between their bounds: as long as the greatest common divisor of `size` and `every` (J. Li et
 * al., "No pane, no gain", SIGMOD Record 2005). Arithmetic on times, ms. Pure. */
#ifndef BRAID_OPERATORS_WINDOW_GRID_H
#define BRAID_OPERATORS_WINDOW_GRID_H
#include "engine/op.h"
#include "operators/order64.h"

/* Event times and durations, ms: sums do not overflow. */
#define WINDOW_TIME_MAX ((int64_t)1 << 60)

static inline int64_t floor_to(int64_t t, int64_t step) {
    int64_t r = t % step;
    return t - (r < 0 ? r + step : r);
}
static inline int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}
static inline int64_t saturate(int64_t a, int64_t b) {
    int64_t t;
    return __builtin_add_overflow(a, b, &t) ? (b < 0 ? TIME_MIN : TIME_MAX) : t;
}
/* The first multiple of `step` after t. */
static inline int64_t window_next(int64_t t, int64_t step) {
    if (t < -4 * WINDOW_TIME_MAX)
        return TIME_MIN;
    return t > 4 * WINDOW_TIME_MAX ? TIME_MAX : floor_to(t, step) + step;
}

struct window_grid {
    int64_t every, size, width; /* width: of a slice */
};
/* `size` PARAM_UNSET: that of `every`. */
static inline struct window_grid window_grid(int64_t every, int64_t size) {
    size = size == PARAM_UNSET ? every : size;
    return (struct window_grid){ .every = every, .size = size, .width = gcd(size, every) };
}
/* End of the first and of the last window that holds the slice. */
static inline int64_t window_first_end(const struct window_grid *g, int64_t slice) {
    return floor_to(slice + g->width - g->size + g->every - 1, g->every) + g->size;
}
static inline int64_t window_last_end(const struct window_grid *g, int64_t slice) {
    return floor_to(slice, g->every) + g->size;
}
/* End of the last window that ends at `t` or before. */
static inline int64_t window_end_before(const struct window_grid *g, int64_t t) {
    if (t < -4 * WINDOW_TIME_MAX)
        return TIME_MIN;
    return t > 4 * WINDOW_TIME_MAX ? TIME_MAX : floor_to(t - g->size, g->every) + g->size;
}

/* The start of a slice in a table key: bytes in the order of times. */
enum { SLICE_KEY = 8 };
static inline void slice_key_put(char *to, int64_t start) {
    uint64_t u = __builtin_bswap64(order64_i64(start));
    memcpy(to, &u, sizeof u);
}
static inline int64_t slice_key_get(const char *from) {
    uint64_t u;
    memcpy(&u, from, sizeof u);
    return order64_to_i64(__builtin_bswap64(u));
}
#endif
