/* generator: a source of made-up rows. */
#include "operators/generator.h"
#include "engine/num.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct param generator_params[] = {
    { .name = "fields",
      .type = PT_JSON,
      .offset = offsetof(struct generator_config, fields),
      .doc = "The fields and how their values come about: `{\"walk\": [lo, hi], \"period\": rows}` "
             "(f64, wanders slowly), `{\"uniform\": [lo, hi]}` (f64), `{\"integer\": [lo, hi]}` "
             "(i64), `{\"choice\": [\"a\", \"b\"]}` (string), `{\"keys\": n, \"prefix\": \"k\"}` "
             "(string k0 to k(n-1)), `{\"sequence\": first}` (i64), `{\"time\": \"ms\"}` (i64, the "
             "event time). `digits` rounds an f64; `nulls` is a share of nulls." },
    { .name = "seed",
      .type = PT_I64,
      .offset = offsetof(struct generator_config, seed),
      .def = "1",
      .doc = "Another seed, other values." },
    { .name = "rate",
      .type = PT_F64,
      .offset = offsetof(struct generator_config, rate),
      .def = "1000",
      .min = 0.001,
      .max = 1e9,
      .doc = "Rows a second, of event time and (with `pace`) of the clock." },
    { .name = "count",
      .type = PT_I64,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct generator_config, count),
      .min = 0,
      .max = 9e15,
      .doc = "The stream ends after this many rows. Default: never." },
    { .name = "first_time",
      .type = PT_STR,
      .offset = offsetof(struct generator_config, first_time),
      .def = "\"2026-01-01T00:00:00Z\"",
      .doc = "Event time of the first row (RFC 3339)." },
    { .name = "pace",
      .type = PT_BOOL,
      .class = PARAM_PHYSICAL,
      .offset = offsetof(struct generator_config, pace),
      .def = "true",
      .doc = "False: rows come as fast as they are taken." },
    { .name = NULL },
};

enum kind {
    KIND_WALK,
    KIND_UNIFORM,
    KIND_INTEGER,
    KIND_CHOICE,
    KIND_KEYS,
    KIND_SEQUENCE,
    KIND_TIME
};
static const char *const kind_words[] = { "walk", "uniform",  "integer", "choice",
                                          "keys", "sequence", "time",    NULL };
static const enum type kind_type[] = { TYPE_F64, TYPE_F64, TYPE_I64, TYPE_STR,
                                       TYPE_STR, TYPE_I64, TYPE_I64 };

struct maker {
    enum kind kind;
    uint64_t seed;               /* of the field */
    double lo, hi, nulls, scale; /* scale: 10^digits; 0: do not round */
    int64_t first;               /* integer, sequence: lowest value; keys: their number */
    uint64_t span;               /* integer: number of values, 0: all; choice: number of words */
    int64_t period;
    const struct span *word;
    const char *prefix;
    uint32_t prefix_len;
};
struct generator {
    const struct generator_config *config;
    struct arena arena;
    struct schema *schema;
    struct maker *maker;
    int64_t first_time;
};

/* ---- reading the config ---- */

static int bad(struct err *e, const struct jnode *f, const char *what) {
    return err_set(e, ERR_INPUT, "field '%s': %s", f->key, what);
}

static bool is_number(const struct jnode *n) {
    return n && (n->type == J_INT || n->type == J_REAL);
}

static int read_interval(struct maker *m, const struct jnode *f, const struct jnode *v,
                         struct err *e) {
    if (v->type != J_ARR || v->n != 2 || !is_number(v->child) || !is_number(v->child->next))
        return bad(e, f, "needs [lowest, highest]");
    const struct jnode *lo = v->child, *hi = lo->next;
    m->lo = jnode_f64(lo);
    m->hi = jnode_f64(hi);
    if (m->lo > m->hi || !isfinite(m->hi - m->lo))
        return bad(e, f, "the lowest value is above the highest, or they are too far apart");
    if (m->kind != KIND_INTEGER)
        return 0;
    if (lo->type != J_INT || hi->type != J_INT)
        return bad(e, f, "needs two integers");
    m->first = lo->i;
    m->span = (uint64_t)hi->i - (uint64_t)lo->i + 1; /* wraps to 0 for all of int64 */
    return 0;
}

