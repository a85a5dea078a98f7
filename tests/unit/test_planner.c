/* The planner against a naive oracle. The oracle knows dataflows as it generated them (never their
 * JSON), gives every stage a text signature built from its parents' ones, and keeps instances in a
 * list that it searches from end to end. After every step of a random sequence of submits,
 * removals, replacements and roll-backs, both must run the same instances for the same dataflows.
 */
#include "planner/explain.h"
#include "planner/merge.h"
#include "planner/show.h"
#include "tests/unit/harness.h"
#include "tests/unit/plan_gen.h"
#include "tests/unit/plan_ops.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STAGES = 24, FLOWS = 24, INSTS = 800, SIGS = 4000, SEEDS = 10000 };

static uint64_t seed_now;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            fail_msg("seed %llu: %s", (unsigned long long)seed_now, #x);                           \
    } while (0)

/* ---- the oracle ---- */

struct ostage {
    const char *op;
    char config[80], attach[40];
    bool memory, shared, sink, last;
    int task, topic, writes;
    bool append;
    int nlinks;
    struct {
        int from;
        char what[60]; /* in-port, grouping, out-port */
    } link[LINKS];
    int sig;
};
struct oflow {
    bool live;
    uint64_t serial;
    struct gflow g;
    int n;
    struct ostage st[STAGES];
    int first[TASKS], count[TASKS];
    int inst[STAGES];
    uint64_t cut;
    struct sbuf text;
};
struct oinst {
    bool live;
    int sig, nlinks;
    struct {
        char what[60];
        int from;
    } link[LINKS];
    char attach[40];
    uint64_t cut;
    int topic, writes;
    bool append;
    uint64_t number; /* in the planner; 0: not seen yet */
};
struct oracle {
    struct oflow f[FLOWS];
    int ninsts;
    struct oinst in[INSTS];
    int nsigs;
    char *sig[SIGS];
    char hex[SIGS][33];
};
static struct oracle o, backup;
/* What the seeds have covered; a generator that stops meeting a case must not pass unnoticed. */
static uint64_t submits[3], joined, started, privates, grown, rolled_back;

static int intern(const char *text) {
    for (int i = 0; i < o.nsigs; i++)
        if (strcmp(o.sig[i], text) == 0)
            return i;
    CHECK(o.nsigs < SIGS);
    o.sig[o.nsigs] = strdup(text);
    o.hex[o.nsigs][0] = 0;
    return o.nsigs++;
}

static struct ostage *add_ostage(struct oflow *f, const char *op, int task, bool memory) {
    CHECK(f->n < STAGES);
    struct ostage *s = &f->st[f->n++];
    memset(s, 0, sizeof *s);
    s->op = op;
    s->task = task;
    s->memory = memory;
    s->shared = true;
    s->topic = s->writes = -1;
    f->count[task]++;
    return s;
}

static void chain(struct oflow *f, const char *op, int task, bool memory, const char *config) {
    struct ostage *s = add_ostage(f, op, task, memory);
    snprintf(s->config, sizeof s->config, "%s", config);
    s->nlinks = 1;
    s->link[0].from = f->n - 2;
    snprintf(s->link[0].what, sizeof s->link[0].what, "in.0.out");
}

static void oracle_links(struct oflow *f, const struct gtask *t, struct ostage *s) {
    bool stateless = t->kind != AGG && t->kind != WIN && t->kind != PAIR;
    s->nlinks = t->nlinks;
    for (int k = 0; k < t->nlinks; k++) {
        const struct glink *l = &t->link[k];
        enum by by = l->by;
        if (stateless && (by == BY_S || by == BY_A || by == BY_SA || by == BY_SHUFFLE))
            by = BY_NONE;
        s->link[k].from = f->first[l->from] + f->count[l->from] - 1;
        snprintf(s->link[k].what, sizeof s->link[k].what, "%s.%d.%s", t->kind == SUM2 ? "*" : l->in,
                 by, l->out);
    }
}

