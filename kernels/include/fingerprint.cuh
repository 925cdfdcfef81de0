// What the digest, the sketch and the statistics of a row are made of (docs/digests.md), and the
// table line that tells a kernel where a tensor's rows lie.
#pragma once

#include "include/ptx.cuh"

namespace fingerprint {

typedef unsigned long long u64;
typedef unsigned int u32;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr u64 kGolden = 0x9E3779B97F4A7C15ull;

// The finaliser of splitmix64.
__device__ __forceinline__ u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// One tensor of a launch. A *unit* is what a thread loads at once: 16 bytes for the digest alone,
// 8 elements with sketch and statistics. Offsets of outputs are bytes from the start of a step in
// the ring; 0 stands for "not wanted" except for the digests.
struct Job {
    const char* data;
    long long digests, sketches, statistics, words;  // [rows] u64, [rows, 16] f32, [rows, 7] f64
    long long header;       // two words: the step's stamp and `tag`; -1: none
    long long tag;
    long long rows, lanes;  // lanes: of a row (two an element for 64-bit dtypes)
    long long elements;     // real numbers of a row; complex64 has two an element
    long long first_lane;   // index of the first lane inside the whole row
    u64 salt;
    long long kind;         // Kind below
    long long lane_bytes;   // 1, 2 or 4
    long long wide;         // 1: units are contiguous and aligned; 0: gathered lane by lane
    long long across;       // warps that share a row: 1, 2, 4 or 8
    long long flat;         // 1: the elements of a row are one axis
    long long row_sizes[2];     // of the second and third row axis
    long long row_strides[3];   // bytes
    long long column_sizes[3];  // of the second to fourth column axis; the last in units or lanes
    long long column_strides[4];
    const unsigned short* codes;  // of a one-byte dtype as float16, NaN and infinities kept
    long long first_block;
    long long rounds;  // rows that a warp takes, one after another or together
};
static_assert(sizeof(Job) == 32 * 8, "a line of the table is 32 words");

enum Kind { kBytes, kFloat16, kBfloat16, kFloat32, kFloat64, kInt16, kUint16, kInt32, kUint32,
            kInt64, kUint64 };

// Constant tables. `weights`: in tiles of 32 units four planes [32][2], the weights of lanes
// 8u .. 8u + 7 of unit u; `units` may be 0, and then weights are computed. `plan`: a group of 16
// elements, rotation | signs << 16, where bit sign_place(b) says that bucket b is negated.
// `fragments`: the weights as operands of include/digest_tiles.cuh, for lanes of 4, 2 and 1 bytes
// one after another; for each chunk of 64 bytes of a row 32 lines of 16 bytes, line 4 g + t the
// bytes g of what the bytes 16 t .. 16 t + 15 of the chunk are multiplied by.
struct Tables {
    const u64* weights;
    const u32* plan;
    const uint4* fragments;
    long long units;

    __device__ __forceinline__ ulonglong2 pair(long long unit, int plane) const {
        const u32 inside = (u32)unit & 31, tile = ((u32)unit - inside) * 4;
        return __ldg(reinterpret_cast<const ulonglong2*>(weights) + (tile + inside) + plane * 32);
    }
    // Of the chunk where the rows of a tensor begin.
    __device__ __forceinline__ const uint4* first_chunk(const Job& job) const {
        const long long before = job.lane_bytes == 4 ? 0 : job.lane_bytes == 2 ? 4 : 6;
        return fragments + (before * units / 8 + job.first_lane * job.lane_bytes / 64) * 32;
    }
};

// Even and odd buckets of a half of a group apart: few shifts reach the signs of a word of two.
__host__ __device__ constexpr int sign_place(int bucket) {
    return (bucket & 8) | (bucket & 1) << 2 | (bucket & 7) >> 1;
}

// Where the outputs of a launch go: slot `*counter % slots` of a ring, or its start.
struct Ring {
    char* base;
    const u64* counter;
    long long slots, step_bytes;

