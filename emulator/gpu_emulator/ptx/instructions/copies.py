"""What single threads begin and wait for later: `cp.async`, `st.async`, `red.async`.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: Non-bulk copy", "st.async";
"Parallel Synchronization and Communication Instructions: red.async".

Bulk copies: whole blocks and tensor tiles, moved by an engine of their own. PTX ISA, "Data Movement
and Conversion Instructions: Asynchronous copy: Bulk copy, Tensor copy". Loads signal an mbarrier.
Stores belong to groups and have two times: when their source has been read, and when what they
wrote can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gpu_emulator.ptx.instructions.barriers import complete_bytes, signal
from gpu_emulator.ptx.instructions.loads import apply_to_memory, combine
from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.state.frame import (
    CLUSTER_SHIFT,
    Frame,
    Memory,
    Trouble,
    gather,
    issuers,
    scatter,
    semantics_of,
)
from gpu_emulator.steps import BITS, MASK, WARP, Array, Registers, Step
from gpu_emulator.values import Place

_HINTS = "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
KIND = "cp.async"
_SIGNALS = "shared::cluster.mbarrier::complete_tx::bytes"
_TYPES = "b32|b64|u32|u64|s32|s64|f32|f64"
_RED = f"red.async.relaxed.cluster.{_SIGNALS}"
_RANK = (1 << CLUSTER_SHIFT) - 1


@opcode(
    f"cp.async.ca.{{space:shared|shared::cta}}.global{_HINTS}",
    f"cp.async.cg.{{space:shared|shared::cta}}.global{_HINTS}",
)  # fmt: skip
def _copy(line: Binder) -> Step:
    """Operands: to, from, size, then how many bytes to read (or a predicate to read none)."""
    to, origin, place = line.address(0), line.address(1), line.line.place
    size = line.constant(2)
    if size not in (4, 8, 16):
        raise line.refuse("copies neither 4 nor 8 nor 16 bytes")
    extra = line.count - 3 - bool(line.parts["hint"])
    if extra not in (0, 1):
        raise line.refuse(f"has {line.count} operands")
    is_ignored = extra == 1 and line.is_predicate(3)
    limit = line.read(3, "pred" if is_ignored else "u32") if extra else None

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        target, source = to(registers), origin(registers)
        count: Array | None = None
        if limit is not None:
            count = np.where(limit(registers), 0, size) if is_ignored else limit(registers)

        def effect(_: Array | None) -> None:
            _transfer(registers, target, source, size, count, place)

        frame.batch.asynchrony.groups(frame, KIND).issue(effect, place)

    return Step(run)


def _transfer(
    registers: Registers, target: Array, source: Array, size: int, count: Array | None, place: Place
) -> None:
    """Copy `count` bytes and zeros up to `size`; from where nothing is read, nothing is checked."""
    if count is None or (count == size).all():
        values, _ = gather(registers, "global", source, size, place)
    else:
        frame: Frame = registers[0]
        outer = registers[MASK]
        full = np.broadcast_to(np.asarray(count == size), frame.shape)
        registers[MASK] = full if outer is None else full & outer
        loaded, _ = gather(registers, "global", source, size, place)
        values = np.where(full, loaded, loaded.dtype.type(0))
        partial = np.broadcast_to((count > 0) & (count < size), frame.shape)
        partial = partial if outer is None else partial & outer
        if partial.any():
            values = _byte_by_byte(registers, values, source, size, count, partial, place)
        registers[MASK] = outer
    scatter(registers, "shared", target, values, size, place)


def _byte_by_byte(
    registers: Registers,
    values: Array,
    source: Array,
    size: int,
    count: Array,
    partial: Array,
    place: Place,
) -> Array:
    octets = (
        np.ascontiguousarray(np.broadcast_to(values, partial.shape))[..., None]
        .view(np.uint8)
        .copy()
    )
    for number in range(size):
        registers[MASK] = partial & (count > number)
        if registers[MASK].any():
            octet, _ = gather(registers, "global", source + number, 1, place)
            octets[..., number] = np.where(registers[MASK], octet, octets[..., number])
    kind = "c16" if size == 16 else f"u{size}"
    return octets.view(kind)[..., 0]


def commits(template: str, *kinds: str) -> None:
    """A row that ends the current group of operations of each kind."""

    @opcode(template)
    def make(line: Binder) -> Step:
        del line

        def run(registers: Registers) -> None:
            for kind in kinds:
                registers[0].batch.asynchrony.groups(registers[0], kind).commit()

        return Step(run)


def waits(template: str, *kinds: str) -> None:
    """A row that waits until few groups are pending; for the first kind alone if it says `read`."""

    @opcode(template)
    def make(line: Binder) -> Step:
        pending = -1 if line.parts.get("what") == "wait_all" else line.pending(0)
        chosen = kinds[:1] if line.parts.get("read") else kinds

        def run(registers: Registers) -> None:
            for kind in chosen:
                registers[0].batch.asynchrony.groups(registers[0], kind).wait(pending)

        return Step(run)


commits("cp.async.commit_group", KIND)
waits("cp.async.{what:wait_group|wait_all}", KIND)


@opcode(f"st.async?{{weak:weak}}.{_SIGNALS}?{{vec:v2|v4}}.{{type:{_TYPES}}}")
def _store_and_signal(line: Binder) -> Step:
    bits = BITS[line.parts["type"]]
    to, barrier, place = line.address(0), line.address(2), line.line.place
    values = [line.source(each, f"b{bits}") for each in line.parts_of(1)]
    if len(values) != int((line.parts["vec"] or "v1")[1:]):
        raise line.refuse("has another number of registers than its type says")

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, taken = to(registers), [np.array(each(registers)) for each in values]

        def effect() -> None:
            for number, each in enumerate(taken):
                scatter(registers, "shared", at + number * (bits // 8), each, bits // 8, place)

        return np.array(barrier(registers)), effect, len(taken) * bits // 8

    return _flying(line, begin)


@opcode(
    f"{_RED}.{{op:inc|dec}}.{{type:u32}}", f"{_RED}.{{op:min|max|add}}.{{type:u32|s32}}",
    f"{_RED}.{{op:and|or|xor}}.{{type:b32}}", f"{_RED}.{{op:add}}.{{type:u64}}",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Step:
    kind = line.parts["type"]
    size, change = BITS[kind] // 8, combine(line.parts["op"], kind)
    to, value, barrier = line.address(0), line.read(1, f"b{BITS[kind]}"), line.address(2)
    place, how = line.line.place, semantics_of({"scope": "cluster"}, is_atomic=True)

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, taken = to(registers), np.array(value(registers))

        def effect() -> None:
            values = [registers[0].full(taken)]
            apply_to_memory(registers, "shared", at, size, change, values, place, how)

        return np.array(barrier(registers)), effect, size

    return _flying(line, begin)


@opcode("st.async.mmio.release.{scope:gpu|sys}.{space:global}.{type:b8|b16|b32|b64|u8|u16|u32|u64}")
def _store_to_device(line: Binder) -> Step:
    """Nothing waits for it: it takes effect at once, as it may."""
    bits = BITS[line.parts["type"]]
    to, value, place = line.address(0), line.read(1, f"b{bits}"), line.line.place
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]})

    def run(registers: Registers) -> None:
        scatter(registers, "global", to(registers), value(registers), bits // 8, place, how)

    return Step(run)


@opcode("red.async.mmio.release.{scope:gpu|sys}.{space:global}.{op:add}.{type:u32|s32|u64}")
def _reduce_in_device(line: Binder) -> Step:
    kind = line.parts["type"]
    to, value, change = line.address(0), line.read(1, f"b{BITS[kind]}"), combine("add", kind)
    place = line.line.place
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]}, is_atomic=True)

    def run(registers: Registers) -> None:
        values = [registers[0].full(value(registers))]
        apply_to_memory(
            registers, "global", to(registers), BITS[kind] // 8, change, values, place, how
        )

    return Step(run)


def _flying(
    line: Binder, begin: Callable[[Registers], tuple[Array, Callable[[], None], int]]
) -> Step:
    """An operation under way: it takes effect, and then so many bytes have come."""

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        active = frame.active()
        if not active.any():
            return
        barrier, effect, size = begin(registers)

        def whole(_: Array | None) -> None:
            effect()
            signal(registers, "shared", barrier, 0, 0, size)

        slot = int(frame.full(barrier)[active].flat[0]) & _RANK
        frame.batch.asynchrony.launch(frame, whole, line.line.place, slot=slot)

    return Step(run)


@opcode("st.bulk?{weak:weak}?{space:shared::cta}.size")
def _fill(line: Binder) -> Step:
    """Zeros: the one value that the manual allows."""
    if line.constant(2) != 0:
        raise line.refuse("fills with another value than 0")
    to, count, place = line.address(0), line.read(1, "u64"), line.line.place
    space = "shared" if line.parts["space"] else "generic"

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at, sizes = to(registers), frame.full(count(registers)).astype(np.int64)
        most = int(sizes[frame.active()].max(initial=0))
        outer = registers[MASK]
        for offset in range(0, most, 8):
            registers[MASK] = frame.active() if outer is None else frame.full(outer)
            registers[MASK] = registers[MASK] & (sizes > offset)
            scatter(registers, space, at + offset, np.zeros((1, 1), np.uint64), 8, place)
            registers[MASK] = outer

    return Step(run)


_READ, _SEEN = "bulk.read", "bulk.seen"
_HINT = "?{hint:L2::cache_hint}"


def taken_by(value: Array, frame: Frame, rows: Array, column: int) -> Array:
    """What one thread of some CTAs has, as int64."""
    taken = np.broadcast_to(value, frame.shape)[rows, column]
    return taken.astype(np.int64) if taken.dtype != np.int64 else taken


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
    return (owner * memory.stride + start)[:, None] + np.arange(size)[None, :]


def in_global(frame: Frame, address: Array, size: int, what: str) -> Array:
    """Offsets into global memory's data of `size` bytes at addresses, (n, size)."""
    memory: Memory = frame.batch.memories["global"]
    start = address - memory.base
    memory.check(start, 1, what)
    memory.check(start + size - 1, 1, what)
    return start[:, None] + np.arange(size)[None, :]


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
        raise Trouble(f"{what} of a bulk copy is no multiple of 16")


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
)  # fmt: skip
def _bulk_load(line: Binder) -> Step:
    to, origin, count, barrier = (
        line.address(0), line.address(1), line.read(2, "u32"), line.address(3),
    )  # fmt: skip
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
                    _: Array | None,
                    rows: Array = rows[same],
                    target: Array = target[same],
                    source: Array = source[same],
                    signal: Array = signal[same],
                    size: int = size,
                    wanted: Array | None = wanted,
                    column: int = column,
                ) -> None:
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

    return Step(run)


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

    return Step(run)


def _read_bytes(
    frame: Frame, column: int, rows: Array, source: Array, size: int, unit: int, place: Place
) -> Array:
    index = in_shared(frame, rows, source, size, "a bulk store")
    watched(frame, column, index[:, ::4], 4, place, writes=False)
    return frame.batch.memories["shared"].load(index[:, ::unit], unit)


def _write_bytes(
    frame: Frame,
    column: int,
    rows: Array,
    target: Array,
    size: int,
    unit: int,
    change: Callable[..., Array] | None,
    place: Place,
    values: Array,
) -> None:
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


commits("cp.async.bulk.commit_group", _READ, _SEEN)
waits("cp.async.bulk.wait_group?{read:read}", _READ, _SEEN)
