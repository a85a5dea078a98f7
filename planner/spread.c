#include "planner/spread.h"
#include <string.h>

static bool names_contain(const struct spread *by, const char *name) {
    for (int i = 0; i < by->nkey; i++)
        if (strcmp(by->key[i], name) == 0)
            return true;
    return false;
}

/* All rows of a key of `by` lie on one partition: equal keys are equal in the fewer fields, too. */
static bool lies_by(const struct spread *at, const struct spread *by) {
    for (int i = 0; i < at->nkey; i++)
        if (!names_contain(by, at->key[i]))
            return false;
    return at->nkey > 0;
}

/* In one order: that of the fields decides the key group. */
static bool same_keys(const struct spread *a, const struct spread *b) {
    for (int i = 0; i < a->nkey && i < b->nkey; i++)
        if (strcmp(a->key[i], b->key[i]) != 0)
            return false;
    return a->nkey == b->nkey;
}

static bool strs_name(const struct strs *v, const char *name) {
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->v[i], name) == 0)
            return true;
    return false;
}

static bool strmap_names(const struct strmap *v, const char *name) {
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->v[i].name, name) == 0)
            return true;
    return false;
}

/* Whether the config names the field in some way: then the task may write it. */
static bool names_field(const struct spec_task *t, const char *name) {
    for (const struct param *p = t->op->params; p && p->name; p++) {
        const void *at = (const char *)t->config + p->offset;
        const char *text = NULL;
        if (p->type == PT_FIELD)
            memcpy(&text, at, sizeof text);
        if ((text && strcmp(text, name) == 0) || (p->type == PT_STRS && strs_name(at, name)) ||
            ((p->type == PT_STRMAP || p->type == PT_EXPRMAP || p->type == PT_AGGMAP) &&
             strmap_names(at, name)))
            return true;
    }
    return false;
}

/* Its output lies by the key as long as the task cannot have changed a field of it. */
static bool keeps_key(const struct spec_task *t) {
    for (int k = 0; k < t->spread.nkey; k++)
        if (names_field(t, t->spread.key[k]))
            return false;
    return t->op->flags & OP_KEEPS;
}

static int source_parts(const struct spec_task *t, const struct spec_env *env) {
    const char *topic = op_config_text(t->op, t->config, "topic");
    int n = topic && env && env->partitions ? env->partitions(env->user, topic) : 1;
    return n > 1 ? n : 1;
}

static const struct spread *input_spread(const struct spec *s, const struct spec_input *in) {
    return &s->tasks[in->from].spread;
}

/* All inputs come together on one partition. */
static void gather(const struct spec *s, struct spec_task *t) {
    for (int k = 0; k < t->ninputs; k++)
        if (input_spread(s, &t->inputs[k])->parts > 1)
            t->inputs[k].groups = 1;
    t->spread = (struct spread){ .parts = 1 };
}

/* Every input is grouped, each by as many fields. */
static bool all_by(const struct spec_task *t) {
    for (int k = 0; k < t->ninputs; k++)
        if (t->inputs[k].grouping != GROUP_BY || t->inputs[k].nby != t->inputs[0].nby)
            return false;
    return t->ninputs > 0;
}

static void regroup(const struct spec *s, struct spec_task *t) {
    struct spread by = { t->inputs[0].nby, t->inputs[0].by, EXCHANGE_GROUPS };
    const struct spread *at = input_spread(s, &t->inputs[0]);
    t->spread = by;
    if (t->ninputs == 1 && lies_by(at, &by)) {
        t->spread = *at;
        return;
    }
    for (int k = 0; k < t->ninputs; k++) {
        struct spec_input *in = &t->inputs[k];
        struct spread mine = { in->nby, in->by, 0 };
        at = input_spread(s, in);
        if (at->parts != EXCHANGE_GROUPS || !same_keys(at, &mine))
            in->groups = EXCHANGE_GROUPS;
    }
}

/* Partition by partition: possible when all inputs have as many. */
static void keep(const struct spec *s, struct spec_task *t) {
    for (int k = 1; k < t->ninputs; k++)
        if (input_spread(s, &t->inputs[k])->parts != input_spread(s, &t->inputs[0])->parts) {
            gather(s, t);
            return;
        }
    t->spread = *input_spread(s, &t->inputs[0]);
    if (t->ninputs > 1)
        t->spread.nkey = 0;
}

void spread_task(const struct spec *s, struct spec_task *t, const struct spec_env *env) {
    int parts = 1;
    t->spread = (struct spread){ .parts = 1 };
    for (int k = 0; k < t->ninputs; k++) {
        if (t->inputs[k].from < 0)
            return;
        t->inputs[k].groups = 0;
        if (input_spread(s, &t->inputs[k])->parts > parts)
            parts = input_spread(s, &t->inputs[k])->parts;
    }
    if (t->op->flags & OP_SOURCE)
        t->spread.parts = source_parts(t, env);
    if (t->ninputs == 0 || parts == 1)
        return;
    if (t->op->memory == MEMORY_NONE
            ? (t->op->flags & OP_SINK) && op_config_text(t->op, t->config, "file")
            : !t->per_partition && !all_by(t))
        gather(s, t);
    else if (t->op->memory == MEMORY_NONE || t->per_partition)
        keep(s, t);
    else
        regroup(s, t);
    if (!keeps_key(t))
        t->spread.nkey = 0;
}
