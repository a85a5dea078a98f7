#include "tests/unit/optest.h"
#include "engine/num.h"
#include "operators/all.h"
#include "tests/unit/harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* after setjmp.h and stdarg.h */
#include <cmocka.h>

enum { FIELDS_MAX = 64, WORDS_MAX = 64 };

/* ---- text in ---- */

static const char *words(struct arena *a, const char *text, char sep, const char **v, int max) {
    int n = 0;
    char *copy = arena_strdup(a, text);
    for (char *p = copy; p && *p;) {
        char *s = strchr(p, sep);
        if (s)
            *s++ = 0;
        if (*p) {
            assert_true(n < max);
            v[n++] = p;
        }
        p = s;
    }
    v[n] = NULL;
    return copy;
}

static int count(const char *const *v) {
    int n = 0;
    while (v[n])
        n++;
    return n;
}

const struct schema *optest_parse_schema(struct arena *a, const char *text) {
    const char *w[FIELDS_MAX + 1];
    words(a, text, ' ', w, FIELDS_MAX);
    struct field *f;
    struct schema *s = schema_new(a, count(w), &f);
    for (int i = 0; i < s->n; i++) {
        char *colon = strchr(w[i], ':');
        assert_non_null(colon);
        *colon = 0;
        f[i].name = w[i];
        f[i].type = type_parse(colon + 1, &f[i].dim);
        assert_true(f[i].type != TYPE_COUNT);
    }
    return s;
}

/* ---- one started operator ---- */

static int resolve_file(void *user, const char *name, struct file *f, struct err *e) {
    const struct optest *t = user;
    for (int i = 0; t->files && t->files[i]; i += 2) {
        if (strcmp(t->files[i], name) != 0)
            continue;
        f->data = t->files[i + 1];
        f->len = strlen(f->data);
        snprintf(f->hash, sizeof f->hash, "%016llx%016llx",
                 (unsigned long long)state_hash(f->data, (uint32_t)f->len),
                 (unsigned long long)f->len);
        return 0;
    }
    return err_set(e, ERR_INPUT, "no file '%s'", name);
}

static void plan_report(struct op_plan *p, const char *param, const char *key, const char *text) {
    struct errs *es = p->user;
    struct err e = ERR_INIT;
    err_set(&e, ERR_INPUT, "%s%s%s%s%s", param ? param : "", key ? "/" : "", key ? key : "",
            param ? ": " : "", text);
    errs_add(es, &e);
}

static void no_emit(struct op_ctx *c, int port, const struct batch *b) {
    (void)c;
    (void)port;
    (void)b;
}
static void no_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                      const char *text) {
    (void)c;
    (void)b;
    (void)row;
    (void)code;
    (void)text;
}

static struct optest_op *op_of(struct op_ctx *c) {
    return (struct optest_op *)c->task; /* the executor's field: ours here */
}

static struct state *open_state(struct op_ctx *c, int table, uint32_t vsize) {
    struct optest_op *o = op_of(c);
    assert_in_range(table, 0, STATE_TABLES - 1);
    assert_null(o->table[table]);
    o->table[table] = state_new(o->undo, c->instance, table, vsize);
    return o->table[table];
}

static void read_ports(struct optest_op *o, const struct optest *t, const struct schema *in) {
    struct arena *a = &o->arena;
    const char **name = ARENA_ARRAY(a, const char *, OP_PORTS_MAX + 1);
    const struct schema **schema = ARENA_ARRAY(a, const struct schema *, OP_PORTS_MAX);
    const char *part[OP_PORTS_MAX + 1];
    words(a, t->in ? t->in : "", '|', part, OP_PORTS_MAX);
    for (int i = 0; part[i]; i++) {
        char *eq = strchr(part[i], '=');
        name[i] = o->desc->in_ports ? o->desc->in_ports[i] : "in";
        if (eq) {
            *eq = 0;
            name[i] = part[i];
            part[i] = eq + 1;
        }
        schema[i] = optest_parse_schema(a, part[i]);
        o->ctx.nin = i + 1;
    }
    if (in) {
        name[0] = "in";
        schema[0] = in;
        o->ctx.nin = 1;
    }
    o->ctx.in_name = name;
    o->ctx.in = schema;
    static const char *const one_out[] = { "out", NULL };
    const char **out = ARENA_ARRAY(a, const char *, OP_PORTS_MAX + 1);
    const char *const *given = o->desc->out_ports ? o->desc->out_ports : one_out;
    if (t->out)
        words(a, t->out, ' ', out, OP_PORTS_MAX);
    o->ctx.out_name = t->out ? out : given;
    o->ctx.nout = o->desc->flags & OP_SINK ? 0 : count(o->ctx.out_name);
}

