#include "operators/mean.h"
#include "engine/xsum.h"
#include <math.h>

static double mean_long(const double *v, int n) {
    struct xbig sum = { 0 };
    for (int i = 0; i < n; i++)
        xbig_add(&sum, v[i]);
    return xbig_mean(&sum, (uint64_t)n);
}

/* Usually doubles suffice: the sum with the exact errors of its additions beside it (D. E. Knuth's
 * TwoSum), the quotient with its exact remainder (fma). What these leave uncertain is bounded; when
 * both ends of it round to one double, that is the mean (the test of A. Ziv, 1991). */
double mean_exact(const double *v, int n) {
    double sum = v[0], error = 0, size = 0;
    for (int i = 1; i < n; i++) {
        double t = sum + v[i], z = t - sum, e = (sum - (t - z)) + (v[i] - z);
        sum = t;
        error += e;
        size += fabs(e);
    }
    if (sum == 0 && size == 0)
        return 0;
    double q = sum / n, rest = fma(-q, n, sum) + error;
    /* Rounding of `error`, of `rest`, and below of the division and of the bounds themselves. */
    double slack = size * (n * 0x1p-52) + fabs(rest) * 0x1p-50;
    double low = q + (rest - slack) / n, high = q + (rest + slack) / n;
    bool safe = fabs(q) > 0x1p-900 && isfinite(high); /* below, the slack may vanish */
    return safe && low == high ? low : mean_long(v, n);
}