static int read_choice(struct generator *g, struct maker *m, const struct jnode *f,
                       const struct jnode *v, struct err *e) {
    if (v->type != J_ARR || v->n == 0)
        return bad(e, f, "needs a list of strings");
    struct span *w = ARENA_ARRAY(&g->arena, struct span, v->n);
    m->span = 0;
    for (const struct jnode *c = v->child; c; c = c->next) {
        if (c->type != J_STR)
            return bad(e, f, "needs a list of strings");
        w[m->span++] = (struct span){ .p = c->s, .len = c->len };
    }
    m->word = w;
    return 0;
}

static int read_value(struct generator *g, struct maker *m, const struct jnode *f,
                      const struct jnode *v, struct err *e) {
    switch (m->kind) {
    case KIND_WALK:
    case KIND_UNIFORM:
    case KIND_INTEGER:
        return read_interval(m, f, v, e);
    case KIND_CHOICE:
        return read_choice(g, m, f, v, e);
    case KIND_KEYS:
    case KIND_SEQUENCE:
        if (v->type != J_INT || (m->kind == KIND_KEYS && v->i < 1))
            return bad(e, f, m->kind == KIND_KEYS ? "needs a number of keys" : "needs an integer");
        m->first = v->i;
        return 0;
    case KIND_TIME:
        if (v->type != J_STR || strcmp(v->s, "ms") != 0)
            return bad(e, f, "the unit of 'time' is \"ms\"");
        return 0;
    }
    return 0;
}

/* A modifier beside the kind: "period", "digits", "nulls", "prefix". */
static int read_modifier(struct maker *m, const struct jnode *f, const struct jnode *v,
                         struct err *e) {
    if (strcmp(v->key, "nulls") == 0) {
        m->nulls = is_number(v) ? jnode_f64(v) : -1;
        return m->nulls >= 0 && m->nulls <= 1 ? 0 : bad(e, f, "'nulls' is a share, 0 to 1");
    }
    if (strcmp(v->key, "period") == 0 && m->kind == KIND_WALK) {
        m->period = v->type == J_INT ? v->i : 0;
        return m->period >= 8 ? 0 : bad(e, f, "'period' is a number of rows, at least 8");
    }
    if (strcmp(v->key, "digits") == 0 && kind_type[m->kind] == TYPE_F64) {
        if (v->type != J_INT || v->i < 0 || v->i > 15)
            return bad(e, f, "'digits' is 0 to 15");
        m->scale = 1;
        for (int64_t i = 0; i < v->i; i++)
            m->scale *= 10;
        return 0;
    }
    if (strcmp(v->key, "prefix") == 0 && m->kind == KIND_KEYS) {
        if (v->type != J_STR)
            return bad(e, f, "'prefix' is a string");
        m->prefix = v->s;
        m->prefix_len = v->len;
        return 0;
    }
    return err_set(e, ERR_INPUT, "field '%s': '%s' does not go with '%s'", f->key, v->key,
                   kind_words[m->kind]);
}

static int read_field(struct generator *g, struct maker *m, const struct jnode *f, struct err *e) {
    const struct jnode *value = NULL;
    *m = (struct maker){ .period = 1000, .prefix = "k", .prefix_len = 1 };
    for (const struct jnode *v = f->type == J_OBJ ? f->child : NULL; v; v = v->next)
        for (int k = 0; kind_words[k]; k++)
            if (strcmp(v->key, kind_words[k]) == 0) {
                if (value)
                    return bad(e, f, "has two kinds");
                value = v;
                m->kind = (enum kind)k;
            }
    if (!value)
        return bad(e, f, "needs one of walk, uniform, integer, choice, keys, sequence, time");
    int rc = read_value(g, m, f, value, e);
    for (const struct jnode *v = f->child; v && rc == 0; v = v->next)
        if (v != value)
            rc = read_modifier(m, f, v, e);
    return rc;
}

/* SplitMix64's finalizer (S. Vigna): one multiplication-rich mix of 64 bits. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int generator_new(struct generator **out, const struct generator_config *c, struct err *e) {
    if (!c->fields || c->fields->type != J_OBJ || c->fields->n == 0 ||
        c->fields->n > SCHEMA_FIELDS_MAX)
        return err_set(e, ERR_INPUT, "needs an object of 1 to %d fields", SCHEMA_FIELDS_MAX);
    struct generator *g = calloc(1, sizeof *g);
    if (!g)
        abort();
    g->config = c;
    struct field *field;
    g->schema = schema_new(&g->arena, (int)c->fields->n, &field);
    g->maker = ARENA_ARRAY(&g->arena, struct maker, c->fields->n);
    int rc = 0, i = 0;
    for (const struct jnode *f = c->fields->child; f && rc == 0; f = f->next, i++) {
        rc = read_field(g, &g->maker[i], f, e);
        if (rc < 0 && e)
            snprintf(e->pointer, sizeof e->pointer, "%s", f->key);
        field[i] = (struct field){ .name = f->key, .type = kind_type[g->maker[i].kind] };
        g->maker[i].seed = mix((uint64_t)c->seed + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1));
    }
    const char *t = c->first_time;
    if (rc == 0 && time_parse(t, t + strlen(t), &g->first_time) < 0)
        rc = err_set(e, ERR_INPUT, "first_time '%.60s' is no RFC 3339 time", t);
    if (rc < 0) {
        generator_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void generator_free(struct generator *g) {
    if (g)
        arena_free(&g->arena);
    free(g);
}

const struct schema *generator_schema(const struct generator *g) {
    return g->schema;
}

/* ---- values ---- */

