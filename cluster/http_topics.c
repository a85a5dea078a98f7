/* /v1/topics: list, make, drop, and records in. */
#include "cluster/http_impl.h"
#include "cluster/ingest.h"
#include "cluster/view.h"
#include <stddef.h>
#include <string.h>

#define RESERVED     "braid."
#define RECORDS_TYPE "application/vnd.braid.records" /* an object a line: ingest_objects */

static bool reserved(const char *topic) {
    return strncmp(topic, RESERVED, sizeof RESERVED - 1) == 0;
}

int http_topics(struct request *r) {
    view_topics(r->coord, &r->out);
    return 200;
}

struct topic_body {
    int64_t partitions, retention_bytes, retention_ms;
    bool compact;
};
static const struct topic_key {
    const char *name, *what;
    int64_t min, max;
    size_t offset;
} topic_keys[] = {
    { "partitions", "a number of partitions, 1 to 4096", 1, LOG_PARTITIONS_MAX,
      offsetof(struct topic_body, partitions) },
    { "retention_bytes", "a number of bytes, or -1 to keep all", -1, INT64_MAX,
      offsetof(struct topic_body, retention_bytes) },
    { "retention_ms", "a number of milliseconds, at least 1, or -1 to keep all", -1, INT64_MAX,
      offsetof(struct topic_body, retention_ms) },
};
enum { TOPIC_KEYS = sizeof topic_keys / sizeof *topic_keys };

static int read_key(struct errs *es, const struct json_doc *doc, const struct jnode *c,
                    struct topic_body *b) {
    if (strcmp(c->key, "compact") == 0) {
        b->compact = c->type == J_BOOL && c->b;
        return c->type == J_BOOL ? 0
                                 : json_error(es, doc, c, false, "'compact' must be true or false");
    }
    for (int i = 0; i < TOPIC_KEYS; i++) {
        const struct topic_key *k = &topic_keys[i];
        if (strcmp(c->key, k->name) != 0)
            continue;
        bool ms = k->offset == offsetof(struct topic_body, retention_ms);
        if (c->type != J_INT || c->i < k->min || c->i > k->max || (ms && c->i == 0))
            return json_error(es, doc, c, false, "'%s' must be %s", k->name, k->what);
        *(int64_t *)(void *)((char *)b + k->offset) = c->i;
        return 0;
    }
    return json_error(es, doc, c, true,
                      "unknown key '%.60s'; a topic has 'partitions', 'retention_bytes', "
                      "'retention_ms' and 'compact'",
                      c->key);
}

/* An empty body: one partition that keeps everything. */
static int read_topic(struct request *r, struct log_topic_conf *tc, struct errs *es) {
    struct json_doc doc = { 0 };
    struct topic_body b = { 1, -1, -1, false };
    int rc = 0;
    if (r->body.len) {
        rc = json_parse(&doc, "body", r->body.p, r->body.len, &r->arena, es);
        if (rc < 0)
            return rc;
        if (doc.root->type != J_OBJ)
            return json_error(es, &doc, doc.root, false, "the body must be an object");
        for (const struct jnode *c = doc.root->n ? doc.root->child : NULL; c; c = c->next)
            rc = read_key(es, &doc, c, &b) < 0 ? ERR_INPUT : rc;
    }
    *tc = (struct log_topic_conf){ .partitions = (uint32_t)b.partitions,
                                   .retention_bytes = b.retention_bytes,
                                   .retention_ms = b.retention_ms > 0 ? b.retention_ms : 0,
                                   .compact = b.compact };
    return rc;
}

int http_topic_put(struct request *r) {
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    int rc = read_topic(r, &tc, &es), status = 201;
    if (rc < 0) {
        status = http_errors(r, &es);
        errs_free(&es);
        return status;
    }
    if (reserved(r->param[0]))
        rc = err_set(&e, ERR_INPUT, "names that begin with " RESERVED " are Braid's own");
    else
        rc = log_topic_create(coord_log(r->coord), r->param[0], &tc, &e);
    if (rc < 0)
        return http_error(r, &e);
    sbuf_printf(&r->out,
                "{\"name\":\"%s\",\"partitions\":%u,\"retention_bytes\":%lld,"
                "\"retention_ms\":%lld,\"compact\":%s}",
                r->param[0], tc.partitions, (long long)tc.retention_bytes,
                (long long)(tc.retention_ms ? tc.retention_ms : -1), tc.compact ? "true" : "false");
    return status;
}

