/* interpolate, join and annotate. */
#include "engine/num.h"
#include "engine/xsum.h"
#include "operators/mean.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
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

static void add_f64(struct sbuf *b, double v) {
    char text[NUM_F64_MAX_LEN];
    sbuf_add(b, text, (size_t)num_write_f64(text, v));
}

/* ---- interpolate ---- */

static void interpolate_repairs(void **state) {
    (void)state;
    struct optest t = { .op = "interpolate",
                        .in = "k:string a:f64 b:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"a\"],\"window\":2}" };
    const char *rows = "x,null,null\nx,1,null\nx,null,7\ny,null,0\nx,4,0\nx,null,0\nx,null,0\n"
                       "x,10,0\nx,null,0\n";
    /* the means 1, 2.5, 2.5 never enter the history: the last one is (4 + 10) / 2 */
    optest_expect(
        &t, rows,
        "x,null,null\nx,1,null\nx,1,7\ny,null,0\nx,4,0\nx,2.5,0\nx,2.5,0\nx,10,0\nx,7,0\n");
    t.config = "{\"fields\":[\"a\"],\"window\":2,\"no_history\":\"0\"}";
    optest_expect(&t, "x,null,null\ny,null,1\n", "x,0,null\ny,0,1\n");
    t.config = "{\"fields\":[\"a\"],\"window\":0,\"no_history\":\"0\"}";
    optest_expect(&t, rows, rows);
    t.config = "{\"fields\":[\"a\"],\"window\":2}";
    optest_expect(&t, "x,1e308,0\nx,1e308,0\nx,null,0\n",
                  "x,1e308,0\nx,1e308,0\nx,1e308,0\n"); /* the sum overflows */
    t.by = NULL;
    optest_expect(&t, "x,1,0\ny,null,0\n", "x,1,0\ny,1,0\n");
}

/* A key that was looked for in vain, then written, then followed by another. */
static void interpolate_alternates(void **state) {
    (void)state;
    struct optest t = { .op = "interpolate",
                        .in = "k:string city:i64 obs:string v:f64",
                        .by = "k city",
                        .config = "{\"fields\":[\"t\"],\"name_field\":\"obs\",\"value_field\":"
                                  "\"v\"}" };
    optest_expect(&t,
                  "x,1,t,null\nx,1,t,5\ny,1,t,7\nx,1,t,null\nx,2,t,null\nx,null,t,3\n"
                  "x,1,null,null\nx,1,other,null\nx,null,t,null\n",
                  "x,1,t,null\nx,1,t,5\ny,1,t,7\nx,1,t,5\nx,2,t,null\nx,null,t,3\n"
                  "x,1,null,null\nx,1,other,null\nx,null,t,3\n");
}

/* Equal pasts are equal states, and what no output can depend on is not kept. */
static void interpolate_state(void **state) {
    (void)state;
    struct optest t = { .op = "interpolate",
                        .in = "k:string a:f64 b:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"a\",\"b\"],\"window\":2}" };
    assert_true(optest_state(&t, "x,null,null\ny,null,null\n") == 0);
    assert_true(optest_state(&t, "x,1,null\n") != 0);
    assert_true(optest_state(&t, "x,9,8\nx,1,2\nx,null,null\nx,3,4\n") ==
                optest_state(&t, "x,1,4711\nx,3,2\nx,null,4\n"));
    t.config = "{\"fields\":[\"v\"],\"name_field\":\"obs\",\"value_field\":\"v\"}";
    t.in = "k:string obs:string v:f64";
    assert_true(optest_state(&t, "x,v,null\nx,w,1\nx,null,2\n") == 0);
}

static void interpolate_errors(void **state) {
    (void)state;
    struct optest t = { .op = "interpolate", .in = "k:string a:f64 n:i64" };
    t.config = "{\"fields\":[\"b\"]}";
    expect_error(&t, "no field 'b'");
    t.config = "{\"fields\":[\"n\"]}";
    expect_error(&t, "must be f64");
    t.config = "{\"fields\":[\"a\",\"a\"]}";
    expect_error(&t, "twice");
    t.config = "{\"fields\":[\"a\"],\"window\":2000}";
    expect_error(&t, "1024");
    t.config = "{\"fields\":[\"a\"],\"value_field\":\"a\"}";
    expect_error(&t, "go together");
    struct sbuf many = { 0 };
    sbuf_adds(&many,
              "{\"window\":1024,\"name_field\":\"k\",\"value_field\":\"a\",\"fields\":[\"n\"");
    for (int i = 0; i < 128; i++)
        sbuf_printf(&many, ",\"n%d\"", i);
    sbuf_adds(&many, "]}");
    t.config = sbuf_str(&many);
    expect_error(&t, "window: 129 fields of 1024 values are more than 1024 KiB of state");
    sbuf_free(&many);
}

