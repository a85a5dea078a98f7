#include "engine/json.h"
#include "engine/num.h"
#include "engine/scan.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const jtype_names[] = {
    "null", "a boolean", "an integer", "a number", "a string", "an array", "an object",
};

enum { /* json_reader.state: what may come next */
       WANT_VALUE,
       WANT_VALUE_OR_END, /* after '[' */
       WANT_KEY,          /* after ',' in an object */
       WANT_KEY_OR_END,   /* after '{' */
       WANT_MORE,         /* after a value: ',' or the closing bracket or the end of the text */
       ENDED,
};

enum { REST_MAX = 4096 }; /* bytes of a text that is short, see read_string */

void json_place(const char *text, size_t len, size_t off, int *line, int *col) {
    *line = 1;
    size_t begin = 0;
    if (off > len)
        off = len;
    for (const char *p; begin < off && (p = memchr(text + begin, '\n', off - begin)); ++*line)
        begin = (size_t)(p - text) + 1;
    *col = (int)(off - begin) + 1;
}

/* ---- reader ---- */

static enum jevent fail(struct json_reader *r, const char *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum jevent fail(struct json_reader *r, const char *at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->err.text, sizeof r->err.text, fmt, ap);
    va_end(ap);
    r->err.code = ERR_INPUT;
    r->err.offset = at - r->text;
    json_place(r->text, (size_t)(r->end - r->text), (size_t)r->err.offset, &r->err.line,
               &r->err.col);
    r->at = at;
    return r->event = JE_ERROR;
}
static enum jevent unexpected(struct json_reader *r, const char *wanted) {
    if (r->p == r->end)
        return fail(r, r->p, "the text ends where %s should be", wanted);
    unsigned char c = (unsigned char)*r->p;
    if (c >= 0x20 && c < 0x7f)
        return fail(r, r->p, "expected %s, found '%c'", wanted, c);
    if (r->end - r->p >= 3 && memcmp(r->p, "\xef\xbb\xbf", 3) == 0)
        return fail(r, r->p, "expected %s, found a byte order mark", wanted);
    return fail(r, r->p, "expected %s, found byte 0x%02x", wanted, c);
}

void json_open(struct json_reader *r, const char *text, size_t len, struct arena *arena) {
    memset(r, 0, sizeof *r);
    r->text = r->p = r->at = text;
    r->end = text + len;
    r->arena = arena;
    r->event = JE_NULL;
    r->state = WANT_VALUE;
    r->err.offset = -1;
}
void json_close(struct json_reader *r) {
    free(r->scratch);
    r->scratch = NULL;
    r->scratch_cap = 0;
}

/* One branch on whether there is space; how much needs none, as guesses cost more than a vector. */
static inline const char *skip_space(const char *p, const char *end) {
    if (p < end && (unsigned char)*p > ' ')
        return p;
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        /* the low four bits of space, \t, \n, \r are their place in this table */
        const __m128i spaces =
            _mm_setr_epi8(' ', -1, -1, -1, -1, -1, -1, -1, -1, '\t', '\n', -1, -1, '\r', -1, -1);
        __m128i is = _mm_cmpeq_epi8(_mm_shuffle_epi8(spaces, v), v);
        unsigned other = ~(unsigned)_mm_movemask_epi8(is);
        int n = __builtin_ctz(other); /* bits 16.. are set */
        p += n;
        if (n < 16)
            return p;
    }
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

