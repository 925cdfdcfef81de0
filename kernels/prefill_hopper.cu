// prefill_hopper: the contract of prefill.cu on sm_90a, with the bulk tensor copy engine and
// warpgroup matrix products.
//
// Shapes      as prefill.cu. Q, K and V come as tensor maps over [tokens, heads, 256] with boxes of
//             64 tokens x 1 head x 64 dimensions and the 128-byte swizzle; V also as a pointer.
// Launch      one block for 128 query rows of one head: one producer warpgroup and two consumers of
//             64 rows each; grid.x = QUERY_HEADS * ceil(Q / 128), the blocks with most keys first.
// Accumulate  QK^T: one chain over D, ascending. PV: for each 64 keys and 64 columns one chain from
//             zero, then o * alpha + block in FP32 registers, as prefill.cu.
// Softmax     as prefill.cu: log2 units, p = 2^(t - m + 12), blocks of 64 keys from key 0 on.
// Mass        as prefill.cu, SPLIT_P=0 rounded, SPLIT_P=1 unrounded. Within a block a thread adds 8
//             pairs of neighbours in ascending order, then l = l * alpha + sum; the 4 threads of a
//             row are added as a tree at the end.
// Finish      one IEEE division o / l and one rounding to FP16.
// Reference   verify.reference, attention in FP64; tests/gpu/test_prefill_contract.py.
#include <cuda_fp16.h>

#include "include/build.cuh"
#include "include/hopper.cuh"
#include "include/shapes.cuh"
#include "include/softmax.cuh"
#include "include/wall.cuh"

static_assert(shapes::head_group_admitted(QUERY_HEADS, KEY_HEADS), "see include/shapes.cuh");

namespace {

constexpr int kDim = shapes::kHeadDim;
constexpr int kKeys = 64, kRows = 128, kConsumers = 2;
constexpr int kGroupRows = kRows / kConsumers;
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kSlabs = kDim / 64;      // a tile lies as slabs of 64 dimensions, one box each
constexpr int kSlab = 64 * 64;         // FP16 elements of a box
constexpr int kTile = kSlabs * kSlab;  // 64 tokens x 256
constexpr int kTileBytes = kTile * 2;
constexpr int kStages = 2;
// Slabs of PV in flight; each needs 32 registers beside o.
constexpr int kBlocks = 2;
static_assert(kBlocks <= 2 && kSlabs % kBlocks == 0, "the waits below count to two");
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;

constexpr float kLogScale = 0.0625f * 1.44269504088896340736f;  // log2(e) / 16

struct Shared {
    __half q[kConsumers][kTile];
    __half k[kStages][kTile];
    __half v[kStages][kTile];
    hopper::Barrier q_full, k_full[kStages], v_full[kStages], k_free[kStages], v_free[kStages];
};
constexpr int kSwizzleAtom = 1024;  // tiles start at a multiple of this

// Where this block is: query rows from `row0`, and how many keys precede the chunk.
struct Place {
    int head, row0, prefix, q_len, kv_len;

    __device__ int key_head() const { return head / (QUERY_HEADS / KEY_HEADS); }
    // The last key that block row `row` sees, counted from key `key0`.
    __device__ int last_visible(int row, int key0) const { return prefix + row0 + row - key0; }
    __device__ bool has_masked_keys(int key0) const { return last_visible(0, key0) < kKeys - 1; }
    __device__ int key_blocks() const {
        return (min(kv_len, prefix + row0 + kRows) + kKeys - 1) / kKeys;
    }
};

// Stage and parity of the n-th use of a ring of kStages buffers.
struct Turn {
    int stage, parity;
    __device__ explicit Turn(int n) : stage(n % kStages), parity(n / kStages % 2) {}
};

// 64 tokens x 256 dimensions of one head, from `token` on; zeros behind the last token.
__device__ __forceinline__ void copy_tile(__half* tile, const hopper::TensorMap& map,
                                          hopper::Barrier* full, int head, int token) {
    for (int slab = 0; slab < kSlabs; ++slab)
        hopper::copy_box(tile + slab * kSlab, map, full, slab * 64, head, token);
}

// One thread: bring in Q, then K and V block by block.
__device__ __forceinline__ void produce(Shared& shared, const Place& place,
                                        const hopper::TensorMap& q_map,
                                        const hopper::TensorMap& k_map,
                                        const hopper::TensorMap& v_map) {
    hopper::expect_bytes(&shared.q_full, kConsumers * kTileBytes);
    for (int group = 0; group < kConsumers; ++group)
        copy_tile(shared.q[group], q_map, &shared.q_full, place.head,
                  place.row0 + group * kGroupRows);
    const int blocks = place.key_blocks();
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
        const Turn turn(n);
        hopper::wait(&shared.k_free[turn.stage], turn.parity ^ 1);
        hopper::expect_bytes(&shared.k_full[turn.stage], kTileBytes);
        copy_tile(shared.k[turn.stage], k_map, &shared.k_full[turn.stage], place.key_head(),
                  n * kKeys);
        hopper::wait(&shared.v_free[turn.stage], turn.parity ^ 1);
        hopper::expect_bytes(&shared.v_full[turn.stage], kTileBytes);
        copy_tile(shared.v[turn.stage], v_map, &shared.v_full[turn.stage], place.key_head(),
                  n * kKeys);
    }
}

