#include "cluster/stats.h"
#include "cluster/coord_impl.h"
#include <stdlib.h>
#include <string.h>

struct taking {
    struct stats *st;
    struct executor *x;
    int partitions; /* visited */
};

static struct stat_entry *add(struct stats *st) {
    if (st->n == st->cap) {
        st->cap = st->cap ? 2 * st->cap : 64;
        st->v = realloc(st->v, st->cap * sizeof *st->v);
        if (!st->v)
            abort();
    }
    return &st->v[st->n++];
}

static void take_task(void *arg, struct task *t) {
    struct taking *k = arg;
    struct stats *st = k->st;
    struct stat_entry *en = add(st);
    en->instance = task_def(t)->instance;
    en->error = NULL;
    en->position = -1;
    task_stats(t, &en->s);
    if (en->s.held_for)
        en->s.held_for = arena_strdup(&st->arena, en->s.held_for);
    if (!(task_def(t)->op->flags & OP_SOURCE))
        return;
    en->position = task_position(t);
    const struct err *e = executor_source_error(k->x, t);
    if (e)
        en->error = arena_strdup(&st->arena, e->text);
}

/* What the same task has counted on another partition. */
static void fold(struct stat_entry *a, const struct stat_entry *b) {
    uint64_t *to = (uint64_t *)&a->s.counts;
    const uint64_t *from = (const uint64_t *)&b->s.counts;
    for (size_t i = 0; i < sizeof a->s.counts / sizeof *to; i++)
        to[i] += from[i];
    a->s.batches += b->s.batches;
    a->s.ns += b->s.ns;
    a->s.state_keys += b->s.state_keys;
    a->s.state_bytes += b->s.state_bytes;
    a->s.held_bytes += b->s.held_bytes;
    a->s.wm = b->s.wm < a->s.wm ? b->s.wm : a->s.wm;
    a->s.held_for = a->s.held_for ? a->s.held_for : b->s.held_for;
    a->error = a->error ? a->error : b->error;
    a->position += b->position < 0 ? 0 : b->position;
}

static int by_instance(const void *a, const void *b) {
    const struct stat_entry *x = a, *y = b;
    return (x->instance > y->instance) - (x->instance < y->instance);
}

/* One entry a task, also when it runs on several partitions. */
static void fold_all(struct stats *st) {
    uint32_t n = 0;
    if (st->n)
        qsort(st->v, st->n, sizeof *st->v, by_instance);
    for (uint32_t i = 0; i < st->n; i++)
        if (n && st->v[n - 1].instance == st->v[i].instance)
            fold(&st->v[n - 1], &st->v[i]);
        else
            st->v[n++] = st->v[i];
    st->n = n;
}

static void take(void *arg, struct exec *ex) {
    struct taking *k = arg;
    k->partitions++;
    exec_each(ex, take_task, k);
}

static uint32_t home(const struct stats *st, uint64_t instance) {
    return (uint32_t)(instance * 0x9e3779b97f4a7c15u >> 32) & st->mask;
}

static void make_index(struct stats *st) {
    uint32_t slots = 16;
    while (slots < 2 * st->n)
        slots *= 2;
    st->mask = slots - 1;
    st->slot = calloc(slots, sizeof *st->slot);
    if (!st->slot)
        abort();
    for (uint32_t i = 0; i < st->n; i++) {
        uint32_t h = home(st, st->v[i].instance);
        while (st->slot[h])
            h = (h + 1) & st->mask;
        st->slot[h] = i + 1;
    }
}

const struct stat_entry *stats_find(const struct stats *st, uint64_t instance) {
    for (uint32_t h = home(st, instance); st->slot[h]; h = (h + 1) & st->mask)
        if (st->v[st->slot[h] - 1].instance == instance)
            return &st->v[st->slot[h] - 1];
    return NULL;
}

void stats_unref(struct stats *st) {
    if (!st || __atomic_sub_fetch(&st->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    free(st->v);
    free(st->slot);
    arena_free(&st->arena);
    free(st);
}

/* The last snapshot, or NULL; a reference for the caller. */
static struct stats *kept(struct coord *c) {
    pthread_mutex_lock(&c->stats_lock);
    struct stats *st = c->stats;
    if (st)
        __atomic_add_fetch(&st->refs, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&c->stats_lock);
    return st;
}

static void keep(struct coord *c, struct stats *st) {
    pthread_mutex_lock(&c->stats_lock);
    struct stats *old = c->stats;
    c->stats = st;
    pthread_mutex_unlock(&c->stats_lock);
    stats_unref(old);
}

static struct stats *copy(const struct stats *from, const struct executor_health *h) {
    struct stats *st = calloc(1, sizeof *st);
    if (!st)
        abort();
    st->refs = 1;
    st->health = *h;
    for (uint32_t i = 0; from && i < from->n; i++) {
        struct stat_entry *en = add(st);
        *en = from->v[i];
        if (en->error)
            en->error = arena_strdup(&st->arena, en->error);
        if (en->s.held_for)
            en->s.held_for = arena_strdup(&st->arena, en->s.held_for);
    }
    make_index(st);
    return st;
}

struct stats *stats_get(struct coord *c) {
    struct executor_health h;
    executor_health(c->executor, &h);
    struct stats *old = h.degraded || h.failed ? kept(c) : NULL;
    if (old || h.failed) {
        struct stats *st = copy(old, &h);
        stats_unref(old);
        return st;
    }
    struct stats *st = calloc(1, sizeof *st);
    if (!st)
        abort();
    st->refs = 2; /* the caller's and the kept one */
    struct taking k = { st, c->executor, 0 };
    executor_visit(c->executor, take, &k);
    if (k.partitions > 1)
        fold_all(st);
    executor_health(c->executor, &st->health);
    make_index(st);
    keep(c, st);
    return st;
}
