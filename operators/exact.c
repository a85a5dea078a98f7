#include "operators/exact.h"
#include <assert.h>
#include <math.h>

/* Parts do not overlap, so their exponents are at least 53 apart, of about 2,100 there are. */
enum { PARTS = 64 };

/* Adds x to the expansion of n parts, smallest first; returns the new n. */
static int add_part(double *part, int n, double x) {
    int m = 0;
    for (int i = 0; i < n; i++) {
        double y = part[i];
        if (fabs(x) < fabs(y)) {
            double t = x;
            x = y;
            y = t;
        }
        double hi = x + y, lo = y - (hi - x);
        if (lo != 0)
            part[m++] = lo;
        x = hi;
    }
    assert(m < PARTS);
    part[m++] = x;
    return m;
}

static double sum_expansion(const double *v, int n) {
    double part[PARTS] = { 0 };
    int m = 0;
    for (int i = 0; i < n; i++) {
        m = add_part(part, m, v[i]);
        if (isinf(part[m - 1]))
            return part[m - 1];
    }
    double hi = 0, lo = 0;
    while (m > 0) {
        double x = hi, y = part[--m];
        hi = x + y;
        lo = y - (hi - x);
        if (lo != 0)
            break;
    }
    /* A tie was rounded to even; the parts below tell whether it was one. */
    if (m > 0 && ((lo < 0 && part[m - 1] < 0) || (lo > 0 && part[m - 1] > 0))) {
        double y = lo * 2, x = hi + y;
        if (y == x - hi)
            hi = x;
    }
    return hi;
}

/* Most sums need no expansion: the errors of the additions (D. E. Knuth's TwoSum, exact) are added
 * up beside the sum, and when the sum is the same at both ends of what their own rounding can hide,
 * it is the rounded one (the test of A. Ziv, 1991). */
double exact_sum(const double *v, int n) {
    double sum = n > 0 ? v[0] : 0, error = 0, size = 0;
    for (int i = 1; i < n; i++) {
        double t = sum + v[i], z = t - sum, e = (sum - (t - z)) + (v[i] - z);
        sum = t;
        error += e;
        size += fabs(e);
    }
    double slack = size * (n * 0x1p-52);
    double low = sum + (error - slack), high = sum + (error + slack);
    return low == high && isfinite(low) ? low : sum_expansion(v, n);
}
