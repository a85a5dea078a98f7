/* Unit tests of a dataflow: a JSON file that says what goes in, moved by a clock of its own, and
 * what is to come out. Behind `braid test`; the format is docs/testing.md.
 *
 * A case is a run of its own (run.h, stepped): no log, no server, no real time, so it takes
 * milliseconds and gives the same result everywhere. Each case runs twice, with large batches and
 * row by row: an operator whose output depends on where batches are cut fails every test. Memory
 * lives in the arena given to flowtest_load. One thread. */
#ifndef BRAID_FLOWTEST_H
#define BRAID_FLOWTEST_H
#include "cluster/flowfile.h"
#include "cluster/rowdiff.h"

enum {
    FLOWTEST_VERSION = 1,
    FLOWTEST_CASES_MAX = 1000,
    FLOWTEST_STEPS_MAX = 1000,
    FLOWTEST_KEPT_MAX = 64 << 20 /* bytes of rows of a case that are kept to be compared */
};
/* When nothing says `now`: later than event times are, so that none is ahead of the clock. */
#define FLOWTEST_NOW 4102444800000 /* 2100-01-01T00:00:00Z */

/* The keys that the reader knows, for docs/testing.md's test; end with a NULL name. */
extern const struct spec_key flowtest_top_keys[], flowtest_case_keys[], flowtest_step_keys[],
    flowtest_expect_keys[], flowtest_rows_keys[], flowtest_file_keys[], flowtest_record_keys[];

struct flowtest_step {
    int64_t now;                           /* TIME_MIN: unchanged */
    int64_t advance;                       /* ms */
    const struct jnode *in, *end, *expect; /* NULL: none */
    bool finish;                           /* ends what has not ended */
    bool whole;                            /* `expect` is about the whole case */
};
struct flowtest_case {
    const char *name;
    int64_t now;
    int nvars;
    struct flowvar *vars;
    int nsteps;
    struct flowtest_step *steps;
    const struct jnode *at;
};
struct flowtest {
    const char *file, *dataflow; /* the latter as a path from here */
    struct json_doc doc;
    int ncases;
    struct flowtest_case *cases;
    struct arena *arena;
};
/* Reads and checks the file, not the dataflow. 0, or a code with all errors in `es`. */
int flowtest_load(struct flowtest *t, const char *file, struct arena *a, struct errs *es);
/* The same for a text, which the doc points into. */
int flowtest_parse(struct flowtest *t, const char *file, const char *text, size_t len,
                   struct arena *a, struct errs *es);
/* A file that it names, as a path from here. Memory of the arena. */
const char *flowtest_path(const struct flowtest *t, const char *name);

/* An expectation that did not hold. */
struct flowtest_failure {
    int line, col;    /* in the test file */
    int step;         /* from 1; 0: of the whole case */
    bool single;      /* with batches of one row, after large ones had passed */
    const char *what; /* "sink 'out': 3 rows wanted, 2 came" */
    uint32_t nlines;
    struct rowdiff_line *lines; /* NULL: no list */
    struct flowtest_failure *next;
};
struct flowtest_result {
    struct flowtest_failure *first; /* NULL: it passed */
    uint64_t records;
    int64_t ns;
};
/* Runs one case. 0 (see *r), or a code with errors in `es`: the dataflow is wrong, or the case asks
 * for what it does not have. *r lives in `a`. */
int flowtest_run(const struct flowtest *t, int i, struct flowtest_result *r, struct arena *a,
                 struct errs *es);
#endif
