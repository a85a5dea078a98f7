/* Configs of operators written back: the canonical text that signatures hash, and what people
 * see. */
#include "engine/expr.h"
#include "engine/num.h"
#include "engine/op.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARAMS_MAX = 64 };

static const void *cslot(const struct param *p, const void *config) {
    return (const char *)config + p->offset;
}

static void add_i64(struct sbuf *b, int64_t v) {
    sbuf_reserve(b, NUM_I64_MAX_LEN);
    b->len += (size_t)num_write_i64(b->p + b->len, v);
}

static void add_f64(struct sbuf *b, double v) {
    if (!isfinite(v)) {
        sbuf_adds(b, "null");
        return;
    }
    sbuf_reserve(b, NUM_F64_MAX_LEN);
    b->len += (size_t)num_write_f64(b->p + b->len, v);
}

static void add_str(struct sbuf *b, const char *s) {
    sbuf_json_str(b, s, strlen(s));
}

static void add_schema(struct sbuf *b, const struct schema *s) {
    for (int i = 0; i < s->n; i++) {
        sbuf_adds(b, i ? "," : "{");
        add_str(b, s->f[i].name);
        if (s->f[i].type == TYPE_VEC)
            sbuf_printf(b, ":\"vec<%u>\"", (unsigned)s->f[i].dim);
        else
            sbuf_printf(b, ":\"%s\"", type_names[s->f[i].type]);
    }
    sbuf_adds(b, s->n ? "}" : "{}");
}

static void add_duration(struct sbuf *b, int64_t ms) {
    char buf[48];
    sbuf_adds(b, "\"");
    sbuf_add(b, buf, (size_t)duration_write(buf, ms));
    sbuf_adds(b, "\"");
}

/* Whether an optional parameter is absent: it is then left out, so that a new optional parameter
 * changes no signature. */
static bool absent(const struct param *p, const void *at) {
    switch (p->type) {
    case PT_I64:
    case PT_DURATION:
    case PT_SIZE:
        return *(const int64_t *)at == PARAM_UNSET;
    case PT_F64:
        return isnan(*(const double *)at);
    case PT_ENUM:
        return *(const int *)at < 0;
    case PT_STR:
    case PT_FIELD:
    case PT_EXPR:
        return !*(const char *const *)at;
    case PT_SCHEMA:
        return !*(const struct schema *const *)at;
    case PT_FILE:
        return !*(struct file *const *)at;
    case PT_JSON:
        return !*(const struct jnode *const *)at;
    case PT_TIME:
        return !((const struct time_field *)at)->field;
    case PT_STRS: /* empty lists differ from nothing only for operators; none gives them a default
                   */
        return (p->flags & PARAM_OPTIONAL) && ((const struct strs *)at)->n == 0;
    case PT_STRMAP:
    case PT_EXPRMAP:
    case PT_AGGMAP:
        return (p->flags & PARAM_OPTIONAL) && ((const struct strmap *)at)->n == 0;
    case PT_RANGES:
        return (p->flags & PARAM_OPTIONAL) && ((const struct ranges *)at)->n == 0;
    case PT_BOOL:
    case PT_START:
        return false;
    }
    return false;
}

/* An expression in its canonical form, so that equal ones are equal texts; people see their own. */
static void add_expr(struct sbuf *b, enum param_type type, const char *s, bool people) {
    struct arena tmp = { 0 };
    const char *canon = NULL;
    if (!people && type == PT_AGGMAP)
        canon = agg_canonical(&tmp, s, strlen(s), NULL);
    else if (!people)
        canon = expr_canonical(&tmp, s, strlen(s), NULL);
    add_str(b, canon ? canon : s);
    arena_free(&tmp);
}

static void add_strmap(struct sbuf *b, enum param_type type, const struct strmap *m, bool people) {
    sbuf_adds(b, "{");
    for (int i = 0; i < m->n; i++) {
        sbuf_adds(b, i ? "," : "");
        add_str(b, m->v[i].name);
        sbuf_adds(b, ":");
        add_expr(b, type, m->v[i].text, people || type == PT_STRMAP);
    }
    sbuf_adds(b, "}");
}

