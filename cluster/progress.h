/* A line on the terminal that tells how far a long work is: redrawn in place, at most ten times a
 * second, on stderr; nothing at all when stderr is no terminal. One thread. */
#ifndef BRAID_PROGRESS_H
#define BRAID_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *title;
    int64_t total; /* records; -1: unknown */
    bool on, color;
    int64_t start_ns, drawn_ns;
    /* for the rates of the last second or so */
    int64_t mark_ns, mark_records, mark_bytes;
    double rate, byte_rate;
};
void progress_begin(struct progress *p, const char *title, int64_t total, bool quiet);
/* `behind_ms`: how late the work is on its schedule; negative: it has none. */
void progress_update(struct progress *p, int64_t records, int64_t bytes, int64_t behind_ms);
/* A message instead of the bar, until the next update: "server is away, trying again". */
void progress_say(struct progress *p, const char *text);
/* Removes the line. */
void progress_end(struct progress *p);
#endif
