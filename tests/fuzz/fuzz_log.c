/* Opening and reading a local log whose files are made of anything: a clear error or a clean
 * recovery, never a crash. The input is a list of edits to the files of a small log that is whole:
 * (file, place, bytes), or with the high bit of the first byte the whole content of a file.
 * Checksums are made right again after half of the edits, so that the fuzzer gets behind them. */
#include "engine/commit.h"
#include "engine/crc32c.h"
#include "engine/log.h"
#include "engine/segment.h"
#include "engine/snapshot.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 8, FILE_MAX = 1 << 16 };
static struct {
    char name[96];
    size_t len;
    uint8_t *bytes;
} file[FILES];
static int files;
static char dir[64];

static void die(const char *what) {
    fprintf(stderr, "fuzz_log: %s\n", what);
    abort();
}

static void run(const char *command) {
    char all[256];
    snprintf(all, sizeof all, command, dir);
    if (system(all))
        die(all);
}

static void put(struct log *log, const char *topic, int n) {
    struct log_epoch *ep = log_epoch_begin(log);
    struct log_buf *b = log_buf_new();
    for (int i = 0; i < n; i++) {
        memset(log_buf_room(b, 40), 'a' + i, 40);
        log_buf_end(b, (size_t)(10 + i % 30));
        log_buf_key(b, "key", 3, i % 3 == 0);
        if (n % 4 == 1)
            log_buf_time(b, 1000 + i);
        if (n % 4 == 2)
            log_buf_header(b, "name", 4, i % 2 ? "value" : NULL, 5);
    }
    log_buf_seal(b);
    log_epoch_append(ep, topic, 0, b, n, NULL);
    log_buf_unref(b);
    log_epoch_state(ep, "pos", 3, &n, sizeof n);
    log_epoch_state(ep, topic, (uint32_t)strlen(topic), "v", 1);
    if (log_commit_wait(ep, NULL, NULL) != LOG_COMMITTED)
        die("commit");
}

/* A snapshot, a commit log of each durability, two topics, sealed and active segments. */
static void build(void) {
    struct log_conf conf = { .dir = dir, .segment_bytes = 600, .commit_bytes = 1500 };
    struct log_topic_conf tc = { .partitions = 1, .retention_bytes = -1 };
    struct log *log;
    if (log_open(&log, &conf, NULL) || log_topic_create(log, "t", &tc, NULL) ||
        log_topic_create(log, "u", &tc, NULL))
        die("open");
    for (int i = 1; i < 12; i++)
        put(log, i % 3 ? "t" : "u", i);
    log_close(log);
    conf.commit_bytes = 0;
    conf.durability = LOG_POWER;
    if (log_open(&log, &conf, NULL))
        die("open again");
    for (int i = 1; i < 5; i++)
        put(log, "t", i);
    log_close(log);
}

static void take(void) {
    char path[160];
    snprintf(path, sizeof path, "cd %s && find . -type f ! -name lock | sort | head -%d", dir,
             FILES);
    FILE *list = popen(path, "r");
    while (list && files < FILES && fgets(file[files].name, sizeof file[0].name, list)) {
        file[files].name[strcspn(file[files].name, "\n")] = 0;
        snprintf(path, sizeof path, "%s/%s", dir, file[files].name);
        FILE *f = fopen(path, "rb");
        file[files].bytes = malloc(FILE_MAX);
        if (!f || !file[files].bytes)
            die(path);
        file[files].len = fread(file[files].bytes, 1, FILE_MAX, f);
        fclose(f);
        files++;
    }
    pclose(list);
    if (files < 5)
        die("too few files");
}

static void leave(void) {
    run("rm -rf %s");
}

static void fix(uint8_t *p, size_t len, size_t crc_at, size_t from, size_t to) {
    if (to > len)
        return;
    uint32_t crc = 0;
    if (from == 0) { /* over the head with the field zero */
        memcpy(p + crc_at, &crc, 4);
    }
    crc = crc32c(0, p + from, to - from);
    memcpy(p + crc_at, &crc, 4);
}

