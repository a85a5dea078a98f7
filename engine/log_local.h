/* The driver of log.h on files of one machine, for one process. Formats, recovery and bounds:
 * docs/log.md. */
#ifndef BRAID_LOG_LOCAL_H
#define BRAID_LOG_LOCAL_H
#include "engine/log.h"

int log_local_open(struct log **log, const struct log_conf *conf, struct err *e);
#endif
