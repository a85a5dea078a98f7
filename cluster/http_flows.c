/* /v1/dataflows and /v1/graph. */
#include "cluster/http_impl.h"
#include "cluster/view.h"
#include "planner/spec.h"
#include <string.h>

enum { PAIRS_MAX = 10000, GRAPH_WIDTH_MIN = 40, GRAPH_WIDTH_MAX = 1000 };

/* ---- the body of a submit ---- */

struct reading {
    struct json_doc doc;
    struct arena *a;
    struct errs *es;
};

static int check_keys(struct reading *r, const struct jnode *obj, const char *const *known, int n,
                      const char *what) {
    int rc = 0;
    for (const struct jnode *c = obj->child; c; c = c->next) {
        int i = 0;
        while (i < n && strcmp(known[i], c->key) != 0)
            i++;
        if (i < n)
            continue;
        const char *near = c->klen < 60 ? err_nearest(c->key, known, n) : NULL;
        rc = json_error(r->es, &r->doc, c, true, "unknown key '%.60s' in %s%s%s%s", c->key, what,
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return rc;
}

/* A member of type `type`; NULL when absent, or (rc set) after an error. */
static const struct jnode *member(struct reading *r, const struct jnode *obj, const char *key,
                                  enum jtype type, bool required, int *rc) {
    const struct jnode *n = jnode_get(obj, key);
    if (n && n->type == type)
        return n;
    if (n)
        *rc = json_error(r->es, &r->doc, n, false, "'%s' must be %s, not %s", key,
                         jtype_names[type], jtype_names[n->type]);
    else if (required)
        *rc = json_error(r->es, &r->doc, obj, false, "'%s' is missing", key);
    return NULL;
}

static const struct journal_pair *pairs(struct reading *r, const struct jnode *obj, const char *key,
                                        bool hashes, int *count, int *rc) {
    const struct jnode *n = member(r, obj, key, J_OBJ, false, rc);
    *count = 0;
    if (!n)
        return NULL;
    if (n->n > PAIRS_MAX) {
        *rc = json_error(r->es, &r->doc, n, false, "'%s' has more than %d entries", key, PAIRS_MAX);
        return NULL;
    }
    struct journal_pair *v = ARENA_ARRAY(r->a, struct journal_pair, n->n + 1);
    for (const struct jnode *c = n->n ? n->child : NULL; c; c = c->next) {
        if (c->type != J_STR)
            *rc = json_error(r->es, &r->doc, c, false, "must be a string, not %s",
                             jtype_names[c->type]);
        else if (hashes && !filestore_hash_valid(c->s))
            *rc = json_error(r->es, &r->doc, c, false,
                             "'%.40s' is no hash: it has 32 lower-case hex digits", c->s);
        else if (strlen(c->s) != c->len || strlen(c->key) != c->klen)
            *rc = json_error(r->es, &r->doc, c, false, "must not contain a NUL");
        else
            v[(*count)++] = (struct journal_pair){ c->key, c->s };
    }
    return v;
}

static int read_spec(struct reading *r, const struct jnode *n, struct coord_spec *spec) {
    static const char *const known[] = { "file", "text", "files", "vars" };
    int rc = 0;
    if (n->type != J_OBJ)
        return json_error(r->es, &r->doc, n, false, "must be an object, not %s",
                          jtype_names[n->type]);
    rc = check_keys(r, n, known, 4, "a spec");
    const struct jnode *text = member(r, n, "text", J_STR, true, &rc);
    const struct jnode *file = member(r, n, "file", J_STR, false, &rc);
    *spec = (struct coord_spec){ .file = file ? file->s : "",
                                 .text = text ? text->s : "",
                                 .len = text ? text->len : 0 };
    spec->files = pairs(r, n, "files", true, &spec->nfiles, &rc);
    spec->vars = pairs(r, n, "vars", false, &spec->nvars, &rc);
    return rc;
}

static int read_body(struct reading *r, struct submit_body *b) {
    static const char *const known[] = { "specs", "dry_run" };
    const struct jnode *root = r->doc.root;
    if (root->type != J_OBJ)
        return json_error(r->es, &r->doc, root, false, "the body must be an object, not %s",
                          jtype_names[root->type]);
    int rc = check_keys(r, root, known, 2, "the body");
    const struct jnode *specs = member(r, root, "specs", J_ARR, true, &rc);
    const struct jnode *dry = member(r, root, "dry_run", J_BOOL, false, &rc);
    b->dry = dry && dry->b;
    if (!specs)
        return ERR_INPUT;
    if (specs->n == 0 || specs->n > COORD_SPECS_MAX)
        return json_error(r->es, &r->doc, specs, false, "'specs' must have 1 to %d entries",
                          COORD_SPECS_MAX);
    b->spec = ARENA_ARRAY(r->a, struct coord_spec, specs->n);
    for (const struct jnode *n = specs->child; n; n = n->next)
        if (read_spec(r, n, &b->spec[b->n++]) < 0)
            rc = ERR_INPUT;
    return rc;
}

int http_submit_parse(struct submit_body *b, const char *text, size_t len, struct arena *a,
                      struct errs *es) {
    struct reading r = { .a = a, .es = es };
    *b = (struct submit_body){ 0 };
    int rc = json_parse(&r.doc, "body", text, len, a, es);
    return rc < 0 ? rc : read_body(&r, b) < 0 ? ERR_INPUT : 0;
}

struct replace_body {
    struct coord_spec spec;
    const struct journal_pair *from;
    int nfrom;
    bool dry;
};

static int read_replace(struct reading *r, struct replace_body *b) {
    static const char *const known[] = { "spec", "state_from", "dry_run" };
    const struct jnode *root = r->doc.root;
    if (root->type != J_OBJ)
        return json_error(r->es, &r->doc, root, false, "the body must be an object, not %s",
                          jtype_names[root->type]);
    int rc = check_keys(r, root, known, 3, "the body");
    const struct jnode *spec = member(r, root, "spec", J_OBJ, true, &rc);
    const struct jnode *dry = member(r, root, "dry_run", J_BOOL, false, &rc);
    b->dry = dry && dry->b;
    b->from = pairs(r, root, "state_from", false, &b->nfrom, &rc);
    if (spec && read_spec(r, spec, &b->spec) < 0)
        rc = ERR_INPUT;
    return rc;
}

/* ---- handlers ---- */

int http_submit(struct request *r) {
    struct errs es = { 0 };
    struct submit_body b;
    int rc = http_submit_parse(&b, r->body.p ? r->body.p : "", r->body.len, &r->arena, &es);
    if (rc == 0)
        rc = coord_submit(r->coord, b.spec, b.n, b.dry, &r->out, &es);
    int status = rc < 0 ? http_errors(r, &es) : 200;
    errs_free(&es);
    return status;
}

int http_replace(struct request *r) {
    struct errs es = { 0 };
    struct replace_body b = { 0 };
    struct reading rd = { .a = &r->arena, .es = &es };
    int rc = json_parse(&rd.doc, "body", r->body.p ? r->body.p : "", r->body.len, &r->arena, &es);
    if (rc == 0)
        rc = read_replace(&rd, &b);
    if (rc == 0)
        rc = coord_replace(r->coord, r->param[0], &b.spec, b.from, b.nfrom, b.dry, &r->out, &es);
    int status = rc < 0 ? http_errors(r, &es) : 200;
    errs_free(&es);
    return status;
}

/* {"action":"drop"|"requeue","offsets":[…]}: absent: all. */
static int read_letters(struct reading *r, bool *requeue, int64_t **v, int *n) {
    static const char *const known[] = { "action", "offsets" };
    const struct jnode *root = r->doc.root;
    if (root->type != J_OBJ)
        return json_error(r->es, &r->doc, root, false, "the body must be an object, not %s",
                          jtype_names[root->type]);
    int rc = check_keys(r, root, known, 2, "the body");
    const struct jnode *action = member(r, root, "action", J_STR, true, &rc);
    const struct jnode *list = member(r, root, "offsets", J_ARR, false, &rc);
    *requeue = action && strcmp(action->s, "requeue") == 0;
    if (action && !*requeue && strcmp(action->s, "drop") != 0)
        rc = json_error(r->es, &r->doc, action, false, "must be \"drop\" or \"requeue\"");
    if (list && (list->n == 0 || list->n > COORD_LETTERS_MAX))
        rc =
            json_error(r->es, &r->doc, list, false, "must have 1 to %d entries", COORD_LETTERS_MAX);
    *v = ARENA_ARRAY(r->a, int64_t, (list ? list->n : 0) + 1);
    for (const struct jnode *c = list && list->n ? list->child : NULL; c; c = c->next)
        if (c->type == J_INT)
            (*v)[(*n)++] = c->i;
        else
            rc = json_error(r->es, &r->doc, c, false, "must be the offset of a dead letter");
    return rc;
}

int http_letters(struct request *r) {
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct reading rd = { .a = &r->arena, .es = &es };
    int64_t *v = NULL;
    int n = 0;
    bool requeue = false;
    int rc = json_parse(&rd.doc, "body", r->body.p ? r->body.p : "", r->body.len, &r->arena, &es);
    if (rc == 0)
        rc = read_letters(&rd, &requeue, &v, &n);
    int status = rc < 0 ? http_errors(r, &es) : 200;
    if (rc == 0)
        rc = (requeue ? coord_dlq_requeue : coord_dlq_drop)(r->coord, r->param[0], v, n, &r->out,
                                                            &e);
    if (rc < 0 && status == 200)
        status = http_error(r, &e);
    errs_free(&es);
    return status;
}

int http_list(struct request *r) {
    view_list(r->coord, &r->out);
    return 200;
}

int http_show(struct request *r) {
    struct err e = ERR_INIT;
    return view_show(r->coord, r->param[0], &r->out, &e) < 0 ? http_error(r, &e) : 200;
}

int http_explain(struct request *r) {
    struct err e = ERR_INIT;
    return view_explain(r->coord, r->param[0], &r->out, &e) < 0 ? http_error(r, &e) : 200;
}

int http_remove(struct request *r) {
    struct err e = ERR_INIT;
    bool drain;
    int rc = http_arg_bool(r, "drain", &drain, &e);
    if (rc == 0)
        rc = coord_remove(r->coord, r->param[0], drain, &r->out, &e);
    return rc < 0 ? http_error(r, &e) : 200;
}

int http_graph(struct request *r) {
    static const char *const forms[] = { "json", "dot", "text" };
    const char *s = http_arg(r, "format");
    struct err e = ERR_INIT;
    int64_t width;
    int form = 0, rc = http_arg_int(r, "width", 0, GRAPH_WIDTH_MIN, GRAPH_WIDTH_MAX, &width, &e);
    while (s && form < 3 && strcmp(s, forms[form]) != 0)
        form++;
    if (rc == 0 && form == 3)
        rc = err_set(&e, ERR_INPUT, "'format' must be json, dot or text, not '%.60s'", s);
    if (rc < 0)
        return http_error(r, &e);
    view_graph(r->coord, (enum view_form)form, (int)width, &r->out);
    r->type = form ? "text/plain; charset=utf-8" : NULL;
    return 200;
}
