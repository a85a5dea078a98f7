/* Views of the system around the dataflows: topics, workers, metrics. */
#include "cluster/coord_impl.h"
#include "cluster/ingest.h"
#include "cluster/stats.h"
#include "cluster/text.h"
#include "cluster/view.h"
#include "engine/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- topics ---- */

struct topics {
    struct coord *c;
    struct sbuf *out;
    int n;
};

static int add_topic(void *arg, const struct log_topic_info *info) {
    struct topics *t = arg;
    struct coord_topic_use use;
    coord_topic_use(t->c, info->name, &use);
    sbuf_adds(t->out, t->n++ ? ",{\"name\":" : "{\"name\":");
    text_json(t->out, info->name);
    sbuf_printf(
        t->out,
        ",\"partitions\":%u,\"begin\":%lld,\"end\":%lld,\"bytes\":%lld,"
        "\"retention_bytes\":%lld,\"retention_ms\":%lld,\"compact\":%s,\"readers\":%d,\"writer\":",
        info->conf.partitions, (long long)info->begin, (long long)info->end, (long long)info->bytes,
        (long long)info->conf.retention_bytes,
        (long long)(info->conf.retention_ms ? info->conf.retention_ms : -1),
        info->conf.compact ? "true" : "false", use.readers);
    text_json(t->out, use.writers ? use.writer : NULL);
    sbuf_adds(t->out, "}");
    return 0;
}

void view_topics(struct coord *c, struct sbuf *out) {
    struct topics t = { c, out, 0 };
    sbuf_adds(out, "{\"topics\":[");
    log_topic_list(c->log, add_topic, &t);
    sbuf_adds(out, "]}");
}

/* ---- the process ---- */

static int64_t rss_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    char line[128];
    char *p = f ? fgets(line, sizeof line, f) : NULL;
    if (f)
        fclose(f);
    if (!p)
        return 0;
    strtoll(p, &p, 10);
    return strtoll(p, NULL, 10) * sysconf(_SC_PAGESIZE);
}

static int64_t cpu_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

void view_workers(struct coord *c, struct sbuf *out) {
    struct stats *st = stats_get(c);
    const struct executor_health *h = &st->health;
    sbuf_printf(out, "{\"workers\":[{\"id\":\"local\",\"pid\":%d,\"state\":\"%s\",\"reason\":",
                (int)getpid(),
                flow_state_words[h->failed     ? FLOW_FAILED
                                 : h->degraded ? FLOW_DEGRADED
                                               : FLOW_RUNNING]);
    text_json(out, h->failed || h->degraded ? h->err.text : "");
    sbuf_printf(out,
                ",\"started_ms\":%lld,\"tasks\":%u,\"commits\":%llu,\"aborts\":%llu,"
                "\"last_commit\":%llu,\"cpu_ms\":%lld,\"rss_bytes\":%lld}]}",
                (long long)c->started_ms, st->n, (unsigned long long)h->commits,
                (unsigned long long)h->aborts, (unsigned long long)h->last_commit,
                (long long)cpu_ms(), (long long)rss_bytes());
    stats_unref(st);
}

/* ---- Prometheus text format 0.0.4 ---- */

