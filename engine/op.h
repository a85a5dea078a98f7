/* The operator interface: one descriptor per task type. From its tables come the parser of its
 * config, validation, defaults, `braid operators`, the docs page and the signature.
 *
 * An operator sees batches in order of (position, port) and calls op_emit; it runs on one executor
 * thread, one call at a time, and never blocks. It cannot fail on data: a bad row goes to
 * op_reject. Its output must depend on its input rows, watermarks and state alone, never on where
 * batches were cut. All memory for output comes from op_alloc (the tick's arena). */
#ifndef BRAID_OP_H
#define BRAID_OP_H
#include "engine/batch.h"
#include "engine/err.h"
#include "engine/json.h"
#include "engine/schema.h"
#include "engine/state.h"
#include <stddef.h>
struct log_rows;

/* ---- parameters ---- */
enum param_class {
    PARAM_SEMANTIC, /* changes the output: hashed into the signature */
    PARAM_ATTACH,   /* where and how to join, such as `start` */
    PARAM_PHYSICAL, /* parallelism, buffers */
    PARAM_LABEL,    /* for people only */
};
enum param_type {              /* C type at `offset` of the config struct; JSON form */
                  PT_BOOL,     /* bool */
                  PT_I64,      /* int64_t */
                  PT_F64,      /* double, finite */
                  PT_STR,      /* const char *; NULL when optional and absent */
                  PT_ENUM,     /* int: index into `words` */
                  PT_DURATION, /* int64_t ms; "10s" */
                  PT_SIZE,     /* int64_t bytes; "64KiB" or a number */
                  PT_FIELD, /* const char *: name of an input field (the schema rule resolves it) */
                  PT_STRS,  /* struct strs: ["a","b"] (a single string is a list of one) */
                  PT_STRMAP,  /* struct strmap: {"name":"text",…} in the user's order */
                  PT_RANGES,  /* struct ranges: {"temperature":[-12.5,43.1],…}, sorted by name */
                  PT_SCHEMA,  /* const struct schema *: {"a":"f64",…} or the name of a file in
                                 RIoTBench's three-line form (names, units, v|sv) */
                  PT_FILE,    /* struct file *: name of a file; signed by its content */
                  PT_JSON,    /* const struct jnode *: any JSON, signed in canonical form */
                  PT_EXPR,    /* const char *: an expression (expr.h), signed in canonical form */
                  PT_EXPRMAP, /* struct strmap: {"name":"expression",…} in the user's order */
                  PT_AGGMAP,  /* struct strmap: {"name":"mean(expression)",…}, alike */
                  PT_TIME,    /* struct time_field: {"field":"pickup","unit":"ms"}; unit
                                 s|ms|us|rfc3339 */
                  PT_START, /* struct start: "latest" | "earliest" | {"time":"2026-01-31T08:00:00Z"
                               or ms} | {"offset":17} */
};
/* How a type is told to people: its name, and what a value must be ("a duration such as \"10s\"":
 * `is`, `example`, then `also` if there is another way). PT_ENUM has its words instead. */
struct param_type_text {
    const char *name, *is, *example, *also;
};
enum { PARAM_TYPES = PT_START + 1 };
extern const struct param_type_text param_type_texts[PARAM_TYPES];
enum param_flags {
    PARAM_OPTIONAL = 1, /* may be absent without a default: NULL, empty, or PARAM_UNSET */
    PARAM_SECRET = 2,   /* never printed */
    PARAM_LIVE = 4,     /* may change while running: the form and meaning of state stay */
};
#define PARAM_UNSET INT64_MIN /* absent optional I64, DURATION, SIZE; an absent F64 is NaN */

struct strs {
    int n;
    const char *const *v;
};
struct strpair {
    const char *name, *text;
    const struct jnode *at;
};
struct strmap {
    int n;
    const struct strpair *v;
};
struct range {
    const char *name;
    double lo, hi;
};
struct ranges {
    int n;
    const struct range *v;
};
struct time_field {
    const char *field;
    int unit;
}; /* field NULL: absent */
enum time_unit { TIME_S, TIME_MS, TIME_US, TIME_RFC3339 };
extern const char *const time_unit_words[]; /* "s" "ms" "us" "rfc3339" NULL */
/* Where a source begins to read a topic. */
struct start {
    enum { START_LATEST, START_EARLIEST, START_TIME, START_OFFSET } at;
    int64_t n; /* START_TIME: the first record appended at or after this ms; START_OFFSET */
};
/* A file a config names. Its bytes are loaded before open() and live as long as the task. */
struct file {
    const char *name; /* as the user wrote it */
    char hash[33];    /* hex XXH3-128 of the content */
    const char *data;
    size_t len;
};