enum { KEYS = 100, NAMES = 3, WINDOW = 5 };
/* What one key and field has seen, oldest first. */
struct past {
    double v[WINDOW];
    int n;
};

/* Row-at-a-time reference: a list that forgets from the front. */
static bool naive(struct past *p, bool null, double *v) {
    if (!null) {
        if (p->n == WINDOW)
            memmove(p->v, p->v + 1, (size_t)--p->n * sizeof *p->v);
        p->v[p->n++] = *v;
        return true;
    }
    if (!p->n)
        return false;
    long double sum = 0; /* exact for these values: multiples of 1/8 */
    for (int i = 0; i < p->n; i++)
        sum += p->v[i];
    *v = (double)sum / p->n;
    return true;
}

/* 100 keys, 30 % nulls, wide and exploded, random batch cuts: equal to the reference. */
static void interpolate_equals_oracle(void **state) {
    (void)state;
    static struct past past[KEYS][NAMES];
    static const char *const names[NAMES] = { "temperature", "light", "dust" };
    memset(past, 0, sizeof past);
    uint64_t seed = test_seed(77);
    struct sbuf wide = { 0 }, wide_want = { 0 }, obs = { 0 }, obs_want = { 0 };
    for (int row = 0; row < 4000; row++) {
        int k = (int)(test_random(&seed) % KEYS);
        sbuf_printf(&wide, "key%d", k);
        sbuf_printf(&wide_want, "key%d", k);
        for (int f = 0; f < NAMES; f++) {
            bool null = test_random(&seed) % 10 < 3;
            double v = (double)(test_random(&seed) % 100000) / 8 - 3000;
            sbuf_adds(&wide, ",");
            sbuf_printf(&obs, "key%d,%s,", k, names[f]);
            if (null) {
                sbuf_adds(&wide, "null");
                sbuf_adds(&obs, "null");
            } else {
                add_f64(&wide, v);
                add_f64(&obs, v);
            }
            bool known = naive(&past[k][f], null, &v);
            sbuf_adds(&wide_want, ",");
            sbuf_printf(&obs_want, "key%d,%s,", k, names[f]);
            if (known) {
                add_f64(&wide_want, v);
                add_f64(&obs_want, v);
            } else {
                sbuf_adds(&wide_want, "null");
                sbuf_adds(&obs_want, "null");
            }
            sbuf_adds(&obs, "\n");
            sbuf_adds(&obs_want, "\n");
        }
        sbuf_adds(&wide, "\n");
        sbuf_adds(&wide_want, "\n");
    }
    struct optest t = { .op = "interpolate",
                        .in = "k:string temperature:f64 light:f64 dust:f64",
                        .by = "k",
                        .config = "{\"fields\":[\"temperature\",\"light\",\"dust\"]}" };
    optest_expect(&t, sbuf_str(&wide), sbuf_str(&wide_want));
    t.in = "k:string obs:string value:f64";
    t.config = "{\"fields\":[\"light\",\"temperature\",\"dust\"],\"name_field\":\"obs\","
               "\"value_field\":\"value\"}";
    optest_expect(&t, sbuf_str(&obs), sbuf_str(&obs_want));
    t.by = "k obs"; /* the same, keyed by the name */
    t.config = "{\"fields\":[\"value\"]}";
    optest_expect(&t, sbuf_str(&obs), sbuf_str(&obs_want));
    sbuf_free(&wide);
    sbuf_free(&wide_want);
    sbuf_free(&obs);
    sbuf_free(&obs_want);
}

