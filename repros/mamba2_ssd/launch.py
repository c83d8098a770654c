"""Launches of Mamba-2's SSD through upstream's `mamba_chunk_scan_combined`, library defaults."""

import torch


def forward(
    *,
    batch=4,
    seqlen=4096,
    nheads=64,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=256,
    gated=True,
):
    """The five kernels of the forward pass, at d_model 2048."""
    inputs, options = _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, gated)
    return _combined(inputs, options, chunk_size)


def backward(
    *,
    batch=4,
    seqlen=4096,
    nheads=64,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=256,
    gated=True,
):
    """Forward and backward: what training runs."""
    inputs, options = _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, gated)
    result = _combined(inputs, options, chunk_size)
    leaves = [leaf for leaf in (*inputs, *options.values()) if isinstance(leaf, torch.Tensor)]
    return result, torch.autograd.grad(result, leaves, torch.randn_like(result))


def varlen(
    *, sequences=4, seqlen=4096, nheads=64, headdim=64, ngroups=1, dstate=128, chunk_size=256
):
    """Sequences of equal length, packed into one and kept apart by their index."""
    inputs, options = _inputs(1, sequences * seqlen, nheads, headdim, ngroups, dstate, gated=True)
    index = torch.arange(sequences, dtype=torch.int32, device="cuda")
    options["seq_idx"] = index.repeat_interleave(seqlen, output_size=sequences * seqlen)[None]
    return _combined(inputs, options, chunk_size)


def _normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, gated):
    inputs = (
        _normal(batch, seqlen, nheads, headdim),
        _normal(batch, seqlen, nheads),
        # The decay is negative: states fade.
        (-torch.rand(nheads, device="cuda") - 0.5).detach().requires_grad_(),
        _normal(batch, seqlen, ngroups, dstate),
        _normal(batch, seqlen, ngroups, dstate),
    )
    options = {
        "D": _normal(nheads, dtype=torch.float32),
        "z": _normal(batch, seqlen, nheads, headdim) if gated else None,
        # As the library's own: dt_bias puts softplus(dt) between 0.001 and 0.1.
        "dt_bias": (-4.0 - torch.rand(nheads, device="cuda")).detach().requires_grad_(),
    }
    return inputs, options


def _combined(inputs, options, chunk_size):
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    return mamba_chunk_scan_combined(*inputs, chunk_size, **options, dt_softplus=True)
