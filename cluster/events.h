/* What happened to the dataflows: the last EVENTS_KEPT events, numbered, for those who follow
 * (GET /v1/events). Readers that fall behind by more lose the oldest and see a gap in the numbers.
 * Any thread. */
#ifndef BRAID_EVENTS_H
#define BRAID_EVENTS_H
#include <stdbool.h>
#include <stdint.h>

enum { EVENTS_KEPT = 1024 };

struct event {
    uint64_t number; /* from 1 on */
    int64_t time;    /* ms since 1970 */
    char kind[16], dataflow[104], text[256];
};
struct events;
struct events *events_new(void);
void events_free(struct events *ev); /* NULL is fine */
void events_add(struct events *ev, const char *kind, const char *dataflow, const char *text);
uint64_t events_last(struct events *ev);
/* The first event after number `after`; false when there is none. */
bool events_get(struct events *ev, uint64_t after, struct event *e);
/* `fd` (an eventfd, kept by the caller) becomes readable with every event and at events_stop.
 * False: EVENTS_WATCHERS watch already. */
enum { EVENTS_WATCHERS = 64 };
bool events_watch(struct events *ev, int fd);
void events_unwatch(struct events *ev, int fd);
void events_stop(struct events *ev);
/* Compares the states of the dataflows with those of the last look and adds `failed`, `degraded`
 * and `recovered` events. Looks closer together than half a second do nothing. */
struct coord;
void events_look(struct events *ev, struct coord *c);
#endif
