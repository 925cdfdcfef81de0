// One row's digest, sketch and statistics in one pass: the body of fingerprint_full.
//
// The row is cut into groups of 16 elements; two neighbouring lanes hold a group, 8 elements each.
// The tree of docs/digests.md adds term k + h to term k, h = ceil(n / 2), again and again: level L
// has h[L] terms, and a term of level L is one or two of level L - 1, k and k + h[L]. A lane pair
// owns one term (its slot) of the first level with at most 16 * across terms, walks down from there
// depth first, and the slots are added in shared memory.
#pragma once

#include "include/element_kinds.cuh"
#include "include/fingerprint.cuh"
#include "include/row_tree.cuh"

namespace fingerprint {

struct RowPlace {
    const char* data;
    char* words;              // the row in the row matrix, or null
    int lead, lead_lanes;     // places and lanes before the first element
    long long first_group, first_unit;  // of the tables
};

// 2^kLevels groups as raw words, and their lines of the sketch's plan.
template <class K, int kLevels>
struct Groups {
    static constexpr int kLeaves = 1 << kLevels, W = K::kWords;
    static constexpr int kLaneBytes = W < 8 ? W / 2 : 4, kUnitLanes = W < 16 ? 8 : 16;
    u32 words[kLeaves][W], line[kLeaves];
    bool live[kLeaves];

    // The groups below slot `slot` of level kLevels: read, digested, counted, and made finite.
    __device__ __forceinline__ void read(const SummaryShared& s, const RowPlace& row,
                                         const Tables& t, int slot, bool valid, Sum& digest,
                                         Counts& counts) {
        const Job& job = s.job;
        const int half = threadIdx.x & 1;
        int group[kLeaves];
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
            for (int q = 0; q < W; ++q) words[leaf][q] = 0;
            line[leaf] = K::kHasMinusZero ? 0 : 0xffff0000u;
            if (!live[leaf]) continue;
            line[leaf] = __ldg(t.plan + row.first_group + group[leaf]);
            const u32 unit = 2 * (u32)group[leaf] + half;
            if ((long long)unit * 8 >= job.elements + row.lead) continue;
            load_unit<W, kLaneBytes>(job, row.data, unit, row.lead_lanes, words[leaf]);
        }
#pragma unroll
        for (int leaf = 0; leaf < kLeaves; ++leaf) {
            if (live[leaf]) {
                const long long unit = 2ll * group[leaf] + half;
                if (row.words)
                    store_unit<W, kLaneBytes>(job, row.words, unit * kUnitLanes - row.lead_lanes,
                                  words[leaf]);
                add_digest(t, row.first_unit + unit * (kUnitLanes / 8), words[leaf], digest);
            }
            K::scan(words[leaf], counts, job);
            if (K::kHasMinusZero && !live[leaf])
#pragma unroll
                for (int q = 0; q < W; ++q) words[leaf][q] = K::kMinusZero;
        }
    }

    static __device__ __forceinline__ void add_digest(const Tables& t, long long at,
                                                      const u32 (&w)[W], Sum& digest) {
#pragma unroll
        for (int part = 0; part < (W == 16 ? 2 : 1); ++part)
#pragma unroll
            for (int plane = 0; plane < 4; ++plane) {
                const ulonglong2 weight = t.pair(at + part, plane);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int l = plane * 2 + i;
                    u32 x;
                    if constexpr (W == 2) x = (w[l / 4] >> (8 * (l & 3))) & 0xff;
                    else if constexpr (W == 4) x = half_of(w[l / 2], l & 1);
                    else x = w[part * 8 + l];
                    digest.add(x, i ? weight.y : weight.x);
                }
            }
    }

    __device__ __forceinline__ void add_values(const Job& job, Eight& sum, Eight& squares) const {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            double value[kLeaves], square[kLeaves];
#pragma unroll
            for (int leaf = 0; leaf < kLeaves; ++leaf) {
                value[leaf] = K::value(words[leaf], e, job);
                if (!K::kHasMinusZero && !live[leaf]) value[leaf] = minus_zero();
                square[leaf] = __dmul_rn(value[leaf], value[leaf]);
            }
            sum.at[e] = tree_sum(value);
            squares.at[e] = tree_sum(square);
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
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            double value[kLeaves];
#pragma unroll
            for (int leaf = 0; leaf < kLeaves; ++leaf) {
                const double plain = K::value(words[leaf], e, job);
                const u32 flip = (line[leaf] << (31 - e)) & 0x80000000u;
                value[leaf] = __hiloint2double(__double2hiint(plain) ^ (int)flip,
                                               __double2loint(plain));
            }
            sketch.at[e] = tree_sum(value);
        }
    }
};

struct Totals {
    double bucket, sum, squares;  // of place lane & 15; in the row's first warp
    Sum digest;                   // of this lane
    Counts counts;
};

// A row of more levels than fit into registers: depth first, with a stack. Out of line, so that it
// costs shorter rows no registers.
template <class K, int kLevels>
static __device__ __noinline__ Totals walk_row(SummaryShared& s, RowPlace row, Tables t, int slot,
                                               bool present, int position, bool active,
                                               int across) {
    const int top = s.levels, depth = top - kLevels;
    Totals totals = {};
    Partial found, stack[kStack];
    for (int walk = 0; walk < 1 << depth; ++walk) {
        int at = slot;
        bool valid = present;
        for (int level = top; level > kLevels; --level)
            if (walk >> (level - kLevels - 1) & 1) {
                at += s.level_terms[level];
                valid = valid && at < s.level_terms[level - 1];
            }
        Groups<K, kLevels> groups;
        groups.read(s, row, t, at, valid, totals.digest, totals.counts);
        groups.add_values(s.job, found.sum, found.squares);
        groups.add_buckets(s.job, found.sketch);
        int floor = 0;
        for (; walk >> floor & 1; ++floor) found.add(stack[floor]);
        if (floor < depth) stack[floor] = found;
    }
    totals.sum = add_slots(s, found.sum, position, active, across);
    totals.squares = add_slots(s, found.squares, position, active, across);
    totals.bucket = add_slots(s, found.sketch, position, active, across);
    return totals;
}