static void means_are_exact(void **state) {
    (void)state;
    assert_true(mean_exact((double[]){ 7 }, 1) == 7);
    assert_true(mean_exact((double[]){ 1e100, 1, -1e100, 0 }, 4) == 0.25);
    assert_true(mean_exact((double[]){ 1e308, 1e308, 1e308 }, 3) == 1e308);
    assert_true(mean_exact((double[]){ 5e-324, 0 }, 2) == 0); /* a tie, to even */
    assert_true(mean_exact((double[]){ 5e-324, 1e-323 }, 2) == 1e-323);
    assert_true(mean_exact((double[]){ 0x1p53, 2, 0x1p-60 }, 2) == 0x1p52 + 1);
    assert_true(mean_exact((double[]){ -0.0, 0 }, 2) == 0);
    /* Beside a tie, by less than the errors' own sum can hold. */
    assert_true(mean_exact((double[]){ 0x1p53, 1, 0x1p-60, 0 }, 4) == 0x1p51 + 0.5);
    assert_true(mean_exact((double[]){ 0x1p53, 1, -0x1p-60, 0 }, 4) == 0x1p51);
    /* Errors that cancel each other take a small one with them. */
    assert_true(mean_exact((double[]){ 0x1p120, 0x1p60, 0x1p-3, -0x1p60, -0x1p120, 1 }, 6) ==
                0.1875);
    /* Beside a tie whose distance underflows. */
    assert_true(mean_exact((double[]){ 0x3p-1000, 0x3p-1053, 0x1p-1074 }, 3) ==
                0x1p-1000 + 0x1p-1052);
    /* Rounded once: equal to the long accumulator, for spread and for similar values, in any order.
     */
    uint64_t seed = test_seed(3);
    for (int round = 0; round < test_scale(20000); round++) {
        double v[50];
        struct xbig sum = { 0 };
        int n = 1 + (int)(test_random(&seed) % 50);
        bool tiny = round % 11 == 0; /* subnormal numbers */
        int spread = 1 + (int)(test_random(&seed) % (round % 3 ? 4 : 400));
        for (int i = 0; i < n; i++) {
            int64_t m = (int64_t)test_random(&seed) >> (round % 5 * 12);
            v[i] = ldexp((double)m, (int)(test_random(&seed) % (uint64_t)spread) - spread / 2);
            if (tiny)
                v[i] = 0x1p-1074 * (double)(m % 1000);
            xbig_add(&sum, v[i]);
        }
        double want = xbig_mean(&sum, (uint64_t)n);
        if (mean_exact(v, n) != want)
            fail_msg("round %d: %a, want %a", round, mean_exact(v, n), want);
        for (int i = n - 1; i > 0; i--) {
            int j = (int)(test_random(&seed) % (uint64_t)(i + 1));
            double x = v[i];
            v[i] = v[j];
            v[j] = x;
        }
        assert_true(mean_exact(v, n) == want);
    }
}

/* ---- join ---- */

#define OBS "source:string msgid:i64 obs:string value:f64"

static void join_completes(void **state) {
    (void)state;
    struct optest t = {
        .op = "join", .share_offsets = true, .in = OBS, .config = "{\"need\":[\"a\",\"b\"]}"
    };
    struct op_counts c;
    char *got = optest_same(&t,
                            "s1,1,a,10\ns1,1,b,20\n"
                            "s2,2,b,21\ns3,3,a,12\ns3,3,b,null\ns2,2,a,11\n" /* interleaved */
                            "s4,4,a,1\ns4,4,a,2\ns4,4,zzz,3\ns4,4,b,4\n"     /* twice, foreign */
                            "s1,1,b,5\n"                                     /* opens 1 again */
                            "s5,null,a,1\ns6,6,null,1\n",
                            &c);
    assert_string_equal(
        got, "s1,10,20\ns3,12,null\ns2,11,21\ns4,2,4\n!reject null_id: the id is null\n");
    assert_int_equal(c.made, 4);
    assert_int_equal(c.filtered, 2);
    assert_int_equal(c.absorbed, 10);
    free(got);
    t.config = "{\"schema\":{\"b\":\"f64\",\"source\":\"string\",\"msgid\":\"i64\",\"a\":\"f64\"}}";
    optest_expect(&t, "s1,1,a,10\ns1,1,b,20\n", "20,s1,1,10\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{b: f64, source: string, msgid: i64, a: f64}");
    free(schema);
}

