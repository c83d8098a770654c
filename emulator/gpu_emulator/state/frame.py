"""Threads that run together, the memory of a batch of CTAs, and how they access it.

How strong an access is: PTX ISA, "Memory Consistency Model: Operation types, Scope". A missing
`.sem` of an atomic operation is `.relaxed`, a missing `.scope` is `.gpu`; `.volatile` counts as
`.relaxed.sys`.

Global memory is one array of all allocations with guard zones between them. Shared memory has a row
for each CTA, local memory one for each thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_emulator.engines.tcgen05 import COLUMNS, ROWS, Allocator
from gpu_emulator.steps import MASK, WARP, Array, Region, Registers
from gpu_emulator.values import FaultKind, Place

WITHIN_CTA, WITHIN_GPU = 1, 2
"""For whom an access is strong: threads of its CTA, or all. A cluster's counts as all."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """`strength` 0 is a weak access; `acquires` and `releases` as `.acquire` and `.release`."""

    strength: int = 0
    acquires: bool = False
    releases: bool = False


WEAK = Semantics()


def semantics_of(parts: Mapping[str, str], *, is_atomic: bool = False) -> Semantics:
    """By the parts of an opcode that are named `sem` and `scope`."""
    word = parts.get("sem") or ("relaxed" if is_atomic else "weak")
    if word == "weak":
        return WEAK
    strength = WITHIN_CTA if parts.get("scope") == "cta" else WITHIN_GPU
    return Semantics(strength, word in ("acquire", "acq_rel"), word in ("release", "acq_rel"))


TENSOR_MEMORY = "tensor memory"
# Where global memory begins.
GLOBAL_BASE = 0x7F00_0000_0000
# An address of shared memory of another CTA of the cluster has its rank, plus one, up here.
CLUSTER_SHIFT = 24
_GUARD = 4096
_SIZES = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
_ALL_WRITTEN = {size: int.from_bytes(b"\1" * size, "little") for size in (1, 2, 4, 8)}


