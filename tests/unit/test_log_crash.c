/* The local log under faults. A random script of operations runs against a model in memory, with
 * full disks, failing syncs, processes killed at any call and machines that lose power; after each
 * the log must hold exactly what was committed. Then real processes killed by the kernel. */
#include "engine/log.h"
#include "tests/unit/files_fault.h"
#include "tests/unit/harness.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    TOPICS = 4,
    KEYS = 30,
    PENDING = 8,
    EFFECTS = 12,
    RETAINED = 3,
    COMPACTED = 1,
    RECORD_KEYS = 8
};

/* The fault layer keeps its own account of what is on disk, so the real files need no disk. */
static const char *fast_dir(void) {
    return access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
}

/* ---- model ---- */

struct mtopic {
    bool live, unsure; /* a create or delete failed: decided at the next open */
    bool was;          /* when unsure: alive before the call */
    uint64_t *id;
    int64_t n, cap;
    int64_t begin; /* of trims; retention may be further on */
};
struct effect {
    int topic; /* or -1: a state key */
    uint64_t id;
    uint32_t n;   /* records id..id+n-1, or the key */
    int64_t trim; /* -1: none */
};
struct pending {
    uint64_t seq;
    struct effect e[EFFECTS];
    int n;
    bool unsure;
    atomic_int outcome; /* -1: none yet */
};
struct world {
    uint64_t seed, random, next_id, seq;
    char dir[64];
    int boot;
    struct fault *ft;
    struct log_conf conf;
    struct log *log;
    struct mtopic t[TOPICS];
    uint64_t key[KEYS]; /* 0: absent */
    struct pending p[PENDING];
    int pending;
    int commits, aborts, unknowns, crashes, powers, keys_seen, compacted;
};

static uint64_t rnd(struct world *w, uint64_t n) {
    return test_random(&w->random) % n;
}

#define CHECK(w, cond, ...)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("BRAID_SEED=%llu (dir %s): ", (unsigned long long)(w)->seed, (w)->dir);    \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

static void apply(struct world *w, const struct pending *p) {
    int trim = -1; /* behind all rows */
    int64_t to = 0;
    for (int i = 0; i < p->n; i++) {
        const struct effect *e = &p->e[i];
        if (e->topic < 0) {
            w->key[e->n] = e->id;
            continue;
        }
        struct mtopic *t = &w->t[e->topic];
        trim = e->trim < 0 ? trim : e->topic;
        to = e->trim < 0 ? to : e->trim;
        for (uint32_t k = 0; k < e->n; k++) {
            if (t->n == t->cap) {
                t->cap = t->cap ? 2 * t->cap : 64;
                t->id = realloc(t->id, (size_t)t->cap * sizeof *t->id);
            }
            t->id[t->n++] = e->id + k;
        }
    }
    if (trim < 0)
        return;
    struct mtopic *t = &w->t[trim];
    to = to < t->n ? to : t->n;
    t->begin = to > t->begin ? to : t->begin;
}

/* The value of record `id`: its bytes follow from it. */
static size_t value_of(uint64_t id, char *out) {
    uint64_t s = id;
    size_t len = test_random(&s) % (id % 50 == 0 ? 6000 : 120);
    for (size_t i = 0; i < len; i++)
        out[i] = (char)(id * 7 + i);
    return len;
}

/* ---- operations ---- */

static const char *topic_name(int i) {
    static const char *const names[TOPICS] = { "alpha", "beta", "gamma", "kept-short" };
    return names[i];
}

static void on_done(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    struct pending *p = arg;
    (void)no;
    (void)e;
    atomic_store(&p->outcome, (int)outcome);
}

/* Waits for all outcomes; what is committed enters the model, what is unknown stays. */
static void settle(struct world *w) {
    int kept = 0;
    for (int i = 0; i < w->pending; i++) {
        struct pending *p = &w->p[i];
        while (atomic_load(&p->outcome) < 0)
            usleep(20);
        int outcome = atomic_load(&p->outcome);
        CHECK(w, outcome != LOG_COMMITTED || kept == 0, "committed after an unknown outcome");
        if (outcome == LOG_COMMITTED)
            apply(w, p), w->commits++;
        if (outcome == LOG_ABORTED)
            w->aborts++;
        if (outcome != LOG_UNKNOWN)
            continue;
        w->unknowns++;
        memcpy(&w->p[kept], p, sizeof *p); /* no callback is outstanding */
        w->p[kept++].unsure = true;
    }
    w->pending = kept;
}

