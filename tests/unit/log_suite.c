#include "tests/unit/log_suite.h"
#include "tests/unit/harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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
    struct log_topic_conf conf = { .partitions = 1, .retention_bytes = retention };
    struct err e = ERR_INIT;
    if (log_topic_create(log, topic, &conf, &e))
        fail_msg("create %s: %s", topic, e.text);
}

void suite_append(struct log_epoch *ep, const char *topic, const char *text, int64_t from,
                  uint32_t n, int64_t time) {
    struct log_buf *b = suite_buf(text, from, n, false);
    assert_int_equal(log_epoch_append(ep, topic, 0, b, time, NULL), 0);
    log_buf_unref(b);
}

void suite_commit(struct log_epoch *ep) {
    struct err e = ERR_INIT;
    uint64_t no;
    if (log_commit_wait(ep, &no, &e) != LOG_COMMITTED)
        fail_msg("commit: %s", e.text);
    assert_true(no > 0);
}

void suite_put(struct log *log, const char *topic, const char *text, int64_t from, uint32_t n) {
    struct log_epoch *ep = log_epoch_begin(log);
    int64_t pos = from + n;
    suite_append(ep, topic, text, from, n, from);
    assert_int_equal(log_epoch_state(ep, "pos", 3, &pos, sizeof pos), 0);
    suite_commit(ep);
}

