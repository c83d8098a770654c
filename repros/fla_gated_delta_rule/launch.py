"""Launches of the gated delta rule through flash-linear-attention's `chunk_gated_delta_rule`."""

import torch
import triton


def forward(*, batch=4, seqlen=4096, heads=16, dk=128, dv=128):
    """The output and the last state, as prefill wants them."""
    return _combined(_inputs(batch, seqlen, heads, dk, dv))


def forward_with_warps(*, batch=1, chunks=4, heads=1, dk=64, dv=64, warps=4, stages=2):
    """The same with warps that upstream leaves out on Blackwell, where they raced."""
    from fla.ops.common import chunk_delta_h

    tuner = chunk_delta_h.chunk_gated_delta_rule_fwd_kernel_h_blockdim64
    while not hasattr(tuner, "configs"):
        tuner = tuner.fn
    tuner.configs = [triton.Config({"BV": 32}, num_warps=warps, num_stages=stages)]
    return forward(batch=batch, seqlen=64 * chunks, heads=heads, dk=dk, dv=dv)


def backward(*, batch=4, seqlen=4096, heads=16, dk=128, dv=128):
    """Forward and backward: what training runs."""
    inputs = _inputs(batch, seqlen, heads, dk, dv)
    output, state = _combined(inputs)
    return output, state, torch.autograd.grad(output, inputs, torch.randn_like(output))


def _inputs(batch, seqlen, heads, dk, dv):
    def unit(width):
        # The rule is stable for keys of length one.
        x = torch.randn(batch, seqlen, heads, width, device="cuda")
        return torch.nn.functional.normalize(x, dim=-1).to(torch.bfloat16)

    value = torch.randn(batch, seqlen, heads, dv, device="cuda").to(torch.bfloat16)
    # The logarithm of the decay is negative: states fade.
    decay = -torch.rand(batch, seqlen, heads, device="cuda")
    beta = torch.rand(batch, seqlen, heads, device="cuda").to(torch.bfloat16)
    return [x.detach().requires_grad_() for x in (unit(dk), unit(dk), value, decay, beta)]


def _combined(inputs):
    from fla.ops.gated_delta_rule.chunk import chunk_gated_delta_rule

    return chunk_gated_delta_rule(*inputs, output_final_state=True)
