/* Records in and out: SenML against Jansson and simdjson, and what each way costs by itself. The
 * records are RIoTBench's samples, repeated with their times moved on: 2^15 of each, more than fit
 * into the second cache. Each comparison takes turns for BENCH_SECONDS (default 10) and compares
 * the best rounds; figures of ours alone are the best of 7. */
#include "cluster/dataset.h"
#include "engine/decode.h"
#include "engine/encode.h"
#include "engine/json.h"
#include "engine/num.h"
#include "tests/bench/bench.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct simd_row {
    int64_t bt;
    const char *source;
    size_t source_len;
    double value[7];
};
int simd_decode(const char *text, size_t len, size_t capacity, struct simd_row *row);

enum { RECORDS = 1 << 15, PADDING = 256, ROUNDS = 7 };
struct data {
    const char *name;
    char *text;
    struct span rec[RECORDS];
    uint32_t n;
    size_t bytes;
    struct arena arena;
    const struct schema *schema;
};

static void die(const char *what) {
    fprintf(stderr, "bench_codec: %s\n", what);
    exit(1);
}

static double seconds(void) {
    const char *env = getenv("BENCH_SECONDS");
    double s;
    return env && num_f64_whole(env, env + strlen(env), &s) == 0 ? s : 10;
}

/* ---- data ---- */

/* Takes the bytes over; record i ends at end[i]. */
static void take(struct data *d, struct sbuf *b, const size_t *end) {
    sbuf_reserve(b, PADDING);
    d->text = b->p;
    d->bytes = b->len;
    for (uint32_t i = 0; i < d->n; i++) {
        size_t at = i ? end[i - 1] : 0;
        d->rec[i] = (struct span){ .p = b->p + at, .len = (uint32_t)(end[i] - at) };
    }
}
static void load(struct data *d, const char *set) {
    struct dataset_conf conf = { .source = set, .loop = DATASET_ENDLESS };
    struct dataset *ds;
    struct dataset_record r;
    struct err e = ERR_INIT;
    struct sbuf b = { 0 };
    static size_t end[RECORDS];
    if (dataset_open(&ds, &conf, &e) < 0)
        die(e.text);
    d->name = set;
    for (; d->n < RECORDS; end[d->n++] = b.len) {
        if (dataset_next(ds, &r, &e) != 1)
            die(e.text);
        sbuf_add(&b, r.data, r.len);
    }
    dataset_close(ds);
    take(d, &b, end);
}
/* All fields of the first record: v -> f64, sv -> string, and the time. */
static void infer_schema(struct data *d) {
    json_error_t je;
    json_t *j = json_loadb(d->rec[0].p, d->rec[0].len, 0, &je), *e;
    struct field *f;
    size_t i;
    struct schema *s = schema_new(&d->arena, (int)json_array_size(json_object_get(j, "e")) + 1, &f);
    f[0] = (struct field){ .name = "timestamp", .type = TYPE_I64 };
    json_array_foreach(json_object_get(j, "e"), i, e) {
        f[i + 1].name = arena_strdup(&d->arena, json_string_value(json_object_get(e, "n")));
        f[i + 1].type = json_object_get(e, "v") ? TYPE_F64 : TYPE_STR;
    }
    json_decref(j);
    d->schema = s;
}
static uint64_t rnd = 88172645463325252u;
static uint32_t dice(uint32_t n) {
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (uint32_t)(rnd >> 32) % n;
}
static void spaces(struct sbuf *b) {
    if (dice(3) == 0)
        sbuf_add(b, " \n\t ", 1 + dice(3));
}
/* A string literal; one in four has a byte written as an escape. */
static void literal(struct sbuf *b, const char *s) {
    size_t len = strlen(s), at = len && dice(4) == 0 ? dice((uint32_t)len) : len;
    sbuf_add(b, "\"", 1);
    for (size_t i = 0; i < len; i++)
        if (i == at)
            sbuf_printf(b, "\\u%04x", (unsigned char)s[i]);
        else
            sbuf_add(b, s + i, 1);
    sbuf_add(b, "\"", 1);
}
/* Members in random order. */
static void shuffled_object(struct sbuf *b, json_t *obj) {
    const char *key[8];
    json_t *value[8], *v;
    const char *k;
    uint32_t n = 0;
    json_object_foreach(obj, k, v) {
        key[n] = k;
        value[n++] = v;
    }
    sbuf_add(b, "{", 1);
    for (bool first = true; n > 0; first = false) {
        uint32_t i = dice(n);
        spaces(b);
        if (!first)
            sbuf_add(b, ",", 1);
        spaces(b);
        literal(b, key[i]);
        spaces(b);
        sbuf_add(b, ":", 1);
        spaces(b);
        if (json_is_string(value[i])) {
            literal(b, json_string_value(value[i]));
        } else if (json_is_integer(value[i])) {
            sbuf_printf(b, "%lld", (long long)json_integer_value(value[i]));
        } else {
            size_t a;
            json_t *e;
            sbuf_add(b, "[", 1);
            json_array_foreach(value[i], a, e) {
                if (a)
                    sbuf_add(b, ",", 1);
                shuffled_object(b, e);
            }
            sbuf_add(b, "]", 1);
        }
        key[i] = key[--n];
        value[i] = value[n];
    }
    spaces(b);
    sbuf_add(b, "}", 1);
}
static void shuffle(const struct data *from, struct data *to) {
    struct sbuf b = { 0 };
    static size_t end[RECORDS];
    json_error_t je;
    *to = *from;
    for (uint32_t i = 0; i < from->n; i++) {
        json_t *j = json_loadb(from->rec[i].p, from->rec[i].len, 0, &je);
        shuffled_object(&b, j);
        json_decref(j);
        end[i] = b.len;
    }
    take(to, &b, end);
}

