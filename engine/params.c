/* Configs of operators: from JSON by the descriptor's table, and copied; written back in
 * params_canon.c. A config owns everything it points to (its arena), except the bytes of files. */
#include "engine/expr.h"
#include "engine/num.h"
#include "engine/op.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX_BYTES = 64 << 10, /* one string of a config */
    LIST_MAX = 4096,           /* entries of one list or map: fields, compared pair by pair */
    PARAMS_MAX = 64,
    JSON_NODES_MAX = 1 << 20
};

const char *const time_unit_words[] = { "s", "ms", "us", "rfc3339", NULL };

struct reader {
    const struct op_desc *d;
    const struct json_doc *doc;
    struct arena *a;
    file_resolver *resolve;
    void *user;
    struct errs *es;
};

static void *slot(const struct param *p, void *config) {
    return (char *)config + p->offset;
}

static const void *cslot(const struct param *p, const void *config) {
    return (const char *)config + p->offset;
}

/* ---- messages ---- */

const struct param_type_text param_type_texts[PARAM_TYPES] = {
    [PT_BOOL] = { "boolean", "true or false", NULL, NULL },
    [PT_I64] = { "integer", "an integer", NULL, NULL },
    [PT_F64] = { "number", "a number", NULL, NULL },
    [PT_STR] = { "string", "a string", NULL, NULL },
    [PT_ENUM] = { "word", "one of a few words", NULL, NULL },
    [PT_DURATION] = { "duration", "a duration", "\"250ms\", \"10s\" or \"5m\"", NULL },
    [PT_SIZE] = { "size", "a size", "\"64KiB\"", "a number of bytes" },
    [PT_FIELD] = { "field", "the name of a field", NULL, NULL },
    [PT_STRS] = { "list of strings", "a list of strings", NULL, NULL },
    [PT_STRMAP] = { "object of strings", "an object of strings", NULL, NULL },
    [PT_RANGES] = { "object of [low, high]", "an object", "{\"temperature\":[-12.5,43.1]}", NULL },
    [PT_SCHEMA] = { "schema", "an object", "{\"temperature\":\"f64\"}",
                    "the name of a schema file" },
    [PT_FILE] = { "file", "the name of a file", NULL, NULL },
    [PT_JSON] = { "JSON", "a JSON value", NULL, NULL },
    [PT_EXPR] = { "expression", "an expression", "\"temperature > 20\"", NULL },
    [PT_EXPRMAP] = { "object of expressions", "an object of expressions",
                     "{\"fahrenheit\":\"temperature * 1.8 + 32\"}", NULL },
    [PT_AGGMAP] = { "object of aggregates", "an object of aggregates",
                    "{\"avg\":\"mean(temperature)\"}", NULL },
    [PT_START] = { "start", "\"latest\", \"earliest\"", NULL,
                   "an object such as {\"time\":\"2026-01-31T08:00:00Z\"} or {\"offset\":17}" },
    [PT_TIME] = { "time field", "an object", "{\"field\":\"pickup\",\"unit\":\"ms\"}", NULL },
};

/* What a value must be, in the arena: only for errors. */
static const char *hint(struct reader *r, const struct param *p) {
    const struct param_type_text *t = &param_type_texts[p->type];
    if (p->type != PT_ENUM)
        return arena_printf(r->a, "%s%s%s%s%s", t->is, t->example ? " such as " : "",
                            t->example ? t->example : "", t->also ? " or " : "",
                            t->also ? t->also : "");
    const char *text = "";
    for (int i = 0; p->words[i]; i++)
        text = arena_printf(r->a, "%s%s\"%s\"", text,
                            i == 0            ? ""
                            : p->words[i + 1] ? ", "
                                              : " or ",
                            p->words[i]);
    return text;
}

/* A user's word shortened for a message. */
static int clip(uint32_t len) {
    return len > 60 ? 60 : (int)len;
}

static int wrong_type(struct reader *r, const struct param *p, const struct jnode *n) {
    if (n->type == J_STR && !(p->flags & PARAM_SECRET))
        return json_error(r->es, r->doc, n, false, "'%s' must be %s, not the string \"%.*s\"",
                          p->name, hint(r, p), clip(n->len), n->s);
    return json_error(r->es, r->doc, n, false, "'%s' must be %s, not %s", p->name, hint(r, p),
                      jtype_names[n->type]);
}

static const char *number_text(double v, char *buf) {
    if (v >= -9e15 && v <= 9e15 && v == (double)(int64_t)v)
        buf[num_write_i64(buf, (int64_t)v)] = 0;
    else
        buf[num_write_f64(buf, v)] = 0;
    return buf;
}

