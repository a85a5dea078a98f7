#include "tests/unit/harness.h"
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The locale run of the suite: every test program enters the locale of its environment before
 * main, as an application that embeds the engine may do. */
__attribute__((constructor)) static void enter_locale(void) {
    if (!getenv("BRAID_TEST_LOCALE"))
        return;
    setlocale(LC_ALL, "");
    if (strcmp(localeconv()->decimal_point, ",") != 0) {
        fprintf(stderr, "the locale run needs a decimal comma: run `make deps-test`\n");
        exit(99);
    }
}
int test_scale(int n) {
    static long percent;
    if (!percent) {
        const char *s = getenv("BRAID_TEST_SCALE");
        percent = s ? strtol(s, NULL, 10) : 100;
        if (percent < 1)
            percent = 100;
    }
    long scaled = (long)n * percent / 100;
    return scaled > 0 ? (int)scaled : 1;
}
uint64_t test_seed(uint64_t def) {
    const char *s = getenv("BRAID_SEED");
    return s ? strtoull(s, NULL, 0) : def;
}
uint64_t test_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
