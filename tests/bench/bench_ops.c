/* Cost of the ETL operators by themselves, in ns a record of SYS (5 observed fields): wide (one row
 * a record) and exploded (5 rows a record, figures a row), with 788 keys and with 100,000. The keys
 * come round in turn, so 100,000 of them are never in the cache. CPU time of the
 * thread, best of 4 passes over 2^20 rows. */
#include "engine/key.h"
#include "engine/op.h"
#include "operators/all.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>

enum { OBS = 5, ROWS = 1 << 20, REPEAT = 5, STAGES_MAX = 6, EPOCH_TICKS = 64 };
static const char *const obs_name[OBS] = { "temperature", "humidity", "light", "dust",
                                           "airquality_raw" };

struct stage {
    const struct op_desc *desc;
    struct op_ctx ctx;
    struct op_counts counts;
    void *self;
    const struct batch *out;
    double s; /* of the best pass */
};
struct chain {
    struct arena arena, tick;
    struct undo *undo;
    struct op_host host;
    struct stage stage[STAGES_MAX];
    int n;
    struct sbuf members, table;
    char (*key)[32];
    uint32_t keys;
};

static void on_emit(struct op_ctx *c, int port, const struct batch *b) {
    (void)port;
    ((struct stage *)c->task)->out = b;
}
static void on_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                      const char *text) {
    (void)c;
    (void)b;
    (void)row;
    fprintf(stderr, "bench_ops: rejected: %s %s\n", code, text);
    exit(1);
}
static struct chain *the_chain;
static struct state *on_state(struct op_ctx *c, int table, uint32_t vsize) {
    return state_new(the_chain->undo, c->instance, table, vsize);
}

static int resolve(void *user, const char *name, struct file *f, struct err *e) {
    (void)e;
    struct chain *c = user;
    struct sbuf *b = strcmp(name, "members") == 0 ? &c->members : &c->table;
    f->data = sbuf_str(b);
    f->len = b->len;
    snprintf(f->hash, sizeof f->hash, "%016llx",
             (unsigned long long)state_hash(b->p, (uint32_t)b->len));
    return 0;
}
static void report(struct op_plan *p, const char *param, const char *key, const char *text) {
    (void)p;
    fprintf(stderr, "bench_ops: %s %s: %s\n", param ? param : "", key ? key : "", text);
    exit(1);
}

static void add_stage(struct chain *c, const char *op, const char *config, const char *by,
                      const struct schema *in) {
    static const char *const in_name[] = { "in", NULL }, *const out_name[] = { "out", NULL };
    struct stage *s = &c->stage[c->n++];
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct json_doc doc;
    s->desc = ops_find(op);
    void *conf = arena_zalloc(&c->arena, s->desc->config_size);
    const struct schema **schemas = ARENA_ARRAY(&c->arena, const struct schema *, 2);
    int *index = ARENA_ARRAY(&c->arena, int, 1);
    if (json_parse(&doc, NULL, config, strlen(config), &c->arena, &es) < 0 ||
        params_parse(s->desc, &doc, doc.root, conf, &c->arena, resolve, c, &es) < 0) {
        fprintf(stderr, "bench_ops: %s: %s\n", op, es.v[0].text);
        exit(1);
    }
    schemas[0] = c->n > 1 ? c->stage[c->n - 2].ctx.out[0] : in;
    struct op_plan p = { .config = conf,
                         .nin = 1,
                         .in_name = in_name,
                         .in = schemas,
                         .nout = 1,
                         .out_name = out_name,
                         .out = schemas + 1,
                         .nby = by != NULL,
                         .by = &by,
                         .arena = &c->arena,
                         .report = report };
    s->desc->plan(&p);
    if (by)
        *index = schema_find(schemas[0], by);
    s->ctx = (struct op_ctx){ .desc = s->desc,
                              .config = conf,
                              .nin = 1,
                              .nout = 1,
                              .in = schemas,
                              .out = schemas + 1,
                              .in_name = in_name,
                              .out_name = out_name,
                              .nby = by != NULL,
                              .by = index,
                              .instance = (uint64_t)c->n,
                              .arena = &c->tick,
                              .count = &s->counts,
                              .host = &c->host,
                              .task = (struct task *)s };
    s->self = calloc(1, s->desc->self_size);
    if (!s->self || s->desc->open(s->self, &s->ctx, &e) < 0) {
        fprintf(stderr, "bench_ops: %s: %s\n", op, e.text);
        exit(1);
    }
}

/* ---- rows ---- */

