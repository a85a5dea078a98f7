#include "planner/show.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 100, WIDTH_MIN = 40, USERS_NAMED = 3 };

/* ---- the graph of tasks ---- */

static bool is_node(const struct inst *in) {
    return in->state != INST_GONE && in->tails + in->sink_tails > 0;
}

static int by_number(const void *a, const void *b) {
    const struct inst *const *x = a, *const *y = b;
    uint64_t i = (*x)->def->instance, k = (*y)->def->instance;
    return i < k ? -1 : i > k;
}

static int by_serial(const void *a, const void *b) {
    const struct flow *const *x = a, *const *y = b;
    return (*x)->serial < (*y)->serial ? -1 : (*x)->serial > (*y)->serial;
}

static int by_int(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static const struct inst **list_nodes(const struct plan *p, const struct flow *only,
                                      struct arena *a, int *count) {
    int n = 0, max = only ? only->nuses : (int)(p->counts.tasks + p->counts.sinks);
    const struct inst **v = ARENA_ARRAY(a, const struct inst *, max ? max : 1);
    for (int i = 0; only && i < only->nuses; i++)
        if (only->uses[i].task >= 0)
            v[n++] = only->uses[i].inst;
    for (uint64_t i = 0; !only && i <= p->number_mask; i++)
        for (const struct inst *in = p->by_number[i]; in; in = in->next_number)
            if (is_node(in))
                v[n++] = in;
    qsort(v, (size_t)n, sizeof *v, by_number);
    *count = n;
    return v;
}

static void fill_users(struct show_node *node, struct arena *a) {
    const struct inst *in = node->inst;
    const struct use *first = NULL;
    node->users = ARENA_ARRAY(a, const struct flow *, in->refs ? in->refs : 1);
    for (const struct use *u = in->uses; u; u = u->next) {
        node->users[node->nusers++] = u->flow;
        if (u->task >= 0 && (!first || u->flow->serial < first->flow->serial))
            first = u;
    }
    qsort(node->users, (size_t)node->nusers, sizeof *node->users, by_serial);
    node->task = &first->flow->tasks[first->task];
}

/* Node index of an instance, by bisection; -1: none. */
static int node_of(const struct inst *const *v, int n, const struct inst *in) {
    int lo = 0, hi = n - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        uint64_t at = v[mid]->def->instance, want = in->def->instance;
        if (at == want)
            return mid;
        if (at < want)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

/* The nearest nodes above a node, through stages that are nobody's last. */
static void fill_parents(struct show_node *node, const struct inst *const *v, int n,
                         struct arena *a) {
    int cap = 16, len = 0, np = 0, pcap = 4;
    const struct inst **stack = ARENA_ARRAY(a, const struct inst *, cap);
    node->parents = ARENA_ARRAY(a, int, pcap);
    node->first = node->inst;
    stack[len++] = node->inst;
    while (len) {
        const struct inst *in = stack[--len];
        for (int k = 0; k < in->def->nlinks; k++) {
            int i = node_of(v, n, in->parent[k]);
            if (i >= 0) {
                int j = 0;
                while (j < np && node->parents[j] != i)
                    j++;
                if (j < np)
                    continue;
                if (np == pcap) {
                    int *more = ARENA_ARRAY(a, int, 2 * pcap);
                    memcpy(more, node->parents, sizeof *more * (size_t)np);
                    node->parents = more;
                    pcap *= 2;
                }
                node->parents[np++] = i;
                continue;
            }
            if (len == cap) {
                const struct inst **more = ARENA_ARRAY(a, const struct inst *, 2 * cap);
                memcpy(more, stack, sizeof *more * (size_t)len);
                stack = more;
                cap *= 2;
            }
            stack[len++] = in->parent[k];
            if (in->def->nlinks == 1)
                node->first = in->parent[k];
        }
    }
    qsort(node->parents, (size_t)np, sizeof(int), by_int);
    node->nparents = np;
}

struct show_graph show_nodes(const struct plan *p, const struct flow *only, struct arena *a) {
    struct show_graph g = { 0 };
    const struct inst **v = list_nodes(p, only, a, &g.n);
    g.v = arena_zalloc(a, sizeof *g.v * (size_t)(g.n ? g.n : 1));
    for (int i = 0; i < g.n; i++) {
        g.v[i].inst = v[i];
        fill_users(&g.v[i], a);
        fill_parents(&g.v[i], v, g.n, a);
        for (int k = 0; k < g.v[i].nparents; k++)
            g.v[g.v[i].parents[k]].nchildren++;
    }
    for (int i = 0; i < g.n; i++) {
        g.v[i].children = ARENA_ARRAY(a, int, g.v[i].nchildren ? g.v[i].nchildren : 1);
        g.v[i].nchildren = 0;
    }
    for (int i = 0; i < g.n; i++)
        for (int k = 0; k < g.v[i].nparents; k++) {
            struct show_node *up = &g.v[g.v[i].parents[k]];
            up->children[up->nchildren++] = i;
        }
    return g;
}

/* ---- tree ---- */

/* Columns of a UTF-8 text: one a code point; our glyphs are single width. */
static int columns(const char *s) {
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Adds at most `max` columns of s; returns those used. */
static int add_columns(struct sbuf *out, const char *s, int max) {
    if (max <= 0)
        return 0;
    int n = columns(s);
    if (n <= max) {
        sbuf_adds(out, s);
        return n;
    }
    const char *p = s;
    for (int k = 0; k < max; k++) {
        const char *next = p + 1;
        while (((unsigned char)*next & 0xc0) == 0x80)
            next++;
        if (k == max - 1)
            break;
        sbuf_add(out, p, (size_t)(next - p));
        p = next;
    }
    sbuf_adds(out, "…");
    return max;
}

static const char *users_text(const struct show_node *node, struct arena *a) {
    if (node->nusers == 1)
        return node->users[0]->name;
    if (node->nusers > USERS_NAMED)
        return arena_printf(a, "×%d", node->nusers);
    char *s = arena_printf(a, "×%d %s", node->nusers, node->users[0]->name);
    for (int i = 1; i < node->nusers; i++)
        s = arena_printf(a, "%s, %s", s, node->users[i]->name);
    return columns(s) <= 40 ? s : arena_printf(a, "×%d", node->nusers);
}

/* The parameters that are not the defaults, "every=10s mode=null"; secrets stay hidden. */
static const char *params_text(const struct op_desc *op, const void *config, struct arena *a) {
    struct sbuf mine = { 0 }, plain = { 0 };
    struct json_doc dm, dp;
    struct errs es = { 0 };
    void *defaults = arena_zalloc(a, op->config_size + 1);
    params_defaults(op, defaults, a);
    /* A required parameter has no default: zeroes, which only scalars can show. */
    params_canonical(op, config, true, &mine);
    json_parse(&dm, NULL, sbuf_str(&mine), mine.len, a, &es);
    params_canonical(op, defaults, true, &plain);
    json_parse(&dp, NULL, sbuf_str(&plain), plain.len, a, &es);
    const char *text = "";
    struct sbuf x = { 0 }, y = { 0 };
    for (const struct jnode *n = dm.root ? dm.root->child : NULL; n; n = n->next) {
        const struct jnode *d = dp.root ? jnode_get(dp.root, n->key) : NULL;
        x.len = y.len = 0;
        sbuf_json_canonical(&x, n);
        if (d)
            sbuf_json_canonical(&y, d);
        if (x.len == y.len && memcmp(x.p, y.p, x.len) == 0)
            continue;
        bool str = n->type == J_STR;
        text = arena_printf(a, "%s %s=%.*s", text, n->key, (int)(str ? n->len : x.len),
                            str ? n->s : x.p);
    }
    sbuf_free(&x);
    sbuf_free(&y);
    sbuf_free(&mine);
    sbuf_free(&plain);
    errs_free(&es);
    return text;
}

/* "range_filter by id ranges=…": what tells this task from its neighbours. */
static const char *detail(const struct show_node *node, struct arena *a) {
    const struct inst *in = node->inst, *up = in;
    const struct op_desc *op = node->task->op;
    if (op->flags & (OP_SOURCE | OP_SINK)) {
        while (!up->topic && up->def->nlinks == 1 && !(op->flags & OP_SINK))
            up = up->parent[0];
        if (up->topic)
            return arena_printf(a, "%s %s", op->name, spec_written(up->topic->name));
    }
    const char *by = "";
    for (int k = 0; k < in->def->nby; k++)
        by =
            arena_printf(a, "%s%s%s", by, k ? "," : " by ", in->def->in[0]->f[in->def->by[k]].name);
    return arena_printf(a, "%s%s%s", op->name, by, params_text(in->def->op, in->def->config, a));
}

struct tree {
    const struct show_graph *g;
    struct arena *a;
    struct sbuf *out;
    int width;
    bool *drawn;
};

static void tree_line(struct tree *t, const char *prefix, int i, bool again) {
    const struct show_node *node = &t->g->v[i];
    const char *users = users_text(node, t->a);
    int used = add_columns(t->out, prefix, t->width / 2);
    /* A task named after its type is named once. */
    if (again || strcmp(node->task->id, node->task->op->name) != 0)
        used += add_columns(t->out, node->task->id, 40);
    if (again) {
        sbuf_adds(t->out, " (above)\n");
        return;
    }
    if (strcmp(node->task->id, node->task->op->name) != 0)
        used += add_columns(t->out, "  ", 2);
    int room = t->width - used - columns(users) - 2;
    used += add_columns(t->out, detail(node, t->a), room > 8 ? room : 8);
    for (int pad = t->width - used - columns(users); pad > 0; pad--)
        sbuf_adds(t->out, " ");
    sbuf_adds(t->out, used + columns(users) >= t->width ? "  " : "");
    sbuf_printf(t->out, "%s\n", users);
}

/* Depth first with a stack of (node, prefix); children are pushed last first. */
struct tree_item {
    int node;
    const char *prefix, *below;
};

static void tree_from(struct tree *t, int root) {
    int cap = 64, n = 0;
    struct tree_item *stack = ARENA_ARRAY(t->a, struct tree_item, cap);
    stack[n++] = (struct tree_item){ root, "", "" };
    while (n) {
        struct tree_item it = stack[--n];
        const struct show_node *node = &t->g->v[it.node];
        bool again = t->drawn[it.node];
        tree_line(t, it.prefix, it.node, again);
        if (again)
            continue;
        t->drawn[it.node] = true;
        while (n + node->nchildren > cap) {
            struct tree_item *more = ARENA_ARRAY(t->a, struct tree_item, 2 * cap);
            memcpy(more, stack, sizeof *more * (size_t)n);
            stack = more;
            cap *= 2;
        }
        for (int k = node->nchildren - 1; k >= 0; k--) {
            bool last = k == node->nchildren - 1;
            stack[n++] =
                (struct tree_item){ node->children[k],
                                    arena_printf(t->a, "%s%s", it.below, last ? "└─ " : "├─ "),
                                    arena_printf(t->a, "%s%s", it.below, last ? "   " : "│  ") };
        }
    }
}

void show_tree(const struct plan *p, const struct show *o, struct sbuf *out) {
    struct arena a = { 0 };
    struct show_graph g = show_nodes(p, o->only, &a);
    int width = o->width ? o->width : WIDTH;
    struct tree t = { &g, &a, out, width < WIDTH_MIN ? WIDTH_MIN : width,
                      arena_zalloc(&a, (size_t)g.n + 1) };
    for (int i = 0; i < g.n; i++)
        if (g.v[i].nparents == 0)
            tree_from(&t, i);
    arena_free(&a);
}

/* ---- DOT ---- */

static void dot_text(struct sbuf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            sbuf_adds(out, "\\");
        sbuf_add(out, s, 1);
    }
}

static void dot_node(const struct show_node *node, struct arena *a, struct sbuf *out) {
    static const char *const shade[] = { "#ffffff", "#dbeafe", "#bfdbfe", "#93c5fd", "#60a5fa" };
    int level = node->nusers <= 1    ? 0
                : node->nusers <= 2  ? 1
                : node->nusers <= 5  ? 2
                : node->nusers <= 20 ? 3
                                     : 4;
    unsigned flags = node->task->op->flags;
    sbuf_printf(out, "    t%llu [label=\"", (unsigned long long)node->inst->def->instance);
    dot_text(out, node->task->id);
    sbuf_adds(out, "\\n");
    struct sbuf line = { 0 };
    add_columns(&line, detail(node, a), 40);
    dot_text(out, sbuf_str(&line));
    sbuf_free(&line);
    if (node->nusers > 1)
        sbuf_printf(out, "\\n×%d", node->nusers);
    sbuf_printf(out, "\", fillcolor=\"%s\"%s];\n", shade[level],
                flags & OP_SOURCE ? ", shape=cds"
                : flags & OP_SINK ? ", shape=note"
                                  : "");
}

void show_dot(const struct plan *p, const struct show *o, struct sbuf *out) {
    struct arena a = { 0 };
    struct show_graph g = show_nodes(p, o->only, &a);
    sbuf_adds(out, "digraph braid {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", "
                   "fontname=\"sans-serif\"];\n");
    /* Nodes of one user, by user: buckets through a list head for each dataflow. */
    int nflows = 0, *next = ARENA_ARRAY(&a, int, g.n + 1);
    for (const struct flow *f = p->first; f; f = f->next)
        nflows++;
    int *head = ARENA_ARRAY(&a, int, nflows + 1);
    uint64_t *serial = ARENA_ARRAY(&a, uint64_t, nflows + 1);
    nflows = 0;
    for (const struct flow *f = p->first; f; f = f->next) {
        head[nflows] = -1;
        serial[nflows++] = f->serial;
    }
    for (int i = g.n - 1; i >= 0; i--) {
        if (g.v[i].nusers > 1) {
            dot_node(&g.v[i], &a, out);
            continue;
        }
        int lo = 0, hi = nflows - 1;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (serial[mid] < g.v[i].users[0]->serial)
                lo = mid + 1;
            else
                hi = mid;
        }
        next[i] = head[lo];
        head[lo] = i;
    }
    nflows = 0;
    for (const struct flow *f = p->first; f; f = f->next, nflows++) {
        if (head[nflows] < 0)
            continue;
        sbuf_printf(out, "  subgraph \"cluster_%s\" {\n    label=\"%s\"; color=\"#94a3b8\";\n",
                    f->name, f->name);
        for (int i = head[nflows]; i >= 0; i = next[i])
            dot_node(&g.v[i], &a, out);
        sbuf_adds(out, "  }\n");
    }
    for (int i = 0; i < g.n; i++)
        for (int k = 0; k < g.v[i].nparents; k++)
            sbuf_printf(out, "  t%llu -> t%llu;\n",
                        (unsigned long long)g.v[g.v[i].parents[k]].inst->def->instance,
                        (unsigned long long)g.v[i].inst->def->instance);
    sbuf_adds(out, "}\n");
    arena_free(&a);
}

/* ---- JSON ---- */

static void node_json(const struct show *o, const struct show_node *node, struct sbuf *out) {
    uint64_t in = 0, outs = 0, other;
    char sig[33];
    sig_text(node->inst->def->sig, sig);
    sbuf_printf(out, "{\"id\":\"t%llu\",\"type\":\"%s\",\"signature\":\"%s\",\"dataflows\":[",
                (unsigned long long)node->inst->def->instance, node->task->op->name, sig);
    for (int i = 0; i < node->nusers; i++)
        sbuf_printf(out, "%s\"%s\"", i ? "," : "", node->users[i]->name);
    if (o->rows && !o->rows(o->user, node->first->def->instance, &in, &other))
        in = 0;
    if (o->rows && !o->rows(o->user, node->inst->def->instance, &other, &outs))
        outs = 0;
    sbuf_printf(out, "],\"rows_in\":%llu,\"rows_out\":%llu}", (unsigned long long)in,
                (unsigned long long)outs);
}

void show_json(const struct plan *p, const struct show *o, struct sbuf *out) {
    struct arena a = { 0 };
    struct show_graph g = show_nodes(p, o->only, &a);
    const char *sep = "";
    sbuf_adds(out, "{\"tasks\":[");
    for (int i = 0; i < g.n; i++) {
        sbuf_adds(out, i ? ",\n" : "");
        node_json(o, &g.v[i], out);
    }
    sbuf_adds(out, "],\n\"streams\":[");
    for (int i = 0; i < g.n; i++)
        for (int k = 0; k < g.v[i].nparents; k++) {
            sbuf_printf(out, "%s{\"from\":\"t%llu\",\"to\":\"t%llu\"}", sep,
                        (unsigned long long)g.v[g.v[i].parents[k]].inst->def->instance,
                        (unsigned long long)g.v[i].inst->def->instance);
            sep = ",";
        }
    sbuf_adds(out, "]}\n");
    arena_free(&a);
}
