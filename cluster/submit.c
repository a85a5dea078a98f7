/* Changes of the plan on their way to the executor: submit, replace and remove. */
#include "cluster/coord.h"
#include "cluster/coord_impl.h"
#include "cluster/events.h"
#include "cluster/ingest.h"
#include "cluster/view.h"
#include "engine/clock.h"
#include "planner/take.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct record { /* a dataflow's plan record, ready for the epoch */
    uint64_t serial;
    struct sbuf text; /* empty: the record is removed */
};
/* One change. Between executor_submit and `done` it belongs to the executor thread. */
struct pending {
    struct executor_change x;
    bool done;
    int rc;
    struct err err;
    struct journal_meta meta;
    struct record *record;
    int nrecords;
    struct journal_history *history; /* of new instances */
    int nhistory;
    char (*made)[LOG_NAME_MAX + 1]; /* topics created for it */
    int nmade;
    struct arena arena;
};

void pending_free(struct pending *p) {
    if (!p)
        return;
    for (int i = 0; i < p->nrecords; i++)
        sbuf_free(&p->record[i].text);
    free(p->made);
    struct arena a = p->arena;
    arena_free(&a);
}

static struct pending *pending_new(struct coord *c, const struct change *ch, int nrecords) {
    struct arena a = { 0 };
    struct pending *p = ARENA_NEW(&a, struct pending);
    p->x = (struct executor_change){
        .change = *ch, .record = change_record, .done = change_done, .freed = change_freed, .arg = c
    };
    p->record = arena_zalloc(&a, sizeof *p->record * (size_t)(nrecords + 1));
    p->history = arena_zalloc(&a, sizeof *p->history * (size_t)(ch->nadd + 1));
    p->arena = a;
    return p;
}

/* ---- executor thread ---- */

void change_record(void *arg, struct exec *ex, struct log_epoch *ep) {
    struct coord *c = arg;
    struct pending *p = c->pending;
    (void)ex;
    journal_put_meta(ep, &p->meta);
    for (int i = 0; i < p->nrecords; i++) {
        const struct record *r = &p->record[i];
        if (r->text.len)
            journal_put_flow(ep, r->serial, r->text.p, r->text.len);
        else
            journal_drop_flow(ep, r->serial);
    }
    for (int i = 0; i < p->nhistory; i++) {
        p->history[i].offset = executor_history(c->executor, p->history[i].instance);
        journal_put_history(ep, &p->history[i]);
    }
    for (int i = 0; i < p->x.change.nremove; i++)
        journal_drop_history(ep, p->x.change.remove[i]);
}

void change_done(void *arg, int rc, const struct err *e) {
    struct coord *c = arg;
    pthread_mutex_lock(&c->wait_lock);
    struct pending *p = c->pending;
    p->done = true;
    p->rc = rc;
    if (rc < 0 && e)
        p->err = *e;
    pthread_cond_broadcast(&c->wait_cond);
    pthread_mutex_unlock(&c->wait_lock);
}

/* ---- waiting ---- */

/* Looks once a second whether the executor still lives; only while a change is on its way. */
static bool wait_done(struct coord *c, struct pending *p, struct err *e) {
    struct executor_health h = { 0 };
    pthread_mutex_lock(&c->wait_lock);
    while (!p->done && !c->stopping && !h.failed) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&c->wait_cond, &c->wait_lock, &until);
        executor_health(c->executor, &h);
    }
    bool done = p->done;
    c->stuck = !done;
    pthread_mutex_unlock(&c->wait_lock);
    if (!done)
        err_set(e, ERR_SYSTEM,
                "%s before the change was known to be durable: look after the "
                "restart whether it happened",
                h.failed ? "the executor stopped" : "the server stopped");
    return done;
}

