"""A kernel whose blocks the launch code chooses by what GPU there is."""

import torch
import triton
import triton.language as tl


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) * 2, mask)


def launch(n=96):
    block = 64 if torch.cuda.get_device_capability()[0] >= 9 else 32
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    double[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
    return out
