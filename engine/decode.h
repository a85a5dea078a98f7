/* Records to typed columns, strictly: a record that is not well-formed or does not fit the schema
 * is refused whole, with a code, the field and the byte. One decoder per task; not thread safe.
 *
 * SenML and JSON are decoded by shape prediction. The strict reader, having decoded a record, also
 * notes what lies between the values ("fragments": keys, units, brackets). The next record is
 * compared with those fragments and only its values are read; on any difference it goes to the
 * strict reader, so the result is the strict reader's always (tested). A few shapes are kept.
 * Cost (bench_codec, one core of an EPYC): SYS SenML, 366 bytes and 9 values, 72 ns predicted, 0.5
 * us strict; TAXI, 857 bytes, 115 ns and 0.9 us; FIT, 1,216 bytes, 190 ns and 1.7 us. */
#ifndef BRAID_DECODE_H
#define BRAID_DECODE_H
#include "engine/batch.h"
#include "engine/op.h"

enum decode_format { DECODE_SENML, DECODE_JSON, DECODE_CSV };

/* CSV only. */
struct decode_csv {
    const struct strs *columns; /* the file's columns in order; NULL: the schema's fields. Those
                                 * that are not in the schema are ignored */
    char delimiter;             /* 0: ',' */
    bool header;                /* a record that equals the column names is no row */
};

/* Columns under construction; memory of `arena`. */
struct decode_rows {
    struct arena *arena;
    const struct schema *schema;
    uint32_t cap;     /* rows */
    void **value;     /* per field: cap values of its type (see struct column) */
    uint64_t **nulls; /* per field: NULL until the first null */
    int64_t *time;    /* SenML: time of the record, ms; TIME_MIN: it has none. Else NULL */
};
void decode_rows_begin(struct decode_rows *o, struct arena *a, const struct schema *s, uint32_t cap,
                       bool time);
/* A row whose cells are all null, without a time. */
void decode_rows_null(struct decode_rows *o, uint32_t row);
/* The columns, to put into a batch. */
const struct column *decode_rows_end(struct decode_rows *o);

struct decode_error {
    const char *code;  /* "bad_json" "bad_csv" "bad_record" "bad_value" "duplicate_field" */
    const char *field; /* NULL: none in particular. Belongs to the schema */
    uint32_t off;      /* byte of the record */
    char text[200];    /* names field and byte */
};

/* Times of records, ms: half of what int64 holds, so that differences cannot overflow. */
#define DECODE_TIME_MIN (INT64_MIN / 2)
#define DECODE_TIME_MAX (INT64_MAX / 2)

struct decoder;
/* Types a field may have: all but vec (bytes is read like string). `csv` may be NULL. */
struct decoder *decoder_new(enum decode_format f, const struct schema *s,
                            const struct decode_csv *csv);
void decoder_free(struct decoder *d);
/* Decodes one record into row `row`. Strings without escapes are spans into `text`, others live in
 * the rows' arena. Returns 0, DECODE_SKIP for a header, or -1 with `e` filled; the row's cells are
 * then undefined.
 *
 * SenML: {"e":[{"n":NAME,"u":…,"v"|"sv"|"vb":VALUE},…],"bt":MS,"bn":NAME}, keys in any order.
 * What RFC 8428 has beyond that and would change a cell is refused, unless it is 0 or null: a time
 * `t` of an entry's own, a value only in `s` or `vd` (both: of the schema's fields), base values
 * `bv` and `bs`, the form as an array. Other keys are ignored. NAME is n; bn+n when bn is given and
 * the schema has such a field (RFC 8428); bn when n is missing. VALUE is v, else sv, else vb; a
 * number, string or boolean that fits the field's type: text of a number for f64 and i64, any
 * scalar's text for string. bt is an integer or its text; field `timestamp`, when the schema has
 * one and no entry bears its name, receives it. A missing field or JSON null is null; the same
 * field twice is an error. JSON: an object of fields by name; a field "a.b" is member b of object
 * a. CSV: RFC 4180, one record. An empty cell is null, "" is the empty string. */
enum { DECODE_SKIP = 1 };
int decode_record(struct decoder *d, const char *text, uint32_t len, struct decode_rows *o,
                  uint32_t row, struct decode_error *e);
/* For tests and benchmarks: prediction off (every record goes through the strict reader); records
 * that were decoded by prediction so far. */
void decoder_strict(struct decoder *d, bool strict);
uint64_t decoder_hits(const struct decoder *d);
#endif
