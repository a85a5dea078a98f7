/* From tasks to stages: faces are lowered to chains of inner stages, links are drawn between
 * stages, and then, from sources to sinks, every stage gets its ports, schemas and signature.
 * After an error in a parent its children are left out: they are not to blame. */
#include "engine/exchange.h"
#include "engine/log.h"
#include "planner/canon.h"
#include "planner/spread.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lowering {
    struct spec *s;
    const struct spec_env *env;
    struct arena *a;
    struct errs *es;
    int cap; /* of s->stages */
    int task;
    int errors; /* reported by the operator for this task */
};

static int count_words(const char *const *v) {
    int n = 0;
    while (v[n])
        n++;
    return n;
}

/* ---- places ---- */

/* Element of an array parameter that a key names: by its text, or by its number. */
static const struct jnode *element(const struct jnode *arr, const char *key) {
    for (const struct jnode *c = arr->child; c; c = c->next)
        if (c->type == J_STR && strcmp(c->s, key) == 0)
            return c;
    char *end;
    unsigned long k = strtoul(key, &end, 10);
    if (!*key || *end)
        return NULL;
    const struct jnode *c = arr->child;
    while (c && k-- > 0)
        c = c->next;
    return c;
}

/* Reports at /config/PARAM/KEY, or as near to it as the file has something. */
static int report_at(struct lowering *l, const struct spec_task *t, const char *param,
                     const char *key, const char *text) {
    const struct jnode *n = t->at;
    if (param && t->config_at) {
        n = t->config_at;
        const struct jnode *c = jnode_get(n, param);
        if (c) {
            n = c;
            if (key && n->type == J_OBJ)
                c = jnode_get(n, key);
            else if (key && n->type == J_ARR)
                c = element(n, key);
            n = c ? c : n;
        }
    }
    return json_error(l->es, &l->s->doc, n, false, "%s", text);
}

/* What an operator says about a config with values of ours is believed where it looked up a name of
 * the user's in the input. */
static bool believed(const struct spec_task *t, const char *param) {
    for (int i = 0; param && t->op->params && t->op->params[i].name; i++) {
        const struct param *p = &t->op->params[i];
        if (strcmp(p->name, param) != 0)
            continue;
        bool names = p->type == PT_FIELD || p->type == PT_STRS || p->type == PT_STRMAP ||
                     p->type == PT_RANGES || p->type == PT_EXPR || p->type == PT_EXPRMAP ||
                     p->type == PT_AGGMAP || p->type == PT_TIME;
        return names && !(t->wrong >> i & 1);
    }
    return false;
}

/* ---- tasks to stages ---- */

static struct spec_stage *add_stage(struct lowering *l, const struct op_desc *op, void *config) {
    struct spec *s = l->s;
    if (s->nstages == l->cap) {
        struct spec_stage *old = s->stages;
        l->cap *= 2;
        s->stages = arena_zalloc(l->a, sizeof *old * (size_t)l->cap);
        memcpy(s->stages, old, sizeof *old * (size_t)s->nstages);
    }
    struct spec_stage *st = &s->stages[s->nstages++];
    *st = (struct spec_stage){
        .op = op, .config = config, .task = l->task, .parts = s->tasks[l->task].spread.parts
    };
    s->tasks[l->task].nstages++;
    return st;
}

static void *stage_of(struct lowering *l, const char *name) {
    const struct op_desc *op = ops_find(name);
    assert(op);
    void *config = arena_zalloc(l->a, op->config_size ? op->config_size : 1);
    params_defaults(op, config, l->a);
    add_stage(l, op, config);
    return config;
}

static void *lower_stage(struct op_lower *ol, const char *name) {
    return stage_of(ol->user, name);
}

static void lower_report(struct op_lower *ol, const char *param, const char *key,
                         const char *text) {
    struct lowering *l = ol->user;
    const struct spec_task *t = &l->s->tasks[l->task];
    l->errors++;
    if (!t->doubtful || believed(t, param))
        report_at(l, t, param, key, text);
}

