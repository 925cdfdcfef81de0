// What the decode kernels share: the partition table, the form of a partial result, and the merge.
#pragma once

#include <cuda_fp16.h>

#include "include/build.cuh"
#include "include/paging.cuh"
#include "include/shapes.cuh"
#include "include/softmax.cuh"

static_assert(shapes::head_group_admitted(QUERY_HEADS, KEY_HEADS), "see include/shapes.cuh");

namespace wave {

constexpr int kDim = shapes::kHeadDim;
constexpr int kGroup = QUERY_HEADS / KEY_HEADS;
constexpr int kRows = 8;  // query heads of a key head, filled up with zeros
static_assert(kGroup <= kRows, "a group fills half of a 16-row tile");

// Partition length of a sequence: the first row whose `below` exceeds its length.
struct Wave {
    int below, partition;
};
constexpr int kWaveCount = 5;
__device__ constexpr Wave kWaves[kWaveCount] = {
    {12288, 64}, {49152, 256}, {98304, 512}, {196608, 896}, {0x7fffffff, 1664}};
static_assert(kWaves[0].below < kWaves[1].below && kWaves[1].below < kWaves[2].below &&
                  kWaves[2].below < kWaves[3].below && kWaves[3].below < kWaves[4].below,
              "thresholds strictly increase");

__device__ __forceinline__ int partition_length(int length, int partition) {
    if (partition > 0) return partition;
#pragma unroll
    for (int i = 0; i < kWaveCount - 1; ++i)
        if (length < kWaves[i].below) return kWaves[i].partition;
    return kWaves[kWaveCount - 1].partition;
}

// Length of sequence b, or 0 with an error bit when its table could not hold it.
__device__ __forceinline__ int live_length(const int* seq_lens, int b, long long capacity,
                                           int* error) {
    const int length = seq_lens[b];
    if (length >= 0 && length <= capacity) return length;
    if (threadIdx.x == 0) atomicOr(error, paging::kLengthOutOfRange);
    return 0;
}

// A partial result is 256 sums, then m, then l; partials lie as [B][QUERY_HEADS][partitions].
constexpr int kPartial = kDim + 2;

constexpr int kMergeThreads = 256, kMergeWarps = kMergeThreads / 32;
constexpr int kSlice = 32;  // output columns of a merge block
constexpr int kMostPartitions = 256;
static_assert(kMostPartitions == kMergeThreads,
              "in the merge a thread holds one partition's m and l");

// The largest `x` of the block, in every thread.
__device__ __forceinline__ float block_maximum(float x, float* warp_maximum) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, mask));
    if (threadIdx.x % 32 == 0) warp_maximum[threadIdx.x / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMergeWarps; ++i) x = fmaxf(x, warp_maximum[i]);
    return x;
}

}  // namespace wave

VERIFY_LAUNCH(decode_wave_merge, wave::kMergeThreads, 0)
// {FP32 elements of a partial result, output columns of a merge block, most partitions}
extern "C" __device__ int decode_wave_sizes[3] = {wave::kPartial, wave::kSlice,
                                                  wave::kMostPartitions};
// {below, partition length} of each wave
extern "C" __device__ int decode_wave_table[2 * wave::kWaveCount] = {
    wave::kWaves[0].below,     wave::kWaves[0].partition, wave::kWaves[1].below,
    wave::kWaves[1].partition, wave::kWaves[2].below,     wave::kWaves[2].partition,
    wave::kWaves[3].below,     wave::kWaves[3].partition, wave::kWaves[4].below,
    wave::kWaves[4].partition};

extern "C" __global__ void __launch_bounds__(wave::kMergeThreads)
    decode_wave_merge(const float* __restrict__ partials, const int* __restrict__ seq_lens,
                      __half* __restrict__ out, float v_scale, int partitions, int page,
                      int max_blocks, int partition) {
    using namespace wave;
    __shared__ float2 weight[kMostPartitions];  // e^(m_i - M), l_i e^(m_i - M)
    __shared__ float values[kMostPartitions][kSlice];
    __shared__ float warp_maximum[kMergeWarps];
    const int slice = blockIdx.x, head = blockIdx.y, b = blockIdx.z;
    int length = seq_lens[b];
    if (length < 0 || length > (long long)max_blocks * page) length = 0;
    const int step = partition_length(length, partition);
    const int used = min(partitions, (length + step - 1) / step);
    const float* base = partials + (size_t(b) * QUERY_HEADS + head) * partitions * kPartial;

    // All loads travel together: they are the whole cost of this kernel.
    const bool mine = threadIdx.x < used;
    const float* state = base + size_t(mine ? threadIdx.x : 0) * kPartial + kDim;
    const float maximum = used > 0 && mine ? state[0] : softmax::negative_infinity();
    const float mass = used > 0 && mine ? state[1] : 0.0f;
    const int column = threadIdx.x % kSlice, group = threadIdx.x / kSlice;
    constexpr int kGroups = kMergeThreads / kSlice, kEach = kMostPartitions / kGroups;
    float read[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int i = group + n * kGroups;
        read[n] = i < used ? base[size_t(i) * kPartial + slice * kSlice + column] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) values[group + n * kGroups][column] = read[n];
    const float top = block_maximum(maximum, warp_maximum);
    const float factor = softmax::exp2_approx(maximum - top);  // 0 where there is no partition
    weight[threadIdx.x] = mine ? make_float2(factor, mass * factor) : make_float2(0.0f, 0.0f);
    __syncthreads();
    if (threadIdx.x >= kSlice) return;
    float sum = 0.0f, total = 0.0f;
#pragma unroll 8
    for (int i = 0; i < used; ++i) {
        sum = fmaf(values[i][column], weight[i].x, sum);
        total += weight[i].y;
    }
    const float result = used > 0 ? __fmul_rn(__fdiv_rn(sum, total), v_scale) : 0.0f;
    out[(size_t(b) * QUERY_HEADS + head) * kDim + slice * kSlice + column] =
        __float2half_rn(result);
}
