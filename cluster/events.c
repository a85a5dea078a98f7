#include "cluster/events.h"
#include "cluster/view.h"
#include "engine/clock.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct events {
    pthread_mutex_t mutex;
    uint64_t last;
    struct event ring[EVENTS_KEPT]; /* number n at n % EVENTS_KEPT */
    int fd[EVENTS_WATCHERS], nfds;
    pthread_mutex_t look_lock;
    int64_t looked_ns;
    struct seen *seen; /* dataflows that were not RUNNING at the last look */
};
struct seen {
    char name[104];
    enum flow_state state;
    bool still;
    struct seen *next;
};

struct events *events_new(void) {
    struct events *ev = calloc(1, sizeof *ev);
    if (!ev)
        abort();
    pthread_mutex_init(&ev->mutex, NULL);
    pthread_mutex_init(&ev->look_lock, NULL);
    return ev;
}

void events_free(struct events *ev) {
    if (!ev)
        return;
    while (ev->seen) {
        struct seen *next = ev->seen->next;
        free(ev->seen);
        ev->seen = next;
    }
    pthread_mutex_destroy(&ev->mutex);
    pthread_mutex_destroy(&ev->look_lock);
    free(ev);
}

static void wake_all(struct events *ev) {
    for (int i = 0; i < ev->nfds; i++)
        eventfd_write(ev->fd[i], 1);
}

void events_add(struct events *ev, const char *kind, const char *dataflow, const char *text) {
    pthread_mutex_lock(&ev->mutex);
    struct event *e = &ev->ring[++ev->last % EVENTS_KEPT];
    e->number = ev->last;
    e->time = clock_wall_ms();
    snprintf(e->kind, sizeof e->kind, "%s", kind);
    snprintf(e->dataflow, sizeof e->dataflow, "%s", dataflow);
    snprintf(e->text, sizeof e->text, "%s", text);
    wake_all(ev);
    pthread_mutex_unlock(&ev->mutex);
}

uint64_t events_last(struct events *ev) {
    pthread_mutex_lock(&ev->mutex);
    uint64_t n = ev->last;
    pthread_mutex_unlock(&ev->mutex);
    return n;
}

bool events_get(struct events *ev, uint64_t after, struct event *e) {
    pthread_mutex_lock(&ev->mutex);
    bool some = after < ev->last;
    if (some) {
        uint64_t n = ev->last > EVENTS_KEPT && after < ev->last - EVENTS_KEPT
                         ? ev->last - EVENTS_KEPT + 1
                         : after + 1;
        *e = ev->ring[n % EVENTS_KEPT];
    }
    pthread_mutex_unlock(&ev->mutex);
    return some;
}

bool events_watch(struct events *ev, int fd) {
    pthread_mutex_lock(&ev->mutex);
    bool room = ev->nfds < EVENTS_WATCHERS;
    if (room)
        ev->fd[ev->nfds++] = fd;
    pthread_mutex_unlock(&ev->mutex);
    return room;
}

void events_unwatch(struct events *ev, int fd) {
    pthread_mutex_lock(&ev->mutex);
    for (int i = 0; i < ev->nfds; i++)
        if (ev->fd[i] == fd)
            ev->fd[i--] = ev->fd[--ev->nfds];
    pthread_mutex_unlock(&ev->mutex);
}

void events_stop(struct events *ev) {
    pthread_mutex_lock(&ev->mutex);
    wake_all(ev);
    pthread_mutex_unlock(&ev->mutex);
}

/* ---- states ---- */

static struct seen *seen_find(struct events *ev, const char *name) {
    struct seen *s = ev->seen;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static void look_at(void *arg, const char *name, enum flow_state state, const char *reason) {
    struct events *ev = arg;
    struct seen *s = seen_find(ev, name);
    if (!s && state == FLOW_RUNNING)
        return;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            abort();
        snprintf(s->name, sizeof s->name, "%s", name);
        s->next = ev->seen;
        ev->seen = s;
    }
    if (s->state != state)
        events_add(ev,
                   state == FLOW_FAILED     ? "failed"
                   : state == FLOW_DEGRADED ? "degraded"
                                            : "recovered",
                   name, reason);
    s->state = state;
    s->still = state != FLOW_RUNNING;
}

void events_look(struct events *ev, struct coord *c) {
    pthread_mutex_lock(&ev->look_lock);
    int64_t now = clock_mono_ns();
    if (now - ev->looked_ns > 500000000) {
        ev->looked_ns = now;
        for (struct seen *s = ev->seen; s; s = s->next)
            s->still = false;
        view_states(c, look_at, ev);
        for (struct seen **p = &ev->seen; *p;) {
            struct seen *s = *p;
            if (s->still) {
                p = &s->next;
                continue;
            }
            *p = s->next;
            free(s);
        }
    }
    pthread_mutex_unlock(&ev->look_lock);
}