/* The task that feeds in-port 0; NULL when several of different types do. */
static const struct spec_task *face_parent(const struct spec *s, const struct spec_task *t) {
    const struct spec_task *parent = NULL;
    for (int k = 0; k < t->ninputs; k++) {
        if (t->inputs[k].in_index > 0 || t->inputs[k].from < 0)
            continue;
        const struct spec_task *from = &s->tasks[t->inputs[k].from];
        if (parent && parent->op != from->op)
            return NULL;
        parent = parent ? parent : from;
    }
    return parent;
}

/* exchange -> exchange_append, exchange -> exchange_read before the task's own stages. An `ordered`
 * input has a reader for each partition that feeds it: the task then merges streams of several
 * origins, which is done in order of time (engine/align.c). */
static void lower_exchange(struct lowering *l, struct spec_task *t, struct spec_input *in) {
    int producers = l->s->tasks[in->from].spread.parts;
    in->readers = in->ordered ? producers : 1;
    for (int k = 0; k < 2 + in->readers; k++) {
        const char *name = k == 0 ? "exchange" : k == 1 ? "exchange_append" : "exchange_read";
        struct exchange_config *c = stage_of(l, name);
        c->groups = in->groups;
        c->producers = producers;
        c->producer = in->ordered && k > 1 ? k - 2 : -1;
        l->s->stages[l->s->nstages - 1].parts = k < 2 ? producers : in->groups;
    }
    in->exchange = l->s->nstages - in->readers;
    t->nexchanges += 2 + in->readers;
}

/* A face may keep a value for each key in one form and windows in another. */
static void check_limits(struct lowering *l, struct spec_task *t) {
    for (int k = 0; k < t->nstages; k++)
        if (!t->state || (l->s->stages[t->first + k].op->flags & OP_LIMITS))
            return;
    if (t->bad)
        return;
    json_error(l->es, &l->s->doc, t->state_at, true,
               "windows decide by themselves what they forget; \"state\" is for %s without them",
               t->op->name);
    t->bad = true;
}

static void lower_task(struct lowering *l, int i) {
    struct spec *s = l->s;
    struct spec_task *t = &s->tasks[i];
    l->task = i;
    t->first = s->nstages;
    t->nstages = 0;
    /* Without a sound config of its own and of the parent the face cannot choose its stages. */
    const struct spec_task *parent = face_parent(s, t);
    if (t->bad || (parent && parent->bad)) {
        t->bad = true;
        return;
    }
    spread_task(s, t, l->env);
    for (int k = 0; k < t->ninputs; k++)
        if (t->inputs[k].groups)
            lower_exchange(l, t, &t->inputs[k]);
    if (!t->op->lower) {
        add_stage(l, t->op, t->config);
        return;
    }
    struct op_lower ol = { .config = t->config,
                           .parent_type = parent ? parent->op->name : "",
                           .parent_config = parent ? parent->config : NULL,
                           .arena = l->a,
                           .user = l,
                           .stage = lower_stage,
                           .report = lower_report };
    l->errors = 0;
    t->op->lower(&ol);
    assert(l->errors || t->nstages > 0);
    t->bad = l->errors > 0;
    check_limits(l, t);
}

/* ---- links ---- */

/* The out-port of stage `st` named `name`; OP_ANY_PORTS: added when new. -1: too many. */
static int out_index(struct lowering *l, struct spec_stage *st, const char *name) {
    for (int i = 0; i < st->nout; i++)
        if (strcmp(st->out_name[i], name) == 0)
            return i;
    assert(st->op->flags & OP_ANY_PORTS);
    if (st->nout == OP_PORTS_MAX)
        return -1;
    if (!st->out_name)
        st->out_name = ARENA_ARRAY(l->a, const char *, OP_PORTS_MAX);
    st->out_name[st->nout] = name;
    return st->nout++;
}

