"""What is begun and waited for later: `cp.async`, `st.async`, `red.async`, and bulk copies.

PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", "st.async"; "Parallel
Synchronization and Communication Instructions: red.async". Bulk copies are moved by an engine of
their own. Loads signal an mbarrier. Stores belong to groups and have two times: when their source
has been read, and when what they wrote can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpu_emulator.numbers.arithmetic import Change, combine
from gpu_emulator.ptx.instructions.barriers import complete_bytes, signal
from gpu_emulator.ptx.instructions.loads import vector_size
from gpu_emulator.ptx.program.binder import Binder, opcode
from gpu_emulator.state.atomics import apply_to_memory
from gpu_emulator.state.copies import COPIES, begin_copy
from gpu_emulator.state.frame import (
    CLUSTER_SHIFT,
    Frame,
    Memory,
    MemoryOperand,
    Trouble,
    issuers,
    scatter,
    semantics_of,
)
from gpu_emulator.steps import BITS, WARP, Array, Registers, Step
from gpu_emulator.values import Place

_HINTS = "?{hint:L2::cache_hint}?{prefetch:L2::64B|L2::128B|L2::256B}"
_SIGNALS = "shared::cluster.mbarrier::complete_tx::bytes"
_TYPES = "b32|b64|u32|u64|s32|s64|f32|f64"
_RED = f"red.async.relaxed.cluster.{_SIGNALS}"
RANK = (1 << CLUSTER_SHIFT) - 1


@opcode(
    f"cp.async.ca.{{space:shared|shared::cta}}.global{_HINTS}",
    f"cp.async.cg.{{space:shared|shared::cta}}.global{_HINTS}",
)  # fmt: skip
def _copy(line: Binder) -> Step:
    """Operands: to, from, size, then how many bytes to read (or a predicate to read none)."""
    to, origin, place = line.address(0), line.address(1), line.place
    size = line.constant(2)
    if size not in (4, 8, 16):
        raise line.refuse("copies neither 4 nor 8 nor 16 bytes")
    extra = line.count - 3 - bool(line.parts["hint"])
    if extra not in (0, 1):
        raise line.refuse(f"has {line.count} operands")
    name = line.operand(3).lstrip("!").strip() if extra else ""
    is_ignored = line.slots.listing.registers.get(name) == "pred"
    limit = line.read(3, "pred" if is_ignored else "u32") if extra else None
    read, write = (MemoryOperand(space, size, place) for space in ("global", "shared"))

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        target, source = to(registers), origin(registers)
        count: Array | None = None
        if limit is not None:
            count = np.where(limit(registers), 0, size) if is_ignored else limit(registers)

        begin_copy(frame, read, write, target, source, count)

    return Step(run)


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
        pending = -1 if line.parts.get("what") == "wait_all" else line.constant(0)
        if pending is None:
            raise line.refuse("waits for a count that is no number")
        chosen = kinds[:1] if line.parts.get("read") else kinds

        def run(registers: Registers) -> None:
            for kind in chosen:
                registers[0].batch.asynchrony.groups(registers[0], kind).wait(pending)

        return Step(run)


commits("cp.async.commit_group", COPIES)
waits("cp.async.{what:wait_group|wait_all}", COPIES)


@opcode(f"st.async?{{weak:weak}}.{_SIGNALS}?{{vec:v2|v4}}.{{type:{_TYPES}}}")
def _store_and_signal(line: Binder) -> Step:
    bits = BITS[line.parts["type"]]
    to, barrier = line.address(0), line.address(2)
    readers, size = line.sources(1, f"b{bits}"), bits // 8 * vector_size(line, 1)
    operand = MemoryOperand("shared", bits // 8, line.place)

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, values = to(registers), [np.array(reader(registers)) for reader in readers]

        def effect() -> None:
            for number, value in enumerate(values):
                scatter(registers, operand, at + number * operand.size, value)

        return np.array(barrier(registers)), effect, size

    return _flying(line, begin)


@opcode(
    f"{_RED}.{{op:inc|dec}}.{{type:u32}}", f"{_RED}.{{op:min|max|add}}.{{type:u32|s32}}",
    f"{_RED}.{{op:and|or|xor}}.{{type:b32}}", f"{_RED}.{{op:add}}.{{type:u64}}",
)  # fmt: skip
def _reduce_and_signal(line: Binder) -> Step:
    kind = line.parts["type"]
    size, change = BITS[kind] // 8, combine(line.parts["op"], kind)
    to, value, barrier = line.address(0), line.read(1, f"b{BITS[kind]}"), line.address(2)
    how = semantics_of({"scope": "cluster"}, is_atomic=True)
    operand = MemoryOperand("shared", size, line.place, how)

    def begin(registers: Registers) -> tuple[Array, Callable[[], None], int]:
        at, taken = to(registers), np.array(value(registers))

        def effect() -> None:
            apply_to_memory(registers, operand, at, change, [registers[0].full(taken)])

        return np.array(barrier(registers)), effect, size

    return _flying(line, begin)


@opcode("st.async.mmio.release.{scope:gpu|sys}.{space:global}.{type:b8|b16|b32|b64|u8|u16|u32|u64}")
def _store_to_device(line: Binder) -> Step:
    """Nothing waits for it: it takes effect at once, as it may."""
    bits = BITS[line.parts["type"]]
    to, value = line.address(0), line.read(1, f"b{bits}")
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]})
    operand = MemoryOperand("global", bits // 8, line.place, how)

    def run(registers: Registers) -> None:
        scatter(registers, operand, to(registers), value(registers))

    return Step(run)


@opcode("red.async.mmio.release.{scope:gpu|sys}.{space:global}.{op:add}.{type:u32|s32|u64}")
def _reduce_in_device(line: Binder) -> Step:
    kind = line.parts["type"]
    to, value, change = line.address(0), line.read(1, f"b{BITS[kind]}"), combine("add", kind)
    how = semantics_of({"sem": "release", "scope": line.parts["scope"]}, is_atomic=True)
    operand = MemoryOperand("global", BITS[kind] // 8, line.place, how)

    def run(registers: Registers) -> None:
        values = [registers[0].full(value(registers))]
        apply_to_memory(registers, operand, to(registers), change, values)

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

        slot = int(frame.full(barrier)[active].flat[0]) & RANK
        frame.batch.asynchrony.launch(frame, whole, line.place, slot=slot)

    return Step(run)


@opcode("st.bulk?{weak:weak}?{space:shared::cta}.size")
def _fill(line: Binder) -> Step:
    """Zeros: the one value that the manual allows."""
    if line.constant(2) != 0:
        raise line.refuse("fills with another value than 0")
    to, count = line.address(0), line.read(1, "u64")
    operand = MemoryOperand("shared" if line.parts["space"] else "generic", 8, line.place)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at, sizes = to(registers), frame.full(count(registers)).astype(np.int64)
        most = int(sizes[frame.active()].max(initial=0))
        for offset in range(0, most, 8):
            with frame.only(frame.active() & (sizes > offset)):
                scatter(registers, operand, at + offset, np.zeros((1, 1), np.uint64))

    return Step(run)


_READ, _SEEN = "bulk.read", "bulk.seen"
_HINT = "?{hint:L2::cache_hint}"


@dataclass(frozen=True, slots=True)
class Issue:
    """What the threads in one column, of the CTAs in some rows, issue by one instruction."""

    frame: Frame
    column: int
    rows: Array
    place: Place

    def of(self, chosen: Array) -> Issue:
        """Some of the CTAs: a mask, or numbers of them."""
        return replace(self, rows=self.rows[chosen])

    def taken(self, value: Array) -> Array:
        """What each of the threads has, as int64."""
        taken = np.broadcast_to(value, self.frame.shape)[self.rows, self.column]
        return taken.astype(np.int64, copy=False)

    def in_shared(self, address: Array, size: int, noun: str) -> Array:
        """Offsets into shared memory's data of `size` bytes at addresses, (n, size)."""
        batch = self.frame.batch
        memory, window = batch.memories["shared"], batch.windows["shared"]
        address = np.where(address >= window, address - window, address)
        rank = address >> CLUSTER_SHIFT
        owner = np.where(rank > 0, batch.cluster_row(self.rows, rank - 1), self.rows)
        start = address & RANK
        memory.check(start, 1, noun)
        memory.check(start + size - 1, 1, noun)
        return (owner * memory.stride + start)[:, None] + np.arange(size)[None, :]

    def in_global(self, address: Array, size: int, noun: str) -> Array:
        """Offsets into global memory's data of `size` bytes at addresses, (n, size)."""
        memory: Memory = self.frame.batch.memories["global"]
        start = address - memory.base
        memory.check(start, 1, noun)
        memory.check(start + size - 1, 1, noun)
        return start[:, None] + np.arange(size)[None, :]

    def watched(self, space: str, spots: Array, size: int, *, writes: bool) -> None:
        """Tell the checks of `size` bytes each at offsets (n, m) into shared or global memory."""
        batch, warp = self.frame.batch, (self.frame.first + self.column) // WARP
        if not writes and spots.size:
            batch.note_unwritten(batch.memories[space], spots, size, None, self.place)
        if batch.watch is not None:
            # In shared memory it is the CTA whose memory it is that counts.
            stride, flat = batch.memories[space].stride, spots.reshape(-1)
            rows = flat // stride if stride else np.repeat(self.rows, spots.shape[1])
            batch.watch.engine(space, warp, rows, flat, size, self.place, writes=writes)

    def signalled(self, address: Array, count: int) -> None:
        """Tell the mbarriers of the CTAs that so many bytes have come."""
        index = self.in_shared(address, 8, "the mbarrier of a bulk copy")[:, 0]
        complete_bytes(self.frame, self.rows, index, count, self.column)

    def targets(self, ranks: Array | None) -> Iterator[tuple[Issue, Array, int | None]]:
        """The CTAs that a copy goes to: its own (None), or each rank of the mask of one CTA."""
        if ranks is None:
            yield self, np.arange(len(self.rows)), None
            return
        for rank in range(self.frame.batch.launch.cluster_size):
            members = np.nonzero(ranks >> rank & 1)[0]
            if len(members):
                yield self.of(members), members, rank


