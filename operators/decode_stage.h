/* What the decoding stages (senml_decode, json_decode, csv_decode) have in common: a column of
 * records in, typed columns out. */
#ifndef BRAID_OPERATORS_DECODE_STAGE_H
#define BRAID_OPERATORS_DECODE_STAGE_H
#include "engine/decode.h"
#include "engine/op.h"

/* Part of the stages' and parse tasks' configs, at offset `base`. */
struct decode_config {
    const struct schema *schema;
    const char *field; /* of the input: the records */
    struct strs keep;  /* fields of the input that go on beside those of the schema */
};
#define DECODE_PARAMS(base)                                                                        \
    { .name = "schema",                                                                            \
      .type = PT_SCHEMA,                                                                           \
      .offset = (base) + offsetof(struct decode_config, schema),                                   \
      .doc = "Fields and their types, or the name of a file in RIoTBench's three-line form "       \
             "(names, units, `v` or `sv`)." },                                                     \
        { .name = "field",                                                                         \
          .type = PT_FIELD,                                                                        \
          .offset = (base) + offsetof(struct decode_config, field),                                \
          .def = "\"value\"",                                                                      \
          .doc = "Field of the input that holds the records." },                                   \
    {                                                                                              \
        .name = "keep", .type = PT_STRS, .flags = PARAM_OPTIONAL,                                  \
        .offset = (base) + offsetof(struct decode_config, keep),                                   \
        .doc = "Fields of the input that go on beside those of the schema, such as the `meta` of " \
               "a raw source. A null record is a dead letter; with `keep` it is a row in which "   \
               "all fields of the schema are null, so that tombstones can be told."                \
    }

/* Rows of one record or of one observation each: what parse tasks may add below their decoder. */
enum { EMIT_ROW, EMIT_EXPLODE };
struct emit_params {
    int emit;
    struct strs meta;
};
extern const char *const emit_words[];
#define META_DOC "Fields that every observation's row repeats; all others are observed."
#define EMIT_PARAMS(T, member)                                                                     \
    { .name = "emit",                                                                              \
      .type = PT_ENUM,                                                                             \
      .offset = offsetof(T, member.emit),                                                          \
      .def = "\"row\"",                                                                            \
      .words = emit_words,                                                                         \
      .doc = "`row`: one row a record with all fields. `explode`: one row an observed field with " \
             "the `meta` fields, `msgid` (i64, the record's number in its topic: what joins its "  \
             "rows again), `obs` (the field's name) and `value` (f64, or string when an observed " \
             "field is not a number)." },                                                          \
    {                                                                                              \
        .name = "meta", .type = PT_STRS, .flags = PARAM_OPTIONAL,                                  \
        .offset = offsetof(T, member.meta), .doc = META_DOC                                        \
    }
/* False after reporting that the two do not go together. */
bool emit_lower_check(struct op_lower *l, const struct emit_params *p);
/* Appends the stage `explode` when asked for. */
void emit_lower(struct op_lower *l, const struct emit_params *p);

struct decode_self {
    struct decoder *decoder;
    int field;
};
void decode_plan(struct op_plan *p);
/* Completes open(): takes the decoder. */
int decode_open(struct decode_self *s, struct op_ctx *c, struct decoder *d);
void decode_process(void *self, struct op_ctx *c, int port, const struct batch *b);
void decode_close(void *self);
/* Refuses a config without schema or with types that records cannot have. */
bool decode_lower_check(struct op_lower *l, const struct schema *s, const char *format);
#endif