/* Name of a face's port at the stage that stands for it: the ports correspond by place. */
static const char *port_of_stage(const char *const *face, const char *const *stage,
                                 const char *name) {
    for (int i = 0; face[i] && stage[i]; i++)
        if (strcmp(face[i], name) == 0)
            return stage[i];
    return name;
}

static void ports_of(struct spec_stage *st) {
    if (st->op->flags & OP_ANY_PORTS)
        return;
    st->in_name = (const char **)op_in_ports(st->op);
    st->nin = count_words(st->in_name);
    st->out_name = (const char **)op_out_ports(st->op);
    st->nout = count_words(st->out_name);
}

/* The stage's link to the parent becomes that of the exchange; its own go to the readers. */
static void link_exchange(struct lowering *l, const struct spec_input *in, struct spec_stage *st,
                          struct stage_in *si) {
    struct spec_stage *x = &l->s->stages[in->exchange - 2];
    for (int k = 0; k < 2 + in->readers; k++) {
        ports_of(&x[k]);
        x[k].links = ARENA_NEW(l->a, struct stage_in);
        *x[k].links = (struct stage_in){ .from = in->exchange - 2, .out_port = k > 1 };
        x[k].nlinks = 1;
    }
    *x[0].links = *si;
    x[0].links->in_port = 0;
    x[0].links->per_partition = false;
    if (in->groups == 1) {
        x[0].links->grouping = GROUP_NONE;
        x[0].links->nby = 0;
    }
    si->out_port = 0;
    for (int k = 0; k < in->readers; k++) {
        struct stage_in *to = k ? &st->links[st->nlinks++] : si;
        *to = *si;
        to->from = in->exchange + k;
    }
}

static bool link_input(struct lowering *l, struct spec_task *t, struct spec_stage *st,
                       const struct spec_input *in) {
    const struct spec_task *from = &l->s->tasks[in->from];
    if (from->bad)
        return false;
    int last = from->first + from->nstages - 1;
    struct spec_stage *parent = &l->s->stages[last];
    const char *name = in->out_port;
    if (!(parent->op->flags & OP_ANY_PORTS))
        name = port_of_stage(op_out_ports(from->op), op_out_ports(parent->op), name);
    int out = out_index(l, parent, name);
    if (out < 0) {
        json_error(l->es, &l->s->doc, in->at, false, "task '%s' has more than %d out-ports",
                   from->id, OP_PORTS_MAX);
        return false;
    }
    struct stage_in *si = &st->links[st->nlinks++];
    *si = (struct stage_in){ .from = last,
                             .in_port = in->in_index,
                             .out_port = out,
                             .grouping = in->grouping,
                             .per_partition = t->per_partition,
                             .nby = in->nby,
                             .by = in->by,
                             .at = in->at };
    if (in->groups)
        link_exchange(l, in, st, si);
    return true;
}

/* OP_ANY_PORTS: in-ports are the names used, in bytewise order. */
static bool number_any_ports(struct lowering *l, struct spec_task *t, struct spec_stage *st) {
    const char **names = ARENA_ARRAY(l->a, const char *, OP_PORTS_MAX);
    int n = 0;
    for (int k = 0; k < t->ninputs; k++) {
        const char *name = t->inputs[k].in_port;
        int at = 0;
        while (at < n && strcmp(names[at], name) < 0)
            at++;
        if (at < n && strcmp(names[at], name) == 0)
            continue;
        if (n == OP_PORTS_MAX) {
            json_error(l->es, &l->s->doc, t->inputs[k].at, false,
                       "task '%s' has more than %d in-ports", t->id, OP_PORTS_MAX);
            return false;
        }
        memmove(&names[at + 1], &names[at], sizeof *names * (size_t)(n - at));
        names[at] = name;
        n++;
    }
    for (int k = 0; k < t->ninputs; k++) {
        int at = 0;
        while (strcmp(names[at], t->inputs[k].in_port) != 0)
            at++;
        t->inputs[k].in_index = at;
    }
    st->in_name = names;
    st->nin = n;
    return true;
}