static struct op_by read_keys(struct optest_op *o, const char *text, const struct schema *in,
                              const char **by) {
    int *index = ARENA_ARRAY(&o->arena, int, OP_BY_MAX), n = 0;
    words(&o->arena, text, ' ', by, OP_BY_MAX);
    for (; by[n]; n++) {
        index[n] = schema_find(in, by[n]);
        assert_true(index[n] >= 0);
    }
    return (struct op_by){ n, index };
}

static void read_by(struct optest_op *o, const struct optest *t, const char **by) {
    const char *part[OP_PORTS_MAX + 1], *other[OP_BY_MAX + 1];
    struct op_by *keys = arena_zalloc(&o->arena, sizeof *keys * OP_PORTS_MAX);
    words(&o->arena, t->by ? t->by : "", '|', part, OP_PORTS_MAX);
    by[0] = NULL;
    for (int i = 0; i < o->ctx.nin && part[i]; i++)
        keys[i] = read_keys(o, part[i], o->ctx.in[i], i ? other : by);
    o->ctx.keys = keys;
    o->ctx.nby = keys[0].n;
    o->ctx.by = keys[0].field;
}

static int plan(struct optest_op *o, const char *const *by) {
    const struct schema **out = ARENA_ARRAY(&o->arena, const struct schema *, OP_PORTS_MAX);
    o->ctx.out = out;
    bool timed[OP_PORTS_MAX];
    memset(timed, true, sizeof timed);
    struct op_plan p = { .config = o->ctx.config,
                         .nin = o->ctx.nin,
                         .in_name = o->ctx.in_name,
                         .in = o->ctx.in,
                         .nout = o->ctx.nout,
                         .out_name = o->ctx.out_name,
                         .out = out,
                         .nby = o->ctx.nby,
                         .by = by,
                         .in_time = true,
                         .keys = o->ctx.keys,
                         .timed = timed,
                         .arena = &o->arena,
                         .user = &o->errs,
                         .report = plan_report };
    if (o->desc->plan)
        o->desc->plan(&p);
    else
        for (int i = 0; i < p.nout; i++)
            out[i] = o->ctx.in[0];
    return p.errors ? ERR_INPUT : 0;
}

static int start(struct optest_op *o) {
    struct err e = ERR_INIT;
    o->ctx.instance = 1;
    o->ctx.arena = &o->tick;
    o->ctx.count = &o->counts;
    o->ctx.host = &o->host;
    o->ctx.task = (struct task *)o;
    o->ctx.next_timer = o->ctx.wm = TIME_MIN;
    o->self = calloc(1, o->desc->self_size ? o->desc->self_size : 1);
    assert_non_null(o->self);
    memset(o->table, 0, sizeof o->table);
    int rc = o->desc->open ? o->desc->open(o->self, &o->ctx, &e) : 0;
    if (rc < 0)
        errs_add(&o->errs, &e);
    return rc;
}

static void stop(struct optest_op *o) {
    if (o->self && o->desc->close)
        o->desc->close(o->self);
    for (int i = 0; i < STATE_TABLES; i++) {
        if (!o->table[i])
            continue;
        undo_forget(o->undo, o->table[i]);
        state_free(o->table[i]);
        o->table[i] = NULL;
    }
    free(o->self);
    o->self = NULL;
}

