/* braid run, braid validate: dataflow files without a server. */
#include "cluster/cmd.h"
#include "cluster/flowfile.h"
#include "cluster/rowfile.h"
#include "cluster/run.h"
#include "cluster/table.h"
#include "cluster/text.h"
#include "engine/clock.h"
#include "planner/canon.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* ---- validate ---- */

static void stage_schema(struct sbuf *o, const struct schema *s) {
    sbuf_adds(o, "{");
    for (int i = 0; s && i < s->n; i++) {
        sbuf_adds(o, i ? "," : "");
        sbuf_json_str(o, s->f[i].name, strlen(s->f[i].name));
        sbuf_printf(o, ":\"%s\"", type_names[s->f[i].type]);
    }
    sbuf_adds(o, "}");
}

static void task_json(struct sbuf *o, const struct spec *s, const struct spec_task *t) {
    const struct spec_stage *last = &s->stages[t->first + t->nstages - 1];
    char sig[33];
    sig_text(last->sig, sig);
    sbuf_printf(o, "{\"id\":\"%s\",\"type\":\"%s\",\"signature\":\"%s\",\"streams\":[", t->id,
                t->op->name, sig);
    for (int k = 0; k < last->nout && !(last->op->flags & OP_SINK); k++) {
        sbuf_printf(o, "%s{\"port\":", k ? "," : "");
        sbuf_json_str(o, last->out_name[k], strlen(last->out_name[k]));
        sbuf_adds(o, ",\"schema\":");
        stage_schema(o, last->out[k]);
        sbuf_adds(o, "}");
    }
    sbuf_adds(o, "]}");
}

static void spec_json(struct sbuf *o, const struct flowfile *f) {
    const struct spec *s = &f->spec;
    sbuf_adds(o, "{\"file\":");
    sbuf_json_str(o, f->name, strlen(f->name));
    sbuf_adds(o, ",\"name\":");
    sbuf_json_str(o, s->name, strlen(s->name));
    sbuf_printf(o, ",\"history\":\"%s\",\"tasks\":[", history_words[s->history]);
    for (int i = 0; i < s->ntasks; i++) {
        sbuf_adds(o, i ? "," : "");
        task_json(o, s, &s->tasks[i]);
    }
    sbuf_adds(o, "],\"files\":[");
    for (int i = 0; i < f->nfiles; i++) {
        sbuf_adds(o, i ? ",{\"name\":" : "{\"name\":");
        sbuf_json_str(o, f->files[i].name, strlen(f->files[i].name));
        sbuf_printf(o, ",\"hash\":\"%s\",\"bytes\":%zu}", f->files[i].hash, f->files[i].len);
    }
    sbuf_adds(o, "]}");
}

static const char *inputs_text(struct arena *a, const struct spec *s, const struct spec_task *t) {
    struct sbuf o = { 0 };
    for (int k = 0; k < t->ninputs; k++) {
        const struct spec_input *in = &t->inputs[k];
        const struct spec_task *from = &s->tasks[in->from];
        sbuf_printf(&o, "%s%s", k ? ", " : "", from->id);
        if (strcmp(in->out_port, "out") != 0)
            sbuf_printf(&o, ".%s", in->out_port);
        for (int b = 0; b < in->nby; b++)
            sbuf_printf(&o, "%s%s", b ? ", " : " by ", in->by[b]);
    }
    const char *text = arena_strdup(a, o.len ? sbuf_str(&o) : "");
    sbuf_free(&o);
    return text;
}

