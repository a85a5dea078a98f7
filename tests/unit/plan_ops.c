#include "tests/unit/plan_ops.h"
#include "engine/op.h"
#include <stddef.h>
#include <string.h>

struct conf {
    const char *topic, *label, *field, *y, *to;
    const struct jnode *params;
    int64_t n, x, every, lateness, threads, seed;
    int start;
    bool append;
};

#define AT(m) offsetof(struct conf, m)
static const char *const start_words[] = { "latest", "earliest", "offset", NULL };
#define P_TOPIC                                                                                    \
    { .name = "topic", .type = PT_STR, .offset = AT(topic), .doc = "Topic." }
#define P_START                                                                                    \
    {                                                                                              \
        .name = "start", .type = PT_ENUM, .class = PARAM_ATTACH, .offset = AT(start),              \
        .def = "\"latest\"", .words = start_words, .doc = "Where to begin."                        \
    }
#define P_N                                                                                        \
    {                                                                                              \
        .name = "n", .type = PT_I64, .offset = AT(n), .def = "1", .min = 0, .max = 100,            \
        .doc = "Number."                                                                           \
    }
#define P_LATE                                                                                     \
    {                                                                                              \
        .name = "lateness", .type = PT_DURATION, .offset = AT(lateness), .def = "\"0s\"",          \
        .doc = "Lateness."                                                                         \
    }
#define P_LABEL                                                                                    \
    {                                                                                              \
        .name = "label", .type = PT_STR, .class = PARAM_LABEL, .flags = PARAM_OPTIONAL,            \
        .offset = AT(label), .doc = "For people."                                                  \
    }
#define END                                                                                        \
    { .name = NULL }

static const struct param p_src[] = {
    P_TOPIC,
    P_START,
    { .name = "seed", .type = PT_I64, .offset = AT(seed), .def = "0", .doc = "Seed." },
    END
};
static const struct param p_face[] = { P_TOPIC, P_START, P_LATE, END };
static const struct param p_read[] = { P_TOPIC, P_START, END };
static const struct param p_late[] = { P_LATE, END };
static const struct param p_map[] = {
    { .name = "x", .type = PT_I64, .offset = AT(x), .def = "1", .doc = "X." },
    { .name = "y", .type = PT_STR, .flags = PARAM_OPTIONAL, .offset = AT(y), .doc = "Y." },
    P_LABEL,
    { .name = "threads",
      .type = PT_I64,
      .class = PARAM_PHYSICAL,
      .offset = AT(threads),
      .def = "1",
      .doc = "Threads." },
    END
};
static const struct param p_pick[] = {
    { .name = "field", .type = PT_FIELD, .offset = AT(field), .doc = "Field." }, END
};
static const struct param p_n[] = { P_N, END };
static const struct param p_win[] = { { .name = "every",
                                        .type = PT_DURATION,
                                        .offset = AT(every),
                                        .min = 1,
                                        .max = 1e9,
                                        .doc = "Length." },
                                      END };
static const struct param p_any[] = {
    { .name = "label", .type = PT_STR, .offset = AT(label), .def = "\"\"", .doc = "Semantic." },
    { .name = "params",
      .type = PT_JSON,
      .flags = PARAM_OPTIONAL,
      .offset = AT(params),
      .doc = "Anything." },
    END
};
static const struct param p_mail[] = {
    { .name = "to", .type = PT_STR, .flags = PARAM_SECRET, .offset = AT(to), .doc = "Address." },
    END
};
static const struct param p_out[] = {
    { .name = "topic",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = AT(topic),
      .doc = "Topic." },
    { .name = "append", .type = PT_BOOL, .offset = AT(append), .def = "false", .doc = "Shared." },
    END
};

static void plan_source(struct op_plan *p) {
    static const struct field f[] = { { "a", TYPE_I64, 0 },
                                      { "b", TYPE_F64, 0 },
                                      { "s", TYPE_STR, 0 } };
    static const struct schema s = { 3, f };
    for (int i = 0; i < p->nout; i++)
        p->out[i] = &s;
}

