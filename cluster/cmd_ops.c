/* braid operators, help, version. */
#include "cluster/cmd.h"
#include "cluster/table.h"
#include "engine/json.h"
#include "engine/op.h"
#include <string.h>
#include <unistd.h>

/* The first sentence of a doc, without its full stop. */
static int summary_len(const char *doc) {
    const char *p = doc;
    while (*p && !(*p == '.' && (p[1] == ' ' || p[1] == '\n' || !p[1])))
        p++;
    return (int)(p - doc);
}

static const char *const class_words[] = { "semantic", "attach", "physical", "label" };

static void ports_json(struct sbuf *o, const char *name, const char *const *ports,
                       const char *def) {
    sbuf_printf(o, ",\"%s\":[", name);
    if (!ports && def)
        sbuf_printf(o, "\"%s\"", def);
    for (int i = 0; ports && ports[i]; i++)
        sbuf_printf(o, "%s\"%s\"", i ? "," : "", ports[i]);
    sbuf_adds(o, "]");
}

static void param_json(struct sbuf *o, const struct param *p) {
    sbuf_printf(o,
                "{\"name\":\"%s\",\"type\":\"%s\",\"class\":\"%s\",\"required\":%s,\"default\":%s",
                p->name, param_type_texts[p->type].name, class_words[p->class],
                p->def || p->flags & PARAM_OPTIONAL ? "false" : "true", p->def ? p->def : "null");
    for (int i = 0; p->words && p->words[i]; i++)
        sbuf_printf(o, "%s\"%s\"%s", i ? "," : ",\"words\":[", p->words[i],
                    p->words[i + 1] ? "" : "]");
    sbuf_adds(o, ",\"doc\":");
    sbuf_json_str(o, p->doc, strlen(p->doc));
    sbuf_adds(o, "}");
}

void operator_json(struct sbuf *o, const struct op_desc *d) {
    sbuf_printf(o, "{\"name\":\"%s\",\"semantics\":%d,\"doc\":", d->name, d->semantics);
    sbuf_json_str(o, d->doc, strlen(d->doc));
    ports_json(o, "in", d->in_ports, d->flags & OP_SOURCE ? NULL : "in");
    ports_json(o, "out", d->out_ports, d->flags & OP_SINK ? NULL : "out");
    sbuf_printf(o, ",\"any_ports\":%s,\"keyed\":%s,\"deterministic\":%s,\"params\":[",
                d->flags & OP_ANY_PORTS ? "true" : "false", d->flags & OP_KEYED ? "true" : "false",
                d->flags & OP_DETERMINISTIC ? "true" : "false");
    for (int i = 0; d->params && d->params[i].name; i++) {
        sbuf_adds(o, i ? "," : "");
        param_json(o, &d->params[i]);
    }
    sbuf_printf(o, "],\"example\":%s}", d->example ? d->example : "null");
}

/* Markdown as text: wrapped at 92 columns, code marks dropped. */
static void print_doc(const char *doc, int indent) {
    int col = 0;
    printf("%*s", indent, "");
    for (const char *p = doc; *p;) {
        size_t n = strcspn(p, " \n");
        if (col > 0 && (col + (int)n + indent >= 92)) {
            printf("\n%*s", indent, "");
            col = 0;
        }
        if (n) {
            printf("%s%.*s", col ? " " : "", (int)n, p);
            col += (int)n + (col > 0);
        }
        p += n;
        if (p[0] == '\n' && p[1] == '\n') {
            printf("\n\n%*s", indent, "");
            col = 0;
            p += 2;
        } else if (*p) {
            p++;
        }
    }
    putchar('\n');
}

static void print_ports(const char *title, const char *const *ports, const char *def) {
    printf("%s ", title);
    if (!ports)
        fputs(def, stdout);
    for (int i = 0; ports && ports[i]; i++)
        printf("%s%s", i ? ", " : "", ports[i]);
}

