#include "cluster/journal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_LEN = 10, VERSION = 1 };

static void key_of(char key[KEY_LEN], char kind, uint64_t n) {
    key[0] = 'P';
    key[1] = kind;
    for (int i = 0; i < 8; i++)
        key[2 + i] = (char)(n >> (56 - 8 * i));
}

static uint64_t key_number(const char *key) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n = n << 8 | (unsigned char)key[2 + i];
    return n;
}

void journal_put_meta(struct log_epoch *ep, const struct journal_meta *m) {
    char text[160];
    int n = snprintf(text, sizeof text,
                     "{\"v\":%d,\"version\":%llu,\"next\":%llu,\"cut\":%llu,\"serial\":%llu}",
                     VERSION, (unsigned long long)m->version, (unsigned long long)m->next_instance,
                     (unsigned long long)m->cut, (unsigned long long)m->serial);
    log_epoch_state(ep, "PM", 2, text, (uint32_t)n);
}

static void add_str(struct sbuf *out, const char *key, const char *s, size_t len) {
    sbuf_printf(out, ",\"%s\":", key);
    sbuf_json_str(out, s, len);
}

static void add_pairs(struct sbuf *out, const char *key, const struct journal_pair *v, int n) {
    sbuf_printf(out, ",\"%s\":{", key);
    for (int i = 0; i < n; i++) {
        sbuf_adds(out, i ? "," : "");
        sbuf_json_str(out, v[i].name, strlen(v[i].name));
        sbuf_adds(out, ":");
        sbuf_json_str(out, v[i].text, strlen(v[i].text));
    }
    sbuf_adds(out, "}");
}

void journal_flow_text(struct sbuf *out, const struct journal_flow *f) {
    sbuf_printf(out, "{\"v\":%d,\"submitted_ms\":%lld,\"cut\":%llu", VERSION,
                (long long)f->submitted_ms, (unsigned long long)f->cut);
    add_str(out, "name", f->name, strlen(f->name));
    add_str(out, "file", f->file, strlen(f->file));
    add_str(out, "description", f->description, strlen(f->description));
    add_pairs(out, "files", f->files, f->nfiles);
    add_pairs(out, "vars", f->vars, f->nvars);
    add_str(out, "plan", f->plan, f->plan_len);
    add_str(out, "text", f->text, f->len);
    sbuf_adds(out, "}");
}

void journal_put_flow(struct log_epoch *ep, uint64_t serial, const char *text, size_t len) {
    char key[KEY_LEN];
    key_of(key, 'D', serial);
    log_epoch_state(ep, key, KEY_LEN, text, (uint32_t)len);
}

void journal_drop_flow(struct log_epoch *ep, uint64_t serial) {
    char key[KEY_LEN];
    key_of(key, 'D', serial);
    log_epoch_state(ep, key, KEY_LEN, NULL, 0);
}

void journal_put_history(struct log_epoch *ep, const struct journal_history *h) {
    char key[KEY_LEN], value[8 + LOG_NAME_MAX];
    size_t len = strnlen(h->topic, LOG_NAME_MAX);
    key_of(key, 'H', h->instance);
    memcpy(value, &h->offset, 8);
    memcpy(value + 8, h->topic, len);
    log_epoch_state(ep, key, KEY_LEN, value, (uint32_t)(8 + len));
}

void journal_drop_history(struct log_epoch *ep, uint64_t instance) {
    char key[KEY_LEN];
    key_of(key, 'H', instance);
    log_epoch_state(ep, key, KEY_LEN, NULL, 0);
}

/* ---- reading ---- */

struct reading {
    struct journal *j;
    struct arena *a;
    struct err *e;
    int flows_cap, history_cap;
};

static int64_t int_of(const struct jnode *obj, const char *key) {
    const struct jnode *n = jnode_get(obj, key);
    return n && n->type == J_INT ? n->i : 0;
}

static const char *str_of(const struct jnode *obj, const char *key, size_t *len) {
    const struct jnode *n = jnode_get(obj, key);
    if (len)
        *len = n && n->type == J_STR ? n->len : 0;
    return n && n->type == J_STR ? n->s : "";
}

