/* Records of topics on a server: replay, tail, dlq. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/progress.h"
#include "cluster/replay.h"
#include "cluster/table.h"
#include "engine/log.h"
#include "engine/num.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- tail ---- */

struct tail {
    struct cli *c;
    bool rows;         /* of a sink that stores nothing: JSON lines without an end */
    int64_t left;      /* records still to come; -1: no end */
    bool any;          /* something has come */
    struct sbuf line;  /* begin of a row */
    struct arena work; /* of one row */
    bool failed;
    struct err err;
};

static int tail_failed(struct tail *t) {
    t->failed = true;
    err_errno(&t->err, errno, "writing to stdout");
    return -1;
}

/* RFC 4648, section 4; what a server writes, so without checks. */
static void print_base64(const char *s) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0;
    for (int n = 1; *s && *s != '='; s++, n++) {
        const char *d = strchr(digits, *s);
        bits = bits << 6 | (d ? (unsigned)(d - digits) : 0);
        if (n % 4 != 1)
            putchar((int)(bits >> (6 - 2 * ((n - 1) % 4)) & 255));
    }
}

/* A row as {"value":…} or {"value_b64":…}; {"skipped":N} tells how many we were too slow for. */
static int print_row(struct tail *t, const char *line, size_t len) {
    struct json_doc doc;
    struct errs bad = { 0 };
    arena_reset(&t->work);
    if (t->c->json) {
        fwrite(line, 1, len, stdout);
        putchar('\n');
    }
    if (json_parse(&doc, NULL, line, len, &t->work, &bad) == 0) {
        int64_t skipped = json_int(doc.root, "skipped");
        const struct jnode *value = jnode_get(doc.root, "value");
        if (skipped)
            cli_note(t->c, "braid: too slow: %lld rows were left out here", (long long)skipped);
        t->left -= !skipped && t->left > 0;
        if (!skipped && !t->c->json) {
            if (value && value->type == J_STR)
                fwrite(value->s, 1, value->len, stdout);
            print_base64(json_text(doc.root, "value_b64"));
            putchar('\n');
        }
    }
    errs_free(&bad);
    return ferror(stdout) ? tail_failed(t) : 0;
}

static int add_rows(struct tail *t, const char *p, size_t len) {
    const char *end = p + len;
    for (const char *nl; t->left != 0 && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1) {
        sbuf_add(&t->line, p, (size_t)(nl - p));
        int rc = print_row(t, t->line.p, t->line.len);
        if (rc < 0)
            return rc;
        t->line.len = 0;
    }
    sbuf_add(&t->line, p, (size_t)(end - p));
    return 0;
}

/* Records of a topic: the server ends after as many as were asked for. Lines are counted to see
 * whether it did; a raw record may have several. */
