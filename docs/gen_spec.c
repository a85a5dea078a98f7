/* Writes docs/spec.md from docs/spec.in, whose lines `@TABLE` become tables made of what the
 * parsers themselves use: `gen_spec FILE`, or with `--check` before FILE ends with 1 when FILE is
 * not what it would write. Run it from the repository's root. */
#include "docs/page.h"
#include "engine/num.h"
#include "operators/all.h"
#include "planner/spec.h"
#include <stdio.h>
#include <string.h>

#define TEMPLATE "docs/spec.in"

static void add_key_type(struct sbuf *b, const struct spec_key *k) {
    static const char *const names[] = { [J_BOOL] = "boolean",
                                         [J_INT] = "integer",
                                         [J_STR] = "string",
                                         [J_ARR] = "list",
                                         [J_OBJ] = "object" };
    if (k->type == J_INT) {
        sbuf_printf(b, "`%d`", k->max);
        return;
    }
    for (int i = 0; k->words && k->words[i]; i++)
        sbuf_printf(b, "%s`\"%s\"`", i ? ", " : "", k->words[i]);
    if (!k->words)
        sbuf_adds(b, names[k->type]);
    if (k->max)
        sbuf_printf(b, " of 1 … %d %s", k->max, k->type == J_STR ? "bytes" : "entries");
}
static void add_keys(struct sbuf *b, const struct spec_key *k) {
    sbuf_adds(b, "| key | value | | meaning |\n|---|---|---|---|\n");
    for (; k->name; k++) {
        sbuf_printf(b, "| `%s` | ", k->name);
        add_key_type(b, k);
        sbuf_printf(b, " | %s | ", k->required ? "**required**" : "");
        page_cell(b, k->doc);
        sbuf_adds(b, " |\n");
    }
}
static void add_top(struct sbuf *b) {
    add_keys(b, spec_top_keys);
}
static void add_task(struct sbuf *b) {
    add_keys(b, spec_task_keys);
}
static void add_state(struct sbuf *b) {
    page_params(b, &spec_state);
}
static void add_input(struct sbuf *b) {
    add_keys(b, spec_input_keys);
}
static void add_source(struct sbuf *b) {
    page_params(b, ops_find("source"));
}
static void add_sink(struct sbuf *b) {
    page_params(b, ops_find("sink"));
}
static void add_types(struct sbuf *b) {
    sbuf_adds(b, "| type | a value is |\n|---|---|\n");
    for (int i = 0; i < PARAM_TYPES; i++) {
        const struct param_type_text *t = &param_type_texts[i];
        if (!t->example && strstr(t->is, t->name)) /* "string | a string" */
            continue;
        sbuf_printf(b, "| %s | %s", t->name, t->is);
        if (t->example)
            sbuf_printf(b, " such as `%s`", t->example);
        sbuf_printf(b, "%s%s |\n", t->also ? " or " : "", t->also ? t->also : "");
    }
}
static void add_words(struct sbuf *b, const char *const *v, int n) {
    for (int i = 0; i < n && v[i]; i++)
        sbuf_printf(b, "%s`%s`", i ? ", " : "", v[i]);
    sbuf_adds(b, "\n");
}
static void add_field_types(struct sbuf *b) {
    add_words(b, type_names, TYPE_COUNT);
}
static void add_time_units(struct sbuf *b) {
    add_words(b, time_unit_words, TIME_RFC3339 + 1);
}
static void add_units(struct sbuf *b, const struct unit *u, const char *what) {
    sbuf_printf(b, "| unit | %s |\n|---|---|\n", what);
    for (; u->word; u++) {
        char digits[NUM_I64_MAX_LEN];
        if (*u->word)
            sbuf_printf(b, "| `%s` | %.*s |\n", u->word, num_write_i64(digits, u->factor), digits);
    }
}
static void add_durations(struct sbuf *b) {
    add_units(b, duration_units, "ms");
}
static void add_sizes(struct sbuf *b) {
    add_units(b, size_units, "bytes");
}
static void add_limits(struct sbuf *b) {
    sbuf_printf(b,
                "| what | at most |\n|---|---|\n| file | %d MiB |\n| tasks of a dataflow | %d |\n"
                "| entries of all its `inputs` together | %d |\n| fields of a `by` | %d |\n"
                "| named ports of a task | %d |\n",
                SPEC_TEXT_MAX >> 20, SPEC_TASKS_MAX, SPEC_LINKS_MAX, OP_BY_MAX, OP_PORTS_MAX);
}

static const struct {
    const char *line;
    void (*add)(struct sbuf *b);
} tables[] = {
    { "@top", add_top },
    { "@task", add_task },
    { "@input", add_input },
    { "@state", add_state },
    { "@source", add_source },
    { "@sink", add_sink },
    { "@types", add_types },
    { "@field types", add_field_types },
    { "@time units", add_time_units },
    { "@durations", add_durations },
    { "@sizes", add_sizes },
    { "@limits", add_limits },
};
enum { TABLES = sizeof tables / sizeof *tables };

/* -1: a line `@…` that is no table, or a table that the template does not show. */
static int add_page(struct sbuf *b, FILE *in) {
    char line[4096];
    bool shown[TABLES] = { false };
    sbuf_adds(b, "<!-- Made from docs/spec.in and the parsers' tables by `make docs`; edit those. "
                 "-->\n");
    while (fgets(line, sizeof line, in)) {
        int t = 0;
        line[strcspn(line, "\n")] = '\0';
        while (t < TABLES && strcmp(line, tables[t].line) != 0)
            t++;
        if (t < TABLES) {
            tables[t].add(b);
            shown[t] = true;
        } else if (line[0] == '@') {
            fprintf(stderr, "%s: there is no table %s\n", TEMPLATE, line);
            return -1;
        } else {
            sbuf_printf(b, "%s\n", line);
        }
    }
    for (int t = 0; t < TABLES; t++)
        if (!shown[t]) {
            fprintf(stderr, "%s does not show %s\n", TEMPLATE, tables[t].line);
            return -1;
        }
    return 0;
}

int main(int argc, char **argv) {
    bool check = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !check) {
        fprintf(stderr, "usage: gen_spec [--check] FILE\n");
        return 2;
    }
    FILE *in = fopen(TEMPLATE, "rb");
    if (!in) {
        perror(TEMPLATE);
        return 1;
    }
    struct sbuf b = { 0 };
    operators_init();
    int rc = add_page(&b, in);
    fclose(in);
    if (rc == 0)
        return page_end(argv[argc - 1], &b, check);
    sbuf_free(&b);
    return 1;
}
