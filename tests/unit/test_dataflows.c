/* The shipped RIoTBench dataflows on their recorded streams: every task and sink does something,
 * both forms of ETL put out the same bytes, and batches do not matter. */
#include "tests/unit/flowrun.h"
#include "tests/unit/harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

#define DIR "dataflows/riotbench/"
static const struct shipped {
    const char *file, *data;
    int64_t loop;    /* SYS and TAXI have few records a key: count windows need some passes */
    uint64_t values; /* observed values a record */
} shipped[] = {
    { DIR "etl-sys.json", "sys", 1, 5 },    { DIR "etl-sys-wide.json", "sys", 1, 5 },
    { DIR "etl-taxi.json", "taxi", 1, 8 },  { DIR "etl-taxi-wide.json", "taxi", 1, 8 },
    { DIR "etl-fit.json", "fit", 1, 11 },   { DIR "etl-fit-wide.json", "fit", 1, 11 },
    { DIR "stats-sys.json", "sys", 12, 5 }, { DIR "stats-taxi.json", "taxi", 12, 8 },
    { DIR "stats-fit.json", "fit", 1, 11 },
};
enum { SHIPPED = sizeof shipped / sizeof *shipped };

static void run_shipped(struct flowrun *r, const struct shipped *s, uint32_t batch) {
    struct dataset_conf data = { .source = s->data, .loop = s->loop };
    flowrun_file(r, s->file, &data, batch);
}

static bool is_filter(const char *type) {
    return strcmp(type, "range_filter") == 0 || strcmp(type, "bloom_filter") == 0 ||
           strcmp(type, "filter") == 0;
}

/* A filter must reject something and leave something. In mode `null` it takes values: *left counts
 * those that no filter has taken yet. */
static void filter_works(const char *file, const struct flowrun_task *t, uint64_t *left) {
    const struct op_counts *c = &t->counts;
    if (c->filtered + c->nulled == 0)
        fail_msg("%s: '%s' rejects nothing", file, t->id);
    if (c->passed == 0 || c->nulled >= *left)
        fail_msg("%s: '%s' rejects everything", file, t->id);
    *left -= c->nulled;
}

static void everything_works(void **state) {
    (void)state;
    for (int i = 0; i < SHIPPED; i++) {
        struct flowrun r;
        run_shipped(&r, &shipped[i], 0);
        if (r.dead)
            fail_msg("%s: %llu dead letters", shipped[i].file, (unsigned long long)r.dead);
        uint64_t left = r.records * shipped[i].values;
        for (int t = 0; t < r.ntasks; t++) {
            const struct op_counts *c = &r.task[t].counts;
            bool sink = strcmp(r.task[t].type, "sink") == 0;
            if ((sink ? c->in : c->out) == 0)
                fail_msg("%s: task '%s' emits no row", shipped[i].file, r.task[t].id);
            if (is_filter(r.task[t].type))
                filter_works(shipped[i].file, &r.task[t], &left);
        }
        assert_true(r.nsinks > 0);
        for (int s = 0; s < r.nsinks; s++)
            assert_true(r.sink[s].rows > 0);
        flowrun_free(&r);
    }
}

static void same_outputs(const struct flowrun *a, const struct flowrun *b, const char *what) {
    assert_int_equal(a->nsinks, b->nsinks);
    for (int i = 0; i < a->nsinks; i++) {
        const struct sbuf *x = &a->sink[i].out, *y = &b->sink[i].out;
        size_t at = 0;
        while (at < x->len && at < y->len && x->p[at] == y->p[at])
            at++;
        if (x->len != y->len || at < x->len)
            fail_msg("%s: sink '%s' differs at byte %zu (of %zu and %zu)", what, a->sink[i].name,
                     at, x->len, y->len);
    }
}

static void forms_of_etl_are_equal(void **state) {
    (void)state;
    for (int i = 0; i < SHIPPED; i += 2) {
        if (strncmp(shipped[i].file, DIR "etl", strlen(DIR "etl")) != 0)
            break;
        for (int64_t loop = 1; loop <= 3; loop += 2) {
            struct shipped one = shipped[i], two = shipped[i + 1];
            struct flowrun a, b;
            one.loop = two.loop = loop;
            run_shipped(&a, &one, 0);
            run_shipped(&b, &two, 0);
            assert_int_equal(a.sink[0].rows, a.records);
            same_outputs(&a, &b, one.file);
            for (int t = 0; t < b.ntasks; t++) /* the same values, also by the counters */
                if (is_filter(b.task[t].type))
                    assert_int_equal(a.task[t].counts.nulled, b.task[t].counts.nulled);
            flowrun_free(&a);
            flowrun_free(&b);
        }
    }
}

static void batches_do_not_matter(void **state) {
    (void)state;
    static const uint32_t sizes[] = { 1, 7, 1000 };
    for (int i = 0; i < SHIPPED; i++) {
        struct flowrun want, got;
        run_shipped(&want, &shipped[i], BATCH_ROWS);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            run_shipped(&got, &shipped[i], sizes[k]);
            same_outputs(&want, &got, shipped[i].file);
            for (int t = 0; t < want.ntasks; t++)
                assert_memory_equal(&want.task[t].counts, &got.task[t].counts,
                                    sizeof want.task[t].counts);
            flowrun_free(&got);
        }
        flowrun_free(&want);
    }
}

/* What ETL and STATS of one data set share: source, parse and range filter, and nothing else. */
static void etl_and_stats_share(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct flowrun etl, stats;
        int equal = 0;
        run_shipped(&etl, &shipped[2 * i], 0);
        run_shipped(&stats, &shipped[6 + i], 0);
        for (int a = 0; a < etl.ntasks; a++)
            for (int b = 0; b < stats.ntasks; b++)
                equal += strcmp(etl.task[a].signature, stats.task[b].signature) == 0;
        assert_int_equal(equal, 3);
        flowrun_free(&etl);
        flowrun_free(&stats);
    }
}

/* Records in a wild order and with more keys still make both forms agree. */
static void forms_agree_out_of_order(void **state) {
    (void)state;
    struct flowrun a, b;
    struct dataset_conf data = { .source = "sys",
                                 .loop = 3,
                                 .keys = 2000,
                                 .shuffle = 50,
                                 .jitter_ms = 5000,
                                 .seed = test_seed(6) };
    flowrun_file(&a, DIR "etl-sys.json", &data, 0);
    flowrun_file(&b, DIR "etl-sys-wide.json", &data, 3);
    same_outputs(&a, &b, "shuffled");
    flowrun_free(&a);
    flowrun_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_works),         cmocka_unit_test(forms_of_etl_are_equal),
        cmocka_unit_test(batches_do_not_matter),    cmocka_unit_test(etl_and_stats_share),
        cmocka_unit_test(forms_agree_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
