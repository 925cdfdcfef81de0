// fingerprint: the 64-bit digest of every row of tensors, each read once.
//
//   digest[r] = mix(sum_i lane(r, i) * (stream(0, first_lane + i) | 1) ^ salt)        modulo 2^64
//
// Shapes      rows are the product of up to 3 axes, elements that of up to 4, each of any stride:
//             include/fingerprint.cuh, struct Job. float4 has one value a byte; complex64 counts as
//             two float32. `words`, if wanted, takes the row matrix itself, row-major.
// Launch      one tensor from scalar arguments (`_one`), or many from a table of jobs and a table
//             block -> job (`_many`, any memory that the device can read). `wide`: units are
//             contiguous and aligned. Outputs go into slot `*counter % slots` of a ring, so that
//             each replay of a captured graph has its own; `_advance` ends a step. `rounds`: rows
//             that a warp takes; kTall of them are summed on tensor cores where there are any that
//             multiply bytes (include/digest_tiles.cuh), and kRows at a time everywhere else.
// Arithmetic  integers modulo 2^64: the same bits in any order, on every machine.
// Reference   verify.dumps.digests; tests/gpu/test_fingerprint.py, and without a GPU
//             tests/kernels/test_emulated_fingerprint.py.
#include "include/build.cuh"
#include "include/digest_tiles.cuh"
#include "include/fingerprint.cuh"

using namespace fingerprint;

namespace {

constexpr int kRows = 4;    // rows that a warp carries at once by lanes: a weight serves them all
constexpr int kBlocks = 3;  // of a multiprocessor at once
constexpr int kAlign = 8;   // lanes of a line of the weight table
constexpr int kShare = 32 / kRows;  // lanes that end up with the sum of one row

struct DigestShared {
    Job job;
    long long row_at[kWarps * kTall];
    u64 part[kWarps][kTall];
};

// Of kRows sums a thread, one is left: that of row lane / kShare over the lanes with the same
// lane / kShare; then these lanes add up.
__device__ __forceinline__ u64 transpose_and_add(u64 (&sum)[kRows], int lane) {
#pragma unroll
    for (int width = kRows / 2, mask = 16; width > 0; width /= 2, mask /= 2) {
        const bool upper = lane & mask;
#pragma unroll
        for (int r = 0; r < width; ++r) {
            const u64 given = upper ? sum[r] : sum[r + width];
            const u64 kept = upper ? sum[r + width] : sum[r];
            sum[r] = kept + __shfl_xor_sync(0xffffffffu, given, mask);
        }
    }
#pragma unroll
    for (int mask = kShare / 2; mask > 0; mask /= 2) sum[0] = add_across(sum[0], mask);
    return sum[0];
}

struct Tile {
    long long first_row;  // of the tensor
    int live;             // rows that exist, of kRows
    u32 unit, stride;     // this thread's first unit, and the way to its next one
};

struct RowSums {
    Sum of[kRows];
};

template <int kLaneBytes>
struct Digest {
    static constexpr int kPerWord = 4 / kLaneBytes, kPerUnit = 16 / kLaneBytes;
    static constexpr u32 kMask =
        kLaneBytes == 4 ? 0xffffffffu : (1u << (8 * (kLaneBytes & 3))) - 1;

    static __device__ __forceinline__ void add(RowSums& sums, const u32 (&words)[kRows][4], int l,
                                               u64 weight) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
            sums.of[r].add((words[r][l / kPerWord] >> (8 * kLaneBytes * (l % kPerWord))) & kMask,
                           weight);
    }

