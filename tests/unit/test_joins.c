/* Joins of two streams against a batch recomputation in SQLite: the same rows, late, duplicate,
 * null and out of order, go into two tables, and one query says what must come out, in order. */
#include "engine/json.h"
#include "tests/unit/harness.h"
#include "tests/unit/optest.h"
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define IN         "k:string n:i64 id:i64 x:f64"
#define TABLE      "k:string n:i64 id:i64 gone:bool"
#define NULLS      "null,null,null,null"
#define BEFORE_ALL (-1000000000LL) /* the watermark before the first mark */

enum { KEY_NONE, KEY_ONE, KEY_TWO, KEYS };
static const char *const key_by[] = { NULL, "k|k", "k n|k n" };
static const char *const key_equal[] = { "1", "l.k = r.k", "l.k = r.k and l.n = r.n" };
/* Canonical keys: a single string is its bytes (null after all), of several fields null is first.
 */
static const char *const key_order[] = { "kk is kk", "kk is null, kk",
                                         "kk is not null, kk, nn is not "
                                         "null, nn" };

/* ---- random rows ---- */

struct shape {
    int key;
    int64_t lateness;
    bool tombstones; /* then no row of the second input is late */
    bool prompt;     /* results do not wait for a watermark */
};
struct world {
    sqlite3 *db;
    struct sbuf script;
    uint64_t rng;
};

static uint32_t rnd(struct world *w, uint32_t n) {
    return (uint32_t)(test_random(&w->rng) % n);
}

