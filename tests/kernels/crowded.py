"""512 threads that may have 255 registers each, and need more than a block can give."""

import torch
import triton
import triton.language as tl


@triton.jit
def crowded(x, out, n, TILE: tl.constexpr):
    """Holds many values at once, each of which the next ones need."""
    at = tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in range(n):
        left = tl.load(x + step * TILE + at)
        total += left[:, None] * left[None, :] + total * total
    tl.store(out + at[:, None] * TILE + at[None, :], total)


def launch():
    x = torch.randn(4 * 256, device="cuda")
    out = torch.empty(256, 256, device="cuda")
    crowded[(1,)](x, out, 4, TILE=256, num_warps=16, maxnreg=255)
