#include "tests/unit/plan_gen.h"
#include "tests/unit/harness.h"
#include <stdio.h>
#include <string.h>

static uint64_t rng;

void gen_seed(uint64_t seed) {
    rng = seed;
}

uint32_t rnd(uint32_t n) {
    return (uint32_t)(test_random(&rng) >> 33) % n;
}

bool chance(uint32_t percent) {
    return rnd(100) < percent;
}

const char *const kind_name[] = { "src", "face", "raw",  "parse", "map", "pick", "agg",
                                  "win", "pair", "sum2", "split", "any", "dice", "out" };
static const char *const by_json[] = { "",
                                       ",\"by\":[\"s\"]",
                                       ",\"by\":\"a\"",
                                       ",\"by\":[\"s\",\"a\"]",
                                       ",\"grouping\":\"all\"",
                                       ",\"grouping\":\"global\"",
                                       ",\"grouping\":\"shuffle\"" };

bool is_source(enum kind k) {
    return k == SRC || k == FACE || k == RAW;
}

static void gen_source(struct gtask *t) {
    t->kind = (enum kind)rnd(3);
    t->topic = (int)rnd(2);
    t->start = chance(10) ? 1 : 0;
    t->v = (int)rnd(2);
    t->fields = 3;
    t->time = t->kind != RAW;
}

static const char *pick_out(const struct gtask *t) {
    static const char *const any[] = { "out", "p1", "p2" };
    if (t->kind == SPLIT)
        return chance(50) ? "yes" : "no";
    return t->kind == ANY ? any[rnd(3)] : "out";
}

/* A task that may feed: no sink; raw ones only where their rows without time are welcome. */
static int pick_parent(const struct gflow *f, int n, bool any_time) {
    int i = (int)rnd((uint32_t)n);
    for (int k = 0; k < n; k++, i = (i + 1) % n)
        if (f->t[i].kind != OUT && (any_time || f->t[i].time))
            return i;
    return -1;
}

static enum by pick_by(int fields) {
    enum by by = chance(50) ? BY_NONE : (enum by)rnd(7);
    return (by == BY_SA || by == BY_A) && !(fields & 1) ? BY_S : by;
}

static bool add_link(struct gflow *f, struct gtask *t, int n, const char *in, enum by by) {
    int from = pick_parent(f, n, false);
    struct glink l = { from, "", in, by };
    if (from < 0 || t->nlinks == LINKS || f->t[from].fields != t->fields)
        return false;
    l.out = pick_out(&f->t[from]);
    for (int k = 0; k < t->nlinks; k++)
        if (t->link[k].from == from && strcmp(t->link[k].in, in) == 0 &&
            strcmp(t->link[k].out, l.out) == 0)
            return false;
    t->link[t->nlinks++] = l;
    return true;
}

void gen_task(struct gflow *f, int i, bool dice) {
    static const char *const two[2][2] = { { "left", "right" }, { "a", "b" } };
    static const char *const any[] = { "in", "x", "y" };
    struct gtask *t = &f->t[i];
    memset(t, 0, sizeof *t);
    snprintf(t->id, sizeof t->id, "%c%d", 'a' + (char)rnd(26), i);
    int from = i ? pick_parent(f, i, true) : -1;
    if (from < 0 || (i < 3 && chance(30))) {
        gen_source(t);
        return;
    }
    const struct gtask *up = &f->t[from];
    do {
        t->kind = chance(15) ? OUT : (enum kind)(PARSE + rnd(OUT - PARSE + 1));
    } while ((t->kind == DICE && !dice) || (t->kind == PARSE) != (up->kind == RAW));
    t->v = (int)rnd(2);
    t->w = (int)rnd(3);
    t->topic = -1;
    t->fields = up->fields;
    t->time = true;
    const char *in = t->kind == ANY ? any[rnd(3)] : "in";
    if (t->kind == PAIR || t->kind == SUM2)
        in = two[t->kind == SUM2][0];
    t->link[t->nlinks++] = (struct glink){ from, pick_out(up), in, pick_by(up->fields) };
    if (t->kind == PAIR || t->kind == SUM2) {
        if (!add_link(f, t, i, two[t->kind == SUM2][1], pick_by(t->fields))) {
            t->kind = MAP;
            t->link[0].in = "in";
        } else if (chance(50)) {
            struct glink x = t->link[0];
            t->link[0] = t->link[1];
            t->link[1] = x;
        }
    } else if (t->kind == ANY) {
        for (int k = (int)rnd(3); k > 0; k--)
            add_link(f, t, i, any[rnd(3)], t->link[0].by);
    } else if (t->kind != PARSE && chance(25)) {
        add_link(f, t, i, "in", t->link[0].by);
    }
    if (t->kind == PICK)
        t->fields = t->fields == 3 ? 1 + t->v : t->fields;
    if (t->kind == OUT)
        t->topic = chance(30) ? -1 : chance(50) ? 100 + (int)rnd(1000) : (int)rnd(20);
}

void purify(struct gtask *t) {
    if (is_source(t->kind))
        t->start = 0;
    if (t->kind == OUT)
        t->topic = -1;
}

void gen_flow(struct gflow *f, int number, bool pure, bool dice) {
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "f%d", number);
    f->tenant = chance(5);
    f->own = !pure && chance(30);
    f->n = 2 + (int)rnd(TASKS - 1);
    for (int i = 0; i < f->n; i++) {
        gen_task(f, i, dice && !pure);
        if (pure)
            purify(&f->t[i]);
    }
}

