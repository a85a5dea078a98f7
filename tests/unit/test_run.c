/* `braid run` as a library: every shipped dataflow gives the same bytes however its input is cut
 * into batches, counts every row, and what cannot run says why. */
#include "cluster/flowfile.h"
#include "cluster/run.h"
#include "operators/all.h"
#include "tests/unit/flowrun.h"
#include "tests/unit/harness.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SINKS_MAX = 8, FLOWS_MAX = 64, INPUTS_MAX = 4 };
#define NOW 1772496000000 /* 2026-03-03: after all times in the data */

static const char *const dirs[] = { "dataflows/riotbench", "dataflows/examples", "dataflows/demo" };
static char flows[FLOWS_MAX][300];
static int nflows;

/* What came out of a run. */
struct result {
    XXH3_state_t *hash[SINKS_MAX];
    uint64_t sink[SINKS_MAX], rows[SINKS_MAX];
    int nsinks;
    uint64_t dead; /* sum of the letters' hashes: tasks may interleave theirs differently */
    struct run_totals totals;
};
struct source {
    const char *topic, *file;
};
static const struct source sources[] = {
    { "sys", "sys" },
    { "taxi", "taxi" },
    { "fit", "fit" },
    { "readings", "dataflows/examples/data/readings.json" },
    { "trips", "dataflows/examples/data/trips.csv" },
    { "doors", "dataflows/examples/data/doors.json" },
};

static int on_rows(void *arg, const struct run_sink *s, const struct batch *b) {
    struct result *r = arg;
    assert_in_range(s->index, 0, SINKS_MAX - 1);
    for (uint32_t i = 0; i < b->n; i++) {
        struct span v = b->cols[0].str[batch_row(b, i)];
        XXH3_64bits_update(r->hash[s->index], &v.len, sizeof v.len);
        XXH3_64bits_update(r->hash[s->index], v.p, v.len);
    }
    return 0;
}

static int on_dead(void *arg, const char *json, size_t len) {
    struct result *r = arg;
    r->dead += XXH3_64bits(json, len);
    return 0;
}

/* Loads a dataflow and fills the inputs it reads. */
static void load(const char *path, struct flowfile *f, struct arena *a, struct run_conf *conf,
                 struct run_input *in, const struct dataset_conf *how) {
    struct err e = ERR_INIT;
    struct errs es = { 0 };
    assert_int_equal(flowfile_load(f, path, a, &e), 0);
    if (flowfile_parse(f, &es, NULL) < 0)
        fail_msg("%s: %s", path, es.v[0].text);
    *conf = (struct run_conf){ .spec = &f->spec, .inputs = in, .now_ms = NOW };
    for (size_t k = 0; k < sizeof sources / sizeof *sources; k++)
        for (int i = 0; i < f->spec.nstages; i++) {
            const char *t = f->spec.stages[i].reads;
            if (!t || strcmp(t, sources[k].topic) != 0)
                continue;
            in[conf->ninputs].topic = t;
            in[conf->ninputs].data = *how;
            in[conf->ninputs++].data.source = sources[k].file;
            break;
        }
}

/* Every task of a shipped dataflow does something on its data: it puts rows out, and a filter turns
 * down some rows or values, but not all. */
static void check_work(const char *path, const struct run *run) {
    for (int i = 0; i < run_tasks(run); i++) {
        struct run_task t;
        run_task(run, i, &t);
        const struct op_counts *c = &t.counts;
        if ((strcmp(t.type, "sink") == 0 ? c->in : c->out) == 0)
            fail_msg("%s: task '%s' emits no row", path, t.id);
        if (!strstr(t.type, "filter"))
            continue;
        if (c->filtered + c->nulled == 0)
            fail_msg("%s: '%s' rejects nothing", path, t.id);
        if (c->filtered >= c->in || c->nulled >= c->in * 5)
            fail_msg("%s: '%s' rejects everything", path, t.id);
    }
    for (int i = 0; i < run_sinks(run); i++)
        if (run_sink(run, i)->rows == 0)
            fail_msg("%s: sink '%s' gets no row", path, run_sink(run, i)->name);
}

