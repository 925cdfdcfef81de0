// What every module exports: the id of its build, and for each entry point the facts that the
// launcher and the limit check need, so that no number is written down twice.
#pragma once

extern "C" __device__ char verify_build_id[] = VERIFY_BUILD_ID;

// <entry>_launch = {threads a block, bytes of dynamic shared memory a block}.
#define VERIFY_LAUNCH(entry, threads, shared_bytes) \
    extern "C" __device__ int entry##_launch[2] = {int(threads), int(shared_bytes)};