static void op_commit(struct world *w) {
    if (w->pending && w->p[0].unsure)
        return;
    if (w->pending == PENDING)
        settle(w);
    if (w->pending == PENDING || (w->pending && w->p[0].unsure))
        return;
    struct pending *p = &w->p[w->pending++];
    memset(p, 0, sizeof *p);
    p->outcome = -1;
    p->seq = ++w->seq;
    struct log_epoch *ep = log_epoch_begin(w->log);
    static char value[8192];
    bool trimmed = false;
    for (int want = (int)rnd(w, EFFECTS - 1); p->n < want;) {
        struct effect *e = &p->e[p->n];
        e->topic = (int)rnd(w, TOPICS + 1) - 1;
        if (e->topic >= 0 && (!w->t[e->topic].live || w->t[e->topic].unsure)) {
            want--;
            continue;
        }
        p->n++;
        e->n = (uint32_t)rnd(w, e->topic < 0 ? KEYS : 30);
        e->trim = -1;
        e->id = e->topic < 0 && rnd(w, 4) == 0 ? 0 : w->next_id;
        if (e->topic < 0) {
            w->next_id++;
            char key[16];
            int len = snprintf(key, sizeof key, "key%u", e->n);
            size_t vlen = value_of(e->id, value);
            log_epoch_state(ep, key, (uint32_t)len, e->id ? value : NULL, (uint32_t)vlen);
            continue;
        }
        struct log_buf *b = log_buf_new();
        for (uint32_t k = 0; k < e->n; k++) {
            char key = (char)('a' + w->next_id % RECORD_KEYS);
            log_buf_end(b, value_of(w->next_id++, log_buf_room(b, sizeof value)));
            log_buf_key(b, &key, 1, e->topic != COMPACTED);
        }
        log_buf_seal(b);
        log_epoch_append(ep, topic_name(e->topic), 0, b, (int64_t)w->seq, NULL);
        log_buf_unref(b);
        if (rnd(w, 8) || trimmed)
            continue;
        int64_t n = w->t[e->topic].n;
        e->trim = rnd(w, 3) ? (int64_t)rnd(w, (uint64_t)n + 40) : INT64_MAX;
        log_epoch_trim(ep, topic_name(e->topic), 0, e->trim);
        trimmed = true;
    }
    log_epoch_state(ep, "seq", 3, &p->seq, sizeof p->seq);
    log_commit(ep, on_done, p);
}

static void op_topic(struct world *w) {
    settle(w);
    int i = (int)rnd(w, TOPICS);
    struct mtopic *t = &w->t[i];
    struct err e = ERR_INIT;
    struct log_topic_conf tc = { .partitions = 1,
                                 .retention_bytes = i == RETAINED ? 3000 : -1,
                                 .compact = i == COMPACTED };
    if (t->unsure || (t->live && rnd(w, 4)))
        return;
    int rc = t->live ? log_topic_delete(w->log, topic_name(i), &e)
                     : log_topic_create(w->log, topic_name(i), &tc, &e);
    if (rc) {
        t->unsure = true;
        t->was = t->live;
        return;
    }
    t->live = !t->live;
    t->n = t->begin = 0;
}

/* ---- checks ---- */

/* Whether compaction may have dropped record `at`: its key has a later one. */
static bool superseded(const struct mtopic *t, int64_t at) {
    for (int64_t k = at + 1; k < t->n; k++)
        if (t->id[k] % RECORD_KEYS == t->id[at] % RECORD_KEYS)
            return true;
    return false;
}

