/* Any bytes as a test of a dataflow: read without a crash, errors have a place inside the text; and
 * what is wanted, held against itself: it fits, in order and in any order. */
#include "cluster/flowtest.h"
#include "operators/all.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool x) {
    if (!x)
        abort();
}

enum { ROWS = 200 };

static void itself(const struct jnode *list, struct arena *a) {
    for (int k = 0; k < 4 && list->n <= ROWS; k++) {
        struct rowdiff_rules rules = { .any_order = k & 1, .subset = k >> 1 };
        struct rowdiff_row rows[ROWS];
        struct rowdiff_line *lines;
        uint32_t n = 0, nlines;
        for (const struct jnode *c = list->n ? list->child : NULL; c; c = c->next)
            rows[n++] = (struct rowdiff_row){ c->type == J_STR ? c->s : "",
                                              c->type == J_STR ? c->len : 0, c };
        require(rowdiff(list->n ? list->child : NULL, n, rows, n, &rules, a, &lines, &nlines) == 0);
        require(nlines == n);
        if (n == 0)
            continue; /* one row less: one is missing */
        require(rowdiff(list->child, n, rows, n - 1, &rules, a, &lines, &nlines) >= 1);
    }
}

static void expectations(const struct jnode *expect, struct arena *a) {
    const struct jnode *sinks = expect ? jnode_get(expect, "sinks") : NULL;
    for (const struct jnode *c = sinks && sinks->n ? sinks->child : NULL; c; c = c->next) {
        const struct jnode *list = c->type == J_OBJ ? jnode_get(c, "rows") : c;
        if (list && list->type == J_ARR)
            itself(list, a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct flowtest t;
    const char *text = arena_strndup(&a, (const char *)data, size);
    int rc = flowtest_parse(&t, "dir/f", text, size, &a, &es);
    require((rc < 0) == (es.total > 0));
    for (int i = 0; i < es.n; i++)
        require(es.v[i].line >= 1 && es.v[i].text[0]);
    for (int i = 0; i < t.ncases && rc == 0; i++)
        for (int k = 0; k < t.cases[i].nsteps; k++)
            expectations(t.cases[i].steps[k].expect, &a);
    errs_free(&es);
    arena_free(&a);
    return 0;
}
