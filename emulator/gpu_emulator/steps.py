"""A program of any instruction set, ready to run: blocks of closures over registers; its variables.

PTX types as numpy types, and how one becomes another. Registers hold unsigned integers. Source: PTX
ISA, "State Spaces, Types, and Variables": fundamental types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gpu_emulator.values import MOST_THREADS, Launch, Place

# Where shared memory begins: hardware keeps the first KiB for itself.
SHARED_BASE = 1024


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `start` to `end` of a row that something owns; whether they are zero at first."""

    name: str
    start: int
    end: int
    is_zero: bool = False


def laid_out(
    sizes: Iterable[tuple[str, int, int]], start: int, apart: int = 0
) -> tuple[list[Region], int]:
    """Regions for (name, size, alignment) one after the other, and where the next may begin.

    Between them lie at least `apart` bytes.
    """
    regions, at = [], start
    for name, size, align in sizes:
        at = -(-at // align) * align
        regions.append(Region(name, at, at + size))
        at += size + apart
    return regions, at


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `size` 0 is an array whose size the launch gives (`.extern .shared`).

    `relocations` are (offset in `data`, name of another variable, addend): its address goes there.
    """

    name: str
    space: str
    type: str
    size: int
    align: int
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()
    is_extern: bool = False


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


MOST_BYTES = 1 << 30
"""So many bytes the variables of a module may take."""

# Slot 0 is the frame, slot 1 the mask of active threads (None: all); arrays follow.
Registers = list[Any]
Reader = Callable[[Registers], Array]
Run = Callable[[Registers], None]
FRAME, MASK, FIRST_SLOT = 0, 1, 2
WARP = 32


@dataclass(slots=True)
class Step:
    """One line as a closure. `writes` are the slots of its results.

    A pure step knows no mask: it may run for all threads, and be undone where it does not count.
    `reads_old`: where it does not write, a result keeps its value (a guard, a mask). A prelude runs
    first, for all active threads. `for_warps`: results are of warps, and what any of its threads
    writes is there for all.
    """

    run: Run
    writes: tuple[int, ...] = ()
    is_pure: bool = False
    reads_old: bool = False
    prelude: Run | None = None
    for_warps: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A basic block as closures: `whole` where all threads are active, `part` where some are.

    `predicate` is the slot that decides about the branch (None: always), `table` the reader of the
    index into `targets` (`brx.idx`). `following` is None behind `exit`. `meeting` reads the lanes
    that have to be here together; `apart`: of those that meet, only lanes of one mask run at once.
    `meets_at` is the block, after block `number`, where threads that part at its `branch` meet for
    certain (None: only at the end). `aligned` is an instruction that wants the whole warp. `reads`
    and `writes` are the slots of each closure.
    """

    whole: tuple[Run, ...]
    part: tuple[Run, ...]
    places: tuple[Place, ...]
    reads: tuple[frozenset[int], ...]
    writes: tuple[tuple[int, ...], ...]
    number: int
    following: int | None
    count: int
    targets: tuple[int, ...] = ()
    predicate: int | None = None
    is_negated: bool = False
    table: Reader | None = None
    leaves: bool = False
    meeting: Reader | None = None
    meets_at: int | None = None
    branch: Place | None = None
    aligned: Place | None = None
    apart: bool = False

    @classmethod
    def of(cls, entries: Sequence[SectionEntry], **rest: Any) -> Section:  # noqa: ANN401
        """A section of what `entry_of` gives for each of its steps."""
        columns = zip(*entries, strict=True) if entries else [()] * 5
        return cls(*columns, **rest)


def merge(step: Step, registers: Registers, active: Array) -> None:
    """Run a pure step for some threads only: the others keep what they have."""
    if step.for_warps:
        active = registers[FRAME].whole_warps(active)
    before = [registers[slot] for slot in step.writes]
    step.run(registers)
    for slot, old in zip(step.writes, before, strict=True):
        registers[slot] = np.where(active, registers[slot], old)


def applied(function: Callable[..., Array], slot: int, readers: Sequence[Reader]) -> Run:
    """A closure that applies a function; spelled out by arity, since each call costs."""
    if len(readers) == 1:
        (reader,) = readers

        def unary(registers: Registers) -> None:
            registers[slot] = function(reader(registers))

        return unary
    if len(readers) == 2:
        left, right = readers

        def binary(registers: Registers) -> None:
            registers[slot] = function(left(registers), right(registers))

        return binary

    def any_arity(registers: Registers) -> None:
        registers[slot] = function(*[each(registers) for each in readers])

    return any_arity


def under(step: Step, predicate: int, *, is_negated: bool) -> Run:
    """A step as it runs under a guard."""
    run, is_pure = step.run, step.is_pure

    def guarded(registers: Registers) -> None:
        holds = registers[predicate]
        if is_negated:
            holds = ~holds
        outer = registers[MASK]
        active = holds if outer is None else holds & outer
        if outer is None and active.all():
            run(registers)
            return
        if not active.any():
            return
        if is_pure:
            merge(step, registers, active)
            return
        registers[MASK] = active
        run(registers)
        registers[MASK] = outer

    return guarded


SectionEntry = tuple[Run, Run, Place, frozenset[int], tuple[int, ...]]


def entry_of(step: Step, place: Place, reads: Iterable[int]) -> SectionEntry:
    """A step for all threads, and for some; its place, the slots that it reads and writes."""
    touched = frozenset(reads).union(step.writes if step.reads_old else ())
    part = step.run
    if step.is_pure:
        part = lambda registers: merge(step, registers, registers[MASK])  # noqa: E731
    return step.run, part, place, touched, step.writes


class Slots:
    """Where constants, special registers (by their PTX names) and addresses are kept.

    `uniform` are registers of a warp, of which all lanes hold one value.
    """

    def __init__(self) -> None:
        self.count = FIRST_SLOT
        self.bits: dict[int, int] = {}
        self.constants: dict[int, Array] = {}
        self.special: dict[str, int] = {}
        self.uniform: set[int] = set()
        # Addresses of variables, so many bytes on.
        self.symbols: dict[tuple[str, int], int] = {}

    def new(self, bits: int) -> int:
        """A slot more."""
        slot = self.count
        self.count += 1
        self.bits[slot] = bits
        return slot


@dataclass(slots=True)
class Entry:
    """What a launch has to know of an entry. `functions` maps a function to its address.

    The first parameter begins at `parameters_from` of the memory of parameters.
    """

    name: str
    parameters: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    functions: dict[str, int] = field(default_factory=dict)
    directives: tuple[str, ...] = ()
    parameters_from: int = 0


# So many values for registers that nothing wrote; the next register begins so many further on.
_GARBAGE, _APART = 1 << 16, 1031


@dataclass(frozen=True, slots=True)
class Program:
    """An entry ready to run. `live` is how many arrays of registers it holds at most.

    `grain` is the size of the smallest access to shared memory, `global_grain` to global memory; at
    most 16 bytes. `is_plain`: warps wait at barriers of their whole CTA and at mbarriers alone, no
    access is atomic or stronger than others, and nothing tells the time. `banks` gives what else a
    launch puts into slots, of the launch, the bytes of its parameters, addresses of variables and
    where spaces begin. `is_free`: lanes that parted may run in any order, and nothing but the
    program says where they meet.
    """

    entry: Entry
    slots: Slots
    sections: tuple[Section, ...]
    shared: tuple[Region, ...]
    shared_end: int
    dynamic: Variable | None
    local: tuple[Region, ...]
    local_end: int
    live: int
    grain: int
    global_grain: int
    is_plain: bool
    banks: Callable[[Launch, Array, Mapping[str, int], Mapping[str, int]], Mapping[int, Any]] = (
        lambda *_: {}
    )
    is_free: bool = False

    @property
    def dynamic_start(self) -> int:
        """Where the array of shared memory begins whose size the launch gives."""
        align = 1 if self.dynamic is None else max(self.dynamic.align, 16)
        return -(-self.shared_end // align) * align

    def initial(self, garbage: int, first: int, lanes: int) -> list[Array]:
        """Every slot: constants, and something arbitrary in registers that nothing wrote.

        With an even number of garbage all registers of a width are equal, in all threads; with an
        odd one each register has a value of its own in each thread, from the thread `first` on. So
        a result that depends on two of them shows too: whether they are equal, or their difference.
        """
        random = np.random.default_rng(garbage)
        fill: dict[int, Array] = _garbage(garbage) if garbage % 2 else {}
        for bits in (1, 8, 16, 32, 64) if not fill else ():
            value = random.integers(0, 1 << bits, (1, 1), dtype=np.uint64)
            fill[bits] = value.astype(CANONICAL[bits])
        fill.setdefault(128, np.full((1, 1), complex(float(random.random()), 0.0)))
        registers = []
        for slot in range(self.slots.count):
            value = fill[self.slots.bits.get(slot, 32)]
            if garbage % 2:
                at = (slot * _APART + first) % _GARBAGE
                value = value[None, at : at + (1 if slot in self.slots.uniform else lanes)]
            registers.append(self.slots.constants.get(slot, value))
        return registers


@lru_cache(maxsize=4)
def _garbage(seed: int) -> dict[int, Array]:
    """Arbitrary values of each width: of `_GARBAGE` registers, and more for the other threads."""
    raw = np.random.default_rng(seed).integers(0, 256, 16 * (_GARBAGE + MOST_THREADS), np.uint8)
    fill = {bits: raw.view(dtype) for bits, dtype in CANONICAL.items() if bits > 1}
    return fill | {1: raw % 2 == 1}
