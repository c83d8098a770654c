"""Comparison and selection. PTX ISA, "Comparison and Selection Instructions" of all widths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.program.binder import Binder
from harness.emulator.program.steps import Registers, Step
from harness.emulator.program.table import opcode
from harness.emulator.program.types import BITS, DTYPES, Array

__all__: list[str] = []

_CHOICE = "Comparison and Selection Instructions"
_INTEGERS = "u16|u32|u64|s16|s32|s64"
_FLOATS = "f16|bf16|f32|f64"

# Comparisons that are false if an operand is a NaN, and (last letter u) those that are true then.
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip
_ORDERS = "eq|ne|lt|le|gt|ge"
_UNORDERED = "equ|neu|ltu|leu|gtu|geu|num|nan"


def _comparison(order: str, kind: str) -> Callable[[Array, Array], Array]:
    is_float = kind in ("f16", "bf16", "f32", "f64")
    if not is_float:
        return _COMPARE[order]
    if order == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if order == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if order in _UNORDERED.split("|"):
        plain = _COMPARE[order[:2]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    if order == "ne":
        # Ordered: numpy's says that a NaN differs from everything.
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return _COMPARE[order]


def _flushing(function: Callable[..., Array]) -> Callable[..., Array]:
    tiny = np.finfo(np.float32).tiny

    def flushed(a: Array) -> Array:
        return np.where(np.abs(a) < tiny, a.dtype.type(0), a)

    return lambda a, b: function(flushed(a), flushed(b))


_SETP_TYPES = (
    f"{{order:{_ORDERS}}}?{{bool:and|or|xor}}.{{type:b16|b32|b64|{_INTEGERS}}}",
    "{order:lo|ls|hi|hs}?{bool:and|or|xor}.{type:u16|u32|u64}",
    f"{{order:{_ORDERS}|{_UNORDERED}}}?{{bool:and|or|xor}}?{{ftz:ftz}}.{{type:{_FLOATS}}}",
)


@opcode(*(f"setp.{each}" for each in _SETP_TYPES), section=f"{_CHOICE}: setp", pure=True)
def _set_predicate(line: Binder) -> Step:
    kind = line.parts["type"]
    compare = _comparison(line.parts["order"], kind)
    if line.parts.get("ftz"):
        compare = _flushing(compare)
    both = [each.strip() for each in line.operand(0).split("|")]
    slots = [line.target(each, "pred")[0] for each in both]
    left, right = line.read(1, kind), line.read(2, kind)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    if not line.parts["bool"] and len(slots) == 1:
        return line.computed(compare, [kind, kind], "pred")
    combine = join.get(line.parts["bool"])
    other = line.read(3, "pred") if combine else None

    # A result may be an operand too: read it before anything is written.
    def run(registers: Registers) -> None:
        third = other(registers) if other else None
        holds = compare(left(registers), right(registers))
        for slot, value in zip(slots, (holds, ~holds), strict=False):
            registers[slot] = value if third is None or combine is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


@opcode(
    *(
        f"set.{each.replace('.{type:', '.{result:u32|s32|f32}.{type:')}"
        for each in _SETP_TYPES
    ),
    section=f"{_CHOICE}: set", pure=True,
)  # fmt: skip
def _set(line: Binder) -> Step:
    kind, result = line.parts["type"], line.parts["result"]
    compare = _comparison(line.parts["order"], kind)
    if line.parts.get("ftz"):
        compare = _flushing(compare)
    dtype = DTYPES[result]
    yes = dtype.type(1.0) if result == "f32" else np.array(0xFFFF_FFFF, np.uint32).view(dtype)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    combine = join.get(line.parts["bool"])

    def plain(a: Array, b: Array) -> Array:
        return np.where(compare(a, b), yes, dtype.type(0))

    def joined(a: Array, b: Array, c: Array) -> Array:
        assert combine is not None
        return np.where(combine(compare(a, b), c), yes, dtype.type(0))

    if combine:
        return line.computed(joined, [kind, kind, "pred"], result)
    return line.computed(plain, [kind, kind], result)


@opcode(
    f"set.{{order:{_ORDERS}|{_UNORDERED}}}?{{ftz:ftz}}"
    ".{result:f16|bf16|u16|s16|u32|s32}.{type:f16|bf16}",
    section=f"{_CHOICE}: set (half precision)", pure=True,
)  # fmt: skip
def _set_half(line: Binder) -> Step:
    kind, result = line.parts["type"], line.parts["result"]
    compare = _comparison(line.parts["order"], kind)
    dtype = DTYPES[result]
    yes = dtype.type(1) if "f" in result else (~np.zeros((), f"u{dtype.itemsize}")).view(dtype)
    return line.computed(
        lambda a, b: np.where(compare(a, b), yes, dtype.type(0)), [kind, kind], result
    )


@opcode(
    f"setp.{{order:{_ORDERS}|{_UNORDERED}}}?{{bool:and|or|xor}}?{{ftz:ftz}}.{{type:f16x2|bf16x2}}",
    section=f"{_CHOICE}: setp (half precision)", pure=True,
)  # fmt: skip
def _set_predicates(line: Binder) -> Step:
    kind = line.parts["type"]
    half = DTYPES[kind.removesuffix("x2")]
    compare = _comparison(line.parts["order"], kind.removesuffix("x2"))
    slots = [line.target(each.strip(), "pred")[0] for each in line.operand(0).split("|")]
    left, right = line.read(1, kind), line.read(2, kind)
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    combine = join.get(line.parts["bool"])
    other = line.read(3, "pred") if combine else None

    def run(registers: Registers) -> None:
        third = other(registers) if other else None
        a, b = np.broadcast_arrays(left(registers), right(registers))
        halves = [np.ascontiguousarray(each)[..., None].view(half) for each in (a, b)]
        holds = compare(*halves)
        for number, slot in enumerate(slots):
            value = holds[..., number]
            registers[slot] = value if combine is None or third is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


@opcode(f"selp.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}", section=f"{_CHOICE}: selp", pure=True)
def _select(line: Binder) -> Step:
    kind = line.parts["type"]
    bits = f"b{BITS[kind]}"
    slot, convert = line.target(line.operand(0), bits)
    yes, no, which = (
        line.slot_reader(1, kind), line.slot_reader(2, kind), line.read(3, "pred"),
    )  # fmt: skip

    def run(registers: Registers) -> None:
        value = np.where(which(registers), yes(registers), no(registers))
        registers[slot] = value if convert is None else convert(value)

    return Step(run, (slot,), is_pure=True)


@opcode(
    f"slct?{{ftz:ftz}}.{{type:b16|b32|b64|{_INTEGERS}|f32|f64}}.{{sign:s32|f32}}",
    section=f"{_CHOICE}: slct", pure=True,
)  # fmt: skip
def _select_by_sign(line: Binder) -> Step:
    kind, sign = line.parts["type"], line.parts["sign"]
    is_flushed = bool(line.parts["ftz"])
    tiny = np.finfo(np.float32).tiny

    def function(a: Array, b: Array, c: Array) -> Array:
        # -0 is not less than 0, and a NaN chooses b.
        positive = c >= 0
        if is_flushed:
            positive = positive | (np.abs(c) < tiny)
        return np.where(positive, a, b)

    return line.computed(function, [kind, kind, sign], kind)