static void print_operator(const struct op_desc *d, bool color) {
    printf("%s%s%s", style_on(STYLE_BOLD, color), d->name, style_off(color));
    bool any = d->flags & OP_ANY_PORTS;
    if (any)
        fputs("   any named ports", stdout);
    else if (d->flags & OP_SOURCE)
        print_ports("   out-port", d->out_ports, "out");
    else
        print_ports("   in-port", d->in_ports, "in");
    if (!any && !(d->flags & (OP_SOURCE | OP_SINK)))
        print_ports("; out-port", d->out_ports, "out");
    printf("%s\n\n", d->flags & OP_KEYED ? "; state by key" : "");
    print_doc(d->doc, 0);
    for (int i = 0; d->params && d->params[i].name; i++) {
        const struct param *p = &d->params[i];
        printf("%s%s%s%s  %s%s", i ? "" : "\nParameters\n", i ? "" : "  ",
               style_on(STYLE_BOLD, color), p->name, style_off(color),
               param_type_texts[p->type].name);
        for (int k = 0; p->words && p->words[k]; k++)
            printf("%s%s", k ? " | " : ": ", p->words[k]);
        if (p->def)
            printf(", default %s", p->def);
        else
            fputs(p->flags & PARAM_OPTIONAL ? ", optional" : ", required", stdout);
        printf("%s\n", p->class == PARAM_SEMANTIC ? "" : ", not part of the signature");
        print_doc(p->doc, 6);
        if (d->params[i + 1].name)
            fputs("  ", stdout);
    }
    if (d->example)
        printf("\nExample\n  \"config\": %s\n", d->example);
}

int cmd_operators(struct cli *c) {
    struct sbuf o = { 0 };
    bool color = term_color(STDOUT_FILENO);
    if (c->nargs == 1) {
        const struct op_desc *d = ops_find(c->args[0]);
        if (!d || d->flags & OP_INNER) {
            const char *near = ops_nearest(c->args[0]);
            struct err e;
            err_set(&e, ERR_NOTFOUND, "no operator '%s'; %s%s%s`braid operators` lists all",
                    c->args[0], near ? "did you mean '" : "", near ? near : "", near ? "'? " : "");
            return cli_error(c, &e);
        }
        if (c->json)
            operator_json(&o, d);
        else
            print_operator(d, color);
    } else if (c->json) {
        sbuf_adds(&o, "{\"operators\":[");
        for (int i = 0, k = 0; i < ops_count; i++)
            if (!(ops_all[i]->flags & OP_INNER)) {
                sbuf_adds(&o, k++ ? "," : "");
                operator_json(&o, ops_all[i]);
            }
        sbuf_adds(&o, "]}");
    } else {
        struct table t;
        table_begin(&t, "<operator|<what it does");
        for (int i = 0; i < ops_count; i++)
            if (!(ops_all[i]->flags & OP_INNER)) {
                table_add(&t, ops_all[i]->name);
                table_style(&t, STYLE_BOLD);
                table_addf(&t, "%.*s", summary_len(ops_all[i]->doc), ops_all[i]->doc);
            }
        table_print(&t, stdout, term_is(STDOUT_FILENO) ? term_width(STDOUT_FILENO) : 0, color);
        table_end(&t);
        cli_note(c, "\n`braid operators NAME` tells its parameters.");
    }
    if (o.len)
        puts(sbuf_str(&o));
    sbuf_free(&o);
    return 0;
}

int cmd_version(struct cli *c) {
    if (c->json)
        puts("{\"name\":\"braid\",\"version\":\"" BRAID_VERSION "\"}");
    else
        puts("braid " BRAID_VERSION);
    return 0;
}

int cmd_help(struct cli *c) {
    const struct help_options *h = c->opt;
    if (h->markdown) {
        cli_markdown(stdout);
        return 0;
    }
    if (h->man) {
        cli_man(stdout);
        return 0;
    }
    const struct cli_command *m = c->nargs ? cli_find(c->args[0]) : NULL;
    if (c->nargs && !m)
        return cli_unknown(c, c->args[0]);
    if (c->json)
        cli_help_json(stdout, m);
    else if (!m)
        cli_help_all(stdout);
    else if (m->main)
        return -m->main(2, (char *[]){ (char *)m->name, "--help", NULL });
    else
        cli_help(stdout, m);
    return 0;
}
