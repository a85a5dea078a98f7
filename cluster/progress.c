#include "cluster/progress.h"
#include "cluster/cli.h"
#include "cluster/table.h"
#include "engine/clock.h"
#include <string.h>
#include <unistd.h>

#define DRAW_NS 100000000ll
#define RATE_NS 1000000000ll
enum { BAR_MAX = 30, BAR_MIN = 10 };

void progress_begin(struct progress *p, const char *title, int64_t total, bool quiet) {
    *p = (struct progress){ .title = title,
                            .total = total,
                            .on = !quiet && term_is(STDERR_FILENO),
                            .color = term_color(STDERR_FILENO),
                            .start_ns = clock_mono_ns() };
    p->mark_ns = p->start_ns;
}

/* Rates over the last second or more; from the start at first. */
static void measure(struct progress *p, int64_t now, int64_t records, int64_t bytes) {
    double s = (double)(now - p->mark_ns) / 1e9;
    if (s <= 0 || (now - p->mark_ns < RATE_NS && p->mark_ns != p->start_ns))
        return;
    p->rate = (double)(records - p->mark_records) / s;
    p->byte_rate = (double)(bytes - p->mark_bytes) / s;
    if (now - p->mark_ns >= RATE_NS) {
        p->mark_ns = now;
        p->mark_records = records;
        p->mark_bytes = bytes;
    }
}

/* "━━━━━━╸     " in eighths would need a font for it: whole cells do. */
static int draw_bar(char *out, size_t size, double part, int cells, bool color) {
    int full = (int)(part * cells + 0.5), n = 0;
    n += snprintf(out, size, "%s", style_on(STYLE_GREEN, color));
    for (int i = 0; i < full; i++)
        n += snprintf(out + n, size - (size_t)n, "━");
    n += snprintf(out + n, size - (size_t)n, "%s%s", style_off(color), style_on(STYLE_DIM, color));
    for (int i = full; i < cells; i++)
        n += snprintf(out + n, size - (size_t)n, "─");
    return n + snprintf(out + n, size - (size_t)n, "%s", style_off(color));
}

enum { PARTS = 5, PART_MAX = 64 };

/* What stands behind the bar, in this order; "" is left out. */
static void make_parts(const struct progress *p, int64_t records, int64_t behind_ms,
                       char part[PARTS][PART_MAX]) {
    char unit[UNIT_MAX];
    memset(part, 0, PARTS * PART_MAX);
    snprintf(part[0], PART_MAX, "%s records", unit_exact(unit, (uint64_t)records));
    snprintf(part[1], PART_MAX, "%s/s", unit_count(unit, p->rate));
    snprintf(part[2], PART_MAX, "%s/s", unit_bytes(unit, p->byte_rate));
    if (behind_ms >= 0)
        snprintf(part[3], PART_MAX, "lag %s", unit_ms(unit, behind_ms));
    if (records < p->total && p->rate > 0)
        snprintf(part[4], PART_MAX, "%s left",
                 unit_span(unit, (double)(p->total - records) / p->rate));
}

static int parts_width(char part[PARTS][PART_MAX]) {
    int n = 0;
    for (int i = 0; i < PARTS; i++)
        n += part[i][0] ? 2 + (int)strlen(part[i]) : 0;
    return n;
}

/* On a narrow terminal parts go, the least telling first, so that the bar stays. */
static int fit_parts(char part[PARTS][PART_MAX], int room) {
    static const int first_to_go[PARTS] = { 2, 3, 0, 1, 4 };
    for (int i = 0; i < PARTS && parts_width(part) > room; i++)
        part[first_to_go[i]][0] = '\0';
    return parts_width(part);
}

static void draw(struct progress *p, int64_t records, int64_t behind_ms) {
    enum { PERCENT = 8 }; /* "  " before the bar, " 100 %" behind it */
    char part[PARTS][PART_MAX], bar[512] = "";
    double done = p->total > 0 ? (double)records / (double)p->total : -1;
    int width = term_width(STDERR_FILENO) - 1, title = text_width(p->title, strlen(p->title));
    int shown = title < width - BAR_MIN - PERCENT ? title : width - BAR_MIN - PERCENT;
    int room = width - shown, least = done >= 0 ? BAR_MIN + PERCENT : 0;
    make_parts(p, records, behind_ms, part);
    int cells = room - fit_parts(part, room - least) - PERCENT;
    if (done >= 0) {
        done = done > 1 ? 1 : done;
        cells = cells > BAR_MAX ? BAR_MAX : cells;
        int n = draw_bar(bar, sizeof bar, done, cells, p->color);
        snprintf(bar + n, sizeof bar - (size_t)n, " %3d %%", (int)(done * 100));
    }
    fprintf(stderr, "\r%.*s%s%s", text_cut(p->title, shown), p->title, done >= 0 ? "  " : "", bar);
    for (int i = 0; i < PARTS; i++)
        fprintf(stderr, "%s%s", part[i][0] ? "  " : "", part[i]);
    fputs("\33[K", stderr);
    fflush(stderr);
}

void progress_update(struct progress *p, int64_t records, int64_t bytes, int64_t behind_ms) {
    if (!p->on)
        return;
    int64_t now = clock_mono_ns();
    if (now - p->drawn_ns < DRAW_NS)
        return;
    p->drawn_ns = now;
    measure(p, now, records, bytes);
    draw(p, records, behind_ms);
}

void progress_say(struct progress *p, const char *text) {
    if (!p->on)
        return;
    int width = term_width(STDERR_FILENO) - 1, title = text_cut(p->title, width / 2);
    fprintf(stderr, "\r%.*s  %s%.*s%s\33[K", title, p->title, style_on(STYLE_YELLOW, p->color),
            text_cut(text, width - 2 - text_width(p->title, (size_t)title)), text,
            style_off(p->color));
    fflush(stderr);
    p->drawn_ns = clock_mono_ns();
}

void progress_end(struct progress *p) {
    if (p->on && p->drawn_ns)
        fputs("\r\33[K", stderr);
}
