"""One line of a program as a closure over the registers.

Why a program cannot be executed. Where variables lie in a memory.

PTX types as numpy types, and how one becomes another. Registers hold unsigned integers. Source: PTX
ISA, "State Spaces, Types, and Variables": fundamental types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gpu_emulator.values import Place


class NotExecutable(Exception):  # noqa: N818 - an answer, not an error: it becomes `not_run`
    """The reason in one line; `unknown` are the opcodes that no row of the table knows."""

    def __init__(self, reason: str, unknown: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.unknown = unknown


# Where shared memory begins: hardware keeps the first KiB for itself.
SHARED_BASE = 1024


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `start` to `end` of a row that something owns."""

    name: str
    start: int
    end: int


def laid_out(sizes: Iterable[tuple[str, int, int]], start: int) -> tuple[list[Region], int]:
    """Regions for (name, size, alignment) one after the other, and where the last one ends."""
    regions, at = [], start
    for name, size, align in sizes:
        at = -(-at // align) * align
        regions.append(Region(name, at, at + size))
        at += size
    return regions, at


Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    **{name: np.dtype("u4") for name in ("f16x2", "bf16x2", "u16x2", "s16x2", "tf32")},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32x2": np.dtype("u8"),
    # A complex number is the one type of numpy with 16 bytes: only ever moved, never computed with.
    "b128": np.dtype("c16"),
    "pred": np.dtype(np.bool_),
}
BITS = {name: 1 if name == "pred" else dtype.itemsize * 8 for name, dtype in DTYPES.items()}
# What a register of so many bits is stored as.
CANONICAL = {
    1: np.dtype(np.bool_),
    **{bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    128: np.dtype("c16"),
}


def is_signed(kind: str) -> bool:
    """Whether a wider register gets copies of the sign."""
    return kind in ("s8", "s16", "s32", "s64")


def cast(value: Array, dtype: np.dtype[Any]) -> Array:
    """The same bits where the sizes are equal, else the low ones or zero- or sign-extended."""
    if value.dtype == dtype:
        return value
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    size = dtype.itemsize
    if value.dtype.kind not in "ui":
        value = value.view(f"u{value.dtype.itemsize}")
    # Sign extension follows the type of the value.
    letter = value.dtype.kind if size > value.dtype.itemsize else "u"
    return value.astype(f"{letter}{size}").view(dtype)


# Slot 0 is the frame, slot 1 the mask of active threads (None: all); arrays follow.
Registers = list[Any]
Reader = Callable[[Registers], Array]
Run = Callable[[Registers], None]
FRAME, MASK = 0, 1
WARP = 32


@dataclass(slots=True)
class Step:
    """One line as a closure. `writes` are the slots of its results.

    A pure step knows no mask: it may run for all threads, and be undone where it does not count.
    `reads_old`: where it does not write, a result keeps its value (a guard, a mask). A prelude runs
    first, for all active threads.
    """

    run: Run
    writes: tuple[int, ...] = ()
    is_pure: bool = False
    reads_old: bool = False
    prelude: Run | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A basic block as closures: `whole` where all threads are active, `part` where some are.

    `predicate` is the slot that decides about the branch (None: always), `table` the reader of the
    index into `targets` (`brx.idx`). `following` is None behind `exit`. `meeting` reads the lanes
    that have to be here together. `meets_at` is the block, after block `number`, where threads that
    part at its `branch` meet for certain (None: only at the end). `aligned` is an instruction that
    wants the whole warp. `reads` and `writes` are the slots of each closure.
    """

    whole: tuple[Run, ...]
    part: tuple[Run, ...]
    places: tuple[Place, ...]
    reads: tuple[frozenset[int], ...]
    writes: tuple[tuple[int, ...], ...]
    count: int
    targets: tuple[int, ...]
    following: int | None
    predicate: int | None
    is_negated: bool
    table: Reader | None
    leaves: bool
    meeting: Reader | None
    number: int
    meets_at: int | None
    branch: Place | None
    aligned: Place | None


def merge(run: Run, writes: tuple[int, ...], registers: Registers, active: Array) -> None:
    """Run a pure step for some threads only: the others keep what they have."""
    before = [registers[slot] for slot in writes]
    run(registers)
    for slot, old in zip(writes, before, strict=True):
        registers[slot] = np.where(active, registers[slot], old)
