#include "cluster/flowtest.h"
#include "cluster/cli.h"
#include "engine/batch.h"
#include "engine/num.h"
#include <string.h>

const struct spec_key flowtest_top_keys[] = {
    { .name = "braid_test", .type = J_INT, .required = true, .doc = "Version of the format: 1." },
    { .name = "dataflow",
      .type = J_STR,
      .required = true,
      .doc = "The dataflow file, relative to this one." },
    { .name = "description", .type = J_STR, .doc = "For people." },
    { .name = "now", .type = J_STR, .doc = "Where the clock of each case begins." },
    { .name = "vars", .type = J_OBJ, .doc = "Values of `${NAME}` in the dataflow." },
    { .name = "cases",
      .type = J_ARR,
      .required = true,
      .max = FLOWTEST_CASES_MAX,
      .doc = "The cases; each is a run of its own." },
    { 0 },
};
const struct spec_key flowtest_case_keys[] = {
    { .name = "name", .type = J_STR, .required = true, .doc = "What it shows." },
    { .name = "now", .type = J_STR, .doc = "Where its clock begins." },
    { .name = "vars", .type = J_OBJ, .doc = "Values of `${NAME}`, before those of the file." },
    { .name = "in", .type = J_OBJ, .doc = "What goes in before the first step." },
    { .name = "steps",
      .type = J_ARR,
      .max = FLOWTEST_STEPS_MAX,
      .doc = "What happens, one after the other." },
    { .name = "end", .type = J_BOOL, .doc = "Whether the inputs end after the last step." },
    { .name = "expect", .type = J_OBJ, .doc = "What has come out of the whole case." },
    { 0 },
};
const struct spec_key flowtest_step_keys[] = {
    { .name = "now", .type = J_STR, .doc = "The clock is set." },
    { .name = "advance", .type = J_STR, .doc = "The clock moves on by a duration." },
    { .name = "in", .type = J_OBJ, .doc = "Records by topic." },
    { .name = "end", .type = J_ARR, .doc = "Topics that end." },
    { .name = "expect", .type = J_OBJ, .doc = "What this step has put out." },
    { 0 },
};
const struct spec_key flowtest_expect_keys[] = {
    { .name = "sinks", .type = J_OBJ, .doc = "Rows, or their number, by sink." },
    { .name = "dead", .type = J_OBJ, .doc = "Dead letters." },
    { .name = "tasks", .type = J_OBJ, .doc = "Counters by task." },
    { 0 },
};
const struct spec_key flowtest_rows_keys[] = {
    { .name = "rows", .type = J_ARR, .max = ROWDIFF_ROWS_MAX, .doc = "The rows." },
    { .name = "count", .type = J_INT, .doc = "How many rows." },
    { .name = "order", .type = J_STR, .doc = "`exact` or `any`." },
    { .name = "match", .type = J_STR, .doc = "`exact` or `subset`." },
    { .name = "tolerance", .type = J_REAL, .doc = "By which numbers may differ." },
    { 0 },
};
const struct spec_key flowtest_file_keys[] = {
    { .name = "file", .type = J_STR, .doc = "A file, one record a line." },
    { .name = "limit", .type = J_INT, .doc = "How many records of it." },
    { .name = "records", .type = J_ARR, .doc = "Instead: records with key and time." },
    { 0 },
};
const struct spec_key flowtest_record_keys[] = {
    { .name = "value", .type = J_OBJ, .required = true, .doc = "As in a list of records." },
    { .name = "key", .type = J_STR, .doc = "The record's key." },
    { .name = "time", .type = J_STR, .doc = "The time its writer gave it." },
    { 0 },
};

/* ---- checking ---- */

struct loading {
    struct flowtest *t;
    struct errs *es;
    int rc;
};

static void wrong(struct loading *l, const struct jnode *n, bool at_key, const char *text) {
    l->rc = json_error(l->es, &l->t->doc, n, at_key, "%s", text);
}

static const struct spec_key *known_key(const struct spec_key *keys, const char *name) {
    while (keys->name && strcmp(keys->name, name) != 0)
        keys++;
    return keys->name ? keys : NULL;
}

