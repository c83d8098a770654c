"""`atom` and `red`: thread after thread, in the order of their numbers.

PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpu_emulator.numbers import arithmetic
from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.state.accesses import locate
from gpu_emulator.state.frame import Frame
from gpu_emulator.state.semantics import Semantics, semantics_of
from gpu_emulator.steps import MASK, Reader, Registers, Step
from gpu_emulator.types import BITS, DTYPES, Array
from gpu_emulator.values import Place

_TITLE = "Parallel Synchronization and Communication Instructions"
_SEM = "{sem:relaxed|acquire|release|acq_rel}"
_SCOPE = "{scope:cta|cluster|gpu|sys}"
_SPACE = "{space:global|shared|shared::cta|shared::cluster}"
_HINT = "?{hint:L2::cache_hint}"

# From what is there and the operands, in unsigned integers, to what is there afterwards.
Change = Callable[..., Array]


def _heads(base: str) -> list[str]:
    """Semantics, scope and space in the manual's order, or in that of older compilers."""
    return [
        f"{base}?{_SEM}?{_SCOPE}?{_SPACE}",
        f"{base}.{_SPACE}.{_SCOPE}.{_SEM}",
        f"{base}.{_SPACE}.{_SEM}.{_SCOPE}",
        f"{base}.{_SPACE}.{_SCOPE}",
    ]


_OPERATIONS = (
    "{op:and|or|xor}%s.{type:b32|b64}", "{op:add}%s.{type:u32|s32|u64|s64}",
    "{op:inc|dec}%s.{type:u32}", "{op:min|max}%s.{type:u32|s32|u64|s64}",
    "{op:add}%s.{type:f32|f64}", "{op:add}.noftz%s.{type:f16|f16x2|bf16|bf16x2}",
)  # fmt: skip
_VECTORS = (
    "{op:add}%s.{vec:v2|v4}.{type:f32}",
    "{op:add|min|max}.noftz%s.{vec:v2|v4|v8}.{type:f16|bf16}",
    "{op:add|min|max}.noftz%s.{vec:v2|v4}.{type:f16x2|bf16x2}",
)
_EXCHANGES = (
    "{op:exch}%s.{type:b32|b64}",
    "{op:exch}%s.{type:b128}",
    "{op:cas}.{type:b16|b32|b64|b128}",
    "{op:cas}%s.{type:b32|b64}",
)


def _templates(base: str, operations: Sequence[str]) -> list[str]:
    return [f"{head}.{each.replace('%s', _HINT)}" for head in _heads(base) for each in operations]


def combine(operation: str, kind: str) -> Change:
    """What an operation makes of old bits and an operand's bits."""
    if operation in _BITS:
        return _BITS[operation]
    if kind.endswith("x2"):
        inner = combine(operation, kind.removesuffix("x2"))
        return partial(arithmetic.packed, inner, 16)
    if kind[0] in "us":
        dtype = DTYPES[kind]
        integer = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
        return lambda old, b: integer(old.view(dtype), b.view(dtype)).view(old.dtype)
    if operation == "add":
        return partial(arithmetic.add, kind)
    return partial(arithmetic.extremum, kind, largest=operation == "max")


def _are_equal(a: Array, b: Array) -> Array:
    """Bit by bit: 16 bytes are kept as a complex number."""
    if a.dtype.itemsize < 16:
        return np.equal(a, b)
    halves = [np.ascontiguousarray(each)[..., None].view(np.uint64) for each in (a, b)]
    return np.asarray(np.equal(*halves).all(axis=-1))


def _wrapped_up(old: Array, b: Array) -> Array:
    return np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))


def _wrapped_down(old: Array, b: Array) -> Array:
    return np.where((old == 0) | (old > b), b, old - old.dtype.type(1))


_BITS: dict[str, Change] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "exch": lambda _, b: b, "cas": lambda old, b, c: np.where(_are_equal(old, b), c, old),
    "inc": _wrapped_up, "dec": _wrapped_down,
}  # fmt: skip


@opcode(*_templates("atom", (*_OPERATIONS, *_VECTORS, *_EXCHANGES)), section=f"{_TITLE}: atom")
def _atomic(line: Binder) -> Step:
    return _made(line, has_result=True)


@opcode(*_templates("red", (*_OPERATIONS, *_VECTORS)), section=f"{_TITLE}: red")
def _reduction(line: Binder) -> Step:
    return _made(line, has_result=False)


def _made(line: Binder, *, has_result: bool) -> Step:
    kind = line.parts["type"]
    bits, size = f"b{BITS[kind]}", BITS[kind] // 8
    first = int(has_result)
    targets = [line.target(each, bits) for each in line.parts_of(0)] if has_result else []
    address, place = line.address(first), line.line.place
    count = 2 if line.parts["op"] == "cas" else 1
    operands = [
        [line.source(each, bits) for each in line.parts_of(first + 1 + number)]
        for number in range(count)
    ]
    space = line.parts.get("space", "").split("::")[0] or "generic"
    change, how = combine(line.parts["op"], kind), semantics_of(line.parts, is_atomic=True)

    def run(registers: Registers) -> None:
        frame: Frame = registers[0]
        at = address(registers)
        for number in range(len(operands[0])):
            values = [_all(frame, each[number], registers) for each in operands]
            old = apply_to_memory(
                registers, space, at + number * size, size, change, values, place, how
            )
            if targets:
                slot, convert = targets[number]
                frame.write(slot, old if convert is None else convert(old))

    return Step(run, tuple(slot for slot, _ in targets), is_pure=False)


def _all(frame: Frame, reader: Reader, registers: Registers) -> Array:
    return frame.full(reader(registers))


def apply_to_memory(
    registers: Registers, space: str, address: Array, size: int, change: Change,
    values: list[Array], place: Place, how: Semantics,
) -> Array:  # fmt: skip
    """Change memory for every active thread; what was there before, for all threads."""
    frame: Frame = registers[0]
    before = np.zeros(frame.shape, dtype="c16" if size == 16 else f"u{size}")
    for memory, index, active in locate(
        frame, space, address, size, "an atomic operation", registers[MASK]
    ):
        mask = np.ones(frame.shape, np.bool_) if active is None else frame.full(active)
        places = frame.full(index)[mask]
        if memory.written is not None:
            frame.batch.note_unwritten(memory, frame.full(index), size, mask, place)
        watch = frame.batch.watch
        if watch is not None:
            watch.release(frame, memory, index, active, how)
            watch.read(frame, memory, index, size, active, place, how)
            watch.write(frame, memory, index, size, active, place, None, how)
        chosen = [each[mask] for each in values]
        found = np.zeros(len(places), dtype=before.dtype)
        for turn in _turns(places):
            old = memory.load(places[turn], size)
            found[turn] = old
            memory.store(places[turn], change(old, *[each[turn] for each in chosen]), size)
        before[mask] = found
        if watch is not None:
            watch.acquire(frame, memory, index, active, how)
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
    return [order[each] for each in np.split(by_turn, limits)]
