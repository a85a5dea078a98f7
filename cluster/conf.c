#include "cluster/conf.h"
#include "engine/executor.h"
#include "engine/json.h"
#include "engine/num.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, ENV_NAME_MAX = 64 };

static const char *const durability_words[] = { "process", "power", NULL };

#define BOTH (CONF_SERVER | CONF_CLIENT)
const struct conf_setting conf_settings[CONF_KEYS] = {
    [CONF_ALIGN_MEMORY] = { .name = "align-memory",
                            .type = CONF_SIZE,
                            .roles = CONF_SERVER,
                            .def = "256MiB",
                            .min = 64 << 10,
                            .max = (int64_t)1 << 40,
                            .value = "SIZE",
                            .help = "Rows that a task fed by several sources keeps for the one "
                                    "that is behind; beyond it the one ahead pauses." },
    [CONF_CONFIG] = { .name = "config",
                      .roles = BOTH,
                      .value = "FILE",
                      .help = "File of settings, one `name = value` a line." },
    [CONF_DIR] = { .name = "dir",
                   .roles = CONF_SERVER,
                   .def = "./braid-data",
                   .value = "DIR",
                   .help = "Directory of topics, state and uploaded files." },
    [CONF_DURABILITY] = { .name = "durability",
                          .type = CONF_WORD,
                          .roles = CONF_SERVER,
                          .def = "process",
                          .words = durability_words,
                          .value = "process|power",
                          .help = "What a commit survives: kill -9, or also a power loss." },
    [CONF_EXECUTORS] = { .name = "executors",
                         .type = CONF_INTEGER,
                         .roles = CONF_SERVER,
                         .def = "0",
                         .min = 0,
                         .max = EXECUTOR_LANES_MAX,
                         .value = "N",
                         .help = "Threads that share the partitions of dataflows; 0: one a core." },
    [CONF_LISTEN] = { .name = "listen",
                      .roles = CONF_SERVER,
                      .def = "127.0.0.1:7070",
                      .value = "HOST:PORT",
                      .help = "Loopback address of the HTTP API; port 0 takes a free one." },
    [CONF_PRODUCERS] = { .name = "producers",
                         .type = CONF_INTEGER,
                         .roles = CONF_SERVER,
                         .def = "65536",
                         .min = 1,
                         .max = 10000000,
                         .value = "N",
                         .help = "Producers whose last sequence number is remembered; beyond it "
                                 "the one silent for longest is forgotten." },
    [CONF_SEGMENT_BYTES] = { .name = "segment-bytes",
                             .type = CONF_SIZE,
                             .roles = CONF_SERVER,
                             .def = "256MiB",
                             .min = 64 << 10,
                             .max = (int64_t)1 << 31,
                             .value = "SIZE",
                             .help = "Size of a segment file, the grain of retention." },
    [CONF_STATE_MEMORY] = { .name = "state-memory",
                            .type = CONF_SIZE,
                            .roles = CONF_SERVER,
                            .def = "0",
                            .max = (int64_t)1 << 46,
                            .value = "SIZE",
                            .help = "Memory for keys and values of state; what is beyond lies in a "
                                    "file below --dir. 0: all in memory." },
    [CONF_URL] = { .name = "url",
                   .roles = CONF_CLIENT,
                   .def = "http://127.0.0.1:7070",
                   .value = "URL",
                   .help = "Server that the client commands talk to." },
};

void conf_init(struct conf *c) {
    memset(c, 0, sizeof *c);
}

void conf_free(struct conf *c) {
    arena_free(&c->arena);
}

static int find(const char *name, size_t len, unsigned roles) {
    for (int k = 0; k < CONF_KEYS; k++)
        if ((conf_settings[k].roles & roles) && strlen(conf_settings[k].name) == len &&
            memcmp(conf_settings[k].name, name, len) == 0)
            return k;
    return -1;
}

static const char *nearest(const char *name, unsigned roles) {
    const char *names[CONF_KEYS];
    int n = 0;
    for (int k = 0; k < CONF_KEYS; k++)
        if (conf_settings[k].roles & roles)
            names[n++] = conf_settings[k].name;
    return err_nearest(name, names, n);
}

