// The tree of docs/digests.md inside a block: its levels, and the sums over the slots of a row.
#pragma once

#include "include/digest_tiles.cuh"
#include "include/element_kinds.cuh"
#include "include/fingerprint.cuh"

namespace fingerprint {

constexpr int kStack = 5;        // levels of the walk beyond those in registers
constexpr int kPlaces = 16;      // elements of a group; buckets of a sketch
constexpr int kMostLevels = 32;  // of a tree
constexpr int kPitch = kPlaces + 1;  // doubles from one slot to the next: no two lanes share a bank

struct SummaryShared {
    Job job;
    int level_terms[kMostLevels], levels;
    double grid[kWarps * 16 * kPitch];
    double tops[kWarps * 2 * kPlaces];
    u64 digest[kWarps];
    Counts counts[kWarps];
    long long row_at[kTall];
    u64 part[kWarps][kTall];
};

struct Eight {
    double at[8];
};

// Sums of this lane's eight places over one subtree.
struct Partial {
    Eight sketch, sum, squares;

    __device__ __forceinline__ void add(const Partial& left) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            sketch.at[e] = __dadd_rn(left.sketch.at[e], sketch.at[e]);
            sum.at[e] = __dadd_rn(left.sum.at[e], sum.at[e]);
            squares.at[e] = __dadd_rn(left.squares.at[e], squares.at[e]);
        }
    }
};

// Sum of 2^kDepth terms by halving: (i, i + 2^(kDepth - 1)) first.
template <int kCount>
__device__ __forceinline__ double tree_sum(double (&term)[kCount]) {
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) term[i] = __dadd_rn(term[i], term[i + half]);
    return term[0];
}

// The same of the squares. Where squares are exact, the first addition is fused with them: that
// rounds once, as the addition does.
template <bool kExact, int kCount>
__device__ __forceinline__ double square_sum(const double (&value)[kCount]) {
    if constexpr (kExact && kCount > 1) {
        double pair[kCount / 2];
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i)
            pair[i] = __fma_rn(value[i + kCount / 2], value[i + kCount / 2],
                               __dmul_rn(value[i], value[i]));
        return tree_sum(pair);
    } else {
        double square[kCount];
#pragma unroll
        for (int i = 0; i < kCount; ++i) square[i] = __dmul_rn(value[i], value[i]);
        return tree_sum(square);
    }
}

__device__ __forceinline__ double minus_zero() { return __hiloint2double((int)0x80000000u, 0); }

// The tree over the slots of one row: each lane of the row's first warp gets the total of place
// lane & 15. 1 << shift warps share a row.
__device__ __forceinline__ double add_slots(SummaryShared& s, const Eight& mine, int position,
                                            bool active, int shift) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, across = 1 << shift;
    const int base = (warp & -across) * 16, inside = (warp & (across - 1)) * 32 + lane;
    if (active) {
        double* to = s.grid + (base + position) * kPitch + (lane & 1) * 8;
#pragma unroll
        for (int e = 0; e < 8; ++e) to[e] = mine.at[e];
    }
    if (across > 1) __syncthreads();
    else __syncwarp();
    const int place = inside & 15, part = inside >> 4;
    double term[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        term[i] = s.grid[(base + part + 2 * across * i) * kPitch + place];
    double total = tree_sum(term);
    if (across > 1) {
        double* tops = s.tops + (warp & -across) * 32;
        tops[part * kPlaces + place] = total;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            term[i] = i < across ? tops[((lane >> 4) + 2 * i) * kPlaces + place] : minus_zero();
        total = tree_sum(term);
        __syncthreads();
    } else {
        __syncwarp();
    }
    return __dadd_rn(total, __shfl_xor_sync(0xffffffffu, total, 16));
}

__device__ __forceinline__ double add_places(double value) {
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2)
        value = __dadd_rn(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
}

__device__ __forceinline__ u32 add_lanes(u32 value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

template <bool kWideMagnitude>
__device__ __forceinline__ Counts add_counts(Counts c) {
    c.nonzero = add_lanes(c.nonzero);
    const bool special = c.nan | c.positive_infinite | c.negative_infinite;
    if (__any_sync(0xffffffffu, special)) {
        c.nan = add_lanes(c.nan);
        c.positive_infinite = add_lanes(c.positive_infinite);
        c.negative_infinite = add_lanes(c.negative_infinite);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        if constexpr (kWideMagnitude)
            c.largest_wide =
                max(c.largest_wide, __shfl_xor_sync(0xffffffffu, c.largest_wide, mask));
        else
            c.largest = max(c.largest, __shfl_xor_sync(0xffffffffu, c.largest, mask));
    }
    return c;
}

// Terms of the tree's levels, up to the first with at most `slots`.
__device__ __forceinline__ void plan_levels(SummaryShared& s, int groups, int slots) {
    int level = 0;
    s.level_terms[0] = groups;
    while (s.level_terms[level] > slots) {
        const int n = s.level_terms[level];
        s.level_terms[++level] = (n + 1) / 2;
    }
    s.levels = level;
}

// Where a slot stands among 16 * across (a power of two) so that plain halving pairs what the tree
// pairs.
__device__ __forceinline__ int slot_position(int slot, int terms, int slots) {
    int position = 0;
    for (int bit = slots / 2; bit > 0; bit /= 2) {
        const int half = (terms + 1) / 2;
        if (slot >= half) position += bit, slot -= half;
        terms = half;
    }
    return position;
}

}  // namespace fingerprint
