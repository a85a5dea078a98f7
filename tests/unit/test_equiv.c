/* Equivalence (DESIGN 6, class E1): random dataflows come and go while rows flow, epochs abort, the
 * engine is killed, or loses power (one sequence in four). At the end each dataflow's sink topics
 * hold exactly what a run of that dataflow alone, one row a tick, gives over the same rows:
 *  - `own`: fed from the dataflow's start;
 *  - `shared`: each task ignores rows before its instance's history_from (recorded at its graft);
 *    what still runs has the same row counters, too.
 * The same sequence with batches of 1 and of 1,024 rows leaves the same bytes in every topic. */
#include "cluster/dataset.h"
#include "engine/task.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FLOWS_MAX = 24, STEPS = 60, KEYS = 6, PLAIN = 2, SYS = 2, TOPICS = 3 };
static const char *const topic_names[TOPICS] = { "a", "b", "sys" };

/* Where an instance's links begin: the history of `shared`. */
struct seen {
    uint64_t instance;
    int64_t start; /* sources */
    int nlinks;
    int64_t since[16];
};
struct life {
    int64_t from[TOPICS];  /* positions of the sources at its submit */
    int64_t until[TOPICS]; /* positions of the sources at its removal; -1: lives */
    bool drained;
    uint64_t *removed; /* instances that went with it */
    int nremoved;
};
struct seq {
    uint64_t rng;
    struct world w;
    struct seen *seen;
    int nseen, cap;
    int serial;
    int64_t time;
    bool removing;
    struct world_flow *subject;
    struct life life[FLOWS_MAX];
    struct dataset *sys;
    bool
        settled; /* changes wait until all rows are processed: then cuts do not depend on batches */
};

static uint32_t rnd(struct seq *q, uint32_t n) {
    return (uint32_t)(test_random(&q->rng) % n);
}

/* ---- random dataflows ---- */

