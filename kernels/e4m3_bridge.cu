// e4m3_bridge: a paged E4M3 KV cache to contiguous FP16, exact.
//
//   k_out[b, p] = fp16(float(k_cache[block_table[b, p / page], p % page]) * k_scale), v_out alike
//
// Shapes      k_cache, v_cache uint8 [blocks, page, heads, dim], any strides, last one 1;
//             block_table int32 [B, max_blocks], row stride given; seq_lens int32 [B];
//             k_out, v_out FP16 [B * out_blocks, out_page, heads, dim], any strides, last one 1:
//             position p of sequence b goes to block b * out_blocks + p / out_page.
// Live part   p < seq_lens[b] is converted, p up to the next multiple of 16 becomes +0, the rest of
//             the output is not touched. Length 0 writes nothing.
// Launch      grid.y = B, grid.x covers the output's capacity, so one captured graph serves every
//             length. `wide` moves 8 elements at once: dim and all strides multiples of 8, bases
//             16-byte aligned. `narrow` takes the rest.
// Arithmetic  one FP32 product, one rounding to nearest even; at scale 1 nothing is rounded.
// Errors      bits of include/paging.cuh in *error; a sequence or page at fault is left out.
// Reference   verify.formats, table decoder; tests/gpu/test_bridge_contract.py.
#include <cuda_fp16.h>

#include "include/build.cuh"
#include "include/e4m3.cuh"
#include "include/paging.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;     // positions in flight a thread
constexpr int kTailStep = 16;  // lengths are filled up with zeros to a multiple of this

struct Geometry {
    int heads, dim, blocks, page, max_blocks, out_blocks, out_page;
    int table_stride;  // int32 elements from one row of the block table to the next
};

__device__ __forceinline__ int round_up(int x, int step) { return (x + step - 1) / step * step; }

// Length of sequence `b`, or 0 with an error bit when a table or an output could not hold it.
__device__ __forceinline__ int live_length(const int* seq_lens, int b, const Geometry& g,
                                           int* error) {
    const int length = seq_lens[b];
    const long long stored = (long long)g.max_blocks * g.page;
    const long long room = (long long)g.out_blocks * g.out_page;
    if (length >= 0 && length <= stored && round_up(length, kTailStep) <= room) return length;
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicOr(error, paging::kLengthOutOfRange);
    return 0;
}

// Element offset of position `p` in the cache, or -1 with an error bit.
struct Source {
    long long block;
    int slot;
    bool valid;
};

__device__ __forceinline__ Source find_source(const int* table, int p, const Geometry& g,
                                              int* error) {
    const int physical = __ldg(table + p / g.page);
    const bool valid = physical >= 0 && physical < g.blocks;
    if (!valid) atomicOr(error, paging::kPageOutOfRange);
    return {physical, p % g.page, valid};
}

}  // namespace

VERIFY_LAUNCH(e4m3_bridge_wide, kThreads, 0)
VERIFY_LAUNCH(e4m3_bridge_narrow, kThreads, 0)
// Elements of a position that a thread of each entry handles, and positions a thread takes.
extern "C" __device__ int e4m3_bridge_tile[2] = {8, kUnroll};

