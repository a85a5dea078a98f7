#include "engine/decode.h"
#include "engine/decode_cell.h"
#include "engine/json.h"
#include "engine/num.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rows ---- */

static size_t cell_size(enum type t) {
    return t == TYPE_BOOL ? 1 : t == TYPE_STR || t == TYPE_BYTES ? sizeof(struct span) : 8;
}
void decode_rows_begin(struct decode_rows *o, struct arena *a, const struct schema *s, uint32_t cap,
                       bool time) {
    *o = (struct decode_rows){ .arena = a, .schema = s, .cap = cap };
    o->value = ARENA_ARRAY(a, void *, s->n + 1);
    o->nulls = arena_zalloc(a, sizeof *o->nulls * (size_t)(s->n + 1));
    for (int i = 0; i < s->n; i++)
        o->value[i] = arena_alloc(a, cell_size(s->f[i].type) * (cap + !cap));
    if (time)
        o->time = ARENA_ARRAY(a, int64_t, cap + !cap);
}
const struct column *decode_rows_end(struct decode_rows *o) {
    struct column *c = arena_zalloc(o->arena, sizeof *c * (size_t)(o->schema->n + 1));
    for (int i = 0; i < o->schema->n; i++) {
        c[i].p = o->value[i];
        c[i].nulls = o->nulls[i];
    }
    return c;
}

/* ---- cells ---- */

