"""triton-lang/triton#6157: Triton 3.2 aborts in `SmallVector` where it lowers a batch of dots without TF32."""

import torch
import triton
import triton.language as tl


@triton.jit
def batched(x, y, out, B: tl.constexpr, N: tl.constexpr):
    b = tl.arange(0, B)[:, None, None] * N * N
    i = tl.arange(0, N)[None, :, None] * N
    j = tl.arange(0, N)[None, None, :]
    product = tl.dot(tl.load(x + b + i + j), tl.load(y + b + i + j), input_precision="ieee")
    tl.store(out + b + i + j, product)


def launch(batch=4, n=32):
    x = torch.empty(batch, n, n, device="cuda")
    batched[(1,)](x, x, x, B=batch, N=n)
