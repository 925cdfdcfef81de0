// What the dtypes of fingerprint_full share: counts, and the exchange of elements among the eight
// places of a unit.
#pragma once

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

// What a kind takes from here unless it has its own.
template <class K, int W>
struct Defaults {
    static constexpr int kRead = W;               // words in memory
    static constexpr bool kNegatesWords = false;  // signs go into the words, not into the values

    static __device__ __forceinline__ void take(const u32 (&raw)[W], u32 (&w)[W], const Job&) {
#pragma unroll
        for (int q = 0; q < W; ++q) w[q] = raw[q];
    }

    static __device__ __forceinline__ void negate(u32 (&)[W], u32) {}
    // Many units at once.
    template <int N>
    static __device__ __forceinline__ void scan_all(u32 (&w)[N][W], Counts& c, const Job& job) {
#pragma unroll
        for (int i = 0; i < N; ++i) K::scan(w[i], c, job);
    }
};

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

}  // namespace fingerprint
