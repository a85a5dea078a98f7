/* Parameters of CSV, shared by `source` and `csv_parse`. */
#ifndef BRAID_OPERATORS_CSV_PARSE_H
#define BRAID_OPERATORS_CSV_PARSE_H
#include "operators/decode_stage.h"

struct csv_params {
    struct strs columns;
    const char *delimiter;
    bool header;
};
struct csv_decode_config { /* of stage `csv_decode` */
    struct decode_config decode;
    struct csv_params csv;
};
#define CSV_PARAMS(T, member)                                                                      \
    { .name = "columns",                                                                           \
      .type = PT_STRS,                                                                             \
      .flags = PARAM_OPTIONAL,                                                                     \
      .offset = offsetof(T, member.columns),                                                       \
      .doc = "CSV: the file's columns in order; those that the schema does not name are "          \
             "ignored. Default: the schema's fields." },                                           \
        { .name = "delimiter",                                                                     \
          .type = PT_STR,                                                                          \
          .offset = offsetof(T, member.delimiter),                                                 \
          .def = "\",\"",                                                                          \
          .doc = "CSV: the character between cells." },                                            \
    {                                                                                              \
        .name = "header", .type = PT_BOOL, .offset = offsetof(T, member.header), .def = "false",   \
        .doc = "CSV: a record that equals the column names is a header and no row."                \
    }

/* The name of the first parameter that differs from its default, or NULL. */
const char *csv_params_given(const struct csv_params *c);
bool csv_lower_check(struct op_lower *l, const struct csv_params *c);
#endif
