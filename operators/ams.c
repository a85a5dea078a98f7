#include "operators/ams.h"
#include "operators/mix.h"

/* A row: the sum of its squared counters (128 bits, exact; at most the square of the number of
 * values), then the counters. */
struct row {
    uint64_t lo, hi;
    int64_t count[];
};
#define P61 (((uint64_t)1 << 61) - 1)

static size_t row_size(const struct ams *m) {
    return sizeof(struct row) + m->width * sizeof(int64_t);
}
size_t ams_size(const struct ams *m) {
    return (size_t)m->depth * row_size(m);
}

/* 4-independent hashes: polynomials of degree 3 over the integers modulo 2^61 - 1 (J. Carter, M.
 * Wegman, "New hash functions and their use in authentication and set equality", 1981). */
void ams_init(struct ams *m, int depth, uint32_t width, uint64_t seed) {
    uint64_t s = mix64(seed);
    *m = (struct ams){ .depth = depth, .width = width };
    for (int d = 0; d < depth; d++)
        for (int i = 0; i < 4; i++)
            m->poly[d][i] = (s = mix64(s)) % P61;
}

static uint64_t mod61(unsigned __int128 v) {
    uint64_t r = (uint64_t)(v & P61) + (uint64_t)(v >> 61);
    return r >= P61 ? r - P61 : r;
}
static uint64_t poly61(const uint64_t *a, uint64_t x) {
    uint64_t h = a[3];
    for (int i = 2; i >= 0; i--)
        h = mod61((unsigned __int128)h * x + a[i]);
    return h;
}

static void row_add(struct row *r, uint32_t at, int64_t v) {
    __int128 old = r->count[at], square = (__int128)((unsigned __int128)r->hi << 64 | r->lo);
    square += v * (2 * old + v);
    r->count[at] += v;
    r->lo = (uint64_t)square;
    r->hi = (uint64_t)((unsigned __int128)square >> 64);
}

void ams_add(const struct ams *m, void *sketch, uint64_t hash) {
    char *at = sketch;
    uint64_t x = mod61(hash);
    for (int d = 0; d < m->depth; d++, at += row_size(m)) {
        uint64_t h = poly61(m->poly[d], x);
        row_add((struct row *)at, (uint32_t)(h >> 1) & (m->width - 1), h & 1 ? 1 : -1);
    }
}

void ams_merge(const struct ams *m, void *sketch, const void *other) {
    char *at = sketch;
    const char *from = other;
    for (int d = 0; d < m->depth; d++, at += row_size(m), from += row_size(m))
        for (uint32_t i = 0; i < m->width; i++)
            row_add((struct row *)at, i, ((const struct row *)from)->count[i]);
}

double ams_moment(const struct ams *m, const void *sketch) {
    double v[AMS_DEPTH_MAX] = { 0 };
    const char *at = sketch;
    int n = 0;
    for (int d = 0; d < m->depth; d++, at += row_size(m)) {
        const struct row *r = (const struct row *)at;
        double x = (double)((unsigned __int128)r->hi << 64 | r->lo);
        int i = n++;
        for (; i > 0 && v[i - 1] > x; i--)
            v[i] = v[i - 1];
        v[i] = x;
    }
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
