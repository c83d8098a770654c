"""Launches of gated linear attention through flash-linear-attention's `chunk_gla`."""

import torch


def forward(*, batch=4, seqlen=4096, heads=4, dk=128, dv=256):
    """The output and the last state, as prefill wants them."""
    return _combined(_inputs(batch, seqlen, heads, dk, dv))


def backward(*, batch=4, seqlen=4096, heads=4, dk=128, dv=256):
    """Forward and backward: what training runs."""
    inputs = _inputs(batch, seqlen, heads, dk, dv)
    output, state = _combined(inputs)
    return output, state, torch.autograd.grad(output, inputs, torch.randn_like(output))


def _inputs(batch, seqlen, heads, dk, dv):
    def normal(width):
        return torch.randn(batch, seqlen, heads, width, device="cuda").to(torch.bfloat16)

    # The logarithm of the decay is negative: states fade. The layer divides it by 16.
    decay = -torch.rand(batch, seqlen, heads, dk, device="cuda") / 16
    inputs = (normal(dk), normal(dk), normal(dv), decay.to(torch.bfloat16))
    return [x.detach().requires_grad_() for x in inputs]


def _combined(inputs):
    from fla.ops.gla.chunk import chunk_gla

    return chunk_gla(*inputs, output_final_state=True)
