#include "engine/err.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void err_text(struct err *e, const char *fmt, va_list ap) {
    vsnprintf(e->text, sizeof e->text, fmt, ap);
}

int err_set(struct err *e, int code, const char *fmt, ...) {
    if (!e)
        return code;
    *e = (struct err){ .code = code, .offset = -1 };
    va_list ap;
    va_start(ap, fmt);
    err_text(e, fmt, ap);
    va_end(ap);
    return code;
}

static bool errno_retriable(int errnum) {
    return errnum == ENOSPC || errnum == EDQUOT || errnum == EINTR || errnum == EAGAIN ||
           errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
}

int err_errno(struct err *e, int errnum, const char *fmt, ...) {
    if (!e)
        return ERR_SYSTEM;
    *e = (struct err){ .code = ERR_SYSTEM, .offset = -1, .retriable = errno_retriable(errnum) };
    va_list ap;
    va_start(ap, fmt);
    err_text(e, fmt, ap);
    va_end(ap);
    size_t len = strlen(e->text);
    const char *why = strerrordesc_np(errnum); /* in English under any locale; any thread */
    snprintf(e->text + len, sizeof e->text - len, ": %s", why ? why : "unknown error");
    return ERR_SYSTEM;
}

const char *err_format(const struct err *e, char *buf, size_t size) {
    size_t n = 0;
    buf[0] = '\0';
    if (e->file[0])
        n += (size_t)snprintf(buf + n, size - n, "%s:", e->file);
    if (n < size && e->line > 0)
        n += (size_t)snprintf(buf + n, size - n, "%d:%d:", e->line, e->col);
    if (n < size && e->pointer[0])
        n += (size_t)snprintf(buf + n, size - n, "%s%s:", n ? " " : "", e->pointer);
    if (n < size)
        snprintf(buf + n, size - n, "%s%s", n ? " " : "", e->text);
    return buf;
}

int errs_add(struct errs *es, const struct err *e) {
    es->total++;
    if (es->n == ERRS_MAX)
        return e->code;
    if ((es->n & (es->n - 1)) == 0) {
        size_t cap = es->n ? (size_t)es->n * 2 : 1;
        struct err *v = realloc(es->v, cap * sizeof *v);
        if (!v)
            return e->code; /* counted in total; the caller still fails with the code */
        es->v = v;
    }
    es->v[es->n++] = *e;
    return e->code;
}

void errs_free(struct errs *es) {
    free(es->v);
    *es = (struct errs){ 0 };
}

enum { WORD_MAX = 64 };

/* Optimal string alignment distance (Levenshtein with adjacent swaps), rows rolled. */
static int word_distance(const char *a, const char *b) {
    int la = (int)strlen(a), lb = (int)strlen(b);
    if (la > WORD_MAX || lb > WORD_MAX)
        return WORD_MAX;
    int row[3][WORD_MAX + 1];
    for (int j = 0; j <= lb; j++)
        row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        int *cur = row[i % 3], *prev = row[(i - 1) % 3], *prev2 = row[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= lb; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int d = prev[j - 1] + (x != y);
            if (prev[j] + 1 < d)
                d = prev[j] + 1;
            if (cur[j - 1] + 1 < d)
                d = cur[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && prev2[j - 2] + 1 < d)
                d = prev2[j - 2] + 1;
            cur[j] = d;
        }
    }
    return row[la % 3][lb];
}

const char *err_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int limit = 1 + (int)strlen(word) / 4, best_d = limit + 1;
    for (int i = 0; i < n; i++) {
        int d = word_distance(word, names[i]);
        if (d < best_d) {
            best_d = d;
            best = names[i];
        }
    }
    return best;
}