static void join_gives_up(void **state) {
    (void)state;
    struct optest t = { .op = "join",
                        .share_offsets = true,
                        .in = OBS,
                        .config = "{\"need\":[\"a\",\"b\",\"c\"],\"max_open\":2}" };
    optest_expect(&t,
                  "s1,1,a,1\ns2,2,a,1\ns2,2,b,1\ns3,3,a,1\n" /* 3 pushes 1 out */
                  "s2,2,c,1\n"                               /* 2 completes */
                  "s4,4,a,1\ns4,4,b,1\ns4,4,c,1\n"           /* fits, completes */
                  "s1,1,b,2\ns5,5,a,1\n",                    /* 1 anew; 5 pushes 3 out */
                  "s2,1,1,1\ns4,1,1,1\n"
                  "!reject too_many_open: record has 1 of 3 observations; missing: b, c\n"
                  "!reject too_many_open: record has 1 of 3 observations; missing: b, c\n");
    t.config = "{\"need\":[\"a\",\"b\"],\"timeout\":\"10ms\"}";
    optest_expect(&t,
                  "@100 s1,1,a,1\n!wm 105\n@90 s2,2,a,1\n!wm 109\n@111 s3,3,a,1\n"
                  "!wm 110\n@112 s1,1,b,1\n" /* too late: 1 is given up, this opens it again */
                  "@112 s2,2,b,1\n"          /* 2 waits until 115 */
                  "!wm 121\n@130 s3,3,b,1\n@130 s4,4,a,1\n@130 s4,4,b,2\n",
                  "@112 s2,1,1\n@130 s4,1,2\n"
                  "!reject timeout: record has 1 of 2 observations; missing: b\n"
                  "!reject timeout: record has 1 of 2 observations; missing: b\n");
}

/* Keys of all types and of several fields, null among them, long ones, and rows that follow each
 * other with and without the same id. */
static void join_keys(void **state) {
    (void)state;
    struct optest t = { .op = "join",
                        .share_offsets = true,
                        .in = "b:bool f:f64 s:string id:string obs:string value:f64",
                        .by = "b f s",
                        .config = "{\"id\":\"id\",\"need\":[\"x\",\"y\"]}" };
    optest_expect(&t,
                  "true,1,s,a,x,1\nfalse,1,s,a,y,2\ntrue,2,s,a,y,3\ntrue,1,t,a,y,4\n"
                  "true,1,s,b,y,5\nnull,1,s,a,y,6\ntrue,null,s,a,y,7\ntrue,1,null,a,y,8\n"
                  "true,1,s,a,y,9\n"
                  "true,1,null,a,x,10\ntrue,null,s,a,x,11\nnull,1,s,a,x,12\ntrue,1,s,b,x,13\n"
                  "true,1,t,a,x,14\ntrue,2,s,a,x,15\nfalse,1,s,a,x,16\n",
                  "true,1,s,1,9\ntrue,1,null,10,8\ntrue,null,s,11,7\nnull,1,s,12,6\n"
                  "true,1,s,13,5\ntrue,1,t,14,4\ntrue,2,s,15,3\nfalse,1,s,16,2\n");
    /* neighbours that differ in one field only, or are each other's beginning */
    optest_expect(&t,
                  "true,1,s,a,x,1\ntrue,2,s,a,y,2\nfalse,2,s,a,x,3\nfalse,2,st,a,y,4\n"
                  "false,2,s,a,y,5\nfalse,2,s,ab,y,6\nfalse,2,s,a,x,7\n",
                  "false,2,s,3,5\n");
    t.in = "id:string obs:string value:f64";
    t.by = NULL;
    t.config = "{\"id\":\"id\",\"need\":[\"x\",\"y\"],\"max_open\":2}";
    optest_expect(&t,
                  "an-id-of-more-than-24-bytes-1,x,1\nan-id-of-more-than-24-bytes-2,x,2\n"
                  "an-id-of-more-than-24-bytes-3,x,3\nan-id-of-more-than-24-bytes-2,y,4\n"
                  "an-id-of-more-than-24-bytes-1,y,5\n",
                  "2,4\n"
                  "!reject too_many_open: record has 1 of 2 observations; missing: y\n");
}