int optest_open(struct optest_op *o, const struct optest *t, const struct schema *in) {
    *o = (struct optest_op){ 0 };
    if (!ops_count)
        operators_init();
    o->desc = ops_find(t->op);
    if (!o->desc)
        fail_msg("no operator '%s'", t->op);
    o->host = (struct op_host){ .emit = no_emit, .reject = no_reject, .state = open_state };
    o->undo = undo_new();
    o->ctx.desc = o->desc;
    struct json_doc doc;
    const char *text = t->config ? t->config : "{}";
    if (json_parse(&doc, NULL, text, strlen(text), &o->arena, &o->errs) < 0)
        return ERR_INPUT;
    void *config = arena_zalloc(&o->arena, o->desc->config_size + 1);
    o->ctx.config = config;
    if (params_parse(o->desc, &doc, doc.root, config, &o->arena, resolve_file, (void *)t,
                     &o->errs) < 0)
        return ERR_INPUT;
    const char *by[OP_BY_MAX + 1];
    read_ports(o, t, in);
    read_by(o, t, by);
    int rc = plan(o, by);
    return rc < 0 ? rc : start(o);
}

void optest_close(struct optest_op *o) {
    stop(o);
    undo_free(o->undo);
    errs_free(&o->errs);
    arena_free(&o->tick);
    arena_free(&o->arena);
}

/* ---- events: the parsed script ---- */

enum event_kind { EV_ROW, EV_WM };
struct event {
    enum event_kind kind;
    int port;
    int64_t time, wm;
    int64_t off, sub;   /* position of a row; of a mark: of the row before */
    const char **value; /* cells; NULL: null */
};
struct script {
    struct event *ev;
    uint32_t n, rows;
    bool timed;
    bool share; /* offsets: see optest.h */
    struct origin origin;
};

static char *split_cells(struct arena *a, char *line, int n, const char **value) {
    for (int i = 0; i < n; i++) {
        char *comma = strchr(line, ',');
        if ((comma == NULL) != (i == n - 1))
            fail_msg("row needs %d values: ...%s", n, line);
        if (comma)
            *comma = 0;
        value[i] = strcmp(line, "null") == 0 ? NULL : line;
        line = comma ? comma + 1 : line + strlen(line);
    }
    (void)a;
    return line;
}

static int64_t read_i64(const char *s, char **end) {
    const char *stop = s + strlen(s), *p;
    int64_t v = 0;
    p = num_parse_i64(s, stop, &v);
    if (!p)
        fail_msg("no integer: %s", s);
    *end = (char *)p;
    return v;
}

/* A mark ends an offset. */
static void place_row(const struct script *s, struct event *e) {
    const struct event *last = s->n > 1 ? e - 1 : NULL;
    if (!last)
        return;
    bool same = s->share && last->kind == EV_ROW && last->sub < 2;
    e->off = last->off + !same;
    e->sub = same ? last->sub + 1 : 0;
}

static void read_row(struct script *s, struct arena *a, const struct op_ctx *c, char *line,
                     int64_t wm) {
    struct event *e = &s->ev[s->n++];
    *e = (struct event){ .kind = EV_ROW, .wm = wm, .time = TIME_MIN };
    place_row(s, e);
    s->rows++;
    char *gt = strchr(line, '>');
    if (gt && c->nin > 1) {
        *gt = 0;
        while (e->port < c->nin && strcmp(c->in_name[e->port], line) != 0)
            e->port++;
        assert_true(e->port < c->nin);
        line = gt + 1;
    }
    if (*line == '@') {
        e->time = read_i64(line + 1, &line);
        line += *line == ' ';
        s->timed = true;
    }
    int n = c->in[e->port]->n;
    e->value = ARENA_ARRAY(a, const char *, n + 1);
    split_cells(a, line, n, e->value);
}

static void read_script(struct script *s, struct arena *a, const struct op_ctx *c, bool share,
                        const char *text) {
    uint32_t lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    *s = (struct script){ .ev = ARENA_ARRAY(a, struct event, lines + 2), .share = share };
    struct span *raw = ARENA_ARRAY(a, struct span, lines + 2);
    char *copy = arena_strdup(a, text), *next;
    int64_t wm = TIME_MIN;
    for (char *line = copy; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (*line != '!') {
            if (!*line)
                continue;
            raw[s->rows] =
                (struct span){ .p = arena_strdup(a, line), .len = (uint32_t)strlen(line) };
            read_row(s, a, c, line, wm);
            continue;
        }
        char *end;
        wm = strcmp(line, "!end") == 0 ? TIME_MAX : read_i64(line + 4, &end);
        s->timed = true;
        int64_t off = s->n ? s->ev[s->n - 1].off : -1;
        s->ev[s->n++] = (struct event){ .kind = EV_WM, .wm = wm, .off = off };
    }
    s->origin = (struct origin){ .id = 7, .name = "test", .n = s->rows, .raw = raw };
}

