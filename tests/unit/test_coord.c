/* The coordinator in process: what runs comes back, a change that fails leaves nothing, states tell
 * what is wrong. */
#include "cluster/coord.h"
#include "cluster/coord_impl.h"
#include "cluster/events.h"
#include "cluster/ingest.h"
#include "cluster/stats.h"
#include "cluster/view.h"
#include "engine/files.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/scratch.h"
#include "tests/unit/world.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the coordinator ---- */

static _Atomic int disk_full, cut_fails;

static ssize_t full_pwritev(void *ctx, int fd, const struct iovec *iov, int n, int64_t at) {
    return disk_full ? -ENOSPC : files_real.pwritev(ctx, fd, iov, n, at);
}

static _Atomic int sync_fails;

static int failing_datasync(void *ctx, int fd) {
    return sync_fails ? -EIO : files_real.datasync(ctx, fd);
}

static int failing_truncate(void *ctx, int fd, int64_t size) {
    return cut_fails ? -EIO : files_real.truncate(ctx, fd, size);
}

static struct coord *open_durable(enum log_durability durability) {
    static struct log_files files;
    struct coord *c;
    struct err e = ERR_INIT;
    files = files_real;
    files.pwritev = full_pwritev;
    files.datasync = failing_datasync;
    files.truncate = failing_truncate;
    struct coord_conf conf = { .dir = scratch_dir, .files = &files, .durability = durability };
    if (coord_open(&c, &conf, &e) < 0)
        fail_msg("%s", e.text);
    return c;
}

static struct coord *open_coord(void) {
    return open_durable(LOG_PROCESS);
}

static char *copy_spec(const char *name, const char *from, const char *to) {
    static char text[1024];
    snprintf(text, sizeof text,
             "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
             "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"%s\"}},"
             "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"%s\",\"format\":\"raw\"},"
             "\"inputs\":[\"in\"]}]}",
             name, from, to);
    return text;
}

static int submit(struct coord *c, const char *text, char *error, size_t size) {
    struct errs es = { 0 };
    struct sbuf out = { 0 };
    struct coord_spec spec = { .file = "test.json", .text = text, .len = strlen(text) };
    int rc = coord_submit(c, &spec, 1, false, &out, &es);
    snprintf(error, size, "%s", es.n ? es.v[0].text : "");
    errs_free(&es);
    sbuf_free(&out);
    return rc;
}

static void submit_ok(struct coord *c, const char *text) {
    char error[800];
    if (submit(c, text, error, sizeof error) < 0)
        fail_msg("%s", error);
}

static bool shows(struct coord *c, const char *name, const char *what) {
    struct sbuf out = { 0 };
    bool found = view_show(c, name, &out, NULL) == 0 && strstr(sbuf_str(&out), what);
    sbuf_free(&out);
    return found;
}

/* Waits for what another thread does; the limit is only for a test that fails. */
static void await(struct coord *c, const char *name, const char *what) {
    for (int i = 0; i < 3000 && !shows(c, name, what); i++)
        usleep(10000);
    if (!shows(c, name, what))
        fail_msg("'%s' never showed %s", name, what);
}

/* Counters run ahead of the commit; what a topic holds does not. */
static void await_end(struct coord *c, const char *topic, int64_t end) {
    for (int i = 0; i < 3000 && scratch_end(coord_log(c), topic) < end; i++)
        usleep(10000);
    assert_int_equal(scratch_end(coord_log(c), topic), end);
}

static void post_to(struct coord *c, const char *topic, int n) {
    struct ingest_rows rows;
    struct ingest_answer a;
    struct err e = ERR_INIT;
    struct sbuf text = { 0 };
    for (int i = 0; i < n; i++)
        sbuf_printf(&text, "row %d\n", i);
    assert_int_equal(ingest_lines(&rows, text.p, text.len, &e), 0);
    if (ingest_post(coord_ingest(c), topic, INGEST_ANY, NULL, 0, &rows, &a, &e) < 0)
        fail_msg("%s", e.text);
    ingest_rows_free(&rows);
    sbuf_free(&text);
}

