"""The same on Hopper, in Gluon, for the ordinary shape: chunks of 128, headdim 64, dstate 128.

A block takes one chunk of several heads of a group. B and C stay in shared memory for all of
them, and the time steps of all heads are summed up at once. For each head it does what
`fused.ssd_fused_kernel` does, with the same tickets, buffers and counters:

- x of the next head is on its way to registers while a head is computed.
- Accumulators are 64 columns wide (C B^T comes in two halves), so that two blocks of 8 warps fit
  on an SM with 128 registers a thread.
- A state lies in memory in the order of the accumulators' registers, 16 bytes a thread.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROWS = gl.constexpr(128)
HALF = gl.constexpr(64)
LOG2_E = gl.constexpr(1.4426950408889634)
# Of every product: 128 rows in 8 warps, 64 columns.
ACC = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [8, 1], [16, 64, 16]))
# Of a tile of x: 16 bytes a thread, whole rows of 128 bytes.
WIDE = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0]))
# Of a tile of B or C.
WIDER = gl.constexpr(gl.BlockedLayout([1, 8], [2, 16], [8, 1], [1, 0]))
# Of the time steps: a warp has all rows of a head.
STEPS = gl.constexpr(gl.BlockedLayout([4, 1], [32, 1], [1, 8], [0, 1]))
VECTORS = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
VECTOR = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def softplus(value):
    """log(1 + exp(value)) by Kahan's formula: exact where it is small, which is where it matters."""
    power = gl.exp(gl.minimum(value, 20.0))
    above = 1.0 + power
    small = above == 1.0
    exact = gl.log(above) * (power / gl.where(small, 1.0, above - 1.0))
    return gl.where(value > 20.0, value, gl.where(small, power, exact))


@gluon.jit
def add(left, right):
    return left + right


@gluon.jit
def zero_of(head):
    """Zero, which the compiler does not know: what depends on it stays in the loop.

    Otherwise descriptors and addresses are computed before the loop, and spilled.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, 0;", "=r,r", [head], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def seen_of(flag):
    """What a flag says, acquired by each thread: no barrier, and no atomic operation."""
    return gl.inline_asm_elementwise(
        "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l,~{memory}", [flag.to(gl.int64)],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def tile_of(base, row_stride, end, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr):
    """ROWS rows of a matrix whose columns are contiguous; zero from row `end` on."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
    places = base + rows[:, None] * row_stride + columns[None, :]
    return gl.load(places, mask=rows[:, None] < end, other=0.0)


