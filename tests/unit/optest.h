/* Runs one operator over rows given as text and prints what it emits as text.
 *
 * Rows, one a line: `[PORT>][@TIME ]VALUE,VALUE,...`; `null` is null; TIME is event time in ms.
 * `!wm N` raises the watermark after the row before; `!end` ends the stream (watermark of
 * infinity). Output, one row a line in the same form, by out-port; then dead letters as `!reject
 * CODE: TEXT`. Single-threaded; every failure is a cmocka failure that names the seed. */
#ifndef BRAID_TESTS_OPTEST_H
#define BRAID_TESTS_OPTEST_H
#include "engine/op.h"

struct optest {
    const char *op;           /* name */
    const char *config;       /* JSON; NULL: {} */
    const char *in;           /* schema "source:string temperature:f64"; several in-ports:
                               * "left=a:i64|right=b:i64" */
    const char *by;           /* "source city", by in-port "a b|c d"; NULL: none */
    const char *out;          /* out-ports that are read, "a b"; NULL: those of the descriptor */
    bool share_offsets;       /* up to three rows have one offset, as below an explode */
    const char *const *files; /* name, content, name, content, NULL; NULL: none */
};
struct optest_mode {
    uint32_t batch; /* rows a batch; 0: random, 1..1024 */
    uint64_t seed;
    bool holes;  /* physical rows of garbage that no selection lists */
    bool undo;   /* epochs are aborted now and then and processed again */
    bool reload; /* state is saved, the operator closed, opened and loaded now and then */
};

/* The output of one run, malloc'd. `counts` may be NULL. Checks the row accounting (in = passed +
 * filtered + late + rejected + absorbed, out = passed + made) and that positions never fall. */
char *optest_run(const struct optest *t, const char *rows, const struct optest_mode *m,
                 struct op_counts *counts);
/* The same, in batches of 1,024 rows; fails unless one row a batch, random cuts, holes, aborts and
 * reloads (several random rounds of each) give the same output, positions, counts and state. */
char *optest_same(const struct optest *t, const char *rows, struct op_counts *counts);
/* A digest of the state after these rows; 0: it is empty. */
uint64_t optest_state(const struct optest *t, const char *rows);
/* optest_same must give `want`. */
void optest_expect(const struct optest *t, const char *rows, const char *want);
/* All errors of config, plan and open, one a line, malloc'd; "" when there are none. */
char *optest_errors(const struct optest *t);
/* The output schema of the first out-port as text, malloc'd. */
char *optest_schema(const struct optest *t);

/* The operator by itself, for benchmarks and for tests that make their own batches. */
struct optest_op {
    const struct op_desc *desc;
    struct op_ctx ctx;
    struct op_counts counts;
    struct op_host host; /* emit, reject: NULL discards. May be replaced before the first batch */
    void *self, *user;
    struct state *table[STATE_TABLES];
    struct undo *undo;
    struct arena arena; /* config, schemas */
    struct arena tick;  /* to be reset by the caller between ticks */
    struct errs errs;
};
/* 0, or negative with the errors in o->errs. `in` NULL: parsed from t->in. */
int optest_open(struct optest_op *o, const struct optest *t, const struct schema *in);
void optest_close(struct optest_op *o);
/* "a:i64 b:string" in `a`; fails the test when it is none. */
const struct schema *optest_parse_schema(struct arena *a, const char *text);
#endif
