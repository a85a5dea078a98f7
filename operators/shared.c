#include "operators/shared.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    char *key;
    void *table;
    void (*drop)(void *);
    int uses;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;

static struct entry *find(const char *key) {
    for (struct entry *n = entries; n; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

int shared_get(const char *key, shared_make *make, void *arg, void (*drop)(void *), void **out,
               struct err *e) {
    int rc = 0;
    pthread_mutex_lock(&lock);
    struct entry *n = find(key);
    if (!n) {
        void *table = NULL;
        rc = make(arg, &table, e);
        if (rc == 0) {
            n = malloc(sizeof *n);
            char *copy = strdup(key);
            if (!n || !copy)
                abort();
            *n = (struct entry){ .next = entries, .key = copy, .table = table, .drop = drop };
            entries = n;
        }
    }
    if (n) {
        n->uses++;
        *out = n->table;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

void shared_put(void *table) {
    if (!table)
        return;
    pthread_mutex_lock(&lock);
    struct entry **at = &entries;
    while (*at && (*at)->table != table)
        at = &(*at)->next;
    struct entry *n = *at;
    if (n && --n->uses == 0) {
        *at = n->next;
        n->drop(n->table); /* under the lock: never two copies at once */
        free(n->key);
        free(n);
    }
    pthread_mutex_unlock(&lock);
}