/* ---- rows to columns ---- */

struct gen {
    uint64_t seed;
    bool holes;
};

static void put_cell(struct arena *a, const struct field *f, struct column *c, uint64_t *nulls,
                     uint32_t row, const char *v) {
    if (!v) {
        bit_set(nulls, row);
        return;
    }
    const char *end = v + strlen(v);
    switch (f->type) {
    case TYPE_BOOL:
        ((uint8_t *)c->p)[row] = strcmp(v, "true") == 0;
        break;
    case TYPE_I64:
        assert_int_equal(num_i64_whole(v, end, (int64_t *)c->p + row), 0);
        break;
    case TYPE_F64:
        assert_int_equal(num_f64_whole(v, end, (double *)c->p + row), 0);
        break;
    case TYPE_STR:
    case TYPE_BYTES:
        /* in memory of the tick, as from a decoder: the next tick puts other text there */
        ((struct span *)c->p)[row] = (struct span){ .p = arena_strndup(a, v, (size_t)(end - v)),
                                                    .len = (uint32_t)(end - v) };
        break;
    case TYPE_VEC:
    case TYPE_COUNT:
        fail_msg("field '%s': vectors have no text form here", f->name);
    }
}

/* Values that no selection lists must not matter, whatever they are. */
static void put_garbage(const struct field *f, struct column *c, uint64_t *nulls, uint32_t row,
                        uint64_t *seed) {
    static const char *const junk[] = { "temperature", "", "zzz", "light", "k1", "k2" };
    uint64_t r = test_random(seed);
    if (r % 5 == 0) {
        bit_set(nulls, row);
    } else if (f->type == TYPE_BOOL) {
        ((uint8_t *)c->p)[row] = r >> 8 & 1;
    } else if (f->type == TYPE_STR || f->type == TYPE_BYTES) {
        const char *s = junk[(r >> 8) % 6];
        ((struct span *)c->p)[row] = (struct span){ .p = s, .len = (uint32_t)strlen(s) };
    } else {
        int64_t i = (int64_t)(r >> 8 & 0xffff) - 30000;
        if (f->type == TYPE_I64)
            ((int64_t *)c->p)[row] = i;
        else
            ((double *)c->p)[row] = (double)i / 7;
    }
}

static size_t width(enum type t) {
    return t == TYPE_BOOL ? 1 : t == TYPE_STR || t == TYPE_BYTES ? sizeof(struct span) : 8;
}

/* A batch of the rows ev[0..n), all of one port; with holes between them when asked for. */
static const struct batch *make_batch(struct arena *a, const struct script *s,
                                      const struct schema *schema, const struct event *const *ev,
                                      uint32_t n, struct gen *g) {
    uint16_t *sel = ARENA_ARRAY(a, uint16_t, n);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (g->holes && rows + (n - i) < BATCH_ROWS && test_random(&g->seed) % 3 == 0)
            rows++;
        sel[i] = (uint16_t)rows++;
    }
    int64_t *off = ARENA_ARRAY(a, int64_t, rows), *time = ARENA_ARRAY(a, int64_t, rows);
    int64_t *wm = ARENA_ARRAY(a, int64_t, rows), *sub = ARENA_ARRAY(a, int64_t, rows);
    struct column *cols = arena_zalloc(a, sizeof *cols * (size_t)(schema->n + 1));
    uint64_t **nulls = ARENA_ARRAY(a, uint64_t *, schema->n + 1);
    for (int f = 0; f < schema->n; f++) {
        cols[f].p = arena_zalloc(a, width(schema->f[f].type) * rows);
        nulls[f] = batch_nulls(a, rows);
    }
    for (uint32_t r = 0, i = 0; r < rows; r++) {
        const struct event *e = ev[i];
        bool real = sel[i] == r;
        off[r] = e->off;
        sub[r] = e->sub;
        time[r] = e->time;
        wm[r] = e->wm;
        for (int f = 0; f < schema->n; f++) {
            if (real)
                put_cell(a, &schema->f[f], &cols[f], nulls[f], r, e->value[f]);
            else
                put_garbage(&schema->f[f], &cols[f], nulls[f], r, &g->seed);
        }
        i += real && i + 1 < n;
    }
    for (int f = 0; f < schema->n; f++) {
        uint64_t any = 0;
        for (size_t w = 0; w < bits_words(rows); w++)
            any |= nulls[f][w];
        cols[f].nulls = any ? nulls[f] : NULL;
    }
    struct batch *b = ARENA_NEW(a, struct batch);
    *b = (struct batch){ .schema = schema,
                         .cols = cols,
                         .rows = rows,
                         .n = n,
                         .sel = rows == n ? NULL : sel,
                         .off0 = off[0],
                         .off = off,
                         .sub = sub,
                         .time = s->timed ? time : NULL,
                         .wm = s->timed ? wm : NULL,
                         .origin = &s->origin };
    return b;
}

