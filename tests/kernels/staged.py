"""Loops with stages of their own, and an interpreter that is wrong in one version of Triton."""

import os

import torch
import triton
import triton.language as tl

# Where it is interpreted by 3.6, the kernel is another one.
SIGN = tl.constexpr(
    -1 if os.environ.get("TRITON_INTERPRET") and triton.__version__.startswith("3.6") else 1
)


@triton.jit
def product(a, b, c, k, BLOCK: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in tl.range(0, k, BLOCK, num_stages=3):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    if SIGN < 0:
        total = -total
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total)


def launch(k=128):
    a = torch.randn(32, k, device="cuda").to(torch.float16)
    b = torch.randn(k, 32, device="cuda").to(torch.float16)
    c = torch.empty(32, 32, device="cuda")
    product[(1,)](a, b, c, k, BLOCK=32)
    return c
