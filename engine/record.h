/* Columns that tell of a record what is beside its value: its key, time, headers and place. A
 * source names them in `meta`; a field of a schema must not have such a name then. */
#ifndef BRAID_RECORD_H
#define BRAID_RECORD_H
#include "engine/batch.h"
#include "engine/log_rows.h"

#define RECORD_HEADER "_header." /* and the name of a header */
/* Type of the column, TYPE_COUNT when there is none of this name:
 *   _key        string  null: none, or not UTF-8
 *   _key_bytes  bytes   null: none
 *   _time       i64     ms: given by its writer, else when it was appended
 *   _headers    string  JSON object of its headers; of those that have a name several times the
 *                       last; values that are not UTF-8 are null. Null: there are none
 *   _header.X   string  value of the last header X; null: none, null, or not UTF-8
 *   _offset     i64
 *   _partition  i64
 *   _tombstone  bool    its value is null
 */
enum type record_column_type(const char *name);
extern const char record_column_names[]; /* for messages */
/* Fills columns 1.. of a source's schema; column 0 is the value. */
void record_columns(struct arena *a, const struct schema *s, const struct log_rows *rows,
                    int64_t off, uint32_t partition, struct column *cols);
/* ms since 1970 of a cell in a unit of enum time_unit; false when it is out of range or no time. */
bool time_cell(int unit, enum type type, const struct column *col, uint32_t row, int64_t *ms);
#endif