void suite_expect_rows(const struct log_rows *rows, const char *text, int64_t offset) {
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
            suite_expect_rows(&rows, text, offset);
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

struct log *suite_log(void **state) {
    return ((struct fixture *)*state)->log;
}

struct log *suite_again(void **state) {
    struct fixture *f = *state;
    return f->log = suite->reopen(suite->arg, f->log);
}

static void order_across_epochs(void **state) {
    struct log *log = suite_log(state);
    suite_topic(log, "t", -1);
    int64_t at = 0;
    for (uint32_t n = 1; n < 200; n += 13, at += n - 13)
        suite_put(log, "t", "r", at, n);
    suite_expect(log, "t", "r", 0, at);
    suite_expect(log, "t", "r", at / 2, at);
    suite_expect(log, "t", "r", at, at);
    log = suite_again(state);
    suite_expect(log, "t", "r", 0, at);
    suite_put(log, "t", "r", at, 5);
    suite_expect(log, "t", "r", at - 3, at + 5);
}

static void put_state(struct log_epoch *ep, const char *key, const char *value) {
    assert_int_equal(
        log_epoch_state(ep, key, (uint32_t)strlen(key), value, value ? (uint32_t)strlen(value) : 0),
        0);
}

static void ignore_done(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    (void)arg;
    (void)outcome;
    (void)no;
    (void)e;
}

static int collect(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    char *out = arg;
    size_t len = strlen(out);
    snprintf(out + len, 1000 - len, "%.*s=%.*s;", (int)klen, (const char *)key, (int)vlen,
             (const char *)value);
    return 0;
}

static int collect_value(void *arg, const void *key, uint32_t klen, const void *value,
                         uint32_t vlen) {
    (void)key;
    assert_int_equal(klen, LOG_KEY_MAX);
    snprintf(arg, 100, "%.*s", (int)vlen, (const char *)value);
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

static void state_is_the_last_value(void **state) {
    struct log *log = suite_log(state);
    expect_state(log, "", "");
    struct log_epoch *ep = log_epoch_begin(log);
    put_state(ep, "a/1", "x");
    put_state(ep, "a/2", "y");
    put_state(ep, "b", "");
    put_state(ep, "a/1", "z");
    suite_commit(ep);
    expect_state(log, "", "a/1=z;a/2=y;b=;");
    ep = log_epoch_begin(log);
    put_state(ep, "a/2", NULL);
    put_state(ep, "c", "new");
    suite_commit(ep);
    expect_state(log, "a/", "a/1=z;");
    log = suite_again(state);
    expect_state(log, "", "a/1=z;b=;c=new;");
    expect_state(log, "a", "a/1=z;");
    expect_state(log, "zz", "");
}

static void bad_state_keys_are_refused(void **state) {
    struct log *log = suite_log(state);
    static char big[LOG_KEY_MAX + 1];
    struct log_epoch *ep = log_epoch_begin(log);
    memset(big, 'k', sizeof big);
    assert_int_equal(log_epoch_state(ep, "", 0, "v", 1), ERR_INPUT);
    assert_int_equal(log_epoch_state(ep, "\xff", 1, "v", 1), ERR_INPUT);
    assert_int_equal(log_epoch_state(ep, big, sizeof big, "v", 1), ERR_INPUT);
    assert_int_equal(log_epoch_state(ep, big, LOG_KEY_MAX, "v", 1), 0);
    assert_true(log_epoch_bytes(ep) > LOG_KEY_MAX);
    suite_commit(ep);
    log = suite_again(state);
    char got[100] = "";
    struct err e = ERR_INIT;
    assert_int_equal(log_state_each(log, big, LOG_KEY_MAX, collect_value, got, &e), 0);
    assert_string_equal(got, "v");
}

static int64_t end_of(struct log *log, const char *topic) {
    struct log_topic_info info;
    struct err e = ERR_INIT;
    if (log_topic_info(log, topic, &info, &e))
        fail_msg("%s: %s", topic, e.text);
    return info.end;
}

static int take_offset(void *arg, const void *key, uint32_t klen, const void *value,
                       uint32_t vlen) {
    int64_t v[2];
    assert_int_equal(klen, 1);
    assert_int_equal(vlen, sizeof v);
    memcpy(v, value, sizeof v);
    assert_int_equal(v[1], *(const char *)key);
    ((int64_t *)arg)[*(const char *)key - 'a'] = v[0];
    return 0;
}

/* State that says where rows of its epoch went, among epochs that are refused. */
static void offsets_in_the_state(void **state) {
    struct log *log = suite_log(state);
    struct err e = ERR_INIT;
    int64_t got[20] = { 0 }, want[20], at[2] = { 0 };
    suite_topic(log, "x", -1);
    suite_topic(log, "y", -1);
    struct log_epoch *ep = log_epoch_begin(log);
    assert_int_equal(log_epoch_state_offset(ep, "a", 1, want, 16), ERR_INPUT);
    suite_append(ep, "x", "r", 0, 3, 0);
    assert_int_equal(log_epoch_state_offset(ep, "a", 1, want, 7), ERR_INPUT);
    log_epoch_drop(ep);
    for (int i = 0; i < 20; i++) {
        struct log_epoch *whole = log_epoch_begin(log); /* joined from parts */
        bool refused = i % 5 == 3;
        ep = log_epoch_begin(log);
        if (i % 2) {
            suite_append(whole, "y", "r", 0, 1, 0);
            put_state(whole, "!", NULL);
            at[0] += !refused;
        }
        for (int k = 0; k <= i % 3; k++) {
            const char *topic = (i + k) % 2 ? "x" : "y";
            suite_append(ep, topic, "r", 0, (uint32_t)k + 2, 0);
            want[i] = at[(i + k) % 2];
            at[(i + k) % 2] += refused ? 0 : k + 2;
        }
        char key = (char)('a' + i);
        int64_t v[2] = { 0, key };
        assert_int_equal(log_epoch_state_offset(ep, &key, 1, v, sizeof v), 0);
        suite_append(ep, refused ? "missing" : "x", "r", 0, 1, 0);
        at[1] += !refused;
        if (refused)
            want[i] = 0;
        assert_int_equal(log_epoch_join(whole, ep), 0);
        if (i < 19)
            log_commit(whole, ignore_done, NULL);
        else
            suite_commit(whole);
    }
    log = suite_again(state);
    assert_int_equal(log_state_each(log, "", 0, take_offset, got, &e), 0);
    assert_memory_equal(got, want, sizeof want);
}

static void visible_only_after_commit(void **state) {
    struct log *log = suite_log(state);
    suite_topic(log, "t", -1);
    suite_put(log, "t", "r", 0, 3);
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset;
    assert_int_equal(log_reader_open(log, "t", 0, 3, &r, &e), 0);
    assert_int_equal(log_read(r, 10, &rows, &offset, &e), 0);
    assert_int_equal(offset, 3);
    struct log_epoch *ep = log_epoch_begin(log);
    suite_append(ep, "t", "r", 3, 4, 0);
    put_state(ep, "s", "1");
    assert_int_equal(log_read(r, 10, &rows, &offset, &e), 0);
    assert_int_equal(end_of(log, "t"), 3);
    suite_commit(ep);
    assert_int_equal(log_read(r, 10, &rows, &offset, &e), 4);
    assert_int_equal(offset, 3);
    suite_expect_rows(&rows, "r", 3);
    ep = log_epoch_begin(log);
    suite_append(ep, "t", "never", 0, 9, 0);
    put_state(ep, "s", "2");
    log_epoch_drop(ep);
    assert_int_equal(log_read(r, 10, &rows, &offset, &e), 0);
    log_reader_close(r);
    log = suite_again(state);
    suite_expect(log, "t", "r", 0, 7);
    expect_state(log, "s", "s=1;");
}

static void an_epoch_is_all_or_nothing(void **state) {
    struct log *log = suite_log(state);
    struct err e = ERR_INIT;
    suite_topic(log, "a", -1);
    suite_topic(log, "b", -1);
    struct log_epoch *ep = log_epoch_begin(log);
    suite_append(ep, "a", "r", 0, 5, 0);
    put_state(ep, "k", "v");
    suite_append(ep, "missing", "r", 0, 5, 0);
    suite_append(ep, "b", "r", 0, 5, 0);
    uint64_t no = 7;
    assert_int_equal(log_commit_wait(ep, &no, &e), LOG_ABORTED);
    assert_int_equal(e.code, ERR_NOTFOUND);
    assert_non_null(strstr(e.text, "missing"));
    ep = log_epoch_begin(log);
    struct log_buf *b = suite_buf("r", 0, 1, false);
    log_epoch_append(ep, "a", 1, b, 0, NULL);
    log_buf_unref(b);
    assert_int_equal(log_commit_wait(ep, &no, &e), LOG_ABORTED);
    assert_int_equal(e.code, ERR_NOTFOUND);
    expect_state(log, "", "");
    suite_expect(log, "a", "r", 0, 0);
    suite_put(log, "a", "r", 0, 2);
    log = suite_again(state);
    suite_expect(log, "a", "r", 0, 2);
    suite_expect(log, "b", "r", 0, 0);
}

static int list_name(void *arg, const struct log_topic_info *info) {
    char *out = arg;
    size_t len = strlen(out);
    snprintf(out + len, 1000 - len, "%s:%lld ", info->name, (long long)info->end);
    return 0;
}

static void expect_topics(struct log *log, const char *want) {
    char got[1000] = "";
    assert_int_equal(log_topic_list(log, list_name, got), 0);
    assert_string_equal(got, want);
}

static void topics(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct log_topic_info info;
    struct err e = ERR_INIT;
    char longest[LOG_NAME_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[LOG_NAME_MAX + 1] = 0;
    static const char *const bad[] = { "", ".", "..", "a/b", "a b", "\xc3\xa4", "a\n" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(log_topic_create(log, bad[i], &tc, &e), ERR_INPUT);
    assert_int_equal(log_topic_create(log, longest, &tc, &e), ERR_INPUT);
    longest[LOG_NAME_MAX] = 0;
    suite_topic(log, longest, -1);
    assert_int_equal(log_topic_info(log, longest, &info, &e), 0);
    uint64_t id = info.id;
    assert_true(id > 0);
    assert_int_equal(log_topic_delete(log, longest, &e), 0);
    suite_topic(log, "b", -1);
    suite_topic(log, "A.z_1-9", 5000);
    suite_topic(log, "a", -1);
    assert_int_equal(log_topic_create(log, "a", &tc, &e), ERR_CONFLICT);
    suite_put(log, "a", "r", 0, 3);
    expect_topics(log, "A.z_1-9:0 a:3 b:0 ");
    log = suite_again(state);
    expect_topics(log, "A.z_1-9:0 a:3 b:0 ");
    assert_int_equal(log_topic_info(log, "A.z_1-9", &info, &e), 0);
    assert_int_equal(info.conf.retention_bytes, 5000);
    assert_true(info.id != id);
    assert_int_equal(log_topic_delete(log, "b", &e), 0);
    assert_int_equal(log_topic_delete(log, "b", &e), ERR_NOTFOUND);
    assert_int_equal(log_topic_info(log, "b", &info, &e), ERR_NOTFOUND);
    struct log_reader *r;
    assert_int_equal(log_reader_open(log, "b", 0, 0, &r, &e), ERR_NOTFOUND);
    assert_true(log_offset_at(log, "b", 0, 0) < 0);
    log = suite_again(state);
    expect_topics(log, "A.z_1-9:0 a:3 ");
}

static void a_new_topic_has_nothing_of_its_namesake(void **state) {
    struct log *log = suite_log(state);
    struct err e = ERR_INIT;
    suite_topic(log, "t", -1);
    suite_put(log, "t", "old", 0, 500);
    struct log_reader *r, *r2;
    struct log_rows rows;
    int64_t offset;
    assert_int_equal(log_reader_open(log, "t", 0, 10, &r, &e), 0);
    assert_true(log_read(r, 5, &rows, &offset, &e) > 0);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(log_topic_delete(log, "t", &e), 0);
        suite_expect_rows(&rows, "old", offset); /* holds until the next read */
        suite_topic(log, "t", -1);
        assert_int_equal(end_of(log, "t"), 0);
        suite_put(log, "t", "new", 0, 3);
        suite_expect(log, "t", "new", 0, 3);
    }
    assert_int_equal(log_read(r, 5, &rows, &offset, &e), ERR_NOTFOUND);
    assert_int_equal(log_reader_open(log, "t", 0, 4, &r2, &e), ERR_INPUT);
    log_reader_close(r);
    log = suite_again(state);
    suite_expect(log, "t", "new", 0, 3);
}

static void keys_nulls_and_sizes(void **state) {
    struct log *log = suite_log(state);
    struct err e = ERR_INIT;
    suite_topic(log, "t", -1);
    struct log_epoch *ep = log_epoch_begin(log);
    struct log_buf *b = suite_buf("r", 0, 100, true);
    int64_t first = -1, second = -1;
    log_epoch_append(ep, "t", 0, b, 77, &first);
    log_buf_unref(b);
    b = log_buf_new();
    static const uint32_t sizes[] = { 0, 1, LOG_RECORD_MAX, 0, 3 };
    for (int i = 0; i < 5; i++) {
        memset(log_buf_room(b, sizes[i]), 'a' + i, sizes[i]);
        log_buf_end(b, sizes[i]);
    }
    log_buf_seal(b);
    log_epoch_append(ep, "t", 0, b, 78, &second);
    log_buf_unref(b);
    b = log_buf_new();
    log_buf_seal(b);
    assert_int_equal(log_epoch_append(ep, "t", 0, b, 79, NULL), 0); /* no rows: nothing */
    log_buf_unref(b);
    suite_commit(ep);
    assert_int_equal(first, 0);
    assert_int_equal(second, 100);
    struct log_reader *r;
    struct log_rows rows;
    int64_t offset;
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int from = 0, n; from < 100; from += n) {
        n = log_read(r, 9, &rows, &offset, &e);
        assert_true(n > 0 && rows.key_end && rows.time == 77);
        for (int i = 0; i < n; i++) {
            uint32_t at = i ? rows.key_end[i - 1] & ~LOG_NULL : 0;
            char want[16] = "";
            bool null = (from + i) % 3 == 2;
            if (!null)
                snprintf(want, sizeof want, "k%d", (from + i) % 7);
            assert_int_equal(!!(rows.key_end[i] & LOG_NULL), null);
            assert_int_equal((rows.key_end[i] & ~LOG_NULL) - at, strlen(want));
            assert_memory_equal(rows.keys + at, want, strlen(want));
        }
    }
    assert_int_equal(log_read(r, 9, &rows, &offset, &e), 5);
    assert_null(rows.key_end);
    for (uint32_t i = 0, at = 0; i < 5; at = rows.value_end[i++]) {
        assert_int_equal(rows.value_end[i] - at, sizes[i]);
        for (uint32_t k = at; k < rows.value_end[i]; k++)
            if (rows.values[k] != (char)('a' + i))
                fail();
    }
    log_reader_close(r);
}

static void one_buffer_in_twenty_topics(void **state) {
    struct log *log = suite_log(state);
    char name[32];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d", i);
        suite_topic(log, name, -1);
        suite_put(log, name, "r", 0, (uint32_t)i);
    }
    struct log_epoch *ep = log_epoch_begin(log);
    int64_t first[20];
    struct log_buf *b = suite_buf("s", 0, 1000, false);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%d", i);
        log_epoch_append(ep, name, 0, b, 0, &first[i]);
    }
    log_buf_unref(b);
    suite_commit(ep);
    for (int i = 0; i < 20; i++) {
        struct log_reader *r;
        struct log_rows rows;
        struct err e = ERR_INIT;
        int64_t offset;
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(first[i], i);
        assert_int_equal(log_reader_open(log, name, 0, i, &r, &e), 0);
        assert_int_equal(log_read(r, 5000, &rows, &offset, &e), 1000);
        suite_expect_rows(&rows, "s", 0);
        log_reader_close(r);
    }
}

