/* Inside of the decoders: values into cells, errors, the notes that shapes are made of. */
#ifndef BRAID_DECODE_CELL_H
#define BRAID_DECODE_CELL_H
#include "engine/decode.h"
#include "engine/decode_shape.h"

struct token {    /* a scalar of the text */
    uint8_t type; /* enum jtype; TOKEN_NONE: absent */
    bool b;
    uint32_t off, len; /* the text of the token; of strings without the quotes */
    int64_t i;
    double d;
    struct span s; /* J_STR: unescaped */
};
enum { TOKEN_NONE = 255 };

struct entry { /* of a SenML record */
    struct span name;
    struct token v, sv, vb;
    const char *unread; /* a key whose meaning would be lost, if the entry's field is wanted */
    uint32_t off;
};

struct decoder {
    enum decode_format format;
    const struct schema *schema;
    int nfields;
    bool strict;
    /* names -> fields: open addressing, -1 is empty */
    int16_t *slot;
    uint32_t slot_mask;
    struct span *name; /* per field */
    uint32_t name_max; /* length of the longest */
    int next_guess;    /* fields mostly come in one order */
    uint64_t *seen;    /* per field: `now` when the record has it */
    uint64_t *null_at; /* per field: `now` when the record has it as null */
    uint64_t now;
    int time_field; /* `timestamp`, or -1 */
    /* SenML */
    struct entry *entry;
    int nentries, entries_cap;
    /* JSON: nested names */
    bool nested;
    /* CSV */
    int *column; /* file column -> field or -1 */
    int ncolumns;
    char delimiter;
    bool header;
    const char *const *column_name;
    struct shapes shapes;
};

/* Index of the field of this name or -1. ~5 ns. */
int decode_field(struct decoder *d, struct span name);
/* Fills `e` and returns -1. */
int decode_fail(struct decode_error *e, const char *code, const char *field, uint32_t off,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Stores a token in a cell; JSON null and an absent token set the null bit. 0 or -1. */
int decode_cell(struct decoder *d, struct decode_rows *o, uint32_t row, int field,
                const struct token *t, struct decode_error *e);
void decode_null(struct decode_rows *o, uint32_t row, int field);
/* Sets the null bits of all fields that the record did not have. */
void decode_missing(struct decoder *d, struct decode_rows *o, uint32_t row);

struct json_reader;
void decode_token(const struct json_reader *r, struct token *t);
int decode_syntax(const struct json_reader *r, struct decode_error *e);
/* After a success: the shape of this record, with its nulls. */
void decode_learn(struct decoder *d, const char *text, uint32_t len, int time_field);

int decode_senml(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                 uint32_t row, struct decode_error *e);
int decode_json(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                uint32_t row, struct decode_error *e);
int decode_csv_record(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                      uint32_t row, struct decode_error *e);
int decode_csv_open(struct decoder *d, const struct decode_csv *csv);
#endif
