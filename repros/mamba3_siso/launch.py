"""Launches of Mamba-3 SISO, forward and backward, through upstream's `mamba3_siso_combined`."""

import torch


def default(
    *,
    batch=4,
    seqlen=4096,
    nheads=64,
    nheads_qk=64,
    headdim_qk=128,
    headdim_v=64,
    chunk_size=64,
    has_d=True,
    has_z=True,
):
    """The training shape of state-spaces/mamba#904, gated: no states in or out."""
    inputs, options = _inputs(batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v, has_d, has_z)
    return _forward_and_backward(inputs, options, chunk_size)


def gqa(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=1, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """All heads share one head of q and k."""
    inputs, options = _inputs(batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v)
    return _forward_and_backward(inputs, options, chunk_size)


def without_d(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=64, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """No skip connection."""
    inputs, options = _inputs(batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v, has_d=False)
    return _forward_and_backward(inputs, options, chunk_size)


def states(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=64, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """States go in and come out, as between the segments of a long sequence."""
    inputs, options = _inputs(batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v)
    options["Input_States"] = _states(batch, nheads, headdim_qk, headdim_v)
    options["return_final_states"] = True
    return _forward_and_backward(inputs, options, chunk_size)


def varlen(
    *,
    sequences=4,
    seqlen=4096,
    nheads=64,
    nheads_qk=64,
    headdim_qk=128,
    headdim_v=64,
    chunk_size=64,
):
    """Sequences of equal length, packed into one."""
    total = sequences * seqlen
    inputs, options = _inputs(1, total, nheads, nheads_qk, headdim_qk, headdim_v)
    ends = torch.arange(0, total + 1, seqlen, dtype=torch.int32, device="cuda")
    options["cu_seqlens"] = ends
    return _forward_and_backward(inputs, options, chunk_size)


def _normal(*shape, dtype=torch.bfloat16, scale=1.0):
    return (scale * torch.randn(*shape, device="cuda")).to(dtype).requires_grad_()


def _inputs(batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v, has_d=True, has_z=True):
    fp32 = torch.float32
    dt = 0.1 * torch.rand(batch, nheads, seqlen, device="cuda")
    inputs = {
        "Q": _normal(batch, seqlen, nheads_qk, headdim_qk),
        "K": _normal(batch, seqlen, nheads_qk, headdim_qk),
        "V": _normal(batch, seqlen, nheads, headdim_v),
        # The decay is negative: states fade.
        "ADT": (-dt).detach().requires_grad_(),
        "DT": dt.detach().requires_grad_(),
        "Trap": torch.rand(batch, nheads, seqlen, device="cuda")
        .to(torch.bfloat16)
        .requires_grad_(),
        "Q_bias": _normal(nheads, headdim_qk, dtype=fp32),
        "K_bias": _normal(nheads, headdim_qk, dtype=fp32),
        "Angles": _normal(batch, seqlen, nheads, headdim_qk // 4),
    }
    options = {
        "D": _normal(nheads, dtype=fp32) if has_d else None,
        "Z": _normal(batch, seqlen, nheads, headdim_v) if has_z else None,
    }
    return inputs, options


def _states(batch, nheads, headdim_qk, headdim_v):
    fp32 = torch.float32
    return (
        _normal(batch, nheads, headdim_qk // 4, dtype=fp32),
        _normal(batch, nheads, headdim_v, headdim_qk, dtype=fp32),
        _normal(batch, nheads, headdim_qk),
        _normal(batch, nheads, headdim_v),
    )


def _forward_and_backward(inputs, options, chunk_size):
    """What the operation computes: its results, and the gradients of all inputs."""
    from mamba_ssm.ops.triton.mamba3.mamba3_siso_combined import mamba3_siso_combined

    results = mamba3_siso_combined(**inputs, **options, chunk_size=chunk_size)
    results = results if isinstance(results, tuple) else (results,)
    leaves = [*inputs.values(), options["D"], options["Z"], *(options.get("Input_States") or ())]
    leaves = [leaf for leaf in leaves if leaf is not None]
    gradients = [torch.randn(result.shape, device="cuda").to(result.dtype) for result in results]
    return results, torch.autograd.grad(results, leaves, gradients)
