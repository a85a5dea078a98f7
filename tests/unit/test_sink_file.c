/* Sink files are part of the epoch: after a kill or a loss of power they hold what is committed, no
 * more and no less, wherever below the output directory they lie. */
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The same rows to a topic and to a file. */
static void submit(struct world *w, int number, const char *file) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"braid\":1,\"name\":\"f%d\",\"tasks\":["
             "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"in\",\"format\":\"raw\","
             "\"start\":\"latest\"}},"
             "{\"id\":\"t\",\"type\":\"sink\",\"config\":{\"topic\":\"out%d\",\"format\":\"raw\"},"
             "\"inputs\":[\"in\"]},"
             "{\"id\":\"f\",\"type\":\"sink\",\"config\":{\"file\":\"%s\",\"format\":\"raw\"},"
             "\"inputs\":[\"in\"]}]}",
             number, number, file);
    char topic[16];
    snprintf(topic, sizeof topic, "out%d", number);
    world_topic(w, topic);
    world_submit(w, text);
}

static void expect_file(struct world *w, int number, const char *file) {
    struct sbuf want = { 0 }, got = { 0 };
    char path[256], topic[16], buf[4096];
    snprintf(topic, sizeof topic, "out%d", number);
    snprintf(path, sizeof path, "%s/%s", w->out_dir, file);
    world_read(w, topic, &want);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;)
        sbuf_add(&got, buf, n);
    fclose(f);
    if (got.len != want.len || (got.len && memcmp(got.p, want.p, got.len) != 0))
        fail_msg("%s has %zu bytes, %zu are committed", path, got.len, want.len);
    sbuf_free(&want);
    sbuf_free(&got);
}

static void run(bool power) {
    static const char *const file[] = { "plain", "a/nested", "a/b/c/deep" };
    struct world w;
    uint64_t seed = test_seed(9);
    int64_t n = 0;
    world_open(&w, 0, power);
    world_topic(&w, "in");
    for (int i = 0; i < 3; i++)
        submit(&w, i, file[i]);
    for (int round = 0; round < test_scale(40) + 4; round++) {
        char lines[600];
        int len = 0;
        for (uint64_t k = test_random(&seed) % 20 + 1; k > 0; k--)
            len += snprintf(lines + len, sizeof lines - (size_t)len, "row %lld\n", (long long)n++);
        world_append(&w, "in", lines);
        if (test_random(&seed) % 5 == 0)
            executor_inject_abort(w.x);
        if (test_random(&seed) % 4)
            executor_settle(w.x);
        else
            executor_step(w.x); /* the epoch may be on its way when the power goes */
        if (test_random(&seed) % 3 == 0)
            world_restart(&w);
        if (w.ft == NULL) /* a file may be ahead of its commit */
            executor_settle(w.x);
        else
            world_restart(&w);
        for (int i = 0; i < 3; i++)
            expect_file(&w, i, file[i]);
    }
    executor_settle(w.x);
    for (int i = 0; i < 3; i++)
        expect_file(&w, i, file[i]);
    assert_true(n > 0 && world_end(&w, "out0") == n);
    world_close(&w);
}

static void killed(void **state) {
    (void)state;
    run(false);
}

static void power_lost(void **state) {
    (void)state;
    run(true);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(killed), cmocka_unit_test(power_lost) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
