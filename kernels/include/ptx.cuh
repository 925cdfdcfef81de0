// Instructions that CUDA C++ has no name for. tests/kernels/emulated/include/ptx.cuh has them in
// plain C++, so that the fingerprint kernels run without a GPU as well.
#pragma once

namespace fingerprint {

// 16 bytes that are read once: they pass by the first-level cache, which keeps the weights.
__device__ __forceinline__ uint4 load_stream(const char* from) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
}

// sum + a * b, of which the compiler makes more than one instruction.
__device__ __forceinline__ unsigned long long add_product(unsigned long long sum, unsigned a,
                                                          unsigned b) {
    asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(sum) : "r"(a), "r"(b));
    return sum;
}

// The float16 of the low half of `bits`, in one conversion.
__device__ __forceinline__ double widen_half(unsigned bits) {
    double value;
    asm("cvt.f64.f16 %0, %1;" : "=d"(value) : "h"((unsigned short)bits));
    return value;
}

// 16 x 32 bytes times 32 x 8 bytes, added to sums of 32 bits: sm_80 and later.
__device__ __forceinline__ void multiply_bytes(unsigned (&sum)[4], unsigned a0, unsigned a1,
                                               unsigned a2, unsigned a3, unsigned b0,
                                               unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace fingerprint
