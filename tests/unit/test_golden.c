/* The golden ETL series of RIoTBench through parser, planner, executor and operators, in both
 * forms. The other three golden files are in test_ops_stats. */
#include "engine/num.h"
#include "tests/unit/flowrun.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

#define DIR    "dataflows/riotbench/"
#define SCHEMA "\"" DIR "schema/sys-schema_without_annotationfields.txt\""
#define TASK(id, type, config, inputs)                                                             \
    ",{\"id\":\"" id "\",\"type\":\"" type "\",\"config\":{" config "},\"inputs\":[" inputs "]}"
#define RANGES                                                                                     \
    "\"ranges\":{\"temperature\":[-12.5,43.1],\"humidity\":[10.7,95.2],\"light\":[1345,26282],"    \
    "\"dust\":[186.61,5188.21],\"airquality_raw\":[17,363]},\"mode\":\"null\""
#define FIELDS                                                                                     \
    "\"fields\":[\"temperature\",\"humidity\",\"light\",\"dust\",\"airquality_raw\"],"             \
    "\"window\":5,\"no_history\":\"0\""
#define NAMES "\"name_field\":\"obs\",\"value_field\":\"value\""
#define HEAD                                                                                       \
    "{\"braid\":1,\"name\":\"golden\",\"tasks\":["                                                 \
    "{\"id\":\"in\",\"type\":\"source\",\"config\":{\"topic\":\"sys\"}}"
#define ANNOTATE                                                                                   \
    TASK("annotate", "annotate",                                                                   \
         "\"table\":\"" DIR "data/city-metadata.txt\",\"key\":\"source\","                         \
         "\"columns\":{\"location\":\"string\",\"type\":\"string\"}",                              \
         "\"clean\"")                                                                              \
    TASK("out", "sink", "\"topic\":\"golden\",\"format\":\"csv\"", "\"annotate\"") "]}"

static const char wide[] = HEAD TASK("parse", "senml_parse", "\"schema\":" SCHEMA, "\"in\"")
    TASK("range", "range_filter", RANGES, "\"parse\"")
        TASK("clean", "interpolate", FIELDS, "{\"from\":\"range\",\"by\":[\"source\"]}") ANNOTATE;

static const char exploded[] =
    HEAD TASK("parse", "senml_parse",
              "\"schema\":" SCHEMA ",\"emit\":\"explode\","
              "\"meta\":[\"timestamp\",\"source\",\"longitude\",\"latitude\"]",
              "\"in\"") TASK("range", "range_filter", RANGES "," NAMES, "\"parse\"")
        TASK("mean", "interpolate", FIELDS "," NAMES, "{\"from\":\"range\",\"by\":[\"source\"]}")
            TASK("clean", "join", "\"schema\":" SCHEMA, "{\"from\":\"mean\",\"by\":[\"msgid\"]}")
                ANNOTATE;

/* The sample without its first record, which the original takes for a header. */
static void without_first_line(char *path) {
    static char text[1 << 20];
    FILE *f = fopen(DIR "data/SYS_sample_data_senml.csv", "rb");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof text, f);
    fclose(f);
    const char *second = (const char *)memchr(text, '\n', len) + 1;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    len -= (size_t)(second - text);
    assert_int_equal(write(fd, second, len), (ssize_t)len);
    close(fd);
}

/* Numbers as numbers (the golden file prints Java floats), the rest as text. */
static void same_cell(const char *got, size_t n, const char *want, size_t m, int line) {
    double x, y;
    if (num_f64_whole(got, got + n, &x) == 0 && num_f64_whole(want, want + m, &y) == 0) {
        if (!(fabs(x - y) <= 1e-6 * fabs(y)))
            fail_msg("line %d: %.*s, want %.*s", line, (int)n, got, (int)m, want);
        return;
    }
    if (n != m || memcmp(got, want, n) != 0)
        fail_msg("line %d: %.*s, want %.*s", line, (int)n, got, (int)m, want);
}

static void compare(const char *got, const char *want) {
    int line = 1, cells = 0;
    for (; *want; line++) {
        want = strchr(want, ',') + 1; /* the line's number */
        for (int c = 0; c < 11; c++, cells++) {
            size_t n = strcspn(got, ",\n"), m = strcspn(want, ",\r\n");
            same_cell(got, n, want, m, line);
            if ((got[n] == ',') != (c < 10))
                fail_msg("line %d has another number of cells", line);
            got += n + 1;
            want += m + (want[m] != 0);
        }
        want += *want == '\n';
    }
    assert_int_equal(*got, 0);
    assert_int_equal(line - 1, 999);
    assert_int_equal(cells, 999 * 11);
}

static void etl_golden(const char *text) {
    static char want[1 << 20];
    char path[] = "/tmp/braid-golden-XXXXXX";
    FILE *f = fopen(DIR "golden/sys_etl_join9_annotated.csv", "rb");
    assert_non_null(f);
    want[fread(want, 1, sizeof want - 1, f)] = 0;
    fclose(f);
    without_first_line(path);
    struct dataset_conf data = { .source = path };
    for (uint32_t batch = 1; batch <= 1000; batch = batch * 10 + 7) {
        struct flowrun r;
        flowrun_text(&r, text, &data, batch);
        assert_int_equal(r.dead, 0);
        compare(sbuf_str(&r.sink[0].out), want);
        flowrun_free(&r);
    }
    unlink(path);
}

static void etl_wide(void **state) {
    (void)state;
    etl_golden(wide);
}
static void etl_exploded(void **state) {
    (void)state;
    etl_golden(exploded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(etl_wide),
        cmocka_unit_test(etl_exploded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
