/* Tests of dataflows: the differences they show, against an oracle; every shipped dataflow has a
 * test that passes, and fails when a row that it wants is another; wrong files are told by place.
 */
#include "cluster/flowtest.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include <dirent.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

#define CORPUS "tests/corpus/flowtest/invalid/"
static const char *const patterns[] = { "dataflows/examples/*.json", "dataflows/riotbench/*.json",
                                        "dataflows/demo/*.json", "dataflows/starters/*.json",
                                        "dataflows/*/tests/*.json" };

/* ---- differences ---- */

enum { ROWS = 9, VALUES = 4 };

struct made {
    struct arena a;
    struct json_doc want, got;
    struct rowdiff_row rows[ROWS];
    uint32_t nwant, ngot;
};

/* Objects of one or two members; few values, so that rows are often equal. */
static void random_rows(struct sbuf *o, uint32_t n, uint64_t *seed) {
    sbuf_adds(o, "[");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t r = test_random(seed);
        sbuf_printf(o, "%s{\"a\":%d", i ? "," : "", (int)(r % VALUES));
        if (r >> 8 & 1)
            sbuf_printf(o, ",\"b\":%d", (int)(r >> 9 & 1));
        sbuf_adds(o, "}");
    }
    sbuf_adds(o, "]");
}

static void parse_list(struct json_doc *doc, struct arena *a, uint32_t n, uint64_t *seed) {
    struct sbuf o = { 0 };
    struct errs es = { 0 };
    random_rows(&o, n, seed);
    const char *text = arena_strdup(a, sbuf_str(&o));
    assert_int_equal(json_parse(doc, NULL, text, strlen(text), a, &es), 0);
    sbuf_free(&o);
}

static void make(struct made *m, uint64_t *seed) {
    memset(m, 0, sizeof *m);
    m->nwant = (uint32_t)(test_random(seed) % (ROWS + 1));
    m->ngot = (uint32_t)(test_random(seed) % (ROWS + 1));
    parse_list(&m->want, &m->a, m->nwant, seed);
    parse_list(&m->got, &m->a, m->ngot, seed);
    const struct jnode *g = m->ngot ? m->got.root->child : NULL;
    for (uint32_t i = 0; i < m->ngot; i++, g = g->next)
        m->rows[i] = (struct rowdiff_row){ "", 0, g };
}

static const struct jnode *nth(const struct json_doc *d, uint32_t i) {
    const struct jnode *n = d->root->child;
    while (i-- > 0)
        n = n->next;
    return n;
}

static bool oracle_fits(const struct jnode *w, const struct jnode *g, bool subset) {
    const struct jnode *wa = jnode_get(w, "a"), *ga = jnode_get(g, "a");
    const struct jnode *wb = jnode_get(w, "b"), *gb = jnode_get(g, "b");
    if (wa->i != ga->i)
        return false;
    return wb ? gb && wb->i == gb->i : subset || !gb;
}

/* The longest common subsequence by trying every subset of the wanted rows. */
static uint32_t oracle_ordered(const struct made *m, bool subset) {
    uint32_t best = 0;
    for (uint32_t mask = 0; mask < 1u << m->nwant; mask++) {
        uint32_t j = 0, n = 0;
        for (uint32_t i = 0; i < m->nwant; i++) {
            if (!(mask >> i & 1))
                continue;
            while (j < m->ngot && !oracle_fits(nth(&m->want, i), m->rows[j].json, subset))
                j++;
            if (j == m->ngot)
                break;
            j++;
            n++;
        }
        best = n > best ? n : best;
    }
    return best;
}

/* The largest matching, over the sets of rows used so far. */
static uint32_t oracle_any(const struct made *m, bool subset) {
    int8_t best[1 << ROWS];
    memset(best, -1, sizeof best);
    best[0] = 0;
    for (uint32_t i = 0; i < m->nwant; i++)
        for (uint32_t mask = 1u << m->ngot; mask-- > 0;) {
            if (best[mask] < 0)
                continue;
            for (uint32_t j = 0; j < m->ngot; j++) {
                uint32_t to = mask | 1u << j;
                if (!(mask >> j & 1) && oracle_fits(nth(&m->want, i), m->rows[j].json, subset) &&
                    best[to] < best[mask] + 1)
                    best[to] = (int8_t)(best[mask] + 1);
            }
        }
    int8_t most = 0;
    for (uint32_t mask = 0; mask < 1u << m->ngot; mask++)
        most = best[mask] > most ? best[mask] : most;
    return (uint32_t)most;
}

