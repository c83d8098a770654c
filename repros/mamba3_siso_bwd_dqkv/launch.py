"""Launches of the Mamba-3 SISO backward kernel, through upstream's own `compute_dqkv`."""

import torch


def _empty(*shape, dtype):
    return torch.empty(*shape, dtype=dtype, device="cuda")


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
    from mamba_ssm.ops.triton.mamba3.mamba3_siso_bwd import compute_dqkv

    bf16, fp32 = torch.bfloat16, torch.float32
    nchunks = (seqlen + chunk_size - 1) // chunk_size
    compute_dqkv(
        q=_empty(batch, seqlen, nheads_qk, headdim_qk, dtype=bf16),
        k=_empty(batch, seqlen, nheads_qk, headdim_qk, dtype=bf16),
        v=_empty(batch, seqlen, nheads, headdim_v, dtype=bf16),
        da_cs=_empty(batch, nheads, seqlen, dtype=fp32),
        da_cs_sum=_empty(batch, nheads, nchunks, dtype=fp32),
        qk_dot=_empty(batch, nheads, seqlen, dtype=fp32),
        SSM_States=_empty(batch, nheads, headdim_v, nchunks * headdim_qk, dtype=bf16),
        do=_empty(batch, seqlen, nheads, headdim_v, dtype=bf16),
        D=_empty(nheads, dtype=fp32) if has_d else None,
        chunk_size=chunk_size,
    )
