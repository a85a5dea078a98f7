/* Replays: the same bytes every time, times that move by the file's length, exactly K keys, odd
 * files, and the schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/dataset.h"
#include "cluster/splitter.h"
#include "engine/json.h"
#include "engine/num.h"
#include "tests/unit/harness.h"
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char file[64];
static const char *write_file(const void *bytes, size_t len) {
    snprintf(file, sizeof file, "/tmp/braid-test-dataset-XXXXXX");
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
    return file;
}
static int remove_file(void **state) {
    (void)state;
    if (*file)
        unlink(file);
    *file = 0;
    return 0;
}
static struct dataset *open_ok(const struct dataset_conf *c) {
    struct dataset *ds;
    struct err e = ERR_INIT;
    if (dataset_open(&ds, c, &e) != 0)
        fail_msg("%s", e.text);
    return ds;
}
static bool next_ok(struct dataset *ds, struct dataset_record *r) {
    struct err e = ERR_INIT;
    int rc = dataset_next(ds, r, &e);
    if (rc < 0)
        fail_msg("%s", e.text);
    return rc == 1;
}
/* "record|record|" with "@time" after each that has one. */
static const char *all_of(const struct dataset_conf *c) {
    static struct sbuf b;
    b.len = 0;
    struct dataset *ds = open_ok(c);
    struct dataset_record r;
    while (next_ok(ds, &r)) {
        sbuf_add(&b, r.data, r.len);
        if (r.time != DATASET_NO_TIME)
            sbuf_printf(&b, "@%lld", (long long)r.time);
        sbuf_add(&b, "|", 1);
    }
    dataset_close(ds);
    return sbuf_str(&b);
}
/* Held in memory and as a stream must give the same. */
static void expect(const char *bytes, struct dataset_conf c, const char *want) {
    c.source = write_file(bytes, strlen(bytes));
    c.cache_bytes = 0;
    assert_string_equal(all_of(&c), want);
    if (*bytes) {
        c.cache_bytes = 1;
        if (strlen(bytes) > 1)
            assert_string_equal(all_of(&c), want);
    }
    remove_file(NULL);
}