void vary_task(struct gflow *g, int i) {
    struct gtask *t = &g->t[i];
    snprintf(t->id, sizeof t->id, "%c%d", 'a' + (char)rnd(26), i);
    if (t->kind != PICK && chance(10))
        t->v = !t->v;
    if (t->kind == OUT && t->topic >= 4 && chance(40))
        t->topic = 100 + (int)rnd(100);
    if (t->nlinks && chance(10) && t->link[0].by != BY_NONE) {
        enum by by = pick_by(g->t[t->link[0].from].fields);
        for (int k = 0; k < t->nlinks; k++)
            if (strcmp(t->link[k].in, t->link[0].in) == 0 || t->kind == ANY)
                t->link[k].by = by;
    }
    if (t->nlinks == 1 && chance(20))
        t->link[0].out = pick_out(&g->t[t->link[0].from]);
    if (t->nlinks > 1 && chance(50)) { /* order of inputs */
        struct glink x = t->link[0];
        t->link[0] = t->link[t->nlinks - 1];
        t->link[t->nlinks - 1] = x;
    }
}

/* ---- as JSON, in one of many spellings ---- */

static void text_config(struct sbuf *b, const struct gtask *t) {
    static const char *const number[] = { "%d", "%d.0", "%de0" };
    static const char *const params[2][2] = { { "{\"p\":1,\"q\":[2.50,\"z\"]}",
                                                "{ \"q\" : [25e-1, \"\\u007a\"], \"p\":1.0 }" },
                                              { "{\"p\":2}", "{\"p\":2.0}" } };
    const char *sep = "";
    sbuf_adds(b, "\"config\":{");
#define KEY(...) (sbuf_printf(b, "%s", sep), sep = ",", sbuf_printf(b, __VA_ARGS__))
    if (t->topic >= 0)
        KEY("\"topic\":\"t%d\"", t->topic);
    if (is_source(t->kind) && (t->start || chance(20)))
        KEY("\"start\":\"%s\"", t->start ? "earliest" : "latest");
    switch (t->kind) {
    case SRC:
        KEY("\"seed\":%d", t->v);
        break;
    case FACE:
    case PARSE:
        if (t->v || chance(50))
            KEY("\"lateness\":\"%s\"", t->v ? chance(50) ? "1s" : "1000ms" : "0s");
        break;
    case MAP:
        if (t->v || chance(50)) {
            KEY("\"x\":");
            sbuf_printf(b, number[rnd(3)], 1 + t->v);
        }
        if (t->w)
            KEY("\"y\":\"%s\"", t->w == 1 ? "u" : chance(50) ? "v" : "\\u0076");
        if (chance(30))
            KEY("\"label\":\"label %u\"", rnd(100));
        if (chance(30))
            KEY("\"threads\":%u", rnd(9));
        break;
    case PICK:
        KEY("\"field\":\"%s\"", t->fields == 1 ? "a" : "b");
        break;
    case WIN:
        KEY("\"every\":\"%s\"", t->v ? chance(50) ? "1m" : "60s" : "10s");
        break;
    case ANY:
        KEY("\"label\":\"%s\"", t->v ? "A" : "B");
        if (t->w)
            KEY("\"params\":%s", params[t->w - 1][rnd(2)]);
        break;
    case AGG:
    case PAIR:
    case SUM2:
    case SPLIT:
    case DICE:
        if (t->v || chance(50))
            KEY("\"n\":%d", 1 + t->v);
        break;
    case OUT:
        if (t->v)
            KEY("\"append\":true");
        break;
    case RAW:
        break;
    }
#undef KEY
    sbuf_adds(b, "}");
}

static void text_inputs(struct sbuf *b, const struct gflow *f, const struct gtask *t) {
    sbuf_adds(b, "\"inputs\":[");
    bool plain_to = t->kind != PAIR && t->kind != SUM2;
    for (int k = 0; k < t->nlinks; k++) {
        const struct glink *l = &t->link[k];
        const char *from = f->t[l->from].id;
        bool port = strcmp(l->out, "out") != 0 || chance(20);
        bool to = t->kind == ANY ? strcmp(l->in, "in") != 0 : !plain_to || chance(20);
        sbuf_adds(b, k ? "," : "");
        if (!to && l->by == BY_NONE && chance(70)) {
            sbuf_printf(b, "\"%s%s%s\"", from, port ? "." : "", port ? l->out : "");
            continue;
        }
        sbuf_printf(b, "{\"from\":\"%s%s%s\"", from, port ? "." : "", port ? l->out : "");
        if (to)
            sbuf_printf(b, ",\"to\":\"%s\"", l->in);
        sbuf_printf(b, "%s}", by_json[l->by]);
    }
    sbuf_adds(b, "]");
}

const char *text_of(const struct gflow *f, struct sbuf *b) {
    int order[TASKS];
    b->len = 0;
    sbuf_printf(b, "{\"braid\":1,\"name\":\"%s\"", f->name);
    if (f->own || chance(20))
        sbuf_printf(b, ",\"history\":\"%s\"", f->own ? "own" : "shared");
    if (f->tenant)
        sbuf_adds(b, ",\"tenant\":\"acme\"");
    sbuf_adds(b, ",\"tasks\":[");
    for (int i = 0; i < f->n; i++) { /* tasks in any order */
        int at = (int)rnd((uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < f->n; i++) {
        const struct gtask *t = &f->t[order[i]];
        sbuf_printf(b, "%s\n{\"id\":\"%s\",\"type\":\"%s\",", i ? "," : "", t->id,
                    kind_name[t->kind]);
        bool config_first = chance(50);
        if (config_first)
            text_config(b, t);
        if (t->nlinks) {
            sbuf_adds(b, config_first ? "," : "");
            text_inputs(b, f, t);
        }
        if (!config_first) {
            sbuf_adds(b, t->nlinks ? "," : "");
            text_config(b, t);
        }
        sbuf_adds(b, "}");
    }
    sbuf_adds(b, "]}\n");
    return sbuf_str(b);
}
