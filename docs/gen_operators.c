/* Writes docs/operators.md from the operators' descriptors: `gen_operators FILE`, or with `--check`
 * before FILE ends with 1 when FILE is not what it would write. */
#include "engine/json.h"
#include "engine/num.h"
#include "engine/op.h"
#include "operators/all.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_words[] = {
    [PT_BOOL] = "boolean",
    [PT_I64] = "integer",
    [PT_F64] = "number",
    [PT_STR] = "string",
    [PT_ENUM] = "one of",
    [PT_DURATION] = "duration",
    [PT_SIZE] = "size",
    [PT_FIELD] = "field",
    [PT_STRS] = "list of strings",
    [PT_STRMAP] = "object of strings",
    [PT_RANGES] = "object of [low, high]",
    [PT_SCHEMA] = "schema",
    [PT_FILE] = "file",
    [PT_JSON] = "JSON",
    [PT_EXPR] = "expression",
    [PT_EXPRMAP] = "object of expressions",
    [PT_AGGMAP] = "object of aggregates",
    [PT_TIME] = "time field",
};
static const char *const class_words[] = {
    [PARAM_SEMANTIC] = "semantic",
    [PARAM_ATTACH] = "attach",
    [PARAM_PHYSICAL] = "physical",
    [PARAM_LABEL] = "label",
};
static const char *const memory_words[] = {
    [MEMORY_NONE] = "none", [MEMORY_BOUNDED] = "bounded", [MEMORY_UNBOUNDED] = "unbounded"
};

