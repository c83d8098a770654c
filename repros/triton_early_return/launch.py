"""A return before a warp-specialised loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def early_return(x, out, blocks, n):
    if tl.program_id(0) >= blocks:
        return
    lines = tl.arange(0, 128)
    for step in tl.range(0, n, warp_specialize=True):
        tl.store(out + step * 128 + lines, tl.load(x + step * 128 + lines))


def launch(n: int = 4):
    x = torch.randn(n * 128, device="cuda")
    out = torch.empty_like(x)
    early_return[(4,)](x, out, 1, n)
    return out