/* As many names as there may be: the last one completes. */
static void join_of_64(void **state) {
    (void)state;
    struct sbuf config = { 0 }, in = { 0 }, want = { 0 };
    sbuf_adds(&config, "{\"need\":[\"n0\"");
    for (int i = 1; i < 64; i++)
        sbuf_printf(&config, ",\"n%d\"", i);
    sbuf_adds(&want, "s");
    for (int i = 0; i < 64; i++) {
        sbuf_printf(&in, "s,1,n%d,%d\n", 63 - i, 63 - i);
        sbuf_printf(&want, ",%d", i);
    }
    sbuf_adds(&want, "\n");
    sbuf_adds(&config, "]}");
    struct optest t = { .op = "join", .in = OBS, .config = sbuf_str(&config) };
    optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
    config.len -= 2;
    sbuf_adds(&config, ",\"n64\"]}");
    t.config = sbuf_str(&config);
    expect_error(&t, "65 names; at most 64");
    sbuf_free(&config);
    sbuf_free(&in);
    sbuf_free(&want);
}

/* A null that is followed by a value counts as the value, and the other way round. */
static void join_later_counts(void **state) {
    (void)state;
    struct optest t = {
        .op = "join", .share_offsets = true, .in = OBS, .config = "{\"need\":[\"a\",\"b\"]}"
    };
    optest_expect(&t, "s,1,a,null\ns,1,a,2\ns,1,b,3\ns,2,a,2\ns,2,a,null\ns,2,b,3\n",
                  "s,2,3\ns,null,3\n");
    assert_true(optest_state(&t, "s,1,a,1\ns,1,b,2\ns,2,zzz,1\n") == 0);
}

/* The time of an id may be up between two of its own rows that follow each other. */
static void join_times_out_itself(void **state) {
    (void)state;
    struct optest t = { .op = "join",
                        .share_offsets = true,
                        .in = OBS,
                        .config = "{\"need\":[\"a\",\"b\"],\"timeout\":\"10ms\"}" };
    optest_expect(&t,
                  "@100 s,1,a,1\n!wm 109\n@109 s,1,zzz,1\n!wm 110\n@110 s,1,b,2\n"
                  "@111 s,1,a,3\n",
                  "@111 s,3,2\n"
                  "!reject timeout: record has 1 of 2 observations; missing: b\n");
}

static void feed(struct optest_op *o, int64_t id, const char *name, int64_t off, int64_t wm) {
    struct span s = { .p = "s", .len = 1 }, obs = { .p = name, .len = 1 };
    double v = 1;
    struct column c[] = { { .str = &s }, { .i64 = &id }, { .str = &obs }, { .f64 = &v } };
    struct batch b = {
        .schema = o->ctx.in[0], .cols = c, .rows = 1, .n = 1, .off0 = off, .time = &wm, .wm = &wm
    };
    o->counts.in++;
    o->desc->process(o->self, &o->ctx, 0, &b);
    arena_reset(&o->tick);
}
/* Counters begin with the process, open records do not: giving one up must not count below zero. */
static void join_counts_after_restart(void **state) {
    (void)state;
    struct optest t = { .op = "join",
                        .in = OBS,
                        .config = "{\"need\":[\"a\",\"b\"],\"timeout\":\"10ms\"}" };
    struct optest_op before, after;
    assert_int_equal(optest_open(&before, &t, NULL), 0);
    assert_int_equal(optest_open(&after, &t, NULL), 0);
    for (int id = 1; id <= 3; id++)
        feed(&before, id, "a", id, 100);
    const void *key, *value;
    uint32_t klen, vlen;
    for (uint64_t it = 0; state_next(before.table[0], &it, &key, &klen, &value, &vlen);)
        state_load(after.table[0], key, klen, value, vlen);
    after.desc->rebuild(after.self, &after.ctx);
    for (int id = 4; id <= 6; id++) { /* the first pushes out all of before, then each the last */
        feed(&after, id, "a", id, 100 * id);
        const struct op_counts *c = &after.counts;
        assert_int_equal(state_count(after.table[0]), 1);
        assert_int_equal(c->in, id - 3);
        assert_int_equal(c->absorbed, 1);
        assert_int_equal(c->rejected, id - 4);
    }
    optest_close(&before);
    optest_close(&after);
}