static int hex4(const char *p, const char *end) {
    static const uint8_t value[256] = {
        ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,
        ['6'] = 7,  ['7'] = 8,  ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
        ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16, ['A'] = 11, ['B'] = 12,
        ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16, /* plus one: 0 is no digit */
    };
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = value[(unsigned char)p[i]];
        if (d == 0)
            return -1;
        v = v << 4 | (d - 1);
    }
    return v;
}
static char *put_utf8(char *o, unsigned c) {
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 0x3f));
        *o++ = (char)(0x80 | (c & 0x3f));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 0x3f));
        *o++ = (char)(0x80 | (c >> 6 & 0x3f));
        *o++ = (char)(0x80 | (c & 0x3f));
    }
    return o;
}
/* An escape at *p ('\'); appends what it means. False after an error. */
static bool unescape(struct json_reader *r, const char **p, char **o) {
    static const char meaning[256] = {
        ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
        ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
    };
    const char *at = *p, *e = at + 1;
    if (e == r->end)
        return fail(r, e, "the text ends inside a string"), false;
    if (meaning[(unsigned char)*e]) {
        *(*o)++ = meaning[(unsigned char)*e];
        *p = e + 1;
        return true;
    }
    if (*e != 'u')
        return fail(r, at, "unknown escape in a string"), false;
    int c = hex4(e + 1, r->end);
    if (c < 0)
        return fail(r, at, "\\u needs four hexadecimal digits"), false;
    e += 5;
    if (c >= 0xd800 && c < 0xe000) {
        int low =
            c < 0xdc00 && r->end - e >= 6 && e[0] == '\\' && e[1] == 'u' ? hex4(e + 2, r->end) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, at, "lone surrogate \\u%04x", (unsigned)c), false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        e += 6;
    }
    *o = put_utf8(*o, (unsigned)c);
    *p = e;
    return true;
}
/* Room for an unescaped string of at most `n` bytes. */
static char *unescape_room(struct json_reader *r, size_t n) {
    if (r->arena)
        return arena_alloc(r->arena, n);
    if (r->scratch_cap < n) {
        free(r->scratch);
        r->scratch = malloc(n);
        if (!r->scratch)
            abort();
        r->scratch_cap = n;
    }
    return r->scratch;
}
/* Where a string ends of which [p,end) is the rest: a bound of its unescaped length. */
static const char *closing_quote(const char *p, const char *end) {
    bool high = false;
    while (p < end && *p != '"') {
        p += *p == '\\' && p + 1 < end ? 2 : 1;
        p = scan_string(p, end, &high);
    }
    return p;
}
/* read_string for what most strings are: ASCII without escapes, closed within 32 bytes. Inline: the
 * reader is here for every key and most values. False: nothing is decided. ~3 ns. */
