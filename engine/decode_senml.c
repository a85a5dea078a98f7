/* The strict reader of SenML records; see decode.h. ~8 ns an event, 64 events a SYS record. */
#include "engine/decode_cell.h"
#include "engine/json.h"
#include "engine/num.h"
#include <stdlib.h>

enum { ENTRIES_MAX = 4096 }; /* of one record */

int decode_syntax(const struct json_reader *r, struct decode_error *e) {
    return decode_fail(e, "bad_json", NULL, (uint32_t)r->err.offset, "%.120s", r->err.text);
}
static int structure(const struct json_reader *r, struct decode_error *e, const char *what) {
    return decode_fail(e, "bad_record", NULL, (uint32_t)(r->at - r->text), "%s", what);
}

/* The scalar under the reader. */
void decode_token(const struct json_reader *r, struct token *t) {
    static const uint8_t type[] = { [JE_NULL] = J_NULL,
                                    [JE_BOOL] = J_BOOL,
                                    [JE_INT] = J_INT,
                                    [JE_REAL] = J_REAL,
                                    [JE_STR] = J_STR };
    bool quoted = r->event == JE_STR;
    t->type = type[r->event];
    t->off = (uint32_t)(r->at - r->text) + quoted;
    t->len = (uint32_t)(r->p - r->at) - 2 * quoted;
    t->b = r->b;
    t->i = r->i;
    t->d = r->d;
    t->s = quoted ? (struct span){ .p = r->s, .len = r->len }
                  : (struct span){ .p = r->at, .len = t->len };
}
static inline bool key_is(const struct json_reader *r, const char *w, uint32_t n) {
    return r->len == n && memcmp(r->s, w, n) == 0;
}
/* The value of key `key`, which must be a scalar and given once. */
static int scalar(struct json_reader *r, struct token *t, const char *key, struct decode_error *e) {
    if (t->type != TOKEN_NONE)
        return decode_fail(e, "bad_record", NULL, (uint32_t)(r->at - r->text),
                           "key \"%s\" appears twice", key);
    if (json_next(r) == JE_ERROR)
        return decode_syntax(r, e);
    if (r->event < JE_NULL || r->event > JE_STR)
        return decode_fail(e, "bad_record", NULL, (uint32_t)(r->at - r->text),
                           "\"%s\" must be a string, number or boolean", key);
    decode_token(r, t);
    return 0;
}
enum { KEY_N, KEY_V, KEY_SV, KEY_VB, KEY_T, KEY_S, KEY_VD, KEY_OTHER, KEYS };

