#include "engine/files.h"
#include "tests/unit/log_suite.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static struct log_conf conf = { .dir = dir };

static struct log *open_log(void) {
    struct log *log;
    struct err e = ERR_INIT;
    if (log_open(&log, &conf, &e))
        fail_msg("open: %s: %s", e.file, e.text);
    return log;
}

static struct log *fresh(void *arg, int64_t segment_bytes) {
    conf = (struct log_conf){ .dir = dir,
                              .segment_bytes = segment_bytes,
                              .durability = *(enum log_durability *)arg };
    snprintf(dir, sizeof dir, "/tmp/braid-log-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return open_log();
}

static struct log *reopen(void *arg, struct log *log) {
    (void)arg;
    log_close(log);
    return open_log();
}

static void discard(void *arg, struct log *log) {
    (void)arg;
    log_close(log);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    static struct log_conf process, power = { .durability = LOG_POWER },
                                    small = { .commit_bytes = 3000 };
    struct log_suite suites[] = {
        { "log_local process", &process, fresh, reopen, discard },
        { "log_local power", &power, fresh, reopen, discard },
        { "log_local with a snapshot every few commits", &small, fresh, reopen, discard },
    };
    int failed = 0;
    for (int i = 0; i < 3; i++)
        failed += log_suite_run(&suites[i]);
    return failed;
}
