/* A record of a dataset with holes where its times and its id stand, so that a repeated record is
 * written with new ones while every other byte stays as it is.
 *
 * What counts as a time, exactly:
 *   - the value of the member `bt` of the outermost JSON object, an integer or a string holding one
 *     (milliseconds, as RIoTBench writes it);
 *   - a JSON value or a CSV field that is, as a whole, the integer that stands before the record in
 *     the file (`epoch_ms,record`), if that is at least TEMPLATE_EPOCH_MIN (so that a small number
 *     is not taken for a time);
 *   - a JSON string value or a CSV field that is, as a whole, an RFC 3339 time, also with a space
 *     for the T and without a zone ("2013-01-13 23:36:00"). Its form, zone and number of decimals
 *     stay; what is finer than its decimals is cut; a year beyond 9999 stays at its last second.
 * The id: the string value of the SenML entry whose "n" is `id_field`, or of that member of the
 * outermost object; in CSV the field whose 1-based number `id_field` is. Fields are those of RFC
 * 4180, between `delimiter`.
 * Keys, strings with escapes, and records that are broken JSON keep their bytes; nothing here can
 * fail. Pure functions; any thread. */
#ifndef BRAID_TEMPLATE_H
#define BRAID_TEMPLATE_H
#include <stdbool.h>
#include <stdint.h>

enum {
    TEMPLATE_HOLES_MAX = 256, /* later times of a record stay as they are */
    TEMPLATE_HOLE_BYTES = 32  /* a hole grows by at most this, besides an id's suffix */
};
#define TEMPLATE_EPOCH_MIN 100000000 /* 1970-01-02, in ms */

enum hole_kind { HOLE_INT, HOLE_DATE, HOLE_ID };
struct hole {
    uint32_t off;
    uint16_t len;
    uint16_t kind;
    int64_t value; /* HOLE_INT, HOLE_DATE: ms */
};
struct template {
    const char *text;
    uint32_t len;
    int n;
    struct hole *holes; /* ascending, not overlapping */
    int id;             /* index of the id's hole, or -1 */
    bool has_bt;        /* `bt` was there */
    int64_t bt;         /* its value */
};

/* Fills holes (room for TEMPLATE_HOLES_MAX) and the rest of *t. `csv`: the record is CSV with this
 * delimiter; 0: its first byte tells JSON from CSV with commas. `epoch`: the number before the
 * record, or INT64_MIN; id_field may be NULL. ~1.4 ns a byte. */
void template_find(struct template *t, const char *text, uint32_t len, char csv, int64_t epoch,
                   const char *id_field, struct hole *holes);
/* Room that template_render needs for an id of id_len bytes. */
uint32_t template_room(const struct template *t, uint32_t id_len);
/* Writes the record with every time moved by shift_ms and with `id` (NULL: its own). Returns the
 * length. ~25 ns for a SenML record of 360 bytes. */
uint32_t template_render(const struct template *t, int64_t shift_ms, const char *id,
                         uint32_t id_len, char *out);
#endif
