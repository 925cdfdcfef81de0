// The dtypes of fingerprint_full: eight elements as raw words, their values, what is counted of
// them, and their exchange among the eight places.
#pragma once

#include <cuda_fp16.h>

#include "include/fingerprint.cuh"

namespace fingerprint {

struct Counts {
    u32 nonzero, nan, positive_infinite, negative_infinite;
    u32 largest;       // magnitude as the bits of the dtype
    u64 largest_wide;  // magnitude as the bits of a float64, for dtypes of 32 bits and more

    __device__ __forceinline__ void count_special(bool is_nan, bool negative) {
        nan += is_nan;
        positive_infinite += !is_nan && !negative;
        negative_infinite += !is_nan && negative;
    }
};

__device__ __forceinline__ void exchange(bool swap, u32& a, u32& b) {
    const u32 x = swap ? b : a, y = swap ? a : b;
    a = x, b = y;
}

// Element at place e goes to place e ^ rotation, for words of 1 << kShift words an element.
template <int W, int kShift>
__device__ __forceinline__ void permute_words(u32 (&w)[W], int rotation) {
#pragma unroll
    for (int bit = 1; bit < (W >> kShift); bit *= 2)
#pragma unroll
        for (int q = 0; q < W; ++q)
            if (!((q >> kShift) & bit))
                exchange(rotation & bit, w[q], w[q + (bit << kShift)]);
}

// Two elements a word.
template <int W>
__device__ __forceinline__ void permute_halves(u32 (&w)[W], int rotation) {
    const u32 selector = rotation & 1 ? 0x1032 : 0x3210;
#pragma unroll
    for (int q = 0; q < W; ++q) w[q] = __byte_perm(w[q], 0, selector);
    permute_words<W, 0>(w, rotation >> 1);
}

__device__ __forceinline__ u32 half_of(u32 word, int which) {
    return which ? word >> 16 : word & 0xffff;
}

// Floats of 16 bits with `kInfinity` as the bits of +Inf.
template <u32 kInfinity>
struct Halves {
    static constexpr int kWords = 4, kLevels = 3;
    static constexpr bool kHasMinusZero = true, kWideMagnitude = false;
    static constexpr u32 kMinusZero = 0x80008000u;

    static __device__ __forceinline__ void scan(u32 (&w)[4], Counts& c, const Job&) {
        u32 largest = 0, nonzero = 0;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const u32 magnitude = w[q] & 0x7fff7fffu;
            largest = __vmaxu2(largest, magnitude);
            nonzero += ((magnitude + 0x7fff7fffu) >> 15) & 0x00010001u;
        }
        c.nonzero += (nonzero & 0xffff) + (nonzero >> 16);
        u32 top = max(largest & 0xffff, largest >> 16);
        if (top >= kInfinity) {
            const Special found = split_special(w[0], w[1], w[2], w[3]);
#pragma unroll
            for (int q = 0; q < 4; ++q) w[q] = found.words[q];
            c.nan += found.nan, c.positive_infinite += found.positive_infinite;
            c.negative_infinite += found.negative_infinite, top = found.top;
        }
        c.largest = max(c.largest, top);
    }

    // What is not finite is counted and becomes +0. Values in, values out: a reference would push
    // the words of every row into memory.
    struct Special {
        u32 words[4], nan, positive_infinite, negative_infinite, top;
    };
    static __device__ __noinline__ Special split_special(u32 w0, u32 w1, u32 w2, u32 w3) {
        Special found = {{w0, w1, w2, w3}, 0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u32 bits = half_of(found.words[e / 2], e & 1), magnitude = bits & 0x7fff;
            const bool finite = magnitude < kInfinity, is_nan = magnitude > kInfinity;
            found.top = max(found.top, finite ? magnitude : 0);
            found.nan += is_nan;
            found.positive_infinite += !finite && !is_nan && !(bits >> 15);
            found.negative_infinite += !finite && !is_nan && bits >> 15;
            if (!finite) found.words[e / 2] &= e & 1 ? 0x0000ffffu : 0xffff0000u;
        }
        return found;
    }

    static __device__ __forceinline__ void permute(u32 (&w)[4], int rotation) {
        permute_halves(w, rotation);
    }
};

struct Bfloat16 : Halves<0x7f80> {
    static __device__ __forceinline__ double value(const u32 (&w)[4], int e, const Job&) {
        return __uint_as_float(e & 1 ? w[e / 2] & 0xffff0000u : w[e / 2] << 16);
    }
    static __device__ __forceinline__ double largest(const Counts& c) {
        return __uint_as_float(c.largest << 16);
    }
};

struct Float16 : Halves<0x7c00> {
    static __device__ __forceinline__ double widen(u32 bits) {
        return __half2float(__ushort_as_half((unsigned short)bits));
    }
    static __device__ __forceinline__ double value(const u32 (&w)[4], int e, const Job&) {
        return widen(half_of(w[e / 2], e & 1));
    }
    static __device__ __forceinline__ double largest(const Counts& c) { return widen(c.largest); }
};

struct Float32 {
    static constexpr int kWords = 8, kLevels = 2;
    static constexpr bool kHasMinusZero = true, kWideMagnitude = false;
    static constexpr u32 kMinusZero = 0x80000000u;

