/* second_moment: the sketch's error bound and linearity, windows against sketches of their rows,
 * and RIoTBench's slots against a plain list. */
#include "engine/num.h"
#include "operators/ams.h"
#include "operators/mix.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include "tests/unit/panes_gen.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

static void expect_error(const struct optest *t, const char *part) {
    char *text = optest_errors(t);
    if (!strstr(text, part))
        fail_msg("'%s' does not contain '%s'", text, part);
    free(text);
}

/* A row of counters has a standard error of at most sqrt(2 / width) of the moment, whatever the
 * frequencies: from all equal to all different. */
static void error_bound_holds(void **state) {
    (void)state;
    enum { VALUES = 500 };
    uint64_t seed = test_seed(1);
    for (int shape = 0; shape < 4; shape++)
        for (uint32_t width = 16; width <= 256; width *= 4) {
            int sets = test_scale(150), far = 0;
            double squares = 0, sum = 0;
            for (int i = 0; i < sets; i++) {
                struct ams one, five;
                uint64_t base = test_random(&seed);
                double moment = 0;
                ams_init(&one, 1, width, test_random(&seed));
                ams_init(&five, 5, width, test_random(&seed));
                char *a = calloc(1, ams_size(&one)), *b = calloc(1, ams_size(&five));
                for (int v = 0; v < VALUES; v++) {
                    int count = shape == 0   ? 1
                                : shape == 1 ? VALUES / (v + 1)
                                : shape == 2 ? (v < 3 ? 40 : 0)
                                             : 1 + v % 7;
                    moment += (double)count * count;
                    for (int c = 0; c < count; c++) {
                        ams_add(&one, a, mix64(base + (uint64_t)v));
                        ams_add(&five, b, mix64(base + (uint64_t)v));
                    }
                }
                double e = ams_moment(&one, a) / moment - 1;
                squares += e * e;
                sum += e;
                far += fabs(ams_moment(&five, b) / moment - 1) > 3 * sqrt(2.0 / width);
                free(a);
                free(b);
            }
            double bound = sqrt(2.0 / width), rms = sqrt(squares / sets), mean = sum / sets;
            print_message("shape %d, width %u: rms error %.4f, bound %.4f\n", shape, width, rms,
                          bound);
            /* the sample's own scatter (1.35 of 150 sets): some of these errors have long tails */
            if (rms > bound * (1 + 4.3 / sqrt(sets)) || fabs(mean) > 5 * bound / sqrt(sets) ||
                far > 1 + sets / 50)
                fail_msg("BRAID_SEED=%llu: shape %d width %u: rms %.4f mean %.4f bound %.4f; %d "
                         "medians of 5 beyond 3 of it",
                         (unsigned long long)test_seed(1), shape, width, rms, mean, bound, far);
        }
}

/* Counters add up: any order and any merge of parts are the same bytes; one value alone is exact.
 */
static void is_linear(void **state) {
    (void)state;
    uint64_t seed = test_seed(3);
    for (int round = 0; round < test_scale(30); round++) {
        struct ams m;
        ams_init(&m, 1 + (int)(test_random(&seed) % AMS_DEPTH_MAX), 16u << test_random(&seed) % 5,
                 test_random(&seed));
        size_t size = ams_size(&m);
        char *whole = calloc(1, size), *x = calloc(1, size), *y = calloc(1, size);
        uint64_t v[2000];
        for (int i = 0; i < 2000; i++) {
            v[i] = test_random(&seed) % 100;
            ams_add(&m, whole, v[i]);
        }
        for (int i = 2000; i-- > 0;)
            ams_add(&m, test_random(&seed) % 2 ? x : y, v[i]);
        ams_merge(&m, x, y);
        assert_memory_equal(whole, x, size);
        memset(x, 0, size);
        for (int i = 1; i <= 1000; i++) {
            ams_add(&m, x, v[0]);
            assert_true(ams_moment(&m, x) == (double)i * i);
        }
        free(whole);
        free(x);
        free(y);
    }
}

/* ---- slots ---- */

