#include "cluster/table.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- units ---- */

/* v with three significant digits, at least 0 and less than 1000. Locale-free. */
static int digits3(char *buf, size_t size, double v) {
    int places = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    int64_t scale = places == 2 ? 100 : places == 1 ? 10 : 1;
    int64_t n = llround(v * (double)scale);
    if (places == 0)
        return snprintf(buf, size, "%lld", (long long)n);
    return snprintf(buf, size, "%lld.%0*lld", (long long)(n / scale), places,
                    (long long)(n % scale));
}

static const char *scaled(char *buf, double v, const char *unit) {
    static const char prefix[] = " kMGTPE";
    int k = 0;
    double x = v < 0 ? 0 : v;
    while (x >= 999.5 && prefix[k + 1]) {
        x /= 1000;
        k++;
    }
    int n =
        k == 0 && x == floor(x) ? snprintf(buf, UNIT_MAX, "%d", (int)x) : digits3(buf, UNIT_MAX, x);
    if (k > 0)
        snprintf(buf + n, UNIT_MAX - (size_t)n, " %c%s", prefix[k], unit);
    else if (*unit)
        snprintf(buf + n, UNIT_MAX - (size_t)n, " %s", unit);
    return buf;
}

const char *unit_count(char *buf, double v) {
    return scaled(buf, v, "");
}
const char *unit_bytes(char *buf, double v) {
    return scaled(buf, v, "B");
}

const char *unit_ns(char *buf, double ns) {
    static const char *const units[] = { "ns", "us", "ms", "s" };
    int k = 0;
    double x = ns < 0 ? 0 : ns;
    while (x >= 999.5 && k < 3) {
        x /= 1000;
        k++;
    }
    int n =
        k == 0 && x == floor(x) ? snprintf(buf, UNIT_MAX, "%d", (int)x) : digits3(buf, UNIT_MAX, x);
    snprintf(buf + n, UNIT_MAX - (size_t)n, " %s", units[k]);
    return buf;
}

const char *unit_ms(char *buf, int64_t ms) {
    if (ms >= 1000)
        return unit_ns(buf, (double)ms * 1e6);
    snprintf(buf, UNIT_MAX, "%lld ms", (long long)(ms < 0 ? 0 : ms));
    return buf;
}

const char *unit_exact(char *buf, uint64_t v) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v), o = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf[o++] = ',';
        buf[o++] = digits[i];
    }
    buf[o] = '\0';
    return buf;
}

const char *unit_span(char *buf, double seconds) {
    int64_t tenths = llround((seconds < 0 ? 0 : seconds) * 10), s = tenths / 10;
    if (s < 10)
        snprintf(buf, UNIT_MAX, "%lld.%lld s", (long long)s, (long long)(tenths % 10));
    else if (s < 60)
        snprintf(buf, UNIT_MAX, "%lld s", (long long)s);
    else if (s < 3600)
        snprintf(buf, UNIT_MAX, "%lld:%02d", (long long)(s / 60), (int)(s % 60));
    else
        snprintf(buf, UNIT_MAX, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    return buf;
}

const char *unit_percent(char *buf, double fraction) {
    int64_t t = llround(fraction * 1000);
    snprintf(buf, UNIT_MAX, "%lld.%lld %%", (long long)(t / 10), (long long)(t % 10));
    return buf;
}

/* ---- styles ---- */

const char *style_on(enum style s, bool color) {
    static const char *const on[] = { "",        "\33[1m",  "\33[2m", "\33[31m",
                                      "\33[32m", "\33[33m", "\33[36m" };
    return color ? on[s] : "";
}
const char *style_off(bool color) {
    return color ? "\33[0m" : "";
}

int text_width(const char *s, size_t len) {
    int n = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\33') {
            while (i < len && s[i] != 'm')
                i++;
        } else {
            n += ((unsigned char)s[i] & 0xc0) != 0x80;
        }
    }
    return n;
}

int text_cut(const char *s, int width) {
    int i = 0;
    for (int n = 0; s[i] && n < width; n++)
        for (i++; ((unsigned char)s[i] & 0xc0) == 0x80; i++)
            ;
    return i;
}

/* ---- tables ---- */

void table_begin(struct table *t, const char *heads) {
    *t = (struct table){ 0 };
    for (const char *p = heads; *p && t->cols < TABLE_COLS_MAX;) {
        size_t n = strcspn(p, "|");
        t->right[t->cols] = *p == '>';
        t->head[t->cols++] = arena_strndup(&t->arena, p + 1, n - 1);
        p += n + (p[n] == '|');
    }
}

