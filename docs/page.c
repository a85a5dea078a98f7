#include "docs/page.h"
#include "engine/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_words[] = {
    [PARAM_SEMANTIC] = "semantic",
    [PARAM_ATTACH] = "attach",
    [PARAM_PHYSICAL] = "physical",
    [PARAM_LABEL] = "label",
};

void page_cell(struct sbuf *b, const char *s) {
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
    sbuf_adds(b, p->type == PT_ENUM ? "one of" : param_type_texts[p->type].name);
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
void page_params(struct sbuf *b, const struct op_desc *d) {
    if (!d->params || !d->params->name) {
        sbuf_adds(b, "No parameters.\n");
        return;
    }
    sbuf_adds(b, "| parameter | type | default | class | meaning |\n|---|---|---|---|---|\n");
    for (const struct param *p = d->params; p->name; p++) {
        sbuf_printf(b, "| `%s` | ", p->name);
        add_type(b, p);
        sbuf_adds(b, " | ");
        if (p->def) {
            sbuf_adds(b, "`");
            page_cell(b, p->def);
            sbuf_adds(b, "`");
        } else {
            sbuf_adds(b, p->flags & PARAM_OPTIONAL ? "–" : "**required**");
        }
        sbuf_printf(b, " | %s%s%s | ", class_words[p->class],
                    p->flags & PARAM_SECRET ? ", secret" : "",
                    p->flags & PARAM_LIVE ? ", live" : "");
        page_cell(b, p->doc);
        sbuf_adds(b, " |\n");
    }
}
static int differs(const char *path, const struct sbuf *b) {
    FILE *f = fopen(path, "rb");
    char *old = malloc(b->len + 1);
    bool same =
        f && old && fread(old, 1, b->len + 1, f) == b->len && memcmp(old, b->p, b->len) == 0;
    if (f)
        fclose(f);
    free(old);
    if (!same)
        printf("%s is not what the code says: run `make docs`\n", path);
    return same ? 0 : 1;
}
int page_end(const char *path, struct sbuf *b, bool check) {
    int rc;
    while (b->len > 1 && b->p[b->len - 1] == '\n' && b->p[b->len - 2] == '\n')
        b->len--;
    if (check) {
        rc = differs(path, b);
    } else {
        FILE *f = fopen(path, "wb");
        rc = !f || fwrite(b->p, 1, b->len, f) != b->len;
        if ((f && fclose(f) != 0) || rc) {
            perror(path);
            rc = 1;
        }
    }
    sbuf_free(b);
    return rc;
}
