/* Dataflows on a server: submit, ls, show, explain, graph, rm. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/flowfile.h"
#include "cluster/look.h"
#include "cluster/table.h"
#include "cluster/text.h"
#include "engine/num.h"
#include <string.h>
#include <unistd.h>

int cmd_connect(struct cli *c, struct client **cl) {
    struct errs es = { 0 };
    int rc = client_open(cl, c->url, &es);
    if (rc < 0)
        cli_errors(c, &es);
    errs_free(&es);
    return rc;
}

int cmd_get(struct cli *c, struct client *cl, const char *method, const char *path,
            const struct client_body *body, struct json_doc *doc) {
    struct errs es = { 0 };
    int rc = client_json(cl, method, path, body, &c->arena, doc, &es);
    if (rc < 0)
        cli_errors(c, &es);
    else if (c->json)
        fprintf(stdout, "%.*s\n", (int)doc->len, doc->text);
    errs_free(&es);
    return rc;
}

/* The whole of a command that is one request: 1 when there is something to show, 0 when --json has
 * printed the answer. */
static int ask(struct cli *c, const char *method, const char *fmt, const char *name,
               struct json_doc *doc) {
    struct client *cl;
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    const char *path =
        name ? arena_printf(&c->arena, fmt, client_escape(cl, name, &c->arena)) : fmt;
    rc = cmd_get(c, cl, method, path, NULL, doc);
    client_close(cl);
    return rc < 0 ? rc : !c->json;
}

int cmd_width(int fd) {
    return term_is(fd) ? term_width(fd) : 0;
}

/* ---- submit ---- */

int cmd_upload(struct cli *c, struct client *cl, const struct flowfile *f) {
    struct sbuf reply = { 0 };
    int rc = 0;
    for (int i = 0; i < f->nfiles && rc == 0; i++) {
        struct errs es = { 0 };
        const char *path = arena_printf(&c->arena, "/v1/files/%s", f->files[i].hash);
        rc = client_call(cl, "HEAD", path, NULL, &reply, NULL, &es);
        if (rc == ERR_NOTFOUND) {
            struct client_body body = { f->files[i].data, f->files[i].len,
                                        "application/octet-stream" };
            errs_free(&es);
            rc = client_call(cl, "PUT", path, &body, &reply, NULL, &es);
        }
        if (rc < 0)
            cli_errors(c, &es);
        errs_free(&es);
    }
    sbuf_free(&reply);
    return rc;
}

static void add_pair(struct sbuf *o, int i, const char *name, const char *value) {
    sbuf_adds(o, i ? "," : "");
    sbuf_json_str(o, name, strlen(name));
    sbuf_adds(o, ":");
    sbuf_json_str(o, value, strlen(value));
}

void cmd_spec_body(struct sbuf *o, const struct flowfile *f) {
    const char *name = strcmp(f->name, "-") == 0 ? "stdin" : f->name;
    sbuf_adds(o, "{\"file\":");
    text_json(o, name);
    sbuf_adds(o, ",\"text\":");
    sbuf_json_str(o, f->text, f->len);
    sbuf_adds(o, ",\"files\":{");
    for (int i = 0; i < f->nfiles; i++)
        add_pair(o, i, f->files[i].name, f->files[i].hash);
    sbuf_adds(o, "},\"vars\":{");
    for (int i = 0; i < f->nvars; i++)
        add_pair(o, i, f->vars[i].name, f->vars[i].value);
    sbuf_adds(o, "}}");
}

int cmd_load(struct cli *c, const char *const *names, int n, struct flowfile *f) {
    struct errs es = { 0 }, warn = { 0 };
    int rc = 0;
    for (int i = 0; i < n; i++) {
        struct err e = ERR_INIT;
        int rc1 = flowfile_load(&f[i], names[i], &c->arena, &e);
        f[i].remote = true;
        if (rc1 < 0)
            errs_add(&es, &e);
        else
            rc1 = flowfile_parse(&f[i], &es, &warn);
        rc = rc ? rc : rc1;
    }
    cli_warnings(c, &warn);
    if (rc < 0)
        cli_errors(c, &es);
    errs_free(&warn);
    errs_free(&es);
    return rc;
}

/* Where the past of a task begins, in the answer to a submit. */
static const struct jnode *find_history(const struct jnode *d, const char *task) {
    for (const struct jnode *h = json_list(d, "history_from"); h; h = h->next)
        if (strcmp(json_text(h, "task"), task) == 0)
            return h;
    return NULL;
}