static void check_topic(struct world *w, int i) {
    const struct mtopic *t = &w->t[i];
    struct log_topic_info info;
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset;
    if (t->unsure)
        return;
    int rc = log_topic_info(w->log, topic_name(i), &info, &e);
    CHECK(w, rc == (t->live ? 0 : ERR_NOTFOUND), "topic %s: %d", topic_name(i), rc);
    if (!t->live)
        return;
    CHECK(w, info.end == t->n, "topic %s ends at %lld, not %lld", topic_name(i),
          (long long)info.end, (long long)t->n);
    CHECK(w,
          info.begin == t->begin || (i == RETAINED && info.begin > t->begin && info.bytes >= 3000),
          "topic %s begins at %lld, not %lld", topic_name(i), (long long)info.begin,
          (long long)t->begin);
    int64_t at =
        rnd(w, 3) ? info.begin : info.begin + (int64_t)rnd(w, (uint64_t)(t->n - info.begin) + 1);
    rc = log_reader_open(w->log, topic_name(i), 0, at, &r, &e);
    CHECK(w, rc == 0, "reader of %s at %lld: %s", topic_name(i), (long long)at, e.text);
    static char want[8192];
    for (int n; (n = log_read(r, 1 + (uint32_t)rnd(w, 40), &rows, &offset, &e)) != 0; at += n) {
        CHECK(w, n > 0, "%s:%ld: %s", e.file, e.offset, e.text);
        for (; i == COMPACTED && at < offset; at++) {
            CHECK(w, superseded(t, at), "record %lld of %s is gone", (long long)at, topic_name(i));
            w->compacted++;
        }
        CHECK(w, offset == at && at + n <= t->n, "offset");
        for (int k = 0; k < n; k++) {
            uint32_t from = k ? rows.value_end[k - 1] : 0;
            size_t len = value_of(t->id[at + k], want);
            CHECK(w, len == rows.value_end[k] - from && !memcmp(want, rows.values + from, len),
                  "record %lld of %s", (long long)at + k, topic_name(i));
        }
    }
    CHECK(w, at == t->n, "read of %s ended at %lld", topic_name(i), (long long)at);
    log_reader_close(r);
}

static int check_key(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    struct world *w = arg;
    static char want[8192];
    if (klen == 3)
        return 0; /* seq */
    uint32_t k = 0;
    for (uint32_t i = 3; i < klen; i++)
        k = k * 10 + (uint32_t)(((const char *)key)[i] - '0');
    size_t len = value_of(w->key[k], want);
    CHECK(w, w->key[k] && len == vlen && !memcmp(value, want, len), "state key%u", k);
    w->keys_seen++;
    return 0;
}

static void check_all(struct world *w) {
    struct err e = ERR_INIT;
    settle(w);
    if (w->pending)
        return;
    for (int i = 0; i < TOPICS; i++)
        check_topic(w, i);
    int live = 0;
    w->keys_seen = 0;
    for (int k = 0; k < KEYS; k++)
        live += w->key[k] != 0;
    int rc = log_state_each(w->log, "", 0, check_key, w, &e);
    CHECK(w, rc == 0, "state: %s", e.text);
    CHECK(w, w->keys_seen == live, "%d keys, not %d", w->keys_seen, live);
}

static int take_seq(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)key;
    if (klen == 3 && vlen == 8)
        memcpy(arg, value, 8);
    return 0;
}

/* After an open: what was unknown is now one or the other, whole. */
static void resolve(struct world *w) {
    uint64_t seq = 0;
    struct err e = ERR_INIT;
    CHECK(w, log_state_each(w->log, "seq", 3, take_seq, &seq, &e) == 0, "%s", e.text);
    for (int i = 0; i < w->pending; i++)
        if (w->p[i].seq <= seq)
            apply(w, &w->p[i]);
    w->pending = 0;
    for (int i = 0; i < TOPICS; i++) {
        struct log_topic_info info;
        struct mtopic *t = &w->t[i];
        if (!t->unsure)
            continue;
        t->unsure = false;
        t->live = log_topic_info(w->log, topic_name(i), &info, &e) == 0;
        if (t->live != t->was)
            t->n = t->begin = 0;
    }
}

/* ---- restarts ---- */

static void open_world(struct world *w) {
    struct err e = ERR_INIT;
    int rc = log_open(&w->log, &w->conf, &e);
    CHECK(w, rc == 0, "open: %s:%ld: %s", e.file, e.offset, e.text);
    resolve(w);
    check_all(w);
}

static void new_layer(struct world *w) {
    w->ft = fault_new(w->dir, w->random);
    fault_boot(w->ft, w->boot);
    w->conf.files = fault_files(w->ft);
    w->conf.dir = w->dir;
}

static void remove_dir(const char *dir) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

/* The machine loses power and starts again with what its disk has. */
static void lose_power(struct world *w) {
    char to[64];
    snprintf(to, sizeof to, "%s/braid-power-XXXXXX", fast_dir());
    assert_non_null(mkdtemp(to));
    fault_image(w->ft, to, rnd(w, 2) ? FAULT_DROP : FAULT_SCATTER);
    fault_free(w->ft);
    remove_dir(w->dir);
    memcpy(w->dir, to, sizeof to);
    w->boot++;
    w->powers++;
    new_layer(w);
}

/* The process ends at this call of the file layer; then it or the machine starts again, perhaps to
 * die again while it recovers. */