template <class K, int kLevels>
__device__ __forceinline__ Totals add_row(SummaryShared& s, const RowPlace& row, const Tables& t,
                                          int slot, bool present, int position, bool active,
                                          int across) {
    if (kLevels == K::kLevels && s.levels > kLevels)
        return walk_row<K, kLevels>(s, row, t, slot, present, position, active, across);
    Totals totals = {};
    Groups<K, kLevels> groups;
    groups.read(s, row, t, slot, present, totals.digest, totals.counts);
    {
        Eight sum, squares;
        groups.add_values(s.job, sum, squares);
        totals.sum = add_slots(s, sum, position, active, across);
        totals.squares = add_slots(s, squares, position, active, across);
    }
    Eight sketch;
    groups.add_buckets(s.job, sketch);
    totals.bucket = add_slots(s, sketch, position, active, across);
    return totals;
}

template <class K, int kLevels>
__device__ __forceinline__ void summarise_row(SummaryShared& s, RowPlace row, char* step,
                                              const Tables& t, long long index, int slot,
                                              bool active, int position, int across) {
    const Job& job = s.job;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool present = index < job.rows;
    row.data += present ? row_offset(job, (u32)index) : 0;
    row.words = job.words && present ? step + job.words + index * job.lanes * job.lane_bytes
                                     : nullptr;
    const Totals totals =
        add_row<K, kLevels>(s, row, t, slot, active && present, position, active, across);
    u64 sum = totals.digest.total();
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum = add_across(sum, mask);
    Counts counts = add_counts<K::kWideMagnitude>(totals.counts);
    const double values = add_places(totals.sum), squares = add_places(totals.squares);
    if (across > 1) {
        if (lane == 0) s.digest[warp] = sum, s.counts[warp] = counts;
        __syncthreads();
        for (int w = 1; w < across; ++w) {
            const Counts& other = s.counts[warp + w < kWarps ? warp + w : warp];
            sum += s.digest[warp + w < kWarps ? warp + w : warp];
            counts.nonzero += other.nonzero, counts.nan += other.nan;
            counts.positive_infinite += other.positive_infinite;
            counts.negative_infinite += other.negative_infinite;
            counts.largest = max(counts.largest, other.largest);
            counts.largest_wide = max(counts.largest_wide, other.largest_wide);
        }
        __syncthreads();
    }
    if (!present || warp % across) return;
    if (job.sketches && lane < kPlaces)
        reinterpret_cast<float*>(step + job.sketches)[index * kPlaces + lane] =
            __double2float_rn(totals.bucket);
    if (lane) return;
    reinterpret_cast<u64*>(step + job.digests)[index] = mix(sum ^ job.salt);
    if (!job.statistics) return;
    double* to = reinterpret_cast<double*>(step + job.statistics) + index * 7;
    to[0] = K::largest(counts), to[1] = values, to[2] = squares;
    to[3] = counts.nan, to[4] = counts.positive_infinite, to[5] = counts.negative_infinite;
    to[6] = (double)(job.elements - (long long)counts.nonzero);
}

template <class K, int kLevels>
__device__ __forceinline__ void summarise_rows(SummaryShared& s, const RowPlace& row, char* step,
                                               const Tables& t, long long block) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int across = (int)s.job.across, slots = 16 * across;
    const int terms = s.level_terms[s.levels], slot = (warp % across) * 16 + (lane >> 1);
    const int position = slot_position(slot, terms, slots);
    const int together = kWarps / across, rounds = (int)s.job.rounds;
    for (int round = 0; round < rounds; ++round) {
        const long long first = (block * rounds + round) * together;
        if (first >= s.job.rows) return;
        summarise_row<K, kLevels>(s, row, step, t, first + warp / across, slot, slot < terms,
                                  position, across);
    }
}

template <class K>
__device__ __forceinline__ void summarise(SummaryShared& s, const Ring& ring, const Tables& t,
                                          long long block) {
    const Job& job = s.job;
    RowPlace row;
    const int lanes_an_element = K::kWords == 16 ? 2 : 1;
    row.lead_lanes = (int)(job.first_lane % (kPlaces * lanes_an_element));
    row.lead = row.lead_lanes / lanes_an_element;
    row.first_unit = (job.first_lane - row.lead_lanes) / 8;
    row.first_group = row.first_unit / (2 * lanes_an_element);
    row.data = job.data;
    const int groups = (int)((row.lead + job.elements + kPlaces - 1) / kPlaces);
    if (threadIdx.x == 0) plan_levels(s, groups, 16 * (int)job.across);
    for (int i = threadIdx.x; i < kWarps * 16 * kPitch; i += kThreads) s.grid[i] = minus_zero();
    __syncthreads();
    char* const step = ring.step();
    if (s.levels == 0) return summarise_rows<K, 0>(s, row, step, t, block);
    if constexpr (K::kLevels > 1)
        if (s.levels == 1) return summarise_rows<K, 1>(s, row, step, t, block);
    if constexpr (K::kLevels > 2)
        if (s.levels == 2) return summarise_rows<K, 2>(s, row, step, t, block);
    summarise_rows<K, K::kLevels>(s, row, step, t, block);
}

}  // namespace fingerprint
