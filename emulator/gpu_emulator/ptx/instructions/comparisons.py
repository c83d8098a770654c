"""Comparison and selection. PTX ISA, "Comparison and Selection Instructions" of all widths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpu_emulator.ptx.program.binder import Binder
from gpu_emulator.ptx.program.table import opcode
from gpu_emulator.steps import Registers, Step
from gpu_emulator.types import BITS, DTYPES, Array

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
_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip
_UNORDERED = "equ|neu|ltu|leu|gtu|geu|num|nan"
_EACH = f"eq|ne|lt|le|gt|ge|{_UNORDERED}"
_BOOL = "?{bool:and|or|xor}"
_ORDERS = (
    f"{{order:eq|ne}}{_BOOL}%s.{{type:b16|b32|b64}}",
    f"{{order:eq|ne|lt|le|gt|ge}}{_BOOL}%s.{{type:{_INTEGERS}}}",
    f"{{order:lo|ls|hi|hs}}{_BOOL}%s.{{type:u16|u32|u64}}",
    f"{{order:{_EACH}}}{_BOOL}?{{ftz:ftz}}%s.{{type:f16|f32}}",
    f"{{order:{_EACH}}}{_BOOL}%s.{{type:bf16|f64}}",
)
_PAIRS = (
    f"{{order:{_EACH}}}{_BOOL}?{{ftz:ftz}}%s.{{type:f16x2}}",
    f"{{order:{_EACH}}}{_BOOL}%s.{{type:bf16x2}}",
)


def _comparison(line: Binder) -> Callable[[Array, Array], Array]:
    """What compares two arrays of the type that the line says; of a packed type, of its parts."""
    order, kind = line.parts["order"], line.parts["type"].removesuffix("x2")
    if kind not in ("f16", "bf16", "f32", "f64"):
        return _COMPARE[order]
    compare = _of_floats(order)
    if not line.parts.get("ftz"):
        return compare
    tiny = np.finfo(DTYPES[kind]).tiny

    def flushed(a: Array) -> Array:
        return np.where(np.abs(a) < tiny, a.dtype.type(0), a)

    return lambda a, b: compare(flushed(a), flushed(b))


def _of_floats(order: str) -> Callable[[Array, Array], Array]:
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


@opcode(*(f"setp.{each % ''}" for each in _ORDERS), section=f"{_CHOICE}: setp", pure=True)
def _set_predicate(line: Binder) -> Step:
    kind, compare = line.parts["type"], _comparison(line)
    slots = [line.target(each.strip(), "pred")[0] for each in line.operand(0).split("|")]
    if not line.parts["bool"] and len(slots) == 1:
        return line.computed(compare, [kind, kind], "pred")
    left, right = line.read(1, kind), line.read(2, kind)

    def both(registers: Registers) -> list[Array]:
        holds = compare(left(registers), right(registers))
        return [holds, ~holds]

    return _joined(line, slots, both)


@opcode(
    *(f"setp.{each % ''}" for each in _PAIRS),
    section=f"{_CHOICE}: setp (half precision)", pure=True,
)  # fmt: skip
def _set_predicates(line: Binder) -> Step:
    compare = _comparison(line)
    slots = [line.target(each.strip(), "pred")[0] for each in line.operand(0).split("|")]
    left, right = line.read(1, "b32"), line.read(2, "b32")

    def each(registers: Registers) -> list[Array]:
        holds = compare(*_halves(line, left(registers), right(registers)))
        return [holds[..., 0], holds[..., 1]]

    return _joined(line, slots, each)


def _joined(line: Binder, slots: list[int], values: Callable[[Registers], list[Array]]) -> Step:
    """Predicates, each joined with the last operand where the opcode has a boolean operation."""
    combine = _JOIN.get(line.parts["bool"])
    other = line.read(3, "pred") if combine else None

    # A result may be an operand too: read it before anything is written.
    def run(registers: Registers) -> None:
        third = other(registers) if other else None
        for slot, value in zip(slots, values(registers), strict=False):
            registers[slot] = value if third is None or combine is None else combine(value, third)

    return Step(run, tuple(slots), is_pure=True)


def _halves(line: Binder, *registers: Array) -> list[Array]:
    """The two parts of packed registers, in one more dimension."""
    half = DTYPES[line.parts["type"].removesuffix("x2")]
    return [
        np.ascontiguousarray(each)[..., None].view(half) for each in np.broadcast_arrays(*registers)
    ]


@opcode(
    *(f"set.{each % '.{result:u16|s16|u32|s32|f16|bf16|f32}'}" for each in _ORDERS),
    section=f"{_CHOICE}: set", pure=True,
)  # fmt: skip
def _set(line: Binder) -> Step:
    kind, result, compare = line.parts["type"], line.parts["result"], _comparison(line)
    yes, no = _truths(result)

    def function(a: Array, b: Array, *third: Array) -> Array:
        holds = compare(a, b)
        return np.where(_JOIN[line.parts["bool"]](holds, *third) if third else holds, yes, no)

    return line.computed(function, [kind, kind, *_also(line)], result)


@opcode(
    *(f"set.{each % '.{result:u32|s32|f16x2|bf16x2}'}" for each in _PAIRS),
    section=f"{_CHOICE}: set (half precision)", pure=True,
)  # fmt: skip
def _set_pair(line: Binder) -> Step:
    compare, result = _comparison(line), line.parts["result"]
    yes, no = _truths(result.removesuffix("x2") if "x2" in result else "u16")

    def function(a: Array, b: Array, *third: Array) -> Array:
        holds = compare(*_halves(line, a, b))
        if third:
            holds = _JOIN[line.parts["bool"]](holds, third[0][..., None])
        return np.where(holds, yes, no).view(np.uint32)[..., 0]

    return line.computed(function, ["b32", "b32", *_also(line)], "b32")


def _also(line: Binder) -> list[str]:
    return ["pred"] if line.parts["bool"] else []


def _truths(result: str) -> tuple[Array, Array]:
    """What stands for true and for false: 1.0, or all bits, and 0."""
    dtype = DTYPES[result]
    ones = np.array(-1 % (1 << (8 * dtype.itemsize)), f"u{dtype.itemsize}").view(dtype)
    return (np.array(1, dtype) if "f" in result else ones), np.array(0, dtype)


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
