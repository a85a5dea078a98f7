/* What a dataflow makes of topics with several partitions, beside what it makes of topics with one
 * that hold the same rows. Random dataflows over one to three sources come and go, rows flow,
 * epochs abort, the engine is killed. By class (docs/time.md):
 *  E1  rows of several partitions never meet: each partition's bytes are those of its rows alone;
 *  E2  a key's rows come from one partition: the same for each key;
 *  E3  they come from any: the same rows in any order where order does not matter, the same bytes
 *      where the input is read `ordered`.
 * And windows over late rows, against sums made here. */
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { E1 = 1, E2, E3 };
enum { TOPICS = 3, PARTS = 8, FLOWS = 4, KEYS = 12, LATE = 50, FAR = 100000 };
enum how { BY_PARTITION, BY_KEY, ANY_ORDER, SAME };
#define T0 WORLD_LOG_TIME

struct pair { /* a dataflow over the wide topics, and over those of one partition */
    struct world_flow *flow[2];
    enum how how;
    bool drains; /* it can be drained: no window below a window */
};
struct seq {
    struct world w;
    int class, topics;
    uint32_t parts[TOPICS];
    int64_t clock; /* event time of the last row: all differ */
    struct pair pair[FLOWS];
    int npairs;
    int order[FLOWS]; /* those that run */
    int nrunning;
};

static uint64_t rng, seed;
static uint32_t rnd(uint32_t n) {
    return (uint32_t)(test_random(&rng) % n);
}

/* ---- random dataflows: '@' stands for w, or s where topics have one partition ---- */

static const char *const plain[] = {
    "\"filter\",\"config\":{\"where\":\"k <> 'k03'\"}",
    "\"filter\",\"config\":{\"where\":\"v is null or v < 80\"}",
    "\"range_filter\",\"config\":{\"ranges\":{\"v\":[10,90]},\"mode\":\"null\"}",
    "\"range_filter\",\"config\":{\"ranges\":{\"v\":[5,95]},\"mode\":\"drop\"}",
    "\"project\",\"config\":{\"fields\":{\"k\":\"k\",\"p\":\"p\",\"t\":\"t\",\"v\":\"v + 1\"}}",
};
static const char *const keeps[] = { /* order matters */
                                     "\"interpolate\",\"config\":{\"fields\":[\"v\"],\"window\":3}",
                                     "\"kalman\",\"config\":{\"fields\":[\"v\"]}",
                                     "\"block_average\",\"config\":{\"fields\":[\"v\"],\"window\":"
                                     "3}",
                                     "\"sliding_linear_regression\",\"config\":{\"field\":\"v\","
                                     "\"train\":4,\"predict\":2}",
                                     "\"lag\",\"config\":{\"fields\":[\"v\"],\"rows\":2}",
                                     "\"dedup\",\"config\":{\"fields\":[\"v\"],\"rows\":30}",
                                     "\"top\",\"config\":{\"value\":\"v\",\"k\":3}",
                                     "\"quantile\",\"config\":{\"fields\":[\"v\"],\"k\":16}",
                                     "\"second_moment\",\"config\":{\"fields\":[\"v\"],\"method\":"
                                     "\"slots\"}"
};
/* Of a set of rows, in no order. */
static const char *const sets[] = {
    "\"top\",\"config\":{\"value\":\"v\",\"k\":3,\"every\":\"200ms\"}",
    "\"top\",\"config\":{\"value\":\"v\",\"k\":2,\"order\":\"least\",\"every\":\"100ms\",\"size\":"
    "\"250ms\"}",
    "\"distinct_count\",\"config\":{\"fields\":[\"v\"],\"method\":\"hll\",\"k\":6,\"every\":"
    "\"300ms\"}",
    "\"second_moment\",\"config\":{\"fields\":[\"v\"],\"width\":16,\"every\":\"100ms\",\"size\":"
    "\"400ms\"}",
};
static const char *const sums[] = {
    "\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\",\"s\":\"sum(v)\"},"
    "\"every\":\"200ms\"}",
    "\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\",\"m\":\"mean(v)\"},"
    "\"every\":\"150ms\",\"size\":\"450ms\"}",
};
#define PICK(list) (list)[rnd(sizeof(list) / sizeof *(list))]

