/* Tables and quantities for people: aligned columns under a dim heading, numbers with the few
 * digits that matter. Widths count UTF-8 code points. One thread. */
#ifndef BRAID_TABLE_H
#define BRAID_TABLE_H
#include "engine/arena.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLS_MAX = 16 };
enum style { STYLE_PLAIN, STYLE_BOLD, STYLE_DIM, STYLE_RED, STYLE_GREEN, STYLE_YELLOW, STYLE_CYAN };

struct table_cell {
    const char *text;
    enum style style;
};
struct table {
    struct arena arena;
    int cols;
    const char *head[TABLE_COLS_MAX];
    bool right[TABLE_COLS_MAX];
    struct table_cell *cells;
    int n, cap;
};
/* The columns' headings with their alignment: "<name|>rows" is a word and a number. */
void table_begin(struct table *t, const char *heads);
/* The next cell, row by row; the text is copied. */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_style(struct table *t, enum style s); /* of the last cell */
/* Prints what fits into `width` columns (0: all): the last column is cut first, then other words,
 * never numbers; if that is not enough, columns that are empty or "-" in all rows are left out.
 * Nothing is printed, not even the heading, when there are no rows. */
void table_print(const struct table *t, FILE *f, int width, bool color);
void table_end(struct table *t);

/* Escape sequence of a style; "" without colour. */
const char *style_on(enum style s, bool color);
const char *style_off(bool color);

/* Quantities into `buf` (UNIT_MAX bytes), returned. Three significant digits, SI prefixes:
 * "0" "999" "12.3 k" "4.56 M"; bytes "12.3 MB"; rates are counts. */
enum { UNIT_MAX = 32 };
const char *unit_count(char *buf, double v);
const char *unit_bytes(char *buf, double v);
const char *unit_ns(char *buf, double ns);            /* "8 ns" "12.3 ns" "4.56 us" "3.00 s" */
const char *unit_ms(char *buf, int64_t ms);           /* whole ones: "0 ms" "53 ms" "3.00 s" */
const char *unit_exact(char *buf, uint64_t v);        /* 1234567 -> "1,234,567" */
const char *unit_span(char *buf, double seconds);     /* "0.4 s" "12 s" "3:07" "2:03:07" */
const char *unit_percent(char *buf, double fraction); /* "12.3 %" */

int text_width(const char *s, size_t len); /* code points, without escape sequences */
int text_cut(const char *s, int width);    /* bytes of the first `width` code points */
#endif
