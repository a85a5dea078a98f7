/* table: a source whose rows replace each other, key by key: what lookup_join looks up. A topic is
 * read from its beginning (read -> decode -> time); a file is a source of its own, table_file.
 *
 * A file's version is its content: the hash is part of the signature, so a file that has changed is
 * another table, taken in by submitting the dataflow again. Its rows are valid from ever to ever;
 * what changes over time belongs into a topic, where each row has a time. */
#include "operators/csv_parse.h"
#include "operators/join_rows.h"
#include "operators/source.h"
#include <stdlib.h>

enum { FORMAT_JSON, FORMAT_CSV };
static const char *const format_words[] = { "json", "csv", NULL };
static const char *const start_words[] = { "latest", "earliest", NULL };

struct table_config {
    const char *topic;
    struct file *file;
    int format;
    const struct schema *schema;
    struct csv_params csv;
    struct time_params time;
};
struct table_file_config {
    struct file *file;
    int format, start;
    const struct schema *schema;
    struct csv_params csv;
};

static const struct param table_params[] = {
    { .name = "topic",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct table_config, topic),
      .doc = "Topic whose records are the table's rows, read from the oldest on: each replaces the "
             "row of its key." },
    { .name = "file",
      .type = PT_FILE,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct table_config, file),
      .doc = "File with one record a line, instead of a topic. Of two rows with one key the later "
             "counts." },
    { .name = "format",
      .type = PT_ENUM,
      .offset = offsetof(struct table_config, format),
      .def = "\"json\"",
      .words = format_words,
      .doc = "What the records are: `json` or `csv`." },
    { .name = "schema",
      .type = PT_SCHEMA,
      .offset = offsetof(struct table_config, schema),
      .doc = "Fields and their types." },
    TIME_PARAMS(struct table_config, time),
    CSV_PARAMS(struct table_config, csv),
    { .name = NULL },
};
static const struct param table_file_params[] = {
    { .name = "file",
      .type = PT_FILE,
      .offset = offsetof(struct table_file_config, file),
      .doc = "File with one record a line." },
    { .name = "format",
      .type = PT_ENUM,
      .offset = offsetof(struct table_file_config, format),
      .def = "\"json\"",
      .words = format_words,
      .doc = "What the records are." },
    { .name = "schema",
      .type = PT_SCHEMA,
      .offset = offsetof(struct table_file_config, schema),
      .doc = "Fields and their types." },
    { .name = "start",
      .type = PT_ENUM,
      .class = PARAM_ATTACH,
      .offset = offsetof(struct table_file_config, start),
      .def = "\"latest\"",
      .words = start_words,
      .doc = "Always the beginning: a reader that comes later needs the whole table." },
    CSV_PARAMS(struct table_file_config, csv),
    { .name = NULL },
};

/* ---- the face ---- */

static void lower_file(struct op_lower *l, const struct table_config *c) {
    static const char no_time[] = "the rows of a file are valid from ever on: this is for topics";
    const char *given = time_params_given(&c->time);
    if (given) {
        l->report(l, given, NULL, no_time);
        return;
    }
    struct table_file_config *f = l->stage(l, "table_file");
    f->file = c->file;
    f->format = c->format;
    f->schema = c->schema;
    f->csv = c->csv;
    f->start = START_EARLIEST;
}

static void table_lower(struct op_lower *l) {
    const struct table_config *c = l->config;
    if (!c->topic == !c->file) {
        l->report(l, c->topic ? "file" : NULL, NULL,
                  c->topic ? "a table is a topic or a file, not both"
                           : "give the table's \"topic\" or \"file\"");
        return;
    }
    if (c->format != FORMAT_CSV && csv_params_given(&c->csv)) {
        l->report(l, csv_params_given(&c->csv), NULL, "only format csv has this parameter");
        return;
    }
    if (!decode_lower_check(l, c->schema, format_words[c->format]) ||
        (c->format == FORMAT_CSV && !csv_lower_check(l, &c->csv)))
        return;
    if (c->file) {
        lower_file(l, c);
        return;
    }
    struct read_config *r = l->stage(l, "read");
    r->topic = c->topic;
    r->start.at = START_EARLIEST;
    struct decode_config *d = l->stage(l, c->format == FORMAT_CSV ? "csv_decode" : "json_decode");
    d->schema = c->schema;
    if (c->format == FORMAT_CSV)
        ((struct csv_decode_config *)d)->csv = c->csv;
    time_lower(l, &c->time, TIME_LOG);
}

const struct op_desc op_table = {
    .name = "table",
    .doc =
        "A source whose rows replace each other by key, for `lookup_join`: a topic, read from its "
        "oldest record on, in which a row is valid from its event time until the next one of its "
        "key; or a file, whose rows are valid always. A file's version is its content at submit: "
        "when it has changed, submit the dataflow again (`replace`). Dataflows share a table "
        "together "
        "with the joins that have read it; whoever else comes later reads it from its beginning.",
    .example = "{\"topic\": \"prices\", \"schema\": {\"id\": \"string\", \"price\": \"f64\"}}",
    .semantics = 1,
    .params = table_params,
    .config_size = sizeof(struct table_config),
    .flags = OP_DETERMINISTIC | OP_SOURCE | OP_SETS_TIME | OP_TABLE,
    .memory = MEMORY_NONE,
    .lower = table_lower,
};

