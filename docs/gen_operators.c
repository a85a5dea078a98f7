/* Writes docs/operators.md from the operators' descriptors: `gen_operators FILE`, or with `--check`
 * before FILE ends with 1 when FILE is not what it would write. */
#include "docs/page.h"
#include "operators/all.h"
#include <stdio.h>
#include <string.h>

static const char *const memory_words[] = {
    [MEMORY_NONE] = "none", [MEMORY_BOUNDED] = "bounded", [MEMORY_UNBOUNDED] = "unbounded"
};

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
    page_params(b, d);
    sbuf_adds(b, "\n");
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
}
int main(int argc, char **argv) {
    bool check = argc == 3 && strcmp(argv[1], "--check") == 0;
    if (argc != 2 && !check) {
        fprintf(stderr, "usage: gen_operators [--check] FILE\n");
        return 2;
    }
    struct sbuf b = { 0 };
    operators_init();
    add_page(&b);
    return page_end(argv[argc - 1], &b, check);
}
