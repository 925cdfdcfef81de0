// decode_wave: attention of one new token a sequence over a paged E4M3 cache, split over keys.
//
//   out[b, h, :] = v_scale * sum_j softmax_j(k_scale * scale * q[b, h, :] . k[b, j, :]) v[b, j, :],
//   j < seq_lens[b], head h reading key head h / G, G = QUERY_HEADS / KEY_HEADS
//
// Shapes      q, out FP16 [B, QUERY_HEADS, 256], contiguous, 16-byte aligned; k_cache, v_cache
//             uint8 [blocks, page, KEY_HEADS, 256], any strides (multiples of 16, last one 1), page
//             a multiple of 16; block_table int32 [B, max_blocks]; seq_lens int32 [B].
// Partitions  the keys of a sequence in runs of one length, chosen by the sequence's own length
//             from the table `kWaves` (or `partition`, if not 0); a multiple of 64 each.
// Launch      partials: grid = (most partitions any length can need, KEY_HEADS, B); a block without
//             work leaves at once, so one captured graph serves every length. merge: grid =
//             (256 / kSlice, QUERY_HEADS, B).
// Accumulate  QK^T: four tensor-core chains over 64 dimensions each, added in FP32 ascending.
//             t = s * log2_scale, log2_scale = fp32(scale * k_scale * log2(e)): one FP32 product.
//             PV: one chain for each 64 keys from zero, added in FP32 registers, o * alpha + block.
// Weights     p = 2^(t - m + 12), FP32, split into two FP16 numbers (22 bits): both halves are rows
//             of one 16-row tile, rows 0-7 high, rows 8-15 low.
// Mass        l sums the FP32 p (unrounded mass): a lane adds its two keys of a block, then
//             l = l * alpha + sum; the 32 lanes are added as a tree at the end of a partition.
// Merge       partitions ascending, FP32: M = max m_i; w_i = 2^(m_i - M); o = sum fma(o_i, w_i),
//             l = sum of the rounded l_i w_i;
//             out = fp16(o / l * v_scale). Length 0 gives +0.
// Reference   verify.reference, attention in FP64; tests/gpu/test_decode_contract.py.
#include <cuda_fp16.h>
#include <mma.h>

#include "include/build.cuh"
#include "include/decode_wave.cuh"
#include "include/e4m3.cuh"
#include "include/fragments.cuh"
#include "include/paging.cuh"
#include "include/shapes.cuh"
#include "include/softmax.cuh"
#include "include/tiles.cuh"

using namespace nvcuda;

static_assert(shapes::head_group_admitted(QUERY_HEADS, KEY_HEADS), "see include/shapes.cuh");

namespace {

constexpr int kDim = shapes::kHeadDim;
using wave::kGroup;
using wave::kPartial;
using wave::kRows;

constexpr int kKeys = 64;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kKeyTiles = kKeys / 32, kDimParts = kWarps / kKeyTiles;  // warps = 2 x 4 for QK^T
constexpr int kPartDim = kDim / kDimParts;
constexpr int kWarpColumnTiles = kDim / 16 / kWarps;
constexpr int kStride = tiles::kStride;
constexpr int kScoreStride = kKeys + 4;
constexpr int kWeightStride = kKeys + 8;
constexpr int kOutStride = kDim + 4;

// K and V in buffers of their own where a block may use more than 64 KiB.
constexpr bool kSeparateV = __CUDA_ARCH__ != 750;

struct Shared {
    __half q[kRows * kStride];
    __half k[kKeys * kStride];
    __half v_apart[kSeparateV ? kKeys * kStride : 8];
    float scores[kDimParts][kRows * kScoreStride];
    __half weights[2 * kRows * kWeightStride];
    float alpha[2 * kRows];

