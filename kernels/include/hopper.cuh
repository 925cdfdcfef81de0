// The sm_90a instructions that the Hopper kernels use, one function each. Names follow the PTX ISA.
#pragma once

#include <cuda_fp16.h>

namespace hopper {

// A tensor map as cuTensorMapEncodeTiled makes it, passed by value.
struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// --- barriers -----------------------------------------------------------------------------------

using Barrier = unsigned long long;

__device__ __forceinline__ void init_barrier(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals));
}

// Make initialised barriers visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void expect_bytes(Barrier* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void wait(Barrier* barrier, int parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred done;\n\t"
        "again:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra again;\n\t"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Named barrier `id` among `threads` threads; true in all of them if `vote` was in any.
__device__ __forceinline__ bool sync_or(int id, int threads, bool vote) {
    int result;
    asm volatile(
        "{\n\t"
        ".reg .pred in, out;\n\t"
        "setp.ne.s32 in, %3, 0;\n\t"
        "barrier.cta.red.or.aligned.pred out, %1, %2, in;\n\t"
        "selp.s32 %0, 1, 0, out;\n\t"
        "}"
        : "=r"(result)
        : "r"(id), "r"(threads), "r"(int(vote))
        : "memory");
    return result != 0;
}

// --- bulk tensor copies -------------------------------------------------------------------------

// Copy the box at (x, y, z) of `map` to `shared` and count its bytes on `barrier`. Coordinates
// outside the tensor give zeros.
__device__ __forceinline__ void copy_box(__half* shared, const TensorMap& map, Barrier* barrier,
                                         int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
        : "memory");
}

// Order ordinary writes to shared memory before reads by the tensor cores.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- warpgroup matrix products ------------------------------------------------------------------

// Descriptor of a tile in shared memory with the 128-byte swizzle: 64 FP16 numbers a line, eight
// lines an atom of 1024 bytes, atoms one after another (PTX ISA, "Matrix Descriptor Format").
__device__ __forceinline__ unsigned long long describe(const __half* tile) {
    const unsigned long long address = (shared_address(tile) & 0x3ffff) >> 4;
    return address | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keep the compiler from moving uses of accumulators across the asynchronous products.
__device__ __forceinline__ void pin(float (&d)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define HOPPER_D(constraint)                                                                      \
    constraint(d[0]), constraint(d[1]), constraint(d[2]), constraint(d[3]), constraint(d[4]),     \
        constraint(d[5]), constraint(d[6]), constraint(d[7]), constraint(d[8]), constraint(d[9]), \
        constraint(d[10]), constraint(d[11]), constraint(d[12]), constraint(d[13]),               \
        constraint(d[14]), constraint(d[15]), constraint(d[16]), constraint(d[17]),               \
        constraint(d[18]), constraint(d[19]), constraint(d[20]), constraint(d[21]),               \
        constraint(d[22]), constraint(d[23]), constraint(d[24]), constraint(d[25]),               \
        constraint(d[26]), constraint(d[27]), constraint(d[28]), constraint(d[29]),               \
        constraint(d[30]), constraint(d[31])
#define HOPPER_D_LIST                                                                        \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// d[64 x 64] (+)= a[64 x 16] b[16 x 64], FP32 from FP16. a and b lie in shared memory, both with
// the 16 summed elements along a line. Thread layout of d: element 4 * j + 2 * h + c of a thread is
// row 16 * warp + lane / 4 + 8 * h, column 8 * j + lane % 4 * 2 + c.
template <bool Accumulate>
__device__ __forceinline__ void multiply(float (&d)[32], unsigned long long a,
                                         unsigned long long b) {
    if constexpr (Accumulate) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " HOPPER_D_LIST
                     ", %32, %33, 1, 1, 1, 0, 0;"
                     : HOPPER_D("+f")
                     : "l"(a), "l"(b));
    } else {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " HOPPER_D_LIST
                     ", %32, %33, 0, 1, 1, 0, 0;"
                     : HOPPER_D("=f")
                     : "l"(a), "l"(b));
    }
}

// The same with a in registers, and b with its 64 columns along a line (keys across lines).
template <bool Accumulate>
__device__ __forceinline__ void multiply(float (&d)[32], const unsigned (&a)[4],
                                         unsigned long long b) {
    if constexpr (Accumulate) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " HOPPER_D_LIST
                     ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                     : HOPPER_D("+f")
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " HOPPER_D_LIST
                     ", {%32, %33, %34, %35}, %36, 0, 1, 1, 1;"
                     : HOPPER_D("=f")
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
}

template <int Registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace hopper
