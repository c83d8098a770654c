"""Launches of the Mamba-3 MIMO kernels, through upstream's own `forward` and `bwd_combined`.

Batch, length and heads are dynamic in these kernels: what is compiled depends on none of them.
"""

import torch


def forward(
    *,
    batch=4,
    seqlen=8192,
    nheads=16,
    ngroups=1,
    headdim_qk=64,
    headdim_v=64,
    rank=4,
    chunk_size=16,
    has_z=True,
    has_d=True,
    tma=False,
):
    """The training shape; `tma` leaves the lowering to TMA copies on, which upstream turns off."""
    from mamba_ssm.ops.tilelang.mamba3 import mamba3_mimo_fwd as upstream

    _set_tma(tma, upstream.mamba_mimo_fwd)
    shape = (batch, seqlen, nheads, ngroups, headdim_qk, headdim_v, rank)
    given = _inputs(shape, chunk_size, has_z=has_z, has_d=has_d)
    names = ("q", "k", "v", "q_bias", "k_bias", "mimo_v", "mimo_o", "z", "D", "mimo_z", "angles")
    names += ("dA_cs", "dA_cs_rev", "dt", "trap", "segsum")
    arguments = {name: given[name] for name in names}
    upstream.mamba_mimo_forward(**arguments, **_settings(chunk_size))


def backward(
    *,
    batch=4,
    seqlen=8192,
    nheads=16,
    ngroups=1,
    headdim_qk=64,
    headdim_v=64,
    rank=4,
    chunk_size=16,
    has_z=True,
    has_d=True,
    tma=False,
):
    """Both kernels of the backward pass, of the same shape."""
    from mamba_ssm.ops.tilelang.mamba3 import mamba3_mimo_bwd as upstream

    _set_tma(tma, upstream.mamba_mimo_bwd_fwd, upstream.mamba_mimo_bwd_bwd)
    shape = (batch, seqlen, nheads, ngroups, headdim_qk, headdim_v, rank)
    given = _inputs(shape, chunk_size, has_z=has_z, has_d=has_d)
    upstream.mamba_mimo_bwd_combined(**given, **_settings(chunk_size))


def forward_varlen(
    *,
    sequences=4,
    seqlen=8192,
    nheads=16,
    ngroups=1,
    headdim_qk=64,
    headdim_v=64,
    rank=4,
    chunk_size=16,
    has_z=True,
    has_d=True,
):
    """Sequences of equal length, packed into one."""
    from mamba_ssm.ops.tilelang.mamba3 import mamba3_mimo_fwd_varlen as upstream

    shape = (1, sequences * seqlen, nheads, ngroups, headdim_qk, headdim_v, rank)
    given = _inputs(shape, chunk_size, has_z=has_z, has_d=has_d, sequences=sequences)
    del given["dout"]
    ends = torch.arange(0, (sequences + 1) * seqlen, seqlen, dtype=torch.int32, device="cuda")
    upstream.mamba_mimo_forward_varlen(**given, cu_seqlens=ends, **_settings(chunk_size))


def backward_varlen(
    *,
    sequences=4,
    seqlen=8192,
    nheads=16,
    ngroups=1,
    headdim_qk=64,
    headdim_v=64,
    rank=4,
    chunk_size=16,
    has_z=True,
    has_d=True,
):
    """Both kernels of the backward pass over packed sequences."""
    from mamba_ssm.ops.tilelang.mamba3 import mamba3_mimo_bwd_varlen as upstream

    shape = (1, sequences * seqlen, nheads, ngroups, headdim_qk, headdim_v, rank)
    given = _inputs(shape, chunk_size, has_z=has_z, has_d=has_d, sequences=sequences)
    ends = torch.arange(0, (sequences + 1) * seqlen, seqlen, dtype=torch.int32, device="cuda")
    upstream.mamba_mimo_bwd_combined_varlen(**given, cu_seqlens=ends, **_settings(chunk_size))


def _settings(chunk_size):
    return {"chunk_size": chunk_size, "rotary_dim_divisor": 4, "dtype": torch.bfloat16}


def _set_tma(wanted, *kernels):
    for kernel in kernels if wanted else ():
        kernel.pass_configs = {
            name: value
            for name, value in kernel.pass_configs.items()
            if name != "tl.disable_tma_lower"
        }


def _inputs(shape, chunk_size, *, has_z, has_d, sequences=0):
    batch, seqlen, nheads, ngroups, headdim_qk, headdim_v, rank = shape
    # Upstream leaves room for a chunk that each packed sequence may not fill.
    chunks = seqlen // chunk_size + sequences if sequences else -(-seqlen // chunk_size)

    def normal(*sizes, dtype=torch.bfloat16):
        return torch.randn(*sizes, device="cuda").to(dtype)

    def single(*sizes):
        return torch.rand(*sizes, device="cuda")

    per_token = (batch, nheads, seqlen)
    return {
        "dout": normal(batch, seqlen, nheads, headdim_v),
        "q": normal(batch, seqlen, rank, ngroups, headdim_qk),
        "k": normal(batch, seqlen, rank, ngroups, headdim_qk),
        "v": normal(batch, seqlen, nheads, headdim_v),
        "q_bias": single(nheads, rank, headdim_qk),
        "k_bias": single(nheads, rank, headdim_qk),
        "mimo_v": single(nheads, rank, headdim_v),
        "mimo_o": single(nheads, rank, headdim_v),
        "z": normal(batch, seqlen, nheads, headdim_v) if has_z else None,
        "mimo_z": single(nheads, rank, headdim_v) if has_z else None,
        "angles": single(batch, seqlen, nheads, headdim_qk // 4),
        # Decays are negative, and cumulate within a chunk.
        "dA_cs": -single(*per_token),
        "dA_cs_rev": -single(*per_token),
        "dt": single(*per_token),
        "trap": normal(*per_token),
        "D": single(nheads) if has_d else None,
        "segsum": -single(batch, nheads, chunks, chunk_size, chunk_size),
    }
