// One row's digest, sketch and statistics in one pass: the body of fingerprint_full.
//
// The row is cut into groups of 16 elements; two neighbouring lanes hold a group, 8 elements each.
// The tree of docs/digests.md adds term k + h to term k, h = ceil(n / 2), again and again: level L
// has h[L] terms, and a term of level L is one or two of level L - 1, k and k + h[L]. A lane pair
// owns one term (its slot) of the first level with at most 16 * across terms, walks down from there
// depth first, and the slots are added in shared memory.
#pragma once

#include "include/digest_tiles.cuh"
#include "include/row_groups.cuh"

namespace fingerprint {

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
                                               int shift) {
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
    totals.sum = add_slots(s, found.sum, position, active, shift);
    totals.squares = add_slots(s, found.squares, position, active, shift);
    totals.bucket = add_slots(s, found.sketch, position, active, shift);
    return totals;
}

template <class K, int kLevels, bool kPlain>
__device__ __forceinline__ Totals add_row(SummaryShared& s, const RowPlace& row, const Tables& t,
                                          int slot, bool present, int position, bool active,
                                          int shift) {
    if (!kPlain && kLevels == K::kLevels && s.levels > kLevels)
        return walk_row<K, kLevels>(s, row, t, slot, present, position, active, shift);
    Totals totals = {};
    Groups<K, kLevels, kPlain> groups;
    groups.read(s, row, t, slot, present, totals.digest, totals.counts);
    {
        Eight sum, squares;
        groups.add_values(s.job, sum, squares);
        totals.sum = add_slots(s, sum, position, active, shift);
        totals.squares = add_slots(s, squares, position, active, shift);
    }
    Eight sketch;
    groups.add_buckets(s.job, sketch);
    totals.bucket = add_slots(s, sketch, position, active, shift);
    return totals;
}

template <class K, int kLevels, bool kPlain>
__device__ __forceinline__ void summarise_row(SummaryShared& s, RowPlace row, char* step,
                                              const Tables& t, long long index, int slot,
                                              bool active, int position, int shift) {
    const Job& job = s.job;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, across = 1 << shift;
    const bool present = index < job.rows;
    row.data += present ? row_offset(job, (u32)index) : 0;
    row.words = job.words && present ? step + job.words + index * job.lanes * job.lane_bytes
                                     : nullptr;
    const Totals totals =
        add_row<K, kLevels, kPlain>(s, row, t, slot, active && present, position, active, shift);
    constexpr bool kTiled = kPlain && kHasTiles;  // then the digest is done
    u64 sum = totals.digest.total();
    if (!kTiled)
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
    if (!present || (warp & (across - 1))) return;
    if (job.sketches && lane < kPlaces)
        reinterpret_cast<float*>(step + job.sketches)[index * kPlaces + lane] =
            __double2float_rn(totals.bucket);
    if (lane) return;
    if (!kTiled) reinterpret_cast<u64*>(step + job.digests)[index] = mix(sum ^ job.salt);
    if (!job.statistics) return;
    double* to = reinterpret_cast<double*>(step + job.statistics) + index * 7;
    to[0] = K::largest(counts), to[1] = values, to[2] = squares;
    to[3] = counts.nan, to[4] = counts.positive_infinite, to[5] = counts.negative_infinite;
    to[6] = (double)(job.elements - (long long)counts.nonzero);
}

// Digests of `rows` rows from row `first` on, by all warps of the block.
__device__ __forceinline__ void digest_tile(SummaryShared& s, const Tables& t, char* step,
                                            long long first, int rows) {
    const Job& job = s.job;
    const int i = threadIdx.x, warp = i >> 5;
    __syncthreads();
    if (i < kTall) s.row_at[i] = row_offset(job, (u32)(first + min(i, rows - 1)));
    __syncthreads();
    add_tile<true>(job, s.row_at, s.part[warp], t.first_chunk(job), warp, kWarps);
    __syncthreads();
    if (i >= rows) return;
    u64 total = 0;
    for (int w = 0; w < kWarps; ++w) total += s.part[w][i];
    reinterpret_cast<u64*>(step + job.digests)[first + i] = mix(total ^ job.salt);
}

template <class K, int kLevels, bool kPlain>
__device__ __forceinline__ void summarise_rows(SummaryShared& s, const RowPlace& row, char* step,
                                               const Tables& t, long long block) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int across = (int)s.job.across, shift = __ffs(across) - 1, slots = 16 * across;
    const int terms = s.level_terms[s.levels], slot = (warp & (across - 1)) * 16 + (lane >> 1);
    const int position = slot_position(slot, terms, slots);
    const int together = kWarps >> shift, rounds = (int)s.job.rounds;
    for (int round = 0; round < rounds; ++round) {
        const long long first = (block * rounds + round) * together;
        if (first >= s.job.rows) return;
        if constexpr (kPlain && kHasTiles)
            if (round * together % kTall == 0) {
                const int live = min(kTall, (rounds - round) * together);
                digest_tile(s, t, step, first, (int)min((long long)live, s.job.rows - first));
            }
        summarise_row<K, kLevels, kPlain>(s, row, step, t, first + (warp >> shift), slot,
                                          slot < terms, position, shift);
    }
}

// Rows of any other kind; out of line, so that they cost plain rows no registers.
template <class K, int kLevels>
static __device__ __noinline__ void summarise_others(SummaryShared& s, RowPlace row, char* step,
                                                     Tables t, long long block) {
    summarise_rows<K, kLevels, false>(s, row, step, t, block);
}

__device__ __forceinline__ bool can_tile(const Job& job) {
    const long long places = (long long)job.data | job.row_strides[0] | job.row_strides[1] |
                             job.row_strides[2] | (job.lanes * job.lane_bytes);
    return places % 16 == 0 && job.first_lane * job.lane_bytes % kChunk == 0;
}

// Whether the levels of a row, as many as registers hold or one fewer of three, are plain.
template <class K>
__device__ __forceinline__ bool is_plain(const SummaryShared& s, const RowPlace& row) {
    const Job& job = s.job;
    return job.wide && job.flat && !job.words && row.lead == 0 && job.elements % kPlaces == 0 &&
           s.levels <= K::kLevels && s.levels >= (K::kLevels == 3 ? 2 : K::kLevels) &&
           s.level_terms[0] == s.level_terms[s.levels] << s.levels && (!kHasTiles || can_tile(job));
}

template <class K>
__device__ __forceinline__ void summarise(SummaryShared& s, const Ring& ring, const Tables& t,
                                          long long block) {
    const Job& job = s.job;
    RowPlace row;
    const int lanes_an_element = K::kRead == 16 ? 2 : 1;
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
    if (is_plain<K>(s, row)) {
        if constexpr (K::kLevels == 3)
            if (s.levels == 2) return summarise_rows<K, 2, true>(s, row, step, t, block);
        return summarise_rows<K, K::kLevels, true>(s, row, step, t, block);
    }
    if (s.levels == 0) return summarise_others<K, 0>(s, row, step, t, block);
    if constexpr (K::kLevels > 1)
        if (s.levels == 1) return summarise_others<K, 1>(s, row, step, t, block);
    if constexpr (K::kLevels > 2)
        if (s.levels == 2) return summarise_others<K, 2>(s, row, step, t, block);
    summarise_others<K, K::kLevels>(s, row, step, t, block);
}

}  // namespace fingerprint
