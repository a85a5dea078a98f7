#include "engine/exec.h"
#include "engine/mutate.h"
#include "engine/num.h"
#include "engine/record.h"
#include "engine/spill.h"
#include "engine/task.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_BYTES = 256 << 20 };

struct exec *exec_new(const struct exec_conf *conf) {
    struct exec *ex = calloc(1, sizeof *ex);
    if (!ex)
        abort();
    ex->conf = *conf;
    if (ex->conf.batch_rows == 0 || ex->conf.batch_rows > BATCH_ROWS)
        ex->conf.batch_rows = BATCH_ROWS;
    if (ex->conf.align_bytes == 0)
        ex->conf.align_bytes = ALIGN_BYTES;
    ex->epoch = 1;
    ex->undo = undo_new();
    if (conf->spill)
        undo_spill(ex->undo, spill_window_new(conf->spill));
    return ex;
}

uint32_t exec_partition(const struct exec *ex) {
    return ex->conf.partition;
}

struct undo *exec_undo(struct exec *ex) {
    return ex->undo;
}

/* ---- tasks ---- */

static void task_free(struct task *t) {
    if (t->self && t->def->op->close)
        t->def->op->close(t->self);
    for (int i = 0; i < TABLE_ALL; i++)
        state_free(t->table[i]);
    align_free(t);
    free(t->self);
    free(t->in);
    free(t->reach);
    free(t->silent);
    free(t);
}

void exec_free(struct exec *ex) {
    if (!ex)
        return;
    for (uint32_t i = ex->ntasks; i-- > 0;)
        task_free(ex->task[i]);
    free(ex->task);
    free(ex->source);
    free(ex->by_instance);
    free(ex->touched[0].v);
    free(ex->touched[1].v);
    undo_free(ex->undo);
    arena_free(&ex->arena);
    free(ex);
}

static uint64_t instance_slot(uint64_t instance, uint64_t mask) {
    return instance * 0x9e3779b97f4a7c15u >> 20 & mask;
}

struct task *exec_find(struct exec *ex, uint64_t instance) {
    if (!ex->by_instance)
        return NULL;
    for (uint64_t i = instance_slot(instance, ex->by_mask);; i = (i + 1) & ex->by_mask) {
        struct task *t = ex->by_instance[i];
        if (!t || t->def->instance == instance)
            return t;
    }
}

static void index_put(struct exec *ex, struct task *t) {
    uint64_t i = instance_slot(t->def->instance, ex->by_mask);
    while (ex->by_instance[i])
        i = (i + 1) & ex->by_mask;
    ex->by_instance[i] = t;
}

/* Rebuilt whole: when it gets full, and when tasks are freed. */
static void index_rebuild(struct exec *ex, uint64_t room) {
    uint64_t n = 16;
    while (n < room * 2)
        n *= 2;
    free(ex->by_instance);
    ex->by_instance = calloc(n, sizeof *ex->by_instance);
    if (!ex->by_instance)
        abort();
    ex->by_mask = n - 1;
    for (uint32_t i = 0; i < ex->ntasks; i++)
        index_put(ex, ex->task[i]);
}

static void *grow(void *v, uint32_t n, uint32_t *cap, size_t size) {
    if (n < *cap)
        return v;
    *cap = *cap ? *cap * 2 : 8;
    v = realloc(v, *cap * size);
    if (!v)
        abort();
    return v;
}

static void exec_add(struct exec *ex, struct task *t) {
    ex->naligns += t->align != NULL;
    ex->task = grow(ex->task, ex->ntasks, &ex->cap, sizeof *ex->task);
    ex->task[ex->ntasks++] = t;
    if (!ex->by_instance || ex->ntasks * 3 / 2 > ex->by_mask)
        index_rebuild(ex, ex->ntasks + 8);
    else
        index_put(ex, t);
    if (t->def->op->flags & OP_SOURCE) {
        ex->source = grow(ex->source, ex->nsources, &ex->sources_cap, sizeof *ex->source);
        ex->source[ex->nsources++] = t;
    }
}

