/* The stages of sources and sinks: how faces become stages, decoding, event time, exploding and
 * encoding, each against a naive reference. */
#include "engine/num.h"
#include "operators/source.h"
#include "planner/spec.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed, rnd;

/* ---- faces to stages ---- */

static int schema_file(void *user, const char *name, struct file *f, struct err *e) {
    static const char text[] = "timestamp,source,temperature\nms,string,far\nsv,sv,v\n";
    (void)user;
    (void)e;
    *f = (struct file){ .name = name, .data = text, .len = sizeof text - 1 };
    memset(f->hash, 'a', 32);
    return 0;
}
static const struct spec_env env = { .file = schema_file };

/* "read{...} senml_decode{...} time{...}": the stages' types and canonical configs. */
static char *stages(const char *tasks) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct spec s;
    struct sbuf text = { 0 }, out = { 0 };
    sbuf_printf(&text, "{\"braid\":1,\"name\":\"t\",\"tasks\":[%s]}", tasks);
    if (!ops_count)
        free(optest_errors(&(struct optest){ .op = "time", .in = "a:i64" }));
    if (spec_parse(&s, NULL, sbuf_str(&text), text.len, &env, &a, &es, NULL) != 0) {
        for (int i = 0; i < es.n; i++)
            sbuf_printf(&out, "%s%s: %s", i ? "; " : "", es.v[i].pointer, es.v[i].text);
    } else {
        for (int i = 0; i < s.nstages; i++) {
            sbuf_printf(&out, "%s%s", i ? " " : "", s.stages[i].op->name);
            params_canonical(s.stages[i].op, s.stages[i].config, true, &out);
        }
    }
    sbuf_free(&text);
    errs_free(&es);
    arena_free(&a);
    return (char *)(uintptr_t)sbuf_str(&out);
}
#define SCHEMA "\"schema\":{\"timestamp\":\"i64\",\"a\":\"f64\"}"
#define OUT    ",{\"id\":\"o\",\"type\":\"sink\",\"inputs\":[\"p\"]}"
#define LONG   "12345678901234567890123456789012345678901234567890"
static void both_spellings_are_one(void **state) {
    (void)state;
    static const struct {
        const char *format, *config;
    } cases[] = {
        { "senml", SCHEMA },
        { "senml", SCHEMA ",\"lateness\":\"10s\",\"idle\":\"1m\",\"max_ahead\":\"2d\"" },
        { "senml", SCHEMA ",\"time\":{\"field\":\"timestamp\",\"unit\":\"ms\"}" },
        { "json", SCHEMA ",\"time\":{\"field\":\"a\",\"unit\":\"s\"}" },
        { "csv", SCHEMA ",\"header\":true,\"delimiter\":\";\",\"columns\":[\"a\",\"x\"]" },
        { "csv", "\"schema\":\"sys.txt\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char one[1024], two[1024];
        snprintf(one, sizeof one,
                 "{\"id\":\"p\",\"type\":\"source\",\"config\":{\"topic\":\"t\",\"format\":\"%s\",%"
                 "s}}" OUT,
                 cases[i].format, cases[i].config);
        snprintf(two, sizeof two,
                 "{\"id\":\"s\",\"type\":\"source\",\"config\":{\"topic\":\"t\"}},{\"id\":\"p\","
                 "\"type\":\"%s_parse\",\"config\":{%s},\"inputs\":[\"s\"]}" OUT,
                 cases[i].format, cases[i].config);
        char *x = stages(one), *y = stages(two);
        assert_string_equal(x, y);
        assert_int_equal(strncmp(x, "read{", 5), 0);
        assert_non_null(strstr(x, "_decode{"));
        assert_non_null(strstr(x, " time{"));
        free(x);
        free(y);
    }
}
/* csv_parse and senml_parse may both explode; only then `meta` means something. */
static void exploding_tasks(void **state) {
    (void)state;
    static const char *const types[] = { "csv_parse", "senml_parse" };
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"id\":\"s\",\"type\":\"source\",\"config\":{\"topic\":\"t\"}},{\"id\":\"p\","
                 "\"type\":\"%s\",\"config\":{" SCHEMA ",\"emit\":\"explode\",\"meta\":"
                 "[\"timestamp\"]},\"inputs\":[\"s\"]}" OUT,
                 types[i]);
        char *have = stages(text);
        const char *last = strstr(have, " time{");
        assert_non_null(last);
        assert_non_null(strstr(last, "} explode{\"meta\":[\"timestamp\"]} encode_json"));
        free(have);
        snprintf(text, sizeof text,
                 "{\"id\":\"s\",\"type\":\"source\",\"config\":{\"topic\":\"t\"}},{\"id\":\"p\","
                 "\"type\":\"%s\",\"config\":{" SCHEMA ",\"meta\":[\"a\"]},\"inputs\":[\"s\"]}" OUT,
                 types[i]);
        have = stages(text);
        assert_string_equal(have, "/tasks/1/config/meta: meta belongs to \"emit\": \"explode\"");
        free(have);
    }
}
static void lowering(void **state) {
    (void)state;
    static const struct {
        const char *source, *sink, *want;
    } cases[] = {
        { "\"topic\":\"t\"", "\"format\":\"raw\"",
          "read{\"topic\":\"t\",\"start\":\"latest\"} encode_raw{} discard{}" },
        { "\"topic\":\"t\",\"start\":\"earliest\"", "\"topic\":\"o\",\"append\":true",
          "read{\"topic\":\"t\",\"start\":\"earliest\"} encode_json{} "
          "append{\"topic\":\"o\",\"append\":true}" },
        { "\"topic\":\"t\"", "\"file\":\"a/b.txt\",\"format\":\"csv\",\"key\":\"value\"",
          "read{\"topic\":\"t\",\"start\":\"latest\"} encode_csv{\"key\":\"value\"} "
          "write_file{\"file\":\"a/b.txt\"}" },
        { "\"topic\":\"t\",\"format\":\"senml\",\"schema\":\"sys.txt\"",
          "\"format\":\"senml\",\"schema\":\"sys.txt\"", NULL },
        { "\"topic\":\"t\",\"format\":\"batch\"", "",
          "/tasks/0/config/format: format batch is not supported yet: use raw, csv, json or "
          "senml" },
        { "\"topic\":\"t\",\"format\":\"json\"", "",
          "/tasks/0/config: format json needs a schema" },
        { "\"topic\":\"t\",\"format\":\"json\",\"schema\":{\"v\":\"vec<3>\"}", "",
          "/tasks/0/config/schema/v: format json has no vectors" },
        { "\"topic\":\"t\",\"time\":{\"field\":\"a\"}", "",
          "/tasks/0/config/time: a raw source has no event time: give this to the parse task "
          "below" },
        { "\"topic\":\"t\",\"lateness\":\"5s\"", "",
          "/tasks/0/config/lateness: a raw source has no event time" },
        { "\"topic\":\"t\",\"format\":\"json\",\"header\":true," SCHEMA, "",
          "/tasks/0/config/header: only format csv has this parameter" },
        { "\"topic\":\"t\",\"format\":\"csv\",\"delimiter\":\"--\"," SCHEMA, "",
          "/tasks/0/config/delimiter: the delimiter must be one ASCII character, and no quote" },
        { "\"topic\":\"t\",\"format\":\"csv\",\"delimiter\":\"\\\"\"," SCHEMA, "",
          "/tasks/0/config/delimiter: the delimiter must be one ASCII character, and no quote" },
        { "\"topic\":\"t\",\"format\":\"json\",\"time\":{\"field\":\"timestmp\"}," SCHEMA, "",
          "/tasks/0/config/time" },
        { "\"topic\":\"t\"", "\"topic\":\"o\",\"file\":\"f\"",
          "/tasks/1/config/file: topic, file and discard exclude each other" },
        { "\"topic\":\"t\"", "\"file\":\"../f\"", "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"file\":\"/f\"", "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"file\":\"a/\"", "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"file\":\"a//b\"", "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"file\":\"a/.b\"", "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"file\":\"" LONG LONG LONG LONG "0\"",
          "/tasks/1/config/file: the file must be" },
        { "\"topic\":\"t\"", "\"topic\":\"o\",\"format\":\"raw\"",
          "read{\"topic\":\"t\",\"start\":\"latest\"} encode_raw{} "
          "append{\"topic\":\"o\",\"append\":false}" },
        { "\"topic\":\"t\"", "\"format\":\"senml\"", "/tasks/1/config: format senml needs" },
        { "\"topic\":\"t\"", "\"format\":\"senml\",\"schema\":\"sys.txt\"",
          "/tasks/1/config/schema" },
        { "\"topic\":\"t\"", "\"append\":true", "/tasks/1/config/append: append belongs" },
        { "\"topic\":\"t\",\"format\":\"json\"," SCHEMA, "\"format\":\"raw\"", "/tasks/1/config" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"id\":\"p\",\"type\":\"source\",\"config\":{%s}},{\"id\":\"o\",\"type\":"
                 "\"sink\",\"config\":{%s},\"inputs\":[\"p\"]}",
                 cases[i].source, cases[i].sink);
        char *have = stages(text);
        if (!cases[i].want)
            assert_non_null(strstr(have, "encode_senml{"));
        else if (strncmp(have, cases[i].want, strlen(cases[i].want)) != 0)
            fail_msg("%s\n gives  %s\n wanted %s", text, have, cases[i].want);
        free(have);
    }
}

