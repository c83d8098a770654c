"""For each verdict that TileLang can be brought to, the smallest launch that has it.

Seen on TileLang 0.1.8, sm_90a, nvcc 13.0.88 and its ptxas.
"""

import kernels
import torch

# TileLang goes on in the line in which this ends.
_UNDEFINED = "__device__ float other(float x) { return undefined_name; }\n"
_BOGUS = """__device__ float other(float x) {
    asm volatile("bogus.f32 %0;" :: "f"(x));
    return x;
}
"""


def ok(*, n=1024, num_stages=2):
    """`ok`: a product of two matrices."""
    return _matmul(n, num_stages=num_stages)


def tuned(*, n=1024):
    """Four configs, of which one wants 394,240 B of shared memory."""
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    return kernels.tuned(n, n, n)(a, a)


def sick_spills(*, n=1024, threads=128):
    """`sick`: 256 x 256 sums are 512 for each of 128 threads; with 512 threads nothing spills."""
    return _matmul(n, block_m=256, block_n=256, threads=threads)


def out_of_resources(*, n=1024, num_stages=6):
    """`out_of_resources`: TileLang and nvcc compile it; no GPU has so much shared memory."""
    return _matmul(n, block_m=128, block_n=128, block_k=128, num_stages=num_stages)


def rejected(*, n=1024, inner=64):
    """`rejected`: tiles of 32 and 64 along the dimension that is summed over."""
    return _matmul(n, inner=inner)


def rejected_nvcc():
    """`rejected`, by nvcc."""
    return _foreign(_UNDEFINED)


def ptxas_error():
    """`ptxas_error`: nvcc copies inline assembly without looking."""
    return _foreign(_BOGUS)


def pass_failure(*, n=64):
    """`pass_failure`: no instruction multiplies what is laid out so."""
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    kernels.chained(n)(a, a)


def unsupported(*, n=1024):
    """`unsupported`: compiled for HIP by its own decorator."""
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    return kernels.matmul_hip(n, n, n)(a, a)


def _matmul(n, **options):
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    return kernels.matmul(n, n, n, **options)(a, a)


def _foreign(source):
    kernels.foreign(128, source)(torch.zeros(128, device="cuda"))
