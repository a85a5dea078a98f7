/* Numbers and times as text: strict, locale-free, correctly rounded, shortest round trip.
 * Pure functions; any thread. */
#ifndef BRAID_NUM_H
#define BRAID_NUM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of room a writer may use (it stores whole vectors); texts have at most 20, 26 and 32. */
enum { NUM_I64_MAX_LEN = 36, NUM_F64_MAX_LEN = 40, NUM_TIME_MAX_LEN = 32 };

/* All readers take [p,end), return the byte after the token or NULL if there is none. */
/* JSON number grammar: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
 * *is_int: no fraction, no exponent and within int64 (then *i is exact; *d always set).
 * NULL also when the value overflows to infinity. Fast path <= 19 digits (Eisel-Lemire: D. Lemire,
 * "Number parsing at a gigabyte per second", 2021), else strtod_l in the C locale. */
const char *num_parse(const char *p, const char *end, bool *is_int, int64_t *i, double *d);
const char *num_parse_i64(const char *p, const char *end, int64_t *i);
/* As num_parse, for the whole of [p,end) and also accepting a leading '+', ".5", "5." as CSV files
 * of sensors have them. 0 or -1. */
int num_f64_whole(const char *p, const char *end, double *d);
int num_i64_whole(const char *p, const char *end, int64_t *i);

/* Writers return the length written; no NUL. */
int num_write_i64(char *out, int64_t v);
/* Shortest decimal that reads back to the same double, nearest of those; JSON grammar; integers
 * below 1e17 without exponent or ".0"; -0 as "-0"; else d.ddde[-]XX outside 1e-5..1e17.
 * v must be finite. Fast path for short decimals by an exact division test, else Schubfach
 * (R. Giulietti, "The Schubfach way to render doubles", 2020). */
int num_write_f64(char *out, double v);

/* Times are int64 ms since 1970-01-01T00:00:00Z. */
/* RFC 3339 "2013-01-13T23:36:00[.fff][Z|+hh:mm]" (also ' ' for 'T'; without zone: UTC). Digits
 * finer than a ms are cut. Years 0000..9999. 0 or -1. */
int time_parse(const char *p, const char *end, int64_t *ms);
int time_write(char *out, int64_t ms); /* always with Z, ms only if not 0 */
/* Words behind a number; the tables end with a NULL word. */
struct unit {
    const char *word;
    int64_t factor; /* ms, bytes */
};
extern const struct unit duration_units[], size_units[];
/* "250ms" "10s" "5m" "2h" "1d", also "1.5s"; 0 or -1. */
int duration_parse(const char *p, const char *end, int64_t *ms);
int duration_write(char *out, int64_t ms);
/* "64KiB" "10MB" "1GiB" or plain bytes. */
int size_parse(const char *p, const char *end, int64_t *bytes);
/* Whether [p,end) is valid UTF-8 (no overlongs, no surrogates, <= U+10FFFF). ~20 GB/s on ASCII. */
bool utf8_valid(const char *p, const char *end);
#endif
