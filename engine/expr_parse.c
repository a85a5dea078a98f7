/* Text to tree: a lexer and a Pratt parser (V. Pratt, "Top down operator precedence", 1973) whose
 * nesting is bounded by EXPR_DEPTH_MAX; chains of equal precedence are loops. */
#include "engine/expr_node.h"
#include "engine/num.h"
#include <ctype.h>
#include <limits.h>
#include <strings.h>

enum tok {
    T_END,
    T_BAD,
    T_IDENT,  /* word that is no keyword */
    T_QUOTED, /* "identifier" */
    T_INT,
    T_REAL,
    T_STR,
    T_BYTES,
    T_LPAREN,
    T_RPAREN,
    T_COMMA,
    T_PLUS,
    T_MINUS,
    T_STAR,
    T_SLASH,
    T_PERCENT,
    T_CONCAT,
    T_CAST, /* :: */
    T_EQ,   /* the six comparisons in the order of X_EQ */
    T_NE,
    T_LT,
    T_LE,
    T_GT,
    T_GE,
    T_AND, /* keywords from here */
    T_OR,
    T_NOT,
    T_IS,
    T_NULL,
    T_TRUE,
    T_FALSE,
    T_IN,
    T_LIKE,
    T_BETWEEN,
    T_CASE,
    T_WHEN,
    T_THEN,
    T_ELSE,
    T_END_WORD,
    T_CAST_WORD,
    T_AS,
};
static const char *const keywords[] = { "and",   "or",   "not",  "is",      "null", "true",
                                        "false", "in",   "like", "between", "case", "when",
                                        "then",  "else", "end",  "cast",    "as" };
enum { NKEYWORDS = sizeof keywords / sizeof *keywords };

/* Binding powers, lowest first. */
enum { P_NONE, P_OR, P_AND, P_NOT, P_COMPARE, P_CONCAT, P_ADD, P_MUL, P_NEG, P_CAST };

struct parser {
    struct build *b;
    const char *p, *end; /* rest of the text */
    enum tok tok;
    size_t at;     /* byte of the token */
    size_t len;    /* its length in the text */
    struct span s; /* T_IDENT, T_QUOTED, T_STR, T_BYTES: value */
    int64_t i;
    bool i_fits; /* T_INT; else the magnitude is exactly 2^63 */
    double f;
    bool last_compare; /* the expression just parsed is an unparenthesised comparison */
    int depth;
};
struct list {
    struct node **v;
    uint32_t n, cap;
};

static int keyword(const char *s, size_t len) {
    for (int i = 0; i < NKEYWORDS; i++)
        if (strlen(keywords[i]) == len && !strncasecmp(keywords[i], s, len))
            return i;
    return -1;
}
bool expr_is_keyword(const char *s, size_t len) {
    return keyword(s, len) >= 0;
}

static bool word_char(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}
static bool digit(char c) {
    return c >= '0' && c <= '9';
}

/* All parse errors come this way: the first one counts. */
#define FAIL(ps, pos, ...) ((ps)->tok = T_BAD, build_error((ps)->b, (pos), __VA_ARGS__))

/* '...' or "...": a doubled quote stands for itself. */
static void lex_quoted(struct parser *ps, char quote, enum tok tok) {
    const char *from = ps->p + 1, *q = from;
    uint32_t n = 0, len;
    for (; q < ps->end && !(*q == quote && !(q + 1 < ps->end && q[1] == quote)); q++, n++)
        q += *q == quote;
    char *out = arena_alloc(ps->b->a, n + 1);
    for (len = 0; len < n; from++, len++) {
        from += *from == quote;
        out[len] = *from;
    }
    if (q >= ps->end) {
        FAIL(ps, ps->at, "the %s that begins here is not closed",
             quote == '\'' ? "text" : "identifier");
        return;
    }
    if (!utf8_valid(out, out + n)) {
        FAIL(ps, ps->at, "not valid UTF-8");
        return;
    }
    ps->s = (struct span){ out, n, 0 };
    ps->p = q + 1;
    ps->tok = tok;
    if (memchr(out, 0, n)) /* canonical texts are C strings */
        FAIL(ps, ps->at, "a NUL byte is not allowed");
    else if (tok == T_QUOTED && !n)
        FAIL(ps, ps->at, "an identifier is not empty");
}

