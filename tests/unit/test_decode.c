/* Records to columns: Jansson is the oracle on real data; prediction must never change a result. */
#include "engine/decode.h"
#include "engine/json.h"
#include "engine/num.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed, rnd;

/* ---- one record, decoded ---- */

/* Hexadecimal, so exact; with a point also under a locale that has a comma. */
static void add_exact(struct sbuf *out, double v) {
    char text[40];
    snprintf(text, sizeof text, "%a", v);
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
    sbuf_adds(out, text);
}
/* Its cells as text, or its error: what two ways of decoding must agree on to the byte. */
static void show(struct decoder *d, enum decode_format f, const struct schema *s, const char *text,
                 uint32_t len, struct sbuf *out) {
    struct arena a = { 0 };
    struct decode_rows o;
    struct decode_error e;
    /* A copy of the exact size, so that a sanitizer sees reads beyond it. */
    char *exact = malloc(len + !len);
    assert_non_null(exact);
    memcpy(exact, text, len);
    decode_rows_begin(&o, &a, s, 3, f == DECODE_SENML);
    int rc = decode_record(d, exact, len, &o, 1, &e);
    if (rc < 0) {
        sbuf_printf(out, "%s @%u %s", e.code, e.off, e.text);
    } else if (rc == DECODE_SKIP) {
        sbuf_adds(out, "skip");
    } else {
        const struct column *c = decode_rows_end(&o);
        sbuf_printf(out, "t=%" PRId64, o.time ? o.time[1] : 0);
        for (int i = 0; i < s->n; i++) {
            sbuf_printf(out, " %s=", s->f[i].name);
            if (column_null(&c[i], 1))
                sbuf_adds(out, "null");
            else if (s->f[i].type == TYPE_F64)
                add_exact(out, c[i].f64[1]);
            else if (s->f[i].type == TYPE_I64)
                sbuf_printf(out, "%" PRId64, c[i].i64[1]);
            else if (s->f[i].type == TYPE_BOOL)
                sbuf_adds(out, c[i].b[1] ? "true" : "false");
            else
                sbuf_json_str(out, c[i].str[1].p, c[i].str[1].len);
        }
    }
    assert_false(rc == 0 && column_null(&decode_rows_end(&o)[0], 0)); /* other rows untouched */
    free(exact);
    arena_free(&a);
}
static char *decoded(enum decode_format f, const char *schema, const struct decode_csv *csv,
                     const char *text) {
    struct arena a = { 0 };
    const struct schema *s = optest_parse_schema(&a, schema);
    struct decoder *d = decoder_new(f, s, csv);
    struct sbuf b = { 0 }, again = { 0 };
    show(d, f, s, text, (uint32_t)strlen(text), &b);
    for (int i = 0; i < 3; i++) { /* by prediction now, if it succeeded */
        again.len = 0;
        show(d, f, s, text, (uint32_t)strlen(text), &again);
        assert_string_equal(sbuf_str(&again), sbuf_str(&b));
    }
    sbuf_free(&again);
    decoder_free(d);
    arena_free(&a);
    return (char *)(uintptr_t)sbuf_str(&b);
}
static void expect(enum decode_format f, const char *schema, const struct decode_csv *csv,
                   const char *text, const char *want) {
    char *have = decoded(f, schema, csv, text);
    if (strcmp(have, want) != 0)
        fail_msg("%s\n gives  %s\n wanted %s", text, have, want);
    free(have);
}

/* ---- the data sets ---- */

