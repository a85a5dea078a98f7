/* What a server keeps besides rows and state: the journal of the plan, uploaded files, events, and
 * records that come in, each producer's counted once. */
#include "cluster/coord.h"
#include "cluster/events.h"
#include "cluster/ingest.h"
#include "cluster/stats.h"
#include "cluster/view.h"
#include "engine/files.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include "tests/unit/scratch.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- journal ---- */

enum { FLOWS = 40 };

static char *random_text(uint64_t *seed, size_t *len) {
    static const char *const piece[] = { "a", "\"", "\\", "\n", "\u00e4", "\t", "{}", "\x01", " " };
    struct sbuf b = { 0 };
    for (uint64_t n = test_random(seed) % 40; n > 0; n--)
        sbuf_adds(&b, piece[test_random(seed) % 9]);
    *len = b.len;
    return b.p ? (char *)sbuf_str(&b) : strdup("");
}

static void same_flow(const struct journal_flow *a, const struct journal_flow *b) {
    assert_int_equal(a->serial, b->serial);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->file, b->file);
    assert_string_equal(a->description, b->description);
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->text, b->text, a->len);
    assert_int_equal(a->submitted_ms, b->submitted_ms);
    assert_int_equal(a->cut, b->cut);
    assert_memory_equal(a->plan, b->plan, b->plan_len);
    assert_int_equal(a->nfiles, b->nfiles);
    assert_int_equal(a->nvars, b->nvars);
    for (int i = 0; i < a->nfiles; i++) {
        assert_string_equal(a->files[i].name, b->files[i].name);
        assert_string_equal(a->files[i].text, b->files[i].text);
    }
}

/* Records put and dropped in random order come back as a table of them would. */
static void test_journal(void **state) {
    (void)state;
    uint64_t seed = test_seed(11);
    struct journal_flow model[FLOWS] = { 0 };
    struct journal_history hist[FLOWS] = { 0 };
    struct journal_meta meta = { 0 };
    static const struct journal_pair pair[] = { { "a.csv", "00" }, { "b \"c\"", "11" } };
    struct log *log = scratch_log();
    for (int round = 0; round < test_scale(60); round++) {
        struct log_epoch *ep = log_epoch_begin(log);
        for (uint64_t n = test_random(&seed) % 8; n > 0; n--) {
            uint64_t k = test_random(&seed) % FLOWS;
            struct journal_flow *f = &model[k];
            free((void *)f->text);
            f->text = NULL;
            hist[k].topic = NULL;
            if (test_random(&seed) % 3 == 0) {
                journal_drop_flow(ep, k + 1);
                journal_drop_history(ep, k + 1);
                continue;
            }
            *f = (struct journal_flow){ .serial = k + 1,
                                        .name = "n",
                                        .file = "f.json",
                                        .description = "d\n",
                                        .submitted_ms = (int64_t)(test_random(&seed) >> 2),
                                        .cut = test_random(&seed) >> 2,
                                        .plan = "{\"x\":1}",
                                        .plan_len = 7,
                                        .files = pair,
                                        .nfiles = (int)(k % 3),
                                        .vars = pair,
                                        .nvars = (int)(k % 2) };
            f->text = random_text(&seed, &f->len);
            scratch_put_flow(ep, f);
            hist[k] = (struct journal_history){ k + 1, (int64_t)(test_random(&seed) >> 1), "t" };
            journal_put_history(ep, &hist[k]);
        }
        meta = (struct journal_meta){ (uint64_t)round, test_random(&seed) >> 2, 7, 9 };
        journal_put_meta(ep, &meta);
        assert_int_equal(log_commit_wait(ep, NULL, NULL), LOG_COMMITTED);
    }
    log_close(log);
    log = scratch_log();
    struct journal j;
    struct arena a = { 0 };
    struct err e = ERR_INIT;
    assert_int_equal(journal_read(&j, log, &a, &e), 0);
    assert_memory_equal(&j.meta, &meta, sizeof meta);
    int n = 0, h = 0;
    for (int k = 0; k < FLOWS; k++)
        if (model[k].text)
            same_flow(&j.flows[n++], &model[k]);
    assert_int_equal(j.nflows, n);
    for (int k = 0; k < FLOWS; k++)
        for (int i = 0; hist[k].topic && i < j.nhistory; i++)
            if (j.history[i].instance == hist[k].instance) {
                assert_int_equal(j.history[i].offset, hist[k].offset);
                assert_string_equal(j.history[i].topic, "t");
                h++;
            }
    assert_int_equal(h, j.nhistory);
    arena_free(&a);
    for (int k = 0; k < FLOWS; k++)
        free((void *)model[k].text);
    log_close(log);
}