/* ---- what is measured; each returns ns a record ---- */

static double jansson_ns(const struct data *d) {
    double start = bench_thread_cpu();
    json_error_t je;
    for (uint32_t i = 0; i < d->n; i++) {
        json_t *j = json_loadb(d->rec[i].p, d->rec[i].len, 0, &je);
        if (!j)
            die(je.text);
        json_decref(j);
    }
    return (bench_thread_cpu() - start) / d->n * 1e9;
}
static double simdjson_ns(const struct data *d) {
    double start = bench_thread_cpu();
    struct simd_row row;
    for (uint32_t i = 0; i < d->n; i++) {
        if (simd_decode(d->rec[i].p, d->rec[i].len, d->rec[i].len + PADDING, &row) != 0)
            die("simdjson refuses a record");
        bench_use((uint64_t)row.bt);
    }
    return (bench_thread_cpu() - start) / d->n * 1e9;
}
/* In batches, as a tick does it. */
static double decode_ns(const struct data *d, struct decoder *dec, struct arena *tick) {
    struct decode_error e;
    double start = bench_thread_cpu();
    for (uint32_t at = 0; at < d->n; at += BATCH_ROWS) {
        struct decode_rows rows;
        decode_rows_begin(&rows, tick, d->schema, BATCH_ROWS, true);
        for (uint32_t i = 0; i < BATCH_ROWS; i++)
            if (decode_record(dec, d->rec[at + i].p, d->rec[at + i].len, &rows, i, &e) != 0)
                die(e.text);
        bench_use((uint64_t)(uintptr_t)decode_rows_end(&rows));
        arena_reset(tick);
    }
    return (bench_thread_cpu() - start) / d->n * 1e9;
}
static double smaller(double a, double b) {
    return a == 0 || b < a ? b : a;
}
static void against(const char *name, const char *who, double (*theirs_ns)(const struct data *),
                    const struct data *d, double bar) {
    struct decoder *dec = decoder_new(DECODE_SENML, d->schema, NULL);
    struct arena tick = { 0 };
    double ours = 0, theirs = 0, until = bench_now() + seconds();
    int rounds = 0;
    for (; rounds < ROUNDS || bench_now() < until; rounds++) {
        theirs = smaller(theirs, theirs_ns(d));
        ours = smaller(ours, decode_ns(d, dec, &tick));
    }
    printf("%s: %.0f ns a record, %s %.0f ns; best of %d rounds\n", name, ours, who, theirs,
           rounds);
    bench_figure(name, theirs / ours, "x", AT_LEAST, bar);
    decoder_free(dec);
    arena_free(&tick);
}
static void decode_figures(const struct data *d, double bar) {
    struct arena tick = { 0 };
    double hit = 0, strict = 0;
    char name[64];
    struct decoder *fast = decoder_new(DECODE_SENML, d->schema, NULL);
    struct decoder *slow = decoder_new(DECODE_SENML, d->schema, NULL);
    decoder_strict(slow, true);
    for (int r = 0; r < ROUNDS; r++) {
        hit = smaller(hit, decode_ns(d, fast, &tick));
        strict = smaller(strict, decode_ns(d, slow, &tick));
    }
    snprintf(name, sizeof name, "decode_%s_ns", d->name);
    bench_figure(name, hit, "ns/record", AT_MOST, bar);
    printf("decode %s: %.2f GB/s, strict reader %.0f ns a record\n", d->name,
           (double)d->bytes / d->n / hit, strict);
    decoder_free(fast);
    decoder_free(slow);
    arena_free(&tick);
}

