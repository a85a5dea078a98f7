/* Running the cases of a test file: feeding steps, keeping what comes out, comparing it. */
#include "cluster/flowtest.h"
#include "cluster/run.h"
#include "engine/clock.h"
#include "engine/num.h"
#include <string.h>

/* What a sink, or the dead letters, have put out. */
struct kept {
    struct rowdiff_row *v;
    uint32_t n, cap;
    uint64_t count, mark; /* rows, also those that are not kept; where the step began */
};
struct playing {
    const struct flowtest *t;
    const struct flowtest_case *c;
    struct flowfile flow;
    struct run *run;
    struct kept *sink, dead;
    size_t bytes;
    int64_t now;
    bool single;
    int step;
    struct flowtest_result *r;
    struct flowtest_failure **last;
    struct arena *a;
    struct errs *es;
};

/* ---- what comes out ---- */

static void keep(struct playing *p, struct kept *k, const char *text, size_t len) {
    k->count++;
    p->bytes += len;
    if (p->bytes > FLOWTEST_KEPT_MAX)
        return;
    if (k->n == k->cap) {
        uint32_t cap = k->cap ? 2 * k->cap : 16;
        struct rowdiff_row *v = ARENA_ARRAY(p->a, struct rowdiff_row, cap);
        if (k->n)
            memcpy(v, k->v, k->n * sizeof *v);
        k->v = v;
        k->cap = cap;
    }
    k->v[k->n++] = (struct rowdiff_row){ arena_strndup(p->a, text, len), len, NULL };
}

static int on_rows(void *arg, const struct run_sink *s, const struct batch *b) {
    struct playing *p = arg;
    const struct span *v = b->cols[0].str;
    for (uint32_t i = 0; i < b->n; i++) {
        struct span x = v[batch_row(b, i)];
        keep(p, &p->sink[s->index], x.p, x.len);
    }
    return 0;
}

static int on_dead(void *arg, const char *json, size_t len) {
    struct playing *p = arg;
    keep(p, &p->dead, json, len);
    return 0;
}

/* ---- what goes in ---- */

/* A record is the text of its JSON value as it stands in the file; of a string, what it says. */
static struct run_record record_of(const struct playing *p, const struct jnode *n) {
    struct json_reader r;
    if (n->type == J_STR)
        return (struct run_record){ .data = n->s, .len = n->len, .time = LOG_NO_TIME };
    const char *from = p->t->doc.text + n->off;
    json_open(&r, from, p->t->doc.len - n->off, NULL);
    if (json_next(&r) == JE_OBJ || r.event == JE_ARR)
        json_skip(&r);
    struct run_record rec = { .data = from, .len = (uint32_t)(r.p - from), .time = LOG_NO_TIME };
    json_close(&r);
    return rec;
}

/* {"value":…,"key":…,"time":…}; a null value is a tombstone. */
static struct run_record whole_record(const struct playing *p, const struct jnode *n) {
    const struct jnode *value = jnode_get(n, "value"), *key = jnode_get(n, "key"),
                       *time = jnode_get(n, "time");
    struct run_record rec = { .time = LOG_NO_TIME };
    if (value->type != J_NULL)
        rec = record_of(p, value);
    if (key) {
        rec.key = key->s;
        rec.klen = key->len;
    }
    if (time)
        time_parse(time->s, time->s + time->len, &rec.time);
    return rec;
}

static int feed_list(struct playing *p, const char *topic, const struct jnode *n, bool whole,
                     struct err *e) {
    struct run_record *v = ARENA_ARRAY(p->a, struct run_record, n->n + 1);
    uint32_t k = 0;
    for (const struct jnode *c = n->n ? n->child : NULL; c; c = c->next)
        v[k++] = whole ? whole_record(p, c) : record_of(p, c);
    p->r->records += k;
    return run_push(p->run, topic, v, k, e);
}

/* As many at once as a batch may have. */
static int feed_some(struct playing *p, const char *topic, struct dataset *ds, int64_t *left,
                     struct err *e) {
    struct arena a = { 0 };
    struct run_record *v = ARENA_ARRAY(&a, struct run_record, BATCH_ROWS);
    struct dataset_record rec;
    uint32_t k = 0;
    int rc = 1;
    while (k<BATCH_ROWS && * left> 0 && (rc = dataset_next(ds, &rec, e)) > 0) {
        v[k++] = (struct run_record){ .data = arena_strndup(&a, rec.data, rec.len),
                                      .len = rec.len,
                                      .time = LOG_NO_TIME };
        --*left;
    }
    p->r->records += k;
    if (rc >= 0 && k > 0)
        rc = run_push(p->run, topic, v, k, e);
    arena_free(&a);
    return rc < 0 ? rc : (int)k;
}

