/* The dead letters of dataflows: shown, dropped, queued again. */
#include "cluster/coord_impl.h"
#include "cluster/dlq.h"
#include "cluster/text.h"
#include "cluster/view.h"
#include "engine/clock.h"
#include <stdlib.h>
#include <string.h>

struct letter {
    int64_t offset, time;
    char *key, *value;
    uint32_t klen, vlen;
};
/* Letters of the topic that belong to a dataflow: rejected by a task that it uses now, or brought
 * by one of its name (before it was replaced). */
struct letters {
    struct coord *c;
    const char *name; /* NULL: of all */
    char (*sig)[33];
    int nsigs;
    bool all; /* those that were dealt with, too */
    const int64_t *only;
    int nonly;      /* 0: any offset */
    int64_t max, n; /* the last `max` of n */
    struct letter *ring;
};

/* {"task":"NAME/…: names need no escapes. */
static bool brought(const char *name, const char *value, uint32_t vlen) {
    static const char head[] = "{\"task\":\"";
    size_t h = sizeof head - 1, n = strlen(name);
    return vlen > h + n && memcmp(value, head, h) == 0 && memcmp(value + h, name, n) == 0 &&
           value[h + n] == '/';
}

static bool wanted(const struct letters *q, int64_t offset, const char *key, uint32_t klen,
                   const char *value, uint32_t vlen) {
    bool mine = !q->name || brought(q->name, value, vlen), asked = q->nonly == 0;
    for (int i = 0; i < q->nsigs && !mine; i++)
        mine = klen == 32 && memcmp(q->sig[i], key, 32) == 0;
    for (int i = 0; i < q->nonly && !asked; i++)
        asked = q->only[i] == offset;
    return mine && asked && (q->all || dlq_state(q->c->dlq, offset) == DLQ_OPEN);
}

static char *copy_of(const char *p, size_t len) {
    char *s = malloc(len + 1);
    if (!s)
        abort();
    memcpy(s, p, len);
    s[len] = '\0';
    return s;
}

static void take(struct letters *q, const struct log_rows *r, int64_t off) {
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t vfrom = log_end(r->value_end, (int64_t)i - 1), vto = log_end(r->value_end, i);
        uint32_t kfrom = r->key_end ? log_end(r->key_end, (int64_t)i - 1) : 0,
                 kto = r->key_end ? log_end(r->key_end, i) : 0;
        const char *key = r->key_end ? r->keys + kfrom : "";
        if (!wanted(q, off + i, key, kto - kfrom, r->values + vfrom, vto - vfrom))
            continue;
        struct letter *d = &q->ring[q->n++ % q->max];
        free(d->key);
        free(d->value);
        *d = (struct letter){ off + i,
                              log_row_time(r, i),
                              copy_of(key, kto - kfrom),
                              copy_of(r->values + vfrom, vto - vfrom),
                              kto - kfrom,
                              vto - vfrom };
    }
}

static int read_all(struct letters *q, struct err *e) {
    struct log_topic_info info;
    struct log_reader *r;
    struct log_rows rows;
    int64_t off;
    q->ring = calloc((size_t)q->max, sizeof *q->ring);
    if (!q->ring)
        abort();
    int rc = log_topic_info(q->c->log, EXECUTOR_DLQ, &info, e);
    if (rc == 0)
        rc = log_reader_open(q->c->log, EXECUTOR_DLQ, 0, info.begin, &r, e);
    if (rc < 0)
        return rc;
    while ((rc = log_read(r, BATCH_ROWS, &rows, &off, e)) > 0 && off < info.end)
        take(q, &rows, off);
    log_reader_close(r);
    return rc < 0 ? rc : 0;
}

static int find_letters(struct letters *q, struct err *e) {
    if (!q->name)
        return read_all(q, e);
    coord_lock(q->c);
    const struct flow *f = plan_find(q->c->plan, q->name);
    if (f) {
        q->nsigs = f->nuses;
        q->sig = calloc((size_t)f->nuses + 1, sizeof *q->sig);
        if (!q->sig)
            abort();
        for (int i = 0; i < f->nuses; i++)
            sig_text(f->uses[i].inst->def->sig, q->sig[i]);
    } else {
        plan_unknown(q->c->plan, q->name, e);
    }
    coord_unlock(q->c);
    return f ? read_all(q, e) : ERR_NOTFOUND;
}

static void letters_free(struct letters *q) {
    for (int64_t i = 0; q->ring && i < q->max; i++) {
        free(q->ring[i].key);
        free(q->ring[i].value);
    }
    free(q->ring);
    free(q->sig);
}

static int64_t first_kept(const struct letters *q) {
    return q->n > q->max ? q->n - q->max : 0;
}

/* ---- show ---- */

static const char *state_word(enum dlq_state s) {
    return s == DLQ_OPEN ? "open" : s == DLQ_DROPPED ? "dropped" : "requeued";
}

