"""All opcodes that are known: each module enters its rows when it is imported."""

from __future__ import annotations

from types import ModuleType

from gpu_emulator.sass.instructions import (
    bulk,
    copies,
    floats,
    integers,
    matrices,
    memory,
    moves,
    synchronisation,
    tensor_cores,
    warpgroups,
    warps,
)

CHAPTERS: tuple[ModuleType, ...] = (
    moves, integers, floats, memory, synchronisation, warps, copies, matrices, warpgroups, bulk,
    tensor_cores,
)  # fmt: skip
