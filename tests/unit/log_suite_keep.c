/* Cases of the conformance suite about what a topic keeps, and about all that a record may have. */
#include "engine/clock.h"
#include "tests/unit/harness.h"
#include "tests/unit/log_suite.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void suite_retention_drops_the_oldest(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_info info;
    struct err e = ERR_INIT;
    struct log_reader *r;
    struct log_rows rows;
    int64_t offset, end = 0, begin = 0;
    suite_topic(log, "t", 20000);
    suite_put(log, "t", "r", 0, 1);
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    assert_int_equal(log_read(r, 1, &rows, &offset, &e), 1);
    for (end = 1; end < 20001; end += 100) {
        suite_put(log, "t", "r", end, 100);
        assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
        assert_true(info.begin >= begin && info.end == end + 100);
        assert_true(info.bytes <= 20000 + 3 * 4096);
        begin = info.begin;
    }
    assert_true(begin > 1000 && info.bytes > 16000);
    assert_int_equal(log_read(r, 1, &rows, &offset, &e), ERR_NOTFOUND);
    assert_int_equal(log_seek(r, begin - 1, &e), ERR_NOTFOUND);
    assert_int_equal(log_seek(r, begin, &e), 0);
    assert_true(log_read(r, 1000, &rows, &offset, &e) > 0);
    suite_expect_rows(&rows, "r", begin);
    log_reader_close(r);
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), ERR_NOTFOUND);
    suite_expect(log, "t", "r", begin, end);
    log = suite_again(state);
    assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
    assert_int_equal(info.begin, begin);
    suite_expect(log, "t", "r", begin, end);
}

/* By age: what was appended longer ago than the topic keeps goes, also of a topic that is idle. */
void suite_retention_by_age(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_conf tc = { .partitions = 2, .retention_bytes = -1, .retention_ms = 1000 };
    struct log_topic_info info;
    struct err e = ERR_INIT;
    const int64_t start = 1700000000000;
    int64_t end = 0, begin[2], ends[2];
    clock_freeze(start);
    assert_int_equal(log_topic_create(log, "t", &tc, &e), 0);
    suite_topic(log, "all", -1);
    suite_put(log, "all", "r", 0, 100); /* appended in 1970 */
    for (int64_t ms = 0; ms < 4000; ms += 50, end += 30) {
        struct log_epoch *ep = log_epoch_begin(log);
        suite_append(ep, "t", "r", end, 30, start + ms);
        suite_commit(ep);
    }
    for (int64_t ms = 3900; ms < 5500; ms += 330) {
        clock_freeze(start + ms);
        int64_t want = (ms - 1000 + 49) / 50 * 30; /* the first at or after ms - 1000 */
        want = want < end ? want : end;
        for (begin[0] = -1; begin[0] < want;) {
            assert_int_equal(log_topic_ends(log, "t", 0, &begin[0], &ends[0], &e), 0);
            assert_true(begin[0] <= want);
            usleep(200);
        }
        suite_expect(log, "t", "r", want, end);
        /* Segments are closed after a quarter of the time; their files go in the background. */
        do {
            usleep(200);
            assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
        } while (info.bytes > (end - want) * 16 + 2 * 4096);
        if (ms > 4500)
            log = suite_again(state);
    }
    assert_int_equal(begin[0], end);
    assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
    assert_int_equal(info.bytes, 0);
    assert_int_equal(info.conf.retention_ms, 1000);
    assert_int_equal(log_topic_ends(log, "t", 1, &begin[1], &ends[1], &e), 0);
    assert_int_equal(ends[1], 0);
    suite_expect(log, "all", "r", 0, 100);
    suite_put(log, "t", "r", end, 5);
    clock_freeze(INT64_MIN);
}

static void trim(struct log *log, const char *topic, uint32_t partition, int64_t offset) {
    struct log_epoch *ep = log_epoch_begin(log);
    assert_int_equal(log_epoch_trim(ep, topic, partition, offset), 0);
    suite_commit(ep);
}

