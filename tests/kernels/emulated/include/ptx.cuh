// kernels/include/ptx.cuh in plain C++. The layouts of the operands of the matrix product are those of
// the PTX ISA, "Matrix Fragments for mma.m16n8k32" (integer types).
#pragma once

namespace fingerprint {

inline uint4 load_stream(const char* from) { return __ldcs(reinterpret_cast<const uint4*>(from)); }

inline unsigned long long add_product(unsigned long long sum, unsigned a, unsigned b) {
    return sum + (unsigned long long)a * b;
}

inline double widen_half(unsigned bits) { return half_value((unsigned short)bits); }

inline void multiply_bytes(unsigned (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                           unsigned b0, unsigned b1) {
    static unsigned a[kBlockWarps][32][4], b[kBlockWarps][32][2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned left[4] = {a0, a1, a2, a3}, right[2] = {b0, b1};
    memcpy(a[warp][lane], left, sizeof left);
    memcpy(b[warp][lane], right, sizeof right);
    __syncwarp();
    for (int i = 0; i < 4; ++i) {  // sum[i]: row lane / 4 + 8 * (i / 2), column lane % 4 * 2 + i % 2
        const int row = lane / 4, upper = i / 2, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 32; ++k) {
            const int owner = k % 16 / 4, shift = k % 4 * 8;
            const unsigned x = a[warp][row * 4 + owner][k / 16 * 2 + upper] >> shift & 255;
            const unsigned y = b[warp][column * 4 + owner][k / 16] >> shift & 255;
            sum[i] += x * y;
        }
    }
    __syncwarp();
}

}  // namespace fingerprint