static void test_journal_damaged(void **state) {
    (void)state;
    static const char *const bad[] = { "", "{", "[]", "{\"v\":2}", "{\"v\":\"1\"}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct log *log = scratch_log();
        struct log_epoch *ep = log_epoch_begin(log);
        struct journal j;
        struct arena a = { 0 };
        struct err e = ERR_INIT;
        log_epoch_state(ep, "PM", 2, bad[i], (uint32_t)strlen(bad[i]));
        assert_int_equal(log_commit_wait(ep, NULL, NULL), LOG_COMMITTED);
        assert_int_equal(journal_read(&j, log, &a, &e), ERR_SYSTEM);
        assert_non_null(strstr(e.text, "counters"));
        arena_free(&a);
        log_close(log);
    }
}

/* ---- file store ---- */

static void test_filestore(void **state) {
    (void)state;
    struct filestore *fs;
    struct err e = ERR_INIT;
    struct file f = { 0 }, g = { 0 };
    char hash[33], path[160];
    bool created;
    assert_int_equal(filestore_open(&fs, scratch_dir, true, &e), 0);
    filestore_hash("a,b\n", 4, hash);
    assert_int_equal(filestore_size(fs, hash), ERR_NOTFOUND);
    assert_int_equal(filestore_get(fs, hash, &f, &e), ERR_NOTFOUND);
    assert_int_equal(filestore_put(fs, hash, "a,c\n", 4, &created, &e), ERR_INPUT);
    assert_int_equal(filestore_put(fs, "../../etc/passwd", "", 0, &created, &e), ERR_INPUT);
    assert_int_equal(filestore_put(fs, hash, "a,b\n", 4, &created, &e), 0);
    assert_true(created);
    assert_int_equal(filestore_put(fs, hash, "a,b\n", 4, &created, &e), 0);
    assert_false(created);
    assert_int_equal(filestore_size(fs, hash), 4);
    assert_int_equal(filestore_get(fs, hash, &f, &e), 0);
    assert_int_equal(filestore_get(fs, hash, &g, &e), 0);
    assert_ptr_equal(f.data, g.data);
    assert_memory_equal(f.data, "a,b\n", 4);
    filestore_close(fs);
    snprintf(path, sizeof path, "%s/files/%s", scratch_dir, hash);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("a,X\n", out);
    fclose(out);
    snprintf(path, sizeof path, "%s/files/tmp-1-1", scratch_dir);
    fclose(fopen(path, "w")); /* of an upload that was cut off */
    assert_int_equal(filestore_open(&fs, scratch_dir, false, &e), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(filestore_get(fs, hash, &f, &e), ERR_SYSTEM);
    assert_non_null(strstr(e.text, "damaged"));
    assert_int_equal(filestore_put(fs, hash, "a,b\n", 4, &created, &e), 0);
    assert_true(created);
    assert_int_equal(filestore_get(fs, hash, &f, &e), 0);
    assert_memory_equal(f.data, "a,b\n", 4);
    filestore_close(fs);
}

/* ---- events ---- */

static void test_events(void **state) {
    (void)state;
    struct events *ev = events_new();
    struct event e;
    assert_false(events_get(ev, 0, &e));
    for (int i = 1; i <= EVENTS_KEPT + 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        events_add(ev, "submitted", name, "");
    }
    assert_int_equal(events_last(ev), EVENTS_KEPT + 10);
    assert_true(events_get(ev, 0, &e)); /* the first ones are gone: a gap in the numbers */
    assert_int_equal(e.number, 11);
    assert_string_equal(e.dataflow, "f11");
    assert_true(events_get(ev, e.number, &e));
    assert_int_equal(e.number, 12);
    assert_false(events_get(ev, EVENTS_KEPT + 10, &e));
    events_free(ev);
}

/* ---- records in ---- */

static void test_bodies(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *want; /* records in brackets */
    } lines[] = {
        { "", 0, "" },       { "a", 1, "[a]" },
        { "a\n", 2, "[a]" }, { "a\r\nb\n\nc\r", 8, "[a][b][][c\r]" },
        { "\n", 1, "[]" },   { "a\0b\n", 4, "[a\0b]" },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct ingest_rows rows;
        struct sbuf got = { 0 };
        assert_int_equal(ingest_lines(&rows, lines[i].text, lines[i].len, NULL), 0);
        for (int b = 0; b < rows.nbufs; b++) {
            struct log_rows r;
            log_buf_rows(rows.buf[b], &r);
            for (uint32_t k = 0, from = 0; k < r.n; from = r.value_end[k++]) {
                sbuf_adds(&got, "[");
                sbuf_add(&got, r.values + from, r.value_end[k] - from);
                sbuf_adds(&got, "]");
            }
        }
        size_t want = i == 5 ? 5 : strlen(lines[i].want);
        assert_int_equal(got.len, want);
        assert_memory_equal(got.p ? got.p : "", lines[i].want, want);
        ingest_rows_free(&rows);
        sbuf_free(&got);
    }
}