static void partitions_are_apart(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_conf tc = { .partitions = 3, .retention_bytes = -1 };
    struct err e = ERR_INIT;
    assert_int_equal(log_topic_create(log, "t", &tc, &e), 0);
    for (int i = 0; i < 30; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        struct log_buf *b = suite_buf("r", i / 3 * 4, 4, false);
        int64_t first;
        log_epoch_append(ep, "t", (uint32_t)i % 3, b, i, &first);
        log_buf_unref(b);
        suite_commit(ep);
        assert_int_equal(first, i / 3 * 4);
    }
    log = suite_again(state);
    for (uint32_t p = 0; p < 3; p++) {
        struct log_reader *r;
        struct log_rows rows;
        int64_t offset, at = 0;
        assert_int_equal(log_reader_open(log, "t", p, 0, &r, &e), 0);
        for (int n; (n = log_read(r, 100, &rows, &offset, &e)) > 0; at += n)
            suite_expect_rows(&rows, "r", offset);
        assert_int_equal(at, 40);
        log_reader_close(r);
        assert_int_equal(log_offset_at(log, "t", p, 15 + p), 20);
    }
    struct log_reader *r;
    assert_int_equal(log_reader_open(log, "t", 3, 0, &r, &e), ERR_NOTFOUND);
}