static void differences(void **state) {
    (void)state;
    uint64_t seed = test_seed(77), first = seed;
    for (int round = 0, n = test_scale(3000); round < n; round++, first = seed) {
        struct made m;
        make(&m, &seed);
        struct rowdiff_rules rules = { .any_order = round & 1, .subset = round >> 1 & 1 };
        struct rowdiff_line *line;
        uint32_t lines, same = 0, missing = 0, extra = 0;
        const struct jnode *want = m.nwant ? m.want.root->child : NULL;
        int bad = rowdiff(want, m.nwant, m.rows, m.ngot, &rules, &m.a, &line, &lines);
        uint32_t last[3] = { 0 };
        for (uint32_t i = 0; i < lines; i++) {
            *(line[i].sign == ROWDIFF_SAME      ? &same
              : line[i].sign == ROWDIFF_MISSING ? &missing
                                                : &extra) += 1;
            if (line[i].sign == ROWDIFF_EXTRA || !rules.any_order) {
                assert_true(line[i].index >= last[line[i].sign]); /* in their order */
                last[line[i].sign] = line[i].index;
            }
        }
        uint32_t most =
            rules.any_order ? oracle_any(&m, rules.subset) : oracle_ordered(&m, rules.subset);
        if (same + missing != m.nwant || same + extra != m.ngot || same != most ||
            (uint32_t)bad != missing + extra)
            fail_msg("BRAID_SEED=%llu: %u same of %u wanted and %u that came, best is %u",
                     (unsigned long long)first, same, m.nwant, m.ngot, most);
        arena_free(&m.a);
    }
}

static const struct jnode *value(struct arena *a, const char *text) {
    struct json_doc d = { 0 };
    struct errs es = { 0 };
    assert_int_equal(json_parse(&d, NULL, text, strlen(text), a, &es), 0);
    return d.root;
}

static void values(void **state) {
    (void)state;
    static const struct {
        const char *want, *got;
        bool exact, subset, near; /* what fits: under no rules, `subset`, a tolerance of 0.5 */
    } cases[] = {
        { "1", "1.0", true, true, true },
        { "1", "1.5", false, false, true },
        { "1", "1.6", false, false, false },
        { "9007199254740993", "9007199254740992", false, false, false },
        { "null", "0", false, false, false },
        { "{\"a\":1,\"b\":[1,{\"c\":2}]}", "{\"b\":[1,{\"c\":2}],\"a\":1}", true, true, true },
        { "{\"a\":1}", "{\"a\":1,\"b\":2}", false, true, false },
        { "{\"a\":1,\"b\":2}", "{\"a\":1}", false, false, false },
        { "{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", false, false, false },
        { "{\"a\":null}", "{}", false, false, false },
        { "[{\"a\":1}]", "[{\"a\":1,\"b\":2}]", false, true, false },
        { "[1,2]", "[1,2,3]", false, false, false },
        { "[]", "{}", false, false, false },
        { "\"a\"", "\"a\"", true, true, true },
        { "{\"a\":{\"b\":{\"c\":[]}},\"d\":1}", "{\"a\":{\"b\":{\"c\":[]}},\"d\":2}", false, false,
          false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = { 0 };
        const struct jnode *w = value(&a, cases[i].want), *g = value(&a, cases[i].got);
        const struct rowdiff_rules exact = { 0 }, subset = { .subset = true },
                                   near = { .tolerance = 0.5 };
        if (rowdiff_fits(w, g, &exact) != cases[i].exact ||
            rowdiff_fits(w, g, &subset) != cases[i].subset ||
            (i != 3 && rowdiff_fits(w, g, &near) != cases[i].near))
            fail_msg("%s against %s", cases[i].want, cases[i].got);
        arena_free(&a);
    }
}

/* ---- shipped dataflows ---- */

static bool is_test(const char *path) {
    return strstr(path, ".test.json") != NULL;
}

static bool is_flow(const char *path) {
    return !is_test(path) && !strstr(path, "data.json");
}

static void every(const char *what, bool (*is)(const char *), void (*each)(const char *path)) {
    int n = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t g = { 0 };
        assert_int_equal(glob(patterns[i], 0, NULL, &g), 0);
        for (size_t k = 0; k < g.gl_pathc; k++)
            if (is(g.gl_pathv[k])) {
                each(g.gl_pathv[k]);
                n++;
            }
        globfree(&g);
    }
    print_message("%d %s\n", n, what);
    assert_true(n >= 25);
}

static void has_test(const char *path) {
    char test[400];
    const char *name = strrchr(path, '/') + 1;
    int dir = (int)(name - path), len = (int)(strlen(name) - strlen(".json"));
    snprintf(test, sizeof test, "%.*stests/%.*s.test.json", dir, path, len, name);
    if (access(test, R_OK) == 0)
        return;
    snprintf(test, sizeof test, "%.*s%.*s.test.json", dir, path, len, name);
    if (access(test, R_OK) < 0)
        fail_msg("%s has no test", path);
}

static void all_have_tests(void **state) {
    (void)state;
    every("shipped dataflows", is_flow, has_test);
}

static void load(struct flowtest *t, const char *path, struct arena *a) {
    struct errs es = { 0 };
    if (flowtest_load(t, path, a, &es) < 0)
        fail_msg("%s:%d:%d: %s", path, es.v[0].line, es.v[0].col, es.v[0].text);
}

static bool passes(const struct flowtest *t, int i, const char *path) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct flowtest_result r;
    if (flowtest_run(t, i, &r, &a, &es) < 0)
        fail_msg("%s: %s", path, es.v[0].text);
    bool ok = !r.first;
    if (!ok)
        print_message("%s:%d: %s\n", path, r.first->line, r.first->what);
    arena_free(&a);
    return ok;
}

