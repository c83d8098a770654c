"""Tuned kernels with configs that are sick or fail, and better ones beside them."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    # Too few registers for four rows: it spills.
    triton.Config({"BLOCK": 2048}, num_warps=1, num_stages=1, maxnreg=32),
    triton.Config({"BLOCK": 2048}, num_warps=2, num_stages=1, maxnreg=32),
    # More than the kernel takes.
    triton.Config({"BLOCK": 8192}, num_warps=2, num_stages=1, maxnreg=32),
]


@triton.autotune(CONFIGS, key=["EVEN"])
@triton.jit
def mixing(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """All four rows are alive at once; a row is worked on block by block."""
    tl.static_assert(BLOCK < 8192)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        a = tl.load(x + offsets, mask=mask, other=0.0)
        b = tl.load(x + n + offsets, mask=mask, other=0.0)
        c = tl.load(x + 2 * n + offsets, mask=mask, other=0.0)
        d = tl.load(x + 3 * n + offsets, mask=mask, other=0.0)
        result = a * tl.max(b) + b * tl.max(c) + c * tl.max(d) + d * tl.max(a)
        tl.store(out + offsets, result, mask=mask)


LARGE = [triton.Config({"BLOCK": 8192}, num_warps=1, num_stages=1)]


@triton.autotune(LARGE, key=[])
@triton.jit
def tiled(x, out, n, BLOCK: tl.constexpr):
    """The same whatever the block is; all four rows are kept until the largest is known."""
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n, other=0.0)
        b = tl.load(x + n + at, mask=at < n, other=0.0)
        c = tl.load(x + 2 * n + at, mask=at < n, other=0.0)
        d = tl.load(x + 3 * n + at, mask=at < n, other=0.0)
        tl.store(out + at, tl.where(tl.max(a) > 1e30, b * c * d, a * b + c * d), mask=at < n)


@triton.autotune(LARGE, key=[])
@triton.jit
def untiled(x, out, n, BLOCK: tl.constexpr):
    """As the one above, but what it computes depends on the block."""
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n, other=0.0)
        b = tl.load(x + n + at, mask=at < n, other=0.0)
        c = tl.load(x + 2 * n + at, mask=at < n, other=0.0)
        d = tl.load(x + 3 * n + at, mask=at < n, other=0.0)
        most = tl.max(a)
        tl.store(out + at, tl.where(most > 1e30, b * c * d, a * b + c * d) + most, mask=at < n)


@triton.jit
def alone(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a = tl.load(x + offsets, mask=offsets < n, other=0.0)
    b = tl.load(x + n + offsets, mask=offsets < n, other=0.0)
    c = tl.load(x + 2 * n + offsets, mask=offsets < n, other=0.0)
    tl.store(out + offsets, a * tl.sum(b) + b * tl.sum(c) + c * tl.sum(a), mask=offsets < n)


def launch(n: int = 8192):
    x = torch.randn(4, n, device="cuda")
    out = torch.empty(n, device="cuda")
    others = [torch.empty(n, device="cuda") for _ in range(3)]
    mixing[(1,)](x, out, n, EVEN=True)
    alone[(1,)](x, others[0], n, BLOCK=4096, num_warps=1, maxnreg=32)
    tiled[(1,)](x, others[1], n)
    untiled[(1,)](x, others[2], n)
    return out, others
