"""What single threads begin and wait for later: copies in groups, stores that an mbarrier counts.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy": `cp.async`, `st.async`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpu_emulator.state.barriers import COPIES, signal
from gpu_emulator.state.bulk import RANK
from gpu_emulator.state.frame import Frame, MemoryOperand, gather, scatter
from gpu_emulator.steps import Array, Registers
from gpu_emulator.values import Place


def begin_copy(
    frame: Frame,
    read: MemoryOperand,
    write: MemoryOperand,
    target: Array,
    source: Array,
    count: Array | None,
) -> None:
    """Add a copy to the current group: `count` bytes (None: all), and zeros up to the size."""
    registers = frame.registers

    def effect(_: Array | None) -> None:
        # From where nothing is read, nothing is checked.
        if count is None or (count == read.size).all():
            values = gather(registers, read, source)
        else:
            values = _in_part(registers, read, source, count)
        scatter(registers, write, target, values)

    frame.batch.asynchrony.groups(frame, COPIES).issue(effect, read.place)


def begin_counted(
    registers: Registers, barrier: Array, effect: Callable[[], None], size: int, place: Place
) -> None:
    """What takes effect for the active threads, and then so many bytes have come at an mbarrier."""
    frame: Frame = registers[0]
    active = frame.active()
    if not active.any():
        return

    def whole(_: Array | None) -> None:
        effect()
        signal(registers, "shared", barrier, 0, 0, size)

    slot = int(frame.full(barrier)[active].flat[0]) & RANK
    frame.batch.asynchrony.launch(frame, whole, place, slot=slot)


def _in_part(registers: Registers, read: MemoryOperand, source: Array, count: Array) -> Array:
    """`count` bytes and zeros up to the size."""
    frame: Frame = registers[0]
    size, active, octet = read.size, frame.active(), replace(read, size=1)
    full = frame.full(count == size)
    with frame.only(full & active):
        loaded = gather(registers, read, source)
    values = np.where(full, loaded, loaded.dtype.type(0))
    partial = (count > 0) & (count < size) & active
    if partial.any():
        whole = np.ascontiguousarray(np.broadcast_to(values, partial.shape))
        octets = whole[..., None].view(np.uint8).copy()
        for number in range(size):
            chosen = partial & (count > number)
            if chosen.any():
                with frame.only(chosen):
                    loaded = gather(registers, octet, source + number)
                octets[..., number] = np.where(chosen, loaded, octets[..., number])
        values = octets.view("c16" if size == 16 else f"u{size}")[..., 0]
    return values