/* Below which sources the task lies: all that reach one of its parents. */
static bool source_reaches(const struct task *source, const struct task *t) {
    if (source == t)
        return true;
    for (uint32_t i = source->nreach; i-- > 0;)
        if (source->reach[i] == t)
            return true;
    return false;
}

/* The reach lists are searched from their end: a new task's parents are mostly young. A parent's
 * single origin makes the search unnecessary in the common case. */
static void exec_reach(struct exec *ex, struct task *t) {
    for (uint32_t s = 0; s < ex->nsources; s++) {
        struct task *src = ex->source[s];
        bool below = false;
        for (int i = 0; i < t->nlinks && !below; i++) {
            struct task *from = t->in[i].from;
            below = from->origin->align ? source_reaches(src, from) : from->origin == src;
        }
        if (!below)
            continue;
        src->reach = grow(src->reach, src->nreach, &src->reach_cap, sizeof *src->reach);
        src->reach[src->nreach++] = t;
        /* Below a merging task it is that task's stream, and none of its sources says it all. */
        const struct op_desc *op = t->def->op;
        if (t->origin != src || !op->idle || op->idle(t->def->config) == INT64_MAX)
            continue;
        src->silent = grow(src->silent, src->nsilent, &src->silent_cap, sizeof *src->silent);
        src->silent[src->nsilent++] = t;
    }
}

/* The next offset that the task's origin will give out. */
static int64_t origin_next(const struct task *t) {
    const struct task *o = t->origin;
    if (!o->align)
        return o->position;
    uint16_t key = 0xffff;
    const int64_t *next = state_find(o->table[TABLE_ALIGN_META], &key, 2, state_hash(&key, 2));
    return next ? 2 * *next : 0;
}

static int task_link(struct exec *ex, struct task *t, bool restore, struct err *e) {
    const struct task_def *d = t->def;
    t->nlinks = d->op->flags & OP_SOURCE ? 0 : d->nlinks; /* an exchange's reader: see task.h */
    t->in = calloc((size_t)(t->nlinks ? t->nlinks : 1), sizeof *t->in);
    if (!t->in)
        abort();
    t->origin = t;
    t->out_wm = TIME_MIN;
    bool several = false;
    for (int i = 0; i < t->nlinks; i++) {
        struct task *from = exec_find(ex, d->links[i].from);
        if (!from)
            return err_set(e, ERR_SYSTEM, "plan links task %s to unknown instance %llu", d->label,
                           (unsigned long long)d->links[i].from);
        t->in[i] =
            (struct link){ .from = from,
                           .to = t,
                           .out_port = d->links[i].out_port,
                           .in_port = d->links[i].in_port,
                           .since = restore ? INT64_MIN : origin_next(from) + MUTATED(MUTATE_CUT),
                           .until = INT64_MAX };
        several |= i > 0 && from->origin != t->in[0].from->origin;
    }
    if (several)
        align_new(t, restore);
    else if (t->nlinks)
        t->origin = t->in[0].from->origin;
    t->history_from = restore || !t->nlinks ? -1 : t->in[0].since;
    return 0;
}

static int task_open(struct task *t, struct err *e) {
    const struct task_def *d = t->def;
    const struct op_desc *op = d->op;
    t->ctx = (struct op_ctx){ .desc = op,
                              .config = d->config,
                              .nin = d->nin,
                              .nout = d->nout,
                              .in = d->in,
                              .out = d->out,
                              .in_name = d->in_name,
                              .out_name = d->out_name,
                              .nby = d->nby,
                              .by = d->by,
                              .keys = d->keys,
                              .instance = d->instance,
                              .arena = &t->ex->arena,
                              .count = &t->counts,
                              .next_timer = TIME_MIN,
                              .wm = TIME_MIN,
                              .host = &exec_host,
                              .task = t };
    t->self = calloc(1, op->self_size ? op->self_size : 1);
    if (!t->self)
        abort();
    if (op->flags & (OP_SOURCE | OP_SINK))
        t->table[TABLE_POSITION] = state_new(t->ex->undo, d->instance, TABLE_POSITION, 8);
    return op->open ? op->open(t->self, &t->ctx, e) : 0;
}

