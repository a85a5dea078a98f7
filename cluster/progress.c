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

static void draw(struct progress *p, int64_t records, int64_t behind_ms) {
    char tail[256], bar[512] = "", a[UNIT_MAX], b[UNIT_MAX], c[UNIT_MAX], d[UNIT_MAX],
                    left[64] = "";
    double part = p->total > 0 ? (double)records / (double)p->total : -1;
    if (part >= 0 && part < 1 && p->rate > 0)
        snprintf(left, sizeof left, "  %s left",
                 unit_span(d, (double)(p->total - records) / p->rate));
    int n = snprintf(tail, sizeof tail, "%s records  %s/s  %s/s", unit_exact(a, (uint64_t)records),
                     unit_count(b, p->rate), unit_bytes(c, p->byte_rate));
    if (behind_ms >= 0)
        n += snprintf(tail + n, sizeof tail - (size_t)n, "  lag %s",
                      unit_ns(d, (double)behind_ms * 1e6));
    snprintf(tail + n, sizeof tail - (size_t)n, "%s", left);
    int used = text_width(tail, strlen(tail)) + text_width(p->title, strlen(p->title)) + 4 + 8;
    int cells = term_width(STDERR_FILENO) - used;
    cells = cells > BAR_MAX ? BAR_MAX : cells;
    if (part >= 0 && cells >= BAR_MIN) {
        part = part > 1 ? 1 : part;
        n = draw_bar(bar, sizeof bar, part, cells, p->color);
        snprintf(bar + n, sizeof bar - (size_t)n, " %3d %%  ", (int)(part * 100));
    }
    fprintf(stderr, "\r%s  %s%s\33[K", p->title, bar, tail);
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
    fprintf(stderr, "\r%s  %s%s%s\33[K", p->title, style_on(STYLE_YELLOW, p->color), text,
            style_off(p->color));
    fflush(stderr);
    p->drawn_ns = clock_mono_ns();
}

void progress_end(struct progress *p) {
    if (p->on && p->drawn_ns)
        fputs("\r\33[K", stderr);
}
