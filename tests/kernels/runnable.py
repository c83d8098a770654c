"""Small kernels whose PTX can be executed: element by element, a reduction, a pipelined product."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_and_add(x, y, out, n, factor, bias, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask) * factor + tl.load(y + offsets, mask)
    if bias is not None:
        value += tl.load(bias)
    tl.store(out + offsets, value, mask)


@triton.jit
def row_sum(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out + row, tl.sum(values))


@triton.autotune(
    [
        triton.Config({"BLOCK_K": 32}, num_warps=warps, num_stages=stages)
        for warps in (2, 4)
        for stages in (1, 3)
    ],
    key=[],
)
@triton.jit
def matmul(a, b, c, k, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * BLOCK + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total.to(tl.float16))


def launch(n=96, k=128):
    x = torch.randn(n, device="cuda")
    y = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    # A view that begins inside its storage, and two arguments of one storage.
    pair = torch.randn(2 * n, device="cuda")
    blocks = (triton.cdiv(n, 64),)
    scale_and_add[blocks](x, y, out, n, 0.5, None, BLOCK=64)
    scale_and_add[blocks](pair, pair[n:], pair[n:], n, 2.0, x, BLOCK=64)
    rows = torch.empty(4, device="cuda")
    row_sum[(4,)](torch.randn(4, n, device="cuda"), rows, n, BLOCK=128)
    a = torch.randn(32, k, device="cuda").to(torch.float16)
    b = torch.randn(k, 32, device="cuda").to(torch.float16)
    c = torch.empty(32, 32, device="cuda", dtype=torch.float16)
    matmul[(1,)](a, b, c, k, BLOCK=32)
    return out, pair, rows, c
