#include "tests/unit/scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char scratch_dir[64];

int scratch_make(void **state) {
    (void)state;
    snprintf(scratch_dir, sizeof scratch_dir, "/tmp/braid-test-XXXXXX");
    assert_non_null(mkdtemp(scratch_dir));
    return 0;
}

int scratch_remove(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", scratch_dir);
    return system(command);
}

struct log *scratch_log(void) {
    struct log *log;
    struct err e = ERR_INIT;
    struct log_conf conf = { .dir = scratch_dir };
    if (log_open(&log, &conf, &e) < 0)
        fail_msg("%s", e.text);
    return log;
}

void scratch_put_flow(struct log_epoch *ep, const struct journal_flow *f) {
    struct sbuf text = { 0 };
    journal_flow_text(&text, f);
    journal_put_flow(ep, f->serial, text.p, text.len);
    sbuf_free(&text);
}

int64_t scratch_end(struct log *log, const char *topic) {
    struct log_topic_info info;
    assert_int_equal(log_topic_info(log, topic, &info, NULL), 0);
    return info.end;
}
