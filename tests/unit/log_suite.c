#include "tests/unit/log_suite.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- helpers ---- */

struct log_buf *suite_buf(const char *text, int64_t from, uint32_t n, bool keys) {
    struct log_buf *b = log_buf_new();
    for (uint32_t i = 0; i < n; i++) {
        char *p = log_buf_room(b, 64), key[32];
        log_buf_end(b, (size_t)snprintf(p, 64, "%s-%lld", text, (long long)from + i));
        int len = snprintf(key, sizeof key, "k%u", i % 7);
        if (keys)
            log_buf_key(b, key, (size_t)len, i % 3 == 2);
    }
    log_buf_seal(b);
    return b;
}

void suite_topic(struct log *log, const char *topic, int64_t retention) {
    struct log_topic_conf conf = { 1, retention };
    struct err e = ERR_INIT;
    if (log_topic_create(log, topic, &conf, &e))
        fail_msg("create %s: %s", topic, e.text);
}

static void append(struct log_epoch *ep, const char *topic, const char *text, int64_t from,
                   uint32_t n, int64_t time) {
    struct log_buf *b = suite_buf(text, from, n, false);
    assert_int_equal(log_epoch_append(ep, topic, 0, b, time, NULL), 0);
    log_buf_unref(b);
}

static void commit(struct log_epoch *ep) {
    struct err e = ERR_INIT;
    uint64_t no;
    if (log_commit_wait(ep, &no, &e) != LOG_COMMITTED)
        fail_msg("commit: %s", e.text);
    assert_true(no > 0);
}

void suite_put(struct log *log, const char *topic, const char *text, int64_t from, uint32_t n) {
    struct log_epoch *ep = log_epoch_begin(log);
    int64_t pos = from + n;
    append(ep, topic, text, from, n, from);
    assert_int_equal(log_epoch_state(ep, "pos", 3, &pos, sizeof pos), 0);
    commit(ep);
}

static void expect_rows(const struct log_rows *rows, const char *text, int64_t offset) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        char want[64];
        int len = snprintf(want, sizeof want, "%s-%lld", text, (long long)offset + i);
        uint32_t end = rows->value_end[i] & ~LOG_NULL;
        if (end - at != (uint32_t)len || memcmp(rows->values + at, want, (size_t)len))
            fail_msg("offset %lld: \"%.*s\" is not \"%s\"", (long long)offset + i, (int)(end - at),
                     rows->values + at, want);
        at = end;
    }
}

void suite_expect(struct log *log, const char *topic, const char *text, int64_t from, int64_t end) {
    static const uint32_t sizes[] = { 1, 7, 1024, 1000000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct log_reader *r;
        struct log_rows rows;
        struct err e = ERR_INIT;
        int64_t offset, at = from;
        int n;
        if (log_reader_open(log, topic, 0, from, &r, &e))
            fail_msg("%s: %s", topic, e.text);
        while ((n = log_read(r, sizes[s], &rows, &offset, &e)) > 0) {
            assert_int_equal(offset, at);
            assert_true((uint32_t)n <= sizes[s] && rows.n == (uint32_t)n);
            expect_rows(&rows, text, offset);
            at += n;
        }
        if (n < 0)
            fail_msg("%s: %s", topic, e.text);
        assert_int_equal(at, end);
        log_reader_close(r);
    }
}

/* ---- cases: each gets a fresh log ---- */

static const struct log_suite *suite;

struct fixture {
    struct log *log;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    f->log = suite->fresh(suite->arg, 4096);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    suite->discard(suite->arg, f->log);
    free(f);
    return 0;
}

static struct log *log_of(void **state) {
    return ((struct fixture *)*state)->log;
}

static struct log *again(void **state) {
    struct fixture *f = *state;
    return f->log = suite->reopen(suite->arg, f->log);
}

static void order_across_epochs(void **state) {
    struct log *log = log_of(state);
    suite_topic(log, "t", -1);
    int64_t at = 0;
    for (uint32_t n = 1; n < 200; n += 13, at += n - 13)
        suite_put(log, "t", "r", at, n);
    suite_expect(log, "t", "r", 0, at);
    suite_expect(log, "t", "r", at / 2, at);
    suite_expect(log, "t", "r", at, at);
    log = again(state);
    suite_expect(log, "t", "r", 0, at);
    suite_put(log, "t", "r", at, 5);
    suite_expect(log, "t", "r", at - 3, at + 5);
}

static int collect(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    char *out = arg;
    size_t len = strlen(out);
    snprintf(out + len, 1000 - len, "%.*s=%.*s;", (int)klen, (const char *)key, (int)vlen,
             (const char *)value);
    return 0;
}

static void expect_state(struct log *log, const char *prefix, const char *want) {
    char got[1000] = "";
    struct err e = ERR_INIT;
    int rc = log_state_each(log, prefix, (uint32_t)strlen(prefix), collect, got, &e);
    if (rc)
        fail_msg("state: %s", e.text);
    assert_string_equal(got, want);
}

static void put_state(struct log_epoch *ep, const char *key, const char *value) {
    assert_int_equal(
        log_epoch_state(ep, key, (uint32_t)strlen(key), value, value ? (uint32_t)strlen(value) : 0),
        0);
}

static void state_is_the_last_value(void **state) {
    struct log *log = log_of(state);
    expect_state(log, "", "");
    struct log_epoch *ep = log_epoch_begin(log);
    put_state(ep, "a/1", "x");
    put_state(ep, "a/2", "y");
    put_state(ep, "b", "");
    put_state(ep, "a/1", "z");
    commit(ep);
    expect_state(log, "", "a/1=z;a/2=y;b=;");
    ep = log_epoch_begin(log);
    put_state(ep, "a/2", NULL);
    put_state(ep, "c", "new");
    commit(ep);
    expect_state(log, "a/", "a/1=z;");
    log = again(state);
    expect_state(log, "", "a/1=z;b=;c=new;");
    expect_state(log, "a", "a/1=z;");
    expect_state(log, "zz", "");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int log_suite_run(const struct log_suite *s) {
    suite = s;
    const struct CMUnitTest tests[] = {
        CASE(order_across_epochs),
        CASE(state_is_the_last_value),
    };
    return cmocka_run_group_tests_name(s->name, tests, NULL, NULL);
}
