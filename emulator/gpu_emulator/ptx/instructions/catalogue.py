"""All opcodes that are known: each module enters its rows when it is imported."""

from __future__ import annotations

from types import ModuleType

from gpu_emulator.ptx.instructions import (
    barriers,
    calls,
    copies,
    floats,
    integers,
    loads,
    logic,
    matrix,
    tensor_copies,
    tensor_cores,
    warps,
)  # fmt: skip

CHAPTERS: tuple[ModuleType, ...] = (
    integers, floats, logic, loads, copies, barriers, warps, matrix, tensor_cores, tensor_copies,
    calls,
)  # fmt: skip
