/* braid top: what runs now. Two looks at the server's counters give the rates between them. */
#include "cluster/client.h"
#include "cluster/cmd.h"
#include "cluster/look.h"
#include "cluster/table.h"
#include "engine/clock.h"
#include "engine/num.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct screen {
    struct cli *c;
    const struct look *a, *b;
    double seconds;
    struct arena arena;
    int nlines;
    struct look_line *lines;
};

static atomic_bool interrupted;
static void on_interrupt(int sig) {
    (void)sig;
    atomic_store(&interrupted, true);
}

/* ---- figures ---- */

static double per_second(const struct screen *s, int64_t now, int64_t before) {
    return now > before ? (double)(now - before) / s->seconds : 0;
}

static int by_busy(const void *a, const void *b) {
    const struct look_line *x = a, *y = b;
    if (x->busy != y->busy)
        return x->busy < y->busy ? 1 : -1;
    return strcmp(x->label, y->label);
}

/* ---- drawing ---- */

static void draw_head(const struct screen *s, bool color) {
    const struct metrics *m = &s->b->metrics;
    char up[UNIT_MAX], rss[UNIT_MAX], cpu[UNIT_MAX];
    double used = s->a ? per_second(s, m->cpu_ms, s->a->metrics.cpu_ms) / 1000 : 0;
    printf("%sbraid top%s  %s  up %s  cpu %s  memory %s\n", style_on(STYLE_BOLD, color),
           style_off(color), s->c->url,
           unit_span(up, (double)(clock_wall_ms() - m->start_ms) / 1000), unit_percent(cpu, used),
           unit_bytes(rss, (double)m->resident));
    printf("%lld dataflow%s, %lld tasks run for %lld submitted (sinks apart)\n\n",
           (long long)m->dataflows, m->dataflows == 1 ? "" : "s", (long long)m->running,
           (long long)m->submitted);
}

static const struct jnode *find_flow(const struct look *l, const char *name) {
    const struct jnode *d = l ? json_list(l->flows.root, "dataflows") : NULL;
    while (d && strcmp(json_text(d, "name"), name) != 0)
        d = d->next;
    return d;
}

static void add_rate(struct table *t, double v) {
    char buf[UNIT_MAX];
    table_add(t, v > 0 ? unit_count(buf, v < 10 ? v : (double)(int64_t)(v + 0.5)) : "-");
    table_style(t, v > 0 ? STYLE_PLAIN : STYLE_DIM);
}

/* Draws at most `max` dataflows; returns how many lines it took. */
static int draw_flows(const struct screen *s, int max, int width, bool color) {
    struct table t;
    int n = 0, left = 0;
    table_begin(&t, "<dataflow|<state|>rows in/s|>rows out/s|>tasks|>shared|<");
    for (const struct jnode *d = json_list(s->b->flows.root, "dataflows"); d; d = d->next) {
        if (n == max) {
            left++;
            continue;
        }
        n++;
        const struct jnode *was = find_flow(s->a, json_text(d, "name"));
        const char *state = json_text(d, "state");
        table_add(&t, json_text(d, "name"));
        table_style(&t, STYLE_BOLD);
        table_add(&t, state);
        table_style(&t, strcmp(state, "RUNNING") == 0 ? STYLE_GREEN : STYLE_RED);
        add_rate(&t, per_second(s, json_int(d, "rows_in"), json_int(was, "rows_in")));
        add_rate(&t, per_second(s, json_int(d, "rows_out"), json_int(was, "rows_out")));
        table_addf(&t, "%lld", (long long)json_int(d, "tasks"));
        table_addf(&t, "%lld", (long long)json_int(d, "shared"));
        table_add(&t, json_text(d, "reason"));
    }
    table_print(&t, stdout, width, color);
    table_end(&t);
    if (left)
        printf("… and %d more\n", left);
    return n + 1 + (left > 0);
}

static void draw_tasks(const struct screen *s, int max, int width, bool color) {
    struct table t;
    char buf[UNIT_MAX];
    table_begin(&t, "<task|>rows in/s|>rows out/s|>a row|>core|>rejected|>lag|>users");
    for (int i = 0; i < s->nlines && i < max; i++) {
        const struct look_line *l = &s->lines[i];
        const char *id = strrchr(l->label, '/');
        bool plain = id && strcmp(id + 1, l->type) == 0; /* named after its type */
        table_addf(&t, "%s%s%s%s", l->label, plain ? "" : " (", plain ? "" : l->type,
                   plain ? "" : ")");
        table_style(&t, STYLE_BOLD);
        add_rate(&t, l->in);
        add_rate(&t, l->out);
        table_add(&t, l->ns_row > 0 ? unit_ns(buf, l->ns_row) : "-");
        table_add(&t, unit_percent(buf, l->busy));
        table_add(&t, l->rejected ? unit_exact(buf, (uint64_t)l->rejected) : "-");
        table_style(&t, l->rejected ? STYLE_RED : STYLE_DIM);
        table_add(&t, l->lag >= 0 ? unit_exact(buf, (uint64_t)l->lag) : "");
        table_addf(&t, "%s%d", l->nusers > 1 ? "×" : "", l->nusers);
        table_style(&t, l->nusers > 1 ? STYLE_GREEN : STYLE_DIM);
    }
    table_print(&t, stdout, width, color);
    table_end(&t);
    if (s->nlines > max)
        printf("… and %d more\n", s->nlines - max);
}