struct draft {
    struct sbuf text;
    int n;
    char id[TOPICS][16]; /* what has been made of each source */
    int sources;
};

static void add(struct draft *d, const char *what, const char *inputs) {
    sbuf_printf(&d->text, "{\"id\":\"t%d\",\"type\":%s,%s},", d->n++, what, inputs);
}

static void add_below(struct draft *d, const char *what, const char *from, const char *more) {
    char inputs[128];
    snprintf(inputs, sizeof inputs, "\"inputs\":[{\"from\":\"%s\"%s}]", from, more);
    add(d, what, inputs);
}

/* Below all sources. */
static void add_merge(struct draft *d, const char *what, const char *more) {
    struct sbuf o = { 0 };
    sbuf_adds(&o, "\"inputs\":[");
    for (int i = 0; i < d->sources; i++)
        sbuf_printf(&o, "%s{\"from\":\"%s\"%s}", i ? "," : "", d->id[i], more);
    sbuf_adds(&o, "]");
    add(d, what, sbuf_str(&o));
    sbuf_free(&o);
}

static const char *last(const struct draft *d) {
    static char id[16];
    snprintf(id, sizeof id, "t%d", d->n - 1);
    return id;
}

/* Sources, each with a filter that drops the rows which only move time. */
static void add_sources(struct seq *q, struct draft *d) {
    d->sources = q->class == E1 ? 1 + (int)rnd(2) : 1 + (int)rnd((uint32_t)q->topics);
    int first = (int)rnd((uint32_t)q->topics);
    if (d->sources > q->topics ||
        (q->class == E1 && q->parts[first] != q->parts[(first + 1) % q->topics]))
        d->sources = 1; /* they would have to be gathered */
    for (int i = 0; i < d->sources; i++) {
        char what[400];
        snprintf(what, sizeof what,
                 "\"source\",\"config\":{\"topic\":\"@%d\",\"format\":\"json\",\"schema\":{\"k\":"
                 "\"string\",\"p\":\"i64\",\"t\":\"i64\",\"v\":\"f64\"},\"time\":{\"field\":\"t\","
                 "\"unit\":\"ms\"},\"lateness\":\"%dms\"}",
                 (first + i) % q->topics, rnd(2) ? 0 : LATE);
        add(d, what, "\"inputs\":[]");
        add_below(d, "\"filter\",\"config\":{\"where\":\"v is null or v < 500\"}", last(d), "");
        for (uint32_t k = rnd(3); k > 0; k--)
            add_below(d, PICK(plain), last(d), "");
        memcpy(d->id[i], last(d), sizeof d->id[i]);
    }
}

static enum how make_e1(struct draft *d) {
    add_merge(d, PICK(plain), "");
    if (rnd(2)) { /* memory of each partition's own: here a flag, there a key */
        char inputs[128];
        snprintf(inputs, sizeof inputs, "#\"inputs\":[{\"from\":\"%s\",\"by\":[\"p\"]}]", last(d));
        add(d, keeps[0], inputs);
    }
    return BY_PARTITION;
}

static enum how make_e2(struct draft *d, bool *drains) {
    if (rnd(3) == 0) {
        add_merge(d, keeps[0], ",\"by\":[\"k\"]");
        if (rnd(2))
            add_below(d, PICK(plain), last(d), "");
        if (rnd(2))
            add_below(d, PICK(keeps), last(d), ",\"by\":[\"k\"]");
    } else if (rnd(2)) {
        add_merge(d, PICK(keeps), ",\"by\":[\"k\"]");
    } else {
        add_merge(d, PICK(sums), ",\"by\":[\"k\"]");
        *drains = rnd(3) != 0;
        if (!*drains)
            add_below(d,
                      "\"window_aggregate\",\"config\":{\"aggregate\":{\"x\":\"sum(n)\"},"
                      "\"every\":\"1s\"}",
                      last(d), ",\"by\":[\"k\"]");
    }
    return BY_KEY;
}

