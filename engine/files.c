#include "engine/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_open(void *ctx, const char *path, int flags) {
    (void)ctx;
    int fd = open(path, flags | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : fd;
}
static int real_close(void *ctx, int fd) {
    (void)ctx;
    return close(fd) < 0 ? -errno : 0;
}
static ssize_t real_pread(void *ctx, int fd, void *buf, size_t len, int64_t at) {
    (void)ctx;
    ssize_t n = pread(fd, buf, len, at);
    return n < 0 ? -errno : n;
}
static ssize_t real_pwritev(void *ctx, int fd, const struct iovec *iov, int n, int64_t at) {
    (void)ctx;
    ssize_t w = pwritev(fd, iov, n, at);
    return w < 0 ? -errno : w;
}
static int real_datasync(void *ctx, int fd) {
    (void)ctx;
    return fdatasync(fd) < 0 ? -errno : 0;
}
static int real_truncate(void *ctx, int fd, int64_t size) {
    (void)ctx;
    return ftruncate(fd, size) < 0 ? -errno : 0;
}
static int64_t real_size(void *ctx, int fd) {
    (void)ctx;
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : st.st_size;
}
static int real_map(void *ctx, int fd, size_t len, void **p) {
    (void)ctx;
    *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    return *p == MAP_FAILED ? -errno : 0;
}
static void real_unmap(void *ctx, void *p, size_t len) {
    (void)ctx;
    munmap(p, len);
}
static int real_rename(void *ctx, const char *from, const char *to) {
    (void)ctx;
    return rename(from, to) < 0 ? -errno : 0;
}
static int real_unlink(void *ctx, const char *path) {
    (void)ctx;
    return unlink(path) < 0 ? -errno : 0;
}
static int real_mkdir(void *ctx, const char *path) {
    (void)ctx;
    return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}
static int real_rmdir(void *ctx, const char *path) {
    (void)ctx;
    return rmdir(path) < 0 ? -errno : 0;
}
static int real_list(void *ctx, const char *path, int (*each)(void *arg, const char *name),
                     void *arg) {
    (void)ctx;
    DIR *d = opendir(path);
    if (!d)
        return -errno;
    int rc = 0;
    struct dirent *de;
    for (errno = 0; !rc && (de = readdir(d)); errno = 0)
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
            rc = each(arg, de->d_name);
    if (!rc && errno)
        rc = -errno;
    closedir(d);
    return rc;
}
static int real_sync_dir(void *ctx, const char *path) {
    int fd = real_open(ctx, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fd;
    int rc = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return rc;
}
static int real_lock(void *ctx, int fd) {
    (void)ctx;
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}
static int real_boot(void *ctx, char id[FILES_BOOT_LEN]) {
    int fd = real_open(ctx, "/proc/sys/kernel/random/boot_id", O_RDONLY);
    if (fd < 0)
        return fd;
    memset(id, 0, FILES_BOOT_LEN);
    ssize_t n = read(fd, id, FILES_BOOT_LEN - 1);
    close(fd);
    return n < 0 ? -errno : 0;
}

const struct log_files files_real = {
    .open = real_open,
    .close = real_close,
    .pread = real_pread,
    .pwritev = real_pwritev,
    .datasync = real_datasync,
    .truncate = real_truncate,
    .size = real_size,
    .map = real_map,
    .unmap = real_unmap,
    .rename = real_rename,
    .unlink = real_unlink,
    .mkdir = real_mkdir,
    .rmdir = real_rmdir,
    .list = real_list,
    .sync_dir = real_sync_dir,
    .lock = real_lock,
    .boot = real_boot,
};

int files_write(const struct log_files *f, int fd, struct iovec *iov, int n, int64_t at) {
    while (n > 0) {
        if (iov->iov_len == 0) {
            iov++;
            n--;
            continue;
        }
        ssize_t w = f->pwritev(f->ctx, fd, iov, n < IOV_MAX ? n : IOV_MAX, at);
        if (w == -EINTR)
            continue;
        if (w <= 0)
            return w ? (int)w : -EIO;
        at += w;
        for (; n > 0 && (size_t)w >= iov->iov_len; iov++, n--)
            w -= (ssize_t)iov->iov_len;
        if (n > 0) {
            iov->iov_base = (char *)iov->iov_base + w;
            iov->iov_len -= (size_t)w;
        }
    }
    return 0;
}

int files_read(const struct log_files *f, int fd, void *buf, size_t len, int64_t at) {
    while (len > 0) {
        ssize_t n = f->pread(f->ctx, fd, buf, len, at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? (int)n : -ENODATA;
        buf = (char *)buf + n;
        len -= (size_t)n;
        at += n;
    }
    return 0;
}

struct removal {
    const struct log_files *f;
    const char *dir;
    int depth, rc;
};

static int remove_tree(const struct log_files *f, const char *path, int depth);

static int remove_each(void *arg, const char *name) {
    struct removal *r = arg;
    char path[FILES_PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", r->dir, name) >= sizeof path)
        return r->rc = -ENAMETOOLONG;
    return r->rc = remove_tree(r->f, path, r->depth - 1);
}

/* Recursive over our own layout (topic, partition, segment), never deeper than `depth`. */
static int remove_tree(const struct log_files *f, const char *path, int depth) {
    int rc = f->unlink(f->ctx, path);
    if (rc != -EISDIR && rc != -EPERM)
        return rc == -ENOENT ? 0 : rc;
    if (depth == 0)
        return -ENOTEMPTY;
    struct removal r = { .f = f, .dir = path, .depth = depth };
    rc = f->list(f->ctx, path, remove_each, &r);
    if (rc < 0)
        return rc;
    return f->rmdir(f->ctx, path);
}

int files_remove(const struct log_files *f, const char *path) {
    return remove_tree(f, path, 3);
}
