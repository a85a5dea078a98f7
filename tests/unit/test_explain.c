/* What the planner tells: why tasks are new or reused, pictures of the graph, conflicts, and that
 * changes which belong together keep what they have in common. Texts are compared whole. */
#include "planner/explain.h"
#include "planner/merge.h"
#include "planner/show.h"
#include "tests/unit/plan_ops.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct plan *p;
static uint64_t cut;

static int setup(void **state) {
    (void)state;
    p = plan_new();
    cut = 0;
    return 0;
}
static int teardown(void **state) {
    (void)state;
    plan_free(p);
    return 0;
}

/* Parses and submits; 0, or the code with the first error in `why`. */
static int submit(const char *name, const char *history, const char *tasks, char why[2000]) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct sbuf b = { 0 };
    struct spec s;
    struct plan_cut c = { ++cut, 1400000000000 + 1000 * (int64_t)cut };
    sbuf_printf(&b, "{\"braid\":1,\"name\":\"%s\",\"history\":\"%s\",\"tasks\":[%s]}", name,
                history, tasks);
    int rc = spec_parse(&s, "f.json", sbuf_str(&b), b.len, NULL, &a, &es, NULL);
    if (rc == 0)
        rc = plan_submit(p, &s, &c, NULL, &es);
    why[0] = 0;
    if (rc < 0) {
        err_format(&es.v[0], why, 2000);
        assert_int_equal(es.v[0].code, rc);
    }
    errs_free(&es);
    sbuf_free(&b);
    arena_free(&a);
    return rc;
}

static void run(const char *name, const char *history, const char *tasks) {
    char why[2000];
    if (submit(name, history, tasks, why) < 0)
        fail_msg("%s", why);
    plan_commit(p);
}

static void refused(int code, const char *name, const char *tasks, const char *text) {
    char why[2000];
    struct plan_counts before = p->counts;
    assert_int_equal(submit(name, "shared", tasks, why), code);
    assert_string_equal(why, text);
    assert_memory_equal(&before, &p->counts, sizeof before);
}

#define SRC(topic) "{\"id\":\"in\",\"type\":\"face\",\"config\":{\"topic\":\"" topic "\"}}"
#define MAP(id, x, from)                                                                           \
    ",{\"id\":\"" id "\",\"type\":\"map\",\"config\":{\"x\":" x "},\"inputs\":[\"" from "\"]}"
#define AGG(id, n, from)                                                                           \
    ",{\"id\":\"" id "\",\"type\":\"agg\",\"config\":{\"n\":" n "},\"inputs\":[{\"from\":\"" from  \
    "\",\"by\":[\"s\"]}]}"
#define OUT(id, topic, from)                                                                       \
    ",{\"id\":\"" id "\",\"type\":\"out\",\"config\":{\"topic\":\"" topic                          \
    "\"},\"inputs\":[\"" from "\"]}"

static void explained(const char *name, const char *text) {
    struct sbuf b = { 0 };
    explain_text(p, plan_find(p, name), &b);
    assert_string_equal(sbuf_str(&b), text);
    sbuf_free(&b);
}

