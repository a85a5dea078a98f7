/* state_keys DIR: what a stopped server keeps as state, as JSON. Journal and producers by kind of
 * key (PM, PD, PH, I), state of tasks by instance. For the soak test: nothing of it may grow. */
#include "engine/log_local.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { INSTANCES_MAX = 1 << 16 };

struct count {
    int64_t meta, flows, histories, producers, bytes, keys;
    int instances;
    struct {
        uint64_t instance;
        int64_t keys, bytes;
    } v[INSTANCES_MAX];
};
static struct count total;

static uint64_t number(const unsigned char *p) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n = n << 8 | p[i];
    return n;
}

/* Keys come sorted, those of an instance together. */
static void add_task(struct count *c, uint64_t instance, uint32_t bytes) {
    if (c->instances == 0 || c->v[c->instances - 1].instance != instance) {
        if (c->instances == INSTANCES_MAX)
            return;
        c->v[c->instances++].instance = instance;
    }
    c->v[c->instances - 1].keys++;
    c->v[c->instances - 1].bytes += bytes;
}

static int add(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    struct count *c = arg;
    const unsigned char *k = key;
    (void)value;
    c->keys++;
    c->bytes += klen + vlen;
    if (k[0] == 'S' && klen >= 10)
        add_task(c, number(k + 1), klen + vlen);
    else if (k[0] == 'I')
        c->producers++;
    else if (k[0] == 'P' && klen >= 2)
        *(k[1] == 'M' ? &c->meta : k[1] == 'D' ? &c->flows : &c->histories) += 1;
    return 0;
}

int main(int argc, char **argv) {
    struct log_conf conf = { .dir = argc > 1 ? argv[1] : "" };
    struct log *log;
    struct err e = ERR_INIT;
    static const char *const prefixes[] = { "S", "P", "I" };
    int rc = log_open(&log, &conf, &e);
    if (rc < 0) {
        fprintf(stderr, "state_keys: %s\n", e.text);
        return 1;
    }
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = log_state_each(log, prefixes[i], 1, add, &total, &e);
    log_close(log);
    if (rc < 0) {
        fprintf(stderr, "state_keys: %s\n", e.text);
        return 1;
    }
    printf("{\"keys\":%" PRId64 ",\"bytes\":%" PRId64 ",\"PM\":%" PRId64 ",\"PD\":%" PRId64
           ",\"PH\":%" PRId64 ",\"I\":%" PRId64 ",\"instances\":{",
           total.keys, total.bytes, total.meta, total.flows, total.histories, total.producers);
    for (int i = 0; i < total.instances; i++)
        printf("%s\"%" PRIu64 "\":[%" PRId64 ",%" PRId64 "]", i ? "," : "", total.v[i].instance,
               total.v[i].keys, total.v[i].bytes);
    printf("}}\n");
    return 0;
}
