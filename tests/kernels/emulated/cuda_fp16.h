// The few float16 operations of the fingerprint kernels; sums are small whole numbers there.
#pragma once

#include <cmath>

struct __half2 {
    unsigned short x, y;
};

inline double half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}
inline unsigned short half_of_number(float value) {  // whole, below 2048
    if (value == 0) return 0;
    int exponent;
    const float part = frexpf(value, &exponent);
    return (unsigned short)((exponent + 14) << 10 | ((int)(part * 2048) - 1024));
}
inline __half2 __float2half2_rn(float value) {
    return {half_of_number(value), half_of_number(value)};
}
inline float __low2float(__half2 a) { return (float)half_value(a.x); }
inline float __high2float(__half2 a) { return (float)half_value(a.y); }
inline __half2 __hadd2(__half2 a, __half2 b) {
    return {half_of_number(__low2float(a) + __low2float(b)),
            half_of_number(__high2float(a) + __high2float(b))};
}
inline __half2 __hneu2(__half2 a, __half2 b) {  // true for NaN
    return {half_of_number(!(__low2float(a) == __low2float(b))),
            half_of_number(!(__high2float(a) == __high2float(b)))};
}