static void test_reasons(void **state) {
    (void)state;
    run("a", "shared", SRC("t") MAP("m", "1", "in") AGG("g", "1", "m") OUT("o", "x", "g"));
    explained("a", "a: 4 tasks, 0 reused, 4 new; history shared\n"
                   "  in  face  new: nothing like it runs\n"
                   "  m   map   new: nothing like it runs\n"
                   "  g   agg   new: nothing like it runs\n"
                   "  o   out   new: nothing like it runs\n");
    run("b", "shared",
        SRC("t") MAP("m", "2", "in") MAP("same", "1", "in") MAP("twin", "1", "in")
            AGG("g", "2", "same") OUT("o", "y", "g"));
    explained("b", "b: 6 tasks, 3 reused, 3 new; history shared\n"
                   "  in    face  reused from a/in; history from 2014-05-13T16:53:21Z\n"
                   "  m     map   new: nearest is a/m, where x is 1, here 2\n"
                   "  same  map   reused from a/m; history from 2014-05-13T16:53:21Z\n"
                   "  twin  map   the same as task 'same' above: runs once\n"
                   "  g     agg   new: nearest is a/g, where n is 1, here 2\n"
                   "  o     out   new: its input 'g' is not shared\n");
    run("c", "own", SRC("t") MAP("m", "1", "in") AGG("g", "1", "m") OUT("o", "z", "g"));
    explained("c", "c: 4 tasks, 2 reused, 2 new; history own\n"
                   "  in  face  reused from a/in, b/in; history from 2014-05-13T16:53:21Z\n"
                   "  m   map   reused from a/m, b/same; history from 2014-05-13T16:53:21Z\n"
                   "  g   agg   private: equals a/g, which remembers rows since "
                   "2014-05-13T16:53:21Z; history is own\n"
                   "  o   out   new: its input 'g' is not shared\n");
    run("d", "shared",
        "{\"id\":\"in\",\"type\":\"face\",\"config\":{\"topic\":\"t\",\"start\":\"earliest\"}}"
        ",{\"id\":\"r\",\"type\":\"dice\",\"inputs\":[\"in\"]}"
        ",{\"id\":\"e\",\"type\":\"mail\",\"config\":{\"to\":\"x\"},\"inputs\":[\"r\"]}");
    explained("d", "d: 3 tasks, 0 reused, 3 new; history shared\n"
                   "  in  face  private: equals a/in, which started with the default start; this "
                   "one with {\"start\":\"earliest\"}\n"
                   "  r   dice  new: never shared, its output is not determined by its input\n"
                   "  e   mail  new: never shared, it has effects outside\n");
    run("e", "shared",
        SRC("t") MAP("m", "1", "in") ",{\"id\":\"g\",\"type\":\"agg\",\"config\":{\"n\":1},"
                                     "\"inputs\":[{\"from\":\"m\",\"by\":[\"a\"]}]}");
    explained("e", "e: 3 tasks, 2 reused, 1 new; history shared\n"
                   "  in  face  reused from a/in, b/in, c/in; history from 2014-05-13T16:53:21Z\n"
                   "  m   map   reused from a/m, b/same, c/m; history from 2014-05-13T16:53:21Z\n"
                   "  g   agg   new: a/g has the same parameters but other inputs or grouping\n");
    run("f", "shared", SRC("elsewhere") MAP("m", "1", "in"));
    explained("f", "f: 2 tasks, 0 reused, 2 new; history shared\n"
                   "  in  face  new: nothing like it runs on this input\n"
                   "  m   map   new: nothing like it runs on this input\n");
}

/* What it says holds however many tasks run: beyond EXPLAIN_COMPARED_MAX candidates it says so, and
 * "nothing like it" means nothing, not nothing among the first ones. */
static void test_many(void **state) {
    (void)state;
    char name[32], tasks[400];
    run("a", "shared", SRC("t") AGG("g", "1", "in"));
    for (int i = 0; i < EXPLAIN_COMPARED_MAX + 200; i++) {
        snprintf(name, sizeof name, "f%d", i);
        snprintf(tasks, sizeof tasks, SRC("t") MAP("m", "%d", "in"), i + 10);
        run(name, "shared", tasks);
    }
    run("b", "shared", SRC("t") AGG("g", "2", "in") MAP("m", "1", "in"));
    struct arena a = { 0 };
    struct explain *v = explain_flow(p, plan_find(p, "b"), &a);
    assert_int_equal(v[0].from_total, EXPLAIN_COMPARED_MAX + 201);
    assert_int_equal(v[1].kind, EXPLAIN_PARAMETER);
    assert_string_equal(inst_owner(v[1].other, &a), "a/g"); /* older than all the others */
    assert_false(v[1].more);
    assert_int_equal(v[2].kind, EXPLAIN_PARAMETER);
    assert_true(v[2].more);
    arena_free(&a);
    struct sbuf b = { 0 };
    explain_text(p, plan_find(p, "b"), &b);
    assert_non_null(strstr(sbuf_str(&b), "b: 3 tasks, 1 reused, 2 new"));
    assert_non_null(strstr(b.p, " and 1196 more"));
    assert_non_null(strstr(b.p, "nearest of 1000 that were compared is f"));
    sbuf_free(&b);
}

