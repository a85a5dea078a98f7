/* The command line: one table describes every command; from it come parsing, `--help`, `braid
 * help`, docs/cli.md and the "did you mean".
 *
 * Rules for every command: data goes to stdout, everything else to stderr; `--json` prints JSON
 * with stable keys; colour only on a terminal and without NO_COLOR. A command returns 0 or a
 * negative enum err_code, whose negation is the exit code: 1 the system failed, 2 the input is
 * wrong, 3 not found, 4 conflict, 5 server not reachable. One thread. */
#ifndef BRAID_CLI_H
#define BRAID_CLI_H
#include "engine/arena.h"
#include "engine/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_type {           /* C type at `offset` of the command's options */
                CLI_FLAG, /* bool */
                CLI_TEXT, /* const char *; NULL when not given */
                CLI_INT,  /* int64_t, also "1k" "5M"; CLI_UNSET when not given */
                CLI_REAL, /* double; NAN when not given */
                CLI_LIST, /* struct cli_list: may be given several times */
                CLI_MS,   /* int64_t: an RFC 3339 time or ms since 1970; CLI_UNSET */
};
#define CLI_UNSET INT64_MIN

struct cli_list {
    int n;
    const char **v;
};
struct cli_option {
    const char *name; /* without the dashes; NULL ends the table */
    char letter;      /* 0: none */
    enum cli_type type;
    const char *value; /* name of its value in the help */
    size_t offset;
    double min, max; /* CLI_INT, CLI_REAL: bounds when min < max */
    const char *help;
};

struct cli;
enum cli_group { HELP_LOCAL, HELP_SERVER, HELP_FLOWS, HELP_STREAMS, HELP_OTHER, HELP_COUNT };
struct cli_command {
    const char *name;
    enum cli_group group;
    const char *args;                 /* synopsis of its arguments; "" */
    const char *summary;              /* one line */
    const char *help;                 /* paragraphs for --help, docs/cli.md; may be NULL */
    const char *examples;             /* lines of commands; may be NULL */
    int min, max;                     /* number of arguments; max -1: any */
    bool client;                      /* talks to a server: takes --url */
    const struct cli_option *options; /* may be NULL */
    size_t options_size;
    int (*run)(struct cli *c);
    /* Instead of min to run: parses its own arguments (`up`). */
    int (*main)(int argc, char **argv);
};

struct cli {
    const struct cli_command *command;
    bool json;
    const char *url; /* of the server, for client commands (conf.h) */
    int nargs;
    const char *const *args;
    const void *opt;    /* the command's options */
    struct arena arena; /* lives as long as the command */
};
#define CLI_URL "http://127.0.0.1:7070"

/* All commands, in the order of `braid help`; ends with name NULL (commands.c). */
extern const struct cli_command cli_commands[];
const struct cli_command *cli_find(const char *name);

/* Runs `braid ARG…`; returns the exit code. */
int cli_main(int argc, char **argv);

/* ---- for commands ---- */
/* Print to stderr: "file:line:col: /pointer: text", and the line of the file with a caret when it
 * can be read; with --json an object {"error":{…}}. Return the (first) code. */
int cli_error(const struct cli *c, const struct err *e);
int cli_errors(const struct cli *c, const struct errs *es);
void cli_warnings(const struct cli *c, const struct errs *es);
/* A remark for people on stderr; nothing with --json. */
void cli_note(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Wrong use of the command line: err_set(ERR_INPUT) + cli_error + a hint at --help. */
int cli_usage(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_unknown(const struct cli *c, const char *name); /* no such command: ERR_INPUT, told */
/* Help of one command, or the list of all; as JSON (NULL: all); as Markdown for docs/cli.md. */
void cli_help(FILE *f, const struct cli_command *cmd);
void cli_help_json(FILE *f, const struct cli_command *cmd);
void cli_help_all(FILE *f);
void cli_markdown(FILE *f);
void cli_man(FILE *f); /* docs/braid.1 */
/* Every option of a command: its own, its settings, and those that all have. */
typedef void cli_option_fn(FILE *f, const struct cli_option *o);
void cli_each_option(const struct cli_command *cmd, cli_option_fn *each, FILE *f);
/* The completion script of a shell (completion.c); false: not one of bash, zsh, fish. */
bool cli_completion(FILE *f, const char *shell);

/* Whole files, for dataflow texts: "-" is stdin. Memory of `a`. ERR_NOTFOUND, ERR_SYSTEM, ERR_INPUT
 * (over `max` bytes). */
int cli_read_file(const char *name, size_t max, struct arena *a, char **data, size_t *len,
                  struct err *e);

/* What the terminal can do. */
bool term_color(int fd);
bool term_is(int fd);
enum { TERM_WIDTH_MIN = 40 };
int term_width(int fd); /* columns, at least TERM_WIDTH_MIN; 100 when it is no terminal */
int term_height(int fd);
#endif
