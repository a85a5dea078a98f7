/* The table of commands. */
#include "cluster/cmd.h"
#if __has_include("cluster/up.c")
#include "cluster/up.h"
#endif

static const struct cli_option help_options[] = {
    { .name = "markdown",
      .type = CLI_FLAG,
      .offset = offsetof(struct help_options, markdown),
      .help = "print the page docs/cli.md" },
    { 0 },
};

const struct cli_command cli_commands[] = {
#if __has_include("cluster/up.c")
    { .name = "up",
      .group = HELP_SERVER,
      .summary = "start a server: coordinator and worker in one process",
      .main = up_main },
#endif
    { .name = "operators",
      .group = HELP_OTHER,
      .args = "[NAME]",
      .summary = "what tasks can be made of, and their parameters",
      .max = 1,
      .run = cmd_operators },
    { .name = "version",
      .group = HELP_OTHER,
      .args = "",
      .summary = "print the version",
      .run = cmd_version },
    { .name = "help",
      .group = HELP_OTHER,
      .args = "[COMMAND]",
      .summary = "this list, or help for one command",
      .max = 1,
      .options = help_options,
      .options_size = sizeof(struct help_options),
      .run = cmd_help },
    { 0 },
};
