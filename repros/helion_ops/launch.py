"""Kernels of Helion: what it generates for each config is compiled."""

import helion
import helion.language as hl
import torch


@helion.kernel(
    configs=[
        helion.Config(block_sizes=[64, 64, 32], num_warps=4),
        helion.Config(block_sizes=[128, 64, 32], num_warps=8, indexing="tensor_descriptor"),
    ],
    static_shapes=True,
)
def matmul(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            total = torch.addmm(total, x[rows, inner], y[inner, columns])
        out[rows, columns] = (total + bias[columns]).to(x.dtype)
    return out


@helion.kernel()
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        values = x[row, :].to(torch.float32)
        powers = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[row, :] = (powers / torch.sum(powers, dim=1, keepdim=True)).to(x.dtype)
    return out


def product(*, m=256, n=256, k=256, dtype="float16"):
    dtype = getattr(torch, dtype)
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    y = torch.randn(k, n, device="cuda", dtype=dtype)
    return matmul(x, y, torch.randn(n, device="cuda", dtype=dtype))


def rows(*, m=256, n=512):
    return softmax(torch.randn(m, n, device="cuda", dtype=torch.bfloat16))
