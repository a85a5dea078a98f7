/* The functions behind the table of commands (commands.c), and their options. */
#ifndef BRAID_CMD_H
#define BRAID_CMD_H
#include "cluster/cli.h"
#include "cluster/dataset.h"

#define BRAID_VERSION "0.1.0"

struct help_options {
    bool markdown;
};
/* How a recorded stream is repeated; the same for `run --in` and `replay`. */
struct dataset_options {
    int64_t loop, keys, shuffle, jitter, seed;
    const char *id_field, *lines;
};
/* Everything but source, rate and speed. */
int cmd_dataset_conf(struct cli *c, const struct dataset_options *d, struct dataset_conf *conf);
struct run_options {
    struct cli_list in, out;
    int64_t now, batch, limit;
    const char *dead;
    bool quiet;
    struct dataset_options data;
};

int cmd_run(struct cli *c);
int cmd_validate(struct cli *c);
int cmd_operators(struct cli *c);
int cmd_version(struct cli *c);
int cmd_help(struct cli *c);
#endif
