"""Mean and variance in one pass: partial results are merged, and merging is not symmetric in f32."""

import torch
import triton
import triton.language as tl


@triton.jit
def merged(mean, squares, count, other_mean, other_squares, other_count):
    total = count + other_count
    share = other_count / total
    step = other_mean - mean
    return mean + step * share, squares + other_squares + step * step * count * share, total


@triton.jit
def one_pass_variance(x, mean, variance, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    zeros = tl.zeros([N], tl.float32)
    middle, squares, count = tl.reduce((value, zeros, zeros + 1.0), 0, merged)
    tl.store(mean, middle)
    tl.store(variance, squares / count)


def launch(n: int = 1024, warps: int = 4):
    x = torch.randn(n, device="cuda")
    mean = torch.empty(1, device="cuda")
    variance = torch.empty(1, device="cuda")
    one_pass_variance[(1,)](x, mean, variance, N=n, num_warps=warps)
    return mean, variance
