#include "cluster/replay.h"
#include "cluster/ingest.h"
#include "engine/clock.h"
#include "engine/key.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MS 1000000ll

/* What waits for one partition. */
struct heap {
    struct sbuf body;
    int64_t seq, count, payload;
    int64_t due_ns; /* of its oldest record */
};
struct replay {
    const struct replay_conf *conf;
    struct replay_totals *t;
    struct errs *es;
    char producer[REPLAY_PRODUCER_MAX + 1];
    const char *topic; /* escaped */
    int64_t start_ns, last_ok_ns, told_ns;
    struct sbuf reply;
    struct heap *heap; /* one a partition */
    uint32_t n;
    int64_t count, bytes; /* in all of them */
    int64_t due_ns;       /* of the oldest record in them */
};

static atomic_bool stopped;

void replay_stop(void) {
    atomic_store(&stopped, true);
}

static void sleep_until(int64_t ns) {
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR &&
           !atomic_load(&stopped))
        ;
}

static void tell(struct replay *r, const char *trouble) {
    int64_t now = clock_mono_ns(), behind = -1;
    if (!r->conf->tell || (!trouble && now - r->told_ns < 100 * MS))
        return;
    r->told_ns = now;
    if (r->conf->scheduled) {
        behind = (now - r->start_ns - r->due_ns) / MS;
        behind = behind < 0 || r->count == 0 ? 0 : behind;
    }
    r->conf->tell(r->conf->arg, r->t->records, r->t->bytes, behind, trouble);
}

/* ---- posts ---- */

static void take_answer(struct replay *r, int64_t count) {
    struct arena a = { 0 };
    struct json_doc doc;
    struct errs bad = { 0 };
    if (json_parse(&doc, NULL, sbuf_str(&r->reply), r->reply.len, &a, &bad) == 0) {
        int64_t offset = json_int(doc.root, "offset");
        if (r->t->posts == 0)
            r->t->first = offset;
        r->t->next = offset + count;
        if (r->n > 1)
            r->t->first = r->t->next = -1;
    }
    errs_free(&bad);
    arena_free(&a);
}

/* Whether trying the same post again may help: the number makes that harmless. A server that was
 * never there is not waited for. */
static bool try_again(const struct replay *r, const struct errs *es) {
    const struct err *e = &es->v[es->n - 1];
    return e->retriable && (r->t->posts > 0 || e->code != ERR_UNREACHABLE) &&
           clock_mono_ns() - r->last_ok_ns < r->conf->retry_ms * MS && !atomic_load(&stopped);
}

static int post(struct replay *r, uint32_t partition) {
    char path[1024];
    const struct heap *h = &r->heap[partition];
    struct client_body body = { h->body.p, h->body.len, "application/octet-stream" };
    int64_t wait_ms = REPLAY_RETRY_MS_FIRST;
    int len = snprintf(path, sizeof path, "/v1/topics/%s/records?create=1&seq=%lld&producer=%s",
                       r->topic, (long long)h->seq, r->producer);
    if (r->n > 1)
        snprintf(path + len, sizeof path - (size_t)len, ".%u&partition=%u", partition, partition);
    for (int tries = 1;; tries++) {
        struct errs es = { 0 };
        int rc = client_call(r->conf->client, "POST", path, &body, &r->reply, NULL, &es);
        if (rc == 0) {
            r->t->repeated += tries > 1;
            r->last_ok_ns = clock_mono_ns();
            errs_free(&es);
            return 0;
        }
        bool again = try_again(r, &es);
        if (!again)
            for (int i = 0; i < es.n; i++)
                errs_add(r->es, &es.v[i]);
        else
            tell(r, es.v[0].text);
        errs_free(&es);
        if (!again)
            return rc;
        sleep_until(clock_mono_ns() + wait_ms * MS);
        wait_ms = wait_ms * 2 < REPLAY_RETRY_MS_LAST ? wait_ms * 2 : REPLAY_RETRY_MS_LAST;
    }
}

static int flush_one(struct replay *r, uint32_t partition) {
    struct heap *h = &r->heap[partition];
    int64_t behind = (clock_mono_ns() - r->start_ns - h->due_ns) / MS;
    int rc = post(r, partition);
    if (rc < 0)
        return rc;
    take_answer(r, h->count);
    if (r->conf->scheduled && behind > r->t->behind_ms_max)
        r->t->behind_ms_max = behind;
    h->seq++;
    r->t->posts++;
    r->t->records += h->count;
    r->t->bytes += h->payload;
    h->count = h->payload = 0;
    h->body.len = 0;
    tell(r, NULL);
    return 0;
}

static int flush(struct replay *r) {
    for (uint32_t i = 0; i < r->n && r->count; i++) {
        int rc = r->heap[i].count ? flush_one(r, i) : 0;
        if (rc < 0)
            return rc;
    }
    r->count = r->bytes = 0;
    return 0;
}

