#include "cluster/rowfile.h"
#include "cluster/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWFILE_BUF = 256 << 10 };

int rowfile_open(struct rowfile *f, const char *path, struct err *e) {
    bool std = strcmp(path, "-") == 0;
    int fd = std ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        int rc = errno == ENOENT || errno == ENOTDIR ? ERR_NOTFOUND : ERR_SYSTEM;
        err_errno(e, errno, "cannot write %s", path);
        return e->code = rc;
    }
    *f = (struct rowfile){ .path = path, .fd = fd, .eager = std && isatty(fd) };
    f->buf = malloc(ROWFILE_BUF);
    if (!f->buf)
        abort();
    return 0;
}

static int write_all(struct rowfile *f, const char *p, size_t len, struct err *e) {
    while (len > 0) {
        ssize_t n = write(f->fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "writing to %s",
                             f->fd == STDOUT_FILENO ? "stdout" : f->path);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int rowfile_flush(struct rowfile *f, struct err *e) {
    size_t len = f->len;
    f->len = 0;
    return write_all(f, f->buf, len, e);
}

int rowfile_add(struct rowfile *f, const void *p, size_t len, struct err *e) {
    if (f->len + len > ROWFILE_BUF) {
        int rc = rowfile_flush(f, e);
        if (rc < 0)
            return rc;
        if (len > ROWFILE_BUF)
            return write_all(f, p, len, e);
    }
    memcpy(f->buf + f->len, p, len);
    f->len += len;
    return 0;
}

int rowfile_line(struct rowfile *f, const void *p, size_t len, struct err *e) {
    if (f->len + len >= ROWFILE_BUF) {
        int rc = rowfile_add(f, p, len, e);
        return rc < 0 ? rc : rowfile_add(f, "\n", 1, e);
    }
    char *to = f->buf + f->len;
    memcpy(to, p, len);
    to[len] = '\n';
    f->len += len + 1;
    return 0;
}

int rowfile_close(struct rowfile *f, struct err *e) {
    if (f->fd < 0 || !f->buf)
        return 0;
    int rc = rowfile_flush(f, e);
    if (f->fd != STDOUT_FILENO && close(f->fd) < 0 && rc == 0)
        rc = err_errno(e, errno, "writing to %s", f->path);
    free(f->buf);
    *f = (struct rowfile){ .fd = -1 };
    return rc;
}