struct shape {
    const char *type;
    const char *config[4]; /* NULL-terminated choices */
    bool by, leaf;         /* leaf: its output has other fields */
};
static const struct shape shapes[] = {
    { "filter",
      { "{\"where\":\"x > 30\"}", "{\"where\":\"y is not null\"}", "{\"where\":\"k <> 'k3'\"}" },
      false,
      false },
    { "range_filter",
      { "{\"ranges\":{\"x\":[10,80]},\"mode\":\"null\"}",
        "{\"ranges\":{\"y\":[5,95]},\"mode\":\"drop\"}",
        "{\"ranges\":{\"x\":[20,80]},\"mode\":\"null\"}" },
      false,
      false },
    { "interpolate",
      { "{\"fields\":[\"x\",\"y\"],\"window\":3}", "{\"fields\":[\"x\"],\"window\":2}" },
      true,
      false },
    { "project",
      { "{\"fields\":{\"k\":\"k\",\"t\":\"t\",\"x\":\"x + 1\",\"y\":\"y\"}}",
        "{\"fields\":{\"k\":\"k\",\"t\":\"t\",\"x\":\"y\",\"y\":\"x * 2\"}}" },
      false,
      false },
    { "kalman", { "{\"fields\":[\"x\"]}", "{\"fields\":[\"x\",\"y\"]}" }, true, true },
    { "block_average",
      { "{\"fields\":[\"x\"],\"window\":4}", "{\"fields\":[\"x\"],\"window\":3}" },
      true,
      true },
    { "sliding_linear_regression", { "{\"field\":\"y\",\"train\":4,\"predict\":2}" }, true, true },
    { "distinct_count", { "{\"fields\":[\"k\"]}" }, false, true },
    { "window_aggregate",
      { "{\"aggregate\":{\"n\":\"count()\",\"s\":\"sum(x)\",\"m\":\"mean(y)\"},\"every\":"
        "\"100ms\"}",
        "{\"aggregate\":{\"n\":\"count()\",\"s\":\"stddev(x)\"},\"every\":\"50ms\",\"size\":"
        "\"150ms\"}",
        "{\"aggregate\":{\"f\":\"first(x)\",\"b\":\"max_by(x, y)\"},\"every\":\"100ms\","
        "\"lateness\":\"40ms\",\"late\":\"dead_letter\",\"early_every\":\"30ms\"}",
        "{\"aggregate\":{\"l\":\"last(y)\"},\"every\":\"200ms\",\"early_rows\":3}" },
      true,
      true },
    { "window_session",
      { "{\"aggregate\":{\"n\":\"count()\",\"l\":\"last(x)\"},\"gap\":\"40ms\",\"lateness\":"
        "\"30ms\"}",
        "{\"aggregate\":{\"s\":\"sum(x)\",\"hi\":\"max(y)\"},\"gap\":\"70ms\",\"max_length\":"
        "\"300ms\",\"late\":\"dead_letter\"}",
        "{\"aggregate\":{\"n\":\"count()\"},\"gap\":\"60ms\",\"early_every\":\"50ms\","
        "\"early_rows\":4}" },
      true,
      true },
    { "window_count",
      { "{\"aggregate\":{\"m\":\"mean(x)\",\"f\":\"first(y)\"},\"every\":3}",
        "{\"aggregate\":{\"d\":\"variance(x)\",\"b\":\"min_by(x, y)\"},\"every\":2,\"size\":5}" },
      true,
      true },
    { "window_global",
      { "{\"aggregate\":{\"n\":\"count()\",\"s\":\"sum(x)\"},\"every\":\"80ms\"}",
        "{\"aggregate\":{\"n\":\"count()\",\"lo\":\"min(y)\"},\"rows\":4,\"purge\":true}",
        "{\"aggregate\":{\"m\":\"mean(x)\"},\"every\":\"100ms\",\"rows\":5,\"at_end\":false}" },
      true,
      true },
    { "window_join",
      { "{\"size\":\"60ms\"}", "{\"size\":\"40ms\",\"type\":\"left\"}",
        "{\"size\":\"30ms\",\"type\":\"full\",\"lateness\":\"20ms\"}" },
      true,
      true },
    { "interval_join",
      { "{\"lower\":\"-10ms\",\"upper\":\"30ms\"}",
        "{\"lower\":\"5ms\",\"upper\":\"40ms\",\"type\":\"left\",\"late\":\"dead_letter\"}" },
      true,
      true },
    { "asof_join",
      { "{}", "{\"type\":\"left\",\"tolerance\":\"50ms\",\"lateness\":\"10ms\"}" },
      true,
      true },
    { "lookup_join",
      { "{\"type\":\"left\"}", "{\"version\":\"newest\"}", "{\"max_rows\":3}" },
      true,
      true },
    { "union", { "{}", "{\"fields\":\"common\"}" }, false, false },
    { "split",
      { "{\"ports\":{\"a\":\"x > 50\",\"b\":\"y > 30\"},\"default\":\"c\"}",
        "{\"ports\":{\"a\":\"x > y\",\"b\":\"x > 20\",\"c\":\"k = 'k2'\"},\"to\":\"all\"}" },
      false,
      false },
    { "route",
      { "{\"field\":\"k\",\"ports\":[\"k0\",\"k1\"],\"default\":\"k2\"}",
        "{\"field\":\"k\",\"ports\":[\"k0\",\"k1\",\"k2\"]}" },
      false,
      false },
    { "sample",
      { "{\"rate\":0.6,\"fields\":[\"k\",\"x\"]}", "{\"rate\":0.7,\"seed\":5}" },
      false,
      false },
    { "dedup",
      { "{\"within\":\"60ms\"}", "{\"rows\":3}",
        "{\"within\":\"90ms\",\"rows\":12,\"fields\":[\"t\"]}" },
      true,
      false },
    { "lag", { "{\"fields\":[\"x\"]}", "{\"fields\":[\"k\",\"y\"],\"rows\":3}" }, true, true },
    { "top",
      { "{\"value\":\"x\",\"k\":3}", "{\"value\":\"x - y\",\"k\":2,\"every\":\"100ms\"}",
        "{\"value\":\"y\",\"k\":1,\"order\":\"least\",\"every\":\"50ms\",\"size\":\"150ms\"}" },
      true,
      true },
    { "distinct_count",
      { "{\"fields\":[\"x\"],\"method\":\"hll\",\"k\":5}",
        "{\"fields\":[\"x\",\"k\"],\"method\":\"hll\",\"k\":4,\"every\":\"80ms\",\"size\":"
        "\"200ms\"}" },
      true,
      true },
    { "second_moment",
      { "{\"fields\":[\"k\"],\"width\":16,\"depth\":3}",
        "{\"fields\":[\"x\"],\"method\":\"slots\",\"slots\":4}",
        "{\"fields\":[\"k\"],\"width\":16,\"depth\":2,\"every\":\"60ms\",\"lateness\":\"20ms\"}" },
      false,
      true },
    { "quantile",
      { "{\"fields\":[\"x\"],\"k\":16,\"quantiles\":{\"m\":0.5}}",
        "{\"fields\":[\"x\",\"y\"],\"k\":16,\"every\":\"40ms\",\"size\":\"400ms\"}" },
      true,
      true },
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

/* The streams that task `id` makes, as inputs name them. Returns how many. */
static uint32_t streams_of(const struct shape *s, const char *id, char out[3][16]) {
    static const char *const ports[2][3] = { { "a", "b", "c" }, { "k0", "k1", "k2" } };
    bool split = strcmp(s->type, "split") == 0, route = strcmp(s->type, "route") == 0;
    for (int i = 0; i < 3; i++)
        snprintf(out[i], sizeof out[0], split || route ? "%.8s.%s" : "%.8s", id, ports[route][i]);
    return split || route ? 3 : 1;
}

static const char *pick_config(struct seq *q, const struct shape *s) {
    uint32_t n = 0;
    while (n < 4 && s->config[n])
        n++;
    return s->config[rnd(q, n)];
}

/* Keys are few, so the limits are tight and the time to live is short. */
static const char *pick_state(struct seq *q, const struct shape *s, const char *config) {
    static const char *const choices[] = {
        ",\"state\":{\"ttl\":\"20ms\"}",
        ",\"state\":{\"ttl\":\"150ms\"}",
        ",\"state\":{\"max_keys\":2,\"on_full\":\"evict_oldest\"}",
        ",\"state\":{\"ttl\":\"60ms\",\"max_keys\":2}",
        ",\"state\":{\"ttl\":\"100ms\",\"max_keys\":3,\"max_bytes\":300,\"on_full\":\"evict_"
        "oldest\"}",
    };
    bool limits = ops_find(s->type)->flags & OP_LIMITS && !strstr(config, "\"every\"");
    return limits && rnd(q, 2) ? choices[rnd(q, sizeof choices / sizeof *choices)] : "";
}

static void add_source(struct seq *q, struct sbuf *o, int i) {
    sbuf_printf(
        o,
        "{\"id\":\"in%d\",\"type\":\"source\",\"config\":{\"topic\":\"%s\",\"format\":\"csv\","
        "\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"x\":\"f64\",\"y\":\"f64\"},"
        "\"time\":{\"field\":\"t\",\"unit\":\"ms\"},\"lateness\":\"%s\"}}",
        i, topic_names[i], rnd(q, 3) ? "20ms" : "0s");
}

static void add_table(struct sbuf *o) {
    sbuf_adds(o, "{\"id\":\"tab\",\"type\":\"table\",\"config\":{\"file\":\"tests/corpus/tables/"
                 "keys.csv\",\"format\":\"csv\",\"header\":true,\"schema\":{\"k\":\"string\","
                 "\"limit\":\"f64\",\"name\":\"string\"}}},");
}

/* A chain or small DAG over one or two sources; every leaf and some inner tasks get a sink. */
static void make_flow(struct seq *q, struct sbuf *o) {
    int sources = rnd(q, 4) ? 1 : 2, first = sources == 1 ? (int)rnd(q, PLAIN) : 0;
    char parent[16][16];
    int n = 0, serial = q->serial++;
    o->len = 0;
    sbuf_printf(o, "{\"braid\":1,\"name\":\"f%d\",\"history\":\"%s\",\"tasks\":[", serial,
                rnd(q, 3) ? "shared" : "own");
    for (int i = 0; i < sources; i++) {
        add_source(q, o, first + i);
        sbuf_adds(o, ",");
        snprintf(parent[n++], sizeof parent[0], "in%d", first + i);
    }
    bool table = rnd(q, 3) == 0; /* read by no other task than lookup_join */
    if (table)
        add_table(o);
    int tasks = 1 + (int)rnd(q, 6), sinks = 0;
    for (int i = 0; i < tasks; i++) {
        const struct shape *s = &shapes[rnd(q, NSHAPES)];
        char id[16];
        snprintf(id, sizeof id, "t%d", i);
        const char *p1 = parent[rnd(q, (uint32_t)n)], *p2 = parent[rnd(q, (uint32_t)n)];
        const char *by = s->by ? ",\"by\":[\"k\"]" : "";
        bool named = strcmp(s->type, "union") == 0;
        bool two = strcmp(p1, p2) != 0 && (sources == 2 || rnd(q, 3) == 0);
        const char *config = pick_config(q, s);
        sbuf_printf(o, "{\"id\":\"%s\",\"type\":\"%s\",\"config\":%s%s,\"inputs\":[", id, s->type,
                    config, pick_state(q, s, config));
        const char *const *ports = op_in_ports(ops_find(s->type));
        if (table && ports[1] && strcmp(ports[1], "table") == 0)
            p2 = "tab";
        if (ports[1]) /* a join; a stream may be joined with itself */
            sbuf_printf(o, "{\"from\":\"%s\",\"to\":\"%s\"%s},{\"from\":\"%s\",\"to\":\"%s\"%s}",
                        p1, ports[0], by, p2, ports[1], by);
        else
            sbuf_printf(o, "{\"from\":\"%s\"%s%s}", p1, by, named ? ",\"to\":\"one\"" : "");
        if (two && !ports[1])
            sbuf_printf(o, ",{\"from\":\"%s\"%s%s}", p2, by, named ? ",\"to\":\"two\"" : "");
        sbuf_adds(o, "]},");
        char out[3][16];
        uint32_t outs = streams_of(s, id, out);
        if (s->leaf || rnd(q, 3) == 0 || i == tasks - 1)
            sbuf_printf(o,
                        "{\"id\":\"out%d\",\"type\":\"sink\",\"config\":{\"topic\":\"f%d-out%d\","
                        "\"format\":\"%s\"},\"inputs\":[\"%s\"]},",
                        sinks, serial, sinks, rnd(q, 2) ? "json" : "csv", out[rnd(q, outs)]),
                sinks++;
        for (uint32_t k = 0; k < outs; k++)
            if (!s->leaf && n < 16)
                memcpy(parent[n++], out[k], sizeof out[k]);
    }
    o->len--; /* the last comma */
    sbuf_adds(o, "]}");
}

/* One of the shipped RIoTBench dataflows under another name, with its own sink topics and now and
 * then another parameter. */
static void make_riot(struct seq *q, struct sbuf *o) {
    static const char *const names[] = { "etl-sys", "etl-sys-wide", "stats-sys" };
    const char *name = names[rnd(q, 3)];
    char path[64], now[16];
    struct file f;
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "dataflows/riotbench/%s.json", name);
    snprintf(now, sizeof now, "f%d", q->serial++);
    if (world_env.file(NULL, path, &f, &e) < 0)
        fail_msg("%s", e.text);
    const struct {
        const char *from, *to;
    } change[] = { { name, now },
                   { "\"window\": 5", rnd(q, 2) ? "\"window\": 5" : "\"window\": 3" },
                   { "43.1", rnd(q, 2) ? "43.1" : "30" },
                   { "\"train\": 10", rnd(q, 2) ? "\"train\": 10" : "\"train\": 4" },
                   { "{ \"braid\": 1,",
                     rnd(q, 3) ? "{\"braid\":1," : "{\"braid\":1,\"history\":\"own\"," } };
    o->len = 0;
    for (const char *p = f.data; p < f.data + f.len;) {
        size_t i = 0, n = sizeof change / sizeof *change, len = 0;
        for (; i < n; i++)
            if ((len = strlen(change[i].from)) <= (size_t)(f.data + f.len - p) &&
                memcmp(p, change[i].from, len) == 0)
                break;
        if (i < n)
            sbuf_adds(o, change[i].to);
        else
            sbuf_add(o, p, len = 1);
        p += len;
    }
}