/* ---- a stage under a host that writes everything down ---- */

struct rig {
    struct optest_op op;
    struct sbuf out; /* rows and dead letters */
    int64_t last_off;
};
static struct rig *rig_of(struct op_ctx *c) {
    return ((struct optest_op *)c->task)->user;
}
static void show_cell(struct sbuf *o, const struct field *f, const struct column *c, uint32_t r) {
    sbuf_reserve(o, NUM_F64_MAX_LEN);
    if (column_null(c, r))
        sbuf_adds(o, "null");
    else if (f->type == TYPE_F64)
        o->len += (size_t)num_write_f64(o->p + o->len, c->f64[r]);
    else if (f->type == TYPE_I64)
        o->len += (size_t)num_write_i64(o->p + o->len, c->i64[r]);
    else
        sbuf_add(o, c->str[r].p, c->str[r].len);
}
static void rig_emit(struct op_ctx *c, int port, const struct batch *b) {
    struct rig *g = rig_of(c);
    assert_int_equal(port, 0);
    assert_true(b->rows <= BATCH_ROWS && b->schema == c->out[0]);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        sbuf_printf(&g->out, "%" PRId64 ".%" PRId64, batch_off(b, r), batch_sub(b, r));
        if (b->time)
            sbuf_printf(&g->out, " @%" PRId64, b->time[r]);
        if (b->wm)
            sbuf_printf(&g->out, " wm%" PRId64, b->wm[r]);
        for (int f = 0; f < b->schema->n; f++) {
            sbuf_adds(&g->out, " ");
            show_cell(&g->out, &b->schema->f[f], &b->cols[f], r);
        }
        sbuf_adds(&g->out, "\n");
    }
}
static void rig_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                       const char *text) {
    assert_true(*text);
    sbuf_printf(&rig_of(c)->out, "%" PRId64 " !%s\n", batch_off(b, row), code);
}
static void rig_open(struct rig *g, const struct optest *t) {
    memset(g, 0, sizeof *g);
    if (optest_open(&g->op, t, NULL) != 0)
        fail_msg("open: %s", g->op.errs.n ? g->op.errs.v[0].text : "?");
    g->op.user = g;
    g->op.host.emit = rig_emit;
    g->op.host.reject = rig_reject;
}
static void rig_close(struct rig *g) {
    optest_close(&g->op);
    sbuf_free(&g->out);
}
static void rig_process(struct rig *g, const struct batch *b) {
    g->op.counts.in += b->n;
    g->op.desc->process(g->op.self, &g->op.ctx, 0, b);
}
static void rig_end(struct rig *g) {
    if (g->op.desc->end)
        g->op.desc->end(g->op.self, &g->op.ctx);
    const struct op_counts *c = &g->op.counts;
    assert_int_equal(c->in, c->passed + c->filtered + c->late + c->rejected + c->absorbed);
    assert_int_equal(c->out, c->passed + c->made);
    arena_reset(&g->op.tick);
}