static void test_restart(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct sbuf before = { 0 }, after = { 0 };
    struct err e = ERR_INIT;
    submit_ok(c, copy_spec("a", "t", "a"));
    post_to(c, "t", 5);
    await_end(c, "a", 5);
    submit_ok(c, copy_spec("b", "t", "b"));
    submit_ok(c, copy_spec("x", "t", "x"));
    assert_int_equal(coord_remove(c, "x", false, &before, &e), 0);
    assert_int_equal(coord_remove(c, "x", false, &before, &e), ERR_NOTFOUND);
    before.len = 0;
    view_graph(c, VIEW_DOT, 0, &before);
    assert_true(shows(c, "b", "\"history_from\":{\"topic\":\"t\",\"offset\":5}"));
    coord_close(c);
    c = open_coord();
    view_graph(c, VIEW_DOT, 0, &after);
    assert_string_equal(sbuf_str(&after), sbuf_str(&before)); /* the same instances */
    assert_true(shows(c, "b", "\"history_from\":{\"topic\":\"t\",\"offset\":5}"));
    post_to(c, "t", 2);
    await_end(c, "a", 7);
    await_end(c, "b", 2);
    assert_true(shows(c, "b", "\"rows_out\":2"));
    submit_ok(c, copy_spec("y", "t", "y")); /* numbers are not given again */
    coord_close(c);
    c = open_coord();
    assert_true(shows(c, "y", "\"state\":\"RUNNING\""));
    coord_close(c);
    sbuf_free(&before);
    sbuf_free(&after);
}

/* A binding that no longer fits, as after a change of what an operator means, is not guessed at. */
static void test_changed_signature(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct journal j;
    struct arena a = { 0 };
    struct err e = ERR_INIT;
    submit_ok(c, copy_spec("a", "t", "a"));
    coord_close(c);
    struct log *log = scratch_log();
    assert_int_equal(journal_read(&j, log, &a, &e), 0);
    char *sig = strstr(j.flows[0].plan, "\"sig\":\"") + 7;
    *sig = *sig == '0' ? '1' : '0';
    struct log_epoch *ep = log_epoch_begin(log);
    scratch_put_flow(ep, &j.flows[0]);
    assert_int_equal(log_commit_wait(ep, NULL, &e), LOG_COMMITTED);
    log_close(log);
    struct coord_conf conf = { .dir = scratch_dir };
    assert_int_equal(coord_open(&c, &conf, &e), ERR_SYSTEM);
    assert_non_null(strstr(e.text, "dataflow 'a' cannot be brought back"));
    assert_non_null(strstr(e.text, "something else"));
    arena_free(&a);
}

/* What cannot be planned or started leaves no dataflow and no topic. */
static void test_refused(void **state) {
    (void)state;
    struct coord *c = open_coord();
    char error[800];
    struct log_topic_info info;
    assert_int_equal(submit(c, "{", error, sizeof error), ERR_INPUT);
    assert_int_equal(submit(c, copy_spec("a", "t", "bad topic"), error, sizeof error), ERR_INPUT);
    assert_int_equal(log_topic_info(coord_log(c), "t", &info, NULL), ERR_NOTFOUND);
    submit_ok(c, copy_spec("a", "t", "o"));
    assert_int_equal(submit(c, copy_spec("a", "t", "p"), error, sizeof error), ERR_CONFLICT);
    assert_int_equal(submit(c, copy_spec("b", "u", "o"), error, sizeof error), ERR_CONFLICT);
    assert_int_equal(submit(c, copy_spec("c", "o", "t"), error, sizeof error), ERR_CONFLICT);
    assert_int_equal(log_topic_info(coord_log(c), "u", &info, NULL), ERR_NOTFOUND);
    struct sbuf out = { 0 };
    struct errs es = { 0 };
    char second[1024];
    snprintf(second, sizeof second, "%s", copy_spec("good", "v", "w"));
    struct coord_spec both[2] = { { .file = "", .text = second, .len = strlen(second) },
                                  { .file = "", .text = "[]", .len = 2 } };
    assert_int_equal(coord_submit(c, both, 2, false, &out, &es), ERR_INPUT);
    assert_false(shows(c, "good", ""));
    errs_free(&es);
    assert_int_equal(coord_submit(c, both, 1, true, &out, &es), 0); /* dry */
    assert_false(shows(c, "good", ""));
    assert_int_equal(log_topic_info(coord_log(c), "v", &info, NULL), ERR_NOTFOUND);
    assert_int_equal(coord_submit(c, both, 1, false, &out, &es), 0);
    assert_true(shows(c, "good", ""));
    sbuf_free(&out);
    coord_close(c);
}

