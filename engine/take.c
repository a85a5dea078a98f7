/* State that changes hands when a dataflow is replaced: the tables of a task are copied to one that
 * takes its place. Copied, not moved: the former may go on for others, and until the commit an undo
 * needs both. */
#include "engine/task.h"

static int check_pair(const struct task *from, const struct task *to, struct err *e) {
    if (from->align || to->align)
        return err_set(e, ERR_INPUT,
                       "task %s merges several sources: rows that wait for another source cannot "
                       "change hands",
                       (from->align ? from : to)->def->label);
    for (int i = 0; i < STATE_TABLES; i++) {
        const struct state *a = from->table[i], *b = to->table[i];
        if (!a != !b || (a && state_vsize(a) != state_vsize(b)))
            return err_set(e, ERR_INPUT,
                           "the state of task %s does not have the form of that of %s",
                           from->def->label, to->def->label);
    }
    return 0;
}

/* A sink file goes on where the former task's ends. */
static void take_pair(struct task *from, struct task *to) {
    const struct op_desc *op = to->def->op;
    for (int i = 0; i < STATE_TABLES; i++)
        if (from->table[i])
            state_copy(from->table[i], to->table[i], from->ctx.wm);
    if (op->flags & OP_SINK)
        task_seek(to, from->position);
    if (op->rebuild)
        op->rebuild(to->self, &to->ctx);
}

/* A task that does not run on this partition is not here; the planner saw to it that both run on
 * the same ones. */
int exec_take(struct exec *ex, const struct change *ch, struct err *e) {
    for (int i = 0; i < ch->ntake; i++) {
        struct task *from = exec_find(ex, ch->take[i].from), *to = exec_find(ex, ch->take[i].to);
        if (!from || !to)
            continue;
        int rc = check_pair(from, to, e);
        if (rc < 0)
            return rc;
        take_pair(from, to);
    }
    return 0;
}

uint64_t exec_take_bytes(struct exec *ex, const struct change *ch) {
    uint64_t bytes = 0;
    for (int i = 0; i < ch->ntake; i++) {
        const struct task *from = exec_find(ex, ch->take[i].from);
        for (int k = 0; from && k < STATE_TABLES; k++)
            bytes += from->table[k] ? state_bytes(from->table[k]) : 0;
    }
    return bytes;
}