/* Stages of task i, by the rules that plan_ops.h states. */
static void oracle_task(struct oflow *f, int i) {
    const struct gtask *t = &f->g.t[i];
    char c[80] = "";
    f->first[i] = f->n;
    f->count[i] = 0;
    snprintf(c, sizeof c, "%d", t->v);
    if (t->kind == FACE || t->kind == RAW) {
        struct ostage *s = add_ostage(f, "f_read", i, false);
        snprintf(s->config, sizeof s->config, "t%d", t->topic);
        s->topic = t->topic;
        snprintf(s->attach, sizeof s->attach, "%s", t->start ? "earliest" : "");
        if (t->kind == FACE) {
            chain(f, "f_parse", i, false, "");
            chain(f, "f_time", i, true, c);
        }
    } else if (t->kind == PARSE) {
        struct ostage *s = add_ostage(f, "f_parse", i, false);
        oracle_links(f, t, s);
        chain(f, "f_time", i, true, c);
    } else {
        bool memory = t->kind == AGG || t->kind == WIN || t->kind == PAIR;
        struct ostage *s = add_ostage(f, kind_name[t->kind], i, memory);
        oracle_links(f, t, s);
        s->shared = t->kind != DICE;
        if (t->kind == SRC) {
            snprintf(s->config, sizeof s->config, "t%d,%d", t->topic, t->v);
            snprintf(s->attach, sizeof s->attach, "%s", t->start ? "earliest" : "");
            s->topic = t->topic;
        } else if (t->kind == MAP || t->kind == ANY) {
            snprintf(s->config, sizeof s->config, "%d,%d", t->v, t->w);
        } else if (t->kind == PICK) {
            snprintf(s->config, sizeof s->config, "%d", t->fields);
        } else if (t->kind == OUT) {
            snprintf(s->config, sizeof s->config, "t%d,%d", t->topic, t->v);
            s->writes = t->topic;
            s->append = t->v;
            s->sink = true;
        } else {
            snprintf(s->config, sizeof s->config, "%d", t->v);
        }
    }
    f->st[f->n - 1].last = true;
}

/* Sorts the links by (what, parent) and gives the text signature. */
static void oracle_sign(struct oflow *f, struct ostage *s) {
    char key[LINKS][100], text[1200];
    for (int k = 0; k < s->nlinks; k++)
        snprintf(key[k], sizeof key[k], "%s<%d", s->link[k].what, f->st[s->link[k].from].sig);
    int len = snprintf(text, sizeof text, "%d %s(%s)", f->g.tenant, s->op, s->config);
    for (int n = 0; n < s->nlinks; n++) { /* the smallest key not yet taken */
        int best = -1;
        for (int k = 0; k < s->nlinks; k++)
            if (key[k][0] && (best < 0 || strcmp(key[k], key[best]) < 0))
                best = k;
        len += snprintf(text + len, sizeof text - (size_t)len, " %s", key[best]);
        key[best][0] = 0;
    }
    s->sig = intern(text);
}

static void oracle_expand(struct oflow *f) {
    f->n = 0;
    for (int i = 0; i < f->g.n; i++)
        oracle_task(f, i);
    for (int i = 0; i < f->n; i++)
        oracle_sign(f, &f->st[i]);
}

/* Do the links of a stage, resolved to instances, equal those of an instance, as multisets? */
static bool links_equal(const struct oflow *f, const struct ostage *s, const struct oinst *in) {
    bool used[LINKS] = { false };
    if (s->nlinks != in->nlinks)
        return false;
    for (int k = 0; k < s->nlinks; k++) {
        int j = 0;
        while (j < in->nlinks && (used[j] || strcmp(in->link[j].what, s->link[k].what) != 0 ||
                                  in->link[j].from != f->inst[s->link[k].from]))
            j++;
        if (j == in->nlinks)
            return false;
        used[j] = true;
    }
    return true;
}

