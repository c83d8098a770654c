"""state-spaces/mamba#904: sums of more than 512 columns of tensor memory become a kernel that only traps."""

import torch
import triton
import triton.language as tl


@triton.jit
def three_sums(x, y, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    inner = tl.arange(0, K)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    third = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(x + rows * k + start + inner[None, :])
        right = tl.load(y + (start + inner[:, None]) * N + columns)
        first = tl.dot(left, right, first)
        second = tl.dot(left * 2.0, right, second)
        third = tl.dot(left, right * 3.0, third)
    tl.store(out + rows * N + columns, first * second + third)


def launch(m=128, n=256, block=32, k=1024):
    x = torch.empty(m, k, device="cuda", dtype=torch.float16)
    y = torch.empty(k, n, device="cuda", dtype=torch.float16)
    out = torch.empty(m, n, device="cuda")
    three_sums[(1,)](x, y, out, k, M=m, N=n, K=block, num_warps=4, num_stages=1)
