/* A stream of bytes to records: lines, or CSV records whose quoted cells may hold line breaks
 * (RFC 4180). LF or CRLF ends a record and is not part of it; the last may lack it.
 *
 * CSV. A quote opens only at the begin of a cell, and "" inside stands for one. A quoted cell holds
 * its line breaks if it is closed properly, that is right before a delimiter, a line end or the end
 * of the stream, within SPLITTER_RECORD_MAX bytes of the record's begin. Else the line in which it
 * opens ends the record, so that a stray quote costs its own line and not the file; the dataflow
 * says what is wrong with it. No byte is looked at more than twice for that: what follows such a
 * quote has no other that opens and closes. Cost: ~0.1 ns a byte (two searches) where no cell is
 * quoted, 7 ns more a cell in lines with quotes. One thread. */
#ifndef BRAID_SPLITTER_H
#define BRAID_SPLITTER_H
#include "engine/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPLITTER_RECORD_MAX = 16 << 20 }; /* bytes; as LOG_RECORD_MAX */

struct splitter {
    int fd;           /* borrowed */
    const char *path; /* for messages; borrowed */
    char delimiter;   /* CSV records with this one; 0: lines */
    int64_t records;  /* so far, since the begin of the stream */
    /* private */
    char *buf;
    size_t cap, at, end;
    bool eof;
};

/* The next record, which holds until the next call. 1; 0: the end; ERR_SYSTEM, or ERR_INPUT (one
 * longer than SPLITTER_RECORD_MAX). May block on a pipe. */
int splitter_next(struct splitter *s, const char **p, uint32_t *len, struct err *e);
/* Reads a file of `size` bytes whole; splitter_next then never reads, and records hold until the
 * end. 1; 0: it has grown meanwhile, go back; ERR_SYSTEM. */
int splitter_load(struct splitter *s, size_t size, struct err *e);
/* How many line ends a loaded file has: its records are at most one more. */
uint64_t splitter_lines(const struct splitter *s);
/* Back to the begin of the stream. 0 or ERR_SYSTEM. */
int splitter_rewind(struct splitter *s, struct err *e);
void splitter_free(struct splitter *s);
#endif