static void link_task(struct lowering *l, int i) {
    struct spec_task *t = &l->s->tasks[i];
    if (t->bad)
        return;
    for (int k = t->nexchanges; k < t->nstages; k++) {
        struct spec_stage *st = &l->s->stages[t->first + k];
        bool head = k == t->nexchanges;
        ports_of(st);
        int n = head ? t->ninputs : 1;
        for (int j = 0; head && j < t->ninputs; j++)
            n += t->inputs[j].groups ? t->inputs[j].readers - 1 : 0;
        st->links = ARENA_ARRAY(l->a, struct stage_in, n ? n : 1);
        if (!head) { /* the chain inside a face */
            int out = out_index(l, st - 1, "out");
            st->links[0] = (struct stage_in){ .from = t->first + k - 1, .out_port = out };
            st->nlinks = 1;
            continue;
        }
        if ((st->op->flags & OP_ANY_PORTS) && !number_any_ports(l, t, st))
            t->bad = true;
        for (int j = 0; j < t->ninputs && !t->bad; j++)
            if (!link_input(l, t, st, &t->inputs[j]))
                t->bad = true;
    }
}

/* ---- schemas ---- */

static void infer_report(struct op_plan *p, const char *param, const char *key, const char *text) {
    struct lowering *l = p->user;
    const struct spec_task *t = &l->s->tasks[l->task];
    if (t->doubtful && !believed(t, param))
        return;
    report_at(l, &l->s->tasks[l->task], param, key, text);
}

static const struct schema *link_schema(const struct spec *s, const struct stage_in *in) {
    return s->stages[in->from].out[in->out_port];
}

/* Grouping fields must exist even where the grouping is then dropped. */
static bool check_by(struct lowering *l, const struct stage_in *in) {
    const struct schema *schema = link_schema(l->s, in);
    const struct jnode *list = in->at ? jnode_get(in->at, "by") : NULL;
    bool ok = true;
    for (int k = 0; k < in->nby; k++) {
        char key[16];
        snprintf(key, sizeof key, "%d", k);
        const struct jnode *at = list && list->type == J_ARR ? element(list, key) : list;
        int f = schema_find(schema, in->by[k]);
        const char *near = f < 0 ? schema_nearest(schema, in->by[k]) : NULL;
        if (f >= 0 && schema->f[f].type != TYPE_VEC)
            continue;
        ok = false;
        if (f >= 0)
            json_error(l->es, &l->s->doc, at, false, "field '%s' is a vector: it cannot be a key",
                       in->by[k]);
        else if (near)
            json_error(l->es, &l->s->doc, at, false,
                       "the input has no field '%.60s'; did you mean '%s'?", in->by[k], near);
        else
            json_error(l->es, &l->s->doc, at, false, "the input has no field '%.60s'; it has %s",
                       in->by[k], schema_text(l->a, schema));
    }
    return ok;
}

static bool same_by(const struct stage_in *a, const struct stage_in *b) {
    if (a->grouping != b->grouping || a->nby != b->nby)
        return false;
    for (int k = 0; k < a->nby; k++)
        if (strcmp(a->by[k], b->by[k]) != 0)
            return false;
    return true;
}

/* first[p]: a link into in-port p, or NULL. */
static void fill_keys(struct lowering *l, struct spec_stage *st,
                      const struct stage_in *const *first) {
    st->keys = arena_zalloc(l->a, sizeof *st->keys * (size_t)(st->nin ? st->nin : 1));
    for (int p = 0; p < st->nin; p++) {
        int n = first[p] ? first[p]->nby : 0, *field = ARENA_ARRAY(l->a, int, n ? n : 1);
        for (int k = 0; k < n; k++)
            field[k] = schema_find(st->in[p], first[p]->by[k]);
        st->keys[p] = (struct op_by){ n, field };
    }
    if (st->nin) {
        st->nby = st->keys[0].n;
        st->by = st->keys[0].field;
    }
}

