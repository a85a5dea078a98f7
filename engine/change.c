#include "engine/change.h"
#include <stdlib.h>

struct change shard_change(const struct shard *sh, const struct change *ch, struct arena *a) {
    struct change c = *ch;
    if (sh->no == 0) /* every task runs there */
        return c;
    const struct task_def **add = ARENA_ARRAY(a, const struct task_def *, ch->nadd + 1);
    const struct task_def **update = ARENA_ARRAY(a, const struct task_def *, ch->nupdate + 1);
    uint64_t *remove = ARENA_ARRAY(a, uint64_t, ch->nremove + 1);
    c.nadd = c.nremove = c.nupdate = 0;
    for (int i = 0; i < ch->nadd; i++)
        if (task_parts(ch->add[i]) > sh->no)
            add[c.nadd++] = ch->add[i];
    for (int i = 0; i < ch->nupdate; i++)
        if (task_parts(ch->update[i]) > sh->no)
            update[c.nupdate++] = ch->update[i];
    for (int i = 0; i < ch->nremove; i++)
        if (exec_find(sh->ex, ch->remove[i]))
            remove[c.nremove++] = ch->remove[i];
    c.add = add;
    c.update = update;
    c.remove = remove;
    return c;
}

static void change_undo_bind(struct shard *sh, const struct change *ch) {
    for (int i = 0; i < ch->nadd; i++) {
        struct task *t = exec_find(sh->ex, ch->add[i]->instance);
        if (t)
            ports_unbind(&sh->ports, t);
    }
}

int change_bind(struct shard *sh, const struct change *ch, bool restore, struct err *e) {
    for (int i = 0; i < ch->nadd; i++) {
        struct task *t = exec_find(sh->ex, ch->add[i]->instance);
        int rc = ports_bind(&sh->ports, t, restore, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* On one shard: all of it or nothing. */
static int shard_apply(struct shard *sh, const struct change *ch, struct err *e) {
    int rc = exec_apply(sh->ex, ch, false, e);
    if (rc < 0)
        return rc;
    rc = exec_take(sh->ex, ch, e);
    if (rc < 0)
        exec_take_back(sh->ex, ch);
    else if ((rc = change_bind(sh, ch, false, e)) < 0) {
        change_undo_bind(sh, ch);
        exec_take_back(sh->ex, ch);
    }
    return rc;
}

/* The running exchange that a new task reads; 0: none, or it is new, too. */
static uint64_t joined(const struct change *ch, const struct task_def *d) {
    if (!(d->op->flags & OP_EXCHANGE) || !(d->op->flags & OP_SOURCE))
        return 0;
    for (int i = 0; i < ch->nadd; i++)
        if (ch->add[i]->instance == d->links[0].from)
            return 0;
    return d->links[0].from;
}

bool change_joins(const struct change *ch) {
    for (int i = 0; i < ch->nadd; i++)
        if (joined(ch, ch->add[i]))
            return true;
    return false;
}

uint32_t change_parts(const struct change *ch) {
    uint32_t n = 1;
    for (int i = 0; i < ch->nadd; i++)
        if (task_parts(ch->add[i]) > n)
            n = task_parts(ch->add[i]);
    return n;
}

/* What changes hands goes into one epoch, and leaves room for others. */
static int check_take(const struct lanes *ls, const struct change *ch, struct err *e) {
    uint64_t bytes = 0, max = ls->conf.epoch_bytes / 2;
    for (uint32_t i = 0; i < ls->nshards; i++)
        bytes += exec_take_bytes(ls->shard[i]->ex, ch);
    if (bytes <= max)
        return 0;
    return err_set(e, ERR_INPUT,
                   "the state that is to change hands has %llu MiB; at most %llu can in one step",
                   (unsigned long long)(bytes >> 20), (unsigned long long)(max >> 20));
}

void change_retake(struct lanes *ls, const struct change *whole) {
    for (uint32_t i = 0; i < ls->nshards && whole->ntake; i++)
        exec_take(ls->shard[i]->ex, whole, NULL);
}

int change_apply(struct lanes *ls, const struct change *whole, struct err *e) {
    struct arena a = { 0 };
    int rc = check_take(ls, whole, e);
    if (rc < 0)
        return rc;
    lanes_grow(ls, change_parts(whole));
    for (uint32_t i = 0; i < ls->nshards && rc == 0; i++) {
        struct change ch = shard_change(ls->shard[i], whole, &a);
        rc = shard_apply(ls->shard[i], &ch, e);
        for (uint32_t k = i; rc < 0 && k-- > 0;) {
            ch = shard_change(ls->shard[k], whole, &a);
            change_undo_bind(ls->shard[k], &ch);
            exec_take_back(ls->shard[k]->ex, &ch);
        }
    }
    for (uint32_t i = 0; i < ls->nshards && rc == 0; i++) {
        ports_cut(&ls->shard[i]->ports);
        for (int k = 0; k < whole->nadd; k++)
            if (joined(whole, whole->add[k]))
                exec_retell(ls->shard[i]->ex, joined(whole, whole->add[k]));
    }
    arena_free(&a);
    return rc;
}

void change_drain(struct lanes *ls, const struct change *whole) {
    struct arena a = { 0 };
    for (uint32_t i = 0; i < ls->nshards; i++) {
        struct change ch = shard_change(ls->shard[i], whole, &a);
        exec_drain(ls->shard[i]->ex, &ch);
    }
    arena_free(&a);
}

int change_drainable(const struct lanes *ls, const struct change *ch, struct err *e) {
    struct exec *ex = ls->shard[0]->ex;
    bool *timers = calloc((size_t)ch->nremove + 1, sizeof *timers);
    int rc = 0;
    if (!timers)
        abort();
    for (int i = ch->nremove; i-- > 0 && rc == 0;) { /* parents first */
        const struct task_def *d = task_def(exec_find(ex, ch->remove[i]));
        for (int k = 0; k < d->nlinks; k++)
            for (int j = i + 1; j < ch->nremove; j++)
                timers[i] |= ch->remove[j] == d->links[k].from && timers[j];
        if (timers[i] && (d->op->flags & OP_EXCHANGE))
            rc = err_set(e, ERR_INPUT,
                         "task %s regroups what windows above it put out at their end, over the "
                         "partitions: such a dataflow cannot be drained; remove it without --drain",
                         d->label);
        timers[i] |= (d->op->flags & OP_TIMERS) != 0;
    }
    free(timers);
    return rc;
}
