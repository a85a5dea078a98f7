#include "cluster/dataset.h"
#include "cluster/splitter.h"
#include "cluster/template.h"
#include "engine/arena.h"
#include "engine/num.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define NO_ID UINT32_MAX

/* A record taken apart. `tpl.holes` points into `holes` of the dataset or the scratch array. */
struct line {
    struct template tpl;
    int64_t time; /* DATASET_NO_TIME */
    uint32_t id;  /* number of its id, or NO_ID */
};
struct name {
    const char *p;
    uint32_t len;
};
struct pending { /* a record waiting in the shuffle window */
    int64_t pass;
    uint32_t line;
};
struct dataset {
    struct dataset_conf conf;
    char path[4096];
    bool timed, known_format;
    struct splitter in;
    struct arena arena; /* ids */

    /* held in memory: all records, in the splitter's buffer; else nlines is 0 */
    bool loaded;
    struct line *lines;
    struct hole *holes;
    uint32_t nlines;

    struct hole scratch[TEMPLATE_HOLES_MAX];
    struct line current;

    char key[UINT16_MAX + 32]; /* of the record that was given last */
    struct name *ids;
    uint32_t nids, cap_ids;
    uint32_t *table; /* open addressing over ids: number + 1; cap_ids * 2 slots */

    /* the file's length in time, from its first pass */
    int64_t first, last, prev, step;
    int64_t before; /* time of the line before this one */
    bool length_known;

    int64_t pass, index, seq; /* the next record to take, to hand out */
    int64_t now;              /* highest time taken so far, moved; DATASET_NO_TIME before any */
    int64_t start;            /* the first such time */
    int64_t due;              /* of the last record */
    uint64_t random;

    struct pending *window;
    int64_t *dues; /* ring of due times in order of recording */
    uint32_t nwindow;

    char *out;
    uint32_t cap_out;
};

/* ---- ids ---- */

static void ids_grow(struct dataset *ds) {
    ds->cap_ids = ds->cap_ids ? ds->cap_ids * 2 : 1024;
    ds->ids = realloc(ds->ids, ds->cap_ids * sizeof *ds->ids);
    free(ds->table);
    ds->table = calloc((size_t)ds->cap_ids * 2, sizeof *ds->table);
    if (!ds->ids || !ds->table)
        abort();
    uint32_t mask = ds->cap_ids * 2 - 1;
    for (uint32_t i = 0; i < ds->nids; i++) {
        uint32_t at = (uint32_t)XXH3_64bits(ds->ids[i].p, ds->ids[i].len) & mask;
        while (ds->table[at])
            at = (at + 1) & mask;
        ds->table[at] = i + 1;
    }
}
/* The number of an id; new ones are numbered in order. */
static int id_number(struct dataset *ds, const char *p, uint32_t len, uint32_t *id, struct err *e) {
    if (ds->nids == ds->cap_ids)
        ids_grow(ds);
    uint32_t mask = ds->cap_ids * 2 - 1;
    uint32_t at = (uint32_t)XXH3_64bits(p, len) & mask;
    for (; ds->table[at]; at = (at + 1) & mask) {
        const struct name *n = &ds->ids[ds->table[at] - 1];
        if (n->len == len && memcmp(n->p, p, len) == 0) {
            *id = ds->table[at] - 1;
            return 0;
        }
    }
    if (ds->nids == DATASET_IDS_MAX)
        return err_set(e, ERR_INPUT, "%s has more than %d distinct ids in \"%s\"", ds->path,
                       DATASET_IDS_MAX, ds->conf.id_field);
    ds->ids[ds->nids] = (struct name){ arena_strndup(&ds->arena, p, len), len };
    ds->table[at] = ++ds->nids;
    *id = ds->nids - 1;
    return 0;
}
/* Which key number id d takes in a pass. While the first pass runs D may still grow, but then every
 * id takes its own number (or folds), so it is not needed. */