static void a_reader_follows_over_segments(void **state) {
    struct log *log = suite_log(state);
    suite_topic(log, "t", -1);
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset, at = 0, end = 0;
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int i = 0; i < 300; i++) {
        uint32_t n = 1 + (uint32_t)i * 37 % 90;
        suite_put(log, "t", "r", end, n);
        end += n;
        int got = log_read(r, (uint32_t)(i % 5 ? 200 : 3), &rows, &offset, &e);
        assert_true(got > 0);
        assert_int_equal(offset, at);
        suite_expect_rows(&rows, "r", at);
        at += got;
    }
    for (int got; (got = log_read(r, 64, &rows, &offset, &e)) > 0; at += got)
        suite_expect_rows(&rows, "r", at);
    assert_int_equal(at, end);
    log_reader_close(r);
}

static void seeks(void **state) {
    struct log *log = suite_log(state);
    suite_topic(log, "t", -1);
    int64_t end = 0;
    for (int i = 0; i < 100; i++, end += i)
        suite_put(log, "t", "r", end, (uint32_t)i + 1);
    end = end_of(log, "t");
    log = suite_again(state);
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset;
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int64_t i = 0, at = 0; i < 500; i++, at = (at + 1237) % (end + 1)) {
        assert_int_equal(log_seek(r, at, &e), 0);
        int n = log_read(r, 5, &rows, &offset, &e);
        assert_int_equal(n > 0, at < end);
        assert_int_equal(offset, at);
        if (n > 0)
            suite_expect_rows(&rows, "r", at);
    }
    assert_int_equal(log_seek(r, end + 1, &e), ERR_INPUT);
    assert_int_equal(log_seek(r, -1, &e), ERR_NOTFOUND);
    log_reader_close(r);
    assert_int_equal(log_reader_open(log, "t", 0, end + 1, &r, &e), ERR_INPUT);
}