/* Makes the checksums of headers right again, frame by frame. */
static void fix_all(const char *name, uint8_t *p, size_t len) {
    if (strstr(name, ".snap")) {
        struct snapshot_head h;
        if (len < sizeof h)
            return;
        memcpy(&h, p, sizeof h);
        for (size_t at = sizeof h; at + 16 <= len && at < h.table;) {
            struct snapshot_block b;
            memcpy(&b, p + at, sizeof b);
            if (b.len > len - at - 16)
                break;
            fix(p + at, len - at, 0, 4, 16 + (size_t)pad8((int64_t)b.len));
            at += 16 + (size_t)pad8((int64_t)b.len);
        }
        if (h.table < len)
            h.table_crc = crc32c(0, p + h.table, len - h.table);
        memcpy(p, &h, sizeof h);
        fix(p, len, 12, 0, sizeof h);
        return;
    }
    bool seg = strstr(name, ".seg") != NULL;
    size_t at = seg ? SEGMENT_HEAD : COMMIT_HEAD;
    fix(p, len, 12, 0, at);
    while (at + 64 <= len) {
        if (seg) {
            struct frame f;
            memcpy(&f, p + at, sizeof f);
            f.crc = crc32c(0, (char *)&f + 8, sizeof f - 8);
            memcpy(p + at, &f, sizeof f);
            if (!frame_head_ok(&f))
                return;
            size_t n = (size_t)frame_bytes(&f);
            if (n > len - at)
                return;
            at += n;
            continue;
        }
        struct commit_frame c;
        memcpy(&c, p + at, sizeof c);
        size_t entries = (size_t)pad8((int64_t)(c.entries_len & 0xffffff));
        if (entries > len - at - 64)
            return;
        c.entries = crc32c(0, p + at + 64, entries);
        c.crc = crc32c(0, (char *)&c + 8, sizeof c - 8);
        memcpy(p + at, &c, sizeof c);
        at += 64 + entries + (size_t)(c.chunks_len & 0xffffff);
    }
}

static void write_file(int i, const uint8_t *bytes, size_t len) {
    char path[1024]; /* as gcc bounds the name by its whole table */
    snprintf(path, sizeof path, "%s/%s", dir, file[i].name);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0755);
        *p = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        die(path);
    close(fd);
}

static int each(void *arg, const void *key, uint32_t klen, const void *value, uint32_t vlen) {
    uint32_t *sum = arg;
    *sum += crc32c(0, key, klen) + crc32c(0, value, vlen);
    return 0;
}

static int each_topic(void *arg, const struct log_topic_info *info) {
    struct log *log = arg;
    struct log_reader *r;
    struct log_rows rows;
    struct err e = ERR_INIT;
    int64_t offset;
    log_offset_at(log, info->name, 0, 3);
    if (log_reader_open(log, info->name, 0, info->begin, &r, &e))
        return 0;
    for (int i = 0; i < 200; i++) {
        int n = log_read(r, 5, &rows, &offset, &e);
        if (n == 0 || (n < 0 && (e.text[0] == 0 || log_seek(r, offset, &e))))
            break;
        for (int k = 0; k < n; k++) {
            uint32_t from = log_end(rows.value_end, k - 1);
            crc32c(0, rows.values + from, log_end(rows.value_end, k) - from);
            struct log_header h;
            const char *p = rows.header_end ? rows.headers + log_end(rows.header_end, k - 1) : NULL;
            const char *end = p ? rows.headers + log_end(rows.header_end, k) : NULL;
            while (p && log_header_next(&p, end, &h))
                crc32c(crc32c(0, h.name, h.nlen), h.value, h.vlen);
            log_row_time(&rows, (uint32_t)k);
        }
    }
    log_reader_close(r);
    return 0;
}

static void try_log(void) {
    struct log_conf conf = { .dir = dir, .segment_bytes = 600 };
    struct log *log;
    struct err e = ERR_INIT;
    uint32_t sum = 0;
    if (log_open(&log, &conf, &e)) {
        if (!e.text[0])
            die("an error without a text");
        return;
    }
    log_state_each(log, "", 0, each, &sum, &e);
    log_topic_list(log, each_topic, log);
    struct log_epoch *ep = log_epoch_begin(log);
    log_epoch_state(ep, "after", 5, "x", 1);
    log_commit_wait(ep, NULL, &e);
    log_close(log);
}

static void edit(uint8_t *bytes, size_t *len, const uint8_t *p, size_t n, size_t at, bool whole) {
    if (whole) {
        *len = n;
        at = 0;
    }
    at %= *len + 1;
    if (at + n > FILE_MAX)
        return;
    memcpy(bytes + at, p, n);
    if (at + n > *len)
        *len = at + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[FILES][FILE_MAX];
    if (!files) {
        snprintf(dir, sizeof dir, "%s/braid-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(dir))
            die(dir);
        build();
        take();
        atexit(leave);
    }
    static const char *const parts[] = { "topics", "commit", "snapshot", "trash" };
    for (int i = 0; i < 4; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        if (files_remove(&files_real, path))
            die(path);
    }
    size_t len[FILES];
    bool gone[FILES] = { 0 };
    for (int i = 0; i < files; i++)
        memcpy(bytes[i], file[i].bytes, len[i] = file[i].len);
    for (size_t at = 0; at + 4 <= size;) {
        int i = data[at] % files;
        size_t n = data[at + 3];
        n = n < size - at - 4 ? n : size - at - 4;
        size_t to = data[at + 1] | (size_t)data[at + 2] << 8;
        if (n == 0)
            gone[i] = true;
        edit(bytes[i], &len[i], data + at + 4, n, to, data[at] & 0x80);
        if (data[at] & 0x40)
            fix_all(file[i].name, bytes[i], len[i]);
        at += 4 + n;
    }
    for (int i = 0; i < files; i++)
        if (!gone[i])
            write_file(i, bytes[i], len[i]);
    try_log();
    return 0;
}