struct param {
    const char *name;
    enum param_type type;
    enum param_class class;
    unsigned flags;
    size_t offset;
    const char *def;          /* default as JSON text; NULL: required unless PARAM_OPTIONAL */
    double min, max;          /* I64, F64, DURATION (ms), SIZE: bounds when min < max */
    const char *const *words; /* PT_ENUM: NULL-terminated */
    const char *doc;          /* one sentence or two, Markdown */
};

/* ---- submit time ---- */
enum { OP_PORTS_MAX = 64, OP_BY_MAX = 16 };
/* Grouping keys of one in-port: indexes of its fields. */
struct op_by {
    int n;
    const int *field;
};
/* What check-and-schema sees. Pure; reports every error it finds with plan_error. */
struct op_plan {
    const void *config;
    int nin;                        /* in-ports that are linked */
    const char *const *in_name;     /* their names */
    const struct schema *const *in; /* their schemas */
    int nout;                       /* out-ports (OP_ANY_PORTS: those that somebody reads) */
    const char *const *out_name;
    const struct schema **out; /* to fill; lives in `arena` */
    int nby;                   /* grouping keys of the first in-port */
    const char *const *by;
    bool in_time; /* the first in-port carries event time */
    /* The same of every in-port; keys[0] says what nby and by say. */
    const struct op_by *keys;
    const bool *timed;
    struct arena *arena;
    int errors;
    void *user; /* the planner's */
    void (*report)(struct op_plan *, const char *param, const char *key, const char *text);
};
/* Error at /config/PARAM[/KEY]; param NULL: at the task. */
void plan_error(struct op_plan *p, const char *param, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Index of a field of in-port `port` that must have one of the types in `mask` (bits 1<<TYPE_X; 0:
 * any); -1 after reporting "no field 'x' … did you mean". */
int plan_field(struct op_plan *p, int port, const char *param, const char *key, const char *name,
               unsigned mask);
/* Each of `names`, the value of `param`, may be listed once. */
void plan_once(struct op_plan *p, const char *param, const struct strs *names);
#define TYPE_BIT(t) (1u << (t))
#define TYPES_NUM   (TYPE_BIT(TYPE_I64) | TYPE_BIT(TYPE_F64))

/* Lowering: `source`, `sink` and the parse tasks are faces for chains of inner stages (read ->
 * decode -> time; encode -> append), each with a signature of its own, so that two users who differ
 * in lateness still share reading and decoding. */
struct op_lower {
    const void *config;      /* of the face */
    const char *parent_type; /* face type of the task feeding in-port 0, "" for none */
    const void *parent_config;
    struct arena *arena;
    void *user;
    /* Appends stage `op`; returns its config, filled with defaults, for the caller to complete. */
    void *(*stage)(struct op_lower *, const char *op);
    void (*report)(struct op_lower *, const char *param, const char *key, const char *text);
};

/* ---- run time ---- */
struct op_counts { /* rows; in = passed + filtered + late + rejected + absorbed, out = passed + made
                    */
    uint64_t in, out;                                          /* kept by the executor */
    uint64_t passed, made, filtered, late, rejected, absorbed; /* kept by the operator */
    uint64_t nulled; /* values that became null: by a filter, overflow, NaN, a failed cast */
};
struct op_ctx {
    const struct op_desc *desc;
    const void *config;
    int nin, nout;
    const struct schema *const *in; /* by linked in-port, as in op_plan */
    const struct schema *const *out;
    const char *const *in_name, *const *out_name;
    int nby;
    const int *by;            /* field indexes in in[0] */
    const struct op_by *keys; /* of every in-port; NULL: only the first one has any, nby and by */
    uint64_t instance;
    struct arena *arena; /* the tick's: dead at its end */
    struct op_counts *count;
    /* OP_TIMERS: a lower bound of the next time at which something may be due, also counting what
     * rows not yet seen may create: a window operator keeps the next window boundary after `wm`
     * here, whether a window is open or not. watermark() is called at the first point of the
     * timeline whose watermark reaches it; rows up to there come in as large batches. Starts at
     * TIME_MIN: watermark() is called before the first row with the watermark before its tick,
     * or at the first point. */
    int64_t next_timer;
    int64_t wm;                  /* watermark reached so far; TIME_MIN at first. OP_TIMERS */
    int64_t fire_off;            /* inside watermark(): offset of the point */
    const struct origin *origin; /* this tick's, also when no rows come */
    struct origin *out_origin;   /* what children see; time stages replace it in end() */
    const struct op_host *host;
    struct task *task; /* the executor's */
};
/* The side of the executor that operators call; tests put their own there. */
struct op_host {
    void (*emit)(struct op_ctx *c, int port, const struct batch *b);
    void (*reject)(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                   const char *text);
    struct state *(*state)(struct op_ctx *c, int table, uint32_t vsize);
};
static inline void *op_alloc(struct op_ctx *c, size_t size) {
    return arena_alloc(c->arena, size);
}
/* Hands a batch (in the tick's arena, schema ctx->out[port]) to all readers. Empty batches are
 * allowed and dropped. Does not touch counts except `out`. */
void op_emit(struct op_ctx *c, int port, const struct batch *b);
/* Physical row `row` of `b` becomes a dead letter with the reason; counts it as rejected. `code` is
 * a short stable word ("out_of_range"). Formatting costs ~1 us: only for bad rows. */
void op_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The rows of `b` whose key fits into a table, `b` itself when that is all of them; the others are
 * rejected. Rows come to an OP_KEYED operator without those whose `by` is too long; an operator
 * with keys of its own calls this for them. ~1 ns a row. */
const struct batch *op_short_keys(struct op_ctx *c, const struct batch *b, const int *key,
                                  int nkey);
/* Opens keyed table `table` (0..STATE_TABLES-1) in open(): values of fixed size `vsize` (zeroed
 * when created), or of any size when vsize is 0. See state.h. */
struct state *op_state(struct op_ctx *c, int table, uint32_t vsize);
/* A batch of n rows fired by the current watermark, for use inside watermark(): row i was due at
 * fire[i] (ascending, <= wm) and has event time time[i]. Its position is (fire_off, fire[i]), the
 * watermark before it fire[i]-1, so that neither depends on how far the watermark jumped. */
struct batch *op_fire(struct op_ctx *c, int port, uint32_t n, const int64_t *fire,
                      const int64_t *time, struct column **cols);

enum op_flags {
    OP_DETERMINISTIC = 1,
    OP_KEYED = 2,            /* `by` on its input is meaningful */
    OP_ORDERED = 4,          /* output depends on the order of rows */
    OP_UNORDERED_INPUTS = 8, /* in-ports are interchangeable (commutative): links are sorted by
                              * signature and dealt to the ports in that order. Several links into
                              * one in-port are unordered always */
    OP_ANY_PORTS = 16,       /* takes any port names */
    OP_SOURCE = 32,
    OP_SINK = 64,
    OP_INNER = 128,           /* a stage: users cannot write it */
    OP_TIMERS = 256,          /* has watermark(); needs event time on its input */
    OP_EFFECT_EXTERNAL = 512, /* never shared */
    OP_SETS_TIME = 1024,      /* its output carries event time; so does all below it */
    OP_KEEPS = 2048,   /* fields that its config does not name keep their values: rows that lie
                        * on partitions by such fields still do so behind it */
    OP_LIMITS = 8192,  /* its state may have a time to live and limits: a row needs nothing but
                        * the value of its key in table 0, by way of keyed.h */
    OP_TABLE = 16384,  /* of a source: its rows are a table, read whole by each new reader. Of a
                        * join: it keeps the rows of its in-ports after the first, which make
                        * nothing come out by themselves */
    OP_EXCHANGE = 4096 /* a stage of an exchange (exchange.h): as OP_SINK it writes, as
                        * OP_SOURCE it reads the internal topic of the instance that feeds
                        * it. The writer's rows are (value, partition) */
};
/* How much of the past matters: decides what `history: own` may share. */
enum op_memory { MEMORY_NONE, MEMORY_BOUNDED, MEMORY_UNBOUNDED };

struct op_desc {
    const char *name;
    const char *doc;            /* Markdown; the first sentence is the summary */
    const char *example;        /* a config, JSON; tested to be valid */
    uint16_t semantics;         /* raised only when output bytes change; part of the signature */
    uint16_t state_version;     /* raised when the form of its state changes: a restart then refuses
                                 * the old state instead of misreading it. 0: none, as 1 */
    const struct param *params; /* ends with name NULL; NULL: none */
    size_t config_size;
    const char *const *in_ports;  /* NULL-terminated; NULL: {"in"}; sources: {} by OP_SOURCE */
    const char *const *out_ports; /* NULL: {"out"}; sinks have none */
    unsigned flags;
    enum op_memory memory;
    /* Validates the config against the input schemas and fills the output schemas. NULL: output
     * schema = that of the first input. */
    void (*plan)(struct op_plan *p);
    void (*lower)(struct op_lower *l); /* faces only */
    size_t self_size;                  /* bytes of zeroed instance memory */
    int (*open)(void *self, struct op_ctx *c, struct err *e);
    /* OP_SOURCE that makes its rows itself (NULL: the executor reads topic `topic`). Fills *b with
     * rows off, off+1, ... (at most max; columns in the tick's arena) and of *o off0, n and, with
     * OP_SETS_TIME, wm and wm_before. Returns their number; 0: the stream has ended. A function of
     * config and off alone. */
    uint32_t (*pull)(void *self, struct op_ctx *c, int64_t off, uint32_t max, struct batch *b,
                     struct origin *o);
    /* OP_SOURCE whose records hold several rows each: emits the rows of the records at off, off+1,
     * ... and sets wm and wm_before of the origin, which has a point for each record. */
    void (*records)(void *self, struct op_ctx *c, const struct log_rows *rows, int64_t off,
                    struct origin *o);
    /* OP_SETS_TIME: after so many ms without records of its source it takes its stream for idle
     * (origin.silent_ms tells it, origin.idle is its answer). INT64_MAX: never. NULL: never. */
    int64_t (*idle)(const void *config);
    /* Without OP_TIMERS: whether its output depends on watermarks all the same. NULL: never. */
    bool (*looks_at_time)(const void *config);
    /* With pull: rows a second that the executor asks for; 0: as many as it can. */
    double (*rate)(const void *config);
    /* `port` counts linked in-ports. Empty batches are not handed in. */
    void (*process)(void *self, struct op_ctx *c, int port, const struct batch *b);
    /* OP_TIMERS: the watermark has reached `wm` (= ctx->wm); emit what is due in order of (fire
     * time, canonical key) with op_fire, then set next_timer > wm. TIME_MAX: the stream ended,
     * flush. */
    void (*watermark)(void *self, struct op_ctx *c, int64_t wm);
    /* End of the tick, after its last row and watermark; also in ticks without rows. Time stages
     * set ctx->out_origin here. NULL: none. */
    void (*end)(void *self, struct op_ctx *c);
    /* After restore or undo of state: make derived indexes anew from the tables. NULL: none. */
    void (*rebuild)(void *self, struct op_ctx *c);
    void (*close)(void *self);
};

/* ---- registry (ops.c) ---- */
/* All descriptors, sorted by name; built once at start by ops_init (operators/all.c lists them). */
extern const struct op_desc *const *ops_all;
extern int ops_count;
void ops_init(const struct op_desc *const *descs, int n);
const struct op_desc *ops_find(const char *name);
/* Its port names, NULL-terminated; sources have no in-ports, sinks no out-ports. */
const char *const *op_in_ports(const struct op_desc *d);
const char *const *op_out_ports(const struct op_desc *d);
const char *ops_nearest(const char *name); /* never an inner stage */

/* A text parameter (PT_STR, PT_FIELD, the word of a PT_ENUM, the name of a PT_FILE) of a config by
 * its name, for drivers that know no operator; NULL when there is none or it is absent. */
const char *op_config_text(const struct op_desc *d, const void *config, const char *name);

const struct start *op_config_start(const struct op_desc *d, const void *config); /* or NULL */
/* Its JSON forms (start.c). -1: it is none. */
int start_read(const struct jnode *n, struct start *s);
void start_write(struct sbuf *out, const struct start *s, bool people);

/* ---- configs from JSON (params.c) ---- */
/* Finds the file a config names; fills *f (data may stay NULL when only planning). 0 or negative.
 */
typedef int file_resolver(void *user, const char *name, struct file *f, struct err *e);
/* Parses `obj` (an object, or NULL for {}) into `config` (desc->config_size bytes). Reports unknown
 * keys with the nearest name, wrong types, missing and out-of-range values at their place; goes on
 * after each. A value with `b` set that is no boolean has been reported by the caller: it is passed
 * over. Returns 0 or ERR_INPUT. Memory from `a`. */
int params_parse(const struct op_desc *d, const struct json_doc *doc, const struct jnode *obj,
                 void *config, struct arena *a, file_resolver *resolve, void *user,
                 struct errs *es);
/* The same, for who goes on after errors: bit i of *wrong says that parameter i has one (or was
 * most likely meant by an unknown key). It then has a valid value of ours, its default or its least
 * one; zero where there is none (param_stands_in). */
int params_parse_on(const struct op_desc *d, const struct json_doc *doc, const struct jnode *obj,
                    void *config, struct arena *a, file_resolver *resolve, void *user,
                    struct errs *es, uint64_t *wrong);
bool param_stands_in(const struct param *p);
/* Fills all defaults. Required parameters stay zero. */
void params_defaults(const struct op_desc *d, void *config, struct arena *a);
/* Deep copy of a config into `a`, so that it outlives the document it was read from. The bytes of
 * files are shared; strpair.at becomes NULL. */
void params_copy(const struct op_desc *d, void *to, const void *from, struct arena *a);
/* The semantic parameters as canonical JSON (defaults filled, numbers and keys normalised, files by
 * hash): what is hashed. With `all`, every parameter, secrets as "***": what `show` prints. */
void params_canonical(const struct op_desc *d, const void *config, bool all, struct sbuf *out);
/* The same for one class of parameters. */
void params_class(const struct op_desc *d, const void *config, enum param_class cls,
                  struct sbuf *out);
/* The semantic ones that are not PARAM_LIVE: equal where state may change hands. */
void params_form(const struct op_desc *d, const void *config, struct sbuf *out);
#endif
