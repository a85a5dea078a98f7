#include "planner/model.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { TABLE_FIRST = 64, INST_CHUNK = 768 };

static void *table_new(uint64_t slots) {
    void *t = calloc(slots, sizeof(void *));
    if (!t)
        abort();
    return t;
}

struct plan *plan_new(void) {
    struct plan *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->next_instance = 1;
    p->by_sig = table_new(TABLE_FIRST);
    p->by_number = table_new(TABLE_FIRST);
    p->by_name = table_new(TABLE_FIRST);
    p->topics = table_new(TABLE_FIRST);
    p->schemas = table_new(TABLE_FIRST);
    p->sig_mask = p->number_mask = p->name_mask = p->topic_mask = p->schema_mask = TABLE_FIRST - 1;
    return p;
}

void flow_free(struct flow *f) {
    struct arena a = f->arena;
    arena_free(&a);
}

static void inst_free(struct inst *in) {
    struct arena a = in->arena;
    arena_free(&a);
}

void plan_free(struct plan *p) {
    if (!p)
        return;
    for (int i = 0; i < p->nsteps; i++) /* removed but not committed */
        if (p->steps[i].kind == STEP_REMOVE)
            flow_free(p->steps[i].flow);
    for (struct flow *f = p->first, *next; f; f = next) {
        next = f->next;
        flow_free(f);
    }
    for (uint64_t i = 0; i <= p->number_mask; i++)
        for (struct inst *in = p->by_number[i], *next; in; in = next) {
            next = in->next_number;
            inst_free(in);
        }
    for (uint64_t i = 0; i <= p->topic_mask; i++)
        for (struct topic *t = p->topics[i], *next; t; t = next) {
            next = t->next_hash;
            free(t);
        }
    for (uint64_t i = 0; i <= p->schema_mask; i++)
        for (struct schema_ref *r = p->schemas[i], *next; r; r = next) {
            next = r->next;
            free(r);
        }
    free(p->by_sig);
    free(p->by_number);
    free(p->by_name);
    free(p->topics);
    free(p->schemas);
    free(p->steps);
    arena_free(&p->scratch);
    arena_free(&p->change_arena);
    free(p);
}

struct step *model_step(struct plan *p) {
    if (p->nsteps == p->steps_cap) {
        p->steps_cap = p->steps_cap ? 2 * p->steps_cap : 16;
        p->steps = realloc(p->steps, sizeof *p->steps * (size_t)p->steps_cap);
        if (!p->steps)
            abort();
    }
    struct step *s = &p->steps[p->nsteps++];
    *s = (struct step){ 0 };
    return s;
}

/* ---- schemas: one copy of each, counted ---- */

static uint64_t schema_hash(const struct schema *s) {
    uint64_t h = (uint64_t)s->n;
    for (int i = 0; i < s->n; i++)
        h = XXH3_64bits_withSeed(s->f[i].name, strlen(s->f[i].name) + 1,
                                 h * 31 + (uint64_t)s->f[i].type + ((uint64_t)s->f[i].dim << 8));
    return h;
}

static struct schema_ref *schema_new_ref(const struct schema *s, uint64_t hash) {
    size_t text = 0;
    for (int i = 0; i < s->n; i++)
        text += strlen(s->f[i].name) + 1;
    struct schema_ref *r = malloc(sizeof *r + sizeof(struct field) * (size_t)s->n + text);
    if (!r)
        abort();
    struct field *f = (struct field *)(r + 1);
    char *at = (char *)(f + s->n);
    for (int i = 0; i < s->n; i++) {
        size_t len = strlen(s->f[i].name) + 1;
        f[i] = s->f[i];
        f[i].name = memcpy(at, s->f[i].name, len);
        at += len;
    }
    *r = (struct schema_ref){ .hash = hash, .schema = { s->n, f } };
    return r;
}

static void schemas_grow(struct plan *p) {
    uint64_t mask = 2 * p->schema_mask + 1;
    struct schema_ref **t = table_new(mask + 1);
    for (uint64_t i = 0; i <= p->schema_mask; i++)
        for (struct schema_ref *r = p->schemas[i], *next; r; r = next) {
            next = r->next;
            r->next = t[r->hash & mask];
            t[r->hash & mask] = r;
        }
    free(p->schemas);
    p->schemas = t;
    p->schema_mask = mask;
}