static int exec_add_task(struct exec *ex, const struct task_def *d, bool restore, struct err *e) {
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    t->ex = ex;
    t->def = d;
    t->seq = ++ex->seq;
    snprintf(t->sig_hex, sizeof t->sig_hex, "%016llx%016llx", (unsigned long long)d->sig.hi,
             (unsigned long long)d->sig.lo);
    int rc = task_link(ex, t, restore, e);
    if (rc == 0 && (rc = task_open(t, e)) < 0 && !e->pointer[0])
        snprintf(e->pointer, sizeof e->pointer, "%s", d->label);
    if (rc < 0) {
        task_free(t);
        return rc;
    }
    for (int i = 0; i < t->nlinks; i++) {
        struct link *l = &t->in[i];
        assert(l->from); /* task_link succeeded */
        l->next = l->from->out;
        l->from->out = l;
    }
    exec_add(ex, t);
    exec_reach(ex, t);
    return 0;
}

/* ---- removal ---- */

static void unlink_out(struct link *l) {
    struct link **p = &l->from->out;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
}

/* Frees the marked tasks; children go with or before their parents. */
static void exec_sweep(struct exec *ex, bool (*dead)(const struct task *, uint64_t),
                       uint64_t version, void (*freed)(void *, uint64_t), void *arg) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < ex->ntasks; i++)
        n += dead(ex->task[i], version);
    if (n == 0)
        return;
    for (uint32_t s = 0; s < ex->nsources; s++) {
        struct task *src = ex->source[s];
        uint32_t k = 0;
        for (uint32_t i = 0; i < src->nreach; i++)
            if (!dead(src->reach[i], version))
                src->reach[k++] = src->reach[i];
        src->nreach = k;
        k = 0;
        for (uint32_t i = 0; i < src->nsilent; i++)
            if (!dead(src->silent[i], version))
                src->silent[k++] = src->silent[i];
        src->nsilent = k;
    }
    uint32_t ns = 0;
    for (uint32_t s = 0; s < ex->nsources; s++)
        if (!dead(ex->source[s], version))
            ex->source[ns++] = ex->source[s];
    ex->nsources = ns;
    for (int l = 0; l < 2; l++) {
        struct task_list *list = &ex->touched[l];
        uint32_t m = 0;
        for (uint32_t i = 0; i < list->n; i++)
            if (!dead(list->v[i], version))
                list->v[m++] = list->v[i];
        list->n = m;
    }
    struct task **gone = malloc(n * sizeof *gone);
    if (!gone)
        abort();
    uint32_t k = 0, g = 0;
    for (uint32_t i = 0; i < ex->ntasks; i++) {
        struct task *t = ex->task[i];
        if (dead(t, version))
            gone[g++] = t;
        else
            ex->task[k++] = t;
    }
    ex->ntasks = k;
    while (g-- > 0) { /* children first */
        for (int i = 0; i < gone[g]->nlinks; i++)
            unlink_out(&gone[g]->in[i]);
        ex->naligns -= gone[g]->align != NULL;
        uint64_t instance = gone[g]->def->instance;
        task_free(gone[g]);
        if (freed)
            freed(arg, instance);
    }
    free(gone);
    index_rebuild(ex, ex->ntasks + 8);
}

static bool removed_up_to(const struct task *t, uint64_t version) {
    return t->removed_by && t->removed_by <= version;
}

void exec_free_removed(struct exec *ex, uint64_t version, void (*freed)(void *, uint64_t),
                       void *arg) {
    exec_sweep(ex, removed_up_to, version, freed, arg);
}