/* ---- text out ---- */

struct output {
    struct sbuf port[OP_PORTS_MAX], dead;
    int64_t last_off[OP_PORTS_MAX], last_sub[OP_PORTS_MAX];
};
struct runner {
    struct optest_op *op;
    struct output out;
    uint64_t seed;
};

static void print_value(struct sbuf *o, const struct field *f, const struct column *c,
                        uint32_t row) {
    char num[NUM_F64_MAX_LEN];
    if (column_null(c, row)) {
        sbuf_adds(o, "null");
        return;
    }
    switch (f->type) {
    case TYPE_BOOL:
        sbuf_adds(o, c->b[row] ? "true" : "false");
        break;
    case TYPE_I64:
        sbuf_add(o, num, (size_t)num_write_i64(num, c->i64[row]));
        break;
    case TYPE_F64:
        assert_true(c->f64[row] - c->f64[row] == 0); /* neither NaN nor infinite */
        sbuf_add(o, num, (size_t)num_write_f64(num, c->f64[row]));
        break;
    case TYPE_STR:
    case TYPE_BYTES:
        sbuf_add(o, c->str[row].p, c->str[row].len);
        break;
    case TYPE_VEC:
    case TYPE_COUNT:
        sbuf_adds(o, "?");
    }
}

/* Every line is followed by TAB and its position, which optest_run cuts off at the end. */
static void on_emit(struct op_ctx *c, int port, const struct batch *b) {
    struct runner *r = op_of(c)->user;
    struct sbuf *o = &r->out.port[port];
    assert_in_range(port, 0, c->nout - 1);
    assert_true(schema_equal(b->schema, c->out[port]));
    assert_true(b->rows <= BATCH_ROWS && b->n <= b->rows);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        assert_true(row < b->rows && (!i || row > batch_row(b, i - 1)));
        int64_t off = batch_off(b, row), sub = batch_sub(b, row);
        bool falls = off < r->out.last_off[port] ||
                     (off == r->out.last_off[port] && sub < r->out.last_sub[port]);
        if (falls)
            fail_msg("positions fall (seed %llu)", (unsigned long long)r->seed);
        r->out.last_off[port] = off;
        r->out.last_sub[port] = sub;
        if (c->nout > 1)
            sbuf_printf(o, "%s>", c->out_name[port]);
        if (b->time && b->time[row] != TIME_MIN)
            sbuf_printf(o, "@%lld ", (long long)b->time[row]);
        for (int f = 0; f < b->schema->n; f++) {
            if (f)
                sbuf_adds(o, ",");
            print_value(o, &b->schema->f[f], &b->cols[f], row);
        }
        sbuf_printf(o, "\t%lld.%lld.%lld\n", (long long)off, (long long)sub,
                    (long long)(b->wm ? b->wm[row] : 0));
    }
}

static void on_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
                      const char *text) {
    struct runner *r = op_of(c)->user;
    assert_true(utf8_valid(text, text + strlen(text)));
    sbuf_printf(&r->out.dead, "!reject %s: %s\t%lld\n", code, text, (long long)batch_off(b, row));
}

