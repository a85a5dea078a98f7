/* A dataflow file on this machine: its text, the files its configs name (relative to the
 * directory it lies in), variables from the environment. For `run`, `validate` and `submit`.
 * Everything lives in the arena given to flowfile_load. One thread. */
#ifndef BRAID_FLOWFILE_H
#define BRAID_FLOWFILE_H
#include "planner/spec.h"

enum {
    FLOWFILE_FILE_MAX = 256 << 20, /* bytes of a file that a config names */
    FLOWFILE_VARS_MAX = 1000
};
struct flowvar {
    const char *name, *value;
};

struct flowfile {
    struct arena *arena;
    const char *name; /* as given; "-": stdin */
    char *text;
    size_t len;
    int nfiles; /* named by configs and read: filled by flowfile_parse */
    struct file *files;
    int nvars; /* ${NAME} in its configs, and what they are in this environment */
    struct flowvar *vars;
    int ngiven; /* set before flowfile_parse: ${NAME}s that count before the environment's */
    const struct flowvar *given;
    bool remote; /* set before flowfile_parse: secrets are a server's, and not looked for here */
    struct spec spec;
};

/* Reads the text. ERR_NOTFOUND, ERR_SYSTEM, ERR_INPUT (too large). */
int flowfile_load(struct flowfile *f, const char *name, struct arena *a, struct err *e);
/* Parses and checks it, reading the files it names. 0 or ERR_INPUT with all errors in `es`;
 * remarks in `warn` (may be NULL). ${secret:NAME} is the file secrets/NAME below BRAID_DIR, by
 * default ./braid-data, as on a server. */
int flowfile_parse(struct flowfile *f, struct errs *es, struct errs *warn);
#endif