/* ---- encoding ---- */

static double encode_ns(struct encoder *e, const struct batch *b, struct arena *tick) {
    static const struct field value = { .name = "value", .type = TYPE_BYTES };
    static const struct schema out = { .n = 1, .f = &value };
    int times = 10;
    double start = bench_thread_cpu();
    for (int k = 0; k < times; k++) {
        const char *code;
        for (uint32_t i = 0; i < b->n;) {
            struct batch *r = encode_next(e, tick, b, &i, &out, false, &code);
            if (!r)
                die("a row cannot be written");
            bench_use((uint64_t)(uintptr_t)r->encoded);
        }
        encoder_tick(e);
        arena_reset(tick);
    }
    return (bench_thread_cpu() - start) / b->n / times * 1e9;
}
/* SYS with two columns more, as ETL writes it after annotate: 11 fields. */
static void encode_figures(const struct data *d) {
    struct arena a = { 0 }, tick = { 0 };
    struct decode_rows rows;
    struct decode_error e;
    struct field *f;
    struct decoder *dec = decoder_new(DECODE_SENML, d->schema, NULL);
    decode_rows_begin(&rows, &a, d->schema, d->n, true);
    for (uint32_t i = 0; i < d->n; i++)
        if (decode_record(dec, d->rec[i].p, d->rec[i].len, &rows, i, &e) != 0)
            die(e.text);
    struct schema *s = schema_new(&a, d->schema->n + 2, &f);
    memcpy(f, d->schema->f, (size_t)d->schema->n * sizeof *f);
    f[d->schema->n] = (struct field){ .name = "location", .type = TYPE_STR };
    f[d->schema->n + 1] = (struct field){ .name = "type", .type = TYPE_STR };
    struct batch b = {
        .schema = d->schema, .cols = decode_rows_end(&rows), .rows = d->n, .n = d->n
    };
    struct column *cols = batch_cols(&a, &b, 2);
    struct span *extra = ARENA_ARRAY(&a, struct span, d->n);
    for (uint32_t i = 0; i < d->n; i++)
        extra[i] = (struct span){ .p = "Bangalore", .len = 9 };
    cols[d->schema->n].str = cols[d->schema->n + 1].str = extra;
    b.schema = s;
    b.cols = cols;
    struct encode_senml *col = ARENA_ARRAY(&a, struct encode_senml, s->n);
    for (int i = 0; i < s->n; i++)
        col[i] = (struct encode_senml){ s->f[i].name, "per", s->f[i].type == TYPE_STR };
    static const char *const names[] = { "encode_json_ns", "encode_csv_ns", "encode_senml_ns" };
    struct encoder *enc[3];
    double best[3] = { 0 };
    for (int k = 0; k < 3; k++)
        enc[k] = encoder_new((enum encode_format)k, s, -1, col, s->n);
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < 3; k++)
            best[k] = smaller(best[k], encode_ns(enc[k], &b, &tick));
    for (int k = 0; k < 3; k++) {
        bench_figure(names[k], best[k], "ns/record", AT_MOST, 0);
        encoder_free(enc[k]);
    }
    decoder_free(dec);
    arena_free(&a);
    arena_free(&tick);
}

int main(void) {
    static struct data sys, taxi, fit, shuffled;
    load(&sys, "sys");
    load(&taxi, "taxi");
    load(&fit, "fit");
    infer_schema(&sys);
    infer_schema(&taxi);
    infer_schema(&fit);
    shuffle(&sys, &shuffled);
    bench_calibrate();
    against("senml_vs_jansson", "Jansson", jansson_ns, &sys, 20);
    against("senml_shuffled_vs_jansson", "Jansson", jansson_ns, &shuffled, 4);
    against("senml_vs_simdjson", "simdjson", simdjson_ns, &sys, 1);
    decode_figures(&sys, 100);
    decode_figures(&taxi, 0);
    decode_figures(&fit, 0);
    encode_figures(&sys);
    free(sys.text);
    free(taxi.text);
    free(fit.text);
    free(shuffled.text);
    arena_free(&sys.arena);
    arena_free(&taxi.arena);
    arena_free(&fit.arena);
    return 0;
}
