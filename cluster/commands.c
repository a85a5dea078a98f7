/* The table of commands. */
#include "cluster/cmd.h"
#include "cluster/up.h"
#include "engine/batch.h"
#include "engine/log_rows.h"

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
        .help = "whether a line begins with its time in ms since 1970 and a comma: timed or "      \
                "plain; by default the first line tells (its number must be 100000000 or more)"    \
    }

static const struct cli_option run_options[] = {
    { .name = "in",
      .type = CLI_LIST,
      .value = "TOPIC=FILE",
      .offset = offsetof(struct run_options, in),
      .help = "the records of a topic: a file, one record a line (or CSV, when a task reads it as "
              "such: quoted cells may hold line breaks); sys, taxi or fit for a recorded stream of "
              "RIoTBench; - for stdin. TOPIC= may be left out when there is one" },
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

static const struct cli_option test_options[] = {
    { .name = "only",
      .letter = 'k',
      .type = CLI_TEXT,
      .value = "TEXT",
      .offset = offsetof(struct test_options, only),
      .help = "only cases with TEXT in their name" },
    { .name = "quiet",
      .letter = 'q',
      .type = CLI_FLAG,
      .offset = offsetof(struct test_options, quiet),
      .help = "only cases that fail" },
    { 0 },
};
static const struct cli_option help_options[] = {
    { .name = "markdown",
      .type = CLI_FLAG,
      .offset = offsetof(struct help_options, markdown),
      .help = "print the page docs/cli.md" },
    { .name = "man",
      .type = CLI_FLAG,
      .offset = offsetof(struct help_options, man),
      .help = "print the manual page docs/braid.1" },
    { 0 },
};
static const struct cli_option new_options[] = {
    { .name = "from",
      .type = CLI_TEXT,
      .value = "TEMPLATE",
      .offset = offsetof(struct new_options, from),
      .help = "clean (the default: choose rows, compute fields), windows (aggregates by key and "
              "minute) or made-up (without input)" },
    { 0 },
};

static const struct cli_option submit_options[] = {
    { .name = "dry-run",
      .type = CLI_FLAG,
      .offset = offsetof(struct submit_options, dry_run),
      .help = "only tell what would be reused and what would be new" },
    { 0 },
};
static const struct cli_option replace_options[] = {
    { .name = "state-from",
      .type = CLI_LIST,
      .value = "NEW=OLD",
      .offset = offsetof(struct replace_options, state_from),
      .help = "task NEW begins with the state of the former task OLD; TASK alone is TASK=TASK" },
    { .name = "dry-run",
      .type = CLI_FLAG,
      .offset = offsetof(struct replace_options, dry_run),
      .help = "only tell what would be kept, started and stopped" },
    { 0 },
};
static const struct cli_option graph_options[] = {
    { .name = "dot",
      .type = CLI_FLAG,
      .offset = offsetof(struct graph_options, dot),
      .help = "print Graphviz: braid graph --dot | dot -Tsvg >graph.svg" },
    { 0 },
};
static const struct cli_option rm_options[] = {
    { .name = "drain",
      .type = CLI_FLAG,
      .offset = offsetof(struct rm_options, drain),
      .help = "first close the open windows of tasks that nobody else uses" },
    { 0 },
};

static const struct cli_option replay_options[] = {
    { .name = "topic",
      .letter = 't',
      .type = CLI_TEXT,
      .value = "T",
      .offset = offsetof(struct replay_options, topic),
      .help = "the topic to write; made when absent" },
    { .name = "rate",
      .type = CLI_REAL,
      .value = "N",
      .offset = offsetof(struct replay_options, rate),
      .min = 1e-9,
      .max = 1e12,
      .help = "records a second; without --rate and --speed as fast as they are taken" },
    { .name = "speed",
      .type = CLI_REAL,
      .value = "X",
      .offset = offsetof(struct replay_options, speed),
      .min = 1e-9,
      .max = 1e12,
      .help = "X times as fast as it was recorded" },
    { .name = "limit",
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct replay_options, limit),
      .min = 1,
      .max = 9e18,
      .help = "end after N records" },
    { .name = "producer",
      .type = CLI_TEXT,
      .value = "ID",
      .offset = offsetof(struct replay_options, producer),
      .help = "name of the producer, by which the server knows repeated posts; default: made up" },
    { .name = "retry",
      .type = CLI_INT,
      .value = "SECONDS",
      .offset = offsetof(struct replay_options, retry),
      .min = 0,
      .max = 1e9,
      .help = "how long to try again when the server is away or busy (default 30)" },
    { .name = "quiet",
      .letter = 'q',
      .type = CLI_FLAG,
      .offset = offsetof(struct replay_options, quiet),
      .help = "no progress bar, no summary" },
    { .name = "csv",
      .type = CLI_FLAG,
      .offset = offsetof(struct replay_options, csv),
      .help = "the records are CSV: quoted cells may hold line breaks" },
    { .name = "delimiter",
      .type = CLI_TEXT,
      .value = "C",
      .offset = offsetof(struct replay_options, delimiter),
      .help = "the character between the cells of --csv (default a comma)" },
    DATASET_OPTIONS(struct replay_options, data),
    { 0 },
};
static const struct cli_option tail_options[] = {
    { .name = "lines",
      .letter = 'n',
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct tail_options, n),
      .min = 0,
      .max = 9e18,
      .help = "the last N records (default 10) of each partition; with --from N records from "
              "there" },
    { .name = "from",
      .type = CLI_TEXT,
      .value = "WHERE",
      .offset = offsetof(struct tail_options, from),
      .help = "an offset, earliest or latest" },
    { .name = "partition",
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct tail_options, partition),
      .min = 0,
      .max = LOG_PARTITIONS_MAX - 1,
      .help = "only this one; default: all of the topic, in turns" },
    { .name = "follow",
      .letter = 'f',
      .type = CLI_FLAG,
      .offset = offsetof(struct tail_options, follow),
      .help = "go on with records as they are committed" },
    { 0 },
};
static const struct cli_option topics_options[] = {
    { .name = "partitions",
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct topics_options, partitions),
      .min = 1,
      .max = LOG_PARTITIONS_MAX,
      .help = "of the new topic (default 1)" },
    { .name = "retention",
      .type = CLI_TEXT,
      .value = "SIZE",
      .offset = offsetof(struct topics_options, retention),
      .help = "the oldest records of a partition go when it has more, such as 10GiB; default: keep "
              "all" },
    { .name = "retention-time",
      .type = CLI_TEXT,
      .value = "DURATION",
      .offset = offsetof(struct topics_options, retention_time),
      .help = "records go so long after they were appended, such as 7d; default: keep all" },
    { .name = "compact",
      .type = CLI_FLAG,
      .offset = offsetof(struct topics_options, compact),
      .help = "of the records of a key only the last is kept, and of a tombstone (a null value) "
              "nothing after a day" },
    { 0 },
};
static const struct cli_option dlq_options[] = {
    { .name = "lines",
      .letter = 'n',
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct dlq_options, n),
      .min = 1,
      .max = 10000,
      .help = "show the last N (default 10)" },
    { .name = "all",
      .letter = 'a',
      .type = CLI_FLAG,
      .offset = offsetof(struct dlq_options, all),
      .help = "show those that were dropped or queued again, too" },
    { .name = "offset",
      .type = CLI_LIST,
      .value = "N",
      .offset = offsetof(struct dlq_options, offset),
      .help =
          "requeue or drop letter N (the number that is shown) instead of all; may be repeated" },
    { 0 },
};
static const struct cli_option top_options[] = {
    { .name = "interval",
      .letter = 'i',
      .type = CLI_INT,
      .value = "MS",
      .offset = offsetof(struct top_options, interval),
      .min = 100,
      .max = 3600000,
      .help = "time between two measurements (default 1000)" },
    { .name = "count",
      .letter = 'n',
      .type = CLI_INT,
      .value = "N",
      .offset = offsetof(struct top_options, n),
      .min = 1,
      .max = 1000000000,
      .help = "end after N screens; default: one without a terminal, else until Ctrl-C" },
    { 0 },
};

