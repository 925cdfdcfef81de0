// fingerprint_full: digest, sketch and statistics of every row of tensors of one dtype, each read
// once. The digest alone is fingerprint.cu, and Shapes, Launch and Reference are as there.
//
//   sketch[r]     = 16 buckets of signed elements, added in float64 by the tree, then float32
//   statistics[r] = max |x|, sum x, sum x^2 of the finite ones; counts of NaN, +Inf, -Inf, zero
//
// KIND        names the struct of include/element_kinds.cuh that reads the elements: a build a dtype.
// Arithmetic  integers for digest and counts. Sketch and sums: float64, one rounding an addition,
//             in the order of docs/digests.md, so they are equal bit for bit on every machine. A
//             missing partner in the tree is -0, which changes no bit of the other.
// Limits      16 * 8 * 2^(levels + 5) groups of 16 elements a row; `levels` of fingerprint_sizes.
//             float8_e8m0fnu has no zero and is left to the torch form.
#include "include/build.cuh"
#include "include/fingerprint.cuh"
#include "include/row_summary.cuh"

using namespace fingerprint;

VERIFY_LAUNCH(fingerprint_full, kThreads, 0)
// Levels of the tree that are added in registers, levels of the stack.
extern "C" __device__ int fingerprint_sizes[2] = {KIND::kLevels, kStack};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    fingerprint_full(char* base, const u64* counter, long long slots, long long step_bytes,
                     const u64* weights, const u32* plan, const uint4* fragments, long long units,
                     const Job* jobs, const int* owner) {
    __shared__ SummaryShared s;
    const long long block = fetch_job(s.job, jobs, owner);
    const Ring ring{base, counter, slots, step_bytes};
    write_header(s.job, ring, block);
    summarise<KIND>(s, ring, Tables{weights, plan, fragments, units}, block);
}