static const struct schema *schema_intern(struct plan *p, const struct schema *s) {
    uint64_t hash = schema_hash(s);
    struct schema_ref *r = p->schemas[hash & p->schema_mask];
    while (r && !(r->hash == hash && schema_equal(&r->schema, s)))
        r = r->next;
    if (!r) {
        if (p->nschemas++ > p->schema_mask)
            schemas_grow(p);
        r = schema_new_ref(s, hash);
        r->next = p->schemas[hash & p->schema_mask];
        p->schemas[hash & p->schema_mask] = r;
    }
    r->refs++;
    return &r->schema;
}

static struct schema_ref *ref_of(const struct schema *s) {
    return (struct schema_ref *)((char *)s - offsetof(struct schema_ref, schema));
}

static const struct schema *schema_share(const struct schema *s) {
    ref_of(s)->refs++;
    return s;
}

static void schema_drop(struct plan *p, const struct schema *s) {
    struct schema_ref *r = ref_of(s), **at = &p->schemas[r->hash & p->schema_mask];
    if (--r->refs)
        return;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    p->nschemas--;
    free(r);
}

/* ---- topics ---- */

static uint64_t name_hash(const char *s) {
    return XXH3_64bits(s, strlen(s));
}

static void topics_grow(struct plan *p) {
    uint64_t mask = 2 * p->topic_mask + 1;
    struct topic **t = table_new(mask + 1);
    for (uint64_t i = 0; i <= p->topic_mask; i++)
        for (struct topic *x = p->topics[i], *next; x; x = next) {
            uint64_t h = name_hash(x->name) & mask;
            next = x->next_hash;
            x->next_hash = t[h];
            t[h] = x;
        }
    free(p->topics);
    p->topics = t;
    p->topic_mask = mask;
}

struct topic *model_topic(struct plan *p, const char *name) {
    uint64_t hash = name_hash(name);
    for (struct topic *t = p->topics[hash & p->topic_mask]; t; t = t->next_hash)
        if (strcmp(t->name, name) == 0)
            return t;
    if (p->ntopics++ > p->topic_mask)
        topics_grow(p);
    size_t len = strlen(name) + 1;
    struct topic *t = malloc(sizeof *t + len);
    if (!t)
        abort();
    *t = (struct topic){ .name = (char *)(t + 1), .next_hash = p->topics[hash & p->topic_mask] };
    memcpy(t->name, name, len);
    p->topics[hash & p->topic_mask] = t;
    return t;
}

void model_topic_done(struct plan *p, struct topic *t) {
    if (t->readers || t->writers || t->below)
        return;
    struct topic **at = &p->topics[name_hash(t->name) & p->topic_mask];
    while (*at != t)
        at = &(*at)->next_hash;
    *at = t->next_hash;
    p->ntopics--;
    free(t);
}

static void topic_join(struct plan *p, struct inst *in, const char *name, bool writes) {
    struct topic *t = model_topic(p, name);
    struct inst **list = writes ? &t->writers : &t->readers;
    in->topic = t;
    in->topic_next = *list;
    if (*list)
        (*list)->topic_prev = in;
    *list = in;
}

static void topic_leave(struct plan *p, struct inst *in) {
    struct topic *t = in->topic;
    if (!t)
        return;
    if (in->topic_next)
        in->topic_next->topic_prev = in->topic_prev;
    if (in->topic_prev)
        in->topic_prev->topic_next = in->topic_next;
    else if (t->writers == in)
        t->writers = in->topic_next;
    else
        t->readers = in->topic_next;
    in->topic = NULL;
    model_topic_done(p, t);
}

/* ---- dataflows by name ---- */

struct flow *plan_find(const struct plan *p, const char *name) {
    struct flow *f = p->by_name[name_hash(name) & p->name_mask];
    while (f && strcmp(f->name, name) != 0)
        f = f->next_name;
    return f;
}

const struct flow_task *flow_find_task(const struct flow *f, const char *id) {
    for (int i = 0; i < f->ntasks; i++)
        if (strcmp(f->tasks[i].id, id) == 0)
            return &f->tasks[i];
    return NULL;
}