/* Which of these a key is; no branch that depends on the order of keys. */
static inline int entry_key(const struct json_reader *r) {
    static const uint8_t one[256] = {
        ['n'] = KEY_N + 1, ['v'] = KEY_V + 1, ['t'] = KEY_T + 1, ['s'] = KEY_S + 1
    };
    if (r->len == 1 && one[(unsigned char)r->s[0]])
        return one[(unsigned char)r->s[0]] - 1;
    if (r->len != 2)
        return KEY_OTHER;
    return memcmp(r->s, "sv", 2) == 0   ? KEY_SV
           : memcmp(r->s, "vb", 2) == 0 ? KEY_VB
           : memcmp(r->s, "vd", 2) == 0 ? KEY_VD
                                        : KEY_OTHER;
}
/* Absent, null, or the number 0, also as text: what adds nothing to `bt` or to a value. */
static bool is_nothing(const struct token *t) {
    double d = 1;
    if (t->type == J_INT || t->type == J_REAL)
        return t->d == 0;
    return t->type == TOKEN_NONE || t->type == J_NULL ||
           (t->type == J_STR && num_f64_whole(t->s.p, t->s.p + t->s.len, &d) == 0 && d == 0);
}
static int read_entry(struct json_reader *r, struct entry *n, struct decode_error *e) {
    static const char *const words[] = { "n", "v", "sv", "vb", "t", "s", "vd" };
    struct token t[KEYS];
    for (int i = 0; i < KEYS; i++)
        t[i].type = TOKEN_NONE;
    n->off = (uint32_t)(r->at - r->text);
    for (enum jevent ev; (ev = json_next(r)) != JE_OBJ_END;) {
        if (ev == JE_ERROR)
            return decode_syntax(r, e);
        int k = entry_key(r);
        if (k != KEY_OTHER && t[k].type != TOKEN_NONE)
            return decode_fail(e, "bad_record", NULL, (uint32_t)(r->at - r->text),
                               "key \"%s\" appears twice", words[k]);
        ev = json_next(r);
        if (ev >= JE_NULL && ev <= JE_STR) {
            decode_token(r, &t[k]);
        } else if (ev == JE_ERROR) {
            return decode_syntax(r, e);
        } else if (k != KEY_OTHER) {
            return decode_fail(e, "bad_record", NULL, (uint32_t)(r->at - r->text),
                               "\"%s\" must be a string, number or boolean", words[k]);
        } else if (json_skip(r) != 0) {
            return decode_syntax(r, e);
        }
    }
    n->v = t[KEY_V];
    n->sv = t[KEY_SV];
    n->vb = t[KEY_VB];
    n->unread = NULL;
    if (!is_nothing(&t[KEY_T]))
        n->unread = "t";
    else if (n->v.type == TOKEN_NONE && n->sv.type == TOKEN_NONE && n->vb.type == TOKEN_NONE)
        n->unread = t[KEY_S].type != TOKEN_NONE ? "s" : t[KEY_VD].type != TOKEN_NONE ? "vd" : NULL;
    n->name = (struct span){ 0 };
    if (t[KEY_N].type == J_STR)
        n->name = t[KEY_N].s;
    else if (t[KEY_N].type != TOKEN_NONE)
        return decode_fail(e, "bad_record", NULL, t[KEY_N].off, "\"n\" must be a string");
    return 0;
}
static int read_entries(struct decoder *d, struct json_reader *r, struct decode_error *e) {
    if (json_next(r) == JE_ERROR)
        return decode_syntax(r, e);
    if (r->event != JE_ARR)
        return structure(r, e, "\"e\" must be an array");
    for (;;) {
        if (json_next(r) == JE_ERROR)
            return decode_syntax(r, e);
        if (r->event == JE_ARR_END)
            return 0;
        if (r->event != JE_OBJ)
            return structure(r, e, "an entry of \"e\" must be an object");
        if (d->nentries == ENTRIES_MAX)
            return structure(r, e, "more than 4096 entries");
        if (d->nentries == d->entries_cap) {
            d->entries_cap = d->entries_cap ? d->entries_cap * 2 : 32;
            d->entry = realloc(d->entry, (size_t)d->entries_cap * sizeof *d->entry);
            if (!d->entry)
                abort();
        }
        int rc = read_entry(r, &d->entry[d->nentries++], e);
        if (rc)
            return rc;
    }
}
struct record { /* what stands around the entries */
    struct token bt, bn, bv, bs;
    bool has_e;
};
static int read_record(struct decoder *d, struct json_reader *r, struct record *rec,
                       struct decode_error *e) {
    rec->bt.type = rec->bn.type = rec->bv.type = rec->bs.type = TOKEN_NONE;
    rec->has_e = false;
    d->nentries = 0;
    if (json_next(r) == JE_ERROR)
        return decode_syntax(r, e);
    if (r->event != JE_OBJ)
        return structure(r, e,
                         r->event == JE_ARR
                             ? "a SenML record is an object with an array \"e\": the array form "
                               "of RFC 8428 is not supported"
                             : "a SenML record is an object with an array \"e\"");
    while (json_next(r) == JE_KEY) {
        int rc = 0;
        if (key_is(r, "e", 1)) {
            if (rec->has_e)
                return structure(r, e, "key \"e\" appears twice");
            rec->has_e = true;
            rc = read_entries(d, r, e);
        } else if (key_is(r, "bt", 2)) {
            rc = scalar(r, &rec->bt, "bt", e);
        } else if (key_is(r, "bn", 2)) {
            rc = scalar(r, &rec->bn, "bn", e);
        } else if (key_is(r, "bv", 2)) {
            rc = scalar(r, &rec->bv, "bv", e);
        } else if (key_is(r, "bs", 2)) {
            rc = scalar(r, &rec->bs, "bs", e);
        } else if (json_skip(r) != 0) {
            rc = decode_syntax(r, e);
        }
        if (rc)
            return rc;
    }
    if (r->event == JE_ERROR || json_next(r) == JE_ERROR)
        return decode_syntax(r, e);
    if (!rec->has_e)
        return structure(r, e, "no \"e\" in the record");
    if (rec->bn.type != TOKEN_NONE && rec->bn.type != J_STR)
        return decode_fail(e, "bad_record", NULL, rec->bn.off, "\"bn\" must be a string");
    if (!is_nothing(&rec->bv) || !is_nothing(&rec->bs))
        return decode_fail(e, "bad_record", NULL, is_nothing(&rec->bv) ? rec->bs.off : rec->bv.off,
                           "a base value (\"bv\", \"bs\") is not supported");
    return 0;
}