struct data {
    char *text;
    struct span *rec;
    int n;
};
static struct data load(const char *set) {
    char path[128];
    struct data d = { 0 };
    size_t cap = 4 << 20;
    snprintf(path, sizeof path, "dataflows/riotbench/data/%s_sample_data_senml.csv", set);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    d.text = malloc(cap);
    d.rec = calloc(2000, sizeof *d.rec);
    assert_true(d.text && d.rec);
    size_t len = fread(d.text, 1, cap, f);
    fclose(f);
    for (char *p = d.text, *end = p + len; p < end;) {
        char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        char *comma = memchr(p, ',', (size_t)(stop - p));
        if (comma)
            d.rec[d.n++] = (struct span){ .p = comma + 1, .len = (uint32_t)(stop - comma - 1) };
        p = stop + 1;
    }
    return d;
}
static void unload(struct data *d) {
    free(d->text);
    free(d->rec);
}
static const char *const sets[] = { "SYS", "TAXI", "FIT" };
static const char *const set_schema[] = {
    "timestamp:i64 source:string longitude:f64 latitude:f64 temperature:f64 humidity:f64 "
    "light:f64 dust:f64 airquality_raw:i64",
    "taxi_identifier:string hack_license:string pickup_datetime:string timestamp:string "
    "trip_time_in_secs:i64 trip_distance:f64 pickup_longitude:string pickup_latitude:f64 "
    "dropoff_longitude:string dropoff_latitude:string payment_type:string fare_amount:f64 "
    "surcharge:f64 mta_tax:f64 tip_amount:f64 tolls_amount:f64 total_amount:f64 missing:f64",
    "subjectId:string timestamp:f64 acc_chest_x:f64 acc_chest_y:f64 acc_chest_z:f64 "
    "ecg_lead_1:f64 ecg_lead_2:f64 acc_ankle_x:f64 acc_arm_z:string label:i64",
};

/* What the record says, by Jansson. */
static void oracle(const struct schema *s, const struct span *rec, struct sbuf *out) {
    json_error_t je;
    json_t *j = json_loadb(rec->p, rec->len, 0, &je), *e, *bt = json_object_get(j, "bt");
    assert_non_null(j);
    int64_t ms =
        json_is_string(bt) ? strtoll(json_string_value(bt), NULL, 10) : json_integer_value(bt);
    sbuf_printf(out, "t=%" PRId64, ms);
    for (int i = 0; i < s->n; i++) {
        const char *v = NULL;
        char time[32];
        size_t k;
        json_array_foreach(json_object_get(j, "e"), k, e) {
            if (strcmp(json_string_value(json_object_get(e, "n")), s->f[i].name) == 0)
                v = json_string_value(json_object_get(e, json_object_get(e, "v") ? "v" : "sv"));
        }
        if (strcmp(s->f[i].name, "timestamp") == 0) {
            snprintf(time, sizeof time, "%" PRId64, ms);
            v = time;
        }
        sbuf_printf(out, " %s=", s->f[i].name);
        double d;
        if (!v)
            sbuf_adds(out, "null");
        else if (s->f[i].type == TYPE_STR)
            sbuf_json_str(out, v, strlen(v));
        else if (s->f[i].type == TYPE_I64)
            sbuf_adds(out, v);
        else if (num_f64_whole(v, v + strlen(v), &d) == 0) /* checked by test_num */
            add_exact(out, d);
    }
    json_decref(j);
}
static void real_data(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct data d = load(sets[k]);
        struct arena a = { 0 };
        const struct schema *s = optest_parse_schema(&a, set_schema[k]);
        struct decoder *fast = decoder_new(DECODE_SENML, s, NULL);
        struct decoder *strict = decoder_new(DECODE_SENML, s, NULL);
        struct sbuf x = { 0 }, y = { 0 }, z = { 0 };
        decoder_strict(strict, true);
        assert_true(d.n >= 45);
        for (int i = 0; i < d.n; i++) {
            x.len = y.len = z.len = 0;
            show(fast, DECODE_SENML, s, d.rec[i].p, d.rec[i].len, &x);
            show(strict, DECODE_SENML, s, d.rec[i].p, d.rec[i].len, &y);
            oracle(s, &d.rec[i], &z);
            assert_string_equal(sbuf_str(&x), sbuf_str(&z));
            assert_string_equal(sbuf_str(&y), sbuf_str(&z));
        }
        assert_int_equal(decoder_hits(fast), d.n - 1); /* the first one teaches the shape */
        assert_int_equal(decoder_hits(strict), 0);
        sbuf_free(&x);
        sbuf_free(&y);
        sbuf_free(&z);
        decoder_free(fast);
        decoder_free(strict);
        arena_free(&a);
        unload(&d);
    }
}

