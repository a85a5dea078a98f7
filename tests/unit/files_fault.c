#include "tests/unit/files_fault.h"
#include "tests/unit/harness.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS = 1024, SECTOR = 512 };

struct change { /* of a file, unsynced */
    int64_t at;
    size_t len;
    char *data; /* NULL: the file is cut or extended to `at` */
};
struct inode {
    char *data; /* synced */
    size_t len;
    struct change *change;
    int n, cap;
};
struct name { /* of a file or (file NULL) a directory */
    char *path;
    struct inode *file;
};
struct names {
    struct name *v;
    int n, cap;
};
struct op { /* a change of directories */
    enum { OP_ADD, OP_REMOVE, OP_RENAME } kind;
    char *path, *to;
    struct inode *file;
    bool synced;
};
struct fault {
    struct log_files files;
    pthread_mutex_t mu;
    uint64_t random;
    int64_t space, calls, crash_at;
    bool crashed;
    int bad_syncs, boot;
    struct names live, base; /* now; when the layer was made */
    struct op *op;
    int ops, ops_cap;
    struct inode **inode;
    int inodes, inodes_cap;
    struct inode *fd[FDS];
};

/* ---- names ---- */

#define GROW(v, n, cap)                                                                            \
    do {                                                                                           \
        if ((n) == (cap)) {                                                                        \
            (cap) = (cap) ? 2 * (cap) : 16;                                                        \
            (v) = realloc((v), (size_t)(cap) * sizeof *(v));                                       \
            assert(v);                                                                             \
        }                                                                                          \
    } while (0)

static struct name *names_find(struct names *ns, const char *path) {
    for (int i = 0; i < ns->n; i++)
        if (!strcmp(ns->v[i].path, path))
            return &ns->v[i];
    return NULL;
}

static void names_add(struct names *ns, const char *path, struct inode *file) {
    struct name *old = names_find(ns, path);
    if (old) {
        old->file = file;
        return;
    }
    GROW(ns->v, ns->n, ns->cap);
    ns->v[ns->n++] = (struct name){ strdup(path), file };
}

/* With everything below it: of a directory that is gone nothing can come back. */
static void names_remove(struct names *ns, const char *path) {
    size_t len = strlen(path);
    for (int i = ns->n - 1; i >= 0; i--) {
        const char *p = ns->v[i].path;
        if (strncmp(p, path, len) || (p[len] && p[len] != '/'))
            continue;
        free(ns->v[i].path);
        ns->v[i] = ns->v[--ns->n];
    }
}

/* With everything below it. */
static void names_rename(struct names *ns, const char *from, const char *to) {
    size_t len = strlen(from);
    names_remove(ns, to);
    for (int i = 0; i < ns->n; i++) {
        const char *p = ns->v[i].path;
        if (strncmp(p, from, len) || (p[len] && p[len] != '/'))
            continue;
        char path[FILES_PATH_MAX];
        snprintf(path, sizeof path, "%s%s", to, p + len);
        free(ns->v[i].path);
        ns->v[i].path = strdup(path);
    }
}

static void names_apply(struct names *ns, const struct op *op) {
    if (op->kind == OP_ADD)
        names_add(ns, op->path, op->file);
    else if (op->kind == OP_REMOVE)
        names_remove(ns, op->path);
    else
        names_rename(ns, op->path, op->to);
}

static void names_free(struct names *ns) {
    for (int i = 0; i < ns->n; i++)
        free(ns->v[i].path);
    free(ns->v);
}

static void op_add(struct fault *ft, int kind, const char *path, const char *to,
                   struct inode *file) {
    GROW(ft->op, ft->ops, ft->ops_cap);
    ft->op[ft->ops] = (struct op){ kind, strdup(path), to ? strdup(to) : NULL, file, false };
    names_apply(&ft->live, &ft->op[ft->ops++]);
}

static struct inode *inode_new(struct fault *ft) {
    GROW(ft->inode, ft->inodes, ft->inodes_cap);
    return ft->inode[ft->inodes++] = calloc(1, sizeof(struct inode));
}

/* ---- contents ---- */

static void resize(char **data, size_t *len, size_t to) {
    *data = realloc(*data, to + 1);
    assert(*data);
    if (to > *len)
        memset(*data + *len, 0, to - *len);
    *len = to;
}

static void change_apply(char **data, size_t *len, const struct change *c, size_t from, size_t n) {
    if (!c->data) {
        resize(data, len, (size_t)c->at);
        return;
    }
    size_t at = (size_t)c->at + from;
    if (at + n > *len)
        resize(data, len, at + n);
    memcpy(*data + at, c->data + from, n);
}

static void inode_sync(struct inode *in) {
    for (int i = 0; i < in->n; i++) {
        change_apply(&in->data, &in->len, &in->change[i], 0, in->change[i].len);
        free(in->change[i].data);
    }
    in->n = 0;
}