/* ---- decoding ---- */

static void one_bad_record_costs_one(void **state) {
    (void)state;
    enum { N = 10000 };
    struct rig g;
    struct span v[BATCH_ROWS];
    static char text[N][80];
    rig_open(&g,
             &(struct optest){ .op = "senml_decode",
                               .in = "value:bytes",
                               .config = "{\"schema\":{\"timestamp\":\"i64\",\"a\":\"f64\"}}" });
    for (int i = 0; i < N; i++)
        snprintf(text[i], sizeof text[i], "{\"e\":[{\"n\":\"a\",\"v\":\"%s\"}],\"bt\":%d}",
                 i == 7777 ? "x" : "1.5", i);
    for (int at = 0; at < N; at += 1000) {
        for (int i = 0; i < 1000; i++)
            v[i] = (struct span){ .p = text[at + i], .len = (uint32_t)strlen(text[at + i]) };
        struct column c = { .str = v };
        struct batch b = {
            .schema = g.op.ctx.in[0], .cols = &c, .rows = 1000, .n = 1000, .off0 = at
        };
        rig_process(&g, &b);
        rig_end(&g);
    }
    assert_int_equal(g.op.counts.passed, N - 1);
    assert_int_equal(g.op.counts.rejected, 1);
    assert_non_null(strstr(sbuf_str(&g.out), "\n7777 !bad_value\n"));
    assert_non_null(strstr(g.out.p, "\n7776.0 @7776 7776 1.5\n7778.0 @7778 7778 1.5\n"));
    rig_close(&g);
}
static void decode_stage_rules(void **state) {
    (void)state;
    struct rig g;
    struct span v[] = { { .p = "a;b", .len = 3 }, { .p = "1;x", .len = 3 },
                        { .p = "2;", .len = 2 },  { .p = NULL },
                        { .p = "7", .len = 1 },   { .p = "3;y", .len = 3 } };
    uint64_t null = 8;
    struct column c = { .str = v, .nulls = &null };
    uint16_t sel[] = { 0, 1, 3, 4, 5 };
    rig_open(&g, &(struct optest){
                     .op = "csv_decode",
                     .in = "value:bytes",
                     .config = "{\"schema\":{\"a\":\"i64\",\"b\":\"string\"},\"header\":true,"
                               "\"delimiter\":\";\"}" });
    struct batch b = { .schema = g.op.ctx.in[0], .cols = &c, .rows = 6, .n = 5, .sel = sel };
    rig_process(&g, &b);
    rig_end(&g);
    assert_string_equal(sbuf_str(&g.out), "3 !null_record\n4 !bad_csv\n1.0 1 x\n5.0 3 y\n");
    assert_int_equal(g.op.counts.filtered, 1);
    rig_close(&g);
}

