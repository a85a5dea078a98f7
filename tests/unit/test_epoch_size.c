/* Epochs have a bound. What a batch of rows causes may be more than that: then it is done in
 * smaller ones, and nothing is lost or comes twice. Only a single row that causes more stops the
 * executor, with an error that says so. */
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SINKS = 12, EPOCH_BYTES = 64 << 10, ROW = 500 };

/* Reads `in` into SINKS topics; a file as well. */
static void submit(struct world *w, const char *in, int number) {
    struct sbuf b = { 0 };
    sbuf_printf(&b,
                "{\"braid\":1,\"name\":\"f%d\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\","
                "\"config\":{\"topic\":\"%s\",\"format\":\"raw\",\"start\":\"latest\"}},"
                "{\"id\":\"f\",\"type\":\"sink\",\"inputs\":[\"in\"],"
                "\"config\":{\"file\":\"f%d\",\"format\":\"raw\"}}",
                number, in, number);
    for (int i = 0; i < SINKS; i++) {
        char topic[32];
        snprintf(topic, sizeof topic, "%s-%d", in, i);
        world_topic(w, topic);
        sbuf_printf(&b,
                    ",{\"id\":\"t%d\",\"type\":\"sink\",\"inputs\":[\"in\"],"
                    "\"config\":{\"topic\":\"%s\",\"format\":\"raw\"}}",
                    i, topic);
    }
    sbuf_adds(&b, "]}");
    world_submit(w, sbuf_str(&b));
    sbuf_free(&b);
}

static void append(struct world *w, const char *topic, int64_t from, int n) {
    struct sbuf b = { 0 };
    char pad[ROW];
    memset(pad, '.', sizeof pad);
    for (int i = 0; i < n; i++)
        sbuf_printf(&b, "%lld%.*s\n", (long long)from + i, ROW - 10, pad);
    world_append(w, topic, sbuf_str(&b));
    sbuf_free(&b);
}

static void expect_same(struct world *w, const char *in) {
    struct sbuf want = { 0 };
    world_read(w, in, &want);
    for (int i = 0; i < SINKS; i++) {
        struct sbuf got = { 0 };
        char topic[32];
        snprintf(topic, sizeof topic, "%s-%d", in, i);
        world_read(w, topic, &got);
        if (got.len != want.len || memcmp(sbuf_str(&got), sbuf_str(&want), want.len) != 0)
            fail_msg("%s has %zu bytes, %s %zu", in, want.len, topic, got.len);
        sbuf_free(&got);
    }
    sbuf_free(&want);
}

static void too_wide_a_batch(void **state) {
    (void)state;
    static const char *const in[] = { "a", "b", "c" };
    struct world w;
    struct executor_health h;
    uint64_t seed = test_seed(4);
    int64_t n[3] = { 0 };
    world_open_small(&w, 0, false, EPOCH_BYTES);
    for (int i = 0; i < 3; i++) {
        world_topic(&w, in[i]);
        submit(&w, in[i], i);
    }
    for (int round = 0; round < test_scale(20) + 3; round++) {
        for (int i = 0; i < 3; i++) {
            int rows = (int)(test_random(&seed) % 400);
            append(&w, in[i], n[i], rows);
            n[i] += rows;
        }
        if (test_random(&seed) % 4 == 0)
            executor_inject_abort(w.x);
        for (uint64_t k = test_random(&seed) % 40; k > 0; k--)
            executor_step(w.x);
        if (test_random(&seed) % 4 == 0)
            world_restart(&w);
    }
    executor_settle(w.x);
    executor_health(w.x, &h);
    if (h.failed)
        fail_msg("%s", h.err.text);
    for (int i = 0; i < 3; i++)
        expect_same(&w, in[i]);
    world_close(&w);
}

static void too_wide_a_row(void **state) {
    (void)state;
    struct world w;
    struct executor_health h;
    world_open_small(&w, 0, false, ROW * SINKS / 2);
    world_topic(&w, "a");
    submit(&w, "a", 0);
    append(&w, "a", 0, 100);
    executor_settle(w.x);
    executor_health(w.x, &h);
    assert_true(h.failed);
    assert_non_null(strstr(h.err.text, "one row"));
    assert_int_equal(world_end(&w, "a-0"), 0);
    world_close(&w);
}

struct gate {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    bool open;
};

static void wait_gate(void *arg) {
    struct gate *g = arg;
    pthread_mutex_lock(&g->mu);
    while (!g->open)
        pthread_cond_wait(&g->cond, &g->mu);
    pthread_mutex_unlock(&g->mu);
}

/* While a commit hangs, what is to go into sink files is held in memory: not without end. */
static void a_hanging_commit(void **state) {
    (void)state;
    struct world w;
    struct gate g = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
    int steps = 0;
    world_open_small(&w, 64, false, EPOCH_BYTES);
    world_topic(&w, "a");
    world_topic(&w, "b");
    world_submit(&w, "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\","
                     "\"config\":{\"topic\":\"a\",\"format\":\"raw\",\"start\":\"latest\"}},"
                     "{\"id\":\"f\",\"type\":\"sink\",\"inputs\":[\"in\"],"
                     "\"config\":{\"file\":\"f\",\"format\":\"raw\"}}]}");
    append(&w, "a", 0, 3000);
    struct log_watch *watch = log_watch(w.log, "b", wait_gate, &g);
    append(&w, "b", 0, 1); /* the committer now waits in the callback */
    while (executor_step(w.x))
        steps++;
    pthread_mutex_lock(&g.mu);
    g.open = true;
    pthread_cond_signal(&g.cond);
    pthread_mutex_unlock(&g.mu);
    log_unwatch(w.log, watch);
    executor_settle(w.x);
    world_close(&w);
    assert_in_range(steps, 1, 5); /* of 47 */
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(too_wide_a_batch),
                                        cmocka_unit_test(too_wide_a_row),
                                        cmocka_unit_test(a_hanging_commit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