static int hex(char c) {
    return digit(c)               ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
/* x'00ff' */
static void lex_bytes(struct parser *ps) {
    const char *q = ps->p + 2, *close = memchr(q, '\'', (size_t)(ps->end - q));
    char *out = arena_alloc(ps->b->a, (size_t)((close ? close : q) - q) / 2 + 1);
    uint32_t n = 0;
    while (close && ps->end - q >= 2 && hex(q[0]) >= 0 && hex(q[1]) >= 0) {
        out[n++] = (char)(hex(q[0]) * 16 + hex(q[1]));
        q += 2;
    }
    if (q >= ps->end || *q != '\'') {
        FAIL(ps, ps->at, "bytes are written x'00ff', two hexadecimal digits each");
        return;
    }
    ps->s = (struct span){ out, n, 0 };
    ps->p = q + 1;
    ps->tok = T_BYTES;
}

static void lex_number(struct parser *ps) {
    const char *q = ps->p;
    bool real = false;
    while (q < ps->end && digit(*q))
        q++;
    if (q < ps->end && *q == '.') {
        real = true;
        for (q++; q < ps->end && digit(*q);)
            q++;
    }
    if (q < ps->end && (*q == 'e' || *q == 'E')) {
        const char *x = q + 1;
        if (x < ps->end && (*x == '+' || *x == '-'))
            x++;
        if (x < ps->end && digit(*x)) {
            real = true;
            for (q = x; q < ps->end && digit(*q);)
                q++;
        }
    }
    if (q < ps->end && (word_char(*q, false) || *q == '.')) {
        FAIL(ps, ps->at, "a number is followed by '%c'", *q);
        return;
    }
    if (!real) {
        ps->i_fits = !num_i64_whole(ps->p, q, &ps->i);
        if (!ps->i_fits) {
            const char *z = ps->p;
            while (q - z > 1 && *z == '0')
                z++;
            if (q - z != 19 || memcmp(z, "9223372036854775808", 19)) {
                FAIL(ps, ps->at, "the integer does not fit in 64 bits; write it with '.0' for f64");
                return;
            }
        }
        ps->tok = T_INT;
    } else if (num_f64_whole(ps->p, q, &ps->f)) {
        FAIL(ps, ps->at, "the number does not fit in f64");
        return;
    } else
        ps->tok = T_REAL;
    ps->p = q;
}

static void lex_word(struct parser *ps) {
    const char *q = ps->p;
    while (q < ps->end && word_char(*q, false))
        q++;
    ps->s = (struct span){ ps->p, (uint32_t)(q - ps->p), 0 };
    int k = keyword(ps->p, ps->s.len);
    ps->tok = k < 0 ? T_IDENT : (enum tok)(T_AND + k);
    ps->p = q;
}

static void lex_symbol(struct parser *ps) {
    static const struct {
        char s[3];
        uint8_t tok;
    } symbols[] = { { "||", T_CONCAT }, { "::", T_CAST },  { "!=", T_NE },    { "<>", T_NE },
                    { "<=", T_LE },     { ">=", T_GE },    { "==", T_BAD },   { "<", T_LT },
                    { ">", T_GT },      { "=", T_EQ },     { "(", T_LPAREN }, { ")", T_RPAREN },
                    { ",", T_COMMA },   { "+", T_PLUS },   { "-", T_MINUS },  { "*", T_STAR },
                    { "/", T_SLASH },   { "%", T_PERCENT } };
    size_t left = (size_t)(ps->end - ps->p);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        size_t n = strlen(symbols[i].s);
        if (n > left || memcmp(ps->p, symbols[i].s, n))
            continue;
        if (symbols[i].tok == T_BAD)
            FAIL(ps, ps->at, "equality is written with one '='");
        ps->tok = symbols[i].tok;
        ps->p += n;
        return;
    }
    unsigned char c = (unsigned char)*ps->p;
    if (c > ' ' && c < 127)
        FAIL(ps, ps->at, "unexpected '%c'", c);
    else
        FAIL(ps, ps->at, "unexpected byte 0x%02x; quote a field name with such letters: \"…\"", c);
}