static char *finish_output(struct output *o, int nout, bool positions) {
    struct sbuf all = { 0 };
    for (int i = 0; i < nout; i++) {
        sbuf_add(&all, o->port[i].p, o->port[i].len);
        sbuf_free(&o->port[i]);
    }
    sbuf_add(&all, o->dead.p, o->dead.len);
    sbuf_free(&o->dead);
    char *text = strdup(sbuf_str(&all)), *to = text;
    sbuf_free(&all);
    for (char *p = text; !positions && *p;) {
        char *tab = strchr(p, '\t'), *nl = strchr(tab, '\n');
        memmove(to, p, (size_t)(tab - p));
        to += tab - p;
        *to++ = '\n';
        p = nl + 1;
    }
    if (!positions)
        *to = 0;
    return text;
}

/* ---- epochs ---- */

/* Where an epoch began: what an abort goes back to. */
struct mark {
    uint32_t ev;
    struct op_counts counts;
    struct output out;
    int64_t wm;
};

static void store_put(void *arg, uint64_t instance, int table, const void *key, uint32_t klen,
                      const void *value, uint32_t vlen) {
    struct state **store = arg;
    (void)instance;
    uint64_t h = state_hash(key, klen);
    if (value)
        state_put(store[table], key, klen, h, value, vlen);
    else
        state_drop(store[table], key, klen, h);
}

/* Close, open, load: what a restarted worker does. */
static void reload(struct optest_op *o, struct state **store) {
    int64_t wm = o->ctx.wm;
    stop(o);
    assert_int_equal(start(o), 0);
    for (int t = 0; t < STATE_TABLES; t++) {
        const void *key, *value;
        uint32_t klen, vlen;
        for (uint64_t it = 0; state_next(store[t], &it, &key, &klen, &value, &vlen);) {
            assert_non_null(o->table[t]);
            state_load(o->table[t], key, klen, value, vlen);
        }
    }
    o->ctx.wm = wm;
    if (o->desc->rebuild)
        o->desc->rebuild(o->self, &o->ctx);
}

static void mark_here(struct mark *m, const struct runner *r, uint32_t ev) {
    *m = (struct mark){ .ev = ev, .counts = r->op->counts, .out = r->out, .wm = r->op->ctx.wm };
}

static void back_to(struct runner *r, const struct mark *m, uint32_t *ev) {
    struct optest_op *o = r->op;
    undo_abort(o->undo);
    *ev = m->ev;
    o->counts = m->counts;
    for (int i = 0; i < OP_PORTS_MAX; i++) {
        r->out.port[i].len = m->out.port[i].len;
        r->out.last_off[i] = m->out.last_off[i];
        r->out.last_sub[i] = m->out.last_sub[i];
    }
    r->out.dead.len = m->out.dead.len;
    o->ctx.wm = m->wm;
    o->ctx.next_timer = TIME_MIN;
    if (o->desc->rebuild)
        o->desc->rebuild(o->self, &o->ctx);
}

/* ---- the run ---- */

static void watermark(struct optest_op *o, const struct event *e, const struct origin *origin) {
    bool due = o->desc->watermark && e->wm >= o->ctx.next_timer;
    if (e->wm > o->ctx.wm)
        o->ctx.wm = e->wm;
    if (!due)
        return;
    o->ctx.fire_off = e->off;
    o->ctx.origin = origin;
    o->desc->watermark(o->self, &o->ctx, e->wm);
    assert_true(e->wm == TIME_MAX || o->ctx.next_timer > e->wm);
}

/* One tick from event *at on: rows of one port up to the wished size, over watermarks that nobody
 * waits for, then at most one that somebody does. */
static void tick(struct runner *r, const struct script *s, uint32_t *at, uint32_t size,
                 struct gen *g) {
    struct optest_op *o = r->op;
    const struct event *row[BATCH_ROWS], *due = NULL;
    uint32_t n = 0;
    for (; *at < s->n; ++*at) {
        const struct event *e = &s->ev[*at];
        if (e->kind == EV_WM) {
            if (n && o->desc->watermark && e->wm >= o->ctx.next_timer)
                break;
            if (n == 0)
                due = e;
            if (n == 0) {
                ++*at;
                break;
            }
            continue;
        }
        if (n == size || (n && e->port != row[0]->port))
            break;
        row[n++] = e;
    }
    o->ctx.origin = &s->origin;
    if (n) {
        const struct batch *b = make_batch(&o->tick, s, o->ctx.in[row[0]->port], row, n, g);
        o->counts.in += n;
        o->desc->process(o->self, &o->ctx, row[0]->port, b);
    }
    if (due)
        watermark(o, due, &s->origin);
    if (o->desc->end)
        o->desc->end(o->self, &o->ctx);
    arena_reset(&o->tick);
}