/* ---- prediction = strict reading, on mutated records ---- */

static uint32_t mutate(char *m, uint32_t len, uint32_t cap) {
    static const char bytes[] = "{}[]\",:\\u0123456789eE+-.tfn \t\n\x01\x7f\x80\xc3\xa4\xed\xff/"
                                "nvsb";
    static const char *const bits[] = { "null",
                                        "true",
                                        "false",
                                        "\"v\":1,",
                                        "\"v\":null,",
                                        "\\u00e4",
                                        "\xc3\xa4",
                                        "1e5",
                                        "0",
                                        "00",
                                        ".5",
                                        "-",
                                        "12345678901234567890",
                                        "\"n\":\"light\",",
                                        "{},",
                                        "\"sv\":\"x\",",
                                        "\"bn\":\"x\",",
                                        "\"bt\":1,",
                                        "0.1",
                                        "99999999999999999",
                                        " ",
                                        "\\\"",
                                        "9223372036854775808" };
    for (int k = (int)(test_random(&rnd) % 3); k >= 0; k--) {
        uint32_t at = len ? (uint32_t)(test_random(&rnd) % len) : 0, n, cut;
        const char *b;
        switch (test_random(&rnd) % 6) {
        case 0:
            if (len)
                m[at] = bytes[test_random(&rnd) % (sizeof bytes - 1)];
            break;
        case 1:
            n = 1 + (uint32_t)(test_random(&rnd) % 4);
            cut = n < len - at ? n : len - at;
            memmove(m + at, m + at + cut, len - at - cut);
            len -= cut;
            break;
        case 2:
            if (test_random(&rnd) % 8 == 0)
                len = at;
            break;
        default:
            /* Mostly where values are: behind a quote or a colon. */
            while (at > 0 && m[at - 1] != '"' && m[at - 1] != ':' && test_random(&rnd) % 16)
                at--;
            b = bits[test_random(&rnd) % (sizeof bits / sizeof *bits)];
            n = (uint32_t)strlen(b);
            if (len + n > cap)
                break;
            memmove(m + at + n, m + at, len - at);
            memcpy(m + at, b, n);
            len += n;
        }
    }
    return len;
}
/* Through one decoder with prediction (which learns what comes) and one without. */
static void same_as_strict(enum decode_format f, const struct schema *s, const struct data *d,
                           int rounds) {
    struct decoder *fast = decoder_new(f, s, NULL), *strict = decoder_new(f, s, NULL);
    struct sbuf x = { 0 }, y = { 0 };
    int good = 0;
    decoder_strict(strict, true);
    for (int i = 0; i < rounds; i++) {
        char m[4096];
        struct span r = d->rec[test_random(&rnd) % (uint64_t)d->n];
        uint32_t len = r.len;
        if (len > 3000)
            continue;
        memcpy(m, r.p, len);
        if (test_random(&rnd) % 3)
            len = mutate(m, len, sizeof m);
        x.len = y.len = 0;
        show(fast, f, s, m, len, &x);
        show(strict, f, s, m, len, &y);
        if (strcmp(sbuf_str(&x), sbuf_str(&y)) != 0)
            fail_msg("seed %" PRIu64 ": %.*s\npredicted %s\nstrict    %s", seed, (int)len, m, x.p,
                     y.p);
        good += strncmp(x.p, "t=", 2) == 0;
    }
    assert_true(good > rounds / 4 && good < rounds); /* both outcomes occur */
    assert_true(decoder_hits(fast) > (uint64_t)rounds / 8);
    sbuf_free(&x);
    sbuf_free(&y);
    decoder_free(fast);
    decoder_free(strict);
}
static void prediction_is_strict(void **state) {
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct data d = load(sets[k]);
        struct arena a = { 0 };
        same_as_strict(DECODE_SENML, optest_parse_schema(&a, set_schema[k]), &d, test_scale(60000));
        arena_free(&a);
        unload(&d);
    }
}
static void json_prediction_is_strict(void **state) {
    (void)state;
    static const char *const recs[] = {
        "{\"a\":1.5,\"b\":\"x y\",\"c\":true,\"d\":12,\"o\":{\"k\":7,\"z\":[1]}}",
        "{\"a\":-0.25,\"b\":\"\xc3\xa4\",\"c\":false,\"d\":-9223372036854775808,\"o\":{}}",
        "{\"a\":3,\"b\":\"\",\"c\":null,\"d\":0,\"n\":{\"v\":\"q\"},\"o\":{\"k\":0}}",
        "{ \"d\": 5, \"a\": 1e3, \"x\": [1, {\"a\": 2}], \"b\": \"long text of some bytes\" }",
        "{\"c\":\"true\",\"d\":\"17\",\"a\":\"2.5\",\"b\":12.50}",
    };
    struct data d = { .n = 5 };
    struct span spans[5];
    for (int i = 0; i < 5; i++)
        spans[i] = (struct span){ .p = recs[i], .len = (uint32_t)strlen(recs[i]) };
    d.rec = spans;
    struct arena a = { 0 };
    same_as_strict(DECODE_JSON, optest_parse_schema(&a, "a:f64 b:string c:bool d:i64 o.k:i64"), &d,
                   test_scale(100000));
    arena_free(&a);
}

