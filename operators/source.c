/* source: where records come in. Its stages: read [-> *_decode -> time]; and the stage `time`. */
#include "operators/source.h"
#include "engine/log_rows.h"
#include "engine/num.h"
#include "engine/record.h"
#include "operators/csv_parse.h"
#include "operators/decode_stage.h"
#include "operators/rows.h"

enum { FORMAT_RAW, FORMAT_CSV, FORMAT_JSON, FORMAT_SENML, FORMAT_BATCH };
struct source_config {
    const char *topic;
    int format;
    struct start start;
    struct strs meta;
    const struct schema *schema;
    struct csv_params csv;
    struct time_params time;
};

static const char *const format_words[] = { "raw", "csv", "json", "senml", "batch", NULL };
#define META_PARAM(T)                                                                              \
    {                                                                                              \
        .name = "meta", .type = PT_STRS, .flags = PARAM_OPTIONAL, .offset = offsetof(T, meta),     \
        .doc =                                                                                     \
            "Fields to add that tell what a record has beside its value: `_key` and "              \
            "`_header.NAME` (strings; null: none, or no UTF-8), `_key_bytes`, `_time` (ms: given " \
            "by its writer, else when it was appended), `_headers` (a JSON object), `_offset`, "   \
            "`_partition`, `_tombstone` (the value is null; the fields of the schema then are, "   \
            "too, and without `meta` the record is a dead letter)."                                \
    }
static const struct param source_params[] = {
    { .name = "topic",
      .type = PT_STR,
      .offset = offsetof(struct source_config, topic),
      .doc = "Topic to read." },
    { .name = "format",
      .type = PT_ENUM,
      .offset = offsetof(struct source_config, format),
      .def = "\"raw\"",
      .words = format_words,
      .doc = "What its records are: `csv`, `json`, `senml`; `raw` gives one field `value` with the "
             "record's bytes, to be parsed by a task below. `batch` is not supported yet." },
    { .name = "schema",
      .type = PT_SCHEMA,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct source_config, schema),
      .doc = "Fields and their types, or the name of a file in RIoTBench's three-line form. "
             "Required unless the format is `raw`." },
    { .name = "start",
      .type = PT_START,
      .class = PARAM_ATTACH,
      .offset = offsetof(struct source_config, start),
      .def = "\"latest\"",
      .doc = "Where reading begins: with records to come (`latest`), with the oldest (`earliest`), "
             "with the first that was appended at or after a time (`{\"time\": "
             "\"2026-01-31T08:00:00Z\"}`, or ms since 1970), or at an offset (`{\"offset\": "
             "17}`) of a topic with one partition." },
    META_PARAM(struct source_config),
    TIME_PARAMS(struct source_config, time),
    CSV_PARAMS(struct source_config, csv),
    { .name = NULL },
};
static const struct param read_params[] = {
    { .name = "topic",
      .type = PT_STR,
      .offset = offsetof(struct read_config, topic),
      .doc = "Topic to read." },
    { .name = "start",
      .type = PT_START,
      .class = PARAM_ATTACH,
      .offset = offsetof(struct read_config, start),
      .def = "\"latest\"",
      .doc = "Where reading begins." },
    META_PARAM(struct read_config),
    { .name = NULL },
};
static const char *const base_words[] = { "field", "record", "log", NULL };
static const struct param time_stage_params[] = {
    { .name = "base",
      .type = PT_ENUM,
      .offset = offsetof(struct time_config, base),
      .words = base_words,
      .def = "\"log\"",
      .doc = "Where event time comes from." },
    { .name = "time",
      .type = PT_TIME,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct time_config, time),
      .doc = "Field and unit." },
    { .name = "lateness",
      .type = PT_DURATION,
      .flags = PARAM_LIVE, /* the state is the latest time, whatever is made of it */
      .offset = offsetof(struct time_config, lateness),
      .def = "\"0s\"",
      .doc = "Watermark = latest time - lateness." },
    { .name = "idle",
      .type = PT_DURATION,
      .flags = PARAM_OPTIONAL | PARAM_LIVE,
      .offset = offsetof(struct time_config, idle),
      .doc = "When the source counts as idle." },
    { .name = "max_ahead",
      .type = PT_DURATION,
      .flags = PARAM_LIVE,
      .offset = offsetof(struct time_config, max_ahead),
      .def = "\"1d\"",
      .doc = "How far event time may be ahead of log time." },
    { .name = NULL },
};

