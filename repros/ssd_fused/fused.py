"""Mamba-2's SSD, forward, in one launch: what five kernels do, and nothing between them in memory.

Over the tokens of a sequence, for each head, with a state of (headdim, dstate):

    state = exp(dt A) state + dt x B^T        y = state C + D x        out = y silu(z)

A block takes one chunk of one head. It computes what the chunk adds to a state that is zero before
it, waits for the state before the chunk, hands over the state after it, and then goes through
the chunk tile by tile, with the state in registers. So no other block waits for the products with
C: the serial part is one load, one fused multiply-add and one store of a state.

Which chunk it takes is decided by a ticket from an atomic counter: first all heads' first chunks,
then the second ones. A block waits only for the block of an earlier ticket, which runs or has
ended: it cannot deadlock, however the hardware orders blocks and however few of them fit.

The state is handed over through one of two buffers of a head, by the parity of the chunk: who
writes chunk c + 2 has waited for chunk c + 1, whose block has read chunk c. The counters are zero
again after each launch, so that a workspace serves any number of launches of one stream.
"""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softplus(value):
    """log(1 + exp(value)) by Kahan's formula: exact where it is small, which is where it matters."""
    power = tl.exp(tl.minimum(value, 20.0))
    above = 1.0 + power
    small = above == 1.0
    exact = tl.log(above) * (power / tl.where(small, 1.0, above - 1.0))
    return tl.where(value > 20.0, value, tl.where(small, power, exact))


