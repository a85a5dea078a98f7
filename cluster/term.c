#include "cluster/cli.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool term_is(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

bool term_color(int fd) {
    const char *no = getenv("NO_COLOR");
    return term_is(fd) && !(no && *no);
}

int term_width(int fd) {
    struct winsize w;
    bool known = isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return !known ? 100 : w.ws_col < TERM_WIDTH_MIN ? TERM_WIDTH_MIN : w.ws_col;
}

int term_height(int fd) {
    struct winsize w;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row >= 10 ? w.ws_row : 24;
}
