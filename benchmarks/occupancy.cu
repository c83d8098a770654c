// What a profiler says of a kernel with the resources of `mamba_mimo_fwd_kernel` (224 registers, 128
// threads, dynamic shared memory): how much of an SM it fills, and what the driver configures for it.
//
//     nvcc -O3 -arch=sm_90a benchmarks/occupancy.cu -o occupancy
//     ncu --metrics launch__registers_per_thread,launch__shared_mem_config_size,\
// sm__maximum_warps_per_active_cycle_pct,sm__warps_active.avg.pct_of_peak_sustained_active ./occupancy 16 59520
//
// The first argument is the number of blocks, the second bytes of dynamic shared memory of each.

#include <cstdio>
#include <cstdlib>

constexpr int kThreads = 128, kValues = 150, kRounds = 20000;

// Without a bound this ptxas takes 32 registers and spills the rest: the collapse that triage is about.
__global__ void __maxnreg__(224) hold(float *p, int rounds) {
  extern __shared__ float shared[];
  float held[kValues];
#pragma unroll
  for (int i = 0; i < kValues; i++) held[i] = p[i * kThreads + threadIdx.x];
  for (int round = 0; round < rounds; round++) {
    shared[threadIdx.x] = held[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kValues; i++)
      held[i] = held[i] * held[(i + 1) % kValues] + shared[(threadIdx.x + i) % kThreads];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kValues; i++) p[i * kThreads + threadIdx.x] = held[i];
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: occupancy BLOCKS BYTES\n"), 2;
  const int blocks = atoi(argv[1]), bytes = atoi(argv[2]);
  float *p;
  cudaMalloc(&p, kValues * kThreads * sizeof(float));
  cudaMemset(p, 0, kValues * kThreads * sizeof(float));
  cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncAttributes found;
  cudaFuncGetAttributes(&found, hold);
  int resident = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, hold, kThreads, bytes);
  hold<<<blocks, kThreads, bytes>>>(p, kRounds);
  const cudaError_t end = cudaDeviceSynchronize();
  printf("%d registers, %d blocks an SM: %s\n", found.numRegs, resident, cudaGetErrorString(end));
  return end != cudaSuccess;
}
