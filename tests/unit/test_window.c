/* window_aggregate against a recomputation of every window from all rows, with random lateness,
 * rows out of order, nulls, cuts, aborts and reloads; and by hand at the edges of time. */
#include "engine/num.h"
#include "engine/xsum.h"
#include "operators/window_index.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- oracle ---- */

enum { ROWS_MAX = 600 };
struct row {
    int64_t time, wm; /* wm: before the row */
    char key[8];      /* "null" too */
    bool x_null, i_null;
    double x;
    int64_t i;
};
struct stream {
    struct row row[ROWS_MAX];
    int n;
    int64_t end_wm; /* after the last row; TIME_MAX: the stream ends */
};
struct conf {
    int64_t every, size, lateness;
    bool dead_letter;
};
static int64_t floor_step(int64_t t, int64_t step) {
    while (t % step)
        t--;
    return t;
}
static bool later(int64_t wm, int64_t end, int64_t lateness) { /* the window has fired */
    return (__int128)end + lateness <= wm;
}
static void write_f64(struct sbuf *o, bool null, double v) {
    char num[NUM_F64_MAX_LEN];
    if (null || !isfinite(v))
        sbuf_adds(o, ",null");
    else
        sbuf_printf(o, ",%.*s", num_write_f64(num, v), num);
}
/* One group of one window, from its rows. */
static void group(struct sbuf *o, const struct stream *s, const struct conf *c, int64_t start,
                  const char *key) {
    int64_t end = start + c->size;
    struct xbig sum = { 0 }, sq = { 0 }, isum = { 0 };
    uint64_t rows = 0, nx = 0, ni = 0;
    double lo = 0, hi = 0;
    __int128 total = 0;
    int64_t imax = 0;
    for (int k = 0; k < s->n; k++) {
        const struct row *r = &s->row[k];
        if (r->time < start || r->time >= end || strcmp(r->key, key) ||
            later(r->wm, end, c->lateness))
            continue;
        rows++;
        if (!r->x_null) {
            lo = !nx || r->x < lo ? r->x : lo;
            hi = !nx || r->x > hi ? r->x : hi;
            nx++;
            xbig_add(&sum, r->x);
            xbig_add_square(&sq, r->x);
        }
        if (!r->i_null) {
            imax = !ni || r->i > imax ? r->i : imax;
            ni++;
            total += r->i;
            xbig_add(&isum, (double)r->i);
        }
    }
    if (!rows)
        return;
    sbuf_printf(o, "@%lld %s,%lld,%lld,%llu,%llu", (long long)end - 1, key, (long long)start,
                (long long)end, (unsigned long long)rows, (unsigned long long)nx);
    write_f64(o, !nx, xbig_round(&sum));
    write_f64(o, !nx, nx ? xbig_mean(&sum, nx) : 0);
    write_f64(o, !nx, lo + 0.0);
    write_f64(o, !nx, hi + 0.0);
    write_f64(o, nx < 2, nx < 2 ? 0 : xbig_stddev(&sum, &sq, nx));
    if (ni && total == (int64_t)total)
        sbuf_printf(o, ",%lld", (long long)total);
    else
        sbuf_adds(o, ",null");
    if (ni)
        sbuf_printf(o, ",%lld", (long long)imax);
    else
        sbuf_adds(o, ",null");
    write_f64(o, !ni, ni ? xbig_mean(&isum, ni) : 0);
    sbuf_adds(o, "\n");
}
static const char aggregates[] =
    "\"n\": \"count()\", \"nx\": \"count(x)\", \"sx\": \"sum(x)\", \"mx\": \"mean(x)\", "
    "\"lo\": \"min(x)\", \"hi\": \"max(x)\", \"dx\": \"stddev(x)\", \"si\": \"sum(i)\", "
    "\"mi\": \"max(i)\", \"ai\": \"mean(i)\"";

static int by_bytes(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    /* a null is bytes that no text has, behind all texts */
    int nx = !strcmp(x, "null"), ny = !strcmp(y, "null");
    return nx || ny ? nx - ny : strcmp(x, y);
}
/* All windows that have fired when the stream is at its end, by (end, key); then dead letters. */
static void recompute(struct sbuf *o, const struct stream *s, const struct conf *c,
                      const char **keys, int nkeys, uint64_t *late) {
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    *late = 0;
    for (int k = 0; k < s->n; k++) {
        lo = s->row[k].time < lo ? s->row[k].time : lo;
        hi = s->row[k].time > hi ? s->row[k].time : hi;
    }
    qsort(keys, (size_t)nkeys, sizeof *keys, by_bytes);
    for (int64_t w = floor_step(lo, c->every) - c->size / c->every * c->every - c->every;
         s->n && w <= hi; w += c->every)
        for (int k = 0;
             k < nkeys && (s->end_wm == TIME_MAX || later(s->end_wm, w + c->size, c->lateness));
             k++)
            group(o, s, c, w, keys[k]);
    for (int k = 0; k < s->n; k++)
        if (later(s->row[k].wm, floor_step(s->row[k].time, c->every) + c->size, c->lateness)) {
            ++*late;
            if (c->dead_letter)
                sbuf_adds(o, "!reject late: the row is late: its last window has fired\n");
        }
}