static void fill_timed(struct lowering *l, struct spec_stage *st) {
    st->timed = arena_zalloc(l->a, sizeof *st->timed * (size_t)(st->nin ? st->nin : 1));
    for (int p = 0; p < st->nin; p++)
        st->timed[p] = st->nlinks > 0;
    for (int k = 0; k < st->nlinks; k++)
        st->timed[st->links[k].in_port] &= l->s->stages[st->links[k].from].time;
}

/* All links into one in-port must agree; then the port has one schema. */
static bool fill_ports(struct lowering *l, struct spec_stage *st) {
    struct spec *s = l->s;
    bool ok = true;
    st->in = arena_zalloc(l->a, sizeof *st->in * (size_t)(st->nin ? st->nin : 1));
    const struct stage_in **first =
        arena_zalloc(l->a, sizeof *first * (size_t)(st->nin ? st->nin : 1));
    for (int k = 0; k < st->nlinks; k++) {
        const struct stage_in *in = &st->links[k], *one = first[in->in_port];
        const struct schema *schema = link_schema(s, in);
        if (!one) {
            first[in->in_port] = in;
            st->in[in->in_port] = schema;
            continue;
        }
        const char *a = s->tasks[s->stages[one->from].task].id,
                   *b = s->tasks[s->stages[in->from].task].id;
        if (schema != st->in[in->in_port] && !schema_equal(schema, st->in[in->in_port])) {
            json_error(l->es, &s->doc, in->at, false,
                       "in-port '%s' is fed by streams of different fields: '%s' has %s, '%s' has "
                       "%s",
                       st->in_name[in->in_port], a, schema_text(l->a, st->in[in->in_port]), b,
                       schema_text(l->a, schema));
            ok = false;
        } else if (!same_by(in, one)) {
            json_error(l->es, &s->doc, in->at, false,
                       "in-port '%s' is fed by '%s' and '%s' with different groupings",
                       st->in_name[in->in_port], a, b);
            ok = false;
        }
        st->in[in->in_port] = schema;
    }
    if (ok)
        fill_keys(l, st, first);
    return ok;
}

static const char **by_names(const struct spec_stage *st, struct arena *a) {
    const char **v = ARENA_ARRAY(a, const char *, st->nby ? st->nby : 1);
    for (int k = 0; k < st->nby; k++)
        v[k] = st->in[0]->f[st->by[k]].name;
    return v;
}

static bool infer_plan(struct lowering *l, struct spec_stage *st, bool in_time) {
    struct spec_task *t = &l->s->tasks[st->task];
    st->out = arena_zalloc(l->a, sizeof *st->out * (size_t)(st->nout ? st->nout : 1));
    if ((st->op->flags & OP_TIMERS) && !in_time) {
        char text[256];
        snprintf(text, sizeof text,
                 "%s needs event time, which its input does not carry: parse it and give \"time\"",
                 t->op->name);
        report_at(l, t, NULL, NULL, text);
        return false;
    }
    if (t->state && (st->op->flags & OP_LIMITS)) {
        st->state = t->state;
        if (t->state->ttl != PARAM_UNSET && !in_time) {
            json_error(l->es, &l->s->doc, t->state_at, false,
                       "a ttl needs event time, which the input of '%s' does not carry: parse it "
                       "and give \"time\"",
                       t->id);
            return false;
        }
    }
    if (st->op->plan) {
        struct op_plan p = { .config = st->config,
                             .nin = st->nin,
                             .in_name = st->in_name,
                             .in = st->in,
                             .nout = st->nout,
                             .out_name = st->out_name,
                             .out = st->out,
                             .nby = st->nby,
                             .by = by_names(st, l->a),
                             .in_time = in_time,
                             .keys = st->keys,
                             .timed = st->timed,
                             .arena = l->a,
                             .user = l,
                             .report = infer_report };
        st->op->plan(&p);
        if (p.errors)
            return false;
    } else {
        for (int k = 0; k < st->nout; k++)
            st->out[k] = st->nin ? st->in[0] : NULL;
    }
    for (int k = 0; k < st->nout; k++)
        assert(st->out[k]);
    return !t->blind;
}