static void make_sys(struct seq *q, struct sbuf *o, uint32_t n) {
    struct dataset_record r;
    struct err e = ERR_INIT;
    o->len = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (dataset_next(q->sys, &r, &e) != 1)
            fail_msg("dataset: %s", e.text);
        if (rnd(q, 50) == 0) /* a record cut in the middle: a dead letter */
            r.len = rnd(q, r.len);
        sbuf_add(o, r.data, r.len);
        sbuf_adds(o, "\n");
    }
}

static void make_rows(struct seq *q, struct sbuf *o, uint32_t n) {
    o->len = 0;
    for (uint32_t i = 0; i < n; i++) {
        q->time += rnd(q, 12);
        if (rnd(q, 60) == 0) {
            sbuf_adds(o, "bad,record\n");
            continue;
        }
        sbuf_printf(o, "k%u,%lld,", rnd(q, KEYS), (long long)(q->time - rnd(q, 30)));
        if (rnd(q, 10))
            sbuf_printf(o, "%u.%u", rnd(q, 100), rnd(q, 10));
        sbuf_adds(o, ",");
        if (rnd(q, 10))
            sbuf_printf(o, "%u.%02u", rnd(q, 100), rnd(q, 100));
        sbuf_adds(o, "\n");
    }
}

/* ---- what the engine did at a cut ---- */