static void add_lists(struct sbuf *b, const struct param *p, const void *at) {
    if (p->type == PT_STRS) {
        const struct strs *s = at;
        sbuf_adds(b, "[");
        for (int i = 0; i < s->n; i++) {
            sbuf_adds(b, i ? "," : "");
            add_str(b, s->v[i]);
        }
        sbuf_adds(b, "]");
    } else {
        const struct ranges *g = at;
        sbuf_adds(b, "{");
        for (int i = 0; i < g->n; i++) {
            sbuf_adds(b, i ? "," : "");
            add_str(b, g->v[i].name);
            sbuf_adds(b, ":[");
            add_f64(b, g->v[i].lo);
            sbuf_adds(b, ",");
            add_f64(b, g->v[i].hi);
            sbuf_adds(b, "]");
        }
        sbuf_adds(b, "}");
    }
}

static void add_param(struct sbuf *b, const struct param *p, const void *at, bool people) {
    switch (p->type) {
    case PT_BOOL:
        sbuf_adds(b, *(const bool *)at ? "true" : "false");
        break;
    case PT_DURATION:
        if (people) {
            add_duration(b, *(const int64_t *)at);
            break;
        }
        add_i64(b, *(const int64_t *)at);
        break;
    case PT_I64:
    case PT_SIZE:
        add_i64(b, *(const int64_t *)at);
        break;
    case PT_F64:
        add_f64(b, *(const double *)at);
        break;
    case PT_STR:
    case PT_FIELD:
        add_str(b, *(const char *const *)at);
        break;
    case PT_ENUM:
        add_str(b, p->words[*(const int *)at]);
        break;
    case PT_STRS:
    case PT_RANGES:
        add_lists(b, p, at);
        break;
    case PT_STRMAP:
    case PT_EXPRMAP:
    case PT_AGGMAP:
        add_strmap(b, p->type, at, people);
        break;
    case PT_EXPR:
        add_expr(b, p->type, *(const char *const *)at, people);
        break;
    case PT_SCHEMA:
        add_schema(b, *(const struct schema *const *)at);
        break;
    case PT_FILE: {
        const struct file *f = *(struct file *const *)at;
        add_str(b, people ? f->name : f->hash);
        break;
    }
    case PT_JSON:
        sbuf_json_canonical(b, *(const struct jnode *const *)at);
        break;
    case PT_START:
        start_write(b, at, people);
        break;
    case PT_TIME: {
        const struct time_field *t = at;
        sbuf_adds(b, "{\"field\":");
        add_str(b, t->field);
        sbuf_adds(b, ",\"unit\":");
        add_str(b, time_unit_words[t->unit]);
        sbuf_adds(b, "}");
        break;
    }
    }
}

static void add_params(struct sbuf *out, const struct param *const *order, int n,
                       const void *config, bool people) {
    sbuf_adds(out, "{");
    for (int i = 0; i < n; i++) {
        sbuf_adds(out, i ? "," : "");
        add_str(out, order[i]->name);
        sbuf_adds(out, ":");
        if (people && (order[i]->flags & PARAM_SECRET))
            sbuf_adds(out, "\"***\"");
        else
            add_param(out, order[i], cslot(order[i], config), people);
    }
    sbuf_adds(out, "}");
}

/* Of one class, without those that have a flag of `but`: sorted by name, so that the order of a
 * table may change. */
static void add_class(const struct op_desc *d, const void *config, enum param_class cls,
                      unsigned but, struct sbuf *out) {
    const struct param *order[PARAMS_MAX];
    int n = 0;
    for (const struct param *p = d->params; p && p->name; p++) {
        if (p->class != cls || p->flags & but || absent(p, cslot(p, config)))
            continue;
        assert(n < PARAMS_MAX);
        int at = n++;
        for (; at > 0 && strcmp(order[at - 1]->name, p->name) > 0; at--)
            order[at] = order[at - 1];
        order[at] = p;
    }
    add_params(out, order, n, config, false);
}

void params_class(const struct op_desc *d, const void *config, enum param_class cls,
                  struct sbuf *out) {
    add_class(d, config, cls, 0, out);
}

void params_form(const struct op_desc *d, const void *config, struct sbuf *out) {
    add_class(d, config, PARAM_SEMANTIC, PARAM_LIVE, out);
}

void params_canonical(const struct op_desc *d, const void *config, bool all, struct sbuf *out) {
    const struct param *order[PARAMS_MAX];
    int n = 0;
    if (!all) {
        params_class(d, config, PARAM_SEMANTIC, out);
        return;
    }
    for (const struct param *p = d->params; p && p->name; p++) {
        assert(n < PARAMS_MAX);
        if (!absent(p, cslot(p, config)))
            order[n++] = p;
    }
    add_params(out, order, n, config, true);
}
