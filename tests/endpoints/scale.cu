// y[i] = x[i] * FACTOR, in float32. Two builds with other factors hold one symbol.
#ifndef FACTOR
#define FACTOR 2.0f
#endif

extern "C" __global__ void scale(const float* x, float* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] * FACTOR;
}
