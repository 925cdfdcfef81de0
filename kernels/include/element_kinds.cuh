// The dtypes of fingerprint_full: eight elements as raw words, their values, what is counted of
// them, and their exchange among the eight places.
#pragma once

#include "include/element_common.cuh"
#include "include/element_halves.cuh"

namespace fingerprint {

struct Float32 : Defaults<Float32, 8> {
    static constexpr int kWords = 8, kLevels = 2;
    static constexpr bool kHasMinusZero = true, kWideMagnitude = false;
    static constexpr u32 kMinusZero = 0x80000000u;
    static constexpr bool kExactSquares = true;

    static constexpr u32 kInfinity = 0x7f800000u;

    static __device__ __forceinline__ void scan(u32 (&w)[8], Counts& c, const Job& job) {
        u32 one[1][8];
#pragma unroll
        for (int e = 0; e < 8; ++e) one[0][e] = w[e];
        scan_all(one, c, job);
#pragma unroll
        for (int e = 0; e < 8; ++e) w[e] = one[0][e];
    }
    template <int N>
    static __device__ __forceinline__ void scan_all(u32 (&w)[N][8], Counts& c, const Job&) {
        u32 top = 0;
#pragma unroll
        for (int i = 0; i < N; ++i)
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const u32 magnitude = w[i][e] & 0x7fffffffu;
                top = max(top, magnitude);
                c.nonzero += min(magnitude, 1u);
            }
        if (top >= kInfinity) {
            top = 0;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                Special found = {{w[i][0], w[i][1], w[i][2], w[i][3], w[i][4], w[i][5], w[i][6],
                                  w[i][7]}};
                found = split_special(found);
#pragma unroll
                for (int e = 0; e < 8; ++e) w[i][e] = found.words[e];
                c.nan += found.nan, c.positive_infinite += found.positive_infinite;
                c.negative_infinite += found.negative_infinite, top = max(top, found.top);
            }
        }
        c.largest = max(c.largest, top);
    }

    // As for 16 bits: values in, values out.
    struct Special {
        u32 words[8], nan, positive_infinite, negative_infinite, top;
    };
    static __device__ __noinline__ Special split_special(Special found) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const u32 bits = found.words[e], magnitude = bits & 0x7fffffffu;
            const bool finite = magnitude < kInfinity, is_nan = magnitude > kInfinity;
            found.top = max(found.top, finite ? magnitude : 0);
            found.nan += is_nan;
            found.positive_infinite += !finite && !is_nan && !(bits >> 31);
            found.negative_infinite += !finite && !is_nan && bits >> 31;
            if (!finite) found.words[e] = 0;
        }
        return found;
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

struct Float64 : Defaults<Float64, 16> {
    static constexpr int kWords = 16, kLevels = 1;
    // A void leaf is replaced where it is read.
    static constexpr bool kHasMinusZero = false, kWideMagnitude = true;
    static constexpr u32 kMinusZero = 0;
    static constexpr bool kExactSquares = false;

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

// Whole numbers of 16, 32 or 64 bits, signed or not as the job says.
template <int W>
struct Integers : Defaults<Integers<W>, W> {
    static constexpr int kWords = W, kLevels = W == 4 ? 3 : W == 8 ? 2 : 1;
    static constexpr bool kHasMinusZero = false, kWideMagnitude = true;
    static constexpr u32 kMinusZero = 0;
    static constexpr bool kExactSquares = W == 4;

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