    __device__ __half* v() { return kSeparateV ? v_apart : k; }
    __device__ float* output() { return reinterpret_cast<float*>(k); }  // [16][kOutStride]
};
static_assert(2 * kRows * kOutStride * 4 <= kKeys * kStride * 2, "output() lies over k");

// Where the keys of a tile lie: one place for each 16 keys, since pages and tiles are multiples of
// 16. The same in every thread. block < 0: nothing to read there.
struct Places {
    static constexpr int kGroups = kKeys / 16;
    int block[kGroups], slot[kGroups];
};

// Walks the block table from `key` on, a tile at a time.
struct PageWalk {
    const int* table;
    int page, blocks, end, key, logical, slot;
    int* error;

    __device__ __forceinline__ void start_at(int first) {
        key = first, logical = first / page, slot = first % page;
    }

    __device__ __forceinline__ Places next() {
        Places found;
#pragma unroll
        for (int g = 0; g < Places::kGroups; ++g) {
            found.block[g] = key < end ? __ldg(table + logical) : -1;
            found.slot[g] = slot;
            key += 16, slot += 16;
            if (slot == page) slot = 0, ++logical;
        }
        return found;
    }

    // Ids outside the cache become "nothing to read"; late, so that the loads of next() may travel.
    __device__ __forceinline__ void check(Places& places) const {
        bool wrong = false;
#pragma unroll
        for (int g = 0; g < Places::kGroups; ++g) {
            wrong |= places.block[g] < -1 || places.block[g] >= blocks;
            places.block[g] = unsigned(places.block[g]) < unsigned(blocks) ? places.block[g] : -1;
        }
        if (wrong && threadIdx.x == 0) atomicOr(error, paging::kPageOutOfRange);
    }
};

// One cache as a thread sees it: `base` is its first code of the first token of its warp.
struct CacheView {
    const unsigned char* base;
    long long block_stride, token_stride;

    __device__ CacheView(const unsigned char* cache, int key_head, long long block, long long token,
                         long long head)
        : base(cache + key_head * head + threadIdx.x / 32 * token + threadIdx.x % 32 * 8),
          block_stride(block),
          token_stride(token) {}
};

// Codes of a 64 x 256 tile on their way from the cache to shared memory. A warp takes a whole row,
// 8 codes a lane, so that its 16-byte stores of FP16 numbers fill the banks without conflict.
struct CodeTile {
    static constexpr int kPasses = kKeys / kWarps, kHalves = 16 / kWarps;
    uint2 codes[kPasses];

    // Rows at or beyond `live` become zeros.
    __device__ __forceinline__ void load(const CacheView& cache, const Places& places, int live) {
#pragma unroll
        for (int g = 0; g < Places::kGroups; ++g) {
            const unsigned char* group = cache.base + places.block[g] * cache.block_stride +
                                         places.slot[g] * cache.token_stride;
#pragma unroll
            for (int half = 0; half < kHalves; ++half) {
                const int row = g * 16 + half * kWarps + threadIdx.x / 32;
                uint2 read = make_uint2(0, 0);
                if (row < live && places.block[g] >= 0)
                    read = __ldcs(
                        reinterpret_cast<const uint2*>(group + half * kWarps * cache.token_stride));
                codes[g * kHalves + half] = read;
            }
        }
    }

    __device__ __forceinline__ void store(__half* shared) const {
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
            unsigned low[2], high[2];
            e4m3::decode4(codes[i].x, low);
            e4m3::decode4(codes[i].y, high);
            const int row = threadIdx.x / 32 + i * kWarps;
            *reinterpret_cast<uint4*>(shared + row * kStride + threadIdx.x % 32 * 8) =
                make_uint4(low[0], low[1], high[0], high[1]);
        }
    }
};
static_assert(16 % kWarps == 0, "the rows of a pass lie in one group of 16 keys");

using FragmentK = wmma::fragment<wmma::matrix_a, 32, 8, 16, __half, wmma::row_major>;
using FragmentQ = wmma::fragment<wmma::matrix_b, 32, 8, 16, __half, wmma::col_major>;
using FragmentS = wmma::fragment<wmma::accumulator, 32, 8, 16, float>;
using FragmentP = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentV = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major>;
using FragmentO = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