enum { ROWS = 2000 };
static void slots_equal_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed(17), s = mix64(5);
    for (int slots = 1; slots <= 30; slots += 9) {
        struct {
            int value;
            double count;
        } slot[40] = { { 0, 0 } };
        int used = 0;
        struct sbuf in = { 0 }, want = { 0 };
        uint64_t n = 0;
        for (int i = 0; i < ROWS; i++) {
            int x = (int)(test_random(&seed) % 25), at = 0;
            bool null = test_random(&seed) % 10 == 0;
            if (null)
                sbuf_adds(&in, "null\n");
            else
                sbuf_printf(&in, "%d\n", x);
            if (!null) {
                n++;
                while (at < used && slot[at].value != x)
                    at++;
                if (at == used && used < slots) {
                    slot[used++].value = x;
                } else if (at == used) {
                    at = (int)(mix64(s ^ n) % (uint64_t)slots);
                    slot[at].value = x;
                    slot[at].count = 0;
                }
                slot[at].count++;
            }
            double sum = 0;
            for (int k = 0; k < slots; k++)
                sum += (double)n * (2 * slot[k].count - 1);
            char num[NUM_F64_MAX_LEN];
            if (null)
                sbuf_adds(&want, "null,");
            else
                sbuf_printf(&want, "%d,", x);
            if (used)
                sbuf_printf(&want, "%.*s\n", num_write_f64(num, sum / used), num);
            else
                sbuf_adds(&want, "null\n");
        }
        char config[96];
        snprintf(config, sizeof config,
                 "{\"fields\":[\"x\"],\"method\":\"slots\",\"slots\":%d,\"seed\":5}", slots);
        struct optest t = { .op = "second_moment", .in = "x:i64", .config = config };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        sbuf_free(&in);
        sbuf_free(&want);
    }
}

static void running_rows(void **state) {
    (void)state;
    struct optest t = { .op = "second_moment",
                        .in = "k:string x:string",
                        .by = "k",
                        .config = "{\"fields\":[\"x\"],\"suffix\":\"_2\",\"width\":65536,"
                                  "\"depth\":1}" };
    /* so wide that these few values do not meet */
    optest_expect(&t, "a,p\na,q\na,p\nb,p\na,null\na,p\n",
                  "a,p,1\na,q,2\na,p,5\nb,p,1\na,null,5\na,p,10\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, x: string, x_2: f64}");
    free(schema);
}

/* ---- windows ---- */

struct oracle {
    struct sbuf out;
};
/* In a window of a single value the moment is exact: how often it came, squared. */
static void square_group(void *user, const struct panes_stream *s, int64_t start, const char *key,
                         const int *row, int n) {
    struct oracle *o = user;
    int64_t values = 0;
    for (int i = 0; i < n; i++)
        values += !s->row[row[i]].null;
    sbuf_printf(&o->out, "@%lld %s,%lld,%lld,%lld\n", (long long)(start + s->size - 1), key,
                (long long)start, (long long)(start + s->size), (long long)(values * values));
}
static void windows_equal_oracle(void **state) {
    (void)state;
    static struct panes_stream s;
    uint64_t first = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(40);
    for (uint64_t seed = first; seed < first + n; seed++) {
        uint64_t r = seed;
        struct oracle o = { 0 };
        struct sbuf in = { 0 }, config = { 0 };
        panes_stream_make(&s, &r);
        for (int i = 0; i < s.n; i++)
            s.row[i].x = 7;
        sbuf_adds(&config, "{\"fields\":[\"x\"],\"width\":16,\"depth\":4,");
        panes_stream_config(&s, &config);
        sbuf_adds(&config, "}");
        panes_stream_text(&s, &in);
        panes_stream_groups(&s, false, square_group, &o);
        struct optest t = {
            .op = "moment_window", .in = "k:string x:i64", .by = "k", .config = sbuf_str(&config)
        };
        char *got = optest_same(&t, sbuf_str(&in), NULL);
        if (strcmp(got, sbuf_str(&o.out)) != 0)
            fail_msg("BRAID_SEED=%llu: %s\n--- got\n%s--- want\n%s", (unsigned long long)seed,
                     config.p, got, o.out.p);
        free(got);
        sbuf_free(&in);
        sbuf_free(&config);
        sbuf_free(&o.out);
    }
}

static void moment_errors(void **state) {
    (void)state;
    struct optest t = { .op = "second_moment", .in = "k:string x:i64" };
    t.config = "{\"fields\":[\"x\"],\"width\":100}";
    expect_error(&t, "width: 'width' must be a power of two");
    t.config = "{\"fields\":[\"x\",\"k\"],\"width\":65536,\"depth\":2}";
    expect_error(&t, "width: sketches of 2 fields are more than 1024 KiB for each key");
    t.config = "{\"fields\":[\"x\"],\"method\":\"slots\",\"every\":\"1s\"}";
    expect_error(&t, "every: method 'slots' counts from the start: it has no windows");
    t.config = "{\"fields\":[\"y\"]}";
    expect_error(&t, "fields/y: input 'in' has no field 'y'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_bound_holds),    cmocka_unit_test(is_linear),
        cmocka_unit_test(slots_equal_oracle),   cmocka_unit_test(running_rows),
        cmocka_unit_test(windows_equal_oracle), cmocka_unit_test(moment_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