int view_dlq(struct coord *c, const char *dataflow, int64_t max, bool all, struct sbuf *out,
             struct err *e) {
    struct letters q = { .c = c, .name = dataflow, .max = max, .all = all };
    int rc = find_letters(&q, e);
    if (rc == 0)
        sbuf_adds(out, "{\"records\":[");
    for (int64_t i = first_kept(&q); i < q.n && rc == 0; i++) {
        const struct letter *d = &q.ring[i % max];
        sbuf_printf(out, "%s{\"offset\":%lld,\"time\":%lld,\"state\":\"%s\",\"signature\":",
                    i == first_kept(&q) ? "" : ",", (long long)d->offset, (long long)d->time,
                    state_word(dlq_state(c->dlq, d->offset)));
        sbuf_json_str(out, d->key, d->klen);
        sbuf_adds(out, ",\"row\":");
        sbuf_add(out, d->value, d->vlen); /* the executor writes JSON */
        sbuf_adds(out, "}");
    }
    if (rc == 0)
        sbuf_adds(out, "]}");
    letters_free(&q);
    return rc;
}

/* ---- drop ---- */

/* All that were asked for are there. */
static int check_asked(const struct letters *q, struct err *e) {
    for (int i = 0; i < q->nonly; i++) {
        bool found = false;
        for (int64_t k = first_kept(q); k < q->n && !found; k++)
            found = q->ring[k % q->max].offset == q->only[i];
        if (!found)
            return err_set(e, ERR_NOTFOUND, "dataflow '%.100s' has no open dead letter %lld",
                           q->name, (long long)q->only[i]);
    }
    return 0;
}

static int commit_marks(struct letters *q, struct log_epoch *ep, enum dlq_state s, struct err *e) {
    for (int64_t i = first_kept(q); i < q->n; i++)
        dlq_put(ep, q->ring[i % q->max].offset, s);
    enum log_outcome o = log_commit_wait(ep, NULL, e);
    if (o == LOG_ABORTED && e->code == 0)
        err_set(e, ERR_SYSTEM, "the commit was refused");
    else if (o == LOG_UNKNOWN)
        err_set(e, ERR_SYSTEM, "it is unknown whether the commit happened: look after a restart");
    if (o != LOG_COMMITTED)
        return e->code;
    for (int64_t i = first_kept(q); i < q->n; i++)
        dlq_set(q->c->dlq, q->ring[i % q->max].offset, s);
    return 0;
}

static void answer(const struct letters *q, const char *what, struct sbuf *out) {
    int64_t n = q->n - first_kept(q);
    sbuf_printf(out, "{\"%s\":%lld,\"left\":%lld}", what, (long long)n, (long long)(q->n - n));
}

int coord_dlq_drop(struct coord *c, const char *name, const int64_t *offsets, int n,
                   struct sbuf *out, struct err *e) {
    struct letters q = {
        .c = c, .name = name, .max = COORD_LETTERS_MAX, .only = offsets, .nonly = n
    };
    pthread_mutex_lock(&c->dlq_lock);
    int rc = find_letters(&q, e);
    if (rc == 0)
        rc = check_asked(&q, e);
    if (rc == 0 && q.n)
        rc = commit_marks(&q, log_epoch_begin(c->log), DLQ_DROPPED, e);
    pthread_mutex_unlock(&c->dlq_lock);
    if (rc == 0)
        answer(&q, "dropped", out);
    letters_free(&q);
    return rc;
}

/* ---- requeue ---- */

static const char *member_text(const struct jnode *row, const char *key) {
    const struct jnode *n = jnode_get(row, key);
    return n && n->type == J_STR ? n->s : "";
}
static int64_t member_int(const struct jnode *row, const char *key) {
    const struct jnode *n = jnode_get(row, key);
    return n && n->type == J_INT ? n->i : -1;
}

/* The stage below the reader of the topic in the dataflow; NULL: none, or several. */
static const struct inst *reader_below(const struct inst *read) {
    return read->children && !read->children->next ? read->children->inst : NULL;
}

/* A record may come again when it made no row at all, for anybody: it was the first stage below the
 * reader that rejected it (or the time stage, where a record is one row), and nobody else reads the
 * topic. Under plan_lock. */
