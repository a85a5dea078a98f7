/* Numbers as unsigned 64-bit words in their order, and back. Of f64, 0 and -0 are one number. Pure.
 */
#ifndef BRAID_OPERATORS_ORDER64_H
#define BRAID_OPERATORS_ORDER64_H
#include <stdint.h>
#include <string.h>

#define ORDER64_SIGN ((uint64_t)1 << 63)
static inline uint64_t order64_i64(int64_t v) {
    return (uint64_t)v ^ ORDER64_SIGN;
}
static inline int64_t order64_to_i64(uint64_t u) {
    return (int64_t)(u ^ ORDER64_SIGN);
}
static inline uint64_t order64_f64(double v) {
    uint64_t u;
    v = v == 0 ? 0 : v;
    memcpy(&u, &v, sizeof u);
    return u & ORDER64_SIGN ? ~u : u | ORDER64_SIGN;
}
static inline double order64_to_f64(uint64_t u) {
    double v;
    u = u & ORDER64_SIGN ? u & ~ORDER64_SIGN : ~u;
    memcpy(&v, &u, sizeof v);
    return v;
}
#endif
