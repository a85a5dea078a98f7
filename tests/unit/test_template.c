/* Holes of records: what counts as a time and as an id, and that all other bytes stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/template.h"
#include "engine/num.h"
#include "tests/unit/harness.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };

static const char *render_csv(const char *text, char csv, int64_t epoch, const char *id_field,
                              int64_t shift, const char *id) {
    static char out[ROOM];
    static struct hole holes[TEMPLATE_HOLES_MAX];
    struct template t;
    template_find(&t, text, (uint32_t)strlen(text), csv, epoch, id_field, holes);
    assert_in_range(template_room(&t, id ? (uint32_t)strlen(id) : 0), strlen(text), ROOM - 1);
    uint32_t n = template_render(&t, shift, id, id ? (uint32_t)strlen(id) : 0, out);
    assert_in_range(n, 0, template_room(&t, id ? (uint32_t)strlen(id) : 0));
    out[n] = 0;
    return out;
}

static const char *render(const char *text, int64_t epoch, const char *id_field, int64_t shift,
                          const char *id) {
    return render_csv(text, 0, epoch, id_field, shift, id);
}

struct example {
    const char *in, *out;
    int64_t epoch;
};
#define E 1422748800000
static const struct example times[] = {
    /* bt: number or string, outermost object only */
    { "{\"e\":[],\"bt\":1422748800000}", "{\"e\":[],\"bt\":1422748860000}", INT64_MIN },
    { "{\"e\":[],\"bt\": \"1422748800000\" }", "{\"e\":[],\"bt\": \"1422748860000\" }", INT64_MIN },
    { "{\"bt\":-5}", "{\"bt\":59995}", INT64_MIN },
    { "{\"a\":{\"bt\":1422748800000}}", "{\"a\":{\"bt\":1422748800000}}", INT64_MIN },
    { "{\"a\":[{\"b\":1}],\"bt\":999}", "{\"a\":[{\"b\":1}],\"bt\":60999}", INT64_MIN },
    { "{\"bt\":1.5e3,\"x\":7}", "{\"bt\":1.5e3,\"x\":7}", INT64_MIN },
    { "{\"bt\":null,\"x\":7}", "{\"bt\":null,\"x\":7}", INT64_MIN },
    { "[{\"bt\":7}]", "[{\"bt\":7}]", INT64_MIN },
    { "{\"bt\":9223372036854775807}", "{\"bt\":9223372036854775807}", INT64_MIN },
    /* the line's own time, as a whole value; not as a part, not when it is a small number */
    { "{\"ts\":1422748800000,\"y\":1422748800001}", "{\"ts\":1422748860000,\"y\":1422748800001}",
      E },
    { "{\"ts\":\"1422748800000\"}", "{\"ts\":\"1422748860000\"}", E },
    { "{\"ts\":14227488000000}", "{\"ts\":14227488000000}", E },
    { "{\"ts\":1422748800000.0}", "{\"ts\":1422748800000.0}", E },
    { "{\"1422748800000\":1}", "{\"1422748800000\":1}", E },
    { "{\"count\":12}", "{\"count\":12}", 12 },
    { "1422748800000,a,1422748800000", "1422748860000,a,1422748860000", E },
    { "x1422748800000,\"1422748800000\"", "x1422748800000,\"1422748860000\"", E },
    /* RFC 3339: form, zone and decimals stay */
    { "{\"t\":\"2013-01-13 23:59:30\"}", "{\"t\":\"2013-01-14 00:00:30\"}", INT64_MIN },
    { "{\"t\":\"2013-12-31T23:59:30Z\"}", "{\"t\":\"2014-01-01T00:00:30Z\"}", INT64_MIN },
    { "{\"t\":\"2012-02-28T23:59:30.25+05:45\"}", "{\"t\":\"2012-02-29T00:00:30.25+05:45\"}",
      INT64_MIN },
    { "{\"t\":\"2013-01-13T23:36:00.123456Z\"}", "{\"t\":\"2013-01-13T23:37:00.123456Z\"}",
      INT64_MIN },
    { "{\"t\":\"1969-12-31T23:59:30.500Z\"}", "{\"t\":\"1970-01-01T00:00:30.500Z\"}", INT64_MIN },
    { "{\"t\":\"9999-12-31T23:59:30Z\"}", "{\"t\":\"9999-12-31T23:59:59Z\"}", INT64_MIN },
    /* CSV knows no backslash; a comma or a time within quotes is text */
    { "\"C:\\\",2013-01-13 23:36:00", "\"C:\\\",2013-01-13 23:37:00", INT64_MIN },
    { "\"a\"\"b,2013-01-13 23:36:00\",1", "\"a\"\"b,2013-01-13 23:36:00\",1", INT64_MIN },
    { "\"\"\"a,b\",2013-01-13 23:36:00", "\"\"\"a,b\",2013-01-13 23:37:00", INT64_MIN },
    { "2013-01-13 23:36:00,1,\"2013-01-13T23:36:00Z\"",
      "2013-01-13 23:37:00,1,\"2013-01-13T23:37:00Z\"", INT64_MIN },
    { "{\"t\":\"2013-13-13 23:36:00\"}", "{\"t\":\"2013-13-13 23:36:00\"}", INT64_MIN },
    { "{\"t\":\"at 2013-01-13 23:36:00\"}", "{\"t\":\"at 2013-01-13 23:36:00\"}", INT64_MIN },
    { "{\"2013-01-13 23:36:00\":1}", "{\"2013-01-13 23:36:00\":1}", INT64_MIN },
    { "{\"t\":\"2013-01-13\\u002023:36:00\"}", "{\"t\":\"2013-01-13\\u002023:36:00\"}", INT64_MIN },
    /* broken or empty: never anything but the same bytes */
    { "", "", E },
    { "{", "{", E },
    { "{\"bt", "{\"bt", E },
    { "{\"bt\":", "{\"bt\":", E },
    { "{\"bt\":\"", "{\"bt\":\"", E },
    { "\"", "\"", E },
    { ",,\"\"\",", ",,\"\"\",", E },
    { "]]]}}}\\", "]]]}}}\\", E },
};
static void times_move_and_nothing_else(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        assert_string_equal(render(times[i].in, times[i].epoch, NULL, 60000, NULL), times[i].out);
        assert_string_equal(render(times[i].in, times[i].epoch, NULL, 0, NULL), times[i].in);
    }
}
static void a_shift_below_the_decimals_is_cut(void **state) {
    (void)state;
    assert_string_equal(render("2013-01-13 23:36:00", INT64_MIN, NULL, 999, NULL),
                        "2013-01-13 23:36:00");
    assert_string_equal(render("2013-01-13 23:36:00.0", INT64_MIN, NULL, 999, NULL),
                        "2013-01-13 23:36:00.9");
    assert_string_equal(render("2013-01-13 23:36:00.001", INT64_MIN, NULL, 999, NULL),
                        "2013-01-13 23:36:01.000");
}
static void ids_are_found_where_they_stand(void **state) {
    (void)state;
    static const struct {
        const char *field, *in, *out;
    } cases[] = {
        { "source",
          "{\"e\":[{\"u\":\"s\",\"n\":\"source\",\"sv\":\"ab\"},{\"n\":\"x\",\"v\":\"1\"}],\"bt\":"
          "1}",
          "{\"e\":[{\"u\":\"s\",\"n\":\"source\",\"sv\":\"NEW\"},{\"n\":\"x\",\"v\":\"1\"}],\"bt\":"
          "1}" },
        { "source", "{\"e\":[{\"sv\":\"ab\",\"n\":\"source\"}]}",
          "{\"e\":[{\"sv\":\"NEW\",\"n\":\"source\"}]}" },
        { "source", "{\"e\":[{\"v\":\"ab\",\"n\":\"sourc\"}]}",
          "{\"e\":[{\"v\":\"ab\",\"n\":\"sourc\"}]}" },
        { "source", "{\"e\":[{\"n\":\"source\"},{\"sv\":\"ab\"}]}",
          "{\"e\":[{\"n\":\"source\"},{\"sv\":\"ab\"}]}" },
        { "id", "{\"a\":{\"id\":\"no\"},\"id\":\"ab\",\"n\":\"id\"}",
          "{\"a\":{\"id\":\"no\"},\"id\":\"NEW\",\"n\":\"id\"}" },
        { "id", "{\"id\":\"a\\\"b\"}", "{\"id\":\"a\\\"b\"}" },
        { "id", "{\"id\":17}", "{\"id\":17}" },
        { "2", "1,ab,2", "1,NEW,2" },
        { "2", "1,\"ab\",2", "1,\"NEW\",2" },
        { "2", "1,,2", "1,,2" },
        { "9", "1,ab,2", "1,ab,2" },
        { "x", "1,ab,2", "1,ab,2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(render(cases[i].in, INT64_MIN, cases[i].field, 0, "NEW"), cases[i].out);
    assert_string_equal(render_csv("1,1;ab;2", ';', INT64_MIN, "2", 0, "NEW"), "1,1;NEW;2");
    assert_string_equal(render_csv("[1,ab,2", ',', INT64_MIN, "2", 0, "NEW"), "[1,NEW,2");
}
/* Property: random records built from parts whose moved form is known. */
static void random_records_match_the_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed(20130113);
    for (int round = 0, n = test_scale(20000); round < n; round++) {
        uint64_t s = seed + (uint64_t)round;
        char in[ROOM] = "{", out[ROOM] = "{";
        size_t a = 1, b = 1;
        int64_t shift = (int64_t)(test_random(&s) % 100000000000);
        int fields = (int)(test_random(&s) % 20), bt = (int)(test_random(&s) % 20);
        for (int f = 0; f < fields; f++) {
            char was[64], is[64];
            int64_t t = (int64_t)(test_random(&s) % 4000000000000);
            const char *key = f == bt ? "bt" : "k";
            if (f == bt) {
                snprintf(was, sizeof was, "%lld", (long long)t);
                snprintf(is, sizeof is, "%lld", (long long)(t + shift));
            } else if (test_random(&s) % 2) {
                char text[NUM_TIME_MAX_LEN];
                t -= t % 1000;
                int64_t m = t + shift - (t + shift) % 1000;
                snprintf(was, sizeof was, "\"%.*s\"", time_write(text, t), text);
                snprintf(is, sizeof is, "\"%.*s\"", time_write(text, m), text);
            } else {
                snprintf(was, sizeof was, "[{\"bt\":%lld},\"bt\\\\\"]", (long long)t);
                memcpy(is, was, sizeof was);
            }
            a += (size_t)snprintf(in + a, sizeof in - a, "%s\"%s\":%s", f ? "," : "", key, was);
            b += (size_t)snprintf(out + b, sizeof out - b, "%s\"%s\":%s", f ? "," : "", key, is);
        }
        in[a] = out[b] = '}';
        const char *got = render(in, INT64_MIN, NULL, shift, NULL);
        if (strcmp(got, out) != 0)
            fail_msg("seed %llu round %d shift %lld\n%s\n%s\n%s", (unsigned long long)seed, round,
                     (long long)shift, in, out, got);
    }
}
/* Any bytes: no fault (sanitizers), and a shift of nothing changes nothing. */
static void random_bytes_stay(void **state) {
    (void)state;
    static const char alphabet[] = "{}[]\":,\\ 0123456789-Tbtnvsi.Z\xff";
    uint64_t s = test_seed(7);
    for (int round = 0, n = test_scale(50000); round < n; round++) {
        char in[200];
        size_t len = test_random(&s) % (sizeof in - 1);
        for (size_t i = 0; i < len; i++)
            in[i] = alphabet[test_random(&s) % (sizeof alphabet - 1)];
        in[len] = 0;
        assert_string_equal(render(in, 123456789012, "i", 0, NULL), in);
        render(in, 123456789012, "i", 12345, "longer-id");
    }
}
static void more_times_than_the_limit(void **state) {
    (void)state;
    enum { N = TEMPLATE_HOLES_MAX + 10 };
    char in[N * 21 + 1] = "";
    for (int i = 0; i < N; i++)
        memcpy(in + i * 20, "2013-01-13 23:36:00,", 21);
    static struct hole holes[TEMPLATE_HOLES_MAX];
    struct template t;
    template_find(&t, in, (uint32_t)strlen(in), 0, INT64_MIN, NULL, holes);
    assert_int_equal(t.n, TEMPLATE_HOLES_MAX);
    char *out = malloc(template_room(&t, 0) + 1);
    uint32_t len = template_render(&t, 1000, NULL, 0, out);
    assert_int_equal(len, strlen(in));
    assert_memory_equal(out + (TEMPLATE_HOLES_MAX - 1) * 20, "2013-01-13 23:36:01,", 20);
    assert_memory_equal(out + TEMPLATE_HOLES_MAX * 20, "2013-01-13 23:36:00,", 20);
    free(out);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_move_and_nothing_else),
        cmocka_unit_test(a_shift_below_the_decimals_is_cut),
        cmocka_unit_test(ids_are_found_where_they_stand),
        cmocka_unit_test(random_records_match_the_oracle),
        cmocka_unit_test(random_bytes_stay),
        cmocka_unit_test(more_times_than_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
