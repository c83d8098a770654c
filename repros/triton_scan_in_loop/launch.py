"""A sum along a tile in a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def scan_in_loop(x, out, n):
    lines = tl.arange(0, 32)
    at = lines[:, None] * 32 + lines[None, :]
    for step in tl.range(0, n, warp_specialize=True):
        tile = tl.load(x + step * 1024 + at)
        tl.store(out + step * 1024 + at, tl.cumsum(tile, 0))


def launch(n: int = 4):
    x = torch.randn(n * 32, 32, device="cuda")
    out = torch.empty_like(x)
    scan_in_loop[(1,)](x, out, n)
    return out
