/* What a driver of log.h provides, and the epoch in memory that all drivers share. For drivers
 * only; users include log.h. */
#ifndef BRAID_LOG_DRIVER_H
#define BRAID_LOG_DRIVER_H
#include "engine/log.h"

struct log_driver {
    void (*close)(struct log *log);
    int (*topic_create)(struct log *log, const char *name, const struct log_topic_conf *conf,
                        struct err *e);
    int (*topic_delete)(struct log *log, const char *name, struct err *e);
    int (*topic_info)(struct log *log, const char *name, struct log_topic_info *info,
                      struct err *e);
    int (*topic_ends)(struct log *log, const char *name, uint32_t partition, int64_t *begin,
                      int64_t *end, struct err *e);
    int (*topic_list)(struct log *log, int (*each)(void *, const struct log_topic_info *),
                      void *arg);
    int64_t (*offset_at)(struct log *log, const char *topic, uint32_t partition, int64_t ms);
    int (*reader_open)(struct log *log, const char *topic, uint32_t partition, int64_t offset,
                       struct log_reader **r, struct err *e);
    int (*read)(struct log_reader *r, uint32_t max, struct log_rows *rows, int64_t *offset,
                struct err *e);
    int (*seek)(struct log_reader *r, int64_t offset, struct err *e);
    void (*reader_close)(struct log_reader *r);
    struct log_watch *(*watch)(struct log *log, const char *topic, void (*wake)(void *), void *arg);
    void (*unwatch)(struct log *log, struct log_watch *w);
    /* Takes the epoch; calls `done` once, then log_epoch_drop. */
    void (*commit)(struct log *log, struct log_epoch *ep, log_done *done, void *arg);
    int (*state_each)(struct log *log, const void *prefix, uint32_t plen,
                      int (*each)(void *, const void *key, uint32_t klen, const void *value,
                                  uint32_t vlen),
                      void *arg, struct err *e);
};

/* First members of the driver's own structures. */
struct log {
    const struct log_driver *driver;
};
struct log_reader {
    const struct log_driver *driver;
};

struct epoch_append {
    uint32_t topic; /* offset of its name in epoch->names */
    uint32_t partition;
    struct log_buf *buf; /* one reference */
    int64_t time;
    int64_t *first;
};

struct epoch_offset { /* of log_epoch_state_offset */
    size_t at;        /* byte of `state` */
    uint32_t append;
};

struct epoch_trim {
    uint32_t topic; /* offset of its name in epoch->names */
    uint32_t partition;
    int64_t offset;
    uint64_t id; /* of the topic that is meant; 0: whichever has the name */
};

/* State changes lie in `state` one after the other in the form in which they go to disk:
 * u32 klen, u32 vlen (LOG_NULL: removed), key, value; little endian, not padded. */
struct log_epoch {
    struct log *log;
    struct epoch_append *append;
    uint32_t n, cap;
    char *names; /* NUL-terminated, each run of equal topics once */
    uint32_t names_len, names_cap;
    char *state;
    size_t state_len, state_cap;
    struct epoch_offset *offset;
    uint32_t offsets, offsets_cap;
    struct epoch_trim *trim;
    uint32_t trims, trims_cap;
    size_t bytes;
};

/* NULL, or what is wrong with the name. */
const char *log_topic_name_check(const char *name);
#endif
