"""Launches of kernels in CuTe DSL, one for each verdict."""

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from kernels import do_wrong, stir, turn


def _given(*tensors):
    return [from_dlpack(tensor, assumed_align=16) for tensor in tensors]


def ok(n=4096, size=128):
    """Compiled first, then launched, as most launch code does."""
    source = torch.randn(n, device="cuda")
    result = torch.empty_like(source)
    compiled = cute.compile(turn, *_given(source, result), size, size)
    compiled(*_given(source, result))


def sick_spills(count=96):
    """More values than the registers of a thread hold, where a block has 1,024 threads."""
    source = torch.randn(1024 * count, device="cuda")
    result = torch.empty_like(source)
    stir(*_given(source, result), count, 8)


def out_of_resources(n=4096, size=128, room=100 * 1024):
    """400 KiB of shared memory."""
    source = torch.randn(n, device="cuda")
    result = torch.empty_like(source)
    turn(*_given(source, result), size, room)


def rejected(what="name"):
    """A name that nothing defines; `shape` is a coordinate that does not fit."""
    do_wrong(*_given(torch.randn(128, device="cuda")), what)


def ptxas_error():
    """Inline assembly that is no instruction."""
    do_wrong(*_given(torch.randn(128, device="cuda")), "assembly")


def unsupported():
    """An instruction of another target: those of warp groups are sm_90a's alone."""
    do_wrong(*_given(torch.randn(128, device="cuda")), "warpgroup")
