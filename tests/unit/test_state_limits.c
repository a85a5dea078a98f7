/* Keyed state with time to live, limits and a file behind memory against a naive model: random
 * rows whose event times jump about a rising watermark, edits, drops and searches for expired keys
 * over two open layers, commits, aborts and restarts from what undo_collect gave. The model removes
 * nothing that no limit asks for, so it also shows that searches for expired keys (when, and how
 * much of the table) change no answer. */
#include "engine/spill.h"
#include "engine/state.h"
#include "tests/unit/harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 60, VMAX = 70000, STEPS = 400 };
struct val {
    bool live;
    uint32_t len;
    unsigned char fill;
    int64_t time;
    uint64_t seq;
};
struct model {
    struct val k[KEYS];
    uint64_t seq;
};
/* What the log holds: values with what stands behind them. */
struct record {
    bool live;
    uint32_t len;
    unsigned char *v;
};
struct world {
    struct state_limits lim;
    bool fixed;
    uint32_t vsize;
    struct spill *spill;
    struct undo *u;
    struct state *s;
    struct model now, closing, durable;
    struct record replica[KEYS], staged[KEYS];
    bool committing;
    int64_t time, wm;
};

static uint64_t rng;
static uint32_t rnd(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}
static uint32_t key_of(int i, char *buf) {
    return (uint32_t)snprintf(buf, 64, "key%d%s", i, i % 3 ? "" : "-with-a-long-tail");
}

/* ---- model ---- */

static bool over(const struct world *w, const struct val *v, int64_t now) {
    return w->lim.ttl_ms && v->time <= now - w->lim.ttl_ms;
}
static uint64_t model_count(const struct world *w, uint64_t *bytes) {
    uint64_t n = 0;
    *bytes = 0;
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        if (!w->now.k[i].live)
            continue;
        n++;
        *bytes += key_of(i, key) + w->now.k[i].len;
    }
    return n;
}
static int model_oldest(const struct world *w) {
    int best = -1;
    for (int i = 0; i < KEYS; i++)
        if (w->now.k[i].live && (best < 0 || w->now.k[i].seq < w->now.k[best].seq))
            best = i;
    return best;
}
static bool model_room(struct world *w, uint64_t more) {
    for (;;) {
        uint64_t bytes, n = model_count(w, &bytes);
        if ((!w->lim.max_keys || n < w->lim.max_keys) &&
            (!w->lim.max_bytes || bytes + more <= w->lim.max_bytes))
            return true;
        int old = model_oldest(w);
        if (old < 0 || (!w->lim.evict && !over(w, &w->now.k[old], w->wm)))
            return false;
        w->now.k[old].live = false;
    }
}
static void model_write(struct world *w, int i, uint32_t len, unsigned char fill) {
    struct val *v = &w->now.k[i];
    bool seen = v->live && !over(w, v, w->time);
    int64_t time = seen && v->time > w->time ? v->time : w->time;
    *v = (struct val){ true, len, fill, time, ++w->now.seq };
    uint64_t bytes;
    while (w->lim.evict && w->lim.max_bytes && model_count(w, &bytes) > 1 &&
           bytes > w->lim.max_bytes)
        w->now.k[model_oldest(w)].live = false;
}

/* ---- what is compared ---- */

static void check(struct world *w) {
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        uint32_t klen = key_of(i, key), vlen = w->vsize;
        uint64_t h = state_hash(key, klen);
        const unsigned char *v =
            w->fixed ? state_find(w->s, key, klen, h) : state_get(w->s, key, klen, h, &vlen);
        const struct val *m = &w->now.k[i];
        if (!m->live || over(w, m, w->time)) {
            assert_null(v);
            continue;
        }
        assert_non_null(v);
        assert_int_equal(vlen, m->len);
        if (vlen) {
            assert_int_equal(v[0], m->fill);
            assert_int_equal(v[vlen - 1], m->fill);
            assert_int_equal(v[vlen / 2], m->fill);
        }
    }
    uint64_t bytes, n = model_count(w, &bytes), seen = 0, it = 0;
    const void *k, *v;
    uint32_t kl, vl;
    assert_true(state_count(w->s) <= n);
    if (!w->lim.ttl_ms)
        assert_int_equal(state_count(w->s), n);
    if (w->lim.max_keys)
        assert_true(state_count(w->s) <= w->lim.max_keys);
    while (state_next(w->s, &it, &k, &kl, &v, &vl))
        seen++;
    assert_int_equal(seen, state_count(w->s));
}

/* ---- steps ---- */

static void step_time(struct world *w) {
    int64_t ttl = w->lim.ttl_ms ? w->lim.ttl_ms : 100;
    w->wm += rnd(4) ? rnd(3) : rnd((uint32_t)(2 * ttl));
    w->time = w->wm;
    state_at(w->s, w->wm - 10 + rnd(10), w->wm); /* late: the watermark counts */
    check(w);
    w->time = w->wm + (rnd(3) ? 0 : rnd((uint32_t)ttl));
    state_at(w->s, w->time, w->wm);
}

