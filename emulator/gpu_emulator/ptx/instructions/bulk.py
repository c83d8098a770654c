"""Bulk copies: whole blocks and tensor tiles, moved by an engine of their own.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Bulk copy, Tensor copy".
Loads signal an mbarrier. Stores belong to groups and have two times: when their source has been
read, and when what they wrote can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpu_emulator.ptx.instructions.atomics import combine
from gpu_emulator.ptx.instructions.mbarriers import complete_bytes
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.issuers import issuers
from gpu_emulator.state.memory import CLUSTER_SHIFT, Memory, Trouble
from gpu_emulator.steps import WARP, Registers, Step
from gpu_emulator.types import BITS, Array
from gpu_emulator.values import Place

_TITLE = "Data Movement and Conversion Instructions"
_READ, _SEEN = "bulk.read", "bulk.seen"
_RANK = (1 << CLUSTER_SHIFT) - 1
_HINT = "?{hint:L2::cache_hint}"


def taken_by(value: Array, frame: Frame, rows: Array, column: int) -> Array:
    """What one thread of some CTAs has, as int64."""
    taken = np.broadcast_to(value, frame.shape)[rows, column]
    answer: Array = taken.astype(np.int64) if taken.dtype != np.int64 else taken
    return answer


def in_shared(frame: Frame, rows: Array, address: Array, size: int, what: str) -> Array:
    """Offsets into shared memory's data of `size` bytes at addresses, (n, size)."""
    memory: Memory = frame.batch.memories["shared"]
    window = frame.batch.windows["shared"]
    address = np.where(address >= window, address - window, address)
    rank = address >> CLUSTER_SHIFT
    owner = np.where(rank > 0, frame.batch.cluster_row(rows, rank - 1), rows)
    start = address & _RANK
    memory.check(start, 1, what)
    memory.check(start + size - 1, 1, what)
    offsets: Array = (owner * memory.stride + start)[:, None] + np.arange(size)[None, :]
    return offsets


def in_global(frame: Frame, address: Array, size: int, what: str) -> Array:
    """Offsets into global memory's data of `size` bytes at addresses, (n, size)."""
    memory: Memory = frame.batch.memories["global"]
    start = address - memory.base
    memory.check(start, 1, what)
    memory.check(start + size - 1, 1, what)
    offsets: Array = start[:, None] + np.arange(size)[None, :]
    return offsets


def copied(target: Memory, to: Array, source: Memory, origin: Array) -> None:
    """Copy byte by byte, from offsets to offsets."""
    target.store(to, source.load(origin, 1), 1)


def watched(
    frame: Frame, column: int, index: Array, size: int, place: Place, *, writes: bool
) -> None:
    """Tell the checks of `size` bytes each at offsets into shared memory."""
    if not writes:
        frame.batch.note_unwritten(frame.batch.memories["shared"], index, size, None, place)
    if frame.batch.watch is not None:
        warp = (frame.first + column) // WARP
        frame.batch.watch.block(warp, index.reshape(-1), size, place, writes=writes)


def watched_in_global(
    frame: Frame, column: int, rows: Array, spots: Array, size: int, place: Place, *, writes: bool
) -> None:
    """Tell the checks of `size` bytes each at offsets (n, m) into global memory, by CTA."""
    if not writes and spots.size:
        frame.batch.note_unwritten(frame.batch.memories["global"], spots, size, None, place)
    if frame.batch.watch is not None:
        warp = (frame.first + column) // WARP
        owners = np.repeat(rows, spots.shape[1])
        frame.batch.watch.engine(warp, owners, spots.reshape(-1), size, place, writes=writes)


def signalled(frame: Frame, rows: Array, address: Array, count: int, column: int) -> None:
    """Tell the mbarriers of these CTAs that so many bytes have come."""
    index = in_shared(frame, rows, address, 8, "the mbarrier of a bulk copy")[:, 0]
    complete_bytes(frame, rows, index, count, column)


def _multiple_of_16(values: Array, what: str) -> None:
    if (values & 15).any():
        raise Trouble("memory_fault", f"{what} of a bulk copy is no multiple of 16")


def targets(frame: Frame, rows: Array, ranks: Array | None) -> list[tuple[Array, int | None]]:
    """The CTAs that a copy goes to: its own (None), or each rank of the mask of one CTA."""
    if ranks is None:
        return [(np.arange(len(rows)), None)]
    size = frame.batch.geometry.cluster_size
    return [
        (np.nonzero(ranks >> rank & 1)[0], rank)
        for rank in range(size)
        if (ranks >> rank & 1).any()
    ]


def at_rank(address: Array, rank: int | None) -> Array:
    """A shared address in its own CTA, or the same place in the CTA of a rank."""
    return address if rank is None else (address & _RANK) | (rank + 1 << CLUSTER_SHIFT)


