/* The file layer of the local log: every call that touches the disk goes through a table of
 * functions, so that tests inject full disks, torn writes, lost unsynced writes and crashes at any
 * call (tests/unit/files_fault.h). All functions return >= 0 or a negated errno. Any thread. */
#ifndef BRAID_FILES_H
#define BRAID_FILES_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { FILES_PATH_MAX = 1024, FILES_DIR_MAX = 640, FILES_BOOT_LEN = 40 };

struct log_files {
    void *ctx;                                           /* first argument of every function */
    int (*open)(void *ctx, const char *path, int flags); /* O_CREAT makes mode 0644 */
    int (*close)(void *ctx, int fd);
    ssize_t (*pread)(void *ctx, int fd, void *buf, size_t len, int64_t at);
    ssize_t (*pwritev)(void *ctx, int fd, const struct iovec *iov, int n, int64_t at);
    int (*datasync)(void *ctx, int fd);
    int (*truncate)(void *ctx, int fd, int64_t size);
    int64_t (*size)(void *ctx, int fd);
    /* Shared and read-only. `len` may reach beyond the end of a file that is going to grow. */
    int (*map)(void *ctx, int fd, size_t len, void **p);
    void (*unmap)(void *ctx, void *p, size_t len);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*unlink)(void *ctx, const char *path);
    int (*mkdir)(void *ctx, const char *path); /* 0 also when it is there */
    int (*rmdir)(void *ctx, const char *path);
    /* Every name but "." and ".." in no order; stops when `each` returns non-zero. */
    int (*list)(void *ctx, const char *path, int (*each)(void *arg, const char *name), void *arg);
    int (*sync_dir)(void *ctx, const char *path);
    int (*lock)(void *ctx, int fd); /* exclusive, at once: -EWOULDBLOCK when another has it */
    /* A text that changes when the machine restarts: only then can unsynced writes be lost. */
    int (*boot)(void *ctx, char id[FILES_BOOT_LEN]);
};

extern const struct log_files files_real;

/* All of the vectors at `at`, over short writes and IOV_MAX; changes `iov`. 0 or a negated errno.
 */
int files_write(const struct log_files *f, int fd, struct iovec *iov, int n, int64_t at);
/* Exactly `len` bytes; -ENODATA when the file ends before. */
int files_read(const struct log_files *f, int fd, void *buf, size_t len, int64_t at);
/* Removes a file or a directory tree of depth <= 3. Missing is no error. */
int files_remove(const struct log_files *f, const char *path);
#endif