static void step_edit(struct world *w) {
    static unsigned char buf[VMAX];
    int i = (int)rnd(KEYS);
    char key[64];
    uint32_t klen = key_of(i, key);
    uint64_t h = state_hash(key, klen);
    bool seen = w->now.k[i].live && !over(w, &w->now.k[i], w->time);
    if (rnd(5) == 0) {
        assert_int_equal(state_drop(w->s, key, klen, h), seen);
        w->now.k[i].live = false;
        return;
    }
    if (w->now.k[i].live && over(w, &w->now.k[i], w->wm))
        w->now.k[i].live = false; /* nobody can see it */
    bool near = state_near_limit(w->s, 1), admitted = state_admits(w->s, key, klen, h);
    bool room = w->now.k[i].live || model_room(w, klen + (uint64_t)w->vsize);
    assert_int_equal(admitted, room || w->lim.evict);
    assert_true(near || admitted);
    if (!admitted)
        return;
    unsigned char fill = (unsigned char)(1 + rnd(255));
    uint32_t len = w->fixed ? w->vsize : rnd(20) == 0 ? rnd(VMAX) : rnd(60);
    if (w->fixed) {
        bool created;
        unsigned char *v = state_edit(w->s, key, klen, h, &created);
        assert_int_equal(created, !seen);
        assert_int_equal(v[len - 1], seen ? w->now.k[i].fill : 0);
        memset(v, fill, len);
    } else {
        memset(buf, fill, len);
        state_put(w->s, key, klen, h, buf, len);
    }
    model_write(w, i, len, fill);
}

static void collect(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                    const void *value, uint32_t vlen) {
    struct record *staged = arg;
    char text[64];
    assert_int_equal(instance, 7);
    assert_int_equal(table, 2);
    memcpy(text, key, klen);
    text[klen] = 0;
    struct record *r = &staged[strtol(text + 3, NULL, 10)];
    free(r->v);
    *r = (struct record){ value != NULL, vlen, NULL };
    if (!value)
        return;
    r->v = malloc(vlen ? vlen : 1);
    memcpy(r->v, value, vlen);
}
static void records_free(struct record *r) {
    for (int i = 0; i < KEYS; i++) {
        free(r[i].v);
        r[i].v = NULL;
    }
}
static void records_copy(struct record *to, const struct record *from) {
    records_free(to);
    for (int i = 0; i < KEYS; i++) {
        to[i] = from[i];
        if (!from[i].v)
            continue;
        to[i].v = malloc(from[i].len ? from[i].len : 1);
        memcpy(to[i].v, from[i].v, from[i].len);
    }
}

static void world_open(struct world *w) {
    w->u = undo_new();
    if (w->spill)
        undo_spill(w->u, spill_window_new(w->spill));
    w->s = state_new_limited(w->u, 7, 2, w->fixed ? w->vsize : 0, &w->lim);
    w->committing = false;
}
static void world_close(struct world *w) {
    state_free(w->s);
    undo_free(w->u);
    if (w->spill)
        assert_int_equal(spill_bytes(w->spill), 0);
}

/* The process is killed; the log holds the last commit. */
static void step_restart(struct world *w) {
    int at = (int)rnd(KEYS), step = 1 + 2 * (int)rnd(3); /* coprime to KEYS or not: 1, 3, 5 */
    world_close(w);
    world_open(w);
    for (int n = 0; n < step; n++)
        for (int i = (at + n) % step; i < KEYS; i += step)
            if (w->replica[i].live) {
                char key[64];
                uint32_t klen = key_of(i, key);
                assert_int_equal(state_load(w->s, key, klen, w->replica[i].v, w->replica[i].len),
                                 0);
            }
    w->now = w->durable;
    state_at(w->s, w->time, w->wm);
}

static void step_epoch(struct world *w) {
    switch (rnd(4)) {
    case 0:
        if (w->committing)
            break;
        records_copy(w->staged, w->replica);
        undo_collect(w->u, collect, w->staged);
        undo_push(w->u);
        w->closing = w->now;
        w->committing = true;
        break;
    case 1:
        if (!w->committing)
            break;
        undo_commit(w->u);
        w->committing = false;
        w->durable = w->closing;
        records_copy(w->replica, w->staged);
        break;
    case 2:
        if (rnd(2))
            break;
        undo_abort(w->u);
        w->committing = false;
        w->now = w->durable;
        break;
    default:
        if (rnd(4) == 0)
            step_restart(w);
    }
}

static struct state_limits random_limits(int kind) {
    struct state_limits l = { 0 };
    if (kind & 1)
        l.ttl_ms = 1 + rnd(200);
    if (kind & 2)
        l.max_keys = 1 + rnd(KEYS);
    if (kind & 4)
        l.max_bytes = 100 + rnd(rnd(2) ? 3000 : 200000);
    l.evict = rnd(2);
    return l;
}