def issues(registers: Registers, place: Place) -> Iterator[Issue]:
    """Column by column what the active threads issue."""
    for column, rows in issuers(registers[0]):
        yield Issue(registers[0], column, rows, place)


def copied(target: Memory, to: Array, source: Memory, origin: Array) -> None:
    """Copy byte by byte, from offsets to offsets."""
    target.store(to, source.load(origin, 1), 1)


def _by_size(target: Array, source: Array, sizes: Array) -> Iterator[tuple[int, Array]]:
    for values in (target, source, sizes):
        if (values & 15).any():
            raise Trouble("an address or the size of a bulk copy is no multiple of 16")
    for size in np.unique(sizes).tolist():
        yield size, sizes == size


def at_rank(address: Array, rank: int | None) -> Array:
    """A shared address in its own CTA, or the same place in the CTA of a rank."""
    return address if rank is None else (address & RANK) | (rank + 1 << CLUSTER_SHIFT)


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
    space, place = line.parts["source"].split("::")[0], line.place

    def run(registers: Registers) -> None:
        asynchrony = registers[0].batch.asynchrony
        values = [to(registers), origin(registers), count(registers), barrier(registers)]
        mask = None if ranks is None else ranks(registers)
        for issue in issues(registers, place):
            target, source, sizes, signal = map(issue.taken, values)
            masks = None if mask is None else issue.taken(mask)
            for size, same in _by_size(target, source, sizes):
                taken = (target[same], source[same], signal[same])
                chosen = None if masks is None else masks[same]
                effect = partial(_load_bytes, issue.of(same), taken, size, chosen, space)
                slot = int(signal[same][0]) & RANK
                asynchrony.launch(registers[0], effect, place, slot=slot)

    return Step(run)


