"""Two configs that come to the same code: a heuristic overrides what they differ in."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.heuristics({"BLOCK": lambda _: 256})
@triton.jit
def overridden(out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, offsets, mask=offsets < n)


def launch():
    overridden[(1,)](torch.empty(100, device="cuda", dtype=torch.int32), 100)