/* Takes `change`; false (and not taken) when no change can come through any more. */
static bool change_begin(struct coord *c, struct err *e) {
    struct executor_health h;
    pthread_mutex_lock(&c->change_lock);
    executor_health(c->executor, &h);
    pthread_mutex_lock(&c->wait_lock);
    bool stuck = c->stuck || c->stopping;
    pthread_mutex_unlock(&c->wait_lock);
    if (!stuck && !h.failed)
        return true;
    pthread_mutex_unlock(&c->change_lock);
    if (h.failed)
        err_set(e, ERR_SYSTEM, "the executor has stopped (%.500s): restart the server", h.err.text);
    else
        err_set(e, ERR_SYSTEM, "the server is stopping");
    e->retriable = !h.failed;
    return false;
}

/* Unless a producer was fast enough to write to one: what it was told is committed stays. */
static void drop_topics(struct coord *c, const struct pending *p) {
    for (int i = 0; i < p->nmade; i++)
        ingest_topic_delete(c->ingest, p->made[i], true, NULL);
}

/* Hands the change over and waits for its end. 0: durable; else nothing of it remains, unless its
 * end is unknown (c->stuck): then the executor still holds it. It is freed with the next change. */
static int change_run(struct coord *c, struct pending *p, struct err *e) {
    pending_free(c->pending);
    c->pending = p;
    executor_submit(c->executor, &p->x);
    if (!wait_done(c, p, e))
        return ERR_SYSTEM;
    if (p->rc < 0) {
        *e = p->err;
        drop_topics(c, p);
    }
    return p->rc;
}

/* ---- planning a submit ---- */

struct replacement {
    const char *name;
    struct state_from *from;
    int nfrom;
    struct sbuf changes; /* made before the commit, when both versions are there */
    struct change_take *takes;
    int ntakes;
};
struct submission {
    struct replacement *replace; /* NULL: a submit */
    struct coord *c;
    const struct coord_spec *in;
    int n;
    struct spec *spec;
    struct sbuf *planned; /* of each, made before the commit: who shares with whom until then */
    struct plan_cut cut;
    struct arena arena;
};

static int parse_all(struct submission *s, struct errs *es) {
    int rc = 0;
    s->spec = ARENA_ARRAY(&s->arena, struct spec, s->n);
    for (int i = 0; i < s->n; i++) {
        const struct coord_spec *in = &s->in[i];
        struct coord_env ce = { s->c, in->nfiles, in->nvars, in->files, in->vars, &s->arena };
        struct spec_env env;
        coord_spec_env(&ce, &env);
        if (spec_parse(&s->spec[i], *in->file ? in->file : NULL, in->text, in->len, &env, &s->arena,
                       es, NULL) < 0)
            rc = ERR_INPUT;
    }
    return rc;
}

/* Topics that the specs read, or write, if they are not there yet. One that is written gets a
 * partition for each of its task; one that a spec of the same request reads was taken to have one.
 */
static int make_some(struct submission *s, struct pending *p, bool read, struct err *e) {
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->spec[i].nstages; k++) {
            const struct spec_stage *st = &s->spec[i].stages[k];
            const char *topic = read ? st->reads : st->writes;
            struct log_topic_conf tc = { .partitions = read ? 1 : (uint32_t)st->parts,
                                         .retention_bytes = -1 };
            if (!topic || spec_written(topic) != topic) /* none, or a file */
                continue;
            int rc = log_topic_create(s->c->log, topic, &tc, e);
            if (rc == 0)
                snprintf(p->made[p->nmade++], sizeof *p->made, "%s", topic);
            else if (rc != ERR_CONFLICT)
                return rc;
        }
    return 0;
}

static int make_topics(struct submission *s, struct pending *p, struct err *e) {
    int count = 0;
    for (int i = 0; i < s->n; i++)
        count += s->spec[i].nstages;
    p->made = calloc((size_t)count + 1, sizeof *p->made);
    if (!p->made)
        abort();
    int rc = make_some(s, p, true, e);
    return rc < 0 ? rc : make_some(s, p, false, e);
}

/* Where the rows of an instance come from: a topic, or "" when several are merged. Parents have
 * their entry already. */