static void positions(struct exec *ex, int64_t *at) {
    for (int t = 0; t < TOPICS; t++)
        at[t] = -1;
    for (int i = 0; i < exec_sources(ex); i++) {
        const struct task_def *d = task_def(exec_source(ex, i));
        const char *topic = op_config_text(d->op, d->config, "topic");
        for (int t = 0; t < TOPICS && topic; t++)
            if (strcmp(topic, topic_names[t]) == 0)
                at[t] = task_position(exec_source(ex, i));
    }
}

static int topic_index(const char *name) {
    int t = 0;
    while (strcmp(name, topic_names[t]) != 0)
        t++;
    return t;
}

static struct seq *current;

static void note_instance(struct seq *q, struct exec *ex, const struct task_def *d) {
    if (q->nseen == q->cap) {
        q->cap = q->cap ? q->cap * 2 : 64;
        q->seen = realloc(q->seen, sizeof *q->seen * (size_t)q->cap);
        assert_non_null(q->seen);
    }
    struct task *t = exec_find(ex, d->instance);
    struct seen *s = &q->seen[q->nseen++];
    *s = (struct seen){ .instance = d->instance, .start = task_position(t), .nlinks = d->nlinks };
    assert_in_range(d->nlinks, 0, 16);
    for (int i = 0; i < d->nlinks; i++)
        s->since[i] = t->in[i].since;
}

