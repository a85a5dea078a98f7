/* Where the graph meets the log: the sources and sinks of one executor (executor.c and port.c
 * only). A source task is bound to a reader or makes its own rows; a sink task to a topic, a file,
 * or nothing but the taps that follow it. Executor thread. */
#ifndef BRAID_PORT_H
#define BRAID_PORT_H
#include "engine/executor.h"

enum { PORT_TRIM_BYTES = 1 << 20 }; /* an exchange is trimmed each time so much has been read */

enum port_kind { PORT_SOURCE, PORT_MAKER, PORT_TOPIC, PORT_FILE, PORT_NONE };
struct port {
    enum port_kind kind;
    struct task *task;
    const char *topic;    /* or file name */
    char internal[40];    /* name of an exchange's topic; `topic` points here */
    uint32_t partitions;  /* PORT_TOPIC: of the topic */
    struct log_buf **buf; /* PORT_TOPIC with several partitions: rows of this epoch, by partition */
    struct log_reader *reader;
    size_t read_bytes; /* reader of an exchange: since its topic was trimmed */
    int64_t start;     /* position when it was grafted; -1: from state */
    int64_t cut;       /* position at the last change of the graph */
    int64_t base_ns;   /* PORT_MAKER: when its row 0 was or would have been due */
    bool ended;        /* PORT_MAKER: it has no more rows */
    uint32_t width;    /* PORT_SOURCE: rows a record in its last tick */
    /* PORT_SOURCE: nothing to read since quiet_ns. What has been decided of it in the open epochs:
     * a redo takes it for idle at the same offsets. silent[0..at) have been, [0..pushed) are in the
     * committing epoch. */
    bool quiet;
    int64_t quiet_ns;
    struct port_silence {
        int64_t off, ms;
    } * silent;
    uint32_t nsilent, silent_cap, silent_at, silent_pushed;
    struct err err;
    bool failed;
    const struct log_files *files; /* PORT_FILE */
    int fd;
    int64_t length;      /* PORT_FILE: bytes of closed epochs */
    struct sbuf pending; /* PORT_FILE: bytes of the running epoch, counted in ports.pending */
    size_t *all_pending;
    struct executor_tap *taps; /* PORT_NONE */
    struct port *next;
};
enum { RECORD_ROWS = 64 };              /* of an exchange, before its first tick has told */
#define PORT_EXCHANGE "braid.exchange." /* and the number of the exchange's instance */
struct ports {
    struct log *log;
    const char *out_dir;
    const struct log_files *files; /* of file sinks */
    bool sync;                     /* file sinks are on the disk before the commit */
    uint32_t partition;            /* of the topics that are read */
    size_t pending;                /* bytes for sink files in the running epoch */
    struct port *first;
};

static inline bool port_reads(const struct port *p) {
    return p->kind == PORT_SOURCE || p->kind == PORT_MAKER;
}
static inline bool port_exchange(const struct port *p) {
    return p->topic == p->internal;
}
/* Binds a new task; nothing to do for inner tasks. ERR_NOTFOUND: its topic is gone. */
int ports_bind(struct ports *ps, struct task *t, bool restore, struct err *e);
void ports_unbind(struct ports *ps, struct task *t); /* also when it was not bound */
void ports_free(struct ports *ps);
/* After a restart, on partition 0: removes topics of exchanges that are in no plan. A crash leaves
 * them before the commit of a graft, which has made its topic, and behind that of a removal. */
void ports_sweep(struct ports *ps, struct exec *ex);
/* A change of the graph takes effect here. Until all sources are there again after an abort
 * (ports_behind), the epoch must not commit: its plan says that the rows before were seen. */
void ports_cut(struct ports *ps);
bool ports_behind(const struct ports *ps);
/* The source has been silent for `ms`: part of the running epoch. */
void port_silent(struct port *p, int64_t ms);
/* The next such decision that a redo has to repeat; NULL: none. */
const struct port_silence *port_silence(const struct port *p);
/* Rows that reached a sink go into the epoch. Negative: they do not fit into it. */
int ports_sink(struct task *t, const struct batch *b, struct log_epoch *ep);
/* The epoch closes: rows that were kept by partition go into it, bytes of file sinks are written;
 * their lengths become state. Negative without text in `e`: they do not fit. */
int ports_close_epoch(struct ports *ps, struct log_epoch *ep, struct err *e);
void ports_push(struct ports *ps);   /* with undo_push */
void ports_commit(struct ports *ps); /* taps get their rows */
/* After undo: readers and files return to the last commit. */
void ports_abort(struct ports *ps);
struct executor_tap **ports_taps(struct task *t); /* NULL: no sink that stores nothing */
void ports_untap(struct ports *ps, const struct executor_tap *tap); /* and its copies */
#endif