extern "C" __global__ void __launch_bounds__(kThreads)
    e4m3_bridge_wide(const unsigned char* __restrict__ k_cache,
                     const unsigned char* __restrict__ v_cache, const int* __restrict__ block_table,
                     const int* __restrict__ seq_lens, __half* __restrict__ k_out,
                     __half* __restrict__ v_out, int* __restrict__ error, float k_scale,
                     float v_scale, int heads, int dim, int blocks, int page, int max_blocks,
                     int out_blocks, int out_page, int table_stride, long long k_block,
                     long long k_token, long long k_head, long long v_block, long long v_token,
                     long long v_head, long long ko_block, long long ko_token, long long ko_head,
                     long long vo_block, long long vo_token, long long vo_head) {
    const Geometry g = {heads, dim, blocks, page, max_blocks, out_blocks, out_page, table_stride};
    const int b = blockIdx.y, length = live_length(seq_lens, b, g, error);
    const int end = round_up(length, kTailStep);
    const int vectors = heads * (dim / 8);  // of one position
    const int* table = block_table + (long long)b * table_stride;
    const long long first = (long long)blockIdx.x * kThreads * kUnroll + threadIdx.x;
    if (first / vectors >= end) return;

    uint2 k_codes[kUnroll], v_codes[kUnroll];
    long long k_to[kUnroll], v_to[kUnroll];
    bool write[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const long long index = first + u * kThreads;
        const int p = int(index / vectors), vector = int(index % vectors);
        const int head = vector / (dim / 8), column = vector % (dim / 8) * 8;
        write[u] = p < end;
        k_codes[u] = v_codes[u] = make_uint2(0, 0);  // code 0 is +0
        if (!write[u]) continue;
        const long long out_block = (long long)b * out_blocks + p / out_page;
        const int out_slot = p % out_page;
        k_to[u] = out_block * ko_block + out_slot * ko_token + head * ko_head + column;
        v_to[u] = out_block * vo_block + out_slot * vo_token + head * vo_head + column;
        if (p >= length) continue;
        const Source from = find_source(table, p, g, error);
        write[u] = from.valid;
        if (!from.valid) continue;
        k_codes[u] = __ldcs(reinterpret_cast<const uint2*>(
            k_cache + from.block * k_block + from.slot * k_token + head * k_head + column));
        v_codes[u] = __ldcs(reinterpret_cast<const uint2*>(
            v_cache + from.block * v_block + from.slot * v_token + head * v_head + column));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (!write[u]) continue;
        unsigned k_low[2], k_high[2], v_low[2], v_high[2];
        e4m3::decode4_scaled(k_codes[u].x, k_scale, k_low);
        e4m3::decode4_scaled(k_codes[u].y, k_scale, k_high);
        e4m3::decode4_scaled(v_codes[u].x, v_scale, v_low);
        e4m3::decode4_scaled(v_codes[u].y, v_scale, v_high);
        __stcs(reinterpret_cast<uint4*>(k_out + k_to[u]),
               make_uint4(k_low[0], k_low[1], k_high[0], k_high[1]));
        __stcs(reinterpret_cast<uint4*>(v_out + v_to[u]),
               make_uint4(v_low[0], v_low[1], v_high[0], v_high[1]));
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) e4m3_bridge_narrow(
    const unsigned char* __restrict__ k_cache, const unsigned char* __restrict__ v_cache,
    const int* __restrict__ block_table, const int* __restrict__ seq_lens,
    __half* __restrict__ k_out, __half* __restrict__ v_out, int* __restrict__ error, float k_scale,
    float v_scale, int heads, int dim, int blocks, int page, int max_blocks, int out_blocks,
    int out_page, int table_stride, long long k_block, long long k_token, long long k_head,
    long long v_block, long long v_token, long long v_head, long long ko_block, long long ko_token,
    long long ko_head, long long vo_block, long long vo_token, long long vo_head) {
    const Geometry g = {heads, dim, blocks, page, max_blocks, out_blocks, out_page, table_stride};
    const int b = blockIdx.y, length = live_length(seq_lens, b, g, error);
    const int end = round_up(length, kTailStep);
    const int* table = block_table + (long long)b * table_stride;
    const long long index = (long long)blockIdx.x * kThreads + threadIdx.x;
    const int p = int(index / (heads * dim)), element = int(index % (heads * dim));
    if (p >= end) return;
    const int head = element / dim, column = element % dim;
    unsigned k_bits[2] = {0, 0}, v_bits[2] = {0, 0};
    if (p < length) {
        const Source from = find_source(table, p, g, error);
        if (!from.valid) return;
        e4m3::decode4_scaled(
            k_cache[from.block * k_block + from.slot * k_token + head * k_head + column], k_scale,
            k_bits);
        e4m3::decode4_scaled(
            v_cache[from.block * v_block + from.slot * v_token + head * v_head + column], v_scale,
            v_bits);
    }
    const long long out_block = (long long)b * out_blocks + p / out_page;
    const int out_slot = p % out_page;
    k_out[out_block * ko_block + out_slot * ko_token + head * ko_head + column] =
        __ushort_as_half(k_bits[0] & 0xffff);
    v_out[out_block * vo_block + out_slot * vo_token + head * vo_head + column] =
        __ushort_as_half(v_bits[0] & 0xffff);
}