@opcode(
    "cp.async.bulk.{to:shared::cluster|shared::cta}.{source:global}.mbarrier::complete_tx::bytes"
    f"?{{multicast:multicast::cluster}}{_HINT}",
    "cp.async.bulk.{to:shared::cluster}.{source:shared::cta}.mbarrier::complete_tx::bytes",
    section=f"{_TITLE}: cp.async.bulk",
)  # fmt: skip
def _bulk_load(line: Binder) -> Step:
    to, origin, count, barrier = (
        line.address(0),
        line.address(1),
        line.read(2, "u32"),
        line.address(3),
    )
    ranks = line.read(4, "u16") if line.parts.get("multicast") else None
    from_global, place = line.parts["source"] == "global", line.line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [to(registers), origin(registers), count(registers), barrier(registers)]
        mask = None if ranks is None else ranks(registers)
        for column, rows in issuers(frame):
            target, source, sizes, signal = (taken_by(each, frame, rows, column) for each in values)
            chosen = None if mask is None else taken_by(mask, frame, rows, column)
            for each in (target, source, sizes):
                _multiple_of_16(each, "an address or the size")
            for size in np.unique(sizes).tolist():
                same = sizes == size
                wanted = None if chosen is None else chosen[same]

                def effect(
                    _: Array | None, rows: Array = rows[same], target: Array = target[same],
                    source: Array = source[same], signal: Array = signal[same], size: int = size,
                    wanted: Array | None = wanted, column: int = column,
                ) -> None:  # fmt: skip
                    memory = frame.batch.memories["global" if from_global else "shared"]
                    for members, rank in targets(frame, rows, wanted):
                        own = rows[members]
                        where = (
                            in_global(frame, source[members], size, "a bulk copy")
                            if from_global
                            else in_shared(frame, own, source[members], size, "a bulk copy")
                        )
                        spot = at_rank(target[members], rank)
                        index = in_shared(frame, own, spot, size, "a bulk copy")
                        copied(frame.batch.memories["shared"], index, memory, where)
                        watched(frame, column, index[:, ::4], 4, place, writes=True)
                        if from_global:
                            each = where[:, ::4]
                            watched_in_global(frame, column, own, each, 4, place, writes=False)
                        else:
                            watched(frame, column, where[:, ::4], 4, place, writes=False)
                        signalled(frame, own, at_rank(signal[members], rank), size, column)

                slot = int(signal[same][0]) & _RANK
                frame.batch.asynchrony.launch(frame, effect, place, slot=slot)

    return Step(run, (), is_pure=False)


@opcode(
    f"cp.async.bulk.global.shared::cta.bulk_group{_HINT}",
    *(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.{rest}"
        for rest in (
            "{op:and|or|xor}.{type:b32|b64}", "{op:add|min|max}.{type:u32|s32|u64}",
            "{op:min|max}.{type:s64}", "{op:inc|dec}.{type:u32}", "{op:add}.{type:f32|f64}",
            "{op:add}.noftz.{type:f16|bf16}", "{op:min|max}.{type:f16|bf16}",
        )
    ),
    section=f"{_TITLE}: cp.async.bulk, cp.reduce.async.bulk",
)  # fmt: skip
def _bulk_store(line: Binder) -> Step:
    to, origin, count = line.address(0), line.address(1), line.read(2, "u32")
    kind = line.parts.get("type")
    change = combine(line.parts["op"], kind) if kind else None
    unit, place = BITS[kind] // 8 if kind else 1, line.line.place

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        values = [to(registers), origin(registers), count(registers)]
        for column, rows in issuers(frame):
            target, source, sizes = (taken_by(each, frame, rows, column) for each in values)
            for each in (target, source, sizes):
                _multiple_of_16(each, "an address or the size")
            for size in np.unique(sizes).tolist():
                same = sizes == size
                where = (rows[same], source[same], target[same])
                stored(
                    frame, partial(_read_bytes, frame, column, *where[:2], size, unit, place),
                    partial(
                        _write_bytes, frame, column, where[0], where[2], size, unit, change, place
                    ),
                    place,
                )  # fmt: skip

    return Step(run, (), is_pure=False)


def _read_bytes(
    frame: Frame, column: int, rows: Array, source: Array, size: int, unit: int, place: Place
) -> Array:
    index = in_shared(frame, rows, source, size, "a bulk store")
    watched(frame, column, index[:, ::4], 4, place, writes=False)
    answer: Array = frame.batch.memories["shared"].load(index[:, ::unit], unit)
    return answer


def _write_bytes(
    frame: Frame, column: int, rows: Array, target: Array, size: int, unit: int,
    change: Callable[..., Array] | None, place: Place, values: Array,
) -> None:  # fmt: skip
    memory = frame.batch.memories["global"]
    whole = in_global(frame, target, size, "a bulk store")
    if change is None:
        watched_in_global(frame, column, rows, whole[:, ::4], 4, place, writes=True)
    index = whole[:, ::unit]
    for row, data in zip(index, values, strict=True):
        memory.store(row, data if change is None else change(memory.load(row, unit), data), unit)


def stored(
    frame: Frame, read: Callable[[], Array], write: Callable[[Array], None], place: Place
) -> None:
    """A store in its two halves: what waits for the first lets the source be overwritten."""
    taken: list[Array] = []
    asynchrony = frame.batch.asynchrony

    def source(_: Array | None) -> None:
        taken.append(read())

    def visible(_: Array | None) -> None:
        if not taken:
            source(None)
        write(taken[0])

    asynchrony.groups(frame, _READ).issue(source, place)
    asynchrony.groups(frame, _SEEN).issue(visible, place)


@opcode("cp.async.bulk.commit_group", section=f"{_TITLE}: cp.async.bulk.commit_group")
def _commit(line: Binder) -> Step:
    del line

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, _READ).commit()
        frame.batch.asynchrony.groups(frame, _SEEN).commit()

    return Step(run, (), is_pure=False)


@opcode("cp.async.bulk.wait_group?{read:read}", section=f"{_TITLE}: cp.async.bulk.wait_group")
def _wait(line: Binder) -> Step:
    pending = line.pending(0)
    only_read = bool(line.parts["read"])

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        frame.batch.asynchrony.groups(frame, _READ).wait(pending)
        if not only_read:
            frame.batch.asynchrony.groups(frame, _SEEN).wait(pending)

    return Step(run, (), is_pure=False)