static int64_t key_number(const struct dataset *ds, uint32_t id, int64_t pass) {
    int64_t k = ds->conf.keys, d = ds->nids;
    if (id >= k)
        return id % k;
    int64_t choices = (k - id + d - 1) / d;
    return id + pass % choices * d;
}
int dataset_key(const struct dataset *ds, int64_t k, char *out, int size) {
    if (!ds->nids || k < 0)
        return -1;
    const struct name *n = &ds->ids[k % ds->nids];
    int64_t suffix = k / ds->nids;
    if (size < 0 || (uint64_t)size < (uint64_t)n->len + 1 + NUM_I64_MAX_LEN)
        return -1;
    memcpy(out, n->p, n->len);
    int len = (int)n->len;
    if (suffix) {
        out[len++] = '-';
        len += num_write_i64(out + len, suffix);
    }
    return len;
}

/* ---- lines ---- */

/* Splits "epoch_ms,record". */
static bool split_time(const char *p, uint32_t len, int64_t *ms, uint32_t *skip) {
    const char *comma = memchr(p, ',', len < 21 ? len : 21);
    if (!comma || num_i64_whole(p, comma, ms) != 0)
        return false;
    *skip = (uint32_t)(comma - p) + 1;
    return true;
}
/* The time that a record itself tells: its `bt`, else its first date. */
static int64_t own_time(const struct template *t) {
    if (t->has_bt)
        return t->bt;
    for (int i = 0; i < t->n; i++)
        if (t->holes[i].kind == HOLE_DATE)
            return t->holes[i].value;
    return DATASET_NO_TIME;
}
static int parse_line(struct dataset *ds, const char *p, uint32_t len, struct hole *holes,
                      struct line *l, struct err *e) {
    int64_t epoch = DATASET_NO_TIME;
    uint32_t skip = 0;
    bool split = ds->conf.lines != DATASET_PLAIN && split_time(p, len, &epoch, &skip);
    if (!ds->known_format) {
        ds->timed = ds->conf.lines == DATASET_TIMED || (split && epoch >= TEMPLATE_EPOCH_MIN);
        ds->known_format = true;
    }
    if (!split || !ds->timed)
        epoch = DATASET_NO_TIME, skip = 0;
    bool bad = ds->timed && !split; /* passed on as it is, times and all */
    template_find(&l->tpl, p + skip, bad ? 0 : len - skip, ds->conf.csv, epoch, ds->conf.id_field,
                  holes);
    l->tpl.len = len - skip;
    l->time = ds->timed ? (bad ? ds->before : epoch) : own_time(&l->tpl);
    ds->before = l->time;
    l->id = NO_ID;
    if (ds->conf.keys && l->tpl.id >= 0) {
        const struct hole *h = &l->tpl.holes[l->tpl.id];
        return id_number(ds, l->tpl.text + h->off, h->len, &l->id, e);
    }
    return 0;
}
/* Takes note of a time of the first pass, for the file's length. */
static void measure(struct dataset *ds, int64_t time) {
    if (time == DATASET_NO_TIME)
        return;
    if (ds->prev == DATASET_NO_TIME) {
        ds->first = ds->last = time;
    } else if (time > ds->prev) {
        int64_t step;
        if (!__builtin_sub_overflow(time, ds->prev, &step) && (!ds->step || step < ds->step))
            ds->step = step;
    }
    ds->first = time < ds->first ? time : ds->first;
    ds->last = time > ds->last ? time : ds->last;
    ds->prev = time;
}
int64_t dataset_length_ms(const struct dataset *ds) {
    int64_t span;
    if (!ds->length_known)
        return -1;
    if (ds->prev == DATASET_NO_TIME)
        return 0;
    if (__builtin_sub_overflow(ds->last, ds->first, &span) ||
        __builtin_add_overflow(span, ds->step ? ds->step : 1000, &span))
        return INT64_MAX;
    return span;
}

/* ---- opening ---- */

