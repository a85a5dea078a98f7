#include "operators/sketch.h"
#include "operators/keyed.h"
#include "operators/row_bytes.h"
#include "operators/window_out.h"
#include <stdlib.h>

/* ---- submit time ---- */

static bool taken_before(const struct field *f, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0)
            return true;
    return false;
}

void sketch_plan(struct op_plan *p, const struct strs *fields, unsigned types,
                 const struct sketch_out *out, int outs, const char *taken,
                 const struct pane_params *w) {
    const struct schema *in = p->in[0];
    bool windows = w->every != PARAM_UNSET;
    struct field *f;
    int more = fields->n * outs, n = in->n;
    struct schema *schema = schema_new(p->arena, in->n + p->nby + 2 + more, &f);
    p->out[0] = schema;
    panes_plan(p, w);
    if (windows)
        n = panes_fields(p, true, f);
    else
        memcpy(f, in->f, (size_t)in->n * sizeof *f);
    if (!fields->n)
        plan_error(p, "fields", NULL, "no fields given");
    for (int i = 0; i < fields->n; i++) {
        const char *from = fields->v[i];
        int k = plan_field(p, 0, "fields", from, from, types);
        for (int o = 0; o < outs; o++) {
            const char *name = arena_printf(p->arena, "%s%s", from, out[o].suffix);
            if (taken_before(f, n, name))
                plan_error(p, taken, NULL, "the output would have two fields '%s'", name);
            enum type t = out[o].type != TYPE_COUNT ? out[o].type
                          : k < 0                   ? TYPE_F64
                                                    : in->f[k].type;
            f[n++] = (struct field){ .name = name, .type = t };
        }
    }
    schema->n = n;
    if (n > SCHEMA_FIELDS_MAX)
        plan_error(p, "fields", NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
}

/* ---- open ---- */

void sketch_open(struct sketch_op *s, struct op_ctx *x, const struct strs *fields,
                 const struct pane_params *w) {
    uint32_t size = (uint32_t)((size_t)fields->n * s->size);
    s->n = fields->n;
    s->windows = x->desc->flags & OP_TIMERS;
    s->fields = calloc((size_t)s->n + 1, sizeof *s->fields);
    s->type = calloc((size_t)s->n + 1, sizeof *s->type);
    s->result = calloc((size_t)s->outs, sizeof *s->result);
    if (!s->fields || !s->type || !s->result)
        abort();
    for (int i = 0; i < s->n; i++) {
        s->fields[i] = schema_find(x->in[0], fields->v[i]);
        s->type[i] = x->in[0]->f[s->fields[i]].type;
    }
    if (s->windows)
        panes_open(&s->panes, x, w, size);
    else
        s->table = op_state(x, 0, size);
}
void sketch_close(void *self) {
    struct sketch_op *s = self;
    if (s->windows)
        panes_close(&s->panes);
    free(s->fields);
    free(s->type);
    free(s->result);
}
void sketch_rebuild(void *self, struct op_ctx *x) {
    struct sketch_op *s = self;
    (void)x;
    if (s->windows)
        panes_rebuild(&s->panes);
}

/* ---- rows ---- */

/* Hashes of the rows of a batch, by field. */
static uint64_t **field_hashes(const struct sketch_op *s, struct op_ctx *x, const struct batch *b) {
    if (!s->kind->hashes)
        return NULL;
    struct span *key = ARENA_ARRAY(x->arena, struct span, b->n);
    uint64_t **hash = ARENA_ARRAY(x->arena, uint64_t *, s->n);
    for (int k = 0; k < s->n; k++) {
        hash[k] = ARENA_ARRAY(x->arena, uint64_t, b->n);
        key_batch(x->arena, b, &s->fields[k], 1, key, hash[k]);
    }
    return hash;
}

static void add_row(struct sketch_op *s, const struct batch *b, uint64_t *const *hash, uint32_t i,
                    char *at) {
    uint32_t r = batch_row(b, i);
    for (int k = 0; k < s->n; k++, at += s->size) {
        const struct column *c = &b->cols[s->fields[k]];
        if (column_null(c, r))
            continue;
        struct sketch_value v = {
            .c = c, .type = s->type[k], .row = r, .field = k, .hash = hash ? hash[k][i] : 0
        };
        s->kind->add(s->how, at, &v);
    }
}

/* The results of all fields into row `row` (of `rows`) of cols[0..n * outs). */
static void put_results(struct sketch_op *s, struct op_ctx *x, const char *at, struct column *cols,
                        const struct field *f, uint32_t row, uint32_t rows) {
    struct sketch_result *v = s->result;
    for (int k = 0; k < s->n; k++, at += s->size) {
        s->kind->results(s->how, at, s->type[k], k, x->arena, v);
        for (int o = 0; o < s->outs; o++, cols++, f++) {
            if (v[o].null) {
                column_set_null(x->arena, cols, row, rows);
            } else if (f->type == TYPE_I64) {
                ((int64_t *)cols->p)[row] = v[o].i64;
            } else {
                ((double *)cols->p)[row] = v[o].f64;
            }
        }
    }
}

static void process_running(struct sketch_op *s, struct op_ctx *x, const struct batch *b,
                            uint64_t *const *hash) {
    struct keyed keyed = keyed_batch(x, s->table, b);
    int in = b->schema->n, more = s->n * s->outs;
    const struct field *f = x->out[0]->f + in;
    struct column *cols = batch_cols(x->arena, b, more);
    memcpy(cols + in, row_columns(x->arena, f, more, b->rows), sizeof *cols * (size_t)more);
    for (uint32_t i = 0; i < b->n; i++) {
        bool created;
        char *at = keyed_edit(&keyed, i, &created);
        add_row(s, b, hash, i, at);
        put_results(s, x, at, cols + in, f, batch_row(b, i), b->rows);
    }
    struct batch *out = batch_copy(x->arena, b);
    out->schema = x->out[0];
    out->cols = cols;
    x->count->passed += b->n;
    op_emit(x, 0, out);
}

void sketch_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    struct sketch_op *s = self;
    (void)port;
    uint64_t *const *hash = field_hashes(s, x, b);
    if (s->kind->begin)
        s->kind->begin(s->how);
    if (!s->windows) {
        process_running(s, x, b, hash);
        return;
    }
    struct pane_rows v = panes_rows(&s->panes, x, b);
    for (uint32_t i = 0; i < b->n; i++) {
        char *at = panes_edit(&s->panes, x, b, &v, i, NULL);
        if (!at)
            continue;
        add_row(s, b, hash, i, at);
        x->count->absorbed++;
    }
}