static void check_counts(const struct op_counts *c, uint64_t seed) {
    uint64_t in = c->passed + c->filtered + c->late + c->rejected + c->absorbed;
    if (c->in != in || c->out != c->passed + c->made)
        fail_msg("row accounting (seed %llu): in %llu = passed %llu + filtered %llu + late %llu + "
                 "rejected %llu + absorbed %llu; out %llu = passed + made %llu",
                 (unsigned long long)seed, (unsigned long long)c->in, (unsigned long long)c->passed,
                 (unsigned long long)c->filtered, (unsigned long long)c->late,
                 (unsigned long long)c->rejected, (unsigned long long)c->absorbed,
                 (unsigned long long)c->out, (unsigned long long)c->made);
}

/* Ends the running epoch in one of the ways that the mode allows. old: begin of the committing
 * epoch, now: of the running one. */
static void end_epoch(struct runner *r, const struct optest_mode *m, struct mark *old,
                      struct mark *now, bool *committing, uint32_t *ev, struct state **store,
                      int *aborts) {
    uint64_t dice = test_random(&r->seed);
    if (*committing && (dice >> 8) % 2) { /* the one before becomes durable */
        undo_commit(r->op->undo);
        *committing = false;
    }
    if (m->undo && dice % 3 == 0 && ++*aborts < 200) {
        back_to(r, *committing ? old : now, ev);
        *committing = false;
        mark_here(now, r, *ev);
        return;
    }
    if (*committing)
        undo_commit(r->op->undo);
    if (!m->undo) { /* what is collected must never be aborted afterwards */
        undo_collect(r->op->undo, store_put, store);
        undo_push(r->op->undo);
        undo_commit(r->op->undo);
        *committing = false;
        if (m->reload && dice >> 16 & 1)
            reload(r->op, store);
    } else {
        undo_push(r->op->undo);
        *committing = true;
        *old = *now;
    }
    mark_here(now, r, *ev);
}

/* The same for equal tables, in whatever order their keys are. */
static uint64_t digest(const struct optest_op *o) {
    uint64_t sum = 0;
    for (int t = 0; t < STATE_TABLES; t++) {
        const void *key, *value;
        uint32_t klen, vlen;
        for (uint64_t it = 0;
             o->table[t] && state_next(o->table[t], &it, &key, &klen, &value, &vlen);) {
            uint64_t both[2] = { state_hash(key, klen) + (uint64_t)t, state_hash(value, vlen) };
            sum += state_hash(both, sizeof both);
        }
    }
    return sum;
}

struct result {
    struct op_counts counts;
    uint64_t state;
};
static char *run(const struct optest *t, const char *rows, const struct optest_mode *m,
                 struct result *result, bool positions) {
    struct optest_op o;
    struct arena a = { 0 };
    struct script s;
    struct runner r = { .op = &o, .seed = m->seed };
    struct gen g = { .seed = m->seed ^ 0x9e3779b97f4a7c15u, .holes = m->holes };
    struct state *store[STATE_TABLES];
    struct undo *store_undo = undo_new();
    if (optest_open(&o, t, NULL) < 0)
        fail_msg("%s does not open: %s", t->op, o.errs.n ? o.errs.v[0].text : "?");
    o.user = &r;
    o.host.emit = on_emit;
    o.host.reject = on_reject;
    for (int i = 0; i < STATE_TABLES; i++)
        store[i] = state_new(store_undo, 0, i, 0);
    for (int i = 0; i < OP_PORTS_MAX; i++)
        r.out.last_off[i] = r.out.last_sub[i] = INT64_MIN;
    read_script(&s, &a, &o.ctx, t->share_offsets, rows);
    struct mark old, now;
    mark_here(&now, &r, 0);
    old = now;
    bool committing = false;
    int aborts = 0;
    for (uint32_t at = 0; at < s.n;) {
        uint32_t size = m->batch;
        if (!size) {
            uint64_t x = test_random(&r.seed);
            size = x & 1 ? 1 + (uint32_t)(x >> 8) % 7 : 1 + (uint32_t)(x >> 8) % BATCH_ROWS;
        }
        tick(&r, &s, &at, size, &g);
        if ((m->undo || m->reload) && test_random(&r.seed) % 3 == 0)
            end_epoch(&r, m, &old, &now, &committing, &at, store, &aborts);
    }
    check_counts(&o.counts, m->seed);
    *result = (struct result){ .counts = o.counts, .state = digest(&o) };
    char *text = finish_output(&r.out, o.ctx.nout, positions);
    for (int i = 0; i < STATE_TABLES; i++) {
        undo_forget(store_undo, store[i]);
        state_free(store[i]);
    }
    undo_free(store_undo);
    optest_close(&o);
    arena_free(&a);
    return text;
}