static int feed_file(struct playing *p, const struct jnode *n, struct err *e) {
    const struct jnode *limit = jnode_get(n, "limit");
    struct dataset_conf conf = { .source = flowtest_path(p->t, jnode_get(n, "file")->s),
                                 .csv = run_delimiter(&p->flow.spec, n->key) };
    struct dataset *ds;
    int64_t left = limit ? limit->i : INT64_MAX;
    int rc = dataset_open(&ds, &conf, e);
    if (rc < 0)
        return rc;
    while ((rc = feed_some(p, n->key, ds, &left, e)) > 0)
        continue;
    dataset_close(ds);
    return rc;
}

/* What the case asks for and the dataflow does not have. */
static int misfit(struct playing *p, const struct jnode *n, const struct err *e) {
    int before = p->es->n;
    json_error(p->es, &p->t->doc, n, n->key != NULL, "%s", e->text);
    if (p->es->n > before)
        p->es->v[before].code = e->code == ERR_NOTFOUND ? ERR_INPUT : e->code;
    return ERR_INPUT;
}

static int feed(struct playing *p, const struct flowtest_step *s) {
    struct err e = ERR_INIT;
    for (const struct jnode *n = s->in && s->in->n ? s->in->child : NULL; n; n = n->next) {
        int rc;
        if (n->type == J_ARR) {
            rc = feed_list(p, n->key, n, false, &e);
        } else if (jnode_get(n, "records")) {
            rc = feed_list(p, n->key, jnode_get(n, "records"), true, &e);
        } else if (n->type == J_OBJ) {
            rc = feed_file(p, n, &e);
        } else {
            int64_t made = run_pull(p->run, n->key, n->i, &e);
            p->r->records += made > 0 ? (uint64_t)made : 0;
            rc = made < 0 ? (int)made : 0;
        }
        if (rc < 0)
            return misfit(p, n, &e);
    }
    for (const struct jnode *n = s->end && s->end->n ? s->end->child : NULL; n; n = n->next)
        if (run_end(p->run, n->s, &e) < 0)
            return misfit(p, n, &e);
    return s->finish ? run_end(p->run, NULL, &e) : 0;
}

/* ---- expectations ---- */

static struct flowtest_failure *fail(struct playing *p, const struct jnode *at, const char *what) {
    struct flowtest_failure *f = ARENA_NEW(p->a, struct flowtest_failure);
    *f = (struct flowtest_failure){ .step = p->step, .single = p->single, .what = what };
    json_place(p->t->doc.text, p->t->doc.len, at->key ? at->key_off : at->off, &f->line, &f->col);
    *p->last = f;
    p->last = &f->next;
    return f;
}

/* Rows since the step began, as JSON where they are that. */
static struct rowdiff_row *came(struct playing *p, const struct kept *k, uint32_t *n) {
    uint32_t from = k->mark < k->n ? (uint32_t)k->mark : k->n;
    struct rowdiff_row *v = ARENA_ARRAY(p->a, struct rowdiff_row, k->n - from + 1);
    for (uint32_t i = from; i < k->n; i++) {
        struct json_doc doc = { 0 };
        struct errs es = { 0 };
        v[i - from] = k->v[i];
        if (json_parse(&doc, NULL, k->v[i].text, k->v[i].len, p->a, &es) == 0)
            v[i - from].json = doc.root;
        errs_free(&es);
    }
    *n = k->n - from;
    return v;
}

static const char *wanted_came(struct playing *p, const char *what, uint64_t want, uint64_t got) {
    return arena_printf(p->a, "%s: %llu wanted, %llu came", what, (unsigned long long)want,
                        (unsigned long long)got);
}

static void check_count(struct playing *p, const struct jnode *at, const char *what,
                        const struct kept *k, int64_t want) {
    uint64_t got = k->count - k->mark;
    if (got == (uint64_t)want)
        return;
    struct flowtest_failure *f = fail(p, at, wanted_came(p, what, (uint64_t)want, got));
    struct rowdiff_rules rules = { 0 };
    uint32_t n;
    struct rowdiff_row *v = came(p, k, &n);
    if (got == n)
        rowdiff(NULL, 0, v, n, &rules, p->a, &f->lines, &f->nlines);
}