static void sql(struct world *w, const char *text) {
    char *error = NULL;
    if (sqlite3_exec(w->db, text, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", error, text);
}

static void insert(struct world *w, const char *table, int pos, int64_t t, int64_t wm,
                   const char *line) {
    char cell[4][24], text[512], *copy = strdup(line), *save = NULL;
    int i = 0;
    for (char *p = strtok_r(copy, ",", &save); p && i < 4; p = strtok_r(NULL, ",", &save), i++)
        snprintf(cell[i], sizeof cell[i], i == 0 && strcmp(p, "null") != 0 ? "'%s'" : "%s", p);
    free(copy);
    assert_int_equal(i, 4);
    bool gone = strcmp(table, "r") == 0 && strcmp(cell[3], "true") == 0;
    snprintf(text, sizeof text,
             "insert into %s values(%d, %lld, %lld, %s, %s, '%s', %d, 1000000000)", table, pos,
             (long long)t, (long long)wm, cell[0], cell[1], line, gone);
    sql(w, text);
}

static void cells(struct world *w, const struct shape *s, bool right, char *out, size_t len,
                  int id) {
    static const char *const word[] = { "a", "b", "bb", "c" };
    const char *k = rnd(w, 10) ? word[rnd(w, 4)] : "null";
    char n[8];
    if (rnd(w, 12))
        snprintf(n, sizeof n, "%u", rnd(w, 3));
    else
        snprintf(n, sizeof n, "null");
    if (right && s->tombstones)
        snprintf(out, len, "%s,%s,%d,%s", k, n, id,
                 rnd(w, 4) == 0 ? "true" : (rnd(w, 4) ? "false" : "null"));
    else if (rnd(w, 8))
        snprintf(out, len, "%s,%s,%d,%u.5", k, n, id, rnd(w, 50));
    else
        snprintf(out, len, "%s,%s,%d,null", k, n, id);
}

static int64_t row_time(struct world *w, const struct shape *s, int64_t now, int64_t wm) {
    int64_t t = now - 45 + rnd(w, 80);
    if (rnd(w, 5) == 0 && wm > BEFORE_ALL)
        t = wm - 1 + rnd(w, 3) - (rnd(w, 2) ? s->lateness : 0);
    return t;
}

/* Rows of both inputs and marks of the watermark; the same into tables l and r. `fire` of a row:
 * the event by which results of its time are out. */
static void make(struct world *w, const struct shape *s, const char *first, const char *second) {
    int64_t now = -150, wm = BEFORE_ALL, time = 0;
    char line[96] = "";
    char text[160];
    bool right = false;
    w->script.len = 0;
    sql(w, "delete from l; delete from r");
    int events = 20 + (int)rnd(w, 150);
    for (int pos = 0; pos < events; pos++) {
        now += rnd(w, 7);
        if (rnd(w, 4) == 0) {
            int64_t up = now - rnd(w, 25);
            wm = up > wm ? up : wm;
            sbuf_printf(&w->script, "!wm %lld\n", (long long)wm);
            snprintf(text, sizeof text, "update l set fire = %d where t < %lld and fire > %d", pos,
                     (long long)(wm - s->lateness), pos);
            sql(w, text);
            continue;
        }
        if (!line[0] || rnd(w, 10)) { /* else the same once more */
            right = rnd(w, 2);
            cells(w, s, right, line, sizeof line, pos);
            time = row_time(w, s, now, wm);
        }
        if (right && s->tombstones && time < wm - s->lateness)
            time = wm - s->lateness;
        sbuf_printf(&w->script, "%s>@%lld %s\n", right ? second : first, (long long)time, line);
        insert(w, right ? "r" : "l", pos, time, wm, line);
    }
    sbuf_adds(&w->script, "!end\n");
}

/* ---- what must come out ---- */

static void query(struct world *w, const char *text, struct sbuf *out) {
    sqlite3_stmt *st;
    out->len = 0;
    if (sqlite3_prepare_v2(w->db, text, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sqlite3_errmsg(w->db), text);
    while (sqlite3_step(st) == SQLITE_ROW) {
        sbuf_adds(out, (const char *)sqlite3_column_text(st, 0));
        sbuf_adds(out, "\n");
    }
    sqlite3_finalize(st);
}

static int64_t number(struct world *w, const char *text) {
    struct sbuf out = { 0 };
    query(w, text, &out);
    int64_t n = strtoll(sbuf_str(&out), NULL, 10);
    sbuf_free(&out);
    return n;
}

/* Views la and ra: the rows that are not late, with the time `f` at which they fire. */
static void accept(struct world *w, const char *due, int64_t lateness) {
    char text[1200];
    snprintf(text, sizeof text,
             "drop view if exists la; drop view if exists ra;"
             "create view la as select *, %s as f from l where %s > wm - %lld;"
             "create view ra as select *, %s as f from r where %s > wm - %lld",
             due, due, (long long)lateness, due, due, (long long)lateness);
    sql(w, text);
}

static void compare(struct world *w, const struct optest *t, const char *q, const char *late,
                    uint64_t seed) {
    struct sbuf want = { 0 };
    struct op_counts counts;
    query(w, q, &want);
    char *got = optest_same(t, sbuf_str(&w->script), &counts);
    if (strcmp(got, sbuf_str(&want)) != 0)
        fail_msg("BRAID_SEED=%llu %s %s by %s\n%s--- came:\n%s--- SQLite says:\n%s",
                 (unsigned long long)seed, t->op, t->config, t->by ? t->by : "nothing", w->script.p,
                 got, want.p);
    assert_int_equal(counts.late, number(w, late));
    assert_int_equal(counts.rejected, 0);
    free(got);
    sbuf_free(&want);
}

static struct world world_new(void) {
    struct world w = { 0 };
    assert_int_equal(sqlite3_open(":memory:", &w.db), SQLITE_OK);
    sql(&w, "create table l(pos int, t int, wm int, k text, n int, line text, gone int, fire int);"
            "create table r(pos int, t int, wm int, k text, n int, line text, gone int, fire int)");
    return w;
}

static void world_free(struct world *w) {
    sqlite3_close(w->db);
    sbuf_free(&w->script);
}

enum { ROUNDS = 120 };
typedef void round_test(struct world *w, uint64_t seed);
static void rounds(round_test *test) {
    struct world w = world_new();
    uint64_t seed = test_seed(1), n = getenv("BRAID_SEED") ? 1 : (uint64_t)test_scale(ROUNDS);
    for (uint64_t s = seed; s < seed + n; s++) {
        w.rng = s;
        test(&w, s);
    }
    world_free(&w);
}

static struct shape shape_of(struct world *w) {
    return (struct shape){ .key = (int)rnd(w, KEYS), .lateness = rnd(w, 2) ? 0 : 15 };
}

#define LATE_BOTH                                                                                  \
    "select (select count(*) from l) + (select count(*) from r) - "                                \
    "(select count(*) from la) - (select count(*) from ra)"

/* ---- window_join ---- */

static void window_round(struct world *w, uint64_t seed) {
    static const char *const types[] = { "inner", "left", "full" };
    struct shape s = shape_of(w);
    int type = (int)rnd(w, 3), size = 1 + (int)rnd(w, 40);
    char config[160], due[120], q[3000];
    snprintf(config, sizeof config, "{\"size\":\"%dms\",\"type\":\"%s\",\"lateness\":\"%lldms\"}",
             size, types[type], (long long)s.lateness);
    snprintf(due, sizeof due, "(t - ((t %% %d) + %d) %% %d + %d)", size, size, size, size);
    make(w, &s, "left", "right");
    accept(w, due, s.lateness);
    snprintf(q, sizeof q,
             "select '@' || (f - 1) || ' ' || line from ("
             "select l.f f, l.k kk, l.n nn, 0 cls, l.t lt, l.pos lp, r.t rt, r.pos rp, "
             "l.line || ',' || r.line line from la l join ra r on l.f = r.f and %s "
             "union all select l.f, l.k, l.n, 1, l.t, l.pos, 0, 0, l.line || ',' || '" NULLS
             "' from la l where %d > 0 and not exists (select 1 from ra r where l.f = r.f and %s) "
             "union all select r.f, r.k, r.n, 2, r.t, r.pos, 0, 0, '" NULLS
             ",' || r.line from ra r where %d = 2 and not exists (select 1 from la l where l.f = "
             "r.f and %s)) order by f, %s, cls, lt, lp, rt, rp",
             key_equal[s.key], type, key_equal[s.key], type, key_equal[s.key], key_order[s.key]);
    struct optest t = {
        .op = "window_join", .config = config, .in = "left=" IN "|right=" IN, .by = key_by[s.key]
    };
    compare(w, &t, q, LATE_BOTH, seed);
}

static void test_window(void **unused) {
    (void)unused;
    rounds(window_round);
}

/* ---- interval_join ---- */

static void interval_round(struct world *w, uint64_t seed) {
    struct shape s = shape_of(w);
    int left = (int)rnd(w, 2), lower = (int)rnd(w, 60) - 30, upper = lower + (int)rnd(w, 40);
    char config[160], q[3000];
    snprintf(config, sizeof config,
             "{\"lower\":\"%dms\",\"upper\":\"%dms\",\"type\":\"%s\",\"lateness\":\"%lldms\"}",
             lower, upper, left ? "left" : "inner", (long long)s.lateness);
    make(w, &s, "left", "right");
    accept(w, "(t + 1)", s.lateness);
    snprintf(q, sizeof q,
             "select '@' || (f - 1) || ' ' || line from ("
             "select max(l.t, r.t) + 1 f, l.k kk, l.n nn, 0 cls, r.t > l.t side, "
             "case when r.t > l.t then r.pos else l.pos end p1, min(l.t, r.t) t2, "
             "case when r.t > l.t then l.pos else r.pos end p2, l.line || ',' || r.line line "
             "from la l join ra r on r.t between l.t + %d and l.t + %d and %s "
             "union all select l.t + %d + 1, l.k, l.n, 1, 0, l.pos, 0, 0, l.line || ',' || '" NULLS
             "' from la l where %d and not exists (select 1 from ra r where r.t between l.t + %d "
             "and l.t + %d and %s)) order by f, %s, cls, side, p1, t2, p2",
             lower, upper, key_equal[s.key], upper > 0 ? upper : 0, left, lower, upper,
             key_equal[s.key], key_order[s.key]);
    struct optest t = {
        .op = "interval_join", .config = config, .in = "left=" IN "|right=" IN, .by = key_by[s.key]
    };
    compare(w, &t, q, LATE_BOTH, seed);
}

static void test_interval(void **unused) {
    (void)unused;
    rounds(interval_round);
}

/* ---- asof_join ---- */

static void asof_round(struct world *w, uint64_t seed) {
    struct shape s = shape_of(w);
    int left = (int)rnd(w, 2), tolerance = rnd(w, 3) ? (int)rnd(w, 40) : -1;
    char config[160], q[2000], given[48] = "";
    if (tolerance >= 0)
        snprintf(given, sizeof given, ",\"tolerance\":\"%dms\"", tolerance);
    snprintf(config, sizeof config, "{\"type\":\"%s\",\"lateness\":\"%lldms\"%s}",
             left ? "left" : "inner", (long long)s.lateness, given);
    make(w, &s, "left", "right");
    accept(w, "(t + 1)", s.lateness);
    snprintf(q, sizeof q,
             "select '@' || t || ' ' || line || ',' || coalesce(hit, '" NULLS "') from ("
             "select l.t t, l.pos pos, l.k kk, l.n nn, l.line line, (select r.line from ra r where "
             "%s and r.t <= l.t and r.t >= l.t - %d order by r.t desc, r.pos desc limit 1) hit "
             "from la l) where %d or hit is not null order by t, %s, pos",
             key_equal[s.key], tolerance < 0 ? 1000000 : tolerance, left, key_order[s.key]);
    struct optest t = {
        .op = "asof_join", .config = config, .in = "left=" IN "|right=" IN, .by = key_by[s.key]
    };
    compare(w, &t, q, LATE_BOTH, seed);
}

static void test_asof(void **unused) {
    (void)unused;
    rounds(asof_round);
}

/* ---- lookup_join ---- */

/* A late row of the table counts for the rows that come out after it, unless a newer one of its key
 * is in effect by then. */
static void lookup_round(struct world *w, uint64_t seed) {
    struct shape s = shape_of(w);
    int left = (int)rnd(w, 2);
    char config[160], q[3000], late[1000], order[80];
    s.tombstones = rnd(w, 2);
    snprintf(order, sizeof order, "t, %s, pos", key_order[s.key]);
    s.prompt = rnd(w, 3) == 0;
    snprintf(config, sizeof config,
             "{\"type\":\"%s\",\"lateness\":\"%lldms\",\"version\":\"%s\"%s}",
             left ? "left" : "inner", (long long)s.lateness, s.prompt ? "newest" : "time",
             s.tombstones ? ",\"deleted\":\"gone\"" : "");
    make(w, &s, "in", "table");
    accept(w, s.prompt ? "(1000000000)" : "(t + 1)", s.lateness);
    snprintf(q, sizeof q,
             "select '@' || t || ' ' || line || ',' || coalesce(hit, '" NULLS "') from ("
             "select l.t t, l.pos pos, l.k kk, l.n nn, l.line line, (select iif(r.gone, null, "
             "r.line) from r where %s and %s limit 1) hit from la l) "
             "where %d or hit is not null order by %s",
             key_equal[s.key],
             s.prompt ? "r.pos < l.pos order by r.pos desc"
                      : "r.t <= l.t and r.pos < l.fire order by r.t desc, r.pos desc",
             left, s.prompt ? "pos" : order);
    /* Late, of the table: replaced before it came. The keys that match are the same. */
    snprintf(late, sizeof late,
             "select (select count(*) from l) - (select count(*) from la) + (select count(*) from "
             "r as l where %d and l.t + 1 <= l.wm - %lld and exists (select 1 from r where %s and "
             "r.pos < l.pos and r.t > l.t and r.t + 1 <= l.wm - %lld))",
             !s.prompt, (long long)s.lateness, key_equal[s.key], (long long)s.lateness);
    struct optest t = { .op = "lookup_join",
                        .config = config,
                        .in = s.tombstones ? "in=" IN "|table=" TABLE : "in=" IN "|table=" IN,
                        .by = key_by[s.key] };
    compare(w, &t, q, late, seed);
}

static void test_lookup(void **unused) {
    (void)unused;
    rounds(lookup_round);
}

/* ---- by example ---- */

#define PAIRS "left=k:string a:i64|right=k:string b:i64"

/* A row beyond a limit is a dead letter, and the rows that wait still find each other. */
static void test_limits(void **unused) {
    (void)unused;
    struct optest t = { .op = "window_join",
                        .config = "{\"size\":\"10ms\",\"max_rows\":3}",
                        .in = PAIRS,
                        .by = "k|k" };
    optest_expect(&t,
                  "left>@1 x,1\nright>@2 x,2\nleft>@3 x,3\nright>@4 x,4\n!wm 10\n"
                  "right>@11 x,5\nleft>@12 x,6\n!end\n",
                  "@9 x,1,x,2\n@9 x,3,x,2\n@19 x,6,x,5\n"
                  "!reject too_many_rows: more than 3 rows would wait\n");
    t.config = "{\"size\":\"10ms\",\"max_pairs\":2,\"type\":\"full\"}";
    optest_expect(&t,
                  "left>@1 x,1\nleft>@2 x,2\nright>@3 x,3\nright>@3 x,4\nleft>@4 x,5\n"
                  "right>@4 null,6\nright>@4 null,7\nleft>@4 null,8\nleft>@4 null,9\n!end\n",
                  "@9 x,1,x,3\n@9 x,2,x,3\n@9 null,8,null,null\n@9 null,9,null,null\n"
                  "@9 null,null,null,6\n@9 null,null,null,7\n"
                  "!reject too_many_pairs: the window of this key has too many pairs\n"
                  "!reject too_many_pairs: the window of this key has too many pairs\n");
    t = (struct optest){ .op = "lookup_join",
                         .config = "{\"version\":\"newest\",\"max_rows\":1,\"type\":\"left\"}",
                         .in = "in=k:string a:i64|table=k:string b:i64",
                         .by = "k|k" };
    optest_expect(&t, "table>@1 x,1\ntable>@1 y,1\ntable>@1 x,2\nin>@1 x,1\nin>@1 y,2\n",
                  "@1 x,1,x,2\n@1 y,2,null,null\n"
                  "!reject too_many_rows: the table would have more than 1 rows\n");
}

static void test_dead_letters(void **unused) {
    (void)unused;
    struct optest t = { .op = "asof_join",
                        .config = "{\"late\":\"dead_letter\",\"type\":\"left\"}",
                        .in = PAIRS,
                        .by = "k|k" };
    optest_expect(&t,
                  "left>@2000000000000000000 x,1\nleft>x,2\n!wm 5\nright>@4 x,3\nright>@5 x,4\n"
                  "left>@5 x,5\n!end\n",
                  "@5 x,5,x,4\n"
                  "!reject bad_time: the event time is out of range\n"
                  "!reject no_time: the row has no event time\n"
                  "!reject late: the row is late: its results are out\n");
}

/* A deleted key has no row from its time on; a late row counts for what comes out after it. */
static void test_versions(void **unused) {
    (void)unused;
    struct optest t = { .op = "lookup_join",
                        .config = "{\"type\":\"left\",\"deleted\":\"gone\",\"prefix\":\"t_\"}",
                        .in = "in=k:string a:i64|table=gone:bool k:string b:i64",
                        .by = "k|k" };
    optest_expect(&t,
                  "table>@10 false,x,1\ntable>@20 null,x,2\ntable>@30 true,x,3\n"
                  "in>@25 x,4\nin>@30 x,5\nin>@9 x,6\nin>@19 x,7\n!wm 40\n"
                  "table>@35 false,x,8\nin>@40 x,9\n!end\n",
                  "@9 x,6,null,null,null\n@19 x,7,false,x,1\n@25 x,4,null,x,2\n"
                  "@30 x,5,null,null,null\n@40 x,9,false,x,8\n");
    char *schema = optest_schema(&t);
    assert_string_equal(schema, "{k: string, a: i64, gone: bool, t_k: string, b: i64}");
    free(schema);
}

/* What can match nothing any more is forgotten: other rows of the same number, another past, but
 * one and the same state. */
static void test_forgetting(void **unused) {
    (void)unused;
    static const struct {
        const char *op, *config;
    } joins[] = { { "window_join", "{\"size\":\"10ms\",\"type\":\"full\"}" },
                  { "interval_join", "{\"lower\":\"-5ms\",\"upper\":\"20ms\",\"type\":\"left\"}" },
                  { "interval_join", "{\"lower\":\"3ms\",\"upper\":\"20ms\"}" },
                  { "asof_join", "{\"tolerance\":\"30ms\"}" } };
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        struct optest t = {
            .op = joins[i].op, .config = joins[i].config, .in = PAIRS, .by = "k|k"
        };
        uint64_t a = optest_state(&t, "left>@1 x,1\nright>@2 x,2\nright>@9 y,3\n!wm 60\n");
        uint64_t b = optest_state(&t, "left>@3 z,4\nleft>@8 y,7\nright>@2 z,5\n!wm 60\n");
        uint64_t c = optest_state(&t, "left>@3 z,4\nleft>@8 y,7\nright>@61 z,5\n!wm 60\n");
        assert_true(a == b);
        assert_true(a != c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),   cmocka_unit_test(test_interval),
        cmocka_unit_test(test_asof),     cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_dead_letters),
        cmocka_unit_test(test_versions), cmocka_unit_test(test_forgetting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