def _load_bytes(
    issue: Issue, taken: Sequence[Array], size: int, ranks: Array | None, space: str, _: object
) -> None:
    memories, noun = issue.frame.batch.memories, "a bulk copy"
    target, source, signal = taken
    for own, members, rank in issue.targets(ranks):
        locate = own.in_global if space == "global" else own.in_shared
        where = locate(source[members], size, noun)
        index = own.in_shared(at_rank(target[members], rank), size, noun)
        copied(memories["shared"], index, memories[space], where)
        own.watched("shared", index[:, ::4], 4, writes=True)
        own.watched(space, where[:, ::4], 4, writes=False)
        own.signalled(at_rank(signal[members], rank), size)


@opcode(
    f"cp.async.bulk.global.shared::cta.bulk_group{_HINT}",
    *(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.{tail}"
        for tail in (
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
    unit, place = BITS[kind] // 8 if kind else 1, line.place

    def run(registers: Registers) -> None:
        values = [to(registers), origin(registers), count(registers)]
        for issue in issues(registers, place):
            target, source, sizes = map(issue.taken, values)
            for size, same in _by_size(target, source, sizes):
                own = issue.of(same)
                read = partial(_read_bytes, own, source[same], size, unit)
                stored(own, read, partial(_write_bytes, own, target[same], size, unit, change))

    return Step(run)


def _read_bytes(issue: Issue, source: Array, size: int, unit: int) -> Array:
    index = issue.in_shared(source, size, "a bulk store")
    issue.watched("shared", index[:, ::4], 4, writes=False)
    return issue.frame.batch.memories["shared"].load(index[:, ::unit], unit)


def _write_bytes(
    issue: Issue, target: Array, size: int, unit: int, change: Change | None, values: Array
) -> None:
    memory = issue.frame.batch.memories["global"]
    whole = issue.in_global(target, size, "a bulk store")
    if change is None:
        issue.watched("global", whole[:, ::4], 4, writes=True)
    index = whole[:, ::unit]
    for row, data in zip(index, values, strict=True):
        memory.store(row, data if change is None else change(memory.load(row, unit), data), unit)


def stored(issue: Issue, read: Callable[[], Array], write: Callable[[Array], None]) -> None:
    """A store in its two halves: what waits for the first lets the source be overwritten."""
    taken: list[Array] = []
    asynchrony = issue.frame.batch.asynchrony

    def source(_: Array | None) -> None:
        taken.append(read())

    def visible(_: Array | None) -> None:
        if not taken:
            source(None)
        write(taken[0])

    asynchrony.groups(issue.frame, _READ).issue(source, issue.place)
    asynchrony.groups(issue.frame, _SEEN).issue(visible, issue.place)


commits("cp.async.bulk.commit_group", _READ, _SEEN)
waits("cp.async.bulk.wait_group?{read:read}", _READ, _SEEN)
