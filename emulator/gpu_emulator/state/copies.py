"""What single threads begin and wait for later: copies in groups, stores that an mbarrier counts.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy": `cp.async`, `st.async`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpu_emulator.numbers.arithmetic import Change
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.barriers import COPIES, signal
from gpu_emulator.state.bulk import RANK
from gpu_emulator.state.frame import Frame, gather, scatter, semantics_of
from gpu_emulator.steps import Array, Registers

_IN_CLUSTER = semantics_of({"scope": "cluster"}, is_atomic=True)


def begin_copy(
    registers: Registers, size: int, target: Array, source: Array, count: Array | None
) -> None:
    """Add a copy of `size` bytes to the current group: `count` (None: all) of them, then zeros."""

    def effect(_: Array | None) -> None:
        # From where nothing is read, nothing is checked.
        if count is None or (count == size).all():
            values = gather(registers, "global", size, source)
        else:
            values = _in_part(registers, size, source, count)
        scatter(registers, "shared", target, values)

    registers[0].batch.asynchrony.groups(registers[0], COPIES).issue(effect)


def begin_stores(
    registers: Registers, target: Array, values: Sequence[Array], barrier: Array
) -> None:
    """Store values one behind the other to shared memory, whose bytes an mbarrier counts."""
    kept, size = [np.array(value) for value in values], values[0].dtype.itemsize

    def effect() -> None:
        for number, value in enumerate(kept):
            scatter(registers, "shared", target + number * size, value)

    _begin_counted(registers, barrier, effect, size * len(values))


def begin_reduction(
    registers: Registers, target: Array, change: Change, value: Array, barrier: Array
) -> None:
    """Change shared memory by an atomic operation, whose bytes an mbarrier counts."""
    kept = np.array(value)

    def effect() -> None:
        apply_to_memory(registers, "shared", target, change, [registers[0].full(kept)], _IN_CLUSTER)

    _begin_counted(registers, barrier, effect, value.dtype.itemsize)


def _begin_counted(
    registers: Registers, barrier: Array, effect: Callable[[], None], size: int
) -> None:
    frame: Frame = registers[0]
    active, objects = frame.active(), np.array(barrier)
    if not active.any():
        return

    def whole(_: Array | None) -> None:
        effect()
        signal(registers, "shared", objects, 0, 0, size)

    slot = int(frame.full(objects)[active].flat[0]) & RANK
    frame.batch.asynchrony.launch(frame, whole, slot=slot)


def _in_part(registers: Registers, size: int, source: Array, count: Array) -> Array:
    """`count` bytes and zeros up to the size."""
    frame: Frame = registers[0]
    active = frame.active()
    full = frame.full(count == size)
    with frame.only(full & active):
        loaded = gather(registers, "global", size, source)
    values = np.where(full, loaded, loaded.dtype.type(0))
    partial = (count > 0) & (count < size) & active
    if partial.any():
        whole = np.ascontiguousarray(np.broadcast_to(values, partial.shape))
        octets = whole[..., None].view(np.uint8).copy()
        for number in range(size):
            chosen = partial & (count > number)
            if chosen.any():
                with frame.only(chosen):
                    loaded = gather(registers, "global", 1, source + number)
                octets[..., number] = np.where(chosen, loaded, octets[..., number])
        values = octets.view("c16" if size == 16 else f"u{size}")[..., 0]
    return values