/* First offset whose append time is at or after ms, by reading everything. */
static int64_t offset_at_oracle(struct log *log, int64_t ms) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset, found = -1, end = 0;
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int n; (n = log_read(r, 100000, &rows, &offset, &e)) > 0; end = offset + n)
        if (found < 0 && rows.time >= ms)
            found = offset;
    log_reader_close(r);
    return found < 0 ? end : found;
}

static void offsets_by_time(void **state) {
    struct log *log = suite_log(state);
    suite_topic(log, "t", -1);
    assert_int_equal(log_offset_at(log, "t", 0, 5), 0);
    int64_t time = -500, end = 0;
    for (int i = 0; i < 200; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        time += i % 3 ? (i * 31) % 40 : -15; /* clocks step back */
        suite_append(ep, "t", "r", end, 20, time);
        suite_commit(ep);
        end += 20;
    }
    for (int round = 0; round < 2; round++) {
        for (int64_t ms = -600; ms < time + 100; ms += 23)
            assert_int_equal(log_offset_at(log, "t", 0, ms), offset_at_oracle(log, ms));
        log = suite_again(state);
    }
}

struct counter {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    int wakes, done;
    uint64_t last_no;
    int64_t first;
    bool ordered;
};

static void count_wake(void *arg) {
    struct counter *c = arg;
    pthread_mutex_lock(&c->mu);
    c->wakes++;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->mu);
}