static void at_cut(struct world *w, const struct change *ch, struct exec *ex) {
    struct seq *q = current;
    for (int i = 0; i < ch->nadd; i++)
        note_instance(q, ex, ch->add[i]);
    if (q->removing) {
        struct life *l = &q->life[q->subject - w->flow];
        positions(ex, l->until);
        l->nremoved = ch->nremove;
        l->removed = malloc(sizeof *l->removed * (size_t)ch->nremove + 1);
        memcpy(l->removed, ch->remove, sizeof *l->removed * (size_t)ch->nremove);
    } else
        positions(ex, q->life[w->nflows - 1].from);
}

/* ---- the run alone ---- */

struct alone {
    struct exec *ex;
    struct sbuf *out; /* by sink number, in the order of the change */
    uint64_t sink[64];
    const char *topic[64];
    int nsinks;
    bool merges; /* some task is fed by two sources */
};

static void alone_sink(void *arg, struct task *t, const struct batch *b) {
    struct alone *al = arg;
    for (int i = 0; i < al->nsinks; i++)
        if (al->sink[i] == task_def(t)->instance)
            for (uint32_t k = 0; k < b->n; k++) {
                struct span v = b->cols[0].str[batch_row(b, k)];
                sbuf_add(&al->out[i], v.p, v.len);
                sbuf_add(&al->out[i], "\n", 1);
            }
}

static const struct seen *seen_of(const struct seq *q, uint64_t instance) {
    for (int i = 0; i < q->nseen; i++)
        if (q->seen[i].instance == instance)
            return &q->seen[i];
    fail_msg("no record of instance %llu", (unsigned long long)instance);
    return NULL;
}

/* The instance that a stage of this signature had in the engine, from what plan_save wrote. */
static uint64_t saved_instance(const struct world_flow *f, struct sig sig) {
    char text[33];
    sig_text(sig, text);
    const char *p = strstr(f->saved.p, text);
    assert_non_null(p);
    p = strstr(p, "\"instance\":");
    assert_non_null(p);
    return strtoull(p + strlen("\"instance\":"), NULL, 10);
}

static void feed(struct seq *q, struct exec *ex, const struct life *l) {
    for (int more = 1; more;) {
        more = 0;
        for (int i = 0; i < exec_sources(ex); i++) {
            struct task *src = exec_source(ex, i);
            const char *topic = op_config_text(task_def(src)->op, task_def(src)->config, "topic");
            if (!topic) { /* a table in a file */
                more |= exec_tick_pull(ex, src, 1) > 0;
                continue;
            }
            int t = topic_index(topic);
            int64_t end = l->until[t] >= 0 ? l->until[t] : world_end(&q->w, topic);
            int64_t at = task_position(src), off;
            struct log_rows rows;
            struct err e = ERR_INIT;
            if (at >= end)
                continue;
            struct log_reader *r = task_user(src);
            assert_int_equal(log_seek(r, at, &e), 0);
            assert_int_equal(log_read(r, 1, &rows, &off, &e), 1);
            exec_tick(ex, src, &rows, off);
            more = 1;
        }
    }
}

