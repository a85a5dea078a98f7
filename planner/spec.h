/* A dataflow file: text in, checked tasks and stages out. Pure: files and variables come through
 * callbacks. All errors of a file are reported at once, each with line, column and JSON pointer.
 *
 * A user's *task* becomes one or more *stages* (lower.c): what runs, is signed and is shared. The
 * spec holds both; everything lives in the arena given to spec_parse and points into the text, so
 * both must outlive the spec. No threads, no globals beside the operator registry. */
#ifndef BRAID_SPEC_H
#define BRAID_SPEC_H
#include "engine/graph.h"

enum {                   /* limits; beyond them the file is refused */
       SPEC_VERSION = 1, /* of the format */
       SPEC_TEXT_MAX = 16 << 20,
       SPEC_TASKS_MAX = 1000,
       SPEC_LINKS_MAX = 10000,
       SPEC_NAME_MAX = 100, /* bytes of names, task ids, tenants, ports */
       SPEC_STAGES_MAX = 8 * SPEC_TASKS_MAX,
       /* Key groups of an exchange. Fixed, because state lies by group: more threads than this do
        * not help one task, fewer than this share them. */
       EXCHANGE_GROUPS = 16
};

enum history { HISTORY_SHARED, HISTORY_OWN };
extern const char *const history_words[]; /* "shared" "own" NULL */

/* A key that the parser knows; docs/spec.md is made from the same tables. */
struct spec_key {
    const char *name;
    enum jtype type; /* of its value */
    bool required;
    int max;                  /* bytes of a string, entries of a list; 0: no limit of its own */
    const char *const *words; /* what a string may be; NULL: not one of a few */
    const char *doc;          /* Markdown */
};
/* Of a file, of a task, and of an input in object form; each ends with a NULL name. */
enum { TOP_BRAID, TOP_NAME, TOP_DESCRIPTION, TOP_TENANT, TOP_HISTORY, TOP_TASKS, TOP_STATE_FROM };
enum { TASK_ID, TASK_TYPE, TASK_CONFIG, TASK_INPUTS, TASK_PER_PARTITION, TASK_STATE, TASK_LABEL };
enum { INPUT_FROM, INPUT_TO, INPUT_BY, INPUT_GROUPING, INPUT_ORDERED };
extern const struct spec_key spec_top_keys[], spec_task_keys[], spec_input_keys[];

/* A task's "state": its keys, as the parameters of a config. */
struct state_config {
    int64_t ttl, max_keys, max_bytes; /* or PARAM_UNSET */
    int on_full;
};
extern const struct op_desc spec_state;
const struct state_limits *spec_limits(const struct state_config *c, struct arena *a);

/* What the outside gives. Any callback may be NULL: then its use in a file is an error. */
struct spec_env {
    void *user;
    /* Value of ${NAME}, or of ${secret:NAME} when `secret`; NULL: not set. */
    const char *(*var)(void *user, const char *name, bool secret);
    file_resolver *file;
    /* Partitions of a topic; 0: it does not exist (and will be made with one). NULL: all one. */
    int (*partitions)(void *user, const char *topic);
};

struct spec_input {
    int from;             /* index of the parent task; -1 after an error */
    const char *out_port; /* of the parent */
    const char *in_port;
    int in_index; /* among the task's in-ports; OP_ANY_PORTS: -1 until lowered */
    enum grouping grouping;
    int nby;
    const char **by;
    bool ordered;
    int groups;   /* > 0: through an exchange of so many key groups (spread.h) */
    int exchange; /* then: the stage of its first reader */
    int readers;  /* and how many there are: `ordered` has one for each partition that feeds it */
    const struct jnode *at;
};
/* How the rows of a stream lie: on partitions 0..parts-1, equal values of the key fields together.
 */
