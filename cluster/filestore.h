/* Files that dataflows name in their configs, uploaded by clients and kept by content under
 * DIR/files/HASH, HASH being the 32 hex digits of XXH3-128. The same content is stored once and
 * held in memory once; a file in memory stays where it is until filestore_close, because running
 * tasks read it there. Any thread. */
#ifndef BRAID_FILESTORE_H
#define BRAID_FILESTORE_H
#include "engine/op.h"

enum { FILESTORE_FILE_MAX = 64 << 20 /* bytes of one file */ };

struct filestore;
/* `sync`: a stored file survives a power loss when filestore_put returns. */
int filestore_open(struct filestore **fs, const char *dir, bool sync, struct err *e);
void filestore_close(struct filestore *fs);  /* NULL is fine */
bool filestore_hash_valid(const char *hash); /* 32 lower-case hex digits */
void filestore_hash(const void *data, size_t len, char hash[33]);
/* Stores the bytes when their hash is `hash`, else ERR_INPUT. *created tells whether they were new.
 */
int filestore_put(struct filestore *fs, const char *hash, const void *data, size_t len,
                  bool *created, struct err *e);
/* Size in bytes, or ERR_NOTFOUND. */
int64_t filestore_size(struct filestore *fs, const char *hash);
/* Loads it and fills hash, data and len of *f. ERR_NOTFOUND; ERR_SYSTEM when it cannot be read or
 * its content no longer has the hash. */
int filestore_get(struct filestore *fs, const char *hash, struct file *f, struct err *e);
#endif
