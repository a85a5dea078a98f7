/* ${NAME} and ${secret:NAME} in the strings of a config. "$${" stands for "${". A string that is
 * one variable and stands where a number or boolean belongs becomes one. A secret may only reach a
 * parameter marked secret, so that it is never printed. */
#include "engine/num.h"
#include "planner/spec.h"
#include <string.h>

enum { VALUE_MAX = 64 << 10 };

struct vars {
    struct spec *s;
    const struct spec_env *env;
    struct arena *a;
    struct errs *es;
    const struct param *param; /* the parameter the string belongs to; NULL: unknown */
    struct jnode *member;      /* its value */
    struct sbuf out;
};

/* The value of the variable at p = "${…": sets *end behind the brace. NULL after reporting. */
static const char *value(struct vars *v, const struct jnode *n, const char *p, const char **end) {
    const struct json_doc *doc = &v->s->doc;
    const char *name = p + 2, *stop = memchr(name, '}', (size_t)(n->s + n->len - name));
    if (!stop) {
        json_error(v->es, doc, n, false, "'${' without a '}'; write \"$${\" for a plain \"${\"");
        return NULL;
    }
    *end = stop + 1;
    size_t len = (size_t)(stop - name);
    bool secret = len > 7 && memcmp(name, "secret:", 7) == 0;
    if (secret) {
        name += 7;
        len -= 7;
    }
    if (!spec_name_valid(name, len, true)) {
        json_error(v->es, doc, n, false,
                   "'${%.*s}' is no variable: names have letters, digits, "
                   "'_', '.' and '-'",
                   len > 60 ? 60 : (int)len, name);
        return NULL;
    }
    name = arena_strndup(v->a, name, len);
    if (secret && v->param && !(v->param->flags & PARAM_SECRET)) {
        json_error(v->es, doc, n, false,
                   "'%s' is shown to everyone: the secret '%s' must not stand there",
                   v->param->name, name);
        return NULL;
    }
    const char *text = v->env->var ? v->env->var(v->env->user, name, secret) : NULL;
    if (!text)
        json_error(v->es, doc, n, false,
                   secret ? "there is no secret '%s'" : "the variable '%s' is not set", name);
    return text;
}

/* Whether a whole-string variable in this place should be read as a number or boolean. */
static bool scalar_place(const struct vars *v, bool top) {
    if (!v->param)
        return false;
    switch (v->param->type) {
    case PT_BOOL:
    case PT_I64:
    case PT_F64:
    case PT_SIZE:
        return top;
    case PT_RANGES:
        return true;
    default:
        return false;
    }
}

static void to_scalar(struct jnode *n) {
    const char *s = n->s, *end = s + n->len;
    bool is_int;
    int64_t i;
    double d;
    if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0) {
        n->type = J_BOOL;
        n->b = *s == 't';
    } else if (num_parse(s, end, &is_int, &i, &d) == end) {
        n->type = is_int ? J_INT : J_REAL;
        if (is_int)
            n->i = i;
        else
            n->d = d;
    }
}

static int expand(struct vars *v, struct jnode *n, bool top) {
    const char *p = n->s, *end = p + n->len;
    if (n->len < 2 || !memmem(p, n->len, "${", 2))
        return 0;
    v->out.len = 0;
    bool whole = p[0] == '$' && p[1] == '{';
    while (p < end) {
        if (end - p >= 3 && memcmp(p, "$${", 3) == 0) {
            sbuf_adds(&v->out, "${");
            p += 3;
        } else if (end - p >= 2 && p[0] == '$' && p[1] == '{') {
            const char *text = value(v, n, p, &p);
            if (!text)
                return ERR_INPUT;
            sbuf_adds(&v->out, text);
            whole = whole && p == end;
        } else {
            sbuf_add(&v->out, p++, 1);
        }
        if (v->out.len > VALUE_MAX)
            return json_error(v->es, &v->s->doc, n, false,
                              "the string has more than %d bytes with its variables filled in",
                              VALUE_MAX);
    }
    if (!utf8_valid(v->out.p, v->out.p + v->out.len))
        return json_error(v->es, &v->s->doc, n, false, "a variable in it is not valid UTF-8");
    n->s = arena_strndup(v->a, v->out.p ? v->out.p : "", v->out.len);
    n->len = (uint32_t)v->out.len;
    if (whole && scalar_place(v, top))
        to_scalar(n);
    return 0;
}

static const struct param *param_of(const struct op_desc *op, const struct jnode *n) {
    for (const struct param *p = op->params; p && p->name; p++)
        if (strcmp(p->name, n->key) == 0)
            return p;
    return NULL;
}

void spec_vars(struct spec *s, struct spec_task *t, struct jnode *config,
               const struct spec_env *env, struct arena *a, struct errs *es) {
    struct vars v = { .s = s, .env = env, .a = a, .es = es };
    struct jnode *n = config->n ? config->child : NULL;
    while (n) {
        bool top = n->parent == config;
        if (top) {
            v.param = param_of(t->op, n);
            v.member = n;
        }
        if (n->type == J_STR && expand(&v, n, top) < 0)
            v.member->b = v.member->type != J_BOOL; /* params_parse leaves it alone */
        if ((n->type == J_ARR || n->type == J_OBJ) && n->child) {
            n = n->child;
            continue;
        }
        while (n != config && !n->next)
            n = n->parent;
        n = n == config ? NULL : n->next;
    }
    sbuf_free(&v.out);
}
