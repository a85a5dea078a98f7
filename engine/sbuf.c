/* Growing output buffer and JSON text; see json.h. */
#include "engine/json.h"
#include "engine/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sbuf_reserve(struct sbuf *b, size_t more) {
    if (b->cap - b->len >= more)
        return;
    size_t cap = b->cap ? b->cap * 2 : 256;
    if (cap < b->len + more)
        cap = b->len + more;
    b->p = realloc(b->p, cap);
    if (!b->p)
        abort(); /* sizes are bounded by the callers' limits, as in an arena */
    b->cap = cap;
}
void sbuf_add(struct sbuf *b, const void *p, size_t len) {
    sbuf_reserve(b, len);
    if (len)
        memcpy(b->p + b->len, p, len);
    b->len += len;
}
void sbuf_adds(struct sbuf *b, const char *s) {
    sbuf_add(b, s, strlen(s));
}
void sbuf_printf(struct sbuf *b, const char *fmt, ...) {
    va_list ap;
    for (size_t room = 128;;) {
        sbuf_reserve(b, room);
        va_start(ap, fmt);
        int n = vsnprintf(b->p + b->len, b->cap - b->len, fmt, ap);
        va_end(ap);
        if (n < 0)
            abort(); /* a malformed format: our bug */
        if ((size_t)n < b->cap - b->len) {
            b->len += (size_t)n;
            return;
        }
        room = (size_t)n + 1;
    }
}
const char *sbuf_str(struct sbuf *b) {
    sbuf_reserve(b, 1);
    b->p[b->len] = 0;
    return b->p;
}
void sbuf_free(struct sbuf *b) {
    free(b->p);
    *b = (struct sbuf){ 0 };
}

void sbuf_json_str(struct sbuf *b, const char *s, size_t len) {
    static const char hex[] = "0123456789abcdef";
    sbuf_reserve(b, 6 * len + 2);
    char *o = b->p + b->len;
    *o++ = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            *o++ = (char)c;
            continue;
        }
        *o++ = '\\';
        switch (c) {
        case '"':
        case '\\':
            *o++ = (char)c;
            break;
        case '\n':
            *o++ = 'n';
            break;
        case '\r':
            *o++ = 'r';
            break;
        case '\t':
            *o++ = 't';
            break;
        default:
            memcpy(o, "u00", 3);
            o[3] = hex[c >> 4];
            o[4] = hex[c & 15];
            o += 5;
        }
    }
    *o++ = '"';
    b->len = (size_t)(o - b->p);
}

/* ---- canonical form ---- */

static int by_key(const void *a, const void *b) {
    const struct jnode *x = *(struct jnode *const *)a, *y = *(struct jnode *const *)b;
    int c = memcmp(x->key, y->key, x->klen < y->klen ? x->klen : y->klen);
    return c ? c : (x->klen > y->klen) - (x->klen < y->klen);
}
/* Children in output order, malloc'd; NULL when there are none. */
static struct jnode **ordered(const struct jnode *n) {
    if (n->n == 0)
        return NULL;
    struct jnode **v = malloc(n->n * sizeof *v);
    if (!v)
        abort();
    uint32_t i = 0;
    for (struct jnode *c = n->child; c; c = c->next)
        v[i++] = c;
    if (n->type == J_OBJ)
        qsort(v, n->n, sizeof *v, by_key);
    return v;
}
static void scalar(struct sbuf *b, const struct jnode *n) {
    sbuf_reserve(b, NUM_F64_MAX_LEN);
    char *o = b->p + b->len;
    switch (n->type) {
    case J_NULL:
        sbuf_adds(b, "null");
        break;
    case J_BOOL:
        sbuf_adds(b, n->b ? "true" : "false");
        break;
    case J_INT:
        b->len += (size_t)num_write_i64(o, n->i);
        break;
    case J_REAL:
        if (n->d >= -0x1p63 && n->d < 0x1p63 && (double)(int64_t)n->d == n->d)
            b->len += (size_t)num_write_i64(o, (int64_t)n->d);
        else
            b->len += (size_t)num_write_f64(o, n->d);
        break;
    default:
        sbuf_json_str(b, n->s, n->len);
    }
}
void sbuf_json_canonical(struct sbuf *b, const struct jnode *root) {
    struct frame {
        const struct jnode *node;
        struct jnode **child;
        uint32_t i;
    } stack[JSON_DEPTH_MAX + 1], *top = stack;
    struct jnode *only[] = { (struct jnode *)root };
    *top = (struct frame){ NULL, only, 0 };
    for (;;) {
        if (top->i == (top->node ? top->node->n : 1)) {
            if (!top->node)
                return;
            sbuf_add(b, top->node->type == J_OBJ ? "}" : "]", 1);
            free(top->child);
            top--;
            continue;
        }
        const struct jnode *n = top->child[top->i++];
        if (top->node && top->i > 1)
            sbuf_add(b, ",", 1);
        if (top->node && top->node->type == J_OBJ) {
            sbuf_json_str(b, n->key, n->klen);
            sbuf_add(b, ":", 1);
        }
        if (n->type == J_ARR || n->type == J_OBJ) {
            sbuf_add(b, n->type == J_OBJ ? "{" : "[", 1);
            *++top = (struct frame){ n, ordered(n), 0 };
        } else {
            scalar(b, n);
        }
    }
}