/* A secret that tells two tasks apart is named, not shown; paths lead to the deepest difference. */
static void test_difference(void **state) {
    (void)state;
    static const char with[] =
        SRC("t") ",{\"id\":\"v\",\"type\":\"any\",\"config\":{\"label\":\"A\",\"params\":{\"deep\":"
                 "[1,{\"k\":%s}]}},\"inputs\":[\"in\"]}";
    char tasks[500];
    for (int i = 0; i < 2; i++) {
        snprintf(tasks, sizeof tasks, with, i ? "\"b\"" : "2.50");
        run(i ? "b" : "a", "shared", tasks);
    }
    explained("b", "b: 2 tasks, 1 reused, 1 new; history shared\n"
                   "  in  face  reused from a/in; history from 2014-05-13T16:53:21Z\n"
                   "  v   any   new: nearest is a/v, where params/deep/1/k is 2.5, here \"b\"\n");
}

static void test_json(void **state) {
    (void)state;
    struct sbuf b = { 0 };
    struct show o = { 0 };
    char want[1500], sig[3][33];
    run("a", "shared", SRC("t") MAP("m", "1", "in"));
    run("b", "shared", SRC("t") MAP("n", "2", "in"));
    const struct flow *f = plan_find(p, "b");
    sig_text(f->stage[2]->def->sig, sig[0]);
    sig_text(plan_find(p, "a")->stage[3]->def->sig, sig[1]);
    sig_text(f->stage[3]->def->sig, sig[2]);
    show_json(p, &o, &b);
    snprintf(want, sizeof want,
             "{\"tasks\":[{\"id\":\"t3\",\"type\":\"face\",\"signature\":\"%s\",\"dataflows\":["
             "\"a\",\"b\"],\"rows_in\":0,\"rows_out\":0},\n"
             "{\"id\":\"t4\",\"type\":\"map\",\"signature\":\"%s\",\"dataflows\":[\"a\"],"
             "\"rows_in\":0,\"rows_out\":0},\n"
             "{\"id\":\"t5\",\"type\":\"map\",\"signature\":\"%s\",\"dataflows\":[\"b\"],"
             "\"rows_in\":0,\"rows_out\":0}],\n"
             "\"streams\":[{\"from\":\"t3\",\"to\":\"t4\"},{\"from\":\"t3\",\"to\":\"t5\"}]}\n",
             sig[0], sig[1], sig[2]);
    assert_string_equal(sbuf_str(&b), want);
    b.len = 0;
    explain_json(p, f, &b);
    snprintf(want, sizeof want,
             "{\"name\":\"b\",\"history\":\"shared\",\"reused\":1,\"new\":1,\"tasks\":["
             "{\"id\":\"in\",\"type\":\"face\",\"signature\":\"%s\",\"instance\":3,\"status\":"
             "\"reused\",\"why\":\"reused\",\"history_from\":\"2014-05-13T16:53:21Z\",\"reason\":"
             "\"reused from a/in\",\"reused_by\":1,\"reused_from\":[{\"dataflow\":\"a\",\"task\":"
             "\"in\"}]},{\"id\":\"n\",\"type\":\"map\",\"signature\":\"%s\",\"instance\":5,"
             "\"status\":\"new\",\"why\":\"parameter\",\"history_from\":\"2014-05-13T16:53:22Z\","
             "\"reason\":\"new: nearest is a/m, where x is 1, here 2\",\"dataflow\":\"a\",\"task\":"
             "\"m\",\"parameter\":\"x\",\"theirs\":\"1\",\"ours\":\"2\"}]}\n",
             sig[0], sig[2]);
    assert_string_equal(sbuf_str(&b), want);
    sbuf_free(&b);
}