static void run_flow(const char *path, uint32_t batch, const struct dataset_conf *how,
                     struct result *r) {
    struct arena a = { 0 };
    struct flowfile f;
    struct run_conf conf;
    struct run_input in[INPUTS_MAX];
    struct run *run;
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    const char *task = "";
    load(path, &f, &a, &conf, in, how);
    memset(r, 0, sizeof *r);
    for (int i = 0; i < SINKS_MAX; i++) {
        r->hash[i] = XXH3_createState();
        XXH3_64bits_reset(r->hash[i]);
    }
    conf.batch_rows = batch;
    conf.rows = on_rows;
    conf.dead = on_dead;
    conf.arg = r;
    if (run_open(&run, &conf, &es) < 0)
        fail_msg("%s: %s", path, es.v[0].text);
    if (run_all(run, &e) < 0)
        fail_msg("%s: %s", path, e.text);
    if (!run_conserved(run, &task))
        fail_msg("%s: rows of task %s do not add up", path, task);
    if (!how->shuffle)
        check_work(path, run);
    run_totals(run, &r->totals);
    r->nsinks = run_sinks(run);
    for (int i = 0; i < SINKS_MAX; i++) {
        r->sink[i] = XXH3_64bits_digest(r->hash[i]);
        XXH3_freeState(r->hash[i]);
        r->rows[i] = i < r->nsinks ? run_sink(run, i)->rows : 0;
    }
    run_close(run);
    arena_free(&a);
}

static void same(const char *path, uint32_t batch, uint64_t seed, const struct result *x,
                 const struct result *y) {
    for (int i = 0; i < x->nsinks; i++)
        if (x->sink[i] != y->sink[i] || x->rows[i] != y->rows[i])
            fail_msg(
                "%s, seed %llu: sink %d differs with batches of %u (%llu rows, %llu with 1024)",
                path, (unsigned long long)seed, i, batch, (unsigned long long)x->rows[i],
                (unsigned long long)y->rows[i]);
    assert_int_equal(x->totals.records, y->totals.records);
    assert_int_equal(x->totals.dead, y->totals.dead);
    assert_true(x->dead == y->dead);
}

static int files_first(const void *a, const void *b) {
    return strcmp(a, b);
}

static int find_flows(void **state) {
    (void)state;
    operators_init();
    setenv("LIMIT", "21", 1); /* examples/12-variables */
    for (size_t d = 0; d < sizeof dirs / sizeof *dirs; d++) {
        DIR *dir = opendir(dirs[d]);
        assert_non_null(dir);
        for (struct dirent *f; (f = readdir(dir));) {
            size_t n = strlen(f->d_name);
            if (n > 5 && strcmp(f->d_name + n - 5, ".json") == 0 && nflows < FLOWS_MAX)
                snprintf(flows[nflows++], sizeof flows[0], "%s/%s", dirs[d], f->d_name);
        }
        closedir(dir);
    }
    qsort(flows, (size_t)nflows, sizeof flows[0], files_first);
    return nflows > 20 ? 0 : -1;
}

/* 1, 7 and 1,024 rows a batch, on the files as they are; no task of them is idle. */
static void test_batches(void **state) {
    (void)state;
    static const uint32_t sizes[] = { 1, 7 };
    for (int i = 0; i < nflows; i++) {
        struct dataset_conf how = { .loop = strstr(flows[i], "stats-") ? 12 : 2 };
        struct result whole, cut;
        if (strstr(flows[i], "examples"))
            how.loop = 1;
        run_flow(flows[i], 1024, &how, &whole);
        for (int k = 0; k < 2; k++) {
            run_flow(flows[i], sizes[k], &how, &cut);
            same(flows[i], sizes[k], 0, &cut, &whole);
        }
    }
}

