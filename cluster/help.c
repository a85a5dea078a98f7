/* What `braid help`, `--help` and docs/cli.md say, from the table of commands. */
#include "cluster/cli.h"
#include "cluster/conf.h"
#include "engine/json.h"
#include <string.h>
#include <unistd.h>

static const char *const group_titles[HELP_COUNT] = {
    [HELP_LOCAL] = "On this machine, without a server",
    [HELP_SERVER] = "The server",
    [HELP_FLOWS] = "Dataflows",
    [HELP_STREAMS] = "Streams",
    [HELP_OTHER] = "More",
};
static const char about[] =
    "Braid runs many streaming dataflows as one graph: what several of them have in common\n"
    "is computed once.";
static const char codes[] =
    "Exit codes: 0 done, 1 the system failed, 2 the input is wrong, 3 not found, 4 conflict,\n"
    "5 server not reachable.";

static const char *bold(FILE *f) {
    return term_color(fileno(f)) ? "\33[1m" : "";
}
static const char *plain(FILE *f) {
    return term_color(fileno(f)) ? "\33[0m" : "";
}

/* Text wrapped at 86 columns, every line but the first indented. */
static void wrap(FILE *f, const char *text, int indent) {
    int col = indent;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " \n");
        if (col > indent && col + (int)n + 1 > 86) {
            fprintf(f, "\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            fputc(' ', f);
            col++;
        }
        fprintf(f, "%.*s", (int)n, p);
        col += (int)n;
        p += n;
        if (*p == '\n') {
            fprintf(f, "\n%*s", indent, "");
            col = indent;
            p++;
        }
        while (*p == ' ')
            p++;
    }
    fputc('\n', f);
}

static void print_option(FILE *f, const struct cli_option *o) {
    char left[64];
    snprintf(left, sizeof left, "%s%c%s--%s%s%s", o->letter ? "-" : "", o->letter ? o->letter : ' ',
             o->letter ? ", " : "   ", o->name, o->value ? " " : "", o->value ? o->value : "");
    fprintf(f, "  %-26s", left);
    if (strlen(left) > 25)
        fprintf(f, "\n%28s", "");
    wrap(f, o->help, 28);
}

static const struct cli_option shared_options[] = {
    { .name = "json", .help = "print JSON with stable keys" },
    { .name = "help", .letter = 'h', .help = "this text" },
};

static unsigned role_of(const struct cli_command *m) {
    return m->main ? CONF_SERVER : m->client ? CONF_CLIENT : 0;
}

/* Its own options, its settings, and those that all have; `up` has no --json. */
void cli_each_option(const struct cli_command *cmd, cli_option_fn *each, FILE *f) {
    for (const struct cli_option *o = cmd->options; o && o->name; o++)
        each(f, o);
    for (int k = 0; k < CONF_KEYS; k++) {
        const struct conf_setting *s = &conf_settings[k];
        struct sbuf help = { 0 };
        if (!(s->roles & role_of(cmd)))
            continue;
        conf_describe(&help, s);
        struct cli_option o = { .name = s->name, .value = s->value, .help = sbuf_str(&help) };
        each(f, &o);
        sbuf_free(&help);
    }
    for (int i = cmd->main ? 1 : 0; i < 2; i++)
        each(f, &shared_options[i]);
}

void cli_help(FILE *f, const struct cli_command *cmd) {
    fprintf(f, "%sbraid %s%s - %s\n\n", bold(f), cmd->name, plain(f), cmd->summary);
    fprintf(f, "usage: braid %s [OPTION…]%s%s\n", cmd->name, *cmd->args ? " " : "", cmd->args);
    if (cmd->help)
        fprintf(f, "\n%s\n", cmd->help);
    fprintf(f, "\n%sOptions%s\n", bold(f), plain(f));
    cli_each_option(cmd, print_option, f);
    if (cmd->examples)
        fprintf(f, "\n%sExamples%s\n%s\n", bold(f), plain(f), cmd->examples);
}