static void inject(void *arg, struct exec *ex) {
    (void)ex;
    executor_inject_abort(arg);
}

/* An epoch that carries a submit is refused: it is tried again, and counts once. */
static void test_aborted_submit(void **state) {
    (void)state;
    struct coord *c = open_coord();
    submit_ok(c, copy_spec("a", "t", "a"));
    for (int i = 0; i < test_scale(20); i++) {
        char name[16], topic[16];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(topic, sizeof topic, "o%d", i);
        executor_visit(coord_executor(c), inject, coord_executor(c));
        submit_ok(c, copy_spec(name, "t", topic));
        post_to(c, "t", 1);
        await_end(c, topic, 1);
        if (i % 2) {
            struct sbuf out = { 0 };
            executor_visit(coord_executor(c), inject, coord_executor(c));
            assert_int_equal(coord_remove(c, name, false, &out, NULL), 0);
            sbuf_free(&out);
        }
    }
    int n = test_scale(20);
    coord_close(c);
    c = open_coord();
    assert_true(shows(c, "f0", "RUNNING"));
    assert_true(n < 2 || !shows(c, "f1", ""));
    assert_int_equal(scratch_end(coord_log(c), "a"), n);
    coord_close(c);
}

/* A full disk: posts are refused as retriable, dataflows are degraded and say why; with room again
 * everything goes on and nothing has been lost or doubled. */
static void test_disk_full(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct ingest_rows rows;
    struct ingest_answer a;
    struct err e = ERR_INIT;
    submit_ok(c, copy_spec("a", "t", "a"));
    post_to(c, "t", 3);
    await_end(c, "a", 3);
    disk_full = 1;
    assert_int_equal(ingest_lines(&rows, "lost\n", 5, &e), 0);
    assert_int_equal(ingest_post(coord_ingest(c), "t", INGEST_ANY, "p", 1, &rows, &a, &e),
                     ERR_SYSTEM);
    assert_true(e.retriable);
    assert_int_equal(scratch_end(coord_log(c), "t"), 3);
    disk_full = 0;
    assert_int_equal(ingest_post(coord_ingest(c), "t", INGEST_ANY, "p", 1, &rows, &a, &e), 0);
    assert_false(a.duplicate);
    assert_int_equal(a.offset, 3);
    await_end(c, "a", 4);
    ingest_rows_free(&rows);
    coord_close(c);
    c = open_coord();
    assert_int_equal(scratch_end(coord_log(c), "a"), 4);
    coord_close(c);
}

static void *submit_slowly(void *arg) {
    submit_ok(arg, copy_spec("late", "t", "late"));
    return NULL;
}