// A consumer warp says that it is done with a buffer.
__device__ __forceinline__ void release(hopper::Barrier* barrier) {
    if (threadIdx.x % 32 == 0) hopper::arrive(barrier);
}

// S = Q K^T, 64 x 64.
__device__ __forceinline__ void compute_scores(const __half* q, const __half* k, float (&s)[32]) {
    const unsigned long long a = hopper::describe(q), b = hopper::describe(k);
    hopper::wgmma_fence();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            // Descriptors count 16 bytes: a slab is 8192 bytes, a step of 16 dimensions 32.
            const unsigned long long offset = slab * (kSlab * 2 / 16) + step * 2;
            if (slab + step == 0)
                hopper::multiply<false>(s, a + offset, b + offset);
            else
                hopper::multiply<true>(s, a + offset, b + offset);
        }
    hopper::wgmma_commit();
}

struct Weights {
    unsigned high[4][4], low[SPLIT_P ? 4 : 1][4];
};

// The two rows of a thread, lane / 4 and lane / 4 + 8 of its warp's sixteen.
struct RowState {
    float maximum[2], mass[2], alpha[2];

    // Scores to weights; mass and alpha follow.
    __device__ __forceinline__ void update(float (&s)[32], Weights& p) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            float top = fmaxf(s[2 * side], s[2 * side + 1]);
#pragma unroll
            for (int j = 1; j < 8; ++j)
                top = fmaxf(top, fmaxf(s[4 * j + 2 * side], s[4 * j + 2 * side + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float before = maximum[side];
            maximum[side] = fmaxf(before, top * kLogScale);
            alpha[side] = softmax::exp2_approx(before - maximum[side]);
            const float shift = softmax::kShift - maximum[side];
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const float x = softmax::exp2_approx(fmaf(s[4 * j + 2 * side], kLogScale, shift));
                const float y =
                    softmax::exp2_approx(fmaf(s[4 * j + 2 * side + 1], kLogScale, shift));
                const __half2 high = __floats2half2_rn(x, y);
                const float2 rounded = __half22float2(high);
                p.high[j / 2][j % 2 * 2 + side] = *reinterpret_cast<const unsigned*>(&high);
                if (SPLIT_P) {
                    const __half2 low = __floats2half2_rn(x - rounded.x, y - rounded.y);
                    p.low[SPLIT_P ? j / 2 : 0][j % 2 * 2 + side] =
                        *reinterpret_cast<const unsigned*>(&low);
                    sum += x + y;
                } else {
                    sum += rounded.x + rounded.y;
                }
            }
            mass[side] = fmaf(mass[side], alpha[side], sum);
        }
    }
};

__device__ __forceinline__ void mask_scores(float (&s)[32], const Place& place, int row, int key0) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (column > place.last_visible(row + i / 2 % 2 * 8, key0))
            s[i] = softmax::negative_infinity();
    }
}

// block = P V for columns 64 * slab ... 64 * slab + 63.
__device__ __forceinline__ void multiply_weights(float (&block)[32], const Weights& p,
                                                 const __half* v, int slab) {
    const unsigned long long b = hopper::describe(v + slab * kSlab);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        const unsigned long long offset = step * (16 * 128 / 16);  // 16 keys of 128 bytes
        if (step == 0)
            hopper::multiply<false>(block, p.high[step], b + offset);
        else
            hopper::multiply<true>(block, p.high[step], b + offset);
        if (SPLIT_P) hopper::multiply<true>(block, p.low[SPLIT_P ? step : 0], b + offset);
    }
    hopper::wgmma_commit();
}

// o = o * alpha + P V, kBlocks slabs at a time.
__device__ __forceinline__ void add_block(float (&o)[kSlabs][32], const Weights& p, const __half* v,
                                          const float (&alpha)[2]) {
#pragma unroll
    for (int first = 0; first < kSlabs; first += kBlocks) {
        float block[kBlocks][32];
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) multiply_weights(block[n], p, v, first + n);
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
            if (n + 1 < kBlocks)
                hopper::wgmma_wait<kBlocks - 1>();
            else
                hopper::wgmma_wait<0>();
            hopper::pin(block[n]);
#pragma unroll
            for (int i = 0; i < 32; ++i)
                o[first + n][i] = fmaf(o[first + n][i], alpha[i / 2 % 2], block[n][i]);
            hopper::pin(o[first + n]);
        }
        scheduling_wall();
    }
}

// Set every Inf and NaN of a V tile to zero; true, for both consumers, if there was one. 0 * NaN in
// a tensor core would reach the rows for which that key is masked.
__device__ __forceinline__ bool remove_not_finite(__half* v, int consumer_thread) {
    bool found = false;
    for (int i = consumer_thread; i < kTile; i += 128 * kConsumers)
        if (softmax::not_finite(v[i])) v[i] = __ushort_as_half(0), found = true;
    hopper::fence_async_proxy();
    return hopper::sync_or(1, 128 * kConsumers, found);
}

