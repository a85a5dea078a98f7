/* Topics of the local log as segment files: formats, the append side (committer thread only) and
 * the read side (any thread).
 *
 * A segment is a 64-byte header and a run of frames, each 64 bytes of header and a payload of
 * arrays padded to 8 bytes: u32 value_end[n], values, and with FRAME_KEYS u32 key_end[n], keys,
 * with FRAME_TIMES i64 times[n], with FRAME_HEADERS u32 header_end[n], headers (log_rows.h).
 * Compaction makes frames with FRAME_GAPS: between header and payload a struct frame_gaps and u32
 * offset[n], counted from the first offset that the frame stands for; n may be 0. Little endian.
 * Readers use the arrays where they lie. */
#ifndef BRAID_SEGMENT_H
#define BRAID_SEGMENT_H
#include "engine/files.h"
#include "engine/log_driver.h"
#include <pthread.h>
#include <stdatomic.h>

#define SEGMENT_MAGIC "BRAIDSEG"
enum {
    SEGMENT_VERSION = 1,
    SEGMENT_HEAD = 64,
    FRAME_MAGIC = 0x31524642, /* "BFR1" */
    FRAME_KEYS = 1,
    FRAME_TIMES = 2,
    FRAME_HEADERS = 4,
    FRAME_GAPS = 8,
    FRAME_FLAGS = 15,
    FRAME_VECTORS = 14,          /* iovecs of a frame */
    INDEX_STEP = 256 << 10,      /* bytes between entries of the index in memory */
    SEGMENT_FDS_MAX = 256,       /* files held open for appending, over all topics */
    RETENTION_SEGMENTS = 4,      /* a topic with retention has at least so many segments */
    SEGMENT_BYTES_MIN = 1 << 20, /* but none made smaller than this by that rule */
    COMPACT_BYTES = 32 << 20,    /* segments of compacted topics */
    TRIM_BYTES = 2 << 20         /* an active segment that is trimmed is closed beyond this */
};

struct segment_head {
    char magic[8];
    uint32_t version, crc; /* crc32c of the 64 bytes with crc = 0 */
    uint32_t topic, partition;
    int64_t base; /* offset of the first record */
    int64_t prev; /* base of the segment before, -1: none. What is between the two is of a refused
                   * group and back after a loss of power */
    uint64_t compacted; /* 0 or 1 */
    int64_t clean;      /* compacted: records before this offset have been taken into account */
    uint64_t zero;
};

struct frame {
    uint32_t magic;
    uint32_t crc;     /* of the header behind this field */
    uint32_t payload; /* crc32c of the arrays without their padding */
    uint32_t flags;
    uint32_t n, values_len, keys_len;
    uint32_t topic; /* id: never reused, so that nothing of a deleted namesake is read */
    int64_t first;  /* offset of the first record */
    int64_t time;
    int64_t time_max; /* greatest `time` of this partition up to here: never falls */
    uint32_t partition, headers_len;
};
struct frame_gaps {
    int64_t end;      /* behind the last offset that the frame stands for */
    uint32_t offsets; /* crc32c of them */
    uint32_t crc;     /* of the fields before, on top of the header's */
};
_Static_assert(sizeof(struct segment_head) == SEGMENT_HEAD && sizeof(struct frame) == 64, "format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little endian");

struct part;
static inline int64_t pad8(int64_t n) {
    return (n + 7) & ~(int64_t)7;
}
/* Behind the last offset of a frame whose header, with FRAME_GAPS also what follows it, is whole.
 */
int64_t frame_end(const struct frame *f);
bool frame_gaps_ok(const struct frame *f);            /* the struct behind the header is whole */
const uint32_t *frame_offsets(const struct frame *f); /* NULL: first, first + 1, ... */
/* Makes a frame one with gaps: `offset` has f->n of them, counted from f->first. */
void frame_gaps_make(struct frame *f, struct frame_gaps *g, int64_t end, const uint32_t *offset);
uint32_t frame_flags(const struct log_buf *buf); /* without FRAME_GAPS */
/* Bytes of a whole frame. */
int64_t frame_bytes(const struct frame *f);
/* Whether the header is whole and possible in itself. */
bool frame_head_ok(const struct frame *f);
/* Checksum and form of the payload behind a good header; fills rows. */
bool frame_rows(const struct frame *f, struct log_rows *rows);
void segment_head_make(struct segment_head *h, const struct part *p, int64_t base, int64_t prev);
void segment_head_compacted(struct segment_head *h, int64_t clean);
/* The header of the segment `base` in the open file; false when it is not whole. */
bool segment_head_read(const struct part *p, int fd, int64_t base, struct segment_head *h);

/* A mapping, shared by the readers of a segment. */
struct map {
    const struct log_files *files;
    char *p;
    size_t len;
    atomic_int refs;
};
void map_unref(struct map *m);