/* Draw number `n` of a field, uniform in 64 bits and in 0..1. */
static uint64_t draw(const struct maker *m, uint64_t n) {
    return mix(m->seed + 0x9e3779b97f4a7c15u * (n + 1));
}
static double draw_unit(const struct maker *m, uint64_t n) {
    return (double)(draw(m, n) >> 11) * 0x1p-53;
}

/* Four octaves of value noise (K. Perlin, 1985, in one dimension): random heights every `period`
 * rows, straight lines between them, and the same three times finer at half the weight. Unlike a
 * sum of steps it can begin anywhere. */
static double walk(const struct maker *m, int64_t k) {
    double sum = 0, weight = 8.0 / 15;
    for (int octave = 0; octave < 4; octave++, weight /= 2) {
        int64_t step = m->period >> octave, at = k / step;
        double part = (double)(k - at * step) / (double)step;
        uint64_t base = (uint64_t)octave << 60 | 1u << 30; /* apart from the draws for nulls */
        double from = draw_unit(m, base + (uint64_t)at), to = draw_unit(m, base + (uint64_t)at + 1);
        sum += weight * (from + (to - from) * part);
    }
    return m->lo + (m->hi - m->lo) * sum;
}

static double rounded(const struct maker *m, double v) {
    double x = m->scale != 0 ? rint(v * m->scale) / m->scale : v;
    return isfinite(x) ? x : v;
}

static struct span key_text(const struct maker *m, struct arena *a, int64_t k) {
    int64_t n = (int64_t)((unsigned __int128)draw(m, (uint64_t)k) * (uint64_t)m->first >> 64);
    char *p = arena_alloc(a, m->prefix_len + NUM_I64_MAX_LEN);
    memcpy(p, m->prefix, m->prefix_len);
    return (struct span){ .p = p,
                          .len = m->prefix_len + (uint32_t)num_write_i64(p + m->prefix_len, n) };
}

static int64_t integer(const struct maker *m, int64_t k) {
    uint64_t r = draw(m, (uint64_t)k);
    if (m->span)
        r = (uint64_t)((unsigned __int128)r * m->span >> 64);
    return (int64_t)((uint64_t)m->first + r);
}

static void make_column(const struct generator *g, const struct maker *m, struct arena *a,
                        int64_t k, uint32_t n, struct column *c) {
    union {
        void *p;
        int64_t *i;
        double *d;
        struct span *s;
    } v = { arena_alloc(a, n * (kind_type[m->kind] == TYPE_STR ? sizeof(struct span) : 8)) };
    for (uint32_t i = 0; i < n; i++, k++) {
        switch (m->kind) {
        case KIND_WALK:
            v.d[i] = rounded(m, walk(m, k));
            break;
        case KIND_UNIFORM:
            v.d[i] = rounded(m, m->lo + (m->hi - m->lo) * draw_unit(m, (uint64_t)k));
            break;
        case KIND_INTEGER:
            v.i[i] = integer(m, k);
            break;
        case KIND_CHOICE:
            v.s[i] = m->word[(unsigned __int128)draw(m, (uint64_t)k) * m->span >> 64];
            break;
        case KIND_KEYS:
            v.s[i] = key_text(m, a, k);
            break;
        case KIND_SEQUENCE:
            v.i[i] = (int64_t)((uint64_t)m->first + (uint64_t)k);
            break;
        case KIND_TIME:
            v.i[i] = generator_time(g, k);
            break;
        }
    }
    *c = (struct column){ .p = v.p };
}