class Trouble(Exception):  # noqa: N818 - what the program did, not what went wrong here
    """A fault of the program that runs; the machine adds where it happened, if it is not known."""

    def __init__(
        self, what: str, kind: FaultKind = "memory_fault", place: Place | None = None
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.place = place


@contextmanager
def as_trouble(noun: str = "") -> Iterator[None]:
    """What an engine refuses is a fault of the program; `noun` begins its words."""
    try:
        yield
    except (ValueError, IndexError) as error:
        raise Trouble(f"{noun}{error}") from None


class Memory:
    """A state space. Addresses begin at `base`; a row has `stride` bytes, 0 if it is one."""

    def __init__(
        self, name: str, data: Array, base: int, stride: int, regions: Sequence[Region]
    ) -> None:
        self.name = name
        self.base = base
        self.stride = stride
        self.regions = sorted(regions, key=lambda region: region.start)
        self.data = data
        self.views = {size: data.view(kind) for size, kind in _SIZES.items()}
        self.written: Array | None = None
        self._first_bytes = [region.start for region in self.regions]
        self._starts = np.array(self._first_bytes, dtype=np.int64)
        self._ends = np.array([region.end for region in self.regions], dtype=np.int64)

    def check(self, offset: Array, size: int, noun: str) -> None:
        """Trouble unless every offset into a row is aligned and `size` bytes lie in one region."""
        if size > 1 and (np.bitwise_or.reduce(offset, axis=None) & (size - 1)):
            bad = offset[(offset & (size - 1)) != 0].flat[0]
            raise Trouble(
                f"{noun} of {size} bytes at {self.where(int(bad))}, no multiple of {size}"
            )
        low, high = int(offset.min()), int(offset.max())
        at = self.region_of(low)
        if at >= 0 and high + size <= self.regions[at].end:
            return
        if not self.regions:
            raise Trouble(f"{noun} of {size} bytes at {self.where(low)}: it has none")
        places = np.searchsorted(self._starts, offset, side="right") - 1
        # Not `offset + size`, which wraps at the end of the address space.
        outside = (places < 0) | (offset > self._ends[places] - size)
        if outside.any():
            bad = int(offset[outside].flat[0])
            count = int(outside.sum())
            raise Trouble(
                f"{noun} of {size} bytes at {self.where(bad)} is out of bounds ({count} threads)"
            )

    def region_of(self, offset: int) -> int:
        """The number of the last region that begins no later than at an offset; -1: none does."""
        return bisect_right(self._first_bytes, offset) - 1

    def where(self, offset: int) -> str:
        """An offset in words: which region it is in or next to."""
        at = self.region_of(offset)
        address = f"{self.name} address {hex((offset + self.base) % (1 << 64))}"
        if at < 0:
            return address
        region = self.regions[at]
        if offset - region.end < _GUARD:
            size = region.end - region.start
            return f"{address} (byte {offset - region.start} of {region.name}, which has {size})"
        return address

    def load(self, index: Array, size: int) -> Array:
        """Elements of a size (1 to 16) at offsets into the data; checked before."""
        return self.views[size].take(index >> (size.bit_length() - 1))

    def store(self, index: Array, values: Array, size: int) -> None:
        """Write elements; where an offset occurs twice, the last one stays."""
        place = index >> (size.bit_length() - 1)
        self.views[size][place] = values
        if self.written is not None:
            self.written.view(_SIZES[size])[place] = _ONES[size]

    def unwritten(self, index: Array, size: int) -> Array | None:
        """Which of the elements have a byte that nothing wrote; None: not known, or none."""
        if self.written is None:
            return None
        flags = self.written.view(_SIZES[size]).take(index >> (size.bit_length() - 1))
        if size == 16:
            pair = np.ascontiguousarray(flags)[..., None].view("u8")
            missing = (pair != _ALL_WRITTEN[8]).any(axis=-1)
        else:
            missing = flags != _ALL_WRITTEN[size]
        return missing if missing.any() else None


_ONES = {size: np.frombuffer(b"\1" * size, dtype=kind)[0] for size, kind in _SIZES.items()}


@dataclass(slots=True)
class Hold:
    """Threads that wait after a block until `over` says so, thread by thread.

    Then `then` runs for those that go on, as active ones.
    """

    mask: Array
    over: Callable[[], Array]
    why: Callable[[], str]
    then: Callable[[], None] | None
    place: Place


@dataclass(slots=True, eq=False)
class Parting:
    """Threads that parted from others of their warp, and have not come to where all meet again.

    `meets_at` is a block, None where only the end is common; `place` is the branch.
    """

    mask: Array
    meets_at: int | None
    place: Place


class Frame:
    """The threads `first` to `first + lanes` of each CTA of a batch, with their registers.

    Rows are CTAs, columns threads. `rows` is (CTAs, 1), `threads` (1, lanes). `at` is the block
    where all threads are, or an array of these that broadcasts to the shape; `end` is the number
    behind the last block: where the threads are that have left. `place` is the instruction that is
    executed, or that issued what takes effect.
    """

    def __init__(self, batch: Any, first: int, lanes: int, outside: int) -> None:  # noqa: ANN401
        # The `Batch`, whose module builds on this one.
        self.batch = batch
        self.first = first
        self.lanes = lanes
        self.ctas = batch.ctas
        self.rows = np.arange(batch.ctas, dtype=np.int64)[:, None]
        self.threads = np.arange(first, first + lanes, dtype=np.int64)[None, :]
        self.shape = (batch.ctas, lanes)
        self.registers: Registers = []
        self.place = Place(instruction="")
        self.end = outside
        self.at: int | Array = 0
        self.holds: list[Hold] = []
        self.parted: list[Parting] = []
        # Registers that `tcgen05.ld` writes, where, and the threads that have not waited for it.
        self._unwaited: dict[int, tuple[Place, Array]] = {}

    def clock(self) -> int:
        self.batch.ticks += 1
        return self.batch.executed + self.batch.ticks

    def full(self, value: Array) -> Array:
        return np.broadcast_to(value, self.shape)

    def by_warp(self, value: Array) -> Array:
        """A value of every thread as (CTAs, warps, 32)."""
        return np.broadcast_to(value, self.shape).reshape(self.ctas, -1, WARP)

    def whole_warps(self, mask: Array) -> Array:
        """All threads of the warps of which some are in a mask."""
        some = self.by_warp(mask).any(axis=2, keepdims=True)
        return np.broadcast_to(some, (*some.shape[:2], WARP)).reshape(self.shape)

    def active(self) -> Array:
        mask = self.registers[MASK]
        if mask is None:
            return np.ones(self.shape, dtype=np.bool_)
        return np.broadcast_to(mask, self.shape)

    def loaded_late(self, slots: Sequence[int]) -> None:
        self._unwaited.update(dict.fromkeys(slots, (self.place, self.active())))

    def waited_for_loads(self) -> None:
        active = self.active()
        self._unwaited = {
            slot: (place, mask & ~active)
            for slot, (place, mask) in self._unwaited.items()
            if (mask & ~active).any()
        }

    def too_early(self, touched: AbstractSet[int]) -> Place | None:
        for slot in sorted(self._unwaited.keys() & touched):
            place, mask = self._unwaited[slot]
            if (mask & self.active()).any():
                return place
        return None

    def alive(self) -> Array:
        return np.broadcast_to(np.asarray(self.at) != self.end, self.shape)

    @contextmanager
    def only(self, mask: Array | None) -> Iterator[None]:
        """These threads alone are active meanwhile."""
        outer = self.registers[MASK]
        self.registers[MASK] = mask
        yield
        self.registers[MASK] = outer

    def write(self, slot: int, value: Array) -> None:
        mask = self.registers[MASK]
        if mask is not None:
            value = np.where(mask, value, self.registers[slot])
        self.registers[slot] = value

    def write_for_warps(self, slot: int, value: Array) -> None:
        """What any active lane writes to a register of its warp."""
        mask = self.registers[MASK]
        if mask is not None:
            value = np.where(self.whole_warps(mask), value, self.registers[slot])
        self.registers[slot] = value

    def hold(
        self,
        mask: Array,
        over: Callable[[], Array],
        why: Callable[[], str],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Threads wait behind this instruction, as `Hold` says."""
        self.holds.append(Hold(mask, over, why, then, self.place))

    def waiting(self) -> Array | None:
        """The threads that wait still; None if none does. Those that go on are let go."""
        if not self.holds:
            return None
        holds = []
        mask: Array | None = None
        for hold in self.holds:
            self.place = hold.place
            free = hold.mask & hold.over()
            if free.any():
                if hold.then is not None:
                    self.registers[MASK] = free
                    hold.then()
                    self.registers[MASK] = None
                hold.mask = hold.mask & ~free
            if hold.mask.any():
                holds.append(hold)
                mask = hold.mask if mask is None else mask | hold.mask
        self.holds = holds
        return mask

    @property
    def is_done(self) -> bool:
        return bool(np.all(np.asarray(self.at) == self.end))


@dataclass(frozen=True, slots=True)
class Touch:
    """The active threads of a frame access `size` bytes each at offsets into a memory's data."""

    frame: Frame
    memory: Memory
    index: Array
    size: int
    active: Array | None
    how: Semantics = WEAK


def reach_trap(registers: Registers) -> None:
    """Trouble if any thread is active."""
    frame: Frame = registers[0]
    active = frame.active()
    if active.any():
        row, column = np.argwhere(active)[0].tolist()
        where = tuple(frame.batch.coordinates[row].tolist())
        raise Trouble(f"thread {column + frame.first} of CTA {where} reaches a trap", "trap")


_RANK_MASK = (1 << CLUSTER_SHIFT) - 1


def locate(
    frame: Frame, space: str, address: Array, size: int, noun: str, active: Array | None
) -> list[tuple[Memory, Array, Array | None]]:
    """Where the bytes at addresses are: (memory, offsets into its data, mask of threads) a space.

    Offsets of threads that are not active are those of some active one. Trouble if any access is
    out of bounds or not aligned.
    """
    if active is not None and not active.any():
        return []
    if space == "generic":
        places = []
        mask = np.ones(address.shape, np.bool_) if active is None else frame.full(active)
        address = np.broadcast_to(address, mask.shape)
        inside = {
            name: mask & frame.batch.is_in(name, address.view(np.uint64))
            for name in ("shared", "local", "param")
        }
        # What is in no window at all is a wrong global address.
        beyond = mask & ~np.logical_or.reduce(list(inside.values()))
        for name, here in {"global": beyond, **inside}.items():
            if here.any():
                chosen = None if active is None and here.all() else here
                offset = address - frame.batch.windows[name]
                places += locate(frame, name, offset, size, noun, chosen)
        return places
    if active is not None:
        # A place that some active thread accesses, for those that do not.
        shape = np.broadcast_shapes(address.shape, active.shape)
        address = np.broadcast_to(address, shape)
        active = np.broadcast_to(active, shape)
        address = np.where(active, address, address[active][0])
    memory = frame.batch.memories[space]
    return [(memory, _offsets(frame, memory, space, address, size, noun), active)]


def _offsets(
    frame: Frame, memory: Memory, space: str, address: Array, size: int, noun: str
) -> Array:
    if space == "shared":
        rows: Array = frame.rows
        if int(address.max()) > _RANK_MASK or frame.batch.has_all_ranks:
            rows = frame.batch.owners(rows, address)
            address = address & _RANK_MASK
        memory.check(address, size, noun)
        return rows * memory.stride + address if memory.stride and frame.ctas > 1 else address
    if space == "local":
        memory.check(address, size, noun)
        return (frame.rows * frame.batch.threads + frame.threads) * memory.stride + address
    offset = address - memory.base
    memory.check(offset, size, noun)
    return offset


def gather(
    registers: Registers, space: str, size: int, address: Array, how: Semantics = WEAK
) -> Array:
    """What the active threads read: `size` bytes (1 to 16) each."""
    frame: Frame = registers[0]
    value: Array | None = None
    for memory, index, active in locate(frame, space, address, size, "a load", registers[MASK]):
        loaded = memory.load(index, size)
        if memory.written is not None:
            frame.batch.note_unwritten(frame, memory, index, size, active)
        if frame.batch.watch is not None:
            touch = Touch(frame, memory, index, size, active, how)
            frame.batch.watch.read(touch)
            frame.batch.watch.acquire(touch)
        value = loaded if value is None or active is None else np.where(active, loaded, value)
    if value is None:
        return np.zeros((1, 1), dtype="c16" if size == 16 else f"u{size}")
    return value


def scatter(
    registers: Registers, space: str, address: Array, values: Array, how: Semantics = WEAK
) -> None:
    """Write elements of 1 to 16 bytes for the active threads."""
    frame: Frame = registers[0]
    size, mask = values.dtype.itemsize, registers[MASK]
    for memory, index, active in locate(frame, space, address, size, "a store", mask):
        if memory.stride and frame.ctas > 1:
            values = np.broadcast_to(values, np.broadcast_shapes(values.shape, (frame.ctas, 1)))
        if frame.batch.watch is not None:
            touch = Touch(frame, memory, index, size, active, how)
            frame.batch.watch.release(touch)
            frame.batch.watch.write(touch, values)
        if active is not None:
            shape = np.broadcast_shapes(index.shape, values.shape, active.shape)
            mask_there = np.broadcast_to(active, shape)
            chosen = np.broadcast_to(index, shape)[mask_there]
            stored = np.broadcast_to(values, shape)[mask_there]
        elif index.shape == values.shape:
            chosen, stored = index, values
        else:
            shape = np.broadcast_shapes(index.shape, values.shape)
            chosen, stored = np.broadcast_to(index, shape), np.broadcast_to(values, shape)
        memory.store(chosen, stored, size)
        if frame.batch.schedule.warps == "last":
            _store_farthest(memory, chosen, stored, size)


def _store_farthest(memory: Memory, index: Array, values: Array, size: int) -> None:
    """Where several lanes wrote to one place, leave the value that is farthest from what is there.

    Which of them stays is not defined (`watching.py`); the distance is of their bits as a number.
    """
    there = memory.load(index, size)
    lost = there != values
    if lost.any():
        there, values = there[lost], values[lost]
        order = np.argsort(np.maximum(there, values) - np.minimum(there, values), kind="stable")
        memory.store(index[lost][order], values[order], size)


def joined_words(values: Sequence[Array]) -> Array:
    """Registers, up to 16 bytes together, as one element: the first in the low bits."""
    shape = np.broadcast_shapes(*(value.shape for value in values))
    joint = np.empty((*shape, len(values)), values[0].dtype)
    for number, value in enumerate(values):
        joint[..., number] = value
    return joint.view(_SIZES[joint.dtype.itemsize * len(values)])[..., 0]


def issuers(frame: Frame) -> Iterator[tuple[int, Array]]:
    """Column by column, the threads that are active: the column and the rows of their CTAs."""
    active = frame.active()
    for column in np.nonzero(active.any(axis=0))[0].tolist():
        yield column, np.nonzero(active[:, column])[0]


def by_operands(
    frame: Frame, column: int, rows: Array, values: Sequence[Array]
) -> Iterator[tuple[Array, list[int]]]:
    """Rows whose thread in a column has the same values, and these as numbers."""
    taken = [
        np.broadcast_to(value, frame.shape)[rows, column].astype(np.uint64, copy=False)
        for value in values
    ]
    if not taken:
        yield rows, []
        return
    table = np.stack(taken, axis=1)
    if (table == table[0]).all():
        yield rows, table[0].tolist()
        return
    kinds, kind_of = np.unique(table, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        yield rows[kind_of.reshape(-1) == number], kind.tolist()


class TensorMemories:
    """128 x 512 words of each CTA: `words` is (CTAs, 128, 512), made when it is first asked for.

    Cells have numbers: (CTA * 128 + lane) * 512 + column.
    """

    def __init__(self, ctas: int, garbage: int, *, validity: bool) -> None:
        random = np.random.default_rng((garbage, 55))
        pattern = random.integers(0, 1 << 32, (1, ROWS, COLUMNS), dtype=np.uint32)
        self.words: Array = np.repeat(pattern, ctas, axis=0)
        self.allocators = [Allocator() for _ in range(ctas)]
        self._written = np.zeros(ctas * ROWS * COLUMNS, np.bool_) if validity else None

    @property
    def is_tracked(self) -> bool:
        """Whether it is remembered which cells were written."""
        return self._written is not None

    def mark(self, cells: Array) -> None:
        if self._written is not None:
            self._written[cells] = True

    def unwritten(self, cells: Array) -> Array:
        """Those of the cells that nothing wrote, each once, where that is known."""
        return cells[:0] if self._written is None else np.unique(cells[~self._written[cells]])