@gluon.jit
def fetch(tile, base, row_stride, end):
    """Begin to copy rows of x to shared memory; zero from row `end` on."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, WIDE))
    places = base + rows[:, None] * row_stride + gl.arange(0, HALF, gl.SliceLayout(0, WIDE))[None, :]
    async_copy.async_copy_global_to_shared(tile, places, mask=rows[:, None] < end)
    async_copy.commit_group()


@gluon.jit
def as_handed(state, BYTES: gl.constexpr):
    """The accumulators' columns in an order in which a thread has 16 bytes in a row."""
    PAIRS: gl.constexpr = 8 // BYTES
    parts = state.reshape([ROWS, 8 // PAIRS, PAIRS, 4, 2])
    return parts.permute([0, 1, 3, 2, 4]).reshape([ROWS, HALF])


@gluon.jit
def from_handed(state, BYTES: gl.constexpr):
    """The inverse of `as_handed`."""
    PAIRS: gl.constexpr = 8 // BYTES
    parts = state.reshape([ROWS, 8 // PAIRS, 4, PAIRS, 2])
    straight = parts.permute([0, 1, 3, 2, 4]).reshape([ROWS, HALF])
    return gl.convert_layout(straight, ACC, assert_trivial=True)


@gluon.jit
def cells_of(base, LAYOUT: gl.constexpr, row_stride, column_stride):
    """Where a state's elements lie."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, HALF, gl.SliceLayout(0, LAYOUT))
    return base + rows[:, None] * row_stride + columns[None, :] * column_stride


@gluon.jit
def in_eights(like):
    """Row, and column in its group of eight columns, and the group: of ACC as (128, 8, 8).

    What depends on the first two is a few registers, and the last is a constant of an instruction.
    """
    LAYOUT: gl.constexpr = like.type.layout
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))
    groups = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, LAYOUT)))
    columns = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))
    return rows[:, None, None], columns[None, None, :], groups[None, :, None]


@gluon.jit
def decayed(products, decay, since, FIRST: gl.constexpr):
    """C B^T of the columns from FIRST on, as left operand: what row i takes over from row j."""
    since_part = since.slice(FIRST, HALF).load(gl.SliceLayout(0, ACC))
    # Where a row does not count, the power may be infinite, and is not looked at.
    products *= gl.exp2(decay[:, None] - since_part[None, :])
    eights = products.reshape([ROWS, 8, 8])
    rows, columns, groups = in_eights(eights)
    eights = gl.where(rows - columns >= FIRST + 8 * groups, eights, 0.0)
    return gl.convert_layout(eights.reshape([ROWS, HALF]), ACC, assert_trivial=True)


@gluon.jit(do_not_specialize=["seqlen", "nchunks", "sequences"])
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
    CHUNK: gl.constexpr,
    HEADDIM: gl.constexpr,
    DSTATE: gl.constexpr,
    DT_SOFTPLUS: gl.constexpr,
    D_HAS_HEADDIM: gl.constexpr,
    BLOCK_DSTATE: gl.constexpr,
    BLOCK_HEADS: gl.constexpr,
):  # fmt: skip
    # The arguments are those of `fused.ssd_fused_kernel`; of packed sequences it knows nothing.
    gl.static_assert(CHUNK == 128 and HEADDIM == 64 and DSTATE == 128)
    gl.static_assert(seq_idx is None and cu_seqlens is None)
    # The order of the work, not of the blocks: all lanes' first chunks, then their second ones.
    bunches = gl.cdiv(heads_per_group, BLOCK_HEADS)
    all_bunches = nheads // heads_per_group * bunches
    lanes = batch * all_bunches
    ticket = gl.atomic_add(counters, 1, sem="relaxed")
    if ticket == lanes * nchunks - 1:
        gl.atomic_xchg(counters, 0, sem="relaxed")
    chunk, lane = ticket // lanes, ticket % lanes
    bunch, sample = lane % all_bunches, (lane // all_bunches).to(gl.int64)
    group = bunch // bunches
    first_head = group * heads_per_group + bunch % bunches * BLOCK_HEADS
    end_head = gl.minimum(first_head + BLOCK_HEADS, (group + 1) * heads_per_group)

    # 64 bits: 256k tokens of many heads are more than 2**31 elements.
    start = chunk.to(gl.int64) * CHUNK
    length = gl.minimum(seqlen - chunk * CHUNK, CHUNK)
    x += sample * x_stride_batch + start * x_stride_seqlen
    out += sample * out_stride_batch + start * out_stride_seqlen
    dt += sample * dt_stride_batch + start * dt_stride_seqlen
    B += sample * B_stride_batch + start * B_stride_seqlen + group * B_stride_group
    C += sample * C_stride_batch + start * C_stride_seqlen + group * C_stride_group

    dtype: gl.constexpr = x.dtype.element_ty
    tiles: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    b_tiles = gl.allocate_shared_memory(dtype, [1, CHUNK, DSTATE], tiles)
    c_tiles = gl.allocate_shared_memory(dtype, [1, CHUNK, DSTATE], tiles)
    # One has x and at last the output. The other has x with its weights, then the state before the
    # chunk, and then x of the next head, for which they change places.
    pair = gl.allocate_shared_memory(dtype, [2, CHUNK, HEADDIM], tiles)
    decays = gl.allocate_shared_memory(gl.float32, [BLOCK_HEADS, CHUNK], VECTORS)
    sinces = gl.allocate_shared_memory(gl.float32, [BLOCK_HEADS, CHUNK], VECTORS)

    fetch(pair.index(0), x + first_head.to(gl.int64) * x_stride_head, x_stride_seqlen, length)
    b_tiles.index(0).store(tile_of(B, B_stride_seqlen, length, DSTATE, WIDER))
    c_tiles.index(0).store(tile_of(C, C_stride_seqlen, length, DSTATE, WIDER))

    # From the beginning of the chunk to a row, and from a row on: powers of two. The time step is
    # in the exponent, so that an element of C B^T costs a subtraction, a power and a product.
    rows = gl.arange(0, CHUNK, gl.SliceLayout(1, STEPS))
    heads = first_head + gl.arange(0, BLOCK_HEADS, gl.SliceLayout(0, STEPS))
    inside = (rows[:, None] < length) & (heads[None, :] < end_head)
    rates = gl.load(A + heads, mask=heads < end_head, other=0.0).to(gl.float32) * LOG2_E
    dt += rows[:, None] * dt_stride_seqlen + heads[None, :] * dt_stride_head
    steps = gl.load(dt, mask=inside, other=0.0).to(gl.float32)
    if dt_bias is not None:
        bias = gl.load(dt_bias + heads, mask=heads < end_head, other=0.0).to(gl.float32)
        steps += bias[None, :]
    if DT_SOFTPLUS:
        steps = softplus(steps)
    steps = gl.where(inside, gl.minimum(gl.maximum(steps, dt_min), dt_max), 0.0)
    powers = gl.associative_scan(steps * rates[None, :], 0, add)
    decays.store(powers.permute([1, 0]))
    sinces.store((powers - gl.log2(steps)).permute([1, 0]))
    decays = decays._reinterpret(gl.float32, [BLOCK_HEADS, CHUNK], VECTOR)
    sinces = sinces._reinterpret(gl.float32, [BLOCK_HEADS, CHUNK], VECTOR)

    for head in range(first_head, end_head):
        zero = zero_of(head)
        b_tile, c_tile = b_tiles.index(zero), c_tiles.index(zero)
        x_tile, right = pair.index((head - first_head) % 2), pair.index((head + 1 - first_head) % 2)
        wide_head = head.to(gl.int64) + zero
        decay, since = decays.index(head - first_head), sinces.index(head - first_head)

        # What the chunk's own rows make of a state that is zero before them.
        total = decay.slice(CHUNK - 1, 1).load(gl.SliceLayout(1, WIDE))
        weights = gl.exp2(total - since.load(gl.SliceLayout(1, WIDE)))
        async_copy.wait_group(0)
        gl.thread_barrier()
        weighted = x_tile.load(WIDE).to(gl.float32) * weights[:, None]
        right.store(weighted.to(dtype))
        nothing = gl.zeros([CHUNK, HEADDIM], gl.float32, ACC)
        fence_async_shared()
        gl.thread_barrier()
        state = warpgroup_mma(b_tile.permute([1, 0]), right, nothing, use_acc=False, is_async=True)
        state = warpgroup_mma_wait(0, [state])

        # Wait for the state before the chunk, and hand over the one after it.
        number = sample * nheads + head
        BYTES: gl.constexpr = handed.dtype.element_ty.primitive_bitwidth // 8
        HANDED: gl.constexpr = as_handed(state, BYTES).type.layout
        own = cells_of(handed + number * HEADDIM * DSTATE, HANDED, HEADDIM, 1)
        buffer = (chunk % 2).to(gl.int64) * batch * nheads * HEADDIM * DSTATE
        other = ((chunk + 1) % 2).to(gl.int64) * batch * nheads * HEADDIM * DSTATE
        flag = counters + 1 + number
        carried = gl.zeros([DSTATE, HEADDIM], gl.float32, ACC)
        if chunk > 0:
            while seen_of(flag) < chunk:
                pass
            loaded = gl.load(own + other, cache_modifier=".cg").to(gl.float32)
            carried = from_handed(loaded, BYTES)
        elif initial_states is not None:
            given = initial_states + sample * initial_stride_batch
            given += wide_head * initial_stride_head
            carried = gl.load(cells_of(given, ACC, 1, initial_stride_dim)).to(gl.float32)
        keeps = gl.exp2(decay.slice(CHUNK - 1, 1).load(gl.SliceLayout(1, ACC)))[:, None]
        state = gl.fma(carried, keeps.broadcast_to(DSTATE, HEADDIM), state)
        right.store(carried.to(dtype))
        if chunk < nchunks - 1:
            gl.store(own + buffer, as_handed(state, BYTES).to(handed.dtype.element_ty))
            # All threads have written before one of them says so.
            gl.thread_barrier()
            gl.atomic_xchg(flag, chunk + 1, sem="release")
        else:
            if final_states is not None:
                eights = state.reshape([DSTATE, 8, 8])
                cells, dims, eighths = in_eights(eights)
                final = final_states + number * HEADDIM * DSTATE + cells + dims * DSTATE
                gl.store(final + eighths * (8 * DSTATE), eights)
            gl.thread_barrier()
            gl.atomic_xchg(flag, 0, sem="relaxed")

        fence_async_shared()
        gl.thread_barrier()

        # The outputs.
        y = warpgroup_mma(c_tile, right, nothing, use_acc=False, is_async=True)
        b_half = b_tile.slice(0, HALF).permute([1, 0])
        products = warpgroup_mma(c_tile, b_half, nothing, use_acc=False, is_async=True)
        y = warpgroup_mma_wait(1, [y])
        # No warp group reads the state any more.
        gl.thread_barrier()
        if head + 1 < end_head:
            fetch(right, x + (wide_head + 1) * x_stride_head, x_stride_seqlen, length)
        decay_rows = decay.load(gl.SliceLayout(1, ACC))
        y *= gl.exp2(decay_rows)[:, None]
        products = warpgroup_mma_wait(0, [products])
        left = decayed(products, decay_rows, since, 0).to(dtype)
        left = gl.convert_layout(left, gl.DotOperandLayout(0, ACC, 2))
        y = warpgroup_mma(left, x_tile.slice(0, HALF), y, is_async=True)
        b_half = b_tile.slice(HALF, HALF).permute([1, 0])
        products = warpgroup_mma(c_tile, b_half, nothing, use_acc=False, is_async=True)
        y, products = warpgroup_mma_wait(0, [y, products])
        left = decayed(products, decay_rows, since, HALF).to(dtype)
        left = gl.convert_layout(left, gl.DotOperandLayout(0, ACC, 2))
        y = warpgroup_mma(left, x_tile.slice(HALF, HALF), y, is_async=True)
        y = warpgroup_mma_wait(0, [y])
        if D is not None:
            if D_HAS_HEADDIM:
                dims = gl.arange(0, HEADDIM, gl.SliceLayout(0, ACC))
                skip = gl.load(D + head * D_stride_head + dims).to(gl.float32)
                y += x_tile.load(ACC).to(gl.float32) * skip[None, :]
            else:
                skip = gl.load(D + head * D_stride_head).to(gl.float32)
                y += x_tile.load(ACC).to(gl.float32) * skip
        if z is not None:
            gates = z + sample * z_stride_batch + start * z_stride_seqlen
            gate = tile_of(
                gates + wide_head * z_stride_head, z_stride_seqlen, length, HEADDIM, ACC
            ).to(gl.float32)
            y *= gate / (1.0 + gl.exp(-gate))
        # Through shared memory, in whole rows. No warp group reads x any more.
        gl.thread_barrier()
        x_tile.store(y.to(dtype))
        written = x_tile.load(WIDE)
        part = gl.arange(0, CHUNK, gl.SliceLayout(1, WIDE))
        places = out + wide_head * out_stride_head + part[:, None] * out_stride_seqlen
        places += gl.arange(0, HEADDIM, gl.SliceLayout(0, WIDE))[None, :]
        gl.store(places, written, mask=part[:, None] < length)