static void next(struct parser *ps) {
    if (ps->b->failed) {
        ps->tok = T_BAD;
        return;
    }
    while (ps->p < ps->end && (*ps->p == ' ' || (*ps->p >= '\t' && *ps->p <= '\r')))
        ps->p++;
    const char *start = ps->p;
    ps->at = (size_t)(start - ps->b->text);
    size_t left = (size_t)(ps->end - start);
    if (!left)
        ps->tok = T_END;
    else if (*start == '\'')
        lex_quoted(ps, '\'', T_STR);
    else if (*start == '"')
        lex_quoted(ps, '"', T_QUOTED);
    else if (left > 1 && (*start == 'x' || *start == 'X') && start[1] == '\'')
        lex_bytes(ps);
    else if (digit(*start) || (*start == '.' && left > 1 && digit(start[1])))
        lex_number(ps);
    else if (word_char(*start, true))
        lex_word(ps);
    else
        lex_symbol(ps);
    ps->len = (size_t)(ps->p - start);
    if (ps->b->failed)
        ps->tok = T_BAD;
}

static struct node *unexpected(struct parser *ps, const char *wanted) {
    if (ps->tok == T_END)
        return FAIL(ps, ps->at, "the expression ends here, but %s is missing", wanted);
    int n = (int)(ps->len < 40 ? ps->len : 40);
    return FAIL(ps, ps->at, "%s is expected, not '%.*s'", wanted, n, ps->b->text + ps->at);
}
static bool take(struct parser *ps, enum tok t) {
    if (ps->tok != t)
        return false;
    next(ps);
    return true;
}
static bool expect(struct parser *ps, enum tok t, const char *wanted) {
    if (take(ps, t))
        return true;
    unexpected(ps, wanted);
    return false;
}
static void list_add(struct parser *ps, struct list *l, struct node *x) {
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        struct node **v = arena_alloc(ps->b->a, cap * sizeof *v);
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = x;
}

static struct node *parse(struct parser *ps, int min);

/* Comma-separated expressions up to and with ')'. */
static bool parse_list(struct parser *ps, struct list *l) {
    if (take(ps, T_RPAREN))
        return true;
    do {
        struct node *x = parse(ps, P_NONE);
        if (!x)
            return false;
        list_add(ps, l, x);
    } while (take(ps, T_COMMA));
    return expect(ps, T_RPAREN, "')'");
}

static bool parse_type(struct parser *ps, enum type *t) {
    char word[16];
    if (ps->tok != T_IDENT || ps->s.len >= sizeof word) {
        unexpected(ps, "a type (bool, i64, f64, string, bytes)");
        return false;
    }
    for (uint32_t i = 0; i < ps->s.len; i++)
        word[i] = (char)tolower((unsigned char)ps->s.p[i]);
    word[ps->s.len] = 0;
    for (*t = TYPE_BOOL; *t <= TYPE_BYTES; (*t)++)
        if (!strcmp(word, type_names[*t])) {
            next(ps);
            return true;
        }
    const char *near = err_nearest(word, type_names, TYPE_VEC);
    FAIL(ps, ps->at, "there is no type '%s'%s%s%s", word, near ? "; did you mean '" : "",
         near ? near : ": bool, i64, f64, string, bytes", near ? "'?" : "");
    return false;
}

static struct node *parse_cast(struct parser *ps, size_t at) {
    enum type t;
    if (!expect(ps, T_LPAREN, "'('"))
        return NULL;
    struct node *x = parse(ps, P_NONE);
    if (!x || !expect(ps, T_AS, "'as'") || !parse_type(ps, &t) || !expect(ps, T_RPAREN, "')'"))
        return NULL;
    return node_cast(ps->b, at, x, t);
}

