/* The only place that asks for the time, so that tests can stop it. Any thread. */
#ifndef BRAID_CLOCK_H
#define BRAID_CLOCK_H
#include <stdint.h>

int64_t clock_wall_ms(void); /* ms since 1970, UTC */
int64_t clock_mono_ns(void); /* ns since some start; never goes back */
/* Freezes clock_wall_ms at `ms` (tests, `run --now`); INT64_MIN: real time again. */
void clock_freeze(int64_t ms);
#endif
