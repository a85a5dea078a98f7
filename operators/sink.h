/* Configs of the stages that bring records out. The executor does their I/O: it takes
 * batch->encoded (log.h) and stores it. Filled by lowering (sink.c), constant afterwards. */
#ifndef BRAID_OPERATORS_SINK_H
#define BRAID_OPERATORS_SINK_H
#include "engine/op.h"

/* `append` (OP_SINK): records of a topic. */
struct append_config {
    const char *topic;
    bool append; /* others may write the topic too: no conflict */
};
/* `write_file` (OP_SINK): lines of DIR/out/FILE. */
struct write_file_config {
    const char *file; /* relative, no ".." */
};
/* `discard` (OP_SINK): stores nothing; `tail` follows its rows. */
struct discard_config {
    const char *name; /* NULL: share with every equal one */
};
#endif
