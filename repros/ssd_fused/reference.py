"""What `ssd_fused_kernel` must write: the recurrence, token by token, in float64.

And what five kernels write in its place, chunk by chunk, with their roundings.
"""

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


def five_kernels(  # noqa: D103
    x, dt, A, B, C, D, z, dt_bias, seq_idx, initial_states, final_states, dt_min, dt_max,
    DT_SOFTPLUS, CHUNK, **rest,
):  # fmt: skip
    batch, seqlen, nheads, headdim = x.shape

    def rounded(tensor):
        """As it goes to tensor cores, or to the next kernel."""
        return tensor.to(x.dtype).float()

    B, C = (t.float().repeat_interleave(nheads // t.shape[2], dim=2) for t in (B, C))
    step = dt.float() if dt_bias is None else dt.float() + dt_bias.float()
    step = (softplus(step) if DT_SOFTPLUS else step).clamp(dt_min, dt_max)
    sequence = torch.zeros(batch, seqlen, dtype=torch.int32) if seq_idx is None else seq_idx
    state = torch.zeros(batch, nheads, headdim, B.shape[-1])
    if initial_states is not None:
        state += initial_states
    before = torch.zeros(batch, dtype=torch.int32)
    out = torch.empty(x.shape)
    for first in range(0, seqlen, CHUNK):
        at = slice(first, first + CHUNK)
        x_part, b_part, c_part, own, of = (
            x[:, at].float(),
            B[:, at],
            C[:, at],
            step[:, at],
            sequence[:, at],
        )
        decay = torch.cumsum(own * A, dim=1)
        apart = torch.exp(decay[:, :, None] - decay[:, None]) * own[:, None]
        counts = torch.tril(of[:, :, None] == of[:, None])[..., None]
        products = torch.einsum("blhn,bmhn->blmh", c_part, b_part)
        products = rounded(torch.where(counts, products * apart, 0.0))
        reach = torch.exp(decay) * (of == before[:, None])[..., None]
        carried = torch.einsum("blhn,bhpn->blhp", c_part, rounded(state)) * reach[..., None]
        out[:, at] = torch.einsum("blmh,bmhp->blhp", products, x_part) + carried
        last = of[:, -1]
        weights = torch.exp(decay[:, -1:] - decay) * own * (of == last[:, None])[..., None]
        added = torch.einsum("blhp,blhn->bhpn", x_part, rounded(b_part * weights[..., None]))
        keeps = torch.exp(decay[:, -1]) * (last == before)[:, None]
        state, before = state * keeps[..., None, None] + added, last
    if D is not None:
        out += x * (D if D.dim() == 2 else D[:, None])
    if z is not None:
        out *= silu(z.float())
    return {"out": out} if final_states is None else {"out": out, "final_states": state}