void table_add(struct table *t, const char *text) {
    if (t->n == t->cap) {
        int cap = t->cap ? t->cap * 2 : 64;
        struct table_cell *v = ARENA_ARRAY(&t->arena, struct table_cell, cap);
        if (t->n)
            memcpy(v, t->cells, (size_t)t->n * sizeof *v);
        t->cells = v;
        t->cap = cap;
    }
    t->cells[t->n++] = (struct table_cell){ .text = arena_strdup(&t->arena, text ? text : "") };
}

void table_addf(struct table *t, const char *fmt, ...) {
    char buf[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    table_add(t, buf);
}

void table_style(struct table *t, enum style s) {
    t->cells[t->n - 1].style = s;
}

/* The first `width` columns of a text; the last of them is "…" when something is cut. */
static void put_cut(FILE *f, const char *s, int width) {
    bool cut = text_width(s, strlen(s)) > width;
    fprintf(f, "%.*s%s", text_cut(s, width - cut), s, cut && width > 0 ? "…" : "");
}

enum { LEFT_OUT = -2 }; /* width of a column that is not printed: none, and no gap before it */

/* One cell after `gap` spaces that are still owed; returns those owed after it, so that no line
 * ends in spaces. */
static int put_cell(FILE *f, const struct table_cell *c, int width, bool right, int gap,
                    bool color) {
    if (width == LEFT_OUT)
        return gap;
    int n = text_width(c->text, strlen(c->text)), pad = n < width ? width - n : 0;
    if (n == 0 || width == 0)
        return gap + width + 2;
    fprintf(f, "%*s%s", gap + (right ? pad : 0), "", style_on(c->style, color));
    put_cut(f, c->text, width);
    fputs(c->style ? style_off(color) : "", f);
    return (right ? 0 : pad) + 2;
}

enum { CUT_LAST = 16, CUT_WORDS = 12 }; /* no column is cut below this, at first */

static int total_width(const int w[], int cols) {
    int n = 2 * (cols - 1);
    for (int k = 0; k < cols; k++)
        n += w[k];
    return n;
}

static bool says_nothing(const struct table *t, int col) {
    for (int i = col; i < t->n; i += t->cols)
        if (t->cells[i].text[0] && strcmp(t->cells[i].text, "-") != 0)
            return false;
    return true;
}

/* Takes columns from the last one, then from the widest words, until the table fits; numbers are
 * never cut. */
static void fit(const struct table *t, int width, int w[]) {
    int last = t->cols - 1, over = total_width(w, t->cols) - width;
    if (over > 0 && w[last] > CUT_LAST && !t->right[last])
        w[last] = w[last] - over > CUT_LAST ? w[last] - over : CUT_LAST;
    while (total_width(w, t->cols) > width) {
        int widest = -1;
        for (int k = 0; k < last; k++)
            if (!t->right[k] && w[k] > CUT_WORDS && (widest < 0 || w[k] > w[widest]))
                widest = k;
        if (widest < 0)
            break;
        w[widest]--;
    }
    for (int k = last; k >= 0 && total_width(w, t->cols) > width; k--)
        if (says_nothing(t, k))
            w[k] = LEFT_OUT;
    over = total_width(w, t->cols) - width;
    if (over > 0 && !t->right[last] && w[last] > 0)
        w[last] = w[last] > over ? w[last] - over : 0;
}

static void measure(const struct table *t, int rows, int width, int w[]) {
    for (int k = 0; k < t->cols; k++) {
        w[k] = text_width(t->head[k], strlen(t->head[k]));
        for (int r = 0; r < rows; r++) {
            const char *s = t->cells[r * t->cols + k].text;
            int n = text_width(s, strlen(s));
            w[k] = n > w[k] ? n : w[k];
        }
    }
    if (width > 0)
        fit(t, width, w);
}

void table_print(const struct table *t, FILE *f, int width, bool color) {
    int w[TABLE_COLS_MAX], rows = t->cols ? t->n / t->cols : 0;
    if (rows == 0)
        return;
    measure(t, rows, width, w);
    for (int r = -1; r < rows; r++) {
        int gap = 0;
        for (int k = 0; k < t->cols; k++) {
            struct table_cell head = { t->head[k], STYLE_DIM };
            const struct table_cell *c = r < 0 ? &head : &t->cells[r * t->cols + k];
            gap = put_cell(f, c, w[k], t->right[k], gap, color);
        }
        fputc('\n', f);
    }
}

void table_end(struct table *t) {
    arena_free(&t->arena);
    *t = (struct table){ 0 };
}