static void make_nulls(const struct maker *m, struct arena *a, int64_t k, uint32_t n,
                       struct column *c) {
    if (m->nulls == 0)
        return;
    struct maker other = *m;
    other.seed = ~m->seed; /* draws of their own: nulls must not choose values */
    uint64_t *nulls = batch_nulls(a, n);
    for (uint32_t i = 0; i < n; i++)
        if (draw_unit(&other, (uint64_t)k + i) < m->nulls)
            bit_set(nulls, i);
    c->nulls = nulls;
}

int64_t generator_time(const struct generator *g, int64_t k) {
    return g->first_time + (int64_t)((double)k * 1000 / g->config->rate);
}

uint32_t generator_rows(const struct generator *g, struct arena *a, int64_t k, uint32_t n,
                        struct batch *b, struct origin *o) {
    int64_t left = g->config->count == PARAM_UNSET ? INT64_MAX : g->config->count - k;
    if (left < (int64_t)n)
        n = left > 0 ? (uint32_t)left : 0;
    struct column *cols = arena_zalloc(a, sizeof *cols * (size_t)g->schema->n);
    int64_t *time = ARENA_ARRAY(a, int64_t, n), *wm = ARENA_ARRAY(a, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++)
        time[i] = generator_time(g, k + i);
    /* Times never fall: the watermark after a row is its time, before it that of the row before. */
    wm[0] = k ? generator_time(g, k - 1) : TIME_MIN;
    for (uint32_t i = 0; i < n; i++)
        wm[i + 1] = time[i];
    for (int f = 0; f < g->schema->n && n; f++) {
        make_column(g, &g->maker[f], a, k, n, &cols[f]);
        make_nulls(&g->maker[f], a, k, n, &cols[f]);
    }
    *b = (struct batch){ .schema = g->schema,
                         .cols = cols,
                         .rows = n,
                         .n = n,
                         .off0 = k,
                         .time = time,
                         .wm = wm,
                         .origin = o };
    o->off0 = k;
    o->n = n;
    o->wm = wm + 1;
    o->wm_before = wm[0];
    return n;
}

/* ---- the operator ---- */

struct generator_self {
    struct generator *g;
};

static void generator_plan(struct op_plan *p) {
    const struct generator_config *c = p->config;
    struct generator *g = NULL;
    struct err e = ERR_INIT;
    struct field *none;
    int64_t ms;
    bool timed = time_parse(c->first_time, c->first_time + strlen(c->first_time), &ms) == 0;
    if (!timed)
        plan_error(p, "first_time", NULL, "'%.60s' is no RFC 3339 time", c->first_time);
    if (generator_new(&g, c, &e) < 0) {
        if (timed || e.pointer[0])
            plan_error(p, "fields", e.pointer[0] ? e.pointer : NULL, "%s", e.text);
        p->out[0] = schema_new(p->arena, 0, &none);
        return;
    }
    p->out[0] = schema_copy(p->arena, generator_schema(g));
    generator_free(g);
}

static int generator_open(void *self, struct op_ctx *x, struct err *e) {
    struct generator_self *s = self;
    return generator_new(&s->g, x->config, e);
}

static uint32_t generator_pull(void *self, struct op_ctx *x, int64_t off, uint32_t max,
                               struct batch *b, struct origin *o) {
    struct generator_self *s = self;
    uint32_t n = generator_rows(s->g, x->arena, off, max, b, o);
    b->schema = x->out[0]; /* the planner's copy */
    return n;
}

static double generator_rate(const void *config) {
    const struct generator_config *c = config;
    return c->pace ? c->rate : 0;
}

static void generator_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)self; /* rows come from pull; a source has no in-port */
    x->count->passed += b->n;
    op_emit(x, port, b);
}

static void generator_close(void *self) {
    struct generator_self *s = self;
    generator_free(s->g);
}

const struct op_desc op_generator = {
    .name = "generator",
    .doc = "A source of made-up rows: every value is a function of the seed, its field and the "
           "number of the row alone, so a run can be repeated exactly. Event time rises with "
           "`rate`.",
    .example = "{\"fields\": {\"source\": {\"keys\": 10, \"prefix\": \"s\"}, \"temperature\": "
               "{\"walk\": [-10, 40], \"digits\": 1}}, \"rate\": 100}",
    .semantics = 1,
    .params = generator_params,
    .config_size = sizeof(struct generator_config),
    .flags = OP_DETERMINISTIC | OP_SOURCE | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .plan = generator_plan,
    .self_size = sizeof(struct generator_self),
    .open = generator_open,
    .pull = generator_pull,
    .rate = generator_rate,
    .process = generator_process,
    .close = generator_close,
};