/* Any records in either form come out as they went in; a cut anywhere is found. */
static void test_lengths(void **state) {
    (void)state;
    uint64_t seed = test_seed(5);
    for (int round = 0; round < test_scale(200); round++) {
        struct sbuf b = { 0 }, want = { 0 }, got = { 0 };
        int n = (int)(test_random(&seed) % 20);
        for (int i = 0; i < n; i++) {
            uint32_t len = (uint32_t)(test_random(&seed) % 50);
            unsigned char head[4] = { (unsigned char)len, 0, 0, 0 };
            sbuf_add(&b, head, 4);
            for (uint32_t k = 0; k < len; k++) {
                char c = (char)test_random(&seed);
                sbuf_add(&b, &c, 1);
                sbuf_add(&want, &c, 1);
            }
        }
        struct ingest_rows rows;
        struct err e = ERR_INIT;
        assert_int_equal(ingest_lengths(&rows, b.p ? b.p : "", b.len, &e), 0);
        assert_int_equal(rows.n, n);
        for (int k = 0; k < rows.nbufs; k++)
            sbuf_add(&got, rows.buf[k]->values, rows.buf[k]->values_len);
        assert_int_equal(got.len, want.len);
        assert_true(got.len == 0 || memcmp(got.p, want.p, got.len) == 0);
        ingest_rows_free(&rows);
        size_t cut = b.len ? test_random(&seed) % b.len : 0;
        if (cut && ingest_lengths(&rows, b.p, cut, &e) == 0) {
            assert_true(rows.n < n); /* the cut fell between two records */
            ingest_rows_free(&rows);
        }
        sbuf_free(&b);
        sbuf_free(&want);
        sbuf_free(&got);
    }
}

static struct ingest_answer post(struct ingest *in, const char *producer, int64_t seq, int n) {
    struct ingest_rows rows;
    struct ingest_answer a;
    struct err e = ERR_INIT;
    char text[256] = "";
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s.%d.%d\n",
                 producer ? producer : "", (int)seq, i);
    assert_int_equal(ingest_lines(&rows, text, strlen(text), &e), 0);
    if (ingest_post(in, "t", INGEST_ANY, producer, seq, &rows, &a, &e) < 0)
        fail_msg("%s", e.text);
    ingest_rows_free(&rows);
    return a;
}

/* Random numbers of random producers, with restarts, against a table of the last ones. */
static void test_producers(void **state) {
    (void)state;
    enum { PRODUCERS = 6 };
    uint64_t seed = test_seed(3);
    int64_t last[PRODUCERS], offset[PRODUCERS], count[PRODUCERS], end = 0;
    for (int i = 0; i < PRODUCERS; i++)
        last[i] = -1;
    struct log *log = scratch_log();
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct ingest *in;
    assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    assert_int_equal(ingest_open(&in, log, 0, NULL), 0);
    for (int round = 0; round < test_scale(500); round++) {
        int p = (int)(test_random(&seed) % PRODUCERS), n = (int)(test_random(&seed) % 4);
        int64_t seq = last[p] - 2 + (int64_t)(test_random(&seed) % 5);
        char name[16];
        if (seq < 0)
            continue;
        snprintf(name, sizeof name, "p%d", p);
        struct ingest_answer a = post(in, name, seq, n);
        assert_int_equal(a.duplicate, seq <= last[p]);
        if (seq < last[p]) {
            assert_int_equal(a.offset, -1);
        } else if (seq == last[p]) {
            assert_int_equal(a.offset, offset[p]);
            assert_int_equal(a.count, count[p]);
        } else {
            assert_int_equal(a.offset, end);
            last[p] = seq;
            offset[p] = end;
            count[p] = n;
            end += n;
        }
        assert_int_equal(scratch_end(log, "t"), end);
        if (test_random(&seed) % 50 == 0) {
            ingest_close(in);
            log_close(log);
            log = scratch_log();
            assert_int_equal(ingest_open(&in, log, 0, NULL), 0);
        }
    }
    ingest_close(in);
    log_close(log);
}