/* The fields, or in what they differ from those of the first input. */
static const char *rows_text(struct arena *a, const struct spec *s, const struct spec_task *task,
                             const struct schema *out) {
    const struct spec_stage *first = &s->stages[task->first];
    const struct schema *in = task->ninputs && first->nin ? first->in[0] : NULL;
    if (!in || in->n > out->n || in->n < 2)
        return schema_text(a, out);
    for (int i = 0; i < in->n; i++)
        if (strcmp(in->f[i].name, out->f[i].name) != 0 || in->f[i].type != out->f[i].type ||
            in->f[i].dim != out->f[i].dim)
            return schema_text(a, out);
    if (in->n == out->n)
        return "the same fields";
    struct schema more = { .n = out->n - in->n, .f = out->f + in->n };
    return arena_printf(a, "the same and %s", schema_text(a, &more));
}

static void print_streams(struct table *t, struct arena *a, const struct spec *s,
                          const struct spec_task *task) {
    const struct spec_stage *last = &s->stages[task->first + task->nstages - 1];
    table_add(t, task->id);
    table_style(t, STYLE_BOLD);
    table_add(t, task->op->name);
    table_add(t, inputs_text(a, s, task));
    if (last->op->flags & OP_SINK || last->nout == 0) {
        table_add(t, last->writes ? arena_printf(a, "-> %s", last->writes) : "");
        return;
    }
    for (int k = 0; k < last->nout; k++) {
        if (k > 0) {
            table_add(t, "");
            table_add(t, "");
            table_add(t, "");
        }
        const char *schema = rows_text(a, s, task, last->out[k]);
        if (last->nout > 1 || strcmp(last->out_name[k], "out") != 0)
            schema = arena_printf(a, "%s: %s", last->out_name[k], schema);
        table_add(t, schema);
    }
}

static void print_spec(const struct cli *c, const struct flowfile *f) {
    const struct spec *s = &f->spec;
    struct table t;
    bool color = term_color(STDOUT_FILENO);
    struct arena *a = f->arena;
    (void)c;
    printf("%s%s%s: valid, %d task%s", style_on(STYLE_BOLD, color), s->name, style_off(color),
           s->ntasks, s->ntasks == 1 ? "" : "s");
    if (s->description && *s->description)
        printf(" - %s", s->description);
    putchar('\n');
    table_begin(&t, "<  task|<type|<reads|<makes rows of");
    for (int i = 0; i < s->ntasks; i++)
        print_streams(&t, a, s, &s->tasks[s->order[i]]);
    for (int r = 0; r < t.n; r += t.cols)
        if (*t.cells[r].text)
            t.cells[r].text = arena_printf(a, "  %s", t.cells[r].text);
    table_print(&t, stdout, term_is(STDOUT_FILENO) ? term_width(STDOUT_FILENO) : 0, color);
    table_end(&t);
}

int cmd_validate(struct cli *c) {
    struct errs es = { 0 };
    struct sbuf o = { 0 };
    int bad = 0, rc = 0;
    sbuf_adds(&o, "{\"dataflows\":[");
    for (int i = 0; i < c->nargs; i++) {
        struct flowfile f;
        struct errs warn = { 0 };
        struct err e = ERR_INIT;
        int rc1 = flowfile_load(&f, c->args[i], &c->arena, &e);
        if (rc1 < 0)
            errs_add(&es, &e);
        else
            rc1 = flowfile_parse(&f, &es, &warn);
        cli_warnings(c, &warn);
        errs_free(&warn);
        if (rc1 < 0) {
            rc = rc ? rc : rc1;
            bad++;
        } else if (c->json) {
            sbuf_adds(&o, i > bad ? "," : "");
            spec_json(&o, &f);
        } else {
            print_spec(c, &f);
        }
    }
    sbuf_adds(&o, "]}");
    if (bad) {
        cli_errors(c, &es);
        cli_note(c, "%d error%s in %d of %d file%s", es.total, es.total == 1 ? "" : "s", bad,
                 c->nargs, c->nargs == 1 ? "" : "s");
    } else if (c->json) {
        puts(sbuf_str(&o));
    }
    sbuf_free(&o);
    errs_free(&es);
    return rc;
}

/* ---- run: options ---- */

