/* braid replace. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/flowfile.h"
#include "cluster/look.h"
#include "cluster/table.h"
#include "cluster/text.h"
#include <string.h>
#include <unistd.h>

/* {"NEW":"OLD",…} of the options; "TASK" alone is "TASK=TASK". */
static int state_from(struct cli *c, const struct cli_list *l, struct sbuf *o) {
    sbuf_adds(o, "{");
    for (int i = 0; i < l->n; i++) {
        const char *text = l->v[i], *eq = strchr(text, '=');
        if (!*text || eq == text || (eq && !eq[1]))
            return cli_usage(c, "--state-from wants NEW=OLD, not '%s'", text);
        size_t len = eq ? (size_t)(eq - text) : strlen(text);
        for (int k = 0; k < i; k++)
            if (strncmp(l->v[k], text, len) == 0 && (l->v[k][len] == '=' || !l->v[k][len]))
                return cli_usage(c, "--state-from %.*s is said twice", (int)len, text);
        sbuf_adds(o, i ? "," : "");
        sbuf_json_str(o, text, len);
        sbuf_adds(o, ":");
        text_json(o, eq ? eq + 1 : text);
    }
    sbuf_adds(o, "}");
    return 0;
}

static const char *names_of(struct arena *a, const struct jnode *list) {
    struct sbuf b = { 0 };
    for (const struct jnode *n = list; n; n = n->next)
        sbuf_printf(&b, "%s%s", n == list ? "" : ", ", n->type == J_STR ? n->s : "");
    const char *s = arena_strdup(a, sbuf_str(&b));
    sbuf_free(&b);
    return s;
}

static void print_change(struct cli *c, struct table *t, const struct jnode *x) {
    const char *what = json_text(x, "what"), *id = json_text(x, "task");
    const struct jnode *takeable = jnode_get(x, "takeable");
    bool hint = takeable && takeable->type == J_BOOL && takeable->b;
    table_addf(t, "  %s", id);
    table_add(t, json_text(x, "type"));
    table_add(t, what);
    table_style(t, strcmp(what, "started") == 0 ? STYLE_YELLOW : STYLE_GREEN);
    const char *from = json_text(x, "from"), *why = json_text(x, "why");
    if (*from)
        why = arena_printf(&c->arena, "%s; the state is that of %s", why, from);
    else if (hint)
        why = arena_printf(&c->arena, "%s; --state-from %s would keep its state", why, id);
    table_add(t, why);
}

static void print_replaced(struct cli *c, const struct jnode *d, bool dry) {
    bool color = term_color(STDOUT_FILENO);
    struct table t;
    printf("%s%s%s: %s; %lld task%s kept, %lld with state taken over, %lld joined, %lld started, "
           "%lld stopped\n",
           style_on(STYLE_BOLD, color), json_text(d, "name"), style_off(color),
           dry ? "would be replaced" : "replaced", (long long)json_int(d, "kept"),
           json_int(d, "kept") == 1 ? "" : "s", (long long)json_int(d, "taken"),
           (long long)json_int(d, "joined"), (long long)json_int(d, "started"),
           (long long)json_int(d, "stopped"));
    table_begin(&t, "<  task|<type|<|<");
    for (const struct jnode *x = json_list(d, "changes"); x; x = x->next)
        print_change(c, &t, x);
    for (const struct jnode *x = json_list(d, "removed"); x; x = x->next) {
        const struct jnode *others = json_list(x, "goes_on_for");
        table_addf(&t, "  %s", json_text(x, "task"));
        table_add(&t, "");
        table_add(&t, others ? "left" : "stopped");
        table_style(&t, STYLE_DIM);
        table_add(&t, others
                          ? arena_printf(&c->arena, "goes on for %s", names_of(&c->arena, others))
                          : "");
    }
    table_print(&t, stdout, cmd_width(STDOUT_FILENO), color);
    table_end(&t);
}

int cmd_replace(struct cli *c) {
    const struct replace_options *o = c->opt;
    struct flowfile f;
    struct client *cl;
    struct json_doc doc;
    struct sbuf body = { 0 };
    sbuf_adds(&body, "{\"state_from\":");
    int rc = state_from(c, &o->state_from, &body);
    if (rc == 0)
        rc = cmd_load(c, c->args + 1, 1, &f);
    if (rc < 0 || (rc = cmd_connect(c, &cl)) < 0) {
        sbuf_free(&body);
        return rc;
    }
    sbuf_printf(&body, ",\"dry_run\":%s,\"spec\":", o->dry_run ? "true" : "false");
    cmd_spec_body(&body, &f);
    sbuf_adds(&body, "}");
    struct client_body b = { body.p, body.len, NULL };
    rc = cmd_upload(c, cl, &f);
    if (rc == 0)
        rc = cmd_get(
            c, cl, "PUT",
            arena_printf(&c->arena, "/v1/dataflows/%s", client_escape(cl, c->args[0], &c->arena)),
            &b, &doc);
    if (rc == 0 && !c->json)
        print_replaced(c, doc.root, o->dry_run);
    sbuf_free(&body);
    client_close(cl);
    return rc;
}
