#include "operators/window_run.h"
#include <stdlib.h>
#include <string.h>

enum { QUEUE_KEEP = 64 }; /* a longer queue gives its memory back when its group pauses */

static struct acc_total *totals_of(const struct window_runs *r, uint32_t id) {
    return r->total + (size_t)id * (size_t)r->accs->n;
}
static struct window_queue *queues_of(const struct window_runs *r, uint32_t id) {
    return r->queue + (size_t)id * (size_t)r->accs->n;
}
void window_runs_free(struct window_runs *r) {
    for (size_t i = 0; i < (size_t)r->cap * (size_t)r->accs->n; i++)
        free(r->queue[i].v);
    free(r->run);
    free(r->total);
    free(r->queue);
    *r = (struct window_runs){ .accs = r->accs };
}
/* Out of memory ends the process, as in arenas: sizes are bounded by the operator. */
static void *more(void *p, size_t old, size_t n, size_t size) {
    p = realloc(p, n * size);
    if (!p)
        abort();
    memset((char *)p + old * size, 0, (n - old) * size);
    return p;
}
void window_runs_room(struct window_runs *r, uint32_t n) {
    size_t each = (size_t)r->accs->n, old = r->cap;
    if (n <= old)
        return;
    r->run = more(r->run, old, n, sizeof *r->run);
    r->total = more(r->total, old, n, sizeof *r->total * each);
    r->queue = more(r->queue, old, n, sizeof *r->queue * each);
    r->cap = n;
}
void window_runs_reset(struct window_runs *r, uint32_t id) {
    struct window_queue *q = queues_of(r, id);
    r->run[id] = (struct window_run){ 0 };
    memset(totals_of(r, id), 0, sizeof *r->total * (size_t)r->accs->n);
    for (int i = 0; i < r->accs->n; i++) {
        q[i].head = q[i].n = 0;
        if (q[i].cap <= QUEUE_KEEP)
            continue;
        free(q[i].v);
        q[i] = (struct window_queue){ 0 };
    }
}

static struct window_candidate *at(const struct window_queue *q, uint32_t i) {
    return &q->v[(q->head + i) & (q->cap - 1)];
}
static void push(const struct accs *s, int i, struct window_queue *q, int64_t start,
                 const struct acc_pick *p) {
    while (q->n && accs_beats(s, i, p, &at(q, q->n - 1)->p))
        q->n--;
    if (q->n == q->cap) {
        uint32_t cap = q->cap ? 2 * q->cap : 4;
        struct window_candidate *v = malloc(cap * sizeof *v);
        if (!v)
            abort();
        for (uint32_t k = 0; k < q->n; k++)
            v[k] = *at(q, k);
        free(q->v);
        *q = (struct window_queue){ .v = v, .n = q->n, .cap = cap };
    }
    *at(q, q->n++) = (struct window_candidate){ start, *p };
}
static void slide(struct window_runs *r, uint32_t id, int64_t start, const void *record,
                  bool take) {
    struct window_queue *q = queues_of(r, id);
    if (!accs_slide(r->accs, totals_of(r, id), record, take)) {
        r->run[id].stale = true;
        return;
    }
    for (int i = 0; i < r->accs->n; i++) {
        struct acc_pick p;
        if (!accs_picked(r->accs, i, record, &p))
            continue;
        if (!take) {
            push(r->accs, i, &q[i], start, &p);
        } else if (q[i].n && at(&q[i], 0)->start == start) {
            q[i].head = (q[i].head + 1) & (q[i].cap - 1);
            q[i].n--;
        }
    }
}
void window_runs_add(struct window_runs *r, uint32_t id, int64_t start, const void *record) {
    r->run[id].slices++;
    if (!r->run[id].stale)
        slide(r, id, start, record, false);
}
void window_runs_take(struct window_runs *r, uint32_t id, int64_t start, const void *record) {
    if (r->run[id].stale)
        return;
    if (!--r->run[id].slices)
        window_runs_reset(r, id);
    else
        slide(r, id, start, record, true);
}
bool window_runs_total(const struct window_runs *r, uint32_t id, struct acc_total *t) {
    const struct window_queue *q = queues_of(r, id);
    if (!r->run[id].slices)
        return false;
    memcpy(t, totals_of(r, id), sizeof *t * (size_t)r->accs->n);
    for (int i = 0; i < r->accs->n; i++)
        if (q[i].n)
            accs_pick(r->accs, i, &t[i], &at(&q[i], 0)->p);
    return true;
}