static void odd_files(void **state) {
    (void)state;
    struct dataset_conf one = { 0 }, three = { .loop = 3 }, plain = { .lines = DATASET_PLAIN },
                        timed = { .lines = DATASET_TIMED },
                        timed3 = { .lines = DATASET_TIMED, .loop = 3 };
    expect("", one, "");
    expect("", three, "");
    expect("\n", one, "|");
    expect("a", one, "a|");
    expect("a\n", one, "a|");
    expect("a\nb", one, "a|b|");
    expect("a\r\nb\r\n", one, "a|b|");
    expect("a\r", one, "a\r|"); /* a CR that no LF follows belongs to the record */
    expect("a\n\nb\n", one, "a||b|");
    expect("a\nb", three, "a|b|a|b|a|b|");
    expect("5000,x\r\n6000,y", timed, "x@5000|y@6000|");
    expect("5000,x\r\n6000,y", one, "5000,x|6000,y|"); /* a number, hardly a time */
    expect("100000000,x\n6000,y", one, "x@100000000|y@6000|");
    expect("5000,x\n6000,y\n", timed3, "x@5000|y@6000|x@7000|y@8000|x@9000|y@10000|");
    expect("5000,x\n", timed3, "x@5000|x@6000|x@7000|"); /* one line: a second */
    expect("5000,x\n6000,y\n", plain, "5000,x|6000,y|"); /* as asked */
    expect("-5,x\n", timed, "x@-5|");
    /* a bad line is passed on whole, with the time of the one before */
    expect("5000,x\nbad,1422748800000\n7000,y\n", timed, "x@5000|bad,1422748800000@5000|y@7000|");
    expect("5000,x\n\n7000,\n", timed, "x@5000|@5000|@7000|");
    expect("99999999999999999999,x\n5,y\n", one, "99999999999999999999,x|5,y|");
    expect("{\"bt\":10}\n{\"bt\":30}\n{}\n", three,
           "{\"bt\":10}@10|{\"bt\":30}@30|{}|{\"bt\":50}@50|{\"bt\":70}@70|{}|{\"bt\":90}@90|"
           "{\"bt\":110}@110|{}|");
}
/* Without a time in front and without `bt` the first date of a record is its time. */
static void dates_are_times(void **state) {
    (void)state;
    struct dataset_conf two = { .loop = 2 };
    expect("id,at\n1,1970-01-01 00:00:01,x\n2,1970-01-01T00:00:03Z,1970-01-01T00:00:09Z\n", two,
           "id,at|1,1970-01-01 00:00:01,x@1000|2,1970-01-01T00:00:03Z,1970-01-01T00:00:09Z@3000|"
           "id,at|1,1970-01-01 00:00:05,x@5000|2,1970-01-01T00:00:07Z,1970-01-01T00:00:13Z@7000|");
    expect("{\"a\":\"1970-01-01T00:00:01Z\",\"bt\":7000}\n", two,
           "{\"a\":\"1970-01-01T00:00:01Z\",\"bt\":7000}@7000|"
           "{\"a\":\"1970-01-01T00:00:02Z\",\"bt\":8000}@8000|");
}
/* CSV: records of several lines repeat, move and change keys like others. */
static void csv_files(void **state) {
    (void)state;
    struct dataset_conf one = { .csv = ',' }, two = { .csv = ',', .loop = 2 },
                        keys = { .csv = ';', .loop = 2, .keys = 4, .id_field = "2" },
                        timed = { .csv = ',', .lines = DATASET_TIMED };
    expect("", one, "");
    expect("a,\"x\ny\"\r\nb,z", two, "a,\"x\ny\"|b,z|a,\"x\ny\"|b,z|");
    expect("a,\"x\nb,z", one, "a,\"x|b,z|");
    /* a small integer in front is a cell, unless the user says so */
    expect("1,a\n2,b\n", one, "1,a|2,b|");
    expect("1,a\n2,b\n", timed, "a@1|b@2|");
    expect("1422748800000,\"x\ny\",1422748800000\n1422748801000,z,q\n", two,
           "\"x\ny\",1422748800000@1422748800000|z,q@1422748801000|\"x\ny\",1422748802000@"
           "1422748802000|z,q@1422748803000|");
    expect("1422748800000,\"x\n;\";i;1422748800000;{\n1422748801000,z;j;2015-02-01 00:00:00\n",
           keys,
           "\"x\n;\";i;1422748800000;{@1422748800000|z;j;2015-02-01 00:00:00@1422748801000|"
           "\"x\n;\";i-1;1422748802000;{@1422748802000|z;j-1;2015-02-01 00:00:02@1422748803000|");
}
static void refusals(void **state) {
    (void)state;
    static const struct {
        struct dataset_conf c;
        int code;
        const char *text;
    } cases[] = {
        { { .source = "/no/such/file" }, ERR_NOTFOUND, "/no/such/file" },
        { { .source = "/tmp" }, ERR_INPUT, "directory" },
        { { .source = "", .keys = 5 }, ERR_INPUT, "id field" },
        { { .source = "sys", .rate = 1, .speed = 1 }, ERR_INPUT, "not both" },
        { { .source = "sys", .rate = -1 }, ERR_INPUT, "positive" },
        { { .source = "sys", .speed = 0.0 / 0.0 }, ERR_INPUT, "positive" },
        { { .source = "sys", .loop = -1 }, ERR_INPUT, "out of range" },
        { { .source = "/dev/null", .loop = 2 }, ERR_INPUT, "repeated" },
        { { .source = "", .speed = 2 }, ERR_INPUT, "no times" },
        { { .source = "", .shuffle = 4, .cache_bytes = 1 }, ERR_INPUT, "too large" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset_conf c = cases[i].c;
        if (!*c.source)
            c.source = write_file("a\nb\n", 4);
        struct dataset *ds;
        struct err e = ERR_INIT;
        assert_int_equal(dataset_open(&ds, &c, &e), cases[i].code);
        assert_null(ds);
        assert_non_null(strstr(e.text, cases[i].text));
        remove_file(NULL);
    }
    /* as a stream, what only the data shows comes with the record */
    struct dataset_conf c = { .source = write_file("a\nb\n", 4), .speed = 2, .cache_bytes = 1 };
    struct dataset *ds = open_ok(&c);
    struct dataset_record r;
    struct err e = ERR_INIT;
    assert_int_equal(dataset_next(ds, &r, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "no times"));
    dataset_close(ds);
}
static void a_line_beyond_the_limit(void **state) {
    (void)state;
    size_t len = SPLITTER_RECORD_MAX + 10;
    char *bytes = malloc(len);
    memset(bytes, 'x', len);
    memcpy(bytes, "a\n", 2);
    for (int cached = 0; cached < 2; cached++) {
        struct dataset_conf c = { .source = write_file(bytes, len), .cache_bytes = cached ? 0 : 1 };
        struct dataset *ds;
        struct err e = ERR_INIT;
        struct dataset_record r;
        int rc = dataset_open(&ds, &c, &e);
        if (!rc) {
            assert_int_equal(dataset_next(ds, &r, &e), 1);
            rc = dataset_next(ds, &r, &e);
        }
        assert_int_equal(rc, ERR_INPUT);
        assert_non_null(strstr(e.text, "record 2 is longer than 16 MiB"));
        dataset_close(ds);
        remove_file(NULL);
    }
    free(bytes);
}
static void pipes_are_read_as_they_come(void **state) {
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], "5000,x\n6000,", 12), 12);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
    struct dataset_conf c = { .source = path, .lines = DATASET_TIMED };
    struct dataset *ds = open_ok(&c);
    struct dataset_record r;
    assert_true(next_ok(ds, &r));
    assert_int_equal(r.time, 5000);
    assert_int_equal(dataset_total(ds), -1);
    assert_int_equal(write(fd[1], "yy", 2), 2);
    close(fd[1]);
    assert_true(next_ok(ds, &r));
    assert_int_equal(r.len, 2);
    assert_false(next_ok(ds, &r));
    dataset_close(ds);
    close(fd[0]);
}

