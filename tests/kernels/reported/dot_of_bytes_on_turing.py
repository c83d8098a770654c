"""triton-lang/triton#9349: since Triton 3.3, int8 dots on Turing become floating-point casts of integers."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.int32)
    for start in range(0, k, K):
        left = tl.load(a + rows * k + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * N + columns)
        total += tl.dot(left, right, out_dtype=tl.int32)
    tl.store(c + rows * N + columns, total)


def launch(m=64, n=64, block=32, k=512):
    a = torch.empty(m, k, device="cuda", dtype=torch.int8)
    b = torch.empty(k, n, device="cuda", dtype=torch.int8)
    c = torch.empty(m, n, device="cuda", dtype=torch.int32)
    matmul[(1,)](a, b, c, k, M=m, N=n, K=block)
