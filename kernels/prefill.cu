// prefill: causal attention of a chunk of queries over a long context, exact prefix and tail.
//
//   out[i, h, :] = sum_j softmax_j(q[i, h, :] . k[j, h / G, :] / 16) v[j, h / G, :],
//   j <= KV - Q + i,  G = QUERY_HEADS / KEY_HEADS
//
// Shapes      q, out [Q, QUERY_HEADS, 256], k, v [KV, KEY_HEADS, 256], FP16, contiguous, 16-byte
//             aligned. Q a multiple of 64, Q < KV, KV a multiple of 32. Head counts: shapes.cuh.
// Launch      one block for kRows query rows of one head; grid.x = QUERY_HEADS * ceil(Q / kRows),
//             the blocks with most keys first. Shared memory and threads: prefill_launch.
// Accumulate  QK^T: one tensor-core chain over D, ascending, FP32. PV: one chain for each 64 keys
//             from zero, then added to the running sum in FP32 registers with one FMA, o * alpha +
//             block: a tensor core truncates, so a chain over all keys would drift with length.
// Softmax     in log2 units: t = s * log2(e) / 16, FP32; running maximum m over blocks of 64 keys,
//             ascending from key 0, through the prefix and on into the tail without a seam;
//             p = 2^(t - m + 12); alpha = 2^(m_old - m_new).
// Mass        SPLIT_P=0: l sums the FP16-rounded p, as the product with V uses them (rounded mass);
//             SPLIT_P=1: p = high + low, two FP16 numbers and two products with V; l sums FP32 p
//             (unrounded mass). Within a block of 64 keys a thread adds 4 neighbours pairwise, then
//             l = l * alpha + sum; the 16 threads of a row are added as a tree at the end.
// Finish      one IEEE division o / l and one rounding to FP16.
// Masked      a key behind the mask is never read into a sum, whatever its K or V holds, NaN too.
//             A visible Inf or NaN of V in a block with masked keys is added with weight 1.
// Reference   verify.reference, attention in FP64; tests/gpu/test_prefill_contract.py.
#include <cuda_fp16.h>
#include <mma.h>

#include "include/build.cuh"
#include "include/fragments.cuh"
#include "include/shapes.cuh"
#include "include/softmax.cuh"
#include "include/tiles.cuh"

using namespace nvcuda;

static_assert(shapes::head_group_admitted(QUERY_HEADS, KEY_HEADS), "see include/shapes.cuh");

namespace {

constexpr int kDim = shapes::kHeadDim;
constexpr int kKeys = 64;  // keys in a block

// Rows of a block and 16-row fragments of a warp, by what shared memory and registers hold.
#if defined(ROWS)
constexpr int kRows = ROWS, kRowFragments = ROW_FRAGMENTS;
#elif __CUDA_ARCH__ >= 900
constexpr int kRows = 128, kRowFragments = 2;
#elif __CUDA_ARCH__ == 750
constexpr int kRows = 32, kRowFragments = 1;
#else
constexpr int kRows = 64, kRowFragments = 1;
#endif

// A pair of warps shares kRowFragments * 16 rows: each computes the scores of half the keys, then
// the output of half the columns.
constexpr int kWarps = kRows / (16 * kRowFragments) * 2;
constexpr int kThreads = kWarps * 32;
constexpr int kWarpRows = 16 * kRowFragments;
constexpr int kWarpKeyTiles = kKeys / 2 / 16;
constexpr int kWarpColumnTiles = kDim / 2 / 16;
constexpr int kKeySteps = kKeys / 16;
// In the softmax half a warp works on one row.
constexpr int kSoftmaxRows = kRows / kWarps / 2;

constexpr int kStride = tiles::kStride;
constexpr int kScoreStride = kKeys + 4;          // floats
constexpr int kWeightStride = kScoreStride * 2;  // FP16: a row of P lies over its row of scores
constexpr bool kSeparateV = tiles::kAsyncCopy;   // else K and V take turns in one buffer

constexpr float kLogScale = 0.0625f * 1.44269504088896340736f;  // log2(e) / 16

struct Shared {
    __half q[kRows * kStride];
    __half k[kKeys * kStride];
    __half v_apart[kSeparateV ? kKeys * kStride : 8];
    float scores[kRows * kScoreStride];
    float alpha[kRows];
    float mass[kRows];