/* ---- rules, one by one ---- */

static void senml_rules(void **state) {
    (void)state;
    static const char s[] = "timestamp:i64 a:f64 b:i64 c:string d:bool";
    static const char *const cases[][2] = {
        { "{\"e\":[],\"bt\":5}", "t=5 timestamp=5 a=null b=null c=null d=null" },
        { "{\"bt\":\"-5\",\"e\":[{\"v\":\"1.5\",\"n\":\"a\"},{\"n\":\"b\",\"v\":7},{\"sv\":\"x\","
          "\"n\":\"c\"},{\"vb\":true,\"n\":\"d\"}]}",
          "t=-5 timestamp=-5 a=0x1.8p+0 b=7 c=\"x\" d=true" },
        { " { \"e\" : [ { \"n\" : \"a\" , \"v\" : 1e3 } ] } ",
          "t=-9223372036854775808 timestamp=null a=0x1.f4p+9 b=null c=null d=null" },
        { "{\"e\":[{\"n\":\"c\",\"v\":29.00}],\"bt\":1}",
          "t=1 timestamp=1 a=null b=null c=\"29.00\" d=null" },
        { "{\"e\":[{\"n\":\"\\u0063\",\"sv\":\"\\u00e4\\n\"}],\"bt\":1}",
          "t=1 timestamp=1 a=null b=null c=\"\xc3\xa4\\n\" d=null" },
        { "{\"e\":[{\"n\":\"zz\",\"v\":\"x\"},{\"n\":\"a\"},{\"n\":\"b\",\"v\":null}],\"bt\":1}",
          "t=1 timestamp=1 a=null b=null c=null d=null" },
        { "{\"e\":[{\"v\":\"2\",\"sv\":\"ignored\",\"n\":\"a\",\"t\":0}],\"bt\":1,\"ver\":[1]}",
          "t=1 timestamp=1 a=0x1p+1 b=null c=null d=null" },
        /* GRID: numbers as numbers, bt in front */
        { "{\"bt\":1260748800000,\"e\":[{\"n\":\"c\",\"u\":\"string\",\"sv\":\"1001\"},{\"n\":"
          "\"a\","
          "\"u\":\"kWh\",\"v\":0.362}]}",
          "t=1260748800000 timestamp=1260748800000 a=0x1.72b020c49ba5ep-2 b=null c=\"1001\" "
          "d=null" },
        /* base names: missing n, RFC 8428 concatenation, RIoTBench's n alone; bn may come last */
        { "{\"bn\":\"a\",\"e\":[{\"v\":\"2\"}],\"bt\":1}",
          "t=1 timestamp=1 a=0x1p+1 b=null c=null d=null" },
        { "{\"bn\":\"x\",\"e\":[{\"v\":\"2\",\"n\":\"a\"}],\"bt\":1}",
          "t=1 timestamp=1 a=0x1p+1 b=null c=null d=null" },
        { "{\"e\":[{\"v\":\"2\",\"n\":\"stamp\"}],\"bt\":1,\"bn\":\"time\"}",
          "t=1 timestamp=2 a=null b=null c=null d=null" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"12x\"}],\"bt\":1}",
          "bad_value @20 field 'a': string \"12x\" is not a number (byte 20)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"\"}],\"bt\":1}",
          "bad_value @20 field 'a': string \"\" is not a number (byte 20)" },
        { "{\"e\":[{\"n\":\"b\",\"v\":1.5}],\"bt\":1}",
          "bad_value @19 field 'b': number \"1.5\" is not an integer (byte 19)" },
        { "{\"e\":[{\"n\":\"b\",\"v\":9223372036854775808}],\"bt\":1}",
          "bad_value @19 field 'b': number \"9223372036854775808\" is not an integer (byte 19)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"NaN\"}],\"bt\":1}",
          "bad_value @20 field 'a': string \"NaN\" is not a number (byte 20)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"1\"},{\"n\":\"a\",\"v\":\"2\"}],\"bt\":1}",
          "duplicate_field @24 field 'a': appears twice in the record (byte 24)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"1\",\"v\":\"2\"}],\"bt\":1}",
          "bad_record @23 key \"v\" appears twice (byte 23)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"1\"}],\"bt\":1.5}",
          "bad_value @30 \"bt\" is not a time in ms (byte 30)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":\"1\"}],\"bt\":9223372036854775807}",
          "bad_value @30 \"bt\" is not a time in ms (byte 30)" },
        { "{\"e\":[{\"n\":1,\"v\":\"1\"}]}", "bad_record @11 \"n\" must be a string (byte 11)" },
        { "{\"e\":{}}", "bad_record @5 \"e\" must be an array (byte 5)" },
        { "{\"e\":[1]}", "bad_record @6 an entry of \"e\" must be an object (byte 6)" },
        { "{\"bt\":1}", "bad_record @8 no \"e\" in the record (byte 8)" },
        { "[]", "bad_record @0 a SenML record is an object with an array \"e\": the array form of "
                "RFC 8428 is not supported (byte 0)" },
        { "5", "bad_record @0 a SenML record is an object with an array \"e\" (byte 0)" },
        /* what would change a cell and is not read; of other fields it does not matter */
        { "{\"e\":[{\"n\":\"a\",\"v\":\"1\",\"t\":-3}],\"bt\":1}",
          "bad_record @6 field 'a': a time of its own (\"t\") is not supported: the record is one "
          "row, at \"bt\" (byte 6)" },
        { "{\"e\":[{\"t\":\"0\",\"n\":\"a\",\"v\":1},{\"n\":\"zz\",\"v\":2,\"t\":9},{\"n\":\"zz\","
          "\"vd\":\"\"}],\"bt\":1,\"bv\":0,\"bs\":null}",
          "t=1 timestamp=1 a=0x1p+0 b=null c=null d=null" },
        { "{\"e\":[{\"n\":\"a\",\"v\":1,\"s\":7}],\"bt\":1}",
          "t=1 timestamp=1 a=0x1p+0 b=null c=null d=null" },
        { "{\"e\":[{\"n\":\"a\",\"s\":7}],\"bt\":1}",
          "bad_record @6 field 'a': its value is in \"s\", which is not supported: use \"v\", "
          "\"sv\" or \"vb\" (byte 6)" },
        { "{\"e\":[{\"vd\":\"AA\",\"n\":\"c\"}]}",
          "bad_record @6 field 'c': its value is in \"vd\", which is not supported: use \"v\", "
          "\"sv\" or \"vb\" (byte 6)" },
        { "{\"bv\":2,\"e\":[]}",
          "bad_record @6 a base value (\"bv\", \"bs\") is not supported (byte 6)" },
        { "{\"e\":[{\"n\":\"a\",\"v\":[1]}]}",
          "bad_record @19 \"v\" must be a string, number or boolean (byte 19)" },
        { "", "bad_json @0 the text ends where a value should be (byte 0)" },
        { "{\"e\":[", "bad_json @6 the text ends where a value should be (byte 6)" },
        { "{\"e\":[]}x", "bad_json @8 expected the end of the text, found 'x' (byte 8)" },
        { "{\"e\":[{\"n\":\"c\",\"sv\":\"\xff\"}]}", "bad_json @20 invalid UTF-8 in a string (byte "
                                                     "20)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(DECODE_SENML, s, NULL, cases[i][0], cases[i][1]);
}
static void json_rules(void **state) {
    (void)state;
    static const char s[] = "a:f64 b.c:i64 b.d.e:string f:bool";
    static const char *const cases[][2] = {
        { "{}", "a=null b.c=null b.d.e=null f=null" },
        { "{\"b\":{\"d\":{\"e\":\"x\",\"y\":1},\"c\":3},\"a\":0.5,\"f\":false}",
          "a=0x1p-1 b.c=3 b.d.e=\"x\" f=false" },
        { "{\"b.c\":4,\"z\":[{\"a\":1}],\"b\":7}", "a=null b.c=4 b.d.e=null f=null" },
        { "{\"a\":[1]}", "bad_value @5 field 'a': an array is not a single value (byte 5)" },
        { "{\"a\":true}", "bad_value @5 field 'a': boolean \"true\" is not a number (byte 5)" },
        { "{\"a\":1,\"a\":2}", "duplicate_field @11 field 'a': appears twice in the record (byte "
                               "11)" },
        { "[1]", "bad_record @0 a record must be a JSON object (byte 0)" },
        { "{\"a\":1", "bad_json @6 the text ends where ',' or '}' should be (byte 6)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *have = decoded(DECODE_JSON, s, NULL, cases[i][0]), *p = have;
        if (strncmp(p, "t=", 2) == 0)
            p = strchr(p, ' ') + 1; /* JSON records have no time of their own */
        if (strcmp(p, cases[i][1]) != 0)
            fail_msg("%s\n gives  %s\n wanted %s", cases[i][0], p, cases[i][1]);
        free(have);
    }
}
static void csv_rules(void **state) {
    (void)state;
    static const char s[] = "a:f64 b:i64 c:string";
    static const char *const names[] = { "c", "x", "a" };
    static const struct strs columns = { 3, names };
    const struct decode_csv plain = { 0 }, semi = { .delimiter = ';' },
                            named = { .columns = &columns, .header = true };
    static const struct {
        int how;
        const char *text, *want;
    } cases[] = {
        { 0, "1.5,7,x", "a=0x1.8p+0 b=7 c=\"x\"" },
        { 0, "1.5,7,x\r\n", "a=0x1.8p+0 b=7 c=\"x\"" },
        { 0, ",,", "a=null b=null c=null" },
        { 0, "\"2\",\"3\",\"\"", "a=0x1p+1 b=3 c=\"\"" },
        { 0, ".5,+3,\"a\"\"b,\nc\"", "a=0x1p-1 b=3 c=\"a\\\"b,\\nc\"" },
        { 0, "1e3,1, x ", "a=0x1.f4p+9 b=1 c=\" x \"" },
        { 0, "-122.40326249999998,1,\xc3\xa4", "a=-0x1.e99cf0d844dp+6 b=1 c=\"\xc3\xa4\"" },
        { 0, "1,2", "bad_csv @3 2 cells, 3 columns are expected (byte 3)" },
        { 0, "1,2,3,4", "bad_csv @5 4 cells, 3 columns are expected (byte 5)" },
        { 0, "1,x,3", "bad_value @2 field 'b': string \"x\" is not an integer (byte 2)" },
        { 0, "1,2,\"x", "bad_csv @4 quote is not closed (byte 4)" },
        { 0, "1,2,\"x\"y", "bad_csv @7 text after a closing quote (byte 7)" },
        { 0, "1,2,x\"", "bad_csv @5 quote inside a cell that does not begin with one (byte 5)" },
        { 0, "1,2,x\ny", "bad_csv @5 line break outside quotes (byte 5)" },
        { 0, "1,2,\xff", "bad_csv @0 invalid UTF-8 (byte 0)" },
        { 0,
          "\xef\xbb\xbf"
          "1,2,3",
          "bad_csv @0 begins with a byte order mark (byte 0)" },
        { 0, "1,2,\xef\xbb\xbf", "a=0x1p+0 b=2 c=\"\xef\xbb\xbf\"" },
        { 2,
          "\xef\xbb\xbf"
          "c,x,a",
          "bad_csv @0 begins with a byte order mark (byte 0)" },
        { 0, "", "bad_csv @0 1 cells, 3 columns are expected (byte 0)" },
        { 1, "1;2;a,b", "a=0x1p+0 b=2 c=\"a,b\"" },
        { 2, "c,x,a", "skip" },
        { 2, "q,anything,4", "a=0x1p+2 b=null c=\"q\"" },
        { 2, "c,x,\"a\"", "skip" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *have = decoded(DECODE_CSV, s,
                             cases[i].how == 0   ? &plain
                             : cases[i].how == 1 ? &semi
                                                 : &named,
                             cases[i].text),
             *p = have;
        if (strncmp(p, "t=", 2) == 0)
            p = strchr(p, ' ') + 1;
        if (strcmp(p, cases[i].want) != 0)
            fail_msg("%s\n gives  %s\n wanted %s", cases[i].text, p, cases[i].want);
        free(have);
    }
}
/* A record costs memory in proportion to its size, whatever is in it. */
static void memory_is_bounded(void **state) {
    (void)state;
    struct arena a = { 0 }, rows = { 0 };
    const struct schema *s = optest_parse_schema(&a, "a:f64 b:string");
    struct sbuf b = { 0 };
    for (int how = 0; how < 3; how++) {
        struct decoder *d = decoder_new(how ? DECODE_SENML : DECODE_CSV, s, NULL);
        struct decode_rows o;
        struct decode_error e;
        b.len = 0;
        if (how == 0) { /* too many cells, each with doubled quotes */
            sbuf_adds(&b, "1,");
            for (int i = 0; i < 20000; i++)
                sbuf_adds(&b, "\"\"\"\",");
        } else { /* a long or a short base name before many names */
            sbuf_adds(&b, "{\"bn\":\"");
            for (int i = 0; i < (how == 1 ? 100000 : 1); i++)
                sbuf_adds(&b, "x");
            sbuf_adds(&b, "\",\"e\":[");
            for (int i = 0; i < 2000; i++)
                sbuf_printf(&b, "%s{\"n\":\"z\",\"v\":1}", i ? "," : "");
            sbuf_adds(&b, "]}");
        }
        decode_rows_begin(&o, &rows, s, 1, true);
        int rc = decode_record(d, b.p, (uint32_t)b.len, &o, 0, &e);
        assert_int_equal(rc, how ? 0 : -1);
        assert_in_range(rows.reserved, 1, 16 * b.len + (1 << 20));
        arena_free(&rows);
        decoder_free(d);
    }
    sbuf_free(&b);
    arena_free(&a);
}
/* Records without a common shape are decoded, and do not make the decoder learn all the time. */
static void shapes_in_turn(void **state) {
    (void)state;
    struct arena a = { 0 };
    const struct schema *s = optest_parse_schema(&a, "a:f64 b:f64");
    struct decoder *d = decoder_new(DECODE_JSON, s, NULL);
    struct sbuf b = { 0 };
    static const char *const four[] = { "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}", "{\"a\":1}",
                                        "{\"b\":1}" };
    for (int i = 0; i < 400; i++) {
        b.len = 0;
        show(d, DECODE_JSON, s, four[i % 4], (uint32_t)strlen(four[i % 4]), &b);
    }
    assert_true(decoder_hits(d) > 300); /* all four are kept */
    decoder_free(d);
    sbuf_free(&b);
    arena_free(&a);
}

static int setup(void **state) {
    (void)state;
    seed = rnd = test_seed(3);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_data),
        cmocka_unit_test(prediction_is_strict),
        cmocka_unit_test(json_prediction_is_strict),
        cmocka_unit_test(senml_rules),
        cmocka_unit_test(json_rules),
        cmocka_unit_test(csv_rules),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(shapes_in_turn),
    };
    return cmocka_run_group_tests_name("decode", tests, setup, NULL);
}