static const char *bound_text(const struct param *p, double v, char *buf) {
    if (p->type != PT_DURATION)
        return number_text(v, buf);
    buf[duration_write(buf, (int64_t)v)] = 0;
    return buf;
}

static int check_bounds(struct reader *r, const struct param *p, const struct jnode *n, double v) {
    char lo[40], hi[40], is[40];
    if (!(p->min < p->max) || (v >= p->min && v <= p->max))
        return 0;
    bound_text(p, v, is);
    if (isinf(p->max) || p->max >= 9e15)
        return json_error(r->es, r->doc, n, false, "'%s' must be at least %s, not %s", p->name,
                          bound_text(p, p->min, lo), is);
    return json_error(r->es, r->doc, n, false, "'%s' must be between %s and %s, not %s", p->name,
                      bound_text(p, p->min, lo), bound_text(p, p->max, hi), is);
}

/* ---- values ---- */

/* A string of the document as a C string in the arena, or NULL after reporting. */
static const char *text(struct reader *r, const char *what, const struct jnode *n, const char *s,
                        uint32_t len, bool at_key) {
    if (len > TEXT_MAX_BYTES) {
        json_error(r->es, r->doc, n, at_key,
                   "'%s' has a string of %u bytes; at most %d are allowed", what, len,
                   TEXT_MAX_BYTES);
        return NULL;
    }
    if (memchr(s, 0, len)) {
        json_error(r->es, r->doc, n, at_key, "'%s' contains a NUL character", what);
        return NULL;
    }
    return arena_strndup(r->a, s, len);
}

static int read_i64(struct reader *r, const struct param *p, const struct jnode *n, int64_t *out) {
    char num[40];
    if (n->type == J_REAL && n->d >= -9007199254740992.0 && n->d <= 9007199254740992.0 &&
        n->d == (double)(int64_t)n->d)
        *out = (int64_t)n->d;
    else if (n->type == J_INT)
        *out = n->i;
    else if (n->type == J_REAL)
        return json_error(r->es, r->doc, n, false, "'%s' must be an integer%s, not %s", p->name,
                          n->d == trunc(n->d) ? " of 64 bits" : "", number_text(n->d, num));
    else
        return wrong_type(r, p, n);
    if (*out == PARAM_UNSET) /* stands for "absent" */
        return json_error(r->es, r->doc, n, false, "'%s' is out of range", p->name);
    return check_bounds(r, p, n, (double)*out);
}

static int read_enum(struct reader *r, const struct param *p, const struct jnode *n, int *out) {
    if (n->type != J_STR)
        return wrong_type(r, p, n);
    int count = 0;
    for (; p->words[count]; count++) {
        if (strlen(p->words[count]) == n->len && memcmp(p->words[count], n->s, n->len) == 0) {
            *out = count;
            return 0;
        }
    }
    const char *near = n->len < 64 ? err_nearest(n->s, p->words, count) : NULL;
    if (near)
        return json_error(r->es, r->doc, n, false,
                          "'%s' must be %s, not \"%.*s\"; did you mean \"%s\"?", p->name,
                          hint(r, p), clip(n->len), n->s, near);
    return json_error(r->es, r->doc, n, false, "'%s' must be %s, not \"%.*s\"", p->name, hint(r, p),
                      clip(n->len), n->s);
}

static int read_duration(struct reader *r, const struct param *p, const struct jnode *n,
                         int64_t *out) {
    if (n->type == J_INT || n->type == J_REAL)
        return json_error(r->es, r->doc, n, false, "'%s' needs a unit: write %s", p->name,
                          hint(r, p));
    if (n->type != J_STR)
        return wrong_type(r, p, n);
    bool minus = p->min < 0 && n->len > 0 && n->s[0] == '-';
    int rc = duration_parse(n->s + minus, n->s + n->len, out);
    if (minus && rc == 0)
        *out = -*out;
    if (rc < 0)
        return json_error(r->es, r->doc, n, false,
                          "'%s' must be %s, not \"%.*s\"; units are ms, s, m, h, d", p->name,
                          hint(r, p), clip(n->len), n->s);
    return check_bounds(r, p, n, (double)*out);
}

static int read_size(struct reader *r, const struct param *p, const struct jnode *n, int64_t *out) {
    if (n->type == J_INT && n->i >= 0)
        *out = n->i;
    else if (n->type == J_INT)
        return json_error(r->es, r->doc, n, false, "'%s' must not be negative", p->name);
    else if (n->type != J_STR)
        return wrong_type(r, p, n);
    else if (size_parse(n->s, n->s + n->len, out) < 0)
        return json_error(r->es, r->doc, n, false,
                          "'%s' must be %s, not \"%.*s\"; units are KiB, MiB, GiB, kB, MB, GB",
                          p->name, hint(r, p), clip(n->len), n->s);
    return check_bounds(r, p, n, (double)*out);
}

