#include "tests/unit/panes_gen.h"
#include "tests/unit/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = { "a", "b", "null", "ab", "c", "zz", "B", "~" };
enum { WORDS = sizeof words / sizeof *words };

void panes_stream_make(struct panes_stream *s, uint64_t *seed) {
    int64_t step = 1 + (int64_t)(test_random(seed) % 50), wm = INT64_MIN;
    int64_t t = (int64_t)(test_random(seed) % 2000) - 1000;
    int64_t slack = (int64_t)(test_random(seed) % 5) * step * 8;
    uint64_t keys = 1 + test_random(seed) % WORDS;
    s->n = (int)(test_random(seed) % PANES_ROWS);
    s->every = (1 + (int64_t)(test_random(seed) % 12)) * step;
    s->size = test_random(seed) % 2 ? s->every
                                    : s->every + (int64_t)(test_random(seed) % 4) * s->every / 2;
    s->lateness = test_random(seed) % 3 ? 0 : (int64_t)(test_random(seed) % 20) * step;
    for (int i = 0; i < s->n; i++) {
        struct panes_row *r = &s->row[i];
        t += (int64_t)(test_random(seed) % (uint64_t)(2 * step));
        r->time = t - (int64_t)(test_random(seed) % (uint64_t)(6 * step));
        if (test_random(seed) % 20 == 0)
            r->time -= 40 * step;
        r->wm = wm;
        snprintf(r->key, sizeof r->key, "%s", words[test_random(seed) % keys]);
        r->null = test_random(seed) % 9 == 0;
        r->x = (int64_t)(test_random(seed) % 40) - 20;
        if (test_random(seed) % 3 == 0 && t - slack > wm)
            wm = t - slack;
    }
    s->end_wm = test_random(seed) % 3 ? INT64_MAX : wm;
}

void panes_stream_config(const struct panes_stream *s, struct sbuf *o) {
    sbuf_printf(o, "\"every\":\"%lldms\",\"lateness\":\"%lldms\"", (long long)s->every,
                (long long)s->lateness);
    if (s->size != s->every)
        sbuf_printf(o, ",\"size\":\"%lldms\"", (long long)s->size);
}

void panes_stream_text(const struct panes_stream *s, struct sbuf *o) {
    int64_t wm = INT64_MIN;
    for (int i = 0; i < s->n; i++) {
        const struct panes_row *r = &s->row[i];
        if (r->wm != wm)
            sbuf_printf(o, "!wm %lld\n", (long long)r->wm);
        wm = r->wm;
        sbuf_printf(o, "@%lld %s,", (long long)r->time, r->key);
        if (r->null)
            sbuf_adds(o, "null\n");
        else
            sbuf_printf(o, "%lld\n", (long long)r->x);
    }
    if (s->end_wm == INT64_MAX)
        sbuf_adds(o, "!end\n");
    else if (s->end_wm != wm)
        sbuf_printf(o, "!wm %lld\n", (long long)s->end_wm);
}

static int64_t floor_step(int64_t t, int64_t step) {
    while (t % step)
        t--;
    return t;
}
static bool fired(const struct panes_stream *s, int64_t wm, int64_t end) {
    return end + s->lateness <= wm;
}

uint64_t panes_stream_late(const struct panes_stream *s, bool values) {
    uint64_t n = 0;
    for (int i = 0; i < s->n; i++)
        n += fired(s, s->row[i].wm, floor_step(s->row[i].time, s->every) + s->size) &&
             !(values && s->row[i].null);
    return n;
}

static int by_bytes(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    int nx = !strcmp(x, "null"), ny = !strcmp(y, "null"); /* behind all texts */
    return nx || ny ? nx - ny : strcmp(x, y);
}

void panes_stream_groups(const struct panes_stream *s, bool values, panes_group *each, void *user) {
    const char *key[WORDS];
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    memcpy(key, words, sizeof key);
    qsort(key, WORDS, sizeof *key, by_bytes);
    for (int i = 0; i < s->n; i++) {
        lo = s->row[i].time < lo ? s->row[i].time : lo;
        hi = s->row[i].time > hi ? s->row[i].time : hi;
    }
    if (!s->n)
        return;
    for (int64_t w = floor_step(lo, s->every) - floor_step(s->size, s->every) - s->every; w <= hi;
         w += s->every) {
        if (s->end_wm != INT64_MAX && !fired(s, s->end_wm, w + s->size))
            continue;
        for (int k = 0; k < WORDS; k++) {
            int row[PANES_ROWS], n = 0;
            for (int i = 0; i < s->n; i++) {
                const struct panes_row *r = &s->row[i];
                if (r->time >= w && r->time < w + s->size && !strcmp(r->key, key[k]) &&
                    !fired(s, r->wm, w + s->size) && !(values && r->null))
                    row[n++] = i;
            }
            if (n)
                each(user, s, w, key[k], row, n);
        }
    }
}