/* ---- firing ---- */

struct firing {
    struct sketch_op *s;
    struct op_ctx *x;
    char *merged; /* scratch */
};

static const char *merge_slices(struct firing *f, const struct pane_group *g) {
    struct sketch_op *s = f->s;
    size_t bytes = s->size * (size_t)s->n;
    if (g->n == 1)
        return g->record[0];
    if (!f->merged)
        f->merged = op_alloc(f->x, bytes);
    memcpy(f->merged, g->record[0], bytes);
    for (uint32_t i = 1; i < g->n; i++)
        for (int k = 0; k < s->n; k++)
            s->kind->merge(s->how, f->merged + (size_t)k * s->size,
                           (const char *)g->record[i] + (size_t)k * s->size, f->x->arena);
    return f->merged;
}

static void fire_group(void *user, struct pane_out *o, const struct pane_group *g) {
    struct firing *f = user;
    struct op_ctx *x = f->x;
    uint32_t r = pane_out_row(o, g);
    struct column *c = o->cols;
    window_put_key(x, g->key, c, r, o->cap);
    c += x->nby;
    ((int64_t *)c++->p)[r] = g->start;
    ((int64_t *)c++->p)[r] = g->end;
    put_results(f->s, x, merge_slices(f, g), c, x->out[0]->f + x->nby + 2, r, o->cap);
}

void sketch_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct sketch_op *s = self;
    struct firing f = { .s = s, .x = x };
    if (s->kind->begin)
        s->kind->begin(s->how);
    panes_watermark(&s->panes, x, wm,
                    &(struct pane_firing){ .group = fire_group, .user = &f, .rows = 1 });
}
