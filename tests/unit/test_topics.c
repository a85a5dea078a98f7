/* Records with all they may have, through dataflows: keys, times, headers and tombstones as fields
 * and out of fields; where sources start; to which partition a key goes. */
#include "engine/key.h"
#include "operators/all.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOW = 1700000 }; /* s: when world_append appends */

static void put(struct log_buf *b, const char *value) {
    if (!value) {
        log_buf_null(b);
        return;
    }
    size_t len = strlen(value);
    memcpy(log_buf_room(b, len), value, len);
    log_buf_end(b, len);
}

static void append(struct world *w, const char *topic, uint32_t partition, struct log_buf *b,
                   int64_t time) {
    struct log_epoch *ep = log_epoch_begin(w->log);
    struct err e = ERR_INIT;
    log_buf_seal(b);
    assert_int_equal(log_epoch_append(ep, topic, partition, b, time, NULL), 0);
    log_buf_unref(b);
    if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
        fail_msg("append to %s: %s", topic, e.text);
}

static void add_bytes(struct sbuf *o, const char *p, const uint32_t *end, uint32_t i) {
    uint32_t at = log_end(end, (int64_t)i - 1);
    if (end[i] & LOG_NULL)
        sbuf_adds(o, "null");
    else
        sbuf_add(o, p + at, end[i] - at);
}

/* Records of a partition, one a line: key|time|header=value,...|value */
static void read_all(struct world *w, const char *topic, uint32_t partition, struct sbuf *o) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t off;
    int n;
    assert_int_equal(log_reader_open(w->log, topic, partition, 0, &r, &e), 0);
    while ((n = log_read(r, 7, &rows, &off, &e)) > 0)
        for (uint32_t i = 0; i < (uint32_t)n; i++) {
            if (rows.key_end && !(rows.key_end[i] & LOG_NULL))
                add_bytes(o, rows.keys, rows.key_end, i);
            sbuf_printf(o, "|%lld|",
                        rows.times && rows.times[i] != LOG_NO_TIME ? (long long)rows.times[i] : -1);
            struct log_header h;
            const char *p =
                rows.header_end ? rows.headers + log_end(rows.header_end, (int64_t)i - 1) : NULL;
            const char *end = p ? rows.headers + log_end(rows.header_end, i) : NULL;
            while (p && log_header_next(&p, end, &h))
                sbuf_printf(o, "%.*s=%.*s,", (int)h.nlen, h.name, (int)h.vlen,
                            h.value ? h.value : "");
            sbuf_adds(o, "|");
            add_bytes(o, rows.values, rows.value_end, i);
            sbuf_adds(o, "\n");
        }
    assert_int_equal(n, 0);
    log_reader_close(r);
    sbuf_str(o);
}

static void expect(struct world *w, const char *topic, uint32_t partition, const char *want) {
    struct sbuf o = { 0 };
    read_all(w, topic, partition, &o);
    assert_string_equal(sbuf_str(&o), want);
    sbuf_free(&o);
}

static void four_records(struct world *w) {
    struct log_buf *b = log_buf_new();
    put(b, "{\"v\":1}");
    log_buf_key(b, "a", 1, false);
    log_buf_time(b, 1000);
    log_buf_header(b, "trace", 5, "t", 1);
    log_buf_header(b, "x", 1, NULL, 0);
    log_buf_header(b, "trace", 5, "t0", 2);
    put(b, "{\"v\":2}");
    put(b, NULL);
    log_buf_key(b, "b", 1, false);
    log_buf_header(b, "trace", 5, "t2", 2);
    put(b, "{\"v\":");
    log_buf_key(b, "\xff", 1, false);
    put(b, "{\"v\":5}");
    log_buf_key(b, "\xff", 1, false);
    log_buf_header(b, "bin", 3, "\xfe", 1);
    append(w, "in", 0, b, NOW * 1000LL);
}

#define META                                                                                       \
    "[\"_key\",\"_time\",\"_headers\",\"_header.trace\",\"_offset\",\"_partition\",\"_"            \
    "tombstone\"]"
#define SINK                                                                                       \
    "{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":\"%s\",\"format\":\"json\",\"key\":"    \
    "\"_key\",\"time\":{\"field\":\"_time\",\"unit\":\"ms\"},\"headers\":{\"trace\":"              \
    "\"_header.trace\",\"from\":\"_offset\"},\"tombstone\":\"_tombstone\",\"without\":[\"_key\","  \
    "\"_tombstone\"]},\"inputs\":[\"p\"]}"
