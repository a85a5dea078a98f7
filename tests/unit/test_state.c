/* Keyed state against a model: random edits, puts and drops over two open layers, commits and
 * aborts; after every step the table equals the model, and what undo_collect reported since the
 * last commit, applied to a copy, equals the committed model. */
#include "engine/key.h"
#include "engine/state.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 40, VMAX = 2000 };
struct val {
    bool live;
    uint32_t len;
    unsigned char fill;
};
struct model {
    struct val k[KEYS];
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

static void collect(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                    const void *value, uint32_t vlen) {
    struct model *m = arg;
    char text[64];
    assert_int_equal(instance, 7);
    assert_int_equal(table, 1);
    memcpy(text, key, klen);
    text[klen] = 0;
    struct val *v = &m->k[strtol(text + 3, NULL, 10)];
    v->live = value != NULL;
    v->len = vlen;
    v->fill = vlen ? *(const unsigned char *)value : 0;
}

static void count(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                  const void *value, uint32_t vlen) {
    (void)instance;
    (void)table;
    (void)key;
    (void)value;
    *(size_t *)arg += 20 + klen + vlen;
}

/* Beside what is collected: keys that came and went within the layer, and those that are removed
 * count as if they had a value of fixed size. */
static void check_bytes(struct undo *u, bool fixed) {
    size_t want = 0, got = undo_bytes(u);
    undo_collect(u, count, &want);
    assert_in_range(got, want, want + KEYS * (fixed ? 20 + 40 + 16 : 20 + 40));
    assert_true(want > 0 || got < KEYS * 80);
}

static void check(struct state *s, const struct model *m, bool fixed) {
    uint64_t n = 0;
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        uint32_t klen = key_of(i, key), vlen = 16;
        uint64_t h = state_hash(key, klen);
        const unsigned char *v =
            fixed ? state_find(s, key, klen, h) : state_get(s, key, klen, h, &vlen);
        if (m->k[i].live) {
            assert_non_null(v);
            assert_int_equal(vlen, m->k[i].len);
            for (uint32_t j = 0; j < vlen; j++)
                assert_int_equal(v[j], m->k[i].fill);
        } else {
            assert_null(v);
        }
        n += m->k[i].live;
    }
    assert_int_equal(state_count(s), n);
    uint64_t it = 0, seen = 0;
    const void *k, *v;
    uint32_t kl, vl;
    while (state_next(s, &it, &k, &kl, &v, &vl))
        seen++;
    assert_int_equal(seen, n);
}

static void model_same(const struct model *a, const struct model *b) {
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(a->k[i].live, b->k[i].live);
        if (a->k[i].live) {
            assert_int_equal(a->k[i].len, b->k[i].len);
            assert_int_equal(a->k[i].fill, b->k[i].fill);
        }
    }
}

static void random_edit(struct state *s, struct model *m, bool fixed) {
    int i = (int)rnd(KEYS);
    char key[64];
    uint32_t klen = key_of(i, key);
    uint64_t h = state_hash(key, klen);
    if (rnd(3) == 0) {
        assert_int_equal(state_drop(s, key, klen, h), m->k[i].live);
        m->k[i].live = false;
        return;
    }
    uint32_t len = fixed ? 16 : rnd(10) ? 1 + rnd(40) : 1 + rnd(VMAX);
    unsigned char fill = (unsigned char)(1 + rnd(255)), buf[VMAX];
    if (fixed) {
        bool created;
        unsigned char *v = state_edit(s, key, klen, h, &created);
        assert_int_equal(created, !m->k[i].live);
        assert_int_equal(v[15], created ? 0 : m->k[i].fill);
        memset(v, fill, len);
    } else {
        memset(buf, fill, len);
        state_put(s, key, klen, h, buf, len);
    }
    m->k[i] = (struct val){ true, len, fill };
}

static void run(uint64_t seed, bool fixed) {
    rng = seed * 2654435761u + 88172645463325252u;
    struct undo *u = undo_new();
    struct state *s = state_new(u, 7, 1, fixed ? 16 : 0);
    struct model now = { 0 }, closing = { 0 }, durable = { 0 }, replica = { 0 }, staged = { 0 };
    bool committing = false;
    for (int step = 0; step < 300; step++) {
        switch (rnd(12)) {
        case 0: /* close the epoch */
            if (committing)
                break;
            staged = replica;
            undo_collect(u, collect, &staged);
            undo_push(u);
            closing = now;
            committing = true;
            break;
        case 1: /* its commit succeeds */
            if (!committing)
                break;
            undo_commit(u);
            committing = false;
            durable = closing;
            replica = staged;
            model_same(&replica, &durable);
            break;
        case 2: /* abort */
            if (rnd(3))
                break;
            undo_abort(u);
            committing = false;
            now = durable;
            break;
        default:
            random_edit(s, &now, fixed);
        }
        check(s, &now, fixed);
        check_bytes(u, fixed);
    }
    state_free(s);
    undo_free(u);
}

static void test_model(void **unused) {
    (void)unused;
    const char *env = getenv("BRAID_SEED");
    uint64_t first = env ? strtoull(env, NULL, 10) : 1, n = env ? 1 : 300;
    for (uint64_t seed = first; seed < first + n; seed++) {
        run(seed, true);
        run(seed, false);
    }
}

/* Keys are equal iff the fields are, and sort as the values do. */
static void test_keys(void **unused) {
    (void)unused;
    struct arena a = { 0 };
    struct field *f;
    struct schema *s = schema_new(&a, 2, &f);
    f[0] = (struct field){ .name = "n", .type = TYPE_F64 };
    f[1] = (struct field){ .name = "s", .type = TYPE_STR };
    double num[6] = { -1e300, -1.5, -0.0, 0.0, 2, 1e300 };
    struct span str[6] = { { "a", 1, 0 }, { "a\0b", 3, 0 }, { "", 0, 0 },
                           { "", 0, 0 },  { "b", 1, 0 },    { "a", 1, 0 } };
    uint64_t nulls = 1u << 5;
    struct column cols[2] = { { .f64 = num }, { .str = str, .nulls = &nulls } };
    struct batch b = { .schema = s, .cols = cols, .rows = 6, .n = 6 };
    struct span key[6];
    uint64_t hash[6];
    int by[2] = { 0, 1 };
    key_batch(&a, &b, by, 2, key, hash);
    for (int i = 0; i + 1 < 6; i++) {
        int d = key_compare(key[i], key[i + 1]);
        assert_true(i == 2 ? d == 0 && hash[2] == hash[3] : d < 0);
    }
    for (int i = 0; i < 6; i++) {
        struct key_value v[2];
        assert_int_equal(key_decode(&a, s, by, 2, key[i].p, key[i].len, v), 0);
        assert_true(v[0].f64 == num[i]);
        assert_int_equal(v[1].null, i == 5);
        if (i != 5) {
            assert_int_equal(v[1].str.len, str[i].len);
            assert_memory_equal(v[1].str.p, str[i].p, str[i].len);
        }
    }
    /* one string field: null differs from the empty string */
    int one = 1;
    key_batch(&a, &b, &one, 1, key, hash);
    assert_int_equal(key_compare(key[2], key[3]), 0);
    assert_true(key_compare(key[2], key[5]) != 0);
    struct key_value v;
    assert_int_equal(key_decode(&a, s, &one, 1, key[5].p, key[5].len, &v), 0);
    assert_true(v.null);
    arena_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_model), cmocka_unit_test(test_keys) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