/* "TOPIC=FILE"; without "TOPIC=" it is for the only topic. */
static int split_pair(struct cli *c, const char *option, const char *text, const char *only,
                      const char **name, const char **file) {
    const char *eq = strchr(text, '=');
    if (eq == text || (eq && !eq[1]))
        return cli_usage(c, "--%s wants NAME=FILE, not '%s'", option, text);
    if (!eq && !only)
        return cli_usage(c, "--%s %s: say which one: --%s NAME=%s", option, text, option, text);
    *name = eq ? arena_strndup(&c->arena, text, (size_t)(eq - text)) : only;
    *file = eq ? eq + 1 : text;
    return 0;
}

/* The one topic that the dataflow reads; NULL: several or none. */
static const char *only_topic(const struct spec *s) {
    const char *topic = NULL;
    for (int i = 0; i < s->nstages; i++) {
        const char *t = s->stages[i].reads;
        if (t && topic && strcmp(t, topic) != 0)
            return NULL;
        topic = t ? t : topic;
    }
    return topic;
}

int cmd_dataset_conf(struct cli *c, const struct dataset_options *d, struct dataset_conf *conf) {
    *conf = (struct dataset_conf){ .loop = d->loop == CLI_UNSET ? 1 : d->loop,
                                   .keys = d->keys == CLI_UNSET ? 0 : d->keys,
                                   .id_field = d->id_field,
                                   .shuffle = d->shuffle == CLI_UNSET ? 0 : (uint32_t)d->shuffle,
                                   .jitter_ms = d->jitter == CLI_UNSET ? 0 : d->jitter,
                                   .seed = d->seed == CLI_UNSET ? 0 : (uint64_t)d->seed };
    if (!d->lines || strcmp(d->lines, "auto") == 0)
        conf->lines = DATASET_AUTO;
    else if (strcmp(d->lines, "timed") == 0)
        conf->lines = DATASET_TIMED;
    else if (strcmp(d->lines, "plain") == 0)
        conf->lines = DATASET_PLAIN;
    else
        return cli_usage(c, "--lines is auto, timed or plain, not '%s'", d->lines);
    return 0;
}

static int make_inputs(struct cli *c, const struct run_options *o, const struct spec *s,
                       struct run_conf *conf) {
    struct run_input *in = ARENA_ARRAY(&c->arena, struct run_input, o->in.n);
    for (int i = 0; i < o->in.n; i++) {
        int rc = cmd_dataset_conf(c, &o->data, &in[i].data);
        if (rc == 0)
            rc = split_pair(c, "in", o->in.v[i], only_topic(s), &in[i].topic, &in[i].data.source);
        if (rc < 0)
            return rc;
    }
    conf->ninputs = o->in.n;
    conf->inputs = in;
    return 0;
}

/* ---- run: output ---- */

struct output {
    struct rowfile *file; /* several sinks may share stdout; NULL: not written */
    char *prefix;
    size_t prefix_len;
};
struct running {
    struct cli *c;
    struct run *run;
    struct output *out; /* one a sink */
    struct rowfile std, dead, *files;
    struct err err;
};

/* {"sink":NAME,"value":"…"}; as tail --json: value_b64 when it is no UTF-8 */
static int put_json(struct running *g, const struct run_sink *s, struct span v, struct rowfile *f) {
    struct sbuf b = { 0 };
    sbuf_adds(&b, "{\"sink\":");
    sbuf_json_str(&b, s->name, strlen(s->name));
    sbuf_adds(&b, ",");
    text_bytes(&b, "value", v.p, v.len);
    sbuf_adds(&b, "}\n");
    int rc = rowfile_add(f, b.p, b.len, &g->err);
    sbuf_free(&b);
    return rc;
}