static inline bool short_string(struct json_reader *r) {
#ifdef __AVX2__
    const char *begin = r->p + 1;
    if (r->end - begin < 32)
        return false;
    __m256i v = _mm256_loadu_si256((const __m256i *)begin);
    unsigned quote = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('"')));
    __m256i control = _mm256_cmpgt_epi8(_mm256_set1_epi8(0x20), v); /* and bytes >= 0x80 */
    unsigned other = (unsigned)_mm256_movemask_epi8(
        _mm256_or_si256(control, _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\\'))));
    if (!quote || (other & (quote ^ (quote - 1))))
        return false;
    r->s = begin;
    r->len = (uint32_t)__builtin_ctz(quote);
    r->p = begin + r->len + 1;
    return true;
#else
    (void)r;
    return false;
#endif
}
/* At an opening quote. Sets s,len and moves behind the closing quote. */
static bool read_string(struct json_reader *r) {
    const char *begin = r->p + 1;
    bool high = false;
    const char *p = scan_string(begin, r->end, &high);
    if (p < r->end && *p == '"') {
        r->s = begin;
        r->len = (uint32_t)(p - begin);
    } else {
        /* In a record the rest of the text is bound enough; what is not needed goes back. */
        size_t rest = (size_t)(r->end - begin);
        size_t size = (rest <= REST_MAX ? rest : (size_t)(closing_quote(p, r->end) - begin)) + 1;
        char *room = unescape_room(r, size), *o = room;
        const char *from = begin;
        for (;;) {
            memcpy(o, from, (size_t)(p - from));
            o += p - from;
            if (p == r->end)
                return fail(r, p, "the text ends inside a string"), false;
            if (*p == '"')
                break;
            if (*p != '\\')
                return fail(r, p, "control byte 0x%02x in a string: write it as an escape",
                            (unsigned char)*p),
                       false;
            if (!unescape(r, &p, &o))
                return false;
            from = p;
            p = scan_string(p, r->end, &high);
        }
        r->s = room;
        r->len = (uint32_t)(o - room);
        if (r->arena)
            arena_trim(r->arena, room, size, r->len);
    }
    if (high && !utf8_valid(begin, p))
        return fail(r, begin - 1, "invalid UTF-8 in a string"), false;
    r->p = p + 1;
    return true;
}

static enum jevent word(struct json_reader *r, const char *w, size_t n, enum jevent ev) {
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0)
        return unexpected(r, "a value");
    r->p += n;
    r->state = WANT_MORE;
    return r->event = ev;
}
static enum jevent number(struct json_reader *r) {
    bool is_int;
    const char *p = num_parse(r->p, r->end, &is_int, &r->i, &r->d);
    if (!p)
        return fail(r, r->p, "malformed number, or one too large for a double");
    if (p < r->end && (unsigned char)(*p - '0') < 10)
        return fail(r, r->p, "a number must not begin with 0");
    r->p = p;
    r->state = WANT_MORE;
    return r->event = is_int ? JE_INT : JE_REAL;
}
static enum jevent container(struct json_reader *r, uint8_t kind) {
    if (r->depth == JSON_DEPTH_MAX)
        return fail(r, r->p, "nested deeper than %d", JSON_DEPTH_MAX);
    r->stack[r->depth++] = kind;
    r->p++;
    r->state = kind == '{' ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return r->event = kind == '{' ? JE_OBJ : JE_ARR;
}
static enum jevent close_container(struct json_reader *r) {
    bool object = r->stack[--r->depth] == '{';
    r->p++;
    r->state = WANT_MORE;
    return r->event = object ? JE_OBJ_END : JE_ARR_END;
}
static enum jevent read_value(struct json_reader *r) {
    if (r->p == r->end)
        return unexpected(r, "a value");
    switch (*r->p) {
    case '{':
    case '[':
        return container(r, (uint8_t)*r->p);
    case '"':
        if (!short_string(r) && !read_string(r))
            return JE_ERROR;
        r->state = WANT_MORE;
        return r->event = JE_STR;
    case 't':
        r->b = true;
        return word(r, "true", 4, JE_BOOL);
    case 'f':
        r->b = false;
        return word(r, "false", 5, JE_BOOL);
    case 'n':
        return word(r, "null", 4, JE_NULL);
    default:
        if (*r->p == '-' || (unsigned char)(*r->p - '0') < 10)
            return number(r);
        return unexpected(r, "a value");
    }
}
static enum jevent read_key(struct json_reader *r) {
    if (r->p == r->end || *r->p != '"')
        return unexpected(r, r->state == WANT_KEY ? "a key in quotes" : "a key or '}'");
    if (!short_string(r) && !read_string(r))
        return JE_ERROR;
    r->p = skip_space(r->p, r->end);
    if (r->p == r->end || *r->p != ':')
        return unexpected(r, "':'");
    r->p++;
    r->state = WANT_VALUE;
    return r->event = JE_KEY;
}

enum jevent json_next(struct json_reader *r) {
    if (r->event == JE_ERROR)
        return JE_ERROR;
    if (r->state == ENDED)
        return JE_END;
    r->p = skip_space(r->p, r->end);
    if (r->state == WANT_MORE) {
        if (r->depth == 0) {
            if (r->p != r->end)
                return unexpected(r, "the end of the text");
            r->at = r->p;
            r->state = ENDED;
            return r->event = JE_END;
        }
        bool object = r->stack[r->depth - 1] == '{';
        if (r->p == r->end || (*r->p != ',' && *r->p != (object ? '}' : ']')))
            return unexpected(r, object ? "',' or '}'" : "',' or ']'");
        r->at = r->p;
        if (*r->p != ',')
            return close_container(r);
        r->p = skip_space(r->p + 1, r->end);
        r->state = object ? WANT_KEY : WANT_VALUE;
    }
    r->at = r->p;
    if (r->state == WANT_KEY_OR_END || r->state == WANT_VALUE_OR_END)
        if (r->p < r->end && *r->p == (r->state == WANT_KEY_OR_END ? '}' : ']'))
            return close_container(r);
    if (r->state == WANT_KEY_OR_END || r->state == WANT_KEY)
        return read_key(r);
    return read_value(r);
}

int json_skip(struct json_reader *r) {
    int depth = r->event == JE_KEY ? r->depth : r->depth - 1;
    do {
        if (json_next(r) == JE_ERROR)
            return ERR_INPUT;
    } while (r->depth > depth);
    return 0;
}

/* ---- tree ---- */