/* Only windows and the merging of sources see watermarks. */
static bool looks_at_time(const struct oflow *f) {
    int sources = 0, windows = 0;
    for (int i = 0; i < f->g.n; i++) {
        sources += f->g.t[i].kind == FACE || f->g.t[i].kind == RAW || f->g.t[i].kind == SRC;
        windows += f->g.t[i].kind == WIN;
    }
    return windows || sources != 1;
}

static bool may_join(const struct oflow *f, const struct ostage *s, const struct oinst *in) {
    if (in->cut == f->cut) /* of one request: what differs there was meant to differ */
        return strcmp(in->attach, s->attach) == 0;
    if (s->attach[0])
        return false;
    if (!f->g.own)
        return true;
    bool clock = strcmp(s->op, "f_time") == 0 && !looks_at_time(f);
    return (!s->memory || clock) && !in->attach[0];
}

static int oracle_find(const struct oflow *f, const struct ostage *s) {
    int best = -1;
    for (int i = 0; i < o.ninsts && s->shared; i++) {
        const struct oinst *in = &o.in[i];
        if (!in->live || in->sig != s->sig || !links_equal(f, s, in) || !may_join(f, s, in))
            continue;
        if (best < 0 || (o.in[best].attach[0] && !in->attach[0]))
            best = i;
    }
    return best;
}

static int oracle_refs(int inst) {
    int n = 0;
    for (int i = 0; i < FLOWS; i++) {
        bool uses = false;
        for (int k = 0; o.f[i].live && k < o.f[i].n; k++)
            uses |= o.f[i].inst[k] == inst;
        n += uses;
    }
    return n;
}

static bool reachable[8][8]; /* small topics only: 0..3 take part in cycles */

static bool below(const struct oflow *f, int stage, int topic) {
    const struct ostage *s = &f->st[stage];
    bool yes = s->topic == topic;
    for (int k = 0; k < s->nlinks && !yes; k++)
        yes = below(f, s->link[k].from, topic);
    return yes;
}

static void add_edges(const struct oflow *f) {
    for (int i = 0; i < f->n; i++)
        for (int r = 0; r < 4; r++)
            if (f->st[i].writes >= 0 && f->st[i].writes < 4 && below(f, i, r))
                reachable[r][f->st[i].writes] = true;
}

static bool cyclic(void) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                reachable[i][j] |= reachable[i][k] && reachable[k][j];
    for (int i = 0; i < 4; i++)
        if (reachable[i][i])
            return true;
    return false;
}

enum verdict { GOOD, INVALID, CONFLICT };

static enum verdict oracle_verdict(const struct oflow *f) {
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < i; k++)
            if (f->st[i].writes >= 0 && f->st[i].writes == f->st[k].writes &&
                f->st[i].sig != f->st[k].sig && !(f->st[i].append && f->st[k].append))
                return INVALID;
    memset(reachable, 0, sizeof reachable);
    add_edges(f);
    for (int i = 0; i < 4; i++)
        if (reachable[i][i])
            return INVALID;
    for (int i = 0; i < FLOWS; i++)
        if (o.f[i].live)
            add_edges(&o.f[i]);
    return cyclic() ? CONFLICT : GOOD;
}

