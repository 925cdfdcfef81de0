// The sums of 32 rows a warp as a matrix product of bytes, on tensor cores (sm_80 and later).
//
//   sum(r) = sum_b data(r, b) * v(b) modulo 2^64,  v(b) = weight(lane of b) << 8 * (place in lane)
//
// for the bytes b of row r. With v(b) = sum_p 2^(8 p) v_p(b), p = 0 .. 7, the sums of data(r, b) *
// v_p(b) are a product with eight columns, all bytes: what mma.m16n8k32 multiplies, adding in 32
// bits. Nothing is rounded, so the bits are those of the sum by lanes; it takes one instruction for
// 512 bytes where lanes take three a lane.
#pragma once

#include "include/fingerprint.cuh"

namespace fingerprint {

constexpr int kTall = 32;    // rows that a warp carries
constexpr int kChunk = 64;   // bytes that a load of the warp takes of each of its rows
constexpr int kAhead = 2;    // chunks whose loads are under way together
constexpr int kExact = 1024; // chunks whose sums 32 bits hold: 65536 * 255 * 255 < 2^32

#if __CUDA_ARCH__ >= 800
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif

// Two steps of k: the 16 bytes that a thread holds of row g (low) and of row g + 8 (high).
__device__ __forceinline__ void multiply_add(u32 (&sum)[4], const uint4& low, const uint4& high,
                                             const uint4& weights) {
    if constexpr (kHasTiles) {
        multiply_bytes(sum, low.x, high.x, low.y, high.y, weights.x, weights.y);
        multiply_bytes(sum, low.z, high.z, low.w, high.w, weights.z, weights.w);
    }
}

// 16 bytes of a row; kKeep: they are read again soon.
template <bool kKeep>
__device__ __forceinline__ uint4 load_row(const char* from) {
    if constexpr (kKeep) return __ldg(reinterpret_cast<const uint4*>(from));
    else return load_stream(from);
}

// A thread's part of a tile: lane 4 g + t holds bytes 16 t .. 16 t + 15 of a chunk of the rows g,
// g + 8, g + 16 and g + 24, and gets their sums over the planes 2 t and 2 t + 1.
struct TallTile {
    const char* row[kTall / 8];
    const uint4* weights;  // of this lane; a chunk has 32 of them
    u32 units;             // of a row, 16 bytes each
    u32 chunk, stride;     // this warp's first chunk, and the way to its next ones
    u64 total[kTall / 8];

    template <bool kWhole, bool kKeep>
    __device__ __forceinline__ void add(u32 (&sum)[kTall / 16][4], u32 at, int t) {
        uint4 data[kAhead][kTall / 8], weight[kAhead];
#pragma unroll
        for (int r = 0; r < kTall / 8; ++r)
#pragma unroll
            for (int a = 0; a < kAhead; ++a)
                data[a][r] = kWhole || (at + a) * 4 + t < units
                                 ? load_row<kKeep>(row[r] + (long long)(at + a) * kChunk)
                                 : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
            weight[a] = kWhole || (at + a) * 4 < units ? __ldg(weights + (at + a) * 32)
                                                       : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
#pragma unroll
            for (int i = 0; i < kTall / 16; ++i)
                multiply_add(sum[i], data[a][2 * i], data[a][2 * i + 1], weight[a]);
    }

    template <bool kKeep>
    __device__ __forceinline__ void add_all(int t) {
#pragma unroll
        for (int r = 0; r < kTall / 8; ++r) total[r] = 0;
        const u32 whole = units / 4, end = (units + 3) / 4;
        while (chunk < end) {
            u32 sum[kTall / 16][4] = {};
            int left = kExact / kAhead;
            for (; left > 0 && chunk + kAhead <= whole; --left, chunk += stride)
                add<true, kKeep>(sum, chunk, t);
            for (; left > 0 && chunk < end; --left, chunk += stride)
                add<false, kKeep>(sum, chunk, t);
#pragma unroll
            for (int r = 0; r < kTall / 8; ++r) {
                const u32 even = sum[r / 2][r % 2 * 2], odd = sum[r / 2][r % 2 * 2 + 1];
                total[r] += ((u64)even + ((u64)odd << 8)) << (16 * t);
            }
        }
#pragma unroll
        for (int r = 0; r < kTall / 8; ++r) {
            total[r] = add_across(total[r], 1);
            total[r] = add_across(total[r], 2);
        }
    }
};

// Sums of the rows at `row_at` over the chunks of this warp, number `place` of `across`, to `part`.
template <bool kKeep>
__device__ __forceinline__ void add_tile(const Job& job, const long long* row_at, u64* part,
                                         const uint4* weights, int place, int across) {
    const int lane = threadIdx.x & 31, g = lane >> 2;
    TallTile tile;
#pragma unroll
    for (int r = 0; r < kTall / 8; ++r)
        tile.row[r] = job.data + row_at[8 * r + g] + (lane & 3) * 16;
    tile.weights = weights + lane;
    tile.units = (u32)(job.lanes * job.lane_bytes / 16);
    tile.chunk = place * kAhead, tile.stride = across * kAhead;
    tile.add_all<kKeep>(lane & 3);
    if (lane % 4 == 0)
#pragma unroll
        for (int r = 0; r < kTall / 8; ++r) part[8 * r + g] = tile.total[r];
}

}  // namespace fingerprint
