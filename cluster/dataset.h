/* The replay of a recorded stream: a file of lines, again and again, faster or slower, with more
 * keys, the same bytes every time. Feeds `braid replay`, `braid run --in` and the benchmarks.
 *
 * A line is a record, also an empty one; LF or CRLF ends it and is not part of it; the last may
 * lack it. A record of CSV is one or more lines (splitter.h). When the first line begins with an
 * integer of at least TEMPLATE_EPOCH_MIN (a smaller one is rather a number or a key of the record)
 * and a comma, the file is *timed*: that integer is the record's time in ms since 1970 and what
 * follows the comma is the record; a later line without one is passed on whole, with the time of
 * the record before it (bad data is for the dataflow to judge). Otherwise a line is the record, and
 * its time is its `bt`, else the first RFC 3339 time in it, if it has one (template.h).
 *
 * Repetition. Pass p (0, 1, …) moves every time in the records by p x length, where the length of
 * the file is its last time - its first + the smallest step between consecutive records whose time
 * rises (1 s when none does): SYS 60 s, TAXI 16,500 s, FIT 60 ms.
 *
 * Keys. The file has D distinct ids; with `keys` = K, id number d (by first appearance) becomes, in
 * turn from pass to pass, one of those key numbers k < K with k mod D = d: key k is the id of
 * number k mod D, followed by "-" and k div D unless that is 0. So K keys arise in K/D passes
 * (rounded up), evenly. With K < D id d becomes id d mod K. Records without an id stay as they are.
 *
 * Memory: files up to cache_bytes and DATASET_LINES_MAX lines are held with their templates (a
 * record of SYS then costs ~30 ns); others, and pipes, are read as they come (~550 ns). One thread.
 */
#ifndef BRAID_DATASET_H
#define BRAID_DATASET_H
#include "engine/err.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    DATASET_LINES_MAX = 1 << 20, /* lines held in memory */
    DATASET_IDS_MAX = 4 << 20,   /* distinct ids when `keys` is used */
    DATASET_SHUFFLE_MAX = 1 << 20
};
#define DATASET_NO_TIME  INT64_MIN
#define DATASET_ENDLESS  INT64_MAX
#define DATASET_KEYS_MAX 1000000000
#define DATASET_CACHE    ((int64_t)64 << 20)

enum dataset_lines { DATASET_AUTO, DATASET_TIMED, DATASET_PLAIN };
struct dataset_conf {
    const char *source;       /* a file, `-` (stdin), or `sys`, `taxi`, `fit`: RIoTBench samples */
    enum dataset_lines lines; /* whether lines begin with a time */
    char csv;                 /* records are CSV with this delimiter; 0: lines */
    int64_t loop;             /* passes; 0 counts as 1; DATASET_ENDLESS */
    int64_t keys;             /* distinct ids wanted; 0: as in the file */
    const char *id_field;     /* template.h; NULL: that of a RIoTBench sample */
    double rate;              /* records a second; 0: not by rate */
    double speed;             /* times real time; 0: not by time. Neither: all at once */
    uint32_t shuffle;         /* records come out of order, among this many; 0 or 1: in order */
    int64_t jitter_ms;        /* records are late by up to this */
    uint64_t seed;            /* of shuffle and jitter */
    int64_t cache_bytes;      /* 0: DATASET_CACHE */
};
struct dataset_record {
    const char *data; /* holds until the next call */
    uint32_t len;
    const char *id; /* its id as it stands in it; NULL: none, or no id_field. Holds as long */
    uint32_t id_len;
    int64_t seq;    /* 0, 1, … */
    int64_t time;   /* its recorded time, moved like those in it; or DATASET_NO_TIME */
    int64_t due_ns; /* when to send it, after the start; never falls */
};

struct dataset;
/* Opens and, if it fits, loads the file. ERR_NOTFOUND, ERR_INPUT (a setting that cannot work with
 * this file), ERR_SYSTEM. */
int dataset_open(struct dataset **ds, const struct dataset_conf *conf, struct err *e);
void dataset_close(struct dataset *ds); /* NULL is fine */
/* 1: a record; 0: the end; negative: ERR_SYSTEM (read error) or ERR_INPUT (one too long, too
 * many ids, a file without times replayed by time). May block on a pipe. */
int dataset_next(struct dataset *ds, struct dataset_record *r, struct err *e);
/* Records of all passes; -1 while unknown (not held in memory, or endless). For progress bars. */
int64_t dataset_total(const struct dataset *ds);
/* What one pass moves times by, ms; -1 while unknown (first pass, not held in memory). */
int64_t dataset_length_ms(const struct dataset *ds);
/* Distinct ids seen so far (all of the file's once held in memory); 0 without `keys`. */
int64_t dataset_ids(const struct dataset *ds);
/* Key number k of the rule above, for k < dataset_ids x 1,000,000: to make tables that match, such
 * as metadata or a filter's members. Returns its length, or -1 when size is too small. */
int dataset_key(const struct dataset *ds, int64_t k, char *out, int size);

/* The schedule, pure: when record n (0, 1, …) is due, ns after the start, if it was recorded
 * elapsed_ms after the first. By rate n/rate, by speed elapsed/speed; capped, never negative. */
int64_t dataset_due(double rate, double speed, int64_t n, int64_t elapsed_ms);
#endif