static int add_records(struct tail *t, const char *p, size_t len) {
    if (fwrite(p, 1, len, stdout) != len)
        return tail_failed(t);
    for (const char *end = p + len; t->left > 0 && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        t->left--;
    return 0;
}

static int on_tail(void *arg, const char *p, size_t len) {
    struct tail *t = arg;
    t->any = true;
    if ((t->rows ? add_rows : add_records)(t, p, len) < 0)
        return 1;
    if (fflush(stdout) != 0)
        return tail_failed(t);
    return t->rows && t->left == 0;
}

static const struct jnode *find_topic(const struct jnode *list, const char *name) {
    for (; list; list = list->next)
        if (strcmp(json_text(list, "name"), name) == 0)
            return list;
    return NULL;
}

/* The topics that the sinks of a dataflow write, from its text. */
static int sink_topics(struct cli *c, const struct jnode *flow, const char **topic) {
    struct json_doc doc;
    struct errs es = { 0 };
    const char *text = json_text(flow, "spec");
    int n = 0;
    if (json_parse(&doc, NULL, text, strlen(text), &c->arena, &es) == 0)
        for (const struct jnode *t = json_list(doc.root, "tasks"); t; t = t->next) {
            const char *name = json_text(jnode_get(t, "config"), "topic");
            if (strcmp(json_text(t, "type"), "sink") == 0 && *name && n++ == 0)
                *topic = name;
        }
    errs_free(&es);
    return n;
}

/* A topic by name, or the one that the dataflow of that name writes. */
static int tail_topic(struct cli *c, struct client *cl, const struct jnode *topics,
                      const char **topic) {
    struct errs es = { 0 };
    struct err e;
    struct json_doc flow;
    const char *name = c->args[0];
    *topic = name;
    if (find_topic(topics, name))
        return 0;
    const char *path =
        arena_printf(&c->arena, "/v1/dataflows/%s", client_escape(cl, name, &c->arena));
    int rc = client_json(cl, "GET", path, NULL, &c->arena, &flow, &es), n = 0;
    if (rc == 0)
        n = sink_topics(c, flow.root, topic);
    if (rc == ERR_NOTFOUND)
        rc = err_set(&e, ERR_NOTFOUND,
                     "no topic and no dataflow has the name '%s'; `braid topics` "
                     "and `braid ls` list them",
                     name);
    else if (rc == 0 && n == 0)
        *topic = NULL; /* its sinks store nothing: follow what commits */
    else if (rc == 0 && n > 1)
        rc = err_set(&e, ERR_INPUT,
                     "dataflow '%s' writes %d topics; name one of them (`braid "
                     "show %s --json` has them)",
                     name, n, name);
    else if (rc < 0)
        cli_errors(c, &es);
    if (rc < 0 && es.n == 0)
        cli_error(c, &e);
    else if (rc == ERR_NOTFOUND)
        cli_error(c, &e);
    errs_free(&es);
    return rc;
}

/* Where to begin and how many: by default the last ten; with --follow no end. An offset is a place
 * in one partition. */
static int tail_range(struct cli *c, const struct tail_options *o, const struct jnode *topic,
                      const char **query, int64_t *count) {
    int64_t n = o->n == CLI_UNSET ? 10 : o->n, offset = -1;
    bool endless = o->from ? o->n == CLI_UNSET : o->follow;
    const char *where = "", *limit = "";
    *count = endless ? -1 : n;
    if (o->from && strcmp(o->from, "earliest") != 0 && strcmp(o->from, "latest") != 0) {
        if (num_i64_whole(o->from, o->from + strlen(o->from), &offset) < 0 || offset < 0)
            return cli_usage(c, "--from is an offset, earliest or latest, not '%s'", o->from);
        if (json_int(topic, "partitions") > 1 && o->partition == CLI_UNSET)
            return cli_usage(c,
                             "%s has %lld partitions, each with offsets of its own: give "
                             "--partition, too",
                             json_text(topic, "name"), (long long)json_int(topic, "partitions"));
    }
    if (o->partition != CLI_UNSET)
        where = arena_printf(&c->arena, "&partition=%lld", (long long)o->partition);
    if (o->from && !endless)
        limit = arena_printf(&c->arena, "&max=%lld", (long long)n);
    *query = o->from ? arena_printf(&c->arena, "from=%s%s%s", o->from, limit, where)
                     : arena_printf(&c->arena, "last=%lld%s", (long long)n, where);
    return 0;
}

/* A sink that stores nothing has no past: its rows from now on, until -n of them. NAME/TASK tells
 * which sink when there are several. */
static int rows_path(struct cli *c, struct client *cl, const struct tail_options *o,
                     const char **path, int64_t *count) {
    const char *slash = strchr(c->args[0], '/'), *task = "";
    const char *name = c->args[0];
    if (slash) {
        name = arena_strndup(&c->arena, name, (size_t)(slash - name));
        task = arena_printf(&c->arena, "&task=%s", client_escape(cl, slash + 1, &c->arena));
    }
    if (o->from && strcmp(o->from, "latest") != 0)
        return cli_usage(c, "%s stores nothing, so --from can only be latest", c->args[0]);
    if (o->partition != CLI_UNSET)
        return cli_usage(c, "%s stores nothing, so it has no partitions", c->args[0]);
    *path = arena_printf(&c->arena, "/v1/dataflows/%s/rows?format=json%s",
                         client_escape(cl, name, &c->arena), task);
    *count = o->n == CLI_UNSET ? -1 : o->n;
    cli_note(c, "%s stores nothing: its rows from now on", c->args[0]);
    return 0;
}

/* What to ask for, and how much of it will come. */
static int tail_path(struct cli *c, struct client *cl, const struct tail_options *o,
                     const char **path, struct tail *t) {
    int64_t *count = &t->left;
    struct json_doc doc;
    struct errs es = { 0 };
    const char *name = NULL, *query = "";
    int rc = client_json(cl, "GET", "/v1/topics", NULL, &c->arena, &doc, &es);
    const struct jnode *topics = rc == 0 ? json_list(doc.root, "topics") : NULL;
    if (rc < 0)
        cli_errors(c, &es);
    else if (!strchr(c->args[0], '/'))
        rc = tail_topic(c, cl, topics, &name);
    errs_free(&es);
    t->rows = rc == 0 && !name;
    if (t->rows)
        return rows_path(c, cl, o, path, count);
    if (rc == 0)
        rc = tail_range(c, o, find_topic(topics, name), &query, count);
    if (rc < 0)
        return rc;
    *path = arena_printf(&c->arena, "/v1/topics/%s/records?%s&format=%s%s",
                         client_escape(cl, name, &c->arena), query, c->json ? "json" : "raw",
                         o->follow ? "&follow=1" : "");
    return 0;
}

int cmd_tail(struct cli *c) {
    const struct tail_options *o = c->opt;
    struct tail t = { .c = c };
    struct client *cl;
    struct errs es = { 0 };
    const char *path = NULL;
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    rc = tail_path(c, cl, o, &path, &t);
    bool endless = t.left < 0;
    if (rc == 0 && t.left != 0) {
        rc = client_stream(cl, path, on_tail, &t, &es);
        if (rc < 0)
            cli_errors(c, &es);
        else if (t.failed)
            rc = cli_error(c, &t.err);
        else if ((o->follow || t.rows) && (endless || t.left > 0))
            rc = cli_error(c, &(struct err){ .code = ERR_UNREACHABLE,
                                             .text = "the stream ended: the server stopped, or the "
                                                     "topic or dataflow was removed" });
    }
    if (rc == 0 && !t.any && !o->follow && o->n != 0)
        cli_note(c, "%s: no records there", c->args[0]);
    errs_free(&es);
    sbuf_free(&t.line);
    arena_free(&t.work);
    client_close(cl);
    return rc;
}

/* ---- dlq ---- */

enum { DEAD_SHOWN = 400 };

/* At most `max` columns of a record that may be anything: its control characters would reach the
 * terminal. */
static void print_plain(const char *text, int max) {
    int n = text_cut(text, max);
    for (int i = 0; i < n; i++)
        if ((unsigned char)text[i] < 32 || text[i] == 127)
            printf("\\x%02x", (unsigned char)text[i]);
        else
            putchar(text[i]);
    puts(text[n] ? "…" : "");
}

static void print_dead(const struct jnode *d, bool color) {
    char at[NUM_TIME_MAX_LEN + 1];
    const struct jnode *row = jnode_get(d, "row");
    at[time_write(at, json_int(d, "time"))] = '\0';
    const char *state = json_text(d, "state");
    printf("%s%lld  %s%s%s%s%s  %s  %s%s%s: %s\n", style_on(STYLE_DIM, color),
           (long long)json_int(d, "offset"), at, style_off(color),
           strcmp(state, "open") != 0 ? "  (" : "", strcmp(state, "open") != 0 ? state : "",
           strcmp(state, "open") != 0 ? ")" : "", json_text(row, "task"),
           style_on(STYLE_RED, color), json_text(row, "code"), style_off(color),
           json_text(row, "reason"));
    const char *text = json_text(row, "record");
    bool hex = !*text && *json_text(row, "record_hex");
    if (hex)
        text = json_text(row, "record_hex");
    if (*json_text(row, "topic"))
        printf("    %s offset %lld: ", json_text(row, "topic"), (long long)json_int(row, "offset"));
    fputs(hex ? "(hex) " : "", stdout);
    print_plain(text, DEAD_SHOWN);
}

static int dlq_show(struct cli *c, struct client *cl, const char *name) {
    const struct dlq_options *o = c->opt;
    struct json_doc doc;
    const char *path = arena_printf(
        &c->arena, "/v1/dlq?dataflow=%s&max=%lld%s", client_escape(cl, name, &c->arena),
        (long long)(o->n == CLI_UNSET ? 10 : o->n), o->all ? "&all=1" : "");
    int rc = cmd_get(c, cl, "GET", path, NULL, &doc);
    if (rc < 0 || c->json)
        return rc;
    const struct jnode *d = json_list(doc.root, "records");
    if (!d)
        cli_note(c, "no dead letters of %s", name);
    for (; d; d = d->next)
        print_dead(d, term_color(STDOUT_FILENO));
    return 0;
}

/* Drops dead letters, or queues their records again. */
static int dlq_deal(struct cli *c, struct client *cl, const char *action, const char *name) {
    const struct dlq_options *o = c->opt;
    struct json_doc doc;
    struct sbuf body = { 0 };
    sbuf_printf(&body, "{\"action\":\"%s\"", action);
    for (int i = 0; i < o->offset.n; i++) {
        int64_t v;
        const char *text = o->offset.v[i];
        if (num_i64_whole(text, text + strlen(text), &v) < 0 || v < 0) {
            sbuf_free(&body);
            return cli_usage(c, "--offset wants the number of a dead letter, not '%s'", text);
        }
        sbuf_printf(&body, "%s%lld", i ? "," : ",\"offsets\":[", (long long)v);
    }
    sbuf_adds(&body, o->offset.n ? "]}" : "}");
    const char *path =
        arena_printf(&c->arena, "/v1/dataflows/%s/dlq", client_escape(cl, name, &c->arena));
    struct client_body b = { body.p, body.len, NULL };
    int rc = cmd_get(c, cl, "POST", path, &b, &doc);
    sbuf_free(&body);
    if (rc < 0 || c->json)
        return rc;
    bool drop = strcmp(action, "drop") == 0;
    int64_t n = json_int(doc.root, drop ? "dropped" : "requeued"),
            left = json_int(doc.root, "left");
    printf("%s: %lld dead letter%s %s\n", name, (long long)n, n == 1 ? "" : "s",
           drop ? "dropped" : "queued again");
    if (left)
        cli_note(c, "%lld older ones are left", (long long)left);
    return 0;
}

int cmd_dlq(struct cli *c) {
    static const char *const verbs[] = { "show", "requeue", "drop" };
    const struct dlq_options *o = c->opt;
    const char *verb = c->nargs == 2 ? c->args[0] : "show", *name = c->args[c->nargs - 1];
    struct client *cl;
    int i = 0;
    while (i < 3 && strcmp(verbs[i], verb) != 0)
        i++;
    if (i == 3) {
        const char *near = err_nearest(verb, verbs, 3);
        return cli_usage(c, "dead letters can be shown, requeued or dropped, not '%s'%s%s%s", verb,
                         near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (i == 0 ? o->offset.n > 0 : o->all || o->n != CLI_UNSET)
        return cli_usage(c, i == 0 ? "--offset belongs to requeue and drop"
                                   : "--all and --lines belong to show");
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    rc = i == 0 ? dlq_show(c, cl, name) : dlq_deal(c, cl, verb, name);
    client_close(cl);
    return rc;
}

/* ---- replay ---- */

struct replaying {
    struct progress bar;
    struct cli *c;
    bool told;
};

static void on_progress(void *arg, int64_t records, int64_t bytes, int64_t behind_ms,
                        const char *trouble) {
    struct replaying *r = arg;
    if (!trouble) {
        progress_update(&r->bar, records, bytes, behind_ms);
        r->told = false;
        return;
    }
    char text[300];
    snprintf(text, sizeof text, "%.200s; trying again", trouble);
    progress_say(&r->bar, text);
    if (!r->bar.on && !r->told)
        cli_note(r->c, "braid: %s", text);
    r->told = true;
}

static void on_interrupt(int sig) {
    (void)sig;
    replay_stop();
}

static void print_replayed(struct cli *c, const char *title, const struct replay_totals *t,
                           bool scheduled) {
    char a[UNIT_MAX], b[UNIT_MAX], s[UNIT_MAX], d[UNIT_MAX], e[UNIT_MAX], f[UNIT_MAX];
    double seconds = (double)(t->ns > 0 ? t->ns : 1) / 1e9;
    if (c->json) {
        printf("{\"records\":%lld,\"bytes\":%lld,\"posts\":%lld,\"repeated\":%lld,\"first\":%lld,"
               "\"next\":%lld,\"behind_ms_max\":%lld,\"ns\":%lld,\"interrupted\":%s}\n",
               (long long)t->records, (long long)t->bytes, (long long)t->posts,
               (long long)t->repeated, (long long)t->first, (long long)t->next,
               (long long)t->behind_ms_max, (long long)t->ns, t->stopped ? "true" : "false");
        return;
    }
    fprintf(stderr, "%s: %s record%s, %s in %s (%s/s, %s/s)", title,
            unit_exact(a, (uint64_t)t->records), t->records == 1 ? "" : "s",
            unit_bytes(b, (double)t->bytes),
            seconds < 1 ? unit_ns(s, seconds * 1e9) : unit_span(s, seconds),
            unit_count(d, (double)t->records / seconds), unit_bytes(e, (double)t->bytes / seconds));
    if (scheduled)
        fprintf(stderr, ", at most %s behind schedule", unit_ms(f, t->behind_ms_max));
    if (t->repeated)
        fprintf(stderr, ", %lld posts sent again", (long long)t->repeated);
    fputc('\n', stderr);
}

static bool topic_name(const char *s) {
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return n > 0 && n <= LOG_NAME_MAX && !s[n];
}

static int replay_conf(struct cli *c, const struct replay_options *o, struct dataset_conf *d) {
    int rc = cmd_dataset_conf(c, &o->data, d);
    if (rc < 0)
        return rc;
    d->source = c->args[0];
    if (o->delimiter && (!o->csv || strlen(o->delimiter) != 1 || strchr("\"\r\n", *o->delimiter) ||
                         (unsigned char)*o->delimiter > 0x7f))
        return cli_usage(c, "--delimiter is one ASCII character, not a quote, and needs --csv");
    if (o->csv)
        d->csv = o->delimiter ? *o->delimiter : ',';
    d->rate = isnan(o->rate) ? 0 : o->rate;
    d->speed = isnan(o->speed) ? 0 : o->speed;
    if (!o->topic)
        return cli_usage(c, "say where to: --topic T");
    if (!topic_name(o->topic))
        return cli_usage(
            c, "'%s' is no name of a topic: letters, digits, '.', '_' and '-', at most %d",
            o->topic, LOG_NAME_MAX);
    if (d->rate > 0 && d->speed > 0)
        return cli_usage(c, "either --rate or --speed, not both");
    return 0;
}

/* Not done, so it does not end as if it were: by the signal, whose handler is gone (SA_RESETHAND).
 */
static void end_interrupted(struct cli *c, const struct replay_totals *t) {
    cli_note(c, "braid: interrupted: the server has the first %lld records", (long long)t->records);
    fflush(stdout);
    raise(SIGINT);
}

static int replay_opened(struct cli *c, const struct replay_options *o, struct dataset *ds,
                         bool scheduled) {
    struct replaying r = { .c = c };
    struct replay_totals t;
    struct errs es = { 0 };
    struct client *cl;
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    const char *title = arena_printf(&c->arena, "%s -> %s", c->args[0], o->topic);
    int64_t total = dataset_total(ds), limit = o->limit == CLI_UNSET ? 0 : o->limit;
    if (limit && (total < 0 || total > limit))
        total = limit;
    progress_begin(&r.bar, title, total, o->quiet || c->json);
    struct replay_conf conf = { .client = cl,
                                .data = ds,
                                .topic = o->topic,
                                .producer = o->producer,
                                .first_seq = 1,
                                .retry_ms = o->retry == CLI_UNSET ? 30000 : o->retry * 1000,
                                .limit = limit,
                                .scheduled = scheduled,
                                .tell = on_progress,
                                .arg = &r };
    struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &sa, NULL);
    rc = replay_all(&conf, &t, &es);
    progress_end(&r.bar);
    if (rc < 0)
        cli_errors(c, &es);
    if (c->json || (!o->quiet && (rc == 0 || t.records > 0)))
        print_replayed(c, title, &t, scheduled);
    if (rc == 0 && t.stopped)
        end_interrupted(c, &t);
    errs_free(&es);
    client_close(cl);
    return rc;
}

int cmd_replay(struct cli *c) {
    const struct replay_options *o = c->opt;
    struct dataset_conf conf;
    struct dataset *ds;
    struct err e = ERR_INIT;
    int rc = replay_conf(c, o, &conf);
    if (rc < 0)
        return rc;
    if (dataset_open(&ds, &conf, &e) < 0)
        return cli_error(c, &e);
    rc = replay_opened(c, o, ds, conf.rate > 0 || conf.speed > 0);
    dataset_close(ds);
    return rc;
}