@triton.jit
def tile_of(base, rows, row_stride, columns, end, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a matrix whose columns are contiguous; zero outside it."""
    places = base + rows[:, None] * row_stride + columns[None, :]
    inside = rows[:, None] < end
    if COLUMNS != BLOCK:
        inside = inside & (columns[None, :] < COLUMNS)
    return tl.load(places, mask=inside, other=0.0)


@triton.jit
def sequence_at(seq_idx, row):
    """The sequence that a row belongs to; what is before the first row belongs to sequence 0."""
    return tl.load(seq_idx + tl.maximum(row, 0), mask=row >= 0, other=0)


@triton.jit
def part_of(vector, first, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The BLOCK elements of a vector of ROWS that begin at `first`, a multiple of BLOCK."""
    if ROWS == BLOCK:
        return vector
    else:
        parts = tl.reshape(vector, (ROWS // BLOCK, BLOCK))
        is_part = tl.arange(0, ROWS // BLOCK)[:, None] * BLOCK == first
        return tl.sum(tl.where(is_part, parts, 0.0), axis=0)


@triton.jit(do_not_specialize=["seqlen", "nchunks", "sequences"])
def ssd_fused_kernel(
    x, dt, A, B, C, D, z, dt_bias, seq_idx, initial_states, cu_seqlens,
    out, final_states, varlen_states, handed, counters,
    batch, seqlen, nheads, heads_per_group, nchunks, sequences, dt_min, dt_max,
    x_stride_batch, x_stride_seqlen, x_stride_head,
    dt_stride_batch, dt_stride_seqlen, dt_stride_head,
    B_stride_batch, B_stride_seqlen, B_stride_group,
    C_stride_batch, C_stride_seqlen, C_stride_group,
    z_stride_batch, z_stride_seqlen, z_stride_head,
    out_stride_batch, out_stride_seqlen, out_stride_head,
    D_stride_head,
    initial_stride_batch, initial_stride_head, initial_stride_dim,
    seq_idx_stride_batch,
    CHUNK: tl.constexpr,
    HEADDIM: tl.constexpr,
    DSTATE: tl.constexpr,
    DT_SOFTPLUS: tl.constexpr,
    D_HAS_HEADDIM: tl.constexpr,
    BLOCK_DSTATE: tl.constexpr,
    BLOCK_HEADDIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    # The order of the work, not of the blocks: all lanes' first chunks, then their second ones.
    slices = tl.cdiv(HEADDIM, BLOCK_HEADDIM)
    lanes = batch * nheads * slices
    ticket = tl.atomic_add(counters, 1, sem="relaxed")
    if ticket == lanes * nchunks - 1:
        tl.atomic_xchg(counters, 0, sem="relaxed")
    chunk, lane = ticket // lanes, ticket % lanes
    head, rest = lane % nheads, lane // nheads
    place, sample = rest % slices, (rest // slices).to(tl.int64)
    group = head // heads_per_group

    first = chunk * CHUNK
    end = tl.minimum(first + CHUNK, seqlen)
    # 64 bits: 256k tokens of many heads are more than 2**31 elements.
    start, wide_head = first.to(tl.int64), head.to(tl.int64)
    x += sample * x_stride_batch + start * x_stride_seqlen + wide_head * x_stride_head
    out += sample * out_stride_batch + start * out_stride_seqlen + wide_head * out_stride_head
    dt += sample * dt_stride_batch + start * dt_stride_seqlen + wide_head * dt_stride_head
    B += sample * B_stride_batch + start * B_stride_seqlen + group * B_stride_group
    C += sample * C_stride_batch + start * C_stride_seqlen + group * C_stride_group
    if z is not None:
        z += sample * z_stride_batch + start * z_stride_seqlen + wide_head * z_stride_head
    if seq_idx is not None:
        seq_idx += sample * seq_idx_stride_batch
        before, last = sequence_at(seq_idx, first - 1), sequence_at(seq_idx, end - 1)

    dims = place * BLOCK_HEADDIM + tl.arange(0, BLOCK_HEADDIM)
    columns = tl.arange(0, BLOCK_DSTATE)
    rows = tl.arange(0, CHUNK)
    length = end - first

    if D is not None and not D_HAS_HEADDIM:
        skip = tl.load(D + head * D_stride_head).to(tl.float32)
    rate = tl.load(A + head).to(tl.float32) * LOG2_E
    step = tl.load(dt + rows * dt_stride_seqlen, mask=rows < length, other=0.0).to(tl.float32)
    if dt_bias is not None:
        step += tl.load(dt_bias + head).to(tl.float32)
    if DT_SOFTPLUS:
        step = softplus(step)
    step = tl.where(rows < length, tl.minimum(tl.maximum(step, dt_min), dt_max), 0.0)
    # From the beginning of the chunk to a row, and from a row on: powers of two. The time step is
    # in the exponent, so that an element of C B^T costs a subtraction, a power and a product.
    decay = tl.cumsum(step * rate, axis=0)
    since = decay - tl.log2(step)
    total = tl.sum(step * rate, axis=0)
    keeps = tl.exp2(total)
    if seq_idx is not None:
        keeps = tl.where(last == before, keeps, 0.0)

    # What the chunk's own rows make of a state that is zero before them.
    state = tl.zeros((BLOCK_DSTATE, BLOCK_HEADDIM), tl.float32)
    if CHUNK == BLOCK_ROWS:  # One tile: what is loaded here serves for the outputs, too.
        b_tile = tile_of(B, rows, B_stride_seqlen, columns, length, DSTATE, BLOCK_DSTATE)
        x_tile = tile_of(x, rows, x_stride_seqlen, dims, length, HEADDIM, BLOCK_HEADDIM)
    for tile in range(0, CHUNK, BLOCK_ROWS):
        part = tile + tl.arange(0, BLOCK_ROWS)
        if CHUNK != BLOCK_ROWS:
            b_tile = tile_of(B, part, B_stride_seqlen, columns, length, DSTATE, BLOCK_DSTATE)
            x_tile = tile_of(x, part, x_stride_seqlen, dims, length, HEADDIM, BLOCK_HEADDIM)
        since_part = part_of(since, tile, CHUNK, BLOCK_ROWS)
        weights = tl.exp2(total - since_part)
        if seq_idx is not None:
            of_part = tl.load(seq_idx + first + part, mask=part < length, other=-2)
            weights = tl.where((of_part == last) & (last >= 0), weights, 0.0)
        state = tl.dot(tl.trans(b_tile), (x_tile * weights[:, None]).to(x_tile.dtype), state)

    # Wait for the state before the chunk, and hand over the one after it.
    number = sample * nheads + head
    buffer = (chunk % 2).to(tl.int64) * batch * nheads * HEADDIM * DSTATE
    other = ((chunk + 1) % 2).to(tl.int64) * batch * nheads * HEADDIM * DSTATE
    is_cell = (columns[:, None] < DSTATE) & (dims[None, :] < HEADDIM)
    handed += number * HEADDIM * DSTATE + columns[:, None] * HEADDIM + dims[None, :]
    # As the caller's tensors of states lie.
    cells = number * HEADDIM * DSTATE + dims[None, :] * DSTATE + columns[:, None]
    flag = counters + 1 + number * slices + place
    carried = tl.zeros((BLOCK_DSTATE, BLOCK_HEADDIM), tl.float32)
    if chunk > 0:
        while tl.atomic_add(flag, 0, sem="acquire") < chunk:
            pass
        carried = tl.load(handed + other, mask=is_cell, other=0.0, cache_modifier=".cg")
        carried = carried.to(tl.float32)
    elif initial_states is not None:
        initial_states += sample * initial_stride_batch + wide_head * initial_stride_head
        places = initial_states + dims[None, :] * initial_stride_dim + columns[:, None]
        carried = tl.load(places, mask=is_cell, other=0.0).to(tl.float32)
    if CHUNK == BLOCK_ROWS:  # Triton adds it into the product, after the wait: fewer registers.
        state += carried * keeps
    else:
        state = tl.fma(carried, keeps, state)
    if chunk < nchunks - 1:
        tl.store(handed + buffer, state.to(handed.dtype.element_ty), mask=is_cell)
        # All threads have written before one of them says so.
        tl.debug_barrier()
        tl.atomic_xchg(flag, chunk + 1, sem="release")
    else:
        if final_states is not None:
            tl.store(final_states + cells, state, mask=is_cell)
        tl.atomic_xchg(flag, 0, sem="relaxed")

    # The states at the ends of sequences that lie in this chunk.
    if cu_seqlens is not None:
        for sequence in range(sequences):
            begin = tl.load(cu_seqlens + sequence) - first
            until = tl.load(cu_seqlens + sequence + 1) - first
            if (until > 0) & (until <= CHUNK):
                total = tl.sum(tl.where(rows < until, step * rate, 0.0), axis=0)
                state = tl.where(begin < 0, carried * tl.exp2(total), 0.0)
                for tile in range(0, until, BLOCK_ROWS):
                    part = tile + tl.arange(0, BLOCK_ROWS)
                    b_part = tile_of(B, part, B_stride_seqlen, columns, until, DSTATE, BLOCK_DSTATE)
                    x_part = tile_of(x, part, x_stride_seqlen, dims, until, HEADDIM, BLOCK_HEADDIM)
                    weights = tl.exp2(total - part_of(since, tile, CHUNK, BLOCK_ROWS))
                    weights = tl.where((part >= begin) & (part < until), weights, 0.0)
                    weighted = (x_part * weights[:, None]).to(x_part.dtype)
                    state = tl.dot(tl.trans(b_part), weighted, state)
                places = sequence * nheads * HEADDIM * DSTATE
                tl.store(varlen_states + places + cells, state, mask=is_cell)

    # The outputs, tile by tile.
    base = 0.0
    part_rows = tl.arange(0, BLOCK_ROWS)
    for tile in range(0, CHUNK, BLOCK_ROWS):
        part = tile + part_rows
        c_tile = tile_of(C, part, C_stride_seqlen, columns, length, DSTATE, BLOCK_DSTATE)
        if CHUNK != BLOCK_ROWS:
            b_tile = tile_of(B, part, B_stride_seqlen, columns, length, DSTATE, BLOCK_DSTATE)
            x_tile = tile_of(x, part, x_stride_seqlen, dims, length, HEADDIM, BLOCK_HEADDIM)
        since_part = part_of(since, tile, CHUNK, BLOCK_ROWS)
        decay_part = part_of(decay, tile, CHUNK, BLOCK_ROWS)
        until = base + tl.sum(part_of(step, tile, CHUNK, BLOCK_ROWS) * rate, axis=0)
        counts = part_rows[:, None] >= part_rows[None, :]
        reach = tl.exp2(decay_part - base)
        weights, keeps = tl.exp2(until - since_part), tl.exp2(until - base)
        if seq_idx is not None:
            of_part = tl.load(seq_idx + first + part, mask=part < length, other=-1)
            # A tile may begin after the end.
            before = sequence_at(seq_idx, tl.minimum(first + tile, end) - 1)
            last = sequence_at(seq_idx, tl.minimum(first + tile + BLOCK_ROWS, end) - 1)
            counts = counts & (of_part[:, None] == of_part[None, :])
            reach = tl.where(of_part == before, reach, 0.0)
            weights = tl.where((of_part == last) & (last >= 0), weights, 0.0)
            keeps = tl.where(last == before, keeps, 0.0)
        y = tl.dot(c_tile, carried.to(c_tile.dtype)) * reach[:, None]
        # Where a row does not count, the power may be infinite, and is not looked at.
        products = tl.dot(c_tile, tl.trans(b_tile))
        products *= tl.exp2(decay_part[:, None] - since_part[None, :])
        y = tl.dot(tl.where(counts, products, 0.0).to(x_tile.dtype), x_tile, y)
        if D is not None:
            if D_HAS_HEADDIM:
                skip = tl.load(D + head * D_stride_head + dims, mask=dims < HEADDIM, other=0.0)
                y += x_tile * skip.to(tl.float32)[None, :]
            else:
                y += x_tile * skip
        if z is not None:
            gate = tile_of(z, part, z_stride_seqlen, dims, length, HEADDIM, BLOCK_HEADDIM)
            gate = gate.to(tl.float32)
            y *= gate * tl.sigmoid(gate)
        tl.store(
            out + part[:, None] * out_stride_seqlen + dims[None, :],
            y.to(out.dtype.element_ty),
            mask=(part[:, None] < length) & (dims[None, :] < HEADDIM),
        )
        if CHUNK != BLOCK_ROWS:
            weighted = (x_tile * weights[:, None]).to(x_tile.dtype)
            carried = tl.dot(tl.trans(b_tile), weighted, carried * keeps)
            base = until


def fits(configs, arguments, **kwargs):
    """The configs whose tiles are no larger than the chunk, and than the target's registers bear.

    `triage compile` says what is left: without products of warpgroups (sm_80, sm_120a) every tile
    of 64 rows and more spills at least half a kilobyte a thread, and some are left with 32 registers.
    """
    arch = triton.runtime.driver.active.get_current_target().arch
    has_warpgroups = arch // 10 in (9, 10)
    most = min({**arguments, **kwargs}["CHUNK"], 128 if has_warpgroups else 32)
    return [config for config in configs if config.kwargs["BLOCK_ROWS"] <= most]


CONFIGS = [
    triton.Config(
        {"BLOCK_ROWS": rows, "BLOCK_HEADDIM": headdim},
        num_warps=warps, num_stages=stages, maxnreg=registers,
    )
    for rows, headdim, warps, stages, registers in (
        (128, 64, 8, 1, 128),
        (128, 64, 8, 1, None),
        (128, 64, 4, 1, None),
        (64, 64, 4, 1, None),
        (64, 64, 4, 2, None),
        (64, 64, 4, 3, None),
        (64, 64, 8, 1, 128),
        (64, 64, 8, 2, 128),
        (32, 64, 4, 1, None),
        (32, 64, 4, 2, None),
    )
]  # fmt: skip
tuned = triton.autotune(
    CONFIGS,
    key=["CHUNK", "HEADDIM", "DSTATE", "BLOCK_DSTATE"],
    prune_configs_by={"early_config_prune": fits},
)(ssd_fused_kernel)


def workspace(batch, nheads, headdim, dstate, state_dtype, device):
    """Two states a head, and the counters, which are zero before and after every launch."""
    handed = torch.empty(2, batch, nheads, headdim, dstate, dtype=state_dtype, device=device)
    slices = triton.cdiv(headdim, 16)
    counters = torch.zeros(1 + batch * nheads * slices, dtype=torch.int32, device=device)
    return handed, counters


def ssd_fused(
    x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
    cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")), return_final_states=False,
    return_varlen_states=False, state_dtype=torch.float32, space=None, kernel=tuned, **config,
):  # fmt: skip
    """As mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined, forward.

    x (batch, seqlen, nheads, headdim), dt (batch, seqlen, nheads), A (nheads), B and C (batch,
    seqlen, ngroups, dstate), D (nheads) or (nheads, headdim), z as x, dt_bias (nheads),
    initial_states (batch, nheads, headdim, dstate), seq_idx (batch, seqlen) int32, cu_seqlens
    (sequences + 1) int32, for batch 1. `state_dtype`: of the states that chunks hand over.
    `chunk_size` is a power of two from 16 on, and no part of dt_limit is negative.
    `space`: a `workspace` that no launch of another stream uses at the same time.
    """
    batch, seqlen, nheads, headdim = x.shape
    ngroups, dstate = B.shape[-2:]
    assert nheads % ngroups == 0
    assert C.shape == B.shape == (batch, seqlen, ngroups, dstate)
    assert cu_seqlens is None or batch == 1
    assert chunk_size >= 16 and chunk_size == triton.next_power_of_2(chunk_size)
    nchunks = triton.cdiv(seqlen, chunk_size)
    wide = [x, B, C, z, initial_states]
    x, B, C, z, initial_states = (
        t if t is None or t.stride(-1) == 1 else t.contiguous() for t in wide
    )
    A, D, dt_bias, seq_idx, cu_seqlens = (
        t if t is None else t.contiguous() for t in (A, D, dt_bias, seq_idx, cu_seqlens)
    )
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    states = {"dtype": torch.float32, "device": x.device}
    final = varlen = None
    if return_final_states:
        final = torch.empty(batch, nheads, headdim, dstate, **states)
    if return_varlen_states:
        varlen = torch.zeros(len(cu_seqlens) - 1, nheads, headdim, dstate, **states)
    if space is None:
        space = workspace(batch, nheads, headdim, dstate, state_dtype, x.device)
    handed, counters = space

    def grid(meta):
        return (batch * nheads * nchunks * triton.cdiv(headdim, meta["BLOCK_HEADDIM"]),)

    kernel[grid](
        x, dt, A, B, C, D, z, dt_bias, seq_idx, initial_states,
        cu_seqlens if return_varlen_states else None,
        out, final, varlen, handed, counters,
        batch, seqlen, nheads, nheads // ngroups, nchunks,
        len(cu_seqlens) - 1 if return_varlen_states else 0, *dt_limit,
        *x.stride()[:3], *dt.stride(), *B.stride()[:3], *C.stride()[:3],
        *(z.stride()[:3] if z is not None else (0, 0, 0)), *out.stride()[:3],
        D.stride(0) if D is not None else 0,
        *(initial_states.stride()[:3] if initial_states is not None else (0, 0, 0)),
        seq_idx.stride(0) if seq_idx is not None else 0,
        CHUNK=chunk_size, HEADDIM=headdim, DSTATE=dstate, DT_SOFTPLUS=dt_softplus,
        D_HAS_HEADDIM=D is not None and D.dim() == 2,
        BLOCK_DSTATE=max(16, triton.next_power_of_2(dstate)), **config,
    )  # fmt: skip
    results = [out]
    if return_final_states:
        results.append(final)
    if return_varlen_states:
        results.append(varlen)
    return results[0] if len(results) == 1 else tuple(results)