    // The common way: contiguous aligned rows, all kRows of them, weights from the table.
    static __device__ __forceinline__ RowSums contiguous(const Job& job, const Tile& tile,
                                                         const long long* row_at,
                                                         const Tables& t) {
        RowSums sums = {};
        const u32 units = (u32)(job.lanes / kPerUnit);
        const char* row[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) row[r] = job.data + row_at[r] + (long long)tile.unit * 16;
        for (u32 unit = tile.unit; unit < units; unit += tile.stride) {
            u32 words[kRows][4];
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                const uint4 v = __ldcs(reinterpret_cast<const uint4*>(row[r]));
                words[r][0] = v.x, words[r][1] = v.y, words[r][2] = v.z, words[r][3] = v.w;
                row[r] += (long long)tile.stride * 16;
            }
            const u64 lane = (u64)job.first_lane + (u64)unit * kPerUnit;
#pragma unroll
            for (int l = 0; l < kPerUnit; l += 2) {
                const ulonglong2 pair =
                    t.pair((long long)(lane / 8 + l / 8),
                           kPerUnit >= 8 ? l % 8 / 2 : (int)(lane % 8) / 2 + l / 2);
                add(sums, words, l, pair.x);
                add(sums, words, l + 1, pair.y);
            }
        }
        return sums;
    }

    // Every other way: any strides, missing rows, a row matrix to write, weights to compute.
    static __device__ __noinline__ RowSums any(const Job& job, Tile tile, const long long* row_at,
                                               Tables t, char* matrix) {
        RowSums sums = {};
        const u32 units = tile.live ? (u32)((job.lanes + kPerUnit - 1) / kPerUnit) : 0;
        for (u32 unit = tile.unit; unit < units; unit += tile.stride) {
            u32 words[kRows][4];
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                words[r][0] = words[r][1] = words[r][2] = words[r][3] = 0;
                if (r >= tile.live) continue;
                load_unit<4, kLaneBytes>(job, job.data + row_at[r], unit, 0, words[r]);
                if (matrix)
                    store_unit<4, kLaneBytes>(
                        job, matrix + (tile.first_row + r) * job.lanes * kLaneBytes,
                        (long long)unit * kPerUnit, words[r]);
            }
            const u64 lane = (u64)job.first_lane + (u64)unit * kPerUnit;
#pragma unroll
            for (int l = 0; l < kPerUnit; l += 2) {
                ulonglong2 pair;
                if (t.units) {
                    pair = t.pair((long long)((lane + l) / 8), (int)((lane + l) % 8) / 2);
                } else {
                    pair.x = mix((lane + l + 1) * kGolden) | 1;
                    pair.y = mix((lane + l + 2) * kGolden) | 1;
                }
                add(sums, words, l, pair.x);
                add(sums, words, l + 1, pair.y);
            }
        }
        return sums;
    }
};

// Rows that a warp takes kRows at a time, from the first of its tile on. Out of line, so that it
// costs a matrix product no registers.
template <int kLaneBytes>
__device__ __noinline__ void digest_by_lanes(DigestShared& s, Tables t, long long first_row,
                                             char* matrix, bool plain) {
    const Job& job = s.job;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int across = (int)job.across, depth = (int)job.rounds;
    for (int done = 0; done < depth; done += kRows) {
        Tile tile;
        tile.first_row = first_row + done;
        const long long left = job.rows - tile.first_row;
        tile.live = left < 0 ? 0 : left < kRows ? (int)left : kRows;
        tile.unit = warp % across * 32 + lane, tile.stride = across * 32;
        const long long* row_at = s.row_at + warp / across * depth + done;
        const RowSums sums = plain && tile.live == kRows
                                 ? Digest<kLaneBytes>::contiguous(job, tile, row_at, t)
                                 : Digest<kLaneBytes>::any(job, tile, row_at, t, matrix);
        u64 totals[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) totals[r] = sums.of[r].total();
        const u64 found = transpose_and_add(totals, lane);
        if (lane % kShare == 0) s.part[warp][done + lane / kShare] = found;
    }
}