static int may_requeue(struct coord *c, const char *name, int64_t number, const struct jnode *row,
                       struct err *e) {
    const char *topic = member_text(row, "topic"), *type = member_text(row, "type");
    const struct flow *f = plan_find(c->plan, name);
    const struct inst *below = NULL;
    int readers = 0, rc = 0;
    if (!f)
        return plan_unknown(c->plan, name, e);
    struct topic *t = model_topic(c->plan, topic);
    for (const struct inst *in = t->readers; in && rc == 0; in = in->topic_next) {
        readers++;
        below = reader_below(in);
        for (const struct use *u = in->uses; u && rc == 0; u = u->next)
            if (u->flow != f)
                rc = err_set(e, ERR_CONFLICT,
                             "dead letter %lld: dataflow '%s' reads topic '%s' too, and would get "
                             "the record a second time",
                             (long long)number, u->flow->name, topic);
    }
    model_topic_done(c->plan, t);
    if (rc < 0)
        return rc;
    if (readers == 0)
        return err_set(e, ERR_CONFLICT, "dead letter %lld: dataflow '%s' does not read topic '%s'",
                       (long long)number, name, topic);
    bool decode = strcmp(type, "json_decode") == 0 || strcmp(type, "csv_decode") == 0 ||
                  strcmp(type, "senml_decode") == 0;
    bool time = below && strcmp(type, "time") == 0 &&
                (strcmp(below->def->op->name, "json_decode") == 0 ||
                 strcmp(below->def->op->name, "csv_decode") == 0);
    if (readers > 1 || !below || !(decode || time))
        return err_set(e, ERR_CONFLICT,
                       "dead letter %lld: its record has made other rows in dataflow '%s', which "
                       "would come twice; only a record that its source could not read at all can "
                       "be queued again",
                       (long long)number, name);
    return 0;
}

/* The record as the topic still has it, with key, time and headers; else its value as the letter
 * holds it, whole. */
static int add_record(struct coord *c, const struct letter *d, const struct jnode *row,
                      struct log_buf *buf, struct err *e) {
    const char *topic = member_text(row, "topic");
    int64_t partition = member_int(row, "partition"), offset = member_int(row, "offset"), off = -1;
    struct log_reader *r;
    struct log_rows rows = { 0 };
    if (log_reader_open(c->log, topic, (uint32_t)partition, offset, &r, NULL) == 0) {
        bool found = log_read(r, 1, &rows, &off, NULL) > 0 && off == offset;
        if (found)
            log_buf_copy(buf, &rows, 0);
        log_reader_close(r);
        if (found)
            return 0;
    }
    const struct jnode *record = jnode_get(row, "record");
    if (!record || record->type != J_STR || jnode_get(row, "record_bytes"))
        return err_set(
            e, ERR_CONFLICT,
            "dead letter %lld: topic '%s' no longer has the record, and the letter holds "
            "only a part of it",
            (long long)d->offset, topic);
    memcpy(log_buf_room(buf, record->len), record->s, record->len);
    log_buf_end(buf, record->len);
    return 0;
}

static int requeue_one(struct coord *c, const char *name, const struct letter *d,
                       struct log_epoch *ep, struct err *e) {
    struct arena a = { 0 };
    struct json_doc doc = { 0 };
    struct errs es = { 0 };
    int rc = json_parse(&doc, NULL, d->value, d->vlen, &a, &es);
    if (rc == 0) {
        coord_lock(c);
        rc = may_requeue(c, name, d->offset, doc.root, e);
        coord_unlock(c);
    } else {
        err_set(e, ERR_SYSTEM, "dead letter %lld cannot be read", (long long)d->offset);
    }
    if (rc == 0) {
        struct log_buf *buf = log_buf_new();
        rc = add_record(c, d, doc.root, buf, e);
        log_buf_seal(buf);
        if (rc == 0)
            rc = log_epoch_append(ep, member_text(doc.root, "topic"),
                                  (uint32_t)member_int(doc.root, "partition"), buf, clock_wall_ms(),
                                  NULL);
        if (rc < 0 && e->code == 0)
            err_set(e, rc, "the records are too many for one step: give --offset");
        log_buf_unref(buf);
    }
    errs_free(&es);
    arena_free(&a);
    return rc;
}

int coord_dlq_requeue(struct coord *c, const char *name, const int64_t *offsets, int n,
                      struct sbuf *out, struct err *e) {
    struct letters q = {
        .c = c, .name = name, .max = COORD_LETTERS_MAX, .only = offsets, .nonly = n
    };
    pthread_mutex_lock(&c->change_lock); /* so that nobody begins to read the topic meanwhile */
    pthread_mutex_lock(&c->dlq_lock);
    struct log_epoch *ep = log_epoch_begin(c->log);
    int rc = find_letters(&q, e);
    if (rc == 0)
        rc = check_asked(&q, e);
    for (int64_t i = first_kept(&q); i < q.n && rc == 0; i++)
        rc = requeue_one(c, name, &q.ring[i % q.max], ep, e);
    if (rc == 0 && q.n)
        rc = commit_marks(&q, ep, DLQ_REQUEUED, e);
    else
        log_epoch_drop(ep);
    pthread_mutex_unlock(&c->dlq_lock);
    pthread_mutex_unlock(&c->change_lock);
    if (rc == 0)
        answer(&q, "requeued", out);
    letters_free(&q);
    return rc;
}