/* Resolves and starts what is missing; CONFLICT when a topic has another writer. */
static enum verdict oracle_submit(struct oflow *f) {
    enum verdict v = oracle_verdict(f);
    for (int i = 0; i < f->n && v != INVALID; i++) {
        struct ostage *s = &f->st[i];
        int at = oracle_find(f, s);
        joined += at >= 0;
        if (at < 0) {
            started++;
            for (int k = 0; k < o.ninsts; k++)
                privates += o.in[k].live && o.in[k].sig == s->sig && s->shared;
            CHECK(o.ninsts < INSTS);
            at = o.ninsts++;
            struct oinst *in = &o.in[at];
            *in = (struct oinst){ .live = true, .sig = s->sig, .nlinks = s->nlinks, .cut = f->cut };
            memcpy(in->attach, s->attach, sizeof in->attach);
            in->topic = s->topic;
            in->writes = s->writes;
            in->append = s->append;
            for (int k = 0; k < s->nlinks; k++) {
                memcpy(in->link[k].what, s->link[k].what, sizeof in->link[k].what);
                in->link[k].from = f->inst[s->link[k].from];
            }
        }
        f->inst[i] = at;
    }
    for (int i = 0; i < f->n && v == GOOD; i++)
        for (int k = 0; k < o.ninsts && f->st[i].writes >= 0; k++) {
            const struct oinst *in = &o.in[k];
            if (!in->live || k == f->inst[i] || in->writes != f->st[i].writes || !oracle_refs(k))
                continue;
            if (in->sig == f->st[i].sig || !(in->append && f->st[i].append))
                v = CONFLICT;
        }
    f->live = v == GOOD;
    return v;
}

static void oracle_sweep(void) {
    for (int i = 0; i < o.ninsts; i++)
        if (o.in[i].live && !oracle_refs(i))
            o.in[i].live = false;
}

/* ---- both side by side ---- */

struct side {
    struct plan *p;
    uint64_t cut;
    /* what an executor would run, from the changes alone */
    int nrunning;
    uint64_t running[INSTS];
    int nout[INSTS];
};

static int find_running(const struct side *s, uint64_t number) {
    int i = s->nrunning - 1;
    while (i >= 0 && s->running[i] != number)
        i--;
    return i;
}
static bool is_running(const struct side *s, uint64_t number) {
    return find_running(s, number) >= 0;
}

static void execute(struct side *s, const struct change *c) {
    for (int i = 0; i < c->nupdate; i++) {
        int k = find_running(s, c->update[i]->instance);
        CHECK(k >= 0 && s->nout[k] < c->update[i]->nout);
        s->nout[k] = c->update[i]->nout;
    }
    grown += (uint64_t)c->nupdate;
    for (int i = 0; i < c->nadd; i++) {
        const struct task_def *d = c->add[i];
        CHECK(!is_running(s, d->instance));
        for (int k = 0; k < d->nlinks; k++) {
            CHECK(is_running(s, d->links[k].from)); /* parents first */
            CHECK(!k || d->links[k].in_port >= d->links[k - 1].in_port);
            struct inst *up = plan_instance(s->p, d->links[k].from);
            CHECK(d->links[k].out_port < s->nout[find_running(s, d->links[k].from)]);
            CHECK(up->def->out[d->links[k].out_port]->n == d->in[d->links[k].in_port]->n);
        }
        CHECK(s->nrunning < INSTS);
        s->nout[s->nrunning] = d->nout;
        s->running[s->nrunning++] = d->instance;
    }
    for (int i = 0; i < c->nremove; i++) {
        const struct inst *in = plan_instance(s->p, c->remove[i]);
        int k = find_running(s, c->remove[i]);
        CHECK(in && k >= 0);
        for (const struct child *ch = in->children; ch; ch = ch->next)
            CHECK(!is_running(s, ch->inst->def->instance)); /* children first */
        s->nrunning--;
        s->running[k] = s->running[s->nrunning];
        s->nout[k] = s->nout[s->nrunning];
    }
}

static void commit(struct side *s) {
    const struct change *c = plan_change(s->p);
    uint64_t *gone = malloc(sizeof *gone * ((size_t)c->nremove + 1));
    int n = c->nremove;
    memcpy(gone, c->remove, sizeof *gone * (size_t)n);
    execute(s, c);
    plan_commit(s->p);
    for (int i = 0; i < n; i++)
        plan_freed(s->p, gone[i]);
    free(gone);
}