/* After `case`: with an operand, `when v` stands for `when operand = v`. */
static struct node *parse_case(struct parser *ps, size_t at) {
    struct list l = { 0 };
    struct node *x, *subject = NULL;
    if (ps->tok != T_WHEN && !(subject = parse(ps, P_NONE)))
        return NULL;
    if (ps->tok != T_WHEN)
        return unexpected(ps, "'when'");
    while (ps->tok == T_WHEN) {
        size_t when = ps->at;
        next(ps);
        if (!(x = parse(ps, P_NONE)) ||
            (subject && !(x = node_binary(ps->b, when, X_EQ, subject, x))))
            return NULL;
        list_add(ps, &l, x);
        if (!expect(ps, T_THEN, "'then'") || !(x = parse(ps, P_NONE)))
            return NULL;
        list_add(ps, &l, x);
    }
    x = take(ps, T_ELSE) ? parse(ps, P_NONE)
                         : node_const(ps->b, at, XT_NULL, (struct lit){ .null = true });
    if (!x || !expect(ps, T_END_WORD, "'end'"))
        return NULL;
    list_add(ps, &l, x);
    return node_case(ps->b, at, l.v, l.n);
}

static struct node *parse_name(struct parser *ps) {
    struct span s = ps->s;
    size_t at = ps->at;
    bool word = ps->tok == T_IDENT;
    next(ps);
    if (!word || ps->tok != T_LPAREN)
        return ps->tok == T_BAD ? NULL : node_field(ps->b, at, s.p, s.len);
    next(ps);
    struct list l = { 0 };
    if (!parse_list(ps, &l))
        return NULL;
    return node_call(ps->b, at, s.p, s.len, l.v, l.n);
}

static struct node *parse_literal(struct parser *ps, bool negative) {
    enum tok t = ps->tok;
    size_t at = ps->at;
    struct lit c = { 0 };
    int type = TYPE_BOOL;
    if (t == T_INT) {
        if (!ps->i_fits && !negative)
            return FAIL(ps, at, "the integer does not fit in 64 bits; write it with '.0' for f64");
        c.i = !ps->i_fits ? INT64_MIN : negative ? -ps->i : ps->i;
        type = TYPE_I64;
    } else if (t == T_REAL) {
        c.f = negative ? -ps->f : ps->f;
        type = TYPE_F64;
    } else if (t == T_STR || t == T_BYTES) {
        c.s = ps->s;
        type = t == T_STR ? TYPE_STR : TYPE_BYTES;
    } else if (t == T_NULL) {
        c.null = true;
        type = XT_NULL;
    } else
        c.b = t == T_TRUE;
    next(ps);
    return node_const(ps->b, at, type, c);
}

static struct node *parse_prefix(struct parser *ps) {
    size_t at = ps->at;
    struct node *x;
    switch (ps->tok) {
    case T_INT:
    case T_REAL:
    case T_STR:
    case T_BYTES:
    case T_NULL:
    case T_TRUE:
    case T_FALSE:
        return parse_literal(ps, false);
    case T_IDENT:
    case T_QUOTED:
        return parse_name(ps);
    case T_LPAREN:
        next(ps);
        x = parse(ps, P_NONE);
        return x && expect(ps, T_RPAREN, "')'") ? x : NULL;
    case T_MINUS:
        next(ps);
        if (ps->tok == T_INT || ps->tok == T_REAL)
            return parse_literal(ps, true);
        x = parse(ps, P_NEG);
        return x ? node_unary(ps->b, at, X_NEG, x) : NULL;
    case T_NOT:
        next(ps);
        x = parse(ps, P_NOT);
        return x ? node_unary(ps->b, at, X_NOT, x) : NULL;
    case T_CASE:
        next(ps);
        return parse_case(ps, at);
    case T_CAST_WORD:
        next(ps);
        return parse_cast(ps, at);
    case T_BAD:
        return NULL;
    default:
        return unexpected(ps, "a value");
    }
}