    __device__ __half* v() { return kSeparateV ? v_apart : k; }
    // P: 64 high parts, then 64 low parts, in the space of 68 scores.
    __device__ __half* weights() { return reinterpret_cast<__half*>(scores); }
};

using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major>;
using FragmentK = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major>;
using FragmentV = wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Where this block is: query rows from `row0`, and how many keys precede the chunk.
struct Place {
    int head, row0, prefix, kv_len;

    // The last key that block row `row` sees, counted from key `key0`.
    __device__ int last_visible(int row, int key0) const { return prefix + row0 + row - key0; }
    __device__ bool has_masked_keys(int key0) const { return last_visible(0, key0) < kKeys - 1; }
};

// S = Q K^T for the kWarpRows x 32 part of this warp, stored as FP32.
__device__ __forceinline__ void compute_scores(Shared& shared, int row_base, int half) {
    FragmentC scores[kRowFragments][kWarpKeyTiles];
#pragma unroll
    for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
        for (int n = 0; n < kWarpKeyTiles; ++n) wmma::fill_fragment(scores[r][n], 0.0f);
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
        FragmentA q[kRowFragments];
        FragmentK k[kWarpKeyTiles];
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r)
            wmma::load_matrix_sync(q[r], shared.q + (row_base + 16 * r) * kStride + d, kStride);
#pragma unroll
        for (int n = 0; n < kWarpKeyTiles; ++n)
            wmma::load_matrix_sync(k[n], shared.k + (half * 32 + 16 * n) * kStride + d, kStride);
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
            for (int n = 0; n < kWarpKeyTiles; ++n)
                wmma::mma_sync(scores[r][n], q[r], k[n], scores[r][n]);
    }
#pragma unroll
    for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
        for (int n = 0; n < kWarpKeyTiles; ++n)
            wmma::store_matrix_sync(
                shared.scores + (row_base + 16 * r) * kScoreStride + half * 32 + 16 * n,
                scores[r][n], kScoreStride, wmma::mem_row_major);
}

// Running maximum and mass of the rows that a half-warp owns: row 2 * i + lane / 16 of its warp.
struct RowState {
    float maximum[kSoftmaxRows], mass[kSoftmaxRows];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kSoftmaxRows; ++i)
            maximum[i] = softmax::negative_infinity(), mass[i] = 0.0f;
    }
};

__device__ __forceinline__ float max_of_row(float x) {
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}

__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}

// Write the weights of four neighbouring keys and return what they add to the mass.
__device__ __forceinline__ float store_weights(__half* target, const float (&p)[4]) {
    union Four {
        __half h[4];
        uint2 word;
    } high, low;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        if (SPLIT_P)
            softmax::split(p[c], high.h[c], low.h[c]);
        else
            high.h[c] = __float2half_rn(p[c]);
    }
    *reinterpret_cast<uint2*>(target) = high.word;
    if (SPLIT_P) {
        *reinterpret_cast<uint2*>(target + kKeys) = low.word;
        return (p[0] + p[1]) + (p[2] + p[3]);
    }
    return (__half2float(high.h[0]) + __half2float(high.h[1])) +
           (__half2float(high.h[2]) + __half2float(high.h[3]));
}

// Scores to weights, in place, for the rows of this warp.
__device__ __forceinline__ void update_rows(Shared& shared, RowState& state, const Place& place,
                                            int key0) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % 16 * 4;
    const bool masked = place.has_masked_keys(key0);
#pragma unroll
    for (int i = 0; i < kSoftmaxRows; ++i) {
        const int row = warp * kSoftmaxRows * 2 + 2 * i + lane / 16;
        const float4 read =
            *reinterpret_cast<const float4*>(shared.scores + row * kScoreStride + column);
        float s[4] = {read.x, read.y, read.z, read.w};
        if (masked) {
            const int last = place.last_visible(row, key0);
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (column + c > last) s[c] = softmax::negative_infinity();
        }
        const float top = max_of_row(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
        const float maximum = fmaxf(state.maximum[i], top * kLogScale);
        const float alpha = softmax::exp2_approx(state.maximum[i] - maximum);
        float p[4];
#pragma unroll
        for (int c = 0; c < 4; ++c)
            p[c] = softmax::exp2_approx(fmaf(s[c], kLogScale, softmax::kShift - maximum));
        __syncwarp();  // the row's scores are all read: its weights may overwrite them
        const float added = store_weights(shared.weights() + row * kWeightStride + column, p);
        state.mass[i] = fmaf(state.mass[i], alpha, added);
        state.maximum[i] = maximum;
        if (lane % 16 == 0) shared.alpha[row] = alpha;
    }
}

