/* braid test: unit tests of dataflows. */
#include "cluster/cmd.h"
#include "cluster/flowtest.h"
#include "cluster/table.h"
#include "cluster/text.h"
#include <string.h>
#include <unistd.h>

enum { LINES_SHOWN = 40, AROUND = 2 /* fitting rows shown before and after a difference */ };

struct testing {
    struct cli *c;
    const struct test_options *o;
    struct sbuf json;
    int passed, failed, files;
};

/* ---- for people ---- */

static bool near_difference(const struct flowtest_failure *f, uint32_t i) {
    uint32_t lo = i > AROUND ? i - AROUND : 0, hi = i + AROUND;
    for (uint32_t k = lo; k <= hi && k < f->nlines; k++)
        if (f->lines[k].sign != ROWDIFF_SAME)
            return true;
    return false;
}

static void print_line(const struct rowdiff_line *l, bool color) {
    static const enum style styles[] = { STYLE_DIM, STYLE_RED, STYLE_GREEN };
    printf("      %s%c %s%s\n", style_on(styles[l->sign], color), " -+"[l->sign], l -> text,
           style_off(color));
    if (l->note)
        printf("        %s%s%s\n", style_on(STYLE_YELLOW, color), l->note, style_off(color));
}

static void print_failure(const struct testing *t, const struct flowtest *ft,
                          const struct flowtest_failure *f, bool color) {
    int shown = 0, left = 0;
    (void)t;
    printf("    %s:%d:%d: ", ft->file, f->line, f->col);
    if (f->step)
        printf("step %d: ", f->step);
    printf("%s%s\n", f->what, f->single ? " (fed row by row; all at once it passes)" : "");
    for (uint32_t i = 0; i < f->nlines; i++) {
        if (!near_difference(f, i))
            continue;
        if (shown < LINES_SHOWN)
            print_line(&f->lines[i], color);
        else
            left++;
        shown++;
    }
    if (left)
        printf("      … and %d lines more (--json prints all)\n", left);
}

static void print_case(const struct testing *t, const struct flowtest *ft,
                       const struct flowtest_case *fc, const struct flowtest_result *r) {
    bool color = term_color(STDOUT_FILENO);
    if (r->first || !t->o->quiet)
        printf("%s%s%s %s: %s\n", style_on(r->first ? STYLE_RED : STYLE_GREEN, color),
               r->first ? "FAIL" : "ok  ", style_off(color), ft->file, fc->name);
    for (const struct flowtest_failure *f = r->first; f; f = f->next)
        print_failure(t, ft, f, color);
}

/* ---- JSON ---- */

static void lines_json(struct sbuf *o, const struct flowtest_failure *f, enum rowdiff_sign sign,
                       const char *key) {
    int n = 0;
    sbuf_printf(o, ",\"%s\":[", key);
    for (uint32_t i = 0; i < f->nlines; i++)
        if (f->lines[i].sign == sign) {
            sbuf_adds(o, n++ ? "," : "");
            text_json(o, f->lines[i].text);
        }
    sbuf_adds(o, "]");
}

static void case_json(struct testing *t, const struct flowtest_case *fc,
                      const struct flowtest_result *r, bool first) {
    struct sbuf *o = &t->json;
    sbuf_adds(o, first ? "{\"name\":" : ",{\"name\":");
    text_json(o, fc->name);
    sbuf_printf(o, ",\"status\":\"%s\",\"records\":%llu,\"ns\":%lld,\"failures\":[",
                r->first ? "failed" : "passed", (unsigned long long)r->records, (long long)r->ns);
    for (const struct flowtest_failure *f = r->first; f; f = f->next) {
        sbuf_printf(o, "%s{\"line\":%d,\"col\":%d,\"step\":%d,\"row_by_row\":%s,\"text\":",
                    f == r->first ? "" : ",", f->line, f->col, f->step,
                    f->single ? "true" : "false");
        text_json(o, f->what);
        lines_json(o, f, ROWDIFF_MISSING, "missing");
        lines_json(o, f, ROWDIFF_EXTRA, "extra");
        sbuf_adds(o, "}");
    }
    sbuf_adds(o, "]}");
}

/* ---- files ---- */

static bool chosen(const struct testing *t, const struct flowtest_case *fc) {
    return !t->o->only || strstr(fc->name, t->o->only);
}

static int test_file(struct testing *t, const char *name, struct errs *es) {
    struct arena a = { 0 };
    struct flowtest ft;
    int n = 0, rc = flowtest_load(&ft, name, &a, es);
    sbuf_adds(&t->json, t->files++ ? ",{\"file\":" : "{\"file\":");
    text_json(&t->json, name);
    sbuf_adds(&t->json, ",\"cases\":[");
    for (int i = 0; i < ft.ncases && rc == 0; i++) {
        struct arena run = { 0 };
        struct flowtest_result r;
        if (!chosen(t, &ft.cases[i]))
            continue;
        rc = flowtest_run(&ft, i, &r, &run, es);
        if (rc == 0) {
            *(r.first ? &t->failed : &t->passed) += 1;
            case_json(t, &ft.cases[i], &r, n++ == 0);
            if (!t->c->json)
                print_case(t, &ft, &ft.cases[i], &r);
        }
        arena_free(&run);
    }
    sbuf_adds(&t->json, "]}");
    arena_free(&a);
    return rc;
}

int cmd_test(struct cli *c) {
    struct testing t = { .c = c, .o = c->opt };
    struct errs es = { 0 };
    int rc = 0;
    sbuf_adds(&t.json, "{\"files\":[");
    for (int i = 0; i < c->nargs; i++) {
        int rc1 = test_file(&t, c->args[i], &es);
        rc = rc ? rc : rc1;
    }
    if (rc < 0)
        cli_errors(c, &es);
    else if (t.passed + t.failed == 0)
        rc = cli_usage(c, "no case of these files has '%s' in its name", t.o->only);
    if (c->json && es.n == 0)
        printf("%s],\"passed\":%d,\"failed\":%d}\n", sbuf_str(&t.json), t.passed, t.failed);
    cli_note(c, "%d passed, %d failed", t.passed, t.failed);
    sbuf_free(&t.json);
    errs_free(&es);
    return rc < 0 ? rc : t.failed ? ERR_SYSTEM : 0;
}
