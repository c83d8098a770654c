"""Launches of Liger-Kernel's norms through their autograd functions."""

import torch


def rms(*, rows=8192, columns=4096):
    """RMSNorm as Llama casts, forward and backward."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x, weight = _normal(rows, columns), _normal(columns)
    output = LigerRMSNormFunction.apply(x, weight, 1e-6, 0.0, "llama", False)
    return output, torch.autograd.grad(output, (x, weight), torch.randn_like(output))


def layer(*, rows=8192, columns=4096):
    """LayerNorm, forward and backward."""
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    x, weight, bias = _normal(rows, columns), _normal(columns), _normal(columns)
    output = LigerLayerNormFunction.apply(x, weight, bias, 1e-6)
    return output, torch.autograd.grad(output, (x, weight, bias), torch.randn_like(output))


def _normal(*shape):
    return torch.randn(*shape, device="cuda").to(torch.bfloat16).requires_grad_()