static void compare_flow(struct side *s, struct oflow *f, const struct flow *pf) {
    CHECK(pf && pf->nstages == f->n && pf->ntasks == f->g.n);
    for (int i = 0; i < f->g.n; i++) {
        const struct flow_task *t = NULL; /* the file has the tasks in another order */
        for (int k = 0; k < pf->ntasks; k++)
            if (strcmp(pf->tasks[k].id, f->g.t[i].id) == 0)
                t = &pf->tasks[k];
        CHECK(t && t->nstages == f->count[i]);
        for (int k = 0; k < t->nstages; k++) {
            const struct inst *in = pf->stage[t->first + k];
            struct ostage *st = &f->st[f->first[i] + k];
            struct oinst *oi = &o.in[f->inst[f->first[i] + k]];
            char hex[33];
            sig_text(in->def->sig, hex);
            if (!o.hex[st->sig][0]) { /* signatures correspond one to one */
                for (int j = 0; j < o.nsigs; j++)
                    if (strcmp(o.hex[j], hex) == 0)
                        fail_msg("seed %llu: \"%s\" and \"%s\" have one signature",
                                 (unsigned long long)seed_now, o.sig[j], o.sig[st->sig]);
                memcpy(o.hex[st->sig], hex, sizeof hex);
            }
            CHECK(strcmp(o.hex[st->sig], hex) == 0);
            if (!oi->number) {
                for (int j = 0; j < o.ninsts; j++)
                    if (o.in[j].number == in->def->instance)
                        fail_msg("seed %llu: instances %d and %d (%s) run as %llu",
                                 (unsigned long long)seed_now, j, (int)(oi - o.in), o.sig[st->sig],
                                 (unsigned long long)in->def->instance);
                oi->number = in->def->instance;
            }
            if (oi->number != in->def->instance)
                fail_msg("seed %llu: %s runs as %llu, not %llu\n%s", (unsigned long long)seed_now,
                         o.sig[st->sig], (unsigned long long)in->def->instance,
                         (unsigned long long)oi->number, sbuf_str(&f->text));
            CHECK(oi->cut == in->cut.id);
            CHECK(is_running(s, in->def->instance));
        }
    }
}

static void compare(struct side *s) {
    uint64_t stages = 0, flows = 0, tasks = 0, sinks = 0;
    bool tail[INSTS] = { false }, sink_tail[INSTS] = { false };
    for (int i = 0; i < FLOWS; i++) {
        if (!o.f[i].live)
            continue;
        flows++;
        compare_flow(s, &o.f[i], plan_find(s->p, o.f[i].g.name));
        for (int k = 0; k < o.f[i].n; k++)
            if (o.f[i].st[k].last)
                (o.f[i].st[k].sink ? sink_tail : tail)[o.f[i].inst[k]] = true;
    }
    for (int i = 0; i < o.ninsts; i++) {
        if (!o.in[i].live)
            continue;
        const struct inst *in = plan_instance(s->p, o.in[i].number);
        stages++;
        tasks += tail[i];
        sinks += sink_tail[i];
        CHECK(in && (int)in->refs == oracle_refs(i)); /* T4 */
    }
    CHECK(s->p->counts.stages == stages && s->nrunning == (int)stages);
    CHECK(s->p->counts.dataflows == flows);
    CHECK(s->p->counts.tasks == tasks && s->p->counts.sinks == sinks);
    CHECK(s->p->ninsts == stages); /* nothing removed is kept */
}

