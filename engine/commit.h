/* The commit log of the local log: DIR/commit/NUMBER.log, a header and a run of frames, one a group
 * commit. What a frame holds is committed, everything else never happened.
 *
 * A frame is a 64-byte header, the state entries (u32 klen, u32 vlen or LOG_NULL, key, value),
 * padded to 8, and under `power` chunks: what was written to the segments, a 48-byte head and the
 * bytes of a segment frame each. The driver's own state (topics, ends) are entries too. */
#ifndef BRAID_COMMIT_H
#define BRAID_COMMIT_H
#include "engine/files.h"
#include "engine/log.h"

#define COMMIT_MAGIC "BRAIDCMT"
enum {
    COMMIT_VERSION = 1,
    COMMIT_HEAD = 128,
    COMMIT_FRAME_MAGIC = 0x31434642, /* "BFC1" */
    COMMIT_CHUNK_MAGIC = 0x31484342  /* "BCH1" */
};

struct commit_head {
    char magic[8];
    uint32_t version, crc; /* crc32c of the 128 bytes with crc = 0 */
    uint64_t number;
    uint32_t durability, zero;
    char boot[FILES_BOOT_LEN]; /* the machine has not restarted: a torn write ends the file */
    char zeros[56];
};
struct commit_frame {
    uint32_t magic;
    uint32_t crc;     /* of the header behind this field */
    uint32_t entries; /* crc32c of the entries with padding */
    uint32_t zero;
    uint64_t first_no, last_no; /* commit numbers of its epochs */
    uint64_t entries_len;       /* without padding */
    uint64_t chunks_len;
    uint64_t zeros[2];
};
struct commit_chunk {
    uint32_t magic;
    uint32_t crc; /* of the head behind this field */
    uint32_t topic, partition;
    int64_t base, at; /* segment and byte */
    int64_t prev;     /* as in the header of the segment, which may have to be made again */
    int64_t len;      /* bytes that follow: one frame of a segment, checked by its own sums */
};
_Static_assert(sizeof(struct commit_head) == COMMIT_HEAD && sizeof(struct commit_frame) == 64 &&
                   sizeof(struct commit_chunk) == 48,
               "format");

/* ---- writing (committer thread) ---- */
struct commit_log {
    const struct log_files *files;
    char dir[FILES_DIR_MAX];
    enum log_durability durability;
    char boot[FILES_BOOT_LEN];
    uint64_t number;
    int fd;        /* -1: the file is made by the next write */
    int64_t bytes; /* committed */
};
int commit_path(const char *dir, uint64_t number, char path[FILES_PATH_MAX]);
void commit_frame_seal(struct commit_frame *f);
void commit_chunk_seal(struct commit_chunk *c);
/* Writes and under `power` syncs one frame. 0 or a negated errno: it is cut off again, or *unknown
 * is set when that failed too. */
int commit_write(struct commit_log *c, struct iovec *iov, int n, int64_t len, bool *unknown);
/* The next write goes to a new file. */
void commit_seal(struct commit_log *c);

/* ---- reading ---- */
struct commit_file { /* a mapped file */
    const struct log_files *files;
    uint64_t number;
    char *p;
    int64_t size;               /* mapped */
    int64_t bytes;              /* up to the end of the last whole frame */
    int64_t last_at;            /* where that begins; the header is before the first */
    uint64_t first_no, last_no; /* of its frames; 0: none */
    enum log_durability durability;
    bool same_boot;
};
/* Maps the file and checks every frame of its first `limit` bytes (-1: all). `last`: a torn write
 * at the end is not an error but ends the file (`bytes` < `size`, a note goes to e->text; after a
 * restart of the machine the same for any file written under `process`); anything else that is
 * wrong is. A file without a whole header that is the last has `bytes` 0. */
int commit_map(struct commit_file *cf, const struct log_files *files, const char *dir,
               uint64_t number, const char *boot, int64_t limit, bool last, struct err *e);
void commit_unmap(struct commit_file *cf);
/* Calls `each` for every checked frame until it returns non-zero. */
int commit_each(const struct commit_file *cf,
                int (*each)(void *arg, const struct commit_frame *f, const char *entries,
                            const char *chunks),
                void *arg);
/* The entry at *p (< end), moved behind it; false when it does not fit. value NULL: removed. */
struct entry {
    const char *key, *value;
    uint32_t klen, vlen;
};
bool entry_next(const char **p, const char *end, struct entry *en);
#endif
