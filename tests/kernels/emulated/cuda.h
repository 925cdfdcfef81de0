// What the fingerprint kernels use of CUDA, for one block at a time on one thread of the host: each
// thread of the block is a coroutine that runs up to its next exchange with others.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static  // one block runs at a time

constexpr int kBlockThreads = 256, kBlockWarps = kBlockThreads / 32;

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct ulonglong2 { unsigned long long x, y; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Place { int x; };
extern Place threadIdx, blockIdx;
void __syncthreads();
void wait_for_warp();
inline void __syncwarp() { wait_for_warp(); }

template <class A, class B>
auto min(A a, B b) { return a < b ? a : b; }
template <class A, class B>
auto max(A a, B b) { return a > b ? a : b; }

extern unsigned long long exchanged[kBlockWarps][32];

template <class T>
T __shfl_sync(unsigned, T value, int from) {
    unsigned long long* const line = exchanged[threadIdx.x / 32];
    memcpy(line + threadIdx.x % 32, &value, sizeof value);
    __syncwarp();
    memcpy(&value, line + from, sizeof value);
    __syncwarp();
    return value;
}
template <class T>
T __shfl_xor_sync(unsigned all, T value, int mask) {
    return __shfl_sync(all, value, threadIdx.x % 32 ^ mask);
}
inline bool __any_sync(unsigned all, bool value) {
    unsigned any = value;
    for (int mask = 16; mask > 0; mask /= 2) any |= __shfl_xor_sync(all, any, mask);
    return any;
}

// Aligned as the device asks for it.
template <class T>
T __ldcs(const T* from) {
    if (reinterpret_cast<uintptr_t>(from) % sizeof(T)) {
        fprintf(stderr, "a load of %zu bytes is not aligned\n", sizeof(T));
        abort();
    }
    return *from;
}
template <class T>
T __ldg(const T* from) { return __ldcs(from); }

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i)
        found |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
inline unsigned __vmaxu2(unsigned a, unsigned b) {
    return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
}
inline int __ffs(int value) { return __builtin_ffs(value); }

template <class To, class From>
To same_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
inline int __double2hiint(double x) { return (int)(same_bits<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return (int)same_bits<uint64_t>(x); }
inline double __hiloint2double(int high, int low) {
    return same_bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __double2float_rn(double x) { return (float)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }
inline double __ll2double_rn(long long x) { return (double)x; }