/* A grouping that cannot matter is no difference: dropped before signing. */
static void drop_grouping(const struct op_desc *op, struct stage_in *in) {
    if (op->memory == MEMORY_NONE)
        in->per_partition = false;
    if (op->memory != MEMORY_NONE || (op->flags & OP_KEYED))
        return;
    if (in->grouping == GROUP_BY || in->grouping == GROUP_SHUFFLE) {
        in->grouping = GROUP_NONE;
        in->nby = 0;
    }
}

static bool infer_stage(struct lowering *l, int i) {
    struct spec *s = l->s;
    struct spec_stage *st = &s->stages[i];
    l->task = st->task;
    for (int k = 0; k < st->nlinks; k++)
        if (s->stages[st->links[k].from].bad)
            return false;
    bool ok = true;
    for (int k = 0; k < st->nlinks; k++) {
        ok &= check_by(l, &st->links[k]);
        drop_grouping(st->op, &st->links[k]);
    }
    if (!ok) { /* the config may have errors, too */
        struct spec_task *t = &s->tasks[st->task];
        t->doubtful = t->blind = true;
        for (int k = 0; k < st->nlinks; k++)
            st->links[k].nby = 0;
    }
    canon_links(s, i, l->a);
    if (!fill_ports(l, st))
        return false;
    fill_timed(l, st);
    bool in_time = st->nin > 0 && st->timed[0];
    st->time = in_time || (st->op->flags & OP_SETS_TIME);
    return infer_plan(l, st, in_time);
}

/* ---- topics ---- */

static bool topic_valid(const char *s) {
    size_t len = strlen(s);
    if (len == 0 || len > LOG_NAME_MAX || strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!spec_name_valid(s + i, 1, false) && s[i] != '.')
            return false;
    return true;
}

/* Two writers of one file are as wrong as two of one topic: files stand in the same table, under a
 * name that no topic can have. */
static const char *file_key(struct lowering *l, const struct spec_stage *st, const char *file) {
    return file && (st->op->flags & OP_SINK) ? arena_printf(l->a, SPEC_FILE_PREFIX "%s", file)
                                             : NULL;
}

static void stage_topics(struct lowering *l, struct spec_stage *st) {
    const char *topic = NULL, *file = NULL;
    if (!(st->op->flags & (OP_SOURCE | OP_SINK)))
        return;
    for (const struct param *p = st->op->params; p && p->name; p++) {
        const char *at = (const char *)st->config + p->offset;
        if (p->type == PT_STR && strcmp(p->name, "topic") == 0)
            topic = *(const char *const *)at;
        if (p->type == PT_STR && strcmp(p->name, "file") == 0)
            file = *(const char *const *)at;
        if (p->type == PT_BOOL && strcmp(p->name, "append") == 0)
            st->append = *(const bool *)at;
    }
    st->writes = topic ? NULL : file_key(l, st, file);
    if (!topic)
        return;
    char text[400];
    bool writes = st->op->flags & OP_SINK;
    text[0] = 0;
    if (!topic_valid(topic))
        snprintf(text, sizeof text,
                 "the topic name '%.60s' must be 1 to %d letters, digits, '.', '_' or '-'", topic,
                 LOG_NAME_MAX);
    else if (writes && strncmp(topic, "braid.", 6) == 0)
        snprintf(text, sizeof text,
                 "topics named 'braid.…' are Braid's own: '%.60s' cannot be written", topic);
    if (text[0]) {
        report_at(l, &l->s->tasks[st->task], "topic", NULL, text);
        st->bad = true;
    } else if (writes) {
        st->writes = topic;
    } else {
        st->reads = topic;
    }
}

const char *spec_kind(const char *written) {
    return strncmp(written, SPEC_FILE_PREFIX, strlen(SPEC_FILE_PREFIX)) == 0 ? "file" : "topic";
}

const char *spec_written(const char *written) {
    size_t len = strlen(SPEC_FILE_PREFIX);
    return strncmp(written, SPEC_FILE_PREFIX, len) == 0 ? written + len : written;
}