__device__ __forceinline__ void load_queries(Shared& shared, const __half* q) {
    for (int i = threadIdx.x; i < kRows * kDim / 8; i += kThreads) {
        const int row = i / (kDim / 8), column = i % (kDim / 8) * 8;
        *reinterpret_cast<uint4*>(shared.q + row * kStride + column) =
            row < kGroup ? *reinterpret_cast<const uint4*>(q + row * kDim + column)
                         : make_uint4(0, 0, 0, 0);
    }
}

// Partial scores of 32 keys x 8 heads over 64 dimensions, stored as [part][head][key].
__device__ __forceinline__ void compute_scores(Shared& shared) {
    const int warp = threadIdx.x / 32, key_tile = warp % kKeyTiles, part = warp / kKeyTiles;
    FragmentS s;
    wmma::fill_fragment(s, 0.0f);
#pragma unroll
    for (int d = 0; d < kPartDim; d += 16) {
        FragmentK k;
        FragmentQ q;
        wmma::load_matrix_sync(k, shared.k + key_tile * 32 * kStride + part * kPartDim + d,
                               kStride);
        wmma::load_matrix_sync(q, shared.q + part * kPartDim + d, kStride);
        wmma::mma_sync(s, k, q, s);
    }
    wmma::store_matrix_sync(shared.scores[part] + key_tile * 32, s, kScoreStride,
                            wmma::mem_col_major);
}

// One warp a head; a lane has two neighbouring keys. `live` keys of the tile count.
struct HeadState {
    float maximum, mass;

    __device__ __forceinline__ void update(Shared& shared, int live, float log2_scale) {
        const int head = threadIdx.x / 32, lane = threadIdx.x % 32, key = lane * 2;
        float2 s = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int part = 0; part < kDimParts; ++part) {
            const float2 x =
                *reinterpret_cast<const float2*>(shared.scores[part] + head * kScoreStride + key);
            s.x += x.x, s.y += x.y;
        }
        const float tx = key < live ? s.x * log2_scale : softmax::negative_infinity();
        const float ty = key + 1 < live ? s.y * log2_scale : softmax::negative_infinity();
        float top = fmaxf(tx, ty);
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
        const float before = maximum;
        maximum = fmaxf(maximum, top);
        const float alpha = softmax::exp2_approx(before - maximum);
        const float px = softmax::exp2_approx(tx - maximum + softmax::kShift);
        const float py = softmax::exp2_approx(ty - maximum + softmax::kShift);
        mass = fmaf(mass, alpha, px + py);
        __half2 high, low;
        softmax::split(px, high.x, low.x);
        softmax::split(py, high.y, low.y);
        *reinterpret_cast<__half2*>(shared.weights + head * kWeightStride + key) = high;
        *reinterpret_cast<__half2*>(shared.weights + (kRows + head) * kWeightStride + key) = low;
        if (lane == 0) shared.alpha[head] = shared.alpha[kRows + head] = alpha;
    }
};

// o = o * alpha + P V: 16 rows (8 high, 8 low) x 32 columns of this warp.
__device__ __forceinline__ void add_block(Shared& shared, const fragments::Map& map,
                                          float (&o)[kWarpColumnTiles][8]) {
    const int warp = threadIdx.x / 32;
    const float alpha[2] = {shared.alpha[map.row[0]], shared.alpha[map.row[1]]};
    FragmentP p[kKeys / 16];
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k)
        wmma::load_matrix_sync(p[k], shared.weights + 16 * k, kWeightStride);
#pragma unroll
    for (int n = 0; n < kWarpColumnTiles; ++n) {
        FragmentO block;
        wmma::fill_fragment(block, 0.0f);
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k) {
            FragmentV v;
            wmma::load_matrix_sync(
                v, shared.v() + 16 * k * kStride + (warp * kWarpColumnTiles + n) * 16, kStride);
            wmma::mma_sync(block, p[k], v, block);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) o[n][i] = fmaf(o[n][i], alpha[i / 2 % 2], block.x[i]);
    }
}

}  // namespace