void time_lower(struct op_lower *l, const struct time_params *p, int base) {
    struct time_config *t = l->stage(l, "time");
    t->time = p->time;
    t->base = p->time.field ? TIME_FIELD : base;
    t->lateness = p->lateness;
    t->idle = p->idle;
    t->max_ahead = p->max_ahead;
}

const char *time_params_given(const struct time_params *p) {
    return p->time.field              ? "time"
           : p->lateness != 0         ? "lateness"
           : p->idle != PARAM_UNSET   ? "idle"
           : p->max_ahead != 86400000 ? "max_ahead"
                                      : NULL;
}
static void source_lower(struct op_lower *l) {
    const struct source_config *c = l->config;
    static const char *const decode[] = { NULL, "csv_decode", "json_decode", "senml_decode" };
    if (c->format == FORMAT_BATCH) {
        l->report(l, "format", NULL,
                  "format batch is not supported yet: use raw, csv, json or senml");
        return;
    }
    if (c->format == FORMAT_RAW && time_params_given(&c->time)) {
        l->report(l, time_params_given(&c->time), NULL,
                  "a raw source has no event time: give this to the parse task below");
        return;
    }
    if (c->format == FORMAT_RAW && c->schema) {
        l->report(l, "schema", NULL,
                  "a raw source has no fields: give the schema to the parse "
                  "task below");
        return;
    }
    if (c->format != FORMAT_CSV && csv_params_given(&c->csv)) {
        l->report(l, csv_params_given(&c->csv), NULL, "only format csv has this parameter");
        return;
    }
    if (c->format != FORMAT_RAW && !decode_lower_check(l, c->schema, format_words[c->format]))
        return;
    if (c->format == FORMAT_CSV && !csv_lower_check(l, &c->csv))
        return;
    for (int i = 0; c->schema && i < c->meta.n; i++)
        if (schema_find(c->schema, c->meta.v[i]) >= 0) {
            l->report(l, "meta", c->meta.v[i], "the schema has a field of this name, too");
            return;
        }
    struct read_config *r = l->stage(l, "read");
    r->topic = c->topic;
    r->start = c->start;
    r->meta = c->meta;
    if (c->format == FORMAT_RAW)
        return;
    struct decode_config *d = l->stage(l, decode[c->format]);
    d->schema = c->schema; /* `field` has its default, `value` */
    d->keep = c->meta;
    if (c->format == FORMAT_CSV)
        ((struct csv_decode_config *)d)->csv = c->csv;
    time_lower(l, &c->time, c->format == FORMAT_SENML ? TIME_RECORD : TIME_LOG);
}
const struct op_desc op_source = {
    .name = "source",
    .doc = "Reads a topic. With a format it also decodes the records, sets event times and "
           "watermarks; a raw source leaves that to a parse task below, and both spellings share "
           "the same running tasks.",
    .example = "{\"topic\": \"sys\", \"format\": \"senml\", \"schema\": {\"source\": \"string\", "
               "\"temperature\": \"f64\"}, \"lateness\": \"5s\"}",
    .semantics = 1,
    .params = source_params,
    .config_size = sizeof(struct source_config),
    .flags = OP_DETERMINISTIC | OP_SOURCE | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .lower = source_lower,
};

