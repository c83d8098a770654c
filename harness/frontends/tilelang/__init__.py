"""TileLang as a front end: launch code captured, kernels lowered to CUDA C++, then nvcc."""