int http_topic_delete(struct request *r) {
    struct err e = ERR_INIT;
    const char *topic = r->param[0];
    int rc;
    if (reserved(topic))
        rc = err_set(&e, ERR_INPUT, "topics that begin with " RESERVED " are Braid's own");
    else
        rc = coord_topic_delete(r->coord, topic, &e);
    if (rc < 0)
        return http_error(r, &e);
    sbuf_printf(&r->out, "{\"deleted\":\"%s\"}", topic);
    return 200;
}

/* ---- records in ---- */

struct post {
    const char *topic, *producer;
    int64_t seq, partition;
    bool create;
};

static int read_post(struct request *r, struct post *p, struct err *e) {
    p->topic = r->param[0];
    p->producer = http_arg(r, "producer");
    bool seq = http_arg(r, "seq") != NULL;
    if (reserved(p->topic))
        return err_set(e, ERR_INPUT, "topics that begin with " RESERVED " are Braid's own");
    if (p->producer && !ingest_producer_valid(p->producer))
        return err_set(e, ERR_INPUT,
                       "'producer' must be 1 to %d letters, digits, '.', '_', ':' or '-'",
                       INGEST_NAME_MAX);
    if (!p->producer != !seq)
        return err_set(e, ERR_INPUT, "'producer' and 'seq' belong together");
    int rc = http_arg_int(r, "seq", 0, 0, INT64_MAX, &p->seq, e);
    if (rc == 0)
        rc = http_arg_int(r, "partition", INGEST_ANY, 0, LOG_PARTITIONS_MAX - 1, &p->partition, e);
    return rc < 0 ? rc : http_arg_bool(r, "create", &p->create, e);
}

/* The topic may be posted to; it is made when the client asked for that. */
static int open_topic(struct request *r, const struct post *p, struct err *e) {
    struct log_topic_info info;
    struct coord_topic_use use;
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    int rc = log_topic_info(coord_log(r->coord), p->topic, &info, e);
    if (rc == ERR_NOTFOUND && p->create) {
        rc = log_topic_create(coord_log(r->coord), p->topic, &tc, e);
        rc = rc == ERR_CONFLICT ? 0 : rc; /* another request was faster */
    }
    if (rc < 0)
        return rc;
    coord_topic_use(r->coord, p->topic, &use);
    if (use.writers && !use.append)
        return err_set(e, ERR_CONFLICT,
                       "the topic is written by dataflow '%s'; a sink with \"append\": true would "
                       "share it",
                       use.writer);
    return 0;
}

static int read_rows(struct request *r, struct ingest_rows *rows, struct err *e) {
    const char *type = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Content-Type");
    const char *p = r->body.p ? r->body.p : "";
    size_t n = type ? strcspn(type, "; ") : 0;
    if (!type || (n == 10 && strncasecmp(type, "text/plain", n) == 0) ||
        (n == 20 && strncasecmp(type, "application/x-ndjson", n) == 0))
        return ingest_lines(rows, p, r->body.len, e);
    if (n == strlen(RECORDS_TYPE) && strncasecmp(type, RECORDS_TYPE, n) == 0)
        return ingest_objects(rows, p, r->body.len, e);
    if (n == 24 && strncasecmp(type, "application/octet-stream", n) == 0)
        return ingest_lengths(rows, p, r->body.len, e);
    return err_set(e, ERR_INPUT,
                   "the Content-Type must be text/plain, application/x-ndjson, " RECORDS_TYPE
                   " or application/octet-stream, not '%.100s'",
                   type);
}

int http_post_records(struct request *r) {
    struct err e = ERR_INIT;
    struct post p = { 0 };
    struct ingest_rows rows = { 0 };
    struct ingest_answer a = { 0 };
    int rc = read_post(r, &p, &e);
    if (rc == 0)
        rc = read_rows(r, &rows, &e);
    if (rc == 0)
        rc = open_topic(r, &p, &e);
    if (rc == 0)
        rc = ingest_post(coord_ingest(r->coord), p.topic, p.partition, p.producer, p.seq, &rows, &a,
                         &e);
    ingest_rows_free(&rows);
    if (rc < 0)
        return http_error(r, &e);
    sbuf_printf(&r->out, "{\"partition\":%u,\"offset\":%lld,\"count\":%lld,\"duplicate\":%s}",
                a.partition, (long long)a.offset, (long long)a.count,
                a.duplicate ? "true" : "false");
    return 200;
}
