/* The executor on its thread: what must hold beside the results, which test_equiv judges. */
#include "operators/all.h"
#include "tests/unit/world.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

static bool no_threads;

/* In front of libuv's. */
int uv_thread_create(uv_thread_t *tid, uv_thread_cb entry, void *arg) {
    int (*real)(uv_thread_t *, uv_thread_cb, void *);
    if (no_threads)
        return UV_EAGAIN;
    void *p = dlsym(RTLD_NEXT, "uv_thread_create");
    memcpy(&real, &p, sizeof real);
    return real(tid, entry, arg);
}

static const char copy[] =
    "{\"braid\":1,\"name\":\"f\",\"tasks\":["
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"a\",\"format\":\"raw\"}},"
    "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"o\",\"format\":\"raw\"},"
    "\"inputs\":[\"in\"]}]}";

/* No thread to be had: an error, and nothing is left behind that a second start or the end would
 * fall over. */
static void test_start_fails(void **unused) {
    (void)unused;
    struct world w;
    struct err e = ERR_INIT;
    world_open(&w, 0, false);
    no_threads = true;
    assert_int_equal(executor_start(w.x, &e), ERR_SYSTEM);
    assert_non_null(strstr(e.text, "thread"));
    no_threads = false;
    world_topic(&w, "a"); /* commits: nobody may be woken */
    world_append(&w, "a", "1\n");
    assert_int_equal(executor_start(w.x, &e), 0);
    executor_stop(w.x);
    no_threads = true;
    assert_int_equal(executor_start(w.x, &e), ERR_SYSTEM);
    no_threads = false;
    world_close(&w);
}

static void count_tasks(void *arg, struct exec *ex) {
    *(int *)arg += exec_sources(ex);
}

/* Who only looks at the graph does not wait until a refused commit is tried again. */
static void test_visit_while_retrying(void **unused) {
    (void)unused;
    struct world w;
    struct err e = ERR_INIT;
    struct executor_health h;
    world_open(&w, 0, false);
    executor_free(w.x);
    struct executor_conf conf = { .log = w.log, .retry_ms = 5000 };
    assert_int_equal(executor_new(&w.x, &conf, &e), 0);
    world_topic(&w, "a");
    world_submit(&w, copy);
    executor_health(w.x, &h);
    uint64_t before = h.commits;
    executor_inject_abort(w.x);
    world_append(&w, "a", "1\n2\n");
    assert_int_equal(executor_start(w.x, &e), 0);
    do {
        usleep(1000);
        executor_health(w.x, &h);
    } while (h.aborts == 0);
    int seen = 0;
    for (int i = 0; i < 200; i++)
        executor_visit(w.x, count_tasks, &seen);
    executor_health(w.x, &h);
    assert_int_equal(seen, 200);
    assert_int_equal(h.commits, before); /* it still waits */
    assert_true(h.degraded);
    executor_stop(w.x);
    world_close(&w);
}

/* Bad records cost no more than themselves: the largest ones, all in one tick, do not fill the
 * epoch. What is cut off says how long it was, and no character is cut. */
static void test_large_dead_letters(void **unused) {
    (void)unused;
    enum { N = 60, LEN = 1 << 20 };
    struct world w;
    struct executor_health h;
    struct sbuf got = { 0 }, tail = { 0 };
    char *record = malloc(LEN + 2);
    assert_non_null(record);
    memset(record, 1, LEN);
    memcpy(record + EXEC_DEAD_BYTES - 1, "\xe2\x82\xac", 3); /* a euro sign across the end */
    memcpy(record + LEN, "\n", 2);
    world_open(&w, 0, false);
    world_topic(&w, "a");
    for (int i = 0; i < N; i++)
        world_append(&w, "a", record);
    world_append(&w, "a", "{\"x\":1,\"bt\":1}\n");
    world_submit(&w, "{\"braid\":1,\"name\":\"f\",\"tasks\":["
                     "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"a\","
                     "\"format\":\"json\",\"schema\":{\"x\":\"f64\"},\"start\":\"earliest\"}},"
                     "{\"id\":\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"o\","
                     "\"format\":\"json\"},\"inputs\":[\"in\"]}]}");
    executor_health(w.x, &h);
    if (h.failed)
        fail_msg("%s", h.err.text);
    assert_int_equal(world_end(&w, "o"), 1);
    assert_int_equal(world_end(&w, EXECUTOR_DLQ), N);
    world_read(&w, EXECUTOR_DLQ, &got);
    sbuf_printf(&tail, ",\"record_bytes\":%d,\"record\":\"", LEN);
    assert_non_null(strstr(sbuf_str(&got), sbuf_str(&tail)));
    assert_null(strstr(got.p, "\xe2"));
    assert_in_range(strcspn(got.p, "\n"), 6 * (EXEC_DEAD_BYTES - 1),
                    6 * (EXEC_DEAD_BYTES - 1) + 1000);
    sbuf_free(&got);
    sbuf_free(&tail);
    free(record);
    world_close(&w);
}