static void expect_ends(struct log *log, const char *topic, int64_t begin, int64_t end) {
    int64_t b, e;
    struct err err = ERR_INIT;
    assert_int_equal(log_topic_ends(log, topic, 0, &b, &e, &err), 0);
    assert_int_equal(b, begin);
    assert_int_equal(e, end);
}

void suite_trims(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_info info;
    struct err e = ERR_INIT;
    struct log_reader *r;
    struct log_rows rows;
    int64_t offset, end = 0;
    suite_topic(log, "t", -1);
    trim(log, "t", 0, 100); /* nothing to give up */
    expect_ends(log, "t", 0, 0);
    for (; end < 5000; end += 50)
        suite_put(log, "t", "r", end, 50);
    assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
    int64_t bytes = info.bytes;
    assert_int_equal(log_reader_open(log, "t", 0, 2500, &r, &e), 0);
    trim(log, "t", 0, 2510);
    expect_ends(log, "t", 2510, end);
    assert_int_equal(log_read(r, 5, &rows, &offset, &e), ERR_NOTFOUND);
    assert_int_equal(log_seek(r, 2509, &e), ERR_NOTFOUND);
    assert_int_equal(log_seek(r, 2510, &e), 0);
    assert_int_equal(log_read(r, 5, &rows, &offset, &e), 5);
    assert_int_equal(offset, 2510);
    suite_expect_rows(&rows, "r", 2510);
    log_reader_close(r);
    suite_expect(log, "t", "r", 2510, end);
    assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
    assert_true(info.bytes < bytes / 2 + 4096);
    trim(log, "t", 0, 7); /* never falls */
    trim(log, "t", 5, 3000);
    trim(log, "missing", 0, 3000);
    expect_ends(log, "t", 2510, end);
    assert_int_equal(log_offset_at(log, "t", 0, 0), 2510);
    assert_int_equal(log_offset_at(log, "t", 0, 4000), 4000);
    log = suite_again(state);
    expect_ends(log, "t", 2510, end);
    suite_expect(log, "t", "r", 2510, end);
    assert_int_equal(log_reader_open(log, "t", 0, 2509, &r, &e), ERR_NOTFOUND);

    /* With the rows of its own epoch; a refused epoch trims nothing. */
    struct log_epoch *ep = log_epoch_begin(log);
    assert_int_equal(log_epoch_trim(ep, "t", 0, -1), ERR_INPUT);
    assert_int_equal(log_epoch_trim(ep, "t", 0, 4000), 0);
    suite_append(ep, "missing", "r", 0, 1, 0);
    assert_int_equal(log_commit_wait(ep, NULL, &e), LOG_ABORTED);
    expect_ends(log, "t", 2510, end);
    struct log_epoch *whole = log_epoch_begin(log);
    ep = log_epoch_begin(log);
    log_epoch_trim(ep, "t", 0, end + 10);
    suite_append(ep, "t", "r", end, 20, 0);
    assert_int_equal(log_epoch_join(whole, ep), 0);
    suite_commit(whole);
    expect_ends(log, "t", end + 10, end + 20);
    suite_expect(log, "t", "r", end + 10, end + 20);
}

/* A topic that is read to its end and trimmed there holds no file, and goes on. */
void suite_trims_of_everything(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_info info;
    struct err e = ERR_INIT;
    struct log_reader *r;
    struct log_rows rows;
    int64_t offset, end = 0;
    suite_topic(log, "t", -1);
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int round = 0; round < 12; round++) {
        int64_t from = end;
        for (int i = 0; i <= round % 4; i++, end += 60)
            suite_put(log, "t", "r", end, 60);
        for (int n; from < end; from += n) {
            n = log_read(r, 1000, &rows, &offset, &e);
            assert_true(n > 0);
            assert_int_equal(offset, from);
            suite_expect_rows(&rows, "r", offset);
        }
        assert_int_equal(log_read(r, 1000, &rows, &offset, &e), 0);
        trim(log, "t", 0, INT64_MAX);
        expect_ends(log, "t", end, end);
        assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
        assert_int_equal(info.bytes, 0);
        if (round % 3 == 2) {
            log_reader_close(r);
            log = suite_again(state);
            expect_ends(log, "t", end, end);
            assert_int_equal(log_offset_at(log, "t", 0, 0), end);
            assert_int_equal(log_reader_open(log, "t", 0, end, &r, &e), 0);
        }
    }
    log_reader_close(r);
}

