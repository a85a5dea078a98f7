#include "engine/schema.h"
#include "engine/err.h"
#include "engine/json.h"
#include "engine/num.h"
#include <string.h>

const char *const type_names[TYPE_COUNT] = { "bool", "i64", "f64", "string", "bytes", "vec" };

enum { VEC_DIM_MAX = 65536 };

enum type type_parse(const char *word, uint32_t *dim) {
    *dim = 0;
    for (int t = 0; t < TYPE_VEC; t++)
        if (strcmp(word, type_names[t]) == 0)
            return (enum type)t;
    int64_t n;
    size_t len = strlen(word);
    if (len > 5 && strncmp(word, "vec<", 4) == 0 && word[len - 1] == '>' &&
        num_i64_whole(word + 4, word + len - 1, &n) == 0 && n > 0 && n <= VEC_DIM_MAX) {
        *dim = (uint32_t)n;
        return TYPE_VEC;
    }
    return TYPE_COUNT;
}

int schema_find(const struct schema *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->f[i].name, name) == 0)
            return i;
    return -1;
}

const char *schema_nearest(const struct schema *s, const char *name) {
    const char *names[SCHEMA_FIELDS_MAX];
    int n = s->n < SCHEMA_FIELDS_MAX ? s->n : SCHEMA_FIELDS_MAX;
    for (int i = 0; i < n; i++)
        names[i] = s->f[i].name;
    return err_nearest(name, names, n);
}

bool schema_equal(const struct schema *a, const struct schema *b) {
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (a->f[i].type != b->f[i].type || a->f[i].dim != b->f[i].dim ||
            strcmp(a->f[i].name, b->f[i].name) != 0)
            return false;
    return true;
}

struct schema *schema_new(struct arena *a, int n, struct field **f) {
    struct schema *s = ARENA_NEW(a, struct schema);
    *f = arena_zalloc(a, sizeof(struct field) * (size_t)n);
    s->n = n;
    s->f = *f;
    return s;
}

struct schema *schema_copy(struct arena *a, const struct schema *s) {
    struct field *f;
    struct schema *copy = schema_new(a, s->n, &f);
    for (int i = 0; i < s->n; i++) {
        f[i] = s->f[i];
        f[i].name = arena_strdup(a, s->f[i].name);
    }
    return copy;
}

const char *schema_text(struct arena *a, const struct schema *s) {
    struct sbuf b = { 0 };
    sbuf_adds(&b, "{");
    for (int i = 0; i < s->n; i++) {
        const struct field *f = &s->f[i];
        sbuf_printf(&b, "%s%s: %s", i ? ", " : "", f->name, type_names[f->type]);
        if (f->type == TYPE_VEC)
            sbuf_printf(&b, "<%u>", f->dim);
    }
    sbuf_adds(&b, "}");
    const char *text = arena_strndup(a, b.p, b.len);
    sbuf_free(&b);
    return text;
}
