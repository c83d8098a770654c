"""triton-lang/triton#6859: an assertion of Triton 3.3.0 does not know sm_120, so that no dot compiles for it."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows * k + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * N + columns)
        total = tl.dot(left, right, total)
    tl.store(c + rows * N + columns, total)


def launch(m=64, n=64, block=32, k=512):
    a = torch.empty(m, k, device="cuda", dtype=torch.float16)
    b = torch.empty(k, n, device="cuda", dtype=torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float32)
    matmul[(1,)](a, b, c, k, M=m, N=n, K=block)