// Set every Inf and NaN of the V tile to zero; true, in all threads, if there was one. 0 * NaN in a
// tensor core would reach the rows for which that key is masked.
__device__ __forceinline__ bool remove_not_finite(__half* v) {
    bool found = false;
    for (int i = threadIdx.x; i < kKeys * kDim; i += kThreads) {
        __half& x = v[i / kDim * kStride + i % kDim];
        if (softmax::not_finite(x)) x = __ushort_as_half(0), found = true;
    }
    return __syncthreads_or(found);
}

struct Output {
    float o[kRowFragments][kWarpColumnTiles][8];

    __device__ void clear() {
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
            for (int n = 0; n < kWarpColumnTiles; ++n)
#pragma unroll
                for (int i = 0; i < 8; ++i) o[r][n][i] = 0.0f;
    }

    // o = o * alpha + P V for the kWarpRows x 128 part of this warp.
    __device__ __forceinline__ void add_block(Shared& shared, const fragments::Map& map,
                                              int row_base, int half) {
        FragmentA high[kRowFragments][kKeySteps], low[kRowFragments][SPLIT_P ? kKeySteps : 1];
        float alpha[kRowFragments][2];
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r) {
            const int row = row_base + 16 * r;
#pragma unroll
            for (int k = 0; k < kKeySteps; ++k) {
                const __half* p = shared.weights() + row * kWeightStride + 16 * k;
                wmma::load_matrix_sync(high[r][k], p, kWeightStride);
                if (SPLIT_P)
                    wmma::load_matrix_sync(low[r][SPLIT_P ? k : 0], p + kKeys, kWeightStride);
            }
            alpha[r][0] = shared.alpha[row + map.row[0]];
            alpha[r][1] = shared.alpha[row + map.row[1]];
        }
#pragma unroll
        for (int n = 0; n < kWarpColumnTiles; ++n) {
            FragmentC block[kRowFragments];
#pragma unroll
            for (int r = 0; r < kRowFragments; ++r) wmma::fill_fragment(block[r], 0.0f);
#pragma unroll
            for (int k = 0; k < kKeySteps; ++k) {
                FragmentV v;
                wmma::load_matrix_sync(v, shared.v() + 16 * k * kStride + half * 128 + 16 * n,
                                       kStride);
#pragma unroll
                for (int r = 0; r < kRowFragments; ++r) {
                    wmma::mma_sync(block[r], high[r][k], v, block[r]);
                    if (SPLIT_P) wmma::mma_sync(block[r], low[r][SPLIT_P ? k : 0], v, block[r]);
                }
            }
#pragma unroll
            for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    o[r][n][i] = fmaf(o[r][n][i], alpha[r][i / 2 % 2], block[r].x[i]);
        }
    }

    // Add, with weight 1, every visible Inf and NaN of V that remove_not_finite took out.
    __device__ void add_not_finite(const __half* v, const fragments::Map& map, const Place& place,
                                   int key0, int row_base, int half) {
#pragma unroll 1
        for (int key = 0; key < min(kKeys, place.kv_len - key0); ++key) {
            const __half* source = v + size_t(key) * (KEY_HEADS * kDim) + half * 128;
#pragma unroll
            for (int n = 0; n < kWarpColumnTiles; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const __half x = source[16 * n + map.column[c / 2] + c % 2];
                    if (!softmax::not_finite(x)) continue;
#pragma unroll
                    for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
                        for (int side = 0; side < 2; ++side) {
                            const int row = row_base + 16 * r + map.row[side];
                            if (key <= place.last_visible(row, key0))
                                o[r][n][c / 2 * 4 + side * 2 + c % 2] += __half2float(x);
                        }
                }
        }
    }

    __device__ void write(const Shared& shared, const fragments::Map& map, __half* out,
                          int row_base, int half, int valid_rows) const {
#pragma unroll
        for (int r = 0; r < kRowFragments; ++r)
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const int row = row_base + 16 * r + map.row[side];
                if (row >= valid_rows) continue;
                const float mass = shared.mass[row];
                __half* target = out + size_t(row) * (QUERY_HEADS * kDim) + half * 128;
#pragma unroll
                for (int n = 0; n < kWarpColumnTiles; ++n)
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        const int i = c * 4 + side * 2;
                        *reinterpret_cast<__half2*>(target + 16 * n + map.column[c]) =
                            __floats2half2_rn(__fdiv_rn(o[r][n][i], mass),
                                              __fdiv_rn(o[r][n][i + 1], mass));
                    }
            }
    }
};

}  // namespace

