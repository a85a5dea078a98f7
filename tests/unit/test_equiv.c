/* Equivalence (DESIGN 6, class E1): random dataflows come and go while rows flow, epochs abort, the
 * engine restarts. At the end each dataflow's sink topics hold exactly what a run of that dataflow
 * alone, one row a tick, gives over the same rows:
 *  - `own`: fed from the dataflow's start;
 *  - `shared`: each task ignores rows before its instance's history_from (recorded at its graft).
 * The same sequence with batches of 1 and of 1,024 rows leaves the same bytes in every topic. */
#include "engine/task.h"
#include "harness.h"
#include "operators/all.h"
#include "world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FLOWS_MAX = 24, STEPS = 60, KEYS = 6, TOPICS = 2 };
static const char *const topic_names[TOPICS] = { "a", "b" };

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
    struct life life[FLOWS_MAX * 4];
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
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static const char *pick_config(struct seq *q, const struct shape *s) {
    uint32_t n = 0;
    while (n < 4 && s->config[n])
        n++;
    return s->config[rnd(q, n)];
}

static void add_source(struct seq *q, struct sbuf *o, int i) {
    sbuf_printf(
        o,
        "{\"id\":\"in%d\",\"type\":\"source\",\"config\":{\"topic\":\"%s\",\"format\":\"csv\","
        "\"schema\":{\"k\":\"string\",\"t\":\"i64\",\"x\":\"f64\",\"y\":\"f64\"},"
        "\"time\":{\"field\":\"t\",\"unit\":\"ms\"},\"lateness\":\"%s\"}}",
        i, topic_names[i], rnd(q, 3) ? "20ms" : "0s");
}

/* A chain or small DAG over one or two sources; every leaf and some inner tasks get a sink. */
static void make_flow(struct seq *q, struct sbuf *o) {
    int sources = rnd(q, 4) ? 1 : 2, first = sources == 1 ? (int)rnd(q, TOPICS) : 0;
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
    int tasks = 1 + (int)rnd(q, 6), sinks = 0;
    for (int i = 0; i < tasks; i++) {
        const struct shape *s = &shapes[rnd(q, NSHAPES)];
        char id[16];
        snprintf(id, sizeof id, "t%d", i);
        const char *p1 = parent[rnd(q, (uint32_t)n)], *p2 = parent[rnd(q, (uint32_t)n)];
        const char *by = s->by ? ",\"by\":[\"k\"]" : "";
        bool two = strcmp(p1, p2) != 0 && (sources == 2 || rnd(q, 3) == 0);
        sbuf_printf(o,
                    "{\"id\":\"%s\",\"type\":\"%s\",\"config\":%s,\"inputs\":[{\"from\":\"%s\"%s}",
                    id, s->type, pick_config(q, s), p1, by);
        if (two)
            sbuf_printf(o, ",{\"from\":\"%s\"%s}", p2, by);
        sbuf_adds(o, "]},");
        if (s->leaf || rnd(q, 3) == 0 || i == tasks - 1)
            sbuf_printf(o,
                        "{\"id\":\"out%d\",\"type\":\"sink\",\"config\":{\"topic\":\"f%d-out%d\","
                        "\"format\":\"%s\"},\"inputs\":[\"%s\"]},",
                        sinks, serial, sinks, rnd(q, 2) ? "json" : "csv", id),
                sinks++;
        if (!s->leaf && n < 16)
            snprintf(parent[n++], sizeof parent[0], "%s", id);
    }
    o->len--; /* the last comma */
    sbuf_adds(o, "]}");
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
        for (int t = 0; t < TOPICS; t++)
            if (strcmp(topic, topic_names[t]) == 0)
                at[t] = task_position(exec_source(ex, i));
    }
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
    if (q->removing)
        positions(ex, q->life[q->subject - w->flow].until);
    else
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
            int t = strcmp(topic, topic_names[0]) ? 1 : 0;
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
            fail_msg("BRAID_SEED=%llu: topic %s of %s differs from the run alone "
                     "(/tmp/braid-equiv-{engine,alone}.txt)\n%s",
                     (unsigned long long)seed, al->topic[i], f->name, f->text);
        }
        sbuf_free(&got);
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
    struct plan_env env = { 0 };
    assert_int_equal(spec_parse(&s, NULL, f->text, strlen(f->text), &world_env, &a, &es, NULL), 0);
    assert_int_equal(plan_submit(plan, &s, &cut, &env, &ch, &es), 0);
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
            if (own)
                task_seek(t, l->from[strcmp(topic, topic_names[0]) ? 1 : 0]);
            struct log_reader *r;
            assert_int_equal(log_reader_open(q->w.log, op_config_text(d->op, d->config, "topic"), 0,
                                             task_position(t), &r, &e),
                             0);
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
    compare(q, f, &al, seed, rows);
    for (int i = 0; i < exec_sources(al.ex); i++)
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
    switch (rnd(q, 10)) {
    case 0:
    case 1:
    case 2:
        if (q->w.nflows == FLOWS_MAX)
            break;
        make_flow(q, o);
        /* Some submits follow a text seen before, under a new name, so that much is shared. */
        if (rnd(q, 4) == 0)
            executor_inject_abort(q->w.x);
        world_submit(&q->w, sbuf_str(o));
        for (int t = 0; t < TOPICS; t++)
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
        world_remove(&q->w, f, false);
        q->removing = false;
        break;
    case 4:
        if (rnd(q, 4) == 0)
            world_restart(&q->w);
        break;
    default:
        make_rows(q, o, 1 + rnd(q, rnd(q, 3) ? 10 : 200));
        sbuf_str(o);
        if (rnd(q, 8) == 0)
            executor_inject_abort(q->w.x);
        world_append(&q->w, topic_names[rnd(q, TOPICS)], o->p);
        if (rnd(q, 3))
            executor_settle(q->w.x);
        else
            for (uint32_t i = rnd(q, 3); i > 0; i--)
                executor_step(q->w.x);
    }
}

static uint64_t run(uint64_t seed, uint32_t batch_rows, struct sbuf *all) {
    static struct seq q;
    struct sbuf o = { 0 };
    uint64_t rows = 0;
    memset(&q, 0, sizeof q);
    q.rng = seed;
    q.time = 100000;
    current = &q;
    world_open(&q.w, batch_rows);
    q.w.at_cut = at_cut;
    for (int t = 0; t < TOPICS; t++)
        world_topic(&q.w, topic_names[t]);
    for (int i = 0; i < STEPS; i++)
        step(&q, &o);
    executor_settle(q.w.x);
    for (int t = 0; t < TOPICS; t++) { /* lets go of rows that wait for the other source */
        o.len = 0;
        sbuf_printf(&o, "k0,%lld,1,1\n", (long long)q.time + 1000);
        world_append(&q.w, topic_names[t], sbuf_str(&o));
    }
    executor_settle(q.w.x);
    for (int i = 0; i < q.w.nflows; i++)
        check_alone(&q, &q.w.flow[i], seed, &rows);
    (void)all;
    world_close(&q.w);
    sbuf_free(&o);
    free(q.seen);
    return rows;
}

static void test_alone(void **unused) {
    (void)unused;
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(200);
    uint64_t rows = 0;
    for (uint64_t s = seed; s < seed + n; s++)
        rows += run(s, s % 3 == 0 ? 1 : s % 3 == 1 ? 7 : 1024, NULL);
    print_message("%llu sequences, %llu rows compared\n", (unsigned long long)n,
                  (unsigned long long)rows);
    assert_true(rows > 100 * n);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
