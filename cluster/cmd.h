/* The functions behind the table of commands (commands.c), and their options. */
#ifndef BRAID_CMD_H
#define BRAID_CMD_H
#include "cluster/cli.h"
#include "cluster/dataset.h"

#define BRAID_VERSION "0.1.0"

struct help_options {
    bool markdown, man;
};
struct new_options {
    const char *from;
};
/* How a recorded stream is repeated; the same for `run --in` and `replay`. */
struct dataset_options {
    int64_t loop, keys, shuffle, jitter, seed;
    const char *id_field, *lines;
};
/* Everything but source, CSV, rate and speed. */
int cmd_dataset_conf(struct cli *c, const struct dataset_options *d, struct dataset_conf *conf);
struct run_options {
    struct cli_list in, out;
    int64_t now, batch, limit;
    const char *dead;
    bool quiet;
    struct dataset_options data;
};

struct test_options {
    const char *only;
    bool quiet;
};
struct submit_options {
    bool dry_run;
};
struct replace_options {
    bool dry_run;
    struct cli_list state_from;
};
struct graph_options {
    bool dot;
};
struct rm_options {
    bool drain;
};
struct replay_options {
    const char *topic, *producer, *delimiter;
    bool csv;
    double rate, speed;
    int64_t limit, retry;
    bool quiet;
    struct dataset_options data;
};
struct tail_options {
    int64_t n, partition;
    const char *from;
    bool follow;
};
struct topics_options {
    int64_t partitions;
    const char *retention, *retention_time;
    bool compact;
};
struct dlq_options {
    int64_t n;
    bool all;
    struct cli_list offset;
};
struct top_options {
    int64_t interval, n;
};

/* What client commands have in common. */
struct client;
struct client_body;
struct json_doc;
int cmd_connect(struct cli *c, struct client **cl);
/* client_json, whose errors are printed, and with --json the answer. */
int cmd_get(struct cli *c, struct client *cl, const char *method, const char *path,
            const struct client_body *body, struct json_doc *doc);
/* Reads and checks dataflow files before anything is sent: an error costs no round trip and every
 * file that a config names is at hand. Errors are printed. */
struct flowfile;
int cmd_load(struct cli *c, const char *const *names, int n, struct flowfile *f);
/* Gives the server the files it does not have yet, by hash. */
int cmd_upload(struct cli *c, struct client *cl, const struct flowfile *f);
/* What POST and PUT /v1/dataflows take for it. */
struct sbuf;
void cmd_spec_body(struct sbuf *o, const struct flowfile *f);
int cmd_width(int fd); /* of a table there; 0: unlimited */

int cmd_submit(struct cli *c);
int cmd_replace(struct cli *c);
int cmd_ls(struct cli *c);
int cmd_show(struct cli *c);
int cmd_explain(struct cli *c);
int cmd_graph(struct cli *c);
int cmd_rm(struct cli *c);
int cmd_pause(struct cli *c); /* and resume */
int cmd_replay(struct cli *c);
int cmd_tail(struct cli *c);
int cmd_topics(struct cli *c);
int cmd_dlq(struct cli *c);
int cmd_top(struct cli *c);
int cmd_run(struct cli *c);
int cmd_validate(struct cli *c);
int cmd_test(struct cli *c);
int cmd_operators(struct cli *c);
int cmd_new(struct cli *c);
int cmd_completion(struct cli *c);
int cmd_version(struct cli *c);
int cmd_help(struct cli *c);

struct op_desc;
/* An operator as JSON: what `braid operators --json` and GET /v1/operators give. */
void operator_json(struct sbuf *o, const struct op_desc *d);
#endif