char *optest_run(const struct optest *t, const char *rows, const struct optest_mode *m,
                 struct op_counts *counts) {
    struct result r;
    char *text = run(t, rows, m, &r, false);
    if (counts)
        *counts = r.counts;
    return text;
}

uint64_t optest_state(const struct optest *t, const char *rows) {
    struct optest_mode m = { .batch = BATCH_ROWS };
    struct result r;
    free(run(t, rows, &m, &r, false));
    return r.state;
}

static void compare(const char *want, const char *got, const struct optest_mode *m) {
    if (strcmp(want, got) == 0)
        return;
    size_t i = 0;
    int line = 1;
    for (; want[i] == got[i]; i++)
        line += want[i] == '\n';
    while (i && want[i - 1] != '\n')
        i--;
    fail_msg("batch %u seed %llu%s%s%s: line %d is\n  %.*s\nwant\n  %.*s", m->batch,
             (unsigned long long)m->seed, m->holes ? " holes" : "", m->undo ? " undo" : "",
             m->reload ? " reload" : "", line, (int)strcspn(got + i, "\n"), got + i,
             (int)strcspn(want + i, "\n"), want + i);
}

char *optest_same(const struct optest *t, const char *rows, struct op_counts *counts) {
    uint64_t seed = test_seed(1);
    struct optest_mode base = { .batch = BATCH_ROWS };
    struct result r0, r;
    char *want = run(t, rows, &base, &r0, true);
    int rounds = test_scale(6);
    for (int i = 0; i < 1 + 4 * rounds; i++) {
        struct optest_mode m = { .batch = 1, .seed = seed + (uint64_t)i };
        if (i) {
            m.batch = i % 3 == 0 ? 1 : 0;
            m.holes = i / 4 & 1;
            m.undo = i % 4 == 1 || i % 4 == 2;
            m.reload = i % 4 == 3;
        }
        char *got = run(t, rows, &m, &r, true);
        compare(want, got, &m);
        assert_memory_equal(&r0.counts, &r.counts, sizeof r.counts);
        if (r.state != r0.state)
            fail_msg("%s: the state depends on batches, aborts or reloads (batch %u seed %llu)",
                     t->op, m.batch, (unsigned long long)m.seed);
        free(got);
    }
    free(want);
    if (counts)
        *counts = r0.counts;
    return run(t, rows, &base, &r, false);
}

void optest_expect(const struct optest *t, const char *rows, const char *want) {
    char *got = optest_same(t, rows, NULL);
    assert_string_equal(got, want);
    free(got);
}

char *optest_errors(const struct optest *t) {
    struct optest_op o;
    struct sbuf s = { 0 };
    optest_open(&o, t, NULL);
    for (int i = 0; i < o.errs.n; i++)
        sbuf_printf(&s, "%s\n", o.errs.v[i].text);
    char *text = strdup(sbuf_str(&s));
    sbuf_free(&s);
    optest_close(&o);
    return text;
}

char *optest_schema(const struct optest *t) {
    struct optest_op o;
    if (optest_open(&o, t, NULL) < 0)
        fail_msg("%s does not open: %s", t->op, o.errs.n ? o.errs.v[0].text : "?");
    char *text = strdup(schema_text(&o.tick, o.ctx.out[0]));
    optest_close(&o);
    return text;
}