/* ---- random streams ---- */

static const char *const key_words[] = { "a", "b", "null", "ab", "c", "zz", "B", "~" };
static void make_stream(struct stream *s, uint64_t *seed, int64_t base, int64_t step, int style) {
    int64_t t = base, wm = TIME_MIN, slack = (int64_t)(test_random(seed) % 5) * step * 8;
    s->n = (int)(test_random(seed) % ROWS_MAX);
    for (int k = 0; k < s->n; k++) {
        uint64_t r = test_random(seed);
        struct row *x = &s->row[k];
        t += (int64_t)(r % (uint64_t)(2 * step + 1));
        if (r >> 20 & 1 && (r >> 21 & 63) == 0)
            t += step * 200;
        x->time = t - (r >> 8 & 3 ? 0 : (int64_t)((r >> 10) % (uint64_t)(step * 40 + 1)));
        x->wm = wm;
        snprintf(x->key, sizeof x->key, "%s", key_words[r >> 30 & 7]);
        x->x_null = (r >> 33 & 7) == 0;
        x->i_null = (r >> 36 & 3) == 0;
        x->x = (double)(int64_t)(test_random(seed) % 20001 - 10000) / 10;
        if (style == 1)
            x->x = ldexp(x->x, (int)(test_random(seed) % 1400) - 700);
        x->i = (int64_t)(test_random(seed) % 2001) - 1000;
        if (style == 2 && (r >> 40 & 15) == 0)
            x->i = r >> 44 & 1 ? INT64_MAX : INT64_MIN;
        if ((r >> 50 & 3) == 0 && t - slack > wm)
            wm = t - slack;
    }
    s->end_wm = test_random(seed) & 1 ? TIME_MAX : wm;
}
static char *stream_text(const struct stream *s) {
    struct sbuf o = { 0 };
    int64_t wm = TIME_MIN;
    char num[NUM_F64_MAX_LEN];
    for (int k = 0; k < s->n; k++) {
        const struct row *r = &s->row[k];
        if (r->wm != wm)
            sbuf_printf(&o, "!wm %lld\n", (long long)(wm = r->wm));
        sbuf_printf(&o, "@%lld %s,", (long long)r->time, r->key);
        if (r->x_null)
            sbuf_adds(&o, "null,");
        else
            sbuf_printf(&o, "%.*s,", num_write_f64(num, r->x), num);
        sbuf_printf(&o, r->i_null ? "null\n" : "%lld\n", (long long)r->i);
    }
    if (s->end_wm == TIME_MAX)
        sbuf_adds(&o, "!end\n");
    else if (s->end_wm != wm)
        sbuf_printf(&o, "!wm %lld\n", (long long)s->end_wm);
    char *text = strdup(sbuf_str(&o));
    sbuf_free(&o);
    return text;
}

