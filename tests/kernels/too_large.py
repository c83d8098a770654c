"""A product whose deepest pipeline needs more shared memory than any target has."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({}, num_stages=stages) for stages in (2, 6)], key=[])
@triton.jit
def product(a, b, c, k, BLOCK: tl.constexpr, INNER: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, INNER)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, INNER):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total.to(tl.float16))


def launch(k=256):
    a = torch.randn(128, k, device="cuda").to(torch.float16)
    b = torch.randn(k, 128, device="cuda").to(torch.float16)
    c = torch.empty(128, 128, device="cuda", dtype=torch.float16)
    product[(1,)](a, b, c, k, BLOCK=128, INNER=128)
    return c