const char *conf_nearest(const char *flag, unsigned roles, char *buf, size_t size) {
    char name[ENV_NAME_MAX];
    while (*flag == '-')
        flag++;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(flag, "="), flag);
    const char *near = nearest(name, roles);
    if (!near)
        return NULL;
    snprintf(buf, size, "--%s", near);
    return buf;
}

static int word_index(const struct conf_setting *s, const char *text) {
    for (int i = 0; s->words[i]; i++)
        if (strcmp(s->words[i], text) == 0)
            return i;
    return -1;
}

/* Reads the text of setting k into c; `from` names the place for messages. */
static int set(struct conf *c, int k, const char *text, const char *from, struct err *e) {
    const struct conf_setting *s = &conf_settings[k];
    const char *end = text + strlen(text);
    int64_t n = 0;
    if (!*text)
        return err_set(e, ERR_INPUT, "%s: '%s' is empty; it takes %s", from, s->name, s->value);
    if (s->type == CONF_WORD && (n = word_index(s, text)) < 0)
        return err_set(e, ERR_INPUT, "%s: '%s' must be %s, not '%.60s'", from, s->name, s->value,
                       text);
    if (s->type == CONF_SIZE && size_parse(text, end, &n) < 0)
        return err_set(e, ERR_INPUT, "%s: '%s' must be a size such as 64MiB, not '%.60s'", from,
                       s->name, text);
    if (s->type == CONF_INTEGER && num_i64_whole(text, end, &n) < 0)
        return err_set(e, ERR_INPUT, "%s: '%s' must be a whole number, not '%.60s'", from, s->name,
                       text);
    if ((s->type == CONF_SIZE || s->type == CONF_INTEGER) && (n < s->min || n > s->max))
        return err_set(e, ERR_INPUT, "%s: '%s' must be between %lld and %lld, not %.60s", from,
                       s->name, (long long)s->min, (long long)s->max, text);
    c->v[k].text = arena_strdup(&c->arena, text);
    c->v[k].number = n;
    c->v[k].from = s->def == text ? NULL : arena_strdup(&c->arena, from);
    return 0;
}

int conf_flag(struct conf *c, unsigned roles, int argc, char **argv, int i, struct err *e) {
    const char *arg = argv[i];
    if (strncmp(arg, "--", 2) != 0)
        return 0;
    size_t len = strcspn(arg + 2, "=");
    int k = find(arg + 2, len, roles);
    if (k < 0)
        return 0;
    char from[ENV_NAME_MAX];
    snprintf(from, sizeof from, "--%s", conf_settings[k].name);
    const char *text = arg[2 + len] ? arg + 3 + len : i + 1 < argc ? argv[i + 1] : NULL;
    if (!text)
        return err_set(e, ERR_INPUT, "%s needs a value: %s", from, conf_settings[k].value);
    int rc = set(c, k, text, from, e);
    return rc < 0 ? rc : arg[2 + len] ? 1 : 2;
}

/* ---- environment ---- */

static bool tests_own(const char *name) {
    return strncmp(name, "BRAID_TEST_", 11) == 0 || strcmp(name, "BRAID_SEED") == 0 ||
           strcmp(name, "BRAID_BUILD") == 0;
}

/* BRAID_SEGMENT_BYTES and segment-bytes in each other's spelling. */
static void to_setting(char *out, size_t size, const char *env) {
    size_t n = 0;
    for (; env[n] && n + 1 < size; n++)
        out[n] = env[n] == '_' ? '-' : env[n] >= 'A' && env[n] <= 'Z' ? (char)(env[n] + 32) : '?';
    out[n] = '\0';
}

static void to_env(char *out, size_t size, const char *setting) {
    size_t n = (size_t)snprintf(out, size, "BRAID_");
    for (; *setting && n + 1 < size; setting++)
        out[n++] = *setting == '-'                      ? '_'
                   : *setting >= 'a' && *setting <= 'z' ? (char)(*setting - 32)
                                                        : *setting;
    out[n] = '\0';
}

