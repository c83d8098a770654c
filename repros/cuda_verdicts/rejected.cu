// launch block=128
__global__ void wrong(float *x) { x[threadIdx.x] = scale * x[threadIdx.x]; }