static void read_plan(struct op_plan *p) {
    const struct read_config *c = p->config;
    struct field *f;
    p->out[0] = schema_new(p->arena, 1 + c->meta.n, &f);
    f[0] = (struct field){ .name = "value", .type = TYPE_BYTES };
    for (int i = 0; i < c->meta.n; i++) {
        const char *name = c->meta.v[i];
        f[1 + i] = (struct field){ .name = name, .type = record_column_type(name) };
        if (f[1 + i].type == TYPE_COUNT)
            plan_error(p, "meta", name, "'%.60s' is none of %s", name, record_column_names);
        for (int k = 0; k < i; k++)
            if (strcmp(c->meta.v[k], name) == 0)
                plan_error(p, "meta", name, "'%.60s' is given twice", name);
    }
}
const struct op_desc op_read = {
    .name = "read",
    .doc = "Stage of `source`: records of a topic in order of their offsets, a field `value` and "
           "those of `meta`.",
    .semantics = 1,
    .params = read_params,
    .config_size = sizeof(struct read_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_SOURCE,
    .memory = MEMORY_NONE,
    .plan = read_plan,
};

/* ---- time ---- */

struct time_self {
    int field;
    enum type type;
    struct state *state; /* "" -> int64: latest event time so far */
    int64_t max, before; /* its value now; before this tick */
    bool idle;           /* no records for a while; said again after an undo or a restart */
    /* This tick: event time of the rows that moved the watermark, in order. */
    uint32_t n;
    int64_t *off, *time;
    int64_t pos, pos_max; /* the last position and the latest time before it */
};

static void time_plan(struct op_plan *p) {
    const struct time_config *c = p->config;
    p->out[0] = p->in[0];
    if (c->base == TIME_FIELD)
        plan_field(p, 0, "time", "field", c->time.field,
                   c->time.unit == TIME_RFC3339 ? TYPE_BIT(TYPE_STR) : TYPES_NUM);
}
static void time_rebuild(void *self, struct op_ctx *c) {
    struct time_self *s = self;
    const int64_t *v = state_find(s->state, "", 0, state_hash("", 0));
    (void)c;
    s->max = v ? *v : TIME_MIN;
    s->before = s->pos_max = s->max;
    s->pos = INT64_MIN;
    s->n = 0;
    s->idle = false;
}
static int time_open(void *self, struct op_ctx *c, struct err *e) {
    struct time_self *s = self;
    const struct time_config *conf = c->config;
    (void)e;
    s->state = op_state(c, 0, sizeof(int64_t));
    if (conf->base == TIME_FIELD) {
        s->field = schema_find(c->in[0], conf->time.field);
        s->type = c->in[0]->f[s->field].type;
    }
    time_rebuild(self, c);
    return 0;
}
static int64_t log_time(const struct origin *o, int64_t off) {
    if (!o || !o->log_time || off < o->off0 || off >= o->off0 + o->n)
        return TIME_MIN;
    return o->log_time[off - o->off0];
}
/* The time that the record's writer gave it, or TIME_MIN (which LOG_NO_TIME is). */
static int64_t own_time(const struct origin *o, int64_t off) {
    if (!o || !o->own_time || off < o->off0 || off >= o->off0 + o->n)
        return TIME_MIN;
    return o->own_time[off - o->off0];
}
static bool tombstone(const struct origin *o, int64_t off) {
    return o && o->raw && off >= o->off0 && off < o->off0 + o->n && !o->raw[off - o->off0].p;
}
/* The event time of a row, or a dead letter. */
static bool row_time(struct time_self *s, struct op_ctx *c, const struct batch *b, uint32_t row,
                     int64_t *ms) {
    const struct time_config *conf = c->config;
    int64_t off = batch_off(b, row), logged = log_time(b->origin, off);
    if (conf->base == TIME_FIELD && !tombstone(b->origin, off)) {
        const struct column *col = &b->cols[s->field];
        if (column_null(col, row)) {
            op_reject(c, b, row, "no_time", "the time field '%.60s' is null", conf->time.field);
            return false;
        }
        if (!time_cell(conf->time.unit, s->type, col, row, ms)) {
            op_reject(c, b, row, "bad_time", "field '%.60s' holds no time", conf->time.field);
            return false;
        }
    } else {
        *ms = conf->base == TIME_RECORD && b->time ? b->time[row] : TIME_MIN;
        if (*ms == TIME_MIN)
            *ms = own_time(b->origin, off);
        if (*ms == TIME_MIN)
            *ms = logged;
        if (*ms == TIME_MIN) {
            op_reject(c, b, row, "no_time", "neither the record nor the log has a time");
            return false;
        }
    }
    if (logged != TIME_MIN && *ms - logged > conf->max_ahead) {
        char at[NUM_TIME_MAX_LEN + 1], log[NUM_TIME_MAX_LEN + 1];
        at[time_write(at, *ms)] = 0;
        log[time_write(log, logged)] = 0;
        op_reject(c, b, row, "too_far_ahead", "event time %s is too far ahead of its log time %s",
                  at, log);
        return false;
    }
    return true;
}
static int64_t watermark(const struct time_config *c, int64_t max) {
    return max == TIME_MIN ? TIME_MIN : max - c->lateness;
}
/* ~4 ns a row. */
static void time_process(void *self, struct op_ctx *c, int port, const struct batch *b) {
    struct time_self *s = self;
    const struct time_config *conf = c->config;
    int64_t *time = ARENA_ARRAY(c->arena, int64_t, b->rows);
    int64_t *wm = ARENA_ARRAY(c->arena, int64_t, b->rows);
    uint64_t drop[BATCH_ROWS / 64];
    uint32_t dropped = 0, n = s->n;
    int64_t *off = ARENA_ARRAY(c->arena, int64_t, n + b->n);
    int64_t *max = ARENA_ARRAY(c->arena, int64_t, n + b->n);
    (void)port;
    if (n) { /* an earlier batch of this tick */
        memcpy(off, s->off, n * sizeof *off);
        memcpy(max, s->time, n * sizeof *max);
    }
    memset(drop, 0, sizeof drop);
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t row = batch_row(b, i);
        int64_t at = batch_off(b, row);
        if (!row_time(s, c, b, row, &time[row])) {
            bit_set(drop, row);
            dropped++;
            continue;
        }
        if (at != s->pos) { /* rows of one position see the watermark before all of them */
            s->pos_max = s->max;
            s->pos = at;
        }
        wm[row] = watermark(conf, s->pos_max);
        if (time[row] > s->max)
            s->max = time[row];
        off[n] = at;
        max[n++] = s->max;
    }
    s->n = n;
    s->off = off;
    s->time = max;
    struct batch *out = batch_copy(c->arena, b);
    out->time = time;
    out->wm = wm;
    c->count->passed += b->n - dropped;
    op_emit(c, 0, dropped ? rows_without(c->arena, out, drop) : out);
}
static int64_t time_idle(const void *config) {
    const struct time_config *c = config;
    return c->idle == PARAM_UNSET ? INT64_MAX : c->idle;
}
/* The timeline of all rows the source handed in, also of those that were rejected above. */
static void time_end(void *self, struct op_ctx *c) {
    struct time_self *s = self;
    const struct time_config *conf = c->config;
    const struct origin *in = c->origin;
    if (in) {
        s->idle = in->n == 0 && (s->idle || (in->silent_ms && in->silent_ms >= time_idle(conf)));
        struct origin *o = ARENA_NEW(c->arena, struct origin);
        int64_t *wm = ARENA_ARRAY(c->arena, int64_t, in->n + 1), max = s->before;
        for (uint32_t i = 0, k = 0; i < in->n; i++) {
            int64_t at = in->at ? in->at[i] : in->off0 + i;
            for (; k < s->n && s->off[k] <= at; k++)
                max = s->time[k];
            wm[i] = watermark(conf, max);
        }
        *o = *in;
        o->wm = wm;
        o->wm_before = watermark(conf, s->before);
        o->idle = s->idle;
        c->out_origin = o;
    }
    if (s->max != s->before) {
        int64_t *v = state_edit(s->state, "", 0, state_hash("", 0), NULL);
        *v = s->max;
    }
    s->before = s->max;
    s->n = 0;
}
const struct op_desc op_time = {
    .name = "time",
    .doc = "Stage of `source` and of the parse tasks: sets event times and watermarks.",
    .semantics = 1,
    .state_version = 1,
    .params = time_stage_params,
    .config_size = sizeof(struct time_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_ORDERED | OP_SETS_TIME,
    .memory = MEMORY_UNBOUNDED,
    .plan = time_plan,
    .self_size = sizeof(struct time_self),
    .idle = time_idle,
    .open = time_open,
    .process = time_process,
    .end = time_end,
    .rebuild = time_rebuild,
};