struct poster {
    struct ingest *in;
    int fresh; /* answers that were no duplicates */
};
enum { THREADS = 6, SEQS = 40 };

static void *post_all(void *arg) {
    struct poster *p = arg;
    for (int64_t seq = 0; seq < SEQS; seq++)
        p->fresh += !post(p->in, "same", seq, 2).duplicate;
    return NULL;
}

/* Many connections of one client that repeat the same posts at the same time: each counts once. */
static void test_concurrent_posts(void **state) {
    (void)state;
    struct log *log = scratch_log();
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct ingest *in;
    pthread_t t[THREADS];
    struct poster p[THREADS];
    assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    assert_int_equal(ingest_open(&in, log, 0, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        p[i] = (struct poster){ .in = in };
        assert_int_equal(pthread_create(&t[i], NULL, post_all, &p[i]), 0);
    }
    int fresh = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        fresh += p[i].fresh;
    }
    assert_true(fresh <= SEQS && fresh > 0); /* a slow thread's old numbers are duplicates too */
    assert_int_equal(scratch_end(log, "t"), 2 * fresh);
    ingest_close(in);
    log_close(log);
}

static void test_producer_limit(void **state) {
    (void)state;
    struct log *log = scratch_log();
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct ingest *in;
    struct err e = ERR_INIT;
    assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    assert_int_equal(ingest_open(&in, log, 3, &e), 0);
    post(in, "a", 1, 1);
    post(in, "b", 1, 1);
    post(in, "c", 1, 1);
    assert_true(post(in, "a", 1, 1).duplicate); /* now b is the oldest */
    post(in, "d", 1, 1);
    assert_int_equal(ingest_producers(in), 3);
    assert_true(post(in, "a", 1, 1).duplicate);
    assert_false(post(in, "b", 1, 1).duplicate); /* forgotten */
    ingest_close(in);
    log_close(log);
    log = scratch_log();
    assert_int_equal(ingest_open(&in, log, 3, &e), 0);
    assert_int_equal(ingest_producers(in), 3);
    ingest_close(in);
    log_close(log);
}

static int count_keys(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    (void)key;
    (void)klen;
    (void)value;
    (void)vlen;
    ++*(int *)arg;
    return 0;
}

/* A topic that is deleted takes its producers along, also when the process is killed in between;
 * one that has records stays when it is to be deleted only if empty. */
static void test_topic_delete(void **state) {
    (void)state;
    struct log *log = scratch_log();
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct ingest *in;
    struct err e = ERR_INIT;
    int keys = 0;
    assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    assert_int_equal(log_topic_create(log, "other", &tc, NULL), 0);
    assert_int_equal(ingest_open(&in, log, 0, &e), 0);
    post(in, "a", 7, 0);
    assert_int_equal(ingest_topic_delete(in, "t", true, &e), 0); /* empty */
    assert_int_equal(ingest_topic_delete(in, "t", true, &e), ERR_NOTFOUND);
    assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    assert_false(post(in, "a", 3, 1).duplicate);
    assert_int_equal(ingest_topic_delete(in, "t", true, &e), 0);
    assert_int_equal(scratch_end(log, "t"), 1);
    assert_true(post(in, "a", 3, 1).duplicate);
    assert_int_equal(ingest_topic_delete(in, "t", false, &e), 0);
    assert_int_equal(ingest_producers(in), 0);
    for (int made = 0; made < 2; made++) { /* killed before or after a namesake is made */
        if (!made)
            assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
        assert_false(post(in, "a", 5, 2).duplicate);
        ingest_close(in);
        assert_int_equal(log_topic_delete(log, "t", NULL), 0);
        if (made)
            assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
        log_close(log);
        log = scratch_log();
        assert_int_equal(ingest_open(&in, log, 0, &e), 0);
        assert_int_equal(ingest_producers(in), 0);
        keys = 0;
        assert_int_equal(log_state_each(log, "I", 1, count_keys, &keys, &e), 0);
        assert_int_equal(keys, 0);
        if (!made)
            assert_int_equal(log_topic_create(log, "t", &tc, NULL), 0);
    }
    struct ingest_answer a = post(in, "a", 1, 2);
    assert_false(a.duplicate);
    assert_int_equal(a.offset, 0);
    ingest_close(in);
    log_close(log);
}

