"""What `ssd_fused_kernel` must write: the recurrence, token by token, in float64."""

import torch
from torch.nn.functional import silu, softplus


def recurrence(
    x, dt, A, B, C, D=None, z=None, dt_bias=None, seq_idx=None, initial_states=None,
    cu_seqlens=None, dt_softplus=False, dt_min=0.0, dt_max=float("inf"),
):  # fmt: skip
    """The output, the last state, and those at the ends of sequences."""
    batch, seqlen, nheads, headdim = x.shape
    B, C = (t.repeat_interleave(nheads // t.shape[2], dim=2) for t in (B, C))
    if dt_bias is not None:
        dt = dt + dt_bias
    if dt_softplus:
        dt = softplus(dt)
    dt = dt.clamp(dt_min, dt_max)
    state = x.new_zeros(batch, nheads, headdim, B.shape[-1])
    if initial_states is not None:
        state = state + initial_states
    sequence = torch.zeros(batch, dtype=torch.int32, device=x.device)
    ends = {} if cu_seqlens is None else {int(e) - 1: n for n, e in enumerate(cu_seqlens[1:])}
    out, varlen = torch.empty_like(x), [state] * len(ends)
    for t in range(seqlen):
        if seq_idx is not None:
            state = state * (seq_idx[:, t] == sequence)[:, None, None, None]
            sequence = seq_idx[:, t]
        step = dt[:, t, :, None, None]
        update = x[:, t, :, :, None] * B[:, t, :, None, :]
        state = state * torch.exp(step * A[:, None, None]) + step * update
        out[:, t] = torch.einsum("bhpn,bhn->bhp", state, C[:, t])
        if t in ends:
            varlen[ends[t]] = state[0]
    if D is not None:
        out = out + x * (D if D.dim() == 2 else D[:, None])
    if z is not None:
        out = out * silu(z)
    return out, state, torch.stack(varlen) if varlen else None


def ssd(  # noqa: D103
    x, dt, A, B, C, D, z, dt_bias, seq_idx, initial_states, cu_seqlens, final_states,
    varlen_states, dt_min, dt_max, DT_SOFTPLUS, **rest,
):  # fmt: skip
    out, state, ends = recurrence(
        x, dt, A, B, C, D, z, dt_bias, seq_idx, initial_states, cu_seqlens,
        DT_SOFTPLUS, dt_min, dt_max,
    )  # fmt: skip
    results = {"out": out}
    if final_states is not None:
        results["final_states"] = state
    if varlen_states is not None:
        results["varlen_states"] = ends
    return results