    __device__ __forceinline__ char* step() const {
        return counter ? base + (long long)(*counter % (u64)slots) * step_bytes : base;
    }
};

__device__ __forceinline__ long long row_offset(const Job& job, u32 row) {
    const u32 third = (u32)job.row_sizes[1], second = (u32)job.row_sizes[0];
    if (row < third) return (long long)row * job.row_strides[2];  // spares two divisions
    const u32 i2 = row % third, rest = row / third;
    return (long long)i2 * job.row_strides[2] + (long long)(rest % second) * job.row_strides[1] +
           (long long)(rest / second) * job.row_strides[0];
}

static __device__ __noinline__ long long nested_offset(const Job& job, u32 index) {
    const u32 c3 = (u32)job.column_sizes[2], c2 = (u32)job.column_sizes[1];
    const u32 c1 = (u32)job.column_sizes[0];
    const u32 i3 = index % c3, r3 = index / c3, i2 = r3 % c2, r2 = r3 / c2;
    return (long long)i3 * job.column_strides[3] + (long long)i2 * job.column_strides[2] +
           (long long)(r2 % c1) * job.column_strides[1] +
           (long long)(r2 / c1) * job.column_strides[0];
}

// Byte offset of unit (wide) or lane (narrow) `index` inside a row; out of line for several axes.
__device__ __forceinline__ long long column_offset(const Job& job, u32 index) {
    if (job.flat) return (long long)index * job.column_strides[3];
    return nested_offset(job, index);
}

__device__ __forceinline__ u32 load_lane(const char* from, int bytes) {
    if (bytes == 4) return __ldg(reinterpret_cast<const u32*>(from));
    if (bytes == 2) return __ldg(reinterpret_cast<const unsigned short*>(from));
    return __ldg(reinterpret_cast<const unsigned char*>(from));
}

// The word whose first lane is `first`, lane by lane; out of line, since it is the rare way.
static __device__ __noinline__ u32 gather_word(const Job& job, const char* row, long long first) {
    const int bytes = (int)job.lane_bytes;
    u32 word = 0;
    for (int s = 0; s < 4 / bytes; ++s)
        if (first + s >= 0 && first + s < job.lanes)
            word |= load_lane(row + column_offset(job, (u32)(first + s)), bytes) << (8 * bytes * s);
    return word;
}

static __device__ __noinline__ void scatter_word(const Job& job, char* row, long long first,
                                                 u32 word) {
    const int bytes = (int)job.lane_bytes;
    for (int s = 0; s < 4 / bytes; ++s) {
        if (first + s < 0 || first + s >= job.lanes) continue;
        char* to = row + (first + s) * bytes;
        const u32 x = word >> (8 * bytes * s);
        if (bytes == 4) *reinterpret_cast<u32*>(to) = x;
        else if (bytes == 2) *reinterpret_cast<unsigned short*>(to) = (unsigned short)x;
        else *reinterpret_cast<unsigned char*>(to) = (unsigned char)x;
    }
}

// W words from an aligned address.
template <int W>
__device__ __forceinline__ void load_words(const char* from, u32 (&words)[W]) {
    if constexpr (W == 2) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from));
        words[0] = v.x, words[1] = v.y;
    } else {
#pragma unroll
        for (int q = 0; q < W / 4; ++q) {
            const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from) + q);
            words[4 * q] = v.x, words[4 * q + 1] = v.y;
            words[4 * q + 2] = v.z, words[4 * q + 3] = v.w;
        }
    }
}

// Unit `unit` of `W` words of the row at `row`; lanes outside the row are 0. `lead`: places before
// the first lane.
template <int W, int kLaneBytes>
__device__ __forceinline__ void load_unit(const Job& job, const char* row, u32 unit, int lead,
                                          u32 (&words)[W]) {
    if (job.wide) {
        load_words<W>(row + column_offset(job, unit), words);
        return;
    }
    constexpr int per_word = 4 / kLaneBytes;
    const long long first = (long long)unit * W * per_word - lead;
#pragma unroll
    for (int q = 0; q < W; ++q) words[q] = gather_word(job, row, first + q * per_word);
}

// Store a unit into the row matrix of raw words; `lane` is the index of its first lane.
template <int W, int kLaneBytes>
__device__ __forceinline__ void store_unit(const Job& job, char* row, long long lane,
                                           const u32 (&words)[W]) {
    constexpr int bytes = kLaneBytes, per_word = 4 / bytes;
    if (job.wide && W % 4 == 0) {
#pragma unroll
        for (int q = 0; q < W / 4; ++q)
            *(reinterpret_cast<uint4*>(row + lane * bytes) + q) = make_uint4(
                words[4 * q], words[4 * q + 1], words[4 * q + 2], words[4 * q + 3]);
        return;
    }
#pragma unroll
    for (int q = 0; q < W; ++q) scatter_word(job, row, lane + q * per_word, words[q]);
}

// A sum modulo 2^64 of 32-bit lanes times 64-bit weights, in two parts that the multiplier likes:
// one wide product and one product of which only the low half counts.
struct Sum {
    u64 low;
    u32 high;

    __device__ __forceinline__ void add(u32 lane, u64 weight) {
        low = add_product(low, lane, (u32)weight);
        high += lane * (u32)(weight >> 32);
    }
    __device__ __forceinline__ u64 total() const { return low + ((u64)high << 32); }
};

__device__ __forceinline__ u64 add_across(u64 value, int mask) {
    return value + __shfl_xor_sync(0xffffffffu, value, mask);
}

__device__ __forceinline__ void write_header(const Job& job, const Ring& ring, long long block) {
    if (block != 0 || threadIdx.x != 0 || job.header < 0) return;
    u64* header = reinterpret_cast<u64*>(ring.step() + job.header);
    header[0] = *ring.counter + 1;
    header[1] = (u64)job.tag;
}

// A line of the table into shared memory; the block's number inside its tensor.
__device__ __forceinline__ long long fetch_job(Job& to, const Job* jobs, const int* owner) {
    const u64* from = reinterpret_cast<const u64*>(jobs + owner[blockIdx.x]);
    if (threadIdx.x < 32) reinterpret_cast<u64*>(&to)[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    return (long long)blockIdx.x - to.first_block;
}

}  // namespace fingerprint