static void plan_pick(struct op_plan *p) {
    const struct conf *c = p->config;
    int i = plan_field(p, 0, "field", NULL, c->field, TYPES_NUM);
    if (i < 0)
        return;
    struct field *f;
    p->out[0] = schema_new(p->arena, 2, &f);
    f[0] = p->in[0]->f[i];
    f[1] = (struct field){ "s", TYPE_STR, 0 };
}

static void lower_face(struct op_lower *l) {
    const struct conf *c = l->config;
    struct conf *read = l->stage(l, "f_read");
    read->topic = c->topic;
    read->start = c->start;
    l->stage(l, "f_parse");
    struct conf *time = l->stage(l, "f_time");
    time->lateness = c->lateness;
}

static void lower_raw(struct op_lower *l) {
    const struct conf *c = l->config;
    struct conf *read = l->stage(l, "f_read");
    read->topic = c->topic;
    read->start = c->start;
}

static void lower_parse(struct op_lower *l) {
    const struct conf *c = l->config;
    if (strcmp(l->parent_type, "raw") != 0) {
        l->report(l, NULL, NULL, "parse needs a raw source above it");
        return;
    }
    l->stage(l, "f_parse");
    struct conf *time = l->stage(l, "f_time");
    time->lateness = c->lateness;
}

static const char *const left_right[] = { "left", "right", NULL };
static const char *const a_b[] = { "a", "b", NULL };
static const char *const yes_no[] = { "yes", "no", NULL };
enum { D = OP_DETERMINISTIC };

#define OP(id, tab, fl, mem, ...)                                                                  \
    static const struct op_desc op_##id = { .name = #id,                                           \
                                            .doc = "Test.",                                        \
                                            .semantics = 1,                                        \
                                            .params = tab,                                         \
                                            .config_size = sizeof(struct conf),                    \
                                            .flags = fl,                                           \
                                            .memory = mem,                                         \
                                            __VA_ARGS__ }
OP(src, p_src, D | OP_SOURCE | OP_SETS_TIME, MEMORY_NONE, .plan = plan_source);
OP(face, p_face, D | OP_SOURCE, MEMORY_NONE, .lower = lower_face);
OP(raw, p_read, D | OP_SOURCE, MEMORY_NONE, .lower = lower_raw);
OP(parse, p_late, D, MEMORY_NONE, .lower = lower_parse);
OP(f_read, p_read, D | OP_SOURCE | OP_INNER, MEMORY_NONE, .plan = plan_source);
OP(f_parse, NULL, D | OP_INNER, MEMORY_NONE, .plan = NULL);
OP(f_time, p_late, D | OP_INNER | OP_SETS_TIME, MEMORY_UNBOUNDED, .plan = NULL);
OP(map, p_map, D, MEMORY_NONE, .plan = NULL);
OP(pick, p_pick, D, MEMORY_NONE, .plan = plan_pick);
OP(agg, p_n, D | OP_KEYED, MEMORY_UNBOUNDED, .plan = NULL);
OP(win, p_win, D | OP_KEYED | OP_TIMERS, MEMORY_BOUNDED, .plan = NULL);
OP(pair, p_n, D, MEMORY_BOUNDED, .in_ports = left_right);
OP(sum2, p_n, D | OP_UNORDERED_INPUTS, MEMORY_NONE, .in_ports = a_b);
OP(split, p_n, D, MEMORY_NONE, .out_ports = yes_no);
OP(any, p_any, D | OP_ANY_PORTS, MEMORY_NONE, .plan = NULL);
OP(dice, p_n, 0, MEMORY_NONE, .plan = NULL);
OP(mail, p_mail, D | OP_SINK | OP_EFFECT_EXTERNAL, MEMORY_NONE, .plan = NULL);
OP(out, p_out, D | OP_SINK, MEMORY_NONE, .plan = NULL);

void plan_ops_init(void) {
    static const struct op_desc *const all[] = { &op_src,    &op_face,    &op_raw,    &op_parse,
                                                 &op_f_read, &op_f_parse, &op_f_time, &op_map,
                                                 &op_pick,   &op_agg,     &op_win,    &op_pair,
                                                 &op_sum2,   &op_split,   &op_any,    &op_dice,
                                                 &op_mail,   &op_out };
    ops_init(all, (int)(sizeof all / sizeof *all));
}