static int from_env(struct conf *c, char **vars, struct err *e) {
    for (; vars && *vars; vars++) {
        const char *eq = strchr(*vars, '=');
        char env[ENV_NAME_MAX], name[ENV_NAME_MAX], meant[ENV_NAME_MAX];
        if (strncmp(*vars, "BRAID_", 6) != 0 || !eq)
            continue;
        snprintf(env, sizeof env, "%.*s", (int)(eq - *vars), *vars);
        if (tests_own(env))
            continue;
        to_setting(name, sizeof name, env + 6);
        int k = find(name, strlen(name), BOTH);
        if (k < 0) {
            const char *near = nearest(name, BOTH);
            if (near)
                to_env(meant, sizeof meant, near);
            return err_set(e, ERR_INPUT, "environment: there is no setting %s%s%s%s", env,
                           near ? "; did you mean " : "", near ? meant : "", near ? "?" : "");
        }
        if (!c->v[k].text && set(c, k, eq + 1, env, e) < 0)
            return e->code;
    }
    return 0;
}

/* ---- file ---- */

static bool blank(char ch) {
    return ch == ' ' || ch == '\t' || ch == '\r';
}

/* One line [p,end): "name = value". */
static int file_line(struct conf *c, const char *file, int line, const char *p, const char *end,
                     struct err *e) {
    while (p < end && blank(*p))
        p++;
    while (end > p && blank(end[-1]))
        end--;
    if (p == end || *p == '#')
        return 0;
    char from[400];
    snprintf(from, sizeof from, "%s:%d", file, line);
    const char *eq = memchr(p, '=', (size_t)(end - p)), *stop = eq ? eq : end;
    while (stop > p && blank(stop[-1]))
        stop--;
    if (!eq)
        return err_set(e, ERR_INPUT, "%s: a line must be `name = value`", from);
    char name[ENV_NAME_MAX];
    snprintf(name, sizeof name, "%.*s", (int)(stop - p), p);
    int k = find(p, (size_t)(stop - p), BOTH);
    if (k < 0 || k == CONF_CONFIG) {
        const char *near = k < 0 ? nearest(name, BOTH) : NULL;
        return err_set(e, ERR_INPUT, "%s: there is no setting '%s' for a file%s%s%s", from, name,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    for (eq++; eq < end && blank(*eq); eq++)
        ;
    if (c->v[k].text)
        return 0;
    return set(c, k, arena_strndup(&c->arena, eq, (size_t)(end - eq)), from, e);
}

static int read_file(const char *path, char *buf, size_t size, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        err_errno(e, errno, "settings file %s", path);
        return e->code = ERR_INPUT;
    }
    size_t len = 0;
    ssize_t n;
    while (len < size && ((n = read(fd, buf + len, size - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    int rc = len == size
                 ? err_set(e, ERR_INPUT, "settings file %s has more than %zu bytes", path, size - 1)
             : n < 0 ? err_errno(e, errno, "reading the settings file %s", path)
                     : (int)len;
    close(fd);
    return rc;
}

static int from_file(struct conf *c, const char *path, struct err *e) {
    char *text = arena_alloc(&c->arena, FILE_MAX + 1);
    int n = read_file(path, text, FILE_MAX + 1, e);
    if (n < 0)
        return n;
    const char *p = text, *end = text + n;
    for (int line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        int rc = file_line(c, path, line, p, nl ? nl : end, e);
        if (rc < 0)
            return rc;
        p = nl ? nl + 1 : end;
    }
    return 0;
}

int conf_finish(struct conf *c, unsigned roles, char **vars, struct err *e) {
    int rc = from_env(c, vars, e);
    if (rc == 0 && c->v[CONF_CONFIG].text)
        rc = from_file(c, c->v[CONF_CONFIG].text, e);
    for (int k = 0; rc == 0 && k < CONF_KEYS; k++)
        if (!c->v[k].text && conf_settings[k].def && (conf_settings[k].roles & roles))
            rc = set(c, k, conf_settings[k].def, "default", e);
    return rc;
}

void conf_describe(struct sbuf *out, const struct conf_setting *s) {
    char env[ENV_NAME_MAX];
    to_env(env, sizeof env, s->name);
    sbuf_adds(out, s->help);
    if (s->def)
        sbuf_printf(out, " Default %s.", s->def);
    sbuf_printf(out, " [%s]", env);
}