static void print_submitted(const struct jnode *d, bool dry, bool color) {
    int64_t tasks = json_int(d, "tasks"), fresh = json_int(d, "new"),
            reused = json_int(d, "reused");
    printf("%s%s%s: ", style_on(STYLE_BOLD, color), json_text(d, "name"), style_off(color));
    printf("%s, %lld task%s: %s%lld new%s, %s%lld reused%s\n", dry ? "would run" : "running",
           (long long)tasks, tasks == 1 ? "" : "s",
           style_on(fresh ? STYLE_YELLOW : STYLE_DIM, color), (long long)fresh, style_off(color),
           style_on(reused ? STYLE_GREEN : STYLE_DIM, color), (long long)reused, style_off(color));
    struct table t;
    table_begin(&t, "<  task|<type|<|<sees rows from|<why");
    for (const struct jnode *x = json_list(d, "explain"); x; x = x->next) {
        bool is_new = strcmp(json_text(x, "status"), "new") == 0;
        const struct jnode *h = find_history(d, json_text(x, "id"));
        table_addf(&t, "  %s", json_text(x, "id"));
        table_add(&t, json_text(x, "type"));
        table_add(&t, json_text(x, "status"));
        table_style(&t, is_new ? STYLE_YELLOW : STYLE_GREEN);
        if (h && *json_text(h, "topic"))
            table_addf(&t, "%s @ %lld", json_text(h, "topic"), (long long)json_int(h, "offset"));
        else
            table_add(&t, "");
        /* that a new task feeds only new ones goes without saying */
        table_add(&t, strcmp(json_text(x, "why"), "parent") == 0 ? "" : json_text(x, "reason"));
    }
    table_print(&t, stdout, cmd_width(STDOUT_FILENO), color);
    table_end(&t);
}

int cmd_submit(struct cli *c) {
    const struct submit_options *o = c->opt;
    struct flowfile *f = ARENA_ARRAY(&c->arena, struct flowfile, c->nargs);
    struct client *cl;
    int rc = cmd_load(c, c->args, c->nargs, f);
    if (rc < 0 || (rc = cmd_connect(c, &cl)) < 0)
        return rc;
    struct sbuf body = { 0 };
    sbuf_adds(&body, "{\"specs\":[");
    for (int i = 0; i < c->nargs && rc == 0; i++) {
        rc = cmd_upload(c, cl, &f[i]);
        sbuf_adds(&body, i ? "," : "");
        cmd_spec_body(&body, &f[i]);
    }
    sbuf_printf(&body, "],\"dry_run\":%s}", o->dry_run ? "true" : "false");
    struct json_doc doc;
    struct client_body b = { body.p, body.len, NULL };
    if (rc == 0)
        rc = cmd_get(c, cl, "POST", "/v1/dataflows", &b, &doc);
    bool color = term_color(STDOUT_FILENO);
    if (rc == 0 && !c->json)
        for (const struct jnode *d = json_list(doc.root, "dataflows"); d; d = d->next)
            print_submitted(d, o->dry_run, color);
    sbuf_free(&body);
    client_close(cl);
    return rc;
}

/* ---- ls ---- */

static enum style state_style(const char *state) {
    return strcmp(state, "RUNNING") == 0  ? STYLE_GREEN
           : strcmp(state, "FAILED") == 0 ? STYLE_RED
                                          : STYLE_YELLOW;
}

static void add_exact(struct table *t, int64_t v) {
    char buf[UNIT_MAX];
    table_add(t, unit_exact(buf, (uint64_t)v));
}

int cmd_ls(struct cli *c) {
    struct json_doc doc;
    char buf[UNIT_MAX];
    int rc = ask(c, "GET", "/v1/dataflows", NULL, &doc);
    if (rc <= 0)
        return rc;
    struct table t;
    table_begin(&t, "<dataflow|<state|>tasks|>shared|>rows in|>rows out|>dead letters|<");
    for (const struct jnode *d = json_list(doc.root, "dataflows"); d; d = d->next) {
        const char *state = json_text(d, "state"), *reason = json_text(d, "reason");
        table_add(&t, json_text(d, "name"));
        table_style(&t, STYLE_BOLD);
        table_add(&t, state);
        table_style(&t, state_style(state));
        add_exact(&t, json_int(d, "tasks"));
        add_exact(&t, json_int(d, "shared"));
        add_exact(&t, json_int(d, "rows_in"));
        add_exact(&t, json_int(d, "rows_out"));
        int64_t dead = json_int(d, "rejected");
        table_add(&t, dead ? unit_exact(buf, (uint64_t)dead) : "-");
        table_style(&t, dead ? STYLE_RED : STYLE_DIM);
        table_add(&t, *reason ? reason : json_text(d, "description"));
    }
    if (t.n == 0)
        cli_note(c, "no dataflows are running; `braid submit FILE` starts one");
    table_print(&t, stdout, cmd_width(STDOUT_FILENO), term_color(STDOUT_FILENO));
    table_end(&t);
    return 0;
}

