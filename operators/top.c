/* top: the rows with the k greatest (or least) values of an expression, of each key: of a window
 * when it fires, or so far.
 *
 * Running form: table 0, key -> the number of values and the k best, best first.
 * Windows (panes.h): a record holds the best of its slice, best first; table 2, (slice start, group
 * key, number of the slot, big-endian) -> the row's bytes (row_bytes.h). Equal values are ordered
 * by these, so the result does not depend on the order of rows; rows equal in all fields are as one
 * to the reader. */
#include "engine/expr.h"
#include "operators/keyed.h"
#include "operators/order64.h"
#include "operators/panes.h"
#include "operators/row_bytes.h"
#include <stdlib.h>

enum { TOP_MAX = 10000, ORDER_GREATEST = 0 };
struct top_config {
    const char *value;
    int64_t k;
    int order;
    const char *rank;
    bool bounds;
    struct pane_params window;
};
static const char *const order_words[] = { "greatest", "least", NULL };
static const struct param top_params[] = {
    { .name = "value",
      .type = PT_EXPR,
      .offset = offsetof(struct top_config, value),
      .doc = "A numeric expression (see expressions.md): what rows are compared by. Rows for which "
             "it is null are dropped." },
    { .name = "k",
      .type = PT_I64,
      .offset = offsetof(struct top_config, k),
      .def = "10",
      .min = 1,
      .max = TOP_MAX,
      .doc = "How many rows of a key." },
    { .name = "order",
      .type = PT_ENUM,
      .offset = offsetof(struct top_config, order),
      .def = "\"greatest\"",
      .words = order_words,
      .doc = "Which values are best: the `greatest` or the `least`." },
    { .name = "rank",
      .type = PT_STR,
      .offset = offsetof(struct top_config, rank),
      .def = "\"rank\"",
      .doc = "The added field (i64): 1 for the best row." },
    { .name = "bounds",
      .type = PT_BOOL,
      .offset = offsetof(struct top_config, bounds),
      .def = "true",
      .doc =
          "With `every`: adds `window_start` and `window_end`. To be set to false where the rows "
          "have such fields already." },
    PANE_PARAMS(struct top_config, window),
    { .name = NULL },
};

struct top_self {
    uint32_t k;
    bool least;
    const struct expr *value;
    enum type type;
    struct state *best; /* running */
    struct panes panes;
    struct state *rows; /* windows */
    struct arena arena;
};

/* ---- submit time ---- */

static void add_field(struct op_plan *p, struct schema *s, struct field *f, const char *param,
                      const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(f[i].name, name) == 0)
            plan_error(p, param, NULL, "the input has a field '%s' already%s", name,
                       strcmp(param, "bounds") == 0 ? "; set 'bounds' to false" : "");
    f[s->n++] = (struct field){ .name = name, .type = TYPE_I64 };
}

static void top_plan(struct op_plan *p) {
    const struct top_config *c = p->config;
    const struct schema *in = p->in[0];
    bool windows = c->window.every != PARAM_UNSET;
    struct err e = ERR_INIT;
    const struct expr *x =
        expr_compile(p->arena, c->value, strlen(c->value), in, p->in_time ? EXPR_HAS_TIME : 0, &e);
    if (!x)
        plan_error(p, "value", NULL, "%s", e.text);
    else if (expr_type(x) != TYPE_I64 && expr_type(x) != TYPE_F64)
        plan_error(p, "value", NULL, "rows are compared by a number, not %s",
                   expr_type(x) == TYPE_COUNT ? "null" : type_names[expr_type(x)]);
    panes_plan(p, &c->window);
    struct field *f;
    struct schema *out = schema_new(p->arena, in->n + 3, &f);
    memcpy(f, in->f, (size_t)in->n * sizeof *f);
    out->n = in->n;
    add_field(p, out, f, "rank", c->rank);
    if (windows && c->bounds) {
        add_field(p, out, f, "bounds", "window_start");
        add_field(p, out, f, "bounds", "window_end");
    }
    if (out->n > SCHEMA_FIELDS_MAX)
        plan_error(p, NULL, NULL, "a row would have more than %d fields", SCHEMA_FIELDS_MAX);
    p->out[0] = out;
}

