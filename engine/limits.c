/* Tasks whose state has a time to live and limits (struct state_limits of their task_def). */
#include "engine/key.h"
#include "engine/task.h"

enum { EXPIRE_PLACES = 64 /* looked at in each tick, beside those that new keys pay for */ };

struct state *limits_state(struct task *t, int table, uint32_t vsize) {
    /* Table 0 is the one by key; others hold what belongs to the task as a whole. */
    const struct state_limits *l = table == 0 ? t->def->limits : NULL;
    return state_new_limited(t->ex->undo, t->def->instance, table, vsize, l);
}

static void refuse(struct task *t, const struct batch *b, uint32_t row) {
    const struct state_limits *l = t->def->limits;
    if (l->max_keys && state_count(t->table[0]) >= l->max_keys)
        op_reject(&t->ctx, b, row, "state_full", "the state holds %llu keys, which is its limit",
                  (unsigned long long)l->max_keys);
    else
        op_reject(&t->ctx, b, row, "state_full",
                  "the state holds %llu bytes of keys and values, and another key would exceed its "
                  "limit of %llu",
                  (unsigned long long)state_used(t->table[0]), (unsigned long long)l->max_bytes);
}

static void hand_in(struct task *t, int port, const struct batch *b, uint32_t lo, uint32_t hi) {
    if (hi > lo)
        t->def->op->process(t->self, &t->ctx, port, batch_slice(&t->ex->arena, b, lo, hi));
}

/* Rows of keys that are not there are judged one by one, each after all rows before it have passed;
 * those of keys that are there go on in runs. So the outcome is that of single rows. */
static void deliver_full(struct task *t, int port, const struct batch *b) {
    struct arena *a = &t->ex->arena;
    struct state *s = t->table[0];
    struct span *key = ARENA_ARRAY(a, struct span, b->n);
    uint64_t *hash = ARENA_ARRAY(a, uint64_t, b->n);
    uint32_t lo = 0;
    key_batch(a, b, t->ctx.by, t->ctx.nby, key, hash);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t time = b->time ? b->time[r] : TIME_MIN, wm = b->time ? b->wm[r] : TIME_MIN;
        state_at(s, time, wm);
        if (state_holds(s, key[i].p, key[i].len, hash[i]))
            continue;
        hand_in(t, port, b, lo, i);
        state_at(s, time, wm);
        lo = i;
        if (state_admits(s, key[i].p, key[i].len, hash[i]))
            continue;
        refuse(t, b, r);
        lo = i + 1;
    }
    hand_in(t, port, b, lo, b->n);
}

void limits_deliver(struct task *t, int port, const struct batch *b) {
    if (t->table[0] && state_near_limit(t->table[0], b->n))
        deliver_full(t, port, b);
    else
        t->def->op->process(t->self, &t->ctx, port, b);
}

void limits_expire(struct task *t) {
    const struct origin *o = t->ctx.origin;
    if (t->table[0] && o && o->wm && o->n)
        state_expire(t->table[0], o->wm[o->n - 1], EXPIRE_PLACES);
}
