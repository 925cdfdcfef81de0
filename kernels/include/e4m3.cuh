// E4M3 (finite-only, OCP "E4M3", ml_dtypes float8_e4m3fn) to FP16. Every finite value is exact in
// FP16, and every non-zero one is a normal number there.
#pragma once

#include <cuda_fp16.h>

namespace e4m3 {

constexpr unsigned kQuietNan = 0x7fff;  // what the hardware's own conversions give for a NaN

// Four codes, lowest byte first, to four FP16 in two words, lowest half first. 0x7F and 0xFF become
// kQuietNan.
__device__ __forceinline__ void decode4(unsigned codes, unsigned (&halves)[2]) {
#if __CUDA_ARCH__ >= 890
    asm("{\n\t"
        ".reg .b16 low, high;\n\t"
        "mov.b32 {low, high}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\t"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n\t"
        "}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(codes));
#else
    // Sign to bit 15, the other seven bits to 13..7: an FP16 number that is 2^-8 times the value,
    // E4M3 subnormals included (exponent bias 15 against 7). The product with 2^8 is exact.
    const unsigned pairs[2] = {__byte_perm(codes, 0, 0x1404), __byte_perm(codes, 0, 0x3424)};
    const __half2 scale = __half2half2(__ushort_as_half(0x5c00));  // 2^8
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned bits = (pairs[i] & 0x80008000u) | ((pairs[i] & 0x7f007f00u) >> 1);
        const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&bits), scale);
        halves[i] = *reinterpret_cast<const unsigned*>(&value);
    }
    const unsigned nan = ((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    if (nan != 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (nan >> (8 * i) & 0x80u) {
                const int shift = 16 * (i % 2);
                halves[i / 2] = (halves[i / 2] & ~(0xffffu << shift)) | kQuietNan << shift;
            }
    }
#endif
}

// fp16(float(code) * scale) of four codes: one FP32 product, one rounding to nearest even.
__device__ __forceinline__ void decode4_scaled(unsigned codes, float scale, unsigned (&halves)[2]) {
    decode4(codes, halves);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float2 exact = __half22float2(*reinterpret_cast<const __half2*>(&halves[i]));
        const __half2 rounded =
            __floats2half2_rn(__fmul_rn(exact.x, scale), __fmul_rn(exact.y, scale));
        halves[i] = *reinterpret_cast<const unsigned*>(&rounded);
    }
}

}  // namespace e4m3
