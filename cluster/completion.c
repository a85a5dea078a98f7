/* Completion scripts of shells, from the table of commands. Words that only the server knows come
 * from `braid completion dataflows` and the like, when a key is pressed. */
#include "cluster/cli.h"
#include <string.h>

/* What an argument or a value is completed with. */
enum words {
    WORDS_NONE,
    WORDS_FILES,
    WORDS_FLOWS,
    WORDS_TOPICS,
    WORDS_BOTH,
    WORDS_OPERATORS,
    WORDS_COMMANDS,
    WORDS_SHELLS,
    WORDS_TEMPLATES
};

static enum words arg_words(const struct cli_command *m) {
    if (strcmp(m->name, "operators") == 0)
        return WORDS_OPERATORS;
    if (strcmp(m->name, "new") == 0)
        return WORDS_NONE;
    if (strstr(m->args, "TOPIC"))
        return strstr(m->args, "NAME") ? WORDS_BOTH : WORDS_TOPICS;
    if (strstr(m->args, "NAME"))
        return WORDS_FLOWS;
    if (strstr(m->args, "FILE"))
        return WORDS_FILES;
    if (strstr(m->args, "COMMAND"))
        return WORDS_COMMANDS;
    return strstr(m->args, "SHELL") ? WORDS_SHELLS : WORDS_NONE;
}

static enum words value_words(const struct cli_option *o) {
    if (strcmp(o->name, "topic") == 0)
        return WORDS_TOPICS;
    if (strcmp(o->name, "from") == 0 && strcmp(o->value, "TEMPLATE") == 0)
        return WORDS_TEMPLATES;
    return strstr(o->value, "FILE") || strstr(o->value, "DIR") ? WORDS_FILES : WORDS_NONE;
}

#define WORDS_OF(what) "$(braid completion " what " 2>/dev/null)"

/* The words as a shell finds them; NULL: not by words. */
static const char *words_source(enum words w) {
    static const char *const source[] = {
        [WORDS_FLOWS] = WORDS_OF("dataflows"),
        [WORDS_TOPICS] = WORDS_OF("topics"),
        [WORDS_BOTH] = WORDS_OF("dataflows") " " WORDS_OF("topics"),
        [WORDS_OPERATORS] = "$(braid completion operators)",
        [WORDS_TEMPLATES] = "$(braid completion templates)",
        [WORDS_SHELLS] = "bash zsh fish",
    };
    return w == WORDS_COMMANDS || (size_t)w >= sizeof source / sizeof *source ? NULL : source[w];
}

static void command_names(FILE *f) {
    for (const struct cli_command *m = cli_commands; m->name; m++)
        fprintf(f, "%s%s", m == cli_commands ? "" : " ", m->name);
}

/* ---- bash ---- */

static void bash_option(FILE *f, const struct cli_option *o) {
    if (o->letter)
        fprintf(f, "-%c ", o->letter);
    fprintf(f, "--%s ", o->name);
}

static void bash_words(FILE *f, enum words w) {
    const char *source = words_source(w);
    if (w == WORDS_FILES) {
        fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", f);
    } else if (w == WORDS_COMMANDS) {
        fputs("COMPREPLY=($(compgen -W \"", f);
        command_names(f);
        fputs("\" -- \"$cur\"))", f);
    } else if (source) {
        fprintf(f, "COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))", source);
    } else {
        fputs("COMPREPLY=()", f);
    }
}

static const struct cli_command *now; /* the command whose options are printed: one thread */

static void bash_value(FILE *f, const struct cli_option *o) {
    if (!o->value)
        return;
    fprintf(f, "    '%s --%s'", now->name, o->name);
    if (o->letter)
        fprintf(f, " | '%s -%c'", now->name, o->letter);
    fputs(") ", f);
    bash_words(f, value_words(o));
    fputs("; return ;;\n", f);
}

static void bash(FILE *f) {
    fputs("# bash completion of braid; made by `braid completion bash`\n_braid() {\n"
          "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
          "cmd=${COMP_WORDS[1]}\n"
          "  COMPREPLY=()\n"
          "  if [ \"$COMP_CWORD\" -eq 1 ]; then ",
          f);
    bash_words(f, WORDS_COMMANDS);
    fputs("; return; fi\n  case \"$cmd $prev\" in\n", f);
    for (now = cli_commands; now->name; now++)
        cli_each_option(now, bash_value, f);
    fputs("  esac\n  case $cmd in\n", f);
    for (const struct cli_command *m = cli_commands; m->name; m++) {
        fprintf(f, "    %s) case $cur in\n      -*) COMPREPLY=($(compgen -W \"", m->name);
        cli_each_option(m, bash_option, f);
        fputs("\" -- \"$cur\")) ;;\n      *) ", f);
        bash_words(f, arg_words(m));
        fputs(" ;;\n    esac ;;\n", f);
    }
    fputs("  esac\n}\ncomplete -o filenames -F _braid braid\n", f);
}

/* ---- quoted texts for zsh and fish ---- */

