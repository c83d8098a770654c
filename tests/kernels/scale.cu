// Two kernels in a file; a macro with several values, and a template that is instantiated by it.
// config UNROLL = 1 4
#include "factor.h"

template <int N>
__global__ void __launch_bounds__(64) scale(float *x, float by) {
    int i = (blockIdx.x * 64 + threadIdx.x) * N;
#pragma unroll
    for (int k = 0; k < N; ++k) x[i + k] *= by + FACTOR;
}
template __global__ void scale<UNROLL>(float *, float);

extern "C" __global__ void zero(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 0.f; }
