/* Topics on a server: braid topics [create|rm NAME]. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/table.h"
#include "engine/num.h"
#include <string.h>
#include <unistd.h>

/* What it keeps: "all", "last of a key", "1.00 GB, 7d". */
static const char *keeps(struct cli *c, const struct jnode *d) {
    int64_t bytes = json_int(d, "retention_bytes"), ms = json_int(d, "retention_ms");
    char size[UNIT_MAX] = "", time[48] = "";
    if (bytes >= 0)
        unit_bytes(size, (double)bytes);
    if (ms > 0)
        time[duration_write(time, ms)] = '\0';
    const struct jnode *compact = jnode_get(d, "compact");
    const char *what = compact && compact->type == J_BOOL && compact->b ? "last of a key" : "all";
    if (!*size && !*time)
        return what;
    return arena_printf(&c->arena, "%s%s%s%s%s", *what == 'l' ? what : "", *what == 'l' ? ", " : "",
                        size, *size && *time ? ", " : "", time);
}

static void add_topic(struct cli *c, struct table *t, const struct jnode *d) {
    char buf[UNIT_MAX];
    const struct jnode *readers = jnode_get(d, "readers");
    bool one = json_int(d, "partitions") == 1; /* offsets are those of a partition */
    table_add(t, json_text(d, "name"));
    table_style(t, STYLE_BOLD);
    table_add(t, unit_exact(buf, (uint64_t)json_int(d, "partitions")));
    table_add(t, unit_exact(buf, (uint64_t)(json_int(d, "end") - json_int(d, "begin"))));
    table_add(t, one ? unit_exact(buf, (uint64_t)json_int(d, "begin")) : "-");
    table_add(t, one ? unit_exact(buf, (uint64_t)json_int(d, "end")) : "-");
    table_add(t, unit_bytes(buf, (double)json_int(d, "bytes")));
    table_add(t, keeps(c, d));
    table_add(t, unit_exact(buf, readers && readers->type == J_ARR
                                     ? readers->n
                                     : (uint64_t)json_int(d, "readers")));
    table_add(t, json_text(d, "writer"));
}

static int list(struct cli *c, struct client *cl) {
    struct json_doc doc;
    int rc = cmd_get(c, cl, "GET", "/v1/topics", NULL, &doc);
    if (rc < 0 || c->json)
        return rc;
    struct table t;
    table_begin(&t, "<topic|>parts|>records|>from|>to|>bytes|<keeps|>readers|<written by");
    for (const struct jnode *d = json_list(doc.root, "topics"); d; d = d->next)
        add_topic(c, &t, d);
    if (t.n == 0)
        cli_note(c, "there are no topics yet");
    table_print(&t, stdout, cmd_width(STDOUT_FILENO), term_color(STDOUT_FILENO));
    table_end(&t);
    return 0;
}

/* The body of the request, from the options. */
static int topic_body(struct cli *c, struct sbuf *o) {
    const struct topics_options *t = c->opt;
    int64_t v;
    sbuf_printf(o, "{\"partitions\":%lld",
                (long long)(t->partitions == CLI_UNSET ? 1 : t->partitions));
    if (t->retention) {
        if (size_parse(t->retention, t->retention + strlen(t->retention), &v) < 0)
            return cli_usage(c, "--retention is a size such as 10GiB, not '%s'", t->retention);
        sbuf_printf(o, ",\"retention_bytes\":%lld", (long long)v);
    }
    if (t->retention_time) {
        if (duration_parse(t->retention_time, t->retention_time + strlen(t->retention_time), &v) <
                0 ||
            v <= 0)
            return cli_usage(c, "--retention-time is a duration such as 7d, not '%s'",
                             t->retention_time);
        sbuf_printf(o, ",\"retention_ms\":%lld", (long long)v);
    }
    sbuf_adds(o, t->compact ? ",\"compact\":true}" : "}");
    return 0;
}

static int change(struct cli *c, struct client *cl, bool create) {
    struct json_doc doc;
    struct sbuf o = { 0 };
    int rc = create ? topic_body(c, &o) : 0;
    struct client_body body = { o.p, o.len, NULL };
    if (rc == 0)
        rc = cmd_get(
            c, cl, create ? "PUT" : "DELETE",
            arena_printf(&c->arena, "/v1/topics/%s", client_escape(cl, c->args[1], &c->arena)),
            create ? &body : NULL, &doc);
    if (rc == 0)
        cli_note(c, "%s: %s", c->args[1], create ? "made" : "deleted");
    sbuf_free(&o);
    return rc;
}

static int read_action(struct cli *c, bool *create) {
    const struct topics_options *t = c->opt;
    *create = c->nargs > 0 && strcmp(c->args[0], "create") == 0;
    if (c->nargs > 0 && !*create && strcmp(c->args[0], "rm") != 0)
        return cli_usage(c, "'%s' is neither create nor rm", c->args[0]);
    if (c->nargs == 1)
        return cli_usage(c, "the topic's name is missing");
    if (!*create && (t->partitions != CLI_UNSET || t->retention || t->retention_time || t->compact))
        return cli_usage(c, "options are for create");
    return 0;
}

int cmd_topics(struct cli *c) {
    struct client *cl;
    bool create;
    int rc = read_action(c, &create);
    if (rc == 0)
        rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    rc = c->nargs ? change(c, cl, create) : list(c, cl);
    client_close(cl);
    return rc;
}