static enum how make_e3(struct draft *d, bool *drains) {
    switch (rnd(7)) {
    case 0:
        add_merge(d, PICK(plain), "");
        return ANY_ORDER;
    case 6:
        add_merge(d, PICK(sets), rnd(2) ? ",\"by\":[\"k\"]" : "");
        return ANY_ORDER;
    case 1:
        add_merge(d, PICK(sums), "");
        return ANY_ORDER;
    case 2:
        add_merge(d, PICK(sums), ",\"by\":[\"k\"]");
        *drains = rnd(2);
        if (!*drains)
            add_below(d,
                      "\"window_aggregate\",\"config\":{\"aggregate\":{\"x\":\"sum(n)\",\"c\":"
                      "\"count()\"},\"every\":\"1s\"}",
                      last(d), "");
        return ANY_ORDER;
    case 3:
        add_merge(d, "\"distinct_count\",\"config\":{\"fields\":[\"k\"]}", ",\"ordered\":true");
        return SAME;
    case 4:
        add_merge(d, PICK(keeps), ",\"by\":[\"k\"],\"ordered\":true");
        return BY_KEY;
    default:
        add_merge(d, PICK(keeps), ",\"ordered\":true");
        return SAME;
    }
}

/* One of the two dataflows that a draft stands for. */
static char *variant(const struct draft *d, char letter) {
    struct sbuf o = { 0 };
    for (const char *p = d->text.p; *p; p++)
        if (*p == '#')
            sbuf_adds(&o, letter == 'w' ? "\"per_partition\":true," : "");
        else
            sbuf_add(&o, *p == '@' ? &letter : p, 1);
    char *text = strdup(sbuf_str(&o));
    assert_non_null(text);
    sbuf_free(&o);
    if (letter == 'w') { /* with its own memory it needs no key */
        char *p = strstr(text, ",\"by\":[\"p\"]");
        if (p)
            memmove(p, p + strlen(",\"by\":[\"p\"]"), strlen(p + strlen(",\"by\":[\"p\"]")) + 1);
    }
    return text;
}

static void submit(struct seq *q) {
    struct draft d = { 0 };
    int number = q->npairs;
    struct pair *p = &q->pair[q->npairs++];
    p->drains = true;
    sbuf_printf(&d.text, "{\"braid\":1,\"name\":\"@f%d\",\"tasks\":[", number);
    add_sources(q, &d);
    p->how = q->class == E1   ? make_e1(&d)
             : q->class == E2 ? make_e2(&d, &p->drains)
                              : make_e3(&d, &p->drains);
    sbuf_printf(&d.text,
                "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"@f%d\",\"format\":"
                "\"json\"},\"inputs\":[\"%s\"]}]}",
                number, last(&d));
    sbuf_str(&d.text);
    for (int i = 0; i < 2; i++) {
        char *text = variant(&d, i ? 's' : 'w');
        if (rnd(4) == 0)
            executor_inject_abort(q->w.x);
        world_submit(&q->w, text);
        free(text);
    }
    q->order[q->nrunning++] = number;
    sbuf_free(&d.text);
}

static struct world_flow *flow_of(struct seq *q, int number, char letter) {
    char name[16];
    snprintf(name, sizeof name, "%cf%d", letter, number);
    for (int i = 0; i < q->w.nflows; i++)
        if (strcmp(q->w.flow[i].name, name) == 0)
            return &q->w.flow[i];
    return NULL;
}

static void drop(struct seq *q) {
    int at = (int)rnd((uint32_t)q->nrunning), number = q->order[at];
    bool drain = q->pair[number].drains && rnd(2);
    q->order[at] = q->order[--q->nrunning];
    for (int i = 0; i < 2; i++) {
        if (rnd(4) == 0)
            executor_inject_abort(q->w.x);
        world_remove(&q->w, flow_of(q, number, i ? 's' : 'w'), drain);
    }
}