/* Texts of all running instances, sorted: independent of numbers and of order. */
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *dump(const struct plan *p) {
    char *line[INSTS];
    int n = 0;
    struct sbuf b = { 0 };
    for (uint64_t i = 0; i <= p->number_mask; i++)
        for (const struct inst *in = p->by_number[i]; in; in = in->next_number) {
            char sig[33];
            if (in->state == INST_GONE)
                continue;
            b.len = 0;
            sig_text(in->def->sig, sig);
            sbuf_printf(&b, "%s %u %u %u", sig, in->refs, in->tails, in->sink_tails);
            for (int k = 0; k < in->def->nlinks; k++) {
                sig_text(in->parent[k]->def->sig, sig);
                sbuf_printf(&b, " %s:%d:%s", sig, in->def->links[k].in_port,
                            in->parent[k]->def->out_name[in->def->links[k].out_port]);
            }
            line[n++] = strdup(sbuf_str(&b));
        }
    qsort(line, (size_t)n, sizeof *line, by_text);
    b.len = 0;
    for (int i = 0; i < n; i++) {
        sbuf_printf(&b, "%s\n", line[i]);
        free(line[i]);
    }
    char *s = strdup(sbuf_str(&b));
    sbuf_free(&b);
    return s;
}

static int plan_text(struct plan *p, const char *text, size_t len, uint64_t cut, const char *saved,
                     struct errs *es) {
    struct arena a = { 0 };
    struct spec spec;
    struct plan_cut c = { cut, 0 };
    int rc = spec_parse(&spec, NULL, text, len, NULL, &a, es, NULL);
    if (rc == 0 && saved)
        rc = plan_restore(p, &spec, saved, strlen(saved), &c, es);
    else if (rc == 0)
        rc = plan_submit(p, &spec, &c, NULL, es);
    arena_free(&a);
    return rc;
}

/* Submits to both and compares the verdicts. */
static bool submit(struct side *s, struct oflow *f) {
    struct errs es = { 0 };
    text_of(&f->g, &f->text);
    f->cut = s->cut;
    oracle_expand(f);
    enum verdict v = oracle_submit(f);
    int rc = plan_text(s->p, sbuf_str(&f->text), f->text.len, s->cut, NULL, &es);
    int want = v == GOOD ? 0 : v == INVALID ? ERR_INPUT : ERR_CONFLICT;
    if (rc != want) {
        char buf[2048];
        fail_msg("seed %llu: submit gave %d, not %d: %s\n%s", (unsigned long long)seed_now, rc,
                 want, es.n ? err_format(&es.v[0], buf, sizeof buf) : "", sbuf_str(&f->text));
    }
    submits[v]++;
    CHECK(rc == 0 || es.n > 0);
    CHECK(rc == 0 || es.v[es.n - 1].code == rc);
    errs_free(&es);
    oracle_sweep();
    return rc == 0;
}

static struct oflow *pick_flow(bool live) {
    int i = (int)rnd(FLOWS);
    for (int k = 0; k < FLOWS; k++, i = (i + 1) % FLOWS)
        if (o.f[i].live == live)
            return &o.f[i];
    return NULL;
}

static void remove_both(struct side *s, struct oflow *f) {
    CHECK(plan_remove(s->p, f->g.name, NULL, NULL) == 0);
    f->live = false;
}

static int name_count;

/* A new dataflow: random, or a variant of a live one, so that overlaps are frequent. */
static void make_flow(struct gflow *g, bool pure) {
    struct oflow *like = chance(60) ? pick_flow(true) : NULL;
    if (!like) {
        gen_flow(g, name_count++, pure, chance(20));
        return;
    }
    *g = like->g;
    snprintf(g->name, sizeof g->name, "f%d", name_count++);
    g->own = !pure && chance(30);
    if (chance(50)) /* the same beginning, another end */
        g->n = 1 + (int)rnd((uint32_t)g->n);
    for (int i = 0; i < g->n; i++)
        vary_task(g, i);
    for (int more = (int)rnd(4); more > 0 && g->n < TASKS; more--, g->n++) {
        gen_task(g, g->n, !pure && chance(20));
        if (pure)
            purify(&g->t[g->n]);
    }
}

