/* State of the local log: DIR/snapshot/NUMBER.snap holds the last value of every key as of the end
 * of the commit logs before NUMBER, in blocks sorted by key; an index in memory holds what the
 * commit logs from NUMBER on say, pointing into their mappings. A new snapshot is the two merged;
 * memory is bounded by the commit logs, never by the state. */
#ifndef BRAID_SNAPSHOT_H
#define BRAID_SNAPSHOT_H
#include "engine/commit.h"

#define SNAPSHOT_MAGIC "BRAIDSNP"
enum {
    SNAPSHOT_VERSION = 1,
    SNAPSHOT_BLOCK = 64 << 10 /* a block is closed beyond this */
};

struct snapshot_head {
    char magic[8];
    uint32_t version, crc; /* crc32c of the 64 bytes with crc = 0 */
    uint64_t number;       /* of the first commit log that is not in it */
    uint64_t last_no;      /* last commit in it */
    uint64_t blocks;
    uint64_t table; /* byte of u64 block_at[blocks] */
    uint64_t size;  /* of the file */
    uint32_t table_crc, zero;
};
struct snapshot_block {
    uint32_t crc, n; /* crc32c of the block behind this field, with padding; entries */
    uint64_t len;    /* bytes of entries, then padding to 8 */
};

struct snapshot { /* an open one; immutable, counted */
    const struct log_files *files;
    char path[FILES_PATH_MAX];
    char *p;
    int64_t size;
    const struct snapshot_head *head;
    const uint64_t *block;
    uint8_t *checked; /* blocks whose checksum has been verified (atomic bytes) */
    int refs;         /* atomic */
};
int snapshot_path(const char *dir, uint64_t number, char path[FILES_PATH_MAX]);
int snapshot_open(struct snapshot **s, const struct log_files *files, const char *dir,
                  uint64_t number, struct err *e);
void snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s); /* NULL is allowed */

/* ---- the last value of each key in a run of entries ---- */
struct index_entry {
    struct entry last;
    const char *first_value; /* of the first entry for this key */
};
struct index {
    struct index_entry *v;
    uint32_t n, cap;
    uint32_t *slot; /* hash table of 1 + position in v */
    uint32_t slots;
};
void index_put(struct index *ix, const struct entry *en);
/* By key; no put afterwards. */
void index_sort(struct index *ix);
void index_free(struct index *ix);

/* ---- the two merged ---- */
struct merge {
    struct snapshot *snap; /* or NULL */
    const struct index *index;
    const char *prefix;
    uint32_t plen;
    uint64_t block;       /* next block to enter */
    const char *at, *end; /* in the current one */
    struct entry old;
    bool have_old;
    uint32_t i;
};
/* Begins at the first key with the prefix. 0 or an error (damaged block). */
int merge_begin(struct merge *m, struct snapshot *snap, const struct index *index,
                const void *prefix, uint32_t plen, struct err *e);
/* 1: *en is the next live key; 0: no more with the prefix; or an error. */
int merge_next(struct merge *m, struct entry *en, struct err *e);
/* Writes DIR/NUMBER.snap from snap and index, synced and renamed into place. */
int snapshot_write(const struct log_files *files, const char *dir, uint64_t number,
                   uint64_t last_no, struct snapshot *snap, const struct index *index,
                   struct err *e);
#endif