static const char *origin_topic(const struct coord *c, const struct inst *in) {
    if (in->def->op->flags & OP_SOURCE)
        return in->topic ? in->topic->name : "";
    const char *topic = NULL;
    for (int k = 0; k < in->def->nlinks; k++) {
        const struct history_entry *h = coord_history(c, in->parent[k]->def->instance);
        if (!h || (topic && strcmp(topic, h->topic) != 0))
            return "";
        topic = h->topic;
    }
    return topic ? topic : "";
}

static void plan_histories(struct coord *c, struct pending *p) {
    const struct change *ch = &p->x.change;
    for (int i = 0; i < ch->nadd; i++) {
        const struct inst *in = plan_instance(c->plan, ch->add[i]->instance);
        struct journal_history h = { ch->add[i]->instance, -1,
                                     arena_strdup(&p->arena, origin_topic(c, in)) };
        coord_history_set(c, &h);
        p->history[p->nhistory++] = h;
    }
}

static void forget_histories(struct coord *c, const struct pending *p) {
    for (int i = 0; i < p->nhistory; i++)
        coord_history_drop(c, p->history[i].instance);
}

static struct journal_flow flow_record(const struct submission *s, int i, uint64_t serial) {
    const struct coord_spec *in = &s->in[i];
    const struct spec *sp = &s->spec[i];
    return (struct journal_flow){ .serial = serial,
                                  .name = sp->name,
                                  .file = in->file,
                                  .description = sp->description ? sp->description : "",
                                  .text = in->text,
                                  .len = in->len,
                                  .nfiles = in->nfiles,
                                  .nvars = in->nvars,
                                  .files = in->files,
                                  .vars = in->vars,
                                  .submitted_ms = s->cut.time,
                                  .cut = s->cut.id };
}

static void add_record(struct coord *c, struct pending *p, struct journal_flow f) {
    struct sbuf plan = { 0 };
    struct record *r = &p->record[p->nrecords++];
    plan_save(c->plan, plan_find(c->plan, f.name), &plan);
    f.plan = plan.p;
    f.plan_len = plan.len;
    r->serial = f.serial;
    journal_flow_text(&r->text, &f);
    sbuf_free(&plan);
}

static struct journal_meta meta_of(const struct coord *c, uint64_t version) {
    return (struct journal_meta){ version, plan_next(c->plan), c->cut, c->serial };
}

/* Under plan_lock: merges all. On error the plan is as before. */
static int merge_all(struct submission *s, const struct change **ch, struct errs *es) {
    int rc = 0;
    for (int i = 0; i < s->n; i++) {
        int r = plan_submit(s->c->plan, &s->spec[i], &s->cut, NULL, es);
        rc = rc == 0 || r == ERR_INPUT ? r < 0 ? r : rc : rc;
    }
    if (rc < 0)
        plan_rollback(s->c->plan);
    else
        *ch = plan_change(s->c->plan);
    return rc;
}

/* ---- submit ---- */

static void explain_all(struct submission *s) {
    s->planned = arena_zalloc(&s->arena, sizeof *s->planned * (size_t)s->n);
    for (int i = 0; i < s->n; i++)
        view_planned(s->c, plan_find(s->c->plan, s->spec[i].name), &s->planned[i]);
}

static void answer(struct submission *s, struct sbuf *out) {
    if (s->replace) {
        sbuf_adds(out, "{");
        sbuf_add(out, s->replace->changes.p, s->replace->changes.len);
        sbuf_adds(out, ",");
        view_histories(s->c, plan_find(s->c->plan, s->spec[0].name), out);
        sbuf_adds(out, "}");
        return;
    }
    sbuf_adds(out, "{\"dataflows\":[");
    for (int i = 0; i < s->n; i++) {
        sbuf_adds(out, i ? ",{" : "{");
        sbuf_add(out, s->planned[i].p, s->planned[i].len);
        sbuf_adds(out, ",");
        view_histories(s->c, plan_find(s->c->plan, s->spec[i].name), out);
        sbuf_adds(out, "}");
    }
    sbuf_adds(out, "]}");
}