static const struct {
    const char *name, *file, *id;
} samples[] = {
    { "sys", "SYS_sample_data_senml.csv", "source" },
    { "taxi", "TAXI_sample_data_senml.csv", "taxi_identifier" },
    { "fit", "FIT_sample_data_senml.csv", "subjectId" },
};
/* The samples lie in the repository: below the working directory or above the program's. */
static int sample_path(const char *file, char *path, size_t size) {
    static const char dir[] = "dataflows/riotbench/data";
    snprintf(path, size, "%s/%s", dir, file);
    if (access(path, R_OK) == 0)
        return 0;
    char exe[2048];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    for (char *slash; (slash = strrchr(exe, '/'));) {
        *slash = 0;
        snprintf(path, size, "%s/%s/%s", exe, dir, file);
        if (access(path, R_OK) == 0)
            return 0;
    }
    return -1;
}
static int resolve(struct dataset *ds, struct err *e) {
    const struct dataset_conf *c = &ds->conf;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        if (strcmp(c->source, samples[i].name) != 0)
            continue;
        if (!c->id_field)
            ds->conf.id_field = samples[i].id;
        if (sample_path(samples[i].file, ds->path, sizeof ds->path) == 0)
            return 0;
        return err_set(e, ERR_NOTFOUND,
                       "dataset \"%s\": no dataflows/riotbench/data/%s here or above the program",
                       c->source, samples[i].file);
    }
    if ((size_t)snprintf(ds->path, sizeof ds->path, "%s", c->source) >= sizeof ds->path)
        return err_set(e, ERR_INPUT, "the name of the dataset is too long");
    return 0;
}
static int check_conf(const struct dataset_conf *c, struct err *e) {
    if (c->loop < 0 || c->keys < 0 || c->keys > DATASET_KEYS_MAX || c->jitter_ms < 0 ||
        c->shuffle > DATASET_SHUFFLE_MAX || c->cache_bytes < 0)
        return err_set(e, ERR_INPUT, "loop, keys, shuffle or jitter is out of range");
    if (!(c->rate >= 0) || !(c->speed >= 0) || isinf(c->rate) || isinf(c->speed))
        return err_set(e, ERR_INPUT, "rate and speed must be positive numbers");
    if (c->rate > 0 && c->speed > 0)
        return err_set(e, ERR_INPUT, "either rate or speed, not both");
    return 0;
}
/* The whole file and the template of each record; leaves ds->loaded false when it is too much. */
static int load(struct dataset *ds, size_t size, struct err *e) {
    int rc = splitter_load(&ds->in, size, e);
    uint64_t n = rc > 0 ? splitter_lines(&ds->in) + 1 : 0;
    if (rc < 0)
        return rc;
    if (rc == 0 || n > DATASET_LINES_MAX)
        return splitter_rewind(&ds->in, e);
    ds->lines = malloc(n * sizeof *ds->lines);
    if (!ds->lines)
        abort();
    size_t nholes = 0, cap = 0;
    const char *p;
    uint32_t len;
    while ((rc = splitter_next(&ds->in, &p, &len, e)) > 0) {
        if (nholes + TEMPLATE_HOLES_MAX > cap) {
            cap = cap ? cap * 2 : 4 * TEMPLATE_HOLES_MAX;
            ds->holes = realloc(ds->holes, cap * sizeof *ds->holes);
            if (!ds->holes)
                abort();
        }
        struct line *l = &ds->lines[ds->nlines++];
        rc = parse_line(ds, p, len, ds->holes + nholes, l, e);
        if (rc)
            return rc;
        nholes += (size_t)l->tpl.n;
        measure(ds, l->time);
    }
    struct hole *h = ds->holes; /* the array has moved while it grew */
    for (uint32_t i = 0; i < ds->nlines; h += ds->lines[i++].tpl.n)
        ds->lines[i].tpl.holes = h;
    ds->loaded = ds->length_known = true;
    return rc;
}
static int no_times(const struct dataset *ds, struct err *e) {
    return err_set(e, ERR_INPUT, "%s has no times: replay it by rate, not by speed", ds->path);
}
static int prepare(struct dataset *ds, struct err *e) {
    struct dataset_conf *c = &ds->conf;
    int rc = check_conf(c, e);
    if (!rc)
        rc = resolve(ds, e);
    if (rc)
        return rc;
    if (c->keys && !c->id_field)
        return err_set(e, ERR_INPUT,
                       "keys need the name of the id field (or the number of the "
                       "column) of %s",
                       ds->path);
    ds->in.fd = strcmp(ds->path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                           : open(ds->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (ds->in.fd < 0 || fstat(ds->in.fd, &st) != 0) {
        rc = errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM;
        err_errno(e, errno, "cannot open %s", ds->path);
        if (e)
            e->code = rc;
        return rc;
    }
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_INPUT, "%s is a directory", ds->path);
    bool file = S_ISREG(st.st_mode);
    if (file && st.st_size <= (c->cache_bytes ? c->cache_bytes : DATASET_CACHE)) {
        rc = load(ds, (size_t)st.st_size, e);
        if (rc)
            return rc;
    }
    if (!file && c->loop > 1)
        return err_set(e, ERR_INPUT, "%s is not a regular file and cannot be repeated", ds->path);
    if (ds->nlines && c->speed > 0 && ds->prev == DATASET_NO_TIME)
        return no_times(ds, e);
    if (!ds->loaded && c->shuffle > 1)
        return err_set(e, ERR_INPUT, "%s is too large to be shuffled", ds->path);
    return 0;
}
int dataset_open(struct dataset **out, const struct dataset_conf *conf, struct err *e) {
    struct dataset *ds = calloc(1, sizeof *ds);
    if (!ds)
        abort();
    ds->conf = *conf;
    ds->conf.loop = conf->loop ? conf->loop : 1;
    ds->in = (struct splitter){ .fd = -1, .path = ds->path, .delimiter = conf->csv };
    ds->prev = ds->now = ds->before = DATASET_NO_TIME;
    ds->random = conf->seed;
    int rc = prepare(ds, e);
    if (rc) {
        dataset_close(ds);
        *out = NULL;
        return rc;
    }
    if (conf->shuffle > 1) {
        ds->window = calloc(conf->shuffle, sizeof *ds->window);
        ds->dues = calloc(conf->shuffle, sizeof *ds->dues);
        if (!ds->window || !ds->dues)
            abort();
    }
    *out = ds;
    return 0;
}
void dataset_close(struct dataset *ds) {
    if (!ds)
        return;
    if (ds->in.fd >= 0)
        close(ds->in.fd);
    arena_free(&ds->arena);
    splitter_free(&ds->in);
    free(ds->lines);
    free(ds->holes);
    free(ds->ids);
    free(ds->table);
    free(ds->window);
    free(ds->dues);
    free(ds->out);
    free(ds);
}
int64_t dataset_total(const struct dataset *ds) {
    int64_t n;
    if (!ds->loaded || ds->conf.loop == DATASET_ENDLESS ||
        __builtin_mul_overflow((int64_t)ds->nlines, ds->conf.loop, &n))
        return -1;
    return n;
}
int64_t dataset_ids(const struct dataset *ds) {
    return ds->nids;
}

/* ---- the schedule ---- */

int64_t dataset_due(double rate, double speed, int64_t n, int64_t elapsed_ms) {
    double ns = 0;
    if (rate > 0)
        ns = (double)n / rate * 1e9;
    else if (speed > 0)
        ns = (double)elapsed_ms / speed * 1e6;
    if (!(ns > 0))
        return 0;
    return ns >= 0x1p63 ? INT64_MAX : (int64_t)ns;
}
static uint64_t next_random(struct dataset *ds) { /* SplitMix64, S. Vigna */
    uint64_t z = (ds->random += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
static int64_t moved(int64_t time, int64_t pass, int64_t length) {
    int64_t by;
    if (time == DATASET_NO_TIME)
        return time;
    if (__builtin_mul_overflow(pass, length, &by) || __builtin_add_overflow(time, by, &by))
        return INT64_MAX;
    return by;
}
/* Due time of the n-th recorded record, of (moved) time `time`. */
static int64_t schedule(struct dataset *ds, int64_t n, int64_t time) {
    if (time != DATASET_NO_TIME) {
        if (ds->now == DATASET_NO_TIME)
            ds->start = ds->now = time;
        ds->now = time > ds->now ? time : ds->now;
    }
    int64_t elapsed = 0;
    if (ds->now != DATASET_NO_TIME && __builtin_sub_overflow(ds->now, ds->start, &elapsed))
        elapsed = INT64_MAX;
    return dataset_due(ds->conf.rate, ds->conf.speed, n, elapsed);
}

/* ---- taking records ---- */

static int stream_line(struct dataset *ds, struct err *e) {
    const char *p = "";
    uint32_t len = 0;
    for (;;) {
        int rc = splitter_next(&ds->in, &p, &len, e);
        if (rc < 0)
            return rc;
        if (rc > 0)
            break;
        ds->length_known = true;
        if (ds->in.records == 0 || ++ds->pass >= ds->conf.loop)
            return 0;
        rc = splitter_rewind(&ds->in, e);
        if (rc)
            return rc;
        ds->before = DATASET_NO_TIME;
    }
    int rc = parse_line(ds, p, len, ds->scratch, &ds->current, e);
    if (rc)
        return rc;
    if (!ds->length_known)
        measure(ds, ds->current.time);
    return 1;
}
/* The next record in order of recording: its line and pass. 1, 0 or negative. */
static int take(struct dataset *ds, struct pending *t, struct err *e) {
    if (!ds->loaded) {
        int rc = stream_line(ds, e);
        *t = (struct pending){ ds->pass, 0 };
        return rc;
    }
    if (ds->index == ds->nlines) {
        ds->index = 0;
        ds->pass++;
    }
    if (ds->pass >= ds->conf.loop || ds->nlines == 0)
        return 0;
    *t = (struct pending){ ds->pass, (uint32_t)ds->index++ };
    return 1;
}
/* Swaps the next record against a random one of the window. */
static int take_shuffled(struct dataset *ds, struct pending *t, int64_t *due, struct err *e) {
    int64_t length = dataset_length_ms(ds);
    while (ds->nwindow < ds->conf.shuffle) {
        struct pending p;
        int rc = take(ds, &p, e);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        int64_t n = ds->seq + ds->nwindow;
        ds->dues[n % ds->conf.shuffle] =
            schedule(ds, n, moved(ds->lines[p.line].time, p.pass, length));
        ds->window[ds->nwindow++] = p;
    }
    if (!ds->nwindow)
        return 0;
    uint32_t i = (uint32_t)(next_random(ds) % ds->nwindow);
    *t = ds->window[i];
    ds->window[i] = ds->window[--ds->nwindow];
    *due = ds->dues[ds->seq % ds->conf.shuffle];
    return 1;
}
static void render(struct dataset *ds, const struct line *l, int64_t pass, int64_t shift,
                   struct dataset_record *r) {
    char *key = ds->key;
    int klen = 0;
    if (l->id != NO_ID) {
        int64_t k = key_number(ds, l->id, pass);
        if (k != l->id)
            klen = dataset_key(ds, k, key, sizeof ds->key);
    }
    r->id = l->tpl.id < 0 ? NULL : klen ? key : l->tpl.text + l->tpl.holes[l->tpl.id].off;
    r->id_len = klen ? (uint32_t)klen : r->id ? l->tpl.holes[l->tpl.id].len : 0;
    r->data = l->tpl.text;
    r->len = l->tpl.len;
    if (!l->tpl.n || (!shift && !klen))
        return;
    uint32_t room = template_room(&l->tpl, (uint32_t)klen);
    if (room > ds->cap_out) {
        ds->cap_out = room * 2;
        free(ds->out);
        ds->out = malloc(ds->cap_out);
        if (!ds->out)
            abort();
    }
    r->data = ds->out;
    r->len = template_render(&l->tpl, shift, klen ? key : NULL, (uint32_t)klen, ds->out);
}
int dataset_next(struct dataset *ds, struct dataset_record *r, struct err *e) {
    struct pending t;
    int64_t due = 0;
    int rc = ds->window ? take_shuffled(ds, &t, &due, e) : take(ds, &t, e);
    if (rc <= 0)
        return rc;
    const struct line *l = ds->loaded ? &ds->lines[t.line] : &ds->current;
    int64_t length = t.pass ? dataset_length_ms(ds) : 0;
    r->seq = ds->seq;
    r->time = moved(l->time, t.pass, length);
    if (!ds->window)
        due = schedule(ds, ds->seq, r->time);
    if (!ds->loaded && ds->conf.speed > 0 && ds->now == DATASET_NO_TIME)
        return no_times(ds, e);
    if (ds->conf.jitter_ms) {
        int64_t late = (int64_t)(next_random(ds) % ((uint64_t)ds->conf.jitter_ms * 1000000 + 1));
        if (__builtin_add_overflow(due, late, &due))
            due = INT64_MAX;
    }
    ds->due = r->due_ns = due > ds->due ? due : ds->due;
    int64_t shift = 0;
    if (__builtin_mul_overflow(t.pass, length, &shift))
        shift = INT64_MAX;
    render(ds, l, t.pass, shift, r);
    ds->seq++;
    return 1;
}