/* ---- show ---- */

static const char *names_text(struct arena *a, const struct jnode *list) {
    struct sbuf b = { 0 };
    int n = 0, more = 0;
    for (; list; list = list->next) {
        if (list->type != J_STR)
            continue;
        if (n < 3)
            sbuf_printf(&b, "%s%s", n ? ", " : "", list->s);
        else
            more++;
        n++;
    }
    if (more)
        sbuf_printf(&b, " and %d more", more);
    const char *s = arena_strdup(a, n ? sbuf_str(&b) : "");
    sbuf_free(&b);
    return s;
}

static void print_detail(struct cli *c, const struct jnode *d, bool color) {
    struct table t;
    char buf[UNIT_MAX];
    table_begin(&t, "<task|<type|>rows in|>rows out|>filtered|>late|>rejected|>a row|>keys"
                    "|>state|<shared with");
    for (; d; d = d->next) {
        table_add(&t, json_text(d, "id"));
        table_style(&t, STYLE_BOLD);
        table_add(&t, json_text(d, "type"));
        static const char *const counts[] = { "rows_in", "rows_out", "filtered", "late",
                                              "rejected" };
        for (int i = 0; i < 5; i++) {
            int64_t v = json_int(d, counts[i]);
            table_add(&t, v || i < 2 ? unit_exact(buf, (uint64_t)v) : "-");
            table_style(&t, !v && i >= 2 ? STYLE_DIM : v && i >= 3 ? STYLE_RED : STYLE_PLAIN);
        }
        table_add(&t, json_int(d, "ns_per_row") ? unit_ns(buf, (double)json_int(d, "ns_per_row"))
                                                : "-");
        int64_t keys = json_int(d, "state_keys");
        table_add(&t, keys ? unit_exact(buf, (uint64_t)keys) : "-");
        table_add(&t, keys ? unit_bytes(buf, (double)json_int(d, "state_bytes")) : "-");
        table_add(&t, names_text(&c->arena, json_list(d, "shared_with")));
        table_style(&t, STYLE_GREEN);
    }
    table_print(&t, stdout, cmd_width(STDOUT_FILENO), color);
    table_end(&t);
}

int cmd_show(struct cli *c) {
    struct json_doc doc;
    int rc = ask(c, "GET", "/v1/dataflows/%s", c->args[0], &doc);
    if (rc <= 0)
        return rc;
    const struct jnode *d = doc.root;
    bool color = term_color(STDOUT_FILENO);
    char at[NUM_TIME_MAX_LEN + 1], in[UNIT_MAX], out[UNIT_MAX];
    const char *state = json_text(d, "state"), *reason = json_text(d, "reason");
    at[time_write(at, json_int(d, "submitted_ms"))] = '\0';
    printf("%s%s%s  %s%s%s%s%s\n", style_on(STYLE_BOLD, color), json_text(d, "name"),
           style_off(color), style_on(state_style(state), color), state, style_off(color),
           *reason ? ": " : "", reason);
    if (*json_text(d, "description"))
        printf("%s\n", json_text(d, "description"));
    printf("submitted %s; %lld tasks, %lld shared; %s rows in, %s out; history %s\n\n", at,
           (long long)json_int(d, "tasks"), (long long)json_int(d, "shared"),
           unit_exact(in, (uint64_t)json_int(d, "rows_in")),
           unit_exact(out, (uint64_t)json_int(d, "rows_out")), json_text(d, "history"));
    print_detail(c, json_list(d, "detail"), color);
    return 0;
}

/* ---- explain, graph, rm ---- */

int cmd_explain(struct cli *c) {
    struct json_doc doc;
    int rc = ask(c, "GET", "/v1/dataflows/%s/explain", c->args[0], &doc);
    if (rc <= 0)
        return rc;
    const char *text = json_text(doc.root, "text");
    size_t len = strlen(text);
    printf("%s%s", text, len && text[len - 1] == '\n' ? "" : "\n");
    return 0;
}

