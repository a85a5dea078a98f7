#include "cluster/template.h"
#include "engine/num.h"
#include <string.h>

#define DATE_LEN 19              /* "2013-01-13 23:36:00" */
#define DATE_MAX 253402300799999 /* 9999-12-31T23:59:59.999 */

struct scan {
    struct template *t;
    const char *text, *p, *end;
    int64_t epoch;
    const char *id_field;
    size_t id_len;
};

static void add_hole(struct scan *s, const char *p, size_t len, enum hole_kind kind, int64_t v) {
    struct template *t = s->t;
    if (t->n == TEMPLATE_HOLES_MAX || len > UINT16_MAX)
        return;
    /* An id is known only at the end of its entry, when later times may be in already. */
    int at = t->n;
    uint32_t off = (uint32_t)(p - s->text);
    while (at > 0 && t->holes[at - 1].off > off)
        at--;
    if (at > 0 && t->holes[at - 1].off + t->holes[at - 1].len > off)
        return;
    memmove(&t->holes[at + 1], &t->holes[at], (size_t)(t->n - at) * sizeof *t->holes);
    t->holes[at] = (struct hole){ off, (uint16_t)len, (uint16_t)kind, v };
    t->n++;
    if (kind == HOLE_ID)
        t->id = at;
    else if (t->id >= at)
        t->id++;
}
static bool digit(char c) {
    return c >= '0' && c <= '9';
}
/* A whole RFC 3339 time: its hole ends after at most three decimals, the rest is kept. */
static bool add_date(struct scan *s, const char *p, const char *end) {
    int64_t ms;
    if (end - p < DATE_LEN || end - p > NUM_TIME_MAX_LEN || p[4] != '-' || p[7] != '-' ||
        (p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':' || time_parse(p, end, &ms))
        return false;
    const char *q = p + DATE_LEN;
    if (q < end && *q == '.')
        for (q++; q < end && q < p + DATE_LEN + 4 && digit(*q);)
            q++;
    if (time_parse(p, q, &ms) != 0)
        return false;
    add_hole(s, p, (size_t)(q - p), HOLE_DATE, ms);
    return true;
}
/* One value or field; `bt`: it is the value of that member. */
static void add_value(struct scan *s, const char *p, const char *end, bool string, bool bt) {
    if (p == end)
        return;
    int64_t v;
    if (!digit(*p) && *p != '-')
        return;
    if (bt || s->epoch >= TEMPLATE_EPOCH_MIN) {
        if (num_i64_whole(p, end, &v) == 0 && digit(p[*p == '-'])) {
            if (bt && !s->t->has_bt) {
                s->t->has_bt = true;
                s->t->bt = v;
            }
            if (bt || v == s->epoch)
                add_hole(s, p, (size_t)(end - p), HOLE_INT, v);
            return;
        }
    }
    if (string)
        add_date(s, p, end);
}

/* A string that opens at s->p: its inside in [*a,*b), s->p behind it. False: it never closes. */
static bool scan_string(struct scan *s, const char **a, const char **b, bool *escaped) {
    const char *p = s->p + 1;
    *a = p;
    *escaped = false;
    for (;;) {
        const char *q = memchr(p, '"', (size_t)(s->end - p));
        if (!q)
            return false;
        const char *bs = q;
        while (bs > *a && bs[-1] == '\\')
            bs--;
        if ((q - bs) % 2 == 0) {
            *b = q;
            *escaped = memchr(*a, '\\', (size_t)(q - *a)) != NULL;
            s->p = q + 1;
            return true;
        }
        p = q + 1;
    }
}
static bool is(const char *a, const char *b, const char *word, size_t len) {
    return (size_t)(b - a) == len && memcmp(a, word, len) == 0;
}
static bool space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The flat object being read: enough to know a SenML entry's name and value. */
struct entry {
    const char *key, *key_end; /* of the value to come; NULL: none */
    bool named;                /* "n" is the id field */
    const char *value, *value_end;
};
static void entry_string(struct scan *s, struct entry *e, int depth, const char *a, const char *b) {
    if (!s->id_field || !e->key)
        return;
    if (is(e->key, e->key_end, "n", 1))
        e->named = is(a, b, s->id_field, s->id_len);
    else if (is(e->key, e->key_end, "sv", 2) || is(e->key, e->key_end, "v", 1))
        e->value = a, e->value_end = b;
    if (depth == 1 && s->t->id < 0 && is(e->key, e->key_end, s->id_field, s->id_len))
        add_hole(s, a, (size_t)(b - a), HOLE_ID, 0);
}
static void entry_end(struct scan *s, struct entry *e) {
    if (e->named && e->value && s->t->id < 0)
        add_hole(s, e->value, (size_t)(e->value_end - e->value), HOLE_ID, 0);
    *e = (struct entry){ 0 };
}
static void scan_json_string(struct scan *s, struct entry *e, int depth) {
    const char *a, *b;
    bool escaped;
    if (!scan_string(s, &a, &b, &escaped)) {
        s->p = s->end;
        return;
    }
    while (s->p < s->end && space(*s->p))
        s->p++;
    if (s->p < s->end && *s->p == ':') {
        e->key = a, e->key_end = b;
        return;
    }
    bool bt = depth == 1 && e->key && is(e->key, e->key_end, "bt", 2);
    if (!escaped) {
        entry_string(s, e, depth, a, b);
        add_value(s, a, b, true, bt);
    }
    e->key = NULL;
}
static void scan_json(struct scan *s) {
    struct entry e = { 0 };
    int depth = 0;
    while (s->p < s->end) {
        char c = *s->p;
        if (c == '"') {
            scan_json_string(s, &e, depth);
        } else if (digit(c) || c == '-') {
            const char *a = s->p;
            while (s->p < s->end && !space(*s->p) && *s->p != ',' && *s->p != '}' && *s->p != ']')
                s->p++;
            bool bt = depth == 1 && e.key && is(e.key, e.key_end, "bt", 2);
            add_value(s, a, s->p, false, bt);
            e.key = NULL;
        } else {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            if (c == '{' || c == '}')
                entry_end(s, &e);
            else if (c == '[')
                e.key = NULL;
            s->p++;
        }
    }
}
/* The quoted cell at s->p: its inside in [*a,*b), s->p behind it. False: it is never closed. */
static bool scan_quoted(struct scan *s, const char **a, const char **b, bool *doubled) {
    const char *q = *a = s->p + 1;
    for (*doubled = false; (q = memchr(q, '"', (size_t)(s->end - q))); q += 2) {
        if (q + 1 == s->end || q[1] != '"') {
            *b = q;
            s->p = q + 1;
            return true;
        }
        *doubled = true;
    }
    return false;
}
static void scan_csv(struct scan *s, char delimiter) {
    int64_t want = 0, column = 0;
    if (s->id_field && num_i64_whole(s->id_field, s->id_field + s->id_len, &want) != 0)
        want = 0;
    for (; s->p < s->end; s->p++) {
        const char *a = s->p, *b;
        bool plain = true;
        if (*a == '"') {
            bool doubled;
            if (!scan_quoted(s, &a, &b, &doubled))
                return;
            plain = !doubled && (s->p == s->end || *s->p == delimiter);
            while (s->p < s->end && *s->p != delimiter)
                s->p++;
        } else {
            b = memchr(a, delimiter, (size_t)(s->end - a));
            s->p = b ? b : (b = s->end);
        }
        column++;
        if (plain && column == want && b > a)
            add_hole(s, a, (size_t)(b - a), HOLE_ID, 0);
        else if (plain)
            add_value(s, a, b, true, false);
    }
}
void template_find(struct template *t, const char *text, uint32_t len, char csv, int64_t epoch,
                   const char *id_field, struct hole *holes) {
    *t = (struct template){ .text = text, .len = len, .holes = holes, .id = -1 };
    struct scan s = { t, text, text, text + len, epoch, id_field, id_field ? strlen(id_field) : 0 };
    const char *p = text;
    while (p < s.end && space(*p))
        p++;
    if (!csv && p < s.end && (*p == '{' || *p == '['))
        scan_json(&s);
    else
        scan_csv(&s, csv ? csv : ',');
}

uint32_t template_room(const struct template *t, uint32_t id_len) {
    return t->len + (uint32_t)t->n * TEMPLATE_HOLE_BYTES + id_len;
}
static int64_t add_capped(int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return b < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}
static char *write_date(char *out, const struct hole *h, const char *old, int64_t ms) {
    char text[NUM_TIME_MAX_LEN];
    ms = ms > DATE_MAX ? DATE_MAX : ms;
    time_write(text, ms);
    text[10] = old[10];
    memcpy(out, text, DATE_LEN);
    if (h->len > DATE_LEN) {
        int64_t sub = ms % 1000 < 0 ? ms % 1000 + 1000 : ms % 1000;
        out[DATE_LEN] = '.';
        const char digits[3] = { (char)('0' + sub / 100), (char)('0' + sub / 10 % 10),
                                 (char)('0' + sub % 10) };
        memcpy(out + DATE_LEN + 1, digits, (size_t)(h->len - DATE_LEN - 1));
    }
    return out + h->len;
}
uint32_t template_render(const struct template *t, int64_t shift_ms, const char *id,
                         uint32_t id_len, char *out) {
    const char *from = t->text;
    char *to = out;
    for (int i = 0; i < t->n; i++) {
        const struct hole *h = &t->holes[i];
        const char *at = t->text + h->off;
        memcpy(to, from, (size_t)(at - from));
        to += at - from;
        from = at + h->len;
        if (h->kind != HOLE_ID && !shift_ms) { /* also "007" and a leap second stay */
            memcpy(to, at, h->len);
            to += h->len;
        } else if (h->kind == HOLE_INT) {
            to += num_write_i64(to, add_capped(h->value, shift_ms));
        } else if (h->kind == HOLE_DATE) {
            to = write_date(to, h, at, add_capped(h->value, shift_ms));
        } else {
            uint32_t len = id ? id_len : h->len;
            memcpy(to, id ? id : at, len);
            to += len;
        }
    }
    size_t rest = (size_t)(t->text + t->len - from);
    memcpy(to, from, rest);
    return (uint32_t)(to + rest - out);
}