/* A submit while the disk is full waits, lists do not, and it counts once there is room. */
static void test_submit_on_full_disk(void **state) {
    (void)state;
    struct coord *c = open_coord();
    pthread_t t;
    struct sbuf out = { 0 };
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct executor_health h = { 0 };
    submit_ok(c, copy_spec("a", "t", "a"));
    assert_int_equal(log_topic_create(coord_log(c), "late", &tc, NULL), 0);
    disk_full = 1;
    assert_int_equal(pthread_create(&t, NULL, submit_slowly, c), 0);
    for (int i = 0; i < 3000 && !h.degraded; i++) {
        usleep(1000);
        executor_health(coord_executor(c), &h);
    }
    assert_true(h.degraded);
    view_list(c, &out);
    assert_non_null(strstr(sbuf_str(&out), "\"state\":\"DEGRADED\""));
    assert_null(strstr(sbuf_str(&out), "late"));
    struct event ev;
    uint64_t last = events_last(coord_events(c));
    events_look(coord_events(c), c);
    assert_true(events_get(coord_events(c), last, &ev));
    assert_string_equal(ev.kind, "degraded");
    disk_full = 0;
    pthread_join(t, NULL);
    await(c, "late", "\"state\":\"RUNNING\"");
    usleep(600000); /* looks closer together do nothing */
    last = events_last(coord_events(c));
    events_look(coord_events(c), c);
    assert_true(events_get(coord_events(c), last, &ev));
    assert_string_equal(ev.kind, "recovered");
    assert_string_equal(ev.dataflow, "a");
    sbuf_free(&out);
    coord_close(c);
}

static struct stat_entry *entry_of(struct stats *st, uint64_t instance) {
    struct stat_entry *en = (struct stat_entry *)stats_find(st, instance);
    assert_non_null(en);
    return en;
}

/* While commits are retried the last snapshot is given again, as a copy that lives without it. */
static void test_stats_on_full_disk(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct executor_health h = { 0 };
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    pthread_t t;
    submit_ok(c, copy_spec("a", "t", "a"));
    assert_int_equal(log_topic_create(coord_log(c), "late", &tc, NULL), 0);
    struct stats *before = stats_get(c);
    uint64_t instance = before->v[0].instance;
    entry_of(before, instance)->s.held_for = arena_strdup(&before->arena, "u");
    entry_of(before, instance)->error = arena_strdup(&before->arena, "why");
    disk_full = 1;
    assert_int_equal(pthread_create(&t, NULL, submit_slowly, c), 0);
    for (int i = 0; i < 3000 && !h.degraded; i++) {
        usleep(1000);
        executor_health(coord_executor(c), &h);
    }
    struct stats *during = stats_get(c);
    assert_true(during->health.degraded);
    disk_full = 0;
    pthread_join(t, NULL);
    await(c, "late", "\"state\":\"RUNNING\"");
    const struct stat_entry *was = entry_of(before, instance), *is = entry_of(during, instance);
    assert_ptr_not_equal(is->s.held_for, was->s.held_for);
    assert_ptr_not_equal(is->error, was->error);
    stats_unref(before);
    assert_string_equal(is->s.held_for, "u");
    assert_string_equal(is->error, "why");
    stats_unref(during);
    coord_close(c);
}

/* A sync that fails leaves it open whether a commit is durable: the executor stops, everybody is
 * told, and a restart finds out. */
static void test_unknown_outcome(void **state) {
    (void)state;
    struct coord *c = open_durable(LOG_POWER);
    struct sbuf out = { 0 };
    struct err e = ERR_INIT;
    char error[800];
    submit_ok(c, copy_spec("a", "t", "a"));
    post_to(c, "t", 2);
    await_end(c, "a", 2);
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    assert_int_equal(log_topic_create(coord_log(c), "b", &tc, &e), 0);
    sync_fails = 1;
    assert_int_equal(submit(c, copy_spec("b", "t", "b"), error, sizeof error), ERR_SYSTEM);
    if (!strstr(error, "executor stopped"))
        fail_msg("%s", error);
    assert_true(shows(c, "a", "\"state\":\"FAILED\""));
    assert_true(shows(c, "a", "the outcome of one is not known"));
    assert_true(shows(c, "a", "; restart the server"));
    assert_int_equal(submit(c, copy_spec("d", "t", "d"), error, sizeof error), ERR_SYSTEM);
    assert_non_null(strstr(error, "restart"));
    assert_int_equal(coord_remove(c, "a", false, &out, &e), ERR_SYSTEM);
    sync_fails = 0;
    coord_close(c);
    c = open_durable(LOG_POWER);
    assert_true(shows(c, "a", "\"state\":\"RUNNING\""));
    post_to(c, "t", 1);
    await_end(c, "a", 3);
    sbuf_free(&out);
    coord_close(c);
}

