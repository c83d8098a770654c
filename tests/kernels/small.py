"""A small kernel, launched by `launch()`."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)


@triton.jit
def never(x):
    tl.store(x, 1)


def launch(n=4096, block=256, scale=1.0, wide=False, shape=(3, 3)):
    x = torch.empty(n, device="cuda", dtype=torch.float64 if wide else torch.float32)
    add[(triton.cdiv(n, block),)](x, x, torch.empty_like(x), n, BLOCK=block)
