/* Rows to records: Jansson and our own strict decoders read back what was written. */
#include "engine/decode.h"
#include "engine/encode.h"
#include "engine/log.h"
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
static const struct field value_field = { .name = "value", .type = TYPE_BYTES };
static const struct schema value_schema = { .n = 1, .f = &value_field };

/* ---- random batches ---- */

static struct span random_text(struct arena *a) {
    static const char *const bits[] = { "a",
                                        "\xef\xbb\xbf",
                                        "bc d",
                                        "\"",
                                        "\\",
                                        ",",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "\x01",
                                        "\x1f",
                                        "\x7f",
                                        "\xc3\xa4",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80",
                                        "sixteen letters.",
                                        "/",
                                        ";" };
    char buf[400];
    uint32_t len = 0;
    for (int n = (int)(test_random(&rnd) % 12) * (int)(test_random(&rnd) % 3); n > 0; n--) {
        uint64_t r = test_random(&rnd);
        const char *b = bits[r % 3 ? r / 3 % 2 * 14 : r / 3 % 17];
        memcpy(buf + len, b, strlen(b));
        len += (uint32_t)strlen(b);
    }
    /* An allocation of its own size, so that a sanitizer sees reads beyond it. */
    char *p = malloc(len + !len);
    assert_non_null(p);
    memcpy(p, buf, len);
    struct span *keep = ARENA_NEW(a, struct span);
    *keep = (struct span){ .p = p, .len = len };
    return *keep;
}
static double random_f64(void) {
    uint64_t r = test_random(&rnd);
    double d;
    if (r % 3 == 0)
        return (double)((int64_t)(r >> 20) % 2000000) / 1000;
    if (r % 3 == 1)
        return (double)(int64_t)(r >> 40) - 5000;
    do {
        r = test_random(&rnd);
        memcpy(&d, &r, 8);
    } while (d - d != 0);
    return d;
}
/* Up to 40 physical rows of which a random part is selected, if `sel`. */
static struct batch *random_batch(struct arena *a, const struct schema *s, bool sel) {
    uint32_t rows = 1 + (uint32_t)(test_random(&rnd) % 40);
    struct column *c = arena_zalloc(a, sizeof *c * (size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        uint64_t *nulls = batch_nulls(a, rows);
        int64_t *num = ARENA_ARRAY(a, int64_t, rows);
        struct span *str = ARENA_ARRAY(a, struct span, rows);
        bool text = s->f[i].type == TYPE_STR || s->f[i].type == TYPE_BYTES;
        for (uint32_t r = 0; r < rows; r++) {
            double d = random_f64();
            if (test_random(&rnd) % 6 == 0)
                bit_set(nulls, r);
            if (text)
                str[r] = random_text(a);
            else if (s->f[i].type == TYPE_F64)
                memcpy(&num[r], &d, 8);
            else if (s->f[i].type == TYPE_I64)
                num[r] = (int64_t)test_random(&rnd) >> (test_random(&rnd) % 64);
            else
                ((uint8_t *)num)[r] = (uint8_t)(test_random(&rnd) & 1);
        }
        c[i].p = text ? (const void *)str : (const void *)num;
        c[i].nulls = test_random(&rnd) % 4 ? nulls : NULL;
    }
    struct batch *b = ARENA_NEW(a, struct batch);
    *b = (struct batch){ .schema = s, .cols = c, .rows = rows, .n = rows };
    if (sel) {
        uint16_t *v = ARENA_ARRAY(a, uint16_t, rows);
        b->n = 0;
        for (uint32_t r = 0; r < rows; r++)
            if (test_random(&rnd) & 1)
                v[b->n++] = (uint16_t)r;
        b->sel = v;
    }
    return b;
}
static void free_texts(const struct batch *b) {
    for (int i = 0; i < b->schema->n; i++)
        if (b->schema->f[i].type == TYPE_STR || b->schema->f[i].type == TYPE_BYTES)
            for (uint32_t r = 0; r < b->rows; r++)
                free((void *)(uintptr_t)b->cols[i].str[r].p);
}
/* All rows through one encoder; the batch must have taken all of them. */
static struct batch *encode_all(struct encoder *e, struct arena *a, const struct batch *b) {
    const char *code;
    uint32_t i = 0;
    struct batch *r = encode_next(e, a, b, &i, &value_schema, true, &code);
    if (b->n == 0) {
        assert_null(r);
        return NULL;
    }
    assert_non_null(r);
    assert_null(code);
    assert_int_equal(i, b->n);
    assert_true(r->encoded->sealed && r->encoded->n == b->n && r->n == b->n);
    return r;
}
static bool same_cell(const struct field *f, const struct column *x, uint32_t i,
                      const struct column *y, uint32_t j) {
    if (column_null(x, i) || column_null(y, j))
        return column_null(x, i) == column_null(y, j);
    switch (f->type) {
    case TYPE_BOOL:
        return x->b[i] == y->b[j];
    case TYPE_STR:
    case TYPE_BYTES:
        return x->str[i].len == y->str[j].len &&
               memcmp(x->str[i].p, y->str[j].p, x->str[i].len) == 0;
    default:
        return x->i64[i] == y->i64[j] || (f->type == TYPE_F64 && x->f64[i] == y->f64[j]);
    }
}

/* ---- written, then read by our decoders and by Jansson ---- */

static void jansson_agrees(const struct batch *b, uint32_t row, struct span rec) {
    json_error_t je;
    json_t *j = json_loadb(rec.p, rec.len, JSON_REJECT_DUPLICATES, &je);
    if (!j)
        fail_msg("seed %" PRIu64 ": %.*s: %s", seed, (int)rec.len, rec.p, je.text);
    assert_int_equal(json_object_size(j), b->schema->n);
    for (int i = 0; i < b->schema->n; i++) {
        const struct column *c = &b->cols[i];
        const json_t *v = json_object_get(j, b->schema->f[i].name);
        assert_non_null(v);
        if (column_null(c, row))
            assert_true(json_is_null(v));
        else if (b->schema->f[i].type == TYPE_F64)
            assert_true(json_is_number(v) && json_number_value(v) == c->f64[row]);
        else if (b->schema->f[i].type == TYPE_I64)
            assert_true(json_is_integer(v) && json_integer_value(v) == c->i64[row]);
        else if (b->schema->f[i].type == TYPE_BOOL)
            assert_true(json_is_boolean(v) && json_is_true(v) == c->b[row]);
        else
            assert_true(json_string_length(v) == c->str[row].len &&
                        memcmp(json_string_value(v), c->str[row].p, c->str[row].len) == 0);
    }
    json_decref(j);
}
static void round_trip(enum encode_format f, enum decode_format back, int rounds) {
    struct arena keep = { 0 }, a = { 0 };
    const struct schema *s = optest_parse_schema(
        &keep, "a:f64 s:string b:i64 t:bool \"q\xc3\xa4\\:string c:f64 timestamp:i64");
    struct encode_senml col[8];
    for (int i = 0; i < s->n; i++)
        col[i] = (struct encode_senml){ s->f[i].name, "m/s \"2\"", s->f[i].type == TYPE_STR };
    struct encoder *e = encoder_new(f, s, -1, col, s->n);
    struct decoder *d = decoder_new(back, s, NULL);
    for (int k = 0; k < rounds; k++) {
        struct batch *b = random_batch(&a, s, k & 1), *r = encode_all(e, &a, b);
        struct decode_rows o;
        struct decode_error err;
        decode_rows_begin(&o, &a, s, BATCH_ROWS, back == DECODE_SENML);
        for (uint32_t i = 0; i < b->n; i++) {
            uint32_t row = batch_row(b, i);
            assert_null(r->sel);
            struct span rec = r->cols[0].str[i];
            if (f == ENCODE_JSON)
                jansson_agrees(b, row, rec);
            /* SenML times lie within half of int64 */
            const struct column *time = &b->cols[s->n - 1];
            if (f == ENCODE_SENML && !column_null(time, row) &&
                (time->i64[row] < DECODE_TIME_MIN || time->i64[row] > DECODE_TIME_MAX))
                continue;
            if (decode_record(d, rec.p, rec.len, &o, i, &err) != 0)
                fail_msg("seed %" PRIu64 ": %.*s: %s", seed, (int)rec.len, rec.p, err.text);
            const struct column *c = decode_rows_end(&o);
            for (int x = 0; x < s->n; x++)
                if (!same_cell(&s->f[x], &b->cols[x], row, &c[x], i))
                    fail_msg("seed %" PRIu64 ": field %d of %.*s", seed, x, (int)rec.len, rec.p);
        }
        encoder_tick(e);
        free_texts(b);
        arena_reset(&a);
    }
    decoder_free(d);
    encoder_free(e);
    arena_free(&a);
    arena_free(&keep);
}
static void json_round_trip(void **state) {
    (void)state;
    round_trip(ENCODE_JSON, DECODE_JSON, test_scale(3000));
}
static void csv_round_trip(void **state) {
    (void)state;
    round_trip(ENCODE_CSV, DECODE_CSV, test_scale(3000));
}
static void senml_round_trip(void **state) {
    (void)state;
    round_trip(ENCODE_SENML, DECODE_SENML, test_scale(3000));
}

/* ---- exact bytes ---- */

static void exact_bytes(void **state) {
    (void)state;
    struct arena a = { 0 };
    const struct schema *s =
        optest_parse_schema(&a, "timestamp:i64 source:string temperature:f64 on:bool");
    int64_t t[] = { 1422748800000, 0 };
    struct span str[] = { { .p = "a\"b", .len = 3 }, { .p = "", .len = 0 } };
    double temp[] = { 8, -0.25 };
    uint8_t on[] = { 1, 0 };
    uint64_t null_time = 2, null_temp = 1;
    struct column c[] = { { .i64 = t, .nulls = &null_time },
                          { .str = str },
                          { .f64 = temp, .nulls = &null_temp },
                          { .b = on } };
    struct batch b = { .schema = s, .cols = c, .rows = 2, .n = 2 };
    struct encode_senml col[] = { { "timestamp", "second", true },
                                  { "source", "string", true },
                                  { "temperature", "far", false } };
    static const char *const want[][2] = {
        { "{\"timestamp\":1422748800000,\"source\":\"a\\\"b\",\"temperature\":null,\"on\":true}",
          "{\"timestamp\":null,\"source\":\"\",\"temperature\":-0.25,\"on\":false}" },
        { "1422748800000,\"a\"\"b\",,true", ",\"\",-0.25,false" },
        { "{\"e\":[{\"u\":\"string\",\"n\":\"source\",\"sv\":\"a\\\"b\"}],\"bt\":"
          "\"1422748800000\"}",
          "{\"e\":[{\"u\":\"string\",\"n\":\"source\",\"sv\":\"\"},{\"u\":\"far\",\"n\":"
          "\"temperature\",\"v\":\"-0.25\"}]}" },
        { "a\"b", "" },
    };
    for (int f = 0; f < 4; f++) {
        struct encoder *e = encoder_new((enum encode_format)f, s, -1, col, 3);
        struct batch *r = encode_all(e, &a, &b);
        for (int i = 0; i < 2; i++) {
            struct span rec = r->cols[0].str[i];
            if (rec.len != strlen(want[f][i]) || memcmp(rec.p, want[f][i], rec.len) != 0)
                fail_msg("format %d: %.*s\nwanted %s", f, (int)rec.len, rec.p, want[f][i]);
        }
        encoder_free(e);
    }
    /* SenML with nothing in it */
    struct encoder *e = encoder_new(ENCODE_SENML, s, -1, col + 2, 1);
    b.n = 1;
    struct batch *r = encode_all(e, &a, &b);
    assert_int_equal(r->cols[0].str[0].len, 8);
    assert_memory_equal(r->cols[0].str[0].p, "{\"e\":[]}", 8);
    encoder_free(e);
    arena_free(&a);
}

/* A text that begins with U+FEFF must not read back as a byte order mark. */
static void no_order_mark(void **state) {
    (void)state;
    struct arena a = { 0 };
    struct span text[] = { { .p = "\xef\xbb\xbf", .len = 3 }, { .p = "\xef\xbb\xbfy", .len = 4 } };
    struct column c[] = { { .str = text }, { .str = text } };
    const struct schema *s = optest_parse_schema(&a, "k:string l:string");
    struct batch b = { .schema = s, .cols = c, .rows = 2, .n = 2 };
    struct encoder *e = encoder_new(ENCODE_CSV, s, -1, NULL, 0);
    struct decoder *d = decoder_new(DECODE_CSV, s, NULL);
    struct batch *r = encode_all(e, &a, &b);
    for (uint32_t i = 0; i < 2; i++) {
        struct decode_rows rows;
        struct decode_error de;
        struct span rec = r->cols[0].str[i];
        decode_rows_begin(&rows, &a, s, 1, false);
        assert_int_equal(decode_record(d, rec.p, rec.len, &rows, 0, &de), 0);
        const struct column *back = decode_rows_end(&rows);
        assert_true(same_cell(&s->f[0], &c[0], i, &back[0], 0));
        assert_true(same_cell(&s->f[1], &c[1], i, &back[1], 0));
    }
    decoder_free(d);
    encoder_free(e);
    arena_free(&a);
}

/* ---- payloads ---- */

static void keys(void **state) {
    (void)state;
    struct arena a = { 0 };
    const struct schema *s = optest_parse_schema(&a, "k:string n:f64");
    struct span k[] = { { .p = "one", .len = 3 }, { .p = "", .len = 0 }, { .p = "x", .len = 1 } };
    double n[] = { 1.5, -2, 1e300 };
    uint64_t null = 4;
    struct column c[] = { { .str = k, .nulls = &null }, { .f64 = n } };
    struct batch b = { .schema = s, .cols = c, .rows = 3, .n = 3 };
    struct encoder *e = encoder_new(ENCODE_JSON, s, 0, NULL, 0);
    struct log_buf *buf = encode_all(e, &a, &b)->encoded;
    assert_int_equal(buf->key_end[0], 3);
    assert_int_equal(buf->key_end[1], 3);
    assert_int_equal(buf->key_end[2], 3 | LOG_NULL);
    encoder_free(e);
    e = encoder_new(ENCODE_JSON, s, 1, NULL, 0);
    buf = encode_all(e, &a, &b)->encoded;
    assert_int_equal(buf->key_end[2], 10);
    assert_memory_equal(buf->keys, "1.5-21e300", 10);
    encoder_free(e);
    arena_free(&a);
}
/* A payload ends behind LOG_BUF_BYTES; a row that cannot be written is named and skipped. */
static void cut_and_refuse(void **state) {
    (void)state;
    enum { ROWS = 600 };
    struct arena a = { 0 };
    const struct schema *s = optest_parse_schema(&a, "v:bytes");
    char *big = malloc(10000);
    assert_non_null(big);
    memset(big, 'x', 10000);
    struct span *v = ARENA_ARRAY(&a, struct span, ROWS);
    for (int i = 0; i < ROWS; i++)
        v[i] = i % 100 == 50 ? (struct span){ .p = "\xff", .len = 1 }
                             : (struct span){ .p = big, .len = 10000 - (uint32_t)i };
    struct column c = { .str = v };
    struct batch b = { .schema = s, .cols = &c, .rows = ROWS, .n = ROWS, .off0 = 7 };
    struct encoder *e = encoder_new(ENCODE_JSON, s, -1, NULL, 0);
    uint32_t got = 0, refused = 0, batches = 0;
    for (uint32_t i = 0; i < ROWS;) {
        const char *code;
        struct batch *r = encode_next(e, &a, &b, &i, &value_schema, true, &code);
        if (r) {
            for (uint32_t k = 0; k < r->n; k++) {
                uint32_t row = batch_row(r, k);
                int64_t at = batch_off(r, row) - 7;
                assert_int_equal(r->cols[0].str[row].len, 10000 - at + 8);
            }
            assert_true(r->encoded->values_len < LOG_BUF_BYTES + 10100);
            got += r->n;
            batches++;
        }
        if (code) {
            assert_string_equal(code, "bad_utf8");
            assert_int_equal(i % 100, 50);
            refused++;
            i++;
        }
    }
    assert_int_equal(refused, 6);
    assert_int_equal(got, ROWS - 6);
    assert_true(batches >= 6);
    encoder_free(e);
    free(big);
    arena_free(&a);
}
/* What csv_to_senml wrote goes to the log without a copy. */
static void raw_passes_on(void **state) {
    (void)state;
    struct arena a = { 0 };
    const struct schema *s = optest_parse_schema(&a, "temperature:f64");
    double t[] = { 1, 2 };
    struct column c = { .f64 = t };
    struct batch b = { .schema = s, .cols = &c, .rows = 2, .n = 2 };
    struct encode_senml col = { "temperature", "far", false };
    struct encoder *one = encoder_new(ENCODE_SENML, s, -1, &col, 1);
    struct encoder *two = encoder_new(ENCODE_RAW, &value_schema, -1, NULL, 0);
    const char *code;
    uint32_t i = 0;
    struct batch *x = encode_next(one, &a, &b, &i, &value_schema, false, &code);
    assert_false(x->encoded->sealed);
    struct batch *y = encode_all(two, &a, x);
    assert_ptr_equal(x->encoded, y->encoded);
    assert_true(y->encoded->sealed);
    /* a filter in between: other rows, so another payload */
    uint16_t sel[] = { 1 };
    struct batch *z = encode_all(two, &a, batch_select(&a, x, sel, 1));
    assert_ptr_not_equal(x->encoded, z->encoded);
    encoder_free(one);
    encoder_free(two);
    arena_free(&a);
}
static void schema_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
        int n;
    } cases[] = {
        { "a,b\nu,\nv,sv\n", NULL, 2 },   { "a\r\nu\r\nsv", NULL, 1 },
        { "a,b\nu,w\nv\n", "line 3", 0 }, { "a,b\nu\nv,v\n", "line 2", 0 },
        { "a\nu,w\nv\n", "line 2", 0 },   { "a\nu\nx\n", "not v or sv", 0 },
        { "a\nu\n", "three lines", 0 },   { "", "three lines", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = { 0 };
        struct err e = ERR_INIT;
        struct encode_senml *col;
        int n = 0;
        struct file f = { .name = "f", .data = cases[i].text, .len = strlen(cases[i].text) };
        int rc = encode_senml_columns(&f, &a, &col, &n, &e);
        assert_int_equal(rc, cases[i].word ? ERR_INPUT : 0);
        if (cases[i].word)
            assert_non_null(strstr(e.text, cases[i].word));
        else
            assert_int_equal(n, cases[i].n);
        arena_free(&a);
    }
}
static int setup(void **state) {
    (void)state;
    seed = rnd = test_seed(4);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_round_trip),  cmocka_unit_test(csv_round_trip),
        cmocka_unit_test(senml_round_trip), cmocka_unit_test(exact_bytes),
        cmocka_unit_test(no_order_mark),    cmocka_unit_test(keys),
        cmocka_unit_test(cut_and_refuse),   cmocka_unit_test(raw_passes_on),
        cmocka_unit_test(schema_files),
    };
    return cmocka_run_group_tests_name("encode", tests, setup, NULL);
}
