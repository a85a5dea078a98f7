#include "engine/op.h"
#include <stdio.h>

void op_emit(struct op_ctx *c, int port, const struct batch *b) {
    if (b->n == 0)
        return;
    c->count->out += b->n;
    c->host->emit(c, port, b);
}

void op_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
               const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->count->rejected++;
    c->host->reject(c, b, row, code, text);
}

struct state *op_state(struct op_ctx *c, int table, uint32_t vsize) {
    return c->host->state(c, table, vsize);
}

struct batch *op_fire(struct op_ctx *c, int port, uint32_t n, const int64_t *fire,
                      const int64_t *time, struct column **cols) {
    struct batch *b = ARENA_NEW(c->arena, struct batch);
    int64_t *off = ARENA_ARRAY(c->arena, int64_t, n);
    int64_t *sub = ARENA_ARRAY(c->arena, int64_t, n);
    int64_t *wm = ARENA_ARRAY(c->arena, int64_t, n);
    int64_t *at = ARENA_ARRAY(c->arena, int64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        off[i] = c->fire_off;
        sub[i] = fire[i];
        wm[i] = fire[i] == TIME_MIN ? TIME_MIN : fire[i] - 1;
        at[i] = time[i];
    }
    size_t ncols = (size_t)(c->out[port]->n ? c->out[port]->n : 1);
    *cols = arena_zalloc(c->arena, sizeof(struct column) * ncols);
    *b = (struct batch){ .schema = c->out[port],
                         .cols = *cols,
                         .rows = n,
                         .n = n,
                         .off0 = c->fire_off,
                         .off = off,
                         .sub = sub,
                         .time = at,
                         .wm = wm,
                         .origin = c->origin };
    return b;
}

static const struct param *param_find(const struct op_desc *d, const char *name) {
    for (const struct param *p = d->params; p && p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

const char *op_config_text(const struct op_desc *d, const void *config, const char *name) {
    const struct param *p = param_find(d, name);
    if (!p)
        return NULL;
    const char *at = (const char *)config + p->offset;
    if (p->type == PT_STR || p->type == PT_FIELD) {
        const char *text;
        memcpy(&text, at, sizeof text);
        return text;
    }
    if (p->type == PT_FILE) {
        const struct file *f;
        memcpy(&f, at, sizeof f);
        return f ? f->name : NULL;
    }
    if (p->type == PT_ENUM) {
        int i;
        memcpy(&i, at, sizeof i);
        return p->words[i];
    }
    return NULL;
}