VERIFY_LAUNCH(prefill, kThreads, sizeof(Shared))
extern "C" __device__ int prefill_tile[2] = {kRows, kKeys};

extern "C" __global__ void __launch_bounds__(kThreads)
    prefill(const __half* __restrict__ q, const __half* __restrict__ k,
            const __half* __restrict__ v, __half* __restrict__ out, int q_len, int kv_len) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);

    const int row_blocks = (q_len + kRows - 1) / kRows;
    const Place place = {int(blockIdx.x) % QUERY_HEADS,
                         (row_blocks - 1 - int(blockIdx.x) / QUERY_HEADS) * kRows, kv_len - q_len,
                         kv_len};
    const int valid_rows = min(kRows, q_len - place.row0);
    const int warp = threadIdx.x / 32, half = warp % 2, row_base = warp / 2 * kWarpRows;
    const int key_stride = KEY_HEADS * kDim, key_head = place.head / (QUERY_HEADS / KEY_HEADS);
    const size_t first = (size_t(place.row0) * QUERY_HEADS + place.head) * kDim;
    k += key_head * kDim;
    v += key_head * kDim;

    fragments::Map map;
    map.discover<kThreads>(shared.scores);
    tiles::TileCopy<kRows, kThreads> q_copy;
    q_copy.begin(shared.q, q + first, QUERY_HEADS * kDim, valid_rows);
    q_copy.store(shared.q);
    tiles::TileCopy<kKeys, kThreads> copy;
    copy.begin(shared.k, k, key_stride, kv_len);
    copy.store(shared.k);
    tiles::wait_copies<0>();

    RowState state;
    state.clear();
    Output output;
    output.clear();
    const int keys_seen = place.prefix + place.row0 + valid_rows;
    for (int key0 = 0; key0 < keys_seen; key0 += kKeys) {
        const size_t here = size_t(key0) * key_stride, next = here + size_t(kKeys) * key_stride;
        const bool last = key0 + kKeys >= keys_seen;
        __syncthreads();  // K is here, and the block before is done with V
        copy.begin(shared.v(), v + here, key_stride, kv_len - key0);
        compute_scores(shared, row_base, half);
        __syncthreads();  // all scores are stored, and K is free
        copy.store(shared.v());
        if (!last) copy.begin(shared.k, k + next, key_stride, kv_len - key0 - kKeys);
        if (last) tiles::commit_copies();  // so that one group may stay pending below, always
        update_rows(shared, state, place, key0);
        tiles::wait_copies<1>();
        __syncthreads();  // weights, alpha and V are here
        bool removed = false;
        if (place.has_masked_keys(key0)) removed = remove_not_finite(shared.v());
        output.add_block(shared, map, row_base, half);
        if (removed) output.add_not_finite(v + here, map, place, key0, row_base, half);
        if (!last && !kSeparateV) {
            __syncthreads();  // V is free: K takes its place
            copy.store(shared.k);
        }
        tiles::wait_copies<0>();
    }

    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kSoftmaxRows; ++i) {
        const float mass = sum_of_row(state.mass[i]);
        if (lane % 16 == 0) shared.mass[warp * kSoftmaxRows * 2 + 2 * i + lane / 16] = mass;
    }
    __syncthreads();
    output.write(shared, map, out + first, row_base, half, valid_rows);
}