__device__ __forceinline__ void digest_block(DigestShared& s, const Ring& ring, const Tables& t,
                                             long long block) {
    const Job& job = s.job;
    write_header(job, ring, block);
    const int across = (int)job.across, tiles = kWarps / across, depth = (int)job.rounds;
    const int i = threadIdx.x, warp = i >> 5;
    const long long first_row = block * tiles * depth;
    if (i < tiles * depth && job.rows)  // those beyond the last row of the tensor repeat it
        s.row_at[i] = row_offset(job, (u32)min(first_row + i, job.rows - 1));
    __syncthreads();

    char* const step = ring.step();
    const bool plain = job.wide && job.flat && !job.words && t.units;
    const bool at_chunk = job.first_lane * job.lane_bytes % kChunk == 0;
    if (kHasTiles && depth == kTall && plain && at_chunk && job.rows) {
        add_tile<false>(job, s.row_at + warp / across * kTall, s.part[warp], t.first_chunk(job),
                        warp % across, across);
    } else {
        char* const matrix = job.words ? step + job.words : nullptr;
        const long long row = first_row + warp / across * depth;
        const bool whole = plain && job.first_lane % kAlign == 0;
        if (job.lane_bytes == 4) digest_by_lanes<4>(s, t, row, matrix, whole);
        else if (job.lane_bytes == 2) digest_by_lanes<2>(s, t, row, matrix, whole);
        else digest_by_lanes<1>(s, t, row, matrix, whole);
    }
    __syncthreads();
    if (i < tiles * depth && first_row + i < job.rows) {
        u64 total = 0;
        for (int w = 0; w < across; ++w) total += s.part[i / depth * across + w][i % depth];
        u64* out = reinterpret_cast<u64*>(step + job.digests);
        out[first_row + i] = mix(total ^ job.salt);
    }
}

}  // namespace

VERIFY_LAUNCH(fingerprint_one, kThreads, 0)
VERIFY_LAUNCH(fingerprint_many, kThreads, 0)
VERIFY_LAUNCH(fingerprint_advance, 32, 0)
// Rows that a warp carries by lanes, and in a matrix product.
extern "C" __device__ int fingerprint_rows[2] = {kRows, kTall};

// One tensor; arguments after `units` are fields of struct Job. Digests go to `base`.
extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) fingerprint_one(
    char* base, const u64* weights, const uint4* fragments, long long units, const char* data,
    long long rows, long long lanes, long long first_lane, u64 salt, long long lane_bytes,
    long long wide, long long across, long long flat, long long rounds, long long row_size1,
    long long row_size2, long long row_stride0, long long row_stride1, long long row_stride2,
    long long column_size1, long long column_size2, long long column_size3,
    long long column_stride0, long long column_stride1, long long column_stride2,
    long long column_stride3) {
    __shared__ DigestShared s;
    if (threadIdx.x == 0) {
        Job job = {};
        job.data = data, job.header = -1, job.rows = rows, job.lanes = lanes;
        job.first_lane = first_lane, job.salt = salt, job.lane_bytes = lane_bytes;
        job.wide = wide, job.across = across, job.flat = flat, job.rounds = rounds;
        job.row_sizes[0] = row_size1, job.row_sizes[1] = row_size2;
        job.row_strides[0] = row_stride0, job.row_strides[1] = row_stride1;
        job.row_strides[2] = row_stride2;
        job.column_sizes[0] = column_size1, job.column_sizes[1] = column_size2;
        job.column_sizes[2] = column_size3;
        job.column_strides[0] = column_stride0, job.column_strides[1] = column_stride1;
        job.column_strides[2] = column_stride2, job.column_strides[3] = column_stride3;
        s.job = job;
    }
    __syncthreads();
    const Tables tables{weights, nullptr, fragments, units};
    digest_block(s, Ring{base, nullptr, 1, 0}, tables, blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    fingerprint_many(char* base, const u64* counter, long long slots, long long step_bytes,
                     const u64* weights, const u32* plan, const uint4* fragments, long long units,
                     const Job* jobs, const int* owner) {
    __shared__ DigestShared s;
    const long long block = fetch_job(s.job, jobs, owner);
    const Tables tables{weights, plan, fragments, units};
    digest_block(s, Ring{base, counter, slots, step_bytes}, tables, block);
}

// The step is over: what comes next goes into the next slot of the ring.
extern "C" __global__ void fingerprint_advance(u64* counter) {
    if (threadIdx.x == 0) *counter += 1;
}
