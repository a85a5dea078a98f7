#include "engine/decode_shape.h"
#include "engine/json.h"
#include "engine/num.h"
#include "engine/scan.h"
#include <stdlib.h>

enum op { /* kind of text x type of cell */
          STR_F64,
          STR_I64,
          STR_STR,
          STR_BOOL,
          STR_TIME,
          STR_IGNORED,
          NUM_F64,
          NUM_I64,
          NUM_STR,
          NUM_TIME,
          NUM_IGNORED,
          BOOL_BOOL,
          BOOL_STR,
          BOOL_IGNORED
};

/* ---- decoding ---- */

/* The end of a string's content at p, or NULL when it is not plain valid text. */
static inline const char *plain_string(const char *p, const char *end) {
    bool high = false;
    const char *q = scan_string(p, end, &high);
    if (q == end || *q != '"' || (high && !utf8_valid(p, q)))
        return NULL;
    return q;
}
static inline const char *quoted_f64(const char *p, const char *end, double *d) {
    const char *q = plain_string(p, end);
    return q && num_f64_whole(p, q, d) == 0 ? q : NULL;
}
static inline const char *quoted_i64(const char *p, const char *end, int64_t *i) {
    const char *q = plain_string(p, end);
    return q && num_i64_whole(p, q, i) == 0 ? q : NULL;
}
static inline const char *bare_f64(const char *p, const char *end, double *d) {
    bool is_int;
    int64_t i;
    return num_parse(p, end, &is_int, &i, d);
}
static inline const char *bare_i64(const char *p, const char *end, int64_t *i) {
    bool is_int;
    double d;
    p = num_parse(p, end, &is_int, i, &d);
    return p && is_int ? p : NULL;
}
static inline const char *bare_bool(const char *p, const char *end, uint8_t *b) {
    *b = end - p >= 4 && memcmp(p, "true", 4) == 0;
    if (*b)
        return p + 4;
    return end - p >= 5 && memcmp(p, "false", 5) == 0 ? p + 5 : NULL;
}
static void store_time(const struct shape *s, struct decode_rows *o, uint32_t row, int64_t ms,
                       const char *p, const char *q) {
    o->time[row] = ms;
    if (s->time_field < 0)
        return;
    void *cells = o->value[s->time_field];
    switch (o->schema->f[s->time_field].type) {
    case TYPE_I64:
        ((int64_t *)cells)[row] = ms;
        break;
    case TYPE_F64:
        ((double *)cells)[row] = (double)ms;
        break;
    default:
        ((struct span *)cells)[row] = (struct span){ .p = p, .len = (uint32_t)(q - p) };
    }
}

/* One value at p; NULL when it does not fit (then nothing is decided). */
static inline const char *decode_slot(const struct shape *s, const struct shape_slot *t,
                                      const char *text, const char *p, const char *end,
                                      struct decode_rows *o, uint32_t row) {
    const char *q;
    uint64_t w;
    int places;
    bool neg;
    switch ((enum op)t->op) {
    case STR_F64:
    case NUM_F64: {
        double *cell = (double *)o->value[t->field] + row;
        q = scan_decimal(text, p, end, &w, &places, &neg);
        if (q) {
            *cell = scan_f64(w, places, neg);
            return q;
        }
        return t->op == STR_F64 ? quoted_f64(p, end, cell) : bare_f64(p, end, cell);
    }
    case STR_I64:
    case NUM_I64: {
        int64_t *cell = (int64_t *)o->value[t->field] + row;
        q = scan_decimal(text, p, end, &w, &places, &neg);
        if (q && places == 0) {
            *cell = neg ? -(int64_t)w : (int64_t)w;
            return q;
        }
        return t->op == STR_I64 ? quoted_i64(p, end, cell) : bare_i64(p, end, cell);
    }
    case STR_TIME:
    case NUM_TIME: {
        int64_t ms;
        q = scan_decimal(text, p, end, &w, &places, &neg);
        if (q && places == 0) {
            ms = neg ? -(int64_t)w : (int64_t)w;
        } else {
            q = t->op == STR_TIME ? quoted_i64(p, end, &ms) : bare_i64(p, end, &ms);
            if (!q || ms < DECODE_TIME_MIN || ms > DECODE_TIME_MAX)
                return NULL;
        }
        store_time(s, o, row, ms, p, q);
        return q;
    }
    case STR_STR:
        q = plain_string(p, end);
        if (q)
            ((struct span *)o->value[t->field])[row] =
                (struct span){ .p = p, .len = (uint32_t)(q - p) };
        return q;
    case STR_BOOL: {
        uint8_t *cell = (uint8_t *)o->value[t->field] + row;
        return bare_bool(p, end, cell); /* the fragment after it begins with the quote */
    }
    case STR_IGNORED:
        return plain_string(p, end);
    case NUM_STR:
    case NUM_IGNORED: {
        double d;
        q = bare_f64(p, end, &d);
        if (q && t->op == NUM_STR)
            ((struct span *)o->value[t->field])[row] =
                (struct span){ .p = p, .len = (uint32_t)(q - p) };
        return q;
    }
    case BOOL_BOOL:
        return bare_bool(p, end, (uint8_t *)o->value[t->field] + row);
    case BOOL_STR:
    case BOOL_IGNORED: {
        uint8_t b;
        q = bare_bool(p, end, &b);
        if (q && t->op == BOOL_STR)
            ((struct span *)o->value[t->field])[row] =
                (struct span){ .p = p, .len = (uint32_t)(q - p) };
        return q;
    }
    }
    return NULL;
}

