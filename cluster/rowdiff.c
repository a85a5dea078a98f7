#include "cluster/rowdiff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one value against one value ---- */

static bool same_number(const struct jnode *want, const struct jnode *got, double tolerance) {
    if (want->type == J_INT && got->type == J_INT && want->i == got->i)
        return true;
    double w = jnode_f64(want), g = jnode_f64(got);
    if (want->type == J_INT && got->type == J_INT && tolerance <= 0)
        return false;
    return w == g || fabs(w - g) <= tolerance;
}

static bool is_number(const struct jnode *n) {
    return n->type == J_INT || n->type == J_REAL;
}

/* Without what they hold. */
static bool fits_flat(const struct jnode *want, const struct jnode *got,
                      const struct rowdiff_rules *rules) {
    if (is_number(want) && is_number(got))
        return same_number(want, got, rules->tolerance);
    if (want->type != got->type)
        return false;
    switch (want->type) {
    case J_BOOL:
        return want->b == got->b;
    case J_STR:
        return want->len == got->len && memcmp(want->s, got->s, want->len) == 0;
    case J_ARR:
        return want->n == got->n;
    case J_OBJ:
        return rules->subset ? want->n <= got->n : want->n == got->n;
    default:
        return true;
    }
}

static const struct jnode *member(const struct jnode *obj, const struct jnode *like) {
    const struct jnode *c = obj->n ? obj->child : NULL;
    while (c && (c->klen != like->klen || memcmp(c->key, like->key, c->klen) != 0))
        c = c->next;
    return c;
}

/* In step through both trees (JSON_DEPTH_MAX deep at most); `got` is the partner of `want`. The
 * first value that does not fit is returned, with its partner (NULL: there is none). */
static const struct jnode *first_misfit(const struct jnode *want, const struct jnode *got,
                                        const struct rowdiff_rules *rules,
                                        const struct jnode **partner) {
    const struct jnode *w = want, *g = got;
    const struct jnode *up[JSON_DEPTH_MAX + 1];
    int depth = 0;
    for (;;) {
        if (!g || !fits_flat(w, g, rules)) {
            *partner = g;
            return w;
        }
        if ((w->type == J_OBJ || w->type == J_ARR) && w->n) {
            up[depth++] = g;
            const struct jnode *first = w->child;
            g = w->type == J_OBJ ? member(g, first) : g->child;
            w = first;
            continue;
        }
        while (w != want && !w->next) {
            w = w->parent;
            g = up[--depth];
        }
        if (w == want)
            return NULL;
        g = w->parent->type == J_OBJ ? member(up[depth - 1], w->next) : g->next;
        w = w->next;
    }
}

bool rowdiff_fits(const struct jnode *want, const struct jnode *got,
                  const struct rowdiff_rules *rules) {
    const struct jnode *partner;
    return !first_misfit(want, got, rules, &partner);
}

/* ---- rows ---- */

struct diff {
    const struct jnode **want;
    const struct rowdiff_row *got;
    uint32_t nwant, ngot;
    const struct rowdiff_rules *rules;
    struct arena *a;
    struct rowdiff_line *line;
    uint32_t n;
};

static bool equal(const struct diff *d, uint32_t i, uint32_t j) {
    const struct jnode *w = d->want[i];
    const struct rowdiff_row *g = &d->got[j];
    if (w->type == J_STR)
        return w->len == g->len && memcmp(w->s, g->text, g->len) == 0;
    return g->json && rowdiff_fits(w, g->json, d->rules);
}

static const char *canonical(struct arena *a, const struct jnode *n) {
    struct sbuf b = { 0 };
    sbuf_json_canonical(&b, n);
    const char *s = arena_strdup(a, sbuf_str(&b));
    sbuf_free(&b);
    return s;
}

static void add_line(struct diff *d, enum rowdiff_sign sign, uint32_t index) {
    struct rowdiff_line *l = &d->line[d->n++];
    *l = (struct rowdiff_line){ .sign = sign, .index = index };
    if (sign == ROWDIFF_EXTRA) {
        const struct rowdiff_row *g = &d->got[index];
        l->text = g->json ? canonical(d->a, g->json) : arena_strndup(d->a, g->text, g->len);
    } else {
        const struct jnode *w = d->want[index];
        l->text = w->type == J_STR ? arena_strndup(d->a, w->s, w->len) : canonical(d->a, w);
    }
}