static void add(struct replay *r, const struct dataset_record *rec) {
    unsigned char len[4] = { (unsigned char)rec->len, (unsigned char)(rec->len >> 8),
                             (unsigned char)(rec->len >> 16), (unsigned char)(rec->len >> 24) };
    struct span id = { .p = rec->id, .len = rec->id_len };
    struct heap *h = &r->heap[r->n > 1 && rec->id ? key_partition(id, r->n) : 0];
    sbuf_add(&h->body, len, 4);
    sbuf_add(&h->body, rec->data, rec->len);
    if (h->count++ == 0)
        h->due_ns = rec->due_ns;
    if (r->count++ == 0)
        r->due_ns = rec->due_ns;
    h->payload += rec->len;
    r->bytes += rec->len + 4;
}

/* Waits for the record's time; what is gathered goes out before, if its own wait is over. */
static int wait_due(struct replay *r, int64_t due_ns) {
    for (;;) {
        int64_t now = clock_mono_ns(), due = r->start_ns + due_ns,
                close = r->start_ns + r->due_ns + REPLAY_LINGER_MS * MS;
        if (due <= now || atomic_load(&stopped))
            return 0;
        if (r->count > 0 && (close <= now || due >= close)) {
            if (close > now)
                sleep_until(close);
            int rc = flush(r);
            if (rc < 0)
                return rc;
            continue;
        }
        int64_t until = due < now + 100 * MS ? due : now + 100 * MS;
        sleep_until(until);
        tell(r, NULL);
    }
}

static int send_all(struct replay *r) {
    struct dataset_record rec;
    struct err e = ERR_INIT;
    int rc;
    while ((rc = dataset_next(r->conf->data, &rec, &e)) > 0) {
        if (rec.len > CLIENT_BODY_MAX - 4) {
            err_set(&e, ERR_INPUT, "record %lld has %u bytes; a server takes at most 16 MiB",
                    (long long)rec.seq, rec.len);
            return errs_add(r->es, &e);
        }
        if (r->count >= REPLAY_POST_RECORDS || r->bytes + rec.len > REPLAY_POST_BYTES)
            if ((rc = flush(r)) < 0)
                return rc;
        if (r->conf->scheduled && (rc = wait_due(r, rec.due_ns)) < 0)
            return rc;
        r->t->stopped = atomic_load(&stopped);
        if (r->t->stopped)
            break;
        add(r, &rec);
        if (r->conf->limit && rec.seq + 1 >= r->conf->limit)
            break;
    }
    if (rc < 0)
        return errs_add(r->es, &e);
    return flush(r);
}

static int make_producer(struct replay *r) {
    const char *name = r->conf->producer;
    uint64_t id[2];
    struct err e = ERR_INIT;
    if (name && (!ingest_producer_valid(name) || strlen(name) > REPLAY_PRODUCER_MAX)) {
        err_set(&e, ERR_INPUT,
                "the name of a producer must be 1 to %d letters, digits, '.', '_', ':' or '-'",
                REPLAY_PRODUCER_MAX);
        return errs_add(r->es, &e);
    }
    if (name)
        snprintf(r->producer, sizeof r->producer, "%s", name);
    else if (getrandom(id, sizeof id, 0) != sizeof id)
        return errs_add(r->es, (err_errno(&e, errno, "no random numbers"), &e));
    else
        snprintf(r->producer, sizeof r->producer, "replay-%016llx%08llx", (unsigned long long)id[0],
                 (unsigned long long)(id[1] >> 32));
    return 0;
}

/* How many partitions the topic has; 1 when it will be made. */
static int find_partitions(struct replay *r) {
    struct arena a = { 0 };
    struct json_doc doc;
    struct errs bad = { 0 };
    int rc = client_call(r->conf->client, "GET", "/v1/topics", NULL, &r->reply, NULL, r->es);
    r->n = 1;
    if (rc == 0 && json_parse(&doc, NULL, sbuf_str(&r->reply), r->reply.len, &a, &bad) == 0) {
        const struct jnode *list = jnode_get(doc.root, "topics");
        for (const struct jnode *t = list && list->n ? list->child : NULL; t; t = t->next) {
            const struct jnode *name = jnode_get(t, "name");
            if (name && name->type == J_STR && strcmp(name->s, r->conf->topic) == 0)
                r->n = (uint32_t)json_int(t, "partitions");
        }
    }
    errs_free(&bad);
    arena_free(&a);
    r->heap = calloc(r->n, sizeof *r->heap);
    if (!r->heap)
        abort();
    for (uint32_t i = 0; i < r->n; i++)
        r->heap[i].seq = r->conf->first_seq;
    r->t->partitions = r->n;
    return rc;
}

int replay_all(const struct replay_conf *conf, struct replay_totals *t, struct errs *es) {
    struct replay r = { .conf = conf, .t = t, .es = es };
    struct arena a = { 0 };
    *t = (struct replay_totals){ 0 };
    atomic_store(&stopped, false);
    r.topic = client_escape(conf->client, conf->topic, &a);
    int rc = find_partitions(&r);
    r.start_ns = r.last_ok_ns = clock_mono_ns();
    if (rc == 0)
        rc = make_producer(&r);
    if (rc == 0)
        rc = send_all(&r);
    t->ns = clock_mono_ns() - r.start_ns;
    for (uint32_t i = 0; i < r.n; i++)
        sbuf_free(&r.heap[i].body);
    free(r.heap);
    sbuf_free(&r.reply);
    arena_free(&a);
    return rc;
}