int decode_fail(struct decode_error *e, const char *code, const char *field, uint32_t off,
                const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = field ? snprintf(e->text, sizeof e->text, "field '%.60s': ", field) : 0;
    n += vsnprintf(e->text + n, sizeof e->text - (size_t)n, fmt, ap);
    va_end(ap);
    if ((size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, " (byte %u)", off);
    e->code = code;
    e->field = field;
    e->off = off;
    return -1;
}
/* A user's bytes in a message: at most 40, others than printable ASCII as '?'. */
static const char *clip(const struct token *t, char buf[44]) {
    const char *p = t->s.p;
    uint32_t n = t->s.len < 40 ? t->s.len : 40;
    for (uint32_t i = 0; i < n; i++)
        buf[i] = (char)(p[i] >= 0x20 && p[i] < 0x7f ? p[i] : '?');
    memcpy(buf + n, t->s.len > 40 ? "..." : "", t->s.len > 40 ? 4 : 1);
    return buf;
}
static int misfit(const struct field *f, const struct token *t, struct decode_error *e) {
    static const char *const want[] = {
        [TYPE_BOOL] = "true or false", [TYPE_I64] = "an integer", [TYPE_F64] = "a number",
        [TYPE_STR] = "a string",       [TYPE_BYTES] = "a string", [TYPE_VEC] = "a vector",
    };
    char buf[44];
    return decode_fail(e, "bad_value", f->name, t->off, "%s \"%s\" is not %s",
                       jtype_names[t->type] + (t->type == J_INT    ? 3
                                               : t->type == J_NULL ? 0
                                                                   : 2),
                       clip(t, buf), want[f->type]);
}
static bool is_word(struct span s, const char *w) {
    return s.len == strlen(w) && memcmp(s.p, w, s.len) == 0;
}

void decode_null(struct decode_rows *o, uint32_t row, int field) {
    if (!o->nulls[field])
        o->nulls[field] = batch_nulls(o->arena, o->cap);
    bit_set(o->nulls[field], row);
}
void decode_rows_null(struct decode_rows *o, uint32_t row) {
    for (int i = 0; i < o->schema->n; i++)
        decode_null(o, row, i);
    if (o->time)
        o->time[row] = TIME_MIN;
}
int decode_cell(struct decoder *d, struct decode_rows *o, uint32_t row, int field,
                const struct token *t, struct decode_error *e) {
    const struct field *f = &d->schema->f[field];
    const char *p = t->s.p, *end = p + t->s.len;
    if (t->type == J_NULL || t->type == TOKEN_NONE) {
        d->null_at[field] = d->now;
        decode_null(o, row, field);
        return 0;
    }
    switch (f->type) {
    case TYPE_F64: {
        double *cell = (double *)o->value[field] + row;
        if (t->type == J_INT || t->type == J_REAL) {
            *cell = t->d;
            return 0;
        }
        return t->type == J_STR && num_f64_whole(p, end, cell) == 0 ? 0 : misfit(f, t, e);
    }
    case TYPE_I64: {
        int64_t *cell = (int64_t *)o->value[field] + row;
        if (t->type == J_INT) {
            *cell = t->i;
            return 0;
        }
        return t->type == J_STR && num_i64_whole(p, end, cell) == 0 ? 0 : misfit(f, t, e);
    }
    case TYPE_BOOL: {
        uint8_t *cell = (uint8_t *)o->value[field] + row;
        if (t->type == J_BOOL || (t->type == J_STR && is_word(t->s, "true")) ||
            (t->type == J_STR && is_word(t->s, "false"))) {
            *cell = t->type == J_BOOL ? t->b : t->s.len == 4;
            return 0;
        }
        return misfit(f, t, e);
    }
    default:
        ((struct span *)o->value[field])[row] = t->s;
        return 0;
    }
}
void decode_missing(struct decoder *d, struct decode_rows *o, uint32_t row) {
    for (int i = 0; i < d->nfields; i++)
        if (d->seen[i] != d->now)
            decode_null(o, row, i);
}

void decode_learn(struct decoder *d, const char *text, uint32_t len, int time_field) {
    int16_t null[SCHEMA_FIELDS_MAX];
    int n = 0;
    for (int i = 0; i < d->nfields; i++)
        if (d->seen[i] != d->now || d->null_at[i] == d->now)
            null[n++] = (int16_t)i;
    shapes_learn(&d->shapes, text, len, d->schema, time_field, null, n);
}

/* ---- names ---- */

static uint32_t name_hash(struct span s) {
    uint64_t h = s.len * 0x9e3779b97f4a7c15ull, w;
    const char *p = s.p;
    uint32_t n = s.len;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    return (uint32_t)(h >> 32);
}
static bool span_equal(struct span a, struct span b) {
    return a.len == b.len && memcmp(a.p, b.p, a.len) == 0;
}
int decode_field(struct decoder *d, struct span name) {
    if (d->next_guess < d->nfields && span_equal(name, d->name[d->next_guess]))
        return d->next_guess++;
    for (uint32_t h = name_hash(name);; h++) {
        int i = d->slot[h & d->slot_mask];
        if (i < 0)
            return -1;
        if (span_equal(name, d->name[i])) {
            d->next_guess = i + 1;
            return i;
        }
    }
}
static void index_names(struct decoder *d) {
    uint32_t cap = 16;
    while (cap < (uint32_t)d->nfields * 3)
        cap *= 2;
    d->slot = malloc(cap * sizeof *d->slot);
    d->name = calloc((size_t)d->nfields + 1, sizeof *d->name);
    d->seen = calloc((size_t)d->nfields + 1, sizeof *d->seen);
    d->null_at = calloc((size_t)d->nfields + 1, sizeof *d->null_at);
    if (!d->slot || !d->name || !d->seen || !d->null_at)
        abort();
    d->slot_mask = cap - 1;
    memset(d->slot, 0xff, cap * sizeof *d->slot);
    for (int i = 0; i < d->nfields; i++) {
        const char *s = d->schema->f[i].name;
        d->name[i] = (struct span){ .p = s, .len = (uint32_t)strlen(s) };
        d->name_max = d->name[i].len > d->name_max ? d->name[i].len : d->name_max;
        d->nested |= strchr(s, '.') != NULL;
        uint32_t h = name_hash(d->name[i]);
        while (d->slot[h & d->slot_mask] >= 0)
            h++;
        d->slot[h & d->slot_mask] = (int16_t)i;
    }
}

/* ---- decoder ---- */

struct decoder *decoder_new(enum decode_format f, const struct schema *s,
                            const struct decode_csv *csv) {
    struct decoder *d = calloc(1, sizeof *d);
    if (!d)
        abort();
    d->format = f;
    d->schema = s;
    d->nfields = s->n;
    index_names(d);
    d->time_field = schema_find(s, "timestamp");
    if (d->time_field >= 0 && s->f[d->time_field].type == TYPE_BOOL)
        d->time_field = -1;
    if (f == DECODE_CSV)
        decode_csv_open(d, csv);
    return d;
}
void decoder_free(struct decoder *d) {
    if (!d)
        return;
    shapes_free(&d->shapes);
    free(d->slot);
    free(d->name);
    free(d->seen);
    free(d->null_at);
    free(d->entry);
    free(d->column);
    free(d);
}
void decoder_strict(struct decoder *d, bool strict) {
    d->strict = strict;
}
uint64_t decoder_hits(const struct decoder *d) {
    return d->shapes.hits;
}

int decode_record(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                  uint32_t row, struct decode_error *e) {
    if (d->format == DECODE_CSV)
        return decode_csv_record(d, text, len, o, row, e);
    if (!d->strict && shapes_decode(&d->shapes, text, len, o, row))
        return 0;
    d->now++;
    d->next_guess = 0;
    d->shapes.nnotes = 0;
    int rc = d->format == DECODE_SENML ? decode_senml(d, text, len, o, row, e)
                                       : decode_json(d, text, len, o, row, e);
    return rc;
}