const struct cli_command cli_commands[] = {
    { .name = "new",
      .group = HELP_LOCAL,
      .args = "NAME",
      .summary = "write a dataflow to begin with: NAME.json, a test and some records",
      .help =
          "They are valid and run at once. A dataflow file is strict JSON, without comments: what\n"
          "each task is for stands in its label.",
      .examples = "  braid new meters\n"
                  "  braid new machines --from made-up",
      .min = 1,
      .max = 1,
      .options = new_options,
      .options_size = sizeof(struct new_options),
      .run = cmd_new },
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
    { .name = "test",
      .group = HELP_LOCAL,
      .args = "FILE…",
      .summary = "run unit tests of dataflows",
      .help =
          "FILE names a dataflow and cases: what goes in, how the clock moves, what is to come\n"
          "out (docs/testing.md). Each case runs in this process, with large batches and row by\n"
          "row. Exit code 0: all passed; 1: some failed; 2: a file is wrong.",
      .examples = "  braid test dataflows/*/tests/*.json\n"
                  "  braid test etl.test.json --only 'late rows'",
      .min = 1,
      .max = -1,
      .options = test_options,
      .options_size = sizeof(struct test_options),
      .run = cmd_test },
    { .name = "up",
      .group = HELP_SERVER,
      .args = "",
      .summary = "start a server: coordinator and worker in one process",
      .help =
          "Prints `ready on URL` when it answers; ends at SIGTERM or SIGINT, after a commit, a\n"
          "second signal ends it at once. What ran before a restart, a crash too, runs again.",
      .examples = "  braid up --dir /var/lib/braid --durability power",
      .main = up_main },
    { .name = "submit",
      .group = HELP_FLOWS,
      .args = "FILE…",
      .summary = "start dataflows, reusing the tasks that run already",
      .help =
          "All files of one call join the running graph at the same moment, or none does. Tells\n"
          "for every task whether it is new or runs already, and where its past begins.",
      .examples = "  braid submit etl.json stats.json\n"
                  "  braid submit --dry-run etl.json",
      .min = 1,
      .max = -1,
      .client = true,
      .options = submit_options,
      .options_size = sizeof(struct submit_options),
      .run = cmd_submit },
    { .name = "replace",
      .group = HELP_FLOWS,
      .args = "NAME FILE",
      .summary = "put a new version of a dataflow in the place of the running one",
      .help =
          "In one step, with no row lost or seen twice. Tasks that have not changed, and none of\n"
          "those above them, go on with their state. Others start anew, unless --state-from (or\n"
          "`state_from` in FILE) lets them begin with a former task's state: of the same type and\n"
          "the same parameters, over rows of the same fields, with keys of the same types.",
      .examples = "  braid replace averages averages.json --dry-run\n"
                  "  braid replace averages averages.json --state-from minute",
      .min = 2,
      .max = 2,
      .client = true,
      .options = replace_options,
      .options_size = sizeof(struct replace_options),
      .run = cmd_replace },
    { .name = "ls",
      .group = HELP_FLOWS,
      .args = "",
      .summary = "list the running dataflows",
      .client = true,
      .run = cmd_ls },
    { .name = "show",
      .group = HELP_FLOWS,
      .args = "NAME",
      .summary = "one dataflow: its tasks, their rows, cost and state",
      .min = 1,
      .max = 1,
      .client = true,
      .run = cmd_show },
    { .name = "explain",
      .group = HELP_FLOWS,
      .args = "NAME",
      .summary = "why each task of a dataflow is reused, or why not",
      .min = 1,
      .max = 1,
      .client = true,
      .run = cmd_explain },
    { .name = "graph",
      .group = HELP_FLOWS,
      .args = "",
      .summary = "the merged graph of all dataflows",
      .client = true,
      .options = graph_options,
      .options_size = sizeof(struct graph_options),
      .run = cmd_graph },
    { .name = "pause",
      .group = HELP_FLOWS,
      .args = "NAME",
      .summary = "not yet: hold a dataflow while others go on",
      .help =
          "To pause one of several dataflows that share tasks, it must be taken out of the shared\n"
          "graph with a copy of its state (fork), which this version does not do: the command is\n"
          "refused with exit code 4.",
      .min = 1,
      .max = 1,
      .client = true,
      .run = cmd_pause },
    { .name = "resume",
      .group = HELP_FLOWS,
      .args = "NAME",
      .summary = "not yet: let a paused dataflow go on",
      .help = "Refused with exit code 4, as `pause` is.",
      .min = 1,
      .max = 1,
      .client = true,
      .run = cmd_pause },
    { .name = "rm",
      .group = HELP_FLOWS,
      .args = "NAME",
      .summary = "end a dataflow; what others use goes on",
      .min = 1,
      .max = 1,
      .client = true,
      .options = rm_options,
      .options_size = sizeof(struct rm_options),
      .run = cmd_rm },
    { .name = "top",
      .group = HELP_FLOWS,
      .args = "",
      .summary = "what runs now: rows a second, cost, rejected rows, lag",
      .client = true,
      .options = top_options,
      .options_size = sizeof(struct top_options),
      .run = cmd_top },
    { .name = "dlq",
      .group = HELP_FLOWS,
      .args = "[show|requeue|drop] NAME",
      .summary = "the dead letters of a dataflow: bad rows, why, and their records",
      .help =
          "`requeue` appends the record of a letter to its topic once more, after NAME was "
          "replaced\n"
          "by a version that can read it; with the mark that says so in one commit. It is refused\n"
          "when the record would be seen twice: by another dataflow that reads the topic, or "
          "because\n"
          "it has made rows already. `drop` only marks letters as dealt with.",
      .examples = "  braid dlq clean\n"
                  "  braid dlq requeue clean --offset 17\n"
                  "  braid dlq drop clean",
      .min = 1,
      .max = 2,
      .client = true,
      .options = dlq_options,
      .options_size = sizeof(struct dlq_options),
      .run = cmd_dlq },
    { .name = "replay",
      .group = HELP_STREAMS,
      .args = "FILE",
      .summary = "send a recorded stream into a topic",
      .help =
          "FILE has one record a line; sys, taxi and fit are recorded streams of RIoTBench; - is\n"
          "stdin. The schedule is kept whatever the server does: what falls behind is sent as\n"
          "fast as possible and told as lag. A server that is restarted or busy is tried again,\n"
          "and no record is stored twice. Ctrl-C ends it after the post under way, by that signal.",
      .examples = "  braid replay sys --topic sys --rate 10000 --loop 100\n"
                  "  braid replay taxi --topic taxi --speed 60\n"
                  "  braid replay sys --topic sys --loop 1000 --keys 100k",
      .min = 1,
      .max = 1,
      .client = true,
      .options = replay_options,
      .options_size = sizeof(struct replay_options),
      .run = cmd_replay },
    { .name = "tail",
      .group = HELP_STREAMS,
      .args = "TOPIC|NAME",
      .summary = "the records of a topic, or of the topic a dataflow writes",
      .help = "Prints the value of each record on a line; with --json an object with partition, "
              "offset,\n"
              "time, key and value.",
      .examples = "  braid tail sys-clean -n 3\n"
                  "  braid tail sys-clean --from latest -f",
      .min = 1,
      .max = 1,
      .client = true,
      .options = tail_options,
      .options_size = sizeof(struct tail_options),
      .run = cmd_tail },
    { .name = "topics",
      .group = HELP_STREAMS,
      .args = "[create NAME | rm NAME]",
      .summary = "list the topics, make one, delete one",
      .help = "`submit` makes the topics that a dataflow names: with one partition when it reads\n"
              "them, with one for each place that the sink runs in when it writes them. They keep\n"
              "everything; `create` makes one that is otherwise. Only a topic that no dataflow\n"
              "uses can be deleted.",
      .examples = "  braid topics\n"
                  "  braid topics create readings --partitions 8 --retention-time 7d\n"
                  "  braid topics rm readings",
      .max = 2,
      .client = true,
      .options = topics_options,
      .options_size = sizeof(struct topics_options),
      .run = cmd_topics },
    { .name = "operators",
      .group = HELP_OTHER,
      .args = "[NAME]",
      .summary = "what tasks can be made of, and their parameters",
      .max = 1,
      .run = cmd_operators },
    { .name = "completion",
      .group = HELP_OTHER,
      .args = "SHELL",
      .summary = "print the completion script of bash, zsh or fish",
      .help = "Commands and options are completed, and through the server the names of running\n"
              "dataflows and topics. `dataflows`, `topics`, `operators` and `templates` in the "
              "place of\n"
              "SHELL print the words the scripts ask for.",
      .examples = "  . <(braid completion bash)\n"
                  "  braid completion zsh >~/.zfunc/_braid\n"
                  "  braid completion fish >~/.config/fish/completions/braid.fish",
      .min = 1,
      .max = 1,
      .client = true,
      .run = cmd_completion },
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