void cli_help_all(FILE *f) {
    fprintf(f, "%s\n\nusage: braid COMMAND [OPTION…] [ARGUMENT…]\n", about);
    for (int g = 0; g < HELP_COUNT; g++) {
        fprintf(f, "\n%s%s%s\n", bold(f), group_titles[g], plain(f));
        for (const struct cli_command *m = cli_commands; m->name; m++) {
            if ((int)m->group != g)
                continue;
            char left[64];
            snprintf(left, sizeof left, "%s%s%s", m->name, *m->args ? " " : "", m->args);
            int bytes_more = 0; /* of "…", which is one column */
            for (const char *p = left; *p; p++)
                bytes_more += ((unsigned char)*p & 0xc0) == 0x80;
            fprintf(f, "  %-*s %s\n", 22 + bytes_more, left, m->summary);
        }
    }
    fprintf(f,
            "\n`braid COMMAND --help` tells more about one. All but `up` take --json.\n"
            "Clients find the server by --url or BRAID_URL; default " CLI_URL ".\n%s\n",
            codes);
}

/* ---- JSON ---- */

static void json_member(struct sbuf *out, const char *key, const char *value) {
    sbuf_printf(out, ",\"%s\":", key);
    if (value)
        sbuf_json_str(out, value, strlen(value));
    else
        sbuf_adds(out, "null");
}

static void json_option(struct sbuf *out, const struct cli_option *o, const char *def) {
    const char letter[] = { o->letter, '\0' };
    sbuf_adds(out, out->p[out->len - 1] == '[' ? "{\"name\":" : ",{\"name\":");
    sbuf_json_str(out, o->name, strlen(o->name));
    json_member(out, "letter", *letter ? letter : NULL);
    json_member(out, "value", o->value);
    json_member(out, "default", def);
    json_member(out, "help", o->help);
    sbuf_adds(out, "}");
}

static void json_command(struct sbuf *out, const struct cli_command *m) {
    sbuf_adds(out, "{\"name\":");
    sbuf_json_str(out, m->name, strlen(m->name));
    json_member(out, "group", group_titles[m->group]);
    json_member(out, "arguments", m->args);
    json_member(out, "summary", m->summary);
    json_member(out, "help", m->help);
    json_member(out, "examples", m->examples);
    sbuf_adds(out, ",\"options\":[");
    for (const struct cli_option *o = m->options; o && o->name; o++)
        json_option(out, o, NULL);
    for (int k = 0; k < CONF_KEYS; k++) {
        const struct conf_setting *s = &conf_settings[k];
        struct cli_option o = { .name = s->name, .value = s->value, .help = s->help };
        if (s->roles & role_of(m))
            json_option(out, &o, s->def);
    }
    for (int i = m->main ? 1 : 0; i < 2; i++)
        json_option(out, &shared_options[i], NULL);
    sbuf_adds(out, "]}");
}

void cli_help_json(FILE *f, const struct cli_command *cmd) {
    struct sbuf out = { 0 };
    if (cmd) {
        json_command(&out, cmd);
    } else {
        sbuf_adds(&out, "{\"commands\":[");
        for (const struct cli_command *m = cli_commands; m->name; m++) {
            sbuf_adds(&out, m == cli_commands ? "" : ",");
            json_command(&out, m);
        }
        sbuf_adds(&out, "]}");
    }
    fprintf(f, "%s\n", sbuf_str(&out));
    sbuf_free(&out);
}

/* ---- Markdown ---- */

static void markdown_option(FILE *f, const struct cli_option *o) {
    fputs("- `", f);
    if (o->letter)
        fprintf(f, "-%c`, `", o->letter);
    fprintf(f, "--%s%s%s`: %s\n", o->name, o->value ? " " : "", o->value ? o->value : "", o->help);
}