static void equals_recomputation(void **state) {
    (void)state;
    static const int64_t every[] = { 1, 7, 10, 60, 1000 };
    static const int64_t base[] = {
        0, -100000, 1357000000123, 253402300790000, -62167219200000, -1
    };
    struct stream *s = malloc(sizeof *s);
    for (int round = test_scale(150); round > 0; round--) {
        uint64_t seed = test_seed(1) * 1000 + (uint64_t)round, first = seed, late;
        struct conf c = { .every = every[test_random(&seed) % 5] };
        c.size = c.every + (int64_t)(test_random(&seed) % 9) * c.every +
                 (test_random(&seed) & 1 ? c.every * 3 / 7 : 0);
        c.lateness = test_random(&seed) & 1 ? 0 : (int64_t)(test_random(&seed) % 30) * c.every / 3;
        c.dead_letter = test_random(&seed) & 1;
        make_stream(s, &seed, base[test_random(&seed) % 6], 1 + c.every / 8, round % 3);
        char config[1024];
        snprintf(config, sizeof config,
                 "{\"aggregate\": {%s}, \"every\": \"%lldms\", \"size\": \"%lldms\", "
                 "\"lateness\": \"%lldms\", \"late\": \"%s\"}",
                 aggregates, (long long)c.every, (long long)c.size, (long long)c.lateness,
                 c.dead_letter ? "dead_letter" : "drop");
        struct optest t = { .op = "window_aggregate",
                            .out = "out",
                            .in = "key:string x:f64 i:i64",
                            .by = "key",
                            .config = config };
        const char *keys[8];
        memcpy(keys, key_words, sizeof keys);
        struct sbuf want = { 0 };
        struct op_counts counts;
        recompute(&want, s, &c, keys, 8, &late);
        char *rows = stream_text(s), *got = optest_same(&t, rows, &counts);
        if (strcmp(got, sbuf_str(&want))) {
            size_t k = 0;
            while (got[k] == want.p[k])
                k++;
            while (k && got[k - 1] != '\n')
                k--;
            fail_msg("seed %llu: %s\n%.*s\nnot\n%.*s", (unsigned long long)first, config,
                     (int)strcspn(got + k, "\n"), got + k, (int)strcspn(want.p + k, "\n"),
                     want.p + k);
        }
        assert_int_equal(c.dead_letter ? counts.rejected : counts.late, late);
        free(got);
        free(rows);
        sbuf_free(&want);
    }
    free(s);
}

/* ---- by hand ---- */

static void tumbling(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "k:i64 x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"n\": \"count()\", \"m\": \"mean(x * 2)\"}, "
                                  "\"every\": \"10s\"}" };
    optest_expect(&t,
                  "@1000 2,1\n@2000 1,5\n@9999 2,2\n!wm 9999\n@9000 1,null\n!wm 10000\n"
                  "@9999 2,100\n@10000 2,null\n!wm 25000\n!end\n",
                  "@9999 1,0,10000,2,10\n@9999 2,0,10000,2,3\n@19999 2,10000,20000,1,null\n");
    char *s = optest_schema(&t);
    assert_string_equal(s, "{k: i64, window_start: i64, window_end: i64, n: i64, m: f64}");
    free(s);
}
static void sliding_without_group(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "x:i64",
                        .config = "{\"aggregate\": {\"s\": \"sum(x)\", \"v\": \"variance(x)\"}, "
                                  "\"every\": \"10ms\", \"size\": \"25ms\"}" };
    optest_expect(
        &t, "@-1 1\n@3 2\n@24 4\n!end\n",
        "@4 -20,5,3,0.5\n@14 -10,15,3,0.5\n@24 0,25,6,2\n@34 10,35,4,null\n@44 20,45,4,null\n");
}
/* Of the windows that hold it, a row may be late for some: only those that fire later count it. */
static void late_for_some(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "x:i64",
                        .config = "{\"aggregate\": {\"s\": \"sum(x)\"}, \"every\": \"10ms\", "
                                  "\"size\": \"20ms\", \"late\": \"dead_letter\"}" };
    optest_expect(&t, "@5 1\n!wm 10\n@6 2\n!wm 20\n@7 4\n@12 8\n!end\n",
                  "@9 -10,10,1\n@19 0,20,3\n@29 10,30,8\n"
                  "!reject late: the row is late: its last window has fired\n");
}
/* New groups in slices that windows have fired from, more than there was room for. */
static void late_groups(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "k:i64 x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"s\": \"sum(x)\", \"lo\": \"min(x)\"}, "
                                  "\"every\": \"10ms\", \"size\": \"40ms\"}" };
    struct sbuf rows = { 0 }, want = { 0 };
    sbuf_adds(&rows, "@5 0,1\n!wm 10\n");
    for (int k = 1; k < 150; k++)
        sbuf_printf(&rows, "@6 %d,%d\n", k, k);
    sbuf_adds(&rows, "@15 7,1\n!end\n");
    for (int end = 10; end <= 50; end += 10)
        for (int k = 0; k < 150; k++) {
            int old = (k == 0 || end > 10) && end <= 40 ? k ? k : 1 : 0;
            int more = k == 7 && end >= 20;
            if (old || more)
                sbuf_printf(&want, "@%d %d,%d,%d,%d,%d\n", end - 1, k, end - 40, end, old + more,
                            more ? 1 : old);
        }
    optest_expect(&t, sbuf_str(&rows), sbuf_str(&want));
    sbuf_free(&rows);
    sbuf_free(&want);
}
static void edges_of_time(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "x:f64",
                        .config = "{\"aggregate\": {\"s\": \"sum(x)\"}, \"every\": \"1d\", "
                                  "\"lateness\": \"3650d\"}" };
    optest_expect(&t,
                  "@253402300799999 1\n@-62167219200000 2\n@-1 4\n@0 8\n"
                  "@1152921504606846976 16\n@-1152921504606846976 32\n@9223372036854775807 64\n"
                  "@-9223372036854775807 128\n256\n!end\n",
                  "@-1152921504528000001 -1152921504614400000,-1152921504528000000,32\n"
                  "@-62167132800001 -62167219200000,-62167132800000,2\n@-1 -86400000,0,4\n"
                  "@86399999 0,86400000,8\n@253402300799999 253402214400000,253402300800000,1\n"
                  "@1152921504614399999 1152921504528000000,1152921504614400000,16\n"
                  "!reject bad_time: the event time is out of range\n"
                  "!reject bad_time: the event time is out of range\n"
                  "!reject no_time: the row has no event time\n");
}
/* Numbers that no small sum holds together, and sums beyond the doubles. */
static void wide_sums(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config =
                            "{\"aggregate\": {\"s\": \"sum(x)\", \"m\": \"mean(x)\", "
                            "\"d\": \"stddev(x)\"}, \"every\": \"10ms\", \"size\": \"20ms\"}" };
    struct op_counts c;
    char *got = optest_same(&t,
                            "@1 a,1e300\n@2 a,1\n@3 a,-1e300\n@4 b,1e308\n@5 b,1e308\n@6 a,1e-300\n"
                            "!wm 50\n!end\n",
                            &c);
    assert_string_equal(got, "@9 a,-10,10,1,0.25,8.164965809277261e299\n@9 b,-10,10,null,1e308,0\n"
                             "@19 a,0,20,1,0.25,8.164965809277261e299\n@19 b,0,20,null,1e308,0\n");
    assert_int_equal(c.nulled, 2);
    free(got);
}

