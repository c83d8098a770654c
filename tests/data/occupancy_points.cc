// Answers of NVIDIA's own calculator. Reads lines of
//   capability threads registers shared barriers threads_per_sm shared_per_sm
// and writes the resident blocks of each. Built by make_tool_output.py against cuda_occupancy.h.
#include <cstdio>
#include <cstring>

#include "cuda_occupancy.h"

int main() {
  int capability, threads, registers, shared, barriers, threads_per_sm, shared_per_sm;
  while (std::scanf("%d %d %d %d %d %d %d", &capability, &threads, &registers, &shared, &barriers,
                    &threads_per_sm, &shared_per_sm) == 7) {
    cudaOccDeviceProp device;
    std::memset(&device, 0, sizeof device);
    device.computeMajor = capability / 10;
    device.computeMinor = capability % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = threads_per_sm;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.sharedMemPerMultiprocessor = shared_per_sm;
    device.reservedSharedMemPerBlock = capability >= 80 ? 1024 : 0;
    device.sharedMemPerBlockOptin = shared_per_sm - device.reservedSharedMemPerBlock;
    device.numSms = 1;
    cudaOccFuncAttributes function;
    std::memset(&function, 0, sizeof function);
    function.maxThreadsPerBlock = 1024;
    function.numRegs = registers;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = shared;
    function.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    std::memset(&state, 0, sizeof state);
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state,
                                                        threads, shared);
    std::printf("%d\n", error ? -1 : result.activeBlocksPerMultiprocessor);
  }
}
