"""Launches of RWKV-7 through flash-linear-attention's `chunk_rwkv7`."""

import torch


def forward(*, batch=4, seqlen=4096, heads=32, dk=64, dv=64):
    """The output and the last state, as prefill wants them."""
    return _combined(_inputs(batch, seqlen, heads, dk, dv))


def backward(*, batch=4, seqlen=4096, heads=32, dk=64, dv=64):
    """Forward and backward: what training runs."""
    inputs = _inputs(batch, seqlen, heads, dk, dv)
    output, state = _combined(inputs)
    return output, state, torch.autograd.grad(output, inputs, torch.randn_like(output))


def _inputs(batch, seqlen, heads, dk, dv):
    def normal(width):
        return torch.randn(batch, seqlen, heads, width, device="cuda").to(torch.bfloat16)

    # As the layer makes them: a decay of exp(-0.61) at most, and a and b from one unit vector.
    decay = -0.61 * torch.rand(batch, seqlen, heads, dk, device="cuda")
    unit = torch.nn.functional.normalize(normal(dk).float(), dim=-1)
    gate = torch.rand(batch, seqlen, heads, dk, device="cuda")
    a, b = (-unit).to(torch.bfloat16), (unit * gate).to(torch.bfloat16)
    inputs = (normal(dk), decay.to(torch.bfloat16), normal(dk), normal(dv), a, b)
    return [x.detach().requires_grad_() for x in inputs]


def _combined(inputs):
    from fla.ops.rwkv7.chunk import chunk_rwkv7

    r, w, k, v, a, b = inputs
    return chunk_rwkv7(r, w, k, v, a, b, output_final_state=True)
