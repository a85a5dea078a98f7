/* Sends a recorded stream into a topic of a server: in posts of whole batches with a producer's
 * number, so that a post that is repeated after an error is not appended twice. Records go out on
 * their schedule whatever the answers do (open loop): what falls behind is sent as fast as it can
 * be, and reported as lag. In a topic of several partitions a record goes where its id belongs, as
 * a Kafka producer would put it (all to one when the dataset has no ids), so that the records of an
 * id stay in order; each partition then has a producer of its own, NAME.PARTITION. One thread. */
#ifndef BRAID_REPLAY_H
#define BRAID_REPLAY_H
#include "cluster/client.h"
#include "cluster/dataset.h"

enum {
    REPLAY_POST_BYTES = 1 << 20, /* a post is closed beyond this */
    REPLAY_POST_RECORDS = 16384,
    REPLAY_LINGER_MS = 2,       /* a record waits at most this for others to share its post */
    REPLAY_RETRY_MS_FIRST = 50, /* between tries, doubling */
    REPLAY_RETRY_MS_LAST = 2000,
    REPLAY_PRODUCER_MAX = 90, /* INGEST_NAME_MAX less ".PARTITION" */
};
struct replay_conf {
    struct client *client;
    struct dataset *data;
    const char *topic;
    const char *producer; /* NULL: one made of random bits */
    int64_t first_seq;    /* number of the first post */
    int64_t retry_ms;     /* tries again for this long after the last success */
    int64_t limit;        /* records; 0: all */
    bool scheduled;       /* the dataset was opened with a rate or speed */
    /* Called about ten times a second and with every try that failed (`trouble`, else NULL). */
    void (*tell)(void *arg, int64_t records, int64_t bytes, int64_t behind_ms, const char *trouble);
    void *arg;
};
struct replay_totals {
    int64_t records, bytes, posts, repeated; /* posts sent more than once */
    int64_t first, next; /* offsets of the first record and after the last; -1 with several
                          * partitions */
    uint32_t partitions;
    int64_t behind_ms_max;
    int64_t ns;
    bool stopped; /* by replay_stop, before the end */
};
/* Sends everything; 0 after the last record is committed, or after replay_stop. On failure `es`
 * tells why and totals what was committed before. */
int replay_all(const struct replay_conf *conf, struct replay_totals *t, struct errs *es);
/* Ends a running replay after the post under way. Signal handlers. */
void replay_stop(void);
#endif