static int read_str(struct reader *r, const struct param *p, const struct jnode *n,
                    const char **out) {
    if (n->type != J_STR)
        return wrong_type(r, p, n);
    if (p->type != PT_STR && n->len == 0)
        return json_error(r->es, r->doc, n, false, "'%s' must be %s, not empty", p->name,
                          hint(r, p));
    const char *s = text(r, p->name, n, n->s, n->len, false);
    if (!s)
        return ERR_INPUT;
    *out = s;
    return 0;
}

static int read_strs(struct reader *r, const struct param *p, const struct jnode *n,
                     struct strs *out) {
    if (n->type != J_STR && n->type != J_ARR)
        return wrong_type(r, p, n);
    uint32_t count = n->type == J_STR ? 1 : n->n;
    if (count > LIST_MAX)
        return json_error(r->es, r->doc, n, false, "'%s' has %u entries; at most %d are allowed",
                          p->name, count, LIST_MAX);
    const char **v = ARENA_ARRAY(r->a, const char *, count ? count : 1);
    int rc = 0;
    uint32_t i = 0;
    for (const struct jnode *c = n->type == J_STR ? n : n->child; i < count; c = c->next, i++) {
        if (c->type != J_STR)
            rc = json_error(r->es, r->doc, c, false, "'%s' must be a list of strings, not %s",
                            p->name, jtype_names[c->type]);
        else if (!(v[i] = text(r, p->name, c, c->s, c->len, false)))
            rc = ERR_INPUT;
    }
    if (rc == 0)
        *out = (struct strs){ (int)count, v };
    return rc;
}

/* Common checks of an object-valued parameter. */
static int read_object(struct reader *r, const struct param *p, const struct jnode *n) {
    if (n->type != J_OBJ)
        return wrong_type(r, p, n);
    if (n->n > LIST_MAX)
        return json_error(r->es, r->doc, n, false, "'%s' has %u entries; at most %d are allowed",
                          p->name, n->n, LIST_MAX);
    return 0;
}

static const char *member_name(struct reader *r, const struct param *p, const struct jnode *c) {
    if (c->klen == 0) {
        json_error(r->es, r->doc, c, true, "'%s' has an empty name", p->name);
        return NULL;
    }
    return text(r, p->name, c, c->key, c->klen, true);
}

static int read_strmap(struct reader *r, const struct param *p, const struct jnode *n,
                       struct strmap *out) {
    int rc = read_object(r, p, n), i = 0;
    if (rc < 0)
        return rc;
    struct strpair *v = ARENA_ARRAY(r->a, struct strpair, n->n ? n->n : 1);
    for (const struct jnode *c = n->child; c; c = c->next, i++) {
        v[i].at = c;
        if (!(v[i].name = member_name(r, p, c)))
            rc = ERR_INPUT;
        else if (c->type != J_STR)
            rc = json_error(r->es, r->doc, c, false, "'%s' of '%s' must be a string, not %s",
                            v[i].name, p->name, jtype_names[c->type]);
        else if (!(v[i].text = text(r, v[i].name, c, c->s, c->len, false)))
            rc = ERR_INPUT;
    }
    if (rc == 0)
        *out = (struct strmap){ i, v };
    return rc;
}

/* Syntax only: names and types are the operator's plan's. The place of the error is exact unless
 * the JSON string has escapes before it. */
static int check_expr(struct reader *r, enum param_type type, const struct jnode *n) {
    struct err e = ERR_INIT;
    struct arena tmp = { 0 };
    const char *canon = type == PT_AGGMAP ? agg_canonical(&tmp, n->s, n->len, &e)
                                          : expr_canonical(&tmp, n->s, n->len, &e);
    arena_free(&tmp);
    if (canon)
        return 0;
    struct jnode at = *n;
    if (e.offset > 0 && n->off + 1 + (size_t)e.offset < r->doc->len &&
        !memcmp(r->doc->text + n->off + 1, n->s, (size_t)e.offset))
        at.off += 1 + (uint32_t)e.offset;
    return json_error(r->es, r->doc, &at, false, "%s", e.text);
}

static int read_exprmap(struct reader *r, const struct param *p, const struct jnode *n,
                        struct strmap *out) {
    int rc = read_strmap(r, p, n, out);
    for (const struct jnode *c = rc < 0 ? NULL : n->child; c; c = c->next)
        if (check_expr(r, p->type, c) < 0)
            rc = ERR_INPUT;
    return rc;
}

