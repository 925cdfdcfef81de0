// A wall for the assembler's scheduler.
#pragma once

// A branch that is never taken: ptxas schedules nothing across it. Without it sums sink below the
// next products, or loads rise above the use of the registers that they should fill, and the values
// that live longer spill. Seen with CUDA 12.9 and 13.0; registers and spills are in a test.
__device__ __forceinline__ void scheduling_wall() {
    asm volatile(
        "{\n\t"
        ".reg .pred never;\n\t"
        ".reg .b32 threads_y;\n\t"
        "mov.u32 threads_y, %%ntid.y;\n\t"
        "setp.eq.u32 never, threads_y, %0;\n\t"
        "@never exit;\n\t"
        "}" ::"n"(77)
        : "memory");
}
