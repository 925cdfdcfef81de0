// decode_wave_mma: decode_wave.cu without barriers in its loop, for sm_80 and later. Each warp
// walks its own keys: it copies whole rows of codes to shared memory with cp.async, makes them FP16
// in registers, and they are operands of mma.sync as they lie, since the order of dimensions in q.k
// and of columns in the output is free.
//
// Shapes      as decode_wave.cu.
// Partitions  as decode_wave.cu. Within a partition warp w takes the groups of 16 keys w, w + 4,
//             ... with a running state of its own; the 4 states are merged at the end, ascending.
// Launch      as decode_wave.cu.
// Accumulate  QK^T: two tensor-core chains (even and odd words of a lane), added in FP32.
//             t = s * log2_scale, one FP32 product. PV: for each 16 keys one chain from zero, high
//             part then low part, added in FP32 registers, o * alpha + block.
// Weights     p = 2^(t - m + 12), FP32, as two FP16 numbers (22 bits).
// Mass        l sums the FP32 p (unrounded mass): a lane adds its two keys of a group, then
//             l = l * alpha + sum; 8 lanes as a tree, then 4 warps ascending.
// Merge       as decode_wave.cu.
// Reference   verify.reference, attention in FP64; tests/gpu/test_decode_contract.py.
//
// Layout of mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), g = lane / 4,
// t = lane % 4:
//   A words 0..3: rows g, g + 8, g, g + 8 at k = 2t, 2t + 1 (words 0, 1) and 2t + 8, 2t + 9 (2, 3)
//   B words 0, 1: column g at k = 2t, 2t + 1 and 2t + 8, 2t + 9
//   C elements:   (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// The first product is A = K (rows = keys), B = Q (columns = heads): C holds keys g and g + 8 of
// heads 2t and 2t + 1. movmatrix turns each 8x8 half of P round for the second one, A = V (rows =
// dimensions), B = P (columns = heads), whose C again belongs to heads 2t and 2t + 1.
#include <cuda_fp16.h>

#include "include/build.cuh"
#include "include/decode_wave.cuh"
#include "include/e4m3.cuh"
#include "include/paging.cuh"
#include "include/softmax.cuh"
#include "include/tiles.cuh"

namespace {

using wave::kDim;
using wave::kGroup;
using wave::kPartial;
using wave::kRows;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kBlocks = 2;         // of a multiprocessor: while one starts or ends, the other reads
constexpr int kKeys = 16;          // keys of a group
constexpr int kWords = kDim / 16;  // words of four codes that a lane holds of a key of K
constexpr int kTiles = kDim / 16;  // tiles of 16 output dimensions
constexpr int kStages = 3;         // groups of a warp in shared memory, all but one on their way
constexpr int kChunks = kDim / 16;  // 16-byte chunks of a row

// A group in shared memory. A chunk's place in its row is turned so that the eight lanes of one
// phase of a 16-byte read touch eight different groups of banks: see Rows::k_chunk and v_chunk.
struct Rows {
    uint4 k[kKeys][kChunks], v[kKeys][kChunks];

    __device__ static int k_chunk(int key, int chunk) { return chunk ^ key % 2 * 4; }
    __device__ static int v_chunk(int key, int chunk) { return chunk ^ key / 2 % 4 * 2; }
    __device__ uint4 read_k(int key, int chunk) const { return k[key][k_chunk(key, chunk)]; }
    __device__ uint4 read_v(int key, int chunk) const { return v[key][v_chunk(key, chunk)]; }
};

struct Shared {
    union {
        Rows rows[kWarps][kStages];
        float output[kWarps][kRows][kDim];  // after the loop
    };
    float maximum[kWarps][kRows], mass[kWarps][kRows];
};

// d = a b + c, 16x8x16.
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2], const float (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

__device__ __forceinline__ unsigned pack(__half low, __half high) {
    return __half_as_ushort(low) | unsigned(__half_as_ushort(high)) << 16;
}

// One group of 16 keys: where it starts in each cache, and how many of its keys count.
struct Group {
    const unsigned char *k, *v;
    int live;
};

// The groups of a warp, in order. The block id of the next group is on its way while one is used.
struct Walk {
    const unsigned char *k_base, *v_base;
    const int* table;
    int page, blocks, end, key;
    long long k_block, k_token, v_block, v_token;
    int* error;
    int block;  // of the group at `key`

    __device__ __forceinline__ void fetch() { block = key < end ? __ldg(table + key / page) : 0; }

    __device__ __forceinline__ Group next() {
        const bool valid = unsigned(block) < unsigned(blocks);
        if (!valid && threadIdx.x % 32 == 0) atomicOr(error, paging::kPageOutOfRange);
        const int slot = key % page;
        const Group group = {k_base + block * k_block + slot * k_token,
                             v_base + block * v_block + slot * v_token,
                             valid ? min(kKeys, end - key) : 0};
        key += kKeys * kWarps;
        fetch();
        return group;
    }
};

// The 8x8 matrix of FP16 numbers of a warp (row g, columns 2t and 2t + 1), transposed.
__device__ __forceinline__ unsigned transpose(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Copy a group: a half-warp takes a row of 256 bytes at a time. Keys that do not count become
// zeros.
__device__ __forceinline__ void copy_group(Rows& rows, const Group& group, long long k_token,
                                           long long v_token) {
    const int lane = threadIdx.x % 32, chunk = lane % 16;
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
        const int key = 2 * i + lane / 16;
        const bool live = key < group.live;
        const long long k_at = live ? key * k_token + chunk * 16 : 0;
        const long long v_at = live ? key * v_token + chunk * 16 : 0;
        tiles::copy_async(&rows.k[key][Rows::k_chunk(key, chunk)], group.k + k_at, live);
        tiles::copy_async(&rows.v[key][Rows::v_chunk(key, chunk)], group.v + v_at, live);
    }
}

__device__ __forceinline__ unsigned word_of(const uint4& x, int index) {
    return index == 0 ? x.x : index == 1 ? x.y : index == 2 ? x.z : x.w;
}

// Q as operand B. Word w of a lane's K is four dimensions from 64 * (w / 4) + 16 * t + 4 * (w % 4)
// on; heads beyond the group are zero.
struct Queries {
    unsigned words[kWords][2];

    __device__ __forceinline__ void load(const __half* q) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            uint2 read = make_uint2(0, 0);
            if (g < kGroup)
                read =
                    *reinterpret_cast<const uint2*>(q + g * kDim + w / 4 * 64 + 16 * t + w % 4 * 4);
            words[w][0] = read.x, words[w][1] = read.y;
        }
    }
};