/* ---- event time ---- */

enum { T_ROWS = 4000, T_LOG0 = 1000000 };
struct row {
    int64_t time, logged; /* time TIME_MIN: null */
    bool gone;            /* rejected above: not handed in, but part of the origin */
};
/* The reference: one row at a time. */
static void naive_time(const struct row *r, int n, int64_t lateness, int64_t ahead,
                       struct sbuf *out, int64_t *wm) {
    int64_t max = TIME_MIN;
    for (int i = 0; i < n; i++) {
        int64_t before = max == TIME_MIN ? TIME_MIN : max - lateness;
        if (!r[i].gone && r[i].time == TIME_MIN)
            sbuf_printf(out, "%d !no_time\n", i);
        else if (!r[i].gone && r[i].time > r[i].logged + ahead)
            sbuf_printf(out, "%d !too_far_ahead\n", i);
        else if (!r[i].gone) {
            sbuf_printf(out, "%d.0 @%" PRId64 " wm%" PRId64 " %" PRId64 "\n", i, r[i].time, before,
                        r[i].time);
            max = r[i].time > max ? r[i].time : max;
        }
        wm[i] = max == TIME_MIN ? TIME_MIN : max - lateness;
    }
}
/* Dead letters of a batch come before its rows, so compare them apart. */
static void split(const char *text, bool dead, struct sbuf *out) {
    out->len = 0;
    for (const char *p = text; *p;) {
        const char *nl = strchr(p, '\n') + 1;
        if ((memchr(p, '!', (size_t)(nl - p)) != NULL) == dead)
            sbuf_add(out, p, (size_t)(nl - p));
        p = nl;
    }
    sbuf_str(out);
}
/* One tick of rows lo..hi-1, in one or several batches. */
static void time_tick(struct rig *g, const struct row *r, int lo, int hi, int64_t *wm) {
    struct arena *a = &g->op.tick;
    uint32_t n = (uint32_t)(hi - lo);
    int64_t *log = ARENA_ARRAY(a, int64_t, n), *t = ARENA_ARRAY(a, int64_t, n);
    uint64_t *nulls = batch_nulls(a, n);
    struct origin o = { .id = 1, .n = n, .off0 = lo, .log_time = log };
    struct column c = { .i64 = t, .nulls = nulls };
    for (uint32_t i = 0; i < n; i++) {
        log[i] = r[lo + (int)i].logged;
        t[i] = r[lo + (int)i].time;
        if (t[i] == TIME_MIN)
            bit_set(nulls, i);
    }
    g->op.ctx.origin = g->op.ctx.out_origin = &o;
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1 + (uint32_t)(test_random(&rnd) % n), k = 0;
        end = end < n ? end : n;
        uint16_t *sel = ARENA_ARRAY(a, uint16_t, n);
        for (; i < end; i++)
            if (!r[lo + (int)i].gone)
                sel[k++] = (uint16_t)i;
        struct batch b = { .schema = g->op.ctx.in[0],
                           .cols = &c,
                           .rows = n,
                           .n = k,
                           .sel = sel,
                           .off0 = lo,
                           .origin = &o };
        if (k)
            rig_process(g, &b);
    }
    const struct op_ctx *x = &g->op.ctx;
    g->op.desc->end(g->op.self, &g->op.ctx);
    assert_ptr_not_equal(x->out_origin, &o);
    assert_int_equal(x->out_origin->n, n);
    assert_true(x->out_origin->wm_before == (lo ? wm[lo - 1] : TIME_MIN));
    for (uint32_t i = 0; i < n; i++)
        wm[lo + (int)i] = x->out_origin->wm[i];
    arena_reset(a);
}
static void event_time(void **state) {
    (void)state;
    static struct row r[T_ROWS];
    static int64_t want_wm[T_ROWS], wm[T_ROWS];
    for (int round = 0; round < test_scale(30); round++) {
        struct rig g;
        struct sbuf want = { 0 }, x = { 0 }, y = { 0 };
        int n = 1 + (int)(test_random(&rnd) % (round % 2 ? 20 : T_ROWS));
        for (int i = 0; i < n; i++) {
            uint64_t q = test_random(&rnd);
            r[i].logged = T_LOG0 + i * 10;
            r[i].time = r[i].logged + (int64_t)(q % 400) - 300;
            r[i].gone = q >> 20 & 7 ? false : true;
            if ((q >> 30 & 15) == 0)
                r[i].time = q >> 34 & 1 ? TIME_MIN : r[i].logged + 1000 + (int64_t)(q >> 36 & 1);
        }
        naive_time(r, n, 50, 1000, &want, want_wm);
        rig_open(&g, &(struct optest){
                         .op = "time",
                         .in = "t:i64",
                         .config = "{\"base\":\"field\",\"time\":{\"field\":\"t\",\"unit\":\"ms\"},"
                                   "\"lateness\":\"50ms\",\"max_ahead\":\"1s\"}" });
        undo_push(g.op.undo);
        undo_commit(g.op.undo);
        for (int lo = 0, hi; lo < n; lo = hi) {
            hi = lo + 1 + (int)(test_random(&rnd) % 300);
            hi = hi < n ? hi : n;
            if (test_random(&rnd) % 4 == 0) { /* an epoch that is aborted and done again */
                size_t len = g.out.len;
                struct op_counts counts = g.op.counts;
                undo_push(g.op.undo);
                undo_commit(g.op.undo);
                time_tick(&g, r, lo, hi, wm);
                undo_abort(g.op.undo);
                g.op.desc->rebuild(g.op.self, &g.op.ctx);
                g.out.len = len;
                g.op.counts = counts;
            }
            time_tick(&g, r, lo, hi, wm);
        }
        for (int dead = 0; dead < 2; dead++) {
            split(sbuf_str(&g.out), dead, &x);
            split(sbuf_str(&want), dead, &y);
            if (strcmp(x.p, y.p) != 0)
                fail_msg("seed %" PRIu64 " round %d: rows differ", seed, round);
        }
        for (int i = 0; i < n; i++)
            if (wm[i] != want_wm[i])
                fail_msg("seed %" PRIu64 ": watermark after %d", seed, i);
        sbuf_free(&want);
        sbuf_free(&x);
        sbuf_free(&y);
        rig_close(&g);
    }
}
static void time_units(void **state) {
    (void)state;
    static const struct {
        const char *field, *unit, *cell, *want;
    } cases[] = {
        { "i64", "s", "1422748800", "1422748800000" },
        { "i64", "us", "1422748800000999", "1422748800000" },
        { "i64", "us", "-1", "-1" },
        { "f64", "s", "1.5", "1500" },
        { "f64", "ms", "-0.5", "-1" },
        { "string", "rfc3339", "2013-01-13 23:36:00", "1358120160000" },
        { "string", "rfc3339", "9999-12-31T23:59:59Z", "253402300799000" },
        { "string", "rfc3339", "0001-01-01T00:00:00Z", "-62135596800000" },
        { "string", "rfc3339", "yesterday", "!bad_time" },
        { "i64", "s", "9223372036854775807", "!bad_time" },
        { "i64", "ms", "-9223372036854775808", "!bad_time" },
        { "f64", "s", "1e300", "!bad_time" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig g;
        char in[32], config[200], want[200];
        const char *v = cases[i].cell, *end = v + strlen(v);
        int64_t num = 0;
        double f = 0;
        struct span str = { .p = v, .len = (uint32_t)(end - v) };
        snprintf(in, sizeof in, "t:%s", cases[i].field);
        snprintf(config, sizeof config,
                 "{\"base\":\"field\",\"time\":{\"field\":\"t\",\"unit\":\"%s\"}}", cases[i].unit);
        rig_open(&g, &(struct optest){ .op = "time", .in = in, .config = config });
        struct column c = { .str = &str };
        if (strcmp(cases[i].field, "i64") == 0 && num_i64_whole(v, end, &num) == 0)
            c.i64 = &num;
        if (strcmp(cases[i].field, "f64") == 0 && num_f64_whole(v, end, &f) == 0)
            c.f64 = &f;
        struct origin o = { .n = 1 };
        struct batch b = { .schema = g.op.ctx.in[0], .cols = &c, .rows = 1, .n = 1, .origin = &o };
        g.op.ctx.origin = g.op.ctx.out_origin = &o;
        rig_process(&g, &b);
        if (*cases[i].want == '!')
            snprintf(want, sizeof want, "0 %s\n", cases[i].want);
        else
            snprintf(want, sizeof want, "0.0 @%s wm%" PRId64 " ", cases[i].want, TIME_MIN);
        if (strncmp(sbuf_str(&g.out), want, strlen(want)) != 0)
            fail_msg("%s in %s: %s", v, cases[i].unit, g.out.p);
        rig_end(&g);
        rig_close(&g);
    }
}
/* SenML records without bt take the log's time; without either they are refused. */
static void record_or_log_time(void **state) {
    (void)state;
    struct rig g;
    int64_t a[] = { 1, 2, 3 }, t[] = { 500, TIME_MIN, 700 }, log[] = { 1000, 2000, 3000 };
    struct column c = { .i64 = a };
    struct origin o = { .n = 3, .log_time = log };
    rig_open(&g,
             &(struct optest){ .op = "time", .in = "a:i64", .config = "{\"base\":\"record\"}" });
    struct batch b = {
        .schema = g.op.ctx.in[0], .cols = &c, .rows = 3, .n = 3, .time = t, .origin = &o
    };
    g.op.ctx.origin = g.op.ctx.out_origin = &o;
    rig_process(&g, &b);
    rig_end(&g);
    assert_non_null(strstr(sbuf_str(&g.out), "0.0 @500 wm"));
    assert_non_null(strstr(g.out.p, "1.0 @2000 wm500 2\n2.0 @700 wm2000 3\n"));
    o.log_time = NULL;
    o.off0 = b.off0 = 3;
    g.out.len = 0;
    rig_process(&g, &b);
    rig_end(&g);
    assert_string_equal(sbuf_str(&g.out), "4 !no_time\n3.0 @500 wm2000 1\n5.0 @700 wm2000 3\n");
    rig_close(&g);
}

/* Rows of one position see the watermark before all of them, wherever the batch is cut. */
static void rows_of_one_position(void **state) {
    (void)state;
    int64_t t[] = { 100, 300, 200, 50 }, off[] = { 0, 0, 0, 1 };
    for (int cut = 1; cut <= 4; cut++) {
        struct rig g;
        struct column c = { .i64 = t };
        struct origin o = { .n = 2 };
        rig_open(&g, &(struct optest){ .op = "time",
                                       .in = "t:i64",
                                       .config = "{\"base\":\"field\",\"time\":{\"field\":\"t\","
                                                 "\"unit\":\"ms\"},\"lateness\":\"10ms\"}" });
        g.op.ctx.origin = g.op.ctx.out_origin = &o;
        for (int from = 0; from < 4; from += cut) {
            uint16_t sel[] = { 0, 1, 2, 3 };
            struct batch b = { .schema = g.op.ctx.in[0],
                               .cols = &c,
                               .rows = 4,
                               .n = (uint32_t)(from + cut < 4 ? cut : 4 - from),
                               .sel = sel + from,
                               .off = off,
                               .origin = &o };
            rig_process(&g, &b);
        }
        g.op.desc->end(g.op.self, &g.op.ctx);
        char want[200];
        snprintf(want, sizeof want,
                 "0.0 @100 wm%" PRId64 " 100\n0.0 @300 wm%" PRId64 " 300\n0.0 @200 wm%" PRId64
                 " 200\n1.0 @50 wm290 50\n",
                 TIME_MIN, TIME_MIN, TIME_MIN);
        assert_string_equal(sbuf_str(&g.out), want);
        assert_int_equal(g.op.ctx.out_origin->wm[0], 290);
        assert_int_equal(g.op.ctx.out_origin->wm[1], 290);
        rig_close(&g);
    }
}

/* ---- exploding ---- */

static void explodes(void **state) {
    (void)state;
    struct rig g;
    int64_t t[] = { 10, 20, 30 }, n[] = { 1, 2, 3 };
    struct span s[] = { { .p = "x", .len = 1 }, { .p = "y", .len = 1 }, { .p = "z", .len = 1 } };
    double f[] = { 0.5, 1.5, 2.5 };
    uint64_t null = 4;
    uint16_t sel[] = { 0, 2 };
    struct column c[] = { { .i64 = t }, { .f64 = f, .nulls = &null }, { .str = s }, { .i64 = n } };
    rig_open(&g, &(struct optest){ .op = "explode",
                                   .in = "timestamp:i64 f:f64 source:string n:i64",
                                   .config = "{\"meta\":[\"source\",\"timestamp\"]}" });
    struct batch b = {
        .schema = g.op.ctx.in[0], .cols = c, .rows = 3, .n = 2, .sel = sel, .off0 = 100, .time = t
    };
    rig_process(&g, &b);
    rig_end(&g);
    assert_string_equal(sbuf_str(&g.out), "100.0 @10 x 10 100 f 0.5\n100.1 @10 x 10 100 n 1\n"
                                          "102.0 @30 z 30 102 f null\n102.1 @30 z 30 102 n 3\n");
    assert_int_equal(g.op.counts.absorbed, 2);
    assert_int_equal(g.op.ctx.out[0]->f[4].type, TYPE_F64); /* integers, too */
    rig_close(&g);
    /* a string among the observed fields: values are text */
    rig_open(&g, &(struct optest){ .op = "explode",
                                   .in = "timestamp:i64 f:f64 source:string n:i64",
                                   .config = "{\"meta\":[\"timestamp\"]}" });
    b.schema = g.op.ctx.in[0];
    b.n = 1;
    b.sel = NULL;
    b.rows = 1;
    rig_process(&g, &b);
    rig_end(&g);
    assert_string_equal(sbuf_str(&g.out), "100.0 @10 10 100 f 0.5\n100.1 @10 10 100 source x\n"
                                          "100.2 @10 10 100 n 1\n");
    rig_close(&g);
}
static void explodes_in_pieces(void **state) {
    (void)state;
    enum { ROWS = BATCH_ROWS };
    struct rig g;
    static double f[ROWS];
    struct column c[] = { { .f64 = f }, { .f64 = f }, { .f64 = f } };
    for (int i = 0; i < ROWS; i++)
        f[i] = i;
    rig_open(&g, &(struct optest){ .op = "explode", .in = "a:f64 b:f64 c:f64" });
    struct batch b = { .schema = g.op.ctx.in[0], .cols = c, .rows = ROWS, .n = ROWS };
    rig_process(&g, &b);
    rig_end(&g);
    const char *p = sbuf_str(&g.out);
    for (int i = 0; i < 3 * ROWS; i++) {
        char want[64];
        int n = snprintf(want, sizeof want, "%d.%d %d %c %d\n", i / 3, i % 3, i / 3, "abc"[i % 3],
                         i / 3);
        assert_memory_equal(p, want, (size_t)n);
        p += n;
    }
    assert_int_equal(*p, 0);
    rig_close(&g);
}
static void plan_errors(void **state) {
    (void)state;
    static const struct {
        struct optest t;
        const char *want;
    } cases[] = {
        { { .op = "explode", .in = "a:f64", .config = "{\"meta\":[\"b\"]}" }, "meta/b" },
        { { .op = "explode", .in = "a:f64", .config = "{\"meta\":[\"a\"]}" },
          "nothing is observed" },
        { { .op = "explode", .in = "obs:f64 b:f64", .config = "{\"meta\":[\"obs\"]}" },
          "explode makes" },
        { { .op = "explode", .in = "a:f64 b:f64", .config = "{\"meta\":[\"a\",\"a\"]}" }, "twice" },
        { { .op = "time",
            .in = "a:string",
            .config = "{\"base\":\"field\",\"time\":{\"field\":\"a\"}}" },
          "time" },
        { { .op = "json_decode", .in = "value:f64", .config = "{\"schema\":{\"a\":\"f64\"}}" },
          "field" },
        { { .op = "encode_csv", .in = "v:vec<2>" }, "vector" },
        { { .op = "encode_raw", .in = "a:string b:string" }, "format raw writes" },
        { { .op = "encode_json", .in = "a:f64", .config = "{\"key\":\"b\"}" }, "key" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *have = optest_errors(&cases[i].t);
        if (!strstr(have, cases[i].want))
            fail_msg("case %zu: '%s' does not say '%s'", i, have, cases[i].want);
        free(have);
    }
}

/* ---- encoding ---- */

static void encode_stage(void **state) {
    (void)state;
    struct rig g;
    struct span v[] = { { .p = "a", .len = 1 }, { .p = "\xff", .len = 1 }, { .p = "b", .len = 1 } };
    struct column c = { .str = v };
    rig_open(&g, &(struct optest){ .op = "encode_json", .in = "v:bytes" });
    struct batch b = { .schema = g.op.ctx.in[0], .cols = &c, .rows = 3, .n = 3 };
    for (int i = 0; i < 3; i++) { /* payloads of a tick are held until the end of the next */
        rig_process(&g, &b);
        rig_end(&g);
    }
    assert_string_equal(sbuf_str(&g.out), "0.0 {\"v\":\"a\"}\n1 !bad_utf8\n2.0 {\"v\":\"b\"}\n"
                                          "0.0 {\"v\":\"a\"}\n1 !bad_utf8\n2.0 {\"v\":\"b\"}\n"
                                          "0.0 {\"v\":\"a\"}\n1 !bad_utf8\n2.0 {\"v\":\"b\"}\n");
    assert_int_equal(g.op.counts.passed, 6);
    assert_int_equal(g.op.counts.rejected, 3);
    uint16_t sel[] = { 1, 2 }; /* the first selected row is not the first of the batch */
    b.sel = sel;
    b.n = 2;
    g.out.len = 0;
    rig_process(&g, &b);
    rig_end(&g);
    assert_string_equal(sbuf_str(&g.out), "1 !bad_utf8\n2.0 {\"v\":\"b\"}\n");
    rig_close(&g);
}

static int setup(void **state) {
    (void)state;
    seed = rnd = test_seed(5);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_are_one),
        cmocka_unit_test(lowering),
        cmocka_unit_test(exploding_tasks),
        cmocka_unit_test(one_bad_record_costs_one),
        cmocka_unit_test(decode_stage_rules),
        cmocka_unit_test(event_time),
        cmocka_unit_test(time_units),
        cmocka_unit_test(record_or_log_time),
        cmocka_unit_test(rows_of_one_position),
        cmocka_unit_test(explodes),
        cmocka_unit_test(explodes_in_pieces),
        cmocka_unit_test(plan_errors),
        cmocka_unit_test(encode_stage),
    };
    return cmocka_run_group_tests_name("ops_io", tests, setup, NULL);
}
