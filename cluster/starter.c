#include "cluster/starter.h"
#include <stdio.h>
#include <string.h>

/* A file as it is; the assembler finds it from the top of the repository. */
#define EMBED(symbol, file)                                                                        \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #symbol "\n" #symbol ":\n"                                                  \
            ".incbin \"dataflows/starters/" file "\"\n"                                            \
            ".global " #symbol "_end\n" #symbol "_end:\n"                                          \
            ".previous\n");                                                                        \
    extern const char symbol[], symbol##_end[]

EMBED(starter_clean, "clean.json");
EMBED(starter_clean_test, "clean.test.json");
EMBED(starter_windows, "windows.json");
EMBED(starter_windows_test, "windows.test.json");
EMBED(starter_made_up, "made-up.json");
EMBED(starter_made_up_test, "made-up.test.json");
EMBED(starter_data, "data.json");

const struct starter starters[] = {
    { .name = "clean",
      .summary = "take implausible values out, choose rows, compute fields",
      .flow = starter_clean,
      .flow_end = starter_clean_end,
      .test = starter_clean_test,
      .test_end = starter_clean_test_end,
      .reads = true },
    { .name = "windows",
      .summary = "aggregates by key and minute",
      .flow = starter_windows,
      .flow_end = starter_windows_end,
      .test = starter_windows_test,
      .test_end = starter_windows_test_end,
      .reads = true },
    { .name = "made-up",
      .summary = "without input: rows made of a seed",
      .flow = starter_made_up,
      .flow_end = starter_made_up_end,
      .test = starter_made_up_test,
      .test_end = starter_made_up_test_end },
    { 0 },
};

void starter_text(struct sbuf *out, const struct starter *s, const char *from, const char *end,
                  const char *name) {
    static const char word[] = "starter";
    char file[64];
    size_t wlen = sizeof word - 1,
           flen = (size_t)snprintf(file, sizeof file, "\"%s.json\"", s->name);
    while (from < end) {
        size_t left = (size_t)(end - from);
        /* at the beginning of a string: in a sentence it means itself */
        if (left > wlen && from[0] == '"' && memcmp(from + 1, word, wlen) == 0) {
            sbuf_adds(out, "\"");
            sbuf_adds(out, name);
            from += wlen + 1;
        } else if (left >= flen && memcmp(from, file, flen) == 0) {
            sbuf_printf(out, "\"%s.json\"", name);
            from += flen;
        } else {
            sbuf_add(out, from++, 1);
        }
    }
}
