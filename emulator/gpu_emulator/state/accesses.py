"""Reads and writes of memory by the active threads of a frame."""

from __future__ import annotations

import numpy as np

from gpu_emulator.state.frame import Frame
from gpu_emulator.state.memory import CLUSTER_SHIFT, Memory
from gpu_emulator.state.semantics import WEAK, Semantics
from gpu_emulator.steps import MASK, Registers
from gpu_emulator.types import Array
from gpu_emulator.values import Place

Located = tuple[Memory, Array]
_RANK_MASK = (1 << CLUSTER_SHIFT) - 1


def locate(
    frame: Frame, space: str, address: Array, size: int, what: str, active: Array | None
) -> list[tuple[Memory, Array, Array | None]]:
    """Where the bytes at addresses are: (memory, offsets into its data, mask of threads) a space.

    Offsets of threads that are not active are those of some active one. Trouble if any access is
    out of bounds or not aligned.
    """
    if active is not None and not active.any():
        return []
    if space == "generic":
        return _by_window(frame, address, size, what, active)
    if active is not None:
        # A place that some active thread accesses, for those that do not.
        shape = np.broadcast_shapes(address.shape, active.shape)
        address = np.broadcast_to(address, shape)
        active = np.broadcast_to(active, shape)
        address = np.where(active, address, address[active][0])
    memory = frame.batch.memories[space]
    return [(memory, _offsets(frame, memory, space, address, size, what), active)]


def _offsets(
    frame: Frame, memory: Memory, space: str, address: Array, size: int, what: str
) -> Array:
    if space == "shared":
        rows: Array = frame.rows
        if int(address.max()) > _RANK_MASK:
            rank = address >> CLUSTER_SHIFT
            rows = np.where(rank > 0, frame.batch.cluster_row(frame.rows, rank - 1), rows)
            address = address & _RANK_MASK
        memory.check(address, size, what)
        return rows * memory.stride + address if memory.stride and frame.ctas > 1 else address
    if space == "local":
        memory.check(address, size, what)
        answer: Array = (frame.rows * frame.batch.threads + frame.threads) * memory.stride + address
        return answer
    offset = address - memory.base
    memory.check(offset, size, what)
    return offset


def _by_window(
    frame: Frame, address: Array, size: int, what: str, active: Array | None
) -> list[tuple[Memory, Array, Array | None]]:
    """The same for generic addresses, which may lie in several spaces."""
    found = []
    shape = frame.shape if active is not None else address.shape
    rest = np.ones(address.shape, np.bool_) if active is None else np.broadcast_to(active, shape)
    address = np.broadcast_to(address, rest.shape)
    for space in ("global", "shared", "local", "param"):
        inside = frame.batch.is_in(space, address.view(np.uint64)) & rest
        if space == "global":
            # What is in no window at all is a wrong global address.
            others = [
                frame.batch.is_in(each, address.view(np.uint64))
                for each in ("shared", "local", "param")
            ]
            inside = rest & ~(others[0] | others[1] | others[2])
        if not inside.any():
            continue
        window = frame.batch.windows[space]
        mask = None if active is None and inside.all() else inside
        found += locate(frame, space, address - window, size, what, mask)
    return found


def gather(
    registers: Registers, space: str, address: Array, size: int, place: Place,
    how: Semantics = WEAK,
) -> tuple[Array, Array | None]:  # fmt: skip
    """Elements of `size` bytes (1 to 16) that the active threads read, and the mask of these."""
    frame: Frame = registers[0]
    mask = registers[MASK]
    value: Array | None = None
    for memory, index, active in locate(frame, space, address, size, "a load", mask):
        loaded = memory.load(index, size)
        if memory.written is not None:
            frame.batch.note_unwritten(memory, index, size, active, place)
        if frame.batch.watch is not None:
            frame.batch.watch.read(frame, memory, index, size, active, place, how)
            frame.batch.watch.acquire(frame, memory, index, active, how)
        value = loaded if value is None or active is None else np.where(active, loaded, value)
    if value is None:
        return np.zeros((1, 1), dtype="c16" if size == 16 else f"u{size}"), mask
    return value, mask


def scatter(
    registers: Registers, space: str, address: Array, values: Array, size: int, place: Place,
    how: Semantics = WEAK,
) -> None:  # fmt: skip
    """Write elements of `size` bytes for the active threads."""
    frame: Frame = registers[0]
    for memory, index, active in locate(frame, space, address, size, "a store", registers[MASK]):
        if memory.stride and frame.ctas > 1:
            values = np.broadcast_to(values, np.broadcast_shapes(values.shape, (frame.ctas, 1)))
        if frame.batch.watch is not None:
            frame.batch.watch.release(frame, memory, index, active, how)
            frame.batch.watch.write(frame, memory, index, size, active, place, values, how)
        if active is not None:
            shape = np.broadcast_shapes(index.shape, values.shape, active.shape)
            which = np.broadcast_to(active, shape)
            chosen = np.broadcast_to(index, shape)[which]
            memory.store(chosen, np.broadcast_to(values, shape)[which], size)
        elif index.shape == values.shape:
            memory.store(index, values, size)
        else:
            shape = np.broadcast_shapes(index.shape, values.shape)
            memory.store(np.broadcast_to(index, shape), np.broadcast_to(values, shape), size)