struct segment {
    int64_t base, prev;    /* prev as in its header, -1 also when that is damaged */
    _Atomic int64_t bytes; /* committed */
    _Atomic int64_t end;   /* base of the next segment, INT64_MAX: there is none. What is behind it
                            * in the file is of a refused group, back after a loss of power */
    int64_t bytes_next;    /* of the group being written; committer */
    int64_t clean;         /* as in its header, -1: not compacted */
    int64_t first_time;    /* active: `time_max` of its first frame; committer */
    atomic_int refs;       /* its part and the readers on it */
    /* Under part->mu: */
    struct map *map; /* the newest, one reference; NULL when no reader is here */
    struct mark {
        int64_t offset, at, time_max;
    } * mark; /* sparse, ascending; always the frame at SEGMENT_HEAD first */
    uint32_t marks, marks_cap;
    int64_t scanned, scanned_offset; /* frames before this byte are in the index; next offset */
};

struct tail {            /* what the commit log says of a partition */
    int64_t begin, end;  /* begin may lie inside of a segment */
    int64_t base, bytes; /* of the active segment; base -1: there is none, and no record */
    int64_t time_max;
};

struct topic;
struct part {
    struct topic *topic;
    uint32_t number;
    _Atomic int64_t begin, end; /* committed */
    pthread_mutex_t mu;
    struct segment **seg; /* ascending; under mu */
    uint32_t segs, segs_cap;
    /* Committer: */
    struct tail tail, next; /* committed; with the group being written */
    int64_t from_base;      /* active segment when the group began: rows went there and beyond */
    bool touched, roll;     /* in this group; the active segment is damaged, begin another */
    struct segment *active;
    struct segment **fresh; /* made by this group */
    uint32_t fresh_n, fresh_cap;
    bool compacted; /* in recovery: the segment that is open */
    /* Janitor: compaction has got so far, -1: to be found out; append time of the oldest tombstone
     * that it has left. */
    int64_t clean, tombstone;
    int fd; /* of the active segment or -1 */
    uint64_t used;
};

struct segments { /* shared by all topics of a log */
    const struct log_files *files;
    char dir[FILES_DIR_MAX]; /* .../topics */
    int64_t segment_bytes;
    struct part *open[SEGMENT_FDS_MAX]; /* parts with fd >= 0; committer */
    int opens;
    uint64_t clock;
};

struct log_watch {
    struct log_watch *next;
    char *topic; /* NULL: any */
    void (*wake)(void *);
    void *arg;
};

struct topic {
    struct segments *segments;
    char *name;
    uint32_t id;
    struct log_topic_conf conf;
    atomic_bool deleted;
    atomic_int refs;
    struct log_watch *watches;  /* under the log's watch lock */
    struct topic *next_touched; /* committer */
    bool touched, grown;        /* in this group; by rows */
    struct part part[];
};

struct topic *topic_new(struct segments *ss, const char *name, uint32_t id,
                        const struct log_topic_conf *conf);
void topic_ref(struct topic *t);
void topic_unref(struct topic *t);
int topic_path(const struct topic *t, char path[FILES_PATH_MAX]);
int part_path(const struct part *p, char path[FILES_PATH_MAX]);
int segment_path(const struct part *p, int64_t base, char path[FILES_PATH_MAX]);
/* Makes the directories. 0 or a negated errno. */
int topic_make(struct topic *t, bool sync);

/* ---- committer ---- */
/* Finds the segments of a partition at open and cuts what is beyond the committed end. Damage is
 * left to readers; a note about it goes to `e`. */
int part_load(struct part *p, const struct tail *tail, struct err *e);
/* Writes a frame behind the committed end and the group's earlier ones, to byte *at of the segment
 * that is now p->active. 0 or a negated errno; then part_abort. */
int part_append(struct part *p, const struct log_buf *buf, int64_t time, struct frame *f,
                int64_t *at);
/* Records below `offset` go with the group. */
void part_trim(struct part *p, int64_t offset);
/* The group is committed: readers see it. Calls `drop` for each segment that is given up:
 * its file must be out of the way at once, a new topic of the same name may make another. */
typedef void part_drop(void *arg, const struct part *p, int64_t base);
void part_publish(struct part *p, part_drop *drop, void *arg);
/* The group is not: cuts the files back, or leaves them to recovery when the outcome is unknown. */
void part_abort(struct part *p, bool cut);
/* Opens a segment as p->fd; closes the part used longest ago when too many are open. 0 or a
 * negated errno. */
int part_open(struct part *p, int64_t base, int flags);
void part_close(struct part *p); /* its fd */
struct segment *segment_new(int64_t base, int64_t bytes);
/* DIR/….seg.tmp of a segment under compaction. 0 or a negated errno. */
int segment_tmp_path(const struct part *p, int64_t base, char path[FILES_PATH_MAX]);
/* `new`, whose rows are in the tmp file, takes the place of `old`, when that is still a closed
 * segment of the partition; else the file goes. */
void part_swap(struct part *p, struct segment *old, struct segment *new);
/* The vectors of a frame; returns their number. */
int frame_vectors(const struct frame *f, const struct log_buf *buf, struct iovec v[FRAME_VECTORS]);

/* ---- readers ---- */
int64_t part_bytes(struct part *p);
int64_t part_offset_at(struct part *p, int64_t ms);
/* Takes a reference to the topic. */
struct log_reader *reader_new(const struct log_driver *d, struct part *p, int64_t offset);
int reader_read(struct log_reader *r, uint32_t max, struct log_rows *rows, int64_t *offset,
                struct err *e);
int reader_seek(struct log_reader *r, int64_t offset, struct err *e);
void reader_close(struct log_reader *r);
void segment_unref(struct segment *s);
#endif
