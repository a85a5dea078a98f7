/* Where `braid run` writes rows: files or stdout, a record a line, through a buffer of its own.
 * One thread. */
#ifndef BRAID_ROWFILE_H
#define BRAID_ROWFILE_H
#include "engine/batch.h"
#include "engine/err.h"

struct rowfile {
    const char *path; /* "-": stdout */
    int fd;           /* -1: nothing is written */
    bool eager;       /* flush after every batch: somebody is looking */
    char *buf;
    size_t len;
};
/* Creates or empties the file. ERR_SYSTEM, ERR_NOTFOUND (no such directory). */
int rowfile_open(struct rowfile *f, const char *path, struct err *e);
int rowfile_add(struct rowfile *f, const void *p, size_t len, struct err *e);
/* The same and a line end. */
int rowfile_line(struct rowfile *f, const void *p, size_t len, struct err *e);
int rowfile_flush(struct rowfile *f, struct err *e);
/* Flushes and closes. */
int rowfile_close(struct rowfile *f, struct err *e);
#endif