/* Out of order, late, with other keys; random sizes. */
static void test_random_batches(void **state) {
    (void)state;
    uint64_t seed = test_seed(1), rnd = seed;
    for (int round = 0; round < test_scale(40); round++) {
        const char *path = flows[test_random(&rnd) % (uint64_t)nflows];
        uint32_t batch = 1 + (uint32_t)(test_random(&rnd) % 1023);
        struct dataset_conf how = { .loop = 1 + (int64_t)(test_random(&rnd) % 3),
                                    .shuffle = 1 + (uint32_t)(test_random(&rnd) % 50),
                                    .jitter_ms = (int64_t)(test_random(&rnd) % 20000),
                                    .seed = test_random(&rnd) };
        struct result whole, cut;
        run_flow(path, 1024, &how, &whole);
        run_flow(path, batch, &how, &cut);
        same(path, batch, seed, &cut, &whole);
    }
}

static int open_only(const char *path, struct run_conf *change, struct errs *es) {
    struct arena a = { 0 };
    struct flowfile f;
    struct run_conf conf;
    struct run_input in[INPUTS_MAX] = { 0 };
    struct dataset_conf how = { 0 };
    struct run *run;
    load(path, &f, &a, &conf, in, &how);
    if (change->inputs)
        conf.inputs = change->inputs;
    conf.ninputs = change->ninputs;
    int rc = run_open(&run, &conf, es);
    run_close(run);
    arena_free(&a);
    return rc;
}

static void test_inputs(void **state) {
    (void)state;
    struct errs es = { 0 };
    struct run_conf none = { 0 };
    assert_int_equal(open_only("dataflows/examples/01-clean.json", &none, &es), ERR_INPUT);
    assert_string_equal(es.v[0].text,
                        "topic 'readings' has no input; give it one with --in readings=FILE");
    errs_free(&es);
    struct run_input two[] = { { "readings",
                                 { .source = "dataflows/examples/data/readings.json" } },
                               { "rooms", { .source = "dataflows/examples/data/rooms.txt" } } };
    struct run_conf odd = { .inputs = two, .ninputs = 2 };
    assert_int_equal(open_only("dataflows/examples/01-clean.json", &odd, &es), ERR_INPUT);
    assert_string_equal(es.v[0].text, "no source reads topic 'rooms', for which there is an input");
    errs_free(&es);
    struct run_input gone[] = { { "readings", { .source = "no/such/file" } } };
    struct run_conf away = { .inputs = gone, .ninputs = 1 };
    assert_int_equal(open_only("dataflows/examples/01-clean.json", &away, &es), ERR_NOTFOUND);
    errs_free(&es);
}

struct stopping {
    struct run *run;
    uint64_t rows, stop_at, fail_at;
};

static int stop_rows(void *arg, const struct run_sink *s, const struct batch *b) {
    struct stopping *t = arg;
    (void)s;
    t->rows += b->n;
    if (t->stop_at && t->rows >= t->stop_at)
        run_stop(t->run);
    return t->fail_at && t->rows >= t->fail_at ? ERR_SYSTEM : 0;
}

