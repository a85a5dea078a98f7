/* Made-up rows: every value is a function of (seed, field, row number) alone, so row k is the same
 * wherever a run begins, and rows can be made in any slices. For benchmarks, examples and tests;
 * the operator `generator` is the same as a source. */
#ifndef BRAID_OPERATORS_GENERATOR_H
#define BRAID_OPERATORS_GENERATOR_H
#include "engine/op.h"

struct generator_config {
    const struct jnode *fields; /* name -> kind, see generator.c */
    int64_t seed;
    double rate;   /* rows a second of event time; also the pace unless `pace` is false */
    int64_t count; /* PARAM_UNSET: endless */
    const char *first_time;
    bool pace;
};

struct generator;
/* From a config parsed by op_generator's table. Errors name the field, also by e->pointer. The
 * config must outlive it. * 0 or ERR_INPUT. */
int generator_new(struct generator **g, const struct generator_config *c, struct err *e);
void generator_free(struct generator *g); /* NULL is fine */
/* Its fields in the order of the config; lives as long as the generator. */
const struct schema *generator_schema(const struct generator *g);
/* Event time of row k, ms: first_time + k / rate. */
int64_t generator_time(const struct generator *g, int64_t k);
/* Rows k .. k+n-1 (n <= BATCH_ROWS, cut at `count`) into *b, whose schema is set, with event times
 * and watermarks; *o gets off0, n, wm, wm_before. Memory from `a`. Returns the rows made. Pure.
 * ~5 ns a value, ~25 ns for a walk. */
uint32_t generator_rows(const struct generator *g, struct arena *a, int64_t k, uint32_t n,
                        struct batch *b, struct origin *o);
#endif