static int on_rows(void *arg, const struct run_sink *s, const struct batch *b) {
    struct running *g = arg;
    struct output *o = &g->out[s->index];
    struct rowfile *f = o->file;
    const struct span *v = b->cols[0].str;
    int rc = 0;
    if (!f)
        return 0;
    for (uint32_t i = 0; i < b->n && rc == 0; i++) {
        struct span x = v[batch_row(b, i)];
        if (g->c->json && f == &g->std) {
            rc = put_json(g, s, x, f);
            continue;
        }
        if (o->prefix_len)
            rc = rowfile_add(f, o->prefix, o->prefix_len, &g->err);
        if (rc == 0)
            rc = rowfile_line(f, x.p, x.len, &g->err);
    }
    if (rc == 0 && f->eager)
        rc = rowfile_flush(f, &g->err);
    return rc;
}

static int on_dead(void *arg, const char *json, size_t len) {
    struct running *g = arg;
    if (g->dead.fd < 0)
        return 0;
    return rowfile_line(&g->dead, json, len, &g->err);
}

/* A sink that says `"discard": true` shows its rows only when asked with --out. */
static bool discards(const struct spec *s, const char *task) {
    for (int i = 0; i < s->ntasks; i++)
        if (strcmp(s->tasks[i].id, task) == 0) {
            const struct jnode *n = jnode_get(s->tasks[i].config_at, "discard");
            return n && n->type == J_BOOL && n->b;
        }
    return false;
}

static int find_sink(const struct running *g, const char *name) {
    for (int i = 0; i < run_sinks(g->run); i++)
        if (strcmp(run_sink(g->run, i)->name, name) == 0)
            return i;
    for (int i = 0; i < run_sinks(g->run); i++)
        if (strcmp(run_sink(g->run, i)->task, name) == 0)
            return i;
    return -1;
}

static int unknown_sink(struct cli *c, const struct running *g, const char *name) {
    struct sbuf b = { 0 };
    for (int i = 0; i < run_sinks(g->run); i++)
        sbuf_printf(&b, "%s%s", i ? ", " : "", run_sink(g->run, i)->name);
    int rc = cli_usage(c, "--out %s=: no sink writes '%s'; there is %s", name, name, sbuf_str(&b));
    sbuf_free(&b);
    return rc;
}

static int open_outputs(struct running *g, const struct run_options *o, const struct spec *s) {
    struct cli *c = g->c;
    int n = run_sinks(g->run), std = 0;
    g->out = arena_zalloc(&c->arena, sizeof *g->out * (size_t)(n + 1));
    g->files = arena_zalloc(&c->arena, sizeof *g->files * (size_t)(o->out.n + 1));
    if (rowfile_open(&g->std, "-", &g->err) < 0)
        return cli_error(c, &g->err);
    for (int i = 0; i < o->out.n; i++) {
        const char *name, *file;
        int rc = split_pair(c, "out", o->out.v[i], n == 1 ? run_sink(g->run, 0)->name : NULL, &name,
                            &file);
        if (rc < 0)
            return rc;
        int k = find_sink(g, name);
        if (k < 0)
            return unknown_sink(c, g, name);
        if (g->out[k].file)
            return cli_usage(c, "--out %s=: said twice", name);
        for (int j = 0; j < i; j++)
            if (g->files[j].buf && strcmp(g->files[j].path, file) == 0)
                return cli_usage(c, "--out %s=%s: another sink writes that file", name, file);
        if (strcmp(file, "-") == 0) {
            g->out[k].file = &g->std;
            continue;
        }
        g->out[k].file = &g->files[i];
        if (rowfile_open(&g->files[i], file, &g->err) < 0)
            return cli_error(c, &g->err);
    }
    for (int i = 0; i < n; i++) {
        if (!g->out[i].file && !discards(s, run_sink(g->run, i)->task))
            g->out[i].file = &g->std;
        std += g->out[i].file == &g->std;
    }
    for (int i = 0; i < n && std > 1; i++)
        if (g->out[i].file == &g->std) {
            g->out[i].prefix = arena_printf(&c->arena, "%s\t", run_sink(g->run, i)->name);
            g->out[i].prefix_len = strlen(g->out[i].prefix);
        }
    if (o->dead && rowfile_open(&g->dead, o->dead, &g->err) < 0)
        return cli_error(c, &g->err);
    return 0;
}

