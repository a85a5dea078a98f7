/* A directory for each test of what a server keeps in one, and its log seen from below. */
#ifndef BRAID_TESTS_SCRATCH_H
#define BRAID_TESTS_SCRATCH_H
#include "cluster/journal.h"
#include "engine/log.h"

extern char scratch_dir[64];
/* cmocka setup and teardown: make it, remove it. */
int scratch_make(void **state);
int scratch_remove(void **state);
struct log *scratch_log(void);
void scratch_put_flow(struct log_epoch *ep, const struct journal_flow *f);
int64_t scratch_end(struct log *log, const char *topic);
#endif
