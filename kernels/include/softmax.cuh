// Pieces of the online softmax that all attention kernels share.
#pragma once

#include <cuda_fp16.h>

namespace softmax {

// Probabilities are kept as 2^(t - m + kShift), t and m in log2 units. The factor cancels in O / l.
// It lifts them away from FP16's subnormals: a key 2^-24 below the maximum still has 11 significant
// bits. The largest stored value is 4096, far below 65504, and sums are FP32.
constexpr float kShift = 12.0f;

// MUFU.EX2: relative error at most 2^-22 (CUDA C++ Programming Guide, intrinsic functions); exact
// on integers; results below 2^-126 become 0; -inf gives 0.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }

// True for Inf and NaN.
__device__ __forceinline__ bool not_finite(__half x) {
    return (__half_as_ushort(x) & 0x7c00) == 0x7c00;
}

// p as the sum of two FP16 numbers, 22 significant bits in all.
__device__ __forceinline__ void split(float p, __half& high, __half& low) {
    high = __float2half_rn(p);
    low = __float2half_rn(p - __half2float(high));
}

}  // namespace softmax