static int close_outputs(struct running *g, int nfiles) {
    int rc = 0;
    struct rowfile *extra[] = { &g->std, &g->dead };
    for (int i = 0; i < nfiles + 2; i++) {
        struct rowfile *f = i < nfiles ? &g->files[i] : extra[i - nfiles];
        int rc1 = f->buf ? rowfile_close(f, &g->err) : 0;
        rc = rc ? rc : rc1;
    }
    return rc;
}

/* ---- run: summary ---- */

static void add_count(struct table *t, uint64_t v, enum style s) {
    char buf[UNIT_MAX];
    table_add(t, v ? unit_exact(buf, v) : "-");
    table_style(t, v ? s : STYLE_DIM);
}

static void print_tasks(const struct run *r, bool color) {
    struct table t;
    char buf[UNIT_MAX];
    table_begin(&t, "<task|<type|>rows in|>rows out|>filtered|>late|>rejected|>a row");
    for (int i = 0; i < run_tasks(r); i++) {
        struct run_task k;
        run_task(r, i, &k);
        table_add(&t, k.id);
        table_style(&t, STYLE_BOLD);
        table_add(&t, k.type);
        add_count(&t, k.counts.in, STYLE_PLAIN);
        add_count(&t, k.counts.out, STYLE_PLAIN);
        add_count(&t, k.counts.filtered, STYLE_PLAIN);
        add_count(&t, k.counts.late, STYLE_YELLOW);
        add_count(&t, k.counts.rejected, STYLE_RED);
        table_add(&t, k.counts.in && k.ns ? unit_ns(buf, (double)k.ns / (double)k.counts.in) : "-");
    }
    table_print(&t, stderr, cmd_width(STDERR_FILENO), color);
    table_end(&t);
}

static void print_dead(const struct run_totals *t, const char *file, bool color) {
    char buf[UNIT_MAX];
    if (t->dead == 0)
        return;
    fprintf(stderr, "%sdead letters:%s", style_on(STYLE_RED, color), style_off(color));
    for (int i = 0; i < t->ncodes; i++)
        fprintf(stderr, "%s %s %s", i ? "," : "", unit_exact(buf, t->codes[i].n), t->codes[i].code);
    if (file)
        fprintf(stderr, "; written to %s\n", file);
    else
        fputs("; --dead FILE writes them all\n", stderr);
}

static void print_summary(const struct running *g, const struct run_options *o) {
    struct run_totals t;
    char a[UNIT_MAX], b[UNIT_MAX], d[UNIT_MAX], e[UNIT_MAX], f[UNIT_MAX];
    bool color = term_color(STDERR_FILENO);
    run_totals(g->run, &t);
    double s = (double)(t.ns > 0 ? t.ns : 1) / 1e9;
    print_tasks(g->run, color);
    print_dead(&t, o->dead, color);
    fprintf(stderr, "%s record%s in %s: %s records/s", unit_exact(a, t.records),
            t.records == 1 ? "" : "s", unit_ns(d, s * 1e9), unit_count(e, (double)t.records / s));
    if (t.bytes)
        fprintf(stderr, "; %s, %s/s", unit_bytes(b, (double)t.bytes),
                unit_bytes(f, (double)t.bytes / s));
    fputc('\n', stderr);
}