static void metric(struct sbuf *out, const char *name, const char *type, const char *help) {
    sbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void plain(struct sbuf *out, const char *name, const char *type, const char *help,
                  long long v) {
    metric(out, name, type, help);
    sbuf_printf(out, "%s %lld\n", name, v);
}

struct task_metric {
    const char *name, *type, *help;
    uint64_t (*get)(const struct stat_entry *en);
};
#define GETTER(f, expr)                                                                            \
    static uint64_t f(const struct stat_entry *en) {                                               \
        return expr;                                                                               \
    }
GETTER(get_in, en->s.counts.in)
GETTER(get_out, en->s.counts.out)
GETTER(get_filtered, en->s.counts.filtered)
GETTER(get_rejected, en->s.counts.rejected)
GETTER(get_late, en->s.counts.late)
GETTER(get_ns, en->s.ns)
GETTER(get_keys, en->s.state_keys)
GETTER(get_bytes, en->s.state_bytes)
static const struct task_metric task_metrics[] = {
    { "braid_task_rows_in_total", "counter", "Rows into a stage", get_in },
    { "braid_task_rows_out_total", "counter", "Rows out of a stage", get_out },
    { "braid_task_rows_filtered_total", "counter", "Rows a stage filtered out", get_filtered },
    { "braid_task_rows_rejected_total", "counter", "Rows that became dead letters", get_rejected },
    { "braid_task_rows_late_total", "counter", "Rows that came too late", get_late },
    { "braid_task_busy_nanoseconds_total", "counter", "Time spent in a stage", get_ns },
    { "braid_task_state_keys", "gauge", "Keys of state of a stage", get_keys },
    { "braid_task_state_bytes", "gauge", "Memory of state of a stage", get_bytes },
};

/* Under plan_lock. Labels: names are plain, so nothing needs escaping. */
static void add_task_metrics(struct coord *c, const struct stats *st, struct sbuf *out) {
    for (size_t m = 0; m < sizeof task_metrics / sizeof *task_metrics; m++) {
        const struct task_metric *tm = &task_metrics[m];
        metric(out, tm->name, tm->type, tm->help);
        for (uint32_t i = 0; i < st->n; i++) {
            const struct inst *in = plan_instance(c->plan, st->v[i].instance);
            if (in)
                sbuf_printf(out, "%s{instance=\"%llu\",type=\"%s\",label=\"%s\"} %llu\n", tm->name,
                            (unsigned long long)st->v[i].instance, in->def->op->name,
                            in->def->label, (unsigned long long)tm->get(&st->v[i]));
        }
    }
}

/* Under plan_lock: records of its topic that a source has not read yet. */
static void add_lags(struct coord *c, const struct stats *st, struct sbuf *out) {
    metric(out, "braid_source_lag_records", "gauge", "Records of its topic not read yet");
    for (uint32_t i = 0; i < st->n; i++) {
        const struct inst *in = plan_instance(c->plan, st->v[i].instance);
        struct log_topic_info info;
        if (!in || !in->topic || st->v[i].position < 0 ||
            log_topic_info(c->log, in->topic->name, &info, NULL) < 0)
            continue;
        int64_t lag = info.end - st->v[i].position;
        sbuf_printf(out,
                    "braid_source_lag_records{instance=\"%llu\",type=\"%s\",label=\"%s\"} %lld\n",
                    (unsigned long long)st->v[i].instance, in->def->op->name, in->def->label,
                    (long long)(lag > 0 ? lag : 0));
    }
}

static int topic_metric(void *arg, const struct log_topic_info *info) {
    struct sbuf *out = arg;
    sbuf_printf(out, "braid_topic_end_offset{topic=\"%s\"} %lld\n", info->name,
                (long long)info->end);
    return 0;
}

static int topic_bytes_metric(void *arg, const struct log_topic_info *info) {
    struct sbuf *out = arg;
    sbuf_printf(out, "braid_topic_bytes{topic=\"%s\"} %lld\n", info->name, (long long)info->bytes);
    return 0;
}

void view_metrics(struct coord *c, struct sbuf *out) {
    struct stats *st = stats_get(c);
    const struct executor_health *h = &st->health;
    plain(out, "braid_up", "gauge", "1 while the executor runs", !h->failed);
    plain(out, "braid_degraded", "gauge", "1 while commits are being retried", h->degraded);
    plain(out, "braid_commits_total", "counter", "Epochs committed", (long long)h->commits);
    plain(out, "braid_aborts_total", "counter", "Epochs aborted", (long long)h->aborts);
    plain(out, "braid_producers", "gauge", "Producers remembered",
          (long long)ingest_producers(c->ingest));
    plain(out, "braid_cpu_milliseconds_total", "counter", "CPU time of the process",
          (long long)cpu_ms());
    plain(out, "braid_resident_bytes", "gauge", "Resident memory of the process",
          (long long)rss_bytes());
    plain(out, "braid_start_time_milliseconds", "gauge", "Start of the process",
          (long long)c->started_ms);
    coord_lock(c);
    const struct plan_counts *n = &c->plan->counts;
    plain(out, "braid_dataflows", "gauge", "Dataflows running", c->ndataflows);
    plain(out, "braid_tasks_submitted", "gauge", "Tasks of all dataflows, sinks apart",
          (long long)n->submitted);
    plain(out, "braid_tasks_running", "gauge", "Tasks that run after sharing, sinks apart",
          (long long)n->tasks);
    plain(out, "braid_stages_running", "gauge", "Stages that run", (long long)n->stages);
    add_task_metrics(c, st, out);
    add_lags(c, st, out);
    coord_unlock(c);
    metric(out, "braid_topic_end_offset", "gauge", "Records ever appended to a topic");
    log_topic_list(c->log, topic_metric, out);
    metric(out, "braid_topic_bytes", "gauge", "Bytes kept of a topic");
    log_topic_list(c->log, topic_bytes_metric, out);
    stats_unref(st);
}
