/* The harness itself: the locale run must really change how libc prints and when a day begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/harness.h"
#include <cmocka.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void locale_is_as_asked(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%.1f", 1.5);
    bool german = getenv("BRAID_TEST_LOCALE") != NULL;
    assert_string_equal(localeconv()->decimal_point, german ? "," : ".");
    assert_string_equal(text, german ? "1,5" : "1.5");
}
static void zone_is_as_asked(void **state) {
    (void)state;
    if (!getenv("BRAID_TEST_LOCALE"))
        return;
    struct tm tm;
    time_t epoch = 1000000000;
    localtime_r(&epoch, &tm);
    assert_int_equal(tm.tm_gmtoff, 5 * 3600 + 45 * 60);
}
static void scale_never_reaches_zero(void **state) {
    (void)state;
    assert_int_equal(test_scale(1), 1);
    assert_in_range(test_scale(1000), 1, 1000000);
}
static void random_is_splitmix64(void **state) {
    (void)state; /* first values of the reference implementation for seed 1234567 */
    uint64_t s = 1234567;
    assert_true(test_random(&s) == 6457827717110365317u);
    assert_true(test_random(&s) == 3203168211198807973u);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locale_is_as_asked),
        cmocka_unit_test(zone_is_as_asked),
        cmocka_unit_test(scale_never_reaches_zero),
        cmocka_unit_test(random_is_splitmix64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