/* A table cell: '|' would end it. */
static void add_cell(struct sbuf *b, const char *s) {
    for (; *s; s++) {
        if (*s == '|')
            sbuf_add(b, "\\", 1);
        sbuf_add(b, *s == '\n' ? " " : s, 1);
    }
}
static void add_bound(struct sbuf *b, const struct param *p, double v) {
    if (p->type == PT_DURATION) {
        char text[32];
        sbuf_add(b, text, (size_t)duration_write(text, (int64_t)v));
    } else {
        char text[NUM_F64_MAX_LEN];
        sbuf_add(b, text, (size_t)num_write_f64(text, v));
    }
}
static void add_type(struct sbuf *b, const struct param *p) {
    sbuf_adds(b, type_words[p->type]);
    if (p->type == PT_ENUM)
        for (int i = 0; p->words[i]; i++)
            sbuf_printf(b, "%s`%s`", i ? ", " : " ", p->words[i]);
    if (p->min < p->max) {
        sbuf_adds(b, ", ");
        add_bound(b, p, p->min);
        sbuf_adds(b, " … ");
        add_bound(b, p, p->max);
    }
}
static void add_params(struct sbuf *b, const struct op_desc *d) {
    if (!d->params || !d->params->name) {
        sbuf_adds(b, "No parameters.\n\n");
        return;
    }
    sbuf_adds(b, "| parameter | type | default | class | meaning |\n|---|---|---|---|---|\n");
    for (const struct param *p = d->params; p->name; p++) {
        sbuf_printf(b, "| `%s` | ", p->name);
        add_type(b, p);
        sbuf_adds(b, " | ");
        if (p->def) {
            sbuf_adds(b, "`");
            add_cell(b, p->def);
            sbuf_adds(b, "`");
        } else {
            sbuf_adds(b, p->flags & PARAM_OPTIONAL ? "–" : "**required**");
        }
        sbuf_printf(b, " | %s%s%s | ", class_words[p->class],
                    p->flags & PARAM_SECRET ? ", secret" : "",
                    p->flags & PARAM_LIVE ? ", live" : "");
        add_cell(b, p->doc);
        sbuf_adds(b, " |\n");
    }
    sbuf_adds(b, "\n");
}
static void add_ports(struct sbuf *b, const char *what, const char *const *ports, bool any,
                      const char *def) {
    sbuf_printf(b, "%s: ", what);
    if (any)
        sbuf_adds(b, "any names");
    else if (!ports)
        sbuf_printf(b, "%s", def);
    else if (!ports[0])
        sbuf_adds(b, "none");
    else
        for (int i = 0; ports[i]; i++)
            sbuf_printf(b, "%s`%s`", i ? ", " : "", ports[i]);
}
static void add_traits(struct sbuf *b, const struct op_desc *d) {
    static const struct {
        unsigned flag;
        const char *text;
    } traits[] = {
        { OP_KEYED, "keyed" },
        { OP_ORDERED, "sensitive to the order of rows" },
        { OP_UNORDERED_INPUTS, "inputs interchangeable" },
        { OP_TIMERS, "needs event time" },
        { OP_SETS_TIME, "sets event time" },
        { OP_EFFECT_EXTERNAL, "acts on the outside: never shared" },
    };
    bool any = d->flags & OP_ANY_PORTS;
    add_ports(b, "Inputs", d->in_ports, any && !(d->flags & OP_SOURCE),
              d->flags & OP_SOURCE ? "none" : "`in`");
    sbuf_adds(b, ". ");
    add_ports(b, "Outputs", d->out_ports, any && !(d->flags & OP_SINK),
              d->flags & OP_SINK ? "none" : "`out`");
    sbuf_printf(b, ". Memory: %s. %s", memory_words[d->memory],
                d->flags & OP_DETERMINISTIC ? "Deterministic" : "Not deterministic");
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++)
        if (d->flags & traits[i].flag)
            sbuf_printf(b, ", %s", traits[i].text);
    sbuf_printf(b, ". Semantics %d.\n\n", d->semantics);
}
static void add_operator(struct sbuf *b, const struct op_desc *d) {
    sbuf_printf(b, "## %s\n\n%s\n\n", d->name, d->doc);
    add_params(b, d);
    add_traits(b, d);
    if (d->example)
        sbuf_printf(b, "```json\n\"config\": %s\n```\n\n", d->example);
}
static void add_page(struct sbuf *b) {
    sbuf_adds(b, "<!-- Made from the descriptors by `make docs`; edit those. -->\n"
                 "# Operators\n\n"
                 "What a task of a [dataflow](spec.md) can be. *Semantic* parameters decide what "
                 "comes out: they are part of a task's signature, so that two tasks are shared "
                 "exactly if these and all above them agree. The others (*attach*, *physical*, "
                 "*label*) do not hinder sharing. `braid operators NAME` shows the same.\n\n");
    for (int i = 0; i < ops_count; i++)
        if (!(ops_all[i]->flags & OP_INNER)) {
            const char *doc = ops_all[i]->doc, *dot = strstr(doc, ". ");
            int len = dot ? (int)(dot - doc) : (int)strcspn(doc, ".");
            sbuf_printf(b, "- [`%s`](#%s): %.*s\n", ops_all[i]->name, ops_all[i]->name, len, doc);
        }
    sbuf_adds(b, "\n");
    for (int i = 0; i < ops_count; i++)
        if (!(ops_all[i]->flags & OP_INNER))
            add_operator(b, ops_all[i]);
    while (b->len > 1 && b->p[b->len - 1] == '\n' && b->p[b->len - 2] == '\n')
        b->len--;
}
static int check(const char *path, const struct sbuf *b) {
    FILE *f = fopen(path, "rb");
    char *old = malloc(b->len + 1);
    bool same =
        f && old && fread(old, 1, b->len + 1, f) == b->len && memcmp(old, b->p, b->len) == 0;
    if (f)
        fclose(f);
    free(old);
    if (!same)
        printf("%s is not what the descriptors say: run `make docs`\n", path);
    return same ? 0 : 1;
}
int main(int argc, char **argv) {
    bool checking = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !checking) {
        fprintf(stderr, "usage: gen_operators [--check] FILE\n");
        return 2;
    }
    struct sbuf b = { 0 };
    operators_init();
    add_page(&b);
    int rc = 0;
    if (checking) {
        rc = check(argv[2], &b);
    } else {
        FILE *f = fopen(argv[1], "wb");
        rc = !f || fwrite(b.p, 1, b.len, f) != b.len;
        if ((f && fclose(f) != 0) || rc) {
            perror(argv[1]);
            rc = 1;
        }
    }
    sbuf_free(&b);
    return rc;
}