int plan_unknown(const struct plan *p, const char *name, struct err *e) {
    enum { NAMES_MAX = 10000 };
    const char **names = malloc(sizeof *names * NAMES_MAX);
    int n = 0;
    for (const struct flow *f = p->first; names && f && n < NAMES_MAX; f = f->next)
        names[n++] = f->name;
    const char *near = n && strlen(name) < 64 ? err_nearest(name, names, n) : NULL;
    err_set(e, ERR_NOTFOUND, "there is no dataflow '%.100s'%s%s%s", name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(names);
    return ERR_NOTFOUND;
}

static void names_grow(struct plan *p) {
    uint64_t mask = 2 * p->name_mask + 1;
    struct flow **t = table_new(mask + 1);
    for (struct flow *f = p->first; f; f = f->next) {
        uint64_t h = name_hash(f->name) & mask;
        f->next_name = t[h];
        t[h] = f;
    }
    free(p->by_name);
    p->by_name = t;
    p->name_mask = mask;
}

void model_name(struct plan *p, struct flow *f) {
    if (p->counts.dataflows++ > p->name_mask)
        names_grow(p);
    uint64_t h = name_hash(f->name) & p->name_mask;
    f->next_name = p->by_name[h];
    p->by_name[h] = f;
    /* By serial: a removal that is rolled back puts a dataflow back where it was. */
    struct flow *after = p->last;
    while (after && after->serial > f->serial)
        after = after->prev;
    f->prev = after;
    f->next = after ? after->next : p->first;
    *(f->next ? &f->next->prev : &p->last) = f;
    *(after ? &after->next : &p->first) = f;
}

void model_unname(struct plan *p, struct flow *f) {
    struct flow **at = &p->by_name[name_hash(f->name) & p->name_mask];
    while (*at != f)
        at = &(*at)->next_name;
    *at = f->next_name;
    *(f->prev ? &f->prev->next : &p->first) = f->next;
    *(f->next ? &f->next->prev : &p->last) = f->prev;
    p->counts.dataflows--;
}

/* ---- instances ---- */

struct inst *model_lookup(const struct plan *p, struct sig sig) {
    struct inst *in = p->by_sig[sig.lo & p->sig_mask];
    while (in && !sig_equal(in->def->sig, sig))
        in = in->next_sig;
    return in;
}

static uint64_t number_hash(uint64_t n) {
    return n * 0x9e3779b97f4a7c15u >> 20;
}

struct inst *plan_instance(const struct plan *p, uint64_t number) {
    struct inst *in = p->by_number[number_hash(number) & p->number_mask];
    while (in && in->def->instance != number)
        in = in->next_number;
    return in;
}

static void insts_grow(struct plan *p) {
    uint64_t mask = 2 * p->number_mask + 1;
    struct inst **sig = table_new(mask + 1), **number = table_new(mask + 1);
    for (uint64_t i = 0; i <= p->number_mask; i++)
        for (struct inst *in = p->by_number[i], *next; in; in = next) {
            uint64_t h = number_hash(in->def->instance) & mask;
            next = in->next_number;
            in->next_number = number[h];
            number[h] = in;
            if (in->state == INST_GONE)
                continue;
            h = in->def->sig.lo & mask;
            in->next_sig = sig[h];
            sig[h] = in;
        }
    free(p->by_sig);
    free(p->by_number);
    p->by_sig = sig;
    p->by_number = number;
    p->sig_mask = p->number_mask = mask;
}

static void index_inst(struct plan *p, struct inst *in) {
    if (p->ninsts++ > p->number_mask)
        insts_grow(p);
    uint64_t h = in->def->sig.lo & p->sig_mask;
    in->next_sig = p->by_sig[h];
    p->by_sig[h] = in;
    h = number_hash(in->def->instance) & p->number_mask;
    in->next_number = p->by_number[h];
    p->by_number[h] = in;
}

static void zero_join(struct plan *p, struct inst *in) {
    in->zero_prev = NULL;
    in->zero_next = p->zero;
    if (p->zero)
        p->zero->zero_prev = in;
    p->zero = in;
}

static void zero_leave(struct plan *p, struct inst *in) {
    if (in->zero_next)
        in->zero_next->zero_prev = in->zero_prev;
    *(in->zero_prev ? &in->zero_prev->zero_next : &p->zero) = in->zero_next;
}

void model_ref(struct plan *p, struct inst *in) {
    if (in->refs++ == 0) {
        zero_leave(p, in);
        p->counts.stages++;
    }
}

void model_unref(struct plan *p, struct inst *in) {
    assert(in->refs > 0);
    if (--in->refs == 0) {
        zero_join(p, in);
        p->counts.stages--;
    }
}

static void fresh_join(struct plan *p, struct inst *in) {
    in->fresh_prev = p->fresh_last;
    *(p->fresh_last ? &p->fresh_last->fresh_next : &p->fresh) = in;
    p->fresh_last = in;
}

/* Port names: those of the descriptor live for ever, a user's are copied. */
static const char *const *copy_ports(struct arena *a, const struct op_desc *op,
                                     const char *const *names, int n) {
    if (!(op->flags & OP_ANY_PORTS))
        return names;
    const char **v = ARENA_ARRAY(a, const char *, n ? n : 1);
    for (int i = 0; i < n; i++)
        v[i] = arena_strdup(a, names[i]);
    return v;
}

static const struct op_by *copy_keys(struct arena *a, const struct spec_stage *st) {
    struct op_by *keys = ARENA_ARRAY(a, struct op_by, st->nin ? st->nin : 1);
    for (int p = 0; p < st->nin; p++) {
        int n = st->keys[p].n, *field = ARENA_ARRAY(a, int, n ? n : 1);
        if (n)
            memcpy(field, st->keys[p].field, sizeof *field * (size_t)n);
        keys[p] = (struct op_by){ n, field };
    }
    return keys;
}

static const char *str_param(const struct spec_stage *st) {
    return st->writes ? st->writes : st->reads;
}

struct inst *model_start(struct plan *p, const struct spec *s, int i, struct inst *const *parents,
                         const char *label, struct plan_cut cut, uint64_t number) {
    const struct spec_stage *st = &s->stages[i];
    struct arena a = { .chunk = INST_CHUNK + st->blob_len + st->op->config_size };
    struct inst *in = ARENA_NEW(&a, struct inst);
    struct task_def *d = ARENA_NEW(&a, struct task_def);
    void *config = arena_alloc(&a, st->op->config_size ? st->op->config_size : 1);
    params_copy(st->op, config, st->config, &a);
    const struct op_by *keys = copy_keys(&a, st);
    const struct schema **ports =
        ARENA_ARRAY(&a, const struct schema *, st->nin + st->nout ? st->nin + st->nout : 1);
    for (int k = 0; k < st->nout; k++)
        ports[st->nin + k] = schema_intern(p, st->out[k]);
    struct link_def *links = ARENA_ARRAY(&a, struct link_def, st->nlinks ? st->nlinks : 1);
    in->parent = ARENA_ARRAY(&a, struct inst *, st->nlinks ? st->nlinks : 1);
    in->link = ARENA_ARRAY(&a, struct child, st->nlinks ? st->nlinks : 1);
    uint64_t filled = 0;
    for (int k = 0; k < st->nlinks; k++) {
        const struct stage_in *l = &st->links[k];
        const struct spec_stage *from = &s->stages[l->from];
        struct inst *parent = parents[k];
        int out = model_out_port(p, parent, from->out_name[l->out_port], from->out[l->out_port]);
        links[k] = (struct link_def){ parent->def->instance, (uint16_t)out, (uint16_t)l->in_port };
        if (!(filled >> l->in_port & 1))
            ports[l->in_port] = schema_share(parent->def->out[out]);
        filled |= (uint64_t)1 << l->in_port;
        in->parent[k] = parent;
        in->link[k] = (struct child){ .inst = in, .next = parent->children };
        if (parent->children)
            parent->children->prev = &in->link[k];
        parent->children = &in->link[k];
    }
    *d = (struct task_def){ .instance = number ? number : p->next_instance,
                            .sig = st->sig,
                            .op = st->op,
                            .config = config,
                            .label = arena_strdup(&a, label),
                            .parts = (uint32_t)st->parts,
                            .nin = st->nin,
                            .nout = st->nout,
                            .in_name = copy_ports(&a, st->op, st->in_name, st->nin),
                            .out_name = copy_ports(&a, st->op, st->out_name, st->nout),
                            .in = ports,
                            .out = ports + st->nin,
                            .nby = st->nby,
                            .by = st->nin ? keys[0].field : NULL,
                            .keys = keys,
                            .limits = st->state ? spec_limits(st->state, &a) : NULL,
                            .nlinks = st->nlinks,
                            .links = links };
    if (d->instance >= p->next_instance)
        p->next_instance = d->instance + 1;
    in->def = d;
    in->cut = cut;
    in->attach = st->attach ? arena_strdup(&a, st->attach) : NULL;
    in->blob = arena_strndup(&a, st->blob, st->blob_len);
    in->blob_len = st->blob_len;
    in->config_off = st->config_off;
    in->config_len = st->config_len;
    in->append = st->append;
    if (str_param(st))
        topic_join(p, in, str_param(st), st->writes != NULL);
    zero_join(p, in);
    fresh_join(p, in);
    index_inst(p, in);
    in->arena = a;
    return in;
}

int model_out_port(struct plan *p, struct inst *in, const char *name, const struct schema *schema) {
    const struct task_def *d = in->def;
    for (int k = 0; k < d->nout; k++)
        if (strcmp(d->out_name[k], name) == 0)
            return k;
    assert((d->op->flags & OP_ANY_PORTS) && d->nout < OP_PORTS_MAX);
    struct arena *a = &in->arena;
    struct task_def *grown = ARENA_NEW(a, struct task_def);
    const char **names = ARENA_ARRAY(a, const char *, d->nout + 1);
    const struct schema **out = ARENA_ARRAY(a, const struct schema *, d->nout + 1);
    if (d->nout) {
        memcpy(names, d->out_name, sizeof *names * (size_t)d->nout);
        memcpy(out, d->out, sizeof *out * (size_t)d->nout);
    }
    names[d->nout] = arena_strdup(a, name);
    out[d->nout] = schema_intern(p, schema);
    *grown = *d;
    grown->out_name = names;
    grown->out = out;
    grown->nout++;
    struct step *s = model_step(p);
    *s = (struct step){ .kind = STEP_GROW, .inst = in, .former = d };
    in->def = grown;
    return d->nout;
}

void model_shrink(struct plan *p, struct inst *in, const struct task_def *former) {
    for (int k = former->nout; k < in->def->nout; k++)
        schema_drop(p, in->def->out[k]);
    in->def = former;
}

void model_retire(struct plan *p, struct inst *in) {
    assert(in->refs == 0 && in->state != INST_GONE);
    struct inst **at = &p->by_sig[in->def->sig.lo & p->sig_mask];
    while (*at != in)
        at = &(*at)->next_sig;
    *at = in->next_sig;
    zero_leave(p, in);
    topic_leave(p, in);
    for (int k = 0; k < in->def->nlinks; k++) {
        struct child *c = &in->link[k];
        if (c->next)
            c->next->prev = c->prev;
        *(c->prev ? &c->prev->next : &in->parent[k]->children) = c->next;
    }
    if (in->state == INST_NEW) {
        *(in->fresh_next ? &in->fresh_next->fresh_prev : &p->fresh_last) = in->fresh_prev;
        *(in->fresh_prev ? &in->fresh_prev->fresh_next : &p->fresh) = in->fresh_next;
    }
    in->state = INST_GONE;
}

void model_destroy(struct plan *p, struct inst *in) {
    assert(in->state == INST_GONE);
    const struct task_def *d = in->def;
    struct inst **at = &p->by_number[number_hash(d->instance) & p->number_mask];
    while (*at != in)
        at = &(*at)->next_number;
    *at = in->next_number;
    p->ninsts--;
    for (int k = 0; k < d->nin; k++)
        schema_drop(p, d->in[k]);
    for (int k = 0; k < d->nout; k++)
        schema_drop(p, d->out[k]);
    inst_free(in);
}
