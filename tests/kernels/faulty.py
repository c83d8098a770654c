"""Kernels that compile and must not be launched: one reads out of bounds, one never ends."""

import torch
import triton
import triton.language as tl


@triton.jit
def beyond(x, out, n, BLOCK: tl.constexpr):
    """Its second load has no mask that would hold it back."""
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.load(x + n + offsets))


@triton.jit
def endless(x, out):
    value = tl.load(x)
    while value != 0.0:
        value = tl.load(x, volatile=True)
    tl.store(out, value)


def launch(n=64):
    x = torch.ones(n, device="cuda")
    beyond[(1,)](x, torch.empty_like(x), n, BLOCK=64)
    endless[(1,)](x, torch.empty_like(x))