/* ---- rows ---- */

/* Rows for both kinds of topics, appended part by part. */
struct rows {
    struct sbuf one[TOPICS], wide[TOPICS][PARTS];
};

static void row(struct seq *q, struct rows *r, int topic, uint32_t part, const char *k,
                const char *v) {
    char text[128];
    snprintf(text, sizeof text, "{\"k\":\"%s\",\"p\":%u,\"t\":%lld,\"v\":%s}\n", k, part,
             (long long)q->clock, v);
    sbuf_adds(&r->one[topic], text);
    sbuf_adds(&r->wide[topic][part], text);
}

static void append(struct seq *q, struct rows *r) {
    char name[16];
    for (int t = 0; t < q->topics; t++) {
        snprintf(name, sizeof name, "s%d", t);
        if (r->one[t].len)
            world_append(&q->w, name, sbuf_str(&r->one[t]));
        sbuf_free(&r->one[t]);
        name[0] = 'w';
        for (uint32_t p = 0; p < q->parts[t]; p++) {
            if (r->wide[t][p].len)
                world_append_to(&q->w, name, p, sbuf_str(&r->wide[t][p]));
            sbuf_free(&r->wide[t][p]);
        }
    }
}

static void flow_on(struct seq *q) {
    struct rows r = { 0 };
    for (uint32_t n = 1 + rnd(60); n > 0; n--) {
        int t = (int)rnd((uint32_t)q->topics);
        uint32_t key = rnd(KEYS);
        char k[8], v[16];
        q->clock += 1 + rnd(20);
        snprintf(k, sizeof k, "k%02u", key);
        snprintf(v, sizeof v, rnd(10) ? "%u.%u" : "null", rnd(100), rnd(10));
        row(q, &r, t, q->class == E3 ? rnd(q->parts[t]) : key % q->parts[t], k, v);
    }
    append(q, &r);
}

/* A row in every partition that moves time past all rows so far: nothing waits any more, and both
 * sides stand at the same point, where dataflows may come and go. */
static void sync(struct seq *q, int64_t ahead) {
    struct rows r = { 0 };
    q->clock += ahead;
    for (int t = 0; t < q->topics; t++)
        for (uint32_t p = 0; p < q->parts[t]; p++)
            row(q, &r, t, p, "time", "1000");
    append(q, &r);
    executor_settle(q->w.x);
}