/* Keys that may be of several types are looked at by who reads them. */
static bool right_type(const struct spec_key *k, const struct jnode *n) {
    if (k->type == J_REAL && n->type == J_INT)
        return true;
    if (strcmp(k->name, "value") == 0)
        return true;
    if (k->type == J_OBJ && strcmp(k->name, "dead") == 0)
        return n->type == J_OBJ || n->type == J_INT || n->type == J_ARR;
    return n->type == k->type;
}

static void check_member(struct loading *l, const struct jnode *c, const struct spec_key *keys) {
    struct arena *a = l->t->arena;
    const struct spec_key *k = known_key(keys, c->key);
    if (!k) {
        const char *names[16];
        int n = 0;
        for (; keys[n].name; n++)
            names[n] = keys[n].name;
        const char *near = c->klen < 60 ? err_nearest(c->key, names, n) : NULL;
        wrong(l, c, true,
              arena_printf(a, "unknown key '%.60s'%s%s%s", c->key, near ? "; did you mean '" : "",
                           near ? near : "", near ? "'?" : ""));
    } else if (!right_type(k, c)) {
        wrong(l, c, false,
              arena_printf(a, "'%s' must be %s, not %s", k->name,
                           strcmp(k->name, "dead") == 0
                               ? "a number, an object of codes or a list of dead letters"
                               : jtype_names[k->type],
                           jtype_names[c->type]));
    } else if (k->max && c->n > (uint32_t)k->max) {
        wrong(l, c, false, arena_printf(a, "'%s' has more than %d entries", k->name, k->max));
    }
}

/* Only known keys, of the right types, and all required ones. */
static bool check_object(struct loading *l, const struct jnode *obj, const struct spec_key *keys) {
    int before = l->es->total;
    if (obj->type != J_OBJ) {
        wrong(l, obj, false,
              arena_printf(l->t->arena, "must be an object, not %s", jtype_names[obj->type]));
        return false;
    }
    for (const struct jnode *c = obj->n ? obj->child : NULL; c; c = c->next)
        check_member(l, c, keys);
    for (const struct spec_key *k = keys; k->name; k++)
        if (k->required && !jnode_get(obj, k->name))
            wrong(l, obj, false, arena_printf(l->t->arena, "'%s' is missing", k->name));
    return l->es->total == before;
}

static const struct jnode *typed(const struct jnode *obj, const char *key, enum jtype type) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == type ? n : NULL;
}

static int64_t read_time(struct loading *l, const struct jnode *obj, int64_t def) {
    const struct jnode *n = typed(obj, "now", J_STR);
    int64_t ms = def;
    if (n && time_parse(n->s, n->s + n->len, &ms) < 0)
        wrong(l, n, false, "must be a time such as \"2026-03-01T08:00:00Z\"");
    return ms;
}

/* Of the case, then of the file: the first of a name counts. */
static void read_vars(struct loading *l, const struct jnode *obj, struct flowtest_case *c) {
    const struct jnode *vars[] = { typed(obj, "vars", J_OBJ),
                                   typed(l->t->doc.root, "vars", J_OBJ) };
    uint32_t n = (vars[0] ? vars[0]->n : 0) + (vars[1] ? vars[1]->n : 0);
    c->vars = ARENA_ARRAY(l->t->arena, struct flowvar, n + 1);
    for (int i = 0; i < 2; i++)
        for (const struct jnode *v = vars[i] && vars[i]->n ? vars[i]->child : NULL; v; v = v->next)
            if (v->type == J_STR)
                c->vars[c->nvars++] = (struct flowvar){ v->key, v->s };
            else
                wrong(l, v, false, "must be a string");
}

/* ---- expectations ---- */

static bool one_of(const struct jnode *n, const char *a, const char *b) {
    return strcmp(n->s, a) == 0 || strcmp(n->s, b) == 0;
}

