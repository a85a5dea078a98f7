#include "operators/named_ports.h"

enum { PORT_NAME_MAX = 100 }; /* bytes; what a dataflow file can write after "task." */

static bool port_word(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!word)
            return false;
    }
    return n > 0 && n <= PORT_NAME_MAX;
}

static int find(const char *const *name, int n, const char *what) {
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], what) == 0)
            return i;
    return -1;
}

static const char *listed(struct arena *a, const char *const *name, int n) {
    const char *text = "";
    for (int i = 0; i < n; i++)
        text = arena_printf(a, "%s%s'%s'", text, i ? ", " : "", name[i]);
    return text;
}

static void check_readers(struct op_plan *p, const char *const *name, int n) {
    for (int k = 0; k < p->nout; k++) {
        if (find(name, n, p->out_name[k]) >= 0)
            continue;
        const char *near = err_nearest(p->out_name[k], name, n);
        if (strcmp(p->out_name[k], "out") == 0 && !near)
            plan_error(p, NULL, NULL, "the rows leave by ports: read \"TASK.PORT\" with one of %s",
                       listed(p->arena, name, n));
        else if (near)
            plan_error(p, NULL, NULL, "there is no out-port '%s'; did you mean '%s'?",
                       p->out_name[k], near);
        else
            plan_error(p, NULL, NULL, "there is no out-port '%s'; there are %s", p->out_name[k],
                       listed(p->arena, name, n));
    }
}

void named_ports_plan(struct op_plan *p, const char *param, const char *last,
                      const char *const *name, int n) {
    for (int k = 0; k < p->nout; k++)
        p->out[k] = p->in[0];
    if (p->nin > 1 || strcmp(p->in_name[0], "in") != 0)
        plan_error(p, NULL, NULL, "there is one in-port, 'in', not '%s'",
                   p->in_name[strcmp(p->in_name[0], "in") == 0]);
    if (n > OP_PORTS_MAX)
        plan_error(p, param, NULL, "%d out-ports; at most %d are allowed", n, OP_PORTS_MAX);
    for (int i = 0; i < n; i++) {
        bool other = last && i == n - 1;
        const char *at = other ? last : param, *key = other ? NULL : name[i];
        if (!port_word(name[i]))
            plan_error(p, at, key,
                       "the port name '%.60s' must be 1 to %d letters, digits, '_' or '-'", name[i],
                       PORT_NAME_MAX);
        if (find(name, i, name[i]) >= 0)
            plan_error(p, at, key, "the port '%s' is named twice", name[i]);
    }
    if (p->errors == 0)
        check_readers(p, name, n);
}

void named_ports_open(struct named_ports *s, const char *const *name, int n) {
    *s = (struct named_ports){ .n = n, .name = name, .nseen = -1 };
}

/* Out-ports grow with their readers, and shrink when a submit is taken back. */
static void link_ports(struct named_ports *s, const struct op_ctx *x) {
    s->seen = x->out_name;
    s->nseen = x->nout;
    for (int i = 0; i < s->n; i++)
        s->link[i] = find(x->out_name, x->nout, s->name[i]);
}

void named_ports_emit(struct named_ports *s, struct op_ctx *x, int i, const struct batch *b) {
    if (s->nseen != x->nout || s->seen != x->out_name)
        link_ports(s, x);
    if (s->link[i] >= 0)
        op_emit(x, s->link[i], b);
    else
        x->count->out += b->n;
}
