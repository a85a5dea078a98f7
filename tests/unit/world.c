#include "tests/unit/world.h"
#include "tests/unit/files_fault.h"
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static int read_file(void *user, const char *name, struct file *f, struct err *e) {
    (void)user;
    char path[512];
    snprintf(path, sizeof path, "dataflows/riotbench/%s", name);
    FILE *in = fopen(name, "rb");
    if (!in)
        in = fopen(path, "rb");
    if (!in)
        return err_set(e, ERR_NOTFOUND, "no file %s", name);
    fseek(in, 0, SEEK_END);
    size_t len = (size_t)ftell(in);
    rewind(in);
    /* As long as the process, for tasks keep it; a file that was read before is not kept again. */
    static struct kept {
        struct kept *next;
        size_t len;
        char data[];
    } * all;
    struct kept *new = malloc(sizeof *new + len + 1), *k = all;
    if (!new || fread(new->data, 1, len, in) != len)
        abort();
    fclose(in);
    while (k && (k->len != len || memcmp(k->data, new->data, len) != 0))
        k = k->next;
    if (k) {
        free(new);
    } else {
        new->len = len;
        new->next = all;
        all = k = new;
    }
    const char *data = k->data;
    XXH128_hash_t h = XXH3_128bits(data, len);
    f->name = name;
    f->data = data;
    f->len = len;
    snprintf(f->hash, sizeof f->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    return 0;
}

const struct spec_env world_env = { .file = read_file };

static int topic_partitions(void *user, const char *topic) {
    struct log_topic_info info;
    struct world *w = user;
    return log_topic_info(w->log, topic, &info, NULL) < 0 ? 0 : (int)info.conf.partitions;
}

static struct spec_env world_spec_env(struct world *w) {
    return (struct spec_env){ .user = w, .file = read_file, .partitions = topic_partitions };
}

static void executor_open(struct world *w) {
    struct err e = ERR_INIT;
    struct executor_conf conf = {
        .log = w->log, .lanes = w->lanes, .batch_rows = w->batch_rows, .retry_ms = -1
    };
    snprintf(w->out_dir, sizeof w->out_dir, "%s/out", w->dir);
    conf.out_dir = w->out_dir;
    conf.epoch_bytes = w->epoch_bytes;
    conf.align_bytes = w->align_bytes;
    conf.idle_clock = &w->idle_ns;
    conf.files = w->ft ? fault_files(w->ft) : NULL;
    conf.sync_files = w->ft != NULL;
    if (executor_new(&w->x, &conf, &e) < 0)
        fail_msg("executor: %s", e.text);
}

static void log_start(struct world *w) {
    struct err e = ERR_INIT;
    struct log_conf conf = { .dir = w->dir,
                             .durability = w->ft ? LOG_POWER : LOG_PROCESS,
                             .files = w->ft ? fault_files(w->ft) : NULL };
    if (log_open(&w->log, &conf, &e) < 0)
        fail_msg("log: %s", e.text);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_dir(const char *dir) {
    assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A directory in memory where there is one with room: on a busy disk a sequence takes ten times as
 * long, most of it for making and removing files. What a disk may lose is the fault layer's work.
 */
static void make_dir(char dir[64]) {
    struct statvfs v;
    bool memory = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &v) == 0 &&
                  (uint64_t)v.f_bavail * v.f_frsize >= (uint64_t)1 << 30;
    snprintf(dir, 64, "%s/braid-world-XXXXXX", memory ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(dir));
}

void world_open(struct world *w, uint32_t batch_rows, bool power) {
    world_open_small(w, batch_rows, power, 0);
}

void world_open_small(struct world *w, uint32_t batch_rows, bool power, size_t epoch_bytes) {
    world_open_conf(w, &(struct world_conf){ batch_rows, power, epoch_bytes, 0, 0 });
}

void world_open_conf(struct world *w, const struct world_conf *conf) {
    *w = (struct world){ .batch_rows = conf->batch_rows,
                         .epoch_bytes = conf->epoch_bytes,
                         .lanes = conf->lanes,
                         .align_bytes = conf->align_bytes };
    make_dir(w->dir);
    w->plan = plan_new();
    if (conf->power)
        w->ft = fault_new(w->dir, 1);
    log_start(w);
    executor_open(w);
}

/* The machine goes on with what its disk has for sure, or with any part of the rest, too. */
static void lose_power(struct world *w) {
    char to[sizeof w->dir];
    make_dir(to);
    remove_dir(to);
    fault_image(w->ft, to, w->boots % 2 ? FAULT_SCATTER : FAULT_DROP);
    fault_free(w->ft);
    remove_dir(w->dir);
    memcpy(w->dir, to, sizeof to);
    w->ft = fault_new(w->dir, (uint64_t)++w->boots);
    fault_boot(w->ft, w->boots);
}

void world_close(struct world *w) {
    executor_free(w->x);
    log_close(w->log);
    plan_free(w->plan);
    for (int i = 0; i < w->nflows; i++) {
        free(w->flow[i].text);
        sbuf_free(&w->flow[i].saved);
    }
    free(w->flow);
    if (w->ft)
        fault_free(w->ft);
    remove_dir(w->dir);
}

void world_topic(struct world *w, const char *topic) {
    world_topic_parts(w, topic, 1);
}

void world_topic_parts(struct world *w, const char *topic, uint32_t partitions) {
    struct log_topic_info info;
    struct log_topic_conf conf = { .partitions = partitions, .retention_bytes = -1 };
    struct err e = ERR_INIT;
    if (log_topic_info(w->log, topic, &info, NULL) == 0)
        return;
    if (log_topic_create(w->log, topic, &conf, &e) < 0)
        fail_msg("topic %s: %s", topic, e.text);
}

void world_append(struct world *w, const char *topic, const char *lines) {
    world_append_to(w, topic, 0, lines);
}

void world_append_to(struct world *w, const char *topic, uint32_t partition, const char *lines) {
    world_append_at(w, topic, partition, lines, WORLD_LOG_TIME);
}

void world_append_at(struct world *w, const char *topic, uint32_t partition, const char *lines,
                     int64_t log_ms) {
    struct log_epoch *ep = log_epoch_begin(w->log);
    struct log_buf *b = log_buf_new();
    struct err e = ERR_INIT;
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        memcpy(log_buf_room(b, len), lines, len);
        log_buf_end(b, len);
        lines += len + (lines[len] == '\n');
    }
    log_buf_seal(b);
    log_epoch_append(ep, topic, partition, b, log_ms, NULL);
    log_buf_unref(b);
    if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
        fail_msg("append to %s: %s", topic, e.text);
}

/* ---- changes ---- */

struct pending {
    struct world *w;
    struct executor_change c;
    bool recorded, done;
    int rc;
    struct err e;
};

static void on_record(void *arg, struct exec *ex, struct log_epoch *ep) {
    struct pending *p = arg;
    (void)ep;
    if (!p->recorded && p->w->at_cut)
        p->w->at_cut(p->w, &p->c.change, ex);
    p->recorded = true;
}

static void on_done(void *arg, int rc, const struct err *e) {
    struct pending *p = arg;
    p->done = true;
    p->rc = rc;
    if (e)
        p->e = *e;
}

static struct world *freeing; /* `freed` has no other way to know; tests have one world at a time */
static void on_freed(void *arg, uint64_t instance) {
    (void)arg;
    plan_freed(freeing->plan, instance);
}

static int change_run(struct world *w, const struct change *ch, bool drain, struct err *e) {
    struct pending p = { .w = w, .e = ERR_INIT };
    p.c = (struct executor_change){
        .change = *ch, .record = on_record, .done = on_done, .freed = on_freed, .arg = &p
    };
    p.c.change.drain = drain;
    freeing = w;
    plan_commit(w->plan); /* the plan's change may be freed by the executor while it commits */
    executor_submit(w->x, &p.c);
    executor_settle(w->x);
    assert_true(p.done);
    *e = p.e;
    return p.rc;
}

static void sink_topics(struct world *w, const struct change *ch) {
    for (int i = 0; i < ch->nadd; i++) {
        const struct task_def *d = ch->add[i];
        const char *topic = op_config_text(d->op, d->config, "topic");
        if (topic && d->op->flags & (OP_SOURCE | OP_SINK))
            world_topic_parts(w, topic, d->op->flags & OP_SINK ? task_parts(d) : 1);
    }
}

int world_try(struct world *w, const char *text, struct world_flow **out, struct errs *es) {
    struct arena a = { 0 };
    struct spec s;
    char *copy = strdup(text);
    struct spec_env env = world_spec_env(w);
    int rc = spec_parse(&s, "test.json", copy, strlen(copy), &env, &a, es, NULL);
    const struct change *ch;
    struct plan_cut cut = { .id = ++w->cut };
    if (rc == 0)
        rc = plan_submit(w->plan, &s, &cut, &ch, es);
    if (rc < 0) {
        arena_free(&a);
        free(copy);
        return rc;
    }
    if (w->nflows == w->cap) {
        w->cap = w->cap ? w->cap * 2 : 16;
        w->flow = realloc(w->flow, sizeof *w->flow * (size_t)w->cap);
        assert_non_null(w->flow);
    }
    struct world_flow *f = &w->flow[w->nflows++];
    *f = (struct world_flow){ .text = copy, .running = true, .order = w->cut };
    snprintf(f->name, sizeof f->name, "%s", s.name);
    f->flow = plan_find(w->plan, f->name);
    plan_save(w->plan, f->flow, &f->saved);
    sbuf_str(&f->saved);
    sink_topics(w, ch);
    *out = f;
    struct err e = ERR_INIT;
    rc = change_run(w, ch, false, &e);
    if (rc < 0)
        fail_msg("graft of %s: %s", f->name, e.text);
    arena_free(&a);
    return 0;
}

struct world_flow *world_submit(struct world *w, const char *text) {
    struct errs es = { 0 };
    struct world_flow *f;
    if (world_try(w, text, &f, &es) < 0) {
        char buf[2048];
        fail_msg("submit: %s\n%s", err_format(&es.v[0], buf, sizeof buf), text);
    }
    errs_free(&es);
    return f;
}

void world_remove(struct world *w, struct world_flow *f, bool drain) {
    struct err e = ERR_INIT;
    const struct change *ch;
    if (plan_remove(w->plan, f->name, &ch, &e) < 0 || change_run(w, ch, drain, &e) < 0)
        fail_msg("remove %s: %s", f->name, e.text);
    f->running = false;
    f->flow = NULL;
}

static int by_order(const void *a, const void *b) {
    const struct world_flow *x = *(struct world_flow *const *)a;
    const struct world_flow *y = *(struct world_flow *const *)b;
    return (x->order > y->order) - (x->order < y->order);
}

void world_restart(struct world *w) {
    struct err e = ERR_INIT;
    struct errs es = { 0 };
    struct world_flow *live[1024];
    int n = 0;
    uint64_t next = plan_next(w->plan), version = w->plan->version;
    executor_free(w->x);
    log_close(w->log);
    plan_free(w->plan);
    if (w->ft)
        lose_power(w);
    log_start(w);
    executor_open(w);
    w->plan = plan_new();
    plan_set_next(w->plan, version, next);
    for (int i = 0; i < w->nflows; i++)
        if (w->flow[i].running)
            live[n++] = &w->flow[i];
    qsort(live, (size_t)n, sizeof *live, by_order);
    struct arena a = { 0 };
    struct spec_env env = world_spec_env(w);
    for (int i = 0; i < n; i++) {
        struct spec s;
        struct plan_cut cut = { .id = live[i]->order };
        if (spec_parse(&s, NULL, live[i]->text, strlen(live[i]->text), &env, &a, &es, NULL) < 0 ||
            plan_restore(w->plan, &s, live[i]->saved.p, live[i]->saved.len, &cut, &es) < 0)
            fail_msg("restore: %s", es.v[0].text);
        live[i]->flow = plan_find(w->plan, live[i]->name);
    }
    const struct change *ch = plan_change(w->plan);
    plan_commit(w->plan);
    if (executor_restore(w->x, ch, &e) < 0)
        fail_msg("restore: %s", e.text);
    arena_free(&a);
}

void world_read(struct world *w, const char *topic, struct sbuf *out) {
    world_read_part(w, topic, 0, out);
}

void world_read_part(struct world *w, const char *topic, uint32_t partition, struct sbuf *out) {
    struct err e = ERR_INIT;
    struct log_reader *r;
    struct log_rows rows;
    int64_t off;
    int n;
    if (log_reader_open(w->log, topic, partition, 0, &r, &e) < 0)
        fail_msg("reading %s: %s", topic, e.text);
    while ((n = log_read(r, 1000, &rows, &off, &e)) > 0) {
        uint32_t start = 0;
        for (int i = 0; i < n; i++) {
            uint32_t end = rows.value_end[i] & ~LOG_NULL;
            sbuf_add(out, rows.values + start, end - start);
            sbuf_add(out, "\n", 1);
            start = end;
        }
    }
    assert_int_equal(n, 0);
    log_reader_close(r);
}

int64_t world_end(struct world *w, const char *topic) {
    struct log_topic_info info;
    struct err e = ERR_INIT;
    if (log_topic_info(w->log, topic, &info, &e) < 0)
        fail_msg("%s", e.text);
    return info.end;
}