/* Rows without end, as fast as they are taken. A commit is a frame of the commit log alone. */
static const char endless[] =
    "{\"braid\":1,\"name\":\"endless\",\"tasks\":[{\"id\":\"in\",\"type\":\"generator\",\"config\":"
    "{\"pace\":false,\"fields\":{\"v\":{\"sequence\":0}}}},{\"id\":\"out\",\"type\":\"sink\","
    "\"config\":{\"discard\":true},\"inputs\":[\"in\"]}]}";

static void visited(void *arg, struct exec *ex) {
    *(int *)arg += exec_sources(ex);
}

/* The outcome of a commit is unknown: the executor stops, says so, refuses changes; visitors (who
 * give up taps, among others) and the end of the server get through. */
static void test_unknown_to_visitors(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct executor_health h = { 0 };
    char error[800];
    int sources = 0;
    submit_ok(c, endless);
    cut_fails = disk_full = 1;
    for (int i = 0; i < 3000 && !h.failed; i++) {
        executor_visit(coord_executor(c), visited, &sources);
        assert_int_equal(sources, i + 1);
        executor_health(coord_executor(c), &h);
    }
    for (int i = 0; i < 3000 && !h.failed; i++) {
        usleep(1000);
        executor_health(coord_executor(c), &h);
    }
    assert_true(h.failed);
    sources = 0;
    executor_visit(coord_executor(c), visited, &sources);
    assert_int_equal(sources, 1);
    assert_int_equal(submit(c, copy_spec("a", "t", "a"), error, sizeof error), ERR_SYSTEM);
    coord_close(c);
    cut_fails = disk_full = 0;
    c = open_coord();
    assert_true(shows(c, "endless", "\"state\":\"RUNNING\""));
    coord_close(c);
}

static void assert_file(const char *name, const char *want) {
    char path[256], text[64] = "";
    snprintf(path, sizeof path, "%s/out/%s", scratch_dir, name);
    for (int i = 0; i < 3000 && strcmp(text, want) != 0; i++) {
        usleep(1000);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
    }
    assert_string_equal(text, want);
}

/* A sink that writes a file, in a directory of its own: no topic is made for it; after a restart it
 * goes on at the end. */
static void test_file_sink(void **state) {
    (void)state;
    static const char text[] = "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"in\",\"type\":"
                               "\"source\",\"config\":{\"topic\":"
                               "\"t\"}},{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"file\":\"a/"
                               "b/c.txt\",\"format\":\"raw\"},"
                               "\"inputs\":[\"in\"]}]}";
    struct coord *c = open_coord();
    submit_ok(c, text);
    post_to(c, "t", 2);
    assert_file("a/b/c.txt", "row 0\nrow 1\n");
    await(c, "f", "\"rows_out\":2");
    coord_close(c);
    c = open_coord();
    post_to(c, "t", 1);
    assert_file("a/b/c.txt", "row 0\nrow 1\nrow 0\n");
    coord_close(c);
}

/* A source that never runs dry does not hold up the end of the server. */
static void test_stop_under_load(void **state) {
    (void)state;
    struct coord *c = open_coord();
    submit_ok(c, endless);
    await(c, "endless", "\"rows_out\":");
    usleep(100000);
    coord_close(c);
}