/* A step that is taken back leaves no trace but used numbers. */
static void try_and_roll_back(struct side *s) {
    struct plan_counts before = s->p->counts;
    char *was = dump(s->p);
    backup = o;
    for (int k = 1 + (int)rnd(3); k > 0; k--) {
        struct oflow *f = pick_flow(chance(50));
        struct errs es = { 0 };
        if (f && f->live) {
            CHECK(plan_remove(s->p, f->g.name, NULL, NULL) == 0);
            f->live = false;
        } else if (f) {
            struct gflow g;
            struct sbuf text = { 0 };
            make_flow(&g, false);
            text_of(&g, &text);
            plan_text(s->p, sbuf_str(&text), text.len, ++s->cut, NULL, &es);
            sbuf_free(&text);
        }
        errs_free(&es);
    }
    rolled_back += (uint64_t)plan_change(s->p)->nadd;
    plan_rollback(s->p);
    o = backup;
    char *is = dump(s->p);
    CHECK(strcmp(was, is) == 0);
    CHECK(memcmp(&before, &s->p->counts, sizeof before) == 0);
    free(was);
    free(is);
}

static void start_over(struct side *s) {
    for (int i = 0; i < FLOWS; i++)
        o.f[i].text.len = 0;
    for (int i = 0; i < o.nsigs; i++)
        free(o.sig[i]);
    struct sbuf keep[FLOWS];
    for (int i = 0; i < FLOWS; i++)
        keep[i] = o.f[i].text;
    memset(&o, 0, sizeof o);
    for (int i = 0; i < FLOWS; i++)
        o.f[i].text = keep[i];
    memset(s, 0, sizeof *s);
    s->p = plan_new();
    name_count = 0;
}

static void step(struct side *s, bool pure) {
    struct oflow *f;
    if (chance(70))
        s->cut++; /* else in the same request as the last */
    if (chance(55) && (f = pick_flow(false))) {
        make_flow(&f->g, pure);
        submit(s, f);
    } else if (chance(20) && (f = pick_flow(true))) { /* replace */
        remove_both(s, f);
        struct gflow g;
        make_flow(&g, pure);
        memcpy(g.name, f->g.name, sizeof g.name);
        f->g = g;
        submit(s, f);
    } else if ((f = pick_flow(true))) {
        remove_both(s, f);
        oracle_sweep();
    }
    commit(s);
    compare(s);
    if (chance(15))
        try_and_roll_back(s);
}

/* T1: what runs is the union of the live signatures. */
static void check_union(const struct side *s) {
    bool seen[SIGS] = { false };
    uint64_t n = 0;
    for (int i = 0; i < FLOWS; i++)
        for (int k = 0; o.f[i].live && k < o.f[i].n; k++) {
            n += !seen[o.f[i].st[k].sig];
            seen[o.f[i].st[k].sig] = true;
        }
    CHECK(s->p->counts.stages == n);
}