// Scores of keys g and g + 8 with heads 2t and 2t + 1: element 2 * n + c is key g + 8 * n and
// head 2t + c.
__device__ __forceinline__ void compute_scores(const Queries& q, const Rows& rows, float (&s)[4]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float chain[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint4 k0 = rows.read_k(g, 4 * i + t), k1 = rows.read_k(g + 8, 4 * i + t);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            unsigned near[2], far[2];  // keys g and g + 8
            e4m3::decode4(word_of(k0, w), near);
            e4m3::decode4(word_of(k1, w), far);
            const unsigned a[4] = {near[0], far[0], near[1], far[1]};
            multiply(chain[w % 2], a, q.words[4 * i + w], chain[w % 2]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = chain[0][i] + chain[1][i];
}

// Running state of a warp, for heads 2t and 2t + 1. The mass is this lane's share.
struct State {
    float maximum[2], mass[2];
    float output[kTiles][4];  // see add()

    // Scores to weights (two FP16 parts each), turned round for the product with V, and the factors
    // of the old state.
    __device__ __forceinline__ void update(const float (&s)[4], int live, float log2_scale,
                                           unsigned (&high)[2], unsigned (&low)[2],
                                           float (&alpha)[2]) {
        const int g = threadIdx.x % 32 / 4;
        float x[2][2];
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int c = 0; c < 2; ++c)
                x[n][c] =
                    g + 8 * n < live ? s[2 * n + c] * log2_scale : softmax::negative_infinity();
        __half h[2][2], l[2][2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float top = fmaxf(x[0][c], x[1][c]);
#pragma unroll
            for (int mask = 4; mask < 32; mask *= 2)
                top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
            const float before = maximum[c];
            maximum[c] = fmaxf(before, top);
            alpha[c] = softmax::exp2_approx(before - maximum[c]);
            const float p0 = softmax::exp2_approx(x[0][c] - maximum[c] + softmax::kShift);
            const float p1 = softmax::exp2_approx(x[1][c] - maximum[c] + softmax::kShift);
            mass[c] = fmaf(mass[c], alpha[c], p0 + p1);
            softmax::split(p0, h[0][c], l[0][c]);
            softmax::split(p1, h[1][c], l[1][c]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            high[n] = transpose(pack(h[n][0], h[n][1]));
            low[n] = transpose(pack(l[n][0], l[n][1]));
        }
    }

    // output = output * alpha + P V. Tile 8 * i + p holds dimensions 128 * i + 16 * g + 2 * p (its
    // row g) and one more (its row g + 8).
    __device__ __forceinline__ void add(const Rows& rows, const unsigned (&high)[2],
                                        const unsigned (&low)[2], const float (&alpha)[2]) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const float zero[4] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            uint4 v[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) v[n] = rows.read_v(2 * t + n % 2 + n / 2 * 8, 8 * i + g);
#pragma unroll
            for (int p = 0; p < 8; ++p) {
                // Codes of two dimensions for keys 2t, 2t + 1 and for 2t + 8, 2t + 9.
                const unsigned order = p % 2 == 0 ? 0x5140 : 0x7362;
                unsigned first[2], second[2];
                e4m3::decode4(__byte_perm(word_of(v[0], p / 2), word_of(v[1], p / 2), order),
                              first);
                e4m3::decode4(__byte_perm(word_of(v[2], p / 2), word_of(v[3], p / 2), order),
                              second);
                const unsigned a[4] = {first[0], first[1], second[0], second[1]};
                float block[4], (&o)[4] = output[8 * i + p];
                multiply(block, a, high, zero);
                multiply(block, a, low, block);
#pragma unroll
                for (int c = 0; c < 4; ++c) o[c] = fmaf(o[c], alpha[c % 2], block[c]);
            }
        }
    }

    __device__ __forceinline__ void store(Shared& shared) {
        const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
#pragma unroll
            for (int mask = 4; mask < 32; mask *= 2) mass[c] += __shfl_xor_sync(~0u, mass[c], mask);
            if (g == 0) {
                shared.maximum[warp][2 * t + c] = maximum[c];
                shared.mass[warp][2 * t + c] = mass[c];
            }
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const int dim = tile / 8 * 128 + 16 * g + tile % 8 * 2;
                *reinterpret_cast<float2*>(&shared.output[warp][2 * t + c][dim]) =
                    make_float2(output[tile][c], output[tile][2 + c]);
            }
    }
};

