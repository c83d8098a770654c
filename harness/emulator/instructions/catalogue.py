"""All opcodes that are known: each module enters its rows when it is imported."""

from __future__ import annotations

from types import ModuleType

from harness.emulator.instructions import (
    barriers,
    carry,
    conversions,
    copies,
    floats,
    integers,
    loads,
    logic,
    matrix,
    warps,
)

__all__ = ["CHAPTERS"]

CHAPTERS: tuple[ModuleType, ...] = (
    integers, carry, floats, logic, conversions, loads, copies, barriers, warps, matrix,
)  # fmt: skip
