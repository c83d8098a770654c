"""What Triton's tutorials 03, 06, 08 and 09 do, in kernels of our own: products of matrices."""

import itertools

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()
IS_HOPPER = torch.cuda.get_device_capability()[0] == 9
HAS_TMA = torch.cuda.get_device_capability()[0] >= 9
HAS_CLC = torch.cuda.get_device_capability()[0] >= 10


@triton.jit
def tile_of(number, rows, columns, GROUP: tl.constexpr):
    """Tiles in groups of rows, so that neighbours share what they load."""
    in_group = GROUP * columns
    group = number // in_group
    first = group * GROUP
    height = min(rows - first, GROUP)
    return first + (number % in_group) % height, (number % in_group) // height


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


def tiles(stages=(3, 4), hook=None):
    return [
        triton.Config(
            {"M": m, "N": n, "K": k, "GROUP": 8}, num_stages=s, num_warps=w, pre_hook=hook
        )
        for (m, n, k, w), s in itertools.product([(128, 64, 64, 4), (128, 128, 64, 8)], stages)
    ]


@triton.autotune(configs=tiles(), key=["m", "n", "k"])
@triton.jit
def multiply(
    a,
    b,
    c,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    ACT: tl.constexpr,
):
    row, column = tile_of(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    tl.assume(row >= 0)
    tl.assume(stride_am > 0)
    rows, columns = (row * M + tl.arange(0, M)) % m, (column * N + tl.arange(0, N)) % n
    steps = tl.arange(0, K)
    a += rows[:, None] * stride_am + steps[None, :] * stride_ak
    b += steps[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        left = tl.load(a, mask=steps[None, :] < k - step * K, other=0.0)
        right = tl.load(b, mask=steps[:, None] < k - step * K, other=0.0)
        total = tl.dot(left, right, total)
        a += K * stride_ak
        b += K * stride_bk
    if ACT == "leaky":
        total = leaky(total)
    rows, columns = row * M + tl.arange(0, M), column * N + tl.arange(0, N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    c += stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c, total.to(tl.float16), mask=inside)


def multiplied(a, b, activation=""):
    assert a.shape[1] == b.shape[0] and a.is_contiguous()
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=torch.float16)
    multiply[lambda meta: (triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"]),)](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), ACT=activation
    )
    return c


def set_blocks(given):
    """Of a tuner's config, into descriptors that all configs share."""
    if not isinstance(given["q"], TensorDescriptor):
        return
    for name, block in (("q", "M"), ("k", "N"), ("v", "N"), ("out", "M")):
        given[name].block_shape = [given[block], given["HEAD"]]


def fits(configs, named, **given):
    return [
        c
        for c in configs
        if c.kwargs["M"] <= named["length"]
        and (c.kwargs["M"] >= c.kwargs["N"] or not given["CAUSAL"])
    ]


@triton.jit
def described(x, shape, strides, block_shape):
    if isinstance(x, tl.tensor_descriptor):
        return x
    else:
        return tl.make_tensor_descriptor(x, shape, strides, block_shape)


@triton.jit
def attend(
    total,
    weight,
    peak,
    query,
    k,
    v,
    base,
    first,
    scale,
    lo,
    hi,
    M: tl.constexpr,
    N: tl.constexpr,
    MASKS: tl.constexpr,
    SPECIAL: tl.constexpr,
):
    rows = first + tl.arange(0, M)
    for start in tl.range(lo, hi, N, warp_specialize=SPECIAL):
        start = tl.multiple_of(start, N)
        scores = tl.dot(query, k.load([base + start, 0]).T) * scale
        if MASKS:
            scores += tl.where(rows[:, None] >= (start + tl.arange(0, N))[None, :], 0, -1.0e6)
        higher = tl.maximum(peak, tl.max(scores, 1))
        scores = tl.math.exp2(scores - higher[:, None])
        fade = tl.math.exp2(peak - higher)
        total = tl.dot(scores.to(tl.float16), v.load([base + start, 0]), total * fade[:, None])
        weight = weight * fade + tl.sum(scores, 1)
        peak = higher
    return total, weight, peak


@triton.autotune(
    configs=[
        triton.Config({"M": m, "N": n}, num_stages=s, num_warps=4, pre_hook=set_blocks)
        for m, n, s in ((64, 32, 2), (64, 128, 2), (128, 64, 2), (128, 64, 3))
    ],
    key=["length", "HEAD", "SPECIAL"],
    prune_configs_by={"early_config_prune": fits},
)
@triton.jit
def attention(
    scale,
    sums,
    q,
    k,
    v,
    out,
    heads,
    length,
    HEAD: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    CAUSAL: tl.constexpr,
    SPECIAL: tl.constexpr,
):
    tl.static_assert(N <= HEAD)
    first, head = tl.program_id(0) * M, tl.program_id(1)
    height = heads * length
    q = described(q, shape=[height, HEAD], strides=[HEAD, 1], block_shape=[M, HEAD])
    k = described(k, shape=[height, HEAD], strides=[HEAD, 1], block_shape=[N, HEAD])
    v = described(v, shape=[height, HEAD], strides=[HEAD, 1], block_shape=[N, HEAD])
    out = described(out, shape=[height, HEAD], strides=[HEAD, 1], block_shape=[M, HEAD])
    base = head * length
    peak = tl.zeros([M], dtype=tl.float32) - float("inf")
    weight = tl.zeros([M], dtype=tl.float32) + 1.0
    total = tl.zeros([M, HEAD], dtype=tl.float32)
    query = q.load([base + first, 0])
    scale *= 1.44269504
    end = first if CAUSAL else length
    total, weight, peak = attend(
        total, weight, peak, query, k, v, base, first, scale, 0, end, M, N, False, SPECIAL
    )
    if CAUSAL:
        total, weight, peak = attend(
            total,
            weight,
            peak,
            query,
            k,
            v,
            base,
            first,
            scale,
            first,
            first + M,
            M,
            N,
            True,
            SPECIAL,
        )
    tl.store(sums + base + first + tl.arange(0, M), peak + tl.math.log2(weight))
    out.store([base + first, 0], (total / weight[:, None]).to(tl.float16))


def attended(q, k, v, causal, special):
    heads, length, width = q.shape
    out = torch.empty_like(q)
    sums = torch.empty((heads, length), device=q.device, dtype=torch.float32)
    given = [x.view(heads * length, width) for x in (q, k, v, out)]
    if HAS_TMA and not (IS_HOPPER and special):
        given = [TensorDescriptor(x, [heads * length, width], [width, 1], [1, 1]) for x in given]
    options = {"maxnreg": 168} if HAS_CLC and special else {}
    triton.set_allocator(lambda size, align, _: torch.empty(size, dtype=torch.int8, device="cuda"))
    attention[lambda meta: (triton.cdiv(length, meta["M"]), heads, 1)](
        0.5, sums, *given, heads, length, HEAD=width, CAUSAL=causal, SPECIAL=special, **options
    )
    return out


def processors():
    return torch.cuda.get_device_properties("cuda").multi_processor_count


@triton.autotune(
    configs=[
        triton.Config({"M": 128, "N": 128, "K": 64, "PROGRAMS": 84}),
        triton.Config({"M": 64, "N": 128, "K": 64, "PROGRAMS": processors()}),
    ],
    key=["count"],
)
@triton.jit
def multiply_groups(
    a_list,
    b_list,
    c_list,
    sizes,
    strides,
    count,
    PROGRAMS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    tile = tl.program_id(0)
    end = 0
    for group in range(count):
        m, n = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        columns = tl.cdiv(n, N)
        total = tl.cdiv(m, M) * columns
        if tile >= end and tile < end + total:
            a = tl.make_tensor_descriptor(
                tl.load(a_list + group).to(tl.pointer_type(tl.float16)),
                shape=[m, k],
                strides=[tl.load(strides + group * 3), 1],
                block_shape=[M, K],
            )
            b = tl.make_tensor_descriptor(
                tl.load(b_list + group).to(tl.pointer_type(tl.float16)),
                shape=[n, k],
                strides=[tl.load(strides + group * 3 + 1), 1],
                block_shape=[N, K],
            )
            c = tl.make_tensor_descriptor(
                tl.load(c_list + group).to(tl.pointer_type(tl.float16)),
                shape=[m, n],
                strides=[tl.load(strides + group * 3 + 2), 1],
                block_shape=[M, N],
            )
            while tile >= end and tile < end + total:
                row, column = (tile - end) // columns * M, (tile - end) % columns * N
                sums = tl.zeros((M, N), dtype=tl.float32)
                for step in range(0, tl.cdiv(k, K)):
                    sums += tl.dot(a.load([row, step * K]), b.load([column, step * K]).T)
                c.store([row, column], sums.to(tl.float16))
                tile += PROGRAMS
        end = end + total


def multiplied_in_groups(pairs):
    outs = [torch.empty((a.shape[0], b.shape[0]), device=DEVICE, dtype=a.dtype) for a, b in pairs]
    lists = [
        torch.tensor([x.data_ptr() for x in each], device=DEVICE) for each in (*zip(*pairs), outs)
    ]
    sizes = [n for (a, b) in pairs for n in (a.shape[0], b.shape[0], a.shape[1])]
    strides = [x.stride(0) for (a, b), c in zip(pairs, outs) for x in (a, b, c)]
    numbers = [torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in (sizes, strides)]
    multiply_groups[lambda meta: (meta["PROGRAMS"],)](*lists, *numbers, len(pairs))
    return outs


def named(grid, kernel, args):
    return {"name": f"{kernel.name} [{args['m']}]", "flops16": 2.0 * args["m"] * args["n"]}


def set_tiles(given):
    half = 2 if given.get("HALVES") else 1
    given["a"].block_shape = [given["M"], given["K"]]
    given["b"].block_shape = [given["N"], given["K"]]
    given["c"].block_shape = [given["M"], given["N"] // half]


@triton.autotune(configs=tiles((3,), set_tiles), key=["m", "n", "k", "SPECIAL"])
@triton.jit(launch_metadata=named)
def multiply_tma(
    a,
    b,
    c,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    SPECIAL: tl.constexpr,
):
    row, column = tile_of(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(tl.cdiv(k, K), warp_specialize=SPECIAL):
        total = tl.dot(a.load([row * M, step * K]), b.load([column * N, step * K]).T, total)
    c.store([row * M, column * N], total.to(tl.float16))


def with_halves(hook=None):
    return [
        triton.Config({**c.kwargs, "HALVES": halves}, c.num_warps, c.num_stages, pre_hook=hook)
        for c in tiles((3,))
        for halves in (True, False)
    ]


@triton.autotune(configs=with_halves(set_tiles), key=["m", "n", "k", "SPECIAL"])
@triton.jit(launch_metadata=named)
def multiply_persistent(
    a,
    b,
    c,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    HALVES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SPECIAL: tl.constexpr,
):
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    first = tl.program_id(0)
    out = first - PROGRAMS
    for tile in tl.range(first, rows * columns, PROGRAMS, flatten=True, warp_specialize=SPECIAL):
        row, column = tile_of(tile, rows, columns, GROUP)
        total = tl.zeros((M, N), dtype=tl.float32)
        for step in range(tl.cdiv(k, K)):
            total = tl.dot(a.load([row * M, step * K]), b.load([column * N, step * K]).T, total)
        out += PROGRAMS
        row, column = tile_of(out, rows, columns, GROUP)
        if HALVES:
            left, right = tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)).split()
            c.store([row * M, column * N], left.to(tl.float16))
            c.store([row * M, column * N + N // 2], right.to(tl.float16))
        else:
            c.store([row * M, column * N], total.to(tl.float16))


def whole_unless_flat(configs, named_args, **given):
    return [c for c in configs if given["FLAT"] or not c.kwargs["HALVES"]]


@triton.autotune(
    configs=with_halves(),
    key=["m", "n", "k", "SPECIAL", "FLAT"],
    prune_configs_by={"early_config_prune": whole_unless_flat},
)
@triton.jit(launch_metadata=named)
def multiply_own_descriptors(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    HALVES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    SPECIAL: tl.constexpr,
    FLAT: tl.constexpr,
):
    a = tl.make_tensor_descriptor(a_ptr, shape=[m, k], strides=[k, 1], block_shape=[M, K])
    b = tl.make_tensor_descriptor(b_ptr, shape=[n, k], strides=[k, 1], block_shape=[N, K])
    c = tl.make_tensor_descriptor(
        c_ptr, shape=[m, n], strides=[n, 1], block_shape=[M, N // 2 if HALVES else N]
    )
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    first = tl.program_id(0)
    for tile in tl.range(first, rows * columns, PROGRAMS, flatten=FLAT, warp_specialize=SPECIAL):
        row, column = tile_of(tile, rows, columns, GROUP)
        total = tl.zeros((M, N), dtype=tl.float32)
        for step in range(tl.cdiv(k, K)):
            total = tl.dot(a.load([row * M, step * K]), b.load([column * N, step * K]).T, total)
        if HALVES:
            left, right = tl.permute(tl.reshape(total, (M, 2, N // 2)), (0, 2, 1)).split()
            c.store([row * M, column * N], left.to(c_ptr.dtype.element_ty))
            c.store([row * M, column * N + N // 2], right.to(c_ptr.dtype.element_ty))
        else:
            c.store([row * M, column * N], total.to(c_ptr.dtype.element_ty))


def by_descriptors(a, b, special, kernel):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)

    def grid(meta):
        count = triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"])
        return (count if kernel is multiply_tma else min(processors(), count),)

    if kernel is multiply_own_descriptors:
        flat = not (special and IS_HOPPER)
        kernel[grid](a, b, c, m, n, k, PROGRAMS=processors(), SPECIAL=special, FLAT=flat)
        return c
    descriptors = [TensorDescriptor.from_tensor(x, [1, 1]) for x in (a, b, c)]
    more = {} if kernel is multiply_tma else {"PROGRAMS": processors()}
    kernel[grid](*descriptors, m, n, k, SPECIAL=special, **more)
    return c


if __name__ == "__main__":
    a = torch.randn((512, 512), device=DEVICE, dtype=torch.float16)
    b = torch.randn((512, 512), device=DEVICE, dtype=torch.float16)
    if torch.allclose(multiplied(a, b), torch.matmul(a, b), atol=1e-2, rtol=0):
        print("they agree")
    multiplied(a, b, activation="leaky")
    multiplied(a.to(torch.float8_e5m2), b.T.to(torch.float8_e5m2))
    q, k, v = (torch.randn((8, 1024, 64), device="cuda", dtype=torch.float16) for _ in range(3))
    for causal, special in itertools.product((False, True), (False, True) if HAS_CLC else (False,)):
        attended(q, k, v, causal, special)
    if HAS_TMA:
        pairs = [
            (torch.rand((m, 256), device=DEVICE, dtype=torch.float16),) * 2 for m in (1024, 96)
        ]
        multiplied_in_groups(pairs)
        for special, kernel in itertools.product(
            (False, True), (multiply_tma, multiply_persistent, multiply_own_descriptors)
        ):
            if not (IS_HOPPER and special and kernel is not multiply_own_descriptors):
                for _ in range(500):
                    by_descriptors(a, b, special, kernel)