/* A source whose topic goes away under it: its dataflows fail and say why, others run on. */
static void test_failed_source(void **state) {
    (void)state;
    struct coord *c = open_coord();
    struct err e = ERR_INIT;
    submit_ok(c, copy_spec("a", "t", "a"));
    submit_ok(c, copy_spec("b", "u", "b"));
    post_to(c, "t", 1);
    await(c, "a", "\"rows_out\":1");
    struct coord_topic_use use;
    coord_topic_use(c, "t", &use);
    assert_int_equal(use.readers, 1);
    assert_string_equal(use.reader, "a");
    assert_int_equal(log_topic_delete(coord_log(c), "t", &e), 0);
    post_to(c, "u", 1);
    await(c, "b", "\"rows_out\":1");
    await(c, "a", "\"state\":\"FAILED\"");
    assert_true(shows(c, "b", "\"state\":\"RUNNING\""));
    struct event ev;
    uint64_t last = events_last(coord_events(c));
    events_look(coord_events(c), c);
    assert_true(events_get(coord_events(c), last, &ev));
    assert_string_equal(ev.kind, "failed");
    assert_string_equal(ev.dataflow, "a");
    assert_true(ev.text[0]);
    assert_false(events_get(coord_events(c), ev.number, &ev));
    coord_close(c);
}

/* A record whose key no table can hold is a dead letter, for every kind of stateful task; it
 * neither stops the server nor meets it again after a restart. */
static void test_long_key(void **state) {
    (void)state;
    static const char *const task[] = {
        "\"kalman\",\"config\":{\"fields\":[\"v\"]}",
        "\"interpolate\",\"config\":{\"fields\":[\"v\"]}",
        "\"block_average\",\"config\":{\"fields\":[\"v\"],\"window\":1}",
        "\"distinct_count\",\"config\":{\"fields\":[\"v\"]}",
        "\"join\",\"config\":{\"id\":\"k\",\"name_field\":\"o\",\"value_field\":\"v\",\"need\":"
        "[\"a\"]}",
    };
    int n = (int)(sizeof task / sizeof *task);
    struct coord *c = open_coord();
    for (int i = 0; i < n; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"braid\":1,\"name\":\"f%d\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\","
                 "\"config\":{\"topic\":\"t\",\"format\":\"json\",\"schema\":{\"k\":\"string\","
                 "\"o\":\"string\",\"v\":\"f64\"}}},{\"id\":\"key\",\"type\":%s,\"inputs\":"
                 "[{\"from\":\"in\"%s}]},{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":"
                 "\"o%d\",\"format\":\"json\"},\"inputs\":[\"key\"]}]}",
                 i, task[i], i + 1 < n ? ",\"by\":[\"k\"]" : "", i);
        submit_ok(c, text);
    }
    struct ingest_rows rows;
    struct ingest_answer a;
    struct err e = ERR_INIT;
    struct sbuf text = { 0 };
    static const int length[] = { 70000, 65530, 65000, 40000, 5 };
    for (int i = 0; i < 5; i++) {
        sbuf_adds(&text, "{\"o\":\"a\",\"v\":1,\"k\":\"");
        for (int k = 0; k < length[i]; k++)
            sbuf_adds(&text, "x");
        sbuf_adds(&text, "\"}\n");
    }
    assert_int_equal(ingest_lines(&rows, text.p, text.len, &e), 0);
    assert_int_equal(ingest_post(coord_ingest(c), "t", INGEST_ANY, NULL, 0, &rows, &a, &e), 0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < n; i++) {
            char topic[8];
            snprintf(topic, sizeof topic, "o%d", i);
            await_end(c, topic, 1);
        }
        assert_int_equal(scratch_end(coord_log(c), EXECUTOR_DLQ), 4 * n);
        coord_close(c);
        c = open_coord();
    }
    ingest_rows_free(&rows);
    sbuf_free(&text);
    coord_close(c);
}

