"""One kernel for every type of elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def move(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n), offsets < n)


def launch(n=96, name="float16"):
    dtype = getattr(torch, name)
    x = torch.randn(n, device="cuda").abs().to(dtype)
    out = torch.empty(n, device="cuda", dtype=dtype)
    move[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    return out