static bool newer_than(const struct task *t, uint64_t seq) {
    return t->seq > seq;
}

/* More out-ports on a running task; rows of the new ones begin at the cut of their first reader. */
static void task_update(struct task *t, const struct task_def *d) {
    assert(t);
    t->def = d;
    t->ctx.nout = d->nout;
    t->ctx.out = d->out;
    t->ctx.out_name = d->out_name;
}

int exec_apply(struct exec *ex, const struct change *ch, bool restore, struct err *e) {
    for (int i = 0; i < ch->nupdate; i++) {
        struct task *t = exec_find(ex, ch->update[i]->instance);
        assert(t);
        t->prev_def = t->def;
        task_update(t, ch->update[i]);
    }
    int rc = 0, added = 0;
    for (; added < ch->nadd && rc == 0; added++)
        rc = exec_add_task(ex, ch->add[added], restore, e);
    for (int i = 0; i < ch->nremove; i++) {
        struct task *t = exec_find(ex, ch->remove[i]);
        assert(t);
        t->removed_by = ch->version;
        for (int k = 0; k < t->nlinks; k++)
            t->in[k].until = origin_next(t->in[k].from);
    }
    if (rc < 0)
        exec_take_back(ex, ch);
    else if (ch->drain)
        exec_drain(ex, ch);
    return rc;
}

void exec_take_back(struct exec *ex, const struct change *ch) {
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < ch->nadd; i++) {
        struct task *t = exec_find(ex, ch->add[i]->instance);
        if (t && t->seq < first)
            first = t->seq;
    }
    if (first != UINT64_MAX)
        exec_sweep(ex, newer_than, first - 1, NULL, NULL);
    for (int i = 0; i < ch->nremove; i++) {
        struct task *t = exec_find(ex, ch->remove[i]);
        t->removed_by = 0;
        for (int k = 0; k < t->nlinks; k++)
            t->in[k].until = INT64_MAX;
    }
    for (int i = 0; i < ch->nupdate; i++) {
        struct task *t = exec_find(ex, ch->update[i]->instance);
        task_update(t, t->prev_def);
    }
}

/* ---- counters in the log ---- */

/* The fields of op_counts, then batches and ns: LEB128, most are small or equal. */
enum { COUNTS = sizeof(struct op_counts) / sizeof(uint64_t), COUNTS_LEN_MAX = (COUNTS + 2) * 10 };

static uint32_t counts_write(const struct task *t, unsigned char *out) {
    uint64_t v[COUNTS + 2] = { [COUNTS] = t->batches, [COUNTS + 1] = t->ns };
    uint32_t n = 0;
    memcpy(v, &t->counts, sizeof t->counts);
    for (int i = 0; i < COUNTS + 2; i++) {
        for (; v[i] >= 0x80; v[i] >>= 7)
            out[n++] = (unsigned char)(v[i] | 0x80);
        out[n++] = (unsigned char)v[i];
    }
    return n;
}

/* Counters that a former version did not know are 0. */
static void counts_read(struct task *t, const void *value, uint32_t vlen) {
    uint64_t v[COUNTS + 2] = { 0 };
    const unsigned char *p = value, *end = p + vlen;
    for (int i = 0; i < COUNTS + 2 && p < end; i++)
        for (unsigned shift = 0; p < end; shift += 7) {
            if (shift < 64)
                v[i] |= (uint64_t)(*p & 0x7f) << shift;
            if (!(*p++ & 0x80))
                break;
        }
    memcpy(&t->counts, v, sizeof t->counts);
    t->kept = t->pending = t->counts;
    t->batches = v[COUNTS];
    t->ns = v[COUNTS + 1];
}

void exec_counts(struct exec *ex, state_sink *put, void *arg) {
    for (uint32_t i = 0; i < ex->touched[0].n; i++) {
        struct task *t = ex->touched[0].v[i];
        unsigned char value[COUNTS_LEN_MAX];
        if (memcmp(&t->counts, &t->pending, sizeof t->counts) != 0)
            put(arg, t->def->instance, TABLE_COUNTS, "", 0, value, counts_write(t, value));
    }
}