/* A limit, a stop from outside and an error of a sink end the run where they say. */
static void test_ends(void **state) {
    (void)state;
    static const struct {
        uint64_t limit, stop_at, fail_at, rows;
        int rc;
    } cases[] = { { 150, 0, 0, 150, 0 },
                  { 0, 0, 0, 200, 0 },
                  { 0, 30, 0, 30, 0 },
                  { 0, 0, 50, 50, ERR_SYSTEM },
                  { 5000, 0, 0, 200, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = { 0 };
        struct flowfile f;
        struct run_conf conf;
        struct run_input in[INPUTS_MAX];
        struct dataset_conf how = { 0 };
        struct stopping t = { .stop_at = cases[i].stop_at, .fail_at = cases[i].fail_at };
        struct errs es = { 0 };
        struct err e = ERR_INIT;
        char path[] = "/tmp/braid-run-XXXXXX";
        static const char text[] =
            "{\"braid\":1,\"name\":\"ends\",\"tasks\":[{\"id\":\"in\",\"type\":\"generator\","
            "\"config\":{\"fields\":{\"n\":{\"sequence\":0}},\"count\":200}},{\"id\":\"out\","
            "\"type\":\"sink\",\"config\":{\"topic\":\"t\"},\"inputs\":[\"in\"]}]}";
        FILE *file = fdopen(mkstemp(path), "w");
        fputs(text, file);
        fclose(file);
        load(path, &f, &a, &conf, in, &how);
        conf.limit = (int64_t)cases[i].limit;
        conf.batch_rows = 10;
        conf.rows = stop_rows;
        conf.arg = &t;
        assert_int_equal(run_open(&t.run, &conf, &es), 0);
        assert_int_equal(run_all(t.run, &e), cases[i].rc);
        assert_int_equal(t.rows, cases[i].rows);
        run_close(t.run);
        remove(path);
        arena_free(&a);
    }
}

/* Records count as received at `now`: what claims to be from a later day is a dead letter. */
static void test_now(void **state) {
    (void)state;
    struct arena a = { 0 };
    struct flowfile f;
    struct run_conf conf;
    struct run_input in[INPUTS_MAX];
    struct dataset_conf how = { 0 };
    struct run *run;
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct run_totals t;
    load("dataflows/examples/01-clean.json", &f, &a, &conf, in, &how);
    conf.now_ms = 1772262300000; /* 2026-02-28T07:05Z; the readings begin at 08:00 the day after */
    assert_int_equal(run_open(&run, &conf, &es), 0);
    assert_int_equal(run_all(run, &e), 0);
    run_totals(run, &t);
    assert_int_equal(t.records, 122);
    assert_int_equal(t.dead, 122);
    assert_int_equal(t.ncodes, 3);
    int far = 0;
    while (far < t.ncodes && strcmp(t.codes[far].code, "too_far_ahead") != 0)
        far++;
    assert_in_range(far, 0, t.ncodes - 1);
    assert_int_equal(t.codes[far].n, 120);
    run_close(run);
    arena_free(&a);
}

/* A file that a task reads as CSV has records of several lines, in both spellings of the source. */
static void test_csv_lines(void **state) {
    (void)state;
    static const char *const tasks[] = {
        "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"csv\","
        "\"delimiter\":\";\",\"schema\":{\"id\":\"i64\",\"s\":\"string\"}}},",
        "{\"id\":\"raw\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"raw\"}},"
        "{\"id\":\"in\",\"type\":\"csv_parse\",\"config\":{\"delimiter\":\";\",\"schema\":{\"id\":"
        "\"i64\",\"s\":\"string\"}},\"inputs\":[\"raw\"]},",
    };
    static const char text[] = "1;\"a;\nb\"\r\n2;\"open\n3;c\n";
    char file[] = "/tmp/braid-test-run-XXXXXX", json[1024];
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    for (int i = 0; i < 2; i++) {
        struct flowrun r;
        struct dataset_conf data = { .source = file };
        snprintf(
            json, sizeof json,
            "{\"braid\":1,\"name\":\"x\",\"tasks\":[%s{\"id\":\"o\",\"type\":\"sink\",\"config\":"
            "{\"topic\":\"o\",\"format\":\"json\"},\"inputs\":[\"in\"]}]}",
            tasks[i]);
        flowrun_text(&r, json, &data, 0);
        assert_int_equal(r.records, 3);
        assert_int_equal(r.dead, 1);
        assert_string_equal(sbuf_str(&r.sink[0].out),
                            "{\"id\":1,\"s\":\"a;\\nb\"}\n{\"id\":3,\"s\":\"c\"}\n");
        flowrun_free(&r);
    }
    unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches), cmocka_unit_test(test_random_batches),
        cmocka_unit_test(test_inputs),  cmocka_unit_test(test_ends),
        cmocka_unit_test(test_now),     cmocka_unit_test(test_csv_lines),
    };
    return cmocka_run_group_tests(tests, find_flows, NULL);
}
