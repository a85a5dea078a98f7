/* Sums of doubles, exactly rounded: order does not matter. J. R. Shewchuk, "Adaptive precision
 * floating-point arithmetic and fast robust geometric predicates" (1997), section 2.4; rounding of
 * the final expansion as in R. Hettinger's fsum for Python. ~2 ns a value, ~10 ns when the errors
 * matter. Pure. */
#ifndef BRAID_OPERATORS_EXACT_H
#define BRAID_OPERATORS_EXACT_H

/* The sum of v[0..n) rounded once. Infinite when it or a partial sum overflows; finite inputs only.
 */
double exact_sum(const double *v, int n);
#endif