struct maker {
    struct ingest *in;
    struct log *log;
    int number;
    atomic_bool *stop;
    _Atomic int64_t last; /* number of the last post that was acknowledged */
};

/* Posts each number twice, making the topic anew whenever it is gone. */
static void *post_and_make(void *arg) {
    struct maker *m = arg;
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    char name[16], text[32];
    snprintf(name, sizeof name, "p%d", m->number);
    for (int64_t k = 0; !*m->stop; k++) {
        struct ingest_rows rows;
        struct ingest_answer a;
        struct err e = ERR_INIT;
        int len = snprintf(text, sizeof text, "%d.%lld", m->number, (long long)k / 2);
        assert_int_equal(ingest_lines(&rows, text, (size_t)len, &e), 0);
        while (ingest_post(m->in, "t", INGEST_ANY, name, k / 2, &rows, &a, &e) == ERR_NOTFOUND)
            log_topic_create(m->log, "t", &tc, NULL);
        ingest_rows_free(&rows);
        m->last = k / 2;
    }
    return NULL;
}

/* No number of a producer comes twice in one life of the topic. */
static void check_once(struct log *log, const char *last) {
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset, seen[THREADS];
    memset(seen, -1, sizeof seen);
    if (log_reader_open(log, "t", 0, 0, &r, &e) < 0)
        return;
    for (int n; (n = log_read(r, 1000, &rows, &offset, &e)) > 0;)
        for (int i = 0; i < n; i++) {
            uint32_t from = i ? rows.value_end[i - 1] : 0;
            char text[32];
            snprintf(text, sizeof text, "%.*s", (int)(rows.value_end[i] - from),
                     rows.values + from);
            int p = text[0] - '0', k = 0;
            assert_true(p >= 0 && p < THREADS);
            for (const char *c = text + 2; *c; c++)
                k = k * 10 + (*c - '0');
            if (k <= seen[p])
                fail_msg("%s: producer %d: %d after %lld", last, p, k, (long long)seen[p]);
            seen[p] = k;
        }
    log_reader_close(r);
}

/* Gets the processor last of all. */
static void be_slow(void) {
    struct sched_param sp = { 0 };
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &sp);
}

static void *spin(void *stop) {
    be_slow();
    while (!*(atomic_bool *)stop) {
    }
    return NULL;
}

struct deleter {
    struct ingest *in;
    struct log *log;
    int rounds;
};

/* So slowly that posts and new topics fall into every gap it leaves. */
static void *delete_slowly(void *arg) {
    struct deleter *d = arg;
    be_slow();
    for (int round = 0; round < d->rounds; round++) {
        usleep(1000);
        check_once(d->log, "under way");
        ingest_topic_delete(d->in, "t", false, NULL);
    }
    return NULL;
}

static void test_delete_under_posts(void **state) {
    (void)state;
    struct log *log = scratch_log();
    struct ingest *in;
    atomic_bool stop = false;
    pthread_t t[THREADS];
    struct maker m[THREADS];
    assert_int_equal(ingest_open(&in, log, 0, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        m[i] = (struct maker){ .in = in, .log = log, .number = i, .stop = &stop };
        assert_int_equal(pthread_create(&t[i], NULL, post_and_make, &m[i]), 0);
    }
    pthread_t busy[4], deleter;
    struct deleter d = { in, log, test_scale(100) + 10 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&busy[i], NULL, spin, &stop), 0);
    assert_int_equal(pthread_create(&deleter, NULL, delete_slowly, &d), 0);
    pthread_join(deleter, NULL);
    for (int i = 0; i < THREADS; i++) /* each has posted to the topic that stays */
        for (int64_t was = m[i].last; m[i].last < was + 2;)
            usleep(1000);
    stop = true;
    for (int i = 0; i < 4; i++)
        pthread_join(busy[i], NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    check_once(log, "at the end");
    ingest_close(in);
    log_close(log);
    log = scratch_log();
    assert_int_equal(ingest_open(&in, log, 0, NULL), 0);
    for (int i = 0; i < THREADS; i++) { /* the last post of each is known after a restart */
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        assert_true(post(in, name, m[i].last, 1).duplicate);
    }
    ingest_close(in);
    log_close(log);
}

int main(void) {
    operators_init();
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        T(test_journal),
        T(test_journal_damaged),
        T(test_filestore),
        T(test_events),
        T(test_bodies),
        T(test_lengths),
        T(test_producers),
        T(test_concurrent_posts),
        T(test_producer_limit),
        T(test_topic_delete),
        T(test_delete_under_posts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
