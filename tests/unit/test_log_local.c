#include "engine/crc32c.h"
#include "tests/unit/files_fault.h"
#include "tests/unit/harness.h"
#include "tests/unit/log_suite.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static struct log_conf conf = { .dir = dir };

static struct log *open_log(void) {
    struct log *log;
    struct err e = ERR_INIT;
    if (log_open(&log, &conf, &e))
        fail_msg("open: %s: %s", e.file, e.text);
    return log;
}

static struct log *fresh(void *arg, int64_t segment_bytes) {
    conf = (struct log_conf){ .dir = dir,
                              .segment_bytes = segment_bytes,
                              .tend_ms = 1,
                              .tombstone_ms = 100000,
                              .durability = *(enum log_durability *)arg };
    snprintf(dir, sizeof dir, "/tmp/braid-log-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return open_log();
}

static struct log *reopen(void *arg, struct log *log) {
    (void)arg;
    log_close(log);
    return open_log();
}

static void discard(void *arg, struct log *log) {
    (void)arg;
    log_close(log);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- damage ---- */

enum { COMMITS = 12, PER_COMMIT = 9 };

static void make_damage_dir(void) {
    conf = (struct log_conf){ .dir = dir, .segment_bytes = 700 };
    snprintf(dir, sizeof dir, "%s/braid-damage-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(dir));
    struct log *log = open_log();
    suite_topic(log, "t", -1);
    for (int64_t i = 0; i < COMMITS; i++)
        suite_put(log, "t", "r", i * PER_COMMIT, PER_COMMIT);
    log_close(log);
}

static void remove_damage_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static int64_t file_size(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void flip(const char *path, int64_t at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f) ^ 1 << at % 8;
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(c, f);
    fclose(f);
}

static int take_pos(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)key;
    (void)klen;
    (void)vlen;
    memcpy(arg, value, 8);
    return 0;
}

static int64_t pos_of(struct log *log) {
    int64_t pos = 0;
    struct err e = ERR_INIT;
    assert_int_equal(log_state_each(log, "pos", 3, take_pos, &pos, &e), 0);
    return pos;
}

static void commit_log_name(char path[128]) {
    snprintf(path, 128, "%s/commit/%020d.log", dir, 1);
}

/* Any flipped bit of the commit log is an error that names file and byte, and what the message
 * advises keeps every commit before the damage. */
static void a_bit_of_the_commit_log_is_flipped(void **state) {
    (void)state;
    make_damage_dir();
    char path[128];
    commit_log_name(path);
    int64_t size = file_size(path), last = -1;
    for (int64_t at = 0; at < size; at++) {
        struct err e = ERR_INIT;
        struct log *log;
        flip(path, at);
        assert_int_equal(log_open(&log, &conf, &e), ERR_SYSTEM);
        assert_string_equal(e.file, path);
        assert_true(e.offset >= 0 && e.offset <= at && e.offset >= last);
        last = e.offset;
        assert_non_null(strstr(e.text, "truncate -s"));
        flip(path, at);
    }
    struct log *whole = open_log();
    suite_expect(whole, "t", "r", 0, COMMITS * PER_COMMIT);
    log_close(whole);
    remove_damage_dir();

    make_damage_dir();
    commit_log_name(path);
    flip(path, size * 2 / 3);
    struct err e = ERR_INIT;
    struct log *log;
    assert_int_equal(log_open(&log, &conf, &e), ERR_SYSTEM);
    assert_int_equal(truncate(path, e.offset), 0);
    log = open_log();
    int64_t pos = pos_of(log);
    assert_true(pos > COMMITS / 3 * PER_COMMIT && pos < COMMITS * PER_COMMIT);
    suite_expect(log, "t", "r", 0, pos);
    suite_put(log, "t", "r", pos, 50);
    log_close(log);
    log = open_log();
    suite_expect(log, "t", "r", 0, pos + 50);
    log_close(log);
    remove_damage_dir();
}

/* A write that was cut short loses itself and nothing else. */
static void the_last_write_is_torn(void **state) {
    (void)state;
    char path[128];
    for (int64_t cut = 1; cut < 400; cut += 13) {
        make_damage_dir();
        commit_log_name(path);
        assert_int_equal(truncate(path, file_size(path) - cut), 0);
        struct err e = ERR_INIT;
        struct log *log;
        assert_int_equal(log_open(&log, &conf, &e), 0);
        int64_t pos = pos_of(log);
        assert_true(pos % PER_COMMIT == 0 && pos < COMMITS * PER_COMMIT);
        assert_true(pos >= (COMMITS - 1 - cut / 100) * PER_COMMIT);
        suite_expect(log, "t", "r", 0, pos);
        suite_put(log, "t", "r", pos, 7);
        suite_expect(log, "t", "r", 0, pos + 7);
        log_close(log);
        remove_damage_dir();
    }
}

/* Reads the topic over all damage; returns how many records are lost. Every report names a file. */
static int64_t read_over_damage(struct log *log, int *reports) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset, at = 0, lost = 0;
    assert_int_equal(log_reader_open(log, "t", 0, 0, &r, &e), 0);
    for (int n; (n = log_read(r, 1000, &rows, &offset, &e)) != 0;) {
        if (n < 0) {
            assert_int_equal(n, ERR_SYSTEM);
            assert_non_null(strstr(e.file, ".seg"));
            assert_non_null(strstr(e.text, "lost"));
            assert_non_null(strstr(e.text, e.file)); /* where only the text is shown, too */
            assert_true(offset > at);
            lost += offset - at;
            ++*reports;
            at = offset;
            assert_int_equal(log_seek(r, at, &e), 0);
            continue;
        }
        assert_int_equal(offset, at);
        for (int i = 0; i < n; i++) {
            char want[32];
            uint32_t from = i ? rows.value_end[i - 1] : 0;
            int len = snprintf(want, sizeof want, "r-%lld", (long long)at + i);
            assert_int_equal(rows.value_end[i] - from, len);
            assert_memory_equal(rows.values + from, want, (size_t)len);
        }
        at += n;
    }
    assert_int_equal(at, COMMITS * PER_COMMIT);
    log_reader_close(r);
    return lost;
}

static void a_bit_of_a_segment_is_flipped(void **state) {
    (void)state;
    make_damage_dir();
    static const int bases[] = { 0, 36, 72 };
    int damaged = 0;
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/topics/t/0/%020d.seg", dir, bases[i]);
        int64_t size = file_size(path);
        for (int64_t at = 0; at < size; at += 3) {
            int reports = 0;
            flip(path, at);
            struct log *log = open_log();
            int64_t lost = read_over_damage(log, &reports);
            assert_true((lost == PER_COMMIT && reports == 1) || (lost == 0 && reports == 0));
            damaged += reports;
            log_close(log);
            flip(path, at);
        }
    }
    assert_true(damaged > 300);
    remove_damage_dir();
}