static void count_in(struct submission *s, const struct pending *p, struct sbuf *out) {
    struct coord *c = s->c;
    coord_lock(c);
    plan_commit(c->plan);
    for (int i = 0; i < p->x.change.nremove; i++)
        coord_history_drop(c, p->x.change.remove[i]);
    if (s->replace)
        coord_drop(c, coord_dataflow(c, s->replace->name));
    for (int i = 0; i < s->n; i++) {
        struct journal_flow f = flow_record(s, i, p->record[i].serial);
        coord_add(c, &f);
    }
    for (int i = 0; i < p->nhistory; i++)
        coord_history_set(c, &p->history[i]);
    answer(s, out);
    coord_unlock(c);
    for (int i = 0; i < s->n; i++)
        events_add(c->events, s->replace ? "replaced" : "submitted", s->spec[i].name, "");
}

/* Under change_lock. */
static int submit_planned(struct submission *s, struct pending *p, struct sbuf *out,
                          struct err *e) {
    struct coord *c = s->c;
    int rc = make_topics(s, p, e);
    if (rc == 0) {
        rc = change_run(c, p, e);
    } else {
        drop_topics(c, p);
        pending_free(c->pending);
        c->pending = p;
    }
    if (rc == 0) {
        count_in(s, p, out);
    } else if (!c->stuck) {
        coord_lock(c);
        forget_histories(c, p);
        plan_rollback(c->plan);
        coord_unlock(c);
    }
    return rc;
}

/* Under plan_lock; on error the plan is as before. */
static int merge_replacement(struct submission *s, const struct change **ch, struct errs *es) {
    struct replacement *r = s->replace;
    struct plan *plan = s->c->plan;
    const struct flow *former = plan_find(plan, r->name);
    int rc = plan_replace(plan, r->name, &s->spec[0], &s->cut, es);
    if (rc < 0)
        return rc;
    const struct flow *f = plan_find(plan, r->name);
    rc =
        plan_takes(f, former, &s->spec[0], r->from, r->nfrom, &r->takes, &r->ntakes, &s->arena, es);
    if (rc < 0) {
        plan_rollback(plan);
        return rc;
    }
    view_replaced(f, former, r->takes, r->ntakes, &r->changes);
    *ch = plan_change(plan);
    return 0;
}

static int merge_any(struct submission *s, const struct change **ch, struct errs *es) {
    if (s->replace)
        return merge_replacement(s, ch, es);
    int rc = merge_all(s, ch, es);
    if (rc == 0)
        explain_all(s);
    return rc;
}

/* The former version's record goes, and state changes hands. */
static void pending_replace(struct submission *s, struct pending *p) {
    struct replacement *r = s->replace;
    struct change_take *take = ARENA_ARRAY(&p->arena, struct change_take, r->ntakes + 1);
    if (r->ntakes)
        memcpy(take, r->takes, (size_t)r->ntakes * sizeof *take);
    p->x.change.take = take;
    p->x.change.ntake = r->ntakes;
    p->record[p->nrecords++].serial = coord_dataflow(s->c, r->name)->serial;
}

static int submit_locked(struct submission *s, bool dry, struct sbuf *out, struct errs *es) {
    struct coord *c = s->c;
    struct err e = ERR_INIT;
    const struct change *ch = NULL;
    struct pending *p = NULL;
    coord_lock(c);
    s->cut = (struct plan_cut){ c->cut + 1, clock_wall_ms() };
    int rc = merge_any(s, &ch, es);
    if (rc == 0 && dry) {
        answer(s, out);
        plan_rollback(c->plan);
    } else if (rc == 0) {
        c->cut++;
        p = pending_new(c, ch, s->n + 1);
        plan_histories(c, p);
        for (int i = 0; i < s->n; i++)
            add_record(c, p, flow_record(s, i, ++c->serial));
        if (s->replace)
            pending_replace(s, p);
        p->meta = meta_of(c, ch->version);
    }
    coord_unlock(c);
    if (p && (rc = submit_planned(s, p, out, &e)) < 0)
        errs_add(es, &e);
    return rc;
}

