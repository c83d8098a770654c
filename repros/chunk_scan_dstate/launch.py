"""The output of each chunk of a Mamba-2 scan, tuned over the block that covers the state's dimension.

In a chunk, with `cs` the cumulated decay and `C B^T` made beforehand:
`out[l] = exp(cs[l]) C[l] state + sum over s <= l of (C B^T)[l, s] exp(cs[l] - cs[s]) dt[s] x[s]`.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(
        {
            "BLOCK_SIZE_M": block_m,
            "BLOCK_SIZE_N": block_n,
            "BLOCK_SIZE_K": block_k,
            "BLOCK_SIZE_DSTATE": block_dstate,
        },
        num_warps=num_warps,
        num_stages=num_stages,
    )
    for block_m, block_n, block_k, num_warps, num_stages in (
        (128, 64, 64, 8, 3),
        (128, 64, 32, 4, 4),
        (64, 64, 32, 4, 3),
        (64, 32, 32, 4, 4),
        (32, 64, 32, 2, 5),
        (128, 32, 32, 4, 2),
        (64, 64, 64, 4, 2),
        (32, 32, 32, 2, 3),
        (64, 64, 32, 8, 2),
    )
    for block_dstate in (32, 64, 128)
]


def _covers_dstate(configs, named_args, **_):
    """The configs that are valid: the kernel does not loop over the state, one block covers it."""
    return [c for c in configs if c.kwargs["BLOCK_SIZE_DSTATE"] >= named_args["dstate"]]


@triton.jit
def chunk_scan_fwd_kernel(
    cb, x, dt, cs, c, states, out,
    seqlen, chunk_size, headdim, dstate, heads_per_group,
    cb_stride_batch, cb_stride_chunk, cb_stride_group, cb_stride_row,
    x_stride_batch, x_stride_seqlen, x_stride_head,
    dt_stride_batch, dt_stride_head, dt_stride_chunk,
    c_stride_batch, c_stride_seqlen, c_stride_group,
    states_stride_batch, states_stride_chunk, states_stride_head, states_stride_row,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    BLOCK_SIZE_DSTATE: tl.constexpr,
):  # fmt: skip
    """One block of rows and of head dimensions of one chunk, head and batch."""
    head = tl.program_id(1)
    nchunks = tl.cdiv(seqlen, chunk_size)
    batch = tl.program_id(2) // nchunks
    chunk = tl.program_id(2) % nchunks
    tiles_n = tl.cdiv(headdim, BLOCK_SIZE_N)
    tile_m = tl.program_id(0) // tiles_n
    tile_n = tl.program_id(0) % tiles_n
    group = head // heads_per_group
    start = chunk * chunk_size
    limit = tl.minimum(chunk_size, seqlen - start)

    cb += batch * cb_stride_batch + chunk * cb_stride_chunk + group * cb_stride_group
    x += batch * x_stride_batch + start * x_stride_seqlen + head * x_stride_head
    out += batch * x_stride_batch + start * x_stride_seqlen + head * x_stride_head
    dt += batch * dt_stride_batch + head * dt_stride_head + chunk * dt_stride_chunk
    cs += batch * dt_stride_batch + head * dt_stride_head + chunk * dt_stride_chunk
    c += batch * c_stride_batch + start * c_stride_seqlen + group * c_stride_group
    states += batch * states_stride_batch + chunk * states_stride_chunk + head * states_stride_head

    rows = tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    is_row, is_column = rows < limit, columns < headdim
    cs_rows = tl.load(cs + rows, mask=is_row, other=0.0)

    # What came before the chunk. One block covers the state's dimension: there is no loop.
    offs_dstate = tl.arange(0, BLOCK_SIZE_DSTATE)
    is_state = offs_dstate < dstate
    c_tile = tl.load(
        c + rows[:, None] * c_stride_seqlen + offs_dstate[None, :],
        mask=is_row[:, None] & is_state[None, :],
        other=0.0,
    )
    state_tile = tl.load(
        states + columns[None, :] * states_stride_row + offs_dstate[:, None],
        mask=is_state[:, None] & is_column[None, :],
        other=0.0,
    )
    total = tl.dot(c_tile, state_tile.to(c_tile.dtype)) * tl.exp(cs_rows)[:, None]

    # What the chunk itself adds, up to the last row of the block.
    for first in range(0, tl.minimum((tile_m + 1) * BLOCK_SIZE_M, limit), BLOCK_SIZE_K):
        inner = first + tl.arange(0, BLOCK_SIZE_K)
        is_inner = inner < limit
        causal = (rows[:, None] >= inner[None, :]) & is_row[:, None] & is_inner[None, :]
        weights = tl.load(
            cb + rows[:, None] * cb_stride_row + inner[None, :], mask=causal, other=0.0
        ).to(tl.float32)
        cs_inner = tl.load(cs + inner, mask=is_inner, other=0.0)
        dt_inner = tl.load(dt + inner, mask=is_inner, other=0.0)
        # Where it is not causal, the difference is positive and its exponential may overflow.
        decay = tl.exp(tl.minimum(cs_rows[:, None] - cs_inner[None, :], 0.0))
        weights = weights * decay * dt_inner[None, :]
        x_tile = tl.load(
            x + inner[:, None] * x_stride_seqlen + columns[None, :],
            mask=is_inner[:, None] & is_column[None, :],
            other=0.0,
        )
        total = tl.dot(weights.to(x_tile.dtype), x_tile, total)

    tl.store(
        out + rows[:, None] * x_stride_seqlen + columns[None, :],
        total.to(out.dtype.element_ty),
        mask=is_row[:, None] & is_column[None, :],
    )


_KEY = ["chunk_size", "headdim", "dstate"]
_pruned = triton.autotune(
    CONFIGS, key=_KEY, prune_configs_by={"early_config_prune": _covers_dstate}
)(chunk_scan_fwd_kernel)
_unpruned = triton.autotune(CONFIGS, key=_KEY)(chunk_scan_fwd_kernel)


def default(
    *,
    batch=1,
    seqlen=2048,
    nheads=80,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=256,
    dtype="bfloat16",
):
    """A prefill of a serving stack; configs that do not cover `dstate` are pruned."""
    return _launch(_pruned, batch, seqlen, nheads, headdim, ngroups, dstate, chunk_size, dtype)


def unpruned(
    *,
    batch=1,
    seqlen=2048,
    nheads=80,
    headdim=64,
    ngroups=1,
    dstate=128,
    chunk_size=256,
    dtype="bfloat16",
):
    """The same without pruning: configs with BLOCK_SIZE_DSTATE < dstate compile, and are wrong.

    They leave out the rest of the state, and no compiler says so.
    """
    return _launch(_unpruned, batch, seqlen, nheads, headdim, ngroups, dstate, chunk_size, dtype)


def _launch(kernel, batch, seqlen, nheads, headdim, ngroups, dstate, chunk_size, dtype):
    inputs = _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, chunk_size, dtype)
    cb, x, dt, cs, c, states = inputs
    out = torch.empty_like(x)
    nchunks = states.shape[1]

    def grid(meta):
        rows = triton.cdiv(chunk_size, meta["BLOCK_SIZE_M"])
        return rows * triton.cdiv(headdim, meta["BLOCK_SIZE_N"]), nheads, batch * nchunks

    kernel[grid](
        *inputs,
        out,
        seqlen,
        chunk_size,
        headdim,
        dstate,
        nheads // ngroups,
        *cb.stride()[:4],
        *x.stride()[:3],
        *dt.stride()[:3],
        *c.stride()[:3],
        *states.stride()[:4],
    )
    return out


def _inputs(batch, seqlen, nheads, headdim, ngroups, dstate, chunk_size, dtype):
    nchunks = triton.cdiv(seqlen, chunk_size)

    def normal(*shape, scale=1.0):
        return (scale * torch.randn(*shape, device="cuda")).to(getattr(torch, dtype))

    cb = normal(batch, nchunks, ngroups, chunk_size, chunk_size)
    x = normal(batch, seqlen, nheads, headdim)
    dt = 0.1 * torch.rand(batch, nheads, nchunks, chunk_size, device="cuda")
    # The decay is negative: states fade.
    cs = torch.cumsum(-dt, dim=-1)
    c = normal(batch, seqlen, ngroups, dstate, scale=dstate**-0.5)
    states = normal(batch, nchunks, nheads, headdim, dstate)
    return cb, x, dt, cs, c, states
