#include "engine/local.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int index_frame(void *arg, const struct commit_frame *f, const char *entries,
                       const char *chunks) {
    (void)chunks;
    struct entry en;
    for (const char *p = entries, *end = p + f->entries_len; p < end && entry_next(&p, end, &en);)
        index_put(arg, &en);
    return 0;
}

void view_index(struct index *ix, const struct commit_file *cf, int files) {
    for (int i = 0; i < files; i++)
        commit_each(&cf[i], index_frame, ix);
    index_sort(ix);
}

int view_map(struct local *l, struct commit_file *cf, uint64_t first, uint64_t last,
             int64_t last_bytes, int *files, struct err *e) {
    *files = 0;
    for (uint64_t no = first; no <= last; no++) {
        int64_t limit = no == last ? last_bytes : -1;
        int rc = commit_map(&cf[*files], l->files, l->commit_dir, no, l->boot, limit, false, e);
        if (rc) {
            while (*files)
                commit_unmap(&cf[--*files]);
            return rc;
        }
        ++*files;
    }
    return 0;
}

static void view_unref(struct view *v) {
    if (!v || --v->refs > 0)
        return;
    index_free(&v->index);
    for (int i = 0; i < v->files; i++)
        commit_unmap(&v->file[i]);
    free(v->file);
    snapshot_unref(v->snap);
    free(v);
}

static struct view *view_new(struct local *l, uint64_t *log, int64_t *bytes) {
    struct view *v = calloc(1, sizeof *v);
    if (!v)
        abort();
    pthread_mutex_lock(&l->mu);
    v->no = l->published_no;
    *log = l->published_log;
    *bytes = l->published_bytes;
    pthread_mutex_unlock(&l->mu);
    v->snap = l->snap;
    snapshot_ref(v->snap);
    v->refs = 1;
    return v;
}

/* Under view_mu, so that the janitor deletes no file meanwhile. */
static int view_make(struct local *l, struct err *e) {
    uint64_t log;
    int64_t bytes;
    struct view *v = view_new(l, &log, &bytes);
    uint64_t from = v->snap ? v->snap->head->number : l->snap_number;
    if (bytes == 0)
        log--; /* the file is not made yet */
    int rc = 0;
    if (log + 1 > from) {
        v->file = calloc((size_t)(log + 1 - from), sizeof *v->file);
        if (!v->file)
            abort();
        rc = view_map(l, v->file, from, log, bytes ? bytes : -1, &v->files, e);
    }
    if (rc) {
        view_unref(v);
        return rc;
    }
    view_index(&v->index, v->file, v->files);
    view_unref(l->view);
    l->view = v;
    return 0;
}

int view_take(struct local *l, struct view **v, struct err *e) {
    pthread_mutex_lock(&l->view_mu);
    pthread_mutex_lock(&l->mu);
    uint64_t no = l->published_no;
    pthread_mutex_unlock(&l->mu);
    int rc = l->view && l->view->no == no ? 0 : view_make(l, e);
    if (!rc) {
        *v = l->view;
        (*v)->refs++;
    }
    pthread_mutex_unlock(&l->view_mu);
    return rc;
}

void view_release(struct local *l, struct view *v) {
    pthread_mutex_lock(&l->view_mu);
    view_unref(v);
    pthread_mutex_unlock(&l->view_mu);
}

void view_forget(struct local *l) {
    if (pthread_mutex_trylock(&l->view_mu))
        return;
    view_unref(l->view);
    l->view = NULL;
    pthread_mutex_unlock(&l->view_mu);
}