static void compare(struct seq *q, const struct world_flow *f, struct alone *al, uint64_t seed,
                    uint64_t *rows) {
    for (int i = 0; i < al->nsinks; i++) {
        struct sbuf got = { 0 };
        world_read(&q->w, al->topic[i], &got);
        for (size_t k = 0; k < got.len; k++)
            *rows += got.p[k] == '\n';
        /* Rows that still waited for another source when the dataflow went are lost with it. */
        bool prefix = !f->running && al->merges && got.len < al->out[i].len;
        size_t len = prefix ? got.len : al->out[i].len;
        if (got.len != len || (got.len && memcmp(got.p, al->out[i].p, got.len) != 0)) {
            FILE *x = fopen("/tmp/braid-equiv-engine.txt", "w"),
                 *y = fopen("/tmp/braid-equiv-alone.txt", "w");
            if (x && y && got.len)
                fwrite(got.p, 1, got.len, x);
            if (x && y && al->out[i].len)
                fwrite(al->out[i].p, 1, al->out[i].len, y);
            if (x)
                fclose(x);
            if (y)
                fclose(y);
            const struct life *l = &q->life[f - q->w.flow];
            print_message("%s%s, positions %lld..%lld %lld..%lld %lld..%lld\n",
                          f->running ? "running" : "removed", l->drained ? " and drained" : "",
                          (long long)l->from[0], (long long)l->until[0], (long long)l->from[1],
                          (long long)l->until[1], (long long)l->from[2], (long long)l->until[2]);
            fail_msg("BRAID_SEED=%llu: topic %s of %s differs from the run alone "
                     "(/tmp/braid-equiv-{engine,alone}.txt)\n%s",
                     (unsigned long long)seed, al->topic[i], f->name, f->text);
        }
        sbuf_free(&got);
    }
}

/* What nobody else used when the dataflow went is drained here too. */
static void drain(struct alone *al, const struct world_flow *f, const struct flow *flow,
                  const struct life *l) {
    uint64_t gone[256];
    int n = 0;
    struct err e = ERR_INIT;
    for (int i = flow->nstages; i-- > 0;) {
        const struct task_def *d = flow->stage[i]->def;
        uint64_t live = saved_instance(f, d->sig);
        for (int k = 0; k < l->nremoved; k++) {
            bool known = false;
            for (int j = 0; j < n; j++)
                known |= gone[j] == d->instance;
            if (l->removed[k] == live && !known)
                gone[n++] = d->instance;
        }
    }
    struct change ch = { .version = 1000, .nremove = n, .remove = gone, .drain = true };
    assert_int_equal(exec_apply(al->ex, &ch, false, &e), 0);
}

struct counting {
    struct seq *q;
    const struct world_flow *f;
    const struct flow *flow;
    struct exec *alone;
    uint64_t seed;
};

/* The counters of tasks that still run: whatever was aborted, killed and restored meanwhile, each
 * row was counted once. */
static void same_counts(void *arg, struct exec *live) {
    struct counting *k = arg;
    for (int i = 0; i < k->flow->nstages; i++) {
        const struct task_def *d = k->flow->stage[i]->def;
        struct task *t = exec_find(live, saved_instance(k->f, d->sig));
        struct task_stats got, want;
        assert_non_null(t);
        task_stats(t, &got);
        task_stats(exec_find(k->alone, d->instance), &want);
        if (memcmp(&got.counts, &want.counts, sizeof got.counts) != 0)
            fail_msg("BRAID_SEED=%llu: %s of %s has counted %llu rows in, %llu out; alone %llu, "
                     "%llu\n%s",
                     (unsigned long long)k->seed, d->op->name, task_def(t)->label,
                     (unsigned long long)got.counts.in, (unsigned long long)got.counts.out,
                     (unsigned long long)want.counts.in, (unsigned long long)want.counts.out,
                     k->f->text);
    }
}

static void check_alone(struct seq *q, struct world_flow *f, uint64_t seed, uint64_t *rows) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct spec s;
    struct sbuf out[64] = { 0 };
    struct alone al = { .out = out };
    struct plan *plan = plan_new();
    const struct change *ch;
    struct plan_cut cut = { .id = 1 };
    assert_int_equal(spec_parse(&s, NULL, f->text, strlen(f->text), &world_env, &a, &es, NULL), 0);
    assert_int_equal(plan_submit(plan, &s, &cut, &ch, &es), 0);
    al.ex = exec_new(&(struct exec_conf){ .batch_rows = 1, .sink = alone_sink, .arg = &al });
    assert_int_equal(exec_apply(al.ex, ch, false, &e), 0);
    struct flow *flow = plan_find(plan, f->name);
    const struct life *l = &q->life[f - q->w.flow];
    bool own = flow->history == HISTORY_OWN;
    for (int i = 0; i < flow->nstages; i++) {
        const struct task_def *d = flow->stage[i]->def;
        struct task *t = exec_find(al.ex, d->instance);
        const struct seen *live = seen_of(q, saved_instance(f, d->sig));
        assert_int_equal(live->nlinks, d->nlinks);
        if (d->op->flags & OP_SOURCE) {
            task_seek(t, live->start);
            const char *topic = op_config_text(d->op, d->config, "topic");
            if (own && topic)
                task_seek(t, l->from[topic_index(topic)]);
            struct log_reader *r = NULL;
            if (topic)
                assert_int_equal(log_reader_open(q->w.log, topic, 0, task_position(t), &r, &e), 0);
            task_set_user(t, r);
        }
        al.merges |= t->align != NULL;
        for (int k = 0; k < d->nlinks && !own; k++)
            t->in[k].since = live->since[k];
        if (d->op->flags & OP_SINK) {
            bool known = false;
            for (int k = 0; k < al.nsinks; k++)
                known |= al.sink[k] == d->instance;
            if (!known) {
                al.sink[al.nsinks] = d->instance;
                al.topic[al.nsinks++] = op_config_text(d->op, d->config, "topic");
            }
        }
    }
    feed(q, al.ex, l);
    if (l->drained)
        drain(&al, f, flow, l);
    compare(q, f, &al, seed, rows);
    if (f->running && !own)
        executor_visit(q->w.x, same_counts, &(struct counting){ q, f, flow, al.ex, seed });
    for (int i = 0; i < exec_sources(al.ex); i++)
        if (task_user(exec_source(al.ex, i)))
            log_reader_close(task_user(exec_source(al.ex, i)));
    exec_free(al.ex);
    plan_free(plan);
    for (int i = 0; i < 64; i++)
        sbuf_free(&out[i]);
    arena_free(&a);
    errs_free(&es);
}