/* What sharing saves: every task's rows and time, once against once for each of its users. */
static void print_sharing(struct cli *c, struct client *cl) {
    struct look l;
    struct errs es = { 0 };
    if (look_take(cl, &l, &es) == 0) {
        int n;
        double run = (double)l.metrics.running, alone = (double)l.metrics.submitted;
        double rows = 0, rows_alone = 0, ns = 0, ns_alone = 0;
        const struct look_line *v = look_lines(NULL, &l, &l.arena, &n);
        char a[UNIT_MAX], b[UNIT_MAX], d[UNIT_MAX], e[UNIT_MAX];
        for (int i = 0; i < n; i++) {
            rows += (double)v[i].rows;
            rows_alone += (double)v[i].rows * v[i].nusers;
            ns += (double)v[i].busy_ns;
            ns_alone += (double)v[i].busy_ns * v[i].nusers;
        }
        cli_note(c, "\n%lld tasks run instead of %lld (%s fewer; sinks not counted)",
                 (long long)l.metrics.running, (long long)l.metrics.submitted,
                 unit_percent(a, alone > 0 ? 1 - run / alone : 0));
        if (rows > 0)
            cli_note(c, "%s rows worked on instead of %s, in %s of CPU instead of %s",
                     unit_count(a, rows), unit_count(b, rows_alone), unit_ns(d, ns),
                     unit_ns(e, ns_alone));
    }
    look_free(&l);
    errs_free(&es);
}

int cmd_graph(struct cli *c) {
    const struct graph_options *o = c->opt;
    struct client *cl;
    if (o->dot && c->json)
        return cli_usage(c, "either --dot or --json");
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    struct sbuf reply = { 0 };
    struct errs es = { 0 };
    const char *path = o->dot    ? "/v1/graph?format=dot"
                       : c->json ? "/v1/graph?format=json"
                                 : arena_printf(&c->arena, "/v1/graph?format=text&width=%d",
                                                term_width(STDOUT_FILENO));
    rc = client_call(cl, "GET", path, NULL, &reply, NULL, &es);
    if (rc < 0) {
        cli_errors(c, &es);
    } else if (reply.len == 0 && !c->json) {
        cli_note(c, "no tasks are running; `braid submit FILE` starts some");
    } else {
        fwrite(reply.p, 1, reply.len, stdout);
        if (reply.len && reply.p[reply.len - 1] != '\n')
            putchar('\n');
        fflush(stdout);
        if (!o->dot && !c->json)
            print_sharing(c, cl);
    }
    sbuf_free(&reply);
    errs_free(&es);
    client_close(cl);
    return rc;
}

int cmd_rm(struct cli *c) {
    const struct rm_options *o = c->opt;
    struct json_doc doc;
    int rc = ask(c, "DELETE", o->drain ? "/v1/dataflows/%s?drain=1" : "/v1/dataflows/%s",
                 c->args[0], &doc);
    if (rc <= 0)
        return rc;
    int64_t removed = json_int(doc.root, "removed"), kept = json_int(doc.root, "kept");
    printf("%s: removed; %lld task%s stopped, %lld go%s on for others\n", c->args[0],
           (long long)removed, removed == 1 ? "" : "s", (long long)kept, kept == 1 ? "es" : "");
    for (const struct jnode *k = json_list(doc.root, "kept_by"); k; k = k->next)
        printf("  %s goes on for %s\n", json_text(k, "task"),
               names_text(&c->arena, json_list(k, "dataflows")));
    return 0;
}

/* Until a dataflow can be taken out of the shared graph with its state. */
int cmd_pause(struct cli *c) {
    struct json_doc doc;
    struct client *cl;
    struct errs es = { 0 };
    struct err e = ERR_INIT;
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    const char *path =
        arena_printf(&c->arena, "/v1/dataflows/%s", client_escape(cl, c->args[0], &c->arena));
    rc = client_json(cl, "GET", path, NULL, &c->arena, &doc, &es);
    client_close(cl);
    if (rc < 0) {
        cli_errors(c, &es);
        errs_free(&es);
        return rc;
    }
    if (strcmp(c->command->name, "resume") == 0)
        err_set(&e, ERR_CONFLICT, "dataflow '%.100s' is not paused: it is %s", c->args[0],
                json_text(doc.root, "state"));
    else
        err_set(
            &e, ERR_CONFLICT,
            "dataflow '%.100s' cannot be paused: that needs a private copy of its tasks (fork), "
            "which this version does not make; `braid rm` ends it, and a submit with \"start\": "
            "\"earliest\" reads its topics again",
            c->args[0]);
    return cli_error(c, &e);
}
