/* State larger than memory: chunks of 64 KiB in a file of its own. It is a cache of what the log
 * has: the file has no name, so it is gone with the process, and a restart reads the log.
 *
 * Of the budget, three quarters are ordinary memory, for whoever comes first; what comes later lies
 * in the file. The last quarter is shared by the executor threads, each with a *window* of it:
 *  - Blocks up to a page of 4 KiB (SPILL_PAGE) are read and written a page at a time into *frames*.
 *    A page leaves its frame by a second-chance clock; it is written when its checksum has changed,
 *    so that nobody has to say what he writes. An address is valid until SPILL_SAFE other pages
 *    have been asked for (half the frames, when there are fewer than twice as many).
 *  - Larger blocks are mapped. The window keeps the chunks that were touched last and takes the
 *    oldest out of the address space; addresses never change.
 * Space is reserved in the file before it is used; when the disk is full, chunks lie in ordinary
 * memory, above the budget (`spill_full`). A read or write of the file that fails ends the process:
 * the log has everything.
 *
 * A spill is shared by all threads; a window belongs to one. */
#ifndef BRAID_SPILL_H
#define BRAID_SPILL_H
#include "engine/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPILL_CHUNK = 64 << 10, SPILL_PAGE = 4096, SPILL_SAFE = 2048 };
#define SPILL_BUDGET_MIN ((size_t)64 << 20) /* so that one window has 2 * SPILL_SAFE frames */

struct spill;
struct spill_window;

/* The file lies in directory `dir`, which must exist. Budgets below SPILL_BUDGET_MIN are for
 * tests. */
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
/* Where the byte at `p` of a chunk is now, for a chunk that is used by pages: never touch it at its
 * own address. ~3 ns when its page is in a frame, else ~3 us. */
char *spill_page(struct spill_window *w, const char *p);
/* Before a use of memory in the file: its chunk at `p` counts as resident from now on. ~2 ns when
 * it was, ~1 us when another has to leave for it. */
void spill_touch(struct spill_window *w, const char *p);
/* Bytes in the file; and whether the disk was full. */
size_t spill_bytes(const struct spill *sp);
bool spill_full(const struct spill *sp);
#endif
