/* The table of commands. */
#include "cluster/cmd.h"
#include "engine/batch.h"
#if __has_include("cluster/up.c")
#include "cluster/up.h"
#endif

/* How a recorded stream is repeated. */
#define DATASET_OPTIONS(T, member)                                                                 \
    { .name = "loop",                                                                              \
      .type = CLI_INT,                                                                             \
      .value = "N",                                                                                \
      .offset = offsetof(T, member.loop),                                                          \
      .min = 1,                                                                                    \
      .max = 9e18,                                                                                 \
      .help = "repeat the file N times; every time in a record moves on by the file's length" },   \
        { .name = "keys",                                                                          \
          .type = CLI_INT,                                                                         \
          .value = "K",                                                                            \
          .offset = offsetof(T, member.keys),                                                      \
          .min = 1,                                                                                \
          .max = DATASET_KEYS_MAX,                                                                 \
          .help = "make K distinct ids of those in the file, by suffixes from pass to pass" },     \
        { .name = "id-field",                                                                      \
          .type = CLI_TEXT,                                                                        \
          .value = "NAME",                                                                         \
          .offset = offsetof(T, member.id_field),                                                  \
          .help = "the field that --keys changes: a name, in CSV a number from 1 on; known for "   \
                  "sys, taxi and fit" },                                                           \
        { .name = "shuffle",                                                                       \
          .type = CLI_INT,                                                                         \
          .value = "N",                                                                            \
          .offset = offsetof(T, member.shuffle),                                                   \
          .min = 1,                                                                                \
          .max = DATASET_SHUFFLE_MAX,                                                              \
          .help = "records come out of order, among N at a time" },                                \
        { .name = "jitter",                                                                        \
          .type = CLI_INT,                                                                         \
          .value = "MS",                                                                           \
          .offset = offsetof(T, member.jitter),                                                    \
          .min = 0,                                                                                \
          .max = 9e15,                                                                             \
          .help = "records are late by up to MS milliseconds" },                                   \
        { .name = "seed",                                                                          \
          .type = CLI_INT,                                                                         \
          .value = "N",                                                                            \
          .offset = offsetof(T, member.seed),                                                      \
          .min = 0,                                                                                \
          .max = 9e18,                                                                             \
          .help = "of --shuffle and --jitter; the same seed gives the same bytes (default 0)" },   \
    {                                                                                              \
        .name = "lines", .type = CLI_TEXT, .value = "HOW", .offset = offsetof(T, member.lines),    \
        .help = "whether a line begins with its time in ms and a comma: timed or plain; by "       \
                "default the first line tells"                                                     \
    }

static const struct cli_option run_options[] = {
    { .name = "in",
      .type = CLI_LIST,
      .value = "TOPIC=FILE",
      .offset = offsetof(struct run_options, in),
      .help = "the records of a topic: a file, one record a line; sys, taxi or fit for a recorded "
              "stream of RIoTBench; - for stdin. TOPIC= may be left out when there is one" },
    { .name = "out",
      .type = CLI_LIST,
      .value = "TOPIC=FILE",
      .offset = offsetof(struct run_options, out),
      .help = "where a sink's rows go (name of its topic or file, or the task's id); stdout by "
              "default, then with the name before each row when several share it" },
    { .name = "now",
      .type = CLI_MS,
      .value = "TIME",
      .offset = offsetof(struct run_options, now),
      .help = "the time at which all records count as received; default: the start" },
    { .name = "dead",
      .type = CLI_TEXT,
      .value = "FILE",
      .offset = offsetof(struct run_options, dead),
      .help = "write dead letters there, one JSON object a line" },
    { .name = "batch",
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct run_options, batch),
      .min = 1,
      .max = BATCH_ROWS,
      .help =
          "rows worked on at a time, 1 to 1024; changes the speed, never the output of a sink" },
    { .name = "limit",
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct run_options, limit),
      .min = 1,
      .max = 9e18,
      .help = "end after N records of each source" },
    { .name = "quiet",
      .letter = 'q',
      .type = CLI_FLAG,
      .offset = offsetof(struct run_options, quiet),
      .help = "no summary" },
    DATASET_OPTIONS(struct run_options, data),
    { 0 },
};

static const struct cli_option help_options[] = {
    { .name = "markdown",
      .type = CLI_FLAG,
      .offset = offsetof(struct help_options, markdown),
      .help = "print the page docs/cli.md" },
    { 0 },
};

const struct cli_command cli_commands[] = {
    { .name = "run",
      .group = HELP_LOCAL,
      .args = "FILE",
      .summary = "run one dataflow alone, in this process, over files",
      .help =
          "Reads the dataflow file FILE, feeds the given records through it and ends when they\n"
          "end; then all open windows close. Rows go to stdout or files, a summary of every\n"
          "task and of the dead letters to stderr. What a dataflow puts out here is what it\n"
          "puts out on a server with `history: own`.",
      .examples = "  braid run dataflows/riotbench/etl-sys.json --in sys=sys\n"
                  "  braid run flow.json --in readings=today.csv --out alarms=alarms.json",
      .min = 1,
      .max = 1,
      .options = run_options,
      .options_size = sizeof(struct run_options),
      .run = cmd_run },
    { .name = "validate",
      .group = HELP_LOCAL,
      .args = "FILE…",
      .summary = "check dataflow files; report all errors at once",
      .help = "Prints every task with what it reads and the fields of the rows it makes, as\n"
              "inferred from the sources on. With --json also the tasks' signatures: equal\n"
              "signatures are the same task and run once.",
      .examples = "  braid validate dataflows/riotbench/*.json",
      .min = 1,
      .max = -1,
      .run = cmd_validate },
#if __has_include("cluster/up.c")
    { .name = "up",
      .group = HELP_SERVER,
      .args = "",
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
