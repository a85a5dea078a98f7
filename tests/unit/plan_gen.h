/* Random dataflows over the operators of plan_ops.h, with small alphabets so that two of them often
 * overlap, and as JSON in one of many spellings. One stream of random numbers, one thread. */
#ifndef BRAID_TEST_PLAN_GEN_H
#define BRAID_TEST_PLAN_GEN_H
#include "engine/json.h"
#include <stdbool.h>
#include <stdint.h>

enum { TASKS = 8, LINKS = 6 };

void gen_seed(uint64_t seed);
uint32_t rnd(uint32_t n);
bool chance(uint32_t percent);

enum kind { SRC, FACE, RAW, PARSE, MAP, PICK, AGG, WIN, PAIR, SUM2, SPLIT, ANY, DICE, OUT };
extern const char *const kind_name[];
enum by { BY_NONE, BY_S, BY_A, BY_SA, BY_ALL, BY_GLOBAL, BY_SHUFFLE };
struct glink {
    int from;
    const char *out, *in;
    enum by by;
};
struct gtask {
    enum kind kind;
    char id[16];
    int topic, start, v, w; /* v, w: values of parameters, by kind */
    int nlinks;
    struct glink link[LINKS];
    int fields; /* bit 1: a, bit 2: b; s is always there */
    bool time;
};
struct gflow {
    char name[16];
    int tenant;
    bool own;
    int n;
    struct gtask t[TASKS];
};

bool is_source(enum kind k);
/* Task i, reading earlier ones; `dice`: also tasks that are never shared. */
void gen_task(struct gflow *f, int i, bool dice);
/* With `pure` there are only things that are always shared. */
void gen_flow(struct gflow *f, int number, bool pure, bool dice);
void purify(struct gtask *t);
/* A small change of task i, or another spelling of the same. */
void vary_task(struct gflow *g, int i);
/* The dataflow as JSON in `b`: order of tasks and keys, numbers, defaults and labels at random. */
const char *text_of(const struct gflow *f, struct sbuf *b);
#endif