static const char whole[] =
    "{\"braid\":1,\"name\":\"%s\",\"tasks\":[{\"id\":\"p\",\"type\":\"source\",\"config\":{"
    "\"topic\":"
    "\"in\",\"format\":\"json\",\"schema\":{\"v\":\"f64\"},\"meta\":" META "}}," SINK "]}";
static const char staged[] =
    "{\"braid\":1,\"name\":\"%s\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\",\"config\":{"
    "\"topic\":"
    "\"in\",\"meta\":" META
    "}},{\"id\":\"p\",\"type\":\"json_parse\",\"config\":{\"schema\":{\"v\":\"f64\"},\"keep\":" META
    "},\"inputs\":[\"s\"]}," SINK "]}";

/* All of a record's parts become fields and fields become them again, in both spellings, which
 * share their tasks; in any batch size, over an aborted epoch and a restart. */
static void test_meta(void **state) {
    static const char want[] =
        "a|1000|trace=t0,from=0,|{\"v\":1,\"_time\":1000,\"_headers\":\"{\\\"x\\\":null,"
        "\\\"trace\\\":"
        "\\\"t0\\\"}\",\"_header.trace\":\"t0\",\"_offset\":0,\"_partition\":0}\n"
        "|1700000000|from=1,|{\"v\":2,\"_time\":1700000000,\"_headers\":null,\"_header.trace\":"
        "null,"
        "\"_offset\":1,\"_partition\":0}\n"
        "b|1700000000|trace=t2,from=2,|null\n"
        "|1700000000|from=4,|{\"v\":5,\"_time\":1700000000,\"_headers\":\"{\\\"bin\\\":null}\","
        "\"_header.trace\":null,\"_offset\":4,\"_partition\":0}\n";
    static const uint32_t batch[] = { 1, 3, 1024 };
    char text[4096];
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct world w = { .lanes = 1 };
        world_open(&w, batch[i], false);
        world_topic(&w, "in");
        snprintf(text, sizeof text, whole, "one", "one");
        world_submit(&w, text);
        snprintf(text, sizeof text, staged, "two", "two");
        world_submit(&w, text);
        assert_int_equal(w.plan->counts.stages, 6); /* all but append are shared */
        four_records(&w);
        executor_settle(w.x);
        expect(&w, "one", 0, want);
        expect(&w, "two", 0, want);
        world_restart(&w);
        executor_inject_abort(w.x);
        four_records(&w);
        executor_settle(w.x);
        struct sbuf o = { 0 }, p = { 0 };
        read_all(&w, "one", 0, &o);
        read_all(&w, "two", 0, &p);
        assert_int_equal(o.len, 2 * strlen(want)); /* offsets have one digit */
        assert_string_equal(o.p, p.p);
        sbuf_free(&o);
        sbuf_free(&p);
        assert_int_equal(world_end(&w, EXECUTOR_DLQ), 2); /* the broken record, once each time */
        world_close(&w);
    }
}

/* Event time is what the writer says, within max_ahead of what the log says. */
static void test_own_time(void **state) {
    struct world w = { .lanes = 1 };
    (void)state;
    world_open(&w, 0, false);
    world_topic(&w, "in");
    world_submit(
        &w, "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\",\"config\":{"
            "\"topic\":\"in\",\"format\":\"json\",\"schema\":{\"v\":\"i64\"}}},{\"id\":\"a\","
            "\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\"},"
            "\"every\":\"10s\"},\"inputs\":[\"s\"]},{\"id\":\"o\",\"type\":\"sink\",\"config\":{"
            "\"topic\":\"out\"},\"inputs\":[\"a\"]}]}");
    static const int64_t times[] = {
        5000, 9999, 10000, LOG_NO_TIME, NOW * 1000LL + 86400000, NOW * 1000LL + 86400001
    };
    struct log_buf *b = log_buf_new();
    for (int i = 0; i < 6; i++) {
        put(b, "{\"v\":1}");
        log_buf_time(b, times[i]);
    }
    append(&w, "in", 0, b, NOW * 1000LL);
    executor_settle(w.x);
    struct sbuf o = { 0 };
    world_read(&w, "out", &o);
    int n = 0;
    for (const char *p = sbuf_str(&o); (p = strstr(p, "\"n\":")); p++)
        assert_int_equal(p[4], ++n == 1 ? '2' : '1');
    assert_int_equal(n, 3); /* [0,10), [10,20), that of the append; the last window is open */
    assert_int_equal(world_end(&w, EXECUTOR_DLQ), 1);
    sbuf_free(&o);
    world_close(&w);
}

