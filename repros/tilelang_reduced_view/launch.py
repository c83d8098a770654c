"""Sums over several rows of a product, which a view makes one row.

The pattern of `mamba3_mimo_bwd_bwd`: 0.1.8 to 0.1.12 lower it, 0.1.13 and later do not.
"""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def reduced(n, rows):
    """The sums of each `rows` rows of `A @ A`."""

    @T.prim_func
    def reduced_kernel(A: T.Tensor((n, n), "float16"), B: T.Tensor((n // rows,), "float32")):
        with T.Kernel(1, threads=256):
            shared = T.alloc_shared((n, n), "float16")
            product = T.alloc_fragment((n, n), "float32")
            sums = T.alloc_fragment((n // rows,), "float32")
            T.copy(A, shared)
            T.gemm(shared, shared, product, clear_accum=True)
            T.reduce_sum(T.view(product, shape=[n // rows, rows * n]), sums, dim=-1, clear=True)
            T.copy(sums, B)

    return reduced_kernel


def reduced_view(*, n=64, rows=4):
    """All versions lower it with rows=1."""
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    reduced(n, rows)(a, torch.zeros(n // rows, device="cuda"))
