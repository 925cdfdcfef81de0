// Dtypes of 16 bits in floating point, and those of one byte, whose values are taken as float16.
#pragma once

#include <cuda_fp16.h>

#include "include/element_common.cuh"

namespace fingerprint {

// Floats of 16 bits with `kInfinity` as the bits of +Inf.
template <u32 kInfinity>
struct Halves {
    static constexpr int kWords = 4, kRead = 4, kLevels = 3;
    static constexpr bool kHasMinusZero = true, kWideMagnitude = false;
    static constexpr u32 kMinusZero = 0x80008000u;
    static constexpr bool kNegatesWords = true;
    static constexpr bool kExactSquares = true;  // in float64

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
        if (top >= kInfinity) top = make_finite(w, c);
        c.largest = max(c.largest, top);
    }
    static __device__ __forceinline__ u32 make_finite(u32 (&w)[4], Counts& c) {
        const Special found = split_special(w[0], w[1], w[2], w[3]);
#pragma unroll
        for (int q = 0; q < 4; ++q) w[q] = found.words[q];
        c.nan += found.nan, c.positive_infinite += found.positive_infinite;
        c.negative_infinite += found.negative_infinite;
        return found.top;
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

    static __device__ __forceinline__ void take(const u32 (&raw)[4], u32 (&w)[4], const Job&) {
#pragma unroll
        for (int q = 0; q < 4; ++q) w[q] = raw[q];
    }
    // Counts all units before it asks whether any holds what is not finite.
    template <int N>
    static __device__ __forceinline__ void scan_all(u32 (&w)[N][4], Counts& c, const Job&) {
        u32 largest = 0;
        __half2 nonzero = __float2half2_rn(0);
#pragma unroll
        for (int i = 0; i < N; ++i)
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                largest = __vmaxu2(largest, w[i][q] & 0x7fff7fffu);
                // Bits are zero as a float16 of either sign exactly where they are in bfloat16.
                nonzero = __hadd2(nonzero, __hneu2(reinterpret_cast<const __half2&>(w[i][q]),
                                                   __float2half2_rn(0)));
            }
        u32 top = max(largest & 0xffff, largest >> 16);
        if (top >= kInfinity) {
            top = 0;
#pragma unroll
            for (int i = 0; i < N; ++i) top = max(top, make_finite(w[i], c));
        }
        c.nonzero += (u32)(__low2float(nonzero) + __high2float(nonzero));
        c.largest = max(c.largest, top);
    }

    static __device__ __forceinline__ void permute(u32 (&w)[4], int rotation) {
        permute_halves(w, rotation);
    }
    static __device__ __forceinline__ void negate(u32 (&w)[4], u32 signs) {
        const u32 apart = signs | signs << 12;  // bits q and q + 16 for word q
#pragma unroll
        for (int q = 0; q < 4; ++q) w[q] ^= (apart << (15 - q)) & 0x80008000u;
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
    static __device__ __forceinline__ double value(const u32 (&w)[4], int e, const Job&) {
        return widen_half(half_of(w[e / 2], e & 1));
    }
    static __device__ __forceinline__ double largest(const Counts& c) { return widen_half(c.largest); }
};

// One-byte dtypes: a table holds the value of each code as float16, which has them all exactly.
// Code 0 is +0 in all of them.
struct Bytes : Float16 {
    static constexpr int kRead = 2;

    static __device__ __forceinline__ void take(const u32 (&raw)[2], u32 (&w)[4], const Job& job) {
        u32 half[8];
#pragma unroll
        for (int e = 0; e < 8; ++e)
            half[e] = __ldg(job.codes + ((raw[e / 4] >> (8 * (e & 3))) & 0xff));
#pragma unroll
        for (int q = 0; q < 4; ++q) w[q] = __byte_perm(half[2 * q], half[2 * q + 1], 0x5410);
    }
};

}  // namespace fingerprint
