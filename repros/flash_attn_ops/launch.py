"""Launches of the Triton kernels in flash-attn's `ops/triton`, through upstream's own functions."""

import torch


def norm(*, rows=8192, columns=4096):
    """RMSNorm with a residual, as a block of a model calls it, forward and backward."""
    from flash_attn.ops.triton.layer_norm import layer_norm_fn

    x, residual, weight = _normal(rows, columns), _normal(rows, columns), _normal(columns)
    output, summed = layer_norm_fn(
        x, weight, None, residual=residual, prenorm=True, is_rms_norm=True
    )
    leaves = (x, residual, weight)
    ones = (torch.randn_like(output), torch.randn_like(summed))
    return output, summed, torch.autograd.grad((output, summed), leaves, ones)


def rotary(*, batch=4, seqlen=4096, heads=32, headdim=128):
    """Rotary embedding of the queries."""
    from flash_attn.ops.triton.rotary import apply_rotary

    x = torch.randn(batch, seqlen, heads, headdim, device="cuda").to(torch.bfloat16)
    angle = torch.rand(seqlen, headdim // 2, device="cuda")
    return apply_rotary(x, angle.cos().to(x.dtype), angle.sin().to(x.dtype))


def _normal(*shape):
    return torch.randn(*shape, device="cuda").to(torch.bfloat16).requires_grad_()