/* ---- keys, times, headers, tombstones ---- */

/* What record `i` has: a function of the number alone. */
struct made {
    bool key, time, null;
    int nheaders;
    char value[40];
};

static struct made make(uint64_t seed, int64_t i, bool plain) {
    uint64_t s = seed * 1000003 + (uint64_t)i;
    if (plain)
        return (struct made){ .value = "plain" };
    struct made m = { .key = test_random(&s) % 3 != 0,
                      .time = test_random(&s) % 3 == 0,
                      .null = test_random(&s) % 5 == 0,
                      .nheaders = test_random(&s) % 4 ? 0 : (int)(test_random(&s) % 4) };
    snprintf(m.value, sizeof m.value, "%.*s%lld", 4 + (int)(test_random(&s) % 16),
             "abcdefghijklmnopqrst", (long long)i);
    return m;
}

static void add_made(struct log_buf *b, const struct made *m, int64_t i) {
    size_t len = strlen(m->value);
    if (m->null) {
        log_buf_null(b);
    } else {
        memcpy(log_buf_room(b, len), m->value, len);
        log_buf_end(b, len);
    }
    if (m->key)
        log_buf_key(b, m->value, len / 2, false);
    if (m->time)
        log_buf_time(b, -i);
    for (int h = 0; h < m->nheaders; h++)
        log_buf_header(b, m->value, (size_t)h, h == 1 ? NULL : m->value, len - (size_t)h);
}

static void expect_made(const struct log_rows *r, uint32_t k, const struct made *m, int64_t i,
                        int64_t appended) {
    uint32_t at = log_end(r->value_end, (int64_t)k - 1), len = log_end(r->value_end, k) - at;
    size_t want = strlen(m->value);
    assert_int_equal(!!(r->value_end[k] & LOG_NULL), m->null);
    assert_int_equal(len, m->null ? 0 : want);
    assert_memory_equal(r->values + at, m->value, len);
    bool key = r->key_end && !(r->key_end[k] & LOG_NULL);
    assert_int_equal(key, m->key);
    if (key) {
        at = log_end(r->key_end, (int64_t)k - 1);
        assert_int_equal(r->key_end[k] - at, want / 2);
        assert_memory_equal(r->keys + at, m->value, want / 2);
    }
    assert_int_equal(log_row_time(r, k), m->time ? -i : appended);
    struct log_header h;
    const char *p = r->header_end ? r->headers + log_end(r->header_end, (int64_t)k - 1) : NULL;
    const char *end = p ? r->headers + log_end(r->header_end, k) : NULL;
    int n = 0;
    for (; p && log_header_next(&p, end, &h); n++) {
        assert_int_equal(h.nlen, n);
        assert_memory_equal(h.name, m->value, h.nlen);
        assert_int_equal(h.value == NULL, n == 1);
        assert_int_equal(h.vlen, n == 1 ? 0 : want - (size_t)n);
        assert_memory_equal(n == 1 ? "" : h.value, m->value, h.vlen);
    }
    assert_int_equal(n, m->nheaders);
}