bool task_counted(const struct task *t) {
    return t->counts.in > 0;
}

/* ---- restore and undo ---- */

int exec_load(struct exec *ex, uint64_t instance, int table, const void *key, uint32_t klen,
              const void *value, uint32_t vlen) {
    struct task *t = exec_find(ex, instance);
    if (t && table == TABLE_COUNTS) {
        counts_read(t, value, vlen);
        return 0;
    }
    if (!t || table < 0 || table >= TABLE_ALL || !t->table[table])
        return ERR_NOTFOUND;
    return state_load(t->table[table], key, klen, value, vlen);
}

void exec_load_ahead(struct exec *ex, uint64_t instance, int table, const void *key,
                     uint32_t klen) {
    struct task *t = exec_find(ex, instance);
    if (t && table >= 0 && table < TABLE_ALL && t->table[table])
        state_prefetch_slot(t->table[table], state_hash(key, klen));
}

static void task_position_reload(struct task *t) {
    const int64_t *p = state_find(t->table[TABLE_POSITION], "", 0, state_hash("", 0));
    t->position = p ? *p : 0;
}

void exec_rebuild(struct exec *ex) {
    for (uint32_t i = 0; i < ex->ntasks; i++) {
        struct task *t = ex->task[i];
        t->ctx.next_timer = t->ctx.wm = t->out_wm = TIME_MIN;
        t->idle = false;
        if (t->table[TABLE_POSITION])
            task_position_reload(t);
        if (t->align)
            align_rebuild(t);
        if (t->def->op->rebuild)
            t->def->op->rebuild(t->self, &t->ctx);
    }
}

/* ---- ticks ---- */

void task_seek(struct task *t, int64_t off) {
    t->position = off;
    int64_t *p = state_edit(t->table[TABLE_POSITION], "", 0, state_hash("", 0), NULL);
    *p = off;
}

static void tick_begin(struct exec *ex, struct task *source, struct origin *o) {
    ex->tick++;
    source->tick = ex->tick;
    task_touch(source);
    source->ctx.origin = source->ctx.out_origin = o;
    task_out_wm(source);
}

/* A removed task stays until its removal has committed. What this tick brings lies behind its cut
 * on every link: it must not see even the time go on, since nobody would commit what it did to its
 * state. */
static bool past_cut(const struct task *t) {
    for (int k = 0; k < t->nlinks; k++) {
        const struct task *from = t->in[k].from;
        const struct origin *o = from->ctx.out_origin;
        if (from->tick == t->ex->tick && o && (o->at ? o->at[0] : o->off0) < t->in[k].until)
            return false;
    }
    return true;
}

static void tick_run(struct exec *ex, struct task *source) {
    for (uint32_t i = 0; i < source->nreach; i++)
        if (!source->reach[i]->removed_by || !past_cut(source->reach[i]))
            task_run(source->reach[i]);
    arena_reset(&ex->arena);
}

static void tick_batch(struct exec *ex, struct task *source, struct batch *b, struct origin *o) {
    tick_begin(ex, source, o);
    b->origin = o;
    source->counts.in += b->n;
    source->counts.passed += b->n;
    source->batches++;
    op_emit(&source->ctx, 0, b);
    task_seek(source, o->off0 + o->n);
    tick_run(ex, source);
}

uint32_t exec_tick_pull(struct exec *ex, struct task *source, uint32_t max) {
    struct batch *b = ARENA_NEW(&ex->arena, struct batch);
    struct origin *o = ARENA_NEW(&ex->arena, struct origin);
    if (max > ex->conf.batch_rows)
        max = ex->conf.batch_rows;
    uint32_t n = source->def->op->pull(source->self, &source->ctx, source->position, max, b, o);
    if (n == 0) {
        arena_reset(&ex->arena);
        return 0;
    }
    o->id = source->def->instance;
    tick_batch(ex, source, b, o);
    return n;
}

