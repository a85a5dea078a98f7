/* The functions behind the table of commands (commands.c), and their options. */
#ifndef BRAID_CMD_H
#define BRAID_CMD_H
#include "cluster/cli.h"

#define BRAID_VERSION "0.1.0"

struct help_options {
    bool markdown;
};
int cmd_operators(struct cli *c);
int cmd_version(struct cli *c);
int cmd_help(struct cli *c);
#endif
