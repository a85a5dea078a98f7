#include "operators/kll.h"
#include "operators/mix.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVELS = 44,  /* 16 x 2^43 values: years of them */
    LEVEL_MIN = 8 /* samples that every level has room for */
};
/* The samples lie level after level, the highest first, so that new values come at the end. All
 * levels but the lowest are sorted. */
struct kll {
    uint64_t n, min, max;
    uint32_t levels, samples, room; /* room: for samples, at this number of levels */
    uint16_t len[LEVELS];
    uint32_t unused;
    uint64_t v[];
};

/* Room of the level that lies `below` the top one: k x (2/3)^below, in integers. */
static uint32_t room_of(int k, uint32_t below) {
    uint32_t r = (uint32_t)k;
    for (; below > 0 && r > LEVEL_MIN; below--)
        r = (2 * r + 2) / 3;
    return r > LEVEL_MIN ? r : LEVEL_MIN;
}
static uint32_t room_of_all(int k, uint32_t levels) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < levels; i++)
        sum += room_of(k, i);
    return sum;
}
size_t kll_size(int k) {
    return sizeof(struct kll) + room_of_all(k, LEVELS) * sizeof(uint64_t);
}
uint64_t kll_count(const void *sketch) {
    return ((const struct kll *)sketch)->n;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Where level h begins: behind all that are higher. */
static uint32_t begin_of(const struct kll *s, uint32_t h) {
    uint32_t at = 0;
    for (uint32_t i = s->levels; i-- > h + 1;)
        at += s->len[i];
    return at;
}

/* Merges the sorted b[0..n) into the sorted a[0..m), which has room behind it. They do not overlap.
 */
static void merge_back(uint64_t *a, uint32_t m, const uint64_t *b, uint32_t n) {
    for (uint64_t *to = a + m + n; n > 0;)
        *--to = m > 0 && a[m - 1] > b[n - 1] ? a[--m] : b[--n];
}

/* Every other sample of level h joins level h + 1, which lies right before it; of an odd number the
 * smallest stays. */
static void compact(struct kll *s, int k, uint64_t seed, uint32_t h) {
    uint32_t at = begin_of(s, h), len = s->len[h], stay = len & 1, up = len / 2;
    uint64_t *run = s->v + at;
    uint32_t other = (uint32_t)(mix64(seed ^ (s->n << 6 | h)) >> 63);
    if (h == 0)
        qsort(run, len, sizeof *run, by_value);
    if (h + 1 == s->levels) {
        assert(s->levels < LEVELS);
        s->levels++;
        s->room = room_of_all(k, s->levels);
    }
    uint64_t smallest = run[0];
    uint32_t above = s->len[h + 1];
    for (uint32_t i = 0; i < up; i++) /* gathered at the end of the run */
        run[len - 1 - i] = run[len - 1 - 2 * i - other];
    merge_back(run - above, above, run + len - up, up);
    if (stay)
        run[up] = smallest;
    memmove(run + up + stay, run + len, (s->samples - at - len) * sizeof *run);
    s->len[h + 1] = (uint16_t)(above + up);
    s->len[h] = (uint16_t)stay;
    s->samples -= len - up - stay;
}

/* Until there is room for `more`: the lowest level that is full goes up. */
static void make_room(struct kll *s, int k, uint64_t seed, uint32_t more) {
    while (s->samples + more > s->room) {
        uint32_t h = 0;
        while (s->len[h] < room_of(k, s->levels - 1 - h))
            h++;
        compact(s, k, seed, h);
    }
}

void kll_add(void *sketch, int k, uint64_t seed, uint64_t value) {
    struct kll *s = sketch;
    if (!s->n) {
        s->min = s->max = value;
        s->levels = 1;
        s->room = room_of_all(k, 1);
    }
    s->min = value < s->min ? value : s->min;
    s->max = value > s->max ? value : s->max;
    if (s->samples == s->room)
        make_room(s, k, seed, 1);
    s->v[s->samples++] = value;
    s->len[0]++;
    s->n++;
}

void kll_merge(void *sketch, int k, uint64_t seed, const void *other, struct arena *a) {
    struct kll *s = sketch;
    const struct kll *o = other;
    if (!o->n)
        return;
    if (!s->n) {
        memcpy(s, o, sizeof *o + o->samples * sizeof *o->v);
        return;
    }
    size_t most = sizeof *s + ((size_t)s->samples + o->samples) * sizeof *s->v;
    struct kll *m = arena_zalloc(a, most);
    m->n = s->n + o->n;
    m->min = s->min < o->min ? s->min : o->min;
    m->max = s->max > o->max ? s->max : o->max;
    m->levels = s->levels > o->levels ? s->levels : o->levels;
    m->room = room_of_all(k, m->levels);
    for (uint32_t h = m->levels, x = 0, y = 0; h-- > 0;) {
        uint32_t i = h < s->levels ? s->len[h] : 0, j = h < o->levels ? o->len[h] : 0;
        uint64_t *to = m->v + m->samples;
        if (i)
            memcpy(to, s->v + x, i * sizeof *to);
        if (h > 0)
            merge_back(to, i, o->v + y, j);
        else if (j)
            memcpy(to + i, o->v + y, j * sizeof *to);
        m->len[h] = (uint16_t)(i + j);
        m->samples += i + j;
        x += i;
        y += j;
    }
    make_room(m, k, seed, 0);
    memcpy(s, m, sizeof *m + m->samples * sizeof *m->v);
}

/* A level while samples are taken in order: its next one, its end, and what one stands for. */
struct run {
    const uint64_t *at, *end;
    uint64_t weight;
};

static uint64_t rank_of(double q, uint64_t n) {
    double r = ceil(q * (double)n);
    return r < 1 ? 1 : r >= (double)n ? n : (uint64_t)r;
}

void kll_quantiles(const void *sketch, struct arena *a, const double *q, int n, uint64_t *out) {
    const struct kll *s = sketch;
    struct run run[LEVELS];
    uint32_t at = 0, runs = 0;
    uint64_t *low = ARENA_ARRAY(a, uint64_t, s->len[0] + 1);
    assert(s->n);
    for (uint32_t h = s->levels; h-- > 0; at += s->len[h])
        if (s->len[h])
            run[runs++] = (struct run){ s->v + at, s->v + at + s->len[h], (uint64_t)1 << h };
    if (s->len[0]) {
        memcpy(low, run[runs - 1].at, s->len[0] * sizeof *low);
        qsort(low, s->len[0], sizeof *low, by_value);
        run[runs - 1] = (struct run){ low, low + s->len[0], 1 };
    }
    uint64_t seen = 0, value = s->min;
    for (int i = 0; i < n; i++) {
        uint64_t rank = rank_of(q[i], s->n);
        while (seen < rank) {
            uint32_t best = 0;
            for (uint32_t r = 1; r < runs; r++)
                best = *run[r].at < *run[best].at ? r : best;
            value = *run[best].at++;
            seen += run[best].weight;
            if (run[best].at == run[best].end)
                run[best] = run[--runs];
        }
        out[i] = rank == 1 ? s->min : rank == s->n ? s->max : value;
    }
}
