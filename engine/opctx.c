#include "engine/key.h"
#include "engine/num.h"
#include "engine/op.h"
#include <stdio.h>

void op_emit(struct op_ctx *c, int port, const struct batch *b) {
    if (b->n == 0)
        return;
    c->count->out += b->n;
    c->host->emit(c, port, b);
}

/* Puts '?' for bytes that are no UTF-8: texts from data are cut anywhere, and reasons go into JSON.
 */
static void make_utf8(char *s) {
    size_t left = strlen(s);
    while (left) {
        unsigned char c = (unsigned char)*s;
        size_t n = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (n > left || !utf8_valid(s, s + n)) {
            *s = '?';
            n = 1;
        }
        s += n;
        left -= n;
    }
}

void op_reject(struct op_ctx *c, const struct batch *b, uint32_t row, const char *code,
               const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    make_utf8(text);
    c->count->rejected++;
    c->host->reject(c, b, row, code, text);
}

static bool varies(const struct schema *s, const int *key, int nkey) {
    bool any = false;
    for (int k = 0; k < nkey; k++)
        any |= s->f[key[k]].type >= TYPE_STR; /* strings, bytes, vectors */
    return any;
}

const struct batch *op_short_keys(struct op_ctx *c, const struct batch *b, const int *key,
                                  int nkey) {
    uint32_t long_at = 0;
    if (!varies(b->schema, key, nkey))
        return b;
    while (long_at < b->n && key_bound(b, key, nkey, batch_row(b, long_at)) <= STATE_KEY_MAX)
        long_at++;
    if (long_at == b->n)
        return b;
    uint16_t *sel = ARENA_ARRAY(c->arena, uint16_t, b->n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t r = batch_row(b, i);
        if (i < long_at || key_bound(b, key, nkey, r) <= STATE_KEY_MAX)
            sel[n++] = (uint16_t)r;
        else
            op_reject(c, b, r, "key_too_long", "the key is longer than %d bytes",
                      STATE_KEY_MAX / 2);
    }
    return batch_select(c->arena, b, sel, n);
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

const struct start *op_config_start(const struct op_desc *d, const void *config) {
    const struct param *p = param_find(d, "start");
    const char *at = (const char *)config + (p ? p->offset : 0);
    return p && p->type == PT_START ? (const void *)at : NULL;
}
