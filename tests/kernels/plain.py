"""One plain kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=mask), mask=mask)


def launch(n: int = 1024, block: int = 128):
    x = torch.empty(n, device="cuda")
    y = torch.empty_like(x)
    double[(triton.cdiv(n, block),)](x, y, n, BLOCK=block)
