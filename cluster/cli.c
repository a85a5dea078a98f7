#include "cluster/cli.h"
#include "cluster/conf.h"
#include "cluster/text.h"
#include "engine/json.h"
#include "engine/num.h"
#include "engine/op.h"
#include "operators/all.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct cli_option common[] = {
    { .name = "json", .type = CLI_FLAG, .help = "print JSON with stable keys" },
    { .name = "help", .letter = 'h', .type = CLI_FLAG, .help = "tell about this command" },
    { 0 }
};

const struct cli_command *cli_find(const char *name) {
    for (const struct cli_command *m = cli_commands; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

/* ---- arguments ---- */

struct parse {
    struct cli *c;
    const struct cli_command *cmd;
    char *opt;
    const char **args;
    bool help;
    struct conf conf;
};

static const struct cli_option *find_option(const struct cli_option *o, const char *name,
                                            size_t len) {
    for (; o && o->name; o++)
        if (len == 1 ? o->letter == name[0] : strncmp(o->name, name, len) == 0 && !o->name[len])
            return o;
    return NULL;
}

static const char *nearest_option(const struct cli_command *cmd, const char *name) {
    const char *names[64];
    int n = 0;
    for (const struct cli_option *o = cmd->options; o && o->name && n < 60; o++)
        names[n++] = o->name;
    for (const struct cli_option *o = common; o->name; o++)
        names[n++] = o->name;
    for (int k = 0; k < CONF_KEYS && cmd->client; k++)
        if (conf_settings[k].roles & CONF_CLIENT)
            names[n++] = conf_settings[k].name;
    return err_nearest(name, names, n);
}

/* An integer, or a decimal number with a suffix k, M or G ("1.5M"). */
static int parse_int(const char *s, int64_t *v) {
    size_t len = strlen(s);
    double unit = 1, d;
    if (len > 1 && strchr("kMG", s[len - 1])) {
        unit = s[len - 1] == 'k' ? 1e3 : s[len - 1] == 'M' ? 1e6 : 1e9;
        len--;
    }
    if (unit == 1)
        return num_i64_whole(s, s + len, v);
    if (num_f64_whole(s, s + len, &d) < 0 || fabs(d * unit) > 9e18 || d * unit != floor(d * unit))
        return -1;
    *v = (int64_t)(d * unit);
    return 0;
}

static int bad_value(struct parse *p, const struct cli_option *o, const char *text,
                     const char *what) {
    return cli_usage(p->c, "--%s wants %s, not '%s'", o->name, what, text);
}

static int out_of_bounds(struct parse *p, const struct cli_option *o, double v) {
    if (o->min >= o->max || (v >= o->min && v <= o->max))
        return 0;
    char lo[NUM_F64_MAX_LEN], hi[NUM_F64_MAX_LEN];
    lo[num_write_f64(lo, o->min)] = '\0';
    hi[num_write_f64(hi, o->max)] = '\0';
    return cli_usage(p->c, "--%s must be between %s and %s", o->name, lo, hi);
}

static void list_add(struct arena *a, struct cli_list *l, const char *text) {
    if ((l->n & (l->n - 1)) == 0) {
        const char **v = ARENA_ARRAY(a, const char *, l->n ? l->n * 2 : 1);
        if (l->n)
            memcpy(v, l->v, (size_t)l->n * sizeof *v);
        l->v = v;
    }
    l->v[l->n++] = text;
}

static int set_option(struct parse *p, const struct cli_option *o, const char *text) {
    void *to = p->opt + o->offset;
    switch (o->type) {
    case CLI_FLAG:
        *(bool *)to = true;
        return 0;
    case CLI_TEXT:
        *(const char **)to = text;
        return 0;
    case CLI_LIST:
        list_add(&p->c->arena, to, text);
        return 0;
    case CLI_INT:
        if (parse_int(text, to) < 0)
            return bad_value(p, o, text, "an integer");
        return out_of_bounds(p, o, (double)*(int64_t *)to);
    case CLI_REAL:
        if (num_f64_whole(text, text + strlen(text), to) < 0)
            return bad_value(p, o, text, "a number");
        return out_of_bounds(p, o, *(double *)to);
    case CLI_MS:
        if (num_i64_whole(text, text + strlen(text), to) < 0 &&
            time_parse(text, text + strlen(text), to) < 0)
            return bad_value(p, o, text, "a time (2015-02-01T00:00:00Z, or ms since 1970)");
        return 0;
    }
    return 0;
}

static void unset_options(struct parse *p) {
    for (const struct cli_option *o = p->cmd->options; o && o->name; o++) {
        if (o->type == CLI_INT || o->type == CLI_MS)
            *(int64_t *)(void *)(p->opt + o->offset) = CLI_UNSET;
        if (o->type == CLI_REAL)
            *(double *)(void *)(p->opt + o->offset) = NAN;
    }
}

/* One option; *used counts the words taken beside argv[0]. */
static int parse_option(struct parse *p, char **argv, int left, int *used) {
    const char *word = argv[0], *eq = NULL;
    bool is_long = word[1] == '-';
    const char *name = word + (is_long ? 2 : 1);
    size_t len = is_long ? strcspn(name, "=") : 1;
    if (is_long && name[len] == '=')
        eq = name + len + 1;
    else if (!is_long && name[1])
        eq = name + 1;
    if (!is_long || len > 1) {
        const struct cli_option *o = find_option(common, name, len);
        if (o && !eq) {
            *(o == common ? &p->c->json : &p->help) = true;
            return 0;
        }
    }
    if (p->cmd->client) {
        struct err e;
        int n = conf_flag(&p->conf, CONF_CLIENT, left, argv, 0, &e);
        if (n < 0)
            return cli_error(p->c, &e);
        *used = n - 1;
        if (n > 0)
            return 0;
        *used = 0;
    }
    const struct cli_option *o = NULL;
    if (!is_long || len > 1)
        o = find_option(p->cmd->options, name, len);
    if (!o) {
        char *bare = arena_strndup(&p->c->arena, name, len);
        const char *near = nearest_option(p->cmd, bare);
        return cli_usage(p->c, "no option '%.*s'%s%s%s", (int)(len + (is_long ? 2 : 1)), word,
                         near ? "; did you mean '--" : "", near ? near : "", near ? "'?" : "");
    }
    if (o->type == CLI_FLAG && eq)
        return cli_usage(p->c, "--%s takes no value", o->name);
    if (o->type != CLI_FLAG && !eq) {
        if (left < 2)
            return cli_usage(p->c, "--%s wants a value: --%s %s", o->name, o->name, o->value);
        eq = argv[1];
        *used = 1;
    }
    return set_option(p, o, eq);
}

static int parse_args(struct parse *p, int argc, char **argv) {
    bool only_args = false;
    int rc = 0;
    for (int i = 0; i < argc && rc == 0; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0) {
            only_args = true;
        } else if (!only_args && argv[i][0] == '-' && argv[i][1]) {
            int used = 0;
            rc = parse_option(p, argv + i, argc - i, &used);
            i += used;
        } else {
            p->args[p->c->nargs++] = argv[i];
        }
    }
    if (rc < 0 || p->help)
        return rc;
    int n = p->c->nargs;
    if (n < p->cmd->min)
        return cli_usage(p->c, "%s is missing", p->cmd->args);
    if (p->cmd->max >= 0 && n > p->cmd->max)
        return cli_usage(p->c, "'%s' is one argument too many", p->args[p->cmd->max]);
    return 0;
}

int cli_unknown(const struct cli *c, const char *name) {
    const char *names[64];
    int n = 0;
    for (const struct cli_command *m = cli_commands; m->name && n < 64; m++)
        names[n++] = m->name;
    const char *near = err_nearest(name, names, n);
    struct err e;
    err_set(&e, ERR_INPUT, "no command '%s'; %s%s%s`braid help` lists all", name,
            near ? "did you mean '" : "", near ? near : "", near ? "'? " : "");
    return cli_error(c, &e);
}

/* Flags, environment and file of settings: where the server is. */
static int settings(struct parse *p) {
    struct err e = ERR_INIT;
    if (!p->cmd->client)
        return 0;
    if (conf_finish(&p->conf, CONF_CLIENT, environ, &e) < 0)
        return cli_error(p->c, &e);
    p->c->url = p->conf.v[CONF_URL].text;
    return 0;
}

static int run_command(struct cli *c, const struct cli_command *cmd, int argc, char **argv) {
    struct parse p = { .c = c, .cmd = cmd };
    c->command = cmd;
    conf_init(&p.conf);
    p.opt = arena_zalloc(&c->arena, cmd->options_size + 16);
    p.args = ARENA_ARRAY(&c->arena, const char *, argc + 1);
    unset_options(&p);
    c->opt = p.opt;
    c->args = p.args;
    int rc = parse_args(&p, argc, argv);
    if (rc == 0 && p.help)
        (c->json ? cli_help_json : cli_help)(stdout, cmd);
    else if (rc == 0 && (rc = settings(&p)) == 0)
        rc = cmd->run(c);
    conf_free(&p.conf);
    if (fflush(stdout) != 0 && rc == 0) {
        struct err e;
        err_errno(&e, errno, "writing to stdout");
        rc = errno == EPIPE ? ERR_SYSTEM : cli_error(c, &e);
    }
    return rc;
}

int cli_main(int argc, char **argv) {
    operators_init();
    struct cli c = { 0 };
    int rc;
    if (argc < 2) {
        cli_help_all(stderr);
        return -ERR_INPUT;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    else if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        word = "version";
    const struct cli_command *cmd = cli_find(word);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        c.json |= strcmp(argv[i], "--json") == 0; /* errors before it are JSON, too */
    if (!cmd)
        rc = cli_unknown(&c, argv[1]);
    else if (cmd->main)
        return cmd->main(argc - 1, argv + 1);
    else
        rc = run_command(&c, cmd, argc - 2, argv + 2);
    arena_free(&c.arena);
    return -rc;
}

/* ---- errors ---- */

/* The line of the file with a caret below the column; a long line shows what is near. */
static void show_place(const struct err *e, bool color) {
    if (!e->file[0] || e->line <= 0)
        return;
    struct arena a = { 0 };
    char *text;
    size_t len;
    if (cli_read_file(e->file, 64 << 20, &a, &text, &len, NULL) == 0 && strcmp(e->file, "-") != 0) {
        const char *p = text, *end = text + len;
        for (int i = 1; i < e->line && p; i++) {
            p = memchr(p, '\n', (size_t)(end - p));
            p = p ? p + 1 : NULL;
        }
        if (p && p < end) {
            const char *nl = memchr(p, '\n', (size_t)(end - p));
            int n = (int)((nl ? nl : end) - p), col = e->col > 0 ? e->col - 1 : 0;
            int wide = term_width(STDERR_FILENO) - 10, from = 0;
            col = col > n ? n : col;
            if (n > wide && col > wide / 2)
                from = col - wide / 2;
            while (from > 0 && ((unsigned char)p[from] & 0xc0) == 0x80)
                from--;
            int show = n - from < wide ? n - from : wide;
            fprintf(stderr, "%6d | ", e->line);
            int pad = 0;
            for (int i = from; i < from + show; i++) {
                unsigned char ch = (unsigned char)p[i];
                fputc(ch < 32 || ch == 127 ? ' ' : ch, stderr);
                pad += i < col && (ch & 0xc0) != 0x80;
            }
            fprintf(stderr, "\n       | %*s%s^%s\n", pad, "", color ? "\33[1;31m" : "",
                    color ? "\33[0m" : "");
        }
    }
    arena_free(&a);
}

static void err_json(struct sbuf *o, const struct err *e) {
    sbuf_adds(o, "{\"file\":");
    text_json(o, e->file);
    sbuf_printf(o, ",\"line\":%d,\"col\":%d,\"pointer\":", e->line, e->col);
    text_json(o, e->pointer);
    sbuf_adds(o, ",\"text\":");
    text_json(o, e->text);
    sbuf_adds(o, "}");
}

static const char *code_word(int code) {
    switch (code) {
    case ERR_INPUT:
        return "input";
    case ERR_NOTFOUND:
        return "notfound";
    case ERR_CONFLICT:
        return "conflict";
    case ERR_UNREACHABLE:
        return "unreachable";
    default:
        return "system";
    }
}

static void print_err(const struct err *e, const char *kind) {
    char buf[2048];
    bool color = term_color(STDERR_FILENO);
    err_format(e, buf, sizeof buf);
    size_t head = strlen(buf) - strlen(e->text);
    fprintf(stderr, "%s%s%.*s%s%s%s\n", color ? "\33[1m" : "", head ? "" : "braid: ", (int)head,
            buf, color ? "\33[0m" : "", kind, buf + head);
    show_place(e, color);
}

static void errors_json(const struct err *v, int n) {
    struct sbuf o = { 0 };
    sbuf_printf(&o, "{\"error\":{\"code\":\"%s\",\"text\":", code_word(v[0].code));
    text_json(&o, v[0].text);
    sbuf_adds(&o, ",\"errors\":[");
    for (int i = 0; i < n; i++) {
        sbuf_adds(&o, i ? "," : "");
        err_json(&o, &v[i]);
    }
    sbuf_adds(&o, "]}}\n");
    fputs(sbuf_str(&o), stderr);
    sbuf_free(&o);
}

int cli_error(const struct cli *c, const struct err *e) {
    fflush(stdout);
    if (c->json)
        errors_json(e, 1);
    else
        print_err(e, "");
    return e->code;
}

int cli_errors(const struct cli *c, const struct errs *es) {
    fflush(stdout);
    if (es->n == 0)
        return ERR_SYSTEM;
    if (c->json) {
        errors_json(es->v, es->n);
        return es->v[0].code;
    }
    for (int i = 0; i < es->n; i++)
        print_err(&es->v[i], "");
    if (es->total > es->n)
        fprintf(stderr, "braid: … and %d more\n", es->total - es->n);
    return es->v[0].code;
}

void cli_warnings(const struct cli *c, const struct errs *es) {
    for (int i = 0; i < es->n && !c->json; i++)
        print_err(&es->v[i], "warning: ");
}

void cli_note(const struct cli *c, const char *fmt, ...) {
    if (c->json)
        return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int cli_usage(const struct cli *c, const char *fmt, ...) {
    struct err e;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&e, ERR_INPUT, "%s: %s", c->command->name, text);
    cli_error(c, &e);
    cli_note(c, "usage: braid %s [OPTION…]%s%s (see braid %s --help)", c->command->name,
             *c->command->args ? " " : "", c->command->args, c->command->name);
    return ERR_INPUT;
}

/* ---- files ---- */

int cli_read_file(const char *name, size_t max, struct arena *a, char **data, size_t *len,
                  struct err *e) {
    bool in = strcmp(name, "-") == 0;
    int fd = in ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int rc = errno == ENOENT || errno == ENOTDIR ? ERR_NOTFOUND : ERR_SYSTEM;
        err_errno(e, errno, "cannot open %s", name);
        if (e)
            e->code = rc;
        return rc;
    }
    struct stat st;
    size_t cap = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size + 1 : 64 << 10;
    struct sbuf b = { 0 };
    int rc = 0;
    for (ssize_t n = 1; n != 0 && rc == 0;) {
        sbuf_reserve(&b, cap);
        n = read(fd, b.p + b.len, cap);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno(e, errno, "cannot read %s", name);
        else
            b.len += (size_t)n;
        if (rc == 0 && b.len > max)
            rc = err_set(e, ERR_INPUT, "%s is larger than %zu MiB", name, max >> 20);
    }
    if (!in)
        close(fd);
    if (rc == 0) {
        *data = arena_strndup(a, b.p ? b.p : "", b.len);
        *len = b.len;
    }
    sbuf_free(&b);
    return rc;
}
