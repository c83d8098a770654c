"""Kernels in CuTe DSL that fail, or do not, by what they are launched with."""

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm


@cute.kernel
def reversed_kernel(
    source: cute.Tensor, result: cute.Tensor, size: cutlass.Constexpr, room: cutlass.Constexpr
):
    """Each block turns its elements around, through shared memory of `room` elements."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    allocator = cutlass.utils.SmemAllocator()
    tile = allocator.allocate_tensor(cutlass.Float32, cute.make_layout(room), 16)
    tile[thread] = source[block * size + thread]
    cute.arch.sync_threads()
    result[block * size + thread] = tile[size - 1 - thread]


@cute.jit
def turn(
    source: cute.Tensor, result: cute.Tensor, size: cutlass.Constexpr, room: cutlass.Constexpr
):
    """Launches `reversed_kernel` over all elements."""
    blocks = cute.size(source) // size
    reversed_kernel(source, result, size, room).launch(grid=[blocks, 1, 1], block=[size, 1, 1])


@cute.kernel
def stirred_kernel(
    source: cute.Tensor, result: cute.Tensor, count: cutlass.Constexpr, turns: cutlass.Int32
):
    """Each thread holds `count` values over a loop in which each takes part in the next."""
    thread, _, _ = cute.arch.thread_idx()
    held = cute.make_rmem_tensor(cute.make_layout(count), cutlass.Float32)
    for i in cutlass.range_constexpr(count):
        held[i] = source[thread + 1024 * i]
    for _ in cutlass.range(turns):
        for i in cutlass.range_constexpr(count):
            held[i] = held[i] * held[(i + 1) % count] + held[(i + 7) % count]
    for i in cutlass.range_constexpr(count):
        result[thread + 1024 * i] = held[i]


@cute.jit
def stir(source: cute.Tensor, result: cute.Tensor, count: cutlass.Constexpr, turns: cutlass.Int32):
    """Launches `stirred_kernel` in one block of as many threads as there may be."""
    stirred_kernel(source, result, count, turns).launch(grid=[1, 1, 1], block=[1024, 1, 1])


@cute.kernel
def wrong_kernel(source: cute.Tensor, what: cutlass.Constexpr):
    """Does one thing that is refused."""
    thread, _, _ = cute.arch.thread_idx()
    if cutlass.const_expr(what == "name"):
        source[thread] = source[thread] + undefined_name  # noqa: F821 - that is the point
    if cutlass.const_expr(what == "shape"):
        source[thread] = source[thread, 0, 5]
    if cutlass.const_expr(what == "assembly"):
        llvm.inline_asm(None, [], "bogus.op;", "", has_side_effects=True)
    if cutlass.const_expr(what == "warpgroup"):
        cute.nvgpu.warpgroup.fence()
    source[thread] = cutlass.Float32(1.0)


@cute.jit
def do_wrong(source: cute.Tensor, what: cutlass.Constexpr):
    """Launches `wrong_kernel`."""
    wrong_kernel(source, what).launch(grid=[1, 1, 1], block=[128, 1, 1])
