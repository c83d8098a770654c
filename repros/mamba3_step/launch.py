"""Launches of the Mamba-3 decoding step, through upstream's own `mamba3_step_fn`.

Batch and heads are dynamic in this kernel: what is compiled depends on neither.
"""

import torch


def step(
    *,
    batch=128,
    nheads=16,
    headdim=64,
    dstate=128,
    rank=4,
    tile_d=64,
    num_warps=2,
    state_dtype="float32",
    dtype="bfloat16",
):
    """With gate and output projection; the state is updated in place."""
    _launch(batch, nheads, headdim, dstate, rank, tile_d, num_warps, state_dtype, dtype, whole=True)


def step_bare(
    *,
    batch=128,
    nheads=16,
    headdim=64,
    dstate=128,
    rank=4,
    tile_d=64,
    num_warps=2,
    state_dtype="float32",
    dtype="bfloat16",
):
    """Without gate and without output projection: one output for each rank."""
    _launch(
        batch, nheads, headdim, dstate, rank, tile_d, num_warps, state_dtype, dtype, whole=False
    )


def _launch(batch, nheads, headdim, dstate, rank, tile_d, num_warps, state_dtype, dtype, *, whole):
    from mamba_ssm.ops.cute.mamba3.mamba3_step_fn import mamba3_step_fn

    def normal(*sizes, dtype=getattr(torch, dtype)):
        return torch.randn(*sizes, device="cuda").to(dtype)

    def single(*sizes):
        return torch.rand(*sizes, device="cuda")

    per_head, per_rank = (batch, nheads, headdim), (batch, rank, nheads, dstate)
    out = (batch, nheads, headdim) if whole else (batch, rank, nheads, headdim)
    mamba3_step_fn(
        normal(batch, nheads, headdim, dstate, dtype=getattr(torch, state_dtype)),
        normal(*per_rank),
        normal(*per_head),
        -single(batch, nheads),
        normal(*per_rank),
        normal(*per_rank),
        single(nheads),
        normal(*per_head),
        single(batch, nheads),
        single(batch, nheads),
        single(rank, nheads, headdim),
        outproj=single(rank, nheads, headdim) if whole else None,
        out=normal(*out),
        z=normal(*per_head) if whole else None,
        zproj=single(rank, nheads, headdim) if whole else None,
        tile_D=tile_d,
        num_warps=num_warps,
    )
