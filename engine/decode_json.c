/* The strict reader of JSON records; see decode.h. */
#include "engine/decode_cell.h"
#include "engine/json.h"

enum { PATH_MAX_LEN = 1024 };
struct path { /* of the open objects, "a.b." */
    char text[PATH_MAX_LEN];
    uint32_t len, mark[JSON_DEPTH_MAX];
    int depth;
};

/* "a.b" of key `key` inside the open objects; without p: too long to be a field. */
static struct span path_name(struct path *p, struct span key) {
    if (p->len == 0)
        return key;
    if (p->len + key.len > PATH_MAX_LEN)
        return (struct span){ 0 };
    memcpy(p->text + p->len, key.p, key.len);
    return (struct span){ .p = p->text, .len = p->len + key.len };
}
static bool path_enter(struct path *p, struct span name) {
    if (!name.p || name.len + 1 > PATH_MAX_LEN)
        return false;
    p->mark[p->depth++] = p->len;
    memmove(p->text, name.p, name.len);
    p->text[name.len] = '.';
    p->len = name.len + 1;
    return true;
}
static int wrong_kind(struct decoder *d, const struct json_reader *r, int field,
                      struct decode_error *e) {
    return decode_fail(e, "bad_value", d->schema->f[field].name, (uint32_t)(r->at - r->text),
                       "%s is not a single value", r->event == JE_OBJ ? "an object" : "an array");
}
/* The value of member `key`. */
static int member(struct decoder *d, struct json_reader *r, struct path *path, struct span key,
                  struct decode_rows *o, uint32_t row, struct decode_error *e) {
    struct span name = path_name(path, key);
    int field = name.p ? decode_field(d, name) : -1;
    if (json_next(r) == JE_ERROR)
        return decode_syntax(r, e);
    if (r->event == JE_OBJ || r->event == JE_ARR) {
        if (field >= 0)
            return wrong_kind(d, r, field, e);
        if (r->event == JE_OBJ && d->nested && path_enter(path, name))
            return 0;
        return json_skip(r) == 0 ? 0 : decode_syntax(r, e);
    }
    struct token t;
    decode_token(r, &t);
    if (t.type != J_NULL)
        shape_note(&d->shapes, t.type, t.off, t.len, field < 0 ? TARGET_IGNORED : field);
    if (field < 0)
        return 0;
    if (d->seen[field] == d->now)
        return decode_fail(e, "duplicate_field", d->schema->f[field].name, t.off,
                           "appears twice in the record");
    d->seen[field] = d->now;
    return decode_cell(d, o, row, field, &t, e);
}
int decode_json(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                uint32_t row, struct decode_error *e) {
    struct json_reader r;
    struct path path;
    int rc = 0;
    path.len = 0;
    path.depth = 0;
    json_open(&r, text, len, o->arena);
    if (json_next(&r) != JE_ERROR && r.event != JE_OBJ)
        rc = decode_fail(e, "bad_record", NULL, (uint32_t)(r.at - text),
                         "a record must be a JSON object");
    while (rc == 0 && json_next(&r) != JE_END) {
        if (r.event == JE_ERROR) {
            rc = decode_syntax(&r, e);
        } else if (r.event == JE_OBJ_END) {
            if (path.depth > 0)
                path.len = path.mark[--path.depth];
        } else {
            rc = member(d, &r, &path, (struct span){ .p = r.s, .len = r.len }, o, row, e);
        }
    }
    json_close(&r);
    if (rc)
        return rc;
    decode_missing(d, o, row);
    decode_learn(d, text, len, -1);
    return 0;
}