/* ---- sequences ---- */

static struct world_flow *random_flow(struct seq *q) {
    struct world_flow *live[FLOWS_MAX * 4];
    uint32_t n = 0;
    for (int i = 0; i < q->w.nflows; i++)
        if (q->w.flow[i].running)
            live[n++] = &q->w.flow[i];
    return n ? live[rnd(q, n)] : NULL;
}

static void step(struct seq *q, struct sbuf *o) {
    struct world_flow *f;
    uint32_t t;
    switch (rnd(q, 10)) {
    case 0:
    case 1:
    case 2:
        if (q->w.nflows == FLOWS_MAX)
            break;
        if (rnd(q, 4) == 0)
            make_riot(q, o);
        else
            make_flow(q, o);
        if (rnd(q, 4) == 0)
            executor_inject_abort(q->w.x);
        world_submit(&q->w, sbuf_str(o));
        for (t = 0; t < TOPICS; t++)
            q->life[q->w.nflows - 1].until[t] = -1;
        break;
    case 3:
        f = random_flow(q);
        if (!f || rnd(q, 2))
            break;
        q->removing = true;
        q->subject = f;
        if (rnd(q, 4) == 0)
            executor_inject_abort(q->w.x);
        q->life[f - q->w.flow].drained = rnd(q, 3) == 0;
        world_remove(&q->w, f, q->life[f - q->w.flow].drained);
        q->removing = false;
        break;
    case 4:
        if (rnd(q, 4) == 0)
            world_restart(&q->w);
        break;
    default:
        t = rnd(q, TOPICS);
        if (t == SYS)
            make_sys(q, o, 1 + rnd(q, 40));
        else
            make_rows(q, o, 1 + rnd(q, rnd(q, 3) ? 10 : 200));
        sbuf_str(o);
        if (rnd(q, 8) == 0)
            executor_inject_abort(q->w.x);
        world_append(&q->w, topic_names[t], o->p);
        if (q->settled || rnd(q, 3))
            executor_settle(q->w.x);
        else
            for (uint32_t i = rnd(q, 3); i > 0; i--)
                executor_step(q->w.x);
    }
}

static void run_open(struct seq *q, uint64_t seed, uint32_t batch_rows, bool settled) {
    struct dataset_conf conf = { .source = "sys", .loop = DATASET_ENDLESS, .keys = 20 };
    struct err e = ERR_INIT;
    memset(q, 0, sizeof *q);
    q->rng = seed;
    q->time = 100000;
    q->settled = settled;
    current = q;
    if (dataset_open(&q->sys, &conf, &e) < 0)
        fail_msg("%s", e.text);
    world_open(&q->w, batch_rows, seed % 4 == 3);
    q->w.at_cut = at_cut;
    for (int t = 0; t < TOPICS; t++)
        world_topic(&q->w, topic_names[t]);
}

static void run_steps(struct seq *q) {
    struct sbuf o = { 0 };
    for (int i = 0; i < STEPS; i++)
        step(q, &o);
    executor_settle(q->w.x);
    for (int t = 0; t < PLAIN; t++) { /* lets go of rows that wait for the other source */
        o.len = 0;
        sbuf_printf(&o, "k0,%lld,1,1\n", (long long)q->time + 1000);
        world_append(&q->w, topic_names[t], sbuf_str(&o));
    }
    executor_settle(q->w.x);
    sbuf_free(&o);
}