static void runs(const char *path) {
    struct arena a = { 0 };
    struct flowtest t;
    load(&t, path, &a);
    for (int i = 0; i < t.ncases; i++)
        if (!passes(&t, i, path))
            fail_msg("%s: %s", path, t.cases[i].name);
    arena_free(&a);
}

static void all_pass(void **state) {
    (void)state;
    every("tests of dataflows", is_test, runs);
}

/* A wanted row without its last member, or with another number of rows: the test must notice. */
static bool spoil(const struct jnode *rows) {
    struct jnode *n = (struct jnode *)rows;
    if (n->type == J_INT) {
        n->i++;
        return true;
    }
    const struct jnode *list = n->type == J_OBJ ? jnode_get(n, "rows") : n;
    if (!list) {
        ((struct jnode *)jnode_get(n, "count"))->i++;
        return true;
    }
    struct jnode *last = list->n ? list->last : NULL;
    for (struct jnode *c = last && last->type == J_OBJ && last->n ? last->child : NULL; c;
         c = c->next)
        if (c->type == J_STR && c->len) {
            c->len--;
            return true;
        }
    ((struct jnode *)list)->n = 0; /* no row is wanted */
    return last != NULL;
}

static int spoiled;
static void notices(const char *path) {
    for (int i = 0, ncases = 1; i < ncases; i++) {
        struct arena a = { 0 };
        struct flowtest t;
        bool any = false;
        load(&t, path, &a);
        ncases = t.ncases;
        for (int k = 0; k < t.cases[i].nsteps && !any; k++) {
            const struct jnode *sinks = jnode_get(t.cases[i].steps[k].expect, "sinks");
            any = sinks && sinks->n && spoil(sinks->child);
        }
        if (any) {
            spoiled++;
            struct arena run = { 0 };
            struct errs es = { 0 };
            struct flowtest_result r;
            assert_int_equal(flowtest_run(&t, i, &r, &run, &es), 0);
            if (!r.first)
                fail_msg("%s: %s: passes with another row wanted", path, t.cases[i].name);
            arena_free(&run);
        }
        arena_free(&a);
    }
}

static void all_notice(void **state) {
    (void)state;
    every("tests of dataflows with another row wanted", is_test, notices);
    assert_true(spoiled > 20);
}

/* ---- wrong files ---- */

/* Each NAME.json gives exactly the messages of NAME.err; BRAID_UPDATE=1 writes them anew. */
static void check_invalid(const char *name) {
    struct arena a = { 0 };
    struct flowtest t;
    struct errs es = { 0 };
    struct sbuf got = { 0 };
    char path[300], err[300], text[1600], want[8192] = "";
    snprintf(path, sizeof path, CORPUS "%.*s.json", (int)(strlen(name) - 5), name);
    snprintf(err, sizeof err, CORPUS "%.*s.err", (int)(strlen(name) - 5), name);
    int rc = flowtest_load(&t, path, &a, &es);
    struct flowtest_result r;
    for (int i = 0; rc == 0 && i < t.ncases; i++)
        rc = flowtest_run(&t, i, &r, &a, &es);
    if (rc >= 0)
        fail_msg("%s is accepted", path);
    for (int i = 0; i < es.n; i++)
        sbuf_printf(&got, "%s\n", err_format(&es.v[i], text, sizeof text));
    FILE *f = fopen(err, getenv("BRAID_UPDATE") ? "w" : "r");
    assert_non_null(f);
    if (getenv("BRAID_UPDATE"))
        fputs(sbuf_str(&got), f);
    else if (fread(want, 1, sizeof want - 1, f) != got.len || strcmp(want, sbuf_str(&got)) != 0)
        fail_msg("%s:\n%s\nwanted:\n%s", path, sbuf_str(&got), want);
    fclose(f);
    sbuf_free(&got);
    errs_free(&es);
    arena_free(&a);
}

static void invalid(void **state) {
    (void)state;
    DIR *d = opendir(CORPUS);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strlen(e->d_name) > 5 && strcmp(e->d_name + strlen(e->d_name) - 5, ".json") == 0) {
            check_invalid(e->d_name);
            n++;
        }
    closedir(d);
    assert_true(n >= 10);
}

/* Every key that the reader knows is told in the page. */
static void documented(void **state) {
    (void)state;
    static const struct spec_key *const tables[] = { flowtest_top_keys, flowtest_case_keys,
                                                     flowtest_step_keys, flowtest_expect_keys,
                                                     flowtest_rows_keys };
    char page[32768], row[64];
    FILE *f = fopen("docs/testing.md", "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct spec_key *k = tables[t]; k->name; k++) {
            snprintf(row, sizeof row, "\n| `%s` |", k->name);
            if (!strstr(page, row))
                fail_msg("docs/testing.md has no row for '%s'", k->name);
        }
}

static int setup(void **state) {
    (void)state;
    operators_init();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences),    cmocka_unit_test(values),
        cmocka_unit_test(all_have_tests), cmocka_unit_test(all_pass),
        cmocka_unit_test(all_notice),     cmocka_unit_test(invalid),
        cmocka_unit_test(documented),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
