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
//             each replay of a captured graph has its own; `_advance` ends a step.
// Arithmetic  integers modulo 2^64: the same bits in any order, on every machine.
// Reference   verify.dumps.digests; tests/gpu/test_fingerprint.py.
#include "include/build.cuh"
#include "include/fingerprint.cuh"

using namespace fingerprint;

namespace {

constexpr int kRows = 4;  // rows that a warp carries at once, so that a weight serves them all
constexpr int kAlign = 8;  // lanes of a line of the weight table
constexpr int kShare = 32 / kRows;  // lanes that end up with the sum of one row

struct DigestShared {
    Job job;
    long long row_at[kWarps * kRows];
    u64 part[kWarps][kRows];
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

template <int kLaneBytes>
__device__ __forceinline__ void digest_rows(DigestShared& s, const Ring& ring, const Tables& t,
                                            long long block) {
    const Job& job = s.job;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int across = (int)job.across, tiles = kWarps / across;
    const long long first_row = block * tiles * kRows;
    for (int i = threadIdx.x; i < tiles * kRows; i += kThreads)
        s.row_at[i] = first_row + i < job.rows ? row_offset(job, (u32)(first_row + i)) : 0;
    __syncthreads();

    char* const step = ring.step();
    Tile tile;
    tile.first_row = first_row + warp / across * kRows;
    const long long left = job.rows - tile.first_row;
    tile.live = left < 0 ? 0 : left < kRows ? (int)left : kRows;
    tile.unit = warp % across * 32 + lane, tile.stride = across * 32;
    const long long* row_at = s.row_at + warp / across * kRows;
    const bool plain = job.wide && job.flat && tile.live == kRows && !job.words && t.units &&
                       job.first_lane % kAlign == 0;
    const RowSums sums =
        plain ? Digest<kLaneBytes>::contiguous(job, tile, row_at, t)
              : Digest<kLaneBytes>::any(job, tile, row_at, t,
                                        job.words ? step + job.words : nullptr);
    u64 totals[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) totals[r] = sums.of[r].total();
    const u64 found = transpose_and_add(totals, lane);
    if (lane % kShare == 0) s.part[warp][lane / kShare] = found;
    __syncthreads();
    const int i = threadIdx.x;
    if (i < tiles * kRows && first_row + i < job.rows) {
        u64 total = 0;
        for (int w = 0; w < across; ++w) total += s.part[i / kRows * across + w][i % kRows];
        u64* out = reinterpret_cast<u64*>(step + job.digests);
        out[first_row + i] = mix(total ^ job.salt);
    }
}

__device__ __forceinline__ void digest_block(DigestShared& s, const Ring& ring, const Tables& t,
                                             long long block) {
    write_header(s.job, ring, block);
    if (s.job.lane_bytes == 4) digest_rows<4>(s, ring, t, block);
    else if (s.job.lane_bytes == 2) digest_rows<2>(s, ring, t, block);
    else digest_rows<1>(s, ring, t, block);
}

}  // namespace

VERIFY_LAUNCH(fingerprint_one, kThreads, 0)
VERIFY_LAUNCH(fingerprint_many, kThreads, 0)
VERIFY_LAUNCH(fingerprint_advance, 32, 0)
// Rows that a warp carries.
extern "C" __device__ int fingerprint_rows[1] = {kRows};

// One tensor; arguments after `units` are fields of struct Job. Digests go to `base`.
extern "C" __global__ void __launch_bounds__(kThreads, 2) fingerprint_one(
    char* base, const u64* weights, long long units, const char* data, long long rows,
    long long lanes, long long first_lane, u64 salt, long long lane_bytes, long long wide,
    long long across, long long flat, long long row_size1, long long row_size2,
    long long row_stride0, long long row_stride1, long long row_stride2, long long column_size1,
    long long column_size2, long long column_size3, long long column_stride0,
    long long column_stride1, long long column_stride2, long long column_stride3) {
    __shared__ DigestShared s;
    if (threadIdx.x == 0) {
        Job job = {};
        job.data = data, job.header = -1, job.rows = rows, job.lanes = lanes;
        job.first_lane = first_lane, job.salt = salt, job.lane_bytes = lane_bytes;
        job.wide = wide, job.across = across, job.flat = flat;
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
    digest_block(s, Ring{base, nullptr, 1, 0}, Tables{weights, nullptr, units}, blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    fingerprint_many(char* base, const u64* counter, long long slots, long long step_bytes,
                     const u64* weights, const u32* plan, long long units, const Job* jobs,
                     const int* owner) {
    __shared__ DigestShared s;
    const long long block = fetch_job(s.job, jobs, owner);
    digest_block(s, Ring{base, counter, slots, step_bytes}, Tables{weights, plan, units}, block);
}

// The step is over: what comes next goes into the next slot of the ring.
extern "C" __global__ void fingerprint_advance(u64* counter) {
    if (threadIdx.x == 0) *counter += 1;
}
