/* The executor on its thread: what must hold beside the results, which test_equiv judges. */
#include "operators/all.h"
#include "tests/unit/world.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
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

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_start_fails),
                                        cmocka_unit_test(test_visit_while_retrying) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