static void op_crash(struct world *w) {
    int64_t calls = (int64_t)rnd(w, 40);
    fault_crash_after(w->ft, calls);
    for (int i = 0; i < 30 && !fault_crashed(w->ft); i++) {
        if (rnd(w, 6) == 0)
            op_topic(w);
        else
            op_commit(w);
    }
    settle(w);
    log_close(w->log); /* fails throughout once crashed */
    w->crashes++;
    for (;;) {
        struct err e = ERR_INIT;
        fault_crash_after(w->ft, -1);
        if (w->conf.durability == LOG_POWER && rnd(w, 2))
            lose_power(w);
        if (rnd(w, 3))
            break;
        fault_crash_after(w->ft, (int64_t)rnd(w, 25));
        if (log_open(&w->log, &w->conf, &e) == 0)
            log_close(w->log);
    }
    open_world(w);
}

static void op_full_disk(struct world *w) {
    settle(w);
    fault_space(w->ft, (int64_t)rnd(w, 3000));
    for (int i = 0; i < 10; i++) {
        if (rnd(w, 6) == 0)
            op_topic(w);
        else
            op_commit(w);
    }
    settle(w);
    fault_space(w->ft, -1);
    check_all(w);
}

static void op_bad_sync(struct world *w) {
    settle(w);
    fault_syncs(w->ft, 1 + (int)rnd(w, 4));
    for (int i = 0; i < 5; i++)
        op_commit(w);
    settle(w);
    fault_syncs(w->ft, 0);
    log_close(w->log);
    open_world(w);
}

static void run_script(uint64_t seed, enum log_durability durability, struct world *sum) {
    struct world w = { .seed = seed, .random = seed, .next_id = 1 };
    snprintf(w.dir, sizeof w.dir, "%s/braid-model-XXXXXX", fast_dir());
    assert_non_null(mkdtemp(w.dir));
    w.conf = (struct log_conf){ .durability = durability,
                                .segment_bytes = 300 + (int64_t)rnd(&w, 5000),
                                .commit_bytes = 500 + (int64_t)rnd(&w, 6000),
                                .tend_ms = 1 };
    new_layer(&w);
    open_world(&w);
    for (int i = 0; i < 60; i++) {
        uint64_t what = rnd(&w, 20);
        if (what < 11)
            op_commit(&w);
        else if (what < 14)
            op_topic(&w);
        else if (what == 14)
            check_all(&w);
        else if (what == 15)
            log_close(w.log), settle(&w), open_world(&w);
        else if (what < 18)
            op_crash(&w);
        else if (what == 18)
            op_full_disk(&w);
        else
            op_bad_sync(&w);
    }
    settle(&w);
    log_close(w.log);
    open_world(&w);
    log_close(w.log);
    fault_free(w.ft);
    remove_dir(w.dir);
    for (int i = 0; i < TOPICS; i++)
        free(w.t[i].id);
    sum->commits += w.commits;
    sum->aborts += w.aborts;
    sum->unknowns += w.unknowns;
    sum->crashes += w.crashes;
    sum->powers += w.powers;
    sum->compacted += w.compacted;
}

static void scripts(enum log_durability durability) {
    struct world sum = { 0 };
    uint64_t seed = test_seed(1);
    int n = getenv("BRAID_SEED") ? 1 : test_scale(60);
    for (int i = 0; i < n; i++)
        run_script(seed + (uint64_t)i, durability, &sum);
    print_message("%d scripts: %d commits, %d aborted, %d unknown, %d crashes, %d losses of power, "
                  "%d records seen gone by compaction\n",
                  n, sum.commits, sum.aborts, sum.unknowns, sum.crashes, sum.powers, sum.compacted);
    if (n < 20)
        return;
    assert_true(sum.compacted > n);
    assert_true(sum.commits > 10 * n && sum.aborts > n && sum.crashes > n && sum.unknowns > 0);
    assert_true(durability == LOG_PROCESS || sum.powers > n);
}

static void scripts_process(void **state) {
    (void)state;
    scripts(LOG_PROCESS);
}

static void scripts_power(void **state) {
    (void)state;
    scripts(LOG_POWER);
}

/* ---- kill -9 ---- */

enum { KILLS = 36, KILL_TOPICS = 3 };

static void fill_epoch(struct log_epoch *ep, uint64_t n) {
    for (uint64_t i = 0; i < KILL_TOPICS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", (int)i);
        struct log_buf *b = log_buf_new();
        for (uint64_t k = 0; k < n % 5 + i; k++) {
            memcpy(log_buf_room(b, 300), &n, 8);
            memset(log_buf_room(b, 300) + 8, (int)(n + k), n % 280);
            log_buf_end(b, 8 + n % 280);
        }
        log_buf_seal(b);
        log_epoch_append(ep, name, 0, b, (int64_t)n, NULL);
        log_buf_unref(b);
    }
    log_epoch_state(ep, "n", 1, &n, sizeof n);
}

