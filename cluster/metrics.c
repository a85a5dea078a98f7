#include "cluster/metrics.h"
#include "engine/clock.h"
#include "engine/num.h"
#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 1 << 20 };

static const struct {
    const char *name;
    size_t offset;
} stage_names[] = {
    { "braid_task_rows_in_total", offsetof(struct stage_metrics, rows_in) },
    { "braid_task_rows_out_total", offsetof(struct stage_metrics, rows_out) },
    { "braid_task_rows_filtered_total", offsetof(struct stage_metrics, filtered) },
    { "braid_task_rows_rejected_total", offsetof(struct stage_metrics, rejected) },
    { "braid_task_rows_late_total", offsetof(struct stage_metrics, late) },
    { "braid_task_busy_nanoseconds_total", offsetof(struct stage_metrics, busy_ns) },
    { "braid_task_state_keys", offsetof(struct stage_metrics, keys) },
    { "braid_task_state_bytes", offsetof(struct stage_metrics, bytes) },
    { "braid_source_lag_records", offsetof(struct stage_metrics, lag) },
};
static const struct {
    const char *name;
    size_t offset;
} process_names[] = {
    { "braid_dataflows", offsetof(struct metrics, dataflows) },
    { "braid_tasks_submitted", offsetof(struct metrics, submitted) },
    { "braid_tasks_running", offsetof(struct metrics, running) },
    { "braid_cpu_milliseconds_total", offsetof(struct metrics, cpu_ms) },
    { "braid_resident_bytes", offsetof(struct metrics, resident) },
    { "braid_start_time_milliseconds", offsetof(struct metrics, start_ms) },
};

struct word {
    const char *p;
    size_t len;
};
static bool word_is(struct word w, const char *s) {
    return w.len == strlen(s) && memcmp(w.p, s, w.len) == 0;
}

/* The value of label `name` in {a="…",b="…"}. */
static struct word label(struct word labels, const char *name) {
    size_t n = strlen(name);
    const char *end = labels.p + labels.len;
    for (const char *p = labels.p; p + n + 2 < end; p++) {
        if ((p > labels.p && p[-1] != ',') || memcmp(p, name, n) != 0 || p[n] != '=' ||
            p[n + 1] != '"')
            continue;
        const char *from = p + n + 2, *to = memchr(from, '"', (size_t)(end - from));
        if (to)
            return (struct word){ from, (size_t)(to - from) };
    }
    return (struct word){ "", 0 };
}

/* The stage's entry; stages come in the same order for every metric, so `hint` mostly is it. */
static struct stage_metrics *stage_of(struct metrics *m, uint64_t instance, int *hint, int *cap) {
    if (*hint < m->n && m->stage[*hint].instance == instance)
        return &m->stage[(*hint)++];
    for (int i = 0; i < m->n; i++)
        if (m->stage[i].instance == instance) {
            *hint = i + 1;
            return &m->stage[i];
        }
    if (m->n == STAGES_MAX)
        return NULL;
    if (m->n == *cap) {
        *cap = *cap ? *cap * 2 : 64;
        struct stage_metrics *v = ARENA_ARRAY(&m->arena, struct stage_metrics, *cap);
        if (m->n)
            memcpy(v, m->stage, (size_t)m->n * sizeof *v);
        m->stage = v;
    }
    struct stage_metrics *s = &m->stage[m->n++];
    *s = (struct stage_metrics){ .instance = instance, .lag = -1, .type = "", .label = "" };
    *hint = m->n;
    return s;
}

static void stage_line(struct metrics *m, size_t offset, struct word labels, int64_t value,
                       int *hint, int *cap) {
    struct word id = label(labels, "instance"), type = label(labels, "type"),
                name = label(labels, "label");
    int64_t instance;
    if (id.len == 0 || num_i64_whole(id.p, id.p + id.len, &instance) < 0)
        return;
    struct stage_metrics *s = stage_of(m, (uint64_t)instance, hint, cap);
    if (!s)
        return;
    if (!*s->label && name.len) {
        s->type = arena_strndup(&m->arena, type.p, type.len);
        s->label = arena_strndup(&m->arena, name.p, name.len);
    }
    *(int64_t *)(void *)((char *)s + offset) = value;
}

static void metric_line(struct metrics *m, const char *p, const char *end, int *hint, int *cap) {
    const char *space = memrchr(p, ' ', (size_t)(end - p));
    const char *brace = memchr(p, '{', (size_t)(end - p));
    int64_t value;
    if (p == end || *p == '#' || !space || num_i64_whole(space + 1, end, &value) < 0)
        return;
    struct word name = { p, (size_t)((brace ? brace : space) - p) };
    struct word labels = { brace ? brace + 1 : p, brace ? (size_t)(space - brace) - 1 : 0 };
    for (size_t i = 0; i < sizeof stage_names / sizeof *stage_names; i++)
        if (brace && word_is(name, stage_names[i].name)) {
            stage_line(m, stage_names[i].offset, labels, value, hint, cap);
            return;
        }
    for (size_t i = 0; i < sizeof process_names / sizeof *process_names; i++)
        if (!brace && word_is(name, process_names[i].name))
            *(int64_t *)(void *)((char *)m + process_names[i].offset) = value;
}

static int by_instance(const void *a, const void *b) {
    const struct stage_metrics *x = a, *y = b;
    return (x->instance > y->instance) - (x->instance < y->instance);
}

void metrics_parse(struct metrics *m, const char *text, size_t len) {
    const char *end = text + len;
    int hint = 0, cap = 0;
    *m = (struct metrics){ .taken_ns = clock_mono_ns() };
    for (const char *p = text; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        nl = nl ? nl : end;
        if (hint >= m->n)
            hint = 0;
        metric_line(m, p, nl, &hint, &cap);
        p = nl + 1;
    }
    if (m->n)
        qsort(m->stage, (size_t)m->n, sizeof *m->stage, by_instance);
}

const struct stage_metrics *metrics_find(const struct metrics *m, uint64_t instance) {
    struct stage_metrics key = { .instance = instance };
    return m->n ? bsearch(&key, m->stage, (size_t)m->n, sizeof key, by_instance) : NULL;
}

void metrics_free(struct metrics *m) {
    arena_free(&m->arena);
    *m = (struct metrics){ 0 };
}