static void check_rows(struct loading *l, const struct jnode *n) {
    if (n->type == J_INT && n->i >= 0)
        return;
    if (n->type == J_ARR) {
        if (n->n > ROWDIFF_ROWS_MAX)
            wrong(l, n, false, "has too many rows to be compared: expect their number");
        return;
    }
    if (n->type != J_OBJ) {
        wrong(l, n, false, "must be a list of rows, their number, or an object with either");
        return;
    }
    if (!check_object(l, n, flowtest_rows_keys))
        return;
    const struct jnode *order = jnode_get(n, "order"), *match = jnode_get(n, "match");
    const struct jnode *tol = jnode_get(n, "tolerance"), *count = jnode_get(n, "count");
    if (!jnode_get(n, "rows") == !count)
        wrong(l, n, false, "needs either 'rows' or 'count'");
    if (order && !one_of(order, "exact", "any"))
        wrong(l, order, false, "must be \"exact\" or \"any\"");
    if (match && !one_of(match, "exact", "subset"))
        wrong(l, match, false, "must be \"exact\" or \"subset\"");
    if (tol && jnode_f64(tol) < 0)
        wrong(l, tol, false, "must not be negative");
    if (count && count->i < 0)
        wrong(l, count, false, "must not be negative");
}

/* An object of non-negative integers. */
static void check_counts(struct loading *l, const struct jnode *obj) {
    for (const struct jnode *c = obj->n ? obj->child : NULL; c; c = c->next)
        if (c->type != J_INT || c->i < 0)
            wrong(l, c, false, "must be a number of rows");
}

static void check_expect(struct loading *l, const struct jnode *e) {
    if (!e || !check_object(l, e, flowtest_expect_keys))
        return;
    const struct jnode *sinks = jnode_get(e, "sinks"), *dead = jnode_get(e, "dead"),
                       *tasks = jnode_get(e, "tasks");
    for (const struct jnode *c = sinks && sinks->n ? sinks->child : NULL; c; c = c->next)
        check_rows(l, c);
    if (dead && dead->type == J_INT && dead->i < 0)
        wrong(l, dead, false, "must not be negative");
    if (dead && dead->type == J_OBJ)
        check_counts(l, dead);
    for (const struct jnode *c = dead && dead->type == J_ARR && dead->n ? dead->child : NULL; c;
         c = c->next)
        if (c->type != J_OBJ)
            wrong(l, c, false, "must be an object: members of a dead letter");
    for (const struct jnode *c = tasks && tasks->n ? tasks->child : NULL; c; c = c->next)
        if (c->type == J_OBJ)
            check_counts(l, c);
        else
            wrong(l, c, false, "must be an object of counters");
}

static void check_records(struct loading *l, const struct jnode *list) {
    for (const struct jnode *c = list->n ? list->child : NULL; c; c = c->next) {
        int64_t ms;
        if (!check_object(l, c, flowtest_record_keys))
            continue;
        const struct jnode *time = jnode_get(c, "time");
        if (time && time_parse(time->s, time->s + time->len, &ms) < 0)
            wrong(l, time, false, "must be a time such as \"2026-03-01T08:00:00Z\"");
    }
}

static void check_feed(struct loading *l, const struct jnode *n) {
    const struct jnode *file = jnode_get(n, "file"), *records = jnode_get(n, "records"),
                       *limit = jnode_get(n, "limit");
    if (!file == !records)
        wrong(l, n, false, "needs either 'file' or 'records'");
    if (limit && (limit->i < 1 || !file))
        wrong(l, limit, false, "must be 1 or more, and belongs to 'file'");
    if (records)
        check_records(l, records);
}

static void check_in(struct loading *l, const struct jnode *in) {
    for (const struct jnode *c = in && in->n ? in->child : NULL; c; c = c->next) {
        if (c->type == J_ARR || (c->type == J_INT && c->i >= 0))
            continue;
        if (c->type != J_OBJ)
            wrong(l, c, false,
                  "must be a list of records, {\"file\": NAME}, or a number of rows of a source "
                  "that makes its own");
        else if (check_object(l, c, flowtest_file_keys))
            check_feed(l, c);
    }
}

/* ---- cases ---- */

