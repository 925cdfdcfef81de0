// Which elements of an accumulator a thread holds.
#pragma once

#include <mma.h>

namespace fragments {

// The layout of a 16x16 wmma accumulator is not documented and is not the same on sm_70; it is read
// off a matrix of indices. Element i of a thread lies at row[i / 2 % 2], column[i / 4] + i % 2.
struct Map {
    int row[2], column[2];

    // `scratch`: 256 numbers in shared memory. Called by all `Threads` threads of the block.
    template <int Threads>
    __device__ void discover(float* scratch) {
        for (int i = threadIdx.x; i < 256; i += Threads) scratch[i] = float(i);
        __syncthreads();
        nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> index;
        nvcuda::wmma::load_matrix_sync(index, scratch, 16, nvcuda::wmma::mem_row_major);
        row[0] = int(index.x[0]) / 16, row[1] = int(index.x[2]) / 16;
        column[0] = int(index.x[0]) % 16, column[1] = int(index.x[4]) % 16;
        for (int i = 0; i < 8; ++i)
            if (int(index.x[i]) != row[i / 2 % 2] * 16 + column[i / 4] + i % 2) __trap();
        __syncthreads();
    }
};

}  // namespace fragments