/* x [not] in|like|between ...; the keyword is the current token. */
static struct node *parse_test(struct parser *ps, struct node *x, bool negate, size_t at) {
    enum tok t = ps->tok;
    struct node *r = NULL, *y;
    next(ps);
    if (t == T_IN) {
        struct list l = { 0 };
        if (!expect(ps, T_LPAREN, "'('") || !parse_list(ps, &l))
            return NULL;
        r = node_in(ps->b, at, x, l.v, l.n);
    } else if (t == T_LIKE) {
        r = (y = parse(ps, P_CONCAT)) ? node_binary(ps->b, at, X_LIKE, x, y) : NULL;
    } else {
        struct node *lo = parse(ps, P_CONCAT), *hi;
        if (!lo || !expect(ps, T_AND, "'and'") || !(hi = parse(ps, P_CONCAT)))
            return NULL;
        struct node *v[2] = { node_binary(ps->b, at, X_GE, x, lo),
                              node_binary(ps->b, at, X_LE, x, hi) };
        r = v[0] && v[1] ? node_logic(ps->b, at, X_AND, v, 2) : NULL;
    }
    return r && negate ? node_unary(ps->b, at, X_NOT, r) : r;
}

static int power(enum tok t) {
    switch (t) {
    case T_OR:
        return P_OR;
    case T_AND:
        return P_AND;
    case T_EQ:
    case T_NE:
    case T_LT:
    case T_LE:
    case T_GT:
    case T_GE:
    case T_IS:
    case T_IN:
    case T_LIKE:
    case T_BETWEEN:
    case T_NOT:
        return P_COMPARE;
    case T_CONCAT:
        return P_CONCAT;
    case T_PLUS:
    case T_MINUS:
        return P_ADD;
    case T_STAR:
    case T_SLASH:
    case T_PERCENT:
        return P_MUL;
    case T_CAST:
        return P_CAST;
    default:
        return P_NONE;
    }
}

/* a and b and c, or a || b || c: one node, however long. */
static struct node *parse_chain(struct parser *ps, struct node *x, enum tok t, int power_of) {
    struct list l = { 0 };
    size_t at = ps->at;
    list_add(ps, &l, x);
    while (take(ps, t)) {
        if (!(x = parse(ps, power_of + 1)))
            return NULL;
        list_add(ps, &l, x);
    }
    if (t == T_CONCAT)
        return node_concat(ps->b, at, l.v, l.n);
    return node_logic(ps->b, at, t == T_AND ? X_AND : X_OR, l.v, l.n);
}

static struct node *parse_compare(struct parser *ps, struct node *x) {
    enum tok t = ps->tok;
    size_t at = ps->at;
    if (ps->last_compare)
        return FAIL(ps, at, "comparisons do not chain; use 'and' or parentheses");
    if (t >= T_EQ && t <= T_GE) {
        next(ps);
        struct node *y = parse(ps, P_CONCAT);
        x = y ? node_binary(ps->b, at, X_EQ + (int)(t - T_EQ), x, y) : NULL;
    } else if (t == T_IS) {
        next(ps);
        bool negate = take(ps, T_NOT);
        if (!expect(ps, T_NULL, "'null'"))
            return NULL;
        x = node_unary(ps->b, at, X_IS_NULL, x);
        x = x && negate ? node_unary(ps->b, at, X_NOT, x) : x;
    } else {
        bool negate = take(ps, T_NOT);
        if (ps->tok != T_IN && ps->tok != T_LIKE && ps->tok != T_BETWEEN)
            return unexpected(ps, negate ? "'in', 'like' or 'between'" : "an operator");
        x = parse_test(ps, x, negate, at);
    }
    ps->last_compare = true;
    return x;
}