/* State that was kept in another form is refused, not misread and not thrown away. */
static void test_state_of_another_form(void **unused) {
    (void)unused;
    struct world w;
    struct err e = ERR_INIT;
    world_open(&w, 0, false);
    world_topic(&w, "a");
    struct flow *f = world_submit(&w, copy)->flow;
    world_append(&w, "a", "1\n");
    executor_settle(w.x);
    unsigned char key[12] = {
        'S', [8] = (unsigned char)f->stage[0]->def->instance, [11] = TABLE_POSITION
    };
    struct log_epoch *ep = log_epoch_begin(w.log);
    assert_int_equal(log_epoch_state(ep, key, sizeof key, "short", 5), 0);
    assert_int_equal(log_commit_wait(ep, NULL, &e), LOG_COMMITTED);
    executor_free(w.x);
    struct executor_conf conf = { .log = w.log };
    assert_int_equal(executor_new(&w.x, &conf, &e), 0);
    const struct task_def *add[8];
    struct change all = { .version = 1, .nadd = f->nstages, .add = add };
    assert_in_range(f->nstages, 2, 8);
    for (int i = 0; i < f->nstages; i++)
        add[i] = f->stage[i]->def;
    assert_int_equal(executor_restore(w.x, &all, &e), ERR_SYSTEM);
    assert_non_null(strstr(e.text, "form"));
    world_close(&w);
}

static int count_key(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)key;
    (void)klen;
    (void)value;
    (void)vlen;
    (*(int *)arg)++;
    return 0;
}

#define TIMED                                                                                      \
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"a\",\"format\":\"json\","          \
    "\"schema\":{\"k\":\"string\",\"t\":\"i64\"},\"time\":{\"field\":\"t\",\"unit\":\"ms\"}}}"
static const char windows[] =
    "{\"braid\":1,\"name\":\"w\",\"tasks\":[" TIMED ","
    "{\"id\":\"n\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\"},"
    "\"every\":\"1s\"},\"inputs\":[{\"from\":\"in\",\"by\":[\"k\"]}]},"
    "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"discard\":true},\"inputs\":[\"n\"]}]}";
static const char other[] = "{\"braid\":1,\"name\":\"o\",\"tasks\":[" TIMED
                            ",{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"o\","
                            "\"format\":\"json\"},\"inputs\":[\"in\"]}]}";

/* Rows go on while a removal commits, and time with them: what a removed task would now do to its
 * state must not be lost to the cleaning up behind it. */
static void test_removed_leaves_nothing(void **unused) {
    (void)unused;
    struct world w;
    struct err e = ERR_INIT;
    world_open(&w, 1, false);
    for (int i = 0; i < 40; i++) {
        struct world_flow *a = world_submit(&w, windows), *b = world_submit(&w, other);
        long long t = 1700000000000 + i * 100000LL;
        char row[64];
        for (int k = 0; k < 20; k++) {
            snprintf(row, sizeof row, "{\"k\":\"k%d\",\"t\":%lld}\n", k, t);
            world_append(&w, "a", row);
        }
        executor_settle(w.x);
        /* Read a row at a time: the first with the removal, the others while it commits. */
        for (int k = 0; k < 3; k++) {
            snprintf(row, sizeof row, "{\"k\":\"k\",\"t\":%lld}\n", t + k * 25000);
            world_append(&w, "a", row);
        }
        world_remove(&w, a, false);
        world_remove(&w, b, false);
        executor_settle(w.x);
        int keys = 0;
        assert_int_equal(log_state_each(w.log, "S", 1, count_key, &keys, &e), 0);
        assert_int_equal(keys, 0);
    }
    world_close(&w);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_start_fails),
                                        cmocka_unit_test(test_removed_leaves_nothing),
                                        cmocka_unit_test(test_visit_while_retrying),
                                        cmocka_unit_test(test_large_dead_letters),
                                        cmocka_unit_test(test_state_of_another_form) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
