"""A launch of no programs, and one that no compiler takes."""

import torch
import triton
import triton.language as tl


@triton.jit
def fill(out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 1.0, offsets < n)


@triton.jit
def misshapen(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.arange(0, 2 * BLOCK).to(tl.float32))


def launch(n=0):
    out = torch.empty(64, device="cuda")
    fill[(triton.cdiv(n, 64),)](out, n, BLOCK=64)
    misshapen[(1,)](out, BLOCK=32)