/* ---- the RIoTBench samples ---- */

static const struct {
    const char *name, *id;
    int64_t lines, length_ms, ids;
} samples[] = {
    { "sys", "source", 1000, 60000, 788 },
    { "taxi", "taxi_identifier", 1000, 16500000, 782 },
    { "fit", "subjectId", 45, 60, 1 },
};
/* All times of a record by our JSON tree: bt and every date, in ms; the id in *id. */
static int times_of(struct arena *a, const struct dataset_record *r, const char *id_field,
                    int64_t *t, const char **id) {
    struct json_doc d;
    struct errs es = { 0 };
    assert_int_equal(json_parse(&d, NULL, r->data, r->len, a, &es), 0);
    int n = 0;
    const struct jnode *bt = jnode_get(d.root, "bt");
    if (bt->type == J_STR)
        assert_non_null(num_parse_i64(bt->s, bt->s + bt->len, &t[n]));
    else
        t[n] = bt->i;
    n++;
    for (struct jnode *e = jnode_get(d.root, "e")->child; e; e = e->next) {
        struct jnode *v = jnode_get(e, "v") ? jnode_get(e, "v") : jnode_get(e, "sv");
        if (strcmp(jnode_get(e, "n")->s, id_field) == 0)
            *id = v->s;
        else if (strcmp(jnode_get(e, "u")->s, "time") == 0)
            assert_int_equal(time_parse(v->s, v->s + v->len, &t[n++]), 0);
    }
    return n;
}
static void samples_move_by_their_length(void **state) {
    (void)state;
    enum { PASSES = 3, LINES = 1000 };
    static int64_t first[LINES][4];
    struct arena a = { 0 };
    for (size_t s = 0; s < sizeof samples / sizeof *samples; s++) {
        struct dataset_conf c = { .source = samples[s].name, .loop = PASSES };
        struct dataset *ds = open_ok(&c);
        assert_int_equal(dataset_total(ds), PASSES * samples[s].lines);
        assert_int_equal(dataset_length_ms(ds), samples[s].length_ms);
        struct dataset_record r;
        int64_t n = 0, last_of_pass = INT64_MIN, high = INT64_MIN;
        for (; next_ok(ds, &r); n++) {
            int64_t line = n % samples[s].lines, t[4];
            const char *id;
            int k = times_of(&a, &r, samples[s].id, t, &id);
            assert_int_equal(k, strcmp(samples[s].name, "taxi") == 0 ? 2 : 1);
            assert_int_equal(r.time, t[0]);
            assert_int_equal(r.seq, n);
            if (n < samples[s].lines)
                memcpy(first[n], t, sizeof t);
            for (int i = 0; i < k; i++)
                assert_int_equal(t[i],
                                 first[line][i] + n / samples[s].lines * samples[s].length_ms);
            if (line == 0)
                last_of_pass = high;
            assert_true(r.time > last_of_pass); /* passes never overlap */
            high = r.time > high ? r.time : high;
            arena_reset(&a);
        }
        assert_int_equal(n, PASSES * samples[s].lines);
        dataset_close(ds);
    }
    arena_free(&a);
}
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
static void exactly_k_keys(void **state) {
    (void)state;
    static const int64_t wanted[] = { 1, 3, 787, 788, 789, 1576, 3000 };
    struct arena a = { 0 }, keep = { 0 };
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        int64_t keys = wanted[w];
        struct dataset_conf c = { .source = "sys", .loop = (keys + 787) / 788, .keys = keys };
        for (int cached = 0; cached < 2; cached++) {
            c.cache_bytes = cached ? 0 : 1;
            struct dataset *ds = open_ok(&c);
            struct dataset_record r;
            const char **seen = calloc((size_t)c.loop * 1000, sizeof *seen), *id = NULL;
            int64_t n = 0, distinct = 0;
            for (; next_ok(ds, &r); n++) {
                int64_t t[4];
                times_of(&a, &r, "source", t, &id);
                seen[n] = arena_strdup(&keep, id);
                arena_reset(&a);
            }
            qsort(seen, (size_t)n, sizeof *seen, by_text);
            for (int64_t i = 0; i < n; i++)
                distinct += i == 0 || strcmp(seen[i], seen[i - 1]) != 0;
            assert_int_equal(distinct, keys);
            assert_int_equal(dataset_ids(ds), 788);
            for (int64_t k = 0; k < keys; k++) { /* the rule that tables are made by */
                char text[128];
                const char *key = text;
                text[dataset_key(ds, k, text, sizeof text)] = 0;
                assert_non_null(bsearch(&key, seen, (size_t)n, sizeof *seen, by_text));
            }
            assert_int_equal(dataset_key(ds, 5, (char[1]){ 0 }, 1), -1);
            free(seen);
            dataset_close(ds);
        }
    }
    arena_free(&a);
    arena_free(&keep);
}
/* A digest of everything a replay gives. */
static uint64_t digest(const struct dataset_conf *c, int64_t limit) {
    struct dataset *ds = open_ok(c);
    struct dataset_record r;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    while (limit-- > 0 && next_ok(ds, &r)) {
        for (uint32_t i = 0; i < r.len; i++)
            h = (h ^ (uint8_t)r.data[i]) * 1099511628211u;
        h = (h ^ (uint64_t)r.due_ns) * 1099511628211u;
        h = (h ^ (uint64_t)r.time) * 1099511628211u;
    }
    dataset_close(ds);
    return h;
}
static void the_same_bytes_every_time(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof samples / sizeof *samples; s++) {
        struct dataset_conf c = { .source = samples[s].name, .loop = 7, .keys = 900, .speed = 100 };
        struct dataset_conf stream = c;
        stream.cache_bytes = 1;
        assert_true(digest(&c, INT64_MAX) == digest(&c, INT64_MAX));
        assert_true(digest(&c, INT64_MAX) == digest(&stream, INT64_MAX));
        struct dataset_conf other = c;
        other.shuffle = 100;
        other.jitter_ms = 50;
        other.seed = 1;
        uint64_t once = digest(&other, INT64_MAX);
        assert_true(once == digest(&other, INT64_MAX));
        assert_true(once != digest(&c, INT64_MAX));
        other.seed = 2;
        assert_true(once != digest(&other, INT64_MAX));
    }
}
static void endless_is_endless(void **state) {
    (void)state;
    struct dataset_conf c = { .source = "fit", .loop = DATASET_ENDLESS };
    struct dataset *ds = open_ok(&c);
    struct dataset_record r;
    assert_int_equal(dataset_total(ds), -1);
    for (int i = 0; i < 10000; i++)
        assert_true(next_ok(ds, &r));
    assert_int_equal(r.time, 1417890600000 + 9999 / 45 * 60 + 20 * (9999 % 45 % 3));
    dataset_close(ds);
}
static void shuffling_permutes_within_its_window(void **state) {
    (void)state;
    enum { N = 1000, W = 50 };
    char bytes[N * 8], *p = bytes;
    for (int i = 0; i < N; i++)
        p += snprintf(p, 8, "%d\n", i);
    struct dataset_conf c = { .source = write_file(bytes, (size_t)(p - bytes)),
                              .shuffle = W,
                              .seed = 3,
                              .lines = DATASET_PLAIN,
                              .rate = 1000 };
    struct dataset *ds = open_ok(&c);
    struct dataset_record r;
    bool seen[N] = { false };
    int n = 0, moved = 0;
    for (; next_ok(ds, &r); n++) {
        int64_t i;
        assert_int_equal(num_i64_whole(r.data, r.data + r.len, &i), 0);
        assert_in_range(i, 0, n + W - 1); /* not before it could have entered the window */
        assert_false(seen[i]);
        seen[i] = true;
        moved += i != n;
        assert_int_equal(r.due_ns, (int64_t)n * 1000000);
    }
    assert_int_equal(n, N);
    assert_true(moved > N / 2);
    dataset_close(ds);
}

