"""All opcodes that are known: each module enters its rows when it is imported."""

from __future__ import annotations

from types import ModuleType

from gpu_emulator.ptx.instructions import (
    atomics,
    barriers,
    bulk,
    calls,
    carry,
    comparisons,
    conversions,
    copies,
    floats,
    integers,
    loads,
    logic,
    matrix,
    mbarriers,
    tensor_copies,
    tensor_cores,
    tensor_maps,
    tensor_moves,
    video,
    warpgroups,
    warps,
)

CHAPTERS: tuple[ModuleType, ...] = (
    integers, carry, floats, logic, comparisons,
    conversions, loads, copies, barriers, warps, matrix,
    mbarriers, warpgroups, tensor_cores, tensor_moves, atomics, bulk, tensor_copies,
    tensor_maps, video, calls,
)  # fmt: skip
