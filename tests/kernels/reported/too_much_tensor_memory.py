"""state-spaces/mamba#904: accumulators of more than 512 columns: Triton 3.5 - 3.7 make an empty kernel of it."""

import torch
import triton
import triton.language as tl


@triton.jit
def three_products(x, out, n, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, N)[:, None]
    columns = tl.arange(0, K)[None, :]
    first = tl.zeros((N, N), tl.float32)
    second = tl.zeros((N, N), tl.float32)
    third = tl.zeros((N, N), tl.float32)
    for start in range(0, n, K):
        value = tl.load(x + rows * n + start + columns)
        other = tl.trans(value)
        first = tl.dot(value, other, first)
        second = tl.dot(value, other * 2.0, second)
        third = tl.dot(value * 3.0, other, third)
    place = out + rows * N + tl.arange(0, N)[None, :]
    tl.store(place, first * second + third)
    tl.store(place + N * N, tl.dot(first.to(tl.float16), second.to(tl.float16), third))


def launch(block=128, k=64, n=1024):
    x = torch.empty(block, n, device="cuda", dtype=torch.float16)
    out = torch.empty(2 * block, block, device="cuda")
    three_products[(1,)](x, out, n, N=block, K=k, num_warps=4, num_stages=2)