/* 0 and -0 are one value, and which comes first does not matter. */
static void zeros(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"lo\": \"min(x)\", \"hi\": \"max(x)\"}, "
                                  "\"every\": \"10ms\"}" };
    optest_expect(&t, "@1 a,-0\n@2 a,0\n@3 b,0\n@4 b,-0\n@5 c,-0\n!end\n",
                  "@9 a,0,10,0,0\n@9 b,0,10,0,0\n@9 c,0,10,0,0\n");
    assert_true(optest_state(&t, "@1 a,-0\n@2 a,0\n") == optest_state(&t, "@1 a,0\n@2 a,-0\n"));
}
/* Groups of several fields with nulls, which come before all values; and one whose key is long. */
static void group_keys(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "a:i64 b:string c:bool",
                        .by = "a b c",
                        .config = "{\"aggregate\": {\"n\": \"count()\"}, \"every\": \"10ms\", "
                                  "\"size\": \"30ms\"}" };
    optest_expect(&t,
                  "@1 null,x,true\n@2 2,null,true\n@3 -2,x,false\n@4 2,x,null\n@5 2,x,true\n"
                  "@6 2,,true\n!wm 10\n",
                  "@9 null,x,true,-20,10,1\n@9 -2,x,false,-20,10,1\n@9 2,null,true,-20,10,1\n"
                  "@9 2,,true,-20,10,1\n@9 2,x,null,-20,10,1\n@9 2,x,true,-20,10,1\n");
    t.in = "b:string";
    t.by = "b";
    struct sbuf in = { 0 }, want = { 0 };
    for (int len = 4096; len <= 4097; len++) {
        sbuf_adds(&in, "@1 ");
        for (int i = 0; i < len; i++)
            sbuf_adds(&in, "x");
        sbuf_adds(&in, "\n");
    }
    sbuf_adds(&in, "@2 y\n!wm 10\n");
    sbuf_adds(&want, "@9 ");
    for (int i = 0; i < 4096; i++)
        sbuf_adds(&want, "x");
    sbuf_adds(&want, ",-20,10,1\n@9 y,-20,10,1\n"
                     "!reject key_too_long: the group key is longer than 4096 bytes\n");
    optest_expect(&t, sbuf_str(&in), sbuf_str(&want));
    sbuf_free(&in);
    sbuf_free(&want);
}
/* Windows that have fired leave nothing but how far it went, not even of large sums. */
static void fired_state_is_gone(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate",
                        .out = "out",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"s\": \"stddev(x)\"}, \"every\": \"10ms\", "
                                  "\"size\": \"30ms\"}" };
    uint64_t bare = optest_state(&t, "@1 b,2\n!wm 100\n");
    assert_true(optest_state(&t, "@1 a,1e300\n@2 a,1\n@3 a,-1e300\n@25 c,7\n!wm 100\n") == bare);
    assert_true(optest_state(&t, "@1 a,1e300\n@2 a,1\n@85 c,7\n!wm 100\n") ==
                optest_state(&t, "@85 c,7\n!wm 100\n"));
    assert_true(optest_state(&t, "@85 c,7\n!wm 100\n") != bare); /* its last window is open */
}
/* More aggregates, or more of what they need, than a record holds. */
static void too_many_aggregates(void **state) {
    (void)state;
    struct optest t = { .op = "window_aggregate", .out = "out", .in = "x:f64" };
    for (int wide = 0; wide < 2; wide++) {
        struct sbuf config = { 0 };
        sbuf_adds(&config, "{\"every\": \"1s\", \"aggregate\": {\"a\": \"count()\"");
        for (int i = 0; i < (wide ? 64 : 30); i++)
            sbuf_printf(&config, ", \"a%d\": \"%s(x + %d)\"", i, wide ? "count" : "stddev", i);
        sbuf_adds(&config, "}}");
        t.config = sbuf_str(&config);
        char *e = optest_errors(&t);
        if (!strstr(e, wide ? "more than 64 aggregates" : "keep more than 64 values a group"))
            fail_msg("%s", e);
        free(e);
        sbuf_free(&config);
    }
}
/* Groups that are gone are forgotten: memory follows what is open. */
static void index_forgets(void **state) {
    (void)state;
    struct window_index x = { 0 };
    for (int i = 0; i < 20000; i++) {
        char text[16];
        uint32_t len = (uint32_t)snprintf(text, sizeof text, "k%d", i);
        struct span key = { .p = text, .len = len };
        window_index_add(&x, i, key, state_hash(text, len));
        window_index_sort(&x);
        if (i >= 10) {
            uint32_t id = window_index_find(&x, key, state_hash(text, len));
            assert_true(window_slice_has(&x.slice[x.nslices - 1], id));
            window_index_drop_first(&x);
        }
    }
    assert_int_equal(x.entries, 10);
    assert_int_equal(x.nslices, 10);
    assert_in_range(x.nkeys, 10, 200);
    window_index_free(&x);
}