// Add, with weight 1, every visible Inf and NaN of V that remove_not_finite took out.
__device__ __forceinline__ void add_not_finite(float (&o)[kSlabs][32], const __half* v,
                                               const Place& place, int row, int key0) {
#pragma unroll 1
    for (int key = 0; key < min(kKeys, place.kv_len - key0); ++key) {
        const __half* source = v + size_t(key0 + key) * (KEY_HEADS * kDim) +
                               place.key_head() * kDim + threadIdx.x % 4 * 2;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const __half x = source[slab * 64 + i / 4 * 8 + i % 2];
                const bool visible = key <= place.last_visible(row + i / 2 % 2 * 8, key0);
                if (visible && softmax::not_finite(x)) o[slab][i] += __half2float(x);
            }
    }
}

__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ void write_rows(const float (&o)[kSlabs][32], const RowState& state,
                                           const Place& place, int row, __half* out) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
        const float mass = sum_of_row(state.mass[side]);
        const int token = place.row0 + row + 8 * side;
        if (token >= place.q_len) continue;
        __half* target =
            out + (size_t(token) * QUERY_HEADS + place.head) * kDim + threadIdx.x % 4 * 2;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const float x = o[slab][4 * j + 2 * side], y = o[slab][4 * j + 2 * side + 1];
                *reinterpret_cast<__half2*>(target + slab * 64 + j * 8) =
                    __floats2half2_rn(__fdiv_rn(x, mass), __fdiv_rn(y, mass));
            }
    }
}

// One warpgroup: 64 rows of the block.
__device__ __forceinline__ void consume(Shared& shared, const Place& place, int group,
                                        const __half* v, __half* out) {
    const int row = group * kGroupRows + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    RowState state = {{softmax::negative_infinity(), softmax::negative_infinity()}, {0, 0}, {0, 0}};
    float o[kSlabs][32];
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
#pragma unroll
        for (int i = 0; i < 32; ++i) o[slab][i] = 0.0f;

    hopper::wait(&shared.q_full, 0);
    const int blocks = place.key_blocks();
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
        const Turn turn(n);
        const int key0 = n * kKeys;
        float s[32];
        Weights p;
        hopper::wait(&shared.k_full[turn.stage], turn.parity);
        compute_scores(shared.q[group], shared.k[turn.stage], s);
        hopper::wgmma_wait<0>();
        hopper::pin(s);
        release(&shared.k_free[turn.stage]);
        const bool masked = place.has_masked_keys(key0);
        if (masked) mask_scores(s, place, row, key0);
        state.update(s, p);
        hopper::wait(&shared.v_full[turn.stage], turn.parity);
        bool removed = false;
        if (masked)
            removed = remove_not_finite(shared.v[turn.stage], group * 128 + threadIdx.x % 128);
        add_block(o, p, shared.v[turn.stage], state.alpha);
        release(&shared.v_free[turn.stage]);
        if (removed) add_not_finite(o, v, place, row, key0);
    }
    write_rows(o, state, place, row, out);
}

}  // namespace

VERIFY_LAUNCH(prefill_hopper, kThreads, sizeof(Shared) + kSwizzleAtom)
extern "C" __device__ int prefill_hopper_tile[2] = {kRows, kKeys};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    prefill_hopper(const __grid_constant__ hopper::TensorMap q_map,
                   const __grid_constant__ hopper::TensorMap k_map,
                   const __grid_constant__ hopper::TensorMap v_map, const __half* __restrict__ v,
                   __half* __restrict__ out, int q_len, int kv_len) {
    extern __shared__ unsigned char shared_bytes[];
    const unsigned misaligned = hopper::shared_address(shared_bytes) % kSwizzleAtom;
    Shared& shared =
        *reinterpret_cast<Shared*>(shared_bytes + (kSwizzleAtom - misaligned) % kSwizzleAtom);

    const int row_blocks = (q_len + kRows - 1) / kRows;
    const Place place = {int(blockIdx.x) % QUERY_HEADS,
                         (row_blocks - 1 - int(blockIdx.x) / QUERY_HEADS) * kRows, kv_len - q_len,
                         q_len, kv_len};
    if (threadIdx.x == 0) {
        hopper::init_barrier(&shared.q_full, 1);
        for (int stage = 0; stage < kStages; ++stage) {
            hopper::init_barrier(&shared.k_full[stage], 1);
            hopper::init_barrier(&shared.v_full[stage], 1);
            // One arrival for each consumer warp.
            hopper::init_barrier(&shared.k_free[stage], 4 * kConsumers);
            hopper::init_barrier(&shared.v_free[stage], 4 * kConsumers);
        }
        hopper::fence_barrier_init();
    }
    __syncthreads();

    const int group = int(threadIdx.x) / 128 - 1;
    if (group < 0) {
        hopper::give_registers<kProducerRegisters>();
        if (threadIdx.x == 0) produce(shared, place, q_map, k_map, v_map);
        __syncwarp();
    } else {
        hopper::take_registers<kConsumerRegisters>();
        consume(shared, place, group, v, out);
    }
}