static int read_range(struct reader *r, const struct jnode *c, struct range *g) {
    double lim[2] = { -INFINITY, INFINITY };
    int i = 0;
    bool ok = c->type == J_ARR && c->n == 2;
    for (const struct jnode *x = ok ? c->child : NULL; x; x = x->next, i++) {
        if (x->type == J_INT || x->type == J_REAL)
            lim[i] = jnode_f64(x);
        else if (x->type != J_NULL)
            ok = false;
    }
    if (!ok)
        return json_error(r->es, r->doc, c, false,
                          "the range of '%s' must be [low, high], two numbers (null: no limit)",
                          g->name);
    if (lim[0] > lim[1]) {
        char lo[40], hi[40];
        return json_error(r->es, r->doc, c, false, "the range of '%s' is empty: %s is above %s",
                          g->name, number_text(lim[0], lo), number_text(lim[1], hi));
    }
    g->lo = lim[0];
    g->hi = lim[1];
    return 0;
}

static int read_ranges(struct reader *r, const struct param *p, const struct jnode *n,
                       struct ranges *out) {
    int rc = read_object(r, p, n), i = 0;
    if (rc < 0)
        return rc;
    struct range *v = ARENA_ARRAY(r->a, struct range, n->n ? n->n : 1);
    for (const struct jnode *c = n->child; c; c = c->next, i++) {
        struct range g = { 0 };
        if (!(g.name = member_name(r, p, c)) || read_range(r, c, &g) < 0)
            rc = ERR_INPUT;
        if (rc < 0)
            continue;
        int at = i;
        for (; at > 0 && strcmp(v[at - 1].name, g.name) > 0; at--)
            v[at] = v[at - 1];
        v[at] = g;
    }
    if (rc == 0)
        *out = (struct ranges){ i, v };
    return rc;
}

/* ---- schemas ---- */