static const char *pointer_text(char *buf, size_t size, size_t *len, const struct jnode *n) {
    char number[16];
    const char *s = n->key;
    size_t l = n->klen;
    if (!s) {
        l = (size_t)snprintf(number, sizeof number, "%u", n->index);
        s = number;
    }
    if (*len + 1 < size)
        buf[(*len)++] = '/';
    for (size_t i = 0; i < l; i++) {
        bool escape = s[i] == '~' || s[i] == '/';
        if (*len + 1 + escape >= size)
            break;
        buf[(*len)++] = escape ? '~' : s[i];
        if (escape)
            buf[(*len)++] = s[i] == '~' ? '0' : '1';
    }
    buf[*len] = 0;
    return buf;
}
const char *jnode_pointer(const struct jnode *n, char *buf, size_t size) {
    const struct jnode *path[JSON_DEPTH_MAX + 1];
    int depth = 0;
    size_t len = 0;
    for (; n->parent; n = n->parent)
        path[depth++] = n;
    buf[0] = 0;
    while (depth > 0)
        pointer_text(buf, size, &len, path[--depth]);
    return buf;
}
static void set_file(struct err *e, const struct json_doc *d) {
    snprintf(e->file, sizeof e->file, "%s", d->file ? d->file : "");
}
int json_error(struct errs *es, const struct json_doc *d, const struct jnode *n, bool at_key,
               const char *fmt, ...) {
    struct err e = ERR_INIT;
    va_list ap;
    if (es->n == ERRS_MAX) { /* only counted: a place costs a search from the text's begin */
        es->total++;
        return ERR_INPUT;
    }
    va_start(ap, fmt);
    vsnprintf(e.text, sizeof e.text, fmt, ap);
    va_end(ap);
    e.code = ERR_INPUT;
    set_file(&e, d);
    if (n) {
        e.offset = at_key && n->key ? n->key_off : n->off;
        json_place(d->text, d->len, (size_t)e.offset, &e.line, &e.col);
        jnode_pointer(n, e.pointer, sizeof e.pointer);
    }
    errs_add(es, &e);
    return ERR_INPUT;
}

static int by_key_then_place(const void *a, const void *b) {
    const struct jnode *x = *(struct jnode *const *)a, *y = *(struct jnode *const *)b;
    int c = memcmp(x->key, y->key, x->klen < y->klen ? x->klen : y->klen);
    if (c == 0)
        c = (x->klen > y->klen) - (x->klen < y->klen);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}
static int by_place(const void *a, const void *b) {
    const struct jnode *x = *(struct jnode *const *)a, *y = *(struct jnode *const *)b;
    return (x->index > y->index) - (x->index < y->index);
}
/* Reports members whose key came before, and unlinks them. O(n log n). */
static void drop_duplicates(struct json_doc *d, struct jnode *obj, struct errs *es) {
    if (obj->n < 2)
        return;
    struct jnode **v = malloc(obj->n * sizeof *v);
    if (!v)
        abort();
    uint32_t n = 0, bad = 0;
    for (struct jnode *c = obj->child; c; c = c->next)
        v[n++] = c;
    qsort(v, n, sizeof *v, by_key_then_place);
    for (uint32_t i = 1, first = 0; i < n; i++) {
        if (v[i]->klen == v[first]->klen && memcmp(v[i]->key, v[first]->key, v[i]->klen) == 0)
            v[bad++] = v[i]; /* at most overwrites v[first] by one of the same key */
        else
            first = i;
    }
    qsort(v, bad, sizeof *v, by_place);
    for (uint32_t i = 0; i < bad; i++)
        json_error(es, d, v[i], true, "key \"%s\" appears twice in this object", v[i]->key);
    if (bad) {
        uint32_t i = 0, index = 0;
        struct jnode **link = &obj->child;
        obj->last = NULL;
        for (struct jnode *c = obj->child; c; c = c->next) {
            if (i < bad && c == v[i]) {
                i++;
                continue;
            }
            c->index = index++;
            *link = obj->last = c;
            link = &c->next;
        }
        *link = NULL;
        obj->n = index;
    }
    free(v);
}

