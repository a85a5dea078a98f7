/* Dataflows to begin with (`braid new`): dataflows/starters as part of the program.
 *
 * A dataflow file has no comments: it is strict JSON, so that every tool reads and writes it, and
 * so that its text is what the server keeps and shows. What a starter has to say stands where JSON
 * has a place for it: in `description` and in the tasks' `label`, which are no part of signatures.
 */
#ifndef BRAID_STARTER_H
#define BRAID_STARTER_H
#include "engine/json.h"

struct starter {
    const char *name, *summary;
    const char *flow, *flow_end, *test, *test_end; /* no NULs */
    bool reads;                                    /* a topic: data goes with it */
};
extern const struct starter starters[]; /* ends with name NULL; the first is the default */
extern const char starter_data[], starter_data_end[];
/* The text with the word `starter` as NAME, and the template's file as NAME.json. */
void starter_text(struct sbuf *out, const struct starter *s, const char *from, const char *end,
                  const char *name);
#endif