/* Next comma-separated cell of [*p,end), trimmed. False at the end of the line. */
static bool cell(const char **p, const char *end, const char **s, size_t *len) {
    if (*p > end)
        return false;
    const char *comma = memchr(*p, ',', (size_t)(end - *p)), *stop = comma ? comma : end;
    const char *from = *p;
    *p = comma ? comma + 1 : end + 1;
    while (from < stop && (*from == ' ' || *from == '\t'))
        from++;
    while (stop > from && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
        stop--;
    *s = from;
    *len = (size_t)(stop - from);
    return true;
}

static int count_cells(const char *p, const char *end) {
    int n = 1;
    for (; p < end; p++)
        n += *p == ',';
    return n;
}

/* RIoTBench's form: a line of names, a line of units, a line of `v` (number) and `sv` (string). */
static int schema_from_file(const struct file *f, struct arena *a, const struct schema **out,
                            struct err *e) {
    const char *line[3], *stop[3], *p = f->data, *end = f->data + f->len;
    for (int i = 0; i < 3; i++) {
        if (p >= end)
            return err_set(e, ERR_INPUT,
                           "schema file '%s' has %d line%s; it needs three: names, units, and v "
                           "or sv for each",
                           f->name, i, i == 1 ? "" : "s");
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        line[i] = p;
        stop[i] = nl ? nl : end;
        p = nl ? nl + 1 : end;
    }
    int n = count_cells(line[0], stop[0]), kinds = count_cells(line[2], stop[2]);
    if (n != kinds)
        return err_set(e, ERR_INPUT,
                       "schema file '%s' has %d name%s in line 1 but %d kind%s in line 3", f->name,
                       n, n == 1 ? "" : "s", kinds, kinds == 1 ? "" : "s");
    if (n > SCHEMA_FIELDS_MAX)
        return err_set(e, ERR_INPUT, "schema file '%s' has %d fields; at most %d are allowed",
                       f->name, n, SCHEMA_FIELDS_MAX);
    struct field *fields;
    struct schema *s = schema_new(a, n, &fields);
    const char *word;
    size_t len;
    for (int i = 0; cell(&line[0], stop[0], &word, &len); i++) {
        if (len == 0 || memchr(word, 0, len) || !utf8_valid(word, word + len))
            return err_set(e, ERR_INPUT, "schema file '%s': name %d of line 1 is %s", f->name,
                           i + 1, len ? "not UTF-8 text" : "empty");
        fields[i].name = arena_strndup(a, word, len);
        for (int j = 0; j < i; j++)
            if (strcmp(fields[j].name, fields[i].name) == 0)
                return err_set(e, ERR_INPUT, "schema file '%s' has two fields '%.60s'", f->name,
                               fields[i].name);
    }
    for (int i = 0; cell(&line[2], stop[2], &word, &len); i++) {
        if (len == 1 && *word == 'v')
            fields[i].type = TYPE_F64;
        else if (len == 2 && memcmp(word, "sv", 2) == 0)
            fields[i].type = TYPE_STR;
        else
            return err_set(e, ERR_INPUT,
                           "schema file '%s': the kind of '%.60s' in line 3 is '%.*s'; it must be "
                           "v or sv",
                           f->name, fields[i].name, clip((uint32_t)len), word);
    }
    *out = s;
    return 0;
}

/* Error of a file at the place where its name stands. */
static int file_error(struct reader *r, const struct jnode *n, const struct err *e) {
    return json_error(r->es, r->doc, n, false, "%s", e->text);
}

static int read_file(struct reader *r, const struct param *p, const struct jnode *n,
                     struct file *f) {
    struct err e = ERR_INIT;
    memset(f, 0, sizeof *f);
    int rc = read_str(r, p, n, &f->name);
    if (rc < 0)
        return rc;
    if (!r->resolve)
        return json_error(r->es, r->doc, n, false, "files cannot be named here ('%.60s')", f->name);
    if (r->resolve(r->user, f->name, f, &e) < 0)
        return file_error(r, n, &e);
    return 0;
}

static int read_schema(struct reader *r, const struct param *p, const struct jnode *n,
                       const struct schema **out) {
    struct err e = ERR_INIT;
    struct file f;
    if (n->type == J_STR) {
        if (read_file(r, p, n, &f) < 0)
            return ERR_INPUT;
        if (!f.data)
            return json_error(r->es, r->doc, n, false, "schema file '%.60s' is not at hand",
                              f.name);
        return schema_from_file(&f, r->a, out, &e) < 0 ? file_error(r, n, &e) : 0;
    }
    int rc = read_object(r, p, n), i = 0;
    if (rc < 0)
        return rc;
    if (n->n == 0 || n->n > SCHEMA_FIELDS_MAX)
        return json_error(r->es, r->doc, n, false, "'%s' has %u fields; 1 to %d are allowed",
                          p->name, n->n, SCHEMA_FIELDS_MAX);
    struct field *fields;
    struct schema *s = schema_new(r->a, (int)n->n, &fields);
    for (const struct jnode *c = n->child; c; c = c->next, i++) {
        fields[i].name = member_name(r, p, c);
        fields[i].type = c->type == J_STR ? type_parse(c->s, &fields[i].dim) : TYPE_COUNT;
        if (!fields[i].name) {
            rc = ERR_INPUT;
        } else if (fields[i].type == TYPE_COUNT) {
            const char *near =
                c->type == J_STR && c->len < 64 ? err_nearest(c->s, type_names, TYPE_COUNT) : NULL;
            rc = json_error(r->es, r->doc, c, false,
                            "the type of field '%.60s' must be bool, i64, f64, string, bytes or "
                            "vec<N>%s%s%s",
                            fields[i].name, near ? "; did you mean " : "", near ? near : "",
                            near ? "?" : "");
        }
    }
    if (rc == 0)
        *out = s;
    return rc;
}

static int read_time(struct reader *r, const struct param *p, const struct jnode *n,
                     struct time_field *out) {
    static const char *const keys[] = { "field", "unit" };
    int rc = read_object(r, p, n);
    if (rc < 0)
        return rc;
    struct time_field t = { NULL, TIME_MS };
    struct param unit = { .name = "unit", .type = PT_ENUM, .words = time_unit_words };
    struct param field = { .name = "field", .type = PT_FIELD };
    for (const struct jnode *c = n->child; c; c = c->next) {
        if (strcmp(c->key, "field") == 0) {
            rc |= read_str(r, &field, c, &t.field);
        } else if (strcmp(c->key, "unit") == 0) {
            rc |= read_enum(r, &unit, c, &t.unit);
        } else {
            const char *near = c->klen < 64 ? err_nearest(c->key, keys, 2) : NULL;
            rc |= json_error(r->es, r->doc, c, true, "'%s' has only the keys field and unit%s%s%s",
                             p->name, near ? "; did you mean '" : "", near ? near : "",
                             near ? "'?" : "");
        }
    }
    if (rc)
        return ERR_INPUT;
    if (!t.field)
        return json_error(r->es, r->doc, n, false, "'%s' needs the name of its field: %s", p->name,
                          hint(r, p));
    *out = t;
    return 0;
}

/* ---- one parameter ---- */

static int read_param(struct reader *r, const struct param *p, const struct jnode *n,
                      void *config) {
    void *at = slot(p, config);
    switch (p->type) {
    case PT_BOOL:
        if (n->type != J_BOOL)
            return wrong_type(r, p, n);
        *(bool *)at = n->b;
        return 0;
    case PT_I64:
        return read_i64(r, p, n, at);
    case PT_F64:
        if (n->type != J_INT && n->type != J_REAL)
            return wrong_type(r, p, n);
        *(double *)at = jnode_f64(n);
        return check_bounds(r, p, n, *(double *)at);
    case PT_STR:
    case PT_FIELD:
        return read_str(r, p, n, at);
    case PT_ENUM:
        return read_enum(r, p, n, at);
    case PT_DURATION:
        return read_duration(r, p, n, at);
    case PT_SIZE:
        return read_size(r, p, n, at);
    case PT_STRS:
        return read_strs(r, p, n, at);
    case PT_STRMAP:
        return read_strmap(r, p, n, at);
    case PT_EXPR: {
        int rc = read_str(r, p, n, at);
        return rc < 0 ? rc : check_expr(r, p->type, n);
    }
    case PT_EXPRMAP:
    case PT_AGGMAP:
        return read_exprmap(r, p, n, at);
    case PT_RANGES:
        return read_ranges(r, p, n, at);
    case PT_SCHEMA:
        return read_schema(r, p, n, at);
    case PT_FILE: {
        struct file *f = ARENA_NEW(r->a, struct file);
        int rc = read_file(r, p, n, f);
        if (rc == 0)
            *(struct file **)at = f;
        return rc;
    }
    case PT_JSON:
        *(const struct jnode **)at = jnode_copy(r->a, n);
        return 0;
    case PT_START:
        return start_read(n, at) < 0 ? wrong_type(r, p, n) : 0;
    case PT_TIME:
        return read_time(r, p, n, at);
    }
    return ERR_INPUT;
}

/* Defaults are ours: a bad one is a bug, found by the test that parses every descriptor. */
static void set_default(struct reader *r, const struct param *p, void *config) {
    void *at = slot(p, config);
    if (!p->def) {
        if (!(p->flags & PARAM_OPTIONAL))
            return;
        if (p->type == PT_I64 || p->type == PT_DURATION || p->type == PT_SIZE)
            *(int64_t *)at = PARAM_UNSET;
        else if (p->type == PT_F64)
            *(double *)at = (double)NAN;
        else if (p->type == PT_ENUM)
            *(int *)at = -1;
        return;
    }
    /* The common scalars without a parse: submits are many and tables are long. */
    const char *def = p->def;
    size_t len = strlen(def);
    struct jnode n = { 0 }, *root = &n;
    bool is_int;
    int64_t i;
    double d;
    if (def[0] == '"' && !memchr(def, '\\', len)) {
        n.type = J_STR;
        n.len = (uint32_t)len - 2;
        n.s = arena_strndup(r->a, def + 1, n.len);
    } else if (strcmp(def, "true") == 0 || strcmp(def, "false") == 0) {
        n.type = J_BOOL;
        n.b = def[0] == 't';
    } else if (num_parse(def, def + len, &is_int, &i, &d) == def + len) {
        n.type = is_int ? J_INT : J_REAL;
        if (is_int)
            n.i = i;
        else
            n.d = d;
    } else {
        struct json_doc doc = { 0 };
        struct errs es = { 0 };
        int rc = json_parse(&doc, p->name, def, len, r->a, &es);
        assert(rc == 0);
        (void)rc;
        root = doc.root; /* itself: its members know it as their parent */
    }
    struct errs es = { 0 };
    struct json_doc doc = { .file = p->name, .text = def, .len = len, .root = root };
    struct reader own = { r->d, &doc, r->a, NULL, NULL, &es };
    int rc = read_param(&own, p, root, config);
    assert(rc == 0);
    (void)rc;
}

static const struct param *find_param(const struct op_desc *d, const struct jnode *c) {
    for (const struct param *p = d->params; p && p->name; p++)
        if (p->name[0] == c->key[0] && strcmp(p->name, c->key) == 0)
            return p;
    return NULL;
}

/* What was most likely meant counts as wrong. */
static int unknown_key(struct reader *r, const struct jnode *c, uint64_t *wrong) {
    const char *names[PARAMS_MAX] = { NULL }, *near;
    char list[512] = "";
    int n = 0;
    size_t len = 0;
    if (r->es->n == ERRS_MAX) /* only counted */
        return json_error(r->es, r->doc, c, true, "unknown");
    for (const struct param *p = r->d->params; p && p->name && n < PARAMS_MAX; p++) {
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", n ? ", " : "", p->name);
        names[n++] = p->name;
    }
    near = c->klen < 64 ? err_nearest(c->key, names, n) : NULL;
    for (const struct param *p = r->d->params; near && p->name; p++)
        if (strcmp(p->name, near) == 0)
            *wrong |= (uint64_t)1 << (p - r->d->params);
    if (near)
        return json_error(r->es, r->doc, c, true, "%s has no parameter '%.*s'; did you mean '%s'?",
                          r->d->name, clip(c->klen), c->key, near);
    return json_error(r->es, r->doc, c, true, "%s has no parameter '%.*s'; it has %s", r->d->name,
                      clip(c->klen), c->key, n ? list : "none");
}

/* A required parameter that is not there; no news when an unknown key was most likely meant. */
static int missing(struct reader *r, const struct param *p, const struct jnode *obj) {
    for (const struct jnode *c = obj ? obj->child : NULL; c; c = c->next)
        if (!find_param(r->d, c) && c->klen < 64 && err_nearest(c->key, &p->name, 1))
            return ERR_INPUT;
    const char *what = hint(r, p);
    if (obj)
        return json_error(r->es, r->doc, obj, false, "%s needs '%s': %s", r->d->name, p->name,
                          what);
    struct err e = ERR_INIT;
    if (r->doc && r->doc->file)
        snprintf(e.file, sizeof e.file, "%s", r->doc->file);
    err_set(&e, ERR_INPUT, "%s needs '%s': %s", r->d->name, p->name, what);
    return errs_add(r->es, &e);
}

static const uint8_t param_sizes[PARAM_TYPES] = {
    [PT_BOOL] = sizeof(bool),
    [PT_ENUM] = sizeof(int),
    [PT_I64] = sizeof(int64_t),
    [PT_F64] = sizeof(double),
    [PT_DURATION] = sizeof(int64_t),
    [PT_SIZE] = sizeof(int64_t),
    [PT_STRS] = sizeof(struct strs),
    [PT_STRMAP] = sizeof(struct strmap),
    [PT_EXPRMAP] = sizeof(struct strmap),
    [PT_AGGMAP] = sizeof(struct strmap),
    [PT_RANGES] = sizeof(struct ranges),
    [PT_START] = sizeof(struct start),
    [PT_TIME] = sizeof(struct time_field),
    [PT_STR] = sizeof(void *),
    [PT_FIELD] = sizeof(void *),
    [PT_SCHEMA] = sizeof(void *),
    [PT_FILE] = sizeof(void *),
    [PT_JSON] = sizeof(void *),
    [PT_EXPR] = sizeof(void *),
};

bool param_stands_in(const struct param *p) {
    return p->def || (p->flags & PARAM_OPTIONAL) || p->type == PT_BOOL || p->type == PT_ENUM ||
           p->type == PT_I64 || p->type == PT_F64 || p->type == PT_DURATION || p->type == PT_SIZE;
}

/* A valid value for a parameter in error. */
static void stand_in(struct reader *r, const struct param *p, void *config) {
    double least = p->min < p->max ? p->min : 1;
    memset(slot(p, config), 0, param_sizes[p->type]);
    if (p->def || (p->flags & PARAM_OPTIONAL))
        set_default(r, p, config);
    else if (p->type == PT_F64)
        *(double *)slot(p, config) = least;
    else if (p->type == PT_I64 || p->type == PT_DURATION || p->type == PT_SIZE)
        *(int64_t *)slot(p, config) = (int64_t)least;
}

int params_parse(const struct op_desc *d, const struct json_doc *doc, const struct jnode *obj,
                 void *config, struct arena *a, file_resolver *resolve, void *user,
                 struct errs *es) {
    uint64_t wrong;
    return params_parse_on(d, doc, obj, config, a, resolve, user, es, &wrong);
}

int params_parse_on(const struct op_desc *d, const struct json_doc *doc, const struct jnode *obj,
                    void *config, struct arena *a, file_resolver *resolve, void *user,
                    struct errs *es, uint64_t *wrong) {
    struct reader r = { d, doc, a, resolve, user, es };
    uint64_t seen = 0;
    int rc = 0;
    memset(config, 0, d->config_size);
    *wrong = 0;
    if (obj && obj->type != J_OBJ) {
        *wrong = UINT64_MAX;
        for (const struct param *p = d->params; p && p->name; p++)
            stand_in(&r, p, config);
        return json_error(es, doc, obj, false, "the config of %s must be an object, not %s",
                          d->name, jtype_names[obj->type]);
    }
    for (const struct jnode *c = obj ? obj->child : NULL; c; c = c->next) {
        const struct param *p = find_param(d, c);
        if (!p) {
            rc |= unknown_key(&r, c, wrong);
            continue;
        }
        uint64_t bit = (uint64_t)1 << (p - d->params);
        if (seen & bit) /* a duplicate key: json_parse has reported it */
            continue;
        if (c->type == J_NULL && (p->flags & PARAM_OPTIONAL) && p->type != PT_JSON)
            continue;
        seen |= bit;
        bool known = c->b && c->type != J_BOOL; /* in error already */
        if (!known && read_param(&r, p, c, config) == 0)
            continue;
        rc |= known ? 0 : ERR_INPUT;
        *wrong |= bit;
    }
    for (const struct param *p = d->params; p && p->name; p++) {
        assert(p - d->params < PARAMS_MAX);
        if (seen >> (p - d->params) & 1)
            continue;
        if (p->def || (p->flags & PARAM_OPTIONAL))
            set_default(&r, p, config);
        else {
            rc |= missing(&r, p, obj);
            *wrong |= (uint64_t)1 << (p - d->params);
        }
    }
    for (const struct param *p = d->params; *wrong && p && p->name; p++)
        if (*wrong >> (p - d->params) & 1)
            stand_in(&r, p, config);
    return rc ? ERR_INPUT : 0;
}

void params_defaults(const struct op_desc *d, void *config, struct arena *a) {
    struct reader r = { .d = d, .a = a };
    memset(config, 0, d->config_size);
    for (const struct param *p = d->params; p && p->name; p++)
        set_default(&r, p, config);
}

/* ---- copies ---- */

static const char *copy_text(struct arena *a, const char *s) {
    return s ? arena_strdup(a, s) : NULL;
}

static void copy_param(const struct param *p, void *to, const void *from, struct arena *a) {
    switch (p->type) {
    case PT_BOOL:
    case PT_I64:
    case PT_F64:
    case PT_ENUM:
    case PT_DURATION:
    case PT_SIZE:
    case PT_START:
        break; /* copied with the struct */
    case PT_STR:
    case PT_FIELD:
    case PT_EXPR:
        *(const char **)to = copy_text(a, *(const char *const *)from);
        break;
    case PT_STRS: {
        const struct strs *s = from;
        const char **v = ARENA_ARRAY(a, const char *, s->n ? s->n : 1);
        for (int i = 0; i < s->n; i++)
            v[i] = arena_strdup(a, s->v[i]);
        *(struct strs *)to = (struct strs){ s->n, s->n ? v : NULL };
        break;
    }
    case PT_STRMAP:
    case PT_EXPRMAP:
    case PT_AGGMAP: {
        const struct strmap *m = from;
        struct strpair *v = ARENA_ARRAY(a, struct strpair, m->n ? m->n : 1);
        for (int i = 0; i < m->n; i++)
            v[i] = (struct strpair){ arena_strdup(a, m->v[i].name), arena_strdup(a, m->v[i].text),
                                     NULL };
        *(struct strmap *)to = (struct strmap){ m->n, m->n ? v : NULL };
        break;
    }
    case PT_RANGES: {
        const struct ranges *g = from;
        struct range *v = ARENA_ARRAY(a, struct range, g->n ? g->n : 1);
        for (int i = 0; i < g->n; i++)
            v[i] = (struct range){ arena_strdup(a, g->v[i].name), g->v[i].lo, g->v[i].hi };
        *(struct ranges *)to = (struct ranges){ g->n, g->n ? v : NULL };
        break;
    }
    case PT_SCHEMA: {
        const struct schema *s = *(const struct schema *const *)from;
        *(const struct schema **)to = s ? schema_copy(a, s) : NULL;
        break;
    }
    case PT_FILE: {
        const struct file *f = *(struct file *const *)from;
        struct file *c = f ? ARENA_NEW(a, struct file) : NULL;
        if (f) {
            *c = *f;
            c->name = copy_text(a, f->name);
        }
        *(struct file **)to = c;
        break;
    }
    case PT_JSON: {
        const struct jnode *n = *(const struct jnode *const *)from;
        *(const struct jnode **)to = n ? jnode_copy(a, n) : NULL;
        break;
    }
    case PT_TIME: {
        const struct time_field *t = from;
        *(struct time_field *)to = (struct time_field){ copy_text(a, t->field), t->unit };
        break;
    }
    }
}

void params_copy(const struct op_desc *d, void *to, const void *from, struct arena *a) {
    memcpy(to, from, d->config_size);
    for (const struct param *p = d->params; p && p->name; p++)
        copy_param(p, slot(p, to), cslot(p, from), a);
}