static void submit_errors(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        { "{\"aggregate\": {\"a\": \"median(x)\"}, \"every\": \"1s\"}", "an aggregate is count" },
        { "{\"aggregate\": {\"a\": \"meen(x)\"}, \"every\": \"1s\"}", "did you mean 'mean'" },
        { "{\"aggregate\": {\"a\": \"sum(k)\"}, \"every\": \"1s\"}",
          "sum needs a number, not string" },
        { "{\"aggregate\": {\"a\": \"sum(y)\"}, \"every\": \"1s\"}", "there is no field 'y'" },
        { "{\"aggregate\": {}, \"every\": \"1s\"}", "no aggregates" },
        { "{\"aggregate\": {\"k\": \"count()\"}, \"every\": \"1s\"}", "a field 'k' already" },
        { "{\"aggregate\": {\"window_end\": \"count()\"}, \"every\": \"1s\"}",
          "a field 'window_end'" },
        { "{\"aggregate\": {\"a\": \"count()\"}, \"every\": \"1s\", \"size\": \"500ms\"}",
          "at least 'every'" },
        { "{\"aggregate\": {\"a\": \"count()\"}, \"every\": \"1s\", \"size\": \"100001ms\"}",
          "more than 10000 slices" },
        { "{\"aggregate\": {\"a\": \"count()\"}}", "every" },
        { "{\"aggregate\": {\"a\": \"count()\"}, \"every\": \"0s\"}", "between" },
    };
    struct optest t = { .op = "window_aggregate", .out = "out", .in = "k:string x:f64", .by = "k" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t.config = bad[i][0];
        char *e = optest_errors(&t);
        if (!strstr(e, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], e);
        free(e);
    }
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(tumbling),
        cmocka_unit_test(sliding_without_group),
        cmocka_unit_test(late_for_some),
        cmocka_unit_test(edges_of_time),
        cmocka_unit_test(wide_sums),
        cmocka_unit_test(submit_errors),
        cmocka_unit_test(late_groups),
        cmocka_unit_test(zeros),
        cmocka_unit_test(fired_state_is_gone),
        cmocka_unit_test(too_many_aggregates),
        cmocka_unit_test(group_keys),
        cmocka_unit_test(index_forgets),
        cmocka_unit_test(equals_recomputation),
    };
    return cmocka_run_group_tests_name("window", all, NULL, NULL);
}