/* ---- in order ---- */

/* Lengths of longest common subsequences of what follows (i,j), for rows lo..; row-major. */
static uint16_t *lcs_table(const struct diff *d, uint32_t lo, uint32_t n, uint32_t m) {
    uint16_t *t = calloc((size_t)(n + 1) * (m + 1), sizeof *t);
    if (!t)
        abort();
    for (uint32_t i = n; i-- > 0;)
        for (uint32_t j = m; j-- > 0;) {
            uint16_t *at = &t[(size_t)i * (m + 1) + j], down = at[m + 1], right = at[1];
            if (equal(d, lo + i, lo + j))
                *at = (uint16_t)(at[m + 2] + 1);
            else
                *at = down > right ? down : right;
        }
    return t;
}

static void walk_lcs(struct diff *d, uint32_t lo, uint32_t n, uint32_t m) {
    uint16_t *t = lcs_table(d, lo, n, m);
    for (uint32_t i = 0, j = 0; i < n || j < m;) {
        const uint16_t *at = &t[(size_t)i * (m + 1) + j];
        if (i < n && j < m && equal(d, lo + i, lo + j)) {
            add_line(d, ROWDIFF_SAME, lo + i++);
            j++;
        } else if (i < n && (j == m || at[m + 1] >= at[1])) {
            add_line(d, ROWDIFF_MISSING, lo + i++);
        } else {
            add_line(d, ROWDIFF_EXTRA, lo + j++);
        }
    }
    free(t);
}

static void walk_pairs(struct diff *d, uint32_t lo, uint32_t n, uint32_t m) {
    for (uint32_t i = 0; i < n || i < m; i++) {
        if (i < n && i < m && equal(d, lo + i, lo + i)) {
            add_line(d, ROWDIFF_SAME, lo + i);
            continue;
        }
        if (i < n)
            add_line(d, ROWDIFF_MISSING, lo + i);
        if (i < m)
            add_line(d, ROWDIFF_EXTRA, lo + i);
    }
}

static void in_order(struct diff *d) {
    uint32_t lo = 0, end = 0;
    while (lo < d->nwant && lo < d->ngot && equal(d, lo, lo))
        add_line(d, ROWDIFF_SAME, lo++);
    while (lo + end < d->nwant && lo + end < d->ngot &&
           equal(d, d->nwant - 1 - end, d->ngot - 1 - end))
        end++;
    uint32_t n = d->nwant - lo - end, m = d->ngot - lo - end;
    if ((uint64_t)(n + 1) * (m + 1) <= ROWDIFF_CELLS)
        walk_lcs(d, lo, n, m);
    else
        walk_pairs(d, lo, n, m);
    for (uint32_t i = d->nwant - end; i < d->nwant; i++)
        add_line(d, ROWDIFF_SAME, i);
}

/* ---- in any order ---- */

enum { NONE = -1 };

/* Finds row `i` a partner, moving others to further ones where that helps (breadth first). */
static void match_one(const struct diff *d, uint32_t i, int64_t *of_want, int64_t *of_got,
                      int64_t *from, uint32_t *queue) {
    uint32_t head = 0, tail = 0;
    for (uint32_t j = 0; j < d->ngot; j++)
        from[j] = NONE;
    queue[tail++] = i;
    while (head < tail) {
        uint32_t w = queue[head++];
        for (uint32_t j = 0; j < d->ngot; j++) {
            if (from[j] != NONE || !equal(d, w, j))
                continue;
            from[j] = w;
            if (of_got[j] != NONE) {
                queue[tail++] = (uint32_t)of_got[j];
                continue;
            }
            for (int64_t at = j, next; at != NONE; at = next) { /* turn the path over */
                uint32_t x = (uint32_t)from[at];
                next = of_want[x];
                of_want[x] = at;
                of_got[at] = x;
                if (x == i)
                    return;
            }
        }
    }
}

