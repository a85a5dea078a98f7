/* Records of files: lines, and CSV records over several lines. Whatever the pieces in which the
 * bytes come, the records are those that a reader of one byte at a time finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/splitter.h"
#include "engine/json.h"
#include "tests/unit/harness.h"
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A file in memory. */
static int file_of(const char *bytes, size_t len) {
    int fd = memfd_create("splitter", MFD_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t at = 0; at < len;) {
        ssize_t n = write(fd, bytes + at, len - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}
/* A stream that gives its bytes in pieces of 1 to `most` bytes. */
static int stream_of(const char *bytes, size_t len, size_t most, uint64_t *rnd) {
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
    for (size_t at = 0; at < len;) {
        size_t n = 1 + (size_t)(test_random(rnd) % most);
        n = n < len - at ? n : len - at;
        assert_int_equal(write(fd[1], bytes + at, n), n);
        at += n;
    }
    close(fd[1]);
    return fd[0];
}
/* "[record][record]", or what went wrong. */
static void split(struct sbuf *out, int fd, char delimiter, int64_t load) {
    struct splitter s = { .fd = fd, .path = "file", .delimiter = delimiter };
    struct err e = ERR_INIT;
    const char *p;
    uint32_t len;
    int rc = 0;
    out->len = 0;
    if (load >= 0)
        assert_int_equal(splitter_load(&s, (size_t)load, &e), 1);
    while ((rc = splitter_next(&s, &p, &len, &e)) > 0) {
        sbuf_adds(out, "[");
        sbuf_add(out, p, len);
        sbuf_adds(out, "]");
    }
    if (rc < 0)
        sbuf_adds(out, e.text);
    splitter_free(&s);
    close(fd);
}

/* ---- the rule, a byte at a time ---- */

static size_t line_end(const char *t, size_t n, size_t at) {
    while (at < n && t[at] != '\n')
        at++;
    return at;
}
static size_t naive_end(const char *t, size_t n, size_t at, char d) {
    bool cell = true; /* at the begin of a cell */
    for (; at < n; at++) {
        if (t[at] == '\n')
            return at;
        if (!cell || t[at] != '"') {
            cell = t[at] == d;
            continue;
        }
        size_t q = at + 1;
        while (q < n && (t[q] != '"' || (q + 1 < n && t[q + 1] == '"')))
            q += t[q] == '"' ? 2 : 1;
        bool crlf = q + 1 < n && t[q + 1] == '\r' && (q + 2 == n || t[q + 2] == '\n');
        if (q >= n || !(q + 1 == n || t[q + 1] == d || t[q + 1] == '\n' || crlf))
            return line_end(t, n, at);
        at = q;
        cell = false;
    }
    return n;
}
static void naive(struct sbuf *out, const char *t, size_t n, char d) {
    out->len = 0;
    for (size_t at = 0; at < n;) {
        size_t end = d ? naive_end(t, n, at, d) : line_end(t, n, at), stop = end;
        if (end < n && end > at && t[end - 1] == '\r')
            stop--;
        sbuf_adds(out, "[");
        sbuf_add(out, t + at, stop - at);
        sbuf_adds(out, "]");
        at = end + 1;
    }
}

/* ---- tests ---- */

static void rules(void **state) {
    (void)state;
    static const struct {
        char d;
        const char *text, *want;
    } cases[] = {
        { 0, "", "" },
        { 0, "a", "[a]" },
        { 0, "a\r\n\nb\r", "[a][][b\r]" },
        { 0, "1,\"a\nb\"\n", "[1,\"a][b\"]" },
        { ',', "", "" },
        { ',', "\n", "[]" },
        { ',', "a,b\r\nc", "[a,b][c]" },
        { ',', "1,\"a\nb\"\n2", "[1,\"a\nb\"][2]" },
        { ',', "\"a\r\nb\"\r\n2", "[\"a\r\nb\"][2]" },
        { ',', "\"a\n\"\"\n\",\"\n\"\nx", "[\"a\n\"\"\n\",\"\n\"][x]" },
        { ',', "\"\",\"\n\"", "[\"\",\"\n\"]" },
        { ';', "1,\"a;\nb\"", "[1,\"a;\nb\"]" }, /* behind the time of a timed file */
        { ';', "a,\"b\nc\"", "[a,\"b][c\"]" },   /* a quote within a cell is no quote */
        { ',', "a\"b\nc\"", "[a\"b][c\"]" },
        /* what is not closed properly costs its line */
        { ',', "1,\"a\n2,b\n3", "[1,\"a][2,b][3]" },
        { ',', "1,\"a\n2,\"b\"\n3", "[1,\"a][2,\"b\"][3]" },
        { ',', "\"a\" \n\"b\nc\"\n", "[\"a\" ][\"b\nc\"]" },
        { ',', "\"x\ny\",\"a\n2,b\n3", "[\"x\ny\",\"a][2,b][3]" },
        { ',', "\"a\rb\"\rc\n1", "[\"a\rb\"\rc][1]" },
    };
    struct sbuf b = { 0 };
    uint64_t rnd = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].text);
        split(&b, file_of(cases[i].text, len), cases[i].d, (int64_t)len);
        assert_string_equal(sbuf_str(&b), cases[i].want);
        split(&b, stream_of(cases[i].text, len, 1, &rnd), cases[i].d, -1);
        assert_string_equal(sbuf_str(&b), cases[i].want);
        naive(&b, cases[i].text, len, cases[i].d);
        if (!strstr(cases[i].text, "1,\"a;"))
            assert_string_equal(sbuf_str(&b), cases[i].want);
    }
    sbuf_free(&b);
}
static void any_bytes_in_any_pieces(void **state) {
    (void)state;
    static const char letters[] = "a,\"\"\"\n\n\r;";
    struct sbuf want = { 0 }, have = { 0 };
    uint64_t seed = test_seed(4180), spread = 0;
    for (int round = 0, n = test_scale(20000); round < n; round++) {
        uint64_t rnd = seed + (uint64_t)round;
        char text[64], d = ",;\0"[test_random(&rnd) % 3];
        size_t len = (size_t)(test_random(&rnd) % sizeof text);
        for (size_t i = 0; i < len; i++)
            text[i] = letters[test_random(&rnd) % (sizeof letters - 1)];
        naive(&want, text, len, d);
        spread += d && memmem(sbuf_str(&want), want.len, "\n", 1);
        split(&have, file_of(text, len), d, (int64_t)len);
        if (strcmp(sbuf_str(&want), sbuf_str(&have)) != 0)
            fail_msg("BRAID_SEED=%llu: %s instead of %s", (unsigned long long)seed + round, have.p,
                     want.p);
        split(&have, stream_of(text, len, 1 + test_random(&rnd) % 9, &rnd), d, -1);
        if (strcmp(sbuf_str(&want), sbuf_str(&have)) != 0)
            fail_msg("BRAID_SEED=%llu, in pieces: %s instead of %s",
                     (unsigned long long)seed + round, have.p, want.p);
    }
    assert_true(spread > 0); /* some records had several lines */
    sbuf_free(&want);
    sbuf_free(&have);
}
/* A record is given out as soon as its line end is there, without waiting for what follows. */
static void records_do_not_wait(void **state) {
    (void)state;
    static const char text[] = "1,\"a\nb\"\n";
    int fd[2];
    struct splitter s = { .path = "pipe", .delimiter = ',' };
    struct err e = ERR_INIT;
    const char *p;
    uint32_t len;
    assert_int_equal(pipe2(fd, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(write(fd[1], text, sizeof text - 1), sizeof text - 1);
    s.fd = fd[0];
    assert_int_equal(splitter_next(&s, &p, &len, &e), 1);
    assert_int_equal(len, sizeof text - 2);
    assert_int_equal(splitter_next(&s, &p, &len, &e), ERR_SYSTEM); /* it would wait now */
    splitter_free(&s);
    close(fd[0]);
    close(fd[1]);
}
/* 0: an error; else the length of the first record of a file that begins with `head`, then has n
 * bytes and ends with `tail`. Loaded and streamed alike. */
static uint32_t first_of(const char *head, size_t n, const char *tail, char d) {
    size_t hl = strlen(head), tl = strlen(tail);
    char *text = malloc(hl + n + tl);
    uint32_t len[2] = { 0 };
    assert_non_null(text);
    memcpy(text, head, hl);
    memset(text + hl, 'x', n);
    memcpy(text + hl + n, tail, tl);
    for (int loaded = 0; loaded < 2; loaded++) {
        struct splitter s = { .fd = file_of(text, hl + n + tl), .path = "f", .delimiter = d };
        struct err e = ERR_INIT;
        const char *p;
        if (loaded)
            assert_int_equal(splitter_load(&s, hl + n + tl, &e), 1);
        int rc = splitter_next(&s, &p, &len[loaded], &e);
        if (rc < 0) {
            assert_int_equal(rc, ERR_INPUT);
            assert_string_equal(e.text, "f: record 1 is longer than 16 MiB");
            len[loaded] = 0;
        }
        close(s.fd);
        splitter_free(&s);
    }
    free(text);
    assert_int_equal(len[0], len[1]);
    return len[0];
}
static void the_limit(void **state) {
    (void)state;
    const uint32_t max = SPLITTER_RECORD_MAX;
    for (int i = 0; i < 2; i++) {
        char d = ",\0"[i];
        assert_int_equal(first_of("", max, "", d), max);
        assert_int_equal(first_of("", max, "\na", d), max);
        assert_int_equal(first_of("", max, "\r\na", d), max);
        assert_int_equal(first_of("", max + 1, "\na", d), 0);
        assert_int_equal(first_of("", max + 9, "", d), 0);
    }
    assert_int_equal(first_of("\"\n", max - 3, "\"\n2", ','), max);
    /* a quoted cell beyond it ends with the line in which it opens */
    assert_int_equal(first_of("1,\"a\n", max, "\"\n2", ','), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(any_bytes_in_any_pieces),
        cmocka_unit_test(records_do_not_wait),
        cmocka_unit_test(the_limit),
    };
    return cmocka_run_group_tests_name("splitter", tests, NULL, NULL);
}