/* A sync has failed: the kernel takes the pages for clean from now on, and no later sync writes
 * them (Rebello et al., Can Applications Recover from fsync Failures?, ATC 2020). */
static void inode_lose(struct inode *in) {
    int kept = 0;
    for (int i = 0; i < in->n; i++) {
        if (in->change[i].data)
            free(in->change[i].data);
        else
            in->change[kept++] = in->change[i];
    }
    in->n = kept;
}

static void change_add(struct inode *in, int64_t at, const void *data, size_t len) {
    char *copy = NULL;
    if (data) {
        copy = malloc(len + 1);
        assert(copy);
        memcpy(copy, data, len);
    }
    GROW(in->change, in->n, in->cap);
    in->change[in->n++] = (struct change){ at, len, copy };
}

/* ---- the layer ---- */

/* Under mu: whether this changing call still happens; *last: it is the last. */
static bool alive(struct fault *ft, bool *last) {
    if (ft->crashed)
        return false;
    *last = ft->crash_at >= 0 && ft->calls >= ft->crash_at;
    ft->calls++;
    if (*last)
        ft->crashed = true;
    return true;
}

static int f_open(void *ctx, const char *path, int flags) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    struct name *x = names_find(&ft->live, path);
    int rc = -EIO;
    if (ft->crashed)
        goto out;
    if (flags & (O_CREAT | O_TRUNC) && (!x || flags & O_TRUNC) && (!alive(ft, &last) || last))
        goto out;
    rc = files_real.open(NULL, path, flags);
    if (rc < 0)
        goto out;
    assert(rc < FDS);
    struct inode *in = x ? x->file : inode_new(ft);
    if (!x)
        op_add(ft, OP_ADD, path, NULL, in);
    else if (flags & O_TRUNC)
        change_add(in, 0, NULL, 0);
    ft->fd[rc] = in;