static void count_done(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    struct counter *c = arg;
    (void)e;
    pthread_mutex_lock(&c->mu);
    if (outcome != LOG_COMMITTED || no <= c->last_no)
        c->ordered = false;
    c->last_no = no;
    c->done++;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->mu);
}

static void commits_are_ordered_and_wake(void **state) {
    struct log *log = suite_log(state);
    struct counter c = { .mu = PTHREAD_MUTEX_INITIALIZER,
                         .cond = PTHREAD_COND_INITIALIZER,
                         .ordered = true };
    struct counter any = { .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    struct log_watch *w = log_watch(log, "t", count_wake, &c); /* before there is one */
    struct log_watch *all = log_watch(log, NULL, count_wake, &any);
    suite_topic(log, "t", -1);
    suite_topic(log, "u", -1);
    struct log_watch *u = log_watch(log, "u", count_wake, &any);
    log_unwatch(log, u);
    int before = c.wakes;
    for (int i = 0; i < 500; i++) {
        struct log_epoch *ep = log_epoch_begin(log);
        suite_append(ep, "t", "r", i, 1, 0);
        log_commit(ep, count_done, &c);
    }
    pthread_mutex_lock(&c.mu);
    while (c.done < 500 || c.wakes == before)
        pthread_cond_wait(&c.cond, &c.mu);
    assert_true(c.ordered);
    pthread_mutex_unlock(&c.mu);
    suite_expect(log, "t", "r", 0, 500);
    log_unwatch(log, w);
    log_unwatch(log, all);
    int t = c.wakes, a = any.wakes;
    suite_put(log, "t", "r", 500, 1);
    suite_put(log, "u", "r", 0, 1);
    assert_int_equal(c.wakes, t);
    assert_int_equal(any.wakes, a);
    assert_true(a >= 3);
    log = suite_again(state);
    suite_expect(log, "t", "r", 0, 501);
}

/* ---- threads ---- */

enum { THREAD_RECORDS = 20000 };
struct follower {
    struct log *log;
    struct counter *c;
    int64_t read;
    bool wrong;
};

static bool rows_ok(const struct log_rows *rows, int64_t offset) {
    for (uint32_t i = 0, at = 0; i < rows->n; at = rows->value_end[i++]) {
        char want[64];
        int len = snprintf(want, sizeof want, "r-%lld", (long long)offset + i);
        if (rows->value_end[i] - at != (uint32_t)len ||
            memcmp(rows->values + at, want, (size_t)len))
            return false;
    }
    return true;
}

static void *follow(void *arg) {
    struct follower *f = arg;
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset;
    f->wrong = log_reader_open(f->log, "t", 0, 0, &r, &e) != 0;
    while (!f->wrong && f->read < THREAD_RECORDS) {
        pthread_mutex_lock(&f->c->mu);
        int seen = f->c->wakes;
        pthread_mutex_unlock(&f->c->mu);
        int n = log_read(r, 100, &rows, &offset, &e);
        if (n < 0 || (n > 0 && (offset != f->read || !rows_ok(&rows, offset))))
            f->wrong = true;
        if (n > 0)
            f->read += n;
        pthread_mutex_lock(&f->c->mu);
        while (n == 0 && f->c->wakes == seen)
            pthread_cond_wait(&f->c->cond, &f->c->mu);
        pthread_mutex_unlock(&f->c->mu);
    }
    log_reader_close(r);
    return NULL;
}

static void readers_and_a_writer(void **state) {
    struct log *log = suite_log(state);
    pthread_t thread[2];
    struct counter c[2];
    struct follower f[2];
    struct log_watch *w[2];
    suite_topic(log, "t", -1);
    for (int i = 0; i < 2; i++) {
        c[i] =
            (struct counter){ .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
        f[i] = (struct follower){ .log = log, .c = &c[i] };
        w[i] = log_watch(log, "t", count_wake, &c[i]);
        assert_int_equal(pthread_create(&thread[i], NULL, follow, &f[i]), 0);
    }
    for (int64_t at = 0; at < THREAD_RECORDS; at += 50) {
        suite_put(log, "t", "r", at, 50);
        if (at % 2000 == 0) {
            suite_topic(log, "other", -1);
            suite_put(log, "other", "x", 0, 1);
            log_topic_delete(log, "other", NULL);
            assert_true(log_offset_at(log, "t", 0, at) <= at);
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        log_unwatch(log, w[i]);
        assert_false(f[i].wrong);
        assert_int_equal(f[i].read, THREAD_RECORDS);
    }
}

struct watcher {
    struct log *log;
    atomic_bool stop;
};
static void *come_and_go(void *arg) {
    struct watcher *x = arg;
    struct counter c = { .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    struct log_watch *w[8] = { NULL };
    for (int i = 0; !x->stop; i = (i + 1) % 8) {
        if (w[i])
            log_unwatch(x->log, w[i]);
        w[i] = log_watch(x->log, "t", count_wake, &c);
    }
    for (int i = 0; i < 8; i++)
        if (w[i])
            log_unwatch(x->log, w[i]);
    return NULL;
}

/* Watches end while their topic is made and deleted, and every other one is told both times. */
static void watches_and_topics(void **state) {
    struct watcher x = { .log = suite_log(state) };
    struct counter c = { .mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
    struct log_watch *w = log_watch(x.log, "t", count_wake, &c);
    pthread_t thread[2];
    int rounds = test_scale(400) + 20;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &x), 0);
    for (int i = 0; i < rounds; i++) {
        suite_topic(x.log, "t", -1);
        assert_int_equal(log_topic_delete(x.log, "t", NULL), 0);
    }
    x.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    log_unwatch(x.log, w);
    assert_int_equal(c.wakes, 2 * rounds);
}

static int count_key(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)value;
    uint64_t *sum = arg;
    for (uint32_t i = 0; i < klen; i++)
        sum[1] = sum[1] * 31 + ((const unsigned char *)key)[i];
    sum[0]++;
    sum[2] += vlen;
    return 0;
}

static void much_state(void **state) {
    struct log *log = suite_log(state);
    struct err e = ERR_INIT;
    char key[32], *big = calloc(1, 300000);
    for (int round = 0; round < 40; round++) {
        struct log_epoch *ep = log_epoch_begin(log);
        for (int i = 0; i < 500; i++) {
            int len = snprintf(key, sizeof key, "key/%05d", (round * 331 + i) % 3000);
            log_epoch_state(ep, key, (uint32_t)len, (i + round) % 5 ? big : NULL,
                            (uint32_t)(i % 100));
        }
        if (round % 10 == 9)
            log_epoch_state(ep, "zbig", 4, big, 300000);
        suite_commit(ep);
    }
    uint64_t before[3] = { 0 }, after[3] = { 0 };
    assert_int_equal(log_state_each(log, "key/", 4, count_key, before, &e), 0);
    assert_true(before[0] > 1000);
    log = suite_again(state);
    assert_int_equal(log_state_each(log, "key/", 4, count_key, after, &e), 0);
    assert_memory_equal(before, after, sizeof before);
    memset(after, 0, sizeof after);
    assert_int_equal(log_state_each(log, "zb", 2, count_key, after, &e), 0);
    assert_int_equal(after[2], 300000);
    free(big);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int log_suite_run(const struct log_suite *s) {
    suite = s;
    const struct CMUnitTest tests[] = {
        CASE(order_across_epochs),
        CASE(visible_only_after_commit),
        CASE(an_epoch_is_all_or_nothing),
        CASE(state_is_the_last_value),
        CASE(bad_state_keys_are_refused),
        CASE(offsets_in_the_state),
        CASE(much_state),
        CASE(topics),
        CASE(a_new_topic_has_nothing_of_its_namesake),
        CASE(keys_nulls_and_sizes),
        CASE(suite_records_have_more_than_a_value),
        CASE(one_buffer_in_twenty_topics),
        CASE(partitions_are_apart),
        CASE(a_reader_follows_over_segments),
        CASE(seeks),
        CASE(suite_retention_drops_the_oldest),
        CASE(suite_retention_by_age),
        CASE(suite_trims),
        CASE(suite_compaction),
        CASE(suite_trims_of_everything),
        CASE(offsets_by_time),
        CASE(commits_are_ordered_and_wake),
        CASE(readers_and_a_writer),
        CASE(watches_and_topics),
    };
    return cmocka_run_group_tests_name(s->name, tests, NULL, NULL);
}
