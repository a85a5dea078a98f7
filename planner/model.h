/* The running set: instances by signature, dataflows that use them, topics they read and write.
 *
 * One plan belongs to one thread. Instances, dataflows and topics belong to the plan; pointers hold
 * until the thing is gone (instances: until plan_freed). Lookups cost one hash probe, whatever
 * runs. */
#ifndef BRAID_MODEL_H
#define BRAID_MODEL_H
#include "planner/canon.h"

/* Where a request joins the graph. Requests with the same id start at exactly the same rows. */
struct plan_cut {
    uint64_t id;
    int64_t time; /* ms since 1970, for people */
};

struct flow;
struct inst;

/* One dataflow's reference to one instance. */
struct use {
    struct flow *flow;
    struct inst *inst;
    struct use *prev, *next; /* of the instance */
    int task;                /* the first task whose output the instance makes; -1: inner only */
};
/* A link as an entry of its parent's list of children. */
struct child {
    struct inst *inst;
    struct child *prev, *next;
};
struct topic {
    char *name;
    struct topic *next_hash;
    struct inst *readers, *writers;
    struct edge *below; /* topics written below readers of this one */
    uint64_t stamp;     /* of the last cycle search */
};
struct edge {
    struct topic *from, *to;
    struct edge *prev, *next; /* of from->below */
};

enum inst_state {
    INST_NEW,     /* added by a change that is not committed */
    INST_RUNNING, /* committed */
    INST_GONE,    /* removed; memory waits for plan_freed */
};
/* One started copy of a stage. */
struct inst {
    const struct task_def *def; /* the newest; former ones stay in the arena */
    enum inst_state state;
    struct plan_cut cut; /* its history begins here */
    const char *attach;  /* attach parameters it was started with; NULL: the defaults */
    const char *blob;
    uint32_t blob_len, config_off, config_len;
    uint32_t refs;              /* live dataflows that use it */
    uint32_t tails, sink_tails; /* those of them in which it is a task's last stage: other, sinks */
    struct use *uses;
    struct inst **parent; /* of link i */
    struct child *link;   /* entry of link i in its parent's list */
    struct child *children;
    struct topic *topic; /* read or written */
    bool append;
    struct inst *topic_prev, *topic_next;
    struct inst *next_sig, *next_number;  /* hash chains */
    struct inst *zero_prev, *zero_next;   /* refs == 0 since the last commit */
    struct inst *fresh_prev, *fresh_next; /* INST_NEW, oldest first */
    struct use *mine;                     /* of the dataflow being merged, when stamp says so */
    uint64_t stamp;
    struct arena arena;
};

struct flow_task {
    const char *id, *label;
    const struct op_desc *op;
    int first, nstages;
};
struct flow {
    const char *name, *tenant, *text;
    size_t len; /* of text */
    enum history history;
    struct plan_cut cut;
    int ntasks, nstages, nuses, nedges;
    struct flow_task *tasks;
    struct inst **stage; /* of all stages, by task */
    struct use *uses;    /* distinct instances */
    struct edge *edges;
    int fresh;                /* instances its submit started */
    struct flow *next_name;   /* hash chain */
    struct flow *prev, *next; /* all, in order of submission */
    uint64_t serial;
    struct arena arena;
};

/* One step since the last commit, for rollback. */
struct step {
    enum { STEP_SUBMIT, STEP_REMOVE, STEP_GROW } kind;
    struct flow *flow;
    struct inst *inst;
    const struct task_def *former;
};

struct schema_ref {
    struct schema_ref *next;
    uint64_t hash;
    uint32_t refs;
    struct schema schema; /* its fields and names follow */
};

struct plan_counts {
    uint64_t dataflows, stages;          /* running */
    uint64_t tasks, sinks;               /* running, de-duplicated; sinks are not in tasks */
    uint64_t submitted, submitted_sinks; /* as the users wrote them */
};

struct plan {
    uint64_t version, next_instance, stamp, serial;
    struct inst **by_sig, **by_number;
    uint64_t sig_mask, number_mask, ninsts;
    struct flow **by_name, *first, *last;
    uint64_t name_mask;
    struct topic **topics;
    uint64_t topic_mask, ntopics;
    struct schema_ref **schemas;
    uint64_t schema_mask, nschemas;
    struct inst *zero, *fresh, *fresh_last;
    struct step *steps;
    int nsteps, steps_cap;
    struct plan_counts counts;
    struct change change;
    struct arena scratch;      /* of one submit */
    struct arena change_arena; /* of the change being prepared */
};

struct plan *plan_new(void);
void plan_free(struct plan *p);
struct flow *plan_find(const struct plan *p, const char *name);
/* ERR_NOTFOUND, with the nearest name. */
int plan_unknown(const struct plan *p, const char *name, struct err *e);
struct inst *plan_instance(const struct plan *p, uint64_t number);
const struct flow_task *flow_find_task(const struct flow *f, const char *id); /* NULL: none */
/* The stage whose rows others read, or the sink. */
static inline struct inst *flow_last(const struct flow *f, const struct flow_task *t) {
    return f->stage[t->first + t->nstages - 1];
}

/* ---- inside the planner ---- */
/* First instance of a signature; walk on with inst->next_sig. */
struct inst *model_lookup(const struct plan *p, struct sig sig);
/* Starts an instance of stage i; parent[k] feeds link k; `number` 0: the next one. */
struct inst *model_start(struct plan *p, const struct spec *s, int i, struct inst *const *parents,
                         const char *label, struct plan_cut cut, uint64_t number);
/* Takes back model_out_port. */
void model_shrink(struct plan *p, struct inst *in, const struct task_def *former);
/* Out of every index and list, so that nobody finds it; its memory stays. */
void model_retire(struct plan *p, struct inst *in);
void model_destroy(struct plan *p, struct inst *in); /* frees; retired before */
void model_ref(struct plan *p, struct inst *in);
void model_unref(struct plan *p, struct inst *in);
/* Index of the out-port; adds it (a step) when the running task does not have it yet. */
int model_out_port(struct plan *p, struct inst *in, const char *name, const struct schema *schema);
struct topic *model_topic(struct plan *p, const char *name); /* made when absent */
void model_topic_done(struct plan *p, struct topic *t);      /* freed when empty */
void model_name(struct plan *p, struct flow *f);             /* into the index and the list */
void model_unname(struct plan *p, struct flow *f);
void flow_free(struct flow *f);
struct step *model_step(struct plan *p);
#endif