static bool shape_decode(const struct shape *s, const char *text, const char *end,
                         struct decode_rows *o, uint32_t row) {
    const char *p = text;
    if (o->time)
        o->time[row] = TIME_MIN;
    for (const struct shape_slot *t = s->slot, *last = t + s->n; t < last; t++) {
        if ((size_t)(end - p) < t->frag_len || !scan_equal(p, s->text + t->frag, t->frag_len))
            return false;
        p = decode_slot(s, t, text, p + t->frag_len, end, o, row);
        if (!p)
            return false;
    }
    if ((size_t)(end - p) != s->tail_len || !scan_equal(p, s->text + s->tail, s->tail_len))
        return false;
    for (int i = 0; i < s->nnull; i++) {
        uint64_t **nulls = &o->nulls[s->null[i]];
        if (!*nulls)
            *nulls = batch_nulls(o->arena, o->cap);
        bit_set(*nulls, row);
    }
    return true;
}

bool shapes_decode(struct shapes *s, const char *text, uint32_t len, struct decode_rows *o,
                   uint32_t row) {
    for (int i = 0; i < s->n; i++) {
        struct shape *h = s->v[i];
        if (!shape_decode(h, text, text + len, o, row))
            continue;
        if (i > 0) { /* one place forward at a time: records that alternate do not swap */
            s->v[i] = s->v[i - 1];
            s->v[i - 1] = h;
        }
        h->hits++;
        s->hits++;
        s->backoff = s->wait = 0;
        return true;
    }
    return false;
}

/* ---- learning ---- */

void shape_note(struct shapes *s, uint8_t type, uint32_t off, uint32_t len, int target) {
    if (s->nnotes < 0)
        return;
    if (s->nnotes == SHAPE_SLOTS_MAX) {
        s->nnotes = -1;
        return;
    }
    s->note[s->nnotes++] = (struct shape_note){ off, len, type, (int16_t)target };
}

static uint8_t slot_op(const struct shape_note *n, const struct schema *schema) {
    int base = n->type == J_STR ? STR_F64 : n->type == J_BOOL ? BOOL_BOOL : NUM_F64;
    if (n->type == J_BOOL) {
        if (n->target < 0)
            return BOOL_IGNORED;
        return schema->f[n->target].type == TYPE_BOOL ? BOOL_BOOL : BOOL_STR;
    }
    if (n->target == TARGET_TIME)
        return n->type == J_STR ? STR_TIME : NUM_TIME;
    if (n->target == TARGET_IGNORED)
        return n->type == J_STR ? STR_IGNORED : NUM_IGNORED;
    switch (schema->f[n->target].type) {
    case TYPE_F64:
        return (uint8_t)base;
    case TYPE_I64:
        return n->type == J_STR ? STR_I64 : NUM_I64;
    case TYPE_BOOL:
        return STR_BOOL; /* the strict reader refuses numbers here */
    default:
        return n->type == J_STR ? STR_STR : NUM_STR;
    }
}
static void shape_free(struct shape *h) {
    free(h->text);
    free(h->slot);
    free(h->null);
    free(h);
}
static void *copy(const void *p, size_t size) {
    void *q = malloc(size + !size);
    if (!q)
        abort();
    if (size)
        memcpy(q, p, size);
    return q;
}
static struct shape *make_shape(const struct shapes *s, const char *text, uint32_t len,
                                const struct schema *schema) {
    struct shape *h = calloc(1, sizeof *h);
    struct shape_slot *slot = calloc((size_t)s->nnotes + 1, sizeof *slot);
    if (!h || !slot)
        abort();
    uint32_t at = 0;
    for (int i = 0; i < s->nnotes; i++) {
        const struct shape_note *n = &s->note[i];
        slot[i] = (struct shape_slot){ at, n->off - at, slot_op(n, schema), n->target };
        at = n->off + n->len;
    }
    h->text = copy(text, len);
    h->slot = slot;
    h->n = s->nnotes;
    h->tail = at;
    h->tail_len = len - at;
    return h;
}
void shapes_learn(struct shapes *s, const char *text, uint32_t len, const struct schema *schema,
                  int time_field, const int16_t *null, int nnull) {
    if (s->nnotes < 0 || len > SHAPE_TEXT_MAX)
        return;
    if (s->wait > 0) { /* records without a common shape: learn less and less often */
        s->wait--;
        return;
    }
    s->backoff = s->backoff ? s->backoff * 2 : 1;
    if (s->backoff > SHAPE_BACKOFF_MAX)
        s->backoff = SHAPE_BACKOFF_MAX;
    s->wait = s->backoff;
    struct shape *h = make_shape(s, text, len, schema);
    h->time_field = (int16_t)time_field;
    h->null = copy(null, (size_t)nnull * sizeof *null);
    h->nnull = nnull;
    if (s->n == SHAPES)
        shape_free(s->v[--s->n]); /* the least recently used */
    memmove(s->v + 1, s->v, (size_t)s->n * sizeof *s->v);
    s->v[0] = h;
    s->n++;
}
void shapes_free(struct shapes *s) {
    for (int i = 0; i < s->n; i++)
        shape_free(s->v[i]);
    s->n = 0;
}
