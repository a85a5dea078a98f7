/* shared tables: one copy a key, whatever threads ask for it. */
#include "operators/shared.h"
#include "tests/unit/harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

enum { KEYS = 3, THREADS = 4, HELD = 5 };
static const char *const key[KEYS] = { "a", "b", "c" };
static atomic_int live[KEYS], made;
static int rounds;

struct table {
    int k;
    char bytes[100];
};
static int make(void *arg, void **out, struct err *e) {
    struct table *t = calloc(1, sizeof *t);
    t->k = *(int *)arg;
    (void)e;
    atomic_fetch_add(&live[t->k], 1);
    atomic_fetch_add(&made, 1);
    *out = t;
    return 0;
}
static int make_nothing(void *arg, void **out, struct err *e) {
    (void)arg;
    (void)out;
    return err_set(e, ERR_INPUT, "broken");
}
static void drop(void *p) {
    struct table *t = p;
    atomic_fetch_sub(&live[t->k], 1);
    free(t);
}

static void equal_keys_share(void **state) {
    (void)state;
    void *x, *y, *z;
    struct err e = ERR_INIT;
    int k = 0, other = 1, before = made;
    assert_int_equal(shared_get("a", make, &k, drop, &x, &e), 0);
    assert_int_equal(shared_get("a", make, &k, drop, &y, &e), 0);
    assert_int_equal(shared_get("b", make, &other, drop, &z, &e), 0);
    assert_ptr_equal(x, y);
    assert_ptr_not_equal(x, z);
    assert_int_equal(made - before, 2);
    shared_put(x);
    assert_int_equal(live[0], 1);
    shared_put(y);
    assert_int_equal(live[0], 0);
    shared_put(z);
    shared_put(NULL);
    assert_int_equal(shared_get("c", make_nothing, NULL, drop, &x, &e), ERR_INPUT);
    assert_string_equal(e.text, "broken");
    k = 2; /* a failure leaves nothing behind */
    assert_int_equal(shared_get("c", make, &k, drop, &x, &e), 0);
    shared_put(x);
}

/* Each thread holds some tables and swaps one at a time for another. Returns the faults seen. */
static void *work(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    struct table *held[HELD] = { NULL };
    uintptr_t faults = 0;
    for (int i = 0; i < rounds; i++) {
        uint64_t r = test_random(&seed);
        struct table **t = &held[r % HELD];
        int k = (int)((r >> 8) % KEYS);
        void *got = NULL;
        shared_put(*t);
        faults += shared_get(key[k], make, &k, drop, &got, NULL) != 0;
        *t = got;
        for (int h = 0; h < HELD; h++)
            faults += held[h] && held[h]->k == k && held[h] != *t;
        faults += atomic_load(&live[k]) != 1;
    }
    for (int h = 0; h < HELD; h++)
        shared_put(held[h]);
    return (void *)faults;
}

static void threads_share(void **state) {
    (void)state;
    pthread_t thread[THREADS];
    uint64_t seed = test_seed(1);
    rounds = test_scale(20000);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(seed + i)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *faults;
        pthread_join(thread[i], &faults);
        assert_null(faults);
    }
    for (int k = 0; k < KEYS; k++)
        assert_int_equal(live[k], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_keys_share),
        cmocka_unit_test(threads_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