/* ---- values ---- */

static int open_common(struct top_self *s, struct op_ctx *x, struct err *e) {
    const struct top_config *c = x->config;
    s->k = (uint32_t)c->k;
    s->least = c->order != ORDER_GREATEST;
    s->value = expr_compile(&s->arena, c->value, strlen(c->value), x->in[0], EXPR_HAS_TIME, e);
    if (!s->value)
        return ERR_INPUT;
    s->type = expr_type(s->value);
    return 0;
}

/* The row's value as a word that is greater for better ones. */
static uint64_t worth(const struct top_self *s, const struct column *c, uint32_t row) {
    uint64_t u = s->type == TYPE_I64 ? order64_i64(c->i64[row]) : order64_f64(c->f64[row]);
    return s->least ? ~u : u;
}

/* ---- running ---- */

struct best {
    uint64_t n, v[];
};

static int running_open(void *self, struct op_ctx *x, struct err *e) {
    struct top_self *s = self;
    int rc = open_common(s, x, e);
    s->best = op_state(x, 0, (uint32_t)((s->k + 1) * sizeof(uint64_t)));
    return rc;
}
static void running_close(void *self) {
    arena_free(&((struct top_self *)self)->arena);
}

/* The rank of row i, 0 when it is none of the best. Of equal values the earlier is better. */
static uint32_t enter(const struct top_self *s, struct keyed *keyed, uint32_t i, uint64_t u) {
    const struct best *seen = keyed_find(keyed, i);
    bool created;
    if (seen && seen->n == s->k && seen->v[s->k - 1] >= u)
        return 0;
    struct best *b = keyed_edit(keyed, i, &created);
    uint32_t lo = 0, hi = (uint32_t)b->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (b->v[mid] >= u)
            lo = mid + 1;
        else
            hi = mid;
    }
    b->n += b->n < s->k;
    memmove(&b->v[lo + 1], &b->v[lo], (b->n - 1 - lo) * sizeof *b->v);
    b->v[lo] = u;
    return lo + 1;
}

/* ~25 ns a row with 100 keys, ~80 ns with 10,000; a key's first row in an epoch copies its k values
 * when it enters. */
static void running_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct top_self *s = self;
    struct column value = expr_eval(s->value, x->arena, b, &x->count->nulled);
    struct keyed keyed = keyed_batch(x, s->best, b);
    struct column *cols = batch_cols(x->arena, b, 1);
    int64_t *rank = ARENA_ARRAY(x->arena, int64_t, b->rows);
    uint16_t *sel = ARENA_ARRAY(x->arena, uint16_t, b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        uint32_t at = column_null(&value, r) ? 0 : enter(s, &keyed, i, worth(s, &value, r));
        if (!at)
            continue;
        rank[r] = at;
        sel[n++] = (uint16_t)r;
    }
    cols[b->schema->n] = (struct column){ .i64 = rank };
    struct batch *out = batch_select(x->arena, b, sel, n);
    out->schema = x->out[0];
    out->cols = cols;
    out->encoded = NULL;
    x->count->passed += n;
    x->count->filtered += b->n - n;
    op_emit(x, 0, out);
}

/* ---- windows: rows ---- */

struct entry {
    uint64_t worth;
    uint32_t slot, unused;
};
struct slice {
    uint64_t n;
    struct entry e[]; /* best first */
};

static int window_open(void *self, struct op_ctx *x, struct err *e) {
    struct top_self *s = self;
    const struct top_config *c = x->config;
    int rc = open_common(s, x, e);
    panes_open(&s->panes, x, &c->window,
               (uint32_t)(sizeof(struct slice) + s->k * sizeof(struct entry)));
    s->rows = op_state(x, 2, 0);
    return rc;
}
static void window_close(void *self) {
    struct top_self *s = self;
    panes_close(&s->panes);
    arena_free(&s->arena);
}
static void window_rebuild(void *self, struct op_ctx *x) {
    (void)x;
    panes_rebuild(&((struct top_self *)self)->panes);
}

