/* Errors. Functions return 0 or a negative code from enum err_code; whatever a user typed is
 * answered by a filled struct err. The codes are the negated exit codes of the command line, so
 * that one number travels from the place of the fault to the shell. No threads, no allocation
 * except in struct errs. */
#ifndef BRAID_ERR_H
#define BRAID_ERR_H
#include <stdbool.h>
#include <stddef.h>

enum err_code {
    ERR_SYSTEM = -1,      /* the system failed: disk, memory, a bug of ours */
    ERR_INPUT = -2,       /* what the user gave is wrong */
    ERR_NOTFOUND = -3,    /* no such dataflow, topic, file */
    ERR_CONFLICT = -4,    /* clashes with what runs already */
    ERR_UNREACHABLE = -5, /* server not reachable */
};

struct err {
    int code;
    bool retriable;    /* trying again later may help (disk full, broker away) */
    int line, col;     /* 1-based place in `file`; 0: unknown */
    long offset;       /* byte offset in `file`; -1: unknown */
    char file[256];    /* "" when the text did not come from a file */
    char pointer[256]; /* JSON pointer into the file, "" when there is none */
    char text[768];    /* what is wrong and what to do; one line, no full stop */
};

#define ERR_INIT                                                                                   \
    { .offset = -1 }

/* Fills `e` (may be NULL) and returns `code`. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As err_set, appending ": " and strerror(errnum). ENOSPC and EINTR-like errors are retriable. */
int err_errno(struct err *e, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "file:line:col: /pointer: text" with the parts that are known. Returns `buf`. */
const char *err_format(const struct err *e, char *buf, size_t size);

/* All errors of one file at once; at most ERRS_MAX are kept, `total` counts on. */
enum { ERRS_MAX = 100 };
struct errs {
    struct err *v;
    int n, total;
};
/* Appends a copy (sorted by nothing: order of discovery). Returns e->code. */
int errs_add(struct errs *es, const struct err *e);
void errs_free(struct errs *es);

/* The entry of `names` (n of them) nearest to `word` by edit distance, or NULL when none is near
 * enough (distance <= 1 + len/4) to be worth a "did you mean". Case is ignored. */
const char *err_nearest(const char *word, const char *const *names, int n);
#endif
