"""Launches of conch-triton-kernels, through its own functions."""

import torch


def silu(*, rows=8192, columns=14336):
    """The gated activation of a served model."""
    from conch.kernels.activation.silu_and_mul import silu_and_mul_launcher

    x = torch.randn(rows, 2 * columns, device="cuda").to(torch.bfloat16)
    output = torch.zeros(rows, columns, device="cuda", dtype=x.dtype)
    silu_and_mul_launcher(output, x)
    return output


def gemm(*, rows=512, columns=4096, inner=4096):
    """A product of 8-bit integers, scaled, as a served model with quantised weights does it."""
    from conch.ops.quantization.gemm import scaled_gemm

    a = torch.randint(-128, 128, (rows, inner), dtype=torch.int8, device="cuda")
    b = torch.randint(-128, 128, (inner, columns), dtype=torch.int8, device="cuda")
    scale_a = torch.rand(rows, 1, device="cuda") / 128
    scale_b = torch.rand(columns, 1, device="cuda") / 128
    return scaled_gemm(a, b, scale_a, scale_b, torch.bfloat16)