static void note_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                        const char *text) {
    (void)b;
    (void)row;
    (void)code;
    sbuf_printf(((struct optest_op *)c->task)->user, "%s\n", text);
}
/* Of ids that were opened at one position the same one goes first, before and after a restart. */
static void join_breaks_ties(void **state) {
    (void)state;
    struct optest t = { .op = "join",
                        .in = OBS,
                        .config = "{\"need\":[\"a\",\"b\",\"c\"],\"max_open\":3}" };
    for (int restored = 0; restored < 2; restored++) {
        struct optest_op o;
        struct sbuf dead = { 0 };
        assert_int_equal(optest_open(&o, &t, NULL), 0);
        o.user = &dead;
        o.host.reject = note_reject;
        feed(&o, 7, "a", 1, 0);
        feed(&o, 5, "b", 1, 0);
        feed(&o, 6, "c", 1, 0);
        for (int id = 8; id <= 10; id++) {
            if (restored)
                o.desc->rebuild(o.self, &o.ctx);
            feed(&o, id, "a", id, 0);
        }
        assert_string_equal(sbuf_str(&dead), "record has 1 of 3 observations; missing: a, c\n"
                                             "record has 1 of 3 observations; missing: a, b\n"
                                             "record has 1 of 3 observations; missing: b, c\n");
        sbuf_free(&dead);
        optest_close(&o);
    }
}

static void join_errors(void **state) {
    (void)state;
    struct optest t = { .op = "join", .share_offsets = true, .in = OBS };
    t.config = "{}";
    expect_error(&t, "names that make a record complete");
    t.config = "{\"need\":[\"a\",\"a\"]}";
    expect_error(&t, "twice");
    t.config = "{\"need\":[\"source\"]}";
    expect_error(&t, "has a field 'source' already");
    t.config = "{\"schema\":{\"a\":\"string\"}}";
    expect_error(&t, "an observation is f64");
    t.config = "{\"schema\":{\"a\":\"f64\",\"source\":\"f64\"}}";
    expect_error(&t, "is string in the input, not f64");
    t.config = "{\"need\":[\"a\",\"b\"],\"schema\":{\"a\":\"f64\",\"msgid\":\"i64\"}}";
    expect_error(&t, "need/b: 'b' is not in 'schema'");
    t.config = "{\"id\":\"nope\",\"need\":[\"a\"]}";
    expect_error(&t, "no field 'nope'");
}

enum { IDS = 400, NEED = 4, OPEN_MAX = 7 };
struct open_id {
    int id, opened, have;
    double v[NEED];
    bool live;
};

/* Random interleavings of records against a row-at-a-time reference with lists, with few open ids
 * allowed so that many are given up. */
static void join_equals_oracle(void **state) {
    (void)state;
    uint64_t seed = test_seed(99);
    for (int round = 0; round < test_scale(10); round++) {
        struct sbuf in = { 0 }, want = { 0 }, dead = { 0 };
        static struct open_id open[IDS];
        int nopen = 0, rows = 0;
        uint32_t spread = 1 + (uint32_t)(test_random(&seed) % 12);
        memset(open, 0, sizeof open);
        for (int step = 0; step < 1500; step++) {
            int id = step / 20 + (int)(test_random(&seed) % spread);
            int name = (int)(test_random(&seed) % NEED), burst = test_random(&seed) % 4 ? 1 : NEED;
            for (int i = 0; i < burst; i++, name = (name + 1) % NEED, rows++) {
                double v = (double)(test_random(&seed) % 1000);
                sbuf_printf(&in, "s%d,%d,n%d,%d\n", id, id, name, (int)v);
                struct open_id *o = &open[id], *old = NULL;
                if (!o->live) {
                    for (int k = 0; k < IDS; k++)
                        if (open[k].live && (!old || open[k].opened < old->opened))
                            old = &open[k];
                    if (nopen == OPEN_MAX) {
                        sbuf_printf(&dead,
                                    "!reject too_many_open: record has %d of 4 observations; "
                                    "missing: ",
                                    __builtin_popcount((unsigned)old->have));
                        for (int k = 0, n = 0; k < NEED; k++)
                            if (!(old->have >> k & 1))
                                sbuf_printf(&dead, "%sn%d", n++ ? ", " : "", k);
                        sbuf_adds(&dead, "\n");
                        old->live = false;
                        nopen--;
                    }
                    *o = (struct open_id){ .id = id, .opened = rows, .live = true };
                    nopen++;
                }
                o->have |= 1 << name;
                o->v[name] = v;
                if (o->have != (1 << NEED) - 1)
                    continue;
                sbuf_printf(&want, "s%d,%d,%d,%d,%d\n", id, (int)o->v[0], (int)o->v[1],
                            (int)o->v[2], (int)o->v[3]);
                o->live = false;
                nopen--;
            }
        }
        sbuf_add(&want, dead.p, dead.len);
        struct optest t = { .op = "join",
                            .share_offsets = true,
                            .in = OBS,
                            .config = "{\"need\":[\"n0\",\"n1\",\"n2\",\"n3\"],\"max_open\":7}" };
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        t.by = "source";
        t.share_offsets = false;
        optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
        sbuf_free(&in);
        sbuf_free(&want);
        sbuf_free(&dead);
    }
}