static void run_close(struct seq *q) {
    for (int i = 0; i < FLOWS_MAX; i++)
        free(q->life[i].removed);
    dataset_close(q->sys);
    world_close(&q->w);
    free(q->seen);
}

static void test_alone(void **unused) {
    (void)unused;
    static struct seq q;
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(500);
    uint64_t rows = 0;
    for (uint64_t s = seed; s < seed + n; s++) {
        run_open(&q, s, s % 3 == 0 ? 1 : s % 3 == 1 ? 7 : 1024, false);
        run_steps(&q);
        for (int i = 0; i < q.w.nflows; i++)
            check_alone(&q, &q.w.flow[i], s, &rows);
        run_close(&q);
    }
    print_message("%llu sequences, %llu rows compared\n", (unsigned long long)n,
                  (unsigned long long)rows);
    assert_true(rows > 100 * n);
}

/* ---- batch size ---- */

/* Dead letters of one task come in order; how those of several tasks mix depends on ticks. */
static int by_task(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t n = (size_t)(strstr(x, "\"offset\"") - x), m = (size_t)(strstr(y, "\"offset\"") - y);
    int d = memcmp(x, y, n < m ? n : m);
    return d ? d : n != m ? (n > m) - (n < m) : (x > y) - (x < y);
}
static void sort_dead(struct sbuf *rows) {
    struct sbuf out = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < rows->len; i++)
        n += rows->p[i] == '\n';
    const char **line = malloc((n + 1) * sizeof *line), *p = sbuf_str(rows);
    for (size_t i = 0; i < n; i++, p = strchr(p, '\n') + 1)
        line[i] = p;
    qsort(line, n, sizeof *line, by_task);
    for (size_t i = 0; i < n; i++)
        sbuf_add(&out, line[i], (size_t)(strchr(line[i], '\n') + 1 - line[i]));
    free(line);
    sbuf_free(rows);
    *rows = out;
}

static int add_topic(void *arg, const struct log_topic_info *info) {
    struct sbuf *o = arg;
    struct sbuf rows = { 0 };
    world_read(&current->w, info->name, &rows);
    if (strcmp(info->name, "braid.dlq") == 0)
        sort_dead(&rows);
    sbuf_printf(o, "== %s\n", info->name);
    sbuf_add(o, rows.p ? rows.p : "", rows.len);
    sbuf_free(&rows);
    return 0;
}

/* Every topic of the log holds the same bytes; of the dead letters, those of each task. */
static void test_batch_size(void **unused) {
    (void)unused;
    static struct seq q;
    static const uint32_t sizes[] = { 1, 1024, 37 };
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(60);
    for (uint64_t s = seed; s < seed + n; s++) {
        struct sbuf all[3] = { 0 };
        for (int k = 0; k < 3; k++) {
            run_open(&q, s, sizes[k], true);
            run_steps(&q);
            log_topic_list(q.w.log, add_topic, &all[k]);
            run_close(&q);
            if (all[k].len != all[0].len || memcmp(all[k].p, all[0].p, all[0].len) != 0)
                fail_msg("BRAID_SEED=%llu: batches of %u rows leave other bytes than batches of 1",
                         (unsigned long long)s, sizes[k]);
        }
        for (int k = 0; k < 3; k++)
            sbuf_free(&all[k]);
    }
}

/* ---- an epoch with a removal in it aborts: the rows before the cut still reach what goes ---- */

static void test_redo_to_cut(void **unused) {
    (void)unused;
    struct world w;
    struct sbuf got = { 0 };
    world_open(&w, 1, false);
    world_topic(&w, "a");
    struct world_flow *f = world_submit(
        &w, "{\"braid\":1,\"name\":\"f\",\"tasks\":["
            "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"a\",\"format\":\"raw\"}},"
            "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":\"raw\"},"
            "\"inputs\":[\"in\"]}]}");
    enum { N = 2000 }; /* more than are read again while one commit is on its way */
    struct sbuf rows = { 0 };
    for (int i = 0; i < N; i++)
        sbuf_printf(&rows, "%d\n", i);
    world_append(&w, "a", sbuf_str(&rows));
    for (int i = 0; i < N; i++)
        executor_step(w.x);
    executor_inject_abort(w.x);
    world_remove(&w, f, false);
    world_read(&w, "o", &got);
    assert_string_equal(sbuf_str(&got), rows.p);
    sbuf_free(&rows);
    sbuf_free(&got);
    world_close(&w);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone),
                                        cmocka_unit_test(test_batch_size),
                                        cmocka_unit_test(test_redo_to_cut) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
