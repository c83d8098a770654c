"""Kernels in Gluon, one for each way in which its users feed an SM."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _tile(base, rows, columns, stride, layout: gl.constexpr, SHAPE: gl.constexpr):
    row = rows + gl.arange(0, SHAPE[0], layout=gl.SliceLayout(1, layout))
    column = columns + gl.arange(0, SHAPE[1], layout=gl.SliceLayout(0, layout))
    return base + row[:, None] * stride + column[None, :]


@gluon.jit
def wgmma_matmul(
    a, b, c, K, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr
):
    """Each block sums products of tiles in registers of its one warp group."""
    rows = gl.program_id(0) * BLOCK_M
    columns = gl.program_id(1) * BLOCK_N
    loads: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], gl.float16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_N], gl.float16)
    a_shared = gl.allocate_shared_memory(gl.float16, [BLOCK_M, BLOCK_K], a_layout)
    b_shared = gl.allocate_shared_memory(gl.float16, [BLOCK_K, BLOCK_N], b_layout)
    total = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, sums)
    for k in range(0, K, BLOCK_K):
        a_shared.store(gl.load(_tile(a, rows, k, K, loads, [BLOCK_M, BLOCK_K])))
        b_shared.store(gl.load(_tile(b, k, columns, N, loads, [BLOCK_K, BLOCK_N])))
        fence_async_shared()
        total = warpgroup_mma(a_shared, b_shared, total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
    gl.store(_tile(c, rows, columns, N, sums, [BLOCK_M, BLOCK_N]), total.to(gl.float16))


@gluon.jit
def tcgen05_matmul(
    a, b, c, K, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr
):
    """Each block sums products of tiles in tensor memory, and waits for each of them."""
    rows = gl.program_id(0) * BLOCK_M
    columns = gl.program_id(1) * BLOCK_N
    loads: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    sums: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    a_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], gl.float16)
    b_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_N], gl.float16)
    a_shared = gl.allocate_shared_memory(gl.float16, [BLOCK_M, BLOCK_K], a_layout)
    b_shared = gl.allocate_shared_memory(gl.float16, [BLOCK_K, BLOCK_N], b_layout)
    total = allocate_tensor_memory(gl.float32, [BLOCK_M, BLOCK_N], sums)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    phase = 0
    for k in range(0, K, BLOCK_K):
        a_shared.store(gl.load(_tile(a, rows, k, K, loads, [BLOCK_M, BLOCK_K])))
        b_shared.store(gl.load(_tile(b, k, columns, N, loads, [BLOCK_K, BLOCK_N])))
        fence_async_shared()
        tcgen05_mma(a_shared, b_shared, total, use_acc=k > 0, mbarriers=[done])
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(done)
    values = gl.convert_layout(total.load().to(gl.float16), loads)
    gl.store(_tile(c, rows, columns, N, loads, [BLOCK_M, BLOCK_N]), values)


@gluon.jit
def copy_pipeline(x, out, steps, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    """Doubles a stretch of a vector, block by block; the next ones are on their way meanwhile."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    shared = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], plain)
    places = gl.program_id(0) * steps * BLOCK + gl.arange(0, BLOCK, layout=layout)
    for early in gl.static_range(STAGES - 1):
        async_copy.async_load(shared.index(early), x + places + early * BLOCK)
        async_copy.commit_group()
    for step in range(steps):
        ahead = step + STAGES - 1
        mask = (gl.full([BLOCK], 0, gl.int32, layout) + ahead) < steps
        async_copy.async_load(shared.index(ahead % STAGES), x + places + ahead * BLOCK, mask=mask)
        async_copy.commit_group()
        async_copy.wait_group(STAGES - 1)
        gl.store(out + places + step * BLOCK, shared.index(step % STAGES).load(layout) * 2)