void cli_markdown(FILE *f) {
    fprintf(f,
            "# The command line\n\n<!-- Made by `braid help --markdown`. -->\n\n%s\n\n"
            "Data goes to stdout, everything else to stderr; colour and progress bars only on a\n"
            "terminal (`NO_COLOR` is respected). %s\n",
            about, codes);
    for (int g = 0; g < HELP_COUNT; g++) {
        fprintf(f, "\n## %s\n", group_titles[g]);
        for (const struct cli_command *m = cli_commands; m->name; m++) {
            if ((int)m->group != g)
                continue;
            fprintf(f, "\n### braid %s\n\n`braid %s [OPTION…]%s%s`: %s.\n", m->name, m->name,
                    *m->args ? " " : "", m->args, m->summary);
            if (m->help)
                fprintf(f, "\n%s\n", m->help);
            fputc('\n', f);
            cli_each_option(m, markdown_option, f);
            if (m->examples)
                fprintf(f, "\n```sh\n%s\n```\n", m->examples);
        }
    }
}

/* ---- manual page ---- */

/* Text of a man(7) page: backslashes and hyphens as themselves, no line that begins with a dot. */
static void man_text(FILE *f, const char *s) {
    bool start = true;
    for (; *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            fputs("\\&", f);
        if (*s == '\\' || *s == '-')
            fputc('\\', f);
        fputc(*s == '\\' ? 'e' : *s, f);
        start = *s == '\n';
    }
}

static void man_option(FILE *f, const struct cli_option *o) {
    fputs(".TP\n\\fB", f);
    if (o->letter)
        fprintf(f, "\\-%c\\fR, \\fB", o->letter);
    fputs("\\-\\-", f);
    man_text(f, o->name);
    fputs("\\fR", f);
    if (o->value)
        fprintf(f, " \\fI%s\\fR", o->value);
    fputc('\n', f);
    man_text(f, o->help);
    fputc('\n', f);
}

static void man_command(FILE *f, const struct cli_command *m) {
    fprintf(f, ".SS braid %s [OPTION…]%s%s\n", m->name, *m->args ? " " : "", m->args);
    man_text(f, m->summary);
    fputs(".\n", f);
    if (m->help) {
        fputs(".PP\n", f);
        man_text(f, m->help);
        fputc('\n', f);
    }
    cli_each_option(m, man_option, f);
    if (m->examples) {
        fputs(".PP\nExamples:\n.PP\n.nf\n", f);
        man_text(f, m->examples);
        fputs("\n.fi\n", f);
    }
}

/* Sections of settings: what the environment may say. */
static void man_environment(FILE *f) {
    fputs(".SH ENVIRONMENT\nEach setting of the server and of clients may also stand in the "
          "environment: \\fB\\-\\-segment\\-bytes\\fR is \\fBBRAID_SEGMENT_BYTES\\fR. "
          "\\fBNO_COLOR\\fR "
          "turns colour off.\n",
          f);
}

void cli_man(FILE *f) {
    fputs(".\\\" Made by `braid help --man`.\n.TH BRAID 1\n.SH NAME\nbraid \\- stream processing "
          "with shared work\n.SH SYNOPSIS\n\\fBbraid\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR…] "
          "[\\fIARGUMENT\\fR…]\n.SH DESCRIPTION\n",
          f);
    man_text(f, about);
    fputs("\n.PP\nData goes to stdout, everything else to stderr.\n", f);
    for (int g = 0; g < HELP_COUNT; g++) {
        fputs(".SH \"", f);
        for (const char *p = group_titles[g]; *p; p++)
            fputc(*p >= 'a' && *p <= 'z' ? *p - 32 : *p, f);
        fputs("\"\n", f);
        for (const struct cli_command *m = cli_commands; m->name; m++)
            if ((int)m->group == g)
                man_command(f, m);
    }
    man_environment(f);
    fputs(".SH \"EXIT STATUS\"\n", f);
    man_text(f, codes);
    fputc('\n', f);
}