    static __device__ __forceinline__ void scan(u32 (&w)[8], Counts& c, const Job&) {
        u32 top = 0;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u32 magnitude = w[e] & 0x7fffffffu;
            top = max(top, magnitude);
            c.nonzero += magnitude != 0;
        }
        if (top >= 0x7f800000u) {
            top = 0;
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const u32 magnitude = w[e] & 0x7fffffffu;
                if (magnitude < 0x7f800000u) {
                    top = max(top, magnitude);
                } else {
                    c.count_special(magnitude > 0x7f800000u, w[e] >> 31);
                    w[e] = 0;
                }
            }
        }
        c.largest = max(c.largest, top);
    }
    static __device__ __forceinline__ double value(const u32 (&w)[8], int e, const Job&) {
        return __uint_as_float(w[e]);
    }
    static __device__ __forceinline__ double largest(const Counts& c) {
        return __uint_as_float(c.largest);
    }
    static __device__ __forceinline__ void permute(u32 (&w)[8], int rotation) {
        permute_words<8, 0>(w, rotation);
    }
};

struct Float64 {
    static constexpr int kWords = 16, kLevels = 1;
    // A void leaf is replaced where it is read.
    static constexpr bool kHasMinusZero = false, kWideMagnitude = true;
    static constexpr u32 kMinusZero = 0;

    static __device__ __forceinline__ void scan(u32 (&w)[16], Counts& c, const Job&) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u32 high = w[2 * e + 1] & 0x7fffffffu;
            const u64 magnitude = (u64)high << 32 | w[2 * e];
            c.nonzero += magnitude != 0;
            if (high < 0x7ff00000u) {
                c.largest_wide = max(c.largest_wide, magnitude);
            } else {
                c.count_special(magnitude > 0x7ff0000000000000ull, w[2 * e + 1] >> 31);
                w[2 * e] = w[2 * e + 1] = 0;
            }
        }
    }
    static __device__ __forceinline__ double value(const u32 (&w)[16], int e, const Job&) {
        return __hiloint2double((int)w[2 * e + 1], (int)w[2 * e]);
    }
    static __device__ __forceinline__ double largest(const Counts& c) {
        return __longlong_as_double((long long)c.largest_wide);
    }
    static __device__ __forceinline__ void permute(u32 (&w)[16], int rotation) {
        permute_words<16, 1>(w, rotation);
    }
};

// One-byte dtypes by their table of 256 values; code 0 is +0 in all of them.
struct Bytes {
    static constexpr int kWords = 2, kLevels = 3;
    static constexpr bool kHasMinusZero = false, kWideMagnitude = false;
    static constexpr u32 kMinusZero = 0;

    static __device__ __forceinline__ float code(const u32 (&w)[2], int e, const Job& job) {
        return __ldg(job.codes + ((w[e / 4] >> (8 * (e & 3))) & 0xff));
    }
    static __device__ __forceinline__ void scan(u32 (&w)[2], Counts& c, const Job& job) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u32 bits = __float_as_uint(code(w, e, job)), magnitude = bits & 0x7fffffffu;
            c.nonzero += magnitude != 0;
            if (magnitude < 0x7f800000u) {
                c.largest = max(c.largest, magnitude);
            } else {
                c.count_special(magnitude > 0x7f800000u, bits >> 31);
                w[e / 4] &= ~(0xffu << (8 * (e & 3)));
            }
        }
    }
    static __device__ __forceinline__ double value(const u32 (&w)[2], int e, const Job& job) {
        return code(w, e, job);
    }
    static __device__ __forceinline__ double largest(const Counts& c) {
        return __uint_as_float(c.largest);
    }
    static __device__ __forceinline__ void permute(u32 (&w)[2], int rotation) {
        const int low = rotation & 3;
        const u32 selector = low == 0 ? 0x3210 : low == 1 ? 0x2301 : low == 2 ? 0x1032 : 0x0123;
#pragma unroll
        for (int q = 0; q < 2; ++q) w[q] = __byte_perm(w[q], 0, selector);
        exchange(rotation & 4, w[0], w[1]);
    }
};

// Whole numbers of 16, 32 or 64 bits, signed or not as the job says.
template <int W>
struct Integers {
    static constexpr int kWords = W, kLevels = W == 4 ? 3 : W == 8 ? 2 : 1;
    static constexpr bool kHasMinusZero = false, kWideMagnitude = true;
    static constexpr u32 kMinusZero = 0;

    static __device__ __forceinline__ double value(const u32 (&w)[W], int e, const Job& job) {
        const bool sign_less =
            job.kind == kUint16 || job.kind == kUint32 || job.kind == kUint64;
        if constexpr (W == 4) {
            const u32 bits = half_of(w[e / 2], e & 1);
            return sign_less ? (double)bits : (double)(short)bits;
        } else if constexpr (W == 8) {
            return sign_less ? (double)w[e] : (double)(int)w[e];
        } else {
            const u64 bits = (u64)w[2 * e + 1] << 32 | w[2 * e];
            return sign_less ? __ull2double_rn(bits) : __ll2double_rn((long long)bits);
        }
    }
    static __device__ __forceinline__ void scan(u32 (&w)[W], Counts& c, const Job& job) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u64 magnitude = (u64)__double_as_longlong(fabs(value(w, e, job)));
            c.nonzero += magnitude != 0;
            c.largest_wide = max(c.largest_wide, magnitude);
        }
    }
    static __device__ __forceinline__ double largest(const Counts& c) {
        return __longlong_as_double((long long)c.largest_wide);
    }
    static __device__ __forceinline__ void permute(u32 (&w)[W], int rotation) {
        if constexpr (W == 4) permute_halves(w, rotation);
        else permute_words<W, (W == 16)>(w, rotation);
    }
};

typedef Integers<4> Integers16;
typedef Integers<8> Integers32;
typedef Integers<16> Integers64;

}  // namespace fingerprint
