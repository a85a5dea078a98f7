#include "cluster/filestore.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define TMP "tmp-"
enum { PATH_SIZE = 4096 };

struct stored {
    char hash[33];
    char *data;
    size_t len;
    struct stored *next;
};
struct filestore {
    char dir[PATH_SIZE - 64];
    bool sync;
    pthread_mutex_t mutex; /* of `files`, and of writing */
    struct stored *files;  /* in memory; few: a dataflow names a handful */
    uint64_t writes;
};

bool filestore_hash_valid(const char *hash) {
    size_t n = strspn(hash, "0123456789abcdef");
    return n == 32 && !hash[n];
}

void filestore_hash(const void *data, size_t len, char hash[33]) {
    XXH128_hash_t h = XXH3_128bits(data, len);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

static int sync_dir(const char *dir, struct err *e) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) < 0 ? err_errno(e, errno, "syncing %s", dir) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Files whose upload a killed process has not finished. */
static void remove_unfinished(const struct filestore *fs) {
    DIR *d = opendir(fs->dir);
    if (!d)
        return;
    for (struct dirent *de; (de = readdir(d));)
        if (strncmp(de->d_name, TMP, sizeof TMP - 1) == 0)
            unlinkat(dirfd(d), de->d_name, 0);
    closedir(d);
}

int filestore_open(struct filestore **out, const char *dir, bool sync, struct err *e) {
    struct filestore *fs = calloc(1, sizeof *fs);
    if (!fs)
        return err_errno(e, ENOMEM, "file store");
    fs->sync = sync;
    pthread_mutex_init(&fs->mutex, NULL);
    int n = snprintf(fs->dir, sizeof fs->dir, "%s/files", dir);
    if (n < 0 || (size_t)n >= sizeof fs->dir) {
        filestore_close(fs);
        return err_set(e, ERR_INPUT, "the directory's name is too long: %.200s…", dir);
    }
    if (mkdir(fs->dir, 0777) < 0 && errno != EEXIST) {
        int rc = err_errno(e, errno, "making the directory %s", fs->dir);
        filestore_close(fs);
        return rc;
    }
    remove_unfinished(fs);
    int rc = sync ? sync_dir(dir, e) : 0;
    if (rc < 0)
        filestore_close(fs);
    else
        *out = fs;
    return rc;
}

void filestore_close(struct filestore *fs) {
    if (!fs)
        return;
    for (struct stored *s = fs->files, *next; s; s = next) {
        next = s->next;
        free(s->data);
        free(s);
    }
    pthread_mutex_destroy(&fs->mutex);
    free(fs);
}

static void path_of(const struct filestore *fs, const char *hash, char path[PATH_SIZE]) {
    snprintf(path, PATH_SIZE, "%s/%s", fs->dir, hash);
}

static int write_all(int fd, const char *p, size_t len, const char *path, struct err *e) {
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "writing %s", path);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Under a name of its own first, so that HASH is whole whenever it exists. */
static int store(struct filestore *fs, const char *hash, const void *data, size_t len,
                 struct err *e) {
    char tmp[PATH_SIZE], path[PATH_SIZE];
    path_of(fs, hash, path);
    snprintf(tmp, sizeof tmp, "%s/" TMP "%d-%llu", fs->dir, (int)getpid(),
             (unsigned long long)++fs->writes);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno(e, errno, "creating %s", tmp);
    int rc = write_all(fd, data, len, tmp, e);
    if (rc == 0 && fs->sync && fdatasync(fd) < 0)
        rc = err_errno(e, errno, "syncing %s", tmp);
    if (close(fd) < 0 && rc == 0)
        rc = err_errno(e, errno, "closing %s", tmp);
    if (rc == 0 && rename(tmp, path) < 0)
        rc = err_errno(e, errno, "renaming %s", tmp);
    if (rc < 0)
        unlink(tmp);
    return rc == 0 && fs->sync ? sync_dir(fs->dir, e) : rc;
}

int64_t filestore_size(struct filestore *fs, const char *hash) {
    char path[PATH_SIZE];
    struct stat st;
    path_of(fs, hash, path);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : ERR_NOTFOUND;
}

static int load(const char *path, const char *hash, char **data, size_t *len, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT
                   ? err_set(e, ERR_NOTFOUND, "no file with the hash %s was uploaded", hash)
                   : err_errno(e, errno, "opening %s", path);
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size > FILESTORE_FILE_MAX) {
        close(fd);
        return err_set(e, ERR_SYSTEM, "%s is not a file of at most %d bytes", path,
                       FILESTORE_FILE_MAX);
    }
    char *p = malloc((size_t)st.st_size + 1);
    size_t got = 0;
    ssize_t n = 1;
    while (p && got < (size_t)st.st_size && n != 0) {
        n = read(fd, p + got, (size_t)st.st_size - got);
        if (n < 0 && errno != EINTR)
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    char real[33] = "";
    if (p) {
        p[got] = '\0';
        filestore_hash(p, got, real);
    }
    if (strcmp(real, hash) != 0) {
        free(p);
        return err_set(e, ERR_SYSTEM, "%s is damaged: its content no longer has that hash", path);
    }
    *data = p;
    *len = got;
    return 0;
}

/* Whole, that is: one that the disk has damaged is uploaded again. */
static bool is_stored(struct filestore *fs, const char *hash) {
    char path[PATH_SIZE], *data;
    size_t len;
    path_of(fs, hash, path);
    if (load(path, hash, &data, &len, NULL) < 0)
        return false;
    free(data);
    return true;
}

int filestore_put(struct filestore *fs, const char *hash, const void *data, size_t len,
                  bool *created, struct err *e) {
    char real[33];
    if (!filestore_hash_valid(hash))
        return err_set(e, ERR_INPUT, "'%.40s' is no hash: it has 32 lower-case hex digits", hash);
    if (len > FILESTORE_FILE_MAX)
        return err_set(e, ERR_INPUT, "the file has %zu bytes; at most %d are allowed", len,
                       FILESTORE_FILE_MAX);
    filestore_hash(data, len, real);
    if (strcmp(real, hash) != 0)
        return err_set(e, ERR_INPUT, "the content has the XXH3-128 hash %s, not %s", real, hash);
    pthread_mutex_lock(&fs->mutex);
    *created = !is_stored(fs, hash);
    int rc = *created ? store(fs, hash, data, len, e) : 0;
    pthread_mutex_unlock(&fs->mutex);
    return rc;
}

int filestore_get(struct filestore *fs, const char *hash, struct file *f, struct err *e) {
    char path[PATH_SIZE];
    if (!filestore_hash_valid(hash))
        return err_set(e, ERR_INPUT, "'%.40s' is no hash: it has 32 lower-case hex digits", hash);
    path_of(fs, hash, path);
    pthread_mutex_lock(&fs->mutex);
    struct stored *s = fs->files;
    while (s && strcmp(s->hash, hash) != 0)
        s = s->next;
    int rc = 0;
    if (!s) {
        s = calloc(1, sizeof *s);
        rc = s ? load(path, hash, &s->data, &s->len, e) : err_errno(e, ENOMEM, "file %s", hash);
        if (rc < 0) {
            free(s);
        } else {
            memcpy(s->hash, hash, sizeof s->hash);
            s->next = fs->files;
            fs->files = s;
        }
    }
    if (rc == 0) {
        memcpy(f->hash, hash, sizeof f->hash);
        f->data = s->data;
        f->len = s->len;
    }
    pthread_mutex_unlock(&fs->mutex);
    return rc;
}
