/* sink: where rows go out. Its stages: encode_json | encode_csv | encode_senml | encode_raw, then
 * append | write_file | discard. */
#include "operators/sink.h"
#include "operators/encode_stage.h"
#include <stdio.h>

enum { FORMAT_JSON, FORMAT_CSV, FORMAT_SENML, FORMAT_RAW };
struct sink_config {
    const char *topic, *file;
    struct encode_record record;
    struct file *schema;
    int format;
    bool discard, append;
};
static const char *const format_words[] = { "json", "csv", "senml", "raw", NULL };
static const struct param sink_params[] = {
    { .name = "topic",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct sink_config, topic),
      .doc = "Topic to write. Without `topic` and `file` nothing is stored; `braid tail NAME` "
             "follows the rows." },
    { .name = "file",
      .type = PT_STR,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct sink_config, file),
      .doc =
          "File below `out/` of the server's directory, one line a row; a new sink empties it." },
    { .name = "discard",
      .type = PT_BOOL,
      .offset = offsetof(struct sink_config, discard),
      .def = "false",
      .doc = "Says that storing nothing is meant." },
    { .name = "format",
      .type = PT_ENUM,
      .offset = offsetof(struct sink_config, format),
      .def = "\"json\"",
      .words = format_words,
      .doc = "`json`, `csv`, `senml` (needs `schema`), or `raw`: the bytes of the only field." },
    { .name = "schema",
      .type = PT_FILE,
      .flags = PARAM_OPTIONAL,
      .offset = offsetof(struct sink_config, schema),
      .doc = "SenML: file in RIoTBench's three-line form with names, units, and `v` or `sv`." },
    RECORD_PARAMS(struct sink_config, record),
    { .name = "append",
      .type = PT_BOOL,
      .offset = offsetof(struct sink_config, append),
      .def = "false",
      .doc = "Other dataflows may write the same topic." },
    { .name = NULL },
};
static const struct param append_params[] = {
    { .name = "topic",
      .type = PT_STR,
      .offset = offsetof(struct append_config, topic),
      .doc = "Topic to write." },
    { .name = "append",
      .type = PT_BOOL,
      .offset = offsetof(struct append_config, append),
      .def = "false",
      .doc = "Others may write it, too." },
    { .name = NULL },
};
static const struct param write_file_params[] = {
    { .name = "file",
      .type = PT_STR,
      .offset = offsetof(struct write_file_config, file),
      .doc = "File to write." },
    { .name = NULL },
};

/* Relative, of plain names. */
static bool good_file(const char *f) {
    if (!*f || *f == '/' || strlen(f) > 200)
        return false;
    for (const char *p = f; *p;) {
        const char *slash = strchr(p, '/');
        size_t n = slash ? (size_t)(slash - p) : strlen(p);
        if (n == 0 || *p == '.')
            return false;
        p += n + (slash != NULL);
        if (slash && !*p)
            return false;
    }
    return true;
}
/* The first parameter that a file or nothing cannot hold, or NULL. */
static const char *topic_only(const struct encode_record *r) {
    return r->time.field ? "time" : r->headers.n ? "headers" : r->tombstone ? "tombstone" : NULL;
}
static void sink_lower(struct op_lower *l) {
    static const char *const encode[] = { "encode_json", "encode_csv", "encode_senml",
                                          "encode_raw" };
    const struct sink_config *c = l->config;
    if ((c->topic != NULL) + (c->file != NULL) + c->discard > 1) {
        l->report(l, c->discard ? "discard" : "file", NULL,
                  "topic, file and discard exclude each other");
        return;
    }
    if ((c->format == FORMAT_SENML) != (c->schema != NULL)) {
        l->report(l, "schema", NULL,
                  c->schema ? "only format senml has a schema" : "format senml needs a schema");
        return;
    }
    if (c->append && !c->topic) {
        l->report(l, "append", NULL, "append belongs to topic");
        return;
    }
    if (c->file && !good_file(c->file)) {
        l->report(l, "file", NULL,
                  "the file must be a relative name without parts that begin with '.'");
        return;
    }
    const char *given = c->topic ? NULL : topic_only(&c->record);
    if (given) {
        l->report(l, given, NULL, "only records of a topic have this");
        return;
    }
    if (c->format == FORMAT_SENML && c->record.without.n) {
        l->report(l, "without", NULL, "format senml writes the fields of its schema");
        return;
    }
    struct encode_config *e = l->stage(l, encode[c->format]);
    e->record = c->record;
    e->schema = c->schema;
    if (c->topic) {
        struct append_config *a = l->stage(l, "append");
        a->topic = c->topic;
        a->append = c->append;
    } else if (c->file) {
        struct write_file_config *w = l->stage(l, "write_file");
        w->file = c->file;
    } else {
        l->stage(l, "discard");
    }
}
const struct op_desc op_sink = {
    .name = "sink",
    .doc = "Writes rows as records of a topic or lines of a file. Without either nothing is "
           "stored, but `braid tail` can follow the rows.",
    .example = "{\"topic\": \"sys-clean\", \"format\": \"json\", \"key\": \"source\"}",
    .semantics = 1,
    .params = sink_params,
    .config_size = sizeof(struct sink_config),
    .flags = OP_DETERMINISTIC | OP_SINK,
    .memory = MEMORY_NONE,
    .lower = sink_lower,
};

#define STORE(id, text, conf, table)                                                               \
    const struct op_desc op_##id = {                                                               \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .semantics = 1,                                                                            \
        .params = table,                                                                           \
        .config_size = sizeof(conf),                                                               \
        .flags = OP_DETERMINISTIC | OP_INNER | OP_SINK,                                            \
        .memory = MEMORY_NONE,                                                                     \
    }
STORE(append, "Stage of `sink`: appends encoded rows to a topic.", struct append_config,
      append_params);
STORE(write_file, "Stage of `sink`: writes encoded rows to a file.", struct write_file_config,
      write_file_params);
STORE(discard, "Stage of `sink`: stores nothing.", struct discard_config, NULL);
