// An array of which only the data says what is read: registers have no index.
// launch block=128
__global__ void permuted(const int *order, const float *x, float *out) {
    float row[512];
    for (int i = 0; i < 512; ++i) row[i] = x[i * 128 + threadIdx.x];
    for (int i = 0; i < 512; ++i) out[i * 128 + threadIdx.x] = row[order[i] & 511];
}
