/* Strict JSON (RFC 8259) for what users and sensors write: dataflow files, records, request
 * bodies. UTF-8 is checked (no overlongs, surrogates, lone \u surrogates); no comments, trailing
 * commas, NaN, BOM; depth <= JSON_DEPTH_MAX. Integers that fit int64 are exact, decimals are
 * correctly rounded (num.h); a number that overflows double is an error. Duplicate keys in one
 * object are an error of the tree, and of record decoders when they know the key (the event
 * reader, which allocates nothing, passes them on). The reader is iterative. Nothing here is shared
 * between threads. */
#ifndef BRAID_JSON_H
#define BRAID_JSON_H
#include "engine/arena.h"
#include "engine/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 64 };

enum jtype { J_NULL, J_BOOL, J_INT, J_REAL, J_STR, J_ARR, J_OBJ };

/* --- events: one pass over a text, no allocation except for strings with escapes --- */
enum jevent {
    JE_ERROR = -1, /* syntax: the reader stays here; `r->err` says what and where */
    JE_END = 0,    /* the text ended after one whole value */
    JE_NULL,
    JE_BOOL,
    JE_INT,
    JE_REAL,
    JE_STR,
    JE_ARR,
    JE_ARR_END,
    JE_OBJ,
    JE_OBJ_END,
    JE_KEY, /* s,len: the key; the value follows as the next event */
};
struct json_reader {
    const char *text, *p, *end;
    struct arena *arena; /* for unescaped strings; may be NULL: then escapes go to own scratch,
                            valid until the next event */
    enum jevent event;
    const char *at; /* first byte of this event's token */
    bool b;
    int64_t i;
    double d;      /* also set for JE_INT */
    const char *s; /* JE_STR, JE_KEY: unescaped bytes, not NUL-terminated */
    uint32_t len;
    int depth;
    struct err err;
    /* private */
    uint8_t stack[JSON_DEPTH_MAX];
    uint8_t state;
    char *scratch;
    size_t scratch_cap;
};
void json_open(struct json_reader *r, const char *text, size_t len, struct arena *arena);
enum jevent json_next(struct json_reader *r);
/* After JE_KEY, JE_ARR or JE_OBJ: skips the whole value or the rest of the container. */
int json_skip(struct json_reader *r);
void json_close(struct json_reader *r);
/* 1-based line and column (in bytes) of byte `off` of a text. */
void json_place(const char *text, size_t len, size_t off, int *line, int *col);

/* --- tree: for dataflow files and request bodies (small), with the place of every value --- */
struct jnode {
    uint8_t type; /* enum jtype */
    bool b;
    uint32_t off;     /* byte offset of the value in the text */
    uint32_t key_off; /* byte offset of its key; object members only */
    const char *key;  /* NUL-terminated; NULL unless an object member */
    uint32_t klen;
    uint32_t n;     /* J_ARR, J_OBJ: number of children */
    uint32_t len;   /* J_STR */
    uint32_t index; /* place among its siblings */
    union {
        int64_t i;     /* J_INT */
        double d;      /* J_REAL; for J_INT use jnode_f64 */
        const char *s; /* J_STR: NUL-terminated copy (may contain NULs: see len) */
        struct jnode *child;
    };
    struct jnode *last;
    struct jnode *next, *parent;
};
struct json_doc {
    const char *file; /* for messages; may be NULL */
    const char *text;
    size_t len;
    struct jnode *root; /* NULL after a syntax error */
};
/* Parses `text` (kept by the caller as long as the doc) into `a`. A syntax error ends the parse;
 * duplicate keys are reported to `es` and the parse goes on (the first one counts).
 * Returns 0 or ERR_INPUT. */
int json_parse(struct json_doc *d, const char *file, const char *text, size_t len, struct arena *a,
               struct errs *es);
struct jnode *jnode_get(const struct jnode *obj, const char *key); /* NULL: absent or no object */
double jnode_f64(const struct jnode *n);                           /* J_INT or J_REAL */
struct jnode *jnode_copy(struct arena *a, const struct jnode *n);  /* deep, without its key */
/* JSON pointer (RFC 6901) of a node, in `buf`. */
const char *jnode_pointer(const struct jnode *n, char *buf, size_t size);
/* Adds an error at a node (at its key if `at_key`) of the document. Returns ERR_INPUT. */
int json_error(struct errs *es, const struct json_doc *d, const struct jnode *n, bool at_key,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));
extern const char *const jtype_names[]; /* "null" "a boolean" "an integer" "a number" ... */

/* --- output into a growing buffer; used by encoders, canonical configs and --json --- */
struct sbuf {
    char *p;
    size_t len, cap; /* malloc'd; p is NUL-terminated after sbuf_str only */
};
void sbuf_reserve(struct sbuf *b, size_t more);
void sbuf_add(struct sbuf *b, const void *p, size_t len);
void sbuf_adds(struct sbuf *b, const char *s);
void sbuf_printf(struct sbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sbuf_str(struct sbuf *b);
void sbuf_free(struct sbuf *b);
/* A JSON string literal with quotes; control bytes, quote and backslash escaped, rest as is. */
void sbuf_json_str(struct sbuf *b, const char *s, size_t len);
/* A node as canonical JSON: keys sorted bytewise, shortest numbers, no spaces. 1.0 and 1 are the
 * same number and print alike ("1"). */
void sbuf_json_canonical(struct sbuf *b, const struct jnode *n);
#endif
