// Move a tile of FP16 rows from device memory to shared memory: with cp.async where the chip has it
// (sm_80 and later), else through registers, so that the loads of the next tile are in flight while
// the current one is used.
#pragma once

#include <cuda_fp16.h>

#include "include/shapes.cuh"

namespace tiles {

#if __CUDA_ARCH__ >= 800
constexpr bool kAsyncCopy = true;
#else
constexpr bool kAsyncCopy = false;
#endif

constexpr int kChunk = 8;  // FP16 elements in 16 bytes
// Row stride of a tile in shared memory. 16 bytes of padding turn each row by four banks, so that
// eight rows of 16 bytes, which is what one matrix load reads, touch all 32 banks once.
constexpr int kStride = shapes::kHeadDim + kChunk;

// 16 bytes; zeros, and nothing is read, if not `valid`.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
    const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(target), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Wait until at most `Pending` of this thread's committed groups are still under way.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
#endif
}

// A tile of `Rows` rows of kHeadDim elements, moved by `Threads` threads. Rows at or beyond
// `valid_rows` become zeros and are not read.
template <int Rows, int Threads>
struct TileCopy {
    static constexpr int kPerRow = shapes::kHeadDim / kChunk;
    static constexpr int kEach = Rows * kPerRow / Threads;
    static_assert(Rows * kPerRow % Threads == 0, "every thread moves the same number of chunks");

    uint4 staged[kAsyncCopy ? 1 : kEach];

    // With kAsyncCopy: the copy itself, `shared` must be free. Without: into registers only.
    __device__ __forceinline__ void begin(__half* shared, const __half* global, int row_stride,
                                          int valid_rows) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int chunk = threadIdx.x + i * Threads;
            const int row = chunk / kPerRow, column = chunk % kPerRow * kChunk;
            const bool valid = row < valid_rows;
            const __half* source = global + (valid ? size_t(row) * row_stride + column : 0);
            if constexpr (kAsyncCopy) {
                copy_async(shared + row * kStride + column, source, valid);
            } else {
                staged[i] =
                    valid ? __ldg(reinterpret_cast<const uint4*>(source)) : make_uint4(0, 0, 0, 0);
            }
        }
        commit_copies();
    }

    // Without kAsyncCopy: registers to shared memory, which must be free now.
    __device__ __forceinline__ void store(__half* shared) const {
        if constexpr (!kAsyncCopy) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                const int chunk = threadIdx.x + i * Threads;
                const int row = chunk / kPerRow, column = chunk % kPerRow * kChunk;
                *reinterpret_cast<uint4*>(shared + row * kStride + column) = staged[i];
            }
        }
    }
};

}  // namespace tiles
