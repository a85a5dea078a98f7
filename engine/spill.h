/* State larger than memory: chunks of 64 KiB in a file of its own, mapped. It is a cache of what
 * the log has: the file has no name, so it is gone with the process, and a restart reads the log.
 *
 * Of the budget, three quarters are ordinary memory, for whoever comes first; what comes later lies
 * in the file. The last quarter bounds how much of the file is resident: each executor thread keeps
 * a *window* of the chunks it touched last and takes the oldest out of its address space. Nothing
 * is copied and no address ever changes: the kernel's page cache reads and writes the file, and a
 * page that was taken out comes back at its next use (~1 us from the page cache, else a read).
 * Space is reserved in the file before it is used; when the disk is full, chunks lie in ordinary
 * memory, above the budget (`spill_full`).
 *
 * A spill is shared by all threads; a window belongs to one. */
#ifndef BRAID_SPILL_H
#define BRAID_SPILL_H
#include "engine/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPILL_CHUNK = 64 << 10 };

struct spill;
struct spill_window;

/* The file lies in directory `dir`, which must exist. Budget in bytes, at least 1 MiB. */
int spill_open(struct spill **out, const char *dir, size_t budget, struct err *e);
void spill_close(struct spill *sp); /* after all windows */
struct spill_window *spill_window_new(struct spill *sp);
void spill_window_free(struct spill_window *w);

/* True: `bytes` more of ordinary memory are within the budget (and counted). */
bool spill_reserve(struct spill_window *w, size_t bytes);
void spill_unreserve(struct spill_window *w, size_t bytes); /* freed again */
/* `bytes` in the file, rounded up to whole chunks, zeroed; NULL: no space on disk. */
char *spill_alloc(struct spill_window *w, size_t bytes);
void spill_free(struct spill_window *w, char *p, size_t bytes);
/* Before a use of memory in the file: its chunk at `p` counts as resident from now on. ~2 ns when
 * it was, ~1 us when another has to leave for it. */
void spill_touch(struct spill_window *w, const char *p);
/* Bytes in the file; and whether the disk was full. */
size_t spill_bytes(const struct spill *sp);
bool spill_full(const struct spill *sp);
#endif
