"""One line of a program as a closure over the registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_emulator.types import Array

# Slot 0 is the frame, slot 1 the mask of active threads (None: all); arrays follow.
Registers = list[Any]
Reader = Callable[[Registers], Array]
Run = Callable[[Registers], None]
FRAME, MASK = 0, 1
WARP = 32


@dataclass(frozen=True, slots=True)
class Step:
    """One line as a closure. `writes` are the slots of its results.

    A pure step knows no mask: it may run for all threads, and be undone where it does not count.
    `reads_old`: where it does not write, a result keeps its value (a guard, a mask). A prelude runs
    first, for all active threads.
    """

    run: Run
    writes: tuple[int, ...]
    is_pure: bool
    reads_old: bool = False
    prelude: Run | None = None


def merge(run: Run, writes: tuple[int, ...], registers: Registers, active: Array) -> None:
    """Run a pure step for some threads only: the others keep what they have."""
    before = [registers[slot] for slot in writes]
    run(registers)
    for slot, old in zip(writes, before, strict=True):
        registers[slot] = np.where(active, registers[slot], old)
