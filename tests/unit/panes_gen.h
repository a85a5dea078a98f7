/* Random streams for operators with windows of event time, and the groups of their windows found by
 * looking at every row for every window. Single-threaded. */
#ifndef BRAID_TESTS_PANES_GEN_H
#define BRAID_TESTS_PANES_GEN_H
#include "engine/json.h"
#include <stdbool.h>
#include <stdint.h>

enum { PANES_ROWS = 600 };
struct panes_row {
    int64_t time, wm; /* wm: before the row */
    char key[8];      /* "null" too */
    bool null;        /* x is null */
    int64_t x;
};
struct panes_stream {
    struct panes_row row[PANES_ROWS];
    int n;
    int64_t end_wm; /* after the last row; INT64_MAX: the stream ends */
    int64_t every, size, lateness;
};
/* Rows out of order, some late, some of no value; windows tumbling or sliding. */
void panes_stream_make(struct panes_stream *s, uint64_t *seed);
/* `"every":...,"size":...,"lateness":...` for a config. */
void panes_stream_config(const struct panes_stream *s, struct sbuf *o);
/* The script for optest, schema "k:string x:i64". */
void panes_stream_text(const struct panes_stream *s, struct sbuf *o);
/* Rows none of whose windows was open; with `values`, only those that have a value. */
uint64_t panes_stream_late(const struct panes_stream *s, bool values);
/* A group of a window that has fired: its rows in order, by index. */
typedef void panes_group(void *user, const struct panes_stream *s, int64_t start, const char *key,
                         const int *row, int n);
/* All of them in the order of firing: by end of the window, then by key. With `values`, rows
 * without a value are in no group. */
void panes_stream_groups(const struct panes_stream *s, bool values, panes_group *each, void *user);
#endif