struct kill_writer {
    _Atomic uint64_t acked;
};

static void writer_done(void *arg, enum log_outcome outcome, uint64_t no, const struct err *e) {
    _Atomic uint64_t *acked = arg;
    (void)no;
    (void)e;
    if (outcome == LOG_COMMITTED)
        atomic_fetch_add(acked, 1);
}

/* Commits epochs n+1, n+2, ... until it is killed; a few are always under way. */
static _Noreturn void writer(const struct log_conf *conf, _Atomic uint64_t *acked) {
    struct log *log;
    uint64_t start = atomic_load(acked);
    if (log_open(&log, conf, NULL))
        _exit(1);
    for (uint64_t n = start + 1;; n++) {
        struct log_epoch *ep = log_epoch_begin(log);
        fill_epoch(ep, n);
        log_commit(ep, writer_done, acked);
        while (n - atomic_load(acked) > 5)
            usleep(10);
    }
}

static void check_killed(struct log *log, uint64_t n) {
    for (int i = 0; i < KILL_TOPICS; i++) {
        char name[16];
        struct log_reader *r;
        struct log_rows rows;
        struct err e = ERR_INIT;
        int64_t offset;
        snprintf(name, sizeof name, "t%d", i);
        if (log_reader_open(log, name, 0, 0, &r, &e))
            fail_msg("%s", e.text);
        uint64_t at = 1, k = 0; /* the next record is the k-th of epoch at */
        for (int got; (got = log_read(r, 1000, &rows, &offset, &e)) != 0;) {
            if (got < 0)
                fail_msg("%s: %s", e.file, e.text);
            for (int x = 0; x < got; x++, k++) {
                uint32_t from = x ? rows.value_end[x - 1] : 0;
                uint64_t id;
                while (k == at % 5 + (uint64_t)i)
                    at++, k = 0;
                memcpy(&id, rows.values + from, 8);
                assert_int_equal(id, at);
                assert_int_equal(rows.value_end[x] - from, 8 + at % 280);
                if (at % 280)
                    assert_int_equal(rows.values[from + 8], (char)(at + k));
            }
        }
        while (at <= n && k == at % 5 + (uint64_t)i)
            at++, k = 0;
        assert_int_equal(at, n + 1);
        log_reader_close(r);
    }
}

static int take_n(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)key;
    (void)klen;
    assert_int_equal(vlen, 8);
    memcpy(arg, value, 8);
    return 0;
}

static void killed(void **state) {
    (void)state;
    char dir[64] = "/tmp/braid-kill-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct log_conf conf = { .dir = dir, .segment_bytes = 100000, .commit_bytes = 50000 };
    struct log *log;
    struct err e = ERR_INIT;
    uint64_t seed = test_seed(7);
    _Atomic uint64_t *acked =
        mmap(NULL, sizeof *acked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(acked, MAP_FAILED);
    assert_int_equal(log_open(&log, &conf, &e), 0);
    for (int i = 0; i < KILL_TOPICS; i++) {
        char name[16];
        struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(log_topic_create(log, name, &tc, &e), 0);
    }
    log_close(log);
    int kills = test_scale(KILLS), busy = 0;
    uint64_t n = 0;
    for (int i = 0; i < kills; i++) {
        pid_t pid = fork();
        if (pid == 0)
            writer(&conf, acked);
        assert_true(pid > 0);
        usleep((useconds_t)(test_random(&seed) % 60000));
        int status;
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        uint64_t least = atomic_load(acked), was = n;
        if (log_open(&log, &conf, &e))
            fail_msg("open: %s: %s", e.file, e.text);
        assert_int_equal(log_state_each(log, "n", 1, take_n, &n, &e), 0);
        if (n < least)
            fail_msg("commit %llu is lost, the log ends with %llu", (unsigned long long)least,
                     (unsigned long long)n);
        check_killed(log, n);
        log_close(log);
        busy += n > was;
        atomic_store(acked, n);
    }
    print_message("%d kills, %llu commits\n", kills, (unsigned long long)n);
    assert_true(busy > kills / 4);
    munmap(acked, sizeof *acked);
    remove_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_process),
        cmocka_unit_test(scripts_power),
        cmocka_unit_test(killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
