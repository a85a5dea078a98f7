/* Out-ports that an operator's config names (`split`, `route`; OP_ANY_PORTS). Which of them are
 * read changes while dataflows come and go, and no count may depend on it: a row that leaves by a
 * port without readers has left. One thread. */
#ifndef BRAID_OPERATORS_NAMED_PORTS_H
#define BRAID_OPERATORS_NAMED_PORTS_H
#include "engine/op.h"

struct named_ports {
    int n;
    const char *const *name; /* borrowed: the config's */
    int link[OP_PORTS_MAX];  /* out-port of the task, -1: nobody reads it */
    const char *const *seen; /* the task's out-ports when `link` was filled */
    int nseen;
};

/* Checks at submit that each of the n names can be a port, stands there once (reported at
 * /config/PARAM/NAME, the last one at /config/LAST unless that is NULL), that readers ask for no
 * others, and that there is one in-port; gives every port the input's schema. */
void named_ports_plan(struct op_plan *p, const char *param, const char *last,
                      const char *const *name, int n);
/* n <= OP_PORTS_MAX; the names must outlive it. */
void named_ports_open(struct named_ports *s, const char *const *name, int n);
/* Rows of `b` leave by port `i`: to its readers, if it has any, and counted in any case. */
void named_ports_emit(struct named_ports *s, struct op_ctx *x, int i, const struct batch *b);
#endif