static void files_are_missing(void **state) {
    (void)state;
    char path[128];
    struct err e = ERR_INIT;
    struct log *log;
    for (int base = 0; base <= 108; base += 9) { /* a sealed segment, then the active one */
        int reports = 0;
        make_damage_dir();
        snprintf(path, sizeof path, "%s/topics/t/0/%020d.seg", dir, base);
        if (unlink(path) == 0) {
            log = open_log();
            int64_t lost = read_over_damage(log, &reports);
            assert_true(lost > 0 && lost <= 36 && reports == 1);
            suite_put(log, "t", "r", COMMITS * PER_COMMIT, 30);
            suite_expect(log, "t", "r", COMMITS * PER_COMMIT, COMMITS * PER_COMMIT + 30);
            log_close(log);
        }
        remove_damage_dir();
    }
    make_damage_dir();
    log = open_log();
    suite_put(log, "t", "r", COMMITS * PER_COMMIT, 1);
    log_close(log);
    commit_log_name(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(log_open(&log, &conf, &e), ERR_SYSTEM);
    assert_non_null(strstr(e.text, "is missing"));
    remove_damage_dir();
}

static void a_snapshot_is_damaged(void **state) {
    (void)state;
    make_damage_dir();
    conf.commit_bytes = 1;
    struct log *log = open_log();
    suite_put(log, "t", "r", COMMITS * PER_COMMIT, 1);
    log_close(log);
    char path[128], command[256];
    snprintf(command, sizeof command, "mv %s/snapshot/*.snap %s/s", dir, dir);
    assert_int_equal(system(command), 0); /* its number does not matter here */
    snprintf(command, sizeof command, "cd %s && mv s snapshot/%020d.snap && rm -f commit/*", dir,
             3);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/snapshot/%020d.snap", dir, 3);
    for (int64_t at = 0, size = file_size(path); at < size; at++) {
        struct err e = ERR_INIT;
        flip(path, at);
        assert_int_equal(log_open(&log, &conf, &e), ERR_SYSTEM);
        assert_true(e.text[0] != 0);
        flip(path, at);
    }
    log = open_log();
    suite_expect(log, "t", "r", 0, COMMITS * PER_COMMIT + 1);
    log_close(log);
    remove_damage_dir();
}

static void one_process_holds_the_directory(void **state) {
    (void)state;
    make_damage_dir();
    struct log *log = open_log(), *second;
    struct err e = ERR_INIT;
    char want[64];
    snprintf(want, sizeof want, "already used by process %d", (int)getpid());
    assert_int_equal(log_open(&second, &conf, &e), ERR_CONFLICT);
    assert_non_null(strstr(e.text, want));
    log_close(log);
    log_close(open_log());
    remove_damage_dir();
}

/* ---- full and failing disks ---- */

static enum log_outcome try_put(struct log *log, int64_t from, uint32_t n, struct err *e) {
    struct log_epoch *ep = log_epoch_begin(log);
    struct log_buf *b = suite_buf("r", from, n, false);
    int64_t pos = from + n;
    log_epoch_append(ep, "t", 0, b, 0, NULL);
    log_buf_unref(b);
    log_epoch_state(ep, "pos", 3, &pos, sizeof pos);
    *e = (struct err)ERR_INIT;
    return log_commit_wait(ep, NULL, e);
}

static void a_full_disk_refuses_and_recovers(void **state) {
    (void)state;
    for (int64_t space = 0; space < 3000; space += 97) {
        make_damage_dir();
        struct fault *ft = fault_new(dir, 1);
        struct err e;
        conf.files = fault_files(ft);
        struct log *log = open_log();
        int64_t end = COMMITS * PER_COMMIT;
        fault_space(ft, space);
        for (int i = 0; i < 3; i++)
            if (try_put(log, end, 100, &e) == LOG_COMMITTED) {
                end += 100;
            } else {
                assert_true(e.retriable);
                assert_non_null(strstr(e.text, "No space left"));
            }
        assert_true(end < COMMITS * PER_COMMIT + 300);
        suite_expect(log, "t", "r", 0, end);
        fault_space(ft, -1);
        assert_int_equal(try_put(log, end, 10, &e), LOG_COMMITTED);
        log_close(log);
        log = open_log();
        suite_expect(log, "t", "r", 0, end + 10);
        assert_int_equal(pos_of(log), end + 10);
        log_close(log);
        fault_free(ft);
        remove_damage_dir();
    }
}

static void an_unknown_outcome_ends_commits(void **state) {
    (void)state;
    make_damage_dir();
    struct fault *ft = fault_new(dir, 1);
    struct err e;
    conf.files = fault_files(ft);
    conf.durability = LOG_POWER;
    struct log *log = open_log();
    int64_t end = COMMITS * PER_COMMIT;
    assert_int_equal(try_put(log, end, 5, &e), LOG_COMMITTED);
    fault_syncs(ft, 1); /* the frame's; cutting it off again works */
    assert_int_equal(try_put(log, end + 5, 5, &e), LOG_ABORTED);
    assert_int_equal(try_put(log, end + 5, 5, &e), LOG_COMMITTED);
    fault_syncs(ft, 2);
    assert_int_equal(try_put(log, end + 10, 5, &e), LOG_UNKNOWN);
    assert_non_null(strstr(e.text, "until it is opened again"));
    assert_int_equal(try_put(log, end + 10, 5, &e), LOG_ABORTED);
    assert_false(e.retriable);
    assert_int_equal(log_topic_delete(log, "t", &e), ERR_SYSTEM);
    suite_expect(log, "t", "r", 0, end + 10);
    log_close(log);
    log = open_log();
    int64_t pos = pos_of(log);
    assert_true(pos == end + 10 || pos == end + 15);
    suite_expect(log, "t", "r", 0, pos);
    assert_int_equal(try_put(log, pos, 5, &e), LOG_COMMITTED);
    log_close(log);
    fault_free(ft);
    remove_damage_dir();
}

/* ---- opening ---- */

/* Under `power` the rows of all commits since the snapshot are written again, without a sync each
 * (with 20 sinks a directory sync a row would make a restart take minutes). */
static void opening_needs_no_sync_a_row(void **state) {
    (void)state;
    enum { SINKS = 20, ROUNDS = 30 };
    make_damage_dir();
    conf.durability = LOG_POWER;
    struct log *log = open_log();
    char name[16];
    for (int i = 0; i < SINKS; i++) {
        snprintf(name, sizeof name, "s%d", i);
        suite_topic(log, name, -1);
    }
    for (int k = 0; k < ROUNDS; k++) {
        struct log_epoch *ep = log_epoch_begin(log);
        struct log_buf *b = suite_buf("r", k, 1, false);
        for (int i = 0; i < SINKS; i++) {
            snprintf(name, sizeof name, "s%d", i);
            log_epoch_append(ep, name, 0, b, 0, NULL);
        }
        log_buf_unref(b);
        assert_int_equal(log_commit_wait(ep, NULL, NULL), LOG_COMMITTED);
    }
    log_close(log);
    struct fault *ft = fault_new(dir, 1);
    conf.files = fault_files(ft);
    fault_boot(ft, 2);
    log = open_log();
    assert_true(fault_calls(ft) < 2 * SINKS * ROUNDS);
    for (int i = 0; i < SINKS; i++) {
        snprintf(name, sizeof name, "s%d", i);
        suite_expect(log, name, "r", 0, ROUNDS);
    }
    log_close(log);
    fault_free(ft);
    remove_damage_dir();
}

/* Somebody removes a topic's directory. That costs its rows; commits go on for as long as one
 * likes, snapshots included. */
static void a_directory_is_removed(void **state) {
    (void)state;
    make_damage_dir();
    conf.commit_bytes = 500;
    struct log *log = open_log();
    char command[128];
    suite_topic(log, "u", -1);
    suite_put(log, "t", "r", COMMITS * PER_COMMIT, 1);
    snprintf(command, sizeof command, "rm -rf %s/topics/t", dir);
    assert_int_equal(system(command), 0);
    for (int64_t i = 0; i < 100; i++)
        suite_put(log, "u", "r", i, 1);
    log_close(log);
    remove_damage_dir();
}

/* A log of `process` that goes on as `power`: from then on nothing may be lost, neither what was
 * written before nor the directories it is in. */
static void durability_is_raised(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        char to[64];
        make_damage_dir();
        remove_damage_dir();
        assert_int_equal(mkdir(dir, 0700), 0);
        struct fault *ft = fault_new(dir, 5);
        conf = (struct log_conf){ .dir = dir, .segment_bytes = 700, .files = fault_files(ft) };
        conf.commit_bytes = i < 2 ? 0 : 300; /* the state of `process` is in a snapshot */
        struct log *log = open_log();
        suite_topic(log, "t", -1);
        suite_topic(log, "u", -1); /* not written before */
        suite_put(log, "t", "r", 0, 100);
        log_close(log);
        conf.durability = LOG_POWER;
        log = open_log();
        suite_put(log, "t", "r", 100, 30);
        suite_put(log, "u", "r", 0, 10);
        log_close(log);
        snprintf(to, sizeof to, "/tmp/braid-raised-XXXXXX");
        assert_non_null(mkdtemp(to));
        fault_image(ft, to, i % 2 ? FAULT_SCATTER : FAULT_DROP);
        fault_free(ft);
        remove_damage_dir();
        snprintf(dir, sizeof dir, "%s", to);
        conf.files = NULL;
        log = open_log();
        suite_expect(log, "t", "r", 0, 130);
        suite_expect(log, "u", "r", 0, 10);
        log_close(log);
        remove_damage_dir();
    }
}