/* Between single quotes; characters of `escape` get a backslash. */
static void quoted(FILE *f, const char *s, const char *escape) {
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", f);
        else if (strchr(escape, *s))
            fprintf(f, "\\%c", *s);
        else
            fputc(*s, f);
    }
}

/* ---- zsh ---- */

static void zsh_action(FILE *f, enum words w) {
    const char *source = words_source(w);
    if (w == WORDS_FILES)
        fputs("_files", f);
    else if (w == WORDS_COMMANDS) {
        fputs("(", f);
        command_names(f);
        fputs(")", f);
    } else if (w == WORDS_SHELLS)
        fputs("(bash zsh fish)", f);
    else if (source)
        fprintf(f, "{compadd -- %s}", source);
    else
        fputs(" ", f);
}

static void zsh_option(FILE *f, const struct cli_option *o) {
    for (int k = o->letter ? 0 : 1; k < 2; k++) {
        fputs(" \\\n      '*", f);
        if (k == 0)
            fprintf(f, "-%c", o->letter);
        else
            fprintf(f, "--%s", o->name);
        fputs("[", f);
        quoted(f, o->help, "[]:\\");
        fputs("]", f);
        if (o->value) {
            fputs(":", f);
            quoted(f, o->value, "[]:\\");
            fputs(":", f);
            zsh_action(f, value_words(o));
        }
        fputs("'", f);
    }
}

static void zsh(FILE *f) {
    fputs("#compdef braid\n# zsh completion of braid; made by `braid completion zsh`\n"
          "_braid() {\n  local -a commands\n  commands=(\n",
          f);
    for (const struct cli_command *m = cli_commands; m->name; m++) {
        fprintf(f, "    '%s:", m->name);
        quoted(f, m->summary, ":\\");
        fputs("'\n", f);
    }
    fputs("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
          "  local cmd=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $cmd in\n",
          f);
    for (const struct cli_command *m = cli_commands; m->name; m++) {
        fprintf(f, "    %s) _arguments", m->name);
        cli_each_option(m, zsh_option, f);
        if (*m->args) {
            fputs(" \\\n      '*:", f);
            quoted(f, m->args, "[]:\\");
            fputs(":", f);
            zsh_action(f, arg_words(m));
            fputs("'", f);
        }
        fputs(" ;;\n", f);
    }
    fputs("  esac\n}\nif [ \"$funcstack[1]\" = _braid ]; then _braid \"$@\"; else compdef _braid "
          "braid; "
          "fi\n",
          f);
}

/* ---- fish ---- */

static void fish_words(FILE *f, enum words w) {
    switch (w) {
    case WORDS_FLOWS:
    case WORDS_BOTH:
        fputs(" -a '(braid completion dataflows 2>/dev/null)'", f);
        if (w == WORDS_FLOWS)
            break;
        fprintf(f, "\ncomplete -c braid -n '__fish_seen_subcommand_from %s'", now->name);
        /* fall through */
    case WORDS_TOPICS:
        fputs(" -a '(braid completion topics 2>/dev/null)'", f);
        break;
    case WORDS_OPERATORS:
        fputs(" -a '(braid completion operators)'", f);
        break;
    case WORDS_TEMPLATES:
        fputs(" -a '(braid completion templates)'", f);
        break;
    case WORDS_SHELLS:
        fputs(" -a 'bash zsh fish'", f);
        break;
    case WORDS_COMMANDS:
        fputs(" -a '", f);
        command_names(f);
        fputs("'", f);
        break;
    default:
        break;
    }
}

static void fish_option(FILE *f, const struct cli_option *o) {
    fprintf(f, "complete -c braid -n '__fish_seen_subcommand_from %s'", now->name);
    if (o->letter)
        fprintf(f, " -s %c", o->letter);
    fprintf(f, " -l %s -d '", o->name);
    for (const char *p = o->help; *p; p++) { /* fish knows \' and \\ within quotes */
        if (*p == '\'' || *p == '\\')
            fputc('\\', f);
        fputc(*p, f);
    }
    fputs("'", f);
    if (o->value) {
        enum words w = value_words(o);
        fputs(w == WORDS_FILES ? " -r -F" : " -x", f);
        fish_words(f, w);
    }
    fputc('\n', f);
}

static void fish(FILE *f) {
    fputs("# fish completion of braid; made by `braid completion fish`\ncomplete -c braid -f\n", f);
    for (now = cli_commands; now->name; now++) {
        fprintf(f, "complete -c braid -n __fish_use_subcommand -a %s -d '", now->name);
        for (const char *p = now->summary; *p; p++) {
            if (*p == '\'' || *p == '\\')
                fputc('\\', f);
            fputc(*p, f);
        }
        fputs("'\n", f);
        enum words w = arg_words(now);
        if (w != WORDS_NONE) {
            fprintf(f, "complete -c braid -n '__fish_seen_subcommand_from %s'", now->name);
            if (w == WORDS_FILES)
                fputs(" -F", f);
            fish_words(f, w);
            fputc('\n', f);
        }
        cli_each_option(now, fish_option, f);
    }
}

bool cli_completion(FILE *f, const char *shell) {
    static const struct {
        const char *name;
        void (*print)(FILE *);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(f);
            return true;
        }
    return false;
}