static struct node *parse_infix(struct parser *ps, struct node *x, int power_of) {
    enum tok t = ps->tok;
    size_t at = ps->at;
    if (power_of == P_OR || power_of == P_AND || power_of == P_CONCAT)
        return parse_chain(ps, x, t, power_of);
    if (power_of == P_COMPARE)
        return parse_compare(ps, x);
    next(ps);
    if (t == T_CAST) {
        enum type type;
        return parse_type(ps, &type) ? node_cast(ps->b, at, x, type) : NULL;
    }
    struct node *y = parse(ps, power_of + 1);
    int op = t == T_PLUS    ? X_ADD
             : t == T_MINUS ? X_SUB
             : t == T_STAR  ? X_MUL
             : t == T_SLASH ? X_DIV
                            : X_MOD;
    return y ? node_binary(ps->b, at, op, x, y) : NULL;
}

/* An expression whose operators bind tighter than or as `min`. Recursion is bounded by depth. */
static struct node *parse(struct parser *ps, int min) {
    if (++ps->depth > EXPR_DEPTH_MAX)
        return FAIL(ps, ps->at, "the expression nests deeper than %d", EXPR_DEPTH_MAX);
    struct node *x = parse_prefix(ps);
    int pw;
    ps->last_compare = false;
    while (x && ps->tok != T_BAD && (pw = power(ps->tok)) != P_NONE && pw >= min)
        x = parse_infix(ps, x, pw);
    ps->depth--;
    return ps->b->failed ? NULL : x;
}

static bool parser_open(struct parser *ps, struct build *b) {
    *ps = (struct parser){ .b = b, .p = b->text, .end = b->text + b->len };
    if (b->len > EXPR_TEXT_MAX) {
        FAIL(ps, EXPR_TEXT_MAX, "the expression is longer than %d bytes", EXPR_TEXT_MAX);
        return false;
    }
    next(ps);
    return ps->tok != T_BAD;
}

struct node *expr_parse(struct build *b) {
    struct parser ps;
    if (!parser_open(&ps, b))
        return NULL;
    struct node *x = parse(&ps, P_NONE);
    if (x && ps.tok != T_END)
        x = unexpected(&ps, "an operator or the end");
    return b->failed ? NULL : x;
}

static const char *const agg_words[] = { "count",    "sum",   "mean", "min",    "max",    "stddev",
                                         "variance", "first", "last", "min_by", "max_by", "avg" };
/* The arguments, up to the closing parenthesis. */
static bool agg_args(struct parser *ps, enum agg_kind kind, struct node **arg, struct node **by) {
    if (kind == AGG_COUNT && ps->tok == T_STAR)
        next(ps);
    else if (kind != AGG_COUNT || ps->tok != T_RPAREN)
        *arg = parse(ps, P_NONE);
    if (kind == AGG_MIN_BY || kind == AGG_MAX_BY) {
        if (ps->b->failed || !expect(ps, T_COMMA, "','"))
            return false;
        *by = parse(ps, P_NONE);
    }
    return !ps->b->failed && expect(ps, T_RPAREN, "')'");
}
int agg_parse(struct build *b, enum agg_kind *kind, struct node **arg, struct node **by) {
    struct parser ps;
    *arg = *by = NULL;
    if (!parser_open(&ps, b))
        return ERR_INPUT;
    enum { NWORDS = sizeof agg_words / sizeof *agg_words };
    int k = 0;
    char *word = arena_strndup(b->a, ps.s.p, ps.tok == T_IDENT ? ps.s.len : 0);
    while (k < NWORDS && strcasecmp(word, agg_words[k]))
        k++;
    if (k == NWORDS) {
        const char *near = err_nearest(word, agg_words, NWORDS);
        build_error(b, ps.at,
                    "an aggregate is count, sum, mean, min, max, stddev, variance, first, last, "
                    "min_by or max_by of an expression, as in mean(temperature)%s%s%s",
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        return ERR_INPUT;
    }
    *kind = k == NWORDS - 1 ? AGG_MEAN : (enum agg_kind)k;
    next(&ps);
    if (!expect(&ps, T_LPAREN, "'('"))
        return ERR_INPUT;
    if (agg_args(&ps, *kind, arg, by) && ps.tok != T_END)
        unexpected(&ps, "the end");
    return b->failed ? ERR_INPUT : 0;
}
