"""Launches of the fused SSD kernel."""

import torch
from fused import ssd_fused, ssd_fused_kernel


def _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, dtype=torch.bfloat16):
    """Random tensors as the library's own layer makes them: A in [-16, -1], dt in [0.001, 0.1]."""

    def normal(*shape):
        return torch.randn(*shape, device="cuda").to(dtype)

    x = normal(batch, seqlen, nheads, headdim)
    dt = normal(batch, seqlen, nheads)
    A = -1.0 - 15.0 * torch.rand(nheads, device="cuda")
    B, C = normal(batch, seqlen, ngroups, dstate), normal(batch, seqlen, ngroups, dstate)
    start = torch.exp(torch.rand(nheads, device="cuda") * 4.6 - 6.9)
    dt_bias = start + torch.log(-torch.expm1(-start))
    return (x, dt, A, B, C), {"dt_bias": dt_bias, "dt_softplus": True}


def prefill(
    *,
    batch=1,
    seqlen=16384,
    nheads=80,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=128,
    state_dtype="float32",
    dtype="bfloat16",
):
    """A long prompt: 80 heads, D, and the state that is left for generation."""
    arguments, options = _inputs(
        batch, seqlen, nheads, headdim, ngroups, dstate, getattr(torch, dtype)
    )
    options["D"] = torch.randn(nheads, device="cuda")
    options["state_dtype"] = getattr(torch, state_dtype)
    return ssd_fused(*arguments, chunk_size, **options, return_final_states=True)


def everything(
    *,
    batch=2,
    seqlen=1000,
    nheads=8,
    headdim=64,
    ngroups=2,
    dstate=128,
    chunk_size=64,
    state_dtype="float32",
):
    """All options but variable lengths; a last chunk that is cut off."""
    (x, dt, A, B, C), options = _inputs(batch, seqlen, nheads, headdim, ngroups, dstate)
    options["D"] = torch.randn(nheads, headdim, device="cuda")
    options["z"] = torch.randn_like(x)
    options["initial_states"] = 0.1 * torch.randn(batch, nheads, headdim, dstate, device="cuda")
    options["state_dtype"] = getattr(torch, state_dtype)
    return ssd_fused(
        x, dt, A, B, C, chunk_size, **options, dt_limit=(0.001, 0.5), return_final_states=True
    )


def varlen(
    *,
    seqlen=1112,
    nheads=8,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=64,
    state_dtype="float32",
):
    """Four sequences packed into one, one of them of one token; the last state of each is kept."""
    arguments, options = _inputs(1, seqlen, nheads, headdim, ngroups, dstate)
    ends = torch.tensor([0, seqlen // 5, seqlen // 5 + 1, seqlen // 2, seqlen])
    index = torch.repeat_interleave(torch.arange(4), ends.diff())
    return ssd_fused(
        *arguments, chunk_size, **options,
        D=torch.randn(nheads, device="cuda"),
        seq_idx=index.to(torch.int32)[None].to("cuda"), cu_seqlens=ends.to(torch.int32).to("cuda"),
        state_dtype=getattr(torch, state_dtype),
        return_final_states=True, return_varlen_states=True,
    )  # fmt: skip


def narrow(*, seqlen=256, nheads=1, headdim=64, dstate=128, chunk_size=128):
    """A config that compiles and is wrong on sm_90a with ptxas 12.8.93, and so is in no list."""
    arguments, options = _inputs(1, seqlen, nheads, headdim, 1, dstate)
    return ssd_fused(
        *arguments, chunk_size, **options, kernel=ssd_fused_kernel,
        BLOCK_ROWS=64, BLOCK_HEADDIM=32, num_warps=4, num_stages=1,
    )  # fmt: skip