static void read_step(struct loading *l, const struct jnode *n, struct flowtest_step *s) {
    *s = (struct flowtest_step){ .now = TIME_MIN };
    if (!check_object(l, n, flowtest_step_keys))
        return;
    const struct jnode *advance = jnode_get(n, "advance");
    s->now = read_time(l, n, TIME_MIN);
    if (advance &&
        (duration_parse(advance->s, advance->s + advance->len, &s->advance) < 0 || s->advance < 0))
        wrong(l, advance, false, "must be a duration such as \"10s\"");
    s->in = jnode_get(n, "in");
    s->end = jnode_get(n, "end");
    s->expect = jnode_get(n, "expect");
    for (const struct jnode *c = s->end && s->end->n ? s->end->child : NULL; c; c = c->next)
        if (c->type != J_STR)
            wrong(l, c, false, "must be the name of a topic");
    check_in(l, s->in);
    check_expect(l, s->expect);
}

static void read_case(struct loading *l, const struct jnode *n, struct flowtest_case *c) {
    int64_t now = read_time(l, l->t->doc.root, FLOWTEST_NOW);
    *c = (struct flowtest_case){ .at = n, .name = "" };
    if (!check_object(l, n, flowtest_case_keys))
        return;
    const struct jnode *steps = jnode_get(n, "steps"), *end = jnode_get(n, "end");
    c->name = jnode_get(n, "name")->s;
    c->now = read_time(l, n, now);
    read_vars(l, n, c);
    c->steps = arena_zalloc(l->t->arena, sizeof *c->steps * ((steps ? steps->n : 0) + 2));
    if (jnode_get(n, "in"))
        c->steps[c->nsteps++] = (struct flowtest_step){ .now = TIME_MIN, .in = jnode_get(n, "in") };
    check_in(l, jnode_get(n, "in"));
    for (const struct jnode *s = steps && steps->n ? steps->child : NULL; s; s = s->next)
        read_step(l, s, &c->steps[c->nsteps++]);
    if (c->nsteps == 0)
        wrong(l, n, false, "needs 'in' or 'steps': nothing happens in it");
    check_expect(l, jnode_get(n, "expect"));
    c->steps[c->nsteps++] = (struct flowtest_step){
        .now = TIME_MIN, .expect = jnode_get(n, "expect"), .finish = !end || end->b, .whole = true
    };
}

const char *flowtest_path(const struct flowtest *t, const char *name) {
    const char *slash = strrchr(t->file, '/');
    if (name[0] == '/' || !slash)
        return name;
    return arena_printf(t->arena, "%.*s/%s", (int)(slash - t->file), t->file, name);
}

static int read_top(struct loading *l) {
    struct flowtest *t = l->t;
    const struct jnode *root = t->doc.root;
    if (!check_object(l, root, flowtest_top_keys))
        return l->rc;
    const struct jnode *version = jnode_get(root, "braid_test"), *cases = jnode_get(root, "cases");
    if (version->i != FLOWTEST_VERSION)
        wrong(l, version, false, "this version of Braid knows format 1");
    if (cases->n == 0)
        wrong(l, cases, false, "has no case");
    t->dataflow = flowtest_path(t, jnode_get(root, "dataflow")->s);
    t->cases = ARENA_ARRAY(t->arena, struct flowtest_case, cases->n + 1);
    for (const struct jnode *c = cases->n ? cases->child : NULL; c; c = c->next)
        read_case(l, c, &t->cases[t->ncases++]);
    return l->rc;
}

int flowtest_parse(struct flowtest *t, const char *file, const char *text, size_t len,
                   struct arena *a, struct errs *es) {
    struct loading l = { .t = t, .es = es };
    *t = (struct flowtest){ .file = file, .arena = a };
    int rc = json_parse(&t->doc, file, text, len, a, es);
    return rc < 0 ? rc : read_top(&l);
}

int flowtest_load(struct flowtest *t, const char *file, struct arena *a, struct errs *es) {
    struct err e = ERR_INIT;
    char *text;
    size_t len;
    *t = (struct flowtest){ .file = file, .arena = a };
    int rc = cli_read_file(file, SPEC_TEXT_MAX, a, &text, &len, &e);
    return rc < 0 ? errs_add(es, &e) : flowtest_parse(t, file, text, len, a, es);
}