static int submit(struct submission *s, bool dry, struct sbuf *out, struct errs *es) {
    struct err e = ERR_INIT;
    int rc = parse_all(s, es);
    if (rc == 0 && !change_begin(s->c, &e)) {
        rc = errs_add(es, &e);
    } else if (rc == 0) {
        rc = submit_locked(s, dry, out, es);
        pthread_mutex_unlock(&s->c->change_lock);
    }
    for (int i = 0; s->planned && i < s->n; i++)
        sbuf_free(&s->planned[i]);
    arena_free(&s->arena);
    return rc;
}

int coord_submit(struct coord *c, const struct coord_spec *specs, int n, bool dry, struct sbuf *out,
                 struct errs *es) {
    struct submission s = { .c = c, .in = specs, .n = n };
    return submit(&s, dry, out, es);
}

int coord_replace(struct coord *c, const char *name, const struct coord_spec *spec,
                  const struct journal_pair *state_from, int nfrom, bool dry, struct sbuf *out,
                  struct errs *es) {
    struct replacement r = { .name = name, .nfrom = nfrom };
    struct submission s = { .c = c, .in = spec, .n = 1, .replace = &r };
    r.from = ARENA_ARRAY(&s.arena, struct state_from, nfrom + 1);
    for (int i = 0; i < nfrom; i++)
        r.from[i] = (struct state_from){ state_from[i].name, state_from[i].text, NULL };
    int rc = submit(&s, dry, out, es);
    sbuf_free(&r.changes);
    return rc;
}

/* ---- topics ---- */

/* Under change_lock, so that no submit begins to use it meanwhile. */
int coord_topic_delete(struct coord *c, const char *topic, struct err *e) {
    struct coord_topic_use use;
    if (!change_begin(c, e))
        return ERR_SYSTEM;
    coord_topic_use(c, topic, &use);
    int rc;
    if (use.readers || use.writers)
        rc = err_set(e, ERR_CONFLICT, "dataflow '%s' %s the topic: remove it first",
                     use.readers ? use.reader : use.writer, use.readers ? "reads" : "writes");
    else
        rc = ingest_topic_delete(c->ingest, topic, false, e);
    pthread_mutex_unlock(&c->change_lock);
    return rc;
}

/* ---- remove ---- */

static void count_out(struct coord *c, const char *name, const struct pending *p) {
    coord_lock(c);
    plan_commit(c->plan);
    for (int i = 0; i < p->x.change.nremove; i++)
        coord_history_drop(c, p->x.change.remove[i]);
    coord_drop(c, coord_dataflow(c, name));
    coord_unlock(c);
    events_add(c->events, "removed", name, "");
}

static int remove_locked(struct coord *c, const char *name, bool drain, struct sbuf *out,
                         struct err *e) {
    const struct change *ch;
    struct pending *p = NULL;
    coord_lock(c);
    struct flow *f = plan_find(c->plan, name);
    struct dataflow *d = coord_dataflow(c, name);
    if (f && d)
        view_removed(f, out);
    int rc = plan_remove(c->plan, name, &ch, e);
    if (rc == 0) {
        p = pending_new(c, ch, 1);
        p->x.change.drain = drain;
        p->record[p->nrecords++].serial = d->serial;
        p->meta = meta_of(c, ch->version);
    }
    coord_unlock(c);
    if (rc < 0)
        return rc;
    rc = change_run(c, p, e);
    if (rc == 0) {
        count_out(c, name, p);
    } else if (!c->stuck) {
        coord_lock(c);
        plan_rollback(c->plan);
        coord_unlock(c);
    }
    return rc;
}

int coord_remove(struct coord *c, const char *name, bool drain, struct sbuf *out, struct err *e) {
    if (!change_begin(c, e))
        return ERR_SYSTEM;
    int rc = remove_locked(c, name, drain, out, e);
    pthread_mutex_unlock(&c->change_lock);
    return rc;
}
