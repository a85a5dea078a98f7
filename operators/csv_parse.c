/* csv_parse: CSV records to rows, one a record or one an observation. Its stages: csv_decode ->
 * time
 * [-> explode]. */
#include "operators/csv_parse.h"
#include "operators/source.h"

struct csv_config {
    struct csv_decode_config decode;
    struct time_params time;
    struct emit_params emit;
};
static const struct param csv_face_params[] = {
    DECODE_PARAMS(offsetof(struct csv_config, decode.decode)),
    CSV_PARAMS(struct csv_config, decode.csv),
    TIME_PARAMS(struct csv_config, time),
    EMIT_PARAMS(struct csv_config, emit),
    { .name = NULL },
};
static const struct param csv_decode_params[] = {
    DECODE_PARAMS(offsetof(struct csv_decode_config, decode)),
    CSV_PARAMS(struct csv_decode_config, csv),
    { .name = NULL },
};

const char *csv_params_given(const struct csv_params *c) {
    if (c->columns.n)
        return "columns";
    if (c->delimiter && strcmp(c->delimiter, ",") != 0)
        return "delimiter";
    return c->header ? "header" : NULL;
}
bool csv_lower_check(struct op_lower *l, const struct csv_params *c) {
    char ch = c->delimiter[0];
    if (strlen(c->delimiter) == 1 && ch > 0 && ch != '"' && ch != '\n' && ch != '\r')
        return true;
    l->report(l, "delimiter", NULL, "the delimiter must be one ASCII character, and no quote");
    return false;
}
static void csv_lower(struct op_lower *l) {
    const struct csv_config *c = l->config;
    if (!decode_lower_check(l, c->decode.decode.schema, "csv") ||
        !csv_lower_check(l, &c->decode.csv) || !emit_lower_check(l, &c->emit))
        return;
    struct csv_decode_config *d = l->stage(l, "csv_decode");
    *d = c->decode;
    time_lower(l, &c->time, TIME_LOG);
    emit_lower(l, &c->emit);
}
const struct op_desc op_csv_parse = {
    .name = "csv_parse",
    .doc = "Reads CSV records (RFC 4180) into typed rows: one record of the topic is one row, "
           "quoted cells may hold line breaks. An empty cell is null, `\"\"` the empty string. A "
           "record with the wrong number of cells, or a value that does not fit its field's type, "
           "becomes a dead letter.",
    .example = "{\"schema\": {\"at\": \"i64\", \"v\": \"f64\"}, \"time\": {\"field\": \"at\", "
               "\"unit\": \"s\"}}",
    .semantics = 2,
    .params = csv_face_params,
    .config_size = sizeof(struct csv_config),
    .flags = OP_DETERMINISTIC | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .lower = csv_lower,
};

static void csv_plan(struct op_plan *p) {
    const struct csv_decode_config *c = p->config;
    decode_plan(p);
    for (int i = 0; i < c->csv.columns.n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(c->csv.columns.v[i], c->csv.columns.v[k]) == 0)
                plan_error(p, "columns", c->csv.columns.v[i], "'%s' is given twice",
                           c->csv.columns.v[i]);
}
static int csv_open(void *self, struct op_ctx *c, struct err *e) {
    const struct csv_decode_config *conf = c->config;
    struct decode_csv csv = { .columns = &conf->csv.columns,
                              .delimiter = conf->csv.delimiter[0],
                              .header = conf->csv.header };
    (void)e;
    return decode_open(self, c, decoder_new(DECODE_CSV, conf->decode.schema, &csv));
}
const struct op_desc op_csv_decode = {
    .name = "csv_decode",
    .doc = "Stage of `csv_parse` and of sources with format csv: records to typed columns.",
    .semantics = 2,
    .params = csv_decode_params,
    .config_size = sizeof(struct csv_decode_config),
    .flags = OP_DETERMINISTIC | OP_INNER,
    .memory = MEMORY_NONE,
    .plan = csv_plan,
    .self_size = sizeof(struct decode_self),
    .open = csv_open,
    .process = decode_process,
    .close = decode_close,
};