static void test_tree(void **state) {
    (void)state;
    struct sbuf b = { 0 };
    struct show o = { .width = 60 };
    char name[8] = "f0";
    for (int i = 0; i < 5; i++, name[1]++)
        run(name, "shared", SRC("t") MAP("m", "7", "in"));
    run("pairs", "shared",
        SRC("t")
            MAP("m", "7",
                "in") ",{\"id\":\"both\",\"type\":\"pair\",\"inputs\":[\"in\",\"m\"]}" OUT("o",
                                                                                           "joined",
                                                                                           "both"));
    show_tree(p, &o, &b);
    assert_string_equal(sbuf_str(&b),
                        "in  face t                                                ×6\n"
                        "├─ m  map x=7                                             ×6\n"
                        "│  └─ both  pair                                       pairs\n"
                        "│     └─ o  out joined                                 pairs\n"
                        "└─ both (above)\n");
    b.len = 0;
    o.only = plan_find(p, "f1");
    show_tree(p, &o, &b);
    assert_string_equal(sbuf_str(&b),
                        "in  face t                                                ×6\n"
                        "└─ m  map x=7                                             ×6\n");
    b.len = 0;
    o.only = plan_find(p, "pairs");
    show_dot(p, &o, &b);
    assert_non_null(strstr(sbuf_str(&b), "subgraph \"cluster_pairs\""));
    assert_non_null(strstr(sbuf_str(&b), "t4 -> t5;"));
    sbuf_free(&b);
}

static void test_conflicts(void **state) {
    (void)state;
    run("owner", "shared", SRC("t") MAP("m", "1", "in") OUT("o", "x", "m"));
    run("equal", "shared", SRC("t") MAP("m", "1", "in") OUT("o", "x", "m")); /* shares the sink */
    assert_int_equal(p->counts.sinks, 1);
    refused(ERR_CONFLICT, "owner", SRC("t"),
            "f.json:1:19: /name: a dataflow 'owner' is running; remove it first, or choose another "
            "name");
    refused(ERR_CONFLICT, "other", SRC("t") MAP("m", "2", "in") OUT("o", "x", "m"),
            "f.json:1:202: /tasks/2/config/topic: topic 'x' is owned by dataflow 'owner' (task "
            "'o'); write another topic, or give \"append\": true in both");
    run("next", "shared", SRC("x") OUT("o", "y", "in"));
    refused(ERR_CONFLICT, "back", SRC("y") OUT("o", "t", "in"),
            "f.json:1:144: /tasks/1/config/topic: writing topic 't' would close a cycle: other "
            "dataflows carry it on into topic 'y', which this task's dataflow reads above it");
    char why[2000];
    assert_int_equal(submit("own", "own", SRC("t") AGG("g", "1", "in") OUT("o", "z", "g"), why), 0);
    plan_commit(p);
    assert_int_equal(submit("own2", "own", SRC("t") AGG("g", "1", "in") OUT("o", "z", "g"), why),
                     ERR_CONFLICT);
    assert_non_null(strstr(why, "does the same with another history"));
    struct err e = ERR_INIT;
    assert_int_equal(plan_remove(p, "ownr", NULL, &e), ERR_NOTFOUND);
    assert_string_equal(e.text, "there is no dataflow 'ownr'; did you mean 'owner'?");
}

static uint64_t last_instance(const char *name) {
    const struct flow *f = plan_find(p, name);
    return f->stage[f->nstages - 1]->def->instance;
}

/* Several requests at one cut share, whatever their history; so do removal and submit of one. */
static void test_one_cut(void **state) {
    (void)state;
    char why[2000];
    static const char tasks[] = SRC("t") AGG("g", "1", "in");
    run("old", "shared", tasks);
    assert_int_equal(submit("x", "own", tasks, why), 0);
    cut--; /* the same request */
    assert_int_equal(submit("y", "own", tasks, why), 0);
    assert_int_equal(plan_change(p)->nadd, 1); /* agg: once for both, beside that of old */
    plan_commit(p);
    assert_true(last_instance("x") == last_instance("y"));
    assert_true(last_instance("x") != last_instance("old"));
    run("z", "own", tasks);
    assert_true(last_instance("z") != last_instance("x"));
    run("s", "shared", tasks); /* joins the oldest */
    assert_true(last_instance("s") == last_instance("old"));

    uint64_t was = last_instance("z");
    assert_int_equal(plan_remove(p, "z", NULL, NULL), 0);
    assert_int_equal(submit("z", "shared", tasks, why), 0);
    const struct change *c = plan_change(p);
    assert_int_equal(c->nadd, 0);
    assert_int_equal(c->nremove, 1);
    assert_true(c->remove[0] == was);
    plan_rollback(p);
    assert_true(last_instance("z") == was);
    assert_int_equal(plan_find(p, "z")->history, HISTORY_OWN);
}

