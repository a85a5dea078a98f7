/* braid new, braid completion. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/starter.h"
#include "engine/op.h"
#include "planner/spec.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- new ---- */

static const struct starter *find_starter(struct cli *c, const char *name) {
    const char *names[16];
    struct sbuf list = { 0 };
    int n = 0;
    for (const struct starter *s = starters; s->name; s++) {
        if (!name || strcmp(s->name, name) == 0)
            return s;
        names[n++] = s->name;
        sbuf_printf(&list, "%s%s", n > 1 ? ", " : "", s->name);
    }
    const char *near = err_nearest(name, names, n);
    cli_usage(c, "there is no template '%s'%s%s%s; there are %s", name,
              near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", sbuf_str(&list));
    sbuf_free(&list);
    return NULL;
}

/* A file that is there already stays as it is. */
static int create_file(struct cli *c, const char *path, const struct sbuf *text) {
    struct err e = ERR_INIT;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) {
        err_set(&e, ERR_CONFLICT, "%s is there already", path);
        return cli_error(c, &e);
    }
    if (fd < 0) {
        err_errno(&e, errno, "cannot write %s", path);
        return cli_error(c, &e);
    }
    size_t at = 0;
    while (at < text->len) {
        ssize_t n = write(fd, text->p + at, text->len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            err_errno(&e, errno, "cannot write %s", path);
            close(fd);
            return cli_error(c, &e);
        }
        at += (size_t)n;
    }
    close(fd);
    return 0;
}

enum { NEW_FILES = 3 };

static int make_files(struct cli *c, const struct starter *s, const char *name,
                      const char *const *path) {
    const char *from[NEW_FILES] = { s->flow, s->test, starter_data };
    const char *end[NEW_FILES] = { s->flow_end, s->test_end, starter_data_end };
    int n = s->reads ? NEW_FILES : NEW_FILES - 1, rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (access(path[i], F_OK) == 0) { /* none or all */
            struct err e = ERR_INIT;
            err_set(&e, ERR_CONFLICT, "%s is there already", path[i]);
            return cli_error(c, &e);
        }
    for (int i = 0; i < n && rc == 0; i++) {
        struct sbuf text = { 0 };
        starter_text(&text, s, from[i], end[i], name);
        rc = create_file(c, path[i], &text);
        sbuf_free(&text);
    }
    return rc;
}

int cmd_new(struct cli *c) {
    const struct new_options *o = c->opt;
    const char *name = c->args[0];
    if (!spec_name_valid(name, strlen(name), true))
        return cli_usage(c,
                         "the name of a dataflow has 1 to %d letters, digits, '_', '-' and '.' "
                         "(not first), not '%s'",
                         SPEC_NAME_MAX, name);
    const struct starter *s = find_starter(c, o->from);
    if (!s)
        return ERR_INPUT;
    const char *path[NEW_FILES] = { arena_printf(&c->arena, "%s.json", name),
                                    arena_printf(&c->arena, "%s.test.json", name),
                                    arena_printf(&c->arena, "%s.data.json", name) };
    int rc = make_files(c, s, name, path);
    if (rc < 0)
        return rc;
    if (c->json) {
        printf("{\"name\":\"%s\",\"template\":\"%s\",\"dataflow\":\"%s\",\"test\":\"%s\",\"data\":",
               name, s->name, path[0], path[1]);
        printf(s->reads ? "\"%s\"}\n" : "null}\n", path[2]);
        return 0;
    }
    printf("%s: the dataflow; what its tasks are for stands in their labels\n", path[0]);
    printf("%s: a test of it\n", path[1]);
    if (s->reads)
        printf("%s: some records\n", path[2]);
    cli_note(c, "\nNow:\n  braid run %s%s%s\n  braid test %s\n  braid submit %s", path[0],
             s->reads ? " --in " : "", s->reads ? path[2] : "", path[1], path[0]);
    return 0;
}

/* ---- completion ---- */

/* Names that the server knows; nothing, and no error, when it cannot be asked. */
static int print_names(struct cli *c, const char *path, const char *list) {
    struct client *cl;
    struct json_doc doc;
    struct errs es = { 0 };
    if (client_open(&cl, c->url, &es) == 0) {
        if (client_json(cl, "GET", path, NULL, &c->arena, &doc, &es) == 0)
            for (const struct jnode *n = json_list(doc.root, list); n; n = n->next)
                puts(json_text(n, "name"));
        client_close(cl);
    }
    errs_free(&es);
    return 0;
}

int cmd_completion(struct cli *c) {
    const char *what = c->args[0];
    if (strcmp(what, "dataflows") == 0)
        return print_names(c, "/v1/dataflows", "dataflows");
    if (strcmp(what, "topics") == 0)
        return print_names(c, "/v1/topics", "topics");
    if (strcmp(what, "operators") == 0) {
        for (int i = 0; i < ops_count; i++)
            if (!(ops_all[i]->flags & OP_INNER))
                puts(ops_all[i]->name);
        return 0;
    }
    if (strcmp(what, "templates") == 0) {
        for (const struct starter *s = starters; s->name; s++)
            puts(s->name);
        return 0;
    }
    return cli_completion(stdout, what) ? 0
                                        : cli_usage(c, "'%s' is none of bash, zsh and fish", what);
}