out:
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int f_close(void *ctx, int fd) {
    struct fault *ft = ctx;
    pthread_mutex_lock(&ft->mu);
    ft->fd[fd] = NULL;
    int rc = files_real.close(NULL, fd);
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static ssize_t f_pread(void *ctx, int fd, void *buf, size_t len, int64_t at) {
    struct fault *ft = ctx;
    return fault_crashed(ft) ? -EIO : files_real.pread(NULL, fd, buf, len, at);
}

/* How much of a write of `want` bytes at `at` fits. */
static size_t fits(struct fault *ft, int fd, size_t want, int64_t at) {
    int64_t grow = at + (int64_t)want - files_real.size(NULL, fd);
    if (ft->space < 0 || grow <= 0)
        return want;
    if (grow > ft->space) {
        int64_t cut = grow - ft->space;
        if (cut > (int64_t)want)
            cut = (int64_t)want;
        want -= (size_t)cut;
        grow = ft->space;
    }
    ft->space -= grow;
    return want;
}

static ssize_t f_pwritev(void *ctx, int fd, const struct iovec *iov, int n, int64_t at) {
    struct fault *ft = ctx;
    bool last = false;
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    char *all = malloc(len + 1), *p = all;
    for (int i = 0; i < n; p += iov[i++].iov_len)
        memcpy(p, iov[i].iov_base, iov[i].iov_len);
    pthread_mutex_lock(&ft->mu);
    ssize_t rc = -EIO;
    if (alive(ft, &last)) {
        if (last)
            len = (size_t)(test_random(&ft->random) % (len + 1));
        len = fits(ft, fd, len, at);
        struct iovec v = { .iov_base = all, .iov_len = len };
        rc = len ? files_real.pwritev(NULL, fd, &v, 1, at) : -ENOSPC;
        if (rc > 0)
            change_add(ft->fd[fd], at, all, (size_t)rc);
        if (last)
            rc = -EIO;
    }
    pthread_mutex_unlock(&ft->mu);
    free(all);
    return rc;
}

static int f_datasync(void *ctx, int fd) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = -EIO;
    if (alive(ft, &last) && !last) {
        if (ft->bad_syncs > 0) {
            ft->bad_syncs--;
            inode_lose(ft->fd[fd]);
        } else {
            inode_sync(ft->fd[fd]);
            rc = 0;
        }
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int f_truncate(void *ctx, int fd, int64_t size) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = -EIO;
    if (alive(ft, &last) && !last) {
        int64_t was = files_real.size(NULL, fd);
        rc = files_real.truncate(NULL, fd, size);
        if (!rc)
            change_add(ft->fd[fd], size, NULL, 0);
        if (!rc && ft->space >= 0 && was > size)
            ft->space += was - size;
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int64_t f_size(void *ctx, int fd) {
    return fault_crashed(ctx) ? -EIO : files_real.size(NULL, fd);
}

static int f_map(void *ctx, int fd, size_t len, void **p) {
    return fault_crashed(ctx) ? -EIO : files_real.map(NULL, fd, len, p);
}

static void f_unmap(void *ctx, void *p, size_t len) {
    (void)ctx;
    files_real.unmap(NULL, p, len);
}

static int f_rename(void *ctx, const char *from, const char *to) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = -EIO;
    if (alive(ft, &last) && !last) {
        rc = files_real.rename(NULL, from, to);
        if (!rc)
            op_add(ft, OP_RENAME, from, to, NULL);
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int remove_name(struct fault *ft, const char *path, int (*real)(void *, const char *)) {
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = -EIO;
    if (alive(ft, &last) && !last) {
        struct stat st;
        int64_t was = stat(path, &st) ? 0 : st.st_size;
        rc = real(NULL, path);
        if (!rc)
            op_add(ft, OP_REMOVE, path, NULL, NULL);
        if (!rc && ft->space >= 0)
            ft->space += was;
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int f_unlink(void *ctx, const char *path) {
    return remove_name(ctx, path, files_real.unlink);
}

static int f_rmdir(void *ctx, const char *path) {
    return remove_name(ctx, path, files_real.rmdir);
}

static int f_mkdir(void *ctx, const char *path) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = ft->crashed ? -EIO : 0;
    if (!rc && !names_find(&ft->live, path)) {
        rc = -EIO;
        if (alive(ft, &last) && !last) {
            rc = files_real.mkdir(NULL, path);
            if (!rc)
                op_add(ft, OP_ADD, path, NULL, NULL);
        }
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int f_list(void *ctx, const char *path, int (*each)(void *arg, const char *name),
                  void *arg) {
    return fault_crashed(ctx) ? -EIO : files_real.list(NULL, path, each, arg);
}

/* Whether `path` is an entry of directory `dir`. */
static bool in_dir(const char *path, const char *dir) {
    size_t len = strlen(dir);
    return !strncmp(path, dir, len) && path[len] == '/' && !strchr(path + len + 1, '/');
}

static int f_sync_dir(void *ctx, const char *path) {
    struct fault *ft = ctx;
    bool last;
    pthread_mutex_lock(&ft->mu);
    int rc = -EIO;
    if (!ft->crashed && !names_find(&ft->live, path)) {
        rc = -ENOENT;
    } else if (alive(ft, &last) && !last) {
        rc = 0;
        if (ft->bad_syncs > 0) {
            ft->bad_syncs--;
            rc = -EIO;
        }
        for (int i = 0; !rc && i < ft->ops; i++)
            if (in_dir(ft->op[i].path, path) || (ft->op[i].to && in_dir(ft->op[i].to, path)))
                ft->op[i].synced = true;
    }
    pthread_mutex_unlock(&ft->mu);
    return rc;
}

static int f_lock(void *ctx, int fd) {
    (void)ctx;
    return files_real.lock(NULL, fd);
}

static int f_boot(void *ctx, char id[FILES_BOOT_LEN]) {
    struct fault *ft = ctx;
    memset(id, 0, FILES_BOOT_LEN);
    snprintf(id, FILES_BOOT_LEN, "boot-%d", ft->boot);
    return 0;
}

/* ---- for tests ---- */

static void take_in(struct fault *ft, const char *dir) {
    DIR *d = opendir(dir);
    if (!d)
        return;
    names_add(&ft->base, dir, NULL);
    for (struct dirent *de; (de = readdir(d));) {
        char path[FILES_PATH_MAX];
        struct stat st;
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        snprintf(path, sizeof path, "%.700s/%s", dir, de->d_name);
        assert(!stat(path, &st));
        if (S_ISDIR(st.st_mode)) {
            take_in(ft, path);
            continue;
        }
        struct inode *in = inode_new(ft);
        in->data = malloc((size_t)st.st_size + 1);
        in->len = (size_t)st.st_size;
        int fd = open(path, O_RDONLY);
        assert(fd >= 0 && read(fd, in->data, in->len) == (ssize_t)in->len);
        close(fd);
        names_add(&ft->base, path, in);
    }
    closedir(d);
}

struct fault *fault_new(const char *dir, uint64_t seed) {
    struct fault *ft = calloc(1, sizeof *ft);
    assert(ft);
    ft->files = (struct log_files){ ft,         f_open,  f_close, f_pread,    f_pwritev, f_datasync,
                                    f_truncate, f_size,  f_map,   f_unmap,    f_rename,  f_unlink,
                                    f_mkdir,    f_rmdir, f_list,  f_sync_dir, f_lock,    f_boot };
    pthread_mutex_init(&ft->mu, NULL);
    ft->random = seed;
    ft->space = ft->crash_at = -1;
    take_in(ft, dir);
    for (int i = 0; i < ft->base.n; i++)
        names_add(&ft->live, ft->base.v[i].path, ft->base.v[i].file);
    return ft;
}

void fault_free(struct fault *ft) {
    names_free(&ft->live);
    names_free(&ft->base);
    for (int i = 0; i < ft->ops; i++) {
        free(ft->op[i].path);
        free(ft->op[i].to);
    }
    free(ft->op);
    for (int i = 0; i < ft->inodes; i++) {
        inode_sync(ft->inode[i]);
        free(ft->inode[i]->change);
        free(ft->inode[i]->data);
        free(ft->inode[i]);
    }
    free(ft->inode);
    pthread_mutex_destroy(&ft->mu);
    free(ft);
}

const struct log_files *fault_files(struct fault *ft) {
    return &ft->files;
}

void fault_space(struct fault *ft, int64_t bytes) {
    pthread_mutex_lock(&ft->mu);
    ft->space = bytes;
    pthread_mutex_unlock(&ft->mu);
}

void fault_syncs(struct fault *ft, int n) {
    pthread_mutex_lock(&ft->mu);
    ft->bad_syncs = n;
    pthread_mutex_unlock(&ft->mu);
}

void fault_crash_after(struct fault *ft, int64_t n) {
    pthread_mutex_lock(&ft->mu);
    ft->crash_at = n < 0 ? -1 : ft->calls + n;
    if (n < 0)
        ft->crashed = false;
    pthread_mutex_unlock(&ft->mu);
}

bool fault_crashed(struct fault *ft) {
    pthread_mutex_lock(&ft->mu);
    bool crashed = ft->crashed;
    pthread_mutex_unlock(&ft->mu);
    return crashed;
}

int64_t fault_calls(struct fault *ft) {
    pthread_mutex_lock(&ft->mu);
    int64_t calls = ft->calls;
    pthread_mutex_unlock(&ft->mu);
    return calls;
}

void fault_boot(struct fault *ft, int number) {
    ft->boot = number;
}

/* The synced bytes and, when scattered, any of the sectors of later writes. */
static void image_file(struct fault *ft, struct inode *in, const char *path, bool scatter) {
    size_t len = in->len;
    char *data = malloc(len + 1);
    assert(data);
    if (len)
        memcpy(data, in->data, len);
    for (int i = 0; scatter && i < in->n; i++) {
        const struct change *c = &in->change[i];
        if (!c->data && test_random(&ft->random) & 1)
            change_apply(&data, &len, c, 0, 0);
        for (size_t at = 0, n; c->data && at < c->len; at += n) {
            n = SECTOR - ((size_t)c->at + at) % SECTOR;
            if (n > c->len - at)
                n = c->len - at;
            if (test_random(&ft->random) & 1)
                change_apply(&data, &len, c, at, n);
        }
    }
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    assert(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    close(fd);
    free(data);
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct name *)a)->path, ((const struct name *)b)->path);
}

void fault_image(struct fault *ft, const char *to, enum fault_loss loss) {
    struct names ns = { 0 };
    pthread_mutex_lock(&ft->mu);
    int unsynced = 0, keep = 0;
    for (int i = 0; i < ft->ops; i++)
        unsynced += !ft->op[i].synced;
    if (loss == FAULT_SCATTER)
        keep = (int)(test_random(&ft->random) % (uint64_t)(unsynced + 1));
    for (int i = 0; i < ft->base.n; i++)
        names_add(&ns, ft->base.v[i].path, ft->base.v[i].file);
    for (int i = 0; i < ft->ops; i++)
        if (ft->op[i].synced || keep-- > 0)
            names_apply(&ns, &ft->op[i]);
    qsort(ns.v, (size_t)ns.n, sizeof *ns.v, by_path); /* a directory before what is in it */
    const char *root = ft->base.v[0].path;
    for (int i = 0; i < ft->base.n; i++)
        if (strlen(ft->base.v[i].path) < strlen(root))
            root = ft->base.v[i].path;
    size_t len = strlen(root);
    for (int i = 0; i < ns.n; i++) {
        char path[FILES_PATH_MAX];
        snprintf(path, sizeof path, "%s%s", to, ns.v[i].path + len);
        char *slash = strrchr(path, '/');
        *slash = 0;
        bool parent = access(path, F_OK) == 0; /* else its creation is lost, and all in it */
        *slash = '/';
        if (!parent)
            continue;
        if (ns.v[i].file)
            image_file(ft, ns.v[i].file, path, loss == FAULT_SCATTER);
        else
            mkdir(path, 0755);
    }
    pthread_mutex_unlock(&ft->mu);
    names_free(&ns);
}
