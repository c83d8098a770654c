"""Two products a step into one accumulator, in a pipelined loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def two_dots(a, b, c, d, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, K, BLOCK):
        left = rows[:, None] * K + start + inner[None, :]
        right = (start + inner)[:, None] * N + columns[None, :]
        total = tl.dot(tl.load(a + left), tl.load(b + right), total)
        total = tl.dot(tl.load(c + left), tl.load(d + right), total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


def launch(m: int = 128, n: int = 64, k: int = 256, stages: int = 2):
    a, c = (torch.randn(m, k, device="cuda", dtype=torch.float16) for _ in range(2))
    b, d = (torch.randn(k, n, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty(m, n, device="cuda", dtype=torch.float32)
    two_dots[(1,)](a, b, c, d, out, k, M=m, N=n, BLOCK=64, num_stages=stages)
    return out