/* The field an entry is about, or -1. */
static int entry_field(struct decoder *d, const struct record *rec, const struct entry *n,
                       struct arena *a) {
    struct span bn = { 0 };
    if (rec->bn.type == J_STR)
        bn = rec->bn.s;
    if (!n->name.p)
        return bn.p ? decode_field(d, bn) : -1;
    /* bn, n: RFC 8428 concatenates, RIoTBench takes n alone. Longer than any field: no copies */
    if (bn.len && n->name.len <= d->name_max && bn.len <= d->name_max - n->name.len) {
        char *both = arena_alloc(a, (size_t)bn.len + n->name.len + 1);
        memcpy(both, bn.p, bn.len);
        memcpy(both + bn.len, n->name.p, n->name.len);
        int i = decode_field(d, (struct span){ .p = both, .len = bn.len + n->name.len });
        if (i >= 0)
            return i;
    }
    return decode_field(d, n->name);
}
static void note(struct decoder *d, const struct token *t, bool chosen, int field) {
    if (t->type == TOKEN_NONE || t->type == J_NULL)
        return; /* null stays literal: a shape of its own */
    shape_note(&d->shapes, t->type, t->off, t->len, chosen ? field : TARGET_IGNORED);
}
/* The values of an entry in the order of the text. */
static void note_entry(struct decoder *d, const struct entry *n, const struct token *chosen,
                       int field) {
    const struct token *t[] = { &n->v, &n->sv, &n->vb };
    for (int i = 0; i < 3; i++)
        for (int k = i; k > 0 && t[k]->type != TOKEN_NONE &&
                        (t[k - 1]->type == TOKEN_NONE || t[k]->off < t[k - 1]->off);
             k--) {
            const struct token *swap = t[k];
            t[k] = t[k - 1];
            t[k - 1] = swap;
        }
    for (int i = 0; i < 3; i++)
        note(d, t[i], t[i] == chosen, field);
}
static int entry_cell(struct decoder *d, const struct record *rec, const struct entry *n,
                      struct decode_rows *o, uint32_t row, struct decode_error *e) {
    int field = entry_field(d, rec, n, o->arena);
    const struct token *t = n->v.type != TOKEN_NONE    ? &n->v
                            : n->sv.type != TOKEN_NONE ? &n->sv
                                                       : &n->vb;
    note_entry(d, n, t, field);
    if (field < 0)
        return 0;
    if (d->seen[field] == d->now)
        return decode_fail(e, "duplicate_field", d->schema->f[field].name, n->off,
                           "appears twice in the record");
    if (n->unread)
        return decode_fail(e, "bad_record", d->schema->f[field].name, n->off,
                           n->unread[0] == 't'
                               ? "a time of its own (\"%s\") is not supported: the record is one "
                                 "row, at \"bt\""
                               : "its value is in \"%s\", which is not supported: use \"v\", "
                                 "\"sv\" or \"vb\"",
                           n->unread);
    d->seen[field] = d->now;
    return decode_cell(d, o, row, field, t, e);
}
/* bt; *ms is TIME_MIN when the record has none. */
static int record_time(const struct token *t, int64_t *ms, struct decode_error *e) {
    *ms = TIME_MIN;
    if (t->type == TOKEN_NONE || t->type == J_NULL)
        return 0;
    bool good = t->type == J_INT;
    if (good)
        *ms = t->i;
    else
        good = t->type == J_STR && num_i64_whole(t->s.p, t->s.p + t->s.len, ms) == 0;
    if (!good || *ms < DECODE_TIME_MIN || *ms > DECODE_TIME_MAX)
        return decode_fail(e, "bad_value", NULL, t->off, "\"bt\" is not a time in ms");
    return 0;
}
static int time_cell(struct decoder *d, struct decode_rows *o, uint32_t row, const struct token *t,
                     int64_t ms) {
    int f = d->time_field;
    if (f < 0 || d->seen[f] == d->now || ms == TIME_MIN)
        return -1;
    d->seen[f] = d->now;
    switch (d->schema->f[f].type) {
    case TYPE_I64:
        ((int64_t *)o->value[f])[row] = ms;
        break;
    case TYPE_F64:
        ((double *)o->value[f])[row] = (double)ms;
        break;
    default:
        ((struct span *)o->value[f])[row] = t->s;
    }
    return f;
}
/* Notes are made entry by entry; bt goes where it stands in the text. */
static void note_time(struct decoder *d, const struct token *t) {
    struct shapes *s = &d->shapes;
    if (t->type == TOKEN_NONE || t->type == J_NULL)
        return;
    shape_note(s, t->type, t->off, t->len, TARGET_TIME);
    for (int i = s->nnotes - 1; i > 0 && s->note[i].off < s->note[i - 1].off; i--) {
        struct shape_note swap = s->note[i];
        s->note[i] = s->note[i - 1];
        s->note[i - 1] = swap;
    }
}
int decode_senml(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                 uint32_t row, struct decode_error *e) {
    struct json_reader r;
    struct record rec;
    int64_t ms;
    json_open(&r, text, len, o->arena);
    int rc = read_record(d, &r, &rec, e);
    json_close(&r);
    if (rc || (rc = record_time(&rec.bt, &ms, e)) != 0)
        return rc;
    for (int i = 0; i < d->nentries && rc == 0; i++)
        rc = entry_cell(d, &rec, &d->entry[i], o, row, e);
    if (rc)
        return rc;
    o->time[row] = ms;
    int time_field = time_cell(d, o, row, &rec.bt, ms);
    note_time(d, &rec.bt);
    decode_missing(d, o, row);
    decode_learn(d, text, len, time_field);
    return 0;
}