/* Frames that have some of it and frames that have none, whole, in parts and copied. */
void suite_records_have_more_than_a_value(void **state) {
    struct log *log = suite_log(state);
    uint64_t seed = test_seed(11), s = seed;
    int64_t end = 0, offset, appended = 5000;
    suite_topic(log, "t", -1);
    suite_topic(log, "copy", -1);
    for (int round = 0; round < 60; round++) {
        struct log_epoch *ep = log_epoch_begin(log);
        struct log_buf *b = log_buf_new(), *copy = log_buf_new();
        struct log_rows rows;
        uint32_t n = 1 + (uint32_t)(test_random(&s) % 300);
        for (uint32_t k = 0; k < n; k++) {
            struct made m = make(seed, end + k, round % 4 == 3);
            add_made(b, &m, end + k);
        }
        log_buf_seal(b);
        log_buf_rows(b, &rows);
        for (uint32_t k = 0; k < n; k++)
            log_buf_copy(copy, &rows, k);
        log_buf_seal(copy);
        assert_int_equal(copy->crc, b->crc);
        assert_int_equal(log_buf_bytes(copy), log_buf_bytes(b));
        log_epoch_append(ep, "t", 0, b, appended, NULL);
        log_epoch_append(ep, "copy", 0, copy, appended, NULL);
        log_buf_unref(b);
        log_buf_unref(copy);
        suite_commit(ep);
        struct log_reader *r;
        struct err e = ERR_INIT;
        if (round % 20 == 19)
            log = suite_again(state);
        for (int t = 0; t < 2; t++) {
            assert_int_equal(log_reader_open(log, t ? "copy" : "t", 0, end, &r, &e), 0);
            for (int64_t at = 0; at < n;) {
                int got = log_read(r, 1 + (uint32_t)(test_random(&s) % 100), &rows, &offset, &e);
                assert_true(got > 0);
                assert_int_equal(offset, end + at);
                for (uint32_t k = 0; k < (uint32_t)got; k++, at++) {
                    struct made m = make(seed, end + at, round % 4 == 3);
                    expect_made(&rows, k, &m, end + at, appended);
                }
            }
            log_reader_close(r);
        }
        end += n;
    }
}

/* ---- compaction ---- */

enum { COMPACT_KEYS = 40, COMPACT_ROUNDS = 60, TOMBSTONE_MS = 100000 };

struct compact_model {
    int64_t n;
    int key[COMPACT_ROUNDS * 60]; /* of record i; -1: none */
    bool null[COMPACT_ROUNDS * 60];
    int64_t time[COMPACT_ROUNDS * 60];
};

static void append_keyed(struct log *log, struct compact_model *m, uint64_t *s, int64_t now) {
    struct log_epoch *ep = log_epoch_begin(log);
    struct log_buf *b = log_buf_new();
    for (uint32_t n = 1 + (uint32_t)(test_random(s) % 50); n-- > 0; m->n++) {
        char key[16], *p = log_buf_room(b, 32);
        m->key[m->n] = (int)(test_random(s) % (COMPACT_KEYS + 1)) - 1;
        m->null[m->n] = m->key[m->n] >= 0 && test_random(s) % 6 == 0;
        m->time[m->n] = now;
        if (m->null[m->n])
            log_buf_null(b);
        else
            log_buf_end(b, (size_t)snprintf(p, 32, "value-%lld", (long long)m->n));
        int len = snprintf(key, sizeof key, "key%d", m->key[m->n]);
        log_buf_key(b, key, (size_t)len, m->key[m->n] < 0);
    }
    log_buf_seal(b);
    assert_int_equal(log_epoch_append(ep, "t", 0, b, now, NULL), 0);
    log_buf_unref(b);
    suite_commit(ep);
}

static void expect_keyed(const struct log_rows *r, uint32_t k, const struct compact_model *m,
                         int64_t i) {
    char want[32];
    uint32_t at = log_end(r->value_end, (int64_t)k - 1), len = log_end(r->value_end, k) - at;
    assert_true(i < m->n);
    assert_int_equal(!!(r->value_end[k] & LOG_NULL), m->null[i]);
    int n = m->null[i] ? 0 : snprintf(want, sizeof want, "value-%lld", (long long)i);
    assert_int_equal(len, n);
    assert_memory_equal(r->values + at, want, len);
    bool key = r->key_end && !(r->key_end[k] & LOG_NULL);
    assert_int_equal(key, m->key[i] >= 0);
    if (!key)
        return;
    at = log_end(r->key_end, (int64_t)k - 1);
    n = snprintf(want, sizeof want, "key%d", m->key[i]);
    assert_int_equal(r->key_end[k] - at, n);
    assert_memory_equal(r->keys + at, want, (size_t)n);
}

