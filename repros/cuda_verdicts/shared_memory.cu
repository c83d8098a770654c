// launch block=128
__global__ void turned(const char *x, char *out) {
    __shared__ char row[BYTES];
    for (int i = threadIdx.x; i < BYTES; i += 128) row[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < BYTES; i += 128) out[i] = row[BYTES - 1 - i];
}
