#include "cluster/look.h"
#include "engine/num.h"
#include <string.h>

int look_take(struct client *cl, struct look *l, struct errs *es) {
    struct sbuf text = { 0 };
    *l = (struct look){ 0 };
    int rc = client_call(cl, "GET", "/metrics", NULL, &text, NULL, es);
    if (rc == 0)
        metrics_parse(&l->metrics, sbuf_str(&text), text.len);
    if (rc == 0)
        rc = client_json(cl, "GET", "/v1/dataflows", NULL, &l->arena, &l->flows, es);
    if (rc == 0)
        rc = client_json(cl, "GET", "/v1/graph?format=json", NULL, &l->arena, &l->graph, es);
    sbuf_free(&text);
    return rc;
}

void look_free(struct look *l) {
    metrics_free(&l->metrics);
    arena_free(&l->arena);
    *l = (struct look){ 0 };
}

static double rate(int64_t now, int64_t before, double seconds) {
    return seconds > 0 && now > before ? (double)(now - before) / seconds : 0;
}

static void add_stage(struct look_line *l, const struct stage_metrics *m,
                      const struct stage_metrics *was, double seconds, bool last) {
    double rows = rate(m->rows_in, was->rows_in, seconds),
           busy = rate(m->busy_ns, was->busy_ns, seconds);
    if (rows > l->in)
        l->in = rows;
    if (last)
        l->out = rate(m->rows_out, was->rows_out, seconds);
    l->busy += busy / 1e9;
    if (rows > 0)
        l->ns_row += busy / rows;
    else if (m->rows_in > 0)
        l->ns_row += (double)m->busy_ns / (double)m->rows_in;
    if (m->rows_in > l->rows)
        l->rows = m->rows_in;
    l->busy_ns += m->busy_ns;
    l->rejected += m->rejected;
    l->late += m->late;
    if (m->lag >= 0)
        l->lag = m->lag;
}

/* A node's id is "t" and the instance number of its task's last stage. */
static int64_t node_instance(const struct jnode *node) {
    const char *id = json_text(node, "id");
    int64_t v = 0;
    return *id == 't' && num_i64_whole(id + 1, id + strlen(id), &v) == 0 ? v : -1;
}

struct look_line *look_lines(const struct look *before, const struct look *now, struct arena *a,
                             int *count) {
    static const struct stage_metrics zero = { 0 };
    const struct metrics *m = &now->metrics;
    double seconds = before ? (double)(m->taken_ns - before->metrics.taken_ns) / 1e9 : 0;
    struct look_line *lines =
        ARENA_ARRAY(a, struct look_line, json_count(now->graph.root, "tasks") + 1);
    int n = 0;
    for (const struct jnode *t = json_list(now->graph.root, "tasks"); t; t = t->next) {
        const struct stage_metrics *last = metrics_find(m, (uint64_t)node_instance(t));
        if (!last)
            continue;
        struct look_line *l = &lines[n++];
        *l = (struct look_line){ .label = last->label, .type = json_text(t, "type"), .lag = -1 };
        l->users = json_list(t, "dataflows");
        l->nusers = (int)json_count(t, "dataflows");
        for (int i = 0; i < m->n; i++) {
            const struct stage_metrics *s = &m->stage[i];
            if (s != last && strcmp(s->label, last->label) != 0)
                continue;
            const struct stage_metrics *was =
                before ? metrics_find(&before->metrics, s->instance) : NULL;
            add_stage(l, s, was ? was : &zero, seconds, s == last);
        }
    }
    *count = n;
    return lines;
}