/* ---- table_file ---- */

struct table_lines { /* the records of a file */
    struct decoder *decoder;
    struct span *v;
    int64_t n;
};

static struct decoder *file_decoder(const struct table_file_config *c) {
    struct decode_csv csv = { .columns = &c->csv.columns,
                              .delimiter = c->csv.delimiter[0],
                              .header = c->csv.header };
    return decoder_new(c->format == FORMAT_CSV ? DECODE_CSV : DECODE_JSON, c->schema, &csv);
}

static void lines_free(struct table_lines *t) {
    if (t->decoder)
        decoder_free(t->decoder);
    free(t->v);
    *t = (struct table_lines){ 0 };
}

/* Decodes every line once, so that a bad one is an error of the file and not of a later tick. */
static int lines_read(struct table_lines *t, const struct table_file_config *c, struct err *e) {
    const struct file *f = c->file;
    const char *end = f->data + f->len;
    struct arena a = { 0 };
    int64_t lines = 1, line = 0;
    int rc = 0;
    for (const char *p = f->data; p && p < end; p++)
        lines += *p == '\n';
    *t = (struct table_lines){ .decoder = file_decoder(c),
                               .v = calloc((size_t)lines, sizeof *t->v) };
    if (!t->v)
        abort();
    for (const char *p = f->data, *next; p < end && rc >= 0; p = next) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        struct decode_rows rows;
        struct decode_error de;
        next = nl ? nl + 1 : end;
        line++;
        stop -= stop > p && stop[-1] == '\r';
        if (stop == p)
            continue;
        decode_rows_begin(&rows, &a, c->schema, 1, false);
        rc = decode_record(t->decoder, p, (uint32_t)(stop - p), &rows, 0, &de);
        if (rc < 0)
            rc = err_set(e, ERR_INPUT, "table '%s' line %lld: %s", f->name, (long long)line,
                         de.text);
        else if (rc == 0)
            t->v[t->n++] = (struct span){ p, (uint32_t)(stop - p), 0 };
        arena_reset(&a);
    }
    arena_free(&a);
    if (rc >= 0 && t->n == 0)
        rc = err_set(e, ERR_INPUT, "table '%s' has no rows", f->name);
    return rc < 0 ? rc : 0;
}

static void table_file_plan(struct op_plan *p) {
    const struct table_file_config *c = p->config;
    struct table_lines t;
    struct err e = ERR_INIT;
    p->out[0] = c->schema;
    if (!c->file->data)
        return;
    if (lines_read(&t, c, &e) < 0)
        plan_error(p, "file", NULL, "%s", e.text);
    lines_free(&t);
}

static int table_file_open(void *self, struct op_ctx *x, struct err *e) {
    return lines_read(self, x->config, e);
}

static void table_file_close(void *self) {
    lines_free(self);
}

/* The watermark stays at the beginning until the whole table has been read; then nothing more will
 * come, which is not the end of the stream for those below. */
static uint32_t table_file_pull(void *self, struct op_ctx *x, int64_t off, uint32_t max,
                                struct batch *b, struct origin *o) {
    struct table_lines *t = self;
    uint32_t n = off >= t->n ? 0 : t->n - off < max ? (uint32_t)(t->n - off) : max;
    struct decode_rows rows;
    struct decode_error e;
    int64_t *time = ARENA_ARRAY(x->arena, int64_t, n + 1);
    int64_t *wm = ARENA_ARRAY(x->arena, int64_t, n + 1);
    decode_rows_begin(&rows, x->arena, x->out[0], n ? n : 1, false);
    for (uint32_t i = 0; i < n; i++) {
        decode_record(t->decoder, t->v[off + i].p, t->v[off + i].len, &rows, i, &e);
        time[i] = -WINDOW_TIME_MAX;
        wm[i] = TIME_MIN;
    }
    wm[n] = off + n == t->n ? TIME_MAX - 1 : TIME_MIN;
    *b = (struct batch){ .schema = x->out[0],
                         .cols = decode_rows_end(&rows),
                         .rows = n,
                         .n = n,
                         .off0 = off,
                         .time = time,
                         .wm = wm,
                         .origin = o };
    *o = (struct origin){ .off0 = off, .n = n, .wm = wm + 1, .wm_before = TIME_MIN };
    return n;
}

static void table_file_process(void *self, struct op_ctx *x, int port, const struct batch *b) {
    (void)self; /* rows come from pull; a source has no in-port */
    x->count->passed += b->n;
    op_emit(x, port, b);
}

const struct op_desc op_table_file = {
    .name = "table_file",
    .doc = "Stage of `table`: the records of a file as rows that are valid always.",
    .semantics = 1,
    .params = table_file_params,
    .config_size = sizeof(struct table_file_config),
    .flags = OP_DETERMINISTIC | OP_INNER | OP_SOURCE | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .plan = table_file_plan,
    .self_size = sizeof(struct table_lines),
    .open = table_file_open,
    .pull = table_file_pull,
    .process = table_file_process,
    .close = table_file_close,
};
