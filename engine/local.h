/* Inside of the local log: what its threads share. The committer thread writes segments and the
 * commit log; the janitor thread merges sealed commit logs into a snapshot and deletes files. */
#ifndef BRAID_LOCAL_H
#define BRAID_LOCAL_H
#include "engine/commit.h"
#include "engine/log_local.h"
#include "engine/segment.h"
#include "engine/snapshot.h"

enum {
    SEGMENT_BYTES = 256 << 20,
    COMMIT_BYTES_MIN = 64 << 20,  /* a commit log is sealed at the size of the last snapshot, */
    COMMIT_BYTES_MAX = 256 << 20, /* but between these two (and at most one group later) */
    SEALED_MAX = 4,               /* sealed commit logs; then commits wait for the janitor */
    GROUP_EPOCHS = 256,           /* a group commit takes at most so many epochs */
    GROUP_BYTES = 64 << 20,       /* and stops beyond this */
    TOMBSTONE_MS = 24 * 3600 * 1000,
    TEND_MS = 10000,     /* between two looks for records that are too old */
    TIDY_BYTES = 4 << 20 /* open and close merge commit logs beyond this, else leave them */
};

/* Keys of the driver's own state, behind LOG_KEY_RESERVED. */
enum {
    KEY_TOPIC = 'T', /* + name -> struct topic_value */
    KEY_PART = 'P',  /* + u32 topic, u32 partition -> struct part_value */
    KEY_NEXT = 'N',  /* -> u32 next topic id */
    KEY_PART_LEN = 10
};
struct topic_value {
    uint32_t id, partitions;
    int64_t retention_bytes;
    int64_t retention_ms; /* from here on: left out when all of it is 0 */
    uint32_t flags, zero;
};
enum { TOPIC_COMPACT = 1 };
enum { TOPIC_VALUE_SHORT = 16 };
struct part_value {
    int64_t begin, end, base, bytes, time_max;
    int64_t from_base; /* segments from this one on were written since the entry before */
};

struct job {
    enum { JOB_EPOCH, JOB_CREATE, JOB_DELETE, JOB_SWAP } kind;
    struct job *next;
    struct log_epoch *ep;
    log_done *done;
    void *arg;
    bool refused;         /* names a topic that does not exist */
    struct topic **topic; /* of each append */
    uint64_t no;
    struct err err;
    const char *name; /* JOB_CREATE, JOB_DELETE */
    const struct log_topic_conf *conf;
    int rc;
    bool ready;
    struct swap *swap; /* JOB_SWAP */
};

/* A compacted file in the place of a segment: made by the janitor, put there by the committer. */
struct swap {
    struct part *part;         /* its topic is referenced */
    struct segment *old, *new; /* a reference each */
};

struct view { /* the state as of a commit: what log_state_each walks */
    uint64_t no;
    struct snapshot *snap;
    struct index index;
    struct commit_file *file;
    int files;
    int refs; /* under view_mu */
};

struct doomed { /* a file or tree to delete */
    struct doomed *next;
    char path[];
};

struct local {
    struct log base;
    const struct log_files *files;
    char dir[FILES_DIR_MAX], commit_dir[FILES_DIR_MAX], snapshot_dir[FILES_DIR_MAX],
        trash_dir[FILES_DIR_MAX];
    char boot[FILES_BOOT_LEN];
    int lock_fd;
    struct segments segments;
    int64_t commit_bytes; /* as configured */
    int64_t tend_ms, tombstone_ms;
    bool changed_durability; /* commit logs found at open were written under the other one */

    pthread_mutex_t mu;
    pthread_cond_t work;   /* to the committer: jobs, stop */
    pthread_cond_t ready;  /* to those who wait for a topic job */
    pthread_cond_t chores; /* to the janitor */
    pthread_cond_t tidied; /* from the janitor: an attempt has ended */
    struct job *head, **tail;
    bool stop_commits, stop_chores;
    struct topic **topic; /* by name; changed by the committer, under mu */
    uint32_t topics, topics_cap;
    uint32_t tended;                      /* of them, those that the janitor visits now and then */
    uint64_t published_no, published_log; /* last commit; log it is in */
    int64_t published_bytes;              /* committed bytes of that log */
    uint64_t snap_number;                 /* first commit log not in the snapshot */
    int64_t snap_size;
    bool want_snapshot, making_snapshot;
    struct err snapshot_err; /* code 0: the last attempt went well */
    struct doomed *doomed;

    pthread_mutex_t view_mu;
    struct snapshot *snap; /* or NULL */
    struct view *view;     /* cache */

    pthread_mutex_t watch_mu; /* before mu; held while callbacks run */
    struct log_watch *watch_any, *watch_orphans;

    /* Committer: */
    struct commit_log commit;
    uint64_t last_no;
    uint32_t next_topic;
    bool broken; /* an outcome is unknown: no further commits */
    struct err broken_err;
    bool sync_failed; /* janitor: rows are to be written again before the next sync */
    pthread_t committer, janitor;
    bool has_committer, has_janitor;
};

/* local.c */
/* Whether the janitor visits it every tend_ms. */
static inline bool topic_tended(const struct topic *t) {
    return t->conf.retention_ms > 0 || t->conf.compact;
}
struct topic *local_topic(struct local *l, const char *name); /* under mu or in the committer */
/* Under watch_mu and mu: watches move with the name. */
void local_topic_insert(struct local *l, struct topic *t);
void local_topic_remove(struct local *l, struct topic *t);
void local_doom(void *local, const char *path);
int64_t local_tidy_bytes(const struct local *l);
void part_key(char key[KEY_PART_LEN], uint32_t topic, uint32_t partition);
/* committer.c */
void *committer_run(void *local);
void committer_submit(struct local *l, struct job *j);
struct job *committer_job(struct log_epoch *ep, log_done *done, void *arg);
/* The janitor's: under mu and before stop_commits; the outcome does not matter. */
void committer_chore(struct local *l, struct log_epoch *ep);
void committer_swap(struct local *l, struct swap *s); /* alike; frees it */
void swap_drop(struct swap *s);
/* compact.c, janitor */
void compact_part(struct local *l, struct part *p);
/* janitor.c */
void *janitor_run(void *local);
/* Merges the sealed commit logs into a new snapshot. */
int janitor_snapshot(struct local *l, struct err *e);
/* recover.c */
int recover(struct local *l, struct err *e);
/* view.c */
int view_take(struct local *l, struct view **v, struct err *e);
void view_release(struct local *l, struct view *v);
void view_forget(struct local *l); /* the cached one, when nobody holds the lock */
/* Maps commit logs first..last; *files of them are then in `cf`. */
int view_map(struct local *l, struct commit_file *cf, uint64_t first, uint64_t last,
             int64_t last_bytes, int *files, struct err *e);
void view_index(struct index *ix, const struct commit_file *cf, int files);
#endif