/* ---- annotate ---- */

static const char *const tables[] = { "t",     "k1:oslo,1\r\nk2:,2\n\nk3:rome,\nk1:twice,9\n",
                                      "bad",   "k1:oslo,x\n",
                                      "short", "k1:oslo\n",
                                      "long",  "k1:oslo,1,2\n",
                                      "csv",   "k1,oslo,1\n",
                                      "latin", "k1:K\xf6ln\n",
                                      NULL };

static void annotate_joins(void **state) {
    (void)state;
    struct optest t = { .op = "annotate",
                        .in = "k:string v:f64",
                        .files = tables,
                        .config = "{\"table\":\"t\",\"key\":\"k\","
                                  "\"columns\":{\"city\":\"string\",\"n\":\"i64\"}}" };
    const char *rows = "k1,1\nk9,2\nk2,3\nnull,4\nk3,5\nk1,6\n";
    optest_expect(&t, rows,
                  "k1,1,oslo,1\nk9,2,null,null\nk2,3,null,2\nnull,4,null,null\nk3,5,rome,null\n"
                  "k1,6,oslo,1\n");
    t.config = "{\"table\":\"t\",\"key\":\"k\",\"on_miss\":\"drop\","
               "\"columns\":{\"city\":\"string\",\"n\":\"f64\"}}";
    optest_expect(&t, rows, "k1,1,oslo,1\nk2,3,null,2\nk3,5,rome,null\nk1,6,oslo,1\n");
    t.config = "{\"table\":\"t\",\"key\":\"k\",\"on_miss\":\"reject\","
               "\"columns\":{\"city\":\"string\",\"n\":\"f64\"}}";
    optest_expect(&t, rows,
                  "k1,1,oslo,1\nk2,3,null,2\nk3,5,rome,null\nk1,6,oslo,1\n"
                  "!reject no_entry: 'k9' is not in the table\n"
                  "!reject no_entry: 'null' is not in the table\n");
    struct sbuf longs = { 0 }, dead = { 0 }; /* cut off; half a character is a `?` */
    for (int i = 0; i < 2; i++) {
        sbuf_adds(&longs, i ? "x" : "");
        sbuf_adds(&dead, i ? "!reject no_entry: 'x" : "!reject no_entry: '");
        for (int k = 0; k < 300; k++)
            sbuf_adds(&longs, "\xc3\xa9");
        for (int k = 0; k < 255 - i; k++)
            sbuf_adds(&dead, "\xc3\xa9");
        sbuf_adds(&longs, ",1\n");
        sbuf_adds(&dead, i ? "?\n" : "\n");
    }
    optest_expect(&t, sbuf_str(&longs), sbuf_str(&dead));
    sbuf_free(&longs);
    sbuf_free(&dead);
    t.config = "{\"table\":\"csv\",\"key\":\"k\",\"key_separator\":\",\","
               "\"columns\":{\"city\":\"string\",\"n\":\"f64\"}}";
    optest_expect(&t, "k1,0\n", "k1,0,oslo,1\n");
}