/* A reader of an out-port that nobody read so far: the running task is updated, not replaced. */
static void test_new_port(void **state) {
    (void)state;
    static const char any[] = SRC("t") ",{\"id\":\"v\",\"type\":\"any\",\"inputs\":[\"in\"]}";
    char tasks[600], why[2000];
    snprintf(tasks, sizeof tasks, "%s" MAP("m", "1", "v.one"), any);
    run("a", "shared", tasks);
    snprintf(tasks, sizeof tasks, "%s" MAP("m", "1", "v.two"), any);
    assert_int_equal(submit("b", "shared", tasks, why), 0);
    const struct change *c = plan_change(p);
    assert_int_equal(c->nadd, 1);
    assert_int_equal(c->nupdate, 1);
    assert_int_equal(c->update[0]->nout, 2);
    assert_string_equal(c->update[0]->out_name[0], "one");
    assert_string_equal(c->update[0]->out_name[1], "two");
    assert_int_equal(c->add[0]->links[0].out_port, 1);
    plan_rollback(p);
    assert_int_equal(plan_instance(p, 4)->def->nout, 1);
}

/* After a change of semantics the saved signature no longer holds: a fresh instance, not a wrong
 * one. */
static void test_restart_changed(void **state) {
    (void)state;
    struct sbuf saved = { 0 };
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct spec s;
    struct plan_cut c = { 99, 0 };
    run("a", "shared", SRC("t") AGG("g", "1", "in"));
    plan_save(p, plan_find(p, "a"), &saved);
    char *text = strdup(sbuf_str(&saved)), *sig = strstr(text, "\"agg\",\"sig\":\"");
    assert_non_null(sig);
    sig[14] = sig[14] == '0' ? '1' : '0'; /* as if agg had meant something else then */
    struct plan *q = plan_new();
    plan_set_next(q, p->version, plan_next(p));
    const struct flow *f = plan_find(p, "a");
    assert_int_equal(spec_parse(&s, NULL, f->text, f->len, NULL, &a, &es, NULL), 0);
    assert_int_equal(plan_restore(q, &s, text, strlen(text), &c, &es), 0);
    const struct flow *g = plan_find(q, "a");
    assert_int_equal(g->stage[2]->def->instance, f->stage[2]->def->instance);
    assert_int_equal(g->stage[3]->def->instance, plan_next(p));
    assert_int_equal(g->stage[3]->cut.id, 99);
    plan_free(q);
    q = plan_new(); /* the same meaning, but its state was kept in another form */
    plan_set_next(q, p->version, plan_next(p));
    struct sbuf other = { 0 };
    size_t at = (size_t)(sig - text) + 6;
    sbuf_add(&other, saved.p, at);
    sbuf_adds(&other, "\"state\":2,");
    sbuf_adds(&other, saved.p + at);
    assert_int_equal(plan_restore(q, &s, other.p, other.len, &c, &es), 0);
    g = plan_find(q, "a");
    assert_int_equal(g->stage[2]->def->instance, f->stage[2]->def->instance);
    assert_int_equal(g->stage[3]->def->instance, plan_next(p));
    plan_free(q);
    sbuf_free(&other);
    free(text);
    sbuf_free(&saved);
    arena_free(&a);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_reasons), T(test_many),     T(test_difference),
        T(test_json),    T(test_tree),     T(test_conflicts),
        T(test_one_cut), T(test_new_port), T(test_restart_changed),
    };
    plan_ops_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
