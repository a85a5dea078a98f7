/* Quantities, tables and the server's figures, as people see them. */
#include "cluster/metrics.h"
#include "cluster/table.h"
#include "engine/num.h"
#include "tests/unit/harness.h"
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

static void test_units(void **state) {
    (void)state;
    char b[UNIT_MAX];
    static const struct {
        double v;
        const char *count, *bytes;
    } cases[] = {
        { 0, "0", "0 B" },
        { 7, "7", "7 B" },
        { 7.125, "7.13", "7.13 B" },
        { 999, "999", "999 B" },
        { 999.4, "999", "999 B" },
        { 999.5, "1.00 k", "1.00 kB" },
        { 1000, "1.00 k", "1.00 kB" },
        { 9994, "9.99 k", "9.99 kB" },
        { 9995.1, "10.0 k", "10.0 kB" },
        { 99949, "99.9 k", "99.9 kB" },
        { 99951, "100 k", "100 kB" },
        { 999499, "999 k", "999 kB" },
        { 1234567, "1.23 M", "1.23 MB" },
        { 2.5e18, "2.50 E", "2.50 EB" },
        { -3, "0", "0 B" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(unit_count(b, cases[i].v), cases[i].count);
        assert_string_equal(unit_bytes(b, cases[i].v), cases[i].bytes);
    }
    assert_string_equal(unit_ns(b, 12.34), "12.3 ns");
    assert_string_equal(unit_ns(b, 0), "0 ns");
    assert_string_equal(unit_ns(b, 183), "183 ns");
    assert_string_equal(unit_ms(b, -1), "0 ms");
    assert_string_equal(unit_ms(b, 53), "53 ms");
    assert_string_equal(unit_ms(b, 3000), "3.00 s");
    assert_string_equal(unit_ns(b, 1500), "1.50 us");
    assert_string_equal(unit_ns(b, 2e12), "2000 s");
    assert_string_equal(unit_exact(b, 0), "0");
    assert_string_equal(unit_exact(b, 999), "999");
    assert_string_equal(unit_exact(b, 1000), "1,000");
    assert_string_equal(unit_exact(b, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(unit_span(b, 0.44), "0.4 s");
    assert_string_equal(unit_span(b, 9.96), "10 s");
    assert_string_equal(unit_span(b, 187), "3:07");
    assert_string_equal(unit_span(b, 7387), "2:03:07");
    assert_string_equal(unit_percent(b, 0.2222), "22.2 %");
}

/* Every quantity has at most three significant digits and is within half a unit of the last. */
static void test_units_random(void **state) {
    (void)state;
    uint64_t seed = test_seed(1), rnd = seed;
    static const char prefixes[] = " kMGTPE";
    for (int i = 0; i < test_scale(20000); i++) {
        double v = (double)(test_random(&rnd) >> (test_random(&rnd) % 63));
        char b[UNIT_MAX];
        unit_count(b, v);
        double shown;
        const char *end = b + strcspn(b, " ");
        assert_int_equal(num_f64_whole(b, end, &shown), 0);
        const char *p = *end == ' ' ? strchr(prefixes, end[1]) : prefixes;
        assert_non_null(p);
        for (const char *q = prefixes; q < p; q++)
            shown *= 1000;
        if (!(shown >= v * 0.9949 && shown <= v * 1.0051))
            fail_msg("seed %llu: %s is not %llu", (unsigned long long)seed, b,
                     (unsigned long long)v);
    }
}

static char *printed(const struct table *t, int width) {
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    table_print(t, f, width, false);
    fclose(f);
    return text;
}

static void test_layout(void **state) {
    (void)state;
    struct table t;
    table_begin(&t, "<name|>rows|<why");
    char *s = printed(&t, 0);
    assert_string_equal(s, "");
    free(s);
    static const char *const cells[] = { "in",     "1,000", "reads a topic of the log",
                                         "größer", "7",     "" };
    for (int i = 0; i < 6; i++)
        table_add(&t, cells[i]);
    s = printed(&t, 0);
    assert_string_equal(s, "name     rows  why\n"
                           "in      1,000  reads a topic of the log\n"
                           "größer      7\n");
    free(s);
    s = printed(&t, 31);
    assert_string_equal(s, "name     rows  why\n"
                           "in      1,000  reads a topic o…\n"
                           "größer      7\n");
    free(s);
    s = printed(&t, 20);
    assert_string_equal(s, "name     rows  why\n"
                           "in      1,000  read…\n"
                           "größer      7\n");
    free(s);
    table_end(&t);
}

/* Where there is no room, columns that say nothing go. */
static void test_left_out(void **state) {
    (void)state;
    struct table t;
    static const char *const cells[] = { "a", "1,000", "-", "", "x", "b", "2,000", "-", "", "" };
    table_begin(&t, "<name|>rows in|>late|>rejected|<shared with");
    for (int i = 0; i < 10; i++)
        table_add(&t, cells[i]);
    char *s = printed(&t, 60);
    assert_string_equal(s, "name  rows in  late  rejected  shared with\n"
                           "a       1,000     -            x\n"
                           "b       2,000     -\n");
    free(s);
    s = printed(&t, 32);
    assert_string_equal(s, "name  rows in  late  shared with\n"
                           "a       1,000     -  x\n"
                           "b       2,000     -\n");
    free(s);
    s = printed(&t, 26);
    assert_string_equal(s, "name  rows in  shared with\n"
                           "a       1,000  x\n"
                           "b       2,000\n");
    free(s);
    table_end(&t);
}

/* No line is wider than asked, and none ends in a space, while the numbers fit. */
static void test_layout_random(void **state) {
    (void)state;
    uint64_t seed = test_seed(1), rnd = seed;
    for (int i = 0; i < test_scale(2000); i++) {
        struct table t;
        table_begin(&t, "<a|<b|>n|<last");
        int rows = 1 + (int)(test_random(&rnd) % 5);
        for (int c = 0; c < 4 * rows; c++) {
            char cell[64] = "";
            int n = c % 4 == 2 ? 1 + (int)(test_random(&rnd) % 6) : (int)(test_random(&rnd) % 30);
            for (int k = 0; k < n; k++)
                strncat(cell, test_random(&rnd) % 4 || c % 4 == 2 ? "x" : "é", 3);
            table_add(&t, cell);
        }
        int width = 40 + (int)(test_random(&rnd) % 60);
        char *s = printed(&t, width);
        for (const char *p = s; *p;) {
            size_t n = strcspn(p, "\n");
            if (text_width(p, n) > width || (n > 0 && p[n - 1] == ' '))
                fail_msg("seed %llu, width %d: '%.*s'", (unsigned long long)seed, width, (int)n, p);
            p += n + 1;
        }
        free(s);
        table_end(&t);
    }
}

static void test_metrics(void **state) {
    (void)state;
    static const char text[] =
        "# HELP braid_dataflows Dataflows running\nbraid_dataflows 2\nbraid_nonsense 7\n"
        "braid_task_rows_in_total{instance=\"12\",type=\"read\",label=\"a/in\"} 100\n"
        "braid_task_rows_in_total{instance=\"3\",type=\"sink\",label=\"a/out\"} 90\n"
        "braid_task_busy_nanoseconds_total{instance=\"12\",type=\"read\",label=\"a/in\"} 5000\n"
        "braid_task_busy_nanoseconds_total{instance=\"x\",type=\"read\",label=\"a/in\"} 1\n"
        "braid_source_lag_records{instance=\"12\",type=\"read\",label=\"a/in\"} 4\n"
        "braid_task_rows_in_total{instance=\n\n{} 1\nbraid_resident_bytes "
        "1.5\nbraid_cpu_milliseconds_total 33";
    struct metrics m;
    metrics_parse(&m, text, sizeof text - 1);
    assert_int_equal(m.n, 2);
    assert_int_equal(m.dataflows, 2);
    assert_int_equal(m.cpu_ms, 33);
    assert_int_equal(m.resident, 0);
    const struct stage_metrics *s = metrics_find(&m, 12);
    assert_string_equal(s->label, "a/in");
    assert_string_equal(s->type, "read");
    assert_int_equal(s->rows_in, 100);
    assert_int_equal(s->busy_ns, 5000);
    assert_int_equal(s->lag, 4);
    assert_int_equal(metrics_find(&m, 3)->lag, -1);
    assert_null(metrics_find(&m, 4));
    metrics_free(&m);
    metrics_parse(&m, "", 0);
    assert_int_equal(m.n, 0);
    assert_null(metrics_find(&m, 4));
    metrics_free(&m);
    /* every beginning of it, too */
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, text, n);
        metrics_parse(&m, copy, n);
        metrics_free(&m);
        free(copy);
    }
}

int main(void) {
    if (getenv("BRAID_TEST_LOCALE"))
        setlocale(LC_ALL, "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),   cmocka_unit_test(test_units_random),
        cmocka_unit_test(test_layout),  cmocka_unit_test(test_layout_random),
        cmocka_unit_test(test_metrics), cmocka_unit_test(test_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