static void make_keys(struct chain *c, uint32_t keys) {
    c->keys = keys;
    c->key = calloc(keys, sizeof *c->key);
    for (uint32_t k = 0; k < keys; k++) {
        snprintf(c->key[k], sizeof *c->key, "ci4lr75sl000802ypo4q%07u", k * 7919 % 9999991);
        if (k % 10)
            sbuf_printf(&c->members, "%s\n", c->key[k]);
        sbuf_printf(&c->table, "%s:building%u,solar\n", c->key[k], k % 10);
    }
}

static double value(uint64_t row, int f) {
    uint64_t h = (row * OBS + (uint64_t)f) * 0x9e3779b97f4a7c15u >> 40;
    static const double span[OBS] = { 60, 100, 20000, 4000, 300 };
    return (double)h / (1 << 24) * span[f];
}

/* The text of a key lies where a decoder would have put it: in memory of the tick. */
static struct span key_span(struct chain *c, uint64_t record) {
    const char *k = c->key[record % c->keys];
    char *p = arena_alloc(&c->tick, 28);
    memcpy(p, k, 27);
    return (struct span){ .p = p, .len = 27 };
}

static const struct schema *wide_schema(struct arena *a) {
    struct field *f;
    struct schema *s = schema_new(a, OBS + 2, &f);
    f[0] = (struct field){ .name = "source", .type = TYPE_STR };
    f[1] = (struct field){ .name = "timestamp", .type = TYPE_I64 };
    for (int i = 0; i < OBS; i++)
        f[2 + i] = (struct field){ .name = obs_name[i], .type = TYPE_F64 };
    return s;
}
static struct batch *wide_batch(struct chain *c, const struct schema *schema, uint64_t first,
                                struct origin *o) {
    struct arena *a = &c->tick;
    struct column *cols = arena_zalloc(a, sizeof *cols * (OBS + 2));
    struct span *key = ARENA_ARRAY(a, struct span, BATCH_ROWS);
    int64_t *time = ARENA_ARRAY(a, int64_t, BATCH_ROWS);
    double *v[OBS];
    for (int f = 0; f < OBS; f++)
        cols[2 + f].f64 = v[f] = ARENA_ARRAY(a, double, BATCH_ROWS);
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        key[i] = key_span(c, first + i);
        time[i] = (int64_t)(first + i);
        for (int f = 0; f < OBS; f++)
            v[f][i] = value(first + i, f);
    }
    cols[0].str = key;
    cols[1].i64 = time;
    struct batch *b = ARENA_NEW(a, struct batch);
    *b = (struct batch){ .schema = schema,
                         .cols = cols,
                         .rows = BATCH_ROWS,
                         .n = BATCH_ROWS,
                         .off0 = (int64_t)first,
                         .time = time,
                         .origin = o };
    return b;
}

static const struct schema *exploded_schema(struct arena *a) {
    struct field *f;
    struct schema *s = schema_new(a, 5, &f);
    f[0] = (struct field){ .name = "source", .type = TYPE_STR };
    f[1] = (struct field){ .name = "timestamp", .type = TYPE_I64 };
    f[2] = (struct field){ .name = "msgid", .type = TYPE_I64 };
    f[3] = (struct field){ .name = "obs", .type = TYPE_STR };
    f[4] = (struct field){ .name = "value", .type = TYPE_F64 };
    return s;
}
/* Full batches: records straddle them. */
static struct batch *exploded_batch(struct chain *c, const struct schema *schema, uint64_t first,
                                    struct origin *o) {
    struct arena *a = &c->tick;
    struct column *cols = arena_zalloc(a, sizeof *cols * 5);
    struct span *key = ARENA_ARRAY(a, struct span, BATCH_ROWS);
    struct span *obs = ARENA_ARRAY(a, struct span, BATCH_ROWS), last = { 0 };
    int64_t *id = ARENA_ARRAY(a, int64_t, BATCH_ROWS), *sub = ARENA_ARRAY(a, int64_t, BATCH_ROWS);
    double *v = ARENA_ARRAY(a, double, BATCH_ROWS);
    for (uint32_t i = 0; i < BATCH_ROWS; i++) {
        uint64_t record = (first + i) / OBS;
        int f = (int)((first + i) % OBS);
        if (i == 0 || f == 0)
            last = key_span(c, record);
        key[i] = last;
        id[i] = (int64_t)record;
        sub[i] = f;
        obs[i] = (struct span){ .p = obs_name[f], .len = (uint32_t)strlen(obs_name[f]) };
        v[i] = value(record, f);
    }
    cols[0].str = key;
    cols[1].i64 = id;
    cols[2].i64 = id;
    cols[3].str = obs;
    cols[4].f64 = v;
    struct batch *b = ARENA_NEW(a, struct batch);
    *b = (struct batch){ .schema = schema,
                         .cols = cols,
                         .rows = BATCH_ROWS,
                         .n = BATCH_ROWS,
                         .off = id,
                         .sub = sub,
                         .time = id,
                         .origin = o };
    return b;
}