/* T2: the same live set, submitted in another order to an empty plan, runs the same graph. */
static void check_order(const struct side *s) {
    struct plan *p = plan_new();
    int order[FLOWS];
    for (int i = 0; i < FLOWS; i++) {
        int at = (int)rnd((uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < FLOWS; i++) {
        struct oflow *f = &o.f[order[i]];
        struct errs es = { 0 };
        if (f->live)
            CHECK(plan_text(p, sbuf_str(&f->text), f->text.len, 1, NULL, &es) == 0);
    }
    plan_commit(p);
    char *a = dump(s->p), *b = dump(p);
    CHECK(strcmp(a, b) == 0);
    free(a);
    free(b);
    plan_free(p);
}

/* A restart binds every stage to the instance it had. */
static void check_restart(struct side *s) {
    struct plan *p = plan_new();
    plan_set_next(p, s->p->version, plan_next(s->p));
    for (const struct flow *f = s->p->first; f; f = f->next) {
        struct sbuf saved = { 0 };
        struct errs es = { 0 };
        plan_save(s->p, f, &saved);
        CHECK(plan_text(p, f->text, f->len, s->cut + 1, sbuf_str(&saved), &es) == 0);
        sbuf_free(&saved);
    }
    plan_commit(p);
    CHECK(plan_next(p) == plan_next(s->p) && p->version == s->p->version + 1);
    for (const struct flow *f = s->p->first; f; f = f->next) {
        const struct flow *g = plan_find(p, f->name);
        for (int i = 0; i < f->nstages; i++) {
            CHECK(f->stage[i]->def->instance == g->stage[i]->def->instance);
            CHECK(f->stage[i]->cut.id == g->stage[i]->cut.id);
        }
    }
    char *a = dump(s->p), *b = dump(p);
    CHECK(strcmp(a, b) == 0);
    free(a);
    free(b);
    plan_free(p);
}

/* The renderings take whatever comes, and what they print is JSON. */
static void check_pictures(struct side *s) {
    struct sbuf b = { 0 };
    struct show all = { 0 };
    struct arena a = { 0 };
    struct errs es = { 0 };
    struct json_doc doc;
    show_tree(s->p, &all, &b);
    show_dot(s->p, &all, &b);
    b.len = 0;
    show_json(s->p, &all, &b);
    CHECK(json_parse(&doc, NULL, sbuf_str(&b), b.len, &a, &es) == 0);
    CHECK(jnode_get(doc.root, "tasks")->n == s->p->counts.tasks + s->p->counts.sinks);
    for (const struct flow *f = s->p->first; f; f = f->next) {
        b.len = 0;
        explain_text(s->p, f, &b);
        b.len = 0;
        explain_json(s->p, f, &b);
        CHECK(json_parse(&doc, NULL, sbuf_str(&b), b.len, &a, &es) == 0);
        CHECK((int)jnode_get(doc.root, "tasks")->n == f->ntasks);
    }
    sbuf_free(&b);
    arena_free(&a);
}

/* `pure`: nothing but dataflows whose every task may be shared, for which T1 and T2 hold. */
static void run_seed(uint64_t seed, bool pure) {
    struct side s;
    seed_now = seed;
    gen_seed(seed);
    start_over(&s);
    for (int k = 6 + (int)rnd(12); k > 0; k--)
        step(&s, pure);
    if (pure) {
        check_union(&s);
        check_order(&s);
    }
    check_restart(&s);
    if (seed % 8 == 0)
        check_pictures(&s);
    struct oflow *f;
    while ((f = pick_flow(true))) {
        remove_both(&s, f);
        if (chance(50)) {
            oracle_sweep();
            commit(&s);
        }
    }
    oracle_sweep();
    commit(&s);
    compare(&s);
    CHECK(s.p->ninsts == 0 && s.p->ntopics == 0 && s.p->nschemas == 0);
    plan_free(s.p);
}

static void test_oracle(void **state) {
    (void)state;
    uint64_t first = test_seed(1);
    int n = getenv("BRAID_SEED") ? 1 : test_scale(SEEDS);
    for (int i = 0; i < n; i++) {
        run_seed(first + (uint64_t)i, false);
        run_seed(first + (uint64_t)i, true);
    }
    print_message("%d seeds from %llu: submits %llu good %llu invalid %llu conflict; stages %llu "
                  "joined %llu started (%llu private) %llu grown %llu rolled back\n",
                  n, (unsigned long long)first, (unsigned long long)submits[GOOD],
                  (unsigned long long)submits[INVALID], (unsigned long long)submits[CONFLICT],
                  (unsigned long long)joined, (unsigned long long)started,
                  (unsigned long long)privates, (unsigned long long)grown,
                  (unsigned long long)rolled_back);
    if (n >= SEEDS)
        assert_true(submits[INVALID] > 100 && submits[CONFLICT] > 1000 && privates > 1000 &&
                    grown > 100 && joined > 10000 && rolled_back > 1000);
    struct side s;
    start_over(&s);
    plan_free(s.p);
    for (int i = 0; i < FLOWS; i++)
        sbuf_free(&o.f[i].text);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_oracle) };
    plan_ops_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