VERIFY_LAUNCH(decode_wave_partials, kThreads, sizeof(Shared))

extern "C" __global__ void __launch_bounds__(kThreads)
    decode_wave_partials(const __half* __restrict__ q, const unsigned char* __restrict__ k_cache,
                         const unsigned char* __restrict__ v_cache,
                         const int* __restrict__ block_table, const int* __restrict__ seq_lens,
                         float* __restrict__ partials, int* __restrict__ error, float log2_scale,
                         int blocks, int page, int max_blocks, int table_stride, int partition,
                         long long k_block, long long k_token, long long k_head, long long v_block,
                         long long v_token, long long v_head) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const int part = blockIdx.x, key_head = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32;
    const int length = wave::live_length(seq_lens, b, (long long)max_blocks * page, error);
    const int step = wave::partition_length(length, partition), start = part * step;
    if (start >= length) return;
    const int end = min(length, start + step);
    if (threadIdx.x == 0 && (length + step - 1) / step > int(gridDim.x))
        atomicOr(error, paging::kLengthOutOfRange);

    const CacheView k_view(k_cache, key_head, k_block, k_token, k_head);
    const CacheView v_view(v_cache, key_head, v_block, v_token, v_head);
    PageWalk walk = {block_table + (long long)b * table_stride, page, blocks, end, 0, 0, 0, error};
    walk.start_at(start);
    fragments::Map map;
    map.discover<kThreads>(shared.scores[0]);
    load_queries(shared, q + ((long long)b * QUERY_HEADS + key_head * kGroup) * kDim);
    CodeTile k_codes, v_codes;
    Places places = walk.next();
    walk.check(places);
    k_codes.load(k_view, places, end - start);
    v_codes.load(v_view, places, end - start);
    places = walk.next();
    HeadState state = {softmax::negative_infinity(), 0.0f};
    float o[kWarpColumnTiles][8] = {};
#pragma unroll 1
    for (int key0 = start; key0 < end; key0 += kKeys) {
        const int live_next = end - key0 - kKeys;
        walk.check(places);
        k_codes.store(shared.k);
        k_codes.load(k_view, places, live_next);
        if (kSeparateV) {
            v_codes.store(shared.v());
            v_codes.load(v_view, places, live_next);
        }
        __syncthreads();
        const Places after = walk.next();
        compute_scores(shared);
        __syncthreads();
        if (!kSeparateV) {
            v_codes.store(shared.v());
            v_codes.load(v_view, places, live_next);
        }
        places = after;
        state.update(shared, end - key0, log2_scale);
        __syncthreads();
        add_block(shared, map, o);
        __syncthreads();
    }

#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) state.mass += __shfl_xor_sync(~0u, state.mass, mask);
    float* target =
        partials + ((size_t(b) * QUERY_HEADS + key_head * kGroup) * gridDim.x + part) * kPartial;
    const size_t head_stride = size_t(gridDim.x) * kPartial;
    if (warp < kGroup && threadIdx.x % 32 == 0) {
        target[warp * head_stride + kDim] = state.maximum;
        target[warp * head_stride + kDim + 1] = state.mass;
    }
#pragma unroll
    for (int n = 0; n < kWarpColumnTiles; ++n) {
        FragmentO out;
#pragma unroll
        for (int i = 0; i < 8; ++i) out.x[i] = o[n][i];
        wmma::store_matrix_sync(shared.output() + (warp * kWarpColumnTiles + n) * 16, out,
                                kOutStride, wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kGroup * kDim; i += kThreads) {
        const int head = i / kDim, d = i % kDim;
        target[head * head_stride + d] = shared.output()[head * kOutStride + d] +
                                         shared.output()[(kRows + head) * kOutStride + d];
    }
}