/* ---- comparing ---- */

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct line {
    char *s;
    size_t at;
};
static int by_key(const void *a, const void *b) {
    const struct line *x = a, *y = b;
    const char *p = strstr(x->s, "\"k\":"), *q = strstr(y->s, "\"k\":");
    int c = strncmp(p, q, 9);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

/* Splits in place; how many. */
static size_t split(struct sbuf *all, char ***out) {
    size_t n = 0, cap = 64;
    char **v = malloc(cap * sizeof *v);
    assert_non_null(v);
    for (char *s = (char *)sbuf_str(all), *nl; (nl = strchr(s, '\n')); s = nl + 1) {
        *nl = '\0';
        if (n == cap) {
            v = realloc(v, (cap *= 2) * sizeof *v);
            assert_non_null(v);
        }
        v[n++] = s;
    }
    *out = v;
    return n;
}

static void sorted(struct sbuf *all, enum how how, struct sbuf *out) {
    char **v;
    size_t n = split(all, &v);
    if (how == ANY_ORDER)
        qsort(v, n, sizeof *v, by_bytes);
    if (how == BY_KEY) {
        struct line *l = calloc(n + 1, sizeof *l);
        assert_non_null(l);
        for (size_t i = 0; i < n; i++)
            l[i] = (struct line){ v[i], i };
        qsort(l, n, sizeof *l, by_key);
        for (size_t i = 0; i < n; i++)
            v[i] = l[i].s;
        free(l);
    }
    for (size_t i = 0; i < n; i++)
        sbuf_printf(out, "%s\n", v[i]);
    free(v);
}

static void only_partition(struct sbuf *all, uint32_t part, struct sbuf *out) {
    char mark[24], **v;
    size_t n = split(all, &v);
    snprintf(mark, sizeof mark, "\"p\":%u,", part);
    for (size_t i = 0; i < n; i++)
        if (strstr(v[i], mark))
            sbuf_printf(out, "%s\n", v[i]);
    free(v);
}

static void same(struct seq *q, int number, struct sbuf *wide, struct sbuf *one, uint64_t *rows) {
    const char *x = sbuf_str(wide), *y = sbuf_str(one);
    size_t i = 0;
    for (; x[i] && x[i] == y[i]; i++)
        *rows += x[i] == '\n';
    if (x[i] || y[i]) {
        for (int k = 0; k < q->npairs; k++)
            print_message("%s\n", flow_of(q, k, 'w')->text);
        fail_msg("BRAID_SEED=%llu: class E%d, parts %u %u %u: f%d differs at byte %zu of %zu and "
                 "%zu:\n%.200s\n--\n%.200s",
                 (unsigned long long)seed, q->class, q->parts[0], q->parts[1], q->parts[2], number,
                 i, wide->len, one->len, x + (i > 100 ? i - 100 : 0), y + (i > 100 ? i - 100 : 0));
    }
    sbuf_free(wide);
    sbuf_free(one);
}

static void compare(struct seq *q, int number, uint64_t *rows) {
    struct sbuf wide = { 0 }, one = { 0 }, a = { 0 }, b = { 0 };
    struct log_topic_info info;
    struct err e = ERR_INIT;
    char name[16];
    snprintf(name, sizeof name, "wf%d", number);
    assert_int_equal(log_topic_info(q->w.log, name, &info, &e), 0);
    for (uint32_t p = 0; p < info.conf.partitions; p++) {
        world_read_part(&q->w, name, p, &wide);
        if (q->pair[number].how != BY_PARTITION)
            continue;
        name[0] = 's';
        world_read(&q->w, name, &one);
        name[0] = 'w';
        only_partition(&one, p, &b);
        same(q, number, &wide, &b, rows);
        sbuf_free(&one);
    }
    if (q->pair[number].how == BY_PARTITION)
        return;
    name[0] = 's';
    world_read(&q->w, name, &one);
    sorted(&wide, q->pair[number].how, &a);
    sorted(&one, q->pair[number].how, &b);
    same(q, number, &a, &b, rows);
    sbuf_free(&wide);
    sbuf_free(&one);
}

/* ---- sequences ---- */

static void open_seq(struct seq *q, int class) {
    static const uint32_t parts[] = { 1, 3, 8 }, batches[] = { 1, 37, 1024 };
    uint32_t lanes = 1 + rnd(3), batch = batches[rnd(3)];
    memset(q, 0, sizeof *q);
    q->class = class;
    q->clock = T0;
    q->topics = 1 + (int)rnd(TOPICS);
    world_open_conf(&q->w, &(struct world_conf){ .batch_rows = batch, .lanes = lanes });
    for (int t = 0; t < q->topics; t++) {
        char name[16];
        q->parts[t] = t && rnd(2) ? q->parts[0] : parts[rnd(3)];
        snprintf(name, sizeof name, "w%d", t);
        world_topic_parts(&q->w, name, q->parts[t]);
        name[0] = 's';
        world_topic_parts(&q->w, name, 1);
    }
}

static void sequence(int class, uint64_t *rows) {
    static struct seq q;
    open_seq(&q, class);
    submit(&q);
    for (uint32_t n = 6 + rnd(8); n > 0; n--) {
        flow_on(&q);
        if (rnd(4) == 0)
            executor_inject_abort(q.w.x);
        for (uint32_t i = rnd(5); i > 0; i--)
            executor_step(q.w.x);
        if (rnd(10) == 0)
            world_restart(&q.w);
        if (rnd(3))
            continue;
        sync(&q, LATE + 10);
        if (q.nrunning && rnd(3) == 0)
            drop(&q);
        else if (q.npairs < FLOWS)
            submit(&q);
    }
    sync(&q, FAR);
    for (int i = 0; i < q.npairs; i++)
        compare(&q, i, rows);
    world_close(&q.w);
}

static void run_class(int class, int sequences) {
    uint64_t rows = 0;
    int n = getenv("BRAID_SEED") ? 1 : test_scale(sequences);
    for (int i = 0; i < n; i++) {
        rng = seed = test_seed((uint64_t) class * 1000000 + (uint64_t)i);
        sequence(class, &rows);
    }
    print_message("class E%d: %d sequences, %llu rows compared\n", class, n,
                  (unsigned long long)rows);
    assert_true(rows > 20 * (uint64_t)n);
}

static void test_e1(void **state) {
    (void)state;
    run_class(E1, 250);
}
static void test_e2(void **state) {
    (void)state;
    run_class(E2, 400);
}
static void test_e3(void **state) {
    (void)state;
    run_class(E3, 400);
}

/* ---- late rows: class E3 against sums made here ---- */

enum { WINDOWS = 400, WINDOW_MS = 100 };
struct late {
    struct world w;
    uint32_t parts;
    int64_t lateness, clock;
    int64_t max[PARTS]; /* latest event time of each partition; TIME_MIN: none */
    int64_t n[KEYS][WINDOWS], sum[KEYS][WINDOWS];
    uint64_t late;
};

/* The partition's own watermark before the row decides, whatever the others do. */
static void late_row(struct late *l, struct sbuf *o, uint32_t part) {
    uint32_t k = rnd(KEYS), v = rnd(1000), back = rnd(rnd(4) ? 60 : 500);
    l->clock += rnd(8);
    int64_t t = l->clock > back ? l->clock - back : 0, wm = TIME_MIN;
    if (l->max[part] != TIME_MIN)
        wm = l->max[part] - l->lateness;
    sbuf_printf(o, "{\"k\":\"k%02u\",\"p\":%u,\"t\":%lld,\"v\":%u}\n", k, part, (long long)(T0 + t),
                v);
    l->max[part] = t > l->max[part] ? t : l->max[part];
    int64_t at = t / WINDOW_MS;
    assert_in_range(at, 0, WINDOWS - 1);
    if (wm >= (at + 1) * WINDOW_MS) {
        l->late++;
        return;
    }
    l->n[k][at]++;
    l->sum[k][at] += v;
}

static int64_t number_after(const char *s, const char *name) {
    const char *p = strstr(s, name);
    assert_non_null(p);
    return strtoll(p + strlen(name), NULL, 10);
}

static void late_compare(struct late *l) {
    struct sbuf all = { 0 };
    struct log_topic_info info;
    struct err e = ERR_INIT;
    char **v;
    assert_int_equal(log_topic_info(l->w.log, "out", &info, &e), 0);
    for (uint32_t p = 0; p < info.conf.partitions; p++)
        world_read_part(&l->w, "out", p, &all);
    for (size_t i = 0, n = split(&all, &v); i < n; i++) {
        int64_t k = number_after(v[i], "\"k\":\"k");
        int64_t at = (number_after(v[i], "\"window_start\":") - T0) / WINDOW_MS;
        assert_in_range(k, 0, KEYS - 1);
        assert_in_range(at, 0, WINDOWS - 1);
        if (number_after(v[i], "\"n\":") != l->n[k][at] ||
            number_after(v[i], "\"s\":") != l->sum[k][at])
            fail_msg("BRAID_SEED=%llu: %u partitions, lateness %lld: %s, but it must be %lld, %lld",
                     (unsigned long long)seed, l->parts, (long long)l->lateness, v[i],
                     (long long)l->n[k][at], (long long)l->sum[k][at]);
        l->n[k][at] = l->sum[k][at] = 0; /* a second one will differ */
    }
    free(v);
    sbuf_free(&all);
    for (int k = 0; k < KEYS; k++)
        for (int at = 0; at < WINDOWS; at++)
            if (l->n[k][at])
                fail_msg("BRAID_SEED=%llu: %u partitions: no window %d of k%02d",
                         (unsigned long long)seed, l->parts, at, k);
}

static void count_late(void *arg, struct task *t) {
    struct task_stats s;
    task_stats(t, &s);
    *(uint64_t *)arg += s.counts.late;
}
static void visit_late(void *arg, struct exec *ex) {
    exec_each(ex, count_late, arg);
}

static void late_sequence(uint64_t *late) {
    static struct late l;
    static const uint32_t parts[] = { 1, 3, 8 }, batches[] = { 1, 37, 1024 };
    char text[1000];
    uint64_t counted = 0;
    memset(&l, 0, sizeof l);
    l.parts = parts[rnd(3)];
    l.lateness = rnd(120);
    for (int p = 0; p < PARTS; p++)
        l.max[p] = TIME_MIN;
    world_open_conf(&l.w,
                    &(struct world_conf){ .lanes = 1 + rnd(3), .batch_rows = batches[rnd(3)] });
    world_topic_parts(&l.w, "in", l.parts);
    snprintf(text, sizeof text,
             "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"a\",\"type\":\"source\",\"config\":{"
             "\"topic\":\"in\",\"format\":\"json\",\"schema\":{\"k\":\"string\",\"p\":\"i64\","
             "\"t\":\"i64\",\"v\":\"i64\"},\"time\":{\"field\":\"t\",\"unit\":\"ms\"},"
             "\"lateness\":\"%lldms\"}},{\"id\":\"w\",\"type\":\"window_aggregate\",\"config\":{"
             "\"aggregate\":{\"n\":\"count()\",\"s\":\"sum(v)\"},\"every\":\"%dms\"},"
             "\"inputs\":[{\"from\":\"a\",\"by\":[\"k\"]%s}]},{\"id\":\"o\",\"type\":\"sink\","
             "\"config\":{\"topic\":\"out\",\"format\":\"json\"},\"inputs\":[\"w\"]}]}",
             (long long)l.lateness, WINDOW_MS, rnd(2) ? ",\"ordered\":true" : "");
    world_submit(&l.w, text);
    for (uint32_t n = 5 + rnd(10); n > 0; n--) {
        struct sbuf rows[PARTS] = { 0 };
        for (uint32_t i = 1 + rnd(100); i > 0; i--) {
            uint32_t p = rnd(l.parts);
            late_row(&l, &rows[p], p);
        }
        for (uint32_t p = 0; p < l.parts; p++) {
            if (rows[p].len)
                world_append_to(&l.w, "in", p, sbuf_str(&rows[p]));
            sbuf_free(&rows[p]);
        }
        if (rnd(3) == 0)
            executor_inject_abort(l.w.x);
        for (uint32_t i = rnd(4); i > 0; i--)
            executor_step(l.w.x);
        if (rnd(8) == 0)
            world_restart(&l.w);
    }
    l.clock += 1000;
    for (uint32_t p = 0; p < l.parts; p++) { /* fires everything; its own window stays open */
        char row[128];
        snprintf(row, sizeof row, "{\"k\":\"k00\",\"p\":0,\"t\":%lld,\"v\":0}\n",
                 (long long)(T0 + l.clock));
        world_append_to(&l.w, "in", p, row);
    }
    executor_settle(l.w.x);
    late_compare(&l);
    executor_visit(l.w.x, visit_late, &counted);
    assert_int_equal(counted, l.late);
    *late += l.late;
    world_close(&l.w);
}

static void test_late(void **state) {
    uint64_t late = 0;
    int n = getenv("BRAID_SEED") ? 1 : test_scale(200);
    (void)state;
    for (int i = 0; i < n; i++) {
        rng = seed = test_seed(4000000 + (uint64_t)i);
        late_sequence(&late);
    }
    print_message("class E3, late rows: %d sequences, %llu rows late\n", n,
                  (unsigned long long)late);
    assert_true(getenv("BRAID_SEED") || late > (uint64_t)n);
}

/* ---- joining an exchange with rows on their way ---- */

static int64_t at_join;
static void add_position(void *arg, struct exec *ex) {
    (void)arg;
    for (int i = 0; i < exec_sources(ex); i++)
        if (strcmp(task_def(exec_source(ex, i))->op->name, "read") == 0)
            at_join += task_position(exec_source(ex, i));
}
static void note_join(struct world *w, const struct change *ch, struct exec *ex) {
    (void)ch;
    (void)ex;
    at_join = 0;
    executor_visit(w->x, add_position, NULL);
}

#define JOIN(NAME, TYPE, CONFIG, MORE)                                                             \
    "{\"braid\":1,\"name\":\"" NAME "\",\"tasks\":[{\"id\":\"a\",\"type\":\"source\",\"config\":{" \
    "\"topic\":\"in\",\"format\":\"csv\",\"schema\":{\"t\":\"i64\"},\"time\":{\"field\":\"t\","    \
    "\"unit\":\"ms\"}}},{\"id\":\"b\",\"type\":\"" TYPE "\",\"config\":" CONFIG ",\"inputs\":[{"   \
    "\"from\":\"a\"" MORE "}]},{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"" NAME      \
    "\",\"format\":\"json\"},\"inputs\":[\"b\"]}]}"

/* Two dataflows that read one exchange in two ways. The second one sees the rows from its cut on,
 * neither those of before that are still on their way, nor fewer. */
static void test_join(void **state) {
    enum { ROWS = 300 };
    (void)state;
    for (int i = test_scale(60); i > 0; i--) {
        struct world w;
        struct sbuf out = { 0 };
        int64_t n = 0;
        rng = seed = test_seed(5000000 + (uint64_t)i);
        world_open_conf(&w, &(struct world_conf){ .lanes = 2, .batch_rows = 16 });
        world_topic_parts(&w, "in", 3);
        w.at_cut = note_join;
        world_submit(&w, JOIN("x", "distinct_count", "{\"fields\":[\"t\"]}", ",\"ordered\":true"));
        for (int half = 0; half < 2; half++) {
            for (uint32_t p = 0; p < 3; p++) {
                struct sbuf rows = { 0 };
                for (int k = 0; k < ROWS / 2; k++)
                    sbuf_printf(&rows, "%lld\n", (long long)T0 + half * 1000 + k);
                world_append_to(&w, "in", p, sbuf_str(&rows));
                sbuf_free(&rows);
            }
            if (half)
                break;
            for (uint32_t k = rnd(10); k > 0; k--)
                executor_step(w.x);
            if (rnd(2))
                executor_inject_abort(w.x);
            world_submit(&w, JOIN("y", "window_aggregate",
                                  "{\"aggregate\":{\"n\":\"count()\"},\"every\":\"1s\"}", ""));
        }
        for (uint32_t p = 0; p < 3; p++)
            world_append_to(&w, "in", p, "1700000005000\n");
        executor_settle(w.x);
        world_read(&w, "y", &out);
        for (const char *s = sbuf_str(&out); (s = strstr(s, "\"n\":")); s++)
            n += strtoll(s + 4, NULL, 10);
        if (n != 3 * ROWS - at_join)
            fail_msg("BRAID_SEED=%llu: %lld rows of %d came, the cut was at %lld",
                     (unsigned long long)seed, (long long)n, 3 * ROWS, (long long)at_join);
        sbuf_free(&out);
        world_close(&w);
    }
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e1),   cmocka_unit_test(test_e2),   cmocka_unit_test(test_e3),
        cmocka_unit_test(test_late), cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
