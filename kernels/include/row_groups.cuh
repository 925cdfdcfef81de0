// The groups of a row that a lane pair holds in registers: read, digested, counted, and added over
// the lowest levels of the tree.
#pragma once

#include "include/element_kinds.cuh"
#include "include/row_tree.cuh"

namespace fingerprint {

struct RowPlace {
    const char* data;
    char* words;              // the row in the row matrix, or null
    int lead, lead_lanes;     // places and lanes before the first element
    long long first_group, first_unit;  // of the tables
};

// 2^kLevels groups as words, and their lines of the sketch's plan. kPlain: the row is contiguous
// and aligned, not stored, and all levels in registers have even numbers of terms: every group that
// the tree asks for is there, `top` groups from the one before. From sm_80 on such rows are digested
// by include/digest_tiles.cuh.
template <class K, int kLevels, bool kPlain = false>
struct Groups {
    static constexpr int kLeaves = 1 << kLevels, W = K::kWords, R = K::kRead;
    static constexpr int kLaneBytes = R < 8 ? R / 2 : 4, kUnitLanes = R < 16 ? 8 : 16;
    u32 words[kLeaves][W], line[kLeaves];
    bool live[kLeaves];

    __device__ __forceinline__ void read_plain(const SummaryShared& s, const RowPlace& row,
                                               const Tables& t, int slot, bool valid, Sum& digest,
                                               Counts& counts) {
        const u32 top = (u32)s.level_terms[kLevels], half = threadIdx.x & 1;
        const u32 first = valid ? (u32)slot : 0;
        const char* from = row.data + (size_t)(2 * first + half) * (R * 4);
        const u32* plan = t.plan + row.first_group + first;
        u32 raw[kLeaves][R];
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) {
            live[leaf] = true;
            load_words<R>(from + (size_t)(leaf * top) * (R * 8), raw[leaf]);
            line[leaf] = __ldg(plan + leaf * top);
        }
        const long long unit = row.first_unit + (long long)(2 * first + half) * (kUnitLanes / 8);
        if constexpr (!kHasTiles)
#pragma unroll
            for (int leaf = 0; leaf < kLeaves; ++leaf)
                add_digest(t, unit + (u32)(leaf * top) * (kUnitLanes / 4), raw[leaf], digest);
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) K::take(raw[leaf], words[leaf], s.job);
        K::scan_all(words, counts, s.job);
        if (!valid) digest = {}, counts = {};  // its sums are dropped as well
    }

    // The groups below slot `slot` of level kLevels: read, digested, counted, and made finite.
    __device__ __forceinline__ void read(const SummaryShared& s, const RowPlace& row,
                                         const Tables& t, int slot, bool valid, Sum& digest,
                                         Counts& counts) {
        if constexpr (kPlain) return read_plain(s, row, t, slot, valid, digest, counts);
        const Job& job = s.job;
        const int half = threadIdx.x & 1;
        int group[kLeaves];
        u32 raw[kLeaves][R];
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) {
            group[leaf] = slot, live[leaf] = valid;
#pragma unroll
            for (int level = kLevels; level > 0; --level)
                // Leaf bits in tree order: the lowest level pairs (i, i + kLeaves / 2).
                if (leaf >> (kLevels - level) & 1) {
                    group[leaf] += s.level_terms[level];
                    live[leaf] = live[leaf] && group[leaf] < s.level_terms[level - 1];
                }
#pragma unroll
            for (int q = 0; q < R; ++q) raw[leaf][q] = 0;
            line[leaf] = K::kHasMinusZero ? 0 : 0xffff0000u;
            if (!live[leaf]) continue;
            line[leaf] = __ldg(t.plan + row.first_group + group[leaf]);
            const u32 unit = 2 * (u32)group[leaf] + half;
            if ((long long)unit * 8 >= job.elements + row.lead) continue;
            load_unit<R, kLaneBytes>(job, row.data, unit, row.lead_lanes, raw[leaf]);
        }
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) {
            if (live[leaf]) {
                const long long unit = 2ll * group[leaf] + half;
                if (row.words)
                    store_unit<R, kLaneBytes>(job, row.words, unit * kUnitLanes - row.lead_lanes,
                                              raw[leaf]);
                add_digest(t, row.first_unit + unit * (kUnitLanes / 8), raw[leaf], digest);
            }
            K::take(raw[leaf], words[leaf], job);
            K::scan(words[leaf], counts, job);
            if (K::kHasMinusZero && !live[leaf])
#pragma unroll
                for (int q = 0; q < W; ++q) words[leaf][q] = K::kMinusZero;
        }
    }

    static __device__ __forceinline__ void add_digest(const Tables& t, long long at,
                                                      const u32 (&w)[R], Sum& digest) {
#pragma unroll
        for (int part = 0; part < (R == 16 ? 2 : 1); ++part)
#pragma unroll
            for (int plane = 0; plane < 4; ++plane) {
                const ulonglong2 weight = t.pair(at + part, plane);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int l = plane * 2 + i;
                    u32 x;
                    if constexpr (R == 2) x = (w[l / 4] >> (8 * (l & 3))) & 0xff;
                    else if constexpr (R == 4) x = half_of(w[l / 2], l & 1);
                    else x = w[part * 8 + l];
                    digest.add(x, i ? weight.y : weight.x);
                }
            }
    }

    __device__ __forceinline__ void add_values(const Job& job, Eight& sum, Eight& squares) const {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            double value[kLeaves];
#pragma unroll
            for (int leaf = 0; leaf < kLeaves; ++leaf) {
                value[leaf] = K::value(words[leaf], e, job);
                if (!K::kHasMinusZero && !live[leaf]) value[leaf] = minus_zero();
            }
            squares.at[e] = square_sum<K::kExactSquares>(value);
            sum.at[e] = tree_sum(value);
        }
    }

    // Elements go to their buckets, for good.
    __device__ __forceinline__ void add_buckets(const Job& job, Eight& sketch) {
        const int lane = threadIdx.x & 31, half = lane & 1;
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) {
            K::permute(words[leaf], (int)line[leaf] & 7);
            const int from = lane ^ ((int)line[leaf] >> 3 & 1);
#pragma unroll
            for (int q = 0; q < W; ++q)
                words[leaf][q] = __shfl_sync(0xffffffffu, words[leaf][q], from);
            line[leaf] >>= 16 + 8 * half;
            K::negate(words[leaf], line[leaf]);
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            double value[kLeaves];
#pragma unroll
            for (int leaf = 0; leaf < kLeaves; ++leaf) {
                value[leaf] = K::value(words[leaf], e, job);
                if (K::kNegatesWords) continue;
                const u32 flip = (line[leaf] << (31 - sign_place(e))) & 0x80000000u;
                value[leaf] = __hiloint2double(__double2hiint(value[leaf]) ^ (int)flip,
                                               __double2loint(value[leaf]));
            }
            sketch.at[e] = tree_sum(value);
        }
    }
};

}  // namespace fingerprint
