"""A row-wise kernel that needs more registers than a thread has, in few warps and in many.

Four rows are alive at once, until the largest value of one is known; a row is worked on in blocks of
`block` values. With few warps a thread holds many of them and has to spill. How much it spills depends
on how many registers ptxas gives it: without `.minnctapersm` in the PTX it may choose as few as let all
blocks of an SM be resident at once (32 with 2 to 16 warps on an SM of 2,048 threads).
"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=warps, num_stages=1) for warps in (1, 2, 4, 8)],
    key=["BLOCK"],
)
@triton.jit
def combine_rows(x, out, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n, other=0.0)
        b = tl.load(x + n + at, mask=at < n, other=0.0)
        c = tl.load(x + 2 * n + at, mask=at < n, other=0.0)
        d = tl.load(x + 3 * n + at, mask=at < n, other=0.0)
        tl.store(out + at, tl.where(tl.max(a) > 1e30, b * c * d, a * b + c * d), mask=at < n)


def default(*, n=65536, block=16384):
    """Four rows of `n` float32 values."""
    x, out = torch.randn(4, n, device="cuda"), torch.empty(n, device="cuda")
    combine_rows[(1,)](x, out, n, BLOCK=block)
    return out
