// launch block=128
__global__ void inlined(float *x) { asm volatile("bogus.f32 %0, %0;" : "+f"(x[threadIdx.x])); }
