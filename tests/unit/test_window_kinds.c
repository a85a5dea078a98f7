/* Every kind of window against a recomputation in SQLite from all rows at once: random rows with
 * duplicates, nulls, disorder and late ones, through the operator by itself (any cut into batches,
 * aborts, reloads: optest) and through the engine (log, epochs, aborts, kills, a drain at the end).
 * Numbers are quarters, so that SQLite's sums of doubles are exact, too. */
#include "engine/num.h"
#include "operators/window_out.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include "tests/unit/world.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sqlite3.h>

/* ---- rows ---- */

enum { ROWS_MAX = 300 };
/* In the database: no watermark yet, and the watermark of infinity. */
#define WM_NONE (-((int64_t)1 << 62))
#define WM_END  ((int64_t)1 << 62)

struct row {
    int64_t time, wm; /* wm: before the row */
    const char *key;  /* NULL: null */
    uint32_t part;    /* partition: a key comes from one */
    bool x_null, i_null;
    double x;
    int64_t i;
};
struct stream {
    struct row row[ROWS_MAX];
    int n;
    int64_t first_wm, last_wm; /* the first and the last finite one */
    bool ends;
};
static const char *const keys[] = { "a", "b", "ab", "zz", "B", "~", NULL };

enum { PARTS_MAX = 8 };
/* Disorder of up to `slack` before the watermark, now and then more; a watermark after each row
 * (`every_row`, as a source gives it) or now and then. */
static void make_rows(struct stream *s, uint64_t *seed, int64_t base, int64_t step, int64_t slack,
                      bool every_row, uint32_t parts) {
    int64_t wms[PARTS_MAX], maxs[PARTS_MAX], t = base;
    for (int p = 0; p < PARTS_MAX; p++)
        wms[p] = maxs[p] = WM_NONE;
    s->last_wm = WM_NONE;
    uint64_t nkeys = 1 + test_random(seed) % (sizeof keys / sizeof *keys);
    s->n = (int)(test_random(seed) % ROWS_MAX);
    s->first_wm = WM_END;
    for (int k = 0; k < s->n; k++) {
        uint64_t r = test_random(seed);
        struct row *x = &s->row[k];
        t += (int64_t)(r % (uint64_t)(2 * step + 1)) + ((r >> 20 & 63) == 0 ? 40 * step : 0);
        *x = (struct row){ .time = t,
                           .key = keys[(r >> 30) % nkeys],
                           .part = (uint32_t)((r >> 30) % nkeys) % parts,
                           .x_null = (r >> 40 & 7) == 0,
                           .i_null = (r >> 43 & 3) == 0,
                           .x = (double)((int64_t)(r >> 46 & 1023) - 512) / 4,
                           .i = (int64_t)(r >> 56) % 12 };
        if ((r >> 26 & 3) == 0)
            x->time -= (int64_t)(test_random(seed) % (uint64_t)(slack * 2 + 12 * step + 1));
        if (k && (r >> 28 & 3) == 0) /* the row before once more */
            *x = s->row[k - 1];
        int64_t *wm = &wms[x->part], *max = &maxs[x->part];
        x->wm = *wm;
        *max = x->time > *max ? x->time : *max;
        if ((every_row || test_random(seed) % 3 == 0) && *max - slack > *wm)
            s->last_wm = *wm = *max - slack;
        if (s->first_wm == WM_END && *wm != WM_NONE)
            s->first_wm = *wm;
    }
    s->ends = test_random(seed) & 1;
}
static char *rows_text(const struct stream *s) {
    struct sbuf o = { 0 };
    int64_t wm = WM_NONE;
    char num[NUM_F64_MAX_LEN];
    for (int k = 0; k < s->n; k++) {
        const struct row *r = &s->row[k];
        if (r->wm != wm)
            sbuf_printf(&o, "!wm %lld\n", (long long)(wm = r->wm));
        sbuf_printf(&o, "@%lld %s,", (long long)r->time, r->key ? r->key : "null");
        sbuf_printf(&o, r->x_null ? "null," : "%.*s,", num_write_f64(num, r->x), num);
        sbuf_printf(&o, r->i_null ? "null\n" : "%lld\n", (long long)r->i);
    }
    if (s->last_wm != wm)
        sbuf_printf(&o, "!wm %lld\n", (long long)s->last_wm);
    if (s->ends)
        sbuf_adds(&o, "!end\n");
    char *text = strdup(sbuf_str(&o));
    sbuf_free(&o);
    return text;
}

/* ---- SQL ---- */

static void run_sql(sqlite3 *db, const char *text) {
    char *e = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &e) != SQLITE_OK)
        fail_msg("%s\n%s", e, text);
}
static void sql_floor(sqlite3_context *c, int n, sqlite3_value **v) {
    (void)n;
    int64_t t = sqlite3_value_int64(v[0]), d = sqlite3_value_int64(v[1]), r = t % d;
    sqlite3_result_int64(c, t - (r < 0 ? r + d : r));
}
/* Table r: the rows; b: the time at which early results (or a trigger by time) of `step` take the
 * row in first: the multiple that the watermark passes next. */