static void draw(struct screen *s, bool live) {
    bool color = term_color(STDOUT_FILENO);
    int width = cmd_width(STDOUT_FILENO), height = live ? term_height(STDOUT_FILENO) - 7 : 1 << 20;
    if (live)
        fputs("\33[H\33[J", stdout);
    draw_head(s, color);
    int flows = draw_flows(s, height / 3 > 3 ? height / 3 : 3, width, color);
    putchar('\n');
    draw_tasks(s, height - flows > 3 ? height - flows : 3, width, color);
    fflush(stdout);
}

static void print_json(const struct screen *s) {
    struct sbuf o = { 0 };
    char num[NUM_F64_MAX_LEN];
    sbuf_adds(&o, "{\"tasks\":[");
    for (int i = 0; i < s->nlines; i++) {
        const struct look_line *l = &s->lines[i];
        const double v[] = { l->in, l->out, l->ns_row, l->busy };
        static const char *const names[] = { "rows_in_s", "rows_out_s", "ns_per_row", "core" };
        sbuf_adds(&o, i ? ",{\"task\":" : "{\"task\":");
        sbuf_json_str(&o, l->label, strlen(l->label));
        sbuf_printf(&o, ",\"type\":\"%s\"", l->type);
        for (int k = 0; k < 4; k++) {
            sbuf_printf(&o, ",\"%s\":", names[k]);
            sbuf_add(&o, num, (size_t)num_write_f64(num, v[k]));
        }
        sbuf_printf(&o, ",\"rejected\":%lld,\"late\":%lld,\"lag\":%lld,\"dataflows\":[",
                    (long long)l->rejected, (long long)l->late, (long long)l->lag);
        for (const struct jnode *u = l->users; u; u = u->next) {
            sbuf_adds(&o, u == l->users ? "" : ",");
            sbuf_json_canonical(&o, u);
        }
        sbuf_adds(&o, "]}");
    }
    sbuf_adds(&o, "]}");
    puts(sbuf_str(&o));
    sbuf_free(&o);
}

static void show(struct cli *c, const struct look *a, const struct look *b, bool live) {
    struct screen s = { .c = c, .a = a, .b = b };
    s.seconds = (double)(b->metrics.taken_ns - a->metrics.taken_ns) / 1e9;
    s.seconds = s.seconds > 0 ? s.seconds : 1e-9;
    s.lines = look_lines(a, b, &s.arena, &s.nlines);
    qsort(s.lines, (size_t)s.nlines, sizeof *s.lines, by_busy);
    if (c->json)
        print_json(&s);
    else
        draw(&s, live);
    arena_free(&s.arena);
}

static void pause_ms(int64_t ms) {
    struct timespec t = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };
    nanosleep(&t, NULL); /* a signal ends it early */
}

static int watch(struct cli *c, struct client *cl, int64_t interval, int64_t count, bool live,
                 struct errs *es) {
    struct look a, b = { 0 };
    int rc = look_take(cl, &a, es);
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        pause_ms(i == 0 && live && interval > 300 ? 300 : interval);
        if (atomic_load(&interrupted))
            break;
        rc = look_take(cl, &b, es);
        if (rc < 0)
            break;
        show(c, &a, &b, live);
        look_free(&a);
        a = b;
        b = (struct look){ 0 };
    }
    look_free(&a);
    look_free(&b);
    return rc;
}

int cmd_top(struct cli *c) {
    const struct top_options *o = c->opt;
    struct client *cl;
    struct errs es = { 0 };
    int rc = cmd_connect(c, &cl);
    if (rc < 0)
        return rc;
    bool live = term_is(STDOUT_FILENO) && !c->json && o->n != 1; /* one screen stays */
    int64_t count = o->n != CLI_UNSET ? o->n : live ? INT64_MAX : 1;
    struct sigaction sa = { .sa_handler = on_interrupt };
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    if (live)
        fputs("\33[?1049h\33[?25l\33[?7l", stdout); /* another screen, no cursor, lines cut */
    rc = watch(c, cl, o->interval == CLI_UNSET ? 1000 : o->interval, count, live, &es);
    if (live) {
        fputs("\33[?7h\33[?25h\33[?1049l", stdout);
        fflush(stdout);
    }
    if (rc < 0)
        cli_errors(c, &es);
    errs_free(&es);
    client_close(cl);
    return rc;
}