static void summary_json(const struct running *g) {
    struct run_totals t;
    struct sbuf o = { 0 };
    run_totals(g->run, &t);
    sbuf_printf(&o, "{\"records\":%llu,\"bytes\":%llu,\"ns\":%lld,\"dead\":%llu,\"dead_codes\":{",
                (unsigned long long)t.records, (unsigned long long)t.bytes, (long long)t.ns,
                (unsigned long long)t.dead);
    for (int i = 0; i < t.ncodes; i++)
        sbuf_printf(&o, "%s\"%s\":%llu", i ? "," : "", t.codes[i].code,
                    (unsigned long long)t.codes[i].n);
    sbuf_adds(&o, "},\"tasks\":[");
    for (int i = 0; i < run_tasks(g->run); i++) {
        struct run_task k;
        run_task(g->run, i, &k);
        sbuf_printf(&o,
                    "%s{\"id\":\"%s\",\"type\":\"%s\",\"signature\":\"%s\",\"rows_in\":%llu,"
                    "\"rows_out\":%llu,\"filtered\":%llu,\"late\":%llu,\"rejected\":%llu,"
                    "\"ns\":%llu,\"state_keys\":%llu,\"state_bytes\":%llu}",
                    i ? "," : "", k.id, k.type, k.signature, (unsigned long long)k.counts.in,
                    (unsigned long long)k.counts.out, (unsigned long long)k.counts.filtered,
                    (unsigned long long)k.counts.late, (unsigned long long)k.counts.rejected,
                    (unsigned long long)k.ns, (unsigned long long)k.state_keys,
                    (unsigned long long)k.state_bytes);
    }
    sbuf_adds(&o, "]}\n");
    fputs(sbuf_str(&o), stderr);
    sbuf_free(&o);
}

/* ---- run ---- */

static struct run *_Atomic running;

static void on_interrupt(int sig) {
    (void)sig;
    struct run *r = running;
    if (r)
        run_stop(r);
}

/* The first Ctrl-C ends the input, the second the program. */
static void catch_interrupt(struct run *r) {
    struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    running = r;
    if (r)
        sigaction(SIGINT, &sa, NULL);
}

static int run_opened(struct running *g, const struct run_options *o, const struct spec *s) {
    int rc = open_outputs(g, o, s);
    if (rc == 0) {
        catch_interrupt(g->run);
        rc = run_all(g->run, &g->err);
        catch_interrupt(NULL);
        int rc2 = close_outputs(g, o->out.n);
        rc = rc ? rc : rc2;
        if (rc < 0)
            return cli_error(g->c, &g->err);
        if (g->c->json)
            summary_json(g);
        else if (!o->quiet)
            print_summary(g, o);
    } else {
        close_outputs(g, o->out.n);
    }
    return rc;
}

int cmd_run(struct cli *c) {
    const struct run_options *o = c->opt;
    struct flowfile f;
    struct errs es = { 0 }, warn = { 0 };
    struct running g = { .c = c, .std.fd = -1, .dead.fd = -1, .err = ERR_INIT };
    int rc = flowfile_load(&f, c->args[0], &c->arena, &g.err);
    if (rc < 0)
        return cli_error(c, &g.err);
    rc = flowfile_parse(&f, &es, &warn);
    cli_warnings(c, &warn);
    errs_free(&warn);
    struct run_conf conf = { .spec = &f.spec,
                             .now_ms = o->now == CLI_UNSET ? clock_wall_ms() : o->now,
                             .batch_rows = o->batch == CLI_UNSET ? 0 : (uint32_t)o->batch,
                             .limit = o->limit == CLI_UNSET ? 0 : o->limit,
                             .rows = on_rows,
                             .dead = on_dead,
                             .arg = &g };
    if (rc < 0) {
        cli_errors(c, &es);
    } else if ((rc = make_inputs(c, o, &f.spec, &conf)) == 0) {
        if (o->now != CLI_UNSET)
            clock_freeze(o->now);
        rc = run_open(&g.run, &conf, &es);
        if (rc < 0)
            cli_errors(c, &es);
        else
            rc = run_opened(&g, o, &f.spec);
        run_close(g.run);
    }
    errs_free(&es);
    return rc;
}
