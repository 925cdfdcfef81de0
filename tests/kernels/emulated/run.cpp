// One kernel of ENTRY (source SOURCE) on the host: run(blocks, arguments of the kernel).
#include "cuda.h"
#include "cuda_fp16.h"

#include <ucontext.h>

Place threadIdx, blockIdx;
unsigned long long exchanged[kBlockWarps][32];

namespace {

constexpr size_t kStackBytes = 1 << 17;
constexpr long long kMostTurns = 1 << 20;  // of a block; more is a barrier that some never reach

ucontext_t scheduler, threads[kBlockThreads];
bool finished[kBlockThreads];
char stacks[kBlockThreads][kStackBytes];

struct Barrier {
    int arrived;
    long long generation;

    void wait(int expected) {
        const long long mine = generation;
        if (++arrived == expected) {
            arrived = 0, ++generation;
            return;
        }
        while (generation == mine) swapcontext(&threads[threadIdx.x], &scheduler);
    }
};
Barrier block_barrier, warp_barriers[kBlockWarps];

}  // namespace

void __syncthreads() { block_barrier.wait(kBlockThreads); }
void wait_for_warp() { warp_barriers[threadIdx.x / 32].wait(32); }

#include SOURCE

namespace {

struct Arguments {
    char* base;
    const u64* counter;
    long long slots, step_bytes;
    const u64* weights;
    const u32* plan;
    const uint4* fragments;
    long long units;
    const Job* jobs;
    const int* owner;
} given;

void thread_body() {
    ENTRY(given.base, given.counter, given.slots, given.step_bytes, given.weights, given.plan,
          given.fragments, given.units, given.jobs, given.owner);
    finished[threadIdx.x] = true;
}

}  // namespace

extern "C" void run(int blocks, const Arguments* arguments) {
    given = *arguments;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        block_barrier = {};
        for (Barrier& barrier : warp_barriers) barrier = {};
        for (int i = 0; i < kBlockThreads; ++i) {
            finished[i] = false;
            getcontext(&threads[i]);
            threads[i].uc_stack.ss_sp = stacks[i];
            threads[i].uc_stack.ss_size = kStackBytes;
            threads[i].uc_link = &scheduler;
            makecontext(&threads[i], thread_body, 0);
        }
        bool more = true;
        for (long long turn = 0; more; ++turn) {
            if (turn == kMostTurns) {
                fprintf(stderr, "threads wait for each other for ever\n");
                abort();
            }
            more = false;
            for (int i = 0; i < kBlockThreads; ++i) {
                if (finished[i]) continue;
                more = true, threadIdx.x = i;
                swapcontext(&scheduler, &threads[i]);
            }
        }
    }
}
