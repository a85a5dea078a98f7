#include "tests/bench/load.h"
#include "cluster/dataset.h"
#include "engine/num.h"
#include "tests/bench/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- input in memory ---- */

void load_die(const char *what, const struct err *e) {
    fprintf(stderr, "%s: %s\n", what, e ? e->text : "");
    exit(1);
}

void load_input(struct load_input *in, const char *source, int64_t keys) {
    struct dataset_conf conf = { .source = source, .loop = DATASET_ENDLESS, .keys = keys };
    struct dataset *ds;
    struct dataset_record r;
    struct err e = ERR_INIT;
    if (dataset_open(&ds, &conf, &e) < 0)
        load_die(source, &e);
    size_t len = 0, cap = (size_t)512 << 20;
    in->text = malloc(cap);
    in->ends = malloc(sizeof *in->ends * LOAD_RECORDS);
    in->block = calloc(LOAD_RECORDS / LOAD_BLOCK, sizeof *in->block);
    in->n = LOAD_RECORDS / LOAD_BLOCK;
    for (int b = 0; b < in->n; b++) {
        size_t start = len;
        for (int i = 0; i < LOAD_BLOCK; i++) {
            if (dataset_next(ds, &r, &e) != 1 || len + r.len > cap)
                load_die("dataset", &e);
            memcpy(in->text + len, r.data, r.len);
            len += r.len;
            in->ends[b * LOAD_BLOCK + i] = (uint32_t)(len - start);
        }
        in->block[b] = (struct log_rows){ .n = LOAD_BLOCK,
                                          .value_end = in->ends + b * LOAD_BLOCK,
                                          .values = in->text + start,
                                          .time = 1800000000000 };
    }
    dataset_close(ds);
}

void load_input_free(struct load_input *in) {
    free(in->text);
    free(in->ends);
    free(in->block);
}

/* ---- planning ---- */

struct env {
    const char *dir;
    struct log *log;
};

static int topic_partitions(void *user, const char *topic) {
    const struct env *env = user;
    struct log_topic_info info;
    return env->log && log_topic_info(env->log, topic, &info, NULL) == 0 ? (int)info.conf.partitions
                                                                         : 0;
}

static int read_file(void *user, const char *name, struct file *f, struct err *e) {
    const struct env *env = user;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", env->dir, name);
    FILE *in = fopen(path, "rb");
    if (!in)
        return err_set(e, ERR_NOTFOUND, "no file %s", path);
    fseek(in, 0, SEEK_END);
    size_t len = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(len + 1);
    if (!data || fread(data, 1, len, in) != len)
        abort();
    fclose(in);
    XXH128_hash_t h = XXH3_128bits(data, len);
    *f = (struct file){ .name = strdup(name), .data = data, .len = len };
    snprintf(f->hash, sizeof f->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    return 0;
}

static char *slurp(const char *path) {
    struct file f;
    struct err e = ERR_INIT;
    struct env here = { .dir = "." };
    if (read_file(&here, path, &f, &e) < 0)
        load_die(path, &e);
    char *text = malloc(f.len + 1);
    memcpy(text, f.data, f.len);
    text[f.len] = '\0';
    return text;
}

void load_submit(struct plan *p, struct log *log, const char *path, int n) {
    struct arena *a = calloc(1, sizeof *a);
    struct errs es = { 0 };
    struct spec s;
    char *text = slurp(path);
    if (n >= 0) { /* the file's name and sink are marked by its own name */
        struct sbuf o = { 0 };
        const char *name = "etl-sys-wide";
        for (const char *q = text, *hit; *q;) {
            hit = strstr(q, name);
            sbuf_add(&o, q, hit ? (size_t)(hit - q) : strlen(q));
            if (!hit)
                break;
            sbuf_printf(&o, "%s-%d", name, n);
            q = hit + strlen(name);
        }
        text = strdup(sbuf_str(&o));
        sbuf_free(&o);
    }
    struct env here = { "dataflows/riotbench", log };
    struct spec_env env = { .user = &here, .file = read_file, .partitions = topic_partitions };
    struct plan_cut cut = { .id = 1 };
    if (spec_parse(&s, path, text, strlen(text), &env, a, &es, NULL) < 0 ||
        plan_submit(p, &s, &cut, NULL, &es) < 0)
        load_die(path, &es.v[0]);
}

/* ---- through the log ---- */

void load_topic(struct log *log, const char *name, uint32_t partitions) {
    struct log_topic_conf conf = { .partitions = partitions, .retention_bytes = -1 };
    struct err e = ERR_INIT;
    struct log_topic_info info;
    if (log_topic_info(log, name, &info, NULL) < 0 && log_topic_create(log, name, &conf, &e) < 0)
        load_die(name, &e);
}

void load_open(struct load *g, uint32_t lanes) {
    struct err e = ERR_INIT;
    *g = (struct load){ .dir = "build/bench/log-XXXXXX" };
    if (!mkdtemp(g->dir))
        load_die("mkdtemp", NULL);
    struct log_conf lc = { .dir = g->dir };
    if (log_open(&g->log, &lc, &e) < 0)
        load_die("log", &e);
    struct executor_conf xc = { .log = g->log, .lanes = lanes };
    if (executor_new(&g->x, &xc, &e) < 0)
        load_die("executor", &e);
    g->plan = plan_new();
}

void load_close(struct load *g) {
    executor_free(g->x);
    log_close(g->log);
    plan_free(g->plan);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", g->dir);
    if (system(cmd) != 0)
        exit(1);
}

void load_fill(struct load *g, const char *name, uint32_t partitions, const struct load_input *in,
               int64_t records) {
    struct err e = ERR_INIT;
    load_topic(g->log, name, partitions);
    for (int64_t done = 0; done < records;) {
        struct log_epoch *ep = log_epoch_begin(g->log);
        for (int k = 0; k < 32; k++, done += LOAD_BLOCK) {
            const struct log_rows *r = &in->block[(done / LOAD_BLOCK) % in->n];
            struct log_buf *b = log_buf_new();
            uint32_t start = 0;
            for (uint32_t i = 0; i < r->n; i++) {
                memcpy(log_buf_room(b, r->value_end[i] - start), r->values + start,
                       r->value_end[i] - start);
                log_buf_end(b, r->value_end[i] - start);
                start = r->value_end[i];
            }
            log_buf_seal(b);
            log_epoch_append(ep, name, (uint32_t)(done / LOAD_BLOCK) % partitions, b, 1800000000000,
                             NULL);
            log_buf_unref(b);
        }
        if (log_commit_wait(ep, NULL, &e) != LOG_COMMITTED)
            load_die("fill", &e);
    }
}

double load_seconds(void) {
    const char *env = getenv("BENCH_SECONDS");
    double s;
    return env && num_f64_whole(env, env + strlen(env), &s) == 0 ? s : 10;
}