/* Threads submit and remove at once, others look on. */
static void *change_all(void *arg) {
    struct coord *c = arg;
    static _Atomic int number;
    for (int i = 0; i < test_scale(20); i++) {
        char name[16], topic[16];
        struct sbuf out = { 0 };
        int k = number++;
        snprintf(name, sizeof name, "n%d", k);
        snprintf(topic, sizeof topic, "n%d", k);
        struct errs es = { 0 };
        char text[1024];
        snprintf(
            text, sizeof text,
            "{\"braid\":1,\"name\":\"%s\",\"tasks\":["
            "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"t\"}},"
            "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"%s\",\"format\":\"raw\"}"
            ",\"inputs\":[\"in\"]}]}",
            name, topic);
        struct coord_spec spec = { .file = "", .text = text, .len = strlen(text) };
        assert_int_equal(coord_submit(c, &spec, 1, false, &out, &es), 0);
        if (k % 3)
            assert_int_equal(coord_remove(c, name, k % 2, &out, NULL), 0);
        sbuf_free(&out);
    }
    return NULL;
}

static _Atomic bool looking;

static void *look_on(void *arg) {
    while (looking) {
        struct sbuf out = { 0 };
        view_list(arg, &out);
        view_graph(arg, VIEW_JSON, 0, &out);
        view_metrics(arg, &out);
        view_topics(arg, &out);
        events_look(coord_events(arg), arg);
        post_to(arg, "t", 3);
        sbuf_free(&out);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    struct coord *c = open_coord();
    pthread_t t[4];
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    assert_int_equal(log_topic_create(coord_log(c), "t", &tc, NULL), 0);
    looking = true;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, i < 2 ? change_all : look_on, c), 0);
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    looking = false;
    pthread_join(t[2], NULL);
    pthread_join(t[3], NULL);
    struct sbuf before = { 0 }, after = { 0 };
    view_graph(c, VIEW_DOT, 0, &before);
    coord_close(c);
    c = open_coord();
    view_graph(c, VIEW_DOT, 0, &after);
    assert_string_equal(sbuf_str(&before), sbuf_str(&after));
    sbuf_free(&before);
    sbuf_free(&after);
    coord_close(c);
}

static int64_t resident(void) {
    long long all = 0, rss = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld", &all, &rss), 2);
    fclose(f);
    return rss * sysconf(_SC_PAGESIZE);
}

/* A generator that has made its last row is not asked again: that took memory each time, and once
 * a whole batch was due, all of a core. */
static void test_generator_ends(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1024, false);
    world_submit(&w, "{\"braid\":1,\"name\":\"made\",\"tasks\":[{\"id\":\"in\",\"type\":"
                     "\"generator\",\"config\":{\"fields\":{\"n\":{\"keys\":3}},\"rate\":1000000,"
                     "\"count\":50}},{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":"
                     "\"made\"},\"inputs\":[\"in\"]}]}");
    for (int i = 0; i < 3000 && world_end(&w, "made") < 50; i++) {
        executor_step(w.x);
        usleep(1000);
    }
    assert_int_equal(world_end(&w, "made"), 50);
    executor_settle(w.x);
    int64_t before = resident();
    for (int i = 0; i < 300000; i++)
        assert_false(executor_step(w.x));
    assert_true(resident() - before < 4 << 20);
    world_close(&w);
}

int main(void) {
    operators_init();
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        T(test_restart),         T(test_changed_signature),  T(test_refused),
        T(test_aborted_submit),  T(test_disk_full),          T(test_submit_on_full_disk),
        T(test_failed_source),   T(test_unknown_outcome),    T(test_unknown_to_visitors),
        T(test_stop_under_load), T(test_file_sink),          T(test_long_key),
        T(test_threads),         T(test_stats_on_full_disk), T(test_generator_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