/* Reads on from `from`; what is there is in order and as it was written, and nothing is missing but
 * what a later record of its key replaces, or tombstones whose time has come. The number of records
 * that could have gone but are there, in the older half. */
static int64_t check_keyed(struct log *log, const struct compact_model *m, int64_t from,
                           int64_t now, uint32_t max) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset, at = from, last[COMPACT_KEYS], stale = 0;
    memset(last, 0xff, sizeof last);
    for (int64_t i = 0; i < m->n; i++)
        if (m->key[i] >= 0)
            last[m->key[i]] = i;
    assert_int_equal(log_reader_open(log, "t", 0, from, &r, &e), 0);
    for (int n;; at = offset + n) {
        n = log_read(r, max, &rows, &offset, &e);
        if (n < 0)
            fail_msg("%s", e.text);
        int64_t to = n ? offset : m->n;
        for (; at < to; at++) {
            bool gone = m->key[at] >= 0 && (last[m->key[at]] > at ||
                                            (m->null[at] && m->time[at] <= now - TOMBSTONE_MS));
            if (!gone)
                fail_msg("record %lld is missing", (long long)at);
        }
        if (n == 0)
            break;
        for (uint32_t k = 0; k < (uint32_t)n; k++) {
            int64_t i = offset + k;
            expect_keyed(&rows, k, m, i);
            bool gone = m->key[i] >= 0 &&
                        (last[m->key[i]] > i || (m->null[i] && m->time[i] < now - TOMBSTONE_MS));
            stale += gone && i < m->n / 2;
        }
    }
    log_reader_close(r);
    return stale;
}

/* Until compaction has done its work: what is not old is more than the newest segment and as much
 * as it may leave for the next pass. */
static void wait_compacted(struct log *log, const struct compact_model *m, int64_t now) {
    while (check_keyed(log, m, 0, now, 1000) > 0)
        usleep(500);
}

void suite_compaction(void **state) {
    struct log *log = suite_log(state);
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1, .compact = true };
    struct compact_model *m = calloc(1, sizeof *m);
    struct log_topic_info info;
    struct err e = ERR_INIT;
    struct log_reader *r;
    struct log_rows rows;
    uint64_t s = test_seed(23);
    int64_t now = 1700000000000, offset;
    clock_freeze(now);
    assert_int_equal(log_topic_create(log, "t", &tc, &e), 0);
    for (int round = 0; round < COMPACT_ROUNDS; round++) {
        append_keyed(log, m, &s, now);
        if (round == 5)
            assert_int_equal(log_reader_open(log, "t", 0, 20, &r, &e), 0);
        if (round % 7 == 3)
            check_keyed(log, m, (int64_t)(test_random(&s) % (uint64_t)m->n), now,
                        1 + (uint32_t)(test_random(&s) % 40));
        if (round % 20 == 19)
            wait_compacted(log, m, now);
        if (round == 22) { /* a reader from before keeps its place */
            for (int n; (n = log_read(r, 13, &rows, &offset, &e)) > 0;)
                for (uint32_t k = 0; k < (uint32_t)n; k++)
                    expect_keyed(&rows, k, m, offset + k);
            log_reader_close(r);
        }
        if (round % 25 == 24)
            log = suite_again(state);
        now += 1000;
        clock_freeze(now);
    }
    /* Old tombstones go with the next pass: enough new records for one. */
    now += TOMBSTONE_MS;
    clock_freeze(now);
    wait_compacted(log, m, now);
    assert_int_equal(log_topic_info(log, "t", &info, &e), 0);
    assert_true(info.conf.compact && info.begin == 0 && info.end == m->n);
    for (int64_t at = 0; at <= m->n; at += 1 + (int64_t)(test_random(&s) % 90))
        check_keyed(log, m, at, now, 1 + (uint32_t)(test_random(&s) % 40));
    log = suite_again(state);
    check_keyed(log, m, 0, now, 7);
    clock_freeze(INT64_MIN);
    free(m);
}
