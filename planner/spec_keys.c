/* The keys of a dataflow file, in the order of docs/spec.md. */
#include "planner/spec.h"
#include <string.h>

const char *const history_words[] = { "shared", "own", NULL };
static const char *const grouping_words[] = { "all", "global", "shuffle", NULL };

const struct spec_key spec_top_keys[] = {
    [TOP_BRAID] = { .name = "braid",
                    .type = J_INT,
                    .required = true,
                    .max = SPEC_VERSION,
                    .doc = "Version of the format." },
    [TOP_NAME] = { .name = "name",
                   .type = J_STR,
                   .required = true,
                   .max = SPEC_NAME_MAX,
                   .doc = "Name of the dataflow, of `A-Z a-z 0-9 _ - .`, no `.` first." },
    [TOP_DESCRIPTION] = { .name = "description", .type = J_STR, .doc = "For people." },
    [TOP_TENANT] = { .name = "tenant",
                     .type = J_STR,
                     .max = SPEC_NAME_MAX,
                     .doc = "Whose it is, of `A-Z a-z 0-9 _ -`. Tasks are shared within a tenant. "
                            "Default: the empty tenant." },
    [TOP_HISTORY] = { .name = "history",
                      .type = J_STR,
                      .words = history_words,
                      .doc = "Whether tasks join running ones with the past these have (`shared`, "
                             "the default), or the output must be that of a run alone from its own "
                             "start (`own`)." },
    [TOP_TASKS] = { .name = "tasks",
                    .type = J_ARR,
                    .required = true,
                    .max = SPEC_TASKS_MAX,
                    .doc = "The [tasks](#tasks); their order does not matter." },
    [TOP_STATE_FROM] = { .name = "state_from",
                         .type = J_OBJ,
                         .max = SPEC_TASKS_MAX,
                         .doc = "For `braid replace`: `{\"mean\": \"average\"}` lets the new task "
                                "`mean` begin with the state of the former task `average`. A "
                                "submit pays no heed to it." },
    { .name = NULL },
};

const struct spec_key spec_task_keys[] = {
    [TASK_ID] = { .name = "id",
                  .type = J_STR,
                  .required = true,
                  .max = SPEC_NAME_MAX,
                  .doc = "Name within the file, of `A-Z a-z 0-9 _ -`." },
    [TASK_TYPE] = { .name = "type",
                    .type = J_STR,
                    .required = true,
                    .doc = "An [operator](operators.md)." },
    [TASK_CONFIG] = { .name = "config", .type = J_OBJ, .doc = "The operator's parameters." },
    [TASK_INPUTS] = { .name = "inputs",
                      .type = J_ARR,
                      .doc = "What it reads: one [input](#inputs) for each in-port, in the "
                             "operator's order. A task with a single in-port may read several "
                             "streams." },
    [TASK_PER_PARTITION] = { .name = "per_partition",
                             .type = J_BOOL,
                             .doc = "When the input has several partitions: each has memory of its "
                                    "own, instead of rows being regrouped so that all of a key "
                                    "meet. Default: false." },
    [TASK_STATE] = { .name = "state",
                     .type = J_OBJ,
                     .doc = "What the task forgets: a time to live and limits of its "
                            "[state](#state). Part of its signature." },
    [TASK_LABEL] = { .name = "label", .type = J_STR, .doc = "For people." },
    { .name = NULL },
};

const struct spec_key spec_input_keys[] = {
    [INPUT_FROM] = { .name = "from",
                     .type = J_STR,
                     .required = true,
                     .doc = "The task that is read, or `task.port` for one of several "
                            "out-ports." },
    [INPUT_TO] = { .name = "to",
                   .type = J_STR,
                   .doc = "The in-port. Default: the one whose turn it is in the list." },
    [INPUT_BY] = { .name = "by",
                   .type = J_ARR,
                   .max = OP_BY_MAX,
                   .doc =
                       "Fields: rows of equal values (null counts as one) belong together, and a "
                       "stateful operator keeps one state for each key. A single one may stand "
                       "without the list." },
    [INPUT_GROUPING] = { .name = "grouping",
                         .type = J_STR,
                         .words = grouping_words,
                         .doc = "Instead of `by`." },
    [INPUT_ORDERED] = { .name = "ordered",
                        .type = J_BOOL,
                        .doc =
                            "When rows of several partitions come together: in order of event "
                            "time, then partition, the same in every run. Rows wait until no "
                            "partition can bring an earlier one. Default: false, as they come." },
    { .name = NULL },
};

static const char *const on_full_words[] = { "reject", "evict_oldest", NULL };

static const struct param state_params[] = {
    { .name = "ttl",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct state_config, ttl),
      .min = 1,
      .max = 3155760000000,
      .doc = "A key is forgotten when no row of it has been written for so long, in event time. "
             "Needs an input with event time." },
    { .name = "max_keys",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct state_config, max_keys),
      .min = 1,
      .max = 1e12,
      .doc = "At most so many keys, on each partition." },
    { .name = "max_bytes",
      .type = PT_SIZE,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct state_config, max_bytes),
      .min = 1,
      .max = 1e15,
      .doc = "At most so many bytes of keys and values, on each partition; what the table itself "
             "takes is not counted." },
    { .name = "on_full",
      .type = PT_ENUM,
      .offset = offsetof(struct state_config, on_full),
      .def = "\"reject\"",
      .words = on_full_words,
      .doc = "What happens to a row of a new key when the state is full: it becomes a dead letter "
             "(`state_full`), or the keys that were written least recently are forgotten for it." },
    { .name = NULL },
};
const struct op_desc spec_state = { .name = "state",
                                    .params = state_params,
                                    .config_size = sizeof(struct state_config) };

const struct state_limits *spec_limits(const struct state_config *c, struct arena *a) {
    struct state_limits *l = ARENA_NEW(a, struct state_limits);
    l->ttl_ms = c->ttl == PARAM_UNSET ? 0 : c->ttl;
    l->max_keys = c->max_keys == PARAM_UNSET ? 0 : (uint64_t)c->max_keys;
    l->max_bytes = c->max_bytes == PARAM_UNSET ? 0 : (uint64_t)c->max_bytes;
    l->evict = strcmp(on_full_words[c->on_full], "evict_oldest") == 0;
    return l;
}