static const char *source_topic(const struct task *t) {
    return op_config_text(t->def->op, t->def->config, "topic");
}

static struct origin *tick_origin(struct exec *ex, struct task *source, int64_t off, uint32_t n) {
    struct origin *o = ARENA_NEW(&ex->arena, struct origin);
    *o = (struct origin){ .id = source->def->instance,
                          .name = source_topic(source),
                          .partition = ex->conf.partition,
                          .n = n,
                          .off0 = off,
                          .wm_before = TIME_MIN };
    return o;
}

/* Records of several rows each: the source unpacks them itself. */
static void tick_records(struct exec *ex, struct task *source, const struct log_rows *rows,
                         int64_t off) {
    struct origin *o = tick_origin(ex, source, off, rows->n);
    uint64_t before = source->counts.out;
    tick_begin(ex, source, o);
    source->def->op->records(source->self, &source->ctx, rows, off, o);
    source->counts.in += source->counts.out - before;
    source->counts.passed += source->counts.out - before;
    source->batches++;
    task_out_wm(source);
    task_seek(source, off + rows->n);
    tick_run(ex, source);
}

void exec_tick(struct exec *ex, struct task *source, const struct log_rows *rows, int64_t off) {
    struct arena *a = &ex->arena;
    uint32_t n = rows->n;
    if (source->def->op->records) {
        tick_records(ex, source, rows, off);
        return;
    }
    struct span *v = ARENA_ARRAY(a, struct span, n);
    int64_t *times = ARENA_ARRAY(a, int64_t, n), log_max = TIME_MIN;
    uint64_t *nulls = NULL;
    uint32_t start = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = rows->value_end[i] & ~LOG_NULL;
        v[i] = (struct span){ .p = rows->values ? rows->values + start : "", .len = end - start };
        if (rows->value_end[i] & LOG_NULL) {
            v[i].p = NULL;
            if (!nulls)
                nulls = batch_nulls(a, n);
            bit_set(nulls, i);
        }
        times[i] = rows->time;
        log_max = times[i] > log_max ? times[i] : log_max;
        start = end;
    }
    const struct schema *schema = source->def->out[0];
    struct column *col = arena_zalloc(a, sizeof *col * (size_t)schema->n);
    col->str = v;
    col->nulls = nulls;
    if (schema->n > 1)
        record_columns(a, schema, rows, off, ex->conf.partition, col);
    struct origin *o = tick_origin(ex, source, off, n);
    o->raw = v;
    o->log_time = times;
    o->log_max = log_max;
    o->own_time = rows->times;
    struct batch *b = ARENA_NEW(a, struct batch);
    *b = (struct batch){ .schema = schema, .cols = col, .rows = n, .n = n, .off0 = off };
    tick_batch(ex, source, b, o);
}

int64_t exec_idle_ms(const struct task *source) {
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < source->nsilent; i++) {
        const struct task *t = source->silent[i];
        int64_t ms = t->idle || t->removed_by ? INT64_MAX : t->def->op->idle(t->def->config);
        least = ms < least ? ms : least;
    }
    return least;
}

void exec_tick_idle(struct exec *ex, struct task *source, int64_t silent_ms) {
    struct origin *o = tick_origin(ex, source, source->position, 0);
    o->silent_ms = silent_ms;
    /* Made-up rows are silent only when they have ended; an exchange's reader hears of it. */
    o->idle = source->idle || source->def->op->pull;
    tick_begin(ex, source, o);
    tick_run(ex, source);
}

void exec_retell(struct exec *ex, uint64_t exchange) {
    struct task *t = exec_find(ex, exchange);
    if (!t)
        return;
    t->def->op->rebuild(t->self, &t->ctx);
    for (uint32_t s = 0; s < ex->nsources; s++)
        for (uint32_t i = 0; source_reaches(ex->source[s], t) && i < ex->source[s]->nsilent; i++)
            ex->source[s]->silent[i]->idle = false;
}

