/* `braid up`: coordinator, executor and HTTP API in one process. */
#ifndef BRAID_UP_H
#define BRAID_UP_H

/* argv[0] is the command's name ("up"); settings of conf.h follow. Prints `ready on http://…` on
 * stdout when requests are served; ends at SIGTERM or SIGINT after the running epoch has committed;
 * a second signal ends at once. Returns the exit code. Call it from the only
 * thread, after operators_init. */
int up_main(int argc, char **argv);
#endif