static void check_list(struct playing *p, const struct jnode *at, const char *what,
                       const struct kept *k, const struct jnode *list,
                       const struct rowdiff_rules *rules) {
    struct rowdiff_line *lines;
    uint32_t n, nlines;
    struct rowdiff_row *v = came(p, k, &n);
    if (n != k->count - k->mark) {
        fail(p, at,
             arena_printf(p->a, "%s: more than %d MiB came: expect their number", what,
                          FLOWTEST_KEPT_MAX >> 20));
        return;
    }
    if (rowdiff(list->n ? list->child : NULL, list->n, v, n, rules, p->a, &lines, &nlines) == 0)
        return;
    struct flowtest_failure *f = fail(p, at, wanted_came(p, what, list->n, n));
    f->lines = lines;
    f->nlines = nlines;
}

static bool says(const struct jnode *obj, const char *key, const char *word) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == J_STR && strcmp(n->s, word) == 0;
}

static int unknown(struct playing *p, const struct jnode *n, const char *kind,
                   const char *const *names, int count) {
    struct err e = ERR_INIT;
    const char *near = n->klen < 100 ? err_nearest(n->key, names, count) : NULL;
    err_set(&e, ERR_INPUT, "the dataflow has no %s '%.100s'%s%s%s", kind, n->key,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return misfit(p, n, &e);
}

static int find_sink(struct playing *p, const struct jnode *n) {
    int count = run_sinks(p->run);
    const char **names = ARENA_ARRAY(p->a, const char *, count + 1);
    for (int i = 0; i < count; i++) {
        names[i] = run_sink(p->run, i)->name;
        if (strcmp(names[i], n->key) == 0)
            return i;
    }
    for (int i = 0; i < count; i++)
        if (strcmp(run_sink(p->run, i)->task, n->key) == 0)
            return i;
    return unknown(p, n, "sink", names, count);
}

static int check_sink(struct playing *p, const struct jnode *n) {
    struct rowdiff_rules rules = { 0 };
    int i = find_sink(p, n);
    if (i < 0)
        return i;
    const struct kept *k = &p->sink[i];
    const char *what = arena_printf(p->a, "rows of sink '%s'", n->key);
    const struct jnode *list = n, *tolerance = NULL;
    if (n->type == J_OBJ) {
        list = jnode_get(n, "rows");
        tolerance = jnode_get(n, "tolerance");
        rules.any_order = says(n, "order", "any");
        rules.subset = says(n, "match", "subset");
        rules.tolerance = tolerance ? jnode_f64(tolerance) : 0;
    }
    if (n->type == J_INT || !list)
        check_count(p, n, what, k, n->type == J_INT ? n->i : jnode_get(n, "count")->i);
    else
        check_list(p, n, what, k, list, &rules);
    return 0;
}

/* By code: every code that came is named, and no other. */
static void check_codes(struct playing *p, const struct jnode *obj) {
    uint32_t n;
    struct rowdiff_row *v = came(p, &p->dead, &n);
    uint64_t told = 0;
    for (const struct jnode *c = obj->n ? obj->child : NULL; c; c = c->next) {
        uint64_t got = 0;
        for (uint32_t i = 0; i < n; i++)
            got += says(v[i].json, "code", c->key);
        told += got;
        if (got != (uint64_t)c->i)
            fail(p, c,
                 wanted_came(p, arena_printf(p->a, "dead letters '%s'", c->key), (uint64_t)c->i,
                             got));
    }
    for (uint32_t i = 0; told < n && i < n; i++) {
        const struct jnode *code = jnode_get(v[i].json, "code"), *reason;
        if (!code || code->type != J_STR || jnode_get(obj, code->s))
            continue;
        reason = jnode_get(v[i].json, "reason");
        fail(p, obj,
             arena_printf(p->a, "dead letters '%s': none wanted, but: %s", code->s,
                          reason && reason->type == J_STR ? reason->s : ""));
        return;
    }
}

static void check_dead(struct playing *p, const struct jnode *n) {
    struct rowdiff_rules rules = { .subset = true };
    if (n->type == J_INT)
        check_count(p, n, "dead letters", &p->dead, n->i);
    else if (n->type == J_ARR)
        check_list(p, n, "dead letters", &p->dead, n, &rules);
    else
        check_codes(p, n);
}

static const char *const counter_names[] = { "rows_in",  "rows_out", "filtered",   "late",
                                             "rejected", "nulled",   "state_keys", NULL };

static int check_counter(struct playing *p, const struct jnode *n, const struct run_task *t) {
    const uint64_t v[] = { t->counts.in,       t->counts.out,    t->counts.filtered, t->counts.late,
                           t->counts.rejected, t->counts.nulled, t->state_keys };
    int i = 0;
    while (counter_names[i] && strcmp(counter_names[i], n->key) != 0)
        i++;
    if (!counter_names[i])
        return unknown(p, n, "counter", counter_names, i);
    if (v[i] != (uint64_t)n->i)
        fail(p, n,
             arena_printf(p->a, "task '%s': %s is %llu, not %lld", t->id, n->key,
                          (unsigned long long)v[i], (long long)n->i));
    return 0;
}

static int check_task(struct playing *p, const struct jnode *n) {
    int count = run_tasks(p->run), rc = 0;
    const char **names = ARENA_ARRAY(p->a, const char *, count + 1);
    struct run_task t = { 0 };
    int i = 0;
    for (; i < count; i++) {
        run_task(p->run, i, &t);
        names[i] = t.id;
        if (strcmp(t.id, n->key) == 0)
            break;
    }
    if (i == count)
        return unknown(p, n, "task", names, count);
    for (const struct jnode *c = n->n ? n->child : NULL; c && rc == 0; c = c->next)
        rc = check_counter(p, c, &t);
    return rc;
}

static int check(struct playing *p, const struct jnode *e) {
    const struct jnode *sinks = jnode_get(e, "sinks"), *dead = jnode_get(e, "dead"),
                       *tasks = jnode_get(e, "tasks");
    int rc = 0;
    for (const struct jnode *n = sinks && sinks->n ? sinks->child : NULL; n && rc == 0; n = n->next)
        rc = check_sink(p, n);
    if (dead && rc == 0)
        check_dead(p, dead);
    for (const struct jnode *n = tasks && tasks->n ? tasks->child : NULL; n && rc == 0; n = n->next)
        rc = check_task(p, n);
    return rc;
}

/* ---- a run ---- */

static void set_clock(struct playing *p, int64_t now) {
    p->now = now;
    run_clock(p->run, now);
    clock_freeze(now);
}

static int mark(struct playing *p, bool whole) {
    for (int i = 0; i < run_sinks(p->run); i++)
        p->sink[i].mark = whole ? 0 : p->sink[i].count;
    p->dead.mark = whole ? 0 : p->dead.count;
    return 0;
}

/* A failing step is the last: what comes after it would only repeat it. */
static int play(struct playing *p) {
    const struct flowtest_case *c = p->c;
    set_clock(p, c->now);
    int rc = run_begin(p->run);
    for (int i = 0; i < c->nsteps && rc == 0 && !p->r->first; i++) {
        const struct flowtest_step *s = &c->steps[i];
        int64_t now = s->now == TIME_MIN ? p->now : s->now;
        p->step = s->whole ? 0 : i + 1;
        mark(p, false);
        set_clock(p, now + s->advance);
        rc = feed(p, s);
        if (s->whole)
            mark(p, true);
        if (rc == 0 && s->expect)
            rc = check(p, s->expect);
    }
    return rc;
}

static int run_once(struct playing *p) {
    struct run_conf conf = { .spec = &p->flow.spec,
                             .now_ms = p->c->now,
                             .batch_rows = p->single ? 1 : 0,
                             .stepped = true,
                             .rows = on_rows,
                             .dead = on_dead,
                             .arg = p };
    clock_freeze(p->c->now);
    int rc = run_open(&p->run, &conf, p->es);
    if (rc < 0)
        return rc;
    p->sink = arena_zalloc(p->a, sizeof *p->sink * (size_t)(run_sinks(p->run) + 1));
    p->dead = (struct kept){ 0 };
    p->bytes = 0;
    rc = play(p);
    run_close(p->run);
    return rc;
}

int flowtest_run(const struct flowtest *t, int i, struct flowtest_result *r, struct arena *a,
                 struct errs *es) {
    struct playing p = { .t = t, .c = &t->cases[i], .r = r, .last = &r->first, .a = a, .es = es };
    struct err e = ERR_INIT;
    int64_t start = clock_mono_ns();
    *r = (struct flowtest_result){ 0 };
    int rc = flowfile_load(&p.flow, t->dataflow, a, &e);
    if (rc < 0)
        return errs_add(es, &e);
    p.flow.given = p.c->vars;
    p.flow.ngiven = p.c->nvars;
    p.flow.remote = true; /* a test does not depend on anybody's secrets */
    rc = flowfile_parse(&p.flow, es, NULL);
    if (rc == 0)
        rc = run_once(&p);
    uint64_t records = r->records;
    p.single = true;
    if (rc == 0 && !r->first)
        rc = run_once(&p);
    r->records = records;
    r->ns = clock_mono_ns() - start;
    clock_freeze(INT64_MIN);
    return rc;
}