void exec_finish(struct exec *ex, struct task *source) {
    int64_t *wm = ARENA_ARRAY(&ex->arena, int64_t, 1);
    *wm = TIME_MAX;
    ex->end_off = source->position;
    struct origin *o = tick_origin(ex, source, ex->end_off, 1);
    o->wm = wm;
    ex->ending = true;
    tick_begin(ex, source, o);
    tick_run(ex, source);
    ex->ending = false;
}

static void links_open(struct task *t, int64_t until) {
    for (int k = 0; k < t->nlinks; k++)
        t->in[k].until = until;
}

/* A parent that stays, or a source: it looks ended from here. What its children saw in its own last
 * tick went with the memory of that tick, so the origin is made anew. */
static void look_ended(struct exec *ex, struct task *from) {
    struct origin *o = ARENA_NEW(&ex->arena, struct origin);
    struct task *origin = from->origin;
    *o = (struct origin){ .id = origin->def->instance,
                          .name = origin->align ? NULL : source_topic(origin),
                          .partition = ex->conf.partition,
                          .wm_before = from->out_wm };
    from->tick = ex->tick;
    from->ctx.out_origin = o;
    ex->end_off = origin_next(from);
    origin_end(from);
}

void exec_drain(struct exec *ex, const struct change *ch) {
    struct arena *a = &ex->arena;
    struct task **gone = ARENA_ARRAY(a, struct task *, ch->nremove + 1);
    int n = 0;
    for (uint32_t i = 0; i < ex->ntasks; i++) /* in topological order */
        if (ex->task[i]->removed_by == ch->version)
            gone[n++] = ex->task[i];
    ex->tick++;
    ex->ending = true;
    for (int i = 0; i < n; i++)
        links_open(gone[i], INT64_MAX);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < gone[i]->nlinks; k++) {
            struct task *from = gone[i]->in[k].from;
            if (from->tick == ex->tick)
                continue;
            look_ended(ex, from);
        }
        if (!(gone[i]->def->op->flags & OP_SOURCE)) {
            ex->end_off = origin_next(gone[i]);
            task_run(gone[i]);
        }
    }
    ex->ending = false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < gone[i]->nlinks; k++)
            gone[i]->in[k].until = origin_next(gone[i]->in[k].from);
    arena_reset(a);
}

/* Ahead in a task whose buffer is full. */
static bool source_ahead(const struct task *source) {
    for (uint32_t i = 0; i < source->nreach; i++) {
        const struct task *t = source->reach[i];
        if (t->align && !t->removed_by && align_full(t) && align_ahead(t, source))
            return true;
    }
    return false;
}

struct waits {
    const struct task **v;
    uint32_t n;
};

/* Adds the sources that this one waits for. */
static void waits_add(struct waits *w, const struct task *source) {
    for (uint32_t i = 0; i < source->nreach; i++) {
        const struct task *t = source->reach[i];
        if (!t->align || t->removed_by || !align_full(t) || !align_ahead(t, source))
            continue;
        const struct task *holder = align_holder(t);
        uint32_t k = 0;
        while (k < w->n && w->v[k] != holder)
            k++;
        if (k < w->n)
            continue;
        w->v[w->n++] = holder;
    }
}

/* Who is ahead pauses for who is behind, who may itself be ahead in another task and pause. When
 * such a chain ends at a source that does not pause, that one brings rows, or is silent. When it
 * only leads back to where it began, all would wait for ever: the sources on the ring go on, and
 * the buffers hold more than their limit, as much as the ring demands. */