/* ---- measuring ---- */

static uint64_t pass(struct chain *c, const struct schema *schema, bool wide, uint64_t first,
                     double *spent) {
    struct origin origin = { .name = "bench" };
    for (uint32_t at = 0, tick = 0; at < ROWS; at += BATCH_ROWS, tick++) {
        const struct batch *b = wide ? wide_batch(c, schema, first + at, &origin)
                                     : exploded_batch(c, schema, first + at, &origin);
        for (int i = 0; i < c->n && b; i++) {
            struct stage *s = &c->stage[i];
            double from = bench_thread_cpu();
            s->out = NULL;
            s->desc->process(s->self, &s->ctx, 0, b);
            spent[i] += bench_thread_cpu() - from;
            b = s->out;
        }
        arena_reset(&c->tick);
        if (tick % EPOCH_TICKS == EPOCH_TICKS - 1) {
            undo_push(c->undo);
            undo_commit(c->undo);
        }
    }
    return first + ROWS;
}

static void measure(bool wide, uint32_t keys, const char *suffix, double bar) {
    struct chain c = { .host = { on_emit, on_reject, on_state } };
    the_chain = &c;
    c.undo = undo_new();
    make_keys(&c, keys);
    const struct schema *schema = wide ? wide_schema(&c.arena) : exploded_schema(&c.arena);
    const char *exploded = ",\"name_field\":\"obs\",\"value_field\":\"value\"}";
    const char *ranges =
        "{\"mode\":\"null\",\"ranges\":{\"temperature\":[-12.5,43.1],\"humidity\":[10.7,95.2],"
        "\"light\":[1345,26282],\"dust\":[186.61,5188.21],\"airquality_raw\":[17,363]}";
    const char *fields =
        "\"fields\":[\"temperature\",\"humidity\",\"light\",\"dust\",\"airquality_raw\"]";
    add_stage(&c, "range_filter", arena_printf(&c.arena, "%s%s", ranges, wide ? "}" : exploded),
              NULL, schema);
    add_stage(&c, "bloom_filter",
              arena_printf(&c.arena,
                           "{\"field\":\"source\",\"members\":\"members\",\"mode\":"
                           "\"null\",%s}",
                           wide ? fields : "\"fields\":[\"value\"]"),
              NULL, NULL);
    add_stage(&c, "interpolate", arena_printf(&c.arena, "{%s%s", fields, wide ? "}" : exploded),
              "source", NULL);
    if (!wide)
        add_stage(&c, "join",
                  "{\"need\":[\"temperature\",\"humidity\",\"light\",\"dust\","
                  "\"airquality_raw\"]}",
                  "msgid", NULL);
    add_stage(&c, "annotate",
              "{\"table\":\"table\",\"key\":\"source\",\"columns\":{\"location\":\"string\","
              "\"type\":\"string\"}}",
              NULL, NULL);
    uint64_t first = 0;
    for (int r = 0; r < REPEAT; r++) { /* the first pass fills the state */
        double spent[STAGES_MAX] = { 0 };
        first = pass(&c, schema, wide, first, spent);
        for (int i = 0; i < c.n; i++)
            if (r == 1 || (r > 1 && spent[i] < c.stage[i].s))
                c.stage[i].s = spent[i];
    }
    double all = 0;
    for (int i = 0; i < c.n; i++) {
        char name[80];
        struct stage *s = &c.stage[i];
        snprintf(name, sizeof name, "op_%s_%s%s_ns", s->desc->name, wide ? "wide" : "exploded",
                 suffix);
        bench_figure(name, s->s / ROWS * 1e9, wide ? "ns/record" : "ns/row", AT_MOST, bar);
        all += s->s;
        bench_use(s->counts.out);
    }
    char name[80];
    snprintf(name, sizeof name, "op_etl_%s%s_ns", wide ? "wide" : "exploded", suffix);
    bench_figure(name, all / ROWS * 1e9 * (wide ? 1 : OBS), "ns/record", AT_MOST, 0);
    arena_free(&c.arena);
    arena_free(&c.tick);
    sbuf_free(&c.members);
    sbuf_free(&c.table);
    free(c.key);
}

int main(void) {
    operators_init();
    bench_calibrate();
    measure(true, 788, "", 60);
    measure(true, 100000, "_100k", 120);
    measure(false, 788, "", 25);
    measure(false, 100000, "_100k", 50);
    return 0;
}