/* A source begins where it is told, in each partition. */
static void test_start(void **state) {
    static const struct {
        const char *start;
        int first; /* record of each partition; 30: none that is there */
    } cases[] = { { "\"latest\"", 30 },
                  { "\"earliest\"", 0 },
                  { "{\"time\":150}", 10 },
                  { "{\"time\":100}", 0 },
                  { "{\"time\":\"1970-01-01T00:00:00.300Z\"}", 20 },
                  { "{\"time\":301}", 30 },
                  { "{\"offset\":17}", 17 },
                  { "{\"offset\":30}", 30 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t parts = cases[i].start[2] == 'o' ? 1 : 3;
        struct world w = { .lanes = 1 };
        char text[1000], want[4000];
        world_open(&w, 0, false);
        world_topic_parts(&w, "in", parts);
        for (uint32_t p = 0; p < parts; p++)
            for (int64_t k = 0; k < 3; k++) {
                struct log_buf *b = log_buf_new();
                for (int r = 0; r < 10; r++) {
                    snprintf(text, sizeof text, "%lld", (long long)k * 10 + r);
                    put(b, text);
                }
                append(&w, "in", p, b, 100 * (k + 1));
            }
        snprintf(
            text, sizeof text,
            "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\",\"config\":{"
            "\"topic\":\"in\",\"start\":%s}},{\"id\":\"o\",\"type\":\"sink\",\"config\":{\"topic\":"
            "\"out\",\"format\":\"raw\"},\"inputs\":[\"s\"]}]}",
            cases[i].start);
        world_submit(&w, text);
        for (uint32_t p = 0; p < parts; p++) {
            struct log_buf *b = log_buf_new();
            put(b, "30");
            append(&w, "in", p, b, 400);
        }
        executor_settle(w.x);
        for (uint32_t p = 0; p < parts; p++) {
            size_t len = 0;
            for (int k = cases[i].first; k <= 30; k++)
                len += (size_t)snprintf(want + len, sizeof want - len, "|-1||%d\n", k);
            expect(&w, "out", p, want);
        }
        world_close(&w);
    }
}

/* Records with a key go where a Kafka producer would put them, those without stay. */
static void test_key_partition(void **state) {
    enum { PARTS = 5, KEYS = 50 };
    struct world w = { .lanes = 1 };
    char row[64];
    int seen = 0;
    (void)state;
    world_open(&w, 0, false);
    world_topic(&w, "in");
    world_topic_parts(&w, "out", PARTS);
    world_submit(
        &w, "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"s\",\"type\":\"source\",\"config\":{"
            "\"topic\":\"in\",\"format\":\"json\",\"schema\":{\"k\":\"i64\"}}},{\"id\":\"o\","
            "\"type\":\"sink\",\"config\":{\"topic\":\"out\",\"format\":\"csv\",\"key\":\"k\"},"
            "\"inputs\":[\"s\"]}]}");
    for (int i = 0; i < 500; i++) {
        int len = snprintf(row, sizeof row, "{\"k\":%d}", i % KEYS);
        if (i % 10 == 0)
            memcpy(row + len - 2 - (i % KEYS > 9), "null}", 6);
        world_append(&w, "in", row);
    }
    executor_settle(w.x);
    for (uint32_t p = 0; p < PARTS; p++) {
        struct sbuf o = { 0 };
        read_all(&w, "out", p, &o);
        for (char *s = o.p, *nl; s && (nl = strchr(s, '\n')); s = nl + 1, seen++) {
            struct span key = { .p = s, .len = (uint32_t)strcspn(s, "|") };
            assert_int_equal(key.len ? key_partition(key, PARTS) : 0, p);
        }
        sbuf_free(&o);
    }
    assert_int_equal(seen, 500);
    world_close(&w);
}

int main(void) {
    operators_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meta),
        cmocka_unit_test(test_own_time),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_key_partition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
