/* A file layer that fails on demand and remembers what is on disk for sure.
 *
 * Calls go to the real files below one directory; beside them the layer keeps, per file, the bytes
 * that have been synced and the writes since, and per directory the entries that have been synced.
 * fault_image writes what a machine may find after losing power. Thread safe. */
#ifndef BRAID_FILES_FAULT_H
#define BRAID_FILES_FAULT_H
#include "engine/files.h"
#include <stdbool.h>

struct fault;
/* Takes in what is below `dir` as synced. */
struct fault *fault_new(const char *dir, uint64_t seed);
void fault_free(struct fault *ft);
const struct log_files *fault_files(struct fault *ft);

/* Bytes by which files may still grow (-1: any); then a write is cut short and ENOSPC follows. */
void fault_space(struct fault *ft, int64_t bytes);
/* The next `n` syncs fail with EIO; what they were to write never gets to the disk, unless it is
 * written again. */
void fault_syncs(struct fault *ft, int n);
/* The call after `n` more changing calls is the last: a write stops in the middle, everything later
 * fails with EIO and changes nothing. -1: never; also revives. */
void fault_crash_after(struct fault *ft, int64_t n);
bool fault_crashed(struct fault *ft);
/* Changing calls so far. */
int64_t fault_calls(struct fault *ft);

enum fault_loss {
    FAULT_DROP,   /* nothing unsynced has reached the disk */
    FAULT_SCATTER /* any of the unsynced 512-byte sectors have, and a prefix of the unsynced
                   * directory changes */
};
/* Makes directory `to` with the contents after a loss of power. */
void fault_image(struct fault *ft, const char *to, enum fault_loss loss);
/* The machine has restarted: another boot id from now on. */
void fault_boot(struct fault *ft, int number);
#endif