bool exec_paused(const struct exec *ex, const struct task *source) {
    if (ex->naligns == 0 || !source_ahead(source)) /* asked before each tick */
        return false;
    struct waits w = { malloc((ex->nsources + 1) * sizeof *w.v), 0 };
    if (!w.v)
        abort();
    waits_add(&w, source);
    bool ring = false, ends = false;
    for (uint32_t i = 0; i < w.n && !ends; i++) {
        ring |= w.v[i] == source;
        ends = !source_ahead(w.v[i]);
        waits_add(&w, w.v[i]);
    }
    free(w.v);
    return ends || !ring;
}

/* ---- counters ---- */

static void list_add(struct task_list *l, struct task *t) {
    l->v = grow(l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = t;
}

void task_touch(struct task *t) {
    struct exec *ex = t->ex;
    if (t->touched == ex->epoch)
        return;
    t->touched = ex->epoch;
    list_add(&ex->touched[0], t);
}

void exec_epoch_push(struct exec *ex) {
    struct task_list l = ex->touched[0];
    for (uint32_t i = 0; i < l.n; i++) {
        l.v[i]->kept = l.v[i]->pending;
        l.v[i]->pending = l.v[i]->counts;
        if (l.v[i]->align)
            align_push(l.v[i]);
    }
    ex->touched[0] = ex->touched[1];
    ex->touched[0].n = 0;
    ex->touched[1] = l;
    ex->epoch++;
}

void exec_epoch_commit(struct exec *ex) {
    for (uint32_t i = 0; i < ex->touched[1].n; i++) {
        struct task *t = ex->touched[1].v[i];
        t->kept = t->pending;
        if (t->align)
            align_commit(t);
    }
    ex->touched[1].n = 0;
}

void exec_epoch_abort(struct exec *ex) {
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < ex->touched[k].n; i++) {
            struct task *t = ex->touched[k].v[i];
            t->counts = t->pending = t->kept;
        }
        ex->touched[k].n = 0;
    }
    ex->epoch++;
}

bool op_counts_conserved(const struct op_counts *c) {
    return c->in == c->passed + c->filtered + c->late + c->rejected + c->absorbed &&
           c->out == c->passed + c->made;
}

/* ---- visits ---- */

void task_set_user(struct task *t, void *user) {
    t->user = user;
}
void *task_user(const struct task *t) {
    return t->user;
}
void exec_tables(struct exec *ex, uint64_t version,
                 void (*each)(void *, uint64_t, int, struct state *), void *arg) {
    for (uint32_t i = 0; i < ex->ntasks; i++)
        for (int k = 0; k < TABLE_ALL && removed_up_to(ex->task[i], version); k++)
            if (ex->task[i]->table[k])
                each(arg, ex->task[i]->def->instance, k, ex->task[i]->table[k]);
}

const struct task_def *task_def(const struct task *t) {
    return t->def;
}
uint32_t task_partition(const struct task *t) {
    return t->ex->conf.partition;
}
uint64_t task_rows_in(const struct task *t) {
    return t->counts.in;
}
int64_t task_position(const struct task *t) {
    return t->position;
}
bool task_has_position(const struct task *t) {
    return state_find(t->table[TABLE_POSITION], "", 0, state_hash("", 0)) != NULL;
}
int exec_sources(const struct exec *ex) {
    return (int)ex->nsources;
}
struct task *exec_source(const struct exec *ex, int i) {
    return ex->source[i];
}

void task_stats(struct task *t, struct task_stats *s) {
    *s = (struct task_stats){ .counts = t->counts,
                              .batches = t->batches,
                              .ns = t->ns,
                              .wm = t->ctx.wm,
                              .history_from = t->history_from };
    if (t->align)
        align_stats(t, s);
    for (int i = 0; i < TABLE_ALL; i++)
        if (t->table[i]) {
            s->state_keys += state_count(t->table[i]);
            s->state_bytes += state_bytes(t->table[i]);
        }
}

void exec_each(struct exec *ex, void (*each)(void *, struct task *), void *arg) {
    for (uint32_t i = 0; i < ex->ntasks; i++)
        each(arg, ex->task[i]);
}