/* ---- checksum ---- */

static void crc32c_is_castagnoli(void **state) {
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    uint64_t seed = test_seed(3);
    static unsigned char data[70000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)test_random(&seed);
    for (int i = 0; i < 500; i++) {
        size_t len = test_random(&seed) % (i % 2 ? 2000 : sizeof data - 8);
        size_t at = test_random(&seed) % 8, cut = test_random(&seed) % (len + 1);
        uint32_t want = crc32c_portable(0, data + at, len);
        assert_int_equal(crc32c(0, data + at, len), want);
        assert_int_equal(crc32c(crc32c(0, data + at, cut), data + at + cut, len - cut), want);
    }
}

int main(void) {
    static struct log_conf process, power = { .durability = LOG_POWER },
                                    small = { .commit_bytes = 3000 };
    struct log_suite suites[] = {
        { "log_local process", &process, fresh, reopen, discard },
        { "log_local power", &power, fresh, reopen, discard },
        { "log_local with a snapshot every few commits", &small, fresh, reopen, discard },
    };
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed += log_suite_run(&suites[i]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bit_of_the_commit_log_is_flipped),
        cmocka_unit_test(the_last_write_is_torn),
        cmocka_unit_test(a_bit_of_a_segment_is_flipped),
        cmocka_unit_test(files_are_missing),
        cmocka_unit_test(a_snapshot_is_damaged),
        cmocka_unit_test(one_process_holds_the_directory),
        cmocka_unit_test(a_full_disk_refuses_and_recovers),
        cmocka_unit_test(an_unknown_outcome_ends_commits),
        cmocka_unit_test(opening_needs_no_sync_a_row),
        cmocka_unit_test(a_directory_is_removed),
        cmocka_unit_test(durability_is_raised),
        cmocka_unit_test(crc32c_is_castagnoli),
    };
    return failed + cmocka_run_group_tests_name("log_local damage", tests, NULL, NULL);
}