/* Which topics are written below which topics: spec->edges, for cycles across dataflows. */
static void topic_edges(struct lowering *l) {
    struct spec *s = l->s;
    int nreads = 0, nwrites = 0;
    for (int i = 0; i < s->nstages; i++) {
        nreads += s->stages[i].reads != NULL;
        nwrites += s->stages[i].writes != NULL;
    }
    if (!nreads || !nwrites)
        return;
    size_t words = ((size_t)nreads + 63) / 64;
    uint64_t *reach = arena_zalloc(l->a, sizeof *reach * words * (size_t)s->nstages);
    const char **topic = ARENA_ARRAY(l->a, const char *, nreads);
    s->edges = ARENA_ARRAY(l->a, struct topic_edge, (size_t)nreads * (size_t)nwrites);
    nreads = 0;
    for (int i = 0; i < s->nstages; i++) {
        struct spec_stage *st = &s->stages[i];
        uint64_t *mine = reach + words * (size_t)i;
        if (st->reads) {
            topic[nreads] = st->reads;
            mine[nreads >> 6] |= (uint64_t)1 << (nreads & 63);
            nreads++;
        }
        for (int k = 0; k < st->nlinks; k++)
            for (size_t w = 0; w < words; w++)
                mine[w] |= reach[words * (size_t)st->links[k].from + w];
        for (int r = 0; st->writes && r < nreads; r++)
            if (mine[r >> 6] >> (r & 63) & 1)
                s->edges[s->nedges++] = (struct topic_edge){ topic[r], st->writes, i };
    }
}

/* Inside one file: two tasks writing one topic, and a topic written below itself. */
static void check_topics(struct lowering *l) {
    struct spec *s = l->s;
    char text[400];
    for (int i = 0; i < s->nstages; i++) {
        struct spec_stage *st = &s->stages[i];
        for (int j = 0; st->writes && j < i; j++) {
            struct spec_stage *o = &s->stages[j];
            if (!o->writes || strcmp(o->writes, st->writes) != 0 || sig_equal(o->sig, st->sig) ||
                (o->append && st->append))
                continue;
            snprintf(text, sizeof text, "%s '%.60s' is written by task '%s' already%s",
                     spec_kind(st->writes), spec_written(st->writes), s->tasks[o->task].id,
                     st->writes == spec_written(st->writes)
                         ? "; several writers of a topic need \"append\": true"
                         : "");
            report_at(l, &s->tasks[st->task], spec_kind(st->writes), NULL, text);
            break;
        }
    }
    for (int e = 0; e < s->nedges; e++) {
        if (strcmp(s->edges[e].reads, s->edges[e].writes) != 0)
            continue;
        snprintf(text, sizeof text, "topic '%.60s' would be written below a task that reads it",
                 s->edges[e].writes);
        report_at(l, &s->tasks[s->stages[s->edges[e].stage].task], "topic", NULL, text);
    }
}

void spec_lower(struct spec *s, const struct spec_env *env, struct arena *a, struct errs *es) {
    struct lowering l = { .s = s, .env = env, .a = a, .es = es, .cap = 4 * s->ntasks };
    struct sbuf scratch = { 0 };
    s->stages = arena_zalloc(a, sizeof *s->stages * (size_t)l.cap);
    for (int i = 0; i < s->ntasks; i++)
        lower_task(&l, s->order[i]);
    for (int i = 0; i < s->ntasks; i++)
        link_task(&l, s->order[i]);
    for (int i = 0; i < s->nstages; i++) {
        struct spec_stage *st = &s->stages[i];
        st->bad = s->tasks[st->task].bad || !infer_stage(&l, i);
        if (!st->bad) {
            stage_topics(&l, st);
            canon_sign(s, i, a, &scratch);
        }
        if (st->bad)
            s->tasks[st->task].bad = true;
    }
    sbuf_free(&scratch);
    topic_edges(&l);
    check_topics(&l);
}