static void in_any_order(struct diff *d) {
    int64_t *of_want = ARENA_ARRAY(d->a, int64_t, d->nwant + 1);
    int64_t *of_got = ARENA_ARRAY(d->a, int64_t, d->ngot + 1);
    int64_t *from = ARENA_ARRAY(d->a, int64_t, d->ngot + 1);
    uint32_t *queue = ARENA_ARRAY(d->a, uint32_t, d->nwant + 1);
    for (uint32_t i = 0; i < d->nwant; i++)
        of_want[i] = NONE;
    for (uint32_t j = 0; j < d->ngot; j++)
        of_got[j] = NONE;
    for (uint32_t i = 0; i < d->nwant; i++)
        match_one(d, i, of_want, of_got, from, queue);
    for (uint32_t i = 0; i < d->nwant; i++)
        add_line(d, of_want[i] == NONE ? ROWDIFF_MISSING : ROWDIFF_SAME, i);
    for (uint32_t j = 0; j < d->ngot; j++)
        if (of_got[j] == NONE)
            add_line(d, ROWDIFF_EXTRA, j);
}

/* ---- what two rows differ in ---- */

static const char *note(struct diff *d, const struct jnode *want, const struct rowdiff_row *got) {
    char at[256];
    const struct jnode *g, *w;
    if (want->type == J_STR)
        return NULL;
    if (!got->json)
        return "it is no JSON";
    if (want->type != J_OBJ || got->json->type != J_OBJ)
        return NULL;
    struct rowdiff_rules loose = *d->rules;
    loose.subset = true; /* members that are too many are told last */
    w = first_misfit(want, got->json, &loose, &g);
    if (!w) {
        const struct jnode *more = got->json->child;
        while (more && member(want, more))
            more = more->next;
        return more ? arena_printf(d->a, "'%s' is not wanted", more->key) : NULL;
    }
    if (w == want)
        return NULL;
    const char *path = jnode_pointer(w, at, sizeof at), *root = path;
    char base[256];
    jnode_pointer(want, base, sizeof base);
    root += strlen(base) < strlen(path) ? strlen(base) + 1 : 0;
    return g ? arena_printf(d->a, "%s: %s, not %s", root, canonical(d->a, g), canonical(d->a, w))
             : arena_printf(d->a, "'%s' is missing", root);
}

/* Runs of missing and extra rows next to each other, one to one. */
static void add_notes(struct diff *d) {
    for (uint32_t i = 0; i < d->n;) {
        uint32_t miss = i, extra;
        while (miss < d->n && d->line[miss].sign == ROWDIFF_MISSING)
            miss++;
        for (extra = miss; extra < d->n && d->line[extra].sign == ROWDIFF_EXTRA; extra++) {
            uint32_t k = i + (extra - miss);
            if (k < miss)
                d->line[extra].note =
                    note(d, d->want[d->line[k].index], &d->got[d->line[extra].index]);
        }
        i = extra > i ? extra : i + 1;
    }
}

int rowdiff(const struct jnode *want, uint32_t nwant, const struct rowdiff_row *got, uint32_t ngot,
            const struct rowdiff_rules *rules, struct arena *a, struct rowdiff_line **lines,
            uint32_t *nlines) {
    struct diff d = { .got = got, .nwant = nwant, .ngot = ngot, .rules = rules, .a = a };
    int bad = 0;
    d.want = ARENA_ARRAY(a, const struct jnode *, nwant + 1);
    const struct jnode *w = want;
    for (uint32_t i = 0; w && i < nwant; i++) {
        d.want[i] = w;
        w = w->next;
    }
    d.line = ARENA_ARRAY(a, struct rowdiff_line, nwant + ngot + 1);
    if (rules->any_order)
        in_any_order(&d);
    else
        in_order(&d);
    add_notes(&d);
    for (uint32_t i = 0; i < d.n; i++)
        bad += d.line[i].sign != ROWDIFF_SAME;
    *lines = d.line;
    *nlines = d.n;
    return bad;
}