/* Equal tables are shared while they are open; the same file read otherwise is another one. */
static void annotate_shares(void **state) {
    (void)state;
    struct optest one = { .op = "annotate",
                          .in = "k:string",
                          .files = tables,
                          .config = "{\"table\":\"t\",\"key\":\"k\","
                                    "\"columns\":{\"city\":\"string\",\"n\":\"f64\"}}" };
    struct optest two = one;
    struct optest_op held;
    struct op_counts c;
    assert_int_equal(optest_open(&held, &one, NULL), 0);
    two.config = "{\"table\":\"t\",\"key\":\"k\",\"on_miss\":\"drop\","
                 "\"columns\":{\"city\":\"string\",\"n\":\"i64\"}}";
    char *got = optest_same(&two, "k1\nk9\nk3\n", &c);
    assert_string_equal(got, "k1,oslo,1\nk3,rome,null\n");
    assert_int_equal(c.filtered, 1);
    assert_int_equal(c.passed, 2);
    free(got);
    two.config = "{\"table\":\"csv\",\"key\":\"k\",\"columns\":{\"all\":\"string\"}}";
    expect_error(&two, "line 1 has 0 columns, not 1");
    two.config = "{\"table\":\"csv\",\"key\":\"k\",\"key_separator\":\",\",\"separator\":\"|\","
                 "\"columns\":{\"all\":\"string\"}}";
    optest_expect(&two, "k1\n", "k1,oslo,1\n");
    optest_close(&held);
    assert_int_equal(optest_open(&held, &two, NULL), 0);
    two.config = "{\"table\":\"csv\",\"key\":\"k\",\"key_separator\":\",\",\"separator\":\",\","
                 "\"columns\":{\"all\":\"string\"}}";
    expect_error(&two, "line 1 has more than 1 columns");
    optest_close(&held);
}

static void annotate_errors(void **state) {
    (void)state;
    struct optest t = { .op = "annotate", .in = "k:string v:f64", .files = tables };
    t.config = "{\"table\":\"bad\",\"key\":\"k\",\"columns\":{\"a\":\"string\",\"b\":\"i64\"}}";
    expect_error(&t, "table 'bad' line 1: 'x' in column 'b' is no i64");
    t.config = "{\"table\":\"short\",\"key\":\"k\",\"columns\":{\"a\":\"string\",\"b\":\"i64\"}}";
    expect_error(&t, "line 1 has 1 columns, not 2");
    t.config = "{\"table\":\"long\",\"key\":\"k\",\"columns\":{\"a\":\"string\",\"b\":\"i64\"}}";
    expect_error(&t, "more than 2");
    t.config = "{\"table\":\"t\",\"key\":\"k\",\"columns\":{\"v\":\"string\",\"b\":\"i64\"}}";
    expect_error(&t, "has a field 'v' already");
    t.config = "{\"table\":\"t\",\"key\":\"v\",\"columns\":{\"a\":\"string\"}}";
    expect_error(&t, "must be string");
    t.config = "{\"table\":\"t\",\"key\":\"k\",\"columns\":{\"a\":\"bool\"}}";
    expect_error(&t, "not bool");
    t.config = "{\"table\":\"latin\",\"key\":\"k\",\"columns\":{\"a\":\"string\"}}";
    expect_error(&t, "in column 'a' is no string");
    t.config = "{\"table\":\"t\",\"key\":\"k\",\"separator\":\"\",\"columns\":{\"a\":\"string\"}}";
    expect_error(&t, "separator: must not be empty");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interpolate_repairs),
        cmocka_unit_test(interpolate_errors),
        cmocka_unit_test(interpolate_equals_oracle),
        cmocka_unit_test(means_are_exact),
        cmocka_unit_test(join_completes),
        cmocka_unit_test(join_gives_up),
        cmocka_unit_test(join_errors),
        cmocka_unit_test(join_equals_oracle),
        cmocka_unit_test(interpolate_alternates),
        cmocka_unit_test(interpolate_state),
        cmocka_unit_test(join_keys),
        cmocka_unit_test(join_later_counts),
        cmocka_unit_test(join_of_64),
        cmocka_unit_test(join_breaks_ties),
        cmocka_unit_test(join_times_out_itself),
        cmocka_unit_test(join_counts_after_restart),
        cmocka_unit_test(annotate_joins),
        cmocka_unit_test(annotate_shares),
        cmocka_unit_test(annotate_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
