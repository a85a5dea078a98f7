#include "cluster/up.h"
#include "cluster/cli.h"
#include "cluster/conf.h"
#include "cluster/http.h"
#include "engine/clock.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static const int stop_signals[] = { SIGTERM, SIGINT, SIGHUP };
enum { STOP_SIGNALS = sizeof stop_signals / sizeof *stop_signals };

static int fail(const struct err *e) {
    char text[1600];
    fprintf(stderr, "braid up: %s\n", err_format(e, text, sizeof text));
    return -e->code;
}

static int read_conf(struct conf *c, int argc, char **argv, bool *help, struct err *e) {
    for (int i = 1, n; i < argc; i += n) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return 0;
        }
        n = conf_flag(c, CONF_SERVER, argc, argv, i, e);
        if (n < 0)
            return n;
        char near[64];
        if (n == 0 && conf_nearest(argv[i], CONF_SERVER, near, sizeof near))
            return err_set(e, ERR_INPUT, "unknown option '%.60s'; did you mean '%s'?", argv[i],
                           near);
        if (n == 0)
            return err_set(e, ERR_INPUT, "unknown argument '%.60s'; see `braid up --help`",
                           argv[i]);
    }
    return conf_finish(c, CONF_SERVER, environ, e);
}

static int make_dir(const char *dir, struct err *e) {
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return err_errno(e, errno, "making the directory %s", dir);
    if (access(dir, R_OK | W_OK | X_OK) < 0)
        return err_errno(e, errno, "the directory %s cannot be used", dir);
    return 0;
}

/* Blocked in every thread; the main thread takes them with sigwait. */
static void block_signals(sigset_t *set) {
    sigemptyset(set);
    for (int i = 0; i < STOP_SIGNALS; i++)
        sigaddset(set, stop_signals[i]);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a file-size limit is a full disk, not a crash */
}

static void on_second(int sig) {
    (void)sig;
    static const char text[] = "braid up: stopped at once\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    _exit(n < 0 ? 2 : 1);
}

static void exit_on_signal(const sigset_t *set) {
    struct sigaction second = { .sa_handler = on_second };
    for (int i = 0; i < STOP_SIGNALS; i++)
        sigaction(stop_signals[i], &second, NULL);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

static int serve(struct coord *c, int fd, const char *url, const sigset_t *set, struct err *e) {
    struct http *h;
    int rc = http_start(&h, c, fd, e), sig;
    if (rc < 0)
        return rc;
    printf("ready on %s\n", url);
    fflush(stdout);
    sigwait(set, &sig);
    exit_on_signal(set);
    coord_stopping(c);
    http_stop(h);
    return 0;
}

/* One thread a connection, each with an arena of glibc's to itself, leaves free memory spread over
 * up to 8 arenas a core. After 80 s of `make soak`, 25 threads: 20 MiB with the default, 14 with 2.
 */
enum { MALLOC_ARENAS = 2 };

static int run(const struct conf *conf, struct err *e) {
    struct coord *c;
    struct coord_conf cc = { .dir = conf->v[CONF_DIR].text,
                             .durability = (enum log_durability)conf->v[CONF_DURABILITY].number,
                             .segment_bytes = conf->v[CONF_SEGMENT_BYTES].number,
                             .align_bytes = conf->v[CONF_ALIGN_MEMORY].number,
                             .producers = conf->v[CONF_PRODUCERS].number,
                             .executors = (uint32_t)conf->v[CONF_EXECUTORS].number,
                             .state_memory = conf->v[CONF_STATE_MEMORY].number };
    char url[128];
    sigset_t set;
    mallopt(M_ARENA_MAX, MALLOC_ARENAS);
    int fd, rc = make_dir(cc.dir, e);
    if (rc == 0)
        rc = http_listen(conf->v[CONF_LISTEN].text, &fd, url, sizeof url, e);
    if (rc < 0)
        return rc;
    block_signals(&set);
    if ((rc = coord_open(&c, &cc, e)) < 0) {
        close(fd);
        return rc;
    }
    if (e->text[0])
        fprintf(stderr, "braid up: note: %s\n", e->text);
    rc = serve(c, fd, url, &set, e);
    coord_close(c);
    return rc;
}

int up_main(int argc, char **argv) {
    struct conf conf;
    struct err e = ERR_INIT;
    bool help = false;
    conf_init(&conf);
    int rc = read_conf(&conf, argc, argv, &help, &e);
    if (rc == 0 && help)
        cli_help(stdout, cli_find("up"));
    else if (rc == 0)
        rc = run(&conf, &e);
    conf_free(&conf);
    return rc < 0 ? fail(&e) : 0;
}
