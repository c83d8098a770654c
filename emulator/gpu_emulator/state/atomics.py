"""Atomic operations: thread after thread, in the order of their numbers."""

from __future__ import annotations

import numpy as np

from gpu_emulator.numbers.arithmetic import Change
from gpu_emulator.state.frame import Frame, Semantics, Touch, locate
from gpu_emulator.steps import MASK, Array, Registers


def apply_to_memory(
    registers: Registers,
    space: str,
    address: Array,
    change: Change,
    values: list[Array],
    how: Semantics,
) -> Array:
    """Change memory for every active thread; what was there before, for all threads.

    `values` (CTAs, threads) are the operands, elements of 1 to 16 bytes.
    """
    frame: Frame = registers[0]
    size = values[0].dtype.itemsize
    before = np.zeros(frame.shape, dtype="c16" if size == 16 else f"u{size}")
    for memory, index, active in locate(
        frame, space, address, size, "an atomic operation", registers[MASK]
    ):
        mask = np.ones(frame.shape, np.bool_) if active is None else frame.full(active)
        places = frame.full(index)[mask]
        if memory.written is not None:
            frame.batch.note_unwritten(frame, memory, frame.full(index), size, mask)
        watch = frame.batch.watch
        if watch is not None:
            touch = Touch(frame, memory, index, size, active, how)
            watch.release(touch)
            watch.read(touch)
            watch.write(touch, None)
        chosen = [value[mask] for value in values]
        taken = np.zeros(len(places), dtype=before.dtype)
        for turn in _turns(places):
            old = memory.load(places[turn], size)
            taken[turn] = old
            memory.store(places[turn], change(old, *[value[turn] for value in chosen]), size)
        before[mask] = taken
        if watch is not None:
            watch.acquire(touch)
    return before


def _turns(places: Array) -> list[Array]:
    """Threads in turns in which each place occurs once: the first of each place, the second, ..."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    position = np.arange(len(places))
    rank = position - np.maximum.accumulate(np.where(starts, position, 0))
    if rank.max(initial=0) == 0:
        return [np.arange(len(places))]
    by_turn = np.argsort(rank, kind="stable")
    limits = np.cumsum(np.bincount(rank))[:-1]
    return [order[turn] for turn in np.split(by_turn, limits)]
