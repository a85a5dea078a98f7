/* Settings: one table, three spellings of each. `--segment-bytes 64MiB` on the command line is
 * `BRAID_SEGMENT_BYTES=64MiB` in the environment and `segment-bytes = 64MiB` in the file that
 * --config names. A flag wins over the environment, that over the file, that over the default.
 * Unknown names are errors with the nearest known one, in all three places.
 *
 * A file has one `name = value` a line; blank lines and lines that begin with # are skipped; white
 * space around name and value is dropped. Settings of the other role may stand in file and
 * environment, so that server and client can share them. One thread; no globals but the table. */
#ifndef BRAID_CONF_H
#define BRAID_CONF_H
#include "engine/arena.h"
#include "engine/err.h"
#include <stdint.h>

enum conf_role { CONF_SERVER = 1, CONF_CLIENT = 2 };
enum conf_type {
    CONF_TEXT,
    CONF_WORD,   /* number: index into words */
    CONF_SIZE,   /* number: bytes; "64MiB" */
    CONF_INTEGER /* number */
};
enum conf_key {
    CONF_ALIGN_MEMORY,
    CONF_CONFIG,
    CONF_DIR,
    CONF_DURABILITY,
    CONF_EXECUTORS,
    CONF_LISTEN,
    CONF_PRODUCERS,
    CONF_SEGMENT_BYTES,
    CONF_STATE_MEMORY,
    CONF_URL,
    CONF_KEYS
};
struct conf_setting {
    const char *name;
    enum conf_type type;
    unsigned roles;
    const char *def;          /* NULL: none */
    int64_t min, max;         /* CONF_SIZE, CONF_INTEGER */
    const char *const *words; /* CONF_WORD: NULL-terminated */
    const char *value;        /* what stands for the value in help texts */
    const char *help;         /* one sentence */
};
extern const struct conf_setting conf_settings[CONF_KEYS]; /* sorted by name */

struct conf {
    struct {
        const char *text; /* NULL: not given and no default */
        int64_t number;
        const char *from; /* where it was said, for messages; NULL: the default */
    } v[CONF_KEYS];
    struct arena arena;
};

void conf_init(struct conf *c);
/* If argv[i] is a setting of one of the roles ("--name value" or "--name=value"): takes it and
 * returns the number of arguments used, 1 or 2; 0 when it is something else; negative on error.
 * The first of two equal flags loses. */
int conf_flag(struct conf *c, unsigned roles, int argc, char **argv, int i, struct err *e);
/* After all flags: environment (`vars`, NULL-terminated), file, defaults. Names BRAID_TEST_*,
 * BRAID_SEED and BRAID_BUILD belong to the tests and are passed over. */
int conf_finish(struct conf *c, unsigned roles, char **vars, struct err *e);
void conf_free(struct conf *c);
/* The nearest flag of these roles for a "did you mean", with its dashes; NULL: none. */
const char *conf_nearest(const char *flag, unsigned roles, char *buf, size_t size);
/* Its help with the default and the name of the environment variable. */
struct sbuf;
void conf_describe(struct sbuf *out, const struct conf_setting *s);
#endif