/* ---- the schedule ---- */

static void schedule_is_a_pure_function(void **state) {
    (void)state;
    assert_int_equal(dataset_due(0, 0, 1000, 1000), 0);
    assert_int_equal(dataset_due(10000, 0, 10000, 5), 1000000000);
    assert_int_equal(dataset_due(10000, 0, 1, 5), 100000);
    assert_int_equal(dataset_due(0, 2, 7, 1000), 500000000);
    assert_int_equal(dataset_due(0, 1000, 7, 60000), 60000000);
    assert_int_equal(dataset_due(0, 1e-300, 7, 60000), INT64_MAX);
    assert_int_equal(dataset_due(1e-300, 0, 7, 0), INT64_MAX);
    assert_int_equal(dataset_due(0, 1, 7, -5), 0);
    for (int64_t n = 997; n < 1000000; n += 997) /* a rate is kept without drift */
        assert_in_range(dataset_due(3e6, 0, n, 0), n * 1000 / 3 - 1, n * 1000 / 3 + 1);
}
static void speed_follows_the_recorded_times(void **state) {
    (void)state;
    const char text[] = "10000,a\n12000,b\n11000,c\n15000,d\n";
    struct dataset_conf c = {
        .source = write_file(text, strlen(text)), .speed = 10, .loop = 2, .lines = DATASET_TIMED
    };
    struct dataset *ds = open_ok(&c);
    /* length: 15 s - 10 s + smallest step 2 s; a record from the past is due at once */
    static const int64_t want[] = { 0, 200, 200, 500, 700, 900, 900, 1200 };
    struct dataset_record r;
    for (int i = 0; i < 8; i++) {
        assert_true(next_ok(ds, &r));
        assert_int_equal(r.due_ns, want[i] * 1000000);
    }
    assert_false(next_ok(ds, &r));
    dataset_close(ds);
}
static void jitter_is_late_and_in_order(void **state) {
    (void)state;
    struct dataset_conf c = { .source = "sys", .rate = 1000, .jitter_ms = 20, .seed = 5 };
    struct dataset *ds = open_ok(&c);
    struct dataset_record r;
    int64_t last = 0, late = 0;
    for (int64_t n = 0; next_ok(ds, &r); n++) {
        assert_true(r.due_ns >= last);
        assert_in_range(r.due_ns, n * 1000000, n * 1000000 + 20000000);
        late += r.due_ns > n * 1000000;
        last = r.due_ns;
    }
    assert_true(late > 900);
    dataset_close(ds);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(odd_files, remove_file),
        cmocka_unit_test_teardown(dates_are_times, remove_file),
        cmocka_unit_test_teardown(csv_files, remove_file),
        cmocka_unit_test_teardown(refusals, remove_file),
        cmocka_unit_test_teardown(a_line_beyond_the_limit, remove_file),
        cmocka_unit_test(pipes_are_read_as_they_come),
        cmocka_unit_test(samples_move_by_their_length),
        cmocka_unit_test(exactly_k_keys),
        cmocka_unit_test(the_same_bytes_every_time),
        cmocka_unit_test(endless_is_endless),
        cmocka_unit_test_teardown(shuffling_permutes_within_its_window, remove_file),
        cmocka_unit_test(schedule_is_a_pure_function),
        cmocka_unit_test_teardown(speed_follows_the_recorded_times, remove_file),
        cmocka_unit_test(jitter_is_late_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
