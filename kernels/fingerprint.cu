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

constexpr int kRows = 8;  // rows that a warp carries at once, so that weights are computed once

struct DigestShared {
    Job job;
    long long row_at[kWarps * kRows];
    u64 part[kWarps][kRows];
};

// Of 8 sums a thread, one is left: that of row (lane >> 2) over the lanes with the same lane >> 2;
// then these 4 lanes add up.
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
    return add_across(add_across(sum[0], 2), 1);
}

template <int kLaneBytes>
__device__ __forceinline__ void digest_rows(DigestShared& s, const Ring& ring, long long block) {
    constexpr int kPerWord = 4 / kLaneBytes, kPerUnit = 16 / kLaneBytes;
    constexpr u32 kMask = kLaneBytes == 4 ? 0xffffffffu : (1u << (8 * (kLaneBytes & 3))) - 1;
    const Job& job = s.job;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int across = (int)job.across, tiles = kWarps / across;
    const int tile = warp / across, column = warp % across;
    const long long first_row = block * tiles * kRows;
    for (int i = threadIdx.x; i < tiles * kRows; i += kThreads)
        s.row_at[i] = first_row + i < job.rows ? row_offset(job, (u32)(first_row + i)) : 0;
    __syncthreads();

    char* const step = ring.step();
    const long long left = job.rows - first_row - tile * kRows;
    const int live = left < 0 ? 0 : left < kRows ? (int)left : kRows;
    const long long* row_at = s.row_at + tile * kRows;
    Sum sums[kRows] = {};
    const u32 units = live ? (u32)((job.lanes + kPerUnit - 1) / kPerUnit) : 0;
    for (u32 unit = column * 32 + lane; unit < units; unit += across * 32) {
        u32 words[kRows][4];
        if (job.wide && live == kRows) {
            const long long at = column_offset(job, unit);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                const uint4 v =
                    __ldcs(reinterpret_cast<const uint4*>(job.data + row_at[r] + at));
                words[r][0] = v.x, words[r][1] = v.y, words[r][2] = v.z, words[r][3] = v.w;
            }
        } else {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                words[r][0] = words[r][1] = words[r][2] = words[r][3] = 0;
                if (r < live) load_unit<4>(job, job.data + row_at[r], unit, 0, words[r]);
            }
        }
        if (job.words) {
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                if (r < live)
                    store_unit<4>(job,
                                  step + job.words +
                                      (first_row + tile * kRows + r) * job.lanes * kLaneBytes,
                                  (long long)unit * kPerUnit, words[r]);
        }
        u64 seed = ((u64)job.first_lane + (u64)unit * kPerUnit + 1) * kGolden;
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
            for (int p = 0; p < kPerWord; ++p, seed += kGolden) {
                const u64 weight = mix(seed) | 1;
#pragma unroll
                for (int r = 0; r < kRows; ++r)
                    sums[r].add((words[r][q] >> (8 * kLaneBytes * p)) & kMask, weight);
            }
    }
    u64 totals[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) totals[r] = sums[r].total();
    const u64 found = transpose_and_add(totals, lane);
    if ((lane & 3) == 0) s.part[warp][lane >> 2] = found;
    __syncthreads();
    const int i = threadIdx.x;
    if (i < tiles * kRows && first_row + i < job.rows) {
        u64 total = 0;
        for (int w = 0; w < across; ++w) total += s.part[i / kRows * across + w][i % kRows];
        u64* out = reinterpret_cast<u64*>(step + job.digests);
        out[first_row + i] = mix(total ^ job.salt);
    }
}

__device__ __forceinline__ void digest_block(DigestShared& s, const Ring& ring, long long block) {
    write_header(s.job, ring, block);
    if (s.job.lane_bytes == 4) digest_rows<4>(s, ring, block);
    else if (s.job.lane_bytes == 2) digest_rows<2>(s, ring, block);
    else digest_rows<1>(s, ring, block);
}

}  // namespace

VERIFY_LAUNCH(fingerprint_one, kThreads, 0)
VERIFY_LAUNCH(fingerprint_many, kThreads, 0)
VERIFY_LAUNCH(fingerprint_advance, 32, 0)
// Rows that a warp carries.
extern "C" __device__ int fingerprint_rows[1] = {kRows};

#define JOB_PARAMETERS                                                                          \
    long long j0, long long j1, long long j2, long long j3, long long j4, long long j5,         \
        long long j6, long long j7, long long j8, long long j9, long long j10, long long j11,   \
        long long j12, long long j13, long long j14, long long j15, long long j16,              \
        long long j17, long long j18, long long j19, long long j20, long long j21,              \
        long long j22, long long j23, long long j24, long long j25, long long j26,              \
        long long j27, long long j28
#define TAKE_JOB(to)                                                                            \
    if (threadIdx.x == 0) {                                                                     \
        const long long given[29] = {j0,  j1,  j2,  j3,  j4,  j5,  j6,  j7,  j8,  j9,           \
                                     j10, j11, j12, j13, j14, j15, j16, j17, j18, j19,          \
                                     j20, j21, j22, j23, j24, j25, j26, j27, j28};              \
        _Pragma("unroll") for (int i = 0; i < 29; ++i)                                          \
            reinterpret_cast<long long*>(&(to))[i] = given[i];                                  \
    }                                                                                           \
    __syncthreads();

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    fingerprint_one(char* base, const u64* counter, long long slots, long long step_bytes,
                           JOB_PARAMETERS) {
    __shared__ DigestShared s;
    TAKE_JOB(s.job)
    digest_block(s, Ring{base, counter, slots, step_bytes}, blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    fingerprint_many(char* base, const u64* counter, long long slots, long long step_bytes,
                            const Job* jobs, const int* owner) {
    __shared__ DigestShared s;
    const long long block = fetch_job(s.job, jobs, owner);
    digest_block(s, Ring{base, counter, slots, step_bytes}, block);
}

// The step is over: what comes next goes into the next slot of the ring.
extern "C" __global__ void fingerprint_advance(u64* counter) {
    if (threadIdx.x == 0) *counter += 1;
}