static void run(uint64_t seed, struct spill *spill) {
    rng = seed * 2654435761u + 88172645463325252u;
    struct world w = { .spill = spill, .fixed = seed & 1, .time = 1000000, .wm = 1000000 };
    w.lim = random_limits((int)(seed >> 1 & 7));
    w.vsize = w.fixed ? rnd(8) ? 16 : 40000 : 0;
    world_open(&w);
    state_at(w.s, w.time, w.wm);
    for (int i = 0; i < STEPS; i++) {
        uint32_t what = rnd(10);
        if (what == 0)
            step_epoch(&w);
        else if (what == 1)
            step_time(&w);
        else if (what == 2)
            state_expire(w.s, w.wm, rnd(100));
        else
            step_edit(&w);
        check(&w);
    }
    world_close(&w);
    records_free(w.replica);
    records_free(w.staged);
}

static uint64_t running; /* 0: none */

/* After a test that failed inside a run. */
static int tell_seed(void **unused) {
    (void)unused;
    if (running)
        print_message("BRAID_SEED=%llu\n", (unsigned long long)running);
    running = 0;
    return 0;
}

static void run_all(struct spill *spill, int n) {
    uint64_t first = test_seed(1), rounds = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(n);
    for (uint64_t seed = first; seed < first + rounds; seed++) {
        running = seed;
        run(seed, spill);
    }
    running = 0;
}

static void test_model(void **unused) {
    (void)unused;
    run_all(NULL, 1000);
}

/* A budget of nothing: every chunk of 64 KiB lies in the file. */
static void test_spill(void **unused) {
    (void)unused;
    struct spill *sp;
    struct err e = ERR_INIT;
    assert_int_equal(spill_open(&sp, "/tmp", 0, &e), 0);
    run_all(sp, 300);
    spill_close(sp);
}

enum { MANY = 30000, WIDE = 200 };

static void many_check(struct state *s, const uint32_t *want) {
    for (uint32_t i = 0; i < MANY; i++) {
        const unsigned char *v = state_find(s, &i, sizeof i, state_hash(&i, sizeof i));
        uint32_t got[2];
        assert_int_equal(v != NULL, want[i] != 0);
        if (!v)
            continue;
        memcpy(got, v, sizeof got);
        assert_int_equal(got[0], i);
        assert_int_equal(got[1], want[i]);
    }
}

/* Many more keys than the budget holds, so that chunks leave memory and come back; aborts and drops
 * between. */
static void test_many(void **unused) {
    (void)unused;
    struct spill *sp;
    struct err e = ERR_INIT;
    static uint32_t now[MANY], durable[MANY];
    assert_int_equal(spill_open(&sp, "/tmp", 1 << 20, &e), 0);
    struct undo *u = undo_new();
    undo_spill(u, spill_window_new(sp));
    struct state *s = state_new_limited(u, 1, 0, WIDE, NULL);
    rng = test_seed(5) * 2654435761u + 88172645463325252u;
    for (int epoch = 0; epoch < 30; epoch++) {
        for (int k = 0; k < 5000; k++) {
            uint32_t i = rnd(MANY), v[2] = { i, 1 + rnd(1000) };
            uint64_t h = state_hash(&i, sizeof i);
            if (rnd(8) == 0) {
                state_drop(s, &i, sizeof i, h);
                now[i] = 0;
            } else {
                memcpy(state_edit(s, &i, sizeof i, h, NULL), v, sizeof v);
                now[i] = v[1];
            }
        }
        if (rnd(4) == 0) {
            undo_abort(u);
            memcpy(now, durable, sizeof now);
        } else {
            undo_push(u);
            undo_commit(u);
            memcpy(durable, now, sizeof now);
        }
        if (epoch % 5 == 0)
            many_check(s, now);
    }
    many_check(s, now);
    assert_true(state_spilled(s) > state_bytes(s) / 2);
    assert_int_equal(state_spilled(s), spill_bytes(sp));
    state_free(s);
    undo_free(u);
    spill_close(sp);
}

/* Keys whose hashes agree in their top bits come together in one segment; the table neither loses
 * one nor grows its directory without bound. */
static void test_same_hash(void **unused) {
    (void)unused;
    enum { N = 2000, BITS = 13 };
    struct undo *u = undo_new();
    struct state *s = state_new(u, 1, 0, 8);
    uint64_t last = 0;
    for (uint64_t i = 0, n = 0; n < N; i++) {
        uint64_t h = state_hash(&i, sizeof i);
        bool created;
        if (h >> (64 - BITS) != 5)
            continue;
        *(uint64_t *)state_edit(s, &i, sizeof i, h, &created) = i + 1;
        assert_true(created);
        last = i;
        n++;
    }
    for (uint64_t i = 0; i <= last; i++) {
        uint64_t h = state_hash(&i, sizeof i);
        if (h >> (64 - BITS) != 5)
            continue;
        const uint64_t *v = state_find(s, &i, sizeof i, h);
        assert_non_null(v);
        assert_int_equal(*v, i + 1);
    }
    assert_int_equal(state_count(s), N);
    assert_true(state_bytes(s) < 400000);
    state_free(s);
    undo_free(u);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_model, tell_seed),
                                        cmocka_unit_test_teardown(test_spill, tell_seed),
                                        cmocka_unit_test(test_many),
                                        cmocka_unit_test(test_same_hash) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