struct spread {
    int nkey; /* 0: by no field that is known */
    const char **key;
    int parts;
};
struct spec_task {
    const char *id, *label; /* label may be NULL */
    const struct op_desc *op;
    void *config;
    int ninputs;
    struct spec_input *inputs;
    bool per_partition;         /* its memory is one for each partition of its input */
    struct state_config *state; /* NULL: no limits */
    const struct jnode *state_at;
    struct spread spread; /* of its output */
    int nexchanges;       /* its first stages: three for each exchange */
    int first, nstages; /* its stages are adjacent: first .. first+nstages-1; the last one's output
                           is the task's */
    bool bad;           /* an error was reported here: what depends on it is not blamed */
    bool doubtful;      /* its config has errors, but values that stand in for them: only errors
                         * in names and expressions are believed */
    bool blind;         /* doubtful, and what it puts out is not known */
    uint64_t wrong;     /* the parameters in error, by index */
    const struct jnode *at, *config_at;
};

/* One link into a stage, in the order of the signature. */
struct stage_in {
    int from; /* stage index */
    int in_port, out_port;
    enum grouping grouping;
    bool per_partition;
    int nby;
    const char **by;
    const struct jnode *at; /* of the user's input; NULL inside a task */
};
struct spec_stage {
    const struct op_desc *op;
    const void *config;
    int task;
    int parts;                        /* partitions it runs on */
    const struct state_config *state; /* NULL: no limits */
    bool time, bad;
    int nlinks;
    struct stage_in *links;
    int nin, nout;
    const char **in_name, **out_name;
    const struct schema **in, **out;
    int nby;
    const int *by;      /* field indexes in in[0] */
    struct op_by *keys; /* of every in-port */
    bool *timed;        /* in-ports whose streams all carry event time */
    /* canon.c */
    struct sig sig;
    const char *blob;                          /* everything the signature hashes */
    uint32_t blob_len, config_off, config_len; /* its canonical config within */
    const char *attach; /* attach parameters that differ from the defaults, JSON; NULL: none */
    /* by the parameters named `topic` of a source or sink stage, `file` of a sink; NULL: none */
    const char *reads, *writes;
    bool append;
};

/* `task` begins with the state of task `from` of the dataflow that this one replaces. */
struct state_from {
    const char *task, *from;
    const struct jnode *at; /* in the file; NULL: said elsewhere */
};

/* Stage `stage` writes topic `writes` below a stage that reads topic `reads`. */
struct topic_edge {
    const char *reads, *writes;
    int stage;
};

struct spec {
    const char *file; /* for messages; may be NULL */
    const char *text;
    size_t len;
    struct json_doc doc;
    const char *name, *description, *tenant; /* tenant "" by default */
    enum history history;
    int ntasks;
    struct spec_task *tasks; /* in the file's order */
    int *order;              /* task indexes, parents first */
    int nstages;
    struct spec_stage *stages; /* parents first */
    int nedges;
    struct topic_edge *edges;
    int nstate_from; /* as the file says */
    struct state_from *state_from;
};

/* Parses, lowers, infers schemas and signs. Returns 0 (errors none) or ERR_INPUT with all errors in
 * `es`. `warn` (may be NULL) gets remarks that are no errors. Cost ~2 us a task. */
int spec_parse(struct spec *s, const char *file, const char *text, size_t len,
               const struct spec_env *env, struct arena *a, struct errs *es, struct errs *warn);
/* Names of dataflows, tasks and tenants: 1 to SPEC_NAME_MAX of [A-Za-z0-9_-], names also '.'. */
bool spec_name_valid(const char *s, size_t len, bool dots);

/* "topic" or "file", and its name, of what a stage writes. */
#define SPEC_FILE_PREFIX "file:"
const char *spec_kind(const char *written);
const char *spec_written(const char *written);

/* ---- between the parts of the parser ---- */
/* lower.c: tasks to stages, then schemas from sources to sinks. */
void spec_lower(struct spec *s, const struct spec_env *env, struct arena *a, struct errs *es);
/* vars.c: ${NAME} in every string of a config. Marks the members in error for params_parse. */
void spec_vars(struct spec *s, struct spec_task *t, struct jnode *config,
               const struct spec_env *env, struct arena *a, struct errs *es);
#endif