/* A copy with a NUL, so that C functions can print it. */
static const char *copy_text(struct arena *a, const struct json_reader *r) {
    return arena_strndup(a, r->s, r->len);
}
static struct jnode *new_node(struct arena *a, const struct json_reader *r, struct jnode *parent) {
    static const uint8_t type[] = {
        [JE_NULL] = J_NULL, [JE_BOOL] = J_BOOL, [JE_INT] = J_INT, [JE_REAL] = J_REAL,
        [JE_STR] = J_STR,   [JE_ARR] = J_ARR,   [JE_OBJ] = J_OBJ,
    };
    struct jnode *n = ARENA_NEW(a, struct jnode);
    n->type = type[r->event];
    n->off = (uint32_t)(r->at - r->text);
    n->parent = parent;
    switch (n->type) {
    case J_BOOL:
        n->b = r->b;
        break;
    case J_INT:
        n->i = r->i;
        break;
    case J_REAL:
        n->d = r->d;
        break;
    case J_STR:
        n->s = copy_text(a, r);
        n->len = r->len;
        break;
    default:
        break;
    }
    if (parent) {
        n->index = parent->n++;
        if (parent->last)
            parent->last->next = n;
        else
            parent->child = n;
        parent->last = n;
    }
    return n;
}
int json_parse(struct json_doc *d, const char *file, const char *text, size_t len, struct arena *a,
               struct errs *es) {
    struct json_reader r;
    struct jnode *open = NULL;
    const char *key = NULL;
    uint32_t klen = 0, key_off = 0;
    int before = es->total;
    *d = (struct json_doc){ .file = file, .text = text, .len = len };
    json_open(&r, text, len, NULL);
    for (enum jevent ev; (ev = json_next(&r)) != JE_END && ev != JE_ERROR;) {
        if (ev == JE_KEY) {
            key = copy_text(a, &r);
            klen = r.len;
            key_off = (uint32_t)(r.at - text);
            continue;
        }
        if (ev == JE_ARR_END || ev == JE_OBJ_END) {
            assert(open); /* the reader has seen its beginning */
            if (ev == JE_OBJ_END)
                drop_duplicates(d, open, es);
            open = open->parent;
            continue;
        }
        struct jnode *n = new_node(a, &r, open);
        n->key = key;
        n->klen = klen;
        n->key_off = key_off;
        key = NULL;
        klen = key_off = 0;
        if (!open)
            d->root = n;
        if (ev == JE_ARR || ev == JE_OBJ)
            open = n;
    }
    if (r.event == JE_ERROR) {
        if (open)
            jnode_pointer(open, r.err.pointer, sizeof r.err.pointer);
        set_file(&r.err, d);
        errs_add(es, &r.err);
        d->root = NULL;
    }
    json_close(&r);
    return es->total == before ? 0 : ERR_INPUT;
}
struct jnode *jnode_get(const struct jnode *obj, const char *key) {
    if (!obj || obj->type != J_OBJ)
        return NULL;
    size_t len = strlen(key);
    for (struct jnode *c = obj->child; c; c = c->next)
        if (c->klen == len && memcmp(c->key, key, len) == 0)
            return c;
    return NULL;
}
static struct jnode *copy_node(struct arena *a, const struct jnode *n, struct jnode *parent) {
    struct jnode *c = ARENA_NEW(a, struct jnode);
    *c = *n;
    c->next = c->last = NULL;
    c->parent = parent;
    if (n->key)
        c->key = arena_strndup(a, n->key, n->klen);
    if (n->type == J_STR)
        c->s = arena_strndup(a, n->s, n->len);
    if (n->type == J_ARR || n->type == J_OBJ)
        c->child = NULL;
    return c;
}

/* Iterative: nodes know their parents. */
struct jnode *jnode_copy(struct arena *a, const struct jnode *root) {
    struct jnode *top = copy_node(a, root, NULL), *to = top;
    const struct jnode *from = root;
    top->key = NULL;
    for (;;) {
        bool box = from->type == J_ARR || from->type == J_OBJ;
        const struct jnode *next = box ? from->child : NULL;
        if (next) {
            to->child = to->last = copy_node(a, next, to);
            to = to->child;
            from = next;
            continue;
        }
        while (from != root && !from->next) {
            from = from->parent;
            to = to->parent;
            assert(from && to); /* both trees have the same shape */
        }
        if (from == root)
            return top;
        from = from->next;
        assert(to->parent);
        struct jnode *c = copy_node(a, from, to->parent);
        to->next = to->parent->last = c;
        to = c;
    }
}

double jnode_f64(const struct jnode *n) {
    return n->type == J_INT ? (double)n->i : n->d;
}
