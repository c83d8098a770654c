"""Launches of the Mamba-3 SISO backward kernel, through upstream's own `compute_dqkv`."""

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
):
    """The training shape of the issue: no states in or out, `D` present."""
    shape = (batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v)
    return _compute_dqkv(shape, chunk_size, has_d=has_d)


def gqa(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=1, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """All heads share one head of q and k."""
    return _compute_dqkv((batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v), chunk_size)


def without_d(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=64, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """No skip connection."""
    shape = (batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v)
    return _compute_dqkv(shape, chunk_size, has_d=False)


def states(
    *, batch=4, seqlen=4096, nheads=64, nheads_qk=64, headdim_qk=128, headdim_v=64, chunk_size=64
):
    """Gradients of the states that came out go in; those of the states that went in come out."""
    options = {
        "d_ossm_state": _normal(batch, nheads, headdim_v, headdim_qk, dtype=torch.bfloat16),
        "d_ov_state": _normal(batch, nheads, headdim_v, dtype=torch.bfloat16),
        "has_input_state": True,
    }
    shape = (batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v)
    return _compute_dqkv(shape, chunk_size, **options)


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
    ends = torch.arange(0, total + 1, seqlen, dtype=torch.int32, device="cuda")
    shape = (1, total, nheads, nheads_qk, headdim_qk, headdim_v)
    # Upstream leaves room for a chunk that each sequence may not fill.
    chunks = sequences + total // chunk_size
    return _compute_dqkv(shape, chunk_size, chunks=chunks, Cu_Seqlens=ends)


def _normal(*shape, dtype):
    return torch.randn(*shape, device="cuda").to(dtype)


def _compute_dqkv(shape, chunk_size, *, has_d=True, chunks=None, **options):
    from mamba_ssm.ops.triton.mamba3.mamba3_siso_bwd import compute_dqkv

    batch, seqlen, nheads, nheads_qk, headdim_qk, headdim_v = shape
    bf16, fp32 = torch.bfloat16, torch.float32
    chunks = chunks or (seqlen + chunk_size - 1) // chunk_size
    # Decays are negative, and cumulate within a chunk: a few units at most.
    decay = -torch.rand(batch, nheads, seqlen, device="cuda")
    return compute_dqkv(
        q=_normal(batch, seqlen, nheads_qk, headdim_qk, dtype=bf16),
        k=_normal(batch, seqlen, nheads_qk, headdim_qk, dtype=bf16),
        v=_normal(batch, seqlen, nheads, headdim_v, dtype=bf16),
        da_cs=decay,
        da_cs_sum=-torch.rand(batch, nheads, chunks, device="cuda"),
        qk_dot=_normal(batch, nheads, seqlen, dtype=fp32),
        SSM_States=_normal(batch, nheads, headdim_v, chunks * headdim_qk, dtype=bf16),
        do=_normal(batch, seqlen, nheads, headdim_v, dtype=bf16),
        D=_normal(nheads, dtype=fp32) if has_d else None,
        chunk_size=chunk_size,
        **options,
    )