static sqlite3 *database(const struct stream *s, int64_t step) {
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    sqlite3_create_function(db, "fl", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_floor, NULL,
                            NULL);
    run_sql(db, "create table r(id integer primary key, t integer, wm integer, k text, x real, "
                "i integer, b integer); begin");
    assert_int_equal(sqlite3_prepare_v2(db, "insert into r values(?,?,?,?,?,?,?)", -1, &st, NULL),
                     SQLITE_OK);
    for (int k = 0; k < s->n; k++) {
        const struct row *r = &s->row[k];
        int64_t from = r->wm == WM_NONE ? s->first_wm : r->wm;
        int64_t b = from == WM_END ? WM_END : floor_to(from, step) + step;
        sqlite3_bind_int64(st, 1, k);
        sqlite3_bind_int64(st, 2, r->time);
        sqlite3_bind_int64(st, 3, r->wm);
        sqlite3_bind_text(st, 4, r->key, -1, SQLITE_STATIC);
        sqlite3_bind_double(st, 5, r->x);
        sqlite3_bind_int64(st, 6, r->i);
        sqlite3_bind_int64(st, 7, b);
        if (r->x_null)
            sqlite3_bind_null(st, 5);
        if (r->i_null)
            sqlite3_bind_null(st, 6);
        assert_int_equal(sqlite3_step(st), SQLITE_DONE);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    run_sql(db, "commit");
    return db;
}

/* ---- kinds ---- */

enum kind {
    TIME,       /* tumbling, sliding */
    TIME_EARLY, /* and early results by time */
    TIME_ROWS,  /* tumbling, early results by rows */
    SESSION,
    SESSION_EARLY,
    COUNT,
    GLOBAL_ROWS,
    GLOBAL_EVERY,
    GLOBAL_END,
    KINDS
};
struct conf {
    enum kind kind;
    int64_t every, size, lateness, gap, max_length, step; /* step: of early results, triggers */
    int64_t rows;
    int late;
    bool purge, at_end;
    const char *op;
    char config[1024];
};
static bool has_late(const struct conf *c) {
    return c->kind <= SESSION_EARLY;
}
static bool has_early(const struct conf *c) {
    return c->kind == TIME_EARLY || c->kind == TIME_ROWS || c->kind == SESSION_EARLY;
}

static const char aggregates[] =
    "\"n\": \"count()\", \"nx\": \"count(x)\", \"sx\": \"sum(x)\", \"mx\": \"mean(x)\", "
    "\"lo\": \"min(x)\", \"hi\": \"max(x)\", \"vx\": \"variance(x)\", \"si\": \"sum(i)\", "
    "\"fi\": \"first(i)\", \"lx\": \"last(x)\", \"xb\": \"min_by(x, i)\", \"ib\": \"max_by(i, "
    "x)\"";
static void make_config(struct conf *c) {
    static const char *const late[] = { "drop", "dead_letter", "port" };
    struct sbuf o = { 0 };
    sbuf_printf(&o, "{\"aggregate\": {%s}", aggregates);
    c->op = c->kind <= TIME_ROWS       ? "window_aggregate"
            : c->kind <= SESSION_EARLY ? "window_session"
            : c->kind == COUNT         ? "window_count"
                                       : "window_global";
    if (c->kind <= TIME_ROWS)
        sbuf_printf(&o, ", \"every\": \"%lldms\", \"size\": \"%lldms\"", (long long)c->every,
                    (long long)c->size);
    if (c->kind == SESSION || c->kind == SESSION_EARLY) {
        sbuf_printf(&o, ", \"gap\": \"%lldms\"", (long long)c->gap);
        if (c->max_length)
            sbuf_printf(&o, ", \"max_length\": \"%lldms\"", (long long)c->max_length);
    }
    if (has_late(c))
        sbuf_printf(&o, ", \"lateness\": \"%lldms\", \"late\": \"%s\"", (long long)c->lateness,
                    late[c->late]);
    if (c->kind == TIME_EARLY || c->kind == SESSION_EARLY)
        sbuf_printf(&o, ", \"early_every\": \"%lldms\"", (long long)c->step);
    if (c->kind == TIME_ROWS)
        sbuf_printf(&o, ", \"early_rows\": %lld", (long long)c->rows);
    if (c->kind == COUNT)
        sbuf_printf(&o, ", \"every\": %lld, \"size\": %lld", (long long)c->every,
                    (long long)c->size);
    if (c->kind == GLOBAL_ROWS)
        sbuf_printf(&o, ", \"rows\": %lld", (long long)c->rows);
    if (c->kind == GLOBAL_EVERY)
        sbuf_printf(&o, ", \"every\": \"%lldms\"", (long long)c->step);
    if (c->kind >= GLOBAL_ROWS)
        sbuf_printf(&o, ", \"purge\": %s, \"at_end\": %s", c->purge ? "true" : "false",
                    c->at_end ? "true" : "false");
    snprintf(c->config, sizeof c->config, "%s}", sbuf_str(&o));
    sbuf_free(&o);
}

/* SQL of table m: which row is in which result. `w` and `k` tell results apart, they come out by
 * (fire, early, e, k). */
static void sql_time(struct sbuf *o, const struct conf *c, int64_t end, int64_t last) {
    long long size = c->size, every = c->every, late = c->lateness, n = c->size / c->every;
    sbuf_printf(o,
                "create table a as with recursive n(j) as (select 0 union all select j + 1 from n "
                "where j < %lld) select s, s + %lld as e, q.* from (select fl(t, %lld) - j * %lld "
                "as s, r.* from r, n) q where s + %lld > t and wm < s + %lld + %lld;",
                n, size, every, every, size, size, late);
    sbuf_printf(o,
                "create table m as select e + %lld as fire, s as w, 0 as early, s, e, e - 1 as "
                "time, k, id, t, x, i from a where e + %lld <= %lld",
                late, late, (long long)end);
    if (c->kind == TIME_EARLY)
        sbuf_printf(o,
                    " union all select v.b, v.s || '@' || v.b, 1, a.s, a.e, a.e - 1, a.k, id, t, "
                    "x, i from (select distinct s, k, b from a where b <= %lld and e + %lld > b) v "
                    "join a on a.s = v.s and a.k is v.k and a.b <= v.b",
                    (long long)last, late);
    if (c->kind == TIME_ROWS)
        sbuf_printf(o,
                    " union all select z.rn, z.s || '@' || z.rn, 1, z.s, z.e, z.e - 1, y.k, y.id, "
                    "y.t, y.x, y.i from (select *, row_number() over (partition by s, k order by "
                    "id) as rn from a) z join a y on y.s = z.s and y.k is z.k and y.id <= z.id "
                    "where z.rn %% %lld = 0",
                    (long long)c->rows);
}
/* Sessions of the rows that were in at each time of v: at that of an early result, or at the end.
 */
static void sql_sessions(struct sbuf *o, const struct conf *c, int64_t end, int64_t last) {
    long long gap = c->gap, late = c->lateness, max = c->max_length;
    sbuf_printf(o, "create table a as select *, %s%lld%s as c from r where t + %lld >= wm;",
                max ? "fl(t, " : "", max, max ? ")" : "", late);
    sbuf_printf(o, "create table v as select %lld as at;", (long long)WM_END);
    if (c->kind == SESSION_EARLY)
        sbuf_printf(o, "insert into v select distinct b from a where b <= %lld;", (long long)last);
    sbuf_printf(o,
                "create table p1 as select v.at, a.*, case when t - lag(t) over (partition by "
                "v.at, k, c order by t, id) < %lld then 0 else 1 end as nw from v join a on a.b <= "
                "v.at;"
                "create table p2 as select *, sum(nw) over (partition by at, k, c order by t, id) "
                "as q from p1;",
                gap);
    sbuf_printf(
        o,
        "create table p3 as select *, min(t) over g as s, min(max(t) over g + %lld, %s%lld) "
        "as e, max(b) over g as newest from p2 window g as (partition by at, k, c, q);",
        gap, max ? "c + " : "", max ? max : (long long)WM_END);
    sbuf_printf(o,
                "create table m as select case when at = %lld then e + %lld else at end as fire, "
                "at || '/' || c || '/' || q as w, at <> %lld as early, s, e, e - 1 as time, k, id, "
                "t, x, i from p3 where case when at = %lld then e + %lld <= %lld else newest = at "
                "and e + %lld > at end",
                (long long)WM_END, late, (long long)WM_END, (long long)WM_END, late, (long long)end,
                late);
}
/* Results of rows: after each `step` rows of a group, over the last `size` of them. */
static void sql_rows(struct sbuf *o, long long step, long long size) {
    sbuf_printf(o,
                "create table c as select *, row_number() over (partition by k order by id) as rn "
                "from r; create table m as select z.id as fire, z.rn as w, 0 as early, 0 as s, 0 "
                "as e, z.t as time, y.k, y.id, y.t, y.x, y.i from c z join c y on y.k is z.k and "
                "y.rn <= z.rn and y.rn > z.rn - %lld where z.rn %% %lld = 0",
                size, step);
}
static void sql_global(struct sbuf *o, const struct conf *c, int64_t end, int64_t last) {
    long long rows = c->rows, purge = c->purge;
    bool ends = c->at_end && end == WM_END;
    if (c->kind == GLOBAL_ROWS) {
        sql_rows(o, rows, purge ? rows : ROWS_MAX);
        if (ends)
            sbuf_printf(o,
                        " union all select %lld, 'end', 0, 0, 0, (select max(t) from r), k, id, t, "
                        "x, i from (select *, count(*) over (partition by k) as n from c) where n "
                        "%% %lld > 0 and (not %lld or rn > n - n %% %lld)",
                        (long long)WM_END, rows, purge, rows);
        return;
    }
    if (c->kind == GLOBAL_END)
        last = WM_NONE; /* all rows wait for the end */
    sbuf_printf(o,
                "create table m as select v.b as fire, v.b as w, 0 as early, 0 as s, 0 as e, v.b - "
                "1 as time, r.k, id, t, x, i from (select distinct k, b from r where b <= %lld) v "
                "join r on r.k is v.k and (r.b = v.b or (not %lld and r.b < v.b))",
                (long long)last, purge);
    if (ends)
        sbuf_printf(o,
                    " union all select %lld, 'end', 0, 0, 0, (select max(t) from r), k, id, t, x, "
                    "i from (select *, max(b) over (partition by k) as newest from r) where newest "
                    "> %lld and (not %lld or b > %lld)",
                    (long long)WM_END, (long long)last, purge, (long long)last);
}

/* A query's rows as lines: `prefix`, `@TIME ` of the first column unless NULL, the others. */
static void add_lines(struct sbuf *o, sqlite3 *db, const char *query, const char *prefix,
                      const char *null, bool time) {
    sqlite3_stmt *st;
    char num[NUM_F64_MAX_LEN];
    if (sqlite3_prepare_v2(db, query, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s\n%s", sqlite3_errmsg(db), query);
    while (sqlite3_step(st) == SQLITE_ROW) {
        sbuf_adds(o, prefix);
        if (time)
            sbuf_printf(o, "@%lld ", (long long)sqlite3_column_int64(st, 0));
        for (int c = 1; c < sqlite3_column_count(st); c++) {
            sbuf_adds(o, c > 1 ? "," : "");
            int type = sqlite3_column_type(st, c);
            if (type == SQLITE_INTEGER)
                sbuf_printf(o, "%lld", (long long)sqlite3_column_int64(st, c));
            else if (type == SQLITE_FLOAT)
                sbuf_printf(o, "%.*s", num_write_f64(num, sqlite3_column_double(st, c)), num);
            else
                sbuf_adds(o, type == SQLITE_NULL ? null : (const char *)sqlite3_column_text(st, c));
        }
        sbuf_adds(o, "\n");
    }
    sqlite3_finalize(st);
}
static void make_m(sqlite3 *db, const struct conf *c, const struct stream *s) {
    struct sbuf o = { 0 };
    int64_t end = s->ends ? WM_END : s->last_wm;
    if (c->kind <= TIME_ROWS)
        sql_time(&o, c, end, s->last_wm);
    else if (c->kind <= SESSION_EARLY)
        sql_sessions(&o, c, end, s->last_wm);
    else if (c->kind == COUNT)
        sql_rows(&o, c->every, c->size);
    else
        sql_global(&o, c, end, s->last_wm);
    sbuf_adds(&o, "; create index mi on m(w, k)");
    run_sql(db, sbuf_str(&o));
    sbuf_free(&o);
}
static void results(struct sbuf *o, sqlite3 *db, const struct conf *c, const char *prefix,
                    const char *null, bool time) {
    char query[4096];
    snprintf(
        query, sizeof query,
        "select time, k%s%s, count(*), count(x), sum(x), sum(x) / count(x), min(x), max(x), "
        "case when count(x) > 1 then (count(x) * sum(x * x) - sum(x) * sum(x)) / (count(x) * "
        "(count(x) - 1)) end, sum(i), "
        "(select i from m q where q.w = m.w and q.k is m.k and i is not null "
        "order by t, id limit 1), "
        "(select x from m q where q.w = m.w and q.k is m.k and x is not null "
        "order by t desc, id desc limit 1), "
        "(select x from m q where q.w = m.w and q.k is m.k and x is not null and i is not null "
        "order by i, t, id limit 1), "
        "(select i from m q where q.w = m.w and q.k is m.k and x is not null and i is not null "
        "order by x desc, t, id limit 1) "
        "from m group by w, k order by fire, early, e, k is null, k",
        has_late(c) ? ", s, e" : "",
        has_early(c) ? ", case when early then 'true' else 'false' end" : "");
    add_lines(o, db, query, prefix, null, time);
}
/* Late rows; returns their number. */
static uint64_t late_rows(struct sbuf *o, sqlite3 *db, const struct conf *c) {
    char query[512];
    struct sbuf lines = { 0 };
    if (!has_late(c))
        return 0;
    if (c->kind <= TIME_ROWS)
        snprintf(query, sizeof query,
                 "select t, k, x, i from r where wm >= fl(t, %lld) + %lld + %lld order by id",
                 (long long)c->every, (long long)c->size, (long long)c->lateness);
    else
        snprintf(query, sizeof query, "select t, k, x, i from r where t + %lld < wm order by id",
                 (long long)c->lateness);
    add_lines(&lines, db, query, "late>", "null", true);
    uint64_t n = 0;
    for (size_t k = 0; k < lines.len; k++)
        n += lines.p[k] == '\n';
    for (uint64_t k = 0; c->late == LATE_DEAD_LETTER && k < n; k++)
        sbuf_printf(o, "!reject late: the row is late: %s\n",
                    c->kind <= TIME_ROWS ? "its last window has fired"
                                         : "the watermark has passed its time");
    if (c->late == LATE_PORT)
        sbuf_add(o, lines.p ? lines.p : "", lines.len);
    sbuf_free(&lines);
    return n;
}

/* ---- comparison ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
static void sort_lines(char *text) {
    size_t n = 0, len = strlen(text);
    char **v = calloc(len + 1, sizeof *v), *copy = strdup(text), *save = NULL, *to = text;
    for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        v[n++] = l;
    if (n)
        qsort(v, n, sizeof *v, by_text);
    for (size_t k = 0; k < n; k++) {
        size_t m = strlen(v[k]);
        memcpy(to, v[k], m);
        to[m] = '\n';
        to += m + 1;
    }
    free(copy);
    free(v);
}
/* What has been compared, by kind: a test that compares nothing shows nothing. */
static struct tally { uint64_t results, early, late; } tally[KINDS];
static void count_results(enum kind k, const char *text) {
    for (const char *p = text; *p; p += strcspn(p, "\n") + 1) {
        tally[k].results++;
        tally[k].early += strstr(p, ",true,") && strstr(p, ",true,") < p + strcspn(p, "\n");
    }
}
static void enough(uint64_t rounds) {
    for (int k = 0; k < KINDS; k++) {
        struct conf c = { .kind = (enum kind)k };
        print_message("kind %d: %llu results, %llu early, %llu late rows\n", k,
                      (unsigned long long)tally[k].results, (unsigned long long)tally[k].early,
                      (unsigned long long)tally[k].late);
        assert_true(rounds < 10 || tally[k].results > (k == GLOBAL_END ? rounds / 4 : rounds * 5));
        assert_true(rounds < 10 || !has_early(&c) || tally[k].early > rounds * 2);
        assert_true(rounds < 10 || !has_late(&c) || tally[k].late > rounds);
    }
    memset(tally, 0, sizeof tally);
}
static void equal(char *got, char *want, const struct conf *c, uint64_t seed, const char *how) {
    /* Results that rows cause stand between those that the watermark fires: the order is optest's
     * to check. */
    count_results(c->kind, want);
    if (c->kind == TIME_ROWS) {
        sort_lines(got);
        sort_lines(want);
    }
    if (!strcmp(got, want))
        return;
    size_t k = 0;
    while (got[k] == want[k])
        k++;
    while (k && got[k - 1] != '\n')
        k--;
    fail_msg("BRAID_SEED=%llu, %s: %s %s\n%.*s\nSQLite:\n%.*s", (unsigned long long)seed, how,
             c->op, c->config, (int)strcspn(got + k, "\n"), got + k, (int)strcspn(want + k, "\n"),
             want + k);
}
static void make_conf(struct conf *c, enum kind kind, uint64_t *seed) {
    static const int64_t every[] = { 1, 7, 10, 60, 1000 };
    *c = (struct conf){ .kind = kind, .every = every[test_random(seed) % 5] };
    uint64_t r = test_random(seed);
    c->size = c->every;
    if (kind != TIME_ROWS && r & 1)
        c->size += (int64_t)(r >> 1 & 7) * c->every + (r >> 4 & 1 ? c->every * 3 / 7 : 0);
    c->lateness = r >> 5 & 1 ? 0 : (int64_t)(r >> 6 & 31) * c->every / 3;
    c->gap = 1 + (int64_t)(r >> 11 & 15) * c->every / 2;
    c->max_length = r >> 15 & 1 ? c->gap + (int64_t)(r >> 16 & 63) * c->every / 2 : 0;
    c->step = 1 + (int64_t)(r >> 22 & 31) * c->every / 4;
    c->rows = 1 + (int64_t)(r >> 27 & 7);
    c->late = (int)((r >> 30 & 0xff) % 3);
    c->purge = r >> 38 & 1;
    c->at_end = kind == GLOBAL_END || r >> 39 & 1;
    if (kind == COUNT) {
        c->every = 1 + (int64_t)(r >> 40 & 7);
        c->size = c->every + (r >> 43 & 1 ? (int64_t)(r >> 44 & 31) : 0);
    }
    make_config(c);
}
static int64_t unit(const struct conf *c) {
    return 1 + (c->kind == COUNT ? 10 : c->every / 8);
}

/* ---- by itself ---- */

static void one_alone(enum kind kind, uint64_t seed) {
    static const int64_t base[] = { 0, -100000, 1357000000123, 253402300790000, -62167219200000 };
    static struct stream s;
    uint64_t rng = seed * KINDS + kind;
    struct conf c;
    make_conf(&c, kind, &rng);
    int64_t slack = (int64_t)(test_random(&rng) % 4) * 10 * unit(&c);
    make_rows(&s, &rng, base[test_random(&rng) % 5], unit(&c), slack, test_random(&rng) & 1, 1);
    struct optest t = { .op = c.op, .in = "k:string x:f64 i:i64", .by = "k", .config = c.config };
    t.share_offsets = test_random(&rng) & 1;
    sqlite3 *db = database(&s, c.step);
    struct sbuf want = { 0 };
    struct op_counts counts;
    make_m(db, &c, &s);
    results(&want, db, &c, has_late(&c) ? "out>" : "", "null", true);
    uint64_t late = late_rows(&want, db, &c);
    char *rows = rows_text(&s), *got = optest_same(&t, rows, &counts);
    sbuf_str(&want);
    equal(got, want.p, &c, seed, "by itself");
    tally[kind].late += late;
    assert_int_equal(counts.late, c.late == LATE_DEAD_LETTER ? 0 : late);
    assert_int_equal(counts.rejected, c.late == LATE_DEAD_LETTER ? late : 0);
    assert_int_equal(counts.absorbed + late, s.n);
    free(got);
    free(rows);
    sbuf_free(&want);
    sqlite3_close(db);
}
static void by_itself(void **state) {
    (void)state;
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(60);
    for (uint64_t k = seed; k < seed + n; k++)
        for (int kind = 0; kind < KINDS; kind++)
            one_alone((enum kind)kind, k);
    enough(n);
}

/* ---- through the engine ---- */

static void add_record(struct sbuf *o, const struct row *r) {
    char num[NUM_F64_MAX_LEN];
    sbuf_printf(o, "{\"t\":%lld", (long long)r->time);
    if (r->key)
        sbuf_printf(o, ",\"k\":\"%s\"", r->key);
    if (!r->x_null)
        sbuf_printf(o, ",\"x\":%.*s", num_write_f64(num, r->x), num);
    if (!r->i_null)
        sbuf_printf(o, ",\"i\":%lld", (long long)r->i);
    sbuf_adds(o, "}\n");
}
static void feed(struct world *w, const struct stream *s, uint64_t *rng) {
    struct sbuf o[PARTS_MAX] = { 0 };
    for (int k = 0; k < s->n;) {
        for (int n = 1 + (int)(test_random(rng) % 40); n-- && k < s->n; k++)
            add_record(&o[s->row[k].part], &s->row[k]);
        if (test_random(rng) % 4 == 0)
            executor_inject_abort(w->x);
        for (uint32_t p = 0; p < PARTS_MAX; p++) {
            if (o[p].len)
                world_append_to(w, "rows", p, sbuf_str(&o[p]));
            o[p].len = 0;
        }
        if (test_random(rng) % 3)
            executor_settle(w->x);
        else
            executor_step(w->x);
        if (test_random(rng) % 6 == 0)
            world_restart(w);
    }
    executor_settle(w->x);
    for (int p = 0; p < PARTS_MAX; p++)
        sbuf_free(&o[p]);
}
static struct world_flow *submit(struct world *w, const struct conf *c, int64_t slack) {
    struct sbuf text = { 0 };
    sbuf_printf(&text,
                "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\","
                "\"config\":{\"topic\":\"rows\",\"format\":\"json\",\"schema\":{\"k\":"
                "\"string\",\"x\":\"f64\",\"i\":\"i64\",\"t\":\"i64\"},\"time\":{\"field\":"
                "\"t\",\"unit\":\"ms\"},\"lateness\":\"%lldms\"}},{\"id\":\"win\",\"type\":"
                "\"%s\",\"config\":%s,\"inputs\":[{\"from\":\"in\",\"by\":[\"k\"]}]},{\"id\":"
                "\"out\",\"type\":\"sink\",\"config\":{\"topic\":\"out\",\"format\":\"csv\"},"
                "\"inputs\":[\"win\"]}]}",
                (long long)slack, c->op, c->config);
    struct world_flow *f = world_submit(w, sbuf_str(&text));
    sbuf_free(&text);
    return f;
}
static void one_engine(enum kind kind, uint64_t seed, uint32_t parts) {
    static struct stream s;
    uint64_t rng = seed * KINDS + kind + 77 * parts;
    struct conf c;
    struct world w;
    struct sbuf got = { 0 }, want = { 0 }, none = { 0 };
    struct log_topic_info info;
    struct err e = ERR_INIT;
    make_conf(&c, kind, &rng);
    int64_t slack = (int64_t)(test_random(&rng) % 4) * 10 * unit(&c);
    make_rows(&s, &rng, 1357000000123, unit(&c), slack, true, parts);
    s.ends = true;
    world_open_conf(&w, &(struct world_conf){ .batch_rows = test_random(&rng) & 1 ? 1 : 100,
                                              .lanes = parts > 1 ? 2 : 1 });
    world_topic_parts(&w, "rows", parts);
    struct world_flow *f = submit(&w, &c, slack);
    feed(&w, &s, &rng);
    world_remove(&w, f, true);
    assert_int_equal(log_topic_info(w.log, "out", &info, &e), 0);
    for (uint32_t p = 0; p < info.conf.partitions; p++)
        world_read_part(&w, "out", p, &got);
    sqlite3 *db = database(&s, c.step);
    make_m(db, &c, &s);
    results(&want, db, &c, "", "", false);
    tally[kind].late += late_rows(&none, db, &c);
    sbuf_str(&got);
    sbuf_str(&want);
    if (parts > 1) {
        sort_lines(got.p);
        sort_lines(want.p);
    }
    equal(got.p, want.p, &c, seed, parts > 1 ? "from several partitions" : "through the engine");
    sqlite3_close(db);
    sbuf_free(&got);
    sbuf_free(&want);
    sbuf_free(&none);
    world_close(&w);
}
static void through_the_engine(void **state) {
    (void)state;
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(12);
    for (uint64_t k = seed; k < seed + n; k++)
        for (int kind = 0; kind < KINDS; kind++)
            one_engine((enum kind)kind, k, 1);
    enough(n);
}

/* Keys that come from one partition each (class E2): late is judged by the row's own partition, so
 * the results are those of its rows alone. What only tells how far the others had come by then,
 * early results and triggers by time, is outside. */
static void from_several_partitions(void **state) {
    (void)state;
    static const enum kind kinds[] = { TIME, TIME_ROWS, SESSION, COUNT, GLOBAL_ROWS, GLOBAL_END };
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(8);
    for (uint64_t k = seed; k < seed + n; k++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            one_engine(kinds[i], k, k & 1 ? 3 : 8);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(n < 8 || tally[kinds[i]].results > n * 2);
    memset(tally, 0, sizeof tally);
}

/* ---- by hand ---- */

static void sessions_merge(void **state) {
    (void)state;
    struct optest t = { .op = "window_session",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"n\": \"count()\", \"s\": \"sum(x)\", \"f\": "
                                  "\"first(x)\", \"l\": \"last(x)\"}, \"gap\": \"10ms\", "
                                  "\"lateness\": \"100ms\", \"late\": \"port\"}" };
    /* 10 ms apart: two sessions; one row between them makes them one; a row may come in front */
    optest_expect(
        &t, "@10 a,1\n@20 a,2\n@35 a,4\n!wm 110\n@29 a,8\n@40 b,1\n@9 a,3\n!wm 130\n!wm 150\n",
        "out>@19 a,10,20,1,1,1,1\n"
        "out>@44 a,20,45,3,14,2,4\n"
        "out>@49 b,40,50,1,1,1,1\n"
        "late>@9 a,3\n");
    optest_expect(&t, "@10 a,1\n@20 a,2\n@35 a,4\n!wm 109\n@29 a,8\n@9 a,3\n@11 a,5\n!wm 145\n",
                  "out>@44 a,9,45,6,23,3,4\n");
}
/* Sums that outgrow their small form follow their session when it moves or merges, and go with it.
 */
static void sessions_with_large_sums(void **state) {
    (void)state;
    struct optest t = { .op = "window_session",
                        .out = "out",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config =
                            "{\"aggregate\": {\"s\": \"sum(x)\", \"m\": \"mean(x)\"}, \"gap\": "
                            "\"10ms\", \"lateness\": \"1s\"}" };
    const char *rows = "@50 a,1e300\n@51 a,1\n@51 a,-1e300\n@45 a,1e-300\n@70 a,1e250\n@71 a,3\n"
                       "@71 a,-1e250\n@65 a,2\n@58 a,1e200\n@59 a,-1e200\n!wm 2000\n";
    optest_expect(&t, rows, "@80 a,45,81,6,0.6\n");
    assert_true(optest_state(&t, rows) == 0);
}
static void sessions_are_cut(void **state) {
    (void)state;
    struct optest t = { .op = "window_session",
                        .out = "out",
                        .in = "x:i64",
                        .config = "{\"aggregate\": {\"n\": \"count()\"}, \"gap\": \"10ms\", "
                                  "\"max_length\": \"25ms\", \"early_rows\": 2}" };
    optest_expect(&t, "@-1 1\n@0 1\n@8 1\n@16 1\n@24 1\n@25 1\n@30 1\n!wm 49\n!wm 50\n",
                  "@17 0,18,true,2\n@24 0,25,true,4\n@39 25,40,true,2\n@-1 -1,0,false,1\n"
                  "@24 0,25,false,4\n@39 25,40,false,2\n");
}
static void too_many_sessions(void **state) {
    (void)state;
    struct optest t = { .op = "window_session",
                        .out = "out",
                        .in = "x:i64",
                        .config = "{\"aggregate\": {\"n\": \"count()\"}, \"gap\": \"1ms\"}" };
    struct sbuf rows = { 0 };
    struct op_counts c;
    struct optest_mode m = { .batch = BATCH_ROWS };
    for (int i = 0; i < 1002; i++)
        sbuf_printf(&rows, "@%d 1\n", 2 * i);
    sbuf_adds(&rows, "@0 1\n!end\n");
    char *got = optest_run(&t, sbuf_str(&rows), &m, &c);
    assert_int_equal(c.rejected, 2);
    assert_int_equal(c.made, 1000);
    assert_non_null(strstr(got, "@0 0,1,2\n"));
    assert_non_null(strstr(got, "!reject too_many_sessions: "));
    free(got);
    sbuf_free(&rows);
}
static void count_windows_with_large_sums(void **state) {
    (void)state;
    struct optest t = { .op = "window_count",
                        .in = "x:f64",
                        .config =
                            "{\"aggregate\": {\"s\": \"sum(x)\"}, \"every\": 2, \"size\": 6}" };
    /* rows without event time */
    optest_expect(&t, "1e300\n1\n-1e300\n2\n1e-300\n4\n1\n1\n1\n1\n1\n1\n",
                  "1e300\n3\n7\n-1e300\n8\n6\n");
    t.config = "{\"aggregate\": {\"s\": \"sum(x)\", \"f\": \"first(x)\", \"l\": \"last(x)\"}, "
               "\"every\": 3}";
    optest_expect(&t, "1e300\n1\n-1e300\n2\n1e-300\n4\n", "1,1e300,-1e300\n6,2,4\n");
}
static void global_triggers(void **state) {
    (void)state;
    struct optest t = { .op = "window_global",
                        .in = "k:string x:f64",
                        .by = "k",
                        .config = "{\"aggregate\": {\"s\": \"sum(x)\"}, \"every\": \"10ms\", "
                                  "\"purge\": true}" };
    optest_expect(&t,
                  "@1 a,1e300\n@2 b,1\n@3 a,1\n@4 a,-1e300\n!wm 9\n@12 b,2\n!wm 35\n@36 b,4\n!wm "
                  "39\n!end\n",
                  "@9 a,1\n@9 b,3\n@36 b,4\n");
    t.config = "{\"aggregate\": {\"s\": \"sum(x)\"}, \"every\": \"10ms\", \"rows\": 2, "
               "\"at_end\": false}";
    optest_expect(
        &t,
        "!wm 0\n@1 a,1\n@2 a,2\n@3 a,4\n@4 b,8\n!wm 10\n@11 a,1\n!wm 20\n@21 b,3\n@22 a,1\n!end\n",
        "@2 a,3\n@9 a,7\n@9 b,8\n@11 a,8\n@21 b,11\n");
}
/* A window that waits gives its results the watermark at which they were due: a window below that
 * does not wait counts them as late, one that waits as long takes them. */
static void below_a_window_that_waits(void **state) {
    (void)state;
    struct world w = { 0 };
    world_open(&w, 7, false);
    world_topic(&w, "rows");
    struct world_flow *f = world_submit(
        &w,
        "{\"braid\":1,\"name\":\"f\",\"tasks\":[{\"id\":\"in\",\"type\":\"source\",\"config\":{"
        "\"topic\":\"rows\",\"format\":\"csv\",\"schema\":{\"t\":\"i64\"},\"time\":{\"field\":"
        "\"t\","
        "\"unit\":\"ms\"}}},"
        "{\"id\":\"a\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"count()\"},"
        "\"every\":\"10ms\",\"lateness\":\"30ms\"},\"inputs\":[\"in\"]},"
        "{\"id\":\"b\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"sum(n)\"},"
        "\"every\":\"20ms\",\"late\":\"port\"},\"inputs\":[\"a\"]},"
        "{\"id\":\"c\",\"type\":\"window_aggregate\",\"config\":{\"aggregate\":{\"n\":\"sum(n)\"},"
        "\"every\":\"20ms\",\"lateness\":\"30ms\",\"late\":\"port\"},\"inputs\":[\"a\"]},"
        "{\"id\":\"o1\",\"type\":\"sink\",\"config\":{\"topic\":\"o1\",\"format\":\"csv\"},"
        "\"inputs\":[\"b.late\"]},"
        "{\"id\":\"o2\",\"type\":\"sink\",\"config\":{\"topic\":\"o2\",\"format\":\"csv\"},"
        "\"inputs\":[\"c\"]},"
        "{\"id\":\"o3\",\"type\":\"sink\",\"config\":{\"topic\":\"o3\",\"format\":\"csv\"},"
        "\"inputs\":[\"c.late\"]}]}");
    world_append(&w, "rows", "1\n12\n3\n24\n38\n45\n14\n61\n90\n");
    executor_settle(w.x);
    struct sbuf late = { 0 }, sums = { 0 }, none = { 0 };
    world_read(&w, "o1", &late);
    world_read(&w, "o2", &sums);
    world_read(&w, "o3", &none);
    assert_string_equal(sbuf_str(&late), "0,10,2\n10,20,2\n20,30,1\n30,40,1\n40,50,1\n");
    assert_string_equal(sbuf_str(&sums), "0,20,4\n20,40,2\n40,60,1\n");
    assert_int_equal(none.len, 0);
    world_remove(&w, f, false);
    sbuf_free(&late);
    sbuf_free(&sums);
    sbuf_free(&none);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(sessions_merge),
        cmocka_unit_test(sessions_with_large_sums),
        cmocka_unit_test(sessions_are_cut),
        cmocka_unit_test(too_many_sessions),
        cmocka_unit_test(count_windows_with_large_sums),
        cmocka_unit_test(global_triggers),
        cmocka_unit_test(below_a_window_that_waits),
        cmocka_unit_test(by_itself),
        cmocka_unit_test(through_the_engine),
        cmocka_unit_test(from_several_partitions),
    };
    return cmocka_run_group_tests_name("window kinds", all, NULL, NULL);
}
