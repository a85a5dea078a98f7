/* json_parse: JSON records to rows. Its stages: json_decode -> time. */
#include "operators/decode_stage.h"
#include "operators/source.h"

struct json_config {
    struct decode_config decode;
    struct time_params time;
};
static const struct param json_face_params[] = {
    DECODE_PARAMS(offsetof(struct json_config, decode)),
    TIME_PARAMS(struct json_config, time),
    { .name = NULL },
};
static const struct param json_decode_params[] = {
    DECODE_PARAMS(0),
    { .name = NULL },
};
static void json_lower(struct op_lower *l) {
    const struct json_config *c = l->config;
    if (!decode_lower_check(l, c->decode.schema, "json"))
        return;
    struct decode_config *d = l->stage(l, "json_decode");
    *d = c->decode;
    time_lower(l, &c->time, TIME_LOG);
}
const struct op_desc op_json_parse = {
    .name = "json_parse",
    .doc = "Reads JSON records into typed rows: one object a record, its members by field name; a "
           "field `a.b` is member `b` of the object `a`. Members that the schema does not name are "
           "ignored, missing ones are null. A record that is malformed or has a value that does "
           "not fit its field's type becomes a dead letter.",
    .example = "{\"schema\": {\"at\": \"string\", \"sensor.id\": \"string\", \"v\": \"f64\"}, "
               "\"time\": {\"field\": \"at\", \"unit\": \"rfc3339\"}}",
    .semantics = 1,
    .params = json_face_params,
    .config_size = sizeof(struct json_config),
    .flags = OP_DETERMINISTIC | OP_SETS_TIME,
    .memory = MEMORY_NONE,
    .lower = json_lower,
};

static int json_open_stage(void *self, struct op_ctx *c, struct err *e) {
    const struct decode_config *conf = c->config;
    (void)e;
    return decode_open(self, c, decoder_new(DECODE_JSON, conf->schema, NULL));
}
const struct op_desc op_json_decode = {
    .name = "json_decode",
    .doc = "Stage of `json_parse` and of sources with format json: records to typed columns.",
    .semantics = 1,
    .params = json_decode_params,
    .config_size = sizeof(struct decode_config),
    .flags = OP_DETERMINISTIC | OP_INNER,
    .memory = MEMORY_NONE,
    .plan = decode_plan,
    .self_size = sizeof(struct decode_self),
    .open = json_open_stage,
    .process = decode_process,
    .close = decode_close,
};
