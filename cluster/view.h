/* The coordinator's state as JSON and text: the bodies of the HTTP API. Everything is appended to
 * `out`. Functions that take no plan_lock themselves say so. Any thread. */
#ifndef BRAID_VIEW_H
#define BRAID_VIEW_H
#include "cluster/coord.h"

struct flow;
enum view_form { VIEW_JSON, VIEW_DOT, VIEW_TEXT };

/* Under plan_lock, members of an object. What a submit that is planned but not yet committed reuses
 * and starts; and, once it runs, from which rows on its tasks see their input. */
void view_planned(struct coord *c, const struct flow *f, struct sbuf *out);
void view_histories(struct coord *c, const struct flow *f, struct sbuf *out);
/* Under plan_lock, before the commit of a replacement: what of it goes on, is new, takes state over
 * (view_replace.c). */
struct change_take;
void view_replaced(const struct flow *f, const struct flow *former, const struct change_take *takes,
                   int ntakes, struct sbuf *out);
/* Under plan_lock, before the removal: what of it stays, and who keeps it. */
void view_removed(const struct flow *f, struct sbuf *out);

void view_list(struct coord *c, struct sbuf *out);
int view_show(struct coord *c, const char *name, struct sbuf *out, struct err *e);
int view_explain(struct coord *c, const char *name, struct sbuf *out, struct err *e);
void view_graph(struct coord *c, enum view_form form, int width, struct sbuf *out); /* show.h */
void view_topics(struct coord *c, struct sbuf *out);
/* The last `max` dead letters of a dataflow (NULL: of all), without those dealt with unless `all`.
 */
int view_dlq(struct coord *c, const char *dataflow, int64_t max, bool all, struct sbuf *out,
             struct err *e);
void view_workers(struct coord *c, struct sbuf *out);
void view_metrics(struct coord *c, struct sbuf *out);

/* States of dataflows; for watchers that report changes. */
enum flow_state { FLOW_RUNNING, FLOW_DEGRADED, FLOW_FAILED };
extern const char *const flow_state_words[];
void view_states(struct coord *c,
                 void (*each)(void *arg, const char *name, enum flow_state s, const char *reason),
                 void *arg);
#endif
