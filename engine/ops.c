#include "engine/op.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPS_MAX = 512, TEXT_MAX = 768 };

static const struct op_desc *table[OPS_MAX];
const struct op_desc *const *ops_all = table;
int ops_count;

static int by_name(const void *a, const void *b) {
    const struct op_desc *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

void ops_init(const struct op_desc *const *descs, int n) {
    assert(n >= 0 && n <= OPS_MAX);
    memcpy(table, descs, (size_t)n * sizeof *table);
    ops_count = n;
    qsort(table, (size_t)n, sizeof *table, by_name);
    for (int i = 1; i < n; i++)
        assert(strcmp(table[i - 1]->name, table[i]->name) != 0);
}

const struct op_desc *ops_find(const char *name) {
    int lo = 0, hi = ops_count - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2, c = strcmp(name, table[mid]->name);
        if (c == 0)
            return table[mid];
        if (c < 0)
            hi = mid - 1;
        else
            lo = mid + 1;
    }
    return NULL;
}

const char *ops_nearest(const char *name) {
    const char *names[OPS_MAX];
    int n = 0;
    for (int i = 0; i < ops_count; i++)
        if (!(table[i]->flags & OP_INNER))
            names[n++] = table[i]->name;
    return err_nearest(name, names, n);
}

void plan_error(struct op_plan *p, const char *param, const char *key, const char *fmt, ...) {
    char text[TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->errors++;
    p->report(p, param, key, text);
}

/* "i64 or f64" for a mask. */
static const char *types_text(unsigned mask, char *buf, size_t size) {
    size_t len = 0;
    buf[0] = 0;
    for (int t = 0; t < TYPE_COUNT && len < size; t++) {
        if (!(mask & TYPE_BIT(t)))
            continue;
        mask &= ~TYPE_BIT(t);
        const char *sep = len == 0 ? "" : mask ? ", " : " or ";
        len += (size_t)snprintf(buf + len, size - len, "%s%s", sep, type_names[t]);
    }
    return buf;
}

int plan_field(struct op_plan *p, int port, const char *param, const char *key, const char *name,
               unsigned mask) {
    assert(port < p->nin);
    const struct schema *s = p->in[port];
    int i = schema_find(s, name);
    if (i < 0) {
        const char *near = schema_nearest(s, name);
        if (near)
            plan_error(p, param, key, "input '%s' has no field '%s'; did you mean '%s'?",
                       p->in_name[port], name, near);
        else
            plan_error(p, param, key, "input '%s' has no field '%s'; it has %s", p->in_name[port],
                       name, schema_text(p->arena, s));
        return -1;
    }
    if (mask && !(mask & TYPE_BIT(s->f[i].type))) {
        char buf[96];
        plan_error(p, param, key, "field '%s' is %s; it must be %s here", name,
                   type_names[s->f[i].type], types_text(mask, buf, sizeof buf));
        return -1;
    }
    return i;
}

void plan_once(struct op_plan *p, const char *param, const struct strs *names) {
    for (int i = 0; i < names->n; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(names->v[i], names->v[j]) == 0)
                plan_error(p, param, names->v[i], "'%s' is listed twice", names->v[i]);
}

static const char *const port_in[] = { "in", NULL };
static const char *const port_out[] = { "out", NULL };
static const char *const port_none[] = { NULL };

const char *const *op_in_ports(const struct op_desc *op) {
    return op->in_ports ? op->in_ports : op->flags & OP_SOURCE ? port_none : port_in;
}

const char *const *op_out_ports(const struct op_desc *op) {
    return op->flags & OP_SINK ? port_none : op->out_ports ? op->out_ports : port_out;
}
