/* Rows to records, straight into a log payload. One encoder per task; not thread safe.
 * What repeats in every record is prepared once per column; a row is copies and numbers. Cost of
 * SYS with 11 fields, 7 of them f64: JSON 145 ns, CSV 130, SenML 155; two thirds are numbers. */
#ifndef BRAID_ENCODE_H
#define BRAID_ENCODE_H
#include "engine/batch.h"
#include "engine/op.h"

enum encode_format {
    ENCODE_JSON,  /* {"field":value,…} in schema order; null as null, times as given */
    ENCODE_CSV,   /* RFC 4180; null is empty, the empty string is "" */
    ENCODE_SENML, /* RIoTBench: {"e":[{"u":UNIT,"n":NAME,"v":"TEXT"},…],"bt":"TIMESTAMP"} */
    ENCODE_RAW,   /* the bytes of the only string or bytes column */
};

/* One column of a SenML record, from a three-line schema file: names, units, v or sv. */
struct encode_senml {
    const char *name, *unit;
    bool sv;
};
/* Reads the three lines. 0, or ERR_INPUT with `e` filled. *out has *n entries in `a`. */
int encode_senml_columns(const struct file *f, struct arena *a, struct encode_senml **out, int *n,
                         struct err *e);

/* What records have beside their value; fields are indexes into the schema, -1: none. */
struct encode_header {
    const char *name;
    int field;
};
struct encode_meta {
    int key;       /* text of a number or boolean, else its bytes; null: no key */
    int time;      /* the record's own time, in `time_unit`; null: none */
    int time_unit; /* enum time_unit */
    int tombstone; /* bool: where it is true the value is null, whatever the other fields are */
    int nheaders;
    const struct encode_header *header; /* null: the record has no such header */
    const struct strs *without;         /* fields that are not written into the value; or NULL */
};

struct encoder;
/* As encoder_new; `m` and what it points to are borrowed until free. */
struct encoder *encoder_new_meta(enum encode_format f, const struct schema *s,
                                 const struct encode_meta *m, const struct encode_senml *senml,
                                 int nsenml);
/* `key`: index of the field that becomes the records' key, -1: none. ENCODE_SENML: `senml` gives
 * names, units and order; a name that the schema does not have is left out (plan time checks);
 * `timestamp` becomes bt. Nulls are left out of SenML. `senml` is borrowed until free. */
struct encoder *encoder_new(enum encode_format f, const struct schema *s, int key,
                            const struct encode_senml *senml, int nsenml);
void encoder_free(struct encoder *e);
/* Field that ENCODE_RAW writes: string or bytes `value`, else the only string or bytes field; -1.
 * Those of `without` (or NULL) do not count. */
int encode_raw_field(const struct schema *s, const struct strs *without);
/* Writes rows from *from on (indexes into the batch's rows) into a new payload until all are in,
 * the payload is as large as LOG_BUF_BYTES, or a row cannot be written; moves *from behind them.
 * Returns them as a batch without selection of one column over `out` (string or bytes) whose
 * `encoded` is the payload, or NULL when there are none. *code is NULL, or says why row *from never
 * can be written: "bad_utf8" (bytes in a text format), "null_value" (raw), "bad_time", "too_large"
 * (beyond LOG_RECORD_MAX). With `seal` the payload is ready for a log; without, a raw encoder below
 * does that, which passes such batches on without a copy. The payload lives until the second
 * encoder_tick from now. */
struct batch *encode_next(struct encoder *e, struct arena *a, const struct batch *b, uint32_t *from,
                          const struct schema *out, bool seal, const char **code);
/* The reason in words. */
const char *encode_reason(const char *code);
/* The tick ends: gives back the payloads of the tick before. */
void encoder_tick(struct encoder *e);
#endif
