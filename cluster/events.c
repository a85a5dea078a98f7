#include "cluster/events.h"
#include "engine/clock.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

struct events {
    pthread_mutex_t mutex;
    uint64_t last;
    struct event ring[EVENTS_KEPT]; /* number n at n % EVENTS_KEPT */
    int fd[EVENTS_WATCHERS], nfds;
};

struct events *events_new(void) {
    struct events *ev = calloc(1, sizeof *ev);
    if (!ev)
        abort();
    pthread_mutex_init(&ev->mutex, NULL);
    return ev;
}

void events_free(struct events *ev) {
    if (!ev)
        return;
    pthread_mutex_destroy(&ev->mutex);
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