// The warps' states, merged in ascending order, to the partial result of each head.
__device__ __forceinline__ void write_partials(const Shared& shared, float* target,
                                               size_t head_stride) {
    for (int head = 0; head < kGroup; ++head) {
        float top = softmax::negative_infinity(), factor[kWarps], mass = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared.maximum[w][head]);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            factor[w] = softmax::exp2_approx(shared.maximum[w][head] - top);
            mass = fmaf(shared.mass[w][head], factor[w], mass);
        }
        float* place = target + head * head_stride;
        for (int d = threadIdx.x; d < kDim; d += kThreads) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) sum = fmaf(shared.output[w][head][d], factor[w], sum);
            place[d] = sum;
        }
        if (threadIdx.x == 0) place[kDim] = top, place[kDim + 1] = mass;
    }
}

}  // namespace

VERIFY_LAUNCH(decode_wave_partials, kThreads, sizeof(Shared))

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    decode_wave_partials(const __half* __restrict__ q, const unsigned char* __restrict__ k_cache,
                         const unsigned char* __restrict__ v_cache,
                         const int* __restrict__ block_table, const int* __restrict__ seq_lens,
                         float* __restrict__ partials, int* __restrict__ error, float log2_scale,
                         int blocks, int page, int max_blocks, int table_stride, int partition,
                         long long k_block, long long k_token, long long k_head, long long v_block,
                         long long v_token, long long v_head) {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const int part = blockIdx.x, key_head = blockIdx.y, b = blockIdx.z;
    const int length = wave::live_length(seq_lens, b, (long long)max_blocks * page, error);
    const int step = wave::partition_length(length, partition), start = part * step;
    if (start >= length) return;
    const int end = min(length, start + step);
    if (threadIdx.x == 0 && (length + step - 1) / step > int(gridDim.x))
        atomicOr(error, paging::kLengthOutOfRange);

    const int first = start + int(threadIdx.x) / 32 * kKeys;  // key of this warp
    Walk walk = {k_cache + key_head * k_head,
                 v_cache + key_head * v_head,
                 block_table + (long long)b * table_stride,
                 page,
                 blocks,
                 end,
                 first,
                 k_block,
                 k_token,
                 v_block,
                 v_token,
                 error,
                 0};
    walk.fetch();
    const int groups = max(0, (end - first + kKeys * kWarps - 1) / (kKeys * kWarps));
    State state = {{softmax::negative_infinity(), softmax::negative_infinity()}, {}, {}};
    auto& ring = shared.rows[threadIdx.x / 32];
    const auto issue = [&](int n) {
        // Always a group of copies, if an empty one, so that the wait below may count them.
        if (n < groups) {
            copy_group(ring[n % kStages], walk.next(), k_token, v_token);
        }
        tiles::commit_copies();
    };
    for (int n = 0; n < kStages - 1; ++n) issue(n);
    Queries queries;
    queries.load(q + ((long long)b * QUERY_HEADS + key_head * kGroup) * kDim);
#pragma unroll 1
    for (int n = 0; n < groups; ++n) {
        tiles::wait_copies<kStages - 2>();
        __syncwarp();  // the copies of all lanes are here, and the stage before is read
        issue(n + kStages - 1);
        const Rows& rows = ring[n % kStages];
        float s[4], alpha[2];
        unsigned high[2], low[2];
        compute_scores(queries, rows, s);
        state.update(s, end - (first + n * kKeys * kWarps), log2_scale, high, low, alpha);
        state.add(rows, high, low, alpha);
    }
    tiles::wait_copies<0>();
    __syncthreads();  // the outputs lie over the rows
    state.store(shared);
    __syncthreads();
    write_partials(
        shared,
        partials + ((size_t(b) * QUERY_HEADS + key_head * kGroup) * gridDim.x + part) * kPartial,
        size_t(gridDim.x) * kPartial);
}
