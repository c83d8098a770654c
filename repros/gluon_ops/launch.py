"""Launches of the Gluon kernels of this folder; each returns what it computes."""

import kernels
import torch


def wgmma(*, m=256, n=256, k=512, block_m=64, block_n=128, block_k=64):
    """A product of two matrices."""
    return _matmul(kernels.wgmma_matmul, (m, n, k), (block_m, block_n, block_k))


def tcgen05(*, m=256, n=256, k=512, block_m=128, block_n=128, block_k=64):
    """A product of two matrices; `block_n` columns of tensor memory."""
    return _matmul(kernels.tcgen05_matmul, (m, n, k), (block_m, block_n, block_k))


def copies(*, programs=8, steps=6, block=512, stages=3):
    """Twice each element of a vector."""
    x = torch.randn(programs * steps * block, device="cuda")
    out = torch.empty_like(x)
    kernels.copy_pipeline[(programs,)](x, out, steps, BLOCK=block, STAGES=stages, num_warps=4)
    return out


def _matmul(kernel, sizes, blocks):
    (m, n, k), (block_m, block_n, block_k) = sizes, blocks
    a = torch.randn(m, k, device="cuda").to(torch.float16)
    b = torch.randn(k, n, device="cuda").to(torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    kernel[(m // block_m, n // block_n)](
        a, b, c, k, n, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=4
    )
    return c