/* A key of table 2; the number of the slot is put in later. */
struct row_key {
    char *p;
    uint32_t len;
};
static struct row_key row_key(struct arena *a, int64_t start, struct span group) {
    struct row_key k = { .len = SLICE_KEY + group.len + 4 };
    k.p = arena_alloc(a, k.len);
    memcpy(k.p, &start, SLICE_KEY);
    if (group.len)
        memcpy(k.p + SLICE_KEY, group.p, group.len);
    return k;
}
static uint64_t row_slot(struct row_key k, uint32_t slot) {
    uint32_t big = __builtin_bswap32(slot);
    memcpy(k.p + k.len - 4, &big, sizeof big);
    return state_hash(k.p, k.len);
}
static struct span row_get(struct state *rows, struct row_key k, uint32_t slot) {
    struct span v = { 0 };
    uint64_t hash = row_slot(k, slot);
    v.p = state_get(rows, k.p, k.len, hash, &v.len);
    return v;
}

/* Where a row belongs in a slice; n when behind all. */
static uint32_t place(const struct top_self *s, const struct slice *sl, struct row_key k,
                      uint64_t u, struct span bytes) {
    uint32_t at = (uint32_t)sl->n;
    while (at > 0 && sl->e[at - 1].worth < u)
        at--;
    while (at > 0 && sl->e[at - 1].worth == u &&
           key_compare(row_get(s->rows, k, sl->e[at - 1].slot), bytes) > 0)
        at--;
    return at;
}

static void take_row(struct top_self *s, struct op_ctx *x, const struct batch *b, uint32_t row,
                     struct slice *sl, struct row_key k, uint64_t u) {
    if (sl->n == s->k && sl->e[s->k - 1].worth > u)
        return;
    struct span bytes = row_pack(x->arena, b, NULL, b->schema->n, row);
    uint32_t at = place(s, sl, k, u, bytes);
    if (at == s->k)
        return;
    uint32_t slot = sl->n == s->k ? sl->e[s->k - 1].slot : (uint32_t)sl->n++;
    memmove(&sl->e[at + 1], &sl->e[at], (sl->n - 1 - at) * sizeof *sl->e);
    sl->e[at] = (struct entry){ .worth = u, .slot = slot };
    uint64_t hash = row_slot(k, slot);
    state_put(s->rows, k.p, k.len, hash, bytes.p, bytes.len);
}

/* ~60 ns a row when few of them enter. */
static void window_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)port;
    struct top_self *s = self;
    struct column value = expr_eval(s->value, x->arena, b, &x->count->nulled);
    struct pane_rows v = panes_rows(&s->panes, x, b);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        int64_t start;
        if (column_null(&value, r)) {
            x->count->filtered++;
            continue;
        }
        struct slice *sl = panes_edit(&s->panes, x, b, &v, i, &start);
        if (!sl)
            continue;
        take_row(s, x, b, r, sl, row_key(x->arena, start, v.key[i]), worth(s, &value, r));
        x->count->absorbed++;
    }
}

/* ---- windows: firing ---- */

struct firing {
    struct top_self *s;
    struct op_ctx *x;
};

static void put_row(struct op_ctx *x, struct pane_out *o, const struct pane_group *g,
                    struct span bytes, int64_t rank) {
    const struct schema *in = x->in[0];
    uint32_t r = pane_out_row(o, g);
    struct column *more = o->cols + in->n;
    /* What a later change of the table leaves of the bytes does not matter to the output. */
    struct span copy = { .p = arena_strndup(x->arena, bytes.p, bytes.len), .len = bytes.len };
    row_unpack(x->arena, copy, in->f, in->n, o->cols, r, o->cap);
    ((int64_t *)more[0].p)[r] = rank;
    if (x->out[0]->n > in->n + 1) {
        ((int64_t *)more[1].p)[r] = g->start;
        ((int64_t *)more[2].p)[r] = g->end;
    }
}