static const struct journal_pair *pairs_of(struct arena *a, const struct jnode *obj,
                                           const char *key, int *count) {
    const struct jnode *n = jnode_get(obj, key);
    struct journal_pair *v = ARENA_ARRAY(a, struct journal_pair, n && n->n ? n->n : 1);
    *count = 0;
    for (const struct jnode *c = n && n->type == J_OBJ && n->n ? n->child : NULL; c; c = c->next)
        v[(*count)++] = (struct journal_pair){ c->key, c->type == J_STR ? c->s : "" };
    return v;
}

static int parse(struct reading *r, const void *value, uint32_t vlen, struct json_doc *doc,
                 const char *what) {
    struct errs es = { 0 };
    char *text = arena_strndup(r->a, value, vlen);
    int rc = json_parse(doc, NULL, text, vlen, r->a, &es);
    if (rc < 0 || int_of(doc->root, "v") != VERSION)
        rc = err_set(r->e, ERR_SYSTEM, "the plan record of %s cannot be read%s%s", what,
                     es.n ? ": " : "; it is of another version", es.n ? es.v[0].text : "");
    errs_free(&es);
    return rc;
}

static void *grown(struct arena *a, void *v, int n, int *cap, size_t size) {
    if (n < *cap)
        return v;
    *cap = *cap ? 2 * *cap : 16;
    void *w = arena_alloc(a, size * (size_t)*cap);
    if (n)
        memcpy(w, v, size * (size_t)n);
    return w;
}

static int read_flow(struct reading *r, uint64_t serial, const void *value, uint32_t vlen) {
    struct journal *j = r->j;
    struct json_doc doc = { 0 };
    int rc = parse(r, value, vlen, &doc, "a dataflow");
    if (rc < 0)
        return rc;
    j->flows = grown(r->a, j->flows, j->nflows, &r->flows_cap, sizeof *j->flows);
    struct journal_flow *f = &j->flows[j->nflows++];
    *f = (struct journal_flow){ .serial = serial,
                                .submitted_ms = int_of(doc.root, "submitted_ms"),
                                .cut = (uint64_t)int_of(doc.root, "cut"),
                                .name = str_of(doc.root, "name", NULL),
                                .file = str_of(doc.root, "file", NULL),
                                .description = str_of(doc.root, "description", NULL) };
    f->text = str_of(doc.root, "text", &f->len);
    f->plan = str_of(doc.root, "plan", &f->plan_len);
    f->files = pairs_of(r->a, doc.root, "files", &f->nfiles);
    f->vars = pairs_of(r->a, doc.root, "vars", &f->nvars);
    return 0;
}

static int read_meta(struct reading *r, const void *value, uint32_t vlen) {
    struct json_doc doc = { 0 };
    int rc = parse(r, value, vlen, &doc, "the plan's counters");
    if (rc == 0)
        r->j->meta = (struct journal_meta){ (uint64_t)int_of(doc.root, "version"),
                                            (uint64_t)int_of(doc.root, "next"),
                                            (uint64_t)int_of(doc.root, "cut"),
                                            (uint64_t)int_of(doc.root, "serial") };
    return rc;
}

static int read_key(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    struct reading *r = arg;
    const char *k = key;
    struct journal *j = r->j;
    if (klen == 2 && k[1] == 'M')
        return read_meta(r, value, vlen);
    if (klen == KEY_LEN && k[1] == 'D')
        return read_flow(r, key_number(k), value, vlen);
    if (klen != KEY_LEN || k[1] != 'H' || vlen < 8)
        return err_set(r->e, ERR_SYSTEM, "the plan has a record of an unknown kind");
    j->history = grown(r->a, j->history, j->nhistory, &r->history_cap, sizeof *j->history);
    struct journal_history *h = &j->history[j->nhistory++];
    h->instance = key_number(k);
    memcpy(&h->offset, value, 8);
    h->topic = arena_strndup(r->a, (const char *)value + 8, vlen - 8);
    return 0;
}

static int by_serial(const void *a, const void *b) {
    const struct journal_flow *x = a, *y = b;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

int journal_read(struct journal *j, struct log *log, struct arena *a, struct err *e) {
    struct reading r = { .j = j, .a = a, .e = e };
    *j = (struct journal){ 0 };
    int rc = log_state_each(log, "P", 1, read_key, &r, e);
    if (rc != 0)
        return rc < 0 ? rc : ERR_SYSTEM;
    if (j->nflows)
        qsort(j->flows, (size_t)j->nflows, sizeof *j->flows, by_serial);
    return 0;
}