/* The next entry of a slice while the best of all slices are taken. */
struct head {
    const struct slice *sl;
    struct row_key key;
    uint32_t at;
    struct span bytes;
};
static bool head_before(const struct head *a, const struct head *b) {
    uint64_t x = a->sl->e[a->at].worth, y = b->sl->e[b->at].worth;
    return x != y ? x > y : key_compare(a->bytes, b->bytes) < 0;
}
static void head_read(struct top_self *s, struct head *h) {
    if (h->at < h->sl->n)
        h->bytes = row_get(s->rows, h->key, h->sl->e[h->at].slot);
}

static void fire_group(void *user, struct pane_out *o, const struct pane_group *g) {
    struct firing *f = user;
    struct top_self *s = f->s;
    struct head *h = ARENA_ARRAY(f->x->arena, struct head, g->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        h[n] =
            (struct head){ .sl = g->record[i], .key = row_key(f->x->arena, g->slice[i], g->key) };
        head_read(s, &h[n]);
        n += h[n].sl->n > 0;
    }
    for (uint32_t rank = 1; rank <= s->k && n; rank++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            best = head_before(&h[i], &h[best]) ? i : best;
        put_row(f->x, o, g, h[best].bytes, rank);
        h[best].at++;
        head_read(s, &h[best]);
        if (h[best].at == h[best].sl->n)
            h[best] = h[--n];
    }
}

static void drop_rows(void *user, int64_t start, struct span key, const void *record) {
    struct firing *f = user;
    const struct slice *sl = record;
    struct row_key k = row_key(f->x->arena, start, key);
    for (uint32_t i = 0; i < sl->n; i++) {
        uint64_t hash = row_slot(k, sl->e[i].slot);
        state_drop(f->s->rows, k.p, k.len, hash);
    }
}

static void window_watermark(void *self, struct op_ctx *x, int64_t wm) {
    struct top_self *s = self;
    struct firing f = { .s = s, .x = x };
    panes_watermark(
        &s->panes, x, wm,
        &(struct pane_firing){ .group = fire_group, .drop = drop_rows, .user = &f, .rows = s->k });
}

static void top_lower(struct op_lower *l) {
    const struct top_config *c = l->config;
    panes_lower(l, &c->window, "top", "top_window", sizeof *c);
}

const struct op_desc op_top = {
    .name = "top",
    .doc =
        "The rows with the `k` greatest values of an expression, for each key (`by`) or over all. "
        "With `every`: those of each window of event time, when it fires (as those of "
        "`window_aggregate`), by window, key and rank; equal values come by the row's fields, "
        "smaller ones first, whatever the order of rows. Without: every row that is among the "
        "`k` best so far passes, with the rank it then has; of equal values the earlier row is "
        "better. Memory: 8 bytes x `k` a key; with windows the rows themselves and some 150 "
        "bytes for each, and 16 bytes x `k`, a group and slice.",
    .example = "{\"value\": \"temperature\", \"k\": 3, \"every\": \"1m\"}",
    .semantics = 1,
    .state_version = 1,
    .params = top_params,
    .config_size = sizeof(struct top_config),
    .flags = OP_DETERMINISTIC | OP_KEYED | OP_LIMITS | OP_ORDERED | OP_KEEPS,
    .memory = MEMORY_UNBOUNDED,
    .plan = top_plan,
    .lower = top_lower,
    .self_size = sizeof(struct top_self),
    .open = running_open,
    .process = running_process,
    .close = running_close,
};

const struct op_desc op_top_window = {
    .name = "top_window",
    .doc = "The windows of `top`.",
    .semantics = 1,
    .state_version = 1,
    .params = top_params,
    .config_size = sizeof(struct top_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_KEYED | OP_TIMERS | OP_KEEPS,
    .memory = MEMORY_BOUNDED,
    .plan = top_plan,
    .self_size = sizeof(struct top_self),
    .open = window_open,
    .process = window_process,
    .watermark = window_watermark,
    .rebuild = window_rebuild,
    .close = window_close,
};
